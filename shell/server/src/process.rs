//! What the kernel tells about this process, from `/proc`.
//!
//! Knows nothing of: metrics.

use std::fs;

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

/// Looks; none where there is no `/proc`.
#[must_use]
pub fn look() -> Option<Facts> {
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
