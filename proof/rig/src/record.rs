//! The recorder: the clients' operations and answers, on one clock, in one order.
//!
//! An invocation is recorded before its request leaves, an end after its answer has arrived; both read the clock while
//! they hold the list, so that the list is in the order of time.
//! Knows nothing of: judges.

use crate::weak;
use kattu_verify::history::{Operation, Record, What};
use kattu_verify::operations::{has_written, paired};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// Records of all clients of one trial.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    records: Mutex<Vec<Record>>,
    next: AtomicU64,
    done: AtomicU64,
    revision: AtomicI64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            begun: Instant::now(),
            records: Mutex::default(),
            next: AtomicU64::new(1),
            done: AtomicU64::new(0),
            revision: AtomicI64::new(1),
        }
    }
}

impl Recorder {
    /// Records the start of an operation; returns its number.
    pub fn invoke(&self, client: u32, member: u64, operation: Operation) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.push(client, id, What::Invoke { member, operation, level: None });
        id
    }

    /// Records the end of an operation.
    pub fn end(&self, client: u32, id: u64, what: What) {
        if let What::Done { revision, answer } = &what {
            self.revision.fetch_max(revision.unwrap_or(0), Ordering::Relaxed);
            if answer.as_ref().is_ok_and(has_written) {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.push(client, id, what);
    }

    /// Records that a member's process has ended: answers of its next one may be older.
    pub fn crashed(&self, member: u64) {
        self.push(0, 0, What::Crashed { member });
    }

    fn push(&self, client: u32, id: u64, what: What) {
        let mut records = self.records.lock().expect("nobody panics with it");
        let at = self.begun.elapsed().as_nanos() as u64;
        records.push(Record { at, client, id, what });
    }

    /// Writes acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The highest revision in any answer.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Takes all records so far.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.records.lock().expect("nobody panics with it"))
    }
}

/// How the operations of a history ended; those of weak clients are not counted, as most have no end of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// All operations.
    pub operations: u64,
    /// Acknowledged writes.
    pub writes: u64,
    /// Certainly without effect.
    pub refused: u64,
    /// With an unknown outcome.
    pub unknown: u64,
}

/// Counts them.
pub fn ends(records: &[Record]) -> Ends {
    use kattu_verify::operations::End;
    let mut ends = Ends::default();
    let counted = |operation: &kattu_verify::operations::Operation<'_>| operation.client < weak::CLIENTS_FROM;
    for operation in paired(records).unwrap_or_default().into_iter().filter(counted) {
        ends.operations += 1;
        ends.writes += u64::from(operation.has_written());
        ends.refused += u64::from(operation.end == End::Refused);
        ends.unknown += u64::from(operation.end == End::Unknown);
    }
    ends
}
