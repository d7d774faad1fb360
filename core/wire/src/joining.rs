//! How members find each other: who asks to join, where a member is reached, who belongs to a cluster, who does not any more.
//!
//! ```text
//!   someone with an empty directory ── Join ──────────▶ any member      a connection for one question
//!                                   ◀─ Roll ───────────
//!   a member ── Hello, then Introduction ─────────────▶ a member that may not know where to answer it
//!            ◀─ Removed ──────────────────────────────  instead of Welcome, when it is none any more
//!            ◀─ Known ────────────────────────────────  instead of Welcome, when it had another directory
//! ```
//! Knows nothing of: who may join, how members change.

use crate::fields::{FieldError, Reader, Write};
use alloc::string::String;
use alloc::vec::Vec;
use kattu_node::contract::{MemberInfo, Members};
use kattu_raft::{LogIndex, NodeId};

/// "I begin with an empty directory: who is in this cluster?"
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    /// Oldest protocol version spoken.
    pub protocol_min: u16,
    /// Newest protocol version spoken.
    pub protocol_max: u16,
    /// Where the asker will be reached; for the log of the side that answers.
    pub peer_urls: Vec<String>,
}

/// "These are."
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberList {
    /// The cluster.
    pub cluster: u64,
    /// The members it began with: the log is replayed from them.
    pub began_with: Vec<MemberInfo>,
    /// Who belongs to it, as far as the side that answers has applied its log.
    pub members: Members,
    /// Members that have been heard of from a directory of their own, ascending.
    pub heard: Vec<NodeId>,
}

/// "This is where I am reached, and this is how eager I am to lead", behind the greeting of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Introduction {
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// How eager it is to lead.
    pub priority: u8,
}

/// "You are no member of this cluster any more."
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Removed {
    /// The cluster.
    pub cluster: u64,
    /// Who was removed.
    pub member: NodeId,
}

/// "I know you from another directory than the one you have, or are about to make."
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conflict {
    /// The cluster.
    pub cluster: u64,
    /// Who is known.
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

/// A count of things that take `least` bytes each at least: what cannot be there is not believed.
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
