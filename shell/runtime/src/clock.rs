//! The one clock: monotonic, and running on through suspend. [fault-model TM1]
//!
//! Knows nothing of: wall time.

use kattu_raft::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};

/// The moment now, in nanoseconds since boot.
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant(seconds * 1_000_000_000 + nanos)
}

/// How long until `deadline`; a day at most, so that timers need no "never".
#[must_use]
pub fn until(deadline: Instant) -> Duration {
    deadline.since(now()).min(Duration::from_secs(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in a child process that only prints what the clock shows.
    const ONLY_SHOW: &str = "KATTU_TEST_SHOWS_THE_CLOCK";
    const SLEPT: u64 = 1_000_000;

    fn uptime() -> f64 {
        let text = std::fs::read_to_string("/proc/uptime").expect("a Linux");
        text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("seconds first")
    }

    fn seconds(moment: Instant) -> f64 {
        moment.0 as f64 / 1e9
    }

    /// In a time namespace in which the machine has slept, this clock is ahead by the sleep; a clock that stands still
    /// meanwhile shows as much as outside. (L-1, TM1)
    #[test]
    fn the_clock_has_run_on_while_the_machine_slept() {
        if std::env::var_os(ONLY_SHOW).is_some() {
            println!("{ONLY_SHOW} {}", now().0);
            return;
        }
        let before = uptime();
        let shown = seconds(now());
        assert!((before - 0.011..=uptime() + 0.011).contains(&shown), "{shown}, up for {before}"); // hundredths

        let slept = SLEPT.to_string();
        let own = std::env::current_exe().expect("this program");
        let mut inside = Command::new("unshare");
        inside.args(["--map-root-user", "--time", "--boottime", &slept]).arg(own);
        inside.args(["--exact", "clock::tests::the_clock_has_run_on_while_the_machine_slept", "--nocapture"]);
        let told = inside.env(ONLY_SHOW, "1").output();
        let Some(told) = told.ok().filter(|told| told.status.success()) else {
            eprintln!("SKIPPED: no time namespace can be had here");
            return;
        };
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let words = told.split_once(ONLY_SHOW).and_then(|(_, behind)| behind.split_whitespace().next());
        let nanos: u64 = words.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{told}"));
        let there = seconds(Instant(nanos)) - SLEPT as f64;
        assert!((shown..=seconds(now())).contains(&there), "{there} s beyond the sleep, {shown} s before it");
    }
}
