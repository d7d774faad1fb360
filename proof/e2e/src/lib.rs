//! End to end: the real binary, driven from outside by processes, signals, files and etcd's own tools.
//!
//! A [`Cluster`](kattu_rig::Cluster) is `kattu serve` processes on loopback addresses of their own, with data on a real
//! file system under `target/e2e`. Dropping it kills all processes; data stays if the test failed. Tests wait for
//! conditions ([`until`](kattu_rig::until)), never for a time; a test whose program is missing prints `SKIPPED`, which
//! is counted. This library measures what the tests and `cargo xtask bench` judge.
//! Knows nothing of: the insides of Kattu; only of what a client can see.
#![forbid(unsafe_code)]

pub mod comeback;
mod fill;
pub mod floods;
mod floors;
mod full_load;
pub mod gaps;
pub mod grow;
pub mod heavy;
pub mod host_memory;
pub mod kills;
pub mod once;
mod open_loop;
pub mod overload;
pub mod processors;
pub mod raw;
pub mod soak;
pub mod steady_load;
pub mod stranger;
pub mod tail;
pub mod tree;
pub mod upgrade;
pub mod verdict;
pub mod weak;
