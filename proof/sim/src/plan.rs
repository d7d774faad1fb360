//! Plan: what one seed decides before anything happens.
//!
//! Swarm testing: every storm has a cluster, a configuration, a set of fault kinds and a workload of its own. Most
//! kinds are left out of each storm, because faults that always occur together hide each other's bugs.
//! Knows nothing of: how a plan is carried out.

use crate::clock::{MS, SEC, US};
use crate::dice::Dice;
use crate::family::{self, Family, Serving};
use crate::inject::{Change, Inject, Injection, Kind, Kinds, draw_injections};
use crate::liar::{self, Lies};
use crate::non_blocking;
use crate::tuned;
use kattu_disk::Speed;
use kattu_member::streams::{Dispatch, Streams};
use kattu_member::tuning::Threading;
use kattu_node::{SnapshotLimits, TransferConfig, level};
use kattu_raft::{Duration, LeaderLease, LeadershipConfig, Limits, Timing};
use std::fmt;

/// What a caller may decide in place of the seed: for speed, for reading, for shrinking.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Length of the storm, in seconds of the world; the seed's choice if absent.
    pub seconds: Option<u64>,
    /// Members; the seed's choice if absent.
    pub members: Option<u64>,
    /// Clients; the seed's choice if absent.
    pub clients: Option<u32>,
    /// Kinds of faults that may happen; the seed's choice if absent.
    pub kinds: Option<Kinds>,
    /// Only these injections of the plan, by number; all if absent.
    pub keep: Option<Vec<u32>>,
    /// Whether snapshots are taken and logs pruned; the seed's choice if absent (five storms of six).
    pub snapshots: Option<bool>,
    /// Leader leases, and whether clocks stay within their bound; the seed's choice if absent.
    pub leases: Option<Leases>,
    /// Whether reads may be at least as new as an index or have bounds; the seed's choice if absent.
    pub levels: Option<bool>,
    /// Whether members know the feature level that puts settings into the cluster's configuration, and the election
    /// timeout changes again and again. Otherwise they know the level before it, and go by their own flags.
    pub shared_settings: bool,
    /// Whether members know the feature level that brings sessions of clients, and some clients have them; settings are
    /// shared, too.
    pub sessions: bool,
    /// Whether members are tuned while they run, each by itself. Sessions and shared settings come with it.
    pub tuned: bool,
    /// Whether members know the feature level that brings windows, the protocol changes again and again, and appends may
    /// take several streams. Sessions and shared settings come with it.
    pub non_blocking: bool,
    /// The same, and clients with sessions ask for weak answers, which the protocol gives most of the time.
    pub weak: bool,
    /// Whether members are tuned to raft without any optimisation when they start, until the calm.
    pub basic_raft: bool,
    /// What the storm is about.
    pub family: Family,
    /// Keep the lines of the timeline.
    pub timeline: bool,
    /// Keep the history of the clients in the report.
    pub history: bool,
    /// This judge of service is ignored, so that what the others find shows.
    pub silent: Option<&'static str>,
}

impl Options {
    /// The arguments of `kattu sim` that choose them, without seed and length.
    #[must_use]
    pub fn words(&self) -> String {
        let family = (self.family != Family::Storms).then(|| format!("--family {}", self.family.name()));
        let switches = [
            (self.shared_settings, "--shared-settings"),
            (self.sessions, "--sessions"),
            (self.tuned, "--tuned"),
            (self.non_blocking, "--non-blocking"),
            (self.weak, "--weak"),
            (self.basic_raft, "--basic-raft"),
        ];
        let switches = switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, word)| word.to_string());
        family.into_iter().chain(switches).collect::<Vec<_>>().join(" ")
    }
}

/// How the leader leases of one member differ from the others'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disagrees {
    /// Not at all.
    #[default]
    Not,
    /// It has none, and grants no vote hold.
    WithoutLeases,
    /// It has them, and half of the others' election timeout.
    WithHalfTheTimeout,
}

/// Leader leases in a storm, and clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// Reads are confirmed by a quorum round.
    Off,
    /// Reads by leader lease; clocks are within the bound that it trusts. [fault-model F41]
    Within,
    /// Reads by leader lease; clocks are far beyond the bound that it trusts. Everything but such reads must still
    /// hold, so histories record them as serializable. [fault-model F42]
    Beyond,
    /// The same, and histories record such reads as linearizable: the judges must see it.
    Believed,
}

impl Leases {
    /// Whether clocks are beyond the trusted bound.
    #[must_use]
    pub(crate) fn are_broken(self) -> bool {
        matches!(self, Leases::Beyond | Leases::Believed)
    }
}

