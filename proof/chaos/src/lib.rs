//! Chaos: real processes under real faults, judged by the history of their clients.
//!
//! | Read in this order | Contents |
//! |---|---|
//! | `target.rs` | the system under test: `kattu serve`, or etcd |
//! | `place.rs` | network namespaces, or loopback addresses |
//! | `member.rs`, `cluster.rs` | processes, and requests to them |
//! | `flags.rs` | the members' configuration, by seed |
//! | `faults.rs` | the plan of a seed |
//! | `weather.rs`, `frames.rs`, `proxy.rs` | the link proxy |
//! | `rules.rs` | packets dropped by the kernel |
//! | `storm.rs` | the conductor |
//! | `workload.rs`, `words.rs`, `record.rs`, `clients.rs` | clients and their history |
//! | `trial.rs` | one trial of `cargo xtask chaos` |
//! | `metrics_check.rs` | work that members must show in their metrics at the end |
//! | `calls.rs`, `kills.rs` | one trial of `cargo xtask kills` |
//! | `flips.rs` | one trial of `cargo xtask flips` |
//! | `limited.rs` | links of limited bandwidth in a third of the trials, and their use |
//! | `slow_link.rs` | `cargo xtask bench slow-link` |
//! | `campaign.rs` | many trials: progress, tables, the last line |
//!
//! The judges are those of `kattu_verify`. A seed decides only as much as it can with real processes: victims, times
//! and kinds of faults, and the clients' operations.
//! Knows nothing of: the insides of the system under test.
#![forbid(unsafe_code)]

pub mod calls;
pub mod campaign;
pub mod changes;
pub mod clients;
pub mod clocks;
pub mod cluster;
pub mod faults;
pub mod flags;
pub mod flips;
pub mod frames;
pub mod kills;
pub mod limited;
pub mod member;
pub mod metrics_check;
pub mod place;
pub mod proxy;
pub mod random;
pub mod record;
pub mod rules;
pub mod slow_link;
pub mod storm;
pub mod target;
pub mod trial;
pub mod weather;
pub mod words;
pub mod workload;
