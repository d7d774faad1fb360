//! One replica of a Kattu group, in two halves with one queue between them. [architecture §2]
//!
//! The [`Node`] is raft, waiting clients and read rounds: a pure function of events. The [`Keeper`] owns the
//! replicated tables, takes committed entries and released reads in order, and answers clients itself. Commit never
//! waits for apply.
//!
//! Reading order: `contract` (what goes in, what comes out) · `node` (dispatch) · `writes` · `reads` ·
//! `members` (how they change) · `newcomer` (who may be one) · `snapshots` (when one is taken) · `compare` (when members tell what they made of the log) ·
//! `level` (which features the log may use) · `keeper` · `table` (its members) · `digests`, `alarms` (who is odd) · `frozen` (its tables as bytes) · `command` (what an entry says).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod alarms;
pub mod command;
pub mod compare;
pub mod contract;
pub mod digests;
pub mod frozen;
mod keeper;
pub mod level;
mod members;
pub mod newcomer;
mod node;
mod reads;
mod snapshots;
mod table;
mod writes;

pub use keeper::{Keeper, RequestLimits};
pub use node::{Node, NodeConfig};
pub use snapshots::SnapshotLimits;
