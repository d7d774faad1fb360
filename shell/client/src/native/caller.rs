//! Caller: where the outcome of one request goes.
//!
//! Outcomes that come together, one behind the other, for callers of one desk are put there together.
//!
//! Knows nothing of: requests, how they are repeated.

use crate::error::Error;
use crate::native::answer::Outcomes;
use crate::native::desk::Desk;
use crate::native::weak::Accepted;
use kattu_raft::EntryId;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Waits for the outcome of a request.
#[derive(Debug)]
pub(crate) enum Caller {
    /// For this one alone.
    One(oneshot::Sender<Outcomes>),
    /// For this one alone, which goes on as soon as a quorum has received its command.
    Weak(oneshot::Sender<Result<Accepted, Error>>),
    /// For many, of which this one has a label.
    Of(Arc<Desk>, u64),
}

/// Tells callers their outcomes, those of one desk together.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    desk: Option<Arc<Desk>>,
    /// Labels of commands that a quorum has received.
    received: Vec<u64>,
    outcomes: Vec<(u64, Outcomes)>,
}

impl Teller {
    pub(crate) fn tell(&mut self, caller: Caller, outcome: Outcomes) {
        match caller {
            Caller::One(caller) => drop(caller.send(outcome)), // a caller that is gone needs no outcome
            Caller::Weak(caller) => drop(caller.send(outcome.map(Accepted::Done))),
            Caller::Of(desk, label) => {
                self.turn_to(desk);
                self.outcomes.push((label, outcome));
            }
        }
    }

    /// A quorum has received the command of this caller. Returns the caller if it waits for the outcome still.
    pub(crate) fn tell_received(&mut self, caller: Caller, id: EntryId) -> Option<Caller> {
        match caller {
            Caller::Weak(caller) => {
                drop(caller.send(Ok(Accepted::Received(id))));
                None
            }
            Caller::Of(desk, label) => {
                self.turn_to(desk.clone());
                self.received.push(label);
                Some(Caller::Of(desk, label))
            }
            Caller::One(_) => Some(caller),
        }
    }

    fn turn_to(&mut self, desk: Arc<Desk>) {
        if !self.desk.as_ref().is_some_and(|told| Arc::ptr_eq(told, &desk)) {
            self.end();
            self.desk = Some(desk);
        }
    }

    /// Keeps nothing back.
    pub(crate) fn end(&mut self) {
        if let Some(desk) = self.desk.take() {
            desk.put(&mut self.received, &mut self.outcomes);
        }
    }
}
