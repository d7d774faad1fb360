//! Dialler: what one lane to one peer does when an attempt has failed, or a connection has ended.
//!
//! Rules: 1. A peer that does not answer is dialled again after a pause; one that refuses, after the longest. ([`Pauses`])
//!        2. The operator is told of each refusal once, until a connection has opened or the reason is another one.
//!        3. A refusal by a peer that is no member any more ends the dialler: its address may belong to another member by now.
//!        4. A refusal because this member was removed ends this member.
//! Knows nothing of: clocks, chance, addresses, sockets.

use crate::pauses::Pauses;
use crate::peer_table::PeerTable;
use kattu_raft::{Duration, NodeId};

/// Why a lane could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer, or none in time.
    Away,
    /// The peer refuses this member, for this reason.
    Refused(String),
    /// The peer reports that this member was removed.
    Removed,
    /// The peer asks for a proof, but its challenge does not arrive: it does not reach this member.
    Unproven,
}

/// What the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The peer refuses this member, for this reason.
    Refused(String),
    /// The peer accepts this member, but does not reach it at its own peer URLs, which is its proof of identity.
    NotReached,
}

/// What the dialler does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It dials again after this pause, which the caller spreads over time.
    Pause(Duration),
    /// It dials no more.
    End,
}

/// Keeps one lane to one peer open.
#[derive(Clone, Debug)]
pub struct Dialler {
    peer: NodeId,
    pauses: Pauses,
    told: Option<Note>,
}

impl Dialler {
    /// A dialler with pauses of at most `retry_max`.
    #[must_use]
    pub fn new(peer: NodeId, retry_max: Duration) -> Dialler {
        Dialler { peer, pauses: Pauses::new(retry_max), told: None }
    }

    /// A connection is open.
    pub fn opened(&mut self) {
        self.told = None;
    }

    /// A connection has ended that lived for so long.
    pub fn ended(&mut self, life: Duration) {
        self.pauses.lived(life);
    }

    /// The pause before the next attempt, which the caller spreads over time.
    pub fn pause(&mut self) -> Duration {
        self.pauses.take()
    }

    /// An attempt has failed. Returns what follows, and what the operator is told.
    pub fn failed(&mut self, failure: Failure, table: &mut PeerTable) -> (Next, Option<Note>) {
        let note = match failure {
            Failure::Away => None,
            Failure::Refused(_) if !table.is_linked(self.peer) => return (Next::End, None),
            Failure::Refused(reason) => Some(Note::Refused(reason)),
            Failure::Unproven => Some(Note::NotReached),
            Failure::Removed => {
                table.told_of_removal();
                self.pauses.refused();
                None
            }
        };
        let mut news = None;
        if note.is_some() {
            self.pauses.refused();
            if self.told != note {
                self.told.clone_from(&note);
                news = note;
            }
        }
        (Next::Pause(self.pause()), news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::PAUSE_MIN;
    use crate::peer_table::Own;
    use kattu_node::contract::{MemberInfo, Members};
    use std::collections::BTreeMap;

    const PEER: NodeId = NodeId(2);
    const MAX: Duration = Duration::from_millis(500);

    fn table() -> PeerTable {
        let mut table = PeerTable::new(Own { id: NodeId(1), ..Own::default() }, BTreeMap::new());
        let list = vec![MemberInfo { id: PEER, ..MemberInfo::default() }];
        table.follow(Members { list, ..Members::default() });
        table
    }

    #[test]
    fn a_refusal_is_told_once_and_followed_by_the_longest_pause() {
        let (mut dialler, mut table) = (Dialler::new(PEER, MAX), table());
        let no = |why: &str| Failure::Refused(why.into());
        let told = |why: &str| Some(Note::Refused(why.into()));
        assert_eq!(dialler.failed(Failure::Away, &mut table), (Next::Pause(PAUSE_MIN), None));
        assert_eq!(dialler.failed(no("a"), &mut table), (Next::Pause(MAX), told("a")));
        assert_eq!(dialler.failed(no("a"), &mut table), (Next::Pause(MAX), None), "told already");
        assert_eq!(dialler.failed(no("b"), &mut table), (Next::Pause(MAX), told("b")));
        assert_eq!(dialler.failed(Failure::Unproven, &mut table), (Next::Pause(MAX), Some(Note::NotReached)));
        assert_eq!(dialler.failed(Failure::Unproven, &mut table), (Next::Pause(MAX), None));
        dialler.opened();
        dialler.ended(MAX * 2);
        assert_eq!(dialler.pause(), PAUSE_MIN);
        assert_eq!(dialler.failed(no("b"), &mut table), (Next::Pause(MAX), told("b")), "it was open since");
    }

    #[test]
    fn a_removal_ends_this_member_and_a_refusal_by_a_former_member_the_dialler() {
        let (mut dialler, mut table) = (Dialler::new(PEER, MAX), table());
        assert!(!table.is_removed());
        assert_eq!(dialler.failed(Failure::Removed, &mut table), (Next::Pause(MAX), None));
        assert!(table.is_removed());
        table.follow(Members { removed: vec![PEER], ..Members::default() });
        let no = Failure::Refused("another member answers".into());
        assert_eq!(dialler.failed(no, &mut table), (Next::End, None));
        assert!(
            matches!(dialler.failed(Failure::Away, &mut table), (Next::Pause(_), None)),
            "it may be back"
        );
    }
}
