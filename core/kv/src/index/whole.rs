//! A whole index at once: built from keys in ascending order, or taken apart leaf by leaf.
//!
//! Knows nothing of: changes of single keys.

use super::node::{Child, Node};
use super::{Index, Weigh};
use crate::api::Key;
use crate::run::{RUN_MAX, Run};
use alloc::sync::Arc;
use alloc::vec::Vec;

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
        Index::of(root, self.pushed)
    }
}

impl<V: Weigh + Clone> Index<V> {
    /// Changes every value, in ascending order, in a way that leaves its weight.
    pub(crate) fn each(&mut self, mut change: impl FnMut(&mut V)) {
        self.root.each(&mut change);
    }
}

impl<V: Weigh + Clone> Node<V> {
    fn each(&mut self, change: &mut impl FnMut(&mut V)) {
        match self {
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                (0..leaf.len()).for_each(|i| change(leaf.get_mut(i)));
            }
            Node::Branch(branch) => {
                let branch = Arc::make_mut(branch);
                (0..branch.len()).for_each(|i| branch.get_mut(i).node.each(change));
            }
        }
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
