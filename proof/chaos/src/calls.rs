//! System calls of one member, counted, killed at, or failed: the unmodified binary under `strace`.
//!
//! A *strike* is one harm at the n-th call of one kind. strace counts calls per thread, and so do we: the ranges from
//! which n is drawn are measured on a run of the same shape without any harm.
//! Knows nothing of: the member's reaction.

use kattu_random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// strace detaches within this time, or never. It waits for each thread, which may wait for a sync.
const LET_GO_LIMIT: Duration = Duration::from_secs(60);
/// After the death of a traced process, strace is given so long to detach.
const PATIENCE: Duration = Duration::from_secs(1);

/// Kinds of calls; names in one kind are one call on different systems.
pub const KINDS: &[&str] = &[
    "fdatasync",
    "fsync",
    "pwrite64",
    "write",
    "writev,sendto,sendmsg",
    "rename,renameat,renameat2",
    "unlink,unlinkat",
    "ftruncate",
    "fallocate",
];

/// The effect on the n-th call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// The process is killed as it enters the call: the call does not happen.
    Kill,
    /// The call fails with EIO, once.
    Eio,
    /// The call fails with ENOSPC, once.
    NoSpace,
    /// This call and all after it fail with ENOSPC, until strace detaches.
    NoSpaceOn,
}

impl Harm {
    /// A description.
    pub fn name(self) -> &'static str {
        match self {
            Harm::Kill => "SIGKILL",
            Harm::Eio => "EIO",
            Harm::NoSpace => "ENOSPC once",
            Harm::NoSpaceOn => "ENOSPC from then on",
        }
    }

    /// Harms for calls of a kind. Sockets share `write` and `writev` with files, and no socket fails like a disk.
    fn of(kind: &str) -> &'static [Harm] {
        match kind {
            "fdatasync" | "fsync" => &[Harm::Kill, Harm::Kill, Harm::Eio],
            "pwrite64" => &[Harm::Kill, Harm::Kill, Harm::Eio, Harm::NoSpace],
            "fallocate" | "rename,renameat,renameat2" => {
                &[Harm::Kill, Harm::Kill, Harm::Eio, Harm::NoSpace, Harm::NoSpaceOn]
            }
            "ftruncate" | "unlink,unlinkat" => &[Harm::Kill, Harm::Kill, Harm::Eio],
            _ => &[Harm::Kill],
        }
    }
}

/// The state of a member when it is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Its first start: it creates its directory.
    FirstStart,
    /// It serves small writes.
    Load,
    /// It serves large writes: one segment after the other.
    Rotation,
    /// It restarts after a kill.
    Recovery,
    /// It joins a running cluster: a directory, a snapshot, a vote.
    Joining,
}

impl Phase {
    /// All of them.
    pub const ALL: &'static [Phase] =
        &[Phase::FirstStart, Phase::Load, Phase::Rotation, Phase::Recovery, Phase::Joining];

    /// A description.
    pub fn name(self) -> &'static str {
        match self {
            Phase::FirstStart => "first start",
            Phase::Load => "load",
            Phase::Rotation => "rotation",
            Phase::Recovery => "recovery",
            Phase::Joining => "joining",
        }
    }
}

/// From the first to the last call of a kind in a phase.
pub type Ranges = BTreeMap<(Phase, &'static str), (u64, u64)>;

/// One harm at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// In which phase.
    pub phase: Phase,
    /// The kind of calls that are counted.
    pub kind: &'static str,
    /// The effect.
    pub harm: Harm,
    /// The number of the call, from 1.
    pub n: u64,
}

impl Strike {
    /// Draws one within the measured ranges; `None` if nothing was measured.
    pub fn draw(random: &mut Random, ranges: &Ranges) -> Option<Strike> {
        let phases: Vec<Phase> =
            Phase::ALL.iter().copied().filter(|phase| ranges.keys().any(|(of, _)| of == phase)).collect();
        if phases.is_empty() {
            return None;
        }
        let phase = *random.pick(&phases);
        let kinds: Vec<_> = ranges.iter().filter(|((of, _), _)| *of == phase).collect();
        let ((_, kind), (first, last)) = *random.pick(&kinds);
        let harm = *random.pick(Harm::of(kind));
        // Runs differ a little: the last calls of one may not happen in the next.
        let most = first + (last - first) * 7 / 10;
        Some(Strike { phase, kind, harm, n: random.within(*first..most + 1) })
    }

