//! Mending: a damaged log is cut before the damage, and what it owed is kept. [fault-model ST7]
//!
//! 1. Nothing is changed before it is sure that the member can go on: it is not alone, no vote is lost, and what the log
//!    lacks at its beginning is in a snapshot.
//! 2. The floor of every group that loses something is made durable.
//! 3. The log is cut as a torn tail is. Whatever of this a crash undoes or leaves undone, the next start finds damage or
//!    a floor, and the higher of two floors counts.
//!
//! Where the log begins in the middle, its first block speaks of entries that a later base left behind. If the damage is
//! before that base, the newest snapshot stands in for it.
//! Knows nothing of: elections, where entries come from again.

use super::Wal;
use crate::error::WalError;
use crate::files::Files;
use crate::identity::Identity;
use crate::replay::{GroupReplay, Replay};
use crate::scan::Scanned;
use crate::slots::Slots;
use crate::snapshot::SnapshotStore;
use crate::tail_bound::{Believed, GroupTailBound};
use crate::vote_floor;
use kattu_raft::{EntryId, GroupId, newest_found};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a log before anything in the directory is changed.
pub(super) struct Repairer<'a> {
    pub files: &'a dyn Files,
    pub identity: &'a Identity,
    pub snapshots: &'a SnapshotStore,
    pub scanned: &'a Scanned,
}

