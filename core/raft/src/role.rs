//! Roles: follower, pre-candidate, candidate, leader, and the state that exists only while a peer has one.
//!
//! ```text
//!                 no leader heard      a quorum would vote        a quorum voted
//!   Follower ───────────────▶ PreCandidate ───────────▶ Candidate ───────────▶ Leader
//!      ▲  ▲                     │   ▲                      │  │                  │
//!      │  └─ leader of the term ┘   └───── timed out ──────┘  │                  │
//!      └──────────────── higher term, or leader of the term ──┴── no quorum ─────┘
//! ```
//!
//! All volatile state of a role is dropped with it: nothing learnt in one term leaks into the next. [Ongaro14 §3.3,
//! §9.6; replication-protocols O7]
//! Knows nothing of: the transitions between roles.

use crate::clocks::Heartbeats;
use crate::compute::Unread;
use crate::config::Config;
use crate::forms::Forms;
use crate::leader_lease::LeaderLeaseState;
use crate::message::{Gap, Room};
use crate::progress::Progress;
use crate::read::{PendingReads, ReadQueue};
use crate::received::Reported;
use crate::suspicion::FastElection;
use crate::transfer::Transfer;
use crate::types::{Duration, Instant, LogIndex, NodeId, Round, Stamp};
use crate::window::Window;
use crate::yielding::Yielding;
use alloc::collections::{BTreeMap, BTreeSet};

/// The role of this peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant)] // a group has one of these, and it stays where it is
pub(crate) enum Role {
    /// Follows a leader, or waits for one.
    Follower(Follower),
    /// Asks the voters whether a campaign would succeed.
    PreCandidate(Campaign),
    /// Campaigns.
    Candidate(Campaign),
    /// Leads the term.
    Leader(Leader),
}

/// A follower's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Follower {
    /// When it starts a campaign, if it does not hear a leader before.
    pub(crate) timer: Timer,
    /// The leader of this term, once it is known.
    pub(crate) following: Option<Following>,
}

/// A follower's state of the leader of its term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Following {
    /// The leader.
    pub(crate) leader: NodeId,
    /// When the leader itself was last heard; `None` while it is known from other members only.
    /// [replication-protocols E3, K1]
    pub(crate) last_contact: Option<Instant>,
    /// Highest index up to which this log is known equal to the leader's. Starts at the commit index, is raised by
    /// a successful check of the previous entry only. [replication-protocols §1.1]
    pub(crate) verified: LogIndex,
    /// Highest commit index that the leader has sent.
    pub(crate) told: LogIndex,
    /// The acknowledgement that it has not sent yet.
    pub(crate) pending_ack: PendingAck,
    /// Batches of reads whose index was asked for.
    pub(crate) pending_reads: PendingReads,
    /// Appends that are not taken yet, because payloads are being read.
    pub(crate) unread: Unread,
    /// Entries after a gap.
    pub(crate) window: Window,
    /// Set while the leader seems dead: when this follower asks for pre-votes. Cleared when the leader is heard.
    /// [`crate::suspicion`]
    pub(crate) ask_at: Option<Instant>,
}

impl Following {
    /// A new leader, not heard yet, with whose log this log is known to agree up to `verified`.
    pub(crate) fn new(leader: NodeId, verified: LogIndex) -> Following {
        Following {
            leader,
            last_contact: None,
            verified,
            told: LogIndex(0),
            pending_ack: PendingAck::default(),
            pending_reads: PendingReads::default(),
            unread: Unread::default(),
            window: Window::default(),
            ask_at: None,
        }
    }
}

/// The acknowledgement of a follower. One covers many appends; it never covers more than is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingAck {
    /// Newest round received.
    pub(crate) round: Round,
    /// Whether the next acknowledgement is due at once: for a heartbeat, a gap, or entries that are durable already.
    pub(crate) now: bool,
    /// Appends up to here were received and are acknowledged as they become durable.
    pub(crate) upto: LogIndex,
    /// Highest index acknowledged.
    pub(crate) acked: LogIndex,
    /// Highest index named as received.
    pub(crate) received: LogIndex,
    /// Newest round of an append that travelled in the lane of the entries.
    pub(crate) bulk: Round,
    /// The gap that the newest rejected append left.
    pub(crate) gap: Option<Gap>,
    /// The room that the last acknowledgement announced.
    pub(crate) room: Room,
}

