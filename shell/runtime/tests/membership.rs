//! Real members that come and go.

mod cluster_of_three;

use cluster_of_three::{Cluster, put_until_done, read, run, status};
use kattu_node::contract::{
    Consistency, MemberChange, MemberInfo, MemberRefusal, Outcome, Refusal, Reply, ReplyBody, Request,
};
use kattu_raft::{Duration, NodeId};
use kattu_runtime::{End, Engine, Threading};
use kattu_wal::{Item, RealFiles, inspect};

/// Asks until the answer is about this change, and not about other events. Also returns whether an earlier try is in
/// doubt: it may have taken effect.
async fn judged(engine: &Engine, change: &MemberChange) -> (Outcome, bool) {
    let mut in_doubt = false;
    for _ in 0..1000 {
        match engine.call(Request::Change(change.clone())).await {
            Outcome::Unknown(_) => in_doubt = true,
            // A new leader, a promotion that has just begun, a voter that its disk holds up.
            Outcome::Refused(
                Refusal::Member(MemberRefusal::UnderWay | MemberRefusal::WouldLoseQuorum)
                | Refusal::NoLeader
                | Refusal::LeaderChanged,
            ) => {}
            other => return (other, in_doubt),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{change:?} is never judged");
}

async fn change(engine: &Engine, change: MemberChange) -> Vec<MemberInfo> {
    match judged(engine, &change).await {
        (Outcome::Done(Reply { body: ReplyBody::Changed(list), .. }), _) => list,
        (Outcome::Refused(Refusal::Member(MemberRefusal::IdUsed | MemberRefusal::NotFound)), true) => {
            for _ in 0..1000 {
                let asked = engine.call(Request::Members(Consistency::Linearizable)).await;
                if let Outcome::Done(Reply { body: ReplyBody::Members(members), .. }) = asked {
                    return members.list;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("{change:?} may have been made, and no member lists the members");
        }
        (other, _) => panic!("{change:?}: {other:?}"),
    }
}

async fn members(engine: &Engine) -> Vec<MemberInfo> {
    match engine.call(Request::Members(Consistency::Serializable)).await {
        Outcome::Done(Reply { body: ReplyBody::Members(members), .. }) => members.list,
        _ => Vec::new(), // it does not serve yet
    }
}

/// Waits until this member's table satisfies `is_so`.
async fn until(engine: &Engine, is_so: impl Fn(&[MemberInfo]) -> bool) {
    for _ in 0..12000 {
        if is_so(&members(engine).await) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("its members stay {:?}", members(engine).await);
}

/// Waits until this member regards itself as alone, or not: only a member with peers may have its log repaired.
async fn has_peers(engine: &Engine, so: bool) {
    for _ in 0..12000 {
        if engine.has_peers() == so {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not notice that it {} peers", if so { "has" } else { "has no" });
}

/// Adds a member under this id, starts it, and waits until it votes and has published its name.
async fn grow(cluster: &mut Cluster, asked: usize, id: u64) -> usize {
    let new = cluster.joiner();
    let peer_urls = cluster.peer_urls(new);
    change(&cluster.engine(asked), MemberChange::Add { id: NodeId(id), peer_urls, votes: true }).await;
    cluster.restart(new);
    let engine = cluster.engine(new);
    assert_eq!((engine.member_id(), engine.cluster_id()), (NodeId(id), 0xC1), "the others have told it");
    until(&engine, |list| {
        list.iter().any(|member| member.id.0 == id && !member.learner && !member.name.is_empty())
    })
    .await;
    new
}

/// Waits until a member has written down so many other members.
async fn has_noted(cluster: &Cluster, member: usize, count: usize) {
    let files = RealFiles::existing(&cluster.data_dirs()[member]).expect("a directory");
    for _ in 0..1000 {
        let mut noted = None;
        let verdict = inspect(&files, &mut |item| {
            if let Item::KnownMembers { state } = item {
                noted = Some(state.expect("it is written whole"));
            }
        });
        if verdict.is_ok() && noted == Some(count) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("member {member} has not written down {count} others");
}

async fn grows_and_shrinks(place: Threading) {
    let mut cluster = Cluster::new(1, place, place);
    put_until_done(&cluster.engine(0), "a", "before").await;
    assert!(!cluster.engine(0).has_peers(), "no other member has its data");
    let second = grow(&mut cluster, 0, 0xA2).await;
    let third = grow(&mut cluster, second, 0xA3).await;
    assert_eq!(read(&cluster.engine(third), "a").await.as_deref(), Some("before"));
    for member in [0, second, third] {
        has_peers(&cluster.engine(member), true).await;
    }
    for member in [0, second] {
        has_noted(&cluster, member, 2).await; // the identity of the third one names all
    }
    cluster.kill(second);
    put_until_done(&cluster.engine(0), "a", "two of three").await;
    cluster.restart(second);
    assert_eq!(
        read(&cluster.engine(second), "a").await.as_deref(),
        Some("two of three"),
        "it has its old identity"
    );

    for (member, id) in [(second, 0xA2), (third, 0xA3)] {
        let list = change(&cluster.engine(0), MemberChange::Remove(NodeId(id))).await;
        assert!(list.iter().all(|member| member.id.0 != id));
        assert_eq!(cluster.end_of(member).await, Some(End::Removed), "it ends by itself");
        cluster.restart(member);
        assert_eq!(cluster.end_of(member).await, Some(End::Removed), "and again, whenever it starts");
    }
    put_until_done(&cluster.engine(0), "a", "alone").await;
    assert_eq!(read(&cluster.engine(0), "a").await.as_deref(), Some("alone"));
    has_peers(&cluster.engine(0), false).await;
    has_noted(&cluster, 0, 0).await;
}

#[test]
fn one_member_becomes_three_and_one_again_inline() {
    run(grows_and_shrinks(Threading::Inline));
}

#[test]
fn one_member_becomes_three_and_one_again_with_threads() {
    run(grows_and_shrinks(Threading::Thread));
}

#[test]
fn a_leader_that_is_removed_ends_and_the_others_go_on() {
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        let leader = cluster.leader().await;
        let engine = cluster.engine(leader);
        put_until_done(&engine, "a", "with it").await;
        let list = change(&engine, MemberChange::Remove(engine.member_id())).await;
        assert_eq!(list.len(), 2, "its own client is told");
        assert_eq!(cluster.end_of(leader).await, Some(End::Removed));
        let other = (leader + 1) % 3;
        assert_eq!(read(&cluster.engine(other), "a").await.as_deref(), Some("with it"));
        put_until_done(&cluster.engine(other), "a", "without it").await;
    });
}

#[test]
fn a_leader_offers_leadership_to_the_member_of_highest_priority_when_that_is_back() {
    run(async {
        let mut cluster = Cluster::with_favourite(3);
        let favourite = 2;
        let engine = cluster.engine(favourite);
        put_until_done(&engine, "a", "before").await;
        leads(&engine).await;
        cluster.kill(favourite);
        put_until_done(&cluster.engine(0), "a", "without it").await;
        cluster.restart(favourite);
        let engine = cluster.engine(favourite);
        leads(&engine).await;
        assert_eq!(read(&engine, "a").await.as_deref(), Some("without it"));
    });
}

/// Waits until this member leads.
async fn leads(engine: &Engine) {
    for _ in 0..12000 {
        if status(engine).await.role == "leader" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("another one leads for two minutes");
}

#[test]
fn an_empty_directory_is_let_in_only_as_a_member_that_never_had_one() {
    run(async {
        let mut cluster = Cluster::new(2, Threading::Inline, Threading::Inline);
        put_until_done(&cluster.engine(0), "a", "before").await;
        let new = cluster.joiner();
        let why = cluster.try_restart(new).expect_err("it was not added");
        assert!(why.contains("kattu member add"), "{why}");

        let peer_urls = cluster.peer_urls(new);
        let add = |id: u64| MemberChange::Add { id: NodeId(id), peer_urls: peer_urls.clone(), votes: true };
        change(&cluster.engine(0), add(0xA2)).await;
        cluster.restart(new);
        until(&cluster.engine(new), |list| list.iter().any(|member| member.id.0 == 0xA2 && !member.learner))
            .await;
        put_until_done(&cluster.engine(new), "a", "three of three").await;
        cluster.stop(new);
        cluster.wipe(new);
        let why = cluster.try_restart(new).expect_err("its disk is gone");
        assert!(why.contains("kattu member remove a2"), "{why}");
    });
}

#[test]
fn a_member_that_lags_admits_no_newcomer_alone() {
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        let leader = cluster.leader().await;
        let (lagging, third) = ((leader + 1) % 3, (leader + 2) % 3);
        let new = cluster.joiner();
        let add = MemberChange::Add { id: NodeId(0xA4), peer_urls: cluster.peer_urls(new), votes: true };
        change(&cluster.engine(leader), add).await;
        until(&cluster.engine(lagging), |list| list.iter().any(|member| member.id.0 == 0xA4)).await;
        for value in ["one", "two"] {
            put_until_done(&cluster.engine(lagging), "a", value).await; // its log says that the addition is committed
        }
        cluster.kill(lagging);
        cluster.restart(new);
        let votes = |list: &[MemberInfo]| list.iter().any(|member| member.id.0 == 0xA4 && !member.learner);
        until(&cluster.engine(new), votes).await;
        for gone in [new, leader, third] {
            cluster.kill(gone);
        }
        cluster.wipe(new);

        cluster.restart(lagging);
        let engine = cluster.engine(lagging);
        until(&engine, |list| list.iter().any(|member| member.id.0 == 0xA4 && member.learner)).await;
        let before = engine.metrics().requests.get();
        let joining = cluster.begin_start(new);
        for _ in 0..1000 {
            if engine.metrics().requests.get() > before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(engine.metrics().requests.get() > before, "it was asked for the members");
        cluster.restart(leader);
        cluster.restart(third);
        let why = joining.join().expect("its thread ends").expect_err("it has voted");
        assert!(why.contains("kattu member remove a4"), "{why}");
    });
}

#[test]
fn one_of_the_first_members_does_not_begin_again_whichever_others_are_there() {
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        let leader = cluster.leader().await;
        let (lost, other) = ((leader + 1) % 3, (leader + 2) % 3);
        put_until_done(&cluster.engine(leader), "a", "before").await;
        let id = cluster.engine(lost).member_id();
        until(&cluster.engine(other), |list| {
            list.iter().any(|member| member.id == id && member.is_published())
        })
        .await;
        cluster.stop(lost);
        cluster.wipe(lost);
        let why = cluster.try_restart(lost).expect_err("two of three know it");
        assert!(why.contains(&format!("kattu member remove {:x}", id.0)), "{why}");
        cluster.kill(leader);
        let why = cluster.try_restart(lost).expect_err("one that has no leader knows it too");
        assert!(why.contains(&format!("kattu member remove {:x}", id.0)), "{why}");
        cluster.restart(leader);
        assert_eq!(read(&cluster.engine(other), "a").await.as_deref(), Some("before"));
    });
}

#[test]
fn a_disk_that_is_lost_is_refilled_under_another_id() {
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        let leader = cluster.leader().await;
        let lost = (leader + 1) % 3;
        put_until_done(&cluster.engine(leader), "a", "before").await;
        let id = cluster.engine(lost).member_id();
        cluster.kill(lost);
        change(&cluster.engine(leader), MemberChange::Remove(id)).await;
        let new = grow(&mut cluster, leader, 0xB1).await;
        assert_eq!(read(&cluster.engine(new), "a").await.as_deref(), Some("before"));
        let again = MemberChange::Add { id, peer_urls: vec!["http://127.0.0.1:1".into()], votes: false };
        let (refused, _) = judged(&cluster.engine(new), &again).await;
        assert_eq!(refused, Outcome::Refused(Refusal::Member(MemberRefusal::IdUsed)));
    });
}
