//! Storm: injections carried out.
//!
//! Faults whose effect shows at once are counted here; the others where they show (a frame cut off, a sector lost, a
//! start refused).
//! Knows nothing of: when what is injected (`plan.rs`).

use crate::clock::{MS, SEC};
use crate::faults::Fault;
use crate::inject::{Inject, Who, pairs};
use crate::net::{CLUSTER, id_of};
use crate::paths::Weather;
use crate::report::Violation;
use crate::world::{Event, OlderCopy, World};
use kattu_disk::{Damage, Fault as DiskFault, Place, SimDisk, Truth};
use kattu_node::contract::Event as Input;
use kattu_raft::{LinkEnd, LogIndex};
use kattu_verify::history::What;
use kattu_wal::{DataDir, WalError};
use std::sync::Arc;

/// Requests of floods in one storm, at most: judges have to read them all.
const FLOOD_MAX: u64 = 3_000;
/// A flood comes in waves.
const WAVE: u64 = 10 * MS;
/// A follower has lagged if it was this many entries behind.
const LAG_ENTRIES: u64 = 16;

type Done = Result<(), Violation>;

impl World {
    fn find(&self, who: Who) -> Option<usize> {
        match who {
            // A removed member is no target: a current one takes its place.
            Who::Member(member) if self.members.get(member)?.gone => {
                let there = self.current();
                there.get(member % there.len().max(1)).copied()
            }
            Who::Member(member) => Some(member),
            Who::Leader => self.leader(),
        }
    }

    /// The member, if its process runs.
    pub(crate) fn running(&self, who: Who) -> Option<usize> {
        self.find(who).filter(|&member| self.members[member].process.is_some())
    }

    pub(crate) fn inject(&mut self, place: usize) -> Done {
        if self.calm {
            return Ok(());
        }
        let (number, injection) = self.plan.injections[place].clone();
        self.sh.line(None, "fault", || format!("#{number} {}", injection.what));
        self.sh.trace.injected(number);
        if !self.strike(place, &injection.what)? {
            self.sh.trace.not_injected(); // there was no target
        }
        Ok(())
    }