/// How a member is configured; the same for all.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Minimum election timeout.
    pub election_timeout: Duration,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// Pre-vote and check-quorum, which belong together.
    pub pre_vote: bool,
    /// Suspicion, leader leases; the priority is each member's own.
    pub leadership: LeadershipConfig,
    /// When leaders transfer leadership by themselves.
    pub transfers: TransferConfig,
    /// The priority of each member; a member beyond the list has the default.
    pub priorities: Vec<u8>,
    /// How members differ about leader leases, by slot: without any, or with a shorter vote hold, because their
    /// election timeout is half of the others'. Members beyond the list do not differ.
    pub disagree: Vec<Disagrees>,
    /// Leader leases and clocks in the storm.
    pub leases: Leases,
    /// The newest feature level that members know.
    pub level: u16,
    /// Send appends before the own disk call has ended.
    pub parallel_append: bool,
    /// Several appends in flight per peer.
    pub pipelining: bool,
    /// The connections that carry appends to each peer.
    pub streams: Streams,
    /// Bounds of the protocol.
    pub limits: Limits,
    /// How long a client waits at most.
    pub request_timeout: Duration,
    /// Client requests waiting at once.
    pub pending_max: usize,
    /// Bytes of writes waiting for a place in the log.
    pub pending_bytes_max: usize,
    /// Largest request that the API accepts.
    pub request_bytes_max: usize,
    /// Bytes the store may hold.
    pub quota: u64,
    /// Where log I/O is done.
    pub log_io: Threading,
    /// Where committed entries are applied.
    pub apply: Threading,
    /// Time between two comparisons of digests over the log.
    pub digest_interval: Duration,
    /// When snapshots are taken.
    pub snapshots: SnapshotLimits,
    /// One step of the snapshot worker takes up to this, besides what its disk takes.
    pub snapshot_step: u64,
    /// Bytes of a snapshot that a member writes in a second; 0: no limit.
    pub snapshot_pace: u64,
    /// A job takes up to this.
    pub job_takes: u64,
    /// Some jobs take longer than their follower waits, and some results come twice.
    pub jobs_hang: bool,
    /// Each member has one disk, which does one thing at a time: snapshots and segments take its time, and the log
    /// waits for the operation that is under way. Otherwise they take none.
    pub one_disk: bool,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes reserved for the way out of a full disk.
    pub reserve_bytes: u64,
    /// Bytes of newest entries returned at recovery.
    pub window_bytes: usize,
    /// A log block is closed at this size.
    pub block_bytes: usize,
    /// A disk call that takes longer ends the process.
    pub disk_stall: u64,
}

/// How fast things are, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Pace {
    /// A turn of a member's loop takes this.
    pub turn: u64,
    /// And each event in it this.
    pub event: u64,
    /// Disks.
    pub disk: Speed,
    /// A frame takes this, and up to `frame_jitter` more.
    pub frame: u64,
    /// See `frame`.
    pub frame_jitter: u64,
    /// A batch of the keeper on its own thread takes up to this.
    pub apply: u64,
    /// Between a client and its member.
    pub client: u64,
    /// Frames of one lane keep their order, as on one connection. Otherwise any may overtake any.
    pub ordered: bool,
    /// Frames sent into a cut wait for its end, as TCP repeats them; otherwise they are lost.
    pub holds: bool,
    /// Clocks gain or lose up to this, in millionths.
    pub drift: i64,
    /// The rate of each clock, for situations by hand; drawn within `drift` for members beyond the list.
    pub rates: Vec<i64>,
}

/// The workload of clients.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many clients.
    pub clients: u32,
    /// A client rests this long between operations, on average.
    pub rest: u64,
    /// Different keys.
    pub keys: u64,
    /// Weights of: put, read, range read, serializable read, old read, delete, range delete, transaction, compaction,
    /// oversize, a command that the API would refuse.
    pub weights: [u64; 11],
    /// Bytes of a common value at most.
    pub value_bytes: u64,
    /// A client gives up after this, with an unknown outcome; 0 never.
    pub patience: u64,
    /// Operations in a hundred that begin at least as new as what their reader has seen.
    pub at_least: u64,
    /// Operations in a hundred that begin with a bound, if they are reads.
    pub bounded: u64,
    /// The longest bound, in nanoseconds.
    pub bound_max: u64,
    /// Some clients have sessions in which their commands are executed once.
    pub callers: bool,
    /// These ask for weak answers.
    pub weak: bool,
}

