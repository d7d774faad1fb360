//! Caller: where the outcome of one request goes.
//!
//! Outcomes that come together, one behind the other, for callers of one desk are put there together.
//!
//! Knows nothing of: requests, how they are repeated.

use crate::native::answer::Outcomes;
use crate::native::desk::Desk;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Waits for the outcome of a request.
#[derive(Debug)]
pub(crate) enum Caller {
    /// For this one alone.
    One(oneshot::Sender<Outcomes>),
    /// For many, of which this one has a label.
    Of(Arc<Desk>, u64),
}

/// Tells callers their outcomes, those of one desk together.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    desk: Option<Arc<Desk>>,
    outcomes: Vec<(u64, Outcomes)>,
}

impl Teller {
    pub(crate) fn tell(&mut self, caller: Caller, outcome: Outcomes) {
        match caller {
            Caller::One(caller) => drop(caller.send(outcome)), // a caller that is gone needs no outcome
            Caller::Of(desk, label) => {
                if !self.desk.as_ref().is_some_and(|told| Arc::ptr_eq(told, &desk)) {
                    self.end();
                    self.desk = Some(desk);
                }
                self.outcomes.push((label, outcome));
            }
        }
    }

    /// Keeps nothing back.
    pub(crate) fn end(&mut self) {
        if let Some(desk) = self.desk.take() {
            desk.put(&mut self.outcomes);
        }
    }
}
