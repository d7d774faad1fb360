//! Family: what storms are about. Those that judge service have one kind of trouble each, and no other faults.
//!
//! | Family | What is in it | What is judged besides safety |
//! |---|---|---|
//! | [`Family::Storms`] | every fault, none for long | steps; service between two faults says little |
//! | [`Family::SlowLinks`] | links of 1, 10, 100 MB/s, members that come back far behind | goodput, progress, leaders that stay, memory, steps, tail |
//! | [`Family::SlowMembers`] | members with little CPU, members that come back far behind, compactions | progress, leaders that stay, memory, steps, tail |
//! | [`Family::BusyDisks`] | snapshots, changes of segments and compactions, at one disk for each member | progress, leaders that stay, memory, steps, tail |
//! | [`Family::Liars`] | a member that sends any well-formed message (`liar.rs`) | no process ends, memory, steps; in place of safety |
//!
//! Families that judge service have requests at a rate, as from clients that do not wait for each other. Steps of
//! members cost time by counted work, so a long step delays heartbeats. The limits of a lane to a peer are those of
//! production or an eighth of them, so that a storm of half a minute fills them.
//! Knows nothing of: members' internals.

use crate::beside::Beside;
use crate::clock::{MS, SEC, US};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::inject::{Inject, Injection, Kind, Kinds, Who};
use crate::load::{Ask, Stream};
use crate::net::id_of;
use crate::paths::Wire;
use crate::plan::{Load, Options, Plan};
use crate::report::Violation;
use crate::world::{Event, World};
use kattu_kv::api::Revision;
use kattu_kv::store::VERSION_OVERHEAD_BYTES;
use kattu_node::SnapshotLimits;
use kattu_raft::LogIndex;
use kattu_verify::service::{
    BoundedMemory, BoundedStep, Bounds, Goodput, Held, LinkCount, Progress, Slower, Standing, Work,
    percentile, tail,
};
use std::collections::BTreeMap;
use std::fmt;

/// What a storm is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Faults of all kinds.
    #[default]
    Storms,
    /// Links that are slow, and nothing else.
    SlowLinks,
    /// Members with little CPU, and nothing else.
    SlowMembers,
    /// Members with much work beside writes, and nothing else.
    BusyDisks,
    /// A lying member.
    Liars,
}

impl Family {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Storms => "storms",
            Family::SlowLinks => "slow-links",
            Family::SlowMembers => "slow-members",
            Family::BusyDisks => "busy-disks",
            Family::Liars => "liars",
        }
    }

    /// All of them.
    pub const ALL: [Family; 5] =
        [Family::Storms, Family::SlowLinks, Family::SlowMembers, Family::BusyDisks, Family::Liars];

    /// The family of this name.
    #[must_use]
    pub fn called(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }

    /// Whether this fault belongs to the family: each that does must happen in its campaigns.
    #[must_use]
    pub fn has(self, fault: Fault) -> bool {
        match fault {
            Fault::F54 => matches!(self, Family::SlowLinks | Family::Storms),
            Fault::F55 => matches!(self, Family::SlowMembers | Family::Storms),
            Fault::F51 => !matches!(self, Family::BusyDisks | Family::Liars),
            Fault::F01 | Fault::F02 | Fault::F03 | Fault::F30 | Fault::F32 | Fault::F33 => {
                matches!(self, Family::Storms | Family::Liars)
            }
            _ => self == Family::Storms,
        }
    }
}

/// The share of new bytes among those of entries that cross a slow link, at least: over each link in each storm, and
/// over all links of one rate in a campaign. [fault-model P14]
const GOODPUT_MIN: f64 = 0.9;
/// Links that carried less are not judged.
const GOODPUT_LEAST: u64 = 8 << 20;
/// Bytes that may still wait to be taken, or may have been lost with a stopped member.
const GOODPUT_UNDER_WAY: u64 = 2 << 20;
/// Units of work in one step, at most. The store: a slice of 8,192 units; as many for old versions removed beside it,
/// because a put costs 8 units and removes 8 versions at most; 2,048 more for a compaction and an idle moment. The
/// node: 30 Ki for entries, their records and their KiB that came from a peer during the step before, twice what was
/// seen where a member with little CPU catches up.
const STEP_UNITS_MAX: u64 = 48 << 10;
/// A reachable member that is behind holds more after this, and lacks less if it could. A frame of 1 MiB takes one
/// second on the slowest link.
const STANDSTILL_MAX: u64 = 5 * SEC;
/// A member could catch up if each of its links carries this many times what is written, and CPU is not short.
const COULD_GAIN: u64 = 2;
/// A member that lacks less than is written in this time counts as level.
const LEVEL: u64 = SEC;
/// By how much writes may be slower during trouble or work beside them.
const SLOWER: Slower = Slower { factor: 2.0, allowance: 10 * MS };
/// Bytes of frames and small messages besides entries, for each peer.
const FRAMES_SPARE: u64 = 1 << 20;
/// A unit of work takes this many nanoseconds.
const UNIT: u64 = 250;
/// Compacted versions are gone after this, also with little CPU, and while a snapshot is taken.
const FORGOTTEN_AFTER: u64 = 5 * SEC;
/// From this many storms on each judge must have judged.
const JUDGED_FROM: u64 = 12;
/// … and from this many on, in its share of all cases.
const JUDGED_SHARE_FROM: u64 = 100;
/// Time between two samples of members.
const LOOK: u64 = 100 * MS;
/// Requests begin here: by then there is a leader.
const LOAD_FROM: u64 = 3 * SEC;
/// No fault strikes before this.
const QUIET: u64 = 8 * SEC;

