//! Outbox: requests on their way into the next frame of a connection.
//!
//! Knows nothing of: sockets, answers.

use crate::native::answer::Why;
use crate::native::ask::Ask;
use crate::native::listener::Listener;
use crate::native::under_way::UnderWay;
use kattu_native::frame::FrameWriter;
use kattu_native::handshake::Welcome;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

/// Most bytes of one frame that this side makes: a larger one takes longer to arrive whole, and gains nothing.
const FRAME_BYTES: usize = 1 << 20;

/// What callers and the task share: held while a request is written, or taken.
#[derive(Debug)]
pub(crate) struct Outbox(Mutex<Out>);

/// Requests on their way.
#[derive(Debug)]
pub(crate) struct Out {
    /// The next frame, and the names of its requests.
    pub(crate) frame: FrameWriter,
    pub(crate) names: Vec<u64>,
    /// A frame is closed at this size.
    frame_bytes_max: usize,
    /// In the next frame, or sent, and without an answer.
    pub(crate) under_way: UnderWay<Listener>,
    requests_max: usize,
    /// Beyond the limits so far, by ascending number.
    pub(crate) waiting: VecDeque<Waiting>,
    /// The number of the last that had to wait.
    last_number: u64,
    /// The next frame has the first requests after a time without any.
    pub(crate) begins: bool,
    /// Wakes the task, if it waits.
    pub(crate) waker: Option<Waker>,
    /// The connection is over: nothing is sent any more.
    pub(crate) ended: Option<Why>,
}

/// A request that is not in a frame yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// 0 for a ping, which goes before all others.
    number: u64,
    ask: Ask<'static>,
    pub(crate) listener: Listener,
}

/// Where a request waits; it may have been sent since.
#[derive(Debug)]
pub(crate) struct Place {
    outbox: Weak<Outbox>,
    number: u64,
}

impl Place {
    /// Takes the request back, unless it is in a frame already: it is never sent then. Returns whether it was taken back.
    pub(crate) fn withdraw(&self) -> bool {
        self.outbox.upgrade().is_some_and(|outbox| outbox.lock().withdraw(self.number))
    }
}

impl Out {
    fn new(welcome: &Welcome) -> Out {
        Out {
            frame: FrameWriter::new(crc32c::crc32c_append),
            names: Vec::new(),
            frame_bytes_max: (welcome.frame_bytes_max as usize).min(FRAME_BYTES),
            under_way: UnderWay::new(),
            requests_max: welcome.requests_max as usize,
            waiting: VecDeque::new(),
            last_number: 0,
            begins: false,
            waker: None,
            ended: None,
        }
    }

    /// Sends a request that the member does not refuse for its size, behind all before it. Returns the number under which it
    /// waits, if it does.
    pub(crate) fn add(&mut self, ask: Ask<'_>, listener: Listener) -> Option<u64> {
        if self.waiting.is_empty() && self.has_room_for(&ask, &listener) {
            self.write(ask, listener);
            return None;
        }
        self.last_number += 1;
        let number = self.last_number;
        self.waiting.push_back(Waiting { number, ask: ask.into_owned(), listener });
        Some(number)
    }

    /// Sends a ping of the connection itself, before all that wait.
    pub(crate) fn ping(&mut self) {
        self.waiting.push_front(Waiting { number: 0, ask: Ask::Ping, listener: Listener::Nowhere });
    }

    fn withdraw(&mut self, number: u64) -> bool {
        let place = self.waiting.binary_search_by_key(&number, |waiting| waiting.number);
        place.is_ok_and(|place| self.waiting.remove(place).is_some())
    }

    /// Whether it may be in the next frame.
    fn has_room_for(&self, ask: &Ask<'_>, listener: &Listener) -> bool {
        // One place is kept for a ping, unless there is only one.
        let is_ping = matches!(listener, Listener::Nowhere);
        let most = if is_ping { self.requests_max } else { (self.requests_max - 1).max(1) };
        let bytes = self.frame.len() + ask.message_bytes();
        self.under_way.len() < most && (self.frame.is_empty() || bytes <= self.frame_bytes_max)
    }

    fn write(&mut self, ask: Ask<'_>, listener: Listener) {
        self.begins |= self.under_way.len() == 0;
        let name = self.under_way.hold(listener);
        ask.write(name, &mut self.frame);
        self.names.push(name);
    }

    /// Of those that wait, what the limits allow by now.
    pub(crate) fn fill(&mut self) {
        while let Some(first) = self.waiting.pop_front() {
            if !self.has_room_for(&first.ask, &first.listener) {
                self.waiting.push_front(first);
                break;
            }
            self.write(first.ask, first.listener);
        }
    }
}

impl Outbox {
    pub(crate) fn new(welcome: &Welcome) -> Outbox {
        Outbox(Mutex::new(Out::new(welcome)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a request that waits under this number.
    pub(crate) fn place(self: &Arc<Outbox>, number: u64) -> Place {
        Place { outbox: Arc::downgrade(self), number }
    }

    /// Returns why it has ended.
    pub(crate) fn end(&self, why: Why) -> Why {
        let (why, waker) = {
            let mut out = self.lock();
            (out.ended.get_or_insert(why).clone(), out.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        why
    }
}
