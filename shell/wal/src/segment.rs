//! Segments: the files of the log, made ahead of time: new ones full of zeros, used ones full of old blocks.
//!
//! A new segment is written aside, filled with zeros, synced, renamed, and its name synced, before the first block goes in:
//! from then on every write overwrites, and a sync moves no metadata. [fault-model ST9]
//!
//! ```text
//!  0       4      8     12      16        24           32    40        48     56            64    4096
//!  ├ magic ┼ vers ┼ crc ┼ flags ┼ file id ┼ generation ┼ len ┼ cluster ┼ node ┼ incarnation ┼ 0 … ┼ blocks …
//! ```
//! Little-endian; the checksum covers bytes 12..64. `docs/formats/block.md`
//!
//! A segment that is not needed any more becomes the next one: its file gets another header and another name, and keeps
//! its bytes. They are blocks of another segment by their own words, so they are none here; the header says that they
//! are to be expected, and bytes that are not zero are no sign of a torn write. [fault-model ST5]
//! Knows nothing of: blocks.

use crate::block::SECTOR;
use crate::error::WalError;
use crate::files::{Files, LogFile};
use crate::identity::{Identity, VERSION};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the first block goes: a page of its own for the header, so that no write of a block touches it.
pub(crate) const DATA_START: u64 = 4096;

/// Room that is always left for the rotation mark.
pub(crate) const TAIL_BYTES: u64 = SECTOR as u64;

/// The smallest segment that makes sense.
pub(crate) const BYTES_MIN: u64 = 2 * DATA_START;

const MAGIC: u32 = u32::from_le_bytes(*b"KTSG");
/// Flag: the file was another segment before.
const RECYCLED: u32 = 1;
const HEADER_BYTES: usize = 64;
const FILL_BYTES: usize = 1 << 20;
const RESERVE: &str = "reserve";

pub(crate) fn name_of(generation: u64) -> String {
    format!("log-{generation:016x}.seg")
}

/// The number in a segment's name, if it is one.
pub(crate) fn generation_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    let generation = u64::from_str_radix(digits, 16).ok()?;
    (name_of(generation) == name).then_some(generation)
}

/// A segment that exists.
#[derive(Debug)]
pub(crate) struct Segment {
    pub generation: u64,
    pub len: u64,
    pub file: Box<dyn LogFile>,
}

impl Segment {
    /// Where blocks must end, so that the rotation mark still fits.
    pub fn data_end(&self) -> u64 {
        self.len - TAIL_BYTES
    }
}

/// The length of a segment that takes a block of `block` bytes, at least `wanted`.
pub(crate) fn length_for(wanted: u64, block: u64) -> u64 {
    wanted.max(DATA_START + block + TAIL_BYTES).max(BYTES_MIN).next_multiple_of(DATA_START)
}

fn header_bytes(identity: &Identity, generation: u64, len: u64, flags: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&flags.to_le_bytes());
    let numbers = [
        identity.file_id(generation),
        generation,
        len,
        identity.cluster,
        identity.node.0,
        identity.incarnation.0,
    ];
    for (place, number) in numbers.into_iter().enumerate() {
        header[16 + place * 8..24 + place * 8].copy_from_slice(&number.to_le_bytes());
    }
    let crc = checksum(&header);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
    header
}

fn checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..HEADER_BYTES])
}

