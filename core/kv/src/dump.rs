//! Dump: a store as bytes.
//!
//! In:    a pinned store.
//! Out:   chunks of bytes, 1 MiB at most, one by one. [`Loader`] makes from them a store that behaves like this one.
//! Rule:  equal stores give equal chunks, however they came about and however much each has forgotten: only versions
//!        that can still be read or watched are written, each in exactly one form. Byte boxes: docs/formats/store.md.
//!
//! A dump releases the leaves that it has passed, so later changes of the store need not copy those any more. There is
//! never a second copy of the store in memory, only a chunk.
//! Knows nothing of: files, checksums, logs, members.

use crate::api::{Key, Revision};
use crate::changes::Changes;
use crate::command::{write_bytes, write_number, write_signed};
use crate::history::{History, Version, Versions, Walk};
use crate::index::Leaves;
use crate::kept::Kept;
use crate::run::Run;
use crate::store::Store;
use crate::superseded::Superseded;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use crate::dump_format::{Flaw, Malformed, VERSION};
use crate::dump_format::{HAS_LEASE, IS_PUT, MAGIC};
pub use crate::load::{Loader, load};

/// Most bytes of one chunk.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Capacity of a chunk above [`CHUNK_BYTES_MAX`]: the record that does not fit into it goes to the next one.
const ROOM_BEYOND: usize = 4096;

/// A dump in progress: an iterator over its chunks.
///
/// ```
/// # use kattu_kv::{api::{Command, Put}, dump, store::Store};
/// # let mut store = Store::new();
/// # store.apply(&Command::Put(Put { key: b"a".to_vec(), ..Put::default() })).unwrap();
/// let dump = store.pin().dump();
/// // … the store goes on, and another thread writes:
/// let copy = dump::load(dump).unwrap();
/// assert_eq!(copy.digest(), store.digest());
/// ```
#[derive(Debug)]
pub struct Dump {
    stage: Stage,
    revision: Revision,
    compacted: Revision,
    running_digest: u64,
    leaves: Leaves<History>,
    superseded: Superseded,
    changes: Changes,
    /// The first bytes of the next chunk.
    pending: Vec<u8>,
    /// Capacity of a chunk: so that it does not grow step by step, each with a copy.
    room: usize,
    /// While a copy is held, the store forgets in small steps.
    _copies: Arc<()>,
}

#[derive(Debug)]
enum Stage {
    Header,
    /// Between two leaves.
    Leaves,
    /// In a leaf: the next key, or some of its versions.
    Leaf {
        leaf: Arc<Run<History>>,
        kept: Kept,
        i: usize,
        of_key: Option<OfKey>,
    },
    /// The order of changes: the next revision, and the last one whose order was written.
    Orders {
        next: Revision,
        last: Revision,
    },
    Done,
}

/// The versions of a key that are still to be written.
#[derive(Debug)]
struct OfKey {
    walk: Walk,
    /// The revision of the version before, if one was written.
    before: Option<Revision>,
}

impl Store {
    /// Dumps this store, best a [`pin`](Store::pin): the dump takes it apart.
    #[must_use]
    pub fn dump(self) -> Dump {
        Dump {
            room: self.stats().bytes.min(CHUNK_BYTES_MAX as u64) as usize + ROOM_BEYOND,
            stage: Stage::Header,
            revision: self.revision,
            compacted: self.compacted,
            running_digest: self.running_digest,
            leaves: self.index.into_leaves(),
            superseded: self.superseded,
            changes: self.changes,
            pending: Vec::new(),
            _copies: self.copies,
        }
    }
}

impl Iterator for Dump {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut chunk = core::mem::take(&mut self.pending);
        if !matches!(self.stage, Stage::Done) {
            chunk.reserve_exact(self.room.saturating_sub(chunk.len()));
        }
        while chunk.len() <= CHUNK_BYTES_MAX && !matches!(self.stage, Stage::Done) {
            let start = chunk.len();
            self.write_record(&mut chunk);
            if chunk.len() > CHUNK_BYTES_MAX && start > 0 {
                self.pending = chunk.split_off(start);
                return Some(chunk);
            }
        }
        if chunk.len() > CHUNK_BYTES_MAX {
            // One record that is larger than a chunk.
            self.pending = chunk.split_off(CHUNK_BYTES_MAX);
        }
        Some(chunk).filter(|chunk| !chunk.is_empty())
    }
}

impl Dump {
    /// Frees some of what a dump that has given its last chunk still holds of the store, and returns whether there is more. What
    /// the store has forgotten meanwhile was kept by the dump alone: all of it at once would take seconds.
    ///
    /// # Panics
    /// If a chunk is still to come, which needs what this frees.
    pub fn release(&mut self) -> bool {
        assert!(
            matches!(self.stage, Stage::Done) && self.pending.is_empty(),
            "a dump is released after its last chunk"
        );
        let holds_versions = self.superseded.release();
        self.changes.release() || holds_versions
    }

