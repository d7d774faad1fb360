//! The judges: what must hold of a cluster, and of what its clients were told.
//!
//! | Read in this order | What it is |
//! |---|---|
//! | `history.rs` | what clients asked and were told |
//! | `lines.rs` | the same as JSON lines |
//! | `operations.rs` | invocations and ends put together |
//! | `spec.rs` | the store in its simplest possible form |
//! | `convert.rs` | histories' words ↔ the store's words |
//! | `judges/` | one file per promise to clients |
//! | `invariants/` | one file per invariant of the protocol |
//! | `service/` | one file per promise about time and means |
//!
//! A judge that never catches anything is not a judge: docs/invariants.md names, for each, the planted bug that it must
//! catch.
//! Knows nothing of: where a history comes from (simulation, real processes, etcd).
#![forbid(unsafe_code)]

pub mod convert;
pub mod history;
pub mod invariants;
pub mod judges;
pub mod lines;
pub mod operations;
pub mod service;
pub mod spec;
