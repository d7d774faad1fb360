//! Store: the snapshots of a data directory; which exist, which are good, which can be removed.
//!
//! A snapshot is good once every byte of it was checked since the process started. A bad one stays in place, is
//! reported with its defect, and is never read from. A good one is checked again when a piece of it cannot be read,
//! when a peer that received all of it starts over, and by the scrub: it may be damaged later. [fault-model ST10, ST12,
//! F13, F15]
//! Knows nothing of: the log, the schedule of snapshots.

use super::format::{Checked, Header, Pass};
use super::read::{Chunks, SnapshotReader};
use super::write::{Receiving, SnapshotWriter};
use crate::error::WalError;
use crate::files::{Files, Remains};
use kattu_raft::{ChunkRead, ChunkStored, EntryId, GroupId, LogIndex, NodeId, ReadChunk, SharedBytes};
use kattu_raft::{SnapshotMeta, StoreChunk, Term};
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many good ones are kept: the newest, and one to fall back to.
const KEPT: usize = 2;

const SUFFIX: &str = ".snap";

const OPEN: &str = "open";

pub(crate) fn name_of(group: GroupId, last: EntryId) -> String {
    format!("snapshot-{:08x}-{:016x}-{:016x}{SUFFIX}", group.0, last.index.0, last.term.0)
}

/// The group and the last entry in the name of a snapshot's file.
#[must_use]
pub fn named(name: &str) -> Option<(GroupId, EntryId)> {
    let mut numbers = name.strip_prefix("snapshot-")?.strip_suffix(SUFFIX)?.split('-');
    let group = GroupId(u32::from_str_radix(numbers.next()?, 16).ok()?);
    let index = LogIndex(u64::from_str_radix(numbers.next()?, 16).ok()?);
    let term = Term(u64::from_str_radix(numbers.next()?, 16).ok()?);
    let last = EntryId { term, index };
    (name_of(group, last) == name).then_some((group, last))
}

/// A good snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its file.
    pub name: String,
    /// Its group.
    pub group: GroupId,
    /// Its metadata: the entries that it covers, and the membership.
    pub meta: SnapshotMeta,
    /// Bytes of the file.
    pub bytes: u64,
    /// How many chunks it has.
    pub chunks: u64,
}

/// The state of one file.
#[derive(Clone, Debug)]
enum Known {
    /// It exists and was not checked yet.
    Unchecked,
    Good(Snapshot),
    Bad(WalError),
    /// It belongs to another cluster, or has the name of another snapshot.
    Foreign(WalError),
}

/// Why a file is not the snapshot of its name.
#[derive(Clone, Debug)]
pub(crate) enum Unfit {
    Bad(WalError),
    Foreign(WalError),
}

impl From<WalError> for Unfit {
    fn from(error: WalError) -> Unfit {
        Unfit::Bad(error)
    }
}

impl Unfit {
    pub(crate) fn into_error(self) -> WalError {
        match self {
            Unfit::Bad(error) | Unfit::Foreign(error) => error,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    known: BTreeMap<(GroupId, LogIndex, Term), Known>,
    receiving: BTreeMap<GroupId, Receiving>,
    /// The last snapshot that each peer has received to its end.
    given: BTreeMap<(GroupId, NodeId), EntryId>,
    /// Of removed snapshots.
    remains: Vec<Box<dyn Remains>>,
}

/// Held during a change of names, so that a late task of a closed store changes nothing of the directory's next owner.
/// That lasts as long as the disk takes, so the state has a lock of its own: pruning, on a thread that must not wait,
/// takes only that one. Code that needs both takes this one first.
#[derive(Debug, Default)]
struct Names {
    /// The directory may have another owner: no name is changed any more.
    is_closed: bool,
}

/// The snapshots of one data directory. Clones are the same store; any thread may use it.
#[derive(Clone)]
pub struct SnapshotStore(Arc<Inner>);

struct Inner {
    files: Arc<dyn Files>,
    cluster: u64,
    state: Mutex<State>,
    names: Mutex<Names>,
    /// Held during a first check: another caller that wants its verdict waits for it. Comes before the two above.
    first_check: Mutex<()>,
}

impl fmt::Debug for SnapshotStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotStore({})", self.0.files.place())
    }
}

/// Checks every byte of the file `name`.
pub(crate) fn check(files: &dyn Files, cluster: u64, name: &str) -> Result<Snapshot, Unfit> {
    check_and_read(files, cluster, name, &mut Some)
}

