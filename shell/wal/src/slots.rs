//! Slots: term and vote of one group, written in turn to two places, so that damage to the log's tail never affects the
//! vote, and a vote needs no space in the log. [fault-model ST8]
//!
//! ```text
//!  0       4      8     12          16        24           32     40     48    56    (64 bytes, at 0 and at 4096)
//!  ├ magic ┼ vers ┼ crc ┼ group ────┼ file id ┼ generation ┼ term ┼ vote ┼ lsn ┼ 0
//! ```
//! Little-endian; the checksum covers the rest. Generation `g` is written to slot `g mod 2` and synced; then, without a
//! sync of its own, the same bytes go to the other slot, so that in the end both are equal and losing either is
//! harmless. While only one slot is known to hold the newest generation, the next write goes to the other. The blocks
//! of the log name the generation that they were written after, so that an old slot is not taken for the newest one.
//! Knows nothing of: entries, elections.

use crate::error::WalError;
use crate::files::{Files, LogFile};
use crate::identity::{Identity, VERSION};
use crate::segment::publish;
use kattu_raft::{GroupId, HardState, Lsn, NodeId, Term};

const MAGIC: u32 = u32::from_le_bytes(*b"KTSL");
const SLOT_BYTES: usize = 64;
const FILE_BYTES: usize = 8192;
const PLACES: [usize; 2] = [0, 4096];

/// The generation of new slots.
const FIRST_GENERATION: u64 = 1;

/// The name of the file with term and vote of a group.
#[must_use]
pub fn name_of(group: GroupId) -> String {
    format!("slots-{:08x}", group.0)
}

/// The content of a valid slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub generation: u64,
    pub hard: HardState,
    pub lsn: Lsn,
}

impl Slot {
    fn to_bytes(self, file_id: u64, group: GroupId) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&group.0.to_le_bytes());
        let vote = self.hard.vote.map_or(0, |node| node.0);
        let numbers = [file_id, self.generation, self.hard.term.0, vote, self.lsn.0];
        for (place, number) in numbers.into_iter().enumerate() {
            bytes[16 + place * 8..24 + place * 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = checksum(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8], file_id: u64, group: GroupId) -> Result<Slot, BadSlot> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(0) != MAGIC {
            return Err(BadSlot::Damaged(format!("starts with {:#010x}, expected {MAGIC:#010x}", u32_at(0))));
        }
        let (found, computed) = (u32_at(8), checksum(bytes));
        if found != computed {
            let what = format!("slot checksum {found:#010x}, its bytes give {computed:#010x}");
            return Err(BadSlot::Damaged(what));
        }
        if u32_at(4) != VERSION {
            return Err(BadSlot::Version(u32_at(4)));
        }
        if (u64_at(16), u32_at(12)) != (file_id, group.0) {
            return Err(BadSlot::Damaged("a slot of another directory or group".into()));
        }
        let vote = Some(NodeId(u64_at(40))).filter(|node| node.0 != 0);
        let hard = HardState { term: Term(u64_at(32)), vote };
        Ok(Slot { generation: u64_at(24), hard, lsn: Lsn(u64_at(48)) })
    }
}

enum BadSlot {
    Damaged(String),
    Version(u32),
}

fn checksum(slot: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&slot[..8]), &slot[12..SLOT_BYTES])
}

/// Whether the slots in the file `name`, of any member, were written again after they were made.
pub(crate) fn were_used(files: &dyn Files, name: &str) -> std::io::Result<bool> {
    let file = files.open(name)?;
    let mut bytes = vec![0; FILE_BYTES.min(file.bytes()? as usize)];
    file.read_at(0, &mut bytes)?;
    let is_used = |slot: &[u8]| {
        let u32_at = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().expect("four bytes"));
        let generation = u64::from_le_bytes(slot[24..32].try_into().expect("eight bytes"));
        u32_at(0) == MAGIC && u32_at(8) == checksum(slot) && generation != FIRST_GENERATION
    };
    Ok(PLACES.iter().filter_map(|&place| bytes.get(place..place + SLOT_BYTES)).any(is_used))
}

/// The slots of one group, open.
#[derive(Debug)]
pub(crate) struct Slots {
    file: Box<dyn LogFile>,
    name: String,
    file_id: u64,
    group: GroupId,
    pub newest: Slot,
    /// The copy in the other slot is written but not synced.
    copy_is_open: bool,
}

