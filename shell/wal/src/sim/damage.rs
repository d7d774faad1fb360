//! Damage to a data directory at rest, and what a member that meets it must do.
//!
//! [`SimDisk::damage`] does one thing to a place that matters; [`SimDisk::truth`] says what the log must make of the disk as
//! it is: it compares what is read with what ought to be there, and asks whether a whole block vouches for what is gone.
//! [`SimDisk::heal`] puts everything back, as a test's operator does.
//!
//! | What is gone | The member must |
//! |---|---|
//! | identity, a segment's header, a block that a later whole block says was synced, both slots, a slot the log knows of | refuse |
//! | the last blocks, which nothing vouches for; the newest slot, which no block names yet | start, and knows less than it promised |
//! | padding, zeros behind the log, one slot of two, a spare segment | start, and has lost nothing |
//!
//! The second row is what no log can notice (`docs/formats/block.md`): such a member must not come back to its cluster.
//! Knows nothing of: how the log is recovered.

use super::content::{SECTOR, bytes_of, image_of};
use super::inode::Inode;
use super::{Dice, FaultId, Fired, SimDisk, State};
use crate::block::{Block, flags, padded};
use crate::identity::Identity;
use crate::segment::{DATA_START, generation_of};
use crate::walk::Position;
use std::collections::BTreeMap;

const IDENTITY: &str = "identity";
const SLOT_BYTES: usize = 64;
const SLOT_PLACES: [usize; 2] = [0, 4096];
const SEGMENT_HEADER_BYTES: usize = 64;

/// Where damage strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The first block of the log.
    LogHead,
    /// One in the middle.
    LogMiddle,
    /// The last block that another one vouches for.
    LogTail,
    /// The last block, which nothing vouches for.
    LogEnd,
    /// The header of a segment.
    LogHeader,
    /// One of the two slots of term and vote.
    Slot,
    /// Both slots.
    Slots,
    /// The identity.
    Identity,
}

/// Something that happens to a disk at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit is flipped. [F13]
    Flip(Place),
    /// A sector cannot be read. [F13]
    Unreadable(Place),
    /// A sector holds again what it held before it was last written. [F14]
    Stale(Place),
    /// A sector holds what belongs elsewhere. [F14]
    Misplaced(Place),
    /// The file of this place is gone. [F15]
    Missing(Place),
    /// It is shorter. [F15]
    Truncated(Place),
    /// It holds something else. [F15]
    Foreign(Place),
    /// A temporary file was left over, and one of somebody's editor. [F15]
    Leftover,
}

impl Damage {
    /// Whose row of the fault model it is.
    #[must_use]
    pub fn id(self) -> FaultId {
        match self {
            Damage::Flip(_) | Damage::Unreadable(_) => FaultId::F13,
            Damage::Stale(_) | Damage::Misplaced(_) => FaultId::F14,
            _ => FaultId::F15,
        }
    }
}

/// What the log must make of a disk, in ascending order of care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// Start; nothing is lost.
    Whole,
    /// Start with nothing lost, or refuse.
    Either,
    /// Start or refuse; something promised may be gone, and nothing on the disk can tell.
    MayForget,
    /// Refuse, with an error that names a file.
    Refuse,
}

/// One whole block of the log.
struct Found {
    at: Position,
    len: usize,
    synced: Position,
    crc: u32,
    chain: u32,
    number: u64,
    flags: u16,
    /// Group → generation of its slots.
    slots: Vec<(u32, u64)>,
}

/// Two views of a file: as it is read, and as it ought to be.
struct Views {
    actual: Vec<u8>,
    right: Vec<u8>,
}

impl Inode {
    fn views(&self) -> Views {
        let actual = self.content.to_vec();
        let mut right = actual.clone();
        for (&sector, image) in &self.wronged {
            let is_hidden = self.ghosts.contains_key(&sector)
                || self.doubtful.iter().any(|doubtful| doubtful.sector == sector);
            let start = sector * SECTOR;
            if is_hidden || right.len() <= start {
                continue;
            }
            let stop = right.len().min(start + SECTOR);
            right[start..stop].copy_from_slice(&bytes_of(image)[..stop - start]);
        }
        Views { actual, right }
    }
}

fn parse(identity: &Identity, bytes: &[u8], at: Position) -> Option<Found> {
    let file_id = identity.file_id(at.segment);
    let block = Block::parse(bytes, at.offset as usize, file_id, at.segment).ok()?;
    Some(Found {
        at,
        len: block.header.len,
        synced: block.header.synced,
        crc: block.crc,
        chain: block.header.chain,
        number: block.header.number,
        flags: block.header.flags,
        slots: block.groups.iter().map(|row| (row.group.0, row.slots)).collect(),
    })
}

