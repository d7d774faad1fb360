//! Calibration: the times of the net, from the samples of the calibration points and by this rule alone.
//!
//! ```text
//!   1 client             stages, latency ─▶ waits of direct links, of this disk
//!   1 client, slow sync  stages, latency ─▶ the same of a machine that sleeps meanwhile; the time of a sync without what was added
//!   1 client, far links  stages, latency ─▶ what a way through the proxy takes beside what was added
//!   1 and 64 clients     processor time = a · rounds + b  (per request; of leader, follower, client) ─▶ a, b
//!   16 clients, 16 KiB   processor time beyond that ─▶ what a KiB costs
//! ```
//! A *round* is one write of a log, with all that had come for it. `b` of the leader is halved: parse, and apply with the answer.
//! Of what a stage takes at one client, its processor time is that of a round and a request; the rest waits, for the disk or for a wake-up. Where
//! the difference is negative, the wait is 0.
//! Knows nothing of: held-out points.

use super::setting::{BATCH_ENTRIES, ONE, Plan, TOGETHER};
use crate::measured::{At, COUNTERS, FOLLOWERS_SYNCS, Measured, PROCESSORS};
use crate::results::Sample;
use crate::statistics::median;
use kattu_petri::{ClientLink, Delay, Host, LogWork, OwnLog, Parameters};

/// The points, by what they calibrate.
pub(super) const CALM: Plan = ONE;
pub(super) const BUSY: Plan = Plan { clients: 64, ..ONE };
pub(super) const SLOW: Plan = Plan { sync_ms: 4, ..ONE };
pub(super) const FAR: Plan = Plan { link_ms: Some(5), ..ONE };
pub(super) const LARGE: Plan = Plan { clients: 16, kib: 16, ..ONE };

/// All of them.
pub(super) const PLANS: [Plan; 5] = [CALM, BUSY, SLOW, FAR, LARGE];

/// Processor time of one request: `round` for each write of a log, `each` for itself, `kib` for each KiB beyond the first. In
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub round: f64,
    pub each: f64,
    pub kib: f64,
}

impl Work {
    /// From (rounds per request, microseconds per request) at few and at many clients, and at many KiB more.
    fn of(calm: (f64, f64), busy: (f64, f64), large: (f64, f64), more_kib: f64) -> Work {
        let round = ((calm.1 - busy.1) / (calm.0 - busy.0).max(1e-3)).max(0.0);
        let each = (busy.1 - round * busy.0).max(0.0);
        let kib = ((large.1 - round * large.0 - each) / more_kib).max(0.0);
        Work { round, each, kib }
    }

    /// One request of so many KiB, without its rounds.
    fn request(&self, kib: u32) -> f64 {
        self.each + self.kib * f64::from(kib - 1)
    }
}

/// Waits at one client, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Waits {
    /// From the receipt of a write to its first message.
    pub sent: f64,
    /// From there until the leader has it on disk.
    pub sync: f64,
    /// From the arrival of an append until its answer is on its way.
    pub follower: f64,
    /// Both ways between leader and follower.
    pub peers: f64,
    /// Both ways between client and leader, with the client's own time.
    pub client: f64,
}

/// All that is calibrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Calibration {
    pub leader: Work,
    pub follower: Work,
    pub client: Work,
    pub calm: Waits,
    pub slow: Waits,
    pub far: Waits,
    pub processors: u32,
}

/// The median over all runs that have it.
fn of(at: &At<'_>, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = at.runs.iter().filter_map(value).filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| median(&values))
}

/// Mean time of a stage in microseconds: of `write` at the leader, of `append` at the followers.
pub(super) fn stage(at: &At<'_>, path: &str, stage: &str) -> Option<f64> {
    of(at, |run| run.stage_us(path, stage))
}

/// Mean latency in microseconds.
pub(super) fn latency(at: &At<'_>) -> Option<f64> {
    of(at, Sample::latency_us)
}

fn counter(at: &At<'_>, name: &str) -> Option<f64> {
    of(at, |run| run.counters.get(name).copied())
}

