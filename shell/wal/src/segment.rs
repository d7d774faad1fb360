//! Segments: the files of the log, made ahead of time: new ones full of zeros, used ones full of old blocks.
//!
//! A new segment is written aside, filled with zeros, synced, renamed, and its name synced, before the first block is
//! written: later writes only overwrite, so a sync writes no metadata. [fault-model ST9]
//!
//! ```text
//!  0       4      8     12      16        24           32    40        48     56            64    4096
//!  ├ magic ┼ vers ┼ crc ┼ flags ┼ file id ┼ generation ┼ len ┼ cluster ┼ node ┼ incarnation ┼ 0 … ┼ blocks …
//! ```
//! Little-endian; the checksum covers bytes 12..64. `docs/formats/block.md`
//!
//! A task makes and names segments beside the log; the log makes one itself only when it cannot wait. A gate ensures
//! that each number is given once, and only after the segment before it is durable.
//!
//! A segment that is no longer needed becomes the next one: its file gets another header and another name, and keeps
//! its bytes. Its old blocks name another segment, so they are not valid here. The header says that old bytes are
//! expected, so bytes that are not zero are no sign of a torn write. [fault-model ST5]
//! Knows nothing of: blocks.

mod task;

pub(crate) use task::{Gate, Used};
pub use task::{Prepared, SegmentTask};

use crate::error::WalError;
use crate::files::{Files, LogFile};
use crate::identity::{Identity, VERSION};

/// Where the first block begins: the header has a page of its own, so that no write of a block touches it.
pub const DATA_START: u64 = 4096;

/// The smallest segment in bytes.
pub(crate) const BYTES_MIN: u64 = 2 * DATA_START;

const MAGIC: u32 = u32::from_le_bytes(*b"KTSG");
/// Flag: the file was another segment before.
const RECYCLED: u32 = 1;
const HEADER_BYTES: usize = 64;
/// Bytes of zeros that are written and synced at a time: a sync of the log on the same disk may wait for that many.
/// With 4 MiB the p99 of puts was a fifth higher (docs/performance.md).
const FILL_BYTES: usize = 256 << 10;
const RESERVE: &str = "reserve";

/// The name of a segment.
#[must_use]
pub fn name_of(generation: u64) -> String {
    format!("log-{generation:016x}.seg")
}

/// The number in a segment's name; `None` for any other name.
#[must_use]
pub fn generation_of(name: &str) -> Option<u64> {
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
    /// Where blocks must end, so that the rotation mark still fits into a sector of its own.
    pub(crate) fn data_end(&self, sector: usize) -> u64 {
        self.len - sector as u64
    }
}

/// The length of a segment that has room for a block of `block` bytes, at least `wanted`, with sectors of this size.
pub(crate) fn length_for(wanted: u64, block: u64, sector: usize) -> u64 {
    wanted.max(DATA_START + block + sector as u64).max(BYTES_MIN).next_multiple_of(DATA_START)
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
        return Err(damaged(0, format!("starts with {:#010x}, expected {MAGIC:#010x}", u32_at(0))));
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
        let what = format!("the file has {} bytes, its header says {}", bytes.len(), u64_at(32));
        return Err(damaged(bytes.len() as u64, what));
    }
    Ok(u32_at(12) & RECYCLED != 0)
}

/// Whether the header is not a valid one of any segment. A valid header of another file is not bad.
pub(crate) fn is_bad_header(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return false };
    header[..4] != MAGIC.to_le_bytes() || header[8..12] != checksum(header).to_le_bytes()
}

/// Writes the header of a segment again, durably. It is marked as recycled, because the flag of the old header is lost.
pub(crate) fn restore_header(
    file: &dyn LogFile,
    identity: &Identity,
    generation: u64,
    len: u64,
) -> std::io::Result<()> {
    file.write_at(0, &header_bytes(identity, generation, len, RECYCLED))?;
    file.sync()
}

