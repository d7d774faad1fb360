//! Tuning: every optimisation of a member that can be turned off and on while it runs, with its name, its values and bounds.
//!
//! ```text
//!   flags, file ──▶ Tuning ──▶ Member ──▶ Event::Tune, moves of log and keeper
//!   kattu tune ──▶ Setting… ──▶   │
//!   status, metrics, kattu tune ◀─┘ Tuning::shown
//! ```
//! Rules: 1. A setting is volatile and the member's own: a restart goes by flags again, and the other members need not know. What
//!           all members must agree on is in the configuration entry. [decision 61]
//!        2. Settings that are given together take effect together, or none does.
//!        3. Where a piece of work is done changes nothing else: what waits there moves with it, in order.
//! Knows nothing of: files, HTTP, where settings come from.

use crate::artefacts::Artefacts;
use kattu_raft::{Duration, LeaderLease, ReadPath};
use std::fmt;

/// Where a piece of work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threading {
    /// On the node's thread.
    #[default]
    Inline,
    /// On a thread of its own.
    Thread,
}

/// The tuning of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// That of its replica.
    pub node: kattu_node::Tuning,
    /// How far clocks are trusted where leases are on.
    pub lease: LeaderLease,
    /// Where entries are applied.
    pub apply: Threading,
    /// Where the log is written.
    pub log_io: Threading,
    /// What experiments add to the member's work.
    pub delays: Delays,
    /// The mistakes that experiments make on purpose.
    pub artefacts: Artefacts,
}

/// Work that experiments add, to see what it would cost. All zero outside of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Processor time for each command that is applied.
    pub apply: Duration,
    /// Time that each sync of the log takes longer.
    pub sync: Duration,
}

/// How a leader shows that it still leads before a read is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// An entry is committed for them.
    Log,
    /// A round of messages is answered.
    Index,
    /// A lease holds.
    Lease,
}

/// One setting, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Several entries in an append, and in a sync.
    Batching(bool),
    /// Entries in one append, and in one sync.
    BatchEntriesMax(usize),
    /// Bytes of entries in one append.
    BatchBytesMax(usize),
    /// How long a write waits for others.
    BatchLinger(Duration),
    /// Several appends in flight to a peer.
    Pipelining(bool),
    /// Appends in flight to a peer.
    InflightMsgsMax(usize),
    /// Bytes in flight to a peer.
    InflightBytesMax(usize),
    /// Entries leave before the leader's own sync.
    ParallelAppend(bool),
    /// Where entries are applied.
    Apply(Threading),
    /// Where the log is written.
    LogIo(Threading),
    /// How reads are confirmed.
    Reads(Reads),
    /// A leader accepts no write before the last one is applied.
    ApplyGate(bool),
    /// For experiments: processor time per applied command.
    ApplyDelay(Duration),
    /// For experiments: time added to each sync.
    SyncDelay(Duration),
    /// For experiments: most entries applied whenever something happens; 0: all.
    ApplyEntriesMax(usize),
    /// For experiments: puts are answered before they are stored.
    UnsafeEarlyAnswers(bool),
}

/// A setting by its name: what it does, and how it is read.
pub struct Named {
    /// Its name, in flags, files and commands.
    pub name: &'static str,
    /// What it does, with its values, in one line.
    pub meaning: &'static str,
    /// Only with `--lab`: a member that serves has no use for it.
    pub lab: bool,
    read: fn(&str) -> Result<Setting, String>,
    show: fn(&Tuning) -> String,
}

/// How far clocks are trusted unless the operator says otherwise: ten times the rate at which a disciplined clock is slewed.
pub const LEASE: LeaderLease =
    LeaderLease { rho: 5_000, margin: Duration::from_millis(1), watch_clocks: true };
/// Most entries in a batch, and most appends in flight.
const COUNT_MAX: usize = 1 << 16;
/// Largest `batch-bytes-max`: half of the shortest frame that every member accepts.
pub const BATCH_BYTES_CEILING: usize = 8 << 20;
/// Largest `inflight-bytes-max`: what a lane holds back.
const INFLIGHT_BYTES_CEILING: usize = crate::lanes::BYTES_MAX;
/// Longest linger and delay.
const TIME_MAX: Duration = Duration::from_secs(1);

