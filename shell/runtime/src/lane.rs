//! One outgoing connection to one peer, with its queue.
//!
//! The driver pushes frames and flushes at once, so that bytes leave before the thread goes to the disk. What the socket
//! does not take stays queued and leaves when it becomes writable. A full queue drops: the protocol retries.
//! [fault-model NT4, NT6]
//! Knows nothing of: what frames say, the node.

use crate::metrics::Metrics;
use crate::outgoing::{Outgoing, how_it_ended};
use kattu_member::lanes;
use kattu_node::contract::PeerMessage;
use kattu_raft::LinkEnd;
use kattu_wire::{Frame, FrameWriter, Order, PROTOCOL_STREAMS};
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, IoSlice};
use std::rc::Rc;
use tokio::sync::Notify;

/// Pieces handed to the kernel in one call (its own limit is 1024).
const PIECES_PER_CALL: usize = 256;

/// One lane. Up while it has a socket.
#[derive(Default)]
pub(crate) struct Lane {
    socket: RefCell<Option<Rc<Outgoing>>>,
    queue: RefCell<Queue>,
    /// Wakes the connection's task: there is something unsent, or the socket has failed.
    kick: Notify,
    failed: Cell<Option<LinkEnd>>,
    /// Opened when there is something to send: one message waits for that.
    on_demand: bool,
    wanted: Notify,
    /// Messages queued so far.
    pushed: Cell<u64>,
    /// The protocol version of the connection. A message that waits for one is a piece of a snapshot, which is the same
    /// in all versions.
    protocol: Cell<u16>,
    opened: Notify,
}

/// Two writers take turns, so that a lane under constant load does not keep what it has sent.
#[derive(Default)]
struct Queue {
    /// On its way into the socket.
    sending: FrameWriter,
    /// Bytes of it that have left.
    sent: usize,
    /// What came meanwhile.
    next: FrameWriter,
}

impl Queue {
    fn unsent(&self) -> usize {
        self.sending.len() - self.sent + self.next.len()
    }

    fn clear(&mut self) {
        self.sending.clear();
        self.next.clear();
        self.sent = 0;
    }

    /// Makes `sending` the writer with something unsent; `false` when there is none.
    fn turn(&mut self) -> bool {
        if self.sent == self.sending.len() {
            self.sending.clear();
            self.sent = 0;
            std::mem::swap(&mut self.sending, &mut self.next);
        }
        !self.sending.is_empty()
    }
}

impl Lane {
    /// A lane that is opened when there is something to send.
    pub(crate) fn on_demand() -> Lane {
        Lane { on_demand: true, ..Lane::default() }
    }

    /// Returns when there is something to send and the lane is not up.
    pub(crate) async fn wanted(&self) {
        while self.unsent_bytes() == 0 {
            self.wanted.notified().await;
        }
    }

    /// Returns when the lane is up in this protocol version, or a newer one.
    pub(crate) async fn speaks(&self, protocol: u16) {
        while !self.is_up() || self.protocol.get() < protocol {
            self.opened.notified().await;
        }
    }

    /// Messages queued so far.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed.get()
    }

    /// Whether messages can leave at all.
    pub(crate) fn is_up(&self) -> bool {
        self.socket.borrow().is_some()
    }

    /// Bytes waiting for the socket.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.queue.borrow().unsent()
    }

    /// Takes over a new connection after its handshake.
    pub(crate) fn open(&self, socket: Rc<Outgoing>, protocol: u16) {
        self.protocol.set(protocol);
        if !self.on_demand {
            self.queue.borrow_mut().clear();
        }
        self.failed.set(None);
        *self.socket.borrow_mut() = Some(socket);
        self.opened.notify_waiters();
    }

    /// Gives the connection up; what was unsent is lost.
    pub(crate) fn close(&self) {
        *self.socket.borrow_mut() = None;
        self.queue.borrow_mut().clear();
    }

    /// Queues one message, with its place if it has one, or drops it: `false` when the lane is down or its queue is full.
    pub(crate) fn push(&self, message: &PeerMessage, order: Option<Order>) -> bool {
        let mut queue = self.queue.borrow_mut();
        let (unsent, bytes_max) = (queue.unsent() as u64, lanes::BYTES_MAX as u64);
        if !lanes::takes(self.is_up(), self.on_demand, unsent == 0, unsent, bytes_max) {
            return false;
        }
        if !self.is_up() {
            self.wanted.notify_one();
        }
        self.pushed.set(self.pushed.get() + 1);
        let codec = crate::codec().speaking(self.protocol.get());
        if let Some(order) = order.filter(|_| PROTOCOL_STREAMS <= self.protocol.get()) {
            codec.encode(&Frame::Order(order), &mut queue.next);
        }
        codec.encode_message(message, &mut queue.next);
        true
    }

    /// Queues one frame of the handshake, which is short, on a lane that is up.
    pub(crate) fn push_frame(&self, frame: &Frame) {
        if self.is_up() {
            crate::codec().encode(frame, &mut self.queue.borrow_mut().next);
        }
    }

    /// Sends as much as the socket takes now.
    pub(crate) fn flush(&self, metrics: &Metrics) {
        let socket = self.socket.borrow().clone();
        let Some(socket) = socket else { return };
        let mut queue = self.queue.borrow_mut();
        if let Err(error) = socket.send_rest()
            && error.kind() != ErrorKind::WouldBlock
        {
            return self.fail(how_it_ended(&error));
        }
        while queue.turn() {
            let mut slices = [IoSlice::new(&[]); PIECES_PER_CALL];
            let mut count = 0;
            for (slot, piece) in slices.iter_mut().zip(queue.sending.pieces_from(queue.sent)) {
                *slot = IoSlice::new(piece);
                count += 1;
            }
            match socket.try_write_vectored(&slices[..count]) {
                Ok(0) => return self.fail(LinkEnd::Otherwise),
                Ok(written) => {
                    metrics.peer_sent_bytes.add(written as u64);
                    queue.sent += written;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.kick.notify_one(),
                Err(error) => return self.fail(how_it_ended(&error)),
            }
        }
        if socket.has_unsent() {
            self.kick.notify_one();
        }
    }

    fn fail(&self, end: LinkEnd) {
        self.failed.set(Some(end));
        self.kick.notify_one();
    }

    /// Runs while the connection lives: sends what was held back, and returns how it ended.
    pub(crate) async fn run(&self, socket: &Outgoing, metrics: &Metrics) -> LinkEnd {
        loop {
            if let Some(end) = self.failed.get() {
                return end;
            }
            let has_unsent = self.unsent_bytes() > 0 || socket.has_unsent();
            tokio::select! {
                ready = socket.readable() => {
                    if let Err(error) = ready {
                        return how_it_ended(&error);
                    }
                    if let Some(end) = socket.has_ended() {
                        return end;
                    }
                }
                ready = socket.writable(), if has_unsent => {
                    if let Err(error) = ready {
                        return how_it_ended(&error);
                    }
                    self.flush(metrics);
                }
                () = self.kick.notified() => {}
            }
        }
    }
}
