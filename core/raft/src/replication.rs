//! Replication: how a leader's log becomes everybody's.
//!
//! In:    proposals in the log, appends, their answers, entries read back, broken links.
//! Out:   appends, acknowledgements, truncations.
//! Rules: [replication-protocols L1–L7, B1–B8; Ongaro14 §3.5, §10.2]
//!   1. A follower appends only after an entry it shares with the leader; what it then holds up to the end of the
//!      message is `verified`, and only that can be acknowledged or committed.
//!   2. Identical entries are skipped and never truncate: a late duplicate must not cut off what was acknowledged.
//!   3. An acknowledgement says what is durable *and* verified; it is a function of the follower's state, so one
//!      answers any number of appends.
//!   4. A mismatch carries a hint in terms, so that each side skips a whole term per round trip.
//!
//! Knows nothing of: elections, what entries mean, where fetched entries come from.

use crate::config::Config;
use crate::contract::{Effects, Fetch, FetchFor};
use crate::entry::{Entry, Form};
use crate::log::Log;
use crate::marks::Marks;
use crate::message::{
    Append, AppendReply, AppendVerdict, Envelope, Message, PreVoteReply, ReadIndexReply, VoteReply,
};
use crate::policy::{Coding, Intake, Route, Trust};
use crate::progress::{Mode, Progress};
use crate::raft::{Raft, planted};
use crate::role::{Following, Leader, Owes, Role};
use crate::trace::Trace;
use crate::types::{EntryId, Incarnation, Instant, LogIndex, NodeId, Round, Term};
use alloc::vec::Vec;

/// What a leader reads of its peer while it writes to its peers' progress.
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) term: Term,
    pub(crate) log: &'a Log,
    pub(crate) marks: &'a Marks,
}

impl View<'_> {
    /// Last index that may be sent: all of the log, or what is on the own disk. [B7]
    fn send_limit(&self) -> LogIndex {
        match self.config.parallel_append {
            true => self.log.last().index,
            false => self.marks.persisted,
        }
    }

    /// A message of this leader.
    pub(crate) fn envelope(&self, to: NodeId, message: Message) -> Envelope {
        let Config { group, id, incarnation, .. } = *self.config;
        Envelope { group, from: id, incarnation, to, term: self.term, message }
    }

    /// Sends entries from `progress.next` on; notes what that tells the peer.
    fn send_entries(
        &self,
        peer: NodeId,
        progress: &mut Progress,
        round: Round,
        now: Instant,
        entries: Vec<Entry>,
    ) -> Envelope {
        let prev = self.log.id_at(progress.next.previous());
        let last = LogIndex(prev.index.0 + entries.len() as u64);
        progress.sent(now, last, entries.iter().map(Entry::len).sum());
        progress.told_commit = progress.told_commit.max(self.marks.committed);
        self.envelope(peer, Message::Append(Append { prev, entries, commit: self.marks.committed, round }))
    }

    /// Sends an append without entries: a heartbeat, a read round, news of the commit index. These have a lane of
    /// their own and may overtake entries. [B12]
    pub(crate) fn send_empty(
        &self,
        peer: NodeId,
        progress: &mut Progress,
        round: Round,
        now: Instant,
    ) -> Envelope {
        let prev = self.log.id_at(progress.heartbeat_prev(now, self.config));
        progress.told_commit = progress.told_commit.max(self.marks.committed);
        let append = Append { prev, entries: Vec::new(), commit: self.marks.committed, round };
        self.envelope(peer, Message::Append(append))
    }
}

impl Raft {
    /// The leader's state beside what it reads to serve its peers; nothing in other roles.
    pub(crate) fn leading(&mut self) -> Option<(&mut Leader, View<'_>, &mut Vec<Fetch>)> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let view = View { config: &self.config, term: self.term, log: &self.log, marks: &self.marks };
        Some((leader, view, &mut self.fetches))
    }

