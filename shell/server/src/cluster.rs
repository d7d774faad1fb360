//! The cluster service: who the members are.
//!
//! Knows nothing of: how membership changes.

use crate::face::{Face, mismatch};
use crate::replica::Replica;
use crate::{encode, grpc};
use bytes::Bytes;
use kattu_node::contract::{Consistency, ReplyBody, Request};
use kattu_proto::etcdserverpb as pb;
use tonic::Status;

/// MemberList. Its header has no revision, as in etcd.
///
/// # Errors
/// If a linearizable list cannot be had.
pub async fn member_list<R: Replica>(face: &Face<R>, message: Bytes) -> Result<Bytes, Status> {
    let request: pb::MemberListRequest = grpc::decode(message)?;
    let consistency =
        if request.linearizable { Consistency::Linearizable } else { Consistency::Serializable };
    let reply = face.call(Request::Members(consistency)).await?;
    let members = match reply.body {
        ReplyBody::Members(members) => members,
        other => return Err(mismatch("the members", &other)),
    };
    let members = members
        .into_iter()
        .map(|member| pb::Member {
            id: member.id.0,
            name: member.name,
            peer_ur_ls: member.peer_urls,
            client_ur_ls: member.client_urls,
            is_learner: member.learner,
        })
        .collect();
    Ok(encode::frame(&pb::MemberListResponse { header: Some(face.header(reply.term, 0)), members }))
}
