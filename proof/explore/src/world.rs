//! The world: three numbers for its members, one for its history, the messages under way, and how much may still
//! happen.
//!
//! In:    a choice.
//! Out:   the world after it; the guarantee that it violates.
//! Rules: 1. Messages under way are a set on each link, or a queue, depending on the scope. One that is never delivered
//!           is lost; two equal ones count as one; copies are a choice with a budget.
//!        2. An answer of a term that its addressee has durably left would change nothing, now or ever: it is dropped,
//!           unless the scope keeps such answers to check this.
//!        3. Where time is measured it passes for all members at once; else every member's time is a choice of its own.
//!        4. Everything that could go on for ever has a budget, so a scope has finitely many worlds and all are seen.
//!
//! Knows nothing of: worlds seen before.

use crate::choice::{Choice, What, event, event_code};
use crate::clocks::Rate;
use crate::left::Left;
use crate::member::{Event, Member};
use crate::position::Position;
use crate::receipts::Receipts;
use crate::scope::{Order, Scope, Start, Sync};
use crate::search::Sight;
use crate::tables::{Facts, Step, Tables};
use kattu_raft::canonical::Moment;
use kattu_raft::policy::Weak;
use kattu_raft::{NodeId, Term};

/// Limit of time steps for each stage on the way to the first world.
const STEPS_MAX: usize = 16;

/// One state of the whole cluster.
#[derive(Debug, PartialEq, Eq)]
pub struct World {
    /// Members by number.
    pub members: Vec<u32>,
    /// History by number.
    pub ghost: u32,
    /// Budgets.
    pub left: Left,
    /// Messages under way by number: ascending, or by link and age.
    pub messages: Vec<u32>,
}

impl Clone for World {
    fn clone(&self) -> World {
        let World { members, ghost, left, messages } = self;
        World { members: members.clone(), ghost: *ghost, left: *left, messages: messages.clone() }
    }

    /// Without a new allocation: the search does this hundreds of millions of times.
    fn clone_from(&mut self, source: &World) {
        self.members.clone_from(&source.members);
        self.messages.clone_from(&source.messages);
        (self.ghost, self.left) = (source.ghost, source.left);
    }
}

/// Why a choice leads nowhere.
pub enum Ends {
    /// It violates a guarantee.
    Broken(String),
    /// It leaves the scope, or has no effect.
    Outside,
}

impl World {
    /// The first world of a scope.
    ///
    /// # Errors
    /// The guarantee that its members violated on the way there.
    pub fn first(scope: &Scope, tables: &mut Tables<'_>) -> Result<World, String> {
        let mut members = Vec::new();
        for id in 1..=scope.members as u64 {
            let member = Member::new(NodeId(id), scope)?;
            members.push(tables.member(member));
        }
        let ghost = tables.ghost(crate::ghost::Ghost::default());
        let left = Left { fires: [u8::MAX; 16], ..Left::of(scope) };
        let mut world = World { members, ghost, left, messages: Vec::new() };
        match scope.start {
            Start::Fresh => {}
            Start::Elected | Start::Leased if scope.clocks.is_some() => {
                world.elect_in_time(scope, tables)?;
            }
            Start::Elected | Start::Leased => world.elect_the_first(scope, tables)?,
        }
        world.left = Left::of(scope);
        Ok(world)
    }

    /// Member 1 is elected and all members know what it committed; nothing is under way.
    fn elect_the_first(&mut self, scope: &Scope, tables: &mut Tables<'_>) -> Result<(), String> {
        self.settle(scope, tables)?;
        for moment in [Moment::Election, Moment::CommitNotice] {
            let leads = tables.facts(self.members[0]).leads.is_some(); // a single member already leads
            let ahead = tables.facts(self.members[0]).moments.contains(&moment);
            if ahead && leads != (moment == Moment::Election) {
                self.do_all(Choice::At(0, What::Fire(moment)), scope, tables)?;
            }
        }
        Ok(())
    }

