//! Once: sessions put while leaders are killed; each put that was given is executed once, and each answer is that of its put.
//!
//! Method: each session puts to a key of its own, without comparing anything, with a window full of puts under way; half of
//! the sessions are strict, half are in any order. The run has one part more than there are kills:
//!
//! ```text
//!  ├ the member that was killed starts ┼ all serve; leader killed ┼ what was under way is sent again ┤ all answered
//!  0                                  1/3                        1/2                                 1
//! ```
//! No session gives a put beyond the first mark until all members serve, so each kill hits puts under way. At the end the
//! key's version is the number of puts, its history is one chain in which each put replaced another one, the store's
//! revision has grown by one for each put, and all members hold the same.
//! Rule:  a put that is executed twice, or not at all, or answered with another's answer, is the first difference reported,
//!        and the members' directories are kept.
//! Knows nothing of: how a member remembers what it has executed.

use kattu_client::api::{Answer, Command, Put};
use kattu_client::{NativeClient, Options as ClientOptions, Order, Pending, Session, SessionOptions};
use kattu_rig::{Cluster, Member, Options, until};
use kattu_verify::history::Pair;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// The level from which on a cluster has sessions.
const WITH_SESSIONS: u64 = 4;
/// So many sessions share the connections of one client.
const SESSIONS_PER_CLIENT: usize = 8;
/// Most puts under way in one session.
const WINDOW: usize = 256;
/// A put without an answer for so long has an unknown outcome for its caller: a violation, as no service is away so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Answers that do not come for longer than that never will.
const STANDSTILL: Duration = Duration::from_secs(90);

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Sessions; those of even numbers are strict.
    pub sessions: usize,
    /// Puts of all sessions together.
    pub puts: u64,
    /// Leaders to be killed.
    pub kills: usize,
    /// Cheat: the first session gives one put twice, and tells the judge of one. It must be found.
    pub is_control: bool,
}

impl Settings {
    /// Puts up to the end of a part.
    fn end_of(self, part: usize) -> u64 {
        self.puts * (part as u64 + 1) / (self.kills as u64 + 1)
    }

    /// Puts of one session.
    fn share(self, session: usize) -> u64 {
        let (all, session) = (self.sessions as u64, session as u64);
        self.puts / all + u64::from(session < self.puts % all)
    }
}

/// One kill.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// Puts answered before it.
    pub answered: u64,
    /// Puts given without an answer at that moment.
    pub under_way: u64,
    /// The longest time without an answer, from the kill until all of them were answered.
    pub outage: Duration,
}

/// The results.
#[derive(Debug)]
pub struct Report {
    /// All kills.
    pub kills: Vec<Kill>,
    /// Puts answered.
    pub answered: u64,
    /// Puts that were sent once more, each time counted.
    pub repeated: u64,
    /// From the first put to the last answer.
    pub took: Duration,
    /// What is wrong, the first of each session.
    pub broken: Vec<String>,
    /// Directories and logs of the members, if something is wrong.
    pub kept: Option<PathBuf>,
}

