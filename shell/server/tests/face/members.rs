//! Changes of members and of the leader, and levels of reads: requests to the replica, responses to clients.

use crate::fixture::*;
use kattu_node::contract::{
    Consistency, MemberChange, MemberInfo, MemberRefusal, Outcome, Refusal, Reply, ReplyBody, Request,
};
use kattu_proto::etcdserverpb as pb;
use kattu_raft::{Duration, LogIndex, NodeId, Term};
use kattu_server::FaceConfig;
use kattu_server::level::{CONSISTENCY, INDEX};
use pb::cluster_client::ClusterClient;
use pb::maintenance_client::MaintenanceClient;
use tonic::Code;

fn info(id: u64, url: &str) -> MemberInfo {
    MemberInfo { id: NodeId(id), peer_urls: vec![url.to_string()], learner: true, ..MemberInfo::default() }
}

fn done(body: ReplyBody) -> Option<Outcome> {
    Some(Outcome::Done(Reply { term: Term(TERM), strong: 0, body }))
}

fn last_change(face: &Face) -> MemberChange {
    face.store.set(|state| match state.seen.last() {
        Some(Request::Change(change)) => change.clone(),
        other => panic!("{other:?}"),
    })
}

#[tokio::test]
async fn each_change_reaches_the_replica_as_it_was_meant() {
    let face = Face::start().await;
    let mut cluster = ClusterClient::new(face.channel().await);
    let after = vec![info(7, "http://b:1")];
    face.store.set(|state| state.instead = done(ReplyBody::Changed(after)));

    let added = cluster
        .member_add(pb::MemberAddRequest { peer_ur_ls: vec!["http://B:1/".into()], is_learner: false })
        .await
        .unwrap()
        .into_inner();
    let MemberChange::Add { id, peer_urls, votes } = last_change(&face) else { panic!("an addition") };
    assert_ne!(id, NodeId(0));
    assert_eq!((peer_urls, votes), (vec!["http://b:1".to_string()], true));
    assert_eq!((added.header.unwrap().revision, added.members.len()), (0, 1));
    assert_eq!(added.members[0].peer_ur_ls, ["http://b:1"]);
    assert!(added.members[0].is_learner);

    let learner = pb::MemberAddRequest { peer_ur_ls: vec!["http://c:1".into()], is_learner: true };
    cluster.member_add(learner).await.unwrap();
    assert!(matches!(last_change(&face), MemberChange::Add { id: other, votes: false, .. } if other != id));

    let removed = cluster.member_remove(pb::MemberRemoveRequest { id: 9 }).await.unwrap().into_inner();
    assert_eq!(last_change(&face), MemberChange::Remove(NodeId(9)));
    assert_eq!(removed.members[0].id, 7);
    let promoted = cluster.member_promote(pb::MemberPromoteRequest { id: 7 }).await.unwrap().into_inner();
    assert_eq!(last_change(&face), MemberChange::Promote(NodeId(7)));
    assert_eq!(promoted.members[0].id, 7);
    let request =
        pb::MemberUpdateRequest { id: 7, peer_ur_ls: vec!["http://d:1".into(), "http://c:1".into()] };
    cluster.member_update(request).await.unwrap();
    let urls = vec!["http://c:1".to_string(), "http://d:1".to_string()];
    assert_eq!(last_change(&face), MemberChange::Update { id: NodeId(7), peer_urls: urls });

    face.store.set(|state| state.instead = done(ReplyBody::Moved));
    let mut maintenance = MaintenanceClient::new(face.channel().await);
    let moved = maintenance.move_leader(pb::MoveLeaderRequest { target_id: 5 }).await.unwrap().into_inner();
    assert_eq!(moved.header.unwrap().raft_term, TERM);
    assert_eq!(face.store.set(|state| state.seen.last().cloned()), Some(Request::MoveLeader(NodeId(5))));
}

#[tokio::test]
async fn wrong_urls_never_reach_the_replica() {
    let face = Face::start().await;
    let mut cluster = ClusterClient::new(face.channel().await);
    for urls in [vec![], vec!["127.0.0.1:1"], vec!["https://a"], vec!["http://a:1", "http://0.0.0.0:1"]] {
        let urls: Vec<String> = urls.into_iter().map(str::to_string).collect();
        let add = pb::MemberAddRequest { peer_ur_ls: urls.clone(), is_learner: false };
        let update = pb::MemberUpdateRequest { id: MEMBER, peer_ur_ls: urls };
        let refusals =
            [cluster.member_add(add).await.map(|_| ()), cluster.member_update(update).await.map(|_| ())];
        for refused in refusals {
            let refused = refused.unwrap_err();
            let text = "etcdserver: given member URLs are invalid";
            assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
        }
    }
    assert_eq!(face.store.set(|state| state.seen.len()), 0);
}

