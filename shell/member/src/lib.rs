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
//! Reading order:
//!
//! | Files | What they decide |
//! |---|---|
//! | `member`, `step`, `host` | a batch, step by step; what its executor does; what executes it |
//! | `opening` | from which tables a member starts, and how long its vote holds last |
//! | `apply`, `progress` | the keeper, here or on a thread, and what it reports |
//! | `log`, `log_orders`, `log_moves` | syncs, full disks, the next segment; a log on its own thread, and when it goes there |
//! | `tuning`, `artefacts` | the settings that change while it runs, by name and value; two that are mistakes on purpose |
//! | `capacity`, `computing`, `waiting` | when growth is refused; jobs that are not done; the clients that wait |
//! | `peer_table`, `peer_address` | which members it knows, and where |
//! | `handshake`, `proofs`, `join` | how members meet |
//! | `lanes`, `dialler`, `pauses`, `lane_on_demand` | which connection a message takes, and when it is dialled |
//! | `snapshots` | snapshot files, step by step |
//!
//! Knows nothing of: clocks, threads, sockets, tokio, how jobs are carried out.
#![forbid(unsafe_code)]

pub mod apply;
pub mod artefacts;
pub mod capacity;
pub mod computing;
pub mod dialler;
pub mod handshake;
pub mod host;
pub mod join;
pub mod lane_on_demand;
pub mod lanes;
pub mod log;
pub mod log_moves;
pub mod log_orders;
pub mod member;
pub mod opening;
pub mod pauses;
pub mod peer_address;
pub mod peer_table;
pub mod progress;
pub mod proofs;
pub mod snapshots;
pub mod stages;
pub mod step;
pub mod streams;
pub mod tuning;
pub mod waiting;
