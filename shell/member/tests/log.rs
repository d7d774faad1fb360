//! Goal: a member's log answers for what the disk has taken and for nothing else, asks a full disk rarely, and tells the operator
//! of each change once.
//! Method: the log of production on a disk in memory that is full, or fails, when the test says so.

use kattu_disk::SimDisk;
use kattu_disk::twin::{GROUPS, Step, Twin, open};
use kattu_member::log::{Completion, FULL_RETRY, Log, LogSpace, Note, SegmentJob, Timed};
use kattu_member::log_orders::{Order, Orders, Turn, Underway, bytes_of};
use kattu_raft::{Duration, EntryId, Fetch, FetchFor, GroupId, Instant, LogBody, LogIndex, LogRecord, Lsn};

/// Not the first of the groups of the directory: what the other has made durable is another number.
const GROUP: GroupId = GROUPS[1];
const NOW: Instant = Instant(1_000_000_000);
/// What each call of the disk takes.
const TOOK: Duration = Duration::from_millis(3);

/// Bytes read back at once, however many are wanted.
const PIECE_BYTES: usize = 2 << 20;

struct Disk;

impl Timed for Disk {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        (call(), TOOK)
    }
}

/// A log with the records that it is to get.
struct Rig {
    disk: SimDisk,
    twin: Twin,
    log: Log,
}

impl Rig {
    fn new() -> Rig {
        let (disk, mut twin) = (SimDisk::new(), Twin::default());
        let (wal, _) = open(&disk, &mut twin).expect("a new directory");
        Rig { disk, twin, log: Log::new(wal, GROUP) }
    }

    /// The records of a step.
    fn records(&mut self, step: &Step) -> Vec<LogRecord> {
        self.twin.records(step).1
    }

    /// Entries with payloads of these sizes wait for the next sync. Returns the number of the last record.
    fn append(&mut self, sizes: &[usize]) -> Lsn {
        let records = self.records(&Step::Entries(GROUP, sizes.to_vec()));
        self.log.append(&records).expect("it takes them");
        records.last().expect("at least one").lsn
    }

    fn sync(&mut self, now: Instant) -> Completion {
        self.log.sync(now, &mut Disk).expect("the disk works or is full")
    }

    /// The disk takes nothing more.
    fn fill(&self) {
        self.disk.limit_to(Some(self.disk.bytes()));
    }

    /// The segment that is to be made is made, or cannot be. Returns the pause before that.
    fn make(&mut self) -> Duration {
        let SegmentJob { task, pause } = self.log.take_job().expect("one is to be made");
        assert!(self.log.take_job().is_none(), "once");
        self.log.made(task.run());
        pause
    }

    /// What the operator is told, by its name.
    fn told(&mut self) -> Vec<&'static str> {
        let name = |note: &Note| match note {
            Note::Full(_) => "full",
            Note::WrittenAfterAll => "written after all",
            Note::NoSegment(_) => "no segment",
            Note::RoomAgain => "room again",
        };
        self.log.take_notes().iter().map(name).collect()
    }
}

fn room(completion: Completion) -> LogSpace {
    match completion {
        Completion::Room(room) => room,
        other => panic!("{other:?}"),
    }
}

fn fetch(first: u64, last: u64, bytes_max: usize) -> Fetch {
    Fetch { purpose: FetchFor::Apply, first: LogIndex(first), last: LogIndex(last), bytes_max }
}

