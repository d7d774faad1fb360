//! Members: from a request to change them to the change, and leadership transfers on request.
//!
//! ```text
//!               leader here: checked, proposed ──────────────────▶ placed ─▶ applied ─▶ (joint: left, applied) ─▶ Done
//!  request ─▶ waiting                                                 ▲
//!               leader there: Forward, a batch of its own ── verdict ─┘
//!        ▲          └── "another change is under way", "not now" ──┐
//!        └─────────────────────────────────────────────────────────┘
//! ```
//! Rules: 1. Only the leader checks a change, against the table as of the newest configuration of its log: while the
//!           table is older, its next content is unknown. [replication-protocols M3]
//!        2. A request waits for the change before it, and for a quorum that answers, for two election timeouts; then
//!           it is refused.
//!        3. A new member starts as a learner. One that is to vote is promoted by the leader once it has caught up.
//!        4. A request that was forwarded is, like a write, never sent twice while it may have been accepted. [B13]
//!        5. No learner gets a vote before its publication is committed: a newcomer that reads the members from a
//!           quorum before it makes its directory thereby learns whether the id has ever voted. [`newcomer`]
//!        6. Its client is answered when the change is complete, by the entry that completes it.
//!        7. The election timeout begins with the leader's own, when the cluster's feature level allows extensions, and
//!           is changed by a request from then on. No configuration has an extension before that. [`crate::level`]
//!
//! Knows nothing of: joint quorums, links, clients behind tickets.

use crate::command::Command;
use crate::contract::{
    Effects, MemberChange, MemberInfo, MemberRefusal, Members, Outcome, PeerMessage, Refusal, Reply,
    ReplyBody, Ticket,
};
use crate::level::{EXTENSIONS, NB_RAFT};
use crate::node::{Node, answer};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use kattu_raft::{
    ChangeError, EntryId, Extensions, Instant, Membership, NodeId, Protocol, Timing, TransferError,
};

/// Learners at once: each costs the leader what a voter does.
const LEARNERS_MAX: usize = 8;

/// Members at once, far more than a useful group of voters has.
const MEMBERS_MAX: usize = 64;

/// Election timeouts that a request waits for the change before it.
const PATIENCE: u32 = 2;

/// A request for a change that certainly had no effect yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChangeRequest {
    pub(crate) ticket: Ticket,
    /// The change, as it goes to the leader and into the log.
    pub(crate) command: Vec<u8>,
    /// Until then it waits for the change before it.
    pub(crate) patient_until: Instant,
    /// Until then it waits for a leader.
    pub(crate) expires: Instant,
}

/// A client that waits for a leadership transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Moving {
    ticket: Ticket,
    target: NodeId,
    expires: Instant,
}

/// The members as this replica knows them, and the requests to change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Changes {
    /// The keeper's table.
    table: Members,
    waiting: VecDeque<ChangeRequest>,
    /// No request is tried or forwarded before this: the last one was refused for the time being. Zero if it was not.
    again_at: Instant,
    moving: Vec<Moving>,
}

impl Changes {
    pub(crate) fn pending(&self) -> usize {
        self.waiting.len() + self.moving.len()
    }

    pub(crate) fn deadline(&self) -> Instant {
        let again = Some(self.again_at).filter(|&at| at != Instant(0) && !self.waiting.is_empty());
        let expiries = self.waiting.iter().map(|change_request| change_request.expires);
        let moves = self.moving.iter().map(|moving| moving.expires);
        again.into_iter().chain(expiries).chain(moves).min().unwrap_or(Instant::NEVER)
    }

    /// The process stops: answers all waiting clients.
    pub(crate) fn stop(&mut self, effects: &mut Effects) {
        let moves = core::mem::take(&mut self.moving).into_iter().map(|moving| moving.ticket);
        let change_requests =
            core::mem::take(&mut self.waiting).into_iter().map(|change_request| change_request.ticket);
        for ticket in change_requests.chain(moves) {
            answer(effects, ticket, Outcome::Refused(Refusal::Stopping));
        }
    }

