//! Configuration: the identity, settings and limits of one peer, set at the start. Some of the settings are begun with
//! here and then taken over from the cluster's configuration. (`settings.rs`)
//!
//! Knows nothing of: flags, files, defaults of other crates.

use crate::entry::RecordEncoder;
use crate::leader_lease::LeaderLease;
use crate::membership::Membership;
use crate::policy::Policies;
use crate::types::{Duration, GroupId, Incarnation, NodeId};
use alloc::vec::Vec;

/// One peer's configuration. The driver validates it at its gate; see [`Config::check`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The group this peer belongs to.
    pub group: GroupId,
    /// This peer.
    pub id: NodeId,
    /// The incarnation of its data directory.
    pub incarnation: Incarnation,
    /// The voters of the group's first configuration, which counts until the log or a snapshot has another one.
    /// Ascending, no repeats. Empty for a member that joins an existing group: it waits for messages of a leader.
    pub voters: Vec<NodeId>,
    /// Peers that receive entries but neither vote nor count, in that configuration. Ascending, no repeats.
    pub learners: Vec<NodeId>,
    /// Minimum election timeout `ET`; the actual one is drawn from `ET..2·ET`. The cluster's configuration counts where
    /// it sets one. [replication-protocols E1]
    pub election_timeout: Duration,
    /// Time between heartbeats; at most a third of the election timeout. Set together with that.
    pub heartbeat_interval: Duration,
    /// Pre-vote before a campaign. On together with `check_quorum` or not at all. [replication-protocols E2, E4]
    pub pre_vote: bool,
    /// A leader that has not heard a quorum within `ET` steps down.
    pub check_quorum: bool,
    /// More than one entry in an append, and in a sync. What follows is tuned while the peer runs. [`crate::tuning`]
    pub batching: bool,
    /// Send entries before they are on the leader's own disk. [Ongaro14 §10.2.1]
    pub parallel_append: bool,
    /// More than one append in flight per peer. [Ongaro14 §10.2.2]
    pub pipelining: bool,
    /// A read waits for an entry that is committed for it, instead of a round. Not together with leader leases.
    pub reads_through_log: bool,
    /// Priorities, how soon a dead leader is replaced, how far clocks are trusted.
    pub leadership: LeadershipConfig,
    /// Limits in messages and bytes.
    pub limits: Limits,
    /// The protocol's variants. The cluster's configuration counts where it names a protocol.
    pub policies: Policies,
    /// Lays out new entries.
    pub encoder: RecordEncoder,
}

/// The default priority.
pub(crate) const PRIORITY: u8 = 100;

/// How one peer becomes, stays, and stops being leader. Equal on all members, `priority` aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeadershipConfig {
    /// How eager this member is to lead. Below 100 its election timeouts begin later, down to `2·ET..3·ET` for 0; above
    /// 100 they end earlier, down to `ET..1.25·ET` for 255. Ignored without pre-vote, where an eager member that cannot
    /// win would keep all others from trying. Does not affect safety, and does not guarantee which member leads.
    pub priority: u8,
    /// A voter whose link to its leader was closed by the other end starts a pre-vote after a random part of this, and
    /// as much again for each voter before it; at most a tenth of `ET` counts. `None`: it waits for `ET`. Ignored while
    /// leader leases are on. [replication-protocols E3a]
    pub suspicion: Option<Duration>,
    /// Reads by the leader's clock, and the vote holds they need. [replication-protocols §9.4]
    pub leader_lease: Option<LeaderLease>,
    /// A starting member asks the other voters for its earlier state before it takes part. (`reminder.rs`)
    pub asks_first: bool,
}

impl Default for LeadershipConfig {
    fn default() -> LeadershipConfig {
        LeadershipConfig {
            priority: PRIORITY,
            suspicion: Some(Duration::from_millis(2)),
            leader_lease: None,
            asks_first: false,
        }
    }
}

