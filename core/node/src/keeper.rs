//! The keeper: owner of the replicated tables, the half of a replica that applies.
//!
//! In:    tasks, in order: committed entries, reads that may be served now; and an allowance of work.
//! Out:   answers straight to clients, and the applied index.
//!        A snapshot is made from pinned tables, and replaces all tables at once when it is installed.
//! Rule:  state and applied index move together [fault-model ST4]; apply depends on the log's bytes only [DT1]; a
//!        command that cannot be applied stops the member *before* it is marked applied [F71].
//! Knows nothing of: raft, terms (it passes the replica's on), clients behind tickets.

use crate::alarms::{Alarm, AlarmChange};
use crate::bundle::{Parts, is_bundle};
use crate::command::{Command, is_for_store, put_in, put_of_store, within};
use crate::compare::Health;
use crate::contract::{
    Admitted, Doubt, KeeperEffects, KeeperTask, MemberInfo, Members, Outcome, Refusal, Reply, ReplyBody,
    Standing, Status, TASKS_KEPT, Ticket, Tickets,
};
use crate::digests::Report;
use crate::frozen::Tables;
use crate::level::WORK_BUDGETS;
use crate::session::{SessionCommand, SessionHeader, is_of_session};
use crate::table::Table;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::{self, Vec};
use core::iter::Peekable;
use kattu_kv::api as kv;
use kattu_kv::api::{Error, Response};
use kattu_kv::cost::PUT_UNITS;
use kattu_kv::sessions::{Once, SESSION_BYTES_MAX, SessionId, Sessions, Skipped, Verdict};
use kattu_kv::store::{GROUP_MAX, Stats, Store};
use kattu_kv::work::Work;
use kattu_raft::{Duration, Entry, EntryId, EntryKind, LogIndex, Membership, NodeId, SnapshotMeta, Term};

/// Changes of compacted history freed in one idle moment: well under a millisecond.
const TIDY_CHANGES_MAX: usize = 512;

/// Bytes of existing values that one command may write again (`ignore_value`): as many as one answer may hold by
/// default. Without this limit a request of a few KB could write as much as the store holds.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Keys that a command in a session may visit if its entry says nothing: the same on every member, because its answer is
/// kept on all of them.
const SESSION_WORK_MAX: u64 = 8 << 20;

/// What a client is told of a divergent member's answer: its command is done, but only the other members know the result.
const DONE_BY_OTHERS: Outcome = Outcome::Unknown(Doubt::LeaderChanged);

/// The limits of one request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Units of work. [`kattu_kv::cost`]
    pub work_max: u64,
    /// Bytes of memory that the pairs of one answer may take: keys, values, and the overhead of each pair.
    pub answer_bytes_max: usize,
}

impl Default for RequestLimits {
    /// A range of four million keys, a delete of nearly three million, and the default size of one answer.
    fn default() -> RequestLimits {
        RequestLimits { work_max: 8 << 20, answer_bytes_max: 64 << 20 }
    }
}

/// The replicated tables and their applied index.
///
/// Tasks run in the order in which they come, one after the other. A long one runs in slices, and no other task begins
/// before it ends: so no read sees half of it, and a snapshot holds all of it or nothing. Only tasks that read no keys
/// overtake it (a status, the cost of a request).
#[derive(Clone, Debug)]
pub struct Keeper {
    store: Store,
    tables: Tables,
    limits: RequestLimits,
    /// Tasks that wait their turn.
    queue: VecDeque<KeeperTask>,
    /// The first tasks of the queue whose keys the store has looked for.
    near: usize,
    /// The task that has begun and is not done; the tables are in the middle of it.
    under_way: Option<Box<UnderWay>>,
    /// The same of a bundle; then no other task is under way.
    bundled: Option<Box<Bundled>>,
    /// The member that owns these tables; 0 for none in particular.
    own: NodeId,
    /// This member's report at the newest mark, until the log holds it. Not replicated.
    owed: Option<Report>,
    /// A snapshot whose tables are being read.
    installing: Option<SnapshotMeta>,
    /// Tasks that wait for them.
    held: VecDeque<KeeperTask>,
}