/// What a storm that judges service has besides its faults.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Which family.
    pub family: Family,
    /// Requests at a rate.
    pub streams: Vec<Stream>,
    /// Bytes per second of every link; unlimited if absent.
    pub rate: Option<u64>,
    /// A unit of work takes this many nanoseconds.
    pub unit: u64,
}

/// Draws a storm of such a family.
pub(crate) fn draw(seed: u64, options: &Options) -> Plan {
    let family = options.family;
    let dice = Dice::new(seed, family.name());
    let mut cluster = dice.fork(0);
    let members = options.members.unwrap_or(*cluster.pick(&[3, 3, 3, 5]));
    let seconds = options.seconds.unwrap_or(cluster.within(20, 40));
    let mut plan = Plan::steady(seed, members, seconds);
    plan.injections.clear();
    let mut settings = dice.fork(1);
    let scale = *settings.pick(&[1, 8, 8, 8]);
    let limits = &mut plan.settings.limits;
    limits.inflight_bytes_max /= scale;
    limits.recent_bytes_max /= scale;
    limits.recent_in_sync_bytes_max /= scale;
    limits.batch_bytes_max /= scale;
    plan.settings.segment_bytes = (16 << 20) / scale as u64;
    plan.settings.snapshots = match settings.below(3) {
        0 => SnapshotLimits { log_bytes_min: u64::MAX, log_bytes_max: 0, keep_bytes: 0 },
        _ => SnapshotLimits {
            log_bytes_min: settings.log_within(2 << 20, 32 << 20),
            log_bytes_max: 0,
            keep_bytes: settings.log_within(1 << 20, 32 << 20),
        },
    };
    plan.settings.snapshot_step = 500 * US;
    (plan.pace.turn, plan.pace.event) = (20 * US, 2 * US);
    plan.load = Load { clients: 0, ..plan.load };
    if family == Family::BusyDisks {
        load_the_disks(&mut plan, &mut dice.fork(3));
    }
    plan.kinds = match family {
        Family::BusyDisks => Kinds::of(&[Kind::Forget]),
        Family::SlowMembers => Kinds::of(&[Kind::Tired, Kind::Away, Kind::Forget]),
        Family::SlowLinks | Family::Storms | Family::Liars => Kinds::of(&[Kind::Narrow, Kind::Away]),
    };
    if let Some(allowed) = &options.kinds {
        let kinds: Vec<Kind> = plan.kinds.iter().filter(|kind| allowed.has(*kind)).collect();
        plan.kinds = Kinds::of(&kinds);
    }
    let mut serving = draw_serving(family, &mut dice.fork(2));
    if family == Family::BusyDisks && seed.is_multiple_of(3) {
        hasten_puts(&mut serving);
    }
    plan.service = Some(serving);
    // One follower is slow, away or behind. With two of three, writes would have to wait for one of them.
    let victim = cluster.below(members) as usize;
    plan.settings.priorities = (0..9).map(|member| if member == victim { 0 } else { 100 }).collect();
    let away = match family {
        Family::SlowMembers if cluster.one_in(4) => Who::Leader,
        _ => Who::Member(victim),
    };
    plan.injections = draw_injections(&dice, &plan, Who::Member(victim), away);
    plan.injections_planned = plan.injections.len();
    if let Some(keep) = &options.keep {
        plan.injections.retain(|(number, _)| keep.contains(number));
    }
    plan
}

/// Production writes chunks of a MiB at 64 MiB/s, which is 15.6 ms for each; a step takes half of this on average.
const PACED_STEP: u64 = 31 * MS;

/// Snapshots are taken again and again, at production's pace; each member has one disk for all that it does.
fn load_the_disks(plan: &mut Plan, dice: &mut Dice) {
    let settings = &mut plan.settings;
    settings.snapshots = SnapshotLimits {
        log_bytes_min: dice.log_within(2 << 20, 16 << 20),
        log_bytes_max: 0,
        keep_bytes: dice.log_within(1 << 20, 32 << 20),
    };
    settings.snapshot_step = PACED_STEP;
    settings.one_disk = true;
}

const MB: u64 = 1_000_000;
/// What all links of a storm carry, in bytes per second.
const LINK_RATES: [u64; 3] = [MB, 10 * MB, 100 * MB];

/// Puts per second of a stream, at most.
const PUTS_MAX: u64 = 2000;

fn draw_serving(family: Family, dice: &mut Dice) -> Serving {
    // A slow link cannot carry more than its rate for ever.
    let [slow, medium, fast] = LINK_RATES;
    let rate = (family == Family::SlowLinks).then(|| *dice.pick(&[slow, medium, medium, fast]));
    let (bytes_per_second, value) = match family {
        Family::SlowMembers => (dice.log_within(100_000, MB), dice.log_within(64, 1 << 10)),
        Family::BusyDisks => (dice.log_within(2 * MB, 8 * MB), dice.log_within(1 << 10, 16 << 10)),
        Family::SlowLinks | Family::Storms | Family::Liars => {
            let most = rate.unwrap_or(10 * MB) / 3;
            (dice.log_within(most.min(4 * MB) / 8, most.min(4 * MB)), dice.log_within(1 << 10, 32 << 10))
        }
    };
    let keys_max = if family == Family::BusyDisks { 16 << 10 } else { 4096 };
    let put = Stream {
        ask: Ask::Put { bytes: value as usize, keys: dice.log_within(16, keys_max) },
        per_second: (bytes_per_second / value).clamp(20, PUTS_MAX),
        anywhere: false,
    };
    let get = Stream { ask: Ask::Get { keys: 64 }, per_second: dice.log_within(5, 200), anywhere: false };
    let streams = if dice.one_in(3) { vec![put] } else { vec![put, get] };
    Serving { family, streams, rate, unit: UNIT }
}

