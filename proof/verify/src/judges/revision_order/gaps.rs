//! Gaps: revisions that no answered write made, and the open writes that may have made each.
//!
//! An open write may fill a gap if
//! 1. it had been invoked when the gap's revision, or a higher one, was first shown;
//! 2. it puts everything that reads show as written at this revision, and
//! 3. it does not write a single key that a later read shows as last written before.
//!
//! An open write that alone fits a gap which some read shows fills no other gap. The replay finds out whether it then
//! has an effect.
//! Knows nothing of: states of the store.

use super::outlook::Outlook;
use super::{Order, Violation, told};
use crate::history::{Answer, Operation as Asked, Pair};
use crate::operations::{End, NEVER, Operation, Position};
use crate::spec::covers;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A range of keys: the start, and the end in etcd's encoding.
pub(super) type Keys<'a> = (&'a str, &'a str);

/// The gaps of a history.
pub(super) struct Gaps<'a> {
    /// Revision → operations that may have made it, in the order in which they are tried.
    pub(super) fillers: BTreeMap<i64, Vec<usize>>,
    /// The later reads of each key.
    pub(super) outlook: Outlook<'a>,
    /// The keys that each filler may write.
    pub(super) writes: HashMap<usize, Vec<Keys<'a>>>,
}

/// Whether an operation, were it carried out, could make a revision.
pub(super) fn may_make_a_revision(asked: &Asked) -> bool {
    let mut writes = Vec::new();
    add_writes(asked, &mut writes);
    !writes.is_empty()
}

/// Keys that an operation may write, whatever branches it takes.
pub(super) fn add_writes<'a>(asked: &'a Asked, writes: &mut Vec<Keys<'a>>) {
    match asked {
        Asked::Put { key, .. } => writes.push((key, "")),
        Asked::Delete { key, end } => writes.push((key, end)),
        Asked::Txn { then, otherwise, .. } => {
            then.iter().chain(otherwise).for_each(|asked| add_writes(asked, writes));
        }
        Asked::Range { .. } | Asked::Compact { .. } => {}
    }
}

/// Keys on whose state an operation's effect and answer depend.
pub(super) fn add_footprint<'a>(asked: &'a Asked, footprint: &mut BTreeSet<Keys<'a>>) {
    match asked {
        Asked::Put { key, .. } => {
            footprint.insert((key, ""));
        }
        Asked::Delete { key, end } | Asked::Range { key, end, .. } => {
            footprint.insert((key, end));
        }
        Asked::Txn { compare, then, otherwise } => {
            footprint.extend(compare.iter().map(|compare| (compare.key.as_str(), "")));
            then.iter().chain(otherwise).for_each(|asked| add_footprint(asked, footprint));
        }
        Asked::Compact { .. } => {}
    }
}

/// Whether two ranges may have a key in common.
pub(super) fn meet((a, a_end): Keys<'_>, (b, b_end): Keys<'_>) -> bool {
    let (first, (later, later_end)) =
        if a <= b { ((a, a_end), (b, b_end)) } else { ((b, b_end), (a, a_end)) };
    covers(first.0, first.1, later) && covers(later, later_end, later)
}

/// What reads show as written by a gap's revision: a key, and its value if that is known.
type Seen<'a> = BTreeMap<i64, BTreeSet<(&'a str, Option<&'a str>)>>;

