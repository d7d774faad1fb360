//! Invalid requests, and requests for too much: the error is etcd's, letter for letter, and the next request works.

use kattu_proto::etcdserverpb::request_op::Request;
use kattu_proto::etcdserverpb::{
    self as pb, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use kattu_rig::grpc::is_passing;
use kattu_rig::{Cluster, Options, until};
use std::time::{Duration, Instant};
use tonic::{Code, Status};

fn put(key: &str) -> PutRequest {
    PutRequest { key: key.into(), value: b"v".to_vec(), ..PutRequest::default() }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, message: &str) {
    let status = result.expect_err("it must be refused");
    assert_eq!((status.code(), status.message()), (code, message));
}

#[test]
fn every_refusal_has_etcds_code_and_words() {
    let cluster = Cluster::start("refusals", 1);
    let kv = cluster.members[0].kv();
    let mut client = kv.client();
    kv.put("there", "x").expect("a put");

    assert_refused(kv.put("", "x"), Code::InvalidArgument, "etcdserver: key is not provided");
    assert_refused(kv.get(""), Code::InvalidArgument, "etcdserver: key is not provided");
    let delete = DeleteRangeRequest::default();
    let answer = kv.block_on(async { client.delete_range(delete).await });
    assert_refused(answer, Code::InvalidArgument, "etcdserver: key is not provided");
    let mut with = |request: PutRequest| kv.block_on(async { client.put(request).await });
    let ignore = PutRequest { ignore_value: true, ..put("there") };
    assert_refused(with(ignore), Code::InvalidArgument, "etcdserver: value is provided");
    let ignore = PutRequest { ignore_value: true, value: Vec::new(), ..put("absent") };
    assert_refused(with(ignore), Code::InvalidArgument, "etcdserver: key not found");
    let ignore = PutRequest { ignore_lease: true, lease: 7, ..put("there") };
    assert_refused(with(ignore), Code::InvalidArgument, "etcdserver: lease is provided");
    let lease = PutRequest { lease: 7, ..put("there") };
    assert_refused(with(lease), Code::NotFound, "etcdserver: requested lease not found");
    let future = RangeRequest { key: b"there".to_vec(), revision: 1 << 40, ..RangeRequest::default() };
    let future_words = "etcdserver: mvcc: required revision is a future revision";
    assert_refused(kv.range(future), Code::OutOfRange, future_words);
    for (sort_order, sort_target) in [(0, 99), (99, 0), (-1, 0), (1, i32::MAX), (i32::MIN, 3)] {
        let request =
            RangeRequest { key: b"there".to_vec(), sort_order, sort_target, ..RangeRequest::default() };
        assert_refused(kv.range(request), Code::InvalidArgument, "etcdserver: invalid sort option");
    }
    let mut txn = |request: TxnRequest| kv.block_on(async { client.txn(request).await });
    let many = TxnRequest {
        success: vec![
            op(Request::RequestRange(RangeRequest {
                key: b"a".to_vec(),
                ..RangeRequest::default()
            }));
            129
        ],
        ..TxnRequest::default()
    };
    assert_refused(txn(many), Code::InvalidArgument, "etcdserver: too many operations in txn request");
    let twice = TxnRequest { success: vec![op(Request::RequestPut(put("a"))); 2], ..TxnRequest::default() };
    assert_refused(txn(twice), Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
    let empty = TxnRequest { success: vec![RequestOp { request: None }], ..TxnRequest::default() };
    assert_refused(txn(empty), Code::InvalidArgument, "etcdserver: key not found");
    let compact = pb::CompactionRequest { revision: 1 << 40, physical: false };
    assert_refused(kv.block_on(async { client.compact(compact).await }), Code::OutOfRange, future_words);
}

#[test]
fn absurd_limits_and_bounds_are_answered() {
    let cluster = Cluster::start("absurd", 1);
    let kv = cluster.members[0].kv();
    for i in 0..20 {
        kv.put(format!("k{i}"), "v").expect("a put");
    }
    for number in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
        for place in 0..6 {
            let mut request =
                RangeRequest { key: b"k".to_vec(), range_end: b"l".to_vec(), ..RangeRequest::default() };
            let field = match place {
                0 => &mut request.limit,
                1 => &mut request.revision,
                2 => &mut request.min_mod_revision,
                3 => &mut request.max_mod_revision,
                4 => &mut request.min_create_revision,
                _ => &mut request.max_create_revision,
            };
            *field = number;
            match kv.range(request.clone()) {
                Ok(response) => {
                    assert_eq!(response.count, 20 * i64::from(number <= 0 || place != 1), "{request:?}")
                }
                Err(status) => {
                    assert_eq!((place, status.code()), (1, Code::OutOfRange), "{request:?}: {status}")
                }
            }
        }
    }
}

#[test]
fn a_transaction_that_ends_etcd_does_not_end_kattu() {
    // A delete up to the last key escapes etcd's check for duplicates; then the put shall keep the value of a deleted
    // key, and etcd 3.4 and 3.6 panic on every member, again after each restart.
    let mut cluster = Cluster::start("poison", 3);
    let kv = cluster.members[0].kv();
    kv.put_surely("a", "1");
    let delete =
        DeleteRangeRequest { key: b"a".to_vec(), range_end: vec![0], ..DeleteRangeRequest::default() };
    let keep = PutRequest { ignore_value: true, value: Vec::new(), ..put("a") };
    let request = TxnRequest {
        success: vec![op(Request::RequestDeleteRange(delete)), op(Request::RequestPut(keep))],
        ..TxnRequest::default()
    };
    let mut client = kv.client();
    // While leadership moves, the outcome is open: retry.
    let answer = until("the transaction is answered", || {
        let answer = kv.block_on(async { client.txn(request.clone()).await });
        (!answer.as_ref().is_err_and(is_passing)).then_some(answer)
    });
    let status = answer.expect_err("the key is deleted and named in one transaction");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert_eq!(kv.get("a").expect("a read"), Some(b"1".to_vec()), "a refused transaction changed something");
    for i in 0..3 {
        assert!(cluster.members[i].is_running());
    }
    cluster.kill_all();
    cluster.start_all();
    assert_eq!(cluster.members[1].kv().get("a").expect("a read"), Some(b"1".to_vec()));
}

#[test]
fn oversize_requests_are_refused_and_the_next_one_works() {
    let cluster = Cluster::start("oversize", 1);
    let kv = cluster.members[0].kv();
    assert_refused(
        kv.put("a", vec![b'x'; 1_600_000]),
        Code::InvalidArgument,
        "etcdserver: request is too large",
    );
    let status = kv.put("a", vec![b'x'; 40 << 20]).expect_err("far beyond any limit");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(kv.get("a").expect("a read"), None);
    kv.put("a", vec![b'x'; 1_500_000]).expect("within the limit");
    assert_eq!(kv.get("a").expect("a read").map(|value| value.len()), Some(1_500_000));
}

#[test]
fn limits_of_requests_and_operations_follow_their_flags() {
    let flags = ["--max-request-bytes=100000", "--max-txn-ops=3"].map(str::to_string).to_vec();
    let cluster = Cluster::with("limits", Options { members: 1, flags });
    let kv = cluster.members[0].kv();
    assert_refused(
        kv.put("a", vec![b'x'; 110_000]),
        Code::InvalidArgument,
        "etcdserver: request is too large",
    );
    kv.put("a", vec![b'x'; 90_000]).expect("within the limit");
    let ops = |count: usize| TxnRequest {
        success: (0..count).map(|i| op(Request::RequestPut(put(&format!("k{i}"))))).collect(),
        ..TxnRequest::default()
    };
    let mut client = kv.client();
    kv.block_on(async { client.txn(ops(3)).await }).expect("as many as allowed");
    let answer = kv.block_on(async { client.txn(ops(4)).await });
    assert_refused(answer, Code::InvalidArgument, "etcdserver: too many operations in txn request");
}

/// A transaction whose operations are already encoded: any depth can be built, without a stack.
#[derive(Clone, PartialEq, prost::Message)]
struct Nested {
    #[prost(bytes = "vec", tag = "2")]
    success: Vec<u8>,
}

impl Nested {
    fn of_depth(depth: usize) -> Nested {
        // One RequestOp { request_txn: TxnRequest { success: … } } around the other, from the inside out; lengths are
        // written backwards, as all bytes are.
        let mut backwards: Vec<u8> = Vec::new();
        for _ in 0..depth {
            for tag in [0x22, 0x12] {
                let mut varint = Vec::new();
                prost::encoding::encode_varint(backwards.len() as u64, &mut varint);
                backwards.extend(varint.iter().rev());
                backwards.push(tag);
            }
        }
        // The outermost tag and length are written by the codec.
        backwards.reverse();
        let mut rest = &backwards[..];
        if !rest.is_empty() {
            rest = &rest[1..];
            prost::encoding::decode_varint(&mut rest).expect("a length that was just written");
        }
        Nested { success: rest.to_vec() }
    }
}

#[test]
fn transactions_nested_without_end_are_refused() {
    let mut cluster = Cluster::start("nested", 1);
    let kv = cluster.members[0].kv();
    for depth in [2, 50, 90, 200, 3_000, 100_000] {
        let mut client = tonic::client::Grpc::new(kv.channel());
        let answer = kv.block_on(async {
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = http_path("/etcdserverpb.KV/Txn");
            let codec = tonic_prost::ProstCodec::<Nested, pb::TxnResponse>::default();
            client.unary(tonic::Request::new(Nested::of_depth(depth)), path, codec).await
        });
        assert!(cluster.members[0].is_running(), "a nesting of {depth} ended the process");
        match answer {
            Ok(_) => assert!(depth < 128, "a nesting of {depth} was carried out"),
            // Deep ones are refused by the limit of operations, by the codec, or as too large.
            Err(status) => assert!(50 <= depth, "a nesting of {depth} was refused: {status}"),
        }
    }
    until("the next request works", || kv.put("a", "b").ok());
}

fn http_path(path: &'static str) -> tonic::codegen::http::uri::PathAndQuery {
    tonic::codegen::http::uri::PathAndQuery::from_static(path)
}

#[test]
fn changes_of_members_that_make_no_sense_are_refused_and_the_leader_stays() {
    let cluster = Cluster::start("nonsense-members", 1);
    let kv = cluster.members[0].kv();
    let bad_urls = "etcdserver: given member URLs are invalid";
    let mut members = pb::cluster_client::ClusterClient::new(kv.channel());
    let answer = kv.block_on(async { members.member_add(pb::MemberAddRequest::default()).await });
    assert_refused(answer, Code::InvalidArgument, bad_urls);
    let request = pb::MemberUpdateRequest { id: 1, peer_ur_ls: vec!["x".repeat(100_000)] };
    let answer = kv.block_on(async { members.member_update(request).await });
    assert_refused(answer, Code::InvalidArgument, bad_urls);
    for id in [0, 1, u64::MAX] {
        let answer = kv.block_on(async { members.member_remove(pb::MemberRemoveRequest { id }).await });
        assert_refused(answer, Code::NotFound, "etcdserver: member not found");
        let answer = kv.block_on(async { members.member_promote(pb::MemberPromoteRequest { id }).await });
        assert_refused(answer, Code::NotFound, "etcdserver: member not found");
        let moved = kv.move_leader(id);
        assert_refused(moved, Code::FailedPrecondition, "etcdserver: bad leader transferee");
    }
    kv.put("a", "1").expect("the cluster serves");
}

#[test]
fn what_is_not_written_yet_says_unimplemented() {
    let cluster = Cluster::start("unimplemented", 1);
    let kv = cluster.members[0].kv();
    let mut lease = pb::lease_client::LeaseClient::new(kv.channel());
    let answer = kv.block_on(async { lease.lease_grant(pb::LeaseGrantRequest::default()).await });
    assert_eq!(answer.expect_err("no leases yet").code(), Code::Unimplemented);
    let mut auth = pb::auth_client::AuthClient::new(kv.channel());
    let answer = kv.block_on(async { auth.auth_enable(pb::AuthEnableRequest::default()).await });
    assert_eq!(answer.expect_err("no users yet").code(), Code::Unimplemented);
    let request = pb::AuthenticateRequest { name: "root".into(), password: "x".into() };
    let answer = kv.block_on(async { auth.authenticate(request).await });
    assert_refused(answer, Code::FailedPrecondition, "etcdserver: authentication is not enabled");
    let answer = kv.block_on(async { auth.auth_status(pb::AuthStatusRequest::default()).await });
    assert!(!answer.expect("told").into_inner().enabled);
}

/// A read may name any log index; it waits for one to come no longer than for anything else.
#[test]
fn reads_of_an_index_ahead_of_the_cluster_are_refused_in_time_and_delay_no_other() {
    /// As many as may wait on one connection.
    const READS: usize = 512;
    /// A request waits for 5 s and two election timeouts.
    const PATIENCE: Duration = Duration::from_secs(7);
    let cluster = Cluster::start("far-ahead", 3);
    cluster.members[0].kv().put_surely("a", "x");
    let asking = |member: usize, index: u64| {
        let kv = cluster.members[member].kv();
        move || {
            let begun = Instant::now();
            let answers = kv.block_on(async {
                let mut reads = tokio::task::JoinSet::new();
                for number in 0..READS as u64 {
                    let mut client = kv.client();
                    let mut request =
                        tonic::Request::new(RangeRequest { key: b"a".to_vec(), ..RangeRequest::default() });
                    let level = format!("at-least={}", index - number).parse().expect("ASCII");
                    request.metadata_mut().insert("kattu-consistency", level);
                    reads.spawn(async move { client.range(request).await });
                }
                Ok(reads.join_all().await)
            });
            (begun.elapsed(), answers.expect("they end before the test gives up"))
        }
    };
    std::thread::scope(|scope| {
        let far = [
            scope.spawn(asking(0, u64::MAX)),
            scope.spawn(asking(1, 1 << 40)),
            scope.spawn(asking(2, 1 << 63)),
        ];
        // Meanwhile other clients are served.
        let kv = cluster.members[1].kv();
        let mut number = 0;
        while far.iter().any(|asking| !asking.is_finished()) {
            let begun = Instant::now();
            kv.put(format!("k{number}"), "y").expect("a put beside reads that wait");
            assert!(begun.elapsed() < PATIENCE / 2, "a put took {:?}", begun.elapsed());
            number += 1;
        }
        assert!(10 < number, "{number} puts");
        for asking in far {
            let (took, answers) = asking.join().expect("it does not panic");
            assert!(PATIENCE <= took, "{took:?}: none of them could have been served");
            for answer in answers {
                assert_refused(answer, Code::Unavailable, "etcdserver: request timed out");
            }
        }
    });
    for member in &cluster.members {
        until("nothing is held for them any more", || {
            (member.metric("kattu_client_memory_bytes").expect("it says so") < 1 << 20).then_some(())
        });
    }
}
