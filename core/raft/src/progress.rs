//! Progress: what a leader knows of one peer's log, of the peer itself, and of the way of its entries there.
//!
//! Everything here is idempotent: answers may be lost, repeated, reordered; `matched` never falls within a term, but for
//! one case: the peer's disk has lost what it had acknowledged, and the peer says so to a question that was asked after
//! it had. [Ongaro14 §10.2.2; replication-protocols B4, B5; fault-model ST14]
//! Knows nothing of: messages, other peers, commit.

use crate::canonical::Canonical;
use crate::clocks::Gauge;
use crate::config::Config;
use crate::flow::{Flow, Mode};
use crate::message::Gap;
use crate::snapshot::{SnapshotMeta, Stream};
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Round};
use alloc::vec::Vec;

/// Directories that a learner can have had in one term.
const LIVES_MAX: usize = 64;

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
    pub(crate) heartbeats_left: u8,
}

/// One peer, seen by the leader of this term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// The way of the entries there.
    pub(crate) flow: Flow,
    /// Highest index known to agree and to be durable there.
    pub(crate) matched: LogIndex,
    /// The newest round when that was learnt.
    matched_in: Round,
    /// When it last answered in this term; the start of the leadership before that.
    pub(crate) last_contact: Instant,
    /// Newest round it answered.
    pub(crate) contact_round: Round,
    /// The newest round that it answered with a promise as long as leases need it. At most `contact_round`.
    pub(crate) held_round: Round,
    /// What it promised with its newest answer, if it has answered at all.
    pub(crate) vote_hold: Option<Duration>,
    /// How its clock runs.
    pub(crate) gauge: Gauge,
    /// How long its disk takes, as it said last; zero if it has not. [`crate::slow_disk`]
    pub(crate) disk: Duration,
    /// The life of its data directory that answers in this term: a voter's first, a learner's newest. [fault-model NT5]
    pub(crate) incarnation: Option<Incarnation>,
    /// Its lives before that one, which answer no more.
    former: Vec<Incarnation>,
    /// Highest commit index sent to it.
    pub(crate) commit_sent: LogIndex,
    /// It waits for commits up to here and is told of each at once.
    pub(crate) wants_commit: LogIndex,
    /// How well a learner keeps up; nobody asks that of a voter.
    pub(crate) catch_up: Option<CatchUp>,
    /// The newest read round that it was asked while it was behind.
    round_asked: Round,
    /// The newest configuration is without it.
    pub(crate) leaving: Option<Leaving>,
    /// What it had acknowledged and has lost, until it acknowledges that again.
    pub(crate) lost_tail: Option<EntryId>,
}

impl Progress {
    /// A peer of which nothing is known but that it is probably not behind.
    pub(crate) fn new(now: Instant, next: LogIndex) -> Progress {
        Progress {
            flow: Flow::new(next),
            matched: LogIndex(0),
            matched_in: Round(0),
            last_contact: now,
            contact_round: Round(0),
            held_round: Round(0),
            vote_hold: None,
            gauge: Gauge::default(),
            disk: Duration::ZERO,
            incarnation: None,
            former: Vec::new(),
            commit_sent: LogIndex(0),
            wants_commit: LogIndex(0),
            catch_up: None,
            round_asked: Round(0),
            leaving: None,
            lost_tail: None,
        }
    }

    /// Whether a learner may begin again with this life: not with one that was over before the one that answers, and not
    /// without end, for each is remembered.
    pub(crate) fn may_begin(&self, incarnation: Incarnation) -> bool {
        self.former.len() < LIVES_MAX && !self.former.contains(&incarnation)
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
        let is_fed_by_log = !matches!(self.flow.mode, Mode::Snapshot(_));
        let round = self.catch_up.as_ref();
        is_fed_by_log && round.is_some_and(|round| round.fast && now.since(round.since) < election_timeout)
    }

    /// It gets a snapshot from now on.
    pub(crate) fn begin_snapshot(&mut self, stream: Stream) {
        self.flow.lost(self.matched.next());
        self.flow.mode = Mode::Snapshot(stream);
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
        let Mode::Snapshot(stream) = &mut self.flow.mode else { return };
        if base <= upto && LogIndex(0) < upto {
            self.flow.mode = Mode::Replicate;
            self.flow.next = self.matched.next();
        } else if stream.covers_no_more_than(upto) {
            *stream = Stream::new(newest, now);
        }
    }

