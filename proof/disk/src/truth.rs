//! Truth: the outcomes of a start that are right for a disk; for judges.
//!
//! The content that is read is compared with the content that should be there; where relevant bytes are gone, it
//! matters whether a whole block proves that they were synced.
//!
//! | What is gone | The member must |
//! |---|---|
//! | identity, segment header, a block that a later whole one calls synced, both slots, a slot the log names | refuse |
//! | the last blocks, which no block calls synced; the newest slot, which no block names yet | start, loss unnoticed |
//! | padding, zeros behind the log, one slot of two, a spare segment | start, nothing lost |
//! | zeros over what was cut from the log | start, nothing lost; or refuse: an old block there may call more synced |
//!
//! No log can notice the loss in the second row (`docs/formats/block.md`): such a member must not come back to its
//! cluster.
//! Knows nothing of: recovery, repair.

use crate::SimDisk;
use crate::content::{SECTOR, bytes_of, image_of};
use crate::damage::Replaced;
use crate::inode::Inode;
use crate::state::State;
use kattu_raft::EntryId;
use kattu_wal::Identity;
use kattu_wal::Position;
use kattu_wal::block::{Block, flags};
use kattu_wal::names::{DATA_START, segment_name, segment_of, slots_name, snapshot_of};
use std::collections::BTreeMap;

pub(crate) const IDENTITY: &str = "identity";
pub(crate) const SLOT_BYTES: usize = 64;
pub(crate) const SLOT_PLACES: [usize; 2] = [0, 4096];
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;

/// The right outcomes of a start, in ascending order of care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// Start; nothing is lost.
    Whole,
    /// Start with nothing lost, or refuse.
    Either,
    /// Start or refuse; acknowledged data may be gone, and nothing on the disk shows it.
    MayForget,
    /// Refuse, with an error that names a file.
    Refuse,
}

/// One whole block of the log.
pub(crate) struct Found {
    pub at: Position,
    pub len: usize,
    /// Where the next one begins.
    pub stop: u64,
    pub synced: Position,
    pub crc: u32,
    pub chain: u32,
    pub number: u64,
    pub flags: u16,
    /// Group → generation of its slots.
    pub slots: Vec<(u32, u64)>,
}

/// Two views of a file: as it is read, and as it should be.
pub(crate) struct Views {
    pub actual: Vec<u8>,
    pub right: Vec<u8>,
}

impl Inode {
    pub fn views(&self) -> Views {
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
        stop: block.stop(),
        synced: block.header.synced,
        crc: block.crc,
        chain: block.header.chain,
        number: block.header.number,
        flags: block.header.flags,
        slots: block.groups.iter().map(|row| (row.group.0, row.slots)).collect(),
    })
}

/// The blocks of the log in order, as long as each follows the one before; and where they end.
pub(crate) fn chain(identity: &Identity, segments: &BTreeMap<u64, &[u8]>) -> (Vec<Found>, Position) {
    // The segments before the first one were removed when a snapshot covered them: its first block begins the chain.
    let first = segments.keys().next().copied().unwrap_or(1);
    let mut at = Position { segment: first, offset: DATA_START };
    let mut blocks: Vec<Found> = Vec::new();
    while let Some(block) = segments.get(&at.segment).and_then(|bytes| parse(identity, bytes, at)) {
        let begins = blocks.is_empty() && first != 1;
        let (crc, number) = blocks.last().map_or((0, 0), |last| (last.crc, last.number));
        if !begins && (block.chain, block.number) != (crc, number + 1) {
            break;
        }
        at = match block.flags & flags::ROTATE {
            0 => Position { offset: block.stop, ..at },
            _ => Position { segment: at.segment + 1, offset: DATA_START },
        };
        blocks.push(block);
    }
    (blocks, at)
}

impl State {
    pub fn file(&self, name: &str) -> Option<&Inode> {
        self.names.now.get(name).map(|&inode| &self.inodes[inode])
    }

    /// The identity that the directory should have.
    pub(crate) fn right_identity(&self) -> Option<Identity> {
        let named = self.names.now.get(IDENTITY).copied();
        let inode = self.replaced.get(IDENTITY).map_or(named, |replaced| replaced.before);
        Identity::from_bytes(IDENTITY, &self.inodes[inode?].views().right).ok()
    }

    pub fn segments(&self) -> BTreeMap<u64, Views> {
        let named = self.names.now.iter();
        named.filter_map(|(name, &at)| Some((segment_of(name)?, self.inodes[at].views()))).collect()
    }