/// One storm, before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Members that it begins with, all voters.
    pub members: u64,
    /// Members that may be added to them.
    pub spares: u64,
    /// Length of the storm, in nanoseconds.
    pub length: u64,
    /// Configuration.
    pub settings: Settings,
    /// Pace.
    pub pace: Pace,
    /// Workload.
    pub load: Load,
    /// Kinds of faults in it.
    pub kinds: Kinds,
    /// The faults, by time, each with its number in the full plan.
    pub injections: Vec<(u32, Injection)>,
    /// Injections in the full plan.
    pub injections_planned: usize,
    /// Further parts of storms that judge service.
    pub service: Option<Serving>,
    /// The liar, if there is one.
    pub liar: Option<Lies>,
    /// Members are tuned while they run.
    pub tuned: bool,
    /// Members that start are tuned to raft without any optimisation.
    pub basic_raft: bool,
}

impl Plan {
    /// Draws the plan of a seed.
    #[must_use]
    pub fn draw(seed: u64, options: &Options) -> Plan {
        match options.family {
            Family::Storms => {}
            Family::Liars => return liar::draw(seed, options),
            Family::SlowLinks | Family::SlowMembers | Family::BusyDisks => {
                return family::draw(seed, options);
            }
        }
        let mut dice = Dice::new(seed, "cluster");
        // Users run three and five; the rest is for the arithmetic of quorums.
        let drawn = *dice.pick(&[1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5, 5, 5, 6, 7, 8, 9]);
        let members = options.members.unwrap_or(drawn);
        let mut settings = draw_settings(&mut Dice::new(seed, "settings"));
        draw_snapshots(&mut Dice::new(seed, "snapshots"), options.snapshots, &mut settings);
        let mut pace = draw_pace(&mut Dice::new(seed, "pace"), &settings);
        draw_leadership(&mut Dice::new(seed, "leadership"), options.leases, &mut settings, &mut pace);
        settings.transfers.from_slow_disk = !Dice::new(seed, "leave slow disk").one_in(3);
        settings.leadership.asks_first = !Dice::new(seed, "asks first").one_in(4);
        draw_disagreement(&mut Dice::new(seed, "disagreement"), &mut settings);
        draw_jobs(&mut Dice::new(seed, "read apart"), &mut settings);
        let mut load = draw_load(&mut Dice::new(seed, "load"), &settings);
        if options.levels != Some(false) {
            draw_levels(&mut Dice::new(seed, "levels"), &mut load, &settings);
        }
        let length = match options.seconds {
            Some(seconds) => seconds * SEC,
            None => draw_length(&mut Dice::new(seed, "length"), members, &settings, &load),
        };
        load.clients = options.clients.unwrap_or(load.clients);
        let mut kinds = Kinds::draw(&mut Dice::new(seed, "kinds"));
        if settings.leases.are_broken() {
            kinds = kinds.with(Kind::CutOff); // it takes a leader that is cut off
        }
        if kinds.has(Kind::Diverge) {
            let wanted = members >= 3
                && options.snapshots != Some(true)
                && Dice::new(seed, "diverge").one_in(4)
                && !settings.leases.are_broken();
            kinds = if wanted { kinds.without(Kind::Change) } else { kinds.without(Kind::Diverge) };
            if wanted {
                settings.snapshots =
                    SnapshotLimits { log_bytes_min: u64::MAX, log_bytes_max: 0, keep_bytes: 0 };
                if settings.digest_interval.is_zero() {
                    settings.digest_interval = Duration::from_secs(5);
                }
            }
        }
        let mut injections: Vec<(u32, Injection)> =
            draw_injections(&Dice::new(seed, "injections"), members, length, &settings, &kinds);
        if options.shared_settings || options.sessions || options.tuned {
            settings.level = match options.sessions || options.tuned {
                true if Dice::new(seed, "bundles").one_in(4) => level::SESSIONS,
                true => level::BUNDLES,
                false => level::EXTENSIONS,
            };
            load.callers = options.sessions || options.tuned;
            draw_timings(&mut Dice::new(seed, "timings"), length, &settings, &mut injections);
        }
        if options.non_blocking || options.weak {
            settings.level = level::NB_RAFT;
            load.callers = true;
            draw_timings(&mut Dice::new(seed, "timings"), length, &settings, &mut injections);
            load.weak = options.weak;
            let mut weak = options.weak.then(|| Dice::new(seed, "weak answers"));
            non_blocking::draw(&mut Dice::new(seed, "protocols"), weak.as_mut(), length, &mut injections);
            let may_lose = may_lose(&kinds, &pace);
            settings.streams = non_blocking::draw_streams(&mut Dice::new(seed, "streams"), may_lose);
        }
        if options.tuned {
            tuned::draw(&mut Dice::new(seed, "tuned"), members, length, &mut injections);
        }
        let injections_planned = injections.len();
        if let Some(allowed) = &options.kinds {
            injections.retain(|(_, injection)| allowed.has(injection.what.kind()));
        }
        if let Some(keep) = &options.keep {
            injections.retain(|(number, _)| keep.contains(number));
        }
        let is_of_members = |what: &Inject| matches!(what, Inject::Change(change) if !matches!(change, Change::Timing(_) | Change::Protocol(_) | Change::Tune { .. }));
        let changes = injections.iter().any(|(_, injection)| is_of_members(&injection.what));
        let spares = if changes { SPARES } else { 0 };
        let (service, tuned, basic_raft) = (None, options.tuned, options.basic_raft);
        Plan {
            seed,
            members,
            spares,
            length,
            settings,
            pace,
            load,
            kinds,
            injections,
            injections_planned,
            service,
            tuned,
            basic_raft,
            liar: None,
        }
    }

