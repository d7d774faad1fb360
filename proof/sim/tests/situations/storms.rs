//! Small storms in every test run: the same course every time, and nothing broken.

use kattu_sim::campaign::run_storms;
use kattu_sim::faults::Fault;
use kattu_sim::inject::{Kind, Kinds};
use kattu_sim::{Options, run_storm};

fn short(seconds: u64) -> Options {
    Options { seconds: Some(seconds), ..Options::default() }
}

#[test]
fn a_seed_takes_one_course_and_another_seed_another() {
    let options = short(20);
    let first = run_storm(3, &options);
    assert_eq!(first.violation, None);
    assert_eq!(first.hash, run_storm(3, &options).hash);
    assert_ne!(first.hash, run_storm(4, &options).hash);
    let read = run_storm(3, &Options { timeline: true, history: true, ..options });
    assert_eq!(first.hash, read.hash, "reading along changes nothing");
    assert!(!read.timeline.is_empty() && !read.history.is_empty());
}

#[test]
fn small_storms_break_no_guarantee() {
    let sum = run_storms(100..112, 2, usize::MAX, &short(15), |_| {});
    assert_eq!(sum.violations, []);
    assert_eq!(sum.storms, 12);
    assert!(sum.operations.0 > 500, "{:?}: the storms are too strong to say much", sum.operations);
    assert!(sum.judged > sum.operations.0, "{} answers judged", sum.judged);
    assert!(sum.looks > 0);
}

#[test]
fn a_wall_clock_that_jumps_changes_nothing() {
    let with = |kinds: Kinds| Options { kinds: Some(kinds), seconds: Some(30), ..Options::default() };
    let seed =
        (0..).find(|&seed| run_storm(seed, &with(Kinds::of(&[Kind::WallJump]))).faults.count(Fault::F40) > 0);
    let seed = seed.expect("some seed has jumps");
    let jumps = run_storm(seed, &with(Kinds::of(&[Kind::WallJump])));
    let none = run_storm(seed, &with(Kinds::none()));
    assert_eq!(jumps.violation, None);
    assert_eq!(jumps.hash, none.hash, "the courses differ");
}

#[test]
fn a_storm_without_faults_counts_none() {
    let report =
        run_storm(5, &Options { kinds: Some(Kinds::none()), seconds: Some(20), ..Options::default() });
    assert_eq!(report.violation, None);
    for &fault in Fault::ALL.iter().filter(|&&fault| fault != Fault::F71) {
        assert_eq!(report.faults.count(fault), 0, "{}", fault.id());
    }
    assert!(report.injected.is_empty());
}
