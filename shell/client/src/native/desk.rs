//! Desk: where the outcomes for one caller of many requests come together, and where its requests outside of sessions wait.
//!
//! ```text
//!  pipe ─ request ─▶ slot ─▶ connection ─▶ answer ─▶ outcome ─▶ pipe
//!                                     └─ to be repeated: a task of its own ─┘
//! ```
//! Rules: 1. The first attempt of a request takes a slot, and no task and no timer: most need only this one.
//!        2. Whatever is not over after it goes on by the rules of `client`, in a task of its own.
//!        3. An answer that does not come in time is found missing by the pipe, while it waits. A request that still waits
//!           for its turn on the connection is withdrawn: it had no effect, and says nothing about the member.
//!        4. Outside of sessions, too, a caller has a [`window`].
//!
//! Knows nothing of: frames, sessions.

use crate::failure::Failure;
use crate::native::answer::{Answer, Lost, Outcomes};
use crate::native::ask::Ask;
use crate::native::calls::Wanted;
use crate::native::client::{Attempt, Course, NativeClient, Turn};
use crate::native::listener::{Heard, Listen, Listener};
use crate::native::members::Member;
use crate::native::outbox::Place;
use crate::native::under_way::UnderWay;
use crate::native::window;
use std::mem::swap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::Instant;

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
    /// The same of weak puts that a quorum has received: their labels.
    received: Vec<u64>,
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

/// One that was given to a connection.
#[derive(Debug)]
struct Sent {
    slot: Slot,
    member: Arc<Member>,
    /// Where it waits for its turn, if it did not have it at once.
    place: Option<Place>,
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
            received: Vec::new(),
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

    /// Takes news of commands in a session, under their labels: those that a quorum has received, and outcomes; all of them.
    pub(crate) fn put(&self, received: &mut Vec<u64>, outcomes: &mut Vec<(u64, Outcomes)>) {
        self.take(|state| {
            state.received.append(received);
            match state.outcomes.is_empty() {
                true => swap(&mut state.outcomes, outcomes),
                false => state.outcomes.append(outcomes),
            }
        });
    }

    /// Takes the outcome of a request of so many bytes outside of sessions.
    fn close(&self, label: u64, bytes: usize, outcome: Outcomes) {
        self.take(|state| {
            state.close(bytes);
            state.outcomes.push((label, outcome));
        });
    }

