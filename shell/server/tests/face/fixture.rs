//! A face over a lone store, and the clients that tests use with it.

use kattu_kv::api::Revision;
use kattu_kv::store::Store;
use kattu_node::Keeper;
use kattu_node::alarms::Alarms;
use kattu_node::command::Command;
use kattu_node::contract::{MemberInfo, Members, Outcome, Reply, ReplyBody, Request, Status};
use kattu_proto::etcdserverpb as pb;
use kattu_raft::{LogIndex, NodeId, Term};
use kattu_runtime::Behind;
use kattu_server::{Asked, FaceConfig, Replica};
use pb::kv_client::KvClient;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

pub const CLUSTER: u64 = 0xc1;
pub const MEMBER: u64 = 0x2a;
pub const TERM: u64 = 7;

/// A store behind a lock that acts as a whole cluster, and as its [`State`] says.
#[derive(Clone, Default)]
pub struct LoneStore(Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    pub store: Store,
    pub log_len: u64,
    pub leaderless: bool,
    pub no_space: bool,
    pub alarms: Alarms,
    /// Members beside this one.
    pub others: Vec<NodeId>,
    /// Outcome of every request except for the status or the members, instead of the store's.
    pub instead: Option<Outcome>,
    /// Requests are never answered.
    pub silent: bool,
    /// Silent requests for which a client still waits.
    pub waiting: usize,
    /// If set, silent requests outlive their clients: this keeps what those leave behind.
    pub left: Option<Vec<Behind>>,
    /// Requests seen, in order.
    pub seen: Vec<Request>,
}

/// Counts a request as waiting, until it is dropped.
struct Waiting(LoneStore);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(|state| state.waiting -= 1);
    }
}

impl LoneStore {
    pub fn set<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    pub fn revision(&self) -> Revision {
        self.set(|state| state.store.revision())
    }

    fn answer(&self, request: Request) -> Outcome {
        self.set(|state| {
            state.seen.push(request.clone());
            if !matches!(request, Request::Status | Request::Members(_))
                && let Some(outcome) = &state.instead
            {
                return outcome.clone();
            }
            let judged = |result| match result {
                Ok(response) => ReplyBody::Kv(response),
                Err(error) => ReplyBody::KvError(error),
            };
            let body = match request {
                Request::Write(bytes) | Request::CommitOnly(bytes) | Request::Weak(bytes) => {
                    state.log_len += 1;
                    match Command::decode(&bytes) {
                        Ok(Command::Kv(command)) => judged(state.store.apply(&command)),
                        Ok(Command::Alarm(_)) => ReplyBody::Alarmed(None),
                        other => panic!("no command of a client's: {other:?}"),
                    }
                }
                Request::Weigh(command, _) => {
                    state.log_len += 1;
                    judged(state.store.apply(&command))
                }
                Request::Read(query, _) => judged(state.store.query(&query)),
                Request::LookUp(keys, _) => ReplyBody::Found(state.store.look_up(keys)),
                Request::Members(_) => ReplyBody::Members(members(state)),
                Request::Change(_) => ReplyBody::Changed(vec![]),
                Request::MoveLeader(_) => ReplyBody::Moved,
                Request::Pin(_) => ReplyBody::Pinned(Box::new(Keeper::new(vec![]).pin())),
                Request::Status => ReplyBody::Status(Box::new(status(state))),
            };
            Outcome::Done(Reply { term: Term(TERM), strong: 0, body })
        })
    }
}

fn members(state: &State) -> Members {
    let lone = MemberInfo {
        id: NodeId(MEMBER),
        name: "lone".into(),
        peer_urls: vec!["http://127.0.0.1:2380".into()],
        client_urls: vec!["http://127.0.0.1:2379".into()],
        ..MemberInfo::default()
    };
    let others = state.others.iter().map(|id| MemberInfo { id: *id, ..MemberInfo::default() });
    Members { list: std::iter::once(lone).chain(others).collect(), ..Members::default() }
}

