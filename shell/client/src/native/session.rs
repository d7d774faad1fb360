//! Session: commands that are each executed exactly once, whatever is lost on the way.
//!
//! ```text
//!  caller ─ put ─▶ window ─▶ pipeline ─▶ connection to the leader
//!                    ▲           ▲  │
//!                    └─ answers ─┘  └─ steering: a new connection, and everything without an answer once more
//! ```
//! Rules: 1. A command gets its number when there is room in the window, and is on its way at once. Its answer comes when it
//!           comes: callers may have a window full of commands under way.
//!        2. One task steers a session: while commands go out and answers come it sleeps.
//!        3. After `timeout` without an answer a caller is told that the outcome is unknown. The command is repeated still.
//!        4. A session that is dropped without `close` gives no more signs of life, and expires at the members. Commands that
//!           were given to it are repeated until their answers come or their callers are told, and no longer.
//!
//! Source: [replication-protocols §10].
//! Knows nothing of: frames, sockets, how members execute a number once.

use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::level::Level;
use crate::native::answer::{self, Answer, Lost, Outcome};
use crate::native::calls::{bytes_of, put, unfitting};
use crate::native::client::{Course, NativeClient, Shared};
use crate::native::connection::{Ask, Asked, Connection, Listen, Listener};
use crate::native::members::Member;
use crate::native::pipeline::{Freed, Outcomes, Pipeline, Step};
use kattu_kv::api::{Command, DeleteRange, Response, Revision, Txn};
use kattu_kv::sessions::{Order, SessionError, SessionId, WINDOW};
use prost::bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Code;

/// Most KiB of commands of one session that have no answer: they are kept to be sent again.
const WINDOW_KIB: usize = 64 << 10;

/// The options of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Strict: commands are executed in the order in which they were given. Any: in the order in which they arrive.
    pub order: Order,
    /// Most commands without an answer, `1..=4096`; beside it, 64 MiB of them. At the limit the next command waits.
    pub window: usize,
}

impl Default for SessionOptions {
    /// Strict, 1,024 commands.
    fn default() -> SessionOptions {
        SessionOptions { order: Order::Strict, window: 1024 }
    }
}

/// A session of a client. Each command that is given to it is executed exactly once, or its outcome is told to be unknown.
///
/// ```no_run
/// use kattu_client::{NativeClient, Options, SessionOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = NativeClient::connect(["10.0.0.1:2379"], Options::default(), None)?;
/// let session = client.open_session(SessionOptions::default()).await?;
/// let first = session.put("a", "1").await?; // on its way
/// let second = session.put("a", "2").await?;
/// assert!(first.await?.revision < second.await?.revision);
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    live: Arc<Live>,
}

/// A command under way in a session. It goes on also if this is dropped. As a future it yields the answer.
///
/// # Errors
/// As those of [`Session::command`], and of kind `Unknown` if the session ends first, or there is no answer in time.
#[derive(Debug)]
pub struct Pending {
    result: oneshot::Receiver<Outcomes>,
}

impl Future for Pending {
    type Output = Result<Response, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Error>> {
        Pin::new(&mut self.result).poll(context).map(|result| {
            result.unwrap_or_else(|_| {
                let why = "the session's task has ended with its runtime";
                Err(answer::failure(Kind::Unknown, Code::Cancelled, why, "").into())
            })
        })
    }
}

/// What the handle, the connection's task and the steering share.
pub(crate) struct Live {
    shared: Arc<Shared>,
    level: Level,
    id: SessionId,
    state: Mutex<State>,
    /// Room in the window: numbers, and KiB.
    numbers: Semaphore,
    kib: Semaphore,
    /// Wakes the steering.
    steering: Notify,
    /// Wakes those that wait for all answers.
    told: Notify,
    /// For the connection's task.
    own: Weak<Live>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.id.number)
    }
}

struct State {
    pipeline: Pipeline,
    /// The connection on which commands go out at once; `None` while everything waits for the steering.
    link: Option<Connection>,
    member: Option<Arc<Member>>,
    /// The next beginning waits for a while.
    pauses: bool,
    /// Beginnings in a row without a final answer.
    fruitless: u32,
    /// The last one.
    begun_at: Instant,
    /// Why there is no session any more.
    ended: Option<Error>,
    /// No handle is left.
    is_dropped: bool,
    /// When the next sign of life is due.
    alive_due: Instant,
}

