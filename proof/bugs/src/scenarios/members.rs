//! Members that come and go: ids, snapshots of the member list, empty disks, and when a client is answered.
//!
//! Knows nothing of: how memberships overlap; the storms over bare peers check that.

use kattu_node::contract::{Event, MemberChange, MemberInfo, Members, PeerMessage, Request};
use kattu_node::newcomer::{self, admit};
use kattu_node::{Keeper, SnapshotLimits};
use kattu_raft::{Duration, EntryKind, LogIndex, Membership, Message, NodeId};
use kattu_replicas::{ET, Member, World, is_done, put, urls};

fn begin(size: u64, limits: SnapshotLimits, seed: u64) -> (World, u64) {
    let mut world = World::with_snapshots(size, limits);
    world.pass(Duration::from_millis(seed * 37 % 2000));
    let leader = world.elect();
    world.pass(ET);
    (world, leader)
}

fn add(id: u64, url: u64) -> Request {
    Request::Change(MemberChange::Add { id: NodeId(id), peer_urls: urls(url), votes: id.is_multiple_of(2) })
}

fn in_force(member: &Member) -> &Membership {
    member.node.raft().membership()
}

/// A member joins behind so much of a log that a snapshot of its own is due before it comes to the entry that names the group.
pub(super) fn a_snapshot_due_before_the_group_is_known(seed: u64) {
    const TURNS_MAX: usize = 100;
    let limits = SnapshotLimits { log_bytes_min: 500, log_bytes_max: 1 << 30, keep_bytes: 1 << 30 };
    let (mut world, leader) = begin(3, limits, seed);
    // More than the member gets with one append.
    let value = "v".repeat(100 << 10);
    for number in 0..60 {
        world.ask(leader, put(&format!("k{number}"), &value));
        world.deliver();
    }
    world.ask(leader, add(4, 4));
    world.pass(ET);
    world.join(4);
    for _ in 0..200 {
        world.now += Duration::from_millis(10);
        for id in 1..=4 {
            if world.member(id).node.deadline() <= world.now {
                world.give(id, Event::Tick);
            }
        }
        while let Some(message) = world.network.pop_front() {
            world.deliver_one(message);
            let is_due = |world: &World| world.member(4).node.deadline() <= world.now;
            let mut turns = 0;
            while is_due(&world) {
                assert!(
                    turns < TURNS_MAX,
                    "what_is_due_is_done: n4 turns {turns} times, and something is due"
                );
                world.give(4, Event::Tick);
                turns += 1;
            }
        }
    }
    assert!(in_force(world.member(4)).contains(NodeId(4)), "scene_is_played: n4 has not joined");
}

/// A member is removed; a new one is added with its id.
pub(super) fn an_id_that_was_somebodys(seed: u64) {
    let (mut world, leader) = begin(3, SnapshotLimits::default(), seed);
    let gone = 1 + (leader + seed % 2) % 3;
    let removal = world.ask(leader, Request::Change(MemberChange::Remove(NodeId(gone))));
    world.pass(ET);
    assert!(is_done(world.outcome(leader, removal)), "scene: {:?}", world.outcome(leader, removal));
    world.kill(gone);
    world.loses = Box::new(|_| true); // the state of the leader is enough
    world.ask(leader, add(gone, 9));
    let comes_back = in_force(world.member(leader)).contains(NodeId(gone));
    assert!(
        !comes_back,
        "ids_are_never_used_again: n{gone} was removed, and n{leader} makes it a member again"
    );
}

/// A snapshot is taken right after the entry that added a member.
pub(super) fn a_snapshot_right_after_a_change(seed: u64) {
    let (mut world, leader) = begin(1, SnapshotLimits::default(), seed);
    let new = 2 + seed % 5;
    let addition = world.ask(leader, add(new, new));
    assert!(is_done(world.outcome(leader, addition)), "scene: {:?}", world.outcome(leader, addition));
    let keeper = &world.member(leader).keeper;
    assert_eq!(keeper.applied(), keeper.members().at, "scene: something was applied after it");
    let list = Keeper::thaw(keeper.pin().chunks()).expect("good tables").members().list;
    assert!(
        list.iter().any(|member| member.id.0 == new),
        "a_snapshot_has_the_change_before_it: the one of {} has {} members, without n{new}",
        keeper.applied().0,
        list.len()
    );
}

