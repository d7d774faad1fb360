//! A log and its naive twin: a list of everything that was ever appended. For every disk that a power cut can leave,
//! the recovered log must be the twin's at some moment between the last answered sync and the cut.

use crate::{Dice, SimDisk};
use kattu_raft::{
    Body, Entry, EntryHead, EntryId, EntryKind, GroupId, HardState, Incarnation, LogBody, LogIndex,
    LogRecord, Lsn, Membership, NodeId, Recovered, SharedBytes, SnapshotMeta, Stamp, StoreChunk, Term,
};
use kattu_wal::{DataDir, Identity, InitialMember, SegmentTask, SnapshotStore, Wal, WalError, WalOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The groups whose logs share the directory.
pub const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(3)];

/// Segments of seven sectors for blocks, so that a few appends rotate.
pub const OPTIONS: WalOptions = WalOptions {
    segment_bytes: 8192,
    reserve_bytes: 0,
    window_bytes: 600,
    block_bytes: 2048,
    sector_bytes: 512,
};

/// The identity of the directory.
pub fn identity() -> Identity {
    Identity { groups: GROUPS.to_vec(), ..Identity::single(0xC1, NodeId(1), Incarnation(42), "n1") }
}

/// When the log syncs, relative to the task that runs beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meanwhile {
    /// Before the task begins.
    Before,
    /// Before it gives a segment its name.
    During,
    /// When it is done, and before the log accepts it.
    After,
}

impl Meanwhile {
    /// One of the three.
    pub fn drawn(dice: &mut Dice) -> Meanwhile {
        [Meanwhile::Before, Meanwhile::During, Meanwhile::After][dice.below(3) as usize]
    }
}

/// A step of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Entries with payloads of these sizes.
    Entries(GroupId, Vec<usize>),
    /// So many of the last entries are truncated (never committed ones).
    Truncate(GroupId, u64),
    /// A newer term, and maybe a vote.
    Hard(GroupId, Option<u64>),
    /// A configuration, with so many learners.
    Config(GroupId, u64),
    /// The commit index moves to the end.
    Commit(GroupId),
    /// A snapshot of the committed entries is taken.
    Snapshot(GroupId),
    /// The log is pruned up to the end of the newest snapshot, or of one before it.
    Base(GroupId, usize),
    /// A peer's snapshot is installed: one that ends so far behind the log's end.
    Install(GroupId, u64),
    /// The same, of one that contradicts the log above the commit index.
    InstallOver(GroupId),
    /// Snapshots that are no longer needed are removed.
    Tidy(GroupId),
    /// What was appended is written, not synced.
    Write,
    /// What was appended is synced.
    Sync,
    /// An idle log writes its synced mark.
    Mark,
    /// The next segment is made ahead; unneeded ones are removed or recycled.
    Prepare,
    /// The same beside the log, which syncs these entries meanwhile.
    Beside(GroupId, Vec<usize>, Meanwhile),
    /// The process stops in good order and starts again.
    Restart,
    /// The same; the new process grants vote holds of so many milliseconds, and records that before it opens the log.
    VoteHold(u64),
}

/// One group at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The last entry that a snapshot covers and the log has dropped.
    pub base: EntryId,
    /// The entries after the base.
    pub entries: Vec<Entry>,
    /// Term and vote.
    pub hard: HardState,
    /// The newest commit mark.
    pub commit: LogIndex,
    /// The number of the newest record.
    pub lsn: Lsn,
}

impl Moment {
    /// The last entry, or the base.
    pub fn last(&self) -> EntryId {
        self.entries.last().map_or(self.base, Entry::id)
    }

    /// The entry, or the base, at `index`.
    fn at(&self, index: LogIndex) -> Option<EntryId> {
        let ids = self.entries.iter().map(Entry::id).chain([self.base]);
        ids.into_iter().find(|id| id.index == index)
    }

    fn truncate(&mut self, from: LogIndex) {
        self.entries.retain(|entry| entry.id().index < from);
    }

