//! Flow: how entries are sent to one peer, how much may be in flight, and when the peer is asked for the outcome.
//!
//! ```text
//!            the peer agrees at `next - 1`
//!   Probe ────────────────────────────────▶ Replicate
//!     ▲   one message, then questions only     │  many messages, `next` advances when sending
//!     └────────────────────────────────────────┘
//!       a gap: next = match + 1 (or the hint)
//!
//!   either ── the next entry has left the log ──▶ Snapshot ── a match at or above the base ──▶ Replicate
//! ```
//!
//! In:    appends that were sent, the peer's answers, broken links.
//! Out:   how much may be sent next; when to ask.
//! Rules: [replication-protocols B4–B6, B12, W8]
//!   1. Entries and questions about them travel in one order, in one lane. So the answer to a question shows what
//!      became of everything that was sent before it, however slow the lane is. Over several links a question waits
//!      for what was sent before it on each of them (decision 76). Where one overtakes entries all the same, its answer
//!      shows a gap where they are still on their way: they are sent once more than needed, and rule 4 may take the
//!      lane to be free too soon. No answer acknowledges entries that it has overtaken, so nothing else changes.
//!   2. Entries are sent again only when the peer reports that it lacks them. Neither elapsed time nor the end of a
//!      link is a reason: that link may have been the one on which the answers come. When entries in flight have made
//!      no progress for a measured round trip, the peer is asked. A question costs a hundred bytes, so one that is sent
//!      too early costs next to nothing.
//!   3. A round trip is measured from an append to its acknowledgement, the peer's disk included. Entries that were
//!      sent twice are not measured: it is unknown which copy the answer belongs to. [Karn]
//!   4. After a fallback, entries in flight behind the gap still fill the lane, and count as in flight until the peer
//!      has read something newer. So copies never pile up: at most `inflight_bytes_max` and one entry are in flight to
//!      a peer. The next round begins with the fallback, so that the first answer to what follows it shows that the
//!      lane is free.
//!   5. Until then the gaps that those entries leave are not new, and are ignored.
//!   6. Nothing is sent for which the peer has announced no room.
//!   7. A peer with a window reports which entries it keeps after a gap. The entries of the gap are sent again, and no
//!      others, when the append that carried the first of them is older than `srtt + 4·rttvar` (at least 2 ms), or when
//!      three appends that were sent later have arrived, as in TCP's fast retransmit. They stay in flight all the while:
//!      a window may be lost with the peer's process. If nothing helps, the peer is asked as by rule 2.
//!   8. Rule 7 guesses: on a slow link, small appends overtake a large one that is not lost. So what it sends again is at
//!      most a tenth of all that was sent, however often it is wrong.
//!
//! Knows nothing of: messages, other peers, commit, the peer's log.

use crate::canonical::{CANONICAL_NOW, Canonical};
use crate::config::Config;
use crate::message::{Gap, Room, Run};
use crate::snapshot::Stream;
use crate::types::{Duration, Instant, LogIndex, Round};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// One append with entries that was sent and not yet answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    /// The index before its entries.
    prev: LogIndex,
    last: LogIndex,
    bytes: usize,
    at: Instant,
    /// Some of its entries were sent before: its answer is not measured.
    again: bool,
}

/// How entries are sent to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// It is not known where the logs agree.
    Probe {
        /// Entries from `next` on are in flight, or a question: nothing else is sent until it is answered.
        awaiting: Option<Sent>,
    },
    /// The logs agree up to what was sent.
    Replicate,
    /// The next entry for the peer has left the log: the peer gets a snapshot, and no entries meanwhile.
    Snapshot(Box<Stream>),
}

/// Entries that were written off in a fallback and still fill the lane. [Rule 4]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Charge {
    bytes: usize,
    /// The newest round when they were written off: anything of a later round was sent after them.
    round: Round,
}

/// A measured round trip, as in TCP: srtt and rttvar, by eighths and quarters. [RFC 6298]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RoundTrip {
    /// The smoothed time, in nanoseconds; 0 before the first measurement.
    smooth: u64,
    /// The mean deviation from it, in nanoseconds.
    stray: u64,
}

