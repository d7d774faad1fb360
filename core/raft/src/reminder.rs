//! Reminder: what a member has promised, as far as others know it, asked for before it says anything that counts.
//!
//! A directory cannot tell that it is an older copy of itself, or that there was another one before it. So whoever starts asks
//! the other voters first, and is deaf to everything else until they have answered:
//!
//! ```text
//!   starts ── Remind ──▶ every other voter
//!          ◀─ Reminder: my term; up to where the group has committed, and you have acknowledged ──
//!   all have answered, or two heartbeats are over ──▶ takes part
//! ```
//!
//! In:    the time; answers.
//! Out:   a term, whose vote is spent; a floor ([`crate::floor`]); a bar, which is like a floor, but is no loss.
//! Rules: [fault-model F19, F61, ST18]
//!   1. Whomever it has voted for had the vote's term on disk before it asked for the vote. So no term in which it has voted is
//!      above the terms of all who answer, as long as whoever it voted for is among them. In the highest of them its vote is
//!      spent, unless its own disk knows whose it is.
//!   2. What it has acknowledged to the leader that counts it, it owes: its disk has lost that, if it is not there. What is
//!      committed it may only have missed; but its vote goes to a log that has it, and it leads with no other. Every log that
//!      a quorum could choose has it, so this keeps nobody from leading who could lead.
//!   3. Meanwhile it takes no entries and acknowledges none: whoever sends them may have been replaced with its vote.
//!   4. Whoever cannot be asked in two heartbeats is not waited for: what only that one knows is not known.
//!
//! A voter that has no past at all waits for every other one, for as long as it takes: a group begins when all of its first
//! voters have met, and so each knows the directories of all, and admits no other. One that has lost its directory, and so its
//! past, waits for ever, or is refused: it never votes under its old name.
//!
//! ```text
//!   alone ── all others have answered, durable ──▶ has met all ── all others have, or one takes part ──▶ takes part
//! ```
//!   5. Nobody begins before all have met all. So when anything is written everybody can go on, whoever is lost then.
//!
//! Knows nothing of: directories, doors.

use crate::contract::{Effects, HardState};
use crate::message::{Envelope, Message, Remind, Reminder, Standing};
use crate::raft::Raft;
use crate::role::{Follower, Role};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Instant, NodeId, Term};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Whom a member has voted for that does not know it, or may not know it: nobody has this id.
pub const SPENT: NodeId = NodeId(u64::MAX);

/// What is on the disk of one that has no past but that it has met all others.
const MET_ALL: HardState = HardState { term: Term(0), vote: Some(SPENT) };

/// Heartbeats for which a voter with a past waits for answers.
const PATIENCE: u32 = 2;

/// A start that is not over yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Returning {
    /// Voters that have not answered.
    pub(crate) silent: BTreeSet<NodeId>,
    /// Of one without a past: voters that have not said that they have met all.
    pub(crate) unready: BTreeSet<NodeId>,
    /// When they are asked again.
    pub(crate) ask_at: Instant,
    /// When they are not waited for any longer; never, by one without a past.
    pub(crate) until: Instant,
}

impl Returning {
    /// Of a voter among these others; none if there are no others.
    pub(crate) fn begin(
        now: Instant,
        others: impl Iterator<Item = NodeId>,
        (has_past, hard): (bool, HardState),
        heartbeat_interval: Duration,
    ) -> Option<Returning> {
        let others: BTreeSet<NodeId> = others.collect();
        if others.is_empty() {
            return None;
        }
        let has_met_all = has_past && hard == MET_ALL;
        let is_patient = (!has_past || has_met_all) && !planted!("begins-without-the-others");
        let until = if is_patient { Instant::NEVER } else { now + heartbeat_interval * PATIENCE };
        let (silent, unready) = match (is_patient, has_met_all) {
            (true, true) => (BTreeSet::new(), others),
            (true, false) => (others.clone(), others),
            (false, _) => (others, BTreeSet::new()),
        };
        Some(Returning { silent, unready, ask_at: now, until })
    }

    /// When something is to be done about it.
    pub(crate) fn deadline(&self) -> Instant {
        self.ask_at.min(self.until)
    }

    /// Whether nobody is waited for any more.
    fn is_over(&self) -> bool {
        self.silent.is_empty() && self.unready.is_empty()
    }
}

