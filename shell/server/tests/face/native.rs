//! Goal: the native face answers what it should, bounds what a client can cost, and tells bad bytes from good ones. Method: a
//! client of bare frames, and one keeper that acts as a whole cluster, or holds its answers back.

use crate::fixture::{CLUSTER, MEMBER, TERM, eventually, on_a_thread};
use kattu_kv::api::{
    Answer, Command, Compare, CompareResult, CompareTarget, DeleteRange, Error, KeyRange, Operation, Put,
    Query, Range, Response, Revision, Txn,
};
use kattu_kv::sessions::{Order, SessionError, SessionId};
use kattu_native::PREFACE;
use kattu_native::frame::{FrameReader, FrameWriter};
use kattu_native::handshake::{Hello, Leader, Welcome};
use kattu_native::message::{Level, Request as Asks};
use kattu_native::reply::{Doubt, Outcome as Says, Refusal, Reply as Answered};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Admitted, KeeperEffects, KeeperTask, Outcome, Request, Ticket, Tickets};
use kattu_node::session::SessionHeader;
use kattu_node::{Keeper, level};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, LogIndex, NodeId, Stamp, Term};
use kattu_runtime::Mailbox;
use kattu_server::budget::{Account, Budget, Hold};
use kattu_server::{Asked, FaceConfig, Replica};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const LEADER_URL: &str = "http://leader:2379";

/// A keeper behind a lock that acts as a whole cluster.
#[derive(Clone)]
struct Lone(Arc<Mutex<State>>);

struct State {
    keeper: Keeper,
    index: u64,
    /// Requests are kept here and not answered.
    holds: Option<Vec<(Arc<Mailbox>, u64, Request)>>,
    /// The outcome of all that comes.
    instead: Option<Outcome>,
    /// Weak writes are received first, as this entry; without it there are none.
    weak: Option<EntryId>,
    /// Writes, in the order in which they came.
    seen: Vec<Vec<u8>>,
}

impl Lone {
    fn new() -> Lone {
        let mut state = State {
            keeper: Keeper::new(vec![]).of_member(NodeId(MEMBER)),
            index: 0,
            holds: None,
            instead: None,
            weak: None,
            seen: vec![],
        };
        (1..=level::SESSIONS).for_each(|level| drop(state.apply(level::encode(level))));
        Lone(Arc::new(Mutex::new(state)))
    }

    fn set<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn held(&self) -> usize {
        let requests = |(_, _, request): &(_, _, Request)| match request {
            Request::LookUp(keys, _) => keys.len(),
            _ => 1,
        };
        self.set(|state| state.holds.iter().flatten().map(requests).sum())
    }

    /// Answers what was held back, and holds nothing more.
    fn release(&self) {
        for (mailbox, key, request) in self.set(|state| state.holds.take()).unwrap_or_default() {
            let outcome = self.set(|state| state.answer(request));
            mailbox.deliver(key, Some(outcome));
        }
    }
}

impl State {
    fn apply(&mut self, payload: Vec<u8>) -> Outcome {
        self.index += 1;
        let id = EntryId { index: LogIndex(self.index), term: Term(TERM) };
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
        let entry = Entry::new(head, payload.into(), 0);
        self.one(KeeperTask::Apply { entry, tickets: Tickets::One(Ticket(1)), term: Term(TERM) })
    }

    fn one(&mut self, task: KeeperTask) -> Outcome {
        let mut effects = KeeperEffects::default();
        self.keeper.handle(task, &mut effects);
        if let Some(Admitted { command, .. }) = effects.admitted.pop() {
            return self.apply(command);
        }
        effects.reply.pop().expect("an answer").1
    }

    fn answer(&mut self, request: Request) -> Outcome {
        self.seen.extend(request.command().map(<[u8]>::to_vec));
        if let Some(outcome) = &self.instead {
            return outcome.clone();
        }
        let (ticket, term, needs) = (Ticket(1), Term(TERM), LogIndex(0));
        match request {
            Request::Write(bytes) | Request::CommitOnly(bytes) => self.apply(bytes.to_vec()),
            Request::Weak(_) if self.weak.is_none() => {
                Outcome::Refused(kattu_node::contract::Refusal::NotWeak)
            }
            Request::Weak(bytes) => self.apply(bytes.to_vec()),
            Request::Weigh(command, bytes) => self.one(KeeperTask::Weigh { ticket, command, bytes }),
            Request::Read(query, _) => self.one(KeeperTask::Read { ticket, query, term, needs }),
            Request::LookUp(keys, _) => self.one(KeeperTask::LookUp { ticket, keys, term, needs }),
            Request::Pin(_) => self.one(KeeperTask::Pin { ticket, term, needs }),
            other => panic!("no request of this protocol leads to {other:?}"),
        }
    }
}

impl Replica for Lone {
    fn ask(&self, request: Request) -> impl Asked {
        std::future::ready(self.set(|state| state.answer(request)))
    }

    fn post(&self, request: Request, mailbox: &Arc<Mailbox>, key: u64) -> Option<Outcome> {
        self.set(|state| match &mut state.holds {
            Some(holds) => holds.push((Arc::clone(mailbox), key, request)),
            None => {
                let is_weak = matches!(request, Request::Weak(_)) && state.instead.is_none();
                if let Some(id) = state.weak.filter(|_| is_weak) {
                    mailbox.deliver(key, Some(Outcome::Received(id)));
                }
                mailbox.deliver(key, Some(state.answer(request)));
            }
        });
        None
    }

    fn client_url(&self, member: NodeId) -> Option<String> {
        (member == NodeId(MEMBER)).then(|| LEADER_URL.to_string())
    }

