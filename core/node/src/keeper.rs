//! The keeper: owner of the replicated tables, the half of a replica that applies.
//!
//! In:    tasks, in order: committed entries, reads that may be served now; how much may be done of them now.
//! Out:   answers straight to clients, and how far it has come.
//!        Tables become a snapshot by being pinned, and a snapshot becomes the tables by taking their place as a whole.
//! Rule:  state and applied index move together [fault-model ST4]; apply depends on the log's bytes only [DT1]; a
//!        command that cannot be applied stops the member *before* it is marked applied [F71].
//! Knows nothing of: raft, terms (it passes the replica's on), who is waiting for what.

use crate::alarms::{Alarm, AlarmChange};
use crate::command::{Command, is_for_store, within};
use crate::compare::Health;
use crate::contract::{
    Admitted, Doubt, KeeperEffects, KeeperTask, MemberInfo, Members, Outcome, Refusal, Reply, ReplyBody,
    Status, Ticket,
};
use crate::digests::Report;
use crate::frozen::Tables;
use crate::level::WORK_BUDGETS;
use crate::table::Table;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kattu_kv::api as kv;
use kattu_kv::api::{Error, Response};
use kattu_kv::cost::PUT_UNITS;
use kattu_kv::store::{Stats, Store};
use kattu_kv::work::Work;
use kattu_raft::{Entry, EntryKind, LogIndex, Membership, NodeId, SnapshotMeta, Term};

/// Changes of compacted history freed in one idle moment: well under a millisecond.
const TIDY_CHANGES_MAX: usize = 512;

/// Bytes of values that one command may write because it keeps them: as many as one answer may hold by default. Without it a
/// request of a few KB would write as much as the store holds.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// What one request may ask of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Units of work. [`kattu_kv::cost`]
    pub work_max: u64,
    /// Bytes of memory that the pairs of one answer may take: keys, values, and what a pair is beside them.
    pub answer_bytes_max: usize,
}

impl Default for RequestLimits {
    /// A range of four million keys, a delete of nearly three, and what one answer may hold by default.
    fn default() -> RequestLimits {
        RequestLimits { work_max: 8 << 20, answer_bytes_max: 64 << 20 }
    }
}

/// The replicated tables and how far along the log they stand.
///
/// Tasks are done in the order in which they come, one after the other. One that takes long is done in slices, and nothing
/// else is begun before it is done: so nobody sees half of it, and a snapshot holds all of it or nothing. Only what
/// does not look at keys goes first (a status, what a request would cost).
#[derive(Clone, Debug)]
pub struct Keeper {
    store: Store,
    tables: Tables,
    limits: RequestLimits,
    /// What waits its turn.
    queue: VecDeque<KeeperTask>,
    /// What has begun and is not done; the tables stand in the middle of it.
    under_way: Option<Box<UnderWay>>,
    /// Whose tables these are; 0 for nobody's in particular.
    own: NodeId,
    /// What this member has made of the log at the newest mark, until the log holds its report. Not replicated.
    owed: Option<Report>,
    /// A snapshot whose tables are on their way here.
    installing: Option<SnapshotMeta>,
    /// What waits for them.
    held: VecDeque<KeeperTask>,
}

/// A task in the middle.
#[derive(Clone, Debug)]
struct UnderWay {
    work: Work,
    job: Job,
}

#[derive(Clone, Debug)]
enum Job {
    Apply {
        index: LogIndex,
        waits: Waits,
        /// The store before it.
        stats: Stats,
    },
    Read {
        ticket: Ticket,
        query: kv::Query,
        term: Term,
    },
}

/// Who waits for an entry, if anybody does.
#[derive(Clone, Copy, Debug)]
struct Waits {
    ticket: Option<Ticket>,
    term: Term,
}

/// What became of an entry so far.
enum Applied {
    Done(Option<ReplyBody>),
    /// It takes long.
    Begun(Work),
    /// It costs more than its entry allows: it has no effect, here and on every other member.
    Refused,
}

