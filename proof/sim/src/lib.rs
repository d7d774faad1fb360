//! Simulator: whole clusters under storms of faults, from one seed.
//!
//! The code under test is that of production: `kattu-node`, `kattu-member`, `kattu-wire`, `kattu-wal`, `kattu-kv`. Only clocks,
//! threads, sockets and files are simulated, so twenty simulated minutes take a second, and every storm repeats bit by
//! bit.
//!
//! | Read in this order | What it is |
//! |---|---|
//! | `plan.rs` | what a seed decides |
//! | `inject.rs` | the faults as a list |
//! | `world.rs` | members, clients and time |
//! | `process.rs`, `answers.rs`, `end.rs`, `log.rs`, `segments.rs` | one member, driven as production drives it |
//! | `turn_time.rs`, `disk_time.rs` | how long that takes |
//! | `net.rs`, `peers.rs`, `meeting.rs` | what members decide about each other and about connections, carried out |
//! | `hangups.rs` | how the ends of a connection learn that it is over |
//! | `frames.rs`, `paths.rs` | messages as bytes, and what happens to them on their way |
//! | `clients.rs` | operations of clients, and their history |
//! | `sessions.rs`, `ledger.rs` | commands that are executed once, and what becomes of weak writes |
//! | `storm.rs` | carries out the faults |
//! | `operator.rs`, `in_touch.rs` | changes of members, and which members know each other |
//! | `restore.rs`, `sim_dirs.rs`, `rerun.rs` | new clusters from backups or survivors, beside the storm |
//! | `calm.rs` | checks after the storm |
//! | `observer.rs` | checks during the storm |
//! | `faults.rs`, `trace.rs`, `words.rs`, `report.rs` | counts, timeline, report |
//! | `run.rs`, `campaign.rs`, `shrink.rs` | one storm, many, the smallest that fails |
//! | `elections.rs` | how long clusters are without a leader |
//! | `family.rs`, `beside.rs` | storms that judge service: slow links, members with little CPU, busy disks |
//! | `liar.rs` | storms with a lying member |
//! | `service.rs`, `load.rs` | how well clusters serve: single situations, requests at a rate |
//! | `dice.rs`, `clock.rs`, `queue.rs` | random numbers, time, order of events |
//!
//! ```
//! let options = kattu_sim::Options { seconds: Some(5), ..kattu_sim::Options::default() };
//! let report = kattu_sim::run_storm(7, &options);
//! assert_eq!(report.violation, None);
//! assert_eq!(report.hash, kattu_sim::run_storm(7, &options).hash);
//! ```
//! Knows nothing of: `std::time`, files, sockets, tokio, `shell/runtime`.
#![forbid(unsafe_code)]

mod answers;
mod apply_thread;
pub mod beside;
mod calm;
pub mod campaign;
mod clients;
mod clock;
mod computing;
mod dice;
mod disk_time;
mod diverge;
pub mod elections;
mod end;
pub mod family;
pub mod faults;
mod frames;
mod hangups;
mod in_touch;
pub mod inject;
mod intruders;
mod judged;
mod ledger;
mod liar;
pub mod load;
mod log;
mod meeting;
mod net;
mod non_blocking;
mod observer;
mod operator;
mod paths;
mod peers;
mod plan;
mod process;
mod queue;
pub mod regressions;
mod report;
mod rerun;
mod restore;
mod run;
mod segments;
pub mod service;
mod sessions;
mod shrink;
mod sim_dirs;
mod snapshots;
mod storm;
mod streams;
mod timeline;
pub mod trace;
mod tuned;
mod turn_time;
mod words;
mod world;

pub use family::Family;
pub use kattu_member::tuning::Threading;
pub use plan::{Disagrees, Leases, Options, Plan};
pub use report::{Counts, StormReport, Violation};
pub use run::{run_plan, run_storm};
pub use shrink::{Shrunk, shrink};
