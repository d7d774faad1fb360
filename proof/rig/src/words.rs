//! Translation between a history's operations and etcd's messages.
//!
//! [`kattu_client`] defines the meaning of a failed call: in doubt, unknown. A refusal by the store itself (compacted,
//! future revision, invalid) is a final answer.
//! Knows nothing of: connections.

use kattu_client::{Code, Failure, Kind};
use kattu_proto::etcdserverpb as pb;
use kattu_proto::mvccpb::KeyValue;
use kattu_verify::history::{Answer, Compare, How, Operation, Pair, Rejection, Target, What};
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::kv_client::KvClient;
use pb::request_op::Request;
use pb::response_op::Response;
use tonic::Status;
use tonic::transport::Channel;

/// Sends an operation to one member, once, and returns its outcome.
pub async fn ask(kv: &mut KvClient<Channel>, operation: &Operation) -> What {
    match try_ask(kv, operation).await {
        Ok((header, answer)) => What::Done { revision: header.map(|it| it.revision), answer: Ok(answer) },
        Err(status) => meaning(&status),
    }
}

type Answered = (Option<pb::ResponseHeader>, Answer);

async fn try_ask(kv: &mut KvClient<Channel>, operation: &Operation) -> Result<Answered, Status> {
    Ok(match request(operation) {
        Some(Request::RequestPut(request)) => {
            let it = kv.put(request).await?.into_inner();
            (it.header, Answer::Put)
        }
        Some(Request::RequestRange(request)) => {
            let it = kv.range(request).await?.into_inner();
            (it.header, range_answer(it))
        }
        Some(Request::RequestDeleteRange(request)) => {
            let it = kv.delete_range(request).await?.into_inner();
            (it.header, Answer::Delete { deleted: it.deleted })
        }
        Some(Request::RequestTxn(request)) => {
            let it = kv.txn(request).await?.into_inner();
            (it.header, txn_answer(it))
        }
        None => {
            let Operation::Compact { revision } = operation else {
                return Err(Status::internal("no request for it"));
            };
            let request = pb::CompactionRequest { revision: *revision, ..Default::default() };
            (kv.compact(request).await?.into_inner().header, Answer::Compact)
        }
    })
}

/// The meaning of a status for the history.
pub fn meaning(status: &Status) -> What {
    let rejected = |why| What::Done { revision: None, answer: Err(why) };
    match (status.code(), status.message()) {
        (Code::OutOfRange, text) if text.ends_with("has been compacted") => rejected(Rejection::Compacted),
        (Code::OutOfRange, text) if text.ends_with("is a future revision") => rejected(Rejection::Future),
        (Code::InvalidArgument, _) => rejected(Rejection::Invalid),
        _ => {
            let failure = Failure::from_status(status, "");
            let reason = failure.message.clone();
            match failure.kind {
                Kind::Refused => What::Refused { reason },
                Kind::Unreachable => What::Refused { reason: format!("unreachable: {reason}") },
                Kind::Unknown => What::Unknown { reason },
            }
        }
    }
}

/// etcd's request; compaction has none that fits into a transaction.
fn request(operation: &Operation) -> Option<Request> {
    Some(match operation {
        Operation::Put { key, value } => Request::RequestPut(pb::PutRequest {
            key: key.clone().into_bytes(),
            value: value.clone().into_bytes(),
            ..Default::default()
        }),
        Operation::Range { key, end, revision, limit, count_only, serializable } => {
            Request::RequestRange(pb::RangeRequest {
                key: key.clone().into_bytes(),
                range_end: end.clone().into_bytes(),
                revision: *revision,
                limit: *limit,
                count_only: *count_only,
                serializable: *serializable,
                ..Default::default()
            })
        }
        Operation::Delete { key, end } => Request::RequestDeleteRange(pb::DeleteRangeRequest {
            key: key.clone().into_bytes(),
            range_end: end.clone().into_bytes(),
            ..Default::default()
        }),
        Operation::Txn { compare, then, otherwise } => Request::RequestTxn(pb::TxnRequest {
            compare: compare.iter().map(condition).collect(),
            success: then.iter().map(part).collect(),
            failure: otherwise.iter().map(part).collect(),
        }),
        Operation::Compact { .. } => return None,
    })
}

fn part(operation: &Operation) -> pb::RequestOp {
    pb::RequestOp { request: request(operation) }
}

fn condition(compare: &Compare) -> pb::Compare {
    let result = match compare.how {
        How::Equal => CompareResult::Equal,
        How::Greater => CompareResult::Greater,
        How::Less => CompareResult::Less,
        How::NotEqual => CompareResult::NotEqual,
    };
    let (target, operand) = match &compare.target {
        Target::Value(value) => (CompareTarget::Value, TargetUnion::Value(value.clone().into_bytes())),
        Target::Version(version) => (CompareTarget::Version, TargetUnion::Version(*version)),
        Target::Create(revision) => (CompareTarget::Create, TargetUnion::CreateRevision(*revision)),
        Target::Mod(revision) => (CompareTarget::Mod, TargetUnion::ModRevision(*revision)),
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        key: compare.key.clone().into_bytes(),
        target_union: Some(operand),
        ..Default::default()
    }
}

fn range_answer(it: pb::RangeResponse) -> Answer {
    Answer::Range { kvs: it.kvs.into_iter().map(pair).collect(), more: it.more, count: it.count }
}

fn txn_answer(it: pb::TxnResponse) -> Answer {
    let answers =
        it.responses.into_iter().filter_map(|response| response.response).map(|response| match response {
            Response::ResponsePut(_) => Answer::Put,
            Response::ResponseRange(it) => range_answer(it),
            Response::ResponseDeleteRange(it) => Answer::Delete { deleted: it.deleted },
            Response::ResponseTxn(it) => txn_answer(it),
        });
    Answer::Txn { succeeded: it.succeeded, answers: answers.collect() }
}

/// One pair of an answer.
pub fn pair(kv: KeyValue) -> Pair {
    Pair {
        key: String::from_utf8_lossy(&kv.key).into_owned(),
        value: String::from_utf8_lossy(&kv.value).into_owned(),
        create: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: Code, text: &str) -> What {
        meaning(&Status::new(code, text))
    }

    #[test]
    fn the_stores_no_is_a_final_answer() {
        let compacted = status(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        assert_eq!(compacted, What::Done { revision: None, answer: Err(Rejection::Compacted) });
        let future = status(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision");
        assert_eq!(future, What::Done { revision: None, answer: Err(Rejection::Future) });
    }

    #[test]
    fn what_was_certainly_not_done_is_refused_and_the_rest_is_open() {
        for (code, text) in [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
        ] {
            assert!(matches!(status(code, text), What::Refused { .. }), "{text}");
        }
        for (code, text) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "error reading a body from connection"),
            (Code::Unknown, "h2 protocol error"),
            (Code::DeadlineExceeded, "no answer in time"),
        ] {
            assert!(matches!(status(code, text), What::Unknown { .. }), "{text}");
        }
    }
}
