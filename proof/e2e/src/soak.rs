//! Soak: puts for a long time; checks bounds of memory, refusals and history, and whether puts become slower.
//!
//! Method: three members on one machine. Every ten seconds the metrics of each member (sizes, refusals) and the memory of its
//! process are sampled. Two loads:
//! 1. etcd's API at full speed, members with default settings: `kattu bench put` over so many keys with 256 clients, again and
//!    again. Each minute each member is read at a revision of almost five minutes ago. The load goes on despite refusals: its
//!    exit code comes only at its end.
//! 2. The native protocol at 80 % of full speed (`steady_load`), each member with its share of the machine for a quota. The 99th
//!    percentile of the last minute is compared with that of the first; and medians of ten minutes at either end, because a machine
//!    that others share has single minutes in which 80 % of the speed of a while ago is more than it can do.
//!
//! Knows nothing of: how members bound their memory.

use crate::full_load::FullLoad;
use crate::steady_load::{Minute, Puts, SteadyLoad};
use kattu_proto::etcdserverpb::RangeRequest;
use kattu_rig::page::Page;
use kattu_rig::programs::{memory_of, memory_of_machine};
use kattu_rig::until;
use kattu_rig::{Cluster, Options};
use kattu_verify::service::{BoundedMemory, Held, NodeId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two samples of all members.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// History that must be kept, less the time between two looks of a member at its own history.
const HISTORY_MIN: Duration = Duration::from_secs(290);
/// Divisor: between two samples at least this part of the average so far is put; less is a stall.
const USUAL_PART: u64 = 10;
/// Metrics that count refused requests, requests with an open outcome, and refused connections. Failed calls are
/// counted by their code.
const REFUSED: [&str; 5] = [
    "etcd_server_proposals_failed_total",
    "kattu_client_calls_refused_total",
    "kattu_client_connections_refused_total",
    "kattu_client_memory_refused_total",
    "kattu_requests_refused_for_work_total",
];
/// History that must be kept at the steady load, where five minutes of it may be more than the quota.
const HISTORY_MIN_STEADY: Duration = Duration::from_secs(28);
/// Members look at their history every second, from their start on; their number is as old as that.
const HISTORY_TIME: Duration = Duration::from_secs(20);
/// So many times the 99th percentile of the first minutes may that of the last ones be.
const SLOWER_MAX: f64 = 1.5;
/// Most minutes at either end.
const MINUTES_COMPARED: usize = 10;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its length.
    pub length: Duration,
    /// Different keys.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Quota of each member, in bytes, instead of the default; a small one shows that violations are found.
    pub quota: Option<u64>,
    /// The native protocol at 80 % of full speed, instead of etcd's API at full speed.
    pub is_steady: bool,
}

impl Settings {
    fn history_min(self) -> Duration {
        if self.is_steady { HISTORY_MIN_STEADY } else { HISTORY_MIN }
    }
}

/// The clients.
enum Load {
    Full(FullLoad),
    Steady(SteadyLoad),
}

impl Load {
    fn start(cluster: &Cluster, settings: Settings) -> Load {
        let Settings { keys, value_bytes, .. } = settings;
        let endpoints = cluster.endpoints();
        match settings.is_steady {
            true => Load::Steady(SteadyLoad::start(Puts { endpoints, keys, value_bytes })),
            false => Load::Full(FullLoad::start(&endpoints, keys, value_bytes)),
        }
    }

    fn minutes(&self) -> Vec<Minute> {
        match self {
            Load::Full(_) => Vec::new(),
            Load::Steady(load) => load.minutes(),
        }
    }
}

/// One sample of all members.
#[derive(Clone, Debug)]
pub struct Look {
    /// Time since the load began.
    pub at: Duration,
    /// Resident memory of each process, in bytes.
    pub resident: Vec<u64>,
    /// Size and quota of each store, in bytes.
    pub stores: Vec<(u64, u64)>,
    /// Seconds of history that each member reports as kept.
    pub history_seconds: Vec<u64>,
    /// The highest revision of any member.
    pub revision: u64,
    /// Whether a member refuses growth.
    pub is_short: bool,
    /// Counts of refusals, by metric, summed over all members; zeros are left out.
    pub refused: BTreeMap<String, u64>,
    /// The last minute of the steady load that has ended.
    pub minute: Option<Minute>,
}

