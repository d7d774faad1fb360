//! Nodes: one leaf or branch of an index, and all below it.
//!
//! A node that falls below a quarter is joined with a neighbour if both fit into three quarters of one. So a shrinking
//! tree releases memory, and a tree whose size fluctuates does not split and join all the time.
//! Knows nothing of: the whole index, the meaning of a value.

use super::Weigh;
use crate::api::Key;
use crate::run::{Look, RUN_MAX, Run};
use alloc::sync::Arc;
use core::ops::ControlFlow;

/// Below this many entries a node is joined with a neighbour.
pub(super) const NODE_LOW: usize = RUN_MAX / 4;

/// Nodes are joined if they have at most this many entries together.
const JOIN_MAX: usize = RUN_MAX * 3 / 4;

/// The key of each child is ≤ every key below it and > every key below the child before. The key of the first child is
/// only known to be below the next child's.
#[derive(Clone, Debug)]
pub(super) enum Node<V> {
    Leaf(Arc<Run<V>>),
    Branch(Arc<Run<Child<V>>>),
}

#[derive(Clone, Debug)]
pub(super) struct Child<V> {
    pub(super) weight: u64,
    pub(super) node: Node<V>,
}

/// A way through a tree: a byte for each level, from the root on the lowest one, with the index of the entry there. It may be
/// wrong. Eight levels are more than any memory has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path(u64);

/// An index that no entry has.
const NOWHERE: u8 = u8::MAX;
const _: () = assert!(RUN_MAX < NOWHERE as usize, "an index is a byte");

impl Path {
    pub(super) const UNKNOWN: Path = Path(u64::from_ne_bytes([NOWHERE; 8]));

    /// Sets the index at a level.
    pub(super) fn set(&mut self, level: u32, i: usize) {
        let of_level = |byte: u64| byte.checked_shl(8 * level).unwrap_or(0);
        self.0 = self.0 & !of_level(u64::from(u8::MAX)) | of_level(i as u64);
    }

    /// The index at the first level, and the way from there.
    pub(super) fn split(self) -> (usize, Path) {
        (usize::from(self.0 as u8), Path(self.0 >> 8 | u64::from(NOWHERE) << 56))
    }
}

/// What the node above needs to know of a change below it.
pub(super) struct Changed<V, R> {
    pub(super) result: R,
    /// To add to the weight, modulo 2^64.
    pub(super) weight: u64,
    /// The right half and its key, if the node has split.
    pub(super) split: Option<(Key, Child<V>)>,
    /// The entry did not exist before.
    pub(super) is_new: bool,
}

/// The child below which a key is, if the key exists.
pub(super) fn child_of<V>(branch: &Run<Child<V>>, key: &[u8]) -> usize {
    branch.find_floor(key, Look::Carefully)
}

/// Where a key is in a leaf, or would be inserted.
pub(super) fn place_of<V>(leaf: &Run<V>, key: &[u8]) -> usize {
    leaf.search(key).unwrap_or_else(|i| i)
}

/// Splits a node that has become too large.
fn split_full<T>(run: &mut Run<T>) -> Option<Run<T>> {
    (run.len() > RUN_MAX).then(|| run.split())
}

impl<V: Weigh + Clone + Default> Node<V> {
    pub(super) fn weight(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.entries().iter().map(|(_, value)| value.weight()).sum(),
            Node::Branch(branch) => branch.entries().iter().map(|(_, child)| child.weight).sum(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Branch(branch) => branch.len(),
        }
    }

    pub(super) fn first_key(&self) -> Key {
        match self {
            Node::Leaf(leaf) => leaf.key(0).clone(),
            Node::Branch(branch) => branch.key(0).clone(),
        }
    }

    pub(super) fn upsert<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> Changed<V, R> {
        match self {
            Node::Leaf(leaf) => upsert_leaf(Arc::make_mut(leaf), key, change),
            Node::Branch(branch) => {
                let branch = Arc::make_mut(branch);
                let i = child_of(branch, key);
                let child = branch.get_mut(i);
                let Changed { result, weight, split, is_new } = child.node.upsert(key, change);
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
                    let right = split_full(branch)?;
                    let bound = right.key(0).clone();
                    let node = Node::Branch(Arc::new(right));
                    Some((bound, Child { weight: node.weight(), node }))
                });
                Changed { result, weight, split, is_new }
            }
        }
    }

    /// The result and the number to add to the weight, modulo 2^64; or `change` itself if the key is not found. It is looked
    /// for where `path` says, and if it cannot be there, as `look` says.
    pub(super) fn update<R, F: FnOnce(&Key, &mut V) -> R>(
        &mut self,
        key: &[u8],
        look: Look,
        path: Path,
        change: F,
    ) -> Result<(R, u64), F> {
        let (guess, path) = path.split();
        match self {
            Node::Leaf(leaf) => {
                match Some(guess).filter(|&i| leaf.is_at(i, key)).or_else(|| leaf.find(key, look)) {
                    Some(i) => Ok(change_entry(Arc::make_mut(leaf), i, change)),
                    None => Err(change),
                }
            }
            Node::Branch(branch) => {
                let i = if branch.is_floor(guess, key) { guess } else { branch.find_floor(key, look) };
                let child = Arc::make_mut(branch).get_mut(i);
                let (result, weight) = child.node.update(key, look, path, change)?;
                child.weight = child.weight.wrapping_add(weight);
                Ok((result, weight))
            }
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<V> {
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
    pub(super) fn change_from(
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
    pub(super) fn append(&mut self, bound: Key, right: Node<V>) {
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
    pub(super) fn walk<'a>(
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

    pub(super) fn walk_back<'a>(
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
            leaf.insert(i, key, value);
            let split = split_full(leaf).map(|right| {
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
