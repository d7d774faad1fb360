//! Message terms: every message carries its sender's current term, and that term is on its sender's disk; only the
//! leader of a term sends appends of it, and only what is in its log; forwards are of the term too.
//! [replication-protocols O6, L6, B13]

use super::ghost::{Ghost, expect};
use super::{Checked, View};
use kattu_raft::message::{Append, Envelope, Message};
use kattu_raft::{LogIndex, NodeId, Term};

const NAME: &str = "message_terms";

/// A message is sent.
pub(super) fn sent(ghost: &Ghost, place: usize, view: &View, envelope: &Envelope) -> Checked {
    let member = ghost.at(place);
    let id = member.id;
    expect(envelope.from == id && envelope.term == view.term, NAME, || {
        format!("{id:?} of {:?} sends as {:?} of {:?}", view.term, envelope.from, envelope.term)
    })?;
    expect(envelope.term <= member.disk_hard.term, NAME, || {
        format!("{id:?} speaks for {:?}; its disk knows {:?}", envelope.term, member.disk_hard.term)
    })?;
    match &envelope.message {
        Message::Append(append) => appended(ghost, place, view, append),
        _ => Ok(()),
    }
}

/// A forward or its answer is sent: it carries the sender's present term. [B13]
pub(super) fn forwarded(ghost: &Ghost, place: usize, view: &View, from: NodeId, term: Term) -> Checked {
    let id = ghost.at(place).id;
    expect(from == id && term == view.term, NAME, || {
        format!("{id:?} of {:?} forwards, or takes a forward, as {from:?} of {term:?}", view.term)
    })
}

fn appended(ghost: &Ghost, place: usize, view: &View, append: &Append) -> Checked {
    let member = ghost.at(place);
    let id = member.id;
    expect(member.leads == Some(view.term), NAME, || {
        format!("{id:?} appends in {:?}, which it does not lead", view.term)
    })?;
    expect(append.commit <= view.committed, NAME, || {
        format!("{id:?} tells of commit {:?}, its own is {:?}", append.commit, view.committed)
    })?;
    let prev = append.prev;
    let ids = append.entries.iter().map(|entry| entry.id());
    for (id_sent, index) in std::iter::once(prev).chain(ids).zip(prev.index.0..) {
        let term = member.log.term(LogIndex(index));
        expect(id_sent.index == LogIndex(index) && term == Some(id_sent.term), NAME, || {
            format!("{id:?} sends {id_sent} for index {index}; its log has {term:?} there")
        })?;
    }
    Ok(())
}
