//! Names: the file of each name, now and after a power cut.
//!
//! Knows nothing of: the content of files.

use std::collections::BTreeMap;

/// Names and the files that had them.
pub(crate) type Said = Vec<(String, Option<usize>)>;

/// The file of each name.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub now: BTreeMap<String, usize>,
    pub durable: BTreeMap<String, usize>,
    /// From `durable` to `now`, with their times.
    pub changes: Vec<(u64, NameChange)>,
}

#[derive(Clone, Debug)]
pub(crate) enum NameChange {
    Set { name: String, inode: usize },
    Rename { source: String, target: String, inode: usize },
    Remove { name: String },
}

/// The files that have the names which a change touches, in `names`.
pub(crate) fn said(names: &BTreeMap<String, usize>, change: &NameChange) -> Said {
    change.names().map(|name| (name.clone(), names.get(name).copied())).collect()
}

pub(crate) fn restore(names: &mut BTreeMap<String, usize>, said: Said) {
    for (name, inode) in said.into_iter().rev() {
        match inode {
            Some(inode) => names.insert(name, inode),
            None => names.remove(&name),
        };
    }
}

impl Names {
    pub fn change(&mut self, now: u64, change: NameChange) {
        change.apply(&mut self.now);
        self.changes.push((now, change));
    }
}

impl NameChange {
    pub fn names(&self) -> impl Iterator<Item = &String> {
        match self {
            NameChange::Set { name, .. } | NameChange::Remove { name } => [Some(name), None],
            NameChange::Rename { source, target, .. } => [Some(source), Some(target)],
        }
        .into_iter()
        .flatten()
    }

    pub fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            NameChange::Rename { source, target, inode } => {
                if names.get(source) == Some(inode) {
                    names.remove(source);
                }
                names.insert(target.clone(), *inode);
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}
