//! Identity: the member that a data directory belongs to; drawn once, when it is created. [fault-model ST14]
//!
//! ```text
//!  0       4      8     12      16
//!  ├ magic ┼ vers ┼ len ┼ crc32c ┼ cluster ┼ node ┼ incarnation ┼ name ┼ groups ┼ members [┼ found]
//! ```
//! Little-endian; the checksum covers everything but itself. `docs/formats/identity.md`
//! Knows nothing of: locks, segments.

use crate::error::WalError;
use kattu_raft::{GroupId, Incarnation, NodeId};
use kattu_wire::fields::{FieldError, Reader, Write};

/// The format version of the whole data directory.
pub(crate) const VERSION: u32 = 1;

/// The version of the identity of a member that joined: the members that it found follow.
const JOINED: u32 = 2;

const MAGIC: u32 = u32::from_le_bytes(*b"KTID");
const HEADER_BYTES: usize = 16;

/// Far above the needs of any cluster; keeps a damaged length from allocating memory.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// The owner of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u64,
    /// The member.
    pub node: NodeId,
    /// This life of the directory: a random number, drawn by its creator.
    pub incarnation: Incarnation,
    /// The member's name when the directory was created.
    pub name: String,
    /// The groups whose logs are kept here, ascending.
    pub groups: Vec<GroupId>,
    /// The members the cluster began with.
    pub members: Vec<InitialMember>,
    /// The members that it found when it joined an existing cluster, itself included: its peers before its own log
    /// names any. `None` for an initial member. A member that joined counts no member as a voter, not even itself,
    /// before its log or a snapshot says so.
    pub joined: Option<Vec<InitialMember>>,
}

/// One of the members a cluster began with, or that a joining member found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialMember {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
}

