//! Weak clients in a trial: `cargo xtask chaos --weak`.
//!
//! ```text
//!   the cluster        nb-raft --weak ── raft ── nb-raft --weak ── … ──┤ nb-raft --weak
//!   living clients     ├──────────────── storm ────────────────────────┼── calm ──┤ flush
//!   mortal clients       ├─── fault ┤ ├──── fault ┤ ├─ … ──────────────┤
//! ```
//! With a fault of the storm, mostly of one that strikes the leader, the mortal clients are gone at once, and others come. A
//! loss needs both, so the two fall together.
//! Rule: the seed draws how weak answers are given, their budget, the links between members, and where logs are written. It draws
//!       them apart from everything else: a plan without weak clients is what it was.
//! Knows nothing of: how a put is judged (`kattu_rig::ledger`).

use crate::faults::Fault;
use kattu_random::Random;
use kattu_rig::Cluster;
use kattu_rig::clients::trust;
use kattu_rig::clocks::Lie;
use kattu_rig::cluster::BACK_LIMIT;
use kattu_rig::flags::Flags;
use kattu_rig::ledger::{Fate, Ledger, lost_by_term, over_budget};
use kattu_rig::programs::{kattu, run};
use kattu_rig::record::Recorder;
use kattu_rig::weak::{Account, Habits, Keys, Load, Notes};
use kattu_verify::judges::FinalState;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Of so many trials some have weak answers that hang on a client's life.
const EVIDENCE_FROM: u64 = 10;

/// What a seed draws for its weak clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// `--weak`
    kind: &'static str,
    /// `--budget-entries`
    budget: u32,
    living: u64,
    mortal: u64,
    patience: Duration,
    pause_ms_max: u64,
    /// `--links-per-peer`, and whether messages take them in any order.
    links: u64,
    is_unordered: bool,
    /// `--log-io=thread`
    log_thread: bool,
    /// `--sync-delay`, in milliseconds.
    sync_delay_ms: u64,
}

impl Draw {
    /// That of a seed. `lie` are the clocks that lie in this trial, if any do.
    pub fn of(seed: u64, lie: Option<Lie>) -> Draw {
        let mut random = Random::of_part(seed, "weak clients");
        // Mostly on receipt: there an answer is the furthest ahead of its disks.
        let kind = *random.pick(&["gap", "receipt", "receipt"]);
        let budget = *random.pick(&[1, 8, 64, 64, 1_000]);
        let (living, mortal) = (random.within(1..4), random.within(4..13));
        let patience = Duration::from_secs(*random.pick(&[3, 60]));
        let pause_ms_max = *random.pick(&[1, 4, 8]);
        let links = *random.pick(&[1, 2, 4]);
        // One connection keeps the order.
        let (is_unordered, log_thread) = (random.per_mille(500) && 1 < links, random.per_mille(900));
        // Slow disks, so that a put is received well before it is done.
        let sync_delay_ms = *random.pick(&[0, 10, 30, 45]);
        // A thread that sleeps by such clocks never wakes.
        let sync_delay_ms = if lie == Some(Lie::All) { 0 } else { sync_delay_ms };
        Draw {
            kind,
            budget,
            living,
            mortal,
            patience,
            pause_ms_max,
            links,
            is_unordered,
            log_thread,
            sync_delay_ms,
        }
    }

    /// Adds the flags of members to those that the seed draws for every trial.
    pub fn add_to(&self, flags: &mut Flags) {
        flags.log_thread = self.log_thread;
        flags.more.extend(self.words_of_links());
        if 0 < self.sync_delay_ms {
            flags.more.extend(["--lab".into(), format!("--sync-delay={}ms", self.sync_delay_ms)]);
        }
    }

    fn words_of_links(&self) -> Vec<String> {
        let order = self.is_unordered.then(|| "--dispatch=unordered".to_string());
        [format!("--links-per-peer={}", self.links)].into_iter().chain(order).collect()
    }

    /// The words that turn weak answers on.
    fn words(&self) -> Vec<String> {
        let budget = self.budget.to_string();
        ["nb-raft", "--weak", self.kind, "--budget-entries", &budget].map(str::to_string).into()
    }
}

/// What weak clients did, of one trial or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Trials.
    pub trials: u64,
    /// Puts of clients that live to the end, accepted.
    pub living: u64,
    /// Puts of all, accepted.
    pub accepted: u64,
    /// Of these, before they were done.
    pub received: u64,
    /// Sent again.
    pub repeated: u64,
    /// Times that mortal clients were gone at once.
    pub deaths: u64,
    /// Puts of mortal clients that were told to be lost or of unknown end.
    pub told: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Most that one leader lost.
    pub most: u64,
    /// Lost, and not told.
    pub untold: u64,
    /// Of clients that live: told to be lost or of unknown end.
    pub living_told: u64,
    /// Of clients that live, after they had put again what was told: lost.
    pub living_lost: u64,
    /// Changes of the protocol in the storm.
    pub changes: u64,
}

