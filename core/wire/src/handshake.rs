//! Handshake: the first frames of a connection: both members, cluster, protocol versions. [fault-model NT1]
//!
//! The dialer sends `Hello`; the listener answers `Welcome` with the version that both will use, or `Refused` with the
//! reason, which both sides log. `Goodbye` closes a connection that worked.
//!
//! From protocol 3 on, a `Welcome` may ask the dialer to prove that it is the member that it claims to be: by a secret
//! that the listener sends on a connection of its own, to the address that the peer table has for that member.
//!
//! ```text
//!   caller ── Hello: I am A ──────────▶ B
//!          ◀─ Welcome: number ──────────
//!          ── Proof: 0, ask me ───────▶           A, at its address ◀── Challenge: number, secret ── B
//!          ── Proof: secret ──────────▶ accepted from here on
//! ```
//! Knows nothing of: addresses, sockets.

use crate::fields::{FieldError, Reader, Write};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kattu_raft::{Incarnation, NodeId};

/// The oldest protocol version that this code supports.
pub const PROTOCOL_MIN: u16 = 1;

/// The newest protocol version that this code supports.
pub const PROTOCOL_MAX: u16 = 6;

/// The first protocol version in which a welcome can ask for proof.
pub const PROTOCOL_PROOFS: u16 = 3;

/// The first protocol version in which a member may open further streams for appends.
pub const PROTOCOL_STREAMS: u16 = 5;

/// Most streams for appends to one peer, the bulk lane included.
pub const STREAMS_MAX: u8 = 64;

/// Sent instead of a proof: the number was read, and the challenge may be sent. Never used as a secret.
pub const ASK_ME: u64 = 0;

/// The purpose of a connection; each has a queue of its own. [fault-model NT4]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Votes, heartbeats, read rounds.
    Control,
    /// Entries and forwarded requests.
    Bulk,
    /// Pieces of snapshots.
    Snapshot,
    /// Appends that need not wait behind those on the bulk lane: a further stream, from 1 to [`STREAMS_MAX`]` - 1`.
    Stream(u8),
}

impl Lane {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u8(match self {
            Lane::Control => 1,
            Lane::Bulk => 2,
            Lane::Snapshot => 3,
            Lane::Stream(number) => 3 + number,
        });
    }

    fn take(reader: &mut Reader<'_>) -> Result<Lane, FieldError> {
        match reader.u8("lane")? {
            1 => Ok(Lane::Control),
            2 => Ok(Lane::Bulk),
            3 => Ok(Lane::Snapshot),
            further @ 4.. if further - 3 < STREAMS_MAX => Ok(Lane::Stream(further - 3)),
            other => Err(FieldError::Value { field: "lane", value: other.into() }),
        }
    }
}

/// Opens a connection, with the dialing member and the member that it wants to reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Oldest protocol version spoken.
    pub protocol_min: u16,
    /// Newest protocol version spoken.
    pub protocol_max: u16,
    /// The cluster.
    pub cluster: u64,
    /// The member that dials.
    pub from: NodeId,
    /// The incarnation of its data directory; [`Incarnation(0)`](Incarnation) if that is still to be made: then the
    /// dialer only asks whether there was another one before.
    pub incarnation: Incarnation,
    /// The member that it wants to reach.
    pub to: NodeId,
    /// The purpose of the connection.
    pub lane: Lane,
    /// Whether the dialing member has no vote.
    pub learner: bool,
}

impl Hello {
    /// Checks that the hello is meant for member `own` of this cluster, and that its sender may be another member of
    /// it; returns the version that both sides will use. Checked before anything else is trusted. [fault-model NT1]
    ///
    /// # Errors
    /// The reason, for the member that dials.
    pub fn judge(&self, cluster: u64, own: NodeId) -> Result<u16, String> {
        if self.cluster != cluster {
            return Err(format!(
                "the dialing member belongs to cluster {:x}, the dialed one to cluster {cluster:x}: check --initial-cluster and \
                 --initial-cluster-token",
                self.cluster
            ));
        }
        if self.to != own {
            return Err(format!(
                "the dialing member expects member {:x} here, but this is member {:x}: check --initial-cluster",
                self.to.0, own.0
            ));
        }
        if self.from == own || self.from == NodeId(0) {
            return Err(format!("member {:x} is not a peer of this member", self.from.0));
        }
        self.agree()
    }

