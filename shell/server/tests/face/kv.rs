//! Responses observed at a real etcd, request by request.

use crate::fixture::*;
use kattu_node::contract::{Consistency, Doubt, Outcome, Refusal, Request};
use kattu_proto::{etcdserverpb as pb, mvccpb};
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::range_request::{SortOrder, SortTarget};
use pb::request_op::Request as Op;
use pb::response_op::Response as Answer;
use tonic::Code;

fn refused<T: std::fmt::Debug>(result: Result<tonic::Response<T>, tonic::Status>) -> (Code, String) {
    let status = result.expect_err("refused");
    (status.code(), status.message().to_string())
}

fn no(code: Code, text: &str) -> (Code, String) {
    (code, format!("etcdserver: {text}"))
}

fn revision(header: Option<pb::ResponseHeader>) -> i64 {
    header.expect("every response has a header").revision
}

fn keys(kvs: &[mvccpb::KeyValue]) -> Vec<&str> {
    kvs.iter().map(|kv| std::str::from_utf8(&kv.key).unwrap()).collect()
}

#[tokio::test]
async fn an_empty_store_is_at_revision_1_and_headers_name_the_member() {
    let face = Face::start().await;
    let answer = face.kv().await.range(get("a")).await.unwrap().into_inner();
    let header = pb::ResponseHeader { cluster_id: CLUSTER, member_id: MEMBER, revision: 1, raft_term: TERM };
    assert_eq!(answer, pb::RangeResponse { header: Some(header), ..Default::default() });
}

#[tokio::test]
async fn a_put_raises_the_revision_and_reads_back_with_its_marks() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let answer = kv.put(put("a", "1")).await.unwrap().into_inner();
    assert_eq!((revision(answer.header), answer.prev_kv), (2, None));
    let again = pb::PutRequest { prev_kv: true, ..put("a", "2") };
    let answer = kv.put(again).await.unwrap().into_inner();
    let first = mvccpb::KeyValue {
        key: b"a".to_vec(),
        create_revision: 2,
        mod_revision: 2,
        version: 1,
        value: b"1".to_vec(),
        lease: 0,
    };
    assert_eq!((revision(answer.header), answer.prev_kv.as_ref()), (3, Some(&first)));
    let answer = kv.range(get("a")).await.unwrap().into_inner();
    let second = mvccpb::KeyValue { mod_revision: 3, version: 2, value: b"2".to_vec(), ..first.clone() };
    assert_eq!((answer.kvs, answer.count, answer.more), (vec![second], 1, false));
    let old = pb::RangeRequest { revision: 2, ..get("a") };
    let answer = kv.range(old).await.unwrap().into_inner();
    assert_eq!((revision(answer.header), answer.kvs), (3, vec![first]), "the header is of now");
}

#[tokio::test]
async fn empty_keys_are_refused_everywhere() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let empty = no(Code::InvalidArgument, "key is not provided");
    assert_eq!(refused(kv.put(put("", "1")).await), empty);
    assert_eq!(refused(kv.range(get("")).await), empty);
    assert_eq!(refused(kv.delete_range(delete("")).await), empty);
    assert_eq!(refused(kv.txn(all_of(vec![op(Op::RequestPut(put("", "")))])).await), empty);
    assert!(face.store.set(|state| state.seen.is_empty()), "nothing reached the replica");
}

#[tokio::test]
async fn bad_sort_options_and_bad_puts_are_refused() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let sorted = pb::RangeRequest { sort_order: 5, ..get("a") };
    assert_eq!(refused(kv.range(sorted).await), no(Code::InvalidArgument, "invalid sort option"));
    let both = pb::PutRequest { ignore_value: true, ..put("a", "1") };
    assert_eq!(refused(kv.put(both).await), no(Code::InvalidArgument, "value is provided"));
    let both = pb::PutRequest { ignore_lease: true, lease: 1, ..put("a", "1") };
    assert_eq!(refused(kv.put(both).await), no(Code::InvalidArgument, "lease is provided"));
    let missing = pb::PutRequest { ignore_value: true, ..put("missing", "") };
    assert_eq!(refused(kv.put(missing).await), no(Code::InvalidArgument, "key not found"));
    let leased = pb::PutRequest { lease: 77, ..put("a", "1") };
    assert_eq!(refused(kv.put(leased).await), no(Code::NotFound, "requested lease not found"));
    assert_eq!(face.store.revision().0, 1);
}