impl RoundTrip {
    fn measured(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).clamp(1, u64::MAX >> 4);
        if self.smooth == 0 {
            *self = RoundTrip { smooth: took, stray: took / 2 };
        } else {
            self.stray = (self.stray * 3 + self.smooth.abs_diff(took)) / 4;
            self.smooth = (self.smooth * 7 + took) / 8;
        }
    }

    /// The smoothed time; zero before anything was measured.
    pub(crate) fn srtt(self) -> Duration {
        Duration::from_nanos(self.smooth)
    }

    /// `srtt + 4·rttvar`: an answer that takes longer is not expected any more.
    fn timeout(self) -> Duration {
        Duration::from_nanos(self.smooth + self.stray * 4)
    }

    /// How long to wait before a question: the timeout. At least a quarter of a heartbeat interval, so that an
    /// answer that is a little late causes no question; at most half an election timeout, so that a loss is found
    /// before an election.
    fn patience(self, config: &Config) -> Duration {
        self.timeout().clamp(config.heartbeat_interval / 4, config.election_timeout / 2)
    }
}

/// Bytes of entries sent to one peer in this term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowCounts {
    /// Sent, every copy counted.
    pub sent: u64,
    /// Of these, in appends that repeat an entry.
    pub again: u64,
    /// Acknowledged for the first time.
    pub taken: u64,
}

/// The flow to one peer, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerFlow {
    /// Bytes sent in this term.
    pub counts: FlowCounts,
    /// A round trip, the peer's disk included; zero before one was measured.
    pub srtt: Duration,
    /// Entries that the peer has not acknowledged.
    pub behind: u64,
}

/// The flow of entries to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    /// How entries are sent.
    pub(crate) mode: Mode,
    /// The next entry to send. Above what is known to agree.
    pub(crate) next: LogIndex,
    /// Unanswered appends with entries, oldest first. In `Probe` only those that were in flight when a link ended.
    inflight: VecDeque<Sent>,
    /// Their bytes.
    inflight_bytes: usize,
    /// What was in flight when a limit was lowered, or is left of it: for [`crate::invariants`]. [tuning, rule 2]
    lowered: (usize, usize),
    charge: Charge,
    /// Highest index ever sent: an append that begins at or below it is a repeat.
    sent_upto: LogIndex,
    /// Since when the entries in flight have made no progress; meaningless while there are none.
    since: Instant,
    /// Questions sent since the peer was last heard: without an answer they become rarer.
    asked: u8,
    /// A link has ended since the last question.
    must_ask: bool,
    /// A link has ended since a probe was last answered: a match that was known before does not answer one.
    link_ended: bool,
    /// Room that the peer has after what it has acknowledged, at least, as last announced.
    room: Room,
    trip: RoundTrip,
    /// Size of the next entry, which was read back: it is not read again before there is room for it. 0 if unknown.
    next_bytes: usize,
    /// Entries for the peer could not be read: none are sent before this.
    paused_until: Instant,
    /// The entries that the peer keeps after a gap, as it last reported. [Rule 7]
    early: Vec<Run>,
    /// How often entries of the present gap were sent again: each time it takes twice as long. [RFC 6298 §5.5]
    repairs: u8,
    /// Bytes of gaps that may be sent again before the peer is asked. [Rule 8]
    guesses: usize,
    counts: FlowCounts,
}

/// An append is not sent again before it is so old, however short round trips are. [Rule 7]
const REPAIR_MIN: Duration = Duration::from_millis(2);

/// Appends sent later that have arrived: then an earlier one is taken for lost. [Rule 7; RFC 5681 §3.2]
const LATER_MAX: usize = 3;

/// Bytes of gaps that may be sent again before anything was sent: many small appends. [Rule 8]
const GUESSES_FIRST: usize = 64 << 10;

/// Each so many bytes sent allow one more. [Rule 8]
const GUESS_EACH: usize = 10;

/// The most that are allowed together: a link that has become slow repeats no more than this. [Rule 8]
const GUESSES_MAX: usize = 4 << 20;

/// Questions in a row after which they do not become rarer any more.
const ASKED_MAX: u8 = 6;

