//! Digests: whether all members have the same state at the same index of the log.
//!
//! ```text
//!   log    … │ mark │ … writes … │ report of n1 │ report of n3 │ … │ report of n2 │ …
//!              └─ every member records its digest here               └─ a majority agrees: n2 is divergent
//! ```
//!
//! A mark is at one index of the log, and a member's digest at that index depends on its tables only. The reports go
//! through the log, too. So every member compares the same reports at the same index and comes to the same verdict: a
//! member whose digest differs from that of a majority of the voters is named in an alarm (`alarms.rs`). If all voters
//! have reported and no majority agrees, no member is known to be right, and the alarm names none. [fault-model ST13,
//! P9]
//!
//! The newest marks are kept, so that a member that was away is compared when it is back. The digest is
//! [`Keeper::digest`](crate::Keeper::digest): of keys, members, alarms, and these marks themselves.
//! Knows nothing of: the schedule of marks (`compare.rs`), hashing, the consequences of an alarm.

use crate::command::{Malformed, take, take_u64};
use crate::contract::MemberInfo;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use kattu_raft::{LogIndex, NodeId};

/// The leading byte of a mark in the log (docs/formats/command.md).
pub(crate) const MARK_BYTE: u8 = 3;
/// The leading byte of a report.
pub(crate) const REPORT_BYTE: u8 = 4;

/// Most marks kept. With the default interval, a member that was away for some minutes is compared at each of them; one
/// that was away for longer is compared at the next mark.
const MARKS_MAX: usize = 4;

/// The bytes of a mark.
#[must_use]
pub fn mark() -> Vec<u8> {
    Vec::from([MARK_BYTE])
}

/// The digest of one member at one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The member.
    pub member: NodeId,
    /// The index of the mark.
    pub at: LogIndex,
    /// The digest of all its tables there.
    pub digest: u64,
}

impl Report {
    /// The bytes of this command.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(25);
        out.push(REPORT_BYTE);
        [self.member.0, self.at.0, self.digest].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        out
    }

    /// Reads what follows the leading byte.
    pub(crate) fn decode(mut rest: &[u8]) -> Result<Report, Malformed> {
        let (member, at, digest) =
            (NodeId(take_u64(&mut rest)?), LogIndex(take_u64(&mut rest)?), take_u64(&mut rest)?);
        rest.is_empty().then_some(Report { member, at, digest }).ok_or(Malformed)
    }
}

/// The state of the comparison, for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Compared {
    /// Index of the newest mark; 0 before the first.
    pub marked: LogIndex,
    /// Index of the newest mark at which all voters reported the same digest.
    pub agreed: LogIndex,
    /// Reports compared since the cluster began.
    pub reports: u64,
    /// Reports that showed a divergent member.
    pub divergent: u64,
}

/// The reports at one mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mark {
    at: LogIndex,
    said: BTreeMap<NodeId, u64>,
}

/// The newest marks with their reports, oldest first, and the state of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digests {
    marks: VecDeque<Mark>,
    compared: Compared,
}

impl Digests {
    /// The state of the comparison.
    #[must_use]
    pub fn compared(&self) -> Compared {
        self.compared
    }

    /// A mark was applied at this index.
    pub(crate) fn mark(&mut self, at: LogIndex) {
        self.compared.marked = at;
        self.marks.push_back(Mark { at, said: BTreeMap::new() });
        if MARKS_MAX < self.marks.len() {
            self.marks.pop_front();
        }
    }

