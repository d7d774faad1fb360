//! Rebuild: backups, and new clusters made of them or of the one member that is left of a lost one.
//!
//! ```text
//!   a member ─▶ backup.rs: pieces of a file ─▶ … ─▶ checked to its last byte ─▶ tables ─┐
//!   a lost cluster's directory ─▶ restore.rs: snapshot and log to its very end ─▶ tables ─┤
//!                                                                                       ▼
//!   rebuild.rs: tables of a new cluster, revision raised ─▶ restore.rs: DIR.restoring, opened and checked ─▶ DIR
//! ```
//! All changes of files and directories go through the seams [`kattu_wal::Files`] and [`Places`], so that the simulator
//! loses power in the middle of this very code.
//! Knows nothing of: flags, faces, sockets, threads, async.
#![forbid(unsafe_code)]

pub mod backup;
pub mod places;
mod rebuild;
pub mod restore;

pub use places::{Found, Places, RealPlaces};
pub use rebuild::{RAISE_BY, RebuildError, Rebuilt, Recovery, from_backup, from_survivor};
pub use restore::{NewMember, RestoreError, unfinished};
