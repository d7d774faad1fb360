//! Agenda: what happens next. The earliest first; ties by the place's number, then by the order in which they were entered.
//!
//! Knows nothing of: what an event does.

use crate::marking::Nanos;
use crate::net::Place;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

struct Item<E> {
    at: Nanos,
    /// Number of the place in the upper 8 bits, then the order of entry.
    order: u64,
    event: E,
}

impl<E> PartialEq for Item<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Item<E> {}

impl<E> PartialOrd for Item<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Item<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Events in the order of their time.
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Reverse<Item<E>>>,
    entered: u64,
}

impl<E> Agenda<E> {
    pub fn new() -> Agenda<E> {
        Agenda { heap: BinaryHeap::new(), entered: 0 }
    }

    /// An event at this time, whose token is in this place.
    pub fn enter(&mut self, at: Nanos, place: Place, event: E) {
        self.entered += 1;
        let order = (place as u64) << 56 | self.entered;
        self.heap.push(Reverse(Item { at, order, event }));
    }

    /// The next event with its time.
    pub fn next(&mut self) -> Option<(Nanos, E)> {
        self.heap.pop().map(|Reverse(item)| (item.at, item.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_decides_then_the_place_then_the_order_of_entry() {
        let mut agenda = Agenda::new();
        agenda.enter(5, Place::NetAck, 'e');
        agenda.enter(5, Place::Parsed, 'c');
        agenda.enter(5, Place::Parsed, 'd');
        agenda.enter(5, Place::ReqPool, 'b');
        agenda.enter(4, Place::CpuF, 'a');
        let order: String = std::iter::from_fn(|| agenda.next()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcde");
    }
}
