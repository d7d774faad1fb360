//! Inspect: lists and checks the content of a data directory without changing it.
//!
//! Knows nothing of: JSON, exit codes.

use crate::block::flags;
use crate::dir::incarnations::{self, INCARNATIONS};
use crate::dir::known_members::{self, KNOWN_MEMBERS};
use crate::dir::vote_hold::{self, VOTE_HOLD};
use crate::dir::{IDENTITY, read_identity};
use crate::error::WalError;
use crate::extent::Extent;
use crate::files::Files;
use crate::identity::Identity;
use crate::replay::Replay;
use crate::scan::{Met, Position, scan};
use crate::segment::{DATA_START, name_of};
use crate::slots::{self, Slots};
use crate::snapshot::{self, Snapshot};
use crate::vote_floor;
use kattu_raft::{EntryHead, EntryId, GroupId, HardState, LogIndex, Lsn};
use kattu_wire::record::RecordKind;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One item of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The identity of the directory.
    Identity(Identity),
    /// One of the two slots of a group's term and vote.
    Slot {
        /// The group.
        group: GroupId,
        /// 0 or 1.
        place: usize,
        /// Its generation, its term and vote, and the record number; or why it is bad.
        state: Result<(u64, HardState, Lsn), String>,
    },
    /// The vote floor: where a group's log ended before damage cut it; until the log has grown back.
    VoteFloor {
        /// The group.
        group: GroupId,
        /// The position; or why it cannot be read.
        state: Result<EntryId, String>,
    },
    /// The incarnations of the other voters; only if any was met.
    Incarnations {
        /// Their number; or why the file cannot be read.
        state: Result<usize, String>,
    },
    /// The other members that this one knows; only if they were written down.
    KnownMembers {
        /// Their number; or why the file cannot be read.
        state: Result<usize, String>,
    },
    /// How long this member's vote holds last; only if there were leader leases.
    VoteHold {
        /// The time; or why it cannot be read.
        state: Result<Duration, String>,
    },
    /// An entry.
    Entry {
        /// Where its record begins.
        at: Position,
        /// Its group.
        group: GroupId,
        /// Its id, kind, form and stamp.
        head: EntryHead,
        /// Bytes of its payload.
        payload_bytes: usize,
    },
    /// A truncation: the group's entries from here on are removed.
    Truncate {
        /// Where its record begins.
        at: Position,
        /// Its group.
        group: GroupId,
        /// First index that is removed.
        from: LogIndex,
    },
    /// A base: a snapshot covers the group's log up to here. Repeated at the start of a segment.
    Base {
        /// Where its record begins.
        at: Position,
        /// Its group.
        group: GroupId,
        /// The last entry that is covered.
        base: EntryId,
        /// The last entry that the log holds after it.
        last: LogIndex,
    },
    /// A snapshot, every byte of which was checked.
    Snapshot {
        /// Its file.
        file: String,
        /// Its metadata; or its defect.
        state: Result<Snapshot, String>,
    },
    /// A block that moves a group's commit index.
    Commit {
        /// Where the block begins.
        at: Position,
        /// Its group.
        group: GroupId,
        /// The index.
        index: LogIndex,
    },
    /// A block with a flag.
    Mark {
        /// Where it begins.
        at: Position,
        /// `idle`, `rotation`, `closed` or `start`.
        kind: &'static str,
        /// The log was synced up to here when the block was written.
        synced: Position,
    },
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Identity(identity) => write!(
                f,
                "identity  cluster {:x}  member {:x} {}  incarnation {:x}",
                identity.cluster, identity.node.0, identity.name, identity.incarnation.0
            ),
            Item::Slot { group, place, state: Ok((generation, hard, lsn)) } => {
                let vote = hard.vote.map_or("none".to_owned(), |node| format!("{:x}", node.0));
                write!(
                    f,
                    "slot {place}    group {}  generation {generation}  term {}  vote {vote}  lsn {}",
                    group.0, hard.term.0, lsn.0
                )
            }
            Item::Slot { group, place, state: Err(what) } => {
                write!(f, "slot {place}    group {}  bad: {what}", group.0)
            }
            Item::VoteFloor { group, state: Ok(vote_floor) } => {
                write!(f, "floor     group {}  at {vote_floor}", group.0)
            }
            Item::VoteFloor { group, state: Err(what) } => {
                write!(f, "floor     group {}  bad: {what}", group.0)
            }
            Item::Incarnations { state: Ok(count) } => {
                write!(f, "lives     incarnations of {count} other voters")
            }
            Item::Incarnations { state: Err(what) } => write!(f, "lives     bad: {what}"),
            Item::KnownMembers { state: Ok(count) } => {
                write!(f, "members   peer URLs of {count} other members")
            }
            Item::KnownMembers { state: Err(what) } => write!(f, "members   bad: {what}"),
            Item::VoteHold { state: Ok(vote_hold) } => write!(f, "promise   vote hold {vote_hold:?}"),
            Item::VoteHold { state: Err(what) } => write!(f, "promise   bad: {what}"),
            Item::Entry { at, group, head, payload_bytes } => write!(
                f,
                "{at:<9} group {}  entry {}  {:?}  stamp {}  {payload_bytes} bytes",
                group.0, head.id, head.kind, head.stamp.0
            ),
            Item::Truncate { at, group, from } => {
                write!(f, "{at:<9} group {}  truncate from {}", group.0, from.0)
            }
            Item::Base { at, group, base, last } => {
                write!(f, "{at:<9} group {}  base {base}  log up to {}", group.0, last.0)
            }
            Item::Snapshot { file, state: Ok(Snapshot { group, meta, bytes, chunks, .. }) } => write!(
                f,
                "snapshot  group {}  up to {}  stamp {}  {} voters, {} learners  {chunks} chunks, {bytes} bytes  {file}",
                group.0,
                meta.last,
                meta.stamp.0,
                meta.membership.voters.len(),
                meta.membership.learners.len()
            ),
            Item::Snapshot { file, state: Err(what) } => write!(f, "snapshot  {file}  bad: {what}"),
            Item::Commit { at, group, index } => write!(f, "{at:<9} group {}  commit {}", group.0, index.0),
            Item::Mark { at, kind, synced } => write!(f, "{at:<9} {kind} mark  synced {synced}"),
        }
    }
}

