//! One connection of the native protocol: all its requests under way, driven by one task. [docs/formats/native.md]
//!
//! ```text
//!            ┌───────────────────────── one task ─────────────────────────┐
//!  socket ─▶ │ frames ─▶ requests judged ─▶ replica                       │
//!            │                              mailbox ─▶ answers in a frame │ ─▶ socket
//!            └─────────────────────── until nothing moves ────────────────┘
//! ```
//! In:    a client's bytes; outcomes, under the number of their place here.
//! Out:   requests for the replica; frames of answers, all of one turn in one write.
//! Rules: 1. No more is read while the client has `REQUESTS_MAX` requests under way, or more answers unsent than
//!           `UNSENT_MAX`, or its share of what the member has under way: the client waits in its own socket.
//!        2. What a request holds is counted before it is asked ([`crate::budget`]). One for which there is no memory is
//!           refused; where there is none for the refusal, the connection waits.
//!        3. Commands of sessions enter the replica in the order in which they came: one that has to wait holds back all that
//!           come behind it on its connection.
//!        4. What the replica has outlives the connection, and so does what was counted for it.
//! Knows nothing of: the meaning of commands, other connections.

mod answer;
mod input;
mod load;
mod lookups;
mod output;
mod puts;
mod request;

use crate::budget::{Account, Hold};
use crate::counters::Counters;
use crate::face::{Face, FaceConfig};
use crate::kv;
use crate::patience::{Enough, Patience};
use crate::replica::Replica;
use crate::turns::{self, Talker};
use input::Input;
use kattu_kv::sessions::Order;
use kattu_native::handshake::{Hello, Leader, Welcome};
use kattu_native::reply::{self, Refusal};
use kattu_native::{PREFACE, VERSION_MAX, VERSION_MIN};
use kattu_node::contract::{self, Doubt, Outcome, ReplyBody};
use kattu_raft::EntryId;
use kattu_runtime::{Arrived, Mailbox};
use kattu_tls::Socket;
pub use load::Load;
use lookups::{LookUp, LookUps};
use output::Output;
use puts::{Put, Puts};
use request::{Judged, Kind, judge};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

/// Requests of one connection under way: as many as one session may have without an acknowledged answer.
const REQUESTS_MAX: usize = kattu_kv::sessions::WINDOW as usize;

/// Bytes of answers that may wait for the socket while more requests are read.
const UNSENT_MAX: usize = 256 << 10;

/// Bytes counted for a request besides its command: its place here, in the replica, and a small answer.
const REQUEST_BYTES: u64 = 256;

/// Bytes of an answer with a pair, beside its key and its value, and what the pair takes in memory.
const PAIR_ROOM: usize = 256;

/// Input buffers up to this size are counted with the connection. [`crate::budget::CONNECTION_BYTES`]
const INPUT_BYTES: u64 = input::ROOM as u64;

/// What is counted changes in steps of this size, so that it is not changed with each request.
const HOLD_STEP: u64 = 16 << 10;

/// Places for requests that a connection keeps with nothing under way.
const PLACES_KEPT: usize = 16;

/// Requests that a thread's talkers begin in one round, and one connection in a turn.
const ROUND_REQUESTS: usize = 4096;
const TURN_REQUESTS_MIN: usize = 32;
const TURN_REQUESTS_MAX: usize = 1024;

/// Bytes of a hello's frame.
const HELLO_BYTES_MAX: u32 = 64 << 10;

/// Room beside a command in a frame.
const FRAME_ROOM: usize = 64 << 10;

/// Sessions that one connection may open.
const OPENED_MAX: u64 = 16 << 10;

/// Pause of a connection that cannot go on for lack of memory.
const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// Longest time in which a client reads why its connection is closed.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Whether so many bytes may be held in all.
fn grants(hold: &mut Hold, wanted: u64) -> bool {
    wanted <= hold.bytes() || hold.resize(wanted.next_multiple_of(HOLD_STEP)) || hold.resize(wanted)
}

/// Bytes counted for a read of a single key.
fn lookup_bytes(key: &[u8]) -> u64 {
    REQUEST_BYTES + key.len() as u64
}

