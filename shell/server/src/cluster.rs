//! The cluster service: the member list, and its changes.
//!
//! ```text
//!  MemberAdd      URLs checked, an id drawn ──▶ Change(Add)     a learner first, even if it is to vote
//!  MemberRemove   ──▶ Change(Remove)           MemberPromote ──▶ Change(Promote)
//!  MemberUpdate   URLs checked ──▶ Change(Update)
//!  MoveLeader     ──▶ MoveLeader               only at the leader, as in etcd
//! ```
//! In:    messages of etcd's; the members after the change, from the replica.
//! Rule:  the member that receives the request draws a random id, never 0. Only the replicated member list knows
//!        whether it was used before; if it was, another one is drawn. A change is proposed once: a draw is repeated
//!        only after a certain refusal.
//! Headers have no revision here, as in etcd.
//! Knows nothing of: the protocol of a change.

use crate::budget::Hold;
use crate::config::urls::Url;
use crate::errors::{self, EtcdError};
use crate::face::{Face, mismatch};
use crate::replica::Replica;
use crate::skim::fields;
use crate::{encode, grpc};
use bytes::Bytes;
use kattu_kv::api::Revision;
use kattu_node::contract::{
    Consistency, MemberChange, MemberInfo, MemberRefusal, Outcome, Refusal, ReplyBody, Request,
};
use kattu_proto::etcdserverpb as pb;
use kattu_raft::{NodeId, Term};
use std::hash::{BuildHasher, Hasher, RandomState};
use tonic::Status;

/// A member needs no more addresses than this; nor longer ones than [`URL_BYTES_MAX`].
const URLS_MAX: usize = 16;
/// A host name has at most 253 bytes.
const URL_BYTES_MAX: usize = 512;
/// Two draws of 64 bits that were both used before are no coincidence.
const DRAWS_MAX: usize = 3;

/// MemberList.
///
/// # Errors
/// If a linearizable list cannot be had.
pub async fn member_list<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    let request: pb::MemberListRequest = grpc::decode(message)?;
    let consistency =
        if request.linearizable { Consistency::Linearizable } else { Consistency::Serializable };
    let reply = face.call(Request::Members(consistency), hold).await?;
    let members = match reply.body {
        ReplyBody::Members(members) => members.list,
        other => return Err(mismatch("the members", &other)),
    };
    let header = Some(face.header(reply.term, Revision::NONE));
    Ok(encode::frame(&pb::MemberListResponse { header, members: members.into_iter().map(member).collect() }))
}

/// MemberAdd. Until it has caught up the new member is, and is listed as, a learner, even if it was not added as one.
///
/// # Errors
/// As etcd's.
pub async fn member_add<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    check_urls_count(&message, 1)?;
    let request: pb::MemberAddRequest = grpc::decode(message)?;
    let peer_urls = judge_urls(request.peer_ur_ls)?;
    let mut draws = 0;
    let (term, id, members) = loop {
        let id = draw_id(face.replica.cluster_id());
        draws += 1;
        let add = MemberChange::Add { id, peer_urls: peer_urls.clone(), votes: !request.is_learner };
        let outcome = face.ask(Request::Change(add), hold, None).await;
        if outcome == Outcome::Refused(Refusal::Member(MemberRefusal::IdUsed)) && draws < DRAWS_MAX {
            continue;
        }
        let (term, members) = changed(face.judge_outcome(outcome)?)?;
        break (term, id, members);
    };
    // The list has roles as of now. The new member itself has the role it was added in, which etcd's tools print.
    let as_added = |member: &pb::Member| pb::Member { is_learner: request.is_learner, ..member.clone() };
    let added = members.iter().find(|member| member.id == id.0).map(as_added);
    Ok(encode::frame(&pb::MemberAddResponse {
        header: Some(face.header(term, Revision::NONE)),
        member: added,
        members,
    }))
}

/// MemberRemove.
///
/// # Errors
/// As etcd's.
pub async fn member_remove<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    let request: pb::MemberRemoveRequest = grpc::decode(message)?;
    let (term, members) = change(face, MemberChange::Remove(NodeId(request.id)), hold).await?;
    Ok(encode::frame(&pb::MemberRemoveResponse { header: Some(face.header(term, Revision::NONE)), members }))
}

/// MemberUpdate: other peer URLs, and nothing else.
///
/// # Errors
/// As etcd's.
pub async fn member_update<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    check_urls_count(&message, 2)?;
    let request: pb::MemberUpdateRequest = grpc::decode(message)?;
    let peer_urls = judge_urls(request.peer_ur_ls)?;
    let (term, members) =
        change(face, MemberChange::Update { id: NodeId(request.id), peer_urls }, hold).await?;
    Ok(encode::frame(&pb::MemberUpdateResponse { header: Some(face.header(term, Revision::NONE)), members }))
}

