//! Live: a session at work: its window, and the connection that its commands go out on.
//!
//! ```text
//!  caller ─ command ─▶ window ─▶ pipeline ─▶ connection to the leader
//!                        ▲           ▲  │
//!                        └─ answers ─┘  └─ steering: a new connection, and everything without an answer once more
//! ```
//! Rules: 1. While nothing is in the way, a command is sent by its caller: behind all others, under one lock.
//!        2. One task steers a session: while commands go out and answers come it sleeps.
//!        3. After a loss, a refusal or a doubt nothing is sent until the steering has a connection to the leader, or to a member
//!           that may know it. Beginnings without a final answer between them are further and further apart.
//!        4. An answer that does not come, while its connection lives, is asked for again after `timeout`.
//!        5. Weak writes are given only by callers that have said what is done with lost ones, and what is lost is told before
//!           anything waits again.
//!
//! Knows nothing of: frames, sockets, which command is sent again.

use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::level::Level;
use crate::native::answer::{self, Outcome};
use crate::native::ask::Ask;
use crate::native::caller::Caller;
use crate::native::client::{Course, NativeClient, Shared};
use crate::native::connection::Connection;
use crate::native::listener::{Heard, Listen, Listener};
use crate::native::members::Member;
use crate::native::pipeline::{Freed, Next, Pipeline, Step};
use crate::native::weak::{self, LostWrite, OnLost};
use crate::native::window;
use kattu_kv::sessions::{SessionError, SessionId};
use kattu_native::VERSION_WEAK;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Code;

/// Most KiB of commands of one session that have no answer: they are kept to be sent again.
const WINDOW_KIB: usize = window::BYTES_MAX >> 10;

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
    /// What is done with weak writes that are lost.
    on_lost: OnceLock<OnLost>,
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

impl Listen for Live {
    fn heard(self: Arc<Self>, heard: &mut Vec<Heard>) {
        let mut heard = heard.drain(..);
        loop {
            let mut state = self.lock();
            let mut freed = Freed::default();
            let last = heard.by_ref().map(|heard| self.hear(&mut state, heard)).find(|step| match step {
                Step::On(more) => {
                    freed += *more;
                    false
                }
                Step::Again { .. } | Step::Over(_) => true,
            });
            state.pipeline.tell();
            let lost = state.pipeline.take_lost();
            let Some(step) = last else {
                self.carry_out(state, Step::On(freed));
                return self.tell_lost(lost);
            };
            self.carry_out(state, step);
            self.carry_out(self.lock(), Step::On(freed));
            self.tell_lost(lost);
        }
    }
}

impl Live {
    fn hear(&self, state: &mut State, heard: Heard) -> Step {
        let Heard { number, sending, result } = heard;
        match result {
            Ok(answer) => {
                self.level.note_position(answer.index);
                self.take_hint(state, &answer.outcome);
                if matches!(answer.outcome, Outcome::Done(_)) {
                    state.fruitless = 0;
                }
                let State { pipeline, link, .. } = state;
                let endpoint = link.as_ref().map_or("", Connection::endpoint);
                pipeline.answered(number, sending, answer, endpoint)
            }
            Err(lost) => {
                let step = state.pipeline.lost(number, sending);
                if let (Step::Again { .. }, true, Some(member)) = (&step, lost.was_sent(), &state.member) {
                    self.shared.members.has_failed(member, lost.failure(&member.place.name));
                }
                step
            }
        }
    }

