//! Hot streams under way: their windows, the parts of their responses that wait, and whether their clients have reset
//! them.
//!
//! Rules: 1. Parts of one response are sent in their order. Responses do not wait for each other.
//!        2. A stream whose parts wait is in one of three places: it is ready; it waits for the connection's window; or it
//!           waits for its own, and is not looked at before that has grown.
//! Knows nothing of: calls, frames.

use crate::hot::part::Part;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
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
    parts: RefCell<VecDeque<Part>>,
    /// Bytes of data in them.
    bytes: Cell<usize>,
    /// It is ready, or waits for the connection's window.
    is_queued: Cell<bool>,
}

impl Stream {
    /// Wakes the call.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether a part of its response waits.
    pub fn has_parts(&self) -> bool {
        !self.parts.borrow().is_empty()
    }

    fn wake_if_short(&self) {
        if self.is_short.get() {
            self.wake();
        }
    }
}

/// What is done with the next stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All of its parts were sent.
    Sent,
    /// … and its response ends with them.
    Ended,
    /// It waits for its own window.
    Stuck,
    /// It waits for the connection's.
    Thirsty,
    /// There is no room for more output.
    Full,
    /// More of it may be sent.
    Again,
}

/// All of one connection, from the whole request to the last byte of the response.
#[derive(Debug, Default)]
pub struct Streams {
    all: BTreeMap<u32, Rc<Stream>>,
    ready: VecDeque<u32>,
    thirsty: VecDeque<u32>,
    /// Bytes of data that wait for nothing but their turn and the connection's window.
    queued_bytes: usize,
    /// Some of them do not wait any more, though they were not sent: others may have their room.
    is_freed: bool,
}

impl Streams {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn has(&self, stream: u32) -> bool {
        self.all.contains_key(&stream)
    }

    pub fn get(&self, stream: u32) -> Option<&Rc<Stream>> {
        self.all.get(&stream)
    }

    pub fn begin(&mut self, stream: u32) {
        self.all.insert(stream, Rc::default());
    }

    /// Whether some stream may send. `is_open`: the connection's window is.
    pub fn has_ready(&self, is_open: bool) -> bool {
        !self.ready.is_empty() || is_open && !self.thirsty.is_empty()
    }

    /// Bytes of data that will take from the connection's window as soon as there is some.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Adds a part of a response; of a stream that has ended it is dropped.
    pub fn push(&mut self, number: u32, part: Part) {
        let Some(stream) = self.all.get(&number) else { return };
        let left = part.left();
        let is_first = !stream.has_parts();
        stream.parts.borrow_mut().push_back(part);
        stream.bytes.update(|bytes| bytes + left);
        if stream.is_queued.get() {
            self.queued_bytes += left;
        } else if is_first {
            self.queue(number);
        }
    }

    fn queue(&mut self, number: u32) {
        let Some(stream) = self.all.get(&number) else { return };
        if stream.has_parts() && !stream.is_queued.replace(true) {
            self.queued_bytes += stream.bytes.get();
            self.ready.push_back(number);
        }
    }

    /// Sends parts of one stream after the other with `send`, which gets the first part of the stream, and says how many
    /// bytes of its data it sent, and how it went on. `is_open`: the connection's window is.
    pub fn send(
        &mut self,
        mut send: impl FnMut(u32, &Stream, &mut Part) -> (usize, Next),
        is_open: impl Fn() -> bool,
    ) {
        loop {
            let number = match self.ready.pop_front() {
                Some(number) => number,
                None if is_open() => match self.thirsty.pop_front() {
                    Some(number) => number,
                    None => return,
                },
                None => return,
            };
            let Some(stream) = self.all.get(&number).map(Rc::clone) else { continue };
            let next = loop {
                let mut parts = stream.parts.borrow_mut();
                let Some(part) = parts.front_mut() else { break Next::Sent };
                let (len, next) = send(number, &stream, part);
                self.queued_bytes -= len;
                stream.bytes.update(|bytes| bytes - len);
                match next {
                    Next::Sent => drop(parts.pop_front()),
                    Next::Again => {}
                    other => break other,
                }
            };
            match next {
                Next::Sent | Next::Again => {
                    stream.is_queued.set(false);
                    stream.wake_if_short();
                }
                Next::Ended => drop(self.end(number)),
                Next::Stuck => {
                    stream.is_queued.set(false);
                    self.queued_bytes -= stream.bytes.get();
                    self.is_freed = true;
                }
                Next::Thirsty => self.thirsty.push_back(number),
                Next::Full => {
                    self.ready.push_front(number);
                    return;
                }
            }
        }
    }

    fn end(&mut self, number: u32) -> Option<Rc<Stream>> {
        let stream = self.all.remove(&number)?;
        if stream.is_queued.take() {
            self.queued_bytes -= stream.bytes.get();
            self.is_freed = true;
        }
        stream.parts.borrow_mut().clear();
        Some(stream)
    }

    /// The client gives a window more. False if that is more than a window may be.
    #[must_use]
    pub fn gain(&mut self, number: u32, bytes: u32, of_stream: i64) -> bool {
        let Some(stream) = self.all.get(&number) else { return true };
        stream.gained.update(|gained| gained + i64::from(bytes));
        stream.wake();
        let is_valid = of_stream + stream.gained.get() <= i64::from(i32::MAX);
        self.queue(number);
        is_valid
    }

    /// The client, or this side, resets it.
    pub fn reset(&mut self, number: u32) {
        if let Some(stream) = self.end(number) {
            stream.is_reset.set(true);
            stream.wake();
        }
    }

    /// The window of all streams has changed.
    pub fn all_gain(&mut self) {
        let numbers: Vec<u32> = self.all.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.queue(number));
        self.wake_all();
    }

    /// Wakes those that may have the room of others.
    pub fn share(&mut self) {
        if std::mem::take(&mut self.is_freed) {
            self.wake_all();
        }
    }

    /// The window of the connection has changed.
    pub fn wake_all(&self) {
        self.all.values().for_each(|stream| stream.wake_if_short());
    }
}
