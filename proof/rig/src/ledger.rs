//! Ledger: what became of each put of weak clients, by the state at the end. [fault-model WK4 to WK8]
//!
//! | Rule | Of each session |
//! |---|---|
//! | nothing is lost untold | a put that was accepted is there, or its client was told that it is lost |
//! | certain is certain | a put that was done is there; one that was refused, or told to be lost for certain, is not |
//! | no hole | behind the first put that is missing none is there, unless the missing one was refused, or never accepted |
//! | once, in order | each put was executed once, and after the one before |
//! | a client that lives loses nothing | all that it gave is there, or was refused; what it was told is lost is there because it put it again |
//!
//! Of each leader: the lost puts that clients had accepted from it are within the budget. A put's leader is known by the term in
//! which it was received, so losses of several leaders are not added up.
//! Knows nothing of: clients, members.

use crate::weak::{Account, How, Keys, Notes};
use kattu_verify::judges::FinalState;
use std::collections::BTreeMap;

/// Shown of one kind of breach.
const SHOWN: usize = 3;

/// Puts of one session that were executed.
enum Executed {
    /// The key's version: all numbers up to it.
    UpTo(u64),
    /// By number.
    Each(BTreeMap<u64, (i64, i64)>),
}

impl Executed {
    fn has(&self, number: u64) -> bool {
        match self {
            Executed::UpTo(last) => number <= *last,
            Executed::Each(puts) => puts.contains_key(&number),
        }
    }

    fn last(&self) -> u64 {
        match self {
            Executed::UpTo(last) => *last,
            Executed::Each(puts) => puts.last_key_value().map_or(0, |(number, _)| *number),
        }
    }
}

/// What became of the puts of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Accepted puts that are not there.
    pub lost: Vec<u64>,
    /// Of these: the client was not told.
    pub untold: u64,
    /// What is wrong.
    pub broken: Vec<String>,
}

/// The puts that were executed, by the key of their session.
pub struct Ledger {
    keys: Keys,
    executed: BTreeMap<String, Executed>,
    broken: Vec<String>,
}

impl Ledger {
    /// Reads the state at the end. Of [`Keys::One`] it may hold no other keys.
    #[must_use]
    pub fn of(state: &FinalState, keys: Keys) -> Ledger {
        let (mut executed, mut broken) = (BTreeMap::new(), Vec::new());
        for pair in &state.kvs {
            match keys {
                Keys::One => {
                    if pair.value.trim_end() != pair.version.to_string() {
                        broken.push(format!("a hole, or a put that was executed twice: {pair:?}"));
                    }
                    executed.insert(pair.key.clone(), Executed::UpTo(pair.version as u64));
                }
                Keys::Each => {
                    let Some((session, number)) = pair.key.rsplit_once('/') else { continue };
                    let Ok(number) = number.parse::<u64>() else { continue };
                    let puts = executed.entry(session.to_string()).or_insert(Executed::Each(BTreeMap::new()));
                    if let Executed::Each(puts) = puts {
                        puts.insert(number, (pair.create, pair.version));
                    }
                }
            }
        }
        broken.truncate(SHOWN);
        Ledger { keys, executed, broken }
    }

    /// What is wrong with the state by itself.
    #[must_use]
    pub fn broken(&self) -> &[String] {
        &self.broken
    }