    fn cluster_id(&self) -> u64 {
        CLUSTER
    }

    fn member_id(&self) -> NodeId {
        NodeId(MEMBER)
    }

    fn leader(&self) -> Option<NodeId> {
        Some(NodeId(MEMBER))
    }

    fn term(&self) -> Term {
        Term(TERM)
    }

    fn committed(&self) -> LogIndex {
        self.set(|state| LogIndex(state.index))
    }
}

struct Face {
    lone: Lone,
    config: Arc<FaceConfig>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<()>,
}

impl Face {
    async fn start(config: FaceConfig) -> Face {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let (lone, config) = (Lone::new(), Arc::new(config));
        let (replica, face) = (lone.clone(), Arc::clone(&config));
        let served =
            on_a_thread(listener, |listener| kattu_server::serve_clients(listener, replica, face, stopped));
        Face { lone, config, address, stop, served }
    }

    async fn client(&self) -> Client {
        self.client_up_to(1).await
    }

    /// A client that speaks no version after this one.
    async fn client_up_to(&self, version_max: u16) -> Client {
        let mut client = self.stranger().await;
        client.say_hello(&Hello { version_min: 1, version_max, cluster: CLUSTER, principal: 0 }).await;
        assert_eq!(client.welcome().await.version, version_max);
        client
    }

    async fn stranger(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client::of(stream)
    }
}

fn writer() -> FrameWriter {
    FrameWriter::new(crc32c::crc32c_append)
}

/// What a client reads under one name.
#[derive(Clone, Debug, PartialEq)]
struct Got {
    index: u64,
    strong: u64,
    says: Said,
}

#[derive(Clone, Debug, PartialEq)]
enum Said {
    Done(Result<Response, Error>),
    Pong,
    Committed,
    Received(u64),
    Opened(SessionId, u64),
    Named(Vec<SessionId>),
    Sessions(u64, Vec<u64>),
    SessionError(SessionError),
    Refused(Refusal, Leader),
    Unknown(Doubt),
    Malformed,
}

struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
    answers: BTreeMap<u64, Got>,
    /// Entries of weak writes, by the names of these.
    received: BTreeMap<u64, EntryId>,
    last: u64,
    /// Bytes of a frame of answers, as the welcome promised.
    frame_max: u32,
}

impl Client {
    fn of(stream: TcpStream) -> Client {
        let (answers, received) = (BTreeMap::new(), BTreeMap::new());
        Client { stream, bytes: vec![], answers, received, last: 0, frame_max: 1 << 16 }
    }

