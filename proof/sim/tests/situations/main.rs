//! Situations of simulated clusters, each arranged for one question, and small storms. `cargo xtask test --only situations` runs
//! them optimized: a simulated minute has hundreds of thousands of events.
//!
//! Knows nothing of: seeds that change from commit to commit (`cargo xtask test`, stage `storms`).

mod leader_leases;
mod levels;
mod liars;
mod partitions;
mod raft_as_ever;
mod restore;
mod service;
mod slow_disks;
mod snapshots;
mod storms;
