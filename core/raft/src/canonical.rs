//! The canonical form of a state: what it can still do, without numbers that depend only on its history.
//!
//! An explorer of all interleavings meets the same situation again and again, at other moments, after other draws, with
//! other record numbers. In an exploration time is a choice ("this deadline fires now"), and two states that differ in
//! nothing else are one.
//!
//! In:    a state, and the last moment it was given.
//! Out:   the same state at [`CANONICAL_NOW`]; the moments at which time alone changes what it does.
//! Rules:
//!   1. A deadline that has come is due now; one that lies ahead gets its whole length again. The lengths are in the
//!      order in which deadlines of one role fall due, so firing a later one fires the earlier ones too.
//!   2. An age is kept as far as it is compared with a timeout: an election timeout without a message of the leader, a
//!      heartbeat without an answer to an append. Leadership has no age: the log's clock stands still. Vote holds and
//!      leases keep whether they hold; rounds under way have no age, so neither has the lease they would earn.
//!   3. The random numbers start anew, and every election timeout is the longest one.
//!   4. Record numbers count on from 1, the newest durable record; 0 stays "nothing was ever written".
//!   5. Where the clocks of several members are compared, as by leader leases, lengths of time are kept instead
//!      ([`Raft::canonicalize_in_time`]): every deadline stays as far ahead as it is, every age is kept as far as it is
//!      compared with a timeout, and every election timeout is the shortest one. The driver may advance the time late,
//!      so every longer one can happen, too.
//!   6. Disk times are dropped: they decide nothing here, and explorers report none.
//!   7. Clocks are not watched: their readings lie ever further back, so no two such states would be one.
//!   8. There are no jobs: an append that waits for one behaves like one that is still under way, which explorers choose
//!      already.
//!
//! Never called while a cluster serves.
//! Knows nothing of: explorers, clusters, messages in flight.

use crate::entry::Entry;
use crate::raft::Raft;
use crate::rng::Rng;
use crate::role::{Role, Timer};
use crate::types::{Duration, Instant, LogIndex, Lsn, NodeId};
use crate::yielding::Yielding;
use alloc::vec::Vec;

/// The time of every canonical state.
pub const CANONICAL_NOW: Instant = Instant(1 << 60);

/// Why time alone changes what a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// A leader sends its peers a commit index that no other message carried.
    CommitNotice,
    /// A leader's heartbeats are due.
    Heartbeat,
    /// A follower repeats its read request to its leader.
    AskAgain,
    /// A commit mark that left with no other record is written alone.
    CommitMark,
    /// A follower has not heard its leader for an election timeout: it would vote for another one.
    LeaderSilent,
    /// A leader checks whether a quorum has answered for an election timeout.
    QuorumCheck,
    /// Committed entries that were not delivered are due (after a restart, or a failed read).
    Deliver,
    /// The timer of a follower or candidate ends.
    Election,
    /// A voter whose leader's link was closed starts a pre-vote.
    Suspicion,
    /// A leader gives up a transfer after an election timeout.
    TransferEnds,
    /// A leader may not serve reads by its lease any more.
    LeaseEnds,
    /// A voter's hold for its leader ends after an election timeout.
    VoteHoldEnds,
    /// A leader continues a snapshot for a peer, or asks about a piece of it.
    Stream,
    /// A leader asks a peer for the outcome of the entries that it sent.
    Question,
}

impl Moment {
    /// All of them, in the order of their numbers.
    pub const ALL: [Moment; 14] = [
        Moment::CommitNotice,
        Moment::Heartbeat,
        Moment::AskAgain,
        Moment::CommitMark,
        Moment::LeaderSilent,
        Moment::QuorumCheck,
        Moment::Deliver,
        Moment::Election,
        Moment::Suspicion,
        Moment::TransferEnds,
        Moment::LeaseEnds,
        Moment::VoteHoldEnds,
        Moment::Stream,
        Moment::Question,
    ];
}

/// Moves moments from one clock to the canonical one.
pub(crate) struct Canonical {
    now: Instant,
    /// Whether lengths of time are kept.
    in_time: bool,
    pub(crate) election_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
}

impl Canonical {
    /// A deadline: never, due, or `length` ahead.
    pub(crate) fn deadline(&self, at: Instant, length: Duration) -> Instant {
        match at {
            Instant::NEVER => Instant::NEVER,
            at if at <= self.now => CANONICAL_NOW,
            at if self.in_time => CANONICAL_NOW + at.since(self.now),
            _ => CANONICAL_NOW + length,
        }
    }

