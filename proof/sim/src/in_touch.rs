//! In touch: which members can come to admit each other. [fault-model NT2, §4]
//!
//! A member that missed changes of members admits a stranger if a member that it knows names it. If no chain of such members
//! leads to one that knows all others, it admits no newer member, whatever it is told, and counts as lost.
//! Knows nothing of: connections, what is lost on the way.

use crate::world::World;
use kattu_raft::NodeId;

fn names(ids: impl Iterator<Item = NodeId>) -> String {
    ids.map(|id| format!("n{}", id.0)).collect::<Vec<_>>().join(" ")
}

impl World {
    /// Whether a member can come to admit all others in the cluster, after `without` has left: it knows them, or a chain of
    /// members leads from it to one that does.
    pub(crate) fn is_in_touch(&self, member: usize, without: usize) -> bool {
        let all = self.current();
        let is_there = |other: usize| {
            let state = &self.members[other];
            let answers = !state.ruined && (all.contains(&other) || state.process.is_some());
            other == member || (other != without && answers)
        };
        let current: Vec<usize> = all.iter().copied().filter(|&other| is_there(other)).collect();
        let knows_all = |by: usize| current.iter().all(|&other| other == by || self.sh.net.links(by, other));
        if !current.iter().any(|&other| knows_all(other)) {
            // The newest change is known nowhere yet.
            return current.iter().any(|&other| self.sh.net.links(member, other));
        }
        let mut chain = vec![member];
        let mut next = 0;
        while next < chain.len() {
            let by = chain[next];
            if knows_all(by) {
                return true;
            }
            let named =
                (0..self.members.len()).filter(|&other| is_there(other) && self.sh.net.links(by, other));
            let new: Vec<usize> = named.filter(|other| !chain.contains(other)).collect();
            chain.extend(new);
            next += 1;
        }
        false
    }

    /// Adds to the timeline which members each one that runs knows.
    pub(crate) fn tell_which_members_are_known(&mut self) {
        for member in 0..self.members.len() {
            let links = (0..self.members.len()).filter(|&other| self.sh.net.links(member, other));
            let known = names(links.map(crate::net::id_of));
            let Some(process) = &self.members[member].process else { continue };
            let voters = names(process.node().raft().membership().voters.iter().copied());
            let and = if self.is_isolated(member) { ", and is isolated" } else { "" };
            self.sh.line(Some(member), "members", || format!("knows {known}; its voters are {voters}{and}"));
        }
    }

    /// Whether no chain of members leads from this one to the others: an operator has to replace it.
    /// [docs/walks/membership.md]
    pub(crate) fn is_isolated(&self, member: usize) -> bool {
        let current = self.current();
        current.len() > 1 && current.contains(&member) && !self.is_in_touch(member, member)
    }
}
