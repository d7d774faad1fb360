//! Data directory: its identity, and the lock that keeps other processes out.
//!
//! Creation makes slots and the first segment, then the identity, each durable before the next: a directory with an
//! identity is complete. One without may be finished or, if its log was ever written, has lost its identity and is
//! refused. A member with a past never starts empty. [fault-model F15, ST14]
//! Knows nothing of: entries, elections.

use crate::error::WalError;
use crate::files::{Files, LockGuard};
use crate::identity::{self, Identity};
use crate::segment::{self, DATA_START};
use crate::slots::{self, Slots};
use crate::snapshot::SnapshotStore;
use crate::wal::WalOptions;
use std::io;
use std::sync::Arc;

pub(crate) mod incarnations;
pub(crate) mod known_members;
pub(crate) mod vote_hold;

/// The file with the identity of the directory; without it, the directory has no owner yet. `docs/formats/identity.md`
pub const IDENTITY: &str = "identity";
const LOCK: &str = "lock";

/// A locked data directory. The lock is held until this, or the [`crate::Wal`] made from it, is dropped.
#[derive(Debug)]
pub struct DataDir {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) lock: Box<dyn LockGuard>,
    identity: Option<Identity>,
    pub(crate) snapshots: Option<SnapshotStore>,
}

/// Reads the identity, if there is one.
pub(crate) fn read_identity(files: &dyn Files) -> Result<Option<Identity>, WalError> {
    let file = match files.open(IDENTITY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(WalError::io(IDENTITY, "open", &error)),
    };
    let read = |error: io::Error| WalError::io(IDENTITY, "read", &error);
    let len = file.bytes().map_err(read)?;
    if identity::BYTES_MAX < len {
        return Err(WalError::damaged(IDENTITY, identity::BYTES_MAX, format!("{len} bytes, far too long")));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes).map_err(read)?;
    Identity::from_bytes(IDENTITY, &bytes).map(Some)
}

impl DataDir {
    /// Locks the directory, makes the names in it durable, and reads its identity.
    ///
    /// # Errors
    /// [`WalError::Locked`], [`WalError::Foreign`], [`WalError::OtherFormat`], [`WalError::Damaged`],
    /// [`WalError::Unwritable`].
    pub fn open(files: Arc<dyn Files>) -> Result<DataDir, WalError> {
        let lock = match files.lock(LOCK) {
            Ok(Ok(lock)) => lock,
            Ok(Err(holder)) => {
                let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
                return Err(WalError::Locked { dir: files.place(), holder });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(WalError::Unwritable { dir: files.place(), error: error.to_string() });
            }
            Err(error) => return Err(WalError::io(LOCK, "lock", &error)),
        };
        // A failed sync of an earlier run may have left names that the next power failure takes away again. Nothing is
        // concluded from a name, and nothing is cut, before all names are durable. [fault-model F11]
        files.sync_names().map_err(|error| WalError::syncing(&files.place(), &error))?;
        let identity = read_identity(&*files)?;
        let dir = DataDir { files, lock, identity, snapshots: None };
        if dir.identity.is_none() {
            dir.check_that_it_is_new()?;
        }
        dir.sign_lock()?;
        Ok(dir)
    }

