//! Alone: tests of one program run side by side, for they mostly wait; a test that judges times runs by itself.
//!
//! Every [`Cluster`](crate::Cluster) is counted for as long as it lives. [`alone`] waits until there is none; from then
//! on only its own thread may have one. A waiting thread does not keep others from starting: the last test of all is
//! alone anyway.
//! Knows nothing of: members, times, verdicts.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard};

struct Present {
    beside: usize,
    alone: bool,
}

static PRESENT: Mutex<Present> = Mutex::new(Present { beside: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

fn present() -> MutexGuard<'static, Present> {
    PRESENT.lock().expect("nobody panics while it is held")
}

/// Counts one cluster; the thread that holds [`Alone`] does not count its own.
pub(crate) struct Beside {
    is_counted: bool,
}

impl Beside {
    /// Waits while another thread holds [`Alone`].
    pub(crate) fn new() -> Beside {
        let is_counted = !IS_ALONE.get();
        if is_counted {
            let mut present = CHANGED.wait_while(present(), |present| present.alone).expect("as above");
            present.beside += 1;
        }
        Beside { is_counted }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.is_counted {
            present().beside -= 1;
            CHANGED.notify_all();
        }
    }
}

/// Until it is dropped, no other thread of this program has a cluster.
pub struct Alone(());

/// Waits until no other thread has a cluster.
#[must_use]
pub fn alone() -> Alone {
    let busy = |present: &mut Present| present.alone || 0 < present.beside;
    CHANGED.wait_while(present(), busy).expect("as above").alone = true;
    IS_ALONE.set(true);
    Alone(())
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
        present().alone = false;
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_rig_that_is_alone_may_have_clusters_of_its_own_and_others_wait_for_it() {
        let (tell, told) = mpsc::channel();
        let first = alone();
        drop(Beside::new());
        let other = std::thread::spawn({
            let tell = tell.clone();
            move || {
                let beside = Beside::new();
                tell.send("beside").expect("the test listens");
                drop(beside);
            }
        });
        tell.send("alone").expect("the test listens");
        drop(first);
        other.join().expect("it does not panic");
        let second = std::thread::scope(|scope| {
            let beside = Beside::new();
            let waits = scope.spawn(|| {
                drop(alone());
                tell.send("alone again").expect("the test listens");
            });
            tell.send("still beside").expect("the test listens");
            drop(beside);
            waits.join()
        });
        second.expect("it does not panic");
        drop(tell);
        assert_eq!(told.into_iter().collect::<Vec<_>>(), ["alone", "beside", "still beside", "alone again"]);
    }
}