    /// Sends every peer what it lacks, as far as its limits allow. [B4, B5]
    pub(crate) fn replicate(&mut self, now: Instant, effects: &mut Effects) {
        let Some((leader, view, fetches)) = self.leading() else { return };
        match view.config.policies.route {
            Route::Direct => {
                for (&peer, progress) in &mut leader.peers {
                    fill(peer, progress, leader.round, &view, now, fetches, effects);
                }
            }
        }
    }

    /// Tells peers that wait for the commit index of its move at once, and the others after a while, with whatever
    /// goes to them first.
    pub(crate) fn tell_waiting_peers(&mut self, now: Instant, effects: &mut Effects) {
        let Some((leader, view, _)) = self.leading() else { return };
        let committed = view.marks.committed;
        let mut all_told = true;
        for (&peer, progress) in &mut leader.peers {
            let untold = progress.told_commit < committed;
            if untold && progress.told_commit < progress.wants_commit {
                effects.send.push(view.send_empty(peer, progress, leader.round, now));
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

    /// Nothing was sent to some peers since the commit index moved: they are told now.
    pub(crate) fn tick_commit_notices(&mut self, now: Instant, effects: &mut Effects) {
        let Some((leader, view, _)) = self.leading() else { return };
        if now < leader.notice_at {
            return;
        }
        leader.notice_at = Instant::NEVER;
        for (&peer, progress) in &mut leader.peers {
            if progress.told_commit < view.marks.committed {
                effects.send.push(view.send_empty(peer, progress, leader.round, now));
            }
        }
    }

    /// Heartbeats: keep followers from campaigning, find lost messages, repeat lost rounds.
    pub(crate) fn tick_heartbeat(&mut self, now: Instant, effects: &mut Effects) {
        let Some((leader, view, _)) = self.leading() else { return };
        if now < leader.heartbeat_at {
            return;
        }
        leader.heartbeat_at = now + view.config.heartbeat_interval;
        leader.round = leader.round.next();
        for (&peer, progress) in &mut leader.peers {
            effects.send.push(view.send_empty(peer, progress, leader.round, now));
        }
    }

    /// `peer` waits for what is in the log now: while it does, every move of the commit index is told to it with the
    /// next [`Raft::drained`]. Without effect on a peer that does not lead.
    pub fn notify_commit(&mut self, peer: NodeId) {
        let last = self.log.last().index;
        let Role::Leader(leader) = &mut self.role else { return };
        if let Some(progress) = leader.peers.get_mut(&peer) {
            progress.wants_commit = last;
        }
    }

    /// The link to `peer` is gone: what was on its way may be lost, so replication to it starts over from what is
    /// known to agree.
    pub fn link_closed(&mut self, _now: Instant, peer: NodeId, _effects: &mut Effects) {
        let Role::Leader(leader) = &mut self.role else { return };
        if let Some(progress) = leader.peers.get_mut(&peer) {
            progress.probe(LogIndex(0));
        }
    }

    /// Entries for a peer behind the window have been read. The world may have moved meanwhile: only entries that
    /// are still in the log and next for the peer are sent.
    pub(crate) fn fetched_for_peer(
        &mut self,
        now: Instant,
        peer: NodeId,
        first: LogIndex,
        mut entries: Vec<Entry>,
        effects: &mut Effects,
    ) {
        let Some((leader, view, _)) = self.leading() else { return };
        let Some(progress) = leader.peers.get_mut(&peer) else { return };
        let expected = (progress.next.0..).zip(&entries);
        let agreeing = expected.take_while(|(index, entry)| {
            entry.id().index.0 == *index
                && view.log.holds(entry.id())
                && entry.id().index <= view.send_limit()
        });
        let agreeing = agreeing.count().min(view.config.limits.batch_entries_max.max(1));
        entries.truncate(agreeing);
        if entries.is_empty() && first == progress.next {
            progress.paused_until = now + view.config.heartbeat_interval;
        }
        if !entries.is_empty() && progress.credit(now, view.config).is_some() {
            effects.send.push(view.send_entries(peer, progress, leader.round, now, entries));
        }
    }

    /// What a peer made of an append. Every answer of this term shows that it follows; duplicates are free.
    pub(crate) fn on_append_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        incarnation: Incarnation,
        reply: AppendReply,
        effects: &mut Effects,
    ) {
        let Some((leader, view, _)) = self.leading() else { return };
        let Some(progress) = leader.peers.get_mut(&from) else { return };
        if *progress.incarnation.get_or_insert(incarnation) != incarnation {
            return; // a second life cannot answer for what the first one stored
        }
        progress.heard_at = progress.heard_at.max(now);
        match reply.verdict {
            AppendVerdict::Match { upto } => {
                let last = view.log.last();
                assert!(upto <= last.index, "{from:?} acknowledges {upto:?} of a log up to {last}");
                progress.heard_round = progress.heard_round.max(reply.round);
                if progress.on_match(now, upto, view.config) {
                    self.advance_commit_as_leader(now, effects);
                }
            }
            AppendVerdict::Mismatch { prev, hint, last: _ } => {
                progress.heard_round = progress.heard_round.max(reply.round);
                if progress.believes_mismatch_at(prev) {
                    let agreeing = view.log.largest_at_most(hint);
                    progress.probe(agreeing.index.next().min(prev));
                }
            }
            AppendVerdict::Busy => {
                progress.heard_round = progress.heard_round.max(reply.round);
                progress.pause(now + view.config.heartbeat_interval);
            }
            // Said to an earlier leadership of this peer, whose rounds were counted apart.
            AppendVerdict::StaleTerm => {}
        }
        self.settle_read_round(effects);
    }

    /// Answers a message of an older term, so that its sender learns the newer one. [E5]
    pub(crate) fn answer_stale(&mut self, from: NodeId, message: Message, effects: &mut Effects) {
        let reply = match message {
            Message::Append(_) => {
                Message::AppendReply(AppendReply { round: Round(0), verdict: AppendVerdict::StaleTerm })
            }
            Message::PreVote(request) => {
                Message::PreVoteReply(PreVoteReply { campaign_term: request.campaign_term, granted: false })
            }
            Message::Vote(_) => Message::VoteReply(VoteReply { granted: false }),
            Message::ReadIndex(request) => {
                Message::ReadIndexReply(ReadIndexReply { batch: request.batch, index: None })
            }
            Message::AppendReply(_)
            | Message::PreVoteReply(_)
            | Message::VoteReply(_)
            | Message::ReadIndexReply(_) => return,
        };
        self.send_when_durable(self.envelope(from, reply), effects);
    }

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
            Ok(upto) => self.owe(upto, heartbeat),
            Err(verdict) => {
                let reply = Message::AppendReply(AppendReply { round, verdict });
                self.send_when_durable(self.envelope(from, reply), effects);
            }
        }
        self.advance_commit_as_follower(now, effects);
    }

