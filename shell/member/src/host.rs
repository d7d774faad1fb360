//! Host: what executes a member.
//!
//! ```text
//!   shell/runtime  tokio, threads, files ──┐
//!                                          ├── Host, Arrivals: what has come, when it was looked at, who calls the replica
//!   proof/sim      virtual ones, judges  ──┘
//! ```
//! Rules: 1. Time is read when something is in hand: a message's claims of time hold before it came and after its request, and a
//!           read is judged at a moment after its call. So each kind of arrival comes with a moment that is not before it.
//!           [replication-protocols L-5]
//!        2. The replica is called through the host, so that the simulator's judges see every step of it.
//! Knows nothing of: what a member makes of it.

use crate::capacity::Sight;
use crate::log::Completion;
use crate::progress::Progress;
use crate::tuning::{Setting, Tuning};
use kattu_node::contract::{Effects, Event, KeeperEffects, KeeperTask, PeerMessage, Request};
use kattu_node::{Keeper, Node};
use kattu_raft::{Duration, Instant, Raft, SnapshotMeta};

/// Calls the replica for a member. [Rule 2]
pub trait Host {
    /// Why the process ends here and now. Production has no such end.
    type Stop;

    /// The time now.
    fn now(&self) -> Instant;

    /// Has the node handle an event.
    ///
    /// # Errors
    /// The process ends.
    fn handle(
        &mut self,
        node: &mut Node,
        now: Instant,
        event: Event,
        effects: &mut Effects,
    ) -> Result<(), Self::Stop> {
        node.handle(now, event, effects);
        Ok(())
    }

    /// Gives the keeper a task.
    fn deliver(&mut self, keeper: &mut Keeper, task: KeeperTask, effects: &mut KeeperEffects) {
        keeper.take_in(task, effects);
    }

    /// Has the keeper do one step, which takes its work off the slice.
    ///
    /// # Errors
    /// The process ends.
    fn step(
        &mut self,
        keeper: &mut Keeper,
        slice: &mut i64,
        effects: &mut KeeperEffects,
    ) -> Result<(), Self::Stop> {
        keeper.step(slice, effects);
        Ok(())
    }
}

/// A request for the member.
#[derive(Debug)]
pub enum Call<C, A> {
    /// A client's request, and the client.
    Ask(C, Request),
    /// Leadership shall move, because the process is about to stop. The caller is told whether a transfer has begun.
    Transfer(A),
    /// The member shall go by these settings. The caller is told its tuning then, or the rule that they break; none of them
    /// counts in that case. Without settings it is told the tuning as it is.
    Tune(Vec<Setting>, A),
}

/// What the worker of snapshots brings.
pub enum Brought {
    /// An event for the node.
    Event(Event),
    /// The tables of a snapshot, for which the keeper waits.
    Tables(SnapshotMeta, Box<Keeper>),
}

/// What has come since the last batch, in the order in which a member takes it in. [Rule 1]
pub trait Arrivals: Host {
    /// A client that waits for its answer.
    type Client;
    /// A caller that asked for a transfer.
    type Asker;

    /// The next completion of the log; a full disk's next attempt is one of the executor's.
    ///
    /// # Errors
    /// The process ends.
    fn completion(&mut self) -> Result<Option<Completion>, Self::Stop>;

    /// The next report of a keeper on a thread of its own.
    fn progress(&mut self) -> Option<Progress<Self::Client>>;

    /// The next result of the worker of snapshots.
    ///
    /// # Errors
    /// The process ends.
    fn brought(&mut self) -> Result<Option<Brought>, Self::Stop>;

    /// All events of peers, in their order, with the results of jobs, and a moment that is not before any of them.
    fn events(&mut self, into: &mut Vec<Event>) -> Instant;

    /// At most so many calls, in their order, and a moment that is not before any of them.
    fn calls(&mut self, most: usize, into: &mut Vec<Call<Self::Client, Self::Asker>>) -> Instant;

    /// These messages are the next step. For executors that count what is sent.
    fn sends(&self, _raft: &Raft, _messages: &[PeerMessage]) {}

    /// When the client's request was received, if it was stamped: then it may be followed. [`crate::stages`]
    fn received(&self, _client: &Self::Client) -> Option<Instant> {
        None
    }

    /// Whether the client has gone: then its request need not be begun. [fault-model F50]
    fn is_gone(&self, client: &Self::Client) -> bool;

    /// Tells a caller whether a transfer has begun.
    fn transferring(&mut self, asker: Self::Asker, has_begun: bool);

    /// Tells a caller the member's tuning, or why it was not changed.
    fn tuned(&mut self, asker: Self::Asker, tuning: Result<Tuning, &'static str>);

    /// The machine as it was last seen.
    fn sight(&self) -> Sight;

    /// The least quota of the other members, in bytes, if one is known.
    fn least_quota(&self) -> Option<u64>;

    /// Whether the log holds records that a full disk refused, and may be tried again now.
    fn retries_log(&self) -> bool;

    /// Makes durable how long this member's vote holds last from now on; `false` if that failed, or must not be tried
    /// yet: the next batch asks again. [replication-protocols L-4]
    fn record_vote_hold(&mut self, length: Duration) -> bool;
}
