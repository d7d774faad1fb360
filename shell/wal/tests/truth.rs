//! Goal: whatever a disk does wrong, the recovered log holds everything that a sync acknowledged, or is refused by
//! name; it is never wrong, and never silently shorter. Method: seeded stories of appends, truncations, votes, commits
//! and restarts on a disk that does one thing wrong, or two; the disk itself returns which outcomes are right.
//! [fault-model F06, F10–F17]
//!
//! `KATTU_TRUTH_STORIES=n` runs n stories of each kind (default 150); a failure names its seed, and
//! `KATTU_TRUTH_SEED=s` runs that one alone.

use kattu_disk::twin::{GROUPS, Moment, OPTIONS, Step, Twin};
use kattu_disk::{Damage, Dice, Fault, FaultId, Place, SimDisk, Speed, Truth};
use kattu_raft::{EntryId, GroupId, LogBody, LogRecord, Recovered};
use kattu_wal::{DataDir, Wal, WalError, WalOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

const PLACES: [Place; 10] = [
    Place::LogHead,
    Place::LogMiddle,
    Place::LogTail,
    Place::LogEnd,
    Place::LogHeader,
    Place::Slot,
    Place::Slots,
    Place::Identity,
    Place::Snapshot,
    Place::SnapshotBefore,
];

/// One life after the other of one member on one disk.
struct Life {
    disk: SimDisk,
    twin: Twin,
    options: WalOptions,
    dice: Dice,
    /// The events so far, for the message of a failure.
    story: Vec<String>,
    /// How often each fault had an effect.
    counts: BTreeMap<FaultId, u64>,
    /// The acknowledged moment of each group before the last call.
    before: BTreeMap<GroupId, usize>,
    /// Reading back may fail.
    is_hurt: bool,
    /// An operation failed since the last note.
    failed_just_now: bool,
    /// A start that was cut off may have cut away blocks that no block calls synced.
    may_forget: bool,
    /// Steps that come before the random ones, last one first.
    script: Vec<Step>,
    /// Nothing more can be asked of this disk.
    is_over: bool,
    /// Snapshots are taken and the log is pruned.
    prunes: bool,
    /// Starts of a log that was pruned.
    pruned: u64,
    /// Where the segments' blocks ended after the last power cut.
    cut_at: BTreeMap<String, usize>,
}

/// How a start ended.
#[allow(clippy::large_enum_variant)] // lives for a line
enum Start {
    Running(Wal),
    /// It refused, as it should.
    Refused,
    /// Acknowledged data may be gone unnoticed: nothing more can be asked of this disk.
    Forgetful,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::seeded(dice.roll(), Speed::SOLID);
        let reserve_bytes = if dice.one_in(3) { 8192 } else { 0 };
        let options = WalOptions { reserve_bytes, ..OPTIONS };
        let (twin, story, counts) = (Twin::default(), Vec::new(), BTreeMap::new());
        Life {
            may_forget: false,
            script: Vec::new(),
            is_over: false,
            prunes: false,
            pruned: 0,
            cut_at: BTreeMap::new(),
            disk,
            twin,
            options,
            dice,
            story,
            counts,
            before: BTreeMap::new(),
            is_hurt: false,
            failed_just_now: false,
        }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.failed_just_now = false;
        for fired in self.disk.take_fired() {
            self.failed_just_now |= matches!(fired.id, FaultId::F11 | FaultId::F12 | FaultId::F13);
            *self.counts.entry(fired.id).or_default() += 1;
            self.story.push(format!("  {} {}", fired.id, fired.what));
        }
        self.story.push(what.into());
    }

    fn step(&mut self) -> Step {
        if let Some(step) = self.script.pop() {
            return step;
        }
        let dice = &mut self.dice;
        let group = GROUPS[dice.below(2) as usize];
        let size = |dice: &mut Dice| match dice.below(8) {
            0 => 4000 + dice.below(5000) as usize,
            1 | 2 => 300 + dice.below(1200) as usize,
            _ => dice.below(120) as usize,
        };
        match dice.below(if self.prunes { 28 } else { 20 }) {
            20 => Step::Config(group, dice.below(3)),
            21 | 22 => Step::Snapshot(group),
            23 | 24 => Step::Base(group, dice.below(2) as usize),
            25 if dice.one_in(2) => Step::Install(group, 1 + dice.below(5)),
            25 => Step::InstallOver(group),
            26 => Step::Tidy(group),
            27 => Step::Prepare,
            0..6 => Step::Entries(group, (0..1 + dice.below(3)).map(|_| size(dice)).collect()),
            6 => Step::Truncate(group, 1 + dice.below(4)),
            7 => Step::Hard(group, (!dice.one_in(3)).then(|| 1 + dice.below(3))),
            8 | 9 => Step::Commit(group),
            10 | 11 => Step::Write,
            12..17 => Step::Sync,
            17 => Step::Mark,
            18 => Step::Prepare,
            _ => Step::Restart,
        }
    }

    fn open(&mut self) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
        let mut dir = DataDir::open(Arc::new(self.disk.mount()))?;
        if dir.identity().is_none() {
            assert!(!self.twin.created, "a directory whose creation was answered is there");
            dir.create(kattu_disk::twin::identity(), &self.options)?;
            self.twin.created = true;
        }
        dir.expect(0xC1, kattu_raft::NodeId(1))?;
        Wal::open(dir, self.options)
    }

    /// Starts a process and compares its result with the truth.
    fn start(&mut self) -> Start {
        let mut truth = self.disk.truth();
        if self.may_forget {
            truth = truth.max(Truth::MayForget);
        }
        self.note("next");
        self.story.pop();
        match self.open() {
            Ok((mut wal, recovered)) => {
                self.disk.disarm(); // what is read back now is looked at
                let torn = wal.stats().torn_tails;
                self.note(format!("start, {truth:?}, {torn} torn"));
                assert_ne!(truth, Truth::Refuse, "started on a damaged disk");
                if truth == Truth::MayForget {
                    return Start::Forgetful;
                }
                kattu_disk::twin::check(&self.twin, &mut wal, &recovered);
                self.pruned += u64::from(recovered.values().any(|found| found.base != EntryId::default()));
                self.fork(&mut wal, &recovered);
                Start::Running(wal)
            }
            Err(error) => {
                self.note(format!("start, {truth:?}: {error}"));
                if self.failed_just_now && truth != Truth::Refuse && matches!(error, WalError::Io { .. }) {
                    // The disk failed the start itself: it is tried again after a crash.
                    self.crash();
                    return self.start();
                }
                match &error {
                    WalError::Damaged { file, what, .. } => assert!(!file.is_empty() && !what.is_empty()),
                    WalError::Foreign { .. } => {}
                    WalError::Io { doing: "read", file, .. } => assert!(!file.is_empty()),
                    other => panic!("not an answer to damage: {other:?}"),
                }
                assert_ne!(truth, Truth::Whole, "refused a disk on which nothing promised is lost");
                self.disk.process_dies(u64::MAX);
                if truth == Truth::MayForget { Start::Forgetful } else { Start::Refused }
            }
        }
    }

    /// The history goes on from the recovered state: records that the cut took never existed.
    fn fork(&mut self, wal: &mut Wal, recovered: &BTreeMap<GroupId, Recovered>) {
        for (&group, history) in &mut self.twin.groups {
            let found = &recovered[&group];
            let entries = kattu_disk::twin::read_all(wal, group, found.last.index);
            let is_it = |at: &usize| {
                let moment = &history.moments[*at];
                moment.base == found.base && moment.entries == entries
            };
            // A snapshot that was stored and not yet in the log is installed by the start.
            let at = (history.acked..history.moments.len()).find(is_it).unwrap_or(history.acked);
            let mut now: Moment = history.moments[at].clone();
            (now.base, now.entries) = (found.base, entries);
            let store = wal.snapshots();
            history.good.retain(|last| matches!(store.get(group, *last), Ok(Some(_))));
            now.hard = found.hard;
            now.commit = found.committed;
            now.lsn = found.lsn;
            history.moments.truncate(at + 1);
            history.moments.push(now);
            history.acked = history.moments.len() - 1;
        }
    }

    /// Another member, of the same cluster, with a log of its own.
    fn grow_other(&mut self) {
        let mut dir = DataDir::open(Arc::new(self.disk.mount())).unwrap();
        if dir.identity().is_none() {
            let mut identity = kattu_disk::twin::identity();
            (identity.node.0, identity.incarnation.0) = (2, 43);
            dir.create(identity, &OPTIONS).unwrap();
        }
        let (mut wal, recovered) = Wal::open(dir, OPTIONS).unwrap();
        let found = &recovered[&GROUPS[0]];
        let (next, lsn) = (found.last.index.0 + 1, found.lsn.0 + 1);
        for at in 0..6 {
            let entry = kattu_disk::twin::entry(GROUPS[0], 1, next + at, 5, 20 * at as usize);
            let record = LogRecord { lsn: kattu_raft::Lsn(lsn + at), body: LogBody::Entry(entry) };
            wal.append(GROUPS[0], &[record]).unwrap();
            wal.sync().unwrap();
        }
        drop(wal);
        self.disk.process_dies(u64::MAX);
    }

    /// Runs until the log fails or `steps` are over; the error of an open log must be one of `errors`.
    fn run(&mut self, mut wal: Wal, steps: u64) -> Result<Wal, WalError> {
        for _ in 0..steps {
            let step = self.step();
            let (group, records) = self.twin.records(&step);
            self.disk.begin();
            self.before = self.twin.groups.iter().map(|(&group, history)| (group, history.acked)).collect();
            if let Err(error) =
                kattu_disk::twin::store_snapshots(&wal.snapshots(), &mut self.twin, &step, group, &records)
            {
                // Nothing of it reached the log.
                let history = self.twin.groups.get_mut(&group).unwrap();
                history.moments.truncate(history.moments.len() - records.len());
                self.note(format!("{step:?} failed: {error}"));
                if !matches!(error, WalError::NoSpace { .. }) {
                    return Err(error); // the log does not go on after that
                }
                self.disk.limit_to(None);
                self.disk.limit_files_to(None);
                continue;
            }
            let done = wal.append(group, &records).and_then(|()| self.carry_out(&mut wal, &step));
            let what = format!("{step:?}{}", if done.is_ok() { "" } else { " failed" });
            self.note(what);
            match done {
                Ok(()) => {}
                Err(WalError::NoSpace { .. }) => {
                    // Nothing was acknowledged; there is space again later.
                    self.disk.limit_to(None);
                    self.disk.limit_files_to(None);
                }
                Err(error) => {
                    self.before.clear();
                    let again = wal.sync().expect_err("a log that failed does nothing more");
                    assert!(matches!(again, WalError::Poisoned { .. }), "{error}, then {again}");
                    return Err(error);
                }
            }
            if step == Step::Restart {
                let closed = wal.close();
                self.note(format!("close: {closed:?}"));
                self.disk.process_dies(u64::MAX);
                self.before.clear();
                closed?;
                self.ack();
                wal = match self.start() {
                    Start::Running(again) => again,
                    Start::Refused => self.heal(),
                    Start::Forgetful => {
                        self.is_over = true;
                        return Err(WalError::Poisoned { first: "over".to_owned() });
                    }
                };
            }
        }
        Ok(wal)
    }

    fn ack(&mut self) {
        for history in self.twin.groups.values_mut() {
            history.acked = history.moments.len() - 1;
        }
    }

    fn carry_out(&mut self, wal: &mut Wal, step: &Step) -> Result<(), WalError> {
        match step {
            Step::Write => wal.write(),
            Step::Sync => {
                for (group, lsn) in wal.sync()? {
                    assert_eq!(lsn, self.twin.groups[&group].now().lsn);
                }
                self.ack();
                Ok(())
            }
            Step::Mark => wal.mark().map(|_| ()),
            Step::Prepare => match wal.wants_segment().map(kattu_wal::SegmentTask::run) {
                Some(made) => match wal.accept(made) {
                    // A task may be repeated; only a failed sync is the end.
                    Err(error) if wal.append(GROUPS[0], &[]).is_err() => Err(error),
                    _ => Ok(()),
                },
                None => Ok(()),
            },
            Step::Beside(..) => unreachable!("truth asks for segments one at a time"),
            Step::Entries(..)
            | Step::Truncate(..)
            | Step::Hard(..)
            | Step::Commit(_)
            | Step::Restart
            | Step::VoteHold(_)
            | Step::Config(..)
            | Step::Snapshot(_)
            | Step::Base(..)
            | Step::Install(..)
            | Step::InstallOver(_)
            | Step::Tidy(_) => Ok(()),
        }
    }

    /// The process, and maybe the machine, stops, maybe in the middle of what it did last.
    fn crash(&mut self) {
        let spent = self.disk.spent();
        let mut elapsed = u64::MAX;
        if self.dice.one_in(2) && !self.before.is_empty() {
            // The last call was not answered: a sync in it acknowledged nothing.
            elapsed = self.dice.below(spent + 1);
            for (group, acked) in &self.before {
                let history = self.twin.groups.get_mut(group).unwrap();
                history.acked = history.acked.min(*acked);
            }
        }
        self.before.clear();
        if self.dice.one_in(3) {
            self.disk.process_dies(elapsed);
            if self.dice.one_in(2) {
                self.disk.drop_cache();
            }
            self.note(format!("process dies {elapsed} of {spent} ns into its call"));
        } else {
            let seed = self.dice.roll();
            self.disk.power_fails(seed, elapsed);
            self.note(format!("power fails {elapsed} of {spent} ns into its call"));
        }
    }

    /// Starts; one start in four is cut off, and again.
    fn start_with_cuts(&mut self) -> Start {
        while self.dice.one_in(4) {
            let operations = self.dice.below(30);
            self.may_forget |= self.disk.truth() == Truth::MayForget;
            self.disk.lose_power_after(operations);
            let opened = self.open();
            let is_cut = self.disk.is_out();
            assert!(is_cut || opened.is_ok() || self.disk.truth() != Truth::Whole, "{opened:?}");
            let opened_ok = opened.is_ok();
            drop(opened);
            if !is_cut && opened_ok {
                self.disk.begin();
            }
            self.note(format!("a start is cut after {operations} operations: {is_cut}"));
            self.crash();
        }
        self.start()
    }

    /// Reads everything back and compares it with the written entries.
    fn read_back(&mut self, wal: &mut Wal) {
        if wal.write().is_err() {
            return;
        }
        for (&group, history) in &self.twin.groups {
            let entries = &history.now().entries;
            let (first, last) = (history.now().base.index.0 + 1, history.now().last().index);
            let mut next = first;
            while next <= last.0 {
                match wal.read(group, kattu_raft::LogIndex(next), last, 700) {
                    Ok(read) => {
                        let at = (next - first) as usize;
                        assert!(!read.is_empty(), "entry {next} of group {} is missing", group.0);
                        assert_eq!(read[..], entries[at..at + read.len()]);
                        next += read.len() as u64;
                    }
                    Err(WalError::Damaged { .. } | WalError::Io { doing: "read", .. }) => {
                        assert!(self.is_hurt, "damage was read where there is none");
                        return;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    /// After a start that refused, the next one refuses, too; once the disk is as it should be, everything is there.
    fn heal(&mut self) -> Wal {
        self.disk.disarm();
        if self.disk.truth() == Truth::Refuse {
            assert!(matches!(self.start(), Start::Refused), "refused once, and not again");
        }
        self.disk.heal();
        self.is_hurt = false;
        assert_eq!(self.disk.truth(), Truth::Whole);
        self.note("healed");
        match self.start() {
            Start::Running(wal) => wal,
            _ => panic!("a healed disk"),
        }
    }
}

/// The faults in a story.
#[derive(Clone, Copy, Debug)]
enum Kind {
    PowerCuts,
    FailedSyncs,
    FailedWrites,
    FullDisk,
    Lies,
    FailedReads,
    AtRest,
    /// Old blocks appear behind the log's end.
    Leftovers,
    Anything,
}

fn any_fault(dice: &mut Dice, kind: Kind) -> Fault {
    match kind {
        Kind::FailedSyncs if dice.one_in(6) => Fault::NameSyncFails,
        Kind::FailedSyncs => {
            Fault::SyncFails { survive_percent: dice.below(3) as u8 * 50, forget: dice.one_in(2) }
        }
        Kind::FailedWrites if dice.one_in(4) => Fault::NoRoom,
        Kind::FailedWrites => Fault::WriteFails { done_percent: dice.below(101) as u8 },
        Kind::FailedReads => Fault::ReadFails,
        _ if dice.one_in(2) => Fault::WriteLost,
        _ => Fault::WriteMisdirected,
    }
}

fn any_damage(dice: &mut Dice) -> Damage {
    let place = PLACES[dice.below(PLACES.len() as u64) as usize];
    match dice.below(10) {
        0..3 => Damage::Flip(place),
        3 => Damage::Unreadable(place),
        4 | 5 => Damage::Stale(place),
        6 => Damage::Misplaced(place),
        7 => Damage::Missing(place),
        8 => Damage::Truncated(place),
        9 if dice.one_in(4) => Damage::Leftover,
        _ => Damage::Foreign(place),
    }
}

/// Fills the space behind the log's end, in segments that were made ahead, with old blocks: of other segments of this
/// log at the same offsets, of another member, and of this member's own lost tails.
fn put_leftovers(life: &mut Life, before_the_cut: &BTreeMap<String, Vec<u8>>, other: &SimDisk) {
    let names: Vec<String> = before_the_cut.keys().cloned().collect();
    for name in &names {
        let Some(mut bytes) = life.disk.contents(name) else { continue };
        let sources = [
            // The lost tail may appear again, but not right where it was lost: then it is the tail.
            before_the_cut.get(name).filter(|_| life.has_gone_on(name, before_the_cut)).cloned(),
            life.disk.contents(&names[life.dice.below(names.len() as u64) as usize]),
            other.contents(name),
        ];
        let source =
            if sources[0].is_some() && life.dice.one_in(2) { 0 } else { life.dice.below(3) as usize };
        let Some(source) = &sources[source] else { continue };
        // The block behind the last one is left free, or not: both happen.
        let start = end_of_blocks(&bytes) + 512 * life.dice.below(2) as usize;
        let end = bytes.len().min(source.len());
        if start < end {
            bytes[start..end].copy_from_slice(&source[start..end]);
            life.disk.set_contents(name, Some(bytes));
            life.story.push(format!("  old blocks in {name} from {start} on"));
        }
    }
}

/// Where the blocks of a segment end, by their own lengths.
fn end_of_blocks(bytes: &[u8]) -> usize {
    let mut at = 4096;
    while bytes.get(at..at + 4) == Some(b"KTBK") {
        let len = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap()) as usize;
        at = (at + len).next_multiple_of(512);
    }
    at
}

impl Life {
    /// Scripts a sync and so many small blocks after it. Returns how many steps that takes.
    fn write_small_ones(&mut self, count: u64) -> u64 {
        for _ in 0..count {
            let size = self.dice.below(60) as usize;
            self.script.extend([Step::Write, Step::Entries(GROUPS[0], vec![size])]);
        }
        self.script.push(Step::Sync);
        self.script.len() as u64
    }

    /// Whether the block at the cut is another than before the power cut.
    fn has_gone_on(&self, name: &str, before: &BTreeMap<String, Vec<u8>>) -> bool {
        let at = self.cut_at.get(name).copied();
        let sector = |bytes: &[u8]| at.and_then(|at| bytes.get(at..at + 512)).map(<[u8]>::to_vec);
        let (now, old) = (self.disk.contents(name), before.get(name).and_then(|bytes| sector(bytes)));
        let now = now.and_then(|bytes| sector(&bytes));
        now != old && now.is_some_and(|bytes| bytes[0] != 0) && old.is_some()
    }
}

fn segments(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    use kattu_wal::Files;
    let names = disk.mount().names().unwrap().into_iter().filter(|name| name.ends_with(".seg"));
    names.map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

fn tell(life: &mut Life, kind: Kind) {
    let mut other = Life::new(life.dice.roll());
    let mut before_the_cut = BTreeMap::new();
    // Old blocks behind the end look like those of a recycled segment: not in these stories.
    life.prunes = !matches!(kind, Kind::Leftovers) && !life.dice.one_in(4);
    // A disk that lies or fails to read does so with snapshots, too, and only their checksums can show it.
    life.twin.snapshots_may_be_hurt =
        matches!(kind, Kind::Lies | Kind::FailedReads | Kind::AtRest | Kind::Anything);
    for _ in 0..2 + life.dice.below(4) {
        let mut wal = match life.start_with_cuts() {
            Start::Running(wal) => wal,
            Start::Refused => life.heal(),
            Start::Forgetful => return,
        };
        life.disk.begin();
        let kind = match kind {
            Kind::Anything => {
                let all = [
                    Kind::PowerCuts,
                    Kind::FailedSyncs,
                    Kind::FailedWrites,
                    Kind::FullDisk,
                    Kind::Lies,
                    Kind::FailedReads,
                    Kind::AtRest,
                ];
                all[life.dice.below(all.len() as u64) as usize]
            }
            other => other,
        };
        match kind {
            Kind::FullDisk => {
                let room = life.dice.below(3) * life.dice.below(9000);
                life.disk.limit_to(Some(life.disk.bytes() + room));
                if life.dice.one_in(3) {
                    life.disk.limit_files_to(Some(0));
                }
            }
            Kind::FailedSyncs | Kind::FailedWrites | Kind::Lies | Kind::FailedReads => {
                let fault = any_fault(&mut life.dice, kind);
                life.is_hurt |= matches!(kind, Kind::Lies | Kind::FailedReads);
                life.disk.arm(fault, life.dice.below(8));
                life.story.push(format!("armed {fault:?}"));
            }
            _ => {}
        }
        let mut steps = 1 + life.dice.below(30);
        if matches!(kind, Kind::Leftovers) {
            // A tail of small blocks that no block calls synced.
            steps = life.write_small_ones(5);
        }
        match life.run(wal, steps) {
            Ok(again) => {
                wal = again;
                if matches!(kind, Kind::AtRest) && life.dice.one_in(4) {
                    // Also while it runs: reads return the right bytes or fail.
                    let damage =
                        [Damage::Flip, Damage::Unreadable, Damage::Stale][life.dice.below(3) as usize];
                    let damage = damage(PLACES[life.dice.below(3) as usize]);
                    life.is_hurt |= life.disk.damage(damage, life.dice.roll()).is_some();
                }
                if life.dice.one_in(2) {
                    life.disk.drop_cache();
                }
                life.read_back(&mut wal);
                drop(wal);
            }
            Err(_) if life.is_over => return,
            Err(error) => {
                let is_foreseen = matches!(
                    (kind, &error),
                    (Kind::FailedSyncs, WalError::Io { doing: "sync", .. })
                        | (Kind::FailedSyncs | Kind::FailedWrites, WalError::Io { .. })
                        | (Kind::FullDisk | Kind::FailedWrites, WalError::NoSpace { .. })
                        | (Kind::FailedReads, WalError::Io { .. })
                );
                assert!(is_foreseen, "{kind:?}: {error}");
            }
        }
        life.disk.limit_to(None);
        life.disk.limit_files_to(None);
        life.disk.disarm();
        if matches!(kind, Kind::Leftovers) {
            before_the_cut = segments(&life.disk);
        }
        life.crash();
        match kind {
            Kind::AtRest => {
                for _ in 0..1 + u64::from(life.dice.one_in(6)) {
                    let damage = any_damage(&mut life.dice);
                    life.is_hurt |= life.disk.damage(damage, life.dice.roll()).is_some();
                }
                if life.dice.one_in(8) {
                    // A backup was mixed up with another member's.
                    other.grow_other();
                    let place = PLACES[life.dice.below(PLACES.len() as u64) as usize];
                    life.is_hurt |= life.disk.mix_up_with(&other.disk, place, life.dice.roll()).is_some();
                }
            }
            Kind::Leftovers => {
                let Start::Running(wal) = life.start() else { panic!("after a power cut") };
                let ends =
                    segments(&life.disk).into_iter().map(|(name, bytes)| (name, end_of_blocks(&bytes)));
                life.cut_at = ends.collect();
                other.grow_other();
                life.disk.begin();
                let few = life.dice.below(3);
                let few = life.write_small_ones(few);
                drop(life.run(wal, few).expect("nothing fails here"));
                life.crash();
                put_leftovers(life, &before_the_cut, &other.disk);
            }
            _ => {}
        }
    }
    match life.start_with_cuts() {
        Start::Running(wal) => drop(wal),
        Start::Refused => drop(life.heal()),
        Start::Forgetful => {}
    }
}

fn tell_all(kind: Kind, salt: u64) -> BTreeMap<FaultId, u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("KATTU_TRUTH_SEED") {
        Some(seed) => seed..seed + 1,
        None => salt..salt + number("KATTU_TRUTH_STORIES").unwrap_or(150),
    };
    let (mut counts, mut pruned) = (BTreeMap::new(), 0);
    for seed in seeds.clone() {
        let mut life = Life::new(seed);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tell(&mut life, kind)));
        if let Err(panic) = told {
            eprintln!("{}", life.story.join("\n"));
            let test = std::thread::current().name().unwrap_or("truth::").to_owned();
            eprintln!("repeat: KATTU_TRUTH_SEED={seed} cargo test -p kattu-wal {test}");
            std::panic::resume_unwind(panic);
        }
        pruned += life.pruned;
        for (id, count) in life.counts {
            *counts.entry(id).or_default() += count;
        }
    }
    println!("{kind:?}: {} stories, {counts:?}, {pruned} starts of a pruned log", seeds.end - seeds.start);
    let is_one = seeds.end == seeds.start + 1;
    assert!(is_one || matches!(kind, Kind::Leftovers) || 40 < pruned, "{pruned} starts of a pruned log");
    counts
}

fn assert_seen(counts: &BTreeMap<FaultId, u64>, ids: &[FaultId]) {
    if std::env::var_os("KATTU_TRUTH_SEED").is_none() {
        for id in ids {
            assert!(20 <= counts.get(id).copied().unwrap_or(0), "{id} was hardly seen: {counts:?}");
        }
    }
}

#[test]
fn power_cuts_lose_nothing_synced() {
    assert_seen(&tell_all(Kind::PowerCuts, 0), &[FaultId::F10]);
}

#[test]
fn a_failed_sync_ends_the_process_and_loses_nothing_synced_before() {
    assert_seen(&tell_all(Kind::FailedSyncs, 1 << 20), &[FaultId::F10, FaultId::F11]);
}

#[test]
fn a_failed_or_short_write_ends_the_process_and_loses_nothing_synced() {
    assert_seen(&tell_all(Kind::FailedWrites, 2 << 20), &[FaultId::F10, FaultId::F12]);
}

#[test]
fn a_full_disk_is_waited_for_and_loses_nothing_synced() {
    assert_seen(&tell_all(Kind::FullDisk, 3 << 20), &[FaultId::F10, FaultId::F12]);
}

#[test]
fn lost_and_misdirected_writes_are_found_wherever_something_vouches_for_them() {
    assert_seen(&tell_all(Kind::Lies, 4 << 20), &[FaultId::F10, FaultId::F14]);
}

#[test]
fn a_failed_read_is_an_error_and_never_a_shorter_log() {
    assert_seen(&tell_all(Kind::FailedReads, 5 << 20), &[FaultId::F13]);
}

#[test]
fn damage_at_rest_is_refused_by_name_wherever_something_vouches_for_what_was_there() {
    assert_seen(&tell_all(Kind::AtRest, 6 << 20), &[FaultId::F13, FaultId::F14, FaultId::F15]);
}

#[test]
fn old_blocks_behind_the_end_are_not_taken_for_the_logs() {
    assert_seen(&tell_all(Kind::Leftovers, 7 << 20), &[FaultId::F10]);
}

#[test]
fn one_fault_after_the_other_is_survived_or_refused() {
    assert_seen(&tell_all(Kind::Anything, 8 << 20), &[FaultId::F10, FaultId::F11, FaultId::F12]);
}
