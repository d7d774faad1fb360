//! Judges: checks of a cluster's invariants and of the answers that its clients got.
//!
//! | Read in this order | What it is |
//! |---|---|
//! | `history.rs` | the clients' requests and their answers |
//! | `lines.rs` | the same as JSON lines |
//! | `operations.rs` | each invocation paired with its end |
//! | `spec.rs` | the store in its simplest possible form |
//! | `convert.rs` | histories' types ↔ the store's types |
//! | `judges/` | one file per guarantee to clients |
//! | `invariants/` | one file per invariant of the protocol |
//! | `service/` | one file per guarantee about time and resources |
//!
//! docs/invariants.md names for each judge the planted bug that it must catch: a judge that catches nothing proves
//! nothing.
//! Knows nothing of: the source of a history (simulation, real processes, etcd).
#![forbid(unsafe_code)]

pub mod convert;
pub mod history;
pub mod invariants;
pub mod judges;
pub mod lines;
pub mod operations;
pub mod service;
pub mod spec;
