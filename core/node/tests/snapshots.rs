//! Snapshots in whole replicas: when they are taken, which members get them, and which reads are served meanwhile.

use kattu_kv::api as kv;
use kattu_node::command::encode_kv;
use kattu_node::contract::*;
use kattu_node::{Keeper, SnapshotLimits};
use kattu_raft::{Duration, EntryId, LogIndex, Lsn, NodeId};
use kattu_replicas::*;

/// No log is kept behind a snapshot.
const SMALL: SnapshotLimits = SnapshotLimits { log_bytes_min: 2_000, log_bytes_max: 0, keep_bytes: 0 };

fn write(world: &mut World, id: u64, keys: std::ops::Range<u32>, value: &str) {
    for key in keys {
        let ticket = world.ask(id, put(&format!("k{key}"), value));
        world.deliver();
        assert!(is_done(world.outcome(id, ticket)), "{:?}", world.outcome(id, ticket));
    }
}

fn read(world: &mut World, id: u64, key: &str, consistency: Consistency) -> Option<Option<String>> {
    let ticket = world.ask(id, get(key, consistency));
    world.deliver();
    world.outcome(id, ticket).map(|outcome| value_of(Some(outcome)))
}

fn status(world: &mut World, id: u64) -> Status {
    let ticket = world.ask(id, Request::Status);
    match world.outcome(id, ticket) {
        Some(Outcome::Done(Reply { body: ReplyBody::Status(status), .. })) => Status::clone(status),
        other => panic!("{other:?}"),
    }
}

/// A follower is cut off while the others write so much that their logs begin after its end.
fn left_behind(limits: SnapshotLimits) -> (World, u64, u64) {
    let mut world = World::with_snapshots(3, limits);
    let leader = world.elect();
    let follower = world.follower();
    write(&mut world, leader, 0..5, "old");
    world.pass(Duration::from_millis(300));
    world.loses = Box::new(move |m| m.to() == NodeId(follower) || m.from() == NodeId(follower));
    write(&mut world, leader, 0..200, "new");
    assert!(
        world.member(follower).node.raft().last_id().index < world.member(leader).node.raft().base().index
    );
    (world, leader, follower)
}

#[test]
fn the_log_stays_short_under_writes_and_a_restart_begins_with_the_snapshot() {
    let mut world = World::with_snapshots(3, SMALL);
    let leader = world.elect();
    let mut longest = 0;
    for round in 0..40 {
        write(&mut world, leader, 0..10, &format!("{round}"));
        let bytes: usize = entries(&world.member(leader).disk).iter().map(|entry| entry.len()).sum();
        longest = longest.max(bytes);
    }
    let status = status(&mut world, leader);
    assert!(longest < 4_500, "{longest} bytes of log, 400 writes");
    assert!(LogIndex(100) < status.first && status.first <= status.snapshot.next(), "{status:?}");

    for id in 1..=3 {
        world.kill(id);
        world.restart(id);
    }
    let applied = world.member(1).keeper.applied();
    assert!(LogIndex(100) < applied, "it starts from its snapshot");
    world.elect();
    for id in 1..=3 {
        assert_eq!(read(&mut world, id, "k3", Consistency::Linearizable), Some(Some("39".into())));
    }
    let digests: Vec<u64> = (1..=3).map(|id| world.member(id).keeper.digest()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]));
}

#[test]
fn members_take_their_first_snapshots_by_turns() {
    let limits = SnapshotLimits { log_bytes_min: 6_000, log_bytes_max: 0, keep_bytes: 0 };
    let mut world = World::with_snapshots(3, limits);
    let leader = world.elect();
    let mut firsts = [0; 3];
    for round in 0..100 {
        write(&mut world, leader, 0..10, &format!("{round}"));
        for id in 1..=3 {
            let first = &mut firsts[id as usize - 1];
            if *first == 0 {
                *first = status(&mut world, id).snapshot.0;
            }
        }
    }
    // Looked at after every ten writes.
    let third = firsts[0] / 3;
    assert!(60 < third, "a third of 6,000 bytes: {firsts:?}");
    assert!(firsts[1].abs_diff(2 * third) <= 20 && firsts[2].abs_diff(third) <= 20, "{firsts:?}");
}

