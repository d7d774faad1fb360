//! Weak: sessions put weakly while leaders are killed, some together with their clients; what is lost is told, and no more than the
//! budget.
//!
//! Each session puts 1, 2, 3, … to a key of its own, as fast as puts are accepted. So the key's version is the number of the last
//! put that was executed, and its value must be that number.
//!
//! ```text
//!   living sessions   ├──────── kill ── kill ── … ──┤ flush: all that was given is executed, nothing is told to be lost
//!   mortal sessions      ├── kill, and their runtime ends ──┤ accepted beyond the version: lost. Each was told, and together
//!                                                             they are within the budget
//! ```
//! Rule: a lost put of a session that lives, one that nobody was told of, a hole among the survivors, or more losses than the
//!       budget is reported, and the members' directories are kept.
//! Knows nothing of: how a member counts a quorum.

use crate::once::until_it_has_sessions;
use kattu_rig::ledger::{Fate, Ledger, lost_by_term, over_budget};
use kattu_rig::programs::run as run_program;
use kattu_rig::weak::{Account, Habits, How, Keys, Load};
use kattu_rig::{Cluster, Member, Options, kattu, until};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The level from which on a cluster has windows and weak answers.
const WITH_WEAK: u64 = 6;
/// A put without an answer for so long has an unknown outcome for its caller: no service is away so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Puts of mortal sessions that are accepted before a kill: as many, times one to four.
const BEFORE_KILL: u64 = 300;
/// Of so many kills at least one hits a weak answer.
const HITS_EXPECTED_FROM: usize = 10;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Sessions that live through all kills.
    pub living: usize,
    /// Sessions that end with each kill, and begin anew.
    pub mortal: usize,
    /// Leaders to be killed.
    pub kills: usize,
    /// The budget of weak answers, in entries.
    pub budget: u32,
    /// Cheat: the judge is told that nothing was told to be lost, and one more put was accepted than was. It must be found.
    pub is_control: bool,
}

/// One kill.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kill {
    /// Puts of mortal sessions that were accepted.
    pub accepted: u64,
    /// Of these, received when the sessions ended, and not known to be done.
    pub told: u64,
    /// Of these, not executed.
    pub lost: u64,
    /// From the kill until a living session's put was accepted by the next leader.
    pub outage: Duration,
}

/// The results.
#[derive(Debug)]
pub struct Report {
    /// All kills.
    pub kills: Vec<Kill>,
    /// Puts of living sessions, all executed.
    pub living: u64,
    /// Of these, accepted before they were done.
    pub received: u64,
    /// Of these, sent again.
    pub repeated: u64,
    /// What is wrong.
    pub broken: Vec<String>,
    /// Directories and logs of the members, if something is wrong.
    pub kept: Option<PathBuf>,
}