    /// Three members, ten requests a second, nothing but the checks of every step: for measuring speed.
    #[must_use]
    pub fn calm(seed: u64, seconds: u64) -> Plan {
        Plan::steady(seed, 3, seconds)
    }

    /// Three members on disks that never get to rest: each sync takes a tenth to a third of the election timeout, and
    /// there are always writes for the next one. No leader may lose its leadership for that. [fault-model F17]
    #[must_use]
    pub fn slow_disk(seed: u64, seconds: u64) -> Plan {
        let mut plan = Plan::steady(seed, 3, seconds);
        let mut dice = Dice::new(seed, "slow disk");
        plan.pace.disk = Speed {
            read: 4 * MS,
            write: 20 * US,
            sync: dice.within(100, 200) * MS,
            name: 50 * MS,
            kib: 20 * US,
            spread_percent: 60,
        };
        plan.settings.snapshots =
            SnapshotLimits { log_bytes_min: 256 << 10, log_bytes_max: 0, keep_bytes: 256 << 10 };
        plan.settings.segment_bytes = 128 << 10;
        plan.settings.log_io = if dice.one_in(2) { Threading::Thread } else { Threading::Inline };
        plan.load =
            Load { clients: 8, rest: 50 * MS, weights: [80, 10, 0, 5, 0, 5, 0, 0, 0, 0, 0], ..plan.load };
        plan
    }

    /// A cluster with etcd's times, ten requests a second and no faults: for situations that are injected by hand.
    #[must_use]
    pub fn steady(seed: u64, members: u64, seconds: u64) -> Plan {
        let options = Options {
            seconds: Some(seconds),
            members: Some(members),
            kinds: Some(Kinds::none()),
            ..Options::default()
        };
        let mut plan = Plan::draw(seed, &options);
        plan.settings = default_settings();
        plan.pace = Pace {
            turn: 0,
            event: 0,
            disk: Speed::SOLID,
            frame: 200 * US,
            frame_jitter: 100 * US,
            apply: 0,
            client: 100 * US,
            ordered: true,
            holds: true,
            drift: 0,
            rates: Vec::new(),
        };
        plan.load = Load {
            clients: 10,
            rest: SEC,
            keys: 100,
            weights: [50, 40, 0, 5, 0, 5, 0, 0, 0, 0, 0],
            value_bytes: 64,
            patience: 0,
            at_least: 0,
            bounded: 0,
            bound_max: 0,
            callers: false,
            weak: false,
        };
        plan
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        let without = |has: bool, what: &str| if has { String::new() } else { format!(", no {what}") };
        write!(
            f,
            "{} members, {} s, {} clients, election timeout {:?}, log {:?}, apply {:?}{}{}{}{}{}{}{}{}{}; faults: {:?}",
            self.members,
            self.length / SEC,
            self.load.clients,
            settings.election_timeout,
            settings.log_io,
            settings.apply,
            without(settings.pre_vote, "pre-vote"),
            without(settings.pipelining, "pipelining"),
            match (settings.streams.links_per_peer, settings.streams.dispatch) {
                (1, _) => String::new(),
                (links, Dispatch::Ordered) => format!(", {links} ordered links"),
                (links, Dispatch::Unordered) => format!(", {links} unordered links"),
            },
            without(settings.parallel_append, "parallel append"),
            without(settings.transfers.from_slow_disk, "leaving of slow disks"),
            without(settings.snapshots.log_bytes_min < u64::MAX, "snapshots"),
            match settings.leases {
                Leases::Off => "",
                Leases::Within if settings.disagree.is_empty() => ", leases",
                Leases::Within => ", leases that members disagree about",
                Leases::Beyond | Leases::Believed => ", leases beyond their bound",
            },
            match (settings.limits.read_apart_bytes_min < usize::MAX, settings.jobs_hang) {
                (false, _) => "",
                (true, false) => ", appends read by jobs",
                (true, true) => ", appends read by jobs that may hang",
            },
            match settings.level {
                0..level::EXTENSIONS => "",
                level::EXTENSIONS => ", shared settings",
                level::SESSIONS => ", shared settings, sessions",
                _ => ", shared settings, sessions, several puts in one entry",
            },
            self.kinds,
        )
    }
}

