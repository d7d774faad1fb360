//! Member: what a running member decides between its replica, its log and its peers.
//!
//! ```text
//!   shell/runtime  tokio, sockets, threads, files ──┐
//!                                                   ├──▶ kattu_member: the same decisions in both
//!   proof/sim      virtual ones, storms of faults ──┘
//! ```
//! Time comes in as an argument, and what is to be done comes out as data: a completion, a job, a note for the operator. So
//! the simulator tries what production runs, and not a copy of it. (docs/decisions/0058)
//!
//! Reading order: `member` (a batch, step by step) · `step` (what its executor does) · `opening` (from which tables it starts) · `host` (what executes it) · `apply` (the
//! keeper, here or on a thread) · `log` (syncs, full disks, the next segment) · `log_orders` (a log on its own thread), `log_moves` (when
//! it goes there) · `capacity`
//! (when growth is refused) · `computing` (jobs that are not done) · `peer_table`, `peer_address` (which members it knows) · `handshake`, `proofs`, `join` (how members
//! meet) · `lanes` (which connection a message takes) · `dialler`, `pauses` (when to dial again) · `snapshots` (snapshot files, step
//! by step) · `waiting` (the clients that wait).
//! Knows nothing of: clocks, threads, sockets, tokio, how jobs are carried out.
#![forbid(unsafe_code)]

pub mod apply;
pub mod capacity;
pub mod computing;
pub mod dialler;
pub mod handshake;
pub mod host;
pub mod join;
pub mod lanes;
pub mod log;
pub mod log_moves;
pub mod log_orders;
pub mod member;
pub mod opening;
pub mod pauses;
pub mod peer_address;
pub mod peer_table;
pub mod proofs;
pub mod snapshots;
pub mod step;
pub mod waiting;
