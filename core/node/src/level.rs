//! Level: which features the log may use, so that members of two versions can run together while one follows the other.
//!
//! ```text
//!   every member, on each link:  "I know up to level 1"
//!   leader: all members know 1, the cluster is at 0 ─▶ entry "level 1" ─▶ applied: from here on, what level 1 allows
//! ```
//!
//! In:    what members say of themselves, the cluster's level as of the applied index.
//! Out:   an entry that raises it by one.
//! Rules: 1. What a level brings is in no log, snapshot or answer before the entry that raises the cluster to it.
//!           [replication-protocols DT4]
//!        2. Only a leader whose every fellow member has said that it knows the level raises it. Who has said nothing since
//!           the link broke on which it speaks may be an older version by now. A link towards it that breaks means nothing: it
//!           would not say again what it has said.
//!        3. A level never falls. A member of a version that does not know it takes nothing from the entry on, and says so;
//!           if it finds it in its own log or in a snapshot it stops.
//!
//! | Level | Brings |
//! |---|---|
//! | 1 | commands with the budget that they were let in by ([`Command::Within`](crate::command::Command::Within)) |
//! | 2 | members prove to each other who they are when they connect: whoever cannot, because its version is older, is refused |
//!
//! Knows nothing of: how members say so, what features do.

use crate::command::{Malformed, take};
use crate::node::Node;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use kattu_raft::{Instant, NodeId};

/// The level that every cluster begins with, and every version knows.
pub const FIRST: u16 = 0;

/// The level that brings budgets of work.
pub const WORK_BUDGETS: u16 = 1;

/// The level from which on every member proves who it is when it connects.
pub const PROOFS: u16 = 2;

/// The newest level that this version knows.
pub const KNOWN: u16 = PROOFS;

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

/// What a replica knows of its members' levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Levels {
    /// What others have said on the links on which they speak now.
    told: BTreeMap<NodeId, u16>,
    /// The newest level that was proposed, and not to be proposed again before this.
    proposed: (u16, Instant),
}

impl Levels {
    /// To know the first level is to have said nothing: of that nothing is kept.
    fn told(&mut self, member: NodeId, level: u16) {
        match level {
            FIRST => self.told.remove(&member),
            above => self.told.insert(member, above),
        };
    }
}

impl Node {
    /// A member says which level it knows.
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
            self.levels.proposed = (next, now + self.config.request_timeout);
            self.write_own(now, encode(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_who_knows_the_first_level_only_nothing_is_kept() {
        let mut levels = Levels::default();
        levels.told(NodeId(2), KNOWN);
        assert_eq!(levels.told, [(NodeId(2), KNOWN)].into());
        levels.told(NodeId(3), FIRST);
        levels.told(NodeId(2), FIRST);
        assert_eq!(levels, Levels::default());
    }
}
