//! Replication: how a leader brings its log to its peers.
//!
//! In:    proposals in the log, answers to appends, entries read back, broken links.
//! Out:   appends: entries, heartbeats, commit notices.
//! Rules: [replication-protocols L4, L7, B1–B7; Ongaro14 §3.5, §10.2]
//!   1. Entries that queue while earlier appends are in flight form the next ones; no timer makes batches.
//!   2. Entries in flight are limited per peer in messages and in bytes; heartbeats are not, so that a lost answer
//!      cannot wedge a peer.
//!   3. Appends that overtake entries (heartbeats, read rounds, commit notices) ask about nothing in flight. Questions
//!      about entries in flight travel behind them. [`crate::flow`]
//!   4. A hint in terms moves `next` back a whole term per round trip.
//!   5. A peer behind the recent entries is fed from the log on disk, one read at a time.
//!
//! Knows nothing of: elections, commands, disks.

use crate::clocks::Heartbeats;
use crate::config::Config;
use crate::contact::Origin;
use crate::contract::{Effects, Fetch, FetchFor};
use crate::distrust::Falsehood;
use crate::entry::Entry;
use crate::flow::Mode;
use crate::leading::{Leading, View};
use crate::message::{
    Append, AppendReply, Envelope, Gap, Lost, Message, PreVote, PreVoteReply, ReadIndexReply, Run, StaleTerm,
    VoteReply,
};
use crate::policy::Intake;
use crate::progress::Progress;
use crate::raft::Raft;
use crate::received::Holds;
use crate::role::Leader;
use crate::snapshot::{Stream, pump};
use crate::trace::Trace;
use crate::types::{EntryId, Incarnation, Instant, LogIndex, NodeId, Round};
use alloc::vec::Vec;

impl View<'_> {
    /// Last index that may be sent: the end of the log, or of what is on the leader's own disk. [B7]
    fn send_limit(&self) -> LogIndex {
        match self.config.parallel_append {
            true => self.log.last().index,
            false => self.marks.persisted,
        }
    }

    /// The same for one peer: not beyond its window, if it has one and follows the log. [W9]
    fn send_limit_of(&self, progress: &Progress) -> LogIndex {
        match (self.config.policies.intake, &progress.flow.mode) {
            (Intake::Window(size), Mode::Replicate) => {
                self.send_limit().min(LogIndex(progress.matched.0.saturating_add(size.entries.into())))
            }
            (Intake::Strict | Intake::Window(_), _) => self.send_limit(),
        }
    }

    /// Whether an answer counts: a new incarnation of a peer cannot answer for what the former one stored. A learner's
    /// newest incarnation counts, from nothing on, and never again one before it; a voter has one for the whole term.
    /// [fault-model NT5]
    pub(crate) fn is_of_its_life(
        &self,
        now: Instant,
        peer: NodeId,
        progress: &mut Progress,
        incarnation: Incarnation,
    ) -> bool {
        if progress.life.begins_anew(incarnation, self.membership.learners.contains(&peer)) {
            progress.begin_life(now, incarnation, self.log.last().index);
        }
        progress.life.is_of(incarnation)
    }

    /// Sends entries from `progress.next` on, and notes them as sent.
    fn send_entries(
        &self,
        peer: NodeId,
        progress: &mut Progress,
        round: Round,
        now: Instant,
        entries: Vec<Entry>,
    ) -> Envelope {
        let prev = self.log.id_at(progress.flow.next.previous());
        let last = LogIndex(prev.index.0 + entries.len() as u64);
        progress.flow.sent(now, prev.index, last, entries.iter().map(Entry::len).sum());
        self.append(peer, progress, prev, entries, round, false)
    }

    /// Sends an append without entries: a heartbeat, a read round, a commit notice. These have a lane of their own and
    /// may overtake entries, so they name a position that is known to agree, and no entry in flight. [B12]
    pub(crate) fn send_empty(&self, peer: NodeId, progress: &mut Progress, round: Round) -> Envelope {
        self.append(peer, progress, self.known(progress.matched), Vec::new(), round, false)
    }

    /// Sends a peer a question, behind the entries, about their outcome.
    fn send_question(&self, peer: NodeId, progress: &mut Progress, round: Round, now: Instant) -> Envelope {
        let prev = self.known(progress.flow.ask(now));
        self.append(peer, progress, prev, Vec::new(), round, true)
    }

    fn append(
        &self,
        peer: NodeId,
        progress: &mut Progress,
        prev: EntryId,
        entries: Vec<Entry>,
        round: Round,
        tail: bool,
    ) -> Envelope {
        let commit = self.marks.committed;
        progress.commit_sent = progress.commit_sent.max(commit);
        self.envelope(peer, Message::Append(Append { prev, entries, commit, round, tail }))
    }

    /// The id of a position. Before the log's base it is the position before all logs, which every peer holds.
    fn known(&self, index: LogIndex) -> EntryId {
        match index < self.log.base().index {
            true => EntryId::default(),
            false => self.log.id_at(index),
        }
    }

    /// The position that a peer has acknowledged, given its index. If the log begins later, its base: that is
    /// committed, and so every log will contain it.
    fn acknowledged(&self, matched: LogIndex) -> EntryId {
        self.log.id_at(matched.max(self.log.base().index))
    }

    /// Reports to a peer that its disk has lost entries, as long as the peer lacks them. [`crate::vote_floor`]
    fn tell_of_loss(&self, peer: NodeId, progress: &Progress, effects: &mut Effects) {
        if let Some(upto) = progress.life.lost_tail() {
            effects.send.push(self.envelope(peer, Message::Lost(Lost { upto })));
        }
    }
}

