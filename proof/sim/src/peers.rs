//! Peers: what each member knows of the others, and what is written down of them in its directory. [shell/member `peer_table`]
//!
//! The directory of an incarnation keeps it over restarts, as the files `lives` and `members` do in production; a new directory
//! begins with nothing.
//! Knows nothing of: connections, frames.

use crate::net::{Net, id_of};
use crate::operator::is_host_of;
use crate::paths::{Around, LANES};
use kattu_member::join::Vouching;
use kattu_member::pauses;
use kattu_member::peer_table::{Output, PeerTable, PeerUrls};
use kattu_node::contract::Members;
use kattu_raft::{Duration, Incarnation, LinkEnd, NodeId, Timing};
use std::collections::BTreeMap;

/// What is written down of other members in the directory of this incarnation.
#[derive(Debug, Default)]
struct Book {
    of: Incarnation,
    lives: BTreeMap<NodeId, Incarnation>,
    members: Option<PeerUrls>,
}

/// What a member knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) table: PeerTable,
    pub(crate) vouching: Vouching,
    /// No question about strangers before this.
    pub(crate) ask_again_at: u64,
    /// Current run of its process; 0 while it is down.
    pub(crate) run: u32,
    /// Its longest pause between two attempts to reach another one.
    pub(crate) pause_max: Duration,
    /// Its machine vanished without a word, so that no other member was told.
    pub(crate) silent: bool,
    /// Members that it dials: a bit each.
    linked: u32,
    /// Members that were let in by this run: a bit each.
    pub(crate) met: u32,
    /// What is written down of others in its directory.
    book: Book,
}

/// The members of so many that a table has an address of, which leads to them: a bit each.
fn linked_by(table: &PeerTable, members: usize) -> u32 {
    let places = table.places();
    let is_reached = |peer: &usize| {
        let addresses = places.get(&id_of(*peer));
        addresses.is_some_and(|all| all.iter().any(|address| is_host_of(*peer, &address.host)))
    };
    (0..members).filter(is_reached).fold(0, |mask, peer| mask | 1 << peer)
}

impl Net {
    /// Whether a member keeps connections to another one.
    pub(crate) fn links(&self, from: usize, to: usize) -> bool {
        self.peers[from].table.is_linked(id_of(to))
    }

    /// The applied table of members has changed.
    pub(crate) fn table(&mut self, around: &mut Around<'_>, member: usize, members: &Members) {
        self.peers[member].table.follow(members.clone());
        self.carry_out(around, member);
    }

    /// Another timing is in force at a member.
    pub(crate) fn go_by(&mut self, member: usize, timing: Timing) {
        self.peers[member].pause_max = pauses::pause_max(timing.election_timeout);
    }

    /// Carries out what a peer table has decided: writes down directories, and dials members that are new. What is open to a
    /// member that left stays open until it ends. Returns whether a stranger came.
    pub(crate) fn carry_out(&mut self, around: &mut Around<'_>, member: usize) -> bool {
        let all = self.peers.len();
        let Peers { table, book, linked, .. } = &mut self.peers[member];
        let Output { places_changed, stranger_came, remember, note_members, .. } = table.take_output();
        if let Some((voter, life)) = remember {
            book.lives.insert(voter, life);
            table.remembered(voter);
        }
        if let Some(members) = note_members {
            book.members = Some(members.clone());
            table.noted(members);
        }
        if places_changed {
            let now = linked_by(table, all);
            let new = now & !std::mem::replace(linked, now);
            for peer in (0..all).filter(|&peer| new >> peer & 1 == 1) {
                self.dial_first(around, member, peer);
            }
        }
        stranger_came
    }

    /// A member's process has started with this table: it dials all members that it knows, and those that still have a connection
    /// to its former run lose it.
    pub(crate) fn started(
        &mut self,
        around: &mut Around<'_>,
        (member, run): (usize, u32),
        mut table: PeerTable,
        members: Members,
    ) {
        let mut book = std::mem::take(&mut self.peers[member].book);
        let of = table.own().incarnation;
        if book.of != of {
            book = Book { of, ..Book::default() };
        }
        table.recall(book.lives.iter().map(|(&voter, &life)| (voter, life)));
        book.members.iter().for_each(|known| table.recall_members(known.clone()));
        table.follow(members);
        let before = &self.peers[member].table;
        let is_lost = |id: &NodeId| before.is_linked(*id) && !table.is_linked(*id) && !table.has_removed(*id);
        let mut ids = (0..self.peers.len()).map(id_of);
        if let Some(lost) = ids.find(is_lost).filter(|_| before.own().incarnation == of) {
            let story = format!("n{} does not know n{} any more after a restart", member + 1, lost.0);
            self.broken = Some(("known_members_stay_known", story));
        }
        let pause_max = self.peers[member].pause_max;
        self.peers[member] = Peers { table, run, book, pause_max, ..Peers::default() };
        for peer in (0..self.peers.len()).filter(|&peer| peer != member) {
            for lane in LANES {
                self.close(around, peer, member, lane, LinkEnd::Otherwise);
            }
        }
        self.carry_out(around, member);
    }
}
