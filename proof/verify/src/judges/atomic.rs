//! Atomicity: a transaction's writes are seen together or not at all. [fault-model P2]
//!
//! Rule:  all puts of one transaction carry one revision; a read of several of its keys that shows one as the
//!        transaction left it shows no other as it was before.
//! Looks: at transactions whose writes are known: answered ones by their answer and revision; open ones by a value that
//!        no other operation puts under that key. Sound. Uses no specification, so a wrong one cannot blind it.
//! Knows nothing of: the order of operations.

use super::{Summary, Violation, summary};
use crate::history::{Answer, Operation as Asked, Pair, Record};
use crate::operations::{End, Operation, paired};
use crate::spec::covers;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const NAME: &str = "txn_atomic";

/// Puts of one branch of one transaction: key → value. A key deleted again is not among them.
type Puts<'a> = BTreeMap<&'a str, &'a str>;

/// Judges that no transaction is seen in part.
///
/// # Errors
/// The first read that saw one in part.
pub fn txn_atomic(history: &[Record]) -> Result<Summary, Violation> {
    let operations = paired(history)?;
    let mut known = Known::by(&operations);
    let mut judged = 0;
    // Revisions of open transactions are learnt from all reads before any is judged.
    each_answer(&operations, &mut |reader, read| known.learn(reader, read))?;
    each_answer(&operations, &mut |reader, read| {
        judged += 1;
        known.judge(reader, read)
    })?;
    Ok(Summary { judged, ..summary(&operations) })
}

/// One range read: the range, the pairs, and whether they are all.
struct Read<'a> {
    keys: (&'a str, &'a str),
    kvs: &'a [Pair],
    is_whole: bool,
}

fn each_answer<'a>(
    operations: &[Operation<'a>],
    visit: &mut impl FnMut(&Operation<'a>, &Read<'a>) -> Result<(), Violation>,
) -> Result<(), Violation> {
    for operation in operations {
        if let End::Done(_, answer) = operation.end {
            let mut reads = Vec::new();
            add_reads(operation.asked, answer, &mut reads);
            reads.iter().try_for_each(|read| visit(operation, read))?;
        }
    }
    Ok(())
}

fn add_reads<'a>(asked: &'a Asked, answer: &'a Answer, reads: &mut Vec<Read<'a>>) {
    match (asked, answer) {
        (Asked::Range { key, end, count_only: false, .. }, Answer::Range { kvs, more, .. }) => {
            reads.push(Read { keys: (key, end), kvs, is_whole: !more });
        }
        (Asked::Txn { then, otherwise, .. }, Answer::Txn { succeeded, answers }) => {
            let branch = if *succeeded { then } else { otherwise };
            branch.iter().zip(answers).for_each(|(asked, answer)| add_reads(asked, answer, reads));
        }
        _ => {}
    }
}

