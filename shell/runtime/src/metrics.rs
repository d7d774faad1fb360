//! The metrics of a replica. Every counter is one relaxed atomic, written by the thread that owns the fact.
//!
//! Knows nothing of: metric names, text formats.

use crate::stages::StageTimes;
use kattu_member::step::Counts;
use kattu_member::tuning::Tuning;
use kattu_node::contract::PeerMessage;
use kattu_raft::{EntryKind, LogBody, LogRecord, Message, NodeId, PeerFlow, Raft};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A number that only grows (or a level, where said so).
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets it; for levels, and for counters kept elsewhere.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Allocations of this process; stays at 0 in builds that do not count them.
pub static ALLOCATIONS: Counter = Counter::new();

/// Bytes of those allocations.
pub static ALLOCATED_BYTES: Counter = Counter::new();

/// Log lines that found no room in the queue of an output, or that the output refused.
pub static LOG_LINES_DROPPED: Counter = Counter::new();

/// Log lines that were held back by the limit of their cause.
pub static LOG_LINES_HELD_BACK: Counter = Counter::new();

/// How many log records this process has encoded: none on followers, one per entry on a leader.
#[must_use]
pub fn records_encoded() -> u64 {
    kattu_wire::records_encoded()
}

/// Upper bounds of the sync histogram, in microseconds: 1 ms · 2^n as etcd has them, and finer ones below.
pub const SYNC_BUCKETS_US: [u64; 16] = [
    125, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_024_000,
    2_048_000, 4_096_000,
];

/// Durations by bucket; not cumulative.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One per bound of [`SYNC_BUCKETS_US`], and one for all that is longer.
    pub buckets: [Counter; SYNC_BUCKETS_US.len() + 1],
    /// Sum of all durations, in nanoseconds.
    pub sum_ns: Counter,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let at = SYNC_BUCKETS_US.partition_point(|&bound| bound < micros);
        self.buckets[at].add(1);
        self.sum_ns.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

/// Upper bounds of numbers of things.
pub const SIZE_BUCKETS: [u64; 13] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096];

/// Numbers of things by bucket; not cumulative.
#[derive(Debug, Default)]
pub struct Sizes {
    /// One per bound of [`SIZE_BUCKETS`], and one for all that is more.
    pub buckets: [Counter; SIZE_BUCKETS.len() + 1],
    /// Sum of all numbers.
    pub sum: Counter,
}

impl Sizes {
    /// Counts one number.
    pub fn observe(&self, size: usize) {
        let size = size as u64;
        self.buckets[SIZE_BUCKETS.partition_point(|&bound| bound < size)].add(1);
        self.sum.add(size);
    }

