//! Joining: how a member with an empty directory gets its identity.
//!
//! In:    the addresses of the other members; its own peer URLs.
//! Out:   the identity of its directory: the cluster, its id, the founding members and the present ones.
//! Every answer is a linearizable read: a member without a quorum does not answer, so no answer is outdated and one is
//! enough. All are asked nevertheless: a member that any of them knows with an earlier directory is refused. Why no
//! vote or acknowledgement is lost that way: [`kattu_node::newcomer`].
//!
//! A founding member cannot ask for its identity. But before it makes its directory, it asks the others whether they
//! know it with an earlier one. A member that knows it knows it for ever, with or without a quorum; while no such
//! member can be reached, a lost directory cannot be told from one that never existed. [fault-model F61]
//! Knows nothing of: how members are added, the log.

use crate::links::Failure;
use crate::peer_address::{self, PeerAddress};
use crate::peer_table::{self, ask};
use crate::start::Member;
use crate::tls;
use kattu_node::contract::MemberInfo;
use kattu_node::newcomer::{CannotJoin, admit};
use kattu_raft::{Duration, GroupId, Incarnation, NodeId};
use kattu_tls::ServerTls;
use kattu_wal::{Identity, InitialMember};
use kattu_wire::MemberList;
use std::sync::Arc;
use tokio::task::JoinSet;

/// How long the others may take to answer a founding member: longer than a disk may hold them up.
const KNOWN_MAX: Duration = Duration::from_secs(3);
/// How long one member may take to answer: longer than a quorum may take to confirm the answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Rounds of questions while no member answers.
const ROUNDS_MAX: u32 = 20;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(250);

/// The member that joins.
pub(crate) struct Joiner<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its peer URLs.
    pub(crate) peer_urls: &'a [String],
    /// The addresses of the others.
    pub(crate) others: Vec<PeerAddress>,
    /// TLS settings for dialling them, where TLS is spoken.
    pub(crate) tls: Option<&'a Arc<ServerTls>>,
    /// The group whose log will be in its directory.
    pub(crate) group: GroupId,
}

/// Asks the others, and builds this member's identity from their answers.
///
/// # Errors
/// Why it cannot join, in words for the operator.
pub(crate) async fn identity(joiner: &Joiner<'_>) -> Result<Identity, String> {
    let others = peer_address::join(&joiner.others);
    if joiner.others.is_empty() {
        return Err("--initial-cluster names no other member to ask".into());
    }
    let mut reasons = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let mut rolls = Vec::new();
        reasons.clear();
        for address in &joiner.others {
            match one(address, joiner.tls, joiner.peer_urls).await {
                Ok(member_list) => rolls.push(member_list),
                Err(Failure::Refused(reason)) => reasons.push(format!("{address}: {reason}")),
                Err(Failure::Away | Failure::Removed | Failure::Unproven) => {}
            }
        }
        if !rolls.is_empty() {
            return judge(joiner, rolls);
        }
        tokio::time::sleep(PAUSE).await;
    }
    reasons.insert(0, format!("no other member answered with the member list; asked {others}"));
    Err(reasons.join("; "))
}

/// Asks one member for the list of members.
pub(crate) async fn one(
    address: &PeerAddress,
    tls: Option<&Arc<ServerTls>>,
    peer_urls: &[String],
) -> Result<MemberList, Failure> {
    let asking = async {
        let mut dialled = tls::dial(address, tls).await?;
        ask(&mut dialled.socket, peer_urls).await
    };
    tokio::time::timeout(ANSWER_MAX, asking).await.unwrap_or(Err(Failure::Away))
}

