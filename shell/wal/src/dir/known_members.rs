//! Known members: the other members that this one knows, and their peer URLs. The file `members`.
//!
//! ```text
//!  0       4      8     12      16        24
//!  ├ magic ┼ vers ┼ crc ┼ count ┼ file id ┼ id, count of URLs, URLs ┼ …
//! ```
//! Little-endian; the checksum covers the rest. A member that missed changes of members admits a member that others have named.
//! If it forgot that name at a restart, and all the members that its own table lists had left, it could admit no member again,
//! and a cluster that needs its vote would stand still. `docs/formats/identity.md` [fault-model NT2]
//! Knows nothing of: connections, handshakes, which members were removed.

use super::DataDir;
use crate::error::WalError;
use crate::files::Files;
use crate::identity::{Identity, VERSION};
use crate::small_file::{Content, HEAD_BYTES, Looked, SmallFile};
use kattu_raft::NodeId;
use kattu_wire::fields::{FieldError, Reader, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The file's name.
pub(crate) const KNOWN_MEMBERS: &str = "members";
const MAGIC: [u8; 4] = *b"KTMB";
/// Far above the needs of any cluster; keeps a damaged file from allocating memory.
const BYTES_MAX: u64 = 1 << 20;

/// The other members, with their peer URLs.
pub type PeerUrls = BTreeMap<NodeId, Vec<String>>;

/// The members that this one knows, on its disk.
#[derive(Debug)]
pub struct KnownMembers {
    files: Arc<dyn Files>,
    identity: Identity,
    known: Option<PeerUrls>,
}

fn file(identity: &Identity) -> SmallFile<'static> {
    SmallFile::new(KNOWN_MEMBERS, MAGIC, identity)
}

fn take(content: &Content) -> Result<PeerUrls, FieldError> {
    let mut reader = Reader::new(content.payload());
    let mut known = BTreeMap::new();
    for _ in 0..content.word() {
        let id = NodeId(reader.u64("member")?);
        let mut urls = Vec::new();
        for _ in 0..reader.u32("peer URLs")? {
            urls.push(reader.text("peer URL")?);
        }
        known.insert(id, urls);
    }
    reader.end().map(|()| known)
}

/// The members in the file, or why they cannot be read.
fn decode(content: &Content) -> Result<PeerUrls, String> {
    if content.version() != VERSION {
        return Err(format!("version {}", content.version()));
    }
    take(content).map_err(|error| error.to_string())
}

/// The members that this one knows; `None` if there is no file. `Err` within: the file exists and cannot be read. Changes
/// nothing.
pub(crate) fn look(files: &dyn Files, identity: &Identity) -> Looked<PeerUrls> {
    let content = file(identity).look(files, SmallFile::is_at_most(BYTES_MAX))?;
    Ok(content.map(|content| content.and_then(|content| decode(&content))))
}

impl DataDir {
    /// The members that this one knew in earlier runs, and the defect of the file if it cannot be read: then there are none.
    ///
    /// # Errors
    /// [`WalError::Io`].
    ///
    /// # Panics
    /// If the directory has no identity yet.
    pub fn known_members(&self) -> Result<(KnownMembers, Option<String>), WalError> {
        let identity = self.identity.as_ref().expect("a directory without an identity knows no members");
        let (known, wrong) = match look(&*self.files, identity)? {
            None => (None, None),
            Some(Ok(known)) => (Some(known), None),
            Some(Err(wrong)) => (None, Some(wrong)),
        };
        let (files, identity) = (self.files.clone(), identity.clone());
        Ok((KnownMembers { files, identity, known }, wrong))
    }
}

impl KnownMembers {
    /// The members; `None` if none were ever written down, or they cannot be read.
    #[must_use]
    pub fn all(&self) -> Option<&PeerUrls> {
        self.known.as_ref()
    }

    /// Makes durable which members this one knows, in the place of those known before.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`], [`WalError::Damaged`] if they do not fit into the file; then nothing has
    /// changed.
    pub fn set(&mut self, known: PeerUrls) -> Result<(), WalError> {
        let mut payload = Vec::new();
        for (id, urls) in &known {
            payload.put_u64(id.0);
            payload.put_u32(urls.len() as u32);
            urls.iter().for_each(|url| payload.put_text(url));
        }
        if BYTES_MAX < (HEAD_BYTES + payload.len()) as u64 {
            let what = format!("{} members are too many", known.len());
            return Err(WalError::damaged(KNOWN_MEMBERS, 0, what));
        }
        file(&self.identity).store_payload(&*self.files, known.len() as u32, &payload)?;
        self.known = Some(known);
        Ok(())
    }
}