#[test]
fn what_is_kept_behind_a_snapshot_feeds_a_peer_that_is_a_little_behind() {
    let mut world = World::with_snapshots(
        3,
        SnapshotLimits { log_bytes_min: 2_000, log_bytes_max: 0, keep_bytes: 1 << 20 },
    );
    let leader = world.elect();
    let follower = world.follower();
    world.loses = Box::new(move |m| m.to() == NodeId(follower));
    write(&mut world, leader, 0..200, "new");
    assert!(status(&mut world, leader).snapshot > LogIndex(0));
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));
    world.elect();
    assert_eq!(read(&mut world, follower, "k199", Consistency::Linearizable), Some(Some("new".into())));
    let applied = world.member(follower).applied.iter().map(|id| id.index.0);
    assert!(applied.eq(1..=world.member(follower).keeper.applied().0), "entry by entry, no snapshot came");
}

#[test]
fn a_member_that_the_log_has_left_behind_is_fed_by_snapshot_and_takes_part_again() {
    let (mut world, _, follower) = left_behind(SMALL);
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));
    let leader = world.elect();
    assert_eq!(read(&mut world, follower, "k199", Consistency::Linearizable), Some(Some("new".into())));
    let skipped = world.member(follower).applied.windows(2).any(|two| two[0].index.next() < two[1].index);
    let first_of_all = world.member(follower).applied.first().map(|id| id.index);
    assert!(skipped || first_of_all != Some(LogIndex(1)), "a snapshot was installed");
    write(&mut world, follower, 300..310, "after");
    world.pass(Duration::from_millis(300));
    assert_eq!(world.member(follower).keeper.digest(), world.member(leader).keeper.digest());
    world.kill(follower);
    world.restart(follower);
    world.pass(Duration::from_millis(1_500));
    assert_eq!(read(&mut world, follower, "k305", Consistency::Linearizable), Some(Some("after".into())));
}

#[test]
fn while_a_snapshot_is_read_the_old_state_is_served_to_those_whom_it_is_good_enough_for() {
    let (mut world, leader, follower) = left_behind(SMALL);
    world.reads_late = true;
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));
    assert!(world.member(follower).wanted.is_some(), "a snapshot is to be read");
    let before = world.member(follower).keeper.applied();

    assert_eq!(read(&mut world, follower, "k3", Consistency::Serializable), Some(Some("old".into())));
    assert_eq!(read(&mut world, follower, "k3", Consistency::AtLeast(before)), Some(Some("old".into())));
    let waits = world.ask(follower, get("k3", Consistency::Linearizable));
    let too = world.ask(follower, get("k3", Consistency::AtLeast(before.next())));
    let writes = world.ask(follower, put("k3", "newest"));
    world.deliver();
    world.pass(Duration::from_millis(200));
    for ticket in [waits, too, writes] {
        assert_eq!(world.outcome(follower, ticket), None, "never from the old state");
    }
    assert_eq!(status(&mut world, follower).applied, before, "state and index move together");
    assert_eq!(read(&mut world, leader, "k3", Consistency::Linearizable), Some(Some("newest".into())));

    world.bring(follower);
    assert_eq!(value_of(world.outcome(follower, waits)), Some("new".into()));
    assert_eq!(value_of(world.outcome(follower, too)), Some("new".into()));
    assert!(is_done(world.outcome(follower, writes)), "{:?}", world.outcome(follower, writes));
    assert_eq!(read(&mut world, follower, "k3", Consistency::Serializable), Some(Some("newest".into())));
}

#[test]
fn two_snapshots_in_a_row_and_a_backup_taken_before_either_is_read_are_each_one_state() {
    let (mut world, _, follower) = left_behind(SMALL);
    world.reads_late = true;
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));
    assert!(world.member(follower).wanted.is_some(), "a snapshot is to be read");
    let backup = world.ask(follower, Request::Pin(Consistency::Serializable));
    let (applied, digest) = (world.member(follower).keeper.applied(), world.member(follower).keeper.digest());

    let leader = world.elect();
    let end = world.member(follower).node.raft().last_id().index;
    world.loses = Box::new(move |m| m.to() == NodeId(follower) || m.from() == NodeId(follower));
    write(&mut world, leader, 0..200, "newer");
    assert!(end < world.member(leader).node.raft().base().index);
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));
    let mut brought = 0;
    while world.member(follower).wanted.is_some() {
        world.bring(follower);
        brought += 1;
    }
    assert_eq!(brought, 2, "the second one was complete before the first was read");
    world.pass(Duration::from_secs(1));
    assert_eq!(read(&mut world, follower, "k199", Consistency::Linearizable), Some(Some("newer".into())));
    let leader = world.elect();
    assert_eq!(world.member(follower).keeper.digest(), world.member(leader).keeper.digest());
    let Some(Outcome::Done(Reply { body: ReplyBody::Pinned(frozen), .. })) = world.outcome(follower, backup)
    else {
        panic!("{:?}", world.outcome(follower, backup));
    };
    let restored = kattu_node::Keeper::thaw(frozen.clone().chunks()).expect("its bytes are whole");
    assert_eq!((restored.applied(), restored.digest()), (applied, digest), "as it was when it was asked for");
}

