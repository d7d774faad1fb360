//! The search: every world of a scope, nearest first, each once.
//!
//! In:    a scope.
//! Out:   the number of worlds; or the shortest way to a forbidden one.
//! Rule:  breadth first, so the way found is a shortest one. A world is remembered by 64 bits of its encoding: among
//!        ten million worlds the chance that any is taken for another is below one in 300,000.
//! Knows nothing of: the content of worlds.

use crate::choice::{Choice, What};
use crate::scope::{Mark, Scope};
use crate::tables::Tables;
use crate::timeline::{self, Line};
use crate::world::{Ends, World};
use std::time::{Duration, Instant};

/// The result of exploring a scope.
#[derive(Clone, Debug)]
pub struct Report {
    /// Worlds, each counted once.
    pub states: u64,
    /// Choices followed.
    pub transitions: u64,
    /// The greatest distance of a world from the first one.
    pub depth: usize,
    /// Distinct members.
    pub members: usize,
    /// Distinct messages.
    pub messages: usize,
    /// Runs of the core.
    pub core_runs: usize,
    /// Marks that happened in some world.
    pub seen: Vec<Mark>,
    /// How many choices led to each counted mark, for all that happened at all.
    pub counts: Vec<(Mark, u64)>,
    /// In how many worlds each sight holds, for all that hold in any.
    pub sights: Vec<(Sight, u64)>,
    /// How long it took.
    pub took: Duration,
}

/// A condition that holds in some worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The newest configuration that is committed is joint.
    JointCommitted,
    /// Some member's newest configuration is joint.
    JointInForce,
    /// Some member's log begins after a snapshot.
    Pruned,
    /// A leader's snapshot has replaced some member's log.
    Installed,
    /// A leader transfers leadership.
    Transferring,
    /// Some member's lease holds.
    LeaseHolds,
    /// Some leader has no lease, in a lease scope.
    LeaseOver,
    /// A member was elected after a lease, in a lease scope.
    ElectedAfter,
    /// Two members lead, each its own term, in a lease scope.
    TwoLead,
}

impl Sight {
    /// All of them, in the order of their numbers.
    pub const ALL: [Sight; 9] = [
        Sight::JointCommitted,
        Sight::JointInForce,
        Sight::Pruned,
        Sight::Installed,
        Sight::Transferring,
        Sight::LeaseHolds,
        Sight::LeaseOver,
        Sight::ElectedAfter,
        Sight::TwoLead,
    ];

    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sight::JointCommitted => "joint committed",
            Sight::JointInForce => "joint in force",
            Sight::Pruned => "pruned",
            Sight::Installed => "snapshot installed",
            Sight::Transferring => "handing over",
            Sight::LeaseHolds => "a lease holds",
            Sight::LeaseOver => "a leader without a lease",
            Sight::ElectedAfter => "a new leader after it",
            Sight::TwoLead => "the old leader leads too",
        }
    }
}

/// The shortest way to a forbidden world.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The violated guarantee.
    pub story: String,
    /// How it came about, one line per event.
    pub timeline: Vec<Line>,
    /// Worlds seen before.
    pub states: u64,
    /// How long it took.
    pub took: Duration,
}

impl std::fmt::Display for Counterexample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.story)?;
        timeline::write(f, &self.timeline)
    }
}

/// A set of fingerprints: open addressing, 0 marks an empty slot.
struct Seen {
    slots: Vec<u64>,
    len: usize,
}

impl Seen {
    fn new() -> Seen {
        Seen { slots: vec![0; 1 << 16], len: 0 }
    }

    /// True if it is new.
    fn insert(&mut self, fingerprint: u64) -> bool {
        if self.len * 3 >= self.slots.len() * 2 {
            let bigger = vec![0; self.slots.len() * 2];
            let former = std::mem::replace(&mut self.slots, bigger);
            for fingerprint in former.into_iter().filter(|fingerprint| *fingerprint != 0) {
                let slot = self.slot(fingerprint);
                self.slots[slot] = fingerprint;
            }
        }
        let slot = self.slot(fingerprint);
        let new = self.slots[slot] == 0;
        self.slots[slot] = fingerprint;
        self.len += usize::from(new);
        new
    }