/// A task in progress.
#[derive(Clone, Debug)]
struct UnderWay {
    work: Work,
    job: Job,
}

/// A bundle of which some commands are applied.
#[derive(Clone, Debug)]
struct Bundled {
    entry: Entry,
    /// Bytes of the commands that are applied.
    done: usize,
    /// The place of the next command.
    place: u32,
    /// The clients that wait for the others, by their places.
    tickets: Peekable<vec::IntoIter<(u32, Ticket)>>,
    /// Answers to those before: an answer is given at an index at which it holds.
    answers: Vec<(Ticket, Outcome)>,
    term: Term,
}

#[derive(Clone, Debug)]
enum Job {
    Apply {
        index: LogIndex,
        waits: Waits,
        /// Where its answer is kept, if it is a command in a session.
        kept_at: Option<SessionHeader>,
        /// Statistics of the store before it.
        stats: Stats,
    },
    Read {
        ticket: Ticket,
        query: kv::Query,
        term: Term,
    },
}

/// The client that waits for an entry, if any.
#[derive(Clone, Copy, Debug)]
struct Waits {
    ticket: Option<Ticket>,
    term: Term,
    /// [`Reply::strong`]
    strong: u64,
}

/// The result of applying an entry so far.
enum Applied {
    /// With what a command in a session tells beside its answer. [`Reply::strong`]
    Done(Option<ReplyBody>, u64),
    /// It takes long.
    Begun(Work, Option<SessionHeader>),
    /// It was executed before, as a command in a session, and its answer was too large to be kept.
    AnswerGone,
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
            near: 0,
            under_way: None,
            bundled: None,
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

    /// Sets the limits for requests that enter here.
    pub fn limit(&mut self, limits: RequestLimits) {
        self.limits = limits;
    }

    /// The same keeper with this member as its owner: it refuses requests that an alarm about the member forbids, and
    /// keeps the report that it owes.
    #[must_use]
    pub fn of_member(mut self, own: NodeId) -> Keeper {
        self.own = own;
        self
    }

    /// These tables as the start of another cluster, with these members: keys and values stay, alarms and digests go.
    /// The store continues at a revision that is `raise_by` higher, without history and without sessions; with 0 both stay
    /// unchanged.
    #[must_use]
    pub fn reborn(self, members: Vec<MemberInfo>, raise_by: u64) -> Keeper {
        let Keeper { mut store, tables, .. } = self;
        if raise_by != 0 {
            store.raise_revision(raise_by);
        }
        let applied = tables.applied.max(LogIndex(1));
        let level = tables.level;
        // Clients may have had later answers than those kept here: their sessions must not go on.
        let sessions = if raise_by == 0 { tables.sessions } else { Sessions::default() };
        let members = Table::new(members);
        Keeper::of(store, Tables { members, applied, level, sessions, ..Tables::default() })
    }

    /// All tables and the applied index: the content of a snapshot. A new table belongs in here.
    pub(crate) fn tables(&self) -> (&Store, &Tables) {
        let Keeper { store, tables, .. } = self;
        (store, tables)
    }

    /// Accepts one task: a task that must not wait is done at once, the others wait their turn ([`Keeper::step`]).
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

    /// Continues the task in progress, or begins the next one: at most one, and within the allowance. Subtracts the
    /// units used from the allowance and adds them to [`KeeperEffects::units`]. Returns whether there is more to do.
    ///
    /// # Panics
    /// If a committed command is malformed or out of order: a stopped member is better than a divergent one.
    pub fn step(&mut self, allowance: &mut i64, effects: &mut KeeperEffects) -> bool {
        let before = *allowance;
        if let Some(under_way) = self.under_way.take() {
            self.go_on(under_way, allowance, effects);
        } else if let Some(bundled) = self.bundled.take() {
            self.apply_on(*bundled, allowance, effects);
        } else if let Some(task) = self.next_task() {
            if self.queue.is_empty() {
                self.queue.shrink_to(TASKS_KEPT); // at a start, the whole log waited here
            }
            if self.installing.is_some() && self.must_wait(&task) {
                self.held.push_back(task);
            } else {
                self.begin(task, allowance, effects);
            }
        }
        effects.units += before.saturating_sub(*allowance).unsigned_abs();
        self.is_busy()
    }

