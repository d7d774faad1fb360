//! Name clash: warns when two members publish the same name or client URL.
//!
//! In:    the table of members, whenever it changes.
//! Rule:  a peer URL belongs to one member: the leader refuses a change that breaks this, and the configuration refuses
//!        such a list. Names and client URLs are published by each member after it has joined; as in etcd they may be
//!        equal, and no decision depends on them. But then a list does not tell which member is meant, and a client
//!        that asks for two members gets one. So each clash is logged once. [fault-model F61]
//! Knows nothing of: peer URLs, how members publish themselves.

use crate::report;
use kattu_node::contract::{MemberInfo, Members};
use kattu_raft::NodeId;

/// The clashes that were logged last.
#[derive(Debug, Default)]
pub(crate) struct NameClash {
    told: Vec<String>,
}

impl NameClash {
    /// The table has changed: logs new clashes.
    pub(crate) fn follow(&mut self, me: NodeId, members: &Members) {
        let found = found(me, &members.list);
        for line in found.iter().filter(|line| !self.told.contains(line)) {
            report::warn(format_args!("{line}"));
        }
        self.told = found;
    }
}

/// What this member shares with others, in words for the operator.
fn found(me: NodeId, list: &[MemberInfo]) -> Vec<String> {
    let Some(own) = list.iter().find(|member| member.id == me) else { return vec![] };
    let mut lines = Vec::new();
    for other in list.iter().filter(|member| member.id != me) {
        let id = other.id.0;
        if !own.name.is_empty() && own.name == other.name {
            lines.push(format!(
                "member {id:016x} has the same name {:?}; give each member its own --name",
                own.name
            ));
        }
        if let Some(url) = own.client_urls.iter().find(|url| other.client_urls.contains(url)) {
            lines.push(format!(
                "member {id:016x} publishes the same client URL {url}; --advertise-client-urls must be this member's own"
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str, client_url: &str) -> MemberInfo {
        let client_urls = vec![client_url.to_string()].into_iter().filter(|url| !url.is_empty()).collect();
        MemberInfo { id: NodeId(id), name: name.into(), client_urls, ..MemberInfo::default() }
    }

    fn members(list: &[MemberInfo]) -> Members {
        Members { list: list.to_vec(), ..Members::default() }
    }

    #[test]
    fn a_name_or_a_client_url_that_is_another_members_too_is_told_and_the_other_one_named() {
        let list =
            [member(1, "n1", "http://a:1"), member(2, "n1", "http://b:1"), member(0xAB, "n3", "http://a:1")];
        let told = found(NodeId(1), &list);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("member 0000000000000002 has the same name \"n1\""), "{told:?}");
        assert!(
            told[1].starts_with("member 00000000000000ab publishes the same client URL http://a:1"),
            "{told:?}"
        );
        assert_eq!(found(NodeId(2), &list).len(), 1, "the other one reports the name as well");
    }

    #[test]
    fn members_that_have_not_published_themselves_clash_with_no_other() {
        let list = [member(1, "", ""), member(2, "", ""), member(3, "n3", "http://c:1")];
        assert!([1, 2, 3, 4].iter().all(|&id| found(NodeId(id), &list).is_empty()));
    }

    #[test]
    fn it_is_told_once_and_again_when_it_has_come_back() {
        let like = members(&[member(1, "n1", "http://a:1"), member(2, "n1", "http://b:1")]);
        let unlike = members(&[member(1, "n1", "http://a:1"), member(2, "n2", "http://b:1")]);
        let mut name_clash = NameClash::default();
        name_clash.follow(NodeId(1), &like);
        let told = name_clash.told.clone();
        assert_eq!(told.len(), 1);
        name_clash.follow(NodeId(1), &like);
        assert_eq!(name_clash.told, told);
        name_clash.follow(NodeId(1), &unlike);
        assert!(name_clash.told.is_empty());
    }
}
