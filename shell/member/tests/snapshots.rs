//! The worker of snapshots on a clock of its own: what it does next, how long it waits, and what it tells.

use kattu_disk::{Fault, SimDisk};
use kattu_kv::api::{Command, Put};
use kattu_member::log::Timed;
use kattu_member::snapshots::{Done, End, Note, Order, RECEIVED_FOR, STORE_RETRY, Worker};
use kattu_node::Keeper;
use kattu_node::command::encode_kv;
use kattu_node::contract::{Event, KeeperEffects, KeeperTask, Tickets};
use kattu_node::frozen::Frozen;
use kattu_raft::{
    ChunkRead, ChunkStored, Duration, Entry, EntryHead, EntryId, EntryKind, GroupId, Instant, LogIndex,
    NodeId, ReadChunk, SharedBytes, SnapshotMeta, Stamp, StoreChunk, Term,
};
use kattu_wal::{Files, RealFiles, SnapshotStore};
use std::sync::Arc;

const GROUP: GroupId = GroupId(0);
const SECOND: Duration = Duration::from_secs(1);

struct AtOnce;

impl Timed for AtOnce {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        (call(), Duration::ZERO)
    }
}

/// A worker, and its time.
struct Bench {
    worker: Worker,
    now: Instant,
}

impl Bench {
    fn on(disk: &SimDisk, bytes_per_s: u64) -> Bench {
        let store = SnapshotStore::of(Arc::new(disk.clone()), 0xC1).expect("a disk without faults");
        Bench { worker: Worker::new(store, GROUP, bytes_per_s), now: Instant(1 << 40) }
    }

    fn new(bytes_per_s: u64) -> Bench {
        Bench::on(&SimDisk::new(), bytes_per_s)
    }

    fn step(&mut self) -> Done {
        self.worker.step(self.now, &mut AtOnce, &|| false).unwrap_or_else(|_| panic!("no sync fails"))
    }

    /// How long until the next step.
    fn wait(&self) -> Duration {
        self.worker.due(self.now).since(self.now)
    }

    /// Does what is due now, until something is told.
    fn told(&mut self) -> Option<Done> {
        while self.worker.due(self.now) <= self.now {
            match self.step() {
                Done::Nothing => {}
                done => return Some(done),
            }
        }
        None
    }

    /// Carries out an order; what it tells at once.
    fn does(&mut self, order: Order) -> Option<Done> {
        self.worker.push(order);
        self.told()
    }

    fn has(&self, last: EntryId) -> bool {
        self.worker.store().open(GROUP, last).expect("a good disk").is_some()
    }

    /// Takes a snapshot of a few values; returns what it covers.
    fn taken(&mut self) -> SnapshotMeta {
        let (meta, frozen) = tables(3);
        match self.does(Order::Take(meta.clone(), Box::new(frozen))) {
            Some(Done::Complete(last, Event::SnapshotTaken { .. })) if last == meta.last => meta,
            _ => panic!("it is not taken"),
        }
    }

    /// The tables of a snapshot that is to be installed.
    fn thawed(&mut self, meta: &SnapshotMeta) -> Box<Keeper> {
        match self.does(Order::Thaw(meta.clone())) {
            Some(Done::Thawed(_, keeper)) => keeper,
            _ => panic!("the tables up to {} do not come", meta.last),
        }
    }
}

fn put(keeper: &mut Keeper, key: Vec<u8>, value: Vec<u8>) {
    let id = EntryId { term: Term(1), index: keeper.applied().next() };
    let payload = encode_kv(&Command::Put(Put { key, value, ..Put::default() }));
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(1) };
    let entry = Entry::new(head, payload.into(), 0);
    let task = KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(1) };
    keeper.handle(task, &mut KeeperEffects::default());
}

/// Tables of some values of 100 KiB.
fn tables(values: usize) -> (SnapshotMeta, Frozen) {
    let mut keeper = Keeper::new(Vec::new());
    for number in 0..values {
        put(&mut keeper, format!("k{number}").into_bytes(), vec![b'x'; 100 << 10]);
    }
    let last = EntryId { term: Term(1), index: keeper.applied() };
    (SnapshotMeta { last, ..SnapshotMeta::default() }, keeper.pin())
}