    pub(crate) fn truth_of_files(&self) -> Truth {
        let still = self.replaced.iter();
        let still = still.filter(|(name, replaced)| self.names.now.get(*name).copied() == replaced.by);
        still.map(|(_, replaced)| replaced.truth).max().unwrap_or(Truth::Whole)
    }

    pub fn truth(&self) -> Truth {
        let is_clean = |inode: &Inode| inode.wronged.is_empty() && inode.unreadable.is_empty();
        let of_files = self.truth_of_files();
        if of_files == Truth::Refuse || self.names.now.values().all(|&inode| is_clean(&self.inodes[inode])) {
            return of_files;
        }
        let Some(identity) = self.right_identity() else {
            return of_files; // no identity yet
        };
        let is_read =
            |name: &&String| *name == IDENTITY || name.starts_with("slots-") || segment_of(name).is_some();
        let is_unreadable = |name: &String| self.file(name).is_some_and(|file| !file.unreadable.is_empty());
        if self.names.now.keys().filter(is_read).any(is_unreadable) {
            return Truth::Refuse;
        }
        if self.file(IDENTITY).map(Inode::views).is_some_and(|views| views.actual != views.right) {
            return Truth::Refuse;
        }
        let segments = self.segments();
        let (actual, right) =
            (views(&segments, |views| &views.actual), views(&segments, |views| &views.right));
        let (blocks, end) = chain(&identity, &right);
        let of_log = truth_of_log(&identity, &actual, &right, &blocks, end);
        self.truth_of_all_slots(&identity, &actual, &blocks).max(of_log).max(of_files)
    }

    fn truth_of_all_slots(
        &self,
        identity: &Identity,
        actual: &BTreeMap<u64, &[u8]>,
        blocks: &[Found],
    ) -> Truth {
        let whole = || {
            blocks.iter().filter(|block| {
                parse(identity, actual[&block.at.segment], block.at)
                    .is_some_and(|found| found.crc == block.crc)
            })
        };
        let of_slots = identity.groups.iter().map(|group| {
            let rows = whole().flat_map(|block| &block.slots);
            let generation = rows.filter(|(of, _)| *of == group.0).map(|(_, slots)| *slots).max();
            let owner = (group.0, identity.file_id(0));
            self.file(&slots_name(*group))
                .map_or(Truth::Whole, |file| truth_of_slots(&file.views(), owner, generation.unwrap_or(0)))
        });
        of_slots.max().unwrap_or(Truth::Whole)
    }

    /// See [`SimDisk::tells_all`].
    fn tells_all(&self) -> bool {
        let Some(identity) = self.right_identity() else { return false };
        let segments = self.segments();
        let (actual, right) =
            (views(&segments, |views| &views.actual), views(&segments, |views| &views.right));
        let (blocks, _) = chain(&identity, &right);
        let is_gone = |block: &Found| !is_whole(block, &actual, &right);
        // The proving block must be on the medium: if the power goes during the repair, it is still there.
        let vouches = blocks.iter().filter(|block| !is_gone(block) && self.is_firm(block));
        let synced = vouches.map(|block| block.synced).max();
        blocks.iter().filter(|block| is_gone(block)).all(|block| Some(block.at) < synced)
            && self.truth_of_all_slots(&identity, &actual, &blocks) == Truth::Whole
    }
}

impl State {
    /// Whether the medium holds a block as it is read.
    fn is_firm(&self, block: &Found) -> bool {
        let Some(file) = self.file(&segment_name(block.at.segment)) else { return false };
        let first = block.at.offset as usize / SECTOR;
        let mut sectors = first..block.stop as usize / SECTOR;
        sectors.all(|sector| file.medium(sector) == file.content.sector(sector))
    }
}

/// All segments, in one of two views.
fn views(segments: &BTreeMap<u64, Views>, which: impl Fn(&Views) -> &[u8]) -> BTreeMap<u64, &[u8]> {
    segments.iter().map(|(generation, views)| (*generation, which(views))).collect()
}

