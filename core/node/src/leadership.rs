//! Leadership: when a leader transfers leadership by its own decision.
//!
//! A leader may give way to a voter of higher priority, if operators want that. And it may give way to a voter whose
//! disk is far faster than its own: a disk that fails slowly still answers, so its member does not look dead, but every
//! client of the leader waits for the leader's disk.
//!
//! In:    how long this member's disk takes, as its driver reports; the voters that could take over, with their
//!        priorities and the times of their disks.
//! Out:   the voter to which leadership is transferred now; this member's disk time, for its answers to a leader.
//! Rules: [fault-model F17]
//!   1. *Priority.* A leader that has led for an election timeout looks at the best successor. If that one has a higher
//!      priority than the leader, holds everything committed, and was heard within two heartbeats at rest, leadership
//!      is transferred to it. After an attempt that failed the leader waits for ten election timeouts.
//!   2. *Disks.* Every member's driver times its own disk, from the call that writes and syncs a group of records until
//!      that returns, and the member reports it with every answer to its leader. A leader could not time others: one
//!      that syncs on the thread that reads its messages sees their answers only when its own disk is done. And neither
//!      the network nor a member's load is part of the time.
//!   3. Once a heartbeat interval the leader checks whether its disk has been timed anew. It is slow if it took more
//!      than four times as long as the fastest disk of an eligible voter, and at least a tenth of a heartbeat interval:
//!      a shorter time is not worth an election.
//!   4. Slow sixteen times in a row, and for an election timeout at least, is slow for good. One slow write, a burst of
//!      them, or a snapshot that is being written, is not.
//!   5. Eligible is a voter that was heard, holds everything committed, and has at least the leader's priority. A lower
//!      priority is an operator's decision that counts more than a slow disk; 0 is never asked, because it also marks a
//!      member whose store is not trustworthy.
//!   6. A leader with a slow disk stays for ten election timeouts first, and as long between two attempts, so that
//!      leadership, which itself may make disks slow, does not go round. It stays during a membership change or a
//!      transfer.
//!
//! If all disks are equally slow nothing happens. Safety does not depend on priorities and reported times: the outcome
//! is a transfer like any other. [`Raft::transfer`](kattu_raft::Raft::transfer)
//! Knows nothing of: the way of a transfer, disks, the causes of slowness.

use crate::node::Node;
use kattu_raft::{Duration, Instant, NodeId, Successor, Timing, Trace};

/// Election timeouts between a failed offer to a voter of higher priority and the next offer.
const OFFERS_APART: u32 = 10;

/// A disk is slow that takes more than this many times as long as the fastest.
const TIMES: u32 = 4;

/// A disk is slow for good after this many slow times in a row.
const IN_A_ROW: u32 = 16;

/// Election timeouts before a leader leaves its slow disk, and between two attempts.
const LEAVES_APART: u32 = 10;

/// When a leader transfers leadership by itself. Off by default. Equal on all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransferConfig {
    /// To a voter of higher priority that is well and has caught up.
    pub to_priority: bool,
    /// To an eligible voter whose disk is far faster; every member times its disk for that and reports the time.
    /// [fault-model F17]
    pub from_slow_disk: bool,
}

/// The policy of one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransferPolicy {
    config: TransferConfig,
    /// Duration of the last group of records on this disk, unless a leader has evaluated it already. [Rule 2]
    fresh: Option<Duration>,
    /// What it knows of its own leadership, while it leads.
    own: Option<OwnLeadership>,
}

/// A leader's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnLeadership {
    /// Leadership is not offered to a voter of higher priority before this.
    offer_at: Instant,
    disk: Verdict,
}

/// A leader's evaluation of its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Verdict {
    /// How often in a row its own disk was slow.
    slow: u32,
    /// The first of these times.
    since: Instant,
    /// The next evaluation is not before this.
    look_at: Instant,
    /// Leadership is not transferred before this.
    leave_at: Instant,
}

