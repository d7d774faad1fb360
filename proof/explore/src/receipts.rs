//! Receipts: which entries leaders report as received, and which member held them.
//!
//! In:    a member's step; the facts of all members.
//! Out:   the rule of weak answers that is violated.
//! Rules: [fault-model WK2, WK3, WK5, WK6; replication-protocols W5, H7]
//!   1. A leader reports entries of its own term, each once, that a quorum holds or has held in memory: of the
//!      configuration in force before or after the step. What a member has named and then lost counts, because the
//!      leader cannot know of the loss.
//!   2. While it leads, what it has reported stays in its log.
//!   3. Of what the leader of one term has reported, the entries that are committed are the first ones.
//!   4. A reported entry is neither applied nor seen by a read before it is committed.
//!
//! Reports are remembered while their leader leads, and losses while they could count: so worlds that differ in nothing
//! that can still be judged are one.
//! Knows nothing of: messages, windows, sessions; what clients are told of it.

use crate::position::Position;
use crate::tables::{Facts, Step};
use kattu_raft::{EntryId, LogIndex, Term};

/// What leaders have reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipts {
    /// What the members that lead have reported in their terms, ascending.
    reported: Vec<EntryId>,
    /// Entries of these terms, not reported, with the index of a member that held each and does not any more; ascending.
    had: Vec<(EntryId, u8)>,
}

impl Receipts {
    /// Whether a step from `before` to `after` can change what is remembered, reports apart.
    pub(crate) fn are_touched(before: &Facts, after: &Facts) -> bool {
        before.leads != after.leads || lost(before, after).next().is_some()
    }

    /// Takes a member's step: `before` are its facts before it, `all` those of all members after it, `committed` what is
    /// committed by then.
    ///
    /// # Errors
    /// The rule that it violated.
    pub(crate) fn take(
        &mut self,
        member: usize,
        step: &Step,
        before: &Facts,
        all: &[&Facts],
        committed: &[(Position, Term)],
    ) -> Result<(), String> {
        let after = all[member];
        for id in lost(before, after) {
            put(&mut self.had, (id, member as u8));
        }
        for &id in &step.received {
            let told = format!("WK2: member {} reports {id} as received", member + 1);
            let term = after.leads.or(before.leads);
            if Some(id.term) != term {
                let own = term.map_or("no term".into(), |term| format!("term {}", term.0));
                return Err(format!("{told}, and leads {own} [H7]"));
            }
            if !put(&mut self.reported, id) {
                return Err(format!("{told} for the second time"));
            }
            let has = |n: usize| holds(all[n], id) || self.had.contains(&(id, n as u8));
            let holders = (0..all.len()).filter(|n| has(*n)).fold(0, |bits, n| bits | 1 << n);
            let is_held = [before.in_force, after.in_force].iter().any(|set| set.has_quorum(holders));
            if !is_held && !is_committed(committed, id) {
                let named = crate::position::Configuration { voters: holders, ..Default::default() };
                return Err(format!("{told}, which only {named} of {} have held", after.in_force));
            }
        }
        for verdict in &step.verdicts {
            if let Some(index) = verdict.index.filter(|index| committed.len() < index.0 as usize) {
                let name = member + 1;
                return Err(format!("WK3: member {name} serves a read from {}, not committed", index.0));
            }
        }
        let leads = |term: Term| all.iter().any(|facts| facts.leads == Some(term));
        self.reported.retain(|id| leads(id.term));
        let Receipts { reported, had } = self;
        had.retain(|(id, n)| {
            leads(id.term) && !holds(all[usize::from(*n)], *id) && reported.binary_search(id).is_err()
        });
        Ok(())
    }

    /// Judges all members at once.
    ///
    /// # Errors
    /// The rule that is violated.
    pub(crate) fn hold(&self, members: &[&Facts], committed: &[(Position, Term)]) -> Result<(), String> {
        for (n, facts) in members.iter().enumerate() {
            let own = |id: &&EntryId| facts.leads == Some(id.term);
            if let Some(id) = self.reported.iter().filter(own).find(|id| !is_in_log(facts, **id)) {
                return Err(format!("WK5: leader {} has reported {id} as received and lost it", n + 1));
            }
            let is_early = |id: &&EntryId| id.index <= facts.delivered && !is_committed(committed, **id);
            if let Some(id) = self.reported.iter().filter(|id| is_in_log(facts, **id)).find(is_early) {
                return Err(format!("WK3: member {} applies {id}, received and not committed", n + 1));
            }
        }
        for pair in self.reported.windows(2) {
            let survives = |id: EntryId| is_committed(committed, id);
            if pair[0].term == pair[1].term && !survives(pair[0]) && survives(pair[1]) {
                return Err(format!("WK6: {} was received and is lost, and {} is not", pair[0], pair[1]));
            }
        }
        Ok(())
    }

