//! The keeper: owner of the replicated tables, the half of a replica that applies.
//!
//! In:    tasks, in order: committed entries, reads that may be served now.
//! Out:   answers straight to clients, and how far it has come.
//! Rule:  state and applied index move together [fault-model ST4]; apply depends on the log's bytes only [DT1]; a
//!        command that cannot be applied stops the member *before* it is marked applied [F71].
//! Knows nothing of: raft, terms (it passes the replica's on), who is waiting for what.

use crate::command::{Command, Publish};
use crate::contract::{KeeperEffects, KeeperTask, MemberInfo, Outcome, Reply, ReplyBody, Status, Ticket};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use kattu_kv::api::{Error, Response};
use kattu_kv::store::Store;
use kattu_raft::{Entry, EntryKind, LogIndex, NodeId, Term};

/// Changes of compacted history freed in one idle moment: well under a millisecond.
const TIDY_CHANGES_MAX: usize = 1024;

/// The replicated tables and how far along the log they stand.
#[derive(Clone, Debug)]
pub struct Keeper {
    store: Store,
    members: BTreeMap<NodeId, MemberInfo>,
    applied: LogIndex,
}

impl Keeper {
    /// Empty tables of a cluster with these members.
    #[must_use]
    pub fn new(members: Vec<MemberInfo>) -> Keeper {
        let members = members.into_iter().map(|member| (member.id, member)).collect();
        Keeper { store: Store::new(), members, applied: LogIndex(0) }
    }

    /// A keeper of these tables, right after the entry at `applied`.
    pub(crate) fn of(store: Store, members: BTreeMap<NodeId, MemberInfo>, applied: LogIndex) -> Keeper {
        Keeper { store, members, applied }
    }

    /// All tables and the applied index: what a snapshot holds. A new table belongs in here.
    pub(crate) fn tables(&self) -> (&Store, &BTreeMap<NodeId, MemberInfo>, LogIndex) {
        let Keeper { store, members, applied } = self;
        (store, members, *applied)
    }

    /// Carries out one task.
    ///
    /// # Panics
    /// If a committed command is malformed or out of order: stopping beats diverging.
    pub fn handle(&mut self, task: KeeperTask, effects: &mut KeeperEffects) {
        match task {
            KeeperTask::Apply { entry, ticket, term } => {
                let body = self.apply(&entry);
                effects.applied = Some(self.applied);
                if let (Some(ticket), Some(body)) = (ticket, body) {
                    done(effects, ticket, term, body);
                }
            }
            KeeperTask::Read { ticket, query, term } => {
                let body = kv_body(self.store.query(&query));
                done(effects, ticket, term, body);
            }
            KeeperTask::Members { ticket, term } => {
                let members = self.members.values().cloned().collect();
                done(effects, ticket, term, ReplyBody::Members(members));
            }
            KeeperTask::Status { ticket, mut status } => {
                self.complete(&mut status);
                done(effects, ticket, status.term, ReplyBody::Status(*status));
            }
        }
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

    /// The store, for judges and quota.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn apply(&mut self, entry: &Entry) -> Option<ReplyBody> {
        let id = entry.id();
        assert!(id.index == self.applied.next(), "entry {id} after applied {}", self.applied.0);
        let body = match entry.head.kind {
            EntryKind::Noop | EntryKind::Config => None,
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
                self.publish(publish);
                ReplyBody::Published
            }
        }
    }

    /// A publication of somebody who is no member (any more) changes nothing.
    fn publish(&mut self, publish: Publish) {
        if let Some(member) = self.members.get_mut(&publish.id) {
            member.name = publish.name;
            member.client_urls = publish.client_urls;
        }
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
