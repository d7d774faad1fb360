//! Losses: leaders killed under weak puts, together with their clients or without; puts that were accepted and are not there.
//!
//! ```text
//!   sessions put ─ first accepted ─ run_for ─▶ SIGKILL of the leader, end of the clients ─▶ started again ─▶ next
//!   at the end: all members agree ─▶ the ledger: accepted, lost, told
//! ```
//! Rule: a put that is lost untold, a hole, or a loss of a client that lives is no measurement, but an error.
//! Knows nothing of: how a member counts a quorum.

use super::{BenchCluster, Measurement};
use crate::experiment::{Losses, Point};
use crate::machine::Busy;
use crate::measured::LOST;
use kattu_rig::ledger::{Fate, Ledger};
use kattu_rig::processor_time::processor_time;
use kattu_rig::weak::{Account, Habits, Keys, Load};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A put without an answer for so long has an unknown end for its client: no service is away so long.
const PATIENCE: Duration = Duration::from_secs(60);

impl BenchCluster {
    /// Kills so many leaders. `busy` and `all_before` are of before the point was prepared.
    ///
    /// # Errors
    /// What does not work, and a broken contract: the run is no measurement.
    pub(super) fn losses(
        &mut self,
        point: &Point,
        plan: &Losses,
        first: usize,
        busy: &Busy,
        all_before: Duration,
    ) -> Result<Measurement, String> {
        let habits = Habits {
            addresses: self.cluster.addresses(),
            tls: None,
            keys: Keys::One,
            value_bytes: plan.value_bytes,
            patience: PATIENCE,
            pause_ms_max: 0,
            seed: 0,
            notes: None,
        };
        // Keys of this task alone: a cluster has several.
        let name = format!("losses/{}", self.highest_term());
        let (mut accounts, mut seconds) = (Vec::new(), 0.0);
        for kill in 0..plan.kills {
            let leader = if kill == 0 { first } else { self.leader()? };
            let keys = (0..plan.sessions).map(|session| format!("{name}/{kill}/{session:04}")).collect();
            let load = Load::start(&habits, keys);
            self.until("weak puts are accepted", |_| Ok(0 < load.accepted()))?;
            let begun = Instant::now();
            std::thread::sleep(plan.run_for);
            self.cluster.members[leader].strike();
            if let Some(proxy) = self.proxy.as_ref().filter(|_| plan.loses_links) {
                let others = (0..self.cluster.members.len()).filter(|&to| to != leader);
                others.for_each(|to| proxy.links.reset(leader, to));
            }
            let mut living = None;
            match plan.lives {
                true => living = Some(load),
                false => accounts.extend(load.die()),
            }
            seconds += begun.elapsed().as_secs_f64();
            self.cluster.members[leader].kill();
            self.cluster.spawn_all()?;
            // Under load a follower behind a lossy link may lag for as long as the load goes on.
            accounts.extend(living.map(Load::flush).into_iter().flatten());
            self.cluster.until_served()?;
            self.now = self.settings()?; // a restart forgets them
            self.tune(point, leader)?;
        }
        let mut state = self.cluster.agreed_state()?;
        state.kvs.retain(|pair| pair.key.starts_with(&name));
        let ledger = Ledger::of(&state, Keys::One);
        let fates: Vec<(&Account, Fate)> =
            accounts.iter().map(|account| (account, ledger.judge(account, plan.lives))).collect();
        let broken = ledger.broken().iter().chain(fates.iter().flat_map(|(_, fate)| &fate.broken)).next();
        if let Some(broken) = broken {
            return Err(format!("the contract of weak answers is broken: {broken}"));
        }
        let accepted: usize = accounts.iter().map(|account| account.accepted.len()).sum();
        let lost: usize = fates.iter().map(|(_, fate)| fate.lost.len()).sum();
        let ours = processor_time(&self.processes()).saturating_sub(all_before);
        let answer = json!({ "ops": accepted, "seconds": seconds, "errors": 0, "latencies_us": [] });
        let counters = BTreeMap::from([(LOST.into(), lost as f64)]);
        Ok(self.of_no_load(answer, first, busy.share_of_others(ours), counters))
    }
}