    /// Carries out one fault; whether there was a target.
    fn strike(&mut self, place: usize, what: &Inject) -> Result<bool, Violation> {
        match *what {
            Inject::Kill { who, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                self.members[member].down = down;
                self.sh.tally.add(Fault::F01);
                self.kill(member, "killed")?;
            }
            Inject::KillAtEffect { who, effects, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                self.members[member].down = down;
                self.members[member].process.as_mut().expect("it runs").hands.fuse.set(Some(effects));
            }
            Inject::KillAtDisk { who, operations, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                self.members[member].down = down;
                self.members[member].disk.lose_power_after(operations);
            }
            Inject::KillAll { down, operations, again } => {
                self.sh.tally.add(Fault::F02);
                for member in 0..self.members.len() {
                    self.members[member].down = down;
                    self.members[member].lose_power_again = (again, operations + member as u64);
                    self.kill(member, "all are killed")?;
                }
            }
            Inject::Stop { who, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                // A leader transfers leadership first. [shell/server `serve`]
                let run = self.members[member].run;
                self.hear(member, run, Input::Transfer(None))?;
                let timeout = self.plan.settings.election_timeout.as_nanos() as u64;
                self.stop_when_free(member, self.sh.now + timeout, down)?;
            }
            Inject::Pause { who, time } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                let until = self.members[member].paused_until.max(self.sh.now + time);
                self.members[member].paused_until = until;
                self.sh.tally.add(Fault::F03);
                self.sh.queue.plan(until, Event::Resume { member });
            }
            Inject::Wedge { who, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                let state = &mut self.members[member];
                state.wedged = true;
                state.down = down;
                let run = state.run;
                let at = self.sh.now + self.plan.settings.disk_stall;
                self.sh.queue.plan(at, Event::Unwedge { member, run });
            }
            Inject::SecondProcess { who } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                return self.try_directory(member, member);
            }
            Inject::ForeignDirectory { who, other, .. } => {
                let Some(member) = self.find(who) else { return Ok(false) };
                return if member == other { Ok(false) } else { self.try_directory(member, other) };
            }
            Inject::Wipe { who, down } => return self.wipe(who, down),
            Inject::Diverge { who } => return Ok(self.diverge(who)),
            Inject::RollBack { who, down } => return self.roll_back(who, down),
            Inject::Lie { who, down, pick } => return self.lie(who, down, pick),
            Inject::Stall { who, time } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                self.members[member].down = SEC;
                self.members[member].disk.stall(time);
            }
            Inject::Slow { who, times, time } => {
                let Some(member) = self.find(who) else { return Ok(false) };
                self.members[member].down = SEC;
                self.members[member].disk.slow_down(times);
                self.over_after(place, time);
            }
            Inject::FailSync { who, syncs, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                let survive_percent = self.dice.below(101) as u8;
                let fault = if self.dice.one_in(4) {
                    DiskFault::NameSyncFails
                } else {
                    DiskFault::SyncFails { survive_percent, forget: self.dice.one_in(2) }
                };
                self.members[member].down = down;
                self.members[member].disk.arm(fault, syncs);
            }
            Inject::FailWrite { who, writes, down } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                let fault = DiskFault::WriteFails { done_percent: self.dice.below(101) as u8 };
                self.members[member].down = down;
                self.members[member].disk.arm(fault, writes);
            }
            Inject::Full { who, time } => {
                let Some(member) = self.find(who) else { return Ok(false) };
                let disk = &self.members[member].disk;
                disk.limit_to(Some(disk.bytes()));
                self.full.insert(place, member);
                self.over_after(place, time);
            }
            Inject::Damage { who, how, down, pick } => return self.damage(who, how, down, pick),
            Inject::LostWrite { who, elsewhere, syncs } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                let fault = if elsewhere { DiskFault::WriteMisdirected } else { DiskFault::WriteLost };
                self.members[member].down = SEC;
                self.members[member].disk.arm(fault, syncs);
            }
            Inject::Split { sides, time } => {
                self.cut_split(sides, 1);
                self.over_after(place, time);
            }
            Inject::CutOff { who, time } => {
                let Some(member) = self.find(who) else { return Ok(false) };
                self.cut_off(member, 1);
                self.sh.queue.plan(self.sh.now + time, Event::Joined { member });
            }
            Inject::Partial { pairs, time } => {
                self.cut_pairs(pairs, 1);
                self.over_after(place, time);
            }
            Inject::OneWay { from, to, time } => {
                self.sh.net.paths.path(from, to).one_way += 1;
                self.over_after(place, time);
            }
            Inject::Flap { time, .. } => {
                self.flap(place, true)?;
                self.over_after(place, time);
            }
            Inject::Lossy { loss, repeat, overtake, late, time } => {
                self.sh.net.paths.weather = Weather { loss, repeat, overtake, late };
                self.over_after(place, time);
            }
            Inject::Reset { from, to, mid_frame } => {
                if mid_frame {
                    self.sh.net.paths.path(from, to).cut_off_next += 1;
                } else {
                    let (net, mut around) = self.sh.net();
                    let lane = net.lane_to_reset(from, to);
                    net.close(&mut around, from, to, lane, LinkEnd::ByPeer);
                }
            }
            Inject::Corrupt { from, to } => self.sh.net.paths.path(from, to).corrupt_next += 1,
            Inject::Replay { who, frames } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                let term = self.members[member].process.as_ref().expect("it runs").node().raft().term();
                let (net, mut around) = self.sh.net();
                net.replay(&mut around, member, term, frames);
            }
            Inject::Clog { from, to, rate, time } => {
                self.sh.net.paths.path(from, to).clog = Some(rate);
                self.over_after(place, time);
            }
            Inject::WallJump { who, by } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                self.members[member].wall += by;
                self.sh.tally.add(Fault::F40);
            }
            Inject::Overload { time, .. } => {
                self.over_after(place, time);
                self.flood(place)?;
            }
            Inject::Lag { who, time, .. } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                self.cut_towards(member, 1);
                self.over_after(place, time);
                self.flood(place)?;
            }
            Inject::Change(change) => return Ok(self.change_request(change)),
            Inject::Restore { who, pick } => return self.restore(who, pick),
            Inject::Recover { who, pick } => return self.recover(who, pick),
            Inject::Narrow { .. } | Inject::Tired { .. } | Inject::Away { .. } | Inject::Forget => {
                return self.strike_service(place, what);
            }
            Inject::Heavy { who, requests } => {
                let Some(member) = self.running(who) else { return Ok(false) };
                for _ in 0..requests {
                    let operation = self.clients.heavy(self.sh.now, member);
                    self.set_out(operation)?;
                }
            }
            Inject::Transfer { to } => {
                let Some(member) = self.running(Who::Leader) else { return Ok(false) };
                let run = self.members[member].run;
                self.hear(member, run, Input::Transfer(to.map(id_of)))?;
            }
        }
        Ok(true)
    }

    fn over_after(&mut self, place: usize, time: u64) {
        self.sh.queue.plan(self.sh.now + time, Event::Over { place });
    }

    /// Ends the effect of a fault.
    pub(crate) fn over(&mut self, place: usize) -> Done {
        if self.calm {
            return Ok(());
        }
        match self.plan.injections[place].1.what.clone() {
            Inject::Slow { who: Who::Member(member), .. } => self.members[member].disk.slow_down(1),
            Inject::Slow { .. } => self.members.iter().for_each(|member| member.disk.slow_down(1)),
            Inject::Full { .. } => self.empty(place),
            Inject::Split { sides, .. } => self.cut_split(sides, -1),
            Inject::Partial { pairs, .. } => self.cut_pairs(pairs, -1),
            Inject::OneWay { from, to, .. } => self.sh.net.paths.path(from, to).one_way -= 1,
            Inject::Lossy { .. } => self.sh.net.paths.weather = Weather::default(),
            Inject::Clog { from, to, .. } => self.sh.net.paths.path(from, to).clog = None,
            Inject::Lag { who: Who::Member(member), .. } => {
                self.cut_towards(member, -1);
                self.note_lag(member);
            }
            _ => self.service_over(place),
        }
        let number = self.plan.injections[place].0;
        self.sh.line(None, "fault", || format!("#{number} is over"));
        let (net, mut around) = self.sh.net();
        net.paths.let_go(&mut around);
        Ok(())
    }

    /// The disk that a fault has filled has room again, unless another fault has filled it, too.
    fn empty(&mut self, place: usize) {
        let Some(member) = self.full.remove(&place) else { return };
        if !self.full.values().any(|&other| other == member) {
            self.members[member].disk.limit_to(None);
        }
    }

    fn cut_split(&mut self, sides: u16, by: i16) {
        for (a, b) in pairs(self.members.len()) {
            let side = |member: usize| sides >> (member % self.plan.members as usize) & 1;
            if side(a) != side(b) {
                for (from, to) in [(a, b), (b, a)] {
                    let path = self.sh.net.paths.path(from, to);
                    path.split = path.split.saturating_add_signed(by);
                }
            }
        }
    }

    /// Cuts a member off from all others, or joins it again.
    fn cut_off(&mut self, member: usize, by: i16) {
        for other in (0..self.members.len()).filter(|&other| other != member) {
            for (from, to) in [(member, other), (other, member)] {
                let path = self.sh.net.paths.path(from, to);
                path.split = path.split.saturating_add_signed(by);
            }
        }
    }

    /// Joins a member that was cut off.
    pub(crate) fn join(&mut self, member: usize) -> Done {
        if !self.calm {
            self.cut_off(member, -1);
            let (net, mut around) = self.sh.net();
            net.paths.let_go(&mut around);
        }
        Ok(())
    }

    fn cut_pairs(&mut self, cut: u64, by: i16) {
        // Only first members are cut off: later ones reach all others.
        for (number, (a, b)) in pairs(self.plan.members as usize).enumerate() {
            if cut >> number & 1 == 1 {
                for (from, to) in [(a, b), (b, a)] {
                    let path = self.sh.net.paths.path(from, to);
                    path.partial = path.partial.saturating_add_signed(by);
                }
            }
        }
    }

    fn cut_towards(&mut self, member: usize, by: i16) {
        for from in (0..self.members.len()).filter(|&from| from != member) {
            let path = self.sh.net.paths.path(from, member);
            path.lag = path.lag.saturating_add_signed(by);
        }
    }

    /// A flapping pair is cut or joined, and changes again.
    pub(crate) fn flap(&mut self, place: usize, cut: bool) -> Done {
        let (_, injection) = &self.plan.injections[place];
        let Inject::Flap { from, to, period, time } = injection.what else { return Ok(()) };
        let end = injection.at + time;
        if self.calm {
            return Ok(());
        }
        for (from, to) in [(from, to), (to, from)] {
            let path = self.sh.net.paths.path(from, to);
            path.partial = path.partial.saturating_add_signed(if cut { 1 } else { -1 });
        }
        if cut || self.sh.now + period < end {
            self.sh.queue.plan(self.sh.now + period, Event::Flap { place, cut: !cut });
        }
        let (net, mut around) = self.sh.net();
        net.paths.let_go(&mut around);
        Ok(())
    }

    fn note_lag(&mut self, member: usize) {
        let Some(process) = &self.members[member].process else { return };
        let own = process.node().raft().persisted_index();
        let Some(leader) = self.leader() else { return };
        let last = self.members[leader].process.as_ref().expect("it leads").node().raft().last_id().index;
        if own.0 + LAG_ENTRIES <= last.0 {
            self.members[member].lagging = Some(last);
        }
    }

    /// Stops a member once it does not lead, or at `until` although it does.
    pub(crate) fn stop_when_free(&mut self, member: usize, until: u64, down: u64) -> Done {
        let Some(process) = &self.members[member].process else { return Ok(()) };
        if !self.calm && self.sh.now < until && process.node().raft().is_leader() && self.up().len() > 1 {
            let run = self.members[member].run;
            self.sh.queue.plan(self.sh.now + 2 * MS, Event::Stop { member, run, until, down });
            return Ok(());
        }
        self.stop(member, down).map(|_| ())
    }

    fn stop(&mut self, member: usize, down: u64) -> Result<bool, Violation> {
        if self.members[member].process.is_none() || self.calm {
            return Ok(false);
        }
        if self.is_paused(member) || self.members[member].disk.is_out() {
            return Ok(false);
        }
        self.look_at_vote_floor(member);
        let mut process = self.members[member].process.take().expect("it runs");
        if process.at_disk_for(self.sh.now).is_some() {
            // A stop waits for the disk; here it is skipped.
            self.members[member].process = Some(process);
            return Ok(false);
        }
        process.hands.fuse.set(None);
        self.members[member].ended_at = process.node().raft().last_id().index;
        let ended = process.finish(&mut self.sh);
        let state = &mut self.members[member];
        match ended {
            Ok(()) => {}
            Err(crate::end::End::Violation(violation)) => return Err(violation),
            // The log was not closed cleanly; a restart reads it all the same.
            Err(_) => {}
        }
        let is_out = state.disk.is_out();
        if is_out {
            let _ = state.disk.power_fails(self.dice.roll(), u64::MAX);
        } else {
            state.disk.process_dies(u64::MAX);
        }
        self.sh.line(Some(member), "process", || "stops cleanly".into());
        self.count_fired(member);
        self.after_end(member, Vec::new(), false)?;
        self.plan_start(member, self.sh.now + down);
        Ok(true)
    }

    /// A process of `member` opens the directory of `owner`: it must be refused. [fault-model F06]
    fn try_directory(&mut self, member: usize, owner: usize) -> Result<bool, Violation> {
        let disk = &self.members[owner].disk;
        if disk.contents("identity").is_none() || disk.is_out() {
            return Ok(false); // not created yet
        }
        let is_up = self.members[owner].process.is_some();
        let opened = DataDir::open(Arc::new(disk.mount())).and_then(|dir| dir.expect(CLUSTER, id_of(member)));
        let is_damaged = disk.truth() != kattu_disk::Truth::Whole;
        match opened {
            Err(WalError::Locked { .. }) if is_up => {}
            Err(WalError::Foreign { .. }) if !is_up && member != owner => {}
            Err(_) if is_damaged || !is_up => return Ok(false),
            other => {
                let story = format!("n{} opens the directory of n{}: {other:?}", member + 1, owner + 1);
                return Err(Violation::new("a_directory_has_one_process", story));
            }
        }
        self.sh.tally.add(Fault::F06);
        Ok(true)
    }

    /// Files are damaged while their member is down.
    fn damage(&mut self, who: Who, how: Damage, down: u64, pick: u64) -> Result<bool, Violation> {
        let Some(member) = self.find(who) else { return Ok(false) };
        if self.sh.observer.committed() == LogIndex(0) {
            return Ok(false); // a first member that does not start again keeps a cluster from beginning
        }
        let of_snapshot = matches!(place_of(how), Some(Place::Snapshot | Place::SnapshotBefore));
        // Two faults in one member carry no guarantee. A single member has its other snapshot, if the log goes on from
        // it; in a larger cluster the log is pruned by the newest one alone.
        let is_alone = self.current().len() == 1 && 1 < self.snapshots_with_a_log(member);
        if of_snapshot && !((is_alone || self.may_be_lost(member)) && self.is_whole(member)) {
            return Ok(false);
        }
        self.members[member].down = down;
        if self.members[member].process.is_some() {
            self.kill(member, "killed, and its files are damaged")?;
        }
        let stays_down = self.dice.one_in(4);
        let fault = match how {
            Damage::Flip(_) | Damage::Unreadable(_) => Fault::F13,
            Damage::Stale(_) => Fault::F14,
            _ => Fault::F15,
        };
        let state = &mut self.members[member];
        let Some(what) = state.disk.damage(how, pick) else { return Ok(false) };
        let _ = state.disk.take_fired();
        if matches!(how, Damage::Leftover) {
            self.sh.tally.add(Fault::F15);
        }
        state.damaged = Some((fault, stays_down));
        if of_snapshot {
            state.hurt = Some(self.sh.observer.committed());
        }
        self.sh.line(Some(member), "disk", || what);
        Ok(true)
    }

    /// How many good snapshots a running member could restart from by itself.
    fn snapshots_with_a_log(&self, member: usize) -> usize {
        let Some(process) = &self.members[member].process else { return 0 };
        let base = process.node().raft().base().index;
        self.members[member].disk.good_snapshots().iter().filter(|last| base <= last.index).count()
    }

    /// Loses a directory. Where members cannot be replaced, the member returns as a voter that forgot its vote, which
    /// is safe only while all others know all that it knew: so it happens only then. [fault-model F61]
    fn wipe(&mut self, who: Who, down: u64) -> Result<bool, Violation> {
        let Some(member) = self.running(who) else { return Ok(false) };
        if self.sh.observer.committed() == LogIndex(0) {
            return Ok(false); // a cluster that has lost a first member before it began never begins
        }
        if self.plan.spares == 0 && self.plan.settings.leadership.asks_first {
            return Ok(false); // no member would admit it again
        }
        if self.plan.spares > 0 {
            return self.lose_directory(member, down);
        }
        if !self.can_be_forgotten(member) {
            return Ok(false);
        }
        let process = self.members[member].process.as_ref().expect("it runs");
        let term = process.node().raft().term();
        self.members[member].down = down;
        self.members[member].wiped_in = Some(term);
        // The others would refuse it by its handshake. What the replicas do is to be tried, as if their files of voters'
        // directories were lost.
        self.members[member].named_as = Some(self.sh.net.peers[member].table.own().incarnation);
        self.kill(member, "its directory is lost")?;
        let seed = self.dice.roll();
        self.members[member].disk = SimDisk::seeded(seed, self.plan.pace.disk);
        (self.members[member].hurt, self.members[member].vote_floor) = (None, None);
        self.members[member].older = None;
        self.sh.vote_holds.remove(&id_of(member));
        self.sh.observer.wiped(id_of(member));
        Ok(true)
    }

    /// Copies a directory, or rolls it back to the copy. No disk shows that, so it happens only where the others can
    /// remind the member, or know all that it knew. [fault-model F19]
    fn roll_back(&mut self, who: Who, down: u64) -> Result<bool, Violation> {
        let Some(member) = self.running(who) else { return Ok(false) };
        let raft = self.members[member].process.as_ref().expect("it runs").node().raft();
        if self.plan.spares > 0 || !self.is_whole(member) || raft.persisted_index() == LogIndex(0) {
            return Ok(false);
        }
        let asks_first = self.plan.settings.leadership.asks_first;
        if self.members[member].older.is_none() {
            let copy = self.members[member].disk.copy();
            let _ = copy.power_fails(self.dice.roll(), u64::MAX);
            self.members[member].older = Some(copy);
            return Ok(true);
        }
        if asks_first && self.can_be_reminded(member) {
            // The committed index, and what a leader counts as acknowledged.
            let rafts =
                self.members.iter().filter_map(|other| other.process.as_ref().map(|it| it.node().raft()));
            let counted = rafts.filter_map(|raft| raft.matched(id_of(member))).max();
            let owed = self.sh.observer.committed().max(counted.unwrap_or_default());
            self.members[member].down = down;
            self.kill(member, "its directory is rolled back")?;
            // An acknowledgement that a leader reads after it has reported what it counts is not covered.
            // [fault-model §4 (e)]
            self.sh.net.paths.forget_sent(member);
            for other in self.members.iter_mut().filter_map(|other| other.process.as_mut()) {
                let is_from =
                    |event: &Input| matches!(event, Input::Peer(message) if message.from() == id_of(member));
                other.hands.inbox.retain(|event| !is_from(event)); // a paused process has not read it yet
            }
            let older = self.members[member].older.take().expect("just seen");
            let newest = std::mem::replace(&mut self.members[member].disk, older);
            self.members[member].newest = Some(newest);
            self.members[member].hurt = None;
            let copy = OlderCopy { owed, are_others_as_they_were: true, is_over: false, is_reminded: false };
            self.sh.older_copies.insert(id_of(member), copy);
            self.sh.observer.returns_older(id_of(member));
            return Ok(true);
        }
        if !self.can_be_forgotten(member) {
            return Ok(false);
        }
        self.members[member].down = down;
        self.kill(member, "its directory is rolled back")?;
        let older = self.members[member].older.take().expect("just seen");
        self.members[member].disk = older;
        self.forgets(member, Fault::F19);
        Ok(true)
    }

    /// Whether the others know all that this member has acknowledged: all of them are up and whole, and one knows all
    /// that is committed. Not for a leader: it counts its own copy for commits, which no other member is shown.
    /// [fault-model §4]
    fn can_be_reminded(&self, member: usize) -> bool {
        let own = self.members[member].process.as_ref().expect("it runs").node().raft();
        let others = self.current().into_iter().filter(|&other| other != member);
        let rafts: Vec<_> =
            others.map(|other| self.members[other].process.as_ref().map(|p| p.node().raft())).collect();
        let is_up = |raft: &Option<&kattu_raft::Raft>| raft.is_some_and(|raft| !raft.is_returning());
        let committed = self.sh.observer.committed();
        2 < self.plan.members
            && !own.is_leader()
            && !own.is_returning()
            && self.sh.older_copies.is_empty()
            && rafts.iter().all(is_up)
            && rafts.iter().flatten().any(|raft| committed <= raft.committed())
            && self.are_all_whole()
            && !self.members.iter().any(|member| member.wedged)
    }

    /// A member takes part with an older copy of its directory: the newest one is dropped.
    pub(crate) fn forget_newest(&mut self, member: usize) {
        let id = id_of(member);
        let Some(copy) = self.sh.older_copies.get(&id).filter(|copy| copy.is_reminded) else { return };
        let owed = copy.owed;
        if self.members[member].newest.take().is_some() {
            self.sh.tally.add(Fault::F19);
        }
        if self.reaches(member, owed) {
            self.sh.older_copies.remove(&id);
        }
    }

    /// Not all others have reminded it: such a member must not return so. The operator finds the right directory.
    pub(crate) fn put_newest_back(&mut self, member: usize) -> Result<(), Violation> {
        self.kill(member, "its directory is older than others have seen, and not all of them can remind it")?;
        let copy = self.sh.older_copies.get_mut(&id_of(member)).expect("it starts from one");
        // It has taken part with the copy before: it stays out until all can be asked.
        let Some(newest) = self.members[member].newest.take() else {
            (copy.are_others_as_they_were, copy.is_over) = (true, false);
            return Ok(());
        };
        self.sh.older_copies.remove(&id_of(member));
        self.members[member].disk = newest;
        // A floor that the older copy got, because its log was cut, stays with that copy.
        self.members[member].vote_floor = None;
        self.sh.observer.returns_newest(id_of(member));
        Ok(())
    }

    /// The disk reported the last block as synced, and the power cut shows that it was not. [fault-model F18]
    fn lie(&mut self, who: Who, down: u64, pick: u64) -> Result<bool, Violation> {
        let Some(member) = self.running(who) else { return Ok(false) };
        if self.plan.spares > 0 || !self.can_be_forgotten(member) {
            return Ok(false);
        }
        self.members[member].down = down;
        self.kill(member, "power is lost, and its disk has lied about a sync")?;
        let disk = &self.members[member].disk;
        let Some(what) = disk.damage(Damage::Stale(Place::LogEnd), pick) else { return Ok(false) };
        let _ = disk.take_fired();
        if disk.truth() != Truth::MayForget {
            disk.heal();
            return Ok(false);
        }
        self.sh.line(Some(member), "disk", || what);
        self.members[member].lied_to = true;
        Ok(true)
    }

    /// A member restarts with less than it acknowledged, and its disk does not show it.
    pub(crate) fn forgets(&mut self, member: usize, fault: Fault) {
        self.members[member].hurt = None;
        self.sh.forgot.insert(id_of(member), fault);
        self.sh.observer.rolled_back(id_of(member));
    }

    /// Whether all others know all that this member knows, and a leader is there: then its loss breaks no guarantee. At
    /// any other time it could, in production, too.
    fn can_be_forgotten(&self, member: usize) -> bool {
        let rafts: Vec<_> =
            self.members.iter().map(|member| member.process.as_ref().map(|p| p.node().raft())).collect();
        let own = rafts[member].expect("it runs");
        let knows_all = |raft: &kattu_raft::Raft| {
            raft.term() == own.term()
                && raft.leader().is_some()
                && own.last_id().index <= raft.persisted_index()
                && raft.term_at(own.last_id().index) == Some(own.last_id().term)
        };
        let everybody = rafts.iter().all(|raft| raft.is_some_and(knows_all));
        2 < self.plan.members
            && !own.is_leader()
            && everybody
            && self.are_all_whole()
            && !self.members.iter().any(|member| member.wedged)
    }

    /// Loses a directory where members can be replaced: a member with an empty one does not return under the old id, so
    /// the operator adds another.
    fn lose_directory(&mut self, member: usize, down: u64) -> Result<bool, Violation> {
        if !self.may_be_lost(member) || !self.is_whole(member) {
            return Ok(false);
        }
        self.members[member].down = down;
        self.kill(member, "its directory is lost")?;
        let seed = self.dice.roll();
        let empty = SimDisk::seeded(seed, self.plan.pace.disk);
        self.members[member].lost_disk = Some(std::mem::replace(&mut self.members[member].disk, empty));
        self.members[member].lost_directory = true;
        self.sh.vote_holds.remove(&id_of(member));
        (self.members[member].hurt, self.members[member].vote_floor) = (None, None);
        Ok(true)
    }

    /// The next wave of a flood.
    pub(crate) fn flood(&mut self, place: usize) -> Done {
        let (_, injection) = &self.plan.injections[place];
        let (rate, time) = match injection.what {
            Inject::Overload { rate, time } | Inject::Lag { rate, time, .. } => (rate, time),
            _ => return Ok(()),
        };
        let end = injection.at + time;
        if self.calm || end <= self.sh.now {
            return Ok(());
        }
        let up = self.up();
        let wave = (rate * WAVE / SEC).max(1);
        for _ in 0..wave {
            if up.is_empty() || self.clients.flooded() >= FLOOD_MAX {
                break;
            }
            let member = up[self.dice.below(up.len() as u64) as usize];
            let operation = self.clients.flood(self.sh.now, member);
            self.set_out(operation)?;
        }
        for &member in &up {
            self.memory_is_bounded(member)?;
        }
        self.sh.queue.plan(self.sh.now + WAVE, Event::Flood { place });
        Ok(())
    }

    /// The number of waiting requests is bounded. [fault-model F50]
    fn memory_is_bounded(&self, member: usize) -> Done {
        let Some(process) = &self.members[member].process else { return Ok(()) };
        // The last one that is taken in may be a look-up.
        let limit = self.plan.settings.pending_max + crate::plan::CALLS_MAX + kattu_kv::lookup::KEYS_MAX;
        if process.held() <= limit {
            return Ok(());
        }
        let story = format!("n{} holds {} requests, {limit} are allowed", member + 1, process.held());
        Err(Violation::new("requests_held_are_bounded", story))
    }

    /// An answer that the calm waits for.
    pub(crate) fn on_calm_answer(&mut self, operation: u64, what: &What) {
        let Some(at) = self.probing.iter().position(|&(probe, _)| probe == operation) else { return };
        let (_, member) = self.probing.swap_remove(at);
        match what {
            What::Done { revision: Some(_), .. } if member == usize::MAX => {
                self.last_read = Some((self.sh.now, what.clone()));
            }
            What::Done { .. } => self.probes[member] = Some(self.sh.now),
            _ if member == usize::MAX => {}
            _ => self.sh.queue.plan(self.sh.now + crate::clients::RETRY, Event::Probe { member }),
        }
    }
}

