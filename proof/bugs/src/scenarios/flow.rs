//! How entries go to a peer: over a slow link, to one without room, to one a little late; and what happens to the
//! clients of its leader meanwhile.
//!
//! Knows nothing of: what entries mean.

use kattu_peers::late::{LEADER, STEP};
use kattu_peers::{World, config};
use kattu_raft::{Duration, Limits, Message, NodeId};
use kattu_sim::service::{SlowLink, slow_link};

pub(super) const FOLLOWER: NodeId = NodeId(2);

/// Two members of which the first leads, under these limits.
pub(super) fn two(limits: Limits, seed: u64) -> World {
    let mut configs: Vec<_> = (1..=2).map(|id| config(id, 2, 0)).collect();
    configs.iter_mut().for_each(|config| config.limits = limits);
    let mut world = World::started(configs, seed);
    assert!(world.elect(LEADER), "scene: nothing is in the way");
    world
}

/// Bytes of entries on their way.
pub(super) fn entry_bytes(world: &World) -> usize {
    let appends = world.wire.iter().filter_map(|envelope| match &envelope.message {
        Message::Append(append) => Some(append),
        _ => None,
    });
    appends.flat_map(|append| &append.entries).map(kattu_raft::Entry::len).sum()
}

/// A follower far behind comes back over a slow link.
pub(super) fn a_slow_link(seed: u64) {
    let rate = 10_000_000 + seed % 7 * 1_000_000;
    let reads = seed % 2 * 100;
    comes_back(seed, SlowLink { reads, ..SlowLink::quiet(rate, 48 << 20) });
}

/// A follower far behind comes back over several connections on a slow link, on which entries come in any order.
pub(super) fn a_slow_link_of_several_connections(seed: u64) {
    let rate = 1_000_000 + seed % 7 * 100_000;
    comes_back(seed, SlowLink { has_streams: true, ..SlowLink::quiet(rate, 12 << 20) });
}

/// The same, and then small puts overtake large ones on other connections for a while.
pub(super) fn large_puts_beside_small_ones(seed: u64) {
    let rate = 10_000_000 + seed % 7 * 100_000;
    let lasts = 20_000_000_000;
    comes_back(
        seed,
        SlowLink { writes: 500, large: 8, has_streams: true, lasts, ..SlowLink::quiet(rate, 8 << 20) },
    );
}

/// A follower gets a snapshot over a link so slow that a chunk takes longer than an election timeout.
pub(super) fn a_slow_link_for_a_snapshot(seed: u64) {
    let rate = 600_000 + seed % 7 * 50_000;
    comes_back(seed, SlowLink { by_snapshot: true, ..SlowLink::quiet(rate, 8 << 20) });
}

/// The same, and its other links are reset every five seconds.
pub(super) fn a_snapshot_beside_resets(seed: u64) {
    let rate = 600_000 + seed % 7 * 10_000;
    let reset_every = 5_000_000_000;
    comes_back(seed, SlowLink { reset_every, by_snapshot: true, ..SlowLink::quiet(rate, 12 << 20) });
}

/// A follower gets a snapshot while clients write half of what its link carries.
pub(super) fn a_snapshot_under_writes(seed: u64) {
    let writes = 500 + seed % 50;
    let situation = SlowLink { writes, by_snapshot: true, ..SlowLink::quiet(1_000_000, 12 << 20) };
    let came = slow_link(seed, &situation).unwrap_or_else(|broken| panic!("scene: {broken}"));
    assert!(
        came.level.is_some(),
        "who_comes_back_is_level_some_time: it has had a snapshot, and still lacks more than a second's writes after \
         twelve times what its link takes for what it lacked"
    );
}

fn comes_back(seed: u64, situation: SlowLink) {
    let came = slow_link(seed, &situation).unwrap_or_else(|broken| panic!("scene: {broken}"));
    let ratio = came.link.ratio();
    assert!(
        0.85 <= ratio,
        "links_carry_what_is_new: {} bytes crossed, {} of them new: {ratio:.2}",
        came.link.sent,
        came.link.taken
    );
    assert!(came.took.is_some(), "scene: it comes back");
}