fn revision(world: &mut World, id: u64) -> kv::Revision {
    let ticket = world.ask(id, get("k0", Consistency::Linearizable));
    world.deliver();
    match world.outcome(id, ticket) {
        Some(Outcome::Done(Reply { body: ReplyBody::Kv(response), .. })) => response.revision,
        other => panic!("{other:?}"),
    }
}

fn compact(world: &mut World, id: u64, revision: kv::Revision) {
    let ticket = world.ask(id, Request::Write(encode_kv(&kv::Command::Compact(revision)).into()));
    world.deliver();
    assert!(is_done(world.outcome(id, ticket)), "{:?}", world.outcome(id, ticket));
}

fn keeper(world: &mut World, id: u64) -> &mut Keeper {
    &mut world.members.get_mut(&NodeId(id)).expect("a member").keeper
}

/// ST10: when the snapshot arrives, the follower has freed a part of the versions of one compaction; when it was taken,
/// the leader had freed a part of those of a later one.
#[test]
fn a_snapshot_taken_in_the_middle_of_a_compaction_is_installed_in_the_middle_of_another() {
    let mut world =
        World::with_snapshots(3, SnapshotLimits { log_bytes_min: 300_000, log_bytes_max: 0, keep_bytes: 0 });
    let leader = world.elect();
    let follower = world.follower();
    write(&mut world, leader, 0..50, "old");
    for round in 0..60 {
        write(&mut world, leader, 0..50, &format!("{round}"));
    }
    let first = revision(&mut world, leader);
    compact(&mut world, leader, first);
    world.pass(Duration::from_millis(300));
    assert!(keeper(&mut world, follower).tidy(), "one step of freeing, and more to come");

    world.loses = Box::new(move |m| m.to() == NodeId(follower) || m.from() == NodeId(follower));
    while keeper(&mut world, leader).tidy() {}
    for round in 0..80 {
        write(&mut world, leader, 0..50, &format!("after {round}"));
    }
    let second = revision(&mut world, leader);
    compact(&mut world, leader, second);
    let compacted_at = world.member(leader).keeper.applied();
    assert!(keeper(&mut world, leader).tidy(), "one step, and more to come: nobody frees until the end");
    let end = world.member(follower).node.raft().last_id().index;
    let newest = |world: &World| world.member(leader).snapshots.last().map(|(meta, _)| meta.last.index);
    while newest(&world) < Some(compacted_at) || world.member(leader).node.raft().base().index <= end {
        write(&mut world, leader, 900..901, &"much at once".repeat(8_000));
    }
    assert!(keeper(&mut world, leader).tidy(), "still in the middle of it");
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));

    let leader = world.elect();
    let now = revision(&mut world, follower);
    assert_eq!(revision(&mut world, leader), now);
    let is_here = compacted_at < keeper(&mut world, follower).applied();
    let was_applied = world.member(follower).applied.iter().any(|id| id.index == compacted_at);
    assert!(is_here && !was_applied, "the second compaction came with a snapshot");
    let what_all_say = |world: &mut World, asked: kv::Revision| {
        let ask = |world: &mut World, id: u64| {
            let keys = kv::KeyRange { start: "k7".into(), end: vec![] };
            let range = kv::Range { keys, revision: asked, ..kv::Range::default() };
            let ticket = world.ask(id, Request::Read(kv::Query::Range(range), Consistency::Linearizable));
            world.deliver();
            match world.outcome(id, ticket) {
                Some(Outcome::Done(Reply { body, .. })) => format!("{body:?}"),
                other => format!("{other:?}"),
            }
        };
        let said: Vec<String> = (1..=3).map(|id| ask(world, id)).collect();
        assert!(said.iter().all(|one| *one == said[0]), "as of revision {asked}: {said:?}");
        said[0].clone()
    };
    for tidied in [false, true] {
        let forgotten = what_all_say(&mut world, kv::Revision(second.0 - 1));
        assert!(forgotten.contains("Compacted"), "before what was compacted: {forgotten}");
        for asked in [second, second.next(), now, kv::Revision::NONE] {
            let answer = what_all_say(&mut world, asked);
            assert!(answer.contains("kvs: [KeyValue"), "{answer}");
        }
        let digests: Vec<u64> = (1..=3).map(|id| keeper(&mut world, id).digest()).collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:x?}, all freed: {tidied}");
        for id in 1..=3 {
            while keeper(&mut world, id).tidy() {}
        }
    }
}

