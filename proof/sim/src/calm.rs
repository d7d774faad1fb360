//! Calm: all faults end, and the cluster must recover.
//!
//! 1. *Available.* Every member that can start completes a write within a bound. [fault-model P8]
//! 2. *Answered.* Every waiting request is answered.
//!    What clients were told to be received is done, or they know that it may never be. [fault-model WK4, WK7]
//! 3. *Raised.* Where all members know a feature level, the cluster reaches it. [replication-protocols DT4]
//! 4. *Converged.* All members have applied the same log and hold the same state. [fault-model P9]
//! 5. *Truthful.* The judges check the whole history of the clients and the final state.
//!
//! The bound is three rounds of elections (each at most twice the election timeout on the slowest clock, a third
//! timeout for low priorities, and one for a vote hold for the leader before), one pause between attempts to connect,
//! and the time to work off the backlog of the storm one entry at a time. Networks and settings that need more get it:
//! see [`World::overtaken`] and [`World::disturbed`].
//! Knows nothing of: the faults of the storm.

use crate::clients::told;
use crate::clock::{MS, SEC};
use crate::report::Violation;
use crate::world::{Event, World};
use kattu_node::contract::{Outcome, Refusal};
use kattu_node::{RequestLimits, level};
use kattu_raft::Duration;
use kattu_verify::history::{Answer, What};
use kattu_verify::judges::{
    FinalState, Summary, bounded_reads_are_recent, durable, linearizable, readers_see_what_they_saw,
    revision_order, revisions_never_back, txn_atomic,
};

/// Histories with more open operations are left to the judge of revisions.
const OPEN_MAX: u64 = 200;

impl World {
    /// Ends the storm and judges it.
    pub(crate) fn heal_and_judge(&mut self) -> Result<Summary, Violation> {
        let began = self.sh.now;
        self.begin_calm()?;
        let bound = self.bound();
        let all_serve = |world: &mut World| {
            let serves = |member: usize| world.probes[member].is_some() || world.is_out_of_service(member);
            !world.current().into_iter().all(serves)
        };
        if !self.run_while(began + bound, all_serve)? {
            let dumb: Vec<String> = self
                .current()
                .into_iter()
                .filter(|&member| self.probes[member].is_none() && !self.is_out_of_service(member))
                .map(|member| self.state_of(member))
                .collect();
            let story = format!(
                "no write is done within {:.2} s of the calm at {}",
                bound as f64 / SEC as f64,
                dumb.join(" and ")
            );
            self.tell_which_members_are_known();
            return Err(Violation::new("available_after_the_storm", story));
        }
        self.end_weak_answers(bound)?;
        self.answer_everybody(bound)?;
        self.rise(bound)?;
        self.share_settings(bound)?;
        self.converge(bound)?;
        self.report_the_divergent(bound)?;
        let last = self.read_all(bound)?;
        self.look_at_all()?;
        self.judge(&last)
    }

    /// Runs the judges of histories. The final read is part of the history.
    fn judge(&self, last: &FinalState) -> Result<Summary, Violation> {
        if self.load.has_begun() {
            return Ok(Summary::default()); // most requests came at a rate and are in no history
        }
        let history = &self.clients.history;
        // Simple judges first: their violations are easier to read.
        let simple = [
            revisions_never_back(history)?,
            readers_see_what_they_saw(history)?,
            bounded_reads_are_recent(history)?,
            txn_atomic(history)?,
        ];
        let mut sum = revision_order(history)?;
        sum.judged +=
            simple.map(|summary| summary.judged).iter().sum::<u64>() + durable(history, last)?.judged;
        // With very many open operations little can be decided, at a high cost.
        if self.clients.unknown <= OPEN_MAX {
            let summary = linearizable(history)?;
            sum.judged += summary.judged;
            sum.undecided += summary.undecided;
        } else {
            sum.undecided += 1;
        }
        Ok(sum)
    }

