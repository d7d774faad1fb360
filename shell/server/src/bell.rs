//! The waker that a connection's task gives to the library, which tells the library's wake-ups from all others.
//!
//! The library wakes its task whenever a call queues a part of a response: nearly always in a turn of that very task,
//! which sends it anyway, and would have one more turn for nothing. And a turn that begins because calls are answered
//! has nothing to ask the library for.
//!
//! Rules: 1. Outside a turn a ring wakes the task.
//!        2. In a turn it is remembered. The task takes it when it polls the library; a ring that is not taken by the end
//!           of the turn begins another.
//!        3. It may ring on any thread. A connection's task stays on one thread today, and nothing here rests on that.
//! Knows nothing of: connections, the library.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Wake};

/// The bell of one task.
#[derive(Debug)]
pub(crate) struct Bell {
    is_rung: AtomicBool,
    is_turn: AtomicBool,
    task: AtomicWaker,
}

impl Bell {
    /// A bell that has rung: the library has never been polled.
    pub fn rung() -> Arc<Bell> {
        let task = AtomicWaker::new();
        Arc::new(Bell { is_rung: AtomicBool::new(true), is_turn: AtomicBool::new(false), task })
    }

    /// Begins a turn of this task.
    pub fn turn_begins(&self, context: &Context<'_>) {
        self.task.register(context.waker());
        self.is_turn.store(true, SeqCst);
    }

    /// Whether it has rung since it was last asked.
    pub fn take(&self) -> bool {
        self.is_rung.swap(false, SeqCst)
    }

    /// Ends the turn.
    pub fn turn_ends(&self) {
        // A ring on another thread sees the end of the turn, or is seen here.
        self.is_turn.store(false, SeqCst);
        if self.is_rung.load(SeqCst) {
            self.task.wake();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_rung.store(true, SeqCst);
        if !self.is_turn.load(SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::task::Waker;

    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_ring_in_a_turn_begins_another_only_if_it_is_not_taken() {
        let (bell, task) = (Bell::rung(), Arc::<Task>::default());
        let (ring, waker) = (Waker::from(Arc::clone(&bell)), Waker::from(Arc::clone(&task)));
        let context = Context::from_waker(&waker);
        let woken = || task.0.swap(0, SeqCst);

        bell.turn_begins(&context);
        assert!(bell.take(), "the first turn polls the library");
        assert!(!bell.take());
        ring.wake_by_ref();
        assert!(bell.take());
        bell.turn_ends();
        assert_eq!(woken(), 0, "it was taken");

        ring.wake_by_ref();
        ring.wake_by_ref();
        assert_eq!(woken(), 1, "outside a turn, and once is enough");
        bell.turn_begins(&context);
        assert!(bell.take());
        ring.wake_by_ref();
        assert_eq!(woken(), 0, "not yet");
        bell.turn_ends();
        assert_eq!(woken(), 1);
        bell.turn_begins(&context);
        assert!(bell.take(), "and it is still known");
        bell.turn_ends();
        assert_eq!(woken(), 0);
    }
}
