//! Damage: faults in a data directory at rest.
//!
//! [`SimDisk::damage`] damages one relevant place; [`SimDisk::truth`] returns which outcomes are then right;
//! [`SimDisk::heal`] puts everything back, as a test's operator does.
//! Knows nothing of: recovery, repair.

use crate::content::{SECTOR, bytes_of, image_of};
use crate::inode::Inode;
use crate::state::State;
use crate::truth::{Found, IDENTITY, SEGMENT_HEADER_BYTES, SLOT_BYTES, SLOT_PLACES, Truth, chain};
use crate::{Dice, FaultId, Fired, SimDisk};
use kattu_wal::names::{segment_name, segment_of, slots_name, snapshot_of};

/// Where damage strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The first block of the log.
    LogHead,
    /// One in the middle.
    LogMiddle,
    /// The last block that another one calls synced.
    LogTail,
    /// The last block, which no block calls synced.
    LogEnd,
    /// The header of a segment.
    LogHeader,
    /// One of the two slots of term and vote.
    Slot,
    /// Both slots.
    Slots,
    /// The identity.
    Identity,
    /// The newest snapshot of a group.
    Snapshot,
    /// The one before it.
    SnapshotBefore,
}

/// A fault of a disk at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit is flipped. [fault-model F13]
    Flip(Place),
    /// A sector cannot be read. [fault-model F13]
    Unreadable(Place),
    /// A sector holds again what it held before it was last written. [fault-model F14]
    Stale(Place),
    /// A sector holds bytes that belong elsewhere.
    Misplaced(Place),
    /// The file of this place is gone. [fault-model F15]
    Missing(Place),
    /// It is shorter. [fault-model F15]
    Truncated(Place),
    /// It holds other bytes.
    Foreign(Place),
    /// Temporary files were left over, and one of an editor. [fault-model F15]
    Leftover,
}

impl Damage {
    /// Its row of the fault model.
    #[must_use]
    pub fn id(self) -> FaultId {
        match self {
            Damage::Flip(_) | Damage::Unreadable(_) => FaultId::F13,
            Damage::Stale(_) | Damage::Misplaced(_) => FaultId::F14,
            _ => FaultId::F15,
        }
    }
}

impl SimDisk {
    /// Undoes all damage, lost and misdirected writes: the disk is as one without faults would be.
    pub fn heal(&self) {
        let mut state = self.state();
        for (name, replaced) in core::mem::take(&mut state.replaced) {
            if state.names.now.get(&name).copied() != replaced.by {
                continue;
            }
            match replaced.before {
                Some(inode) => {
                    state.names.now.insert(name.clone(), inode);
                    state.names.durable.insert(name, inode);
                }
                None => {
                    state.names.now.remove(&name);
                    state.names.durable.remove(&name);
                }
            }
        }
        state.inodes.iter_mut().for_each(Inode::heal);
    }

    /// Does `damage`; the exact place follows from `seed`. Returns what was done; `None` if there was nothing to
    /// damage, or if the disk is already damaged so that something is lost: nothing is guaranteed for two faults in one
    /// member. Damage to whole files is for directories that no process has open.
    pub fn damage(&self, damage: Damage, seed: u64) -> Option<String> {
        let mut state = self.state();
        state.settle();
        let mut dice = Dice::new(seed);
        if state.truth() != Truth::Whole {
            return None; // the lost block may be the proof: nothing is guaranteed for two faults in one member
        }
        let what = match damage {
            Damage::Flip(place) => state.flip(place, &mut dice),
            Damage::Unreadable(place) => state.make_unreadable(place, &mut dice),
            Damage::Stale(place) => state.fall_back(place, &mut dice),
            Damage::Misplaced(place) => state.misplace(place, &mut dice),
            Damage::Missing(place) => state.replace_file(place, &mut dice, |_, _| None),
            Damage::Truncated(place) => state.replace_file(place, &mut dice, |bytes, dice| {
                Some(bytes[..dice.below(bytes.len().max(1) as u64) as usize].to_vec())
            }),
            Damage::Foreign(place) => state.replace_file(place, &mut dice, |bytes, dice| {
                Some((0..bytes.len().max(1)).map(|_| dice.roll() as u8 | 1).collect())
            }),
            Damage::Leftover => {
                for name in [
                    "log-0000000000000009.seg.tmp",
                    "identity.tmp",
                    "snapshot-00000000-0000000000000007-0000000000000001.snap.taken.part",
                    "snapshot-00000000-00000000ffffffff-0000000000000001.snap.received.part",
                    ".note.swp",
                ] {
                    let junk: Vec<u8> = (0..dice.below(5000)).map(|_| dice.roll() as u8).collect();
                    state.replace(name, Some(&junk), Truth::Whole);
                }
                Some("left temporary files over".to_owned())
            }
        }?;
        let what = format!("{damage:?}: {what}");
        state.fired.push(Fired { id: damage.id(), what: what.clone() });
        Some(what)
    }

