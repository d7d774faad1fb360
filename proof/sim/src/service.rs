//! Service: situations that measure how well a cluster serves, not whether it is right: what crosses a slow link, how
//! long a member takes to catch up.
//!
//! Members, disks and frames are those of storms, with the limits of production. A link has one rate for all its lanes
//! together; the judges are those of `kattu_verify::service`.
//! Knows nothing of: how results are shown.

use crate::clock::{MS, SEC, US};
use crate::inject::{Change, Inject, Injection, Kinds};
use crate::load::{Ask, Stream, Timed};
use crate::net::id_of;
use crate::paths::{BULK, CONTROL, Wire};
use crate::plan::{Plan, TASKS_MAX_SERVED};
use crate::report::Violation;
use crate::trace::Told;
use crate::world::World;
use kattu_member::step::{LIMITS, Limits};
use kattu_member::streams::{Dispatch, Streams};
use kattu_node::{SnapshotLimits, level};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{LinkEnd, LogIndex, NbRaft, Protocol};
use kattu_verify::service::{BoundedMemory, Done, Held, LinkCount, RECOVERY, Work, no_metastable_state};
use std::sync::{Arc, Mutex};

/// Nothing else takes longer than this.
const PATIENCE: u64 = 60 * SEC;
/// Bytes of the values that put a follower behind.
const VALUE_BYTES: usize = 32 << 10;
/// How fast they are written, in bytes per second.
const FILL_RATE: u64 = 64 << 20;

/// A follower that comes back far behind, over a slow link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLink {
    /// What the link carries each way, in bytes per second.
    pub rate: u64,
    /// How far behind the follower is, in bytes of entries.
    pub behind: u64,
    /// Linearizable reads per second meanwhile.
    pub reads: u64,
    /// Puts of 1 KiB per second meanwhile.
    pub writes: u64,
    /// Puts of 400 KiB per second meanwhile.
    pub large: u64,
    /// The link's connections are reset this often, in nanoseconds; 0 never.
    pub reset_every: u64,
    /// Most of it comes as a snapshot: the log keeps 1 MiB only.
    pub by_snapshot: bool,
    /// Entries take four connections and come in any order; followers have a window.
    pub has_streams: bool,
    /// It is watched for at least so long, in nanoseconds.
    pub lasts: u64,
}