    /// Whether one of these reports is of an entry whose predecessor is not reported, though it is of the same term and
    /// not the leader's first.
    pub(crate) fn reports_beyond_gap(&self, reports: &[EntryId], committed: &[(Position, Term)]) -> bool {
        reports.iter().any(|id| {
            let before = EntryId { index: id.index.previous(), ..*id };
            committed.len() < before.index.0 as usize && self.reported.binary_search(&before).is_err()
        })
    }

    /// Whether one of these commits takes the place of an entry that was reported, or of one before it: no later log can
    /// hold it.
    pub(crate) fn loses(&self, commits: &[Position]) -> bool {
        let loses = |place: &Position| {
            self.reported.iter().any(|id| place.id.index <= id.index && id.term < place.id.term)
        };
        commits.iter().any(loses)
    }
}

/// Adds a value to an ascending list; false if it was there.
fn put<T: Ord>(list: &mut Vec<T>, value: T) -> bool {
    match list.binary_search(&value) {
        Ok(_) => false,
        Err(place) => {
            list.insert(place, value);
            true
        }
    }
}

/// What a member held before and does not any more.
fn lost<'a>(before: &'a Facts, after: &'a Facts) -> impl Iterator<Item = EntryId> + 'a {
    let held = before.log.iter().map(|place| place.id).chain(before.early.iter().copied());
    held.filter(|id| !holds(after, *id))
}

/// Whether a member holds this entry, in its log or after a gap.
fn holds(facts: &Facts, id: EntryId) -> bool {
    is_in_log(facts, id) || facts.early.contains(&id)
}

fn is_in_log(facts: &Facts, id: EntryId) -> bool {
    at(&facts.log, id.index).is_some_and(|place| place.id == id)
}

fn is_committed(committed: &[(Position, Term)], id: EntryId) -> bool {
    at(committed, id.index).is_some_and(|(place, _)| place.id == id)
}

