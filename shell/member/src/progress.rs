//! Progress: what a keeper reports to the replica beside its answers.
//!
//! Knows nothing of: where the keeper is, clients.

use crate::apply::Apart;
use kattu_node::compare::Health;
use kattu_node::contract::{Admitted, Members, Outcome, Standing, Ticket};
use kattu_raft::LogIndex;

/// How far the keeper has come.
pub struct Progress<C> {
    /// Highest index applied, if anything was.
    pub applied: Option<LogIndex>,
    /// Bytes the store holds.
    pub store_bytes: u64,
    /// Whether a copy of the tables is held.
    pub store_pinned: bool,
    /// The table of members, if it has changed.
    pub members: Option<Box<Members>>,
    /// What the tables say of alarms and digests, if that has changed.
    pub health: Option<Box<Health>>,
    /// Answers to clients that wait with the replica: their tasks were on the desk when it got its thread.
    pub answers: Vec<(Ticket, Outcome)>,
    /// Commands that may be proposed; from another thread with their waiting clients.
    pub admitted: Vec<(Admitted, Option<C>)>,
    /// How far sessions are.
    pub standings: Vec<Standing>,
    /// Tasks done since the last report, on another thread.
    pub tasks: usize,
    /// Requests refused because they cost more than one may.
    pub refused_for_work: u64,
    /// The desk itself, with the clients that wait at it: its thread has ended, as was ordered, and this is the last report.
    pub desk: Option<Box<Apart<C>>>,
}