/// The results.
#[derive(Clone, Debug)]
pub struct Report {
    /// All samples.
    pub looks: Vec<Look>,
    /// The minutes of a steady load.
    pub minutes: Vec<Minute>,
    /// Bytes of memory of the machine.
    pub machine: u64,
    /// Runs of the load that ended with operations refused or failed.
    pub failed_loads: u64,
    /// Violations, one line each.
    pub broken: Vec<String>,
}

/// Runs the load; `each` gets every sample.
pub fn run(settings: Settings, mut each: impl FnMut(&Look)) -> Report {
    let machine = memory_of_machine("MemTotal").expect("the kernel reports its memory");
    // A member alone would take half of the machine; three of them share it.
    let quota = settings.quota.or(settings.is_steady.then_some(machine / 6));
    let flags = quota.map(|bytes| format!("--quota-backend-bytes={bytes}")).into_iter().collect();
    let mut cluster = Cluster::with("soak", Options { members: 3, flags });
    let begun = Instant::now();
    let mut report =
        Report { looks: Vec::new(), minutes: Vec::new(), machine, failed_loads: 0, broken: Vec::new() };
    let mut load = Load::start(&cluster, settings);
    while begun.elapsed() < settings.length && report.broken.is_empty() {
        std::thread::sleep(LOOK_EVERY.min(settings.length.saturating_sub(begun.elapsed())));
        match &mut load {
            Load::Full(full) => {
                if let Some(succeeded) = full.ended() {
                    if !succeeded {
                        report.failed_loads += 1;
                        report.broken.push("an operation of the load was refused or failed".into());
                    }
                    load = Load::start(&cluster, settings);
                }
            }
            Load::Steady(steady) => {
                report.failed_loads += u64::from(steady.failed().is_some());
                report.broken.extend(steady.failed());
            }
        }
        for member in &mut cluster.members {
            if !member.is_running() {
                report.broken.push(format!("{} has ended by itself: {}", member.name, member.log_text()));
                return report;
            }
        }
        report.minutes = load.minutes();
        let look = Look { minute: report.minutes.last().copied(), ..look(&cluster, begun.elapsed()) };
        each(&look);
        report.broken.extend(broken(&look, machine, settings.history_min()));
        report.broken.extend(stalled(&report.looks, &look));
        report.looks.push(look);
        if !settings.is_steady {
            report.broken.extend(read_back(&cluster, begun, &report.looks));
        }
    }
    if settings.is_steady && report.minutes.len() < 2 && report.broken.is_empty() {
        report.broken.push("the run was too short to compare two minutes: it takes eight at least".into());
    }
    report.broken.extend(slower(&report.minutes));
    report
}

/// The violations, if the last minute, or the median of the last minutes, was slower than the first by more than is allowed. The
/// medians are of a third of all at either end, of ten at most.
fn slower(minutes: &[Minute]) -> Vec<String> {
    let many = (minutes.len() / 3).clamp(1, MINUTES_COMPARED);
    let counts = if many == 1 { vec![1] } else { vec![1, many] };
    counts.into_iter().filter_map(|count| slower_by(minutes, count)).collect()
}

fn slower_by(minutes: &[Minute], count: usize) -> Option<String> {
    let (first, last) = (minutes.get(..count)?, &minutes[minutes.len() - count..]);
    let (first, last) = (p99_ms(first), p99_ms(last));
    (first * SLOWER_MAX < last).then(|| {
        format!("p99 of the last minutes ({count}, median) is {last:.1} ms, more than {SLOWER_MAX} times the first's {first:.1}")
    })
}

