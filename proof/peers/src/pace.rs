//! Slow disks: a sync takes as long as its disk does, and covers the records written when it began.
//!
//! Knows nothing of: leaders' verdicts on slow disks.

use crate::World;
use kattu_raft::{Duration, Instant, NodeId};
use std::collections::BTreeMap;

/// The shortest time between two writes.
const WRITES_APART: Duration = Duration::from_millis(25);

impl World {
    /// Time passes, on disks that take as long as `took` returns, while a client writes to the leader: the next write
    /// when the one before is on the leader's disk. Commits are left out of the journal.
    pub fn write_for(&mut self, duration: Duration, took: impl Fn(&World, NodeId) -> Duration) {
        let end = self.now + duration;
        let mut syncing: BTreeMap<NodeId, (Instant, usize, Duration)> = BTreeMap::new();
        let mut write_at = self.now;
        let told = self.journal.len();
        self.ids().into_iter().for_each(|id| self.peer(id).held.disk = true);
        while self.now < end {
            self.settle();
            for id in self.ids() {
                let unsynced = self.peers[&id].disk.unsynced();
                if unsynced > 0 && !syncing.contains_key(&id) {
                    let time = took(self, id);
                    syncing.insert(id, (self.now + time, unsynced, time));
                }
            }
            let synced = syncing.values().map(|(at, ..)| *at).min().unwrap_or(end);
            // A member may write to its disk when it is ticked, so time advances no further than that.
            let ids = self.ids().into_iter();
            let ticked = ids.filter(|id| self.runs(*id)).map(|id| self.due(id)).min().unwrap_or(end);
            let next = if self.now < write_at { write_at } else { end };
            let next = next.min(synced).min(ticked).min(end).max(self.now);
            self.pass(next.since(self.now));
            for id in self.ids() {
                if let Some(&(_, records, time)) = syncing.get(&id).filter(|(at, ..)| *at <= self.now) {
                    syncing.remove(&id);
                    self.act(id, |raft, _, _| raft.disk_took(time));
                    self.sync(id, records);
                }
            }
            self.settle();
            if write_at <= self.now
                && let Some(leader) = self.leader()
                && self.raft(leader).persisted_index() == self.raft(leader).last_id().index
            {
                let _ = self.propose(leader, b"write"); // a transfer may be under way
                write_at = self.now + WRITES_APART;
            }
        }
        self.ids().into_iter().for_each(|id| self.peer(id).held.disk = false);
        self.settle();
        let news = self.journal.split_off(told);
        self.journal.extend(news.into_iter().filter(|line| !line.contains(": commits ")));
    }
}
