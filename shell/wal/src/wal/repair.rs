//! Repair: a damaged log is cut before the damage, and vote floors bound where it ended. [fault-model ST7]
//!
//! 1. Nothing is changed before it is certain that the member can go on: it is not alone, no vote is lost, and a
//!    snapshot holds what the log lacks at its beginning.
//! 2. The vote floor of every group that loses entries is made durable, and one of every group that loses only the base
//!    that its beginning needs: it tells the next start that a repair had begun.
//! 3. The log is cut like a torn tail. If a crash interrupts or undoes any of this, the next start finds damage or a
//!    vote floor, and the higher of two vote floors counts.
//!
//! Where the log begins in the middle, its first block names entries that a later base has removed. If the damage is
//! before that base, the newest snapshot stands in for it.
//! Knows nothing of: elections, replication.

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

/// A scanned log, before anything in the directory is changed.
pub(super) struct Repairer<'a> {
    pub files: &'a dyn Files,
    pub identity: &'a Identity,
    pub snapshots: &'a SnapshotStore,
    pub scanned: &'a Scanned,
}

impl Repairer<'_> {
    /// The bound of one group from behind the damage.
    pub(crate) fn tail_bound(&self, group: GroupId) -> GroupTailBound {
        self.scanned.damage.as_ref().map(|damage| damage.tail_bound.group(group)).unwrap_or_default()
    }

    /// Checks that the log can be opened: it is whole, or repair is allowed and possible.
    pub fn check(&mut self, replay: &Replay, may_repair: bool) -> Result<(), WalError> {
        let begun =
            self.identity.groups.iter().any(|&group| self.files.open(&vote_floor::name_of(group)).is_ok());
        let refused = match (self.scanned.judge(), replay.check()) {
            (Ok(()), Ok(())) => return Ok(()),
            (Err(error), _) if may_repair => error,
            (Ok(()), Err(error)) if may_repair && begun => error, // a crash came between the cut and the new base
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
                return Err(refused.of_only_copy()); // no other member has the lost entries
            }
            if lacks_beginning && !stands_in {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Makes the vote floors durable. Returns all vote floors, and the repair to report.
    pub(crate) fn keep_vote_floors(
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
                }
                let bound = found.max(last);
                if last < found || !group.begins_whole() {
                    if known < Some(bound) {
                        vote_floor::store(self.files, self.identity, id, bound)?;
                    }
                    known = known.max(Some(bound));
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

    /// The groups whose log is cut now, or was cut and lacks its beginning: it begins anew after the snapshot that
    /// stands in. A log with a vote floor that is whole from its base on, however short, stays as it is.
    pub fn begin_anew(&self, replay: &Replay, vote_floors: &BTreeMap<GroupId, EntryId>) -> BTreeSet<GroupId> {
        let is_cut = self.scanned.damage.is_some();
        let begins = |(id, group): &(&GroupId, &GroupReplay)| {
            vote_floors.contains_key(*id) && (is_cut || !group.begins_whole())
        };
        replay.groups.iter().filter(begins).map(|(&id, _)| id).collect()
    }
}

impl GroupReplay {
    /// Whether the log holds every entry of its extent.
    fn begins_whole(&self) -> bool {
        self.extent.is_empty() || self.index.first() == Some(self.extent.base.index.next())
    }

    /// Whether the log holds them once a snapshot covers everything up to `last`.
    fn begins_whole_after(&self, last: EntryId) -> bool {
        if last.index < self.extent.base.index {
            return false;
        }
        let goes_on = self.extent.holds(last) && last.index < self.extent.last.index;
        !goes_on || self.index.first().is_some_and(|first| first <= last.index.next())
    }
}

impl Wal {
    /// Sets the vote floor of a group whose log is open now, and returns it; one that the log has reached again is
    /// removed.
    pub(super) fn vote_floor(
        &mut self,
        id: GroupId,
        vote_floor: Option<EntryId>,
    ) -> Result<Option<EntryId>, WalError> {
        self.groups.get_mut(&id).expect("the identity names all groups").vote_floor = vote_floor;
        self.forget_vote_floors()?;
        Ok(self.groups[&id].vote_floor)
    }

    /// Makes the vote floors durable that other members reported for a log that is shorter than it was.
    /// [fault-model ST14]
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
            WalError::NoSpace { .. } => error, // retried with the next write
            other => self.poison(other),
        })
    }

    /// Removes vote floors that the durable log has reached. If the file stays, the next start removes it; a failed
    /// sync ends the log, as any does. [fault-model F11]
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
