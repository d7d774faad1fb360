//! The maintenance service: status of one member, alarms, hashes, and a stream of its whole store.
//!
//! Reads of the whole store (`Hash`, `HashKV`, `Snapshot`) work on a pin of the tables, on threads of their own with
//! low priority: nothing else on the member waits for them. [fault-model ST13; etcd-api §7]
//! Knows nothing of: connections, other members, the format of a backup file (`backup.rs`).

use crate::backup::Pieces;
use crate::body::FaceBody;
use crate::budget::Hold;
use crate::errors;
use crate::face::{ETCD_CLUSTER_VERSION, ETCD_VERSION, Face, mismatch};
use crate::replica::Replica;
use crate::{encode, grpc};
use bytes::Bytes;
use http::Response;
use kattu_kv::api::Revision;
use kattu_kv::digest::HashKv;
use kattu_node::alarms::{Alarm, AlarmChange, AlarmKind};
use kattu_node::contract::{self, Consistency, ReplyBody, Request};
use kattu_node::frozen::Frozen;
use kattu_proto::etcdserverpb as pb;
use kattu_raft::{NodeId, Term};
use pb::alarm_request::AlarmAction;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tonic::Status;

/// Reads of the whole store at once, on one member; each holds what has changed since it began.
pub const LOOKS_MAX: usize = 4;

/// Versions hashed between two checks whether the client still waits.
const VERSIONS_PER_STEP: usize = 4096;

/// Pieces of a stream that wait for their reader.
const PIECES_AHEAD: usize = 2;

/// The reported size of an empty store: etcd's file is never empty, and etcdctl 3.6 divides by its size.
const DB_SIZE_MIN: u64 = 1;

/// Status: this member's own view, without asking other members.
///
/// # Errors
/// If the replica is stopping.
pub async fn status<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<Bytes, Status> {
    let _: pb::StatusRequest = grpc::decode(message)?;
    let status = face.status(hold).await?;
    let mut errors = Vec::new();
    if status.leader.is_none() {
        errors.push(errors::NO_LEADER.text.to_string());
    }
    errors.extend(active(&status).iter().map(text_of));
    Ok(encode::frame(&pb::StatusResponse {
        header: Some(face.header(status.term, status.revision)),
        version: ETCD_VERSION.to_string(),
        db_size: as_i64(status.store_bytes.max(DB_SIZE_MIN)),
        leader: status.leader.map_or(0, |leader| leader.0),
        raft_index: status.committed.0,
        raft_term: status.term.0,
        raft_applied_index: status.applied.0,
        errors,
        db_size_in_use: as_i64(status.store_bytes_in_use),
        is_learner: status.learner,
        storage_version: ETCD_CLUSTER_VERSION.to_string(),
        db_size_quota: as_i64(face.quota_bytes()),
        downgrade_info: Some(pb::DowngradeInfo::default()),
    }))
}

/// All alarms that this member knows of: those of the log, and its own lack of space, which needs no entry there.
pub(crate) fn active(status: &contract::Status) -> Vec<Alarm> {
    let mut alarms: Vec<Alarm> = status.alarms.iter().collect();
    let own = Alarm { member: status.id, kind: AlarmKind::NoSpace };
    if status.no_space && !status.alarms.contains(own) {
        alarms.push(own);
        alarms.sort_unstable();
    }
    alarms
}

/// As Go writes the message; a number that is 0 is left out.
fn text_of(alarm: &Alarm) -> String {
    match alarm.member {
        NodeId(0) => format!("alarm:{} ", alarm.kind),
        NodeId(member) => format!("memberID:{member} alarm:{} ", alarm.kind),
    }
}

