//! Load: a store from the bytes of a dump.
//!
//! In:    the chunks of `dump.rs`, one by one; the boundaries between them have no meaning.
//! Out:   the store, or the first flaw and its offset.
//! Rule:  total: any bytes give a store or a flaw. Bytes that give a store are its dump, byte for byte. No memory is
//!        allocated that the bytes seen so far do not justify.
//!
//! Keys come in order, so the index is built from left to right, without a search. Changes and older versions are
//! collected and sorted by revision at the end.
//! Knows nothing of: files, checksums, logs, members.

use crate::api::{Key, Revision};
use crate::changes::Changes;
use crate::command::{self, Reader};
use crate::dump_format::{Flaw, HAS_LEASE, IS_PUT, MAGIC, Malformed, VERSION};
use crate::history::{History, Version, Versions};
use crate::index::Builder;
use crate::queue::Queue;
use crate::revision::places;
use crate::store::{NEVER_COMPACTED, Store, key_bytes, version_bytes};
use crate::superseded::Superseded;
use crate::value::Generation;
use alloc::vec::Vec;

/// Longest key or value; far above what a request may carry.
const LENGTH_MAX: u64 = u32::MAX as u64;

/// The highest revision of a store that is loaded: no log gets that far, and no raise does. Close to the maximum a
/// revision would have no successor.
const REVISION_MAX: Revision = Revision(i64::MAX / 4 * 3);

/// The changes in the order of their revisions, those of a revision in the order in which they are here.
fn in_revision_order(
    mut changes: Vec<(Revision, Key)>,
    first: Revision,
    last: Revision,
) -> Vec<(Revision, Key)> {
    match places(changes.iter().map(|(revision, _)| *revision), first, last) {
        // As few as they are, some revision has none: that is found later.
        None => changes.sort_by_key(|(revision, _)| *revision),
        Some(places) => {
            let mut ordered = alloc::vec![(Revision::NONE, Key::default()); changes.len()];
            changes.into_iter().zip(places).for_each(|(change, place)| ordered[place as usize] = change);
            changes = ordered;
        }
    }
    changes
}

/// Makes a store from the chunks of a dump.
///
/// # Errors
/// If they are not exactly one dump of this format version.
pub fn load<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> Result<Store, Malformed> {
    let mut loader = Loader::new();
    chunks.into_iter().try_for_each(|chunk| loader.push(chunk.as_ref()))?;
    loader.finish()
}

/// A load in progress.
#[derive(Debug, Default)]
pub struct Loader {
    /// Length of all records read.
    offset: u64,
    /// The beginning of a record that is incomplete so far.
    carry: Vec<u8>,
    stage: Stage,
    revision: Revision,
    compacted: Revision,
    running_digest: u64,
    index: Builder<History>,
    last_key: Option<Key>,
    /// Every change that can be watched, with its revision: in key order while keys are read, then in revision order.
    changes: Vec<(Revision, Key)>,
    /// The versions that newer ones replaced, in the order of keys; histories have their index here until the end.
    superseded: Superseded,
    /// The deletes, in the order of keys.
    deletes: Vec<(Revision, Key)>,
    /// Buffer for laying out a value.
    scratch: Vec<u8>,
    bytes: u64,
    bytes_in_use: u64,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Header,
    /// Between two keys.
    Keys,
    /// In a key, with `left` versions still to come.
    Versions {
        key: Key,
        history: History,
        left: u64,
    },
    /// After the keys; the last revision whose order was read.
    Orders {
        last: Revision,
    },
    Done,
}

/// Why a record was not read.
enum Stop {
    /// It is incomplete so far.
    More,
    Flaw(Flaw),
}

type Read<T> = Result<T, Stop>;

impl From<command::Malformed> for Stop {
    fn from(malformed: command::Malformed) -> Stop {
        match malformed.flaw {
            command::Flaw::Truncated => Stop::More,
            _ => Stop::Flaw(Flaw::Number),
        }
    }
}

