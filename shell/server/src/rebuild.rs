//! Rebuild: makes the configured member of a new cluster from a backup, or from a survivor.
//!
//! Both make a directory from which `serve` with the same flags starts a member of a *new* cluster: its id comes from
//! token and member list as usual, so no member of the old cluster can be mistaken for one of the new.
//! Knows nothing of: files and their formats (`kattu_rebuild`).

use crate::config::ServeConfig;
use crate::serve::runtime_config;
use kattu_rebuild::backup::Backup;
use kattu_rebuild::{NewMember, RealPlaces, from_backup, from_survivor};
pub use kattu_rebuild::{RAISE_BY, RebuildError, Rebuilt, Recovery};
use std::path::Path;

/// Makes the directory of the member that `config` describes from this backup, with its revision raised by so many.
///
/// # Errors
/// If the directory is not empty, or the backup is not whole and sound; then nothing has changed.
pub fn restore(config: &ServeConfig, file: &Path, raise_by: u64) -> Result<Rebuilt, RebuildError> {
    from_backup(&RealPlaces, &new_member(config), (file, Backup::open), raise_by)
}

/// Makes the member whose directory `config` names the only one of a new cluster, with all that it holds. For a cluster
/// that has lost its quorum for good: entries that only the others had are lost.
///
/// # Errors
/// If the directory is in use, damaged or no member's, or the configuration names other members; then nothing has
/// changed.
pub fn recover(config: &ServeConfig, raise_by: u64) -> Result<Recovery, RebuildError> {
    from_survivor(&RealPlaces, &new_member(config), raise_by)
}

fn new_member(config: &ServeConfig) -> NewMember {
    let config = runtime_config(config, None);
    NewMember { identity: config.first_identity(), options: config.wal_options(), place: config.data_dir }
}