/// Whether single frames may be lost on a connection that goes on: TCP loses none.
pub(crate) fn may_lose(kinds: &Kinds, pace: &Pace) -> bool {
    kinds.has(Kind::Lossy) || !pace.ordered || !pace.holds
}

/// etcd's times, small files.
fn default_settings() -> Settings {
    Settings {
        election_timeout: Duration::from_millis(1000),
        heartbeat_interval: Duration::from_millis(100),
        pre_vote: true,
        leadership: LeadershipConfig { asks_first: true, ..LeadershipConfig::default() },
        transfers: TransferConfig { to_priority: false, from_slow_disk: true },
        priorities: Vec::new(),
        disagree: Vec::new(),
        leases: Leases::Off,
        level: level::PROOFS,
        parallel_append: true,
        pipelining: true,
        streams: Streams::default(),
        limits: Limits::default(),
        request_timeout: Duration::from_secs(7),
        pending_max: 1 << 18,
        pending_bytes_max: 64 << 20,
        request_bytes_max: 4 << 10,
        quota: u64::MAX,
        log_io: Threading::Inline,
        apply: Threading::Inline,
        digest_interval: Duration::from_secs(60),
        snapshots: SnapshotLimits::default(),
        snapshot_step: 0,
        snapshot_pace: 0,
        job_takes: 0,
        jobs_hang: false,
        one_disk: false,
        segment_bytes: 1 << 20,
        reserve_bytes: 0,
        window_bytes: 1 << 20,
        block_bytes: 1 << 20,
        disk_stall: SEC,
    }
}

/// Members that may be added in one storm.
pub(crate) const SPARES: u64 = 6;

/// Tasks that may wait for a keeper: fewer than in production, so that the limit is reached.
pub(crate) const TASKS_MAX: usize = kattu_member::step::LIMITS.tasks / 128;

/// The same where service is judged: more, because rates are compared there that this limit would cut.
pub(crate) const TASKS_MAX_SERVED: usize = kattu_member::step::LIMITS.tasks / 16;

/// Requests that may wait in front of a replica: fewer than in production, so that the limit is reached.
pub(crate) const CALLS_MAX: usize = kattu_member::step::CALLS_MAX / 32;

/// Bytes a lane may hold back: less than in production, so that it is reached.
pub(crate) const LANE_BYTES_MAX: u64 = kattu_member::lanes::BYTES_MAX as u64 / 32;

/// Frames kept of each direction of a link, to arrive again much later.
pub(crate) const MUSEUM_MAX: usize = 8;

/// Messages and operations that a storm may cost.
const MESSAGES_MAX: u64 = 200_000;
const OPERATIONS_MAX: u64 = 4_000;

/// One to twenty minutes; large and busy clusters get the shorter ones, so that no seed costs as much as many.
fn draw_length(dice: &mut Dice, members: u64, settings: &Settings, load: &Load) -> u64 {
    let drawn = dice.log_within(60, 1200);
    let heartbeats = SEC / (settings.heartbeat_interval.as_nanos() as u64).max(1);
    let operations = (u64::from(load.clients) * SEC / load.rest).max(1);
    let messages = (heartbeats + 2 * operations) * 2 * (members - 1);
    let most = (MESSAGES_MAX / messages.max(1)).min(OPERATIONS_MAX / operations);
    drawn.min(most.max(60)) * SEC
}

