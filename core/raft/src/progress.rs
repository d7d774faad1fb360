//! Progress: what a leader knows of one peer: its log here; the flow of entries to it, its answers and its membership in
//! files of their own.
//!
//! Everything here is idempotent: answers may be lost, repeated, reordered. `matched` never falls within a term, with
//! one exception: the peer's disk has lost entries that it had acknowledged, and an answer shows that to a round that
//! began after the acknowledgement. [Ongaro14 §10.2.2; replication-protocols B4, B5; fault-model ST14]
//! Knows nothing of: messages, other peers, commit.

use crate::canonical::Canonical;
use crate::config::Config;
use crate::flow::{Flow, Mode};
use crate::life::Life;
use crate::liveness::Liveness;
use crate::message::Gap;
use crate::received::Holds;
use crate::snapshot::{SnapshotMeta, Stream};
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Round};
use alloc::boxed::Box;

/// One peer, as the leader of this term sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// The flow of entries to it.
    pub(crate) flow: Flow,
    /// What its answers show of it.
    pub(crate) liveness: Liveness,
    /// The course of its membership.
    pub(crate) life: Life,
    /// Highest index known to agree and to be durable there.
    pub(crate) matched: LogIndex,
    /// What it has named as received, while early answers are on.
    pub(crate) holds: Holds,
    /// The newest round when `matched` was learnt.
    matched_in: Round,
    /// Highest commit index sent to it.
    pub(crate) commit_sent: LogIndex,
    /// It waits for commits up to here and gets each one at once.
    pub(crate) wants_commit: LogIndex,
}

impl Progress {
    /// A peer of unknown state, which is probably not behind.
    pub(crate) fn new(now: Instant, next: LogIndex) -> Progress {
        Progress {
            flow: Flow::new(next),
            liveness: Liveness::new(now),
            life: Life::default(),
            matched: LogIndex(0),
            holds: Holds::default(),
            matched_in: Round(0),
            commit_sent: LogIndex(0),
            wants_commit: LogIndex(0),
        }
    }

    /// A learner begins again, with another directory: what the former one held, and what was sent to it, is lost.
    pub(crate) fn begin_life(&mut self, now: Instant, incarnation: Incarnation, last: LogIndex) {
        let life = self.life.next(incarnation);
        *self = Progress { life, ..Progress::new(now, last.next()) };
        self.life.watch_catch_up(now, true, last);
    }

    /// Whether it keeps up. A peer that needs a snapshot does not, however well it did a moment ago.
    pub(crate) fn is_caught_up(&self, now: Instant, election_timeout: Duration) -> bool {
        let is_fed_by_log = !matches!(self.flow.mode, Mode::Snapshot(_));
        is_fed_by_log && self.life.keeps_up(now, election_timeout)
    }

    /// From now on it gets a snapshot.
    pub(crate) fn begin_snapshot(&mut self, stream: Stream) {
        self.flow.lost(self.matched.next());
        self.flow.mode = Mode::Snapshot(Box::new(stream));
    }

    /// Its durable log agrees up to `upto`, and the leader's log begins after `base`: entries can follow again. If the
    /// log has lost more meanwhile than the snapshot covers, the newest snapshot follows instead.
    pub(crate) fn end_snapshot(
        &mut self,
        now: Instant,
        upto: LogIndex,
        base: LogIndex,
        newest: Option<&SnapshotMeta>,
    ) {
        let Mode::Snapshot(stream) = &mut self.flow.mode else { return };
        if base <= upto && LogIndex(0) < upto {
            self.flow.mode = Mode::Replicate;
            self.flow.next = self.matched.next();
        } else if stream.covers_no_more_than(upto) {
            **stream = Stream::new(newest, now);
        }
    }

    /// The peer's durable log agrees up to `upto`. True if that is new. `round` is the newest one.
    pub(crate) fn on_match(&mut self, now: Instant, upto: LogIndex, round: Round) -> bool {
        let news = self.matched < upto;
        if news {
            self.matched_in = round;
        }
        self.life.repay(upto);
        self.matched = self.matched.max(upto);
        self.flow.on_match(now, upto, self.matched, news);
        news
    }

    /// The peer lacks the position in `gap`. `agreeing` is where the logs may agree, and `round` the newest one.
    pub(crate) fn on_gap(&mut self, now: Instant, gap: Gap, agreeing: LogIndex, round: Round) -> bool {
        let next = agreeing.next().min(gap.prev).max(self.matched.next());
        self.flow.fall_back(now, next, gap, round)
    }

    /// Whether the peer's disk has lost acknowledged entries: the answer to `round` shows that its log ends too early
    /// or lacks a position, which it had acknowledged before that round began. A log that lost its newest entries may
    /// show older ones in their place, which had been dropped for them, and end no earlier.
    pub(crate) fn has_lost(&self, gap: Gap, round: Round) -> bool {
        (gap.last < self.matched || gap.prev <= self.matched) && self.matched_in < round
    }

    /// Notes that it has lost this acknowledged position. True if that is to be reported: it is new, or the peer gets
    /// no snapshot.
    pub(crate) fn owe(&mut self, upto: EntryId) -> bool {
        self.life.owe(upto) || !matches!(self.flow.mode, Mode::Snapshot(_))
    }

    /// Like [`Progress::has_lost`], and then forgets what its log was known to hold. A peer that gets a snapshot is
    /// behind whatever it has lost.
    pub(crate) fn on_loss(&mut self, gap: Gap, round: Round) -> bool {
        let lost = self.has_lost(gap, round) && !matches!(self.flow.mode, Mode::Snapshot(_));
        if lost {
            self.matched = LogIndex(0);
            self.flow.lost(gap.last.next());
        }
        lost
    }

    /// Whether it follows the log within memory, from `recent_first` on: entries are kept for it.
    pub(crate) fn is_in_sync(&self, recent_first: LogIndex) -> bool {
        matches!(self.flow.mode, Mode::Replicate) && recent_first <= self.matched.next()
    }

    /// Whether it lacks entries that are not in memory any more.
    pub(crate) fn is_behind(&self, recent_first: LogIndex) -> bool {
        self.matched.next() < recent_first
    }

    /// A link has ended: messages in flight, in either direction, may be lost.
    pub(crate) fn link_closed(&mut self, now: Instant, config: &Config) {
        self.holds = Holds::default();
        match &mut self.flow.mode {
            Mode::Snapshot(stream) => stream.link_closed(now, config),
            Mode::Probe { .. } | Mode::Replicate => self.flow.link_closed(now),
        }
    }

    /// See [`crate::canonical`].
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.matched_in = Round(u64::MAX); // disks lose nothing where states are canonical
        self.liveness.canonicalize(canonical);
        self.life.canonicalize(canonical);
        self.flow.canonicalize(canonical);
    }
}
