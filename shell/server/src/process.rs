//! Facts about this process, from `/proc`.
//!
//! Reading them costs the calling thread time, the more the more files are open. So they are kept for a while: a client
//! that requests page after page causes one reading a second.
//! Knows nothing of: metrics.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The kernel counts CPU time and start times for `/proc` in hundredths of a second on every architecture we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is known about this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// CPU time of all threads, user and system.
    pub cpu_seconds: f64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Address space in use.
    pub virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files.
    pub open_files: u64,
    /// Open files allowed.
    pub open_files_max: u64,
    /// Start, in seconds since 1970.
    pub started_seconds: f64,
}

/// How long facts are kept.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The facts of the last reading, and its time.
#[derive(Debug, Default)]
pub struct Last(Mutex<Option<(Instant, Option<Facts>)>>);

impl Last {
    /// The facts, at most a second old; none where there is no `/proc`.
    pub fn facts(&self, now: Instant) -> Option<Facts> {
        self.facts_by(now, look)
    }

    fn facts_by(&self, now: Instant, look: impl FnOnce() -> Option<Facts>) -> Option<Facts> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((looked, facts)) if now < looked + KEPT_FOR => facts,
            _ => {
                let facts = look();
                *last = Some((now, facts));
                facts
            }
        }
    }
}

/// Reads the facts; none where there is no `/proc`.
fn look() -> Option<Facts> {
    // The second field of `stat` is the command in parentheses and may hold anything; fields are counted behind it,
    // where the state has number 3.
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = behind.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let booted = line_value(&machine, "btime ")?;
    Some(Facts {
        cpu_seconds: (field(14)? + field(15)?) as f64 / TICKS_PER_SECOND,
        resident_bytes: line_value(&status, "VmRSS:")? * 1024,
        virtual_bytes: field(23)?,
        threads: field(20)?,
        open_files: fs::read_dir("/proc/self/fd").ok()?.count() as u64,
        open_files_max: line_value(&limits, "Max open files").unwrap_or(u64::MAX),
        started_seconds: booted as f64 + field(22)? as f64 / TICKS_PER_SECOND,
    })
}

/// The first number behind `name` at the start of a line.
fn line_value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_kept_for_a_second_and_no_longer() {
        let (last, begin) = (Last::default(), Instant::now());
        let mut looks = 0;
        for (millis, so_far) in [(0, 1), (0, 1), (500, 1), (999, 1), (1_000, 2), (1_999, 2), (9_000, 3)] {
            let look = || {
                looks += 1;
                look()
            };
            let found = last.facts_by(begin + Duration::from_millis(millis), look);
            assert_eq!((looks, found.is_some()), (so_far, true), "after {millis} ms");
        }
        let nowhere = Last::default();
        assert_eq!(nowhere.facts_by(begin, || None), None);
        assert_eq!(nowhere.facts_by(begin, look), None, "a result without facts is kept, too");
    }

    #[test]
    fn the_process_sees_itself() {
        let facts = look().expect("/proc is there on Linux");
        assert!(1 << 20 < facts.resident_bytes && facts.resident_bytes < facts.virtual_bytes, "{facts:?}");
        assert!(
            1 <= facts.threads && 3 <= facts.open_files && facts.open_files <= facts.open_files_max,
            "{facts:?}"
        );
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(now - 86_400.0 < facts.started_seconds && facts.started_seconds < now + 2.0, "{facts:?}");
    }
}
