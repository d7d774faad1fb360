//! Caller: where the outcome of one request goes.
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

impl Caller {
    pub(crate) fn tell(self, outcome: Outcomes) {
        match self {
            Caller::One(caller) => drop(caller.send(outcome)), // a caller that is gone needs no outcome
            Caller::Of(desk, label) => desk.put(label, outcome),
        }
    }
}
