//! The KV service: reads through the store, writes through the log.
//!
//! Each call is checked at the gate and becomes one request to the replica; its response gets etcd's header.
//! Knows nothing of: connections, the log.

use crate::body::{FaceBody, LARGE_MIN, Large};
use crate::budget::Hold;
use crate::errors::{self, EtcdError};
use crate::face::{Face, FaceConfig, mismatch};
use crate::replica::Replica;
use crate::{convert, encode, gate, grpc};
use bytes::Bytes;
use kattu_kv::api::{Answer, Command, KeyValue, Query, RangeResult, Response, Revision};
use kattu_node::command::{encode_kv, request};
use kattu_node::contract::{Consistency, ReplyBody, Request};
use kattu_proto::etcdserverpb as pb;
use kattu_raft::Term;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

/// Range, at `level` unless the request itself asks for a serializable read.
///
/// # Errors
/// As etcd's.
pub async fn range<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    level: Consistency,
    hold: &mut Hold,
) -> Result<FaceBody, Status> {
    let request: pb::RangeRequest = grpc::decode(message)?;
    gate::check_range(&request)?;
    let consistency = if request.serializable { Consistency::Serializable } else { level };
    let query = Query::Range(convert::range(request));
    let Answered { term, response, pairs_len } = read(face, query, consistency, hold).await?;
    let Answer::Range(result) = response.answer else { return Err(other(response)) };
    let header = face.header(term, response.revision);
    let len = encode::range_len(&header, &result, pairs_len);
    if len <= LARGE_MIN {
        return Ok(FaceBody::Message(encode::frame_range(&header, &result, len)));
    }
    Ok(large(&header, Answer::Range(result)))
}

/// Put.
///
/// # Errors
/// As etcd's.
pub async fn put<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<FaceBody, Status> {
    let request: pb::PutRequest = grpc::decode(message)?;
    gate::check_put(&request)?;
    let Answered { term, response, .. } = write(face, Command::Put(convert::put(request)), hold).await?;
    let Answer::Put { prev_kv } = response.answer else { return Err(other(response)) };
    let header = face.header(term, response.revision);
    Ok(FaceBody::Message(encode::frame_put(&header, prev_kv.as_ref())))
}

/// DeleteRange.
///
/// # Errors
/// As etcd's.
pub async fn delete_range<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<FaceBody, Status> {
    let request: pb::DeleteRangeRequest = grpc::decode(message)?;
    gate::check_delete_range(&request)?;
    let command = Command::DeleteRange(convert::delete_range(request));
    let Answered { term, response, pairs_len } = write(face, command, hold).await?;
    let header = face.header(term, response.revision);
    if LARGE_MIN < pairs_len {
        return Ok(large(&header, response.answer));
    }
    let Answer::DeleteRange { deleted, prev_kvs, .. } = response.answer else { return Err(other(response)) };
    let prev_kvs = prev_kvs.iter().map(convert::key_value).collect();
    Ok(FaceBody::Message(encode::frame(&pb::DeleteRangeResponse { header: Some(header), deleted, prev_kvs })))
}

/// Txn. One that only reads is served as a read, at `level` unless all its ranges are serializable.
///
/// # Errors
/// As etcd's.
pub async fn txn<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    level: Consistency,
    hold: &mut Hold,
) -> Result<FaceBody, Status> {
    gate::check_txn_bytes(&message, face.config.max_txn_ops)?;
    let request: pb::TxnRequest = grpc::decode(message)?;
    gate::check_txn(&request, face.config.max_txn_ops)?;
    let reads = only_reads(&request, level);
    let txn = convert::txn(request);
    gate::check_duplicates(&txn, face.config.max_txn_ops)?;
    let Answered { term, response, pairs_len } = match reads {
        Some(consistency) => read(face, Query::Txn(txn), consistency, hold).await?,
        None => write(face, Command::Txn(txn), hold).await?,
    };
    let revision = response.revision;
    let header = face.header(term, revision);
    if LARGE_MIN < pairs_len {
        return Ok(large(&header, response.answer));
    }
    let Answer::Txn { succeeded, answers } = response.answer else { return Err(other(response)) };
    Ok(FaceBody::Message(encode::frame(&convert::txn_response(header, revision, succeeded, &answers))))
}

/// Compact. The work is done when the command is applied, so that `physical` changes nothing.
///
/// # Errors
/// As etcd's.
pub async fn compact<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<FaceBody, Status> {
    let request: pb::CompactionRequest = grpc::decode(message)?;
    let Answered { term, response, .. } =
        write(face, Command::Compact(Revision(request.revision)), hold).await?;
    let header = Some(face.header(term, response.revision));
    Ok(FaceBody::Message(encode::frame(&pb::CompactionResponse { header })))
}

/// The level of a transaction that only reads; none if it must go through the log. It is serializable if every range in
/// it is. One without any range is read at `level`, because of its compares; etcd serves it from its local state.
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

