//! Late: a voter that was away while clients wrote, and clients that go on writing when it comes back.
//!
//! Knows nothing of: expected outcomes.

use crate::{World, config};
use kattu_raft::{Config, Duration, Instant, Limits, NodeId};
use std::collections::VecDeque;

/// The leader.
pub const LEADER: NodeId = NodeId(1);
/// The voter that was away.
const LATE: NodeId = NodeId(3);
/// How often clients write.
pub const STEP: Duration = Duration::from_millis(5);

const PAYLOAD: [u8; 100] = [7; 100];

impl World {
    /// Three members with little memory for entries; the third is not heard while clients write for `length`. While it
    /// comes back and does not gain, `share` percent of the clients' writes are admitted.
    pub fn without_the_third(share: u8, length: Duration, seed: u64) -> World {
        let limits = Limits {
            recent_bytes_max: 1000,
            recent_in_sync_bytes_max: 2000,
            client_share_min: share,
            snapshot_chunk_bytes_max: 100,
            batch_bytes_max: 64 << 10, // so that these clients' rate is not next to nothing
            ..Limits::default()
        };
        let configs = (1..=3).map(|id| Config { limits, ..config(id, 3, 0) });
        let mut world = World::started(configs.collect(), seed);
        assert!(world.elect(LEADER), "nothing is in the way");
        world.cut.extend([(LEADER, LATE), (LATE, LEADER)]);
        world.write_at_a_rate(length);
        world
    }

    /// The third member comes back far behind, and no entries are read for it.
    pub fn comes_back_unfed(&mut self) {
        self.peer(LEADER).held.fetch = true;
        self.cut.clear();
    }

    /// The third member comes back behind the log: it gets a snapshot, in pieces of 100 bytes, each read when the test
    /// calls for it.
    pub fn comes_back_behind_the_log(&mut self) {
        self.begin_snapshot(LEADER);
        self.end_snapshot(LEADER, 0);
        self.peer(LEADER).held.chunks = true;
        self.cut.clear();
    }

    /// Admits a write that has waited since `since`, or lets it go on waiting.
    pub fn let_in(&mut self, since: Instant) -> bool {
        let admits = self.act(LEADER, |raft, now, _| raft.admits(now, since));
        if admits {
            self.propose(LEADER, &PAYLOAD).expect("it leads, and there is room");
        }
        admits
    }

    /// Clients write once per step, whatever became of the writes before. Returns the longest wait of a write.
    pub fn write_at_a_rate(&mut self, length: Duration) -> Duration {
        let mut longest = Duration::ZERO;
        let mut waiting = VecDeque::new();
        for _ in 0..length.as_nanos() / STEP.as_nanos() {
            waiting.push_back(self.now);
            while let Some(&since) = waiting.front()
                && self.let_in(since)
            {
                longest = longest.max(self.now.since(since));
                waiting.pop_front();
            }
            self.pass(STEP);
        }
        longest
    }

    /// The longest permitted wait: a heartbeat interval and a tenth, and the step in which the write is tried again.
    pub fn wait_max(&mut self) -> Duration {
        let heartbeat = self.peer(LEADER).config.heartbeat_interval;
        heartbeat + heartbeat / 10 + STEP
    }
}
