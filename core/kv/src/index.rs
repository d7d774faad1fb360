//! Index: keys in order, each with a value and a weight.
//!
//! A B+-tree. Each branch stores the *weight* below each child, so the number of live keys between a and b costs
//! O(log n), however many there are.
//!
//! Nodes are shared: cloning an index copies one pointer, and changing a shared node copies that node first. A clone is
//! therefore the whole index as of one moment, readable while the original changes.
//!
//! A node that falls below a quarter is joined with a neighbour if both fit into three quarters of one. So a shrinking
//! tree releases memory, and a tree whose size fluctuates does not split and join all the time.
//! Knows nothing of: revisions, the meaning of a value.

use crate::api::Key;
use crate::run::{Look, RUN_MAX, Run};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

#[cfg(test)]
mod tests;

/// Below this many entries a node is joined with a neighbour.
const NODE_LOW: usize = RUN_MAX / 4;
/// Nodes are joined if they have at most this many entries together.
const JOIN_MAX: usize = RUN_MAX * 3 / 4;

/// The weight of an entry.
pub(crate) trait Weigh {
    fn weight(&self) -> u64;
}

/// An ordered map with ranks.
#[derive(Clone, Debug)]
pub(crate) struct Index<V> {
    root: Node<V>,
    /// Number of entries, those without weight included.
    entries: u64,
}

/// The key of each child is ≤ every key below it and > every key below the child before. The key of the first child is
/// only known to be below the next child's.
#[derive(Clone, Debug)]
enum Node<V> {
    Leaf(Arc<Run<V>>),
    Branch(Arc<Run<Child<V>>>),
}

#[derive(Clone, Debug)]
struct Child<V> {
    weight: u64,
    node: Node<V>,
}

/// What the node above needs to know of a change below it.
struct Changed<V, R> {
    result: R,
    /// To add to the weight, modulo 2^64.
    weight: u64,
    /// The right half and its key, if the node has split.
    split: Option<(Key, Child<V>)>,
    /// The entry did not exist before.
    is_new: bool,
}

impl<V: Weigh + Clone + Default> Index<V> {
    pub(crate) fn new() -> Index<V> {
        Index { root: Node::Leaf(Arc::default()), entries: 0 }
    }

    /// The number of entries, those without weight included.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// The weight of all entries.
    pub(crate) fn weight(&self) -> u64 {
        self.root.weight()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<(&Key, &V)> {
        self.get_by(key, Look::Boldly).or_else(|| self.get_by(key, Look::Carefully))
    }

    fn get_by(&self, key: &[u8], look: Look) -> Option<(&Key, &V)> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Branch(branch) => node = &branch.get(branch.find_floor(key, look)).node,
                Node::Leaf(leaf) => {
                    let i = leaf.find(key, look)?;
                    return Some((leaf.key(i), leaf.get(i)));
                }
            }
        }
    }

    /// Changes the value of a key; a new key begins with the default.
    pub(crate) fn upsert<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> R {
        let change = match self.root.update(key, Look::Boldly, change) {
            Ok((result, _)) => return result,
            Err(change) => change,
        };
        let changed = self.root.upsert(key, true, change);
        self.entries += u64::from(changed.is_new);
        if let Some((bound, right)) = changed.split {
            let left = core::mem::replace(&mut self.root, Node::Leaf(Arc::default()));
            let mut branch = Run::default();
            branch.insert(0, left.first_key(), Child { weight: left.weight(), node: left });
            branch.insert(1, bound, right);
            self.root = Node::Branch(Arc::new(branch));
        }
        changed.result
    }

    /// Changes the value of a key if the key exists.
    pub(crate) fn update<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> Option<R> {
        let updated = self.root.update(key, Look::Boldly, change);
        let updated = updated.or_else(|change| self.root.update(key, Look::Carefully, change));
        updated.ok().map(|(result, _)| result)
    }

    /// Changes the values of the entries with `start` ≤ key < `end` in ascending order, until `change` breaks. Skips
    /// whole leaves and subtrees without weight, which are then not copied if they are shared.
    pub(crate) fn change_from(
        &mut self,
        start: &[u8],
        end: Option<&[u8]>,
        mut change: impl FnMut(&Key, &mut V) -> ControlFlow<()>,
    ) {
        let _ = self.root.change_from(Some(start), end, &mut change);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let removed = self.root.remove(key);
        self.entries -= u64::from(removed.is_some());
        while let Node::Branch(branch) = &self.root {
            let [(_, only)] = branch.entries() else { break };
            self.root = only.node.clone();
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
                    let i = child_of(branch, key);
                    below += branch.entries()[..i].iter().map(|(_, child)| child.weight).sum::<u64>();
                    node = &branch.get(i).node;
                }
                Node::Leaf(leaf) => {
                    let i = place_of(leaf, key);
                    return below + leaf.entries()[..i].iter().map(|(_, value)| value.weight()).sum::<u64>();
                }
            }
        }
    }

    /// The weight of the entries with `start` ≤ key < `end`.
    pub(crate) fn weight_between(&self, start: &[u8], end: Option<&[u8]>) -> u64 {
        let below_end = end.map_or_else(|| self.weight(), |end| self.weight_below(end));
        below_end.saturating_sub(self.weight_below(start))
    }

    /// Visits the entries with `start` ≤ key < `end` in ascending order, until `visit` breaks; `heavy_only` skips whole
    /// subtrees without weight (single entries without weight may still be visited).
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

