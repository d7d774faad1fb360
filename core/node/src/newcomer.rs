//! A newcomer: somebody with an empty directory who wants to join.
//!
//! In:    the members of the cluster, those of them that were heard of before, and which of them the newcomer would be.
//! Out:   its id, or why it cannot be that member.
//! Rule:  whoever had a directory once has promised things in it (votes, acknowledgements), and its promises outlive the
//!        disk: an empty directory never continues the life of such a member. [fault-model ST14, F19]
//! Knows nothing of: how members are asked, what is in a directory.

use crate::contract::{MemberInfo, Members};
use core::fmt;
use kattu_raft::NodeId;

/// Why somebody with an empty directory is no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CannotJoin {
    /// Nobody added it.
    NotListed,
    /// It votes, or it was heard of: it had a directory, and lost it.
    WasHere(NodeId),
}

impl fmt::Display for CannotJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotJoin::NotListed => f.write_str(
                "no member of the cluster is reached there: add it first, with `kattu member add`",
            ),
            CannotJoin::WasHere(id) => write!(
                f,
                "member {:x} is reached there, and had a data directory before: what it promised in it is lost with it. \
                 Remove it with `kattu member remove {:x}` and add it as a new one, with `kattu member add`",
                id.0, id.0
            ),
        }
    }
}

impl core::error::Error for CannotJoin {}

/// Which member somebody with an empty directory is; `is_me` says who is reached where the newcomer will be. A voter has
/// caught up once, so it had a log; one that published itself or greeted anybody had a directory.
///
/// # Errors
/// Why it is none of them.
pub fn admit(
    members: &Members,
    heard: &[NodeId],
    is_me: impl Fn(&MemberInfo) -> bool,
) -> Result<NodeId, CannotJoin> {
    let me = members.list.iter().find(|member| is_me(member)).ok_or(CannotJoin::NotListed)?;
    let was_here = !me.learner || !me.name.is_empty() || heard.contains(&me.id);
    if was_here && !planted!("vote-by-refilled-disk") {
        return Err(CannotJoin::WasHere(me.id));
    }
    Ok(me.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;
    use kattu_raft::LogIndex;

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
    fn only_a_learner_that_nobody_has_heard_of_may_begin_with_an_empty_directory() {
        assert_eq!(admitted(4, &[NodeId(1)]), Ok(NodeId(4)));
        assert_eq!(admitted(4, &[NodeId(4)]), Err(CannotJoin::WasHere(NodeId(4))), "it has greeted somebody");
        assert_eq!(admitted(3, &[]), Err(CannotJoin::WasHere(NodeId(3))), "it has published itself");
        assert_eq!(admitted(2, &[]), Err(CannotJoin::WasHere(NodeId(2))), "a voter has had a log");
        assert_eq!(admitted(5, &[]), Err(CannotJoin::NotListed));
    }

    #[test]
    fn who_cannot_join_is_told_what_to_do() {
        for cannot in [CannotJoin::NotListed, CannotJoin::WasHere(NodeId(0xA))] {
            assert!(cannot.to_string().contains("kattu member add"), "{cannot}");
        }
    }
}