    /// Learners that wait for a vote and may get one.
    fn candidates(&self) -> impl Iterator<Item = NodeId> {
        let ready = |member: &&MemberInfo| member.votes_when_ready && may_vote(member);
        self.table.list.iter().filter(ready).map(|member| member.id)
    }

    /// Checks a change against the table, in a cluster of this feature level.
    fn judge(&self, change: &MemberChange, level: u16) -> Result<(), MemberRefusal> {
        let Members { list, removed, .. } = &self.table;
        let find = |id: NodeId| list.iter().find(|member| member.id == id);
        let taken = |urls: &[String], by_others_than: NodeId| {
            let mut others = list.iter().filter(|member| member.id != by_others_than);
            others.any(|member| member.peer_urls.iter().any(|url| urls.contains(url)))
        };
        match change {
            MemberChange::Add { id, peer_urls, .. } => {
                if *id == NodeId(0) || find(*id).is_some() || removed.contains(id) {
                    return Err(MemberRefusal::IdUsed);
                }
                if taken(peer_urls, *id) {
                    return Err(MemberRefusal::UrlsUsed);
                }
                if list.len() >= MEMBERS_MAX {
                    return Err(MemberRefusal::TooManyMembers);
                }
                if list.iter().filter(|member| member.learner).count() >= LEARNERS_MAX {
                    return Err(MemberRefusal::TooManyLearners);
                }
            }
            MemberChange::Remove(id) => {
                find(*id).ok_or(MemberRefusal::NotFound)?;
            }
            MemberChange::Promote(id) => {
                let member = find(*id).ok_or(MemberRefusal::NotFound)?;
                if !member.learner {
                    return Err(MemberRefusal::NotLearner);
                }
                if !may_vote(member) {
                    return Err(MemberRefusal::NotCaughtUp);
                }
            }
            MemberChange::Update { id, peer_urls } => {
                find(*id).ok_or(MemberRefusal::NotFound)?;
                if taken(peer_urls, *id) {
                    return Err(MemberRefusal::UrlsUsed);
                }
            }
            MemberChange::Timing(timing) => {
                if level < EXTENSIONS {
                    return Err(MemberRefusal::LevelTooLow);
                }
                if of_all(*timing).check().is_err() {
                    return Err(MemberRefusal::BadTiming);
                }
            }
            MemberChange::Protocol(protocol) => {
                if level < NB_RAFT {
                    return Err(MemberRefusal::LevelTooLow);
                }
                let sets = Extensions { protocol: Some(*protocol), ..Extensions::default() };
                if sets.check().is_err() {
                    return Err(MemberRefusal::BadProtocol);
                }
            }
        }
        Ok(())
    }
}

/// Whether it may get a vote, as far as the table shows.
fn may_vote(learner: &MemberInfo) -> bool {
    learner.is_published()
}

impl Node {
    /// A client's change of members: held until the batch is complete.
    pub(crate) fn on_change(
        &mut self,
        now: Instant,
        ticket: Ticket,
        change: &MemberChange,
        effects: &mut Effects,
    ) {
        if self.pending() >= self.config.pending_max {
            return answer(effects, ticket, Outcome::Refused(Refusal::TooManyRequests));
        }
        let expires = now + self.request_timeout();
        let patient_until = expires.min(now + self.raft.timing().election_timeout * PATIENCE);
        self.changes.waiting.push_back(ChangeRequest {
            ticket,
            command: change.encode(),
            patient_until,
            expires,
        });
    }

    /// Takes over the keeper's table.
    pub(crate) fn on_members(&mut self, members: Members) {
        self.changes.table = members;
        self.changes.again_at = Instant(0);
    }

