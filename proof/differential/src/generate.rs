//! Requests from a seed: most are valid, some are edge cases, some are invalid.
//!
//! Keys come from a small pool, so that requests affect each other; revisions lie around the current one, which the
//! caller reports after each group. Invalid are: enums outside their range, empty keys, empty operations, duplicate
//! keys, too many operations, negative and enormous numbers, oversize values.
//! Knows nothing of: answers, except the revision they carry.

use crate::call::Call;
use kattu_proto::etcdserverpb::request_op::Request;
use kattu_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, compare,
};
use kattu_random::Random;

/// Reads that may be sent together.
const GROUP: usize = 24;
/// Levels of transactions within transactions.
const TXN_DEPTH: usize = 3;
/// etcd's default limit of operations in one transaction.
const TXN_OPS_MAX: usize = 128;

/// Options of a range, each of which is set alone and in every pair.
pub(crate) const RANGE_OPTIONS: usize = 12;

/// Makes requests.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    random: Random,
    revision: i64,
    compacted: i64,
    waiting: Option<Call>,
    bad_sorts_everywhere: bool,
    txn_may_delete: bool,
}

impl Generator {
    /// The requests of one part of the run with this seed.
    pub fn new(seed: u64, part: u64) -> Generator {
        let random = Random::of_numbered_part(seed, part);
        Generator {
            random,
            revision: 1,
            compacted: 0,
            waiting: None,
            bad_sorts_everywhere: false,
            txn_may_delete: true,
        }
    }

    /// Requests sort targets that do not exist, and such orders also inside transactions. etcd 3.4 crashes at the first
    /// and carries out the second, so that the stores would diverge; 3.6 refuses both.
    pub(crate) fn with_bad_sorts_everywhere(mut self, asked: bool) -> Generator {
        self.bad_sorts_everywhere = asked;
        self
    }

    /// Reports the store's present revision.
    pub(crate) fn saw_revision(&mut self, revision: i64) {
        self.revision = self.revision.max(revision);
    }

    /// Reports a compaction.
    pub(crate) fn saw_compaction(&mut self, revision: i64) {
        self.compacted = self.compacted.max(revision);
    }

    /// The next requests that may be sent together: several reads, or one write.
    pub fn group(&mut self) -> Vec<Call> {
        let mut group = Vec::new();
        while group.len() < GROUP {
            let call = self.waiting.take().unwrap_or_else(|| self.call());
            if call.is_read() {
                group.push(call);
            } else if group.is_empty() {
                return vec![call];
            } else {
                self.waiting = Some(call);
                break;
            }
        }
        group
    }

