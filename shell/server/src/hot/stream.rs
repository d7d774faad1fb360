//! Hot streams under way: their windows, and whether their clients have reset them.
//!
//! Knows nothing of: calls, frames.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;

/// One stream, shared by its call and its connection.
#[derive(Debug, Default)]
pub struct Stream {
    /// What its window has more, or less, than a new one.
    pub gained: Cell<i64>,
    /// The client has reset it, or the connection has given it up.
    pub is_reset: Cell<bool>,
    /// Its call waits for a window.
    pub is_short: Cell<bool>,
    /// Of its call.
    pub waker: RefCell<Option<Waker>>,
}

impl Stream {
    /// Wakes the call.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// All of one connection, from the whole request to the last byte of the response.
#[derive(Debug, Default)]
pub struct Streams(BTreeMap<u32, Rc<Stream>>);

impl Streams {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, stream: u32) -> bool {
        self.0.contains_key(&stream)
    }

    pub fn get(&self, stream: u32) -> Option<&Rc<Stream>> {
        self.0.get(&stream)
    }

    pub fn begin(&mut self, stream: u32) {
        self.0.insert(stream, Rc::default());
    }

    pub fn end(&mut self, stream: u32) {
        self.0.remove(&stream);
    }

    /// The client gives a window more. False if that is more than a window may be.
    #[must_use]
    pub fn gain(&self, stream: u32, bytes: u32, of_stream: i64) -> bool {
        let Some(stream) = self.0.get(&stream) else { return true };
        stream.gained.update(|gained| gained + i64::from(bytes));
        stream.wake();
        of_stream + stream.gained.get() <= i64::from(i32::MAX)
    }

    /// The client resets it.
    pub fn reset(&mut self, stream: u32) {
        if let Some(stream) = self.0.remove(&stream) {
            stream.is_reset.set(true);
            stream.wake();
        }
    }

    /// Windows have changed, or there is more room for output.
    pub fn wake_all(&self) {
        self.0.values().filter(|stream| stream.is_short.get()).for_each(|stream| stream.wake());
    }
}