/// What the steering has to do.
struct Look {
    /// First wait so long.
    pause: Option<Duration>,
    /// Something waits for a connection.
    waits: bool,
    /// Look again then.
    due: Option<Instant>,
}

impl NativeClient {
    /// Opens a session. Needs feature level 4 of the cluster.
    ///
    /// # Errors
    /// Those of sessions: there are too many. Failures: an opening of unknown outcome is repeated; a session that was opened
    /// twice is not used, and ends by itself within a minute.
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, Error> {
        let answer = self.call(Course::HARMLESS, Ask::Open(options.order)).await?;
        let Outcome::Opened { id, idle } = answer.outcome else { return Err(unfitting()) };
        let now = Instant::now();
        let state = State {
            pipeline: Pipeline::new(id, options.order),
            link: None,
            member: None,
            pauses: false,
            fruitless: 0,
            begun_at: now,
            ended: None,
            is_dropped: false,
            alive_due: now + self.shared.alive.first_due(idle),
        };
        let live = Arc::new_cyclic(|own| Live {
            shared: self.shared.clone(),
            level: self.level().clone(),
            id,
            state: Mutex::new(state),
            numbers: Semaphore::new(options.window.clamp(1, WINDOW as usize)),
            kib: Semaphore::new(WINDOW_KIB),
            steering: Notify::new(),
            told: Notify::new(),
            own: own.clone(),
        });
        self.shared.alive.add(&self.shared, &live, idle);
        tokio::spawn(live.clone().steer());
        Ok(Session { live })
    }
}

impl Session {
    /// Its name at the members.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.live.id
    }

    /// The client that has opened it, at its level.
    #[must_use]
    pub fn client(&self) -> NativeClient {
        NativeClient::of(self.live.shared.clone(), self.live.level.clone())
    }

    /// Writes one key. Returns as soon as the command is on its way.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<Pending, Error> {
        self.command(&Command::Put(put(key, value))).await
    }

    /// Deletes keys. Returns as soon as the command is on its way.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn delete_range(&self, delete: DeleteRange) -> Result<Pending, Error> {
        self.command(&Command::DeleteRange(delete)).await
    }

    /// A transaction. Returns as soon as the command is on its way. One that only reads is a command, too: it sees all
    /// commands of the session before it.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn txn(&self, txn: Txn) -> Result<Pending, Error> {
        self.command(&Command::Txn(txn)).await
    }

    /// Removes the history before a revision. Returns as soon as the command is on its way.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn compact(&self, revision: Revision) -> Result<Pending, Error> {
        self.command(&Command::Compact(revision)).await
    }

    /// Any command. Waits for room in the window, not for the answer. Commands go out in the order in which these calls get
    /// room: that of the calls.
    ///
    /// # Errors
    /// Certainly without effect: an error of the store that does not depend on what it holds; the session has ended, or there was no room in time, or the command is too large.
    pub async fn command(&self, command: &Command) -> Result<Pending, Error> {
        let live = &self.live;
        let bytes = bytes_of(command)?;
        let kib = (bytes.len() / 1024 + 1).min(WINDOW_KIB);
        let deadline = Instant::now() + live.shared.options.timeout;
        let late = || {
            let why = "no room in the session's window in time: its commands have no answers";
            Error::Call(answer::failure(Kind::Unreachable, Code::DeadlineExceeded, why, ""))
        };
        let room = async {
            let number = live.numbers.acquire().await?;
            let kib = live.kib.acquire_many(kib as u32).await?;
            number.forget();
            kib.forget();
            Ok::<_, tokio::sync::AcquireError>(())
        };
        match timeout_at(deadline, room).await {
            Err(_) => Err(late()),
            Ok(Err(_)) => Err(live.why_ended()),
            Ok(Ok(())) => live.add(bytes, kib),
        }
    }

    /// Waits until each command that was given to the session before has its answer.
    ///
    /// # Errors
    /// If the session has ended, or a caller was told that the outcome of its command is unknown.
    pub async fn flush(&self) -> Result<(), Error> {
        let until = self.live.lock().pipeline.next();
        loop {
            let mut told = std::pin::pin!(self.live.told.notified());
            told.as_mut().enable();
            {
                let state = self.live.lock();
                if state.pipeline.told() >= until {
                    return match &state.ended {
                        Some(error) => Err(error.clone()),
                        None if state.pipeline.first() < until => Err(unanswered()),
                        None => Ok(()),
                    };
                }
            }
            told.await;
        }
    }

    /// Waits for all answers, then ends the session at the members.
    ///
    /// # Errors
    /// As [`Session::flush`]; or the end was not confirmed: then the session expires by itself.
    pub async fn close(&self) -> Result<(), Error> {
        let live = &self.live;
        self.flush().await?;
        live.shared.call(Course::HARMLESS, Ask::Close(vec![live.id]), live.shared.options.timeout).await?;
        let why = "the session was closed";
        live.end(answer::failure(Kind::Refused, Code::FailedPrecondition, why, "").into());
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.live.lock().is_dropped = true;
        self.live.steering.notify_one();
    }
}

