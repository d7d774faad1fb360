//! Durability: every acknowledged write is there at the end, unless a later one replaced it. [fault-model P1]
//!
//! The final state shows only the last write of each key; earlier ones show in revisions and versions, which the other
//! judges replay. Besides, it may hold no pair that no operation wrote.
//! Rule, for each key, with its last acknowledged write at revision `r`:
//!   put:     the key holds that value at `r`; or, if some revision above `r` was made by no acknowledged write, it
//!            holds an open put's value or is gone by an open delete;
//!   deleted: the key is gone, or holds an open put's value above `r`.
//! Trusts revisions. Sound. Cost: n log n, times range deletes.
//! Knows nothing of: reads in the history.

use super::{FinalState, Summary, Violation, shown, summary};
use crate::history::{Answer, Operation as Asked, Pair, Record};
use crate::operations::{End, Operation, may_write, paired};
use crate::spec::covers;
use std::collections::{BTreeMap, HashMap, HashSet};

const NAME: &str = "durable";

/// An acknowledged write that the final state lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// The operation's number.
    pub id: u64,
    /// The key.
    pub key: String,
    /// The revision it was acknowledged at.
    pub revision: i64,
    /// What the final state holds instead.
    pub instead: String,
}

/// Judges that all acknowledged writes are in the final state, and nothing else.
///
/// # Errors
/// The first lost write, or the first pair that no operation wrote.
pub fn durable(history: &[Record], last: &FinalState) -> Result<Summary, Violation> {
    let operations = paired(history)?;
    let written = Written::by(&operations);
    if let Some(lost) = written.lost(last).into_iter().next() {
        let LostWrite { id, key, revision, instead } = lost;
        let story = format!(
            "the write of {key:?} by operation {id}, acknowledged at revision {revision}, is lost: {instead}"
        );
        return Err(Violation { property: NAME, story, operations: vec![id] });
    }
    written.is_explained(last)?;
    let judged = written.puts.len() + written.deletes.len() + last.kvs.len();
    Ok(Summary { judged: judged as u64, ..summary(&operations) })
}

/// Every acknowledged write that the final state lacks.
///
/// # Errors
/// If the records are no history.
pub fn lost_writes(history: &[Record], last: &FinalState) -> Result<Vec<LostWrite>, Violation> {
    let operations = paired(history)?;
    Ok(Written::by(&operations).lost(last))
}

/// A place in the order of all writes: the revision, then the place within the transaction.
type Moment = (i64, usize);

/// An acknowledged put.
#[derive(Clone, Copy)]
struct Put<'a> {
    at: Moment,
    value: &'a str,
    id: u64,
}

/// An acknowledged delete that deleted something.
struct Delete<'a> {
    at: Moment,
    keys: (&'a str, &'a str),
    id: u64,
}

/// All acknowledged writes, and the open ones that may have taken effect.
struct Written<'a> {
    /// The last put of each key.
    puts: BTreeMap<&'a str, Put<'a>>,
    /// All puts: (revision, key) → value.
    every_put: HashMap<(i64, &'a str), &'a str>,
    deletes: Vec<Delete<'a>>,
    revisions: HashSet<i64>,
    open_puts: HashSet<(&'a str, &'a str)>,
    open_deletes: Vec<(&'a str, &'a str)>,
}