/// A member that lost its disk asks to join as the one that it was.
pub(super) fn an_empty_disk(seed: u64) {
    let me = NodeId(2 + seed % 7);
    let others = (20..20 + seed % 3).map(|id| MemberInfo { id: NodeId(id), ..MemberInfo::default() });
    let was = match seed % 3 {
        0 => MemberInfo { id: me, ..MemberInfo::default() },
        1 => MemberInfo { id: me, learner: true, name: "here".into(), ..MemberInfo::default() },
        _ => MemberInfo { id: me, learner: true, ..MemberInfo::default() },
    };
    let members = Members { at: LogIndex(seed), list: others.chain([was]).collect(), removed: vec![] };
    let admitted = admit(&members, &[NodeId(1), me], |member| member.id == me);
    assert!(
        admitted.is_err(),
        "an_empty_disk_never_continues_a_life: n{} had a directory, and begins again as if it never had",
        me.0
    );
}

/// A learner becomes a voter and loses its disk; then it asks a member whose list has it as a learner that never
/// started.
pub(super) fn a_member_that_lags_is_asked(seed: u64) {
    let (mut world, leader) = begin(3, SnapshotLimits::default(), seed);
    let (lagging, new) = (1 + (leader + seed % 2) % 3, 4 + 2 * (seed % 3));
    let addition = world.ask(leader, add(new, new));
    world.pass(ET / 2);
    assert!(is_done(world.outcome(leader, addition)), "scene: {:?}", world.outcome(leader, addition));
    world.loses = Box::new(move |message| [message.from().0, message.to().0].contains(&lagging));
    world.join(new);
    world.pass(ET * 3);
    assert!(in_force(world.member(leader)).is_voter(NodeId(new)), "scene: it does not vote");
    world.kill(new);
    let question = world.ask(lagging, newcomer::question());
    world.pass(ET);
    let told = newcomer::confirmed(world.outcome(lagging, question).cloned());
    let id = told.map(|members| admit(&members, &[], |member| member.id.0 == new));
    assert!(
        !matches!(id, Ok(Ok(_))),
        "an_empty_disk_never_continues_a_life: n{new} has voted, and n{lagging}, which lags, lets it in without its disk"
    );
}

/// A learner keeps up, and the message that publishes it is lost on its way.
pub(super) fn a_learner_that_nobody_has_heard_of(seed: u64) {
    let (mut world, leader) = begin(3, SnapshotLimits::default(), seed);
    let new = 4 + 2 * (seed % 3);
    world.ask(leader, add(new, new));
    world.loses =
        Box::new(move |message| matches!(message, PeerMessage::Forward(lost) if lost.from.0 == new));
    world.join(new);
    world.pass(ET * 3);
    let member = world.member(leader);
    let list = member.keeper.members().list;
    let is_published = list.iter().any(|member| member.id.0 == new && member.is_published());
    assert!(
        !in_force(member).is_voter(NodeId(new)) || is_published,
        "who_votes_has_published_itself: n{new} votes, and the log does not say that it was ever started"
    );
}

/// The first step of a change is committed, the second reaches no other member.
pub(super) fn half_a_change(seed: u64) {
    let (mut world, leader) = begin(4, SnapshotLimits::default(), seed);
    let write = world.ask(leader, put("a", "before"));
    world.deliver();
    assert!(is_done(world.outcome(leader, write)));
    world.loses = Box::new(ends_a_change);
    let asked = 1 + (leader + seed % 3) % 4;
    let gone = 1 + (leader + (seed + 1) % 3) % 4;
    let removal = world.ask(asked, Request::Change(MemberChange::Remove(NodeId(gone))));
    world.pass(ET / 2);
    assert!(world.member(asked).node.raft().committed_membership().is_joint(), "scene: it did not begin");
    assert!(
        world.outcome(asked, removal).is_none(),
        "a_change_is_answered_when_it_is_complete: n{gone} may still vote, and its client was told that it is gone"
    );
}

fn ends_a_change(message: &PeerMessage) -> bool {
    let PeerMessage::Raft(envelope) = message else { return false };
    let Message::Append(append) = &envelope.message else { return false };
    append.entries.iter().any(|entry| {
        let configuration = || Membership::decode(entry.payload()?).ok();
        let ends = || configuration().is_some_and(|(membership, _)| !membership.is_joint());
        entry.head.kind == EntryKind::Config && ends()
    })
}