impl Done {
    /// Adds another trial, or sum.
    pub fn add(&mut self, other: Done) {
        self.trials += other.trials;
        self.living += other.living;
        self.accepted += other.accepted;
        self.received += other.received;
        self.repeated += other.repeated;
        self.deaths += other.deaths;
        self.told += other.told;
        self.lost += other.lost;
        self.most = self.most.max(other.most);
        self.untold += other.untold;
        self.living_told += other.living_told;
        self.living_lost += other.living_lost;
        self.changes += other.changes;
    }

    /// What a campaign must have seen to have shown anything; few trials may miss it.
    pub(crate) fn lacks_evidence(&self) -> Option<String> {
        let has_seen = 0 < self.received && 0 < self.told;
        (EVIDENCE_FROM <= self.trials && !has_seen)
            .then(|| "no weak answer was given, or no death of clients hit one: nothing is shown".to_string())
    }

    /// A line for the end of a campaign.
    pub fn line(&self) -> String {
        let Done { trials, living, accepted, received, repeated, deaths, told, lost, most, untold, .. } =
            self;
        let Done { living_told, living_lost, changes, .. } = self;
        format!(
            "{trials} trials with weak clients: {accepted} puts accepted, {received} of them before they were done, {repeated} sent \
             again, {changes} changes of the protocol\n\
             weak clients that lived: {living} puts accepted, {living_told} told to be lost or unknown, {living_lost} lost after they \
             were put again\n\
             weak clients that died, {deaths} times: {told} puts told to be lost or unknown, {lost} lost, at most {most} with one \
             leader; {untold} lost untold"
        )
    }
}

/// The weak clients of a trial.
pub struct Weak {
    draw: Draw,
    habits: Habits,
    notes: Arc<Notes>,
    living: Option<Load>,
    mortal: Option<Load>,
    /// Of clients that lived to the end.
    lived: Vec<Account>,
    /// Of clients that are gone.
    dead: Vec<Account>,
    deaths: u64,
    changes: u64,
}

impl Weak {
    /// Turns weak answers on and starts the clients.
    ///
    /// # Errors
    /// The cluster does not take the protocol; the authority's file cannot be used.
    pub fn start(
        draw: Draw,
        seed: u64,
        cluster: &mut Cluster,
        hosts: &[String],
        recorder: &Arc<Recorder>,
    ) -> Result<Weak, String> {
        let notes = Notes::new(recorder);
        let habits = Habits {
            addresses: hosts.iter().map(|host| format!("{host}:2379")).collect(),
            tls: trust(cluster.ca.as_deref())?,
            keys: Keys::Each,
            value_bytes: 0,
            patience: draw.patience,
            pause_ms_max: draw.pause_ms_max,
            seed,
            notes: Some(notes.clone()),
        };
        let mut weak = Weak {
            draw,
            habits,
            notes,
            living: None,
            mortal: None,
            lived: Vec::new(),
            dead: Vec::new(),
            deaths: 0,
            changes: 0,
        };
        weak.turn_on(cluster)?;
        let keys = (0..weak.draw.living).map(|it| format!("weak/living/{it}")).collect();
        weak.living = Some(Load::start(&weak.habits, keys));
        weak.bear();
        Ok(weak)
    }

    fn bear(&mut self) {
        let life = self.deaths;
        let keys = (0..self.draw.mortal).map(|it| format!("weak/mortal/{life}/{it}")).collect();
        self.mortal = Some(Load::start(&self.habits, keys));
    }