/// The result of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that was written is there.
    Clean {
        /// Whether the last process closed the log.
        closed: bool,
    },
    /// The log is followed by bytes that were never acknowledged; the next start cuts them.
    TornTail {
        /// The file's name.
        file: String,
        /// Byte offset in the file.
        offset: u64,
        /// Bytes up to the last that is not zero.
        bytes: u64,
        /// Description of the finding.
        what: String,
    },
    /// Bytes that were written and synced are not there.
    Damaged {
        /// The file's name.
        file: String,
        /// Byte offset in the file.
        offset: u64,
        /// Description of the finding.
        what: String,
    },
}

/// Passes every item of a data directory to `visit`, in order, and returns a verdict. Takes no lock: the current write
/// of a running member may look like a torn tail.
///
/// # Errors
/// [`WalError::OtherFormat`], [`WalError::Foreign`] for a directory without an identity, [`WalError::Io`].
pub fn inspect(files: &dyn Files, visit: &mut dyn FnMut(Item)) -> Result<Verdict, WalError> {
    match look(files, visit) {
        Err(WalError::Damaged { file, offset, what }) => Ok(Verdict::Damaged { file, offset, what }),
        other => other,
    }
}

fn look(files: &dyn Files, visit: &mut dyn FnMut(Item)) -> Result<Verdict, WalError> {
    let Some(identity) = read_identity(files)? else {
        let what = format!("it has no `{IDENTITY}`");
        return Err(WalError::Foreign { dir: files.place(), what });
    };
    visit(Item::Identity(identity.clone()));
    let newest = look_at_slots(files, &identity, visit)?;
    let bad_files = look_at_small_files(files, &identity, visit)?;
    let (covered, bad_snapshots) = look_at_snapshots(files, &identity, visit)?;
    let mut replay = Replay::new(&identity.groups, 0);
    let scanned = scan(files, &identity, &mut |met| {
        visit_block(&met, &replay, visit);
        replay.take(&met)
    })?;
    scanned.judge()?;
    replay.check()?;
    for (group, generation) in newest {
        let file = slots::name_of(group);
        let Some(generation) = generation else {
            return Err(WalError::damaged(&file, 0, "both slots are bad"));
        };
        let needed = replay.groups[&group].slots;
        if generation < needed {
            let what = format!("newest slot has generation {generation}, the log names generation {needed}");
            return Err(WalError::damaged(&file, 0, what));
        }
    }
    for (id, group) in &replay.groups {
        let newest = covered.get(id).copied().unwrap_or_default();
        if newest < group.extent.base.index {
            let first = name_of(scanned.segments[0].generation);
            return Err(uncovered(*id, group.extent.base, newest, &bad_snapshots, &first));
        }
    }
    // Damage to the log is reported first.
    if let Some((file, what)) = bad_files.into_iter().next() {
        return Err(WalError::damaged(file, 0, what));
    }
    Ok(match scanned.torn {
        Some(torn) => Verdict::TornTail {
            file: name_of(scanned.end.segment),
            offset: scanned.end.offset,
            bytes: torn.ranges.iter().map(|(start, stop)| stop - start.offset).sum(),
            what: torn.what,
        },
        None => Verdict::Clean { closed: scanned.flags & flags::CLOSE != 0 },
    })
}

/// Passes the slots and the vote floor of each group to `visit`. Returns the newest good generation of each group's slots.
fn look_at_slots(
    files: &dyn Files,
    identity: &Identity,
    visit: &mut dyn FnMut(Item),
) -> Result<Vec<(GroupId, Option<u64>)>, WalError> {
    let mut newest = Vec::new();
    for &group in &identity.groups {
        let slots = Slots::look(files, identity, group)?;
        newest.push((group, slots.iter().flatten().map(|slot| slot.generation).max()));
        for (place, slot) in slots.into_iter().enumerate() {
            let state = slot.map(|slot| (slot.generation, slot.hard, slot.lsn));
            visit(Item::Slot { group, place, state });
        }
        if let Some(state) = vote_floor::look(files, identity, group)? {
            visit(Item::VoteFloor { group, state });
        }
    }
    Ok(newest)
}