    /// A deadline whose lateness counts up to `late`, where lengths of time are kept.
    fn overdue(&self, at: Instant, length: Duration, late: Duration) -> Instant {
        match self.in_time && at <= self.now {
            true => CANONICAL_NOW - self.now.since(at).min(late),
            false => self.deadline(at, length),
        }
    }

    /// A deadline that no exploration reaches, where lengths of time are kept.
    pub(crate) fn distant(&self, at: Instant, length: Duration) -> Instant {
        match at {
            Instant::NEVER => Instant::NEVER,
            at if at <= self.now => CANONICAL_NOW,
            _ => CANONICAL_NOW + length,
        }
    }

    /// A moment in the past: `age` ago if it is that old, or now.
    pub(crate) fn past(&self, at: Instant, age: Duration) -> Instant {
        match self.now.since(at) {
            since if self.in_time => CANONICAL_NOW - since.min(age),
            since if since < age => CANONICAL_NOW,
            _ => CANONICAL_NOW - age,
        }
    }

    /// When a round under way began. Where lengths of time are kept, so is its age, up to twice the longest vote hold.
    pub(crate) fn stamp(&self, at: Instant) -> Instant {
        match self.in_time {
            true => self.past(at, self.election_timeout * 2),
            false => CANONICAL_NOW,
        }
    }

    fn timer(&self, timer: &Timer) -> Timer {
        if self.in_time {
            let timeout = timer.timeout.min(self.election_timeout);
            let waited = self.now.since(timer.started).min(timeout);
            return Timer { started: CANONICAL_NOW - waited, timeout }; // it may begin anew, with its whole length
        }
        match timer.deadline() {
            at if at <= self.now => Timer { started: CANONICAL_NOW, timeout: Duration::ZERO },
            _ => Timer { started: CANONICAL_NOW, timeout: self.election_timeout * 2 },
        }
    }

    /// When a commit index is sent that no other message carried.
    pub(crate) fn notice(&self) -> Duration {
        self.heartbeat_interval / 10
    }

    /// When a voter starts a pre-vote on a suspicion: before anything else.
    pub(crate) fn suspicion(&self) -> Duration {
        self.heartbeat_interval / 10
    }

    /// When a lease ends: after the heartbeats that renew it, before a vote hold.
    pub(crate) fn lease(&self) -> Duration {
        self.election_timeout * 2 / 3
    }

    /// When a leader gives up a transfer: before it checks whether a quorum has answered.
    pub(crate) fn transfer(&self) -> Duration {
        self.election_timeout * 5 / 6
    }

    /// When a commit mark is written alone: between a heartbeat and an election timeout.
    pub(crate) fn mark(&self) -> Duration {
        self.heartbeat_interval * 3 / 2
    }
}

impl Raft {
    /// Brings this state, last given the time `now`, into canonical form. Record numbers become smaller by the number
    /// returned: the caller renumbers the records it holds of this peer alike.
    ///
    /// The configured durations must be at least ten nanoseconds and small against a millisecond, so that the log's
    /// clock stands still.
    pub fn canonicalize(&mut self, now: Instant) -> u64 {
        self.bring_into_form(now, false)
    }

    /// As [`Raft::canonicalize`], but lengths of time are kept: for clocks that are compared. The moment is dropped,
    /// every deadline stays as far ahead as it is. Does not keep lengths of milliseconds: the commit mark, the log's
    /// clock.
    pub fn canonicalize_in_time(&mut self, now: Instant) -> u64 {
        self.bring_into_form(now, true)
    }

