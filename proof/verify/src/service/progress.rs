//! Progress: a cluster that can make progress does.
//!
//! In:    samples of the cluster: whether a healthy majority is connected, whether it has a leader; of each member
//!        whether it is reachable and what it holds.
//! Out:   the first interval that was too long.
//! Rules: 1. a majority of members with working disks, connected both ways, has no leader for a stated time at most.
//!           [fault-model P8]
//!        2. a member that is reachable all the time, and lacks what its leader held at the beginning of a stated time,
//!           holds more at its end. [fault-model F51]
//!        3. if it could take more than is written, its gap is smaller within that time than it was before. If it could
//!           not, a growing gap is not its leader's fault, and only rule 2 applies.
//! Knows nothing of: messages, the content of logs.

use super::Violation;
use kattu_raft::{LogIndex, NodeId};
use std::collections::BTreeMap;

/// Bounds of time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A healthy, connected majority is without a leader for so long at most.
    pub leaderless: u64,
    /// A reachable member that lags holds more after so long, and lacks less, if it could.
    pub standstill: u64,
}

/// One member in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It runs, and is connected with its leader both ways.
    pub reachable: bool,
    /// What it holds durably: log or snapshot, whichever reaches further.
    pub held: LogIndex,
    /// Bytes received that are not in `held` yet: pieces of a snapshot. They count as progress.
    pub received: u64,
    /// What its leader has written minus what it has taken of it, in any unit and from any origin that stay the same
    /// until [`Progress::begins_anew`]. `None` if it need not shrink: the member is almost level, its link or processor
    /// may be too slow for what is written, or the gap is not known.
    pub lacks: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Behind {
    since: u64,
    /// What the leader held then.
    target: LogIndex,
    held: LogIndex,
    received: u64,
}

/// The smallest gap of a member while it could take more than was written.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: u64,
    lacks: i64,
}

/// The judge of one cluster, by samples in order of time.
#[derive(Clone, Debug)]
pub struct Progress {
    bounds: Bounds,
    leaderless_since: Option<u64>,
    behind: BTreeMap<NodeId, Behind>,
    gaps: BTreeMap<NodeId, Gap>,
    longest_leaderless: u64,
    looks: u64,
    gaps_seen: u64,
}

impl Progress {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Progress {
        Progress {
            bounds,
            leaderless_since: None,
            behind: BTreeMap::new(),
            gaps: BTreeMap::new(),
            longest_leaderless: 0,
            looks: 0,
            gaps_seen: 0,
        }
    }

    /// The longest leaderless time of a cluster that could have had a leader, in nanoseconds.
    #[must_use]
    pub fn longest_leaderless(&self) -> u64 {
        self.longest_leaderless
    }

    /// Samples so far: a judge without samples has judged nothing.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Samples of members that had to catch up.
    #[must_use]
    pub fn gaps_seen(&self) -> u64 {
        self.gaps_seen
    }

    /// A sample: whether a healthy majority is connected, and whether it has a leader.
    ///
    /// # Errors
    /// If it has been without a leader for too long.
    pub fn look_at_leader(&mut self, now: u64, can_be_led: bool, is_led: bool) -> Result<(), Violation> {
        self.looks += 1;
        if !can_be_led || is_led {
            self.leaderless_since = None;
            return Ok(());
        }
        let since = *self.leaderless_since.get_or_insert(now);
        self.longest_leaderless = self.longest_leaderless.max(now - since);
        if now - since <= self.bounds.leaderless {
            return Ok(());
        }
        Err(broken(format!(
            "a healthy majority that can talk has had no leader for {:.3} s, {:.3} s is promised",
            seconds(now - since),
            seconds(self.bounds.leaderless)
        )))
    }

    /// A sample of a member, and the last index of its leader's log.
    ///
    /// # Errors
    /// If it was reachable and behind, and for too long got nothing, or did not catch up although it could.
    pub fn look_at_member(
        &mut self,
        now: u64,
        member: NodeId,
        standing: Standing,
        leader_last: LogIndex,
    ) -> Result<(), Violation> {
        let Standing { reachable, held, received, lacks } = standing;
        if !reachable || leader_last <= held {
            self.begins_anew(member);
            return Ok(());
        }
        self.look_at_gap(now, member, lacks)?;
        let fresh = Behind { since: now, target: leader_last, held, received };
        let behind = self.behind.entry(member).or_insert(fresh);
        if behind.held < held || behind.received < received {
            *behind = fresh;
        }
        if now - behind.since <= self.bounds.standstill {
            return Ok(());
        }
        Err(broken(format!(
            "n{} can be reached, holds {}, and lacks up to {}; so it was {:.3} s ago, {:.3} s is promised",
            member.0,
            held.0,
            behind.target.0,
            seconds(now - behind.since),
            seconds(self.bounds.standstill)
        )))
    }