/// Runs it; `each` gets every kill.
pub fn run(settings: Settings, mut each: impl FnMut(usize, Kill)) -> Report {
    let mut cluster = Cluster::with("once", Options { members: 3, flags: vec![] });
    until_it_has_sessions(&cluster);
    let load = Load::start(&cluster, settings);
    let begun = Instant::now();
    let mut kills = Vec::new();
    let mut dead: Option<usize> = None;
    for part in 0..=settings.kills {
        let (first, end) =
            (part.checked_sub(1).map_or(0, |before| settings.end_of(before)), settings.end_of(part));
        let third = first + (end - first) / 3;
        if let Some(dead) = dead.take() {
            cluster.members[dead].spawn().expect("the binary can be run");
            load.allow(third);
            cluster.members[dead].wait_ready();
        }
        if part < settings.kills {
            // Sought before: most of the rest would be answered meanwhile.
            let leader = cluster.leader();
            load.allow(end);
            // In the midst of giving, or when so many eighths of them are answered.
            let answered = [0, 1, 0, 2][part % 4];
            let rest = end - third;
            if load.wait_for(third + rest / 4, third + rest * answered / 8) {
                cluster.members[leader].kill();
                dead = Some(leader);
                let before = load.seen().mark();
                load.wait_for(end, end);
                let kill = Kill { outage: load.seen().gap, ..before };
                each(part, kill);
                kills.push(kill);
            }
        }
        load.allow(end);
        if !load.wait_for(end, end) {
            break;
        }
    }
    let took = begun.elapsed();
    let answered = load.seen().answered;
    let (accounts, repeated, mut broken) = load.stop();
    if broken.is_empty() {
        broken = match cluster.agreed_state() {
            Ok(state) => judge(&accounts, &state.kvs, state.revision),
            Err(why) => vec![why],
        };
    }
    // Without these the run has shown nothing.
    if broken.is_empty()
        && !kills.is_empty()
        && (repeated == 0 || kills.iter().all(|kill| kill.under_way == 0))
    {
        broken.push("no kill hit a put under way".into());
    }
    let kept = (!broken.is_empty()).then(|| cluster.keep_folder());
    Report { kills, answered, repeated, took, broken, kept }
}

/// Waits until a cluster that has started has sessions.
pub(crate) fn until_it_has_sessions(cluster: &Cluster) {
    until("the cluster has sessions", || {
        let has = |member: &Member| Some(WITH_SESSIONS) <= member.metric("kattu_feature_level");
        cluster.members.iter().all(has).then_some(())
    });
}

/// An answer to a put, as its session saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    /// The put: its number in its session, which is its value, too.
    put: u64,
    revision: i64,
    /// The version that it made.
    version: i64,
    /// The put whose value it replaced; 0 for none.
    replaced: u64,
}

/// One session's answers, in the order of its puts.
#[derive(Clone, Debug)]
struct Account {
    key: String,
    order: Order,
    answers: Vec<Answered>,
}

impl Account {
    /// Takes the answer to a put.
    fn take(&mut self, put: u64, answer: &Answer, revision: i64) -> Result<(), String> {
        let Answer::Put { prev_kv } = answer else {
            return Err(format!("{}: put {put} was answered with {answer:?}", self.key));
        };
        let (version, replaced) = match prev_kv {
            None => (1, 0),
            Some(pair) => (pair.version + 1, number_in(&pair.value).unwrap_or(u64::MAX)),
        };
        self.answers.push(Answered { put, revision, version, replaced });
        Ok(())
    }

    /// The first difference between what was answered and what is there.
    fn judge(&self, there: Option<&Pair>) -> Result<(), String> {
        let (key, count) = (&self.key, self.answers.len() as i64);
        let version = there.map_or(0, |pair| pair.version);
        if version != count {
            return Err(format!("{key} has version {version}, {count} puts were given and answered"));
        }
        let mut chain = self.answers.clone();
        chain.sort_by_key(|answer| answer.version);
        let mut before = Answered { put: 0, revision: 0, version: 0, replaced: 0 };
        for answer in chain {
            let Answered { put, revision, version, replaced } = answer;
            let follows = version == before.version + 1
                && before.revision < revision
                && replaced == before.put
                && (self.order == Order::Any || put == before.put + 1);
            if !follows {
                return Err(format!("{key}, {:?}: {answer:?} does not follow {before:?}", self.order));
            }
            before = answer;
        }
        let last = there
            .map_or((0, 0), |pair| (number_in(pair.value.as_bytes()).unwrap_or(u64::MAX), pair.modified));
        match last == (before.put, before.revision) {
            true => Ok(()),
            false => {
                Err(format!("{key} is of put {} at revision {}, the last answer {before:?}", last.0, last.1))
            }
        }
    }
}

