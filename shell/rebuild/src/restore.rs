//! Restore: the directory of a member of a new cluster, made of tables; the tables of a member whose cluster is lost.
//!
//! ```text
//!   tables ─▶ DIR.restoring: identity, empty log, one snapshot up to (term 1, applied) ─▶ opened and checked ─▶ DIR
//! ```
//! Every member of a new cluster that is made of the same tables gets the same snapshot, so their logs agree from their
//! first entry on. A directory gets its name only when it is complete: an interrupted restore leaves none that a member
//! would start from, and its leftover keeps a member from starting empty there ([`unfinished`]). No member runs
//! meanwhile: the directories are locked like a member's.
//! Knows nothing of: backups, flags, clients.

use crate::places::{Found, Places};
use kattu_node::Keeper;
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo, Tickets};
use kattu_node::frozen::Thaw;
use kattu_raft::{EntryId, GroupId, LogIndex, Membership, NodeId, SnapshotMeta, Stamp, Term};
use kattu_wal::{DataDir, Identity, InitialMember, SnapshotStore, Wal, WalError, WalOptions};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The only group.
const GROUP: GroupId = GroupId(0);
/// The term of the snapshot that a new cluster begins with.
const FIRST_TERM: Term = Term(1);
/// Bytes of log read at once.
const READ_BYTES: usize = 4 << 20;

