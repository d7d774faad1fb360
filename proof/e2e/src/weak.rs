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
use kattu_client::{Accepted, NativeClient, Options as ClientOptions, SessionOptions};
use kattu_rig::programs::run as run_program;
use kattu_rig::{Cluster, Member, Options, kattu, until};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

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

/// What one session knows.
#[derive(Debug, Default)]
struct Account {
    key: String,
    /// Puts given.
    given: u64,
    /// Numbers of puts that were accepted.
    accepted: BTreeSet<u64>,
    /// Of these, only received.
    received: u64,
    /// Numbers of puts that were told to be lost, or of unknown end.
    told: BTreeSet<u64>,
    repeated: u64,
    /// What went wrong with the session.
    broken: Option<String>,
}

type Accounts = Arc<Mutex<Vec<Account>>>;

/// Some sessions, on a thread and a runtime of their own.
struct Load {
    accounts: Accounts,
    accepted: Arc<AtomicU64>,
    /// No more puts are given.
    ends: Arc<AtomicBool>,
    dies: Option<oneshot::Sender<()>>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(cluster: &Cluster, keys: Vec<String>) -> Load {
        let addresses = cluster.addresses();
        let account = |key| Account { key, ..Account::default() };
        let accounts: Accounts = Arc::new(Mutex::new(keys.into_iter().map(account).collect()));
        let (accepted, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (dies, dead) = oneshot::channel();
        let own = (accounts.clone(), accepted.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = all(addresses, own) => {}
                    _ = dead => {}
                }
            });
        });
        Load { accounts, accepted, ends, dies: Some(dies), thread }
    }

    fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The clients are gone at once, with all that they had under way.
    fn die(mut self) -> Vec<Account> {
        drop(self.dies.take());
        self.thread.join().expect("no session panics");
        std::mem::take(&mut self.accounts.lock().expect("no session panics"))
    }

    /// Gives no more puts, and waits until all are done.
    fn flush(self) -> Vec<Account> {
        self.ends.store(true, Ordering::Relaxed);
        let Load { accounts, dies, thread, .. } = self;
        thread.join().expect("no session panics");
        drop(dies);
        std::mem::take(&mut accounts.lock().expect("no session panics"))
    }
}

async fn all(
    addresses: Vec<String>,
    (accounts, accepted, ends): (Accounts, Arc<AtomicU64>, Arc<AtomicBool>),
) {
    let client = NativeClient::connect(&addresses, ClientOptions { timeout: PATIENCE }, None);
    let client = client.expect("the members have addresses");
    let count = accounts.lock().expect("no session panics").len();
    let run = |place| put_all(client.clone(), accounts.clone(), place, accepted.clone(), ends.clone());
    let running: Vec<_> = (0..count).map(|place| tokio::spawn(run(place))).collect();
    for session in running {
        session.await.expect("no session panics");
    }
}

async fn put_all(
    client: NativeClient,
    accounts: Accounts,
    place: usize,
    accepted: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
) {
    let with = |change: &mut dyn FnMut(&mut Account)| {
        change(&mut accounts.lock().expect("no session panics")[place]);
    };
    let fails = |why: String| with(&mut |account| account.broken = Some(format!("{}: {why}", account.key)));
    let session = match client.open_session(SessionOptions::default()).await {
        Ok(session) => session,
        Err(why) => return fails(format!("not opened: {why}")),
    };
    let of_lost = accounts.clone();
    session.on_lost(move |lost| {
        of_lost.lock().expect("no session panics")[place].told.insert(lost.number);
    });
    let key = accounts.lock().expect("no session panics")[place].key.clone();
    for number in 1.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        with(&mut |account| account.given = number);
        let put = match session.put_weak(key.clone(), number.to_string()).await {
            Ok(pending) => pending.await,
            Err(why) => Err(why),
        };
        match put {
            Ok(how) => with(&mut |account| {
                account.received += u64::from(matches!(how, Accepted::Received(_)));
                account.accepted.insert(number);
            }),
            Err(why) => return fails(format!("put {number}: {why}")),
        }
        accepted.fetch_add(1, Ordering::Relaxed);
    }
    if let Err(why) = session.flush().await {
        fails(format!("flush: {why}"));
    }
    with(&mut |account| account.repeated = session.repeated());
    if let Err(why) = session.close().await {
        fails(format!("close: {why}"));
    }
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
    let living = Load::start(&cluster, (0..settings.living).map(|it| format!("living/{it:04}")).collect());
    let mut dead_accounts = Vec::new();
    let mut dead: Option<usize> = None;
    for kill in 0..settings.kills {
        if let Some(dead) = dead.take() {
            cluster.members[dead].spawn().expect("the binary can be run");
            cluster.members[dead].wait_ready();
        }
        let keys = (0..settings.mortal).map(|it| format!("mortal/{kill:04}/{it:04}")).collect();
        let mortal = Load::start(&cluster, keys);
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
        account.accepted.insert(next);
    }
    let versions: BTreeMap<String, u64> = match cluster.agreed_state() {
        Ok(state) => {
            let wrong = state.kvs.iter().find(|pair| pair.value != pair.version.to_string());
            broken.extend(wrong.map(|pair| format!("a hole, or a put that was executed twice: {pair:?}")));
            state.kvs.iter().map(|pair| (pair.key.clone(), pair.version as u64)).collect()
        }
        Err(why) => {
            broken.push(why);
            BTreeMap::new()
        }
    };
    let version = |key: &str| versions.get(key).copied().unwrap_or(0);
    for account in &living {
        broken.extend(account.broken.clone());
        let (key, last) = (&account.key, account.accepted.last().copied().unwrap_or(0));
        if version(key) != last || !account.told.is_empty() {
            let told = account.told.len();
            let version = version(key);
            broken.push(format!("{key}: {last} puts accepted, version {version}, {told} told to be lost"));
        }
    }
    for (place, accounts) in dead_accounts.iter().enumerate() {
        let kill = &mut kills[place];
        for account in accounts {
            let here = version(&account.key);
            let lost: Vec<u64> = account.accepted.iter().copied().filter(|number| here < *number).collect();
            kill.accepted += account.accepted.len() as u64;
            kill.told += account.told.len() as u64;
            kill.lost += lost.len() as u64;
            let untold = lost.iter().filter(|number| !account.told.contains(number)).count();
            if 0 < untold || account.given < here {
                let given = account.given;
                broken.push(format!("{}: {given} given, version {here}, {untold} lost untold", account.key));
            }
        }
        if u64::from(settings.budget) < kill.lost {
            broken.push(format!("kill {place}: {} lost, the budget is {}", kill.lost, settings.budget));
        }
        each(place, *kill);
    }
    let received = living.iter().map(|account| account.received).sum();
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
