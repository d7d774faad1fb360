//! Storms: all faults that a small group can meet, checked at every step, seed by seed.
//!
//! A seed that once found a bug stays, as a test with its story.

use kattu_peers::storm::storm;

/// `KATTU_SEEDS` storms from `KATTU_SEED` on, for longer runs.
fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_committed_is_ever_lost_in_a_storm() {
    let (first, count) = (environment("KATTU_SEED", 1), environment("KATTU_SEEDS", 2000));
    let mut commits = 0;
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| storm(seed, 1000).safety.highest_commit().0);
        commits +=
            result.unwrap_or_else(|_| panic!("seed {seed} found something; run with KATTU_SEED={seed}"));
    }
    assert!(commits > count * 10, "storms so wild that only {commits} entries were committed prove nothing");
}