/// Fills the file that was `created` under the name `aside` with `header` and zeros, and syncs it. After a failure the
/// file is removed: a full disk gets its bytes back.
fn fill(
    files: &dyn Files,
    created: std::io::Result<Box<dyn LogFile>>,
    aside: &str,
    name: &str,
    header: &[u8],
    len: u64,
    between: &mut dyn FnMut() -> bool,
) -> Result<Box<dyn LogFile>, WalError> {
    let growing = |error: std::io::Error| WalError::growing(name, len, &error);
    let filled = || {
        let file = created.map_err(growing)?;
        file.allocate(len).map_err(growing)?;
        let zeros = vec![0; FILL_BYTES.min(len as usize)];
        let mut at = 0;
        while at < len {
            let part = (len - at).min(zeros.len() as u64);
            file.write_at(at, &zeros[..part as usize]).map_err(growing)?;
            at += part;
            if at < len && between() {
                file.sync().map_err(|error| WalError::syncing(name, &error))?;
            }
        }
        file.write_at(0, header).map_err(growing)?;
        Ok(file)
    };
    let made = filled();
    let made = made.and_then(|file| match file.sync() {
        Ok(()) => Ok(file),
        Err(error) => Err(WalError::syncing(name, &error)),
    });
    if made.is_err() {
        let _ = files.remove(aside); // the error above is returned
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
    let file = fill(files, files.create(&aside), &aside, &name, &header, len, &mut || false)?;
    publish(files, &aside, &name, len)?;
    Ok(Segment { generation, len, file })
}

/// Opens a segment that has its final name; content and name are durable.
pub(crate) fn open_named(files: &dyn Files, generation: u64) -> Result<Segment, WalError> {
    let name = name_of(generation);
    let file = files.open(&name).map_err(|error| WalError::io(&name, "open", &error))?;
    let len = file.bytes().map_err(|error| WalError::io(&name, "open", &error))?;
    Ok(Segment { generation, len, file })
}

/// Gives a synced file of `bytes` bytes its final name, durably. A directory, too, may have no space for another name.
pub(crate) fn publish(files: &dyn Files, aside: &str, name: &str, bytes: u64) -> Result<(), WalError> {
    files.rename(aside, name).map_err(|error| {
        let _ = files.remove(aside); // gives a full disk its bytes back; the error below is returned
        WalError::growing(name, bytes, &error)
    })?;
    files.sync_names().map_err(|error| WalError::syncing(name, &error))
}

/// Makes or replaces a small file: it is written aside, synced, and renamed durably. An interruption leaves the old
/// file.
pub(crate) fn publish_whole(files: &dyn Files, name: &str, bytes: &[u8]) -> Result<(), WalError> {
    let aside = format!("{name}.tmp");
    let length = bytes.len() as u64;
    let made = files.create(&aside).and_then(|file| file.write_at(0, bytes).map(|()| file));
    let file = made.map_err(|error| WalError::growing(name, length, &error))?;
    file.sync().map_err(|error| WalError::syncing(name, &error))?;
    publish(files, &aside, name, length)
}

/// Whether the reserve exists with at least `bytes` bytes.
pub(crate) fn has_reserve(files: &dyn Files, bytes: u64) -> bool {
    bytes == 0 || files.open(RESERVE).and_then(|file| file.bytes()).is_ok_and(|found| bytes <= found)
}

/// Makes the reserve, if it does not exist. [fault-model ST15]
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
    files.remove(RESERVE).map_err(|error| WalError::io(RESERVE, "remove", &error))?;
    files.sync_names().map_err(|error| WalError::syncing(RESERVE, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::{Incarnation, NodeId};

    #[test]
    fn a_header_says_whose_segment_it_is_and_every_flipped_bit_of_it_is_seen() {
        let identity = Identity::single(1, NodeId(2), Incarnation(3), "n");
        let mut bytes = vec![0; BYTES_MIN as usize];
        bytes[..HEADER_BYTES].copy_from_slice(&header_bytes(&identity, 5, BYTES_MIN, 0));
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