impl<'a> Written<'a> {
    fn by(operations: &[Operation<'a>]) -> Written<'a> {
        let mut written = Written {
            puts: BTreeMap::new(),
            every_put: HashMap::new(),
            deletes: Vec::new(),
            revisions: HashSet::new(),
            open_puts: HashSet::new(),
            open_deletes: Vec::new(),
        };
        for operation in operations {
            match operation.end {
                End::Done(revision, answer) => {
                    let mut place = 0;
                    written.acknowledged(operation.id, operation.asked, answer, revision, &mut place);
                }
                End::Unknown if may_write(operation.asked) => written.open(operation.asked),
                End::Unknown | End::Rejected(_) | End::Refused => {}
            }
        }
        written
    }

    fn acknowledged(&mut self, id: u64, asked: &'a Asked, answer: &Answer, revision: i64, place: &mut usize) {
        *place += 1;
        let at = (revision, *place);
        match (asked, answer) {
            (Asked::Put { key, value }, _) => {
                self.revisions.insert(revision);
                self.every_put.insert((revision, key), value);
                let put = Put { at, value, id };
                let newest = self.puts.entry(key).or_insert(put);
                if newest.at < at {
                    *newest = put;
                }
            }
            (Asked::Delete { key, end }, Answer::Delete { deleted }) if *deleted > 0 => {
                self.revisions.insert(revision);
                self.deletes.push(Delete { at, keys: (key, end), id });
            }
            (Asked::Txn { then, otherwise, .. }, Answer::Txn { succeeded, answers }) => {
                let branch = if *succeeded { then } else { otherwise };
                for (asked, answer) in branch.iter().zip(answers) {
                    self.acknowledged(id, asked, answer, revision, place);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, asked: &'a Asked) {
        match asked {
            Asked::Put { key, value } => {
                self.open_puts.insert((key, value));
            }
            Asked::Delete { key, end } => self.open_deletes.push((key, end)),
            Asked::Txn { then, otherwise, .. } => {
                then.iter().chain(otherwise).for_each(|asked| self.open(asked))
            }
            Asked::Range { .. } | Asked::Compact { .. } => {}
        }
    }

    fn lost(&self, last: &FinalState) -> Vec<LostWrite> {
        let pairs: HashMap<&str, &Pair> = last.kvs.iter().map(|pair| (pair.key.as_str(), pair)).collect();
        let mut lost = Vec::new();
        for (&key, put) in &self.puts {
            let instead = self.instead_of_put(key, put, pairs.get(key).copied(), last.revision);
            lost.extend(instead.map(|instead| LostWrite {
                id: put.id,
                key: key.to_string(),
                revision: put.at.0,
                instead,
            }));
        }
        for delete in &self.deletes {
            let (key, end) = delete.keys;
            let revision = delete.at.0;
            let mut instead = None;
            if last.revision < revision {
                instead = Some(format!("the store is at revision {}", last.revision));
            }
            let covered = |pair: &&Pair| covers(key, end, &pair.key) && pair.modified < revision;
            if let Some(pair) = last.kvs.iter().find(covered) {
                instead = Some(format!("{} is still there", shown_pair(pair)));
            }
            let key = if end.is_empty() { key.to_string() } else { format!("{key}..{end}") };
            lost.extend(instead.map(|instead| LostWrite { id: delete.id, key, revision, instead }));
        }
        lost.sort_by_key(|lost| lost.revision);
        lost
    }

    /// The fault in what the final state holds for the last put of a key; `None` if there is none.
    fn instead_of_put(&self, key: &str, put: &Put<'_>, pair: Option<&Pair>, last: i64) -> Option<String> {
        let revision = put.at.0;
        if last < revision {
            return Some(format!("the store is at revision {last}"));
        }
        let covering = |delete: &&Delete<'_>| put.at < delete.at && covers(delete.keys.0, delete.keys.1, key);
        let deleted = self.deletes.iter().any(|delete| covering(&delete));
        match pair {
            Some(pair) if pair.modified < revision => Some(format!("{} is there", shown_pair(pair))),
            Some(pair) if pair.modified == revision && pair.value != put.value => {
                Some(format!("{} is there", shown_pair(pair)))
            }
            Some(_) => None, // a newer pair is judged by `is_explained`
            None if deleted => None,
            None => {
                let may_be_deleted = self.open_deletes.iter().any(|&(start, end)| covers(start, end, key));
                let free = (revision + 1..=last).any(|revision| !self.revisions.contains(&revision));
                (!may_be_deleted || !free)
                    .then(|| "the key is gone and nobody can have deleted it".to_string())
            }
        }
    }

    /// Every pair was written by some operation.
    fn is_explained(&self, last: &FinalState) -> Result<(), Violation> {
        for pair in &last.kvs {
            let acknowledged = self.every_put.get(&(pair.modified, pair.key.as_str()));
            let explained = match acknowledged {
                Some(value) => *value == pair.value,
                None => {
                    let open = self.open_puts.contains(&(pair.key.as_str(), pair.value.as_str()));
                    open && !self.revisions.contains(&pair.modified)
                }
            };
            if !explained || last.revision < pair.modified {
                let story = format!("{} is there, which nobody wrote", shown_pair(pair));
                return Err(Violation { property: NAME, story, operations: Vec::new() });
            }
        }
        Ok(())
    }
}

fn shown_pair(pair: &Pair) -> String {
    shown(&Asked::Put { key: pair.key.clone(), value: pair.value.clone() })
        + &format!(" of revision {}, version {}", pair.modified, pair.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::judges::testing::*;

    fn judge(
        events: &[(u64, What)],
        revision: i64,
        pairs: &[(&str, &str, i64, i64, i64)],
    ) -> Result<Summary, Violation> {
        let Answer::Range { kvs, .. } = read(pairs) else { unreachable!("a read") };
        durable(&timed(events), &FinalState { revision, kvs })
    }

    fn two_puts() -> Vec<(u64, What)> {
        vec![invoke(1, put("a", "1")), done(1, 2, wrote()), invoke(2, put("b", "1")), done(2, 3, wrote())]
    }

    #[test]
    fn a_lost_put_is_caught() {
        let both = [("a", "1", 2, 2, 1), ("b", "1", 3, 3, 1)];
        assert!(judge(&two_puts(), 3, &both).is_ok());
        assert!(judge(&two_puts(), 3, &both[..1]).is_err());
        assert!(judge(&two_puts(), 2, &both[..1]).is_err());
        assert!(judge(&two_puts(), 3, &[("a", "2", 2, 2, 1), both[1]]).is_err());
        let Answer::Range { kvs, .. } = read(&both[..1]) else { unreachable!("a read") };
        let lost = lost_writes(&timed(&two_puts()), &FinalState { revision: 2, kvs }).expect("a history");
        assert_eq!(lost.iter().map(|lost| lost.id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn an_open_write_may_stand_in_its_place() {
        let with = |open| [two_puts(), vec![invoke(3, open), unknown(3)]].concat();
        let newer = [("a", "9", 2, 4, 2), ("b", "1", 3, 3, 1)];
        assert!(judge(&with(put("a", "9")), 4, &newer).is_ok());
        assert!(judge(&with(put("a", "8")), 4, &newer).is_err());
        assert!(judge(&two_puts(), 4, &newer).is_err());
        let gone = [("b", "1", 3, 3, 1)];
        assert!(judge(&with(delete("a")), 4, &gone).is_ok());
        assert!(judge(&with(delete("a")), 3, &gone).is_err(), "no revision is left for the delete");
        assert!(judge(&with(delete("c")), 4, &gone).is_err());
    }

    #[test]
    fn a_delete_that_is_undone_is_caught() {
        let answer = Answer::Delete { deleted: 1 };
        let history = [two_puts(), vec![invoke(3, delete("a")), done(3, 4, answer)]].concat();
        let b = ("b", "1", 3, 3, 1);
        assert!(judge(&history, 4, &[b]).is_ok());
        assert!(judge(&history, 4, &[("a", "1", 2, 2, 1), b]).is_err());
        let again = [history, vec![invoke(4, put("a", "1")), done(4, 5, wrote())]].concat();
        assert!(judge(&again, 5, &[("a", "1", 5, 5, 1), b]).is_ok());
    }

    #[test]
    fn a_value_that_was_never_written_is_caught() {
        assert!(judge(&[], 2, &[("a", "1", 2, 2, 1)]).is_err());
        assert!(judge(&[], 1, &[]).is_ok());
    }
}
