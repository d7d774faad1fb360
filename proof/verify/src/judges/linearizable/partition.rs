//! Parts: keys that occur together in some transaction are judged together, all others apart. [Herlihy and Wing 1990]
//!
//! A range read or delete over several parts becomes one in each; these may see different moments, so the judge accepts
//! more. Values that no operation read or compared count as one value: no answer tells them apart.
//! Knows nothing of: the search for an order.

use super::model::{Condition, Key, Step, Target, Txn, Value};
use crate::history::{Answer, How, Operation as Asked, Pair, Target as Wanted};
use crate::operations::{End, Freshness, Operation, Position, may_write};
use crate::spec::covers;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

/// Stands for all values that no answer tells apart.
const SOME: Value = 1;

/// One operation on one part.
#[derive(Clone, Debug)]
pub(super) struct PartOperation {
    /// Its number among all operations.
    pub(super) number: usize,
    pub(super) invoked: Position,
    /// `None` while it is open.
    pub(super) ended: Option<Position>,
    pub(super) step: Step,
}

/// Some keys, and everything that was done to them.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) keys: Vec<String>,
    /// Values by number.
    pub(super) texts: Vec<String>,
    /// Ordered by invocation.
    pub(super) operations: Vec<PartOperation>,
}

/// Divides a history into parts.
pub(super) fn parts(operations: &[Operation<'_>]) -> Vec<Part> {
    let judged: Vec<(usize, &Operation<'_>)> =
        operations.iter().enumerate().filter(|(_, operation)| is_judged(operation)).collect();
    let mut keys = BTreeSet::new();
    for (_, operation) in &judged {
        add_keys(operation.asked, &mut keys);
        if let End::Done(_, answer) = operation.end {
            add_answered_keys(answer, &mut keys);
        }
    }
    let division = Division::of(&keys, judged.iter().map(|(_, operation)| operation.asked));
    let mut builders: Vec<Builder<'_>> = division.members.iter().map(|keys| Builder::new(keys)).collect();
    for &(number, operation) in &judged {
        for place in division.touched_by(operation.asked) {
            builders[place].operations.push((number, *operation));
        }
    }
    builders.into_iter().map(|builder| builder.build(&division)).collect()
}

/// Judged are final answers to linearizable requests at the newest revision, and open writes.
fn is_judged(operation: &Operation<'_>) -> bool {
    if operation.freshness() != Freshness::Linearizable {
        return false;
    }
    match (operation.asked, operation.end) {
        (Asked::Compact { .. }, _) | (_, End::Refused | End::Rejected(_)) => false,
        (Asked::Range { revision, .. }, End::Done(..)) => *revision <= 0,
        (asked, End::Unknown) => may_write(asked),
        (_, End::Done(..)) => true,
    }
}

/// Adds the named keys.
fn add_keys<'a>(asked: &'a Asked, keys: &mut BTreeSet<&'a str>) {
    match asked {
        Asked::Put { key, .. } => {
            keys.insert(key);
        }
        Asked::Range { key, end, .. } | Asked::Delete { key, end } => {
            if end.is_empty() {
                keys.insert(key);
            }
        }
        Asked::Txn { compare, then, otherwise } => {
            keys.extend(compare.iter().map(|compare| compare.key.as_str()));
            then.iter().chain(otherwise).for_each(|asked| add_keys(asked, keys));
        }
        Asked::Compact { .. } => {}
    }
}

fn add_answered_keys<'a>(answer: &'a Answer, keys: &mut BTreeSet<&'a str>) {
    match answer {
        Answer::Range { kvs, .. } => keys.extend(kvs.iter().map(|pair| pair.key.as_str())),
        Answer::Txn { answers, .. } => answers.iter().for_each(|answer| add_answered_keys(answer, keys)),
        Answer::Put | Answer::Delete { .. } | Answer::Compact => {}
    }
}

/// key → (part, number within it).
type Places<'a> = BTreeMap<&'a str, (usize, Key)>;

/// Which key belongs to which part.
struct Division<'a> {
    place: Places<'a>,
    members: Vec<Vec<&'a str>>,
}

impl<'a> Division<'a> {
    fn of<'o>(keys: &BTreeSet<&'a str>, asked: impl Iterator<Item = &'o Asked>) -> Division<'a> {
        let all: Vec<&str> = keys.iter().copied().collect();
        let number: Places<'_> = all.iter().copied().zip((0..).map(|number| (number, 0))).collect();
        let mut groups = Groups((0..all.len()).collect());
        for asked in asked.filter(|asked| matches!(asked, Asked::Txn { .. })) {
            let mut numbers = BTreeSet::new();
            add_touched(asked, &number, &mut numbers);
            let mut numbers = numbers.into_iter();
            if let Some(first) = numbers.next() {
                numbers.for_each(|other| groups.join(first, other));
            }
        }
        let mut members: Vec<Vec<&str>> = Vec::new();
        let mut part_of: HashMap<usize, usize> = HashMap::new();
        let mut place = BTreeMap::new();
        for (key, number) in all.into_iter().zip(0..) {
            let part = *part_of.entry(groups.root(number)).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            place.insert(key, (part, members[part].len() as Key));
            members[part].push(key);
        }
        // An operation that touches no known key still has an answer to judge.
        members.push(Vec::new());
        Division { place, members }
    }

