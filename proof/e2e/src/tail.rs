//! Tail: put latency while snapshots are taken all the time, and while compactions run, next to put latency without
//! either.
//!
//! Method: two clusters of three members. One takes no snapshot; the other takes one for each MiB that its log grows
//! by, or as much as the last one had. Clients put at a steady rate, without waiting for earlier puts; a put's time
//! counts from the moment at which it was due. They use the first cluster while nothing else goes on, the second, and
//! the first again while all history is compacted once a second: round by round, so that effects of the machine hit all
//! three alike. History is compacted where snapshots are taken, too: snapshots hold all that may still be read, and
//! would soon be large and rare. The tail judge compares the second and the third with the first. A round counts only
//! if the metrics show that the work beside the puts went on: each member has taken snapshots, or has none; each
//! compaction was acknowledged, and each member has applied the last one.
//! Knows nothing of: how snapshots are taken and history is compacted. [fault-model P18]

use crate::open_loop::{OpenLoop, PUT_LIMIT, RATE, Steady};
use kattu_proto::etcdserverpb::CompactionRequest;
use kattu_rig::page::Page;
use kattu_rig::{Cluster, Options};
use kattu_rig::{until, until_within};
use kattu_verify::service::{Slower, Tails, percentile, tail};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// As in storms. [fault-model P18; `SLOWER` of proof/sim/src/family.rs]
const SLOWER: Slower = Slower { factor: 2.0, allowance: 10_000_000 };
/// Few enough keys that less than a MiB is left after a compaction, and values so large that 2 MiB are written in a
/// second.
const STEADY: Steady = Steady { keys: 200, value_bytes: 4096 };
/// The first puts of a round are not counted: connections are made, and the work of the round before ends.
const WARM: usize = RATE as usize;
/// Interval of compactions.
const COMPACT_EVERY: Duration = Duration::from_secs(1);
/// Limit of a request beside the puts.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// Each member takes at least one snapshot for so many puts: less than a MiB is left after a compaction, and 2 MiB are
/// written in each of the three seconds.
const PUTS_PER_SNAPSHOT: usize = 3 * RATE as usize;
/// At least so many of ten due compactions were requested: each waits for the one before it.
const COMPACTIONS_OF_TEN: usize = 7;
/// A quota that is never reached, whatever the machine has.
const QUOTA: &str = "--quota-backend-bytes=2147483648";

/// The work beside the puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Snapshots, all the time, and compactions.
    Snapshots,
    /// Compactions, once a second.
    Compactions,
}

impl Beside {
    const ALL: [Beside; 3] = [Beside::Nothing, Beside::Snapshots, Beside::Compactions];

    /// Its description in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Beside::Nothing => "nothing goes on",
            Beside::Snapshots => "snapshots are taken",
            Beside::Compactions => "compactions run",
        }
    }
}

/// Put latencies beside one kind of work, all rounds together.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The work.
    pub beside: Beside,
    /// Latencies in nanoseconds.
    pub times: Vec<u64>,
    /// Snapshots that all members took together.
    pub snapshots: u64,
    /// Compactions that were acknowledged.
    pub compactions: usize,
    /// The judge's comparison; `None` for the baseline, and where nothing could be judged or a bound was broken.
    pub tails: Option<Tails>,
}

impl Cell {
    /// p50, p99 and the longest, in nanoseconds.
    #[must_use]
    pub fn percentiles(&self) -> [u64; 3] {
        let mut times = self.times.clone();
        [500, 990, 1000].map(|rank| percentile(&mut times, rank))
    }
}

/// The results.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each kind of work.
    pub cells: Vec<Cell>,
    /// Expectations that did not hold.
    pub faults: Vec<String>,
}

/// Puts for `seconds` beside each kind of work, in this many rounds; times are not judged on a machine that others use.
pub fn run(seconds: u64, rounds: u64, judges_times: bool, mut say: impl FnMut(&str)) -> Report {
    let cluster = |what: &str, flags: &[&str]| {
        let flags = flags.iter().chain(&[QUOTA]).map(ToString::to_string).collect();
        Cluster::with(what, Options { members: 3, flags })
    };
    let without = cluster("tail", &["--snapshot-log-bytes=1099511627776"]);
    let with = cluster("tail-snapshots", &["--snapshot-log-bytes=1048576", "--snapshot-keep-bytes=1048576"]);
    let empty = |beside| Cell { beside, times: Vec::new(), snapshots: 0, compactions: 0, tails: None };
    let mut cells: Vec<Cell> = Beside::ALL.map(empty).into();
    let mut faults = Vec::new();
    let puts = (seconds * u64::from(RATE) / rounds) as usize;
    for round in 1..=rounds {
        for cell in &mut cells {
            let asked = if cell.beside == Beside::Snapshots { &with } else { &without };
            faults.extend(play(asked, puts, cell).err());
        }
        say(&format!("round {round} of {rounds} is over"));
    }
    judge(&mut cells, judges_times, &mut faults);
    Report { cells, faults }
}