/// Takes a snapshot on a clock that jumps to the moment the worker waits for. Returns the waits after each chunk, and the size that
/// was reported.
fn waits(bytes_per_s: u64, values: usize) -> (Vec<Duration>, u64) {
    let mut bench = Bench::new(bytes_per_s);
    assert_eq!(bench.worker.due(bench.now), Instant::NEVER, "there is nothing to write");
    let (meta, frozen) = tables(values);
    bench.worker.push(Order::Take(meta.clone(), Box::new(frozen)));
    assert_eq!(bench.wait(), Duration::ZERO);
    assert!(matches!(bench.step(), Done::Nothing));
    assert_eq!(bench.wait(), Duration::ZERO, "the first chunk waits for nothing");
    let (began, mut waits) = (bench.now, Vec::new());
    loop {
        match bench.step() {
            Done::Nothing => {}
            Done::Complete(_, Event::SnapshotTaken { meta: taken, bytes }) if taken == meta => {
                let notes = bench.worker.take_notes();
                assert!(matches!(notes[..], [Note::Taken(_, _, since)] if since == began), "{notes:?}");
                return (waits, bytes);
            }
            _ => panic!("it is not reported"),
        }
        let wait = bench.wait();
        if let Some(short) = wait.checked_sub(Duration::from_nanos(1)) {
            bench.now += short;
            assert!(matches!(bench.step(), Done::Nothing));
            assert_eq!(bench.wait(), Duration::from_nanos(1), "not a moment before");
            bench.now += Duration::from_nanos(1);
        }
        assert_eq!(bench.wait(), Duration::ZERO);
        waits.push(wait);
    }
}

#[test]
fn a_snapshot_takes_as_long_as_its_pace_wants_it_to_and_waits_after_every_chunk() {
    for pace in [1 << 20, 8 << 20] {
        let (waits, bytes) = waits(pace, 40);
        assert!(4 <= waits.len() && waits.iter().all(|wait| !wait.is_zero()), "{waits:?}");
        assert!(40 * (100 << 10) < bytes, "{bytes}");
        let sum: Duration = waits.iter().sum();
        // The file holds a little more than the chunks.
        let whole = SECOND * u32::try_from(bytes).expect("some MiB") / u32::try_from(pace).expect("some MiB");
        assert!(sum <= whole && whole <= sum + sum / 100, "{sum:?} of {whole:?}");
    }
}

#[test]
fn without_a_pace_no_chunk_waits() {
    let (waits, bytes) = waits(0, 40);
    assert!(4 <= waits.len() && waits.iter().all(Duration::is_zero), "{waits:?}");
    assert!(40 * (100 << 10) < bytes, "{bytes}");
}

#[test]
fn pieces_for_peers_are_read_between_two_chunks() {
    let mut bench = Bench::new(1 << 20);
    let (meta, frozen) = tables(3);
    bench.worker.push(Order::Take(meta.clone(), Box::new(frozen)));
    while bench.worker.is_taking() {
        bench.now += bench.wait();
        bench.step();
    }
    let (next, frozen) = tables(40);
    assert!(bench.does(Order::Take(next, Box::new(frozen))).is_none(), "the second chunk has to wait");
    assert!(bench.worker.is_taking() && !bench.wait().is_zero());
    let read = ReadChunk { peer: NodeId(2), last: meta.last, offset: 0, bytes_max: 64 << 10 };
    let done = bench.does(Order::Read(read));
    assert!(matches!(done, Some(Done::Told(Event::ChunkRead { read: ChunkRead::Bytes { .. }, .. }))));
    assert!(bench.worker.is_taking(), "it goes on");
}

#[test]
fn snapshots_that_wait_to_become_the_tables_stay() {
    let mut bench = Bench::new(0);
    // They arrive one after the other, while the keeper is busy.
    let metas: Vec<SnapshotMeta> = (1..=5)
        .map(|values| {
            let (meta, frozen) = tables(values);
            let mut writer = bench.worker.store().create(GROUP, meta.clone()).expect("room");
            frozen.chunks().for_each(|chunk| writer.push(&chunk).expect("room"));
            writer.finish().expect("a good disk");
            meta
        })
        .collect();
    for meta in &metas {
        assert!(bench.has(meta.last), "the snapshot up to {} is gone", meta.last);
        assert_eq!(bench.thawed(meta).applied(), meta.last.index);
        assert!(bench.told().is_none());
    }
    assert!(!bench.has(metas[2].last), "old ones go");
}