    fn bring_into_form(&mut self, now: Instant, in_time: bool) -> u64 {
        let watched = self.config.leadership.leader_lease.is_some_and(|lease| lease.watch_clocks);
        assert!(!watched, "what clocks showed has no canonical form");
        assert_eq!(self.config.limits.read_apart_bytes_min, usize::MAX, "nor have jobs");
        let canonical = Canonical {
            now,
            in_time,
            election_timeout: self.config.election_timeout,
            heartbeat_interval: self.config.heartbeat_interval,
        };
        match &mut self.role {
            Role::Follower(follower) => {
                follower.timer = canonical.timer(&follower.timer);
                if let Some(following) = &mut follower.following {
                    let past = |heard| canonical.past(heard, canonical.election_timeout);
                    following.last_contact = following.last_contact.map(past);
                    following.pending_reads.canonicalize(&canonical);
                    following.ask_at =
                        following.ask_at.map(|at| canonical.deadline(at, canonical.suspicion()));
                }
            }
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => {
                campaign.timer = canonical.timer(&campaign.timer);
                if let Some(fast) = &mut campaign.fast_election {
                    fast.began = canonical.stamp(fast.began);
                }
            }
            Role::Leader(leader) => {
                leader.since = CANONICAL_NOW;
                // A pause is detected by the lateness of a heartbeat.
                let (interval, late) = (canonical.heartbeat_interval, canonical.election_timeout / 2);
                leader.heartbeat_at = canonical.overdue(leader.heartbeat_at, interval, late);
                leader.check_at = canonical.deadline(leader.check_at, canonical.election_timeout);
                leader.notice_at = canonical.deadline(leader.notice_at, canonical.notice());
                if let Some(transfer) = &mut leader.transfer {
                    transfer.abort_at = canonical.deadline(transfer.abort_at, canonical.transfer());
                }
                leader.lease.canonicalize(&canonical);
                leader.yielding = Yielding::new(CANONICAL_NOW); // explorers never wait for admission
                for progress in leader.peers.values_mut() {
                    progress.canonicalize(&canonical);
                }
            }
        }
        self.vote_hold = match canonical.deadline(self.vote_hold, canonical.election_timeout) {
            CANONICAL_NOW => Instant(0), // no vote hold
            later => later,
        };
        self.grace_until = Instant(0); // as if the start were long ago: a refusal until then is like a lost message
        self.returning = None; // explorers leave `LeadershipConfig::asks_first` off
        self.disk_time = Duration::ZERO;
        self.delivery.canonicalize(&canonical);
        self.rng = Rng::new(0, 0);
        let shift = self.durability.canonicalize(&canonical);
        if let Some(installing) = &mut self.installing {
            installing.base_lsn = Lsn(installing.base_lsn.0.saturating_sub(shift));
        }
        shift
    }

    /// The moments after `now` at which time alone changes what this peer does or answers, with their reasons.
    #[must_use]
    pub fn moments(&self, now: Instant) -> Vec<(Moment, Instant)> {
        let mut moments = self.all_moments();
        moments.retain(|(_, at)| now < *at && *at != Instant::NEVER);
        moments
    }

    /// The reasons for which this peer would act at `now`, in the order of their numbers.
    #[must_use]
    pub fn due(&self, now: Instant) -> Vec<Moment> {
        let acts = |moment: Moment| match moment {
            Moment::CommitNotice
            | Moment::Heartbeat
            | Moment::AskAgain
            | Moment::CommitMark
            | Moment::QuorumCheck
            | Moment::Deliver
            | Moment::Election
            | Moment::Suspicion
            | Moment::TransferEnds
            | Moment::Stream
            | Moment::Question => true,
            // These take effect only in the handling of other events.
            Moment::LeaderSilent | Moment::LeaseEnds | Moment::VoteHoldEnds => false,
        };
        let moments = self.all_moments().into_iter();
        let mut due: Vec<Moment> =
            moments.filter(|(moment, at)| *at <= now && acts(*moment)).map(|(moment, _)| moment).collect();
        due.sort_unstable();
        due
    }

    fn all_moments(&self) -> Vec<(Moment, Instant)> {
        let mut moments = Vec::new();
        match &self.role {
            Role::Follower(follower) => {
                moments.push((Moment::Election, follower.timer.deadline()));
                if let Some(following) = &follower.following {
                    moments.push((Moment::AskAgain, following.pending_reads.retry_at()));
                    moments.push((Moment::Suspicion, following.ask_at.unwrap_or(Instant::NEVER)));
                    if let Some(heard) = following.last_contact.filter(|_| self.config.check_quorum) {
                        moments.push((Moment::LeaderSilent, heard + self.config.election_timeout));
                    }
                }
            }
            Role::PreCandidate(campaign) | Role::Candidate(campaign) => {
                moments.push((Moment::Election, campaign.timer.deadline()));
            }
            Role::Leader(leader) => {
                moments.push((Moment::CommitNotice, leader.notice_at));
                moments.push((Moment::Heartbeat, leader.heartbeat_at));
                moments.push((Moment::QuorumCheck, leader.check_at));
                moments.push((Moment::Stream, leader.streams_at()));
                moments.push((Moment::Question, leader.questions_at(&self.config)));
                let gives_up = leader.transfer.as_ref().map_or(Instant::NEVER, |transfer| transfer.abort_at);
                moments.push((Moment::TransferEnds, gives_up));
                moments.push((Moment::LeaseEnds, leader.lease.until().unwrap_or(Instant::NEVER)));
            }
        }
        moments.push((Moment::CommitMark, self.durability.mark_at()));
        moments.push((Moment::Deliver, self.delivery.retry_at()));
        moments.push((Moment::VoteHoldEnds, self.vote_hold));
        moments
    }