impl SlowLink {
    /// One connection that carries nothing else, until the follower has caught up.
    #[must_use]
    pub const fn quiet(rate: u64, behind: u64) -> SlowLink {
        SlowLink {
            rate,
            behind,
            reads: 0,
            writes: 0,
            large: 0,
            reset_every: 0,
            by_snapshot: false,
            has_streams: false,
            lasts: 0,
        }
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct CaughtUp {
    /// What crossed the link from the follower's return until it had caught up, or until patience ended.
    pub link: LinkCount,
    /// Bytes that it lacked when it came back.
    pub behind: u64,
    /// How long from the opening of its links until it held what the leader held when it came back, in nanoseconds;
    /// none if it never did.
    pub took: Option<u64>,
    /// How long until it lacked no more than a second's writes; measured where writes go on and a snapshot comes.
    pub level: Option<u64>,
    /// How long these bytes take on the link alone.
    pub ideal: u64,
    /// Requests meanwhile.
    pub timed: Vec<Timed>,
    /// Most bytes that waited for the link in the leader's lanes.
    pub waiting_max: u64,
    /// How often the link was reset meanwhile.
    pub resets: u32,
    /// The most entries that it kept in its window, as the leader saw it.
    pub early_max: u64,
}

impl CaughtUp {
    /// How much longer it took than the link alone would have; infinite if it never caught up.
    #[must_use]
    pub fn stretch(&self) -> f64 {
        self.took.map_or(f64::INFINITY, |took| took as f64 / self.ideal as f64)
    }
}

/// A follower is stopped, the others write until it is far behind, and it comes back over a slow link.
///
/// # Errors
/// A violation meanwhile, or a cluster that does not come to rest before.
pub fn slow_link(seed: u64, situation: &SlowLink) -> Result<CaughtUp, Violation> {
    let mut plan = Plan::steady(seed, 3, 0);
    plan.load.clients = 0;
    plan.settings.snapshots = match situation.by_snapshot {
        true => SnapshotLimits { log_bytes_min: 1 << 20, log_bytes_max: 0, keep_bytes: 1 << 20 },
        false => SnapshotLimits { log_bytes_min: u64::MAX, log_bytes_max: 0, keep_bytes: 0 },
    };
    plan.settings.segment_bytes = if situation.by_snapshot { 1 << 20 } else { 16 << 20 };
    let window = Capacity { entries: 10_000, bytes: 64 << 20 };
    let protocol = Protocol::NbRaft(NbRaft { window, weak: Weak::Off, budget: Capacity::default() });
    if situation.has_streams {
        plan.settings.level = level::NB_RAFT;
        plan.settings.streams = Streams { links_per_peer: 4, dispatch: Dispatch::Unordered };
        plan.kinds = Kinds::none(); // no frame is lost: then messages have places
        let injection = Injection { at: 5 * SEC, what: Inject::Change(Change::Protocol(protocol)) };
        plan.injections.push((0, injection));
    }
    let mut world = as_in_production(plan);
    if !world.run_while(PATIENCE, |world| !world.is_level())? {
        return Err(Violation::new("a_cluster_comes_to_rest", "it has not within a minute"));
    }
    let Some(leader) = world.leader() else {
        return Err(Violation::new("peace_keeps_its_leader", "there is no leader although nothing happened"));
    };
    let follower = (leader + 1) % 3;
    let lacks_window = |world: &mut World| {
        world
            .raft(leader)
            .is_none_or(|raft| raft.committed_membership().extensions.protocol != Some(protocol))
    };
    if situation.has_streams && !world.run_while(PATIENCE, lacks_window)? {
        return Err(Violation::new("a_change_ends", "the protocol has not changed within a minute"));
    }
    world.members[follower].down = u64::MAX >> 1;
    world.kill_as(follower, "is stopped", false, |_| false)?;

    let before = world.log_bytes(leader);
    let fill = Stream {
        // For a snapshot all keys are new.
        ask: Ask::Put { bytes: VALUE_BYTES, keys: if situation.by_snapshot { 1 << 20 } else { 64 } },
        per_second: FILL_RATE / VALUE_BYTES as u64,
        anywhere: false,
    };
    let filling = world.begin_load(fill, world.sh.now);
    let wanted = before + situation.behind;
    let fills = |world: &mut World| world.log_bytes(leader) < wanted;
    if !world.run_while(world.sh.now + PATIENCE, fills)? {
        return Err(Violation::new("writes_are_taken", "two members of three did not take what was written"));
    }
    world.end_load(filling);
    world.run_until(world.sh.now + SEC)?;
    world.load.timed.clear();

    for (from, to) in [(leader, follower), (follower, leader)] {
        let (net, mut around) = world.sh.net();
        net.paths.set_wire(&mut around, from, to, Some(Wire::new(situation.rate)));
    }
    let target = world.raft(leader).map_or(LogIndex(0), |raft| raft.last_id().index);
    let behind = world.log_bytes(leader) - before;
    let first = world.link_count(leader, follower);
    world.plan_start(follower, world.sh.now);
    let is_apart = |world: &mut World| {
        !(world.sh.net.paths.is_up(leader, follower) && world.sh.net.paths.is_up(follower, leader))
    };
    if !world.run_while(world.sh.now + PATIENCE, is_apart)? {
        return Err(Violation::new(
            "links_open",
            "the follower is back, and its links stay closed for a minute",
        ));
    }
    let began = world.sh.now;
    for (ask, per_second) in [
        (Ask::Get { keys: 64 }, situation.reads),
        (Ask::Put { bytes: 1 << 10, keys: 1 << 16 }, situation.writes),
        (Ask::Put { bytes: 400 << 10, keys: 8 }, situation.large),
    ] {
        if per_second > 0 {
            world.begin_load(Stream { ask, per_second, anywhere: false }, began);
        }
    }

    let ideal = behind.saturating_mul(SEC) / situation.rate;
    let end = began + (4 * ideal + SEC).max(situation.lasts);
    let mut reset_at = began + situation.reset_every;
    let mut waiting_max = 0;
    let (mut took, mut resets, mut early_max) = (None, 0, 0);
    while world.sh.now < end && (took.is_none() || world.sh.now < began + situation.lasts) {
        world.run_until(world.sh.now + 10 * MS)?;
        waiting_max = waiting_max.max(world.sh.net.paths.waiting(leader, follower).0);
        let of_follower = |(peer, early)| if peer == id_of(follower) { early } else { 0 };
        let early = world.raft(leader).and_then(|raft| raft.peer_windows().map(of_follower).max());
        early_max = early_max.max(early.unwrap_or(0));
        let held = world.raft(follower).map_or(LogIndex(0), kattu_raft::Raft::persisted_index);
        took = took.or((target <= held).then(|| world.sh.now - began));
        if situation.reset_every > 0 && reset_at <= world.sh.now && took.is_none() {
            resets += 1;
            reset_at += situation.reset_every;
            for lane in [BULK, CONTROL] {
                let (net, mut around) = world.sh.net();
                net.close(&mut around, leader, follower, lane, LinkEnd::ByPeer);
                net.close(&mut around, follower, leader, lane, LinkEnd::ByPeer);
            }
        }
    }
    let mut level = None;
    let end = began + 12 * ideal;
    while situation.by_snapshot && situation.writes > 0 && world.sh.now < end && level.is_none() {
        world.run_until(world.sh.now + 10 * MS)?;
        let end_of =
            |member: usize, world: &World| world.raft(member).map_or(0, |raft| raft.last_id().index.0);
        let lacks = end_of(leader, &world).saturating_sub(end_of(follower, &world));
        level = (lacks <= situation.writes).then(|| world.sh.now - began);
    }
    let link = first.until(world.link_count(leader, follower));
    let timed = std::mem::take(&mut world.load.timed);
    Ok(CaughtUp { link, behind, took, level, ideal, timed, waiting_max, resets, early_max })
}

/// The result of load far above capacity.
#[derive(Clone, Copy, Debug)]
pub struct Rushed {
    /// The most requests per second that were done under load that can just be served.
    pub peak: f64,
    /// Under nearly as much load, before.
    pub before: f64,
    /// Under ten times that.
    pub during: f64,
    /// Under the load of `before`, from ten seconds after.
    pub after: f64,
    /// Requests that were refused.
    pub refused: u64,
}

/// A client waits for this long; a later answer counts as lost.
const WAITS: u64 = 7 * SEC;
/// The load before and after, in percent of the peak: it shows what is lost of the capacity for good.
const NEARLY: u64 = 95;
/// How long load far above capacity lasts.
const RUSH: u64 = 5 * SEC;
/// Limits and slices are this many times smaller there than in production: members are slower by even more.
const RUSH_SCALE: usize = 32;
/// Nanoseconds for a unit of work there: a member can do some thousand writes per second.
const RUSH_UNIT: u64 = 25 * US;

/// A world in which keepers work in the slices of production, small ones would cost what production does not pay; and in
/// which as many tasks may wait as where service is judged.
fn as_in_production(plan: Plan) -> World {
    let mut world = World::new(plan, Arc::new(Mutex::new(Told::default())));
    world.sh.limits = Limits { tasks: TASKS_MAX_SERVED, ..LIMITS };
    world
}

/// Members with little CPU get as much load as they can serve, then nearly that, then ten times that, then nearly that
/// again.
///
/// # Errors
/// A violation: fewer were done than F50 says, or something else broke meanwhile.
pub fn rush(seed: u64, silent: Option<&'static str>) -> Result<Rushed, Violation> {
    let mut plan = Plan::steady(seed, 3, 0);
    plan.load.clients = 0;
    plan.settings.leadership.asks_first = false; // all members start at once
    plan.settings.pending_max /= RUSH_SCALE;
    plan.settings.limits.batch_bytes_max /= RUSH_SCALE;
    plan.settings.limits.inflight_bytes_max /= RUSH_SCALE;
    (plan.pace.turn, plan.pace.event) = (100 * US, 2 * US);
    let mut world = as_in_production(plan);
    if !world.run_while(PATIENCE, |world| !world.is_level())? {
        return Err(Violation::new("a_cluster_comes_to_rest", "it has not within a minute"));
    }
    world.sh.service.silent = silent;
    world.sh.service.count_work(RUSH_UNIT, u64::MAX);
    world.sh.limits.slice = LIMITS.slice / RUSH_SCALE as i64;
    let mut peak = Done { requests: 0, time: SEC };
    let mut rate = 500;
    // Until more than a tenth is not served.
    loop {
        let (done, _) = world.ask_for(rate, SEC)?;
        if peak.requests < done.requests {
            peak = done;
        }
        // Requests that still wait belong to this step, not to the next one.
        world.run_until(world.sh.now + 4 * SEC)?;
        if done.requests * 10 < rate * 9 {
            break;
        }
        rate *= 2;
    }
    let capacity = peak.per_second() as u64;
    let nearly = capacity * NEARLY / 100;
    let before = world.serve(nearly, 5 * SEC)?;
    let (during, refused) = world.ask_for(capacity * 10, RUSH)?;
    world.ask_for(capacity / 2, RECOVERY)?; // what still waits is worked off beside it
    let after = world.serve(nearly, 5 * SEC)?;
    world.sh.service.hear(no_metastable_state(peak, during, before, after))?;
    world.end_of_service()?;
    Ok(Rushed {
        peak: peak.per_second(),
        before: before.per_second(),
        during: during.per_second(),
        after: after.per_second(),
        refused,
    })
}

/// Puts that make versions to remove, and the units of one step meanwhile.
const FORGET_PER_SECOND: u64 = 5000;
const FORGET_UNITS_MAX: u64 = 4 << 10;

/// Compacts all history while writes go on: no step does much more than without it. The largest.
///
/// # Errors
/// If one does, or something else broke meanwhile.
pub fn forget(seed: u64, silent: Option<&'static str>) -> Result<Work, Violation> {
    let mut plan = Plan::steady(seed, 3, 0);
    plan.load.clients = 0;
    plan.pace.turn = 20 * US;
    let mut world = as_in_production(plan);
    if !world.run_while(PATIENCE, |world| !world.is_level())? {
        return Err(Violation::new("a_cluster_comes_to_rest", "it has not within a minute"));
    }
    world.sh.service.silent = silent;
    world.sh.service.count_work(0, FORGET_UNITS_MAX);
    world.ask_for(FORGET_PER_SECOND, 4 * SEC)?;
    world.forget();
    world.ask_for(FORGET_PER_SECOND, 2 * SEC)?;
    world.end_of_service()?;
    Ok(world.sh.service.largest_step())
}

/// Bytes of writes of clients that may wait there.
const POUR_PENDING_BYTES: usize = 4 << 20;
/// The rate of each link there; all clients together write far more.
const POUR_RATE: u64 = 1_000_000;

/// Clients write far more than links carry, at every member: what waits is bounded, and the rest is refused. The most
/// bytes that one member held.
///
/// # Errors
/// If it is more than is allowed, or something else broke meanwhile.
pub fn pour(seed: u64, silent: Option<&'static str>) -> Result<u64, Violation> {
    let mut plan = Plan::steady(seed, 3, 0);
    plan.load.clients = 0;
    plan.settings.pending_bytes_max = POUR_PENDING_BYTES;
    plan.settings.segment_bytes = 16 << 20;
    let mut world = as_in_production(plan);
    if !world.run_while(PATIENCE, |world| !world.is_level())? {
        return Err(Violation::new("a_cluster_comes_to_rest", "it has not within a minute"));
    }
    for (from, to) in world.ways() {
        let (net, mut around) = world.sh.net();
        net.paths.set_wire(&mut around, from, to, Some(Wire::new(POUR_RATE)));
    }
    let ask = Ask::Put { bytes: VALUE_BYTES, keys: 1000 };
    let per_second = 8 * POUR_RATE / VALUE_BYTES as u64;
    world.begin_load(Stream { ask, per_second, anywhere: true }, world.sh.now);
    world.sh.service.silent = silent;
    let mut memory = BoundedMemory::new().with(Held::Clients, POUR_PENDING_BYTES as u64);
    let end = world.sh.now + RUSH;
    while world.sh.now < end {
        world.run_until(world.sh.now + 50 * MS)?;
        for member in world.up() {
            let Some(process) = &world.members[member].process else { continue };
            let judged = memory.holds(id_of(member), Held::Clients, process.call_bytes());
            world.sh.service.hear(judged)?;
        }
    }
    world.end_of_service()?;
    Ok(memory.most(Held::Clients))
}

impl World {
    /// Where the judge of a situation is ignored, runs all judges of the end of a storm.
    fn end_of_service(&mut self) -> Result<(), Violation> {
        match self.sh.service.silent {
            Some(_) => self.heal_and_judge().map(drop),
            None => Ok(()),
        }
    }

    /// Sends puts at a rate for a while: those done in that time while their clients still waited, and how many were
    /// refused.
    fn ask_for(&mut self, per_second: u64, time: u64) -> Result<(Done, u64), Violation> {
        self.load.timed.clear();
        let (from, until) = (self.sh.now, self.sh.now + time);
        let ask = Ask::Put { bytes: 64, keys: 1000 };
        let stream = self.begin_load(Stream { ask, per_second, anywhere: true }, from);
        self.run_until(until)?;
        self.end_load(stream);
        let timed = self.load.timed.iter();
        let of_it =
            timed.filter(|timed| timed.done && from <= timed.asked && timed.answered - timed.asked <= WAITS);
        let refused = self.load.timed.iter().filter(|timed| !timed.done).count() as u64;
        Ok((Done::within(of_it.map(|timed| timed.answered), &(from..until)), refused))
    }

    /// Sends puts at a rate that can be served: how many that began in that time were done, each within 100 ms. Puts
    /// under way at either end of the time do not change the rate.
    fn serve(&mut self, per_second: u64, time: u64) -> Result<Done, Violation> {
        let asked_in = self.sh.now..self.sh.now + time;
        self.ask_for(per_second, time)?;
        self.run_until(asked_in.end + 100 * MS)?;
        let done =
            self.load.timed.iter().filter(|timed| timed.done && timed.answered - timed.asked <= 100 * MS);
        Ok(Done::within(done.map(|timed| timed.asked), &asked_in))
    }

    pub(crate) fn raft(&self, member: usize) -> Option<&kattu_raft::Raft> {
        Some(self.members[member].process.as_ref()?.node().raft())
    }

    /// All members follow one leader, and hold what it has committed.
    fn is_level(&self) -> bool {
        let Some(leader) = self.leader().and_then(|leader| self.raft(leader)) else { return false };
        let committed = leader.committed();
        committed > LogIndex(0)
            && (0..self.members.len()).all(|member| {
                self.raft(member).is_some_and(|raft| {
                    raft.leader() == Some(leader.id()) && committed <= raft.persisted_index()
                })
            })
    }

    /// Bytes of entries by which a member's log has grown in this run.
    fn log_bytes(&self, leader: usize) -> u64 {
        self.members[leader].process.as_ref().map_or(0, |process| process.hands.eyes.entry_bytes)
    }

    /// What has crossed a link, and what of it was new.
    pub(crate) fn link_count(&mut self, from: usize, to: usize) -> LinkCount {
        let taken = self.sh.service.goodput.count(id_of(from), id_of(to)).taken;
        LinkCount { sent: self.sh.net.paths.path(from, to).carried, taken }
    }
}
