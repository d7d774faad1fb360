//! Leading: a leader at work: its own state, and what it reads of its peer's state to serve the other members.
//!
//! In:    a peer that leads.
//! Out:   its [`Leader`] to write, and a [`View`] to read.
//! Rules:
//!   1. [`Raft::leading`] asks once whether the peer leads. What only a leader does is a method of [`Leading`], so it
//!      cannot be called in another role.
//!   2. A leader at work changes no log, no commit index and no configuration: whatever does is a method of [`Raft`],
//!      after which the peer may not lead any more, and has to be asked again.
//!
//! Knows nothing of: messages, what a leader does.

use crate::config::Config;
use crate::contract::Fetch;
use crate::log::Log;
use crate::marks::Marks;
use crate::membership::Membership;
use crate::message::{Envelope, Message};
use crate::progress::Progress;
use crate::raft::Raft;
use crate::role::{Leader, Role};
use crate::snapshot::SnapshotMeta;
use crate::types::{NodeId, Term};
use alloc::vec::Vec;

/// The state of a leader that it reads while it writes to its peers' progress.
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) term: Term,
    pub(crate) log: &'a Log,
    pub(crate) marks: &'a Marks,
    pub(crate) membership: &'a Membership,
    pub(crate) snapshot: Option<&'a SnapshotMeta>,
}

/// A leader at work.
pub(crate) struct Leading<'a> {
    /// Its state.
    pub(crate) leader: &'a mut Leader,
    /// What it reads.
    pub(crate) view: View<'a>,
    /// Reads of the log under way.
    pub(crate) fetches: &'a mut Vec<Fetch>,
}

impl View<'_> {
    /// A message of this leader.
    pub(crate) fn envelope(&self, to: NodeId, message: Message) -> Envelope {
        let Config { group, id, incarnation, .. } = *self.config;
        Envelope { group, from: id, incarnation, to, term: self.term, message }
    }
}

impl Leading<'_> {
    /// The largest value that a quorum of voters has reached: `own` of this leader, `of_peer` of the others.
    pub(crate) fn reached<T: Ord + Copy>(&self, own: T, of_peer: impl Fn(&Progress) -> T) -> Option<T> {
        let me = self.view.config.id;
        self.view.membership.reached(|voter| self.leader.of_voter(me, voter, own, &of_peer))
    }
}

impl Raft {
    /// This peer at work as its term's leader; `None` in other roles.
    pub(crate) fn leading(&mut self) -> Option<Leading<'_>> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let view = View {
            config: &self.config,
            term: self.term,
            log: &self.log,
            marks: &self.marks,
            membership: self.configurations.newest(),
            snapshot: self.snapshot.as_ref(),
        };
        Some(Leading { leader, view, fetches: &mut self.fetches })
    }
}
