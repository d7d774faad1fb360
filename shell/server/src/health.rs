//! Health: can this member serve? For gRPC's health service and for HTTP's `/health`.
//!
//! Serving means that a linearizable read of one key works, which needs a leader, a quorum and a store that keeps up.
//! Knows nothing of: connections.

use crate::body::FaceBody;
use crate::budget::{CALL_BYTES, Hold};
use crate::face::Face;
use crate::replica::Replica;
use crate::{encode, errors, grpc};
use bytes::Bytes;
use http::Response;
use kattu_kv::api::{KeyRange, Query, Range};
use kattu_node::contract::{Consistency, Request};
use kattu_proto::healthpb as pb;
use pb::health_check_response::ServingStatus;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::Status;

/// Time between two checks of a watched health. A check costs one atomic read.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

/// Most watches of one connection. A watch holds the memory of a call for as long as its client likes, at no cost to
/// that client, and a second one has no other news than the first.
const CONNECTION_WATCHES_MAX: u64 = 16;
const ENOUGH_HERE: &str =
    "this connection has 16 health watches, the maximum; share one of them, or end some";

/// … and of one member.
pub(crate) const WATCHES_MAX: usize = 1_000;
const ENOUGH_WATCHES: &str =
    "this server has the maximum number of health watches; use Check, or watch again later";

/// Whether reads work, with the reason if not.
///
/// # Errors
/// The read's error.
pub async fn probe<R: Replica>(
    face: &Face<R>,
    consistency: Consistency,
    hold: &mut Hold,
) -> Result<(), Status> {
    let keys = KeyRange { start: vec![0], end: vec![0] };
    let query = Query::Range(Range { keys, limit: 1, keys_only: true, ..Range::default() });
    face.call(Request::Read(query, consistency), hold).await.map(|_| ())
}

/// Check.
///
/// # Errors
/// `NotFound` for a service of another name than "".
pub async fn check<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<Bytes, Status> {
    let request: pb::HealthCheckRequest = grpc::decode(message)?;
    if !request.service.is_empty() {
        return Err(Status::not_found("unknown service"));
    }
    Ok(encode::frame(&response(judge(face, hold).await)))
}

/// List: the server as a whole is the only service.
///
/// # Errors
/// If the request is malformed.
pub async fn list<R: Replica>(face: &Face<R>, message: Bytes, hold: &mut Hold) -> Result<Bytes, Status> {
    let _: pb::HealthListRequest = grpc::decode(message)?;
    let statuses = HashMap::from([(String::new(), response(judge(face, hold).await))]);
    Ok(encode::frame(&pb::HealthListResponse { statuses }))
}

/// Watch: the health now and at each change, until the server stops; judged only by whether there is a leader.
///
/// # Errors
/// If the request is malformed; if the connection, or the member, has as many watches as it may.
pub fn watch<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Response<FaceBody>, Status> {
    let request: pb::HealthCheckRequest = grpc::decode(message)?;
    let is_known = request.service.is_empty();
    drop(request);
    drop(hold.split(hold.bytes().saturating_sub(CALL_BYTES)));
    let one_of_its_connection =
        hold.watch(CONNECTION_WATCHES_MAX).ok_or_else(|| errors::too_much_held(ENOUGH_HERE))?;
    let place = Arc::clone(&face.config.health_watches).try_acquire_owned();
    let place = place.map_err(|_| errors::too_much_held(ENOUGH_WATCHES))?;
    let (sender, receiver) = mpsc::channel(1);
    let mut has_leader = face.watched.begin(&face.replica);
    let mut stop = face.stop.clone();
    tokio::spawn(async move {
        let _for_as_long = (one_of_its_connection, place);
        let mut told = None;
        while !*stop.borrow() {
            let now = match (is_known, *has_leader.borrow_and_update()) {
                (false, _) => ServingStatus::ServiceUnknown,
                (true, true) => ServingStatus::Serving,
                (true, false) => ServingStatus::NotServing,
            };
            if told.replace(now) != Some(now) && sender.send(Ok(encode::frame(&response(now)))).await.is_err()
            {
                return;
            }
            tokio::select! {
                changed = has_leader.changed() => if changed.is_err() { break },
                () = sender.closed() => return,
                changed = stop.changed() => if changed.is_err() { break },
            }
        }
        let _ = sender.send(Err(errors::STOPPED.into())).await;
    });
    Ok(grpc::reply(FaceBody::Stream(receiver)))
}

