//! Acknowledgements: a member that acknowledges up to an index holds the leader's log up to there on its disk, and the
//! leader's term too. [replication-protocols O1, L6; fault-model ST2]

use super::Checked;
use super::ghost::{Ghost, expect};
use kattu_raft::message::{Envelope, Message};

const NAME: &str = "acknowledgements";

/// A message is sent.
pub(super) fn sent(ghost: &mut Ghost, place: usize, envelope: &Envelope) -> Checked {
    let Message::AppendReply(reply) = &envelope.message else { return Ok(()) };
    let upto = reply.upto;
    let member = ghost.at(place);
    let (id, term) = (member.id, envelope.term);
    let Some(reign) = ghost.reigns.get(&term).filter(|reign| reign.leader == envelope.to) else {
        return expect(false, NAME, || {
            format!("{id:?} acknowledges to {:?}, who does not lead {term:?}", envelope.to)
        });
    };
    let (theirs, mine) = (reign.term_at(term, upto), member.disk.term(upto));
    expect(mine == Some(theirs), NAME, || {
        format!(
            "{id:?} acknowledges {upto:?} to the leader of {term:?}, who has {theirs:?} there; its disk has {mine:?}"
        )
    })?;
    expect(term <= member.disk_hard.term, NAME, || {
        format!("{id:?} acknowledges in {term:?}; its disk knows {:?}", member.disk_hard.term)
    })?;
    let highest = ghost.acknowledged.entry((term, id)).or_default();
    *highest = (*highest).max(upto);
    Ok(())
}
