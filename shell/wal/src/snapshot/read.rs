//! Reading: raw pieces for a peer, which checks them itself; checked chunks for the store.
//!
//! Knows nothing of: the state in the chunks, peers.

use super::format::Pass;
use super::store::Snapshot;
use crate::error::WalError;
use crate::files::LogFile;

/// An open snapshot. Its content stays readable and the same after the file is renamed or removed.
#[derive(Debug)]
pub struct SnapshotReader {
    snapshot: Snapshot,
    file: Box<dyn LogFile>,
}

impl SnapshotReader {
    pub(super) fn new(snapshot: Snapshot, file: Box<dyn LogFile>) -> SnapshotReader {
        SnapshotReader { snapshot, file }
    }

    /// The snapshot that is open.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Bytes of the file from `offset` on, at most `bytes_max`, none at its end.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub fn read_at(&self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, WalError> {
        let left = self.snapshot.bytes.saturating_sub(offset);
        let mut bytes = vec![0; left.min(bytes_max as u64) as usize];
        let read = self.file.read_at(offset, &mut bytes);
        read.map_err(|error| WalError::io(&self.snapshot.name, "read", &error))?;
        Ok(bytes)
    }

    /// The chunks in order, each checked before it is returned. After an error the chunks returned before are not
    /// valid.
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::Io`].
    pub fn chunks(&self) -> Result<Chunks<'_>, WalError> {
        let pass = Pass::begin(&*self.file, &self.snapshot.name)?;
        if pass.header.meta != self.snapshot.meta {
            return Err(WalError::damaged(
                &self.snapshot.name,
                16,
                "it holds another snapshot than the one that was checked",
            ));
        }
        Ok(Chunks::of(pass))
    }
}

/// The chunks of a snapshot. Ends after the footer, which is checked, too, or after the first error.
pub struct Chunks<'a> {
    pass: Option<Pass<'a>>,
    /// The error that ended them.
    pub(super) failed: Option<WalError>,
}

impl<'a> Chunks<'a> {
    pub(super) fn of(pass: Pass<'a>) -> Chunks<'a> {
        Chunks { pass: Some(pass), failed: None }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<Vec<u8>, WalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.pass.as_mut()?.next();
        if !matches!(next, Ok(Some(_))) {
            self.pass = None;
        }
        self.failed = next.as_ref().err().cloned();
        next.transpose()
    }
}

impl std::fmt::Debug for Chunks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chunks")
    }
}
