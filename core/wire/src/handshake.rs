//! The first frames of a connection: who is speaking, to whom, in which cluster, in which protocol versions. [fault-model NT1]
//!
//! The side that connects says `Hello`; the other answers `Welcome` with the version both will use, or `Refused` with
//! the reason, which both sides log. `Goodbye` closes a connection that worked.
//! Knows nothing of: addresses, which clusters exist.

use crate::fields::{FieldError, Reader, Write};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kattu_raft::{Incarnation, NodeId};

/// The oldest protocol version this code speaks.
pub const PROTOCOL_MIN: u16 = 1;

/// The newest protocol version this code speaks.
pub const PROTOCOL_MAX: u16 = 1;

/// What a connection is for; each has a queue of its own. [fault-model NT4]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Votes, heartbeats, read rounds.
    Control,
    /// Entries and forwarded requests.
    Bulk,
    /// Pieces of snapshots.
    Snapshot,
}

/// "This is who I am, and whom I want to reach."
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Oldest protocol version spoken.
    pub protocol_min: u16,
    /// Newest protocol version spoken.
    pub protocol_max: u16,
    /// The cluster.
    pub cluster: u64,
    /// The member that speaks.
    pub from: NodeId,
    /// The life of its data directory; [`Incarnation(0)`](Incarnation) of one that is still to be made: then all that is asked
    /// is whether there was another one before.
    pub incarnation: Incarnation,
    /// The member that is meant.
    pub to: NodeId,
    /// What the connection is for.
    pub lane: Lane,
    /// Whether the speaker has no vote.
    pub learner: bool,
}

impl Hello {
    /// The version both sides will use: the newest that both speak.
    ///
    /// # Errors
    /// A sentence for the log of either side when there is none.
    pub fn agree(&self) -> Result<u16, String> {
        let newest = self.protocol_max.min(PROTOCOL_MAX);
        let oldest = self.protocol_min.max(PROTOCOL_MIN);
        if oldest <= newest {
            return Ok(newest);
        }
        Err(format!(
            "peer {:x} speaks protocol versions {}..={}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}: \
             upgrade the older one",
            self.from.0, self.protocol_min, self.protocol_max
        ))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.protocol_min);
        out.put_u16(self.protocol_max);
        out.put_u64(self.cluster);
        out.put_u64(self.from.0);
        out.put_u64(self.incarnation.0);
        out.put_u64(self.to.0);
        out.put_u8(match self.lane {
            Lane::Control => 1,
            Lane::Bulk => 2,
            Lane::Snapshot => 3,
        });
        out.put_u8(self.learner.into());
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Hello, FieldError> {
        Ok(Hello {
            protocol_min: reader.u16("protocol_min")?,
            protocol_max: reader.u16("protocol_max")?,
            cluster: reader.u64("cluster")?,
            from: NodeId(reader.u64("from")?),
            incarnation: Incarnation(reader.u64("incarnation")?),
            to: NodeId(reader.u64("to")?),
            lane: match reader.u8("lane")? {
                1 => Lane::Control,
                2 => Lane::Bulk,
                3 => Lane::Snapshot,
                other => return Err(FieldError::Value { field: "lane", value: other.into() }),
            },
            learner: reader.bool("learner")?,
        })
    }
}

/// "Come in."
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Welcome {
    /// The protocol version of this connection from here on.
    pub protocol: u16,
    /// The member that answers.
    pub from: NodeId,
    /// The life of its data directory.
    pub incarnation: Incarnation,
}

impl Welcome {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.protocol);
        out.put_u64(self.from.0);
        out.put_u64(self.incarnation.0);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Welcome, FieldError> {
        Ok(Welcome {
            protocol: reader.u16("protocol")?,
            from: NodeId(reader.u64("from")?),
            incarnation: Incarnation(reader.u64("incarnation")?),
        })
    }
}

/// "You cannot come in", with a sentence that says why and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The sentence.
    pub reason: String,
}

/// "I am closing this connection", with a sentence that says why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Goodbye {
    /// The sentence.
    pub reason: String,
}