impl Identity {
    /// A cluster of one member and one group, for tests and examples.
    #[must_use]
    pub fn single(cluster: u64, node: NodeId, incarnation: Incarnation, name: &str) -> Identity {
        let member = InitialMember { id: node, name: name.to_owned(), peer_urls: Vec::new() };
        Identity {
            cluster,
            node,
            incarnation,
            name: name.to_owned(),
            groups: vec![GroupId(0)],
            members: vec![member],
            joined: None,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).expect("far below 2^32");
        let mut out = Vec::new();
        out.put_u32(MAGIC);
        out.put_u32(if self.joined.is_some() { JOINED } else { VERSION });
        out.put_u32(0);
        out.put_u32(0);
        out.put_u64(self.cluster);
        out.put_u64(self.node.0);
        out.put_u64(self.incarnation.0);
        out.put_text(&self.name);
        out.put_u32(count(self.groups.len()));
        self.groups.iter().for_each(|group| out.put_u32(group.0));
        for members in [Some(&self.members), self.joined.as_ref()].into_iter().flatten() {
            out.put_u32(count(members.len()));
            for member in members {
                out.put_u64(member.id.0);
                out.put_text(&member.name);
                out.put_u32(count(member.peer_urls.len()));
                member.peer_urls.iter().for_each(|url| out.put_text(url));
            }
        }
        let len = count(out.len());
        out[8..12].copy_from_slice(&len.to_le_bytes());
        let crc = checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads an identity file; `file` names it in errors.
    ///
    /// # Errors
    /// [`WalError::Damaged`], [`WalError::OtherFormat`].
    pub fn from_bytes(file: &str, bytes: &[u8]) -> Result<Identity, WalError> {
        let damaged = |offset, what: String| WalError::damaged(file, offset, what);
        if bytes.len() < HEADER_BYTES {
            return Err(damaged(
                bytes.len() as u64,
                format!("{} bytes, too short for an identity", bytes.len()),
            ));
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if u32_at(0) != MAGIC {
            return Err(damaged(0, format!("starts with {:#010x}, expected {MAGIC:#010x}", u32_at(0))));
        }
        if u32_at(8) as usize != bytes.len() {
            return Err(damaged(8, format!("says {} bytes, the file has {}", u32_at(8), bytes.len())));
        }
        let (found, computed) = (u32_at(12), checksum(bytes));
        if found != computed {
            return Err(damaged(12, format!("checksum {found:#010x}, its bytes give {computed:#010x}")));
        }
        let version = u32_at(4);
        if version != VERSION && version != JOINED {
            return Err(WalError::OtherFormat { file: file.to_owned(), found: version, supported: JOINED });
        }
        let mut reader = Reader::new(&bytes[HEADER_BYTES..]);
        Identity::take(&mut reader, version == JOINED)
            .and_then(|identity| reader.end().map(|()| identity))
            .map_err(|error| damaged(HEADER_BYTES as u64, error.to_string()))
    }

    fn take(reader: &mut Reader<'_>, has_joined: bool) -> Result<Identity, FieldError> {
        let cluster = reader.u64("cluster")?;
        let node = NodeId(reader.u64("node")?);
        let incarnation = Incarnation(reader.u64("incarnation")?);
        let name = reader.text("name")?;
        let mut groups = Vec::new();
        for _ in 0..reader.u32("groups")? {
            groups.push(GroupId(reader.u32("group")?));
        }
        let members = take_members(reader)?;
        let joined = if has_joined { Some(take_members(reader)?) } else { None };
        Ok(Identity { cluster, node, incarnation, name, groups, members, joined })
    }

    /// The number that marks all blocks of segment `generation` as this directory's: a block that was copied here from
    /// elsewhere, or left by an earlier use of the file, does not carry it. The mixing is splitmix64's: not secret,
    /// only different for different directories.
    #[must_use]
    pub fn file_id(&self, generation: u64) -> u64 {
        let mut mixed = 0_u64;
        for number in [self.cluster, self.node.0, self.incarnation.0, generation] {
            mixed = mixed.wrapping_add(number).wrapping_add(0x9E37_79B9_7F4A_7C15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^= mixed >> 31;
        }
        mixed
    }
}

fn take_members(reader: &mut Reader<'_>) -> Result<Vec<InitialMember>, FieldError> {
    let mut members = Vec::new();
    for _ in 0..reader.u32("members")? {
        let id = NodeId(reader.u64("member")?);
        let name = reader.text("member name")?;
        let mut peer_urls = Vec::new();
        for _ in 0..reader.u32("peer urls")? {
            peer_urls.push(reader.text("peer url")?);
        }
        members.push(InitialMember { id, name, peer_urls });
    }
    Ok(members)
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[HEADER_BYTES..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Identity {
        let mut identity = Identity::single(7, NodeId(1), Incarnation(99), "kätt");
        identity.members[0].peer_urls = vec!["http://127.0.0.1:2380".into()];
        identity
    }

    fn joined() -> Identity {
        let mut found = sample().members;
        found.push(InitialMember {
            id: NodeId(4),
            name: String::new(),
            peer_urls: vec!["http://n4:2380".into()],
        });
        Identity { joined: Some(found), ..sample() }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        for identity in [sample(), joined()] {
            assert_eq!(Identity::from_bytes("identity", &identity.to_bytes()), Ok(identity));
        }
    }

    #[test]
    fn a_member_that_joined_is_never_taken_for_a_founder() {
        let mut bytes = joined().to_bytes();
        bytes[4] = 1;
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Identity::from_bytes("identity", &bytes), Err(WalError::Damaged { .. })));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_an_error() {
        let bytes = joined().to_bytes();
        for len in 0..bytes.len() {
            assert!(Identity::from_bytes("identity", &bytes[..len]).is_err(), "cut at {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Identity::from_bytes("identity", &flipped);
            assert!(matches!(read, Err(WalError::Damaged { .. })), "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn a_directory_of_tomorrow_is_refused_with_both_versions() {
        let mut bytes = sample().to_bytes();
        bytes[4] = 3;
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        let error = Identity::from_bytes("identity", &bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "identity: format version 3, this program reads version 2; start the version of Kattu that wrote it"
        );
    }
}