    fn rebase(&mut self, base: EntryId) {
        if self.at(base.index) != Some(base) {
            self.entries.clear();
        }
        self.entries.retain(|entry| base.index < entry.id().index);
        self.base = base;
        self.commit = self.commit.max(base.index);
    }
}

/// All moments of one group: one after each record.
#[derive(Clone, Debug)]
pub struct History {
    /// From the empty log on, one after each record.
    pub moments: Vec<Moment>,
    /// Every snapshot that was ever begun.
    pub snapshots: BTreeMap<EntryId, SnapshotMeta>,
    /// Those of them that are durable.
    pub good: Vec<EntryId>,
    /// The moment that the last answered sync covers.
    pub acked: usize,
}

impl History {
    /// The newest moment.
    pub fn now(&self) -> &Moment {
        self.moments.last().expect("begins with an empty one")
    }
}

/// The twin.
#[derive(Clone, Debug)]
pub struct Twin {
    /// The history of each group.
    pub groups: BTreeMap<GroupId, History>,
    /// The creation of the directory was answered.
    pub created: bool,
    /// The directory is made for a member that joins a cluster.
    pub joins: bool,
    /// The vote holds that may be on the disk: the last one whose writing was answered, and one that was begun since.
    pub vote_holds: Vec<Duration>,
    /// The disk may have lied about snapshots: a missing or damaged one is accepted, a wrong one is not.
    pub snapshots_may_be_hurt: bool,
    /// The padding of the log's blocks.
    pub sectors: Sectors,
}

/// The padding of the blocks of a twin's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sectors {
    /// 512 bytes.
    #[default]
    Narrow,
    /// 4096 bytes.
    Wide,
    /// 512 bytes, and 4096 at every second start: the log has blocks of both kinds.
    Both {
        /// Whether it was 4096 at the last start.
        wide: bool,
    },
}

impl Twin {
    /// The options of the next start.
    fn options(&mut self) -> WalOptions {
        if let Sectors::Both { wide } = &mut self.sectors {
            *wide = !*wide;
        }
        match self.sectors {
            Sectors::Wide | Sectors::Both { wide: true } => {
                WalOptions { segment_bytes: 8 * 4096, sector_bytes: 4096, ..OPTIONS }
            }
            Sectors::Narrow | Sectors::Both { wide: false } => OPTIONS,
        }
    }
}

impl Default for Twin {
    fn default() -> Twin {
        let history = || History {
            moments: vec![Moment::default()],
            snapshots: BTreeMap::new(),
            good: Vec::new(),
            acked: 0,
        };
        let groups = GROUPS.iter().map(|&group| (group, history())).collect();
        let vote_holds = vec![Duration::ZERO];
        Twin {
            groups,
            created: false,
            joins: false,
            vote_holds,
            snapshots_may_be_hurt: false,
            sectors: Sectors::Narrow,
        }
    }
}

impl Twin {
    /// The identity of the directory.
    fn identity(&self) -> Identity {
        let whom = |id: u64| InitialMember {
            id: NodeId(id),
            name: format!("n{id}"),
            peer_urls: vec![format!("http://10.0.0.{id}:2380")],
        };
        let joined = self.joins.then(|| vec![whom(2), whom(3), whom(1)]);
        Identity { joined, ..identity() }
    }

    /// The record of `body`, noted.
    fn record(&mut self, group: GroupId, body: LogBody) -> LogRecord {
        let history = self.groups.get_mut(&group).unwrap();
        let mut moment = history.now().clone();
        moment.lsn = moment.lsn.next();
        match &body {
            LogBody::HardState(hard) => moment.hard = *hard,
            LogBody::Truncate(from) => moment.truncate(*from),
            LogBody::Base(base) => moment.rebase(*base),
            LogBody::Entry(entry) => moment.entries.push(entry.clone()),
            LogBody::Commit(index) => moment.commit = *index,
            LogBody::VoteFloor(vote_floor) => unreachable!("nobody tells of a loss up to {vote_floor} here"),
        }
        let lsn = moment.lsn;
        history.moments.push(moment);
        LogRecord { lsn, body }
    }