    /// Judges one session, whose client `lives` to the end.
    #[must_use]
    pub fn judge(&self, account: &Account, lives: bool) -> Fate {
        let none = Executed::UpTo(0);
        let executed = self.executed.get(&account.key).unwrap_or(&none);
        let Account { key, given, accepted, refused, unknown, told, again, .. } = account;
        let lost: Vec<u64> = accepted.keys().copied().filter(|number| !executed.has(*number)).collect();
        let untold = lost.iter().filter(|number| !told.contains_key(number)).count() as u64;
        let mut broken = Vec::new();
        let mut find = |what: &str, numbers: &mut dyn Iterator<Item = u64>| {
            let shown: Vec<u64> = numbers.take(SHOWN).collect();
            if !shown.is_empty() {
                let last = executed.last();
                broken.push(format!("{key}: {given} given, {last} the last one executed, {what}: {shown:?}"));
            }
        };
        find("lost untold", &mut lost.iter().copied().filter(|number| !told.contains_key(number)));
        find("executed, never given", &mut Some(executed.last()).into_iter().filter(|last| given < last));
        let is_done = |number: &u64| accepted.get(number) == Some(&How::Done);
        find("done, and not there", &mut lost.iter().copied().filter(|number| is_done(number)));
        let is_certain = |number: &u64| {
            refused.contains(number) || (told.get(number) == Some(&true) && !again.contains(number))
        };
        find("refused, and executed", &mut (1..=*given).filter(|it| is_certain(it) && executed.has(*it)));
        if let Executed::Each(puts) = executed {
            // Of a put of unknown outcome, too, the session may have given the number to a command that does nothing.
            let is_excused =
                |it: &u64| refused.contains(it) || unknown.contains(it) || told.get(it) == Some(&true);
            let owes = |it: &u64| !puts.contains_key(it) && !is_excused(it);
            if let Some(hole) = (1..=*given).find(owes) {
                let mut behind = puts.keys().copied().filter(|it| hole < *it && !again.contains(it));
                find(&format!("there behind {hole}, which is not"), &mut behind);
            }
            // What was put again may have been executed twice, and late.
            let first: Vec<(u64, i64, i64)> = puts
                .iter()
                .filter(|(number, _)| !again.contains(number))
                .map(|(number, (create, version))| (*number, *create, *version))
                .collect();
            find("executed twice", &mut first.iter().filter(|put| put.2 != 1).map(|put| put.0));
            let is_early = |pair: &&[(u64, i64, i64)]| pair[1].1 <= pair[0].1;
            find("executed before its predecessor", &mut first.windows(2).filter(is_early).map(|it| it[1].0));
        }
        if lives {
            broken.extend(account.broken.iter().map(|why| format!("{key}: {why}")));
            let mut find = |what: &str, numbers: &mut dyn Iterator<Item = u64>| {
                let shown: Vec<u64> = numbers.take(SHOWN).collect();
                if !shown.is_empty() {
                    broken.push(format!("{key}: {what}: {shown:?}"));
                }
            };
            if account.ended.is_none() {
                let told = &mut told.iter().filter(|(_, is_certain)| !**is_certain);
                find("told to be of unknown end, and the session lives", &mut told.map(|(it, _)| *it));
                if self.keys == Keys::One {
                    find("flushed, and not there", &mut (executed.last() + 1..=*given));
                }
            }
            if untold == 0 {
                find("lost, with a client that lives", &mut lost.iter().copied());
            }
        }
        Fate { lost, untold, broken }
    }

    /// Writes the ends of puts into the history: the state at the end says which were executed, and when. A put whose client put
    /// it again stays open, as the state does not tell the two apart.
    pub fn settle<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>, notes: &Notes) {
        for account in accounts {
            let executed = self.executed.get(&account.key);
            for (&number, &open) in &account.open {
                if account.again.contains(&number) {
                    continue;
                }
                match executed {
                    Some(Executed::Each(puts)) if puts.contains_key(&number) => {
                        notes.done(open, puts[&number].0);
                    }
                    _ => notes.never(open),
                }
            }
        }
    }
}

/// Lost puts of these sessions, by the term of the leader that had received them.
#[must_use]
pub fn lost_by_term<'a>(fates: impl IntoIterator<Item = (&'a Account, &'a Fate)>) -> BTreeMap<u64, u64> {
    let mut lost = BTreeMap::new();
    for (account, fate) in fates {
        for number in &fate.lost {
            if let Some(How::Received(term)) = account.accepted.get(number) {
                *lost.entry(*term).or_default() += 1;
            }
        }
    }
    lost
}