impl Keeper {
    /// Empty tables of a cluster with these members.
    #[must_use]
    pub fn new(members: Vec<MemberInfo>) -> Keeper {
        Keeper::of(Store::new(), Tables { members: Table::new(members), ..Tables::default() })
    }

    /// A keeper of these tables.
    pub(crate) fn of(store: Store, tables: Tables) -> Keeper {
        Keeper {
            store,
            tables,
            limits: RequestLimits::default(),
            queue: VecDeque::new(),
            under_way: None,
            own: NodeId(0),
            owed: None,
            installing: None,
            held: VecDeque::new(),
        }
    }

    /// The same keeper with these limits for requests that enter here.
    #[must_use]
    pub fn with_limits(mut self, limits: RequestLimits) -> Keeper {
        self.limit(limits);
        self
    }

    /// From now on these are the limits for requests that enter here.
    pub fn limit(&mut self, limits: RequestLimits) {
        self.limits = limits;
    }

    /// The same keeper as this member's: it refuses what an alarm about the member forbids, and notes what it owes.
    #[must_use]
    pub fn of_member(mut self, own: NodeId) -> Keeper {
        self.own = own;
        self
    }

    /// These tables as the beginning of another cluster, of these members: keys and values stay, alarms and digests go,
    /// and the store goes on at a revision that is `raise_by` higher, with nothing before it; with 0, as it was.
    #[must_use]
    pub fn reborn(self, members: Vec<MemberInfo>, raise_by: u64) -> Keeper {
        let Keeper { mut store, tables, .. } = self;
        if raise_by != 0 {
            store.raise_revision(raise_by);
        }
        let applied = tables.applied.max(LogIndex(1));
        let level = tables.level;
        Keeper::of(store, Tables { members: Table::new(members), applied, level, ..Tables::default() })
    }

    /// All tables and the applied index: what a snapshot holds. A new table belongs in here.
    pub(crate) fn tables(&self) -> (&Store, &Tables) {
        let Keeper { store, tables, .. } = self;
        (store, tables)
    }

    /// Takes in one task: what must not wait for others is done at once, the rest waits its turn ([`Keeper::step`]).
    pub fn take_in(&mut self, task: KeeperTask, effects: &mut KeeperEffects) {
        match task {
            KeeperTask::Status { ticket, mut status } => {
                self.complete(&mut status);
                done(effects, ticket, status.term, ReplyBody::Status(status));
            }
            KeeperTask::Weigh { ticket, command, bytes } => self.weigh(ticket, &command, bytes, effects),
            task => self.queue.push_back(task),
        }
    }

    /// Goes on with what is under way, or begins the next task: at most one, and no more of it than the allowance lets.
    /// What it took goes off the allowance and into [`KeeperEffects::units`]. Returns whether there is more to do.
    ///
    /// # Panics
    /// If a committed command is malformed or out of order: stopping beats diverging.
    pub fn step(&mut self, allowance: &mut i64, effects: &mut KeeperEffects) -> bool {
        let before = *allowance;
        if let Some(under_way) = self.under_way.take() {
            self.go_on(under_way, allowance, effects);
        } else if let Some(task) = self.queue.pop_front() {
            if self.installing.is_some() && self.must_wait(&task) {
                self.held.push_back(task);
            } else {
                self.begin(task, allowance, effects);
            }
        }
        effects.units += before.saturating_sub(*allowance).unsigned_abs();
        self.is_busy()
    }