/// Passes the files about other members, and about vote holds, to `visit`. Returns those that cannot be read: they are only
/// replaced as a whole, so no power cut leaves them like this.
fn look_at_small_files(
    files: &dyn Files,
    identity: &Identity,
    visit: &mut dyn FnMut(Item),
) -> Result<Vec<(&'static str, String)>, WalError> {
    let mut bad = Vec::new();
    if let Some(found) = incarnations::look(files, identity)? {
        bad.extend(found.as_ref().err().map(|what| (INCARNATIONS, what.clone())));
        visit(Item::Incarnations { state: found.map(|known| known.len()) });
    }
    if let Some(found) = known_members::look(files, identity)? {
        bad.extend(found.as_ref().err().map(|what| (KNOWN_MEMBERS, what.clone())));
        visit(Item::KnownMembers { state: found.map(|known| known.len()) });
    }
    if let Some(state) = vote_hold::look(files, identity)? {
        bad.extend(state.as_ref().err().map(|what| (VOTE_HOLD, what.clone())));
        visit(Item::VoteHold { state });
    }
    Ok(bad)
}

/// Passes the records of a block, and the marks in its header, to `visit`.
fn visit_block(met: &Met<'_>, replay: &Replay, visit: &mut dyn FnMut(Item)) {
    for (range, record) in &met.block.records {
        let at = Position { offset: range.start as u64, ..met.at };
        let group = record.group;
        visit(match (record.entry_head(), record.kind) {
            (Some(head), _) => {
                let payload_bytes = record.len - kattu_wire::record::HEADER_BYTES;
                Item::Entry { at, group, head, payload_bytes }
            }
            (None, RecordKind::Base) => {
                let base = EntryId { term: record.term, index: record.index };
                let payload = &met.segment[range.start + kattu_wire::record::HEADER_BYTES..range.end];
                let last = Extent::parse(base, payload).map_or(base.index, |extent| extent.last.index);
                Item::Base { at, group, base, last }
            }
            (None, _) => Item::Truncate { at, group, from: record.index },
        });
    }
    for row in &met.block.groups {
        let before = replay.groups.get(&row.group).map(|group| group.committed);
        if before.is_some_and(|before| before < row.commit) {
            visit(Item::Commit { at: met.at, group: row.group, index: row.commit });
        }
    }
    let kind = match met.block.header.flags {
        flags::MARK => Some("idle"),
        flags::ROTATE => Some("rotation"),
        flags::CLOSE => Some("closed"),
        flags::START => Some("start"),
        _ => None,
    };
    if let Some(kind) = kind {
        visit(Item::Mark { at: met.at, kind, synced: met.block.header.synced });
    }
}

/// The damage of a directory whose log begins behind all good snapshots: that of a bad snapshot which would cover the gap, or
/// else that of the log, whose first segment is `first`.
fn uncovered(group: GroupId, base: EntryId, newest: LogIndex, bad: &[String], first: &str) -> WalError {
    let what = format!(
        "the log of group {} begins after {base}, the newest good snapshot ends at {}",
        group.0, newest.0
    );
    let covers = |file: &&String| {
        snapshot::named(file).is_some_and(|(of, last)| of == group && base.index <= last.index)
    };
    match bad.iter().rev().find(covers) {
        Some(file) => WalError::damaged(file, 0, what),
        None => WalError::damaged(first, DATA_START, what),
    }
}

/// Checks every snapshot and passes it to `visit`. Returns the last index that good ones cover in each group, and the
/// files of bad ones, ascending.
fn look_at_snapshots(
    files: &dyn Files,
    identity: &Identity,
    visit: &mut dyn FnMut(Item),
) -> Result<(BTreeMap<GroupId, LogIndex>, Vec<String>), WalError> {
    let mut names = files.names().map_err(|error| WalError::io(&files.place(), "list", &error))?;
    names.retain(|name| snapshot::named(name).is_some());
    names.sort_unstable();
    let (mut covered, mut bad) = (BTreeMap::new(), Vec::new());
    for file in names {
        let checked = snapshot::check(files, identity.cluster, &file);
        if let Ok(snapshot) = &checked {
            covered.insert(snapshot.group, snapshot.meta.last.index); // names sort by index
        }
        let state = match checked.map_err(snapshot::Unfit::into_error) {
            Err(error @ WalError::OtherFormat { .. }) => return Err(error),
            Err(WalError::Damaged { offset, what, .. }) => Err(format!("at byte {offset}: {what}")),
            other => other.map_err(|error| error.to_string()),
        };
        if state.is_err() {
            bad.push(file.clone());
        }
        visit(Item::Snapshot { file, state });
    }
    Ok((covered, bad))
}