    /// The highest index that `peer` acknowledged to this leader; `None` in other roles and for unknown members.
    #[must_use]
    pub fn matched(&self, peer: NodeId) -> Option<LogIndex> {
        Some(self.role.leader()?.peers.get(&peer)?.matched)
    }

    /// The entry at `index`, if it is in memory.
    #[must_use]
    pub fn entry(&self, index: LogIndex) -> Option<&Entry> {
        self.log.entry(index)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::message::{Append, Message};
    use crate::{
        Config, Effects, EntryKind, Envelope, GroupId, Incarnation, RecordEncoder, Recovered, Round, Term,
    };
    use alloc::vec;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    const HEARTBEAT: Duration = Duration::from_nanos(10);

    /// A member of a group of two.
    pub(crate) fn config() -> Config {
        Config {
            election_timeout: HEARTBEAT * 3,
            heartbeat_interval: HEARTBEAT,
            ..Config::new(NodeId(1), [1, 2].map(NodeId), RecordEncoder::BARE)
        }
    }

    fn raft(seed: u64, now: Instant) -> Raft {
        Raft::recover(config(), seed, now, Recovered::default())
    }

    /// A heartbeat of member 2, which leads term 1.
    pub(crate) fn heartbeat(round: u64) -> Envelope {
        let append = Append {
            prev: Default::default(),
            entries: vec![],
            commit: LogIndex(0),
            round: Round(round),
            tail: false,
        };
        Envelope {
            group: GroupId(0),
            from: NodeId(2),
            incarnation: Incarnation(2),
            to: NodeId(1),
            term: Term(1),
            message: Message::Append(append),
        }
    }

    /// Follows member 2 since `now`, heard `silence` ago; the record of its term is durable.
    fn follower(seed: u64, now: Instant, silence: Duration) -> Raft {
        let mut raft = raft(seed, now);
        let mut effects = Effects::default();
        raft.step(now - silence, heartbeat(1), &mut effects);
        raft.persisted(now, effects.persist[0].lsn, &mut effects);
        raft.drained(now, &mut effects);
        raft.read_nonce = 0; // differs from run to run, and is part of messages
        raft
    }

    #[test]
    fn moments_and_draws_do_not_tell_states_apart_and_silence_does() {
        let canonical = |seed, now, silence| {
            let mut raft = follower(seed, now, silence);
            raft.canonicalize(now);
            raft
        };
        let early = canonical(1, Instant(1000), Duration::ZERO);
        let late = canonical(2, Instant(7_777_777), HEARTBEAT * 2);
        let silent = canonical(3, Instant(5000), HEARTBEAT * 3);
        assert_eq!(early, late);
        let hash = |raft: &Raft| BuildHasherDefault::<DefaultHasher>::default().hash_one(raft);
        assert_eq!(hash(&early), hash(&late));
        assert_ne!(early, silent, "who has not heard a leader for an election timeout helps another");
        let reasons =
            |raft: &Raft| raft.moments(CANONICAL_NOW).into_iter().map(|moment| moment.0).collect::<Vec<_>>();
        assert_eq!(reasons(&early), [Moment::Election, Moment::LeaderSilent]);
        assert_eq!(reasons(&silent), [Moment::Election]);
    }

    #[test]
    fn the_canonical_form_of_a_canonical_state_is_that_state() {
        let mut raft = follower(1, Instant(1000), HEARTBEAT);
        raft.canonicalize(Instant(1000));
        let once = raft.clone();
        assert_eq!(raft.canonicalize(CANONICAL_NOW), 0, "record numbers start from 1 already");
        assert_eq!(raft, once);
    }

    #[test]
    fn lengths_of_time_are_kept_where_clocks_are_compared() {
        let in_time = |now, silence| {
            let mut raft = follower(1, now, silence);
            raft.canonicalize_in_time(now);
            raft
        };
        let quarter = HEARTBEAT / 4;
        assert_eq!(in_time(Instant(1000), quarter), in_time(Instant(7_777_777), quarter), "the moment goes");
        assert_ne!(in_time(Instant(1000), quarter), in_time(Instant(1000), quarter * 2), "the length stays");
        let long = in_time(Instant(1000), HEARTBEAT * 4);
        assert_eq!(long, in_time(Instant(1000), HEARTBEAT * 5), "nobody asks how long beyond a timeout");
        assert_eq!(long.due(CANONICAL_NOW), [Moment::Election], "the shortest timeout is over");
        let mut raft = in_time(Instant(1000), HEARTBEAT);
        let once = raft.clone();
        raft.canonicalize_in_time(CANONICAL_NOW);
        assert_eq!(raft, once);
        assert!(raft.due(CANONICAL_NOW).is_empty());
        assert_eq!(
            raft.due(CANONICAL_NOW + HEARTBEAT * 2),
            [Moment::Election],
            "two of three have not passed"
        );
    }

    /// Leads member 2, which gets a snapshot; the record of the log's base is not durable.
    pub(crate) fn sender(now: Instant, silence: Duration) -> Raft {
        let from_two = |term, message| Envelope { term: Term(term), message, ..heartbeat(1) };
        let mut raft = raft(1, now - silence);
        let mut effects = Effects::default();
        raft.tick(Instant(now.0 + 1000), &mut effects);
        let yes = crate::message::PreVoteReply { campaign_term: Term(1), granted: true, round: Round(1) };
        raft.step(now - silence, from_two(0, Message::PreVoteReply(yes)), &mut effects);
        raft.persisted(now - silence, effects.persist[0].lsn, &mut effects);
        let yes = crate::message::VoteReply { granted: true, last: crate::types::EntryId::default() };
        raft.step(now - silence, from_two(1, Message::VoteReply(yes)), &mut effects);
        assert!(raft.is_leader());
        raft.drained(now - silence, &mut effects);
        raft.persisted(now - silence, effects.persist[1].lsn, &mut effects);
        let held = crate::message::AppendReply {
            round: Round(0),
            vote_hold: Duration::ZERO,
            clock: None,
            disk: Duration::ZERO,
            bulk: Round(0),
            upto: LogIndex(1),
            gap: None,
            room: crate::message::Room::PLENTY,
            received: LogIndex(1),
            early: vec![],
        };
        raft.step(now - silence, from_two(1, Message::AppendReply(held)), &mut effects);
        let meta = raft.snapshot_meta(crate::EntryId::new(1, 1), crate::Stamp(0)).expect("applied");
        raft.snapshot_taken(now - silence, meta, LogIndex(2), &mut effects);
        let wanted = crate::message::SnapshotReply { last: Default::default(), next: 0, refused: false };
        raft.step(now - silence, from_two(1, Message::SnapshotReply(wanted)), &mut effects);
        let request = effects.read_chunks.pop().expect("a chunk is asked for");
        let read = crate::ChunkRead::Bytes { bytes: vec![7; 10].into(), total: 100 };
        raft.chunk_read(now - silence, request, read, &mut effects);
        raft
    }

    #[test]
    fn a_snapshot_under_way_is_told_apart_by_what_is_due_only() {
        let canonical = |now, silence| {
            let mut raft = sender(now, silence);
            raft.canonicalize(now);
            raft
        };
        let (early, late) =
            (canonical(Instant(10_000), HEARTBEAT / 4), canonical(Instant(77_777), HEARTBEAT / 2));
        assert_eq!(early, late, "both wait for an answer");
        let reasons =
            |raft: &Raft| raft.moments(CANONICAL_NOW).into_iter().any(|(why, _)| why == Moment::Stream);
        assert!(reasons(&early));
        let due = canonical(Instant(10_000), HEARTBEAT * 20);
        assert!(!reasons(&due) && due != early, "it is time to send the piece again");
        let mut again = early.clone();
        again.canonicalize(CANONICAL_NOW);
        assert_eq!(again, early);
    }

    #[test]
    fn record_numbers_count_on_from_the_newest_durable_one() {
        let now = Instant(1000);
        let mut raft = raft(1, now);
        let mut effects = Effects::default();
        for term in 1..=3 {
            raft.step(now, Envelope { term: Term(term), ..heartbeat(1) }, &mut effects);
        }
        let lsns = |effects: &Effects| effects.persist.iter().map(|record| record.lsn.0).collect::<Vec<_>>();
        assert_eq!(lsns(&effects), [1, 2, 3]);
        raft.persisted(now, effects.persist[1].lsn, &mut effects);
        assert_eq!(raft.canonicalize(now), 1);
        effects = Effects::default();
        raft.step(CANONICAL_NOW, Envelope { term: Term(4), ..heartbeat(1) }, &mut effects);
        assert_eq!(lsns(&effects), [3], "record 3 of 1, 2 durable, is now record 2");
        assert_eq!(raft.propose(CANONICAL_NOW, EntryKind::Command, b"", &mut effects).ok(), None);
    }
}