    /// Whether there is something to do for [`Keeper::step`].
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.under_way.is_some() || !self.queue.is_empty()
    }

    /// Whether a task has begun and is not done: the tables are those of no index.
    #[must_use]
    pub fn is_in_the_middle(&self) -> bool {
        self.under_way.is_some()
    }

    /// Tasks that wait their turn, or for the tables of a snapshot.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    /// Everything that can be done is done.
    ///
    /// # Panics
    /// As [`Keeper::step`].
    pub fn finish(&mut self, effects: &mut KeeperEffects) {
        while self.step(&mut i64::MAX.clone(), effects) {}
    }

    /// Carries out one task in one go, and what waits before it: for whoever has nothing else to do meanwhile.
    ///
    /// # Panics
    /// As [`Keeper::step`].
    pub fn handle(&mut self, task: KeeperTask, effects: &mut KeeperEffects) {
        self.take_in(task, effects);
        self.finish(effects);
    }

    fn begin(&mut self, task: KeeperTask, allowance: &mut i64, effects: &mut KeeperEffects) {
        *allowance = allowance.saturating_sub_unsigned(PUT_UNITS);
        match task {
            KeeperTask::Apply { entry, ticket, term } => {
                *allowance = allowance.saturating_sub_unsigned((entry.len() / 1024) as u64);
                let waits = Waits { ticket, term };
                match self.apply(&entry, waits, allowance, effects) {
                    Applied::Refused => {
                        effects.refused_for_work += 1;
                        let waits = Waits { ticket: None, ..waits };
                        self.conclude(entry.id().index, true, waits, None, effects);
                        // Those who are right may have carried it out.
                        let outcome = match self.is_corrupt() {
                            true => Outcome::Unknown(Doubt::LeaderChanged),
                            false => Outcome::Refused(Refusal::TooMuchWork),
                        };
                        effects.reply.extend(ticket.map(|ticket| (ticket, outcome)));
                    }
                    Applied::Done(body) => {
                        if entry.head.kind == EntryKind::Config {
                            effects.members = Some(self.members());
                        }
                        let is_for_store = is_for_store(entry.payload());
                        self.conclude(entry.id().index, is_for_store, waits, body, effects);
                    }
                    Applied::Begun(work) => {
                        let stats = self.store.stats();
                        let job = Job::Apply { index: entry.id().index, waits, stats };
                        self.go_on(Box::new(UnderWay { work, job }), allowance, effects);
                    }
                }
            }
            KeeperTask::Read { ticket, query, term, needs } => {
                self.check_reaches(needs);
                if self.is_corrupt() {
                    return effects.reply.push((ticket, Outcome::Refused(Refusal::Corrupt)));
                }
                if let Some(result) = self.store.query_small(&query) {
                    return done(effects, ticket, term, kv_body(result));
                }
                if self.store.cost_of_query(&query) > self.limits.work_max {
                    return refuse_work(effects, ticket);
                }
                let work = self.read(&query);
                let job = Job::Read { ticket, query, term };
                self.go_on(Box::new(UnderWay { work, job }), allowance, effects);
            }
            KeeperTask::Members { ticket, term, needs } => {
                self.check_reaches(needs);
                done(effects, ticket, term, ReplyBody::Members(self.members()));
            }
            KeeperTask::Pin { ticket, term, needs } => {
                self.check_reaches(needs);
                done(effects, ticket, term, ReplyBody::Pinned(Box::new(self.pin())));
            }
            KeeperTask::Snapshot(meta) => {
                let (last, applied) = (meta.last, self.tables.applied);
                assert!(last.index == applied, "a snapshot of {last}, but {} is applied", applied.0);
                let (told, at) = (meta.membership_at, self.tables.members.at);
                assert!(
                    told == at,
                    "a snapshot with the members of {}, but those of {} are here",
                    told.0,
                    at.0
                );
                effects.snapshot = Some((meta, self.pin()));
            }
            KeeperTask::Install(meta) => {
                let (last, applied) = (meta.last, self.tables.applied);
                assert!(applied < last.index, "a snapshot of {last} for tables of {}", applied.0);
                self.installing = Some(meta.clone());
                effects.install = Some(meta);
            }
            KeeperTask::Status { .. } | KeeperTask::Weigh { .. } => self.take_in(task, effects),
        }
    }

    /// Goes on with what takes long, until it is done or the allowance is used up.
    fn go_on(&mut self, mut under_way: Box<UnderWay>, allowance: &mut i64, effects: &mut KeeperEffects) {
        let result = match &under_way.job {
            Job::Apply { .. } => self.store.go_on(&mut under_way.work, allowance),
            Job::Read { .. } => self.store.read_on(&mut under_way.work, allowance),
        };
        let Some(result) = result else {
            self.under_way = Some(under_way);
            return;
        };
        let lacks_pairs = under_way.work.lacks_pairs() && result.is_ok();
        match under_way.job {
            Job::Apply { index, waits, .. } if lacks_pairs => {
                self.conclude(index, true, Waits { ticket: None, ..waits }, None, effects);
                let outcome = Outcome::Unknown(Doubt::AnswerTooLarge);
                effects.reply.extend(waits.ticket.map(|ticket| (ticket, outcome)));
            }
            Job::Apply { index, waits, .. } => {
                self.conclude(index, true, waits, Some(kv_body(result)), effects);
            }
            Job::Read { ticket, .. } if result == Err(Error::AnswerTooLarge) => {
                effects.refused_for_work += 1;
                effects.reply.push((ticket, Outcome::Refused(Refusal::AnswerTooLarge)));
            }
            Job::Read { ticket, .. } if result == Err(Error::TooMuchWork) => refuse_work(effects, ticket),
            Job::Read { ticket, term, .. } => done(effects, ticket, term, kv_body(result)),
        }
    }

    /// An entry has had its effect, in whole: state and applied index move together.
    fn conclude(
        &mut self,
        index: LogIndex,
        is_for_store: bool,
        waits: Waits,
        body: Option<ReplyBody>,
        effects: &mut KeeperEffects,
    ) {
        self.tables.applied = index;
        effects.applied = Some(index);
        if let (Some(ticket), Some(body)) = (waits.ticket, body) {
            if is_for_store && self.is_corrupt() {
                // It is done, and what it came to is known to those who are right.
                effects.reply.push((ticket, Outcome::Unknown(Doubt::LeaderChanged)));
            } else {
                done(effects, ticket, waits.term, body);
            }
        }
    }

    /// A command that may take long is judged by what it would cost now, whatever else is under way; one that may be
    /// proposed says from now on by how much it was let in.
    fn weigh(&mut self, ticket: Ticket, command: &kv::Command, bytes: Vec<u8>, effects: &mut KeeperEffects) {
        let work_max = self.limits.work_max;
        let kept_bytes = self.store.kept_bytes(command);
        let keeps_too_much = kept_bytes > KEPT_BYTES_MAX;
        if self.store.cost_of(command) > work_max || keeps_too_much {
            return refuse_work(effects, ticket);
        }
        let knows_budgets = WORK_BUDGETS <= self.tables.level;
        let command = if knows_budgets { within(work_max, &bytes) } else { bytes };
        effects.admitted.push(Admitted { ticket, command, kept_bytes });
    }

    /// The tables of the snapshot that was asked for take the place of these, whole; what waited for them is next.
    /// Gives back the old ones, which are best dropped elsewhere.
    ///
    /// # Panics
    /// If no snapshot was asked for, or these are not its tables.
    #[must_use]
    pub fn replace(&mut self, tables: Keeper, effects: &mut KeeperEffects) -> Keeper {
        let meta = self.installing.take().expect("tables come only when a snapshot was asked for");
        let (last, applied) = (meta.last, tables.tables.applied);
        assert!(applied == last.index, "tables of index {} for a snapshot of {last}", applied.0);
        let mut queue = core::mem::take(&mut self.held);
        queue.append(&mut self.queue);
        // Only a read can be under way: it begins anew, so that it sees one state.
        let mut under_way = self.under_way.take();
        if let Some(UnderWay { work, job: Job::Read { query, .. } }) = under_way.as_deref_mut() {
            *work = self.read(query);
        }
        let (own, limits) = (self.own, self.limits);
        let old = core::mem::replace(self, tables.of_member(own).with_limits(limits));
        (self.queue, self.under_way) = (queue, under_way);
        effects.applied = Some(self.tables.applied);
        effects.members = Some(self.members());
        effects.health = Some(self.health());
        old
    }

    /// Whether a snapshot was asked for that is not here yet.
    #[must_use]
    pub fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// Whether a task needs the tables that are on their way.
    fn must_wait(&self, task: &KeeperTask) -> bool {
        match task {
            KeeperTask::Apply { .. } | KeeperTask::Snapshot(_) | KeeperTask::Install(_) => true,
            KeeperTask::Read { needs, .. }
            | KeeperTask::Members { needs, .. }
            | KeeperTask::Pin { needs, .. } => self.tables.applied < *needs,
            KeeperTask::Status { .. } | KeeperTask::Weigh { .. } => false,
        }
    }

    fn check_reaches(&self, needs: LogIndex) {
        assert!(
            needs <= self.tables.applied,
            "a read of index {} at index {}",
            needs.0,
            self.tables.applied.0
        );
    }

    /// Frees a little of what compaction left; for idle moments. No answer depends on it. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        // In the middle of a change nothing is forgotten: it may have to be taken back.
        self.under_way.is_none() && self.store.tidy(TIDY_CHANGES_MAX)
    }

    /// Highest index applied.
    #[must_use]
    pub fn applied(&self) -> LogIndex {
        self.tables.applied
    }

    /// The table of members as of the applied index.
    #[must_use]
    pub fn members(&self) -> Members {
        self.tables.members.members()
    }

    /// What the tables say of alarms and digests.
    #[must_use]
    pub fn health(&self) -> Health {
        Health { alarms: self.tables.alarms.clone(), owed: self.owed, level: self.tables.level }
    }

    /// Whether this member may not be believed. [fault-model ST13]
    fn is_corrupt(&self) -> bool {
        self.own != NodeId(0) && self.tables.alarms.is_corrupt(self.own)
    }

    /// The store, for judges and quota.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A read that has not begun.
    fn read(&self, query: &kv::Query) -> Work {
        Work::on_query(query, self.limits.answer_bytes_max).that_looks_at(self.limits.work_max)
    }

    fn apply(
        &mut self,
        entry: &Entry,
        waits: Waits,
        allowance: &mut i64,
        effects: &mut KeeperEffects,
    ) -> Applied {
        let id = entry.id();
        let applied = self.tables.applied;
        assert!(id.index == applied.next(), "entry {id} after applied {}", applied.0);
        Applied::Done(match entry.head.kind {
            EntryKind::Noop => None,
            EntryKind::Config => Some(self.apply_configuration(entry)),
            EntryKind::Command => {
                let command = Command::decode(entry.payload()).unwrap_or_else(|_| {
                    panic!(
                        "committed entry {id} holds no command this version knows: if others run a newer version, run that one"
                    )
                });
                match command {
                    Command::Kv(command) => return self.apply_to_store(command, waits, allowance),
                    Command::Within { work_max, command } => {
                        // By the number in the entry, and never by this member's own: all come to the same verdict.
                        if self.store.cost_of(&command) > work_max {
                            return Applied::Refused;
                        }
                        return self.apply_to_store(command, waits, allowance);
                    }
                    command => Some(self.apply_command(id.index, command, effects)),
                }
            }
        })
    }

    fn apply_to_store(&mut self, command: kv::Command, waits: Waits, allowance: &mut i64) -> Applied {
        if let kv::Command::Put(_) = &command {
            *allowance = allowance.saturating_sub_unsigned(self.store.kept_bytes(&command) / 1024);
        }
        match self.store.apply_small(&command) {
            Some(result) => Applied::Done(waits.ticket.map(|_| kv_body(result))),
            None => {
                let wants = waits.ticket.map(|_| self.limits.answer_bytes_max);
                Applied::Begun(Work::on_command(command, wants).that_looks_at(self.limits.work_max))
            }
        }
    }

    fn apply_command(&mut self, at: LogIndex, command: Command, effects: &mut KeeperEffects) -> ReplyBody {
        match command {
            Command::Kv(_) | Command::Within { .. } => unreachable!("the store's commands go to the store"),
            Command::Level(level) => {
                self.tables.level = self.tables.level.max(level);
                effects.health = Some(self.health());
                ReplyBody::Published
            }
            Command::Publish(publish) => {
                self.tables.members.publish(publish);
                effects.members = Some(self.members());
                ReplyBody::Published
            }
            Command::Mark => self.note(at, effects),
            Command::Report(report) => self.compare(report, effects),
            Command::Alarm(change) => {
                let alarm = self.tables.alarms.change(change);
                effects.health = Some(self.health());
                ReplyBody::Alarmed(alarm)
            }
            Command::Change(change) => panic!("{change:?} is committed outside a configuration"),
        }
    }

    /// The members become what this entry says. What cannot be read stops this member. [fault-model F71]
    fn apply_configuration(&mut self, entry: &Entry) -> ReplyBody {
        let id = entry.id();
        let (membership, context) = Membership::decode(entry.payload())
            .unwrap_or_else(|why| panic!("committed entry {id} holds no configuration: {why}"));
        let change = match context {
            [] => None,
            context => match Command::decode(context) {
                Ok(Command::Change(change)) => Some(change),
                _ => panic!("committed entry {id} holds no change of members this version knows"),
            },
        };
        self.tables.members.follow(id.index, &membership, change);
        ReplyBody::Changed(self.tables.members.list())
    }

    /// Notes what this member has made of the log before the mark at `at`.
    fn note(&mut self, at: LogIndex, effects: &mut KeeperEffects) -> ReplyBody {
        self.tables.digests.mark(at);
        self.owed =
            Some(Report { member: self.own, at, digest: self.digest() }).filter(|_| self.own != NodeId(0));
        effects.health = Some(self.health());
        ReplyBody::Published
    }

    /// Compares what a member has made of the log with what the others have; who is odd is named in an alarm.
    fn compare(&mut self, report: Report, effects: &mut KeeperEffects) -> ReplyBody {
        if self.owed.is_some_and(|owed| (owed.member, owed.at) == (report.member, report.at)) {
            self.owed = None;
            effects.health = Some(self.health());
        }
        for divergent in self.tables.digests.report(report, &self.tables.members.list) {
            self.tables.alarms.change(AlarmChange::Raise(Alarm::corrupt(divergent)));
            effects.health = Some(self.health());
        }
        ReplyBody::Published
    }

    fn complete(&self, status: &mut Status) {
        // Of a change under way nothing is seen.
        let stats = match self.under_way.as_ref().map(|under_way| &under_way.job) {
            Some(Job::Apply { stats, .. }) => *stats,
            _ => self.store.stats(),
        };
        status.revision = self.store.revision();
        status.compact_revision = self.store.compact_revision();
        status.applied = self.tables.applied;
        status.alarms = self.tables.alarms.clone();
        *status.compared = self.tables.digests.compared();
        status.keys = stats.keys;
        status.store_bytes = stats.bytes;
        status.store_bytes_in_use = stats.bytes_in_use;
        status.store_forgets = stats.forgets;
        status.level = self.tables.level;
    }
}

fn refuse_work(effects: &mut KeeperEffects, ticket: Ticket) {
    effects.refused_for_work += 1;
    effects.reply.push((ticket, Outcome::Refused(Refusal::TooMuchWork)));
}

fn kv_body(result: Result<Response, Error>) -> ReplyBody {
    match result {
        Ok(response) => ReplyBody::Kv(response),
        Err(error) => ReplyBody::KvError(error),
    }
}

fn done(effects: &mut KeeperEffects, ticket: Ticket, term: Term, body: ReplyBody) {
    effects.reply.push((ticket, Outcome::Done(Reply { term, body })));
}
