//! Observer: passes everything that members do to the judges of the protocol.
//!
//! Each handled event is judged at once, cheaply; the state of all members now and then; stores by their digest every
//! `DIGEST_EVERY` entries.
//! Knows nothing of: members' internals.

use crate::clock::Clock;
use crate::plan::Leases;
use crate::report::Violation;
use kattu_node::contract::Effects;
use kattu_node::{Keeper, Node};
use kattu_raft::{Entry, EntryId, LogIndex, Lsn, Membership, NodeId, Raft, Recovered, Trace};
use kattu_verify::invariants::{Invariants, Violation as Broken};

/// Stores are compared at every index that is a multiple of this.
const DIGEST_EVERY: u64 = 1024;

impl From<Broken> for Violation {
    fn from(broken: Broken) -> Violation {
        Violation { operations: broken.operations, ..Violation::new(broken.property, broken.story) }
    }
}

/// The judges of one storm.
pub(crate) struct Observer {
    invariants: Invariants,
    /// A member may lie: then these judges do not apply.
    blind: bool,
    /// Checks of the whole state so far.
    pub(crate) looks: u64,
}

impl Observer {
    pub(crate) fn new(voters: &[NodeId], blind: bool) -> Observer {
        Observer { invariants: Invariants::new(voters), blind, looks: 0 }
    }

    /// Whether a member lies, or has lied: what is safe is not judged.
    pub(crate) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Runs a judge, unless the observer is blind.
    fn ask<T: Default>(
        &mut self,
        judge: impl FnOnce(&mut Invariants) -> Result<T, Broken>,
    ) -> Result<T, Violation> {
        if self.blind { Ok(T::default()) } else { Ok(judge(&mut self.invariants)?) }
    }

    pub(crate) fn restarted(&mut self, member: NodeId, recovered: &Recovered) -> Result<(), Violation> {
        self.ask(|it| it.restarted(member, recovered))
    }

    pub(crate) fn stepped(
        &mut self,
        member: NodeId,
        node: &Node,
        effects: &Effects,
    ) -> Result<(), Violation> {
        self.ask(|it| it.stepped(member, node, effects))
    }

    /// Clocks within their bound are never reported, and a leader with proof that clocks run apart has no leader lease.
    /// [fault-model F42]
    pub(crate) fn clocks(
        &mut self,
        member: NodeId,
        raft: &Raft,
        accusation: Option<&Trace>,
        leases: Leases,
    ) -> Result<(), Violation> {
        if self.blind {
            return Ok(());
        }
        if let Some(accusation) = accusation.filter(|_| !leases.are_broken()) {
            let story = format!("n{}: {accusation:?}, and all clocks are within their bound", member.0);
            return Err(Violation::new("no_clock_is_accused_in_vain", story));
        }
        if raft.leader_lease_until().is_some() && !raft.clocks_apart().is_empty() {
            let story = format!("n{} has one; clocks of {:?} run apart", member.0, raft.clocks_apart());
            return Err(Violation::new("no_lease_among_clocks_apart", story));
        }
        Ok(())
    }

    /// Whether a leader lease has begun; it is a violation if another member leads while one holds.
    pub(crate) fn lease(
        &mut self,
        member: NodeId,
        raft: &Raft,
        clock: &Clock,
        now: u64,
    ) -> Result<bool, Violation> {
        let lease = raft.leader_lease_until().map(|until| (raft.term(), clock.when(until, now)));
        self.ask(|it| it.lease(member, lease, now))
    }

    pub(crate) fn durable(&mut self, member: NodeId, lsn: Lsn) -> Result<(), Violation> {
        self.ask(|it| it.durable(member, lsn))
    }

    pub(crate) fn crashed(&mut self, member: NodeId) -> Result<(), Violation> {
        self.ask(|it| it.crashed(member))
    }

    pub(crate) fn wiped(&mut self, member: NodeId) {
        if !self.blind {
            self.invariants.wiped(member);
        }
    }

    /// A member's log is cut before the damage: from its next start a vote floor says what it had.
    pub(crate) fn cut(&mut self, member: NodeId) {
        if !self.blind {
            self.invariants.cut(member);
        }
    }

    /// A member starts from an older state of its directory; the others must remind it of what it acknowledged.
    pub(crate) fn returns_older(&mut self, member: NodeId) {
        if !self.blind {
            self.invariants.returns_older(member);
        }
    }

    /// It starts from its newest state instead.
    pub(crate) fn returns_newest(&mut self, member: NodeId) {
        if !self.blind {
            self.invariants.returns_newest(member);
        }
    }

    /// A member starts from an older state of its directory.
    pub(crate) fn rolled_back(&mut self, member: NodeId) {
        if !self.blind {
            self.invariants.rolled_back(member);
        }
    }

    pub(crate) fn applied(
        &mut self,
        member: NodeId,
        entry: &Entry,
        keeper: &Keeper,
    ) -> Result<(), Violation> {
        self.applied_within(member, entry)?;
        let index = entry.id().index;
        if index.0.is_multiple_of(DIGEST_EVERY) {
            self.ask(|it| it.digest(member, index, keeper.digest()))?;
        }
        Ok(())
    }

    /// The same, of an entry that was applied together with later ones.
    pub(crate) fn applied_within(&mut self, member: NodeId, entry: &Entry) -> Result<(), Violation> {
        self.ask(|it| it.applied(member, entry))
    }

    /// A snapshot is complete on a member's disk.
    pub(crate) fn snapshot(&mut self, member: NodeId, last: EntryId) -> Result<(), Violation> {
        self.ask(|it| it.snapshot(member, last))
    }

    /// A store is about to become a snapshot, or was just made from one: all at this index are the same.
    pub(crate) fn tables(&mut self, member: NodeId, keeper: &Keeper) -> Result<(), Violation> {
        self.ask(|it| it.digest(member, keeper.applied(), keeper.digest()))
    }

    /// A store was replaced by a snapshot.
    pub(crate) fn installed(&mut self, member: NodeId, last: EntryId) -> Result<(), Violation> {
        self.ask(|it| it.installed(member, last))
    }

    /// The newest configuration committed anywhere.
    pub(crate) fn membership(&self) -> &Membership {
        self.invariants.membership()
    }

    /// That one, and those that may come after it.
    pub(crate) fn memberships(&self) -> impl Iterator<Item = &Membership> {
        self.invariants.memberships()
    }

    /// How far the log is committed anywhere.
    pub(crate) fn committed(&self) -> LogIndex {
        self.invariants.committed()
    }

    /// Checks the state of all members.
    pub(crate) fn whole(&mut self, members: &[(NodeId, &Raft)]) -> Result<(), Violation> {
        self.looks += 1;
        self.ask(|it| it.whole(members))
    }
}
