//! All interleavings of a tiny cluster.
//!
//! Storms try many paths; this crate tries every one, in a world so small that this is possible: two or three members
//! of the production core ([`kattu_raft::Raft`], no twin), a few deadlines, a write or two, a crash. Every next step of
//! the network, the disks, the clocks and the clients is a choice, and all choices are followed. A world reached on two
//! ways is seen once, so the number of worlds is a fact about the protocol; it is pinned.
//!
//! ```text
//!   scope ──▶ world ──choices──▶ worlds ──▶ …      search: nearest first, each once
//!               │
//!      member · member · member   ghost   messages under way   budgets
//!      (core + disk)              (elections, commits and reads, judged in every world)
//! ```
//!
//! **Time** is the choice "this deadline fires now": every state is brought into a canonical form that keeps which
//! deadlines lie ahead, and not when ([`kattu_raft::canonical`]). Lease scopes measure time instead, by a clock that
//! all share and member clocks that deviate from it ([`clocks`]). **Order and loss**: a message may arrive in any
//! order, twice, or never. **Disks** complete up to any record; a crash keeps any prefix of the rest.
//!
//! ```
//! use kattu_explore::{Report, explore, scope};
//! use kattu_raft::canonical::Moment;
//!
//! let tiny = scope::Scope { members: 2, fires: &[(Moment::Election, 1)], ..scope::TINY };
//! let report: Report = explore(&tiny).unwrap_or_else(|broken| panic!("{broken}"));
//! assert!(report.seen.contains(&scope::Mark::Elected));
//! ```
//! Knows nothing of: stores, wires, real disks; those have storms of their own.
#![forbid(unsafe_code)]

pub mod choice;
pub mod clocks;
pub mod disk;
pub mod ghost;
pub mod left;
pub mod member;
pub mod position;
pub mod receipts;
pub mod scope;
pub mod search;
pub mod tables;
pub mod timeline;
pub mod world;

pub use scope::Scope;
pub use search::{Counterexample, Report, explore, explore_and_tell};
