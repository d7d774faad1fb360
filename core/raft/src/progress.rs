//! Progress: what a leader knows of one peer: its log, its answers, the flow of entries to it.
//!
//! Everything here is idempotent: answers may be lost, repeated, reordered. `matched` never falls within a term, with
//! one exception: the peer's disk has lost entries that it had acknowledged, and an answer shows that to a round that
//! began after the acknowledgement. [Ongaro14 §10.2.2; replication-protocols B4, B5; fault-model ST14]
//! Knows nothing of: messages, other peers, commit.

use crate::canonical::Canonical;
use crate::clocks::Gauge;
use crate::config::Config;
use crate::flow::{Flow, Mode};
use crate::message::Gap;
use crate::snapshot::{SnapshotMeta, Stream};
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Round};
use alloc::vec::Vec;

/// Directories that a learner may have had in one term.
const LIVES_MAX: usize = 64;

/// How a learner catches up: in rounds, each of which ends when the learner has what the log held when the round began.
/// A learner that needs less than an election timeout for a round would not hold up a quorum for longer. [Ongaro14
/// §4.2.1]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CatchUp {
    /// The end of this round.
    target: LogIndex,
    /// Its beginning.
    since: Instant,
    /// The last round took less than an election timeout.
    fast: bool,
}

/// A peer that leaves the group. The leader keeps it until the peer has learnt of the commit of its removal, or does
/// not answer. [replication-protocols M8]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    /// The configuration without it.
    pub(crate) at: LogIndex,
    /// The first heartbeat that carried the commit of its removal.
    pub(crate) told: Option<Round>,
    /// Heartbeats until the leader stops waiting for it.
    pub(crate) heartbeats_left: u8,
}

/// One peer, as the leader of this term sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// The flow of entries to it.
    pub(crate) flow: Flow,
    /// Highest index known to agree and to be durable there.
    pub(crate) matched: LogIndex,
    /// The newest round when `matched` was learnt.
    matched_in: Round,
    /// When it last answered in this term; the start of the leadership before that.
    pub(crate) last_contact: Instant,
    /// Newest round it answered.
    pub(crate) contact_round: Round,
    /// The newest round that it answered with a vote hold as long as leases need it. At most `contact_round`.
    pub(crate) held_round: Round,
    /// The vote hold in its newest answer, if it has answered at all.
    pub(crate) vote_hold: Option<Duration>,
    /// Measurements of its clock.
    pub(crate) gauge: Gauge,
    /// How long its disk takes, as last reported; zero if it was not. [`crate::slow_disk`]
    pub(crate) disk: Duration,
    /// The incarnation of its data directory that answers in this term: a voter's first, a learner's newest.
    /// [fault-model NT5]
    pub(crate) incarnation: Option<Incarnation>,
    /// Its incarnations before that one, whose answers do not count any more.
    former: Vec<Incarnation>,
    /// Highest commit index sent to it.
    pub(crate) commit_sent: LogIndex,
    /// It waits for commits up to here and gets each one at once.
    pub(crate) wants_commit: LogIndex,
    /// How well a learner keeps up; `None` for a voter.
    pub(crate) catch_up: Option<CatchUp>,
    /// The newest read round that it was sent while it was behind.
    round_asked: Round,
    /// Set when the newest configuration does not contain it.
    pub(crate) leaving: Option<Leaving>,
    /// The position up to which it has lost acknowledged entries, until it acknowledges that again.
    pub(crate) lost_tail: Option<EntryId>,
}

impl Progress {
    /// A peer of unknown state, which is probably not behind.
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

    /// Whether a learner may begin again with this incarnation. Not with one that was over before the current one, and
    /// not without limit, because each is remembered.
    pub(crate) fn may_begin(&self, incarnation: Incarnation) -> bool {
        self.former.len() < LIVES_MAX && !self.former.contains(&incarnation)
    }

