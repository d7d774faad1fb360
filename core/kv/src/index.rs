//! Index: keys in order, each with a value and a weight.
//!
//! A B+-tree. Each branch stores the *weight* below each child, so the number of live keys between a and b costs
//! O(log n), however many there are.
//!
//! Nodes are shared: cloning an index copies one pointer, and changing a shared node copies that node first. A clone is
//! therefore the whole index as of one moment, readable while the original changes.
//!
//! Knows nothing of: revisions, the meaning of a value.

mod node;
mod whole;

pub(crate) use whole::{Builder, Leaves};

use crate::api::Key;
use crate::run::{Look, Run, glance_in_step};
use alloc::sync::Arc;
use core::ops::ControlFlow;
pub(crate) use node::Path;
use node::{Child, Node, child_of, place_of};

pub use crate::run::GROUP_MAX;

#[cfg(test)]
mod tests;

/// The weight of an entry.
pub(crate) trait Weigh {
    fn weight(&self) -> u64;
}

/// The entries of a group of keys as they look, unread.
pub(crate) type Seen<'a, V> = [Option<(&'a Key, &'a V)>; GROUP_MAX];

/// The ways to the keys of a group.
type Paths = [Path; GROUP_MAX];

/// An ordered map with ranks.
#[derive(Clone, Debug)]
pub(crate) struct Index<V> {
    root: Node<V>,
    /// The ways to the keys that will be changed next, in their order, as they were when a group was looked for. Each way is
    /// checked as it is gone, so it may be wrong.
    paths: Paths,
    /// How many of those are gone.
    paths_gone: usize,
    /// Number of entries, those without weight included.
    entries: u64,
}

impl<V: Weigh + Clone + Default> Index<V> {
    pub(crate) fn new() -> Index<V> {
        Index::of(Node::Leaf(Arc::default()), 0)
    }

    fn of(root: Node<V>, entries: u64) -> Index<V> {
        Index { root, paths: [Path::UNKNOWN; GROUP_MAX], paths_gone: GROUP_MAX, entries }
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

    /// The values of a group of keys, each as [`Index::get`] finds it; `seen` is what [`Index::glance_group`] said of them.
    pub(crate) fn get_group<'a>(&'a self, keys: &[&[u8]], seen: Seen<'a, V>) -> [Option<&'a V>; GROUP_MAX] {
        let mut found = [None; GROUP_MAX];
        for ((found, seen), key) in found.iter_mut().zip(seen).zip(keys) {
            let value = match seen {
                Some((other, value)) if **other == **key => Some((other, value)),
                Some(_) => self.get(key),                  // two keys have one head
                None => self.get_by(key, Look::Carefully), // the bold way was gone
            };
            *found = value.map(|(_, value)| value);
        }
        found
    }

    /// For each key of a group, the entry whose key looks right, unread. Goes level by level: the processor waits for the memory
    /// of all keys at once, where it would wait for one after the other. More than [`GROUP_MAX`] keys are not looked for.
    pub(crate) fn glance_group<'a>(&'a self, keys: &[&[u8]]) -> Seen<'a, V> {
        self.glance_on_paths(keys).0
    }

    /// As [`Index::glance_group`], with the ways to the entries.
    pub(crate) fn glance_on_paths<'a>(&'a self, keys: &[&[u8]]) -> (Seen<'a, V>, Paths) {
        let mut nodes = [&self.root; GROUP_MAX];
        let mut paths = [Path::UNKNOWN; GROUP_MAX];
        let mut level = 0;
        while let (Some(_), Node::Branch(first)) = (keys.first(), nodes[0]) {
            let mut branches = [&**first; GROUP_MAX];
            for (branch, node) in branches.iter_mut().zip(nodes) {
                if let Node::Branch(other) = node {
                    *branch = other;
                }
            }
            let glances = glance_in_step(&branches, keys);
            for ((((node, branch), glance), key), path) in
                nodes.iter_mut().zip(branches).zip(glances).zip(keys).zip(&mut paths)
            {
                let i = glance.floor(branch, key);
                path.set(level, i);
                *node = &branch.get(i).node;
            }
            level += 1;
        }
        let mut seen = [None; GROUP_MAX];
        if let Node::Leaf(first) = nodes[0] {
            let mut leaves = [&**first; GROUP_MAX];
            for (leaf, node) in leaves.iter_mut().zip(nodes) {
                if let Node::Leaf(other) = node {
                    *leaf = other;
                }
            }
            let glances = glance_in_step(&leaves, keys);
            for ((((seen, leaf), glance), _), path) in
                seen.iter_mut().zip(leaves).zip(glances).zip(keys).zip(&mut paths)
            {
                *seen = glance.place(leaf).map(|i| {
                    path.set(level, i);
                    (leaf.key(i), leaf.get(i))
                });
            }
        }
        (seen, paths)
    }

    /// Lets the next insertions and changes of values go these ways, one after the other, as far as they lead to the keys.
    pub(crate) fn go_next(&mut self, paths: Paths) {
        (self.paths, self.paths_gone) = (paths, 0);
    }

    /// Changes the value of a key; a new key begins with the default. It is looked for on the next way of [`Index::go_next`].
    pub(crate) fn upsert<R>(&mut self, key: &[u8], change: impl FnOnce(&Key, &mut V) -> R) -> R {
        let path = self.paths.get(self.paths_gone).copied().unwrap_or(Path::UNKNOWN);
        self.paths_gone = GROUP_MAX.min(self.paths_gone + 1);
        let change = match self.root.update(key, Look::Boldly, path, change) {
            Ok((result, _)) => return result,
            Err(change) => change,
        };
        let changed = self.root.upsert(key, change);
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
        let updated = self.root.update(key, Look::Boldly, Path::UNKNOWN, change);
        let updated = updated.or_else(|change| self.root.update(key, Look::Carefully, Path::UNKNOWN, change));
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
