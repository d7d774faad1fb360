//! Reading: raw pieces for a peer, who checks them; checked chunks for the store.
//!
//! Knows nothing of: what the chunks mean, who the peer is.

use super::format::Pass;
use super::store::Snapshot;
use crate::error::WalError;
use crate::files::LogFile;

/// An open snapshot. What it reads stays the same, whatever becomes of the file's name.
#[derive(Debug)]
pub struct SnapshotReader {
    snapshot: Snapshot,
    file: Box<dyn LogFile>,
}

impl SnapshotReader {
    pub(super) fn new(snapshot: Snapshot, file: Box<dyn LogFile>) -> SnapshotReader {
        SnapshotReader { snapshot, file }
    }

    /// Which it is.
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

    /// The chunks, one after the other, each checked before it is given out. After an error nothing that was read counts.
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::Io`].
    pub fn chunks(&self) -> Result<Chunks<'_>, WalError> {
        let pass = Pass::begin(&*self.file, &self.snapshot.name)?;
        if pass.header.meta != self.snapshot.meta {
            return Err(WalError::damaged(
                &self.snapshot.name,
                16,
                "another snapshot is read than was checked",
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
