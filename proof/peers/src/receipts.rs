//! Receipts: what a leader reports as received is, or was, in the memory of a quorum. [fault-model WK2; replication-protocols W5,
//! H7]
//!
//! Knows nothing of: clients, what they are told.

use crate::Peer;
use kattu_raft::message::{Message, Run};
use kattu_raft::{EntryId, Envelope, LogIndex, NodeId, Term};
use std::collections::{BTreeMap, BTreeSet};

/// What members have named, and leaders have reported.
#[derive(Default)]
pub struct Receipts {
    /// The members that have named an entry while they held it.
    named: BTreeMap<EntryId, BTreeSet<NodeId>>,
    reported: BTreeSet<(Term, LogIndex)>,
}

impl Receipts {
    /// How many entries were reported.
    pub fn reported(&self) -> usize {
        self.reported.len()
    }

    /// Looks at a member after a step.
    ///
    /// # Panics
    /// If it names what it does not hold, or reports what no quorum has named.
    pub fn observe(
        &mut self,
        id: NodeId,
        peers: &BTreeMap<NodeId, Peer>,
        sent: &[Envelope],
        reports: &[Run],
        committed: LogIndex,
    ) {
        let Some(raft) = peers.get(&id).and_then(|peer| peer.raft.as_ref()) else { return };
        for envelope in sent {
            let Message::AppendReply(reply) = &envelope.message else { continue };
            let contiguous = Run { first: raft.committed().next(), last: reply.received };
            for run in reply.early.iter().chain([&contiguous]) {
                for index in (run.first.0..=run.last.0).map(LogIndex) {
                    let held = raft.received_at(index);
                    let entry = held.unwrap_or_else(|| {
                        panic!("{} names entry {}, which it does not hold [WK2]", id.0, index.0)
                    });
                    self.named.entry(entry).or_default().insert(id);
                }
            }
        }
        for index in reports.iter().flat_map(|run| run.first.0..=run.last.0).map(LogIndex) {
            let entry = raft.received_at(index).expect("a leader reports entries of its log");
            assert!(
                entry.term == raft.term(),
                "{} reports {entry}, of an older term than {:?} [WK2]",
                id.0,
                raft.term()
            );
            assert!(
                self.reported.insert((raft.term(), index)),
                "{} reports {entry} for the second time [WK2]",
                id.0
            );
            let nobody = BTreeSet::new();
            let named = self.named.get(&entry).unwrap_or(&nobody);
            let is_held = index <= committed
                || raft.membership().has_quorum(|member| member == id || named.contains(&member));
            assert!(is_held, "{} reports {entry}, which only {named:?} have named [WK2]", id.0);
        }
    }
}
