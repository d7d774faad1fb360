//! Tables: members, messages and histories by number, and the effect of every event on every member, computed once.
//!
//! A world of three members is three numbers, the numbers of its messages, and one for its history. The members of a
//! million worlds are a few thousand different ones, so the production core runs a few hundred thousand times and not a
//! billion times; everything else is look-ups. A number stands for values that were compared in full.
//! Knows nothing of: worlds, the order of the search.

use crate::clocks::{self, Turns};
use crate::disk::State;
use crate::ghost::Ghost;
use crate::member::{Event, Member, StepResult};
use crate::position::{Configuration, Position};
use crate::scope::Scope;
use kattu_raft::canonical::{CANONICAL_NOW, Moment};
use kattu_raft::message::Message;
use kattu_raft::{EntryId, EntryKind, Envelope, LogIndex, NodeId, Raft, ReadVerdict, Term, Trace};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

/// Hashes a few words; for tables of numbers only.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl WordHasher {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.word(u64::from(*byte)));
    }
    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }
}

/// Values by number, each once.
pub struct Interned<T> {
    values: Vec<Rc<T>>,
    numbers: HashMap<Rc<T>, u32>,
}

impl<T: Eq + Hash> Interned<T> {
    fn new() -> Interned<T> {
        Interned { values: Vec::new(), numbers: HashMap::new() }
    }