/// Entries per node of a new index: about as many as most nodes have in an index that grew.
const NODE_NEW: usize = RUN_MAX * 3 / 4;

/// Builds an index from keys in ascending order.
///
/// Leaves are made from left to right, then each level above in one go.
#[derive(Debug)]
pub(crate) struct Builder<V> {
    /// The entries of the last leaves, which are made at the end: the very last must not be too small.
    entries: Vec<(Key, V)>,
    leaves: Vec<(Key, Child<V>)>,
    pushed: u64,
}

impl<V> Default for Builder<V> {
    fn default() -> Builder<V> {
        Builder { entries: Vec::new(), leaves: Vec::new(), pushed: 0 }
    }
}

impl<V: Weigh + Clone + Default> Builder<V> {
    /// Adds a key, which must be above all keys before it.
    pub(crate) fn push(&mut self, key: Key, value: V) {
        if self.entries.len() == 2 * NODE_NEW {
            let last = self.entries.split_off(NODE_NEW);
            let entries = core::mem::replace(&mut self.entries, last);
            self.leaves.push(leaf_child(entries));
        }
        self.entries.push((key, value));
        self.pushed += 1;
    }

    pub(crate) fn finish(mut self) -> Index<V> {
        if self.entries.len() > RUN_MAX {
            let last = self.entries.split_off(self.entries.len() / 2);
            self.leaves.push(leaf_child(core::mem::replace(&mut self.entries, last)));
        }
        self.leaves.push(leaf_child(self.entries));
        let mut level = self.leaves;
        while level.len() > 1 {
            let nodes = level.len().div_ceil(NODE_NEW);
            let (least, larger) = (level.len() / nodes, level.len() % nodes);
            let mut children = level.into_iter();
            level = (0..nodes)
                .map(|i| {
                    let children: Vec<_> = children.by_ref().take(least + usize::from(i < larger)).collect();
                    let bound = children[0].0.clone();
                    let node = Node::Branch(Arc::new(Run::of(children)));
                    (bound, Child { weight: node.weight(), node })
                })
                .collect();
        }
        let root = level.pop().map_or_else(|| Node::Leaf(Arc::default()), |(_, child)| child.node);
        Index { root, entries: self.pushed }
    }
}

/// A leaf with its bound; the bound of an empty leaf is never used.
fn leaf_child<V: Weigh + Clone + Default>(entries: Vec<(Key, V)>) -> (Key, Child<V>) {
    let bound = entries.first().map(|(key, _)| key.clone()).unwrap_or_default();
    let node = Node::Leaf(Arc::new(Run::of(entries)));
    (bound, Child { weight: node.weight(), node })
}

