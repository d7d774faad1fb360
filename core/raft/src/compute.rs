//! Compute: pure work that may take long, and the appends that a follower keeps in order meanwhile.
//!
//! ```text
//!   large append ──▶ Job ──▶ the driver, on any thread ──▶ Done ──┐
//!   lane behind it ──▶ `Unread`, in the lane's order ──▶ the log  ◀┘  from the front, each when it is read
//!   heartbeats, rounds ──────────────────────────────▶ at once
//! ```
//!
//! In:    large appends of this term's leader, and those behind them in the lane; completions.
//! Out:   jobs; the same appends, later and in the same order.
//! Rules: [replication-protocols B14, §3.4; O7, B12]
//!   1. A job holds all that it needs, and its result depends on nothing else: any thread runs it, at any time.
//!   2. Whether an append is well formed is known when it arrives, and then it counts as contact. Whether its payloads can
//!      be read is found out by a job, and none of its entries counts before.
//!   3. An append that waits is like one that is still under way: each later one of its lane waits behind it, and its
//!      round is reported as read in that lane when it is taken. Appends that may overtake it do so.
//!   4. A completion counts once, for the job of its number. No number is used twice in one run, so a completion that is
//!      late or repeated, or that a former leader's append has asked for, changes nothing.
//!   5. A lost completion is a lost message. If none has come for an election timeout, the queue is dropped, and the
//!      leader finds the gap as it finds any other.
//!   6. The queue has room for as much as a leader with this peer's limits has under way to one peer. An append beyond
//!      that is dropped, too.
//!
//! Knows nothing of: threads, what payloads mean, how entries come into the log.

use crate::config::{Config, Limits};
use crate::contact::Origin;
use crate::contract::Effects;
use crate::distrust::Falsehood;
use crate::entry::{Entry, PayloadReader};
use crate::message::Append;
use crate::raft::Raft;
use crate::role::{Follower, Following, Role};
use crate::trace::Trace;
use crate::types::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The number of a job. Jobs of one run have different ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A pure piece of work that may take long. The driver runs it where it likes, and passes its result to
/// [`Raft::computed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    id: JobId,
    work: Work,
}

/// The kinds of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// Finds out whether the payloads of these entries can be read.
    Read { entries: Vec<Entry>, reader: PayloadReader },
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    id: JobId,
    found: Found,
}

/// What a job has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Found {
    /// All of these entries can be read.
    Readable(Vec<Entry>),
    /// An entry cannot be read.
    Unreadable,
}

impl Job {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The bytes of the entries that it holds until it is done.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.work {
            Work::Read { entries, .. } => entries.iter().map(Entry::len).sum(),
        }
    }

    /// Does the work.
    #[must_use]
    pub fn run(self) -> Done {
        let Job { id, work } = self;
        let found = match work {
            Work::Read { entries, reader } => match reader.reads_all(&entries) {
                true => Found::Readable(entries),
                false => Found::Unreadable,
            },
        };
        Done { id, found }
    }
}

impl Done {
    /// The number of the job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }
}

/// An append that has arrived and is not taken yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    origin: Origin,
    /// Without its entries while a job has them.
    append: Append,
    bytes: usize,
    /// The job that reads its entries, if that is not done.
    job: Option<JobId>,
}

/// Appends of one leader that wait for a job: the front one for its own, those behind it for their turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Unread {
    waiting: VecDeque<Waiting>,
    /// The bytes of their entries.
    bytes: usize,
    /// When the wait began, or a completion came. Meaningless while nothing waits.
    since: Instant,
}

impl Unread {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the queue is dropped. [Rule 5]
    pub(crate) fn give_up_at(&self, config: &Config) -> Instant {
        if self.is_empty() { Instant::NEVER } else { self.since + config.election_timeout }
    }

    /// Whether an append of so many bytes may wait. One of any size passes alone; a question finds a place behind as
    /// many appends as a leader has under way. [Rule 6]
    fn has_room_for(&self, bytes: usize, limits: &Limits) -> bool {
        let fits = self.bytes + bytes <= limits.inflight_bytes_max;
        self.is_empty() || fits && self.waiting.len() <= limits.inflight_msgs_max
    }

    fn push(&mut self, now: Instant, waiting: Waiting) {
        if self.is_empty() {
            self.since = now;
        }
        self.bytes += waiting.bytes;
        self.waiting.push_back(waiting);
    }