#[test]
fn a_sync_tells_the_last_record_of_its_group_and_the_time_unless_it_wrote_commit_marks_alone() {
    let mut rig = Rig::new();
    let last = rig.append(&[10, 10]);
    let told = match rig.sync(NOW) {
        Completion::Persisted(lsn, room, took) => (lsn, room.full, took),
        other => panic!("{other:?}"),
    };
    assert_eq!(told, (last, false, Some(TOOK)));
    let blocks = |rig: &Rig| rig.log.wal().stats().blocks;

    // Idle: the block of the commit mark, and the mark that everything is synced behind it. [Rule 2]
    let before = blocks(&rig);
    let commit = rig.records(&Step::Commit(GROUP));
    rig.log.append(&commit).expect("it takes them");
    let Completion::Persisted(lsn, _, took) = rig.sync(NOW) else { panic!("it is durable") };
    assert_eq!((lsn, took), (commit.last().expect("one").lsn, None));
    assert_eq!(blocks(&rig) - before, 1, "the mark, which tells the commit index, too");

    // Not idle, wherever the commit mark stands.
    for is_first in [true, false] {
        let before = blocks(&rig);
        rig.append(&[10]);
        rig.sync(NOW);
        let one = blocks(&rig) - before;
        let commit = rig.records(&Step::Commit(GROUP));
        let entries = rig.records(&Step::Entries(GROUP, vec![10]));
        let (before, batches) = (blocks(&rig), if is_first { [commit, entries] } else { [entries, commit] });
        // Numbers ascend in the order in which records are appended.
        let mut numbers: Vec<Lsn> = batches.iter().flatten().map(|record| record.lsn).collect();
        numbers.sort_unstable();
        for (batch, lsn) in batches.into_iter().zip(numbers) {
            let records: Vec<_> = batch.into_iter().map(|record| LogRecord { lsn, ..record }).collect();
            rig.log.append(&records).expect("it takes them");
        }
        let Completion::Persisted(_, _, took) = rig.sync(NOW) else { panic!("it is durable") };
        assert_eq!((took, blocks(&rig) - before), (Some(TOOK), one), "no mark behind it");
    }
    // The same in one piece.
    let mut rig = Rig::new();
    rig.append(&[10]);
    rig.sync(NOW);
    let before = blocks(&rig);
    let commit = rig.records(&Step::Commit(GROUP));
    let entry = rig.records(&Step::Entries(GROUP, vec![10]));
    rig.log.append(&[commit, entry].concat()).expect("it takes them");
    let Completion::Persisted(_, _, took) = rig.sync(NOW) else { panic!("it is durable") };
    assert_eq!((took, blocks(&rig) - before), (Some(TOOK), 1), "no mark behind it");
}

