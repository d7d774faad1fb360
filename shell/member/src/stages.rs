//! Stages: one write, one read and one append at a time are followed through this member, with the time of each stage.
//!
//! ```text
//!   write      received ─▶ taken ─▶ proposed ─┬▶ sent ───────▶ replicated ─┬▶ committed ─▶ applied ─▶ answered
//!                                             └▶ stored (here) ────────────┘
//!   forwarded  received ─▶ taken ─────────────────────────────────────────────────────────────────▶ answered
//!   read       received ─▶ taken ─▶ routed ─▶ confirmed ──────────────────────────────────────────▶ answered
//!   append     arrived ─▶ appendable ─▶ stored ─▶ acknowledged                                (at a follower)
//! ```
//! Samples, because a clock is read at each stage: the next one begins when the last has ended and a pause is over. The door
//! chooses it: a request is followed if it was stamped when it was received, and the door stamps one only while this asks for it
//! ([`Stages::wants`]). So what is followed does not depend on how long it takes.
//!
//! Rules: 1. A sample counts whole or not at all: all stages of a path have the same samples, and differences of means are means
//!           of differences.
//!        2. What ends without success is not counted, nor what has not ended after [`LASTS_MAX`].
//!        3. Nothing is decided by a sample.
//! Knows nothing of: clocks, metrics, what a request means.

use kattu_node::Node;
use kattu_node::contract::{Event, KeeperTask, Outcome, PeerMessage, Request, Ticket};
use kattu_raft::message::Message;
use kattu_raft::{Duration, EntryId, Instant, LogBody, LogIndex, LogRecord, Lsn};

/// Between the end of a sample and the beginning of the next one on the same path: at most a thousand a second, each a dozen
/// readings of the clock.
pub const PAUSE: Duration = Duration::from_millis(1);
/// The same between appends, of which a follower does little else: at most a hundred a second.
pub const APPEND_PAUSE: Duration = Duration::from_millis(10);
/// A sample that takes longer is given up.
pub const LASTS_MAX: Duration = Duration::from_millis(10_000);
/// Samples that wait to be taken; further ones are not kept.
const SAMPLES_MAX: usize = 64;
/// Most stages of a path.
pub const STAGES_MAX: usize = 7;

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// A write at the leader.
    Write,
    /// A write at a member that sends it to the leader.
    Forwarded,
    /// A read that waits for a proof that it misses nothing.
    Read,
    /// An append from the leader.
    Append,
}

impl Path {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Path::Write => "write",
            Path::Forwarded => "forwarded",
            Path::Read => "read",
            Path::Append => "append",
        }
    }

    /// The names of its stages, in order. The time of each counts from the receipt of the request, or the arrival of the append.
    #[must_use]
    pub fn stages(self) -> &'static [&'static str] {
        match self {
            Path::Write => &["taken", "proposed", "sent", "stored", "replicated", "committed", "applied"],
            Path::Forwarded => &["taken"],
            Path::Read => &["taken", "routed", "confirmed"],
            Path::Append => &["appendable", "stored"],
        }
    }

    /// The name of its last stage, behind [`Path::stages`].
    #[must_use]
    pub fn end(self) -> &'static str {
        match self {
            Path::Write | Path::Forwarded | Path::Read => "answered",
            Path::Append => "acknowledged",
        }
    }
}

/// One that was followed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What it was.
    pub path: Path,
    /// The time at which each stage of the path was reached. `None`: the write needed no message, since its member is alone.
    pub at: [Option<Duration>; STAGES_MAX],
    /// The time at which it ended.
    pub end: Duration,
}

/// What may be stamped at the door now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// A write.
    pub write: bool,
    /// A read.
    pub read: bool,
}

/// Times on the way, by the stages of the path.
#[derive(Clone, Copy, Debug)]
struct Times {
    begun: Instant,
    at: [Option<Instant>; STAGES_MAX],
}

impl Times {
    fn from(begun: Instant) -> Times {
        Times { begun, at: [None; STAGES_MAX] }
    }

    fn reach(&mut self, stage: usize, now: Instant) {
        self.at[stage].get_or_insert(now);
    }

    fn has(&self, stage: usize) -> bool {
        self.at[stage].is_some()
    }

    fn sample(&self, path: Path, end: Instant) -> Sample {
        let since = |at: Instant| at.since(self.begun);
        Sample { path, at: self.at.map(|at| at.map(since)), end: since(end) }
    }
}

const TAKEN: usize = 0;
const PROPOSED: usize = 1;
const SENT: usize = 2;
const STORED: usize = 3;
const REPLICATED: usize = 4;
const COMMITTED: usize = 5;
const APPLIED: usize = 6;
const ROUTED: usize = 1;
const CONFIRMED: usize = 2;
const APPENDABLE: usize = 0;
const APPEND_STORED: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Write {
    ticket: Ticket,
    times: Times,
    /// Its entry, once it has one, and the record of it.
    entry: Option<(EntryId, Lsn)>,
    is_forwarded: bool,
    answered: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    ticket: Ticket,
    times: Times,
}

