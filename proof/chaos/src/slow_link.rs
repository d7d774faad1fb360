//! `cargo xtask bench slow-link`: a follower that is far behind catches up over a link of limited bandwidth.
//!
//! Method: three members with default settings, all connections between them through the link proxy. One follower is
//! killed, values are written until it is behind by so many bytes, its link gets a bandwidth, and it is restarted.
//! Timed is until it has applied what the leader had at its start. Counted are the bytes of entries that the leader's
//! metrics show as sent meanwhile, and the bytes that came out of the link. Either linearizable reads go on all the
//! time, whose rounds cross the link, too, or there are no reads. Either all connections of the link are reset every
//! five seconds, or never; where they are, the follower is so far behind that its link needs twelve seconds, two resets
//! must have happened meanwhile, and members are told to keep all of the log, because they would send a snapshot
//! otherwise.
//!
//! ```text
//!   goodput = bytes of keys and values that are new to the follower
//!             / bytes of entries sent that can have crossed the link
//!   time    ≤ 1.3 · those bytes / bandwidth
//! ```
//! A member that does not count the entries it sends is judged by all that crossed the link. The judges are those of
//! the simulator: goodput, and progress of the follower, sampled five times a second.
//! Knows nothing of: how members send.

use kattu_proto::etcdserverpb::RangeRequest;
use kattu_rig::place::Place;
use kattu_rig::programs::fresh_folder;
use kattu_rig::proxy::Proxy;
use kattu_rig::weather::Weather;
use kattu_rig::{Cluster, Kv, Member, Page, until_within};
use kattu_verify::service::{Bounds, Goodput, LinkCount, LogIndex, NodeId, Progress, Standing, Violation};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The least goodput. Storms have no resets and demand 0.9. [fault-model P14]
const GOODPUT_MIN: f64 = 0.85;
/// The longest time, as a multiple of the link's time for the missing bytes.
const TIME_MAX: f64 = 1.3;
/// Bytes of each value: small enough that many travel together, large enough that their heads do not count.
pub const VALUE_BYTES: usize = 8 << 10;
const WRITERS: usize = 16;
const READERS: usize = 4;
const RESET_EVERY: Duration = Duration::from_secs(5);
/// Resets that a run with resets must have had.
const RESETS_MIN: u64 = 2;
/// With resets, the link needs so long for the missing bytes.
const WITH_RESETS: Duration = Duration::from_secs(12);
/// A member with default settings that is further behind gets a snapshot.
pub const BEHIND_MAX: u64 = 60_000_000;
/// … and with these it does not.
const KEEP_ALL: [&str; 2] = ["--snapshot-log-bytes=17179869184", "--snapshot-keep-bytes=17179869184"];
/// A return that takes so many times the link's time will never end.
pub const PATIENCE: f64 = 8.0;
const MEMBERS: usize = 3;
/// A follower that is behind must hold more after this. [fault-model P14]
const STANDSTILL: Duration = Duration::from_secs(5);
/// Time between two samples of it.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A condition that does not hold after this never will.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Settings from the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes that the follower is behind; where its link is reset, at least as many as that carries in 12 s.
    pub behind: u64,
    /// Bytes per second of its link.
    pub bandwidths: Vec<u32>,
    /// Only cells with reads, or only those without.
    pub reads: Option<bool>,
    /// Only cells with resets, or only those without.
    pub resets: Option<bool>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { behind: 56_000_000, bandwidths: vec![10_000_000, 50_000_000], reads: None, resets: None }
    }
}

/// One of the combinations.
#[derive(Clone, Copy, Debug)]
struct Cell {
    bandwidth: u32,
    reads: bool,
    resets: bool,
}

impl Cell {
    /// How far behind the follower is: at least `behind` bytes.
    fn behind(self, behind: u64) -> u64 {
        let for_resets = u64::from(self.bandwidth) * WITH_RESETS.as_secs();
        if self.resets { behind.max(for_resets) } else { behind }
    }
}

/// The outcome of a cell.
#[derive(Clone, Debug)]
struct Outcome {
    /// Bytes of keys and values that were new to the follower.
    news: u64,
    /// Bytes that came out of the link to it.
    crossed: u64,
    /// Bytes of entries sent by the leader, if it counts them.
    sent: Option<u64>,
    took: Duration,
    /// It has applied what the leader had.
    is_back: bool,
    /// Linearizable reads answered meanwhile.
    reads: u64,
    resets: u64,
    /// The progress judge's violation.
    stood_still: Option<Violation>,
}

