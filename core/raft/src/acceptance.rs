//! Acceptance: how a follower brings its log in line with its leader's, and what it says of it.
//!
//! In:    appends of this term's leader; how far the disk has come.
//! Out:   records for the log, truncations, acknowledgements, hints.
//! Rules: [replication-protocols L1–L6, B8; Ongaro14 §3.5]
//!   1. Entries are appended only after one that both logs hold; what is then held up to the end of the message is
//!      `verified`, and only that can be acknowledged or committed.
//!   2. Identical entries are skipped and never truncate: a late duplicate must not cut off what was acknowledged.
//!   3. An acknowledgement says what is durable *and* verified. It is a function of this state, not of one message,
//!      so one answers any number of appends, and a heartbeat is answered whatever the disk does.
//!   4. A mismatch carries a hint in terms, so that the leader skips a whole term per round trip.
//!   5. Of more entries than there is room for, those that fit are taken; busy is who has room for none.
//!
//! Knows nothing of: other peers, what entries mean, clients.

use crate::contract::Effects;
use crate::entry::{Entry, EntryKind, Form};
use crate::membership::Membership;
use crate::message::{Append, AppendReply, AppendVerdict, Message};
use crate::policy::{Coding, Intake, Trust};
use crate::raft::Raft;
use crate::role::{Following, Owes, Role};
use crate::trace::Trace;
use crate::types::{EntryId, Instant, LogIndex, NodeId, Term};

impl Raft {
    /// An append of this term's leader, as a follower takes it. [L1–L6]
    pub(crate) fn on_append(&mut self, now: Instant, from: NodeId, append: Append, effects: &mut Effects) {
        self.follow(now, from, effects);
        let Role::Follower(follower) = &mut self.role else { unreachable!("only a follower takes appends") };
        let Some(following) = &mut follower.following else { unreachable!("follow() named the leader") };
        following.told = following.told.max(append.commit);
        following.owes.round = following.owes.round.max(append.round);
        let round = append.round;
        let heartbeat = append.entries.is_empty();
        if !is_well_formed(&append, self.term, self.config.policies.coding) {
            return; // no peer of ours makes such a message; it is not worth an answer
        }
        match self.config.policies.trust {
            Trust::Checksums => {} // judged where the bytes came in
        }
        match self.take_in(append, effects) {
            Ok(upto) => {
                if planted!("damaged-answer-counted-as-evidence") {
                    self.floor = None; // as if what the leader has not sent had never been
                }
                self.owe(upto, heartbeat);
            }
            Err(verdict) => {
                let (promise, disk) = (self.own_promise(), self.disk_time.took);
                let clock = self.own_clock(now);
                let reply = Message::AppendReply(AppendReply { round, promise, clock, disk, verdict });
                self.send_when_durable(self.envelope(from, reply), effects);
            }
        }
        self.advance_commit_as_follower(now, effects);
        self.ask_for_snapshot(effects);
    }

    /// Follows `leader`, restarts the timer.
    pub(crate) fn follow(&mut self, now: Instant, leader: NodeId, effects: &mut Effects) {
        let Role::Follower(follower) = &self.role else { unreachable!("step() made a follower of us") };
        match &follower.following {
            Some(following) => {
                let known = following.leader;
                assert_eq!(known, leader, "two leaders in {:?} [Election Safety]", self.term);
            }
            None => {
                let timer = self.election_timer(now);
                let verified = match planted!("verified-survives-its-leader") {
                    true => self.log.last().index,
                    false => self.marks.committed, // Leader Completeness: every leader holds what is committed
                };
                let following = Following::new(leader, now, verified);
                let Role::Follower(follower) = &mut self.role else { unreachable!("checked above") };
                follower.timer = timer;
                follower.following = Some(following);
                effects.trace.push(Trace::BecameFollower { term: self.term, leader: Some(leader) });
                self.ask_own_question(now, effects);
            }
        }
        let Role::Follower(follower) = &mut self.role else { unreachable!("checked above") };
        follower.timer.started = now;
        if let Some(following) = &mut follower.following {
            following.heard_at = now;
            following.ask_at = None;
        }
        self.promise_to_leader(now);
    }

    /// Brings the log in line with the append; the end of what now agrees, or why nothing was taken.
    fn take_in(&mut self, append: Append, effects: &mut Effects) -> Result<LogIndex, AppendVerdict> {
        let Append { mut prev, mut entries, .. } = append;
        let mut end = LogIndex(prev.index.0 + entries.len() as u64);
        let committed = self.marks.committed;
        if end <= committed {
            return Ok(end); // identical by Leader Completeness [L2]
        }
        if prev.index < committed {
            entries.drain(..(committed.0 - prev.index.0) as usize);
            prev = self.log.id_at(committed);
        }
        let by_index = planted!("previous-entry-checked-by-index") && prev.index <= self.log.last().index;
        if !self.log.holds(prev) && !by_index {
            return match self.config.policies.intake {
                Intake::Strict => Err(self.mismatch(prev)),
            };
        }
        let is_known = |entry: &&Entry| {
            let any_will_do = planted!("entries-known-by-index") && entry.id().index <= self.log.last().index;
            self.log.holds(entry.id()) || any_will_do
        };
        let known = match planted!("truncate-on-every-append") {
            true => 0,
            false => entries.iter().take_while(is_known).count(),
        };
        if known < entries.len() {
            let fitting = self.fitting(&entries[known..]);
            if fitting == 0 || self.apply_is_backlogged() {
                return Err(AppendVerdict::Busy);
            }
            entries.truncate(known + fitting);
            end = LogIndex(prev.index.0 + entries.len() as u64);
            let first_new = LogIndex(prev.index.0 + 1 + known as u64);
            if first_new <= self.log.last().index {
                let verified = self.verified();
                assert!(
                    verified < first_new || planted!("truncate-on-every-append"),
                    "{first_new:?} contradicts what agreed up to {verified:?}"
                );
                self.truncate(first_new, effects);
            }
            for entry in entries.drain(known..) {
                self.append(entry, effects);
            }
        }
        if let Role::Follower(follower) = &mut self.role
            && let Some(following) = &mut follower.following
        {
            following.verified = following.verified.max(end);
        }
        Ok(end)
    }

