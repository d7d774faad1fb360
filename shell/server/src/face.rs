//! The etcd face of one replica: dispatches RPCs to a replica that knows no transport.
//!
//! A call arrives as a path, headers and a body. Its message is read, checked and turned into a request to the replica;
//! the outcome is returned in etcd's terms. Every RPC that is not implemented yet answers `Unimplemented` at once.
//! Knows nothing of: sockets, connections, threads.

use crate::body::FaceBody;
use crate::budget::{Budget, Hold};
use crate::counters::{Counters, InFlight};
use crate::encode::PREFIX_LEN;
use crate::native::Load;
use crate::patience::Limits;
use crate::replica::{Asked, Replica};
use crate::rpc::Rpc;
use crate::{auth, cluster, errors, grpc, health, kv, level, maintenance, process};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use kattu_kv::api::Revision;
use kattu_node::contract::{self, Consistency, Doubt, Outcome, Refusal, Reply, ReplyBody};
use kattu_proto::etcdserverpb as pb;
use kattu_tls::ServerTls;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::{Code, Status};

/// The version of etcd whose behaviour this server shows; clients choose features by it. Digits only, for their
/// parsers.
pub const ETCD_VERSION: &str = "3.7.3";

/// What etcd calls the cluster's and the storage's version.
pub(crate) const ETCD_CLUSTER_VERSION: &str = "3.7.0";

/// Kattu's own version.
pub(crate) const KATTU_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Room beside the command in one message of gRPC. [etcd embed: grpcOverheadBytes]
pub(crate) const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;

/// Limits of the faces of one member. [fault-model §10]
#[derive(Clone, Debug)]
pub struct FaceConfig {
    /// The member's name.
    pub name: String,
    /// Largest command, in bytes as it goes into the log.
    pub request_bytes_max: usize,
    /// Most compares or operations of one branch of a transaction, shared by those inside it.
    pub max_txn_ops: usize,
    /// Largest response to one unary call, in bytes.
    pub max_response_bytes: usize,
    /// Level of reads that name none.
    pub read_consistency: Consistency,
    /// Quota of the store, in bytes. Reported here, enforced by the replica.
    pub quota_bytes: u64,
    /// Client connections at once.
    pub max_connections: usize,
    /// Calls at once on one connection.
    pub max_concurrent_streams: u32,
    /// Time for a client to show its protocol, to send the head of an HTTP/1 request, and to complete a frame of HTTP/2
    /// or a head of several frames, except body data.
    pub header_deadline: Duration,
    /// Time for a body of any size, …
    pub body_deadline: Duration,
    /// … and how many bytes of its announced length add a second.
    pub body_bytes_per_s: usize,
    /// A connection without a call on which no frame arrives for this long is closed.
    pub idle_deadline: Duration,
    /// A client that reads nothing of what waits for it for this long loses the call, or the connection.
    pub stall_deadline: Duration,
    /// Least time between two pings of a client to which nothing was sent in between.
    pub ping_interval_min: Duration,
    /// Capacity for large writes, in KiB; shared by all listeners of this member.
    pub large_writes: Arc<Semaphore>,
    /// Permits for reads of the whole store; shared by all listeners of this member.
    pub looks: Arc<Semaphore>,
    /// Permits for watches of this member's health; shared by all listeners of this member.
    pub health_watches: Arc<Semaphore>,
    /// The budget of bytes held for clients; shared by all listeners of this member.
    pub budget: Arc<Budget>,
    /// What native connections have under way; shared by all listeners of this member.
    pub native: Arc<Load>,
    /// How long calls under way may go on once the server stops.
    pub drain_deadline: Duration,
    /// The counters of this member's faces; shared by all its listeners.
    pub counters: Arc<Counters>,
    /// Whether experiments may add delays to this member.
    pub lab: bool,
    /// Whether this member does not wait for its disk, which its status must say.
    pub unsafe_no_fsync: bool,
    /// TLS of those listeners that use it.
    pub tls: Option<Arc<ServerTls>>,
    /// TLS between members, which pages report on.
    pub peer_tls: Option<Arc<ServerTls>>,
}

