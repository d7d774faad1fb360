//! Responses that are a head and nothing else, until the socket has taken them.
//!
//! The library keeps such a response for as long as the client does not read, and does not report when it has been
//! sent. So the call's hold stays with its stream until a head for that stream goes out. Other responses are held by
//! their bodies ([`crate::body::Piece`]), which are sent after their heads.
//!
//! In:    streams with such responses; the heads of frames that the socket has taken.
//! Out:   when a stream's response has been sent.
//! Knows nothing of: frames beyond their heads; resets, which the waiting call sees itself.

use crate::budget::{Hold, Waiting};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The waiting responses of one connection; shared by its calls and its socket.
#[derive(Debug, Default)]
pub struct Unsent(RefCell<BTreeMap<u32, Entry>>);

#[derive(Debug)]
struct Entry {
    waiting: Waiting,
    waker: Option<Waker>,
}

impl Unsent {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// From now on the response of this stream waits, held by `hold`.
    pub fn add(self: &Rc<Self>, stream: u32, hold: Hold) -> QueueSlot {
        self.0.borrow_mut().insert(stream, Entry { waiting: Waiting::new(hold), waker: None });
        QueueSlot { unsent: Rc::clone(self), stream }
    }

    /// A head of so many bytes for this stream has been sent.
    pub fn left(&self, stream: u32, bytes: usize) {
        let Some(entry) = self.0.borrow_mut().remove(&stream) else { return };
        entry.waiting.goes_on(bytes as u64);
        if let Some(waker) = entry.waker {
            waker.wake();
        }
    }
}

/// A response's place among those that wait; dropping this removes it.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    unsent: Rc<Unsent>,
    stream: u32,
}

impl QueueSlot {
    /// Ready when the response has been sent.
    pub(crate) fn poll_left(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.unsent.0.borrow_mut().get_mut(&self.stream) {
            None => Poll::Ready(()),
            Some(entry) => {
                entry.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.unsent.0.borrow_mut().remove(&self.stream);
    }
}
