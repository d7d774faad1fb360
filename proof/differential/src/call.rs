//! One request: sent, shown on a line, written to a file and read back.
//!
//! Knows nothing of: right and wrong answers.

use crate::answer::{self, Answer};
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::request_op::Request;
use kattu_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, compare,
};
use prost::Message;
use std::fmt;
use std::time::Duration;
use tonic::transport::Channel;

/// A server that is silent for so long has hung.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// KV.Range
    Range(RangeRequest),
    /// KV.Put
    Put(PutRequest),
    /// KV.DeleteRange
    DeleteRange(DeleteRangeRequest),
    /// KV.Txn
    Txn(TxnRequest),
    /// KV.Compact
    Compact(CompactionRequest),
}

impl Call {
    /// Sends it and waits for the answer.
    pub async fn send(self, mut client: KvClient<Channel>) -> Answer {
        let sent = async {
            match self {
                Call::Range(request) => client.range(request).await.map(answer::of_range),
                Call::Put(request) => client.put(request).await.map(answer::of_put),
                Call::DeleteRange(request) => client.delete_range(request).await.map(answer::of_delete_range),
                Call::Txn(request) => client.txn(request).await.map(answer::of_txn),
                Call::Compact(request) => client.compact(request).await.map(answer::of_compact),
            }
        };
        match tokio::time::timeout(ANSWER_LIMIT, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(status)) => Answer::refused(status.code() as i32, status.message()),
            Err(_) => Answer::refused(-1, "no answer at all"),
        }
    }

    /// The RPC's name in rules.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Range(_) => "range",
            Call::Put(_) => "put",
            Call::DeleteRange(_) => "delete",
            Call::Txn(_) => "txn",
            Call::Compact(_) => "compact",
        }
    }

    /// Whether it cannot change the store, so that it may be sent together with other reads.
    pub fn is_read(&self) -> bool {
        matches!(self, Call::Range(_))
    }

    /// `name hex`, for [`Call::parse`].
    pub fn encode(&self) -> String {
        let bytes = match self {
            Call::Range(request) => request.encode_to_vec(),
            Call::Put(request) => request.encode_to_vec(),
            Call::DeleteRange(request) => request.encode_to_vec(),
            Call::Txn(request) => request.encode_to_vec(),
            Call::Compact(request) => request.encode_to_vec(),
        };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {hex}", self.name())
    }

    /// Reads a line of [`Call::encode`]; text after ` #` is a comment.
    pub fn parse(line: &str) -> Result<Call, String> {
        let line = line.split(" #").next().unwrap_or("").trim();
        let (name, hex) = line.split_once(' ').unwrap_or((line, ""));
        let digits: Vec<u8> = hex.trim().bytes().collect();
        let bytes = digits
            .chunks(2)
            .map(|pair| {
                let text = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
                u8::from_str_radix(text, 16).map_err(|error| format!("`{text}`: {error}"))
            })
            .collect::<Result<Vec<u8>, String>>()?;
        let decoded = match name {
            "range" => RangeRequest::decode(&*bytes).map(Call::Range),
            "put" => PutRequest::decode(&*bytes).map(Call::Put),
            "delete" => DeleteRangeRequest::decode(&*bytes).map(Call::DeleteRange),
            "txn" => TxnRequest::decode(&*bytes).map(Call::Txn),
            "compact" => CompactionRequest::decode(&*bytes).map(Call::Compact),
            other => return Err(format!("no request is called `{other}`")),
        };
        decoded.map_err(|error| error.to_string())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Range(request) => show_range(f, request),
            Call::Put(request) => show_put(f, request),
            Call::DeleteRange(request) => show_delete(f, request),
            Call::Txn(request) => show_txn(f, request),
            Call::Compact(request) => {
                write!(f, "compact revision={}", request.revision)?;
                flag(f, "physical", request.physical)
            }
        }
    }
}

/// Bytes as text: printable ones as they are, the rest escaped, long ones cut.
pub fn text(bytes: &[u8]) -> String {
    const SHOWN: usize = 24;
    let shown: String =
        bytes.iter().take(SHOWN).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    if SHOWN < bytes.len() {
        format!("\"{shown}…\"({} bytes)", bytes.len())
    } else {
        format!("\"{shown}\"")
    }
}

/// One operation of a transaction, on a line.
pub(crate) fn shown_op(op: &RequestOp) -> String {
    struct Shown<'a>(&'a RequestOp);
    impl fmt::Display for Shown<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            show_op(f, self.0)
        }
    }
    Shown(op).to_string()
}

fn flag(f: &mut fmt::Formatter<'_>, name: &str, is_set: bool) -> fmt::Result {
    if is_set { write!(f, " {name}") } else { Ok(()) }
}

