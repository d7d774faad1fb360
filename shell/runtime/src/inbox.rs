//! What links bring in for the driver that lives on the same thread.
//!
//! Knows nothing of: sockets, what events mean.

use kattu_node::contract::Event;
use std::cell::{Cell, RefCell};
use tokio::sync::Notify;

/// Bytes that may wait for the driver; beyond it a link stops reading, and TCP tells the peer.
pub(crate) const INBOX_BYTES_MAX: usize = 64 << 20;

/// Events of peers, in the order in which they came.
#[derive(Default)]
pub(crate) struct Inbox {
    events: RefCell<Vec<Event>>,
    bytes: Cell<usize>,
    arrived: Notify,
    emptied: Notify,
}

impl Inbox {
    /// Adds one event that took `bytes` on its way here.
    pub(crate) fn push(&self, event: Event, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.events.borrow_mut().push(event);
        self.arrived.notify_one();
    }

    /// Lets the driver look, although no event has come.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Comes back when something has arrived.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Comes back when there is room for more.
    pub(crate) async fn room(&self) {
        while self.bytes.get() > INBOX_BYTES_MAX {
            self.emptied.notified().await;
        }
    }

    /// Moves everything into `events`.
    pub(crate) fn take(&self, events: &mut Vec<Event>) {
        events.append(&mut self.events.borrow_mut());
        if self.bytes.replace(0) > INBOX_BYTES_MAX {
            self.emptied.notify_waiters();
        }
    }
}
