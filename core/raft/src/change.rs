//! Membership changes: how a group becomes another one without ever being two.
//!
//! In:    an operator's request; commits; answers of members that join and leave.
//! Out:   configuration entries, into the joint configuration and out of it; peers for replication to begin or end
//!        with.
//! Rules: [replication-protocols M1–M8; Ongaro14 §4.2–4.4]
//!   1. A leader changes nothing before it has committed an entry of its own term: an older leader's change that it has
//!      not seen committed might still be in some member's log. [M4]
//!   2. One change at a time: the next one begins when the one before is committed and left. [M3]
//!   3. Voters change through a joint configuration, whatever the change. The leader at the time when the joint
//!      configuration is committed appends the one that ends it. A change that leaves the voters alone takes one step.
//!      [M2, M5]
//!   4. A new member is a learner first, and gets a vote when it keeps up. [M6]
//!   5. A change is refused if the members heard within an election timeout, and since their links were last closed,
//!      would be no quorum after it. [fault-model F61]
//!   6. A leader that is not among the new voters leads until that is committed, without counting itself. Then it sends
//!      all peers that commit index, and transfers leadership. [M7]
//!   7. A removed member learns of its removal from the heartbeats that carry the commit. They are repeated for a
//!      while, and then the leader forgets the member. A member outside a committed configuration does not campaign.
//!      Before the commit it may have to: when one of two voters leaves, the leaving one may be the only one that has
//!      the new configuration. [M8]
//!
//! Knows nothing of: names and addresses of members, processes that start or stop.

use crate::contract::Effects;
use crate::entry::EntryKind;
use crate::flow::Mode;
use crate::leading::Leading;
use crate::membership::Membership;
use crate::message::{Message, TimeoutNow};
use crate::progress::Progress;
use crate::quorum::quorum;
use crate::raft::Raft;
use crate::trace::Trace;
use crate::types::{EntryId, Instant, LogIndex, NodeId};
use alloc::vec::Vec;
use core::fmt;

/// Why a change of members was not begun. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeError {
    /// This peer does not lead.
    NotLeader,
    /// A leadership transfer is under way.
    Transferring,
    /// A change is under way: its newest configuration stands at this index.
    UnderWay(LogIndex),
    /// This leader has not committed an entry of its own term yet: it will soon, or lose its leadership.
    TermNotCommitted,
    /// The membership is the target already, and there is no context to record.
    Nothing,
    /// No voter would be left.
    LastVoter,
    /// The request contradicts itself.
    Broken(&'static str),
    /// A new voter must have been a learner.
    Unknown(NodeId),
    /// This learner does not keep up yet.
    NotCaughtUp {
        /// The learner.
        learner: NodeId,
        /// Highest index that it is known to hold.
        matched: LogIndex,
        /// The end of the log.
        last: LogIndex,
    },
    /// Too few of the new voters were heard within an election timeout.
    WouldLoseQuorum {
        /// How many of the new voters were heard.
        heard: usize,
        /// How many of them make a quorum.
        needed: usize,
    },
    /// The log has no room for it.
    NoSpace,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::NotLeader => f.write_str("only a leader can change the members"),
            ChangeError::Transferring => f.write_str("the leader is handing over its leadership"),
            ChangeError::UnderWay(at) => {
                write!(f, "another change of members is under way since entry {}", at.0)
            }
            ChangeError::TermNotCommitted => {
                f.write_str("the leader is new and has not committed anything yet: try again")
            }
            ChangeError::Nothing => f.write_str("the members are like that already"),
            ChangeError::LastVoter => f.write_str("the last voter cannot be removed"),
            ChangeError::Broken(rule) => f.write_str(rule),
            ChangeError::Unknown(member) => write!(
                f,
                "member {:x} is not a learner of this group: it must be added as one before it can vote",
                member.0
            ),
            ChangeError::NotCaughtUp { learner, matched, last } => write!(
                f,
                "learner {:x} has not caught up: it holds {} of {} entries",
                learner.0, matched.0, last.0
            ),
            ChangeError::WouldLoseQuorum { heard, needed } => {
                write!(f, "{heard} of the new voters are reachable, {needed} are needed for a quorum")
            }
            ChangeError::NoSpace => f.write_str("the log has no room for the change"),
        }
    }
}

impl core::error::Error for ChangeError {}

