//! Tuned: members that are tuned while they run, each by itself, all storm long.
//!
//! At the end of the storm the operator turns everything back: the bounds of the calm are those of the settings that members start
//! with.
//! Knows nothing of: what a setting does, which values are right.

use crate::apply_thread::ApplyThread;
use crate::clock::SEC;
use crate::dice::Dice;
use crate::end::{End, Fuse};
use crate::inject::{Change, Inject, Injection, Who};
use crate::judged::Now;
use crate::log::{Log, WELL_SYNCS_HERE};
use crate::plan::{Leases, Settings};
use crate::process::{Hands, Process};
use crate::world::{Event, Shared, World};
use kattu_member::apply::{Apart, Batch};
use kattu_member::log_moves::{Absence, Patience};
use kattu_member::log_orders::Order;
use kattu_member::step::FINISH_UNITS;
use kattu_member::tuning::{Reads, Setting, Threading, Tuning};
use kattu_raft::{Duration, LeaderLease, Limits, Timing};

/// Adds changes of settings, behind all other injections.
pub(crate) fn draw(dice: &mut Dice, members: u64, length: u64, injections: &mut Vec<(u32, Injection)>) {
    let gap = dice.log_within(SEC / 20, 5 * SEC);
    let mut at = dice.below(gap);
    let mut number = injections.len() as u32;
    while at < length {
        let who = if dice.one_in(2) { Who::Leader } else { Who::Member(dice.below(members) as usize) };
        let pick = dice.below(u64::MAX);
        injections.push((number, Injection { at, what: Inject::Change(Change::Tune { who, pick }) }));
        number += 1;
        at += dice.within(gap / 4, gap * 7 / 4);
    }
    injections.sort_by_key(|(_, injection)| injection.at);
}

/// How far clocks are trusted where leases are turned on: as far as they are wrong.
pub(crate) fn lease_of(settings: &Settings, drift: i64) -> LeaderLease {
    let rho = u32::try_from(drift).unwrap_or(u32::MAX);
    let within = LeaderLease { rho, margin: Duration::ZERO, watch_clocks: true };
    settings.leadership.leader_lease.unwrap_or(within)
}

/// Whether leases may be turned on: not where clocks are beyond every bound, nor without pre-votes.
fn may_lease(settings: &Settings) -> bool {
    settings.pre_vote && matches!(settings.leases, Leases::Off | Leases::Within)
}

/// Some settings, with values that follow from this number.
fn settings_of(pick: u64, started_with: &Settings) -> Vec<Setting> {
    let mut dice = Dice::new(pick, "settings");
    let dice = &mut dice;
    let limits = &started_with.limits;
    let place = |dice: &mut Dice| if dice.one_in(2) { Threading::Thread } else { Threading::Inline };
    let mut settings = Vec::new();
    for kind in 0..12 {
        if !dice.one_in(4) {
            continue;
        }
        settings.push(match kind {
            0 => Setting::Batching(dice.one_in(2)),
            1 => Setting::BatchEntriesMax(dice.log_within(1, 64) as usize),
            2 => Setting::BatchBytesMax(dice.log_within(1, limits.batch_bytes_max as u64) as usize),
            3 => {
                let most = started_with.election_timeout.as_nanos() as u64 / 10;
                Setting::BatchLinger(Duration::from_nanos(if dice.one_in(2) { 0 } else { dice.below(most) }))
            }
            4 => Setting::Pipelining(dice.one_in(2)),
            5 => Setting::InflightMsgsMax(dice.log_within(1, 64) as usize),
            6 => Setting::InflightBytesMax(dice.log_within(1, limits.inflight_bytes_max as u64) as usize),
            7 => Setting::ParallelAppend(dice.one_in(2)),
            8 => Setting::Apply(place(dice)),
            9 => Setting::LogIo(place(dice)),
            10 => Setting::Reads(match dice.below(3) {
                0 => Reads::Log,
                1 if may_lease(started_with) => Reads::Lease,
                _ => Reads::Index,
            }),
            _ => Setting::ApplyGate(dice.one_in(3)),
        });
    }
    settings
}

/// The settings that members start with.
fn settings_at_start(settings: &Settings) -> Vec<Setting> {
    let Limits { batch_entries_max, batch_bytes_max, inflight_msgs_max, inflight_bytes_max, .. } =
        settings.limits;
    let reads = match settings.leadership.leader_lease {
        Some(_) => Reads::Lease,
        None => Reads::Index,
    };
    vec![
        Setting::Batching(true),
        Setting::BatchEntriesMax(batch_entries_max),
        Setting::BatchBytesMax(batch_bytes_max),
        Setting::BatchLinger(Duration::ZERO),
        Setting::Pipelining(settings.pipelining),
        Setting::InflightMsgsMax(inflight_msgs_max),
        Setting::InflightBytesMax(inflight_bytes_max),
        Setting::ParallelAppend(settings.parallel_append),
        Setting::Apply(settings.apply),
        Setting::LogIo(settings.log_io),
        Setting::Reads(reads),
        Setting::ApplyGate(false),
    ]
}