/// Alarm: reading them, raising one, clearing one.
///
/// # Errors
/// An unknown action or kind; an alarm to raise for an id that is no member's; any error of a write.
pub async fn alarm<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<Bytes, Status> {
    let request: pb::AlarmRequest = grpc::decode(message)?;
    let wrong = |what: &str, number: i32| Status::invalid_argument(format!("kattu: unknown {what} {number}"));
    let action = AlarmAction::try_from(request.action).map_err(|_| wrong("alarm action", request.action))?;
    let kind =
        match pb::AlarmType::try_from(request.alarm).map_err(|_| wrong("kind of alarm", request.alarm))? {
            pb::AlarmType::None => None,
            pb::AlarmType::Nospace => Some(AlarmKind::NoSpace),
            pb::AlarmType::Corrupt => Some(AlarmKind::Corrupt),
        };
    let member = NodeId(request.member_id);
    let status = face.status(hold).await?;
    let (term, alarms) = match (action, kind) {
        (AlarmAction::Get, kind) => {
            let is_wanted = |alarm: &Alarm| {
                kind.is_none_or(|kind| alarm.kind == kind) && (member == NodeId(0) || alarm.member == member)
            };
            (status.term, active(&status).into_iter().filter(is_wanted).collect())
        }
        // Without a kind there is nothing to raise or clear, which etcd does not refuse.
        (_, None) => (status.term, Vec::new()),
        (AlarmAction::Activate, Some(kind)) => {
            check_member(face, member, hold).await?;
            change(face, AlarmChange::Raise(Alarm { member, kind }), hold).await?
        }
        (AlarmAction::Deactivate, Some(kind)) => {
            change(face, AlarmChange::Clear(Alarm { member, kind }), hold).await?
        }
    };
    let header = Some(face.header(term, status.revision));
    let member_of = |alarm: Alarm| pb::AlarmMember { member_id: alarm.member.0, alarm: alarm.kind as i32 };
    let alarms = alarms.into_iter().map(member_of).collect();
    Ok(encode::frame(&pb::AlarmResponse { header, alarms }))
}

/// Checks that the id is a member's, or 0. Every member keeps the table of alarms and scans it with each alarm that is
/// raised, so it must stay small: two for each present or former member. Clearing and reading do no harm.
async fn check_member<R: Replica>(face: &Face<R>, member: NodeId, hold: &mut Hold) -> Result<(), Status> {
    if member == NodeId(0) {
        return Ok(());
    }
    match face.call(Request::Members(Consistency::Linearizable), hold).await?.body {
        ReplyBody::Members(members) if members.list.iter().any(|known| known.id == member) => Ok(()),
        ReplyBody::Members(_) => Err(errors::MEMBER_NOT_FOUND.into()),
        other => Err(mismatch("the members", &other)),
    }
}

/// Changes the table of alarms through the log.
async fn change<R: Replica>(
    face: &Face<R>,
    change: AlarmChange,
    hold: &mut Hold,
) -> Result<(Term, Vec<Alarm>), Status> {
    let reply = face.call(Request::Write(change.encode().into()), hold).await?;
    match reply.body {
        ReplyBody::Alarmed(alarm) => Ok((reply.term, alarm.into_iter().collect())),
        other => Err(mismatch("an alarm", &other)),
    }
}

/// Defragment: without effect. Compacted versions are freed continuously, so there is nothing to wait for.
///
/// # Errors
/// If the replica is stopping.
pub async fn defragment<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    let _: pb::DefragmentRequest = grpc::decode(message)?;
    let status = face.status(hold).await?;
    let header = Some(face.header(status.term, status.revision));
    Ok(encode::frame(&pb::DefragmentResponse { header }))
}

/// Hash: of all tables of this member as they are now. Equal on members that have applied the same.
///
/// # Errors
/// If the server stops, or no thread can be started.
pub async fn hash<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<Bytes, Status> {
    let _: pb::HashRequest = grpc::decode(message)?;
    let permit = place(face).await?;
    let (term, frozen) = pin(face, Consistency::Serializable, hold).await?;
    let header = Some(face.header(term, frozen.store().revision()));
    let hash =
        beside(permit, move |_| frozen.chunks().fold(0, |crc, chunk| crc32c::crc32c_append(crc, &chunk)))
            .await?;
    Ok(encode::frame(&pb::HashResponse { header, hash }))
}

/// HashKV: of all versions up to a revision that are not compacted. Equal on all members at the same revision and the
/// same compacted one; covers everything acknowledged before.
///
/// # Errors
/// A revision that is compacted or not there yet; the server stops, or no thread can be started.
pub async fn hash_kv<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<Bytes, Status> {
    let request: pb::HashKvRequest = grpc::decode(message)?;
    let permit = place(face).await?;
    let (term, frozen) = pin(face, Consistency::Linearizable, hold).await?;
    let header = Some(face.header(term, frozen.store().revision()));
    let hashed = beside(permit, move |is_wanted| {
        let mut hash = HashKv::new(frozen.into_store(), Revision(request.revision))?;
        while is_wanted() && !hash.step(VERSIONS_PER_STEP) {}
        Ok((fold(hash.hash()), hash.compact_revision().0, hash.revision().0))
    });
    let (hash, compact_revision, hash_revision) = hashed.await?.map_err(errors::of_store)?;
    Ok(encode::frame(&pb::HashKvResponse { header, hash, compact_revision, hash_revision }))
}

