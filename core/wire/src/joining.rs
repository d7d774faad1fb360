//! Joining: the frames by which newcomers learn the members, members announce their URLs, and former members are
//! refused.
//!
//! ```text
//!   a process with no directory yet ── Join ──────────▶ any member      a connection for one request
//!                                   ◀─ MemberList ─────
//!   a member ── Hello, then Introduction ─────────────▶ a member that may not know its address
//!            ◀─ Removed ──────────────────────────────  instead of Welcome, if it was removed
//!            ◀─ Conflict ─────────────────────────────  instead of Welcome, if it had another directory
//! ```
//! Knows nothing of: admission, changes of members.

use crate::fields::{FieldError, Reader, Write};
use alloc::string::String;
use alloc::vec::Vec;
use kattu_node::contract::{MemberInfo, Members};
use kattu_raft::{LogIndex, NodeId};

/// Asks for the members of the cluster, for a newcomer with an empty directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    /// Oldest protocol version spoken.
    pub protocol_min: u16,
    /// Newest protocol version spoken.
    pub protocol_max: u16,
    /// The peer URLs that the newcomer will have; for the log of the side that answers.
    pub peer_urls: Vec<String>,
}

/// The answer: the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberList {
    /// The cluster.
    pub cluster: u64,
    /// The initial members: the log is replayed from them.
    pub began_with: Vec<MemberInfo>,
    /// Its members, as far as the side that answers has applied its log.
    pub members: Members,
    /// Members that are known to have had a directory, ascending.
    pub heard: Vec<NodeId>,
}

/// Announces a member's peer URLs and its priority for leadership, after its `Hello`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Introduction {
    /// Its peer URLs.
    pub peer_urls: Vec<String>,
    /// Its priority for leadership.
    pub priority: u8,
}

/// Refuses a member that was removed from the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Removed {
    /// The cluster.
    pub cluster: u64,
    /// The removed member.
    pub member: NodeId,
}

/// Refuses a member that is known from another directory than the one that it has, or is about to make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conflict {
    /// The cluster.
    pub cluster: u64,
    /// The member.
    pub member: NodeId,
}

impl Join {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.protocol_min);
        out.put_u16(self.protocol_max);
        put_texts(&self.peer_urls, out);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Join, FieldError> {
        Ok(Join {
            protocol_min: reader.u16("protocol_min")?,
            protocol_max: reader.u16("protocol_max")?,
            peer_urls: take_texts(reader, "peer_urls")?,
        })
    }
}

impl MemberList {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cluster);
        put_members(&self.began_with, out);
        out.put_u64(self.members.at.0);
        put_members(&self.members.list, out);
        put_ids(&self.members.removed, out);
        put_ids(&self.heard, out);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<MemberList, FieldError> {
        Ok(MemberList {
            cluster: reader.u64("cluster")?,
            began_with: take_members(reader)?,
            members: Members {
                at: LogIndex(reader.u64("configuration")?),
                list: take_members(reader)?,
                removed: take_ids(reader, "removed")?,
            },
            heard: take_ids(reader, "heard")?,
        })
    }
}

impl Introduction {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_texts(&self.peer_urls, out);
        out.put_u8(self.priority);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Introduction, FieldError> {
        Ok(Introduction { peer_urls: take_texts(reader, "peer_urls")?, priority: reader.u8("priority")? })
    }
}

impl Removed {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cluster);
        out.put_u64(self.member.0);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Removed, FieldError> {
        Ok(Removed { cluster: reader.u64("cluster")?, member: NodeId(reader.u64("member")?) })
    }
}

impl Conflict {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cluster);
        out.put_u64(self.member.0);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Conflict, FieldError> {
        Ok(Conflict { cluster: reader.u64("cluster")?, member: NodeId(reader.u64("member")?) })
    }
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    out.put_u32(u32::try_from(count).expect("members and their URLs are few"));
}

fn put_texts(texts: &[String], out: &mut Vec<u8>) {
    put_count(texts.len(), out);
    texts.iter().for_each(|text| out.put_text(text));
}

fn put_ids(ids: &[NodeId], out: &mut Vec<u8>) {
    put_count(ids.len(), out);
    ids.iter().for_each(|id| out.put_u64(id.0));
}

fn put_members(members: &[MemberInfo], out: &mut Vec<u8>) {
    put_count(members.len(), out);
    for member in members {
        out.put_u64(member.id.0);
        out.put_u8(member.learner.into());
        out.put_u8(member.votes_when_ready.into());
        out.put_text(&member.name);
        put_texts(&member.peer_urls, out);
        put_texts(&member.client_urls, out);
    }
}

/// A count of items of at least `least` bytes each; refused if the bytes left are too few for it.
fn take_count(reader: &mut Reader<'_>, field: &'static str, least: usize) -> Result<usize, FieldError> {
    let count = reader.u32(field)? as usize;
    if reader.left() / least < count {
        return Err(FieldError::Missing { field });
    }
    Ok(count)
}

fn take_texts(reader: &mut Reader<'_>, field: &'static str) -> Result<Vec<String>, FieldError> {
    let count = take_count(reader, field, 2)?;
    (0..count).map(|_| reader.text(field)).collect()
}

fn take_ids(reader: &mut Reader<'_>, field: &'static str) -> Result<Vec<NodeId>, FieldError> {
    let count = take_count(reader, field, 8)?;
    (0..count).map(|_| reader.u64(field).map(NodeId)).collect()
}

fn take_members(reader: &mut Reader<'_>) -> Result<Vec<MemberInfo>, FieldError> {
    let count = take_count(reader, "members", 20)?;
    let member = |_| {
        Ok(MemberInfo {
            id: NodeId(reader.u64("member")?),
            learner: reader.bool("learner")?,
            votes_when_ready: reader.bool("votes_when_ready")?,
            name: reader.text("name")?,
            peer_urls: take_texts(reader, "peer_urls")?,
            client_urls: take_texts(reader, "client_urls")?,
        })
    };
    (0..count).map(member).collect()
}
