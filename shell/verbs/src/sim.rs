//! sim: runs the simulator `kattu-sim`, a program beside this one.
//!
//! Knows nothing of: simulations.

use kattu_output::{Ended, Outcome};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program, and how to get it.
const PROGRAM: &str = "kattu-sim";
const BUILD: &str = "cargo build --release -p kattu-simulator";

/// Replaces this process by the simulator; returns only if that fails.
///
/// # Errors
/// The simulator is not there, or cannot be started.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let error = Command::new(&program).args(args).exec();
    Err(Ended::usage(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{} not found: the simulator is a program of its own; build it with `{BUILD}`",
            program.display()
        ),
        _ => format!("{}: {error}", program.display()),
    }))
}
