//! Roles: what a peer is, and the state that exists only while it is that.
//!
//! ```text
//!                 no leader heard      a quorum would vote        a quorum voted
//!   Follower ───────────────▶ PreCandidate ───────────▶ Candidate ───────────▶ Leader
//!      ▲  ▲                     │   ▲                      │  │                  │
//!      │  └─ leader of the term ┘   └───── timed out ──────┘  │                  │
//!      └──────────────── higher term, or leader of the term ──┴── no quorum ─────┘
//! ```
//!
//! Everything volatile about a role is dropped with it: nothing learnt in one term leaks into the next.
//! [Ongaro14 §3.3, §9.6; replication-protocols O7]
//! Knows nothing of: how a role is won or lost.

use crate::clocks::Heartbeats;
use crate::config::Config;
use crate::leader_lease::LeaderLeaseState;
use crate::message::{Gap, Room};
use crate::progress::Progress;
use crate::read::{PendingReads, ReadQueue};
use crate::slow_disk::Verdict;
use crate::suspicion::FastElection;
use crate::transfer::Transfer;
use crate::types::{Duration, Instant, LogIndex, NodeId, Round, Stamp};
use crate::yielding::Yielding;
use alloc::collections::{BTreeMap, BTreeSet};

/// What this peer is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant)] // a group has one of these, and it stays where it is
pub(crate) enum Role {
    /// Listens to a leader, or waits for one.
    Follower(Follower),
    /// Asks whether a campaign would succeed.
    PreCandidate(Campaign),
    /// Campaigns.
    Candidate(Campaign),
    /// Leads the term.
    Leader(Leader),
}

/// A follower's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Follower {
    /// When it would ask for votes.
    pub(crate) timer: Timer,
    /// The leader of this term, once it is known.
    pub(crate) following: Option<Following>,
}

/// What a follower knows of and owes to the leader of its term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Following {
    /// Whom.
    pub(crate) leader: NodeId,
    /// When it was last heard. [replication-protocols E3]
    pub(crate) last_contact: Instant,
    /// Highest index up to which this log is known equal to the leader's. Starts at the commit index, is raised by
    /// a successful check of the previous entry only. [replication-protocols §1.1]
    pub(crate) verified: LogIndex,
    /// Highest commit index the leader has told.
    pub(crate) told: LogIndex,
    /// The answer it is waiting for.
    pub(crate) pending_ack: PendingAck,
    /// Batches of reads whose index was asked for.
    pub(crate) pending_reads: PendingReads,
    /// It seems dead, and then others are asked what they think. Ends when it is heard. [`crate::suspicion`]
    pub(crate) ask_at: Option<Instant>,
}

/// The acknowledgement a follower owes. One answer covers many appends; it never covers more than is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingAck {
    /// Newest round received.
    pub(crate) round: Round,
    /// An append that waits for no disk was received since the last answer.
    pub(crate) now: bool,
    /// Appends up to here were received and are answered as they become durable.
    pub(crate) upto: LogIndex,
    /// Highest index acknowledged.
    pub(crate) acked: LogIndex,
    /// Newest round of an append that travelled on the way of the entries.
    pub(crate) bulk: Round,
    /// What the newest append that could not be taken lacked.
    pub(crate) gap: Option<Gap>,
    /// The room that the last answer told of.
    pub(crate) room: Room,
}

impl Default for PendingAck {
    fn default() -> PendingAck {
        let (round, bulk, upto, acked) = (Round(0), Round(0), LogIndex(0), LogIndex(0));
        PendingAck { round, now: false, upto, acked, bulk, gap: None, room: Room::PLENTY }
    }
}

/// A pre-candidate's or candidate's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Campaign {
    /// When it gives up.
    pub(crate) timer: Timer,
    /// Who said yes, itself included; voters only.
    pub(crate) votes: BTreeSet<NodeId>,
    /// It began with a suspicion.
    pub(crate) fast_election: Option<FastElection>,
    /// Who said no to a hurried candidate.
    pub(crate) refused: BTreeSet<NodeId>,
}