fn number_in(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The first difference of each session, and of the whole store.
fn judge(accounts: &[Account], kvs: &[Pair], revision: i64) -> Vec<String> {
    let there: BTreeMap<&str, &Pair> = kvs.iter().map(|pair| (pair.key.as_str(), pair)).collect();
    let mut broken: Vec<String> = accounts
        .iter()
        .filter_map(|account| account.judge(there.get(account.key.as_str()).copied()).err())
        .collect();
    // An empty store has revision 1, and each put makes the next.
    let puts: usize = accounts.iter().map(|account| account.answers.len()).sum();
    if revision != 1 + puts as i64 {
        broken.push(format!("the store is at revision {revision} after {puts} puts"));
    }
    if kvs.len() != accounts.iter().filter(|account| !account.answers.is_empty()).count() {
        broken.push(format!("the store has {} keys, {} sessions have put", kvs.len(), accounts.len()));
    }
    broken
}

/// What all sessions together have seen.
#[derive(Debug)]
struct Seen {
    /// Puts that sessions may give.
    allowed: u64,
    given: u64,
    /// Puts given and answered that the conductor waits for.
    awaited: (u64, u64),
    answered: u64,
    answered_at: Instant,
    /// The longest time between two answers since the last mark.
    gap: Duration,
    broken: Vec<String>,
}

impl Seen {
    /// Measures the gap anew; the state at this moment.
    fn mark(&mut self) -> Kill {
        (self.answered_at, self.gap) = (Instant::now(), Duration::ZERO);
        Kill { answered: self.answered, under_way: self.given - self.answered, outage: Duration::ZERO }
    }

    fn is_awaited(&self) -> bool {
        (self.awaited.0 <= self.given && self.awaited.1 <= self.answered) || !self.broken.is_empty()
    }

    fn note_answer(&mut self) {
        let now = Instant::now();
        self.gap = self.gap.max(now - self.answered_at);
        (self.answered, self.answered_at) = (self.answered + 1, now);
    }
}

/// What the sessions share with the conductor.
struct Shared {
    seen: Mutex<Seen>,
    /// Wakes the conductor.
    changed: Condvar,
    /// One permit for each put that may still be given.
    gate: Semaphore,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no session panics with it")
    }

    /// Changes what is seen, and wakes the conductor if that is what it waits for.
    fn note(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen();
        change(&mut seen);
        if seen.is_awaited() {
            self.changed.notify_all();
        }
    }

    /// Ends the run.
    fn break_off(&self, why: String) {
        self.note(|seen| seen.broken.push(why));
        self.gate.close();
    }
}

/// The sessions, on a thread of their own.
struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<(Vec<Account>, u64)>,
}

impl Load {
    /// Opens all sessions; no put is given yet.
    fn start(cluster: &Cluster, settings: Settings) -> Load {
        let seen = Seen {
            allowed: 0,
            given: 0,
            awaited: (0, 0),
            answered: 0,
            answered_at: Instant::now(),
            gap: Duration::ZERO,
            broken: Vec::new(),
        };
        let shared =
            Arc::new(Shared { seen: Mutex::new(seen), changed: Condvar::new(), gate: Semaphore::new(0) });
        let (addresses, own) = (cluster.addresses(), shared.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(sessions(addresses, settings, own))
        });
        Load { shared, thread }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen()
    }

    /// Sessions may give so many puts, all in all.
    fn allow(&self, puts: u64) {
        let mut seen = self.seen();
        self.shared.gate.add_permits((puts - seen.allowed) as usize);
        seen.allowed = puts;
    }

    /// Waits until so many puts are given and so many answered, however slowly; `false` if something is wrong before. Panics if
    /// answers stop.
    #[track_caller]
    fn wait_for(&self, given: u64, answered: u64) -> bool {
        let mut seen = self.seen();
        seen.awaited = (given, answered);
        loop {
            let before = seen.answered;
            let waits = |seen: &mut Seen| !seen.is_awaited();
            let waited = self.shared.changed.wait_timeout_while(seen, STANDSTILL, waits);
            let (now, ended) = waited.expect("no session panics with it");
            if !ended.timed_out() {
                return now.broken.is_empty();
            }
            assert!(before < now.answered, "no session was answered for {STANDSTILL:?}, {before} puts were");
            seen = now;
        }
    }

    /// Waits for the ends of all sessions; their answers, the number of repetitions, what was wrong.
    fn stop(self) -> (Vec<Account>, u64, Vec<String>) {
        let (accounts, repeated) = self.thread.join().expect("no session panics");
        (accounts, repeated, std::mem::take(&mut self.shared.seen().broken))
    }
}

