//! Measured: the eleven times, rates, latencies and disorder of a run.
//!
//! Definitions: `docs/replication-protocols.md` section 13.4. [S4, Table I]
//! Knows nothing of: the net.

use crate::entries::Entry;
use crate::histogram::Histogram;
use crate::marking::Nanos;
use crate::parameters::Setting;
use serde::Serialize;

/// One of the eleven times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// A client makes a request.
    Generate,
    /// Client to leader.
    TransferToLeader,
    /// The leader parses, the wait for a core included.
    Parse,
    /// The entry gets its index, the wait for the lock included.
    Index,
    /// Index end to dequeue, for the follower that received the entry first, as the next three.
    Queue,
    /// Dequeue to arrival.
    TransferToFollower,
    /// Arrival to appendable.
    Wait,
    /// Appendable to appended.
    Append,
    /// First append at any follower until the leader knows of a quorum.
    Acknowledge,
    /// Quorum known to committed.
    Commit,
    /// Committed to applied.
    Apply,
}

impl Stage {
    /// All, in the order of a request's way.
    pub const ALL: [Stage; 11] = [
        Stage::Generate,
        Stage::TransferToLeader,
        Stage::Parse,
        Stage::Index,
        Stage::Queue,
        Stage::TransferToFollower,
        Stage::Wait,
        Stage::Append,
        Stage::Acknowledge,
        Stage::Commit,
        Stage::Apply,
    ];

    /// Its name in the published table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Generate => "t_gen(C)",
            Stage::TransferToLeader => "t_trans(CL)",
            Stage::Parse => "t_prs(L)",
            Stage::Index => "t_idx(L)",
            Stage::Queue => "t_queue(L)",
            Stage::TransferToFollower => "t_trans(LF)",
            Stage::Wait => "t_wait(F)",
            Stage::Append => "t_append(F)",
            Stage::Acknowledge => "t_ack(L)",
            Stage::Commit => "t_commit(L)",
            Stage::Apply => "t_apply(L)",
        }
    }

    /// The published step to which it belongs, 1 to 4.
    #[must_use]
    pub fn step(self) -> usize {
        match self {
            Stage::Generate | Stage::TransferToLeader => 1,
            Stage::Parse | Stage::Index | Stage::Queue => 2,
            Stage::TransferToFollower | Stage::Wait | Stage::Append => 3,
            Stage::Acknowledge | Stage::Commit | Stage::Apply => 4,
        }
    }

    /// What limits it. [S4, Table I]
    #[must_use]
    pub fn limit(self) -> &'static str {
        match self {
            Stage::Generate => "sampling rate of devices",
            Stage::TransferToLeader | Stage::TransferToFollower => "bandwidth",
            Stage::Parse => "memory allocation",
            Stage::Index => "processors, under concurrency",
            Stage::Queue => "processors, bandwidth",
            Stage::Wait => "disorder through concurrency",
            Stage::Append | Stage::Commit => "processors",
            Stage::Acknowledge => "none clear",
            Stage::Apply => "the application",
        }
    }
}

/// Counts while a run goes on.
pub(crate) struct Tally {
    pub made: u64,
    /// Entries that were answered weakly, and whose turn to be answered strongly has not come.
    pub early_open: u64,
    /// Replies that were wanted do not end the run.
    pub is_endless: bool,
    pub is_over: bool,
    warm_up: u64,
    wanted: u64,
    replies: u64,
    weak_replies: u64,
    from: Option<Nanos>,
    until: Nanos,
    stages: [Histogram; 11],
    accepted: Histogram,
    strong: Histogram,
    arrivals: u64,
    late: u64,
    waits: u64,
}

impl Tally {
    pub fn new(setting: &Setting) -> Tally {
        Tally {
            made: 0,
            early_open: 0,
            is_endless: false,
            is_over: false,
            warm_up: setting.warm_up,
            wanted: setting.requests,
            replies: 0,
            weak_replies: 0,
            from: (setting.warm_up == 0).then_some(0),
            until: 0,
            stages: Default::default(),
            accepted: Histogram::default(),
            strong: Histogram::default(),
            arrivals: 0,
            late: 0,
            waits: 0,
        }
    }

    pub fn is_complete(&self) -> bool {
        self.is_over || !self.is_endless && self.warm_up + self.wanted <= self.replies
    }

