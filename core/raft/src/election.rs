//! Elections: how a term gets its leader, and how a leader loses its leadership.
//!
//! In:    silence, vote requests and their answers, own votes that became durable, quorums that fell silent.
//! Out:   requests, votes, a role.
//! Rules: [replication-protocols E1–E8; Ongaro14 §3.4, §3.6.1, §4.2.3, §9.6]
//!   1. A campaign needs a quorum of pre-votes first, so a member that was cut off disturbs no leader when it returns.
//!   2. A member that hears a leader ignores requests for votes (stickiness), so a member that hears no leader cannot
//!      depose one that others hear.
//!   3. A leader that a quorum has not answered for an election timeout steps down (check-quorum), so rule 2 ends where
//!      it would do harm. Rules 2 and 3 are one switch; pre-vote goes with them.
//!   4. A vote, also a candidate's own, counts when it is on disk, and goes to a log at least as complete as the
//!      voter's.
//!
//! The newest configuration of the log counts, committed or not, from the moment it is appended (E8, M1).
//! Knows nothing of: commands, reads, clients.

use crate::clocks::Heartbeats;
use crate::config::{Limits, PRIORITY};
use crate::contract::Effects;
use crate::distrust::Falsehood;
use crate::entry::EntryKind;
use crate::forms::Forms;
use crate::leader_lease::LeaderLeaseState;
use crate::log::Log;
use crate::message::{Envelope, Message, PreVote, PreVoteReply, Vote, VoteReply};
use crate::progress::Progress;
use crate::raft::Raft;
use crate::read::ReadQueue;
use crate::received::Reported;
use crate::role::{Campaign, Follower, Leader, Role, Timer};
use crate::suspicion::FastElection;
use crate::trace::Trace;
use crate::types::{Duration, EntryId, Instant, LogIndex, NodeId, Round, Term};
use crate::yielding::Yielding;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Raft {
    /// A timer of random length, drawn anew for every change of role. [E1]
    pub(crate) fn election_timer(&mut self, now: Instant) -> Timer {
        let et = self.config.election_timeout;
        let (later, earlier) = match self.config.leadership.priority {
            _ if !self.config.pre_vote => (Duration::ZERO, Duration::ZERO), // a failed campaign restarts all timers
            low @ ..PRIORITY => (et * u32::from(PRIORITY - low) / u32::from(PRIORITY), Duration::ZERO),
            high => {
                let above = u32::from(high - PRIORITY);
                (Duration::ZERO, et * above * 3 / (u32::from(u8::MAX - PRIORITY) * 4))
            }
        };
        let drawn = self.rng.duration(et + later, et * 2 + later - earlier);
        // A hold granted under a longer election timeout, or by an earlier run, may outlast it. [L-3]
        Timer { started: now, timeout: drawn.max(self.vote_hold.since(now)) }
    }

    /// Whether a request for votes is ignored, its term too, because this peer hears a leader or is bound by a vote
    /// hold. A leader hears itself: check-quorum ensures that this is true. [E3]
    pub(crate) fn is_sticky_against(&self, now: Instant, envelope: &Envelope) -> bool {
        let asks_for_vote = match &envelope.message {
            Message::PreVote(_) => true,
            Message::Vote(vote) => !vote.transfer,
            Message::Append(_)
            | Message::AppendReply(_)
            | Message::PreVoteReply(_)
            | Message::VoteReply(_)
            | Message::ReadIndex(_)
            | Message::ReadIndexReply(_)
            | Message::SnapshotChunk(_)
            | Message::SnapshotReply(_)
            | Message::StaleTerm(_)
            | Message::TimeoutNow(_)
            | Message::Lost(_)
            | Message::Remind(_)
            | Message::Reminder(_) => false,
        };
        let may_have_one = matches!(envelope.message, Message::PreVote(_)) && self.gives_grace(now);
        let heeds_a_leader = self.config.check_quorum && (self.hears_leader(now) || may_have_one);
        let bound = self.is_bound(now) || heeds_a_leader;
        asks_for_vote && envelope.term >= self.term && bound
    }

    /// Whether this voter started so recently that its leader may not have reached it yet. Otherwise one lost link of
    /// another voter and a restart of this one would depose a healthy leader. [E3b]
    fn gives_grace(&self, now: Instant) -> bool {
        now < self.grace_until
    }

    fn hears_leader(&self, now: Instant) -> bool {
        match &self.role {
            Role::Leader(_) => true,
            Role::Follower(Follower { following: Some(following), .. }) => {
                let is_recent = |heard: Instant| now.since(heard) < self.config.election_timeout;
                following.last_contact.is_some_and(is_recent) && following.ask_at.is_none()
            }
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => false,
        }
    }

    /// A newer term exists: whatever this peer was, it becomes a follower and drops the state of the old term. [L7, O7]
    pub(crate) fn adopt_term(&mut self, now: Instant, term: Term, effects: &mut Effects) {
        self.enter_term(term, None, effects);
        self.become_follower(now, effects);
    }

    pub(crate) fn enter_term(&mut self, term: Term, vote: Option<NodeId>, effects: &mut Effects) {
        assert!(self.term < term, "term went from {:?} to {term:?}", self.term);
        self.term = term;
        self.vote = vote;
        self.pre_vote_round = Round(0);
        self.drop_held();
        self.record_hard_state(effects);
        effects.trace.push(Trace::Term(term));
    }

    /// Follows no leader yet. A peer that was a follower keeps its timer: a candidate that cannot win, because its log
    /// is behind, would otherwise raise the term again and again before the others campaign.
    pub(crate) fn become_follower(&mut self, now: Instant, effects: &mut Effects) {
        let drawn = self.election_timer(now);
        let timer = match &self.role {
            Role::Follower(follower) => follower.timer.clone(),
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => drawn,
        };
        self.take_role(Role::Follower(Follower { timer, following: None }), effects);
        effects.trace.push(Trace::BecameFollower { term: self.term, leader: None });
    }

    /// Changes the role; pending reads of the old one fail. [Q8]
    pub(crate) fn take_role(&mut self, role: Role, effects: &mut Effects) {
        let former = core::mem::replace(&mut self.role, role);
        Raft::fail_reads(former, effects);
    }

    /// No leader was heard, or no campaign won, for long enough.
    pub(crate) fn tick_election(&mut self, now: Instant, effects: &mut Effects) {
        if now < self.role.timer_deadline() {
            return;
        }
        let may_not =
            !self.is_voter() || self.needs_snapshot() || self.is_damaged() || self.lacks_what_is_committed();
        if may_not {
            // It checks again after a while: by then it may have a vote, a state, or a whole log.
            let timer = self.election_timer(now);
            self.take_role(Role::Follower(Follower { timer, following: None }), effects);
        } else if self.config.pre_vote && !self.electorate().is_alone(self.config.id) {
            let fast_election = self.fast_election(now);
            self.ask_for_pre_votes(now, fast_election, effects);
        } else {
            self.campaign(now, None, false, effects);
        }
    }

    /// Starts a round of pre-votes. The requests themselves change nothing durable. [E2]
    fn ask_for_pre_votes(
        &mut self,
        now: Instant,
        fast_election: Option<FastElection>,
        effects: &mut Effects,
    ) {
        let timer = self.pre_vote_timer(now, fast_election);
        let votes: BTreeSet<NodeId> =
            self.electorate().all_voters().filter(|&voter| voter == self.config.id).collect();
        let campaign = Campaign { timer, votes, fast_election, refused: BTreeSet::new() };
        self.take_role(Role::PreCandidate(campaign), effects);
        effects.trace.push(Trace::BecamePreCandidate(self.term));
        self.pre_vote_round = self.pre_vote_round.next();
        let round = self.pre_vote_round;
        let request = PreVote { campaign_term: self.term.next(), last: self.log.last(), round };
        self.ask_voters(&Message::PreVote(request), effects);
    }

    /// Enters the next term as its candidate. The requests leave, and its own vote counts, when term and vote are on
    /// disk.
    pub(crate) fn campaign(
        &mut self,
        now: Instant,
        fast_election: Option<FastElection>,
        transfer: bool,
        effects: &mut Effects,
    ) {
        self.enter_term(self.term.next(), Some(self.config.id), effects);
        let timer = self.election_timer(now);
        let campaign = Campaign { timer, votes: BTreeSet::new(), fast_election, refused: BTreeSet::new() };
        self.take_role(Role::Candidate(campaign), effects);
        effects.trace.push(Trace::BecameCandidate(self.term));
        self.ask_voters(&Message::Vote(Vote { last: self.log.last(), transfer }), effects);
    }

    fn ask_voters(&mut self, request: &Message, effects: &mut Effects) {
        let others: Vec<NodeId> =
            self.electorate().all_voters().filter(|&voter| voter != self.config.id).collect();
        for voter in others {
            self.send_when_durable(self.envelope(voter, request.clone()), effects);
        }
    }

    /// Answers whether this peer would grant a vote. [E2]
    pub(crate) fn on_pre_vote(
        &mut self,
        now: Instant,
        from: NodeId,
        request: &PreVote,
        effects: &mut Effects,
    ) {
        let log_complete = self.acknowledged_last() <= request.last;
        let granted = log_complete && self.term < request.campaign_term && !self.hears_leader(now);
        let PreVote { campaign_term, round, .. } = *request;
        let reply = PreVoteReply { campaign_term, granted, round };
        self.send_when_durable(self.envelope(from, Message::PreVoteReply(reply)), effects);
        if granted {
            self.let_asker_go_first(now, from, request.last);
        }
    }

    /// Counts a pre-vote; a quorum of them starts a campaign.
    pub(crate) fn on_pre_vote_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        reply: &PreVoteReply,
        effects: &mut Effects,
    ) {
        // A voter that granted an earlier round may have heard a leader since. Version 0.1 does not count rounds.
        let of_this_round = reply.round == self.pre_vote_round || reply.round == Round(0);
        if !reply.granted || reply.campaign_term != self.term.next() {
            return;
        }
        if !of_this_round {
            self.wait_for_answers(now);
        } else if self.count_vote(from) {
            let fast_election = self.fast_campaign();
            self.campaign(now, fast_election, false, effects);
        }
    }

    /// Grants at most one vote per term, only to a log at least as complete as this one is, or was. [E6, E7]
    pub(crate) fn on_vote(&mut self, now: Instant, from: NodeId, request: &Vote, effects: &mut Effects) {
        let free_to_vote = self.vote == Some(from) || self.vote.is_none() && self.leader().is_none();
        let log_complete = self.acknowledged_last() <= request.last;
        let granted = free_to_vote && log_complete;
        if granted && self.vote.is_none() {
            self.vote = Some(from);
            self.record_hard_state(effects);
        }
        if granted {
            self.wait_for_elected(now, effects);
        }
        // Held until the vote is on disk: a vote that a crash erases could be cast twice in one term.
        let last = if granted { request.last } else { EntryId::default() };
        let reply = VoteReply { granted, last };
        self.send_when_durable(self.envelope(from, Message::VoteReply(reply)), effects);
    }

    /// A voter that has granted its vote waits a whole timeout for the outcome and drops its own pre-vote: late answers
    /// to that could let it depose the leader that it has just elected. [E7]
    fn wait_for_elected(&mut self, now: Instant, effects: &mut Effects) {
        match &mut self.role {
            Role::Follower(follower) => follower.timer.started = now,
            Role::PreCandidate(_) => self.become_follower(now, effects),
            Role::Candidate(_) | Role::Leader(_) => {} // has already voted for itself in this term
        }
    }

    /// Counts a vote; a quorum of them makes the leader of the term.
    pub(crate) fn on_vote_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        reply: &VoteReply,
        effects: &mut Effects,
    ) {
        // An earlier run, in a newer copy of this directory, may have campaigned in the same term with a longer log. Its
        // vote says nothing about this log. [reminder rule 6]
        if self.log.last() < reply.last {
            return;
        }
        let has_asked = self.durability.hard_state_is_durable();
        if !reply.granted {
            self.note_refusal(now, from);
        } else if matches!(self.role, Role::Candidate(_)) && !has_asked {
            // Requests leave only when this candidate's own vote is on disk.
            Raft::distrust(from, Falsehood::Unasked(self.term), effects);
        } else if self.count_vote(from) {
            self.become_leader(now, effects);
        }
    }

    /// A candidate's own vote counts like any other: when it is on disk.
    pub(crate) fn count_own_vote(&mut self, now: Instant, effects: &mut Effects) {
        let candidate = matches!(self.role, Role::Candidate(_));
        if candidate && self.durability.hard_state_is_durable() && self.count_vote(self.config.id) {
            self.become_leader(now, effects);
        }
    }

    /// Counts the vote of one voter; true if that makes a quorum.
    fn count_vote(&mut self, from: NodeId) -> bool {
        let electorate = self.electorate().clone();
        let (Role::PreCandidate(campaign) | Role::Candidate(campaign)) = &mut self.role else { return false };
        if electorate.is_voter(from) {
            campaign.votes.insert(from);
        }
        electorate.has_quorum(|voter| campaign.votes.contains(&voter))
    }

    /// Leads the term, beginning with an entry of its own: only such an entry can commit earlier ones. [Ongaro14 §6.4]
    fn become_leader(&mut self, now: Instant, effects: &mut Effects) {
        assert!(self.durability.hard_state_is_durable(), "leader of {:?} before that is on disk", self.term);
        let Self { config, log, .. } = self;
        let next = log.last().index.next();
        let membership = self.configurations.newest();
        let others: Vec<NodeId> = membership.peers(config.id).collect();
        let watches_quorum = config.check_quorum && !membership.is_alone(config.id);
        let uncommitted = log.entries_after(self.marks.committed);
        let leader = Leader {
            peers: others.iter().map(|&peer| (peer, Progress::new(now, next))).collect(),
            reads: ReadQueue::default(),
            round: Round(0),
            term_start: next,
            since: now,
            stamp_since: log.stamp(),
            forms: Forms::of_leader(config.id, uncommitted, &self.configurations),
            reported: Reported::default(),
            uncommitted_bytes: 0,
            inherited_bytes: bytes_of_tail(log, self.marks.committed, &config.limits),
            heartbeat_at: if others.is_empty() { Instant::NEVER } else { now + config.heartbeat_interval },
            check_at: if watches_quorum { now + config.election_timeout } else { Instant::NEVER },
            notice_at: Instant::NEVER,
            transfer: None,
            lease: LeaderLeaseState::new(config),
            heartbeats: Heartbeats::default(),
            yielding: Yielding::new(now),
        };
        self.take_role(Role::Leader(leader), effects);
        effects.trace.push(Trace::BecameLeader(self.term));
        self.meet_peers(now);
        let noop = self.new_entry(now, EntryKind::Noop, &[]);
        self.append(noop, effects);
    }

    /// A leader that a quorum has not answered for an election timeout steps down. [E4]
    pub(crate) fn tick_check_quorum(&mut self, now: Instant, effects: &mut Effects) {
        let Some(leader) = self.role.leader_mut() else { return };
        if now < leader.check_at {
            return;
        }
        let me = self.config.id;
        let last_contact =
            |voter: NodeId| leader.of_voter(me, voter, now, |progress| progress.liveness.last_contact());
        let quorum_contact = self.configurations.newest().reached(last_contact);
        let check_at = quorum_contact.map_or(Instant::NEVER, |heard| heard + self.config.election_timeout);
        if check_at <= now {
            self.become_follower(now, effects);
        } else {
            leader.check_at = check_at;
        }
    }
}

/// Bytes of the entries that are not committed; at least `uncommitted_bytes_max` if some of them are not in memory.
fn bytes_of_tail(log: &Log, committed: LogIndex, limits: &Limits) -> usize {
    let first = committed.next();
    let known = log.bytes(first, log.last().index);
    if first < log.recent_first() { known.max(limits.uncommitted_bytes_max) } else { known }
}