#[test]
fn old_snapshots_go_before_the_next_order_is_carried_out() {
    let mut bench = Bench::new(0);
    let metas: Vec<SnapshotMeta> = (1..=4).map(|values| tables(values).0).collect();
    for (values, meta) in (1..=4).zip(&metas) {
        let (_, frozen) = tables(values);
        assert!(matches!(bench.does(Order::Take(meta.clone(), Box::new(frozen))), Some(Done::Complete(..))));
    }
    assert!(bench.has(metas[1].last), "it is removed by a step of its own");
    let read = ReadChunk { peer: NodeId(2), last: metas[1].last, offset: 0, bytes_max: 64 << 10 };
    let done = bench.does(Order::Read(read));
    assert!(matches!(done, Some(Done::Told(Event::ChunkRead { read: ChunkRead::Gone, .. }))));
}

#[test]
fn what_a_copy_still_holds_at_its_end_is_freed_in_steps_between_which_peers_get_pieces() {
    const VERSIONS: usize = 100_000;
    const STEP: usize = 16_384;
    let mut bench = Bench::new(0);
    let old = bench.taken();
    let mut keeper = Keeper::new(Vec::new());
    (0..VERSIONS).for_each(|_| put(&mut keeper, b"k".to_vec(), b"v".to_vec()));
    let last = EntryId { term: Term(1), index: keeper.applied() };
    let meta = SnapshotMeta { last, ..SnapshotMeta::default() };
    // Nothing else holds those versions any more.
    let frozen = keeper.pin();
    drop(keeper);
    assert!(bench.told().is_none(), "it is tidy");
    bench.worker.push(Order::Take(meta, Box::new(frozen)));
    assert!(matches!(bench.step(), Done::Nothing), "it begins");
    let (mut steps, read) = (0, ReadChunk { peer: NodeId(2), last: old.last, offset: 0, bytes_max: 1 << 10 });
    let bytes = loop {
        match bench.step() {
            Done::Nothing => steps += 1,
            Done::Complete(_, Event::SnapshotTaken { bytes, .. }) => break bytes,
            _ => panic!("it is not taken"),
        }
        bench.worker.push(Order::Read(read.clone()));
        assert!(matches!(bench.step(), Done::Told(Event::ChunkRead { .. })), "a piece after each step");
    };
    let chunks = usize::try_from(bytes.div_ceil(1 << 20)).expect("a few");
    assert!(chunks + VERSIONS / STEP <= steps, "{steps} steps for {chunks} chunks");
}

#[test]
fn the_space_of_large_snapshots_goes_back_with_pauses_in_which_orders_are_carried_out() {
    const PAUSE: Duration = Duration::from_millis(20);
    let dir = std::env::temp_dir().join(format!("kattu-member-space-{}", std::process::id()));
    let files = RealFiles::create(&dir).expect("a directory");
    let store = SnapshotStore::of(Arc::new(files), 0xC1).expect("a good disk");
    let mut bench = Bench { worker: Worker::new(store, GROUP, 0), now: Instant(1 << 40) };
    // 40 MB each: three steps of 16 MiB. The last two stay.
    for values in [400, 401, 402] {
        let (meta, frozen) = tables(values);
        let done = bench.does(Order::Take(meta, Box::new(frozen)));
        assert!(matches!(done, Some(Done::Complete(..))));
    }
    assert!(matches!(bench.step(), Done::Nothing), "the name goes");
    let mut waits = Vec::new();
    while bench.worker.due(bench.now) != Instant::NEVER {
        waits.push(bench.wait());
        bench.now += bench.wait();
        assert!(matches!(bench.step(), Done::Nothing));
        if !bench.wait().is_zero() && bench.worker.due(bench.now) != Instant::NEVER {
            let last = tables(402).0.last;
            let read = ReadChunk { peer: NodeId(2), last, offset: 0, bytes_max: 1 << 10 };
            assert!(matches!(bench.does(Order::Read(read)), Some(Done::Told(Event::ChunkRead { .. }))));
        }
    }
    std::fs::remove_dir_all(&dir).expect("it is ours");
    assert_eq!(waits, [Duration::ZERO, PAUSE, PAUSE], "the first step at once");
}

