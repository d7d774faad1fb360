//! Vote hold: how long the vote holds last that a member may have granted to leaders in its last run. The file
//! `promise`.
//!
//! ```text
//!  0       4      8     12      16        24          32
//!  ├ magic ┼ vers ┼ crc ┼   0   ┼ file id ┼ promise ns ┤
//! ```
//! Little-endian; the checksum covers the rest. The vote holds themselves are not stored, only how long one lasts: a
//! starting member waits that long, so it need not know when it granted the last one. There is no file before the first
//! vote hold. A running member writes it anew when the length changes. The scrub and `kattu wal inspect` only look at
//! the file. `docs/formats/identity.md`
//! Knows nothing of: elections, leader leases. [replication-protocols L-4]

use super::DataDir;
use crate::error::WalError;
use crate::files::Files;
use crate::identity::Identity;
use crate::small_file::{Looked, SmallFile};
use std::sync::Arc;
use std::time::Duration;

/// The file's name.
pub(crate) const VOTE_HOLD: &str = "promise";
const MAGIC: [u8; 4] = *b"KTPR";
const BYTES: usize = 32;

fn file(identity: &Identity) -> SmallFile<'static> {
    SmallFile::new(VOTE_HOLD, MAGIC, identity)
}

/// How long a vote hold may last; `None` if none was ever granted. `Err` within: the file exists and cannot be read, so
/// the time is unknown. Changes nothing.
pub(crate) fn look(files: &dyn Files, identity: &Identity) -> Looked<Duration> {
    let file = file(identity);
    Ok(match file.look(files, SmallFile::is_exactly(BYTES))? {
        None => None,
        Some(Err(why)) => Some(Err(why)),
        Some(Ok(content)) => Some(Ok(Duration::from_nanos(file.of_this_version(content)?.field(0)))),
    })
}

/// The file of a member that runs: its vote holds may come to last longer, or shorter.
#[derive(Clone, Debug)]
pub struct VoteHoldRecord {
    files: Arc<dyn Files>,
    file: SmallFile<'static>,
}

impl VoteHoldRecord {
    /// Makes durable how long a vote hold lasts from now on. To be called before a longer one is granted, and with a
    /// shorter time only when the last of the longer ones is over.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`].
    pub fn set(&self, vote_hold: Duration) -> Result<(), WalError> {
        let nanos = u64::try_from(vote_hold.as_nanos()).unwrap_or(u64::MAX);
        self.file.store(&*self.files, 0, &[nanos])
    }
}

impl DataDir {
    /// How long a vote hold of an earlier run may last; zero if none was ever granted. `Err` within: the file exists
    /// and cannot be read, so the time is unknown.
    ///
    /// # Errors
    /// [`WalError::Io`], [`WalError::OtherFormat`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn vote_hold(&self) -> Result<Result<Duration, String>, WalError> {
        let identity = self.identity.as_ref().expect("only who has an identity promises");
        Ok(look(&*self.files, identity)?.unwrap_or(Ok(Duration::ZERO)))
    }

    /// The record of this directory's vote holds, which outlives the opening of the log.
    ///
    /// # Panics
    /// If the directory has no identity yet.
    #[must_use]
    pub fn vote_hold_record(&self) -> VoteHoldRecord {
        let identity = self.identity.as_ref().expect("only a directory with an identity grants holds");
        VoteHoldRecord { files: self.files.clone(), file: file(identity) }
    }

    /// Makes durable how long a vote hold of this run lasts; see [`VoteHoldRecord::set`].
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn set_vote_hold(&self, vote_hold: Duration) -> Result<(), WalError> {
        self.vote_hold_record().set(vote_hold)
    }
}