/// The leaves of an index from left to right. Each is released once it has been passed, so that changes of an index
/// that shares it need not copy it any more.
#[derive(Debug)]
pub(crate) struct Leaves<V> {
    /// Nodes still to come: on each level those right of the path, the nearest level last.
    levels: Vec<alloc::vec::IntoIter<Node<V>>>,
}

impl<V: Weigh + Clone + Default> Index<V> {
    pub(crate) fn into_leaves(self) -> Leaves<V> {
        Leaves { levels: Vec::from([Vec::from([self.root]).into_iter()]) }
    }
}

impl<V> Iterator for Leaves<V> {
    type Item = Arc<Run<V>>;

    fn next(&mut self) -> Option<Arc<Run<V>>> {
        loop {
            match self.levels.last_mut()?.next() {
                Some(Node::Leaf(leaf)) => return Some(leaf),
                Some(Node::Branch(branch)) => {
                    let children: Vec<Node<V>> = match Arc::try_unwrap(branch) {
                        Ok(own) => own.into_entries().into_iter().map(|(_, child)| child.node).collect(),
                        Err(shared) => shared.entries().iter().map(|(_, child)| child.node.share()).collect(),
                    };
                    self.levels.push(children.into_iter());
                }
                None => drop(self.levels.pop()),
            }
        }
    }
}

impl<V> Node<V> {
    fn share(&self) -> Node<V> {
        match self {
            Node::Leaf(leaf) => Node::Leaf(leaf.clone()),
            Node::Branch(branch) => Node::Branch(branch.clone()),
        }
    }
}

/// The child below which a key is, if the key exists.
fn child_of<V>(branch: &Run<Child<V>>, key: &[u8]) -> usize {
    branch.find_floor(key, Look::Carefully)
}

/// Where a key is in a leaf, or would be inserted.
fn place_of<V>(leaf: &Run<V>, key: &[u8]) -> usize {
    leaf.search(key).unwrap_or_else(|i| i)
}

/// Splits a node that has become too large. Ascending keys would leave every left half half empty for ever, so after an
/// append at the very end of the index only the last entry moves.
fn split_full<T>(run: &mut Run<T>, appended: bool) -> Option<Run<T>> {
    let at = if appended { RUN_MAX } else { run.len() / 2 };
    (run.len() > RUN_MAX).then(|| run.split_off(at))
}

impl<V: Weigh + Clone + Default> Node<V> {
    fn weight(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.entries().iter().map(|(_, value)| value.weight()).sum(),
            Node::Branch(branch) => branch.entries().iter().map(|(_, child)| child.weight).sum(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Branch(branch) => branch.len(),
        }
    }

    fn first_key(&self) -> Key {
        match self {
            Node::Leaf(leaf) => leaf.key(0).clone(),
            Node::Branch(branch) => branch.key(0).clone(),
        }
    }

    /// `rightmost`: no node of the whole index is right of this one.
    fn upsert<R>(
        &mut self,
        key: &[u8],
        rightmost: bool,
        change: impl FnOnce(&Key, &mut V) -> R,
    ) -> Changed<V, R> {
        match self {
            Node::Leaf(leaf) => upsert_leaf(Arc::make_mut(leaf), key, rightmost, change),
            Node::Branch(branch) => {
                let branch = Arc::make_mut(branch);
                let i = child_of(branch, key);
                let is_last = i + 1 == branch.len();
                let child = branch.get_mut(i);
                let Changed { result, weight, split, is_new } =
                    child.node.upsert(key, rightmost && is_last, change);
                if weight != 0 {
                    child.weight = child.weight.wrapping_add(weight);
                }
                if let Some((_, right)) = &split {
                    child.weight -= right.weight;
                }
                let split = split.and_then(|(bound, right)| {
                    if i == 0 {
                        // The whole right half may be below the former first key.
                        let first = branch.get(0).node.first_key();
                        branch.replace_first(first);
                    }
                    branch.insert(i + 1, bound, right);
                    let right = split_full(branch, rightmost && is_last)?;
                    let bound = right.key(0).clone();
                    let node = Node::Branch(Arc::new(right));
                    Some((bound, Child { weight: node.weight(), node }))
                });
                Changed { result, weight, split, is_new }
            }
        }
    }