    /// How many numbers were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

/// All metrics of one replica.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Log syncs and how long they took.
    pub sync: Histogram,
    /// Bytes written to the log.
    pub log_written_bytes: Counter,
    /// Bytes of log on disk (a level).
    pub log_bytes: Counter,
    /// Log segments on disk (a level).
    pub log_segments: Counter,
    /// Bytes of log allocated and free (a level).
    pub log_free_bytes: Counter,
    /// 1 while the log is written on a thread of its own (a level).
    pub log_on_thread: Counter,
    /// Whether entries are applied on a thread of their own.
    pub apply_on_thread: Counter,
    /// What this member is tuned to, once it runs.
    pub tuning: Mutex<Option<Tuning>>,
    /// Times it went there because a sync took longer than a heartbeat. [fault-model F17]
    pub log_sent_away: Counter,
    /// Bytes sent to peers.
    pub peer_sent_bytes: Counter,
    /// Bytes received from peers.
    pub peer_received_bytes: Counter,
    /// Messages sent to peers.
    pub peer_sent_msgs: Counter,
    /// Messages received from peers.
    pub peer_received_msgs: Counter,
    /// Messages dropped because a peer's queue was full or its link was down.
    pub peer_dropped_msgs: Counter,
    /// Connections refused, or closed for what came over them.
    pub peer_rejected: Counter,
    /// How long requests that were followed took to each of their stages.
    pub stages: StageTimes,
    /// Entries in each append with entries that was sent.
    pub entries_per_append: Sizes,
    /// Entries in each group of records that was given to the log.
    pub entries_per_sync: Sizes,
    /// Appends without an answer at the peer to which one is sent, that one included.
    pub inflight: Sizes,
    /// Client requests taken into each batch that had some.
    pub requests_per_batch: Sizes,
    /// Tasks that wait for the keeper at the end of each batch that had some.
    pub tasks_waiting: Sizes,
    /// Appends with entries that left before this leader's own disk had all of them.
    pub appends_ahead: Counter,
    /// Appends without entries that were sent: heartbeats and read rounds.
    pub appends_empty: Counter,
    /// Entries without a command that were given to the log: one a term, and one a round of reads through the log.
    pub entries_empty: Counter,
    /// Batches delivered to a keeper on a thread of its own.
    pub apply_delivered: Counter,
    /// Groups of records written on a thread of the log's own.
    pub log_thread_groups: Counter,
    /// Batches of the driver's loop.
    pub batches: Counter,
    /// Events of the driver's loop.
    pub events: Counter,
    /// The longest time for which something of the replica was due before it was done, in microseconds, since the start.
    pub late_us_max: Counter,
    /// Entries delivered to the store.
    pub applied_entries: Counter,
    /// Work the store has done, in units. [`kattu_kv::cost`]
    pub work_units: Counter,
    /// The most of it between two checks for other work, since the start.
    pub step_units_max: Counter,
    /// Requests refused because they cost more than one request may.
    pub refused_for_work: Counter,
    /// The feature level of the cluster, as applied here (a level).
    pub feature_level: Counter,
    /// Bytes that the stores of all members may hold: the least quota; 0 before it is known.
    pub quota_bytes: Counter,
    /// Client requests taken in.
    pub requests: Counter,
    /// Requests whose callers had gone before anything was begun.
    pub abandoned: Counter,
    /// Leader changes seen.
    pub leader_changes: Counter,
    /// Highest committed index (a level).
    pub committed: Counter,
    /// Client requests waiting (a level).
    pub pending: Counter,
    /// Commands that were answered weakly and have no final answer (a level). [fault-model WK8]
    pub weak_outstanding: Counter,
    /// Their bytes (a level).
    pub weak_outstanding_bytes: Counter,
    /// Weak answers.
    pub weak_answers: Counter,
    /// Commands that were answered weakly, and then overwritten by a later leader.
    pub weak_lost: Counter,
    /// Client requests refused or left in doubt.
    pub failed: Counter,
    /// Snapshots taken here.
    pub snapshots_taken: Counter,
    /// Snapshots that came to nothing.
    pub snapshots_failed: Counter,
    /// Snapshots from a leader that replaced the store.
    pub snapshots_installed: Counter,
    /// Bytes of the last snapshot taken (a level).
    pub snapshot_bytes: Counter,
    /// How long it took, in milliseconds (a level).
    pub snapshot_ms: Counter,
    /// The index up to which the newest snapshot reaches (a level).
    pub snapshot_index: Counter,
    /// Pieces of snapshots sent to peers.
    pub snapshot_chunks_sent: Counter,
    /// Pieces of a leader's snapshots received.
    pub snapshot_chunks_received: Counter,
    /// 1 while the log is shorter than what this member has acknowledged (a level). [fault-model ST7]
    pub log_damaged: Counter,
    /// Times a leader reported that this member's own log is shorter than what it had acknowledged. [fault-model F18,
    /// F19]
    pub lost_log: Counter,
    /// Times a peer's log was seen to be shorter than what it had acknowledged. [fault-model ST14]
    pub lost_matches: Counter,
    /// Entries that came before their predecessors, and joined the log from the window.
    pub window_entries: Counter,
    /// Microseconds that messages of several links waited in front of the replica for those sent before them.
    pub order_waited_us: Counter,
    /// Gaps before such entries that this member, as leader, has sent again.
    pub gaps_sent_again: Counter,
    /// Appends of a leader that were dropped because payloads were not read in time.
    pub dropped_unread: Counter,
    /// The flow to each peer while this member leads, as of a moment ago; empty while it does not.
    pub peer_flows: Mutex<Vec<(NodeId, PeerFlow)>>,
    /// 1 while clients are slowed for a member that comes back (a level). [fault-model F51]
    pub slows_clients: Counter,
    /// Times clients began to be slowed for one.
    pub slowed_clients: Counter,
    /// Times one did not catch up although they were.
    pub falling_behind: Counter,
    /// Times this member led and transferred leadership, because its own disk was slow. [fault-model F17]
    pub slow_disk_left: Counter,
    /// Times all files were read and checked in the background. [fault-model ST12]
    pub scrubs: Counter,
    /// Damaged places found by scrubs.
    pub scrub_damages: Counter,
}

impl Metrics {
    /// What this member is tuned to, once it runs.
    #[must_use]
    pub fn tuning(&self) -> Option<Tuning> {
        *self.tuning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These messages leave.
    pub(crate) fn sends(&self, raft: &Raft, messages: &[PeerMessage]) {
        for message in messages {
            let PeerMessage::Raft(envelope) = message else { continue };
            let Message::Append(append) = &envelope.message else { continue };
            let Some(last) = append.entries.last() else {
                self.appends_empty.add(1);
                continue;
            };
            self.entries_per_append.observe(append.entries.len());
            self.inflight.observe(raft.inflight_msgs(envelope.to));
            self.appends_ahead.add(u64::from(raft.persisted_index() < last.id().index));
        }
    }

    /// These records go to the log.
    pub(crate) fn persists(&self, records: &[LogRecord], on_thread: bool) {
        let entries = records.iter().filter_map(|record| match &record.body {
            LogBody::Entry(entry) => Some(entry.head.kind),
            _ => None,
        });
        let (mut all, mut empty) = (0, 0);
        for kind in entries {
            all += 1;
            empty += u64::from(kind == EntryKind::Noop);
        }
        if 0 < all {
            self.entries_per_sync.observe(all);
            self.entries_empty.add(empty);
        }
        self.log_thread_groups.add(u64::from(on_thread));
    }

    /// Takes over what a member has counted since `before`.
    pub(crate) fn count(&self, counts: &Counts, before: &Counts) {
        self.batches.add(counts.batches - before.batches);
        self.events.add(counts.events - before.events);
        self.requests.add(counts.requests - before.requests);
        if before.requests < counts.requests {
            self.requests_per_batch.observe((counts.requests - before.requests) as usize);
        }
        self.abandoned.add(counts.abandoned - before.abandoned);
        self.failed.add(counts.failed - before.failed);
        self.applied_entries.add(counts.applied_entries - before.applied_entries);
        self.work_units.add(counts.work_units - before.work_units);
        self.step_units_max.set(self.step_units_max.get().max(counts.slice_units_max));
        self.refused_for_work.add(counts.refused_for_work - before.refused_for_work);
        let late = u64::try_from(counts.late_max.as_micros()).unwrap_or(u64::MAX);
        self.late_us_max.set(self.late_us_max.get().max(late));
    }
}
