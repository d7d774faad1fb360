//! Incarnations: from which directory each voter came that this member has met. The file `lives`.
//!
//! ```text
//!  0       4      8     12      16        24
//!  ├ magic ┼ vers ┼ crc ┼ count ┼ file id ┼ id, incarnation ┼ …
//! ```
//! Little-endian; the checksum covers the rest. A voter has one directory for life: what it voted and granted in one is
//! unknown in another. So a member that has met it accepts it from no other directory, after a restart either.
//! `docs/formats/identity.md` [fault-model F61, ST18]
//! Knows nothing of: connections, handshakes.

use super::DataDir;
use crate::error::WalError;
use crate::files::Files;
use crate::identity::{Identity, VERSION};
use crate::segment::publish_whole;
use kattu_raft::{Incarnation, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The file's name.
pub(crate) const INCARNATIONS: &str = "lives";
const MAGIC: u32 = u32::from_le_bytes(*b"KTLV");
const HEAD_BYTES: usize = 24;
const INCARNATION_BYTES: usize = 16;
/// More than any cluster has members in its time; a file with more is damaged.
const INCARNATIONS_MAX: usize = 4096;

/// The voters that a member has met, with their incarnations.
#[derive(Debug)]
pub struct Incarnations {
    files: Arc<dyn Files>,
    file_id: u64,
    known: BTreeMap<NodeId, Incarnation>,
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

/// The content of the file, or why it cannot be read.
fn decode(bytes: &[u8], file_id: u64) -> Result<BTreeMap<NodeId, Incarnation>, String> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if bytes.len() < HEAD_BYTES || u32_at(8) != checksum(bytes) {
        return Err("checksum mismatch".into());
    }
    if (u32_at(0), u64_at(16)) != (MAGIC, file_id) {
        return Err("it belongs to another member or directory".into());
    }
    if u32_at(4) != VERSION || bytes.len() != HEAD_BYTES + u32_at(12) as usize * INCARNATION_BYTES {
        return Err(format!("version {}, {} bytes for {} incarnations", u32_at(4), bytes.len(), u32_at(12)));
    }
    let lives = (HEAD_BYTES..bytes.len()).step_by(INCARNATION_BYTES);
    Ok(lives.map(|at| (NodeId(u64_at(at)), Incarnation(u64_at(at + 8)))).collect())
}

/// The voters that the member has met; `None` if there is no file. `Err` within: the file exists and cannot be read.
/// Changes nothing.
#[allow(clippy::type_complexity)]
pub(crate) fn look(
    files: &dyn Files,
    identity: &Identity,
) -> Result<Option<Result<BTreeMap<NodeId, Incarnation>, String>>, WalError> {
    let read = |error: std::io::Error| WalError::io(INCARNATIONS, "read", &error);
    let file = match files.open(INCARNATIONS) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let len = usize::try_from(file.bytes().map_err(read)?).unwrap_or(usize::MAX);
    if HEAD_BYTES + INCARNATIONS_MAX * INCARNATION_BYTES < len {
        return Ok(Some(Err(format!("{len} bytes, far too long"))));
    }
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes).map_err(read)?;
    Ok(Some(decode(&bytes, identity.file_id(0))))
}

impl DataDir {
    /// The voters that this member has met, and the defect of the file if it cannot be read: then there are none.
    ///
    /// # Errors
    /// [`WalError::Io`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn lives(&self) -> Result<(Incarnations, Option<String>), WalError> {
        let identity = self.identity.as_ref().expect("only who has an identity meets others");
        let known = look(&*self.files, identity)?.unwrap_or_else(|| Ok(BTreeMap::new()));
        let wrong = known.as_ref().err().cloned();
        let (files, file_id) = (self.files.clone(), identity.file_id(0));
        Ok((Incarnations { files, file_id, known: known.unwrap_or_default() }, wrong))
    }
}

impl Incarnations {
    /// All voters that were met.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, Incarnation)> {
        self.known.iter().map(|(&member, &life)| (member, life))
    }

    /// Makes durable from which directory a voter comes. The caller checks before whether it may come from there.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`], [`WalError::Damaged`] if there are too many; then nothing has changed.
    pub fn meet(&mut self, member: NodeId, life: Incarnation) -> Result<(), WalError> {
        if self.known.get(&member) == Some(&life) {
            return Ok(());
        }
        let mut known = self.known.clone();
        known.insert(member, life);
        if INCARNATIONS_MAX < known.len() {
            return Err(WalError::damaged(INCARNATIONS, 0, format!("{} members are too many", known.len())));
        }
        self.write(&known)?;
        self.known = known;
        Ok(())
    }

    fn write(&self, known: &BTreeMap<NodeId, Incarnation>) -> Result<(), WalError> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + known.len() * INCARNATION_BYTES);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((known.len() as u32).to_le_bytes());
        bytes.extend(self.file_id.to_le_bytes());
        for (member, life) in known {
            bytes.extend(member.0.to_le_bytes());
            bytes.extend(life.0.to_le_bytes());
        }
        let crc = checksum(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        publish_whole(&*self.files, INCARNATIONS, &bytes)
    }
}
