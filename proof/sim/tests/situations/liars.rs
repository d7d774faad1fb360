//! One member of a cluster sends any well-formed message, and no other one ends. [fault-model P11]

use kattu_sim::campaign::run_storms;
use kattu_sim::{Family, Options, run_storm};

#[test]
fn a_member_that_lies_ends_no_process() {
    let options = Options { family: Family::Liars, seconds: Some(60), ..Options::default() };
    let sum = run_storms(1..41, 2, usize::MAX, &options, |_| {});
    println!("{}; {}", sum.counts, sum.service.said_of_steps());
    assert!(sum.violations.is_empty(), "{:?}", sum.violations);
    assert!(sum.counts.lies > 2_000 && sum.counts.caught > 500, "{}", sum.counts);
    // The cluster works meanwhile: leaders are elected, entries applied, snapshots sent.
    assert!(sum.counts.elections > 100 && sum.counts.snapshots > 20, "{}", sum.counts);
}

#[test]
fn the_same_seed_tells_the_same_lies() {
    let options = Options { family: Family::Liars, seconds: Some(20), ..Options::default() };
    let first = run_storm(3, &options);
    assert_eq!((first.hash, first.counts), {
        let again = run_storm(3, &options);
        (again.hash, again.counts)
    });
    assert_ne!(first.hash, run_storm(4, &options).hash);
}