    /// Parts that an operation touches; the empty one if it touches no key.
    fn touched_by(&self, asked: &Asked) -> BTreeSet<usize> {
        let mut parts = BTreeSet::new();
        add_touched(asked, &self.place, &mut parts);
        if parts.is_empty() {
            parts.insert(self.members.len() - 1);
        }
        parts
    }
}

/// Parts of the keys that an operation looks at or changes.
fn add_touched(asked: &Asked, place: &Places<'_>, touched: &mut BTreeSet<usize>) {
    match asked {
        Asked::Put { key, .. } => touched.extend(place.get(key.as_str()).map(|place| place.0)),
        Asked::Range { key, end, .. } | Asked::Delete { key, end } => {
            touched.extend(in_range(place, key, end).map(|(_, place)| place.0));
        }
        Asked::Txn { compare, then, otherwise } => {
            let compared = compare.iter().filter_map(|compare| place.get(compare.key.as_str()));
            touched.extend(compared.map(|place| place.0));
            then.iter().chain(otherwise).for_each(|asked| add_touched(asked, place, touched));
        }
        Asked::Compact { .. } => {}
    }
}

fn in_range<'m, 'k, T>(
    map: &'m BTreeMap<&'k str, T>,
    start: &'m str,
    end: &'m str,
) -> impl Iterator<Item = (&'m &'k str, &'m T)> {
    map.range::<str, _>((Bound::Included(start), Bound::Unbounded))
        .take_while(move |(key, _)| covers(start, end, key))
}

/// The pair of a key in an answer, whose keys are ascending.
fn pair_of<'k>(kvs: &'k [Pair], key: &str) -> Option<&'k Pair> {
    kvs.binary_search_by(|pair| pair.key.as_str().cmp(key)).ok().map(|place| &kvs[place])
}

/// Disjoint sets of numbers.
struct Groups(Vec<usize>);