/// A leader's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    /// Every other member.
    pub(crate) peers: BTreeMap<NodeId, Progress>,
    /// Reads that wait for a round.
    pub(crate) reads: ReadQueue,
    /// The newest heartbeat or read round.
    pub(crate) round: Round,
    /// Index of the term's first entry, the no-op.
    pub(crate) term_start: LogIndex,
    /// When it became leader.
    pub(crate) since: Instant,
    /// The log's clock at that moment.
    pub(crate) stamp_since: Stamp,
    /// Bytes of own proposals that are not committed; the no-op is free.
    pub(crate) uncommitted_bytes: usize,
    /// When heartbeats are due.
    pub(crate) heartbeat_at: Instant,
    /// When a quorum may have been silent for an election timeout. [replication-protocols E4]
    pub(crate) check_at: Instant,
    /// When peers that nothing was sent to are told of a new commit index.
    pub(crate) notice_at: Instant,
    /// The hand-over under way.
    pub(crate) transfer: Option<Transfer>,
    /// Until when nobody else can lead.
    pub(crate) lease: LeaderLeaseState,
    /// When the newest heartbeats began, where clocks are watched.
    pub(crate) heartbeats: Heartbeats,
    /// No voter of higher priority is offered the office before this.
    pub(crate) offer_at: Instant,
    /// What it makes of its own disk.
    pub(crate) own_disk: Verdict,
    /// What it makes of its clients while a voter is behind.
    pub(crate) yielding: Yielding,
}

/// One wait with an end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timer {
    /// Since when.
    pub(crate) started: Instant,
    /// How long.
    pub(crate) timeout: Duration,
}

impl Timer {
    /// When the wait is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.started + self.timeout
    }
}

impl Leader {
    /// What a voter has reached: `own` for this leader itself, `me`, and of everybody else what its progress says. A voter
    /// without progress is nobody: taken for this leader, it would lend its disk, its promise and its word to a stranger.
    ///
    /// # Panics
    /// If `voter` is neither; whoever changes the configuration meets its members before anything is counted.
    pub(crate) fn of_voter<T>(
        &self,
        me: NodeId,
        voter: NodeId,
        own: T,
        of_peer: impl Fn(&Progress) -> T,
    ) -> T {
        if voter == me {
            return own;
        }
        let progress = self.peers.get(&voter);
        of_peer(progress.unwrap_or_else(|| panic!("{voter:?} votes, and its leader {me:?} has not met it")))
    }
}

impl Role {
    /// Its name in the field.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Role::Follower(_) => "follower",
            Role::PreCandidate(_) => "pre-candidate",
            Role::Candidate(_) => "candidate",
            Role::Leader(_) => "leader",
        }
    }

    /// When the wait for a leader or for votes ends; never for a leader.
    pub(crate) fn timer_deadline(&self) -> Instant {
        match self {
            Role::Follower(follower) => {
                let asks = follower.following.as_ref().and_then(|following| following.ask_at);
                follower.timer.deadline().min(asks.unwrap_or(Instant::NEVER))
            }
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => campaign.timer.deadline(),
            Role::Leader(_) => Instant::NEVER,
        }
    }

    /// When time alone changes something.
    pub(crate) fn deadline(&self, config: &Config) -> Instant {
        match self {
            Role::Follower(follower) => {
                let asked = follower
                    .following
                    .as_ref()
                    .map_or(Instant::NEVER, |following| following.pending_reads.retry_at());
                self.timer_deadline().min(asked)
            }
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => campaign.timer.deadline(),
            Role::Leader(leader) => {
                let gives_up = leader.transfer.as_ref().map_or(Instant::NEVER, |transfer| transfer.abort_at);
                let streams = leader.streams_at().min(leader.questions_at(config));
                let streams = streams.min(leader.yielding.deadline(config));
                leader.heartbeat_at.min(leader.check_at).min(leader.notice_at).min(gives_up).min(streams)
            }
        }
    }
}
