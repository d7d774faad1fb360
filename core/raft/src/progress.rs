//! Progress: what a leader knows of one peer's log, and how much it may have under way to it.
//!
//! ```text
//!            the peer agrees at `next - 1`
//!   Probe ────────────────────────────────▶ Replicate
//!     ▲   one message, then heartbeats only    │  many messages, `next` advances when sending
//!     └────────────────────────────────────────┘
//!       mismatch, busy, or the link is gone: next = match + 1 (or the hint)
//!
//!   either ── the next entry has left the log ──▶ Snapshot ── a match at or above the base ──▶ Replicate
//! ```
//!
//! Everything here is idempotent: answers may be lost, repeated, reordered; `matched` never falls within a term, but for
//! one case: the peer's disk has lost what it had acknowledged, and the peer says so to a question that was asked after
//! it had. [Ongaro14 §10.2.2; replication-protocols B4, B5; fault-model ST14]
//! Knows nothing of: messages, other peers, commit.

use crate::canonical::{CANONICAL_NOW, Canonical};
use crate::clocks::Gauge;
use crate::config::Config;
use crate::snapshot::{SnapshotMeta, Stream};
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Round};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// One append with entries that was sent and not yet answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    last: LogIndex,
    bytes: usize,
    at: Instant,
}

impl Sent {
    /// Whether it has been unanswered for a heartbeat or longer, so that it may well be lost.
    fn is_overdue(&self, now: Instant, config: &Config) -> bool {
        now.since(self.at) >= config.heartbeat_interval
    }
}

/// How entries are sent to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Where the logs agree is not known.
    Probe {
        /// Entries from `next` on are under way; nothing but heartbeats until something is answered.
        awaiting: Option<Sent>,
    },
    /// The logs agree up to what was sent.
    Replicate,
    /// What comes next for it has left the log: it gets a snapshot, and no entries meanwhile.
    Snapshot(Stream),
}

/// How a learner catches up: in rounds, each of which ends when it has what the log held when the round began. Who can
/// do that within an election timeout would not hold up a quorum for longer. [Ongaro14 §4.2.1]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CatchUp {
    /// The end of this round.
    target: LogIndex,
    /// Its beginning.
    since: Instant,
    /// The last round took less than an election timeout.
    fast: bool,
}

/// A peer that is on its way out: it stays until it knows that its removal is committed, or does not answer.
/// [replication-protocols M8]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    /// The configuration without it.
    pub(crate) at: LogIndex,
    /// The first heartbeat that told it so.
    pub(crate) told: Option<Round>,
    /// Heartbeats until nobody waits for it any more.
    pub(crate) beats_left: u8,
}

/// One peer, seen by the leader of this term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// How entries are sent.
    pub(crate) mode: Mode,
    /// Highest index known to agree and to be durable there.
    pub(crate) matched: LogIndex,
    /// The newest round when that was learnt.
    matched_in: Round,
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
    /// The newest round that it answered with a promise as long as leases need it. At most `heard_round`.
    pub(crate) promised_round: Round,
    /// What it promised with its newest answer, if it has answered at all.
    pub(crate) promise: Option<Duration>,
    /// How its clock runs.
    pub(crate) gauge: Gauge,
    /// How long its disk takes, as it said last; zero if it has not. [`crate::slow_disk`]
    pub(crate) disk: Duration,
    /// The life of its data directory that answers in this term: a voter's first, a learner's newest. [fault-model NT5]
    pub(crate) incarnation: Option<Incarnation>,
    /// Its lives before that one, which answer no more.
    former: Vec<Incarnation>,
    /// Highest commit index sent to it.
    pub(crate) told_commit: LogIndex,
    /// It waits for commits up to here and is told of each at once.
    pub(crate) wants_commit: LogIndex,
    /// It has no room, or its entries could not be read: none are sent before this.
    pub(crate) paused_until: Instant,
    /// How well a learner keeps up; nobody asks that of a voter.
    pub(crate) catch_up: Option<CatchUp>,
    /// The newest configuration is without it.
    pub(crate) leaving: Option<Leaving>,
    /// What it had acknowledged and has lost, until it acknowledges that again.
    pub(crate) owes: Option<EntryId>,
}

impl Progress {
    /// A peer of which nothing is known but that it is probably not behind.
    pub(crate) fn new(now: Instant, next: LogIndex) -> Progress {
        Progress {
            mode: Mode::Probe { awaiting: None },
            matched: LogIndex(0),
            matched_in: Round(0),
            next,
            inflight: VecDeque::new(),
            inflight_bytes: 0,
            heard_at: now,
            heard_round: Round(0),
            promised_round: Round(0),
            promise: None,
            gauge: Gauge::default(),
            disk: Duration::ZERO,
            incarnation: None,
            former: Vec::new(),
            told_commit: LogIndex(0),
            wants_commit: LogIndex(0),
            paused_until: Instant(0),
            catch_up: None,
            leaving: None,
            owes: None,
        }
    }