    /// Its gap shrinks again and again, or does not matter.
    fn look_at_gap(&mut self, now: u64, member: NodeId, lacks: Option<i64>) -> Result<(), Violation> {
        let Some(lacks) = lacks else {
            self.gaps.remove(&member);
            return Ok(());
        };
        self.gaps_seen += 1;
        let fresh = Gap { since: now, lacks };
        let gap = self.gaps.entry(member).or_insert(fresh);
        if lacks < gap.lacks {
            *gap = fresh;
        }
        if now - gap.since <= self.bounds.standstill {
            return Ok(());
        }
        Err(broken(format!(
            "n{} can be reached and could take more than is written, and comes no closer: it lacks {} more than {:.3} s \
             ago, {:.3} s is promised",
            member.0,
            lacks - gap.lacks,
            seconds(now - gap.since),
            seconds(self.bounds.standstill)
        )))
    }

    /// A member has ended, or follows another leader: its time starts over.
    pub fn begins_anew(&mut self, member: NodeId) {
        self.behind.remove(&member);
        self.gaps.remove(&member);
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn broken(story: String) -> Violation {
    Violation { property: "progress", story, operations: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: NodeId = NodeId(2);

    fn progress() -> Progress {
        Progress::new(Bounds { leaderless: 30, standstill: 20 })
    }

    fn at(held: u64, received: u64) -> Standing {
        Standing { reachable: true, held: LogIndex(held), received, lacks: None }
    }

    #[test]
    fn a_majority_that_can_talk_is_led_again_in_time() {
        let mut progress = progress();
        assert_eq!(progress.look_at_leader(0, true, true), Ok(()));
        assert_eq!(progress.look_at_leader(10, true, false), Ok(()));
        assert_eq!(progress.look_at_leader(40, true, false), Ok(()), "thirty are promised");
        let violation = progress.look_at_leader(41, true, false).expect_err("thirty-one");
        assert_eq!(violation.property, "progress");
        assert!(violation.story.contains("no leader"), "{violation}");
        assert_eq!((progress.longest_leaderless(), progress.looks()), (31, 4));
    }

    #[test]
    fn members_that_cannot_communicate_need_no_leader_and_the_time_begins_anew() {
        let mut progress = progress();
        assert_eq!(progress.look_at_leader(0, true, false), Ok(()));
        assert_eq!(progress.look_at_leader(30, false, false), Ok(()), "a cut");
        assert_eq!(progress.look_at_leader(1000, false, false), Ok(()));
        assert_eq!(progress.look_at_leader(1001, true, false), Ok(()), "healed");
        assert!(progress.look_at_leader(1032, true, false).is_err());
    }

    #[test]
    fn a_follower_that_lags_and_is_reachable_comes_closer() {
        let mut progress = progress();
        let last = LogIndex(100);
        assert_eq!(progress.look_at_member(0, B, at(10, 0), last), Ok(()));
        assert_eq!(progress.look_at_member(20, B, at(11, 0), last), Ok(()));
        assert_eq!(progress.look_at_member(40, B, at(11, 5), last), Ok(()), "pieces of a snapshot count");
        assert_eq!(progress.look_at_member(60, B, at(11, 5), LogIndex(200)), Ok(()));
        let violation =
            progress.look_at_member(61, B, at(11, 5), LogIndex(200)).expect_err("it stands still");
        assert!(violation.story.contains("n2 can be reached, holds 11, and lacks up to 100"), "{violation}");
    }

    #[test]
    fn a_follower_that_could_come_closer_must_however_much_it_gets() {
        let mut progress = progress();
        let mut look = |now: u64, held: u64, lacks: Option<i64>| {
            progress.look_at_member(now, B, Standing { lacks, ..at(held, 0) }, LogIndex(1000 + held))
        };
        // More is written than it gets: its gap must shrink only while that is possible.
        assert_eq!(look(0, 1, Some(100)), Ok(()));
        assert_eq!(look(20, 2, Some(101)), Ok(()));
        assert_eq!(look(30, 3, None), Ok(()), "its link is too slow meanwhile");
        assert_eq!(look(40, 4, Some(110)), Ok(()));
        assert_eq!(look(60, 5, Some(109)), Ok(()), "closer");
        assert_eq!(look(80, 6, Some(109)), Ok(()));
        let violation = look(81, 7, Some(130)).expect_err("it holds more, and lacks more");
        assert!(
            violation.story.contains("n2") && violation.story.contains("it lacks 21 more"),
            "{violation}"
        );
        assert_eq!(progress.gaps_seen(), 6);
    }

    #[test]
    fn a_follower_that_is_cut_off_or_level_or_new_is_given_its_time() {
        let mut progress = progress();
        let last = LogIndex(100);
        assert_eq!(progress.look_at_member(0, B, at(10, 0), last), Ok(()));
        let cut = Standing { reachable: false, ..at(10, 0) };
        assert_eq!(progress.look_at_member(20, B, cut, last), Ok(()));
        assert_eq!(progress.look_at_member(30, B, at(10, 0), last), Ok(()));
        progress.begins_anew(B);
        assert_eq!(progress.look_at_member(51, B, at(10, 0), last), Ok(()));
        assert_eq!(progress.look_at_member(60, B, at(100, 0), last), Ok(()), "level");
        assert_eq!(progress.look_at_member(100, B, at(100, 0), LogIndex(101)), Ok(()));
        assert!(progress.look_at_member(121, B, at(100, 0), LogIndex(102)).is_err());
    }
}