    /// Turns weak answers on, also if a change of the storm has turned them off.
    ///
    /// # Errors
    /// The cluster does not take it.
    pub fn turn_on(&self, cluster: &mut Cluster) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let Err(why) = set(cluster, &self.draw.words()) else { return Ok(()) };
            cluster.check_ended()?;
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("the protocol is not set {BACK_LIMIT:?} after the faults: {why}"));
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    /// A change in the storm: to raft, which gives no weak answers, or back. `None` if the cluster does not take it now.
    pub(crate) fn change(&mut self, cluster: &Cluster, random: &mut Random) -> Option<String> {
        let words = if random.per_mille(400) { vec!["raft".into()] } else { self.draw.words() };
        set(cluster, &words).ok()?;
        self.changes += 1;
        Some(words.join(" "))
    }

    /// A fault has begun: the mortal clients may be gone with it. Returns whether they are.
    pub(crate) fn fault_has_begun(&mut self, fault: Fault, random: &mut Random) -> bool {
        let chance = if fault.strikes_the_leader() { 800 } else { 100 };
        let dies = random.per_mille(chance);
        if dies {
            self.end_mortal();
            self.bear();
        }
        dies
    }

    /// The mortal clients are gone.
    pub(crate) fn end_mortal(&mut self) {
        if let Some(mortal) = self.mortal.take() {
            self.dead.extend(mortal.die());
            self.deaths += 1;
        }
    }

    /// Accepted puts of each living session.
    pub(crate) fn accepted(&self) -> BTreeMap<String, u64> {
        self.living.as_ref().map(Load::accepted_by_key).unwrap_or_default()
    }

    /// A living client of which no put was accepted since.
    pub(crate) fn unanswered(&self, before: &BTreeMap<String, u64>) -> Option<String> {
        let of = |accepted: &BTreeMap<String, u64>, client: &str| {
            // A client may have had several sessions.
            let own = accepted.iter().filter(|(key, _)| key.split('.').next() == Some(client));
            own.map(|(_, count)| *count).sum::<u64>()
        };
        let now = self.accepted();
        let mut clients = (0..self.draw.living).map(|it| format!("weak/living/{it}"));
        clients.find(|client| of(&now, client) <= of(before, client))
    }

    /// The living clients give no more puts, and wait until all are done.
    pub(crate) fn flush(&mut self) {
        self.end_mortal();
        if let Some(living) = self.living.take() {
            self.lived.extend(living.flush());
        }
    }

    /// Judges what became of each put, and writes that into the history.
    pub(crate) fn judge(&self, last: &FinalState) -> (Done, Vec<String>) {
        let ledger = Ledger::of(last, Keys::Each);
        ledger.settle(self.lived.iter().chain(&self.dead), &self.notes);
        let judged = |accounts: &'_ [Account], lives: bool| -> Vec<Fate> {
            accounts.iter().map(|account| ledger.judge(account, lives)).collect()
        };
        let (lived, died) = (judged(&self.lived, true), judged(&self.dead, false));
        let lost = lost_by_term(self.dead.iter().zip(&died));
        let mut broken: Vec<String> =
            lived.iter().chain(&died).flat_map(|fate| fate.broken.clone()).collect();
        broken.extend(over_budget(&lost, self.draw.budget));
        let sum = |accounts: &[Account], of: fn(&Account) -> u64| accounts.iter().map(of).sum::<u64>();
        let accepted = |account: &Account| account.accepted.len() as u64;
        let told = |account: &Account| account.told.len() as u64;
        let lost_of = |fates: &[Fate]| fates.iter().map(|fate| fate.lost.len() as u64).sum::<u64>();
        let living = sum(&self.lived, accepted);
        let done = Done {
            trials: 1,
            living,
            accepted: living + sum(&self.dead, accepted),
            received: sum(&self.lived, Account::received) + sum(&self.dead, Account::received),
            repeated: sum(&self.lived, |account| account.repeated),
            deaths: self.deaths,
            told: sum(&self.dead, told),
            lost: lost_of(&died),
            most: lost.values().copied().max().unwrap_or(0),
            untold: lived.iter().chain(&died).map(|fate| fate.untold).sum(),
            living_told: sum(&self.lived, told),
            living_lost: lost_of(&lived),
            changes: self.changes,
        };
        (done, broken)
    }
}

/// Sets the protocol by the command of an operator.
fn set(cluster: &Cluster, words: &[String]) -> Result<(), String> {
    let addresses: Vec<String> =
        cluster.belonging().into_iter().map(|i| cluster.members[i].address()).collect();
    let mut command = Command::new(kattu());
    command.arg("protocol").args(words).args(["--timeout", "1s", "--endpoints", &addresses.join(",")]);
    let ended = run(&mut command);
    if ended.code == Some(0) { Ok(()) } else { Err(ended.all()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_draws_its_weak_clients_and_campaigns_see_each_kind() {
        let draws = |lie| (0..200).map(move |seed| Draw::of(seed, lie)).collect::<Vec<_>>();
        assert_eq!(draws(None), draws(None));
        let all = draws(None);
        let kinds: BTreeSet<_> =
            all.iter().map(|draw| (draw.kind, draw.log_thread, draw.is_unordered)).collect();
        assert_eq!(kinds.len(), 8, "{kinds:?}");
        let budgets: BTreeSet<_> = all.iter().map(|draw| draw.budget).collect();
        assert_eq!(budgets, [1, 8, 64, 1_000].into());
        assert!(draws(Some(Lie::All)).iter().all(|draw| draw.sync_delay_ms == 0));
    }

    #[test]
    fn what_is_drawn_is_on_the_command_lines() {
        let draw =
            Draw { links: 4, is_unordered: true, log_thread: true, sync_delay_ms: 5, ..Draw::of(1, None) };
        let mut flags = Flags::default();
        draw.add_to(&mut flags);
        let words = flags.words(0).join(" ");
        assert_eq!(words, "--log-io=thread --links-per-peer=4 --dispatch=unordered --lab --sync-delay=5ms");
        let words = Draw { kind: "gap", budget: 8, ..draw }.words().join(" ");
        assert_eq!(words, "nb-raft --weak gap --budget-entries 8");
    }
}