impl Default for FaceConfig {
    fn default() -> FaceConfig {
        FaceConfig {
            name: String::new(),
            request_bytes_max: 1536 * 1024,
            max_txn_ops: 128,
            max_response_bytes: 64 << 20,
            read_consistency: Consistency::Linearizable,
            quota_bytes: 0,
            max_connections: 20_000,
            max_concurrent_streams: 10_000,
            header_deadline: Duration::from_secs(5),
            body_deadline: Duration::from_secs(10),
            body_bytes_per_s: 64 << 10,
            idle_deadline: Duration::from_secs(600),
            stall_deadline: Duration::from_secs(60),
            ping_interval_min: Duration::from_secs(5),
            large_writes: Arc::new(Semaphore::new(kv::LARGE_WRITES_KIB)),
            looks: Arc::new(Semaphore::new(maintenance::LOOKS_MAX)),
            health_watches: Arc::new(Semaphore::new(health::WATCHES_MAX)),
            budget: Arc::default(),
            native: Arc::default(),
            drain_deadline: Duration::from_secs(2),
            counters: Arc::default(),
            lab: false,
            unsafe_no_fsync: false,
            tls: None,
            peer_tls: None,
        }
    }
}

impl FaceConfig {
    /// Largest message of gRPC that is read, in bytes.
    #[must_use]
    pub(crate) fn max_message_bytes(&self) -> usize {
        self.request_bytes_max.saturating_add(GRPC_OVERHEAD_BYTES)
    }

    /// Largest response to one unary call, in bytes: less where the budget has no room for it.
    #[must_use]
    pub fn max_response_bytes(&self) -> usize {
        let call_max = usize::try_from(self.budget.call_max()).unwrap_or(usize::MAX);
        self.max_response_bytes.min(call_max)
    }

    /// Client connections at once: fewer where the budget has no room for so many.
    #[must_use]
    pub fn max_connections(&self) -> u64 {
        (self.max_connections as u64).min(self.budget.connections_max(self.tls.is_some()))
    }

    /// The deadlines of a connection.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            idle: self.idle_deadline,
            stall: self.stall_deadline,
            ping: self.ping_interval_min,
            head: self.header_deadline,
        }
    }

    fn body_limits(&self) -> grpc::BodyLimits {
        grpc::BodyLimits {
            len_max: self.max_message_bytes(),
            patience: self.body_deadline,
            bytes_per_s: self.body_bytes_per_s,
        }
    }
}

/// The etcd face of one replica.
pub struct Face<R> {
    /// The replica that serves the requests.
    pub replica: R,
    /// Limits and counters.
    pub config: Arc<FaceConfig>,
    /// Turns true when the server stops: streams end then.
    pub stop: watch::Receiver<bool>,
    /// State shared by the watches of its health.
    pub(crate) watched: Arc<health::Watched>,
    /// Facts about the process, as last read.
    pub(crate) process: process::Last,
}

impl<R: Replica> Face<R> {
    /// A face of this replica, until `stop` turns true.
    #[must_use]
    pub fn new(replica: R, config: Arc<FaceConfig>, stop: watch::Receiver<bool>) -> Face<R> {
        let (watched, process) = Default::default();
        Face { replica, config, stop, watched, process }
    }

    /// The least quota of all members, in bytes; this member's own while no other is known.
    pub fn quota_bytes(&self) -> u64 {
        self.replica.ruling_quota().unwrap_or(self.config.quota_bytes)
    }

