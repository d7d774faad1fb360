//! Desk: where the outcomes for one caller of many requests come together, and where its requests outside of sessions wait.
//!
//! ```text
//!  pipe ─ request ─▶ slot ─▶ connection ─▶ answer ─▶ outcome ─▶ pipe
//!                                     └─ to be repeated: a task of its own ─┘
//! ```
//! Rules: 1. The first attempt of a request takes a slot, and no task and no timer: most need only this one.
//!        2. Whatever is not over after it goes on by the rules of `client`, in a task of its own.
//!        3. An answer that does not come in time is found missing by the pipe, while it waits.
//!        4. Outside of sessions, too, a caller has a window: [`WINDOW`] requests, and 64 MiB of them, are without an outcome.
//!
//! Knows nothing of: frames, sessions.

use crate::failure::Failure;
use crate::native::answer::{Answer, Lost, Outcomes};
use crate::native::ask::Ask;
use crate::native::calls::Wanted;
use crate::native::client::{Attempt, Course, NativeClient, Turn};
use crate::native::listener::{Heard, Listen, Listener};
use crate::native::members::Member;
use crate::native::under_way::UnderWay;
use kattu_kv::sessions::WINDOW;
use std::mem::swap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Most bytes of requests without an outcome; one request always passes.
const WINDOW_BYTES: usize = 64 << 20;

/// What a pipe, the tasks of connections and those of repeated requests share.
#[derive(Debug)]
pub(crate) struct Desk {
    client: NativeClient,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Those that the pipe has not taken yet.
    outcomes: Vec<(u64, Outcomes)>,
    /// Of the pipe, if it waits.
    waker: Option<Waker>,
    /// Requests in their first attempt.
    slots: UnderWay<Sent>,
    /// Requests outside of sessions without an outcome, and their bytes.
    open: usize,
    open_bytes: usize,
    /// When the first of them was asked that `due` does not know of.
    fresh: Option<Instant>,
    /// No other is to be given up before.
    due: Option<Instant>,
}

/// A request of which more attempts may be made.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) label: u64,
    pub(crate) course: Course,
    pub(crate) ask: Ask<'static>,
    pub(crate) wanted: Wanted,
    pub(crate) asked_at: Instant,
}

/// One that was sent.
#[derive(Debug)]
struct Sent {
    slot: Slot,
    member: Arc<Member>,
}

impl State {
    /// A request of so many bytes outside of sessions has its outcome.
    fn close(&mut self, bytes: usize) {
        self.open -= 1;
        self.open_bytes -= bytes;
    }

    /// The pipe waits, and is to call [`Desk::expire`] at the returned moment, if there is one. No first attempt is given up
    /// before it has had `harmless`; others have longer.
    fn wait(&mut self, harmless: Duration, context: &mut Context<'_>) -> Option<Instant> {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        if let Some(asked_at) = self.fresh.take() {
            let due = asked_at + harmless;
            self.due = Some(self.due.map_or(due, |known| known.min(due)));
        }
        self.due
    }
}

impl Desk {
    pub(crate) fn new(client: NativeClient) -> Arc<Desk> {
        let state = State {
            outcomes: Vec::new(),
            waker: None,
            slots: UnderWay::new(),
            open: 0,
            open_bytes: 0,
            fresh: None,
            due: None,
        };
        Arc::new(Desk { client, state: Mutex::new(state) })
    }