/// Whether a block reads as it should.
fn is_whole(block: &Found, actual: &BTreeMap<u64, &[u8]>, right: &BTreeMap<u64, &[u8]>) -> bool {
    let range = block.at.offset as usize..block.at.offset as usize + block.len;
    actual[&block.at.segment].get(range.clone()) == right[&block.at.segment].get(range)
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
    let is_whole = |block: &Found| is_whole(block, actual, right);
    let Some(gone) = blocks.iter().find(|block| !is_whole(block)) else {
        let old = has_old_block_beyond(identity, actual, right, end);
        return truth.max(if old { Truth::Either } else { Truth::Whole });
    };
    // The check that the log makes, but against the blocks that are known to have been there.
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

/// Whether the disk has kept a block behind the end that was overwritten and that calls places beyond the end synced: a
/// log that accepts it takes the cut part for lost.
fn has_old_block_beyond(
    identity: &Identity,
    actual: &BTreeMap<u64, &[u8]>,
    right: &BTreeMap<u64, &[u8]>,
    end: Position,
) -> bool {
    actual.range(end.segment..).any(|(&segment, bytes)| {
        let first = if segment == end.segment { end.offset } else { DATA_START };
        (first..bytes.len() as u64).step_by(SECTOR).any(|offset| {
            let at = Position { segment, offset };
            let stands = parse(identity, bytes, at).filter(|block| end < block.synced);
            stands.is_some_and(|block| {
                let range = offset as usize..offset as usize + block.len;
                right[&segment].get(range.clone()) != bytes.get(range)
            })
        })
    })
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

/// `known`: the newest generation that the log names.
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
    /// The right outcomes if the log were opened now. To be called before every opening, also before one that will be
    /// cut off: after [`Truth::MayForget`] the log may have cut the damaged part, and nothing shows it any more.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.state().truth()
    }

    /// The last entries of the snapshots that the disk has not damaged.
    #[must_use]
    pub fn good_snapshots(&self) -> Vec<EntryId> {
        let state = self.state();
        let is_good = |(name, inode): &(&String, usize)| {
            let file = &state.inodes[*inode];
            let is_replaced = state.replaced.get(*name).is_some_and(|replaced| replaced.by == Some(*inode));
            file.wronged.is_empty() && file.unreadable.is_empty() && !is_replaced
        };
        let snapshots = state.names.now.iter().filter(|(name, _)| snapshot_of(name).is_some());
        let good = snapshots.map(|(name, &inode)| (name, inode)).filter(is_good);
        good.filter_map(|(name, _)| snapshot_of(name)).map(|(_, last)| last).collect()
    }

    /// Whether a snapshot is damaged or gone by the disk's fault alone.
    #[must_use]
    pub fn has_lost_a_snapshot(&self) -> bool {
        let state = self.state();
        let is_one = |name: &String| snapshot_of(name).is_some();
        let is_damaged = |inode: usize| {
            let file = &state.inodes[inode];
            !file.wronged.is_empty() || !file.unreadable.is_empty()
        };
        let is_replaced = |name: &String, replaced: &Replaced| {
            is_one(name) && state.names.now.get(name).copied() == replaced.by
        };
        state.replaced.iter().any(|(name, replaced)| is_replaced(name, replaced))
            || state.names.now.iter().any(|(name, &inode)| is_one(name) && is_damaged(inode))
    }

    /// Whether every loss is noticed, whenever the power goes: then the vote floor of a repaired log covers all that it
    /// has lost.
    #[must_use]
    pub fn tells_all(&self) -> bool {
        self.state().tells_all()
    }

    /// To be called after a log was opened without whole files, and nothing was lost with them: they do not come back.
    /// One that came back later would stand before a gap, because the log has gone on without it.
    pub fn forget_needless(&self) {
        let is_needless = |replaced: &Replaced| replaced.by.is_none() && replaced.truth <= Truth::Either;
        self.state().replaced.retain(|_, replaced| !is_needless(replaced));
    }

    /// From now on the disk's content counts as right: lost data stays lost, and was replaced in another way.
    pub fn accept(&self) {
        let mut state = self.state();
        state.replaced.clear();
        for inode in &mut state.inodes {
            let Inode { wronged, ghosts, doubtful, content, .. } = inode;
            // A sector that a process still reads as it wrote it is not lost yet, and that content is the right one.
            let is_doubtful = |sector: &usize| doubtful.iter().any(|doubtful| doubtful.sector == *sector);
            wronged.retain(|sector, right| {
                let is_ghost = ghosts.contains_key(sector);
                if is_ghost {
                    *right = image_of(content.sector(*sector));
                }
                is_ghost || is_doubtful(sector)
            });
        }
    }
}
