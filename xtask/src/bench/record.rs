//! `cargo xtask bench record`: measures the counted costs of a put, and appends them to `docs/figures/costs.csv`.
//!
//! In:    the tree that it runs in, which it builds.
//! Out:   one line of medians. With `--dirty` the line is printed, not written.
//! Rules: a line belongs to a commit, so a tree with changes is refused. A file with errors is refused before the
//!        measurement, which takes minutes.
//! Knows nothing of: how instructions, calls and bytes are counted.

use super::cluster::find_tool;
use super::costs::{self, Line, Member};
use super::report::Header;
use super::{counts, instructions, trend};
use crate::shell::{self, Failure};
use std::path::Path;

const USAGE: &str = "cargo xtask bench record [--rounds N] [--dirty]";

struct Settings {
    rounds: usize,
    is_dirty_allowed: bool,
}

fn settings(words: &[&str]) -> Result<Settings, Failure> {
    let mut settings = Settings { rounds: 3, is_dirty_allowed: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--dirty" => settings.is_dirty_allowed = true,
            "--rounds" => {
                let text = words.next().copied().unwrap_or_default();
                settings.rounds =
                    text.parse().ok().filter(|number| 0 < *number).ok_or_else(|| {
                        Failure::usage(format!("--rounds {text}: not a number of at least 1"))
                    })?;
            }
            _ => return Err(Failure::usage(USAGE)),
        }
    }
    Ok(settings)
}

/// Builds, measures, prints the line, appends it.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let settings = settings(words)?;
    costs::parse(&costs::text()?)?;
    let judge_tree = || if settings.is_dirty_allowed { Ok(()) } else { refuse_changes(&shell::changes()?) };
    judge_tree()?;
    find_programs()?;
    let (kattu, counting) = (shell::kattu()?, counts::build()?);
    // A file that changed while the builds ran would be measured under the wrong commit.
    judge_tree()?;
    let header = Header::now(settings.rounds, false);
    header.print();
    let (leader, follower) = measure(&kattu, &counting, settings.rounds)?;
    let line = Line::new(&header, &leader, &follower);
    println!("\n{}", line.text());
    let text = costs::with_line(&costs::text()?, &line)?;
    println!("{}", trend::note(&costs::parse(&text)?));
    if settings.is_dirty_allowed {
        println!("nothing was written (--dirty)");
    } else {
        costs::write(&text)?;
        println!("appended to {}\nnext: commit it", costs::PATH);
    }
    Ok(())
}

/// An error if a file in git has changed, by the lines of `git status --porcelain`. The file of the costs may: it has
/// one more line after each measurement.
fn refuse_changes(changes: &str) -> Result<(), Failure> {
    let is_measured = |line: &&str| line.get(3..) != Some(costs::PATH);
    let changed: Vec<&str> = changes.lines().filter(is_measured).collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("the tree differs from its commit:\n{}", changed.join("\n")))
        .then("commit the changes; or cargo xtask bench record --dirty, which prints, and writes nothing"))
}

/// An error if a program of the measurement is missing: better now than after the builds.
fn find_programs() -> Result<(), Failure> {
    find_tool(&shell::tools_dir().join("etcd36/etcdctl"))?;
    instructions::find_valgrind()
}

/// The medians of all rounds, of the leader and of a follower: instructions of the release build, the rest of the build
/// that counts allocations.
fn measure(kattu: &Path, counting: &Path, rounds: usize) -> Result<(Member, Member), Failure> {
    let strace = counts::has_strace();
    // The likeliest cause is that the leader changed.
    let again = |failure: Failure| failure.then("cargo xtask bench record   (on a quieter machine)");
    let (mut costs, mut rows) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let cost = instructions::measure(kattu, instructions::TOTAL, 2 * round).map_err(again)?;
        let row = counts::measure(
            counting,
            &[],
            counts::INLINE,
            round,
            counts::Load::of(counts::Face::Etcd, counts::TOTAL),
            strace,
        )
        .map_err(again)?;
        println!(
            "round {}: instructions {:.0} / {:.0}, allocations {:.2} / {:.2}, log syncs {:.4} / {:.4}",
            round + 1,
            cost.leader,
            cost.follower,
            row.leader.allocations,
            row.follower.allocations,
            row.leader.syncs,
            row.follower.syncs
        );
        costs.push(cost);
        rows.push(row);
    }
    let (cost, row) = (instructions::medians(&costs), counts::median(&rows));
    Ok((
        Member { instructions: cost.leader, counted: row.leader },
        Member { instructions: cost.follower, counted: row.follower },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_tree_is_refused_but_not_one_with_another_line_of_costs() {
        assert!(refuse_changes("").is_ok());
        assert!(refuse_changes(" M docs/figures/costs.csv\n").is_ok());
        for changes in [
            " M core/raft/src/lib.rs\n",
            "M  Cargo.lock\n M docs/figures/costs.csv\n",
            "R  docs/figures/costs.csv -> docs/figures/other.csv\n",
            " M docs/figures/costs.csv.old\n",
        ] {
            let failure = refuse_changes(changes).expect_err(changes);
            assert!(failure.what.contains(changes.lines().next().expect("a line")), "{}", failure.what);
            assert!(failure.next.is_some_and(|next| next.contains("--dirty")));
        }
    }

    #[test]
    fn words_are_read_in_any_order() {
        let of = |words: &[&str]| settings(words).ok().map(|found| (found.rounds, found.is_dirty_allowed));
        assert_eq!(of(&[]), Some((3, false)));
        assert_eq!(of(&["--dirty"]), Some((3, true)));
        assert_eq!(of(&["--rounds", "5", "--dirty"]), Some((5, true)));
        assert_eq!(of(&["--dirty", "--rounds", "1"]), Some((1, true)));
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--rounds", "x"], &["--total", "9"], &["5"]] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