    fn begin_calm(&mut self) -> Result<(), Violation> {
        self.calm = true;
        for member in 0..self.members.len() {
            let slowness = self.sh.service.slowness(member);
            if let Some(process) = &mut self.members[member].process {
                process.hands.turns.speed_up(self.sh.now, slowness);
            }
        }
        self.end_service();
        self.sh.settings.quota = u64::MAX; // a member that ran out of it gets more
        (self.sh.settings.jobs_hang, self.sh.settings.job_takes) =
            (false, self.sh.settings.job_takes.min(MS));
        self.sh.line(None, "fault", || "everything works again".into());
        let (net, mut around) = self.sh.net();
        net.calm(&mut around);
        for member in 0..self.members.len() {
            let now = self.sh.now;
            let state = &mut self.members[member];
            state.disk.disarm();
            state.disk.limit_to(None);
            state.disk.slow_down(1);
            state.lose_power_again = (0, 0);
            state.paused_until = now;
            state.down = MS;
            if state.process.is_some() && !state.disk.is_out() {
                state.disk.lose_power_after(u64::MAX);
            }
            if let Some(process) = &mut state.process {
                process.hands.fuse.set(None);
                self.sh.queue.plan(now, Event::Resume { member });
            }
        }
        self.start_whoever_belongs();
        self.tune_back();
        self.readmit_wiped()?;
        for member in 0..self.members.len() {
            if self.members[member].in_use && !self.members[member].ruined {
                self.sh.queue.plan(self.sh.now + 2 * MS, Event::Probe { member });
            }
        }
        Ok(())
    }

    /// Starts all current members that are down. Of those that were to stay down, as many as the cluster cannot do
    /// without, because there are fewer voters by now, are repaired by hand.
    pub(crate) fn start_whoever_belongs(&mut self) {
        for member in self.current() {
            self.members[member].called = true;
            if self.members[member].ruined && !self.may_be_lost(member) {
                self.members[member].ruined = false;
                self.members[member].lost_directory = false;
                if let Some(found) = self.members[member].lost_disk.take() {
                    self.members[member].disk = found;
                }
                self.members[member].disk.heal();
                self.sh.queue.plan(self.sh.now + 2 * MS, Event::Probe { member });
            }
            let now = self.sh.now;
            let state = &mut self.members[member];
            if state.process.is_none() && !state.ruined {
                state.in_use = true;
                let is_damaged =
                    state.damaged.take().is_some() || state.disk.truth() != kattu_disk::Truth::Whole;
                if is_damaged && state.half_repaired.is_none() {
                    state.disk.heal();
                }
                self.plan_start(member, now + MS);
            }
        }
    }

    /// A leader ignores a member's second incarnation; only the next leader accepts it. Where members cannot be
    /// replaced by new ones, an operator restarts the leader. [fault-model NT5, F61]
    fn readmit_wiped(&mut self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else { return Ok(()) };
        let term = self.members[leader].process.as_ref().expect("it leads").node().raft().term();
        if self.members.iter().any(|member| member.wiped_in == Some(term)) {
            self.kill(leader, "restarted, to accept a member that has lost its directory")?;
        }
        Ok(())
    }

    /// Whether the calm does not wait for this member: it stays down for good, or its store is not trusted.
    fn is_out_of_service(&self, member: usize) -> bool {
        let diverged = &self.sh.diverged;
        let id = crate::net::id_of(member);
        let is_untrusted = diverged.is_divergent(id) || diverged.is_named(id);
        self.members[member].ruined || is_untrusted || self.is_isolated(member)
    }

    /// A divergent member must be reported, soon after the next mark. [fault-model F70]
    fn report_the_divergent(&mut self, bound: u64) -> Result<(), Violation> {
        let interval = self.slowly(self.plan.settings.digest_interval);
        let timeout = self.slowly(self.plan.settings.request_timeout);
        let end = self.sh.now + 2 * (interval + timeout + bound);
        while self.is_unnamed() {
            if end < self.sh.now {
                return Err(Violation::new("the_odd_one_is_named", "a divergent store is not reported"));
            }
            self.run_until(self.sh.now + SEC)?;
            self.look_at_alarms()?;
        }
        Ok(())
    }