    /// The result and the number to add to the weight, modulo 2^64; or `change` itself if the key is not found.
    fn update<R, F: FnOnce(&Key, &mut V) -> R>(
        &mut self,
        key: &[u8],
        look: Look,
        change: F,
    ) -> Result<(R, u64), F> {
        match self {
            Node::Leaf(leaf) => match leaf.find(key, look) {
                Some(i) => Ok(change_entry(Arc::make_mut(leaf), i, change)),
                None => Err(change),
            },
            Node::Branch(branch) => {
                let i = branch.find_floor(key, look);
                let child = Arc::make_mut(branch).get_mut(i);
                let (result, weight) = child.node.update(key, look, change)?;
                child.weight = child.weight.wrapping_add(weight);
                Ok((result, weight))
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        match self {
            Node::Leaf(leaf) => {
                let i = leaf.search(key).ok()?;
                let (_, value) = Arc::make_mut(leaf).remove(i);
                Some(value)
            }
            Node::Branch(branch) => {
                let i = child_of(branch, key);
                let branch = Arc::make_mut(branch);
                let child = branch.get_mut(i);
                let removed = child.node.remove(key)?;
                child.weight -= removed.weight();
                if child.node.len() < NODE_LOW {
                    join_around(branch, i);
                }
                Some(removed)
            }
        }
    }

    /// The number to add to the weight, modulo 2^64, and whether to go on.
    fn change_from(
        &mut self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        change: &mut impl FnMut(&Key, &mut V) -> ControlFlow<()>,
    ) -> (u64, ControlFlow<()>) {
        let (mut changed, mut flow) = (0u64, ControlFlow::Continue(()));
        match self {
            Node::Leaf(leaf) => {
                let (first, end) = entries_between(leaf, start, end);
                if leaf.entries()[first..end].iter().all(|(_, value)| value.weight() == 0) {
                    return (0, flow);
                }
                let leaf = Arc::make_mut(leaf);
                for i in first..end {
                    let (result, weight) = change_entry(leaf, i, &mut *change);
                    changed = changed.wrapping_add(weight);
                    flow = result;
                    if flow.is_break() {
                        break;
                    }
                }
            }
            Node::Branch(branch) => {
                let (first, last) = children_between(branch, start, end);
                for i in first..=last {
                    if branch.get(i).weight == 0 {
                        continue;
                    }
                    let child = Arc::make_mut(branch).get_mut(i);
                    let (start, end) = (start.filter(|_| i == first), end.filter(|_| i == last));
                    let (weight, below) = child.node.change_from(start, end, change);
                    child.weight = child.weight.wrapping_add(weight);
                    changed = changed.wrapping_add(weight);
                    flow = below;
                    if flow.is_break() {
                        break;
                    }
                }
            }
        }
        (changed, flow)
    }

    /// Takes over all entries of a node of the same height whose keys are all above this one's; `bound` is its key.
    fn append(&mut self, bound: Key, right: Node<V>) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                Arc::make_mut(left).append(None, Arc::unwrap_or_clone(right));
            }
            (Node::Branch(left), Node::Branch(right)) => {
                // The key of the first child was no reliable bound; now it must be one.
                Arc::make_mut(left).append(Some(bound), Arc::unwrap_or_clone(right));
            }
            _ => unreachable!("neighbours have the same height"),
        }
    }

    /// `start` is `None` if every key here is known to be above it; `end` likewise.
    fn walk<'a>(
        &'a self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        heavy_only: bool,
        visit: &mut impl FnMut(&'a Key, &'a V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Node::Leaf(leaf) => {
                let (first, end) = entries_between(leaf, start, end);
                leaf.entries()[first..end].iter().try_for_each(|(key, value)| visit(key, value))
            }
            Node::Branch(branch) => {
                let (first, last) = children_between(branch, start, end);
                (first..=last).try_for_each(|i| {
                    let child = branch.get(i);
                    if heavy_only && child.weight == 0 {
                        return ControlFlow::Continue(());
                    }
                    let (start, end) = (start.filter(|_| i == first), end.filter(|_| i == last));
                    child.node.walk(start, end, heavy_only, visit)
                })
            }
        }
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
                let (first, end) = entries_between(leaf, start, end);
                leaf.entries()[first..end].iter().rev().try_for_each(|(key, value)| visit(key, value))
            }
            Node::Branch(branch) => {
                let (first, last) = children_between(branch, start, end);
                (first..=last).rev().try_for_each(|i| {
                    let child = branch.get(i);
                    if heavy_only && child.weight == 0 {
                        return ControlFlow::Continue(());
                    }
                    let (start, end) = (start.filter(|_| i == first), end.filter(|_| i == last));
                    child.node.walk_back(start, end, heavy_only, visit)
                })
            }
        }
    }
}