impl Outcome {
    fn count(&self) -> LinkCount {
        // Bytes that a reset took from the leader's buffers were sent and never crossed.
        LinkCount { sent: self.sent.unwrap_or(self.crossed).min(self.crossed), taken: self.news }
    }

    /// Its time as a multiple of the link's time.
    fn times(&self, bandwidth: u32) -> f64 {
        self.took.as_secs_f64() * f64::from(bandwidth) / self.news.max(1) as f64
    }

    /// The violations.
    fn faults(&self, cell: Cell) -> Vec<String> {
        let mut faults: Vec<String> = self.stood_still.iter().map(ToString::to_string).collect();
        if !self.is_back {
            faults.push("it stays behind".into());
        }
        if let Err(violation) = judge_link(self.count(), GOODPUT_MIN) {
            faults.push(violation.to_string());
        }
        if cell.resets && self.resets < RESETS_MIN {
            faults.push(format!(
                "{} resets fell into its return, at least {RESETS_MIN} belong there",
                self.resets
            ));
        }
        if TIME_MAX < self.times(cell.bandwidth) {
            faults.push(format!("it took {:.2} times what the link needs", self.times(cell.bandwidth)));
        }
        faults
    }
}

/// Asks the goodput judge about one link.
///
/// # Errors
/// Its violation.
pub(crate) fn judge_link(count: LinkCount, least: f64) -> Result<(), Violation> {
    let (from, to) = (NodeId(1), NodeId(2));
    let mut goodput = Goodput::default();
    goodput.sent(from, to, count.sent);
    goodput.took(from, to, count.taken);
    goodput.judge(least, 1, 0)
}