    async fn say_hello(&mut self, hello: &Hello) {
        let mut writer = writer();
        hello.write(&mut writer);
        let bytes = [&PREFACE[..], &writer.take()].concat();
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn welcome(&mut self) -> Welcome {
        loop {
            let reader = FrameReader::new(crc32c::crc32c_append, u32::MAX);
            if let Some((mut messages, length)) = reader.next(&self.bytes).unwrap() {
                let welcome = Welcome::read(&messages.next().unwrap().unwrap()).unwrap();
                self.bytes.drain(..length);
                self.frame_max = welcome.answer_bytes_max;
                return welcome;
            }
            assert!(self.read().await, "the connection is closed");
        }
    }

    /// `false` when the member has closed.
    async fn read(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        let read = self.stream.read(&mut buffer).await.unwrap_or(0);
        self.bytes.extend_from_slice(&buffer[..read]);
        read != 0
    }

    /// Sorts the answers that have come.
    fn sort(&mut self) {
        let reader = FrameReader::new(crc32c::crc32c_append, self.frame_max);
        while let Some((messages, length)) = reader.next(&self.bytes).expect("frames") {
            for message in messages {
                let message = message.expect("a message");
                let got = got(&Answered::read(&message).expect("an answer"));
                if let Said::Received(term) = got.says {
                    let id = EntryId { term: Term(term), index: LogIndex(got.index) };
                    assert_eq!(self.received.insert(message.request, id), None, "received twice");
                    assert!(!self.answers.contains_key(&message.request), "received after the answer");
                    continue;
                }
                assert_eq!(self.answers.insert(message.request, got), None, "answered twice");
            }
            self.bytes.drain(..length);
        }
    }

    async fn send(&mut self, asks: &[Asks<'_>]) -> Vec<u64> {
        let mut writer = writer();
        let names: Vec<u64> = asks
            .iter()
            .map(|_| {
                self.last += 1;
                self.last
            })
            .collect();
        asks.iter().zip(&names).for_each(|(asks, name)| asks.write(*name, &mut writer));
        let bytes = writer.take();
        self.stream.write_all(&bytes).await.unwrap();
        names
    }

    async fn got(&mut self, name: u64) -> Got {
        loop {
            self.sort();
            if let Some(got) = self.answers.remove(&name) {
                return got;
            }
            assert!(self.read().await, "the connection is closed before {name} is answered");
        }
    }

    async fn ask(&mut self, asks: Asks<'_>) -> Got {
        let name = self.send(&[asks]).await[0];
        self.got(name).await
    }

    async fn write(&mut self, command: &[u8]) -> Said {
        self.ask(Asks::Write { commit_only: false, command }).await.says
    }

    async fn session(&mut self, order: Order) -> SessionId {
        match self.ask(Asks::Open(order)).await.says {
            Said::Opened(id, 3_600_000) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the member closes, with nothing more to say.
    async fn is_closed(&mut self) -> bool {
        while self.read().await {}
        self.sort();
        self.answers.is_empty() && self.bytes.is_empty()
    }
}

fn got(answer: &Answered<'_>) -> Got {
    let says = match &answer.outcome {
        Says::Done([]) => Said::Pong,
        Says::Done(bytes) => Said::Done(kattu_kv::answer::decode(bytes).expect("an answer of the store")),
        Says::Committed => Said::Committed,
        Says::Received { term } => Said::Received(*term),
        Says::Opened { id, idle } => Said::Opened(*id, *idle),
        Says::Named { gone, .. } => Said::Named(gone.clone()),
        Says::Sessions { all, list } => {
            Said::Sessions(*all, list.iter().map(|(number, _)| *number).collect())
        }
        Says::SessionError(error) => Said::SessionError(*error),
        Says::Refused(refusal, leader) => Said::Refused(*refusal, leader.clone()),
        Says::Unknown(doubt, _) => Said::Unknown(*doubt),
        Says::Malformed => Said::Malformed,
    };
    Got { index: answer.index, strong: answer.strong, says }
}

fn put(key: &str, value: &str) -> Command {
    Command::Put(Put { key: key.into(), value: value.into(), ..Put::default() })
}

fn in_session(id: SessionId, number: u64, first_unacked: u64, command: &Command) -> Vec<u8> {
    SessionHeader { id, number, first_unacked }.around(&encode_kv(command))
}

fn query(start: &str, end: &str) -> Vec<u8> {
    let keys = KeyRange { start: start.into(), end: end.into() };
    let mut bytes = vec![];
    Query::Range(Range { keys, ..Range::default() }).encode(&mut bytes);
    bytes
}

fn at_once(query: &[u8]) -> Asks<'_> {
    Asks::Read { level: Level::Linearizable, query }
}

/// The version of a key.
async fn version(client: &mut Client, key: &str) -> i64 {
    match client.ask(at_once(&query(key, ""))).await.says {
        Said::Done(Ok(Response { answer: Answer::Range(range), .. })) => {
            range.kvs.first().map_or(0, |pair| pair.version)
        }
        other => panic!("{other:?}"),
    }
}

fn leader() -> Leader {
    Leader { id: MEMBER, url: LEADER_URL.into() }
}

#[tokio::test]
async fn both_sides_agree_on_a_version_and_a_cluster_or_part() {
    let face = Face::start(FaceConfig::default()).await;
    let hello = Hello { version_min: 1, version_max: 9, cluster: 0, principal: 0 };
    let mut client = face.stranger().await;
    client.say_hello(&hello).await;
    let welcome = client.welcome().await;
    assert_eq!((welcome.version, welcome.cluster, welcome.member), (2, CLUSTER, MEMBER));
    assert_eq!(welcome.leader, leader());
    assert_eq!((welcome.requests_max, welcome.frame_bytes_max), (4096, 1536 * 1024 + (64 << 10)));
    assert_eq!(client.ask(Asks::Ping).await.says, Said::Pong);
    for (hello, version) in [
        (Hello { version_min: 3, ..hello.clone() }, 0),
        (Hello { version_min: 0, version_max: 0, ..hello.clone() }, 0),
        (Hello { cluster: CLUSTER + 1, ..hello.clone() }, 2),
        (Hello { principal: 1, ..hello.clone() }, 2),
    ] {
        let mut client = face.stranger().await;
        client.say_hello(&hello).await;
        let welcome = client.welcome().await;
        assert_eq!((welcome.version, welcome.cluster), (version, CLUSTER), "{hello:?}");
        assert!(client.is_closed().await, "{hello:?}");
    }
    // A byte at a time; and with requests right behind.
    let mut client = face.stranger().await;
    let mut writer = writer();
    hello.write(&mut writer);
    let mut bytes = [&PREFACE[..], &writer.take()].concat();
    Asks::Ping.write(77, &mut writer);
    bytes.extend(writer.take());
    for byte in bytes {
        client.stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    client.welcome().await;
    assert_eq!(client.got(77).await.says, Said::Pong);
}

#[tokio::test]
async fn many_requests_in_a_frame_are_answered_each_under_its_name() {
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client().await;
    let commands: Vec<_> =
        (0..3000).map(|n| encode_kv(&put(&format!("k{}", n % 7), &n.to_string()))).collect();
    let asks: Vec<_> = commands.iter().map(|command| Asks::Write { commit_only: false, command }).collect();
    for name in client.send(&asks).await {
        let got = client.got(name).await;
        let Said::Done(Ok(Response { revision, answer: Answer::Put { prev_kv: None } })) = got.says else {
            panic!("{got:?}")
        };
        assert_eq!(revision, Revision(1 + name as i64), "in their order");
        assert!(got.strong == 0 && u64::from(level::SESSIONS) + name <= got.index, "{got:?}");
    }
    let Said::Done(Ok(Response { answer: Answer::Range(all), .. })) =
        client.ask(at_once(&query("k", "l"))).await.says
    else {
        panic!("a range")
    };
    assert_eq!((all.kvs.len(), &all.kvs[6].value[..]), (7, &b"2995"[..]));
    let (keys, prev_kv) = (KeyRange { start: "k0".into(), end: "k3".into() }, true);
    let delete = Command::DeleteRange(DeleteRange { keys: keys.clone(), prev_kv });
    let Said::Done(Ok(Response { answer: Answer::DeleteRange { deleted: 3, prev_kvs, .. }, .. })) =
        client.write(&encode_kv(&delete)).await
    else {
        panic!("three keys")
    };
    assert_eq!(prev_kvs.len(), 3);
    let compare = Compare { keys, result: CompareResult::Equal, target: CompareTarget::Version(0) };
    let Command::Put(then) = put("t", "u") else { unreachable!() };
    let txn = Txn { compare: vec![compare], success: vec![Operation::Put(then)], failure: vec![] };
    let Said::Done(Ok(Response { answer: Answer::Txn { succeeded: true, .. }, revision })) =
        client.write(&encode_kv(&Command::Txn(txn))).await
    else {
        panic!("a transaction")
    };
    assert!(matches!(client.write(&encode_kv(&Command::Compact(revision))).await, Said::Done(Ok(_))));
    assert_eq!(
        client.write(&encode_kv(&Command::Compact(revision))).await,
        Said::Done(Err(Error::Compacted)),
        "an error of the store is final"
    );
    let levels = [Level::AtLeast(1), Level::Bounded(1), Level::Serializable];
    for level in levels {
        let read = client.ask(Asks::Read { level, query: &query("t", "") }).await.says;
        assert!(matches!(read, Said::Done(Ok(_))), "{level:?}: {read:?}");
    }
    let only = client.ask(Asks::Write { commit_only: true, command: &encode_kv(&put("t", "v")) }).await;
    assert_eq!(only.says, Said::Committed);
    assert_eq!(version(&mut client, "t").await, 2);
    assert_eq!(face.config.counters.native_requests.get(), 3000 + 10);
}

#[tokio::test]
async fn reads_that_came_together_are_answered_as_each_alone() {
    let face = Face::start(FaceConfig { max_response_bytes: 1 << 10, ..FaceConfig::default() }).await;
    let mut client = face.client().await;
    for (key, bytes) in [("a", 1), ("b", 700), ("c", 2000)] {
        let put = encode_kv(&put(key, &"v".repeat(bytes)));
        assert!(matches!(client.write(&put).await, Said::Done(Ok(_))));
    }
    let levels = [Level::Linearizable, Level::Serializable, Level::Bounded(7), Level::AtLeast(2)];
    let queries =
        [query("a", ""), query("b", ""), query("", ""), query("c", ""), query("none", ""), query("a", "c")];
    let asks: Vec<_> = (0..600)
        .map(|n| Asks::Read { level: levels[n / 3 % 4], query: &queries[n % 7 % queries.len()] })
        .collect();
    let mut alone = vec![];
    for query in &queries {
        alone.push(client.ask(at_once(query)).await);
    }
    assert!(matches!(alone[3].says, Said::Refused(Refusal::AnswerTooLarge, _)));
    assert_eq!(alone[2].says, Said::Done(Err(Error::EmptyKey)));
    face.lone.set(|state| state.holds = Some(vec![]));
    let names = client.send(&asks).await;
    let invalid = (0..600).filter(|n| n % 7 % queries.len() == 2).count();
    eventually(|| face.lone.held() == 600 - invalid).await;
    let posted = face.lone.set(|state| state.holds.as_ref().map_or(0, Vec::len));
    assert!(posted < 400, "{posted} requests");
    face.lone.release();
    for (n, name) in names.into_iter().enumerate() {
        assert_eq!(client.got(name).await, alone[n % 7 % queries.len()], "read {n}");
    }
    eventually(|| face.config.budget.held() == 0 && face.config.native.requests() == 0).await;
}

#[tokio::test]
async fn a_transaction_has_the_limits_that_it_has_over_grpc() {
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client().await;
    let puts = |from: usize, count: usize| -> Vec<Operation> {
        let put = |n: usize| Put { key: format!("k{n}").into(), ..Put::default() };
        (from..from + count).map(|n| Operation::Put(put(n))).collect()
    };
    let txn = |success| Txn { success, ..Txn::default() };
    let said = |txn: Txn| encode_kv(&Command::Txn(txn));
    let too_many = Said::Done(Err(Error::TooManyOps));
    assert_eq!(client.write(&said(txn(puts(0, 129)))).await, too_many, "in one branch");
    assert!(matches!(client.write(&said(txn(puts(0, 128)))).await, Said::Done(Ok(_))));
    // In each branch fewer than allowed, and in all more: 63 of 132 and themselves.
    let nested = |each: usize| {
        let parts = (0..63).map(|n| {
            Operation::Txn(Txn { success: puts(n * 66, 65), failure: puts(n * 66, each), ..Txn::default() })
        });
        said(txn(parts.collect()))
    };
    assert_eq!(client.write(&nested(65)).await, too_many, "in all");
    assert!(matches!(client.write(&nested(60)).await, Said::Done(Ok(_))));
    assert_eq!(
        client.write(&said(txn([puts(0, 1), puts(0, 1)].concat()))).await,
        Said::Done(Err(Error::DuplicateKey))
    );
}

#[tokio::test]
async fn a_session_executes_a_command_once_on_any_connection() {
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client().await;
    let id = client.session(Order::Strict).await;
    let other = client.session(Order::Any).await;
    assert_ne!(id.secret, other.secret);
    let commands: Vec<_> = (1..=100).map(|n| in_session(id, n, 1, &put("s", "v"))).collect();
    let asks: Vec<_> = commands.iter().map(|command| Asks::Write { commit_only: false, command }).collect();
    let names = client.send(&asks).await;
    let mut first = vec![];
    for (n, name) in names.into_iter().enumerate() {
        let got = client.got(name).await;
        assert_eq!(got.strong, n as u64 + 1);
        first.push(got.says);
    }
    let mut again = face.client().await;
    for name in again.send(&asks).await {
        let got = again.got(name).await;
        assert_eq!((got.strong, &got.says), (100, &first[name as usize - 1]), "as it was");
    }
    assert_eq!(version(&mut again, "s").await, 100);
    let early = again.write(&in_session(id, 102, 50, &put("s", "v"))).await;
    assert_eq!(early, Said::SessionError(SessionError::OutOfOrder { expected: 101 }));
    let stale = again.write(&in_session(id, 49, 49, &put("s", "v"))).await;
    assert_eq!(stale, Said::SessionError(SessionError::Stale));
    let stranger = SessionId { secret: id.secret ^ 1, ..id };
    let expired = again.write(&in_session(stranger, 101, 101, &put("s", "v"))).await;
    assert_eq!(expired, Said::SessionError(SessionError::Expired));
    // What the store would refuse whatever it holds takes no number.
    let refused = again.write(&in_session(id, 101, 101, &put("", "v"))).await;
    assert_eq!(refused, Said::Refused(Refusal::Invalid, leader()));
    assert!(matches!(again.write(&in_session(id, 101, 101, &put("s", "v"))).await, Said::Done(Ok(_))));
    assert_eq!(
        again.ask(Asks::KeepAlive(vec![(id, 102), (stranger, 1)])).await.says,
        Said::Named(vec![stranger])
    );
    let all = again.ask(Asks::Sessions { from: 0, count: 9 }).await.says;
    assert_eq!(all, Said::Sessions(2, vec![id.number, other.number]));
    let some = again.ask(Asks::Sessions { from: id.number + 1, count: 1 }).await.says;
    assert_eq!(some, Said::Sessions(2, vec![other.number]));
    assert_eq!(again.ask(Asks::Close(vec![id, stranger])).await.says, Said::Named(vec![stranger]));
    assert_eq!(again.ask(Asks::Expel(other.number)).await.says, Said::Named(vec![]));
    assert_eq!(again.ask(Asks::Sessions { from: 0, count: 9 }).await.says, Said::Sessions(0, vec![]));
}

#[tokio::test]
async fn a_weak_write_is_told_first_that_it_is_received_and_what_may_not_be_weak_leaves_its_number_free() {
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client_up_to(2).await;
    let id = client.session(Order::Strict).await;
    let first = in_session(id, 1, 1, &put("w", "1"));
    let says = client.ask(Asks::Weak(&first)).await.says;
    assert_eq!(says, Said::Refused(Refusal::NotWeak, leader()), "the cluster gives none");
    let entry = EntryId { term: Term(TERM), index: LogIndex(77) };
    face.lone.set(|state| state.weak = Some(entry));
    let keys = |start: &str, end: &str| KeyRange { start: start.into(), end: end.into() };
    let delete = |keys, prev_kv| Command::DeleteRange(DeleteRange { keys, prev_kv });
    let with_previous = Command::Put(Put { key: b"w".to_vec(), prev_kv: true, ..Put::default() });
    let reads = Txn {
        success: vec![Operation::Range(Range { keys: keys("w", ""), ..Range::default() })],
        ..Txn::default()
    };
    let may_not: [(&str, Vec<u8>); 6] = [
        ("without a session", encode_kv(&put("w", "1"))),
        ("a put that wants the pair before", in_session(id, 1, 1, &with_previous)),
        ("a delete of many", in_session(id, 1, 1, &delete(keys("a", "z"), false))),
        ("a delete that wants the pair before", in_session(id, 1, 1, &delete(keys("w", ""), true))),
        ("a transaction", in_session(id, 1, 1, &Command::Txn(reads))),
        ("a compaction", in_session(id, 1, 1, &Command::Compact(Revision(1)))),
    ];
    for (name, command) in &may_not {
        let says = client.ask(Asks::Weak(command)).await.says;
        assert_eq!(says, Said::Refused(Refusal::MayNotBeWeak, leader()), "{name}");
    }
    let says = client.ask(Asks::Weak(&in_session(id, 1, 1, &put("", "v")))).await.says;
    assert_eq!(says, Said::Refused(Refusal::Invalid, leader()));
    let second = in_session(id, 2, 1, &delete(keys("w", ""), false));
    let names = client.send(&[Asks::Weak(&first), Asks::Weak(&second)]).await;
    for (name, number) in names.into_iter().zip(1..) {
        let got = client.got(name).await;
        assert!(got.strong == number && matches!(got.says, Said::Done(Ok(_))), "{got:?}");
        assert_eq!(client.received.remove(&name), Some(entry));
    }
    // An answer alone is enough: of a member that does not lead, or whose budget is used up.
    face.lone.set(|state| state.holds = Some(vec![]));
    let third = in_session(id, 3, 3, &put("w", "3"));
    let name = client.send(&[Asks::Weak(&third)]).await[0];
    eventually(|| face.lone.held() == 1).await;
    face.lone.release();
    assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))));
    assert!(client.received.is_empty());
    face.lone.set(|state| state.instead = Some(Outcome::Refused(kattu_node::contract::Refusal::Overwritten)));
    let says = client.ask(Asks::Weak(&third)).await.says;
    assert_eq!(says, Said::Refused(Refusal::Overwritten, leader()));
    let mut stranger = face.client_up_to(2).await;
    assert_eq!(stranger.ask(Asks::Weak(&first[..4])).await.says, Said::Malformed);
    assert!(stranger.is_closed().await);
}

