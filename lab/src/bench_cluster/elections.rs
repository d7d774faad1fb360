//! Elections: leaders are killed one after the other, and the time is taken until the service is back; or the cluster stands
//! unharmed, and changes of leader are counted.
//!
//! ```text
//!   leader ─ SIGKILL ─▶ survivors name another leader ─▶ first put acknowledged ─▶ started again ─▶ all serve ─▶ next
//!               └────────────── leader known ───────┘                          │
//!               └──────────────────────────── latency of this election ────────┘
//! ```
//! Knows nothing of: why an election takes as long as it does.

use super::{BenchCluster, Measurement};
use crate::machine::Busy;
use crate::measured::{LEADER_KNOWN_US, TERMS};
use kattu_rig::outage::Survivors;
use kattu_rig::processor_time::processor_time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two tries of a put at each survivor: times are exact to this.
const TRY_EVERY: Duration = Duration::from_millis(5);
/// A service that is not back by then is lost.
const BACK_LIMIT: Duration = Duration::from_secs(15);
/// Between two elections all members have served for at least so long.
const CALM: Duration = Duration::from_millis(100);

impl BenchCluster {
    /// Kills so many leaders. `busy` and `all_before` are of before the point was prepared.
    pub(super) fn elections(
        &mut self,
        count: u32,
        first: usize,
        busy: &Busy,
        all_before: Duration,
    ) -> Result<Measurement, String> {
        let term = self.highest_term();
        // A proxy takes connections for a member that is down, so its peers dial it again only after a pause, which is shorter
        // than the election timeout. Until then a survivor may be without some of its peers.
        let calm = match self.proxy {
            Some(_) => CALM + Duration::from_millis(self.timing_now.0),
            None => CALM,
        };
        let (mut services, mut known, mut seconds) = (BTreeMap::<u64, u64>::new(), 0.0, 0.0);
        for election in 0..count {
            let leader = if election == 0 { first } else { self.leader()? };
            let places = 0..self.cluster.members.len();
            let others = places.filter(|&it| it != leader);
            let others: Vec<String> = others.map(|it| self.cluster.members[it].address()).collect();
            let survivors = Survivors::of(&others);
            let dead = survivors.leader().ok_or("no survivor names a leader")?;
            let struck = Instant::now();
            self.cluster.members[leader].strike();
            let outage = survivors.outage(struck, dead, TRY_EVERY, BACK_LIMIT)?;
            drop(survivors);
            *services.entry(outage.service.as_micros() as u64).or_insert(0) += 1;
            known += outage.leader.as_secs_f64() * 1e6;
            seconds += outage.service.as_secs_f64();
            self.cluster.members[leader].kill();
            self.cluster.spawn_all()?;
            self.cluster.until_served()?;
            std::thread::sleep(calm);
        }
        self.now = self.settings()?; // a restart forgets them
        let terms = self.highest_term().saturating_sub(term) as f64;
        // Members that were killed are children that have been waited for: `busy` counts them.
        let ours = processor_time(&self.processes()).saturating_sub(all_before);
        let pairs: Vec<Value> = services.iter().map(|(micros, count)| json!([micros, count])).collect();
        let answer = json!({ "ops": count, "seconds": seconds, "errors": 0, "latencies_us": pairs });
        let counters = BTreeMap::from([(TERMS.into(), terms), (LEADER_KNOWN_US.into(), known)]);
        Ok(self.of_no_load(answer, first, busy.share_of_others(ours), counters))
    }

    /// Counts new terms while nothing is done. Each second is an operation.
    pub(super) fn watch(
        &mut self,
        time: Duration,
        leader: usize,
        busy: &Busy,
        all_before: Duration,
    ) -> Result<Measurement, String> {
        let term = self.highest_term();
        std::thread::sleep(time);
        let terms = self.highest_term().saturating_sub(term) as f64;
        let ours = processor_time(&self.processes()).saturating_sub(all_before);
        let seconds = time.as_secs_f64();
        let answer = json!({ "ops": time.as_secs(), "seconds": seconds, "errors": 0, "latencies_us": [] });
        let counters = BTreeMap::from([(TERMS.into(), terms)]);
        Ok(self.of_no_load(answer, leader, busy.share_of_others(ours), counters))
    }

    /// What has neither a client nor members that all live from the beginning to the end.
    pub(super) fn of_no_load(
        &self,
        answer: Value,
        leader: usize,
        others: Option<f64>,
        counters: BTreeMap<String, f64>,
    ) -> Measurement {
        Measurement {
            answer,
            told: String::new(),
            members_cpu_us: Vec::new(),
            client_cpu_us: 0.0,
            leader,
            is_steady: true,
            others,
            counters,
        }
    }

    pub(super) fn highest_term(&self) -> u64 {
        (0..self.cluster.members.len()).filter_map(|it| self.term(it)).max().unwrap_or(0)
    }
}