/// Runs all cells and prints a line for each.
pub fn run(settings: &Settings) -> ExitCode {
    let picked =
        |only: Option<bool>| [false, true].into_iter().filter(move |it| only.is_none_or(|only| only == *it));
    let mut cells = Vec::new();
    for &bandwidth in &settings.bandwidths {
        for reads in picked(settings.reads) {
            cells.extend(picked(settings.resets).map(|resets| Cell { bandwidth, reads, resets }));
        }
    }
    println!(
        "| link, MB/s | reads | resets | new, MB | entries sent, MB | crossed, MB | goodput | s | … of what the link needs | verdict |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut bad = 0;
    for (number, &cell) in cells.iter().enumerate() {
        let folder = fresh_folder("chaos", &format!("slow-link-{}-{number}", std::process::id()));
        let outcome = match one(cell, cell.behind(settings.behind), &folder) {
            Ok(outcome) => outcome,
            Err(why) => {
                println!("{cell:?}: {why}; see {}", folder.display());
                return ExitCode::FAILURE;
            }
        };
        let mb = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "| {:.0} | {} | {} | {:.1} | {} | {:.1} | {:.2} | {:.1} | {:.2} | {} |",
            mb(u64::from(cell.bandwidth)),
            if cell.reads {
                format!("{:.0}/s", outcome.reads as f64 / outcome.took.as_secs_f64())
            } else {
                "none".into()
            },
            outcome.resets,
            mb(outcome.news),
            outcome.sent.map_or("?".into(), |sent| format!("{:.1}", mb(sent))),
            mb(outcome.crossed),
            outcome.count().ratio(),
            outcome.took.as_secs_f64(),
            outcome.times(cell.bandwidth),
            if outcome.faults(cell).is_empty() { "good" } else { "bad" },
        );
        if outcome.faults(cell).is_empty() {
            let _ = std::fs::remove_dir_all(&folder);
        } else {
            outcome.faults(cell).iter().for_each(|fault| println!("  DOES NOT HOLD: {fault}"));
            println!("  logs in {}", folder.display());
            bad += 1;
        }
    }
    println!(
        "{} passed, {bad} failed: goodput ≥ {GOODPUT_MIN}, time ≤ {TIME_MAX} of what the link needs",
        cells.len() - bad
    );
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A member's applied index, if it answers.
pub fn applied(member: &Member) -> Option<u64> {
    member.probe.status().ok().map(|status| status.raft_applied_index)
}

fn one(cell: Cell, behind: u64, folder: &Path) -> Result<Outcome, String> {
    kattu_rig::cluster::need_real_disk(folder)?;
    let place = Place::loopback(MEMBERS, true);
    let endpoints = place.endpoints.clone();
    let flags = if BEHIND_MAX < behind { &KEEP_ALL[..] } else { &[] };
    let flags = flags.iter().map(ToString::to_string).collect();
    let mut cluster = Cluster::plain(place, folder, "slow-link", flags);
    let proxy = Proxy::start(&endpoints, false, 1, cluster.processes.clone())?;
    cluster.spawn_all()?;
    let members = &mut cluster.members;
    until_within(WAIT_LIMIT, "all serve", || members.iter().all(Member::serves).then_some(()));
    let leader = until_within(WAIT_LIMIT, "one leads", || members.iter().position(Member::leads));
    let follower = (leader + 1) % MEMBERS;
    let witness = (leader + 2) % MEMBERS;
    members[follower].kill();
    write(&members[leader].endpoint.host, behind);

    let goal = until_within(WAIT_LIMIT, "the leader's state", || applied(&members[leader]));
    let limited = Weather { bandwidth: cell.bandwidth, ..Weather::default() };
    for other in [leader, witness] {
        proxy.links.set(other, follower, limited);
        proxy.links.set(follower, other, limited);
    }
    let crossed_before = proxy.links.passed(leader, follower);
    let sent_before = entries_sent(&members[leader].endpoint.host);
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..if cell.reads { READERS } else { 0 })
        .map(|reader| {
            let host = members[if reader % 2 == 0 { leader } else { witness }].endpoint.host.clone();
            let (stop, asked) = (stop.clone(), asked.clone());
            std::thread::spawn(move || read(&host, &stop, &asked))
        })
        .collect();
    cluster.spawn_all()?;
    let members = &mut cluster.members;
    // The link's time counts from its first byte on; before it, a process starts.
    until_within(WAIT_LIMIT, "the leader's first byte", || {
        (crossed_before + 4096 < proxy.links.passed(leader, follower)).then_some(())
    });
    let begun = Instant::now();
    let limit = Duration::from_secs_f64(PATIENCE * behind as f64 / f64::from(cell.bandwidth))
        + Duration::from_secs(5);
    let (mut is_back, mut resets, mut reset_at) = (false, 0, begun + RESET_EVERY);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // Leaders are not judged here.
    let mut progress = Progress::new(Bounds { leaderless: u64::MAX, standstill: nanos(STANDSTILL) });
    let (mut stood_still, mut look_at) = (None, begun);
    while !is_back && begun.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(20));
        let held = applied(&members[follower]);
        is_back = held.is_some_and(|index| goal <= index);
        if look_at <= Instant::now() {
            look_at += LOOK_EVERY;
            // Bytes whose arrival the leader knows count from the first on, entries are applied once they are complete.
            let received = entries_taken(&members[leader].endpoint.host).unwrap_or(0);
            // There are no writes: all that it gets brings it closer.
            let standing =
                Standing { reachable: true, held: LogIndex(held.unwrap_or(0)), received, lacks: None };
            let seen = progress.look_at_member(nanos(begun.elapsed()), NodeId(2), standing, LogIndex(goal));
            stood_still = stood_still.or(seen.err());
        }
        if cell.resets && reset_at <= Instant::now() && !is_back {
            proxy.links.reset(leader, follower);
            (resets, reset_at) = (resets + 1, reset_at + RESET_EVERY);
        }
    }
    let took = begun.elapsed();
    let crossed = proxy.links.passed(leader, follower) - crossed_before;
    let sent =
        entries_sent(&members[leader].endpoint.host).zip(sent_before).map(|(now, before)| now - before);
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().map_err(|_| "a reader panicked".to_string())?;
    }
    let news = if is_back { behind } else { new_bytes(&members[follower], behind) };
    if let Some(ended) =
        members.iter_mut().find_map(|member| member.ended().map(|status| (member.name.clone(), status)))
    {
        return Err(format!("{} ended by itself: {}", ended.0, kattu_rig::process::shown(ended.1)));
    }
    let reads = asked.load(Ordering::Relaxed);
    Ok(Outcome { news, crossed, sent, took, is_back, reads, resets, stood_still })
}