    /// The peer's durable log agrees up to `upto`. True if that is news. `round` is the newest one.
    pub(crate) fn on_match(&mut self, now: Instant, upto: LogIndex, round: Round) -> bool {
        let news = self.matched < upto;
        if news {
            self.matched_in = round;
        }
        let _whole_again = self.lost_tail.take_if(|owed| owed.index <= upto);
        self.matched = self.matched.max(upto);
        self.flow.on_match(now, upto, self.matched, news);
        news
    }

    /// The peer lacks what was named. `agreeing` is where the logs may agree, and `round` the newest one.
    pub(crate) fn on_gap(&mut self, now: Instant, gap: Gap, agreeing: LogIndex, round: Round) -> bool {
        let next = agreeing.next().min(gap.prev).max(self.matched.next());
        self.flow.fall_back(now, next, gap.prev, round)
    }

    /// The peer's log ends early or does not hold what was named, it said to what was asked in `round`. True if it had
    /// acknowledged that before it was asked: its disk has lost it. A log that lost its newest entries may show older ones in
    /// their place, which had been dropped for them, and end no earlier.
    pub(crate) fn has_lost(&self, gap: Gap, round: Round) -> bool {
        (gap.last < self.matched || gap.prev <= self.matched) && self.matched_in < round
    }

    /// It had acknowledged this, and lost it. True if that is news.
    pub(crate) fn owe(&mut self, upto: EntryId) -> bool {
        let is_news = self.lost_tail < Some(upto);
        self.lost_tail = self.lost_tail.max(Some(upto));
        is_news || !matches!(self.flow.mode, Mode::Snapshot(_))
    }

    /// As [`Progress::has_lost`]; what is known of its log is then nothing. A peer that gets a snapshot is behind whatever
    /// it has lost.
    pub(crate) fn on_loss(&mut self, gap: Gap, round: Round) -> bool {
        let lost = self.has_lost(gap, round) && !matches!(self.flow.mode, Mode::Snapshot(_));
        if lost {
            self.matched = LogIndex(0);
            self.flow.lost(gap.last.next());
        }
        lost
    }

    /// Whether it follows the log where that is in memory, from `recent_first` on: entries are kept for it.
    pub(crate) fn is_in_sync(&self, recent_first: LogIndex) -> bool {
        matches!(self.flow.mode, Mode::Replicate) && recent_first <= self.matched.next()
    }

    /// Whether it is asked this read round. Who is behind has one to answer at a time: under many reads the rounds would take
    /// the way of the entries that it lacks, and those who keep up are a quorum mostly.
    pub(crate) fn takes_round(&mut self, round: Round, recent_first: LogIndex) -> bool {
        if !self.is_behind(recent_first) {
            return true;
        }
        let takes = self.round_asked <= self.contact_round;
        if takes {
            self.is_asked_round(round, recent_first);
        }
        takes
    }

    /// It is asked this round, with a heartbeat perhaps.
    pub(crate) fn is_asked_round(&mut self, round: Round, recent_first: LogIndex) {
        if self.is_behind(recent_first) {
            self.round_asked = round;
        }
    }

    /// Whether it lacks what is not in memory any more.
    pub(crate) fn is_behind(&self, recent_first: LogIndex) -> bool {
        self.matched.next() < recent_first
    }

    /// What was on its way, there or back, may be lost.
    pub(crate) fn link_closed(&mut self, now: Instant, config: &Config) {
        match &mut self.flow.mode {
            Mode::Snapshot(stream) => stream.link_closed(now, config),
            Mode::Probe { .. } | Mode::Replicate => self.flow.link_closed(now),
        }
    }

    /// See [`crate::canonical`]. When it last answered is compared with an election timeout only, which is over when
    /// the check of the quorum is due.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.last_contact = canonical.past(self.last_contact, canonical.election_timeout);
        self.disk = Duration::ZERO; // nobody times disks where states are canonical
        self.matched_in = Round(u64::MAX); // nobody's disk loses anything where states are canonical
        if let Some(round) = &mut self.catch_up {
            round.since = canonical.past(round.since, canonical.election_timeout);
        }
        self.flow.canonicalize(canonical);
    }
}
