//! `cargo xtask chaos`, `kills` and `flips`: real processes under real faults, and the slices that every commit runs.
//!
//! Knows nothing of: the faults.

use crate::rigs;
use crate::shell::Failure;
use crate::stage::Tally;
use crate::test::seed_of_commit;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
/// Seconds after which the slice of every commit begins no further trial.
const CHAOS_SECONDS: &str = "30";
const KILLS_SECONDS: &str = "25";
const FLIPS_SECONDS: &str = "20";
/// Trials with weak clients, and how long their storms last.
const WEAK_TRIALS: &str = "1";
const WEAK_SECONDS: &str = "4";
/// More than there is time for.
const TRIALS: &str = "100";
const FLIPS: &str = "10000";

/// `cargo xtask chaos|kills|flips …`: arguments go to the program of `proof/chaos`.
pub fn run(verb: &str, words: &[&str]) -> Result<(), Failure> {
    rigs::in_foreground("kattu-chaos", &[&[verb], words].concat())
}

fn slice(words: &[&str], log: &Path) -> Result<Tally, Failure> {
    let seed = seed_of_commit().to_string();
    rigs::run("kattu-chaos", &[words, &["--seed", &seed]].concat(), log, LIMIT)?;
    let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    Ok(tally(&text, &seed))
}

/// The last line is the verdict; what was skipped is named above it.
fn tally(text: &str, seed: &str) -> Tally {
    let skipped: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix("SKIPPED ")).map(str::to_string).collect();
    let last = text.lines().last().unwrap_or_default();
    let passed = last.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    Tally { passed, failed: 0, skipped, note: format!("{last}; seed {seed}") }
}

/// Storms over real clusters, with a seed from the commit; then a short one with weak clients.
pub fn chaos_slice(log: &Path) -> Result<Tally, Failure> {
    let all = slice(&["chaos", "--trials", TRIALS, "--most", CHAOS_SECONDS], log)?;
    let weak = slice(&["chaos", "--weak", "--trials", WEAK_TRIALS, "--seconds", WEAK_SECONDS], log)?;
    let note = format!("{}; with weak clients {}", all.note, weak.note);
    Ok(Tally { passed: all.passed + weak.passed, note, ..all })
}

/// Members struck at their n-th system call, with a seed from the commit.
pub fn kills_slice(log: &Path) -> Result<Tally, Failure> {
    slice(&["kills", "--trials", TRIALS, "--most", KILLS_SECONDS], log)
}

/// Bits flipped in members' files, with a seed from the commit.
pub fn flips_slice(log: &Path) -> Result<Tally, Failure> {
    slice(&["flips", "--flips", FLIPS, "--most", FLIPS_SECONDS], log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_counted_and_what_was_skipped_is_named() {
        let text = "SKIPPED freezer over the leader: no freezer\n12 operations\n\
            7 trials, 0 violations, 9 acknowledged writes, 0 lost\n";
        let tally = tally(text, "3");
        assert_eq!((tally.passed, tally.skipped.len()), (7, 1));
        assert!(tally.note.ends_with("0 lost; seed 3"), "{}", tally.note);
        // The output of a program that skipped everything has no count.
        let nothing = super::tally("SKIPPED kills: no strace\n", "3");
        assert_eq!((nothing.passed, nothing.skipped.len()), (0, 1));
    }
}
