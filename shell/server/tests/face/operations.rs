//! The rest of the maintenance service: hashes, alarms, snapshots.

use crate::fixture::*;
use crate::plain_http::ask;
use bytes::Bytes;
use h2::Reason;
use kattu_kv::api::{Command, Put, Revision};
use kattu_node::Keeper;
use kattu_node::alarms::{Alarm, AlarmChange, AlarmKind};
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperEffects, KeeperTask, Outcome, Refusal, Reply, ReplyBody, Request, Tickets};
use kattu_proto::etcdserverpb as pb;
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, NodeId, Stamp, Term};
use kattu_server::FaceConfig;
use kattu_server::backup::Backup;
use kattu_server::rpc::Rpc;
use pb::alarm_request::AlarmAction;
use pb::maintenance_client::MaintenanceClient;
use std::time::Duration;
use tonic::Code;
use tonic::transport::Channel;

/// Reads of the whole store at once. [operations.md, "Limits"]
const LOOKS_MAX: usize = 4;

/// A keeper that has applied so many puts of a kilobyte, and one compaction at revision 3.
fn keeper(puts: u32) -> Keeper {
    let mut keeper = Keeper::new(vec![]);
    let put = |n: u32| Put { key: n.to_be_bytes().to_vec(), value: vec![7; 1000], ..Put::default() };
    let commands = (0..puts).map(|n| Command::Put(put(n))).chain([Command::Compact(Revision(3))]);
    for command in commands {
        let id = EntryId { term: Term(3), index: keeper.applied().next() };
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
        let entry = Entry::new(head, encode_kv(&command).into(), 0);
        keeper.handle(
            KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(3) },
            &mut KeeperEffects::default(),
        );
    }
    keeper
}

/// A face whose replica pins these tables.
async fn holding(keeper: &Keeper) -> (Face, MaintenanceClient<Channel>) {
    holding_with(keeper, FaceConfig::default()).await
}

async fn holding_with(keeper: &Keeper, config: FaceConfig) -> (Face, MaintenanceClient<Channel>) {
    let face = Face::start_with(config).await;
    answer(&face, ReplyBody::Pinned(Box::new(keeper.pin())));
    let maintenance = MaintenanceClient::new(face.channel().await);
    (face, maintenance)
}

fn answer(face: &Face, body: ReplyBody) {
    face.store.set(|state| state.instead = Some(Outcome::Done(Reply { term: Term(TERM), strong: 0, body })));
}

/// Retries until there is a permit: a client that has gone keeps its permit until that is noticed.
async fn admitted(maintenance: &mut MaintenanceClient<Channel>) -> tonic::Streaming<pb::SnapshotResponse> {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match maintenance.snapshot(pb::SnapshotRequest {}).await {
            Ok(stream) => return stream.into_inner(),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert!(tokio::time::Instant::now() < end, "no permit becomes free: {status:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn whole(maintenance: &mut MaintenanceClient<Channel>) -> (Vec<u8>, Vec<u64>) {
    let mut stream = admitted(maintenance).await;
    let (mut bytes, mut remaining) = (Vec::new(), Vec::new());
    while let Some(piece) = stream.message().await.expect("a piece") {
        assert_eq!(piece.version, "3.7.0");
        assert_eq!(piece.header.expect("a header").member_id, MEMBER);
        bytes.extend(piece.blob);
        remaining.push(piece.remaining_bytes);
    }
    (bytes, remaining)
}

#[tokio::test]
async fn a_snapshot_is_a_backup_that_etcds_tools_accept() {
    let keeper = keeper(5000);
    let (_face, mut maintenance) = holding(&keeper).await;
    let (bytes, remaining) = whole(&mut maintenance).await;
    assert_eq!(bytes.len() % 512, 32);
    assert!(remaining.is_sorted_by(|a, b| a >= b) && remaining.len() > 5, "{remaining:?}");
    assert_eq!(remaining[remaining.len() - 2..], [0, 0], "the last content, and the checksum");
    let backup = Backup::read(&bytes[..], bytes.len() as u64).expect("a backup");
    assert_eq!((backup.cluster, backup.member), (CLUSTER, NodeId(MEMBER)));
    assert_eq!(backup.tables.pin(), keeper.pin());
}

#[tokio::test]
async fn readers_that_go_away_leave_room_for_others() {
    let (_face, mut maintenance) = holding(&keeper(20_000)).await;
    for _ in 0..20 {
        let Ok(stream) = maintenance.snapshot(pb::SnapshotRequest {}).await else { continue };
        let mut stream = stream.into_inner();
        assert!(stream.message().await.expect("a piece").is_some());
    }
    // Each stream is given up as soon as it finds its client gone.
    drop(admitted(&mut maintenance).await);
}

/// How often the replica was asked for a pin of its tables.
fn pins(face: &Face) -> usize {
    face.store.set(|state| state.seen.iter().filter(|seen| matches!(seen, Request::Pin(_))).count())
}

/// Goal: each permitted read of the whole store holds a pin; beyond them a hash waits without a pin, a snapshot is
/// refused.
#[tokio::test]
async fn beyond_the_limit_of_looks_a_snapshot_is_refused_and_a_hash_waits_without_a_pin() {
    let (face, mut maintenance) = holding(&keeper(5000)).await;
    let mut readers = Vec::new();
    for _ in 0..LOOKS_MAX {
        // Its client does not read: what does not fit the window of its connection keeps its permit.
        let mut reader = MaintenanceClient::new(face.channel().await);
        let stream = reader.snapshot(pb::SnapshotRequest {}).await.expect("there is a place").into_inner();
        readers.push((reader, stream));
    }
    let refused = maintenance.snapshot(pb::SnapshotRequest {}).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "etcdserver: too many requests")
    );
    assert_eq!((pins(&face), face.config.counters.looks_refused.get()), (LOOKS_MAX, 1));
    let (_, _, page) = ask(&face, "GET", "/metrics").await;
    assert!(page.contains("\nkattu_looks 4\n") && page.contains("\nkattu_looks_refused_total 1\n"), "{page}");

    let (mut first, mut second) = (maintenance.clone(), maintenance.clone());
    let hash = tokio::spawn(async move { first.hash(pb::HashRequest {}).await });
    let hash_kv = tokio::spawn(async move { second.hash_kv(pb::HashKvRequest { revision: 0 }).await });
    let begun = |rpc: Rpc| face.config.counters.of(rpc).started.get();
    eventually(|| begun(Rpc::Hash) == 1 && begun(Rpc::HashKv) == 1).await;
    for _ in 0..50 {
        maintenance.status(pb::StatusRequest {}).await.expect("it answers meanwhile");
    }
    assert_eq!(pins(&face), LOOKS_MAX, "a call that waits for a permit holds no tables");
    assert!(!hash.is_finished() && !hash_kv.is_finished());

    drop(readers);
    hash.await.unwrap().expect("a hash");
    hash_kv.await.unwrap().expect("a hash");
    assert_eq!(pins(&face), LOOKS_MAX + 2);
    eventually(|| face.config.looks.available_permits() == LOOKS_MAX).await;
}