    /// Puts the other disk's file of `place` where this one's is, as when backups are mixed up. No process has this one
    /// open. Returns what was done. [fault-model F15]
    pub fn mix_up_with(&self, other: &SimDisk, place: Place, seed: u64) -> Option<String> {
        let theirs = {
            let state = other.state();
            let (name, _) = state.spots(place, &mut Dice::new(seed))?.swap_remove(0);
            state.file(&name)?.content.to_vec()
        };
        let mut state = self.state();
        if state.truth() != Truth::Whole {
            return None;
        }
        let what = state.replace_file(place, &mut Dice::new(seed), |_, _| Some(theirs))?;
        state.fire(FaultId::F15, format!("another member's file: {what}"));
        Some(what)
    }
}

impl Inode {
    fn heal(&mut self) {
        self.unreadable.clear();
        for (sector, right) in core::mem::take(&mut self.wronged) {
            if self.doubtful.binary_search_by_key(&sector, |doubtful| doubtful.sector).is_ok() {
                let at = self.doubtful.partition_point(|doubtful| doubtful.sector < sector);
                self.doubtful[at].medium = right;
            } else {
                self.ghosts.remove(&sector);
                self.content.set_sector(sector, bytes_of(&right));
            }
        }
    }
}

/// A range of relevant bytes of a file.
type Spot = (String, core::ops::Range<usize>);

impl State {
    /// Replaces a file, and remembers it for [`SimDisk::heal`].
    fn replace(&mut self, name: &str, bytes: Option<&[u8]>, truth: Truth) {
        let before = self.names.now.get(name).copied();
        self.set_contents(name, bytes);
        let by = self.names.now.get(name).copied();
        self.replaced.insert(name.to_owned(), Replaced { before, by, truth });
    }

    /// The ranges of `place` that are damaged together. `None` if there is no such place.
    fn spots(&self, place: Place, dice: &mut Dice) -> Option<Vec<Spot>> {
        let identity = self.right_identity()?;
        let in_log = |choose: &mut dyn FnMut(&[Found]) -> Option<usize>| {
            let segments = self.segments();
            let (blocks, _) = chain(
                &identity,
                &segments.iter().map(|(generation, views)| (*generation, &views.right[..])).collect(),
            );
            let block = &blocks[choose(&blocks)?];
            let start = block.at.offset as usize;
            Some(vec![(segment_name(block.at.segment), start..start + block.len)])
        };
        let vouched = |blocks: &[Found]| {
            let synced = blocks.iter().map(|block| block.synced).max().unwrap_or_default();
            blocks.iter().filter(|block| block.at < synced).count()
        };
        match place {
            Place::LogHead => in_log(&mut |blocks| (0 < vouched(blocks)).then_some(0)),
            Place::LogMiddle => {
                in_log(&mut |blocks| Some(dice.below(vouched(blocks).checked_sub(1)? as u64 + 1) as usize))
            }
            Place::LogTail => in_log(&mut |blocks| vouched(blocks).checked_sub(1)),
            Place::LogEnd => in_log(&mut |blocks| blocks.len().checked_sub(1)),
            Place::LogHeader => {
                let segments = self.names.now.keys().filter(|name| segment_of(name).is_some());
                let segments: Vec<&String> = segments.collect();
                let chosen = segments.get(dice.below(segments.len().max(1) as u64) as usize)?;
                Some(vec![((*chosen).clone(), 0..SEGMENT_HEADER_BYTES)])
            }
            Place::Slot | Place::Slots => {
                let group = identity.groups[dice.below(identity.groups.len() as u64) as usize];
                let name = slots_name(group);
                let both = SLOT_PLACES.map(|at| (name.clone(), at..at + SLOT_BYTES)).to_vec();
                let one = vec![both[dice.below(2) as usize].clone()];
                Some(if place == Place::Slot { one } else { both })
            }
            Place::Snapshot | Place::SnapshotBefore => {
                let group = identity.groups[dice.below(identity.groups.len() as u64) as usize];
                let names = self.names.now.keys();
                let of_group = names.filter(|name| snapshot_of(name).is_some_and(|(of, _)| of == group));
                let back = usize::from(place == Place::SnapshotBefore);
                let name = of_group.rev().nth(back)?.clone(); // names sort by index
                let len = self.file(&name)?.content.len();
                (0 < len).then(|| vec![(name, 0..len)])
            }
            Place::Identity => {
                let len = self.file(IDENTITY)?.content.len();
                (0 < len).then(|| vec![(IDENTITY.to_owned(), 0..len)])
            }
        }
    }

