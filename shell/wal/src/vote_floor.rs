//! Vote floors: where a group's log ended before damage cut it, or a disk lost its end without a trace; each in a file
//! of its own until the log is there again.
//!
//! ```text
//!  0       4      8     12      16        24     32      40   (64 bytes)
//!  ├ magic ┼ vers ┼ crc ┼ group ┼ file id ┼ term ┼ index ┼ 0
//! ```
//! Little-endian; the checksum covers the rest. The file is durable before any of the log is cut: a member that was
//! repaired and stops again at once still has its vote floor. If the file itself is damaged, the term bounds the vote
//! floor. `docs/formats/block.md`
//! Knows nothing of: damage to logs, elections. [fault-model ST7, ST9]

use crate::error::WalError;
use crate::files::Files;
use crate::identity::{Identity, VERSION};
use crate::segment::publish_whole;
use kattu_raft::{EntryId, GroupId, LogIndex, Term};

const MAGIC: u32 = u32::from_le_bytes(*b"KTFL");
const BYTES: usize = 64;

pub(crate) fn name_of(group: GroupId) -> String {
    format!("floor-{:08x}", group.0)
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

/// Makes the vote floor of a group durable.
pub(crate) fn store(
    files: &dyn Files,
    identity: &Identity,
    group: GroupId,
    vote_floor: EntryId,
) -> Result<(), WalError> {
    let mut bytes = [0; BYTES];
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&group.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&identity.file_id(0).to_le_bytes());
    bytes[24..32].copy_from_slice(&vote_floor.term.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&vote_floor.index.0.to_le_bytes());
    let crc = checksum(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    publish_whole(files, &name_of(group), &bytes)
}

/// The vote floor of a group, if it has one. If it cannot be read, only `term`, the newest term that the member has
/// seen, bounds it; that bound is written to the file, because a later start will have seen a newer term.
pub(crate) fn load(
    files: &dyn Files,
    identity: &Identity,
    group: GroupId,
    term: Term,
) -> Result<Option<EntryId>, WalError> {
    match look(files, identity, group)? {
        None => Ok(None),
        Some(Ok(vote_floor)) => Ok(Some(vote_floor)),
        Some(Err(_)) => {
            let bound = EntryId { term: term.next(), index: LogIndex(0) };
            store(files, identity, group, bound).map(|()| Some(bound))
        }
    }
}

/// The vote floor of a group, if it has one, or why it cannot be read. Changes nothing.
pub(crate) fn look(
    files: &dyn Files,
    identity: &Identity,
    group: GroupId,
) -> Result<Option<Result<EntryId, String>>, WalError> {
    let name = name_of(group);
    let read = |error: std::io::Error| WalError::io(&name, "read", &error);
    let file = match files.open(&name) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let found = file.bytes().map_err(read)?;
    if found != BYTES as u64 {
        return Ok(Some(Err(format!("{found} bytes, expected {BYTES}"))));
    }
    let mut bytes = [0; BYTES];
    file.read_at(0, &mut bytes).map_err(read)?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if u32_at(8) != checksum(&bytes) {
        return Ok(Some(Err("checksum mismatch".into())));
    }
    if (u32_at(0), u32_at(12), u64_at(16)) != (MAGIC, group.0, identity.file_id(0)) {
        return Ok(Some(Err("it belongs to another member, group or directory".into())));
    }
    if u32_at(4) != VERSION {
        return Err(WalError::OtherFormat { file: name, found: u32_at(4), supported: VERSION });
    }
    Ok(Some(Ok(EntryId { term: Term(u64_at(24)), index: LogIndex(u64_at(32)) })))
}

/// Removes the vote floor of a group, durably: a file that came back and could not be read any more would be bounded by
/// the term alone, and the vote of its member might be needed by then.
pub(crate) fn forget(files: &dyn Files, group: GroupId) -> Result<(), WalError> {
    let name = name_of(group);
    files.remove(&name).map_err(|error| WalError::io(&name, "remove", &error))?;
    files.sync_names().map_err(|error| WalError::syncing(&name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;
    use crate::{DataDir, Item, WalOptions, inspect};
    use kattu_raft::{Incarnation, NodeId};
    use std::sync::Arc;

    const GROUP: GroupId = GroupId(0);
    const VOTE_FLOOR: EntryId = EntryId { term: Term(3), index: LogIndex(77) };

    fn looked_at(disk: &SimDisk) -> Vec<Result<EntryId, String>> {
        let mut vote_floors = Vec::new();
        let mut note = |item| {
            if let Item::VoteFloor { state, .. } = item {
                vote_floors.push(state);
            }
        };
        inspect(disk, &mut note).expect("a directory");
        vote_floors
    }

    #[test]
    fn a_look_shows_a_floor_sees_damage_to_any_byte_of_it_and_changes_nothing() {
        let disk = SimDisk::new();
        let identity = Identity::single(0xC1, NodeId(0xA), Incarnation(7), "n1");
        let options = WalOptions {
            segment_bytes: 64 << 10,
            reserve_bytes: 4096,
            window_bytes: 4096,
            block_bytes: 4096,
            sector_bytes: 512,
        };
        let mut dir = DataDir::open(Arc::new(disk.clone())).expect("nobody else has it");
        dir.create(identity.clone(), &options).expect("made");
        assert_eq!(looked_at(&disk), []);
        store(&disk, &identity, GROUP, VOTE_FLOOR).expect("stored");
        assert_eq!(looked_at(&disk), [Ok(VOTE_FLOOR)]);

        let name = name_of(GROUP);
        let whole = disk.contents(&name).expect("it is there");
        for byte in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << (byte % 8);
            disk.set_contents(&name, Some(flipped.clone()));
            assert_eq!(looked_at(&disk), [Err("checksum mismatch".to_string())], "byte {byte}");
            assert_eq!(disk.contents(&name), Some(flipped));
        }
        let cut = whole[..40].to_vec();
        disk.set_contents(&name, Some(cut));
        assert_eq!(looked_at(&disk), [Err("40 bytes, expected 64".to_string())]);
        let bound = EntryId { term: Term(6), index: LogIndex(0) };
        assert_eq!(load(&disk, &identity, GROUP, Term(5)).expect("read"), Some(bound));
        assert_eq!(looked_at(&disk), [Ok(bound)], "a start writes it anew");
    }
}