    /// Compares one report with the others. Returns the members that are divergent now, ascending; member 0 if it is
    /// unknown which are. A report at a forgotten mark, of a non-member, or made before, has no effect.
    pub(crate) fn report(&mut self, report: Report, members: &BTreeMap<NodeId, MemberInfo>) -> Vec<NodeId> {
        let Some(mark) = self.marks.iter_mut().find(|mark| mark.at == report.at) else { return Vec::new() };
        if !members.contains_key(&report.member) || mark.said.contains_key(&report.member) {
            return Vec::new();
        }
        mark.said.insert(report.member, report.digest);
        self.compared.reports += 1;
        let is_voter = |member: &NodeId| members.get(member).is_some_and(|info| !info.learner);
        let voters = members.keys().filter(|member| is_voter(member)).count();
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, digest) in mark.said.iter().filter(|(member, _)| is_voter(member)) {
            *votes.entry(*digest).or_default() += 1;
        }
        let right = votes.iter().find(|&(_, &count)| voters < 2 * count).map(|(&digest, _)| digest);
        let all_have_spoken = votes.values().sum::<usize>() == voters;
        if all_have_spoken && votes.len() == 1 {
            self.compared.agreed = self.compared.agreed.max(mark.at);
        }
        let divergent: Vec<NodeId> = match right {
            Some(right) => {
                let has_two = mark.said.values().any(|&digest| digest != right);
                mark.said
                    .iter()
                    .filter(|&(_, &digest)| has_two && digest != right)
                    .map(|(&member, _)| member)
                    .collect()
            }
            None if all_have_spoken => Vec::from([NodeId(0)]),
            None => Vec::new(),
        };
        self.compared.divergent += u64::from(!divergent.is_empty());
        divergent
    }

    /// The table's bytes, as a part of all tables (docs/formats/tables.md).
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Compared { marked, agreed, reports, divergent } = self.compared;
        [marked.0, agreed.0, reports, divergent].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        out.push(u8::try_from(self.marks.len()).expect("few marks"));
        for mark in &self.marks {
            out.extend_from_slice(&mark.at.0.to_le_bytes());
            let count = u32::try_from(mark.said.len()).expect("far fewer members than that");
            out.extend_from_slice(&count.to_le_bytes());
            for (member, digest) in &mark.said {
                out.extend_from_slice(&member.0.to_le_bytes());
                out.extend_from_slice(&digest.to_le_bytes());
            }
        }
    }

    /// Decodes what `encode` wrote; refuses any other form of it.
    pub(crate) fn take(rest: &mut &[u8]) -> Result<Digests, Malformed> {
        let (marked, agreed) = (LogIndex(take_u64(rest)?), LogIndex(take_u64(rest)?));
        let compared = Compared { marked, agreed, reports: take_u64(rest)?, divergent: take_u64(rest)? };
        let mut marks = VecDeque::<Mark>::new();
        for _ in 0..take(rest, 1)?[0] {
            let at = LogIndex(take_u64(rest)?);
            let count = take(rest, 4)?.try_into().map_err(|_| Malformed)?;
            let mut said = BTreeMap::new();
            for _ in 0..u32::from_le_bytes(count) {
                let (member, digest) = (NodeId(take_u64(rest)?), take_u64(rest)?);
                if said.last_key_value().is_some_and(|(last, _)| member <= *last) {
                    return Err(Malformed);
                }
                said.insert(member, digest);
            }
            if marks.back().is_some_and(|last| at <= last.at) || marks.len() == MARKS_MAX {
                return Err(Malformed);
            }
            marks.push_back(Mark { at, said });
        }
        Ok(Digests { marks, compared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use alloc::vec;

    /// Voters 1 to `voters`, then learners.
    fn members(voters: u64, learners: u64) -> BTreeMap<NodeId, MemberInfo> {
        let member = |id| MemberInfo { id: NodeId(id), learner: voters < id, ..MemberInfo::default() };
        (1..=voters + learners).map(|id| (NodeId(id), member(id))).collect()
    }

    /// The divergent members after each report; reports are (member, digest), at a mark of their own.
    fn divergent(members: &BTreeMap<NodeId, MemberInfo>, said: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let mut digests = Digests::default();
        digests.mark(LogIndex(9));
        let report = |&(member, digest)| {
            let report = Report { member: NodeId(member), at: LogIndex(9), digest };
            digests.report(report, members).iter().map(|id| id.0).collect()
        };
        said.iter().map(report).collect()
    }

    #[test]
    fn a_report_survives_its_bytes_and_no_truncation_of_them() {
        let report = Report { member: NodeId(7), at: LogIndex(8), digest: 9 };
        let bytes = report.encode();
        assert_eq!(Command::decode(&bytes), Ok(Command::Report(report)));
        for len in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..len]), Err(Malformed), "{len} bytes");
        }
        assert_eq!(Command::decode(&mark()), Ok(Command::Mark));
        assert_eq!(Command::decode(&[MARK_BYTE, 0]), Err(Malformed));
    }

    #[test]
    fn a_member_that_differs_from_a_majority_is_divergent_whenever_it_reports() {
        let three = members(3, 0);
        let nobody: Vec<u64> = vec![];
        assert_eq!(divergent(&three, &[(1, 5), (2, 5), (3, 5)]), [&*nobody, &nobody, &nobody]);
        assert_eq!(divergent(&three, &[(1, 5), (2, 5), (3, 6)]), [&*nobody, &nobody, &[3]]);
        assert_eq!(
            divergent(&three, &[(3, 6), (1, 5), (2, 5)]),
            [&*nobody, &nobody, &[3]],
            "it may be the first"
        );
        assert_eq!(
            divergent(&three, &[(2, 6), (3, 5), (9, 5), (2, 5), (1, 5)]).last(),
            Some(&vec![2]),
            "once each"
        );
    }

    #[test]
    fn without_a_majority_no_member_is_known_to_be_right() {
        let nobody: Vec<u64> = vec![];
        assert_eq!(divergent(&members(2, 0), &[(1, 5), (2, 6)]), [&*nobody, &[0]]);
        assert_eq!(divergent(&members(3, 0), &[(1, 5), (2, 6), (3, 7)]), [&*nobody, &nobody, &[0]]);
        assert_eq!(divergent(&members(4, 0), &[(1, 5), (2, 5), (3, 6), (4, 6)]).last(), Some(&vec![0]));
        assert_eq!(
            divergent(&members(3, 0), &[(1, 5), (2, 6)]).last(),
            Some(&nobody),
            "one has not spoken yet"
        );
    }

    #[test]
    fn learners_are_compared_and_do_not_decide() {
        let members = members(3, 2);
        assert_eq!(divergent(&members, &[(4, 6), (5, 6), (1, 5), (2, 5)]).last(), Some(&vec![4, 5]));
        assert_eq!(
            divergent(&members, &[(4, 6), (5, 6), (1, 5), (2, 6), (3, 5)]).last(),
            Some(&vec![2, 4, 5])
        );
    }

    #[test]
    fn the_newest_marks_are_remembered_and_older_ones_say_nothing() {
        let members = members(2, 0);
        let mut digests = Digests::default();
        (1..=6).for_each(|at| digests.mark(LogIndex(at)));
        let mut say = |member, at, digest| {
            digests.report(Report { member: NodeId(member), at: LogIndex(at), digest }, &members)
        };
        for (at, expected) in [(2, vec![]), (3, vec![NodeId(0)]), (6, vec![NodeId(0)]), (7, vec![])] {
            assert_eq!(say(1, at, 5), []);
            assert_eq!(say(2, at, 6), expected, "at {at}");
        }
        assert_eq!(
            digests.compared(),
            Compared { marked: LogIndex(6), agreed: LogIndex(0), reports: 4, divergent: 2 }
        );
    }

    #[test]
    fn the_table_survives_its_bytes() {
        let members = members(3, 0);
        let mut digests = Digests::default();
        for at in 1..=5 {
            digests.mark(LogIndex(at));
            for member in 1..=at.min(3) {
                let report = Report { member: NodeId(member), at: LogIndex(at), digest: 7 };
                assert_eq!(digests.report(report, &members), []);
            }
        }
        assert_eq!(digests.compared().agreed, LogIndex(5));
        let mut bytes = Vec::new();
        digests.encode(&mut bytes);
        assert_eq!(Digests::take(&mut &bytes[..]), Ok(digests));
        for len in 0..bytes.len() {
            assert_eq!(Digests::take(&mut &bytes[..len]), Err(Malformed), "{len} bytes");
        }
    }
}
