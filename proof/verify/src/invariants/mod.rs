//! Invariants of the protocol: ghost state of a cluster, fed with everything that its members do.
//!
//! The driver of a cluster reports, in this order: a member (re)started; after each handled event, its effects and no
//! older ones; a disk completed records (before the member itself knows); a crash; an entry was applied; a digest was
//! taken. Costs per call are proportional to what is new, never to the length of a log.
//!
//! | File | Property |
//! |---|---|
//! | `election_safety.rs` | one leader per term, by a quorum of durable votes |
//! | `votes.rs` | O4, and one vote per term, for ever |
//! | `leader_append_only.rs` | leaders only append, entries of their own term |
//! | `log_matching.rs` | one index and term, one history |
//! | `leader_completeness.rs` | leaders hold everything committed |
//! | `commits.rs` | O2, O3: commits are on a quorum's disks |
//! | `committed_is_final.rs` | O8 |
//! | `configurations.rs` | M2–M5: one change at a time, by steps that overlap |
//! | `truncations.rs` | L3, L7: only a contradiction cuts a log |
//! | `state_machine_safety.rs` | stores apply what is committed, once, in order |
//! | `marks.rs` | marks are ordered and monotone, persisted is on the disk |
//! | `acknowledgements.rs` | O1 |
//! | `matches.rs` | match ≤ what was acknowledged |
//! | `message_terms.rs` | O6 |
//! | `verified.rs` | O7 |
//! | `served.rs` | ST17: no half-replayed store is read |
//! | `bases.rs` | N1, N3, ST9: only a durable snapshot of committed entries takes a log's place |
//! | `leases.rs` | L-2 – L-7: while a lease holds no member leads a later term |
//! | `durability.rs` | what was durable comes back |
//! | `weak.rs` | WK4, WK5, WK8: weak answers are the leader's, within the budget, and end once |
//! | `digests.rs` | replicas agree |
//!
//! O5 (buffers have no influence) follows from these: what a window did to an acknowledgement or a commit, they see.
//! Knows nothing of: time, networks, clients.

mod acknowledgements;
mod bases;
mod commits;
mod committed_is_final;
mod configurations;
mod digests;
mod durability;
mod election_safety;
mod ghost;
mod leader_append_only;
mod leader_completeness;
mod leases;
mod log_matching;
mod marks;
mod matches;
mod message_terms;
mod served;
mod state_machine_safety;
mod truncations;
mod verified;
mod votes;
mod weak;

pub use crate::judges::Violation;

use ghost::{Ghost, Harm, Line, Member};
use kattu_node::Node;
use kattu_node::contract::{Effects, PeerMessage};
use kattu_raft::policy::Capacity;
use kattu_raft::{
    Entry, EntryId, EntryKind, Falsehood, LogBody, LogIndex, LogRecord, Lsn, Membership, NodeId, Raft,
    Recovered, Term, Trace,
};

type Checked = Result<(), Violation>;

/// The ghost state.
#[derive(Clone, Debug)]
pub struct Invariants {
    ghost: Ghost,
}

/// A message that no correct member could send shows that some guarantee was violated.
fn nobody_lies(by: NodeId, peer: NodeId, falsehood: Falsehood) -> Checked {
    let property = match falsehood {
        Falsehood::SecondLeader(_) => "election_safety",
        Falsehood::BeyondLog(_) => "acknowledgements",
        Falsehood::Contradiction(_) => "verified",
        Falsehood::TermAhead(_)
        | Falsehood::Count
        | Falsehood::RoundAhead(_)
        | Falsehood::Unasked(_)
        | Falsehood::Entries(_)
        | Falsehood::Snapshot(_)
        | Falsehood::Newer(_) => "nobody_lies",
    };
    ghost::expect(false, property, || format!("{by:?} says of {peer:?}: {falsehood}"))
}

/// The public state of a member's core.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    term: Term,
    leads: bool,
    leader: Option<NodeId>,
    committed: LogIndex,
    delivered: LogIndex,
    persisted: LogIndex,
    verified: LogIndex,
    confirmed: Option<LogIndex>,
    /// Of weak answers, if the cluster gives any.
    weak_budget: Option<Capacity>,
}

impl View {
    fn of(node: &Node) -> View {
        let raft = node.raft();
        View {
            term: raft.term(),
            leads: raft.is_leader(),
            leader: raft.leader(),
            committed: raft.committed(),
            delivered: raft.applied_delivered(),
            persisted: raft.persisted_index(),
            verified: raft.verified(),
            confirmed: node.confirmed(),
            weak_budget: node.weak_budget(),
        }
    }
}

