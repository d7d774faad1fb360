//! How the scheduler of the system places a thread behind others: a thread that may take long must not delay those for which
//! clients wait.
//!
//! A thread of low niceness still keeps a processor for some milliseconds after another one has become ready. One that gets only
//! what is left over (`SCHED_IDLE`) gives way at once, but makes hardly any progress while all processors are busy. Linux lets a
//! thread return from there without privileges. [sched(7)]
//! Knows nothing of: what threads do.

/// The niceness of [`Priority::Low`].
const NICENESS: i32 = 10;

/// How a thread is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Others get most of the time.
    Low,
    /// Others get all the time that they want.
    LeftOver,
}

/// The priority of the calling thread, which begins as an ordinary one.
#[derive(Debug)]
pub(crate) struct Own(Priority);

impl Own {
    /// Lowers it. Where the system refuses that, now or later, the other threads notice this one more.
    pub(crate) fn lower() -> Own {
        let _ = rustix::process::nice(NICENESS);
        Own(Priority::Low)
    }

    /// Changes it, if it differs.
    pub(crate) fn set(&mut self, priority: Priority) {
        if self.0 == priority {
            return;
        }
        self.0 = priority;
        let policy = match priority {
            Priority::Low => libc::SCHED_OTHER,
            Priority::LeftOver => libc::SCHED_IDLE,
        };
        // SAFETY: `sched_param` is a plain record of numbers, for which zeros are valid: these policies want the priority 0.
        // The call reads it and changes nothing but how this thread, 0, is scheduled; its niceness stays.
        unsafe {
            let none: libc::sched_param = core::mem::zeroed();
            let _ = libc::sched_setscheduler(0, policy, &none);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_to_what_is_left_over_and_comes_back() {
        // SAFETY: it reads how this thread is scheduled.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        std::thread::spawn(move || {
            let mut own = Own::lower();
            assert_eq!(policy(), libc::SCHED_OTHER);
            own.set(Priority::LeftOver);
            assert_eq!(policy(), libc::SCHED_IDLE);
            own.set(Priority::Low);
            assert_eq!(policy(), libc::SCHED_OTHER);
            let niceness = rustix::process::nice(0).expect("it can be read");
            assert!(NICENESS <= niceness, "it is still low: {niceness}");
        })
        .join()
        .expect("it does not panic");
    }
}
