//! The rig: real processes that form a cluster, the links between them, and clients whose history is kept.
//!
//! | Read in this order | Contents |
//! |---|---|
//! | `programs.rs` | where programs are, running them to the end, waiting for conditions |
//! | `process.rs`, `freezer.rs`, `processor_time.rs` | a process that is started, paused, killed and watched; the time that it used |
//! | `target.rs`, `flags.rs`, `clocks.rs` | the system under test, its command line, its clocks |
//! | `place.rs` | network namespaces, or loopback addresses |
//! | `member.rs`, `cluster.rs`, `changes.rs` | members, and requests to all of them |
//! | `testing.rs`, `alone.rs` | what tests add: panics instead of errors, and turns |
//! | `grpc.rs`, `page.rs`, `authority.rs` | a client in one line per call, metrics, certificates |
//! | `weather.rs`, `frames.rs`, `proxy.rs` | the link proxy |
//! | `outage.rs` | how long the service is away after a leader has died |
//! | `disk.rs` | small disks, and system calls that fail |
//! | `workload.rs`, `words.rs`, `native.rs`, `faces.rs`, `record.rs`, `clients.rs` | clients and their history |
//! | `weak.rs`, `ledger.rs` | clients that put weakly, and what became of each put |
//! | `metrics_check.rs` | work that members must show in their metrics |
//! | `timeline.rs`, `verdict.rs`, `progress.rs` | what happened, what the judges say, how far a campaign is |
//!
//! The generator is `kattu_random`. Knows nothing of: what is done to a cluster, and when.
#![forbid(unsafe_code)]

pub mod alone;
pub mod authority;
pub mod changes;
pub mod clients;
pub mod clocks;
pub mod cluster;
pub mod disk;
pub mod faces;
pub mod flags;
pub mod frames;
pub mod freezer;
pub mod grpc;
pub mod ledger;
pub mod member;
pub mod metrics_check;
mod native;
pub mod outage;
pub mod page;
pub mod place;
pub mod process;
pub mod processor_time;
pub mod programs;
pub mod progress;
pub mod proxy;
pub mod record;
pub mod target;
pub mod testing;
pub mod timeline;
pub mod verdict;
pub mod weak;
pub mod weather;
pub mod words;
pub mod workload;

pub use cluster::Cluster;
pub use grpc::Kv;
pub use member::{Member, READY};
pub use page::Page;
pub use process::Process;
pub use programs::{Ended, kattu, tool, until, until_within};
pub use testing::Options;

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
