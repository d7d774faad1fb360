//! Queue: future events, by time.
//!
//! Events of one moment happen in the order in which they were planned, so a storm has exactly one course.
//! Knows nothing of: what events mean.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Planned<T> {
    at: u64,
    number: u64,
    what: T,
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Planned<T> {}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Planned<T> {
    /// The heap gives its greatest event: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// All planned events.
pub struct Queue<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<T> Queue<T> {
    /// Plans an event.
    pub fn plan(&mut self, at: u64, what: T) {
        self.planned += 1;
        self.heap.push(Planned { at, number: self.planned, what });
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|planned| planned.at)
    }

    /// The next event.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|planned| (planned.at, planned.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_by_time_and_then_as_planned() {
        let mut queue = Queue::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (9, 'e'), (1, 'b')] {
            queue.plan(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcde");
    }
}