#[tokio::test]
async fn an_id_that_was_used_before_is_drawn_again_and_other_refusals_are_final() {
    let face = Face::start().await;
    let mut cluster = ClusterClient::new(face.channel().await);
    let refuse = |why| Some(Outcome::Refused(Refusal::Member(why)));
    let add = || pb::MemberAddRequest { peer_ur_ls: vec!["http://b:1".into()], is_learner: true };
    face.store.set(|state| state.instead = refuse(MemberRefusal::IdUsed));
    let refused = cluster.member_add(add()).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: member ID already exist");
    let drawn: Vec<NodeId> = face.store.set(|state| {
        let ids = state.seen.iter().map(|request| match request {
            Request::Change(MemberChange::Add { id, .. }) => *id,
            other => panic!("{other:?}"),
        });
        ids.collect()
    });
    assert_eq!(drawn.len(), 3);
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2], "{drawn:?}");

    face.store.set(|state| {
        state.instead = refuse(MemberRefusal::TooManyLearners);
        state.seen.clear();
    });
    let refused = cluster.member_add(add()).await.unwrap_err();
    let text = "etcdserver: too many learner members in cluster";
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, text));
    assert_eq!(refused.metadata().get("kattu-reason").unwrap(), "there are too many learners");
    assert_eq!(face.store.set(|state| state.seen.len()), 1);
}

/// The level at which the replica got a read of `request` with this metadata, and the log index in the response.
async fn asked(
    face: &Face,
    level: Option<&str>,
    request: pb::RangeRequest,
) -> Result<(Consistency, Option<String>), Code> {
    let mut request = tonic::Request::new(request);
    if let Some(level) = level {
        request.metadata_mut().insert(CONSISTENCY, level.parse().unwrap());
    }
    let answer = face.kv().await.range(request).await.map_err(|status| status.code())?;
    let told = answer.metadata().get(INDEX).map(|index| index.to_str().unwrap().to_string());
    face.store.set(|state| match state.seen.last() {
        Some(Request::Read(_, consistency)) => Ok((*consistency, told)),
        other => panic!("{other:?}"),
    })
}

#[tokio::test]
async fn a_read_is_as_fresh_as_its_call_says_and_a_call_that_says_it_is_told_its_position() {
    let face = Face::start().await;
    face.kv().await.put(put("a", "1")).await.unwrap();
    let serializable = pb::RangeRequest { serializable: true, ..get("a") };
    let told = || Some("1".to_string());
    let bounded = Consistency::Bounded(Duration::from_millis(100));
    for (level, request, expected) in [
        (None, get("a"), (Consistency::Linearizable, None)),
        (None, serializable.clone(), (Consistency::Serializable, None)),
        (Some("linearizable"), get("a"), (Consistency::Linearizable, told())),
        (Some("serializable"), get("a"), (Consistency::Serializable, told())),
        (Some("at-least=1"), get("a"), (Consistency::AtLeast(LogIndex(1)), told())),
        (Some("bounded=100ms"), get("a"), (bounded, told())),
        (Some("at-least=1"), serializable, (Consistency::Serializable, told())),
    ] {
        assert_eq!(asked(&face, level, request).await, Ok(expected), "{level:?}");
    }
    assert_eq!(asked(&face, Some("eventual"), get("a")).await, Err(Code::InvalidArgument));

    // A write's position, and a transaction that only reads.
    let mut write = tonic::Request::new(put("a", "2"));
    write.metadata_mut().insert(CONSISTENCY, "at-least=0".parse().unwrap());
    let answer = face.kv().await.put(write).await.unwrap();
    assert_eq!(answer.metadata().get(INDEX).unwrap(), "2");
    let mut reads = tonic::Request::new(all_of(vec![op(pb::request_op::Request::RequestRange(get("a")))]));
    reads.metadata_mut().insert(CONSISTENCY, "at-least=2".parse().unwrap());
    face.kv().await.txn(reads).await.unwrap();
    let seen = face.store.set(|state| state.seen.last().cloned());
    assert!(matches!(seen, Some(Request::Read(_, Consistency::AtLeast(LogIndex(2))))), "{seen:?}");
}

#[tokio::test]
async fn reads_that_say_nothing_are_as_fresh_as_the_cluster_is_configured() {
    let bounded = Consistency::Bounded(Duration::from_secs(1));
    let face = Face::start_with(FaceConfig { read_consistency: bounded, ..Default::default() }).await;
    assert_eq!(asked(&face, None, get("a")).await, Ok((bounded, None)));
    let (level, _) = asked(&face, Some("linearizable"), get("a")).await.unwrap();
    assert_eq!(level, Consistency::Linearizable);
}