#[test]
fn a_write_whose_entry_is_overtaken_by_a_snapshot_is_in_doubt() {
    let mut world = World::with_snapshots(3, SMALL);
    let leader = world.elect();
    let follower = world.follower();
    // The verdict with its place in the log arrives, the entry itself is lost.
    world.loses = Box::new(move |m| match m {
        PeerMessage::Raft(_) => m.to() == NodeId(follower),
        _ => false,
    });
    let ticket = world.ask(follower, put("a", "1"));
    world.deliver();
    write(&mut world, leader, 0..200, "new");
    assert_eq!(world.outcome(follower, ticket), None);
    world.loses = Box::new(|_| false);
    // It may learn of a new term first; the write keeps waiting until the snapshot overtakes it.
    world.pass(Duration::from_secs(3));
    assert_eq!(world.outcome(follower, ticket), Some(&Outcome::Unknown(Doubt::LeaderChanged)));
    assert_eq!(read(&mut world, follower, "a", Consistency::Linearizable), Some(Some("1".into())));
}

#[test]
fn a_snapshot_that_fails_is_tried_again_when_the_log_has_grown() {
    let mut world = World::with_snapshots(1, SMALL);
    let leader = world.elect();
    world.full = true;
    let mut grown = Vec::new();
    for key in 0..100 {
        let before = world.tried;
        write(&mut world, leader, key..key + 1, "some value of some length");
        if before < world.tried {
            grown.push(key);
        }
    }
    assert!((5..=40).contains(&grown.len()), "again and again, but not with every write: {grown:?}");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.tried, grown.len(), "time alone is no reason");
    world.full = false;
    write(&mut world, leader, 0..40, "more");
    assert!(status(&mut world, leader).snapshot > LogIndex(0));
}

/// Three members that have written 200 keys and taken snapshots; the leader, and a follower that has ended.
fn with_a_follower_down() -> (World, u64, u64) {
    let mut world = World::with_snapshots(3, SMALL);
    let leader = world.elect();
    let follower = world.follower();
    write(&mut world, leader, 0..200, "new");
    world.pass(Duration::from_millis(300));
    world.kill(follower);
    (world, leader, follower)
}

#[test]
fn a_snapshot_that_fails_is_tried_again_for_a_peer_that_waits_though_nobody_writes() {
    let (mut world, leader, follower) = with_a_follower_down();
    for id in [leader, follower] {
        world.members.get_mut(&NodeId(id)).unwrap().snapshots.clear();
    }
    (world.full, world.tried) = (true, 0);
    world.restart(follower);
    world.pass(Duration::from_secs(10));
    assert!((2..=12).contains(&world.tried), "once an election timeout at most, not {}", world.tried);
    world.full = false;
    world.pass(Duration::from_secs(3));
    assert_eq!(read(&mut world, follower, "k3", Consistency::Linearizable), Some(Some("new".into())));
}

#[test]
fn a_lone_member_keeps_the_log_back_to_the_snapshot_before() {
    let mut world = World::with_snapshots(1, SMALL);
    let leader = world.elect();
    (0..80).for_each(|_| write(&mut world, leader, 0..10, "value"));
    let [.., (before, _), (newest, _)] = &world.member(leader).snapshots[..] else { panic!("two are taken") };
    let (before, newest) = (before.last, newest.last);
    assert_eq!(world.member(leader).node.raft().base(), before);
    assert!(before.index < newest.index);
    world.kill(1);
    world.members.get_mut(&NodeId(1)).unwrap().snapshots.pop();
    world.restart(1);
    world.elect();
    assert_eq!(read(&mut world, 1, "k9", Consistency::Linearizable), Some(Some("value".into())));
}