    /// A session of this id, nothing of which is under way.
    pub(crate) fn new(
        shared: Arc<Shared>,
        level: Level,
        id: SessionId,
        pipeline: Pipeline,
        window: usize,
        alive_due: Instant,
    ) -> Arc<Live> {
        let state = State {
            pipeline,
            link: None,
            member: None,
            pauses: false,
            fruitless: 0,
            begun_at: Instant::now(),
            ended: None,
            is_dropped: false,
            alive_due,
        };
        Arc::new_cyclic(|own| Live {
            shared,
            level,
            id,
            state: Mutex::new(state),
            numbers: Semaphore::new(window),
            kib: Semaphore::new(WINDOW_KIB),
            steering: Notify::new(),
            told: Notify::new(),
            on_lost: OnceLock::new(),
            own: own.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a command as soon as there is room for it.
    pub(crate) async fn give(&self, bytes: Vec<u8>, caller: Caller) -> Result<(), Error> {
        self.take(bytes, caller, false).await
    }

    /// The same of one whose caller wants a weak answer.
    pub(crate) async fn give_weak(&self, bytes: Vec<u8>, caller: Caller) -> Result<(), Error> {
        if !self.lock().pipeline.is_strict() {
            return Err(weak::needs("weak writes need a strict session: open one with Order::Strict"));
        }
        if self.on_lost.get().is_none() {
            return Err(weak::needs(
                "weak writes may be lost after they are accepted: say first what is done then, with Session::on_lost",
            ));
        }
        self.take(bytes, caller, true).await
    }

    /// The first one says what is done with weak writes that are lost.
    pub(crate) fn on_lost(&self, call: OnLost) -> bool {
        self.on_lost.set(call).is_ok()
    }

    fn tell_lost(&self, lost: Vec<LostWrite>) {
        let Some(call) = self.on_lost.get() else { return };
        lost.into_iter().for_each(call);
    }

    async fn take(&self, bytes: Vec<u8>, caller: Caller, is_weak: bool) -> Result<(), Error> {
        let kib = (bytes.len() / 1024 + 1).min(WINDOW_KIB);
        if !self.has_room(kib) {
            self.wait_for_room(kib).await?;
        }
        self.add(bytes, kib, caller, is_weak)
    }

    /// Takes room in the window, if there is some and no other command waits for it.
    fn has_room(&self, kib: usize) -> bool {
        match (self.numbers.try_acquire(), self.kib.try_acquire_many(kib as u32)) {
            (Ok(number), Ok(kib)) => {
                number.forget();
                kib.forget();
                true
            }
            _ => false,
        }
    }

    async fn wait_for_room(&self, kib: usize) -> Result<(), Error> {
        let deadline = Instant::now() + self.shared.options.timeout;
        let late = || {
            let why = "no room in the session's window in time: its commands have no answers";
            Error::Call(answer::failure(Kind::Unreachable, Code::DeadlineExceeded, why, ""))
        };
        let room = async {
            let number = self.numbers.acquire().await?;
            let kib = self.kib.acquire_many(kib as u32).await?;
            number.forget();
            kib.forget();
            Ok::<_, tokio::sync::AcquireError>(())
        };
        match timeout_at(deadline, room).await {
            Err(_) => Err(late()),
            Ok(Err(_)) => Err(self.why_ended()),
            Ok(Ok(())) => Ok(()),
        }
    }

    /// Waits until the callers of all commands so far know what there is to know.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        let until = self.lock().pipeline.next();
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            told.as_mut().enable();
            {
                let state = self.lock();
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

    /// Ends the session at the members.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        self.shared.call(Course::HARMLESS, Ask::Close(vec![self.id]), self.shared.options.timeout).await?;
        let why = "the session was closed";
        self.end(answer::failure(Kind::Refused, Code::FailedPrecondition, why, "").into());
        Ok(())
    }

    /// Its handle is gone.
    pub(crate) fn leave(&self) {
        self.lock().is_dropped = true;
        self.steering.notify_one();
    }

    /// The client that has opened it.
    pub(crate) fn client(&self) -> NativeClient {
        NativeClient::of(self.shared.clone(), self.level.clone())
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

    /// How often a command was sent that had been sent before.
    pub(crate) fn repeated(&self) -> u64 {
        self.lock().pipeline.repeated()
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
    fn add(&self, bytes: Vec<u8>, kib: usize, caller: Caller, is_weak: bool) -> Result<(), Error> {
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
        state.pipeline.add(bytes, kib, Instant::now(), caller, is_weak);
        match state.link.is_some() {
            true => self.send(state),
            false => {
                drop(state);
                self.steering.notify_one();
            }
        }
        Ok(())
    }

    /// Sends everything from the cursor on.
    fn send(&self, mut state: MutexGuard<'_, State>) {
        let Some(link) = state.link.clone() else { return };
        let own = self.own.upgrade().expect("it is in use");
        let mut refused = None;
        let pipeline = &mut state.pipeline;
        let sent = link.send(|out| {
            while let Some(Next { header, command, sending, is_weak }) = pipeline.next_to_send() {
                // Of a member with a lower limit, or an older version, than the one before.
                let too_old = || {
                    (is_weak && link.welcome().version < VERSION_WEAK)
                        .then(|| answer::not_weak(link.endpoint()))
                };
                if let Some(failure) = link.refuses(command.len()).or_else(too_old) {
                    refused = Some((header.number, failure));
                    return;
                }
                let listener = Listener::Of(own.clone(), header.number, sending);
                let command = Cow::Borrowed(command);
                let ask = if is_weak { Ask::Weak(header, command) } else { Ask::InSession(header, command) };
                let _ = out.add(ask, listener);
            }
        });
        let step = match (sent, refused) {
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
        let (link, lost) = {
            let mut state = self.lock();
            state.pipeline.end(&error);
            state.ended.get_or_insert(error);
            (state.link.take(), state.pipeline.take_lost())
        };
        drop(link);
        self.tell_lost(lost);
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
    pub(crate) async fn steer(self: Arc<Live>) {
        let _steering = Steering(self.clone());
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

/// The steering at work. With its runtime it ends unfinished; then nothing is repeated any more, and callers are told so.
struct Steering(Arc<Live>);

impl Drop for Steering {
    fn drop(&mut self) {
        self.0.end(answer::runtime_ended());
    }
}

fn unanswered() -> Error {
    let why = "a command of the session has no answer yet; it is being repeated";
    Error::Call(answer::failure(Kind::Unknown, Code::DeadlineExceeded, why, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Options;
    use crate::native::answer::Answer;
    use crate::native::desk::Desk;
    use kattu_kv::api::{self, Response, Revision};
    use kattu_kv::sessions::Order;
    use std::task::{Context, Wake, Waker};

    /// Counts the outcomes that are there whenever the pipe is woken.
    struct Woken {
        desk: Arc<Desk>,
        counts: Mutex<Vec<usize>>,
    }

    impl Woken {
        fn look(self: &Arc<Woken>) {
            let mut taken = Vec::new();
            let _ = self.desk.poll(
                &mut Vec::new(),
                &mut taken,
                &mut Context::from_waker(&Waker::from(self.clone())),
            );
            self.counts.lock().expect("no panic").push(taken.len());
        }
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.look();
        }
    }

    #[test]
    fn answers_that_came_together_are_one_turn_of_the_pipe() {
        let options = Options { timeout: Duration::from_secs(5) };
        let client = NativeClient::connect(["127.0.0.1:1"], options, None).expect("an address");
        let desk = Desk::new(client.clone());
        let id = SessionId { number: 7, secret: 1 };
        let mut pipeline = Pipeline::new(id, Order::Strict);
        for label in 0..3 {
            pipeline.add(b"command".to_vec(), 1, Instant::now(), Caller::Of(desk.clone(), label), false);
        }
        while pipeline.next_to_send().is_some() {}
        let live = Live::new(client.shared, Level::Linearizable, id, pipeline, 8, Instant::now());
        let woken = Arc::new(Woken { desk, counts: Mutex::default() });
        woken.look(); // it waits
        let done = |number| {
            let response = Response { revision: Revision(2), answer: api::Answer::Put { prev_kv: None } };
            let outcome = Outcome::Done(Ok(response));
            Heard { number, sending: 1, result: Ok(Answer { index: 0, outcome }) }
        };
        live.heard(&mut (1..=3).map(done).collect());
        assert_eq!(*woken.counts.lock().expect("no panic"), [0, 3]);
    }
}
