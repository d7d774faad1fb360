//! Step: what a member has its executor do, count and tell, and how much goes into one batch.
//!
//! Knows nothing of: when a step comes.

use crate::apply::{Apart, Batch};
use crate::snapshots::Order;
use crate::tuning::Tuning;
use kattu_node::Keeper;
use kattu_node::alarms::Alarm;
use kattu_node::compare::Health;
use kattu_node::contract::{Members, Outcome, PeerMessage, Ticket};
use kattu_raft::{Duration, EntryId, Falsehood, Fetch, Job, LogIndex, LogRecord, NodeId, Timing, Trace};

/// How much goes into one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client calls taken into one batch; the rest waits for the next.
    pub calls: usize,
    /// Pieces of the log read back in one batch. [member, Rule 4]
    pub fetches: usize,
    /// Units of work in one slice of the keeper's. [core/kv `cost`]
    pub slice: i64,
    /// Tasks that may wait for a keeper; beyond it clients are refused until it has caught up.
    pub tasks: usize,
}

/// As in production: a slice is as much as a thousand puts, a small part of a heartbeat interval.
pub const LIMITS: Limits = Limits { calls: 4096, fetches: 1, slice: 8 << 10, tasks: 1 << 16 };

/// Requests that may wait in front of a replica. Beyond it callers are refused at once.
pub const CALLS_MAX: usize = 1 << 16;

/// Units of work that a stopping process still does for waiting clients: half of what one request may cost. A client without an
/// answer by then learns that the outcome is unknown.
pub const FINISH_UNITS: i64 = 4 << 20;

/// What the executor is to do next.
pub enum Step<'a, C> {
    /// Publish that the log is committed up to here [member, Rule 2], and send these messages, in order. Forwarded writes that could not
    /// leave come back by [`Member::unsent`](crate::member::Member::unsent).
    Send(LogIndex, &'a mut Vec<PeerMessage>),
    /// Answer a client.
    Answer(C, Outcome),
    /// Tell a client something that is not its final answer, if it still waits: [`Member::client`](crate::member::Member::client).
    Tell(Ticket, Outcome),
    /// A client was answered twice: the replica contradicts itself.
    Unclaimed(Ticket, Outcome),
    /// Hand tasks or tables to the keeper on its thread.
    Deliver(Batch<C>),
    /// Link and admit the members of this table.
    Members(Box<Members>),
    /// Go by this timing from now on: another configuration is in force. What a member measures by it besides its replica are
    /// the time that sends its log to a thread, the longest pause between dials, and how long a removed member is still linked.
    Timing(Timing),
    /// Write the log, and add delays, as this tuning says from now on; the rest is the member's.
    Tune(Box<Tuning>),
    /// Give this desk a thread of its own. If there is none to be had, it stays: [`Member::stays`](crate::member::Member::stays).
    Part(Box<Apart<C>>),
    /// The desk's thread is to end: [`Batch::Return`] behind what it has. Its last report has the desk.
    Recall,
    /// Cut off a peer that sent what no correct member sends; it may connect again and begin anew.
    Distrust(NodeId, Falsehood),
    /// Tell the operator.
    Note(Note),
    /// Give the worker of snapshots an order.
    Order(Order),
    /// Do this job on another thread. Its result comes back as [`Event::Computed`](kattu_node::contract::Event::Computed) among the
    /// events of peers; results may come in any order. Not before it is back is another job given out in its place.
    /// [`crate::computing`]
    Compute(Job),
    /// Drop tables that are no longer needed, where no work waits for it: it takes a while.
    Drop(Box<Keeper>),
    /// Write and sync these records; without records, try again what a full disk has refused.
    Persist {
        /// In order.
        records: &'a mut Vec<LogRecord>,
        /// Clients were answered just now: let the answers leave before the thread blocks. [member, Rule 1]
        answered: bool,
    },
    /// Read entries back.
    Fetch(Fetch),
    /// Nothing is left of this batch.
    Idle,
}

/// What the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// What the protocol has come to.
    Trace(Trace),
    /// An alarm was raised.
    Raised(Alarm),
    /// An alarm was cleared.
    Cleared(Alarm),
    /// The cluster's feature level is this now.
    Level(u16),
    /// The log of a member that had lost its end has grown back to it. [fault-model ST7]
    Whole(EntryId),
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches.
    pub batches: u64,
    /// Events of peers.
    pub events: u64,
    /// Requests taken in.
    pub requests: u64,
    /// Requests that were not begun, because their client had gone.
    pub abandoned: u64,
    /// Requests refused, or with an unknown outcome; reads that came together count once.
    pub failed: u64,
    /// Entries given to the keeper.
    pub applied_entries: u64,
    /// Units of work of a keeper on this thread, and the most of one slice.
    pub work_units: u64,
    /// See [`Counts::work_units`].
    pub slice_units_max: u64,
    /// Requests refused because they cost more than one may.
    pub refused_for_work: u64,
    /// The longest time that the timer was late.
    pub late_max: Duration,
}

/// Where the batch stands: what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing to carry out.
    Idle,
    /// See [`Step::Send`].
    Send,
    /// Answers of the node.
    Answer,
    /// Tasks go to the keeper, and one on this thread works.
    Apply,
    /// What the keeper and the node have told.
    Tell,
    /// Orders for the worker of snapshots.
    Order,
    /// See [`Step::Compute`].
    Compute,
    /// See [`Step::Persist`].
    Persist,
    /// See [`Step::Fetch`].
    Fetch,
    /// Another round, if there is news.
    Next,
    /// The member has stopped.
    Stopped,
}

/// A keeper at the start of its member.
pub enum Placed {
    /// It sits on the node's thread.
    Here(Box<Keeper>),
    /// It sits on a thread of its own; its tables say this of members and of alarms.
    Apart(Members, Health),
}