fn counter_per_op(at: &At<'_>, name: &str) -> Option<f64> {
    of(at, |run| Some(run.counters.get(name)? / run.ops as f64))
}

/// Rounds and microseconds for one request: of the leader, of one follower, of the clients.
fn loads(at: &At<'_>) -> Option<[(f64, f64); 3]> {
    let rounds = counter_per_op(at, COUNTERS[0])?;
    let followers = |run: &Sample| run.members_cpu_us.len().saturating_sub(1).max(1) as f64;
    let of_followers = |run: &Sample| {
        let all = run.members_cpu_us.iter().sum::<f64>() - run.members_cpu_us.get(run.leader)?;
        Some(all / followers(run) / run.ops as f64)
    };
    let rounds_there =
        of(at, |run| Some(run.counters.get(FOLLOWERS_SYNCS)? / followers(run) / run.ops as f64))?;
    Some([
        (rounds, of(at, |run| Some(run.members_cpu_us.get(run.leader)? / run.ops as f64))?),
        (rounds_there, of(at, of_followers)?),
        (rounds, of(at, |run| Some(run.client_cpu_us / run.ops as f64))?),
    ])
}

fn waits(at: &At<'_>) -> Option<Waits> {
    let write = |name: &str| stage(at, "write", name);
    let follower = stage(at, "append", "acknowledged")?;
    Some(Waits {
        sent: write("sent")?,
        sync: write("stored")? - write("sent")?,
        follower,
        peers: (write("replicated")? - write("sent")? - follower).max(0.0),
        client: (latency(at)? - write("answered")?).max(0.0),
    })
}

impl Calibration {
    /// From the calibration points; nothing if one of them has no run.
    pub fn of(measured: &Measured) -> Option<Calibration> {
        let all = measured.all(&[("grid", super::CALIBRATION)]);
        let find = |plan: Plan| all.iter().find(|at| Plan::of(at) == Some(plan));
        let (calm, busy, large) = (find(CALM)?, find(BUSY)?, find(LARGE)?);
        let more_kib = f64::from(LARGE.kib - CALM.kib);
        let (few, many, big) = (loads(calm)?, loads(busy)?, loads(large)?);
        let work = |part: usize| Work::of(few[part], many[part], big[part], more_kib);
        let added = |plan: Plan| plan.sync_ms as f64 * 1e3;
        let ways = |plan: Plan| plan.link_ms.unwrap_or(0) as f64 * 2e3;
        let (slow, far) = (waits(find(SLOW)?)?, waits(find(FAR)?)?);
        Some(Calibration {
            leader: work(0),
            follower: work(1),
            client: work(2),
            calm: waits(calm)?,
            slow: Waits { sync: slow.sync - added(SLOW), follower: slow.follower - added(SLOW), ..slow },
            far: Waits { peers: (far.peers - ways(FAR)).max(0.0), ..far },
            processors: counter(calm, PROCESSORS)? as u32,
        })
    }