    /// Follows `leader`, restarts the timer.
    fn follow(&mut self, now: Instant, leader: NodeId, effects: &mut Effects) {
        let Role::Follower(follower) = &self.role else { unreachable!("step() made a follower of us") };
        match &follower.following {
            Some(following) => {
                let known = following.leader;
                assert_eq!(known, leader, "two leaders in {:?} [Election Safety]", self.term);
            }
            None => {
                let timer = self.election_timer(now);
                let verified = self.marks.committed; // Leader Completeness: every leader holds what is committed
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
        }
    }

    /// Brings the log in line with the append; the end of what now agrees, or why nothing was taken.
    fn take_in(&mut self, append: Append, effects: &mut Effects) -> Result<LogIndex, AppendVerdict> {
        let Append { mut prev, mut entries, .. } = append;
        let end = LogIndex(prev.index.0 + entries.len() as u64);
        let committed = self.marks.committed;
        if end <= committed {
            return Ok(end); // identical by Leader Completeness [L2]
        }
        if prev.index < committed {
            entries.drain(..(committed.0 - prev.index.0) as usize);
            prev = self.log.id_at(committed);
        }
        if !self.log.holds(prev) {
            return match self.config.policies.intake {
                Intake::Strict => Err(self.mismatch(prev)),
            };
        }
        let known = entries.iter().take_while(|entry| self.log.holds(entry.id())).count();
        let new_bytes: usize = entries[known..].iter().map(Entry::len).sum();
        if known < entries.len() {
            if new_bytes as u64 > self.log_space || self.apply_is_backlogged() {
                return Err(AppendVerdict::Busy);
            }
            let first_new = LogIndex(prev.index.0 + 1 + known as u64);
            if first_new <= self.log.last().index {
                let verified = self.verified();
                assert!(verified < first_new, "{first_new:?} contradicts what agreed up to {verified:?}");
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

    /// The answer to a previous entry that is not in the log, with the hint that skips terms. [L4]
    fn mismatch(&self, prev: EntryId) -> AppendVerdict {
        AppendVerdict::Mismatch {
            prev: prev.index,
            hint: self.log.largest_at_most(prev),
            last: self.log.last().index,
        }
    }

    /// Highest index known equal to the leader's log. [replication-protocols §1.1]
    pub(crate) fn verified(&self) -> LogIndex {
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
    fn owe(&mut self, upto: LogIndex, heartbeat: bool) {
        let durable = self.acknowledgeable();
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        following.owes.now |= heartbeat || upto <= durable;
        following.owes.upto = following.owes.upto.max(upto);
    }

    /// What an acknowledgement may cover: what agrees with the leader *and* is on this disk. [O1]
    fn acknowledgeable(&self) -> LogIndex {
        if planted!(self, "acknowledge-before-sync") {
            return self.verified();
        }
        self.verified().min(self.marks.persisted)
    }

    /// Sends the acknowledgement owed, if the disk has come far enough for it to say anything. [L6]
    pub(crate) fn acknowledge(&mut self, effects: &mut Effects) {
        let upto = self.acknowledgeable();
        if !self.durability.hard_state_is_durable() {
            return; // asked again when the term is on disk
        }
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        let Following { leader, ref mut owes, .. } = *following;
        let Owes { round, now, upto: owed, acked } = *owes;
        if !now && (owed <= acked || upto <= acked) {
            return;
        }
        owes.now = false;
        owes.acked = upto.max(acked);
        let reply = AppendReply { round, verdict: AppendVerdict::Match { upto } };
        effects.send.push(self.envelope(leader, Message::AppendReply(reply)));
    }
}

/// Sends one peer what it lacks until its credit, the batch or the window ends.
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
    let last = view.send_limit();
    while progress.next <= last
        && let Some(credit) = progress.credit(now, view.config)
    {
        let bytes_max = credit.min(limits.batch_bytes_max);
        let window_first = view.log.window_first();
        if progress.next < window_first {
            let purpose = FetchFor::Peer(peer);
            if !fetches.iter().any(|fetch| fetch.purpose == purpose) {
                let last = last.min(window_first.previous());
                let fetch = Fetch { purpose, first: progress.next, last, bytes_max };
                fetches.push(fetch.clone());
                effects.fetch.push(fetch);
            }
            return;
        }
        let entries = view.log.batch(progress.next, last, bytes_max, limits.batch_entries_max);
        let too_large = entries.first().is_none_or(|entry| entry.len() > credit) && !progress.is_idle();
        if too_large {
            return; // one entry of any size passes, but alone
        }
        let entries = match view.config.policies.coding {
            Coding::Whole => entries,
        };
        effects.send.push(view.send_entries(peer, progress, round, now, entries));
        if matches!(progress.mode, Mode::Probe { .. }) {
            return;
        }
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
        prev = id;
        follows && form_fits
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
        }
    }
}