impl Leader {
    /// When the next peer is to be asked for the outcome of its entries, or gets some of them again.
    pub(crate) fn questions_at(&self, config: &Config) -> Instant {
        let asks = |progress: &Progress| {
            progress.flow.question_at(config).min(progress.flow.repair_at(progress.matched))
        };
        self.peers.values().map(asks).min().unwrap_or(Instant::NEVER)
    }
}

impl Leader {
    /// Whether the group is at rest: every peer has answered the newest round, over a link that has not broken since, holds the
    /// whole log and was told that all of it is committed; no read waits, and no transfer or change of voters is under way. Never
    /// where leases are on: heartbeats renew them, and their lateness shows that the process slept. [replication-protocols E9, L-8]
    fn rests(&self, view: &View<'_>) -> bool {
        let last = view.log.last().index;
        let is_done = |progress: &Progress| {
            matches!(progress.flow.mode, Mode::Replicate)
                && progress.matched == last
                && progress.commit_sent == last
                && progress.liveness.contact_round() == self.round
        };
        view.config.leadership.leader_lease.is_none()
            && view.marks.committed == last
            && !view.membership.is_joint()
            && self.transfer.is_none()
            && self.reads.is_empty()
            && self.peers.values().all(is_done)
    }
}

impl Leading<'_> {
    /// Sends every peer the entries it lacks, as far as its limits allow. [B4, B5]
    pub(crate) fn replicate(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, fetches } = self;
        for (&peer, progress) in &mut leader.peers {
            fill(peer, progress, leader.round, view, now, fetches, effects);
        }
    }

    /// Sends a new commit index at once to the peers that wait for it, and to the others after a while, or with the
    /// next message to them.
    pub(crate) fn tell_waiting_peers(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        let committed = view.marks.committed;
        let mut all_told = true;
        for (&peer, progress) in &mut leader.peers {
            let untold = progress.commit_sent < committed;
            if untold && progress.commit_sent < progress.wants_commit {
                effects.send.push(view.send_empty(peer, progress, leader.round));
            } else if untold {
                all_told = false;
            }
        }
        if all_told {
            leader.notice_at = Instant::NEVER;
        } else if leader.notice_at == Instant::NEVER {
            leader.notice_at = now + view.config.heartbeat_interval / 10;
        }
    }

    /// Sends the commit index to the peers that got no message since it moved.
    pub(crate) fn tick_commit_notices(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        if now < leader.notice_at {
            return;
        }
        leader.notice_at = Instant::NEVER;
        for (&peer, progress) in &mut leader.peers {
            if progress.commit_sent < view.marks.committed {
                effects.send.push(view.send_empty(peer, progress, leader.round));
            }
        }
    }

    /// Sends a question to the peers that have not answered for longer than a round trip takes.
    pub(crate) fn tick_questions(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        for (&peer, progress) in &mut leader.peers {
            if progress.flow.question_at(view.config) <= now {
                effects.send.push(view.send_question(peer, progress, leader.round, now));
            }
        }
    }

    /// Heartbeats: keep followers from campaigning, repeat lost rounds. Further apart at rest. [E9]
    pub(crate) fn tick_heartbeat(&mut self, now: Instant, effects: &mut Effects) {
        let Leading { leader, view, .. } = self;
        if now < leader.heartbeat_at {
            return;
        }
        let pause = if leader.rests(view) {
            view.config.timing().rest_interval()
        } else {
            view.config.heartbeat_interval
        };
        leader.heartbeat_at = now + pause;
        leader.round = leader.round.next();
        leader.lease.stamp(leader.round, now);
        if view.config.leadership.leader_lease.is_some_and(|lease| lease.watch_clocks) {
            leader.heartbeats.note(leader.round, now);
        }
        for (&peer, progress) in &mut leader.peers {
            let is_behind = progress.is_behind(view.log.recent_first());
            progress.liveness.is_asked_round(leader.round, is_behind);
            effects.send.push(view.send_empty(peer, progress, leader.round));
            view.tell_of_loss(peer, progress, effects);
        }
        self.part_with_peers();
    }

    /// Entries for a peer behind the recent ones have been read. The state may have changed meanwhile: only entries
    /// that are still in the log and next for the peer are sent.
    pub(crate) fn fetched_for_peer(
        &mut self,
        now: Instant,
        peer: NodeId,
        first: LogIndex,
        mut entries: Vec<Entry>,
        effects: &mut Effects,
    ) {
        let Leading { leader, view, .. } = self;
        let Some(progress) = leader.peers.get_mut(&peer) else { return };
        view.begin_snapshot_if_behind(now, progress);
        if matches!(progress.flow.mode, Mode::Snapshot(_)) {
            return pump(peer, progress, view, now, effects);
        }
        let expected = (progress.flow.next.0..).zip(&entries);
        let agreeing = expected.take_while(|(index, entry)| {
            entry.id().index.0 == *index
                && view.log.holds(entry.id())
                && entry.id().index <= view.send_limit()
        });
        let agreeing = agreeing.count().min(view.config.batch_entries());
        entries.truncate(agreeing);
        let credit = progress.flow.credit(now, view.config);
        let has_room = entries.first().is_some_and(|entry| progress.flow.has_room_for(entry.len()));
        if !has_room && first == progress.flow.next {
            // Otherwise they would be read again at once.
            match entries.first() {
                Some(entry) => progress.flow.wait_for_room(entry.len()),
                None => progress.flow.pause(now + view.config.heartbeat_interval),
            }
        }
        if has_room && credit.is_some() {
            effects.send.push(view.send_entries(peer, progress, leader.round, now, entries));
        }
    }

    /// Takes what a peer's answer says of its log, its room and itself. True if more of the log agrees than was known;
    /// `None` if the answer does not count.
    fn take_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        incarnation: Incarnation,
        reply: &AppendReply,
        effects: &mut Effects,
    ) -> Option<bool> {
        let Leading { leader, view, .. } = self;
        let round = leader.round;
        let progress = leader.peers.get_mut(&from)?;
        if !view.is_of_its_life(now, from, progress, incarnation) {
            return None;
        }
        if let Some(falsehood) = view.falsehood_in(reply, round) {
            Raft::distrust(from, falsehood, effects);
            return None;
        }
        let runs_apart = view.note_liveness(now, from, progress, reply, &leader.heartbeats, effects);
        let (matched, news) = (progress.matched, view.note_match(now, progress, reply, round));
        let fills_lane = reply.gap.is_some_and(|gap| {
            view.note_gap(now, from, progress, gap, (matched, reply.round, round), effects)
        });
        if runs_apart {
            leader.lease.end();
        }
        if fills_lane {
            leader.round = round.next();
        }
        Some(news)
    }
}