/// Terms whose leader lost more than the budget.
#[must_use]
pub fn over_budget(lost: &BTreeMap<u64, u64>, budget: u32) -> Vec<String> {
    let over = lost.iter().filter(|(_, lost)| u64::from(budget) < **lost);
    over.map(|(term, lost)| format!("{lost} lost with the leader of term {term}, the budget is {budget}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_verify::history::Pair;

    fn pair(key: &str, create: i64, version: i64, value: &str) -> Pair {
        Pair { key: key.into(), value: value.into(), create, modified: create + version - 1, version }
    }

    /// Of each: number, revision, version.
    fn each(puts: &[(u64, i64, i64)]) -> Ledger {
        let put = |(number, create, version): &(u64, i64, i64)| {
            pair(&format!("s/{number:07}"), *create, *version, &number.to_string())
        };
        let kvs = puts.iter().map(put).chain([pair("hot/key", 1, 1, "x")]).collect();
        Ledger::of(&FinalState { revision: 99, kvs }, Keys::Each)
    }

    /// All puts received in term 4.
    fn account(given: u64) -> Account {
        let accepted = (1..=given).map(|number| (number, How::Received(4))).collect();
        Account { key: "s".into(), given, accepted, ..Account::default() }
    }

    fn told(mut account: Account, numbers: &[u64], is_certain: bool) -> Account {
        account.told.extend(numbers.iter().map(|number| (*number, is_certain)));
        account
    }

    #[test]
    fn a_suffix_that_was_told_is_lost_lawfully_and_only_with_its_client() {
        let ledger = each(&[(1, 5, 1), (2, 7, 1)]);
        let account = told(account(4), &[2, 3, 4], false);
        let fate = ledger.judge(&account, false);
        assert_eq!((&fate.lost[..], fate.untold, &fate.broken[..]), (&[3, 4][..], 0, &[][..]));
        let lives = ledger.judge(&account, true).broken.join("\n");
        assert!(lives.contains("and the session lives: [2, 3, 4]"), "{lives}");
        assert!(lives.contains("lost, with a client that lives: [3, 4]"), "{lives}");
        // Its session has ended, and it has put them again.
        let ended = Account { ended: Some("expired".into()), again: [2, 3, 4].into(), ..account };
        let ledger = each(&[(1, 5, 1), (2, 7, 2), (3, 20, 1), (4, 19, 1)]);
        assert_eq!(ledger.judge(&ended, true), Fate::default());
    }

    #[test]
    fn each_breach_is_found() {
        let first = |ledger: &Ledger, account: &Account| {
            ledger.judge(account, false).broken.first().cloned().unwrap_or_default()
        };
        let two = each(&[(1, 5, 1), (2, 7, 1)]);
        let untold = told(account(4), &[4], false);
        assert_eq!(two.judge(&untold, false).untold, 1);
        assert!(first(&two, &untold).ends_with("lost untold: [3]"), "{}", first(&two, &untold));
        assert!(first(&two, &account(1)).contains("never given: [2]"));
        let mut done = told(account(3), &[3], false);
        done.accepted.insert(3, How::Done);
        assert!(first(&two, &done).contains("done, and not there: [3]"));
        assert!(first(&two, &told(account(2), &[2], true)).contains("refused, and executed: [2]"));
        let hole = each(&[(1, 5, 1), (3, 7, 1)]);
        assert!(first(&hole, &told(account(3), &[2], false)).contains("there behind 2, which is not: [3]"));
        assert_eq!(first(&hole, &told(account(3), &[2], true)), "", "a put that was refused leaves a hole");
        assert!(first(&each(&[(1, 5, 2)]), &account(1)).contains("executed twice: [1]"));
        let turned = each(&[(1, 7, 1), (2, 5, 1)]);
        assert!(first(&turned, &account(2)).contains("executed before its predecessor: [2]"));
    }

    #[test]
    fn a_put_that_was_never_accepted_excuses_a_hole_and_an_accepted_one_does_not() {
        let hole = each(&[(1, 5, 1), (3, 8, 1)]);
        let mut timed_out = account(3);
        timed_out.accepted.remove(&2);
        timed_out.unknown.insert(2);
        assert_eq!(hole.judge(&timed_out, true), Fate::default());
        assert_eq!(hole.judge(&account(3), true).untold, 1);
    }

    #[test]
    fn one_key_counts_by_its_version_and_a_value_beside_it_is_a_hole() {
        let state = |value: &str| FinalState { revision: 9, kvs: vec![pair("s", 2, 3, value)] };
        let ledger = Ledger::of(&state("3"), Keys::One);
        assert_eq!(ledger.broken(), [""; 0]);
        assert_eq!(ledger.judge(&account(3), true), Fate::default());
        assert_eq!(ledger.judge(&told(account(5), &[4, 5], false), false).lost, [4, 5]);
        let mut timed_out = account(4);
        timed_out.accepted.remove(&4);
        assert_eq!(ledger.judge(&timed_out, true).broken, ["s: flushed, and not there: [4]"]);
        assert!(Ledger::of(&state("4"), Keys::One).broken()[0].starts_with("a hole"));
    }

    #[test]
    fn losses_are_counted_for_each_leader() {
        let mut account = told(account(4), &[2, 3, 4], false);
        account.accepted.insert(4, How::Received(6));
        let fate = each(&[(1, 5, 1)]).judge(&account, false);
        let lost = lost_by_term([(&account, &fate)]);
        assert_eq!(lost, BTreeMap::from([(4, 2), (6, 1)]));
        assert_eq!(over_budget(&lost, 2), [""; 0]);
        assert_eq!(over_budget(&lost, 1), ["2 lost with the leader of term 4, the budget is 1"]);
    }
}
