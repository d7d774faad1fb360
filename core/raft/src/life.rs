//! Life: the course of one peer's membership under one leader: its data directory, how it catches up, how it leaves,
//! which acknowledged entries its disk has lost.
//!
//! In:    the incarnation in each answer; configurations that make the peer a learner or a voter, or remove it; how far
//!        its log agrees.
//! Out:   whether its answers count; whether it keeps up; when the leader forgets it; the loss to report to it.
//! Rules: [replication-protocols M3, M8; fault-model NT5, ST14; Ongaro14 §4.2.1]
//!   1. A new directory cannot answer for what the former one stored. A voter has one directory for the whole term; a
//!      learner may begin again with another one, and the former one never counts again.
//!   2. A learner catches up in rounds, each of which ends when the learner has what the log held when the round began.
//!      A learner that needs less than an election timeout for a round would not hold up a quorum for longer.
//!   3. The leader keeps a removed peer until it has learnt of the commit of its removal, or does not answer.
//!   4. A loss of acknowledged entries is reported until the peer acknowledges them again.
//!
//! Knows nothing of: how entries are sent, the peer's clock, time but for the rounds of rule 2.

use crate::canonical::Canonical;
use crate::types::{Duration, EntryId, Incarnation, Instant, LogIndex, Round};
use alloc::vec::Vec;

/// Directories that a learner may have had in one term.
const LIVES_MAX: usize = 64;

/// Heartbeats, with the commit of its removal, that a removed member gets if it does not answer.
const FAREWELLS: u8 = 20;

/// How a learner catches up. [Rule 2]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CatchUp {
    /// The end of this round.
    target: LogIndex,
    /// Its beginning.
    since: Instant,
    /// The last round took less than an election timeout.
    fast: bool,
}

/// A peer that leaves the group. [Rule 3]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaving {
    /// The configuration without it.
    at: LogIndex,
    /// The first heartbeat that carried the commit of its removal.
    told: Option<Round>,
    /// Heartbeats until the leader stops waiting for it.
    heartbeats_left: u8,
}

/// The course of one peer's membership in this term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    /// The incarnation of its data directory that answers in this term: a voter's first, a learner's newest.
    incarnation: Option<Incarnation>,
    /// Its incarnations before that one, whose answers do not count any more.
    former: Vec<Incarnation>,
    /// How well a learner keeps up; `None` for a voter.
    catch_up: Option<CatchUp>,
    /// Set when the newest configuration does not contain it.
    leaving: Option<Leaving>,
    /// The position up to which it has lost acknowledged entries, until it acknowledges that again.
    lost_tail: Option<EntryId>,
}

impl Life {
    /// Whether a learner begins again with the directory that answers. Not with one that was over before the current
    /// one, and not without limit, because each is remembered. The first directory that answers is the current one.
    pub(crate) fn begins_anew(&mut self, incarnation: Incarnation, is_learner: bool) -> bool {
        let may_begin = self.former.len() < LIVES_MAX && !self.former.contains(&incarnation);
        *self.incarnation.get_or_insert(incarnation) != incarnation && is_learner && may_begin
    }

    /// The life that begins with another directory. Only what the group has decided about the peer stays.
    pub(crate) fn next(&mut self, incarnation: Incarnation) -> Life {
        let mut former = core::mem::take(&mut self.former);
        former.extend(self.incarnation);
        let leaving = self.leaving.take();
        Life { incarnation: Some(incarnation), former, leaving, catch_up: None, lost_tail: None }
    }

    /// Whether an answer of this directory counts. [Rule 1]
    pub(crate) fn is_of(&self, incarnation: Incarnation) -> bool {
        self.incarnation == Some(incarnation)
    }

    /// Whether a directory of the peer has answered in this term.
    pub(crate) fn has_answered(&self) -> bool {
        self.incarnation.is_some()
    }