impl Default for PendingAck {
    fn default() -> PendingAck {
        let (round, upto) = (Round(0), LogIndex(0));
        PendingAck {
            round,
            now: false,
            upto,
            acked: upto,
            received: upto,
            bulk: round,
            gap: None,
            room: Room::PLENTY,
        }
    }
}

/// A pre-candidate's or candidate's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Campaign {
    /// When it is given up.
    pub(crate) timer: Timer,
    /// Voters that granted their votes, this peer included; none once a pre-candidate has given way.
    pub(crate) votes: BTreeSet<NodeId>,
    /// Set if a suspicion of the leader started it.
    pub(crate) fast_election: Option<FastElection>,
    /// Voters that refused a candidate of a fast election.
    pub(crate) refused: BTreeSet<NodeId>,
}

/// A leader's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    /// Every other member.
    pub(crate) peers: BTreeMap<NodeId, Progress>,
    /// Reads that wait for a read round.
    pub(crate) reads: ReadQueue,
    /// The newest heartbeat or read round.
    pub(crate) round: Round,
    /// Index of the term's first entry, the no-op.
    pub(crate) term_start: LogIndex,
    /// When it became leader.
    pub(crate) since: Instant,
    /// The log's clock when it became leader.
    pub(crate) stamp_since: Stamp,
    /// The members that hold uncommitted entries in part, and what they hold.
    pub(crate) forms: Forms,
    /// What it has reported as received by a quorum.
    pub(crate) reported: Reported,
    /// Bytes of own proposals that are not committed; the no-op is free.
    pub(crate) uncommitted_bytes: usize,
    /// Bytes of the entries that it found uncommitted when it became leader, at least `uncommitted_bytes_max` if not all
    /// of them are in memory; 0 from when they are committed, with the no-op.
    pub(crate) inherited_bytes: usize,
    /// When heartbeats are due.
    pub(crate) heartbeat_at: Instant,
    /// When a quorum may have been silent for an election timeout. [replication-protocols E4]
    pub(crate) check_at: Instant,
    /// When a new commit index is sent to peers that got no other append meanwhile.
    pub(crate) notice_at: Instant,
    /// The leadership transfer under way.
    pub(crate) transfer: Option<Transfer>,
    /// The leader lease: until when no other member can be elected.
    pub(crate) lease: LeaderLeaseState,
    /// When the newest heartbeats began; kept only if clocks are watched.
    pub(crate) heartbeats: Heartbeats,
    /// Whether it slows clients down while a voter is behind. [`crate::yielding`]
    pub(crate) yielding: Yielding,
}

/// A timer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timer {
    /// When the wait began.
    pub(crate) started: Instant,
    /// The length of the wait.
    pub(crate) timeout: Duration,
}

impl Timer {
    /// When the wait is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.started + self.timeout
    }
}

impl Leader {
    /// Something has begun that heartbeats repeat if it is lost: the next one is due after an interval at most. [E9]
    pub(crate) fn stir(&mut self, now: Instant, config: &Config) {
        if self.heartbeat_at != Instant::NEVER {
            self.heartbeat_at = self.heartbeat_at.min(now + config.heartbeat_interval);
        }
    }

    /// The value of one voter: `own` if it is this leader, `me`, else `of_peer` of its progress. A voter without
    /// progress must not be taken for this leader: the leader's own disk, vote hold and answers would count for a
    /// member that gave none.
    ///
    /// # Panics
    /// If `voter` has no progress. Every change of the configuration adds it before anything is counted.
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
    /// The leader's state; `None` in other roles.
    pub(crate) fn leader(&self) -> Option<&Leader> {
        match self {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => None,
        }
    }

    /// The leader's state, to be changed; `None` in other roles.
    pub(crate) fn leader_mut(&mut self) -> Option<&mut Leader> {
        match self {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) => None,
        }
    }

    /// A follower's state of its leader, once that is known.
    pub(crate) fn following(&self) -> Option<&Following> {
        match self {
            Role::Follower(follower) => follower.following.as_ref(),
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn following_mut(&mut self) -> Option<&mut Following> {
        match self {
            Role::Follower(follower) => follower.following.as_mut(),
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => None,
        }
    }

    /// The role's usual name.
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

    /// When the passage of time alone changes something.
    pub(crate) fn deadline(&self, config: &Config) -> Instant {
        match self {
            Role::Follower(follower) => {
                let waits_until = follower.following.as_ref().map_or(Instant::NEVER, |following| {
                    following.pending_reads.retry_at().min(following.unread.give_up_at(config))
                });
                self.timer_deadline().min(waits_until)
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
