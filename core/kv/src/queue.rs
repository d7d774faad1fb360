//! Queue: a long queue whose copy shares nearly all with the original.
//!
//! Elements keep their numbers for ever; they enter at the back and leave at the front. The newest few are the *tail*,
//! stored in the queue itself. Older ones are in *leaves* of 64, which are in *branches* of 256 leaves. Both are
//! shared: copying a queue copies the tail and one pointer for every 16,384 elements, and a change of a shared leaf or
//! branch copies that one first. So every step after a copy is short, however long the queue is.
//!
//! ```text
//!             first                                                        tail_first           end
//!   branches   ├ branch ── 256 leaves ┼ branch ───────────── … ┼ branch ─────┤ tail ─────────────┤
//!   leaves     ├ leaf ┼ leaf ┼ … ┼ leaf ┼ leaf ┼ …                 ┼ leaf ────┤
//! ```
//!
//! Rule:  leaf `l` holds the numbers `64 * l .. 64 * (l + 1)` unless they are forgotten, branch `b` the leaves
//!        `256 * b .. 256 * (b + 1)`; so an element is found by arithmetic.
//! Knows nothing of: the meaning of its elements.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// A leaf has 2 to the power of this elements.
const LEAF_BITS: u32 = 6;
/// A branch has 2 to the power of this leaves.
const BRANCH_BITS: u32 = 8;
/// Elements per leaf.
const LEAF: usize = 1 << LEAF_BITS;
/// Leaves per branch.
const BRANCH: usize = 1 << BRANCH_BITS;

type Leaf<T> = VecDeque<T>;
type Branch<T> = VecDeque<Arc<Leaf<T>>>;

/// A queue of numbered elements.
#[derive(Clone, Debug)]
pub(crate) struct Queue<T> {
    /// Number of the first element of the tail.
    tail_first: u64,
    /// The newest elements, fewer than [`LEAF`].
    tail: VecDeque<T>,
    /// Everything before the tail; boxed, because most queues are short.
    trunk: Option<Box<Trunk<T>>>,
}

/// Invariant: neither the trunk nor any branch or leaf of it is empty.
#[derive(Clone, Debug)]
struct Trunk<T> {
    /// Number of the oldest element.
    first: u64,
    branches: VecDeque<Arc<Branch<T>>>,
}

impl<T: Clone> Queue<T> {
    /// An empty queue; the first element will have this number.
    pub(crate) fn starting_at(number: u64) -> Queue<T> {
        Queue { tail_first: number, tail: VecDeque::new(), trunk: None }
    }

    /// Number of the oldest element, or of the next one if there is none.
    pub(crate) fn first(&self) -> u64 {
        self.trunk.as_ref().map_or(self.tail_first, |trunk| trunk.first)
    }

    /// Number that the next element will have.
    pub(crate) fn end(&self) -> u64 {
        self.tail_first + self.tail.len() as u64
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        match number.checked_sub(self.tail_first) {
            Some(place) => self.tail.get(usize::try_from(place).ok()?),
            None => self.trunk.as_ref()?.get(number),
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match number.checked_sub(self.tail_first) {
            Some(place) => self.tail.get_mut(usize::try_from(place).ok()?),
            None => self.trunk.as_mut()?.get_mut(number),
        }
    }

    pub(crate) fn back(&self) -> Option<&T> {
        self.get(self.end().checked_sub(1)?)
    }

    /// The elements from a number on.
    pub(crate) fn from(&self, number: u64) -> impl Iterator<Item = &T> + Clone {
        (number.max(self.first())..self.end()).filter_map(|number| self.get(number))
    }

    pub(crate) fn push_back(&mut self, element: T) {
        self.tail.push_back(element);
        let end = self.end();
        if end.is_multiple_of(LEAF as u64) {
            let leaf = core::mem::replace(&mut self.tail, VecDeque::with_capacity(LEAF));
            let first = core::mem::replace(&mut self.tail_first, end);
            let trunk =
                self.trunk.get_or_insert_with(|| Box::new(Trunk { first, branches: VecDeque::new() }));
            trunk.push(first >> LEAF_BITS, leaf);
        }
    }

    pub(crate) fn pop_back(&mut self) -> Option<T> {
        if self.tail.is_empty() {
            self.tail = self.trunk.as_mut()?.pop_leaf();
            self.tail_first -= self.tail.len() as u64;
            self.drop_empty_trunk();
        }
        self.tail.pop_back()
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        match &mut self.trunk {
            Some(trunk) => {
                let popped = trunk.pop_front();
                self.drop_empty_trunk();
                popped
            }
            None => {
                let popped = self.tail.pop_front()?;
                self.tail_first += 1;
                Some(popped)
            }
        }
    }

    /// Removes the oldest element if it is as wanted.
    pub(crate) fn pop_front_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        self.get(self.first()).is_some_and(is_wanted).then(|| self.pop_front()).flatten()
    }