    /// The peer has answered, with a log that agrees up to `matched`, and the leader's log ends at `last`: a catch-up
    /// round may be over.
    pub(crate) fn note_catch_up(
        &mut self,
        now: Instant,
        matched: LogIndex,
        last: LogIndex,
        election_timeout: Duration,
    ) {
        if let Some(round) = &mut self.catch_up
            && round.target <= matched
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

    /// Whether a learner keeps up: the last round was fast, and this one is not slow yet.
    pub(crate) fn keeps_up(&self, now: Instant, election_timeout: Duration) -> bool {
        let round = self.catch_up.as_ref();
        round.is_some_and(|round| round.fast && now.since(round.since) < election_timeout)
    }

    /// The newest configuration contains it.
    pub(crate) fn stay(&mut self) {
        self.leaving = None;
    }

    /// The configuration at `at` is the first one without it, unless an earlier one was.
    pub(crate) fn leave(&mut self, at: LogIndex) {
        self.leaving.get_or_insert(Leaving { at, told: None, heartbeats_left: FAREWELLS });
    }

    /// Whether the newest configuration does not contain it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// A heartbeat of `round` was sent with the commit index `committed`. Whether the leader may forget the peer: it
    /// has answered a round up to `answered`, with a log that agrees up to `matched`, or has had its chances. [Rule 3]
    pub(crate) fn parts(
        &mut self,
        committed: LogIndex,
        round: Round,
        answered: Round,
        matched: LogIndex,
    ) -> bool {
        let Some(leaving) = self.leaving.as_mut().filter(|leaving| leaving.at <= committed) else {
            return false;
        };
        let knows = leaving.told.is_some_and(|told| told <= answered);
        leaving.told.get_or_insert(round);
        leaving.heartbeats_left = leaving.heartbeats_left.saturating_sub(1);
        knows && leaving.at <= matched || leaving.heartbeats_left == 0
    }

    /// Notes that it has lost this acknowledged position. True if that is new.
    pub(crate) fn owe(&mut self, upto: EntryId) -> bool {
        let is_news = self.lost_tail < Some(upto);
        self.lost_tail = self.lost_tail.max(Some(upto));
        is_news
    }

    /// It has acknowledged everything up to here: a loss of that is made good. [Rule 4]
    pub(crate) fn repay(&mut self, upto: LogIndex) {
        let _whole_again = self.lost_tail.take_if(|owed| owed.index <= upto);
    }

    /// The position up to which it has lost acknowledged entries, if it still lacks them.
    pub(crate) fn lost_tail(&self) -> Option<EntryId> {
        self.lost_tail
    }

    /// See [`crate::canonical`].
    pub(crate) fn canonicalize(&mut self, canonical: &Canonical) {
        if let Some(round) = &mut self.catch_up {
            round.since = canonical.past(round.since, canonical.election_timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ET: Duration = Duration::from_nanos(100);

    #[test]
    fn a_voter_has_one_directory_and_a_learner_may_change_it() {
        let mut voter = Life::default();
        assert!(!voter.has_answered());
        assert!(!voter.begins_anew(Incarnation(7), false), "the first one");
        assert!(voter.is_of(Incarnation(7)) && voter.has_answered());
        assert!(!voter.begins_anew(Incarnation(8), false));
        assert!(!voter.is_of(Incarnation(8)));
        let mut learner = voter.clone();
        assert!(learner.begins_anew(Incarnation(8), true));
        learner = learner.next(Incarnation(8));
        assert!(learner.is_of(Incarnation(8)) && !learner.is_of(Incarnation(7)));
        assert!(!learner.begins_anew(Incarnation(7), true), "that life is over");
    }

    #[test]
    fn a_learner_has_as_many_directories_as_are_remembered() {
        let mut learner = Life::default();
        let lives = (0..1000).filter(|&life| {
            let begins = learner.begins_anew(Incarnation(life), true);
            if begins {
                learner = learner.next(Incarnation(life));
            }
            begins
        });
        assert_eq!(lives.count(), LIVES_MAX);
    }

    #[test]
    fn a_learner_keeps_up_after_a_fast_round_until_the_next_one_is_slow() {
        let mut learner = Life::default();
        learner.watch_catch_up(Instant(0), true, LogIndex(10));
        learner.note_catch_up(Instant(150), LogIndex(10), LogIndex(20), ET);
        assert!(!learner.keeps_up(Instant(150), ET), "its first round was slow");
        learner.note_catch_up(Instant(200), LogIndex(19), LogIndex(25), ET);
        assert!(!learner.keeps_up(Instant(200), ET), "the second one goes on");
        learner.watch_catch_up(Instant(210), true, LogIndex(30));
        learner.note_catch_up(Instant(249), LogIndex(20), LogIndex(30), ET);
        assert!(learner.keeps_up(Instant(348), ET), "a learner that stays one is not measured anew");
        assert!(!learner.keeps_up(Instant(349), ET));
        learner.watch_catch_up(Instant(250), false, LogIndex(30));
        assert!(!learner.keeps_up(Instant(250), ET), "a voter is not measured");
    }

    #[test]
    fn a_removed_peer_is_kept_until_it_knows_or_does_not_answer() {
        let mut peer = Life::default();
        assert!(!peer.parts(LogIndex(9), Round(1), Round(1), LogIndex(9)), "it stays");
        peer.leave(LogIndex(5));
        peer.leave(LogIndex(6));
        assert!(!peer.parts(LogIndex(4), Round(2), Round(1), LogIndex(5)), "its removal is not committed");
        assert!(!peer.parts(LogIndex(5), Round(3), Round(2), LogIndex(5)), "it is told now");
        assert!(!peer.clone().parts(LogIndex(5), Round(4), Round(2), LogIndex(5)), "it has not heard that");
        assert!(!peer.clone().parts(LogIndex(5), Round(4), Round(3), LogIndex(4)), "it lacks its removal");
        assert!(peer.clone().parts(LogIndex(5), Round(4), Round(3), LogIndex(5)));
        let heartbeats = (0..).take_while(|_| !peer.parts(LogIndex(5), Round(4), Round(0), LogIndex(0)));
        assert_eq!(heartbeats.count() + 2, usize::from(FAREWELLS), "with the first one and the last");
        peer.stay();
        assert!(!peer.is_leaving(), "the configuration without it was truncated");
    }

    #[test]
    fn a_loss_is_owed_until_it_is_acknowledged_again() {
        let mut peer = Life::default();
        assert!(peer.owe(EntryId::new(2, 8)));
        assert!(!peer.owe(EntryId::new(2, 8)), "known");
        assert!(!peer.owe(EntryId::new(2, 6)), "less than is known");
        peer.repay(LogIndex(7));
        assert_eq!(peer.lost_tail(), Some(EntryId::new(2, 8)));
        peer.repay(LogIndex(8));
        assert_eq!(peer.lost_tail(), None);
    }

    #[test]
    fn of_a_former_life_only_the_group_s_decision_stays() {
        let mut peer = Life::default();
        peer.begins_anew(Incarnation(1), true);
        peer.watch_catch_up(Instant(0), true, LogIndex(9));
        peer.leave(LogIndex(5));
        peer.owe(EntryId::new(1, 4));
        let next = peer.next(Incarnation(2));
        assert!(next.is_leaving() && next.is_of(Incarnation(2)));
        assert_eq!((next.lost_tail(), next.catch_up), (None, None));
    }
}
