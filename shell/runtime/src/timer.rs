//! The timer of the driver: wakes it at one moment of [`clock`](crate::clock).
//!
//! The kernel's own timer, because it costs a sleeping member one wake-up: tokio's wheel wakes at each border of its levels on
//! the way, and its runtime once more whenever an earlier moment is set. It runs on through suspend, as the clock does.
//! [fault-model TM1]
//! Knows nothing of: what is due.

use crate::clock;
use kattu_raft::Instant;
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer that rings once for each moment that is set.
#[derive(Debug)]
pub(crate) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// A timer that is not set. Must be called inside a runtime.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Boottime, flags)?;
        // SAFETY: it owns the open file until it is dropped, and always has the same descriptor.
        Ok(Timer(unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?))
    }

    /// Rings at this moment, at once if it has passed and after a day at most, instead of at the one that was set before.
    pub(crate) fn set(&self, at: Instant) {
        // A span, and no moment: a clock that is faked (tests do that) has moments of its own. Of no length it would stop it.
        let span = clock::until(at).max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec).expect("a timer and a span");
    }

    /// Returns when it has rung since the last time: for a moment that was replaced meanwhile, or earlier than the moment that
    /// was set, where that was far away.
    pub(crate) async fn rung(&self) {
        // Each ring is an event of its own, so the count of rings need not be read from the file.
        self.0.readable().await.expect("its runtime lives").clear_ready();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::Duration;

    #[tokio::test]
    async fn it_rings_once_for_each_moment_and_not_before_it() {
        let timer = Timer::new().expect("a timer");
        for millis in [0, 5, 1] {
            let at = clock::now() + Duration::from_millis(millis);
            timer.set(at);
            timer.rung().await;
            assert!(at <= clock::now(), "{millis} ms");
        }
        timer.set(Instant(0));
        timer.rung().await;
        let again = tokio::time::timeout(Duration::from_millis(20), timer.rung()).await;
        assert!(again.is_err(), "it was set for nothing more");
    }

    #[tokio::test]
    async fn an_earlier_moment_replaces_a_later_one_and_a_later_one_an_earlier() {
        let timer = Timer::new().expect("a timer");
        timer.set(clock::now() + Duration::from_secs(3600));
        timer.set(clock::now() + Duration::from_millis(1));
        timer.rung().await;
        timer.set(clock::now() + Duration::from_millis(50));
        timer.set(clock::now() + Duration::from_secs(3600));
        let early = tokio::time::timeout(Duration::from_millis(100), timer.rung()).await;
        assert!(early.is_err(), "it rings for a moment that was replaced");
    }
}
