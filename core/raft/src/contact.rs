//! Contact: how a follower learns which member leads its term, and when it counts as hearing that leader.
//!
//! ```text
//!   a leader's message ──▶ know_leader ──▶ which log to agree with, whom to answer
//!            │
//!            └─ from the leader itself ──▶ hear_leader ──▶ election timer, vote hold, end of a suspicion
//!   its entries ──▶ [`crate::acceptance`] ──▶ the log
//! ```
//!
//! In:    messages of this term's leader, and the member that sent each of them.
//! Out:   the leader that is followed; a timer that begins anew, a vote hold.
//! Rules: [replication-protocols L1, E3, K1, K3, L-3]
//!   1. Such a message has a leader and a sender. In plain Raft both are one member, and [`Origin::of`] is the one place
//!      that says so. A relay is a sender that does not lead.
//!   2. Each message of the term's leader makes the leader known, over whichever path it came: its log is the leader's,
//!      and the answer goes to the leader. That alone changes no timer and withholds no vote.
//!   3. Only a message that the leader itself has sent shows that the leader is alive and reaches this follower. It
//!      restarts the election timer, ends a suspicion, and grants the vote hold that a leader lease relies on.
//!   4. An answer to a round grants a vote hold. So a round is answered only if it was heard from the leader itself.
//!   5. Taking entries does neither of the two.
//!
//! Knows nothing of: entries, logs, acknowledgements.

use crate::contract::Effects;
use crate::distrust::Falsehood;
use crate::message::Envelope;
use crate::raft::Raft;
use crate::role::{Following, Role};
use crate::trace::Trace;
use crate::types::{Instant, NodeId};

/// Where a message of a leader comes from. [Rule 1]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The leader that the message speaks for: it gets the answer.
    pub(crate) leader: NodeId,
    /// The member that sent it to this peer: it is distrusted if the message cannot be true.
    pub(crate) sender: NodeId,
}

impl Origin {
    /// The origin of a message that only a leader creates: in plain Raft its sender leads.
    pub(crate) fn of(envelope: &Envelope) -> Origin {
        Origin { leader: envelope.from, sender: envelope.from }
    }

    /// Whether the leader itself has sent the message.
    pub(crate) fn is_direct(self) -> bool {
        self.leader == self.sender
    }
}

impl Raft {
    /// Follows the message's leader, and hears it if the message comes from the leader itself; `false` if this term has
    /// another leader.
    pub(crate) fn follow(&mut self, now: Instant, origin: Origin, effects: &mut Effects) -> bool {
        let is_known = self.know_leader(origin, effects);
        if is_known && origin.is_direct() {
            self.hear_leader(now);
        }
        is_known
    }

    /// Learns which member leads this term; `false` if another one does. [Rule 2]
    pub(crate) fn know_leader(&mut self, origin: Origin, effects: &mut Effects) -> bool {
        let Role::Follower(follower) = &mut self.role else { unreachable!("step() made a follower of us") };
        if let Some(following) = &follower.following {
            let is_known = following.leader == origin.leader;
            if !is_known {
                Raft::distrust(origin.sender, Falsehood::SecondLeader(self.term), effects);
            }
            return is_known;
        }
        let verified = self.marks.committed; // Leader Completeness: every leader holds what is committed
        follower.following = Some(Following::new(origin.leader, verified));
        effects.trace.push(Trace::BecameFollower { term: self.term, leader: Some(origin.leader) });
        true
    }