    /// The records of one step, noted.
    pub fn records(&mut self, step: &Step) -> (GroupId, Vec<LogRecord>) {
        match step {
            Step::Entries(group, sizes) | Step::Beside(group, sizes, _) => {
                let records = sizes.iter().map(|&size| {
                    let now = self.groups[group].now();
                    let index = now.last().index.0 + 1;
                    let entry = entry(*group, now.hard.term.0.max(1), index, now.lsn.0, size);
                    self.record(*group, LogBody::Entry(entry))
                });
                (*group, records.collect())
            }
            Step::Truncate(group, count) => {
                let now = self.groups[group].now();
                let (last, commit) = (now.last().index.0, now.commit.0);
                let from = (last + 1).saturating_sub(*count).max(commit + 1);
                if last < from {
                    return (*group, Vec::new());
                }
                // A truncation comes from a newer leader: its term comes first.
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
                let last = now.last().index;
                if now.commit == last {
                    return (*group, Vec::new());
                }
                (*group, vec![self.record(*group, LogBody::Commit(last))])
            }
            Step::Config(group, learners) => {
                let now = self.groups[group].now();
                let id = EntryId::new(now.hard.term.0.max(1), now.last().index.0 + 1);
                let entry = config(*group, id, now.lsn.0, *learners);
                (*group, vec![self.record(*group, LogBody::Entry(entry))])
            }
            Step::Base(group, back) => {
                let history = &self.groups[group];
                let now = history.now();
                let mut held: Vec<EntryId> =
                    history.good.iter().copied().filter(|id| now.at(id.index) == Some(*id)).collect();
                held.sort_unstable();
                match held.iter().rev().nth(*back) {
                    Some(&base) if now.base.index < base.index => {
                        (*group, vec![self.record(*group, LogBody::Base(base))])
                    }
                    _ => (*group, Vec::new()),
                }
            }
            Step::Install(group, ahead) => {
                let index = self.groups[group].now().last().index.0 + ahead.max(&1);
                self.install(*group, LogIndex(index))
            }
            Step::InstallOver(group) => {
                let now = self.groups[group].now();
                if now.commit == now.last().index {
                    return (*group, Vec::new());
                }
                let index = LogIndex((now.commit.0 + 1 + now.last().index.0) / 2);
                self.install(*group, index)
            }
            Step::Write
            | Step::Sync
            | Step::Mark
            | Step::Prepare
            | Step::Restart
            | Step::VoteHold(_)
            | Step::Snapshot(_)
            | Step::Tidy(_) => (GROUPS[0], Vec::new()),
        }
    }

    /// A newer leader's snapshot: its term comes first.
    fn install(&mut self, group: GroupId, index: LogIndex) -> (GroupId, Vec<LogRecord>) {
        let history = self.groups.get_mut(&group).unwrap();
        let now = history.now();
        let term = now.hard.term.max(now.last().term).next();
        let meta = meta(EntryId { term, index }, Stamp(5000 + index.0));
        history.snapshots.insert(meta.last, meta.clone());
        let hard = self.record(group, LogBody::HardState(HardState { term, vote: None }));
        (group, vec![hard, self.record(group, LogBody::Base(meta.last))])
    }

    /// A sync was answered.
    pub fn ack(&mut self) {
        for history in self.groups.values_mut() {
            history.acked = history.moments.len() - 1;
        }
    }
}

/// An entry whose payload names its place and the life in which it was written.
pub fn entry(group: GroupId, term: u64, index: u64, life: u64, size: usize) -> Entry {
    let head = EntryHead {
        id: EntryId::new(term, index),
        kind: if size == 0 { EntryKind::Noop } else { EntryKind::Command },
        stamp: Stamp(1000 + life),
    };
    let tag = format!("{}:{term}.{index}:{life};", group.0);
    let payload: Vec<u8> = tag.bytes().cycle().take(size).collect();
    kattu_wire::record_encode(crc32c::crc32c_append, group, head, Body::Whole(&payload))
}