fn draw_settings(dice: &mut Dice) -> Settings {
    let election_ms = dice.log_within(100, 2000);
    let heartbeat_ms = (election_ms / dice.within(3, 12)).max(1);
    let request_bytes_max = dice.log_within(1 << 10, 32 << 10) as usize;
    // Small limits are reached often; users run large ones.
    let mut limits = Limits::default();
    if dice.one_in(2) {
        limits = Limits {
            batch_bytes_max: dice.log_within(256, 64 << 10) as usize,
            batch_entries_max: dice.log_within(1, 64) as usize,
            inflight_msgs_max: dice.log_within(1, 64) as usize,
            inflight_bytes_max: dice.log_within(1 << 10, 256 << 10) as usize,
            uncommitted_bytes_max: dice.log_within(4 << 10, 1 << 20) as usize,
            apply_bytes_max: dice.log_within(4 << 10, 1 << 20) as usize,
            recent_bytes_max: dice.log_within(512, 64 << 10) as usize,
            ..limits
        };
        limits.recent_in_sync_bytes_max = 4 * limits.recent_bytes_max;
    }
    let place = |dice: &mut Dice| if dice.one_in(2) { Threading::Thread } else { Threading::Inline };
    let segment_bytes = (dice.log_within(16 << 10, 512 << 10)).max(4 * request_bytes_max as u64);
    // As in production, a segment has room for several of the largest batches.
    limits.batch_bytes_max = limits.batch_bytes_max.min(segment_bytes as usize / 4);
    Settings {
        election_timeout: Duration::from_millis(election_ms),
        heartbeat_interval: Duration::from_millis(heartbeat_ms),
        pre_vote: !dice.one_in(10),
        leadership: LeadershipConfig::default(),
        transfers: TransferConfig::default(),
        priorities: Vec::new(),
        disagree: Vec::new(),
        leases: Leases::Off,
        level: level::PROOFS,
        parallel_append: !dice.one_in(4),
        pipelining: !dice.one_in(4),
        streams: Streams::default(),
        limits,
        request_timeout: Duration::from_millis(dice.log_within(1000, 5000) + 2 * election_ms),
        pending_max: dice.log_within(16, 4096) as usize,
        pending_bytes_max: dice.log_within(64 << 10, 4 << 20) as usize,
        request_bytes_max,
        quota: if dice.one_in(6) { dice.log_within(64 << 10, 1 << 20) } else { u64::MAX },
        log_io: place(dice),
        apply: place(dice),
        digest_interval: Duration::ZERO,
        snapshots: SnapshotLimits { log_bytes_min: u64::MAX, log_bytes_max: 0, keep_bytes: 0 },
        snapshot_step: 0,
        snapshot_pace: 0,
        job_takes: 0,
        jobs_hang: false,
        one_disk: false,
        segment_bytes,
        reserve_bytes: if dice.one_in(2) { segment_bytes } else { 0 },
        window_bytes: dice.log_within(256, 1 << 20) as usize,
        block_bytes: dice.log_within(4 << 10, 1 << 20) as usize,
        disk_stall: election_ms * MS,
    }
}

fn draw_pace(dice: &mut Dice, settings: &Settings) -> Pace {
    let timeout = settings.election_timeout.as_nanos() as u64;
    let some = |dice: &mut Dice, most: u64| if dice.one_in(3) { 0 } else { dice.log_within(US, most) };
    Pace {
        turn: some(dice, 100 * US),
        event: some(dice, 20 * US),
        disk: draw_disk(dice, timeout),
        frame: dice.log_within(10 * US, (timeout / 40).max(20 * US)),
        frame_jitter: some(dice, timeout / 20),
        apply: some(dice, timeout / 10),
        client: some(dice, 2 * MS),
        ordered: !dice.one_in(3),
        holds: dice.one_in(2),
        drift: *dice.pick(&[0, 100, 1000, 20_000]),
        rates: Vec::new(),
    }
}

