//! Reminder: what a member has promised, as far as others know it, asked for before it says anything that counts.
//!
//! A directory cannot tell that it is an older copy of itself, or that there was another one before it. So whoever starts asks
//! the other voters first, and is deaf to everything else until they have answered:
//!
//! ```text
//!   starts ── Remind ──▶ every other voter
//!          ◀─ Reminder: my term; up to where the group has committed, and you have acknowledged ──
//!   all have answered, or an election timeout is over ──▶ takes part
//! ```
//!
//! In:    the time; answers.
//! Out:   a term, whose vote is spent; a bar for votes and campaigns, like a floor ([`crate::vote_floor`]) for this run.
//! Rules: [fault-model F19, F61, ST18]
//!   1. Whomever it has voted for had the vote's term on disk before it asked for the vote. So no term in which it has voted is
//!      above the terms of all who answer, as long as whoever it voted for is among them. In the highest of them its vote is
//!      spent, unless its own disk knows whose it is.
//!   2. It votes for no log, and leads with none, that lacks what is committed, or what it has acknowledged to the leader that
//!      counts it. Every log that a quorum could choose has what is committed, so that keeps nobody from leading who could
//!      lead. What it has lost of its own that leader will tell it, too, and then it is a floor on its disk.
//!   3. Meanwhile it takes no entries and acknowledges none: whoever sends them may have been replaced with its vote.
//!   4. Whoever cannot be asked in an election timeout is not waited for: what only that one knows is not known. Links that were
//!      lost are tried again in half of that.
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
pub const MET_ALL: HardState = HardState { term: Term(0), vote: Some(SPENT) };

/// How often others are asked: links come up one after the other, and what is asked before that is lost.
const ASKS_PER_HEARTBEAT: u32 = 5;

/// A start that is not over yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Returning {
    /// All that are asked.
    others: BTreeSet<NodeId>,
    /// Those that have answered in this run.
    answered: BTreeSet<NodeId>,
    /// Those that must have answered before this member takes part, or before its patience is over.
    pub(crate) silent: BTreeSet<NodeId>,
    /// Of one without a past: voters that have not said that they have met all.
    pub(crate) unready: BTreeSet<NodeId>,
    /// When they are asked again.
    pub(crate) ask_at: Instant,
    /// When they are not waited for any longer; never, by one without a past.
    pub(crate) until: Instant,
    /// The highest term of those that have answered. Of one without a past it is on no disk before all have: after a restart
    /// that would be a past, and would wait for nobody any more.
    term: Term,
    /// Somebody takes part already.
    others_began: bool,
    /// Names this start: what was asked by an earlier run may be answered late.
    nonce: u64,
}

impl Returning {
    /// Of a voter among these others; none if there are no others.
    pub(crate) fn begin(
        now: Instant,
        others: impl Iterator<Item = NodeId>,
        (has_past, hard, nonce): (bool, HardState, u64),
        patience: Duration,
    ) -> Option<Returning> {
        let others: BTreeSet<NodeId> = others.collect();
        if others.is_empty() {
            return None;
        }
        let has_met_all = has_past && hard == MET_ALL;
        let is_patient = !has_past || has_met_all;
        let until = if is_patient { Instant::NEVER } else { now + patience };
        let (silent, unready) = match (is_patient, has_met_all) {
            (true, true) => (BTreeSet::new(), others.clone()),
            (true, false) => (others.clone(), others.clone()),
            (false, _) => (others.clone(), BTreeSet::new()),
        };
        let answered = BTreeSet::new();
        let (term, others_began) = (Term(0), false);
        Some(Returning { others, answered, silent, unready, ask_at: now, until, term, others_began, nonce })
    }

    /// When something is to be done about it.
    pub(crate) fn deadline(&self) -> Instant {
        self.ask_at.min(self.until)
    }

    /// Whether nobody is waited for any more.
    fn is_over(&self) -> bool {
        self.silent.is_empty() && self.unready.is_empty()
    }

