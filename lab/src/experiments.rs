//! All experiments, each a folder: `question.md`, `published.toml` (if anything is published), `mod.rs`.
//!
//! Knows nothing of: how an experiment is run.

mod asynchronous_apply;
mod batching;
mod combinations;
mod datagrams;
mod distance;
mod elections;
mod five_requests;
mod frame_check;
mod losses;
mod model;
mod non_blocking;
mod parallel_append;
mod pipelining;
mod reads;
mod serialisation;
mod write_stages;

use crate::experiment::Experiment;

/// All of them, in the order in which they are listed.
pub const ALL: &[&Experiment] = &[
    &batching::EXPERIMENT,
    &pipelining::EXPERIMENT,
    &parallel_append::EXPERIMENT,
    &asynchronous_apply::EXPERIMENT,
    &combinations::EXPERIMENT,
    &elections::EXPERIMENT,
    &reads::EXPERIMENT,
    &serialisation::EXPERIMENT,
    &five_requests::EXPERIMENT,
    &write_stages::EXPERIMENT,
    &non_blocking::EXPERIMENT,
    &losses::EXPERIMENT,
    &distance::EXPERIMENT,
    &datagrams::EXPERIMENT,
    &model::EXPERIMENT,
    &frame_check::EXPERIMENT,
];