/// A client of version 1 would not know what to do with an answer that is not final.
#[tokio::test]
async fn version_1_has_no_weak_writes() {
    let face = Face::start(FaceConfig::default()).await;
    let mut newer = face.client_up_to(2).await;
    let id = newer.session(Order::Strict).await;
    let entry = EntryId { term: Term(TERM), index: LogIndex(77) };
    face.lone.set(|state| state.weak = Some(entry));
    let first = in_session(id, 1, 1, &put("w", "1"));
    let seen = face.lone.set(|state| state.seen.len());
    let mut older = face.client_up_to(1).await;
    assert_eq!(older.ask(Asks::Weak(&first)).await.says, Said::Malformed);
    assert!(older.is_closed().await && older.received.is_empty());
    assert_eq!(face.lone.set(|state| state.seen.len()), seen, "the replica was not asked");
    let name = newer.send(&[Asks::Weak(&first)]).await[0];
    assert!(matches!(newer.got(name).await.says, Said::Done(Ok(_))), "its number is free");
    assert_eq!(newer.received.get(&name), Some(&entry));
}

/// Large writes take turns, and costs of some commands are checked first: commands of a session behind them wait.
#[tokio::test]
async fn commands_of_a_session_are_not_overtaken_by_those_behind_them() {
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client().await;
    let id = client.session(Order::Strict).await;
    let all_turns = face.config.large_writes.clone().acquire_many_owned(3 << 9).await.unwrap();
    let large = "x".repeat(100 << 10);
    let keys = KeyRange { start: "a".into(), end: "z".into() };
    let delete = Command::DeleteRange(DeleteRange { keys, prev_kv: false });
    let commands: Vec<_> = [put("a", &large), put("b", "2"), delete, put("c", "4")]
        .iter()
        .zip(1..)
        .map(|(command, number)| in_session(id, number, 1, command))
        .collect();
    let asks: Vec<_> = commands.iter().map(|command| Asks::Write { commit_only: false, command }).collect();
    let names = client.send(&asks).await;
    let mut other = face.client().await;
    assert!(matches!(other.write(&encode_kv(&put("q", "r"))).await, Said::Done(Ok(_))), "small writes pass");
    drop(all_turns);
    for name in names {
        assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))));
    }
    assert_eq!(face.config.large_writes.available_permits(), 3 << 9);
    let seen = face.lone.set(|state| state.seen.clone());
    let lengths: Vec<_> = seen.iter().map(|bytes| bytes.len() / 1024).collect();
    assert_eq!(lengths, [0, 0, 100, 0, 0, 0], "the session, the other client, then in their order");
}