    /// The batch is complete: requests are checked here, or go to the leader, or keep waiting; learners are promoted.
    pub(crate) fn place_changes(
        &mut self,
        now: Instant,
        out: &mut kattu_raft::Effects,
        effects: &mut Effects,
    ) {
        self.expire_changes(now, effects);
        if now < self.changes.again_at {
            return;
        }
        self.changes.again_at = Instant(0);
        if self.raft.is_leader() {
            while let Some(change_request) = self.changes.waiting.pop_front() {
                match self.begin_change(now, &change_request.command, out) {
                    Ok(id) => self.writes.await_change(id, change_request, effects),
                    Err(refusal) => self.retry_or_refuse(now, change_request, refusal, effects),
                }
                if now < self.changes.again_at {
                    return;
                }
            }
            self.begin_shared_timing(now, out);
            self.promote_ready_learners(now, out);
        } else if let Some(leader) = self.raft.leader()
            && !self.raft.suspects_leader()
        {
            while let Some(change_request) = self.changes.waiting.pop_front() {
                let forward = self.forward_change(leader, change_request);
                effects.send.push(PeerMessage::Forward(forward));
            }
        }
    }

    /// A request was refused for this reason: it waits again at the head of the queue if waiting helps.
    pub(crate) fn retry_or_refuse(
        &mut self,
        now: Instant,
        change_request: ChangeRequest,
        refusal: Refusal,
        effects: &mut Effects,
    ) {
        let waits = match refusal {
            Refusal::LeaderChanged => now < change_request.expires,
            // A leader that has just been elected, or whose links have just reopened, may soon hear from a quorum.
            Refusal::Member(MemberRefusal::UnderWay | MemberRefusal::WouldLoseQuorum) => {
                now < change_request.patient_until
            }
            _ => false,
        };
        if waits {
            self.wait_again(now, change_request);
        } else {
            answer(effects, change_request.ticket, Outcome::Refused(refusal));
        }
    }

    /// Puts a request back at the head of the queue, for a later try.
    pub(crate) fn wait_again(&mut self, now: Instant, change_request: ChangeRequest) {
        self.changes.waiting.push_front(change_request);
        self.changes.again_at = now + self.raft.timing().heartbeat_interval;
    }

    /// Leader: begins a change, or returns why not; then it leaves no trace. Some reasons are temporary.
    pub(crate) fn begin_change(
        &mut self,
        now: Instant,
        command: &[u8],
        out: &mut kattu_raft::Effects,
    ) -> Result<EntryId, Refusal> {
        let Ok(Command::Change(change)) = Command::decode(command) else {
            return Err(Refusal::Member(MemberRefusal::NotFound));
        };
        let current = self.raft.membership();
        if current.is_joint() || self.changes.table.at != self.raft.membership_at() {
            return Err(Refusal::Member(MemberRefusal::UnderWay));
        }
        self.changes.judge(&change, self.compare.level()).map_err(Refusal::Member)?;
        let target = after(current, &change);
        self.raft.propose_change(now, &target, command, out).map_err(refusal_of)
    }

    /// Leader: once the feature level allows it, the timing that this member was started with becomes the cluster's. It
    /// is the first change of a configuration without extensions; later ones are an operator's. [Rule 7]
    fn begin_shared_timing(&mut self, now: Instant, out: &mut kattu_raft::Effects) {
        let has_one = self.raft.membership().extensions.timing.is_some();
        if has_one || self.compare.level() < EXTENSIONS || !self.is_confirmed() {
            return;
        }
        let begins = MemberChange::Timing(self.raft.own_timing()).encode();
        if self.begin_change(now, &begins, out).is_err() {
            self.changes.again_at = now + self.raft.timing().heartbeat_interval;
        }
    }

    /// Leader: promotes a learner that was added to vote and has caught up. One at a time.
    fn promote_ready_learners(&mut self, now: Instant, out: &mut kattu_raft::Effects) {
        let ready = self.changes.candidates().find(|&learner| self.raft.is_caught_up(now, learner));
        if let Some(learner) = ready {
            let promotion = MemberChange::Promote(learner).encode();
            if self.begin_change(now, &promotion, out).is_err() {
                self.changes.again_at = now + self.raft.timing().heartbeat_interval;
            }
        }
    }

    fn expire_changes(&mut self, now: Instant, effects: &mut Effects) {
        self.changes.waiting.retain(|change_request| {
            let expired = change_request.expires <= now;
            if expired {
                answer(effects, change_request.ticket, Outcome::Refused(Refusal::NoLeader));
            }
            !expired
        });
    }