/// The first of many appends is lost, and the second one shows it; then a heartbeat and its answer overtake the rest.
pub(super) fn a_lost_append(seed: u64) {
    let (max, batch) = (2000, 200);
    let mut world =
        two(Limits { inflight_bytes_max: max, batch_bytes_max: batch, ..Limits::default() }, seed);
    for number in 0..200 + seed % 50 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.drain(LEADER);
    world.wire.pop_front();
    let second = world.wire.pop_front().expect("many appends are under way");
    world.deliver(second);
    answer(&mut world);
    world.now += Duration::from_millis(100);
    world.tick(LEADER);
    let is_heartbeat = |message: &Message| matches!(message, Message::Append(append) if !append.is_bulk());
    let at = world.wire.iter().position(|envelope| is_heartbeat(&envelope.message));
    let heartbeat = world.wire.remove(at.expect("heartbeats are due")).expect("it was just seen");
    world.deliver(heartbeat);
    answer(&mut world);
    let bytes = entry_bytes(&world);
    assert!(
        bytes <= max + batch,
        "what_is_under_way_is_bounded: {bytes} bytes of entries are on their way, {max} may be"
    );
}

/// The first of many appends is lost; its copy arrives, and the next copy is lost; no time passes.
pub(super) fn a_lost_copy(seed: u64) {
    let mut world = two(Limits { inflight_bytes_max: 2000, batch_bytes_max: 200, ..Limits::default() }, seed);
    for number in 0..200 + seed % 50 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.drain(LEADER);
    world.wire.pop_front();
    let under_way = world.wire.len();
    let mut appends = 0;
    while let Some(envelope) = world.wire.pop_front() {
        let is_append = matches!(&envelope.message, Message::Append(append) if !append.entries.is_empty());
        appends += usize::from(is_append);
        if is_append && appends == under_way + 2 {
            continue;
        }
        world.deliver(envelope);
        while world.attend(FOLLOWER) | world.attend(LEADER) {}
    }
    assert!(under_way + 2 <= appends, "scene: what was lost is sent again, and what follows it");
    world.settle();
    let (here, there) = (world.raft(LEADER).last_id(), world.raft(FOLLOWER).last_id());
    assert!(
        there == here,
        "what_left_the_way_counts_no_more: n2 has {there} of {here}, and waits for a heartbeat"
    );
}

/// The follower's newest answer overtakes everything.
fn answer(world: &mut World) {
    world.drain(FOLLOWER);
    let answer = world.wire.pop_back().expect("it answers");
    world.deliver(answer);
    world.drain(LEADER);
}

/// A follower whose log has no room for what comes next.
pub(super) fn a_follower_without_room(seed: u64) {
    let mut world = two(Limits::default(), seed);
    world.act(FOLLOWER, |raft, _, _| raft.set_log_space(seed % 10));
    world.propose(LEADER, b"more than ten bytes").expect("it leads");
    let mut sent = 0;
    for _ in 0..10 {
        world.drain(LEADER);
        sent += usize::from(entry_bytes(&world) > 0);
        for _ in 0..world.wire.len() {
            let envelope = world.wire.pop_front().expect("it was counted");
            world.deliver(envelope);
        }
        world.drain(FOLLOWER);
        for _ in 0..world.wire.len() {
            let envelope = world.wire.pop_front().expect("it was counted");
            world.deliver(envelope);
        }
    }
    assert!(sent <= 1, "nothing_is_sent_without_room: n2 has no room, and gets entries {sent} times");
}

/// Room comes back, and no time passes.
pub(super) fn room_that_comes_back(seed: u64) {
    let mut world = two(Limits::default(), seed);
    world.act(FOLLOWER, |raft, _, _| raft.set_log_space(seed % 10));
    world.propose(LEADER, b"more than ten bytes").expect("it leads");
    world.settle();
    world.act(FOLLOWER, |raft, _, _| raft.set_log_space(1 << 20));
    world.settle();
    let (here, there) = (world.raft(LEADER).last_id(), world.raft(FOLLOWER).last_id());
    assert!(here == there, "room_that_comes_back_is_told_of: n1's log ends at {here}, that of n2 at {there}");
}

