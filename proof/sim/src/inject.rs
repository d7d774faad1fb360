//! Injections: the faults of a storm as a list, each with its time, so that a failing storm can be cut down to the few
//! that matter.
//!
//! Each kind draws from a stream of its own. A target that depends on the moment ("the leader") is named by role and
//! looked up when the fault strikes.
//! Knows nothing of: how faults are carried out.

use crate::clock::{MS, SEC};
use crate::dice::Dice;
use crate::plan::Settings;
use kattu_disk::{Damage, Place};
use kattu_raft::{Protocol, Timing};
use std::fmt;

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// This member, by number from 0.
    Member(usize),
    /// The leader, if there is one.
    Leader,
}

/// A change that the operator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // fields: the target
pub enum Change {
    /// Adds a member that gets a vote by itself or waits for a promotion.
    Add { votes: bool },
    /// Removes a member.
    Remove(Who),
    /// Puts a new member in the place of this one.
    Replace(Who),
    /// Promotes a learner.
    Promote,
    /// Changes a member's address.
    Update(Who),
    /// Transfers leadership.
    Move(Who),
    /// Sets the cluster's timing.
    Timing(Timing),
    /// Sets the cluster's protocol.
    Protocol(Protocol),
    /// Tunes a member that runs, to settings that follow from this number.
    Tune { who: Who, pick: u64 },
    /// An invalid change, of three kinds, that must be refused.
    Foolish(u8),
}

/// A fault.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // fields: the target, and times in nanoseconds of the world
pub enum Inject {
    /// A process is killed.
    Kill { who: Who, down: u64 },
    /// A process is killed after `effects` more effects.
    KillAtEffect { who: Who, effects: u64, down: u64 },
    /// A process is killed in the middle of a disk operation, `operations` from now.
    KillAtDisk { who: Who, operations: u64, down: u64 },
    /// All are killed at once, and `again` times more in recovery, after `operations` disk operations.
    KillAll { down: u64, operations: u64, again: u64 },
    /// A clean stop.
    Stop { who: Who, down: u64 },
    /// A pause.
    Pause { who: Who, time: u64 },
    /// A thread wedges; the watchdog ends the process.
    Wedge { who: Who, down: u64 },
    /// A second process tries to open the directory.
    SecondProcess { who: Who },
    /// A member restarts on the wrong directory.
    ForeignDirectory { who: Who, other: usize, down: u64 },
    /// The directory is lost, and the member comes back with an empty one.
    Wipe { who: Who, down: u64 },
    /// The disk hangs.
    Stall { who: Who, time: u64 },
    /// The disk is `times` times slower.
    Slow { who: Who, times: u64, time: u64 },
    /// A sync soon fails.
    FailSync { who: Who, syncs: u64, down: u64 },
    /// A write soon fails.
    FailWrite { who: Who, writes: u64, down: u64 },
    /// The disk is full.
    Full { who: Who, time: u64 },
    /// Files are damaged while the member is down.
    Damage { who: Who, how: Damage, down: u64, pick: u64 },
    /// A sync that reports success leaves one sector as it was, or writes it elsewhere.
    LostWrite { who: Who, elsewhere: bool, syncs: u64 },
    /// Members are split in two; a bit per member says which side.
    Split { sides: u16, time: u64 },
    /// These pairs (both directions) are cut; a bit per unordered pair.
    Partial { pairs: u64, time: u64 },
    /// This direction is cut.
    OneWay { from: usize, to: usize, time: u64 },
    /// A pair is cut and joined again and again, with this period.
    Flap { from: usize, to: usize, period: u64, time: u64 },
    /// Frames on all links are lost, repeated, overtaken, late; chances in a million.
    Lossy { loss: u32, repeat: u32, overtake: u32, late: u64, time: u64 },
    /// A connection is reset, in the middle of the next frame or between two.
    Reset { from: usize, to: usize, mid_frame: bool },
    /// The next frame is corrupted.
    Corrupt { from: usize, to: usize },
    /// Old frames arrive once more.
    Replay { who: Who, frames: u64 },
    /// The bulk lane carries only `rate` bytes per second.
    Clog { from: usize, to: usize, rate: u64, time: u64 },
    /// A wall clock jumps by `by` seconds.
    WallJump { who: Who, by: i64 },
    /// `rate` requests per second come, whether answered or not.
    Overload { rate: u64, time: u64 },
    /// One follower receives nothing under load, and must catch up.
    Lag { who: Who, rate: u64, time: u64 },
    /// One member is cut off from all others.
    CutOff { who: Who, time: u64 },
    /// The operator requests a change.
    Change(Change),
    /// The leader must transfer leadership, to this voter or to one of its choice.
    Transfer { to: Option<usize> },
    /// One entry in a member's memory is corrupted.
    Diverge { who: Who },
    /// A directory is copied, or rolled back to its copy if there is one.
    RollBack { who: Who, down: u64 },
    /// The disk reported the last block as synced, and the power cut loses it.
    Lie { who: Who, down: u64, pick: u64 },
    /// A backup of a member becomes another cluster, beside the storm.
    Restore { who: Who, pick: u64 },
    /// A copy of a member's disk becomes another cluster, beside the storm.
    Recover { who: Who, pick: u64 },
    /// All links of a member carry `rate` bytes per second.
    Narrow { who: Who, rate: u64, time: u64 },
    /// A member has `times` times less CPU.
    Tired { who: Who, times: u64, time: u64 },
    /// A member is stopped, so that it comes back far behind.
    Away { who: Who, down: u64 },
    /// History is compacted up to now.
    Forget,
    /// `requests` requests as large as the API allows come at once: the whole store, many keys.
    Heavy { who: Who, requests: u64 },
}

macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// A kind of fault, on or off in a storm as a whole.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs)] // see `Inject`
        pub enum Kind { $($kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Kinds that only storms that judge service have.
            pub const OF_SERVICE: &[Kind] = &[Kind::Away, Kind::Forget];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }

        impl Inject {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Inject::$kind { .. } => Kind::$kind,)* }
            }
        }
    };
}

kinds! {
    Kill "kill",
    KillAtEffect "kill-at-effect",
    KillAtDisk "kill-at-disk",
    KillAll "kill-all",
    Stop "stop",
    Pause "pause",
    Wedge "wedge",
    SecondProcess "second-process",
    ForeignDirectory "foreign-directory",
    Wipe "wipe",
    Stall "stall",
    Slow "slow",
    FailSync "fail-sync",
    FailWrite "fail-write",
    Full "full",
    Damage "damage",
    LostWrite "lost-write",
    Split "split",
    Partial "partial",
    OneWay "one-way",
    Flap "flap",
    Lossy "lossy",
    Reset "reset",
    Corrupt "corrupt",
    Replay "replay",
    Clog "clog",
    WallJump "wall-jump",
    Overload "overload",
    Lag "lag",
    Transfer "hand-over",
    Change "change",
    CutOff "cut-off",
    Diverge "diverge",
    RollBack "roll-back",
    Lie "lie",
    Restore "restore",
    Recover "recover",
    Narrow "narrow",
    Tired "tired",
    Away "away",
    Forget "forget",
    Heavy "heavy",
}

/// A set of kinds.
#[derive(Clone, PartialEq, Eq)]
pub struct Kinds(u64);

impl Kinds {
    /// No fault at all.
    #[must_use]
    pub fn none() -> Kinds {
        Kinds(0)
    }

    /// The set of these kinds.
    #[must_use]
    pub fn of(kinds: &[Kind]) -> Kinds {
        Kinds(kinds.iter().fold(0, |bits, &kind| bits | 1 << kind as u64))
    }

    /// Whether this kind is in it.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.0 >> kind as u64 & 1 == 1
    }

    /// The same with one more.
    #[must_use]
    pub fn with(&self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u64)
    }

    /// The same without one.
    #[must_use]
    pub fn without(&self, kind: Kind) -> Kinds {
        Kinds(self.0 & !(1 << kind as u64))
    }

    /// All kinds in it.
    pub fn iter(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.iter().copied().filter(|&kind| self.has(kind))
    }

    /// A seed's choice: each kind in about two storms of five.
    pub(crate) fn draw(dice: &mut Dice) -> Kinds {
        let mut kinds = Kinds(0);
        for &kind in Kind::ALL.iter().filter(|kind| !Kind::OF_SERVICE.contains(kind)) {
            if dice.below(5) < 2 {
                kinds.0 |= 1 << kind as u64;
            }
        }
        kinds
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Kind::name).collect();
        f.write_str(&names.join(" "))
    }
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// When, in nanoseconds of the world.
    pub at: u64,
    /// The fault.
    pub what: Inject,
}