    /// Hears the leader that it follows: waits for an election timeout again before it campaigns, and withholds its
    /// vote as long as a lease needs. A timer of another length is drawn for every leader. [Rule 3; E1, L-3]
    pub(crate) fn hear_leader(&mut self, now: Instant) {
        let Role::Follower(follower) = &self.role else { return };
        let is_first = follower.following.as_ref().is_some_and(|following| following.last_contact.is_none());
        let drawn = is_first.then(|| self.election_timer(now));
        let Role::Follower(follower) = &mut self.role else { return };
        let Some(following) = &mut follower.following else { return };
        if let Some(timer) = drawn {
            follower.timer = timer;
        }
        follower.timer.started = now;
        following.last_contact = Some(now);
        following.ask_at = None;
        self.vote_hold_for_leader(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::tests::{config, heartbeat};
    use crate::message::{Append, AppendReply, Message, PreVote};
    use crate::{
        Config, Duration, Entry, EntryHead, EntryId, EntryKind, LeaderLease, LinkEnd, LogIndex, Recovered,
        Round, Stamp, Term,
    };
    use alloc::vec;

    const DIRECT: Origin = Origin { leader: NodeId(2), sender: NodeId(2) };
    const RELAYED: Origin = Origin { leader: NodeId(2), sender: NodeId(3) };

    /// Member 1 of three. It has heard of term 1, durably, and of no leader.
    fn member(config: Config) -> Raft {
        let config = Config { voters: vec![NodeId(1), NodeId(2), NodeId(3)], ..config };
        let mut raft = Raft::recover(config, 7, Instant(0), Recovered::default());
        let mut effects = Effects::default();
        raft.adopt_term(Instant(0), Term(1), &mut effects);
        raft.persisted(Instant(0), effects.persist[0].lsn, &mut effects);
        raft
    }

    fn with_leases() -> Config {
        let lease = LeaderLease { rho: 0, margin: Duration::ZERO, watch_clocks: false };
        let mut config = config();
        config.leadership.leader_lease = Some(lease);
        config
    }

    /// An append of round 5 with the first entry of the log.
    fn append() -> Append {
        let id = EntryId::new(1, 1);
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
        let entries = vec![Entry::new(head, b"a".to_vec().into(), 0)];
        Append { prev: EntryId::default(), entries, commit: LogIndex(1), round: Round(5), tail: false }
    }

    /// Whether this member answers a question for its pre-vote.
    fn helps_another(raft: &mut Raft, now: Instant) -> bool {
        let last = EntryId::new(9, 9);
        let question = PreVote { campaign_term: Term(2), last, round: Round(1) };
        let mut effects = Effects::default();
        let asks = Envelope { from: NodeId(3), message: Message::PreVote(question), ..heartbeat(1) };
        raft.step(now, asks, &mut effects);
        let granted =
            |envelope: &Envelope| matches!(&envelope.message, Message::PreVoteReply(reply) if reply.granted);
        effects.send.iter().any(granted)
    }

    /// The answer to the leader that leaves when the inbox is empty and the disk has everything.
    fn answer(raft: &mut Raft, now: Instant, mut effects: Effects) -> Option<(NodeId, AppendReply)> {
        if let Some(record) = effects.persist.last() {
            raft.persisted(now, record.lsn, &mut effects);
        }
        raft.drained(now, &mut effects);
        effects.send.into_iter().find_map(|envelope| match envelope.message {
            Message::AppendReply(reply) => Some((envelope.to, reply)),
            _ => None,
        })
    }

    #[test]
    fn in_plain_raft_the_sender_of_an_append_leads() {
        assert_eq!(Origin::of(&heartbeat(1)), DIRECT);
        assert!(DIRECT.is_direct() && !RELAYED.is_direct());
    }

    #[test]
    fn to_know_the_leader_restarts_no_timer_and_withholds_no_vote() {
        let mut raft = member(with_leases());
        let (before, now) = (raft.deadline(), Instant(20));
        let mut effects = Effects::default();
        assert!(raft.know_leader(DIRECT, &mut effects));
        assert_eq!(raft.leader(), Some(NodeId(2)));
        assert_eq!(raft.deadline(), before, "it campaigns as soon as without a leader");
        assert_eq!(raft.vote_hold_until(), Instant(0));
        assert!(helps_another(&mut raft.clone(), now));
        raft.hear_leader(now);
        let election_timeout = raft.config.election_timeout;
        assert!(now + election_timeout <= raft.deadline());
        assert_eq!(raft.vote_hold_until(), now + election_timeout);
        assert!(!helps_another(&mut raft, now));
    }

    #[test]
    fn to_hear_a_leader_that_is_not_known_changes_nothing() {
        let mut raft = member(with_leases());
        let before = raft.clone();
        raft.hear_leader(Instant(20));
        assert_eq!(raft, before);
    }

    #[test]
    fn a_leader_that_was_known_before_is_heard_with_a_timer_of_its_own() {
        let drawn = |steps: &[fn(&mut Raft, &mut Effects)]| {
            let mut raft = member(config());
            let mut effects = Effects::default();
            steps.iter().for_each(|step| step(&mut raft, &mut effects));
            raft
        };
        let knows = |raft: &mut Raft, effects: &mut Effects| {
            assert!(raft.know_leader(RELAYED, effects));
        };
        let follows = |raft: &mut Raft, effects: &mut Effects| {
            assert!(raft.follow(Instant(20), DIRECT, effects));
        };
        assert_eq!(drawn(&[knows, follows]), drawn(&[follows]), "as if it had met the leader only now");
    }

    #[test]
    fn entries_that_another_member_sends_are_taken_and_extend_no_vote_hold() {
        let mut raft = member(with_leases());
        let mut effects = Effects::default();
        raft.on_append(
            Instant(1),
            DIRECT,
            Append { entries: vec![], round: Round(1), ..append() },
            &mut effects,
        );
        assert!(answer(&mut raft, Instant(1), effects).is_some());
        let (deadline, hold, now) = (raft.deadline(), raft.vote_hold_until(), Instant(20));
        let mut effects = Effects::default();
        raft.on_append(now, RELAYED, append(), &mut effects);
        assert_eq!(
            (raft.last_id(), raft.committed()),
            (EntryId::new(1, 1), LogIndex(1)),
            "taken like any other"
        );
        assert_eq!((raft.deadline(), raft.vote_hold_until()), (deadline, hold));
        let (to, reply) = answer(&mut raft, now, effects).expect("the entry is on disk");
        assert_eq!((to, reply.upto), (NodeId(2), LogIndex(1)), "the leader counts it, not the relay");
        assert_eq!(reply.round, Round(1), "an answer to round 5 would grant a vote hold");
        let mut effects = Effects::default();
        raft.on_append(now, DIRECT, append(), &mut effects);
        assert_eq!(raft.vote_hold_until(), now + raft.config.election_timeout);
        let (_, reply) = answer(&mut raft, now, effects).expect("a repeat of what is durable");
        assert_eq!(reply.round, Round(5));
    }

    #[test]
    fn entries_that_another_member_sends_end_no_suspicion() {
        let mut raft = member(config());
        let mut effects = Effects::default();
        assert!(raft.follow(Instant(1), DIRECT, &mut effects));
        raft.link_closed(Instant(2), NodeId(2), LinkEnd::ByPeer, &mut effects);
        assert!(raft.suspects_leader());
        raft.on_append(Instant(3), RELAYED, append(), &mut effects);
        assert!(raft.suspects_leader(), "the leader may have died after it sent them");
        raft.on_append(Instant(3), DIRECT, append(), &mut effects);
        assert!(!raft.suspects_leader());
    }

    #[test]
    fn the_sender_answers_for_what_it_sends() {
        let mut raft = member(config());
        let mut effects = Effects::default();
        assert!(raft.follow(Instant(1), DIRECT, &mut effects));
        let second = Origin { leader: NodeId(1), sender: NodeId(3) };
        raft.on_append(Instant(2), second, append(), &mut effects);
        let of_later_term = Append { prev: EntryId::new(7, 0), ..append() };
        raft.on_append(Instant(2), RELAYED, of_later_term, &mut effects);
        let falsehoods = [Falsehood::SecondLeader(Term(1)), Falsehood::Entries(EntryId::new(7, 0))];
        assert_eq!(effects.distrust, falsehoods.map(|falsehood| (NodeId(3), falsehood)));
        assert_eq!(raft.last_id(), EntryId::default());
    }

    #[test]
    fn a_leader_of_an_older_term_learns_the_newer_one_over_whichever_path_it_spoke() {
        let mut raft = member(config());
        let mut effects = Effects::default();
        raft.answer_stale(RELAYED, Message::Append(append()), &mut effects);
        let to: alloc::vec::Vec<NodeId> = effects.send.iter().map(|envelope| envelope.to).collect();
        assert_eq!(to, [NodeId(2)]);
        assert!(matches!(effects.send[0].message, Message::StaleTerm(_)));
    }
}