/// Transactions whose writes are known.
struct Known<'a> {
    /// By revision: the operation, and what it put.
    by_revision: HashMap<i64, (u64, Puts<'a>)>,
    /// Open ones, by a pair that only they put.
    by_content: HashMap<(&'a str, &'a str), (u64, Puts<'a>)>,
    /// Open ones: the revision at which each was seen.
    learnt: HashMap<u64, i64>,
    /// Key ranges that some operation may delete: a missing key may have been deleted since.
    deletes: Vec<(&'a str, &'a str)>,
}

impl<'a> Known<'a> {
    fn by(operations: &[Operation<'a>]) -> Known<'a> {
        let mut known = Known {
            by_revision: HashMap::new(),
            by_content: HashMap::new(),
            learnt: HashMap::new(),
            deletes: Vec::new(),
        };
        let mut authors: HashMap<(&str, &str), BTreeSet<(u64, usize)>> = HashMap::new();
        for operation in operations.iter().filter(|operation| operation.end != End::Refused) {
            add_deletes(operation.asked, &mut known.deletes);
            let mut branches = Vec::new();
            add_branches(operation.asked, &mut branches);
            for (branch, puts) in branches.iter().enumerate() {
                for &content in puts {
                    authors.entry(content).or_default().insert((operation.id, branch));
                }
            }
            match operation.end {
                End::Done(revision, answer) => {
                    let mut puts = Puts::new();
                    add_puts(operation.asked, answer, &mut puts);
                    if puts.len() > 1 {
                        known.by_revision.insert(revision, (operation.id, puts));
                    }
                }
                End::Unknown => {
                    for puts in branches {
                        let puts: Puts<'_> = puts.into_iter().collect();
                        for (&key, &value) in puts.iter().filter(|_| puts.len() > 1) {
                            known.by_content.insert((key, value), (operation.id, puts.clone()));
                        }
                    }
                }
                End::Rejected(_) | End::Refused => {}
            }
        }
        known.by_content.retain(|content, _| authors.get(content).is_some_and(|authors| authors.len() == 1));
        known
    }

    fn learn(&mut self, reader: &Operation<'_>, read: &Read<'_>) -> Result<(), Violation> {
        for pair in read.kvs {
            let Some((id, puts)) = self.by_content.get(&(pair.key.as_str(), pair.value.as_str())) else {
                continue;
            };
            let revision = *self.learnt.entry(*id).or_insert(pair.modified);
            if revision != pair.modified {
                let story = format!(
                    "transaction {id} has written at revision {revision} and, as operation {} read {:?}, at {}",
                    reader.id, pair.key, pair.modified
                );
                return Err(Violation { property: NAME, story, operations: vec![*id, reader.id] });
            }
            self.by_revision.entry(revision).or_insert_with(|| (*id, puts.clone()));
        }
        Ok(())
    }

    fn judge(&self, reader: &Operation<'_>, read: &Read<'_>) -> Result<(), Violation> {
        let seen: HashMap<&str, &Pair> = read.kvs.iter().map(|pair| (pair.key.as_str(), pair)).collect();
        for pair in read.kvs {
            let Some((id, puts)) = self.by_revision.get(&pair.modified) else { continue };
            if !puts.contains_key(pair.key.as_str()) || *id == reader.id {
                continue;
            }
            for (&key, &value) in puts.iter().filter(|(key, _)| covers(read.keys.0, read.keys.1, key)) {
                let whole = match seen.get(key) {
                    Some(other) if other.modified == pair.modified => other.value == value,
                    Some(other) => pair.modified < other.modified,
                    None => {
                        !read.is_whole || self.deletes.iter().any(|&(start, end)| covers(start, end, key))
                    }
                };
                if !whole {
                    let found = seen.get(key).map_or("nothing".to_string(), |other| {
                        format!("{:?} of revision {}", other.value, other.modified)
                    });
                    let story = format!(
                        "operation {} sees transaction {id} in {:?} (revision {}), but under {key:?}, where it put \
                         {value:?}, it sees {found}",
                        reader.id, pair.key, pair.modified
                    );
                    return Err(Violation { property: NAME, story, operations: vec![*id, reader.id] });
                }
            }
        }
        Ok(())
    }
}

fn add_deletes<'a>(asked: &'a Asked, deletes: &mut Vec<(&'a str, &'a str)>) {
    match asked {
        Asked::Delete { key, end } => deletes.push((key, end)),
        Asked::Txn { then, otherwise, .. } => {
            then.iter().chain(otherwise).for_each(|asked| add_deletes(asked, deletes));
        }
        Asked::Put { .. } | Asked::Range { .. } | Asked::Compact { .. } => {}
    }
}

/// The puts of each branch by itself; nested transactions are branches of their own.
fn add_branches<'a>(asked: &'a Asked, branches: &mut Vec<Vec<(&'a str, &'a str)>>) {
    match asked {
        Asked::Put { key, value } => branches.push(vec![(key, value)]),
        Asked::Txn { then, otherwise, .. } => {
            for branch in [then, otherwise] {
                let mut puts = Vec::new();
                for asked in branch {
                    match asked {
                        Asked::Put { key, value } => puts.push((key.as_str(), value.as_str())),
                        nested => add_branches(nested, branches),
                    }
                }
                branches.push(puts);
            }
        }
        Asked::Range { .. } | Asked::Delete { .. } | Asked::Compact { .. } => {}
    }
}

/// The puts that an answered transaction left in place.
fn add_puts<'a>(asked: &'a Asked, answer: &Answer, puts: &mut Puts<'a>) {
    match (asked, answer) {
        (Asked::Put { key, value }, _) => {
            puts.insert(key, value);
        }
        (Asked::Delete { key, end }, _) => puts.retain(|put, _| !covers(key, end, put)),
        (Asked::Txn { then, otherwise, .. }, Answer::Txn { succeeded, answers }) => {
            let branch = if *succeeded { then } else { otherwise };
            branch.iter().zip(answers).for_each(|(asked, answer)| add_puts(asked, answer, puts));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::judges::testing::*;

    fn both() -> Asked {
        txn(vec![], vec![put("a", "x"), put("b", "x")], vec![])
    }

    fn answered() -> Answer {
        Answer::Txn { succeeded: true, answers: vec![wrote(), wrote()] }
    }

    fn with(end: (u64, What), pairs: &[(&str, &str, i64, i64, i64)]) -> Result<Summary, Violation> {
        let events = [invoke(1, both()), end, invoke(2, range("a", "c", 0, false)), done(2, 3, read(pairs))];
        txn_atomic(&timed(&events))
    }

    #[test]
    fn half_a_transaction_is_caught_whether_answered_or_open() {
        for end in [done(1, 3, answered()), unknown(1)] {
            let half = [("a", "x", 3, 3, 1), ("b", "0", 2, 2, 1)];
            assert!(with(end.clone(), &half).is_err());
            assert!(with(end.clone(), &half[..1]).is_err());
            assert!(with(end.clone(), &[("a", "x", 3, 3, 1), ("b", "x", 2, 3, 2)]).is_ok());
            assert!(
                with(end.clone(), &[("a", "x", 3, 3, 1), ("b", "9", 2, 4, 3)]).is_ok(),
                "b was written since"
            );
            assert!(with(end, &[("b", "0", 2, 2, 1)]).is_ok(), "nothing of it is seen yet");
        }
    }

    #[test]
    fn puts_of_one_transaction_share_a_revision() {
        assert!(with(unknown(1), &[("a", "x", 3, 3, 1), ("b", "x", 4, 4, 1)]).is_err());
    }

    #[test]
    fn a_key_that_was_deleted_since_may_be_missing() {
        let events = [
            invoke(1, both()),
            done(1, 2, answered()),
            invoke(3, delete("b")),
            done(3, 3, Answer::Delete { deleted: 1 }),
            invoke(2, range("a", "c", 0, false)),
            done(2, 3, read(&[("a", "x", 2, 2, 1)])),
        ];
        assert!(txn_atomic(&timed(&events)).is_ok());
    }

    #[test]
    fn a_value_that_others_put_too_proves_nothing() {
        let events = [
            invoke(1, both()),
            unknown(1),
            invoke(3, put("a", "x")),
            done(3, 2, wrote()),
            invoke(2, range("a", "c", 0, false)),
            done(2, 2, read(&[("a", "x", 2, 2, 1)])),
        ];
        assert!(txn_atomic(&timed(&events)).is_ok());
    }
}
