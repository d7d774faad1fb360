//! Head start: the newest snapshot becomes tables while the log is read back.
//!
//! ```text
//!   this thread     the log: read, checked, replayed ───────────────▶ ┌ which snapshot the log goes on from
//!   kattu-check     the newest snapshot: read and checked, by chunks ─┤ it is good: its tables are there
//!   kattu-thaw        └▶ its chunks become tables ────────────────────┘ it is another, or damaged: read again
//! ```
//! Rules: tables count only once every byte of their file was checked, and only if the log asks for that very snapshot. In
//!        all other cases the start goes on as if there had been no head start, and finds and reports defects itself.
//! Knows nothing of: which snapshot fits the log, what is reported.

use kattu_member::snapshots::thaw_chunks;
use kattu_node::Keeper;
use kattu_raft::{EntryId, GroupId};
use kattu_wal::{Snapshot, SnapshotStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// Chunks that were checked and wait to become tables; this version writes them of 1 MiB at most.
const CHUNKS_AHEAD: usize = 4;

/// Tables in the making. Dropped, it gives them up.
pub(crate) struct HeadStart {
    last: EntryId,
    given_up: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<(Keeper, Snapshot)>>>,
}

impl HeadStart {
    /// Begins with the newest snapshot of a group; `None` if there is none, or no thread can be had.
    pub(crate) fn begin(store: SnapshotStore, group: GroupId) -> Option<HeadStart> {
        let last = store.newest_named(group)?;
        let given_up = Arc::new(AtomicBool::new(false));
        let stops = given_up.clone();
        let work = move || {
            let _abort = crate::AbortOnPanic;
            check_and_thaw(&store, group, last, &stops)
        };
        let thread = thread::Builder::new().name("kattu-check".into()).spawn(work).ok()?;
        Some(HeadStart { last, given_up, thread: Some(thread) })
    }

    /// The tables of the snapshot that ends at `last`, and its file, if this is the one and it is good.
    pub(crate) fn take(mut self, last: EntryId) -> Option<(Keeper, Snapshot)> {
        if self.last != last {
            return None;
        }
        self.thread.take()?.join().expect("a panic on its thread aborts")
    }
}

impl Drop for HeadStart {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has ended the process
        }
    }
}

/// A chunk that lends its memory: it goes back when the chunk is dropped.
struct Lent<'a> {
    chunk: Vec<u8>,
    back: &'a mpsc::Sender<Vec<u8>>,
}

impl AsRef<[u8]> for Lent<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let _ = self.back.send(std::mem::take(&mut self.chunk)); // after the last chunk it is not needed
    }
}

fn check_and_thaw(
    store: &SnapshotStore,
    group: GroupId,
    last: EntryId,
    given_up: &AtomicBool,
) -> Option<(Keeper, Snapshot)> {
    let stops = || given_up.load(Ordering::Relaxed);
    let (checked, chunks) = mpsc::sync_channel(CHUNKS_AHEAD);
    let (back, spare) = mpsc::channel();
    thread::scope(|scope| {
        let thaw = move || {
            let _abort = crate::AbortOnPanic;
            thaw_chunks(chunks.into_iter().map(|chunk| Lent { chunk, back: &back }), last, &stops)
        };
        let thaw = thread::Builder::new().name("kattu-thaw".into()).spawn_scoped(scope, thaw).ok()?;
        let snapshot = store.get_and_read(group, last, &mut |chunk| {
            checked.send(chunk).ok().filter(|()| !stops()).map(|()| spare.try_recv().unwrap_or_default())
        });
        drop(checked); // the last chunk was sent
        let keeper = thaw.join().expect("a panic on its thread aborts");
        Some((keeper.ok()??, snapshot.ok()??))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_disk::SimDisk;
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_node::contract::{KeeperEffects, KeeperTask, Tickets};
    use kattu_raft::{Entry, EntryHead, EntryKind, SnapshotMeta, Stamp, Term};

    const GROUP: GroupId = GroupId(0);

    fn store(disk: &SimDisk) -> SnapshotStore {
        SnapshotStore::of(Arc::new(disk.clone()), 0xC1).expect("a disk without faults")
    }

    /// A disk with a snapshot of a few values of 300 KiB each, and the keeper that it is of.
    fn written() -> (SimDisk, Snapshot, Keeper) {
        let mut keeper = Keeper::new(Vec::new());
        for number in 0..9 {
            let id = EntryId { term: Term(1), index: keeper.applied().next() };
            let put = Put { key: vec![number], value: vec![number; 300 << 10], ..Put::default() };
            let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(1) };
            let entry = Entry::new(head, encode_kv(&Command::Put(put)).into(), 0);
            keeper.handle(
                KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) },
                &mut KeeperEffects::default(),
            );
        }
        let disk = SimDisk::new();
        let last = EntryId { term: Term(1), index: keeper.applied() };
        let mut writer =
            store(&disk).create(GROUP, SnapshotMeta { last, ..SnapshotMeta::default() }).expect("room");
        keeper.pin().chunks().for_each(|chunk| writer.push(&chunk).expect("room"));
        (disk, writer.finish().expect("a good disk"), keeper)
    }

    #[test]
    fn tables_come_with_the_verdict_on_their_file() {
        let (disk, written, keeper) = written();
        let store = store(&disk);
        let begun = HeadStart::begin(store.clone(), GROUP).expect("there is a snapshot");
        let (tables, snapshot) = begun.take(written.meta.last).expect("it is good");
        assert_eq!((tables.store().digest(), &snapshot), (keeper.store().digest(), &written));
        assert_eq!(store.newest(GROUP), Ok((Some(written), Vec::new())));
    }

    #[test]
    fn tables_that_the_log_does_not_go_on_from_are_dropped() {
        let (disk, written, _) = written();
        let begun = HeadStart::begin(store(&disk), GROUP).expect("there is a snapshot");
        let other = EntryId { term: Term(2), ..written.meta.last };
        assert!(begun.take(other).is_none());
        assert!(HeadStart::begin(store(&SimDisk::new()), GROUP).is_none(), "there is none");
    }

    /// Goal: no tables of a damaged file, wherever the damage is, and the start finds it as it would have without this.
    #[test]
    fn a_damaged_snapshot_gives_no_tables_and_is_reported_as_ever() {
        let (disk, written, _) = written();
        let whole = disk.contents(&written.name).expect("it is there");
        for at in [70, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            disk.set_contents(&written.name, Some(bytes));
            let (here, without) = (store(&disk), store(&disk));
            let begun = HeadStart::begin(here.clone(), GROUP).expect("there is a snapshot");
            assert!(begun.take(written.meta.last).is_none(), "byte {at}");
            assert_eq!(here.newest(GROUP), without.newest(GROUP), "byte {at}");
        }
    }
}
