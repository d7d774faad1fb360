//! The table of members: replicated, and moved by the configurations of the log.
//!
//! In:    configuration entries, in order; the publications of members.
//! Out:   all members with names and URLs, and the former members.
//! Rules: 1. A member that a configuration adds is listed from that entry on. A member that leaves or gets a vote is
//!           listed as before until the change is complete: until a configuration that is not joint.
//!        2. A member missing from a complete configuration is removed, and its id is never used again.
//!        3. A member without a description has neither name nor URLs. No honest leader makes one; one that a lying
//!           member makes must not end any process. [fault-model §4]
//! Knows nothing of: raft, checks of changes, links.

use crate::command::Publish;
use crate::contract::{MemberChange, MemberInfo, Members};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use kattu_raft::{LogIndex, Membership, NodeId};

/// The members and the former members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) list: BTreeMap<NodeId, MemberInfo>,
    pub(crate) removed: BTreeSet<NodeId>,
    /// Index of the configuration that it follows; 0 for the initial one.
    pub(crate) at: LogIndex,
}

impl Table {
    /// The initial members of a cluster.
    pub(crate) fn new(members: Vec<MemberInfo>) -> Table {
        let list = members.into_iter().map(|member| (member.id, member)).collect();
        Table { list, ..Table::default() }
    }

    /// Takes over a publication; that of a non-member, or former member, changes nothing.
    pub(crate) fn publish(&mut self, publish: Publish) {
        if let Some(member) = self.list.get_mut(&publish.id) {
            member.name = publish.name;
            member.client_urls = publish.client_urls;
        }
    }

    /// The configuration at `at` is in force; `change` is the requested change, `None` if it only completes one.
    pub(crate) fn follow(&mut self, at: LogIndex, membership: &Membership, change: Option<MemberChange>) {
        match change {
            Some(MemberChange::Add { id, peer_urls, votes }) => {
                let new = MemberInfo {
                    id,
                    peer_urls,
                    learner: true,
                    votes_when_ready: votes,
                    ..MemberInfo::default()
                };
                self.list.insert(id, new);
            }
            Some(MemberChange::Update { id, peer_urls }) => {
                if let Some(member) = self.list.get_mut(&id) {
                    member.peer_urls = peer_urls;
                }
            }
            Some(
                MemberChange::Remove(_)
                | MemberChange::Promote(_)
                | MemberChange::Timing(_)
                | MemberChange::Protocol(_),
            )
            | None => {}
        }
        for id in membership.members() {
            let undescribed = || MemberInfo { id, learner: true, ..MemberInfo::default() };
            self.list.entry(id).or_insert_with(undescribed);
        }
        if !membership.is_joint() {
            let gone = self.list.extract_if(.., |id, _| !membership.contains(*id)).map(|(id, _)| id);
            self.removed.extend(gone);
            for (id, member) in &mut self.list {
                member.learner = !membership.is_voter(*id);
                member.votes_when_ready &= member.learner;
            }
        }
        self.at = at;
    }

    /// A copy for the code that checks changes, links members and admits them.
    pub(crate) fn members(&self) -> Members {
        Members { at: self.at, list: self.list(), removed: self.removed.iter().copied().collect() }
    }

    /// All members, ascending by id.
    pub(crate) fn list(&self) -> Vec<MemberInfo> {
        self.list.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_member_without_a_description_has_no_name_and_ends_no_process() {
        let described = MemberInfo { id: NodeId(1), name: "n1".into(), ..MemberInfo::default() };
        let mut table = Table::new(vec![described.clone()]);
        table.follow(LogIndex(5), &Membership::new(vec![NodeId(1), NodeId(9)], vec![NodeId(7)]), None);
        let learner =
            |id: u64, learner: bool| MemberInfo { id: NodeId(id), learner, ..MemberInfo::default() };
        assert_eq!(table.list(), [described, learner(7, true), learner(9, false)]);
        assert_eq!(table.at, LogIndex(5));
    }
}