/// The median of the 99th percentiles of minutes, of two in the middle the higher one.
fn p99_ms(minutes: &[Minute]) -> f64 {
    let mut all: Vec<f64> = minutes.iter().map(|minute| minute.p99_ms).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Once a minute: reads on every member at a revision that must still be kept; returns the errors. Samples and reads
/// take time beside puts at full speed, so the revision is chosen anew when a member's turn comes.
fn read_back(cluster: &Cluster, begun: Instant, looks: &[Look]) -> Vec<String> {
    let mut failed = Vec::new();
    if !looks.len().is_multiple_of(6) {
        return failed;
    }
    for member in &cluster.members {
        let Some(old) = oldest_kept(looks, begun.elapsed()) else { continue };
        let revision = i64::try_from(old.revision).expect("far below");
        let request = RangeRequest {
            key: vec![0],
            range_end: vec![0],
            count_only: true,
            revision,
            ..RangeRequest::default()
        };
        let asked = begun.elapsed().saturating_sub(old.at);
        if let Err(error) = member.kv().range(request) {
            let answered = begun.elapsed().saturating_sub(old.at);
            failed.push(format!(
                "{} cannot read at revision {revision}, of {asked:?} ago, {answered:?} when it answered: {error}",
                member.name
            ));
        }
    }
    failed
}

/// The oldest sample whose revision every member must still keep, once the load has run long enough.
fn oldest_kept(looks: &[Look], now: Duration) -> Option<&Look> {
    let is_kept = |look: &&Look| now <= look.at + HISTORY_MIN;
    looks.iter().find(is_kept).filter(|_| HISTORY_MIN + HISTORY_TIME <= now)
}

fn look(cluster: &Cluster, at: Duration) -> Look {
    let mut look = Look {
        at,
        resident: Vec::new(),
        stores: Vec::new(),
        history_seconds: Vec::new(),
        revision: 0,
        is_short: false,
        refused: BTreeMap::new(),
        minute: None,
    };
    for member in &cluster.members {
        let page = until("a page of metrics", || Page::of(&member.address()));
        let number = |name: &str| page.number(name).unwrap_or_else(|| panic!("no {name}"));
        look.resident.push(memory_of(member.pid(), "VmRSS"));
        look.stores
            .push((number("etcd_mvcc_db_total_size_in_bytes"), number("etcd_server_quota_backend_bytes")));
        look.history_seconds.push(number("kattu_history_seconds"));
        look.revision = look.revision.max(number("etcd_debugging_mvcc_current_revision"));
        look.is_short |= number("kattu_no_space") != 0;
        let ended = page.lines("grpc_server_handled_total").filter(|line| !line.contains("grpc_code=\"OK\""));
        let ended =
            ended.filter_map(|line| line.rsplit_once(' ')).map(|(labels, count)| (labels, count.parse()));
        let ended = ended.map(|(labels, count)| (labels.to_string(), count.unwrap_or(u64::MAX)));
        let refused = REFUSED.iter().map(|name| ((*name).to_string(), number(name)));
        for (name, count) in refused.chain(ended).filter(|(_, count)| 0 < *count) {
            *look.refused.entry(name).or_default() += count;
        }
    }
    look
}

/// The violation, if puts have stalled. The usual rate is the mean of all samples so far.
fn stalled(before: &[Look], look: &Look) -> Option<String> {
    let (first, last) = (before.first()?, before.last()?);
    let usual = (last.revision - first.revision) / (before.len() as u64 - 1).max(1);
    let put = look.revision.saturating_sub(last.revision);
    let is_stalled = 1 < before.len() && put < usual.div_ceil(USUAL_PART);
    is_stalled.then(|| format!("{put} puts in {:?}, where {usual} are usual", look.at - last.at))
}

/// The violations in one sample.
fn broken(look: &Look, machine: u64, history_min: Duration) -> Vec<String> {
    let mut broken = Vec::new();
    let together: u64 = look.resident.iter().sum();
    if machine <= together {
        broken.push(format!("the members hold {together} bytes of {machine} together"));
    }
    for (place, (held, quota)) in look.stores.iter().enumerate() {
        let mut memory = BoundedMemory::new().with(Held::History, *quota);
        broken.extend(
            memory.holds(NodeId(place as u64 + 1), Held::History, *held).err().map(|why| why.to_string()),
        );
    }
    if look.is_short {
        broken.push("growth is refused".into());
    }
    for (name, count) in &look.refused {
        broken.push(format!("refused or failed: {name} is {count}"));
    }
    let reaches = look.history_seconds.iter().min().copied().unwrap_or(0);
    if history_min + HISTORY_TIME <= look.at && reaches < history_min.as_secs() {
        broken.push(format!("history reaches back {reaches} s after {:?}", look.at));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_judged() {
        let good = Look {
            at: Duration::from_secs(400),
            resident: vec![100, 100, 100],
            stores: vec![(50, 60); 3],
            history_seconds: vec![300; 3],
            revision: 1,
            is_short: false,
            refused: BTreeMap::new(),
            minute: None,
        };
        assert_eq!(broken(&good, 1000, HISTORY_MIN), Vec::<String>::new());
        let said = |look: Look, machine: u64| broken(&look, machine, HISTORY_MIN).join("; ");
        assert!(said(good.clone(), 300).contains("together"));
        assert!(
            said(Look { stores: vec![(61, 60)], ..good.clone() }, 1000)
                .contains("61 bytes for history, 60 are allowed")
        );
        assert!(said(Look { is_short: true, ..good.clone() }, 1000).contains("growth is refused"));
        let refused = BTreeMap::from([("kattu_client_calls_refused_total".to_string(), 1)]);
        assert!(
            said(Look { refused, ..good.clone() }, 1000).contains("kattu_client_calls_refused_total is 1")
        );
        let short = Look { history_seconds: vec![300, 200, 300], ..good.clone() };
        assert!(said(short.clone(), 1000).contains("history reaches back 200 s"));
        assert_eq!(
            said(Look { at: Duration::from_secs(200), ..short }, 1000),
            "",
            "nobody has run for so long"
        );
    }

    fn look(second: u64, revision: u64) -> Look {
        Look {
            at: Duration::from_secs(second),
            resident: Vec::new(),
            stores: Vec::new(),
            history_seconds: Vec::new(),
            revision,
            is_short: false,
            refused: BTreeMap::new(),
            minute: None,
        }
    }

    #[test]
    fn a_member_is_asked_for_what_must_still_be_there_when_it_is_asked() {
        let looks: Vec<Look> = (1..=40).map(|tens| look(10 * tens, tens)).collect();
        let asked = |now: u64| oldest_kept(&looks, Duration::from_secs(now)).map(|look| look.at.as_secs());
        assert_eq!(asked(309), None, "no member has history of five minutes");
        assert_eq!(asked(310), Some(20));
        assert_eq!(asked(400), Some(110));
        assert_eq!(asked(401), Some(120), "a second later the look before is too old");
        assert_eq!(asked(691), None);
    }

    #[test]
    fn puts_that_come_to_a_stop_are_seen() {
        let before = [look(10, 1000), look(20, 2000), look(30, 3000)];
        for (count, revision, is_stalled) in [
            (3, 3100, false),
            (3, 3099, true),
            (3, 3000, true),
            (2, 2100, false),
            (1, 1000, false),
            (0, 0, false),
        ] {
            let found = stalled(&before[..count], &look(40, revision));
            assert_eq!(found.is_some(), is_stalled, "{count} looks before {revision}: {found:?}");
        }
    }

    #[test]
    fn last_minutes_that_are_slower_than_the_first_are_seen() {
        let minutes = |p99s: &[f64]| -> Vec<Minute> {
            let minute = |&p99_ms| Minute { most: 100, rate: 80, p50_ms: 1.0, p99_ms, stolen: 0.0 };
            p99s.iter().map(minute).collect()
        };
        assert!(slower(&[]).is_empty());
        assert!(slower(&minutes(&[10.0, 90.0, 15.0])).is_empty(), "only the last one counts");
        assert!(slower(&minutes(&[10.0, 15.1]))[0].contains("15.1 ms"));
        let single: Vec<f64> = (0..40).map(|minute| if minute % 5 == 3 { 900.0 } else { 10.0 }).collect();
        assert!(
            slower(&minutes(&single)).is_empty(),
            "single slow minutes, spread over the hour, say nothing"
        );
        let last_only: Vec<f64> = (0..40).map(|minute| if minute == 39 { 15.1 } else { 10.0 }).collect();
        assert!(matches!(&slower(&minutes(&last_only))[..], [why] if why.contains("(1, median)")));
        let last_ten: Vec<f64> =
            (0..40).map(|minute| if (30..39).contains(&minute) { 15.1 } else { 10.0 }).collect();
        assert!(matches!(&slower(&minutes(&last_ten))[..], [why] if why.contains("(10, median)")));
    }
}