impl Loader {
    /// A load that has read nothing.
    #[must_use]
    pub fn new() -> Loader {
        Loader::default()
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// If they cannot be part of a dump; later bytes cannot repair that.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        if self.carry.is_empty() {
            let used = self.read(chunk)?;
            self.carry.extend_from_slice(&chunk[used..]);
            return Ok(());
        }
        let mut carry = core::mem::take(&mut self.carry);
        carry.extend_from_slice(chunk);
        let used = self.read(&carry)?;
        carry.drain(..used);
        self.carry = carry;
        Ok(())
    }

    /// The store, once all bytes were pushed.
    ///
    /// # Errors
    /// If the dump is incomplete.
    pub fn finish(self) -> Result<Store, Malformed> {
        if !matches!(self.stage, Stage::Done) {
            return Err(Malformed { offset: self.offset, flaw: Flaw::Truncated });
        }
        let mut changes = Changes::starting_at(self.first_change());
        self.changes.into_iter().for_each(|(revision, key)| changes.push(revision, key));
        let mut store = Store::new();
        let (mut index, mut deletes) = (self.index.finish(), self.deletes);
        let mut superseded = self
            .superseded
            .in_order(self.revision, |renumber| index.each(|history| history.renumber(renumber)));
        superseded.pass(self.compacted);
        deletes.sort_by_key(|(revision, _)| *revision);
        let mut of_deletes = Queue::starting_at(0);
        deletes.into_iter().for_each(|delete| of_deletes.push_back(delete));
        store.restore((index, superseded), (changes, of_deletes), (self.bytes, self.bytes_in_use));
        store.revision = self.revision;
        store.compacted = self.compacted;
        store.running_digest = self.running_digest;
        Ok(store)
    }

    /// Reads all complete records; returns their length in bytes.
    fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut used = 0;
        loop {
            if matches!(self.stage, Stage::Done) && used < bytes.len() {
                return Err(Malformed { offset: self.offset, flaw: Flaw::TrailingBytes });
            }
            let mut reader = Reader { bytes: &bytes[used..], at: 0 };
            match self.read_record(&mut reader) {
                Ok(()) => {
                    used += reader.at;
                    self.offset += reader.at as u64;
                }
                Err(Stop::More) => return Ok(used),
                Err(Stop::Flaw(flaw)) => return Err(Malformed { offset: self.offset, flaw }),
            }
        }
    }

    /// Reads one record; changes nothing if it is incomplete.
    fn read_record(&mut self, reader: &mut Reader<'_>) -> Read<()> {
        match &self.stage {
            Stage::Header => self.read_header(reader),
            Stage::Keys => self.read_key(reader),
            Stage::Versions { .. } => self.read_version(reader),
            Stage::Orders { last } => self.read_order(*last, reader),
            Stage::Done => Err(Stop::More),
        }
    }

    fn read_header(&mut self, reader: &mut Reader<'_>) -> Read<()> {
        for expected in MAGIC {
            if reader.byte()? != expected {
                return flaw(Flaw::NoDump);
            }
        }
        let version = reader.byte()?;
        if version != VERSION {
            return flaw(Flaw::Version(version));
        }
        let revision = Revision(positive(reader.number()?)?);
        let compacted = Revision(reader.signed()?);
        let digest = reader.bytes[reader.at..].first_chunk().ok_or(Stop::More)?;
        reader.at += digest.len();
        if !(Revision::EMPTY..=REVISION_MAX).contains(&revision)
            || compacted < NEVER_COMPACTED
            || compacted > revision
        {
            return flaw(Flaw::Revision);
        }
        (self.revision, self.compacted) = (revision, compacted);
        self.running_digest = u64::from_le_bytes(*digest);
        self.stage = Stage::Keys;
        Ok(())
    }

    fn read_key(&mut self, reader: &mut Reader<'_>) -> Read<()> {
        let left = reader.number()?;
        if left == 0 {
            self.order_changes()?;
            self.stage = Stage::Orders { last: Revision::NONE };
            return Ok(());
        }
        let key = Key::from(byte_string(reader)?);
        if self.last_key.as_ref().is_some_and(|last| *last >= key) {
            return flaw(Flaw::KeyOrder);
        }
        self.last_key = Some(key.clone());
        self.bytes += key_bytes(&key);
        self.stage = Stage::Versions { key, history: History::default(), left };
        Ok(())
    }

    fn read_version(&mut self, reader: &mut Reader<'_>) -> Read<()> {
        let Stage::Versions { key, history, left } = &mut self.stage else { return Err(Stop::More) };
        let before = history.newest();
        let version = version(before, reader, &mut self.scratch)?;
        if version.mod_revision < Revision::FIRST || version.mod_revision > self.revision {
            return flaw(Flaw::Revision);
        }
        if before.is_none() && version.mod_revision > self.compacted && !is_first_ever(&version) {
            return flaw(Flaw::Beginning);
        }
        if version.mod_revision >= self.compacted {
            self.changes.push((version.mod_revision, key.clone()));
        }
        if !version.lives() {
            self.deletes.push((version.mod_revision, key.clone()));
        }
        self.bytes += version_bytes(&version);
        history.push(version, &mut self.superseded);
        *left -= 1;
        if *left == 0 {
            let versions = Versions { history, superseded: &self.superseded };
            let first = versions.first_kept(self.compacted);
            if first.is_none_or(|first| versions.before(first).is_some()) {
                return flaw(Flaw::Forgotten);
            }
            if let Some(live) = history.live() {
                self.bytes_in_use += version_bytes(live) + key_bytes(key);
            }
            let (key, history) = (core::mem::take(key), core::mem::take(history));
            self.index.push(key, history);
            self.stage = Stage::Keys;
        }
        Ok(())
    }

    /// The first revision with a change. The compacted revision has none if the store was raised to it.
    fn first_change(&self) -> Revision {
        let is_raised = self.compacted >= Revision::FIRST
            && self.changes.first().is_none_or(|(first, _)| *first > self.compacted);
        Revision(self.compacted.max(Revision::FIRST).0 + i64::from(is_raised))
    }

    /// Sorts the changes by revision, and checks that each revision has one.
    fn order_changes(&mut self) -> Read<()> {
        let first = self.first_change();
        let changes = core::mem::take(&mut self.changes);
        self.changes = in_revision_order(changes, first, self.revision);
        let mut next = first;
        for &(revision, _) in &self.changes {
            if revision > next {
                return flaw(Flaw::Gap(next));
            }
            next = revision.next();
        }
        if next <= self.revision { flaw(Flaw::Gap(next)) } else { Ok(()) }
    }

    fn read_order(&mut self, last: Revision, reader: &mut Reader<'_>) -> Read<()> {
        let further = positive(reader.number()?)?;
        if further == 0 {
            self.stage = Stage::Done;
            return Ok(());
        }
        let revision =
            last.0.checked_add(further).map(Revision).filter(|&revision| revision <= self.revision);
        let Some(revision) = revision else { return flaw(Flaw::Revision) };
        let start = self.changes.partition_point(|&(other, _)| other < revision);
        let end = start + self.changes[start..].partition_point(|&(other, _)| other == revision);
        let by_key = &mut self.changes[start..end];
        let order = read_permutation(by_key, reader)?.ok_or(Stop::Flaw(Flaw::Order(revision)))?;
        let ordered: Vec<_> = order.iter().map(|&rank| by_key[rank].clone()).collect();
        ordered.into_iter().zip(by_key).for_each(|(change, place)| *place = change);
        self.stage = Stage::Orders { last: revision };
        Ok(())
    }
}

