//! Invariants of leader changes, checked against a record of all messages: no member campaigns without a quorum of
//! pre-votes; no member claims a leader's consent that was not given; while a leader's lease holds, no other member
//! leads a later term. [replication-protocols E2, E3a, M9, L-2, L-6]

use crate::Peer;
use kattu_raft::message::Message;
use kattu_raft::{Envelope, Instant, NodeId, Raft, Round, Term};
use std::collections::{BTreeMap, BTreeSet};

type Peers = BTreeMap<NodeId, Peer>;

/// The record of the relevant messages.
#[derive(Default)]
pub struct Leading {
    /// The voters that granted a member's pre-vote, by member, term and round.
    would_vote: BTreeMap<(NodeId, Term, Round), BTreeSet<NodeId>>,
    /// The newest round in which a member asked about a term.
    asked: BTreeMap<(NodeId, Term), Round>,
    /// Targets of `TimeoutNow`, with the term that was to end.
    told: BTreeSet<(NodeId, Term)>,
    /// Senders of `TimeoutNow`, with their term.
    transferred: BTreeSet<(NodeId, Term)>,
    /// Turns the check of leases off, for tests of what wrong leases lead to.
    pub believes_leases: bool,
}

impl Leading {
    /// Records and checks the messages that a member sends.
    pub fn observe(&mut self, id: NodeId, peers: &Peers, sent: &[Envelope]) {
        for envelope in sent {
            let (to, term) = (envelope.to, envelope.term);
            match &envelope.message {
                Message::PreVote(request) => {
                    self.asked.insert((id, request.campaign_term), request.round);
                }
                Message::PreVoteReply(reply) if reply.granted => {
                    self.would_vote.entry((to, reply.campaign_term, reply.round)).or_default().insert(id);
                }
                Message::TimeoutNow(_) => {
                    self.told.insert((to, term));
                    self.transferred.insert((id, term));
                }
                Message::Vote(vote) if vote.transfer => {
                    let wanted = self.told.contains(&(id, Term(term.0 - 1)));
                    assert!(
                        wanted,
                        "transfers_are_wanted: {} campaigns in {term:?} as if the leader before had wanted it [M9]",
                        id.0
                    );
                }
                Message::Vote(_) if peers[&id].config.pre_vote => self.check_campaign(id, peers, term),
                _ => {}
            }
        }
        if let Some(raft) = &peers[&id].raft
            && self.transferred.contains(&(id, raft.term()))
        {
            let lease = raft.leader_lease_until();
            assert_eq!(lease, None, "no_lease_after_transfer: {} has one after it handed over [L-6]", id.0);
        }
    }

    /// A quorum granted a pre-vote (rule E2).
    fn check_campaign(&self, id: NodeId, peers: &Peers, term: Term) {
        let Some(raft) = &peers[&id].raft else { return };
        if raft.role_name() != "candidate" {
            return; // sent late: its members may be others by now
        }
        let membership = raft.membership();
        let nobody = BTreeSet::new();
        let round = self.asked.get(&(id, term)).copied().unwrap_or_default();
        let would_vote = self.would_vote.get(&(id, term, round)).unwrap_or(&nobody);
        assert!(
            membership.has_quorum(|voter| voter == id || would_vote.contains(&voter)),
            "campaigns_are_asked_for: {} campaigns in {term:?}, and only {would_vote:?} of {membership:?} would vote [E2]",
            id.0
        );
    }

    /// While a lease holds, no member leads a later term. [L-2]
    pub(crate) fn check_leases(&self, now: Instant, peers: &Peers) {
        if self.believes_leases {
            return;
        }
        let running = || peers.iter().filter_map(|(id, peer)| Some((id, peer, peer.raft.as_ref()?)));
        let holds = |peer: &Peer, raft: &Raft| {
            raft.leader_lease_until().is_some_and(|until| peer.clock.at(now) < until)
        };
        for (id, peer, raft) in running().filter(|(_, peer, raft)| holds(peer, raft)) {
            for (other, _, later) in running().filter(|(_, _, later)| later.is_leader()) {
                let left = peer.clock.when(raft.leader_lease_until().unwrap_or_default()).since(now);
                assert!(
                    later.term() <= raft.term(),
                    "leases_exclude_leaders: {} leads {:?} while the lease of {} in {:?} holds for another {left:?} [L-2]",
                    other.0,
                    later.term(),
                    id.0,
                    raft.term()
                );
            }
        }
    }
}