/// Every bound of one peer. A single request always passes, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of entries in one append.
    pub batch_bytes_max: usize,
    /// Entries in one append, and in one sync; at least 1.
    pub batch_entries_max: usize,
    /// An append with at least as many bytes of entries has its payloads read by a job; a smaller one at once, which
    /// costs less than to hand it over. `usize::MAX`: there are no jobs. [`crate::compute`]
    pub read_apart_bytes_min: usize,
    /// Unanswered appends per peer; at least 1. A follower keeps as many of its leader's while payloads are being read.
    pub inflight_msgs_max: usize,
    /// Unanswered bytes per peer; the same holds for them.
    pub inflight_bytes_max: usize,
    /// Bytes that are not committed; beyond it proposals are refused. While all is committed, a proposal of any size passes.
    /// A log keeps such entries in memory, so those that earlier leaders left count, too.
    pub uncommitted_bytes_max: usize,
    /// Bytes delivered to apply and not yet applied.
    pub apply_bytes_max: usize,
    /// Bytes of recent entries kept in memory; older ones are fetched.
    pub recent_bytes_max: usize,
    /// The same while an in-sync peer has not acknowledged them yet, if that is more: at 100 MB/s a peer may be this
    /// many bytes late before it is fed from the disk.
    pub recent_in_sync_bytes_max: usize,
    /// While a voter that came back does not catch up, clients are admitted at this percentage of their rate before;
    /// 100 and more: they are never slowed, and the operator is still warned. [fault-model F51]
    pub client_share_min: u8,
    /// Bytes of a snapshot in one message.
    pub snapshot_chunk_bytes_max: usize,
    /// Bytes of a snapshot sent to one peer in a second, so that it does not crowd out entries; 0: no limit.
    pub snapshot_bytes_per_s: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            batch_bytes_max: 1 << 20,
            batch_entries_max: 4096,
            read_apart_bytes_min: usize::MAX,
            inflight_msgs_max: 256,
            inflight_bytes_max: 16 << 20,
            uncommitted_bytes_max: 256 << 20,
            apply_bytes_max: 64 << 20,
            recent_bytes_max: 8 << 20,
            recent_in_sync_bytes_max: 64 << 20,
            client_share_min: 80,
            snapshot_chunk_bytes_max: 1 << 20,
            snapshot_bytes_per_s: 64 << 20,
        }
    }
}

impl Limits {
    /// Bytes of recent entries kept in memory for in-sync peers.
    pub(crate) fn recent_in_sync_bytes(&self) -> usize {
        self.recent_in_sync_bytes_max.max(self.recent_bytes_max)
    }
}

impl Config {
    /// Member `id` of group 0, which began with these voters (none for a member that joins), as a cluster is usually
    /// run: an election timeout of a second, ten heartbeats in it, everything on that is safe to have on. The
    /// incarnation has the member's own number, which is right as long as its directory is never replaced. What is to
    /// be otherwise is set in the fields; [`crate::Raft::recover`] checks the result.
    ///
    /// ```
    /// use kattu_raft::{Config, Duration, NodeId, RecordEncoder};
    ///
    /// let voters = [3, 1, 2].map(NodeId);
    /// let config = Config {
    ///     heartbeat_interval: Duration::from_millis(50),
    ///     ..Config::new(NodeId(1), voters, RecordEncoder::BARE)
    /// };
    /// assert_eq!(config.check(), Ok(()));
    /// assert_eq!(config.voters, [1, 2, 3].map(NodeId));
    /// ```
    #[must_use]
    pub fn new(id: NodeId, voters: impl IntoIterator<Item = NodeId>, encoder: RecordEncoder) -> Config {
        let mut voters: Vec<NodeId> = voters.into_iter().collect();
        voters.sort_unstable();
        Config {
            group: GroupId(0),
            id,
            incarnation: Incarnation(id.0),
            voters,
            learners: Vec::new(),
            election_timeout: Duration::from_millis(1000),
            heartbeat_interval: Duration::from_millis(100),
            pre_vote: true,
            check_quorum: true,
            batching: true,
            parallel_append: true,
            pipelining: true,
            reads_through_log: false,
            leadership: LeadershipConfig::default(),
            limits: Limits::default(),
            policies: Policies::default(),
            encoder,
        }
    }

    /// The group's first configuration.
    pub(crate) fn membership(&self) -> Membership {
        Membership::new(self.voters.clone(), self.learners.clone())
    }

    /// Checks this configuration; errors are written for operators.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.id == NodeId(0) {
            return Err("member id 0 is reserved");
        }
        self.membership().check()?;
        self.timing().check()?;
        if self.pre_vote != self.check_quorum {
            return Err(
                "pre-vote and check-quorum must be on or off together: one alone livelocks or strands members",
            );
        }
        if self.limits.batch_entries_max == 0 || self.limits.inflight_msgs_max == 0 {
            return Err("a batch has one entry at least, and a peer one append in flight");
        }
        if let Some(lease) = &self.leadership.leader_lease {
            if self.reads_through_log {
                return Err("reads go through the log or by leases, not both");
            }
            if !self.check_quorum {
                return Err("leader leases need pre-vote and check-quorum, on which their vote holds rest");
            }
            if lease.length(self.election_timeout) <= self.heartbeat_interval {
                return Err(
                    "a leader lease must be longer than a heartbeat interval, or it ends before it is renewed",
                );
            }
        }
        Ok(())
    }
}
