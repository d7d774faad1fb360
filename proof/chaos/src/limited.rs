//! Links of limited bandwidth: in a third of the trials all links of one member carry 1, 10 or 100 MB/s, beside all
//! other faults; and when all faults are over it must catch up from far behind without wasting them.
//!
//! Method: after the storm and its checks, no client sends anything any more. The member behind the limited links is
//! killed, values are written to the others, and it is restarted. Counted is all that comes out of its links until it
//! has applied what the leader had.
//!
//! ```text
//!   goodput = bytes that it lacked / bytes that came out of the links to it
//!             (with snapshots: those of their files, of the entries behind the last one and of those that came before
//!              the first one, if they are more; a snapshot holds what it had before, too)
//! ```
//! An entry's bytes are known by its index: the values that were written after the kill are large, the storm's are not.
//! Members of these trials keep half a megabyte of log behind a snapshot, so a member that has just got one may need
//! the next one, which was made meanwhile: both are counted as new.
//! Knows nothing of: the storm.

use crate::slow_link::{KEY_BYTES, PATIENCE, VALUE_BYTES, WAIT_LIMIT, applied, judge_link, write};
use kattu_random::Random;
use kattu_rig::cluster::Cluster;
use kattu_rig::until_within;
use kattu_rig::weather::{Links, Weather};
use kattu_verify::service::LinkCount;
use std::time::{Duration, Instant};

/// The least goodput. [fault-model P14]
const GOODPUT_MIN: f64 = 0.85;
/// One in so many seeds has limited links, so that campaigns have their share of them.
const ONE_OF: u64 = 3;
/// Bytes per second, and bytes that the member is then behind: seconds at most, and handshakes do not count.
const KINDS: [(u32, u64); 3] = [(1_000_000, 4_000_000), (10_000_000, 12_000_000), (100_000_000, 24_000_000)];
/// Bytes of a storm's entry, at most: its clients write tens of bytes, beside their session and the frame.
const STORM_ENTRY_BYTES: u64 = 256;
/// Bytes of an entry with one of the values.
const ENTRY_BYTES: u64 = VALUE_BYTES as u64 + KEY_BYTES;
/// Time allowed beyond that of the links: the start of a process, an election, a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The limited links of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// All links to and from this member.
    pub member: usize,
    /// Bytes per second.
    pub bandwidth: u32,
    /// By how many bytes it is behind at the end.
    behind: u64,
}

/// The use of the links.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Bytes that were new.
    pub news: u64,
    /// Bytes that came out of the links.
    pub crossed: u64,
    /// Time until everything was there.
    pub took: Duration,
}

impl Use {
    /// The new bytes' share of those that crossed.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.news as f64 / self.crossed.max(1) as f64
    }

    /// An error if too much was wasted.
    fn verdict(&self, limited: Limited) -> Result<(), String> {
        let count = LinkCount { sent: self.crossed, taken: self.news };
        let found = judge_link(count, GOODPUT_MIN);
        found.map_err(|why| {
            format!("links of {} bytes/s to n{} were wasted: {why}", limited.bandwidth, limited.member)
        })
    }
}

impl Limited {
    /// Draws the limit for a trial that begins with so many members.
    pub fn draw(seed: u64, members: usize) -> Option<Limited> {
        let mut random = Random::of_part(seed, "limited links");
        let member = random.below(members);
        let (bandwidth, behind) = *random.pick(&KINDS);
        seed.is_multiple_of(ONE_OF).then_some(Limited { member, bandwidth, behind })
    }

    /// Limits the links, for as long as the trial lasts.
    pub(crate) fn impose(self, links: &Links, members: usize) {
        let weather = Weather { bandwidth: self.bandwidth, ..Weather::default() };
        for other in (0..members).filter(|other| *other != self.member) {
            links.set_usual(self.member, other, weather);
            links.set_usual(other, self.member, weather);
        }
    }

