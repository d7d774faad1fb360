//! Acceptance: how a follower brings its log in line with its leader's, and how it acknowledges that.
//!
//! In:    appends of this term's leader; the persisted index.
//! Out:   records for the log, truncations, acknowledgements, hints.
//! Rules: [replication-protocols L1–L6, B8; Ongaro14 §3.5]
//!   1. Entries are appended only after one that both logs hold. The log up to the end of the message is then
//!      `verified`, and only a verified prefix can be acknowledged or committed.
//!   2. Identical entries are skipped and never truncate: a late duplicate must not cut off acknowledged entries.
//!   3. An acknowledgement covers what is durable *and* verified. It is a function of this state, not of one message,
//!      so one answers any number of appends, and a heartbeat is answered whatever the disk does.
//!      Where entries are reported when they are received, what is not durable yet is named apart, as soon as it has
//!      come. [`crate::received`]
//!   4. A gap carries a hint in terms, so that the leader skips a whole term per round trip.
//!   5. If there is room for only some of the entries, that prefix is taken; the rest is a gap like any other. Every
//!      acknowledgement announces the room left if that could hold up a leader; regained room is announced at once.
//!   6. The payloads of a large append are read by a job, and the appends behind it wait. [`crate::compute`]
//!   7. Entries after a gap may be kept in a window. When the gap closes they join the log, as if they had come then; until
//!      then answers name them, and they count for nothing else. [`crate::window`]
//!
//! Knows nothing of: other peers, commands, clients.

use crate::contact::Origin;
use crate::contract::Effects;
use crate::distrust::Falsehood;
use crate::entry::{Body, Entry, EntryKind};
use crate::membership::Membership;
use crate::message::{Append, AppendReply, Gap, Message, RUNS_MAX, Room};
use crate::policy::{Capacity, Intake, Weak};
use crate::raft::Raft;
use crate::role::{Following, PendingAck, Role};
use crate::trace::Trace;
use crate::types::{EntryId, Instant, LogIndex, Round};
use alloc::vec::Vec;

impl Raft {
    /// An append of this term's leader, as a follower takes it. [L1–L6]
    pub(crate) fn on_append(&mut self, now: Instant, origin: Origin, append: Append, effects: &mut Effects) {
        let bytes: usize = append.entries.iter().map(Entry::len).sum();
        let is_read = bytes < self.config.limits.read_apart_bytes_min || append.entries.is_empty();
        if !self.is_well_formed(&append) || is_read && !self.reader.reads_all(&append.entries) {
            return Raft::distrust(origin.sender, Falsehood::of_entries(&append), effects); // and is no contact either
        }
        if !self.follow(now, origin, effects) {
            return;
        }
        if origin.is_direct() {
            self.owe_round(append.round);
        }
        match is_read && !(append.is_bulk() && self.lane_waits()) {
            true => self.take_append(now, origin, append, effects),
            false => self.keep_unread(now, origin, append, (bytes, is_read), effects),
        }
    }

    /// Notes that this round wants an answer. The answer grants a vote hold, so the leader must be heard.
    fn owe_round(&mut self, newer: Round) {
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        let PendingAck { round, .. } = &mut following.pending_ack;
        *round = newer.max(*round);
    }

    /// Takes the entries and the commit index of an append whose leader is known, over whichever path it came.
    /// [`crate::contact`]
    pub(crate) fn take_append(
        &mut self,
        now: Instant,
        origin: Origin,
        append: Append,
        effects: &mut Effects,
    ) {
        let Role::Follower(follower) = &mut self.role else { unreachable!("only a follower takes appends") };
        let Some(following) = &mut follower.following else { unreachable!("the leader is known") };
        following.told = following.told.max(append.commit);
        if origin.is_direct() && append.is_bulk() {
            let PendingAck { bulk, .. } = &mut following.pending_ack;
            *bulk = append.round.max(*bulk);
        }
        let waits_for_no_disk = append.entries.is_empty();
        let Taken { upto, gap, keeps } = match self.take_in(append, effects) {
            Ok(taken) => taken,
            Err(falsehood) => return Raft::distrust(origin.sender, falsehood, effects),
        };
        if let Some(upto) = upto {
            self.owe(upto, waits_for_no_disk);
        }
        if (gap.is_some() || keeps)
            && let Some(following) = self.role.following_mut()
        {
            following.pending_ack.now = true;
            following.pending_ack.gap = gap.or(following.pending_ack.gap);
        }
        self.advance_commit_as_follower(now, effects);
        self.ask_for_snapshot(effects);
    }

