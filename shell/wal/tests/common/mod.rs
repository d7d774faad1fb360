//! A log and its naive twin: a list of everything that was ever appended. Whatever a disk looks like after a power cut,
//! the log that recovers from it must be the twin's at some moment between the last answered sync and the cut.
#![allow(dead_code)]

use kattu_raft::{
    Entry, EntryHead, EntryId, EntryKind, Form, GroupId, HardState, Incarnation, LogBody, LogIndex,
    LogRecord, Lsn, NodeId, Recovered, Stamp, Term,
};
use kattu_wal::sim::SimDisk;
use kattu_wal::{DataDir, Identity, Wal, WalError, WalOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(3)];

/// Segments of seven sectors for blocks, so that a few appends rotate.
pub const OPTIONS: WalOptions =
    WalOptions { segment_bytes: 8192, reserve_bytes: 0, window_bytes: 600, block_bytes: 2048 };

pub fn identity() -> Identity {
    Identity { groups: GROUPS.to_vec(), ..Identity::single(0xC1, NodeId(1), Incarnation(42), "n1") }
}

/// What a test does to a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Entries with payloads of these sizes.
    Entries(GroupId, Vec<usize>),
    /// The last so many entries go (never committed ones).
    Truncate(GroupId, u64),
    /// A newer term, and maybe a vote.
    Hard(GroupId, Option<u64>),
    /// The commit index moves to the end.
    Commit(GroupId),
    Write,
    Sync,
    Mark,
    /// The next segment is made ahead.
    Prepare,
    /// The process stops in good order and starts again.
    Restart,
}

/// One group at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub entries: Vec<Entry>,
    pub hard: HardState,
    pub commit: LogIndex,
    pub lsn: Lsn,
}

/// All moments of one group: one after each record.
#[derive(Clone, Debug)]
pub struct History {
    pub moments: Vec<Moment>,
    /// The moment that the last answered sync covers.
    pub acked: usize,
}

impl History {
    pub fn now(&self) -> &Moment {
        self.moments.last().expect("begins with an empty one")
    }
}

/// The twin.
#[derive(Clone, Debug)]
pub struct Twin {
    pub groups: BTreeMap<GroupId, History>,
    /// The creation of the directory was answered.
    pub created: bool,
}

impl Default for Twin {
    fn default() -> Twin {
        let history = || History { moments: vec![Moment::default()], acked: 0 };
        Twin { groups: GROUPS.iter().map(|&group| (group, history())).collect(), created: false }
    }
}

impl Twin {
    /// The record of `body`, noted.
    fn record(&mut self, group: GroupId, body: LogBody) -> LogRecord {
        let history = self.groups.get_mut(&group).unwrap();
        let mut moment = history.now().clone();
        moment.lsn = moment.lsn.next();
        match &body {
            LogBody::HardState(hard) => moment.hard = *hard,
            LogBody::Truncate(from) => moment.entries.truncate(from.0 as usize - 1),
            LogBody::Entry(entry) => moment.entries.push(entry.clone()),
            LogBody::Commit(index) => moment.commit = *index,
            LogBody::Base(base) => unreachable!("no story prunes up to {base} yet"),
        }
        let lsn = moment.lsn;
        history.moments.push(moment);
        LogRecord { lsn, body }
    }

    /// The records of one step, noted.
    pub fn records(&mut self, step: &Step) -> (GroupId, Vec<LogRecord>) {
        match step {
            Step::Entries(group, sizes) => {
                let records = sizes.iter().map(|&size| {
                    let now = self.groups[group].now();
                    let index = now.entries.len() as u64 + 1;
                    let entry = entry(*group, now.hard.term.0.max(1), index, now.lsn.0, size);
                    self.record(*group, LogBody::Entry(entry))
                });
                (*group, records.collect())
            }
            Step::Truncate(group, count) => {
                let now = self.groups[group].now();
                let (last, commit) = (now.entries.len() as u64, now.commit.0);
                let from = (last + 1).saturating_sub(*count).max(commit + 1);
                if last < from {
                    return (*group, Vec::new());
                }
                // A truncation follows from a newer leader: its term comes first.
                let term = now.hard.term.next();
                let hard = self.record(*group, LogBody::HardState(HardState { term, vote: None }));
                (*group, vec![hard, self.record(*group, LogBody::Truncate(LogIndex(from)))])
            }
            Step::Hard(group, vote) => {
                let term = self.groups[group].now().hard.term.next();
                let hard = HardState { term, vote: vote.map(NodeId) };
                (*group, vec![self.record(*group, LogBody::HardState(hard))])
            }
            Step::Commit(group) => {
                let now = self.groups[group].now();
                let last = LogIndex(now.entries.len() as u64);
                if now.commit == last {
                    return (*group, Vec::new());
                }
                (*group, vec![self.record(*group, LogBody::Commit(last))])
            }
            Step::Write | Step::Sync | Step::Mark | Step::Prepare | Step::Restart => (GROUPS[0], Vec::new()),
        }
    }

