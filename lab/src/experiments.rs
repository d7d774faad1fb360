//! All experiments, each a folder: `question.md`, `published.toml`, `mod.rs`.
//!
//! Knows nothing of: how an experiment is run.

mod batching;
mod frame_check;

use crate::experiment::Experiment;

/// All of them, in the order in which they are listed.
pub const ALL: &[&Experiment] = &[&batching::EXPERIMENT, &frame_check::EXPERIMENT];
