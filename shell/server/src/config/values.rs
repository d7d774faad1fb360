//! Values: settings that are more than one number or one word.
//!
//! Knows nothing of: sources; which values go together.

use super::reader::Reader;
use super::{ClientPatience, ConfigError, ELECTION_TIMEOUT_MAX};
use crate::budget;
use crate::compactor::Retention;
use crate::face::GRPC_OVERHEAD_BYTES;
use crate::level;
use kattu_node::TransferConfig;
use kattu_node::contract::Consistency;
use kattu_raft::{Duration, LeaderLease, LeadershipConfig, ReadPath};
use kattu_runtime::report::{Format, Level, LogOptions, Output};
use kattu_runtime::streams::{Dispatch, STREAMS_MAX, Streams};
use kattu_runtime::tuning::{SETTINGS, Tuning};
use std::path::PathBuf;

/// Settings of elections and leadership, and how far clocks are trusted if leases are turned on later. Leader leases switch
/// suspicion off by themselves. [replication-protocols E3a]
pub(super) fn leadership(given: &Reader<'_>) -> Result<(LeadershipConfig, LeaderLease), ConfigError> {
    let suspicion = given.number("suspicion-delay", 2, 0, ELECTION_TIMEOUT_MAX)?;
    let rho = given.number("clock-drift-ppm", 5000, 0, 500_000)?;
    let margin = given.number("lease-margin", 1, 0, ELECTION_TIMEOUT_MAX)?;
    let leases = given.switch("lease-reads")?;
    if leases && let Some(reads) = given.text("reads").filter(|reads| *reads != "lease") {
        return Err(given.wrong("reads", format!("{reads} and --lease-reads exclude each other")));
    }
    let leases = leases || given.text("reads") == Some("lease");
    let lease = LeaderLease { rho: rho as u32, margin: Duration::from_millis(margin), watch_clocks: true };
    let leadership = LeadershipConfig {
        priority: given.number("election-priority", 100, 0, 255)? as u8,
        suspicion: (0 < suspicion).then(|| Duration::from_millis(suspicion)),
        leader_lease: leases.then_some(lease),
        asks_first: true,
    };
    Ok((leadership, lease))
}

/// What can be tuned while the member runs.
pub(super) fn tuning(
    given: &Reader<'_>,
    leases: Option<LeaderLease>,
    lease: LeaderLease,
    request_bytes_max: u64,
) -> Result<Tuning, ConfigError> {
    let mut tuning = Tuning { lease, ..Tuning::default() };
    // One request must always fit. [fault-model §10]
    let in_flight = &mut tuning.node.raft.inflight_bytes_max;
    *in_flight = (*in_flight).max(request_bytes_max as usize + (64 << 10));
    for named in SETTINGS {
        let Some(text) = given.text(named.name) else { continue };
        if named.lab && !given.switch("lab")? {
            return Err(given.wrong(named.name, "this is for experiments: it needs --lab"));
        }
        let setting =
            named.read(text).map_err(|rule| given.wrong(named.name, format!("{text:?}: {rule}")))?;
        tuning = tuning.with(&[setting]);
    }
    if let Some(lease) = leases {
        tuning.node.raft.reads = ReadPath::Lease(lease);
    }
    Ok(tuning)
}

/// When a leader transfers leadership by itself.
pub(super) fn transfers(given: &Reader<'_>) -> Result<TransferConfig, ConfigError> {
    Ok(TransferConfig {
        to_priority: given.switch("leader-transfer")?,
        from_slow_disk: given.one_of("leave-slow-disk", &[("true", true), ("false", false)])?,
    })
}

/// The default level of reads. An index belongs to one client, so that `at-least` cannot be the default.
pub(super) fn read_consistency(given: &Reader<'_>) -> Result<Consistency, ConfigError> {
    let flag = "read-consistency";
    let Some(text) = given.text(flag) else { return Ok(Consistency::Linearizable) };
    match level::parse(text) {
        Ok(Consistency::AtLeast(_)) => {
            Err(given.wrong(flag, "at-least=INDEX belongs to one client and cannot be the default"))
        }
        Ok(level) => Ok(level),
        Err(what) => Err(given.wrong(flag, what)),
    }
}

/// Etcd's two modes: a duration (a bare number means hours), or a count of revisions. 0 is off in both.
pub(super) fn retention(given: &Reader<'_>) -> Result<Retention, ConfigError> {
    let by_revision = given.one_of("auto-compaction-mode", &[("periodic", false), ("revision", true)])?;
    let default = if by_revision { "0" } else { "1h" }; // the store is in memory: history may not grow for ever
    let text = given.text("auto-compaction-retention").unwrap_or(default);
    let wrong = |what| given.wrong("auto-compaction-retention", format!("{text:?}: {what}"));
    if by_revision {
        return match text.parse::<i64>() {
            Ok(0) => Ok(Retention::Off),
            Ok(count) if 0 < count => Ok(Retention::Revisions(count)),
            _ => Err(wrong("expected a number of revisions, because of --auto-compaction-mode=revision")),
        };
    }
    let period = match text.parse::<u64>() {
        Ok(hours) => hours.checked_mul(3600).map(Duration::from_secs),
        Err(_) => parse_duration(text),
    };
    match period {
        Some(period) if period.is_zero() => Ok(Retention::Off),
        Some(period) if period <= Duration::from_secs(100 * 365 * 86_400) => Ok(Retention::Period(period)),
        _ => Err(wrong("expected a duration such as 30m or 1h, or a number of hours")),
    }
}