    fn flip(&mut self, place: Place, dice: &mut Dice) -> Option<String> {
        let mut done = Vec::new();
        for (name, range) in self.spots(place, dice)? {
            let at = range.start + dice.below(range.len() as u64) as usize;
            let bit = dice.below(8);
            let inode = &mut self.inodes[*self.names.now.get(&name)?];
            let mut bytes = *inode.content.sector(at / SECTOR);
            bytes[at % SECTOR] ^= 1 << bit;
            inode.wrong(at / SECTOR, image_of(&bytes), false);
            done.push(format!("bit {bit} of byte {at} of {name}"));
        }
        Some(done.join(", "))
    }

    fn make_unreadable(&mut self, place: Place, dice: &mut Dice) -> Option<String> {
        let mut done = Vec::new();
        for (name, range) in self.spots(place, dice)? {
            let sector = (range.start + dice.below(range.len() as u64) as usize) / SECTOR;
            self.inodes[*self.names.now.get(&name)?].unreadable.insert(sector);
            done.push(format!("sector {sector} of {name}"));
        }
        Some(done.join(", "))
    }

    fn fall_back(&mut self, place: Place, dice: &mut Dice) -> Option<String> {
        let mut done = Vec::new();
        for (name, range) in self.spots(place, dice)? {
            let inode = &mut self.inodes[*self.names.now.get(&name)?];
            let sector = (range.start + dice.below(range.len() as u64) as usize) / SECTOR;
            let old = inode.previous.get(&sector).cloned().flatten();
            if bytes_of(&old) != inode.medium(sector) {
                inode.wrong(sector, old, false);
                done.push(format!("sector {sector} of {name}"));
            }
        }
        (!done.is_empty()).then(|| done.join(", "))
    }

    fn misplace(&mut self, place: Place, dice: &mut Dice) -> Option<String> {
        let mut done = Vec::new();
        let files: Vec<usize> = self.names.now.values().copied().collect();
        for (name, range) in self.spots(place, dice)? {
            let sector = (range.start + dice.below(range.len() as u64) as usize) / SECTOR;
            let number = *self.names.now.get(&name)?;
            let source = if dice.one_in(2) { number } else { files[dice.below(files.len() as u64) as usize] };
            let source = &self.inodes[source].content;
            let far = dice.below(source.len().div_ceil(SECTOR).max(1) as u64) as usize;
            let bytes = *source.sector(if dice.one_in(2) { far } else { sector + 1 });
            if bytes != *self.inodes[number].medium(sector) {
                self.inodes[number].wrong(sector, image_of(&bytes), false);
                done.push(format!("sector {sector} of {name}"));
            }
        }
        (!done.is_empty()).then(|| done.join(", "))
    }

    fn replace_file(
        &mut self,
        place: Place,
        dice: &mut Dice,
        changed: impl FnOnce(&[u8], &mut Dice) -> Option<Vec<u8>>,
    ) -> Option<String> {
        let identity = self.right_identity()?;
        let (name, _) = self.spots(place, dice)?.swap_remove(0);
        let segments = self.segments();
        let right = segments.iter().map(|(generation, views)| (*generation, &views.right[..]));
        let (blocks, end) = chain(&identity, &right.collect());
        // A directory whose log was never written to has no past that could be lost.
        if blocks.is_empty() {
            return None;
        }
        let before = self.file(&name)?.content.to_vec();
        let after = changed(&before, dice);
        if after.as_ref() == Some(&before) {
            return None;
        }
        let is_spare = segment_of(&name).is_some_and(|generation| end.segment < generation);
        // The first segment may be one that is no longer needed; its content is then in a snapshot.
        let is_first = segment_of(&name).is_some() && segments.keys().next().copied() == segment_of(&name);
        let truth = match () {
            () if snapshot_of(&name).is_some() => Truth::Whole, // the log is unchanged
            () if is_spare || (is_first && after.is_none()) => Truth::Either,
            () => Truth::Refuse,
        };
        self.replace(&name, after.as_deref(), truth);
        Some(format!("{name}, {} of {} bytes", after.map_or(0, |bytes| bytes.len()), before.len()))
    }
}

/// A name whose file was replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub before: Option<usize>,
    /// The file that replaced it. If another file has the name by now, the damage was undone.
    pub by: Option<usize>,
    pub truth: Truth,
}
