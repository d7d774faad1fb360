//! Parameters: what the steps of a system take. Settings: how much load, how many replicas, which protocol.
//!
//! ```text
//!   profiles.rs, stages.rs ─▶ Parameters ┐
//!                                        ├─▶ Simulator
//!   experiment, command line ─▶ Setting ─┘
//! ```
//! Knows nothing of: what comes out.

use crate::delay::Delay;
use serde::{Deserialize, Serialize};

/// What the steps of a system take. Delays are microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Parameters {
    /// t_gen(C): a client makes a request.
    pub generate: Delay,
    /// One way between client and leader, without transmission.
    pub client_latency: Delay,
    /// One way between leader and follower, without transmission and scheduling. Independent for every token.
    pub peer_latency: Delay,
    /// What is added to a way from leader to follower until the appender's thread runs; grows with the slowdown of the follower.
    /// Independent for every token.
    pub scheduling: Delay,
    /// How clients share the leader's incoming bandwidth.
    pub client_link: ClientLink,
    /// Bandwidth of each machine in each direction, in gigabits per second; 0: no limit.
    pub bandwidth_gbps: f64,
    /// t_prs(L): one core parses a request.
    pub parse: Delay,
    /// t_idx(L): the index lock is held, the leader's own append included.
    pub index: Delay,
    /// t_append(F): the follower's log is held for one append.
    pub append: Delay,
    /// Entries that one append may take, if they follow each other; 1 and more.
    pub append_entries_max: usize,
    /// t_commit(L), one entry after the other.
    pub commit: Delay,
    /// t_apply(L).
    pub apply: Delay,
    /// Apply threads, 1 and more.
    pub appliers: u32,
    /// Cores of each member, 1 and more.
    pub cores: u32,
    /// By how much a member gets slower for each runnable thread per core beyond the first: all that its processors do takes
    /// `1 + penalty · max(0, runnable − cores) / cores` times as long. At 0 threads cost nothing.
    pub switch_penalty: f64,
    /// The part of the threads in the waiting loop that count as runnable, 0 to 1: every change of the log wakes them all.
    pub waiting_runnable: f64,
    /// δ: period of the waiting loop in microseconds; 0: a change of the log wakes.
    pub poll_us: f64,
    /// How logs take entries together, and where they are written.
    #[serde(default)]
    pub log: LogWork,
    /// Processors that all members and clients share; without it each member has `cores` of its own, and clients need none.
    #[serde(default)]
    pub host: Option<Host>,
}

/// How logs take entries together, and where they are written. By default the leader's append is part of `index`, as in S4.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LogWork {
    /// Requests that one holding of the index lock may take; 1 and more.
    pub index_entries_max: usize,
    /// The leader's own log.
    pub own: OwnLog,
    /// t_persist(L): processor time of one write of the leader's own log.
    pub persist: Delay,
    /// What such a write waits for the disk beside that, however many entries it takes.
    pub persist_disk: Delay,
    /// What an append of a follower waits for the disk, beside `append`.
    pub append_disk: Delay,
    /// Processor time of each entry of an append, in microseconds, beside `append`.
    pub append_each_us: f64,
    /// A follower with one ordered stream reads on while it appends. Otherwise it reads nothing meanwhile.
    pub reads_on: bool,
}

impl Default for LogWork {
    fn default() -> LogWork {
        LogWork {
            index_entries_max: 1,
            own: OwnLog::InIndex,
            persist: Delay::NONE,
            persist_disk: Delay::NONE,
            append_disk: Delay::NONE,
            append_each_us: 0.0,
            reads_on: false,
        }
    }
}

/// Where the leader writes its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnLog {
    /// As part of `index`: whatever has an index is in it.
    InIndex,
    /// On the thread that does everything else: the index lock is held, and no answer is read, until the entries are on disk. They
    /// leave for followers before that.
    Inline,
    /// On a thread of its own: the leader goes on, and what waits at the end of a write is the next one.
    Thread,
}

/// Processors that all members and clients share equally.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Host {
    /// Processors, 1 and more.
    pub cores: u32,
    /// What the one thread of all clients needs to wake up, in microseconds of processor time, when a reply finds it idle.
    pub client_wake_us: f64,
    /// Clients that share a connection, 1 and more. Requests of one connection leave together when none of its clients is about to
    /// make one; answers that are ready leave together.
    pub clients_per_connection: u32,
}

/// How clients share the leader's incoming bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientLink {
    /// Each client has `1/N_cli` of it at all times, as S4 computes. With Poisson arrivals there is no division.
    Divided,
    /// Requests that are on the way share it equally.
    Shared,
}

/// When a client gets a weak reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weak {
    /// Never.
    Off,
    /// When a majority has appended its entry or keeps it in a window.
    Gap,
    /// When a majority has received its entry within the window, before any append.
    Receipt,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// So many clients, each with one request under way.
    Closed {
        /// N_cli, 1 and more.
        clients: usize,
    },
    /// A Poisson stream of so many requests per second.
    Open {
        /// Rate, above 0.
        per_second: f64,
    },
}