fn unanswered() -> Error {
    let why = "a command of the session has no answer yet; it is being repeated";
    Error::Call(answer::failure(Kind::Unknown, Code::DeadlineExceeded, why, ""))
}

impl Listen for Live {
    fn heard(&self, number: u64, sending: u64, result: Result<Answer, Lost>) {
        let mut state = self.lock();
        let step = match result {
            Ok(answer) => {
                self.level.note_position(answer.index);
                self.take_hint(&state, &answer.outcome);
                if matches!(answer.outcome, Outcome::Done(_)) {
                    state.fruitless = 0;
                }
                let State { pipeline, link, .. } = &mut *state;
                let endpoint = link.as_ref().map_or("", Connection::endpoint);
                pipeline.answered(number, sending, answer.outcome, endpoint)
            }
            Err(lost) => {
                let step = state.pipeline.lost(number, sending);
                if let (Step::Again { .. }, true, Some(member)) = (&step, lost.was_sent, &state.member) {
                    self.shared.members.has_failed(member, lost.failure(&member.place.name));
                }
                step
            }
        };
        self.carry_out(state, step);
    }
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session with the first number without an answer, if a sign of life is due by then.
    pub(crate) fn alive(&self, due: Instant) -> Option<(SessionId, u64)> {
        let state = self.lock();
        (state.alive_due <= due).then(|| (self.id, state.pipeline.first()))
    }

    pub(crate) fn alive_due(&self) -> Instant {
        self.lock().alive_due
    }

    pub(crate) fn is_alive_until(&self, due: Instant) {
        self.lock().alive_due = due;
    }