    /// `strace …`, to put in front of a command line. The child is the program itself: strace detaches itself.
    pub fn wrapper(&self, trace: &Path) -> Vec<String> {
        let (what, more) = match self.harm {
            Harm::Kill => ("signal=SIGKILL", ""),
            Harm::Eio => ("error=EIO", ""),
            Harm::NoSpace => ("error=ENOSPC", ""),
            Harm::NoSpaceOn => ("error=ENOSPC", "+"),
        };
        let inject = format!("inject={}:{what}:when={}{more}", self.kind, self.n);
        strace(trace, self.kind, &["-e".into(), inject])
    }
}

/// Counts all kinds without any harm.
pub fn counting(trace: &Path) -> Vec<String> {
    strace(trace, &KINDS.join(","), &["-ttt".into()])
}

fn strace(trace: &Path, calls: &str, more: &[String]) -> Vec<String> {
    let trace = trace.display().to_string();
    let calls = format!("trace={calls}");
    // Not with --seccomp-bpf, which is faster: strace 6.1 then injects no signals.
    // -I 2: signals can make it detach.
    let words = ["strace", "-D", "-I", "2", "-f", "-qq", "-o", &trace, "-e", &calls];
    words.into_iter().map(str::to_string).chain(more.iter().cloned()).collect()
}

/// Whether strace works here.
///
/// # Errors
/// The reason why not.
pub(crate) fn can_strike() -> Result<(), String> {
    match kattu_rig::disk::missing(kattu_rig::disk::Rig::Inject) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Whether a trace has an injected error.
pub(crate) fn was_injected(trace: &Path) -> bool {
    std::fs::read_to_string(trace).unwrap_or_default().contains("(INJECTED)")
}

/// The most calls of each kind that one thread made before and after a time (seconds since the epoch).
pub fn count(trace: &str, ready: f64) -> BTreeMap<&'static str, (u64, u64)> {
    let mut threads: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for line in trace.lines() {
        let mut fields = line.split_whitespace();
        let (Some(thread), Some(time), Some(call)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (Ok(time), Some((call, _))) = (time.parse::<f64>(), call.split_once('(')) else { continue };
        let counts = threads.entry((thread, call)).or_default();
        if time < ready {
            counts.0 += 1;
        }
        counts.1 += 1;
    }
    let mut most: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    for kind in KINDS {
        for ((_, call), (before, all)) in &threads {
            if kind.split(',').any(|name| name == *call) {
                let entry = most.entry(kind).or_default();
                *entry = (entry.0.max(*before), entry.1.max(*all));
            }
        }
    }
    most
}

/// Detaches strace from a process; `false` if that fails for a while.
///
/// A process that dies just then can leave strace waiting for its first thread, which waits for the others, which wait
/// for strace. It dies anyway, so strace may be killed: until then the process would keep its addresses.
pub fn let_go(process: u32) -> bool {
    let begun = Instant::now();
    loop {
        let Some(tracer) = tracer(process) else { return true };
        let signal = match begun.elapsed() {
            took if LET_GO_LIMIT < took => return false,
            took if PATIENCE < took && is_dead(process) => "KILL",
            // Makes it detach; killed outright it would leave a living process stopped.
            _ => "TERM",
        };
        let _ = Command::new("kill").args(["-s", signal, &tracer.to_string()]).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether its first thread has ended.
fn is_dead(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("State:").is_some_and(|state| state.trim().starts_with('Z')))
}

fn tracer(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()?;
    (tracer != 0).then_some(tracer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
        10 100.5 fdatasync(17) = 0\n10 100.6 fdatasync(17 <unfinished ...>\n11 100.7 fdatasync(3) = 0\n\
        10 100.8 <... fdatasync resumed>) = 0\n10 101.5 fdatasync(17) = 0\n10 101.6 renameat(-100, \"a\", 3, \"b\") = 0\n\
        10 102.0 +++ exited with 0 +++\n";

    #[test]
    fn calls_are_counted_once_and_per_thread() {
        let counts = count(TRACE, 101.0);
        assert_eq!(counts["fdatasync"], (2, 3));
        assert_eq!(counts["rename,renameat,renameat2"], (0, 1));
        assert_eq!(counts.len(), 2);
    }

    #[test]
    fn a_strike_lies_in_the_range_that_was_measured_and_harms_no_socket() {
        let ranges: Ranges = KINDS
            .iter()
            .enumerate()
            .map(|(i, kind)| ((Phase::Load, *kind), (5, 5 + i as u64 * 10)))
            .collect();
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let strike = Strike::draw(&mut random, &ranges).expect("ranges");
            let (first, last) = ranges[&(strike.phase, strike.kind)];
            assert!((first..=last).contains(&strike.n), "{strike:?}");
            assert!(strike.harm == Harm::Kill || !strike.kind.contains("write,") && strike.kind != "write");
        }
        assert_eq!(Strike::draw(&mut random, &Ranges::new()), None);
    }
}