#[derive(Clone, Copy, Debug)]
struct Append {
    last: LogIndex,
    times: Times,
    /// The record of its last entry.
    lsn: Option<Lsn>,
}

/// What is followed now, and what was.
#[derive(Debug, Default)]
pub struct Stages {
    write: Option<Write>,
    read: Option<Read>,
    append: Option<Append>,
    write_after: Instant,
    read_after: Instant,
    append_after: Instant,
    /// What leaves with the next messages: the followed entry; its commit; the acknowledgement.
    sends: bool,
    publishes: bool,
    acknowledges: bool,
    samples: Vec<Sample>,
}

impl Stages {
    /// What the door may stamp. Gives up what takes too long.
    pub fn wants(&mut self, now: Instant) -> Wants {
        let is_late = |times: &Times| LASTS_MAX < now.since(times.begun);
        self.write.take_if(|write| is_late(&write.times));
        self.read.take_if(|read| is_late(&read.times));
        self.append.take_if(|append| is_late(&append.times));
        Wants {
            write: self.write.is_none() && self.write_after <= now,
            read: self.read.is_none() && self.read_after <= now,
        }
    }

    /// The samples that have ended since the last call.
    pub fn samples(&mut self) -> impl Iterator<Item = Sample> {
        self.samples.drain(..)
    }