#[test]
fn a_leader_hears_of_a_piece_that_could_not_be_stored_after_a_pause_in_which_nothing_else_is_done() {
    let disk = SimDisk::new();
    let (mut leader, mut follower) = (Bench::new(0), Bench::on(&disk, 0));
    let meta = leader.taken();
    let request = ReadChunk { peer: NodeId(2), last: meta.last, offset: 0, bytes_max: 64 << 10 };
    let Some(Done::Told(Event::ChunkRead { read: ChunkRead::Bytes { bytes, total }, .. })) =
        leader.does(Order::Read(request.clone()))
    else {
        panic!("it is there")
    };
    let piece = StoreChunk { meta: meta.clone(), offset: 0, bytes, total };
    disk.arm(Fault::NoRoom, 0);
    assert!(follower.does(Order::Store(piece.clone())).is_none(), "not at once");
    assert!(matches!(follower.worker.take_notes()[..], [Note::NotStored(_)]));
    assert_eq!(follower.wait(), STORE_RETRY);
    assert!(matches!(follower.step(), Done::Nothing), "a step before that is none");
    assert_eq!(follower.wait(), STORE_RETRY);
    assert!(follower.does(Order::Read(request.clone())).is_none(), "nothing else meanwhile");
    follower.now += STORE_RETRY;
    let again = ChunkStored { last: meta.last, next: 0, complete: false };
    assert!(matches!(follower.step(), Done::Told(Event::ChunkStored(stored)) if stored == again));
    assert!(matches!(follower.step(), Done::Told(Event::ChunkRead { .. })), "then what waited");
    assert!(
        matches!(follower.does(Order::Store(piece)), Some(Done::Told(Event::ChunkStored(stored))) if 0 < stored.next)
    );
}

#[test]
fn a_snapshot_that_cannot_be_read_when_it_is_to_be_installed_is_the_end() {
    let disk = SimDisk::new();
    let mut bench = Bench::on(&disk, 0);
    let meta = bench.taken();
    let name = disk.names().expect("a good disk").remove(0);
    disk.set_contents(&name, None);
    assert!(bench.told().is_none());
    bench.worker.push(Order::Thaw(meta));
    let end = bench.worker.step(bench.now, &mut AtOnce, &|| false);
    assert!(matches!(end, Err(End::Thaw(_))), "the log begins after it");
}

/// The workers of a leader and a follower, and the stream between them, as raft drives it.
struct Stream {
    leader: Bench,
    follower: Bench,
    meta: SnapshotMeta,
}

impl Stream {
    fn read(&mut self, offset: u64) -> ChunkRead {
        let request = ReadChunk { peer: NodeId(2), last: self.meta.last, offset, bytes_max: 64 << 10 };
        match self.leader.does(Order::Read(request)) {
            Some(Done::Told(Event::ChunkRead { read, .. })) => read,
            _ => panic!("a reading has an answer"),
        }
    }

    fn store(&mut self, offset: u64, bytes: SharedBytes, total: u64) -> ChunkStored {
        let piece = StoreChunk { meta: self.meta.clone(), offset, bytes, total };
        let mut done = self.follower.does(Order::Store(piece));
        if done.is_none() {
            self.follower.now += self.follower.wait();
            done = self.follower.told();
        }
        match done {
            Some(Done::Told(Event::ChunkStored(stored)) | Done::Complete(_, Event::ChunkStored(stored))) => {
                stored
            }
            _ => panic!("a piece has an answer"),
        }
    }

    /// Sends pieces until the follower has all of them, or none is left. Returns how often it began anew.
    fn run(&mut self) -> (bool, usize) {
        let (mut offset, mut begun) = (0, 0);
        loop {
            begun += usize::from(offset == 0);
            assert!(begun < 10, "it is sent again and again");
            match self.read(offset) {
                ChunkRead::Gone => return (false, begun),
                ChunkRead::Bytes { bytes, total } => {
                    let stored = self.store(offset, bytes, total);
                    if stored.complete {
                        return (true, begun);
                    }
                    offset = stored.next;
                }
            }
        }
    }
}

