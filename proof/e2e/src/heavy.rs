//! Heavy requests: one legal request about millions of keys after the other, and their effect on all other clients.
//!
//! Method: three members with default flags. Clients put keys of their own at a steady rate, to each member in turn,
//! without waiting for earlier puts; a put's time counts from the moment at which it was due. Beside them one heavy
//! request after the other goes to a follower. Each has a known verdict: it is carried out whole, or it is refused at
//! once. After each of them every member must run, the leader must lead the same term as before, no put may have waited
//! long, and no member may have been late with a timer by a heartbeat interval. At the end a member is killed and
//! restarted, as it was before the first heavy request. On a smaller machine everything is scaled down, the budget of a
//! request with it.
//! Knows nothing of: how members carry out a request.

mod requests;

use crate::fill::Fill;
use crate::open_loop::{OpenLoop, PUT_LIMIT, Steady};
use kattu_rig::page::Page;
use kattu_rig::until;
use kattu_rig::{Cluster, Options};
use kattu_verify::service::{BoundedStep, NodeId, Work};
use requests::{CARRIED_MAX, Carried, carry_out};
use std::time::{Duration, Instant};

/// No put waits longer.
const PUT_MAX: Duration = Duration::from_secs(2);
/// A refusal arrives within this (median of several). Less than the 5 ms for which a message that is no answer may wait
/// to share a packet with one: a refusal is an answer.
const REFUSED_MAX: Duration = Duration::from_millis(4);
/// Puts go on for so long after a heavy request, to show late effects.
const AFTER: Duration = Duration::from_secs(2);
/// A restart afterwards takes at most so many times as long as before, plus a little.
const RESTART_TIMES_MAX: f64 = 2.0;
const RESTART_SLACK: Duration = Duration::from_secs(2);
/// A step of the store stays below three slices: one, its last piece, and the largest piece that is not cut.
const STEP_UNITS_MAX: u64 = 3 * 8192 - 1;
/// The members' default heartbeat interval: no due timer may wait that long for a request to be carried out.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Default limit of one request's cost. [docs/operations.md, "Large requests"]
const WORK_MAX: u64 = 8 << 20;
/// The store's quota of each member: ten million keys must fit.
const QUOTA: &str = "--quota-backend-bytes=8589934592";
/// Few keys, so that only the heavy keys decide about a refusal.
const STEADY: Steady = Steady { keys: 1000, value_bytes: 100 };
/// The keys that heavy requests are about, with small values.
const KEYS: Fill = Fill { key, value: |number| number.to_le_bytes().to_vec() };

/// A heavy request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// 126 ranges of everything and one put, over 500,000 keys: above the budget.
    Transaction,
    /// A read of all of 500,000 keys.
    FullRange,
    /// Ranges of everything in another order, just within the budget, and a put.
    TransactionWithin,
    /// 128 compares of everything over five million keys: above the budget.
    Compares,
    /// One such compare, within the budget.
    ComparesWithin,
    /// Ten million versions are compacted and removed.
    Compaction,
    /// A delete of ten million keys: above the budget.
    DeleteAll,
    /// A read of all of ten million keys: more than an answer may hold.
    RangeAll,
    /// A million keys are deleted.
    DeleteMillion,
}

impl Act {
    /// In ascending order of keys.
    pub const ALL: [Act; 9] = [
        Act::Transaction,
        Act::FullRange,
        Act::TransactionWithin,
        Act::Compares,
        Act::ComparesWithin,
        Act::Compaction,
        Act::DeleteAll,
        Act::RangeAll,
        Act::DeleteMillion,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Act::Transaction => "transaction",
            Act::FullRange => "full-range",
            Act::TransactionWithin => "transaction-within",
            Act::Compares => "compares",
            Act::ComparesWithin => "compares-within",
            Act::Compaction => "compaction",
            Act::DeleteAll => "delete-all",
            Act::RangeAll => "range-all",
            Act::DeleteMillion => "delete-million",
        }
    }

    /// The number of keys that it needs, at full scale.
    fn keys(self) -> u64 {
        match self {
            Act::Transaction | Act::FullRange | Act::TransactionWithin => 500_000,
            Act::Compares | Act::ComparesWithin | Act::Compaction => 5_000_000,
            Act::DeleteAll | Act::RangeAll | Act::DeleteMillion => 10_000_000,
        }
    }

    fn is_refused(self) -> bool {
        matches!(self, Act::Transaction | Act::Compares | Act::DeleteAll | Act::RangeAll)
    }
}

/// The requests to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which requests.
    pub acts: Vec<Act>,
    /// Share of all numbers, in percent.
    pub scale: u64,
    /// Whether times are judged; false on a machine that others use.
    pub judges_times: bool,
}