/// etcd's hashes have 32 bits.
fn fold(hash: u64) -> u32 {
    hash as u32 ^ (hash >> 32) as u32
}

/// Snapshot: all tables as a backup file, piece by piece, no faster than the client reads. A client that reads too
/// slowly loses the call, and with it the pin and the permit ([`crate::patience::Pace`]).
///
/// # Errors
/// A member with alarm CORRUPT; too many reads of the whole store.
pub async fn snapshot<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Response<FaceBody>, Status> {
    let _: pb::SnapshotRequest = grpc::decode(message)?;
    let status = face.status(hold).await?;
    if status.alarms.contains(Alarm::corrupt(status.id)) {
        return Err(errors::CORRUPT.into());
    }
    let permit = Arc::clone(&face.config.looks).try_acquire_owned().map_err(|_| {
        face.config.counters.looks_refused.add(1);
        Status::from(errors::TOO_MANY_REQUESTS)
    })?;
    let (term, frozen) = pin(face, Consistency::Serializable, hold).await?;
    let header = face.header(term, frozen.store().revision());
    let mut left = frozen.bytes().max(1);
    let pieces = Pieces::new(face.replica.cluster_id(), face.replica.member_id(), *frozen);
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    let mut stop = face.stop.clone();
    let write = move || {
        let _permit = permit;
        for piece in pieces {
            // An estimate: the number of bytes is known only at the end.
            left = left.saturating_sub(piece.bytes.len() as u64).max(u64::from(!piece.is_last_content));
            let remaining_bytes = if piece.is_last_content { 0 } else { left };
            let response = pb::SnapshotResponse {
                header: Some(header),
                remaining_bytes,
                blob: piece.bytes,
                version: ETCD_CLUSTER_VERSION.to_string(),
            };
            if *stop.borrow_and_update() {
                let _ = sender.blocking_send(Err(errors::STOPPED.into()));
                return;
            }
            if sender.blocking_send(Ok(encode::frame(&response))).is_err() {
                return; // the client has gone
            }
        }
    };
    on_a_thread(write)?;
    Ok(grpc::reply(FaceBody::Stream(receiver)))
}

/// A permit to read the whole store. It is taken before the tables are pinned: a call that waits holds nothing.
async fn place<R>(face: &Face<R>) -> Result<OwnedSemaphorePermit, Status> {
    Arc::clone(&face.config.looks).acquire_owned().await.map_err(|_| Status::from(errors::STOPPED))
}

/// All tables as of now.
async fn pin<R: Replica>(
    face: &Face<R>,
    consistency: Consistency,
    hold: &mut Hold,
) -> Result<(Term, Box<Frozen>), Status> {
    let reply = face.call(Request::Pin(consistency), hold).await?;
    match reply.body {
        ReplyBody::Pinned(frozen) => Ok((reply.term, frozen)),
        other => Err(mismatch("a pin", &other)),
    }
}

/// Does long work on a thread of its own; the work can check whether the client still waits.
async fn beside<T, W>(permit: OwnedSemaphorePermit, work: W) -> Result<T, Status>
where
    T: Send + 'static,
    W: FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
{
    let (done, wait) = oneshot::channel();
    on_a_thread(move || {
        let _permit = permit; // until the work ends, even if the client has gone
        let result = work(&|| !done.is_closed());
        let _ = done.send(result); // the client may have gone
    })?;
    wait.await.map_err(|_| Status::internal("kattu: reading the whole store was given up"))
}

/// Added to the nice value of such a thread.
const NICENESS: i32 = 10;

fn on_a_thread(work: impl FnOnce() + Send + 'static) -> Result<(), Status> {
    let work = move || {
        let _ = rustix::process::nice(NICENESS); // if it fails, the thread only competes more with the others
        work();
    };
    match std::thread::Builder::new().name("kattu-looks".to_string()).spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => Err(Status::resource_exhausted(format!("kattu: cannot start a thread: {error}"))),
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