impl Flow {
    /// A flow to a peer of unknown state, which is probably not behind.
    pub(crate) fn new(next: LogIndex) -> Flow {
        Flow {
            mode: Mode::Probe { awaiting: None },
            next,
            inflight: VecDeque::new(),
            inflight_bytes: 0,
            lowered: (0, 0),
            charge: Charge::default(),
            sent_upto: LogIndex(0),
            since: Instant(0),
            asked: 0,
            must_ask: false,
            link_ended: false,
            room: Room::PLENTY,
            trip: RoundTrip::default(),
            next_bytes: 0,
            paused_until: Instant(0),
            early: Vec::new(),
            repairs: 0,
            guesses: GUESSES_FIRST,
            counts: FlowCounts::default(),
        }
    }

    /// Bytes of entries that may be sent in addition to those in flight; `None`: no entries may be sent.
    pub(crate) fn credit(&self, now: Instant, config: &Config) -> Option<usize> {
        let room_left = self.room_left();
        if now < self.paused_until || room_left == 0 || room_left < self.next_bytes {
            return None;
        }
        let limits = &config.limits;
        let messages_max = match self.mode {
            Mode::Probe { awaiting: Some(_) } => 0,
            Mode::Probe { awaiting: None } => 1,
            Mode::Replicate => config.inflight_msgs(),
            Mode::Snapshot(_) => 0,
        };
        let bytes = limits.inflight_bytes_max.saturating_sub(self.inflight_bytes + self.charge.bytes);
        let bytes = bytes.min(room_left);
        let may = self.inflight.len() < messages_max && (bytes > 0 || self.is_idle());
        may.then_some(bytes)
    }

    /// The first run of entries up to `last` that the peer may lack and that is not in flight: its first and last index.
    pub(crate) fn unsent(&self, last: LogIndex) -> Option<(LogIndex, LogIndex)> {
        let kept = self.early.iter().find(|run| self.next < run.first);
        (self.next <= last).then(|| (self.next, kept.map_or(last, |run| last.min(run.first.previous()))))
    }

    /// Entries that the peer keeps after a gap are not sent again after a fallback. They count as a message in flight
    /// without bytes, because a window may be lost with the peer's process. Whether there were any next. [Rule 7]
    pub(crate) fn skip_early(&mut self, now: Instant) -> bool {
        let next = self.next;
        let run = self.early.iter().find(|run| run.first <= next && next <= run.last);
        let Some(&Run { last, .. }) = run.filter(|_| matches!(self.mode, Mode::Replicate)) else {
            return false;
        };
        if !self.waits() {
            self.progressed(now);
        }
        self.under_way(Sent { prev: next.previous(), last, bytes: 0, at: now, again: true });
        true
    }

    /// The peer's room, less the bytes in flight.
    fn room_left(&self) -> usize {
        usize::try_from(self.room.0).unwrap_or(usize::MAX).saturating_sub(self.inflight_bytes)
    }

