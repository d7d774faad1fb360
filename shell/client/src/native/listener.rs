//! Listener: where the answer to a request goes.
//!
//! Knows nothing of: frames, sockets, the caller behind a listener.

use crate::native::answer::{Answer, Lost};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Hears the answers to requests of its own.
pub(crate) trait Listen: Send + Sync + std::fmt::Debug {
    /// What came together, in the order in which it came: takes all of it.
    fn heard(self: Arc<Self>, heard: &mut Vec<Heard>);
}

/// What a listener hears of one request, which is told by two numbers of the listener's choice.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) number: u64,
    pub(crate) sending: u64,
    pub(crate) result: Result<Answer, Lost>,
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Listener {
    /// To one caller.
    Call(oneshot::Sender<Result<Answer, Lost>>),
    /// To one of many that belong together.
    Of(Arc<dyn Listen>, u64, u64),
    /// Nowhere: any sign of the member was wanted.
    Nowhere,
}

impl Listener {
    /// One that hears of the same request, which has more answers than one.
    pub(crate) fn again(&self) -> Option<Listener> {
        match self {
            Listener::Of(listener, number, sending) => {
                Some(Listener::Of(Arc::clone(listener), *number, *sending))
            }
            Listener::Call(_) | Listener::Nowhere => None,
        }
    }
}

/// Tells listeners what has come, each all at once.
#[derive(Default)]
pub(crate) struct Herald {
    listener: Option<Arc<dyn Listen>>,
    heard: Vec<Heard>,
}

impl Herald {
    pub(crate) fn tell(&mut self, listener: Listener, result: Result<Answer, Lost>) {
        match listener {
            Listener::Call(caller) => drop(caller.send(result)), // a caller that is gone needs no answer
            Listener::Of(listener, number, sending) => {
                if !self.listener.as_ref().is_some_and(|told| Arc::ptr_eq(told, &listener)) {
                    self.end();
                    self.listener = Some(listener);
                }
                self.heard.push(Heard { number, sending, result });
            }
            Listener::Nowhere => {}
        }
    }

    /// Keeps nothing back.
    pub(crate) fn end(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.heard(&mut self.heard);
            self.heard.clear();
        }
    }
}
