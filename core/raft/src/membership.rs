//! Membership: the voters and learners of a group, the quorums among them during a change, and the settings that they
//! share.
//!
//! ```text
//!   C_old ───────▶ C_old,new ───────▶ C_new
//!          joint: both sets decide        the new set alone
//! ```
//!
//! In:    a configuration, and the value that each member has reached.
//! Out:   the value that a quorum has reached; the configurations that enter and leave a change.
//! Rules: [replication-protocols M1–M3; Ongaro14 §4.3]
//!   1. While a change is under way, every decision (commit, election, read round, check of the quorum) needs a
//!      quorum of the new voters *and* one of the outgoing ones.
//!   2. Only the newest configuration of a log counts, committed or not; truncating it restores the one before.
//!   3. A change that leaves the voters alone (a learner comes or goes) changes no quorum and takes one step.
//!
//! Knows nothing of: logs, roles, names and addresses of members, what extensions mean.

use crate::extensions::Extensions;
use crate::quorum::{quorum, quorum_value};
use crate::types::NodeId;
use alloc::vec::Vec;
use core::fmt;

/// The layout of a configuration without extensions.
const MEMBERS_ONLY: u8 = 1;

/// The layout of a configuration with extensions behind the lists of members.
const EXTENDED: u8 = 2;

/// The members of one group. Every list is ascending and without repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The voters. Empty only for a member that joins an existing group and knows no member yet.
    pub voters: Vec<NodeId>,
    /// The voters before the change under way; empty when none is.
    pub outgoing: Vec<NodeId>,
    /// Members that receive entries and neither vote nor count.
    pub learners: Vec<NodeId>,
    /// Outgoing voters that become learners when the change is over.
    pub learners_next: Vec<NodeId>,
    /// What the configuration says besides its members: settings that all of them share.
    pub extensions: Extensions,
}

/// Why bytes, or lists of members, are not a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MembershipError {
    /// A layout that this program does not read.
    Version(u8),
    /// A critical extension that this program does not know.
    Extension(u16),
    /// A protocol that this program does not know.
    Protocol(u16),
    /// The bytes end too early.
    Cut,
    /// A rule of [`Membership::check`] is broken.
    Broken(&'static str),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipError::Version(found) => {
                write!(
                    f,
                    "configuration of layout {found}, this version reads layouts {MEMBERS_ONLY} and {EXTENDED}: run the \
                     version of the other members"
                )
            }
            MembershipError::Extension(number) => write!(
                f,
                "the configuration has extension {number}, which every member must know, and this version does not: run \
                 the version of the other members"
            ),
            MembershipError::Protocol(number) => write!(
                f,
                "the cluster runs protocol {number}, which this version does not know: run the version of the other \
                 members"
            ),
            MembershipError::Cut => f.write_str("the membership is cut off"),
            MembershipError::Broken(rule) => f.write_str(rule),
        }
    }
}

impl core::error::Error for MembershipError {}

impl MembershipError {
    /// Whether a newer version may have written these bytes correctly, so that they are no damage and no lie.
    #[must_use]
    pub fn is_of_newer_version(&self) -> bool {
        match self {
            MembershipError::Version(found) => EXTENDED < *found,
            MembershipError::Extension(_) | MembershipError::Protocol(_) => true,
            MembershipError::Cut | MembershipError::Broken(_) => false,
        }
    }
}

impl Membership {
    /// A configuration without a change under way, and without extensions.
    #[must_use]
    pub fn new(voters: Vec<NodeId>, learners: Vec<NodeId>) -> Membership {
        Membership { voters, learners, ..Membership::default() }
    }

