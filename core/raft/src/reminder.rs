//! Reminder: asks the other voters for a starting member's earlier state, before it sends anything that counts.
//!
//! A directory cannot tell that it is an older copy of itself, or that there was another one before it. So a starting
//! member asks the other voters first, and ignores all other messages until they have answered:
//!
//! ```text
//!   starts ── Remind ──▶ every other voter
//!          ◀─ Reminder: term; end of what the group has committed, and of what you have acknowledged ──
//!   all have answered, or an election timeout is over ──▶ takes part
//! ```
//!
//! In:    the time; answers.
//! Out:   a term whose vote is spent; a bar for votes and campaigns, like a vote floor ([`crate::vote_floor`]) for this
//!        run.
//! Rules: [fault-model F19, F61, ST18]
//!   1. A candidate has the term of its campaign on disk before it requests votes. So no term in which this member has
//!      voted is above the terms of all voters that answer, if the candidate it voted for is among them. In the highest
//!      of these terms its vote is spent, unless its own disk knows the candidate.
//!   2. It votes for no log, and leads with none, that lacks committed entries, or entries that it has acknowledged to
//!      the leader that counts them. Every log that a quorum could elect has the committed entries, so the bar keeps no
//!      eligible member from leading. If its disk has lost acknowledged entries, that leader reports the loss, too, and
//!      it becomes a vote floor on disk. A leader that has stepped down counts nothing: entries that it
//!      had not committed by then can be committed only by a later leader, and only as acknowledged to that one.
//!   3. Meanwhile it takes no entries and acknowledges none: their sender may have been replaced with this member's
//!      vote.
//!   4. A voter that does not answer in an election timeout is not waited for, and what only that voter knows is
//!      missed. Lost links are dialed again in half of that time.
//!   6. Its own campaign is the exception: if no request of it was read by then, no other voter knows its term, and this
//!      member may vote in that term again. A late request may still get a vote, and this member may campaign in that
//!      term with a shorter log. So a vote names the last entry of the log that it was given for, and a candidate whose log
//!      ends before that does not count it.
//!
//! A new voter (without an earlier run) waits for every other one, for as long as it takes. A group begins when all of
//! its first voters have met; then each knows the directories of all, and admits no other. A voter that has lost its
//! directory waits for ever, or is refused: it never votes under its old name.
//!
//! ```text
//!   alone ── all others have answered, durable ──▶ has met all ── all others have, or one takes part ──▶ takes part
//! ```
//!   5. No first voter begins before all have met all. So when an entry is written, all of them can go on, whichever is
//!      lost then.
//!
//! Knows nothing of: directories, listeners.

use crate::contract::{Effects, HardState};
use crate::message::{Envelope, Message, Remind, Reminder, Standing};
use crate::raft::Raft;
use crate::role::{Follower, Role};
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Instant, NodeId, Term};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The vote of a member that has voted, or may have, without knowing for which candidate. No member has this id.
pub const SPENT: NodeId = NodeId(u64::MAX);

/// The hard state of a new voter that has met all others.
pub const MET_ALL: HardState = HardState { term: Term(0), vote: Some(SPENT) };

/// How often others are asked: links come up one after the other, and requests before that are lost.
const ASKS_PER_HEARTBEAT: u32 = 5;

/// A start under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Returning {
    /// All voters that are asked.
    others: BTreeSet<NodeId>,
    /// Voters that have answered in this run.
    answered: BTreeSet<NodeId>,
    /// Voters that must answer before this member takes part, unless its patience ends first.
    pub(crate) silent: BTreeSet<NodeId>,
    /// In a new voter: voters that have not reported that they have met all.
    pub(crate) unready: BTreeSet<NodeId>,
    /// When requests are repeated.
    pub(crate) ask_at: Instant,
    /// When the wait ends; never in a new voter.
    pub(crate) until: Instant,
    /// The highest term of those that have answered. A new voter does not persist it before all have: after a restart
    /// it would not be new, and would not wait for all any more.
    term: Term,
    /// Another voter takes part already.
    others_began: bool,
    /// Identifies this start: requests of an earlier run may be answered late.
    nonce: u64,
}

impl Returning {
    /// The start of a voter among these others; `None` if there are no others.
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

    /// When the passage of time alone changes something.
    pub(crate) fn deadline(&self) -> Instant {
        self.ask_at.min(self.until)
    }

    /// Whether no answer is waited for any more.
    fn is_over(&self) -> bool {
        self.silent.is_empty() && self.unready.is_empty()
    }

    /// Another voter takes part, and so all have met all: from now on this member counts as one with an earlier run,
    /// and waits for answers as such.
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
    /// Voters for whose answers this new voter waits. Empty for a member that takes part, or will after an election
    /// timeout.
    pub fn waits_for(&self) -> impl Iterator<Item = NodeId> {
        let first = self.returning.as_ref().filter(|returning| returning.until == Instant::NEVER);
        first.into_iter().flat_map(|returning| returning.silent.union(&returning.unready).copied())
    }

    /// Whether this peer does not take part yet, and knows that others do.
    #[must_use]
    pub fn others_began(&self) -> bool {
        self.returning.as_ref().is_some_and(|returning| returning.others_began)
    }

    /// This peer may have voted in this term, and in those before it, in an earlier run: it votes in none of them
    /// again.
    fn spend_votes_upto(&mut self, term: Term, effects: &mut Effects) {
        if self.term < term {
            self.enter_term(term, Some(SPENT), effects);
        } else if self.term == term && self.vote.is_none() && Term(0) < term {
            self.vote = Some(SPENT);
            self.record_hard_state(effects);
        }
    }

    /// Whether this peer does not take part yet.
    #[must_use]
    pub fn is_returning(&self) -> bool {
        self.returning.is_some()
    }

    /// Whether the log ends below what others reported at this start as committed, or as acknowledged by this member.
    /// [Rule 2]
    pub(crate) fn lacks_what_is_committed(&self) -> bool {
        self.log.last() < self.bar
    }

    /// Repeats the requests, or ends the wait.
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

    /// Another member has just started, and asks.
    pub(crate) fn on_remind(&mut self, envelope: &Envelope, remind: &Remind, effects: &mut Effects) {
        let Envelope { from, incarnation, .. } = *envelope;
        let matched = match &self.role {
            Role::Leader(leader) => {
                let progress = leader.peers.get(&from).filter(|it| it.life.is_of(incarnation));
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
            acknowledged: acknowledged.unwrap_or_default(), // pruned entries are committed
        };
        self.send_when_durable(self.envelope(from, Message::Reminder(reminder)), effects);
    }

    /// A voter's answer.
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
        // A new voter persists nothing until all others have answered, so that after a restart it waits again.
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

    /// Ends the start: from now on this peer is like any other.
    fn take_part(&mut self, now: Instant, effects: &mut Effects) {
        let Some(returning) = self.returning.take() else { return };
        if returning.others_began && !self.has_past {
            self.has_past = true; // an earlier run in another directory cannot be excluded
            self.vote_hold_of_earlier_runs(now, self.hold_recorded);
        }
        let timer = self.election_timer(now);
        if self.has_past {
            self.grace_until = now + self.config.timing().grace(); // no leader could reach it before
        }
        self.take_role(Role::Follower(Follower { timer, following: None }), effects);
        effects.trace.push(Trace::TakesPart { unasked: returning.silent.len() });
    }
}