/// Checks the header at the start of a segment. Returns whether the file was another segment before.
pub(crate) fn check_header(identity: &Identity, generation: u64, bytes: &[u8]) -> Result<bool, WalError> {
    let file = name_of(generation);
    let damaged = |offset, what: String| WalError::damaged(&file, offset, what);
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Err(damaged(0, format!("{} bytes, too short for a segment", bytes.len())));
    };
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    if u32_at(0) != MAGIC {
        return Err(damaged(0, format!("starts with {:#010x}, a segment with {MAGIC:#010x}", u32_at(0))));
    }
    let (found, computed) = (u32_at(8), checksum(header));
    if found != computed {
        return Err(damaged(8, format!("header checksum {found:#010x}, its bytes give {computed:#010x}")));
    }
    if u32_at(4) != VERSION {
        return Err(WalError::OtherFormat { file, found: u32_at(4), supported: VERSION });
    }
    if u32_at(12) & !RECYCLED != 0 {
        return Err(damaged(12, format!("unknown flags {:#x}", u32_at(12))));
    }
    let expected = header_bytes(identity, generation, u64_at(32), u32_at(12));
    if header != expected {
        let (cluster, node, incarnation) = (u64_at(40), u64_at(48), u64_at(56));
        let what = format!(
            "segment {} of cluster {cluster:x}, member {node:x}, incarnation {incarnation:x}; expected segment \
             {generation} of cluster {:x}, member {:x}, incarnation {:x}",
            u64_at(24),
            identity.cluster,
            identity.node.0,
            identity.incarnation.0
        );
        return Err(damaged(16, what));
    }
    if u64_at(32) != bytes.len() as u64 {
        let what = format!("{} bytes are there, the header says {}", bytes.len(), u64_at(32));
        return Err(damaged(bytes.len() as u64, what));
    }
    Ok(u32_at(12) & RECYCLED != 0)
}

/// Whether the header is no header of any segment: something else than one that is whole and of another file.
pub(crate) fn is_bad_header(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return false };
    header[..4] != MAGIC.to_le_bytes() || header[8..12] != checksum(header).to_le_bytes()
}

/// Writes the header of a segment anew, durably. What was there before its blocks is not known any more.
pub(crate) fn restore_header(
    file: &dyn LogFile,
    identity: &Identity,
    generation: u64,
    len: u64,
) -> std::io::Result<()> {
    file.write_at(0, &header_bytes(identity, generation, len, RECYCLED))?;
    file.sync()
}

/// Fills the file that was `created` under the name `aside` with `header` and zeros, and syncs it. When it cannot, nothing
/// is left of it: a full disk gets its bytes back.
fn fill(
    files: &dyn Files,
    created: std::io::Result<Box<dyn LogFile>>,
    aside: &str,
    name: &str,
    header: &[u8],
    len: u64,
) -> Result<Box<dyn LogFile>, WalError> {
    let filled = || {
        let file = created?;
        file.allocate(len)?;
        let zeros = vec![0; FILL_BYTES.min(len as usize)];
        let mut at = 0;
        while at < len {
            let part = (len - at).min(zeros.len() as u64);
            file.write_at(at, &zeros[..part as usize])?;
            at += part;
        }
        file.write_at(0, header)?;
        Ok(file)
    };
    let made = filled().map_err(|error| WalError::growing(name, len, &error));
    let made = made.and_then(|file| match file.sync() {
        Ok(()) => Ok(file),
        Err(error) => Err(WalError::syncing(name, &error)),
    });
    if made.is_err() {
        let _ = files.remove(aside); // the error above is what counts
    }
    made
}

/// Makes a segment under its final name, durable in content and name.
pub(crate) fn create(
    files: &dyn Files,
    identity: &Identity,
    generation: u64,
    len: u64,
) -> Result<Segment, WalError> {
    let name = name_of(generation);
    let aside = format!("{name}.tmp");
    let header = header_bytes(identity, generation, len, 0);
    let file = fill(files, files.create(&aside), &aside, &name, &header, len)?;
    publish(files, &aside, &name, len)?;
    Ok(Segment { generation, len, file })
}

/// Gives a synced file of `bytes` its final name, durably. A directory, too, may have no room for another name.
pub(crate) fn publish(files: &dyn Files, aside: &str, name: &str, bytes: u64) -> Result<(), WalError> {
    files.rename(aside, name).map_err(|error| {
        let _ = files.remove(aside); // gives a full disk its bytes back; the error below is what counts
        WalError::growing(name, bytes, &error)
    })?;
    if planted!("segment-name-not-synced") {
        return Ok(());
    }
    files.sync_names().map_err(|error| WalError::syncing(name, &error))
}