/// All settings, in the order in which they are shown.
pub const SETTINGS: &[Named] = &[
    Named {
        name: "batching",
        meaning: "several writes share an entry, a message and a sync: on or off",
        lab: false,
        read: |text| on_or_off(text).map(Setting::Batching),
        show: |tuning| switch(tuning.node.raft.batching),
    },
    Named {
        name: "batch-entries-max",
        meaning: "with batching: entries in one message, and in one sync: 1 to 65536",
        lab: false,
        read: |text| number(text, 1, COUNT_MAX).map(Setting::BatchEntriesMax),
        show: |tuning| tuning.node.raft.batch_entries_max.to_string(),
    },
    Named {
        name: "batch-bytes-max",
        meaning: "with batching: bytes of entries in one message; one entry always passes: 1 to 8388608",
        lab: false,
        read: |text| number(text, 1, BATCH_BYTES_CEILING).map(Setting::BatchBytesMax),
        show: |tuning| tuning.node.raft.batch_bytes_max.to_string(),
    },
    Named {
        name: "batch-linger",
        meaning: "with batching: how long a write waits for others to share a batch with: 0 to 1s",
        lab: false,
        read: |text| time(text).map(Setting::BatchLinger),
        show: |tuning| show_time(tuning.node.batch_linger),
    },
    Named {
        name: "pipelining",
        meaning: "several messages with entries under way to a member: on or off",
        lab: false,
        read: |text| on_or_off(text).map(Setting::Pipelining),
        show: |tuning| switch(tuning.node.raft.pipelining),
    },
    Named {
        name: "inflight-msgs-max",
        meaning: "with pipelining: such messages without an answer, per member: 1 to 65536",
        lab: false,
        read: |text| number(text, 1, COUNT_MAX).map(Setting::InflightMsgsMax),
        show: |tuning| tuning.node.raft.inflight_msgs_max.to_string(),
    },
    Named {
        name: "inflight-bytes-max",
        meaning: "bytes of entries without an answer, per member; one message always passes: 1 to 33554432",
        lab: false,
        read: |text| number(text, 1, INFLIGHT_BYTES_CEILING).map(Setting::InflightBytesMax),
        show: |tuning| tuning.node.raft.inflight_bytes_max.to_string(),
    },
    Named {
        name: "parallel-append",
        meaning: "the leader sends entries before its own disk has them: on or off",
        lab: false,
        read: |text| on_or_off(text).map(Setting::ParallelAppend),
        show: |tuning| switch(tuning.node.raft.parallel_append),
    },
    Named {
        name: "apply",
        meaning: "where entries are applied: inline (on the node's thread) or thread",
        lab: false,
        read: |text| place(text).map(Setting::Apply),
        show: |tuning| show_place(tuning.apply),
    },
    Named {
        name: "log-io",
        meaning: "where the log is written: inline (on the node's thread) or thread",
        lab: false,
        read: |text| place(text).map(Setting::LogIo),
        show: |tuning| show_place(tuning.log_io),
    },
    Named {
        name: "reads",
        meaning: "what confirms linearizable reads: log (an entry), index (a quorum round) or lease (the leader's clock)",
        lab: false,
        read: |text| reads(text).map(Setting::Reads),
        show: |tuning| tuning.reads().to_string(),
    },
    Named {
        name: "apply-gate",
        meaning: "a leader accepts no write before the last one is applied, as in basic-raft: on or off",
        lab: false,
        read: |text| on_or_off(text).map(Setting::ApplyGate),
        show: |tuning| switch(tuning.node.apply_gate),
    },
    Named {
        name: "apply-delay",
        meaning: "processor time added to each applied command: 0 to 1s",
        lab: true,
        read: |text| time(text).map(Setting::ApplyDelay),
        show: |tuning| show_time(tuning.delays.apply),
    },
    Named {
        name: "sync-delay",
        meaning: "time added to each sync of the log: 0 to 1s",
        lab: true,
        read: |text| time(text).map(Setting::SyncDelay),
        show: |tuning| show_time(tuning.delays.sync),
    },
    Named {
        name: "apply-entries-max",
        meaning: "entries applied whenever something happens, however many are committed: 0 to 65536, 0: all",
        lab: true,
        read: |text| number(text, 0, COUNT_MAX).map(Setting::ApplyEntriesMax),
        show: |tuning| tuning.artefacts.apply_entries_max.to_string(),
    },
    Named {
        name: "unsafe-early-answers",
        meaning: "a leader answers puts before any disk has them, so acknowledged ones may be lost: on or off",
        lab: true,
        read: |text| on_or_off(text).map(Setting::UnsafeEarlyAnswers),
        show: |tuning| switch(tuning.artefacts.early_answers),
    },
];

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reads::Log => "log",
            Reads::Index => "index",
            Reads::Lease => "lease",
        })
    }
}