    /// A learner begins again, with another directory: what the former one held, and what was sent to it, is lost.
    pub(crate) fn begin_life(&mut self, now: Instant, incarnation: Incarnation, last: LogIndex) {
        let mut former = core::mem::take(&mut self.former);
        former.extend(self.incarnation);
        let leaving = self.leaving.take();
        let fresh = Progress::new(now, last.next());
        *self = Progress { incarnation: Some(incarnation), former, leaving, ..fresh };
        self.watch_catch_up(now, true, last);
    }

    /// The peer has answered, and the leader's log ends at `last`: a catch-up round may be over.
    pub(crate) fn note_catch_up(&mut self, now: Instant, last: LogIndex, election_timeout: Duration) {
        if let Some(round) = &mut self.catch_up
            && round.target <= self.matched
        {
            let fast = now.since(round.since) < election_timeout;
            *round = CatchUp { target: last, since: now, fast };
        }
    }

    /// Starts or stops measuring how well it keeps up.
    pub(crate) fn watch_catch_up(&mut self, now: Instant, is_learner: bool, last: LogIndex) {
        match (is_learner, &self.catch_up) {
            (true, None) => self.catch_up = Some(CatchUp { target: last, since: now, fast: false }),
            (false, Some(_)) => self.catch_up = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether it keeps up: the last round was fast, and this one is not slow yet. A peer that needs a snapshot does
    /// not, however well it did a moment ago.
    pub(crate) fn is_caught_up(&self, now: Instant, election_timeout: Duration) -> bool {
        let is_fed_by_log = !matches!(self.flow.mode, Mode::Snapshot(_));
        let round = self.catch_up.as_ref();
        is_fed_by_log && round.is_some_and(|round| round.fast && now.since(round.since) < election_timeout)
    }

    /// From now on it gets a snapshot.
    pub(crate) fn begin_snapshot(&mut self, stream: Stream) {
        self.flow.lost(self.matched.next());
        self.flow.mode = Mode::Snapshot(stream);
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
            *stream = Stream::new(newest, now);
        }
    }

    /// The peer's durable log agrees up to `upto`. True if that is new. `round` is the newest one.
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

    /// The peer lacks the position in `gap`. `agreeing` is where the logs may agree, and `round` the newest one.
    pub(crate) fn on_gap(&mut self, now: Instant, gap: Gap, agreeing: LogIndex, round: Round) -> bool {
        let next = agreeing.next().min(gap.prev).max(self.matched.next());
        self.flow.fall_back(now, next, gap.prev, round)
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
        let is_news = self.lost_tail < Some(upto);
        self.lost_tail = self.lost_tail.max(Some(upto));
        is_news || !matches!(self.flow.mode, Mode::Snapshot(_))
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

    /// Whether it is sent this read round. A peer that is behind has one to answer at a time: under many reads the
    /// rounds would take the bandwidth of the entries that it lacks, and the peers that keep up are a quorum mostly.
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

    /// It is sent this round, perhaps with a heartbeat.
    pub(crate) fn is_asked_round(&mut self, round: Round, recent_first: LogIndex) {
        if self.is_behind(recent_first) {
            self.round_asked = round;
        }
    }

    /// Whether it lacks entries that are not in memory any more.
    pub(crate) fn is_behind(&self, recent_first: LogIndex) -> bool {
        self.matched.next() < recent_first
    }

    /// A link has ended: messages in flight, in either direction, may be lost.
    pub(crate) fn link_closed(&mut self, now: Instant, config: &Config) {
        match &mut self.flow.mode {
            Mode::Snapshot(stream) => stream.link_closed(now, config),
            Mode::Probe { .. } | Mode::Replicate => self.flow.link_closed(now),
        }
    }

    /// See [`crate::canonical`]. `last_contact` is compared with an election timeout only, which is over when the check
    /// of the quorum is due.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.last_contact = canonical.past(self.last_contact, canonical.election_timeout);
        self.disk = Duration::ZERO; // disks are not timed where states are canonical
        self.matched_in = Round(u64::MAX); // disks lose nothing where states are canonical
        if let Some(round) = &mut self.catch_up {
            round.since = canonical.past(round.since, canonical.election_timeout);
        }
        self.flow.canonicalize(canonical);
    }
}
