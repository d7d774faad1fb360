//! Goal: a voter that comes back and does not gain gets a share of what clients would write, and no more than that share.
//! Method: three members, the third far behind and fed with nothing; clients that write at a rate, if they are let.

mod world;

use kattu_raft::{Config, Duration, EntryKind, Instant, Limits, NodeId};
use std::collections::VecDeque;
use world::{World, config};

const LEADER: NodeId = NodeId(1);
const LATE: NodeId = NodeId(3);
const STEP: Duration = Duration::from_millis(5);
const PAYLOAD: [u8; 100] = [7; 100];

fn cluster(share: u8) -> World {
    let limits = Limits {
        recent_bytes_max: 1000,
        recent_in_sync_bytes_max: 2000,
        client_share_min: share,
        snapshot_chunk_bytes_max: 100,
        ..Limits::default()
    };
    let configs = (1..=3).map(|id| Config { limits, ..config(id, 3, 0) });
    let mut world = World::started(configs.collect(), 1);
    assert!(world.elect(LEADER), "nothing is in the way");
    world
}

/// A client writes once a step, unless its last write still waits. How many writes were let in.
fn write_for(world: &mut World, length: Duration) -> u64 {
    let mut admitted = 0;
    let mut asked = None;
    for _ in 0..length.as_nanos() / STEP.as_nanos() {
        let since = *asked.get_or_insert(world.now);
        if let_in(world, since) {
            asked = None;
            admitted += 1;
        }
        world.pass(STEP);
    }
    admitted
}

/// A write that waits since then is let in, or goes on waiting.
fn let_in(world: &mut World, since: Instant) -> bool {
    let admits = world.act(LEADER, |raft, now, _| raft.admits(now, since));
    if admits {
        let taken =
            world.act(LEADER, |raft, now, effects| raft.propose(now, EntryKind::Command, &PAYLOAD, effects));
        taken.expect("it leads, and there is room");
    }
    admits
}

/// Clients write once a step, whatever became of the writes before. The longest wait.
fn write_at_a_rate(world: &mut World, length: Duration) -> Duration {
    let mut longest = Duration::ZERO;
    let mut waiting = VecDeque::new();
    for _ in 0..length.as_nanos() / STEP.as_nanos() {
        waiting.push_back(world.now);
        while let Some(&since) = waiting.front()
            && let_in(world, since)
        {
            longest = longest.max(world.now.since(since));
            waiting.pop_front();
        }
        world.pass(STEP);
    }
    longest
}

/// The third member falls behind and comes back; nothing is read for it.
fn comes_back(world: &mut World) {
    world.cut.extend([(LEADER, LATE), (LATE, LEADER)]);
    write_for(world, Duration::from_millis(2000));
    world.peer(LEADER).held.fetch = true;
    world.cut.clear();
}

#[test]
fn clients_are_slowed_by_a_stated_share_at_most_and_go_on_when_it_has_caught_up() {
    let mut world = cluster(80);
    comes_back(&mut world);
    let offered = 20_000 / 5;
    let admitted = write_for(&mut world, Duration::from_millis(20_000));
    assert!(admitted * 100 >= offered * 80, "{admitted} of {offered}: at least 80 of 100 are promised");
    assert!(admitted * 100 <= offered * 95, "{admitted} of {offered}: nobody was slowed");
    assert!(world.journal.iter().any(|line| line.contains("slows its clients for 3")), "and it is told");
    assert!(
        world.journal.iter().any(|line| line.contains("sees 3 fall behind")),
        "and that it does not help"
    );

    world.peer(LEADER).held.fetch = false;
    write_for(&mut world, Duration::from_millis(3000));
    assert!(!world.raft(LEADER).slows_clients(), "it has caught up");
    assert_eq!(write_for(&mut world, Duration::from_millis(1000)), 200);
}

#[test]
fn clients_are_never_slowed_where_that_is_switched_off_nor_for_who_is_not_heard() {
    let mut world = cluster(100);
    comes_back(&mut world);
    assert_eq!(write_for(&mut world, Duration::from_millis(5000)), 1000);

    let mut world = cluster(80);
    world.cut.extend([(LEADER, LATE), (LATE, LEADER)]);
    assert_eq!(write_for(&mut world, Duration::from_millis(5000)), 1000);
    assert!(!world.raft(LEADER).slows_clients());
}

#[test]
fn who_asks_at_a_rate_waits_no_longer_than_a_heartbeat_interval() {
    let mut world = cluster(80);
    comes_back(&mut world);
    let longest = write_at_a_rate(&mut world, Duration::from_millis(20_000));
    let heartbeat = world.peer(LEADER).config.heartbeat_interval;
    assert!(STEP * 3 <= longest, "nobody waited: {longest:?}");
    assert!(longest <= heartbeat + heartbeat / 10 + STEP, "a write waited for {longest:?}");
}

/// Entries that the third member lacks have left the log, and it comes back: it gets a snapshot, in pieces of 100 bytes.
fn comes_back_behind_the_log(world: &mut World) {
    world.cut.extend([(LEADER, LATE), (LATE, LEADER)]);
    write_for(world, Duration::from_millis(2000));
    world.begin_snapshot(LEADER);
    world.end_snapshot(LEADER, 0);
    world.peer(LEADER).held.chunks = true;
    world.cut.clear();
}

#[test]
fn clients_are_not_slowed_while_a_snapshot_comes_in_there_and_are_when_it_does_not() {
    let mut world = cluster(80);
    comes_back_behind_the_log(&mut world);
    let second = Duration::from_millis(1000);
    for _ in 0..20 {
        assert_eq!(write_for(&mut world, second), 200, "a piece comes in each second");
        assert!(!world.peer(LEADER).reading_chunks.is_empty(), "there is more of it");
        world.read_chunk(LEADER, false);
    }
    assert!(!world.journal.iter().any(|line| line.contains("slows its clients")));
    write_for(&mut world, second * 9);
    assert!(world.journal.iter().any(|line| line.contains("slows its clients for 3")), "nothing comes in");
}