/// For each change of a revision the rank of its key; `None` if that is no permutation, or the order of keys.
fn read_permutation(by_key: &[(Revision, Key)], reader: &mut Reader<'_>) -> Read<Option<Vec<usize>>> {
    if by_key.len() < 2 {
        return Ok(None);
    }
    let mut order = Vec::with_capacity(by_key.len());
    let mut places = alloc::vec![usize::MAX; by_key.len()];
    for place in 0..by_key.len() {
        let rank = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
        match places.get_mut(rank) {
            Some(free) if *free == usize::MAX => *free = place,
            _ => return Ok(None),
        }
        order.push(rank);
    }
    // Changes of one key keep their order, and at least one change must be out of key order.
    let keys_keep_theirs =
        (1..by_key.len()).all(|rank| by_key[rank - 1].1 != by_key[rank].1 || places[rank - 1] < places[rank]);
    Ok(Some(order).filter(|order| keys_keep_theirs && !order.is_sorted()))
}

/// Reads a version; fields that are not written follow from the version before.
fn version(before: Option<&Version>, reader: &mut Reader<'_>, scratch: &mut Vec<u8>) -> Read<Version> {
    let flags = reader.byte()?;
    let is_put = flags & IS_PUT != 0;
    let known = if is_put { IS_PUT | HAS_LEASE } else { 0 };
    if flags & !known != 0 {
        return flaw(Flaw::Unknown(flags));
    }
    let step = positive(reader.number()?)?;
    let mod_revision = before.map_or(0, |before| before.mod_revision.0).checked_add(step);
    let mod_revision = Revision(mod_revision.ok_or(Stop::Flaw(Flaw::Revision))?);
    if !is_put {
        return match before {
            Some(before) if !before.lives() => flaw(Flaw::DoubleDelete),
            _ => Ok(Version::tombstone(mod_revision)),
        };
    }
    let (create_revision, number) = match before {
        Some(before) if before.lives() => {
            let life = before.life();
            (life.create_revision, life.version.checked_add(1))
        }
        Some(_) => (mod_revision, Some(1)),
        None => {
            let (age, puts_before) = (positive(reader.number()?)?, positive(reader.number()?)?);
            let created = Revision(mod_revision.0 - age);
            if created < Revision::FIRST {
                return flaw(Flaw::Revision);
            }
            (created, puts_before.checked_add(1))
        }
    };
    let number = number.ok_or(Stop::Flaw(Flaw::Number))?;
    let lease = if flags & HAS_LEASE != 0 { reader.signed()? } else { 0 };
    if flags & HAS_LEASE != 0 && lease == 0 {
        return flaw(Flaw::Number);
    }
    let life = Generation { create_revision, version: number, lease };
    Ok(Version::put(mod_revision, life, byte_string(reader)?, scratch))
}

