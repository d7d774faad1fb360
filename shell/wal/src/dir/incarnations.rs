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
use crate::small_file::{Content, HEAD_BYTES, Looked, SmallFile};
use kattu_raft::{Incarnation, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The file's name.
pub(crate) const INCARNATIONS: &str = "lives";
const MAGIC: [u8; 4] = *b"KTLV";
const INCARNATION_BYTES: usize = 16;
/// More than any cluster has members in its time; a file with more is damaged.
const INCARNATIONS_MAX: usize = 4096;
const BYTES_MAX: u64 = (HEAD_BYTES + INCARNATIONS_MAX * INCARNATION_BYTES) as u64;

/// The voters that a member has met, with their incarnations.
#[derive(Debug)]
pub struct Incarnations {
    files: Arc<dyn Files>,
    identity: Identity,
    known: BTreeMap<NodeId, Incarnation>,
}

fn file(identity: &Identity) -> SmallFile<'static> {
    SmallFile::new(INCARNATIONS, MAGIC, identity)
}

/// The incarnations in the file, or why they cannot be read.
fn decode(content: &Content) -> Result<BTreeMap<NodeId, Incarnation>, String> {
    let (version, count) = (content.version(), content.word() as usize);
    if version != VERSION || content.bytes() != HEAD_BYTES + count * INCARNATION_BYTES {
        return Err(format!("version {version}, {} bytes for {count} incarnations", content.bytes()));
    }
    let life = |number| (NodeId(content.field(number * 2)), Incarnation(content.field(number * 2 + 1)));
    Ok((0..count).map(life).collect())
}

/// The voters that the member has met; `None` if there is no file. `Err` within: the file exists and cannot be read.
/// Changes nothing.
pub(crate) fn look(files: &dyn Files, identity: &Identity) -> Looked<BTreeMap<NodeId, Incarnation>> {
    let content = file(identity).look(files, SmallFile::is_at_most(BYTES_MAX))?;
    Ok(content.map(|content| content.and_then(|content| decode(&content))))
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
        let (files, identity) = (self.files.clone(), identity.clone());
        Ok((Incarnations { files, identity, known: known.unwrap_or_default() }, wrong))
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
        let fields: Vec<u64> = known.iter().flat_map(|(member, life)| [member.0, life.0]).collect();
        file(&self.identity).store(&*self.files, known.len() as u32, &fields)
    }
}