fn at<T>(list: &[T], index: LogIndex) -> Option<&T> {
    list.get((index.0 as usize).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Configuration;
    use kattu_raft::{ReadBatch, ReadVerdict};

    const THREE: Configuration = Configuration { voters: 0b111, outgoing: 0, learners: 0 };

    fn place(term: u64, index: u64) -> Position {
        Position { id: EntryId::new(term, index), command: 1, configuration: None }
    }

    /// A member with these entries in its log, after the first one, which all have committed, and these after a gap.
    fn facts(leads: Option<u64>, log: &[(u64, u64)], early: &[(u64, u64)]) -> Facts {
        let log = [(1, 1)].iter().chain(log).map(|&(term, index)| place(term, index)).collect();
        let early = early.iter().map(|&(term, index)| EntryId::new(term, index)).collect();
        let leads = leads.map(Term);
        Facts { runs: true, leads, log, early, in_force: THREE, first: THREE, ..Facts::default() }
    }

    fn reports(ids: &[(u64, u64)]) -> Step {
        let received = ids.iter().map(|&(term, index)| EntryId::new(term, index)).collect();
        Step { received, ..Step::default() }
    }

    fn committed(ids: &[(u64, u64)]) -> Vec<(Position, Term)> {
        ids.iter().map(|&(term, index)| (place(term, index), Term(term))).collect()
    }

    /// Member 1 leads term 1 with entries 2 and 3 and takes this step; the others hold what is given.
    fn taken(receipts: &mut Receipts, step: &Step, others: [&Facts; 2]) -> Result<(), String> {
        let leader = facts(Some(1), &[(1, 2), (1, 3)], &[]);
        receipts.take(0, step, &leader, &[&leader, others[0], others[1]], &committed(&[(1, 1)]))
    }

    #[test]
    fn a_quorum_holds_what_is_reported_in_its_logs_or_after_a_gap() {
        let (empty, has_two, keeps_three) =
            (facts(None, &[], &[]), facts(None, &[(1, 2)], &[]), facts(None, &[], &[(1, 3)]));
        let mut receipts = Receipts::default();
        assert_eq!(taken(&mut receipts, &reports(&[(1, 3)]), [&has_two, &keeps_three]), Ok(()));
        assert_eq!(taken(&mut receipts, &reports(&[(1, 2)]), [&has_two, &keeps_three]), Ok(()));
        assert_eq!(receipts.reported, [EntryId::new(1, 2), EntryId::new(1, 3)]);
        for others in [[&empty, &empty], [&has_two, &has_two]] {
            let story = taken(&mut Receipts::default(), &reports(&[(1, 3)]), others).unwrap_err();
            assert_eq!(story, "WK2: member 1 reports 1.3 as received, which only {1} of {1,2,3} have held");
        }
    }

    #[test]
    fn a_report_is_of_the_leaders_own_term_and_comes_once() {
        let other = facts(None, &[(1, 2)], &[]);
        let mut receipts = Receipts::default();
        assert_eq!(taken(&mut receipts, &reports(&[(1, 2)]), [&other; 2]), Ok(()));
        let again = taken(&mut receipts, &reports(&[(1, 2)]), [&other; 2]).unwrap_err();
        assert_eq!(again, "WK2: member 1 reports 1.2 as received for the second time");
        let leader = facts(Some(2), &[(1, 2), (2, 3)], &[]);
        let older = Receipts::default()
            .take(0, &reports(&[(1, 2)]), &leader, &[&leader, &other, &other], &[])
            .unwrap_err();
        assert_eq!(older, "WK2: member 1 reports 1.2 as received, and leads term 2 [H7]");
    }

    #[test]
    fn what_a_member_held_counts_after_a_loss_while_the_leader_of_its_term_leads() {
        let leader = facts(Some(1), &[(1, 2), (1, 3)], &[]);
        let (kept, lost) = (facts(None, &[], &[(1, 3)]), facts(None, &[], &[]));
        let mut receipts = Receipts::default();
        assert!(Receipts::are_touched(&kept, &lost) && !Receipts::are_touched(&lost, &kept));
        receipts.take(1, &reports(&[]), &kept, &[&leader, &lost, &lost], &[]).unwrap();
        assert_eq!(receipts.had, [(EntryId::new(1, 3), 1)]);
        assert_eq!(taken(&mut receipts.clone(), &reports(&[(1, 3)]), [&lost; 2]), Ok(()));
        let mut again = receipts.clone();
        again.take(1, &reports(&[]), &lost, &[&leader, &kept, &lost], &[]).unwrap();
        assert!(again.had.is_empty(), "it holds the entry again");
        receipts.take(0, &reports(&[]), &leader, &[&lost, &lost, &lost], &[]).unwrap();
        assert!(receipts.had.is_empty(), "the leader is gone");
    }

    #[test]
    fn nothing_is_applied_or_read_on_the_ground_of_a_report() {
        let other = facts(None, &[(1, 2)], &[]);
        let mut receipts = Receipts::default();
        taken(&mut receipts, &reports(&[(1, 2)]), [&other; 2]).unwrap();
        let leader = facts(Some(1), &[(1, 2)], &[]);
        let applied = Facts { delivered: LogIndex(2), ..facts(None, &[(1, 2)], &[]) };
        let (first, both) = (committed(&[(1, 1)]), committed(&[(1, 1), (1, 2)]));
        let story = receipts.hold(&[&leader, &applied], &first).unwrap_err();
        assert_eq!(story, "WK3: member 2 applies 1.2, received and not committed");
        assert_eq!(receipts.hold(&[&leader, &applied], &both), Ok(()));
        let verdict = ReadVerdict { upto: ReadBatch(1), index: Some(LogIndex(2)) };
        let read = Step { verdicts: [verdict].into(), ..Step::default() };
        let story = taken(&mut receipts, &read, [&other; 2]).unwrap_err();
        assert_eq!(story, "WK3: member 1 serves a read from 2, not committed");
        assert_eq!(receipts.take(0, &read, &leader, &[&leader, &other, &other], &both), Ok(()));
    }

    #[test]
    fn a_leader_keeps_what_it_has_reported_and_what_is_lost_of_it_is_its_end() {
        let other = facts(None, &[(1, 2), (1, 3)], &[]);
        let mut receipts = Receipts::default();
        taken(&mut receipts, &reports(&[(1, 2), (1, 3)]), [&other; 2]).unwrap();
        let (whole, short) = (facts(Some(1), &[(1, 2), (1, 3)], &[]), facts(Some(1), &[(1, 2)], &[]));
        assert_eq!(receipts.hold(&[&whole], &[]), Ok(()));
        let story = receipts.hold(&[&short], &[]).unwrap_err();
        assert_eq!(story, "WK5: leader 1 has reported 1.3 as received and lost it");
        let of_two = committed(&[(1, 1), (1, 2), (2, 3)]);
        assert!(receipts.loses(&[of_two[2].0]) && !receipts.loses(&[of_two[1].0]));
        assert!(receipts.loses(&[place(2, 2)]), "3 is lost with 2");
        assert!(!receipts.loses(&[place(2, 4)]), "both are before it");
        assert_eq!(receipts.hold(&[&whole], &of_two), Ok(()));
        let story = receipts.hold(&[&whole], &committed(&[(1, 1), (2, 2), (1, 3)])).unwrap_err();
        assert_eq!(story, "WK6: 1.2 was received and is lost, and 1.3 is not");
    }

    #[test]
    fn a_report_beyond_a_gap_lacks_the_one_before_it() {
        let first = committed(&[(1, 1)]);
        let of = |ids: &[(u64, u64)]| Receipts {
            reported: ids.iter().map(|&(term, index)| EntryId::new(term, index)).collect(),
            had: Vec::new(),
        };
        let three = [EntryId::new(1, 3)];
        assert!(of(&[(1, 3)]).reports_beyond_gap(&three, &first));
        assert!(!of(&[(1, 2), (1, 3)]).reports_beyond_gap(&three, &first));
        assert!(!of(&[(1, 2)]).reports_beyond_gap(&[EntryId::new(1, 2)], &first), "the first is committed");
    }
}