    /// Whether nothing is followed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.write.is_none() && self.read.is_none() && self.append.is_none()
    }

    /// A request that was stamped when it was received is taken in.
    pub(crate) fn taken(&mut self, ticket: Ticket, request: &Request, received: Instant, now: Instant) {
        let mut times = Times::from(received.min(now));
        times.reach(TAKEN, now);
        match request {
            Request::Write(_) | Request::CommitOnly(_) if self.write.is_none() => {
                self.write = Some(Write { ticket, times, entry: None, is_forwarded: false, answered: None });
            }
            Request::Read(..) | Request::LookUp(..) if self.read.is_none() => {
                self.read = Some(Read { ticket, times });
            }
            _ => {}
        }
    }

    /// An event of a peer is about to be handled.
    pub(crate) fn arrives(&mut self, event: &Event, now: Instant) {
        if self.append.is_some() || now < self.append_after {
            return;
        }
        let Event::Peer(PeerMessage::Raft(envelope)) = event else { return };
        let Message::Append(append) = &envelope.message else { return };
        if let Some(last) = append.entries.last() {
            self.append = Some(Append { last: last.id().index, times: Times::from(now), lsn: None });
        }
    }

    /// The node has handled all that has come. These are the records that it wants to have stored.
    pub(crate) fn drained(&mut self, node: &Node, records: &[LogRecord], now: Instant) {
        if let Some(write) = &mut self.write
            && write.entry.is_none()
            && !write.is_forwarded
        {
            write.is_forwarded = !node.raft().is_leader();
            let id = node.entry_of(write.ticket);
            let of =
                |record: &&LogRecord| matches!(&record.body, LogBody::Entry(entry) if Some(entry.id()) == id);
            if let Some(record) = records.iter().rev().find(of) {
                write.entry = id.map(|id| (id, record.lsn));
                write.times.reach(PROPOSED, now);
            }
        }
        if let Some(read) = &mut self.read {
            read.times.reach(ROUTED, now);
        }
        if let Some(append) = &mut self.append
            && append.lsn.is_none()
            && append.last <= node.raft().last_id().index
        {
            match records.last() {
                Some(record) => {
                    append.lsn = Some(record.lsn);
                    append.times.reach(APPENDABLE, now);
                }
                None => self.append = None, // nothing of it was new
            }
        }
        self.committed(node.raft().committed(), now);
    }

    /// The log is known to be committed up to here.
    pub(crate) fn committed(&mut self, committed: LogIndex, now: Instant) {
        if let Some(Write { entry: Some((id, _)), times, .. }) = &mut self.write
            && id.index <= committed
        {
            times.reach(REPLICATED, now);
        }
    }

    /// Records up to this one are durable here.
    pub(crate) fn stored(&mut self, lsn: Lsn, now: Instant) {
        if let Some(Write { entry: Some((_, of_write)), times, .. }) = &mut self.write
            && *of_write <= lsn
        {
            times.reach(STORED, now);
            self.end_write();
        }
        if let Some(Append { lsn: Some(of_append), times, .. }) = &mut self.append
            && *of_append <= lsn
        {
            times.reach(APPEND_STORED, now);
        }
    }

    /// The executor is about to publish this commit index and to send these messages.
    pub(crate) fn sends(&mut self, committed: LogIndex, messages: &[PeerMessage]) {
        if let Some(Write { entry: Some((id, _)), times, .. }) = &self.write {
            let has_it = |message: &PeerMessage| match message {
                PeerMessage::Raft(envelope) => match &envelope.message {
                    Message::Append(append) => {
                        append.prev.index < id.index
                            && append.entries.last().is_some_and(|last| id.index <= last.id().index)
                    }
                    _ => false,
                },
                PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => false,
            };
            self.sends = !times.has(SENT) && messages.iter().any(has_it);
            self.publishes = !times.has(COMMITTED) && id.index <= committed;
        }
        if let Some(append) = self.append.as_ref().filter(|append| append.times.has(APPEND_STORED)) {
            let is_it = |message: &PeerMessage| match message {
                PeerMessage::Raft(envelope) => {
                    matches!(&envelope.message, Message::AppendReply(reply) if append.last <= reply.upto)
                }
                PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => false,
            };
            self.acknowledges = messages.iter().any(is_it);
        }
    }

    /// Whether the executor has sent something of what is followed: then [`Stages::sent`] is due.
    pub(crate) fn has_sent(&self) -> bool {
        self.sends || self.publishes || self.acknowledges
    }

    /// The executor has done so.
    pub(crate) fn sent(&mut self, now: Instant) {
        let (sends, publishes) = (std::mem::take(&mut self.sends), std::mem::take(&mut self.publishes));
        if let Some(write) = &mut self.write {
            if sends {
                write.times.reach(SENT, now);
            }
            if publishes {
                write.times.reach(COMMITTED, now);
            }
        }
        if std::mem::take(&mut self.acknowledges)
            && let Some(append) = self.append.take()
        {
            self.keep(append.times.sample(Path::Append, now));
            self.append_after = now + APPEND_PAUSE;
        }
        self.end_write();
    }

    /// Whether a read is followed whose task is yet to come.
    pub(crate) fn awaits_task(&self) -> bool {
        self.read.as_ref().is_some_and(|read| !read.times.has(CONFIRMED))
    }

    /// The keeper is given these tasks.
    pub(crate) fn given(&mut self, tasks: &[KeeperTask], now: Instant) {
        let Some(read) = &mut self.read else { return };
        let is_it = |task: &KeeperTask| match task {
            KeeperTask::Read { ticket, .. } | KeeperTask::LookUp { ticket, .. } => *ticket == read.ticket,
            _ => false,
        };
        if tasks.iter().any(is_it) {
            read.times.reach(CONFIRMED, now);
        }
    }

    /// The keeper has applied entries up to this one.
    pub(crate) fn applied(&mut self, index: LogIndex, now: Instant) {
        if let Some(Write { entry: Some((id, _)), times, .. }) = &mut self.write
            && id.index <= index
        {
            times.reach(APPLIED, now);
            self.end_write();
        }
    }

    /// Whether the outcome for this ticket ends, or will end, a sample: then [`Stages::answered`] is due.
    pub(crate) fn follows(&self, ticket: Ticket) -> bool {
        self.write.as_ref().is_some_and(|write| write.ticket == ticket)
            || self.read.as_ref().is_some_and(|read| read.ticket == ticket)
    }

    /// It is answered now.
    pub(crate) fn answered(&mut self, ticket: Ticket, outcome: &Outcome, now: Instant) {
        let is_done = matches!(outcome, Outcome::Done(_));
        if let Some(read) = self.read.take_if(|read| read.ticket == ticket) {
            if is_done && read.times.has(ROUTED) && read.times.has(CONFIRMED) {
                self.keep(read.times.sample(Path::Read, now));
            }
            self.read_after = now + PAUSE;
        }
        let Some(write) = self.write.as_mut().filter(|write| write.ticket == ticket) else { return };
        if !is_done || (write.entry.is_none() && !write.is_forwarded) {
            self.write = None;
            self.write_after = now + PAUSE;
            return;
        }
        write.answered = Some(now);
        self.end_write();
    }

    fn keep(&mut self, sample: Sample) {
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(sample);
        }
    }

    /// Ends the sample of a write that was answered and has reached all else: its record may be durable here only later.
    fn end_write(&mut self) {
        let Some(Write { times, is_forwarded, answered: Some(answered), .. }) = self.write else { return };
        let path = match is_forwarded {
            true => Path::Forwarded,
            false => Path::Write,
        };
        let needs = (0..path.stages().len()).filter(|&stage| path != Path::Write || stage != SENT);
        if needs.into_iter().all(|stage| times.has(stage)) {
            self.keep(times.sample(path, answered));
            self.write = None;
            self.write_after = answered + PAUSE;
        }
    }
}