#[tokio::test]
async fn a_value_compare_on_a_missing_key_fails_and_the_other_branch_answers() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    let compare = pb::Compare {
        result: CompareResult::NotEqual as i32,
        target: CompareTarget::Value as i32,
        key: b"nokey".to_vec(),
        target_union: Some(TargetUnion::Value(b"x".to_vec())),
        ..Default::default()
    };
    let request = pb::TxnRequest {
        compare: vec![compare],
        success: vec![],
        failure: vec![op(Op::RequestRange(get("nokey")))],
    };
    let answer = kv.txn(request).await.unwrap().into_inner();
    assert!(!answer.succeeded);
    let inner = pb::RangeResponse {
        header: Some(pb::ResponseHeader { revision: 2, ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(answer.responses, [pb::ResponseOp { response: Some(Answer::ResponseRange(inner)) }]);
}

#[tokio::test]
async fn a_nested_txn_compares_the_old_state_and_reads_the_new_one() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let absent =
        pb::Compare { key: b"k".to_vec(), target_union: Some(TargetUnion::Version(0)), ..Default::default() };
    let nested = pb::TxnRequest {
        compare: vec![absent],
        success: vec![op(Op::RequestRange(get("k")))],
        failure: vec![],
    };
    let request = all_of(vec![op(Op::RequestPut(put("k", "v"))), op(Op::RequestTxn(nested))]);
    let answer = kv.txn(request).await.unwrap().into_inner();
    assert_eq!((answer.succeeded, revision(answer.header)), (true, 2));
    let Some(Answer::ResponseTxn(nested)) = &answer.responses[1].response else { panic!("{answer:?}") };
    assert!(nested.succeeded);
    assert_eq!(nested.header, Some(pb::ResponseHeader::default()), "there, but empty");
    let Some(Answer::ResponseRange(read)) = &nested.responses[0].response else { panic!("{nested:?}") };
    assert_eq!((keys(&read.kvs), revision(read.header)), (vec!["k"], 2));
}

#[tokio::test]
async fn a_key_is_changed_once_per_txn_but_deleted_as_often_as_one_likes() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    kv.put(put("k", "v")).await.unwrap();
    let twice = all_of(vec![op(Op::RequestPut(put("k", "v"))), op(Op::RequestDeleteRange(delete("k")))]);
    let duplicate = no(Code::InvalidArgument, "duplicate key given in txn request");
    assert_eq!(refused(kv.txn(twice).await), duplicate);
    let deletes =
        all_of(vec![op(Op::RequestDeleteRange(delete("k"))), op(Op::RequestDeleteRange(delete("k")))]);
    let answer = kv.txn(deletes).await.unwrap().into_inner();
    let deleted: Vec<i64> = answer
        .responses
        .iter()
        .map(|op| match &op.response {
            Some(Answer::ResponseDeleteRange(answer)) => answer.deleted,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deleted, [1, 0]);
}

#[tokio::test]
async fn an_empty_operation_is_a_key_not_found_and_an_empty_txn_succeeds() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let empty_op = all_of(vec![pb::RequestOp { request: None }]);
    assert_eq!(refused(kv.txn(empty_op).await), no(Code::InvalidArgument, "key not found"));
    let answer = kv.txn(pb::TxnRequest::default()).await.unwrap().into_inner();
    assert_eq!((answer.succeeded, answer.responses.len(), revision(answer.header)), (true, 0, 1));
}

#[tokio::test]
async fn a_txn_has_no_more_operations_than_allowed() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let of =
        |count: usize| all_of((0..count).map(|n| op(Op::RequestPut(put(&format!("k{n}"), "")))).collect());
    assert!(kv.txn(of(128)).await.is_ok());
    let too_many = no(Code::InvalidArgument, "too many operations in txn request");
    assert_eq!(refused(kv.txn(of(129)).await), too_many);
}

#[tokio::test]
async fn deleting_a_missing_key_changes_nothing() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    let answer = kv.delete_range(delete("missing")).await.unwrap().into_inner();
    assert_eq!((answer.deleted, revision(answer.header)), (0, 2));
    let with_prev = pb::DeleteRangeRequest { prev_kv: true, ..delete("a") };
    let answer = kv.delete_range(with_prev).await.unwrap().into_inner();
    assert_eq!((answer.deleted, revision(answer.header), keys(&answer.prev_kvs)), (1, 3, vec!["a"]));
}

#[tokio::test]
async fn compaction_forgets_what_is_older_and_refuses_what_is_wrong() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    kv.put(put("a", "2")).await.unwrap();
    let compact = |revision| pb::CompactionRequest { revision, physical: false };
    let compacted = no(Code::OutOfRange, "mvcc: required revision has been compacted");
    let future = no(Code::OutOfRange, "mvcc: required revision is a future revision");
    let at = |revision| pb::RangeRequest { revision, ..get("a") };
    assert_eq!(refused(kv.range(at(99)).await), future);
    assert_eq!(revision(kv.compact(compact(2)).await.unwrap().into_inner().header), 3);
    assert_eq!(refused(kv.compact(compact(2)).await), compacted);
    assert_eq!(refused(kv.compact(compact(50)).await), future);
    assert_eq!(refused(kv.range(at(1)).await), compacted);
    assert_eq!(revision(kv.range(at(2)).await.unwrap().into_inner().header), 3);
}