fn upsert_leaf<V: Weigh + Clone + Default, R>(
    leaf: &mut Run<V>,
    key: &[u8],
    rightmost: bool,
    change: impl FnOnce(&Key, &mut V) -> R,
) -> Changed<V, R> {
    match leaf.search(key) {
        Ok(i) => {
            let (result, weight) = change_entry(leaf, i, change);
            Changed { result, weight, split: None, is_new: false }
        }
        Err(i) => {
            let (key, mut value) = (Key::from(key), V::default());
            let result = change(&key, &mut value);
            let weight = value.weight();
            let appended = rightmost && i == leaf.len();
            leaf.insert(i, key, value);
            let split = split_full(leaf, appended).map(|right| {
                let bound = right.key(0).clone();
                let node = Node::Leaf(Arc::new(right));
                (bound, Child { weight: node.weight(), node })
            });
            Changed { result, weight, split, is_new: true }
        }
    }
}

/// The result and the number to add to the weight, modulo 2^64.
fn change_entry<V: Weigh, R>(
    leaf: &mut Run<V>,
    i: usize,
    change: impl FnOnce(&Key, &mut V) -> R,
) -> (R, u64) {
    let (key, value) = leaf.entry_mut(i);
    let before = value.weight();
    let result = change(key, value);
    (result, value.weight().wrapping_sub(before))
}

/// First entry with `start` ≤ key < `end`, and the end of these entries.
fn entries_between<V>(leaf: &Run<V>, start: Option<&[u8]>, end: Option<&[u8]>) -> (usize, usize) {
    let first = start.map_or(0, |start| place_of(leaf, start));
    let end = end.map_or(leaf.len(), |end| place_of(leaf, end));
    (first, end)
}

/// First and last child that may hold keys with `start` ≤ key < `end`.
fn children_between<V>(branch: &Run<Child<V>>, start: Option<&[u8]>, end: Option<&[u8]>) -> (usize, usize) {
    let first = start.map_or(0, |start| child_of(branch, start));
    let last = end.map_or(branch.len() - 1, |end| child_of(branch, end));
    (first, last)
}

/// Joins child `i` with a neighbour if they fit; an empty child always fits.
fn join_around<V: Weigh + Clone + Default>(branch: &mut Run<Child<V>>, i: usize) {
    let len = |i: usize| branch.get(i).node.len();
    let fits = |left: usize| {
        left + 1 < branch.len()
            && (len(left) + len(left + 1) <= JOIN_MAX || len(left) == 0 || len(left + 1) == 0)
    };
    let left = match i.checked_sub(1) {
        _ if fits(i) => i,
        Some(before) if fits(before) => before,
        _ => return,
    };
    let (bound, right) = branch.remove(left + 1);
    let left = branch.get_mut(left);
    left.weight += right.weight;
    left.node.append(bound, right.node);
}