/// As many bytes per second in the most puts. A compaction has then more to remove than fits between two puts, so there
/// are puts beside it to judge. A storm whose puts are large and few removes most between them: of twelve storms that
/// are drawn only, about one campaign in five hundred had not one with enough.
fn hasten_puts(serving: &mut Serving) {
    for stream in &mut serving.streams {
        if let Ask::Put { bytes, keys } = stream.ask {
            let bytes = (bytes as u64 * stream.per_second / PUTS_MAX).max(1) as usize;
            *stream = Stream { ask: Ask::Put { bytes, keys }, per_second: PUTS_MAX, ..*stream };
        }
    }
}

fn draw_injections(dice: &Dice, plan: &Plan, who: Who, away: Who) -> Vec<(u32, Injection)> {
    let mut all = Vec::new();
    for kind in plan.kinds.iter() {
        let mut dice = dice.fork(100 + kind as u64);
        let mut at = QUIET + dice.below(6 * SEC);
        while at < plan.length {
            let time = dice.within(2 * SEC, 8 * SEC);
            let what = match kind {
                Kind::Narrow => Inject::Narrow { who, rate: *dice.pick(&[MB, 10 * MB, 50 * MB]), time },
                Kind::Tired => Inject::Tired { who, times: dice.log_within(4, 64), time },
                Kind::Forget => Inject::Forget,
                _ => Inject::Away { who: away, down: time },
            };
            all.push(Injection { at, what });
            at += dice.within(6 * SEC, 14 * SEC);
        }
    }
    all.sort_by_key(|injection| injection.at);
    (0..).zip(all).collect()
}

/// The judges of service, and what they have seen of a running world.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) goodput: Goodput,
    /// The family, if service is judged.
    judged: Option<Family>,
    /// The judge whose findings are ignored.
    pub(crate) silent: Option<&'static str>,
    steps: BoundedStep,
    memory: BoundedMemory,
    progress: Progress,
    /// How many times less CPU each member has than it should.
    cpu: Vec<u64>,
    /// What a unit of work takes.
    unit: u64,
    /// The members that faults struck, by the place of the fault in the plan.
    struck: BTreeMap<usize, usize>,
    /// A fault is under way, or a member is behind because of one.
    busy: bool,
    /// Members that came back: when, and the index that they have to reach.
    coming: BTreeMap<usize, (u64, LogIndex)>,
    /// When each member was seen at a new compacted revision, since it was last down or behind.
    compacted: BTreeMap<usize, Vec<(u64, Revision)>>,
    /// When the first member was seen at a compacted revision.
    first_compacted: BTreeMap<Revision, u64>,
    /// Bytes of versions that the streams of a storm make, for each second.
    versions_per_second: u64,
    /// Puts of its streams, for each second.
    puts_per_second: u64,
    /// The leader at the last sample.
    led_by: Option<usize>,
    /// A fault struck the leader.
    leader_struck: bool,
    /// Each link's rate, and what it had carried when that was set.
    marks: BTreeMap<(usize, usize), (u64, LinkCount)>,
    sum: ServiceSum,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            goodput: Goodput::default(),
            judged: None,
            silent: None,
            steps: BoundedStep::new(STEP_UNITS_MAX),
            memory: BoundedMemory::new(),
            progress: Progress::new(Bounds { leaderless: u64::MAX, standstill: STANDSTILL_MAX }),
            cpu: Vec::new(),
            unit: 0,
            struck: BTreeMap::new(),
            busy: false,
            coming: BTreeMap::new(),
            compacted: BTreeMap::new(),
            first_compacted: BTreeMap::new(),
            versions_per_second: 0,
            puts_per_second: 0,
            led_by: None,
            leader_struck: false,
            marks: BTreeMap::new(),
            sum: ServiceSum::default(),
        }
    }
}

impl Service {
    /// Whether writes are timed.
    pub(crate) fn times_writes(&self) -> bool {
        self.judged.is_some()
    }

    /// The finding of a judge, unless it is the silent one.
    pub(crate) fn hear<T: Default>(
        &self,
        judged: Result<T, kattu_verify::service::Violation>,
    ) -> Result<T, Violation> {
        match judged {
            Err(found) if self.silent == Some(found.property) => Ok(T::default()),
            judged => Ok(judged?),
        }
    }

    /// Notes a member's step; how long it takes besides its events.
    pub(crate) fn stepped(&mut self, member: usize, work: Work) -> Result<u64, Violation> {
        let judged = self.steps.stepped(id_of(member), work);
        self.hear(judged)?;
        Ok(work.units() * self.unit)
    }

    /// How many times less CPU a member has than it should.
    pub(crate) fn slowness(&self, member: usize) -> u64 {
        self.cpu.get(member).copied().unwrap_or(1)
    }

    /// Notes the answer to a write.
    pub(crate) fn answered(&mut self, took: u64, done: bool, asked: When) {
        if self.judged.is_none() {
            return;
        }
        match (done, asked) {
            (false, _) => self.sum.refused += 1,
            (true, When::Quiet) => self.sum.quiet.push(took),
            (true, When::Busy) => self.sum.busy.push(took),
            (true, When::Slowed) => self.sum.slowed.push(took),
            (true, When::Beside(what)) => self.sum.beside.entry(what).or_default().push(took),
        }
    }

    /// From now on a step takes `unit` for each unit of its work, and may do `units_max` units.
    pub(crate) fn count_work(&mut self, unit: u64, units_max: u64) {
        (self.unit, self.steps) = (unit, BoundedStep::new(units_max));
    }

    /// The largest step so far.
    pub(crate) fn largest_step(&self) -> Work {
        self.steps.seen().1
    }