/// State shared by all watches: one task checks for all, and none runs without a watch. A face lives on one thread.
#[derive(Debug, Default)]
pub struct Watched {
    has_leader: watch::Sender<bool>,
    is_looked_at: AtomicBool,
}

impl Watched {
    /// Whether there is a leader, now and whenever that changes.
    fn begin<R: Replica>(self: &Arc<Self>, replica: &R) -> watch::Receiver<bool> {
        let watching = self.has_leader.subscribe();
        self.look(replica);
        if !self.is_looked_at.swap(true, Relaxed) {
            tokio::spawn(Arc::clone(self).look_while_watched(replica.clone()));
        }
        watching
    }

    fn look(&self, replica: &impl Replica) {
        let now = replica.leader().is_some();
        self.has_leader.send_if_modified(|before| std::mem::replace(before, now) != now);
    }

    async fn look_while_watched(self: Arc<Self>, replica: impl Replica) {
        let mut ticks = tokio::time::interval(WATCH_PERIOD);
        while 0 < self.has_leader.receiver_count() {
            self.look(&replica);
            ticks.tick().await;
        }
        self.is_looked_at.store(false, Relaxed);
    }
}

async fn judge<R: Replica>(face: &Face<R>, hold: &mut Hold) -> ServingStatus {
    if face.replica.leader().is_some() && probe(face, Consistency::Linearizable, hold).await.is_ok() {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn response(status: ServingStatus) -> pb::HealthCheckResponse {
    pb::HealthCheckResponse { status: status as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Asked;
    use kattu_node::contract::{Outcome, Refusal};
    use kattu_raft::{LogIndex, NodeId, Term};
    use std::sync::atomic::AtomicUsize;

    /// A replica that has a leader, or none, and counts the checks. It can do nothing else.
    #[derive(Clone, Default)]
    struct Led {
        has_leader: Arc<AtomicBool>,
        looks: Arc<AtomicUsize>,
    }

    impl Replica for Led {
        fn ask(&self, _: Request) -> impl Asked {
            std::future::ready(Outcome::Refused(Refusal::Stopping))
        }

        fn cluster_id(&self) -> u64 {
            1
        }

        fn member_id(&self) -> NodeId {
            NodeId(1)
        }

        fn leader(&self) -> Option<NodeId> {
            self.looks.fetch_add(1, Relaxed);
            self.has_leader.load(Relaxed).then_some(NodeId(1))
        }

        fn term(&self) -> Term {
            Term(1)
        }

        fn committed(&self) -> LogIndex {
            LogIndex(1)
        }
    }

    /// The task that checks holds a reference to the shared state.
    #[tokio::test]
    async fn one_query_serves_all_watchers_and_without_watchers_there_is_none() {
        let (led, watched) = (Led::default(), Arc::<Watched>::default());
        for has_leader in [true, false] {
            let mut watches: Vec<_> = (0..10).map(|_| watched.begin(&led)).collect();
            assert_eq!(Arc::strong_count(&watched), 2, "one task checks for ten watches");
            for watch in &mut watches {
                assert_eq!(*watch.borrow_and_update(), !has_leader, "as it is now");
            }
            // Its first two checks come at once.
            let before = led.looks.load(Relaxed);
            while led.looks.load(Relaxed) < before + 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            led.has_leader.store(has_leader, Relaxed);
            for watch in &mut watches {
                watch.changed().await.expect("it is checked");
                assert_eq!(*watch.borrow(), has_leader);
            }
            drop(watches);
            while Arc::strong_count(&watched) != 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
