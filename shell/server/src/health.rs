//! Health: can this member serve? For gRPC's health service and for HTTP's `/health`.
//!
//! Serving means that a linearizable read of one key works, which needs a leader, a quorum and a store that keeps up.
//! Knows nothing of: connections.

use crate::body::FaceBody;
use crate::face::Face;
use crate::replica::Replica;
use crate::{encode, grpc};
use bytes::Bytes;
use http::Response;
use kattu_kv::api::{KeyRange, Query, Range};
use kattu_node::contract::{Consistency, Request};
use kattu_proto::healthpb as pb;
use pb::health_check_response::ServingStatus;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Status;

/// How often a watched health is looked at again. Looking costs one atomic read.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

/// Whether reads work, with the reason if not.
///
/// # Errors
/// What the read answers.
pub async fn probe<R: Replica>(face: &Face<R>, consistency: Consistency) -> Result<(), Status> {
    let keys = KeyRange { start: vec![0], end: vec![0] };
    let query = Query::Range(Range { keys, limit: 1, keys_only: true, ..Range::default() });
    face.call(Request::Read(query, consistency)).await.map(|_| ())
}

/// Check.
///
/// # Errors
/// `NotFound` for a service of another name than "".
pub async fn check<R: Replica>(face: &Face<R>, message: Bytes) -> Result<Bytes, Status> {
    let request: pb::HealthCheckRequest = grpc::decode(message)?;
    if !request.service.is_empty() {
        return Err(Status::not_found("unknown service"));
    }
    Ok(encode::frame(&response(judge(face).await)))
}

/// List: the server as a whole is the only service.
///
/// # Errors
/// If the request is malformed.
pub async fn list<R: Replica>(face: &Face<R>, message: Bytes) -> Result<Bytes, Status> {
    let _: pb::HealthListRequest = grpc::decode(message)?;
    let statuses = HashMap::from([(String::new(), response(judge(face).await))]);
    Ok(encode::frame(&pb::HealthListResponse { statuses }))
}

/// Watch: the health now, and each time it changes, until the server stops. Between two looks it is judged by whether
/// there is a leader.
///
/// # Errors
/// If the request is malformed.
pub fn watch<R: Replica>(face: &Face<R>, message: Bytes) -> Result<Response<FaceBody>, Status> {
    let request: pb::HealthCheckRequest = grpc::decode(message)?;
    let (sender, receiver) = mpsc::channel(1);
    let replica = face.replica.clone();
    let mut stop = face.stop.clone();
    tokio::spawn(async move {
        let mut told = None;
        let mut ticks = tokio::time::interval(WATCH_PERIOD);
        while !*stop.borrow() {
            let now = match (request.service.is_empty(), replica.leader()) {
                (false, _) => ServingStatus::ServiceUnknown,
                (true, Some(_)) => ServingStatus::Serving,
                (true, None) => ServingStatus::NotServing,
            };
            if told.replace(now) != Some(now) && sender.send(Ok(encode::frame(&response(now)))).await.is_err()
            {
                return;
            }
            tokio::select! {
                _ = ticks.tick() => {}
                () = sender.closed() => return,
                changed = stop.changed() => if changed.is_err() { break },
            }
        }
        let _ = sender.send(Err(crate::errors::STOPPED.into())).await;
    });
    Ok(grpc::reply(FaceBody::Stream(receiver)))
}

async fn judge<R: Replica>(face: &Face<R>) -> ServingStatus {
    if face.replica.leader().is_some() && probe(face, Consistency::Linearizable).await.is_ok() {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn response(status: ServingStatus) -> pb::HealthCheckResponse {
    pb::HealthCheckResponse { status: status as i32 }
}
