//! Turns: how much of a connection's input is read before others have theirs.
//!
//! Connections with more input than a turn takes (*talkers*) share a round, and go on when the thread has polled its
//! sockets again. So connections with little input, and the replica with its peers, wait for one round at most, however
//! many talkers there are. [fault-model F52]
//! Knows nothing of: protocols, what is read.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Context;

/// Bytes that a thread's talkers read in one round: about a millisecond.
pub(crate) const ROUND_BYTES: usize = 512 << 10;
/// Bytes that a connection reads in one turn of its task, at most; and at least, however many talkers there are.
pub(crate) const TURN_BYTES_MAX: usize = 64 << 10;
pub(crate) const TURN_BYTES_MIN: usize = 4 << 10;

thread_local! {
    /// Talkers of this thread.
    pub(crate) static TALKERS: Cell<usize> = const { Cell::new(0) };
}

/// What one connection may take in a turn, of what all talkers may take in a round.
pub(crate) fn share(round: usize, least: usize, most: usize) -> usize {
    (round / TALKERS.get().max(1)).clamp(least, most)
}

/// Bytes that one connection may read in a turn.
pub(crate) fn bytes() -> usize {
    share(ROUND_BYTES, TURN_BYTES_MIN, TURN_BYTES_MAX)
}

/// Wakes the task when the thread has polled its sockets: new input, and tasks that were ready, go first.
pub(crate) fn wake_after_a_look(context: &mut Context<'_>) {
    let waiting = pin!(tokio::task::yield_now()).as_mut().poll(context);
    debug_assert!(waiting.is_pending(), "a yield waits once");
}

/// Whether a connection is one of its thread's talkers: there is more input than a turn takes.
#[derive(Debug, Default)]
pub(crate) struct Talker(AtomicBool);

impl Talker {
    pub(crate) fn set(&self, talks: bool) {
        match (self.0.swap(talks, Relaxed), talks) {
            (false, true) => TALKERS.set(TALKERS.get() + 1),
            (true, false) => TALKERS.set(TALKERS.get() - 1),
            _ => {}
        }
    }

    #[cfg(test)]
    pub(crate) fn talks(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        self.set(false);
    }
}