    /// A client has a reply. True if measuring begins with it.
    pub fn answered(&mut self, now: Nanos, born: Nanos, is_weak: bool) -> bool {
        self.replies += 1;
        self.until = now;
        if self.from.is_some() {
            self.accepted.add(now - born);
            self.weak_replies += u64::from(is_weak);
            return false;
        }
        let begins = self.replies == self.warm_up;
        if begins {
            self.from = Some(now);
        }
        begins
    }

    pub fn applied(&mut self, now: Nanos, born: Nanos) {
        if self.from.is_some() {
            self.strong.add(now - born);
        }
    }

    pub fn arrived(&mut self, is_late: bool) {
        if self.from.is_some() {
            self.arrivals += 1;
            self.late += u64::from(is_late);
        }
    }

    pub fn waited(&mut self) {
        if self.from.is_some() {
            self.waits += 1;
        }
    }

    pub fn entry(&mut self, entry: &Entry) {
        if self.from.is_none_or(|from| entry.request.born < from) {
            return;
        }
        let times = [
            entry.request.t_gen,
            entry.request.t_trans,
            entry.request.t_prs,
            entry.t_idx,
            entry.t_queue,
            entry.t_log,
            entry.t_wait,
            entry.t_append,
            entry.quorum.saturating_sub(entry.first_append),
            entry.committed - entry.quorum,
            entry.applied - entry.committed,
        ];
        self.stages.iter_mut().zip(times).for_each(|(stage, time)| stage.add(time));
    }

    /// What was measured.
    pub fn report(&self) -> Report {
        let from = self.from.unwrap_or(0);
        let seconds = (self.until.saturating_sub(from)).max(1) as f64 / 1e9;
        let sum: f64 = self.stages.iter().map(Histogram::mean_us).sum();
        let time = |(stage, of): (Stage, &Histogram)| Time {
            name: stage.name(),
            step: stage.step(),
            mean_us: of.mean_us(),
            p50_us: of.quantile_us(0.5),
            p99_us: of.quantile_us(0.99),
            share: of.mean_us() / sum.max(f64::MIN_POSITIVE),
        };
        let times: Vec<Time> = Stage::ALL.into_iter().zip(&self.stages).map(time).collect();
        let step = |step: usize| times.iter().filter(|it| it.step == step).map(|it| it.mean_us).sum();
        Report {
            steps_us: [step(1), step(2), step(3), step(4)],
            times,
            accepted_per_s: self.accepted.count() as f64 / seconds,
            strong_per_s: self.strong.count() as f64 / seconds,
            accepted: Latency::of(&self.accepted),
            strong: Latency::of(&self.strong),
            weak_share: ratio(self.weak_replies, self.accepted.count()),
            disorder: ratio(self.late, self.arrivals),
            waited: ratio(self.waits, self.arrivals),
            entries: self.stages[0].count(),
            seconds,
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// One of the eleven times, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Its published name.
    pub name: &'static str,
    /// Its step, 1 to 4.
    pub step: usize,
    /// Mean in microseconds.
    pub mean_us: f64,
    /// Median in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
    /// Its part of the sum of the eleven means, 0 to 1.
    pub share: f64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl Latency {
    fn of(histogram: &Histogram) -> Latency {
        Latency {
            mean_us: histogram.mean_us(),
            p50_us: histogram.quantile_us(0.5),
            p99_us: histogram.quantile_us(0.99),
            p999_us: histogram.quantile_us(0.999),
        }
    }
}

/// What was measured in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The eleven times, in the order of a request's way. Those of followers are taken where the entry arrived first.
    pub times: Vec<Time>,
    /// Sums of the means of each step, in microseconds.
    pub steps_us: [f64; 4],
    /// Replies to clients per second, weak and strong.
    pub accepted_per_s: f64,
    /// Entries that were applied per second.
    pub strong_per_s: f64,
    /// From a request's making to the first reply.
    pub accepted: Latency,
    /// From a request's making until it is applied.
    pub strong: Latency,
    /// The part of replies that are weak, 0 to 1.
    pub weak_share: f64,
    /// The part of arrivals at followers at which the entry before had not arrived, 0 to 1.
    pub disorder: f64,
    /// The part of arrivals at followers that went into the waiting loop, 0 to 1.
    pub waited: f64,
    /// Entries of which the eleven times were taken.
    pub entries: u64,
    /// Simulated seconds in which was measured.
    pub seconds: f64,
}

impl Report {
    /// One of the eleven times.
    #[must_use]
    pub fn time(&self, stage: Stage) -> &Time {
        &self.times[stage as usize]
    }
}

impl crate::simulator::Finished {
    /// What was measured.
    #[must_use]
    pub fn report(&self) -> Report {
        self.tally.report()
    }
}
