//! Scopes: which tiny clusters are explored, how much may happen in each, and how many worlds each has.
//!
//! The number of worlds is pinned. A number that falls shows that something can no longer happen: the core, or the
//! harness, has lost behaviour. A number that rises is a change too, to be understood and pinned anew.
//! Knows nothing of: the search.

use crate::clocks::{ALL_WAYS, Clocks, EXTREME_WAYS, WORST_WAY};
use kattu_raft::canonical::Moment;
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
}

impl Mark {
    /// All of them, in the order of their numbers.
    pub const ALL: [Mark; 17] = [
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
    ];

    /// A short name, for what is counted and not only seen.
    #[must_use]
    pub fn counted(self) -> Option<&'static str> {
        match self {
            Mark::ReadByLease => Some("reads by a lease"),
            Mark::LeaseEnded => Some("leases that end"),
            Mark::LeaseGivenUp => Some("leases given up"),
            Mark::LeaseSlept => Some("leases slept through"),
            _ => None,
        }
    }
}

impl Scope {
    /// The first configuration, as `member` is given it.
    #[must_use]
    pub fn first_configuration(&self, member: NodeId) -> Membership {
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

/// All scopes: those of every commit first, then from small to large.
pub const SCOPES: &[Scope] = &[
    Scope {
        name: "election-2",
        about: "two members, campaigns with pre-votes, a crash, a copied message",
        members: 2,
        fires: &[(Moment::Election, 3)],
        crashes: 1,
        copies: 1,
        sync: Sync::Each,
        must_see: &[Mark::Elected, Mark::Reelected, Mark::Restarted],
        pinned: 832_400,
        ..TINY
    },
    Scope {
        name: "election-3",
        about: "rivals in one term without pre-vote, a crash",
        guarded: false,
        term_max: 1,
        fires: &[(Moment::Election, 2)],
        crashes: 1,
        must_see: &[Mark::Elected, Mark::Restarted],
        pinned: 240_175,
        ..TINY
    },
    Scope {
        name: "prevote-3",
        about: "rivals in one term, with pre-vote",
        term_max: 1,
        fires: &[(Moment::Election, 2)],
        must_see: &[Mark::Elected],
        pinned: 361_126,
        ..TINY
    },
    Scope {
        name: "replicate-2",
        about: "a write, a crash, new leaders up to term 3",
        members: 2,
        guarded: false,
        start: Start::Elected,
        term_max: 3,
        fires: &[(Moment::Election, 2)],
        proposals: 1,
        crashes: 1,
        sync: Sync::Each,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Restarted],
        pinned: 178_531,
        ..TINY
    },
    Scope {
        name: "replicate-3",
        about: "a write and a new leader, disks record by record",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        in_flight_max: 2,
        sync: Sync::Each,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 175_699,
        keeps_dead: true,
        ..TINY
    },
    Scope {
        name: "queues-3",
        about: "the same over links that keep their order and lose a message",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        losses: 1,
        order: Order::Queues,
        in_flight_max: 2,
        sync: Sync::Each,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 109_577,
        ..TINY
    },
    Scope {
        name: "crash-3",
        about: "a write, a crash, a new leader",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        crashes: 1,
        in_flight_max: 1,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated, Mark::Restarted],
        pinned: 1_148_961,
        ..TINY
    },
    Scope {
        name: "read-3",
        about: "a read at anybody while a new leader commits",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        reads: 1,
        must_see: &[Mark::Reelected, Mark::ReadServed, Mark::ReadRefused],
        pinned: 84_956,
        keeps_dead: true,
        ..TINY
    },
    Scope {
        name: "read-crash-3",
        about: "a read, a crash, a new leader",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        reads: 1,
        crashes: 1,
        in_flight_max: 1,
        must_see: &[Mark::Reelected, Mark::ReadServed, Mark::Restarted],
        pinned: 552_127,
        ..TINY
    },
    Scope {
        name: "rounds-3",
        about: "a heartbeat and a read at anybody while a new leader commits",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        reads: 1,
        in_flight_max: 1,
        must_see: &[Mark::Reelected, Mark::ReadServed, Mark::ReadRefused],
        pinned: 423_802,
        ..TINY
    },
    Scope {
        name: "restart-2",
        about: "a write that is applied, a heartbeat from before, a restart, a read",
        members: 2,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::CommitNotice, 1), (Moment::Heartbeat, 1)],
        proposals: 1,
        reads: 1,
        crashes: 1,
        sync: Sync::Each,
        must_see: &[Mark::CommandCommitted, Mark::Restarted, Mark::ReadServed],
        pinned: 3_696_218,
        ..TINY
    },
    Scope {
        name: "late-2",
        about: "a driver that batches: a write, a read, a crash, a new leader",
        members: 2,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        reads: 1,
        crashes: 1,
        late_drain: true,
        sync: Sync::Each,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Restarted, Mark::ReadServed],
        pinned: 1_179_394,
        ..TINY
    },
    Scope {
        name: "grow-2",
        about: "one voter, a learner that gets a vote, a write, a crash, an election",
        members: 2,
        voters: 1,
        learners: 1,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        changes: &[Target { voters: &[1, 2], learners: &[] }],
        crashes: 1,
        in_flight_max: 1,
        sync: Sync::Each,
        must_see: &[
            Mark::CommandCommitted,
            Mark::JointCommitted,
            Mark::ChangeCompleted,
            Mark::ChangeTruncated,
            Mark::Restarted,
        ],
        pinned: 181_007,
        ..TINY
    },
    Scope {
        name: "leave-2",
        about: "the leader of two leaves, a crash, an election",
        members: 2,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        changes: &[Target { voters: &[2], learners: &[] }],
        crashes: 1,
        in_flight_max: 2,
        sync: Sync::Each,
        must_see: &[Mark::JointCommitted, Mark::ChangeCompleted, Mark::Reelected, Mark::Restarted],
        pinned: 51_092,
        ..TINY
    },
    Scope {
        name: "replace-3",
        about: "two voters, one of whom a learner replaces, a write, an election",
        voters: 2,
        learners: 1,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        changes: &[Target { voters: &[1, 3], learners: &[] }],
        in_flight_max: 1,
        must_see: &[Mark::CommandCommitted, Mark::JointCommitted, Mark::ChangeCompleted, Mark::Reelected],
        pinned: 135_598,
        ..TINY
    },
    Scope {
        name: "remove-3",
        about: "three voters, one of whom goes, an election",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        changes: &[Target { voters: &[1, 2], learners: &[] }],
        in_flight_max: 2,
        must_see: &[Mark::JointCommitted, Mark::ChangeCompleted, Mark::ChangeTruncated, Mark::Reelected],
        pinned: 55_287,
        ..TINY
    },
    Scope {
        name: "hand-over-3",
        about: "a hand-over, a write, an election",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        transfers: 1,
        in_flight_max: 1,
        must_see: &[Mark::Transferring, Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 158_101,
        ..TINY
    },
    Scope {
        name: "join-2",
        about: "a log that is pruned, somebody who joins by a snapshot and gets a vote",
        members: 2,
        voters: 1,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Stream, 1), (Moment::Heartbeat, 1)],
        changes: &[Target { voters: &[1], learners: &[2] }, Target { voters: &[1, 2], learners: &[] }],
        snapshots: 1,
        in_flight_max: 2,
        sync: Sync::Each,
        must_see: &[Mark::Pruned, Mark::Installed, Mark::JointCommitted, Mark::ChangeCompleted],
        pinned: 1_529_562,
        ..TINY
    },
    Scope {
        name: "install-crash-2",
        about: "a log that is pruned, somebody who joins by a snapshot, a crash",
        members: 2,
        voters: 1,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Stream, 1), (Moment::Heartbeat, 1)],
        changes: &[Target { voters: &[1], learners: &[2] }],
        snapshots: 1,
        crashes: 1,
        in_flight_max: 1,
        sync: Sync::Each,
        must_see: &[Mark::Pruned, Mark::Installed, Mark::Restarted],
        pinned: 174_791,
        ..TINY
    },
    Scope {
        name: "snapshot-3",
        about: "a write, a new leader, a pruned log, a snapshot for whoever lags or differs",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        snapshots: 1,
        in_flight_max: 1,
        must_see: &[Mark::Pruned, Mark::Installed, Mark::Reelected, Mark::Truncated],
        pinned: 212_695,
        ..TINY
    },
    Scope {
        name: "change-snapshot-3",
        about: "a voter goes, a new leader, a pruned log, a snapshot in place of a change",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        changes: &[Target { voters: &[1, 2], learners: &[] }],
        snapshots: 1,
        in_flight_max: 1,
        must_see: &[Mark::Pruned, Mark::Installed, Mark::JointCommitted, Mark::ChangeTruncated],
        pinned: 133_980,
        ..TINY
    },
    Scope {
        name: "suspicion-3",
        about: "links to a leader close, a write, a crash; nobody waits for an election timeout",
        start: Start::Elected,
        fires: &[(Moment::Suspicion, 2)],
        proposals: 1,
        closes: 2,
        crashes: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 190_469,
        ..TINY
    },
    Scope {
        name: "lease-3",
        about: "a lease, a heartbeat, a read at anybody, a new leader",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 3, ways: EXTREME_WAYS }),
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        reads: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::ReadByLease, Mark::LeaseEnded, Mark::Reelected, Mark::ReadRefused],
        pinned: 773_548,
        ..TINY
    },
    Scope {
        name: "lease-restart-3",
        about: "a lease, a heartbeat, a voter that restarts, a new leader",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 3, ways: EXTREME_WAYS }),
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        crashes: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::LeaseEnded, Mark::Reelected, Mark::Restarted],
        pinned: 446_365,
        ..TINY
    },
    Scope {
        name: "lease-transfer-3",
        about: "a lease, a hand-over, a heartbeat, a read",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 2, ways: WORST_WAY }),
        fires: &[(Moment::Heartbeat, 1)],
        reads: 1,
        transfers: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::ReadByLease, Mark::LeaseGivenUp, Mark::Transferring, Mark::Reelected],
        pinned: 467_639,
        ..TINY
    },
    Scope {
        name: "lease-given-up-3",
        about: "a lease, a hand-over that fails, a heartbeat",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 3, ways: WORST_WAY }),
        fires: &[(Moment::Heartbeat, 1), (Moment::TransferEnds, 1)],
        transfers: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::LeaseGivenUp, Mark::Transferring, Mark::Reelected],
        pinned: 76_035,
        ..TINY
    },
    Scope {
        name: "lease-leave-3",
        about: "a lease, voters that go, a heartbeat, a new leader",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 3, ways: WORST_WAY }),
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        changes: &[Target { voters: &[1], learners: &[] }],
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::LeaseEnded, Mark::JointCommitted, Mark::ChangeCompleted, Mark::Reelected],
        pinned: 639_862,
        ..TINY
    },
    Scope {
        name: "lease-sleep-3",
        about: "a leader that sleeps, reads",
        start: Start::Elected,
        clocks: Some(Clocks { steps: 3, ways: EXTREME_WAYS }),
        reads: 2,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        must_see: &[Mark::ReadByLease, Mark::LeaseEnded, Mark::LeaseSlept],
        pinned: 438_148,
        ..TINY
    },
    Scope {
        name: "joins-2",
        about: "as join-2, with a crash",
        members: 2,
        voters: 1,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Stream, 1), (Moment::Heartbeat, 1)],
        changes: &[Target { voters: &[1], learners: &[2] }, Target { voters: &[1, 2], learners: &[] }],
        snapshots: 1,
        crashes: 1,
        in_flight_max: 2,
        when: When::Campaign,
        must_see: &[
            Mark::Pruned,
            Mark::Installed,
            Mark::JointCommitted,
            Mark::ChangeCompleted,
            Mark::Restarted,
        ],
        pinned: 21_383_427,
        ..TINY
    },
    Scope {
        name: "grow-3",
        about: "one voter, two learners that get votes, a crash, two elections",
        voters: 1,
        learners: 2,
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 2)],
        changes: &[Target { voters: &[1, 2, 3], learners: &[] }],
        crashes: 1,
        in_flight_max: 1,
        when: When::Campaign,
        must_see: &[Mark::JointCommitted, Mark::ChangeCompleted, Mark::Reelected, Mark::Restarted],
        pinned: 9_526_441,
        ..TINY
    },
    Scope {
        name: "rivals-3",
        about: "rivals in one term, a crash, a copied message",
        guarded: false,
        term_max: 1,
        fires: &[(Moment::Election, 2)],
        crashes: 1,
        copies: 1,
        when: When::Campaign,
        must_see: &[Mark::Elected, Mark::Restarted],
        pinned: 2_217_874,
        ..TINY
    },
    Scope {
        name: "terms-3",
        about: "a write and new leaders up to term 3",
        guarded: false,
        start: Start::Elected,
        term_max: 3,
        fires: &[(Moment::Election, 2)],
        proposals: 1,
        in_flight_max: 1,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 2_553_314,
        keeps_dead: true,
        ..TINY
    },
    Scope {
        name: "reads-3",
        about: "two reads while a new leader commits",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        reads: 2,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::ReadServed, Mark::ReadRefused],
        pinned: 2_359_183,
        ..TINY
    },
    Scope {
        name: "prevotes-3",
        about: "rivals with pre-vote, up to term 2",
        fires: &[(Moment::Election, 2)],
        when: When::Campaign,
        must_see: &[Mark::Elected, Mark::Reelected],
        pinned: 4_542_556,
        ..TINY
    },
    Scope {
        name: "heartbeat-2",
        about: "a write, a heartbeat, a crash, new leaders up to term 3",
        members: 2,
        guarded: false,
        start: Start::Elected,
        term_max: 3,
        fires: &[(Moment::Election, 2), (Moment::Heartbeat, 1)],
        proposals: 1,
        crashes: 1,
        sync: Sync::Each,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Restarted],
        pinned: 17_246_602,
        ..TINY
    },
    Scope {
        name: "writes-3",
        about: "two writes and a new leader",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 2,
        in_flight_max: 2,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 5_843_720,
        ..TINY
    },
    Scope {
        name: "links-3",
        about: "a write, a heartbeat, a lost message, a new leader",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        proposals: 1,
        losses: 1,
        order: Order::Queues,
        in_flight_max: 2,
        sync: Sync::Each,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 20_733_639,
        ..TINY
    },
    Scope {
        name: "lease-write-3",
        about: "a lease, a write that a new leader does not know to be committed, a read",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 3, ways: WORST_WAY }),
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        proposals: 1,
        reads: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        when: When::Campaign,
        must_see: &[Mark::ReadByLease, Mark::LeaseEnded, Mark::CommandCommitted, Mark::Reelected],
        pinned: 11_532_126,
        ..TINY
    },
    Scope {
        name: "leases-3",
        about: "as lease-3, with clocks that run in every way within their bounds, four steps of time",
        start: Start::Leased,
        clocks: Some(Clocks { steps: 4, ways: ALL_WAYS }),
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        reads: 1,
        in_flight_max: 1,
        sync: Sync::AtOnce,
        when: When::Campaign,
        must_see: &[Mark::ReadByLease, Mark::LeaseEnded, Mark::Reelected, Mark::ReadRefused],
        pinned: 11_925_242,
        ..TINY
    },
    Scope {
        name: "suspicions-3",
        about: "as suspicion-3, with a disk that takes its time: links to a leader close, a write, a crash; nobody waits for an election timeout",
        start: Start::Elected,
        fires: &[(Moment::Suspicion, 2)],
        proposals: 1,
        closes: 2,
        crashes: 1,
        in_flight_max: 1,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        pinned: 4_998_841,
        ..TINY
    },
    Scope {
        name: "guarded-2",
        about: "pre-vote and check-quorum: a write, a heartbeat, a crash, a silent leader",
        members: 2,
        start: Start::Elected,
        fires: &[(Moment::Election, 2), (Moment::Heartbeat, 1), (Moment::LeaderSilent, 1)],
        proposals: 1,
        crashes: 1,
        sync: Sync::Each,
        when: When::Campaign,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Restarted],
        pinned: 41_250_036,
        ..TINY
    },
];

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
