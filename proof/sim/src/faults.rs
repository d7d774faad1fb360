//! Faults by id: how often each happened, and which met in one storm. [fault-model §5]
//!
//! A fault is counted when it has really happened (a frame was lost, an unsynced sector did not survive), not when it
//! was injected. A class of faults that never fires is no evidence, so a campaign with a low count fails.
//! Knows nothing of: how faults come about.

use crate::family::Family;
use std::collections::BTreeMap;

macro_rules! faults {
    ($($name:ident $about:literal,)*) => {
        /// A fault that the simulator has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $(#[doc = $about] $name,)*
        }

        impl Fault {
            /// All of them, by id.
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            /// Its id in the fault model.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Fault::$name => stringify!($name),)* }
            }

            /// A short description.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Fault::$name => $about,)* }
            }
        }
    };
}

faults! {
    F01 "one process killed, at any effect or disk operation",
    F02 "all killed at once, or killed in recovery",
    F03 "a process paused",
    F04 "a thread wedged, the process ended by its watchdog",
    F06 "a second process on a directory, or a foreign directory",
    F10 "unsynced sectors, lengths or names lost at a crash",
    F11 "a sync failed",
    F12 "a write failed, or the disk was full",
    F13 "a bit flipped at rest, in what was synced",
    F14 "a lost, stale or misdirected sector",
    F15 "a file missing, cut or foreign",
    F16 "a disk call hung",
    F17 "a slow disk",
    F18 "a disk that lied before a power cut, detected by the leader",
    F19 "a directory rolled back to an older copy, detected by the leader",
    F30 "a symmetric split that cut frames off",
    F31 "a partial partition that cut frames off",
    F32 "one-way loss",
    F33 "a frame lost, repeated, reordered or late",
    F34 "a connection reset in the middle of a frame",
    F35 "a corrupted frame, refused by its checksum",
    F36 "a message of an old term or an old run, arriving late",
    F37 "a clogged lane, bypassed by control messages on a lane of their own",
    F40 "a wall clock jumped",
    F41 "a leader lease begun among clocks that differ within their bound",
    F42 "a clock beyond its bound detected, or a leader elected during an older leader lease",
    F50 "load far above capacity, refused early",
    F51 "a follower far behind that caught up under load",
    F53 "a heavy request carried out: the whole store, 128 operations, the largest value under a hot key",
    F54 "a link of low bandwidth that was full",
    F55 "a member with little CPU, whose step took longer than it should",
    F60 "members changed, or leadership transferred, in the middle of a storm",
    F61 "a change of members refused",
    F62 "a member of an older version restarted with this version",
    F63 "a new cluster made from a backup, or from one survivor",
    F70 "a store that silently diverged, named by the alarm",
    F71 "a valid command that the API refuses, applied",
}

/// Ids of the fault model that are not simulated, with the test that has them: only real sockets have streams without a
/// reader.
pub const ELSEWHERE: &[(&str, &str)] = &[("F52", "cargo xtask bench floods, without watchers")];

/// Ids of the fault model that no test injects: allocations that fail. The rest of F05, ends of processes and little
/// CPU, is F01 and F55.
pub const NOT_BUILT: &[&str] = &["F05"];

/// How often each fault happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; Fault::ALL.len()],
    /// Storms in which both happened; `first < second`.
    pairs: BTreeMap<(Fault, Fault), u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { counts: [0; Fault::ALL.len()], pairs: BTreeMap::new() }
    }
}

impl Tally {
    /// Counts one.
    pub fn add(&mut self, fault: Fault) {
        self.counts[fault as usize] += 1;
    }

    /// How often it happened.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.counts[fault as usize]
    }

    /// Adds one storm's counts; the faults in it have met.
    pub(crate) fn add_storm(&mut self, storm: &Tally) {
        let there: Vec<Fault> = Fault::ALL.iter().copied().filter(|&fault| storm.count(fault) > 0).collect();
        for (at, &first) in there.iter().enumerate() {
            self.counts[first as usize] += storm.count(first);
            for &second in &there[at + 1..] {
                *self.pairs.entry((first, second)).or_default() += 1;
            }
        }
    }

    /// Storms in which two faults met, for every pair that did.
    #[must_use]
    pub fn pairs(&self) -> &BTreeMap<(Fault, Fault), u64> {
        &self.pairs
    }

    /// The faults of a family that happened less often than `least`.
    #[must_use]
    pub(crate) fn too_rare(&self, least: u64, family: Family) -> Vec<Fault> {
        let of_it = Fault::ALL.iter().copied().filter(|&fault| family.has(fault));
        of_it.filter(|&fault| self.count(fault) < least).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_at_its_place() {
        for (at, &fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(fault as usize, at, "{}", fault.id());
            assert!(!ELSEWHERE.iter().any(|(id, _)| *id == fault.id()));
            assert!(!NOT_BUILT.contains(&fault.id()));
        }
    }

    #[test]
    fn counts_add_up_and_faults_of_one_storm_have_met() {
        let (mut storm, mut sum) = (Tally::default(), Tally::default());
        storm.add(Fault::F01);
        storm.add(Fault::F33);
        storm.add(Fault::F33);
        sum.add_storm(&storm);
        sum.add_storm(&storm);
        assert_eq!((sum.count(Fault::F01), sum.count(Fault::F33), sum.count(Fault::F40)), (2, 4, 0));
        assert_eq!(sum.pairs().iter().collect::<Vec<_>>(), [(&(Fault::F01, Fault::F33), &2)]);
        let rare = |least| sum.too_rare(least, Family::Storms);
        assert!(rare(3).contains(&Fault::F01) && !rare(2).contains(&Fault::F01));
        for &fault in Fault::ALL {
            let rare =
                Family::ALL.iter().any(|&family| Tally::default().too_rare(1, family).contains(&fault));
            assert!(rare, "{} is exempt", fault.id());
        }
    }
}