    /// Its identity; `None` for a new directory.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Its snapshots, which any thread may read while the log is opened; `None` for a new directory. A log that is opened
    /// after this has the same store.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub fn snapshots(&mut self) -> Result<Option<SnapshotStore>, WalError> {
        if let (None, Some(identity)) = (&self.snapshots, &self.identity) {
            self.snapshots = Some(SnapshotStore::of(self.files.clone(), identity.cluster)?);
        }
        Ok(self.snapshots.clone())
    }

    /// Checks that the directory belongs to this member of this cluster.
    ///
    /// # Errors
    /// [`WalError::Foreign`] naming what differs.
    pub fn expect(&self, cluster: u64, node: kattu_raft::NodeId) -> Result<(), WalError> {
        let Some(identity) = &self.identity else {
            return Ok(());
        };
        let mut differs = Vec::new();
        if identity.cluster != cluster {
            differs.push(format!("it is of cluster {:x}, this is cluster {cluster:x}", identity.cluster));
        }
        if identity.node != node {
            differs.push(format!(
                "it is of member {:x} ({}), this is member {:x}",
                identity.node.0, identity.name, node.0
            ));
        }
        if differs.is_empty() {
            return Ok(());
        }
        Err(WalError::Foreign { dir: self.files.place(), what: differs.join("; ") })
    }

    /// Makes a new directory complete, with this identity.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`].
    ///
    /// # Panics
    /// If it has an identity already.
    pub fn create(&mut self, identity: Identity, options: &WalOptions) -> Result<(), WalError> {
        assert!(self.identity.is_none(), "a directory gets its identity once");
        let files = &*self.files;
        for &group in &identity.groups {
            Slots::create(files, &identity, group)?;
        }
        segment::create(
            files,
            &identity,
            1,
            segment::length_for(options.segment_bytes, 0, options.sector_bytes),
        )?;

        let bytes = identity.to_bytes();
        segment::publish_whole(files, IDENTITY, &bytes)?;
        self.identity = Some(identity);
        self.sign_lock()
    }

    /// Checks that a directory without an identity holds only leftovers of a creation that did not finish.
    fn check_that_it_is_new(&self) -> Result<(), WalError> {
        let names = self.files.names().map_err(|error| WalError::io(&self.files.place(), "list", &error))?;
        for name in names {
            let leftover =
                name.ends_with(".tmp") || name.ends_with(".part") || name == LOCK || name == "reserve";
            if name.starts_with("slots-") && !leftover {
                // A member can vote before its log gets a block: then the directory has a past, too.
                let voted = slots::were_used(&*self.files, &name);
                if voted.map_err(|error| WalError::io(&name, "read", &error))? {
                    let what = format!("the file is missing although {name} holds a vote");
                    return Err(WalError::damaged(IDENTITY, 0, what));
                }
                continue;
            }
            if leftover || name.starts_with('.') || name == "lost+found" {
                continue;
            }
            if name.starts_with("floor-")
                || name == vote_hold::VOTE_HOLD
                || name == incarnations::INCARNATIONS
                || name == known_members::KNOWN_MEMBERS
            {
                let what = format!("the file is missing although {name} holds state of an earlier run");
                return Err(WalError::damaged(IDENTITY, 0, what));
            }
            if crate::snapshot::named(&name).is_some() {
                let what = format!("the file is missing although {name} holds a snapshot");
                return Err(WalError::damaged(IDENTITY, 0, what));
            }
            if segment::generation_of(&name).is_none() {
                let what = format!("it has no `{IDENTITY}` but holds `{name}`, which Kattu did not make");
                return Err(WalError::Foreign { dir: self.files.place(), what });
            }
            if self.was_written_to(&name)? {
                let what = format!("the file is missing although {name} holds a log");
                return Err(WalError::damaged(IDENTITY, 0, what));
            }
        }
        Ok(())
    }

    fn was_written_to(&self, name: &str) -> Result<bool, WalError> {
        let read = |error: io::Error| WalError::io(name, "read", &error);
        let file = self.files.open(name).map_err(read)?;
        let len = file.bytes().map_err(read)?;
        let mut part = vec![0; 1 << 20];
        let mut at = DATA_START;
        while at < len {
            let take = (len - at).min(part.len() as u64) as usize;
            file.read_at(at, &mut part[..take]).map_err(read)?;
            if part[..take].iter().any(|&byte| byte != 0) {
                return Ok(true);
            }
            at += take as u64;
        }
        Ok(false)
    }

    fn sign_lock(&self) -> Result<(), WalError> {
        let pid = std::process::id();
        let holder = match &self.identity {
            Some(identity) => format!(
                "process {pid}, member {} ({:x}) of cluster {:x}",
                identity.name, identity.node.0, identity.cluster
            ),
            None => format!("process {pid}"),
        };
        match self.lock.describe(&holder) {
            // A full disk must not keep a member from starting: the lock itself is held.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            other => other.map_err(|error| WalError::io(LOCK, "write", &error)),
        }
    }
}