#[test]
fn a_member_whose_snapshots_are_all_lost_serves_nothing_until_its_leader_has_sent_one() {
    let (mut world, _, follower) = with_a_follower_down();
    let member = world.members.get_mut(&NodeId(follower)).unwrap();
    assert!(!member.snapshots.is_empty());
    member.snapshots.clear();
    world.loses = Box::new(move |m| m.to() == NodeId(follower));
    world.restart(follower);
    let ticket = world.ask(follower, get("k3", Consistency::Serializable));
    world.pass(Duration::from_secs(6));
    assert_eq!(world.outcome(follower, ticket), None, "it has no state");
    world.loses = Box::new(|_| false);
    world.pass(Duration::from_secs(3));
    assert_eq!(read(&mut world, follower, "k3", Consistency::Linearizable), Some(Some("new".into())));
    assert_eq!(world.member(follower).keeper.digest(), world.member(world.leader().unwrap()).keeper.digest());
}

/// A member with an empty disk waits for a snapshot, and the leader's newest one, which covers the whole log, turns out
/// damaged. Returns the leader, the end of its log, and the number of snapshots tried before.
fn waiting_for_a_damaged_snapshot(ruins: bool) -> (World, u64, EntryId, usize) {
    let mut world = World::with_snapshots(3, SMALL);
    world.kill(3);
    let leader = world.elect();
    write(&mut world, leader, 0..200, "new");
    let covered = |world: &World| world.member(leader).node.raft().snapshot().map(|newest| newest.last);
    let last = |world: &World| world.member(leader).node.raft().last_id();
    while covered(&world) != Some(last(&world)) {
        write(&mut world, leader, 0..1, "more");
    }
    world.pass(Duration::from_millis(300));
    let (end, tried) = (last(&world), world.tried);
    assert_eq!(covered(&world), Some(end));
    world.members.get_mut(&NodeId(leader)).unwrap().snapshots.clear();
    world.ruins = ruins;
    world.restart(3);
    world.pass(Duration::from_secs(3));
    (world, leader, end, tried)
}

#[test]
fn a_damaged_newest_snapshot_is_taken_anew_for_a_follower_that_waits_without_any_write() {
    let (mut world, leader, end, tried) = waiting_for_a_damaged_snapshot(false);
    let taken: Vec<EntryId> = world.member(leader).snapshots.iter().map(|(meta, _)| meta.last).collect();
    assert_eq!((taken, world.tried), (vec![end], tried + 1), "the same one, once");
    assert_eq!(read(&mut world, 3, "k199", Consistency::Linearizable), Some(Some("new".into())));
    write(&mut world, 3, 300..310, "after");
    assert_eq!(read(&mut world, 3, "k305", Consistency::Linearizable), Some(Some("after".into())));
}

#[test]
fn a_disk_that_ruins_every_snapshot_is_not_asked_for_the_same_one_again_and_again() {
    let (mut world, leader, end, tried) = waiting_for_a_damaged_snapshot(true);
    assert_eq!(world.tried, tried + 1);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.member(leader).node.raft().last_id(), end, "nobody writes");
    assert_eq!(world.tried, tried + 1, "time alone is no reason");
    world.ruins = false;
    write(&mut world, leader, 0..1, "grown");
    world.pass(Duration::from_secs(3));
    assert_eq!(read(&mut world, 3, "k0", Consistency::Linearizable), Some(Some("grown".into())));
}

#[test]
fn a_new_member_serves_nothing_until_a_leader_has_spoken() {
    let mut world = World::new(3);
    world.loses = Box::new(|_| true);
    let ticket = world.ask(1, get("a", Consistency::Serializable));
    world.pass(Duration::from_secs(6));
    assert_eq!(world.outcome(1, ticket), None, "an empty store is no answer");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.outcome(1, ticket), Some(&Outcome::Refused(Refusal::Replaying)));
    assert!(world.member(1).disk.last().is_none_or(|record| Lsn(0) < record.lsn));
}