    /// Appends the next record, if there is one at this place.
    fn write_record(&mut self, out: &mut Vec<u8>) {
        match &mut self.stage {
            Stage::Header => {
                out.extend_from_slice(&MAGIC);
                out.push(VERSION);
                write_number(self.revision.0 as u64, out);
                write_signed(self.compacted.0, out);
                out.extend_from_slice(&self.running_digest.to_le_bytes());
                self.stage = Stage::Leaves;
            }
            Stage::Leaves => match self.leaves.next() {
                Some(leaf) => {
                    let kept = Kept::of(&leaf, &self.superseded, self.compacted);
                    self.stage = Stage::Leaf { leaf, kept, i: 0, of_key: None };
                }
                None => {
                    write_number(0, out);
                    self.stage =
                        Stage::Orders { next: self.compacted.max(Revision::FIRST), last: Revision::NONE };
                }
            },
            Stage::Leaf { leaf, kept, i, of_key } => match leaf.entries().get(*i) {
                Some((key, history)) => {
                    let versions = Versions { history, superseded: &self.superseded };
                    let is_over = match of_key {
                        Some(of_key) => of_key.write_next(versions, out),
                        None => {
                            *of_key = OfKey::begin(key, versions, kept.older(*i), self.compacted, out);
                            of_key.is_none()
                        }
                    };
                    if is_over {
                        (*i, *of_key) = (*i + 1, None);
                    }
                }
                None => self.stage = Stage::Leaves,
            },
            Stage::Orders { next, last } if *next <= self.revision => {
                if write_order(&self.changes, *next, *last, out) {
                    *last = *next;
                }
                *next = next.next();
            }
            Stage::Orders { .. } => {
                write_number(0, out);
                self.stage = Stage::Done;
            }
            Stage::Done => {}
        }
    }
}

impl OfKey {
    /// Appends the key, unless nothing of it is kept. `older` are the numbers of its older versions, if they are known.
    fn begin(
        key: &Key,
        versions: Versions<'_>,
        older: Option<Vec<u64>>,
        compacted: Revision,
        out: &mut Vec<u8>,
    ) -> Option<OfKey> {
        let (count, walk) = match older {
            Some(_) if !versions.keeps_newest(compacted) => return None,
            Some(older) => (older.len() as u64 + 1, Walk::through(older)),
            None => {
                let first = versions.first_kept(compacted)?;
                (versions.count_from(first), Walk::from(first, versions))
            }
        };
        write_number(count, out);
        write_bytes(key, out);
        Some(OfKey { walk, before: None })
    }

    /// Appends the next version. Returns whether there was none.
    fn write_next(&mut self, versions: Versions<'_>, out: &mut Vec<u8>) -> bool {
        let Some(place) = self.walk.next(versions) else { return true };
        let version = versions.version(place);
        write_version(version, self.before, out);
        self.before = Some(version.mod_revision);
        false
    }
}

/// Appends a version without the fields that follow from the one before it, which has this revision.
fn write_version(version: &Version, before: Option<Revision>, out: &mut Vec<u8>) {
    let life = version.life();
    let mut flags = 0;
    if version.lives() {
        flags |= IS_PUT;
    }
    if life.lease != 0 {
        flags |= HAS_LEASE;
    }
    out.push(flags);
    let step = version.mod_revision.0 - before.map_or(0, |before| before.0);
    write_number(step as u64, out);
    if before.is_none() && version.lives() {
        write_number((version.mod_revision.0 - life.create_revision.0) as u64, out);
        write_number((life.version - 1) as u64, out);
    }
    if life.lease != 0 {
        write_signed(life.lease, out);
    }
    if let Some(value) = version.value() {
        write_bytes(value, out);
    }
}

/// Appends the order of the changes of a revision, unless it is the order of their keys. Returns whether it did.
fn write_order(changes: &Changes, revision: Revision, last: Revision, out: &mut Vec<u8>) -> bool {
    let (start, end) = (changes.start_of(revision), changes.start_of(revision.next()));
    if end - start < 2 {
        return false;
    }
    let keys: Vec<&Key> = (start..end).map(|number| changes.key(number)).collect();
    if keys.is_sorted() {
        return false;
    }
    write_number((revision.0 - last.0) as u64, out);
    let mut by_key: Vec<usize> = (0..keys.len()).collect();
    by_key.sort_by_key(|&change| keys[change]); // stable: changes of one key stay in their order
    let mut ranks = alloc::vec![0; keys.len()];
    by_key.iter().enumerate().for_each(|(rank, &change)| ranks[change] = rank);
    ranks.iter().for_each(|&rank| write_number(rank as u64, out));
    true
}