/// The blocks of the log, one after the other, as long as each follows from the one before; and where they end.
fn chain(identity: &Identity, segments: &BTreeMap<u64, &[u8]>) -> (Vec<Found>, Position) {
    let mut at = Position { segment: 1, offset: DATA_START };
    let mut blocks: Vec<Found> = Vec::new();
    while let Some(block) = segments.get(&at.segment).and_then(|bytes| parse(identity, bytes, at)) {
        let (crc, number) = blocks.last().map_or((0, 0), |last| (last.crc, last.number));
        if (block.chain, block.number) != (crc, number + 1) {
            break;
        }
        at = match block.flags & flags::ROTATE {
            0 => Position { offset: at.offset + padded(block.len) as u64, ..at },
            _ => Position { segment: at.segment + 1, offset: DATA_START },
        };
        blocks.push(block);
    }
    (blocks, at)
}

impl State {
    fn file(&self, name: &str) -> Option<&Inode> {
        self.names.now.get(name).map(|&inode| &self.inodes[inode])
    }

    /// The identity that the directory ought to have.
    fn right_identity(&self) -> Option<Identity> {
        let named = self.names.now.get(IDENTITY).copied();
        let inode = self.replaced.get(IDENTITY).map_or(named, |replaced| replaced.before);
        Identity::from_bytes(IDENTITY, &self.inodes[inode?].views().right).ok()
    }

    fn segments(&self) -> BTreeMap<u64, Views> {
        let named = self.names.now.iter();
        named.filter_map(|(name, &at)| Some((generation_of(name)?, self.inodes[at].views()))).collect()
    }

    fn truth_of_files(&self) -> Truth {
        let still = self.replaced.iter();
        let still = still.filter(|(name, replaced)| self.names.now.get(*name).copied() == replaced.by);
        still.map(|(_, replaced)| replaced.truth).max().unwrap_or(Truth::Whole)
    }

    fn truth(&self) -> Truth {
        let is_clean = |inode: &Inode| inode.wronged.is_empty() && inode.unreadable.is_empty();
        let of_files = self.truth_of_files();
        if of_files == Truth::Refuse || self.names.now.values().all(|&inode| is_clean(&self.inodes[inode])) {
            return of_files;
        }
        let Some(identity) = self.right_identity() else {
            return of_files; // nobody's directory yet
        };
        let is_read =
            |name: &&String| *name == IDENTITY || name.starts_with("slots-") || generation_of(name).is_some();
        let is_unreadable = |name: &String| self.file(name).is_some_and(|file| !file.unreadable.is_empty());
        if self.names.now.keys().filter(is_read).any(is_unreadable) {
            return Truth::Refuse;
        }
        if self.file(IDENTITY).map(Inode::views).is_some_and(|views| views.actual != views.right) {
            return Truth::Refuse;
        }
        let segments = self.segments();
        let known = |which: fn(&Views) -> &[u8]| {
            segments.iter().map(|(generation, views)| (*generation, which(views))).collect::<BTreeMap<_, _>>()
        };
        let (actual, right) = (known(|views| &views.actual), known(|views| &views.right));
        let (blocks, end) = chain(&identity, &right);
        let of_log = truth_of_log(&identity, &actual, &right, &blocks, end);
        let whole = || {
            blocks.iter().filter(|block| {
                parse(&identity, actual[&block.at.segment], block.at)
                    .is_some_and(|found| found.crc == block.crc)
            })
        };
        let of_slots = identity.groups.iter().map(|group| {
            let rows = whole().flat_map(|block| &block.slots);
            let generation = rows.filter(|(of, _)| *of == group.0).map(|(_, slots)| *slots).max();
            let owner = (group.0, identity.file_id(0));
            self.file(&crate::slots::name_of(*group))
                .map_or(Truth::Whole, |file| truth_of_slots(&file.views(), owner, generation.unwrap_or(0)))
        });
        of_slots.max().unwrap_or(Truth::Whole).max(of_log).max(of_files)
    }
}

fn truth_of_log(
    identity: &Identity,
    actual: &BTreeMap<u64, &[u8]>,
    right: &BTreeMap<u64, &[u8]>,
    blocks: &[Found],
    end: Position,
) -> Truth {
    let mut truth = Truth::Whole;
    for (generation, bytes) in actual {
        let header = |bytes: &[u8]| bytes.get(..SEGMENT_HEADER_BYTES).map(<[u8]>::to_vec);
        if header(bytes) != header(right[generation]) {
            truth = truth.max(if *generation <= end.segment { Truth::Refuse } else { Truth::Either });
        }
    }
    let is_whole = |block: &Found| {
        let range = block.at.offset as usize..block.at.offset as usize + block.len;
        actual[&block.at.segment].get(range.clone()) == right[&block.at.segment].get(range)
    };
    let Some(gone) = blocks.iter().find(|block| !is_whole(block)) else {
        return truth;
    };
    // The same question the log asks, but of what is known to have been there.
    let vouched = blocks.iter().any(|block| gone.at < block.synced && is_whole(block)) || {
        let spare = actual.range(gone.at.segment..);
        spare.into_iter().any(|(&segment, bytes)| {
            (DATA_START..bytes.len() as u64)
                .step_by(SECTOR)
                .filter_map(|offset| parse(identity, bytes, Position { segment, offset }))
                .any(|block| gone.at < block.synced)
        })
    };
    truth.max(if vouched { Truth::Refuse } else { Truth::MayForget })
}

