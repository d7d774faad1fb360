//! The flags of put, get and del, shared by the verbs and by the lines of a transaction; and the requests they mean.
//!
//! Meanings are etcdctl's: an empty key with `--prefix` or `--from-key` is every key.
//! Knows nothing of: endpoints, output.

use clap::{Args, ValueEnum};
use kattu_client::prefix_end;
use kattu_proto::etcdserverpb as pb;
use pb::range_request::{SortOrder, SortTarget};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What to read.
#[derive(Args, Clone, Debug)]
pub(crate) struct GetFlags {
    /// The key, or the first key of a range
    pub(crate) key: OsString,
    /// The first key after the range
    #[arg(conflicts_with_all = ["prefix", "from_key"])]
    pub(crate) range_end: Option<OsString>,
    /// All keys that begin with KEY
    #[arg(long)]
    pub(crate) prefix: bool,
    /// All keys from KEY on
    #[arg(long, conflicts_with = "prefix")]
    pub(crate) from_key: bool,
    /// Read at this revision; 0 for the newest
    #[arg(long, default_value_t = 0)]
    pub(crate) rev: i64,
    /// Print at most this many keys; 0 for all
    #[arg(long, default_value_t = 0)]
    pub(crate) limit: i64,
    /// Sort by this field
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) sort_by: Option<SortBy>,
    /// Sort in this direction
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) order: Option<Order>,
    /// Print only the number of keys
    #[arg(long)]
    pub(crate) count_only: bool,
    /// Print only keys, without values
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Read from the member's own state, which may be old, without a quorum round
    #[arg(long)]
    pub(crate) serializable: bool,
}

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Create revision
    Create,
    /// Key
    Key,
    /// Mod revision
    #[value(alias = "mod")]
    Modify,
    /// Value
    Value,
    /// Version
    Version,
}

/// The direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Smallest first
    Ascend,
    /// Largest first
    Descend,
}

impl GetFlags {
    /// The request.
    pub(crate) fn request(&self) -> pb::RangeRequest {
        let (key, range_end) = range_of(&self.key, self.range_end.as_ref(), self.prefix, self.from_key);
        let target = match self.sort_by {
            None | Some(SortBy::Key) => SortTarget::Key,
            Some(SortBy::Create) => SortTarget::Create,
            Some(SortBy::Modify) => SortTarget::Mod,
            Some(SortBy::Value) => SortTarget::Value,
            Some(SortBy::Version) => SortTarget::Version,
        };
        let order = match self.order {
            None => SortOrder::None,
            Some(Order::Ascend) => SortOrder::Ascend,
            Some(Order::Descend) => SortOrder::Descend,
        };
        pb::RangeRequest {
            key,
            range_end,
            limit: self.limit,
            revision: self.rev,
            sort_order: order.into(),
            sort_target: target.into(),
            serializable: self.serializable,
            keys_only: self.keys_only,
            count_only: self.count_only,
            ..Default::default()
        }
    }
}

/// What to write.
#[derive(Args, Clone, Debug)]
pub(crate) struct PutFlags {
    /// The key
    pub(crate) key: OsString,
    /// The value; read from standard input if it is left out
    pub(crate) value: Option<OsString>,
    /// Attach the key to this lease (hex)
    #[arg(long, value_parser = parse_lease, default_value = "0")]
    pub(crate) lease: i64,
    /// Print the previous pair
    #[arg(long)]
    pub(crate) prev_kv: bool,
    /// Keep the current value
    #[arg(long, conflicts_with = "value")]
    pub(crate) ignore_value: bool,
    /// Keep the current lease
    #[arg(long)]
    pub(crate) ignore_lease: bool,
}