/// The storm's faults by time, numbered.
pub(crate) fn draw_injections(
    dice: &Dice,
    members: u64,
    length: u64,
    settings: &Settings,
    kinds: &Kinds,
) -> Vec<(u32, Injection)> {
    let mut all = Vec::new();
    for kind in kinds.iter() {
        let mut dice = dice.fork(kind as u64);
        let gap = match kind {
            Kind::CutOff => dice.log_within(5 * SEC, 20 * SEC),
            // Each costs as much work as some seconds of a storm.
            Kind::Restore | Kind::Recover => dice.log_within(40 * SEC, 160 * SEC),
            _ => dice.log_within(5 * SEC, 90 * SEC),
        };
        let mut at = dice.below(gap);
        while at < length {
            if let Some(what) = draw(kind, &mut dice, members, settings) {
                all.push(Injection { at, what });
            }
            at += dice.within(gap / 4, gap * 7 / 4);
        }
    }
    all.sort_by_key(|injection| injection.at);
    all.into_iter().enumerate().map(|(number, injection)| (number as u32, injection)).collect()
}

fn draw(kind: Kind, dice: &mut Dice, members: u64, settings: &Settings) -> Option<Inject> {
    let timeout = settings.election_timeout.as_nanos() as u64;
    let who = if dice.one_in(3) { Who::Leader } else { Who::Member(dice.below(members) as usize) };
    let down = match dice.below(3) {
        0 => dice.log_within(MS, timeout),
        1 => dice.log_within(timeout / 2, 10 * timeout),
        _ => dice.log_within(MS, 30 * SEC),
    };
    let time = match dice.below(3) {
        0 => dice.log_within(MS, timeout),
        1 => dice.log_within(timeout / 2, 6 * timeout),
        _ => dice.log_within(10 * MS, 40 * SEC),
    };
    let from = dice.below(members) as usize;
    let to = (from + 1 + dice.below(members.max(2) - 1) as usize) % members as usize;
    let several = members > 1;
    let all = (1u16 << members) - 1;
    let what = match kind {
        Kind::Kill => Inject::Kill { who, down },
        Kind::KillAtEffect => Inject::KillAtEffect { who, effects: dice.log_within(1, 400), down },
        Kind::KillAtDisk => Inject::KillAtDisk { who, operations: dice.log_within(1, 300), down },
        Kind::KillAll => Inject::KillAll { down, operations: dice.log_within(1, 40), again: dice.below(4) },
        Kind::Stop => Inject::Stop { who, down },
        Kind::Pause => Inject::Pause { who, time },
        Kind::Wedge => Inject::Wedge { who, down },
        Kind::SecondProcess => Inject::SecondProcess { who },
        Kind::ForeignDirectory => Inject::ForeignDirectory { who, other: to, down },
        Kind::Wipe => Inject::Wipe { who, down },
        Kind::Stall => Inject::Stall { who, time: dice.log_within(MS, timeout * 4) },
        Kind::Slow => Inject::Slow { who, times: dice.log_within(2, 100), time },
        Kind::FailSync => Inject::FailSync { who, syncs: dice.log_within(1, 30) - 1, down },
        Kind::FailWrite => Inject::FailWrite { who, writes: dice.log_within(1, 60) - 1, down },
        Kind::Full => Inject::Full { who, time },
        Kind::Damage => {
            let place = *dice.pick(&[
                Place::LogHead,
                Place::LogMiddle,
                Place::LogTail,
                Place::LogHeader,
                Place::Slot,
                Place::Slots,
                Place::Identity,
                Place::Snapshot,
                Place::Snapshot,
                Place::SnapshotBefore,
            ]);
            let how = match dice.below(7) {
                0 | 1 => Damage::Flip(place),
                2 => Damage::Unreadable(place),
                3 => Damage::Stale(place),
                4 => Damage::Missing(place),
                5 => Damage::Truncated(place),
                _ => *dice.pick(&[Damage::Foreign(place), Damage::Leftover]),
            };
            Inject::Damage { who, how, down, pick: dice.roll() }
        }
        Kind::LostWrite => {
            Inject::LostWrite { who, elsewhere: dice.one_in(2), syncs: dice.log_within(1, 60) - 1 }
        }
        Kind::Split => {
            Inject::Split { sides: 1 + dice.below(u64::from(all) - u64::from(several)) as u16, time }
        }
        Kind::Partial => {
            let pairs = members * (members - 1) / 2;
            Inject::Partial { pairs: partial(dice, members as usize) & ((1 << pairs) - 1), time }
        }
        Kind::OneWay => Inject::OneWay { from, to, time },
        Kind::Flap => Inject::Flap { from, to, period: (timeout / 2).max(MS), time: time.max(timeout) },
        Kind::Lossy => {
            let some = |dice: &mut Dice, most: u64| {
                if dice.one_in(2) { 0 } else { dice.log_within(1000, most) as u32 }
            };
            Inject::Lossy {
                loss: some(dice, 500_000),
                repeat: some(dice, 300_000),
                overtake: some(dice, 300_000),
                late: if dice.one_in(2) { 0 } else { dice.log_within(MS, 10 * timeout) },
                time,
            }
        }
        Kind::Reset => Inject::Reset { from, to, mid_frame: dice.one_in(2) },
        Kind::Corrupt => Inject::Corrupt { from, to },
        Kind::Replay => Inject::Replay { who, frames: dice.within(1, 8) },
        Kind::Clog => Inject::Clog { from, to, rate: dice.log_within(100, 100_000), time },
        Kind::WallJump => {
            let by = dice.log_within(1, 100_000_000) as i64;
            Inject::WallJump { who, by: if dice.one_in(2) { by } else { -by } }
        }
        Kind::Overload => Inject::Overload { rate: dice.log_within(500, 5000), time: time.min(3 * SEC) },
        Kind::Lag => {
            Inject::Lag { who: Who::Member(from), rate: dice.log_within(50, 400), time: time.min(6 * SEC) }
        }
        Kind::Change => Inject::Change(match dice.below(12) {
            0..=2 => Change::Add { votes: !dice.one_in(3) },
            3 | 4 => Change::Remove(who),
            5 | 6 => Change::Replace(who),
            7 => Change::Promote,
            8 => Change::Update(who),
            9 => Change::Move(Who::Member(to)),
            10 => Change::Move(who),
            _ => Change::Foolish(dice.below(3) as u8),
        }),
        Kind::CutOff => {
            let who = if dice.one_in(4) { who } else { Who::Leader };
            Inject::CutOff { who, time: dice.log_within(timeout / 2, 8 * timeout) }
        }
        Kind::Transfer => Inject::Transfer { to: (!dice.one_in(3)).then_some(to) },
        Kind::Diverge => Inject::Diverge { who },
        // Down briefly, so that the leader that can detect it is still there.
        Kind::RollBack => Inject::RollBack { who: Who::Member(from), down: dice.log_within(MS, timeout) },
        Kind::Lie => {
            Inject::Lie { who: Who::Member(from), down: dice.log_within(MS, timeout), pick: dice.roll() }
        }
        Kind::Restore => Inject::Restore { who, pick: dice.roll() },
        Kind::Recover => Inject::Recover { who, pick: dice.roll() },
        Kind::Narrow => Inject::Narrow { who, rate: dice.log_within(4_000, 1_000_000), time },
        Kind::Tired => Inject::Tired { who, times: dice.log_within(4, 64), time },
        Kind::Heavy => Inject::Heavy { who, requests: dice.log_within(1, 8) },
        Kind::Away | Kind::Forget => return None, // see `family.rs`
    };
    let between = matches!(
        kind,
        Kind::Split
            | Kind::Partial
            | Kind::OneWay
            | Kind::Flap
            | Kind::Reset
            | Kind::Corrupt
            | Kind::Clog
            | Kind::Lag
            | Kind::ForeignDirectory
            | Kind::Transfer
            | Kind::CutOff
            | Kind::Narrow
    );
    (several || !between).then_some(what)
}

