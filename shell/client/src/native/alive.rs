//! Signs of life: those of all sessions of one client, gathered into few requests.
//!
//! Rules: 1. A sign of life is due a third of the idle time after the last one: two may be lost. [replication-protocols X6]
//!        2. A session that was never used ends after a minute: its first sign is due after a third of that.
//!        3. Signs that are due soon go with those that are due: at most [`NAMED_MAX`] sessions in a request.
//!        4. A session that the members do not have is over, whatever its caller does.
//!        5. One task for a client, from its first session on; it ends with the client, or with its last session.
//!
//! Knows nothing of: commands, windows.

use crate::native::answer::Outcome;
use crate::native::ask::Ask;
use crate::native::client::{Course, Shared};
use crate::native::live::Live;
use kattu_kv::sessions::{NAMED_MAX, UNUSED};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The sessions of one client that need signs of life.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    state: Mutex<State>,
    /// Wakes the task: a session was added whose sign is due sooner.
    added: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    sessions: Vec<Weak<Live>>,
    /// As a member told it last.
    idle: Duration,
    /// Until when the task sleeps; `None` without a task.
    sleeps_until: Option<Instant>,
}

impl Alive {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long after its opening the first sign of life of a session is due.
    pub(crate) fn first_due(&self, idle: Duration) -> Duration {
        idle.min(UNUSED) / 3
    }

    /// A session was opened.
    pub(crate) fn add(&self, shared: &Arc<Shared>, live: &Arc<Live>, idle: Duration) {
        let due = live.alive_due();
        let mut state = self.lock();
        state.idle = idle;
        state.sessions.push(Arc::downgrade(live));
        match state.sleeps_until {
            None => drop(tokio::spawn(keep_alive(Arc::downgrade(shared), self.added.clone()))),
            Some(until) if due < until => self.added.notify_one(),
            Some(_) => return, // the task looks at all of them when it wakes
        }
        state.sleeps_until = Some(due);
    }

    /// The sessions that are held, and when the first sign of life is due; the end of the task if there is none.
    fn held(&self) -> Option<(Vec<Arc<Live>>, Instant, Duration)> {
        let mut state = self.lock();
        let held: Vec<_> =
            state.sessions.iter().filter_map(Weak::upgrade).filter(|live| live.is_held()).collect();
        state.sessions = held.iter().map(Arc::downgrade).collect();
        let due = held.iter().map(|live| live.alive_due()).min();
        state.sleeps_until = due;
        due.map(|due| (held, due, state.idle))
    }
}

async fn keep_alive(client: Weak<Shared>, added: Arc<Notify>) {
    loop {
        let Some(shared) = client.upgrade() else { return };
        let Some((held, due, idle)) = shared.alive.held() else { return };
        if Instant::now() < due {
            drop((shared, held)); // a client that is gone must not wait for this
            tokio::select! {
                () = sleep_until(due) => {}
                () = added.notified() => {}
            }
            continue;
        }
        let now = Instant::now();
        let soon = now + idle / 12;
        let signs: Vec<_> = held.iter().filter_map(|live| Some((live, live.alive(soon)?))).collect();
        for signs in signs.chunks(NAMED_MAX) {
            let named = signs.iter().map(|(_, sign)| *sign).collect();
            // A sign that takes longer is overtaken by the next.
            let timeout = shared.options.timeout.min(idle / 3);
            let answer = shared.call(Course::HARMLESS, Ask::KeepAlive(named), timeout).await;
            let told = answer.ok().and_then(|answer| match answer.outcome {
                Outcome::Named { idle, gone } => Some((idle, gone)),
                _ => None,
            });
            let Some((idle, gone)) = told else {
                // Soon again; the call has taken its time.
                let due = Instant::now() + shared.members.pause(3);
                signs.iter().for_each(|(live, _)| live.is_alive_until(due));
                continue;
            };
            shared.alive.lock().idle = idle;
            for (live, _) in signs {
                match gone.contains(&live.id()) {
                    true => live.has_expired(),
                    false => live.is_alive_until(now + idle / 3),
                }
            }
        }
    }
}