    /// Forgets all elements below a number, which must not be past the end.
    pub(crate) fn forget_below(&mut self, number: u64) {
        assert!(number <= self.end(), "forgetting up to {number} of a queue that ends at {}", self.end());
        while let Some(trunk) = &mut self.trunk
            && trunk.first < number
        {
            // A whole leaf is dropped at once, and is not copied for that if it is shared.
            if trunk.leaf_end() <= number {
                trunk.drop_leaf()
            } else {
                trunk.drop_some(number)
            }
            self.drop_empty_trunk();
        }
        let from_tail = number.saturating_sub(self.tail_first);
        self.tail.drain(..usize::try_from(from_tail).expect("elements in memory"));
        self.tail_first += from_tail;
    }

    /// Forgets the oldest branch of elements, and the tail with the last one: some 16,384 at once, of which no part that is
    /// shared is copied. Returns whether there are more.
    pub(crate) fn drop_branch(&mut self) -> bool {
        if let Some(trunk) = &mut self.trunk {
            trunk.branches.pop_front();
            trunk.first = ((trunk.first >> LEAF_BITS >> BRANCH_BITS) + 1) << BRANCH_BITS << LEAF_BITS;
            self.drop_empty_trunk();
        }
        if self.trunk.is_none() {
            self.tail_first = self.end();
            self.tail.clear();
        }
        self.first() < self.end()
    }

    fn drop_empty_trunk(&mut self) {
        if self.trunk.as_ref().is_some_and(|trunk| trunk.branches.is_empty()) {
            self.trunk = None;
        }
    }
}

