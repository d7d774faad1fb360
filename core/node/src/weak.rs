//! Weak answers: tells clients that ask for it that a quorum has received their writes, before these are committed.
//!
//! ```text
//!   a write that may be answered weakly ─▶ its session is in step ─▶ placed ─▶ received by a quorum ─▶ weak answer
//!                                              │ not known yet           └──────▶ committed, applied ──▶ final answer
//!                                              └─▶ final answer only, and the keeper is asked how far the session is
//! ```
//!
//! In:    commands of sessions that enter this leader's log, how far the keeper says that a session is, received entries.
//! Out:   weak answers: each is followed by a final one.
//! Rules: [replication-protocols W5, C1; fault-model WK1–WK8]
//!   1. Only a leader gives weak answers, and only to its own clients. Others get the final answer alone.
//!   2. Only a command that will be executed if no leader changes is answered weakly: the next one of a strict session, with room
//!      for its answer. So a leader has to know how far the session is. It asks its keeper once in a term, behind the first such
//!      command, and follows from there what enters its log.
//!   3. What is answered weakly and not yet final has a budget, in commands and bytes. Beyond it there is the final answer alone.
//!   4. Nothing else depends on any of this.
//!
//! Knows nothing of: the table of sessions, connections, what a client makes of an answer.

use crate::bundle::{Parts, is_bundle};
use crate::contract::{Effects, KeeperTask, Outcome, Standing, Ticket};
use crate::node::{Node, answer};
use crate::session::SessionHeader;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use kattu_kv::sessions::{SessionId, WINDOW};
use kattu_raft::message::Run;
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{LogIndex, Protocol};

/// Sessions that a leader follows at most: commands of others are not answered weakly.
const SESSIONS_MAX: usize = 65_536;

/// Commands of one session that may enter the log before the keeper has answered.
const UNJUDGED_MAX: usize = 8192;

/// How far a session is in this leader's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Follows {
    /// The keeper is asked when it has been given this entry, or was asked behind another. The numbers that came after it, with
    /// their entries: the keeper has judged those up to where it was asked.
    Asks { from: LogIndex, asked_behind: Option<LogIndex>, after: Vec<(LogIndex, u64)> },
    /// The highest number that is executed, or will be if no leader changes.
    InStep(u64),
    /// It is not there, or its commands need no order.
    Never,
}

/// The weak answers of one leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct WeakAnswers {
    /// Writes without a place whose clients ask for weak answers.
    pub(crate) wanted: BTreeSet<Ticket>,
    /// By number and secret.
    sessions: BTreeMap<(u64, u64), Follows>,
    /// Those that the keeper is to be asked about, each when it has been given this entry; ascending.
    unasked: VecDeque<(LogIndex, (u64, u64))>,
    /// What is answered weakly and has no final answer.
    outstanding: Capacity,
    /// Weak answers of this run.
    given: u64,
    /// Of these, ones whose commands were overwritten for sure.
    lost: u64,
}

/// Weak answers of this run, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WeakCounts {
    /// Commands that were answered weakly and have no final answer, and their bytes.
    pub outstanding: Capacity,
    /// Weak answers given.
    pub given: u64,
    /// Of these, ones whose commands a later leader has overwritten.
    pub lost: u64,
}

/// Whether a placed write may be answered weakly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Weakly {
    /// No.
    #[default]
    No,
    /// When a quorum has received it: it has so many bytes.
    Waits(u32),
    /// It is answered so.
    Answered(u32),
}

fn key(id: SessionId) -> (u64, u64) {
    (id.number, id.secret)
}

impl WeakAnswers {
    /// What an operator sees of them.
    fn counts(&self) -> WeakCounts {
        WeakCounts { outstanding: self.outstanding, given: self.given, lost: self.lost }
    }

    /// Another term or role: what was known of sessions is void.
    pub(crate) fn forget_sessions(&mut self) {
        self.sessions.clear();
        self.unasked.clear();
    }

    /// A write gets its final answer: if it was answered weakly, the budget has room again.
    pub(crate) fn settled(&mut self, weakly: Weakly) {
        if let Weakly::Answered(bytes) = weakly {
            self.outstanding.entries -= 1;
            self.outstanding.bytes -= u64::from(bytes);
        }
    }

    /// One that was answered weakly is overwritten.
    pub(crate) fn lost(&mut self) {
        self.lost += 1;
    }

    /// Takes a write into the budget, if that has room.
    fn takes(&mut self, bytes: u32, budget: Capacity) -> bool {
        let entries = self.outstanding.entries + 1;
        let bytes = self.outstanding.bytes + u64::from(bytes);
        let fits = entries <= budget.entries && bytes <= budget.bytes;
        if fits {
            self.outstanding = Capacity { entries, bytes };
            self.given += 1;
        }
        fits
    }