impl View<'_> {
    /// Why an answer is impossible, if it is: it acknowledges an entry that this leader does not have, or answers a
    /// round after the newest one. [`crate::distrust`]
    fn falsehood_in(&self, reply: &AppendReply, newest: Round) -> Option<Falsehood> {
        let round = reply.round.max(reply.bulk);
        let highest =
            reply.early.iter().map(|run| run.last).fold(reply.upto.max(reply.received), LogIndex::max);
        if self.log.last().index < highest {
            return Some(Falsehood::BeyondLog(highest));
        }
        (newest < round).then_some(Falsehood::RoundAhead(round))
    }

    /// What an answer shows of the peer itself. True if it proves that its clock and the leader's run apart: then the
    /// lease ends.
    fn note_liveness(
        &self,
        now: Instant,
        from: NodeId,
        progress: &mut Progress,
        reply: &AppendReply,
        heartbeats: &Heartbeats,
        effects: &mut Effects,
    ) -> bool {
        progress.liveness.hear(now);
        progress.liveness.disk = reply.disk;
        if progress.liveness.note_vote_hold(reply.round, reply.vote_hold, self.config) {
            effects.trace.push(Trace::LeaderLeaseDenied { peer: from, vote_hold: reply.vote_hold });
        }
        let gains = progress.liveness.gauge.judge(now, from, reply, heartbeats, self);
        effects.trace.extend(gains.map(|gains| Trace::ClocksApart { peer: from, gains }));
        progress.liveness.answer(reply.round);
        gains.is_some()
    }

    /// How far an answer says that the logs agree, and the room that it announces. True if more agrees than was known.
    fn note_match(&self, now: Instant, progress: &mut Progress, reply: &AppendReply, newest: Round) -> bool {
        progress.flow.on_read(now, reply.bulk, reply.room);
        let news = progress.on_match(now, reply.upto, newest);
        progress.flow.on_early(&reply.early, progress.matched);
        progress.end_snapshot(now, reply.upto, self.log.base().index, self.snapshot);
        let last = self.log.last().index;
        progress.life.note_catch_up(now, progress.matched, last, self.config.election_timeout);
        news
    }

    /// The peer lacks a position: entries that are on their way, or were lost with a link or a disk, or were never
    /// there. `matched` was known to agree before the answer to `round`; `newest` is the newest round. True if the next
    /// round begins, because entries that were written off fill the lane.
    fn note_gap(
        &self,
        now: Instant,
        from: NodeId,
        progress: &mut Progress,
        gap: Gap,
        (matched, round, newest): (LogIndex, Round, Round),
        effects: &mut Effects,
    ) -> bool {
        let base = self.log.base();
        if progress.has_lost(gap, round) && progress.owe(self.acknowledged(matched)) {
            let last = gap.last.min(gap.prev.previous());
            effects.trace.push(Trace::LostMatch { peer: from, matched, last });
            self.tell_of_loss(from, progress, effects);
        }
        let lost = progress.on_loss(gap, round);
        if !lost && !progress.flow.believes(gap.prev, progress.matched) {
            return false; // an answer to an earlier question
        }
        if progress.matched < base.index && (gap.hint.index < base.index || gap.hint.term < base.term) {
            progress.begin_snapshot(Stream::new(self.snapshot, now)); // the logs differ before this log begins
            pump(from, progress, self, now, effects);
            return false;
        }
        let agreeing = self.log.largest_at_most(gap.hint).index;
        progress.on_gap(now, gap, agreeing, newest)
    }
}