    /// Answers one call of gRPC, and returns its hold. The head of the request is checked and dropped at once, so that
    /// the future, which is moved about once per call, stays small.
    pub fn answer<'a, B>(
        &'a self,
        request: Request<B>,
        mut hold: Hold,
    ) -> impl Future<Output = (Response<FaceBody>, Hold)> + use<'a, R, B>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (head, body) = request.into_parts();
        let judged = self.judge(&head);
        async move {
            let (rpc, level, in_flight) = match judged {
                Ok(judged) => judged,
                Err(refused) => return (*refused, hold),
            };
            let level_or_default = level.unwrap_or(self.config.read_consistency);
            let answered = self.dispatch(rpc, level_or_default, body, &mut hold).await;
            hold.end();
            let response = match answered {
                Ok(mut response) => {
                    in_flight.end(Code::Ok);
                    if level.is_some() {
                        self.tell_position(&mut response);
                    }
                    response
                }
                Err(status) => {
                    in_flight.end(status.code());
                    grpc::refuse(status)
                }
            };
            (response, hold)
        }
    }

    /// Answers a hot call, whose whole request has come, and returns its hold. Its head names no level.
    pub(crate) fn answer_whole(
        &self,
        rpc: Rpc,
        message: Bytes,
        mut hold: Hold,
    ) -> impl Future<Output = (Result<FaceBody, Status>, Hold)> + use<'_, R> {
        let in_flight = self.config.counters.begin(rpc);
        async move {
            let answered = self.serve_whole(rpc, message, &mut hold).await;
            hold.end();
            in_flight.end(answered.as_ref().map_or_else(Status::code, |_| Code::Ok));
            (answered, hold)
        }
    }

    async fn serve_whole(&self, rpc: Rpc, message: Bytes, hold: &mut Hold) -> Result<FaceBody, Status> {
        self.config.counters.received_bytes.add((PREFIX_LEN + message.len()) as u64);
        if !hold.begin() {
            return Err(errors::too_much_held(TOO_MANY_UNDER_WAY));
        }
        match rpc {
            Rpc::Range => kv::range(self, message, self.config.read_consistency, hold).await,
            Rpc::Put => kv::put(self, message, hold).await,
            _ => unreachable!("{rpc:?} is not hot"),
        }
    }

    /// The RPC of the call and the level of its reads, unless its head alone is reason to refuse it.
    #[allow(clippy::type_complexity)] // two words for it would not make it simpler
    fn judge(
        &self,
        head: &Parts,
    ) -> Result<(Rpc, Option<Consistency>, InFlight<'_>), Box<Response<FaceBody>>> {
        if head.method != Method::POST {
            let mut response = Response::new(FaceBody::Empty);
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return Err(Box::new(response));
        }
        let path = head.uri.path();
        let rpc = Rpc::from_path(path).ok_or_else(|| Box::new(grpc::refuse(unknown_path(path))))?;
        let in_flight = self.config.counters.begin(rpc);
        let judged = grpc::check_metadata(&head.headers, || self.replica.leader().is_some());
        match judged.and_then(|()| level::of_call(&head.headers)) {
            Ok(level) => Ok((rpc, level, in_flight)),
            Err(status) => {
                in_flight.end(status.code());
                Err(Box::new(grpc::refuse(status)))
            }
        }
    }

    async fn dispatch<B>(
        &self,
        rpc: Rpc,
        level: Consistency,
        body: B,
        hold: &mut Hold,
    ) -> Result<Response<FaceBody>, Status>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        if !is_written(rpc) {
            let name = format!("kattu does not serve {}/{} yet", rpc.service(), rpc.method());
            return Err(Status::unimplemented(name));
        }
        let message = grpc::read_message(body, self.config.body_limits(), hold).await?;
        self.config.counters.received_bytes.add((PREFIX_LEN + message.len()) as u64);
        if !hold.begin() {
            return Err(errors::too_much_held(TOO_MANY_UNDER_WAY));
        }
        let answer = match rpc {
            Rpc::Range => kv::range(self, message, level, hold).await?,
            Rpc::Put => kv::put(self, message, hold).await?,
            Rpc::DeleteRange => kv::delete_range(self, message, hold).await?,
            Rpc::Txn => kv::txn(self, message, level, hold).await?,
            Rpc::Compact => kv::compact(self, message, hold).await?,
            Rpc::Status => maintenance::status(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::Alarm => maintenance::alarm(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::Defragment => maintenance::defragment(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::Hash => maintenance::hash(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::HashKv => maintenance::hash_kv(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::Snapshot => return maintenance::snapshot(self, message, hold).await,
            Rpc::MemberList => cluster::member_list(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::MemberAdd => cluster::member_add(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::MemberRemove => cluster::member_remove(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::MemberUpdate => cluster::member_update(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::MemberPromote => {
                cluster::member_promote(self, message, hold).await.map(FaceBody::Message)?
            }
            Rpc::MoveLeader => cluster::move_leader(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::AuthStatus => auth::auth_status(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::Authenticate => auth::authenticate(message).map(FaceBody::Message)?,
            Rpc::HealthCheck => health::check(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::HealthList => health::list(self, message, hold).await.map(FaceBody::Message)?,
            Rpc::HealthWatch => return health::watch(self, message, hold),
            _ => unreachable!("{rpc:?} is written, says is_written"),
        };
        Ok(grpc::reply(answer))
    }

    /// Adds the log index for later reads at least as new: read after the response is complete, so that it covers the
    /// response.
    fn tell_position(&self, response: &mut Response<FaceBody>) {
        let position = HeaderValue::from(self.replica.committed().0);
        response.headers_mut().insert(HeaderName::from_static(level::INDEX), position);
    }

    /// Sends a request to the replica for a call with this hold. Any outcome but a final answer becomes etcd's error.
    ///
    /// # Errors
    /// The store's error, a refusal, or an unknown outcome.
    pub async fn call(&self, request: contract::Request, hold: &mut Hold) -> Result<Reply, Status> {
        self.judge_outcome(self.ask(request, hold, None).await)
    }

    /// Sends a request to the replica. If the client goes, the call's hold and its turn stay with the request.
    pub(crate) fn ask(
        &self,
        request: contract::Request,
        hold: &mut Hold,
        turn: Option<OwnedSemaphorePermit>,
    ) -> impl Future<Output = Outcome> {
        Holding { asked: Some(self.replica.ask(request)), hold, turn }
    }

    /// An outcome as an answer or as etcd's error.
    ///
    /// # Errors
    /// The store's error, a refusal, or an unknown outcome.
    pub(crate) fn judge_outcome(&self, outcome: Outcome) -> Result<Reply, Status> {
        if let Outcome::Refused(Refusal::AnswerTooLarge) | Outcome::Unknown(Doubt::AnswerTooLarge) = outcome {
            self.config.counters.answers_too_large.add(1);
        }
        match outcome {
            Outcome::Done(Reply { body: ReplyBody::KvError(error), .. }) => {
                Err(errors::of_store(error).into())
            }
            Outcome::Done(reply) => Ok(reply),
            Outcome::Received(_) => unreachable!("etcd's clients ask for no weak answers"),
            Outcome::Refused(refusal) => Err(errors::with_reason(refusal)),
            Outcome::Unknown(doubt) => Err(errors::of_doubt(doubt).into()),
        }
    }

    /// The replica's status, without asking other members.
    ///
    /// # Errors
    /// If the replica is stopping or overloaded.
    pub async fn status(&self, hold: &mut Hold) -> Result<contract::Status, Status> {
        match self.call(contract::Request::Status, hold).await?.body {
            ReplyBody::Status(status) => Ok(*status),
            other => Err(mismatch("a status", &other)),
        }
    }

    /// The header of an answer.
    #[must_use]
    pub fn header(&self, term: kattu_raft::Term, revision: Revision) -> pb::ResponseHeader {
        pb::ResponseHeader {
            cluster_id: self.replica.cluster_id(),
            member_id: self.replica.member_id().0,
            revision: revision.0,
            raft_term: term.0,
        }
    }
}

/// A request under way, and what is held for it.
struct Holding<'a, A: Asked> {
    /// None once it has its outcome.
    asked: Option<A>,
    hold: &'a mut Hold,
    turn: Option<OwnedSemaphorePermit>,
}

impl<A: Asked> Future for Holding<'_, A> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let asked = self.asked.as_mut().expect("it is not polled after its end");
        let outcome = ready!(Pin::new(asked).poll(context));
        self.asked = None;
        Poll::Ready(outcome)
    }
}

impl<A: Asked> Drop for Holding<'_, A> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            asked.leave(Box::new((self.hold.leave(), self.turn.take())));
        }
    }
}

const TOO_MANY_UNDER_WAY: &str = "this server has too many calls under way (--client-calls-max); retry later";

/// The reply is of another kind than the request: a bug of ours, reported instead of hidden.
pub(crate) fn mismatch(wanted: &str, found: &ReplyBody) -> Status {
    Status::internal(format!("kattu: internal error: expected {wanted}, got {found:?}"))
}

/// Whether an RPC is served. Checked before the body is read: a stream that is not served must not wait for one.
fn is_written(rpc: Rpc) -> bool {
    matches!(
        rpc,
        Rpc::Range
            | Rpc::Put
            | Rpc::DeleteRange
            | Rpc::Txn
            | Rpc::Compact
            | Rpc::Status
            | Rpc::Alarm
            | Rpc::Defragment
            | Rpc::Hash
            | Rpc::HashKv
            | Rpc::Snapshot
            | Rpc::MemberList
            | Rpc::MemberAdd
            | Rpc::MemberRemove
            | Rpc::MemberUpdate
            | Rpc::MemberPromote
            | Rpc::MoveLeader
            | Rpc::AuthStatus
            | Rpc::Authenticate
            | Rpc::HealthCheck
            | Rpc::HealthList
            | Rpc::HealthWatch
    )
}

fn unknown_path(path: &str) -> Status {
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    let known = Rpc::ALL.iter().any(|rpc| rpc.service() == service);
    let (service, method) = (errors::begin_of(service), errors::begin_of(method));
    Status::unimplemented(if known {
        format!("unknown method {method} for service {service}")
    } else {
        format!("unknown service {service}")
    })
}