fn streaming(disk: &SimDisk) -> Stream {
    let mut leader = Bench::on(disk, 0);
    let meta = leader.taken();
    Stream { leader, follower: Bench::new(0), meta }
}

#[test]
fn a_damaged_snapshot_is_sent_once_and_then_another_one_is() {
    let disk = SimDisk::new();
    let mut stream = streaming(&disk);
    let name = disk.names().expect("a good disk").remove(0);
    let mut bytes = disk.contents(&name).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    disk.set_contents(&name, Some(bytes));
    assert_eq!(stream.run(), (false, 2), "it begins anew once, and is gone");
    // The same snapshot is taken again: there was no write since.
    assert_eq!(stream.leader.taken(), stream.meta);
    assert_eq!(stream.run(), (true, 1));
}

#[test]
fn a_snapshot_that_the_disk_does_not_give_back_any_more_is_gone_and_not_asked_for_for_ever() {
    let disk = SimDisk::new();
    let mut stream = streaming(&disk);
    stream.leader.told();
    disk.arm(Fault::ReadFails, 0);
    let passing = stream.read(0);
    assert!(matches!(&passing, ChunkRead::Bytes { bytes, .. } if bytes.is_empty()), "{passing:?}");
    assert!(matches!(stream.read(0), ChunkRead::Bytes { bytes, .. } if !bytes.is_empty()), "it passed");
    (0..2).for_each(|_| disk.arm(Fault::ReadFails, 0));
    assert_eq!(stream.read(0), ChunkRead::Gone);
    assert_eq!(stream.read(0), ChunkRead::Gone);
}

#[test]
fn an_unreadable_snapshot_leaves_nothing_behind_and_ends_no_member() {
    let (mut stream, meta) = (streaming(&SimDisk::new()), SnapshotMeta::default());
    for chunks in [vec![b"no tables".to_vec()], vec![]] {
        let last = EntryId { term: Term(2), index: LogIndex(7) };
        stream.meta = SnapshotMeta { last, ..meta.clone() };
        let leader = stream.leader.worker.store();
        let mut writer = leader.create(GROUP, stream.meta.clone()).expect("room");
        chunks.iter().for_each(|chunk| writer.push(chunk).expect("room"));
        writer.finish().expect("every byte of it is as its sender wants it");
        let ChunkRead::Bytes { bytes, total } = stream.read(0) else { panic!("it is there") };
        let piece = StoreChunk { meta: stream.meta.clone(), offset: 0, bytes, total };
        let done = stream.follower.does(Order::Store(piece));
        assert!(matches!(done, Some(Done::Told(Event::SnapshotUnreadable { last: told })) if told == last));
        assert!(!stream.follower.has(last), "nothing of it is left");
        stream.leader = Bench::new(0);
    }
}

#[test]
fn what_was_read_when_it_came_is_not_read_again_and_not_kept_for_ever() {
    for is_wanted in [true, false] {
        let mut stream = streaming(&SimDisk::new());
        assert_eq!(stream.run(), (true, 1));
        let follower = &mut stream.follower;
        assert!(follower.told().is_none());
        assert_eq!(follower.wait(), RECEIVED_FOR, "it is kept for the order to install it");
        if is_wanted {
            assert_eq!(follower.thawed(&stream.meta).applied(), stream.meta.last.index);
            follower.told();
            assert_eq!(follower.worker.due(follower.now), Instant::NEVER, "it is not kept twice");
        } else {
            follower.now += RECEIVED_FOR;
            assert!(follower.told().is_none());
            assert_eq!(follower.worker.due(follower.now), Instant::NEVER, "it is forgotten");
            assert_eq!(
                follower.thawed(&stream.meta).applied(),
                stream.meta.last.index,
                "the file is still there"
            );
        }
    }
}

#[test]
fn what_was_read_when_it_came_is_not_taken_for_another_snapshot() {
    let mut stream = streaming(&SimDisk::new());
    assert_eq!(stream.run(), (true, 1));
    let follower = &mut stream.follower;
    let (meta, frozen) = tables(5);
    assert!(matches!(follower.does(Order::Take(meta.clone(), Box::new(frozen))), Some(Done::Complete(..))));
    assert_eq!(follower.thawed(&meta).applied(), meta.last.index);
}
