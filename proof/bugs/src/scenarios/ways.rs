//! Ways to a peer: links that end, room that is short, many read rounds at once.
//!
//! Knows nothing of: what entries mean, how clients are slowed.

use super::flow::{FOLLOWER, entry_bytes, two};
use kattu_peers::late::{LEADER, STEP};
use kattu_peers::{World, config};
use kattu_raft::{Duration, Limits, LinkEnd, Message, NodeId};

/// Many entries are under way to a follower, and the link on which its answers come ends.
pub(super) fn a_link_that_ends(seed: u64) {
    let mut world = two(Limits { batch_bytes_max: 200, ..Limits::default() }, seed);
    for number in 0..50 + seed % 50 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.drain(LEADER);
    let sent = entry_bytes(&world);
    world.act(LEADER, |raft, now, effects| raft.link_closed(now, FOLLOWER, LinkEnd::Otherwise, effects));
    world.drain(LEADER);
    let again = entry_bytes(&world) - sent;
    assert!(
        0 < sent && again == 0,
        "links_carry_what_is_new: {sent} bytes are on their way to n2, a link ends, and {again} follow that are among them"
    );
    world.settle();
    world.pass(Duration::from_millis(1000));
    let (here, there) = (world.raft(LEADER).last_id(), world.raft(FOLLOWER).last_id());
    assert!(here == there, "scene: n1's log ends at {here}, that of n2 at {there}");
}

/// A job reads a large append, and small ones follow it to the same follower.
pub(super) fn small_appends_behind_one_that_is_read(seed: u64) {
    let limits = Limits { batch_bytes_max: 200, read_apart_bytes_min: 100, ..Limits::default() };
    let mut world = two(limits, seed);
    world.peer(FOLLOWER).held.compute = true;
    world.propose(LEADER, &[b'x'; 150]).expect("it leads");
    world.settle();
    assert!(world.peer(FOLLOWER).computing.len() == 1, "scene: a job reads the large entry");
    for number in 0..3 + seed % 5 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
        world.settle();
    }
    world.peer(FOLLOWER).held.compute = false;
    world.settle();
    world.pass(Duration::from_millis(1000));
    let again = world.raft(LEADER).peer_flows().map(|(_, flow)| flow.counts.again).sum::<u64>();
    assert!(again == 0, "links_carry_what_is_new: nothing was lost, and {again} bytes were sent to n2 again");
    let (here, there) = (world.raft(LEADER).last_id(), world.raft(FOLLOWER).last_id());
    assert!(here == there, "scene: n1's log ends at {here}, that of n2 at {there}");
}

/// A follower with little room is fed from its leader's disk: the next entry does not fit; then room comes back.
pub(super) fn an_entry_larger_than_the_room(seed: u64) {
    let short = NodeId(2);
    let limits = Limits {
        recent_bytes_max: 30,
        recent_in_sync_bytes_max: 60,
        batch_bytes_max: 40,
        ..Limits::default()
    };
    let configs = (1..=3).map(|id| kattu_raft::Config { limits, ..config(id, 3, 0) });
    let mut world = World::started(configs.collect(), seed);
    assert!(world.elect(LEADER), "scene: nothing is in the way");
    world.cut.extend([(LEADER, short), (short, LEADER)]);
    for number in 0..6 + seed % 5 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.pass(Duration::from_millis(500));
    world.act(short, |raft, _, _| raft.set_log_space(40));
    let before = world.raft(short).last_id();
    world.cut.clear();
    let is_fed = |world: &World| before < world.raft(short).last_id();
    assert!(world.pass_until(Duration::from_millis(1000), is_fed), "scene: n2 has room for two");
    world.act(short, |raft, _, _| raft.set_log_space(1 << 20));
    world.settle();
    let (here, there) = (world.raft(LEADER).last_id(), world.raft(short).last_id());
    assert!(
        here == there,
        "room_that_comes_back_is_used: n1's log ends at {here}, that of n2 at {there}, and only a heartbeat tells n1 of it"
    );
}

/// A follower holds all that its leader wrote in an earlier term, and has no room for the newest entry.
pub(super) fn a_full_follower_that_holds_much(seed: u64) {
    let mut world = two(Limits::default(), seed);
    world.cut.insert((FOLLOWER, LEADER));
    for number in 0..3 + seed % 5 {
        world.propose(LEADER, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.settle();
    world.cut.clear();
    world.act(FOLLOWER, |raft, _, _| raft.set_log_space(seed % 8));
    world.pass(Duration::from_millis(5)); // less than a heartbeat
    assert!(world.raft(LEADER).last_id() == world.raft(FOLLOWER).last_id(), "scene: all of it was sent");
    world.crash(LEADER, usize::MAX);
    world.start(LEADER);
    assert!(world.elect(LEADER), "scene: nothing is in the way");
    let behind = world.raft(LEADER).peer_flows().next().map(|(_, flow)| flow.behind);
    assert!(
        behind == Some(1),
        "what_is_held_is_acknowledged: n2 lacks one entry, and n1 takes it for {behind:?} behind"
    );
}

/// Reads come one after the other, while the answers of a follower that is behind do not arrive.
pub(super) fn many_reads_beside_one_that_is_behind(seed: u64) {
    let behind = NodeId(3);
    let mut world = World::without_the_third(80, STEP * (400 + seed as u32 % 100), seed);
    world.comes_back_unfed();
    world.pass(Duration::from_millis(300));
    world.cut.insert((behind, LEADER));
    let mut asked = 0;
    for _ in 0..20 {
        world.read(LEADER);
        world.drain(LEADER);
        let rounds = world
            .wire
            .iter()
            .filter(|envelope| envelope.to == behind && matches!(envelope.message, Message::Append(_)));
        asked += rounds.count();
        world.settle();
    }
    assert!(world.peer(LEADER).reading.is_empty(), "scene: two of three answer every read");
    assert!(
        asked <= 1,
        "who_is_behind_has_one_round_to_answer: n3 has not answered the first, and is asked {asked} times"
    );
}