/// Goal: a client that takes a little of a snapshot now and then does not keep its tables and permit for as long as it
/// likes.
#[tokio::test]
async fn a_snapshot_that_is_taken_too_slowly_is_given_up_and_its_client_is_told() {
    let config = FaceConfig { stall_deadline: Duration::from_secs(1), ..Default::default() };
    let (face, _) = holding_with(&keeper(5000), config).await;
    // With a window of 128 bytes each window update of the client makes room for no more than that.
    let (mut client, connection) =
        h2::client::Builder::new().initial_window_size(128).handshake(face.raw().await).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://x/etcdserverpb.Maintenance/Snapshot")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    std::future::poll_fn(|context| client.poll_ready(context)).await.unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from(vec![0; 5]), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(face.config.looks.available_permits(), LOOKS_MAX - 1);
    let told = loop {
        match body.data().await.expect("not the end: it has not taken all") {
            Ok(data) => body.flow_control().release_capacity(data.len()).unwrap(),
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(told.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let counters = &face.config.counters;
    assert_eq!((counters.answers_slow.get(), counters.answers_stalled.get()), (1, 0));
    eventually(|| face.config.looks.available_permits() == LOOKS_MAX).await;
}

#[tokio::test]
async fn hashes_are_those_of_the_tables_and_of_revisions() {
    let (face, mut maintenance) = holding(&keeper(10)).await;
    let hash = maintenance.hash(pb::HashRequest {}).await.unwrap().into_inner();
    assert_eq!(hash.header.unwrap().revision, 11);
    let again = maintenance.hash(pb::HashRequest {}).await.unwrap().into_inner();
    assert_eq!(hash.hash, again.hash);
    let mut of = async |revision| maintenance.hash_kv(pb::HashKvRequest { revision }).await;
    let newest = of(0).await.unwrap().into_inner();
    assert_eq!((newest.hash_revision, newest.compact_revision), (11, 3));
    assert_eq!(of(11).await.unwrap().into_inner().hash, newest.hash);
    let older = of(5).await.unwrap().into_inner();
    assert_eq!((older.hash_revision, older.compact_revision), (5, 3));
    assert_ne!(older.hash, newest.hash);
    let early = of(2).await.unwrap_err();
    assert_eq!(early.message(), "etcdserver: mvcc: required revision has been compacted");
    let late = of(12).await.unwrap_err();
    assert_eq!(late.message(), "etcdserver: mvcc: required revision is a future revision");

    answer(&face, ReplyBody::Pinned(Box::new(keeper(11).pin())));
    let of_another = of(11).await.unwrap().into_inner();
    assert_eq!(of_another.hash, newest.hash, "however far it has gone on since");
    assert_ne!(maintenance.hash(pb::HashRequest {}).await.unwrap().into_inner().hash, hash.hash);
}

#[tokio::test]
async fn alarms_are_raised_and_cleared_through_the_log() {
    let face = Face::start().await;
    let mut maintenance = MaintenanceClient::new(face.channel().await);
    let full = Alarm { member: NodeId(9), kind: AlarmKind::NoSpace };
    let ask =
        |action: AlarmAction, alarm: i32| pb::AlarmRequest { action: action.into(), member_id: 9, alarm };
    let written = |face: &Face| face.store.set(|state| state.seen.pop());

    face.store.set(|state| state.others = vec![NodeId(9)]);
    answer(&face, ReplyBody::Alarmed(Some(full)));
    let raised = maintenance.alarm(ask(AlarmAction::Activate, 1)).await.unwrap().into_inner();
    assert_eq!(written(&face), Some(Request::Write(AlarmChange::Raise(full).encode().into())));
    assert_eq!(raised.alarms, [pb::AlarmMember { member_id: 9, alarm: 1 }]);
    assert!(raised.header.unwrap().revision > 0);

    answer(&face, ReplyBody::Alarmed(None));
    let cleared = maintenance.alarm(ask(AlarmAction::Deactivate, 2)).await.unwrap().into_inner();
    let clear = AlarmChange::Clear(Alarm::corrupt(NodeId(9))).encode();
    assert_eq!(written(&face), Some(Request::Write(clear.into())));
    assert!(cleared.alarms.is_empty(), "there was none");

    face.store.set(|state| state.alarms = [full, Alarm::corrupt(NodeId(MEMBER))].into_iter().collect());
    let all = maintenance.alarm(pb::AlarmRequest::default()).await.unwrap().into_inner();
    let expected = [(9, 1), (MEMBER, 2)].map(|(member_id, alarm)| pb::AlarmMember { member_id, alarm });
    assert_eq!(all.alarms, expected);
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.errors, ["memberID:9 alarm:NOSPACE ", "memberID:42 alarm:CORRUPT "]);

    for action in [AlarmAction::Activate, AlarmAction::Deactivate] {
        let nothing = maintenance.alarm(ask(action, 0)).await.unwrap().into_inner();
        assert!(nothing.alarms.is_empty(), "no kind, no alarm");
    }
    for wrong in [ask(AlarmAction::Get, 3), pb::AlarmRequest { action: 7, ..Default::default() }] {
        assert_eq!(maintenance.alarm(wrong).await.unwrap_err().code(), Code::InvalidArgument, "{wrong:?}");
    }
}

/// Every member keeps raised alarms, so that a client may not raise alarms for any number of ids of no member.
#[tokio::test]
async fn an_alarm_is_raised_for_one_member_or_for_all_and_for_no_stranger() {
    let face = Face::start().await;
    let mut maintenance = MaintenanceClient::new(face.channel().await);
    let ask = |action: AlarmAction, member_id: u64| pb::AlarmRequest {
        action: action.into(),
        member_id,
        alarm: pb::AlarmType::Corrupt.into(),
    };
    let written = |face: &Face| {
        let seen = face.store.set(|state| std::mem::take(&mut state.seen));
        seen.into_iter().filter(|request| matches!(request, Request::Write(_))).count()
    };
    for stranger in [1, MEMBER + 1, u64::MAX] {
        let refused = maintenance.alarm(ask(AlarmAction::Activate, stranger)).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::NotFound, "etcdserver: member not found"),
            "{stranger}"
        );
        assert_eq!(written(&face), 0, "{stranger}");
        for action in [AlarmAction::Get, AlarmAction::Deactivate] {
            maintenance.alarm(ask(action, stranger)).await.expect("it is no harm");
        }
        assert_eq!(written(&face), 1, "one is cleared for {stranger}");
    }
    face.store.set(|state| state.others = vec![NodeId(9)]);
    for known in [0, MEMBER, 9] {
        maintenance.alarm(ask(AlarmAction::Activate, known)).await.expect("a member, or all");
        assert_eq!(written(&face), 1, "{known}");
    }
}

#[tokio::test]
async fn a_member_that_is_known_to_be_wrong_gives_nothing_away() {
    let face = Face::start().await;
    let mut maintenance = MaintenanceClient::new(face.channel().await);
    face.store.set(|state| state.alarms = [Alarm::corrupt(NodeId(MEMBER))].into_iter().collect());
    face.store.set(|state| state.instead = Some(Outcome::Refused(Refusal::Corrupt)));
    let refused = maintenance.snapshot(pb::SnapshotRequest {}).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::DataLoss, "etcdserver: corrupt cluster"));
    let refused = face.kv().await.range(get("a")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::DataLoss, "etcdserver: corrupt cluster"));
    let hint = maintenance.defragment(pb::DefragmentRequest {}).await.unwrap().into_inner();
    assert_eq!(hint.header.unwrap().member_id, MEMBER);
}