/// One round beside one kind of work; an error if that did not go on, or puts failed.
fn play(cluster: &Cluster, puts: usize, cell: &mut Cell) -> Result<(), String> {
    let clients = OpenLoop::start(cluster, STEADY);
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let (from, before, compacted) = std::thread::scope(|scope| {
        let compacts = scope.spawn(|| match cell.beside {
            Beside::Compactions | Beside::Snapshots => compact_until(cluster, &stop),
            Beside::Nothing => Vec::new(),
        });
        // Stops the thread above also if something below panics: the scope waits for it.
        let stopping = Stopping(&stop);
        until("the first puts are due", || (WARM <= clients.due()).then_some(()));
        let before = counters(cluster, "kattu_snapshots_taken_total");
        let from = clients.due();
        let round = Duration::from_secs_f64(puts as f64 / RATE as f64);
        until_within(round + ASK_LIMIT * 4, "the last put is due", || {
            (from + puts <= clients.due()).then_some(())
        });
        drop(stopping);
        (from, before, compacts.join().expect("it does not panic"))
    });
    let lasted = began.elapsed();
    let after = counters(cluster, "kattu_snapshots_taken_total");
    let times = clients.stop(from);
    let failed = times.iter().filter(|time| PUT_LIMIT <= **time).count();
    let nanos = times.iter().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    cell.times.extend(nanos);
    let taken: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    cell.snapshots += taken.iter().sum::<u64>();
    cell.compactions += compacted.len();
    let name = cell.beside.name();
    if failed > 0 {
        return Err(format!("while {name}, {failed} puts failed"));
    }
    match cell.beside {
        Beside::Snapshots => went_on("snapshots", puts / PUTS_PER_SNAPSHOT, &taken)?,
        Beside::Nothing | Beside::Compactions if taken.iter().any(|taken| 0 < *taken) => {
            return Err(format!("while {name}, members took {taken:?} snapshots"));
        }
        Beside::Nothing => return Ok(()),
        Beside::Compactions => {}
    }
    let last = compacted.last().copied().unwrap_or_default();
    until("every member has compacted", || {
        let known = counters(cluster, "etcd_debugging_mvcc_compact_revision");
        known.iter().all(|known| last <= *known).then_some(())
    });
    let due = (lasted.as_secs_f64() / COMPACT_EVERY.as_secs_f64()) as usize;
    went_on("compactions", due * COMPACTIONS_OF_TEN / 10, &[compacted.len() as u64])
}

/// Dropped, it stops the compacting thread.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each of `seen` is at least `least`, and at least 1.
fn went_on(what: &str, least: usize, seen: &[u64]) -> Result<(), String> {
    let least = least.max(1) as u64;
    match seen.iter().all(|seen| least <= *seen) {
        true => Ok(()),
        false => {
            Err(format!("there were {seen:?} {what} in a round, {least} are wanted: nothing was compared"))
        }
    }
}

/// Compacts all history, again and again; returns the revisions.
fn compact_until(cluster: &Cluster, stop: &AtomicBool) -> Vec<u64> {
    let kv = cluster.members[cluster.leader()].kv().within(ASK_LIMIT);
    let mut compacted = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let revision = kv.status().ok().and_then(|status| status.header).map_or(0, |header| header.revision);
        let request = CompactionRequest { revision, physical: false };
        if kv.block_on(async { kv.client().compact(request).await }).is_ok() {
            compacted.push(u64::try_from(revision).unwrap_or_default());
        }
        std::thread::sleep(COMPACT_EVERY.saturating_sub(began.elapsed()));
    }
    compacted
}

/// One metric of each member.
fn counters(cluster: &Cluster, name: &str) -> Vec<u64> {
    let of = |member: &kattu_rig::Member| until(name, || Page::of(&member.address())?.number(name));
    cluster.members.iter().map(of).collect()
}

/// Compares each cell with the first.
fn judge(cells: &mut [Cell], judges_times: bool, faults: &mut Vec<String>) {
    let Some((without, with)) = cells.split_first_mut() else { return };
    for cell in with {
        match tail(cell.beside.name(), &mut cell.times, &mut without.times, SLOWER) {
            Ok(Some(tails)) => cell.tails = Some(tails),
            Ok(None) => {
                let few = (cell.times.len(), without.times.len());
                faults.push(format!("while {}: {few:?} puts are too few to compare", cell.beside.name()));
            }
            Err(violation) => faults.extend(judges_times.then(|| violation.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(beside: Beside, times: Vec<u64>) -> Cell {
        Cell { beside, times, snapshots: 0, compactions: 0, tails: None }
    }

    fn judged(with: Vec<u64>, judges_times: bool) -> Vec<String> {
        let mut cells = [cell(Beside::Nothing, vec![5_000_000; 1000]), cell(Beside::Snapshots, with)];
        let mut faults = Vec::new();
        judge(&mut cells, judges_times, &mut faults);
        faults
    }

    #[test]
    fn puts_beside_something_have_twice_the_tail_and_ten_milliseconds() {
        assert_eq!(judged(vec![20_000_000; 1000], true), Vec::<String>::new());
        let faults = judged(vec![20_000_001; 1000], true);
        assert!(faults.len() == 1 && faults[0].contains("while snapshots are taken"), "{faults:?}");
        assert_eq!(judged(vec![20_000_001; 1000], false), Vec::<String>::new(), "times are not judged");
        assert_eq!(judged(vec![1; 10], false).len(), 1, "nothing was compared");
    }

    #[test]
    fn what_did_not_go_on_is_told() {
        assert_eq!(went_on("snapshots", 2, &[2, 3, 9]), Ok(()));
        assert!(went_on("snapshots", 2, &[2, 1, 9]).is_err());
        assert!(went_on("snapshots", 0, &[1, 0, 1]).is_err());
    }
}