/// A configuration entry of member 1 and some learners.
fn config(group: GroupId, id: EntryId, life: u64, learners: u64) -> Entry {
    let kind = EntryKind::Config;
    let head = EntryHead { id, kind, stamp: Stamp(1000 + life) };
    let mut payload = Vec::new();
    Membership::new(vec![NodeId(1)], (2..2 + learners).map(NodeId).collect()).encode(&mut payload);
    payload.extend_from_slice(b"names and addresses");
    kattu_wire::record_encode(crc32c::crc32c_append, group, head, Body::Whole(&payload))
}

/// The metadata of a snapshot that ends at `last`.
fn meta(last: EntryId, stamp: Stamp) -> SnapshotMeta {
    let membership = Membership::new(vec![NodeId(1), NodeId(2)], vec![NodeId(3)]);
    SnapshotMeta { last, stamp, membership, membership_at: LogIndex(last.index.0 / 2) }
}

/// The content of that snapshot.
pub fn chunks(group: GroupId, last: EntryId) -> Vec<Vec<u8>> {
    let tag = format!("state of {} at {last};", group.0);
    let of = |len: u64| tag.bytes().cycle().take(len as usize).collect();
    [1 + last.index.0 % 40, 600, 300].map(of).to_vec()
}

fn write_snapshot(store: &SnapshotStore, group: GroupId, meta: &SnapshotMeta) -> Result<(), WalError> {
    let mut writer = store.create(group, meta.clone())?;
    for chunk in chunks(group, meta.last) {
        writer.push(&chunk)?;
    }
    writer.finish().map(|_| ())
}

/// The bytes of a peer's snapshot.
pub fn peers_snapshot(group: GroupId, meta: &SnapshotMeta) -> Vec<u8> {
    let theirs = SnapshotStore::of(Arc::new(SimDisk::new()), identity().cluster).unwrap();
    write_snapshot(&theirs, group, meta).unwrap();
    let reader = theirs.open(group, meta.last).unwrap().unwrap();
    reader.read_at(0, usize::MAX).unwrap()
}

/// Receives a peer's snapshot in pieces.
fn receive(store: &SnapshotStore, group: GroupId, meta: &SnapshotMeta) -> Result<(), WalError> {
    let bytes = peers_snapshot(group, meta);
    let (mut next, total) = (0, bytes.len() as u64);
    loop {
        let piece = SharedBytes::from(bytes[next as usize..bytes.len().min(next as usize + 700)].to_vec());
        let piece = StoreChunk { meta: meta.clone(), offset: next, bytes: piece, total };
        let stored = store.store_chunk(group, &piece)?;
        assert_eq!(stored.last, meta.last);
        if stored.complete {
            return Ok(());
        }
        assert!(next < stored.next, "no progress at {next}");
        next = stored.next;
    }
}

/// Opens the log, creating the directory first if it is new.
pub fn open(disk: &SimDisk, twin: &mut Twin) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
    let mut dir = DataDir::open(Arc::new(disk.clone()))?;
    if dir.identity().is_none() {
        assert!(!twin.created, "a directory whose creation was answered is there");
        dir.create(twin.identity(), &OPTIONS)?;
        twin.created = true;
    }
    assert_eq!(dir.identity(), Some(&twin.identity()));
    let vote_hold =
        dir.vote_hold()?.unwrap_or_else(|what| panic!("a power cut is no damage: promise: {what}"));
    assert!(twin.vote_holds.contains(&vote_hold), "{vote_hold:?} is noted, not one of {:?}", twin.vote_holds);
    let opened = Wal::open(dir, twin.options())?;
    twin.vote_holds = vec![vote_hold]; // and what is on the disk now stays there
    Ok(opened)
}