#[tokio::test]
async fn what_cannot_be_read_or_may_not_be_asked_ends_the_connection_and_nothing_else() {
    let face = Face::start(FaceConfig::default()).await;
    let mut witness = face.client().await;
    let id = witness.session(Order::Strict).await;
    let valid = encode_kv(&put("k", "v"));
    let in_one = in_session(id, 1, 1, &put("k", "v"));
    let alarm = [5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let budget = [&[6, 99][..], &valid[1..]].concat();
    let cases: [(&str, Asks<'_>); 12] = [
        ("an empty command", Asks::Write { commit_only: false, command: &[] }),
        ("a command that is cut", Asks::Write { commit_only: false, command: &valid[..3] }),
        ("a command and a byte", Asks::Write { commit_only: false, command: &[&valid[..], &[0]].concat() }),
        (
            "a publication",
            Asks::Write { commit_only: false, command: &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
        ),
        ("an alarm", Asks::Write { commit_only: false, command: &alarm }),
        ("a budget of one's own", Asks::Write { commit_only: false, command: &budget }),
        ("settings of all sessions", Asks::Write { commit_only: false, command: &[8, 5, 0, 0x80, 0x10, 9] }),
        ("commit-only in a session", Asks::Write { commit_only: true, command: &in_one }),
        ("a level", Asks::Write { commit_only: false, command: &[7, 9, 0] }),
        ("a query that is none", at_once(&[0x15, 9])),
        ("a transaction that writes", at_once(&[0x13, 0, 1, 0, 1, 0, 1, b'k', 1, b'v'])),
        ("a close of nothing", Asks::Close(vec![])),
    ];
    for (name, asks) in cases {
        let mut client = face.client().await;
        let (good, bad, late) = (Asks::Ping, asks, Asks::Ping);
        let names = client.send(&[good, bad, late]).await;
        assert_eq!(client.got(names[0]).await.says, Said::Pong, "{name}");
        assert_eq!(client.got(names[1]).await.says, Said::Malformed, "{name}");
        assert!(client.is_closed().await, "{name}: nothing behind it is looked at");
    }
    let frame = |change: fn(&mut Vec<u8>)| {
        let mut writer = writer();
        Asks::Write { commit_only: false, command: &valid }.write(1, &mut writer);
        let mut bytes = writer.take();
        change(&mut bytes);
        bytes
    };
    let broken: [(&str, Vec<u8>); 4] = [
        ("a bit is wrong", frame(|bytes| bytes[30] ^= 4)),
        ("another checksum", frame(|bytes| bytes[4] ^= 1)),
        ("longer than a frame may be", vec![0xff; 8]),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ];
    for (name, bytes) in broken {
        let mut client = face.client().await;
        client.stream.write_all(&bytes).await.unwrap();
        assert!(client.is_closed().await, "{name}: and nothing of it is answered");
    }
    assert_eq!(face.lone.set(|state| state.seen.len()), 1, "only the session has come to the replica");
    assert_eq!(witness.ask(Asks::Ping).await.says, Said::Pong);
    eventually(|| face.config.counters.connections_broken.get() == 16).await;
}

#[tokio::test]
async fn a_client_that_sends_ever_more_waits_in_its_own_socket() {
    let face = Face::start(FaceConfig::default()).await;
    face.lone.set(|state| state.holds = Some(vec![]));
    let mut client = face.client().await;
    let command = encode_kv(&put("k", "v"));
    let asks = vec![Asks::Write { commit_only: false, command: &command }; 10_000];
    let names = client.send(&asks).await;
    eventually(|| face.lone.held() == 4096).await;
    let mut other = face.client().await;
    assert_eq!(other.ask(Asks::Ping).await.says, Said::Pong, "others are served");
    assert_eq!((face.lone.held(), face.config.native.requests()), (4096, 4096), "no more are taken");
    assert!(4096 * 256 <= face.config.budget.held());
    face.lone.release();
    for name in names {
        assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))));
    }
    eventually(|| face.config.budget.held() == 0 && face.config.native.requests() == 0).await;
    assert_eq!(version(&mut client, "k").await, 10_000);
}