impl Verdict {
    fn new(now: Instant, election_timeout: Duration) -> Verdict {
        Verdict { slow: 0, since: now, look_at: now, leave_at: now + election_timeout * LEAVES_APART }
    }
}

/// The leader, as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) timing: Timing,
    /// Its own priority.
    pub(crate) priority: u8,
    /// It has committed an entry of its term, and no transfer is under way.
    pub(crate) is_settled: bool,
    /// A membership change is under way.
    pub(crate) members_change: bool,
}

/// A transfer that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// To a voter of higher priority.
    ToPriority(NodeId),
    /// To a voter with a faster disk: its time, and the leader's.
    FromSlowDisk { to: NodeId, its: Duration, own: Duration },
}

impl TransferPolicy {
    pub(crate) fn new(config: TransferConfig) -> TransferPolicy {
        TransferPolicy { config, fresh: None, own: None }
    }

    /// Another leader or term; `leads` if this member is that leader.
    pub(crate) fn leader_changed(&mut self, now: Instant, election_timeout: Duration, leads: bool) {
        let disk = Verdict::new(now, election_timeout);
        self.own = leads.then_some(OwnLeadership { offer_at: now + election_timeout, disk });
    }

    /// This member's disk took so long. Returns whether answers are to report it. [Rule 2]
    pub(crate) fn disk_took(&mut self, took: Duration) -> bool {
        if self.config.from_slow_disk {
            self.fresh = Some(took);
        }
        self.config.from_slow_disk
    }

    /// The transfer that is due, if this member leads. `successors` are the voters that could take over.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        sight: Sight,
        successors: impl Iterator<Item = Successor> + Clone,
    ) -> Option<Transfer> {
        let TransferPolicy { config, fresh, own } = self;
        let own = own.as_mut()?;
        let offer = config.to_priority.then(|| own.offer(now, sight, successors.clone())).flatten();
        if now < own.disk.look_at {
            return offer;
        }
        let Some(took) = fresh.take() else { return offer };
        let sight = Sight { is_settled: sight.is_settled && offer.is_none(), ..sight };
        let leave = own.disk.evaluate(now, took, sight, successors);
        offer.or(leave)
    }
}

impl OwnLeadership {
    /// The voter of higher priority to which leadership is offered now. [Rule 1]
    fn offer(
        &mut self,
        now: Instant,
        sight: Sight,
        successors: impl Iterator<Item = Successor>,
    ) -> Option<Transfer> {
        if !sight.is_settled || now < self.offer_at {
            return None;
        }
        let best = successors.max_by_key(Successor::rank)?;
        let is_well =
            now.since(best.last_contact) <= sight.timing.rest_interval() + sight.timing.heartbeat_interval;
        if !best.holds_committed || !is_well || best.priority <= sight.priority {
            return None;
        }
        self.offer_at = now + sight.timing.election_timeout * OFFERS_APART;
        Some(Transfer::ToPriority(best.voter))
    }
}

impl Verdict {
    /// Evaluates a new time of the leader's disk; the transfer, if that disk is slow for good. [Rules 3, 4, 6]
    fn evaluate(
        &mut self,
        now: Instant,
        own: Duration,
        sight: Sight,
        successors: impl Iterator<Item = Successor>,
    ) -> Option<Transfer> {
        let Timing { election_timeout, heartbeat_interval } = sight.timing;
        self.look_at = now + heartbeat_interval;
        let is_worth_it = heartbeat_interval / 10 <= own;
        let fastest = fastest(sight.priority, successors);
        let Some((its, to)) = fastest.filter(|(its, _)| is_worth_it && *its * TIMES < own) else {
            self.slow = 0;
            return None;
        };
        if self.slow == 0 {
            self.since = now;
        }
        self.slow = self.slow.saturating_add(1);
        let is_for_good = IN_A_ROW <= self.slow && election_timeout <= now.since(self.since);
        let stays = !sight.is_settled || sight.members_change;
        if stays || !is_for_good || now < self.leave_at {
            return None;
        }
        *self = Verdict::new(now, election_timeout);
        Some(Transfer::FromSlowDisk { to, its, own })
    }
}