    /// A time that a member measures, on the slowest clock.
    fn slowly(&self, time: Duration) -> u64 {
        time.as_nanos() as u64 * 1_000_000 / (1_000_000 - self.plan.pace.drift as u64)
    }

    /// Where frames overtake each other, a leader takes no forwarded write that a later one has overtaken: it might
    /// have been taken before. Its client retries when the request timeout is over. [B13]
    fn overtaken(&self) -> u64 {
        match self.plan.pace.ordered {
            true => 0,
            false => self.slowly(self.plan.settings.request_timeout) + crate::clients::RETRY,
        }
    }

    /// Without pre-votes, a member that missed several changes of members campaigns term by term: it sends nothing to
    /// newer members, and they learn its term only from its answers to their own campaigns. A newer member wins if no
    /// timer of the older one fires between two of its own: with times drawn from one to two election timeouts that is
    /// one try in nine. So many tries fail once in 10^5 such storms.
    fn disturbed(&self) -> u64 {
        const TRIES: u64 = 100;
        let mut known = self
            .members
            .iter()
            .filter_map(|member| Some(member.process.as_ref()?.node().raft().membership()));
        let first = known.next();
        match known.any(|membership| Some(membership) != first) && !self.plan.settings.pre_vote {
            true => TRIES * 2 * self.slowly(self.plan.settings.election_timeout),
            false => 0,
        }
    }

    /// How long it may take until all members serve.
    fn bound(&self) -> u64 {
        let settings = &self.plan.settings;
        let pace = &self.plan.pace;
        let timeout = self.slowly(settings.election_timeout);
        // A low priority waits longer; a vote hold is kept first.
        let waits = 2
            + u64::from(!settings.priorities.is_empty())
            + u64::from(settings.leadership.leader_lease.is_some());
        let slowest = waits * timeout;
        let disk = pace.disk;
        let sync = (4 * disk.sync + 8 * disk.name + 8 * disk.write + 64 * disk.kib)
            * (100 + disk.spread_percent)
            / 100;
        let frame = pace.frame + pace.frame_jitter;
        let entry = 2 * sync + 4 * frame + 8 * (pace.turn + 4 * pace.event) + pace.apply;
        let logs = self.members.iter().filter_map(|member| {
            let process = member.process.as_ref()?;
            let raft = process.node().raft();
            Some((raft.last_id().index.0, raft.persisted_index().0, process.keeper().applied().0))
        });
        let logs: Vec<_> = logs.collect();
        // All members may be down; their logs may be longer than what is committed.
        let down = self.members.iter().filter(|member| member.process.is_none());
        let longest_down = down.map(|member| member.ended_at.0).max().unwrap_or(0);
        let committed = self.sh.observer.committed().0;
        let highest = logs.iter().map(|log| log.0).max().unwrap_or(0).max(longest_down).max(committed);
        // A member that is down replays from the beginning, and may need everything.
        let all_run = self.current().iter().all(|&member| self.members[member].process.is_some());
        let lowest = logs.iter().map(|log| log.1.min(log.2)).min().filter(|_| all_run).unwrap_or(0);
        let replays = highest - lowest;
        let waiting: u64 =
            self.members.iter().filter_map(|member| Some(member.process.as_ref()?.held() as u64)).sum();
        let wedge = settings.disk_stall; // a wedged process is yet to be ended
        // A member behind the logs gets a snapshot, chunk by chunk; one may have to be taken first, or sent again.
        let processes = self.members.iter().filter_map(|member| member.process.as_ref());
        let held = processes.map(|process| process.whole_keeper().pin().bytes());
        let bytes = 2 * held.max().unwrap_or(0) + (64 << 10);
        let pieces = bytes / settings.limits.snapshot_chunk_bytes_max as u64 + 8;
        let paced = bytes * SEC / settings.limits.snapshot_bytes_per_s.max(1);
        let feeding = 3 * (pieces * (entry + 2 * settings.snapshot_step) + paced) + 6 * timeout;
        3 * slowest
            + timeout
            + feeding
            + 2 * wedge
            + 40 * entry
            + (highest - lowest + waiting) * entry
            + replays * (pace.turn + 4 * pace.event + pace.apply)
            + self.overtaken()
            + self.disturbed()
            + 300 * MS
    }

