//! Scopes: which tiny clusters are explored, how much may happen in each, and how many worlds each has.
//!
//! The number of worlds is pinned. A number that falls shows that something can no longer happen: the core, or the
//! harness, has lost behaviour. A number that rises is a change too, to be understood and pinned anew.
//! Knows nothing of: the search.

mod table;

pub use table::SCOPES;

use crate::clocks::Clocks;
use kattu_raft::canonical::Moment;
use kattu_raft::policy::Weak;
use kattu_raft::{Membership, NodeId};

/// One tiny cluster, with a bound on everything that could go on for ever.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// All members, voters or not.
    pub members: usize,
    /// How many members, from the first on, vote in the first configuration; 0: all.
    pub voters: usize,
    /// How many of the next ones are learners. The rest start without a configuration.
    pub learners: usize,
    /// Pre-vote and check-quorum are on.
    pub guarded: bool,
    /// The first world.
    pub start: Start,
    /// No member goes beyond this term.
    pub term_max: u64,
    /// Leases, and the clocks they go by. `None`: of time only the deadlines ahead are kept.
    pub clocks: Option<Clocks>,
    /// How many deadlines fire in all, by reason; others never do. With clocks, all deadlines that are due at a member
    /// fire together.
    pub fires: &'static [(Moment, u8)],
    /// Client commands.
    pub proposals: u8,
    /// Places of a follower's window; 0: none.
    pub window: u32,
    /// Which entries a leader reports as received.
    pub weak: Weak,
    /// Linearizable reads, at any member that knows a leader.
    pub reads: u8,
    /// Changes of members, in this order, at any leader.
    pub changes: &'static [Target],
    /// Leadership transfers, to any member.
    pub transfers: u8,
    /// Snapshots of what is applied, by any member; the log is pruned up to them.
    pub snapshots: u8,
    /// Links from followers to their leader that its kernel closes, whether its process lives or not.
    pub closes: u8,
    /// Crashes; each member that crashed may start again, or not.
    pub crashes: u8,
    /// Messages that arrive twice.
    pub copies: u8,
    /// Messages lost from the head of a queue. Under [`Order::Any`] a message that is never delivered is lost.
    pub losses: u8,
    /// In which order messages arrive.
    pub order: Order,
    /// Messages under way on one link; more are lost.
    pub in_flight_max: usize,
    /// Answers of a term that their addressee has durably left stay under way. Otherwise they are dropped, because a
    /// correct member ignores them.
    pub keeps_dead: bool,
    /// How far the disk comes at a time.
    pub sync: Sync,
    /// The driver calls `drained` at any time, and not after every event.
    pub late_drain: bool,
    /// The greatest distance of a world from the first one; 0: no bound.
    pub depth_max: usize,
    /// What must have happened in some world, or the scope shows nothing.
    pub must_see: &'static [Mark],
    /// How many worlds there are.
    pub pinned: u64,
    /// When it is explored.
    pub when: When,
    /// A disk that breaks its guarantee, to test the judges.
    pub lie: Option<Lie>,
}

/// The members after a change.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Voters.
    pub voters: &'static [u64],
    /// Learners.
    pub learners: &'static [u64],
}

/// The state in which a scope begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All members have just started with empty disks.
    Fresh,
    /// Member 1 leads term 1, all members have committed its first entry, nothing is under way.
    Elected,
    /// The same, and all members have answered a round at this very moment: the lease has just begun.
    Leased,
}

/// In which order messages of one link arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In any order, or never.
    Any,
    /// As they were sent, except for lost ones.
    Queues,
}

/// How far the disk comes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Up to any record.
    Each,
    /// Up to the newest one. Crashes still keep any prefix.
    All,
    /// It completes everything before anything else happens.
    AtOnce,
}

/// When a scope is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At every commit.
    Always,
    /// In campaigns.
    Campaign,
}

/// How a disk may break its guarantee; in tests of the judges only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A crash loses one synced entry.
    LosesTheLastEntry,
    /// A crash loses the vote and keeps the term.
    ForgetsTheVote,
}

/// Something that happens in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A member is elected in term 1.
    Elected,
    /// A member is elected in a later term.
    Reelected,
    /// A client's command is committed.
    CommandCommitted,
    /// Entries of a former leader are cut off.
    Truncated,
    /// A crashed member starts again.
    Restarted,
    /// A read is served.
    ReadServed,
    /// A read that was taken fails.
    ReadRefused,
    /// A joint configuration is committed.
    JointCommitted,
    /// A configuration that is not joint is committed.
    ChangeCompleted,
    /// A configuration is cut off.
    ChangeTruncated,
    /// A leader transfers leadership.
    Transferring,
    /// A log is pruned up to a snapshot that was taken.
    Pruned,
    /// A leader's snapshot replaces a log.
    Installed,
    /// A read is answered by a lease.
    ReadByLease,
    /// A lease comes to its end, and its leader goes on.
    LeaseEnded,
    /// A lease is given up for a leadership transfer.
    LeaseGivenUp,
    /// A lease is dropped by a leader that slept.
    LeaseSlept,
    /// Entries join a log from the window.
    GapClosed,
    /// A leader reports entries as received.
    Received,
    /// A leader reports an entry as received and has not reported its predecessor.
    ReceivedBeyondGap,
    /// An entry of a later term is committed in the place of one that was reported as received, or before it.
    ReceivedLost,
}

