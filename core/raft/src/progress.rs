//! Progress: what a leader knows of one peer's log, and how much it may have under way to it.
//!
//! ```text
//!            the peer agrees at `next - 1`
//!   Probe ────────────────────────────────▶ Replicate
//!     ▲   one message, then heartbeats only    │  many messages, `next` advances when sending
//!     └────────────────────────────────────────┘
//!       mismatch, busy, or the link is gone: next = match + 1 (or the hint)
//! ```
//!
//! Everything here is idempotent: answers may be lost, repeated, reordered; `matched` never falls within a term.
//! [Ongaro14 §10.2.2; replication-protocols B4, B5]
//! Knows nothing of: messages, other peers, commit.

use crate::config::Config;
use crate::types::{Incarnation, Instant, LogIndex, Round};
use alloc::collections::VecDeque;

/// How entries are sent to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Where the logs agree is not known.
    Probe {
        /// A message with prev `next - 1` is under way; nothing but heartbeats until it is answered.
        awaiting: bool,
    },
    /// The logs agree up to what was sent.
    Replicate,
}

/// One append with entries that was sent and not yet answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    last: LogIndex,
    bytes: usize,
    at: Instant,
}

/// One peer, seen by the leader of this term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// How entries are sent.
    pub(crate) mode: Mode,
    /// Highest index known to agree and to be durable there.
    pub(crate) matched: LogIndex,
    /// The next entry to send. Above `matched`.
    pub(crate) next: LogIndex,
    /// Unanswered appends with entries, oldest first. Only in `Replicate`.
    inflight: VecDeque<Sent>,
    /// Their bytes.
    inflight_bytes: usize,
    /// When it last answered in this term; the start of the leadership before that.
    pub(crate) heard_at: Instant,
    /// Newest round it answered.
    pub(crate) heard_round: Round,
    /// The life of its data directory that answered first in this term. [fault-model NT5]
    pub(crate) incarnation: Option<Incarnation>,
    /// Highest commit index sent to it.
    pub(crate) told_commit: LogIndex,
    /// It waits for commits up to here and is told of each at once.
    pub(crate) wants_commit: LogIndex,
    /// It has no room, or its entries could not be read: none are sent before this.
    pub(crate) paused_until: Instant,
}

impl Progress {
    /// A peer of which nothing is known but that it is probably not behind.
    pub(crate) fn new(now: Instant, next: LogIndex) -> Progress {
        Progress {
            mode: Mode::Probe { awaiting: false },
            matched: LogIndex(0),
            next,
            inflight: VecDeque::new(),
            inflight_bytes: 0,
            heard_at: now,
            heard_round: Round(0),
            incarnation: None,
            told_commit: LogIndex(0),
            wants_commit: LogIndex(0),
            paused_until: Instant(0),
        }
    }

    /// Bytes of entries that may be sent now; `None`: no entries may be sent.
    pub(crate) fn credit(&self, now: Instant, config: &Config) -> Option<usize> {
        if now < self.paused_until {
            return None;
        }
        let limits = &config.limits;
        match self.mode {
            Mode::Probe { awaiting: true } => None,
            Mode::Probe { awaiting: false } => Some(limits.batch_bytes_max),
            Mode::Replicate if self.inflight.is_empty() => Some(limits.batch_bytes_max),
            Mode::Replicate => {
                let messages_max = if config.pipelining { limits.inflight_msgs_max } else { 1 };
                let bytes = limits.inflight_bytes_max.saturating_sub(self.inflight_bytes);
                let room = self.inflight.len() < messages_max && bytes > 0;
                room.then_some(bytes.min(limits.batch_bytes_max))
            }
        }
    }

    /// Whether nothing is unanswered, so that one entry of any size may be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.inflight.is_empty()
    }

    /// An append with entries up to `last` was sent.
    pub(crate) fn sent(&mut self, now: Instant, last: LogIndex, bytes: usize) {
        match &mut self.mode {
            Mode::Probe { awaiting } => *awaiting = true,
            Mode::Replicate => {
                self.next = last.next();
                self.inflight.push_back(Sent { last, bytes, at: now });
                self.inflight_bytes += bytes;
            }
        }
    }

    /// The position an empty append should ask about.
    ///
    /// A probe asks what the probe asks. Otherwise the known match, which no overtaken entry can contradict; only
    /// when an append has been unanswered for a heartbeat or longer, the end of all that was sent, so that a lost
    /// one shows as a mismatch and not never.
    pub(crate) fn heartbeat_prev(&self, now: Instant, config: &Config) -> LogIndex {
        let overdue = |sent: &Sent| now.since(sent.at) >= config.heartbeat_interval;
        match self.mode {
            Mode::Probe { .. } => self.next.previous(),
            Mode::Replicate if self.inflight.front().is_some_and(overdue) => self.next.previous(),
            Mode::Replicate => self.matched,
        }
    }

    /// The peer's durable log agrees up to `upto`. True if that is news.
    pub(crate) fn on_match(&mut self, upto: LogIndex) -> bool {
        let news = self.matched < upto;
        self.matched = self.matched.max(upto);
        while self.inflight.front().is_some_and(|sent| sent.last <= upto) {
            let bytes = self.inflight.pop_front().map_or(0, |sent| sent.bytes);
            self.inflight_bytes -= bytes;
        }
        // An answer from before the probe says nothing about what the probe asks.
        if matches!(self.mode, Mode::Probe { .. }) && self.next <= upto.next() {
            self.mode = Mode::Replicate;
        }
        self.next = self.next.max(self.matched.next());
        news
    }

    /// Whether a mismatch at `prev` still says something: not below what is known to agree, and in `Probe` only to
    /// what was asked last.
    pub(crate) fn believes_mismatch_at(&self, prev: LogIndex) -> bool {
        match self.mode {
            Mode::Probe { .. } => self.matched < prev && prev == self.next.previous(),
            Mode::Replicate => self.matched < prev && prev < self.next,
        }
    }

    /// Starts over from `next`, or from the first entry not known to agree if that is later.
    pub(crate) fn probe(&mut self, next: LogIndex) {
        self.mode = Mode::Probe { awaiting: false };
        self.next = next.max(self.matched.next());
        self.inflight.clear();
        self.inflight_bytes = 0;
    }

    /// The peer has no room: no entries before `until`, then from the first one not known to agree.
    pub(crate) fn pause(&mut self, until: Instant) {
        self.probe(LogIndex(0));
        self.mode = Mode::Probe { awaiting: true };
        self.paused_until = until;
    }

    /// Unanswered appends, and their bytes without the newest one's: an entry that was read back for the peer is
    /// sent even if it turned out larger than the credit it was read for.
    pub(crate) fn inflight(&self) -> (usize, usize) {
        (self.inflight.len(), self.inflight_bytes - self.inflight.back().map_or(0, |sent| sent.bytes))
    }
}