    /// The version that both sides will use: the newest that both support.
    ///
    /// # Errors
    /// The reason for the logs of both sides, if there is none.
    pub fn agree(&self) -> Result<u16, String> {
        let newest = self.protocol_max.min(PROTOCOL_MAX);
        let oldest = self.protocol_min.max(PROTOCOL_MIN);
        if oldest <= newest {
            return Ok(newest);
        }
        Err(format!(
            "peer {:x} supports protocol versions {}..={}, this member supports {PROTOCOL_MIN}..={PROTOCOL_MAX}: \
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
        self.lane.put(out);
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
            lane: Lane::take(reader)?,
            learner: reader.bool("learner")?,
        })
    }
}

/// Accepts a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Welcome {
    /// The protocol version of this connection from here on.
    pub protocol: u16,
    /// The member that answers.
    pub from: NodeId,
    /// The incarnation of its data directory.
    pub incarnation: Incarnation,
    /// The number of the challenge for the proof; 0 if no proof is needed. Sent from protocol 3 on.
    pub proof: u64,
}

impl Welcome {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.protocol);
        out.put_u64(self.from.0);
        out.put_u64(self.incarnation.0);
        if PROTOCOL_PROOFS <= self.protocol {
            out.put_u64(self.proof);
        }
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Welcome, FieldError> {
        let protocol = reader.u16("protocol")?;
        Ok(Welcome {
            protocol,
            from: NodeId(reader.u64("from")?),
            incarnation: Incarnation(reader.u64("incarnation")?),
            proof: if PROTOCOL_PROOFS <= protocol { reader.u64("proof")? } else { 0 },
        })
    }
}

/// Asks a member to return the secret on a connection that was opened in its name, if it opened that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Challenge {
    /// The number in the welcome there.
    pub number: u64,
    /// The secret to return.
    pub secret: u64,
}

impl Challenge {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.number);
        out.put_u64(self.secret);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Challenge, FieldError> {
        Ok(Challenge { number: reader.u64("number")?, secret: reader.u64("secret")? })
    }
}

/// The place of the message that follows among those that a member sends on several streams to one peer.
///
/// It is sent where there are several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// The set of streams, counted by the sender: a new one begins when one of its connections has ended.
    pub set: u64,
    /// The number of the message in this set, from 0 on.
    pub number: u64,
    /// Whether the message is read only behind all with a lower number.
    pub waits: bool,
}

impl Order {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.set);
        out.put_u64(self.number);
        out.put_u8(self.waits.into());
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Order, FieldError> {
        Ok(Order { set: reader.u64("set")?, number: reader.u64("number")?, waits: reader.bool("waits")? })
    }
}

/// Refuses a connection, with the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The reason.
    pub reason: String,
}

/// Closes a connection, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Goodbye {
    /// The reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_with_the_wrong_cluster_or_member_is_refused_with_the_reason() {
        let hello = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            cluster: 0xc1,
            from: NodeId(1),
            incarnation: Incarnation(7),
            to: NodeId(2),
            lane: Lane::Control,
            learner: false,
        };
        assert_eq!(hello.judge(0xc1, NodeId(2)), Ok(PROTOCOL_MAX));
        let refused = |hello: &Hello, cluster, own| hello.judge(cluster, NodeId(own)).expect_err("refused");
        assert!(
            refused(&hello, 0xc2, 2)
                .starts_with("the dialing member belongs to cluster c1, the dialed one to cluster c2")
        );
        assert!(
            refused(&hello, 0xc1, 3)
                .starts_with("the dialing member expects member 2 here, but this is member 3")
        );
        let own = Hello { from: NodeId(2), ..hello.clone() };
        assert!(refused(&own, 0xc1, 2).contains("is not a peer"));
        let nobody = Hello { from: NodeId(0), ..hello.clone() };
        assert!(refused(&nobody, 0xc1, 2).contains("is not a peer"));
        let newer = Hello { protocol_min: PROTOCOL_MAX + 1, protocol_max: PROTOCOL_MAX + 1, ..hello };
        assert!(refused(&newer, 0xc1, 2).contains("upgrade the older one"));
    }
}
