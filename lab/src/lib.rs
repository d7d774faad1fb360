//! The lab: experiments on clusters of real processes, beside figures that others published.
//!
//! ```text
//!   experiments/NAME ─▶ experiment.rs ─▶ run.rs ─▶ bench_cluster.rs ─▶ members, kattu bench
//!   (points, judge)                        │
//!                                          ▼
//!                       results.rs: DIR/samples.jsonl ─▶ measured.rs ─▶ judge ─▶ figures.rs, page.rs
//! ```
//! | Read in this order | Contents |
//! |---|---|
//! | `experiment.rs` | what an experiment is: question, points, published figures, judge |
//! | `experiments.rs` | all of them, each a folder |
//! | `run.rs` | which point is measured when; discards, resumption, time left |
//! | `bench_cluster.rs` | members under a load |
//! | `bench_cluster/elections.rs` | leaders that are killed, and how long the service is away |
//! | `codec.rs` | the record of a put in several formats |
//! | `trace.rs` | five requests on their way through three nodes |
//! | `machine.rs` | the machine and its limits |
//! | `results.rs` | the folder of a run |
//! | `statistics.rs`, `measured.rs` | medians, intervals; what is computed from runs |
//! | `times.rs` | the eleven times of a request, from stages |
//! | `published.rs` | figures of others, as data |
//! | `judge.rs` | claims and their verdicts |
//! | `figures.rs`, `drawings.rs`, `page.rs`, `report.rs` | charts, other pictures, the page, and all that is made from samples |
//! | `petri.rs` | the Petri net of replication on the command line |
//! | `overview.rs` | one page over several runs: published statements beside the claims that judge them |
//!
//! Knows nothing of: what is inside a member.
#![forbid(unsafe_code)]

pub mod bench_cluster;
pub mod codec;
pub mod drawings;
pub mod experiment;
pub mod experiments;
pub mod figures;
pub mod judge;
pub mod machine;
pub mod measured;
pub mod overview;
mod page;
pub mod petri;
pub mod published;
pub mod report;
pub mod results;
pub mod run;
pub mod statistics;
pub mod times;
pub mod trace;
