//! Goal: while a voter that came back does not gain, clients are slowed, but to no less than the configured share of
//! their writes.
//! Method: three members; the third is far behind and gets no entries; clients write at a rate, as far as they are
//! admitted.

use kattu_peers::World;
use kattu_peers::late::{LEADER, STEP};
use kattu_raft::{Duration, LogIndex};

/// How long the third member is away before it comes back.
const AWAY: Duration = Duration::from_millis(2000);

/// A client writes once per step, unless its last write still waits. Returns how many writes were admitted.
fn write_for(world: &mut World, length: Duration) -> u64 {
    let mut admitted = 0;
    let mut asked = None;
    for _ in 0..length.as_nanos() / STEP.as_nanos() {
        let since = *asked.get_or_insert(world.now);
        if world.let_in(since) {
            asked = None;
            admitted += 1;
        }
        world.pass(STEP);
    }
    admitted
}

/// The third member has come back far behind; no entries are read for it.
fn back_unfed(share: u8) -> World {
    let mut world = World::without_the_third(share, AWAY, 1);
    world.comes_back_unfed();
    world
}

#[test]
fn clients_are_slowed_by_a_stated_share_at_most_and_go_on_when_it_has_caught_up() {
    let mut world = back_unfed(80);
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
fn a_voter_that_does_not_gain_is_watched_for_four_election_timeouts_before_clients_wait_for_it() {
    let mut world = back_unfed(50);
    let (back, timing) = (world.now, world.raft(LEADER).timing());
    while !world.raft(LEADER).slows_clients() {
        write_for(&mut world, STEP);
        assert!(world.now < back + timing.election_timeout * 10, "it does not gain");
    }
    let watched = world.now.since(back);
    assert!(timing.election_timeout * 4 <= watched, "{watched:?}");
}

#[test]
fn clients_are_never_slowed_where_that_is_off_nor_for_a_silent_follower() {
    let mut world = back_unfed(100);
    assert_eq!(write_for(&mut world, Duration::from_millis(5000)), 1000);
    assert!(!world.journal.iter().any(|line| line.contains("slows its clients")));
    assert!(
        world.journal.iter().any(|line| line.contains("sees 3 fall behind")),
        "but it is told all the same"
    );

    let mut world = World::without_the_third(80, AWAY, 1);
    assert_eq!(write_for(&mut world, Duration::from_millis(5000)), 1000);
    assert!(!world.raft(LEADER).slows_clients());
    assert!(!world.journal.iter().any(|line| line.contains("sees 3 fall behind")));
}

/// Goal: a client that begins to write while a voter does not gain is not held to a share of the zero bytes written
/// before.
#[test]
fn a_load_that_begins_while_a_voter_does_not_gain_has_its_share() {
    let mut world = back_unfed(80);
    for _ in 0..40 {
        assert!(world.let_in(world.now), "one write in half a second is not slowed");
        world.pass(Duration::from_millis(500));
    }
    assert!(!world.journal.iter().any(|line| line.contains("slows its clients")), "it would help nobody");
    assert!(world.journal.iter().any(|line| line.contains("sees 3 fall behind")), "but it is told");
    let admitted = write_for(&mut world, Duration::from_millis(8000));
    assert!(admitted * 100 >= 1600 * 80, "{admitted} of 1600: at least 80 of 100 are promised");
}

#[test]
fn a_client_at_a_rate_waits_a_heartbeat_interval_and_a_tenth_at_most() {
    let mut world = back_unfed(80);
    let longest = world.write_at_a_rate(Duration::from_millis(20_000));
    assert!(STEP * 3 <= longest, "nobody waited: {longest:?}");
    assert!(longest <= world.wait_max(), "a write waited for {longest:?}");
}

#[test]
fn clients_are_not_slowed_while_a_snapshot_comes_in_there_and_are_when_it_does_not() {
    let mut world = World::without_the_third(80, AWAY, 1);
    world.comes_back_behind_the_log();
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

/// Goal: a leader keeps the log for a member that it feeds, and for no other. Entries in flight may lie on both sides
/// of the log's next start, and if they are lost the member needs the ones before it.
#[test]
fn a_member_is_fed_while_it_lacks_what_would_leave_the_log_and_not_all_is_sent() {
    let mut world = World::without_the_third(80, AWAY, 1);
    let third = |world: &mut World, from: u64, below: u64| {
        let now = world.now;
        world.raft(LEADER).feeds_between(now, LogIndex(from), LogIndex(below))
    };
    let last = world.raft(LEADER).last_id().index.0;
    assert!(!third(&mut world, 0, last), "it is not heard");
    world.comes_back_unfed();
    world.pass(Duration::from_millis(500));
    assert!(third(&mut world, 0, last), "it lacks nearly all, and nothing was read for it");
    assert!(!third(&mut world, last, last + 1), "it is behind all of that");
    world.peer(LEADER).held.fetch = false;
    write_for(&mut world, Duration::from_millis(3000));
    let last = world.raft(LEADER).last_id().index.0;
    assert!(!third(&mut world, 0, last), "it keeps up");
}