async fn sessions(addresses: Vec<String>, settings: Settings, shared: Arc<Shared>) -> (Vec<Account>, u64) {
    let mut clients: Vec<NativeClient> = Vec::new();
    let mut running = Vec::new();
    for session in 0..settings.sessions {
        if session.is_multiple_of(SESSIONS_PER_CLIENT) {
            let client = NativeClient::connect(&addresses, ClientOptions { timeout: PATIENCE }, None);
            clients.push(client.expect("the members have addresses"));
        }
        let order = if session.is_multiple_of(2) { Order::Strict } else { Order::Any };
        let client = clients.last().expect("one at least");
        match client.open_session(SessionOptions { order, window: WINDOW }).await {
            Ok(opened) => {
                let account = Account { key: format!("once/{session:04}"), order, answers: Vec::new() };
                let cheats = settings.is_control && session == 0;
                running.push(tokio::spawn(put_all(
                    opened,
                    account,
                    settings.share(session),
                    cheats,
                    shared.clone(),
                )));
            }
            Err(why) => shared.break_off(format!("session {session} was not opened: {why}")),
        }
    }
    let (mut accounts, mut repeated) = (Vec::new(), 0);
    for session in running {
        let (account, again) = session.await.expect("no session panics");
        accounts.push(account);
        repeated += again;
    }
    (accounts, repeated)
}

/// One session: gives its puts, and takes the answers meanwhile.
async fn put_all(
    session: Session,
    account: Account,
    puts: u64,
    cheats: bool,
    shared: Arc<Shared>,
) -> (Account, u64) {
    let (given, answers) = mpsc::unbounded_channel();
    let taking = tokio::spawn(take_all(answers, account.clone(), shared.clone()));
    for put in 1..=puts {
        let Ok(permit) = shared.gate.acquire().await else { break };
        permit.forget();
        let command = Command::Put(Put {
            key: account.key.clone().into_bytes(),
            value: put.to_string().into_bytes(),
            prev_kv: true,
            ..Put::default()
        });
        shared.note(|seen| seen.given += 1);
        if cheats && put == puts / 2 {
            let _ = session.command(&command).await; // and nobody is told
        }
        match session.command(&command).await {
            // Its receiver has gone only if something is wrong.
            Ok(pending) => drop(given.send((put, pending))),
            Err(why) => shared.break_off(format!("{}: put {put} was not taken: {why}", account.key)),
        }
    }
    drop(given);
    let account = taking.await.expect("no session panics");
    let repeated = session.repeated();
    if let Err(why) = session.close().await {
        shared.break_off(format!("{}: the session was not closed: {why}", account.key));
    }
    (account, repeated)
}

