//! Scopes: which tiny clusters are explored, how much may happen in each, and how many worlds each has.
//!
//! The number of worlds is pinned. A number that falls says that something can no longer happen: the core, or the
//! harness, has lost behaviour. A number that rises is a change too, to be understood and pinned anew.
//! Knows nothing of: how worlds are found.

use kattu_raft::canonical::Moment;

/// One tiny cluster, with a bound on everything that could go on for ever.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// Voters.
    pub members: usize,
    /// Pre-vote and check-quorum are on.
    pub guarded: bool,
    /// The first world.
    pub start: Start,
    /// Nobody goes beyond this term.
    pub term_max: u64,
    /// How many deadlines fire in all, by reason; others never do.
    pub fires: &'static [(Moment, u8)],
    /// Client commands.
    pub proposals: u8,
    /// Linearizable reads, at anybody who knows a leader.
    pub reads: u8,
    /// Crashes; each member that crashed may start again, or not.
    pub crashes: u8,
    /// Messages that arrive twice.
    pub copies: u8,
    /// Messages lost from the head of a queue. Under [`Order::Any`] a message that is never delivered is lost.
    pub losses: u8,
    /// In which order messages arrive.
    pub order: Order,
    /// Messages under way on one link; what is sent beyond is lost.
    pub in_flight_max: usize,
    /// How far the disk comes at a time.
    pub sync: Sync,
    /// The driver says `drained` when it likes, and not after every event.
    pub late_drain: bool,
    /// What must have happened in some world, or the scope shows nothing.
    pub must_see: &'static [Mark],
    /// How many worlds there are.
    pub pinned: u64,
    /// When it is explored.
    pub when: When,
    /// A disk that breaks its promise, to see that the judges see.
    pub lie: Option<Lie>,
}

/// The first world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Everybody has just started with an empty disk.
    Fresh,
    /// Member 1 leads term 1, everybody has committed its first entry, nothing is under way.
    Elected,
}

/// In which order messages of one link arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In any order, or never.
    Any,
    /// As they were sent, but for those that are lost.
    Queues,
}

/// How far the disk comes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Up to any record.
    Each,
    /// Up to the newest one. Crashes still keep any first ones.
    All,
}

/// When a scope is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At every commit.
    Always,
    /// In campaigns.
    Campaign,
}

/// How a disk may break its promise; in tests of the judges only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A crash takes one entry with it that was synced.
    LosesTheLastEntry,
    /// A crash takes the vote with it, and leaves the term.
    ForgetsTheVote,
}

/// Something that happens in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Somebody is elected in term 1.
    Elected,
    /// Somebody is elected in a later term.
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
}

impl Mark {
    /// All of them, in the order of their numbers.
    pub const ALL: [Mark; 7] = [
        Mark::Elected,
        Mark::Reelected,
        Mark::CommandCommitted,
        Mark::Truncated,
        Mark::Restarted,
        Mark::ReadServed,
        Mark::ReadRefused,
    ];
}

/// Where every scope starts from.
const TINY: Scope = Scope {
    name: "",
    about: "",
    members: 3,
    guarded: true,
    start: Start::Fresh,
    term_max: 2,
    fires: &[],
    proposals: 0,
    reads: 0,
    crashes: 0,
    copies: 0,
    losses: 0,
    order: Order::Any,
    in_flight_max: 8,
    sync: Sync::All,
    late_drain: false,
    must_see: &[],
    pinned: 0,
    when: When::Always,
    lie: None,
};

/// All scopes.
pub const SCOPES: &[Scope] = &[
    Scope {
        name: "election-2",
        about: "two members, two campaigns with pre-votes, one crash",
        members: 2,
        fires: &[(Moment::Election, 4)],
        crashes: 1,
        copies: 1,
        sync: Sync::Each,
        must_see: &[Mark::Elected, Mark::Restarted],
        ..TINY
    },
    Scope {
        name: "election-3",
        about: "three members without pre-vote, rival campaigns",
        guarded: false,
        fires: &[(Moment::Election, 2)],
        must_see: &[Mark::Elected, Mark::Reelected],
        ..TINY
    },
    Scope {
        name: "replicate-2",
        about: "two members, a write, a crash, another leader",
        members: 2,
        start: Start::Elected,
        fires: &[(Moment::Heartbeat, 1), (Moment::Election, 2), (Moment::LeaderSilent, 1)],
        proposals: 1,
        crashes: 1,
        sync: Sync::Each,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Restarted],
        ..TINY
    },
    Scope {
        name: "replicate-3",
        about: "two writes and a rival campaign without pre-vote",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1), (Moment::Heartbeat, 1)],
        proposals: 2,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Truncated],
        ..TINY
    },
    Scope {
        name: "crash-3",
        about: "a write, a crash with part of what was written, a rival campaign",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        crashes: 1,
        sync: Sync::Each,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::Restarted],
        ..TINY
    },
    Scope {
        name: "read-3",
        about: "a read at anybody, while another leader is elected and commits",
        guarded: false,
        start: Start::Elected,
        fires: &[(Moment::Election, 1)],
        proposals: 1,
        reads: 1,
        must_see: &[Mark::Reelected, Mark::CommandCommitted, Mark::ReadServed, Mark::ReadRefused],
        ..TINY
    },
];

/// The scope with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scope> {
    SCOPES.iter().find(|scope| scope.name == name)
}