/// Raft without any optimisation, as members of production get it by name.
fn basic_raft() -> Vec<Setting> {
    let text = include_str!("../../../lab/parameters/basic-raft.toml");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs =
        lines.filter_map(|line| line.split_once(" = ")).map(|(name, value)| (name, value.trim_matches('"')));
    Setting::parse(pairs).expect("production reads the same file")
}

/// A tuning in words, where it is not the default.
pub(crate) fn words(tuning: Tuning) -> String {
    let all: Vec<String> = tuning.shown().map(|(named, value)| format!("{}={value}", named.name)).collect();
    format!("is tuned: {}", all.join(" "))
}

impl World {
    /// Tunes a member; whether it runs.
    pub(crate) fn tune(&mut self, who: Who, pick: u64) -> bool {
        let settings = settings_of(pick, &self.plan.settings);
        self.running(who).is_some_and(|member| self.give_settings(member, settings))
    }

    /// The storm is over: all members go by the settings that they start with.
    pub(crate) fn tune_back(&mut self) {
        if self.plan.tuned || self.plan.basic_raft {
            for member in 0..self.members.len() {
                self.give_settings(member, settings_at_start(&self.plan.settings));
            }
        }
    }

    /// A member has started.
    pub(crate) fn tune_at_start(&mut self, member: usize) {
        if self.plan.basic_raft && !self.calm {
            self.give_settings(member, basic_raft());
        }
    }

    fn give_settings(&mut self, member: usize, settings: Vec<Setting>) -> bool {
        let run = self.members[member].run;
        let Some(process) = &mut self.members[member].process else { return false };
        process.hands.settings.push_back(settings);
        self.sh.queue.plan(self.sh.now, Event::Wake { member, run });
        true
    }
}

impl Log {
    /// Writes the log there from now on, with at most so many entries in one sync. Not while the member's thread is at the disk.
    pub(crate) fn tune(
        &mut self,
        sh: &mut Shared,
        fuse: &mut Fuse,
        (place, entries_max): (Threading, usize),
        heartbeat_interval: Duration,
    ) -> Result<(), End> {
        self.orders.push(Order::Batch(entries_max));
        match (place, self.patience) {
            (Threading::Thread, _) => {
                self.patience = None;
                if self.away.is_none() {
                    self.leave();
                }
                self.retry_if_blocked(sh);
            }
            (Threading::Inline, None) => {
                self.patience = Some(Patience { sync_max: heartbeat_interval, well_syncs: WELL_SYNCS_HERE });
                self.away.iter_mut().for_each(Absence::call_home);
                self.come_home_if_called(sh, fuse)?;
            }
            (Threading::Inline, Some(_)) => {}
        }
        Ok(())
    }
}

impl Hands {
    /// Another tuning is in force.
    pub(crate) fn go_by(&mut self, sh: &mut Shared, timing: Timing, tuning: &Tuning) -> Result<(), End> {
        let place = (tuning.log_io, tuning.node.raft.batch_entries());
        self.log.tune(sh, &mut self.fuse, place, timing.heartbeat_interval)
    }

    /// The keeper gets a thread.
    pub(crate) fn part(&mut self, sh: &mut Shared, apart: Apart<u64>) {
        sh.counts.keepers_moved += 1;
        self.apply = Some(ApplyThread::new(apart));
        self.plan_keeper(sh, false);
    }

    /// The keeper comes back from its thread.
    pub(crate) fn recall(&mut self, sh: &mut Shared) {
        sh.counts.keepers_moved += 1;
        self.apply.as_mut().expect("it has a thread").batches.push_back(Batch::Return);
        self.plan_keeper(sh, false);
    }
}

impl Process {
    /// Before its end: a keeper that is on its way back is back.
    pub(crate) fn await_desk(&mut self, sh: &mut Shared) -> Result<(), End> {
        if !self.member.awaits_desk() {
            return Ok(());
        }
        self.hands.keep(sh, &mut FINISH_UNITS.clone())?;
        self.member.begin(&mut Now { hands: &mut self.hands, sh })?;
        self.carry_out(sh).map(drop)
    }
}