/// etcd's flags for log lines. Its three levels above `error` count as `error`.
pub(super) fn log(given: &Reader<'_>) -> Result<LogOptions, ConfigError> {
    let levels = [
        ("info", Level::Info),
        ("debug", Level::Debug),
        ("warn", Level::Warn),
        ("error", Level::Error),
        ("dpanic", Level::Error),
        ("panic", Level::Error),
        ("fatal", Level::Error),
    ];
    let flag = "log-outputs";
    let mut outputs = Vec::new();
    for name in given.text(flag).unwrap_or("stderr").split(',').map(str::trim) {
        let output = match name {
            "stderr" | "default" => Output::Stderr,
            "stdout" => Output::Stdout,
            "" => return Err(given.wrong(flag, "an output is empty; expected stderr, stdout or a path")),
            "systemd/journal" => {
                return Err(
                    given.wrong(flag, "not supported; use stderr, which systemd writes to its journal")
                );
            }
            path => Output::File(PathBuf::from(path)),
        };
        if outputs.contains(&output) {
            return Err(given.wrong(flag, format!("{name} is listed twice")));
        }
        outputs.push(output);
    }
    Ok(LogOptions {
        level: given.one_of("log-level", &levels)?,
        format: given.one_of("log-format", &[("console", Format::Console), ("json", Format::Json)])?,
        outputs,
    })
}

/// Bytes for clients. One request of the largest size must always fit.
pub(super) fn client_memory(given: &Reader<'_>, request_bytes_max: u64) -> Result<u64, ConfigError> {
    let bytes = given.number("client-memory-bytes", 0, 0, 1 << 40)?;
    let least = budget::Budget::least_for(request_bytes_max + GRPC_OVERHEAD_BYTES as u64);
    if 0 < bytes && bytes < least {
        let what = format!("{bytes} is too small; --max-request-bytes needs at least {least}");
        return Err(given.wrong("client-memory-bytes", what));
    }
    Ok(bytes)
}

/// A duration as etcd writes it; at least `least`.
pub(super) fn duration(
    given: &Reader<'_>,
    flag: &'static str,
    default: &str,
    least: Duration,
) -> Result<Duration, ConfigError> {
    let text = given.text(flag).unwrap_or(default);
    let wrong = || given.wrong(flag, format!("{text:?}: expected a duration such as {default}"));
    let duration = parse_duration(text).ok_or_else(wrong)?;
    if duration < least || PATIENCE_MAX < duration {
        let what = format!("{text:?} is not between {least:?} and {} hours", PATIENCE_MAX.as_secs() / 3600);
        return Err(given.wrong(flag, what));
    }
    Ok(duration)
}

/// The longest deadline: in effect none.
const PATIENCE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The shortest deadline that a client on a slow network can still meet.
const PATIENCE_MIN: Duration = Duration::from_millis(100);

pub(super) fn client_patience(given: &Reader<'_>) -> Result<ClientPatience, ConfigError> {
    Ok(ClientPatience {
        header: duration(given, "client-header-timeout", "5s", PATIENCE_MIN)?,
        body: duration(given, "client-body-timeout", "10s", PATIENCE_MIN)?,
        stall: duration(given, "client-stall-timeout", "1m", PATIENCE_MIN)?,
        idle: duration(given, "client-idle-timeout", "10m", PATIENCE_MIN)?,
    })
}

/// The streams to each peer. One of them cannot be read out of order.
pub(super) fn streams(given: &Reader<'_>) -> Result<Streams, ConfigError> {
    let links_per_peer = given.number("links-per-peer", 1, 1, STREAMS_MAX.into())? as u8;
    let dispatch = given.one_of("dispatch", &Dispatch::ALL)?;
    if links_per_peer == 1 && dispatch == Dispatch::Unordered {
        let why = "what is sent on one connection arrives in order: set --links-per-peer to 2 or more";
        return Err(given.wrong("dispatch", why));
    }
    Ok(Streams { links_per_peer, dispatch })
}

/// A power of two from 512 to 4096, or 0 for the disk's own unit.
pub(super) fn sector(given: &Reader<'_>) -> Result<usize, ConfigError> {
    let flag = "log-sector-bytes";
    let bytes = given.number(flag, 0, 0, kattu_wal::block::SECTOR_MAX as u64)?;
    match bytes == 0 || (bytes.is_power_of_two() && kattu_wal::block::SECTOR as u64 <= bytes) {
        true => Ok(bytes as usize),
        false => Err(given.wrong(flag, format!("{bytes} is not one of 0, 512, 1024, 2048, 4096"))),
    }
}

/// A quota of 0 or below means none, as in etcd.
pub(super) fn quota(given: &Reader<'_>) -> Result<u64, ConfigError> {
    let text = given.text("quota-backend-bytes").unwrap_or("0");
    match text.parse::<i64>() {
        Ok(bytes) => Ok(u64::try_from(bytes).unwrap_or(0)),
        Err(_) => Err(given.wrong("quota-backend-bytes", format!("{text:?} is not a whole number"))),
    }
}

/// Reads a duration as Go writes it: `1h30m`, `90s`, `1.5h`, `250ms`. None if it is not one.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit_len] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit_len..];
    }
    Duration::try_from_secs_f64(total).ok()
}