    /// Whether the peer has room for an entry of this size.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= self.room_left()
    }

    /// Whether an entry of this size may be sent with this credit. One of any size passes alone, but never without room
    /// for it.
    pub(crate) fn fits(&self, credit: usize, bytes: usize) -> bool {
        bytes <= credit || self.is_idle() && self.has_room_for(bytes)
    }

    /// Whether the lane is free.
    fn is_idle(&self) -> bool {
        self.inflight.is_empty() && self.charge.bytes == 0
    }

    /// Whether an answer is outstanding. [Rule 2]
    fn waits(&self) -> bool {
        match &self.mode {
            Mode::Probe { awaiting } => awaiting.is_some() || !self.is_idle(),
            Mode::Replicate => !self.is_idle(),
            Mode::Snapshot(_) => false,
        }
    }

    /// An append with the entries after `prev` up to `last` was sent.
    pub(crate) fn sent(&mut self, now: Instant, prev: LogIndex, last: LogIndex, bytes: usize) {
        if !self.waits() {
            self.progressed(now);
        }
        let again = prev < self.sent_upto;
        self.counts.sent += bytes as u64;
        self.counts.again += if again { bytes as u64 } else { 0 };
        self.guesses = (self.guesses + bytes / GUESS_EACH).min(GUESSES_MAX);
        self.sent_upto = self.sent_upto.max(last);
        self.next_bytes = 0;
        let sent = Sent { prev, last, bytes, at: now, again };
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

    fn progressed(&mut self, now: Instant) {
        self.since = now;
        self.asked = 0;
    }

    /// When the peer is to be asked for the outcome. [Rule 2]
    pub(crate) fn question_at(&self, config: &Config) -> Instant {
        if !self.waits() {
            return Instant::NEVER;
        }
        let patience = self.trip.patience(config) * (1 << self.asked);
        self.since + patience.min(config.election_timeout)
    }

    /// Whether the peer is to be asked now: a link has ended, or a probe has nothing to send.
    pub(crate) fn must_ask(&self, matched: LogIndex, last: LogIndex) -> bool {
        let is_idle_probe = matches!(self.mode, Mode::Probe { awaiting: None })
            && last < self.next
            && matched < self.next.previous();
        is_idle_probe || self.must_ask && self.waits()
    }

    /// The peer is asked now. Returns the position that the question is about. [Rule 1]
    pub(crate) fn ask(&mut self, now: Instant) -> LogIndex {
        self.since = now;
        self.asked += u8::from(!self.must_ask && self.asked < ASKED_MAX);
        self.must_ask = false;
        let question = self.question(now);
        match &mut self.mode {
            Mode::Probe { awaiting } => awaiting.get_or_insert(question).last,
            Mode::Replicate | Mode::Snapshot(_) => question.last,
        }
    }

    /// The peer's durable log agrees up to `upto`; `matched` is the known agreement now, and `is_news` whether it has
    /// grown.
    ///
    /// A probe is answered by a match of the position it asked for or more; a smaller match proves nothing about it.
    /// Its entries are then in flight like any others. After the end of a link, a match that was known before proves
    /// nothing either: a heartbeat may have asked for it on the new link, and the probe may have been lost with the old
    /// one. Nor does it while entries that were written off fill the lane: the probe is behind them, and so would be
    /// what followed it.
    pub(crate) fn on_match(&mut self, now: Instant, upto: LogIndex, matched: LogIndex, is_news: bool) {
        let agrees = self.next.previous() <= upto;
        let is_doubtful = self.link_ended || self.charge.bytes > 0;
        if let Mode::Probe { awaiting } = &mut self.mode
            && agrees
            && (!is_doubtful || is_news || awaiting.as_ref().is_none_or(|sent| sent.last <= upto))
        {
            let awaiting = awaiting.take();
            self.mode = Mode::Replicate;
            self.link_ended = false;
            if let Some(sent) = awaiting.filter(|sent| sent.prev < sent.last) {
                self.under_way(sent);
            }
        }
        let mut newest = None;
        while self.inflight.front().is_some_and(|sent| sent.last <= upto) {
            if let Some(sent) = self.inflight.pop_front() {
                self.inflight_bytes -= sent.bytes;
                self.counts.taken += sent.bytes as u64;
                newest = Some(sent);
            }
        }
        let (messages, bytes) = self.out();
        self.lowered = (self.lowered.0.min(messages), self.lowered.1.min(bytes));
        if let Some(sent) = newest.filter(|sent| !sent.again) {
            self.trip.measured(now.since(sent.at));
        }
        if self.next <= matched {
            (self.next, self.next_bytes) = (matched.next(), 0);
        }
        if is_news {
            self.progressed(now);
            self.repairs = 0;
        }
    }

    /// The peer has read what was sent in rounds up to `bulk`, and has this much room.
    pub(crate) fn on_read(&mut self, now: Instant, bulk: Round, room: Room) {
        self.room = room;
        self.asked = 0;
        if self.charge.bytes > 0 && self.charge.round < bulk {
            self.charge = Charge::default();
            self.progressed(now);
        }
    }

    /// The peer, whose log agrees up to `matched` at least, keeps these entries after a gap. [Rule 7]
    pub(crate) fn on_early(&mut self, runs: &[Run], matched: LogIndex) {
        self.early.clear();
        self.early.extend(runs.iter().filter(|run| matched < run.first && run.first <= run.last));
    }

    /// How many entries the peer keeps after a gap.
    pub(crate) fn early(&self) -> u64 {
        self.early.iter().map(|run| run.last.0 - run.first.0 + 1).sum()
    }

    /// The gap before the entries that the peer keeps, if all of it is in flight.
    fn hole(&self, matched: LogIndex) -> Option<Run> {
        let early = self.early.first().filter(|_| matches!(self.mode, Mode::Replicate))?;
        let (first, last) = (matched.next(), early.first.previous());
        (first <= last && last < self.next).then_some(Run { first, last })
    }

    /// The appends that carried the entries of the gap, if so many bytes may be sent again. [Rule 8]
    fn lacking(&self, hole: Run) -> Option<(core::ops::Range<usize>, usize)> {
        let first = self.inflight.iter().position(|sent| hole.first <= sent.last)?;
        let count = self.inflight.range(first..).take_while(|sent| sent.prev < hole.last).count();
        let lacking = first..first + count;
        let bytes = self.inflight.range(lacking.clone()).map(|sent| sent.bytes).sum();
        (bytes <= self.guesses).then_some((lacking, bytes))
    }

    /// When the entries of the gap are sent again if nothing else happens. [Rule 7]
    pub(crate) fn repair_at(&self, matched: LogIndex) -> Instant {
        let lacking = self.hole(matched).and_then(|hole| self.lacking(hole));
        // Before a round trip was measured, a question comes first.
        let Some((lacking, _)) = lacking.filter(|_| 0 < self.trip.smooth) else { return Instant::NEVER };
        self.inflight[lacking.start].at + self.trip.timeout().max(REPAIR_MIN) * (1 << self.repairs)
    }

    /// The entries of the gap, if they are to be sent again now; they count as sent now. [Rule 7]
    pub(crate) fn repair(&mut self, now: Instant, matched: LogIndex) -> Option<Run> {
        let hole = self.hole(matched)?;
        let (lacking, bytes) = self.lacking(hole)?;
        let place = lacking.start;
        let is_kept =
            |sent: &Sent| self.early.iter().any(|run| run.first <= sent.prev.next() && sent.last <= run.last);
        let has_later = || {
            self.inflight.range(place + 1..).filter(|sent| is_kept(sent)).take(LATER_MAX).count() == LATER_MAX
        };
        let is_due = self.repair_at(matched) <= now || !self.inflight[place].again && has_later();
        if !is_due {
            return None;
        }
        self.repairs = (self.repairs + 1).min(ASKED_MAX);
        self.guesses -= bytes;
        for sent in self.inflight.range_mut(lacking) {
            (sent.at, sent.again) = (now, true);
        }
        Some(hole)
    }

    /// So many bytes of a gap were sent again.
    pub(crate) fn repaired(&mut self, bytes: usize) {
        self.counts.sent += bytes as u64;
        self.counts.again += bytes as u64;
    }

    /// The entries of the gap cannot be sent again as they are: the peer is asked.
    pub(crate) fn ask_instead(&mut self) {
        self.must_ask = true;
        self.early.clear();
    }

    /// Whether a gap at `prev` is new, `matched` being known to agree: it is not below that, in `Probe` it answers the
    /// last question, and no entries that were written off have left it. [Rule 5]
    pub(crate) fn believes(&self, prev: LogIndex, matched: LogIndex) -> bool {
        let is_new = self.charge.bytes == 0;
        let is_asked = match &self.mode {
            Mode::Probe { awaiting } => {
                prev == self.next.previous() || awaiting.as_ref().is_some_and(|sent| sent.last == prev)
            }
            Mode::Replicate => prev < self.next,
            Mode::Snapshot(_) => false,
        };
        is_new && is_asked && matched < prev
    }

    /// Starts over from `next`. The peer has read everything up to the append that named the gap; what was sent behind
    /// that, at the latest in `round`, is written off. True if that fills the lane: the next round then begins at once,
    /// so that the peer's first answer in it shows that the lane is free. [Rule 4]
    pub(crate) fn fall_back(&mut self, now: Instant, next: LogIndex, gap: Gap, round: Round) -> bool {
        let awaiting = match &self.mode {
            Mode::Probe { awaiting } => awaiting.as_ref(),
            Mode::Replicate | Mode::Snapshot(_) => None,
        };
        let behind = self.inflight.iter().chain(awaiting).filter(|sent| gap.prev < sent.prev);
        let bytes: usize = behind.map(|sent| sent.bytes).sum();
        if bytes > 0 {
            self.charge = Charge { bytes: self.charge.bytes + bytes, round };
        }
        self.begin_anew(next);
        self.progressed(now);
        bytes > 0
    }

    /// A link has ended, this one or the one on which the answers come. The peer is asked at once, and again soon, when
    /// the link is back, and gets no entries until it has answered. The new link's round trip is unknown.
    pub(crate) fn link_closed(&mut self, now: Instant) {
        if matches!(self.mode, Mode::Replicate) {
            let awaiting = (!self.inflight.is_empty()).then(|| self.question(now));
            self.mode = Mode::Probe { awaiting };
        }
        self.trip = RoundTrip::default();
        self.progressed(now);
        self.must_ask = true;
        self.link_ended = true;
    }

    /// A mere question about the end of what was sent.
    fn question(&self, now: Instant) -> Sent {
        let end = self.next.previous();
        Sent { prev: end, last: end, bytes: 0, at: now, again: true }
    }

    /// Nothing in flight counts any more: the peer has lost its log, or gets a snapshot.
    pub(crate) fn lost(&mut self, next: LogIndex) {
        self.charge = Charge::default();
        self.room = Room::PLENTY;
        self.begin_anew(next);
    }

    fn begin_anew(&mut self, next: LogIndex) {
        self.mode = Mode::Probe { awaiting: None };
        self.next = next;
        self.next_bytes = 0;
        self.inflight.clear();
        self.inflight_bytes = 0;
    }

    /// No entries before there is room for the next one, which has this many bytes. The answers to entries in flight
    /// announce that room.
    pub(crate) fn wait_for_room(&mut self, bytes: usize) {
        self.next_bytes = bytes;
    }

    /// No entries before `until`.
    pub(crate) fn pause(&mut self, until: Instant) {
        self.paused_until = until;
    }

    /// The measured round trip; zero before anything was measured.
    pub(crate) fn srtt(&self) -> Duration {
        self.trip.srtt()
    }

    /// Bytes sent to this peer.
    pub(crate) fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// Limits may have been lowered: what is in flight now may exceed them until it is answered.
    pub(crate) fn note_lowered(&mut self) {
        self.lowered = self.out();
    }

    /// Everything that was sent and not answered, a probe and what was written off included.
    fn out(&self) -> (usize, usize) {
        let probe = match &self.mode {
            Mode::Probe { awaiting } => awaiting.as_ref(),
            Mode::Replicate | Mode::Snapshot(_) => None,
        };
        let messages = self.inflight.len() + usize::from(probe.is_some());
        (messages, self.inflight_bytes + self.charge.bytes + probe.map_or(0, |probe| probe.bytes))
    }

    /// Messages and bytes in flight that a former limit allowed.
    pub(crate) fn lowered(&self) -> (usize, usize) {
        self.lowered
    }

    /// Unanswered appends, and the bytes in flight when the newest of them was sent. That one may have been an entry
    /// that was read back and turned out larger than the credit it was read for.
    pub(crate) fn inflight(&self) -> (usize, usize) {
        let before =
            self.inflight.back().map_or(0, |newest| self.inflight_bytes - newest.bytes + self.charge.bytes);
        (self.inflight.len(), before)
    }

    /// See [`crate::canonical`]. A round trip takes no time where states are canonical, so all leaders wait equally
    /// long before a question, and the first question is as good as any later one.
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        self.paused_until = match canonical.deadline(self.paused_until, canonical.heartbeat_interval) {
            CANONICAL_NOW => Instant(0), // not paused
            later => later,
        };
        self.trip = RoundTrip::default();
        self.counts = FlowCounts::default();
        (self.asked, self.repairs, self.guesses) = (0, 0, GUESSES_FIRST);
        self.must_ask &= self.waits();
        self.since = match self.waits() {
            true => canonical.past(self.since, canonical.heartbeat_interval / 4),
            false => Instant(0),
        };
        let awaiting = match &mut self.mode {
            Mode::Probe { awaiting } => awaiting.as_mut(),
            Mode::Replicate => None,
            Mode::Snapshot(stream) => {
                stream.canonicalize(canonical);
                None
            }
        };
        for sent in self.inflight.iter_mut().chain(awaiting) {
            sent.at = CANONICAL_NOW; // used for round trips only
            sent.again = true;
        }
        self.sent_upto = LogIndex(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryId;
    use crate::canonical::tests::config;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Computed by hand from RFC 6298: the first measurement R gives srtt R and rttvar R/2; each later one first
    /// rttvar, by the srtt before it, then srtt. Patience has bounds of 25 and 500 ms here.
    #[test]
    fn patience_follows_what_was_measured_between_its_bounds() {
        let config = Config { heartbeat_interval: ms(100), election_timeout: ms(1000), ..config() };
        let table: [(&[Duration], Duration, Duration); 10] = [
            (&[], Duration::ZERO, ms(25)),
            (&[ms(80)], ms(80), ms(240)),
            (&[ms(80), ms(80)], ms(80), ms(200)),
            (&[ms(80), ms(160)], ms(90), ms(290)),
            (&[ms(80), ms(40)], ms(75), ms(235)),
            (&[ms(80), ms(160), ms(170)], ms(100), ms(330)),
            (&[ms(8)], ms(8), ms(25)),
            (&[ms(166)], ms(166), ms(498)),
            (&[ms(167)], ms(167), ms(500)),
            (&[Duration::ZERO], Duration::from_nanos(1), ms(25)),
        ];
        for (measured, srtt, patience) in table {
            let mut trip = RoundTrip::default();
            measured.iter().for_each(|&took| trip.measured(took));
            assert_eq!((trip.srtt(), trip.patience(&config)), (srtt, patience), "after {measured:?}");
        }
    }

    #[test]
    fn no_measurement_is_too_long_for_the_arithmetic() {
        let mut trip = RoundTrip::default();
        for _ in 0..100 {
            trip.measured(Duration::MAX);
            assert_eq!(trip.patience(&config()), config().election_timeout / 2);
        }
    }

    /// Goal: a probe behind entries that were written off is not answered by a match that was known before.
    #[test]
    fn a_probe_behind_what_was_written_off_waits_for_its_own_answer() {
        let (now, round) = (Instant(1), Round(1));
        let mut flow = Flow::new(LogIndex(2));
        flow.on_match(now, LogIndex(1), LogIndex(1), true);
        for first in 2..6 {
            flow.sent(now, LogIndex(first - 1), LogIndex(first), 100);
        }
        let gap = Gap { prev: LogIndex(2), hint: EntryId::new(1, 1), last: LogIndex(1) };
        assert!(flow.fall_back(now, LogIndex(2), gap, round), "some of it still fills the lane");
        flow.sent(now, LogIndex(1), LogIndex(2), 100);
        flow.on_match(now, LogIndex(1), LogIndex(1), false); // of a heartbeat
        assert!(matches!(flow.mode, Mode::Probe { awaiting: Some(_) }), "{:?}", flow.mode);
        flow.on_read(now, round.next(), Room::PLENTY);
        flow.on_match(now, LogIndex(2), LogIndex(2), true);
        assert!(matches!(flow.mode, Mode::Replicate), "{:?}", flow.mode);
    }

    /// Goal: small appends that overtake a large one again and again repeat little of it, and something.
    #[test]
    fn what_is_sent_again_on_a_guess_has_a_budget() {
        let (now, large, small) = (Instant(1), 100_000, 100);
        let mut flow = Flow::new(LogIndex(2));
        flow.on_match(now, LogIndex(1), LogIndex(1), true);
        let (mut sent, mut again) = (0, 0);
        for matched in (1..1000).step_by(4) {
            for (later, bytes) in [large, small, small, small].into_iter().enumerate() {
                let prev = matched + later as u64;
                flow.sent(now, LogIndex(prev), LogIndex(prev + 1), bytes);
                sent += bytes;
            }
            let early = Run { first: LogIndex(matched + 2), last: LogIndex(matched + 4) };
            flow.on_early(&[early], LogIndex(matched));
            if let Some(hole) = flow.repair(now, LogIndex(matched)) {
                assert_eq!(hole, Run { first: LogIndex(matched + 1), last: LogIndex(matched + 1) });
                again += large;
            }
            flow.on_match(now, LogIndex(matched + 4), LogIndex(matched + 4), true);
        }
        assert!(0 < again && again <= sent / GUESS_EACH + GUESSES_FIRST, "{again} of {sent}");
    }
}
