//! Levels of reads: storms really use weaker levels, and the history records the level of each request.
//!
//! Planted bugs show that the judges see what the levels forbid (`at-least-read-before-its-index`,
//! `bounded-read-asks-nobody`, `freshness-dated-by-its-answer`).

use kattu_sim::campaign::run_storms;
use kattu_sim::{Options, run_storm};
use kattu_verify::history::{Level, Operation, What};

const SECONDS: u64 = 20;

fn options() -> Options {
    Options { seconds: Some(SECONDS), ..Options::default() }
}

#[test]
fn readers_meet_members_that_lack_what_they_saw() {
    let sum = run_storms(0..8, 2, usize::MAX, &options(), |_| {});
    assert_eq!(sum.violations, [], "replay: cargo run --release -p kattu-sim -- storms SEED 1 {SECONDS}");
    println!("{}", sum.counts);
    assert!(sum.counts.behind > 0, "no read met a member that lacked its index");
}

#[test]
fn what_a_history_says_of_levels_is_what_was_asked() {
    let (mut at_least, mut bounds, mut writes, mut strict) = (0, Vec::new(), 0, 0);
    for seed in 0..8 {
        let report = run_storm(seed, &Options { history: true, ..options() });
        for record in &report.history {
            let What::Invoke { operation, level, .. } = &record.what else { continue };
            let is_write = !matches!(operation, Operation::Range { .. } | Operation::Txn { .. });
            match level {
                Some(Level::AtLeast { reader }) => {
                    assert_eq!(*reader, u64::from(record.client / 2), "two clients are one reader");
                    at_least += 1;
                    writes += u64::from(is_write);
                }
                Some(Level::Bounded(age)) => {
                    assert!(!is_write, "seed {seed}: {record:?}");
                    bounds.push(*age);
                }
                None => strict += 1,
            }
        }
    }
    bounds.sort_unstable();
    assert!(at_least > 50 && writes > 15, "{at_least}, of these {writes} writes");
    assert!(strict > at_least + bounds.len() as u64, "{strict} without a level");
    let shorter_than = |ms: u64| bounds.partition_point(|&age| age < ms * 1_000_000);
    assert!(shorter_than(1) > 0, "some bounds are as good as nothing");
    assert!(bounds.len() - shorter_than(300) > 0, "some are of several elections");
}