    fn state_of(&self, member: usize) -> String {
        let name = format!("n{}", member + 1);
        match &self.members[member].process {
            None => format!("{name} (down)"),
            Some(process) => {
                let raft = process.node().raft();
                format!(
                    "{name} ({} in term {}, log up to {}, persisted {}, committed {}, delivered {}, applied {}, space {})",
                    raft.role_name(),
                    raft.term().0,
                    raft.last_id(),
                    raft.persisted_index().0,
                    raft.committed().0,
                    raft.applied_delivered().0,
                    process.keeper().applied().0,
                    process.room(),
                )
            }
        }
    }

    /// Probes a member with a write.
    pub(crate) fn probe(&mut self, member: usize) -> Result<(), Violation> {
        let is_tried = self.probing.iter().any(|&(_, probed)| probed == member);
        if is_tried
            || self.probes[member].is_some()
            || self.members[member].ruined
            || self.members[member].gone
        {
            return Ok(());
        }
        // Answers of a member whose store is wrong do not count, so its probe would repeat for ever.
        let is_down = self.members[member].process.is_none() || self.is_out_of_service(member);
        let belongs = self.current().contains(&member);
        if is_down || !belongs {
            if belongs && !self.members[member].called {
                self.start_whoever_belongs(); // it was added before the calm, and the answer comes only now
            }
            self.sh.queue.plan(self.sh.now + crate::clients::RETRY, Event::Probe { member });
            return Ok(());
        }
        let operation = self.clients.probe(self.sh.now, member);
        self.probing.push((operation, member));
        self.set_out(operation)
    }

    fn answer_everybody(&mut self, bound: u64) -> Result<(), Violation> {
        let timeout = self.slowly(self.plan.settings.request_timeout);
        let end = self.sh.now + bound + timeout + timeout / 10 + SEC;
        let waits = |world: &mut World| {
            world.members.iter().any(|member| {
                member.process.as_ref().is_some_and(|process| !process.is_quiet() || process.held() > 0)
            })
        };
        if self.run_while(end, waits)? {
            return Ok(());
        }
        let waiting = self.clients.asked.iter().enumerate().filter(|(_, asked)| !asked.ended);
        let waiting: Vec<String> =
            waiting.take(5).map(|(number, asked)| format!("{number} at n{}", asked.member + 1)).collect();
        let story = format!("operations {} are never answered", waiting.join(", "));
        Err(Violation::new("everybody_is_answered", story))
    }

    /// Callers send again what was weakly answered, until it is done.
    fn end_weak_answers(&mut self, bound: u64) -> Result<(), Violation> {
        let end = self.sh.now + 4 * bound + 60 * SEC;
        if self.run_while(end, |world: &mut World| !world.sessions.ledger.open().is_empty())? {
            return Ok(());
        }
        let open = self.sessions.ledger.open();
        let story = format!("{} weakly answered commands are never done: {open:?}", open.len());
        Err(Violation::new("weak_answers_end", story))
    }

    /// The cluster must reach the feature level that all members know.
    fn rise(&mut self, bound: u64) -> Result<(), Violation> {
        let level_of = |world: &World, member: usize| {
            world.members[member].process.as_ref().map_or(0, |process| process.keeper().health().level)
        };
        let waits = |world: &mut World| {
            let current = world.current();
            let all_know = world.sh.older.is_none()
                && current
                    .iter()
                    .all(|&it| world.members[it].process.is_some() && !world.is_out_of_service(it));
            all_know && current.iter().any(|&it| level_of(world, it) < world.plan.settings.level)
        };
        // Levels are raised one by one.
        let level = self.plan.settings.level;
        if self.run_while(self.sh.now + u64::from(level) * bound, waits)? {
            return Ok(());
        }
        let levels = self.current().into_iter().map(|it| format!("n{} at {}", it + 1, level_of(self, it)));
        let levels: Vec<String> = levels.collect();
        let story = format!("all members know level {level}: {}", levels.join(", "));
        Err(Violation::new("levels_rise", story))
    }

