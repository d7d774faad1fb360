//! Outcomes of many requests of one caller, in one place: a request costs no memory of its own on its way back.
//!
//! ```text
//!   replica ──deliver(key, outcome)──▶ │ … │ ──collect──▶ the caller's task, woken once for many
//! ```
//! The caller may go before all outcomes are there, and leave behind an object that accounts for its requests: it is
//! dropped when the replica is done with the last of them. [`crate::asked`] does the same for one request.
//! Knows nothing of: what is asked, what is left behind.

use crate::asked::Behind;
use kattu_node::contract::Outcome;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

#[derive(Default)]
struct State {
    arrived: Vec<Arrived>,
    waker: Option<Waker>,
    behind: Option<Behind>,
}

/// The outcome of the request with this key; `None` if the replica ended without one.
pub type Arrived = (u64, Option<Outcome>);

/// The place for the outcomes of one caller, who shares it with the replica.
#[derive(Default)]
pub struct Mailbox {
    state: Mutex<State>,
    is_left: AtomicBool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mailbox").field("is_left", &self.is_left).finish_non_exhaustive()
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the outcome of a request. The caller is woken with the state unlocked.
    pub fn deliver(&self, key: u64, outcome: Option<Outcome>) {
        if self.is_left() {
            return;
        }
        let mut state = self.lock();
        state.arrived.push((key, outcome));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what has arrived into an empty list, and wakes this caller when more arrives after an empty one.
    pub fn collect(&self, into: &mut Vec<Arrived>, waker: &Waker) {
        debug_assert!(into.is_empty(), "{} outcomes are not taken yet", into.len());
        let mut state = self.lock();
        if state.arrived.is_empty() {
            if state.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                state.waker = Some(waker.clone());
            }
            return;
        }
        std::mem::swap(&mut state.arrived, into);
    }

    /// Gives the memory of earlier outcomes back, where none waits.
    pub fn rest(&self) {
        let mut state = self.lock();
        if state.arrived.is_empty() {
            state.arrived = Vec::new();
        }
    }

    /// The caller goes. `behind` is dropped when the replica is done with all of its requests.
    pub fn leave(&self, behind: Behind) {
        self.is_left.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        let arrived = std::mem::take(&mut state.arrived);
        state.waker = None;
        state.behind = Some(behind);
        drop(state);
        drop(arrived);
    }

    /// Whether the caller has gone.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_node::contract::Refusal;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    const REFUSED: Outcome = Outcome::Refused(Refusal::TooManyRequests);

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn outcomes_come_in_their_order_and_wake_their_caller_once() {
        let (mailbox, woken, mut got) = (Mailbox::default(), Arc::new(Woken::default()), Vec::new());
        let waker = Waker::from(Arc::clone(&woken));
        mailbox.collect(&mut got, &waker);
        assert!(got.is_empty());
        for key in [7, 3] {
            mailbox.deliver(key, Some(REFUSED));
        }
        mailbox.deliver(5, None);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "once for many");
        mailbox.collect(&mut got, &waker);
        assert_eq!(got, [(7, Some(REFUSED)), (3, Some(REFUSED)), (5, None)]);
        got.clear();
        mailbox.deliver(8, None);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "a caller that has not looked since is awake");
        mailbox.collect(&mut got, &waker);
        assert_eq!(got, [(8, None)]);
        got.clear();
        mailbox.collect(&mut got, &waker);
        mailbox.deliver(9, None);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_is_left_behind_is_kept_until_the_replica_is_done_with_the_last_request() {
        let mailbox = Arc::new(Mailbox::default());
        let of_the_replica = [Arc::clone(&mailbox), Arc::clone(&mailbox)];
        let thing = Arc::new(());
        mailbox.deliver(1, Some(REFUSED));
        mailbox.leave(Box::new(Arc::clone(&thing)));
        drop(mailbox);
        for (left, mailbox) in of_the_replica.into_iter().rev().enumerate() {
            assert!(mailbox.is_left() && Arc::strong_count(&thing) == 2, "after {left}");
            mailbox.deliver(2, None);
        }
        assert_eq!(Arc::strong_count(&thing), 1);
    }
}
