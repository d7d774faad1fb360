//! Trace: what happened, as one number and, on request, as lines.
//!
//! Every delivery and every request is mixed into a hash of 64 bits: two runs with the same hash took the same course.
//! Lines are kept only on request; they never influence the hash.
//! Knows nothing of: what the numbers mean.

use crate::clock::MS;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in nanoseconds.
    pub at: u64,
    /// The member it happened to, if to one.
    pub member: Option<u64>,
    /// `fault`, `role`, `process`, `client`, `violation`.
    pub kind: &'static str,
    /// What happened.
    pub what: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, rest) = (self.at / crate::clock::SEC, self.at % crate::clock::SEC);
        let member = self.member.map_or_else(|| "-".to_owned(), |id| format!("n{id}"));
        write!(f, "{seconds:>6}.{:03} s  {member:<3} {:<9}  {}", rest / MS, self.kind, self.what)
    }
}

/// What is left of a storm that ends in a panic.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The timeline, if requested.
    pub(crate) lines: Option<Vec<Line>>,
    /// Numbers of the injections carried out.
    pub(crate) injected: Vec<u32>,
    /// When the last of them was.
    pub(crate) at: u64,
}

/// The course of one storm.
pub(crate) struct Trace {
    hash: u64,
    is_read: bool,
    told: Arc<Mutex<Told>>,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Trace {
    /// An empty trace.
    #[must_use]
    pub(crate) fn new(told: Arc<Mutex<Told>>) -> Trace {
        let is_read = told.lock().is_ok_and(|told| told.lines.is_some());
        Trace { hash: 0xcbf2_9ce4_8422_2325, is_read, told }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mixes in one number.
    pub fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(29) ^ number).wrapping_mul(MULTIPLIER);
    }

    /// Mixes in bytes.
    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(last));
        }
    }

    /// The hash so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        kattu_random::mix(self.hash)
    }

    /// Adds a line, if a timeline was requested.
    pub fn line(&mut self, at: u64, member: Option<u64>, kind: &'static str, what: impl FnOnce() -> String) {
        if self.is_read {
            let line = Line { at, member, kind, what: what() };
            self.told().lines.get_or_insert_default().push(line);
        }
    }

    /// An injection is carried out.
    pub(crate) fn injected(&mut self, number: u32) {
        self.told().injected.push(number);
    }

    /// The last one had no target.
    pub(crate) fn not_injected(&mut self) {
        self.told().injected.pop();
    }

    /// All events until then have happened.
    pub(crate) fn passed(&mut self, at: u64) {
        self.told().at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_length_change_the_hash() {
        let hash = |parts: &[&[u8]]| {
            let mut trace = Trace::new(Arc::default());
            parts.iter().for_each(|part| trace.mix_bytes(part));
            trace.hash()
        };
        assert_eq!(hash(&[b"ab", b"c"]), hash(&[b"ab", b"c"]));
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"c", b"ab"]));
        assert_ne!(hash(&[b"ab\0"]), hash(&[b"ab"]));
    }

    #[test]
    fn lines_stand_in_columns() {
        let line = Line { at: 1_234_567_890, member: Some(2), kind: "role", what: "leads term 3".into() };
        assert_eq!(line.to_string(), "     1.234 s  n2  role       leads term 3");
    }
}
