//! Weak clients: sessions that put weakly, on a thread and a runtime of their own, which live to the end or end at any moment.
//!
//! ```text
//!   living clients   ├──── put 1, 2, 3, … ────┤ flush, and what was told to be lost is put again
//!   mortal clients      ├── put 1, 2, 3, … ──┤ their runtime ends with all that they have under way
//! ```
//! Each session gives its next put as soon as the one before was accepted: received by a quorum, or done. A session that the
//! members have ended is followed by a new one, with an account of its own.
//! Knows nothing of: faults; what the judge makes of an account (`ledger.rs`).

use crate::cluster::BACK_LIMIT;
use crate::record::Recorder;
use kattu_client::api::Command;
use kattu_client::{Accepted, Code, Error, Kind, LostWrite, NativeClient, Options, Session, SessionOptions};
use kattu_random::Random;
use kattu_tls::ClientTls;
use kattu_verify::history::{Answer, Operation, What};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Between a failure and the next attempt: no storm of refusals.
const AFTER_FAILURE: Duration = Duration::from_millis(20);
/// The first number of a client in a history that is a weak one: each put has a number of its own, because many of one session
/// are under way at a time.
pub const CLIENTS_FROM: u32 = 1_000_000;

/// The keys of a session's puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All go to one key: its version is the number of puts that were executed.
    One,
    /// Each goes to a key of its own, whose revision says when it was executed.
    Each,
}

/// How an accepted put was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A quorum had received it, from the leader of this term.
    Received(u64),
    /// It was done.
    Done,
}

/// The knowledge of one session's client.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Its key, or the beginning of its keys.
    pub key: String,
    /// Puts given: their numbers are 1 to this.
    pub given: u64,
    /// Puts that were accepted.
    pub accepted: BTreeMap<u64, How>,
    /// Puts that were never accepted, and certainly have no effect.
    pub refused: BTreeSet<u64>,
    /// Puts that were never accepted, and whose outcome the client was told is unknown.
    pub unknown: BTreeSet<u64>,
    /// Accepted puts that the client was told are lost, and whether that is certain.
    pub told: BTreeMap<u64, bool>,
    /// Of these, put again until that was done.
    pub again: BTreeSet<u64>,
    /// Sendings of puts that had been sent before.
    pub repeated: u64,
    /// Why the members ended the session, if they did.
    pub ended: Option<String>,
    /// Why the client could not come to its end.
    pub broken: Option<String>,
    /// Operations of a history without an end: number of the put, client, operation.
    pub(crate) open: BTreeMap<u64, (u32, u64)>,
}

impl Account {
    /// Puts that were accepted before they were done.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.accepted.values().filter(|how| **how != How::Done).count() as u64
    }
}

/// Writes the puts into a history.
#[derive(Debug)]
pub struct Notes {
    recorder: Arc<Recorder>,
    next: AtomicU32,
}

impl Notes {
    /// Into this one.
    pub fn new(recorder: &Arc<Recorder>) -> Arc<Notes> {
        Arc::new(Notes { recorder: recorder.clone(), next: AtomicU32::new(CLIENTS_FROM) })
    }

    fn invoke(&self, key: &str, number: u64) -> (u32, u64) {
        let client = self.next.fetch_add(1, Ordering::Relaxed);
        let operation = Operation::Put { key: key.into(), value: number.to_string() };
        (client, self.recorder.invoke(client, 0, operation))
    }

    fn end(&self, (client, id): (u32, u64), what: What) {
        self.recorder.end(client, id, what);
    }

    pub(crate) fn done(&self, open: (u32, u64), revision: i64) {
        self.end(open, What::Done { revision: Some(revision), answer: Ok(Answer::Put) });
    }

    pub(crate) fn never(&self, open: (u32, u64)) {
        self.end(open, What::Refused { reason: "it is not there at the end".into() });
    }
}

/// How weak clients go about it.
#[derive(Clone)]
pub struct Habits {
    /// Client addresses of the members.
    pub addresses: Vec<String>,
    /// The authority to trust, if the members have TLS.
    pub tls: Option<ClientTls>,
    /// The keys.
    pub keys: Keys,
    /// Bytes of each value at least: its number, and spaces.
    pub value_bytes: usize,
    /// A put without an answer for so long has an unknown outcome for its caller.
    pub patience: Duration,
    /// Longest pause between two puts of a session.
    pub pause_ms_max: u64,
    /// Decides the pauses.
    pub seed: u64,
    /// Takes notes for the judges of histories.
    pub notes: Option<Arc<Notes>>,
}

/// What the clients of one load share with their owner.
#[derive(Default)]
struct Book {
    accounts: Mutex<Vec<Account>>,
    accepted: AtomicU64,
    /// No more puts are given.
    ends: AtomicBool,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Vec<Account>> {
        self.accounts.lock().expect("no client panics")
    }

    fn open(&self, key: String) -> usize {
        let mut accounts = self.lock();
        accounts.push(Account { key, ..Account::default() });
        accounts.len() - 1
    }

    fn note<T>(&self, place: usize, change: impl FnOnce(&mut Account) -> T) -> T {
        change(&mut self.lock()[place])
    }
}