/// Priorities, how soon a dead leader is replaced, how far clocks are trusted.
fn draw_leadership(dice: &mut Dice, wanted: Option<Leases>, settings: &mut Settings, pace: &mut Pace) {
    let timeout = settings.election_timeout;
    let heartbeat = settings.heartbeat_interval;
    let suspicion = match dice.below(3) {
        0 => None,
        1 => Some(Duration::from_millis(2)),
        _ => Some(Duration::from_nanos(dice.log_within(100 * US, 50 * MS))),
    };
    if dice.one_in(2) {
        settings.priorities = (0..9).map(|_| *dice.pick(&[0, 50, 100, 100, 150, 255])).collect();
    }
    let drawn = match dice.below(24) {
        0..=6 => Leases::Within,
        7 | 8 => Leases::Beyond,
        _ => Leases::Off,
    };
    // Trusted exactly as far as clocks are wrong, or a little further.
    let spare = *dice.pick(&[0, 0, 1, 500]);
    let margin = if dice.one_in(2) { 0 } else { dice.log_within(US, MS) };
    settings.transfers.to_priority = dice.one_in(2);
    settings.digest_interval = match dice.one_in(3) {
        true => Duration::ZERO,
        false => Duration::from_millis(dice.log_within(500, 60_000)),
    };
    settings.leadership = LeadershipConfig { suspicion, ..LeadershipConfig::default() };
    settings.leases = match wanted.unwrap_or(drawn) {
        leases if settings.pre_vote => leases,
        _ => Leases::Off, // leases need pre-votes
    };
    if settings.leases == Leases::Off {
        return;
    }
    let trusted = match settings.leases.are_broken() {
        true => 500,
        false => pace.drift as u32 + spare,
    };
    let lease = LeaderLease {
        rho: trusted,
        margin: Duration::from_nanos(margin),
        watch_clocks: settings.leases != Leases::Believed, // there the reads must show it
    };
    if lease.length(timeout) <= heartbeat {
        settings.leases = Leases::Off;
        return;
    }
    settings.leadership.leader_lease = Some(lease);
    if settings.leases.are_broken() {
        pace.drift = 300_000;
        // A slow clock with a high priority among fast ones shows it soonest.
        let slow = dice.below(3) as usize;
        pace.rates = (0..9).map(|member| if member == slow { -300_000 } else { 300_000 }).collect();
        settings.priorities = (0..9).map(|member| if member == slow { 255 } else { 100 }).collect();
        settings.transfers.to_priority = true;
    }
}

/// Adds changes of the election timeout, down to half of the one that members start with and up to it again: the bounds
/// of the calm after the storm are those of the longest.
fn draw_timings(dice: &mut Dice, length: u64, settings: &Settings, injections: &mut Vec<(u32, Injection)>) {
    let gap = dice.log_within(SEC, 20 * SEC);
    let mut at = dice.below(gap);
    let mut number = injections.len() as u32;
    while at < length {
        let share = *dice.pick(&[2, 3, 4]); // quarters
        let timing = Timing {
            election_timeout: settings.election_timeout * share / 4,
            heartbeat_interval: settings.heartbeat_interval * share / 4,
        };
        injections.push((number, Injection { at, what: Inject::Change(Change::Timing(timing)) }));
        number += 1;
        at += dice.within(gap / 4, gap * 7 / 4);
    }
    injections.sort_by_key(|(_, injection)| injection.at);
}

/// In a third of the storms with leader leases, members differ about them. Clocks beyond their bound are tried where
/// all agree.
fn draw_disagreement(dice: &mut Dice, settings: &mut Settings) {
    let Some(lease) = settings.leadership.leader_lease.filter(|_| settings.leases == Leases::Within) else {
        return;
    };
    if !dice.one_in(3) {
        return;
    }
    let half = settings.election_timeout / 2;
    let may = settings.heartbeat_interval * 3 <= half && settings.heartbeat_interval < lease.length(half);
    let choices = [
        Disagrees::Not,
        Disagrees::WithoutLeases,
        if may { Disagrees::WithHalfTheTimeout } else { Disagrees::WithoutLeases },
    ];
    settings.disagree = (0..9).map(|_| *dice.pick(&choices)).collect();
}

/// In a third of the storms payloads of larger appends are read by jobs; in half of these some jobs hang.
fn draw_jobs(dice: &mut Dice, settings: &mut Settings) {
    if !dice.one_in(3) {
        return;
    }
    settings.limits.read_apart_bytes_min = dice.log_within(100, 2 << 10) as usize;
    settings.job_takes = dice.log_within(10 * US, settings.election_timeout.as_nanos() as u64 / 2);
    settings.jobs_hang = dice.one_in(2);
}

/// In most storms snapshots are taken all the time; in some, never.
fn draw_snapshots(dice: &mut Dice, wanted: Option<bool>, settings: &mut Settings) {
    let drawn = dice.one_in(6);
    let never = wanted.map_or(drawn, |wanted| !wanted);
    let log_bytes_min = if never { u64::MAX } else { dice.log_within(2 << 10, 128 << 10) };
    settings.snapshots = SnapshotLimits {
        log_bytes_min,
        // In half of the storms members rest after a snapshot. Not drawn: older seeds have the plans that they had.
        log_bytes_max: if log_bytes_min.is_multiple_of(2) { 0 } else { log_bytes_min.saturating_mul(8) },
        keep_bytes: if dice.one_in(3) { 0 } else { dice.log_within(1 << 10, 128 << 10) },
    };
    settings.snapshot_step = dice.log_within(10 * US, 2 * MS);
    settings.limits.snapshot_chunk_bytes_max = dice.log_within(4 << 10, 256 << 10) as usize;
    settings.limits.snapshot_bytes_per_s = dice.log_within(4 << 20, 256 << 20);
    settings.snapshot_pace = if dice.one_in(2) { 0 } else { dice.log_within(256 << 10, 16 << 20) };
    if !never {
        // Leaves something to prune.
        settings.segment_bytes =
            settings.segment_bytes.min(64 << 10).max(4 * settings.request_bytes_max as u64);
        let batch = settings.limits.batch_bytes_max;
        settings.limits.batch_bytes_max = batch.min(settings.segment_bytes as usize / 4);
    }
}

