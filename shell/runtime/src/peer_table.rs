//! The peer table of this process: what [`kattu_member::peer_table`] decides, carried out.
//!
//! In:    calls from connections, from the links and from the driver.
//! Out:   wake-ups for links, diallers and the questions about strangers; the files with the voters' directories and the known
//!        members; lines for the operator.
//! Rule:  a file that cannot be written is reported, and written again later; a sync that fails ends the process. [fault-model ST3]
//! Knows nothing of: frames, sockets, the rules of the table.

use crate::disk::sync_failed;
use crate::report;
use kattu_member::peer_address::PeerAddress;
use kattu_member::peer_table::{Note, Output, Own, PeerTable as Table};
use kattu_node::contract::Members;
use kattu_raft::{Incarnation, NodeId};
use kattu_tls::ServerTls;
use kattu_wal::{Incarnations, KnownMembers, PeerUrls};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The table of this process, and the tasks that wait for it.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    /// This member.
    pub(crate) id: NodeId,
    /// TLS settings for dialling other members, where TLS is spoken.
    pub(crate) tls: Option<Arc<ServerTls>>,
    table: RefCell<Table>,
    /// The voters' directories on the disk.
    lives: RefCell<Option<Incarnations>>,
    /// The known members on the disk.
    known: RefCell<Option<KnownMembers>>,
    /// Members' addresses may have changed since the links looked.
    places_changed: Cell<bool>,
    proofs_changed: Notify,
    stranger_came: Notify,
}

impl PeerTable {
    /// A table of this member that knows the members that others have named, when this one joined.
    pub(crate) fn new(own: Own, found: PeerUrls, tls: Option<Arc<ServerTls>>) -> PeerTable {
        let id = own.id;
        PeerTable { id, tls, table: RefCell::new(Table::new(own, found)), ..PeerTable::default() }
    }

    /// Takes over what was recorded of other members in earlier runs.
    pub(crate) fn recall(&self, lives: Incarnations, known: KnownMembers) {
        self.with(|table| {
            table.recall(lives.all());
            if let Some(known) = known.all() {
                table.recall_members(known.clone());
            }
        });
        *self.lives.borrow_mut() = Some(lives);
        *self.known.borrow_mut() = Some(known);
    }

    /// Lets the table decide, and carries out what follows.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.borrow_mut();
        let decided = decide(&mut table);
        let output = table.take_output();
        drop(table);
        self.carry_out(output);
        decided
    }

    /// Asks the table.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&Table) -> T) -> T {
        question(&self.table.borrow())
    }

    fn carry_out(&self, output: Output) {
        let Output { places_changed, stranger_came, proofs_changed, remember, note_members, notes } = output;
        if places_changed {
            self.places_changed.set(true);
        }
        if stranger_came {
            self.stranger_came.notify_one();
        }
        if proofs_changed {
            self.proofs_changed.notify_waiters();
        }
        if let Some((voter, life)) = remember {
            self.remember(voter, life);
        }
        if let Some(known) = note_members {
            self.note_members(known);
        }
        for note in notes {
            let Note::SmallerQuota { of, bytes, own } = note;
            report::info(format_args!(
                "member {:x} has a quota of {bytes} bytes, this one of {own}: the smallest quota of any member applies",
                of.0
            ));
        }
    }

    fn remember(&self, voter: NodeId, life: Incarnation) {
        let mut lives = self.lives.borrow_mut();
        let Some(lives) = &mut *lives else { return };
        match lives.meet(voter, life) {
            Ok(()) => self.table.borrow_mut().remembered(voter),
            Err(error) if error.is_failed_sync() => sync_failed(&error),
            Err(error) => report::warn(format_args!(
                "cannot record the data directory of member {:x}: {error}; after a restart this member may admit it with \
                 another one, which lacks its votes and acknowledgements",
                voter.0
            )),
        }
    }

    fn note_members(&self, members: PeerUrls) {
        let mut known = self.known.borrow_mut();
        let Some(known) = &mut *known else { return };
        match known.set(members.clone()) {
            Ok(()) => self.table.borrow_mut().noted(members),
            Err(error) if error.is_failed_sync() => sync_failed(&error),
            Err(error) => report::warn(format_args!(
                "cannot record the members of the cluster: {error}; after a restart this member may have to be told of the \
                 others again before it admits them"
            )),
        }
    }

    /// The table of members has changed.
    pub(crate) fn follow(&self, members: Members) {
        self.with(|table| table.follow(members));
    }

    /// The addresses of all other members.
    pub(crate) fn places(&self) -> BTreeMap<NodeId, Vec<PeerAddress>> {
        self.ask(Table::places)
    }

    /// Whether members' addresses may have changed since the last call.
    pub(crate) fn take_places_changed(&self) -> bool {
        self.places_changed.replace(false)
    }

    /// Whether this member knows, by its table or from a peer, that it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.ask(Table::is_removed)
    }

    /// Resolves when challenges, secrets or arrivals have changed since the call.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.proofs_changed.notified()
    }

    /// Resolves when a caller has come that is not known here.
    pub(crate) async fn stranger(&self) {
        self.stranger_came.notified().await;
    }
}
