//! Entries: what is known of each entry of the leader's log while it is under way.
//!
//! Knows nothing of: when something happens to an entry.

use crate::marking::Nanos;
use std::collections::VecDeque;

/// No follower.
pub(crate) const NONE: u32 = u32::MAX;

/// A request before it has an index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub client: u32,
    /// Its number among all requests of the run.
    pub number: u64,
    /// When the client had made it; its latency counts from here.
    pub born: Nanos,
    pub t_gen: Nanos,
    /// When it came into the place where it is.
    pub since: Nanos,
    pub t_trans: Nanos,
    pub t_prs: Nanos,
}

/// An entry of the leader's log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub request: Request,
    pub t_idx: Nanos,
    pub indexed: Nanos,
    /// The follower that received it first.
    pub first: u32,
    pub t_queue: Nanos,
    pub t_log: Nanos,
    pub t_wait: Nanos,
    pub t_append: Nanos,
    /// Followers that have received it, as bits.
    pub arrived: u32,
    /// Followers from which the leader has any answer about it, as bits.
    pub received: u32,
    pub appended: u32,
    pub first_append: Nanos,
    pub quorum: Nanos,
    pub committed: Nanos,
    pub applied: Nanos,
    pub is_applied: bool,
    /// The client has, or is on the way to get, a weak reply.
    pub is_early: bool,
    /// The client has a weak reply, and no strong note.
    pub is_listed: bool,
    /// When it came into `OpList`.
    pub listed: Nanos,
}

impl Entry {
    pub fn of(request: Request, indexed: Nanos) -> Entry {
        Entry {
            request,
            t_idx: 0,
            indexed,
            first: NONE,
            t_queue: 0,
            t_log: 0,
            t_wait: 0,
            t_append: 0,
            arrived: 0,
            received: 0,
            appended: 0,
            first_append: 0,
            quorum: 0,
            committed: 0,
            applied: 0,
            is_applied: false,
            is_early: false,
            is_listed: false,
            listed: 0,
        }
    }
}

/// Entries that are not finished, by index. The first index is 1.
pub(crate) struct Entries {
    front: u64,
    list: VecDeque<Entry>,
}

impl Entries {
    pub fn new() -> Entries {
        Entries { front: 1, list: VecDeque::new() }
    }

    /// The index that the next entry gets.
    pub fn next_index(&self) -> u64 {
        self.front + self.list.len() as u64
    }

    pub fn push(&mut self, entry: Entry) {
        self.list.push_back(entry);
    }

    /// The entry, unless it is finished.
    pub fn find(&mut self, index: u64) -> Option<&mut Entry> {
        self.list.get_mut(usize::try_from(index.checked_sub(self.front)?).ok()?)
    }

    /// The entry.
    ///
    /// # Panics
    /// If it is finished, or was never there.
    pub fn at(&mut self, index: u64) -> &mut Entry {
        self.find(index).expect("an entry under way")
    }

    /// Takes the first entry if it is finished.
    pub fn pop_if(&mut self, is_finished: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let entry = self.list.pop_front_if(|entry| is_finished(entry))?;
        self.front += 1;
        Some(entry)
    }

    /// All entries under way, with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        (self.front..).zip(&self.list)
    }
}