    /// The same where time is measured, by exact clocks; the lease has just begun, if the scope starts with one.
    fn elect_in_time(&mut self, scope: &Scope, tables: &mut Tables<'_>) -> Result<(), String> {
        self.settle(scope, tables)?;
        let mut stages = vec![Moment::Election, Moment::CommitNotice];
        if scope.start == Start::Leased {
            stages.push(Moment::Heartbeat);
        }
        for stage in stages {
            let mut steps = 0;
            while !tables.facts(self.members[0]).due.contains(&stage) {
                steps += 1;
                match self.time_passes([Rate::Exact; 3], tables) {
                    Ok(_) if steps < STEPS_MAX => {}
                    Err(Ends::Broken(story)) => return Err(story),
                    Ok(_) | Err(Ends::Outside) => return Err(format!("{stage:?} never comes")),
                }
            }
            self.do_all(Choice::At(0, What::Fire(stage)), scope, tables)?;
        }
        match tables.facts(self.members[0]).lease == Some(scope.start == Start::Leased) {
            true => Ok(()),
            false => Err("the first world has not the lease that it should have".into()),
        }
    }

    /// A step of time. Returns the step of the member whose lease it ended, if any.
    fn time_passes(&mut self, rates: [Rate; 3], tables: &mut Tables<'_>) -> Result<Option<u32>, Ends> {
        let mut noted = None;
        for (n, rate) in rates.into_iter().enumerate().take(self.members.len()) {
            let code = Choice::Pass(rate as u8).word();
            let number = tables
                .step(self.members[n], code, |_| Event::Pass(rate))
                .map_err(|story| Ends::Broken(format!("member {}: {story}", n + 1)))?;
            let step = tables.step_at(number);
            self.members[n] = step.member;
            if step.lease.ended {
                noted = Some(number);
            }
        }
        Ok(noted)
    }

    /// Makes a choice, and then everything that follows until the world is quiet.
    fn do_all(&mut self, choice: Choice, scope: &Scope, tables: &mut Tables<'_>) -> Result<(), String> {
        match self.go(choice, scope, tables) {
            Ok(_) => self.settle(scope, tables),
            Err(Ends::Broken(story)) => Err(story),
            Err(Ends::Outside) => Err(format!("{choice:?} is not in the scope")),
        }
    }

    fn settle(&mut self, scope: &Scope, tables: &mut Tables<'_>) -> Result<(), String> {
        match self.unfinished(tables) {
            Some(choice) => self.do_all(choice, scope, tables),
            None => Ok(()),
        }
    }

    /// What is left to do until the world is quiet: disks first, then the oldest message.
    fn unfinished(&self, tables: &Tables<'_>) -> Option<Choice> {
        let busy = |(n, member): (usize, &u32)| {
            let facts = tables.facts(*member);
            match (facts.unsynced, facts.dirty) {
                (0, false) => None,
                (0, true) => Some(Choice::At(n, What::Drain)),
                (unsynced, _) => Some(Choice::At(n, What::Sync(unsynced))),
            }
        };
        let disk = self.members.iter().enumerate().find_map(busy);
        disk.or_else(|| self.messages.first().map(|message| Choice::Deliver(*message)))
    }

    /// Appends the world to a list of words.
    pub fn encode(&self, words: &mut Vec<u32>) {
        words.extend(&self.members);
        words.push(self.ghost);
        words.extend(self.left.words());
        words.extend(&self.messages);
    }

    /// Becomes the world that these words encode, with as many members as this one.
    pub fn decode(&mut self, words: &[u32]) {
        let members = self.members.len();
        let (head, messages) = words.split_at(members + 1 + Left::WORDS);
        self.members.copy_from_slice(&head[..members]);
        self.ghost = head[members];
        self.left = Left::from_words(&head[members + 1..]);
        self.messages.clear();
        self.messages.extend_from_slice(messages);
    }