/// Whether the reserve is there, of the size asked for.
pub(crate) fn has_reserve(files: &dyn Files, bytes: u64) -> bool {
    bytes == 0 || files.open(RESERVE).and_then(|file| file.bytes()).is_ok_and(|found| bytes <= found)
}

/// Sets the reserve aside. [fault-model ST15]
pub(crate) fn make_reserve(files: &dyn Files, bytes: u64) -> Result<(), WalError> {
    if has_reserve(files, bytes) {
        return Ok(());
    }
    let made = files.create(RESERVE).and_then(|file| {
        file.allocate(bytes)?;
        Ok(file)
    });
    let made = made.map_err(|error| WalError::growing(RESERVE, bytes, &error));
    let made = made.and_then(|file| file.sync().map_err(|error| WalError::syncing(RESERVE, &error)));
    if made.is_err() {
        let _ = files.remove(RESERVE);
    }
    made
}

/// Gives the reserve back to the disk.
pub(crate) fn free_reserve(files: &dyn Files) -> Result<(), WalError> {
    files
        .remove(RESERVE)
        .and_then(|()| files.sync_names())
        .map_err(|error| WalError::io(RESERVE, "remove", &error))
}

/// A segment that nothing needs any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub generation: u64,
    pub len: u64,
}

/// Removes the segments that are not needed any more and makes the next ones, on whatever thread runs it, while the log
/// goes on in the current one.
pub struct SegmentTask {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) identity: Arc<Identity>,
    /// The number of the first segment to make.
    pub(crate) generation: u64,
    /// Its length.
    pub(crate) len: u64,
    /// How many segments are to be made at least, and at most: more only of used ones.
    pub(crate) wanted: (usize, usize),
    /// Segments that go, or become new ones; oldest first.
    pub(crate) used: Vec<Used>,
    pub(crate) reserve: u64,
    pub(crate) gate: Gate,
}

/// Open while the log is: a task that outlives it changes no names, for the directory may have another owner by then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<bool>>);

impl Gate {
    /// Comes back when nobody is inside any more.
    pub fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Keeps the gate open until the guard is dropped.
    fn enter(&self, name: &str) -> Result<MutexGuard<'_, bool>, WalError> {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *closed {
            false => Ok(closed),
            true => Err(WalError::io(name, "change", &std::io::Error::other("the log was closed"))),
        }
    }
}

impl SegmentTask {
    /// Does it; makes the reserve, too, if it is gone.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`]. Hand it to [`crate::Wal::accept`] like a success.
    pub fn run(self) -> Result<Prepared, WalError> {
        let mut prepared = Prepared { segments: Vec::new(), used_below: 0 };
        let done = self.run_into(&mut prepared);
        match done {
            Ok(()) => Ok(prepared),
            Err(error) => {
                // Whoever owns the directory after this log removes what it has left, and makes files of the same names.
                if let Ok(_open) = self.gate.enter("log") {
                    for (_, aside) in &prepared.segments {
                        let _ = self.files.remove(aside); // the error is what counts
                    }
                }
                Err(error)
            }
        }
    }