impl Raft {
    /// `peer` waits for the commit of all entries that are in the log now: until then it gets every new commit index
    /// with the next [`Raft::drained`]. No effect unless this peer leads.
    pub fn notify_commit(&mut self, peer: NodeId) {
        let last = self.log.last().index;
        let Some(leader) = self.role.leader_mut() else { return };
        if let Some(progress) = leader.peers.get_mut(&peer) {
            progress.wants_commit = last;
        }
    }

    /// Messages in flight to `peer`, or from it, may be lost: it is asked soon.
    pub(crate) fn ask_soon(&mut self, now: Instant, peer: NodeId) {
        let config = &self.config;
        let Some(leader) = self.role.leader_mut() else { return };
        if let Some(progress) = leader.peers.get_mut(&peer) {
            progress.link_closed(now, config);
            leader.stir(now, config);
        }
    }

    /// A peer's answer to an append. Every answer of this term shows that the peer follows; duplicates do no harm.
    pub(crate) fn on_append_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        incarnation: Incarnation,
        reply: &AppendReply,
        effects: &mut Effects,
    ) {
        let Some(mut leading) = self.leading() else { return };
        let Some(news) = leading.take_reply(now, from, incarnation, reply, effects) else { return };
        if news {
            self.advance_commit_as_leader(now, effects);
        }
        let Some(mut leading) = self.leading() else { return }; // it resigns if that committed its removal
        leading.note_holds(from, Holds { upto: reply.received, runs: reply.early.clone() }, effects);
        leading.settle_read_round(effects);
        leading.ask_round_left_out(from, effects);
        leading.extend_lease();
        leading.advance_transfer(effects);
    }

    /// Answers a message of an older term, so that its sender learns the newer one; a leader's message, so that the
    /// leader does, over whichever path it came. [E5, K4]
    pub(crate) fn answer_stale(&mut self, origin: Origin, message: Message, effects: &mut Effects) {
        let mut to = origin.sender;
        let reply = match message {
            Message::Append(_) | Message::SnapshotChunk(_) | Message::Lost(_) => {
                to = origin.leader;
                Message::StaleTerm(StaleTerm)
            }
            Message::PreVote(request) => {
                let PreVote { campaign_term, round, .. } = request;
                Message::PreVoteReply(PreVoteReply { campaign_term, granted: false, round })
            }
            Message::Vote(_) => Message::VoteReply(VoteReply { granted: false, last: EntryId::default() }),
            Message::ReadIndex(request) => {
                Message::ReadIndexReply(ReadIndexReply { batch: request.batch, index: None })
            }
            Message::AppendReply(_)
            | Message::PreVoteReply(_)
            | Message::VoteReply(_)
            | Message::ReadIndexReply(_)
            | Message::SnapshotReply(_)
            | Message::StaleTerm(_)
            | Message::TimeoutNow(_)
            | Message::Remind(_)
            | Message::Reminder(_) => return,
        };
        self.send_when_durable(self.envelope(to, reply), effects);
    }
}

