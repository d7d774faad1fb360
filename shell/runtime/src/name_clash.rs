//! Likeness: a member that calls itself as another one does, or sends clients to the same place, is told so.
//!
//! In:    the table of members, whenever it changes.
//! Rule:  peer URLs belong to one member each: a change that breaks this is refused by the leader, and a list that does by
//!        the configuration. Names and client URLs are each member's own word, published after it has joined; as in etcd
//!        they may be equal, and nothing that is decided depends on them. But whoever reads a list then cannot tell who is
//!        meant, and a client that asks for two members gets one. So it is said, once for every way in which it is so.
//!        [fault-model F61]
//! Knows nothing of: how members are told apart (by their ids).

use crate::report;
use kattu_node::contract::{MemberInfo, Members};
use kattu_raft::NodeId;

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct NameClash {
    told: Vec<String>,
}

impl NameClash {
    /// The table has changed: says what is new.
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
                "member {id:016x} is called {:?} too; give each member a --name of its own",
                own.name
            ));
        }
        if let Some(url) = own.client_urls.iter().find(|url| other.client_urls.contains(url)) {
            lines.push(format!(
                "member {id:016x} sends its clients to {url} too; --advertise-client-urls must be where this one is reached"
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
        assert!(told[0].starts_with("member 0000000000000002 is called \"n1\" too"), "{told:?}");
        assert!(
            told[1].starts_with("member 00000000000000ab sends its clients to http://a:1 too"),
            "{told:?}"
        );
        assert_eq!(found(NodeId(2), &list).len(), 1, "the other one is told of the name as well");
    }

    #[test]
    fn members_that_have_not_published_themselves_are_like_nobody() {
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
