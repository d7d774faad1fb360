//! A newcomer: a process with an empty data directory that wants to join.
//!
//! In:    the answer of a member to [`question`]; the ids seen in handshakes before; the member that the newcomer would
//!        be.
//! Out:   its id, or why it cannot be that member.
//! Rule:  a member that once had a directory may have voted and acknowledged entries in it, and these count even if the
//!        disk is lost: an empty directory never continues the life of such a member. [fault-model ST14, F19]
//!
//! Why that holds. Votes and acknowledgements count only if a voter gives them.
//! 1. A leader promotes only a learner that has published itself according to its applied table (`members.rs`), and
//!    publications are in the log alone. So the publication is committed before the promotion is appended, and the
//!    promotion is appended before the first vote or acknowledgement of that member counts.
//! 2. A newcomer is admitted by the answer to a linearizable read, which a quorum has confirmed after the request: of a
//!    learner that had not published itself at the time of the request, when its old directory was already gone.
//! 3. So every earlier directory under the id was gone before the promotion was appended. No vote from it counts, and
//!    the entries it acknowledged are before the promotion, which a quorum without it must hold before it is committed.
//!
//! An id seen in a handshake is not admitted either: that does no harm, and spares the leader a learner of two
//! incarnations.
//! Knows nothing of: links, the content of a directory.

use crate::contract::{Consistency, MemberInfo, Members, Outcome, Reply, ReplyBody, Request};
use alloc::string::String;
use core::fmt;
use kattu_raft::NodeId;

/// Why a process with an empty directory cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CannotJoin {
    /// It was not added.
    NotListed,
    /// It votes, or was seen before: it had a directory, and lost it.
    WasHere(NodeId),
}

impl fmt::Display for CannotJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotJoin::NotListed => f.write_str(
                "no member of the cluster has this peer address: add it first, with `kattu member add`",
            ),
            CannotJoin::WasHere(id) => write!(
                f,
                "member {:x} has this peer address, and had a data directory before: its votes and acknowledgements are lost with it. \
                 Remove it with `kattu member remove {:x}` and add it as a new one, with `kattu member add`",
                id.0, id.0
            ),
        }
    }
}

impl core::error::Error for CannotJoin {}

/// The request that a member makes before it answers a newcomer: a lagging one must not give an outdated answer.
#[must_use]
pub fn question() -> Request {
    Request::Members(Consistency::Linearizable)
}

/// The answer that it may give.
///
/// # Errors
/// Why it has none; a retry may help.
pub fn confirmed(outcome: Option<Outcome>) -> Result<Members, String> {
    match outcome {
        Some(Outcome::Done(Reply { body: ReplyBody::Members(members), .. })) => Ok(members),
        _ => Err("no quorum confirms the member list".into()),
    }
}

/// The id of a process with an empty directory; `is_me` selects the member that has its peer address. A voter has
/// caught up once, so it had a log; a member that published itself or made a handshake had a directory.
///
/// # Errors
/// Why it cannot join.
pub fn admit(
    members: &Members,
    heard: &[NodeId],
    is_me: impl Fn(&MemberInfo) -> bool,
) -> Result<NodeId, CannotJoin> {
    let me = members.list.iter().find(|member| is_me(member)).ok_or(CannotJoin::NotListed)?;
    let was_here = !me.learner || me.is_published() || heard.contains(&me.id);
    if was_here {
        return Err(CannotJoin::WasHere(me.id));
    }
    Ok(me.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Refusal;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;
    use kattu_raft::{LogIndex, Term};

    fn members() -> Members {
        let member = |id: u64, learner: bool, name: &str| MemberInfo {
            id: NodeId(id),
            name: name.into(),
            learner,
            ..MemberInfo::default()
        };
        let list: Vec<MemberInfo> =
            vec![member(1, false, "n1"), member(2, false, ""), member(3, true, "n3"), member(4, true, "")];
        Members { at: LogIndex(9), list, removed: vec![] }
    }

    fn admitted(id: u64, heard: &[NodeId]) -> Result<NodeId, CannotJoin> {
        admit(&members(), heard, |member| member.id == NodeId(id))
    }

    #[test]
    fn only_an_unknown_learner_may_begin_with_an_empty_directory() {
        assert_eq!(admitted(4, &[NodeId(1)]), Ok(NodeId(4)));
        assert_eq!(admitted(4, &[NodeId(4)]), Err(CannotJoin::WasHere(NodeId(4))), "it has greeted somebody");
        assert_eq!(admitted(3, &[]), Err(CannotJoin::WasHere(NodeId(3))), "it has published itself");
        assert_eq!(admitted(2, &[]), Err(CannotJoin::WasHere(NodeId(2))), "a voter has had a log");
        assert_eq!(admitted(5, &[]), Err(CannotJoin::NotListed));
    }

    #[test]
    fn a_newcomer_is_answered_only_by_what_a_quorum_confirms() {
        assert_eq!(question(), Request::Members(Consistency::Linearizable));
        let told = Outcome::Done(Reply { term: Term(1), strong: 0, body: ReplyBody::Members(members()) });
        assert_eq!(confirmed(Some(told)), Ok(members()));
        for vain in [None, Some(Outcome::Refused(Refusal::NoLeader))] {
            assert!(confirmed(vain).is_err_and(|why| why.contains("quorum")));
        }
    }

    #[test]
    fn a_newcomer_that_cannot_join_is_told_what_to_do() {
        for cannot in [CannotJoin::NotListed, CannotJoin::WasHere(NodeId(0xA))] {
            assert!(cannot.to_string().contains("kattu member add"), "{cannot}");
        }
    }
}
