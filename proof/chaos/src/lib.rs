//! Real processes under real faults, judged by what their clients were told.
//!
//! | Read in this order | What it is |
//! |---|---|
//! | `target.rs` | what is attacked: `kattu serve`, or etcd |
//! | `place.rs` | network namespaces, or loopback addresses |
//! | `member.rs`, `cluster.rs` | processes and what is asked of them |
//! | `flags.rs` | how a seed configures its members |
//! | `faults.rs` | the plan of a seed |
//! | `weather.rs`, `frames.rs`, `proxy.rs` | the link proxy |
//! | `rules.rs` | packets dropped by the kernel |
//! | `storm.rs` | the conductor |
//! | `workload.rs`, `words.rs`, `record.rs`, `clients.rs` | clients and what they note |
//! | `trial.rs` | one trial of `cargo xtask chaos` |
//! | `metrics_check.rs` | what members must show of themselves at the end |
//! | `calls.rs`, `kills.rs` | one trial of `cargo xtask kills` |
//! | `flips.rs` | one trial of `cargo xtask flips` |
//! | `limited.rs` | links of limited bandwidth in a third of the trials, and what they were used for |
//! | `slow_link.rs` | `cargo xtask bench slow-link` |
//! | `campaign.rs` | many of them: progress, tables, the last line |
//!
//! The judges are `kattu_verify`'s. What happens here depends on seeds only as far as real processes can: a seed repeats
//! who is hit, when and how, and what clients ask.
//! Knows nothing of: the insides of what it attacks.
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