/// As [`check`], and passes on each chunk; `take` returns memory for another one, or `None` to end this.
fn check_and_read(
    files: &dyn Files,
    cluster: u64,
    name: &str,
    take: &mut dyn FnMut(Vec<u8>) -> Option<Vec<u8>>,
) -> Result<Snapshot, Unfit> {
    let (group, last) = named(name).expect("the name of a snapshot");
    let file = files.open(name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => WalError::damaged(name, 0, "the file is missing"),
        _ => WalError::io(name, OPEN, &error),
    })?;
    let pass = Pass::begin(&*file, name)?;
    let Header { cluster: of, group: found, meta } = &pass.header;
    if (*of, *found, meta.last) != (cluster, group, last) {
        let what = format!(
            "a snapshot of cluster {of:x}, group {}, up to {}; expected cluster {cluster:x}, group {}, up to {last}",
            found.0, meta.last, group.0
        );
        return Err(Unfit::Foreign(WalError::damaged(name, 16, what)));
    }
    let given_up = || WalError::io(name, "read", &std::io::Error::other("given up"));
    let Checked { header, bytes, chunks } = pass.pass_on(take)?.ok_or_else(given_up)?;
    Ok(Snapshot { name: name.to_owned(), group, meta: header.meta, bytes, chunks })
}

