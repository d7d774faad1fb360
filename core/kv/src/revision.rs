//! Revision: the clock of a store.
//!
//! Knows nothing of: keys, requests, logs.

use core::fmt;

/// The store's clock: the empty store is at 1, each command that changes a key raises it by exactly 1.
///
/// A position in the history of the store, which is not one in the log: a change of members has an index and no
/// revision. Requests hold what their clients wrote, negative numbers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// No revision: the newest state, no bound, a key that is not there.
    pub const NONE: Revision = Revision(0);
    /// That of an empty store.
    pub const EMPTY: Revision = Revision(1);
    /// That of the first change of a store.
    pub const FIRST: Revision = Revision(2);

    /// The revision of the next change.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
