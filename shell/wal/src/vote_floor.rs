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
use crate::identity::Identity;
use crate::small_file::{Looked, SmallFile};
use kattu_raft::{EntryId, GroupId, LogIndex, Term};

const MAGIC: [u8; 4] = *b"KTFL";
const BYTES: usize = 64;

pub(crate) fn name_of(group: GroupId) -> String {
    format!("floor-{:08x}", group.0)
}

fn file<'a>(name: &'a str, identity: &Identity, group: GroupId) -> SmallFile<'a> {
    SmallFile::new(name, MAGIC, identity).of_group(group.0)
}

/// Makes the vote floor of a group durable.
pub(crate) fn store(
    files: &dyn Files,
    identity: &Identity,
    group: GroupId,
    vote_floor: EntryId,
) -> Result<(), WalError> {
    let fields = [vote_floor.term.0, vote_floor.index.0, 0, 0, 0];
    file(&name_of(group), identity, group).store(files, group.0, &fields)
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
pub(crate) fn look(files: &dyn Files, identity: &Identity, group: GroupId) -> Looked<EntryId> {
    let name = name_of(group);
    let file = file(&name, identity, group);
    let content = match file.look(files, SmallFile::is_exactly(BYTES))? {
        None => return Ok(None),
        Some(Err(why)) => return Ok(Some(Err(why))),
        Some(Ok(content)) => file.of_this_version(content)?,
    };
    Ok(Some(Ok(EntryId { term: Term(content.field(0)), index: LogIndex(content.field(1)) })))
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
    use crate::{DataDir, Item, RealFiles, WalOptions, inspect};
    use kattu_raft::{Incarnation, NodeId};
    use std::sync::Arc;

    const GROUP: GroupId = GroupId(0);
    const VOTE_FLOOR: EntryId = EntryId { term: Term(3), index: LogIndex(77) };

    fn looked_at(files: &RealFiles) -> Vec<Result<EntryId, String>> {
        let mut vote_floors = Vec::new();
        let mut note = |item| {
            if let Item::VoteFloor { state, .. } = item {
                vote_floors.push(state);
            }
        };
        inspect(files, &mut note).expect("a directory");
        vote_floors
    }

    #[test]
    fn a_look_shows_a_floor_sees_damage_to_any_byte_of_it_and_changes_nothing() {
        let top = std::env::temp_dir().join(format!("kattu-wal-vote-floor-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let files = RealFiles::create(&top).expect("a folder");
        let identity = Identity::single(0xC1, NodeId(0xA), Incarnation(7), "n1");
        let options = WalOptions {
            segment_bytes: 64 << 10,
            reserve_bytes: 4096,
            window_bytes: 4096,
            block_bytes: 4096,
            sector_bytes: 512,
        };
        let mut dir =
            DataDir::open(Arc::new(RealFiles::existing(&top).expect("our folder"))).expect("it is free");
        dir.create(identity.clone(), &options).expect("made");
        assert_eq!(looked_at(&files), []);
        store(&files, &identity, GROUP, VOTE_FLOOR).expect("stored");
        assert_eq!(looked_at(&files), [Ok(VOTE_FLOOR)]);

        let path = top.join(name_of(GROUP));
        let whole = std::fs::read(&path).expect("it is there");
        for byte in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << (byte % 8);
            std::fs::write(&path, &flipped).expect("our folder");
            assert_eq!(looked_at(&files), [Err("checksum mismatch".to_string())], "byte {byte}");
            assert_eq!(std::fs::read(&path).expect("it is there"), flipped);
        }
        std::fs::write(&path, &whole[..40]).expect("our folder");
        assert_eq!(looked_at(&files), [Err("40 bytes, expected 64".to_string())]);
        let bound = EntryId { term: Term(6), index: LogIndex(0) };
        assert_eq!(load(&files, &identity, GROUP, Term(5)).expect("read"), Some(bound));
        assert_eq!(looked_at(&files), [Ok(bound)], "a start writes it anew");
        std::fs::remove_dir_all(&top).expect("our folder");
    }
}