    /// A sync was answered.
    pub fn ack(&mut self) {
        for history in self.groups.values_mut() {
            history.acked = history.moments.len() - 1;
        }
    }
}

/// An entry whose payload tells where it belongs and in which life it was written.
pub fn entry(group: GroupId, term: u64, index: u64, life: u64, size: usize) -> Entry {
    let head = EntryHead {
        id: EntryId::new(term, index),
        kind: if size == 0 { EntryKind::Noop } else { EntryKind::Command },
        form: Form::Whole,
        stamp: Stamp(1000 + life),
    };
    let tag = format!("{}:{term}.{index}:{life};", group.0);
    let payload: Vec<u8> = tag.bytes().cycle().take(size).collect();
    kattu_wire::record_encode(crc32c::crc32c_append, group, head, &payload)
}

/// Opens the log, creating the directory first if it is new.
pub fn open(disk: &SimDisk, twin: &mut Twin) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
    let mut dir = DataDir::open(Arc::new(disk.clone()))?;
    if dir.identity().is_none() {
        assert!(!twin.created, "a directory whose creation was answered is there");
        dir.create(identity(), &OPTIONS)?;
        twin.created = true;
    }
    assert_eq!(dir.identity(), Some(&identity()));
    Wal::open(dir, OPTIONS)
}

/// Takes one step; the twin knows at every moment what may be on the disk.
pub fn step(disk: &SimDisk, wal: Wal, twin: &mut Twin, step: &Step) -> Result<Wal, WalError> {
    let mut wal = wal;
    let (group, records) = twin.records(step);
    wal.append(group, &records)?;
    match step {
        Step::Entries(..) | Step::Truncate(..) | Step::Hard(..) | Step::Commit(_) => {}
        Step::Write => wal.write()?,
        Step::Sync => {
            for (group, lsn) in wal.sync()? {
                assert_eq!(lsn, twin.groups[&group].now().lsn);
            }
            twin.ack();
        }
        Step::Mark => {
            wal.mark()?;
        }
        Step::Prepare => {
            if let Some(task) = wal.wants_segment() {
                wal.accept(task.run())?;
            }
        }
        Step::Restart => {
            wal.close()?;
            twin.ack();
            wal = open(disk, twin)?.0;
        }
    }
    Ok(wal)
}

/// Runs a story until it ends or the power does.
pub fn run(disk: &SimDisk, story: &[Step]) -> (Twin, Result<(), WalError>) {
    let mut twin = Twin::default();
    let outcome = (|| {
        let (mut wal, _) = open(disk, &mut twin)?;
        for now in story {
            wal = step(disk, wal, &mut twin, now)?;
        }
        Ok(())
    })();
    (twin, outcome)
}

/// Reads a group's whole log back.
pub fn read_all(wal: &mut Wal, group: GroupId, last: LogIndex) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    while let Some(next) = Some(LogIndex(entries.len() as u64 + 1)).filter(|next| *next <= last) {
        let more = wal.read(group, next, last, 300).expect("what was recovered can be read");
        assert!(!more.is_empty(), "entry {} of {} is missing", next.0, last.0);
        entries.extend(more);
    }
    entries
}

