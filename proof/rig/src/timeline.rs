//! The timeline: what was done and seen in a trial, with times.
//!
//! Knows nothing of: members, faults.

use std::time::Instant;

/// Lines with their times, for a reader.
#[derive(Debug)]
pub struct Timeline {
    begun: Instant,
    lines: Vec<String>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { begun: Instant::now(), lines: Vec::new() }
    }
}

impl Timeline {
    /// Adds a line.
    pub fn say(&mut self, line: impl AsRef<str>) {
        self.lines.push(format!("{:>9.3} s  {}", self.begun.elapsed().as_secs_f64(), line.as_ref()));
    }

    /// All of it.
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}
