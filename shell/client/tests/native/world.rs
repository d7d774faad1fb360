//! A cluster inside the test: members that speak the native protocol over real sockets and share one apply executor, so that
//! what was executed, and how often, is known exactly. Faults are what a test decides for each request.

use kattu_client::api::{Answer, Command as StoreCommand, Query, Response, Revision};
use kattu_client::{NativeClient, Options, SessionId};
use kattu_kv::check::{self, CheckLimits};
use kattu_kv::sessions::SessionError;
use kattu_native::frame::{FrameReader, FrameWriter};
use kattu_native::handshake::{Hello, Leader, Welcome};
use kattu_native::message::{Level, Request};
use kattu_native::reply::{Doubt, Outcome, Refusal, Reply};
use kattu_native::{PREFACE, VERSION_MAX};
use kattu_node::command::Command;
use kattu_node::contract::{self, KeeperEffects, KeeperTask, ReplyBody, Ticket, Tickets};
use kattu_node::session::SessionCommand;
use kattu_node::{Keeper, level};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, NodeId, Stamp, Term};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

pub const CLUSTER: u64 = 0xC1;
const TERM: Term = Term(1);

/// What a member does with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Executes and answers it.
    Serve,
    /// Refuses it, with a hint to the leader.
    Refuse(Refusal),
    /// Refuses it, and knows no leader.
    RefuseBare(Refusal),
    /// Executes it, and says that its outcome is unknown.
    ServeAndDoubt,
    /// Says that its outcome is unknown, and does not execute it.
    Doubt,
    /// Executes it, and closes the connection: the answers of its frame are lost.
    ServeAndClose,
    /// Closes the connection behind the answers so far; nothing more of the frame is executed.
    Close,
    /// Says that a quorum has received it, as the entry of this index; it is never executed.
    Receive(u64),
    /// The same, and the connection closes behind that.
    ReceiveAndClose(u64),
    /// Says that a quorum has received it, then executes and answers it.
    ReceiveAndServe(u64),
    /// Never answers it.
    Ignore,
    /// Says that it cannot read it, and closes.
    Malformed,
}

/// A request, as a test decides about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which member, from 0.
    pub at: usize,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Open,
    Write,
    Weak,
    Read(Level),
    KeepAlive(usize),
    Close,
    Ping,
    Other,
}

type Decide = Box<dyn FnMut(&Seen) -> Act + Send>;

/// How answers travel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// The answers of a frame are given last to first.
    pub turns_answers: bool,
    /// Each frame of answers is written in two pieces, cut at this byte.
    pub cuts_frames: Option<usize>,
    /// A member that is not the leader serves writes all the same, as one that forwards them.
    pub forwards: bool,
    /// Most operations of a transaction.
    pub txn_ops_max: Option<usize>,
}

pub struct World {
    keeper: Mutex<Keeper>,
    /// Of the log's clock, in milliseconds.
    clock: AtomicU64,
    leader: AtomicUsize,
    members: Vec<Member>,
    decide: Mutex<Decide>,
    manners: Mutex<Manners>,
    requests_max: u32,
    pub seen: Mutex<Vec<Seen>>,
    /// Requests of each frame.
    pub frames: Mutex<Vec<usize>>,
    /// Tells that something was seen.
    pub moved: Notify,
}

struct Member {
    listener: Mutex<Option<TcpListener>>,
    address: String,
}

impl World {
    /// Members that serve everything; the first leads.
    pub async fn new(count: usize) -> Arc<World> {
        World::with(count, 1000, Manners::default()).await
    }