/// Applies a step to the snapshots: a base follows the snapshot that covers it.
pub fn store_snapshots(
    store: &SnapshotStore,
    twin: &mut Twin,
    step: &Step,
    group: GroupId,
    records: &[LogRecord],
) -> Result<(), WalError> {
    match (step, records.last().map(|record| &record.body)) {
        (Step::Install(..) | Step::InstallOver(_), Some(LogBody::Base(base))) => {
            let history = twin.groups.get_mut(&group).unwrap();
            receive(store, group, &history.snapshots[base])?;
            history.good.push(*base);
        }
        (Step::Snapshot(group), _) => {
            let history = twin.groups.get_mut(group).unwrap();
            let now = history.now();
            let entry = now.entries.iter().find(|entry| entry.id().index == now.commit);
            if let Some(meta) = entry.map(|entry| meta(entry.id(), entry.head.stamp)) {
                history.snapshots.insert(meta.last, meta.clone());
                write_snapshot(store, *group, &meta)?;
                history.good.push(meta.last);
            }
        }
        (Step::Tidy(group), _) => {
            store.tidy(*group, LogIndex(u64::MAX))?;
        }
        _ => {}
    }
    Ok(())
}

/// Takes one step; the twin holds at every moment what may be on the disk.
pub fn step(disk: &SimDisk, wal: Wal, twin: &mut Twin, step: &Step) -> Result<Wal, WalError> {
    let mut wal = wal;
    let (group, records) = twin.records(step);
    store_snapshots(&wal.snapshots(), twin, step, group, &records)?;
    wal.append(group, &records)?;
    match step {
        Step::Entries(..)
        | Step::Truncate(..)
        | Step::Hard(..)
        | Step::Commit(_)
        | Step::Config(..)
        | Step::Snapshot(_)
        | Step::Base(..)
        | Step::Install(..)
        | Step::InstallOver(_)
        | Step::Tidy(_) => {}
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
        Step::Beside(_, _, meanwhile) => {
            let mut task = wal.wants_segment();
            let mut synced = None;
            let mut sync = |wal: &mut Wal| {
                if synced.is_none() {
                    synced = Some(wal.sync().map(|_| twin.ack()));
                }
            };
            let made = match meanwhile {
                Meanwhile::Before => {
                    sync(&mut wal);
                    task.take().map(SegmentTask::run)
                }
                Meanwhile::During => task.take().map(|task| task.run_paced(&mut || sync(&mut wal))),
                Meanwhile::After => task.take().map(SegmentTask::run),
            };
            sync(&mut wal);
            synced.expect("it has synced by now")?;
            made.map_or(Ok(()), |made| wal.accept(made))?;
        }
        Step::VoteHold(milliseconds) => {
            wal.close()?;
            twin.ack();
            let dir = DataDir::open(Arc::new(disk.clone()))?;
            let vote_hold = Duration::from_millis(*milliseconds);
            twin.vote_holds.push(vote_hold);
            dir.set_vote_hold(vote_hold)?;
            twin.vote_holds = vec![vote_hold];
            wal = Wal::open(dir, twin.options())?.0;
        }
        Step::Restart => {
            wal.close()?;
            twin.ack();
            wal = open(disk, twin)?.0;
        }
    }
    Ok(wal)
}

/// Runs a story until it ends or the power goes out.
pub fn run(disk: &SimDisk, story: &[Step]) -> (Twin, Result<(), WalError>) {
    run_with(Twin::default(), disk, story)
}

/// The same with another twin to start from.
pub fn run_with(mut twin: Twin, disk: &SimDisk, story: &[Step]) -> (Twin, Result<(), WalError>) {
    let outcome = (|| {
        let (mut wal, _) = open(disk, &mut twin)?;
        for now in story {
            wal = step(disk, wal, &mut twin, now)?;
        }
        Ok(())
    })();
    (twin, outcome)
}