    /// How many of these entries the log has room for. Those are taken: a batch larger than the room that there will
    /// ever be at once would otherwise come again and again and be refused each time.
    fn fitting(&self, entries: &[Entry]) -> usize {
        let mut room = self.log_space;
        let fits = |entry: &&Entry| {
            let rest = room.checked_sub(entry.len() as u64);
            room = rest.unwrap_or(0);
            rest.is_some()
        };
        entries.iter().take_while(fits).count()
    }

    /// The answer to a previous entry that is not in the log, with the hint that skips terms. [L4]
    fn mismatch(&self, prev: EntryId) -> AppendVerdict {
        AppendVerdict::Mismatch {
            prev: prev.index,
            hint: self.log.largest_at_most(prev),
            last: self.log.last().index,
        }
    }

    /// Highest index known equal to the leader's log. [replication-protocols §1.1]
    #[must_use]
    pub fn verified(&self) -> LogIndex {
        match &self.role {
            Role::Follower(follower) => {
                follower.following.as_ref().map_or(self.marks.committed, |following| following.verified)
            }
            Role::PreCandidate(_) | Role::Candidate(_) => self.marks.committed,
            Role::Leader(_) => self.log.last().index,
        }
    }

    /// Notes that an append ending at `upto` agreed and wants an answer. A heartbeat gets one at once, however far the
    /// disk is: it covers what is durable, and a slow disk does not look like a dead member.
    pub(crate) fn owe(&mut self, upto: LogIndex, heartbeat: bool) {
        let durable = self.acknowledgeable();
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        following.owes.now |= heartbeat || upto <= durable;
        following.owes.upto = following.owes.upto.max(upto);
    }

    /// What an acknowledgement may cover: what agrees with the leader *and* is on this disk. [O1]
    fn acknowledgeable(&self) -> LogIndex {
        if planted!("acknowledge-before-sync") {
            return self.verified();
        }
        if planted!("acknowledge-own-last-index") {
            return self.marks.persisted;
        }
        if planted!("install-acknowledged-before-its-base") && self.installing.is_some() {
            return self.verified();
        }
        if self.needs_snapshot() {
            return LogIndex(0); // it holds the end of a log without its beginning
        }
        self.verified().min(self.marks.persisted)
    }

    /// Sends the acknowledgement owed, if the disk has come far enough for it to say anything. [L6]
    pub(crate) fn acknowledge(&mut self, now: Instant, effects: &mut Effects) {
        let upto = self.acknowledgeable();
        let received = self.verified();
        if !self.durability.hard_state_is_durable() {
            return; // asked again when the term is on disk
        }
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        let Following { leader, heard_at, ref mut owes, .. } = *following;
        let moment = now.max(heard_at); // not before what is answered, whatever moment this call is given
        let Owes { round, now, upto: owed, acked } = *owes;
        if !now && (owed <= acked || upto <= acked) {
            return;
        }
        let upto = if planted!("heartbeat-acknowledges-unsynced") && now { received } else { upto };
        owes.now = false;
        owes.acked = upto.max(acked);
        let (promise, disk) = (self.own_promise(), self.disk_time.took);
        let clock = self.own_clock(moment);
        let reply = AppendReply { round, promise, clock, disk, verdict: AppendVerdict::Match { upto } };
        effects.send.push(self.envelope(leader, Message::AppendReply(reply)));
    }
}

/// Whether the entries follow `prev` without gaps, in terms that never fall and are not of the future, in a form
/// this group uses.
fn is_well_formed(append: &Append, term: Term, coding: Coding) -> bool {
    let mut prev = append.prev;
    append.entries.iter().all(|entry| {
        let id = entry.id();
        let follows = id.index == prev.index.next() && prev.term <= id.term && id.term <= term;
        let form_fits = match coding {
            Coding::Whole => entry.head.form == Form::Whole,
        };
        let readable = match entry.head.kind {
            EntryKind::Config => Membership::decode(entry.payload()).is_ok_and(|(new, _)| !new.is_empty()),
            EntryKind::Noop | EntryKind::Command => true,
        };
        prev = id;
        follows && form_fits && readable
    })
}

impl Following {
    /// A leader just heard of, with the log known to agree up to `verified`.
    fn new(leader: NodeId, now: Instant, verified: LogIndex) -> Following {
        Following {
            leader,
            heard_at: now,
            verified,
            told: LogIndex(0),
            owes: Owes::default(),
            asked: crate::read::Asked::default(),
            ask_at: None,
        }
    }
}