    /// Brings the log in line with the append.
    ///
    /// # Errors
    /// No correct leader sends this; nothing has changed.
    fn take_in(&mut self, append: Append, effects: &mut Effects) -> Result<Taken, Falsehood> {
        let Append { mut prev, mut entries, .. } = append;
        let mut end = LogIndex(prev.index.0 + entries.len() as u64);
        let committed = self.marks.committed;
        if end <= committed {
            return Ok(Taken::agreeing(end)); // identical by Leader Completeness [L2]
        }
        if prev.index < committed {
            let known = entries.drain(..(committed.0 - prev.index.0) as usize).next_back();
            prev = self.log.id_at(committed);
            if let Some(other) = known.map(|entry| entry.id()).filter(|id| *id != prev) {
                return Err(Falsehood::Contradiction(other)); // every leader holds what is committed
            }
        }
        if !self.log.holds(prev) {
            return match self.config.policies.intake {
                Intake::Window(size) if self.log.last().index < prev.index && !entries.is_empty() => {
                    self.keep_early(prev, entries, size)
                }
                Intake::Strict | Intake::Window(_) => Ok(Taken::lacking(self.gap(prev))),
            };
        }
        let known = entries.iter().take_while(|entry| self.log.holds(entry.id())).count();
        let mut refused = None;
        if known < entries.len() {
            let fitting = if self.apply_is_backlogged() { 0 } else { self.fitting(&entries[known..]) };
            refused = entries.last().map(Entry::id).filter(|_| known + fitting < entries.len());
            entries.truncate(known + fitting);
            end = LogIndex(prev.index.0 + entries.len() as u64);
            let first_new = LogIndex(prev.index.0 + 1 + known as u64);
            if known < entries.len() && first_new <= self.log.last().index {
                if first_new <= self.verified() {
                    return Err(Falsehood::Contradiction(entries[known].id()));
                }
                self.truncate(first_new, effects);
            }
            effects.persist.reserve(entries.len() - known + 1); // the commit mark may follow them
            for entry in entries.drain(known..) {
                self.append(entry, effects);
            }
        }
        if let Some(following) = self.role.following_mut() {
            following.verified = following.verified.max(end);
        }
        let end = self.take_early(effects).unwrap_or(end);
        Ok(Taken { upto: Some(end), gap: refused.map(|last| self.gap(last)), keeps: false })
    }

    /// Keeps entries after a gap as far as the window has places. [Rule 7]
    fn keep_early(&mut self, prev: EntryId, entries: Vec<Entry>, size: Capacity) -> Result<Taken, Falsehood> {
        let last = self.log.last().index;
        let (count, named) = (entries.len(), entries.last().map_or(prev, Entry::id));
        let Some(following) = self.role.following_mut() else { unreachable!("the leader is known") };
        let held = following.window.keep(prev, entries, last, size).map_err(Falsehood::Contradiction)?;
        let gap = (held < count).then(|| self.gap(named));
        Ok(Taken { upto: None, gap, keeps: 0 < held })
    }

    /// Moves the entries that follow the end of the log from the window into it, as far as there is room for them.
    /// Returns the new end if there were any. [Rule 7]
    pub(crate) fn take_early(&mut self, effects: &mut Effects) -> Option<LogIndex> {
        let mut first = None;
        while let Some(next) =
            self.role.following().and_then(|following| following.window.next(self.log.last()))
            && next.len() as u64 <= self.log_space
            && !self.apply_is_backlogged()
        {
            let last = self.log.last();
            let window = self.role.following_mut().map(|following| &mut following.window);
            let Some(entry) = window.and_then(|window| window.take_next(last)) else {
                unreachable!("just seen")
            };
            first = first.or(Some(entry.id().index));
            self.append(entry, effects);
        }
        let (last, size) = (self.log.last().index, self.config.policies.intake.window());
        let following = self.role.following_mut()?;
        if !following.window.is_empty() {
            following.window.follow(last, size);
        }
        let first = first?;
        following.verified = last; // what joined the log was checked against its predecessor there
        effects.trace.push(Trace::GapClosed { first, last });
        Some(last)
    }

    /// How many of these entries the log has room for: that prefix is taken. Otherwise a batch larger than the room
    /// that there ever is at once would be sent and refused again and again.
    fn fitting(&self, entries: &[Entry]) -> usize {
        let mut room = self.log_space;
        let fits = |entry: &&Entry| {
            let rest = room.checked_sub(entry.len() as u64);
            room = rest.unwrap_or(0);
            rest.is_some()
        };
        entries.iter().take_while(fits).count()
    }

    /// The gap at `named`, which is not in the log, with the hint that skips terms. [L4]
    fn gap(&self, named: EntryId) -> Gap {
        Gap { prev: named.index, hint: self.log.largest_at_most(named), last: self.log.last().index }
    }