/// Some clients, on a thread and a runtime of their own. Dropped, they are gone at once.
pub struct Load {
    book: Arc<Book>,
    dies: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts a client for each of these keys.
    pub fn start(habits: &Habits, keys: Vec<String>) -> Load {
        let book = Arc::new(Book::default());
        let (dies, dead) = oneshot::channel();
        let (own, habits) = (book.clone(), habits.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = all(habits, keys, own) => {}
                    _ = dead => {}
                }
            });
        });
        Load { book, dies: Some(dies), thread: Some(thread) }
    }

    /// Puts that were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.book.accepted.load(Ordering::Relaxed)
    }

    /// The same, by the key of each account.
    #[must_use]
    pub fn accepted_by_key(&self) -> BTreeMap<String, u64> {
        let accounts = self.book.lock();
        accounts.iter().map(|account| (account.key.clone(), account.accepted.len() as u64)).collect()
    }

    /// The clients are gone at once, with all that they had under way.
    #[must_use]
    pub fn die(mut self) -> Vec<Account> {
        drop(self.dies.take());
        self.accounts()
    }

    /// Gives no more puts, and waits until all are done.
    #[must_use]
    pub fn flush(mut self) -> Vec<Account> {
        self.book.ends.store(true, Ordering::Relaxed);
        self.accounts()
    }

    fn accounts(&mut self) -> Vec<Account> {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no client panics");
        }
        std::mem::take(&mut self.book.lock())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.dies.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn all(habits: Habits, keys: Vec<String>, book: Arc<Book>) {
    let options = Options { timeout: habits.patience };
    let client = NativeClient::connect(&habits.addresses, options, habits.tls.as_ref());
    let client = client.expect("the members have addresses");
    let running: Vec<_> = keys
        .into_iter()
        .zip(0..)
        .map(|(key, number)| {
            let random = Random::of_numbered_part(habits.seed, number);
            let client =
                Client { client: client.clone(), habits: habits.clone(), book: book.clone(), random };
            tokio::spawn(client.live(key))
        })
        .collect();
    for client in running {
        client.await.expect("no client panics");
    }
}

/// How a client's time with a session ended.
enum End {
    /// All that was given is done.
    Flushed,
    /// The members have ended the session.
    Over,
    /// It has not come to its end in time.
    Broken,
}

struct Client {
    client: NativeClient,
    habits: Habits,
    book: Arc<Book>,
    random: Random,
}

impl Client {
    async fn live(mut self, key: String) {
        let mut places = Vec::new();
        loop {
            let again = places.len();
            let place = self.book.open(if again == 0 { key.clone() } else { format!("{key}.{again}") });
            places.push(place);
            let Some(session) = self.open_session().await else { break };
            match self.put_all(place, &session).await {
                End::Flushed => break,
                End::Broken => return,
                End::Over => {}
            }
        }
        if self.habits.keys == Keys::Each {
            self.put_again(&places).await;
        }
    }

    fn ends(&self) -> bool {
        self.book.ends.load(Ordering::Relaxed)
    }

    fn key_of(&self, key: &str, number: u64) -> String {
        match self.habits.keys {
            Keys::One => key.into(),
            Keys::Each => format!("{key}/{number:07}"),
        }
    }

    fn value_of(&self, number: u64) -> String {
        format!("{number:<0$}", self.habits.value_bytes)
    }