    /// Nothing is slow, and nothing but steps is judged, from now on.
    pub(crate) fn rest(&mut self) {
        (self.judged, self.unit) = (None, 0);
        self.cpu.clear();
    }

    /// The situation of a write that begins now.
    pub(crate) fn asked(&self, slows_clients: bool, beside: Option<Beside>) -> When {
        match (slows_clients, self.busy) {
            (true, _) => When::Slowed,
            (false, true) => When::Busy,
            (false, false) => When::Quiet.or(beside),
        }
    }
}

/// The situation of a write. Of several the first counts: clients are slowed; a member is in trouble; a running member
/// (the leader or any other that may be in the quorum) works beside writes, the shortest work first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// No work was under way when it began, and none began before its answer.
    Quiet,
    /// A member was slow, away or behind when it began.
    Busy,
    /// The leader then slowed its clients for a member that came back, or had done so within a heartbeat interval: what
    /// was held back so long went before it.
    Slowed,
    /// This work was under way when it began, or began before its answer.
    Beside(Beside),
}

impl When {
    /// The same, given the work that began since.
    pub(crate) fn or(self, beside: Option<Beside>) -> When {
        match (self, beside) {
            (When::Quiet, Some(what)) => When::Beside(what),
            (when, _) => when,
        }
    }
}

/// How often a judge judged, and how often it had too little to judge by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Cases that were judged.
    pub judged: u64,
    /// Cases that were not.
    pub skipped: u64,
}

/// Names in reports of judges that may have too little to judge by.
const OF_GOODPUT: &str = "goodput of links that carried something";
const OF_TROUBLE: &str = "tail while a member is in trouble";
const OF_BESIDE: [&str; 3] = [
    "tail while a log goes over to its next segment",
    "tail while a compaction runs",
    "tail while a snapshot is taken",
];
const OF_CLOSER: &str = "progress of members that could come closer";
const OF_OFFICE: &str = "leaders that no fault struck stay";
const OF_HISTORY: &str = "history of members that keep up";

impl Family {
    /// The judges of this family, each with the share of cases that it must judge, in percent. Most links carry answers
    /// only; a member that comes back in the last seconds of a storm leaves few writes to compare.
    fn judges(self) -> &'static [(&'static str, u64)] {
        match self {
            Family::Storms | Family::Liars => &[],
            Family::SlowLinks => &[(OF_GOODPUT, 5), (OF_CLOSER, 10), (OF_TROUBLE, 25), (OF_OFFICE, 50)],
            Family::SlowMembers => &[(OF_TROUBLE, 25), (OF_OFFICE, 25), (OF_HISTORY, 25)],
            Family::BusyDisks => &[
                (OF_BESIDE[0], 25),
                (OF_BESIDE[1], 25),
                (OF_BESIDE[2], 25),
                (OF_OFFICE, 90),
                (OF_HISTORY, 50),
            ],
        }
    }
}

/// The results of storms that judge service.
#[derive(Clone, Debug, Default)]
pub struct ServiceSum {
    /// What links carried, by their bytes per second; 0 is unlimited.
    pub links: BTreeMap<u64, LinkCount>,
    /// How long members that came back took to catch up, in nanoseconds.
    pub caught_up: Vec<u64>,
    /// How long writes took without trouble or work beside them.
    pub quiet: Vec<u64>,
    /// How long writes took during this work, and nothing that counts more.
    pub beside: BTreeMap<Beside, Vec<u64>>,
    /// How long writes took while a member was slow, away or behind.
    pub busy: Vec<u64>,
    /// How long writes took while clients were slowed for a member that came back.
    pub slowed: Vec<u64>,
    /// Requests that were refused, or never answered.
    pub refused: u64,
    /// Steps of members, and the largest one's work.
    pub steps: (u64, Work),
    /// The most bytes that one member held: for clients, peers, history, snapshots.
    pub held: [u64; 4],
    /// The longest time without a leader although there could have been one.
    pub leaderless: u64,
    /// Samples of members.
    pub looks: u64,
    /// … and those of members that were behind and could catch up.
    pub gaps_seen: u64,
    /// Verdicts of judges, by their names.
    pub verdicts: BTreeMap<&'static str, Verdicts>,
}

impl ServiceSum {
    /// How many steps there were, and what the largest did.
    #[must_use]
    pub fn said_of_steps(&self) -> String {
        let (steps, largest) = self.steps;
        let Work { entries, keys, bytes } = largest;
        let units = largest.units();
        format!(
            "{steps} steps, the largest {units} units of work ({entries} entries, {keys} keys, {bytes} bytes)"
        )
    }

    fn judged(&mut self, judge: &'static str, has_judged: bool) {
        let verdicts = self.verdicts.entry(judge).or_default();
        *(if has_judged { &mut verdicts.judged } else { &mut verdicts.skipped }) += 1;
    }

    /// The judges of a family that had too little to judge by.
    #[must_use]
    pub(crate) fn judged_too_few(&self, family: Family, storms: u64) -> Vec<String> {
        let verdicts = |judge: &str| self.verdicts.get(judge).copied().unwrap_or_default();
        let is_too_few = |&&(judge, share): &&(&str, u64)| {
            let Verdicts { judged, skipped } = verdicts(judge);
            let share = if storms < JUDGED_SHARE_FROM { 0 } else { share };
            JUDGED_FROM <= storms && (judged == 0 || judged * 100 < share * (judged + skipped))
        };
        let too_few = family.judges().iter().filter(is_too_few);
        let said = |&(judge, share): &(&str, u64)| {
            let Verdicts { judged, skipped } = verdicts(judge);
            format!("{judge} ({judged} of {}, {share} in a hundred are wanted)", judged + skipped)
        };
        too_few.map(said).chain(self.rates_too_rare(family, storms)).collect()
    }