impl Named {
    /// The setting of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Named> {
        SETTINGS.iter().find(|named| named.name == name)
    }

    /// The setting with this value.
    ///
    /// # Errors
    /// What the value must be.
    pub fn read(&self, text: &str) -> Result<Setting, String> {
        (self.read)(text)
    }

    /// Its value in a tuning, as it is given.
    #[must_use]
    pub fn show(&self, tuning: &Tuning) -> String {
        (self.show)(tuning)
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning::of(kattu_node::Tuning::default())
    }
}

impl Tuning {
    /// That of a member whose replica goes by this, all of it on one thread.
    #[must_use]
    pub fn of(node: kattu_node::Tuning) -> Tuning {
        let lease = match node.raft.reads {
            ReadPath::Lease(lease) => lease,
            ReadPath::Log | ReadPath::Index => LEASE,
        };
        let (delays, artefacts) = (Delays::default(), Artefacts::default());
        Tuning { node, lease, apply: Threading::Inline, log_io: Threading::Inline, delays, artefacts }
    }

    /// How reads are confirmed.
    #[must_use]
    pub fn reads(&self) -> Reads {
        match self.node.raft.reads {
            ReadPath::Log => Reads::Log,
            ReadPath::Index => Reads::Index,
            ReadPath::Lease(_) => Reads::Lease,
        }
    }

    /// This tuning with other settings.
    #[must_use]
    pub fn with(mut self, settings: &[Setting]) -> Tuning {
        for setting in settings {
            let raft = &mut self.node.raft;
            match *setting {
                Setting::Batching(on) => raft.batching = on,
                Setting::BatchEntriesMax(entries) => raft.batch_entries_max = entries,
                Setting::BatchBytesMax(bytes) => raft.batch_bytes_max = bytes,
                Setting::BatchLinger(time) => self.node.batch_linger = time,
                Setting::Pipelining(on) => raft.pipelining = on,
                Setting::InflightMsgsMax(messages) => raft.inflight_msgs_max = messages,
                Setting::InflightBytesMax(bytes) => raft.inflight_bytes_max = bytes,
                Setting::ParallelAppend(on) => raft.parallel_append = on,
                Setting::Apply(place) => self.apply = place,
                Setting::LogIo(place) => self.log_io = place,
                Setting::Reads(Reads::Log) => raft.reads = ReadPath::Log,
                Setting::Reads(Reads::Index) => raft.reads = ReadPath::Index,
                Setting::Reads(Reads::Lease) => raft.reads = ReadPath::Lease(self.lease),
                Setting::ApplyGate(on) => self.node.apply_gate = on,
                Setting::ApplyDelay(time) => self.delays.apply = time,
                Setting::SyncDelay(time) => self.delays.sync = time,
                Setting::ApplyEntriesMax(entries) => self.artefacts.apply_entries_max = entries,
                Setting::UnsafeEarlyAnswers(on) => self.artefacts.early_answers = on,
            }
        }
        self
    }

    /// All settings with their values, for people and programs.
    pub fn shown(&self) -> impl Iterator<Item = (&'static Named, String)> {
        SETTINGS.iter().map(|named| (named, named.show(self)))
    }
}

impl Setting {
    /// Settings by name and value.
    ///
    /// # Errors
    /// The name that is unknown or given twice, or what the value must be.
    pub fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Setting>, String> {
        let mut seen = Vec::new();
        let parse = |(name, value): (&'a str, &'a str)| {
            let named = Named::of(name).ok_or_else(|| {
                let names: Vec<_> = SETTINGS.iter().map(|named| named.name).collect();
                format!("there is no setting {name}; there are {}", names.join(", "))
            })?;
            if seen.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            seen.push(name);
            named.read(value).map_err(|rule| format!("{name}={value}: {rule}"))
        };
        given.into_iter().map(parse).collect()
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("it is on or off".into()),
    }
}

fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.into()
}

fn place(text: &str) -> Result<Threading, String> {
    match text {
        "inline" => Ok(Threading::Inline),
        "thread" => Ok(Threading::Thread),
        _ => Err("it is inline or thread".into()),
    }
}