#[tokio::test]
async fn many_connections_share_what_a_member_has_under_way() {
    let face = Face::start(FaceConfig::default()).await;
    face.lone.set(|state| state.holds = Some(vec![]));
    let command = encode_kv(&put("k", "v"));
    let asks = vec![Asks::Write { commit_only: false, command: &command }; 4096];
    let (mut clients, mut shares) = (vec![], 0);
    for number in 1..=6 {
        let mut client = face.client().await;
        let names = client.send(&asks).await;
        // One alone has all that it may. Nothing is answered: the member is taken for a slow one.
        shares += if number == 1 { 4096 } else { 256 / number };
        eventually(|| shares <= face.lone.held()).await;
        clients.push((client, names));
    }
    // A turn may be taken whole.
    assert!(face.lone.held() <= shares + 6 * 1024, "{} for {shares}", face.lone.held());
    face.lone.release();
    for (mut client, names) in clients {
        for name in names {
            assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))));
        }
    }
}

#[tokio::test]
async fn a_client_without_memory_is_refused_or_waits_and_memory_is_given_back() {
    let budget = Arc::new(Budget::of(1 << 20));
    let idle_deadline = Duration::from_secs(20); // a connection that waits for ever ends in time for this test
    let config = FaceConfig { budget: Arc::clone(&budget), idle_deadline, ..FaceConfig::default() };
    let face = Face::start(config).await;
    let mut client = face.client().await;
    // Others hold nearly all: a connection has its own 8 KiB and no more.
    let others: Vec<_> = (0..200).map(|_| Account::new(&budget)).collect();
    let mut holds = vec![];
    for other in &others {
        let largest = (12..20).rev().find_map(|bits| Hold::take(other, 1 << bits));
        holds.extend(largest);
    }
    let large = encode_kv(&put("k", &"x".repeat(8 << 10)));
    for _ in 0..3 {
        assert_eq!(client.ask(Asks::Ping).await.says, Said::Pong, "and its buffer rests");
        let got = client.write(&large).await;
        assert_eq!(got, Said::Refused(Refusal::TooManyRequests, leader()));
    }
    let small = encode_kv(&put("k", "v"));
    let asks = vec![Asks::Write { commit_only: false, command: &small }; 100];
    let mut names = vec![];
    for _ in 0..10 {
        names.extend(client.send(&asks).await);
    }
    for name in names {
        assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))), "small ones pass, some at a time");
    }
    drop(holds);
    assert!(matches!(client.write(&large).await, Said::Done(Ok(_))), "when the others have gone");
    eventually(|| budget.held() == 0).await;
    assert!(0 < budget.refused());
}