    /// Everything that may happen next.
    pub fn choices(&self, scope: &Scope, tables: &Tables<'_>, choices: &mut Vec<Choice>) {
        choices.clear();
        let left = &self.left;
        for (n, member) in self.members.iter().enumerate() {
            let facts = tables.facts(*member);
            let mut may = |what| choices.push(Choice::At(n, what));
            if !facts.runs {
                may(What::Restart);
                continue;
            }
            let fires = |moment: &&Moment| left.fires[**moment as usize] > 0;
            match scope.clocks {
                None => facts.moments.iter().filter(fires).for_each(|moment| may(What::Fire(*moment))),
                Some(_) => facts.due.iter().find(fires).into_iter().for_each(|first| may(What::Fire(*first))),
            }
            match scope.sync {
                Sync::Each => (1..=facts.unsynced).for_each(|records| may(What::Sync(records))),
                Sync::All if facts.unsynced > 0 => may(What::Sync(facts.unsynced)),
                Sync::All | Sync::AtOnce => {}
            }
            if left.crashes > 0 {
                (0..=facts.unsynced).for_each(|surviving| may(What::Crash(surviving)));
            }
            if left.proposals > 0 && facts.leads.is_some() {
                may(What::Propose);
            }
            if left.changes > 0 && facts.leads.is_some() {
                may(What::Change);
            }
            if left.transfers > 0 && facts.leads.is_some() {
                (0..scope.members).filter(|to| *to != n).for_each(|to| may(What::Transfer(to)));
            }
            if let Some(leader) = facts.follows.filter(|_| left.closes > 0) {
                may(What::Close(leader));
            }
            if left.snapshots > 0 && facts.covered < facts.delivered {
                may(What::Snapshot);
            }
            if left.reads > 0 && facts.knows_leader {
                may(What::Read);
            }
            if facts.dirty {
                may(What::Drain);
            }
        }
        if let Some(clocks) = scope.clocks.filter(|_| left.steps > 0) {
            let ways = if left.way == 0 { 1..=clocks.ways.len() as u8 } else { left.way..=left.way };
            choices.extend(ways.map(Choice::Pass));
        }
        let mut link = 0;
        for message in &self.messages {
            let parcel = tables.parcel(*message);
            let behind = scope.order == Order::Queues && parcel.link == link;
            link = parcel.link;
            if behind {
                continue;
            }
            if tables.facts(self.members[parcel.to]).runs {
                choices.push(Choice::Deliver(*message));
                if left.copies > 0 {
                    choices.push(Choice::Copy(*message));
                }
            }
            if left.losses > 0 {
                choices.push(Choice::Lose(*message));
            }
        }
    }

    /// Becomes the world after a choice; the number of the step that one member took, if any.
    ///
    /// # Errors
    /// The choice leads nowhere; this world is then meaningless.
    pub fn go(
        &mut self,
        choice: Choice,
        scope: &Scope,
        tables: &mut Tables<'_>,
    ) -> Result<Option<u32>, Ends> {
        let left = &mut self.left;
        let n = match choice {
            Choice::Lose(message) => {
                left.losses -= 1;
                self.take(message);
                return Ok(None);
            }
            Choice::Pass(way) => {
                left.steps -= 1;
                left.way = way;
                let clocks = scope.clocks.ok_or(Ends::Outside)?;
                return self.time_passes(clocks.ways[usize::from(way) - 1], tables);
            }
            Choice::Deliver(message) | Choice::Copy(message) => tables.parcel(message).to,
            Choice::At(n, _) => n,
        };
        let name = Event::name(choice, scope, left);
        match choice {
            Choice::Copy(_) => left.copies -= 1,
            Choice::At(n, What::Fire(_)) if scope.clocks.is_some() => {
                tables.facts(self.members[n]).due.iter().for_each(|moment| left.fire(*moment));
            }
            Choice::At(_, What::Fire(moment)) => left.fires[moment as usize] -= 1,
            Choice::At(_, What::Crash(_)) => left.crashes -= 1,
            Choice::At(_, What::Propose) => left.proposals -= 1,
            Choice::At(_, What::Read) => left.reads -= 1,
            Choice::At(_, What::Change) => left.changes -= 1,
            Choice::At(_, What::Transfer(_)) => left.transfers -= 1,
            Choice::At(_, What::Snapshot) => left.snapshots -= 1,
            Choice::At(_, What::Close(_)) => left.closes -= 1,
            Choice::Deliver(message) => self.take(message),
            Choice::Lose(_) | Choice::Pass(_) => {}
            Choice::At(_, What::Sync(_) | What::Restart | What::Drain) => {}
        }
        let code = event_code(choice, name);
        let number = tables
            .step(self.members[n], code, |tables| event(choice, name, tables))
            .map_err(|story| Ends::Broken(format!("member {}: {story}", n + 1)))?;
        self.take_step(n, number, choice, name, scope, tables)?;
        Ok(Some(number))
    }

    fn take_step(
        &mut self,
        n: usize,
        number: u32,
        choice: Choice,
        name: u8,
        scope: &Scope,
        tables: &mut Tables<'_>,
    ) -> Result<(), Ends> {
        let step = tables.step_at(number);
        if step.refused || tables.facts(step.member).term > Term(scope.term_max) {
            return Err(Ends::Outside);
        }
        let before = std::mem::replace(&mut self.members[n], step.member);
        let told = self.told(n, before, choice, name, step, tables)?;
        for message in 0..step.sends.len() {
            let message = tables.step_at(number).sends[message];
            self.put(message, scope, tables);
        }
        if let Some(ghost) = told {
            self.ghost = tables.ghost(ghost);
        }
        if !scope.keeps_dead {
            let now = tables.facts(self.members[n]).durable_term;
            self.messages.retain(|message| {
                let parcel = tables.parcel(*message);
                let dead = parcel.to == n && parcel.dies_after.is_some_and(|term| term < now);
                !dead
            });
        }
        Ok(())
    }