/// The generation of the slot at `place`, if it is whole and of `owner`.
fn slot_at(bytes: &[u8], place: usize, owner: (u32, u64)) -> Option<u64> {
    let slot = bytes.get(place..place + SLOT_BYTES)?;
    let found = u32::from_le_bytes(slot[8..12].try_into().expect("four bytes"));
    let computed = crc32c::crc32c_append(crc32c::crc32c(&slot[..8]), &slot[12..]);
    let u64_at = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
    let group = u32::from_le_bytes(slot[12..16].try_into().expect("four bytes"));
    (slot.starts_with(b"KTSL") && found == computed && (group, u64_at(16)) == owner).then(|| u64_at(24))
}

/// `known`: the newest generation that the log tells of.
fn truth_of_slots(views: &Views, owner: (u32, u64), known: u64) -> Truth {
    let newest = |bytes: &[u8]| SLOT_PLACES.iter().filter_map(|&place| slot_at(bytes, place, owner)).max();
    match (newest(&views.actual), newest(&views.right)) {
        (actual, right) if actual == right => Truth::Whole,
        (None, _) => Truth::Refuse,
        (Some(actual), _) if actual < known => Truth::Refuse,
        _ => Truth::MayForget,
    }
}

impl SimDisk {
    /// What the log must make of the disk if it were opened now. Ask before every opening, also before one that will be
    /// cut off: after [`Truth::MayForget`] the log may have cut what was gone, and nothing shows it any more.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.state().truth()
    }

    /// Puts back everything that damage, lost and misdirected writes did: the disk is as an honest one would be.
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

    /// Does `damage`, where exactly follows from `seed`. Returns what was done; `None` if there was nothing to damage, or if
    /// the disk is already damaged so that something is lost: of two faults in one member nothing is promised. Damage to whole files is for directories that nobody has open.
    pub fn damage(&self, damage: Damage, seed: u64) -> Option<String> {
        let mut state = self.state();
        state.settle();
        let mut dice = Dice::new(seed);
        if state.truth() != Truth::Whole {
            return None; // what is lost may be what vouches: of two faults in one member nothing is promised
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
                for name in ["log-0000000000000009.seg.tmp", "identity.tmp", ".note.swp"] {
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

    /// Puts the other disk's file of `place` where this one's is, as when backups are mixed up. Nobody has this one open.
    /// Returns what was done. [fault-model F15]
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

/// A range of bytes of a file that count.
type Spot = (String, core::ops::Range<usize>);

impl State {
    /// Replaces a file, and remembers it for [`SimDisk::heal`].
    fn replace(&mut self, name: &str, bytes: Option<&[u8]>, truth: Truth) {
        let before = self.names.now.get(name).copied();
        self.set_contents(name, bytes);
        let by = self.names.now.get(name).copied();
        self.replaced.insert(name.to_owned(), Replaced { before, by, truth });
    }

    /// Where `place` is: ranges that are to be damaged together. `None` if there is no such place.
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
            Some(vec![(crate::segment::name_of(block.at.segment), start..start + block.len)])
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
                let segments = self.names.now.keys().filter(|name| generation_of(name).is_some());
                let segments: Vec<&String> = segments.collect();
                let chosen = segments.get(dice.below(segments.len().max(1) as u64) as usize)?;
                Some(vec![((*chosen).clone(), 0..SEGMENT_HEADER_BYTES)])
            }
            Place::Slot | Place::Slots => {
                let group = identity.groups[dice.below(identity.groups.len() as u64) as usize];
                let name = crate::slots::name_of(group);
                let both = SLOT_PLACES.map(|at| (name.clone(), at..at + SLOT_BYTES)).to_vec();
                let one = vec![both[dice.below(2) as usize].clone()];
                Some(if place == Place::Slot { one } else { both })
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
        // A directory whose log was never written to has no past that could be missed.
        if blocks.is_empty() {
            return None;
        }
        let before = self.file(&name)?.content.to_vec();
        let after = changed(&before, dice);
        if after.as_ref() == Some(&before) {
            return None;
        }
        let is_spare = generation_of(&name).is_some_and(|generation| end.segment < generation);
        self.replace(&name, after.as_deref(), if is_spare { Truth::Either } else { Truth::Refuse });
        Some(format!("{name}, {} of {} bytes", after.map_or(0, |bytes| bytes.len()), before.len()))
    }
}

/// A name whose file was replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    before: Option<usize>,
    /// If something else has the name by now, somebody put it right.
    by: Option<usize>,
    truth: Truth,
}

impl Replaced {
    /// What the name stood for before.
    pub fn before(&self) -> Option<usize> {
        self.before
    }
}
