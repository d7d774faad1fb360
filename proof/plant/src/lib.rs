//! Plant: the chosen planted bug, in builds of a copy of the workspace that has wrong code beside the right code.
//!
//! The product is never linked with this crate: only `kattu-mutants` writes calls of it. The choice belongs to the
//! process and is no part of any state: clones and hashes do not see it.
//! Knows nothing of: the bugs.
#![no_std]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering};

/// The number of the bug that is chosen; 0 for none.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Chooses this bug, and no other, in the whole process; 0 for none.
pub fn choose(number: usize) {
    CHOSEN.store(number, Ordering::SeqCst);
}

/// Whether this bug is chosen.
#[must_use]
pub fn is(number: usize) -> bool {
    CHOSEN.load(Ordering::Relaxed) == number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bug_is_chosen_at_a_time() {
        assert!(!is(1) && !is(2));
        choose(1);
        assert!(is(1) && !is(2));
        choose(0);
        assert!(!is(1) && !is(2));
    }
}