async fn take_all(
    mut answers: mpsc::UnboundedReceiver<(u64, Pending)>,
    mut account: Account,
    shared: Arc<Shared>,
) -> Account {
    while let Some((put, pending)) = answers.recv().await {
        let taken = match pending.await {
            Ok(response) => account.take(put, &response.answer, response.revision.0),
            Err(why) => Err(format!("{}: put {put}: {why}", account.key)),
        };
        match taken {
            Ok(()) => shared.note(Seen::note_answer),
            Err(why) => {
                shared.break_off(why);
                break;
            }
        }
    }
    account
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of a session in which all went well.
    fn account(order: Order, puts: &[u64]) -> Account {
        let mut answers = Vec::new();
        for (place, put) in puts.iter().enumerate() {
            let replaced = place.checked_sub(1).map_or(0, |before| puts[before]);
            answers.push(Answered {
                put: *put,
                revision: 10 * place as i64 + 2,
                version: place as i64 + 1,
                replaced,
            });
        }
        answers.sort_by_key(|answer| answer.put);
        Account { key: "k".into(), order, answers }
    }

    /// The pair of a key after so many puts.
    fn pair(put: u64, version: i64) -> Pair {
        let modified = 10 * (version - 1) + 2;
        Pair { key: "k".into(), value: put.to_string(), create: 2, modified, version }
    }

    #[track_caller]
    fn found(account: &Account, there: &Pair, words: &str) {
        let found = account.judge(Some(there)).expect_err("it is wrong");
        assert!(found.contains(words), "{found}");
    }

    #[test]
    fn a_session_is_good_in_the_order_that_it_has() {
        assert_eq!(account(Order::Strict, &[1, 2, 3]).judge(Some(&pair(3, 3))), Ok(()));
        assert_eq!(account(Order::Any, &[2, 3, 1]).judge(Some(&pair(1, 3))), Ok(()));
        found(&account(Order::Strict, &[2, 3, 1]), &pair(1, 3), "does not follow");
        assert_eq!(account(Order::Strict, &[]).judge(None), Ok(()));
    }

    #[test]
    fn a_put_that_is_executed_twice_or_not_at_all_is_found() {
        let good = account(Order::Any, &[1, 2, 3]);
        found(&good, &pair(3, 4), "k has version 4, 3 puts were given and answered");
        found(&good, &pair(3, 2), "k has version 2, 3 puts");
        assert!(good.judge(None).is_err(), "the key is not there");
        // One twice and another not at all: the version is right, and the chain has a hole.
        let mut account = account(Order::Any, &[1, 2, 3]);
        account.answers[2].version = 4;
        found(&account, &pair(3, 3), "does not follow");
    }

    #[test]
    fn an_answer_of_another_put_is_found() {
        for order in [Order::Strict, Order::Any] {
            let mut swapped = account(order, &[1, 2, 3, 4]);
            (swapped.answers[1].put, swapped.answers[2].put) = (3, 2);
            found(&swapped, &pair(4, 4), "does not follow");
        }
        let mut late = account(Order::Any, &[1, 2, 3]);
        late.answers[1].revision = 30;
        found(&late, &pair(3, 3), "does not follow");
        found(&account(Order::Any, &[1, 2, 3]), &pair(2, 3), "k is of put 2 at revision 22");
        let response =
            Answer::DeleteRange { deleted: 1, prev_kvs: vec![], revision: kattu_client::api::Revision(2) };
        assert!(late.take(4, &response, 2).is_err(), "no answer to a put");
    }

    #[test]
    fn the_store_has_grown_by_what_was_given_and_by_nothing_else() {
        let accounts = [account(Order::Any, &[1, 2, 3])];
        assert_eq!(judge(&accounts, &[pair(3, 3)], 4), Vec::<String>::new());
        assert_eq!(judge(&accounts, &[pair(3, 3)], 5), ["the store is at revision 5 after 3 puts"]);
        let stranger = Pair { key: "l".into(), ..pair(3, 3) };
        assert_eq!(
            judge(&accounts, &[pair(3, 3), stranger], 4),
            ["the store has 2 keys, 1 sessions have put"]
        );
    }

    #[test]
    fn each_part_ends_with_its_share_and_the_last_with_all_puts() {
        let settings = Settings { sessions: 3, puts: 100, kills: 2, is_control: false };
        assert_eq!([0, 1, 2].map(|part| settings.end_of(part)), [33, 66, 100]);
        assert_eq!([0, 1, 2].map(|session| settings.share(session)), [34, 33, 33]);
    }
}