    /// Where all members know the level that brings shared settings, all of them must go by the same timing. No member
    /// reaches one that is isolated, whatever the configuration says by now.
    fn share_settings(&mut self, bound: u64) -> Result<(), Violation> {
        let timings = |world: &World| {
            let reached = world.current().into_iter().filter(|&it| !world.is_isolated(it));
            let timings = reached.filter_map(|it| world.members[it].process.as_ref()).map(|process| {
                let raft = process.node().raft();
                (process.keeper().health().level, raft.membership().extensions.timing, raft.timing())
            });
            timings.collect::<Vec<_>>()
        };
        let apart = |world: &mut World| {
            let all = timings(world);
            let shares = all.iter().all(|(level, ..)| level::EXTENSIONS <= *level);
            shares && all.iter().any(|(_, set, own)| *set != Some(*own) || *set != all[0].1)
        };
        if self.run_while(self.sh.now + bound, apart)? {
            return Ok(());
        }
        let story = format!("level, timing of the configuration, timing in force: {:?}", timings(self));
        Err(Violation::new("settings_are_one", story))
    }

    fn converge(&mut self, bound: u64) -> Result<(), Violation> {
        let apart = |world: &mut World| {
            let current = world.current();
            let mut applied = current.iter().filter_map(|&member| {
                let process =
                    world.members[member].process.as_ref().filter(|_| !world.is_isolated(member))?;
                let raft = process.node().raft();
                Some((process.keeper().applied(), raft.committed(), raft.last_id()))
            });
            let Some(first) = applied.next() else { return true };
            first.0 != first.1 || first.1 != first.2.index || !applied.all(|other| other == first)
        };
        if !self.run_while(self.sh.now + bound, apart)? {
            let states: Vec<String> = (0..self.members.len()).map(|member| self.state_of(member)).collect();
            return Err(Violation::new("logs_converge", states.join(", ")));
        }
        let right =
            self.current().into_iter().filter(|&it| !self.sh.diverged.is_divergent(crate::net::id_of(it)));
        let stores = right.filter_map(|number| {
            let process = self.members[number].process.as_ref().filter(|_| !self.is_isolated(number))?;
            let store = process.keeper().store();
            Some((number, store.revision(), store.digest()))
        });
        let stores: Vec<_> = stores.collect();
        for (number, revision, digest) in &stores {
            if (*revision, *digest) != (stores[0].1, stores[0].2) {
                let story = format!(
                    "n{} at revision {} has digest {:x}, n{} at revision {revision} has {digest:x}",
                    stores[0].0 + 1,
                    stores[0].1,
                    stores[0].2,
                    number + 1
                );
                return Err(Violation::new("stores_converge", story));
            }
        }
        Ok(())
    }

    fn read_all(&mut self, bound: u64) -> Result<FinalState, Violation> {
        let mut up = self.current();
        up.retain(|&member| self.members[member].process.is_some() && !self.is_out_of_service(member));
        // The final read must be complete, beyond the limits of clients.
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            process
                .keeper_mut()
                .limit(RequestLimits { answer_bytes_max: usize::MAX, ..RequestLimits::default() });
        }
        for _ in 0..8 {
            let member = up[self.dice.below(up.len() as u64) as usize];
            let operation = self.clients.read_all(self.sh.now, member);
            self.probing.push((operation, usize::MAX));
            self.set_out(operation)?;
            let end = self.sh.now + bound + SEC * 10;
            self.run_while(end, |world| world.probing.iter().any(|(probe, _)| *probe == operation))?;
            if let Some((_, What::Done { revision: Some(revision), answer: Ok(Answer::Range { kvs, .. }) })) =
                self.last_read.take()
            {
                return Ok(FinalState { revision, kvs });
            }
        }
        let told = told(Outcome::Refused(Refusal::NoLeader));
        Err(Violation::new("available_after_the_storm", format!("no member can read: {told:?}")))
    }
}