impl<'a> Gaps<'a> {
    pub(super) fn of(operations: &[Operation<'a>], order: &Order) -> Result<Gaps<'a>, Violation> {
        let outlook = Outlook::of(&[]);
        let mut gaps = Gaps { fillers: BTreeMap::new(), outlook, writes: HashMap::new() };
        let revisions: Vec<i64> =
            (2..=order.last()).filter(|&revision| order.writer(revision).is_none()).collect();
        if revisions.is_empty() {
            return Ok(gaps);
        }
        gaps.outlook = Outlook::of(operations);
        let mut open = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            let mut writes = Vec::new();
            add_writes(operation.asked, &mut writes);
            if operation.end == End::Unknown && !writes.is_empty() {
                open.push(number);
                gaps.writes.insert(number, writes);
            }
        }
        let shown = first_shown(operations, order);
        let evidence = Evidence::of(operations, &revisions);
        for &revision in &revisions {
            let by = shown[(revision - 2) as usize];
            let fits = |&number: &usize| {
                operations[number].invoked < by && evidence.allows(operations[number].asked, revision)
            };
            let mut fillers: Vec<usize> = open.iter().copied().filter(fits).collect();
            if fillers.is_empty() {
                return Err(evidence.unexplained(operations, revision));
            }
            fillers.reverse(); // the newest write is the likeliest
            gaps.fillers.insert(revision, fillers);
        }
        gaps.settle(&evidence.seen);
        Ok(gaps)
    }

    /// Removes a write that alone explains the reads of one gap from all other gaps, until nothing changes.
    fn settle(&mut self, seen: &Seen<'_>) {
        let mut owner: HashMap<usize, i64> = HashMap::new();
        loop {
            let mut found = Vec::new();
            for (&revision, fillers) in &mut self.fillers {
                fillers.retain(|number| owner.get(number).is_none_or(|&owner| owner == revision));
                if let ([only], true) = (fillers.as_slice(), seen.contains_key(&revision)) {
                    found.push((*only, revision));
                }
            }
            let before = owner.len();
            for (number, revision) in found {
                owner.entry(number).or_insert(revision);
            }
            if owner.len() == before {
                return;
            }
        }
    }
}

/// For each revision from 2 on: where it, or a higher one, was first shown.
fn first_shown(operations: &[Operation<'_>], order: &Order) -> Vec<Position> {
    let mut shown = vec![NEVER; (order.last() - 1) as usize];
    for operation in operations {
        if let Some(revision) = operation.revision()
            && revision >= 2
        {
            let place = &mut shown[(revision - 2) as usize];
            *place = (*place).min(operation.ended);
        }
    }
    for place in (0..shown.len().saturating_sub(1)).rev() {
        shown[place] = shown[place].min(shown[place + 1]);
    }
    shown
}

/// What reads show about gaps.
struct Evidence<'a> {
    seen: Seen<'a>,
    /// Key → ranges of revisions (after, to] without a write to it; ascending, disjoint.
    quiet: HashMap<&'a str, Vec<(i64, i64)>>,
}

impl<'a> Evidence<'a> {
    fn of(operations: &[Operation<'a>], gaps: &[i64]) -> Evidence<'a> {
        let mut evidence = Evidence { seen: BTreeMap::new(), quiet: HashMap::new() };
        let is_gap: BTreeSet<i64> = gaps.iter().copied().collect();
        for operation in operations {
            if let End::Done(revision, answer) = operation.end {
                each_read(operation.asked, answer, revision, &mut |pair, as_of| {
                    evidence.note(pair, as_of, &is_gap);
                });
            }
        }
        for stretches in evidence.quiet.values_mut() {
            stretches.sort_unstable();
            let mut apart: Vec<(i64, i64)> = Vec::new();
            for &(after, to) in stretches.iter() {
                match apart.last_mut() {
                    Some((_, end)) if after <= *end => *end = (*end).max(to),
                    _ => apart.push((after, to)),
                }
            }
            *stretches = apart;
        }
        evidence
    }

    fn note(&mut self, pair: &'a Pair, as_of: Option<i64>, gaps: &BTreeSet<i64>) {
        if gaps.contains(&pair.modified) {
            self.seen.entry(pair.modified).or_default().insert((&pair.key, Some(&pair.value)));
        }
        if pair.create != pair.modified && gaps.contains(&pair.create) {
            self.seen.entry(pair.create).or_default().insert((&pair.key, None));
        }
        if let Some(as_of) = as_of.filter(|&as_of| pair.modified < as_of)
            && gaps.range(pair.modified + 1..=as_of).next().is_some()
        {
            self.quiet.entry(&pair.key).or_default().push((pair.modified, as_of));
        }
    }

    fn allows(&self, asked: &Asked, revision: i64) -> bool {
        let explains = |&(key, value): &(&str, Option<&str>)| may_put(asked, key, value);
        if self.seen.get(&revision).is_some_and(|seen| !seen.iter().all(explains)) {
            return false;
        }
        match asked {
            Asked::Put { key, .. } => !self.is_quiet(key, revision),
            Asked::Delete { key, end } if end.is_empty() => !self.is_quiet(key, revision),
            _ => true,
        }
    }

    fn is_quiet(&self, key: &str, revision: i64) -> bool {
        let Some(stretches) = self.quiet.get(key) else { return false };
        let place = stretches.partition_point(|&(_, to)| to < revision);
        stretches.get(place).is_some_and(|&(after, _)| after < revision)
    }

    fn unexplained(&self, operations: &[Operation<'_>], revision: i64) -> Violation {
        let seen = self.seen.get(&revision);
        let seen = seen.map_or(String::new(), |seen| format!(", which wrote {seen:?},"));
        let refused = operations.iter().find(|operation| {
            operation.end == End::Refused
                && may_make_a_revision(operation.asked)
                && self.allows(operation.asked, revision)
        });
        let hint = refused
            .map_or(String::new(), |operation| format!("; {}, which was refused, fits", told(operation)));
        let story =
            format!("revision {revision}{seen} was made by no write that was answered or is open{hint}");
        let operations: Vec<&Operation<'_>> = refused.into_iter().collect();
        super::violation(&operations, story)
    }
}

/// Whether some branch puts this key and content.
fn may_put(asked: &Asked, wanted: &str, content: Option<&str>) -> bool {
    match asked {
        Asked::Put { key, value } => key == wanted && content.is_none_or(|content| value == content),
        Asked::Txn { then, otherwise, .. } => {
            then.iter().chain(otherwise).any(|asked| may_put(asked, wanted, content))
        }
        Asked::Range { .. } | Asked::Delete { .. } | Asked::Compact { .. } => false,
    }
}

/// Visits all pairs of an answer, with the revision as of which each was read. Inside a transaction a read may show the
/// state before or after the writes, so there the revision is `None`.
fn each_read<'a>(
    asked: &Asked,
    answer: &'a Answer,
    revision: i64,
    visit: &mut dyn FnMut(&'a Pair, Option<i64>),
) {
    match (asked, answer) {
        (Asked::Range { revision: wanted, .. }, Answer::Range { kvs, .. }) => {
            let as_of = if *wanted > 0 { *wanted } else { revision };
            kvs.iter().for_each(|pair| visit(pair, Some(as_of)));
        }
        (Asked::Txn { then, otherwise, .. }, Answer::Txn { succeeded, answers }) => {
            let branch = if *succeeded { then } else { otherwise };
            for (asked, answer) in branch.iter().zip(answers) {
                each_read(asked, answer, revision, &mut |pair, _| visit(pair, None));
            }
        }
        _ => {}
    }
}
