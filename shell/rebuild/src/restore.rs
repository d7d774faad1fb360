//! Restore: the directory of one member of a new cluster, made of tables; and the tables of a member whose cluster is lost.
//!
//! ```text
//!   tables ─▶ DIR.restoring: identity, empty log, one snapshot up to (term 1, applied) ─▶ opened and checked ─▶ DIR
//! ```
//! Every member of a new cluster that is made of the same tables gets the same snapshot, so their logs agree from their
//! first entry on. A directory has its name only when it is complete: a restore that was cut short leaves none that a
//! member would start from, and what it leaves beside keeps a member from beginning with nothing there ([`unfinished`]).
//! Nothing here runs beside a member: the directories are locked like a member's.
//! Knows nothing of: backups, flags, how the tables came about.

use crate::places::{Found, Places};
use kattu_node::Keeper;
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo};
use kattu_node::frozen::Thaw;
use kattu_raft::{EntryId, GroupId, LogIndex, Membership, NodeId, SnapshotMeta, Stamp, Term};
use kattu_wal::{DataDir, Identity, InitialMember, SnapshotStore, Wal, WalError, WalOptions};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The one group there is.
const GROUP: GroupId = GroupId(0);
/// The term of the snapshot that a new cluster begins with.
const FIRST_TERM: Term = Term(1);
/// Bytes of log read at once.
const READ_BYTES: usize = 4 << 20;

/// Why no directory was made, or none could be read.
#[derive(Debug)]
pub enum RestoreError {
    /// There is something at this place already.
    Occupied(PathBuf),
    /// What an earlier attempt left behind.
    Leftover(PathBuf),
    /// There is no member's data at this place.
    Nothing(PathBuf),
    /// There is nothing at the place any more: an attempt to replace it was cut short.
    Unfinished {
        /// Where the directory was.
        place: PathBuf,
        /// What was to come there.
        aside: PathBuf,
    },
    /// A directory cannot be renamed, listed or removed.
    Files {
        /// Which.
        place: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The log or the directory.
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
                    "{} is not empty: name a directory that is, or that is not there yet",
                    place.display()
                )
            }
            RestoreError::Leftover(place) => write!(
                f,
                "{} is what an earlier attempt left behind, or something of yours: remove it first",
                place.display()
            ),
            RestoreError::Nothing(place) => write!(f, "{} holds no member's data", place.display()),
            RestoreError::Unfinished { place, aside } => write!(
                f,
                "{} is not there, and {} is what an attempt left behind that was cut short: give the newest {}-* the \
                 name {} again, remove {}, and begin anew",
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
    /// Whose it shall be.
    pub identity: Identity,
    /// How its log is laid out.
    pub options: WalOptions,
}

/// What is beside a directory while it is being made.
const ASIDE: &str = "restoring";
/// How the directory is called that another one has replaced; a number follows.
const KEPT: &str = "lost-quorum";

/// What a restore left beside this place, if it was cut short and nothing is at the place itself: a member that began
/// there with nothing would take the place of what was to come.
///
/// # Errors
/// If the places cannot be looked at.
pub fn unfinished(places: &impl Places, place: &Path) -> io::Result<Option<PathBuf>> {
    let aside = next_to(place, ASIDE);
    let is_left = places.look(place)? != Found::Something && places.look(&aside)? != Found::Nothing;
    Ok(is_left.then_some(aside))
}

/// Whether there is nothing at this place that a restore could take away.
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

/// As [`restore`], in the place of a directory that is kept aside under another name, which is given back.
///
/// # Errors
/// As [`restore`]; the old directory is where it was then, unless the error says that renaming failed.
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

/// What a member holds that does not run.
#[derive(Debug)]
pub struct Salvage {
    /// Whose directory it is.
    pub identity: Identity,
    /// Its tables after the last entry of its log, whether known committed or not.
    pub tables: Keeper,
    /// Up to where its log was known committed.
    pub committed: LogIndex,
    /// The last entry of its log.
    pub last: EntryId,
    /// Where its log once ended, or surely not after that, if damage has cut it and it has not grown back.
    pub vote_floor: Option<EntryId>,
    /// Whether it had a vote.
    pub voted: bool,
    /// What was wrong with its snapshots.
    pub complaints: Vec<String>,
}

/// Reads everything that a member's directory holds: the newest snapshot, then the log to its very end. An entry that is not
/// known to be committed may have been answered all the same, so nothing that is there is left out.
///
/// # Errors
/// If it is in use, damaged, or no member's; or if an attempt to replace it was cut short.
pub fn salvage(places: &impl Places, place: &Path, options: WalOptions) -> Result<Salvage, RestoreError> {
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
        None => Keeper::new(beginners(&identity)),
    };
    while tables.applied() < recovered.last.index {
        let entries = wal.read(GROUP, tables.applied().next(), recovered.last.index, READ_BYTES)?;
        if entries.is_empty() {
            let next = tables.applied().next();
            return Err(RestoreError::Snapshot(format!("entry {} is not in the log", next.0)));
        }
        for entry in entries {
            let term = entry.id().term;
            tables.handle(KeeperTask::Apply { entry, ticket: None, term }, &mut KeeperEffects::default());
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
pub(crate) fn beginners(identity: &Identity) -> Vec<MemberInfo> {
    let info = |member: &InitialMember| MemberInfo {
        id: member.id,
        peer_urls: member.peer_urls.clone(),
        ..MemberInfo::default()
    };
    identity.members.iter().map(info).collect()
}

/// Makes a complete directory beside the place, and looks whether a member would start from it; leaves nothing if not.
fn build(places: &impl Places, new: &NewMember, tables: &Keeper) -> Result<PathBuf, RestoreError> {
    check_aside(places, &new.place)?;
    let aside = next_to(&new.place, ASIDE);
    match fill(places, new, &aside, tables) {
        Ok(()) => Ok(aside),
        Err(error) => {
            let _ = places.remove(&aside); // the error that is told is the one before
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
    // A start is tried here and now: it makes the log begin after the snapshot.
    let (wal, recovered) = Wal::open(DataDir::open(places.existing(place)?)?, new.options)?;
    let found = recovered.get(&GROUP).and_then(|recovered| recovered.snapshot.as_ref());
    if found != Some(&meta) {
        let what = format!("the snapshot of {} was written and is not found again", meta.last);
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

/// Renames durably. An empty directory at `to` goes.
fn rename(places: &impl Places, from: &Path, to: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| {
        let text = format!("cannot rename {} to {}: {error}", from.display(), to.display());
        RestoreError::Files { place: to.to_path_buf(), error: io::Error::new(error.kind(), text) }
    };
    places.rename(from, to).map_err(failed)?;
    places.sync_beside(to).map_err(failed)
}
