//! The keeper: owner of the replicated tables, the half of a replica that applies.
//!
//! In:    tasks, in order: committed entries, reads that may be served now.
//! Out:   answers straight to clients, and how far it has come.
//!        Tables become a snapshot by being pinned, and a snapshot becomes the tables by taking their place as a whole.
//! Rule:  state and applied index move together [fault-model ST4]; apply depends on the log's bytes only [DT1]; a
//!        command that cannot be applied stops the member *before* it is marked applied [F71].
//! Knows nothing of: raft, terms (it passes the replica's on), who is waiting for what.

use crate::alarms::{Alarm, AlarmChange};
use crate::command::{Command, is_for_store};
use crate::compare::Health;
use crate::contract::{
    Doubt, KeeperEffects, KeeperTask, MemberInfo, Members, Outcome, Refusal, Reply, ReplyBody, Status, Ticket,
};
use crate::digests::Report;
use crate::frozen::Tables;
use crate::table::Table;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kattu_kv::api::{Error, Response};
use kattu_kv::store::Store;
use kattu_raft::{Entry, EntryKind, LogIndex, Membership, NodeId, SnapshotMeta, Term};

/// Changes of compacted history freed in one idle moment: well under a millisecond.
const TIDY_CHANGES_MAX: usize = 512;

/// The replicated tables and how far along the log they stand.
#[derive(Clone, Debug)]
pub struct Keeper {
    store: Store,
    tables: Tables,
    /// Whose tables these are; 0 for nobody's in particular.
    own: NodeId,
    /// What this member has made of the log at the newest mark, until the log holds its report. Not replicated.
    owed: Option<Report>,
    /// A snapshot whose tables are on their way here.
    installing: Option<SnapshotMeta>,
    /// What waits for them.
    held: VecDeque<KeeperTask>,
}

impl Keeper {
    /// Empty tables of a cluster with these members.
    #[must_use]
    pub fn new(members: Vec<MemberInfo>) -> Keeper {
        Keeper::of(Store::new(), Tables { members: Table::new(members), ..Tables::default() })
    }

    /// A keeper of these tables.
    pub(crate) fn of(store: Store, tables: Tables) -> Keeper {
        Keeper { store, tables, own: NodeId(0), owed: None, installing: None, held: VecDeque::new() }
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
        if raise_by != 0 && !planted!("rebuilt-at-the-old-revision") {
            store.raise_revision(raise_by);
        }
        let applied = tables.applied.max(LogIndex(1));
        Keeper::of(store, Tables { members: Table::new(members), applied, ..Tables::default() })
    }

    /// All tables and the applied index: what a snapshot holds. A new table belongs in here.
    pub(crate) fn tables(&self) -> (&Store, &Tables) {
        let Keeper { store, tables, own: _, owed: _, installing: _, held: _ } = self;
        (store, tables)
    }