fn show_place(place: Threading) -> String {
    match place {
        Threading::Inline => "inline",
        Threading::Thread => "thread",
    }
    .into()
}

fn reads(text: &str) -> Result<Reads, String> {
    let all = [Reads::Log, Reads::Index, Reads::Lease];
    all.into_iter().find(|reads| reads.to_string() == text).ok_or_else(|| "it is log, index or lease".into())
}

fn number(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("it is a number from {least} to {most}"))
}

/// A time with its unit: `0`, `500us`, `10ms`, `1s`; fractions of a unit are fine.
fn time(text: &str) -> Result<Duration, String> {
    let rule = || format!("it is a time such as 500us or 10ms, at most {}", show_time(TIME_MAX));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(rule()),
    };
    let seconds: f64 = digits.parse().map_err(|_| rule())?;
    let time = Duration::try_from_secs_f64(seconds * unit).ok();
    time.filter(|time| *time <= TIME_MAX).ok_or_else(rule)
}

fn show_time(time: Duration) -> String {
    match time.as_nanos() {
        0 => "0".into(),
        nanos if nanos.is_multiple_of(1_000_000_000) => format!("{}s", time.as_secs()),
        nanos if nanos.is_multiple_of(1_000_000) => format!("{}ms", time.as_millis()),
        _ => format!("{}us", time.as_nanos() as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning::default()
    }

    /// A value of each setting that is not the default.
    const OTHERS: [(&str, &str); 16] = [
        ("batching", "off"),
        ("batch-entries-max", "7"),
        ("batch-bytes-max", "8388608"),
        ("batch-linger", "500us"),
        ("pipelining", "off"),
        ("inflight-msgs-max", "65536"),
        ("inflight-bytes-max", "1"),
        ("parallel-append", "off"),
        ("apply", "thread"),
        ("log-io", "thread"),
        ("reads", "log"),
        ("apply-gate", "on"),
        ("apply-delay", "10us"),
        ("sync-delay", "1s"),
        ("apply-entries-max", "1"),
        ("unsafe-early-answers", "on"),
    ];

    #[test]
    fn what_is_shown_can_be_given_and_each_setting_changes_itself_alone() {
        let before = tuning();
        for (name, value) in OTHERS {
            let settings = Setting::parse([(name, value)]).expect("a good value");
            let after = before.with(&settings);
            for ((named, was), (_, is)) in before.shown().zip(after.shown()) {
                match named.name == name {
                    true => assert_eq!((is.as_str(), is == was), (value, false), "{name}"),
                    false => assert_eq!(is, was, "{name} changes {}", named.name),
                }
                assert!(named.read(&is).is_ok(), "{name}={is} is shown and not taken");
            }
        }
        assert_eq!(OTHERS.len(), SETTINGS.len());
        let all = before.with(&Setting::parse(OTHERS).expect("good values"));
        let lease = all.with(&Setting::parse([("reads", "lease")]).expect("a good value"));
        assert_eq!(lease.node.raft.reads, ReadPath::Lease(before.lease));
        let back: Vec<_> = before.shown().collect();
        let back = back.iter().map(|(named, value)| (named.name, value.as_str()));
        assert_eq!(all.with(&Setting::parse(back).expect("what was shown")), before);
    }

    #[test]
    fn what_is_no_setting_is_named_with_what_it_must_be() {
        for (name, value, told) in [
            ("batching", "no", "it is on or off"),
            ("batch-entries-max", "0", "from 1 to 65536"),
            ("batch-bytes-max", "8388609", "to 8388608"),
            ("batch-linger", "10", "a time such as"),
            ("batch-linger", "1.1s", "at most 1s"),
            ("batch-linger", "-1ms", "a time such as"),
            ("batch-linger", "msms", "a time such as"),
            ("inflight-msgs-max", "x", "it is a number"),
            ("apply", "off", "inline or thread"),
            ("reads", "stale", "log, index or lease"),
            ("linger", "1ms", "there is no setting linger; there are batching, "),
        ] {
            let error = Setting::parse([(name, value)]).expect_err(name);
            assert!(error.contains(told), "{error}");
        }
        let twice = Setting::parse([("batching", "on"), ("batching", "off")]).expect_err("twice");
        assert_eq!(twice, "batching is given twice");
    }
}