    /// Rates of links whose goodput in all storms together is less than guaranteed.
    #[must_use]
    pub fn wasted(&self, family: Family) -> Vec<String> {
        let limited = self.links.iter().filter(|(rate, _)| family == Family::SlowLinks && **rate > 0);
        let poor = limited.filter(|(_, count)| GOODPUT_LEAST <= count.sent && count.ratio() < GOODPUT_MIN);
        poor.map(|(rate, count)| {
            let ratio = count.ratio();
            format!(
                "goodput of links of {} MB/s: {ratio:.3}, at least {GOODPUT_MIN:.2} is guaranteed",
                rate / MB
            )
        })
        .collect()
    }

    /// Rates of limited links of this family that carried too little to be judged.
    fn rates_too_rare(&self, family: Family, storms: u64) -> Vec<String> {
        let rates =
            LINK_RATES.into_iter().filter(|_| family == Family::SlowLinks && JUDGED_SHARE_FROM <= storms);
        let sent = rates.map(|rate| (rate, self.links.get(&rate).map_or(0, |count| count.sent)));
        sent.filter(|(_, sent)| *sent < GOODPUT_LEAST)
            .map(|(rate, sent)| format!("goodput of links of {} MB/s ({sent} bytes)", rate / MB))
            .collect()
    }

    /// Adds another storm's results.
    pub fn add(&mut self, other: &ServiceSum) {
        for (judge, verdicts) in &other.verdicts {
            let sum = self.verdicts.entry(judge).or_default();
            sum.judged += verdicts.judged;
            sum.skipped += verdicts.skipped;
        }
        for (rate, count) in &other.links {
            let sum = self.links.entry(*rate).or_default();
            sum.sent += count.sent;
            sum.taken += count.taken;
        }
        self.caught_up.extend(&other.caught_up);
        self.quiet.extend(&other.quiet);
        for (what, times) in &other.beside {
            self.beside.entry(*what).or_default().extend(times);
        }
        self.busy.extend(&other.busy);
        self.slowed.extend(&other.slowed);
        self.refused += other.refused;
        let larger = core::cmp::max_by_key(self.steps.1, other.steps.1, Work::units);
        self.steps = (self.steps.0 + other.steps.0, larger);
        for (most, other) in self.held.iter_mut().zip(other.held) {
            *most = (*most).max(other);
        }
        self.leaderless = self.leaderless.max(other.leaderless);
        self.looks += other.looks;
        self.gaps_seen += other.gaps_seen;
    }
}

impl fmt::Display for ServiceSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: u64| time as f64 / 1e6;
        for (rate, count) in &self.links {
            let class = match rate {
                0 => "without a limit".to_string(),
                rate => format!("of {} MB/s", rate / MB),
            };
            let LinkCount { sent, taken } = count;
            let ratio = count.ratio();
            let bound = match rate {
                0 => String::new(),
                _ if *sent < GOODPUT_LEAST => ", too few to judge by".to_string(),
                _ if ratio < GOODPUT_MIN => format!(", BELOW {GOODPUT_MIN:.2}"),
                _ => format!(", at least {GOODPUT_MIN:.2} is guaranteed"),
            };
            writeln!(f, "links {class}: {sent} bytes crossed, {taken} of them new: {ratio:.3}{bound}")?;
        }
        let shown = |times: &[u64]| {
            let mut times = times.to_vec();
            let [p50, p99, most] = [500, 990, 1000].map(|rank| ms(percentile(&mut times, rank)));
            format!("{}: p50 {p50:.2} ms, p99 {p99:.2} ms, most {most:.2} ms", times.len())
        };
        writeln!(f, "members that came back and caught up, {}", shown(&self.caught_up))?;
        writeln!(f, "writes while nothing went on, {}", shown(&self.quiet))?;
        for what in Beside::ALL {
            let times = self.beside.get(&what).map_or(&[][..], Vec::as_slice);
            writeln!(f, "writes while {}, {}", what.about(), shown(times))?;
        }
        writeln!(
            f,
            "writes while a member was slow, away or behind, {}; {} refused or open",
            shown(&self.busy),
            self.refused
        )?;
        writeln!(f, "writes while clients were slowed for a member, {}", shown(&self.slowed))?;
        let held: Vec<String> =
            Held::ALL.iter().zip(self.held).map(|(held, most)| format!("{} {most}", held.name())).collect();
        writeln!(f, "most bytes held by a member: {}", held.join(", "))?;
        for (judge, Verdicts { judged, skipped }) in &self.verdicts {
            writeln!(f, "{judge}: {judged} judged, {skipped} had too little to judge by")?;
        }
        writeln!(
            f,
            "{}; {:.1} ms without a leader at most, in {} looks; {} looks at members that could catch up",
            self.said_of_steps(),
            ms(self.leaderless),
            self.looks,
            self.gaps_seen
        )
    }
}

/// Bytes of versions that the puts of a stream make, for each second.
fn versions_per_second(stream: &Stream) -> u64 {
    match stream.ask {
        Ask::Put { bytes, .. } => (bytes as u64 + VERSION_OVERHEAD_BYTES) * stream.per_second,
        Ask::Get { .. } => 0,
    }
}

/// Puts of a stream, for each second.
fn puts_per_second(stream: &Stream) -> u64 {
    match stream.ask {
        Ask::Put { .. } => stream.per_second,
        Ask::Get { .. } => 0,
    }
}