impl SnapshotStore {
    /// The snapshots in `files`, of the cluster `cluster`. Nothing is read but names.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub fn of(files: Arc<dyn Files>, cluster: u64) -> Result<SnapshotStore, WalError> {
        let names = files.names().map_err(|error| WalError::io(&files.place(), "list", &error))?;
        let known = names.iter().filter_map(|name| named(name));
        let known = known.map(|(group, last)| ((group, last.index, last.term), Known::Unchecked)).collect();
        let state = Mutex::new(State { known, ..State::default() });
        let (names, first_check) = (Mutex::default(), Mutex::default());
        Ok(SnapshotStore(Arc::new(Inner { files, cluster, state, names, first_check })))
    }

    pub(super) fn files(&self) -> &dyn Files {
        &*self.0.files
    }

    pub(super) fn cluster(&self) -> u64 {
        self.0.cluster
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the store: reading goes on, but no snapshot is published or removed any more.
    pub(crate) fn close(&self) {
        let gathered = core::mem::take(&mut self.state().receiving);
        drop(gathered); // takes the lock to remove its files
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
    }

    /// Locks the names for a change of the file `name`; an error once the store is closed.
    fn open_names(&self, name: &str) -> Result<MutexGuard<'_, Names>, WalError> {
        let names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.is_closed {
            return Err(WalError::io(name, "change", &std::io::Error::other("the log was closed")));
        }
        Ok(names)
    }

    /// Removes a file aside. Once the store is closed, the directory's next owner does so.
    pub(super) fn discard(&self, aside: &str) -> Result<(), WalError> {
        let _names = self.open_names(aside)?;
        self.files().remove(aside).map_err(|error| WalError::io(aside, "remove", &error))
    }

    /// The last entries of a group's snapshots, newest first, good or not.
    fn ids(&self, group: GroupId) -> Vec<EntryId> {
        let state = self.state();
        let of_group = state.known.keys().filter(|(of, ..)| *of == group);
        of_group.map(|&(_, index, term)| EntryId { term, index }).rev().collect()
    }

    /// The snapshot that ends at `last`: `None` if there is none, an error if it is damaged. The first call reads all
    /// of it.
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::OtherFormat`]; [`WalError::Io`].
    pub fn get(&self, group: GroupId, last: EntryId) -> Result<Option<Snapshot>, WalError> {
        self.get_and_read(group, last, &mut Some)
    }

    /// As [`SnapshotStore::get`]; a first call passes on the chunks while it checks them. They are valid only if this
    /// returns the snapshot, and it may return one that was checked already, without any chunk. `take` returns memory that it
    /// needs no more, for another chunk, or `None` to end the check without a verdict.
    ///
    /// # Errors
    /// As [`SnapshotStore::get`]; [`WalError::Io`] if `take` ended it.
    pub fn get_and_read(
        &self,
        group: GroupId,
        last: EntryId,
        take: &mut dyn FnMut(Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<Option<Snapshot>, WalError> {
        let key = (group, last.index, last.term);
        if let Some(verdict) = self.verdict(key) {
            return verdict;
        }
        let _first_check = self.0.first_check.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = self.verdict(key) {
            return verdict; // of the check that was waited for
        }
        let name = name_of(group, last);
        let checked = check_and_read(self.files(), self.0.cluster, &name, take);
        let known = match &checked {
            Err(Unfit::Bad(WalError::Io { .. })) => Known::Unchecked, // a later read may succeed
            Ok(snapshot) => Known::Good(snapshot.clone()),
            Err(Unfit::Bad(error)) => Known::Bad(error.clone()),
            Err(Unfit::Foreign(error)) => Known::Foreign(error.clone()),
        };
        self.state().known.entry(key).and_modify(|old| *old = known);
        checked.map(Some).map_err(Unfit::into_error)
    }

    /// What is known of a snapshot; `None` before its first check.
    fn verdict(&self, key: (GroupId, LogIndex, Term)) -> Option<Result<Option<Snapshot>, WalError>> {
        match self.state().known.get(&key) {
            None => Some(Ok(None)),
            Some(Known::Good(snapshot)) => Some(Ok(Some(snapshot.clone()))),
            Some(Known::Bad(error) | Known::Foreign(error)) => Some(Err(error.clone())),
            Some(Known::Unchecked) => None,
        }
    }

    /// The last entry of the newest snapshot of a group, good or not. Reads nothing.
    #[must_use]
    pub fn newest_named(&self, group: GroupId) -> Option<EntryId> {
        self.ids(group).first().copied()
    }

    /// The newest good snapshot, and the defects of those that are newer.
    ///
    /// # Errors
    /// [`WalError::OtherFormat`], [`WalError::Newer`]: a newer version of Kattu wrote it, and must read it.
    pub fn newest(&self, group: GroupId) -> Result<(Option<Snapshot>, Vec<WalError>), WalError> {
        let mut bad = Vec::new();
        for last in self.ids(group) {
            match self.get(group, last) {
                Ok(Some(snapshot)) => return Ok((Some(snapshot), bad)),
                Ok(None) => {}
                Err(error @ (WalError::OtherFormat { .. } | WalError::Newer { .. })) => return Err(error),
                Err(error) => bad.push(error),
            }
        }
        Ok((None, bad))
    }

    /// Opens the snapshot that ends at `last` for reading; it can be read to its end even if it is removed meanwhile.
    /// `None` if there is none, or it is damaged.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub fn open(&self, group: GroupId, last: EntryId) -> Result<Option<SnapshotReader>, WalError> {
        let Ok(Some(snapshot)) = self.get(group, last) else { return Ok(None) };
        match self.files().open(&snapshot.name) {
            Ok(file) => Ok(Some(SnapshotReader::new(snapshot, file))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Otherwise the same snapshot, taken again, would be discarded in favour of this missing one.
                self.condemn(group, last, &WalError::damaged(&snapshot.name, 0, "the file is missing"));
                Ok(None)
            }
            Err(error) => Err(WalError::io(&snapshot.name, "open", &error)),
        }
    }

    /// A piece of a snapshot's file, for a peer.
    ///
    /// # Errors
    /// [`WalError::Io`]; the read may be retried.
    pub fn read_chunk(&self, group: GroupId, wanted: &ReadChunk) -> Result<ChunkRead, WalError> {
        let Some(reader) = self.open(group, wanted.last)? else { return Ok(ChunkRead::Gone) };
        let bytes = SharedBytes::from(reader.read_at(wanted.offset, wanted.bytes_max)?);
        let total = reader.snapshot().bytes;
        if total <= wanted.offset.saturating_add(bytes.len() as u64) {
            self.state().given.insert((group, wanted.peer), wanted.last);
        }
        Ok(ChunkRead::Bytes { bytes, total })
    }

    /// To be called before a piece is read for a peer. A peer that has received all of a snapshot and starts over may
    /// have found it damaged: then every byte of it is checked again. Returns its defect; no peer gets a piece of it
    /// any more.
    pub fn recheck_if_doubted(&self, group: GroupId, wanted: &ReadChunk) -> Option<WalError> {
        if wanted.offset != 0 {
            return None;
        }
        let given = self.state().given.remove(&(group, wanted.peer));
        given.filter(|&given| given == wanted.last).and_then(|last| self.recheck(group, last))
    }

    /// Checks every byte of a good snapshot again, after a piece of it could not be read. Returns its defect; then it
    /// is no longer good.
    pub fn recheck(&self, group: GroupId, last: EntryId) -> Option<WalError> {
        if !self.is_good(group, last) {
            return None;
        }
        // It stays good for its readers until the check ends.
        let error = check(self.files(), self.0.cluster, &name_of(group, last)).err()?.into_error();
        // A failure to open says nothing about the file: the process may have reached its limit of open files.
        let is_of_the_file = !matches!(error, WalError::Io { doing: OPEN, .. });
        (is_of_the_file && self.condemn(group, last, &error)).then_some(error)
    }

    /// Another check has found the file `name` damaged: it is no longer good. [fault-model ST12]
    pub fn found_damaged(&self, name: &str, what: &str) {
        if let Some((group, last)) = named(name) {
            self.condemn(group, last, &WalError::damaged(name, 0, what));
        }
    }

    /// Marks a snapshot as bad. Returns whether it was good or unchecked until now.
    fn condemn(&self, group: GroupId, last: EntryId, error: &WalError) -> bool {
        let mut state = self.state();
        match state.known.get_mut(&(group, last.index, last.term)) {
            Some(known @ (Known::Good(_) | Known::Unchecked)) => {
                *known = Known::Bad(error.clone());
                true
            }
            Some(Known::Bad(_) | Known::Foreign(_)) | None => false,
        }
    }

    fn is_good(&self, group: GroupId, last: EntryId) -> bool {
        matches!(self.state().known.get(&(group, last.index, last.term)), Some(Known::Good(_)))
    }

    /// Starts a snapshot of this member.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`].
    pub fn create(&self, group: GroupId, meta: SnapshotMeta) -> Result<SnapshotWriter, WalError> {
        SnapshotWriter::create(self, group, meta)
    }

    /// Stores a piece of a peer's snapshot. Each group gathers one snapshot at a time: a piece of another one replaces
    /// it. The last piece takes as long as checking the whole file.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`]; [`WalError::Damaged`], [`WalError::OtherFormat`] of a file that turns
    /// out damaged, or another one than announced: the gathered pieces are discarded, and the transfer starts over.
    /// After [`WalError::is_failed_sync`] the process must stop.
    pub fn store_chunk(&self, group: GroupId, piece: &StoreChunk) -> Result<ChunkStored, WalError> {
        self.store_readable_chunk(group, piece, |_| Ok(())).map(|(stored, _)| stored)
    }

    /// As [`SnapshotStore::store_chunk`], but `read` decodes the chunks once all have come and every byte was checked,
    /// before the snapshot exists. Returns the result of `read` with the last piece.
    ///
    /// # Errors
    /// As [`SnapshotStore::store_chunk`]; [`WalError::Unreadable`] with the error of `read`: the pieces are discarded.
    pub fn store_readable_chunk<T>(
        &self,
        group: GroupId,
        piece: &StoreChunk,
        read: impl FnOnce(&mut Chunks<'_>) -> Result<T, String>,
    ) -> Result<(ChunkStored, Option<T>), WalError> {
        let last = piece.meta.last;
        let so_far = |next| (ChunkStored { last, next, complete: false }, None);
        if matches!(self.get(group, last), Ok(Some(_))) {
            self.abandon(group);
            return Ok((ChunkStored { last, next: piece.total, complete: true }, None));
        }
        let before = self.state().receiving.remove(&group);
        let mut receiving = match before.filter(|before| before.is(group, &piece.meta, piece.total)) {
            Some(same) => same,
            None if piece.offset != 0 => return Ok(so_far(0)),
            None => Receiving::create(self, group, piece.meta.clone(), piece.total)?,
        };
        receiving.take(piece.offset, &piece.bytes)?;
        let next = receiving.next();
        if !receiving.is_whole() {
            let other = self.state().receiving.insert(group, receiving);
            drop(other); // takes the lock to remove its file
            return Ok(so_far(next));
        }
        let made = receiving.finish(read)?;
        Ok((ChunkStored { last, next, complete: true }, Some(made)))
    }

    /// Discards the gathered pieces of a peer's snapshot.
    pub fn abandon(&self, group: GroupId) {
        let gathered = self.state().receiving.remove(&group);
        drop(gathered); // takes the lock to remove its file
    }

    /// Gives a checked and synced file its name. A good one of that name stays instead: a peer may be reading it piece
    /// by piece.
    pub(super) fn publish(&self, aside: &str, snapshot: Snapshot) -> Result<Snapshot, WalError> {
        let key = (snapshot.group, snapshot.meta.last.index, snapshot.meta.last.term);
        if let Ok(Some(same)) = self.get(snapshot.group, snapshot.meta.last) {
            return self.discard(aside).map(|()| same);
        }
        let _names = self.open_names(&snapshot.name)?;
        crate::segment::publish(self.files(), aside, &snapshot.name, snapshot.bytes)?;
        self.state().known.insert(key, Known::Good(snapshot.clone()));
        Ok(snapshot)
    }

    /// Removes all but the newest two good snapshots of a group, oldest first. A file of another cluster stays, and so
    /// does a good one newer than `held`, the index of the group's tables: a peer's snapshot waits there to be loaded
    /// into the tables, and more may have come after it. Removes nothing before there are two good ones. Returns how
    /// many were removed. Also discards the gathered pieces of a peer's snapshot that ends at or before `held`: the log
    /// itself has come that far meanwhile. Reads unchecked ones: not for a thread that must not wait.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub fn tidy(&self, group: GroupId, held: LogIndex) -> Result<usize, WalError> {
        let gathered = self.state().receiving.get(&group).map(Receiving::last);
        if gathered.is_some_and(|last| last.index <= held) {
            self.abandon(group);
        }
        let (mut good, mut useless) = (0, Vec::new());
        for last in self.ids(group) {
            match self.get(group, last) {
                Ok(None) | Err(WalError::OtherFormat { .. } | WalError::Io { .. }) => {}
                Err(_) if self.is_foreign(group, last) => {} // not ours to remove
                Err(_) => useless.push(last),
                Ok(Some(_)) if good < KEPT => good += 1,
                Ok(Some(_)) if held < last.index => {}
                Ok(Some(_)) => useless.push(last),
            }
        }
        if good < KEPT {
            return Ok(0); // a damaged one may still be examined
        }
        for last in useless.iter().rev() {
            let name = name_of(group, *last);
            let _names = self.open_names(&name)?;
            self.state().known.remove(&(group, last.index, last.term)); // before its file: no reader gets it
            let removed = self.files().remove_large(&name);
            self.state().remains.extend(removed.map_err(|error| WalError::io(&name, "remove", &error))?);
            self.files().sync_names().map_err(|error| WalError::syncing(&name, &error))?;
        }
        Ok(useless.len())
    }

    /// Gives back some of the space of removed snapshots. Returns whether there is more. It may be left undone: the system
    /// takes all of it back when the store is dropped, but other syncs wait for that.
    pub fn shrink_removed(&self) -> bool {
        let Some(mut removed) = self.state().remains.pop() else { return false };
        let is_left = removed.shrink().unwrap_or(false); // what has no name is nobody's content
        let mut state = self.state();
        state.remains.extend(is_left.then_some(removed));
        !state.remains.is_empty()
    }

    /// Whether there is space of removed snapshots that was not given back yet.
    #[must_use]
    pub fn has_removed(&self) -> bool {
        !self.state().remains.is_empty()
    }

    /// Checks every byte of a group's good snapshots again. Returns the defects; such a snapshot is no longer good.
    /// [fault-model ST12]
    pub fn scrub(&self, group: GroupId) -> Vec<WalError> {
        self.ids(group).into_iter().filter_map(|last| self.recheck(group, last)).collect()
    }

    fn is_foreign(&self, group: GroupId, last: EntryId) -> bool {
        matches!(self.state().known.get(&(group, last.index, last.term)), Some(Known::Foreign(_)))
    }

    /// Whether a good snapshot, whose file is there, covers everything up to `base`. Waits for no disk.
    pub(crate) fn covers(&self, group: GroupId, base: LogIndex) -> bool {
        let state = self.state();
        let newer = state.known.range((group, base, Term(0))..=(group, LogIndex(u64::MAX), Term(u64::MAX)));
        newer.into_iter().any(|(_, known)| matches!(known, Known::Good(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFiles;
    use crate::files::{LockGuard, LogFile};
    use std::io;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A disk that reports when a change of names begins, and waits for the test before it goes on.
    #[derive(Debug)]
    struct Gated {
        disk: RealFiles,
        begins: mpsc::Sender<()>,
        goes_on: Mutex<mpsc::Receiver<()>>,
    }

    impl Gated {
        fn wait(&self) {
            let _ = self.begins.send(());
            let _ = self.goes_on.lock().expect("no panic").recv(); // returns at once when the test is over
        }
    }

    impl Files for Gated {
        fn place(&self) -> String {
            self.disk.place()
        }
        fn names(&self) -> io::Result<Vec<String>> {
            self.disk.names()
        }
        fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
            self.disk.open(name)
        }
        fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
            self.disk.create(name)
        }
        fn rename(&self, source: &str, target: &str) -> io::Result<()> {
            self.wait();
            self.disk.rename(source, target)
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.wait();
            self.disk.remove(name)
        }
        fn sync_names(&self) -> io::Result<()> {
            self.wait();
            self.disk.sync_names()
        }
        fn lock(&self, name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
            self.disk.lock(name)
        }
    }

    fn take(store: &SnapshotStore, index: u64) {
        let meta = SnapshotMeta { last: EntryId::new(1, index), ..SnapshotMeta::default() };
        let mut writer = store.create(GroupId(0), meta).expect("room");
        writer.push(b"state").expect("room");
        writer.finish().expect("a good disk");
    }

    #[test]
    fn the_space_of_a_large_snapshot_goes_back_in_steps() {
        let top = std::env::temp_dir().join(format!("kattu-wal-shrinks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let files = Arc::new(RealFiles::create(&top).expect("a folder"));
        let store = SnapshotStore::of(files.clone(), 0xC1).expect("an empty disk");
        let large = SnapshotMeta { last: EntryId::new(1, 1), ..SnapshotMeta::default() };
        let mut writer = store.create(GroupId(0), large).expect("room");
        (0..40).for_each(|_| writer.push(&[7; 1 << 20]).expect("room"));
        writer.finish().expect("a good disk");
        (2..=3).for_each(|index| take(&store, index));
        assert!(!store.has_removed() && !store.shrink_removed());
        assert_eq!(store.tidy(GroupId(0), LogIndex(u64::MAX)), Ok(1));
        assert_eq!(files.names().expect("names").len(), 2, "its name is gone at once");
        let steps: Vec<bool> = (0..4).map(|_| store.shrink_removed()).collect();
        assert_eq!((steps, store.has_removed()), (vec![true, true, false, false], false), "of 16 MiB each");
        (4..=5).for_each(|index| take(&store, index));
        assert_eq!(store.tidy(GroupId(0), LogIndex(u64::MAX)), Ok(2));
        assert!(!store.has_removed(), "small ones go at once");
        std::fs::remove_dir_all(&top).expect("our folder");
    }

    /// Goal: pruning the log never waits for a disk that is slow with names.
    /// Method: `covers` is called during each rename, removal and sync of names; with one lock it would wait for ever.
    #[test]
    fn whether_a_snapshot_covers_the_log_is_said_while_a_disk_is_at_another_ones_name() {
        let top = std::env::temp_dir().join(format!("kattu-wal-gated-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let disk = || RealFiles::create(&top).expect("a folder");
        let before = SnapshotStore::of(Arc::new(disk()), 0xC1).expect("an empty disk");
        (1..=4).for_each(|index| take(&before, 10 * index));
        let (begins, begun) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let gated = Gated { disk: disk(), begins, goes_on: Mutex::new(goes_on) };
        let store = SnapshotStore::of(Arc::new(gated), 0xC1).expect("a good disk");
        assert!(store.newest(GroupId(0)).expect("a good disk").0.is_some());
        let beside = store.clone();
        let work = std::thread::spawn(move || {
            take(&beside, 50);
            beside.tidy(GroupId(0), LogIndex(u64::MAX)).expect("a good disk")
        });
        let mut changes = 0;
        while begun.recv().is_ok() {
            changes += 1;
            let (told, answer) = mpsc::channel();
            let store = store.clone();
            std::thread::spawn(move || told.send(store.covers(GroupId(0), LogIndex(30))));
            assert_eq!(
                answer.recv_timeout(Duration::from_secs(20)),
                Ok(true),
                "it waits for change {changes}"
            );
            go_on.send(()).expect("it waits");
            if changes == 8 {
                break; // a rename and its sync; three removals, each with its sync
            }
        }
        assert_eq!((work.join().expect("no panic"), changes), (3, 8));
        assert_eq!(disk().names().expect("a good disk").len(), 2);
        std::fs::remove_dir_all(&top).expect("our folder");
    }

    #[test]
    fn names_are_read_as_they_are_written_and_nothing_else_is_a_snapshot() {
        let id = EntryId::new(3, 0x2A);
        let name = name_of(GroupId(7), id);
        assert_eq!(name, "snapshot-00000007-000000000000002a-0000000000000003.snap");
        assert_eq!(named(&name), Some((GroupId(7), id)));
        for other in [
            "snapshot-7-2a-3.snap",
            "snapshot-00000007-000000000000002A-0000000000000003.snap",
            "snapshot-00000007-000000000000002a-0000000000000003.snap.taken.part",
            "snapshot-00000007-000000000000002a.snap",
            "snapshot-.snap",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
