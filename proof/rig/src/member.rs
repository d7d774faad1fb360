//! One member: its place, its files, its process.
//!
//! Knows nothing of: other members, keys.

use crate::clocks::Clock;
use crate::grpc::Kv;
use crate::page::Page;
use crate::place::Endpoint;
use crate::process::Process;
use crate::target::Target;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// The log line by which a member reports that it serves.
pub const READY: &str = "ready to serve client requests";
/// Limit of the conductor's requests: a slow member is asked again.
const ASK_LIMIT: Duration = Duration::from_millis(800);

/// Whether a member belongs to the cluster, as far as the conductor knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its place is free.
    Spare,
    /// It belongs.
    Member,
    /// It was removed, and must end by itself.
    Leaving,
}

/// One member. It is a process that knows its own command line.
pub struct Member {
    /// `n0`, `n1`, …
    pub name: String,
    /// Its addresses.
    pub endpoint: Endpoint,
    /// Its directory.
    pub data: PathBuf,
    /// Whether it belongs to the cluster.
    pub standing: Standing,
    /// Its clocks, if they may lie.
    pub clock: Option<Clock>,
    /// The conductor's own client of it, with a short limit.
    pub probe: Kv,
    /// The same with a longer limit, for long answers.
    pub reader: Kv,
    scheme: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    process: Process,
    /// Offset in the log at which its first run with this directory begins.
    anew_at: u64,
}

impl Deref for Member {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Member {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Member {
    /// A member without flags, not started yet. Its peers use `scheme`.
    pub fn new(
        name: String,
        endpoint: Endpoint,
        scheme: &'static str,
        (data, log): (PathBuf, PathBuf),
        program: PathBuf,
    ) -> Member {
        let address = endpoint.address();
        Member {
            data,
            standing: Standing::Member,
            clock: None,
            probe: Kv::of(&address).within(ASK_LIMIT),
            reader: Kv::of(&address),
            scheme,
            program,
            arguments: Vec::new(),
            process: Process::new(&name, log),
            anew_at: 0,
            name,
            endpoint,
        }
    }

    /// Starts its process and returns at once.
    ///
    /// # Errors
    /// It cannot be started at all.
    pub fn spawn(&mut self) -> Result<(), String> {
        self.spawn_with(&[], &[])
    }

    /// The same. `wrapper` goes between the place's prefix and the program (`strace …`), `more` after its flags.
    ///
    /// # Errors
    /// It cannot be started at all.
    pub fn spawn_with(&mut self, wrapper: &[String], more: &[&str]) -> Result<(), String> {
        let mut words = self.endpoint.prefix.clone();
        words.extend_from_slice(wrapper);
        words.extend(self.clock.iter().flat_map(Clock::words));
        words.push(self.program.display().to_string());
        words.extend(Target::of(&self.program).verb().map(str::to_string));
        words.extend_from_slice(&self.arguments);
        words.extend(more.iter().map(ToString::to_string));
        self.process.spawn(&words)
    }

    /// Turns it into a new member: another directory, another command line.
    pub fn begin_anew(&mut self, data: PathBuf, arguments: Vec<String>) {
        assert!(!self.is_started(), "{} runs", self.name);
        (self.data, self.arguments) = (data, arguments);
        self.forget_end();
        self.anew_at = self.log_bytes();
    }

    /// Its next start uses this binary instead of the one under test.
    pub fn run_by(&mut self, program: &Path) {
        self.program = program.to_path_buf();
    }

    /// Its flags; they may be changed before it starts.
    pub fn arguments_mut(&mut self) -> &mut Vec<String> {
        &mut self.arguments
    }

    /// `host:2379`
    pub fn address(&self) -> String {
        self.endpoint.address()
    }

    /// Where its peers reach it.
    pub fn peer_url(&self) -> String {
        format!("{}://{}:2380", self.scheme, self.endpoint.face)
    }

    /// A new client of this member alone.
    pub fn kv(&self) -> Kv {
        Kv::of(&self.address())
    }

    /// A metric without labels; `None` if the member does not answer or has no such metric. For several numbers of one
    /// moment, or for labels, read a [`Page`].
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<u64> {
        Page::of(&self.address())?.number(name)
    }

    /// Whether this end means that it was removed: it was told so, or no member knew it and it has no directory yet.
    pub fn was_removed(&self, status: ExitStatus) -> bool {
        status.success() || self.log_text().contains("no member of the cluster has this peer address")
    }

    /// It was ready once, in this run or an earlier one with this directory, so that the others know the directory.
    pub fn has_served(&self) -> bool {
        self.log_from(self.anew_at).contains(READY)
    }

    /// It is new, and gave up because no member answered it for as long as it asks.
    pub fn has_asked_in_vain(&self) -> bool {
        !self.has_served() && self.log_text().contains("no other member answered with the member list")
    }

    /// Whether it answers a linearizable read.
    pub fn serves(&self) -> bool {
        self.is_awake() && self.probe.get("ready").is_ok()
    }

    /// Whether its own status says that it leads.
    pub fn leads(&self) -> bool {
        self.is_awake()
            && self.probe.status().is_ok_and(|status| {
                status.header.is_some_and(|header| header.member_id != 0 && header.member_id == status.leader)
            })
    }
}
