//! One replica of a Kattu group, in two halves with one queue between them. [architecture §2]
//!
//! The [`Node`] is raft, waiting clients and read rounds: a pure function of events. The [`Keeper`] owns the replicated
//! tables, runs committed entries and released reads in order, and answers clients itself. Commit never waits for
//! apply.
//!
//! Reading order: `contract` (events and effects) · `node` (dispatch) · `writes` · `reads` · `confirmation` (from when on a
//! member serves after a start) · `members` (changes of members) · `newcomer` (admission of a new member) · `leadership`
//! (when a leader transfers leadership by itself) · `snapshots` (when one is taken) · `compare` (when digests are
//! compared) · `level` (features that the log may use) · `keeper` · `table` (its members) · `digests`, `alarms`
//! (divergent members) · `frozen` (its tables as bytes) · `command` (the content of an entry) · `session` (commands about sessions of clients) ·
//! `bundle` (several puts in one entry) · `tuning` (optimisations that may be turned off).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod alarms;
pub mod bundle;
pub mod command;
mod command_bytes;
pub mod compare;
mod confirmation;
pub mod contract;
pub mod digests;
pub mod frozen;
mod keeper;
mod leadership;
pub mod level;
mod members;
pub mod newcomer;
mod node;
mod reads;
pub mod session;
mod snapshots;
mod table;
pub mod tuning;
pub mod weak;
mod writes;

pub use keeper::{Keeper, RequestLimits};
pub use leadership::TransferConfig;
pub use node::{Node, NodeConfig};
pub use snapshots::SnapshotLimits;
pub use tuning::Tuning;