/// Bytes that a follower that is not back has got so far, by the keys that it holds.
fn new_bytes(member: &Member, behind: u64) -> u64 {
    let all = RangeRequest {
        key: b"slow/".to_vec(),
        range_end: b"slow0".to_vec(),
        count_only: true,
        serializable: true,
        ..RangeRequest::default()
    };
    let held = member.reader.range(all).map_or(0, |answer| answer.count as u64);
    (held * (VALUE_BYTES as u64 + KEY_BYTES)).min(behind)
}

/// Bytes of entries that a member has sent to all its peers, by its metrics. There are no writes while this is
/// compared, so entries go only to the follower that is behind.
fn entries_sent(host: &str) -> Option<u64> {
    of_all_peers(host, "kattu_peer_entry_sent_bytes")
}

/// Bytes of entries that its peers have acknowledged.
fn entries_taken(host: &str) -> Option<u64> {
    of_all_peers(host, "kattu_peer_entry_taken_bytes")
}

fn of_all_peers(host: &str, name: &str) -> Option<u64> {
    let page = Page::of(&format!("{host}:2379"))?;
    page.numbers(name).reduce(|sum, count| sum + count)
}

/// Bytes of each key.
pub const KEY_BYTES: u64 = 16;

fn key(number: u64) -> String {
    format!("slow/{number:011}")
}

/// Puts so many bytes, each key once; a put with an unknown outcome is retried, as the leader may just have changed.
pub fn write(host: &str, bytes: u64) {
    let count = bytes.div_ceil(VALUE_BYTES as u64 + KEY_BYTES);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let kv = Kv::of(&format!("{host}:2379"));
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if count <= number {
                        return;
                    }
                    kv.put_surely(key(number), vec![b'x'; VALUE_BYTES]);
                }
            });
        }
    });
}

fn read(host: &str, stop: &AtomicBool, asked: &AtomicU64) {
    let kv = Kv::of(&format!("{host}:2379"));
    while !stop.load(Ordering::Relaxed) {
        if kv.get(key(0)).is_ok() {
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(crossed: u64, seconds: f64, is_back: bool) -> Outcome {
        let took = Duration::from_secs_f64(seconds);
        Outcome {
            news: 50_000_000,
            crossed,
            sent: None,
            took,
            is_back,
            reads: 0,
            resets: 0,
            stood_still: None,
        }
    }

    #[test]
    fn a_link_is_wasted_too_slow_or_not_enough_for_ever() {
        let cell = Cell { bandwidth: 10_000_000, reads: false, resets: false };
        let faults = |outcome: Outcome| outcome.faults(cell).join("; ");
        assert_eq!(faults(outcome(51_000_000, 5.2, true)), "");
        assert!(faults(outcome(60_000_000, 6.0, true)).contains("goodput"));
        assert!(faults(outcome(51_000_000, 6.6, true)).contains("1.32 times what the link needs"));
        assert!(faults(outcome(51_000_000, 5.2, false)).contains("stays behind"));
        let with_resets = Cell { resets: true, ..cell };
        let reset =
            |resets| Outcome { resets, ..outcome(51_000_000, 5.2, true) }.faults(with_resets).join("; ");
        assert_eq!(reset(2), "");
        assert!(reset(1).contains("1 resets fell into its return") && reset(0).contains("0 resets"));
        assert_eq!([cell.behind(56), with_resets.behind(56)], [56, 120_000_000]);
        let busy_with_rounds = Outcome { sent: Some(52_000_000), ..outcome(70_000_000, 6.0, true) };
        assert_eq!(faults(busy_with_rounds), "");
        let mut progress = Progress::new(Bounds { leaderless: u64::MAX, standstill: 5_000_000_000 });
        let still = Standing { reachable: true, held: LogIndex(3), received: 7, lacks: None };
        let mut look =
            |second: u64| progress.look_at_member(second * 1_000_000_000, NodeId(2), still, LogIndex(9));
        assert!(look(0).is_ok() && look(5).is_ok());
        let stood_still = look(6).err();
        assert!(faults(Outcome { stood_still, ..outcome(51_000_000, 5.2, true) }).contains("progress"));
    }
}