#[tokio::test]
async fn count_is_of_the_whole_range_whatever_limits_and_filters_leave() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    for key in ["p1", "p2", "p3", "p4"] {
        kv.put(put(key, "v")).await.unwrap();
    }
    let answer = kv.range(pb::RangeRequest { limit: 2, ..prefix("p") }).await.unwrap().into_inner();
    assert_eq!((keys(&answer.kvs), answer.more, answer.count), (vec!["p1", "p2"], true, 4));
    let old = pb::RangeRequest { max_create_revision: 3, ..prefix("p") };
    let answer = kv.range(old).await.unwrap().into_inner();
    assert_eq!((keys(&answer.kvs), answer.count), (vec!["p1", "p2"], 4));
    let newest = pb::RangeRequest {
        sort_order: SortOrder::Descend as i32,
        sort_target: SortTarget::Create as i32,
        limit: 1,
        ..prefix("p")
    };
    let answer = kv.range(newest).await.unwrap().into_inner();
    assert_eq!((keys(&answer.kvs), answer.more, answer.count), (vec!["p4"], true, 4));
    let everything = pb::RangeRequest { range_end: vec![0], count_only: true, ..get("\0") };
    let answer = kv.range(everything).await.unwrap().into_inner();
    assert_eq!((answer.kvs.len(), answer.count), (0, 4));
    let reversed = pb::RangeRequest { range_end: b"a".to_vec(), ..get("p") };
    let answer = kv.range(reversed).await.unwrap().into_inner();
    assert_eq!((answer.kvs.len(), answer.count), (0, 0));
    let answer = kv.range(pb::RangeRequest { keys_only: true, ..prefix("p") }).await.unwrap().into_inner();
    assert!(answer.kvs.iter().all(|kv| kv.value.is_empty() && kv.version == 1));
}

#[tokio::test]
async fn a_compare_on_an_empty_prefix_sees_one_missing_key() {
    let face = Face::start().await;
    let compare = pb::Compare {
        target: CompareTarget::Create as i32,
        key: b"none/".to_vec(),
        range_end: b"none0".to_vec(),
        target_union: Some(TargetUnion::CreateRevision(0)),
        ..Default::default()
    };
    let request = pb::TxnRequest { compare: vec![compare], ..Default::default() };
    assert!(face.kv().await.txn(request).await.unwrap().into_inner().succeeded);
}

#[tokio::test]
async fn reading_txns_are_reads_and_serializable_only_if_every_range_is() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let range = |serializable| op(Op::RequestRange(pb::RangeRequest { serializable, ..get("a") }));
    let requests = [
        (all_of(vec![range(true), range(true)]), Some(Consistency::Serializable)),
        (all_of(vec![range(true), range(false)]), Some(Consistency::Linearizable)),
        (all_of(vec![]), Some(Consistency::Linearizable)),
        (all_of(vec![range(true), op(Op::RequestTxn(pb::TxnRequest::default()))]), None),
        (all_of(vec![range(true), op(Op::RequestDeleteRange(delete("a")))]), None),
    ];
    for (request, expected) in requests {
        kv.txn(request.clone()).await.unwrap();
        let seen = face.store.set(|state| state.seen.pop().unwrap());
        let consistency = match seen {
            Request::Read(_, consistency) => Some(consistency),
            Request::Write(_) | Request::Weigh(..) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(consistency, expected, "{request:?}");
    }
}

#[tokio::test]
async fn refusals_and_doubts_arrive_with_code_and_text() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let table = [
        (Outcome::Refused(Refusal::NoLeader), Code::Unavailable, "no leader"),
        (Outcome::Refused(Refusal::TooManyRequests), Code::ResourceExhausted, "too many requests"),
        (Outcome::Refused(Refusal::NoSpace), Code::ResourceExhausted, "mvcc: database space exceeded"),
        (Outcome::Refused(Refusal::Stopping), Code::Unavailable, "server stopped"),
        (Outcome::Unknown(Doubt::TimedOut), Code::Unavailable, "request timed out"),
        (
            Outcome::Unknown(Doubt::LeaderChanged),
            Code::Unavailable,
            "request timed out, possibly due to previous leader failure",
        ),
    ];
    for (outcome, code, text) in table {
        face.store.set(|state| state.instead = Some(outcome));
        assert_eq!(refused(kv.put(put("a", "1")).await), no(code, text));
    }
    face.store.set(|state| state.instead = Some(Outcome::Refused(Refusal::LeaderChanged)));
    assert_eq!(refused(kv.range(get("a")).await), no(Code::Unavailable, "leader changed"));
}

#[tokio::test]
async fn a_call_that_requires_a_leader_fails_at_once_without_one() {
    let face = Face::start().await;
    face.store.set(|state| (state.leaderless, state.silent) = (true, true));
    let mut kv = face.kv().await;
    let mut request = tonic::Request::new(get("a"));
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    assert_eq!(refused(kv.range(request).await), no(Code::Unavailable, "no leader"));
}

#[tokio::test]
async fn many_calls_at_once_on_one_connection_are_all_answered() {
    let face = Face::start().await;
    let kv = face.kv().await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..2_000 {
        let mut kv = kv.clone();
        calls.spawn(async move { kv.put(put(&format!("k{n}"), "v")).await.unwrap() });
    }
    assert_eq!(calls.join_all().await.len(), 2_000);
    assert_eq!(face.store.revision().0, 2_001);
    assert_eq!(face.config.counters.connections_accepted.get(), 1);
}
