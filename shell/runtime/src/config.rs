//! Configuration: what one member is told by its operator.
//!
//! Knows nothing of: flags and their names, what is done with it.

use crate::entropy;
use kattu_member::streams::Streams;
use kattu_member::tuning::Tuning;
use kattu_node::{RequestLimits, SnapshotLimits, TransferConfig};
use kattu_raft::{Duration, GroupId, Incarnation, LeadershipConfig, Limits, NodeId, Timing};
use kattu_tls::{ServerTls, Speaks};
use kattu_wal::{Identity, InitialMember, WalOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The one group there is.
pub(crate) const GROUP: GroupId = GroupId(0);

/// One member of the cluster as the operator configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its peers reach it: `http://host:port`, or `https://host:port`.
    pub peer_urls: Vec<String>,
}

/// The ids of cluster and members, if the cluster began at these URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Began {
    /// The cluster.
    pub cluster: u64,
    /// This member.
    pub id: NodeId,
    /// All of them, this one included.
    pub members: Vec<Member>,
}

/// Configuration of one member.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Where it keeps its log and identity.
    pub data_dir: PathBuf,
    /// The cluster it belongs to.
    pub cluster_id: u64,
    /// Other ids that its directory may hold for cluster and member: they were derived when the cluster began, from
    /// URLs that may have another scheme by now.
    pub began_as: Vec<Began>,
    /// This member, among `members`.
    pub id: NodeId,
    /// All founding members, this one included; with `join`, the members to ask.
    pub members: Vec<Member>,
    /// The cluster exists already. The directory holds this member's identity; an empty one becomes that of the member
    /// that was added with this one's peer URLs. Ids of `members` are then ignored.
    pub join: bool,
    /// Where it listens for peers, with or without TLS.
    pub listen_peers: Vec<(SocketAddr, Speaks)>,
    /// TLS settings for dialling peers, where TLS is spoken.
    pub peer_tls: Option<Arc<ServerTls>>,
    /// Its client URLs, published to the others.
    pub client_urls: Vec<String>,
    /// Minimum election timeout that a new cluster begins with.
    pub election_timeout: Duration,
    /// Time between heartbeats that a new cluster begins with.
    pub heartbeat_interval: Duration,
    /// Whether the operator named one of these two, so that a cluster with others is worth a warning.
    pub timing_is_given: bool,
    /// Leader priority, how soon a dead leader is replaced, how far clocks are trusted.
    pub leadership: LeadershipConfig,
    /// When this member, as leader, transfers leadership by itself.
    pub transfers: TransferConfig,
    /// Bounds of the protocol.
    pub limits: Limits,
    /// Largest client request, in bytes: frames and log blocks have room for it.
    pub request_bytes_max: usize,
    /// Limits of one request's work in the store.
    pub requests: RequestLimits,
    /// Bytes the store may hold; 0 for half of the machine's memory.
    pub quota_bytes: u64,
    /// The disk is not waited for: a power cut loses what was acknowledged. For experiments only. [fault-model ST16]
    pub unsafe_no_fsync: bool,
    /// What can be tuned while the member runs, as it starts. It counts before `limits` and `leadership`.
    pub tuning: Tuning,
    /// When snapshots are taken, and how much log stays behind them.
    pub snapshots: SnapshotLimits,
    /// Time between two comparisons of members' digests; zero for none.
    pub digest_interval: Duration,
    /// Time between two scrubs, each of which reads all files, to find damage before a second one occurs; zero for
    /// none. [fault-model ST12]
    pub scrub_period: Duration,
    /// Bytes of a snapshot written in a second, so that it does not crowd out the log; 0: no limit.
    pub snapshot_bytes_per_s: u64,
    /// The connections that carry entries to each peer.
    pub streams: Streams,
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// What blocks of the log are padded to, in bytes; 0 for the sector size of the disk. [fault-model ST5]
    pub sector_bytes: usize,
    /// Disk space kept in reserve for recovery from a full disk. [fault-model ST15]
    pub reserve_bytes: u64,
    /// A disk call that takes longer ends the process. [fault-model F16]
    pub disk_stall: Duration,
}

impl RuntimeConfig {
    /// The timing that a new cluster begins with.
    pub(crate) fn timing(&self) -> Timing {
        Timing { election_timeout: self.election_timeout, heartbeat_interval: self.heartbeat_interval }
    }

    /// The identity of this member as a founding one, in a new directory.
    #[must_use]
    pub fn first_identity(&self) -> Identity {
        let members = self.members.iter().map(|member| InitialMember {
            id: member.id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
        });
        let own = self.members.iter().find(|member| member.id == self.id);
        Identity {
            cluster: self.cluster_id,
            node: self.id,
            incarnation: Incarnation(entropy()),
            name: own.map(|member| member.name.clone()).unwrap_or_default(),
            groups: vec![GROUP],
            members: members.collect(),
            joined: None,
        }
    }

    /// How its log is laid out.
    #[must_use]
    pub fn wal_options(&self) -> WalOptions {
        WalOptions {
            // A proposal goes only into space that is already allocated, so a segment has room for several.
            segment_bytes: self.segment_bytes.max(4 * self.request_bytes_max as u64),
            reserve_bytes: self.reserve_bytes,
            sector_bytes: match self.sector_bytes {
                0 => kattu_wal::sector_of(&self.data_dir),
                bytes => bytes,
            },
            ..WalOptions::default()
        }
    }
}