    /// One name changes at a time, and is durable before the next does: whatever a power cut leaves are segments
    /// without a gap. [fault-model ST9]
    fn run_into(&self, prepared: &mut Prepared) -> Result<(), WalError> {
        let (min, max) = self.wanted;
        for used in &self.used {
            let is_fit = used.len == self.len && prepared.segments.len() < max;
            if !(is_fit && self.recycle(*used, prepared)?) {
                let name = name_of(used.generation);
                let _open = self.gate.enter(&name)?;
                self.files.remove(&name).map_err(|error| WalError::io(&name, "remove", &error))?;
                self.sync_names(used.generation)?;
            }
            prepared.used_below = used.generation + 1;
        }
        {
            let _open = self.gate.enter("reserve")?;
            make_reserve(&*self.files, self.reserve)?;
        }
        while prepared.segments.len() < min {
            let (generation, aside) = self.next(prepared);
            let name = name_of(generation);
            let header = header_bytes(&self.identity, generation, self.len, 0);
            let created = {
                let _open = self.gate.enter(&name)?; // the log's next owner makes a file of this name, too
                self.files.create(&aside)
            };
            let file = fill(&*self.files, created, &aside, &name, &header, self.len)?;
            prepared.segments.push((Segment { generation, len: self.len, file }, aside));
        }
        Ok(())
    }

    fn next(&self, prepared: &Prepared) -> (u64, String) {
        let generation = self.generation + prepared.segments.len() as u64;
        (generation, format!("{}.ahead.tmp", name_of(generation)))
    }

    /// Makes a used segment the next one: first it loses its name, then it gets its header; its new name it gets like any
    /// other. Returns whether it was there: a task that failed half-way may have taken it.
    fn recycle(&self, used: Used, prepared: &mut Prepared) -> Result<bool, WalError> {
        let (generation, aside) = self.next(prepared);
        let name = name_of(used.generation);
        {
            let _open = self.gate.enter(&name)?;
            match self.files.rename(&name, &aside) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(WalError::io(&name, "rename", &error)),
            }
            self.sync_names(used.generation)?;
        }
        let file = self.files.open(&aside).map_err(|error| WalError::io(&aside, "open", &error))?;
        let header = header_bytes(&self.identity, generation, used.len, RECYCLED);
        file.write_at(0, &header).map_err(|error| WalError::io(&aside, "write", &error))?;
        file.sync().map_err(|error| WalError::syncing(&aside, &error))?;
        prepared.segments.push((Segment { generation, len: used.len, file }, aside));
        Ok(true)
    }

    fn sync_names(&self, generation: u64) -> Result<(), WalError> {
        self.files.sync_names().map_err(|error| WalError::syncing(&name_of(generation), &error))
    }
}

impl fmt::Debug for SegmentTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentTask({}, {} used)", self.generation, self.used.len())
    }
}

/// Segments made ahead, not yet under their names.
#[derive(Debug)]
pub struct Prepared {
    /// Each with the name it has now.
    pub(crate) segments: Vec<(Segment, String)>,
    /// Used segments with smaller numbers are gone.
    pub(crate) used_below: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;
    use kattu_raft::{Incarnation, NodeId};

    #[test]
    fn a_header_says_whose_segment_it_is_and_every_flipped_bit_of_it_is_seen() {
        let identity = Identity::single(1, NodeId(2), Incarnation(3), "n");
        let disk = SimDisk::new();
        create(&disk, &identity, 5, BYTES_MIN).unwrap();
        let mut bytes = disk.contents(&name_of(5)).unwrap();
        assert_eq!(check_header(&identity, 5, &bytes), Ok(false));
        assert!(check_header(&identity, 6, &bytes).is_err(), "swapped");
        let other = Identity::single(1, NodeId(2), Incarnation(4), "n");
        assert!(check_header(&other, 5, &bytes).is_err(), "of another directory");
        assert!(check_header(&identity, 5, &bytes[..4096]).is_err(), "cut");
        for bit in 0..HEADER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check_header(&identity, 5, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn names_are_read_as_they_are_written_and_nothing_else_is_a_segment() {
        assert_eq!(generation_of(&name_of(0x1F)), Some(0x1F));
        for other in [
            "log-1.seg",
            "log-000000000000001F.seg",
            "log-.seg",
            "slots-00000000",
            "log-+000000000000001.seg",
        ] {
            assert_eq!(generation_of(other), None, "{other}");
        }
    }
}