    /// The times of the net at a setting.
    pub fn parameters(&self, plan: &Plan) -> Parameters {
        let disk = if 0 < plan.sync_ms { &self.slow } else { &self.calm };
        let links = if plan.link_ms.is_some() { &self.far } else { disk };
        let sync = plan.sync_ms as f64 * 1e3;
        let way = plan.link_ms.unwrap_or(0) as f64 * 1e3;
        // What was measured at one client is of requests of 1 KiB.
        let (leader, follower) = (self.leader.request(1), self.follower.request(1));
        let index = (disk.sent - leader / 2.0).clamp(0.0, self.leader.round);
        let persist = (self.leader.round - index).clamp(0.0, disk.sync.max(0.0));
        let append = self.follower.round.min((disk.follower - follower).max(0.0));
        let constant = |micros: f64| Delay::Constant(micros.max(0.0));
        let half = self.leader.request(plan.kib) / 2.0;
        let client = links.client - self.client.round - self.client.request(1);
        Parameters {
            generate: constant(self.client.request(plan.kib)),
            client_latency: constant(client / 2.0),
            peer_latency: constant(links.peers / 2.0 + way),
            scheduling: Delay::NONE,
            client_link: ClientLink::Shared,
            bandwidth_gbps: 0.0,
            parse: constant(half),
            index: constant(index),
            append: constant(append),
            append_entries_max: BATCH_ENTRIES,
            commit: Delay::NONE,
            apply: constant(half),
            appliers: 1,
            cores: 1,
            switch_penalty: 0.0,
            waiting_runnable: 0.0,
            poll_us: 0.0,
            log: LogWork {
                index_entries_max: BATCH_ENTRIES,
                own: if plan.is_on_thread { OwnLog::Thread } else { OwnLog::Inline },
                persist: constant(persist),
                persist_disk: constant(disk.sync - persist + sync),
                append_disk: constant(disk.follower - append - follower + sync),
                append_each_us: self.follower.request(plan.kib),
                reads_on: plan.is_on_thread,
            },
            host: Some(Host {
                cores: self.processors.max(1),
                client_wake_us: self.client.round,
                clients_per_connection: TOGETHER,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_the_line_through_two_points_and_a_third_for_the_size() {
        // 100 µs a round and 20 a request; 3 µs for each of 15 KiB.
        let work = Work::of((1.0, 120.0), (0.05, 25.0), (0.2, 85.0), 15.0);
        assert!((work.round - 100.0).abs() < 1e-9 && (work.each - 20.0).abs() < 1e-9, "{work:?}");
        assert!((work.kib - 3.0).abs() < 1e-9 && (work.request(3) - 26.0).abs() < 1e-9, "{work:?}");
        // A request that costs more where rounds are few has no round.
        assert_eq!(Work::of((1.0, 10.0), (0.1, 20.0), (0.1, 20.0), 15.0).round, 0.0);
    }

    /// Waits that cannot be told apart from what one client sees, and processor time that fits into them.
    const EXAMPLE: Calibration = {
        let calm = Waits { sent: 70.0, sync: 240.0, follower: 250.0, peers: 60.0, client: 210.0 };
        Calibration {
            leader: Work { round: 150.0, each: 10.0, kib: 1.0 },
            follower: Work { round: 100.0, each: 8.0, kib: 1.0 },
            client: Work { round: 100.0, each: 20.0, kib: 1.0 },
            calm,
            slow: Waits { sync: 400.0, follower: 410.0, ..calm },
            far: Waits { peers: 600.0, ..calm },
            processors: 2,
        }
    };

    fn rate(plan: Plan) -> f64 {
        let parameters = EXAMPLE.parameters(&plan);
        kattu_petri::predict(&parameters, &plan.of_net()).expect("a run").report.accepted_per_s
    }

    #[test]
    fn the_net_gives_one_client_the_latency_that_its_waits_add_up_to() {
        for (plan, micros) in [
            (CALM, 210.0 + 70.0 + 60.0 + 250.0),
            (SLOW, 210.0 + 70.0 + 60.0 + 4410.0),
            (FAR, 210.0 + 70.0 + 10_600.0 + 250.0),
        ] {
            let ratio = rate(plan) * micros / 1e6;
            assert!((0.85..1.15).contains(&ratio), "{}: {ratio}", plan.words());
        }
    }

    #[test]
    fn added_delays_and_logs_that_take_what_waits_decide_the_rate_of_many_clients() {
        let slow = Plan { clients: 16, sync_ms: 8, ..ONE };
        // Clients on one connection share each sync; on two connections a part of them waits for the sync of the others.
        let one_sync = 16e6 / 9_000.0;
        assert!((0.85..1.15).contains(&(rate(slow) / one_sync)), "{}", rate(slow));
        let apart = rate(Plan { clients: 32, ..slow });
        assert!(apart < 1.3 * rate(slow), "{apart} and {}", rate(slow));
        let weak = Plan { is_on_thread: true, is_weak: true, ..slow };
        assert!(4.0 * rate(slow) < rate(weak), "weak answers wait for no disk");
        let far = Plan { link_ms: Some(20), ..slow };
        assert!(rate(far) < rate(slow) / 2.0);
    }
}
