//! The clients that wait, by ticket.
//!
//! Tickets ascend and are mostly answered in order, so a ring indexed by ticket costs two moves per request and no
//! hashing.
//! Knows nothing of: requests, outcomes.

use crate::asked::Reply;
use kattu_node::contract::Ticket;
use std::collections::VecDeque;

/// All clients that wait. Tickets count from 1: 0 is the replica's own.
pub(crate) struct Waiting {
    /// Ticket of the first slot.
    first: u64,
    slots: VecDeque<Option<Reply>>,
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting { first: 1, slots: VecDeque::new() }
    }

    /// Takes in one client; returns its ticket.
    pub(crate) fn enter(&mut self, reply: Reply) -> Ticket {
        let ticket = Ticket(self.first + self.slots.len() as u64);
        self.slots.push_back(Some(reply));
        ticket
    }

    /// The client that waits for the ticket; each is returned once.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Reply> {
        let at = usize::try_from(ticket.0.checked_sub(self.first)?).ok()?;
        let reply = self.slots.get_mut(at)?.take()?;
        while matches!(self.slots.front(), Some(None)) {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::Asked;

    #[test]
    fn every_ticket_is_answered_once_in_any_order() {
        let mut waiting = Waiting::new();
        let tickets: Vec<Ticket> = (0..5).map(|_| waiting.enter(Asked::new(false).0)).collect();
        assert_eq!(tickets[0], Ticket(1));
        for at in [2, 0, 4, 1, 3] {
            assert!(waiting.take(tickets[at]).is_some());
            assert!(waiting.take(tickets[at]).is_none());
        }
        assert!(waiting.slots.is_empty());
        assert_eq!(waiting.enter(Asked::new(false).0), Ticket(6));
        assert!(waiting.take(Ticket(99)).is_none());
    }
}