    /// Whether it needs signs of life.
    pub(crate) fn is_held(&self) -> bool {
        let state = self.lock();
        !state.is_dropped && state.ended.is_none()
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// The members have no such session.
    pub(crate) fn has_expired(&self) {
        self.end(Error::Session { error: SessionError::Expired, kind: Kind::Unknown });
    }

    /// What a command that comes too late is told: it was never sent.
    fn why_ended(&self) -> Error {
        match self.lock().ended.clone() {
            Some(Error::Session { error, .. }) => Error::Session { error, kind: Kind::Refused },
            Some(Error::Call(failure)) => Error::Call(Failure { kind: Kind::Refused, ..failure }),
            Some(error @ Error::Store(_)) => error,
            None => Error::Session { error: SessionError::Expired, kind: Kind::Refused },
        }
    }

    /// Adds a command for which there is room, and sends it if nothing is in its way.
    fn add(&self, bytes: Bytes, kib: usize) -> Result<Pending, Error> {
        let (caller, result) = oneshot::channel();
        let mut state = self.lock();
        if state.ended.is_some() {
            drop(state);
            return Err(self.why_ended());
        }
        if let Some(failure) = state.link.as_ref().and_then(|link| link.refuses(bytes.len())) {
            drop(state);
            self.free(Freed { numbers: 1, kib });
            return Err(failure.into());
        }
        state.pipeline.add(bytes, kib, Instant::now(), caller);
        match state.link.is_some() {
            true => self.send(state),
            false => {
                drop(state);
                self.steering.notify_one();
            }
        }
        Ok(Pending { result })
    }

    /// Sends everything from the cursor on.
    fn send(&self, mut state: MutexGuard<'_, State>) {
        let Some(link) = state.link.clone() else { return };
        let own = self.own.upgrade().expect("it is in use");
        let mut large = None;
        let pipeline = &mut state.pipeline;
        let asked = std::iter::from_fn(|| {
            let (header, command, sending) = pipeline.next_to_send()?;
            if let Some(failure) = link.refuses(command.len()) {
                large = Some((header.number, failure)); // of a member with a lower limit than the one before
                return None;
            }
            let listener = Listener::Of(own.clone(), header.number, sending);
            Some(Asked { ask: Ask::InSession(header, command), listener })
        });
        let sent = link.send(asked);
        let step = match (sent, large) {
            (Err(_), _) => {
                state.pipeline.begin_again();
                Step::Again { pauses: false }
            }
            (Ok(()), Some((number, failure))) => state.pipeline.refused(number, failure),
            (Ok(()), None) => return,
        };
        self.carry_out(state, step);
    }

    fn carry_out(&self, mut state: MutexGuard<'_, State>, step: Step) {
        match step {
            Step::On(freed) => {
                let is_over = state.is_dropped;
                drop(state);
                self.free(freed);
                if 0 < freed.numbers {
                    self.told.notify_waiters();
                    if is_over {
                        self.steering.notify_one();
                    }
                }
            }
            Step::Again { pauses } => {
                let link = state.link.take();
                state.fruitless = state.fruitless.saturating_add(1);
                state.pauses |= pauses || 2 < state.fruitless;
                drop(state);
                drop(link); // perhaps the last handle of its connection
                self.steering.notify_one();
            }
            Step::Over(error) => {
                drop(state);
                self.end(error);
            }
        }
    }

    fn free(&self, freed: Freed) {
        self.numbers.add_permits(freed.numbers);
        self.kib.add_permits(freed.kib);
    }

    fn end(&self, error: Error) {
        let link = {
            let mut state = self.lock();
            state.pipeline.end(&error);
            state.ended.get_or_insert(error);
            state.link.take()
        };
        drop(link);
        self.numbers.close();
        self.kib.close();
        self.told.notify_waiters();
        self.steering.notify_one();
    }

    fn take_hint(&self, state: &State, outcome: &Outcome) {
        if let Outcome::Refused(_, leader) | Outcome::Doubtful(_, leader) = outcome
            && let Some(member) = &state.member
        {
            self.shared.follow(member, leader);
        }
    }

    /// Finds a connection whenever something waits for one, and tells callers when they have waited long enough.
    async fn steer(self: Arc<Live>) {
        while let Some(Look { pause, waits, due }) = self.look(Instant::now()) {
            self.told.notify_waiters();
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            if waits {
                self.begin().await;
                continue;
            }
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.steering.notified() => {}
                () = due => {}
            }
        }
        if self.lock().is_dropped {
            self.end(answer::failure(Kind::Unknown, Code::Cancelled, "the session was dropped", "").into());
        }
    }

    /// What the steering has to do now; `None` is its end.
    fn look(&self, now: Instant) -> Option<Look> {
        let timeout = self.shared.options.timeout;
        let mut state = self.lock();
        let due = state.pipeline.give_up_waiting(now, timeout);
        // What no caller waits for any more is given up with its session.
        if state.ended.is_some() || (state.is_dropped && due.is_none()) {
            return None;
        }
        let is_unanswered = state.link.is_some() && state.pipeline.first() < state.pipeline.told();
        let mut again_at = is_unanswered.then(|| state.begun_at + timeout);
        let stale = match again_at.take_if(|at| *at <= now) {
            // The connection lives, and the answer does not come.
            Some(_) => {
                state.pipeline.begin_again();
                state.link.take()
            }
            None => None,
        };
        let waits = state.link.is_none() && state.pipeline.has_unsent();
        let pauses = std::mem::take(&mut state.pauses);
        let pause = pauses.then(|| self.shared.members.pause(state.fruitless));
        drop(state);
        drop(stale); // perhaps the last handle of its connection
        Some(Look { pause, waits, due: due.into_iter().chain(again_at).min() })
    }

    /// Sends everything without an answer to the leader, or to a member that may know it.
    async fn begin(&self) {
        // Short, so that callers are told in time.
        let until = Instant::now() + self.shared.options.timeout / 4;
        let (member, made) = self.shared.members.to_leader(until).await;
        let Ok(link) = made else { return };
        let mut state = self.lock();
        if state.ended.is_none() {
            (state.link, state.member, state.begun_at) = (Some(link), Some(member), Instant::now());
            self.send(state);
        }
    }
}