    /// The front append, if it is read.
    fn pop_read(&mut self) -> Option<Waiting> {
        let front = self.waiting.pop_front_if(|front| front.job.is_none())?;
        self.bytes -= front.bytes;
        Some(front)
    }

    /// The place of the append that waits for this job.
    fn place_of(&self, job: JobId) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.job == Some(job))
    }

    /// Drops the queue from this place on. Returns how many appends that were.
    fn drop_from(&mut self, place: usize) -> usize {
        let dropped = self.waiting.drain(place..);
        let count = dropped.len();
        self.bytes -= dropped.map(|waiting| waiting.bytes).sum::<usize>();
        count
    }

    /// Why this is no queue that could have come about, if so. [`crate::invariants`]
    pub(crate) fn flaw(&self, newest: JobId) -> Option<&'static str> {
        let jobs = || self.waiting.iter().filter_map(|waiting| waiting.job);
        let bytes: usize = self.waiting.iter().map(|waiting| waiting.bytes).sum();
        let is_held = |waiting: &Waiting| waiting.job.is_none() || waiting.append.entries.is_empty();
        if self.waiting.front().is_some_and(|front| front.job.is_none()) {
            return Some("the front append is read");
        }
        if !jobs().is_sorted_by(|one, next| one < next) || jobs().any(|job| newest < job) {
            return Some("its jobs were not given out in this order");
        }
        if !self.waiting.iter().all(is_held) {
            return Some("a job and the queue hold the same entries");
        }
        (bytes != self.bytes).then_some("its bytes are miscounted")
    }
}

impl Raft {
    /// Takes the result of a job. [Rule 4]
    pub fn computed(&mut self, now: Instant, done: Done, effects: &mut Effects) {
        let Some(following) = self.following_mut() else { return };
        let unread = &mut following.unread;
        let Some(place) = unread.place_of(done.id) else { return };
        unread.since = now;
        match done.found {
            Found::Readable(entries) => {
                let waiting = &mut unread.waiting[place];
                (waiting.append.entries, waiting.job) = (entries, None);
            }
            Found::Unreadable => {
                let Waiting { origin, append, .. } = &unread.waiting[place];
                Raft::distrust(origin.sender, Falsehood::Entries(append.prev), effects);
                unread.drop_from(place);
            }
        }
        while let Some(next) = self.following_mut().and_then(|following| following.unread.pop_read()) {
            self.take_append(now, next.origin, next.append, effects);
        }
    }

    /// Whether the result of this job would count now.
    #[must_use]
    pub fn awaits(&self, job: JobId) -> bool {
        match &self.role {
            Role::Follower(Follower { following: Some(following), .. }) => {
                following.unread.place_of(job).is_some()
            }
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => false,
        }
    }

    /// Whether an append of the lane of the entries has to wait. [Rule 3]
    pub(crate) fn lane_waits(&self) -> bool {
        match &self.role {
            Role::Follower(Follower { following: Some(following), .. }) => !following.unread.is_empty(),
            Role::Follower(_) | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => false,
        }
    }

    /// Keeps an append with so many bytes of entries for later. If they are not read yet, a job does that.
    pub(crate) fn keep_unread(
        &mut self,
        now: Instant,
        origin: Origin,
        mut append: Append,
        (bytes, is_read): (usize, bool),
        effects: &mut Effects,
    ) {
        let (limits, reader, newest) = (*self.own_settings.limits(), self.reader, self.jobs);
        let Some(following) = self.following_mut() else { unreachable!("the leader is known") };
        if !following.unread.has_room_for(bytes, &limits) {
            return effects.trace.push(Trace::DroppedUnread(1));
        }
        let job = (!is_read).then(|| {
            let id = JobId(newest.0 + 1);
            let work = Work::Read { entries: core::mem::take(&mut append.entries), reader };
            effects.compute.push(Job { id, work });
            id
        });
        following.unread.push(now, Waiting { origin, append, bytes, job });
        self.jobs = job.unwrap_or(newest);
    }

    /// No completion has come for too long. [Rule 5]
    pub(crate) fn tick_unread(&mut self, now: Instant, effects: &mut Effects) {
        let Role::Follower(Follower { following: Some(following), .. }) = &mut self.role else { return };
        if following.unread.give_up_at(&self.config) <= now {
            let count = following.unread.drop_from(0);
            effects.trace.push(Trace::DroppedUnread(count));
        }
    }