fn status(state: &State) -> Status {
    let leader = (!state.leaderless).then_some(NodeId(MEMBER));
    let index = LogIndex(state.log_len);
    let stats = state.store.stats();
    Status {
        id: NodeId(MEMBER),
        term: Term(TERM),
        leader,
        role: if leader.is_some() { "leader" } else { "candidate" },
        persisted: index,
        committed: index,
        applied: index,
        last: index,
        revision: state.store.revision(),
        compact_revision: state.store.compact_revision(),
        keys: stats.keys,
        store_bytes: stats.bytes,
        store_bytes_in_use: stats.bytes_in_use,
        no_space: state.no_space,
        alarms: state.alarms.clone(),
        ..Status::default()
    }
}

/// A request to the store.
enum LoneAsked {
    Told(Option<Outcome>),
    Silent(Waiting),
}

impl Future for LoneAsked {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        match &mut *self {
            LoneAsked::Told(outcome) => Poll::Ready(outcome.take().expect("told once")),
            LoneAsked::Silent(_) => Poll::Pending,
        }
    }
}

impl Asked for LoneAsked {
    fn leave(self, behind: Behind) {
        if let LoneAsked::Silent(Waiting(store)) = &self {
            store.set(|state| state.left.as_mut().map(|left| left.push(behind)));
        }
    }
}

impl Replica for LoneStore {
    fn ask(&self, request: Request) -> impl Asked {
        if self.set(|state| state.silent) {
            self.set(|state| state.waiting += 1);
            return LoneAsked::Silent(Waiting(self.clone()));
        }
        LoneAsked::Told(Some(self.answer(request)))
    }

    fn cluster_id(&self) -> u64 {
        CLUSTER
    }

    fn member_id(&self) -> NodeId {
        NodeId(MEMBER)
    }

    fn leader(&self) -> Option<NodeId> {
        self.set(|state| (!state.leaderless).then_some(NodeId(MEMBER)))
    }

    fn term(&self) -> Term {
        Term(TERM)
    }

    fn committed(&self) -> LogIndex {
        self.set(|state| LogIndex(state.log_len))
    }
}

/// A face at work.
pub struct Face {
    pub store: LoneStore,
    pub config: Arc<FaceConfig>,
    pub address: SocketAddr,
    pub stop: watch::Sender<bool>,
    pub served: JoinHandle<()>,
}

impl Face {
    pub async fn start() -> Face {
        Face::start_with(FaceConfig::default()).await
    }

    pub async fn start_with(config: FaceConfig) -> Face {
        Face::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), config)
    }

    /// The same, on a listener of the test's own.
    pub fn start_on(listener: TcpListener, config: FaceConfig) -> Face {
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let (store, config) = (LoneStore::default(), Arc::new(config));
        let (replica, face) = (store.clone(), Arc::clone(&config));
        let served =
            on_a_thread(listener, |listener| kattu_server::serve_clients(listener, replica, face, stopped));
        Face { store, config, address, stop, served }
    }

    pub async fn channel(&self) -> Channel {
        let url = format!("http://{}", self.address);
        Channel::from_shared(url).unwrap().connect().await.unwrap()
    }

    pub async fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }

    pub async fn raw(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Connections live on the thread that accepts them, as they do in a member.
pub fn on_a_thread<F: Future<Output = ()>>(
    listener: TcpListener,
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> JoinHandle<()> {
    let listener = listener.into_std().unwrap();
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new()
            .block_on(&runtime, async { serve(TcpListener::from_std(listener).unwrap()).await });
        let _ = ended.send(());
    });
    tokio::spawn(async { end.await.expect("the thread ends well") })
}

/// Waits for a fact that other tasks bring about.
pub async fn eventually(mut fact: impl FnMut() -> bool) {
    while !fact() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

pub fn get(key: &str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), ..Default::default() }
}

pub fn prefix(key: &str) -> pb::RangeRequest {
    let mut range_end = key.as_bytes().to_vec();
    *range_end.last_mut().unwrap() += 1;
    pb::RangeRequest { key: key.into(), range_end, ..Default::default() }
}

pub fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() }
}

pub fn delete(key: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.into(), ..Default::default() }
}

pub fn op(request: impl Into<pb::request_op::Request>) -> pb::RequestOp {
    pb::RequestOp { request: Some(request.into()) }
}

/// A transaction without conditions.
pub fn all_of(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..Default::default() }
}
