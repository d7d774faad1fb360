//! The driver's inbox: events of peers, from links on the same thread.
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
    /// Adds one event that brought `bytes` along. Its own size counts, too: peers can cause many small ones.
    pub(crate) fn push(&self, event: Event, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes + size_of::<Event>());
        self.events.borrow_mut().push(event);
        self.arrived.notify_one();
    }

    /// Lets the driver look, although no event has come.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Returns when something has arrived.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Whether nothing has arrived.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.borrow().is_empty()
    }

    /// Returns when there is room for more.
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

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::NodeId;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn events_without_bytes_fill_it_too() {
        let inbox = Inbox::default();
        let is_room = || pin!(inbox.room()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let fits = INBOX_BYTES_MAX / size_of::<Event>();
        for _ in 0..fits {
            inbox.push(Event::Knows(NodeId(2), 1), 0);
        }
        assert!(is_room());
        inbox.push(Event::Knows(NodeId(2), 1), 0);
        assert!(!is_room());
        let mut events = Vec::new();
        inbox.take(&mut events);
        assert_eq!(events.len(), fits + 1);
        assert!(is_room());
    }
}
