//! End to end: the real binary, driven from outside by processes, signals, files and etcd's own tools.
//!
//! A [`Cluster`] is `kattu serve` processes on loopback addresses of their own, with data on a real file system under
//! `target/e2e`. Dropping it kills all processes; data stays if the test failed. Tests wait for conditions ([`until`]),
//! never for a time; a test whose program is missing prints `SKIPPED`, which is counted.
//! Knows nothing of: the insides of Kattu; only of what a client can see.
#![forbid(unsafe_code)]

pub mod alone;
pub mod authority;
pub mod cluster;
pub mod comeback;
pub mod disk;
pub mod floods;
mod floors;
mod full_load;
pub mod gaps;
pub mod grow;
pub mod grpc;
pub mod heavy;
pub mod host_memory;
pub mod kills;
mod open_loop;
pub mod overload;
pub mod page;
pub mod process;
pub mod processors;
pub mod raw;
pub mod soak;
pub mod stranger;
pub mod tail;
pub mod tree;
pub mod upgrade;

pub use cluster::{Cluster, Member, Options};
pub use grpc::Kv;
pub use page::Page;
pub use process::{Ended, kattu, tool, until, until_within};

/// The path of a tool; if it is missing, prints a line that is counted and returns from the test.
#[macro_export]
macro_rules! need {
    ($tool:expr) => {
        match $crate::tool($tool) {
            Some(path) => path,
            None => {
                // The harness prints the test's name before it; the line names the test again for the final count.
                let thread = std::thread::current();
                println!("SKIPPED {}: no target/tools/{}", thread.name().unwrap_or("?"), $tool);
                return;
            }
        }
    };
}