impl PutFlags {
    /// The request, with `value` if none was given and one is needed.
    pub(crate) fn request<E>(&self, value: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<pb::PutRequest, E> {
        let value = match &self.value {
            Some(given) => bytes_of(given),
            None if self.ignore_value => Vec::new(),
            None => value()?,
        };
        Ok(pb::PutRequest {
            key: bytes_of(&self.key),
            value,
            lease: self.lease,
            prev_kv: self.prev_kv,
            ignore_value: self.ignore_value,
            ignore_lease: self.ignore_lease,
        })
    }
}

/// What to delete.
#[derive(Args, Clone, Debug)]
pub(crate) struct DelFlags {
    /// The key, or the first key of a range
    pub(crate) key: OsString,
    /// The first key after the range
    #[arg(conflicts_with_all = ["prefix", "from_key"])]
    pub(crate) range_end: Option<OsString>,
    /// All keys that begin with KEY
    #[arg(long)]
    pub(crate) prefix: bool,
    /// All keys from KEY on
    #[arg(long, conflicts_with = "prefix")]
    pub(crate) from_key: bool,
    /// Print the deleted pairs
    #[arg(long)]
    pub(crate) prev_kv: bool,
}

impl DelFlags {
    /// The request.
    pub(crate) fn request(&self) -> pb::DeleteRangeRequest {
        let (key, range_end) = range_of(&self.key, self.range_end.as_ref(), self.prefix, self.from_key);
        pb::DeleteRangeRequest { key, range_end, prev_kv: self.prev_kv }
    }
}

fn range_of(key: &OsString, end: Option<&OsString>, prefix: bool, from_key: bool) -> (Vec<u8>, Vec<u8>) {
    let key = bytes_of(key);
    match end {
        Some(end) => (key, bytes_of(end)),
        None if key.is_empty() && (prefix || from_key) => (vec![0], vec![0]),
        None if prefix => {
            let end = prefix_end(&key);
            (key, end)
        }
        None if from_key => (key, vec![0]),
        None => (key, Vec::new()),
    }
}

fn bytes_of(text: &OsString) -> Vec<u8> {
    text.clone().into_vec()
}

/// A lease id as etcdctl writes it: hex without prefix.
fn parse_lease(text: &str) -> Result<i64, String> {
    i64::from_str_radix(text, 16).map_err(|_| "expected a lease id in hex".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Get {
        #[command(flatten)]
        flags: GetFlags,
    }

    fn get(args: &[&str]) -> pb::RangeRequest {
        Get::try_parse_from([&["get"], args].concat()).unwrap().flags.request()
    }

    #[test]
    fn a_range_is_named_as_etcdctl_names_it() {
        let range = |args: &[&str]| {
            let request = get(args);
            (request.key, request.range_end)
        };
        assert_eq!(range(&["a"]), (b"a".to_vec(), vec![]));
        assert_eq!(range(&["a", "c"]), (b"a".to_vec(), b"c".to_vec()));
        assert_eq!(range(&["a", "--prefix"]), (b"a".to_vec(), b"b".to_vec()));
        assert_eq!(range(&["a", "--from-key"]), (b"a".to_vec(), vec![0]));
        assert_eq!(range(&["", "--prefix"]), (vec![0], vec![0]));
        assert_eq!(range(&[""]), (vec![], vec![]), "the server says that a key is missing");
        assert!(Get::try_parse_from(["get", "a", "b", "--prefix"]).is_err());
    }

    #[test]
    fn sorting_takes_etcdctls_words_in_any_case() {
        let sort = |args: &[&str]| {
            let request = get(args);
            (request.sort_target(), request.sort_order())
        };
        assert_eq!(sort(&["a"]), (SortTarget::Key, SortOrder::None));
        assert_eq!(
            sort(&["a", "--sort-by=MODIFY", "--order=DESCEND"]),
            (SortTarget::Mod, SortOrder::Descend)
        );
        assert_eq!(sort(&["a", "--sort-by=mod", "--order=ascend"]), (SortTarget::Mod, SortOrder::Ascend));
        assert_eq!(sort(&["a", "--sort-by", "create"]), (SortTarget::Create, SortOrder::None));
        assert!(Get::try_parse_from(["get", "a", "--sort-by=size"]).is_err());
    }
}
