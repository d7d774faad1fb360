//! Elections: how long a cluster is without a leader when its leader has died, over many trials.
//!
//! One cluster of production's code goes through all trials: it runs undisturbed for a random time, its leader dies,
//! and the trial measures when the next one leads and when that one has committed an entry of its own. Then the dead
//! member comes back. Times are those of the world, so the load of this machine does not matter.
//!
//! A process that dies is missed at once, because its kernel closes its connections; a machine that vanishes is missed
//! after an election timeout of silence.
//! Knows nothing of: how results are shown.

use crate::clock::{MS, SEC, US};
use crate::plan::Plan;
use crate::report::Violation;
use crate::trace::Told;
use crate::world::World;
use kattu_raft::{Duration, LogIndex, Term};
use std::sync::{Arc, Mutex};

/// How a leader dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its process is killed.
    Process,
    /// Its machine is gone, and its connections stay open.
    Machine,
}

/// What elections are measured under.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// How many members.
    pub members: u64,
    /// The minimum election timeout.
    pub election_timeout: Duration,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// How leaders die.
    pub death: Death,
}

/// One election, in nanoseconds since the death of the leader before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Election {
    /// A member leads.
    pub led: u64,
    /// An entry of a later term is committed: writes are taken again.
    pub served: u64,
}

/// A frame takes this, and up to `JITTER` more: less than 4 ms from member to member.
const FRAME: u64 = 500 * US;
const JITTER: u64 = 3400 * US;
/// A dead member comes back after this.
const DOWN: u64 = SEC;
/// Nothing takes longer than this.
const PATIENCE: u64 = 60 * SEC;

/// So many elections, one after the other.
///
/// # Errors
/// A violation meanwhile, or a cluster that never comes to rest.
pub fn elections(seed: u64, count: usize, conditions: &Conditions) -> Result<Vec<Election>, Violation> {
    let mut plan = Plan::steady(seed, conditions.members, 0);
    plan.settings.election_timeout = conditions.election_timeout;
    plan.settings.heartbeat_interval = conditions.heartbeat_interval;
    (plan.pace.frame, plan.pace.frame_jitter) = (FRAME, JITTER);
    let mut world = World::new(plan, Arc::new(Mutex::new(Told::default())));
    let mut elections = Vec::with_capacity(count);
    while elections.len() < count {
        elections.push(one(&mut world, conditions.death)?);
    }
    Ok(elections)
}

fn one(world: &mut World, death: Death) -> Result<Election, Violation> {
    let end = world.sh.now + PATIENCE;
    if !world.run_while(end, |world| !is_at_rest(world))? {
        return Err(Violation::new("a_cluster_comes_to_rest", "it has not within a minute"));
    }
    let peace = world.sh.now + 200 * MS + world.dice.below(SEC);
    world.run_until(peace)?;
    let Some(leader) = world.leader() else {
        return Err(Violation::new("peace_keeps_its_leader", "there is no leader although nothing happened"));
    };
    let before = raft(world, leader).map_or(Term(0), kattu_raft::Raft::term);
    let began = world.sh.now;
    world.members[leader].down = DOWN;
    world.kill_as(leader, "dies", death == Death::Machine, |_| death == Death::Machine)?;
    let goes_on = |world: &mut World, serves: bool| {
        !world.leader().and_then(|leader| raft(world, leader)).is_some_and(|raft| {
            let own = raft.term_at(raft.committed());
            before < raft.term() && (!serves || own == Some(raft.term()))
        })
    };
    let is_over = world.run_while(began + PATIENCE, |world| goes_on(world, false))?;
    let led = world.sh.now - began;
    if !is_over || !world.run_while(began + PATIENCE, |world| goes_on(world, true))? {
        return Err(Violation::new("a_dead_leader_is_replaced", "not within a minute"));
    }
    Ok(Election { led, served: world.sh.now - began })
}

fn raft(world: &World, member: usize) -> Option<&kattu_raft::Raft> {
    Some(world.members[member].process.as_ref()?.node().raft())
}

/// All members follow one leader, and hold what it has committed.
fn is_at_rest(world: &World) -> bool {
    let Some(leader) = world.leader().and_then(|leader| raft(world, leader)) else { return false };
    let committed = leader.committed();
    committed > LogIndex(0)
        && (0..world.members.len()).all(|member| {
            raft(world, member)
                .is_some_and(|raft| raft.leader() == Some(leader.id()) && committed <= raft.persisted_index())
        })
}

/// The one of sorted times that `per_mille` of them do not exceed.
#[must_use]
pub fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let place = (sorted.len() * per_mille).div_ceil(1000).max(1) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

/// How many per cent of these times are below `limit`.
#[must_use]
pub fn share_below(times: &[u64], limit: u64) -> f64 {
    let below = times.iter().filter(|&&time| time < limit).count();
    100.0 * below as f64 / times.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(timeout: u64, death: Death) -> Conditions {
        Conditions {
            members: 5,
            election_timeout: Duration::from_millis(timeout),
            heartbeat_interval: Duration::from_millis(timeout / 10),
            death,
        }
    }

    #[test]
    fn a_process_that_dies_is_missed_at_once_and_a_machine_after_an_election_timeout() {
        let of = |death| elections(7, 20, &conditions(1000, death)).expect("nothing breaks");
        let (process, machine) = (of(Death::Process), of(Death::Machine));
        assert!(process.iter().all(|election| election.led < 300 * MS), "{process:?}");
        // The last heartbeat of a leader at rest may be three intervals old when its machine dies (E9).
        assert!(machine.iter().all(|election| 700 * MS < election.led), "{machine:?}");
        assert!(process.iter().chain(&machine).all(|election| election.led <= election.served));
        assert_eq!(process, of(Death::Process), "the same course every time");
    }

    #[test]
    fn percentiles_are_of_those_that_are_there() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!([500, 990, 1000].map(|per_mille| percentile(&times, per_mille)), [100, 198, 200]);
        assert_eq!(percentile(&times, 0), 1);
        assert_eq!(percentile(&[], 500), 0);
        assert!((share_below(&times, 101) - 50.0).abs() < 1e-9);
    }
}
