//! Vote hold: how long the vote holds last that a member may have granted to leaders in its last run. The file
//! `promise`.
//!
//! ```text
//!  0       4      8     12      16        24          32
//!  ├ magic ┼ vers ┼ crc ┼   0   ┼ file id ┼ promise ns ┤
//! ```
//! Little-endian; the checksum covers the rest. The vote holds themselves are not stored, only how long one lasts: a
//! starting member waits that long, so it need not know when it granted the last one. There is no file before the first
//! vote hold. The scrub and `kattu wal inspect` only look at the file. `docs/formats/identity.md`
//! Knows nothing of: elections, leader leases. [replication-protocols L-4]

use super::DataDir;
use crate::error::WalError;
use crate::files::Files;
use crate::identity::{Identity, VERSION};
use crate::segment::publish_whole;
use std::time::Duration;

/// The file's name.
pub(crate) const VOTE_HOLD: &str = "promise";
const MAGIC: u32 = u32::from_le_bytes(*b"KTPR");
const BYTES: usize = 32;

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

/// How long a vote hold may last; `None` if none was ever granted. `Err` within: the file exists and cannot be read, so
/// the time is unknown. Changes nothing.
pub(crate) fn look(
    files: &dyn Files,
    identity: &Identity,
) -> Result<Option<Result<Duration, String>>, WalError> {
    let read = |error: std::io::Error| WalError::io(VOTE_HOLD, "read", &error);
    let file = match files.open(VOTE_HOLD) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let found = file.bytes().map_err(read)?;
    if found != BYTES as u64 {
        return Ok(Some(Err(format!("{found} bytes, expected {BYTES}"))));
    }
    let mut bytes = [0; BYTES];
    file.read_at(0, &mut bytes).map_err(read)?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if u32_at(8) != checksum(&bytes) {
        return Ok(Some(Err("checksum mismatch".into())));
    }
    if (u32_at(0), u64_at(16)) != (MAGIC, identity.file_id(0)) {
        return Ok(Some(Err("it belongs to another member or directory".into())));
    }
    if u32_at(4) != VERSION {
        return Err(WalError::OtherFormat { file: VOTE_HOLD.into(), found: u32_at(4), supported: VERSION });
    }
    Ok(Some(Ok(Duration::from_nanos(u64_at(24)))))
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

    /// Makes durable how long a vote hold of this run lasts. To be called before the first one is granted, and with a
    /// shorter time only when the last of the longer ones is over.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn set_vote_hold(&self, vote_hold: Duration) -> Result<(), WalError> {
        let identity = self.identity.as_ref().expect("only who has an identity promises");
        let nanos = u64::try_from(vote_hold.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = [0; BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&identity.file_id(0).to_le_bytes());
        bytes[24..32].copy_from_slice(&nanos.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        publish_whole(&*self.files, VOTE_HOLD, &bytes)
    }
}