/// The same in a directory of this identity; nothing in the story restarts.
pub fn run_as(identity: Identity, disk: &SimDisk, story: &[Step]) -> (Twin, Result<(), WalError>) {
    let mut twin = Twin { created: true, ..Twin::default() };
    let outcome = (|| {
        let mut dir = DataDir::open(Arc::new(disk.clone()))?;
        dir.create(identity, &OPTIONS)?;
        let (mut wal, _) = Wal::open(dir, OPTIONS)?;
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
    let first = wal.first_index(group).0;
    while let Some(next) = Some(LogIndex(entries.len() as u64 + first)).filter(|next| *next <= last) {
        let more = wal.read(group, next, last, 300).expect("what was recovered can be read");
        assert!(!more.is_empty(), "entry {} of {} is missing", next.0, last.0);
        entries.extend(more);
    }
    entries
}

/// Checks the recovered log against the twin: nothing acknowledged is lost, nothing is invented.
pub fn check(twin: &Twin, wal: &mut Wal, recovered: &BTreeMap<GroupId, Recovered>) {
    for (&group, history) in &twin.groups {
        let found = &recovered[&group];
        let entries = read_all(wal, group, found.last.index);

        let possible = &history.moments[history.acked..];
        let is_it = |moment: &Moment| moment.base == found.base && moment.entries == entries;
        let last = entries.last().map_or(found.base, Entry::id);
        assert_eq!(found.last, last, "group {}: base {}", group.0, found.base);
        // If a snapshot was stored before its base was in the log, recovery adds the base.
        let acked = possible[0].last();
        let is_adopted = entries.is_empty()
            && history.snapshots.contains_key(&found.base)
            && (acked.index <= found.base.index || acked.term < found.base.term);
        let at = possible.iter().position(is_it).or(is_adopted.then_some(0)).unwrap_or_else(|| {
            let shown = |base: EntryId, entries: &[Entry]| {
                let shown = entries.iter().map(|entry| format!("{} of {}", entry.id(), entry.len()));
                format!("{base}: {}", shown.collect::<Vec<String>>().join(", "))
            };
            let was: Vec<String> =
                possible.iter().map(|moment| shown(moment.base, &moment.entries)).collect();
            panic!(
                "group {}: the log [{}] never was one since the last answered sync, but was [{}]",
                group.0,
                shown(found.base, &entries),
                was.join("], [")
            )
        });
        // Term and vote are stored before the block they came with, so they may be ahead, never behind.
        let is_term_of_snapshot = is_adopted && found.hard == HardState { term: found.base.term, vote: None };
        let ahead = possible[at..].iter().any(|moment| moment.hard == found.hard) || is_term_of_snapshot;
        assert!(ahead, "group {}: {:?} is not of this or a later moment", group.0, found.hard);
        assert!(found.hard.term >= possible[0].hard.term, "group {}: the term went back", group.0);

        let newest = history.now();
        assert!(found.committed <= last.index);
        let covered = found.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.last.index);
        let mut known = history.moments.iter().map(|moment| moment.commit).chain([covered]);
        let is_known = known.any(|commit| commit == found.committed);
        assert!(is_known, "group {}: commit mark {} never was one", group.0, found.committed.0);
        assert!(
            found.lsn.0 <= newest.lsn.0 + 2 * u64::from(is_adopted),
            "record number {} was never used",
            found.lsn.0
        );

        check_snapshot(group, history, wal, found, twin.snapshots_may_be_hurt);
        let mut term_starts: Vec<EntryId> = Vec::new();
        for id in entries.iter().map(Entry::id) {
            if term_starts.last().is_none_or(|start| start.term != id.term) {
                term_starts.push(id);
            }
        }
        assert_eq!(found.term_starts, term_starts);
        let configs = entries.iter().filter(|entry| entry.head.kind == EntryKind::Config);
        let memberships: Vec<(LogIndex, Membership)> = configs
            .map(|entry| (entry.id().index, Membership::decode(entry.payload().unwrap()).unwrap().0))
            .collect();
        assert_eq!(found.memberships, memberships);
        assert_eq!(found.tail.is_empty(), entries.is_empty());
        assert!(entries.ends_with(&found.tail));
        let bytes: usize = found.tail.iter().map(Entry::len).sum();
        assert!(bytes <= OPTIONS.window_bytes || found.tail.len() == 1);
        let stamp_of_base = found.snapshot.as_ref().map_or(Stamp(0), |snapshot| snapshot.stamp);
        assert_eq!(found.stamp, entries.last().map_or(stamp_of_base, |entry| entry.head.stamp));
    }
}

/// Checks that a good snapshot reaches the log, that the log holds its end, and that its content is as written.
fn check_snapshot(group: GroupId, history: &History, wal: &Wal, found: &Recovered, may_be_hurt: bool) {
    let complaints = wal.complaints();
    assert!(complaints.is_empty() || may_be_hurt, "a power cut is no damage: {complaints:?}");
    let Some(snapshot) = &found.snapshot else {
        let is_told = |said: &WalError| matches!(said, WalError::Uncovered { group: of, .. } if *of == group);
        if may_be_hurt && complaints.iter().any(is_told) {
            return;
        }
        assert_eq!(found.base, EntryId::default(), "group {}: no snapshot covers the base", group.0);
        return;
    };
    assert!(found.base.index <= snapshot.last.index && snapshot.last.index <= found.last.index);
    assert!(snapshot.last.index <= found.committed);
    assert_eq!(history.snapshots.get(&snapshot.last), Some(snapshot), "a snapshot nobody took");
    let reader = wal.snapshots().open(group, snapshot.last).unwrap().expect("it was checked");
    let read: Result<Vec<Vec<u8>>, WalError> = reader.chunks().and_then(Iterator::collect);
    if may_be_hurt && read.is_err() {
        return;
    }
    let read = read.expect("it was checked");
    assert_eq!(read, chunks(group, snapshot.last), "the snapshot holds something else than was written");
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
    if let Some(task) = wal.wants_segment() {
        wal.accept(task.run()).expect("what nothing needs goes"); // a second life prunes what the first one could not
    }
    drop(wal);
    let (wal, again) = open(image, &mut twin).unwrap();
    assert_eq!(first, again, "recovery found something else the second time");
    assert_eq!(wal.stats().torn_tails, 0, "a torn tail is cut once");

    // The log goes on from what was recovered.
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

/// A directory in which this story has happened to two groups after some appends, a vote and a truncation; with or
/// without an idle mark at its end. And its twin.
pub fn directory(identity: Identity, story: &[Step], idle_mark: bool) -> (SimDisk, Twin) {
    let [a, b] = GROUPS;
    let mut whole = vec![
        Step::Hard(a, Some(2)),
        Step::Entries(a, vec![0, 900, 300]),
        Step::Sync,
        Step::Entries(b, vec![40]),
        Step::Commit(a),
        Step::Sync,
        Step::Truncate(b, 1),
        Step::Entries(b, vec![900, 900]),
        Step::Sync,
        Step::Entries(a, vec![900, 900]),
        Step::Sync,
    ];
    whole.extend_from_slice(story);
    if idle_mark {
        whole.push(Step::Mark);
    }
    let disk = SimDisk::new();
    let (twin, outcome) = run_as(identity, &disk, &whole);
    outcome.unwrap();
    (disk, twin)
}

/// Where to hit a file: every used byte, and some of the zeros behind them, which are all alike.
pub fn places(whole: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let used = whole.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    (0..used).chain((used..whole.len()).step_by(509))
}

/// A copy of the disk on which one bit of one byte of a file is flipped.
pub fn flipped(disk: &SimDisk, name: &str, at: usize) -> SimDisk {
    let image = disk.copy();
    let mut bytes = disk.contents(name).expect("it is there");
    bytes[at] ^= 1 << (at % 8);
    image.set_contents(name, Some(bytes));
    image
}

/// The directory of a single member, with a log that is not opened yet.
pub fn made(incarnation: u64) -> SimDisk {
    let disk = SimDisk::new();
    let options = WalOptions { segment_bytes: 1 << 16, reserve_bytes: 0, ..WalOptions::default() };
    let mut dir = data_dir(&disk);
    dir.create(Identity::single(0xC1, NodeId(1), Incarnation(incarnation), "n1"), &options).unwrap();
    disk
}

/// The directory on this disk.
pub fn data_dir(disk: &SimDisk) -> DataDir {
    DataDir::open(Arc::new(disk.clone())).unwrap()
}