/// MemberPromote.
///
/// # Errors
/// As etcd's.
pub async fn member_promote<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    let request: pb::MemberPromoteRequest = grpc::decode(message)?;
    let (term, members) = change(face, MemberChange::Promote(NodeId(request.id)), hold).await?;
    Ok(encode::frame(&pb::MemberPromoteResponse { header: Some(face.header(term, Revision::NONE)), members }))
}

/// MoveLeader: returns when the target leads.
///
/// # Errors
/// As etcd's.
pub async fn move_leader<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    let request: pb::MoveLeaderRequest = grpc::decode(message)?;
    let reply = face.call(Request::MoveLeader(NodeId(request.target_id)), hold).await?;
    match reply.body {
        ReplyBody::Moved => Ok(encode::frame(&pb::MoveLeaderResponse {
            header: Some(face.header(reply.term, Revision::NONE)),
        })),
        other => Err(mismatch("a move of the leader", &other)),
    }
}

async fn change<R: Replica>(
    face: &Face<R>,
    change: MemberChange,
    hold: &mut Hold,
) -> Result<(Term, Vec<pb::Member>), Status> {
    changed(face.call(Request::Change(change), hold).await?)
}

fn changed(reply: kattu_node::contract::Reply) -> Result<(Term, Vec<pb::Member>), Status> {
    match reply.body {
        ReplyBody::Changed(members) => Ok((reply.term, members.into_iter().map(member).collect())),
        other => Err(mismatch("the members after a change", &other)),
    }
}

fn member(member: MemberInfo) -> pb::Member {
    pb::Member {
        id: member.id.0,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.learner,
    }
}

/// [`judge_urls`] refuses too many, too, but once unpacked each takes many times its bytes.
fn check_urls_count(message: &[u8], urls: u32) -> Result<(), EtcdError> {
    let count = fields(message).filter(|(tag, _)| *tag == urls).take(URLS_MAX + 1).count();
    if URLS_MAX < count { Err(errors::BAD_MEMBER_URLS) } else { Ok(()) }
}

/// Peer URLs as the member list keeps them: canonical, ascending, each once; at least one, and reachable.
fn judge_urls(texts: Vec<String>) -> Result<Vec<String>, EtcdError> {
    if texts.is_empty() || URLS_MAX < texts.len() || texts.iter().any(|text| URL_BYTES_MAX < text.len()) {
        return Err(errors::BAD_MEMBER_URLS);
    }
    let urls = texts.iter().map(|text| Url::parse(text.trim())).collect::<Result<Vec<_>, _>>();
    let urls = urls.map_err(|_| errors::BAD_MEMBER_URLS)?;
    // With both schemes an attacker in between could reach the member without TLS.
    let is_mixed = urls.iter().any(Url::is_tls) && !urls.iter().all(Url::is_tls);
    if is_mixed || !urls.iter().all(Url::is_reachable) {
        return Err(errors::BAD_MEMBER_URLS);
    }
    let mut texts: Vec<String> = urls.iter().map(Url::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    Ok(texts)
}

/// A random id, mixed with the cluster's id; never 0, which means no member.
fn draw_id(cluster: u64) -> NodeId {
    // The standard library seeds its hashers from the operating system; each state differs.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(cluster);
    NodeId(hasher.finish().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(texts: &[&str]) -> Option<Vec<String>> {
        judge_urls(texts.iter().map(|text| (*text).to_string()).collect()).ok()
    }

    #[test]
    fn urls_of_members_are_canonical_ascending_and_there() {
        let kept =
            judge(&["http://B.example:2380/", "http://10.0.0.1:2380", "http://b.example:2380"]).unwrap();
        assert_eq!(kept, ["http://10.0.0.1:2380", "http://b.example:2380"]);
        let long = format!("http://{}:1", "a".repeat(URL_BYTES_MAX));
        let many = ["http://a:1"; URLS_MAX + 1];
        assert_eq!(judge(&["https://A:1/"]).unwrap(), ["https://a:1"]);
        let wrong: [&[&str]; 9] = [
            &["http://a:1", "https://a:1"],
            &[],
            &[""],
            &["10.0.0.1:2380"],
            &["http://a"],
            &["http://0.0.0.0:2380"],
            &["http://a:1", "http://b:0"],
            &[&long],
            &many,
        ];
        for texts in wrong {
            assert_eq!(judge(texts), None, "{texts:?}");
        }
    }

    #[test]
    fn ids_are_drawn_afresh_and_never_0() {
        let mut ids: Vec<NodeId> = (0..1000).map(|_| draw_id(7)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
        assert!(!ids.contains(&NodeId(0)));
    }
}
