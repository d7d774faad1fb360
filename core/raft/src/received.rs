//! Received: which entries of its own term a leader reports as received by a quorum.
//!
//! ```text
//!   proposed ──▶ received by a quorum ──▶ durable on a quorum: committed
//!                   │
//!                   └─▶ a client that asked for it may go on: a weak answer, which promises less
//! ```
//!
//! In:    what voters report to hold: durably, in the log, in the window.
//! Out:   runs of entries, each reported once.
//! Rules: [replication-protocols W5, W6; fault-model WK2, WK9]
//!   1. Only entries of this leader's term are reported: of earlier ones a later leader may overwrite a majority. [H7]
//!   2. A voter holds what it has named in an answer: everything up to one index, and single runs after it, for which no
//!      prefix rule applies. The leader holds all that it has proposed.
//!   3. A quorum is one of the configuration in force, of both sets in a joint one.
//!   4. What a peer has named counts until its link ends: its process may have ended, and with it what was not durable.
//!   5. Nothing else reads any of this: no vote, no acknowledgement, no commit, no read.
//!
//! Knows nothing of: clients, their budget, which entries may be answered weakly.

use crate::contract::Effects;
use crate::leading::Leading;
use crate::message::Run;
use crate::policy::Weak;
use crate::progress::Progress;
use crate::raft::Raft;
use crate::types::{EntryId, LogIndex, NodeId};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What a leader has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reported {
    /// Everything of its term up to here.
    upto: LogIndex,
    /// Single entries after that.
    beyond: BTreeSet<LogIndex>,
}

/// What a peer has named as received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Holds {
    /// Everything up to here.
    pub(crate) upto: LogIndex,
    /// And these.
    pub(crate) runs: Vec<Run>,
}

impl Holds {
    fn has(&self, index: LogIndex) -> bool {
        index <= self.upto || self.runs.iter().any(|run| run.first <= index && index <= run.last)
    }

    /// What the peer names now after an index and did not before, ascending.
    fn news(&self, before: &Holds, after: LogIndex) -> impl Iterator<Item = LogIndex> {
        let after = after.max(before.upto);
        let contiguous = Run { first: after.next(), last: self.upto };
        let all = core::iter::once(contiguous).chain(self.runs.iter().copied());
        let indexes = all.flat_map(move |run| run.first.max(after.next()).0..=run.last.0).map(LogIndex);
        indexes.filter(|&index| !before.has(index))
    }
}

impl Raft {
    /// The entry at this index that this peer holds, in its log or in its window: for checkers.
    #[must_use]
    pub fn received_at(&self, index: LogIndex) -> Option<EntryId> {
        let early = || self.role.following()?.window.id_at(index);
        let term = self.log.term_at(index).filter(|_| index <= self.log.last().index);
        term.map(|term| EntryId { term, index }).or_else(early)
    }
}

impl Leading<'_> {
    /// A peer has named what it holds, durably up to `upto`. [Rules 2, 4]
    pub(crate) fn note_holds(&mut self, from: NodeId, mut holds: Holds, effects: &mut Effects) {
        if self.view.config.policies.weak == Weak::Off {
            return;
        }
        let Some(progress) = self.leader.peers.get_mut(&from) else { return };
        holds.upto = holds.upto.max(progress.matched);
        let before = core::mem::replace(&mut progress.holds, holds.clone());
        let upto = self.report_received(effects);
        for index in holds.news(&before, upto) {
            self.report_single(index, effects);
        }
    }

    /// Reports everything up to an index that a quorum has received. Returns that index.
    pub(crate) fn report_received(&mut self, effects: &mut Effects) -> LogIndex {
        let reported = self.leader.reported.upto.max(self.leader.term_start).max(self.view.marks.committed);
        if self.view.config.policies.weak == Weak::Off {
            return reported;
        }
        let of_peer = |progress: &Progress| progress.holds.upto.max(progress.matched);
        let upto = self.reached(self.view.log.last().index, of_peer).unwrap_or(reported);
        if upto <= reported {
            return reported;
        }
        let beyond = core::mem::take(&mut self.leader.reported.beyond);
        let mut first = reported.next();
        for &single in beyond.range(..=upto) {
            push(first, single.previous(), effects);
            first = single.next();
        }
        push(first, upto, effects);
        self.leader.reported =
            Reported { upto, beyond: beyond.into_iter().filter(|&it| upto < it).collect() };
        upto
    }

    /// Reports an entry whose predecessors a quorum may lack. [Rule 2]
    fn report_single(&mut self, index: LogIndex, effects: &mut Effects) {
        let me = self.view.config.id;
        let leader = &*self.leader;
        let has = |voter| leader.of_voter(me, voter, true, |progress| progress.holds.has(index));
        let is_of_term = leader.term_start < index && index <= self.view.log.last().index;
        if is_of_term && !leader.reported.beyond.contains(&index) && self.view.membership.has_quorum(has) {
            self.leader.reported.beyond.insert(index);
            push(index, index, effects);
        }
    }
}

/// Adds a run to what is reported; one that follows the last is joined to it.
fn push(first: LogIndex, last: LogIndex, effects: &mut Effects) {
    if last < first {
        return;
    }
    match effects.received.last_mut().filter(|run| run.last.next() == first) {
        Some(run) => run.last = last,
        None => effects.received.push(Run { first, last }),
    }
}