    /// A command of a session enters the log at this index. Returns whether it is the next one for sure. [Rule 2]
    fn follow(&mut self, header: SessionHeader, at: LogIndex, wants: bool) -> bool {
        let (number, has_room) = (header.number, self.sessions.len() < SESSIONS_MAX);
        match self.sessions.get_mut(&key(header.id)) {
            None => {
                if wants && has_room {
                    let asks = Follows::Asks { from: at, asked_behind: None, after: Vec::new() };
                    self.sessions.insert(key(header.id), asks);
                    self.unasked.push_back((at, key(header.id)));
                }
                false
            }
            Some(Follows::InStep(highest)) => {
                let is_next = number == *highest + 1;
                *highest += u64::from(is_next);
                is_next && number - header.first_unacked.min(number) < WINDOW
            }
            Some(Follows::Asks { after, .. }) if after.len() < UNJUDGED_MAX => {
                after.push((at, number));
                false
            }
            Some(Follows::Asks { .. }) => {
                self.sessions.remove(&key(header.id)); // it begins again with the next one
                false
            }
            Some(Follows::Never) => false,
        }
    }
}

impl Node {
    /// The budget of weak answers; `None` if the cluster gives none.
    #[must_use]
    pub fn weak_budget(&self) -> Option<Capacity> {
        match self.raft.membership().extensions.protocol? {
            Protocol::NbRaft(nb_raft) if nb_raft.weak != Weak::Off => Some(nb_raft.budget),
            Protocol::NbRaft(_) | Protocol::Raft => None,
        }
    }

    /// Whether this cluster gives weak answers.
    pub(crate) fn has_weak_answers(&self) -> bool {
        self.weak_budget().is_some()
    }

    /// Weak answers of this run.
    #[must_use]
    pub fn weak_counts(&self) -> WeakCounts {
        self.writes.weak.counts()
    }

    /// A command enters this leader's log; `wants`: its client asks for a weak answer.
    pub(crate) fn follow_sessions(&mut self, command: &[u8], at: LogIndex, wants: bool) -> Weakly {
        if self.writes.weak.sessions.is_empty() && !wants || !self.has_weak_answers() {
            return Weakly::No;
        }
        if is_bundle(command) {
            let headers = Parts::of(command).into_iter().flatten().filter_map(|part| part?.header);
            for header in headers {
                self.writes.weak.follow(header, at, false);
            }
            return Weakly::No;
        }
        let Some((header, _)) = SessionHeader::take(command) else { return Weakly::No };
        match self.writes.weak.follow(header, at, wants) && wants {
            true => Weakly::Waits(u32::try_from(command.len()).unwrap_or(u32::MAX)),
            false => Weakly::No,
        }
    }

    /// Entries were given to the keeper: it is asked about sessions whose first command is among them. [Rule 2]
    pub(crate) fn ask_about_sessions(&mut self, effects: &mut Effects) {
        let term = self.raft.term();
        let WeakAnswers { sessions, unasked, .. } = &mut self.writes.weak;
        while let Some((_, (number, secret))) = unasked.pop_front_if(|(from, _)| *from <= self.delivered) {
            // One that was dropped meanwhile may have begun again, behind another entry.
            if let Some(Follows::Asks { from, asked_behind: behind @ None, .. }) =
                sessions.get_mut(&(number, secret))
                && *from <= self.delivered
            {
                *behind = Some(self.delivered);
                let session = SessionId { number, secret };
                effects.apply.push(KeeperTask::Standing { session, term });
            }
        }
    }

    /// How far a session was when the keeper was asked.
    pub(crate) fn on_standing(&mut self, standing: Standing) {
        let Standing { session, term, last } = standing;
        if term != self.raft.term() || !self.raft.is_leader() {
            return;
        }
        let Some(follows) = self.writes.weak.sessions.get_mut(&key(session)) else { return };
        let Follows::Asks { after, asked_behind: Some(behind), .. } = follows else { return };
        *follows = match last {
            Some(last) => {
                let later = after.iter().filter(|(at, _)| *behind < *at).map(|(_, number)| *number);
                let advance = |highest: u64, number: u64| highest + u64::from(number == highest + 1);
                Follows::InStep(later.fold(last, advance))
            }
            None => Follows::Never,
        };
    }

    /// A quorum has received these entries: the clients that may be told so are.
    pub(crate) fn answer_weakly(&mut self, runs: &[Run], effects: &mut Effects) {
        let Some(budget) = self.weak_budget() else { return };
        let term = self.raft.term();
        for run in runs {
            let mut weak = core::mem::take(&mut self.writes.weak);
            for placed in self.writes.placed_in(*run).filter(|placed| placed.id.term == term) {
                if let Weakly::Waits(bytes) = placed.weakly
                    && weak.takes(bytes, budget)
                {
                    placed.weakly = Weakly::Answered(bytes);
                    answer(effects, placed.ticket, Outcome::Received(placed.id));
                }
            }
            self.writes.weak = weak;
        }
    }
}
