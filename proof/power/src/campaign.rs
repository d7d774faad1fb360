//! Campaigns of many trials: progress, failures as they come, tables, and a last line for programs.
//!
//! Knows nothing of: members, disks.

use crate::fuse_disk::Counts;
use crate::plan::Plan;
use crate::trial::trial;
use crate::volatile_disk::Loss;
use kattu_rig::faces::Spoken;
use kattu_rig::metrics_check::Seen;
use kattu_rig::progress::bar;
use kattu_rig::target::Target;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Sum {
    trials: u64,
    violations: u64,
    rig: u64,
    operations: u64,
    writes: u64,
    unknown: u64,
    judged: u64,
    lost: u64,
    logs: u64,
    torn_tails: u64,
    snapshots: (u64, u64),
    power_cuts: BTreeMap<String, u64>,
    fates: BTreeMap<&'static str, u64>,
    changes: BTreeMap<String, u64>,
    loss: Loss,
    counts: Counts,
    seen: Seen,
    spoken: Spoken,
}

/// Runs `trials` seeds from `seed` on; no trial begins after `most`.
pub fn campaign(trials: u64, seed: u64, target: Target, most: Option<Duration>) -> ExitCode {
    let begun = Instant::now();
    println!("seeds {seed}..{}", seed.wrapping_add(trials));
    let bar = bar(trials);
    let mut sum = Sum::default();
    for number in 0..trials {
        if most.is_some_and(|most| most < begun.elapsed()) {
            break;
        }
        let seed = seed.wrapping_add(number);
        let at = Instant::now();
        let outcome = trial(&Plan::new(seed, target), target, false);
        if bar.is_hidden() {
            // A log has no progress bar.
            let (writes, took) = (outcome.ends.writes, at.elapsed().as_secs_f64());
            println!("seed {seed}: {took:.0} s, {writes} acknowledged writes, {} lost", outcome.lost);
        }
        sum.trials += 1;
        sum.operations += outcome.ends.operations;
        sum.writes += outcome.ends.writes;
        sum.unknown += outcome.ends.unknown;
        sum.judged += outcome.judged;
        sum.lost += outcome.lost;
        sum.logs += outcome.logs;
        sum.torn_tails += outcome.torn_tails;
        sum.snapshots.0 += outcome.snapshots.0;
        sum.snapshots.1 += outcome.snapshots.1;
        sum.seen.add(outcome.seen);
        sum.spoken.add(outcome.spoken);
        sum.loss.add(outcome.loss);
        sum.counts.add(outcome.counts);
        outcome
            .power_cuts
            .into_iter()
            .for_each(|(who, times)| *sum.power_cuts.entry(who).or_default() += times);
        outcome.changes.into_iter().for_each(|(what, times)| *sum.changes.entry(what).or_default() += times);
        outcome.fates.into_iter().for_each(|(fate, times)| *sum.fates.entry(fate).or_default() += times);
        sum.violations += u64::from(!outcome.violations.is_empty());
        sum.rig += u64::from(outcome.rig.is_some());
        if !outcome.violations.is_empty() || outcome.rig.is_some() {
            let target = if target == Target::Etcd { " --target etcd" } else { "" };
            bar.suspend(|| {
                outcome.violations.iter().for_each(|violation| println!("seed {seed}: {violation}"));
                outcome.rig.iter().for_each(|what| println!("seed {seed}: THE RIG FAILED: {what}"));
                outcome.kept.iter().for_each(|kept| println!("kept: {}", kept.display()));
                println!("repeat: cargo xtask power --trials 1 --seed {seed}{target}");
            });
        }
        bar.set_message(format!("{} writes, {} violations", sum.writes, sum.violations));
        bar.inc(1);
    }
    bar.finish_and_clear();
    sum.report(begun.elapsed())
}

impl Sum {
    fn report(&self, took: Duration) -> ExitCode {
        println!("{:<28} {:>7}", "power lost by", "times");
        self.power_cuts.iter().for_each(|(who, times)| println!("{who:<28} {times:>7}"));
        println!("{:<28} {:>7}", "members changed", "times");
        self.changes.iter().for_each(|(what, times)| println!("{what:<28} {times:>7}"));
        println!("{:<28} {:>7}", "unflushed writes of a disk", "times");
        self.fates.iter().for_each(|(fate, times)| println!("{fate:<28} {times:>7}"));
        let Loss { writes, sectors, dropped, torn } = self.loss;
        println!(
            "at stake: {writes} unflushed writes of {sectors} sectors, {dropped} sectors dropped, {torn} writes torn"
        );
        let Counts { writes, bytes, flushes } = self.counts;
        println!("the disks saw {writes} writes of {} MiB and {flushes} flushes", bytes >> 20);
        println!("{} logs inspected, {} of them with a torn tail", self.logs, self.torn_tails);
        println!("{}", self.seen.line());
        println!("{}", self.spoken.line());
        println!("{} snapshots taken, {} starts from one", self.snapshots.0, self.snapshots.1);
        println!(
            "{} operations, {} of unknown outcome; {} answers judged; {:.0} s",
            self.operations,
            self.unknown,
            self.judged,
            took.as_secs_f64()
        );
        if 0 < self.rig {
            println!("THE RIG FAILED in {} trials; they are no evidence", self.rig);
        }
        println!(
            "{} trials, {} violations, {} acknowledged writes, {} lost",
            self.trials, self.violations, self.writes, self.lost
        );
        let is_good = self.violations + self.lost + self.rig == 0 && 0 < self.trials;
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
