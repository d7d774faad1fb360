//! sim: hands over to `kattu-sim`, the program beside this one that has the simulator.
//!
//! Knows nothing of: storms.

use crate::ended::{Ended, Outcome};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program, and how to get it.
const PROGRAM: &str = "kattu-sim";
const BUILD: &str = "cargo build --release -p kattu-simulator";

/// Becomes the simulator; comes back only if that cannot be.
///
/// # Errors
/// It is not there, or cannot be started.
pub fn run(args: &[OsString]) -> Outcome {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let error = Command::new(&program).args(args).exec();
    Err(Ended::usage(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "the simulator is a program of its own, and {} is not there; next: {BUILD}",
            program.display()
        ),
        _ => format!("{}: {error}", program.display()),
    }))
}
