//! beside: runs a program that stands beside this one, in place of it: the simulator, the lab.
//!
//! Knows nothing of: simulations, experiments.

use kattu_output::{Ended, Outcome};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A program beside this one.
pub(crate) struct Program {
    name: &'static str,
    /// Its place in a sentence.
    what: &'static str,
    /// How to get it.
    build: &'static str,
}

/// Simulated clusters.
pub(crate) const SIMULATOR: Program =
    Program { name: "kattu-sim", what: "the simulator", build: "cargo build --release -p kattu-simulator" };
/// Experiments.
pub(crate) const LAB: Program =
    Program { name: "kattu-lab", what: "the lab", build: "cargo build --release -p kattu-lab" };

impl Program {
    /// Replaces this process by the program; returns only if that fails.
    ///
    /// # Errors
    /// The program is not there, or cannot be started.
    pub(crate) fn become_it(&self, args: &[OsString]) -> Outcome {
        let path = std::env::current_exe()?.with_file_name(self.name);
        let error = Command::new(&path).args(args).exec();
        Err(Ended::usage(match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{} not found: {} is a program of its own; build it with `{}`",
                path.display(),
                self.what,
                self.build
            ),
            _ => format!("{}: {error}", path.display()),
        }))
    }
}