/// Serves one connection until it ends. Once the face stops it takes no new requests and ends after those under way.
///
/// # Errors
/// What broke the connection.
pub(crate) async fn serve<R: Replica>(
    mut stream: Socket,
    face: &Face<R>,
    account: &Rc<Account>,
) -> io::Result<()> {
    let mut input = Input::new(HELLO_BYTES_MAX);
    let config = &face.config;
    let shaken = shake_hands(&mut stream, &mut input, face);
    let agreed = tokio::time::timeout(config.header_deadline, shaken).await??;
    if let Some(version) = agreed {
        input.accept(frame_bytes_max(config));
        let mut connection = Connection::new(face, account, input, version);
        let mut stop = face.stop.clone();
        let mut stopping = pin!(stop.wait_for(|stop| *stop));
        let mut look = pin!(tokio::time::sleep(config.limits().look_every()));
        poll_fn(|context| {
            if !connection.is_ending && stopping.as_mut().poll(context).is_ready() {
                connection.is_ending = true;
            }
            connection.poll(&mut stream, look.as_mut(), context)
        })
        .await?;
    }
    let _ = tokio::time::timeout(FAREWELL_MAX, farewell(&mut stream)).await; // the client need not read it
    Ok(())
}

/// Ends the sending side, and reads on, so that what was sent is not lost to a client that still sends.
async fn farewell(stream: &mut Socket) -> io::Result<()> {
    stream.shutdown().await?;
    let mut scrap = [0; 4 << 10];
    while stream.read(&mut scrap).await? != 0 {}
    Ok(())
}

/// The version of the connection, if it goes on behind hello and welcome.
async fn shake_hands<R: Replica>(
    stream: &mut Socket,
    input: &mut Input,
    face: &Face<R>,
) -> io::Result<Option<u16>> {
    let preface = loop {
        match input.take_first() {
            Some(preface) => break preface,
            None => read_more(stream, input).await?,
        }
    };
    if preface != PREFACE {
        return Err(malformed("no preface of the native protocol"));
    }
    let hello = loop {
        if let Some(message) = input.next().map_err(malformed)? {
            break Hello::read(&message).map_err(malformed)?;
        }
        read_more(stream, input).await?;
    };
    let version = VERSION_MAX.min(hello.version_max);
    let is_shared = VERSION_MIN.max(hello.version_min) <= version;
    let cluster = face.replica.cluster_id();
    let is_meant = hello.cluster == 0 || hello.cluster == cluster;
    let config = &face.config;
    let welcome = Welcome {
        version: if is_shared { version } else { 0 },
        cluster,
        member: face.replica.member_id().0,
        leader: leader(face),
        frame_bytes_max: frame_bytes_max(config),
        answer_bytes_max: u32::try_from(config.max_response_bytes() + FRAME_ROOM).unwrap_or(u32::MAX),
        requests_max: REQUESTS_MAX as u32,
    };
    let mut output = Output::new();
    welcome.write(output.frame());
    poll_fn(|context| output.poll_send(stream, context)).await?;
    Ok(Some(version).filter(|_| is_shared && is_meant && hello.principal == 0))
}