    pub async fn with(count: usize, requests_max: u32, manners: Manners) -> Arc<World> {
        let mut members = Vec::new();
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address").to_string();
            members.push(Member { listener: Mutex::new(Some(listener)), address });
        }
        let mut keeper = Keeper::new(vec![]).of_member(NodeId(1));
        (1..=level::SESSIONS).for_each(|level| drop(apply(&mut keeper, 0, level::encode(level))));
        let world = Arc::new(World {
            keeper: Mutex::new(keeper),
            clock: AtomicU64::new(0),
            leader: AtomicUsize::new(0),
            members,
            decide: Mutex::new(Box::new(|_| Act::Serve)),
            manners: Mutex::new(manners),
            requests_max,
            seen: Mutex::default(),
            frames: Mutex::default(),
            moved: Notify::new(),
        });
        for at in 0..count {
            let listener = world.members[at].listener.lock().unwrap().take().expect("it is there");
            let world = world.clone();
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.expect("a connection");
                    tokio::spawn(world.clone().serve(at, stream));
                }
            });
        }
        world
    }

    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| member.address.clone()).collect()
    }

    pub fn client(&self) -> NativeClient {
        self.client_of(self.addresses(), Options::default())
    }

    pub fn client_of(&self, endpoints: Vec<String>, options: Options) -> NativeClient {
        NativeClient::connect(endpoints, options, None).expect("addresses").of_cluster(CLUSTER)
    }

    /// From now on.
    pub fn decide(&self, decide: impl FnMut(&Seen) -> Act + Send + 'static) {
        *self.decide.lock().unwrap() = Box::new(decide);
    }

    pub fn lead(&self, leader: usize) {
        self.leader.store(leader, Ordering::SeqCst);
    }

    /// The log's clock goes on, and with the next entry sessions end.
    pub fn pass(&self, time: std::time::Duration) {
        self.clock.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
        self.apply(kattu_node::command::encode_kv(&StoreCommand::Compact(Revision(0))));
    }

    pub fn sessions(&self) -> u64 {
        self.keeper.lock().unwrap().sessions().count()
    }

    pub fn is_there(&self, id: SessionId) -> bool {
        self.keeper
            .lock()
            .unwrap()
            .sessions()
            .list(id.number, 1)
            .first()
            .is_some_and(|(number, _)| *number == id.number)
    }

    /// The version of a key: how often it was put since it was made. 0 if there is none.
    pub fn version(&self, key: &str) -> i64 {
        let keys = kattu_client::api::KeyRange { start: key.into(), end: vec![] };
        let range = kattu_client::api::Range { keys, ..Default::default() };
        let read = self.keeper.lock().unwrap().store().query(&Query::Range(range)).expect("a read");
        let Answer::Range(range) = read.answer else { panic!("a range") };
        range.kvs.first().map_or(0, |pair| pair.version)
    }

    /// Returns when the condition holds; it is looked at again with each request.
    pub async fn until(&self, mut holds: impl FnMut(&[Seen]) -> bool) {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if holds(&self.seen.lock().unwrap()) {
                return;
            }
            moved.await;
        }
    }

    fn apply(&self, payload: Vec<u8>) -> (u64, contract::Outcome) {
        let mut keeper = self.keeper.lock().unwrap();
        let outcome = apply(&mut keeper, self.clock.load(Ordering::SeqCst), payload);
        (keeper.applied().0, outcome)
    }

    fn hint(&self) -> Leader {
        let leader = self.leader.load(Ordering::SeqCst);
        Leader { id: leader as u64 + 1, url: format!("http://{}", self.members[leader].address) }
    }

    fn welcome(&self, at: usize, hello: &Hello) -> Welcome {
        let is_common = (hello.version_min..=hello.version_max).contains(&VERSION_MAX);
        Welcome {
            version: if is_common { VERSION_MAX } else { 0 },
            cluster: CLUSTER,
            member: at as u64 + 1,
            leader: self.hint(),
            frame_bytes_max: 1 << 20,
            answer_bytes_max: 16 << 20,
            requests_max: self.requests_max,
        }
    }

    /// One connection, until either side closes it.
    async fn serve(self: Arc<World>, at: usize, stream: TcpStream) {
        stream.set_nodelay(true).expect("a socket");
        let _ = self.speak(at, stream).await;
    }

    pub async fn speak(
        &self,
        at: usize,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await?;
        if preface != PREFACE {
            return Ok(());
        }
        let reader = FrameReader::new(crc32c::crc32c_append, 1 << 20);
        let mut read = Vec::new();
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        let mut is_met = false;
        loop {
            let mut closes = false;
            while let Some((messages, length)) = reader.next(&read).expect("frames of a client") {
                let mut answers = Vec::new();
                let mut count = 0;
                for message in messages {
                    let message = message.expect("a message");
                    if !is_met {
                        self.welcome(at, &Hello::read(&message).expect("a hello")).write(&mut writer);
                        is_met = true;
                        continue;
                    }
                    count += 1;
                    let request = Request::read(&message).expect("a request");
                    let act = self.decide_on(at, &request);
                    let (answer, close) = self.act(act, &request);
                    if let Act::ReceiveAndServe(index) = act {
                        answers.push((message.request, received(index)));
                    }
                    answers.extend(answer.map(|answer| (message.request, answer)));
                    if close {
                        closes = true;
                        if act == Act::ServeAndClose {
                            answers.clear();
                        }
                        break;
                    }
                }
                if count > 0 {
                    self.frames.lock().unwrap().push(count);
                }
                let manners = *self.manners.lock().unwrap();
                if manners.turns_answers {
                    answers.reverse();
                }
                answers.iter().for_each(|(name, answer)| answer.write(*name, &mut writer));
                read.drain(..length);
                if !writer.is_empty() {
                    let bytes = writer.take();
                    let cut = manners.cuts_frames.map_or(bytes.len(), |cut| cut.min(bytes.len()));
                    for piece in [&bytes[..cut], &bytes[cut..]] {
                        stream.write_all(piece).await?;
                        stream.flush().await?;
                        tokio::task::yield_now().await;
                    }
                }
                self.moved.notify_waiters();
                if closes {
                    return stream.shutdown().await;
                }
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
    }

    fn decide_on(&self, at: usize, request: &Request<'_>) -> Act {
        let kind = match request {
            Request::Open(_) => Kind::Open,
            Request::Write { .. } => Kind::Write,
            Request::Weak(_) => Kind::Weak,
            Request::Read { level, .. } => Kind::Read(*level),
            Request::KeepAlive(named) => Kind::KeepAlive(named.len()),
            Request::Close(_) => Kind::Close,
            Request::Ping => Kind::Ping,
            Request::Sessions { .. } | Request::Expel(_) => Kind::Other,
        };
        let seen = Seen { at, kind };
        let act = (self.decide.lock().unwrap())(&seen);
        self.seen.lock().unwrap().push(seen);
        let is_leader = self.leader.load(Ordering::SeqCst) == at;
        let needs_leader = !matches!(
            kind,
            Kind::Ping | Kind::Read(Level::AtLeast(_) | Level::Bounded(_) | Level::Serializable)
        );
        match act {
            Act::Serve if needs_leader && !is_leader && !self.manners.lock().unwrap().forwards => {
                Act::Refuse(Refusal::LeaderChanged)
            }
            act => act,
        }
    }

    /// The answer, and whether the member closes behind it.
    fn act(&self, act: Act, request: &Request<'_>) -> (Option<Answered>, bool) {
        let say = |outcome| (Some(Answered { index: 0, strong: 0, outcome }), false);
        match act {
            Act::Serve | Act::ReceiveAndServe(_) => (Some(self.execute(request)), false),
            Act::Receive(index) => (Some(received(index)), false),
            Act::ReceiveAndClose(index) => (Some(received(index)), true),
            Act::Refuse(refusal) => say(Said::Refused(refusal, self.hint())),
            Act::RefuseBare(refusal) => say(Said::Refused(refusal, Leader::default())),
            Act::ServeAndDoubt => {
                self.execute(request);
                say(Said::Doubt(Doubt::TimedOut))
            }
            Act::Doubt => say(Said::Doubt(Doubt::LeaderChanged)),
            Act::ServeAndClose => {
                self.execute(request);
                (None, true)
            }
            Act::Close => (None, true),
            Act::Ignore => (None, false),
            Act::Malformed => (Some(Answered { index: 0, strong: 0, outcome: Said::Malformed }), true),
        }
    }

    fn execute(&self, request: &Request<'_>) -> Answered {
        let payload = match request {
            Request::Open(order) => {
                let secret = 0x5EC_2E7 ^ self.clock.load(Ordering::SeqCst);
                SessionCommand::Register { secret, order: *order }.encode()
            }
            Request::Write { commit_only: true, .. } => unreachable!("no client asks for that"),
            Request::Write { command, .. } | Request::Weak(command) => {
                if let Some(refused) = self.judge(command) {
                    return Answered { index: 0, strong: 0, outcome: refused };
                }
                command.to_vec()
            }
            Request::KeepAlive(named) => SessionCommand::KeepAlive(named.clone()).encode(),
            Request::Close(named) => SessionCommand::Close(named.clone()).encode(),
            Request::Expel(number) => SessionCommand::Expel(*number).encode(),
            Request::Ping => return self.at_applied(Said::Done(vec![])),
            Request::Read { query, .. } => {
                let query = Query::decode(query).expect("a query");
                let result = self.keeper.lock().unwrap().store().query(&query);
                return self.at_applied(Said::Done(encoded(&result)));
            }
            Request::Sessions { from, count } => {
                let keeper = self.keeper.lock().unwrap();
                let list = keeper.sessions().list(*from, *count as usize);
                let list =
                    list.into_iter().map(|(number, silent)| (number, silent.as_millis() as u64)).collect();
                let all = keeper.sessions().count();
                drop(keeper);
                return self.at_applied(Said::Sessions { all, list });
            }
        };
        let (index, outcome) = self.apply(payload);
        let contract::Outcome::Done(reply) = outcome else {
            return Answered { index, strong: 0, outcome: Said::Doubt(Doubt::AnswerTooLarge) };
        };
        let outcome = match reply.body {
            ReplyBody::Kv(response) => Said::Done(encoded(&Ok(response))),
            ReplyBody::KvError(error) => Said::Done(encoded(&Err(error))),
            ReplyBody::SessionError(error) => Said::SessionError(error),
            ReplyBody::Registered { id, idle } => Said::Opened { id, idle: idle.as_millis() as u64 },
            ReplyBody::Named { gone, idle } => Said::Named { idle: idle.as_millis() as u64, gone },
            other => panic!("no request of a client is answered by {other:?}"),
        };
        Answered { index, strong: reply.strong, outcome }
    }

    /// What the store would refuse whatever it holds: in a session the number stays free.
    fn judge(&self, bytes: &[u8]) -> Option<Said> {
        let (is_in_session, command) = match Command::decode(bytes).expect("a command") {
            Command::Kv(command) => (false, command),
            Command::InSession { command, .. } => (true, command),
            other => panic!("no client sends {other:?}"),
        };
        let txn_ops_max = self.manners.lock().unwrap().txn_ops_max.unwrap_or(128);
        let limits = CheckLimits { txn_ops_max, ..CheckLimits::default() };
        let checked = match &command {
            StoreCommand::Put(put) => check::check_put(put.as_ref()),
            StoreCommand::DeleteRange(delete) => check::check_delete_range(delete),
            StoreCommand::Txn(txn) => check::check_txn(txn, &limits),
            StoreCommand::Compact(_) => Ok(()),
        };
        let error = checked.err()?;
        Some(match is_in_session {
            true => Said::Refused(Refusal::Invalid, self.hint()),
            false => Said::Done(encoded(&Err(error))),
        })
    }

    fn at_applied(&self, outcome: Said) -> Answered {
        Answered { index: self.keeper.lock().unwrap().applied().0, strong: 0, outcome }
    }
}

/// An answer that owns its bytes.
struct Answered {
    index: u64,
    strong: u64,
    outcome: Said,
}

enum Said {
    Done(Vec<u8>),
    Opened { id: SessionId, idle: u64 },
    Named { idle: u64, gone: Vec<SessionId> },
    SessionError(SessionError),
    Refused(Refusal, Leader),
    Doubt(Doubt),
    Sessions { all: u64, list: Vec<(u64, u64)> },
    Received,
    Malformed,
}

/// A quorum has received a command as the entry of this index.
fn received(index: u64) -> Answered {
    Answered { index, strong: 0, outcome: Said::Received }
}

impl Answered {
    fn write(&self, name: u64, writer: &mut FrameWriter) {
        let outcome = match &self.outcome {
            Said::Done(bytes) => Outcome::Done(bytes),
            Said::Opened { id, idle } => Outcome::Opened { id: *id, idle: *idle },
            Said::Named { idle, gone } => Outcome::Named { idle: *idle, gone: gone.clone() },
            Said::SessionError(error) => Outcome::SessionError(*error),
            Said::Refused(refusal, leader) => Outcome::Refused(*refusal, leader.clone()),
            Said::Doubt(doubt) => Outcome::Unknown(*doubt, Leader::default()),
            Said::Received => Outcome::Received { term: TERM.0 },
            Said::Sessions { all, list } => Outcome::Sessions { all: *all, list: list.clone() },
            Said::Malformed => Outcome::Malformed,
        };
        Reply { index: self.index, strong: self.strong, outcome }.write(name, writer);
    }
}

fn encoded(result: &Result<Response, kattu_client::api::Error>) -> Vec<u8> {
    let mut bytes = Vec::new();
    kattu_kv::answer::encode(result, &mut bytes);
    bytes
}

/// Applies the next entry as of this time of the log's clock.
fn apply(keeper: &mut Keeper, millis: u64, payload: Vec<u8>) -> contract::Outcome {
    let id = EntryId { term: TERM, index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(millis) };
    let entry = Entry::new(head, payload.into(), 0);
    let mut effects = KeeperEffects::default();
    keeper.handle(KeeperTask::Apply { entry, tickets: Tickets::One(Ticket(1)), term: TERM }, &mut effects);
    effects.reply.pop().expect("an answer").1
}

/// A number by chance, from a seed: the same in every run.
pub struct Chance(pub u64);

impl Chance {
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}
