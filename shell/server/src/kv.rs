//! The KV service: reads through the store, writes through the log.
//!
//! Each call is judged at the gate, becomes one request of the replica, and its answer gets etcd's header.
//! Knows nothing of: connections, how the log works.

use crate::body::FaceBody;
use crate::errors::{self, EtcdError};
use crate::face::{Face, mismatch};
use crate::replica::Replica;
use crate::{convert, encode, gate, grpc};
use bytes::Bytes;
use kattu_kv::api::{Answer, Command, Query, Response};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Consistency, ReplyBody, Request};
use kattu_proto::etcdserverpb as pb;
use kattu_raft::Term;
use tonic::Status;

/// Range, as fresh as `level` says unless the request itself is content with less.
///
/// # Errors
/// As etcd's.
pub async fn range<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    level: Consistency,
) -> Result<FaceBody, Status> {
    let request: pb::RangeRequest = grpc::decode(message)?;
    gate::check_range(&request)?;
    let consistency = if request.serializable { Consistency::Serializable } else { level };
    let (term, response) = read(face, Query::Range(convert::range(request)), consistency).await?;
    let Answer::Range(result) = response.answer else { return Err(other(response)) };
    let header = face.header(term, response.revision);
    Ok(FaceBody::message(encode::range_len(&header, &result), move || encode::frame_range(&header, &result)))
}

/// Put.
///
/// # Errors
/// As etcd's.
pub async fn put<R: Replica>(face: &Face<R>, message: Bytes) -> Result<FaceBody, Status> {
    let request: pb::PutRequest = grpc::decode(message)?;
    gate::check_put(&request)?;
    let (term, response) = write(face, &Command::Put(convert::put(request))).await?;
    let Answer::Put { prev_kv } = response.answer else { return Err(other(response)) };
    let header = Some(face.header(term, response.revision));
    let prev_kv = prev_kv.as_ref().map(convert::key_value);
    Ok(FaceBody::Message(encode::frame(&pb::PutResponse { header, prev_kv })))
}

/// DeleteRange.
///
/// # Errors
/// As etcd's.
pub async fn delete_range<R: Replica>(face: &Face<R>, message: Bytes) -> Result<FaceBody, Status> {
    let request: pb::DeleteRangeRequest = grpc::decode(message)?;
    gate::check_delete_range(&request)?;
    let (term, response) = write(face, &Command::DeleteRange(convert::delete_range(request))).await?;
    let header = Some(face.header(term, response.revision));
    let len = encode::pairs_len(&response.answer);
    let Answer::DeleteRange { deleted, prev_kvs, .. } = response.answer else { return Err(other(response)) };
    Ok(FaceBody::message(len, move || {
        let prev_kvs = prev_kvs.iter().map(convert::key_value).collect();
        encode::frame(&pb::DeleteRangeResponse { header, deleted, prev_kvs })
    }))
}

/// Txn. One that only reads is served as a read, as fresh as `level` says unless all it reads is serializable.
///
/// # Errors
/// As etcd's.
pub async fn txn<R: Replica>(face: &Face<R>, message: Bytes, level: Consistency) -> Result<FaceBody, Status> {
    let request: pb::TxnRequest = grpc::decode(message)?;
    gate::check_txn(&request, face.config.max_txn_ops)?;
    let reads = only_reads(&request, level);
    let txn = convert::txn(request);
    gate::check_duplicates(&txn, face.config.max_txn_ops)?;
    let (term, response) = match reads {
        Some(consistency) => read(face, Query::Txn(txn), consistency).await?,
        None => write(face, &Command::Txn(txn)).await?,
    };
    let (len, revision) = (encode::pairs_len(&response.answer), response.revision);
    let Answer::Txn { succeeded, answers } = response.answer else { return Err(other(response)) };
    let header = face.header(term, revision);
    Ok(FaceBody::message(len, move || {
        encode::frame(&convert::txn_response(header, revision, succeeded, &answers))
    }))
}

/// Compact. The space work is done when it is applied, so that `physical` asks for nothing more.
///
/// # Errors
/// As etcd's.
pub async fn compact<R: Replica>(face: &Face<R>, message: Bytes) -> Result<FaceBody, Status> {
    let request: pb::CompactionRequest = grpc::decode(message)?;
    let (term, response) = write(face, &Command::Compact(request.revision)).await?;
    let header = Some(face.header(term, response.revision));
    Ok(FaceBody::Message(encode::frame(&pb::CompactionResponse { header })))
}

/// How fresh a transaction must be that only reads; none if it must go through the log. It is serializable if every
/// range in it is. One without any range is linearizable for us, for its compares' sake; etcd serves it from whatever
/// state it has.
fn only_reads(request: &pb::TxnRequest, level: Consistency) -> Option<Consistency> {
    use pb::request_op::Request;
    let mut ranges = 0;
    let mut serializable = true;
    for op in request.success.iter().chain(&request.failure) {
        let Some(Request::RequestRange(range)) = &op.request else { return None };
        ranges += 1;
        serializable &= range.serializable;
    }
    Some(if serializable && 0 < ranges { Consistency::Serializable } else { level })
}

async fn read<R: Replica>(
    face: &Face<R>,
    query: Query,
    consistency: Consistency,
) -> Result<(Term, Response), Status> {
    let (term, response) = store_answer(face.call(Request::Read(query, consistency)).await?)?;
    check_answer(encode::pairs_len(&response.answer), face.config.max_response_bytes)?;
    Ok((term, response))
}

async fn write<R: Replica>(face: &Face<R>, command: &Command) -> Result<(Term, Response), Status> {
    let bytes = encode_kv(command);
    check_size(bytes.len(), face.config.max_request_bytes)?;
    let (term, response) = store_answer(face.call(Request::Write(bytes)).await?)?;
    let (len, len_max) = (encode::pairs_len(&response.answer), face.config.max_response_bytes);
    if len_max < len {
        let revision = response.revision;
        return Err(Status::unknown(format!(
            "kattu: carried out at revision {revision}, but its answer of {len} bytes is more than the {len_max} of one \
             answer"
        )));
    }
    Ok((term, response))
}

fn check_size(len: usize, len_max: usize) -> Result<(), EtcdError> {
    if len_max < len { Err(errors::REQUEST_TOO_LARGE) } else { Ok(()) }
}

fn check_answer(len: usize, len_max: usize) -> Result<(), Status> {
    if len_max < len {
        let advice = "ask for less with limit, and for the rest from the last key on";
        return Err(Status::resource_exhausted(format!(
            "kattu: the answer has {len} bytes, more than the {len_max} of one answer; {advice}"
        )));
    }
    Ok(())
}

fn store_answer(reply: kattu_node::contract::Reply) -> Result<(Term, Response), Status> {
    match reply.body {
        ReplyBody::Kv(response) => Ok((reply.term, response)),
        other => Err(mismatch("the store", &other)),
    }
}

fn other(response: Response) -> Status {
    mismatch("another kind of answer", &ReplyBody::Kv(response))
}
