//! Followers: the stages of their appends, and the syncs of their logs, all followers together.
//!
//! Names of counters: `append appendable`, `append stored`, `append acknowledged`, `append waited` (microseconds: how long appends of
//! several links waited in front of the replica), `append samples`, `followers' syncs`, and entries that came early.
//! Knows nothing of: what the leader counts, what follows from the times.

use super::{BenchCluster, stage_counters};
use crate::measured::{COUNTERS, EARLY, FOLLOWERS_SYNCS};
use kattu_rig::Page;
use std::collections::BTreeMap;

impl BenchCluster {
    /// The counters of all followers, summed.
    pub(super) fn follower_counters(&self, leader: usize) -> BTreeMap<String, f64> {
        let followers = (0..self.cluster.members.len()).filter(|&it| it != leader);
        let pages = followers.filter_map(|it| Page::of(&self.cluster.members[it].address()));
        sum(pages.collect::<Vec<_>>().iter())
    }
}

fn sum<'a>(pages: impl Iterator<Item = &'a Page>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for page in pages {
        let appends = stage_counters(page).into_iter().filter(|(name, _)| name.starts_with("append "));
        let syncs = page.numbers(COUNTERS[0]).map(|syncs| (FOLLOWERS_SYNCS.to_string(), syncs as f64));
        let early = page.number(EARLY).map(|entries| (EARLY.to_string(), entries as f64));
        let waited = page
            .lines("kattu_order_wait_seconds_total")
            .find_map(|seconds| Some(("append waited".to_string(), seconds.parse::<f64>().ok()? * 1e6)));
        appends
            .chain(syncs)
            .chain(early)
            .chain(waited)
            .for_each(|(name, number)| *sums.entry(name).or_insert(0.0) += number);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_syncs_of_two_followers_are_added() {
        let page = |syncs: u64, seconds: f64| {
            Page(format!(
                "HTTP/1.1 200\n{} {syncs}\n\
                 kattu_stage_seconds_sum{{path=\"append\",stage=\"stored\"}} {seconds}\n\
                 kattu_stage_seconds_count{{path=\"append\",stage=\"acknowledged\"}} 3\n\
                 kattu_stage_seconds_sum{{path=\"write\",stage=\"stored\"}} 9\n\
                 kattu_order_wait_seconds_total 0.001\n{EARLY} 2\n",
                COUNTERS[0]
            ))
        };
        let sums = sum([page(5, 0.25), page(7, 0.5)].iter());
        let expected = [("append samples", 6.0), ("append stored", 750_000.0), (FOLLOWERS_SYNCS, 12.0)];
        let expected = expected.into_iter().chain([("append waited", 2_000.0), (EARLY, 4.0)]);
        let expected: BTreeMap<String, f64> =
            expected.map(|(name, number)| (name.to_string(), number)).collect();
        assert_eq!(sums, expected);
    }
}
