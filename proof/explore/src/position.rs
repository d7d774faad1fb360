//! Positions of a log, and configurations, in a few bytes each.
//!
//! Knows nothing of: members.

use kattu_raft::{Entry, EntryId, EntryKind, Membership, NodeId};
use std::fmt;

/// One position of a log: the entry's id, and the number of the client's command (0: none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Its term and index.
    pub id: EntryId,
    /// The client's command; 0 if it is none.
    pub command: u8,
    /// The configuration that is in force from here on.
    pub configuration: Option<Configuration>,
}

/// A membership of a tiny cluster: a bit for each member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Voters.
    pub voters: u8,
    /// Voters of the former set until the change is over; 0 if none is under way.
    pub outgoing: u8,
    /// Learners.
    pub learners: u8,
}

impl Configuration {
    /// The bits of a membership.
    #[must_use]
    pub fn of(membership: &Membership) -> Configuration {
        let bits = |list: &[NodeId]| list.iter().fold(0, |bits, id| bits | 1 << (id.0 - 1));
        Configuration {
            voters: bits(&membership.voters),
            outgoing: bits(&membership.outgoing),
            learners: bits(&membership.learners),
        }
    }

    /// Whether these members are a quorum of every set that must agree.
    #[must_use]
    pub fn has_quorum(self, members: u8) -> bool {
        let of = |set: u8| set == 0 || set.count_ones() < 2 * (set & members).count_ones();
        of(self.voters) && of(self.outgoing)
    }

    /// Whether `next` may follow in a log: voters change into a joint configuration, and out of it.
    /// [replication-protocols M2]
    #[must_use]
    pub(crate) fn may_become(self, next: Configuration) -> bool {
        match (self.outgoing, next.outgoing) {
            (0, 0) => self.voters == next.voters,
            (0, outgoing) => outgoing == self.voters,
            (_, 0) => self.voters == next.voters,
            (..) => false,
        }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |bits: u8| {
            let members = (0..8).filter(|n| bits >> n & 1 == 1).map(|n| (n + 1).to_string());
            members.collect::<Vec<_>>().join(",")
        };
        write!(f, "{{{}", list(self.voters))?;
        if self.outgoing != 0 {
            write!(f, " from {}", list(self.outgoing))?;
        }
        if self.learners != 0 {
            write!(f, "; {} learn", list(self.learners))?;
        }
        f.write_str("}")
    }
}

impl Position {
    /// The position of an entry.
    #[must_use]
    pub fn of(entry: &Entry) -> Position {
        let (command, configuration) = match entry.head.kind {
            EntryKind::Noop => (0, None),
            EntryKind::Command => (entry.payload().and_then(<[u8]>::first).copied().unwrap_or(0), None),
            EntryKind::Config => {
                let membership = entry.payload().and_then(|payload| Membership::decode(payload).ok());
                (0, membership.map(|(membership, _)| Configuration::of(&membership)))
            }
        };
        Position { id: entry.id(), command, configuration }
    }

    /// Encodes it for a snapshot; [`Position::from_bytes`] decodes it.
    pub(crate) fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let Configuration { voters, outgoing, learners } = self.configuration.unwrap_or_default();
        let EntryId { term, index } = self.id;
        [term.0 as u8, index.0 as u8, self.command, voters, outgoing, learners]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Position {
        let configuration = Configuration { voters: bytes[3], outgoing: bytes[4], learners: bytes[5] };
        Position {
            id: EntryId::new(bytes[0].into(), bytes[1].into()),
            command: bytes[2],
            configuration: (configuration != Configuration::default()).then_some(configuration),
        }
    }
}

/// Bytes of a snapshot for each position: every number of a tiny cluster fits in one.
pub(crate) const PLACE_BYTES: usize = 6;

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.command, self.configuration) {
            (0, None) => write!(f, "{}", self.id),
            (_, Some(configuration)) => write!(f, "{} {configuration}", self.id),
            (command, None) => write!(f, "{} \"{}\"", self.id, command_name(command)),
        }
    }
}

/// `a`, `b`, … for the first, second, … command.
#[must_use]
pub(crate) fn command_name(command: u8) -> char {
    char::from(b'a' + (command - 1) % 26)
}
