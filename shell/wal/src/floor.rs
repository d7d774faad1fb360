//! Floors: where a group's log ended before damage cut it, kept in a file of its own until the log is there again.
//!
//! ```text
//!  0       4      8     12      16        24     32      40   (64 bytes)
//!  ├ magic ┼ vers ┼ crc ┼ group ┼ file id ┼ term ┼ index ┼ 0
//! ```
//! Little-endian; the checksum covers the rest. The file is durable before anything of the log is cut: a member that was
//! mended and stops again at once still knows what it owes. If it is damaged itself, the term bounds the floor.
//! `docs/formats/block.md`
//! Knows nothing of: how the floor was found, what votes are. [fault-model ST7, ST9]

use crate::error::WalError;
use crate::files::Files;
use crate::identity::{Identity, VERSION};
use crate::segment::publish;
use kattu_raft::{EntryId, GroupId, LogIndex, Term};

const MAGIC: u32 = u32::from_le_bytes(*b"KTFL");
const BYTES: usize = 64;

pub(crate) fn name_of(group: GroupId) -> String {
    format!("floor-{:08x}", group.0)
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

/// Makes the floor of a group durable.
pub(crate) fn store(
    files: &dyn Files,
    identity: &Identity,
    group: GroupId,
    floor: EntryId,
) -> Result<(), WalError> {
    let mut bytes = [0; BYTES];
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&group.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&identity.file_id(0).to_le_bytes());
    bytes[24..32].copy_from_slice(&floor.term.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&floor.index.0.to_le_bytes());
    let crc = checksum(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    let name = name_of(group);
    let aside = format!("{name}.tmp");
    let made = files.create(&aside).and_then(|file| {
        file.write_at(0, &bytes)?;
        file.sync()
    });
    made.map_err(|error| WalError::growing(&name, BYTES as u64, &error))?;
    publish(files, &aside, &name, BYTES as u64)
}

/// The floor of a group, if it has one. One that cannot be read is no better known than by `term`, the newest term that
/// the member has seen; it is written anew, because a later start will have seen a newer one.
pub(crate) fn load(
    files: &dyn Files,
    identity: &Identity,
    group: GroupId,
    term: Term,
) -> Result<Option<EntryId>, WalError> {
    let name = name_of(group);
    let read = |error: std::io::Error| WalError::io(&name, "read", &error);
    let file = match files.open(&name) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let unknown = || {
        let bound = EntryId { term: term.next(), index: LogIndex(0) };
        store(files, identity, group, bound).map(|()| Some(bound))
    };
    if file.bytes().map_err(read)? != BYTES as u64 {
        return unknown();
    }
    let mut bytes = [0; BYTES];
    file.read_at(0, &mut bytes).map_err(read)?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let is_ours = (u32_at(0), u32_at(12), u64_at(16)) == (MAGIC, group.0, identity.file_id(0));
    if u32_at(8) != checksum(&bytes) || !is_ours {
        return unknown();
    }
    if u32_at(4) != VERSION {
        return Err(WalError::OtherFormat { file: name, found: u32_at(4), supported: VERSION });
    }
    Ok(Some(EntryId { term: Term(u64_at(24)), index: LogIndex(u64_at(32)) }))
}

/// Forgets the floor of a group.
pub(crate) fn forget(files: &dyn Files, group: GroupId) -> Result<(), WalError> {
    let name = name_of(group);
    files.remove(&name).map_err(|error| WalError::io(&name, "remove", &error))
}
