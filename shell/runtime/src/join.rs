//! Joining over sockets: carries the questions of [`kattu_member::join`] to the other members.
//!
//! In:    the addresses of the other members; its own peer URLs.
//! Out:   the identity of its directory, or why it has none, in words for the operator.
//!
//! A founding member cannot ask for its identity. But before it makes its directory, it asks the others whether they
//! know it with an earlier one. A member that knows it knows it for ever, with or without a quorum; while no such
//! member can be reached, a lost directory cannot be told from one that never existed. [fault-model F61]
//! Knows nothing of: how members are added, what the answers mean, the log.

use crate::config::Member;
use crate::handshake;
use crate::tls;
use kattu_member::dialler::Failure;
use kattu_member::handshake::newcomer_asks;
use kattu_member::join::{ANSWER_MAX, Joining, Newcomer, NotJoined, Step};
use kattu_member::peer_address::{self, PeerAddress};
use kattu_node::contract::MemberInfo;
use kattu_node::newcomer::CannotJoin;
use kattu_raft::{Duration, GroupId, Incarnation, NodeId};
use kattu_tls::ServerTls;
use kattu_wal::Identity;
use kattu_wire::{Frame, MemberList};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How long the others may take to answer a founding member: longer than a disk may hold them up.
const KNOWN_MAX: Duration = Duration::from_secs(3);

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
    let Joiner { name, peer_urls, others, tls, group } = joiner;
    let newcomer =
        Newcomer { name: (*name).to_string(), group: *group, incarnation: Incarnation(crate::entropy()) };
    let mut joining = Joining::new(newcomer, others.clone());
    let places = |urls: &[String]| urls.iter().filter_map(|url| PeerAddress::of(url)).collect::<Vec<_>>();
    let mine = places(peer_urls);
    let is_me = |member: &MemberInfo| places(&member.peer_urls).iter().any(|place| mine.contains(place));
    let question = newcomer_asks(peer_urls);
    loop {
        match joining.next(is_me) {
            Step::Ask(address) => joining.told(one(&address, *tls, &question).await),
            Step::Pause(pause) => tokio::time::sleep(pause).await,
            Step::Over(identity) => return identity.map_err(|why| worded(&why, joiner)),
        }
    }
}

fn worded(why: &NotJoined<PeerAddress>, joiner: &Joiner<'_>) -> String {
    match why {
        NotJoined::NobodyToAsk => "--initial-cluster names no other member to ask".into(),
        NotJoined::NoAnswer(refusals) => {
            let asked = peer_address::join(&joiner.others);
            let mut lines = vec![format!("no other member answered with the member list; asked {asked}")];
            lines.extend(refusals.iter().map(|(address, reason)| format!("{address}: {reason}")));
            lines.join("; ")
        }
        NotJoined::DifferentClusters(one, other) => {
            format!("the members of --initial-cluster belong to different clusters, {one:x} and {other:x}")
        }
        NotJoined::Refused(cannot) => format!("cannot join at {}: {cannot}", joiner.peer_urls.join(",")),
    }
}

/// Asks one member for the list of members.
pub(crate) async fn one(
    address: &PeerAddress,
    tls: Option<&Arc<ServerTls>>,
    question: &Frame,
) -> Result<MemberList, Failure> {
    let asking = async {
        let mut dialled = tls::dial(address, tls).await?;
        handshake::ask(&mut dialled.socket, question).await
    };
    tokio::time::timeout(ANSWER_MAX, asking).await.unwrap_or(Err(Failure::Away))
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
                handshake::is_known(&mut dialled.socket, cluster, id, to).await
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

    #[test]
    fn the_operator_reads_why_a_member_cannot_join_and_which_members_said_so() {
        let peer_urls = ["http://n4:2380".to_string()];
        let others = ["http://n1:2380", "http://n2:2380"].map(|url| PeerAddress::of(url).expect("a URL"));
        let no = (others[1].clone(), "no quorum".to_string());
        let joiner =
            Joiner { name: "n4", peer_urls: &peer_urls, others: others.into(), tls: None, group: GroupId(0) };
        let worded = |why| super::worded(&why, &joiner);
        assert_eq!(
            worded(NotJoined::NoAnswer(vec![no])),
            "no other member answered with the member list; asked n1:2380,n2:2380; n2:2380: no quorum"
        );
        let cannot = worded(NotJoined::Refused(CannotJoin::WasHere(NodeId(4))));
        assert!(cannot.starts_with("cannot join at http://n4:2380: "), "{cannot}");
        assert!(cannot.contains("kattu member remove 4"), "{cannot}");
        let different = worded(NotJoined::DifferentClusters(0xA, 0xB));
        assert!(different.ends_with("different clusters, a and b"), "{different}");
        assert!(worded(NotJoined::NobodyToAsk).contains("--initial-cluster"));
    }
}