fn number(f: &mut fmt::Formatter<'_>, name: &str, value: i64) -> fmt::Result {
    if value == 0 { Ok(()) } else { write!(f, " {name}={value}") }
}

fn keys(f: &mut fmt::Formatter<'_>, key: &[u8], end: &[u8]) -> fmt::Result {
    write!(f, "{}", text(key))?;
    if end.is_empty() { Ok(()) } else { write!(f, "..{}", text(end)) }
}

fn show_range(f: &mut fmt::Formatter<'_>, request: &RangeRequest) -> fmt::Result {
    write!(f, "range ")?;
    keys(f, &request.key, &request.range_end)?;
    number(f, "limit", request.limit)?;
    number(f, "revision", request.revision)?;
    number(f, "order", request.sort_order.into())?;
    number(f, "target", request.sort_target.into())?;
    flag(f, "serializable", request.serializable)?;
    flag(f, "keys_only", request.keys_only)?;
    flag(f, "count_only", request.count_only)?;
    number(f, "min_mod", request.min_mod_revision)?;
    number(f, "max_mod", request.max_mod_revision)?;
    number(f, "min_create", request.min_create_revision)?;
    number(f, "max_create", request.max_create_revision)
}

fn show_put(f: &mut fmt::Formatter<'_>, request: &PutRequest) -> fmt::Result {
    write!(f, "put {} = {}", text(&request.key), text(&request.value))?;
    number(f, "lease", request.lease)?;
    flag(f, "prev_kv", request.prev_kv)?;
    flag(f, "ignore_value", request.ignore_value)?;
    flag(f, "ignore_lease", request.ignore_lease)
}

fn show_delete(f: &mut fmt::Formatter<'_>, request: &DeleteRangeRequest) -> fmt::Result {
    write!(f, "delete ")?;
    keys(f, &request.key, &request.range_end)?;
    flag(f, "prev_kv", request.prev_kv)
}

fn show_txn(f: &mut fmt::Formatter<'_>, request: &TxnRequest) -> fmt::Result {
    write!(f, "txn if [")?;
    for (i, condition) in request.compare.iter().enumerate() {
        if 0 < i {
            write!(f, "; ")?;
        }
        show_compare(f, condition)?;
    }
    for (word, ops) in [("then", &request.success), ("else", &request.failure)] {
        write!(f, "] {word} [")?;
        for (i, op) in ops.iter().enumerate() {
            if 0 < i {
                write!(f, "; ")?;
            }
            show_op(f, op)?;
        }
    }
    write!(f, "]")
}

fn show_op(f: &mut fmt::Formatter<'_>, op: &RequestOp) -> fmt::Result {
    match &op.request {
        Some(Request::RequestRange(request)) => show_range(f, request),
        Some(Request::RequestPut(request)) => show_put(f, request),
        Some(Request::RequestDeleteRange(request)) => show_delete(f, request),
        Some(Request::RequestTxn(request)) => show_txn(f, request),
        None => write!(f, "nothing"),
    }
}

fn show_compare(f: &mut fmt::Formatter<'_>, condition: &Compare) -> fmt::Result {
    let target = match condition.target {
        0 => "version".to_string(),
        1 => "create".to_string(),
        2 => "mod".to_string(),
        3 => "value".to_string(),
        4 => "lease".to_string(),
        other => format!("target#{other}"),
    };
    write!(f, "{target}(")?;
    keys(f, &condition.key, &condition.range_end)?;
    let result = match condition.result {
        0 => "=".to_string(),
        1 => ">".to_string(),
        2 => "<".to_string(),
        3 => "!=".to_string(),
        other => format!("result#{other}"),
    };
    write!(f, ") {result} ")?;
    match &condition.target_union {
        None => write!(f, "unset"),
        Some(compare::TargetUnion::Version(value)) => write!(f, "version {value}"),
        Some(compare::TargetUnion::CreateRevision(value)) => write!(f, "create {value}"),
        Some(compare::TargetUnion::ModRevision(value)) => write!(f, "mod {value}"),
        Some(compare::TargetUnion::Value(value)) => write!(f, "value {}", text(value)),
        Some(compare::TargetUnion::Lease(value)) => write!(f, "lease {value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Generator;

    #[test]
    fn a_request_written_down_is_read_back() {
        let mut generator = Generator::new(7, 0);
        for _ in 0..2_000 {
            let call = generator.call();
            let line = format!("{} # {call}", call.encode());
            assert_eq!(Call::parse(&line), Ok(call));
        }
    }

    #[test]
    fn a_line_that_is_no_request_says_why() {
        assert_eq!(Call::parse("watch 0a"), Err("no request is called `watch`".to_string()));
        assert!(Call::parse("put 0g").is_err());
    }
}