    pub(crate) fn client(&self) -> &NativeClient {
        &self.client
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an outcome of a command in a session.
    pub(crate) fn put(&self, label: u64, outcome: Outcomes) {
        self.take(label, outcome, |_| ());
    }

    /// Takes the outcome of a request of so many bytes outside of sessions.
    fn close(&self, label: u64, bytes: usize, outcome: Outcomes) {
        self.take(label, outcome, |state| state.close(bytes));
    }

    fn take(&self, label: u64, outcome: Outcomes, note: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.lock();
            note(&mut state);
            state.outcomes.push((label, outcome));
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Makes the first attempt of a request. The caller has waited for room.
    pub(crate) fn send(self: &Arc<Desk>, slot: Slot) {
        let bytes = slot.ask.bytes();
        {
            let mut state = self.lock();
            state.open += 1;
            state.open_bytes += bytes;
        }
        let shared = &self.client.shared;
        let at_hand = match slot.course.to_leader {
            true => shared.members.leader_at_hand(),
            false => shared.members.next_at_hand(),
        };
        let Some((member, connection)) = at_hand else { return self.go_on(slot, None) };
        if let Some(failure) = connection.refuses(slot.ask.bytes()) {
            return self.close(slot.label, bytes, Err(failure.into()));
        }
        let mut state = self.lock();
        state.fresh.get_or_insert(slot.asked_at);
        let name = state.slots.hold(Sent { slot, member });
        let ask = state.slots.get(name).expect("it is held").slot.ask.again();
        if connection.send(|out| out.add(ask, Listener::Of(self.clone(), name, 0))).is_err() {
            let Sent { slot, .. } = state.slots.take(name).expect("it is held");
            drop(state);
            self.go_on(slot, None); // on another connection
        }
    }

    /// Goes on with a request, perhaps after an attempt that has failed.
    fn go_on(self: &Arc<Desk>, slot: Slot, failed: Option<Attempt>) {
        let desk = self.clone();
        tokio::spawn(async move {
            let Slot { label, course, ask, wanted, asked_at } = slot;
            let (bytes, deadline) = (ask.bytes(), asked_at + desk.client.timeout());
            let result = desk.client.shared.go_on(course, ask, deadline, desk.share(course), failed).await;
            desk.close(label, bytes, desk.outcome(wanted, result));
        });
    }

    /// How long one attempt may take.
    fn share(&self, course: Course) -> Duration {
        self.client.shared.share(course, self.client.timeout())
    }

    fn outcome(&self, wanted: Wanted, result: Result<Answer, Failure>) -> Outcomes {
        wanted.of(self.client.result_of(result)?)
    }

    /// Takes outcomes, if there are any; else this waits for them. `Err` tells when [`Desk::expire`] is to be called, if it is.
    pub(crate) fn poll(
        &self,
        taken: &mut Vec<(u64, Outcomes)>,
        context: &mut Context<'_>,
    ) -> Result<(), Option<Instant>> {
        let mut state = self.lock();
        if !state.outcomes.is_empty() {
            swap(&mut state.outcomes, taken);
            return Ok(());
        }
        Err(state.wait(self.share(Course::HARMLESS), context))
    }

    /// Waits until there is room for one more request. `Err` as of [`Desk::poll`].
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Result<(), Option<Instant>> {
        let mut state = self.lock();
        if state.open < WINDOW as usize && (state.open == 0 || state.open_bytes < WINDOW_BYTES) {
            return Ok(());
        }
        Err(state.wait(self.share(Course::HARMLESS), context))
    }

    /// Gives up first attempts that have no answer in time.
    pub(crate) fn expire(self: &Arc<Desk>, now: Instant) {
        let late = |name| {
            let result = Err(Lost { was_sent: true, why: "no answer in time".into() });
            Heard { number: name, sending: 0, result }
        };
        let mut heard = Vec::new();
        let shares = [Course::WRITE, Course::HARMLESS].map(|course| self.share(course));
        {
            let mut state = self.lock();
            let due = |slot: &Slot| slot.asked_at + shares[usize::from(slot.course.is_harmless)];
            let dues = || state.slots.iter().map(|(name, sent)| (name, due(&sent.slot)));
            heard.extend(dues().filter(|(_, due)| *due <= now).map(|(name, _)| late(name)));
            state.due = dues().map(|(_, due)| due).filter(|due| now < *due).min();
        }
        self.clone().heard(&mut heard);
    }
}

impl Listen for Desk {
    fn heard(self: Arc<Self>, heard: &mut Vec<Heard>) {
        let mut again = Vec::new();
        let waker = {
            let mut state = self.lock();
            for Heard { number, result, .. } in heard.drain(..) {
                // One whose time was over goes on already.
                let Some(Sent { slot, member, .. }) = state.slots.take(number) else { continue };
                match self.client.shared.judge(slot.course, &member, result) {
                    Turn::Over(result) => {
                        state.close(slot.ask.bytes());
                        state.outcomes.push((slot.label, self.outcome(slot.wanted, result)));
                    }
                    Turn::Again(attempt) => again.push((slot, attempt)),
                }
            }
            if state.outcomes.is_empty() { None } else { state.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        again.into_iter().for_each(|(slot, attempt)| self.go_on(slot, Some(attempt)));
    }
}