/// Checks what was recovered against the twin: nothing acknowledged is lost, nothing is invented.
pub fn check(twin: &Twin, wal: &mut Wal, recovered: &BTreeMap<GroupId, Recovered>) {
    for (&group, history) in &twin.groups {
        let found = &recovered[&group];
        let entries = read_all(wal, group, found.last.index);

        let possible = &history.moments[history.acked..];
        let at = possible.iter().position(|moment| moment.entries == entries).unwrap_or_else(|| {
            let shown = |entries: &[Entry]| {
                let shown = entries.iter().map(|entry| format!("{} of {}", entry.id(), entry.len()));
                shown.collect::<Vec<String>>().join(", ")
            };
            let was: Vec<String> = possible.iter().map(|moment| shown(&moment.entries)).collect();
            panic!(
                "group {}: the log [{}] never was one since the last answered sync, but was [{}]",
                group.0,
                shown(&entries),
                was.join("], [")
            )
        });
        // Term and vote are stored before the block they came with, so they may be ahead, never behind.
        let ahead = possible[at..].iter().any(|moment| moment.hard == found.hard);
        assert!(ahead, "group {}: {:?} is not of this or a later moment", group.0, found.hard);
        assert!(found.hard.term >= possible[0].hard.term, "group {}: the term went back", group.0);

        let newest = history.now();
        assert!(found.committed.0 <= entries.len() as u64);
        let known = history.moments.iter().any(|moment| moment.commit == found.committed);
        assert!(known, "group {}: commit mark {} never was one", group.0, found.committed.0);
        assert!(found.lsn <= newest.lsn, "record number {} was never used", found.lsn.0);

        assert_eq!(found.base, EntryId::default());
        let last = entries.last().map(|entry| entry.id()).unwrap_or_default();
        assert_eq!((found.last.index, entries.is_empty()), (last.index, found.last.index.0 == 0));
        if !entries.is_empty() {
            assert_eq!(found.last, last);
        }
        let mut term_starts: Vec<EntryId> = Vec::new();
        for id in entries.iter().map(Entry::id) {
            if term_starts.last().is_none_or(|start| start.term != id.term) {
                term_starts.push(id);
            }
        }
        assert_eq!(found.term_starts, term_starts);
        assert_eq!(found.tail.is_empty(), entries.is_empty());
        assert!(entries.ends_with(&found.tail));
        let bytes: usize = found.tail.iter().map(Entry::len).sum();
        assert!(bytes <= OPTIONS.window_bytes || found.tail.len() == 1);
        assert_eq!(found.stamp, entries.last().map_or(Stamp(0), |entry| entry.head.stamp));
    }
}

/// Recovers from an image, checks, recovers again, goes on writing, recovers once more.
pub fn recover(image: &SimDisk, twin: &Twin) {
    let _ = recovered_tails(image, twin);
}

/// As [`recover`]; returns how many torn tails were cut: 0 or 1.
pub fn recovered_tails(image: &SimDisk, twin: &Twin) -> u64 {
    let mut twin = twin.clone();
    let (mut wal, first) =
        open(image, &mut twin).unwrap_or_else(|error| panic!("a power cut is no damage: {error}"));
    check(&twin, &mut wal, &first);
    let torn = wal.stats().torn_tails;
    drop(wal);
    let (wal, again) = open(image, &mut twin).unwrap();
    assert_eq!(first, again, "recovery found something else the second time");
    assert_eq!(wal.stats().torn_tails, 0, "a torn tail is cut once");

    // Life goes on from what was recovered.
    let mut wal = wal;
    let mut after = BTreeMap::new();
    for (&group, found) in &first {
        let term = found.hard.term.0.max(found.last.term.0) + 1;
        let index = found.last.index.next().0;
        let hard = LogBody::HardState(HardState { term: Term(term), vote: Some(NodeId(1)) });
        let bodies = [hard, LogBody::Entry(entry(group, term, index, 77_777, 700))];
        let numbered = bodies.into_iter().zip(found.lsn.0 + 1..);
        let records: Vec<LogRecord> = numbered.map(|(body, lsn)| LogRecord { lsn: Lsn(lsn), body }).collect();
        wal.append(group, &records).unwrap();
        after.insert(group, EntryId::new(term, index));
    }
    wal.sync().unwrap();
    drop(wal);
    let (_, later) = open(image, &mut twin).unwrap();
    for (group, last) in after {
        assert_eq!(later[&group].last, last, "what was synced after a recovery is gone");
        assert_eq!(later[&group].hard.term, last.term, "a term stored after a recovery is gone");
    }
    torn
}