impl Invariants {
    /// Of a cluster with these voters; learners need not be named. No member has started yet.
    #[must_use]
    pub fn new(voters: &[NodeId]) -> Invariants {
        Invariants { ghost: Ghost::new(voters) }
    }

    /// A member starts from what its log recovered; also at its very first start (then with an empty `recovered`).
    ///
    /// # Errors
    /// The first invariant that does not hold; so for all methods that follow.
    pub fn restarted(&mut self, member: NodeId, recovered: &Recovered) -> Checked {
        let ghost = &mut self.ghost;
        let place = ghost.place(member);
        // The numbers of records that the disk has lost are stored nowhere until there are new ones.
        let is_harmed = ghost.at(place).harm.is_some();
        durability::recovered(ghost, place, recovered)?;
        votes::durable(ghost, place, recovered.hard);
        let found = ghost.at(place).disk.clone();
        let served_before = ghost.at(place).served_before.max(ghost.at(place).served);
        let snapshot = ghost.at(place).snapshot;
        let (has_lost, lost) = (ghost.at(place).has_lost, ghost.at(place).lost.clone());
        let vote_floor = ghost.at(place).vote_floor;
        let covered = recovered.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.last.index);
        let agreed = (1..=found.last().index.min(ghost.chosen.last().index).0)
            .map(LogIndex)
            .take_while(|&index| found.line(index) == ghost.chosen.line(index))
            .last();
        *ghost.at_mut(place) = Member {
            runs: true,
            hard: recovered.hard,
            disk_hard: recovered.hard,
            emitted: recovered.lsn,
            durable: if is_harmed { Lsn(0) } else { recovered.lsn },
            term: recovered.hard.term,
            committed: recovered.committed,
            marked: recovered.committed,
            served_before,
            applied: covered,
            delivered: covered,
            snapshot,
            has_lost,
            lost,
            vote_floor,
            disk_vote_floor: vote_floor,
            persisted: found.last().index,
            agreed: agreed.unwrap_or_default(),
            log: found.clone(),
            disk: found,
            ..Member::new(member)
        };
        Ok(())
    }

    /// A member handled one event; `effects` holds what this event emitted and nothing older.
    ///
    /// # Errors
    /// As above.
    pub fn stepped(&mut self, member: NodeId, node: &Node, effects: &Effects) -> Checked {
        self.saw(member, &View::of(node), effects)?;
        let raft = node.raft();
        if raft.is_leader() {
            let place = self.ghost.place(member);
            for (peer, matched) in raft.peer_matches() {
                let is_of = |trace: &Trace| matches!(trace, Trace::LostMatch { peer: of, .. } if *of == peer);
                let is_told_lost = effects.trace.iter().any(is_of);
                matches::stepped(&mut self.ghost, place, raft.term(), peer, matched, is_told_lost)?;
            }
        }
        Ok(())
    }

    fn saw(&mut self, member: NodeId, view: &View, effects: &Effects) -> Checked {
        let ghost = &mut self.ghost;
        let place = ghost.place(member);
        ghost::expect(ghost.at(place).runs, "told_in_order", || {
            format!("{member:?} steps and has not started")
        })?;
        for trace in &effects.trace {
            if let Trace::BecameLeader(term) = trace {
                election_safety::became_leader(ghost, place, *term)?;
                leader_completeness::became_leader(ghost, place, *term)?;
            }
        }
        let led = ghost.at(place).leads;
        // A leader commits; so does one that led before the event and resigned on committing its own removal. [M7]
        let has_led = view.leads || ghost.at(place).leads == Some(view.term);
        let commits = has_led && ghost.at(place).committed < view.committed;
        let before = commits.then(|| ghost.configuration_of(&ghost.at(place).log).1.clone());
        effects.persist.iter().try_for_each(|record| persisted(ghost, place, view, record))?;
        verified::stepped(ghost, place, view)?; // before what follows from it
        commits::stepped(ghost, place, view, before.as_ref())?;
        served::stepped(ghost, place, view, &effects.apply)?;
        marks::stepped(ghost, place, view)?;
        for message in &effects.send {
            match message {
                PeerMessage::Raft(envelope) => {
                    message_terms::sent(ghost, place, view, envelope)?;
                    votes::sent(ghost, place, envelope)?;
                    acknowledgements::sent(ghost, place, envelope)?;
                    matches::sent(ghost, place, envelope)?;
                }
                PeerMessage::Forward(forward) => {
                    message_terms::forwarded(ghost, place, view, forward.from, forward.term)?;
                }
                PeerMessage::ForwardReply(reply) => {
                    message_terms::forwarded(ghost, place, view, reply.from, reply.term)?;
                }
            }
        }
        weak::stepped(ghost, place, view, effects)?;
        election_safety::stepped(ghost, place, view)?; // a leader that resigns still sends as leader
        if led.is_some() && ghost.at(place).leads != led {
            ghost.stops_leading(place);
        }
        effects.distrust.iter().try_for_each(|(peer, falsehood)| nobody_lies(member, *peer, *falsehood))
    }

    /// A member that may have a lease has handled an event, at `now`; `lease` is its term and its end. Both times are
    /// by a clock that all members share. Returns whether a lease began.
    ///
    /// # Errors
    /// As above: another member leads a later term. The ghost remains usable.
    pub fn lease(&mut self, member: NodeId, lease: Option<(Term, u64)>, now: u64) -> Result<bool, Violation> {
        let place = self.ghost.place(member);
        let began = leases::told(&mut self.ghost, place, lease, now);
        leases::check(&self.ghost, now).map(|()| began)
    }

    /// All records of a member up to this one are durable. Reported no later than to the member.
    ///
    /// # Errors
    /// As above.
    pub fn durable(&mut self, member: NodeId, lsn: Lsn) -> Checked {
        let place = self.ghost.place(member);
        durability::durable(&mut self.ghost, place, lsn)
    }

    /// A member's process ended; records that were not durable may or may not be there at its next start.
    ///
    /// # Errors
    /// If it does not run.
    pub fn crashed(&mut self, member: NodeId) -> Checked {
        self.ghost.leases.remove(&member);
        let place = self.ghost.place(member);
        let member = self.ghost.at_mut(place);
        let ran = std::mem::replace(&mut member.runs, false);
        let id = member.id;
        self.ghost.stops_leading(place);
        ghost::expect(ran, "told_in_order", || format!("{id:?} crashes and does not run"))
    }

    /// A member lost its data directory: it counts as new, and its votes and lease are void. But a leader that was
    /// reporting a loss to its former incarnation goes on with that.
    pub fn wiped(&mut self, member: NodeId) {
        let place = self.ghost.place(member);
        let has_lost = self.ghost.at(place).has_lost;
        *self.ghost.at_mut(place) = Member { has_lost, ..Member::new(member) };
        self.forget_votes(member);
    }

    /// Its acknowledgements stay: they were true when sent, and may arrive late.
    fn forget_votes(&mut self, member: NodeId) {
        self.ghost.leases.remove(&member);
        self.ghost.votes.retain(|(_, voter), _| *voter != member);
        self.ghost.ballots.values_mut().for_each(|voters| {
            voters.remove(&member);
        });
    }

    /// A member's log is damaged and will be cut at its start: its vote floor must cover the loss. (fault-model ST7)
    pub fn cut(&mut self, member: NodeId) {
        let place = self.ghost.place(member);
        self.ghost.at_mut(place).harm.get_or_insert(Harm::Cut);
    }

    /// A member will start from an older state of its directory, and nothing in it shows that. [F18, F19] Its votes and
    /// acknowledgements since then are void: the caller ensures that all others know them.
    pub fn rolled_back(&mut self, member: NodeId) {
        let place = self.ghost.place(member);
        self.ghost.at_mut(place).harm = Some(Harm::Older(None));
        self.forget_votes(member);
    }

    /// The same; but its votes stay, unless only this member knew of them, and of its log what is committed or counted by
    /// a leader that still leads. The others must remind it of that. (F19)
    pub fn returns_older(&mut self, member: NodeId) {
        let owed = self.ghost.owed_by(member);
        self.ghost.forget_campaigns(member);
        let place = self.ghost.place(member);
        self.ghost.at_mut(place).harm = Some(Harm::Older(Some(owed)));
    }

    /// A member that was to start from an older state will start from its newest one instead, and owes nothing beyond
    /// it. (F19)
    pub fn returns_newest(&mut self, member: NodeId) {
        let place = self.ghost.place(member);
        self.ghost.at_mut(place).harm = Some(Harm::Older(None));
    }

    /// A member's store applied an entry.
    ///
    /// # Errors
    /// As above.
    pub fn applied(&mut self, member: NodeId, entry: &Entry) -> Checked {
        let place = self.ghost.place(member);
        state_machine_safety::applied(&mut self.ghost, place, entry)
    }

    /// A snapshot that ends here is complete on a member's disk: durable, and every byte of it checked.
    ///
    /// # Errors
    /// As above.
    pub fn snapshot(&mut self, member: NodeId, last: EntryId) -> Checked {
        let place = self.ghost.place(member);
        bases::snapshot(&mut self.ghost, place, last)
    }

    /// A snapshot replaced a member's store.
    ///
    /// # Errors
    /// As above.
    pub fn installed(&mut self, member: NodeId, last: EntryId) -> Checked {
        let place = self.ghost.place(member);
        bases::installed(&mut self.ghost, place, last)
    }

    /// A member's store, having applied everything up to here, has this digest.
    ///
    /// # Errors
    /// As above.
    pub fn digest(&mut self, member: NodeId, index: LogIndex, digest: u64) -> Checked {
        let place = self.ghost.place(member);
        digests::digest(&mut self.ghost, place, index, digest)
    }

    /// The newest configuration that is committed.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        self.ghost.configuration_of(&self.ghost.chosen).1
    }

    /// That one, and all that any log holds after it, or held.
    pub fn memberships(&self) -> impl Iterator<Item = &Membership> {
        let (at, committed) = self.ghost.configuration_of(&self.ghost.chosen);
        let later = self.ghost.configurations.iter().filter(move |(id, _)| at < id.index);
        std::iter::once(committed).chain(later.map(|(_, membership)| membership))
    }

    /// How many entries are committed.
    #[must_use]
    pub fn committed(&self) -> LogIndex {
        self.ghost.chosen.last().index
    }

    /// Checks the whole state of the running members: expensive, so for now and then. Runs each core's own invariants;
    /// besides, the core must hold the log that it emitted.
    ///
    /// # Errors
    /// As above.
    pub fn whole(&self, members: &[(NodeId, &Raft)]) -> Checked {
        for &(id, raft) in members {
            kattu_raft::invariants::check(raft).map_err(|violation| Violation {
                property: violation.name,
                story: format!("{id:?}: {}", violation.detail),
                operations: Vec::new(),
            })?;
            let Some(member) = self.ghost.member(id) else { continue };
            let (base, last) = (member.log.base(), member.log.last());
            ghost::expect(raft.base() == base, "log_as_told", || {
                format!("the log of {id:?} begins after {}; it told {base}", raft.base())
            })?;
            ghost::expect(raft.last_id() == last, "log_as_told", || {
                format!("the log of {id:?} ends at {}; it told {last}", raft.last_id())
            })?;
            for index in (raft.first_index().0..=last.index.0).map(LogIndex) {
                let (held, told) = (raft.term_at(index), member.log.term(index));
                ghost::expect(held == told, "log_as_told", || {
                    format!("{id:?} holds {held:?} at {index:?}; it told {told:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// A record is emitted to the disk.
fn persisted(ghost: &mut Ghost, place: usize, view: &View, record: &LogRecord) -> Checked {
    durability::emitted(ghost, place, record)?;
    let mut line = None;
    match &record.body {
        LogBody::HardState(hard) => votes::recorded(ghost, place, *hard)?,
        LogBody::Truncate(first) => {
            leader_append_only::truncated(ghost, place, *first)?;
            committed_is_final::truncated(ghost, place, *first)?;
            truncations::truncated(ghost, place, *first)?;
        }
        LogBody::Entry(entry) => {
            leader_append_only::appended(ghost, place, entry)?;
            let new = Line::of(entry);
            log_matching::appended(ghost, place, entry.id(), new)?;
            if entry.head.kind == EntryKind::Config {
                configurations::appended(ghost, place, view, entry)?;
            }
            line = Some(new);
        }
        LogBody::Base(base) => bases::rebased(ghost, place, *base)?,
        LogBody::VoteFloor(vote_floor) => matches::floored(ghost, place, *vote_floor)?,
        LogBody::Commit(_) => {}
    }
    let (member, chosen) = ghost.member_and_chosen(place);
    member.emit(record, line, chosen);
    Ok(())
}

#[cfg(test)]
mod tests;