    /// Whether a change is under way: two sets decide together. [Ongaro14 §4.3]
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether no member is known, as in a member that joins and has not heard of its group yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.voters.is_empty()
    }

    /// Whether `member` has a vote, in either set.
    #[must_use]
    pub fn is_voter(&self, member: NodeId) -> bool {
        self.voters.contains(&member) || self.outgoing.contains(&member)
    }

    /// Whether `member` belongs to the group in any way.
    #[must_use]
    pub fn contains(&self, member: NodeId) -> bool {
        self.is_voter(member) || self.learners.contains(&member)
    }

    /// Whether `member` is the only voter, so that it decides alone.
    #[must_use]
    pub fn is_alone(&self, member: NodeId) -> bool {
        self.voters == [member] && !self.is_joint()
    }

    /// All members with a vote, each once, the new voters first.
    pub fn all_voters(&self) -> impl Iterator<Item = NodeId> + Clone {
        let outgoing = self.outgoing.iter().filter(|&voter| !self.voters.contains(voter));
        self.voters.iter().chain(outgoing).copied()
    }

    /// All members, each once, voters first.
    pub fn members(&self) -> impl Iterator<Item = NodeId> + Clone {
        self.all_voters().chain(self.learners.iter().copied())
    }

    /// All members but `me`.
    pub fn peers(&self, me: NodeId) -> impl Iterator<Item = NodeId> + Clone {
        self.members().filter(move |&member| member != me)
    }

    /// The largest value that a quorum has reached, given what each voter has; of two sets, that of the slower one.
    /// `None` without voters.
    #[must_use]
    pub fn reached<T: Ord + Copy>(&self, by: impl Fn(NodeId) -> T) -> Option<T> {
        let incoming = quorum_value(self.voters.iter().map(|&voter| by(voter)))?;
        if !self.is_joint() {
            return Some(incoming);
        }
        let outgoing = quorum_value(self.outgoing.iter().map(|&voter| by(voter)))?;
        Some(incoming.min(outgoing))
    }

    /// Whether the members for which `is_one` holds are a quorum of every set that decides. An empty set has no quorum.
    #[must_use]
    pub fn has_quorum(&self, is_one: impl Fn(NodeId) -> bool) -> bool {
        let of = |set: &[NodeId]| set.iter().filter(|&&voter| is_one(voter)).count() >= quorum(set.len());
        of(&self.voters) && (!self.is_joint() || of(&self.outgoing))
    }

    /// The configuration that enters the change from this one to `target`: both sets of voters decide. An outgoing
    /// voter that will be a learner becomes one at the end of the change; any other future learner is one now.
    #[must_use]
    pub fn enter(&self, target: &Membership) -> Membership {
        let (learners_next, learners) =
            target.learners.iter().partition::<Vec<NodeId>, _>(|&learner| self.voters.contains(learner));
        let (voters, extensions) = (target.voters.clone(), target.extensions.clone());
        Membership { voters, outgoing: self.voters.clone(), learners, learners_next, extensions }
    }

    /// The configuration that ends the change under way.
    #[must_use]
    pub fn leave(&self) -> Membership {
        let mut learners: Vec<NodeId> = self.learners.iter().chain(&self.learners_next).copied().collect();
        learners.sort_unstable();
        Membership { extensions: self.extensions.clone(), ..Membership::new(self.voters.clone(), learners) }
    }

    /// Checks this membership; errors are written for operators.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        let Membership { voters, outgoing, learners, learners_next, extensions } = self;
        let ascends = |list: &[NodeId]| list.is_sorted_by(|a, b| a < b);
        if ![voters, outgoing, learners, learners_next].into_iter().all(|list| ascends(list)) {
            return Err("voters and learners must be ascending, without repeats");
        }
        if self.members().any(|member| member == NodeId(0)) {
            return Err("member id 0 is reserved");
        }
        if voters.is_empty() && !(outgoing.is_empty() && learners.is_empty()) {
            return Err("a group needs at least one voter");
        }
        if learners.iter().any(|&learner| self.is_voter(learner)) {
            return Err("a member cannot be voter and learner at once");
        }
        if learners_next.iter().any(|next| !outgoing.contains(next) || voters.contains(next)) {
            return Err("only an outgoing voter can become a learner at the end of a change");
        }
        extensions.check()
    }

    /// Appends the bytes of this membership: the beginning of a configuration entry's payload.
    /// [docs/formats/membership.md]
    ///
    /// # Panics
    /// If a list is longer than 65,535.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let lists = [&self.voters, &self.outgoing, &self.learners, &self.learners_next];
        let is_extended = !self.extensions.is_empty();
        out.push(if is_extended { EXTENDED } else { MEMBERS_ONLY });
        for list in lists {
            let count = u16::try_from(list.len()).expect("groups are small");
            out.extend_from_slice(&count.to_le_bytes());
        }
        for member in lists.into_iter().flatten() {
            out.extend_from_slice(&member.0.to_le_bytes());
        }
        if is_extended {
            self.extensions.encode(out);
        }
    }

    /// Reads a membership, and returns the bytes after it: in a configuration entry, the node's own.
    ///
    /// # Errors
    /// Why these bytes do not begin with a membership.
    pub fn decode(bytes: &[u8]) -> Result<(Membership, &[u8]), MembershipError> {
        let (&version, bytes) = bytes.split_first().ok_or(MembershipError::Cut)?;
        if ![MEMBERS_ONLY, EXTENDED].contains(&version) {
            return Err(MembershipError::Version(version));
        }
        let (counts, mut rest) = bytes.split_at_checked(8).ok_or(MembershipError::Cut)?;
        let mut counts =
            counts.chunks_exact(2).map(|count| usize::from(u16::from_le_bytes([count[0], count[1]])));
        let mut list = || -> Result<Vec<NodeId>, MembershipError> {
            let count = counts.next().unwrap_or_default();
            let (ids, behind) = rest.split_at_checked(count * 8).ok_or(MembershipError::Cut)?;
            rest = behind;
            let (ids, _) = ids.as_chunks::<8>();
            Ok(ids.iter().map(|id| NodeId(u64::from_le_bytes(*id))).collect())
        };
        let (voters, outgoing, learners, learners_next) = (list()?, list()?, list()?, list()?);
        let (extensions, rest) = match version {
            EXTENDED => Extensions::decode(rest)?,
            _ => (Extensions::default(), rest),
        };
        let membership = Membership { voters, outgoing, learners, learners_next, extensions };
        membership.check().map_err(MembershipError::Broken)?;
        Ok((membership, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::{Protocol, Timing};
    use crate::types::Duration;
    use alloc::vec;
    use proptest::prelude::*;
    use std::string::ToString;

    fn ids(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn extended() -> Membership {
        let timing = Timing {
            election_timeout: Duration::from_millis(1000),
            heartbeat_interval: Duration::from_millis(100),
        };
        let unknown = vec![(0x8001, b"key".to_vec())];
        let extensions = Extensions { timing: Some(timing), protocol: Some(Protocol::Raft), unknown };
        Membership { extensions, ..Membership::new(ids(&[1, 2]), ids(&[9])) }
    }

    fn joint() -> Membership {
        let old = Membership::new(ids(&[1, 2, 3]), ids(&[4]));
        old.enter(&Membership::new(ids(&[3, 4, 5]), ids(&[1, 6])))
    }

    #[test]
    fn a_change_goes_through_both_sets_and_ends_in_the_new_one() {
        let joint = joint();
        assert_eq!(joint.outgoing, ids(&[1, 2, 3]));
        assert_eq!((joint.learners.clone(), joint.learners_next.clone()), (ids(&[6]), ids(&[1])));
        assert!(joint.is_joint() && joint.check().is_ok());
        assert_eq!(joint.members().collect::<Vec<_>>(), ids(&[3, 4, 5, 1, 2, 6]));
        let after = joint.leave();
        assert_eq!(after, Membership::new(ids(&[3, 4, 5]), ids(&[1, 6])));
    }

    #[test]
    fn a_joint_quorum_is_a_quorum_of_both_sets() {
        let joint = joint();
        let quorum = |of: &[u64]| joint.has_quorum(|member| of.contains(&member.0));
        assert!(quorum(&[3, 4, 1]) && quorum(&[4, 5, 1, 2]));
        assert!(!quorum(&[3, 4, 5]), "one of three outgoing voters");
        assert!(!quorum(&[1, 2, 3]), "one of three new voters");
        assert!(!quorum(&[3, 6]), "a learner does not count");
        assert!(!Membership::default().has_quorum(|_| true), "nobody decides nothing");
    }

    proptest! {
        #[test]
        fn what_both_sets_reached_agrees_with_counting(
            values in proptest::collection::vec(0u64..20, 7),
            voters in proptest::sample::subsequence(vec![1u64, 2, 3, 4, 5, 6], 1..6),
            outgoing in proptest::sample::subsequence(vec![1u64, 2, 3, 4, 5, 6], 0..6),
        ) {
            let outgoing = ids(&outgoing);
            let membership = Membership { voters: ids(&voters), outgoing, ..Membership::default() };
            let by = |member: NodeId| values[member.0 as usize];
            let naive = (0..20).rev().find(|&value| membership.has_quorum(|member| value <= by(member)));
            prop_assert_eq!(membership.reached(by), naive);
        }

        #[test]
        fn a_membership_survives_its_bytes_and_no_truncation_of_them(context in proptest::collection::vec(any::<u8>(), 0..20)) {
            for membership in [joint(), joint().leave(), Membership::default(), extended(), joint().enter(&extended())] {
                let mut bytes = Vec::new();
                membership.encode(&mut bytes);
                let len = bytes.len();
                bytes.extend_from_slice(&context);
                prop_assert_eq!(Membership::decode(&bytes), Ok((membership, &context[..])));
                for cut in 0..len {
                    prop_assert_eq!(Membership::decode(&bytes[..cut]), Err(MembershipError::Cut));
                }
            }
        }
    }

    #[test]
    fn bytes_of_tomorrow_and_broken_rules_are_named() {
        let read = |membership: &Membership| {
            let mut bytes = Vec::new();
            membership.encode(&mut bytes);
            Membership::decode(&bytes).map(|_| ()).map_err(|error| error.to_string())
        };
        let broken = |voters: &[u64], outgoing: &[u64], learners: &[u64], next: &[u64]| {
            let [voters, outgoing, learners, learners_next] = [voters, outgoing, learners, next].map(ids);
            let extensions = Extensions::default();
            read(&Membership { voters, outgoing, learners, learners_next, extensions }).unwrap_err()
        };
        assert_eq!(broken(&[2, 1], &[], &[], &[]), "voters and learners must be ascending, without repeats");
        assert_eq!(broken(&[0, 1], &[], &[], &[]), "member id 0 is reserved");
        assert_eq!(broken(&[], &[], &[4], &[]), "a group needs at least one voter");
        assert_eq!(broken(&[1, 2], &[], &[2], &[]), "a member cannot be voter and learner at once");
        let next = "only an outgoing voter can become a learner at the end of a change";
        assert_eq!(broken(&[1, 2], &[1], &[], &[1]), next);
        let tomorrow = Membership::decode(&[3, 0, 0]).unwrap_err();
        let told = "configuration of layout 3, this version reads layouts 1 and 2: run the version of the other members";
        assert!(tomorrow.is_of_newer_version());
        assert_eq!(tomorrow.to_string(), told);
        assert!(!Membership::decode(&[0, 0, 0]).unwrap_err().is_of_newer_version());
    }

    /// Samples of both layouts: a change of these bytes is a new layout. [docs/formats/membership.md]
    #[test]
    fn both_layouts_have_the_bytes_that_they_always_had() {
        let bytes_of = |membership: &Membership| {
            let mut bytes = Vec::new();
            membership.encode(&mut bytes);
            bytes.iter().map(|byte| std::format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        let listed = "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 09 00 00 00 00 00 00 00";
        let members = Membership::new(ids(&[1, 2]), ids(&[9]));
        assert_eq!(bytes_of(&members), std::format!("01 02 00 00 00 01 00 00 00 {listed}"));
        let timing = "01 00 10 00 00 ca 9a 3b 00 00 00 00 00 e1 f5 05 00 00 00 00";
        let (protocol, unknown) = ("02 00 02 00 01 00", "01 80 03 00 6b 65 79");
        let expected =
            std::format!("02 02 00 00 00 01 00 00 00 {listed} 03 00 {timing} {protocol} {unknown}");
        assert_eq!(bytes_of(&extended()), expected);
    }

    #[test]
    fn every_step_of_a_change_keeps_the_extensions_of_its_target() {
        let target = Membership { voters: ids(&[1, 3]), ..extended() };
        let joint = Membership::new(ids(&[1, 2]), ids(&[9])).enter(&target);
        assert_eq!(joint.extensions, target.extensions);
        assert_eq!(joint.leave(), target);
    }
}