    /// Somebody takes part, who has seen that all have met all: this member has a past among others from here on, and
    /// waits for all of them as one that has.
    fn others_take_part(&mut self, now: Instant, patience: Duration) {
        self.others_began = true;
        if self.silent.is_empty() && !self.unready.is_empty() {
            self.unready.clear();
            self.silent = self.others.difference(&self.answered).copied().collect();
            self.until = now + patience;
        }
    }
}

impl Raft {
    /// Voters without whose answer this one, which has no past, does not begin. Empty for one that takes part, or soon will.
    pub fn waits_for(&self) -> impl Iterator<Item = NodeId> {
        let first = self.returning.as_ref().filter(|returning| returning.until == Instant::NEVER);
        first.into_iter().flat_map(|returning| returning.silent.union(&returning.unready).copied())
    }

    /// Whether this peer has not begun to take part, and knows that others have.
    #[must_use]
    pub fn others_began(&self) -> bool {
        self.returning.as_ref().is_some_and(|returning| returning.others_began)
    }

    /// In this term and all before it this peer may have voted in an earlier run: it votes in none of them again.
    fn spend_votes_upto(&mut self, term: Term, effects: &mut Effects) {
        if self.term < term {
            self.enter_term(term, Some(SPENT), effects);
        } else if self.term == term && self.vote.is_none() && Term(0) < term {
            self.vote = Some(SPENT);
            self.record_hard_state(effects);
        }
    }

    /// Whether this peer has not begun to take part yet.
    #[must_use]
    pub fn is_returning(&self) -> bool {
        self.returning.is_some()
    }

    /// Whether the log ends below what others said at this start that is committed, or was acknowledged. [Rule 2]
    pub(crate) fn lacks_what_is_committed(&self) -> bool {
        self.log.last() < self.bar
    }

    /// Asks, or gives up asking.
    pub(crate) fn tick_returning(&mut self, now: Instant, effects: &mut Effects) {
        let Some(returning) = &mut self.returning else { return };
        if returning.until <= now {
            return self.take_part(now, effects);
        }
        if now < returning.ask_at {
            return;
        }
        returning.ask_at = now + self.config.heartbeat_interval / ASKS_PER_HEARTBEAT;
        let nonce = returning.nonce;
        let asked: Vec<NodeId> = returning.silent.union(&returning.unready).copied().collect();
        for voter in asked {
            // It may have learnt of a newer term meanwhile.
            self.send_when_durable(self.envelope(voter, Message::Remind(Remind { nonce })), effects);
        }
    }

    /// Somebody has just started, and asks.
    pub(crate) fn on_remind(&mut self, envelope: &Envelope, remind: &Remind, effects: &mut Effects) {
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
            nonce: remind.nonce,
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
        let patience = self.config.election_timeout;
        let Some(returning) = &mut self.returning else { return };
        if returning.nonce != reminder.nonce || !returning.others.contains(&from) {
            return;
        }
        returning.answered.insert(from);
        let has_met_all = returning.silent.remove(&from) && returning.silent.is_empty();
        match reminder.standing {
            Standing::Alone => {}
            Standing::HasMetAll => {
                returning.unready.remove(&from);
            }
            Standing::TakesPart => returning.others_take_part(now, patience),
        }
        let is_over = returning.is_over();
        returning.term = returning.term.max(term);
        let told = returning.term;
        let waits_for_all = returning.until == Instant::NEVER && !returning.silent.is_empty();
        // A start without a past writes nothing down until all others have answered, so that it waits again after a restart.
        if !waits_for_all {
            self.spend_votes_upto(told, effects);
        }
        let bar = reminder.committed.max(reminder.acknowledged);
        if bar.term <= told.max(self.term) {
            self.bar = self.bar.max(bar);
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
        if returning.others_began && !self.has_past {
            self.has_past = true; // from before its directory was this one, for all that it can tell
            self.vote_hold_of_earlier_runs(now);
        }
        let timer = self.election_timer(now);
        if self.has_past {
            self.grace_until = now + self.config.heartbeat_interval * 2; // nobody has reached it before
        }
        self.take_role(Role::Follower(Follower { timer, following: None }), effects);
        effects.trace.push(Trace::TakesPart { unasked: returning.silent.len() });
    }
}