    fn next_task(&mut self) -> Option<KeeperTask> {
        if self.near == 0 {
            self.bring_near();
        }
        self.near = self.near.saturating_sub(1);
        self.queue.pop_front()
    }

    /// Lets the store look for the keys of the puts that come next, all at once.
    fn bring_near(&mut self) {
        let mut keys = [&[][..]; GROUP_MAX];
        let mut puts = 0;
        for task in self.queue.iter().take(GROUP_MAX) {
            let KeeperTask::Apply { entry, .. } = task else { break };
            let Some(put) = entry.payload().and_then(put_in) else { break };
            keys[puts] = put.key;
            puts += 1;
        }
        if puts > 1 {
            self.store.bring_near(&keys[..puts]);
        }
        self.near = puts;
    }

    /// Whether [`Keeper::step`] has work to do.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_in_the_middle() || !self.queue.is_empty()
    }

    /// Whether a task has begun and is not done: the tables match no index.
    #[must_use]
    pub fn is_in_the_middle(&self) -> bool {
        self.under_way.is_some() || self.bundled.is_some()
    }

    /// Tasks that wait their turn, or for the tables of a snapshot.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    /// Does everything that can be done.
    ///
    /// # Panics
    /// As [`Keeper::step`].
    pub fn finish(&mut self, effects: &mut KeeperEffects) {
        while self.step(&mut i64::MAX.clone(), effects) {}
    }

    /// Runs all waiting tasks and this one in one go: for a caller with nothing else to do meanwhile.
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
            KeeperTask::Apply { entry, tickets, term } => {
                *allowance = allowance.saturating_sub_unsigned((entry.len() / 1024) as u64);
                let (id, applied) = (entry.id(), self.tables.applied);
                assert!(id.index == applied.next(), "entry {id} after applied {}", applied.0);
                self.tables.sessions.advance(Duration::from_millis(entry.head.stamp.0));
                if is_of_several(&entry) {
                    let each = match tickets {
                        Tickets::Each(each) => each,
                        Tickets::One(_) | Tickets::None => Vec::new(),
                    };
                    let tickets = each.into_iter().peekable();
                    return self.apply_on(
                        Bundled { entry, done: 0, place: 0, tickets, answers: Vec::new(), term },
                        allowance,
                        effects,
                    );
                }
                let ticket = tickets.iter().next();
                let waits = Waits { ticket, term, strong: 0 };
                match self.apply(&entry, waits, allowance, effects) {
                    Applied::Refused => {
                        effects.refused_for_work += 1;
                        let waits = Waits { ticket: None, ..waits };
                        self.conclude(entry.id().index, true, waits, None, effects);
                        // Members that are not divergent may have carried it out.
                        let outcome = match self.is_corrupt() {
                            true => DONE_BY_OTHERS,
                            false => Outcome::Refused(Refusal::TooMuchWork),
                        };
                        effects.reply.extend(ticket.map(|ticket| (ticket, outcome)));
                    }
                    Applied::Done(body, strong) => {
                        if entry.head.kind == EntryKind::Config {
                            effects.members = Some(self.members());
                        }
                        let is_of_client = ticket.is_some() && is_client_data(whole(&entry));
                        let waits = Waits { strong, ..waits };
                        self.conclude(entry.id().index, is_of_client, waits, body, effects);
                    }
                    Applied::AnswerGone => {
                        self.conclude(entry.id().index, true, Waits { ticket: None, ..waits }, None, effects);
                        let outcome = Outcome::Unknown(Doubt::AnswerTooLarge);
                        effects.reply.extend(ticket.map(|ticket| (ticket, outcome)));
                    }
                    Applied::Begun(work, kept_at) => {
                        let (index, stats) = (entry.id().index, self.store.stats());
                        let job = Job::Apply { index, waits, kept_at, stats };
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
            KeeperTask::LookUp { ticket, keys, term, needs } => {
                self.check_reaches(needs);
                if self.is_corrupt() {
                    return effects.reply.push((ticket, Outcome::Refused(Refusal::Corrupt)));
                }
                let others = (keys.len() as u64).saturating_sub(1);
                *allowance = allowance.saturating_sub_unsigned(PUT_UNITS * others);
                done(effects, ticket, term, ReplyBody::Found(self.store.look_up(keys)));
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
                effects.snapshot = Some((*meta, self.pin()));
            }
            KeeperTask::Install(meta) => {
                let (last, applied) = (meta.last, self.tables.applied);
                assert!(applied < last.index, "a snapshot of {last} for tables of {}", applied.0);
                self.installing = Some((*meta).clone());
                effects.install = Some(*meta);
            }
            KeeperTask::Standing { session, term } => {
                let last = self.tables.sessions.last_of(session);
                effects.standings.push(Standing { session, term, last });
            }
            KeeperTask::Status { .. } | KeeperTask::Weigh { .. } => self.take_in(task, effects),
        }
    }

    /// Continues a long task until it is done or the allowance is used up.
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
        if let Job::Apply { kept_at: Some(SessionHeader { id, number, .. }), waits, .. } = &mut under_way.job
        {
            waits.strong = self.tables.sessions.keep(id.number, *number, &result, lacks_pairs);
        }
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

    /// Ends an entry that has had its whole effect: state and applied index move together.
    fn conclude(
        &mut self,
        index: LogIndex,
        is_of_client: bool,
        waits: Waits,
        body: Option<ReplyBody>,
        effects: &mut KeeperEffects,
    ) {
        self.tables.applied = index;
        effects.applied = Some(index);
        if let (Some(ticket), Some(body)) = (waits.ticket, body) {
            let outcome = match is_of_client && self.is_corrupt() {
                true => DONE_BY_OTHERS,
                false => Outcome::Done(Reply { term: waits.term, strong: waits.strong, body }),
            };
            effects.reply.push((ticket, outcome));
        }
    }

    /// Applies what is left of a bundle, or as much of it as the allowance lasts: each of its commands as if it had an entry of
    /// its own.
    fn apply_on(&mut self, mut bundled: Bundled, allowance: &mut i64, effects: &mut KeeperEffects) {
        let (is_corrupt, answered) = (self.is_corrupt(), effects.reply.len());
        let (id, bytes) = (bundled.entry.id(), whole(&bundled.entry));
        let mut parts = Parts::after(bytes, bundled.done);
        let mut group = [None; GROUP_MAX];
        while !parts.is_done() {
            let mut keys = [&[][..]; GROUP_MAX];
            let mut count = 0;
            for part in parts.by_ref().take(GROUP_MAX) {
                let part =
                    part.unwrap_or_else(|| panic!("committed entry {id} holds a bundle that cannot be read"));
                (keys[count], group[count]) = (part.put.key, Some(part));
                count += 1;
            }
            self.store.bring_near(&keys[..count]);
            for part in group[..count].iter().flatten() {
                *allowance = allowance.saturating_sub_unsigned(PUT_UNITS);
                let ticket =
                    bundled.tickets.next_if(|&(at, _)| at == bundled.place).map(|(_, ticket)| ticket);
                bundled.place += 1;
                let applied = self.apply_put(part.header, part.put, ticket.is_some(), allowance);
                let Some(ticket) = ticket else { continue };
                let outcome = match applied {
                    Applied::AnswerGone => Outcome::Unknown(Doubt::AnswerTooLarge),
                    Applied::Done(Some(body), strong) if !is_corrupt => {
                        Outcome::Done(Reply { term: bundled.term, strong, body })
                    }
                    _ => DONE_BY_OTHERS,
                };
                effects.reply.push((ticket, outcome));
            }
            if *allowance <= 0 && !parts.is_done() {
                bundled.done = bytes.len() - parts.left();
                bundled.answers.extend(effects.reply.drain(answered..));
                self.bundled = Some(Box::new(bundled));
                return;
            }
        }
        effects.reply.splice(answered..answered, bundled.answers);
        self.tables.applied = id.index;
        effects.applied = Some(id.index);
    }

    /// Applies a put, in a session if it has a header.
    fn apply_put(
        &mut self,
        header: Option<SessionHeader>,
        put: kv::PutRef<'_>,
        is_wanted: bool,
        allowance: &mut i64,
    ) -> Applied {
        let store = &mut self.store;
        let Some(SessionHeader { id, number, first_unacked }) = header else {
            let result = apply_put(store, put, allowance);
            return Applied::Done(is_wanted.then(|| kv_body(result)), 0);
        };
        let execute = || apply_put(store, put, allowance);
        match self.tables.sessions.once(id, number, first_unacked, execute) {
            Once::Executed { result, strong } => Applied::Done(is_wanted.then(|| kv_body(result)), strong),
            Once::Skipped(skipped) => self.not_executed(id, skipped),
        }
    }

    /// Checks the cost that a command would have now, whatever task is in progress. A command that may be proposed
    /// carries its budget from then on.
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

    /// Replaces these tables by those of the requested snapshot, as a whole; tasks that waited for them are next.
    /// Returns the old tables, which are best dropped elsewhere.
    ///
    /// # Panics
    /// If no snapshot was requested, or these are not its tables.
    #[must_use]
    pub fn replace(&mut self, tables: Keeper, effects: &mut KeeperEffects) -> Keeper {
        let meta = self.installing.take().expect("tables come only when a snapshot was asked for");
        let (last, applied) = (meta.last, tables.tables.applied);
        assert!(applied == last.index, "tables of index {} for a snapshot of {last}", applied.0);
        let mut queue = core::mem::take(&mut self.held);
        queue.append(&mut self.queue);
        // Only a read can be in progress: it begins anew, so that it sees one state.
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

    /// Whether a requested snapshot has not arrived yet.
    #[must_use]
    pub fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// Whether a task needs the tables that are being read.
    fn must_wait(&self, task: &KeeperTask) -> bool {
        match task {
            KeeperTask::Apply { .. }
            | KeeperTask::Standing { .. }
            | KeeperTask::Snapshot(_)
            | KeeperTask::Install(_) => true,
            KeeperTask::Read { needs, .. }
            | KeeperTask::LookUp { needs, .. }
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

    /// Frees a few compacted versions; for idle moments. No answer depends on it. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        // Nothing is forgotten during a change: it may have to be undone.
        !self.is_in_the_middle() && self.store.tidy(TIDY_CHANGES_MAX)
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

    /// Alarms, the owed report and the feature level.
    #[must_use]
    pub fn health(&self) -> Health {
        Health { alarms: self.tables.alarms.clone(), owed: self.owed, level: self.tables.level }
    }

    /// Whether an alarm reports this member as divergent. [fault-model ST13]
    fn is_corrupt(&self) -> bool {
        self.own != NodeId(0) && self.tables.alarms.is_corrupt(self.own)
    }

    /// The sessions of clients, for checkers and for the commands that list them.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.tables.sessions
    }

    /// The store, for checkers and quota.
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
        let body = match entry.head.kind {
            EntryKind::Noop => None,
            EntryKind::Config => Some(self.apply_configuration(entry)),
            EntryKind::Command => {
                let bytes = whole(entry);
                if let Some((header, bytes)) = SessionHeader::take(bytes) {
                    return self.apply_in_session(header, bytes, id, waits, allowance);
                }
                if let Some(put) = put_of_store(bytes) {
                    return self.apply_put(None, put, waits.ticket.is_some(), allowance);
                }
                match decoded(id, bytes) {
                    Command::Kv(command) => return self.apply_to_store(command, waits, allowance),
                    Command::Within { work_max, command } => {
                        // By the budget in the entry, never by this member's own limit: all members come to the same
                        // verdict.
                        if self.store.cost_of(&command) > work_max {
                            return Applied::Refused;
                        }
                        return self.apply_to_store(command, waits, allowance);
                    }
                    command => Some(self.apply_command(id.index, command, allowance, effects)),
                }
            }
        };
        Applied::Done(body, 0)
    }

    fn apply_to_store(&mut self, command: kv::Command, waits: Waits, allowance: &mut i64) -> Applied {
        match self.apply_small(&command, allowance) {
            Some(result) => Applied::Done(waits.ticket.map(|_| kv_body(result)), 0),
            None => {
                let wants = waits.ticket.map(|_| self.limits.answer_bytes_max);
                let work = Work::on_command(command, wants).that_looks_at(self.limits.work_max);
                Applied::Begun(work, None)
            }
        }
    }

    /// Applies a command that is small whatever the store holds.
    fn apply_small(&mut self, command: &kv::Command, allowance: &mut i64) -> Option<Result<Response, Error>> {
        match command {
            kv::Command::Put(put) => Some(apply_put(&mut self.store, put.as_ref(), allowance)),
            command => self.store.apply_small(command),
        }
    }

    /// Applies a command in a session, if it is its turn. Its answer is kept on every member, so none may depend on a waiting
    /// client or on this member's own limits.
    fn apply_in_session(
        &mut self,
        header: SessionHeader,
        bytes: &[u8],
        entry: EntryId,
        waits: Waits,
        allowance: &mut i64,
    ) -> Applied {
        let SessionHeader { id, number, first_unacked } = header;
        if let Some(put) = put_of_store(bytes) {
            return self.apply_put(Some(header), put, waits.ticket.is_some(), allowance);
        }
        match self.tables.sessions.judge(id, number, first_unacked) {
            Verdict::Execute => {}
            Verdict::Skip(skipped) => return self.not_executed(id, skipped),
        }
        let (work_max, command) = match decoded(entry, bytes) {
            Command::Kv(command) => (SESSION_WORK_MAX, command),
            Command::Within { work_max, command } => (work_max, command),
            command => panic!("committed entry {entry} holds {command:?} in a session"),
        };
        let result = if work_max < self.store.cost_of(&command) {
            Err(Error::TooMuchWork)
        } else if let Some(result) = self.apply_small(&command, allowance) {
            result
        } else {
            let work = Work::on_command(command, Some(SESSION_BYTES_MAX as usize));
            return Applied::Begun(work.that_looks_at(work_max), Some(header));
        };
        let strong = self.tables.sessions.keep(id.number, number, &result, false);
        Applied::Done(waits.ticket.map(|_| kv_body(result)), strong)
    }

    /// A command of a session that was executed before, or is not executed.
    fn not_executed(&self, id: SessionId, skipped: Skipped) -> Applied {
        match skipped {
            Skipped::Answered(None) => Applied::AnswerGone,
            Skipped::Answered(Some(result)) => {
                Applied::Done(Some(kv_body(result)), self.tables.sessions.strong(id.number))
            }
            Skipped::Refused(error) => Applied::Done(Some(ReplyBody::SessionError(error)), 0),
        }
    }

    fn apply_to_sessions(&mut self, at: LogIndex, command: SessionCommand, allowance: &mut i64) -> ReplyBody {
        *allowance = allowance.saturating_sub_unsigned(PUT_UNITS * command.named() as u64);
        let sessions = &mut self.tables.sessions;
        let idle = sessions.settings().idle;
        match command {
            SessionCommand::Register { secret, order } => {
                let id = SessionId { number: at.0, secret };
                match sessions.register(id, order) {
                    Ok(()) => ReplyBody::Registered { id, idle },
                    Err(error) => ReplyBody::SessionError(error),
                }
            }
            SessionCommand::KeepAlive(alive) => {
                let gone = |(id, first): (SessionId, u64)| (!sessions.keep_alive(id, first)).then_some(id);
                ReplyBody::Named { gone: alive.into_iter().filter_map(gone).collect(), idle }
            }
            SessionCommand::Close(ids) => {
                let gone = ids.into_iter().filter(|&id| !sessions.close(id)).collect();
                ReplyBody::Named { gone, idle }
            }
            SessionCommand::Expel(number) => {
                let named = SessionId { number, secret: 0 };
                let gone = if sessions.expel(number) { Vec::new() } else { Vec::from([named]) };
                ReplyBody::Named { gone, idle }
            }
            SessionCommand::Set(settings) => {
                sessions.set(settings);
                ReplyBody::SessionsSet
            }
        }
    }

    fn apply_command(
        &mut self,
        at: LogIndex,
        command: Command,
        allowance: &mut i64,
        effects: &mut KeeperEffects,
    ) -> ReplyBody {
        match command {
            Command::Kv(_) | Command::Within { .. } | Command::InSession { .. } | Command::Bundle(_) => {
                unreachable!("the store's commands go to the store")
            }
            Command::Session(command) => self.apply_to_sessions(at, command, allowance),
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

    /// Applies a configuration entry. An unreadable one stops this member. [fault-model F71]
    fn apply_configuration(&mut self, entry: &Entry) -> ReplyBody {
        let id = entry.id();
        let (membership, context) = Membership::decode(whole(entry))
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

    /// Records this member's digest at the mark `at`.
    fn note(&mut self, at: LogIndex, effects: &mut KeeperEffects) -> ReplyBody {
        self.tables.digests.mark(at);
        self.owed =
            Some(Report { member: self.own, at, digest: self.digest() }).filter(|_| self.own != NodeId(0));
        effects.health = Some(self.health());
        ReplyBody::Published
    }

    /// Compares a member's digest with those of the others; raises an alarm for each divergent member.
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
        // A change in progress is not visible.
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

/// Whether an entry holds several commands.
fn is_of_several(entry: &Entry) -> bool {
    entry.head.kind == EntryKind::Command && is_bundle(whole(entry))
}

/// The command that a committed entry holds.
fn decoded(id: EntryId, bytes: &[u8]) -> Command {
    Command::decode(bytes).unwrap_or_else(|_| {
        panic!(
            "committed entry {id} holds no command that this version knows: if other members run a newer version, run that one"
        )
    })
}

/// The payload of a committed entry. Apply gets whole entries only: a part means that this member has lost what its
/// group has committed, and going on without the entry would make the stores differ.
fn whole(entry: &Entry) -> &[u8] {
    let form = entry.body().form();
    entry.payload().unwrap_or_else(|| panic!("committed entry {} came to apply as {form:?}", entry.id()))
}

/// Whether a command's answer shows what clients have stored, which is wrong on a divergent member.
fn is_client_data(command: &[u8]) -> bool {
    is_of_session(command) || is_for_store(command)
}

/// Applies a put. What it keeps of a former value is work, too.
fn apply_put(store: &mut Store, put: kv::PutRef<'_>, allowance: &mut i64) -> Result<Response, Error> {
    *allowance = allowance.saturating_sub_unsigned((store.kept_by(put) / 1024) as u64);
    store.apply_put(put)
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
    effects.reply.push((ticket, Outcome::Done(Reply { term, strong: 0, body })));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_held_a_whole_log_keeps_little_room() {
        let (mut keeper, mut effects) = (Keeper::new(Vec::new()), KeeperEffects::default());
        for number in 0..10 * TASKS_KEPT as u64 {
            let ticket = Ticket(number);
            keeper.take_in(KeeperTask::Members { ticket, term: Term(1), needs: LogIndex(0) }, &mut effects);
        }
        assert!(10 * TASKS_KEPT <= keeper.queue.capacity());
        keeper.finish(&mut effects);
        assert_eq!(effects.reply.len(), 10 * TASKS_KEPT);
        assert!(keeper.queue.capacity() <= 2 * TASKS_KEPT, "{}", keeper.queue.capacity());
    }
}
