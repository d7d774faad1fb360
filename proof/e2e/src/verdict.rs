//! Verdict: the last lines and the exit code of a program that has killed leaders.
//!
//! Knows nothing of: what was judged.

use std::path::Path;
use std::process::ExitCode;

/// Differences that are printed.
const SHOWN: usize = 10;

/// Tells whether what it says holds, the first differences, and what was kept of them. A control must not hold.
pub fn tell(says: &str, broken: &[String], kept: Option<&Path>, is_control: bool) -> ExitCode {
    for line in broken.iter().take(SHOWN) {
        println!("DOES NOT HOLD: {line}");
    }
    if let Some(folder) = kept {
        println!("kept: {}", folder.display());
    }
    let holds = broken.is_empty();
    println!("{says}: {}", if holds { "holds" } else { "DOES NOT HOLD" });
    if holds != is_control { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
