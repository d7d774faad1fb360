//! Level: the features that the log may use, so that members of two versions can run together during an upgrade.
//!
//! ```text
//!   every member, on each link:  "I know up to level 1"
//!   leader: all members know 1, the cluster is at 0 ─▶ entry "level 1" ─▶ applied: from here on, what level 1 allows
//! ```
//!
//! In:    the levels that members announce, the cluster's level as of the applied index.
//! Out:   an entry that raises it by one.
//! Rules: 1. No log, snapshot or answer uses a level before the entry that raises the cluster to it.
//!           [replication-protocols DT4]
//!        2. A leader raises the level only if every other member has announced that it knows it. When the link closes
//!           on which a member announces, its announcement is void: it may come back with an older version. A closed
//!           link to the member changes nothing: it would not announce again.
//!        3. A level never falls. A member whose version does not know it accepts no entries from that one on, and
//!           reports so; if it finds the level in its own log or in a snapshot it stops.
//!
//! | Level | Brings |
//! |---|---|
//! | 1 | commands with the budget of their admission ([`Command::Within`](crate::command::Command::Within)) |
//! | 2 | members prove their identity when they connect: one that cannot, because its version is older, is refused |
//! | 3 | configurations with extensions: the election timeout and the protocol are the cluster's, no member's own |
//! | 4 | sessions of clients, in the log and in the tables ([`crate::session`]) |
//! | 5 | several puts in one entry ([`crate::bundle`]) |
//! | 6 | the protocol nb-raft: followers keep entries after a gap, and name them to their leader ([`kattu_raft::policy`]) |
//!
//! Knows nothing of: handshakes, the features themselves.

use crate::command::{Malformed, take};
use crate::node::Node;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use kattu_raft::{Instant, NodeId};

/// The level that every cluster begins with, and every version knows.
pub const FIRST: u16 = 0;

/// The level that brings budgets of work.
pub const WORK_BUDGETS: u16 = 1;

/// The level from which every member proves its identity when it connects.
pub const PROOFS: u16 = 2;

/// The level that brings configurations with extensions. [`kattu_raft::extensions`]
pub const EXTENSIONS: u16 = 3;

/// The level that brings sessions of clients. [`crate::session`]
pub const SESSIONS: u16 = 4;

/// The level that brings several puts in one entry. [`crate::bundle`]
pub const BUNDLES: u16 = 5;

/// The level that brings windows of followers. [`kattu_raft::policy::Intake`]
pub const NB_RAFT: u16 = 6;

/// The newest level that this version knows.
pub const KNOWN: u16 = NB_RAFT;

/// The leading byte of a raise (docs/formats/command.md).
pub(crate) const BYTE: u8 = 7;

/// The bytes of the command that raises the cluster to a level.
#[must_use]
pub fn encode(level: u16) -> Vec<u8> {
    let mut out = Vec::from([BYTE]);
    out.extend_from_slice(&level.to_le_bytes());
    out
}

/// Reads what follows the leading byte.
pub(crate) fn decode(mut rest: &[u8]) -> Result<u16, Malformed> {
    let bytes = take(&mut rest, 2)?;
    let level = u16::from_le_bytes([bytes[0], bytes[1]]);
    (rest.is_empty() && (1..=KNOWN).contains(&level)).then_some(level).ok_or(Malformed)
}

/// The levels of members, as this replica knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Levels {
    /// The levels announced on links that are open now.
    told: BTreeMap<NodeId, u16>,
    /// The newest level proposed, and the earliest time to propose it again.
    proposed: (u16, Instant),
}

impl Levels {
    /// The first level is the default: it is not stored.
    fn told(&mut self, member: NodeId, level: u16) {
        match level {
            FIRST => self.told.remove(&member),
            above => self.told.insert(member, above),
        };
    }
}

impl Node {
    /// A member announces the level that it knows.
    pub(crate) fn on_level(&mut self, member: NodeId, level: u16) {
        self.levels.told(member, level);
    }

    /// Leader: raises the cluster by one level that all its members know.
    pub(crate) fn raise_level_if_all_know(&mut self, now: Instant) {
        let next = self.compare.level() + 1;
        let (proposed, again_after) = self.levels.proposed;
        let is_under_way = next <= proposed && now < again_after;
        if KNOWN < next || !self.raft.is_leader() || !self.is_confirmed() || is_under_way {
            return;
        }
        let me = self.raft.id();
        let knows = |member: NodeId| match self.levels.told.get(&member) {
            _ if member == me => next <= self.config.level_known,
            told => told.is_some_and(|&told| next <= told),
        };
        if self.raft.membership().members().all(knows) {
            self.levels.proposed = (next, now + self.request_timeout());
            self.write_own(now, encode(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_member_at_the_first_level_nothing_is_kept() {
        let mut levels = Levels::default();
        levels.told(NodeId(2), KNOWN);
        assert_eq!(levels.told, [(NodeId(2), KNOWN)].into());
        levels.told(NodeId(3), FIRST);
        levels.told(NodeId(2), FIRST);
        assert_eq!(levels, Levels::default());
    }
}
