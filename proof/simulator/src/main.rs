//! The command `kattu sim`: a program of its own, so that a build of Kattu builds no simulator.
//!
//! | File | One idea |
//! |---|---|
//! | `sim.rs` | storms over simulated clusters, from seeds |
//! | `elections.rs` | how fast leaders are replaced |
//!
//! Knows nothing of: storms, faults.
#![forbid(unsafe_code)]

mod elections;
mod sim;

use clap::Parser;
use std::process::ExitCode;

/// Attack simulated clusters with storms of faults, from seeds
#[derive(Parser, Debug)]
#[command(name = "kattu sim", bin_name = "kattu sim", version)]
struct Command {
    #[command(flatten)]
    args: sim::SimArgs,
}

fn main() -> ExitCode {
    match sim::run(&Command::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => ended.report(),
    }
}