    /// The next request.
    pub fn call(&mut self) -> Call {
        match self.random.below(1_000) {
            0..520 => Call::Range(self.range()),
            520..730 => Call::Put(self.put()),
            730..790 => Call::DeleteRange(self.delete_range()),
            790..985 => Call::Txn(self.txn(TXN_DEPTH)),
            985..999 => Call::Compact(self.compact()),
            _ => Call::Put(self.oversize_put()),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        const ODD: &[&[u8]] =
            &[b"\0", b"\0\0", b"\xff", b"\xff\xff", b"k\0", b"k\xff", b"\xc3\x28", b"k1\xff"];
        match self.random.below(100) {
            0 => Vec::new(),
            1..8 => self.random.pick(ODD).to_vec(),
            8..20 => format!("k1{}", self.random.below(10)).into_bytes(),
            20..30 => format!("dir/{}/x", self.random.below(4)).into_bytes(),
            _ => format!("k{}", self.random.below(14)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0..3 => Vec::new(),
            3 => (0..=255).collect(),
            4 => vec![b'v'; 1 + self.random.below(4_000)],
            5 => self.random.number().to_le_bytes().to_vec(),
            _ => self.random.below(30).to_string().into_bytes(),
        }
    }

    /// (key, range_end)
    fn key_range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let key = self.key();
        let end = match self.random.below(12) {
            0..5 => Vec::new(),
            5 => vec![0],
            6 | 7 => prefix_end(&key),
            8 => return (vec![0], vec![0]),
            9 => return (b"k".to_vec(), b"l".to_vec()),
            10 => key.clone(),
            _ => self.key(),
        };
        (key, end)
    }

    /// A revision at or near an edge.
    fn revision(&mut self) -> i64 {
        let back = self.random.below(30) as i64;
        match self.random.below(24) {
            0 | 1 => 0,
            2 => -1,
            3 => 1,
            4 => self.compacted,
            5 => self.compacted - 1,
            6 => self.compacted + 1,
            7 => self.revision + 1,
            8 => self.revision + 1_000_000,
            9 => i64::MAX,
            10 => i64::MIN,
            11..14 => self.revision,
            _ => (self.revision - back).max(1),
        }
    }

    /// A bound for filters: mostly within the last writes.
    fn bound(&mut self) -> i64 {
        let back = self.random.below(200) as i64;
        match self.random.below(14) {
            0 => -1,
            1 => i64::MAX,
            2 => i64::MIN,
            3 => self.revision,
            4 => self.revision + 1,
            _ => (self.revision - back).max(1),
        }
    }

    fn limit(&mut self) -> i64 {
        *self.random.pick(&[1, 2, 3, 4, 7, 12, 100, 1 << 40, i64::MAX, -1, i64::MIN])
    }

    /// A number for an enum: mostly a known one.
    fn number(&mut self, known: i32) -> i32 {
        if self.random.one_in(40) {
            *self.random.pick(&[known, known + 1, -1, 100, i32::MAX, i32::MIN])
        } else {
            self.random.below(known as usize) as i32
        }
    }

    fn range(&mut self) -> RangeRequest {
        let (key, range_end) = self.key_range();
        let mut request = RangeRequest { key, range_end, ..RangeRequest::default() };
        // No option, one, mostly two, sometimes many.
        let options = *self.random.pick(&[0, 1, 1, 2, 2, 2, 2, 3, 4, 6]);
        for _ in 0..options {
            let option = self.random.below(RANGE_OPTIONS);
            self.set_option(&mut request, option);
        }
        request
    }

    fn range_in_txn(&mut self) -> RangeRequest {
        let mut request = self.range();
        if !self.bad_sorts_everywhere && !(0..3).contains(&request.sort_order) {
            request.sort_order = 0;
        }
        request
    }

    fn set_option(&mut self, request: &mut RangeRequest, option: usize) {
        match option {
            0 => request.limit = self.limit(),
            1 => request.revision = self.revision(),
            2 => request.sort_order = self.number(3),
            3 if self.bad_sorts_everywhere => request.sort_target = self.number(5),
            3 => request.sort_target = self.random.below(5) as i32,
            4 => request.serializable = true,
            5 => request.keys_only = true,
            6 => request.count_only = true,
            7 => request.min_mod_revision = self.bound(),
            8 => request.max_mod_revision = self.bound(),
            9 => request.min_create_revision = self.bound(),
            10 => request.max_create_revision = self.bound(),
            _ => (request.key, request.range_end) = (b"k".to_vec(), b"l".to_vec()),
        }
    }

    fn put(&mut self) -> PutRequest {
        let mut request = PutRequest { key: self.key(), value: self.value(), ..PutRequest::default() };
        request.prev_kv = self.random.one_in(3);
        if self.random.one_in(10) {
            request.ignore_value = true;
            if !self.random.one_in(5) {
                request.value.clear();
            }
        }
        request.ignore_lease = self.random.one_in(15);
        if self.random.one_in(25) {
            request.lease = *self.random.pick(&[1, 77, -1, i64::MAX, i64::MIN]);
        }
        request
    }

    /// Just over the limit of a request, or of a gRPC message.
    fn oversize_put(&mut self) -> PutRequest {
        let length = *self.random.pick(&[1_500_000, (1 << 20) * 3 / 2 + 1, 1_800_000, (1 << 21) + 100]);
        PutRequest { key: self.key(), value: vec![b'o'; length], ..PutRequest::default() }
    }

    fn delete_range(&mut self) -> DeleteRangeRequest {
        let (key, range_end) = self.key_range();
        // Deletes of everything are rare: reads should find keys.
        let is_wide = range_end == [0];
        let range_end = if is_wide && !self.random.one_in(4) { Vec::new() } else { range_end };
        DeleteRangeRequest { key, range_end, prev_kv: self.random.one_in(2) }
    }

    fn compact(&mut self) -> CompactionRequest {
        let revision = if self.random.one_in(2) {
            self.revision()
        } else {
            self.revision - self.random.below(60) as i64
        };
        CompactionRequest { revision, physical: self.random.one_in(2) }
    }

    fn txn(&mut self, depth: usize) -> TxnRequest {
        if depth == TXN_DEPTH {
            if self.random.one_in(120) {
                return self.big_txn();
            }
            // A delete up to the last key (`range_end` of one zero byte) escapes etcd's check for duplicate keys; a put
            // with `ignore_value` after it passes all checks and ends the process, in 3.4 as in 3.6. So one transaction
            // has only one of the two.
            self.txn_may_delete = self.random.one_in(2);
        }
        let conditions = *self.random.pick(&[0, 1, 1, 1, 2, 3]);
        let compare = (0..conditions).map(|_| self.condition()).collect();
        let is_read_only = self.random.one_in(5);
        let ops = |generator: &mut Generator| {
            let count = *generator.random.pick(&[0, 1, 1, 2, 2, 3, 4]);
            (0..count).map(|_| generator.op(depth, is_read_only)).collect::<Vec<_>>()
        };
        TxnRequest { compare, success: ops(self), failure: ops(self) }
    }

    fn op(&mut self, depth: usize, is_read_only: bool) -> RequestOp {
        let request = match self.random.below(100) {
            0 => None,
            _ if is_read_only => Some(Request::RequestRange(self.range_in_txn())),
            1..40 => {
                let mut put = self.put();
                put.ignore_value &= !self.txn_may_delete;
                put.ignore_lease &= !self.txn_may_delete;
                Some(Request::RequestPut(put))
            }
            40..52 if self.txn_may_delete => Some(Request::RequestDeleteRange(self.delete_range())),
            52..68 if 1 < depth => Some(Request::RequestTxn(self.txn(depth - 1))),
            _ => Some(Request::RequestRange(self.range_in_txn())),
        };
        RequestOp { request }
    }

    /// At, just over, or far over the limit of operations, counted per level.
    fn big_txn(&mut self) -> TxnRequest {
        let count = *self.random.pick(&[TXN_OPS_MAX - 1, TXN_OPS_MAX, TXN_OPS_MAX + 1, 300]);
        let put = |i: usize| PutRequest {
            key: format!("big/{i}").into_bytes(),
            value: b"b".to_vec(),
            ..PutRequest::default()
        };
        let ops: Vec<RequestOp> =
            (0..count).map(|i| RequestOp { request: Some(Request::RequestPut(put(i))) }).collect();
        match self.random.below(4) {
            0 => TxnRequest { compare: vec![self.condition(); count], ..TxnRequest::default() },
            1 => TxnRequest { failure: ops, ..TxnRequest::default() },
            2 => {
                let inner = TxnRequest { success: ops, ..TxnRequest::default() };
                TxnRequest {
                    success: vec![RequestOp { request: Some(Request::RequestTxn(inner)) }],
                    ..TxnRequest::default()
                }
            }
            _ => TxnRequest { success: ops, ..TxnRequest::default() },
        }
    }

    fn condition(&mut self) -> Compare {
        let (key, range_end) =
            if self.random.one_in(4) { self.key_range() } else { (self.key(), Vec::new()) };
        let target = self.number(5);
        let operand = if self.random.one_in(25) { self.random.below(6) as i32 } else { target };
        let target_union = match operand {
            0 => Some(compare::TargetUnion::Version(self.random.below(4) as i64)),
            1 => Some(compare::TargetUnion::CreateRevision(if self.random.one_in(2) {
                0
            } else {
                self.bound()
            })),
            2 => {
                Some(compare::TargetUnion::ModRevision(if self.random.one_in(3) { 0 } else { self.bound() }))
            }
            3 => Some(compare::TargetUnion::Value(self.value())),
            4 => Some(compare::TargetUnion::Lease(*self.random.pick(&[0, 0, 1, -1]))),
            _ => None,
        };
        Compare { result: self.number(4), target, key, range_end, target_union }
    }
}

/// The end of the range of all keys that begin with `key`, as clients compute it.
fn prefix_end(key: &[u8]) -> Vec<u8> {
    let mut end = key.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn options_set(request: &RangeRequest) -> Vec<usize> {
        let is_set = [
            request.limit != 0,
            request.revision != 0,
            request.sort_order != 0,
            request.sort_target != 0,
            request.serializable,
            request.keys_only,
            request.count_only,
            request.min_mod_revision != 0,
            request.max_mod_revision != 0,
            request.min_create_revision != 0,
            request.max_create_revision != 0,
            !request.range_end.is_empty(),
        ];
        (0..RANGE_OPTIONS).filter(|option| is_set[*option]).collect()
    }

    #[test]
    fn the_slice_of_ci_holds_every_pair_of_range_options() {
        let mut generator = Generator::new(1, 0);
        let mut pairs = BTreeSet::new();
        for _ in 0..5_000 {
            if let Call::Range(request) = generator.call() {
                let set = options_set(&request);
                for one in &set {
                    for other in &set {
                        pairs.insert((*one.min(other), *one.max(other)));
                    }
                }
            }
        }
        assert_eq!(pairs.len(), RANGE_OPTIONS * (RANGE_OPTIONS + 1) / 2);
    }

    #[test]
    fn one_seed_makes_one_list() {
        let list = |seed| {
            (0..200).map(|_| 0).scan(Generator::new(seed, 3), |g, _| Some(g.call())).collect::<Vec<_>>()
        };
        assert_eq!(list(5), list(5));
        assert_ne!(list(5), list(6));
    }

    #[test]
    fn a_group_is_reads_or_one_write() {
        let mut generator = Generator::new(9, 0);
        for _ in 0..2_000 {
            let group = generator.group();
            assert!(!group.is_empty());
            assert!(group.len() == 1 || group.iter().all(Call::is_read));
            assert!(group.len() <= GROUP);
        }
    }

    #[test]
    fn the_end_of_a_prefix_skips_trailing_0xff() {
        assert_eq!(prefix_end(b"ab"), b"ac");
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff\xff"), [0]);
    }
}