#[tokio::test]
async fn what_a_client_leaves_behind_is_counted_until_the_replica_is_done_with_it() {
    let face = Face::start(FaceConfig::default()).await;
    face.lone.set(|state| state.holds = Some(vec![]));
    let mut client = face.client().await;
    let large = encode_kv(&put("k", &"x".repeat(70 << 10)));
    client.send(&[Asks::Write { commit_only: false, command: &large }, Asks::Ping]).await;
    eventually(|| face.lone.held() == 1).await;
    let free = face.config.large_writes.available_permits();
    drop(client);
    eventually(|| face.config.native.requests() == 0).await;
    assert!(70 << 10 <= face.config.budget.held(), "the replica still has it");
    assert_eq!(face.config.counters.connections.get(), 1, "and so its connection has its place");
    assert_eq!(face.config.large_writes.available_permits(), free, "and its turn");
    face.lone.release();
    eventually(|| face.config.budget.held() == 0 && face.config.counters.connections.get() == 0).await;
    assert_eq!(face.config.large_writes.available_permits(), 3 << 9);
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_little_and_is_closed() {
    let stall_deadline = Duration::from_millis(200);
    let face = Face::start(FaceConfig { stall_deadline, ..FaceConfig::default() }).await;
    let mut client = face.client().await;
    let value = "x".repeat(60 << 10);
    assert!(matches!(client.write(&encode_kv(&put("k", &value))).await, Said::Done(Ok(_))));
    let query = query("k", "");
    let asks = vec![at_once(&query); 4000];
    client.send(&asks).await;
    eventually(|| face.config.counters.connections_stalled.get() == 1).await;
    eventually(|| face.config.budget.held() == 0).await;
    assert!(face.config.counters.native_sent_bytes.get() < 4000 * (60 << 10) / 4);
}

#[tokio::test]
async fn a_frame_that_is_not_completed_ends_its_connection_and_a_quiet_connection_ends_in_time() {
    let (header_deadline, idle_deadline) = (Duration::from_millis(100), Duration::from_millis(400));
    let face = Face::start(FaceConfig { header_deadline, idle_deadline, ..FaceConfig::default() }).await;
    let mut slow = face.client().await;
    slow.stream.write_all(&[17, 0, 0]).await.unwrap();
    assert!(slow.is_closed().await);
    eventually(|| face.config.counters.connections_broken.get() == 1).await;
    let mut mute = face.stranger().await;
    mute.stream.write_all(&PREFACE).await.unwrap();
    assert!(mute.is_closed().await, "a hello must come, too");
    let mut quiet = face.client().await;
    assert!(quiet.is_closed().await);
    eventually(|| face.config.counters.connections_idle.get() == 1).await;
    assert_eq!(face.config.counters.connections_broken.get(), 2);
}

#[tokio::test]
async fn answers_that_are_too_large_are_told_so() {
    let face = Face::start(FaceConfig { max_response_bytes: 1 << 10, ..FaceConfig::default() }).await;
    let mut client = face.client().await;
    assert!(matches!(client.write(&encode_kv(&put("k", &"x".repeat(2000)))).await, Said::Done(Ok(_))));
    let read = client.ask(at_once(&query("k", ""))).await.says;
    assert_eq!(read, Said::Refused(Refusal::AnswerTooLarge, leader()));
    let again = Put { key: "k".into(), prev_kv: true, ..Put::default() };
    let written = client.write(&encode_kv(&Command::Put(again))).await;
    assert_eq!(written, Said::Unknown(Doubt::AnswerTooLarge));
    assert_eq!(version(&mut client, "k").await, 2, "it is done");
    let large = encode_kv(&put("k", &"x".repeat(1536 * 1024)));
    let refused = client.write(&large).await;
    assert_eq!(refused, Said::Refused(Refusal::RequestTooLarge, leader()));
}

#[tokio::test]
async fn no_frame_is_longer_than_the_welcome_promised_however_much_is_answered_at_once() {
    let face = Face::start(FaceConfig { max_response_bytes: 100 << 10, ..FaceConfig::default() }).await;
    let mut client = face.client().await;
    assert!(matches!(client.write(&encode_kv(&put("k", &"x".repeat(60 << 10)))).await, Said::Done(Ok(_))));
    face.lone.set(|state| state.holds = Some(vec![]));
    let query = query("k", "");
    let names = client.send(&vec![at_once(&query); 50]).await;
    eventually(|| face.lone.held() == 50).await;
    face.lone.release();
    for name in names {
        assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))));
    }
}

