//! Raft, one peer at a time, as a pure function of events.
//!
//! All inputs of a [`Raft`] are arguments: the time, messages of peers, requests of clients, completions of the disk.
//! It changes its state and appends the actions to take to [`Effects`]. It reads no clock, takes randomness from its
//! seed only, does no I/O, and cannot fail. So every situation can be written down as a script, replayed from a seed,
//! forked with `clone`, and compared with `==`.
//!
//! ```text
//!   tick step propose read drained persisted fetched applied link_closed
//!   propose_change transfer snapshot_taken chunk_read chunk_stored disk_took computed
//!                               │
//!                             Raft ── deadline()
//!                               │
//!      persist   send   fetch   install   apply   reads   compute   trace
//!                  read_chunks   store_chunks   distrust
//! ```
//!
//! **The contract.** Every effect may be carried out the moment it is emitted, in parallel with all others. Whatever
//! must wait for the disk (a vote, an acknowledgement, the leader counting itself) waits inside until
//! [`Raft::persisted`] names the record. The driver calls [`Raft::drained`] when its inbox is empty. Messages that are
//! better sent once than often (appends, read rounds, acknowledgements) leave there, so batches grow with the load and
//! no timer sits on the hot path.
//!
//! **Reading order.** [`types`], [`contract`] and [`message`] are the vocabulary. `raft` holds the state and the table
//! of roles and messages; `role` the state of each role; [`log`] and `marks` the entries and the positions along them.
//! Then the chapters: `election`, `leading`, `replication` with `progress`, `flow`, `liveness` and `life`, `contact`,
//! `acceptance` with `window` and [`compute`], [`quorum`] and `commit` with `forms` and `received`, `durability`, `apply`, `read` with `leader_lease` and `clocks`,
//! `suspicion`, `transfer`, `yielding`, [`distrust`], `vote_floor`, `reminder`, [`membership`] with
//! [`extensions`], `configurations`, `settings`, [`tuning`] and `change`, [`snapshot`]. [`policy`] names the seams of the protocol's
//! variants; [`invariants`] lists the facts that always hold; [`canonical`] defines
//! the form in which explorers of all interleavings compare states.
//!
//! **Why it is safe**, in four sentences. A term has one leader, because a vote is durable before it is sent and two
//! quorums share a voter. Logs that share an entry share all before it, because entries are appended only after one
//! that both sides hold. A committed entry is in every later leader's log, because a quorum holds it durably and votes
//! only for logs at least as complete. Only committed entries are applied, so all stores apply the same commands in the
//! same order.
//!
//! ```
//! use kattu_raft::{Config, Effects, EntryKind, Instant, NodeId, Raft, RecordEncoder, Recovered};
//!
//! let config = Config::new(NodeId(1), [NodeId(1)], RecordEncoder::BARE);
//! let now = Instant(0);
//! let mut raft = Raft::recover(config, 7, now, Recovered::default());
//! let mut effects = Effects::default();
//! raft.tick(now, &mut effects); // a group of one elects itself
//! let vote = effects.persist.last().unwrap().lsn;
//! raft.persisted(now, vote, &mut effects); // once its vote is on disk
//! raft.propose(now, EntryKind::Command, b"hello", &mut effects).unwrap();
//! assert!(effects.apply.is_empty());
//! let entry = effects.persist.last().unwrap().lsn;
//! raft.persisted(now, entry, &mut effects);
//! assert_eq!(effects.apply.last().unwrap().payload(), Some(&b"hello"[..]));
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod acceptance;
mod apply;
pub mod bytes;
pub mod canonical;
mod change;
mod clocks;
mod commit;
pub mod compute;
pub mod config;
mod configurations;
mod contact;
pub mod contract;
pub mod distrust;
mod durability;
mod election;
pub mod entry;
pub mod extensions;
mod flow;
mod forms;
pub mod invariants;
mod leader_lease;
mod leading;
mod life;
mod liveness;
pub mod log;
mod marks;
pub mod membership;
pub mod message;
pub mod policy;
mod progress;
pub mod quorum;
mod raft;
mod read;
mod received;
mod reminder;
mod replication;
mod rng;
mod role;
mod settings;
pub mod snapshot;
mod suspicion;
pub mod trace;
mod transfer;
pub mod tuning;
pub mod types;
mod vote_floor;
mod window;
mod yielding;

pub use bytes::SharedBytes;
pub use change::ChangeError;
pub use clocks::ClockReading;
pub use compute::{Done, Job, JobId};
pub use config::{Config, LeadershipConfig, Limits};
pub use configurations::newest_found;
pub use contract::{
    Effects, Fetch, FetchFor, HardState, LogBody, LogRecord, ReadBatch, ReadVerdict, Recovered,
};
pub use distrust::Falsehood;
pub use entry::{Body, Entry, EntryHead, EntryKind, Form, PayloadReader, RecordEncoder};
pub use extensions::{Extensions, NbRaft, Protocol, Timing};
pub use flow::{FlowCounts, PeerFlow};
pub use leader_lease::LeaderLease;
pub use membership::{Membership, MembershipError};
pub use message::{Envelope, Message};
pub use policy::Policies;
pub use raft::{ProposeError, Raft};
pub use reminder::{MET_ALL, SPENT};
pub use settings::timing_found;
pub use snapshot::{ChunkRead, ChunkStored, ReadChunk, SnapshotMeta, StoreChunk};
pub use suspicion::LinkEnd;
pub use trace::Trace;
pub use transfer::{Successor, TransferError};
pub use tuning::{ReadPath, Tuning};
pub use types::{
    Duration, EntryId, GroupId, Incarnation, Instant, LogIndex, Lsn, NodeId, Round, Stamp, Term,
};