impl Repairer<'_> {
    /// What is behind the damage, of one group.
    pub fn tail_bound(&self, group: GroupId) -> GroupTailBound {
        self.scanned.damage.as_ref().map(|damage| damage.tail_bound.group(group)).unwrap_or_default()
    }

    /// Whether the log can be opened: it is whole, or it may be mended and can be.
    pub fn check(&mut self, replay: &Replay, may_repair: bool) -> Result<(), WalError> {
        let begun =
            self.identity.groups.iter().any(|&group| self.files.open(&vote_floor::name_of(group)).is_ok());
        let refused = match (self.scanned.judge(), replay.check()) {
            (Ok(()), Ok(())) => return Ok(()),
            (Err(error), _) if may_repair => error,
            (Ok(()), Err(error)) if may_repair && begun => error, // a crash came between the cut and what stands in
            (Err(error), _) | (Ok(()), Err(error)) => return Err(error),
        };
        for (&id, group) in &replay.groups {
            let newest = self.snapshots.newest(id)?.0.map(|snapshot| snapshot.meta);
            let lacks_beginning = !group.begins_whole();
            let stands_in = newest.as_ref().is_some_and(|meta| group.begins_whole_after(meta.last));
            let known =
                newest_found(&group.memberships, newest.as_ref()).map(|known| known.members().count());
            let first = match &self.identity.joined {
                Some(found) => found.len() + 1,
                None => self.identity.members.len(),
            };
            let is_cut = self.scanned.damage.is_some();
            let is_alone = known.unwrap_or(first).max(self.tail_bound(id).members) <= 1;
            if is_cut && is_alone {
                return Err(refused.of_only_copy()); // nobody else has what is lost
            }
            if lacks_beginning && !stands_in {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Makes the floors durable. Returns all floors there are, and what was mended.
    pub fn keep_vote_floors(
        &mut self,
        replay: &mut Replay,
        slots: &BTreeMap<GroupId, Slots>,
    ) -> Result<(BTreeMap<GroupId, EntryId>, Option<WalError>), WalError> {
        let mut vote_floors = BTreeMap::new();
        let mut cut = Vec::new();
        let believed = Believed { number: self.scanned.number, crc: self.scanned.chain };
        for (&id, group) in &mut replay.groups {
            let term = slots[&id].newest.hard.term;
            let mut known = vote_floor::load(self.files, self.identity, id, term)?;
            if let Some(damage) = &self.scanned.damage {
                let last = group.extent.last;
                let found = damage.tail_bound.vote_floor(id, believed, last, term);
                let tail_bound = damage.tail_bound.group(id);
                group.lsn = group.lsn.max(tail_bound.lsn);
                if last < found {
                    cut.push((id, last, found));
                    if known < Some(found) {
                        vote_floor::store(self.files, self.identity, id, found)?;
                    }
                    known = known.max(Some(found));
                }
            }
            vote_floors.extend(known.map(|vote_floor| (id, vote_floor)));
        }
        let damaged = self.scanned.judge().err();
        let repaired = damaged.map(|error| match error {
            WalError::Damaged { file, offset, what } => WalError::Repaired { file, offset, what, cut },
            other => other,
        });
        Ok((vote_floors, repaired))
    }

    /// The groups whose log is cut now, or was and lacks its beginning: it begins anew after the snapshot that stands in. One
    /// with a floor that is whole from its base on, short as it may be, stays as it is.
    pub fn begin_anew(&self, replay: &Replay, vote_floors: &BTreeMap<GroupId, EntryId>) -> BTreeSet<GroupId> {
        let is_cut = self.scanned.damage.is_some();
        let begins = |(id, group): &(&GroupId, &GroupReplay)| {
            vote_floors.contains_key(*id) && (is_cut || !group.begins_whole())
        };
        replay.groups.iter().filter(begins).map(|(&id, _)| id).collect()
    }
}

impl GroupReplay {
    /// Whether every entry that the log speaks of is in it.
    fn begins_whole(&self) -> bool {
        self.extent.is_empty() || self.index.first() == Some(self.extent.base.index.next())
    }

    /// Whether that is so once a snapshot covers everything up to `last`.
    fn begins_whole_after(&self, last: EntryId) -> bool {
        if last.index < self.extent.base.index {
            return false;
        }
        let goes_on = self.extent.holds(last) && last.index < self.extent.last.index;
        !goes_on || self.index.first().is_some_and(|first| first <= last.index.next())
    }
}

impl Wal {
    /// The floor of a group whose log is open now; one that the log has reached again is forgotten.
    pub(super) fn vote_floor(
        &mut self,
        id: GroupId,
        vote_floor: Option<EntryId>,
    ) -> Result<Option<EntryId>, WalError> {
        self.groups.get_mut(&id).expect("the identity names all groups").vote_floor = vote_floor;
        self.forget_vote_floors()?;
        Ok(self.groups[&id].vote_floor)
    }

    /// Makes durable what others have said of a log that is shorter than it was. [fault-model ST14]
    pub(super) fn keep_told_vote_floors(&mut self) -> Result<(), WalError> {
        let (mut syncs, mut kept) = (0, Ok(()));
        for (&id, group) in &mut self.groups {
            let Some(told) = group.told_vote_floor.filter(|told| group.vote_floor < Some(*told)) else {
                group.told_vote_floor = None;
                continue;
            };
            kept = vote_floor::store(&*self.files, &self.identity, id, told);
            if kept.is_err() {
                break;
            }
            (group.vote_floor, group.told_vote_floor) = (Some(told), None);
            syncs += 1;
        }
        self.stats.writes += syncs;
        self.stats.syncs += syncs;
        kept.map_err(|error| match error {
            WalError::NoSpace { .. } => error, // said again with the next write
            other => self.poison(other),
        })
    }

    /// What is durable may have reached a floor: then that says nothing any more. Should its file stay, it will have been
    /// reached by the next start; a failed sync ends the log, as any does. [fault-model F11]
    pub(super) fn forget_vote_floors(&mut self) -> Result<(), WalError> {
        let mut forgotten = Ok(());
        for (&id, group) in &mut self.groups {
            if group.vote_floor.take_if(|vote_floor| *vote_floor <= group.written.last).is_some()
                && let Err(error) = vote_floor::forget(&*self.files, id)
                && error.is_failed_sync()
            {
                forgotten = Err(error);
            }
        }
        forgotten.map_err(|error| self.poison(error))
    }
}