/// The time of the fastest disk of an eligible voter, and the voter. [Rule 5]
fn fastest(own_priority: u8, successors: impl Iterator<Item = Successor>) -> Option<(Duration, NodeId)> {
    let least = own_priority.max(1);
    let able = successors.filter(|voter| voter.holds_committed && least <= voter.priority);
    let timed = able.filter(|voter| !voter.disk.is_zero());
    let times = timed.map(|voter| (voter.disk, voter.voter));
    times.min()
}

impl Node {
    /// The driver has timed this member's disk. [Rule 2]
    pub(crate) fn on_disk_took(&mut self, took: Duration) {
        if self.transfers.disk_took(took) {
            self.raft.disk_took(took);
        }
    }

    /// Leader: begins the transfer that the policy finds due.
    pub(crate) fn transfer_by_policy(&mut self, now: Instant, out: &mut kattu_raft::Effects) {
        let raft = &self.raft;
        let sight = Sight {
            timing: raft.timing(),
            priority: raft.priority_of(raft.id()),
            is_settled: raft.is_settled(),
            members_change: raft.membership().is_joint() || raft.committed() < raft.membership_at(),
        };
        let target = match self.transfers.tick(now, sight, raft.successors(now)) {
            None => return,
            Some(Transfer::ToPriority(to)) => to,
            Some(Transfer::FromSlowDisk { to, its, own }) => {
                out.trace.push(Trace::SlowDisk { own, fastest: to, its });
                to
            }
        };
        let _ = self.raft.transfer(now, target, out); // an ineligible target is ignored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kattu_raft::LogIndex;

    const HEARTBEAT: Duration = Duration::from_millis(100);
    const ET: Duration = Duration::from_millis(1000);
    const OWN: u8 = 100;
    const SIGHT: Sight = Sight {
        timing: Timing { election_timeout: ET, heartbeat_interval: HEARTBEAT },
        priority: OWN,
        is_settled: true,
        members_change: false,
    };
    const BEGAN: Instant = Instant(1_000_000_000);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A voter that is heard all the time.
    fn voter(id: u64, priority: u8, disk: Duration) -> Successor {
        let (voter, matched, last_contact) = (NodeId(id), LogIndex(7), Instant(u64::MAX));
        Successor { voter, holds_committed: true, matched, priority, last_contact, disk }
    }

    /// A leader since [`BEGAN`].
    fn leader(to_priority: bool, from_slow_disk: bool) -> TransferPolicy {
        let mut policy = TransferPolicy::new(TransferConfig { to_priority, from_slow_disk });
        policy.leader_changed(BEGAN, ET, true);
        policy
    }

    /// Ticks the policy every ten milliseconds in this span after [`BEGAN`], with such a time of its own disk each time
    /// and `sight` at that moment; the transfers, and when they began.
    fn ticks(
        policy: &mut TransferPolicy,
        span: core::ops::Range<u64>,
        own: impl Fn(u64) -> Duration,
        sight: impl Fn(u64) -> Sight,
        voters: &[Successor],
    ) -> Vec<(u64, Transfer)> {
        let mut began = Vec::new();
        for after in span.step_by(10) {
            policy.disk_took(own(after));
            let transfer = policy.tick(BEGAN + ms(after), sight(after), voters.iter().copied());
            began.extend(transfer.map(|transfer| (after, transfer)));
        }
        began
    }

    /// The same, always settled.
    fn writes(
        policy: &mut TransferPolicy,
        span: core::ops::Range<u64>,
        own: Duration,
        voters: &[Successor],
    ) -> Vec<(u64, Transfer)> {
        ticks(policy, span, |_| own, |_| SIGHT, voters)
    }

    fn leaves(to: u64, its: u64, own: u64) -> Transfer {
        Transfer::FromSlowDisk { to: NodeId(to), its: ms(its), own: ms(own) }
    }

    #[test]
    fn a_leader_on_a_slow_disk_leaves_after_ten_election_timeouts_for_the_fastest_and_not_again_for_as_long()
    {
        let voters = [voter(2, OWN, ms(3)), voter(3, OWN, ms(2))];
        let mut policy = leader(false, true);
        let left = writes(&mut policy, 0..25_000, ms(40), &voters);
        assert_eq!(left, [(10_000, leaves(3, 2, 40)), (20_010, leaves(3, 2, 40))]);
        // A new leadership begins with nothing against the disk.
        policy.leader_changed(BEGAN + ms(25_000), ET, false);
        assert_eq!(writes(&mut policy, 25_000..50_000, ms(40), &voters), [], "it does not lead");
        policy.leader_changed(BEGAN + ms(50_000), ET, true);
        assert_eq!(writes(&mut policy, 50_000..61_000, ms(40), &voters), [(60_000, leaves(3, 2, 40))]);
        assert_eq!(writes(&mut leader(true, false), 0..25_000, ms(40), &voters), [], "it was not told to");
    }

    #[test]
    fn slow_is_more_than_four_times_the_fastest_and_a_tenth_of_a_heartbeat_interval() {
        let two = |fast: u64, slow: u64| [voter(2, OWN, ms(slow)), voter(3, OWN, ms(fast))];
        for (own, fast, slow, leaves) in [
            (40, 40, 40, false),
            (40, 10, 10, false),
            (41, 10, 10, true),
            (40, 2, 40, true), // two slow disks of three do not excuse each other
            (9, 1, 1, false),
            (10, 1, 1, true),
            (40, 0, 40, false), // one has reported no time
        ] {
            let left = writes(&mut leader(false, true), 0..20_000, ms(own), &two(fast, slow));
            assert_eq!(!left.is_empty(), leaves, "{own} ms here, {fast} and {slow} ms there: {left:?}");
        }
    }

    #[test]
    fn slow_for_good_is_sixteen_times_in_a_row_and_for_an_election_timeout() {
        let voters = [voter(2, OWN, ms(3))];
        let bursts = |at: u64| match at {
            12_000..12_800 => ms(800),
            17_000..18_200 | 18_400..19_600 => ms(60),
            _ => ms(3),
        };
        assert_eq!(ticks(&mut leader(false, true), 0..25_000, bursts, |_| SIGHT, &voters), []);
        // Sixteen looks at one heartbeat interval each are longer than this election timeout; they are not enough where
        // it is longer.
        let from = |at: u64| if at < 12_000 { ms(3) } else { ms(40) };
        let left = ticks(&mut leader(false, true), 0..25_000, from, |_| SIGHT, &voters);
        assert_eq!(left.first(), Some(&(13_500, leaves(2, 3, 40))));
        let longer = Sight { timing: Timing { election_timeout: ET * 2, ..SIGHT.timing }, ..SIGHT };
        let left = ticks(&mut leader(false, true), 0..25_000, from, |_| longer, &voters);
        assert_eq!(left.first(), Some(&(14_000, leaves(2, 3, 40))));
    }

    #[test]
    fn no_time_is_evaluated_twice() {
        let voters = [voter(2, OWN, ms(3))];
        let mut policy = leader(false, true);
        writes(&mut policy, 0..10, ms(40), &voters);
        for after in (10..30_000).step_by(10) {
            let due = policy.tick(BEGAN + ms(after), SIGHT, voters.iter().copied());
            assert_eq!(due, None, "one slow write, {after} ms ago");
        }
    }

    #[test]
    fn eligible_is_a_voter_of_no_lower_priority_that_holds_what_is_committed() {
        let lags = Successor { holds_committed: false, ..voter(2, OWN, ms(2)) };
        let to = |own: u8, voters: &[Successor]| {
            let sight = Sight { priority: own, ..SIGHT };
            let left = ticks(&mut leader(false, true), 0..11_000, |_| ms(40), |_| sight, voters);
            left.first().map(|(_, transfer)| *transfer)
        };
        assert_eq!(to(OWN, &[voter(2, 50, ms(2)), voter(3, 99, ms(2))]), None);
        assert_eq!(to(OWN, &[voter(2, 50, ms(2)), voter(3, 255, ms(4))]), Some(leaves(3, 4, 40)));
        assert_eq!(to(OWN, &[lags, voter(3, OWN, ms(3))]), Some(leaves(3, 3, 40)));
        assert_eq!(to(0, &[voter(2, 0, ms(2)), voter(3, 0, ms(2))]), None, "0 is never asked");
        assert_eq!(to(0, &[voter(2, 0, ms(2)), voter(3, 1, ms(4))]), Some(leaves(3, 4, 40)));
        assert_eq!(to(OWN, &[]), None);
    }

    #[test]
    fn a_leader_on_a_slow_disk_stays_while_something_is_under_way() {
        let voters = [voter(2, OWN, ms(3))];
        for busy in [Sight { is_settled: false, ..SIGHT }, Sight { members_change: true, ..SIGHT }] {
            let sight = |at: u64| if at < 15_000 { busy } else { SIGHT };
            let left = ticks(&mut leader(false, true), 0..20_000, |_| ms(40), sight, &voters);
            assert_eq!(left, [(15_000, leaves(2, 3, 40))]);
        }
    }

    #[test]
    fn leadership_is_offered_to_the_best_voter_of_higher_priority_after_an_election_timeout() {
        let offers = |voters: &[Successor]| writes(&mut leader(true, false), 0..12_000, ms(1), voters);
        let to = |id: u64| Transfer::ToPriority(NodeId(id));
        let eager = [voter(2, 150, ms(0)), voter(3, 200, ms(0))];
        assert_eq!(offers(&eager), [(1000, to(3)), (11_000, to(3))], "and not again and again");
        assert_eq!(writes(&mut leader(false, true), 0..12_000, ms(1), &eager), [], "it was not told to");
        assert_eq!(offers(&[voter(2, OWN, ms(0)), voter(3, 50, ms(0))]), []);
        let lags = Successor { holds_committed: false, ..voter(3, 200, ms(0)) };
        assert_eq!(offers(&[lags]), []);
        assert_eq!(offers(&[voter(2, 150, ms(0)), lags])[0], (1000, to(2)));
        // One that is silent for longer than a heartbeat at rest and another take, 400 ms, is not well.
        let heard = |after: u64| Successor { last_contact: BEGAN + ms(after), ..voter(2, 150, ms(0)) };
        assert_eq!(offers(&[heard(599)]), []);
        assert_eq!(offers(&[heard(600)]), [(1000, to(2))]);
    }

    #[test]
    fn an_offer_waits_for_a_settled_leader_and_comes_before_a_slow_disk() {
        let voters = [voter(2, 150, ms(9)), voter(3, OWN, ms(2))];
        let unsettled = Sight { is_settled: false, ..SIGHT };
        let sight = |at: u64| if at < 3000 { unsettled } else { SIGHT };
        let began = ticks(&mut leader(true, false), 0..5000, |_| ms(1), sight, &voters);
        assert_eq!(began, [(3000, Transfer::ToPriority(NodeId(2)))]);
        // Both fall due at once.
        let sight = |at: u64| if at < 10_000 { unsettled } else { SIGHT };
        let began = ticks(&mut leader(true, true), 0..10_100, |_| ms(40), sight, &voters);
        assert_eq!(began, [(10_000, Transfer::ToPriority(NodeId(2)))]);
    }

    #[test]
    fn the_time_of_the_disk_is_reported_only_where_leaders_leave_slow_disks() {
        assert!(leader(false, true).disk_took(ms(1)));
        assert!(!leader(true, false).disk_took(ms(1)));
    }
}