    /// Judges the whole world.
    ///
    /// # Errors
    /// The violated guarantee.
    pub fn judge(&self, tables: &Tables<'_>) -> Result<(), String> {
        let facts: Vec<_> = self.members.iter().map(|member| tables.facts(*member)).collect();
        tables.ghost_at(self.ghost).holds(&facts)
    }

    /// What is true in this world.
    pub fn sights(&self, tables: &Tables<'_>) -> impl Iterator<Item = Sight> {
        let any = |is: fn(&Facts) -> bool| self.members.iter().any(|member| is(tables.facts(*member)));
        let is_joint = |log: &[Position]| {
            log.iter().rev().find_map(|place| place.configuration).is_some_and(|newest| newest.outgoing != 0)
        };
        let ghost = tables.ghost_at(self.ghost);
        let leases = tables.scope.clocks.is_some();
        let seen = [
            ghost.newest_configuration().is_some_and(|newest| newest.outgoing != 0),
            self.members.iter().any(|member| is_joint(&tables.facts(*member).log)),
            any(|facts| facts.base > 0),
            any(|facts| facts.installed),
            any(|facts| facts.transferring),
            any(|facts| facts.lease == Some(true)),
            any(|facts| facts.lease == Some(false)),
            leases && ghost.newest_term().is_some_and(|term| Term(1) < term),
            leases && self.members.iter().filter(|member| tables.facts(**member).leads.is_some()).count() > 1,
        ];
        Sight::ALL.into_iter().zip(seen).filter(|(_, seen)| *seen).map(|(sight, _)| sight)
    }

    /// The history after a step, if the step changes it.
    fn told(
        &self,
        n: usize,
        before: u32,
        choice: Choice,
        name: u8,
        step: &Step,
        tables: &Tables<'_>,
    ) -> Result<Option<crate::ghost::Ghost>, Ends> {
        let begins = matches!(choice, Choice::At(_, What::Read));
        let ends = matches!(choice, Choice::At(_, What::Crash(_)));
        let quiet = step.commits.is_empty()
            && step.elected.is_none()
            && step.verdicts.is_empty()
            && step.received.is_empty();
        let (before, reports) = (tables.facts(before), tables.scope.weak != Weak::Off);
        let touched = reports && Receipts::are_touched(before, tables.facts(step.member));
        if quiet && !begins && !ends && !touched {
            return Ok(None);
        }
        let mut ghost = (**tables.ghost_at(self.ghost)).clone();
        if begins {
            ghost.read_begins(n, name);
        }
        if ends {
            ghost.crashed(n);
        }
        let all: Vec<_> = self.members.iter().map(|member| tables.facts(*member)).collect();
        ghost.takes(n, step, before, &all).map_err(Ends::Broken)?;
        if reports {
            ghost.takes_reports(n, step, before, &all).map_err(Ends::Broken)?;
        }
        Ok(Some(ghost))
    }

    fn take(&mut self, message: u32) {
        if let Some(position) = self.messages.iter().position(|other| *other == message) {
            self.messages.remove(position);
        }
    }

    /// Puts a message under way, if its link has room and it could still matter to its addressee.
    fn put(&mut self, message: u32, scope: &Scope, tables: &Tables<'_>) {
        let parcel = tables.parcel(message);
        let addressee = tables.facts(self.members[parcel.to]);
        if !scope.keeps_dead && parcel.dies_after.is_some_and(|term| term < addressee.durable_term) {
            return;
        }
        let on_link = |other: &&u32| tables.parcel(**other).link == parcel.link;
        if self.messages.iter().filter(on_link).count() >= scope.in_flight_max {
            return;
        }
        let position = match scope.order {
            Order::Any => match self.messages.binary_search(&message) {
                Ok(_) => return, // one of two equal messages is lost
                Err(position) => position,
            },
            Order::Queues => {
                if self.messages.iter().rfind(on_link) == Some(&message) {
                    return;
                }
                let behind = |other: &u32| tables.parcel(*other).link > parcel.link;
                self.messages.iter().position(behind).unwrap_or(self.messages.len())
            }
        };
        self.messages.insert(position, message);
    }
}
