//! `cargo xtask`: all commands of contributors and CI.
//!
//! `check` reads and judges, `fix` rewrites, `test` is what `.ci/run` executes, `tools` fetches third-party programs
//! for tests, `bench` measures. When one fails, it prints the next command to run.
//! Knows nothing of: how any of the crates work; it only runs them.

mod arrows;
mod bench;
mod bugs;
mod chaos;
mod check;
mod commands;
mod coverage;
mod explore;
mod fix;
mod fuzz;
mod house;
mod llvm;
mod mutate;
mod pages;
mod pgo;
mod power;
mod prebuild;
mod profiles;
mod proofs;
mod rigs;
mod shell;
mod stage;
mod storms;
mod targets;
mod test;
mod tools;
mod upgrade;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match commands::run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.what.is_empty() {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}