#[test]
fn a_full_disk_is_told_once_asked_rarely_and_answers_for_nothing_until_it_has_room() {
    let mut rig = Rig::new();
    rig.append(&[10]);
    rig.sync(NOW);
    rig.fill();
    assert!(rig.log.is_due(NOW) && !rig.log.is_blocked());
    let last = rig.append(&[900; 8]);
    let mut now = NOW;
    for told in [vec!["full"], vec![]] {
        assert!(room(rig.sync(now)).full);
        assert!(rig.log.is_blocked() && rig.log.room().full);
        assert_eq!(rig.told(), told, "once");
        assert!(!rig.log.is_due(now) && !rig.log.is_due(now + FULL_RETRY - Duration::from_nanos(1)));
        now += FULL_RETRY;
        assert!(rig.log.is_due(now), "as long after the last attempt, whenever the first was");
    }
    rig.disk.limit_to(None);
    match rig.sync(now) {
        Completion::Persisted(lsn, room, took) => {
            assert_eq!((lsn, room.full, took), (last, false, Some(TOOK)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.told(), ["written after all"]);
    assert!(rig.log.is_due(now) && !rig.log.is_blocked());
    rig.append(&[10]);
    rig.sync(now);
    assert_eq!(rig.told(), Vec::<&str>::new(), "once");
}

#[test]
fn a_segment_that_cannot_be_made_ends_growth_until_one_can_and_the_disk_is_asked_rarely() {
    let mut rig = Rig::new();
    rig.log.prepare_next();
    rig.fill();
    assert_eq!(rig.make(), Duration::ZERO, "nothing is known of a full disk");
    assert!(rig.log.has_made());
    assert!(room(rig.log.look().expect("the log goes on")).full);
    assert!(!rig.log.has_made() && !rig.log.is_blocked(), "records still find room");
    assert_eq!(rig.told(), ["no segment"]);
    assert_eq!(rig.make(), FULL_RETRY);
    assert!(room(rig.log.look().expect("the log goes on")).full);
    assert_eq!(rig.told(), Vec::<&str>::new(), "once");

    rig.disk.limit_to(None);
    assert_eq!(rig.make(), FULL_RETRY);
    let free = rig.log.room().free;
    let now = room(rig.log.look().expect("the log goes on"));
    assert!(!now.full && free < now.free, "{now:?}, {free} bytes before");
    assert_eq!(rig.told(), ["room again"]);
    // A sync takes a segment, too, and asks for the next without a pause.
    while rig.log.take_job().is_none() {
        rig.append(&[900; 3]);
        rig.sync(NOW);
    }
    assert_eq!(rig.told(), Vec::<&str>::new());
}

#[test]
fn a_sync_takes_the_segment_that_was_made() {
    let mut rig = Rig::new();
    rig.log.prepare_next();
    rig.make();
    rig.append(&[10]);
    rig.sync(NOW);
    assert!(!rig.log.has_made());
    rig.fill();
    rig.append(&[900; 6]);
    assert!(matches!(rig.sync(NOW), Completion::Persisted(..)), "it is in the segment that was made");
}

#[test]
fn a_log_that_has_failed_ends_at_its_next_call() {
    let mut rig = Rig::new();
    rig.log.prepare_next();
    rig.disk.fail_syncs_after(0);
    rig.make();
    assert!(rig.log.look().expect_err("a failed sync").is_failed_sync());

    let mut rig = Rig::new();
    rig.append(&[10]);
    rig.disk.fail_syncs_after(0);
    assert!(rig.log.sync(NOW, &mut Disk).expect_err("a failed sync").is_failed_sync());
    assert!(rig.log.append(&[]).is_err() && rig.log.take_notes().is_empty());
}

#[test]
fn entries_are_read_back_in_pieces_however_many_are_wanted() {
    let mut rig = Rig::new();
    // Three pieces, in syncs of their own: one sync may hold as much as one block.
    for _ in 0..6 {
        rig.append(&[PIECE_BYTES / 4; 2]);
        rig.sync(NOW);
    }
    let mut next = 1;
    for _ in 0..2 {
        let wanted = fetch(next, 12, usize::MAX);
        let planned = rig.log.plan(&wanted);
        let Completion::Fetched(asked, read) = rig.log.fetch(wanted.clone(), &mut Disk).expect("intact")
        else {
            panic!("entries")
        };
        assert_eq!(asked, wanted);
        let beside = rig.log.wal().reader().read(&planned).expect("intact");
        assert_eq!(beside, read, "what a reader beside the log finds");
        let bytes: usize = read.iter().map(|entry| entry.len()).sum();
        assert!(PIECE_BYTES / 2 < bytes && bytes <= PIECE_BYTES, "{bytes} bytes");
        assert_eq!(read[0].id().index, LogIndex(next));
        next += read.len() as u64;
    }
    let Completion::Fetched(_, few) = rig.log.fetch(fetch(1, 12, 1), &mut Disk).expect("intact") else {
        panic!("entries")
    };
    assert_eq!(few.len(), 1, "no more than was asked for");
}

/// What an order asks of the thread, by its name.
fn turn(orders: &mut Orders, log: &mut Log) -> &'static str {
    match orders.next(log).expect("the log works") {
        Turn::Sync => "sync",
        Turn::Fetch(_) => "fetch",
        Turn::FetchBeside(_) => "fetch beside",
        Turn::Look => "look",
        Turn::Return => "return",
        Turn::Close => "close",
        Turn::Idle => "idle",
    }
}

#[test]
fn records_are_one_group_until_something_is_to_be_read_or_nothing_is_left() {
    let mut rig = Rig::new();
    let mut orders = Orders::default();
    let persist = |rig: &mut Rig| Order::Persist(rig.records(&Step::Entries(GROUP, vec![10])));
    assert_eq!(turn(&mut orders, &mut rig.log), "idle", "nothing to sync");
    for order in [
        persist(&mut rig),
        Order::Look,
        persist(&mut rig),
        Order::Fetch(fetch(1, 2, 1)),
        Order::Fetch(fetch(1, 2, 1)),
        persist(&mut rig),
        Order::FetchBeside(fetch(1, 3, 1)),
        persist(&mut rig),
    ] {
        orders.push(order);
    }
    let turns: Vec<&str> = (0..9).map(|_| turn(&mut orders, &mut rig.log)).collect();
    assert_eq!(
        turns,
        ["look", "sync", "fetch", "fetch", "sync", "fetch beside", "sync", "idle", "idle"],
        "the look waits for no disk; a reading finds what was ordered before it on the disk"
    );
    assert!(rig.log.wal().is_dirty(), "the records were appended on the way");
    orders.push(persist(&mut rig));
    orders.push(Order::Return);
    orders.push(Order::Close);
    let turns: Vec<&str> = (0..4).map(|_| turn(&mut orders, &mut rig.log)).collect();
    assert_eq!(turns, ["return", "close", "sync", "idle"]);
}

#[test]
fn what_a_full_disk_has_refused_is_tried_again_when_the_thread_wakes() {
    let mut rig = Rig::new();
    let mut orders = Orders::default();
    orders.wake(&rig.log);
    assert_eq!(turn(&mut orders, &mut rig.log), "idle", "nothing was refused");
    rig.fill();
    rig.append(&[900; 8]);
    assert!(room(rig.sync(NOW)).full);
    assert_eq!(turn(&mut orders, &mut rig.log), "idle", "it waits until it is woken");
    orders.wake(&rig.log);
    assert_eq!([turn(&mut orders, &mut rig.log), turn(&mut orders, &mut rig.log)], ["sync", "idle"]);
    // An order that came meanwhile is still to be synced when a wake finds nothing refused.
    rig.disk.limit_to(None);
    rig.sync(NOW + FULL_RETRY);
    let records = rig.records(&Step::Entries(GROUP, vec![10]));
    orders.push(Order::Persist(records));
    orders.push(Order::Look);
    assert_eq!(turn(&mut orders, &mut rig.log), "look");
    orders.wake(&rig.log);
    assert_eq!(turn(&mut orders, &mut rig.log), "sync");
}

#[test]
fn space_is_less_by_the_entries_on_their_way_until_they_are_durable() {
    let mut rig = Rig::new();
    let batches: Vec<Vec<LogRecord>> =
        [100, 200, 300].map(|size| rig.records(&Step::Entries(GROUP, vec![size]))).into();
    let bytes: Vec<u64> = batches.iter().map(|records| bytes_of(records)).collect();
    for (records, &bytes) in batches.iter().zip(&bytes) {
        let [LogRecord { body: LogBody::Entry(entry), .. }] = &records[..] else { panic!("one entry") };
        assert_eq!((entry.len() as u64, Order::Persist(records.clone()).bytes()), (bytes, bytes));
    }
    assert_eq!(Order::Fetch(fetch(1, 1, 1)).bytes() + Order::Look.bytes() + Order::Close.bytes(), 0);
    let without_entries = [
        LogBody::Commit(LogIndex(1)),
        LogBody::Truncate(LogIndex(1)),
        LogBody::Base(EntryId::new(1, 1)),
        LogBody::VoteFloor(EntryId::new(1, 1)),
        LogBody::HardState(Default::default()),
    ];
    let without_entries = without_entries.map(|body| LogRecord { lsn: Lsn(9), body });
    assert_eq!(bytes_of(&without_entries), 0, "they have a place of their own");

    let mut underway = Underway::default();
    underway.ordered(&[]);
    assert!(underway.is_empty());
    batches.iter().for_each(|records| underway.ordered(records));
    let free = 10_000;
    let told = LogSpace { free, full: true };
    let less = |underway: &mut Underway, by: u64| {
        let LogSpace { free: left, full } = room(underway.less(Completion::Room(told), 7));
        assert_eq!((left, full), (free - by - 7, true));
    };
    less(&mut underway, bytes.iter().sum());
    let lsn = |at: usize| batches[at][0].lsn;
    // Two at once, as one sync takes them, and a number between two orders.
    for (upto, left) in [(Lsn(lsn(0).0 - 1), &bytes[..]), (lsn(1), &bytes[2..]), (lsn(2), &[])] {
        let by: u64 = left.iter().sum();
        match underway.less(Completion::Persisted(upto, told, Some(TOOK)), 7) {
            Completion::Persisted(lsn, LogSpace { free: left, full }, took) => {
                assert_eq!((lsn, left, full, took), (upto, free - by - 7, true, Some(TOOK)));
            }
            other => panic!("{other:?}"),
        }
        less(&mut underway, by);
    }
    assert!(underway.is_empty());
    underway.ordered(&batches[2]);
    let none = room(underway.less(Completion::Room(LogSpace { free: 1, full: false }), 0));
    assert_eq!(none, LogSpace { free: 0, full: false }, "more is on its way than there is room for");
}