    /// A session; none if the end comes first.
    async fn open_session(&self) -> Option<Session> {
        while !self.ends() {
            match self.client.open_session(SessionOptions::default()).await {
                Ok(session) => return Some(session),
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
        None
    }

    async fn put_all(&mut self, place: usize, session: &Session) -> End {
        let book = self.book.clone();
        let of_lost = book.clone();
        session.on_lost(move |lost| {
            of_lost.note(place, |account| account.told.insert(number_of(&lost), is_certain(&lost.error)));
        });
        let key = book.note(place, |account| account.key.clone());
        for number in 1.. {
            if self.ends() {
                break;
            }
            let own = self.key_of(&key, number);
            let notes = self.habits.notes.clone();
            let open = book.note(place, |account| {
                account.given = number;
                let open = notes.as_deref().map(|notes| notes.invoke(&own, number));
                account.open.extend(open.map(|open| (number, open)));
                open
            });
            let (put, was_given) = match session.put_weak(own, self.value_of(number)).await {
                Ok(pending) => (pending.await, true),
                Err(why) => (Err(why), false),
            };
            match put {
                Ok(Accepted::Received(id)) => {
                    book.note(place, |account| account.accepted.insert(number, How::Received(id.term.0)));
                }
                Ok(Accepted::Done(response)) => book.note(place, |account| {
                    account.accepted.insert(number, How::Done);
                    if let Some((notes, open)) = notes.as_deref().zip(open) {
                        account.open.remove(&number);
                        notes.done(open, response.revision.0);
                    }
                }),
                Err(why) => {
                    book.note(place, |account| match why.kind() {
                        Kind::Unknown => account.unknown.insert(number),
                        Kind::Refused | Kind::Unreachable => account.refused.insert(number),
                    });
                    if is_over(&why, was_given) {
                        return self.over(place, session, &why);
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            }
            book.accepted.fetch_add(1, Ordering::Relaxed);
            if 0 < self.habits.pause_ms_max {
                let pause = self.random.within(0..self.habits.pause_ms_max + 1);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
        let begun = Instant::now();
        loop {
            match session.flush().await {
                Ok(()) => break,
                Err(Error::Call(failure)) if failure.code == Code::DeadlineExceeded => {
                    if BACK_LIMIT < begun.elapsed() {
                        let why = format!("not flushed in {BACK_LIMIT:?}: {failure}");
                        book.note(place, |account| account.broken = Some(why));
                        return End::Broken;
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
                Err(why) => return self.over(place, session, &why),
            }
        }
        let closed = session.close().await;
        book.note(place, |account| {
            account.repeated = session.repeated();
            account.broken = closed.err().map(|why| format!("close: {why}"));
        });
        End::Flushed
    }

    fn over(&self, place: usize, session: &Session, why: &Error) -> End {
        self.book.note(place, |account| {
            account.ended = Some(why.to_string());
            account.repeated = session.repeated();
        });
        End::Over
    }

    /// A client that lives puts again what it was told is lost.
    async fn put_again(&self, places: &[usize]) {
        let begun = Instant::now();
        for &place in places {
            let (key, told) = self.book.note(place, |account| (account.key.clone(), account.told.clone()));
            for number in told.into_keys() {
                let own = self.key_of(&key, number);
                let mut why = String::new();
                loop {
                    if BACK_LIMIT < begun.elapsed() {
                        let why = format!("put {number} again: {why}");
                        self.book.note(place, |account| account.broken = Some(why));
                        return;
                    }
                    let open = self.habits.notes.as_deref().map(|notes| (notes, notes.invoke(&own, number)));
                    match self.client.put(own.clone(), self.value_of(number)).await {
                        Ok(response) => {
                            if let Some((notes, open)) = open {
                                notes.done(open, response.revision.0);
                            }
                            self.book.note(place, |account| account.again.insert(number));
                            break;
                        }
                        Err(error) => {
                            why = error.to_string();
                            if let Some((notes, open)) = open {
                                let reason = why.clone();
                                notes.end(
                                    open,
                                    match error.kind() {
                                        Kind::Unknown => What::Unknown { reason },
                                        Kind::Refused | Kind::Unreachable => What::Refused { reason },
                                    },
                                );
                            }
                            tokio::time::sleep(AFTER_FAILURE).await;
                        }
                    }
                }
            }
        }
    }
}

/// The number of a put is its value.
fn number_of(lost: &LostWrite) -> u64 {
    let Command::Put(put) = &lost.command else { panic!("these clients only put: {:?}", lost.command) };
    let text = String::from_utf8_lossy(&put.value);
    text.trim_end().parse().unwrap_or_else(|_| panic!("these clients put numbers: {text}"))
}

/// Whether a lost write certainly has no effect.
fn is_certain(error: &Error) -> bool {
    error.kind() == Kind::Refused
}

/// Whether the session has ended: it says so, or takes no put any more.
fn is_over(why: &Error, was_given: bool) -> bool {
    matches!(why, Error::Session { .. }) || (!was_given && why.kind() == Kind::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_client::SessionError;

    #[test]
    fn clients_that_reach_no_member_have_given_nothing_when_they_end() {
        let habits = Habits {
            addresses: vec!["127.0.0.1:1".into()],
            tls: None,
            keys: Keys::Each,
            value_bytes: 0,
            patience: Duration::from_millis(50),
            pause_ms_max: 1,
            seed: 1,
            notes: None,
        };
        let start = || Load::start(&habits, vec!["a".into(), "b".into()]);
        let ends: [fn(Load) -> Vec<Account>; 2] = [Load::flush, Load::die];
        for end in ends {
            let load = start();
            crate::until("both clients have an account", || {
                (load.accepted_by_key().len() == 2).then_some(())
            });
            assert_eq!(load.accepted(), 0);
            let accounts = end(load);
            assert_eq!(accounts.len(), 2);
            assert!(accounts.iter().all(|it| it.given == 0 && it.ended.is_none() && it.broken.is_none()));
        }
    }

    #[test]
    fn a_session_is_over_when_it_says_so_or_takes_no_put_any_more() {
        let gone = |kind| Error::Session { error: SessionError::Expired, kind };
        let call = |kind| {
            let message = "why".to_string();
            let (code, reason, endpoint) = (Code::Unavailable, None, String::new());
            Error::Call(kattu_client::Failure { kind, code, message, reason, endpoint })
        };
        assert!(is_over(&gone(Kind::Unknown), true) && is_over(&gone(Kind::Refused), false));
        assert!(is_over(&call(Kind::Refused), false), "it was closed");
        for was_given in [true, false] {
            assert!(!is_over(&call(Kind::Unreachable), was_given), "its window was full");
        }
        assert!(!is_over(&call(Kind::Refused), true), "this put alone");
    }
}
