//! A leader that cannot answer: the requests that its followers repeat do not grow.
//!
//! Knows nothing of: what is read.

use kattu_peers::{World, config};
use kattu_raft::{Duration, Message, NodeId};

/// The second of three comes to lead, and the others' disks have no room for its first entry. The third sends read
/// after read.
pub(super) fn of_one_that_commits_nothing(seed: u64) {
    let (leader, follower) = (NodeId(2), NodeId(3));
    let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), seed);
    assert!(world.elect(NodeId(1)), "scene: nothing is in the way");
    for id in [NodeId(1), follower] {
        world.act(id, |raft, _, _| raft.set_log_space(0));
    }
    world.pass(Duration::from_millis(3000));
    assert!(world.elect(leader), "scene: nothing is in the way");
    let reads = 2 + seed % 10;
    for _ in 0..reads {
        world.read(follower);
        world.settle();
    }
    world.now += Duration::from_millis(100);
    world.tick(follower);
    let is_question = |message: &Message| matches!(message, Message::ReadIndex(_));
    let asked = world.wire.iter().filter(|envelope| is_question(&envelope.message)).count();
    assert!(
        asked == 1,
        "open_questions_are_bounded: {reads} reads wait, and n3 repeats {asked} questions with a heartbeat"
    );
}