impl Plan {
    fn scaled(&self, number: u64) -> u64 {
        (number * self.scale / 100).max(1)
    }
}

/// The results of one request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which one.
    pub act: Act,
    /// Keys in the store.
    pub keys: u64,
    /// A description of the outcome.
    pub what: String,
    /// How long its client waited; the median if it was repeated.
    pub took: Duration,
    /// … and the longest.
    pub took_max: Duration,
    /// How often it was sent.
    pub asked: usize,
    /// The longest lateness of a member's timer meanwhile; `None` if it did not exceed the earlier maximum.
    pub late: Option<Duration>,
    /// Puts that were due meanwhile.
    pub puts: usize,
    /// Those that failed.
    pub failed: usize,
    /// The 99th percentile of their times.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
    /// Bounds that did not hold; empty if all did.
    pub faults: Vec<String>,
}

/// The results of all requests.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each request.
    pub seen: Vec<Seen>,
    /// How long a killed member needs to its ready line, with as many keys as the last requests had: before these, and
    /// after the last.
    pub restarts: [Duration; 2],
    /// The longest step of any member, in units of work.
    pub step_max: u64,
    /// The longest lateness of any member's timer.
    pub late_max: Duration,
    /// Bounds of steps, timers or the restart that did not hold.
    pub faults: Vec<String>,
}

impl Report {
    /// Every bound held.
    pub fn is_good(&self) -> bool {
        self.faults.is_empty() && self.seen.iter().all(|seen| seen.faults.is_empty())
    }
}

/// Carries out a plan; `each` gets each result at once. Ends early when a member does.
pub fn run(plan: &Plan, mut each: impl FnMut(&Seen)) -> Report {
    let mut flags = vec![QUOTA.to_string()];
    if plan.scale != 100 {
        flags.push(format!("--request-work-max={}", plan.scaled(WORK_MAX)));
    }
    let mut cluster = Cluster::with("heavy", Options { members: 3, flags });
    let (mut there, mut seen) = (0, Vec::<Seen>::new());
    let mut before = Duration::ZERO;
    for &act in &plan.acts {
        let wanted = plan.scaled(act.keys());
        let leader = cluster.leader();
        KEYS.fill(&cluster.members[leader].address(), there..wanted);
        if there < wanted {
            there = wanted;
            before = restart(&mut cluster, (leader + 1) % 3);
        }
        let of_this_one = judge(plan, act, there, &mut cluster);
        each(&of_this_one);
        let all_run = cluster.members.iter_mut().all(|member| member.is_running());
        seen.push(of_this_one);
        if !all_run {
            break;
        }
    }
    let (step_max, late_max) = longest(&cluster);
    // A restarted member counts from 0.
    let late_max = seen.iter().filter_map(|seen| seen.late).fold(late_max, Duration::max);
    let mut faults = Vec::new();
    // Units are keys, entries and bytes together; the judge does not care which.
    let longest = Work { keys: step_max, ..Work::default() };
    faults.extend(
        BoundedStep::new(STEP_UNITS_MAX).stepped(NodeId(1), longest).err().map(|why| why.to_string()),
    );
    if plan.judges_times && HEARTBEAT < late_max {
        faults
            .push(format!("a heartbeat was missed: something was due for {late_max:.1?} before it was done"));
    }
    let again = if cluster.members.iter_mut().all(|member| member.is_running()) {
        let follower = (cluster.leader() + 1) % 3;
        let again = restart(&mut cluster, follower);
        // There may be more log after the newest snapshot than there was.
        let bound = before.mul_f64(RESTART_TIMES_MAX) + RESTART_SLACK;
        if plan.judges_times && bound < again {
            faults.push(format!(
                "a restart took {again:.1?} at the end, {before:.1?} before, above {bound:.1?}"
            ));
        }
        again
    } else {
        faults.push("a member has ended: no restart was tried".to_string());
        Duration::ZERO
    };
    Report { seen, restarts: [before, again], step_max, late_max, faults }
}

/// The longest step, and the longest lateness of a timer, of any member since the members were started.
fn longest(cluster: &Cluster) -> (u64, Duration) {
    let steps = cluster.members.iter().map(|member| fraction(member, "kattu_work_step_units_max") as u64);
    (steps.max().unwrap_or_default(), lateness(cluster).into_iter().max().unwrap_or_default())
}

/// For each member, the longest lateness of a timer since it was started.
fn lateness(cluster: &Cluster) -> Vec<Duration> {
    let of = |member: &kattu_rig::Member| {
        Duration::from_secs_f64(fraction(member, "kattu_driver_late_seconds_max"))
    };
    cluster.members.iter().map(of).collect()
}