fn judge(joiner: &Joiner<'_>, rolls: Vec<MemberList>) -> Result<Identity, String> {
    let heard: Vec<NodeId> = rolls.iter().flat_map(|member_list| member_list.heard.iter().copied()).collect();
    if let Some(other) = rolls.iter().find(|member_list| member_list.cluster != rolls[0].cluster) {
        return Err(format!(
            "the members of --initial-cluster belong to different clusters, {:x} and {:x}",
            rolls[0].cluster, other.cluster
        ));
    }
    let newest =
        rolls.into_iter().max_by_key(|member_list| member_list.members.at).expect("at least one answer");
    let places = |urls: &[String]| urls.iter().filter_map(|url| PeerAddress::of(url)).collect::<Vec<_>>();
    let mine = places(joiner.peer_urls);
    let is_me = |member: &MemberInfo| places(&member.peer_urls).iter().any(|place| mine.contains(place));
    let id = admit(&newest.members, &heard, is_me)
        .map_err(|cannot| format!("cannot join at {}: {cannot}", joiner.peer_urls.join(",")))?;
    let remembered =
        |member: MemberInfo| InitialMember { id: member.id, name: member.name, peer_urls: member.peer_urls };
    Ok(Identity {
        cluster: newest.cluster,
        node: id,
        incarnation: Incarnation(crate::entropy()),
        name: joiner.name.to_string(),
        groups: vec![joiner.group],
        members: newest.began_with.into_iter().map(remembered).collect(),
        joined: Some(newest.members.list.into_iter().map(remembered).collect()),
    })
}

/// Asks the others whether they know `own`, a founding member, with a directory that it has lost. Must be awaited
/// inside a `LocalSet`.
///
/// # Errors
/// One of them does; in words for the operator.
pub(crate) async fn begin(
    cluster: u64,
    own: NodeId,
    members: &[Member],
    tls: Option<&Arc<ServerTls>>,
) -> Result<(), String> {
    let mut asked = JoinSet::new();
    for other in members.iter().filter(|other| other.id != own) {
        for address in other.peer_urls.iter().filter_map(|url| PeerAddress::of(url)) {
            let (id, to, tls) = (own, other.id, tls.cloned());
            let asking = async move {
                let Ok(mut dialled) = tls::dial(&address, tls.as_ref()).await else { return false };
                peer_table::is_known(&mut dialled.socket, cluster, id, to).await
            };
            asked.spawn_local(async move { tokio::time::timeout(KNOWN_MAX, asking).await.unwrap_or(false) });
        }
    }
    while let Some(told) = asked.join_next().await {
        if told.unwrap_or(false) {
            let cannot = CannotJoin::WasHere(own);
            let urls = members.iter().find(|member| member.id == own).map(|own| own.peer_urls.join(","));
            return Err(format!("cannot bootstrap at {}: {cannot}", urls.unwrap_or_default()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_node::contract::Members;
    use kattu_raft::LogIndex;

    fn member(id: u64, learner: bool) -> MemberInfo {
        let peer_urls = vec![format!("http://n{id}:2380")];
        MemberInfo { id: NodeId(id), peer_urls, learner, ..MemberInfo::default() }
    }

    fn member_list(at: u64, list: Vec<MemberInfo>, heard: &[u64]) -> MemberList {
        let members = Members { at: LogIndex(at), list, removed: vec![] };
        let heard = heard.iter().copied().map(NodeId).collect();
        MemberList { cluster: 7, began_with: vec![member(1, false)], members, heard }
    }

    fn joins(rolls: Vec<MemberList>) -> Result<Identity, String> {
        let peer_urls = ["http://n4:2380/".to_string()];
        let joiner =
            Joiner { name: "n4", peer_urls: &peer_urls, others: vec![], tls: None, group: GroupId(0) };
        judge(&joiner, rolls)
    }

    #[test]
    fn the_newest_table_counts_and_so_does_everybody_who_has_heard_of_the_newcomer() {
        let old = || member_list(3, vec![member(1, false)], &[1]);
        let new = |heard: &[u64]| member_list(9, vec![member(1, false), member(4, true)], heard);
        assert!(joins(vec![old()]).is_err_and(|why| why.contains("kattu member add")));
        let identity = joins(vec![new(&[1]), old()]).expect("it was added");
        assert_eq!((identity.cluster, identity.node, identity.members.len()), (7, NodeId(4), 1));
        assert_eq!(identity.joined.map(|found| found.len()), Some(2));
        let heard = member_list(3, vec![member(1, false)], &[1, 4]);
        let why = joins(vec![new(&[1]), heard]).expect_err("it had a directory");
        assert!(why.contains("kattu member remove 4"), "{why}");
        let other = MemberList { cluster: 8, ..old() };
        assert!(joins(vec![new(&[1]), other]).is_err_and(|why| why.contains("different clusters")));
    }
}