/// Which unordered pairs are cut: one; all but a ring; all but a star; all of one member's but one; any.
fn partial(dice: &mut Dice, members: usize) -> u64 {
    let shape = dice.below(5);
    let centre = dice.below(members as u64) as usize;
    let other = (centre + 1 + dice.below(members.max(2) as u64 - 1) as usize) % members;
    let mut bits = 0;
    for (number, (a, b)) in pairs(members).enumerate() {
        let cut = match shape {
            0 => (a, b) == (centre.min(other), centre.max(other)),
            1 => b - a != 1 && (a, b) != (0, members - 1),
            2 => a != centre && b != centre,
            3 => (a == centre || b == centre) && a != other && b != other,
            _ => dice.one_in(3),
        };
        bits |= u64::from(cut) << number;
    }
    bits
}

/// All unordered pairs, in the order of their bits.
pub(crate) fn pairs(members: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..members).flat_map(move |a| (a + 1..members).map(move |b| (a, b)))
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Member(number) => write!(f, "n{}", number + 1),
            Who::Leader => f.write_str("the leader"),
        }
    }
}

/// A duration for people.
pub(crate) fn shown(time: u64) -> String {
    if time >= SEC {
        format!("{:.1} s", time as f64 / SEC as f64)
    } else {
        format!("{:.1} ms", time as f64 / MS as f64)
    }
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |number: &usize| format!("n{}", number + 1);
        match self {
            Inject::Kill { who, down } => write!(f, "kill {who} for {}", shown(*down)),
            Inject::KillAtEffect { who, effects, down } => {
                write!(f, "kill {who} after {effects} more effects, for {}", shown(*down))
            }
            Inject::KillAtDisk { who, operations, down } => {
                write!(f, "kill {who} at disk operation {operations} from here, for {}", shown(*down))
            }
            Inject::KillAll { down, again, operations } => {
                write!(
                    f,
                    "kill all for {}, {again} times again {operations} operations into recovery",
                    shown(*down)
                )
            }
            Inject::Stop { who, down } => write!(f, "stop {who} cleanly for {}", shown(*down)),
            Inject::Pause { who, time } => write!(f, "pause {who} for {}", shown(*time)),
            Inject::Wedge { who, down } => write!(f, "wedge a thread of {who}, down for {}", shown(*down)),
            Inject::SecondProcess { who } => write!(f, "a second process on the directory of {who}"),
            Inject::ForeignDirectory { who, other, .. } => {
                write!(f, "{who} restarts on the directory of {}", n(other))
            }
            Inject::Wipe { who, .. } => write!(f, "wipe the directory of {who}"),
            Inject::Stall { who, time } => write!(f, "the disk of {who} hangs for {}", shown(*time)),
            Inject::Slow { who, times, time } => {
                write!(f, "the disk of {who} is {times} times slower for {}", shown(*time))
            }
            Inject::FailSync { who, syncs, .. } => write!(f, "sync {syncs} from here fails on {who}"),
            Inject::FailWrite { who, writes, .. } => write!(f, "write {writes} from here fails on {who}"),
            Inject::Full { who, time } => write!(f, "the disk of {who} is full for {}", shown(*time)),
            Inject::Damage { who, how, .. } => write!(f, "damage at rest on {who}: {how:?}"),
            Inject::LostWrite { who, elsewhere, syncs } => {
                let where_to = if *elsewhere { "goes elsewhere" } else { "is lost" };
                write!(f, "a sector of sync {syncs} from here {where_to} on {who}, and the sync succeeds")
            }
            Inject::Split { sides, time } => {
                let side: Vec<String> =
                    (0..16).filter(|member| sides >> member & 1 == 1).map(|it| n(&it)).collect();
                write!(f, "split {} from the others for {}", side.join(" "), shown(*time))
            }
            Inject::Partial { pairs, time } => write!(f, "cut pairs {pairs:#b} for {}", shown(*time)),
            Inject::OneWay { from, to, time } => {
                write!(f, "cut {} → {} for {}", n(from), n(to), shown(*time))
            }
            Inject::Flap { from, to, period, time } => {
                write!(f, "cut {} – {} every {} for {}", n(from), n(to), shown(*period), shown(*time))
            }
            Inject::Lossy { loss, repeat, overtake, late, time } => write!(
                f,
                "frames lost {loss} ppm, repeated {repeat} ppm, overtaken {overtake} ppm, up to {} late, for {}",
                shown(*late),
                shown(*time)
            ),
            Inject::Reset { from, to, mid_frame } => {
                let place = if *mid_frame { "in the middle of a frame" } else { "between frames" };
                write!(f, "reset {} → {} {place}", n(from), n(to))
            }
            Inject::Corrupt { from, to } => write!(f, "corrupt the next frame {} → {}", n(from), n(to)),
            Inject::Replay { who, frames } => write!(f, "{frames} old frames arrive at {who} again"),
            Inject::Clog { from, to, rate, time } => {
                write!(f, "clog {} → {} to {rate} bytes/s for {}", n(from), n(to), shown(*time))
            }
            Inject::WallJump { who, by } => write!(f, "the wall clock of {who} jumps by {by} s"),
            Inject::Overload { rate, time } => write!(f, "{rate} requests/s for {}", shown(*time)),
            Inject::Lag { who, rate, time } => {
                write!(f, "{who} gets nothing under {rate} requests/s for {}", shown(*time))
            }
            Inject::Change(Change::Add { votes: true }) => f.write_str("add a voter"),
            Inject::Change(Change::Add { votes: false }) => f.write_str("add a learner"),
            Inject::Change(Change::Remove(who)) => write!(f, "remove {who}"),
            Inject::Change(Change::Replace(who)) => write!(f, "replace {who}"),
            Inject::Change(Change::Promote) => f.write_str("promote a learner"),
            Inject::Change(Change::Update(who)) => write!(f, "change the address of {who}"),
            Inject::Change(Change::Move(who)) => write!(f, "transfer leadership to {who}"),
            Inject::Change(Change::Timing(timing)) => {
                write!(f, "set an election timeout of {:?}", timing.election_timeout)
            }
            Inject::Change(Change::Protocol(protocol)) => write!(f, "change the protocol to {protocol:?}"),
            Inject::Change(Change::Tune { who, pick }) => write!(f, "tune {who} (pick {pick:x})"),
            Inject::Change(Change::Foolish(kind)) => write!(f, "an invalid change, of kind {kind}"),
            Inject::CutOff { who, time } => write!(f, "cut {who} off from all others for {}", shown(*time)),
            Inject::Transfer { to: Some(to) } => write!(f, "the leader transfers leadership to {}", n(to)),
            Inject::Transfer { to: None } => f.write_str("the leader transfers leadership"),
            Inject::Diverge { who } => write!(f, "corrupt an entry in the memory of {who}"),
            Inject::RollBack { who, .. } => {
                write!(f, "copy the directory of {who}, or roll it back to the copy")
            }
            Inject::Lie { who, .. } => write!(f, "{who} loses power, and its disk has lied about a sync"),
            Inject::Restore { who, .. } => write!(f, "a backup of {who} becomes another cluster"),
            Inject::Recover { who, .. } => write!(f, "a copy of the disk of {who} becomes another cluster"),
            Inject::Narrow { who, rate, time } => {
                write!(f, "all links of {who} carry {rate} bytes/s for {}", shown(*time))
            }
            Inject::Tired { who, times, time } => {
                write!(f, "{who} has {times} times less CPU for {}", shown(*time))
            }
            Inject::Away { who, down } => write!(f, "{who} is away for {}", shown(*down)),
            Inject::Forget => f.write_str("history is compacted"),
            Inject::Heavy { who, requests } => write!(f, "{requests} heavy requests at {who}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::plan::{Options, Plan};

    #[test]
    fn every_kind_is_drawn_and_reads_well() {
        let mut seen = Kinds::none();
        for family in Family::ALL {
            for seed in 0..60 {
                let options = Options { family, ..Options::default() };
                for (_, injection) in Plan::draw(seed, &options).injections {
                    assert!(!injection.what.to_string().is_empty());
                    let kind = injection.what.kind();
                    assert!(family != Family::Storms || !Kind::OF_SERVICE.contains(&kind), "{kind:?}");
                    seen.0 |= 1 << kind as u64;
                }
            }
        }
        assert_eq!(seen.iter().count(), Kind::ALL.len(), "{seen:?}");
    }

    #[test]
    fn partial_cuts_stay_within_the_members() {
        for seed in 0..200 {
            for members in 2..=9 {
                let cut = partial(&mut Dice::new(seed, "test"), members);
                assert!(cut >> pairs(members).count() == 0, "{members}: {cut:b}");
            }
        }
    }
}