impl Mark {
    /// All of them, in the order of their numbers.
    pub const ALL: [Mark; 21] = [
        Mark::Elected,
        Mark::Reelected,
        Mark::CommandCommitted,
        Mark::Truncated,
        Mark::Restarted,
        Mark::ReadServed,
        Mark::ReadRefused,
        Mark::JointCommitted,
        Mark::ChangeCompleted,
        Mark::ChangeTruncated,
        Mark::Transferring,
        Mark::Pruned,
        Mark::Installed,
        Mark::ReadByLease,
        Mark::LeaseEnded,
        Mark::LeaseGivenUp,
        Mark::LeaseSlept,
        Mark::GapClosed,
        Mark::Received,
        Mark::ReceivedBeyondGap,
        Mark::ReceivedLost,
    ];

    /// A short name, for what is counted and not only seen.
    #[must_use]
    pub fn counted(self) -> Option<&'static str> {
        match self {
            Mark::ReadByLease => Some("reads by a lease"),
            Mark::LeaseEnded => Some("leases that end"),
            Mark::LeaseGivenUp => Some("leases given up"),
            Mark::LeaseSlept => Some("leases slept through"),
            Mark::GapClosed => Some("gaps closed"),
            Mark::Received => Some("reports of received entries"),
            Mark::ReceivedBeyondGap => Some("of them beyond a gap"),
            Mark::ReceivedLost => Some("received entries lost"),
            _ => None,
        }
    }
}

impl Scope {
    /// The first configuration, as `member` is given it.
    #[must_use]
    pub(crate) fn first_configuration(&self, member: NodeId) -> Membership {
        let voters = if self.voters == 0 { self.members } else { self.voters } as u64;
        let all = voters + self.learners as u64;
        if all < member.0 {
            return Membership::default(); // it joins an existing group
        }
        let list = |from: u64, upto: u64| (from..=upto).map(NodeId).collect();
        Membership::new(list(1, voters), list(voters + 1, all))
    }
}

/// The base of every scope: three members, nothing may happen.
pub const TINY: Scope = Scope {
    name: "",
    about: "",
    members: 3,
    voters: 0,
    learners: 0,
    guarded: true,
    start: Start::Fresh,
    term_max: 2,
    clocks: None,
    fires: &[],
    proposals: 0,
    window: 0,
    weak: Weak::Off,
    reads: 0,
    changes: &[],
    transfers: 0,
    snapshots: 0,
    closes: 0,
    crashes: 0,
    copies: 0,
    losses: 0,
    order: Order::Any,
    in_flight_max: 8,
    keeps_dead: false,
    sync: Sync::All,
    late_drain: false,
    depth_max: 0,
    must_see: &[],
    pinned: 0,
    when: When::Always,
    lie: None,
};

/// The scope with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scope> {
    SCOPES.iter().find(|scope| scope.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_has_a_name_of_its_own_a_pinned_number_and_something_to_show() {
        for (n, scope) in SCOPES.iter().enumerate() {
            assert!(SCOPES[..n].iter().all(|other| other.name != scope.name), "{} twice", scope.name);
            assert!(scope.pinned > 0 && !scope.must_see.is_empty() && scope.lie.is_none(), "{}", scope.name);
        }
    }

    #[test]
    fn scopes_of_leases_have_members_that_ask_first_and_disks_that_take_no_time() {
        let of_leases = || SCOPES.iter().filter(|scope| scope.clocks.is_some());
        assert!(of_leases().count() > 0);
        for scope in of_leases() {
            assert!(scope.guarded && scope.members == 3 && scope.sync == Sync::AtOnce, "{}", scope.name);
            assert!(scope.start != Start::Fresh && !scope.late_drain, "{}", scope.name);
        }
    }

    #[test]
    fn every_commit_sees_a_hundred_thousand_states_and_a_campaign_ten_million() {
        let sum = |when: &[When]| -> u64 {
            SCOPES.iter().filter(|scope| when.contains(&scope.when)).map(|scope| scope.pinned).sum()
        };
        assert!(100_000 <= sum(&[When::Always]));
        assert!(10_000_000 <= sum(&[When::Always, When::Campaign]));
    }
}
