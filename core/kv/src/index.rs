//! Index: keys in order, each with a value, and how many of them count.
//!
//! A B+-tree. Each branch knows the *weight* below each child, so "how many live keys are there between a and b?" costs
//! O(log n), however many there are.
//!
//! Nodes are shared: cloning an index copies one pointer, and whoever changes a shared node copies that node first. A
//! clone is therefore the whole index as of one moment, readable while the original goes on.
//!
//! A node that falls below a quarter is joined with a neighbour if both fit into three quarters of one; so a tree that
//! shrinks gives its memory back, and one that wavers does not split and join all the time.
//! Knows nothing of: revisions, what a value is.

use crate::api::Key;
use crate::keys::Keys;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

#[cfg(test)]
mod tests;

/// Most entries of a leaf, and children of a branch.
const NODE_MAX: usize = 64;
/// Below this a node looks for a neighbour to join.
const NODE_LOW: usize = NODE_MAX / 4;
/// Nodes join if they have no more than this together.
const JOIN_MAX: usize = NODE_MAX * 3 / 4;

/// How much an entry counts.
pub(crate) trait Weigh {
    fn weight(&self) -> u64;
}

/// An ordered map with ranks.
#[derive(Clone, Debug)]
pub(crate) struct Index<V> {
    root: Node<V>,
}

#[derive(Clone, Debug)]
enum Node<V> {
    Leaf(Arc<Leaf<V>>),
    Branch(Arc<Branch<V>>),
}

#[derive(Clone, Debug)]
struct Leaf<V> {
    keys: Keys,
    values: Vec<V>,
}

/// `bounds[i]` is ≤ every key below `children[i + 1]` and > every key below `children[i]`.
#[derive(Clone, Debug)]
struct Branch<V> {
    bounds: Keys,
    weights: Vec<u64>,
    children: Vec<Node<V>>,
}

/// What a change below left behind for the node above.
struct Changed<V, R> {
    result: R,
    /// To be added to the weight, modulo 2^64.
    weight: u64,
    /// The node has split: the bound between the halves, and the right half.
    split: Option<(Key, Node<V>)>,
}

impl<V: Weigh + Clone + Default> Index<V> {
    pub(crate) fn new() -> Index<V> {
        Index { root: Node::Leaf(Arc::new(Leaf { keys: Keys::default(), values: Vec::new() })) }
    }

    /// The weight of all entries.
    pub(crate) fn weight(&self) -> u64 {
        self.root.weight()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<(&Key, &V)> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Branch(branch) => node = &branch.children[branch.child_of(key)],
                Node::Leaf(leaf) => {
                    let i = leaf.keys.search(key).ok()?;
                    return Some((leaf.keys.get(i), &leaf.values[i]));
                }
            }
        }
    }

    /// Changes the value of a key, which begins as the default if the key is new.
    pub(crate) fn upsert<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> R {
        let changed = self.root.upsert(key, true, change);
        if let Some((bound, right)) = changed.split {
            let left = core::mem::replace(&mut self.root, right.clone());
            let mut bounds = Keys::default();
            bounds.insert(0, bound);
            let weights = [left.weight(), right.weight()].to_vec();
            self.root = Node::Branch(Arc::new(Branch { bounds, weights, children: [left, right].into() }));
        }
        changed.result
    }

    /// Changes the value of a key if there is one.
    pub(crate) fn update<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> Option<R> {
        self.root.update(key, change).map(|changed| changed.0)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let removed = self.root.remove(key);
        while let Node::Branch(branch) = &self.root {
            let [only] = &*branch.children else { break };
            self.root = only.clone();
        }
        removed
    }

    /// The weight of all entries with keys below this one.
    pub(crate) fn weight_below(&self, key: &[u8]) -> u64 {
        let mut node = &self.root;
        let mut below = 0;
        loop {
            match node {
                Node::Branch(branch) => {
                    let i = branch.child_of(key);
                    below += branch.weights[..i].iter().sum::<u64>();
                    node = &branch.children[i];
                }
                Node::Leaf(leaf) => {
                    let i = leaf.keys.search(key).unwrap_or_else(|i| i);
                    return below + leaf.values[..i].iter().map(V::weight).sum::<u64>();
                }
            }
        }
    }

    /// The weight of the entries with `start` ≤ key < `end`.
    pub(crate) fn weight_between(&self, start: &[u8], end: Option<&[u8]>) -> u64 {
        let below_end = end.map_or_else(|| self.weight(), |end| self.weight_below(end));
        below_end.saturating_sub(self.weight_below(start))
    }

    /// Visits the entries with `start` ≤ key < `end` in ascending order, until told to stop; `heavy_only` leaves out
    /// whole subtrees without weight (single entries without weight may still be visited).
    pub(crate) fn walk<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
        heavy_only: bool,
        mut visit: impl FnMut(&'a Key, &'a V) -> ControlFlow<()>,
    ) {
        let _ = self.root.walk(Some(start), end, heavy_only, &mut visit);
    }

    /// As [`Index::walk`], in descending order.
    pub(crate) fn walk_back<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
        heavy_only: bool,
        mut visit: impl FnMut(&'a Key, &'a V) -> ControlFlow<()>,
    ) {
        let _ = self.root.walk_back(Some(start), end, heavy_only, &mut visit);
    }
}

