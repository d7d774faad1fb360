//! Restore: the directory of one member of a new cluster, made of tables; and the tables of a member whose cluster is lost.
//!
//! ```text
//!   tables ─▶ DIR.restoring: identity, empty log, one snapshot up to (term 1, applied) ─▶ opened and checked ─▶ DIR
//! ```
//! Every member of a new cluster that is made of the same tables gets the same snapshot, so their logs agree from their
//! first entry on. A directory has its name only when it is complete: a restore that was cut short leaves none that a
//! member would start from. Nothing here runs beside a member: the directories are locked like a member's.
//! Knows nothing of: backups, flags, how the tables came about.

use crate::snapshots::thaw;
use crate::start::RuntimeConfig;
use kattu_node::Keeper;
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo};
use kattu_raft::{EntryId, GroupId, Incarnation, LogIndex, Membership, NodeId, SnapshotMeta, Stamp, Term};
use kattu_wal::{DataDir, Identity, InitialMember, RealFiles, Wal, WalError, WalOptions};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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

/// Makes the directory of the member that `config` describes, with these tables, which must be the same for every member
/// of the cluster. All its members vote.
///
/// # Errors
/// If there is something in the directory already, or it cannot be made; then there is none.
pub fn restore(config: &RuntimeConfig, tables: &Keeper) -> Result<(), RestoreError> {
    check_free(&config.data_dir)?;
    let aside = next_to(&config.data_dir, "restoring");
    build(config, &aside, tables)?;
    rename(&aside, &config.data_dir)
}

/// As [`restore`], in the place of a directory that is kept aside under another name, which is given back.
///
/// # Errors
/// As [`restore`]; the old directory is where it was then, unless the error says that renaming failed.
pub fn replace(config: &RuntimeConfig, tables: &Keeper) -> Result<PathBuf, RestoreError> {
    let aside = next_to(&config.data_dir, "restoring");
    let kept = (1..)
        .map(|number| next_to(&config.data_dir, &format!("lost-quorum-{number}")))
        .find(|place| !place.exists())
        .expect("one of them is free");
    build(config, &aside, tables)?;
    rename(&config.data_dir, &kept)?;
    rename(&aside, &config.data_dir)?;
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
    pub floor: Option<EntryId>,
    /// Whether it had a vote.
    pub voted: bool,
    /// What was wrong with its snapshots.
    pub complaints: Vec<String>,
}

/// Reads everything that a member's directory holds: the newest snapshot, then the log to its very end. An entry that is not
/// known to be committed may have been answered all the same, so nothing that is there is left out.
///
/// # Errors
/// If it is in use, damaged, or no member's.
pub fn salvage(data_dir: &Path) -> Result<Salvage, RestoreError> {
    let dir = DataDir::open(Arc::new(RealFiles::existing(data_dir)?))?;
    let Some(identity) = dir.identity().cloned() else {
        return Err(RestoreError::Nothing(data_dir.to_path_buf()));
    };
    let (mut wal, mut recovered) = Wal::open(dir, WalOptions::default())?;
    let recovered = recovered.remove(&GROUP).unwrap_or_default();
    let complaints: Vec<String> = wal.complaints().iter().map(ToString::to_string).collect();
    let mut tables = match &recovered.snapshot {
        Some(meta) => {
            let goes_on = AtomicBool::new(false);
            let thawed =
                thaw(&wal.snapshots(), GROUP, meta.last, &goes_on).map_err(RestoreError::Snapshot)?;
            thawed.expect("nobody stops it").0
        }
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
    let (committed, last, floor) = (recovered.committed, recovered.last, recovered.floor);
    wal.close()?;
    Ok(Salvage { identity, tables, committed, last, floor, voted, complaints })
}

/// The members that the cluster began with, as its first table has them.
fn beginners(identity: &Identity) -> Vec<MemberInfo> {
    let info = |member: &InitialMember| MemberInfo {
        id: member.id,
        peer_urls: member.peer_urls.clone(),
        ..MemberInfo::default()
    };
    identity.members.iter().map(info).collect()
}

/// One of those that the new cluster begins with.
fn first_identity(config: &RuntimeConfig) -> Identity {
    let members = config.members.iter().map(|member| InitialMember {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
    });
    let own = config.members.iter().find(|member| member.id == config.id);
    Identity {
        cluster: config.cluster_id,
        node: config.id,
        incarnation: Incarnation(crate::entropy()),
        name: own.map(|member| member.name.clone()).unwrap_or_default(),
        groups: vec![GROUP],
        members: members.collect(),
        joined: None,
    }
}

/// Makes a complete directory at `place`, and looks whether a member would start from it; leaves nothing if not.
fn build(config: &RuntimeConfig, place: &Path, tables: &Keeper) -> Result<(), RestoreError> {
    if place.exists() {
        return Err(RestoreError::Leftover(place.to_path_buf()));
    }
    let built = fill(config, place, tables);
    if built.is_err() {
        let _ = std::fs::remove_dir_all(place); // the error that is told is the one before
    }
    built
}

fn fill(config: &RuntimeConfig, place: &Path, tables: &Keeper) -> Result<(), RestoreError> {
    let options = WalOptions {
        segment_bytes: config.segment_bytes.max(4 * config.request_bytes_max as u64),
        reserve_bytes: config.reserve_bytes,
        ..WalOptions::default()
    };
    let mut voters: Vec<NodeId> = config.members.iter().map(|member| member.id).collect();
    voters.sort_unstable();
    let meta = SnapshotMeta {
        last: EntryId { term: FIRST_TERM, index: tables.applied() },
        stamp: Stamp::default(),
        membership: Membership::new(voters, Vec::new()),
        membership_at: LogIndex(0),
    };
    let mut dir = DataDir::open(Arc::new(RealFiles::create(place)?))?;
    dir.create(first_identity(config), &options)?;
    let (wal, _) = Wal::open(dir, options)?;
    let mut writer = wal.snapshots().create(GROUP, meta.clone())?;
    for chunk in tables.pin().chunks() {
        writer.push(&chunk)?;
    }
    writer.finish()?;
    wal.close()?;
    // A start is tried here and now: it makes the log begin after the snapshot.
    let (wal, recovered) = Wal::open(DataDir::open(Arc::new(RealFiles::existing(place)?))?, options)?;
    let found = recovered.get(&GROUP).and_then(|recovered| recovered.snapshot.as_ref());
    if found != Some(&meta) {
        let what = format!("the snapshot of {} was written and is not found again", meta.last);
        return Err(RestoreError::Snapshot(what));
    }
    Ok(wal.close()?)
}

/// Whether there is nothing at this place that a restore could take away.
fn check_free(place: &Path) -> Result<(), RestoreError> {
    match std::fs::read_dir(place) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(RestoreError::Occupied(place.to_path_buf())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(RestoreError::Files { place: place.to_path_buf(), error }),
    }
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
fn rename(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| {
        let text = format!("cannot rename {} to {}: {error}", from.display(), to.display());
        RestoreError::Files { place: to.to_path_buf(), error: io::Error::new(error.kind(), text) }
    };
    std::fs::rename(from, to).map_err(failed)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}