impl<T: Clone> Trunk<T> {
    fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = |place: u64, first: u64| usize::try_from(place.checked_sub(first)?).ok();
        let leaf = number >> LEAF_BITS;
        let branch = leaf >> BRANCH_BITS;
        let (first, first_leaf) = (self.first, self.first >> LEAF_BITS);
        let leaves = Arc::make_mut(self.branches.get_mut(place(branch, first_leaf >> BRANCH_BITS)?)?);
        let leaf_of = Arc::make_mut(leaves.get_mut(place(leaf, first_leaf.max(branch << BRANCH_BITS))?)?);
        leaf_of.get_mut(place(number, first.max(leaf << LEAF_BITS))?)
    }

    fn get(&self, number: u64) -> Option<&T> {
        let place = |place: u64, first: u64| usize::try_from(place.checked_sub(first)?).ok();
        let leaf = number >> LEAF_BITS;
        let branch = leaf >> BRANCH_BITS;
        let first_leaf = self.first >> LEAF_BITS;
        let leaves = self.branches.get(place(branch, first_leaf >> BRANCH_BITS)?)?;
        let elements = leaves.get(place(leaf, first_leaf.max(branch << BRANCH_BITS))?)?;
        elements.get(place(number, self.first.max(leaf << LEAF_BITS))?)
    }

    /// Adds the leaf that follows the last one; `number` is its number.
    fn push(&mut self, number: u64, leaf: Leaf<T>) {
        let begins_branch = number.is_multiple_of(BRANCH as u64);
        match self.branches.back_mut().filter(|_| !begins_branch) {
            Some(branch) => Arc::make_mut(branch).push_back(Arc::new(leaf)),
            None => self.branches.push_back(Arc::new(VecDeque::from([Arc::new(leaf)]))),
        }
    }

    /// Removes and returns the last leaf.
    fn pop_leaf(&mut self) -> Leaf<T> {
        let branch = Arc::make_mut(self.branches.back_mut().expect("a trunk is not empty"));
        let leaf = branch.pop_back().expect("no branch is empty");
        if branch.is_empty() {
            self.branches.pop_back();
        }
        Arc::unwrap_or_clone(leaf)
    }

    /// The number after those of the first leaf.
    fn leaf_end(&self) -> u64 {
        ((self.first >> LEAF_BITS) + 1) << LEAF_BITS
    }

    fn pop_front(&mut self) -> Option<T> {
        let branch = Arc::make_mut(self.branches.front_mut()?);
        let leaf = Arc::make_mut(branch.front_mut()?);
        if leaf.len() > 1 {
            self.first += 1;
            return leaf.pop_front();
        }
        let popped = leaf.pop_front();
        self.drop_leaf();
        popped
    }

    /// Forgets the elements of the first leaf below a number; at least one remains.
    fn drop_some(&mut self, number: u64) {
        let Some(branch) = self.branches.front_mut() else { return };
        let Some(leaf) = Arc::make_mut(branch).front_mut() else { return };
        Arc::make_mut(leaf).drain(..(number - self.first) as usize);
        self.first = number;
    }

    /// Forgets the first leaf.
    fn drop_leaf(&mut self) {
        let Some(branch) = self.branches.front_mut() else { return };
        let branch = Arc::make_mut(branch);
        branch.pop_front();
        if branch.is_empty() {
            self.branches.pop_front();
        }
        self.first = self.leaf_end();
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the queue is a `VecDeque` with numbers, and a copy stays as it was. Method: random changes to both, in
    //! amounts that make and unmake leaves and branches.

    use super::*;
    use alloc::vec::Vec;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Change {
        Push(usize),
        PopBack(usize),
        PopFront(usize),
        /// Another element at this number of those that are there.
        Set(usize),
        Forget(usize),
        DropBranch,
        Copy,
    }

    fn change() -> impl Strategy<Value = Change> {
        let few_or_many = || prop_oneof![4 => 1..5usize, 4 => 1..200usize, 1 => 1..20_000usize];
        prop_oneof![
            4 => few_or_many().prop_map(Change::Push),
            2 => few_or_many().prop_map(Change::PopBack),
            2 => few_or_many().prop_map(Change::PopFront),
            2 => few_or_many().prop_map(Change::Set),
            2 => few_or_many().prop_map(Change::Forget),
            1 => Just(Change::DropBranch),
            2 => Just(Change::Copy),
        ]
    }

    /// The naive twin: all elements, and the number of the first.
    #[derive(Clone)]
    struct Naive(u64, VecDeque<u64>);

    fn compare(queue: &Queue<u64>, naive: &Naive) -> Result<(), TestCaseError> {
        let end = naive.0 + naive.1.len() as u64;
        prop_assert_eq!((queue.first(), queue.end()), (naive.0, end));
        prop_assert!(queue.from(0).eq(&naive.1));
        prop_assert_eq!(queue.back(), naive.1.back());
        prop_assert_eq!(queue.get(end), None);
        prop_assert_eq!(naive.0.checked_sub(1).and_then(|before| queue.get(before)), None);
        for part in [3, 2, 1] {
            let at = naive.0 + naive.1.len() as u64 / part;
            prop_assert!(queue.from(at).eq(naive.1.range((at - naive.0) as usize..)));
        }
        Ok(())
    }

    fn make(
        queue: &mut Queue<u64>,
        naive: &mut Naive,
        change: &Change,
        next: &mut u64,
    ) -> Result<(), TestCaseError> {
        match *change {
            Change::Push(times) => (0..times).for_each(|_| {
                *next += 3;
                queue.push_back(*next);
                naive.1.push_back(*next);
            }),
            Change::PopBack(times) => {
                for _ in 0..times {
                    prop_assert_eq!(queue.pop_back(), naive.1.pop_back());
                }
            }
            Change::PopFront(times) => {
                for _ in 0..times {
                    let popped = naive.1.pop_front();
                    naive.0 += u64::from(popped.is_some());
                    prop_assert_eq!(queue.pop_front(), popped);
                }
            }
            Change::Set(at) => {
                let at = at % naive.1.len().max(1);
                let (mut place, mut twin) = (queue.get_mut(naive.0 + at as u64), naive.1.get_mut(at));
                prop_assert_eq!(&place, &twin);
                place.iter_mut().for_each(|place| **place += 1);
                twin.iter_mut().for_each(|twin| **twin += 1);
            }
            Change::Forget(times) => {
                let times = times.min(naive.1.len());
                naive.1.drain(..times);
                naive.0 += times as u64;
                queue.forget_below(naive.0);
            }
            Change::DropBranch => {
                let end = naive.0 + naive.1.len() as u64;
                let next_branch = (naive.0 / (LEAF * BRANCH) as u64 + 1) * (LEAF * BRANCH) as u64;
                let first = if next_branch < end / LEAF as u64 * LEAF as u64 { next_branch } else { end };
                naive.1.drain(..(first - naive.0) as usize);
                naive.0 = first;
                prop_assert_eq!(queue.drop_branch(), first < end);
            }
            Change::Copy => {}
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn the_queue_is_a_deque_with_numbers_and_its_copies_stay_as_they_were(
            start in prop_oneof![Just(0u64), 0..100_000u64],
            changes in vec(change(), 1..40),
        ) {
            let (mut queue, mut naive, mut next) = (Queue::starting_at(start), Naive(start, VecDeque::new()), 0);
            let mut copies = Vec::new();
            for change in &changes {
                if matches!(change, Change::Copy) && copies.len() < 4 {
                    copies.push((queue.clone(), naive.clone()));
                }
                make(&mut queue, &mut naive, change, &mut next)?;
                compare(&queue, &naive)?;
            }
            for (mut queue, mut naive) in copies {
                compare(&queue, &naive)?;
                make(&mut queue, &mut naive, &Change::Push(100), &mut next)?;
                make(&mut queue, &mut naive, &Change::PopFront(50), &mut next)?;
                compare(&queue, &naive)?;
            }
        }
    }

    #[test]
    fn a_copy_of_a_million_elements_shares_all_but_a_few_pointers() {
        let mut queue = Queue::starting_at(0);
        (0..1_000_000u64).for_each(|n| queue.push_back(n));
        let copy = queue.clone();
        let branches = &copy.trunk.as_ref().expect("far more than a tail").branches;
        assert!(branches.len() + copy.tail.len() <= 62 + LEAF, "{} pointers copied", branches.len());
        queue.push_back(1_000_000);
        queue.pop_front();
        let own = &queue.trunk.as_ref().expect("far more than a tail").branches;
        let shared = own.iter().zip(branches).filter(|(own, other)| Arc::ptr_eq(own, other)).count();
        assert_eq!(shared, branches.len() - 1, "only the branch that was changed is copied");
        assert_eq!((copy.first(), copy.end()), (0, 1_000_000));
    }
}
