//! The machine: what it is, and what it can do at best, measured before the first run.
//!
//! A figure of a cluster means little without them: a write waits for a sync, a round trip and a few wake-ups, so their times are
//! the floor of its latency here.
//! Knows nothing of: clusters, experiments.

use crate::statistics::median;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// Syncs that are measured, and their bytes.
const SYNCS: usize = 200;
const SYNC_BYTES: usize = 4096;
/// Round trips and wake-ups that are measured.
const ROUNDS: usize = 2000;
/// A datagram that is lost on loopback ends the measurement.
const LOST: Duration = Duration::from_secs(2);

/// A machine and its limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that the kernel shows.
    pub cores: usize,
    /// Main memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system of the folder of results.
    pub file_system: String,
    /// A 4 KiB append with fdatasync, in microseconds.
    pub sync_us: Times,
    /// From the moment in which one thread wakes another until that one runs, in microseconds.
    pub wake_up_us: Times,
    /// A datagram to another thread over loopback, and back, in microseconds.
    pub round_trip_us: Times,
    /// A byte to another thread over TCP on loopback, and back, in microseconds.
    pub echo_us: Times,
}

/// Median and 99th percentile of many measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Times {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Machine {
    /// Looks, and measures for about a second; writes a file of 800 KiB into the folder meanwhile.
    ///
    /// # Errors
    /// The folder cannot be written; loopback does not work.
    pub fn measure(folder: &Path) -> io::Result<Machine> {
        Ok(Machine {
            processor: line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: cores(),
            memory_bytes: kattu_rig::programs::memory_of_machine("MemTotal").unwrap_or(0),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into(),
            file_system: file_system(folder).unwrap_or_else(|| "unknown".into()),
            sync_us: syncs(folder)?,
            wake_up_us: wake_ups(),
            round_trip_us: round_trips()?,
            echo_us: echoes()?,
        })
    }
}

/// Processors that the kernel shows.
#[must_use]
pub fn cores() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count().max(1)
}

fn line_of(table: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(table).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// The kind of the file system that is mounted closest above a folder. [proc_pid_mounts(5)]
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        folder.starts_with(place).then(|| (place.len(), kind.to_string()))
    });
    // Of two mounts at the same place the later one counts.
    above
        .fold(None, |best: Option<(usize, String)>, found| match best {
            Some(best) if found.0 < best.0 => Some(best),
            _ => Some(found),
        })
        .map(|(_, kind)| kind)
}

fn times(samples: Vec<f64>) -> Times {
    let mut sorted = samples;
    sorted.sort_by(f64::total_cmp);
    Times { p50: median(&sorted), p99: sorted[sorted.len() * 99 / 100] }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn syncs(folder: &Path) -> io::Result<Times> {
    let path = folder.join("sync.tmp");
    let mut file = File::create(&path)?;
    let mut samples = Vec::new();
    for _ in 0..SYNCS {
        let begun = Instant::now();
        file.write_all(&[7; SYNC_BYTES])?;
        file.sync_data()?;
        samples.push(micros(begun));
    }
    std::fs::remove_file(path)?;
    Ok(times(samples))
}

/// Two threads wake each other by turns: a wake-up is half of a turn.
fn wake_ups() -> Times {
    let (there, is_there) = std::sync::mpsc::sync_channel::<()>(0);
    let (back, is_back) = std::sync::mpsc::sync_channel::<()>(0);
    let other = std::thread::spawn(move || while is_there.recv().is_ok() && back.send(()).is_ok() {});
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        if there.send(()).is_err() || is_back.recv().is_err() {
            break;
        }
        samples.push(micros(begun) / 2.0);
    }
    drop(there);
    let _ = other.join();
    times(samples)
}

fn round_trips() -> io::Result<Times> {
    let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    for socket in [&here, &there] {
        socket.set_read_timeout(Some(LOST))?;
    }
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        while there.recv(&mut byte).is_ok_and(|_| byte[0] != 0) && there.send(&byte).is_ok() {}
    });
    let mut samples = Vec::new();
    let mut byte = [1];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        here.send(&byte)?;
        here.recv(&mut byte)?;
        samples.push(micros(begun));
    }
    here.send(&[0])?;
    let _ = other.join();
    Ok(times(samples))
}

fn echoes() -> io::Result<Times> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    for socket in [&here, &there] {
        socket.set_nodelay(true)?;
    }
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut samples = Vec::new();
    let mut byte = [1];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        here.write_all(&byte)?;
        here.read_exact(&mut byte)?;
        samples.push(micros(begun));
    }
    drop(here);
    let _ = other.join();
    Ok(times(samples))
}

/// Processor time of the whole machine and of this process with its ended children, since they began.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    at: Instant,
    /// Ticks in which any program ran, and those that the hypervisor kept. [proc_stat(5)]
    busy: u64,
    stolen: u64,
    /// Ticks of this process and of the children that it has waited for. [proc_pid_stat(5)]
    own: u64,
}

/// [proc_stat(5): USER_HZ]
const TICKS_PER_S: f64 = 100.0;
/// A shorter window has too few ticks to tell one program from another.
const WINDOW_MIN: Duration = Duration::from_millis(200);

impl Busy {
    /// Now.
    #[must_use]
    pub fn now() -> Busy {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or("");
        let ticks: Vec<u64> = first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        // user nice system idle iowait irq softirq steal
        let busy = at(0) + at(1) + at(2) + at(5) + at(6);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let after_name = own.rsplit_once(')').map_or("", |(_, rest)| rest);
        let own =
            after_name.split_whitespace().skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum();
        Busy { at: Instant::now(), busy, stolen: at(7), own }
    }

    /// The share of all processors that neither this process nor its ended children nor `others_of_ours` used since then, but
    /// other programs or the hypervisor; `None` if the time was too short to tell.
    #[must_use]
    pub fn share_of_others(&self, others_of_ours: Duration) -> Option<f64> {
        let now = Busy::now();
        let window = now.at - self.at;
        if window < WINDOW_MIN {
            return None;
        }
        let ours = (now.own - self.own) as f64 / TICKS_PER_S + others_of_ours.as_secs_f64();
        let all = (now.busy + now.stolen - self.busy - self.stolen) as f64 / TICKS_PER_S;
        Some(((all - ours) / (window.as_secs_f64() * cores() as f64)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_limits_that_can_be_measured() {
        let folder = kattu_rig::programs::OwnFolder::new("machine");
        let machine = Machine::measure(folder.path()).expect("a folder and loopback");
        for times in [machine.sync_us, machine.wake_up_us, machine.round_trip_us, machine.echo_us] {
            assert!(0.0 < times.p50 && times.p50 <= times.p99, "{machine:?}");
        }
        assert!(0 < machine.cores && 0 < machine.memory_bytes && !machine.kernel.is_empty(), "{machine:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "its file is gone");
    }

    #[test]
    fn a_short_window_tells_nothing_of_others() {
        assert_eq!(Busy::now().share_of_others(Duration::ZERO), None);
    }
}
