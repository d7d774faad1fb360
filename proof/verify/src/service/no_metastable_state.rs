//! No metastable state: load far above capacity costs little while it lasts, and nothing afterwards.
//!
//! In:    completed requests: before, during and after a time of load above capacity.
//! Out:   the first number of F50 that does not hold.
//! Rules: the rate of completed requests during the load is at least [`DURING_MIN`] of the peak before; from
//!        [`RECOVERY`] after its end on, it is no lower than before. [fault-model F50]
//! Why:   a system that works on requests whose clients have given up, or repeats what is under way, can stay slow
//!        after the cause is gone.
//! Knows nothing of: the content of requests, the members.

use super::Violation;
use std::ops::Range;

/// The least share of the peak rate while the load lasts.
pub const DURING_MIN: f64 = 0.8;
/// From so long after the load on, in nanoseconds, the rate is as before.
pub const RECOVERY: u64 = 10_000_000_000;

/// Requests completed in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Number of requests.
    pub requests: u64,
    /// The time in nanoseconds. Above 0.
    pub time: u64,
}

impl Done {
    /// Counts the times in `at` that are within this time.
    #[must_use]
    pub fn within(at: impl IntoIterator<Item = u64>, time: &Range<u64>) -> Done {
        let requests = at.into_iter().filter(|at| time.contains(at)).count() as u64;
        Done { requests, time: time.end.saturating_sub(time.start) }
    }

    /// Requests per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.time.max(1) as f64
    }
}

/// Judges the rate during the load, and the rate from [`RECOVERY`] after it on. `peak` is the rate under as much load
/// as the cluster can serve; `before` and `after` are under the same load.
///
/// # Errors
/// The number that does not hold.
pub fn no_metastable_state(peak: Done, during: Done, before: Done, after: Done) -> Result<(), Violation> {
    let broken = |story: String| Violation { property: "no_metastable_state", story, operations: Vec::new() };
    if during.per_second() < DURING_MIN * peak.per_second() {
        return Err(broken(format!(
            "{:.0} requests per second were done under load above capacity, and {:.0} before: less than {DURING_MIN} of \
             that",
            during.per_second(),
            peak.per_second()
        )));
    }
    // Two windows of one rate may differ by one request at each end.
    let uncertain = 2e9 / after.time.max(1) as f64;
    if after.per_second() + uncertain < before.per_second() {
        return Err(broken(format!(
            "{:.1} requests per second are done {} s after the load, and {:.1} were before it",
            after.per_second(),
            RECOVERY / 1_000_000_000,
            before.per_second()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000_000;

    fn done(requests: u64) -> Done {
        Done { requests, time: 10 * SEC }
    }

    #[test]
    fn what_is_done_is_counted_in_its_time() {
        let at = [1, 5, 9, 10, 11].map(|second| second * SEC);
        assert_eq!(Done::within(at, &(5 * SEC..11 * SEC)), Done { requests: 3, time: 6 * SEC });
        assert!((done(50).per_second() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_fifth_may_be_lost_during_the_load_and_nothing_after_it() {
        let judge = no_metastable_state;
        assert_eq!(judge(done(1000), done(800), done(400), done(400)), Ok(()));
        assert_eq!(judge(done(1000), done(1200), done(400), done(398)), Ok(()), "windows have two ends");
        let during = judge(done(1000), done(799), done(400), done(400)).expect_err("79.9 of 100");
        assert!(
            during.story.contains("80 requests per second") && during.story.contains("100 before"),
            "{during}"
        );
        let after = judge(done(1000), done(900), done(400), done(397)).expect_err("39.7 of 40");
        assert_eq!(after.property, "no_metastable_state");
        assert!(after.story.starts_with("39.7 requests per second are done 10 s after"), "{after}");
    }
}