/// Whether a key can begin with this version, as it must if compaction has removed nothing from it.
fn is_first_ever(version: &Version) -> bool {
    let life = version.life();
    version.lives() && life.create_revision == version.mod_revision && life.version == 1
}

fn byte_string<'a>(reader: &mut Reader<'a>) -> Read<&'a [u8]> {
    let length = reader.number()?;
    if length > LENGTH_MAX {
        return flaw(Flaw::Length(length));
    }
    let length = usize::try_from(length).map_err(|_| Stop::Flaw(Flaw::Length(length)))?;
    let bytes = reader.bytes[reader.at..].get(..length).ok_or(Stop::More)?;
    reader.at += length;
    Ok(bytes)
}

fn positive(n: u64) -> Read<i64> {
    i64::try_from(n).map_err(|_| Stop::Flaw(Flaw::Number))
}

fn flaw<T>(flaw: Flaw) -> Read<T> {
    Err(Stop::Flaw(flaw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_order_of_a_revision_is_a_permutation_that_keeps_the_changes_of_each_key_in_their_order() {
        let change = |key: &[u8]| (Revision(2), Key::from(key));
        let by_key = [change(b"a"), change(b"a"), change(b"b")];
        let read =
            |ranks: [u8; 3]| read_permutation(&by_key, &mut Reader { bytes: &ranks, at: 0 }).ok().flatten();
        assert_eq!(read([2, 0, 1]), Some(vec![2, 0, 1]));
        assert_eq!(read([0, 2, 1]), Some(vec![0, 2, 1]));
        for (ranks, flaw) in [
            ([0, 1, 2], "the order of keys"),
            ([2, 1, 0], "the changes of `a` in another order"),
            ([1, 2, 0], "the same"),
            ([0, 0, 2], "one twice"),
            ([0, 1, 3], "one of none"),
        ] {
            assert_eq!(read(ranks), None, "{flaw}");
        }
    }
}