    fn following_mut(&mut self) -> Option<&mut Following> {
        match &mut self.role {
            Role::Follower(follower) => follower.following.as_mut(),
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::tests::{config, heartbeat};
    use crate::message::{AppendReply, Message};
    use crate::{
        EntryHead, EntryId, EntryKind, Envelope, Limits, LogBody, LogIndex, NodeId, Recovered, Round, Stamp,
        Term,
    };
    use alloc::vec;

    const NOW: Instant = Instant(1000);
    const LARGE: &[u8] = b"a large command";
    const UNREADABLE: &[u8] = b"an unreadable one";
    const SMALL: &[u8] = b"small";

    /// Member 1, which follows member 2 in term 1, durably. Payloads of ten bytes and more are read by jobs.
    fn follower(limits: Limits) -> Raft {
        let limits = Limits { read_apart_bytes_min: 10, ..limits };
        let raft = Raft::recover(Config { limits, ..config() }, 7, Instant(0), Recovered::default());
        let mut raft = raft.with_reader(PayloadReader(|_, payload| payload != UNREADABLE));
        let mut effects = Effects::default();
        raft.step(Instant(0), heartbeat(1), &mut effects);
        raft.persisted(Instant(0), effects.persist[0].lsn, &mut effects);
        raft.drained(Instant(0), &mut effects);
        raft
    }

    /// The append of this round with the entry at `index`; without a payload it is a question.
    fn append(index: u64, payload: &[u8]) -> Envelope {
        let id = EntryId::new(1, index);
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
        let entries = match payload {
            [] => vec![],
            _ => vec![Entry::new(head, payload.to_vec().into(), 0)],
        };
        let prev = if index == 1 { EntryId::default() } else { EntryId::new(1, index - 1) };
        let (commit, round, tail) = (LogIndex(0), Round(10 + index), payload.is_empty());
        let message = Message::Append(Append { prev, entries, commit, round, tail });
        Envelope { message, ..heartbeat(1) }
    }

    /// What the member requests when it gets these messages.
    fn hears<const N: usize>(raft: &mut Raft, now: Instant, messages: [Envelope; N]) -> Effects {
        let mut effects = Effects::default();
        messages.into_iter().for_each(|message| raft.step(now, message, &mut effects));
        crate::invariants::check(raft).expect("every queue can come about");
        effects
    }

    fn learns(raft: &mut Raft, now: Instant, done: Done) -> Effects {
        let mut effects = Effects::default();
        raft.computed(now, done, &mut effects);
        crate::invariants::check(raft).expect("every queue can come about");
        effects
    }

    /// The indexes of the entries that go to the disk.
    fn written(effects: &Effects) -> Vec<u64> {
        let index = |body: &LogBody| match body {
            LogBody::Entry(entry) => Some(entry.id().index.0),
            _ => None,
        };
        effects.persist.iter().filter_map(|record| index(&record.body)).collect()
    }

    /// The answer to the leader when the inbox is empty and the disk has everything.
    fn answer(raft: &mut Raft, now: Instant, mut effects: Effects) -> Option<AppendReply> {
        if let Some(record) = effects.persist.last() {
            raft.persisted(now, record.lsn, &mut effects);
        }
        raft.drained(now, &mut effects);
        effects.send.into_iter().find_map(|envelope| match envelope.message {
            Message::AppendReply(reply) => Some(reply),
            _ => None,
        })
    }

    #[test]
    fn small_appends_have_no_job_and_large_ones_are_taken_when_they_are_read() {
        let mut raft = follower(Limits::default());
        let effects = hears(&mut raft, NOW, [append(1, SMALL)]);
        assert_eq!((written(&effects), effects.compute.len()), (vec![1], 0));
        let mut effects = hears(&mut raft, NOW, [append(2, LARGE)]);
        assert_eq!((written(&effects), raft.last_id().index), (vec![], LogIndex(1)));
        let job = effects.compute.pop().expect("a job reads it");
        let effects = learns(&mut raft, NOW, job.run());
        assert_eq!(written(&effects), [2]);
        let reply = answer(&mut raft, NOW, effects).expect("it is on disk");
        assert_eq!((reply.upto, reply.bulk), (LogIndex(2), Round(12)));
        assert_eq!(raft.log.entry(LogIndex(2)).and_then(Entry::payload), Some(LARGE));
    }

    #[test]
    fn a_large_append_is_contact_when_it_arrives_and_heartbeats_are_answered_while_it_is_read() {
        let mut raft = follower(Limits::default());
        let late = NOW + raft.config.election_timeout;
        let mut effects = hears(&mut raft, late, [append(1, LARGE)]);
        let job = effects.compute.pop().expect("a job");
        assert!(late < raft.role.timer_deadline(), "the leader was heard just now");
        let effects = hears(&mut raft, late, [heartbeat(20)]);
        let reply = answer(&mut raft, late, effects).expect("heartbeats do not wait");
        assert_eq!((reply.round, reply.upto, reply.gap), (Round(20), LogIndex(0), None));
        assert_eq!(reply.bulk, Round(0), "the append has not been read yet in its lane");
        let effects = learns(&mut raft, late, job.run());
        assert_eq!(answer(&mut raft, late, effects).expect("an answer").bulk, Round(11));
    }

    #[test]
    fn what_follows_in_the_lane_waits_and_is_taken_in_its_order() {
        let mut raft = follower(Limits::default());
        let sent = [append(1, LARGE), append(2, SMALL), append(3, LARGE), append(4, b""), append(4, SMALL)];
        let mut effects = hears(&mut raft, NOW, sent);
        assert_eq!(written(&effects), []);
        let (second, first) =
            (effects.compute.pop().expect("two jobs"), effects.compute.pop().expect("two jobs"));
        assert!(first.id() < second.id() && effects.compute.is_empty(), "small ones are read already");
        let effects = learns(&mut raft, NOW, second.run());
        assert_eq!(written(&effects), [], "its turn has not come");
        assert_eq!(answer(&mut raft, NOW, effects).map(|reply| reply.bulk), None);
        let effects = learns(&mut raft, NOW, first.run());
        assert_eq!(written(&effects), [1, 2, 3, 4]);
        let reply = answer(&mut raft, NOW, effects).expect("a question was asked");
        assert_eq!((reply.upto, reply.gap, reply.bulk), (LogIndex(4), None, Round(14)));
    }

    #[test]
    fn no_job_is_awaited_once_its_member_campaigns() {
        let mut raft = follower(Limits::default());
        let job = hears(&mut raft, NOW, [append(1, LARGE)]).compute.pop().expect("a job");
        assert!(raft.awaits(job.id()));
        let late = NOW + raft.config.election_timeout * 3;
        raft.tick(late, &mut Effects::default());
        assert!(raft.leader().is_none() && !raft.awaits(job.id()));
    }

    #[test]
    fn a_completion_counts_once() {
        let mut raft = follower(Limits::default());
        let job = hears(&mut raft, NOW, [append(1, LARGE)]).compute.pop().expect("a job");
        learns(&mut raft, NOW, job.clone().run());
        let before = raft.clone();
        assert_eq!(learns(&mut raft, NOW, job.clone().run()), Effects::default());
        assert_eq!(raft, before);
        // Another append waits now.
        hears(&mut raft, NOW, [append(2, LARGE)]);
        let before = raft.clone();
        assert_eq!(learns(&mut raft, NOW, job.run()), Effects::default());
        assert_eq!(raft, before);
    }

    #[test]
    fn what_a_former_leader_has_sent_is_forgotten_with_it() {
        let mut raft = follower(Limits::default());
        let job = hears(&mut raft, NOW, [append(1, LARGE), append(2, SMALL)]).compute.pop().expect("a job");
        let of_next_term = |envelope: Envelope| Envelope { term: Term(2), ..envelope };
        hears(&mut raft, NOW, [of_next_term(heartbeat(1))]);
        assert!(!raft.lane_waits() && !raft.awaits(job.id()));
        let next = hears(&mut raft, NOW, [of_next_term(append(1, LARGE))]).compute.pop().expect("a job");
        assert!(job.id() < next.id() && raft.awaits(next.id()), "no number is used twice");
        let before = raft.clone();
        assert_eq!(learns(&mut raft, NOW, job.run()), Effects::default());
        assert_eq!(raft, before);
        assert_eq!(written(&learns(&mut raft, NOW, next.run())), [1]);
        // Nor does it count for a candidate.
        let job = hears(&mut raft, NOW, [of_next_term(append(2, LARGE))]).compute.pop().expect("a job");
        let mut effects = Effects::default();
        raft.tick(raft.role.timer_deadline(), &mut effects);
        assert_eq!(raft.role_name(), "pre-candidate");
        assert_eq!(learns(&mut raft, NOW, job.run()), Effects::default());
    }

    #[test]
    fn a_lost_completion_is_a_lost_message() {
        let mut raft = follower(Limits::default());
        let lost = hears(&mut raft, NOW, [append(1, LARGE), append(2, SMALL)]).compute.pop().expect("a job");
        let given_up = NOW + raft.config.election_timeout;
        let meanwhile = NOW + raft.config.heartbeat_interval;
        hears(&mut raft, meanwhile, [heartbeat(20)]);
        assert_eq!(raft.deadline(), given_up, "before its own election timer ends");
        let mut effects = Effects::default();
        raft.tick(Instant(given_up.0 - 1), &mut effects);
        assert!(raft.lane_waits() && effects.trace.is_empty());
        raft.tick(given_up, &mut effects);
        assert_eq!(effects.trace, [Trace::DroppedUnread(2)]);
        assert!(!raft.lane_waits() && given_up < raft.deadline());
        assert_eq!(learns(&mut raft, given_up, lost.run()), Effects::default(), "it comes too late");
        // The leader asks, and sends again what is lacking.
        let effects = hears(&mut raft, given_up, [append(3, b"")]);
        let gap = answer(&mut raft, given_up, effects).and_then(|reply| reply.gap).expect("a gap");
        assert_eq!(gap.prev, LogIndex(2));
        let job = hears(&mut raft, given_up, [append(1, LARGE)]).compute.pop().expect("a job");
        assert_eq!(written(&learns(&mut raft, given_up, job.run())), [1]);
    }

    #[test]
    fn while_completions_come_nothing_is_given_up() {
        let mut raft = follower(Limits::default());
        let sent = [append(1, LARGE), append(2, LARGE), append(3, LARGE)];
        let jobs = hears(&mut raft, NOW, sent).compute;
        let mut now = NOW;
        for job in jobs.into_iter().rev() {
            now += raft.config.heartbeat_interval * 2;
            hears(&mut raft, now, [heartbeat(20)]);
            raft.tick(now, &mut Effects::default());
            learns(&mut raft, now, job.run());
        }
        assert_eq!(raft.last_id().index, LogIndex(3));
    }

    #[test]
    fn as_much_waits_as_a_leader_has_under_way_and_the_rest_is_dropped() {
        let limits = Limits { inflight_bytes_max: 40, inflight_msgs_max: 3, ..Limits::default() };
        let mut raft = follower(limits);
        let sent = [append(1, LARGE), append(2, LARGE), append(3, LARGE)];
        let effects = hears(&mut raft, NOW, sent);
        assert_eq!((effects.compute.len(), effects.trace), (2, vec![Trace::DroppedUnread(1)]), "45 bytes");
        let question = hears(&mut raft, NOW, [append(4, b""), append(4, b"")]);
        assert_eq!(question.trace, [], "it has no bytes");
        assert_eq!(hears(&mut raft, NOW, [append(4, b"")]).trace, [Trace::DroppedUnread(1)], "five messages");
        for job in effects.compute {
            learns(&mut raft, NOW, job.run());
        }
        assert_eq!((raft.last_id().index, raft.lane_waits()), (LogIndex(2), false));
        // One of any size passes alone.
        let huge = [b'x'; 100];
        assert_eq!(hears(&mut raft, NOW, [append(3, &huge)]).compute.len(), 1);
    }

    #[test]
    fn the_sender_of_an_unreadable_payload_is_distrusted_and_what_is_behind_it_dropped() {
        let mut raft = follower(Limits::default());
        let sent = [append(1, LARGE), append(2, UNREADABLE), append(3, SMALL)];
        let mut effects = hears(&mut raft, NOW, sent);
        assert_eq!(effects.distrust, []);
        let (second, first) =
            (effects.compute.pop().expect("two jobs"), effects.compute.pop().expect("two jobs"));
        let effects = learns(&mut raft, NOW, second.run());
        assert_eq!(effects.distrust, [(NodeId(2), Falsehood::Entries(EntryId::new(1, 1)))]);
        assert_eq!(written(&learns(&mut raft, NOW, first.run())), [1], "what came before it is as it was");
        assert!(!raft.lane_waits());
        // An append that is not well formed waits for no job.
        let Message::Append(mut broken) = append(5, LARGE).message else { unreachable!("an append") };
        broken.prev = EntryId::new(1, 2);
        let effects = hears(&mut raft, NOW, [Envelope { message: Message::Append(broken), ..heartbeat(1) }]);
        assert_eq!((effects.distrust.len(), effects.compute.len()), (1, 0));
    }
}
