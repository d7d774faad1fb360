//! Chaos: real processes under real faults, judged by the history of their clients.
//!
//! | Read in this order | Contents |
//! |---|---|
//! | `faults.rs` | the plan of a seed |
//! | `rules.rs` | packets dropped by the kernel |
//! | `storm.rs` | the conductor |
//! | `weak.rs` | weak clients of a trial with `--weak` |
//! | `trial.rs` | one trial of `cargo xtask chaos` |
//! | `calls.rs`, `kills.rs` | one trial of `cargo xtask kills` |
//! | `flips.rs` | one trial of `cargo xtask flips` |
//! | `limited.rs` | links of limited bandwidth in a third of the trials, and their use |
//! | `slow_link.rs` | `cargo xtask bench slow-link` |
//! | `campaign.rs` | many trials: progress, tables, the last line |
//!
//! Members, links and clients are those of [`kattu_rig`], the judges those of `kattu_verify`. A seed decides only as much as it can with real processes: victims, times
//! and kinds of faults, and the clients' operations.
//! Knows nothing of: the insides of the system under test.
#![forbid(unsafe_code)]

pub mod calls;
pub mod campaign;
pub mod faults;
pub mod flips;
pub mod kills;
pub mod limited;
pub mod rules;
pub mod slow_link;
pub mod storm;
pub mod trial;
pub mod weak;
