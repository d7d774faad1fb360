//! Storms: all faults that a small group can meet, checked at every step, seed by seed.
//!
//! A seed that once found a bug stays, as a test with its story.

use kattu_peers::Jobs;
use kattu_peers::storm::storm;

/// `KATTU_SEEDS` storms from `KATTU_SEED` on, for longer runs.
fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_committed_is_ever_lost_in_a_storm() {
    let (first, count) = (environment("KATTU_SEED", 1), environment("KATTU_SEEDS", 2000));
    let mut commits = 0;
    let mut jobs = Jobs::default();
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| {
            let world = storm(seed, 1000);
            (world.safety.highest_commit().0, world.jobs)
        });
        let (committed, of_storm) =
            result.unwrap_or_else(|_| panic!("seed {seed} found something; run with KATTU_SEED={seed}"));
        commits += committed;
        jobs.given += of_storm.given;
        jobs.lost += of_storm.lost;
        jobs.twice += of_storm.twice;
        jobs.dropped += of_storm.dropped;
    }
    println!("{commits} commits, {jobs:?}");
    let has_seen_jobs =
        [jobs.given, jobs.lost * 10, jobs.twice * 10, jobs.dropped * 10].iter().all(|&seen| count <= seen);
    assert!(has_seen_jobs || count < 100, "{jobs:?} prove nothing of jobs");
    assert!(commits > count * 10, "storms so wild that only {commits} entries were committed prove nothing");
}