    /// A client requests that this voter leads. Only the leader can do that.
    pub(crate) fn on_move(
        &mut self,
        now: Instant,
        ticket: Ticket,
        target: NodeId,
        out: &mut kattu_raft::Effects,
        effects: &mut Effects,
    ) {
        let refusal = match self.raft.transfer(now, target, out) {
            Ok(()) | Err(TransferError::Itself) => None,
            Err(TransferError::UnderWay) if self.raft.transferring() == Some(target) => None,
            Err(TransferError::NotLeader) => Some(MemberRefusal::NotLeader),
            Err(TransferError::Unknown | TransferError::Learner) => Some(MemberRefusal::BadTransferee),
            Err(TransferError::UnderWay | TransferError::NeedsSnapshot) => {
                Some(MemberRefusal::TransferFailed)
            }
        };
        match refusal {
            Some(refusal) => answer(effects, ticket, Outcome::Refused(Refusal::Member(refusal))),
            None => {
                let expires = now + self.raft.timing().election_timeout * PATIENCE;
                self.changes.moving.push(Moving { ticket, target, expires });
            }
        }
    }

    /// Answers clients whose leadership transfer has succeeded or failed.
    pub(crate) fn settle_moves(&mut self, now: Instant, effects: &mut Effects) {
        if self.changes.moving.is_empty() {
            return;
        }
        let (term, leader) = (self.raft.term(), self.raft.leader());
        let under_way = self.raft.transferring();
        let me = self.raft.id();
        self.changes.moving.retain(|moving| {
            let failed = moving.expires <= now
                || match leader {
                    Some(leader) if leader == me => under_way != Some(moving.target),
                    other => other.is_some(),
                };
            let outcome = if leader == Some(moving.target) {
                Outcome::Done(Reply { term, strong: 0, body: ReplyBody::Moved })
            } else if failed {
                Outcome::Refused(Refusal::Member(MemberRefusal::TransferFailed))
            } else {
                return true;
            };
            answer(effects, moving.ticket, outcome);
            false
        });
    }
}

/// What a configuration says besides its members, if it sets this timing only.
fn of_all(timing: Timing) -> Extensions {
    Extensions { timing: Some(timing), ..Extensions::default() }
}

/// The membership that a change leads to. Extensions that this version does not know stay as they are.
fn after(current: &Membership, change: &MemberChange) -> Membership {
    let Membership { mut voters, mut learners, mut extensions, .. } = current.clone();
    let insert = |list: &mut Vec<NodeId>, id: NodeId| {
        if let Err(place) = list.binary_search(&id) {
            list.insert(place, id);
        }
    };
    match change {
        MemberChange::Add { id, .. } => insert(&mut learners, *id),
        MemberChange::Remove(id) => {
            voters.retain(|voter| voter != id);
            learners.retain(|learner| learner != id);
        }
        MemberChange::Promote(id) => {
            learners.retain(|learner| learner != id);
            insert(&mut voters, *id);
        }
        MemberChange::Update { .. } => {}
        MemberChange::Timing(timing) => {
            let protocol = extensions.protocol.or(Some(Protocol::Raft));
            extensions = Extensions { timing: Some(*timing), protocol, ..extensions };
        }
        MemberChange::Protocol(protocol) => extensions.protocol = Some(*protocol),
    }
    Membership { extensions, ..Membership::new(voters, learners) }
}

fn refusal_of(error: ChangeError) -> Refusal {
    Refusal::Member(match error {
        ChangeError::NotLeader | ChangeError::Transferring | ChangeError::TermNotCommitted => {
            return Refusal::LeaderChanged;
        }
        ChangeError::NoSpace => return Refusal::NoSpace,
        ChangeError::UnderWay(_) => MemberRefusal::UnderWay,
        ChangeError::Nothing | ChangeError::Broken(_) => MemberRefusal::NotFound,
        ChangeError::LastVoter => MemberRefusal::LastVoter,
        ChangeError::Unknown(_) => MemberRefusal::NotLearner,
        ChangeError::NotCaughtUp { .. } => MemberRefusal::NotCaughtUp,
        ChangeError::WouldLoseQuorum { .. } => MemberRefusal::WouldLoseQuorum,
    })
}