    /// Carries out one task.
    ///
    /// # Panics
    /// If a committed command is malformed or out of order: stopping beats diverging.
    pub fn handle(&mut self, task: KeeperTask, effects: &mut KeeperEffects) {
        if self.installing.is_some() && self.must_wait(&task) {
            return self.held.push_back(task);
        }
        match task {
            KeeperTask::Apply { entry, ticket, term } => {
                let body = self.apply(&entry, effects);
                effects.applied = Some(self.tables.applied);
                if entry.head.kind == EntryKind::Config {
                    effects.members = Some(self.members());
                }
                if let (Some(ticket), Some(body)) = (ticket, body) {
                    if is_for_store(entry.payload()) && self.is_corrupt() {
                        // It is done, and what it came to is known to those who are right.
                        effects.reply.push((ticket, Outcome::Unknown(Doubt::LeaderChanged)));
                    } else {
                        done(effects, ticket, term, body);
                    }
                }
            }
            KeeperTask::Read { ticket, query, term, needs } => {
                self.check_reaches(needs);
                if self.is_corrupt() {
                    return effects.reply.push((ticket, Outcome::Refused(Refusal::Corrupt)));
                }
                let body = kv_body(self.store.query(&query));
                done(effects, ticket, term, body);
            }
            KeeperTask::Members { ticket, term, needs } => {
                self.check_reaches(needs);
                done(effects, ticket, term, ReplyBody::Members(self.members()));
            }
            KeeperTask::Pin { ticket, term, needs } => {
                self.check_reaches(needs);
                done(effects, ticket, term, ReplyBody::Pinned(Box::new(self.pin())));
            }
            KeeperTask::Status { ticket, mut status } => {
                self.complete(&mut status);
                done(effects, ticket, status.term, ReplyBody::Status(status));
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
        }
    }

    /// The tables of the snapshot that was asked for take the place of these, whole, and what waited for them goes on.
    /// Gives back the old ones, which are best dropped elsewhere.
    ///
    /// # Panics
    /// If no snapshot was asked for, or these are not its tables.
    #[must_use]
    pub fn replace(&mut self, tables: Keeper, effects: &mut KeeperEffects) -> Keeper {
        let meta = self.installing.take().expect("tables come only when a snapshot was asked for");
        let (last, applied) = (meta.last, tables.tables.applied);
        assert!(applied == last.index, "tables of index {} for a snapshot of {last}", applied.0);
        let held = core::mem::take(&mut self.held);
        let own = self.own;
        let old = core::mem::replace(self, tables.of_member(own));
        effects.applied = Some(self.tables.applied);
        effects.members = Some(self.members());
        effects.health = Some(self.health());
        for task in held {
            self.handle(task, effects);
        }
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
            KeeperTask::Status { .. } => false,
        }
    }

    fn check_reaches(&self, needs: LogIndex) {
        let is_planted = planted!("read-served-before-apply", "session-read-behind-its-session");
        assert!(
            needs <= self.tables.applied || is_planted,
            "a read of index {} at index {}",
            needs.0,
            self.tables.applied.0
        );
    }

    /// Frees a little of what compaction left; for idle moments. No answer depends on it. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        self.store.tidy(TIDY_CHANGES_MAX)
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
        Health { alarms: self.tables.alarms.clone(), owed: self.owed }
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

    fn apply(&mut self, entry: &Entry, effects: &mut KeeperEffects) -> Option<ReplyBody> {
        let id = entry.id();
        let applied = self.tables.applied;
        assert!(id.index == applied.next(), "entry {id} after applied {}", applied.0);
        let body = match entry.head.kind {
            EntryKind::Noop => None,
            EntryKind::Config => Some(self.apply_configuration(entry)),
            EntryKind::Command => {
                let command = Command::decode(entry.payload())
                    .unwrap_or_else(|_| panic!("committed entry {id} holds no command this version knows"));
                Some(self.apply_command(id.index, command, effects))
            }
        };
        self.tables.applied = id.index;
        body
    }

    fn apply_command(&mut self, at: LogIndex, command: Command, effects: &mut KeeperEffects) -> ReplyBody {
        match command {
            Command::Kv(command) => kv_body(self.store.apply(&command)),
            Command::Publish(publish) => {
                if planted!("one-member-applies-publications-in-its-own-way") && self.is_last_member() {
                    let name = publish.name.to_uppercase();
                    self.tables.members.publish(crate::command::Publish { name, ..publish });
                    return ReplyBody::Published;
                }
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
        if let Err(stranger) = self.tables.members.follow(id.index, &membership, change) {
            panic!("committed entry {id} makes {:x} a member, which it cannot be", stranger.0);
        }
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
        for odd in self.tables.digests.report(report, &self.tables.members.list) {
            self.tables.alarms.change(AlarmChange::Raise(Alarm::corrupt(odd)));
            effects.health = Some(self.health());
        }
        ReplyBody::Published
    }

    /// The member that the planted bug is about.
    fn is_last_member(&self) -> bool {
        self.tables.members.list.keys().last() == Some(&self.own)
    }

    fn complete(&self, status: &mut Status) {
        let stats = self.store.stats();
        status.revision = self.store.revision();
        status.compact_revision = self.store.compact_revision();
        status.applied = self.tables.applied;
        status.alarms = self.tables.alarms.clone();
        *status.compared = self.tables.digests.compared();
        status.keys = stats.keys;
        status.store_bytes = stats.bytes;
        status.store_bytes_in_use = stats.bytes_in_use;
        status.store_forgets = stats.forgets;
    }
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