    /// Whether this is a life that was over before the one that answers.
    pub(crate) fn lived(&self, incarnation: Incarnation) -> bool {
        self.former.contains(&incarnation)
    }

    /// A learner begins again, with another directory: what the one before held is lost, and what it was sent too.
    pub(crate) fn begin_life(&mut self, now: Instant, incarnation: Incarnation, last: LogIndex) {
        let mut former = core::mem::take(&mut self.former);
        former.extend(self.incarnation);
        let leaving = self.leaving.take();
        let fresh = Progress::new(now, last.next());
        *self = Progress { incarnation: Some(incarnation), former, leaving, ..fresh };
        self.watch_catch_up(now, true, last);
    }

    /// The log reaches to `last`, and the peer has answered: a round of catching up may be over.
    pub(crate) fn note_catch_up(&mut self, now: Instant, last: LogIndex, election_timeout: Duration) {
        if let Some(round) = &mut self.catch_up
            && round.target <= self.matched
        {
            let fast = now.since(round.since) < election_timeout;
            *round = CatchUp { target: last, since: now, fast };
        }
    }

    /// Begins or ends to watch how well it keeps up.
    pub(crate) fn watch_catch_up(&mut self, now: Instant, is_learner: bool, last: LogIndex) {
        match (is_learner, &self.catch_up) {
            (true, None) => self.catch_up = Some(CatchUp { target: last, since: now, fast: false }),
            (false, Some(_)) => self.catch_up = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether it keeps up: the last round was fast, and this one is not slow yet. Whoever needs a snapshot does not, however
    /// well it did a moment ago.
    pub(crate) fn is_caught_up(&self, now: Instant, election_timeout: Duration) -> bool {
        let is_fed_by_log = !matches!(self.mode, Mode::Snapshot(_));
        let round = self.catch_up.as_ref();
        is_fed_by_log && round.is_some_and(|round| round.fast && now.since(round.since) < election_timeout)
    }

    /// It gets a snapshot from now on.
    pub(crate) fn begin_snapshot(&mut self, stream: Stream) {
        self.probe(LogIndex(0));
        self.mode = Mode::Snapshot(stream);
    }

    /// Its durable log agrees up to `upto`, and the log's base is `base`: entries can follow again. If the log has lost
    /// more meanwhile than the snapshot covers, the newest one follows instead.
    pub(crate) fn end_snapshot(
        &mut self,
        now: Instant,
        upto: LogIndex,
        base: LogIndex,
        newest: Option<&SnapshotMeta>,
    ) {
        let Mode::Snapshot(stream) = &mut self.mode else { return };
        if !stream.covers_no_more_than(upto) {
            return;
        }
        if base <= upto {
            self.mode = Mode::Replicate;
            self.next = self.matched.next();
        } else {
            *stream = Stream::new(newest, now);
        }
    }

    /// Bytes of entries that may be under way in addition to those that are; `None`: no entries may be sent.
    pub(crate) fn credit(&self, now: Instant, config: &Config) -> Option<usize> {
        if now < self.paused_until {
            return None;
        }
        let limits = &config.limits;
        let messages_max = match self.mode {
            Mode::Probe { awaiting: Some(_) } => 0,
            Mode::Probe { awaiting: None } => 1,
            Mode::Replicate if config.pipelining => limits.inflight_msgs_max.max(1),
            Mode::Replicate => 1,
            Mode::Snapshot(_) => 0,
        };
        let bytes = limits.inflight_bytes_max.saturating_sub(self.inflight_bytes);
        let room = self.inflight.len() < messages_max && (bytes > 0 || self.is_idle());
        room.then_some(bytes)
    }

    /// Whether nothing is unanswered, so that one entry of any size may be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.inflight.is_empty()
    }

    /// An append with entries up to `last` was sent.
    pub(crate) fn sent(&mut self, now: Instant, last: LogIndex, bytes: usize) {
        let sent = Sent { last, bytes, at: now };
        match &mut self.mode {
            Mode::Probe { awaiting } => *awaiting = Some(sent),
            Mode::Replicate => self.under_way(sent),
            Mode::Snapshot(_) => unreachable!("no entries go to a peer that gets a snapshot"),
        }
    }

    fn under_way(&mut self, sent: Sent) {
        self.next = sent.last.next();
        self.inflight_bytes += sent.bytes;
        self.inflight.push_back(sent);
    }

    /// The position an empty append should ask about.
    ///
    /// A probe asks what the probe asks. Otherwise the known match, which no overtaken entry can contradict; only
    /// when an append has been unanswered for a heartbeat or longer, the end of all that was sent, so that a lost
    /// one shows as a mismatch and not never.
    pub(crate) fn heartbeat_prev(&self, now: Instant, config: &Config) -> LogIndex {
        match self.mode {
            Mode::Probe { .. } => self.next.previous(),
            Mode::Replicate if self.inflight.front().is_some_and(|sent| sent.is_overdue(now, config)) => {
                self.next.previous()
            }
            Mode::Replicate | Mode::Snapshot(_) => self.matched,
        }
    }

    /// The peer's durable log agrees up to `upto`. True if that is news.
    ///
    /// A probe is answered by a match of what it asked or more; a smaller one says nothing about it. Its entries
    /// are then under way like any others, unless they have had time to be lost.
    ///
    /// `round` is the newest one.
    pub(crate) fn on_match(&mut self, now: Instant, upto: LogIndex, round: Round, config: &Config) -> bool {
        let news = self.matched < upto;
        if news {
            self.matched_in = round;
        }
        let _whole_again = self.owes.take_if(|owed| owed.index <= upto);
        self.matched = match planted!("match-falls-on-a-late-answer") {
            true => upto,
            false => self.matched.max(upto),
        };
        let asked = self.next.previous();
        if let Mode::Probe { awaiting } = &mut self.mode
            && asked <= upto
        {
            let awaiting = awaiting.take();
            self.mode = Mode::Replicate;
            if let Some(sent) = awaiting.filter(|sent| !sent.is_overdue(now, config)) {
                self.under_way(sent);
            }
        }
        while self.inflight.front().is_some_and(|sent| sent.last <= upto) {
            let bytes = self.inflight.pop_front().map_or(0, |sent| sent.bytes);
            self.inflight_bytes -= bytes;
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
            Mode::Snapshot(_) => false,
        }
    }

    /// The peer's log ends at `last`, it said to what was asked in `round`. True if it had acknowledged more before that
    /// was asked: its disk has lost it.
    pub(crate) fn has_lost(&self, last: LogIndex, round: Round) -> bool {
        last < self.matched && self.matched_in < round
    }

    /// It had acknowledged this, and lost it. True if that is news.
    pub(crate) fn owe(&mut self, upto: EntryId) -> bool {
        let is_news = self.owes < Some(upto);
        self.owes = self.owes.max(Some(upto));
        is_news || !matches!(self.mode, Mode::Snapshot(_))
    }

    /// As [`Progress::has_lost`]; what is known of its log is then nothing. A peer that gets a snapshot is behind whatever
    /// it has lost.
    pub(crate) fn on_loss(&mut self, last: LogIndex, round: Round) -> bool {
        let lost = self.has_lost(last, round) && !matches!(self.mode, Mode::Snapshot(_));
        if lost {
            self.matched = LogIndex(0);
            self.probe(last.next());
        }
        lost
    }

    /// Starts over from `next`, or from the first entry not known to agree if that is later.
    pub(crate) fn probe(&mut self, next: LogIndex) {
        self.mode = Mode::Probe { awaiting: None };
        self.next = next.max(self.matched.next());
        self.inflight.clear();
        self.inflight_bytes = 0;
    }

    /// What was on its way may be lost.
    pub(crate) fn link_closed(&mut self) {
        match &mut self.mode {
            Mode::Snapshot(stream) => stream.lost(),
            Mode::Probe { .. } | Mode::Replicate => self.probe(LogIndex(0)),
        }
    }

    /// The peer has no room: no entries before `until`, then from the first one not known to agree.
    pub(crate) fn pause(&mut self, until: Instant) {
        if matches!(self.mode, Mode::Snapshot(_)) {
            return; // said before the snapshot was
        }
        self.probe(LogIndex(0));
        self.paused_until = until;
    }

    /// See [`crate::canonical`]. When it last answered is compared with an election timeout only, which is over when
    /// the check of the quorum is due.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.heard_at = canonical.past(self.heard_at, canonical.election_timeout);
        self.paused_until = match canonical.deadline(self.paused_until, canonical.heartbeat_interval) {
            CANONICAL_NOW => Instant(0), // not paused
            later => later,
        };
        self.disk = Duration::ZERO; // nobody times disks where states are canonical
        self.matched_in = Round(u64::MAX); // nobody's disk loses anything where states are canonical
        if let Some(round) = &mut self.catch_up {
            round.since = canonical.past(round.since, canonical.election_timeout);
        }
        let awaiting = match &mut self.mode {
            Mode::Probe { awaiting } => awaiting.as_mut(),
            Mode::Replicate => None,
            Mode::Snapshot(stream) => {
                stream.canonicalize(canonical);
                None
            }
        };
        for sent in self.inflight.iter_mut().chain(awaiting) {
            sent.at = canonical.past(sent.at, canonical.heartbeat_interval);
        }
    }

    /// Unanswered appends, and their bytes without the newest one's: an entry that was read back for the peer is
    /// sent even if it turned out larger than the credit it was read for.
    pub(crate) fn inflight(&self) -> (usize, usize) {
        (self.inflight.len(), self.inflight_bytes - self.inflight.back().map_or(0, |sent| sent.bytes))
    }
}