/// The place of a kind of damage.
fn place_of(how: Damage) -> Option<Place> {
    match how {
        Damage::Flip(place)
        | Damage::Unreadable(place)
        | Damage::Stale(place)
        | Damage::Misplaced(place)
        | Damage::Missing(place)
        | Damage::Truncated(place)
        | Damage::Foreign(place) => Some(place),
        Damage::Leftover => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::Injection;
    use crate::plan::Plan;

    #[test]
    fn a_full_disk_has_room_again_when_the_last_fault_that_filled_it_is_over_and_no_other_disk_has() {
        let mut world = World::new(Plan::steady(1, 3, 10), Arc::default());
        assert!(world.run_while(10 * SEC, |world| world.leader().is_none()).expect("no violation"));
        let leader = world.leader().expect("it runs until there is one");
        let other = (leader + 1) % 3;
        for (number, who) in (0..).zip([Who::Leader, Who::Member(other), Who::Member(other)]) {
            let what = Inject::Full { who, time: SEC };
            world.plan.injections.push((number, Injection { at: world.sh.now, what }));
            world.inject(number as usize).expect("a fault");
        }
        let full = |world: &World| [leader, other].map(|member| world.members[member].disk.limit().is_some());
        assert_eq!(full(&world), [true, true]);
        for (place, left) in [(1, [true, true]), (0, [false, true]), (2, [false, false])] {
            world.over(place).expect("its end");
            assert_eq!(full(&world), left, "fault {place} is over");
        }
    }
}
