//! Older: a disk that shows what was written before.
//!
//! Knows nothing of: disks that lose entries and show none in their place; that is `damaged.rs`.

use kattu_peers::{World, config};
use kattu_raft::{Duration, HardState, LogBody, LogRecord, Lsn, NodeId};

/// A member drops entries of its own leadership for those of the next leader and acknowledges these. Then its disk
/// shows the former ones again, and its log ends no earlier than it did.
pub(super) fn older_entries_in_the_place_of_newer(seed: u64) {
    let (old, new) = (NodeId(1), NodeId(2));
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), seed);
    assert!(world.elect(old), "scene: nothing is in the way");
    world.partition(&[vec![old], vec![new, NodeId(3)]]);
    for number in 0..3 + seed % 5 {
        world.propose(old, format!("entry {number:03}").as_bytes()).expect("it leads");
    }
    world.settle();
    let before = world.peer(old).disk.durable.log.clone();
    assert!(world.elect(new), "scene: two of three are there");
    world.cut.clear();
    world.pass(Duration::from_millis(300));
    let held = world.raft(new).last_id();
    assert!(world.raft(old).last_id() == held, "scene: n1 follows n2");
    world.crash(old, usize::MAX);
    let disk = &mut world.peer(old).disk;
    disk.forget(0);
    let hard = LogBody::HardState(HardState { term: held.term, vote: None });
    for body in [hard].into_iter().chain(before.into_iter().map(LogBody::Entry)) {
        let lsn = Lsn(disk.last_lsn().0 + 1);
        disk.write(LogRecord { lsn, body });
    }
    disk.sync(usize::MAX);
    world.start(old);
    world.pass(Duration::from_millis(1000));
    let (here, there) = (world.raft(new).last_id(), world.raft(old).last_id());
    assert!(
        here == there,
        "who_has_lost_something_gets_it_again: n2's log ends at {here}, that of n1 at {there}, since its disk went back"
    );
}
