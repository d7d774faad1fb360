//! Opening: what was read of the directory becomes a log that goes on.
//!
//! Knows nothing of: what is read where (`scan.rs`, `replay.rs`), what is damage (`repair.rs`).

use super::repair::Repairer;
use super::settle::settle;
use super::{Group, LogReader, Wal, WalOptions, WalStats};
use crate::block::{GroupRow, SECTOR, SECTOR_MAX, flags};
use crate::dir::DataDir;
use crate::error::WalError;
use crate::pending::Pending;
use crate::replay::{GroupReplay, Replay};
use crate::scan::{SegmentFound, scan};
use crate::segment::{self, Gate};
use crate::slots::Slots;
use kattu_raft::{GroupId, Recovered};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

impl Wal {
    /// See [`Wal::open`] and [`Wal::repair`].
    pub(super) fn open_or_repair(
        mut dir: DataDir,
        options: WalOptions,
        may_repair: bool,
    ) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
        let sector = options.sector_bytes;
        assert!(
            sector.is_power_of_two() && (SECTOR..=SECTOR_MAX).contains(&sector),
            "sectors of {sector} bytes: a power of two from {SECTOR} to {SECTOR_MAX} is wanted"
        );
        let identity = dir.identity().expect("a directory is created before its log is opened").clone();
        let snapshots = dir.snapshots()?.expect("it has an identity");
        let DataDir { files, lock, .. } = dir;
        let mut replay = Replay::new(&identity.groups, options.window_bytes);
        let scanned = scan(&*files, &identity, &mut |met| replay.take(&met))?;
        let mut repairer =
            Repairer { files: &*files, identity: &identity, snapshots: &snapshots, scanned: &scanned };
        repairer.check(&replay, may_repair)?;

        let mut slots = BTreeMap::new();
        for (&group, replayed) in &replay.groups {
            let needed = replayed.slots.max(repairer.tail_bound(group).slots);
            slots.insert(group, Slots::open(&*files, &identity, group, needed)?);
        }
        let (vote_floors, repaired) = repairer.keep_vote_floors(&mut replay, &slots)?;
        let begin_anew = repairer.begin_anew(&replay, &vote_floors);
        let mut stats = WalStats::default();
        if let Some(torn) = &scanned.torn {
            stats.torn_tails = 1;
            stats.torn_bytes = torn.ranges.iter().map(|(start, stop)| stop - start.offset).sum();
        }
        let mut spare = settle(&*files, &identity, &scanned)?;
        let current = spare.pop_front().expect("the log ends in a segment that is there");
        assert_eq!(
            current.generation, scanned.end.segment,
            "the first segment that is not full is the current one"
        );

        let has_reserve = match segment::make_reserve(&*files, options.reserve_bytes) {
            Ok(()) => true,
            Err(WalError::NoSpace { .. }) => false,
            Err(error) => return Err(error),
        };
        let end = scanned.end.segment;
        let is_current = |found: &&SegmentFound| found.generation == end;
        let gate = Gate::new(spare.back().unwrap_or(&current).generation + 1);
        let identity = Arc::new(identity);
        let reader = LogReader::new(files.clone(), identity.clone());
        let mut wal = Wal {
            files,
            identity,
            options,
            groups: BTreeMap::new(),
            pending: Pending::new(sector),
            rows: Vec::new(),
            current,
            offset: scanned.end.offset,
            synced: scanned.end,
            chain: scanned.chain,
            number: scanned.number,
            marked: scanned.number == 0 || scanned.flags & (flags::MARK | flags::CLOSE) != 0,
            spare,
            full: scanned.segments.iter().filter(|found| found.generation < end).copied().collect(),
            current_is_start: scanned.segments.iter().find(is_current).is_some_and(|found| found.is_start),
            used: VecDeque::new(),
            rebased: true,
            task: false,
            gate,
            has_reserve,
            freed_reserve: false,
            cycle: 0,
            cycle_began: scanned.segments.first().map_or(end, |first| first.generation),
            snapshots,
            complaints: repaired.into_iter().collect(),
            poisoned: None,
            stats,
            reader,
            _lock: lock,
        };
        for (&id, replayed) in &mut replay.groups {
            let slots = slots.remove(&id).expect("opened above");
            wal.groups.insert(id, Group::of(id, slots, replayed));
        }
        // All groups are known by now: the blocks that this writes may have rows of all of them.
        let mut recovered = BTreeMap::new();
        for (id, replayed) in &mut replay.groups {
            let mut covered = wal.overlap(*id, replayed, begin_anew.contains(id))?;
            covered.vote_floor = wal.vote_floor(*id, vote_floors.get(id).copied())?;
            recovered.insert(*id, covered);
        }
        wal.free_used();
        Ok((wal, recovered))
    }
}

impl Group {
    /// A group as its part of the log left it.
    fn of(id: GroupId, slots: Slots, replayed: &mut GroupReplay) -> Group {
        let lsn = replayed.lsn.max(slots.newest.lsn);
        let (commit, generation) = (replayed.committed, replayed.slots);
        Group {
            slots,
            hard: None,
            index: core::mem::take(&mut replayed.index),
            extent: replayed.extent.clone(),
            written: replayed.extent.clone(),
            told: GroupRow { group: id, records: 0, lsn, commit, slots: generation },
            commit,
            appended: lsn,
            durable: lsn,
            records: 0,
            touched: false,
            has_entries: false,
            vote_floor: None,
            told_vote_floor: None,
        }
    }
}
