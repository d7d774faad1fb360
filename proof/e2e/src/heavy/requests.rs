//! The heavy requests themselves, and whether each came to what it must.
//!
//! Knows nothing of: their effect on other clients.

use super::{Act, Plan, key};
use kattu_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use kattu_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use kattu_proto::etcdserverpb::request_op::Request;
use kattu_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use kattu_rig::Kv;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// A heavy request that is carried out takes no longer.
pub(super) const CARRIED_MAX: Duration = Duration::from_secs(60);
const REFUSALS: usize = 7;
const OPS_MAX: usize = 126;
const COMPARES_MAX: usize = 128;

/// The outcome of a heavy request.
pub(super) struct Carried {
    /// A description.
    pub(super) what: String,
    /// How long its client waited each time, the shortest first; not empty.
    pub(super) times: Vec<Duration>,
    /// Its faults.
    pub(super) faults: Vec<String>,
}

/// Sends one heavy request.
pub(super) fn carry_out(plan: &Plan, act: Act, keys: u64, address: &str) -> Carried {
    let kv = Kv::of(address).within(CARRIED_MAX);
    let ask = |act: Act| match act {
        Act::Transaction => txn(&kv, vec![], vec![range(everything()); OPS_MAX]),
        Act::FullRange | Act::RangeAll => {
            let read = kv.range(everything())?;
            Ok((format!("{} keys", read.kvs.len()), keys <= read.kvs.len() as u64))
        }
        Act::TransactionWithin => {
            let sorted = RangeRequest {
                limit: 1,
                sort_order: SortOrder::Descend.into(),
                sort_target: SortTarget::Mod.into(),
                key: key(0),
                range_end: key(keys),
                ..RangeRequest::default()
            };
            txn(&kv, vec![], vec![range(sorted); 2])
        }
        Act::Compares => txn(&kv, vec![exists(); COMPARES_MAX], vec![]),
        Act::ComparesWithin => txn(&kv, vec![exists()], vec![]),
        Act::Compaction => compact(&kv),
        Act::DeleteAll => {
            let all = everything();
            let request = DeleteRangeRequest { key: all.key, range_end: all.range_end, prev_kv: false };
            delete(&kv, request, keys)
        }
        Act::DeleteMillion => {
            let few = plan.scaled(1_000_000);
            let request = DeleteRangeRequest { key: key(0), range_end: key(few), prev_kv: false };
            delete(&kv, request, few)
        }
    };
    let mut faults = Vec::new();
    let mut times = Vec::new();
    let mut what = String::new();
    for _ in 0..if act.is_refused() { REFUSALS } else { 1 } {
        let began = Instant::now();
        let came = ask(act);
        times.push(began.elapsed());
        let is_right = match &came {
            Ok((_, is_whole)) => !act.is_refused() && *is_whole,
            Err(status) => act.is_refused() && status.code() == Code::ResourceExhausted,
        };
        what = match came {
            Ok((what, _)) => format!("done: {what}"),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        if !is_right {
            faults.push(format!(
                "it should be {}, and came to: {what}",
                if act.is_refused() { "refused" } else { "carried out whole" }
            ));
            break;
        }
    }
    times.sort();
    Carried { what, times, faults }
}

type Came = Result<(String, bool), Status>;

pub(super) fn everything() -> RangeRequest {
    RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() }
}

fn range(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(request)) }
}

/// Compares that every key of the fill has a version: this holds, so all keys are read.
fn exists() -> Compare {
    Compare {
        result: CompareResult::Greater.into(),
        target: CompareTarget::Version.into(),
        key: b"heavy/".to_vec(),
        range_end: b"heavy0".to_vec(),
        target_union: Some(TargetUnion::Version(0)),
    }
}

/// Compares, ranges and a put; whole if the put was done.
fn txn(kv: &Kv, compare: Vec<Compare>, mut success: Vec<RequestOp>) -> Came {
    let put = PutRequest { key: b"heavy-txn".to_vec(), value: b"done".to_vec(), ..PutRequest::default() };
    success.push(RequestOp { request: Some(Request::RequestPut(put)) });
    let steps = success.len();
    let request = TxnRequest { compare, success, failure: vec![] };
    let done = kv.block_on(async { kv.client().txn(request).await })?.into_inner();
    let is_whole = done.succeeded && done.responses.len() == steps;
    Ok((format!("{} of {steps} steps", done.responses.len()), is_whole))
}

fn delete(kv: &Kv, request: DeleteRangeRequest, expected: u64) -> Came {
    let (start, end) = (request.key.clone(), request.range_end.clone());
    let done = kv.block_on(async { kv.client().delete_range(request).await })?.into_inner();
    let count = RangeRequest { key: start, range_end: end, count_only: true, ..RangeRequest::default() };
    let left = kv.range(count)?.count;
    Ok((format!("{} keys, {left} left", done.deleted), done.deleted as u64 == expected && left == 0))
}

/// Compacts at the newest revision; whole if no older revision can be read.
fn compact(kv: &Kv) -> Came {
    let count = || RangeRequest { count_only: true, ..everything() };
    let revision = kv.range(count())?.header.map_or(0, |header| header.revision);
    kv.block_on(async { kv.client().compact(CompactionRequest { revision, physical: false }).await })?;
    let old = kv.range(RangeRequest { revision: revision - 1, ..count() });
    let is_whole = old.is_err_and(|status| status.code() == Code::OutOfRange);
    Ok((format!("all before revision {revision}"), is_whole))
}