    fn slot(&self, fingerprint: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = fingerprint as usize & mask;
        while self.slots[slot] != 0 && self.slots[slot] != fingerprint {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// 64 well-mixed bits of an encoding; never 0.
fn fingerprint(words: &[u32]) -> u64 {
    let mut hash = words.len() as u64;
    for word in words {
        hash = (hash ^ u64::from(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^= hash >> 29;
    }
    hash.max(1)
}

/// The worlds of one depth, one after another.
#[derive(Default)]
struct Level {
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl Level {
    fn push(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
    }

    fn get(&self, n: usize) -> &[u32] {
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.words[start..self.ends[n]]
    }

    fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
    }
}

/// Visits every world of the scope.
///
/// # Errors
/// The shortest way to a forbidden world.
pub fn explore(scope: &Scope) -> Result<Report, Box<Counterexample>> {
    explore_and_tell(scope, |_, _| {})
}

/// As [`explore`]; reports now and then the number of worlds and the depth.
///
/// # Errors
/// The shortest way to a forbidden world.
pub fn explore_and_tell(
    scope: &Scope,
    mut progress: impl FnMut(u64, usize),
) -> Result<Report, Box<Counterexample>> {
    let begun = Instant::now();
    let mut tables = Tables::new(scope);
    let first = World::first(scope, &mut tables).map_err(|story| {
        let story = format!("{story} (on the way to the first world of the scope)");
        let timeline = Vec::new();
        Box::new(Counterexample { story, timeline, states: 0, took: begun.elapsed() })
    })?;
    let mut seen = Seen::new();
    let mut marks = Marks::default();
    let mut sights = [0; Sight::ALL.len()];
    let mut words = Vec::new();
    first.encode(&mut words);
    seen.insert(fingerprint(&words));
    let mut level = Level::default();
    level.push(&words);
    let mut next = Level::default();
    // By number of a world: its predecessor, and the choice that led from there.
    let mut ways: Vec<(u32, u32)> = vec![(0, 0)];
    let (mut depth, mut transitions, mut base) = (0, 0, 0);
    let mut choices = Vec::new();
    let (mut world, mut after) = (first.clone(), first.clone());
    while !level.ends.is_empty() && (scope.depth_max == 0 || depth < scope.depth_max) {
        for n in 0..level.ends.len() {
            world.decode(level.get(n));
            world.choices(scope, &tables, &mut choices);
            for choice in &choices {
                let number = (base + n) as u32;
                let broken = |story, tables: &mut Tables<'_>| {
                    let way = way(&ways, number, *choice);
                    let timeline = timeline::tell(&first, &way, scope, tables);
                    let (states, took) = (ways.len() as u64, begun.elapsed());
                    Err(Box::new(Counterexample { story, timeline, states, took }))
                };
                after.clone_from(&world);
                let step = match after.go(*choice, scope, &mut tables) {
                    Ok(step) => step,
                    Err(Ends::Outside) => continue,
                    Err(Ends::Broken(story)) => return broken(story, &mut tables),
                };
                transitions += 1;
                marks.note(*choice, step, &after, &tables);
                words.clear();
                after.encode(&mut words);
                if !seen.insert(fingerprint(&words)) {
                    continue;
                }
                if let Err(story) = after.judge(&tables) {
                    return broken(story, &mut tables);
                }
                after.sights(&tables).for_each(|sight| sights[sight as usize] += 1);
                next.push(&words);
                ways.push((number, choice.word()));
                if ways.len().is_multiple_of(1 << 16) {
                    progress(ways.len() as u64, depth + 1);
                }
            }
        }
        base += level.ends.len();
        depth += usize::from(!next.ends.is_empty());
        std::mem::swap(&mut level, &mut next);
        next.clear();
    }
    Ok(Report {
        states: ways.len() as u64,
        transitions,
        depth,
        members: tables.members.len(),
        messages: tables.messages.len(),
        core_runs: tables.core_runs(),
        seen: marks.list(),
        counts: marks.counts(),
        sights: Sight::ALL.into_iter().zip(sights).filter(|(_, worlds)| *worlds > 0).collect(),
        took: begun.elapsed(),
    })
}

/// The choices from the first world to this one, and the last one.
fn way(ways: &[(u32, u32)], mut number: u32, last: Choice) -> Vec<Choice> {
    let mut way = vec![last];
    while number != 0 {
        let (before, choice) = ways[number as usize];
        way.push(Choice::from_word(choice));
        number = before;
    }
    way.reverse();
    way
}

/// What happened in some world.
#[derive(Default)]
struct Marks([u64; Mark::ALL.len()]);

impl Marks {
    fn note(&mut self, choice: Choice, step: Option<u32>, after: &World, tables: &Tables<'_>) {
        let mut mark = |mark: Mark| self.0[mark as usize] += 1;
        if let Choice::At(_, What::Restart) = choice {
            mark(Mark::Restarted);
        }
        let Some(step) = step.map(|step| tables.step_at(step)) else { return };
        if let Some(term) = step.elected {
            mark(if term.0 < 2 { Mark::Elected } else { Mark::Reelected });
        }
        if step.commits.iter().any(|place| place.command != 0) {
            mark(Mark::CommandCommitted);
        }
        let configurations = || step.commits.iter().filter_map(|place| place.configuration);
        let ghost = tables.ghost_at(after.ghost);
        let happened = [
            (step.truncated, Mark::Truncated),
            (step.gap_closed, Mark::GapClosed),
            (!step.received.is_empty(), Mark::Received),
            (ghost.reports_beyond_gap(&step.received), Mark::ReceivedBeyondGap),
            (ghost.loses_received(&step.commits), Mark::ReceivedLost),
            (step.change_truncated, Mark::ChangeTruncated),
            (step.transferring, Mark::Transferring),
            (step.pruned, Mark::Pruned),
            (step.installed, Mark::Installed),
            (step.lease.read, Mark::ReadByLease),
            (step.lease.ended, Mark::LeaseEnded),
            (step.lease.given_up, Mark::LeaseGivenUp),
            (step.lease.slept, Mark::LeaseSlept),
            (configurations().any(|newest| newest.outgoing != 0), Mark::JointCommitted),
            (configurations().any(|newest| newest.outgoing == 0), Mark::ChangeCompleted),
        ];
        happened.into_iter().filter(|(so, _)| *so).for_each(|(_, what)| mark(what));
        for verdict in &step.verdicts {
            mark(if verdict.index.is_some() { Mark::ReadServed } else { Mark::ReadRefused });
        }
    }

    fn list(&self) -> Vec<Mark> {
        Mark::ALL.into_iter().filter(|mark| self.0[*mark as usize] > 0).collect()
    }

    fn counts(&self) -> Vec<(Mark, u64)> {
        let counted = self.list().into_iter().filter(|mark| mark.counted().is_some());
        counted.map(|mark| (mark, self.0[mark as usize])).collect()
    }
}