impl Groups {
    fn root(&mut self, mut number: usize) -> usize {
        while self.0[number] != number {
            self.0[number] = self.0[self.0[number]];
            number = self.0[number];
        }
        number
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// A part under construction.
struct Builder<'a> {
    keys: Vec<&'a str>,
    operations: Vec<(usize, Operation<'a>)>,
    texts: Vec<String>,
    /// Values are numbered for each key by itself.
    numbers: HashMap<(Key, String), Value>,
    /// Values that an answer or a condition tells apart; all, if a condition orders them.
    told_apart: BTreeSet<String>,
    all_are_told_apart: bool,
}

impl<'a> Builder<'a> {
    fn new(keys: &[&'a str]) -> Builder<'a> {
        Builder {
            keys: keys.to_vec(),
            operations: Vec::new(),
            // 0 is no value, 1 any that no answer tells apart.
            texts: vec![String::new(); 2],
            numbers: HashMap::new(),
            told_apart: BTreeSet::new(),
            all_are_told_apart: false,
        }
    }

    fn build(mut self, division: &Division<'_>) -> Part {
        let operations = std::mem::take(&mut self.operations);
        for (_, operation) in &operations {
            self.note_values(operation.asked);
            if let End::Done(_, answer) = operation.end {
                self.note_answered_values(answer);
            }
        }
        let mut steps = Vec::with_capacity(operations.len());
        for (number, operation) in operations {
            let (answer, ended) = match operation.end {
                End::Done(_, answer) => (Some(answer), Some(operation.ended)),
                End::Unknown | End::Refused | End::Rejected(_) => (None, None),
            };
            let step = self.step(division, operation.asked, answer, false);
            steps.push(PartOperation { number, invoked: operation.invoked, ended, step });
        }
        let keys = self.keys.iter().map(|key| (*key).to_string()).collect();
        Part { keys, texts: self.texts, operations: steps }
    }

    fn note_values(&mut self, asked: &Asked) {
        let Asked::Txn { compare, then, otherwise } = asked else { return };
        for compare in compare {
            if let Wanted::Value(value) = &compare.target {
                self.told_apart.insert(value.clone());
                self.all_are_told_apart |= matches!(compare.how, How::Less | How::Greater);
            }
        }
        then.iter().chain(otherwise).for_each(|asked| self.note_values(asked));
    }

    fn note_answered_values(&mut self, answer: &Answer) {
        match answer {
            // Of this part's keys only: most answers of a long history are about many parts.
            Answer::Range { kvs, .. } => {
                let found = self.keys.iter().filter_map(|key| pair_of(kvs, key));
                self.told_apart.extend(found.map(|pair| pair.value.clone()));
            }
            Answer::Txn { answers, .. } => {
                answers.iter().for_each(|answer| self.note_answered_values(answer))
            }
            Answer::Put | Answer::Delete { .. } | Answer::Compact => {}
        }
    }

    fn value(&mut self, key: Key, text: &str) -> Value {
        if !self.all_are_told_apart && !self.told_apart.contains(text) {
            return SOME;
        }
        if let Some(&number) = self.numbers.get(&(key, text.to_string())) {
            return number;
        }
        let number = self.texts.len() as Value;
        self.texts.push(text.to_string());
        self.numbers.insert((key, text.to_string()), number);
        number
    }

    /// This part's keys in a range, ascending.
    fn keys_in(&self, start: &str, end: &str) -> Vec<(&'a str, Key)> {
        let from = self.keys.partition_point(|key| *key < start);
        let keys = self.keys.iter().copied().zip(0..).skip(from);
        keys.take_while(|(key, _)| covers(start, end, key)).collect()
    }

    fn step(
        &mut self,
        division: &Division<'_>,
        asked: &Asked,
        answer: Option<&Answer>,
        in_txn: bool,
    ) -> Step {
        match (asked, answer) {
            (Asked::Put { key, value }, _) => match self.keys_in(key, "").first() {
                Some(&(_, key)) => Step::Put(key, self.value(key, value)),
                None => Step::Nothing,
            },
            (Asked::Delete { key, end }, answer) => {
                let keys = self.keys_in(key, end);
                let told = match answer {
                    Some(Answer::Delete { deleted }) if is_whole(division, key, end, keys.len()) => {
                        Some(*deleted)
                    }
                    _ => None,
                };
                Step::Delete(keys.into_iter().map(|(_, key)| key).collect(), told)
            }
            (Asked::Range { revision, .. }, _) if in_txn && *revision != 0 => Step::Nothing,
            (Asked::Range { key, end, count_only, .. }, Some(Answer::Range { kvs, more, count })) => {
                let keys = self.keys_in(key, end);
                if *count_only {
                    let judged = is_whole(division, key, end, keys.len()) || *count == 0;
                    let keys = keys.into_iter().map(|(_, key)| key).collect();
                    return if judged { Step::Count(keys, *count) } else { Step::Nothing };
                }
                let whole = is_whole(division, key, end, keys.len());
                if whole && !more && *count != kvs.len() as i64 {
                    return Step::Count(Vec::new(), -1); // contradicts itself
                }
                let mut told = Vec::new();
                for (name, key) in keys {
                    // Beyond the last pair of a cut answer nothing is known.
                    if *more && kvs.last().is_none_or(|last| last.key.as_str() < name) {
                        break;
                    }
                    let found = pair_of(kvs, name);
                    told.push((key, found.map(|pair| (self.value(key, &pair.value), pair.version))));
                }
                Step::Read(told)
            }
            (Asked::Range { .. } | Asked::Compact { .. }, _) => Step::Nothing,
            (Asked::Txn { compare, then, otherwise }, answer) => {
                let compare = compare.iter().filter_map(|compare| self.condition(compare)).collect();
                let (succeeded, answers) = match answer {
                    Some(Answer::Txn { succeeded, answers }) => (Some(*succeeded), answers.as_slice()),
                    _ => (None, &[][..]),
                };
                let mut branch = |operations: &[Asked], taken: bool| -> Vec<Step> {
                    let answer_of = |place: usize| if taken { answers.get(place) } else { None };
                    let numbered = operations.iter().enumerate();
                    numbered
                        .map(|(place, asked)| self.step(division, asked, answer_of(place), true))
                        .collect()
                };
                let then = branch(then, succeeded == Some(true));
                let otherwise = branch(otherwise, succeeded == Some(false));
                Step::Txn(Box::new(Txn { compare, then, otherwise, succeeded }))
            }
        }
    }

    fn condition(&mut self, compare: &crate::history::Compare) -> Option<Condition> {
        let &(_, key) = self.keys_in(&compare.key, "").first()?;
        let target = match &compare.target {
            Wanted::Value(value) => Target::Value(self.value(key, value)),
            Wanted::Version(version) => Target::Version(*version),
            Wanted::Create(revision) | Wanted::Mod(revision) => Target::Revision(*revision),
        };
        Some(Condition { key, how: compare.how, target })
    }
}

/// Whether this part has all known keys of a range.
fn is_whole(division: &Division<'_>, start: &str, end: &str, here: usize) -> bool {
    in_range(&division.place, start, end).take(here + 1).count() == here
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If each part copied all of an answer, the work would be cubic: flips seed 43011 was judged for more than five minutes.
    #[test]
    fn a_part_takes_only_its_own_keys_from_an_answer_about_many() {
        let pair = |key: usize| {
            let (key, value) = (format!("{key:03}"), format!("v{key}"));
            Pair { key, value, create: 1, modified: 1, version: 1 }
        };
        let answer = Answer::Range { kvs: (0..500).map(pair).collect(), more: false, count: 500 };
        let mut part = Builder::new(&["007", "450", "900"]);
        part.note_answered_values(&answer);
        assert_eq!(part.told_apart, BTreeSet::from(["v7".to_string(), "v450".to_string()]));
    }
}