impl Slots {
    /// Makes the slots of a group that has never voted.
    pub fn create(files: &dyn Files, identity: &Identity, group: GroupId) -> Result<(), WalError> {
        let name = name_of(group);
        let aside = format!("{name}.tmp");
        let first = Slot { generation: FIRST_GENERATION, hard: HardState::default(), lsn: Lsn(0) };
        let mut bytes = [0; FILE_BYTES];
        for place in PLACES {
            let slot = first.to_bytes(identity.file_id(0), group);
            bytes[place..place + SLOT_BYTES].copy_from_slice(&slot);
        }
        let made = files.create(&aside).and_then(|file| {
            file.allocate(FILE_BYTES as u64)?;
            file.write_at(0, &bytes)?;
            file.sync()
        });
        made.map_err(|error| WalError::growing(&name, FILE_BYTES as u64, &error))?;
        publish(files, &aside, &name, FILE_BYTES as u64)
    }

    /// Reads both slots without changing them.
    pub fn look(
        files: &dyn Files,
        identity: &Identity,
        group: GroupId,
    ) -> Result<[Result<Slot, String>; 2], WalError> {
        let (_, slots) = Slots::read(files, identity, group)?;
        Ok(slots)
    }

    #[allow(clippy::type_complexity)] // a file and its two halves
    fn read(
        files: &dyn Files,
        identity: &Identity,
        group: GroupId,
    ) -> Result<(Box<dyn LogFile>, [Result<Slot, String>; 2]), WalError> {
        let name = name_of(group);
        let file = files.open(&name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => WalError::damaged(&name, 0, "the file is missing"),
            _ => WalError::io(&name, "open", &error),
        })?;
        let found = file.bytes().map_err(|error| WalError::io(&name, "read", &error))?;
        if found != FILE_BYTES as u64 {
            return Err(WalError::damaged(&name, found, format!("{found} bytes, expected {FILE_BYTES}")));
        }
        let mut bytes = [0; FILE_BYTES];
        file.read_at(0, &mut bytes).map_err(|error| WalError::io(&name, "read", &error))?;
        let mut slots = [Err(String::new()), Err(String::new())];
        for (slot, place) in slots.iter_mut().zip(PLACES) {
            *slot = match Slot::from_bytes(&bytes[place..place + SLOT_BYTES], identity.file_id(0), group) {
                Ok(slot) => Ok(slot),
                Err(BadSlot::Damaged(what)) => Err(what),
                Err(BadSlot::Version(found)) => {
                    return Err(WalError::OtherFormat { file: name, found, supported: VERSION });
                }
            };
        }
        Ok((file, slots))
    }

    /// Reads the slots, writes the newest to both, and syncs them: only then is the content known to be durable.
    /// `generation_min` is the newest generation that the log names.
    pub fn open(
        files: &dyn Files,
        identity: &Identity,
        group: GroupId,
        generation_min: u64,
    ) -> Result<Slots, WalError> {
        let (file, slots) = Slots::read(files, identity, group)?;
        let name = name_of(group);
        let (held_at, newest) = match &slots {
            [Ok(left), Ok(right)] if left.generation < right.generation => (1, *right),
            [Ok(left), _] => (0, *left),
            [Err(_), Ok(right)] => (1, *right),
            [Err(what), Err(_)] => {
                return Err(WalError::damaged(&name, 0, format!("both slots are bad: {what}")));
            }
        };
        if newest.generation < generation_min {
            let what = format!(
                "the newest slot has generation {}, the log was written after generation {generation_min}: a vote is lost",
                newest.generation
            );
            return Err(WalError::damaged(&name, PLACES[held_at] as u64, what));
        }
        let mut slots = Slots { file, name, file_id: identity.file_id(0), group, newest, copy_is_open: true };
        // The newest is not overwritten before its copy is durable.
        for place in [PLACES[held_at ^ 1], PLACES[held_at]] {
            slots.write_to(place)?;
            slots.sync()?;
        }
        slots.copy_is_open = false;
        Ok(slots)
    }

    /// Makes `hard` durable.
    pub fn store(&mut self, hard: HardState, lsn: Lsn) -> Result<(), WalError> {
        self.newest = Slot { generation: self.newest.generation + 1, hard, lsn };
        self.write_to(self.own_place())?;
        self.sync()?;
        self.write_to(self.other_place())?;
        self.copy_is_open = true;
        Ok(())
    }

    /// Makes the copy durable too. Returns whether there was one to sync.
    pub fn settle(&mut self) -> Result<bool, WalError> {
        if !self.copy_is_open {
            return Ok(false);
        }
        self.sync()?;
        self.copy_is_open = false;
        Ok(true)
    }

    fn own_place(&self) -> usize {
        PLACES[(self.newest.generation % 2) as usize]
    }

    fn other_place(&self) -> usize {
        PLACES[(self.newest.generation % 2) as usize ^ 1]
    }

    fn write_to(&self, place: usize) -> Result<(), WalError> {
        let bytes = self.newest.to_bytes(self.file_id, self.group);
        self.file.write_at(place as u64, &bytes).map_err(|error| WalError::io(&self.name, "write", &error))
    }

    fn sync(&self) -> Result<(), WalError> {
        self.file.sync().map_err(|error| WalError::io(&self.name, "sync", &error))
    }
}
