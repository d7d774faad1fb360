//! How entries go to a peer: over a way that is slow, to one that has no room, to one that is a little late.
//!
//! Knows nothing of: what entries mean.

use crate::protocol::world;
use kattu_raft::{Duration, Limits, Message, NodeId};
use kattu_sim::service::{SlowLink, slow_link};
use world::{World, config};

const LEADER: NodeId = NodeId(1);
const FOLLOWER: NodeId = NodeId(2);

/// The first of two leads, under these limits.
fn two(limits: Limits, seed: u64) -> World {
    let mut configs: Vec<_> = (1..=2).map(|id| config(id, 2, 0)).collect();
    configs.iter_mut().for_each(|config| config.limits = limits);
    let mut world = World::started(configs, seed);
    assert!(world.elect(LEADER), "scene: nothing is in the way");
    world
}

/// Bytes of entries on their way.
fn entry_bytes(world: &World) -> usize {
    let appends = world.wire.iter().filter_map(|envelope| match &envelope.message {
        Message::Append(append) => Some(append),
        _ => None,
    });
    appends.flat_map(|append| &append.entries).map(kattu_raft::Entry::len).sum()
}

/// A follower far behind comes back over a link that only is slow.
pub(super) fn a_slow_link(seed: u64) {
    let rate = 10_000_000 + seed % 7 * 1_000_000;
    let situation = SlowLink { rate, behind: 48 << 20, reads: seed % 2 * 100, writes: 0, reset_every: 0 };
    let came = slow_link(seed, &situation).unwrap_or_else(|broken| panic!("scene: {broken}"));
    let ratio = came.link.ratio();
    assert!(
        0.85 <= ratio,
        "links_carry_what_is_new: {} bytes crossed, {} of them new: {ratio:.2}",
        came.link.sent,
        came.link.taken
    );
}

/// The first of many appends is lost, and the second one shows it.
pub(super) fn a_lost_append(seed: u64) {
    let (max, batch) = (2000, 200);
    let mut world =
        two(Limits { inflight_bytes_max: max, batch_bytes_max: batch, ..Limits::default() }, seed);
    for number in 0..100 + seed % 50 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.drain(LEADER);
    world.wire.pop_front();
    let second = world.wire.pop_front().expect("many appends are under way");
    world.deliver(second);
    world.drain(FOLLOWER);
    let answer = world.wire.pop_back().expect("a gap is told of");
    world.deliver(answer);
    world.drain(LEADER);
    let bytes = entry_bytes(&world);
    assert!(
        bytes <= max + batch,
        "what_is_under_way_is_bounded: {bytes} bytes of entries are on their way, {max} may be"
    );
}

/// A follower whose log has no room for what comes next.
pub(super) fn a_follower_without_room(seed: u64) {
    let mut world = two(Limits::default(), seed);
    world.act(FOLLOWER, |raft, _, _| raft.set_log_space(10));
    world.propose(LEADER, b"more than ten bytes").expect("it leads");
    let mut sent = 0;
    for _ in 0..20 {
        world.drain(LEADER);
        sent += usize::from(entry_bytes(&world) > 0);
        world.pass(Duration::from_millis(50));
    }
    world.drain(LEADER);
    let again = entry_bytes(&world) > 0;
    let held = world.raft(FOLLOWER).last_id();
    assert!(
        !again && sent <= 1 && world.raft(LEADER).peer_flows().all(|(_, flow)| flow.counts.again == 0),
        "nothing_is_sent_without_room: n2 holds {held} and has no room, and gets entries again and again"
    );
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

/// A follower that keeps up is a few entries late.
pub(super) fn a_follower_a_little_late(seed: u64) {
    let mut world = two(
        Limits { recent_bytes_max: 100, inflight_bytes_max: 100, batch_bytes_max: 100, ..Limits::default() },
        seed,
    );
    world.peer(FOLLOWER).held.disk = true;
    world.peer(LEADER).held.fetch = true;
    for number in 0..20 + seed % 20 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
        world.settle();
    }
    // Two of two must hold an entry, so nothing is committed meanwhile: what is handed out is kept for nobody else.
    world.peer(FOLLOWER).held.disk = false;
    world.settle();
    let reads = world.peer(LEADER).fetches.len();
    assert!(reads == 0, "who_keeps_up_is_fed_from_memory: n1 reads its log for n2, which follows it");
}