/// The longest lateness in the second of two samples, of the members whose maximum has grown between them.
fn late_between(before: &[Duration], after: &[Duration]) -> Option<Duration> {
    let grown = before.iter().zip(after).filter(|(before, after)| before < after);
    grown.map(|(_, after)| *after).max()
}

/// A number on a member's metrics page.
fn fraction(member: &kattu_rig::Member, name: &str) -> f64 {
    let page = until("a page of metrics", || Page::of(&member.address()));
    let number = page.lines(name).next().and_then(|text| text.parse::<f64>().ok());
    number.unwrap_or_else(|| panic!("no {name}"))
}

/// Kills a member and restarts it; returns how long until it serves.
fn restart(cluster: &mut Cluster, member: usize) -> Duration {
    cluster.members[member].kill();
    let began = Instant::now();
    cluster.members[member].start();
    began.elapsed()
}

fn judge(plan: &Plan, act: Act, keys: u64, cluster: &mut Cluster) -> Seen {
    let leader = cluster.leader();
    let asked = cluster.members[(leader + 2) % 3].address();
    if act == Act::Compaction {
        overwrite(&cluster.members[leader].address(), keys, plan.scaled(10_000_000));
    }
    until("members say which level they know", || is_level(cluster).then_some(()));
    let (before, late_before) = (offices(cluster), lateness(cluster));
    let clients = OpenLoop::start(cluster, STEADY);
    std::thread::sleep(AFTER / 2);
    let from = clients.due();
    let Carried { what, times: waited, mut faults } = carry_out(plan, act, keys, &asked);
    let took = waited[waited.len() / 2];
    std::thread::sleep(AFTER);
    let mut times = clients.stop(from);
    times.sort();
    let failed = times.iter().filter(|time| PUT_LIMIT <= **time).count();
    let longest = times.last().copied().unwrap_or(PUT_LIMIT);
    let p99 = times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(PUT_LIMIT);

    if failed > 0 {
        faults.push(format!("{failed} puts failed"));
    }
    if plan.judges_times && PUT_MAX < longest {
        faults.push(format!("a put waited {longest:.1?}, above {PUT_MAX:?}"));
    }
    let limit = if act.is_refused() { REFUSED_MAX } else { CARRIED_MAX };
    if plan.judges_times && limit < took {
        faults.push(format!("it took {took:.1?}, above {limit:?}"));
    }
    let mut late = None;
    let mut all_run = true;
    for member in &mut cluster.members {
        if !member.is_running() {
            all_run = false;
            faults.push(format!("{} has ended", member.name));
        }
    }
    if all_run {
        late = late_between(&late_before, &lateness(cluster));
        if let Some(late) = late.filter(|late| plan.judges_times && HEARTBEAT < *late) {
            faults
                .push(format!("a heartbeat was missed: something was due for {late:.1?} before it was done"));
        }
        let after = offices(cluster);
        if before != after {
            faults.push(format!("leader and term were {before:x?}, and are {after:x?}"));
        }
    }
    let took_max = waited.last().copied().unwrap_or_default();
    let (asked, puts) = (waited.len(), times.len());
    Seen { act, keys, what, took, took_max, asked, late, puts, failed, p99, longest, faults }
}

/// Each member's leader and term, by its own status.
fn offices(cluster: &Cluster) -> Vec<Option<(u64, u64)>> {
    let of = |member: &kattu_rig::Member| {
        let status = member.kv().within(Duration::from_secs(5)).status().ok()?;
        Some((status.leader, status.raft_term))
    };
    cluster.members.iter().map(of).collect()
}

/// Whether the cluster has the feature level with request budgets, as far as members know of levels.
fn is_level(cluster: &Cluster) -> bool {
    cluster.members.iter().all(|member| member.metric("kattu_feature_level") != Some(0))
}

/// A key of 24 bytes; keys sort by number.
fn key(number: u64) -> Vec<u8> {
    format!("heavy/{number:018}").into_bytes()
}

/// Overwrites existing keys until there are so many more versions.
fn overwrite(address: &str, keys: u64, versions: u64) {
    let mut left = versions;
    while left > 0 {
        let now = left.min(keys);
        KEYS.fill(address, 0..now);
        left -= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_late_before_is_not_this_requests_fault() {
        let ms = |times: [u64; 3]| times.map(Duration::from_millis);
        assert_eq!(late_between(&ms([5, 200, 7]), &ms([5, 200, 7])), None);
        let late = late_between(&ms([5, 200, 7]), &ms([6, 200, 120]));
        assert_eq!(late, Some(Duration::from_millis(120)));
    }
}