/// How much load, how many replicas, which protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setting {
    /// N, the leader included: 2 to [`REPLICAS_MAX`].
    pub replicas: usize,
    /// The load.
    pub load: Load,
    /// N_csm: dispatchers of each follower, 1 and more.
    pub dispatchers: u32,
    /// b: bytes of a request.
    pub payload_bytes: u64,
    /// w: places of the window; 0 is Raft.
    pub window: u64,
    /// Weak replies.
    pub weak: Weak,
    /// Each follower has one stream that keeps the order, one appender, and a dispatcher that does not wait for answers.
    pub ordered_stream: bool,
    /// A dispatcher waits until the follower has appended the entry or keeps it in its window.
    pub synchronous: bool,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Replies that are measured, 1 and more.
    pub requests: u64,
    /// Replies before that, which are not measured.
    pub warm_up: u64,
}

/// Most replicas, the leader included.
pub const REPLICAS_MAX: usize = 33;

impl Setting {
    /// Raft: three replicas, as many dispatchers as clients, 4 KiB.
    #[must_use]
    pub fn raft(clients: usize) -> Setting {
        Setting {
            replicas: 3,
            load: Load::Closed { clients },
            dispatchers: u32::try_from(clients).unwrap_or(u32::MAX),
            payload_bytes: 4096,
            window: 0,
            weak: Weak::Off,
            ordered_stream: false,
            synchronous: true,
            seed: 1,
            requests: 20_000,
            warm_up: 5_000,
        }
    }

    /// NB-Raft: the same with a window of 10,000 entries and weak replies.
    #[must_use]
    pub fn nb_raft(clients: usize) -> Setting {
        Setting { window: 10_000, weak: Weak::Gap, ..Setting::raft(clients) }
    }

    /// The same with the protocol of the other: window and weak replies.
    #[must_use]
    pub fn with_protocol_of(self, other: &Setting) -> Setting {
        Setting { window: other.window, weak: other.weak, ..self }
    }

    /// Clients, or 1 for a Poisson stream.
    #[must_use]
    pub fn clients(&self) -> usize {
        match self.load {
            Load::Closed { clients } => clients,
            Load::Open { .. } => 1,
        }
    }

    /// Whether requests come as a Poisson stream.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.load, Load::Open { .. })
    }

    /// Members that a quorum needs, the leader included.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.replicas / 2 + 1
    }

    /// Whether it can be simulated.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn check(&self) -> Result<(), String> {
        let load = match self.load {
            Load::Closed { clients } => (1..=1_000_000).contains(&clients),
            Load::Open { per_second } => per_second.is_finite() && 0.0 < per_second,
        };
        let rules = [
            ((2..=REPLICAS_MAX).contains(&self.replicas), "replicas: 2 to 33"),
            (load, "load: 1 to 1,000,000 clients, or a rate above 0"),
            (0 < self.dispatchers, "dispatchers: 1 and more"),
            (0 < self.requests, "requests: 1 and more"),
            (self.weak == Weak::Off || 0 < self.window, "weak replies need a window: protocol nb-raft"),
        ];
        first_broken(&rules)
    }
}

impl Parameters {
    /// Whether they can be simulated.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn check(&self) -> Result<(), String> {
        let delays = [
            ("generate", &self.generate),
            ("client-latency", &self.client_latency),
            ("peer-latency", &self.peer_latency),
            ("scheduling", &self.scheduling),
            ("parse", &self.parse),
            ("index", &self.index),
            ("append", &self.append),
            ("commit", &self.commit),
            ("apply", &self.apply),
            ("log persist", &self.log.persist),
            ("log persist-disk", &self.log.persist_disk),
            ("log append-disk", &self.log.append_disk),
        ];
        for (name, delay) in delays {
            delay.check().map_err(|error| format!("{name}: {error}"))?;
        }
        let is_amount = |value: f64| value.is_finite() && 0.0 <= value;
        let rules = [
            (is_amount(self.bandwidth_gbps), "bandwidth-gbps: 0 and more"),
            (is_amount(self.switch_penalty), "switch-penalty: 0 and more"),
            ((0.0..=1.0).contains(&self.waiting_runnable), "waiting-runnable: 0 to 1"),
            (is_amount(self.poll_us), "poll-us: 0 and more"),
            (0 < self.append_entries_max, "append-entries-max: 1 and more"),
            (0 < self.appliers, "appliers: 1 and more"),
            (0 < self.cores, "cores: 1 and more"),
            (0 < self.log.index_entries_max, "log index-entries-max: 1 and more"),
            (is_amount(self.log.append_each_us), "log append-each-us: 0 and more"),
            (self.host.is_none_or(|host| 0 < host.cores), "host cores: 1 and more"),
            (
                self.host.is_none_or(|host| 0 < host.clients_per_connection),
                "host clients-per-connection: 1 and more",
            ),
            (self.host.is_none_or(|host| is_amount(host.client_wake_us)), "host client-wake-us: 0 and more"),
        ];
        first_broken(&rules)
    }
}

fn first_broken(rules: &[(bool, &str)]) -> Result<(), String> {
    match rules.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, rule)) => Err((*rule).to_string()),
    }
}