    /// Lets the member catch up from far behind. `None` if it is not in the cluster any more, or if the others are no
    /// quorum without it.
    ///
    /// # Errors
    /// It stays behind, or it wastes its links.
    pub fn judge(self, cluster: &mut Cluster, links: &Links) -> Result<Option<Use>, String> {
        let belonging = cluster.belonging();
        if !belonging.contains(&self.member) || belonging.len() < 3 {
            return Ok(None);
        }
        let others: Vec<usize> = belonging.into_iter().filter(|other| *other != self.member).collect();
        // What it has applied it never needs again. If it is not there to be asked, all counts as needed.
        let held = applied(&cluster.members[self.member]).unwrap_or(0);
        cluster.members[self.member].kill();
        cluster.note_processes();
        let leader = until_within(WAIT_LIMIT, "one of the others leads", || {
            others.iter().copied().find(|&other| cluster.members[other].leads())
        });
        let index = || applied(&cluster.members[leader]);
        let storm = until_within(WAIT_LIMIT, "the leader's state", index);
        write(&cluster.members[leader].endpoint.host, self.behind);
        let goal = until_within(WAIT_LIMIT, "the leader's state", index);
        let crossed = || others.iter().map(|&other| links.passed(other, self.member)).sum::<u64>();
        let (before, begun) = (crossed(), Instant::now());
        let needs = Duration::from_secs_f64(PATIENCE * self.behind as f64 / f64::from(self.bandwidth));
        cluster.members[self.member].spawn()?;
        cluster.note_processes();
        let mut seen = Vec::new();
        while seen.last().is_none_or(|index| *index < goal) {
            seen.extend(applied(&cluster.members[self.member]));
            cluster.check_ended()?;
            if needs + START_LIMIT < begun.elapsed() {
                return Err(format!(
                    "n{} is {} bytes behind links of {} bytes/s, and not back after {:?}; {} bytes crossed",
                    self.member,
                    self.behind,
                    self.bandwidth,
                    begun.elapsed(),
                    crossed() - before
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (crossed, took) = (crossed() - before, begun.elapsed());
        // This message comes after all messages about snapshots.
        let says = until_within(WAIT_LIMIT, "what the member says is whole", || {
            Some(cluster.members[self.member].log_text()).filter(|said| said.contains("is ready to serve"))
        });
        let marks = Marks { held, storm, goal };
        let used = Use { news: self.behind.max(marks.by_snapshots(&says, &seen)), crossed, took };
        used.verdict(self).map(|()| Some(used))
    }
}

/// Indexes of a member's return.
#[derive(Clone, Copy, Debug)]
struct Marks {
    /// It had applied this before it was killed.
    held: u64,
    /// The last entry of the storm; the values come after it.
    storm: u64,
    /// It is back when it has applied this.
    goal: u64,
}

impl Marks {
    /// Bytes of the entries after one index up to another.
    fn bytes(self, after: u64, to: u64) -> u64 {
        let between = |low: u64, high: u64| to.min(high).saturating_sub(after.max(low));
        between(0, self.storm) * STORM_ENTRY_BYTES + between(self.storm, u64::MAX) * ENTRY_BYTES
    }

    /// New bytes, by the snapshots in the member's log: those of their files, of the entries from the last one to its
    /// goal, and of the entries that it was `seen` to apply before the first one since its restart; 0 without snapshots.
    fn by_snapshots(self, says: &str, seen: &[u64]) -> u64 {
        let lines = says.lines().filter_map(|line| line.split_once("installing the snapshot up to "));
        let installed: Vec<(u64, u64)> = lines
            .filter_map(|(_, rest)| {
                let (last, rest) = rest.split_once(": ")?;
                let index: u64 = last.split_once('.')?.1.parse().ok()?;
                Some((index, rest.split_once(" bytes")?.0.parse::<u64>().ok()?))
            })
            .collect();
        let Some((first, _)) = installed.first() else { return 0 };
        let (last, bytes) =
            installed.iter().fold((self.goal, 0), |(_, sum), (index, more)| (*index, sum + more));
        let before = seen.iter().copied().filter(|index| index < first).max().unwrap_or(0);
        bytes + self.bytes(self.held, before) + self.bytes(last, self.goal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_trials_has_them_of_each_kind() {
        let drawn: Vec<Limited> = (0..900).filter_map(|seed| Limited::draw(seed, 3)).collect();
        assert_eq!(drawn.len(), 300);
        for (bandwidth, _) in KINDS {
            for member in 0..3 {
                assert!(drawn.iter().any(|it| (it.bandwidth, it.member) == (bandwidth, member)));
            }
        }
        assert_eq!(Limited::draw(9, 3), Limited::draw(9, 3));
    }

    #[test]
    fn what_crosses_twice_is_waste() {
        let limited = Limited { member: 1, bandwidth: 1_000_000, behind: 4_000_000 };
        let used = |crossed| Use { news: 4_000_000, crossed, took: Duration::from_secs(5) };
        assert_eq!(used(4_400_000).verdict(limited), Ok(()));
        let said = used(8_000_000).verdict(limited).expect_err("half of it was known");
        assert!(said.contains("4000000 of them were new") && said.contains("0.50"), "{said}");
    }

    const SAYS: &str = "x info  installing the snapshot up to 4.100: 4678571 bytes in 6ms\n\
                        x info  installing the snapshot up to 4.110: 9 bytes in 6ms\nready";

    #[test]
    fn what_follows_the_last_snapshot_is_new_too() {
        let marks = Marks { held: 80, storm: 90, goal: 130 };
        let took = "info  took a snapshot up to 4.17039: 4678571 bytes in 9ms";
        assert_eq!(marks.by_snapshots(took, &[1, 99]), 0);
        assert_eq!(marks.by_snapshots(SAYS, &[]), 4_678_580 + 20 * ENTRY_BYTES);
        let before = 10 * STORM_ENTRY_BYTES + 7 * ENTRY_BYTES;
        assert_eq!(marks.by_snapshots(SAYS, &[70, 97, 100, 130]), 4_678_580 + before + 20 * ENTRY_BYTES);
        assert_eq!(Marks { goal: 105, ..marks }.by_snapshots(SAYS, &[]), 4_678_580);
    }

    #[test]
    fn entries_of_the_storm_are_small_and_what_a_member_held_is_not_new() {
        let limited = Limited { member: 1, bandwidth: 1_000_000, behind: 4_000_000 };
        let verdict = |marks: Marks, crossed| {
            let news = limited.behind.max(marks.by_snapshots(SAYS, &[1, 99]));
            Use { news, crossed, took: Duration::from_secs(5) }.verdict(limited)
        };
        let marks = Marks { held: 0, storm: 110, goal: 110 };
        assert_eq!(verdict(marks, 5_000_000), Ok(()));
        assert_eq!(marks.bytes(0, 99), 99 * STORM_ENTRY_BYTES);
        assert_eq!(Marks { held: 98, ..marks }.by_snapshots(SAYS, &[1, 99]), 4_678_580 + STORM_ENTRY_BYTES);
        verdict(Marks { storm: 0, ..marks }, 5_500_000).expect("large entries came before the snapshot");
        verdict(marks, 5_600_000).expect_err("0.84: small ones did, and the rest is waste");
    }
}
