//! Log moves: when a log that is written on the node's thread goes to a thread of its own, and when it comes home. [decision 32]
//!
//! ```text
//!            a sync took longer than a heartbeat
//!   inline ──────────────────────────────────────▶ thread
//!      ▲                                              │ enough quick syncs: orders wait here,
//!      └──── all is done, the thread gives the log ───┘ and are carried out inline, in their order
//! ```
//! Rules: 1. A log leaves after a slow sync, and not because its disk is full. [fault-model F12, F17]
//!        2. It comes home after [`WELL_SYNCS`] quick syncs in a row. They are counted, not timed; a disk at the edge does not move it
//!           to and fro.
//!           An operator may want it on a thread always, or back. [`crate::tuning`]
//!        3. Once called it comes home, however slow the disk is meanwhile: the orders that wait are given to nothing else. It moves
//!           when everything ordered before is done, so that completions keep the order of their orders.
//! Knows nothing of: threads, channels, clocks.

use crate::log::{Completion, Log};
use crate::log_orders::{Order, Underway};
use kattu_raft::Duration;
use std::collections::VecDeque;

/// On a thread, a sync is quick if it took at most this part of the time that sends a log there.
const QUICK_PART: u32 = 4;
/// Quick syncs in a row that bring a log home: seconds of load, and more than a disk has between two stalls of a series.
pub const WELL_SYNCS: u32 = 256;

/// When a log moves. Without one it stays where it is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A sync that takes longer sends an inline log to a thread.
    pub sync_max: Duration,
    /// Quick syncs in a row that bring it home.
    pub well_syncs: u32,
}

impl Patience {
    /// A leader that sits in a sync for longer than a heartbeat loses its followers.
    #[must_use]
    pub fn of(heartbeat_interval: Duration) -> Patience {
        Patience { sync_max: heartbeat_interval, well_syncs: WELL_SYNCS }
    }

    /// Goes by another heartbeat interval from now on.
    pub fn follow(&mut self, heartbeat_interval: Duration) {
        self.sync_max = heartbeat_interval;
    }

    /// Whether an inline log moves to a thread after a sync that took so long. [Rule 1]
    #[must_use]
    pub fn sends_away(&self, log: &Log, took: Duration) -> bool {
        self.sync_max < took && !log.is_blocked()
    }
}

/// What the node's thread knows of a log on another.
#[derive(Debug, Default)]
pub struct Absence {
    underway: Underway,
    /// Readings by the log itself that are under way.
    fetching: usize,
    /// Syncs in a row that were quick.
    quick: u32,
    /// Orders since the log was called home, oldest first.
    waiting: Option<VecDeque<Order>>,
}

impl Absence {
    /// Takes an order. Returns it if it is for the thread; otherwise it waits for the log to come home.
    #[must_use]
    pub fn order(&mut self, order: Order) -> Option<Order> {
        if let Some(waiting) = &mut self.waiting {
            waiting.push_back(order);
            return None;
        }
        match &order {
            Order::Persist(records) => self.underway.ordered(records),
            Order::Fetch(_) => self.fetching += 1,
            Order::Batch(_) | Order::FetchBeside(_) | Order::Look | Order::Return | Order::Close => {}
        }
        Some(order)
    }

    /// Takes note of what the thread has told, and corrects its free space.
    pub fn completed(&mut self, completion: Completion, patience: Option<Patience>) -> Completion {
        match &completion {
            Completion::Persisted(_, _, Some(took)) => {
                let is_quick = patience.is_some_and(|patience| *took <= patience.sync_max / QUICK_PART);
                self.quick = if is_quick { self.quick + 1 } else { 0 };
            }
            Completion::Fetched(..) => self.fetching -= 1,
            Completion::Persisted(..) | Completion::Room(_) => {}
        }
        self.told_before(completion)
    }

    /// Takes note of a result from before the log left, of which only the free space is corrected.
    pub fn told_before(&mut self, completion: Completion) -> Completion {
        let waiting = self.waiting.iter().flatten().map(Order::bytes).sum();
        self.underway.less(completion, waiting)
    }

    /// Calls the log home, however quick its disk is. [Rule 3]
    pub fn call_home(&mut self) {
        self.waiting.get_or_insert_default();
    }

    /// Syncs in a row that were quick, as far as the thread has told.
    #[must_use]
    pub fn quick_syncs(&self) -> u32 {
        self.quick
    }

    /// Whether the log comes home now. It may be called home by this: then orders wait from here on. [Rules 2, 3]
    pub fn comes_home(&mut self, patience: Option<Patience>) -> bool {
        let is_well = patience.is_some_and(|patience| patience.well_syncs <= self.quick);
        if is_well {
            self.waiting.get_or_insert_default();
        }
        self.waiting.is_some() && self.underway.is_empty() && self.fetching == 0
    }

    /// The orders that wait for the log, oldest first.
    pub fn into_waiting(self) -> impl Iterator<Item = Order> {
        self.waiting.into_iter().flatten()
    }
}