impl Raft {
    /// Voters without whose answer this one, which has no past, does not begin. Empty for one that takes part, or soon will.
    pub fn waits_for(&self) -> impl Iterator<Item = NodeId> {
        let first = self.returning.as_ref().filter(|returning| returning.until == Instant::NEVER);
        first.into_iter().flat_map(|returning| returning.silent.union(&returning.unready).copied())
    }

    /// Whether this peer has not begun to take part yet.
    #[must_use]
    pub fn is_returning(&self) -> bool {
        self.returning.is_some()
    }

    /// Asks, or gives up asking.
    pub(crate) fn tick_returning(&mut self, now: Instant, effects: &mut Effects) {
        let Some(returning) = &mut self.returning else { return };
        if returning.until <= now || planted!("returns-without-asking") {
            return self.take_part(now, effects);
        }
        if now < returning.ask_at {
            return;
        }
        returning.ask_at = now + self.config.heartbeat_interval;
        let asked: Vec<NodeId> = returning.silent.union(&returning.unready).copied().collect();
        for voter in asked {
            effects.send.push(self.envelope(voter, Message::Remind(Remind)));
        }
    }

    /// Somebody has just started, and asks.
    pub(crate) fn on_remind(&mut self, envelope: &Envelope, effects: &mut Effects) {
        let Envelope { from, incarnation, .. } = *envelope;
        let matched = match &self.role {
            Role::Leader(leader) => {
                let progress = leader.peers.get(&from).filter(|it| it.incarnation == Some(incarnation));
                progress.map(|progress| progress.matched)
            }
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => None,
        };
        let acknowledged = matched.and_then(|at| Some(EntryId { term: self.log.term_at(at)?, index: at }));
        let standing = match &self.returning {
            Some(first) if first.until == Instant::NEVER && first.silent.is_empty() => Standing::HasMetAll,
            Some(first) if first.until == Instant::NEVER => Standing::Alone,
            Some(_) | None => Standing::TakesPart,
        };
        let reminder = Reminder {
            standing,
            committed: self.log.id_at(self.marks.committed),
            acknowledged: acknowledged.unwrap_or_default(), // what is pruned is committed
        };
        self.send_when_durable(self.envelope(from, Message::Reminder(reminder)), effects);
    }

    /// Somebody who was asked says what it knows.
    pub(crate) fn on_reminder(
        &mut self,
        now: Instant,
        from: NodeId,
        term: Term,
        reminder: &Reminder,
        effects: &mut Effects,
    ) {
        let Some(returning) = &mut self.returning else { return };
        let is_first_word = returning.silent.remove(&from);
        if !is_first_word && !returning.unready.contains(&from) {
            return;
        }
        match reminder.standing {
            Standing::Alone => {}
            Standing::HasMetAll => {
                returning.unready.remove(&from);
            }
            Standing::TakesPart => returning.unready.clear(), // that one has seen that all have
        }
        let has_met_all = is_first_word && returning.silent.is_empty();
        let is_over = returning.is_over();
        if self.term < term {
            let vote = if planted!("reminded-of-a-term-and-votes-in-it") { None } else { Some(SPENT) };
            self.enter_term(term, vote, effects);
        } else if self.term == term && self.vote.is_none() && Term(0) < term {
            self.vote = Some(SPENT);
            self.record_hard_state(effects);
        }
        if !planted!("reminded-of-acknowledgements-and-owes-none") {
            self.stand_by(reminder.acknowledged, effects);
        }
        if reminder.committed.term <= self.term {
            self.bar = self.bar.max(reminder.committed);
        }
        if has_met_all && !self.has_past && self.term == Term(0) {
            self.vote = MET_ALL.vote;
            self.record_hard_state(effects);
        }
        if is_over {
            self.take_part(now, effects);
        }
    }

    /// From here on this peer is like any other.
    fn take_part(&mut self, now: Instant, effects: &mut Effects) {
        let Some(returning) = self.returning.take() else { return };
        let timer = self.election_timer(now);
        self.take_role(Role::Follower(Follower { timer, following: None }), effects);
        effects.trace.push(Trace::TakesPart { unasked: returning.silent.len() });
    }
}