async fn read_more(stream: &mut Socket, input: &mut Input) -> io::Result<()> {
    match poll_fn(|context| input.poll_read(stream, HELLO_BYTES_MAX as usize, context)).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn malformed(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn frame_bytes_max(config: &FaceConfig) -> u32 {
    u32::try_from(config.request_bytes_max + FRAME_ROOM).unwrap_or(u32::MAX)
}

/// The leader that this member follows, as a client is told of it.
fn leader<R: Replica>(face: &Face<R>) -> Leader {
    let id = face.replica.leader();
    let url = id.and_then(|id| face.replica.client_url(id)).unwrap_or_default();
    Leader { id: id.map_or(0, |id| id.0), url }
}

/// What the replica has.
#[derive(Debug)]
enum UnderWay {
    /// A request.
    One {
        /// The client's name for it.
        name: u64,
        kind: Kind,
        /// Bytes that are counted for it.
        bytes: u64,
        /// Its turn, if it is a large write.
        _turn: Option<OwnedSemaphorePermit>,
    },
    /// Reads of single keys, in one request.
    Many(LookUp),
}

type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>>>>;

/// A large write that waits for its turn.
struct Waiting {
    turn: Turn,
    name: u64,
    kind: Kind,
    request: contract::Request,
    bytes: u64,
}

/// One connection behind its handshake.
struct Connection<'a, R> {
    face: &'a Face<R>,
    /// Of the protocol, as both sides agreed.
    version: u16,
    input: Input,
    output: Output,
    mailbox: Arc<Mailbox>,
    arrived: Vec<Arrived>,
    /// Requests under way, each at its key; and keys that are free.
    under_way: Vec<Option<UnderWay>>,
    free: Vec<usize>,
    /// Requests that the client has under way.
    count: usize,
    /// Those of them that the replica gets at the end of this turn, or sooner.
    puts: Puts,
    lookups: LookUps,
    /// Of [`Load`]: as many as were counted there.
    counted: usize,
    waiting: Option<Waiting>,
    /// Commands in sessions whose cost is being checked. [rule 3]
    weighed: usize,
    opened: u64,
    hold: Hold,
    /// Bytes of requests under way and of answers on their way.
    held: u64,
    talker: Talker,
    patience: Patience,
    /// The frame that is incomplete, and since when.
    begun: Option<(u64, Instant)>,
    whole_by: Pin<Box<Sleep>>,
    starved: Option<Pin<Box<Sleep>>>,
    /// The client sends nothing more.
    is_over: bool,
    /// No request is taken any more, and the connection ends after those under way.
    is_ending: bool,
}

impl<'a, R: Replica> Connection<'a, R> {
    fn new(face: &'a Face<R>, account: &Rc<Account>, input: Input, version: u16) -> Connection<'a, R> {
        Connection {
            face,
            version,
            input,
            output: Output::new(),
            mailbox: Arc::default(),
            arrived: Vec::new(),
            under_way: Vec::new(),
            free: Vec::new(),
            count: 0,
            puts: Puts::default(),
            lookups: LookUps::default(),
            counted: 0,
            waiting: None,
            weighed: 0,
            opened: 0,
            hold: Hold::nothing(account),
            held: 0,
            talker: Talker::default(),
            patience: Patience::new(face.config.limits(), Instant::now()),
            begun: None,
            whole_by: Box::pin(tokio::time::sleep(Duration::ZERO)),
            starved: None,
            is_over: false,
            is_ending: false,
        }
    }

    fn counters(&self) -> &'a Counters {
        &self.face.config.counters
    }

    fn poll(
        &mut self,
        stream: &mut Socket,
        mut look: Pin<&mut Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.starved = None;
        let mut turn = Turns::new();
        loop {
            let answered = self.take_outcomes(context);
            let mut moved = self.poll_waiting(context);
            let reading = self.read(stream, &mut turn, context)?;
            moved |= reading == Reading::Moved;
            let unsent = self.output.unsent();
            if let Poll::Ready(sent) = self.output.poll_send(stream, context) {
                sent?;
            }
            let left = unsent - self.output.unsent();
            self.counters().native_sent_bytes.add(left as u64);
            self.held -= (left as u64).min(self.held);
            self.count_load();
            if answered || moved || (0 < left && reading == Reading::Waits) {
                continue;
            }
            let is_done = self.is_over || self.is_ending;
            if is_done && self.count == 0 && self.waiting.is_none() && self.output.unsent() == 0 {
                let is_cut = self.is_over && !self.is_ending && self.input.has_begun();
                return Poll::Ready(if is_cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) });
            }
            self.settle_hold();
            self.talker.set(reading == Reading::TurnOver);
            if reading == Reading::TurnOver {
                turns::wake_after_a_look(context);
            }
            if self.poll_frame_deadline(reading, context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            while look.as_mut().poll(context).is_ready() {
                let now = Instant::now();
                look.as_mut().reset(now + self.face.config.limits().look_every());
                let is_busy = 0 < self.count || self.waiting.is_some();
                match self.patience.look(now, self.input.frames(), is_busy, self.output.pieces()) {
                    Ok(()) => {}
                    Err(Enough::Idle) => {
                        self.counters().connections_idle.add(1);
                        return Poll::Ready(Ok(()));
                    }
                    Err(Enough::Stalled) => {
                        self.counters().connections_stalled.add(1);
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
            }
            return Poll::Pending;
        }
    }

    /// Answers the requests whose outcomes are there. Returns whether there were any.
    fn take_outcomes(&mut self, context: &mut Context<'_>) -> bool {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.mailbox.collect(&mut arrived, context.waker());
        let (any, before) = (!arrived.is_empty(), self.count);
        for (key, outcome) in arrived.drain(..) {
            let key = usize::try_from(key).expect("keys are places here");
            if let Some(Outcome::Received(id)) = outcome {
                self.tell_received(key, id);
                continue;
            }
            let under_way = self.under_way[key].take().expect("an outcome comes once");
            self.free.push(key);
            match under_way {
                UnderWay::One { name, kind, bytes, .. } => {
                    self.count -= 1;
                    self.weighed -= usize::from(kind == Kind::WeighedInSession);
                    let nothing = || match kind {
                        Kind::Read | Kind::Sessions { .. } => Outcome::Refused(contract::Refusal::Stopping),
                        _ => Outcome::Unknown(Doubt::Stopping),
                    };
                    self.answer(name, kind, outcome.unwrap_or_else(nothing), bytes);
                }
                UnderWay::Many(lookup) => {
                    let nothing = Outcome::Refused(contract::Refusal::Stopping);
                    self.answer_all(&lookup, outcome.unwrap_or(nothing));
                }
            }
        }
        self.arrived = arrived;
        if any {
            self.face.config.native.answered(before - self.count);
        }
        any
    }

    /// Tells the client that a quorum has received its command: the final answer follows.
    fn tell_received(&mut self, key: usize, id: EntryId) {
        let Some(UnderWay::One { name, .. }) = &self.under_way[key] else { return };
        let before = self.output.unsent() as u64;
        let outcome = reply::Outcome::Received { term: id.term.0 };
        reply::Reply { index: id.index.0, strong: 0, outcome }.write(*name, self.output.frame());
        self.trade(0, before);
    }

    /// Answers a request for which so many bytes were counted.
    fn answer(&mut self, name: u64, kind: Kind, outcome: Outcome, bytes: u64) {
        let outcome = self.fit(kind, outcome);
        let before = self.output.unsent() as u64;
        let face = self.face;
        let index = face.replica.committed().0;
        answer::write(name, kind, outcome, index, || leader(face), self.output.frame());
        self.trade(bytes, before);
    }

    /// Answers reads of single keys, all of which have this outcome.
    fn answer_all(&mut self, lookup: &LookUp, outcome: Outcome) {
        self.count -= lookup.names.len();
        let reads = lookup.names.iter().zip(lookup.keys.iter());
        match outcome {
            Outcome::Done(contract::Reply { term, strong, body: ReplyBody::Found(all) }) => {
                let index = self.face.replica.committed().0;
                for ((&name, key), found) in reads.zip(all.iter()) {
                    let (bytes, most) = (lookup_bytes(key), found.bytes() + PAIR_ROOM);
                    if most <= self.face.config.max_response_bytes() && self.may_hold(most as u64) {
                        let before = self.output.unsent() as u64;
                        reply::write_found(name, index, &found, self.output.frame());
                        self.trade(bytes, before);
                    } else {
                        let body = ReplyBody::Kv(found.response());
                        let outcome = Outcome::Done(contract::Reply { term, strong, body });
                        self.answer(name, Kind::Read, outcome, bytes);
                    }
                }
            }
            outcome => {
                reads.for_each(|(&name, key)| {
                    self.answer(name, Kind::Read, outcome.clone(), lookup_bytes(key));
                });
            }
        }
    }

    /// So many bytes of a request become those of its answer.
    fn trade(&mut self, bytes: u64, unsent_before: u64) {
        let answer = self.output.unsent() as u64 - unsent_before;
        self.held = (self.held + answer).saturating_sub(bytes);
    }

    /// The outcome, unless its answer would be too large, or there is no memory for it.
    fn fit(&mut self, kind: Kind, outcome: Outcome) -> Outcome {
        let Some(answer) = answer::pairs_of(&outcome) else { return outcome };
        let config = &self.face.config;
        let len = crate::encode::pairs_len(answer);
        let is_too_large = config.max_response_bytes() < len;
        if is_too_large {
            config.counters.answers_too_large.add(1);
        }
        if !is_too_large && self.may_hold(kv::held_len(answer, len)) {
            return outcome;
        }
        match kind {
            Kind::Read if is_too_large => Outcome::Refused(contract::Refusal::AnswerTooLarge),
            Kind::Read => Outcome::Refused(contract::Refusal::TooManyRequests),
            _ => Outcome::Unknown(Doubt::AnswerTooLarge),
        }
    }

    /// Whether so many bytes more may be held.
    fn may_hold(&mut self, more: u64) -> bool {
        let wanted = self.needed() + more;
        grants(&mut self.hold, wanted)
    }

    /// Bytes to be counted now.
    fn needed(&self) -> u64 {
        self.held + self.input.held().saturating_sub(INPUT_BYTES)
    }

    /// Gives back what is not needed any more.
    fn settle_hold(&mut self) {
        self.input.rest();
        if self.count == 0 {
            self.rest();
        }
        let needed = self.needed();
        if needed == 0 {
            drop(self.hold.split(self.hold.bytes()));
        } else if needed + 4 * HOLD_STEP <= self.hold.bytes() {
            let _ = self.hold.resize(needed + HOLD_STEP); // less is always granted
        }
    }

    /// Gives back the room of many requests, where none is under way: it is counted for each of them, and for no connection.
    fn rest(&mut self) {
        self.output.rest();
        if PLACES_KEPT < self.under_way.capacity().max(self.arrived.capacity()) {
            (self.under_way, self.free, self.arrived) = Default::default();
            self.mailbox.rest();
        }
        self.puts.rest();
    }

    /// Asks the replica, or answers at once.
    fn ask(
        &mut self,
        name: u64,
        kind: Kind,
        request: contract::Request,
        bytes: u64,
        turn: Option<OwnedSemaphorePermit>,
    ) {
        let under_way = UnderWay::One { name, kind, bytes, _turn: turn };
        if let Some((outcome, _)) = self.post(request, under_way) {
            return self.answer(name, kind, outcome, bytes);
        }
        self.count += 1;
        self.weighed += usize::from(kind == Kind::WeighedInSession);
    }

    /// Asks the replica; returns the outcome if it is there at once.
    fn post(&mut self, request: contract::Request, under_way: UnderWay) -> Option<(Outcome, UnderWay)> {
        let key = match self.free.pop() {
            Some(key) => key,
            None => {
                self.under_way.push(None);
                self.under_way.len() - 1
            }
        };
        if let Some(outcome) = self.face.replica.post(request, &self.mailbox, key as u64) {
            self.free.push(key);
            return Some((outcome, under_way));
        }
        self.under_way[key] = Some(under_way);
        None
    }

    /// Asks the replica for the puts that were gathered.
    fn put(&mut self) {
        while !self.puts.is_empty() {
            self.put_some();
        }
    }

    /// Asks the replica for those with commands in the full buffer, or else in the other one.
    fn put_some(&mut self) {
        let mut puts = std::mem::take(&mut self.puts);
        for (Put { name, bytes, .. }, request) in puts.take() {
            let kind = Kind::Write;
            if let Some((outcome, _)) = self.post(request, UnderWay::One { name, kind, bytes, _turn: None }) {
                self.count -= 1;
                self.answer(name, kind, outcome, bytes);
            }
        }
        self.puts = puts;
    }

    /// Asks the replica for the keys that were gathered.
    fn look_up(&mut self) {
        for (lookup, consistency) in self.lookups.take() {
            let request = contract::Request::LookUp(Arc::clone(&lookup.keys), consistency);
            if let Some((outcome, UnderWay::Many(lookup))) = self.post(request, UnderWay::Many(lookup)) {
                self.answer_all(&lookup, outcome);
            }
        }
    }

    fn poll_waiting(&mut self, context: &mut Context<'_>) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        let Poll::Ready(turn) = waiting.turn.as_mut().poll(context) else { return false };
        let Waiting { name, kind, request, bytes, .. } = self.waiting.take().expect("it waits");
        match turn {
            Some(turn) => self.ask(name, kind, request, bytes, Some(turn)),
            None => self.answer(name, kind, Outcome::Refused(contract::Refusal::Stopping), bytes),
        }
        true
    }

    /// Whether the next request may be taken. [rules 1, 3]
    fn takes_more(&self) -> bool {
        !self.is_ending
            && self.waiting.is_none()
            && self.weighed == 0
            && self.count < self.face.config.native.share(REQUESTS_MAX)
            && self.output.unsent() < UNSENT_MAX
    }

    /// Takes in what the client has sent, for one turn at most.
    fn read(
        &mut self,
        stream: &mut Socket,
        turn: &mut Turns,
        context: &mut Context<'_>,
    ) -> io::Result<Reading> {
        let reading = self.take_messages(stream, turn, context);
        self.put();
        self.look_up();
        reading
    }

    fn take_messages(
        &mut self,
        stream: &mut Socket,
        turn: &mut Turns,
        context: &mut Context<'_>,
    ) -> io::Result<Reading> {
        let mut reading = Reading::Idle;
        loop {
            if !self.takes_more() {
                return Ok(if reading == Reading::Moved { reading } else { Reading::Waits });
            }
            if turn.is_over() {
                return Ok(Reading::TurnOver);
            }
            // A request is begun only if there is memory for a refusal of it. [rule 2]
            if !self.may_hold(REQUEST_BYTES) {
                return Ok(self.starve(context));
            }
            if self.puts.is_full() {
                self.put_some();
            }
            if self.take_message()? {
                turn.requests -= 1;
                reading = Reading::Moved;
                continue;
            }
            if self.is_over {
                return Ok(reading);
            }
            let more = self.input.grows_by() as u64;
            if 0 < more && !self.may_hold(REQUEST_BYTES + more) {
                return Ok(self.starve(context));
            }
            match self.input.poll_read(stream, turn.bytes, context)? {
                Poll::Pending => return Ok(reading),
                Poll::Ready(0) => self.is_over = true,
                Poll::Ready(bytes) => {
                    self.counters().native_received_bytes.add(bytes as u64);
                    turn.bytes -= bytes;
                }
            }
        }
    }

    /// Waits for memory.
    fn starve(&mut self, context: &mut Context<'_>) -> Reading {
        let pause = self.starved.insert(Box::pin(tokio::time::sleep(STARVED_PAUSE)));
        let polled = pause.as_mut().poll(context);
        debug_assert!(polled.is_pending(), "it has only begun");
        Reading::Starves
    }

    /// Takes the next request, if one is complete.
    fn take_message(&mut self) -> io::Result<bool> {
        let (needed, here) = (self.needed(), self.input.left());
        let Some(message) = self.input.next().map_err(malformed)? else { return Ok(false) };
        let name = message.request;
        let length = message.fields.len() as u64;
        let judged = judge(&message, self.version, &self.face.config);
        self.face.config.counters.native_requests.add(1);
        let bytes = REQUEST_BYTES + length;
        match judged {
            Judged::Put(command) if grants(&mut self.hold, needed + bytes) => {
                self.puts.add(name, bytes, command, here);
                self.count += 1;
                self.held += bytes;
            }
            Judged::Put(_) => self.refuse(name, Refusal::TooManyRequests),
            Judged::Ask(request, kind) => {
                self.put(); // rule 3
                if !self.may_hold(bytes) {
                    self.refuse(name, Refusal::TooManyRequests);
                    return Ok(true);
                }
                self.held += bytes;
                let large = request.command().map_or(0, <[u8]>::len);
                match kv::large_turn(&self.face.config, large) {
                    None => self.ask(name, kind, request, bytes, None),
                    Some(turn) => {
                        let turn: Turn = Box::pin(turn);
                        self.waiting = Some(Waiting { turn, name, kind, request, bytes });
                    }
                }
            }
            Judged::LookUp(key, consistency) if grants(&mut self.hold, needed + lookup_bytes(key)) => {
                self.lookups.add(name, key, consistency);
                self.count += 1;
                self.held += lookup_bytes(key);
            }
            Judged::LookUp(..) => self.refuse(name, Refusal::TooManyRequests),
            Judged::Open(order) => self.open(name, order, bytes)?,
            Judged::Pong => self.say(name, reply::Outcome::Done(&[])),
            Judged::Invalid(error) => {
                let before = self.output.unsent() as u64;
                let index = self.face.replica.committed().0;
                reply::write_done(name, index, 0, &Err(error), self.output.frame());
                self.trade(0, before);
            }
            Judged::Refused(refusal) => self.refuse(name, refusal),
            Judged::Malformed => {
                self.say(name, reply::Outcome::Malformed);
                self.counters().connections_broken.add(1);
                self.is_ending = true;
            }
        }
        Ok(true)
    }

    fn open(&mut self, name: u64, order: Order, bytes: u64) -> io::Result<()> {
        if OPENED_MAX <= self.opened {
            self.refuse(name, Refusal::TooManyRequests);
            return Ok(());
        }
        self.opened += 1;
        self.put();
        let request = request::open(request::secret()?, order);
        self.held += bytes;
        self.ask(name, Kind::Write, request, bytes, None);
        Ok(())
    }

    fn refuse(&mut self, name: u64, refusal: Refusal) {
        let leader = leader(self.face);
        self.say(name, reply::Outcome::Refused(refusal, leader));
    }

    /// Answers a request that the replica does not see.
    fn say(&mut self, name: u64, outcome: reply::Outcome<'_>) {
        let before = self.output.unsent() as u64;
        let index = self.face.replica.committed().0;
        reply::Reply { index, strong: 0, outcome }.write(name, self.output.frame());
        self.trade(0, before);
    }

    /// Ready when an incomplete frame is not completed in time. Time in which the member does not read does not count.
    fn poll_frame_deadline(&mut self, reading: Reading, context: &mut Context<'_>) -> Poll<()> {
        let waits_for_client = matches!(reading, Reading::Idle | Reading::Moved);
        if !waits_for_client || !self.input.has_begun() || self.is_over {
            self.begun = None;
            return Poll::Pending;
        }
        let number = self.input.frames();
        let now = Instant::now();
        let (_, since) = *self.begun.take_if(|(frame, _)| *frame == number).get_or_insert((number, now));
        self.begun = Some((number, since));
        let config = &self.face.config;
        let patience = match self.input.length() {
            length if length <= INPUT_BYTES as usize => config.header_deadline,
            length => {
                config.body_deadline + Duration::from_secs((length / config.body_bytes_per_s.max(1)) as u64)
            }
        };
        let deadline = since + patience;
        if self.whole_by.deadline() != deadline {
            self.whole_by.as_mut().reset(deadline);
        }
        self.whole_by.as_mut().poll(context)
    }

    /// Counts what is under way for all connections of the member.
    fn count_load(&mut self) {
        self.face.config.native.count(self.counted, self.count);
        self.counted = self.count;
    }
}

impl<R> Drop for Connection<'_, R> {
    fn drop(&mut self) {
        self.face.config.native.count(self.counted, 0);
        // Rule 4. Turns of large writes, too, end with the writes.
        let under_way = std::mem::take(&mut self.under_way);
        if under_way.iter().any(Option::is_some) {
            self.mailbox.leave(Box::new((self.hold.leave(), under_way)));
        }
    }
}

/// What a turn may still take.
struct Turns {
    bytes: usize,
    requests: usize,
}

impl Turns {
    fn new() -> Turns {
        let requests = turns::share(ROUND_REQUESTS, TURN_REQUESTS_MIN, TURN_REQUESTS_MAX);
        Turns { bytes: turns::bytes(), requests }
    }

    fn is_over(&self) -> bool {
        self.bytes == 0 || self.requests == 0
    }
}

/// Why no more was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The client has sent nothing more.
    Idle,
    /// … behind some requests that were taken.
    Moved,
    /// The member waits for its own answers, or for its client to read them.
    Waits,
    /// There is no memory.
    Starves,
    /// It is others' turn.
    TurnOver,
}