impl World {
    /// Starts the requests and slows what is slow in a storm that judges service.
    pub(crate) fn begin_service(&mut self) {
        let members = self.members.len();
        if self.plan.kinds.has(Kind::Tired) {
            let service = &mut self.sh.service;
            (service.cpu, service.unit) = (vec![1; members], UNIT);
        }
        let Some(serving) = self.plan.service.clone() else { return };
        let settings = &self.plan.settings;
        let timeout = settings.election_timeout.as_nanos() as u64;
        let peers = members as u64 - 1;
        // One entry of any size may exceed the limit; headers and small messages need a little.
        let limits = &settings.limits;
        let per_peer = (limits.inflight_bytes_max + limits.batch_bytes_max) as u64 + FRAMES_SPARE;
        // Entries kept for all peers together, and those since the last count.
        let recent =
            (limits.recent_in_sync_bytes_max.max(limits.recent_bytes_max) + limits.inflight_bytes_max) as u64;
        // One chunk is under way at a time, and one may be on its way out.
        let per_stream = 2 * limits.snapshot_chunk_bytes_max as u64 + FRAMES_SPARE;
        self.sh.service = Service {
            judged: Some(serving.family),
            memory: BoundedMemory::new()
                .with(Held::Peers, per_peer * peers + recent)
                .with(Held::Snapshots, per_stream * peers)
                .with(Held::Clients, settings.pending_bytes_max as u64),
            // [P8]
            progress: Progress::new(Bounds { leaderless: 3 * timeout, standstill: STANDSTILL_MAX }),
            versions_per_second: serving.streams.iter().map(versions_per_second).sum(),
            puts_per_second: serving.streams.iter().map(puts_per_second).sum(),
            cpu: vec![1; members],
            unit: serving.unit,
            ..Service::default()
        };
        for (from, to) in self.ways() {
            self.set_rate(from, to, serving.rate);
        }
        for stream in serving.streams {
            self.begin_load(stream, LOAD_FROM);
        }
        self.sh.queue.plan(LOOK, Event::LookAtService);
    }

    /// All one-way links.
    pub(crate) fn ways(&self) -> Vec<(usize, usize)> {
        let all = 0..self.members.len();
        let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
        pairs.filter(|(from, to)| from != to).collect()
    }

    fn set_rate(&mut self, from: usize, to: usize, rate: Option<u64>) {
        self.close_count(from, to, rate.unwrap_or(0));
        let (net, mut around) = self.sh.net();
        net.paths.set_wire(&mut around, from, to, rate.map(Wire::new));
    }

    /// Adds what a link has carried at its rate until now to the sum of that rate.
    fn close_count(&mut self, from: usize, to: usize, rate: u64) {
        let now = self.link_count(from, to);
        if let Some((before, then)) = self.sh.service.marks.insert((from, to), (rate, now)) {
            let sum = self.sh.service.sum.links.entry(before).or_default();
            let between = then.until(now);
            sum.sent += between.sent;
            sum.taken += between.taken;
        }
    }

    /// The target of a fault of service: a running member; where service is judged, not the leader.
    fn struck(&self, who: Who) -> Option<usize> {
        let may_lead = self.sh.service.judged.is_none();
        self.running(who).filter(|&member| may_lead || self.leader() != Some(member))
    }

