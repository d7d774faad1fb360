//! One request and its outcome: the caller on one side, the replica on the other.
//!
//! ```text
//!   Waits ──Reply::send──────────────▶ Told ──poll──▶ Over
//!     │ └──Reply dropped─────────────▶ Over
//!     └────Asked::leave, or dropped──▶ Left ──Reply::send, or dropped──▶ Over, and what was left behind is dropped
//! ```
//! The caller may go before the outcome is there, and leave behind an object that accounts for the request: the request
//! stays in the replica's queues and log, whether its caller waits or not, and its room must not go to another one.
//! Knows nothing of: what is asked, what is left behind.

use crate::mailbox::Mailbox;
use kattu_node::contract::{Doubt, Outcome, Refusal};
use kattu_raft::Instant;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Anything that must last as long as a request does.
pub type Behind = Box<dyn Send>;

enum State {
    /// The caller waits, and this wakes it.
    Waits(Option<Waker>),
    /// The outcome, not taken yet.
    Told(Outcome),
    /// The caller has gone.
    Left(#[allow(dead_code)] Behind), // it is kept, and never read
    /// Neither side has anything for the other.
    Over,
}

#[derive(Debug)]
struct Slot(Mutex<State>);

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            State::Waits(_) => "waits",
            State::Told(_) => "told",
            State::Left(_) => "left",
            State::Over => "over",
        })
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replica's side: answered once, or dropped.
#[derive(Debug)]
pub(crate) struct Reply {
    caller: Option<Caller>,
    /// When the request was received, in nanoseconds, if it may be followed. [`kattu_member::stages`]
    received: Option<NonZeroU64>,
}

#[derive(Debug)]
enum Caller {
    /// It waits for this one request.
    OfOne(Arc<Slot>),
    /// It waits for many, this one under its key.
    OfMany(Arc<Mailbox>, u64),
}

impl Reply {
    /// For a caller with a mailbox.
    pub(crate) fn to(mailbox: &Arc<Mailbox>, key: u64) -> Reply {
        Reply { caller: Some(Caller::OfMany(Arc::clone(mailbox), key)), received: None }
    }

    /// The request was received now, and may be followed.
    pub(crate) fn stamp(&mut self, now: Instant) {
        self.received = NonZeroU64::new(now.0);
    }

    /// When the request was received, if it may be followed.
    pub(crate) fn received(&self) -> Option<Instant> {
        self.received.map(|nanos| Instant(nanos.get()))
    }

    /// Whether the caller has gone.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.caller {
            None => false,
            Some(Caller::OfOne(slot)) => matches!(*slot.lock(), State::Left(_)),
            Some(Caller::OfMany(mailbox, _)) => mailbox.is_left(),
        }
    }

    /// Sends the outcome. If the caller has gone, drops what it left behind.
    pub(crate) fn send(mut self, outcome: Outcome) {
        self.settle(Some(outcome));
    }

    /// Tells a caller with a mailbox something that is not the outcome; another caller waits for the outcome alone.
    pub(crate) fn tell(&self, news: Outcome) {
        if let Some(Caller::OfMany(mailbox, key)) = &self.caller {
            mailbox.deliver(*key, Some(news));
        }
    }

    /// The caller learns the outcome in another way.
    pub(crate) fn forget(mut self) {
        self.caller = None;
    }

    fn settle(&mut self, outcome: Option<Outcome>) {
        match self.caller.take() {
            None => {}
            Some(Caller::OfOne(slot)) => settle(&slot, outcome.map_or(State::Over, State::Told)),
            Some(Caller::OfMany(mailbox, key)) => mailbox.deliver(key, outcome),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.settle(None);
    }
}

/// The replica is done with the request. The caller is woken, and things are dropped, with the slot unlocked.
fn settle(slot: &Slot, state: State) {
    let mut now = slot.lock();
    let state = if matches!(*now, State::Left(_)) { State::Over } else { state };
    let before = std::mem::replace(&mut *now, state);
    drop(now);
    if let State::Waits(Some(waker)) = before {
        waker.wake();
    }
}

/// A request under way: resolves to its outcome. Dropping it abandons the answer, and the request if the replica has
/// not begun it.
#[derive(Debug)]
#[must_use = "the outcome is not awaited"]
pub struct Asked {
    slot: Option<Arc<Slot>>,
    is_write: bool,
}

