//! The clients that wait, by ticket.
//!
//! Tickets ascend and are mostly answered in order, so a ring indexed by ticket costs two moves per request and no
//! hashing.
//! Knows nothing of: requests, outcomes, how a client is answered.

use kattu_node::contract::Ticket;
use std::collections::VecDeque;

/// All clients that wait. Tickets count from 1: 0 is the replica's own.
#[derive(Debug)]
pub struct Waiting<C> {
    /// Ticket of the first slot.
    first: u64,
    slots: VecDeque<Option<C>>,
}

impl<C> Default for Waiting<C> {
    fn default() -> Waiting<C> {
        Waiting { first: 1, slots: VecDeque::new() }
    }
}

impl<C> Waiting<C> {
    /// Takes in one client; returns its ticket.
    pub fn enter(&mut self, client: C) -> Ticket {
        let ticket = Ticket(self.first + self.slots.len() as u64);
        self.slots.push_back(Some(client));
        ticket
    }

    /// Takes a client back under the ticket that it had. It waited elsewhere meanwhile.
    ///
    /// # Panics
    /// If there was no such ticket.
    pub fn put_back(&mut self, ticket: Ticket, client: C) {
        while ticket.0 < self.first {
            self.slots.push_front(None);
            self.first -= 1;
        }
        let at = usize::try_from(ticket.0 - self.first).unwrap_or(usize::MAX);
        let slot = self.slots.get_mut(at).expect("a ticket that was given");
        *slot = Some(client);
    }

    /// The client that waits for the ticket; each is returned once.
    pub fn take(&mut self, ticket: Ticket) -> Option<C> {
        let at = usize::try_from(ticket.0.checked_sub(self.first)?).ok()?;
        let client = self.slots.get_mut(at)?.take()?;
        while matches!(self.slots.front(), Some(None)) {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(client)
    }

    /// The client that waits for the ticket; it waits on.
    #[must_use]
    pub fn get(&self, ticket: Ticket) -> Option<&C> {
        let at = usize::try_from(ticket.0.checked_sub(self.first)?).ok()?;
        self.slots.get(at)?.as_ref()
    }

    /// Whether no client waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All clients that wait, in the order of their tickets; afterwards none does.
    pub fn drain(&mut self) -> impl Iterator<Item = C> {
        self.first += self.slots.len() as u64;
        std::mem::take(&mut self.slots).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ticket_is_answered_once_in_any_order() {
        let mut waiting = Waiting::default();
        let tickets: Vec<Ticket> = (0..5).map(|client| waiting.enter(client)).collect();
        assert_eq!(tickets[0], Ticket(1));
        for at in [2, 0, 4, 1, 3] {
            assert_eq!(waiting.take(tickets[at]), Some(at));
            assert_eq!(waiting.take(tickets[at]), None);
        }
        assert!(waiting.is_empty());
        assert_eq!(waiting.enter(5), Ticket(6));
        assert_eq!(waiting.take(Ticket(99)), None);
        assert_eq!(waiting.drain().collect::<Vec<_>>(), [5]);
        assert_eq!(waiting.enter(6), Ticket(7), "a ticket is never given twice");
        assert_eq!(waiting.enter(7), Ticket(8));
        assert_eq!((waiting.take(Ticket(7)), waiting.take(Ticket(8))), (Some(6), Some(7)));
        [Ticket(8), Ticket(5)].into_iter().for_each(|ticket| waiting.put_back(ticket, ticket.0 as usize));
        assert_eq!(waiting.enter(9), Ticket(9), "what comes back takes no new ticket's place");
        assert_eq!([5, 6, 7, 8, 9].map(|n| waiting.take(Ticket(n))), [Some(5), None, None, Some(8), Some(9)]);
        assert!(waiting.is_empty());
    }
}
