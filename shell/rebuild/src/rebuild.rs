//! Rebuild: a new cluster from a backup, or from the one member that is left of a lost one.
//!
//! Both make a directory from which a member of a *new* cluster starts: under another id, so no member of the old one
//! can be mistaken for one of the new. The revision goes on above the last known one, with everything before it
//! compacted: clients may have seen revisions that are not in the backup, and such a revision is never used again.
//! Knows nothing of: the layout of directories (`restore.rs`) and of backups (`backup.rs`), flags.

use crate::backup::{Backup, BackupError};
use crate::places::Places;
use crate::restore::{self, NewMember, RestoreError};
use kattu_kv::api::Revision;
use kattu_node::Keeper;
use kattu_raft::{EntryId, LogIndex, NodeId};
use std::fmt;
use std::path::{Path, PathBuf};

/// How far the revision is raised by default: far beyond what a cluster writes between a backup and its loss; at 10,000
/// writes a second it is a whole day of them.
pub const RAISE_BY: u64 = 1_000_000_000;

/// The new member.
#[derive(Debug)]
pub struct Rebuilt {
    /// The new cluster.
    pub cluster_id: u64,
    /// The member.
    pub member_id: NodeId,
    /// Its name.
    pub name: String,
    /// Its directory.
    pub data_dir: PathBuf,
    /// The store's revision, and what it was.
    pub revision: Revision,
    /// The revision that was found.
    pub revision_before: Revision,
    /// Live keys.
    pub keys: u64,
    /// Up to where the old log was applied.
    pub applied: LogIndex,
}

/// The new member made from a survivor, and what may be lost.
#[derive(Debug)]
pub struct Recovery {
    /// The new member.
    pub rebuilt: Rebuilt,
    /// The old cluster.
    pub old_cluster: u64,
    /// The member that was left, under its old id.
    pub survivor: NodeId,
    /// Where its directory is kept.
    pub kept: PathBuf,
    /// Entries at the end of its log that it did not know to be committed; they are included.
    pub open: u64,
    /// Where its log once ended, or a bound of that, if damage has cut it since.
    pub vote_floor: Option<EntryId>,
    /// Whether it was a voter: a learner may be behind without knowing it.
    pub voted: bool,
    /// The defects of its snapshots.
    pub complaints: Vec<String>,
}

/// Why nothing was made.
#[derive(Debug)]
pub enum RebuildError {
    /// The file is not a backup.
    Backup {
        /// The file.
        file: PathBuf,
        /// The defect.
        error: BackupError,
    },
    /// The directory cannot be made or read.
    Restore(RestoreError),
    /// The request cannot be carried out.
    Refused(String),
}

impl RebuildError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            RebuildError::Backup { .. } => 1,
            RebuildError::Refused(_) => 2,
            RebuildError::Restore(_) => 4,
        }
    }
}

impl fmt::Display for RebuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RebuildError::Backup { file, error } => write!(f, "{}: {error}", file.display()),
            RebuildError::Restore(error) => error.fmt(f),
            RebuildError::Refused(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for RebuildError {}

impl From<RestoreError> for RebuildError {
    fn from(error: RestoreError) -> RebuildError {
        RebuildError::Restore(error)
    }
}

/// Makes the directory of `new` from the backup in `file`, which `open` reads, with its revision raised by `raise_by`.
///
/// # Errors
/// If the directory is not empty, or the backup is not whole and sound; then nothing has changed.
pub fn from_backup(
    places: &impl Places,
    new: &NewMember,
    (file, open): (&Path, impl FnOnce(&Path) -> Result<Backup, BackupError>),
    raise_by: u64,
) -> Result<Rebuilt, RebuildError> {
    let backup = open(file).map_err(|error| RebuildError::Backup { file: file.to_path_buf(), error })?;
    check_other_cluster(new, backup.cluster)?;
    let (tables, rebuilt) = reborn(new, backup.tables, raise_by)?;
    restore::restore(places, new, &tables)?;
    Ok(rebuilt)
}

/// Makes the member whose directory is at the place of `new` the only one of a new cluster, with all its data. For a
/// cluster that has lost its quorum for good: entries that only other members had are lost.
///
/// # Errors
/// If the directory is in use, damaged or no member's, or the new cluster has other members; then nothing has changed.
pub fn from_survivor(places: &impl Places, new: &NewMember, raise_by: u64) -> Result<Recovery, RebuildError> {
    if new.identity.members.len() != 1 {
        let what = "the new cluster begins with this member alone: leave --initial-cluster out, or name only this member \
                    in it; add others once it runs";
        return Err(RebuildError::Refused(what.to_string()));
    }
    let salvage = restore::salvage(places, &new.place, new.options)?;
    check_other_cluster(new, salvage.identity.cluster)?;
    let (tables, rebuilt) = reborn(new, salvage.tables, raise_by)?;
    let kept = restore::replace(places, new, &tables)?;
    Ok(Recovery {
        rebuilt,
        old_cluster: salvage.identity.cluster,
        survivor: salvage.identity.node,
        kept,
        open: salvage.last.index.0 - salvage.committed.0.min(salvage.last.index.0),
        vote_floor: salvage.vote_floor,
        voted: salvage.voted,
        complaints: salvage.complaints,
    })
}

/// A new cluster needs another id: members of the old one may still exist.
fn check_other_cluster(new: &NewMember, old: u64) -> Result<(), RebuildError> {
    if new.identity.cluster != old {
        return Ok(());
    }
    Err(RebuildError::Refused(format!(
        "the new cluster would have the id {old:x} of the old one, whose members may still exist: name another \
         --initial-cluster-token, here and at every start of a member"
    )))
}

/// The tables of the new cluster.
fn reborn(new: &NewMember, tables: Keeper, raise_by: u64) -> Result<(Keeper, Rebuilt), RebuildError> {
    let (before, applied) = (tables.store().revision(), tables.applied());
    if i64::try_from(raise_by)
        .ok()
        .and_then(|by| before.0.checked_add(by))
        .is_none_or(|raised| raised > i64::MAX / 2)
    {
        let what =
            format!("revision {before} cannot be raised by {raise_by}: there is too little left above it");
        return Err(RebuildError::Refused(what));
    }
    let tables = tables.reborn(restore::bootstrap_members(&new.identity), raise_by);
    let rebuilt = Rebuilt {
        cluster_id: new.identity.cluster,
        member_id: new.identity.node,
        name: new.identity.name.clone(),
        data_dir: new.place.clone(),
        revision: tables.store().revision(),
        revision_before: before,
        keys: tables.store().stats().keys,
        applied,
    };
    Ok((tables, rebuilt))
}