#[tokio::test]
async fn a_client_that_has_no_more_to_say_is_answered_all_that_it_asked() {
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client().await;
    let names = client.send(&vec![Asks::Ping; 5000]).await;
    client.stream.shutdown().await.unwrap();
    for name in names {
        assert_eq!(client.got(name).await.says, Said::Pong);
    }
    assert!(client.is_closed().await);
    assert_eq!(face.config.counters.connections_broken.get(), 0);
}

#[tokio::test]
async fn refusals_and_doubts_name_the_leader() {
    use kattu_node::contract;
    let face = Face::start(FaceConfig::default()).await;
    let mut client = face.client().await;
    let command = encode_kv(&put("k", "v"));
    let refusals = [
        (contract::Refusal::NoLeader, Refusal::NoLeader),
        (contract::Refusal::NoSpace, Refusal::NoSpace),
        (contract::Refusal::ReadTimedOut, Refusal::TimedOut),
        (contract::Refusal::LevelTooLow, Refusal::LevelTooLow),
    ];
    for (inside, outside) in refusals {
        face.lone.set(|state| state.instead = Some(Outcome::Refused(inside)));
        assert_eq!(client.write(&command).await, Said::Refused(outside, leader()));
    }
    let query_of_k = query("k", "");
    face.lone.set(|state| state.instead = Some(Outcome::Refused(contract::Refusal::ReadTimedOut)));
    for name in client.send(&[at_once(&query_of_k), at_once(&query_of_k)]).await {
        assert_eq!(client.got(name).await.says, Said::Refused(Refusal::TimedOut, leader()));
    }
    face.lone.set(|state| state.instead = Some(Outcome::Unknown(contract::Doubt::TimedOut)));
    assert_eq!(client.write(&command).await, Said::Unknown(Doubt::TimedOut));
    // A replica that ends without an outcome.
    for (asks, says) in [
        (Asks::Write { commit_only: false, command: &command }, Said::Unknown(Doubt::Stopping)),
        (at_once(&query("k", "")), Said::Refused(Refusal::Stopping, leader())),
    ] {
        face.lone.set(|state| state.holds = Some(vec![]));
        let names = client.send(&[asks.clone(), asks]).await;
        eventually(|| face.lone.held() == 2).await;
        for (mailbox, key, _) in face.lone.set(|state| state.holds.take()).unwrap() {
            mailbox.deliver(key, None);
        }
        for name in names {
            assert_eq!(client.got(name).await.says, says);
        }
    }
}

#[tokio::test]
async fn a_face_that_stops_answers_what_is_under_way() {
    let face = Face::start(FaceConfig::default()).await;
    face.lone.set(|state| state.holds = Some(vec![]));
    let mut client = face.client().await;
    let command = encode_kv(&put("k", "v"));
    let name = client.send(&[Asks::Write { commit_only: false, command: &command }]).await[0];
    eventually(|| face.lone.held() == 1).await;
    face.stop.send(true).unwrap();
    face.lone.release();
    assert!(matches!(client.got(name).await.says, Said::Done(Ok(_))));
    assert!(client.is_closed().await);
    face.served.await.unwrap();
}

#[tokio::test]
async fn the_port_for_metrics_does_not_serve_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let config = Arc::new(FaceConfig::default());
    let counted = Arc::clone(&config);
    let _served =
        on_a_thread(listener, |listener| kattu_server::serve_metrics(listener, Lone::new(), config, stopped));
    let stream = TcpStream::connect(address).await.unwrap();
    let mut client = Client::of(stream);
    client.stream.write_all(&PREFACE).await.unwrap();
    assert!(client.is_closed().await);
    eventually(|| counted.counters.connections_broken.get() == 1).await;
}
