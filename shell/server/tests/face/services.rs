//! Services other than KV: status, alarms, members, auth (off), health, and the RPCs that are not implemented yet.

use crate::fixture::*;
use kattu_proto::{etcdserverpb as pb, healthpb, v3electionpb, v3lockpb};
use pb::auth_client::AuthClient;
use pb::cluster_client::ClusterClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tonic::Code;

#[tokio::test]
async fn a_status_shows_versions_sizes_and_progress() {
    let face =
        Face::start_with(kattu_server::FaceConfig { quota_bytes: 1 << 30, ..Default::default() }).await;
    let mut maintenance = MaintenanceClient::new(face.channel().await);
    let empty = maintenance.status(pb::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!((empty.db_size_in_use, empty.db_size), (0, 1), "etcdctl divides by the second");
    face.kv().await.put(put("a", "1")).await.unwrap();
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.version, "3.7.3");
    assert_eq!(status.storage_version, "3.7.0");
    assert_eq!((status.leader, status.raft_term), (MEMBER, TERM));
    assert_eq!((status.raft_index, status.raft_applied_index), (1, 1));
    assert!(0 < status.db_size_in_use && status.db_size_in_use <= status.db_size, "{status:?}");
    assert_eq!(status.db_size_quota, 1 << 30);
    assert!(status.errors.is_empty());
    assert_eq!(status.header.unwrap().revision, 2);

    face.store.set(|state| (state.leaderless, state.no_space) = (true, true));
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.leader, 0);
    assert_eq!(status.errors, ["etcdserver: no leader", "memberID:42 alarm:NOSPACE "]);
}

#[tokio::test]
async fn a_member_that_is_short_of_space_says_so_without_an_alarm_in_the_log() {
    let face = Face::start().await;
    let mut maintenance = MaintenanceClient::new(face.channel().await);
    let alarms = maintenance.alarm(pb::AlarmRequest::default()).await.unwrap().into_inner();
    assert!(alarms.alarms.is_empty() && alarms.header.is_some());
    face.store.set(|state| state.no_space = true);
    let nospace = pb::AlarmMember { member_id: MEMBER, alarm: pb::AlarmType::Nospace as i32 };
    let ask =
        |member_id, alarm: pb::AlarmType| pb::AlarmRequest { member_id, alarm: alarm as i32, action: 0 };
    let table = [
        (ask(0, pb::AlarmType::None), 1),
        (ask(MEMBER, pb::AlarmType::Nospace), 1),
        (ask(MEMBER + 1, pb::AlarmType::Nospace), 0),
        (ask(0, pb::AlarmType::Corrupt), 0),
    ];
    for (request, count) in table {
        let alarms = maintenance.alarm(request).await.unwrap().into_inner().alarms;
        assert_eq!(alarms, vec![nospace; count], "{request:?}");
    }
}

#[tokio::test]
async fn members_are_listed_without_a_revision() {
    let face = Face::start().await;
    let mut cluster = ClusterClient::new(face.channel().await);
    let list = cluster.member_list(pb::MemberListRequest { linearizable: true }).await.unwrap().into_inner();
    assert_eq!(list.header.unwrap().revision, 0);
    assert_eq!(list.members.len(), 1);
    let member = &list.members[0];
    assert_eq!((member.id, member.name.as_str(), member.is_learner), (MEMBER, "lone", false));
    assert_eq!(member.peer_ur_ls, ["http://127.0.0.1:2380"]);
    assert_eq!(member.client_ur_ls, ["http://127.0.0.1:2379"]);
}

#[tokio::test]
async fn auth_is_off_and_says_so() {
    let face = Face::start().await;
    let mut auth = AuthClient::new(face.channel().await);
    let status = auth.auth_status(pb::AuthStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.enabled, status.auth_revision), (false, 1));
    let request = pb::AuthenticateRequest { name: "root".into(), password: "x".into() };
    let refused = auth.authenticate(request).await.unwrap_err();
    let text = "etcdserver: authentication is not enabled";
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, text));
}

#[tokio::test]
async fn health_follows_the_leader() {
    use healthpb::health_check_response::ServingStatus;
    let face = Face::start().await;
    let mut health = healthpb::health_client::HealthClient::new(face.channel().await);
    let whole = || healthpb::HealthCheckRequest { service: String::new() };
    let check = health.check(whole()).await.unwrap().into_inner();
    assert_eq!(check.status(), ServingStatus::Serving);
    let mut watched = health.watch(whole()).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let list = health.list(healthpb::HealthListRequest {}).await.unwrap().into_inner();
    assert_eq!(list.statuses[""].status(), ServingStatus::Serving);

    face.store.set(|state| state.leaderless = true);
    let check = health.check(whole()).await.unwrap().into_inner();
    assert_eq!(check.status(), ServingStatus::NotServing);
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);

    let other = health.check(healthpb::HealthCheckRequest { service: "other".into() }).await;
    assert_eq!(other.unwrap_err().code(), Code::NotFound);

    face.stop.send(true).unwrap();
    let ended = watched.message().await.unwrap_err();
    assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "etcdserver: server stopped"));
    face.served.await.unwrap();
}

/// Each of these calls would wait for ever if the server answered only after the end of the request stream.
#[tokio::test]
async fn what_is_not_written_yet_says_so_at_once() {
    let face = Face::start().await;
    let channel = face.channel().await;
    let mut codes = Vec::new();
    let mut watch = WatchClient::new(channel.clone());
    codes.push(watch.watch(tokio_stream::pending()).await.map(|_| ()));
    let mut lease = LeaseClient::new(channel.clone());
    codes.push(lease.lease_keep_alive(tokio_stream::pending()).await.map(|_| ()));
    codes.push(lease.lease_grant(pb::LeaseGrantRequest { ttl: 5, id: 0 }).await.map(|_| ()));
    codes.push(face.kv().await.range_stream(get("a")).await.map(|_| ()));
    let mut maintenance = MaintenanceClient::new(channel.clone());
    codes.push(maintenance.downgrade(pb::DowngradeRequest::default()).await.map(|_| ()));
    let mut lock = v3lockpb::lock_client::LockClient::new(channel.clone());
    codes.push(lock.lock(v3lockpb::LockRequest::default()).await.map(|_| ()));
    let mut election = v3electionpb::election_client::ElectionClient::new(channel.clone());
    codes.push(election.observe(v3electionpb::LeaderRequest::default()).await.map(|_| ()));
    let mut auth = AuthClient::new(channel);
    codes.push(auth.auth_enable(pb::AuthEnableRequest {}).await.map(|_| ()));
    for (place, answered) in codes.into_iter().enumerate() {
        assert_eq!(answered.unwrap_err().code(), Code::Unimplemented, "call {place}");
    }
}

#[tokio::test]
async fn an_unknown_service_is_unimplemented_too() {
    let face = Face::start().await;
    let mut client = tonic::client::Grpc::new(face.channel().await);
    let long = "x".repeat(8_000);
    let paths = ["/etcdserverpb.KV/Nonsense", "/nobody.Knows/This", "/x"].map(String::from);
    for path in paths.into_iter().chain([format!("/etcdserverpb.KV/{long}"), format!("/{long}/{long}")]) {
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<pb::RangeRequest, pb::RangeResponse>::default();
        let path = path.parse::<http::uri::PathAndQuery>().unwrap();
        let refused = client.unary(tonic::Request::new(get("a")), path, codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{refused:?}");
        assert!(refused.message().len() < 300, "the error repeats only the beginning of a long path");
    }
}