/// Why no directory was made, or none could be read.
#[derive(Debug)]
pub enum RestoreError {
    /// This place is not empty.
    Occupied(PathBuf),
    /// A leftover of an earlier attempt.
    Leftover(PathBuf),
    /// There is no member's data at this place.
    Nothing(PathBuf),
    /// There is nothing at the place any more: an attempt to replace it was interrupted.
    Unfinished {
        /// Where the directory was.
        place: PathBuf,
        /// The directory that was to replace it.
        aside: PathBuf,
    },
    /// A directory cannot be renamed, listed or removed.
    Files {
        /// The directory.
        place: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// An error of the log or the directory.
    Data(WalError),
    /// The newest snapshot cannot be read, or the log does not reach it.
    Snapshot(String),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Occupied(place) => {
                write!(
                    f,
                    "{} is not empty: name an empty directory, or one that does not exist yet",
                    place.display()
                )
            }
            RestoreError::Leftover(place) => write!(
                f,
                "{} was left behind by an earlier attempt, or is yours: remove it first",
                place.display()
            ),
            RestoreError::Nothing(place) => write!(f, "{} holds no member's data", place.display()),
            RestoreError::Unfinished { place, aside } => write!(
                f,
                "{} does not exist, and {} was left behind by an interrupted attempt: rename the newest {}-* to {}, \
                 remove {}, and start again",
                place.display(),
                aside.display(),
                next_to(place, KEPT).display(),
                place.display(),
                aside.display()
            ),
            RestoreError::Files { place, error } => write!(f, "{}: {error}", place.display()),
            RestoreError::Data(error) => error.fmt(f),
            RestoreError::Snapshot(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<WalError> for RestoreError {
    fn from(error: WalError) -> RestoreError {
        RestoreError::Data(error)
    }
}

/// A member of a new cluster, all of whose members vote.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Where its directory shall be.
    pub place: PathBuf,
    /// The identity it shall have.
    pub identity: Identity,
    /// The layout of its log.
    pub options: WalOptions,
}

/// The suffix of a directory while it is being made.
const ASIDE: &str = "restoring";
/// The suffix of a directory that was replaced by another one; a number follows.
const KEPT: &str = "lost-quorum";

/// The leftover of an interrupted restore beside this place, if nothing is at the place itself: a member that started
/// empty there would take the place of the directory that was to come.
///
/// # Errors
/// If the places cannot be read.
pub fn unfinished(places: &impl Places, place: &Path) -> io::Result<Option<PathBuf>> {
    let aside = next_to(place, ASIDE);
    let is_left = places.look(place)? != Found::Something && places.look(&aside)? != Found::Nothing;
    Ok(is_left.then_some(aside))
}

/// Checks that there is nothing at this place that a restore could destroy.
fn check_free(places: &impl Places, place: &Path) -> Result<(), RestoreError> {
    match look(places, place)? {
        Found::Nothing | Found::Empty => check_aside(places, place),
        Found::Something => Err(RestoreError::Occupied(place.to_path_buf())),
    }
}

fn check_aside(places: &impl Places, place: &Path) -> Result<(), RestoreError> {
    let aside = next_to(place, ASIDE);
    match look(places, &aside)? {
        Found::Nothing => Ok(()),
        Found::Empty | Found::Something => Err(RestoreError::Leftover(aside)),
    }
}

fn look(places: &impl Places, place: &Path) -> Result<Found, RestoreError> {
    places.look(place).map_err(|error| RestoreError::Files { place: place.to_path_buf(), error })
}

/// Makes the directory of a member with these tables, which must be the same for every member of the cluster.
///
/// # Errors
/// If there is something in the directory already, or it cannot be made; then there is none.
pub fn restore(places: &impl Places, new: &NewMember, tables: &Keeper) -> Result<(), RestoreError> {
    check_free(places, &new.place)?;
    let aside = build(places, new, tables)?;
    rename(places, &aside, &new.place)
}

/// As [`restore`], but replaces a directory, which is kept under another name. Returns that name.
///
/// # Errors
/// As [`restore`]; then the old directory is where it was, unless the error says that renaming failed.
pub fn replace(places: &impl Places, new: &NewMember, tables: &Keeper) -> Result<PathBuf, RestoreError> {
    let mut number = 1;
    let kept = loop {
        let kept = next_to(&new.place, &format!("{KEPT}-{number}"));
        if look(places, &kept)? == Found::Nothing {
            break kept;
        }
        number += 1;
    };
    let aside = build(places, new, tables)?;
    rename(places, &new.place, &kept)?;
    rename(places, &aside, &new.place)?;
    Ok(kept)
}

/// The data of a member that does not run.
#[derive(Debug)]
pub(crate) struct Salvage {
    /// The identity of the directory.
    pub identity: Identity,
    /// Its tables after the last entry of its log, whether known committed or not.
    pub tables: Keeper,
    /// Up to where its log was known committed.
    pub committed: LogIndex,
    /// The last entry of its log.
    pub last: EntryId,
    /// Where its log once ended, or a bound of that, if damage has cut it and it has not grown back.
    pub vote_floor: Option<EntryId>,
    /// Whether it was a voter.
    pub voted: bool,
    /// The defects of its snapshots.
    pub complaints: Vec<String>,
}

/// Reads everything that a member's directory holds: the newest snapshot, then the log to its very end. An entry that
/// is not known to be committed may have been acknowledged all the same, so no entry is left out.
///
/// # Errors
/// If it is in use, damaged, or no member's; or if an attempt to replace it was interrupted.
pub(crate) fn salvage(
    places: &impl Places,
    place: &Path,
    options: WalOptions,
) -> Result<Salvage, RestoreError> {
    let aside = unfinished(places, place)
        .map_err(|error| RestoreError::Files { place: place.to_path_buf(), error })?;
    if let Some(aside) = aside {
        return Err(RestoreError::Unfinished { place: place.to_path_buf(), aside });
    }
    let dir = DataDir::open(places.existing(place)?)?;
    let Some(identity) = dir.identity().cloned() else {
        return Err(RestoreError::Nothing(place.to_path_buf()));
    };
    check_aside(places, place)?;
    let (mut wal, mut recovered) = Wal::open(dir, options)?;
    let recovered = recovered.remove(&GROUP).unwrap_or_default();
    let complaints: Vec<String> = wal.complaints().iter().map(ToString::to_string).collect();
    let mut tables = match &recovered.snapshot {
        Some(meta) => thaw(&wal.snapshots(), meta.last)?,
        None if recovered.base != EntryId::default() => {
            return Err(RestoreError::Snapshot(complaints.join("; ")));
        }
        None => Keeper::new(bootstrap_members(&identity)),
    };
    while tables.applied() < recovered.last.index {
        let entries = wal.read(GROUP, tables.applied().next(), recovered.last.index, READ_BYTES)?;
        if entries.is_empty() {
            let next = tables.applied().next();
            return Err(RestoreError::Snapshot(format!("entry {} is not in the log", next.0)));
        }
        for entry in entries {
            let term = entry.id().term;
            tables.handle(
                KeeperTask::Apply { entry, tickets: Tickets::None, term },
                &mut KeeperEffects::default(),
            );
        }
    }
    let newest = recovered.memberships.last().map(|(_, membership)| membership);
    let newest = newest.or(recovered.snapshot.as_ref().map(|snapshot| &snapshot.membership));
    let voted = match newest {
        Some(membership) => membership.is_voter(identity.node),
        None => identity.members.iter().any(|member| member.id == identity.node),
    };
    let (committed, last, vote_floor) = (recovered.committed, recovered.last, recovered.vote_floor);
    wal.close()?;
    Ok(Salvage { identity, tables, committed, last, vote_floor, voted, complaints })
}

/// The tables of the snapshot that ends at `last`.
fn thaw(store: &SnapshotStore, last: EntryId) -> Result<Keeper, RestoreError> {
    let failed = |why: String| RestoreError::Snapshot(format!("the snapshot up to {last}: {why}"));
    let reader = store.open(GROUP, last)?.ok_or_else(|| failed("it is gone".to_string()))?;
    let mut thaw = Thaw::default();
    for chunk in reader.chunks()? {
        thaw.push(&chunk?).map_err(|error| failed(error.to_string()))?;
    }
    let tables = thaw.finish().map_err(|error| failed(error.to_string()))?;
    match tables.applied() == last.index {
        true => Ok(tables),
        false => Err(failed(format!("it holds the state of index {}", tables.applied().0))),
    }
}

/// The members that a cluster begins with, as its first table has them.
pub(crate) fn bootstrap_members(identity: &Identity) -> Vec<MemberInfo> {
    let info = |member: &InitialMember| MemberInfo {
        id: member.id,
        peer_urls: member.peer_urls.clone(),
        ..MemberInfo::default()
    };
    identity.members.iter().map(info).collect()
}

/// Makes a complete directory beside the place, and checks that a member would start from it; leaves nothing if not.
fn build(places: &impl Places, new: &NewMember, tables: &Keeper) -> Result<PathBuf, RestoreError> {
    check_aside(places, &new.place)?;
    let aside = next_to(&new.place, ASIDE);
    match fill(places, new, &aside, tables) {
        Ok(()) => Ok(aside),
        Err(error) => {
            let _ = places.remove(&aside); // the error before is returned
            Err(error)
        }
    }
}

fn fill(places: &impl Places, new: &NewMember, place: &Path, tables: &Keeper) -> Result<(), RestoreError> {
    let mut voters: Vec<NodeId> = new.identity.members.iter().map(|member| member.id).collect();
    voters.sort_unstable();
    let meta = SnapshotMeta {
        last: EntryId { term: FIRST_TERM, index: tables.applied() },
        stamp: Stamp::default(),
        membership: Membership::new(voters, Vec::new()),
        membership_at: LogIndex(0),
    };
    let mut dir = DataDir::open(places.create(place)?)?;
    dir.create(new.identity.clone(), &new.options)?;
    let (wal, _) = Wal::open(dir, new.options)?;
    let mut writer = wal.snapshots().create(GROUP, meta.clone())?;
    for chunk in tables.pin().chunks() {
        writer.push(&chunk)?;
    }
    writer.finish()?;
    wal.close()?;
    // A start is tried here: it makes the log begin after the snapshot.
    let (wal, recovered) = Wal::open(DataDir::open(places.existing(place)?)?, new.options)?;
    let found = recovered.get(&GROUP).and_then(|recovered| recovered.snapshot.as_ref());
    if found != Some(&meta) {
        let what = format!("the snapshot up to {} was written but is not found by a start", meta.last);
        return Err(RestoreError::Snapshot(what));
    }
    Ok(wal.close()?)
}

/// `DIR.what`, beside `DIR`.
fn next_to(dir: &Path, what: &str) -> PathBuf {
    // A trailing slash or `.` would put it inside.
    let dir: PathBuf = dir.components().collect();
    let mut name: OsString = dir.into_os_string();
    name.push(format!(".{what}"));
    PathBuf::from(name)
}

/// Renames durably. An empty directory at `to` is replaced.
fn rename(places: &impl Places, from: &Path, to: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| {
        let text = format!("cannot rename {} to {}: {error}", from.display(), to.display());
        RestoreError::Files { place: to.to_path_buf(), error: io::Error::new(error.kind(), text) }
    };
    places.rename(from, to).map_err(failed)?;
    places.sync_beside(to).map_err(failed)
}