/// Runs it; `each` gets every kill.
pub fn run(settings: Settings, mut each: impl FnMut(usize, Kill)) -> Report {
    // Over several links, so that some entries come before their predecessors; on slow disks, so that puts are received well
    // before they are done.
    let flags =
        ["--links-per-peer=4", "--dispatch=unordered", "--batch-entries-max=4", "--lab", "--sync-delay=10ms"];
    let options = Options { members: 3, flags: flags.map(str::to_string).into() };
    let mut cluster = Cluster::with("weak", options);
    until_it_has_sessions(&cluster);
    let mut broken = Vec::new();
    let mut kills: Vec<Kill> = Vec::new();
    turn_on(&cluster, settings.budget);
    let habits = Habits {
        addresses: cluster.addresses(),
        tls: None,
        keys: Keys::One,
        value_bytes: 0,
        patience: PATIENCE,
        pause_ms_max: 0,
        seed: 0,
        notes: None,
    };
    let start = |keys: Vec<String>| Load::start(&habits, keys);
    let living = start((0..settings.living).map(|it| format!("living/{it:04}")).collect());
    let mut dead_accounts = Vec::new();
    let mut dead: Option<usize> = None;
    for kill in 0..settings.kills {
        if let Some(dead) = dead.take() {
            cluster.members[dead].spawn().expect("the binary can be run");
            cluster.members[dead].wait_ready();
        }
        let keys = (0..settings.mortal).map(|it| format!("mortal/{kill:04}/{it:04}")).collect();
        let mortal = start(keys);
        let leader = cluster.leader();
        let before = BEFORE_KILL * (1 + kill as u64 % 4);
        until("mortal sessions put", || (before <= mortal.accepted()).then_some(()));
        // In the midst of it: what is received and not done now is what may be lost.
        until("weak answers are outstanding", || {
            let outstanding = cluster.members[leader].metric("kattu_weak_outstanding_requests");
            outstanding.filter(|outstanding| settings.living as u64 <= *outstanding)
        });
        let begun = Instant::now();
        cluster.members[leader].kill();
        dead_accounts.push(mortal.die());
        dead = Some(leader);
        let accepted = living.accepted();
        until("living sessions put again", || {
            (accepted + settings.living as u64 <= living.accepted()).then_some(())
        });
        kills.push(Kill { outage: begun.elapsed(), ..Kill::default() });
    }
    if let Some(dead) = dead.take() {
        cluster.members[dead].spawn().expect("the binary can be run");
        cluster.members[dead].wait_ready();
    }
    let mut living = living.flush();
    if settings.is_control
        && let Some(account) = living.first_mut()
    {
        let next = account.given + 1;
        account.accepted.insert(next, How::Done);
    }
    match cluster.agreed_state() {
        Ok(state) => {
            let ledger = Ledger::of(&state, Keys::One);
            broken.extend_from_slice(ledger.broken());
            for account in &living {
                broken.extend(ledger.judge(account, true).broken);
                broken.extend(unusual(account));
            }
            let mut fates: Vec<(&Account, Fate)> = Vec::new();
            for (kill, accounts) in kills.iter_mut().zip(&dead_accounts) {
                for account in accounts {
                    let fate = ledger.judge(account, false);
                    kill.accepted += account.accepted.len() as u64;
                    kill.told += account.told.len() as u64;
                    kill.lost += fate.lost.len() as u64;
                    broken.extend_from_slice(&fate.broken);
                    broken.extend(unusual(account));
                    fates.push((account, fate));
                }
            }
            let lost = lost_by_term(fates.iter().map(|(account, fate)| (*account, fate)));
            broken.extend(over_budget(&lost, settings.budget));
        }
        Err(why) => broken.push(why),
    }
    kills.iter().enumerate().for_each(|(place, kill)| each(place, *kill));
    let received = living.iter().map(Account::received).sum();
    // Without these the run has shown nothing. Of a few kills none may hit a weak answer in the moment before its end.
    let has_hit = settings.kills < HITS_EXPECTED_FROM || kills.iter().any(|kill| 0 < kill.told);
    if broken.is_empty() && 0 < settings.kills && (received == 0 || !has_hit) {
        broken.push("no kill hit a weak answer".into());
    }
    let kept = (!broken.is_empty()).then(|| cluster.keep_folder());
    Report {
        kills,
        living: living.iter().map(|account| account.accepted.len() as u64).sum(),
        received,
        repeated: living.iter().map(|account| account.repeated).sum(),
        broken,
        kept,
    }
}

/// What no session meets while leaders are killed and nothing else: the end of the session, a put that was not accepted.
fn unusual(account: &Account) -> Option<String> {
    let Account { key, ended, refused, unknown, .. } = account;
    let is_usual = ended.is_none() && refused.is_empty() && unknown.is_empty();
    (!is_usual).then(|| {
        format!("{key}: ended: {ended:?}, puts refused: {refused:?}, of unknown outcome: {unknown:?}")
    })
}

/// The cluster gives weak answers, as soon as a quorum has received a put.
fn turn_on(cluster: &Cluster, entries: u32) {
    until("the level that brings weak answers", || {
        let has = |member: &Member| Some(WITH_WEAK) <= member.metric("kattu_feature_level");
        cluster.members.iter().all(has).then_some(())
    });
    let budget = entries.to_string();
    let words = ["protocol", "nb-raft", "--weak", "receipt", "--budget-entries", &budget, "--endpoints"];
    run_program(Command::new(kattu()).args(words).arg(cluster.endpoints())).expect_ok();
}