impl Asked {
    /// A request that waits for its outcome, and the sender of that outcome.
    pub(crate) fn new(is_write: bool) -> (Reply, Asked) {
        let slot = Arc::new(Slot(Mutex::new(State::Waits(None))));
        let caller = Some(Caller::OfOne(Arc::clone(&slot)));
        (Reply { caller, received: None }, Asked { slot: Some(slot), is_write })
    }

    /// A request whose outcome is known.
    pub(crate) fn told(outcome: Outcome) -> Asked {
        Asked { slot: Some(Arc::new(Slot(Mutex::new(State::Told(outcome))))), is_write: false }
    }

    /// The caller goes. `behind` is dropped when the replica has an outcome, or drops the request because it had not
    /// begun it; at once if there is an outcome already.
    pub fn leave(mut self, behind: Behind) {
        self.go(behind);
    }

    fn go(&mut self, behind: Behind) {
        let Some(slot) = self.slot.take() else { return };
        let mut state = slot.lock();
        let before = match &*state {
            State::Waits(_) => std::mem::replace(&mut *state, State::Left(behind)),
            _ => std::mem::replace(&mut *state, State::Over),
        };
        drop(state);
        drop(before);
    }

    /// The outcome if the replica ended without one.
    fn nothing(&self) -> Outcome {
        match self.is_write {
            true => Outcome::Unknown(Doubt::Stopping),
            false => Outcome::Refused(Refusal::Stopping),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.go(Box::new(()));
    }
}

impl Future for Asked {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let slot = self.slot.as_ref().expect("it is not polled after its end");
        let mut state = slot.lock();
        if let State::Waits(waker) = &mut *state {
            if waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        let told = std::mem::replace(&mut *state, State::Over);
        drop(state);
        self.slot = None;
        Poll::Ready(match told {
            State::Told(outcome) => outcome,
            _ => self.nothing(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;

    const REFUSED: Outcome = Outcome::Refused(Refusal::TooManyRequests);

    fn poll(asked: &mut Asked) -> Poll<Outcome> {
        Pin::new(asked).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Something to leave behind, and a handle that shows whether it still exists.
    fn behind() -> (Behind, Weak<()>) {
        let thing = Arc::new(());
        let seen = Arc::downgrade(&thing);
        (Box::new(thing), seen)
    }

    #[test]
    fn an_outcome_is_told_once_and_a_replica_that_ends_leaves_no_one_waiting() {
        let (reply, mut asked) = Asked::new(true);
        assert!(poll(&mut asked).is_pending() && !reply.is_closed());
        reply.send(REFUSED);
        assert_eq!(poll(&mut asked), Poll::Ready(REFUSED));
        for (is_write, nothing) in
            [(true, Outcome::Unknown(Doubt::Stopping)), (false, Outcome::Refused(Refusal::Stopping))]
        {
            let (reply, mut asked) = Asked::new(is_write);
            drop(reply);
            assert_eq!(poll(&mut asked), Poll::Ready(nothing));
        }
        assert_eq!(poll(&mut Asked::told(REFUSED)), Poll::Ready(REFUSED));
    }

    #[test]
    fn what_is_left_behind_is_kept_until_the_replica_has_an_outcome_or_drops_the_request() {
        for is_answered in [true, false] {
            let (reply, mut asked) = Asked::new(true);
            assert!(poll(&mut asked).is_pending());
            let (behind, seen) = behind();
            asked.leave(behind);
            assert!(reply.is_closed() && seen.upgrade().is_some());
            if is_answered {
                reply.send(REFUSED)
            } else {
                drop(reply)
            }
            assert!(seen.upgrade().is_none());
        }
    }

    #[test]
    fn what_is_left_behind_of_a_request_with_an_outcome_is_not_kept() {
        let (reply, asked) = Asked::new(true);
        reply.send(REFUSED);
        let (behind, seen) = behind();
        asked.leave(behind);
        assert!(seen.upgrade().is_none());
        let (reply, asked) = Asked::new(true);
        drop(asked);
        assert!(reply.is_closed(), "a dropped caller has gone, too");
        reply.send(REFUSED);
    }

    #[test]
    fn a_waiter_on_another_thread_is_woken() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for is_answered in [true, false] {
            let (reply, mut asked) = Asked::new(false);
            assert!(poll(&mut asked).is_pending());
            let thread =
                std::thread::spawn(move || if is_answered { reply.send(REFUSED) } else { drop(reply) });
            let told = runtime.block_on(asked);
            assert_eq!(told == REFUSED, is_answered);
            thread.join().expect("it ends");
        }
    }
}