impl<V: Weigh + Clone + Default> Node<V> {
    fn weight(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.values.iter().map(V::weight).sum(),
            Node::Branch(branch) => branch.weights.iter().sum(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.values.len(),
            Node::Branch(branch) => branch.children.len(),
        }
    }

    /// `rightmost`: nothing in the whole tree is right of this node, so keys that come in ascending order end here, and
    /// a split leaves the left half full.
    fn upsert<R>(
        &mut self,
        key: &[u8],
        rightmost: bool,
        change: impl FnOnce(&Key, &mut V) -> R,
    ) -> Changed<V, R> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).upsert(key, rightmost, change),
            Node::Branch(branch) => Arc::make_mut(branch).upsert(key, rightmost, change),
        }
    }

    /// The result and what to add to the weight, modulo 2^64.
    fn update<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> Option<(R, u64)> {
        match self {
            Node::Leaf(leaf) => {
                let i = leaf.keys.search(key).ok()?;
                let leaf = Arc::make_mut(leaf);
                let before = leaf.values[i].weight();
                let result = change(leaf.keys.get(i), &mut leaf.values[i]);
                Some((result, leaf.values[i].weight().wrapping_sub(before)))
            }
            Node::Branch(branch) => {
                let i = branch.child_of(key);
                let branch = Arc::make_mut(branch);
                let (result, weight) = branch.children[i].update(key, change)?;
                branch.weights[i] = branch.weights[i].wrapping_add(weight);
                Some((result, weight))
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        match self {
            Node::Leaf(leaf) => {
                let i = leaf.keys.search(key).ok()?;
                let leaf = Arc::make_mut(leaf);
                leaf.keys.remove(i);
                Some(leaf.values.remove(i))
            }
            Node::Branch(branch) => {
                let i = branch.child_of(key);
                let branch = Arc::make_mut(branch);
                let removed = branch.children[i].remove(key)?;
                branch.weights[i] -= removed.weight();
                if branch.children[i].len() < NODE_LOW {
                    branch.join_around(i);
                }
                Some(removed)
            }
        }
    }

    /// Takes over everything of a node of the same height that is wholly above this one.
    fn append(&mut self, bound: Key, right: Node<V>) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                let left = Arc::make_mut(left);
                let right = Arc::unwrap_or_clone(right);
                left.keys.append(right.keys);
                left.values.extend(right.values);
            }
            (Node::Branch(left), Node::Branch(right)) => {
                let left = Arc::make_mut(left);
                let right = Arc::unwrap_or_clone(right);
                left.bounds.insert(left.bounds.len(), bound);
                left.bounds.append(right.bounds);
                left.weights.extend(right.weights);
                left.children.extend(right.children);
            }
            _ => unreachable!("neighbours have the same height"),
        }
    }

    /// `start` is `None` where everything here is known to be above it; `end` likewise.
    fn walk<'a>(
        &'a self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        heavy_only: bool,
        visit: &mut impl FnMut(&'a Key, &'a V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Node::Leaf(leaf) => {
                for i in leaf.between(start, end) {
                    visit(leaf.keys.get(i), &leaf.values[i])?;
                }
            }
            Node::Branch(branch) => {
                let (first, last) = branch.between(start, end);
                for i in first..=last {
                    if !heavy_only || branch.weights[i] > 0 {
                        let (start, end) = (start.filter(|_| i == first), end.filter(|_| i == last));
                        branch.children[i].walk(start, end, heavy_only, visit)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn walk_back<'a>(
        &'a self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        heavy_only: bool,
        visit: &mut impl FnMut(&'a Key, &'a V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Node::Leaf(leaf) => {
                for i in leaf.between(start, end).rev() {
                    visit(leaf.keys.get(i), &leaf.values[i])?;
                }
            }
            Node::Branch(branch) => {
                let (first, last) = branch.between(start, end);
                for i in (first..=last).rev() {
                    if !heavy_only || branch.weights[i] > 0 {
                        let (start, end) = (start.filter(|_| i == first), end.filter(|_| i == last));
                        branch.children[i].walk_back(start, end, heavy_only, visit)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl<V: Weigh + Clone + Default> Leaf<V> {
    fn upsert<R>(
        &mut self,
        key: &[u8],
        rightmost: bool,
        change: impl FnOnce(&Key, &mut V) -> R,
    ) -> Changed<V, R> {
        match self.keys.search(key) {
            Ok(i) => {
                let before = self.values[i].weight();
                let result = change(self.keys.get(i), &mut self.values[i]);
                Changed { result, weight: self.values[i].weight().wrapping_sub(before), split: None }
            }
            Err(i) => {
                let mut value = V::default();
                let key = Key::from(key);
                let result = change(&key, &mut value);
                let weight = value.weight();
                self.keys.insert(i, key);
                self.values.insert(i, value);
                let split = (self.values.len() > NODE_MAX).then(|| {
                    let appended = rightmost && i + 1 == self.values.len();
                    self.split(if appended { i } else { self.values.len() / 2 })
                });
                Changed { result, weight, split }
            }
        }
    }

    fn split(&mut self, at: usize) -> (Key, Node<V>) {
        let right = Leaf { keys: self.keys.split_off(at), values: self.values.split_off(at) };
        (right.keys.get(0).clone(), Node::Leaf(Arc::new(right)))
    }

    /// Positions of the keys with `start` ≤ key < `end`.
    fn between(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> core::ops::Range<usize> {
        let first = start.map_or(0, |start| self.keys.search(start).unwrap_or_else(|i| i));
        let last = end.map_or(self.values.len(), |end| self.keys.search(end).unwrap_or_else(|i| i));
        first..last
    }
}

impl<V: Weigh + Clone + Default> Branch<V> {
    /// The child below which a key is, if it is anywhere.
    fn child_of(&self, key: &[u8]) -> usize {
        match self.bounds.search(key) {
            Ok(i) => i + 1,
            Err(i) => i,
        }
    }

    /// First and last child that may hold keys with `start` ≤ key < `end`.
    fn between(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> (usize, usize) {
        let first = start.map_or(0, |start| self.child_of(start));
        let last = end.map_or(self.children.len() - 1, |end| self.child_of(end));
        (first, last)
    }

    fn upsert<R>(
        &mut self,
        key: &[u8],
        rightmost: bool,
        change: impl FnOnce(&Key, &mut V) -> R,
    ) -> Changed<V, R> {
        let i = self.child_of(key);
        let is_last = i + 1 == self.children.len();
        let below = self.children[i].upsert(key, rightmost && is_last, change);
        self.weights[i] = self.weights[i].wrapping_add(below.weight);
        let Changed { result, weight, split } = below;
        let split = split.and_then(|(bound, right)| {
            let right_weight = right.weight();
            self.weights[i] -= right_weight;
            self.bounds.insert(i, bound);
            self.weights.insert(i + 1, right_weight);
            self.children.insert(i + 1, right);
            (self.children.len() > NODE_MAX).then(|| {
                let appended = rightmost && is_last;
                self.split(if appended { self.children.len() - 2 } else { self.children.len() / 2 })
            })
        });
        Changed { result, weight, split }
    }

    /// The right half begins with child `at`; both halves have at least one bound.
    fn split(&mut self, at: usize) -> (Key, Node<V>) {
        let bounds = self.bounds.split_off(at);
        let bound = self.bounds.remove(at - 1);
        let right =
            Branch { bounds, weights: self.weights.split_off(at), children: self.children.split_off(at) };
        (bound, Node::Branch(Arc::new(right)))
    }

    /// Joins child `i` with a neighbour if they fit; a child that is empty goes in any case.
    fn join_around(&mut self, i: usize) {
        let fits = |left: usize| {
            left + 1 < self.children.len()
                && self.children[left].len() + self.children[left + 1].len() <= JOIN_MAX
        };
        let left = if fits(i) {
            i
        } else if i > 0 && fits(i - 1) {
            i - 1
        } else if self.children[i].len() == 0 && self.children.len() > 1 {
            // Joining with nothing always fits.
            i.saturating_sub(1)
        } else {
            return;
        };
        let bound = self.bounds.remove(left);
        let right = self.children.remove(left + 1);
        let right_weight = self.weights.remove(left + 1);
        self.weights[left] += right_weight;
        self.children[left].append(bound, right);
    }
}