    /// Begins what slows a member down, and faults of service storms alone; whether there was a target.
    pub(crate) fn strike_service(&mut self, place: usize, what: &Inject) -> Result<bool, Violation> {
        let time = match *what {
            Inject::Forget => {
                self.forget();
                return Ok(true);
            }
            Inject::Narrow { who, rate, time } => {
                let Some(member) = self.struck(who) else { return Ok(false) };
                let base = self.plan.service.as_ref().and_then(|serving| serving.rate);
                let rate = base.map_or(rate, |base| base.min(rate));
                self.sh.service.struck.insert(place, member);
                self.narrow(member, Some(rate));
                time
            }
            Inject::Tired { who, times, time } => {
                let Some(member) = self.struck(who) else { return Ok(false) };
                self.sh.service.struck.insert(place, member);
                if let Some(cpu) = self.sh.service.cpu.get_mut(member) {
                    *cpu = times;
                }
                time
            }
            Inject::Away { who, down } => {
                let member = if who == Who::Leader { self.running(who) } else { self.struck(who) };
                let Some(member) = member else { return Ok(false) };
                self.sh.service.busy = true;
                self.sh.service.leader_struck |= self.leader() == Some(member);
                self.stop_when_free(member, self.sh.now + SEC, down)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.sh.service.busy = true;
        self.sh.queue.plan(self.sh.now + time, Event::Over { place });
        Ok(true)
    }

    fn narrow(&mut self, member: usize, rate: Option<u64>) {
        for (from, to) in self.ways() {
            if from == member || to == member {
                self.set_rate(from, to, rate);
            }
        }
    }

    /// Ends such a fault.
    pub(crate) fn service_over(&mut self, place: usize) {
        let Some(member) = self.sh.service.struck.remove(&place) else { return };
        match self.plan.injections[place].1.what {
            Inject::Narrow { .. } => {
                let base = self.plan.service.as_ref().and_then(|serving| serving.rate);
                self.narrow(member, base);
            }
            Inject::Tired { .. } => {
                if let Some(cpu) = self.sh.service.cpu.get_mut(member) {
                    *cpu = 1;
                }
            }
            _ => {}
        }
    }

    /// Samples all members: the leader, progress, memory.
    pub(crate) fn look_at_service(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        let now = self.sh.now;
        self.sh.queue.plan(now + LOOK, Event::LookAtService);
        let running: Vec<usize> = self.up().into_iter().filter(|&member| !self.is_paused(member)).collect();
        // A link that no fault cuts counts as open: the time to open it belongs to the bound.
        let can_be_led = running.iter().any(|&member| {
            let hears =
                running.iter().filter(|&&other| other == member || !self.sh.net.paths.is_cut(member, other));
            hears.count() > self.plan.members as usize / 2
        });
        let leader = self.leader();
        // The first election is not judged.
        let is_led = leader.is_some() || now < LOAD_FROM;
        let judged = self.sh.service.progress.look_at_leader(now, can_be_led, is_led);
        self.sh.service.hear(judged)?;
        let Some(leader) = leader else { return Ok(()) };
        let last = self.raft(leader).map_or(LogIndex(0), |raft| raft.last_id().index);
        if self.sh.service.led_by.replace(leader) != Some(leader) {
            // Bytes written and taken are counted from the beginning of this leadership.
            (0..self.members.len()).for_each(|member| self.sh.service.progress.begins_anew(id_of(member)));
        }
        let mut is_behind = false;
        for member in 0..self.members.len() {
            let Some(raft) = self.raft(member) else {
                is_behind = true;
                self.sh.service.progress.begins_anew(id_of(member));
                self.sh.service.coming.insert(member, (now, last));
                self.sh.service.compacted.remove(&member);
                continue;
            };
            let held = raft.persisted_index().max(raft.base().index);
            if member != leader {
                let received = self.link_count(leader, member).taken;
                let reachable =
                    self.sh.net.paths.is_up(leader, member) && self.sh.net.paths.is_up(member, leader);
                let lacks = self.could_gain(leader, member, held, last).then(|| {
                    let written = self.members[leader]
                        .process
                        .as_ref()
                        .map_or(0, |process| process.hands.eyes.entry_bytes);
                    written as i64 - received as i64
                });
                let standing = Standing { reachable, held, received, lacks };
                let judged = self.sh.service.progress.look_at_member(now, id_of(member), standing, last);
                self.sh.service.hear(judged)?;
            }
            if let Some(&(since, target)) = self.sh.service.coming.get(&member) {
                is_behind |= held < target;
                if target <= held {
                    self.sh.service.coming.remove(&member);
                    self.sh.service.sum.caught_up.push(now - since);
                    self.sh.tally.add(Fault::F51);
                }
            }
            self.look_at_memory(member)?;
        }
        self.sh.service.busy = is_behind || !self.sh.service.struck.is_empty();
        Ok(())
    }

    /// Whether a member that is behind could catch up.
    fn could_gain(&self, leader: usize, member: usize, held: LogIndex, last: LogIndex) -> bool {
        let service = &self.sh.service;
        let level = service.puts_per_second * LEVEL / SEC;
        let carries = |from, to| {
            let rate = service.marks.get(&(from, to)).map_or(0, |(rate, _)| *rate);
            rate == 0 || COULD_GAIN * service.versions_per_second <= rate
        };
        level < last.0.saturating_sub(held.0)
            && carries(leader, member)
            && [leader, member].into_iter().all(|place| service.slowness(place) == 1)
    }

    fn look_at_memory(&mut self, member: usize) -> Result<(), Violation> {
        let waiting = (0..self.members.len()).map(|to| self.sh.net.paths.waiting(member, to));
        let (peers, snapshots) = waiting.fold((0, 0), |sum, lanes| (sum.0 + lanes.0, sum.1 + lanes.1));
        let Some(process) = &self.members[member].process else { return Ok(()) };
        let stats = process.keeper().store().stats();
        let (history, compacted) =
            (stats.bytes - stats.bytes_in_use, process.keeper().store().compact_revision());
        let recent = process.node().raft().recent_bytes() as u64;
        let clients = process.call_bytes();
        for (held, bytes) in
            [(Held::Clients, clients), (Held::Peers, peers + recent), (Held::Snapshots, snapshots)]
        {
            let judged = self.sh.service.memory.holds(id_of(member), held, bytes);
            self.sh.service.hear(judged)?;
        }
        self.look_at_history(member, history, compacted)
    }

    /// A member may hold the history written, at the rate of the storm's streams, since the newest compaction that it
    /// had time for. A member that is behind or has little CPU has no known budget.
    fn look_at_history(&mut self, member: usize, history: u64, compacted: Revision) -> Result<(), Violation> {
        let now = self.sh.now;
        let service = &mut self.sh.service;
        let is_behind = service.coming.contains_key(&member) || service.slowness(member) > 1;
        service.first_compacted.entry(compacted).or_insert(now);
        let seen = service.compacted.entry(member).or_default();
        if is_behind {
            seen.clear();
        } else if seen.last().is_none_or(|&(_, revision)| revision < compacted) {
            seen.push((now, compacted));
        }
        // The newest compaction that it had time for. It may have reached it late, so the writes since the first member
        // reached it count. The first one seen of it does not count: it may have been reached at any time.
        let mut done = seen.iter().skip(1).rev().filter(|(at, _)| at + FORGOTTEN_AFTER <= now);
        let done = done.next().and_then(|(_, revision)| service.first_compacted.get(revision).copied());
        let since = done.unwrap_or(LOAD_FROM.min(now)) - LOOK.min(now);
        let budget = (now - since).saturating_mul(service.versions_per_second) / SEC + FRAMES_SPARE;
        service.sum.judged(OF_HISTORY, !is_behind);
        service.memory.budget(Held::History, if is_behind { u64::MAX } else { budget });
        let judged = service.memory.holds(id_of(member), Held::History, history);
        service.hear(judged)
    }

    /// Runs the judges of service, after the storm and before the calm.
    pub(crate) fn judge_service(&mut self) -> Result<(), Violation> {
        let Some(family) = self.sh.service.judged else { return Ok(()) };
        for (from, to) in self.ways() {
            self.close_count(from, to, 0);
            let carried = self.sh.net.paths.path(from, to).carried;
            self.sh.service.goodput.sent(id_of(from), id_of(to), carried);
        }
        if family == Family::SlowLinks {
            let judged = self.sh.service.goodput.judge(GOODPUT_MIN, GOODPUT_LEAST, GOODPUT_UNDER_WAY);
            self.sh.service.hear(judged)?;
            let links: Vec<u64> = self.sh.service.goodput.links().map(|(.., count)| count.sent).collect();
            for sent in links.into_iter().filter(|sent| *sent > 0) {
                self.sh.service.sum.judged(OF_GOODPUT, GOODPUT_LEAST <= sent);
            }
        }
        let closer = 0 < self.sh.service.progress.gaps_seen();
        self.sh.service.sum.judged(OF_CLOSER, closer);
        let elections = self.sh.counts.elections;
        let leader_struck = self.sh.service.leader_struck;
        self.sh.service.sum.judged(OF_OFFICE, !leader_struck);
        if !leader_struck && elections > 1 {
            let story = format!("{elections} elections were won, and no fault struck a leader");
            return Err(Violation::new("leaders_stay", story));
        }
        // Where the leader changed, or had little CPU, writes waited for that.
        if elections > 1 {
            let others = OF_BESIDE.into_iter().chain([OF_TROUBLE]);
            others.for_each(|judge| self.sh.service.sum.judged(judge, false));
        } else {
            let sum = &self.sh.service.sum;
            // How long a write of [`When::Slowed`] may have waited for that. [fault-model F51]
            let may_wait = self.plan.settings.heartbeat_interval.as_nanos() as u64;
            let slowed = sum.slowed.iter().map(|took| took.saturating_sub(may_wait));
            let mut with: Vec<u64> = sum.busy.iter().copied().chain(slowed).collect();
            let mut quiet = sum.quiet.clone();
            let trouble = tail("a member is slow, away or behind", &mut with, &mut quiet, SLOWER);
            let mut judged = vec![(OF_TROUBLE, self.sh.service.hear(trouble)?)];
            for what in Beside::ALL {
                let mut times = sum.beside.get(&what).cloned().unwrap_or_default();
                let tails = tail(what.about(), &mut times, &mut quiet, SLOWER);
                judged.push((OF_BESIDE[what as usize], self.sh.service.hear(tails)?));
            }
            for (judge, tails) in judged {
                self.sh.service.sum.judged(judge, tails.is_some());
            }
        }
        Ok(())
    }

    /// The results, for the report.
    pub(crate) fn service_sum(&mut self) -> ServiceSum {
        let service = &mut self.sh.service;
        let mut sum = std::mem::take(&mut service.sum);
        let (steps, largest) = service.steps.seen();
        sum.steps = (steps, largest);
        sum.held = Held::ALL.map(|held| service.memory.most(held));
        sum.leaderless = service.progress.longest_leaderless();
        sum.looks = service.progress.looks();
        sum.gaps_seen = service.progress.gaps_seen();
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_that_never_judged_or_hardly_ever_is_said() {
        let family = Family::BusyDisks;
        let mut sum = ServiceSum::default();
        assert_eq!(sum.judged_too_few(family, 11), Vec::<String>::new(), "too few storms to say so");
        assert_eq!(sum.judged_too_few(family, 12).len(), family.judges().len(), "nobody was ever asked");
        for (judge, _) in family.judges() {
            sum.judged(judge, true);
        }
        assert_eq!(sum.judged_too_few(family, 100), Vec::<String>::new());
        for _ in 0..99 {
            sum.judged(OF_BESIDE[1], false);
        }
        assert_eq!(sum.judged_too_few(family, 12), Vec::<String>::new(), "once is enough for a few");
        let said = sum.judged_too_few(family, 100);
        assert_eq!(said, ["tail while a compaction runs (1 of 100, 25 in a hundred are wanted)"]);
        let mut twice = sum.clone();
        twice.add(&sum);
        assert!(
            twice.to_string().contains("tail while a compaction runs: 2 judged, 198 had too little"),
            "{twice}"
        );
    }

    #[test]
    fn links_of_one_rate_that_carry_copies_are_said_whatever_the_others_carry() {
        let mut sum = ServiceSum::default();
        let count = |sent, taken| LinkCount { sent, taken };
        sum.links.insert(0, count(100 * MB, 0));
        for rate in LINK_RATES {
            sum.links.insert(rate, count(1000 * MB, 999 * MB));
        }
        assert_eq!(sum.wasted(Family::SlowLinks), Vec::<String>::new(), "links without a limit are not slow");
        sum.links.insert(MB, count(10 * MB, 8_500_000));
        let said = sum.wasted(Family::SlowLinks);
        assert_eq!(said, ["goodput of links of 1 MB/s: 0.850, at least 0.90 is guaranteed"]);
        assert!(sum.to_string().contains("8500000 of them new: 0.850, BELOW 0.90"), "{sum}");
        assert_eq!(sum.wasted(Family::SlowMembers), Vec::<String>::new(), "nobody's links are slow there");
        assert_eq!(sum.rates_too_rare(Family::SlowLinks, 100), Vec::<String>::new());
        sum.links.insert(MB, count(1000, 0));
        assert_eq!(sum.wasted(Family::SlowLinks), Vec::<String>::new(), "one append would decide");
        let rare = sum.judged_too_few(Family::SlowLinks, 100);
        assert!(rare.contains(&"goodput of links of 1 MB/s (1000 bytes)".to_string()), "{rare:?}");
    }

    #[test]
    fn what_is_beside_writes_has_a_judge_of_its_own() {
        for what in Beside::ALL {
            assert_eq!(OF_BESIDE[what as usize], format!("tail while {}", what.about()));
        }
    }
}