/// Sends one peer the entries of a gap again, if that is due. [W8]
fn repair(
    peer: NodeId,
    progress: &mut Progress,
    round: Round,
    view: &View<'_>,
    now: Instant,
    effects: &mut Effects,
) {
    let Some(Run { mut first, last }) = progress.flow.repair(now, progress.matched) else { return };
    if first < view.log.recent_first() {
        return progress.flow.ask_instead(); // its answer shows the gap, and it is fed from the disk
    }
    effects.trace.push(Trace::GapSentAgain { peer, first, last });
    let (bytes_max, entries_max) = (view.config.limits.batch_bytes_max, view.config.batch_entries());
    while first <= last {
        let entries = view.log.batch(first, last, bytes_max, entries_max);
        let prev = view.log.id_at(first.previous());
        first = LogIndex(first.0 + entries.len() as u64);
        progress.flow.repaired(entries.iter().map(Entry::len).sum());
        effects.send.push(view.append(peer, progress, prev, entries, round, false));
    }
}

/// Sends one peer the entries it lacks, until its credit, the batch or the entries in memory end.
fn fill(
    peer: NodeId,
    progress: &mut Progress,
    round: Round,
    view: &View<'_>,
    now: Instant,
    fetches: &mut Vec<Fetch>,
    effects: &mut Effects,
) {
    let limits = &view.config.limits;
    let limit = view.send_limit_of(progress);
    view.begin_snapshot_if_behind(now, progress);
    pump(peer, progress, view, now, effects);
    repair(peer, progress, round, view, now, effects);
    if progress.flow.must_ask(progress.matched, limit) {
        effects.send.push(view.send_question(peer, progress, round, now));
    }
    loop {
        let Some((next, last)) = progress.flow.unsent(limit) else { return };
        let Some(credit) = progress.flow.credit(now, view.config) else { return };
        if progress.flow.skip_early(now) {
            continue;
        }
        let bytes_max = credit.min(limits.batch_bytes_max);
        let recent_first = view.log.recent_first();
        if next < recent_first {
            let purpose = FetchFor::Peer(peer);
            if !fetches.iter().any(|fetch| fetch.purpose == purpose) {
                let last = last.min(recent_first.previous());
                let fetch = Fetch { purpose, first: next, last, bytes_max };
                fetches.push(fetch.clone());
                effects.fetch.push(fetch);
            }
            return;
        }
        let entries = view.log.batch(next, last, bytes_max, view.config.batch_entries());
        if entries.first().is_none_or(|entry| !progress.flow.fits(credit, entry.len())) {
            return; // an entry of any size passes, but alone
        }
        effects.send.push(view.send_entries(peer, progress, round, now, entries));
        if matches!(progress.flow.mode, Mode::Probe { .. }) {
            return;
        }
    }
}