/// A response that is encoded as it finds room, a piece at a time.
fn large(header: &pb::ResponseHeader, answer: Answer) -> FaceBody {
    let mut writer = encode::AnswerWriter::new(header, answer);
    FaceBody::Large(Large { len: writer.bytes(), write: Box::new(move |room| writer.next_bytes(room)) })
}

/// What the store answered.
struct Answered {
    term: Term,
    response: Response,
    /// Bytes of its pairs as they are sent.
    pairs_len: usize,
}

async fn read<R: Replica>(
    face: &Face<R>,
    query: Query,
    consistency: Consistency,
    hold: &mut Hold,
) -> Result<Answered, Status> {
    let (term, response) = store_answer(face.call(Request::Read(query, consistency), hold).await?)?;
    let len = encode::pairs_len(&response.answer);
    let held = held_len(&response.answer, len);
    if let Some(why) = too_large(&face.config, len, held) {
        face.config.counters.answers_too_large.add(1);
        let advice = "use limit, and read the rest from the last key on";
        return Err(Status::resource_exhausted(format!("kattu: {why}; {advice}")));
    }
    if !hold.resize(held) {
        return Err(errors::too_much_held(TOO_MUCH_TO_READ));
    }
    Ok(Answered { term, response, pairs_len: len })
}

/// Why a response of so many bytes, which holds so many, would be too large even if nothing else were held.
fn too_large(config: &FaceConfig, len: usize, held: u64) -> Option<String> {
    let (len_max, held_max) = (config.max_response_bytes(), config.budget.call_max());
    if len_max < len {
        return Some(format!("the response has {len} bytes, more than the maximum of {len_max}"));
    }
    (held_max < held)
        .then(|| format!("the response takes {held} bytes of memory, more than the maximum of {held_max}"))
}

/// What an answer holds: its pairs, and its bytes, to which it may have the last reference once the store has dropped
/// its own.
pub(crate) fn held_len(answer: &Answer, len: usize) -> u64 {
    fn pairs(answer: &Answer) -> usize {
        match answer {
            Answer::Range(RangeResult { kvs, .. }) => kvs.len(),
            Answer::DeleteRange { prev_kvs, .. } => prev_kvs.len(),
            Answer::Txn { answers, .. } => answers.iter().map(pairs).sum(),
            Answer::Put { .. } | Answer::Compact => 0,
        }
    }
    (len + pairs(answer) * size_of::<KeyValue>()) as u64
}

const TOO_MUCH_TO_READ: &str = "too many bytes of responses wait to be read (--client-memory-bytes); read them, use limit, or retry later";

async fn write<R: Replica>(face: &Face<R>, command: Command, hold: &mut Hold) -> Result<Answered, Status> {
    let bytes = encode_kv(&command);
    check_size(bytes.len(), face.config.request_bytes_max)?;
    let turn = match large_turn(&face.config, bytes.len()) {
        None => None,
        Some(turn) => Some(turn.await.ok_or(errors::STOPPED)?),
    };
    let (term, response) =
        store_answer(face.judge_outcome(face.ask(request(command, bytes), hold, turn).await)?)?;
    let len = encode::pairs_len(&response.answer);
    let held = held_len(&response.answer, len);
    let revision = response.revision;
    if let Some(why) = too_large(&face.config, len, held) {
        face.config.counters.answers_too_large.add(1);
        return Err(Status::unknown(format!("kattu: carried out at revision {revision}, but {why}")));
    }
    if !hold.resize(held) {
        return Err(Status::unknown(format!(
            "kattu: carried out at revision {revision}, but there is no memory for its response of {len} bytes: \
             {TOO_MUCH_TO_READ}"
        )));
    }
    Ok(Answered { term, response, pairs_len: len })
}

/// Large writes take turns: every write behind them in the log waits for all of their bytes. So only a few are in the
/// log at once, and the others wait here, where small writes pass them. None for a small write; no turn comes any more when
/// the server has stopped.
pub(crate) fn large_turn(
    config: &FaceConfig,
    len: usize,
) -> Option<impl Future<Output = Option<OwnedSemaphorePermit>> + use<>> {
    if len <= LARGE_WRITE_MIN {
        return None;
    }
    let kib = u32::try_from(len.div_ceil(1024).min(LARGE_WRITES_KIB)).expect("it is no more than a few MiB");
    let large_writes = Arc::clone(&config.large_writes);
    Some(async move { large_writes.acquire_many_owned(kib).await.ok() })
}

/// Writes above this many bytes take turns.
const LARGE_WRITE_MIN: usize = 64 << 10;

/// KiB of large writes that are under way at once on one member; a larger one passes alone. So a small write waits for
/// at most so much from each member, in the log and on each link: at 100 MB/s, about 15 ms a member.
pub(crate) const LARGE_WRITES_KIB: usize = 3 << 9;

fn check_size(len: usize, len_max: usize) -> Result<(), EtcdError> {
    if len_max < len { Err(errors::REQUEST_TOO_LARGE) } else { Ok(()) }
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