    /// The number of `value`; true if it is a new one.
    fn number(&mut self, value: T) -> (u32, bool) {
        if let Some(number) = self.numbers.get(&value) {
            return (*number, false);
        }
        let number = self.values.len() as u32;
        let value = Rc::new(value);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        (number, true)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Facts of a member for the search and the judges.
#[derive(Default)]
pub struct Facts {
    /// Its process runs.
    pub runs: bool,
    /// It leads this term.
    pub leads: Option<Term>,
    /// Newest term on its disk: it survives every crash.
    pub durable_term: Term,
    /// Its log: in memory while it runs, else on its disk.
    pub log: Box<[Position]>,
    /// The log on its disk.
    pub durable: Box<[Position]>,
    /// Its match of each member, as a leader.
    pub matched: Box<[LogIndex]>,
    /// Deadlines by which time alone changes it.
    pub moments: Box<[Moment]>,
    /// Records that its disk has not completed.
    pub unsynced: usize,
    /// It could take a proposal or a read: it knows a leader.
    pub knows_leader: bool,
    /// Entries that it keeps after a gap.
    pub early: Box<[EntryId]>,
    /// Index of the leader that it follows.
    pub follows: Option<usize>,
    /// The driver has yet to call `drained`.
    pub dirty: bool,
    /// Its newest term, durable or not.
    pub term: Term,
    /// The length of its log that only a snapshot holds.
    pub base: usize,
    /// The scope's first configuration.
    pub first: Configuration,
    /// The newest configuration of its log, or the first one.
    pub in_force: Configuration,
    /// Index up to which entries were delivered to apply.
    pub delivered: LogIndex,
    /// Index up to which its newest snapshot reaches.
    pub covered: LogIndex,
    /// See [`Member::installed`].
    pub installed: bool,
    /// It leads, and transfers leadership.
    pub transferring: bool,
    /// Deadlines that are due, where time is measured.
    pub due: Box<[Moment]>,
    /// Whether its lease holds, if it leads and there are leases.
    pub lease: Option<bool>,
}

/// Facts of a message for the search.
pub(crate) struct Parcel {
    /// Index of the addressee.
    pub to: usize,
    /// Number of the link it travels on.
    pub link: u32,
    /// The term of an answer, which is void once its addressee has durably left that term.
    pub dies_after: Option<Term>,
}

/// The effect of one event on one member.
#[derive(Default)]
pub struct Step {
    /// The member afterwards.
    pub member: u32,
    /// Messages it sent.
    pub sends: Box<[u32]>,
    /// Positions newly known to be committed.
    pub commits: Box<[Position]>,
    /// The term it was elected in.
    pub elected: Option<Term>,
    /// Entries it reported as received.
    pub received: Box<[EntryId]>,
    /// Reads it answered.
    pub verdicts: Box<[ReadVerdict]>,
    /// Refused at once: not worth a choice.
    pub refused: bool,
    /// It cut off entries of its log.
    pub truncated: bool,
    /// Entries joined the log from the window.
    pub gap_closed: bool,
    /// A configuration was among them.
    pub change_truncated: bool,
    /// It began a leadership transfer.
    pub transferring: bool,
    /// Its log was pruned.
    pub pruned: bool,
    /// A leader's snapshot replaced its log.
    pub installed: bool,
    /// Changes of its lease.
    pub lease: Turns,
}

/// All tables.
pub struct Tables<'a> {
    pub(crate) scope: &'a Scope,
    /// All distinct members.
    pub members: Interned<Member>,
    facts: Vec<Facts>,
    /// All distinct messages.
    pub messages: Interned<Envelope>,
    parcels: Vec<Parcel>,
    /// All distinct histories.
    pub ghosts: Interned<Ghost>,
    steps: Vec<Step>,
    known: HashMap<(u32, u32), u32, BuildHasherDefault<WordHasher>>,
}

impl<'a> Tables<'a> {
    /// Empty tables.
    #[must_use]
    pub fn new(scope: &'a Scope) -> Tables<'a> {
        Tables {
            scope,
            members: Interned::new(),
            facts: Vec::new(),
            messages: Interned::new(),
            parcels: Vec::new(),
            ghosts: Interned::new(),
            steps: Vec::new(),
            known: HashMap::default(),
        }
    }

    /// The number of a member.
    pub fn member(&mut self, member: Member) -> u32 {
        let facts = facts(&member, self.scope);
        let (number, new) = self.members.number(member);
        if new {
            self.facts.push(facts);
        }
        number
    }

    /// A member by its number.
    #[must_use]
    pub(crate) fn member_at(&self, number: u32) -> &Rc<Member> {
        &self.members.values[number as usize]
    }

    /// The facts of a member.
    #[must_use]
    pub fn facts(&self, number: u32) -> &Facts {
        &self.facts[number as usize]
    }

    fn message(&mut self, envelope: Envelope) -> u32 {
        let parcel = parcel(&envelope);
        let (number, new) = self.messages.number(envelope);
        if new {
            self.parcels.push(parcel);
        }
        number
    }

    /// A message by its number.
    #[must_use]
    pub(crate) fn message_at(&self, number: u32) -> &Rc<Envelope> {
        &self.messages.values[number as usize]
    }

    /// The facts of a message.
    #[must_use]
    pub(crate) fn parcel(&self, number: u32) -> &Parcel {
        &self.parcels[number as usize]
    }

    /// The number of a history.
    pub fn ghost(&mut self, ghost: Ghost) -> u32 {
        self.ghosts.number(ghost).0
    }

    /// A history by its number.
    #[must_use]
    pub(crate) fn ghost_at(&self, number: u32) -> &Rc<Ghost> {
        &self.ghosts.values[number as usize]
    }

    /// The effect of the event with this code on a member: looked up, or computed the first time.
    ///
    /// # Errors
    /// The guarantee that the member violates.
    pub fn step(
        &mut self,
        member: u32,
        code: u32,
        event: impl FnOnce(&Tables<'a>) -> Event,
    ) -> Result<u32, String> {
        if let Some(step) = self.known.get(&(member, code)) {
            return Ok(*step);
        }
        let event = event(self);
        let before = self.member_at(member).clone();
        let (after, result) = before.after(&event, self.scope)?;
        let StepResult { sends, commits, elected, received, verdicts, refused, trace, lease } = result;
        let happened = |is: fn(&Trace) -> bool| trace.iter().any(is);
        let configurations = |member: &Member| {
            let log = member.disk.written().map(|written| written.log).unwrap_or_default();
            log.iter()
                .filter(|entry| entry.head.kind == EntryKind::Config)
                .map(|entry| entry.id())
                .collect::<Vec<_>>()
        };
        let truncated = happened(|event| matches!(event, Trace::Truncated(_)));
        let gap_closed = happened(|event| matches!(event, Trace::GapClosed { .. }));
        let change_truncated = truncated && {
            let kept = configurations(&after);
            configurations(&before).iter().any(|id| !kept.contains(id))
        };
        let (transferring, pruned, installed) = (
            happened(|event| matches!(event, Trace::TransferBegan(_))),
            happened(|event| matches!(event, Trace::Pruned(_))),
            happened(|event| matches!(event, Trace::Installs(_))),
        );
        let step = Step {
            member: self.member(after),
            sends: sends.into_iter().map(|envelope| self.message(envelope)).collect(),
            commits: commits.into(),
            elected,
            received: received.into(),
            verdicts: verdicts.into(),
            refused,
            truncated,
            gap_closed,
            change_truncated,
            transferring,
            pruned,
            installed,
            lease,
        };
        let number = self.steps.len() as u32;
        self.steps.push(step);
        self.known.insert((member, code), number);
        Ok(number)
    }

    /// A step by its number.
    #[must_use]
    pub(crate) fn step_at(&self, number: u32) -> &Step {
        &self.steps[number as usize]
    }

    /// How often the core ran.
    #[must_use]
    pub fn core_runs(&self) -> usize {
        self.steps.len()
    }
}

fn facts(member: &Member, scope: &Scope) -> Facts {
    let raft = member.raft.as_ref();
    let disk = &member.disk;
    // Errors of a disk were judged in the member's step, so none can occur here.
    let history = |state: &State| -> Box<[Position]> { disk.history(state).unwrap_or_default().into() };
    let durable = history(&disk.durable);
    let written = disk.written().ok().filter(|_| raft.is_some());
    let log = written.as_ref().map_or_else(|| durable.clone(), history);
    let base = written.as_ref().unwrap_or(&disk.durable).base.index.0 as usize;
    let first = Configuration::of(&scope.first_configuration(NodeId(1)));
    let members = scope.members;
    let in_time = raft.filter(|_| scope.clocks.is_some());
    let moments = raft.map(|raft| raft.moments(CANONICAL_NOW)).unwrap_or_default();
    let behind_the_log =
        raft.map(|raft| raft.last_id().index.0 + 1..=raft.last_id().index.0 + u64::from(scope.window));
    let early = behind_the_log.into_iter().flatten().filter_map(|index| raft?.received_at(LogIndex(index)));
    let matched = |peer| raft.and_then(|raft| raft.matched(NodeId(peer))).unwrap_or_default();
    Facts {
        runs: raft.is_some(),
        leads: raft.filter(|raft| raft.is_leader()).map(Raft::term),
        base,
        first,
        in_force: log.iter().rev().find_map(|place| place.configuration).unwrap_or(first),
        delivered: raft.map(Raft::applied_delivered).unwrap_or_default(),
        early: early.collect(),
        covered: raft.and_then(Raft::snapshot).map(|meta| meta.last.index).unwrap_or_default(),
        installed: member.installed,
        transferring: raft.is_some_and(|raft| raft.transferring().is_some()),
        due: in_time.map(|raft| raft.due(CANONICAL_NOW)).unwrap_or_default().into(),
        lease: in_time.filter(|raft| raft.is_leader()).map(clocks::holds_lease),
        durable_term: member.disk.durable.hard.term,
        log,
        durable,
        matched: (1..=members as u64).map(matched).collect(),
        moments: moments.into_iter().map(|(moment, _)| moment).collect(),
        unsynced: member.disk.unsynced.len(),
        knows_leader: raft.is_some_and(|raft| raft.leader().is_some()),
        follows: raft
            .and_then(Raft::leader)
            .filter(|leader| *leader != member.id)
            .map(|leader| leader.0 as usize - 1),
        dirty: member.dirty,
        term: raft.map_or(member.disk.durable.hard.term, Raft::term),
    }
}

fn parcel(envelope: &Envelope) -> Parcel {
    let answer = match &envelope.message {
        Message::AppendReply(_)
        | Message::StaleTerm(_)
        | Message::PreVoteReply(_)
        | Message::VoteReply(_)
        | Message::ReadIndexReply(_)
        | Message::SnapshotReply(_) => true,
        Message::Append(_)
        | Message::PreVote(_)
        | Message::Vote(_)
        | Message::ReadIndex(_)
        | Message::SnapshotChunk(_)
        | Message::TimeoutNow(_)
        | Message::Lost(_)
        | Message::Remind(_)
        | Message::Reminder(_) => false,
    };
    Parcel {
        to: envelope.to.0 as usize - 1,
        link: (envelope.from.0 * 16 + envelope.to.0) as u32,
        dies_after: answer.then_some(envelope.term),
    }
}
