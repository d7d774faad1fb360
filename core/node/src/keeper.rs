//! The keeper: owner of the replicated tables, the half of a replica that applies.
//!
//! In:    tasks, in order: committed entries, reads that may be served now.
//! Out:   answers straight to clients, and how far it has come.
//!        Tables become a snapshot by being pinned, and a snapshot becomes the tables by taking their place as a whole.
//! Rule:  state and applied index move together [fault-model ST4]; apply depends on the log's bytes only [DT1]; a
//!        command that cannot be applied stops the member *before* it is marked applied [F71].
//! Knows nothing of: raft, terms (it passes the replica's on), who is waiting for what.

use crate::command::Command;
use crate::contract::{
    KeeperEffects, KeeperTask, MemberInfo, Members, Outcome, Reply, ReplyBody, Status, Ticket,
};
use crate::table::Table;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kattu_kv::api::{Error, Response};
use kattu_kv::store::Store;
use kattu_raft::{Entry, EntryKind, LogIndex, Membership, SnapshotMeta, Term};

/// Changes of compacted history freed in one idle moment: well under a millisecond.
const TIDY_CHANGES_MAX: usize = 1024;

/// The replicated tables and how far along the log they stand.
#[derive(Clone, Debug)]
pub struct Keeper {
    store: Store,
    members: Table,
    applied: LogIndex,
    /// A snapshot whose tables are on their way here.
    installing: Option<SnapshotMeta>,
    /// What waits for them.
    held: VecDeque<KeeperTask>,
}

impl Keeper {
    /// Empty tables of a cluster with these members.
    #[must_use]
    pub fn new(members: Vec<MemberInfo>) -> Keeper {
        Keeper::of(Store::new(), Table::new(members), LogIndex(0))
    }

    /// A keeper of these tables, right after the entry at `applied`.
    pub(crate) fn of(store: Store, members: Table, applied: LogIndex) -> Keeper {
        Keeper { store, members, applied, installing: None, held: VecDeque::new() }
    }

    /// All tables and the applied index: what a snapshot holds. A new table belongs in here.
    pub(crate) fn tables(&self) -> (&Store, &Table, LogIndex) {
        let Keeper { store, members, applied, installing: _, held: _ } = self;
        (store, members, *applied)
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
                let body = self.apply(&entry);
                effects.applied = Some(self.applied);
                if entry.head.kind == EntryKind::Config {
                    effects.members = Some(self.members());
                }
                if let (Some(ticket), Some(body)) = (ticket, body) {
                    done(effects, ticket, term, body);
                }
            }
            KeeperTask::Read { ticket, query, term, needs } => {
                self.check_reaches(needs);
                let body = kv_body(self.store.query(&query));
                done(effects, ticket, term, body);
            }
            KeeperTask::Members { ticket, term, needs } => {
                self.check_reaches(needs);
                done(effects, ticket, term, ReplyBody::Members(self.members.list()));
            }
            KeeperTask::Status { ticket, mut status } => {
                self.complete(&mut status);
                done(effects, ticket, status.term, ReplyBody::Status(*status));
            }
            KeeperTask::Snapshot(meta) => {
                let (last, applied) = (meta.last, self.applied);
                assert!(last.index == applied, "a snapshot of {last}, but {} is applied", applied.0);
                let (told, at) = (meta.membership_at, self.members.at);
                assert!(told == at, "a snapshot with the members of {}, but those of {} are here", told.0, at.0);
                effects.snapshot = Some((meta, self.pin()));
            }
            KeeperTask::Install(meta) => {
                let (last, applied) = (meta.last, self.applied);
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
        let (last, applied) = (meta.last, tables.applied);
        assert!(applied == last.index, "tables of index {} for a snapshot of {last}", applied.0);
        let held = core::mem::take(&mut self.held);
        let old = core::mem::replace(self, tables);
        effects.applied = Some(self.applied);
        effects.members = Some(self.members());
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
            KeeperTask::Read { needs, .. } | KeeperTask::Members { needs, .. } => self.applied < *needs,
            KeeperTask::Status { .. } => false,
        }
    }

    fn check_reaches(&self, needs: LogIndex) {
        let is_planted = planted!("read-served-before-apply") || planted!("session-read-behind-its-session");
        assert!(
            needs <= self.applied || is_planted,
            "a read of index {} at index {}",
            needs.0,
            self.applied.0
        );
    }

    /// Frees a little of what compaction left; for idle moments. No answer depends on it. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        self.store.tidy(TIDY_CHANGES_MAX)
    }

    /// Highest index applied.
    #[must_use]
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The table of members as of the applied index.
    #[must_use]
    pub fn members(&self) -> Members {
        self.members.members()
    }

    /// The store, for judges and quota.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn apply(&mut self, entry: &Entry) -> Option<ReplyBody> {
        let id = entry.id();
        assert!(id.index == self.applied.next(), "entry {id} after applied {}", self.applied.0);
        let body = match entry.head.kind {
            EntryKind::Noop => None,
            EntryKind::Config => Some(self.apply_configuration(entry)),
            EntryKind::Command => {
                let command = Command::decode(entry.payload())
                    .unwrap_or_else(|_| panic!("committed entry {id} holds no command this version knows"));
                Some(self.apply_command(command))
            }
        };
        self.applied = id.index;
        body
    }

    fn apply_command(&mut self, command: Command) -> ReplyBody {
        match command {
            Command::Kv(command) => kv_body(self.store.apply(&command)),
            Command::Publish(publish) => {
                self.members.publish(publish);
                ReplyBody::Published
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
        if let Err(stranger) = self.members.follow(id.index, &membership, change) {
            panic!("committed entry {id} makes {:x} a member, which it cannot be", stranger.0);
        }
        ReplyBody::Changed(self.members.list())
    }

    fn complete(&self, status: &mut Status) {
        let stats = self.store.stats();
        status.revision = self.store.revision();
        status.compact_revision = self.store.compact_revision();
        status.applied = self.applied;
        status.keys = stats.keys;
        status.store_bytes = stats.bytes;
        status.store_bytes_in_use = stats.bytes_in_use;
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