/// From a good solid-state disk to one that takes a tenth of the election timeout for a sync.
fn draw_disk(dice: &mut Dice, timeout: u64) -> Speed {
    if dice.one_in(3) {
        return Speed::SOLID;
    }
    let sync = dice.log_within(20 * US, (timeout / 10).min(10 * MS));
    Speed {
        read: dice.log_within(US, 100 * US),
        write: dice.log_within(US, 20 * US),
        sync,
        name: dice.log_within(US, sync),
        kib: dice.below(2 * US),
        spread_percent: dice.below(200),
    }
}

fn draw_load(dice: &mut Dice, settings: &Settings) -> Load {
    let mut weights = [0; 11];
    for (weight, most) in weights.iter_mut().zip([40, 20, 8, 12, 4, 8, 4, 12, 2, 1, 2]) {
        *weight = if dice.one_in(4) { 0 } else { dice.within(1, most) };
    }
    weights[0] = weights[0].max(5);
    let clients = dice.log_within(1, 24);
    Load {
        clients: clients as u32,
        rest: dice.log_within(20 * MS, 4 * SEC) * clients.div_ceil(4),
        keys: dice.log_within(1, 200),
        weights,
        value_bytes: dice.log_within(8, (settings.request_bytes_max as u64 / 2).min(4096)),
        patience: if dice.one_in(3) { dice.log_within(200 * MS, 8 * SEC) } else { 0 },
        at_least: 0,
        bounded: 0,
        bound_max: 0,
        callers: false,
        weak: false,
    }
}

/// How fresh reads must be: in two of three storms some are at least as new as an index, in two of three some have a
/// bound. Most stay linearizable, because most judges need that.
fn draw_levels(dice: &mut Dice, load: &mut Load, settings: &Settings) {
    let some = |dice: &mut Dice, most: u64| if dice.one_in(3) { 0 } else { dice.within(3, most) };
    load.at_least = some(dice, 20);
    load.bounded = some(dice, 15);
    load.bound_max = settings.election_timeout.as_nanos() as u64 * dice.within(1, 4);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything_and_seeds_differ() {
        let draw = |seed| format!("{:?}", Plan::draw(seed, &Options::default()));
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn storms_are_between_one_and_twenty_minutes_and_mostly_short() {
        let lengths: Vec<u64> =
            (0..400).map(|seed| Plan::draw(seed, &Options::default()).length / SEC).collect();
        assert!(lengths.iter().all(|seconds| (60..=1200).contains(seconds)));
        let short = lengths.iter().filter(|&&seconds| seconds < 300).count();
        assert!(short > 200, "{short} of 400 are below five minutes");
    }

    #[test]
    fn most_reads_of_every_storm_stay_linearizable_and_some_storms_have_no_other_level() {
        let load = |seed| Plan::draw(seed, &Options::default()).load;
        let levels: Vec<(u64, u64)> = (0..300).map(load).map(|load| (load.at_least, load.bounded)).collect();
        assert!(levels.iter().all(|(at_least, bounded)| at_least + bounded <= 35));
        let count = |such: fn(&&(u64, u64)) -> bool| levels.iter().filter(such).count();
        assert!(count(|level| level.0 > 0) > 150 && count(|level| level.1 > 0) > 150);
        assert!(count(|&&level| level == (0, 0)) > 15);
    }

    #[test]
    fn leaving_out_an_injection_leaves_the_others_as_they_are() {
        let all = Plan::draw(11, &Options::default());
        let keep: Vec<u32> = all.injections.iter().map(|(number, _)| *number).skip(1).collect();
        let fewer = Plan::draw(11, &Options { keep: Some(keep), ..Options::default() });
        assert_eq!(format!("{:?}", &all.injections[1..]), format!("{:?}", fewer.injections));
    }
}