    fn take(&self, note: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.lock();
            note(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Makes the first attempt of a request. The caller has waited for room.
    pub(crate) fn send(self: &Arc<Desk>, slot: Slot) {
        let bytes = slot.ask.bytes();
        let members = &self.client.shared.members;
        let at_hand = match slot.course.to_leader {
            true => members.leader_at_hand(),
            false => members.next_at_hand(),
        };
        let mut state = self.lock();
        state.open += 1;
        state.open_bytes += bytes;
        let Some((member, connection)) = at_hand else {
            drop(state);
            return self.go_on(slot, None);
        };
        if let Some(failure) = connection.refuses(bytes) {
            drop(state);
            return self.close(slot.label, bytes, Err(failure.into()));
        }
        state.fresh.get_or_insert(slot.asked_at);
        let name = state.slots.hold(Sent { slot, member, place: None });
        let sent = state.slots.get_mut(name).expect("it is held");
        match connection.ask(sent.slot.ask.again(), Listener::Of(self.clone(), name, 0)) {
            Ok(place) => sent.place = place,
            Err(_) => {
                let Sent { slot, .. } = state.slots.take(name).expect("it is held");
                drop(state);
                self.go_on(slot, None); // on another connection
            }
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
        received: &mut Vec<u64>,
        taken: &mut Vec<(u64, Outcomes)>,
        context: &mut Context<'_>,
    ) -> Result<(), Option<Instant>> {
        let mut state = self.lock();
        if !state.outcomes.is_empty() || !state.received.is_empty() {
            swap(&mut state.outcomes, taken);
            received.append(&mut state.received);
            return Ok(());
        }
        Err(state.wait(self.share(Course::HARMLESS), context))
    }

    /// Waits until there is room for one more request. `Err` as of [`Desk::poll`].
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Result<(), Option<Instant>> {
        let mut state = self.lock();
        if state.open < window::REQUESTS_MAX && (state.open == 0 || state.open_bytes < window::BYTES_MAX) {
            return Ok(());
        }
        Err(state.wait(self.share(Course::HARMLESS), context))
    }

    /// Gives up first attempts that have no answer in time.
    pub(crate) fn expire(self: &Arc<Desk>, now: Instant) {
        let late = |(name, sent): (u64, &Sent)| Heard {
            number: name,
            sending: 0,
            result: Err(Lost::late(sent.place.as_ref())),
        };
        let mut heard = Vec::new();
        let shares = [Course::WRITE, Course::HARMLESS].map(|course| self.share(course));
        {
            let mut state = self.lock();
            let due = |slot: &Slot| slot.asked_at + shares[usize::from(slot.course.is_harmless)];
            heard.extend(state.slots.iter().filter(|(_, sent)| due(&sent.slot) <= now).map(late));
            state.due = state.slots.iter().map(|(_, sent)| due(&sent.slot)).filter(|due| now < *due).min();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Options;
    use crate::failure::Kind;
    use crate::native::connection::{Connection, Limits};
    use kattu_native::handshake::{Leader, Welcome};
    use kattu_native::message;
    use tokio::io::DuplexStream;

    const TIMEOUT: Duration = Duration::from_secs(6);

    /// A client with a connection to the leader, which has room for one request; and the leader's end of it.
    fn client() -> (NativeClient, DuplexStream) {
        let endpoints = ["127.0.0.1:1", "127.0.0.1:2"];
        let client = NativeClient::connect(endpoints, Options { timeout: TIMEOUT }, None).expect("addresses");
        let (socket, leader) = tokio::io::duplex(1 << 16);
        let welcome = Welcome {
            cluster: 1,
            member: 1,
            leader: Leader { id: 1, url: endpoints[0].into() },
            frame_bytes_max: 1 << 20,
            answer_bytes_max: 1 << 20,
            requests_max: 2,
            ..Welcome::default()
        };
        let connection =
            Connection::start(socket, welcome, Vec::new(), "here", Limits { silence: 3 * TIMEOUT });
        let members = &client.shared.members;
        members.note(&Leader { id: 0, url: endpoints[0].into() });
        members.has_connected(&members.leader(), connection).expect("it is the first");
        (client, leader)
    }

    fn slot(label: u64, course: Course) -> Slot {
        let ask = match course.is_harmless {
            true => Ask::Read(message::Level::Linearizable, vec![0].into()),
            false => Ask::Write(vec![0].into()),
        };
        Slot { label, course, ask, wanted: Wanted::Put, asked_at: Instant::now() }
    }

    fn outcomes(desk: &Desk) -> Vec<(u64, Kind)> {
        let mut taken = Vec::new();
        let _ = desk.poll(&mut Vec::new(), &mut taken, &mut Context::from_waker(Waker::noop()));
        taken.into_iter().map(|(label, outcome)| (label, outcome.expect_err("no answer").kind())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_never_sent_is_no_failure_of_the_member_and_is_not_sent_later() {
        let (client, _leader) = client();
        let desk = Desk::new(client.clone());
        let has_leader = || client.shared.members.leader_at_hand().is_some();
        desk.send(slot(1, Course::WRITE)); // it has the only place
        desk.send(slot(2, Course::WRITE));
        desk.send(slot(3, Course::HARMLESS));
        tokio::time::advance(desk.share(Course::HARMLESS)).await;
        desk.expire(Instant::now());
        assert!(has_leader(), "the read has waited for its turn");
        tokio::time::advance(TIMEOUT - desk.share(Course::HARMLESS)).await;
        assert!(has_leader());
        desk.expire(Instant::now());
        assert!(!has_leader(), "the first was sent, and has no answer");
        while desk.lock().open != 0 {
            tokio::task::yield_now().await;
        }
        let mut outcomes = outcomes(&desk);
        outcomes.sort_unstable_by_key(|(label, _)| *label);
        assert_eq!(outcomes, [(1, Kind::Unknown), (2, Kind::Unreachable), (3, Kind::Unreachable)]);
    }
}