    /// The bytes of entries that there is room for, or `PLENTY` if they cannot hold up a leader that sends as many at
    /// once as this peer would. A sixteenth of the log's space is left out, in whole pages: blocks are padded, and the
    /// end of a segment may stay empty, so many entries take more space than their bytes. Room that is announced and
    /// does not exist costs a fallback, with everything in flight.
    fn room(&self) -> Room {
        let plenty = (self.own_settings.limits().inflight_bytes_max as u64).saturating_mul(4);
        const PAGE: u64 = 4096;
        let apply = self.room_before_backlog().map_or(u64::MAX, |bytes| bytes as u64);
        let log = self.log_space - self.log_space / 16 / PAGE * PAGE;
        match log.min(apply) {
            space if space < plenty => Room(space),
            _ => Room::PLENTY,
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
    /// disk is: the answer covers what is durable, and a slow disk does not look like a dead member.
    pub(crate) fn owe(&mut self, upto: LogIndex, heartbeat: bool) {
        let durable = self.acknowledgeable();
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        following.pending_ack.now |= heartbeat || upto <= durable;
        following.pending_ack.upto = following.pending_ack.upto.max(upto);
    }

    /// The end of what may be acknowledged: it agrees with the leader *and* is on this disk. [O1]
    fn acknowledgeable(&self) -> LogIndex {
        if self.needs_snapshot() {
            return LogIndex(0); // its log lacks the snapshot that it begins after
        }
        self.verified().min(self.marks.persisted)
    }

    /// Sends the pending acknowledgement if it has news: the disk has come far enough, an append asked for an answer at
    /// once, or there is room again. [L6]
    pub(crate) fn acknowledge(&mut self, now: Instant, effects: &mut Effects) {
        let upto = self.acknowledgeable();
        let (verified, room) = (self.verified(), self.room());
        let received = match self.config.policies.weak {
            Weak::Receipt if !self.needs_snapshot() => verified.max(upto),
            Weak::Off | Weak::Gap | Weak::Receipt => upto,
        };
        if !self.durability.hard_state_is_durable() {
            return; // tried again when the term is on disk
        }
        let batch = self.own_settings.limits().batch_bytes_max as u64;
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        let Following { leader, last_contact, ref mut pending_ack, .. } = *following;
        let moment = last_contact.map_or(now, |heard| heard.max(now)); // not before the contact that is acknowledged, even if `now` is
        // Twice as much each time, so that room that comes back in small pieces is not announced piece by piece.
        let is_short = pending_ack.room.0 < batch;
        let has_room_again = is_short && pending_ack.room.0.saturating_mul(2) < room.0;
        let is_durable = pending_ack.acked < pending_ack.upto && pending_ack.acked < upto;
        let is_news = is_durable || pending_ack.received.max(upto) < received;
        if !pending_ack.now && !is_news && !has_room_again {
            return;
        }
        pending_ack.now = false;
        pending_ack.acked = upto.max(pending_ack.acked);
        (pending_ack.received, pending_ack.room) = (received, room);
        let gap = pending_ack.gap.take().filter(|gap| verified < gap.prev); // later appends may have filled it
        let (round, bulk) = (pending_ack.round, pending_ack.bulk);
        let early = following.window.runs(RUNS_MAX);
        let (vote_hold, disk) = (self.own_vote_hold(), self.disk_time);
        let clock = self.own_clock(moment);
        let reply = AppendReply { round, vote_hold, clock, disk, bulk, upto, gap, room, received, early };
        effects.send.push(self.envelope(leader, Message::AppendReply(reply)));
    }

    /// Whether the entries follow `prev` without gaps, in terms that never fall and are not of the future, and come with
    /// whole payloads. Whether these can be read is another question.
    fn is_well_formed(&self, append: &Append) -> bool {
        let mut prev = append.prev;
        append.entries.iter().all(|entry| {
            let id = entry.id();
            let follows = id.index == prev.index.next() && prev.term <= id.term && id.term <= self.term;
            let payload = match entry.body() {
                Body::Whole(payload) => payload,
                Body::Shard { .. } | Body::Missing => return false, // leaders send no other form yet
            };
            let is_group = match entry.head.kind {
                EntryKind::Config => Membership::decode(payload).is_ok_and(|(new, _)| !new.is_empty()),
                EntryKind::Noop | EntryKind::Command => true,
            };
            prev = id;
            follows && is_group
        })
    }
}

/// The outcome of an append.
struct Taken {
    /// The logs agree up to here, if anywhere.
    upto: Option<LogIndex>,
    /// The part of it that could not be taken.
    gap: Option<Gap>,
    /// Some of it is kept in the window.
    keeps: bool,
}

impl Taken {
    /// The logs agree up to here.
    fn agreeing(upto: LogIndex) -> Taken {
        Taken { upto: Some(upto), gap: None, keeps: false }
    }

    /// Nothing could be taken.
    fn lacking(gap: Gap) -> Taken {
        Taken { upto: None, gap: Some(gap), keeps: false }
    }
}