impl Leading<'_> {
    /// A heartbeat was sent: forgets peers that know of their removal, or do not answer.
    pub(crate) fn part_with_peers(&mut self) {
        let (committed, round) = (self.view.marks.committed, self.leader.round);
        self.leader.peers.retain(|_, progress| {
            let answered = progress.liveness.contact_round();
            !progress.life.parts(committed, round, answered, progress.matched)
        });
    }
}

impl Raft {
    /// Begins the change to `target`, a membership without a change under way. `context` is the caller's: it travels in
    /// the entry behind the membership, and may be all that changes. The change is in force at once, and certain when
    /// the entry is committed. A change of voters is over when the entry that leaves it, which follows by itself, is
    /// committed too.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn propose_change(
        &mut self,
        now: Instant,
        target: &Membership,
        context: &[u8],
        effects: &mut Effects,
    ) -> Result<EntryId, ChangeError> {
        self.judge_change(now, target, context)?;
        let current = self.configurations.newest();
        let one_step = current.voters == target.voters;
        let next = if one_step { target.clone() } else { current.enter(target) };
        let id = self.append_configuration(now, &next, context, effects);
        id.ok_or(ChangeError::NoSpace)
    }

    fn judge_change(&self, now: Instant, target: &Membership, context: &[u8]) -> Result<(), ChangeError> {
        let Some(leader) = self.role.leader() else { return Err(ChangeError::NotLeader) };
        if leader.transfer.is_some() {
            return Err(ChangeError::Transferring);
        }
        if target.is_joint() {
            return Err(ChangeError::Broken("the target of a change must not be a joint configuration"));
        }
        if target.is_empty() {
            return Err(ChangeError::LastVoter);
        }
        target.check().map_err(ChangeError::Broken)?;
        let current = self.configurations.newest();
        let at = self.configurations.newest_at();
        if current.is_joint() || self.marks.committed < at {
            return Err(ChangeError::UnderWay(at));
        }
        if self.marks.committed < leader.term_start {
            return Err(ChangeError::TermNotCommitted);
        }
        if current == target && context.is_empty() {
            return Err(ChangeError::Nothing);
        }
        let last = self.log.last().index;
        let election_timeout = self.config.election_timeout;
        // A peer that has not answered this leader yet may be long gone: its last contact is then only the leader's
        // start. A peer in `Probe` counts neither: it may have died since its link closed, or it has no room and so
        // acknowledges nothing.
        let heard = |member: NodeId| match leader.peers.get(&member) {
            Some(progress) => {
                let answers =
                    progress.life.has_answered() && !matches!(progress.flow.mode, Mode::Probe { .. });
                answers && progress.liveness.is_heard(now, election_timeout)
            }
            None => member == self.config.id,
        };
        for &voter in target.voters.iter().filter(|&&voter| !current.is_voter(voter)) {
            let Some(progress) = leader.peers.get(&voter).filter(|_| current.contains(voter)) else {
                return Err(ChangeError::Unknown(voter));
            };
            if !progress.is_caught_up(now, election_timeout) || !heard(voter) {
                return Err(ChangeError::NotCaughtUp { learner: voter, matched: progress.matched, last });
            }
        }
        if target.voters != current.voters && !target.has_quorum(heard) {
            let heard = target.voters.iter().filter(|&&voter| heard(voter)).count();
            return Err(ChangeError::WouldLoseQuorum { heard, needed: quorum(target.voters.len()) });
        }
        Ok(())
    }

    /// Appends a configuration, which is in force from now on; `None` if the log has no room for it.
    fn append_configuration(
        &mut self,
        now: Instant,
        membership: &Membership,
        context: &[u8],
        effects: &mut Effects,
    ) -> Option<EntryId> {
        let mut payload = Vec::new();
        membership.encode(&mut payload);
        payload.extend_from_slice(context);
        let entry = self.new_entry(now, EntryKind::Config, &payload);
        if entry.len() as u64 > self.log_space {
            return None;
        }
        let id = entry.id();
        if let Some(leader) = self.role.leader_mut() {
            leader.uncommitted_bytes += entry.len();
        }
        self.append(entry, effects);
        self.stir(now); // by the timing that is in force from here on
        self.meet_peers(now);
        Some(id)
    }

    /// Adds and marks peers so that they match the newest configuration.
    pub(crate) fn meet_peers(&mut self, now: Instant) {
        let (me, election_timeout) = (self.config.id, self.config.election_timeout);
        let (membership, at) = (self.configurations.newest(), self.configurations.newest_at());
        let last = self.log.last().index;
        let Some(leader) = self.role.leader_mut() else { return };
        for peer in membership.peers(me) {
            let progress = leader.peers.entry(peer).or_insert_with(|| Progress::new(now, last.next()));
            progress.life.stay();
            progress.life.watch_catch_up(now, !membership.is_voter(peer), last);
        }
        leader.peers.retain(|&peer, progress| {
            let stays = membership.contains(peer);
            if !stays {
                progress.life.leave(at);
            }
            stays || !matches!(progress.flow.mode, Mode::Snapshot(_)) // a leaving peer gets no snapshot
        });
        if leader.heartbeat_at == Instant::NEVER && !leader.peers.is_empty() {
            leader.heartbeat_at = now;
        }
        if self.config.check_quorum && leader.check_at == Instant::NEVER && !membership.is_alone(me) {
            leader.check_at = now + election_timeout;
        }
    }

    /// The commit index of a leader has moved: leaves a committed joint configuration, and resigns if this leader is no
    /// voter any more.
    pub(crate) fn follow_up_change(&mut self, now: Instant, effects: &mut Effects) {
        let Some(leader) = self.role.leader() else { return };
        let membership = self.configurations.newest();
        let committed = self.configurations.newest_at() <= self.marks.committed
            && leader.term_start <= self.marks.committed;
        if !committed {
            return;
        }
        if membership.is_joint() {
            let next = membership.leave();
            // Without room this is tried again with the next commit or tick.
            let _ = self.append_configuration(now, &next, &[], effects);
        } else if !membership.is_voter(self.config.id) {
            self.resign(now, effects);
        }
    }

    /// This leader is no voter any more: sends all peers the commit index of that, asks the best of the new voters to
    /// campaign, and becomes a follower.
    fn resign(&mut self, now: Instant, effects: &mut Effects) {
        let successor = self.best_successor(now);
        let Some(Leading { leader, view, .. }) = self.leading() else { return };
        for (&peer, progress) in &mut leader.peers {
            effects.send.push(view.send_empty(peer, progress, leader.round));
        }
        if let Some(successor) = successor {
            effects.send.push(view.envelope(successor, Message::TimeoutNow(TimeoutNow)));
        }
        self.become_follower(now, effects);
    }

    /// Puts a configuration in force.
    pub(crate) fn configure(&mut self, at: LogIndex, membership: Membership, effects: &mut Effects) {
        self.configurations.append(at, membership);
        effects.trace.push(Trace::Configured(at));
        self.take_settings();
    }

    /// Notes whether a committed configuration contains this member.
    pub(crate) fn note_own_membership(&mut self) {
        self.belonged |= self.committed_membership().contains(self.config.id);
    }

    /// The members of the group in the newest configuration of the log, committed or not.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        self.configurations.newest()
    }

    /// The index of that configuration's entry; 0 for the group's first one.
    #[must_use]
    pub fn membership_at(&self) -> LogIndex {
        self.configurations.newest_at()
    }

    /// The members of the group in the newest committed configuration.
    #[must_use]
    pub fn committed_membership(&self) -> &Membership {
        &self.configurations.at(self.marks.committed).1
    }

    /// Whether this member has been removed from the group, and knows the commit of that. It never becomes part of the
    /// group again under its id. After a restart from a snapshot without it only other members know.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let membership = self.committed_membership();
        self.belonged && !membership.is_empty() && !membership.contains(self.config.id)
    }

    /// Whether this learner keeps up so well that it may become a voter. `false` unless this peer leads.
    #[must_use]
    pub fn is_caught_up(&self, now: Instant, learner: NodeId) -> bool {
        let Some(leader) = self.role.leader() else { return false };
        let progress = leader.peers.get(&learner);
        progress.is_some_and(|progress| progress.is_caught_up(now, self.config.election_timeout))
    }

    /// Whether this peer has a vote: in the newest configuration, or in one that a truncation could restore.
    pub(crate) fn is_voter(&self) -> bool {
        let me = self.config.id;
        let committed = self.configurations.at(self.marks.committed).0;
        self.configurations.all().any(|(at, membership)| committed <= *at && membership.is_voter(me))
    }

    /// The membership that decides elections.
    pub(crate) fn electorate(&self) -> &Membership {
        self.configurations.newest()
    }
}