/// A follower that keeps up is a few entries late, and two others commit meanwhile.
pub(super) fn a_follower_a_little_late(seed: u64) {
    let late = NodeId(3);
    let limits =
        Limits { recent_bytes_max: 100, inflight_bytes_max: 100, batch_bytes_max: 100, ..Limits::default() };
    let mut configs: Vec<_> = (1..=3).map(|id| config(id, 3, 0)).collect();
    configs.iter_mut().for_each(|config| config.limits = limits);
    let mut world = World::started(configs, seed);
    assert!(world.elect(LEADER), "scene: nothing is in the way");
    world.peer(late).held.disk = true;
    world.peer(LEADER).held.fetch = true;
    for number in 0..40 + seed % 20 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
        world.settle();
    }
    world.peer(late).held.disk = false;
    world.settle();
    let reads = world.peer(LEADER).fetches.len();
    assert!(reads == 0, "who_keeps_up_is_fed_from_memory: n1 reads its log for n3, which follows it");
}

/// The third of three is cut off, and clients write for two seconds and more.
fn without_the_third(seed: u64) -> World {
    let share = Limits::default().client_share_min;
    World::without_the_third(share, STEP * (400 + seed as u32 % 100), seed)
}

/// A voter comes back far behind, and nothing is read for it, while clients write at a rate.
pub(super) fn a_voter_that_does_not_gain(seed: u64) {
    let mut world = without_the_third(seed);
    world.comes_back_unfed();
    let longest = world.write_at_a_rate(Duration::from_millis(8000));
    assert!(
        STEP < longest,
        "clients_are_slowed_for_who_comes_back: n3 falls behind for eight seconds, and every write is let in at once"
    );
    assert!(
        longest <= world.wait_max(),
        "nobody_waits_long_for_who_comes_back: n3 falls behind for eight seconds, and a write waits for {longest:?}"
    );
}

/// A voter comes back behind the log and gets a snapshot, a chunk each second.
pub(super) fn a_voter_that_gets_a_snapshot(seed: u64) {
    let mut world = without_the_third(seed);
    world.comes_back_behind_the_log();
    for second in 0..12 {
        let longest = world.write_at_a_rate(Duration::from_millis(1000));
        assert!(
            longest.is_zero(),
            "nobody_is_slowed_while_a_snapshot_comes_in: a piece came in each second, and in second {second} a write waits for {longest:?}"
        );
        world.read_chunk(LEADER, false);
    }
}

/// A voter comes back over a link on which its first append takes two election timeouts; then it gains.
pub(super) fn a_voter_whose_first_append_takes_long(seed: u64) {
    let mut world = without_the_third(seed);
    world.comes_back_unfed();
    let first = world.write_at_a_rate(Duration::from_millis(2000 + seed % 7 * 100));
    world.peer(LEADER).held.fetch = false;
    let longest = first.max(world.write_at_a_rate(Duration::from_millis(1000)));
    assert!(
        longest.is_zero(),
        "who_comes_back_is_given_time: n3 is on its way back for two election timeouts, and a write waits for {longest:?}"
    );
}

/// A voter comes back far behind, and nothing is read for it; its leader may not slow any client.
pub(super) fn clients_that_are_never_slowed(seed: u64) {
    let mut world = World::without_the_third(100, STEP * (400 + seed as u32 % 100), seed);
    world.comes_back_unfed();
    let longest = world.write_at_a_rate(Duration::from_millis(6000));
    assert!(longest.is_zero(), "scene: a write waits for {longest:?}");
    assert!(
        world.journal.iter().any(|line| line.contains("sees 3 fall behind")),
        "who_falls_behind_is_named: n3 falls behind for six seconds, and nobody is told"
    );
}
