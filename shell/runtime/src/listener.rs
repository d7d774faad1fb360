//! The peer listener: frames from the connections that peers open, checked, into the driver's inbox.
//!
//! Nothing from a connection that does not belong, or that sends one damaged frame, reaches the replica. A connection
//! is closed at its first error, and the peer opens another. A new connection ends the earlier one of the same peer:
//! what that one would still bring is late. [fault-model NT2, NT3, F34–F36]
//!
//! A caller without a proof of identity can hold a bounded number of connections for a bounded time, can send nothing
//! longer than a handshake, and cannot end any other connection. If there are too many, the oldest of the host with the
//! most of them is closed, so that a member always finds a place. A peer that sends much yields to the others after
//! each turn.
//! Knows nothing of: what messages mean.

use crate::engine::Engine;
use crate::handshake::{self, Asked, Duplex, Received};
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::peer_table::PeerTable;
use crate::report::{self, Cause};
use crate::tls::{self, Shown, Unaccepted};
use crate::vouching;
use kattu_member::handshake::{self as steps, HANDSHAKE_BYTES_MAX, Heard};
use kattu_member::streams::{self, InOrder};
use kattu_node::contract::Event;
use kattu_node::{level, newcomer};
use kattu_raft::{Duration, GroupId, LinkEnd, NodeId, SharedBytes};
use kattu_tls::{Refused, Speaks};
use kattu_wire::{Codec, Hello, Lane, Order};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{self, AbortHandle};

/// Connections at once before the handshake, and as many before the proof; beyond it one is closed. About 10 KB each.
const CROWD_MAX: usize = 256;
/// Time limit of all waiting for the rest of a frame that has begun: this, …
pub(crate) const FRAME_PATIENCE: Duration = Duration::from_secs(10);
/// … and a second more for as many bytes of it.
const FRAME_BYTES_PER_S: usize = 128 << 10;
/// Time limit of the handshake, and then of the proof.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How long a quorum may take to confirm the members for a newcomer, which asks again.
const CONFIRM_MAX: Duration = Duration::from_secs(2);
/// Bytes asked for in one read, unless the rest of a frame is more.
const READ_BYTES: usize = 64 << 10;
/// Frames of one connection before the others on this thread have their turn: no less than a leader has in flight to
/// one peer. Each costs the node a few microseconds.
const TURN_FRAMES: usize = 256;
/// Bytes of one connection before the others have their turn. What has arrived when the driver runs becomes one write
/// and one sync, so a turn must be worth a sync: at 3 ms each, a member could take in 20 MB/s with turns of 64 KiB, and
/// 80 with 256.
const TURN_BYTES: usize = 1 << 20;
/// The cause of lines about newcomers, which may ask for the members as often as they like.
const JOINER: Cause = Cause::of("join requests");

/// The cause of lines about strangers, by their host and by the kind of refusal.
fn stranger(address: &str, reason: &str) -> Cause {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    // Only the part of the reason that no stranger can influence.
    let kind = &reason.as_bytes()[..reason.len().min(12)];
    let whose = u64::from(crc32c::crc32c(host.as_bytes())) << 32 | u64::from(crc32c::crc32c(kind));
    Cause { what: "peer connections refused", whose }
}

/// Listens for peers until it is dropped; must be called inside a `LocalSet`.
pub(crate) struct PeerListener {
    pub(crate) peer_table: Rc<PeerTable>,
    pub(crate) inbox: Rc<Inbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) group: GroupId,
    /// Longest frame accepted.
    pub(crate) frame_bytes_max: usize,
    /// The reader of each peer's lanes.
    pub(crate) readers: Rc<Readers>,
    /// Confirms the members with a quorum.
    pub(crate) engine: Engine,
    pub(crate) places: Crowds,
    /// How long a frame that has begun may take, whatever its size.
    pub(crate) frame_patience: Duration,
}

/// Connections of callers without a proof of identity, all at the same stage.
#[derive(Default)]
struct Crowd {
    next: Cell<u64>,
    /// Oldest first.
    all: RefCell<BTreeMap<u64, (IpAddr, AbortHandle)>>,
}

impl Crowd {
    /// Adds a connection. If that is one too many, ends the oldest of the host that has most of them, and returns
    /// `true`.
    fn enter(&self, host: IpAddr, task: AbortHandle) -> (u64, bool) {
        let place = self.next.get();
        self.next.set(place + 1);
        let mut all = self.all.borrow_mut();
        all.insert(place, (host, task));
        if all.len() <= CROWD_MAX {
            return (place, false);
        }
        let mut by_host = BTreeMap::new();
        for (host, _) in all.values() {
            *by_host.entry(*host).or_insert(0_usize) += 1;
        }
        let crowd = by_host.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host);
        let oldest = all.iter().find(|(_, (host, _))| Some(*host) == crowd).map(|(&place, _)| place);
        if let Some((_, task)) = oldest.and_then(|place| all.remove(&place)) {
            task.abort();
        }
        (place, true)
    }

    fn leave(&self, place: u64) {
        self.all.borrow_mut().remove(&place);
    }
}

/// Callers without a proof. Those with a valid handshake do not compete for places with silent ones.
#[derive(Default)]
pub(crate) struct Crowds {
    unknown: Crowd,
    unproven: Crowd,
}

/// An event of so many bytes, and when it arrived.
struct Early {
    event: Event,
    bytes: usize,
    at: std::time::Instant,
}

/// The newest reader of each member's lanes.
#[derive(Default)]
pub(crate) struct Readers {
    newest: RefCell<BTreeMap<(NodeId, Lane), AbortHandle>>,
    /// What came early on the streams of members that send on several ones.
    in_order: RefCell<BTreeMap<NodeId, InOrder<Early>>>,
}

impl Readers {
    /// Whether this lane of a peer is being read.
    pub(crate) fn hear(&self, peer: NodeId, lane: Lane) -> bool {
        self.newest.borrow().get(&(peer, lane)).is_some_and(|reader| !reader.is_finished())
    }

    /// Stops reading from this peer.
    pub(crate) fn end(&self, peer: NodeId) {
        self.newest.borrow_mut().retain(|(of, _), reader| {
            if *of == peer {
                reader.abort();
            }
            *of != peer
        });
        self.in_order.borrow_mut().remove(&peer);
    }

    /// Forgets a reader that has ended, unless another one has replaced it by now.
    fn leave(&self, peer: NodeId, lane: Lane, reader: task::Id) {
        self.newest.borrow_mut().retain(|place, newest| *place != (peer, lane) || newest.id() != reader);
    }

    /// Sets the reader of this lane; returns the one that it replaces.
    pub(crate) fn replace(&self, peer: NodeId, lane: Lane, reader: AbortHandle) -> Option<AbortHandle> {
        self.newest.borrow_mut().insert((peer, lane), reader)
    }

    /// An event of so many bytes arrives at this place among what the peer sends. Returns what is read now.
    fn arrived(&self, peer: NodeId, order: Order, event: Event, bytes: usize) -> Vec<Early> {
        let early = Early { event, bytes, at: std::time::Instant::now() };
        self.in_order.borrow_mut().entry(peer).or_default().arrived(order, early, bytes)
    }

    /// This lane of a peer has ended. Returns what had come early, and is read now.
    fn ended(&self, peer: NodeId, lane: Lane) -> Vec<Early> {
        let mut all = self.in_order.borrow_mut();
        let of_peer = all.get_mut(&peer).filter(|_| streams::is_stream(lane));
        of_peer.map(InOrder::ended).unwrap_or_default()
    }
}

/// A connection after its handshake.
struct Caller {
    hello: Hello,
    codec: Codec,
    /// What its frames mean.
    steps: RefCell<steps::Caller>,
    /// Its place among callers without a proof.
    place: Cell<Option<u64>>,
    /// Ends its reader.
    reader: OnceCell<AbortHandle>,
    /// The challenge that it has to answer, if any: forgotten with the connection.
    _asked: Option<Asked>,
}

/// Aborts a task when this is dropped.
struct EndsWithIt(AbortHandle);

impl Drop for EndsWithIt {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ends the reader when the caller's certificate would not be accepted any more, and forgets the URLs that the caller
/// announced.
fn end_when_let_in_no_more(shown: Shown, caller: &Rc<Caller>, peer_table: &Rc<PeerTable>) -> AbortHandle {
    let (caller, peer_table) = (caller.clone(), peer_table.clone());
    let judge = task::spawn_local(async move {
        let why = shown.let_in_no_more().await;
        let from = caller.hello.from.0;
        let cause = Cause { what: "certificate of a member no longer accepted", whose: from };
        report::warn_of(cause, format_args!("connection of member {from:x} closed: {why}"));
        peer_table.with(|table| table.forget_places(caller.hello.from));
        if let Some(reader) = caller.reader.get() {
            reader.abort();
        }
    });
    judge.abort_handle()
}

impl Caller {
    fn is_believed(&self) -> bool {
        self.steps.borrow().is_believed()
    }
}

/// What one connection has brought in its present turn.
#[derive(Default)]
struct Turn {
    bytes: usize,
    frames: usize,
}

impl Turn {
    fn is_over(&self) -> bool {
        TURN_BYTES <= self.bytes || TURN_FRAMES <= self.frames
    }
}

impl PeerListener {
    pub(crate) fn start(self, listeners: Vec<(TcpListener, Speaks)>) {
        let peer_listener = Rc::new(self);
        tokio::task::spawn_local(vouching::run(peer_listener.peer_table.clone()));
        for (listener, speaks) in listeners {
            tokio::task::spawn_local(accept(listener, speaks, peer_listener.clone()));
        }
    }

    /// `place` is this connection's among those before the handshake.
    async fn hear(
        self: Rc<Self>,
        socket: TcpStream,
        speaks: &Speaks,
        address: &str,
        host: IpAddr,
        place: u64,
    ) {
        crate::prepare(&socket);
        let (mut socket, shown) = match tokio::time::timeout(HANDSHAKE_MAX, tls::accept(socket, speaks)).await
        {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(Unaccepted::Left)) => return self.refused(address, "closed before the handshake"),
            Ok(Err(Unaccepted::Refused(why))) => {
                return self.refused_by_tls(address, why.kind(), &why.to_string());
            }
            Ok(Err(Unaccepted::Told(reason, mut socket))) => {
                self.refused_by_tls(address, Refused::NotTls.kind(), reason);
                let said = handshake::turn_away(&mut socket, reason);
                let _ = tokio::time::timeout(HANDSHAKE_MAX, said).await;
                return;
            }
            Err(_) => return self.refused(address, "no handshake within 5 s"),
        };
        let signed = shown.as_ref().and_then(Shown::signed);
        let received = handshake::receive(&mut socket, &self.peer_table, self.group, signed);
        let handshaken = tokio::time::timeout(HANDSHAKE_MAX, received).await;
        let (steps, asked) = match handshaken {
            Ok(Ok(Received::Member(steps, asked))) => (steps, asked),
            Ok(Ok(Received::Newcomer(join))) => {
                let reached = join.peer_urls.join(",");
                return match self.tell(&mut socket).await {
                    Ok(()) => report::info_of(
                        JOINER,
                        format_args!(
                            "sent the member list to a joining member from {address}, peer URLs {reached}"
                        ),
                    ),
                    Err(reason) => report::warn_of(
                        JOINER,
                        format_args!(
                            "cannot send the member list to a joining member from {address}, peer URLs {reached}: {reason}"
                        ),
                    ),
                };
            }
            Ok(Ok(Received::Answered)) => return,
            Ok(Err(reason)) => return self.refused(address, &reason),
            Err(_) => return self.refused(address, "no handshake within 5 s"),
        };
        let caller = Rc::new(Caller {
            hello: steps.hello().clone(),
            codec: crate::codec().speaking(steps.protocol()),
            steps: RefCell::new(steps),
            place: Cell::new(None),
            reader: OnceCell::new(),
            _asked: asked,
        });
        let (peer_listener, speaker) = (self.clone(), caller.clone());
        let mut reading = task::spawn_local(async move { peer_listener.frames(&mut socket, &speaker).await });
        let _ = caller.reader.set(reading.abort_handle()); // it has not begun
        let _ends = EndsWithIt(reading.abort_handle());
        let _judge = shown.map(|shown| EndsWithIt(end_when_let_in_no_more(shown, &caller, &self.peer_table)));
        self.places.unknown.leave(place);
        let ended = if caller.is_believed() {
            self.peer_table.with(|table| caller.steps.borrow().let_in(table));
            self.believe(&caller);
            reading.await
        } else {
            let (place, one_too_many) = self.places.unproven.enter(host, reading.abort_handle());
            caller.place.set(Some(place));
            self.metrics.peer_rejected.add(u64::from(one_too_many));
            match tokio::time::timeout(HANDSHAKE_MAX, &mut reading).await {
                Ok(ended) => ended,
                Err(_) if caller.is_believed() => reading.await,
                Err(_) => {
                    reading.abort();
                    self.leave_crowd(&caller);
                    let from = caller.hello.from.0;
                    let reason = format!(
                        "no proof within 5 s: the process at member {from:x}'s address does not confirm this connection"
                    );
                    return self.refused(address, &reason);
                }
            }
        };
        if !caller.is_believed() {
            self.leave_crowd(&caller);
            return match ended {
                Ok(Ok(_)) => {} // it has gone
                Ok(Err(reason)) => self.refused(address, &reason),
                Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
                Err(_) => {} // it had to make room
            };
        }
        let Hello { from, lane, .. } = caller.hello;
        if let Some(reader) = caller.reader.get() {
            self.readers.leave(from, lane, reader.id());
        }
        let end = match ended {
            Ok(Ok(end)) => end,
            Ok(Err(reason)) => {
                self.metrics.peer_rejected.add(1);
                let cause = Cause { what: "connection of a member closed", whose: from.0 };
                report::warn_of(cause, format_args!("connection of member {:x} closed: {reason}", from.0));
                LinkEnd::Otherwise
            }
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(_) if self.readers.hear(from, lane) => return, // its successor has reported it
            Err(_) => LinkEnd::Otherwise,                      // it was cut off
        };
        self.closed(&caller.hello, end);
    }

    fn leave_crowd(&self, caller: &Caller) {
        if let Some(place) = caller.place.take() {
            self.places.unproven.leave(place);
        }
    }

    fn refused(&self, address: &str, reason: &str) {
        self.metrics.peer_rejected.add(1);
        report::warn_of(
            stranger(address, reason),
            format_args!("peer connection from {address} refused: {reason}"),
        );
    }

    fn refused_by_tls(&self, address: &str, kind: u64, reason: &str) {
        self.metrics.peer_rejected.add(1);
        let cause = Cause { what: "peer connections refused by TLS", whose: kind };
        report::warn_of(cause, format_args!("peer connection from {address} refused: {reason}"));
    }

    /// A caller has proved its identity: its frames count from here on, and those of its earlier connection no more.
    fn believe(&self, caller: &Caller) {
        let Hello { from, lane, .. } = caller.hello;
        self.leave_crowd(caller);
        let Some(reader) = caller.reader.get() else { unreachable!("its reading was spawned before") };
        let older = self.readers.replace(from, lane, reader.clone());
        if let Some(older) = older.filter(|older| !older.is_finished()) {
            older.abort();
            self.closed(&caller.hello, LinkEnd::Otherwise); // it has just come back: it lives
        }
    }

    /// Sends a newcomer the member list, if a quorum confirms it.
    async fn tell(&self, socket: &mut impl Duplex) -> Result<(), String> {
        let asked = tokio::time::timeout(CONFIRM_MAX, self.engine.call(newcomer::question())).await;
        handshake::tell(socket, &self.peer_table, newcomer::confirmed(asked.ok())).await
    }

    /// Reports the end of a connection. Messages in flight on this lane may be lost. On the control lane all of them
    /// are repeated anyway, but a close by the other end's kernel is a hint that the member died, and the last message
    /// of either lane must not belie it. A member that returns may be an older version, and announces its feature level
    /// if it knows any.
    fn closed(&self, hello: &Hello, end: LinkEnd) {
        self.push_all(self.readers.ended(hello.from, hello.lane));
        if hello.lane == Lane::Bulk {
            self.inbox.push(Event::Knows(hello.from, level::FIRST), 0);
        }
        if kattu_member::lanes::end_is_told(hello.lane, end) {
            self.inbox.push(Event::LinkClosed(hello.from, end), 0);
        }
    }

    /// Reads frames until the connection ends, and returns how; the error is what was wrong with one.
    async fn frames(&self, socket: &mut impl Duplex, caller: &Caller) -> Result<LinkEnd, String> {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut wanted = 0_usize;
        // Frames up to the proof, and the one behind it, are no longer than a handshake.
        let mut bytes_max = HANDSHAKE_BYTES_MAX;
        let mut waited = Duration::ZERO;
        let mut turn = Turn::default();
        let mut has_more = false;
        loop {
            if turn.is_over() {
                task::yield_now().await;
                turn = Turn::default();
            }
            self.inbox.room().await;
            // The turn before may have left whole frames in the buffer.
            if !std::mem::take(&mut has_more) {
                let most = READ_BYTES.max(wanted.saturating_sub(buffer.len()));
                buffer.reserve(most);
                let patience = match buffer.len() {
                    0 => None, // no limit between frames
                    begun => Some(self.patience_for(wanted.max(begun)).saturating_sub(waited)),
                };
                match read_within(socket, &mut buffer, most, patience, &mut waited).await? {
                    Ok(0) => return Ok(LinkEnd::ByPeer),
                    Err(error) => return Ok(crate::outgoing::how_it_ended(&error)),
                    Ok(count) => {
                        self.metrics.peer_received_bytes.add(count as u64);
                        turn.bytes += count;
                    }
                }
                if buffer.len() < wanted {
                    continue; // the rest of a long frame
                }
            }
            let mut complete = 0;
            wanted = 0;
            while let Some(len) =
                caller.codec.peek_len(&buffer[complete..], bytes_max).map_err(|error| error.to_string())?
            {
                if buffer.len() - complete < len {
                    wanted = len;
                    break;
                }
                complete += len;
                turn.frames += 1;
                if !caller.is_believed() {
                    has_more = true; // one by one, for the proof changes what may follow
                    break;
                }
                bytes_max = self.frame_bytes_max;
                if turn.frames == TURN_FRAMES {
                    has_more = true;
                    break;
                }
            }
            if complete > 0 {
                waited = Duration::ZERO;
                let frames = split_off_front(&mut buffer, complete);
                self.deliver(&frames, caller)?;
            }
        }
    }

    /// Passes on what is read now, of which some may have waited for the rest.
    fn push_all(&self, events: Vec<Early>) {
        let now = std::time::Instant::now();
        for Early { event, bytes, at } in events {
            let waited = now.saturating_duration_since(at).as_micros();
            self.metrics.order_waited_us.add(u64::try_from(waited).unwrap_or(u64::MAX));
            self.inbox.push(event, bytes);
        }
    }

    fn patience_for(&self, bytes: usize) -> Duration {
        self.frame_patience + Duration::from_secs((bytes / FRAME_BYTES_PER_S) as u64)
    }

    /// Handles whole frames; of a caller without a proof it is one.
    fn deliver(&self, frames: &SharedBytes, caller: &Caller) -> Result<(), String> {
        let codec = caller.codec;
        let mut is_let_in = false;
        self.peer_table.with(|table| {
            let mut steps = caller.steps.borrow_mut();
            let mut at = 0;
            while at < frames.len() {
                let len = codec
                    .peek_len(&frames[at..], self.frame_bytes_max)
                    .map_err(|error| error.to_string())?
                    .expect("only whole frames are delivered");
                let frame = codec.decode(&frames.slice(at..at + len)).map_err(|error| error.to_string())?;
                at += len;
                match steps.hear(frame, table)? {
                    Heard::Nothing => {}
                    Heard::Believed => is_let_in = true,
                    Heard::Event(event) => {
                        let is_message = matches!(event, Event::Peer(_));
                        self.metrics.peer_received_msgs.add(u64::from(is_message));
                        self.inbox.push(event, len);
                    }
                    Heard::InOrder(order, event) => {
                        self.metrics.peer_received_msgs.add(1);
                        self.push_all(self.readers.arrived(caller.hello.from, order, event, len));
                    }
                }
            }
            Ok::<(), String>(())
        })?;
        if is_let_in {
            self.believe(caller);
        }
        Ok(())
    }
}

/// Takes the first `count` bytes out of the buffer. Entries stay ranges of them, so a mostly empty buffer is not kept
/// alive for a few bytes.
fn split_off_front(buffer: &mut Vec<u8>, count: usize) -> SharedBytes {
    if count * 2 < buffer.capacity() {
        let front = buffer[..count].to_vec();
        buffer.drain(..count);
        return SharedBytes::from(front);
    }
    let rest = buffer[count..].to_vec();
    let mut front = std::mem::replace(buffer, rest);
    front.truncate(count);
    SharedBytes::from(front)
}

/// One read of at most `most` bytes, because the buffer may have grown. The error says that `patience` is over. Its
/// time is added to `waited`.
async fn read_within(
    socket: &mut impl Duplex,
    buffer: &mut Vec<u8>,
    most: usize,
    patience: Option<Duration>,
    waited: &mut Duration,
) -> Result<std::io::Result<usize>, String> {
    let mut socket = socket.take(most as u64);
    let mut read = pin!(socket.read_buf(buffer));
    // Mostly data is there already, and the clock is not read.
    if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
        return Ok(read);
    }
    let Some(patience) = patience else { return Ok(read.await) };
    let begun = tokio::time::Instant::now();
    let read = tokio::time::timeout(patience, read).await;
    *waited += begun.elapsed();
    read.map_err(|_| "a frame has begun and was not finished in time".to_string())
}

async fn accept(listener: TcpListener, speaks: Speaks, peer_listener: Rc<PeerListener>) {
    loop {
        let Ok((socket, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await; // out of descriptors: let some close
            continue;
        };
        let (place_is, place) = tokio::sync::oneshot::channel();
        let (heard, speaks) = (peer_listener.clone(), speaks.clone());
        let task = tokio::task::spawn_local(async move {
            let Ok(place) = place.await else { return };
            heard.clone().hear(socket, &speaks, &address.to_string(), address.ip(), place).await;
            heard.places.unknown.leave(place);
        });
        let (place, one_too_many) = peer_listener.places.unknown.enter(address.ip(), task.abort_handle());
        peer_listener.metrics.peer_rejected.add(u64::from(one_too_many));
        let _ = place_is.send(place); // the task has not begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Call;
    use kattu_member::dialler::Failure;
    use kattu_member::handshake::{member_asks, newcomer_asks};
    use kattu_member::peer_address::PeerAddress;
    use kattu_member::peer_table::Own;
    use kattu_node::contract::{MemberInfo, Members, Outcome, PeerMessage, Refusal, Reply, ReplyBody};
    use kattu_raft::{Incarnation, LogIndex, Term};
    use kattu_wire::{ASK_ME, Frame, MemberList};
    use std::net::SocketAddr;
    use tokio::io::AsyncWriteExt;

    const US: NodeId = NodeId(1);
    const PEER: NodeId = NodeId(2);

    fn own(id: NodeId) -> Own {
        let peer_urls = vec![format!("http://10.0.0.{}:2380", id.0)];
        let incarnation = Incarnation(9);
        Own { cluster: 0xC1, id, incarnation, peer_urls, priority: 100, ..Own::default() }
    }

    fn table_of(own: Own) -> PeerTable {
        PeerTable::new(own, BTreeMap::new(), None)
    }

    fn peer_table(id: NodeId) -> PeerTable {
        table_of(own(id))
    }

    fn has_heard(us: &PeerTable, id: NodeId) -> bool {
        us.ask(|table| table.heard().contains(&id))
    }

    fn open_proofs(us: &PeerTable) -> usize {
        us.ask(|table| table.proofs.open())
    }

    thread_local! {
        /// Secrets that have arrived at members' addresses, by number. A test that reads them stands at those
        /// addresses.
        static TOLD: RefCell<BTreeMap<u64, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    async fn connect(address: SocketAddr, lane: Lane) -> TcpStream {
        connect_as(&peer_table(PEER), address, lane).await
    }

    /// A connection of a member that the listener knows, with its proof.
    async fn connect_as(own: &PeerTable, address: SocketAddr, lane: Lane) -> TcpStream {
        let (mut socket, number) = call_as(own, address, lane).await;
        until("it is asked for its proof", || TOLD.with_borrow(|told| told.contains_key(&number))).await;
        let secret = TOLD.with_borrow(|told| told[&number]);
        socket.write_all(&bytes_of(&Frame::Proof(secret))).await.expect("sent");
        assert!(handshake::introduce(&mut socket, own).await.is_ok());
        socket
    }

    /// A connection that was welcomed and challenged, and the number of the challenge.
    async fn call_as(own: &PeerTable, address: SocketAddr, lane: Lane) -> (TcpStream, u64) {
        let mut socket = TcpStream::connect(address).await.expect("a listener");
        match handshake::open(&mut socket, own, US, lane).await {
            Ok(welcome) => {
                assert_ne!(welcome.proof, 0, "every caller is challenged");
                socket.write_all(&bytes_of(&Frame::Proof(ASK_ME))).await.expect("sent");
                (socket, welcome.proof)
            }
            Err(Failure::Refused(reason)) => panic!("{reason}"),
            Err(Failure::Away | Failure::Removed | Failure::Unproven) => panic!("no answer"),
        }
    }

    /// Runs a listener with this table of members.
    fn meet<F: Future<Output = ()>>(
        members: Members,
        test: impl FnOnce(SocketAddr, Rc<PeerTable>, Rc<Inbox>) -> F,
    ) {
        listen(members, |address, us, inbox, _| test(address, us, inbox));
    }

    /// Runs a listener whose table has `US` and `PEER`.
    fn run<F: Future<Output = ()>>(test: impl FnOnce(SocketAddr, Rc<Inbox>, Rc<Readers>) -> F) {
        let list = [US, PEER].map(|id| MemberInfo { id, ..MemberInfo::default() }).into();
        let members = Members { list, ..Members::default() };
        listen(members, |address, _, inbox, readers| test(address, inbox, readers));
    }

    fn listen<F: Future<Output = ()>>(
        members: Members,
        test: impl FnOnce(SocketAddr, Rc<PeerTable>, Rc<Inbox>, Rc<Readers>) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let inbox = Rc::new(Inbox::default());
            let readers = Rc::new(Readers::default());
            let us = Rc::new(peer_table(US));
            us.follow(members.clone());
            let post = us.clone();
            tokio::task::spawn_local(async move {
                loop {
                    let news = post.news();
                    let told = post.with(|table| {
                        let all = (0..400).map(NodeId);
                        all.flat_map(|id| table.proofs.take_untold(id)).collect::<Vec<_>>()
                    });
                    TOLD.with_borrow_mut(|all| {
                        all.extend(told.iter().map(|challenge| (challenge.number, challenge.secret)));
                    });
                    news.await;
                }
            });
            let (calls, mut asked) = tokio::sync::mpsc::channel(1);
            tokio::task::spawn_local(async move {
                while let Some(Call::Ask(reply, request)) = asked.recv().await {
                    assert_eq!(request, newcomer::question());
                    let outcome = match members.list.is_empty() {
                        true => Outcome::Refused(Refusal::NoLeader),
                        false => Outcome::Done(Reply {
                            term: Term(1),
                            strong: 0,
                            body: ReplyBody::Members(members.clone()),
                        }),
                    };
                    assert!(!reply.is_closed(), "the newcomer waits");
                    reply.send(outcome);
                }
            });
            let peer_listener = PeerListener {
                peer_table: us.clone(),
                inbox: inbox.clone(),
                metrics: Arc::default(),
                group: GroupId(0),
                frame_bytes_max: 1 << 20,
                readers: readers.clone(),
                engine: Engine::new(calls, Arc::default(), Arc::default(), 0xC1, US),
                places: Crowds::default(),
                frame_patience: Duration::from_millis(200),
            };
            peer_listener.start(vec![(listener, Speaks::Plain)]);
            test(address, us, inbox, readers).await;
        });
    }

    /// What has arrived, without the levels that each handshake brings.
    fn events(inbox: &Inbox) -> Vec<Event> {
        let mut events = Vec::new();
        inbox.take(&mut events);
        events.retain(|event| !matches!(event, Event::Knows(..)));
        events
    }

    /// The next events; fails if none arrive.
    async fn next(inbox: &Inbox) -> Vec<Event> {
        loop {
            let arrived = tokio::time::timeout(Duration::from_secs(20), inbox.arrived()).await;
            arrived.expect("something arrives");
            let events = events(inbox);
            if !events.is_empty() {
                return events;
            }
        }
    }

    /// A connection that is read: its level has arrived. Other events are added to `events`.
    async fn heard(address: SocketAddr, lane: Lane, inbox: &Inbox, events: &mut Vec<Event>) -> TcpStream {
        let socket = connect(address, lane).await;
        let mut arrived = Vec::new();
        while !arrived.iter().any(|event| matches!(event, Event::Knows(..))) {
            tokio::time::timeout(Duration::from_secs(20), inbox.arrived()).await.expect("it is heard");
            inbox.take(&mut arrived);
        }
        arrived.retain(|event| !matches!(event, Event::Knows(..)));
        events.extend(arrived);
        socket
    }

    #[test]
    fn a_new_connection_of_a_peer_ends_the_one_it_had_before() {
        run(|address, inbox, _| async move {
            let mut told = Vec::new();
            let mut control = heard(address, Lane::Control, &inbox, &mut told).await;
            let mut first = heard(address, Lane::Bulk, &inbox, &mut told).await;
            assert_eq!(told, []);
            let _second = heard(address, Lane::Bulk, &inbox, &mut told).await;
            let ended = [Event::LinkClosed(PEER, LinkEnd::Otherwise)];
            assert_eq!(told, ended, "what was on its way on the first may be lost");
            assert_eq!(first.read(&mut [0; 8]).await.unwrap_or(0), 0);
            let mut third = heard(address, Lane::Control, &inbox, &mut told).await;
            assert_eq!(control.read(&mut [0; 8]).await.unwrap_or(0), 0);
            assert_eq!(told, ended, "nothing hangs on a control lane");
            third.write_all(b"this is not a frame, and it is longer than a header").await.expect("sent");
            assert_eq!(third.read(&mut [0; 8]).await.unwrap_or(0), 0, "given up");
        });
    }

    #[test]
    fn an_end_by_the_peers_kernel_is_told_as_such_on_either_lane() {
        run(|address, inbox, _| async move {
            for lane in [Lane::Bulk, Lane::Control] {
                drop(connect(address, lane).await);
                assert_eq!(next(&inbox).await, [Event::LinkClosed(PEER, LinkEnd::ByPeer)], "{lane:?}");
            }
        });
    }

    #[test]
    fn a_member_that_others_have_added_is_heard_when_they_have_named_it() {
        meet(Members::default(), |address, us, _| async move {
            let (mut socket, number) = call_as(&peer_table(PEER), address, Lane::Bulk).await;
            until("an unknown caller is there", || open_proofs(&us) == 1).await;
            assert!(
                us.places().is_empty() && !us.ask(|table| table.knows(PEER)),
                "the address that it announces is not dialled"
            );
            assert!(TOLD.with_borrow(|told| !told.contains_key(&number)));

            let peer_urls = vec!["http://10.0.0.2:2380".to_string()];
            let list = vec![MemberInfo { id: PEER, peer_urls, ..MemberInfo::default() }];
            let members = Members { at: LogIndex(1), list, removed: vec![] };
            let list = MemberList { cluster: 0xC1, began_with: vec![], members, heard: vec![] };
            assert!(us.with(|table| table.vouched_for(list)));
            assert_eq!(
                us.places(),
                [(PEER, PeerAddress::of("http://10.0.0.2:2380").into_iter().collect())].into()
            );
            until("it is asked for its proof", || TOLD.with_borrow(|told| told.contains_key(&number))).await;
            let secret = TOLD.with_borrow(|told| told[&number]);
            assert!(!has_heard(&us, PEER));
            socket.write_all(&bytes_of(&Frame::Proof(secret))).await.expect("sent");
            until("it is heard", || has_heard(&us, PEER)).await;
            assert_eq!(open_proofs(&us), 0);
        });
    }

    /// Goal: a caller that can reach the port, but neither a member's address nor the path there, cannot act as a
    /// member, ends no member's connection, and leaves nothing behind.
    #[test]
    fn a_caller_that_proves_nothing_speaks_for_no_member() {
        run(|address, inbox, readers| async move {
            let member = connect(address, Lane::Bulk).await;
            until("it is heard", || readers.hear(PEER, Lane::Bulk)).await;
            let mut all = Vec::new();
            inbox.take(&mut all);
            let vote = kattu_raft::message::Vote { last: Default::default(), transfer: true };
            let vote = kattu_raft::Envelope {
                group: GroupId(0),
                from: PEER,
                incarnation: Incarnation(9),
                to: US,
                term: Term(u64::MAX),
                message: kattu_raft::Message::Vote(vote),
            };
            let vote = Frame::Message(PeerMessage::Raft(vote));
            let says = [
                bytes_of(&Frame::Proof(7)),
                bytes_of(&vote),
                introduction("http://10.9.9.9:2380"),
                bytes_of(&Frame::Level(9)),
                half_frame(8_000),
                vec![0xA5; 100],
            ];
            for bytes in says.into_iter().cycle().take(60) {
                let (mut socket, _) = call_as(&peer_table(PEER), address, Lane::Bulk).await;
                socket.write_all(&bytes).await.expect("sent");
                assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0, "{bytes:?} is not a proof");
            }
            inbox.take(&mut all);
            all.retain(|event| !matches!(event, Event::Knows(PEER, level::KNOWN)));
            assert_eq!(all, [], "nothing was heard, and the member's own connection lives");
            drop(member);
            assert_eq!(next(&inbox).await, [Event::LinkClosed(PEER, LinkEnd::ByPeer)]);
            let _again = connect(address, Lane::Bulk).await;
            until("and it may come again", || readers.hear(PEER, Lane::Bulk)).await;
        });
    }

    #[test]
    fn a_version_that_cannot_prove_anything_is_heard_until_all_members_can() {
        let list = [US, PEER].map(|id| MemberInfo { id, ..MemberInfo::default() }).into();
        meet(Members { list, ..Members::default() }, |address, us, inbox| async move {
            let hello = |from: NodeId| Hello {
                protocol_min: kattu_wire::PROTOCOL_MIN,
                protocol_max: kattu_wire::PROTOCOL_PROOFS - 1,
                cluster: 0xC1,
                from,
                incarnation: Incarnation(9),
                to: US,
                lane: Lane::Bulk,
                learner: false,
            };
            let answer = async |from: NodeId| {
                let mut socket = TcpStream::connect(address).await.expect("a listener");
                socket.write_all(&bytes_of(&Frame::Hello(hello(from)))).await.expect("sent");
                let mut bytes = vec![0; 1 << 12];
                let len = socket.read(&mut bytes).await.expect("an answer");
                bytes.truncate(len);
                (crate::codec().decode(&SharedBytes::from(bytes)).expect("a frame"), socket)
            };
            let (welcome, mut socket) = answer(PEER).await;
            assert!(matches!(&welcome, Frame::Welcome(welcome) if welcome.proof == 0), "{welcome:?}");
            socket.write_all(&bytes_of(&Frame::Level(1))).await.expect("sent");
            until("it is heard", || !inbox.is_empty()).await;
            let (refused, _) = answer(NodeId(7)).await;
            assert!(
                matches!(&refused, Frame::Refused(it) if it.reason.contains("not in the receiver's member list")),
                "{refused:?}"
            );
            us.with(|table| table.set_level(level::PROOFS));
            let (refused, _) = answer(PEER).await;
            assert!(matches!(&refused, Frame::Refused(it) if it.reason.contains("version")), "{refused:?}");
        });
    }

    #[test]
    fn a_member_states_its_priority_once_and_again_when_it_changes() {
        run(|address, inbox, _| async move {
            for (priority, told) in [(100, None), (200, Some(200)), (200, None), (100, Some(100))] {
                let eager = table_of(Own { priority, ..own(PEER) });
                drop(connect_as(&eager, address, Lane::Bulk).await);
                inbox.arrived().await;
                let mut heard = events(&inbox);
                while !heard.contains(&Event::LinkClosed(PEER, LinkEnd::ByPeer)) {
                    inbox.arrived().await;
                    heard.extend(events(&inbox));
                }
                let says: Vec<Event> =
                    told.map(|priority| Event::Priority(PEER, priority)).into_iter().collect();
                heard.pop();
                assert_eq!(heard, says, "{priority}");
            }
        });
    }

    #[test]
    fn a_removed_member_is_told_so_and_nothing_it_says_is_heard() {
        let removed = Members { removed: vec![PEER], ..Members::default() };
        meet(removed, |address, us, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let told = handshake::open(&mut socket, &peer_table(PEER), US, Lane::Bulk).await;
            assert!(matches!(told, Err(Failure::Removed)));
            assert_eq!(socket.read(&mut [0; 8]).await.expect("an orderly end"), 0);
            assert!(us.places().is_empty() && !has_heard(&us, PEER));
        });
    }

    #[test]
    fn a_member_known_from_a_directory_is_admitted_with_that_one_only() {
        let voter = |name: &str| MemberInfo { id: PEER, name: name.into(), ..MemberInfo::default() };
        let table = |voter: MemberInfo| Members { list: vec![voter], ..Members::default() };
        meet(table(voter("")), |address, us, _| async move {
            let is_known = async || {
                let mut socket = TcpStream::connect(address).await.expect("a listener");
                handshake::is_known(&mut socket, 0xC1, PEER, US).await
            };
            assert!(!is_known().await, "it may begin");
            assert!(!is_known().await, "to have asked is not to have begun");
            drop(connect(address, Lane::Bulk).await);
            until("it is heard", || has_heard(&us, PEER)).await;
            assert!(is_known().await, "it has greeted us from a directory");

            let other = table_of(Own { incarnation: Incarnation(10), ..own(PEER) });
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let answer = handshake::open(&mut socket, &other, US, Lane::Bulk).await;
            let Err(Failure::Refused(why)) = answer else { panic!("another directory of a voter") };
            assert!(why.contains("another data directory"), "{why}");
        });
        meet(table(MemberInfo { learner: true, ..voter("") }), |address, _, _| async move {
            drop(connect(address, Lane::Bulk).await);
            let other = table_of(Own { incarnation: Incarnation(10), ..own(PEER) });
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let again = handshake::open(&mut socket, &other, US, Lane::Bulk).await;
            assert!(again.is_ok(), "a learner has no votes and acknowledgements that count");
        });
        meet(table(voter("n2")), |address, _, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            assert!(handshake::is_known(&mut socket, 0xC1, PEER, US).await, "the log says that it was there");
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let elsewhere = handshake::is_known(&mut socket, 0xC2, PEER, US).await;
            assert!(!elsewhere, "of another cluster nothing is known");
        });
    }

    #[test]
    fn a_newcomer_is_told_the_members() {
        let list = vec![MemberInfo { id: US, name: "n1".into(), ..MemberInfo::default() }];
        meet(Members { list: list.clone(), ..Members::default() }, |address, _, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let question = newcomer_asks(&["http://n4:2380".into()]);
            let Ok(member_list) = handshake::ask(&mut socket, &question).await else { panic!("no answer") };
            assert_eq!(
                (member_list.cluster, member_list.members.list, member_list.heard),
                (0xC1, list, vec![US])
            );
            assert_eq!(socket.read(&mut [0; 8]).await.expect("an orderly end"), 0);
        });
    }

    #[test]
    fn a_newcomer_is_told_nothing_that_no_quorum_confirms() {
        meet(Members::default(), |address, _, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let question = newcomer_asks(&["http://n4:2380".into()]);
            let Err(Failure::Refused(why)) = handshake::ask(&mut socket, &question).await else {
                panic!("it got an answer")
            };
            assert!(why.contains("quorum"), "{why}");
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let named = handshake::ask(&mut socket, &member_asks()).await;
            assert!(named.is_ok(), "a member that asks about a stranger needs no quorum: {named:?}");
        });
    }

    #[test]
    fn nonsense_on_the_bulk_lane_ends_it_and_is_told_once() {
        run(|address, inbox, _| async move {
            let mut socket = connect(address, Lane::Bulk).await;
            socket.write_all(&[0xA5; 100]).await.expect("sent");
            assert_eq!(next(&inbox).await, [Event::LinkClosed(PEER, LinkEnd::Otherwise)]);
            assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0, "given up");
            let _again = connect(address, Lane::Bulk).await;
            assert_eq!(events(&inbox), [], "the old one had ended already");
        });
    }

    #[test]
    fn a_peer_is_heard_on_a_lane_for_as_long_as_a_connection_of_its_own_lives() {
        run(|address, inbox, readers| async move {
            assert!(!readers.hear(PEER, Lane::Bulk));
            let control = connect(address, Lane::Control).await;
            assert!(!readers.hear(PEER, Lane::Bulk), "another lane is another connection");
            let bulk = connect(address, Lane::Bulk).await;
            while !readers.hear(PEER, Lane::Bulk) {
                tokio::task::yield_now().await; // the handshake was answered before the reader was set
            }
            drop(bulk);
            assert_eq!(next(&inbox).await, [Event::LinkClosed(PEER, LinkEnd::ByPeer)]);
            assert!(!readers.hear(PEER, Lane::Bulk));
            drop(control);
        });
    }

    fn bytes_of(frame: &Frame) -> Vec<u8> {
        let mut writer = kattu_wire::FrameWriter::default();
        crate::codec().encode(frame, &mut writer);
        writer.pieces().flatten().copied().collect()
    }

    fn introduction(url: &str) -> Vec<u8> {
        let peer_urls = vec![url.to_string()];
        bytes_of(&Frame::Introduction(kattu_wire::Introduction { peer_urls, priority: 100 }))
    }

    /// The header of a frame that announces this many bytes, without any of them.
    fn half_frame(fields: usize) -> Vec<u8> {
        introduction(&"x".repeat(fields))[..kattu_wire::frame::HEADER_BYTES].to_vec()
    }

    #[test]
    fn what_a_connection_says_again_is_no_news() {
        run(|address, inbox, _| async move {
            let mut socket = connect(address, Lane::Bulk).await;
            for level in [level::KNOWN, level::KNOWN, 7, 7, 7, level::KNOWN] {
                socket.write_all(&bytes_of(&Frame::Level(level))).await.expect("sent");
            }
            drop(socket);
            let mut events = Vec::new();
            let is_over =
                |events: &[Event]| events.iter().any(|event| matches!(event, Event::LinkClosed(..)));
            while !is_over(&events) {
                tokio::time::timeout(Duration::from_secs(20), inbox.arrived()).await.expect("it ends");
                inbox.take(&mut events);
            }
            let [levels @ .., _] = events.as_slice() else { panic!("nothing came") };
            let said = [level::KNOWN, 7, level::KNOWN, level::FIRST];
            assert_eq!(levels, said.map(|level| Event::Knows(PEER, level)), "and nothing when it has gone");
        });
    }

    /// Goal: a peer that sends much does not keep the thread for as long as there is something to read. Method: as many
    /// frames as fit between two sockets, sent before the reader has a turn; the test takes what has arrived, as the
    /// driver does.
    #[test]
    fn a_peer_that_sends_much_leaves_the_others_their_turn() {
        let small = [7, 8].map(|level| bytes_of(&Frame::Level(level))); // in turn, so that each is news
        let forward = kattu_node::contract::Forward {
            from: PEER,
            to: US,
            incarnation: Incarnation(9),
            term: Term(1),
            first_seq: 1,
            commands: vec![SharedBytes::from(vec![0; 16 << 10])],
        };
        let large = bytes_of(&Frame::Message(PeerMessage::Forward(forward)));
        let (small_bytes, large_bytes) = (small[0].len(), large.len());
        for (frames, len, turn) in [
            (small.concat(), small_bytes, TURN_FRAMES),
            (large, large_bytes, (TURN_BYTES + READ_BYTES).div_ceil(large_bytes)),
        ] {
            run(|address, inbox, _| async move {
                let socket = connect(address, Lane::Bulk).await;
                until("it is heard", || !inbox.is_empty()).await;
                let mut events = Vec::new();
                inbox.take(&mut events);
                let all = frames.repeat((8 << 20) / frames.len());
                socket.writable().await.expect("it is open");
                let mut sent = 0;
                while let Ok(count) = socket.try_write(&all[sent..]) {
                    sent += count;
                }
                let whole = sent / len;
                assert!(turn < whole, "{sent} bytes fit between two sockets: too few to tell");
                let (mut taken, mut most) = (0, 0);
                while taken < whole {
                    tokio::time::timeout(Duration::from_secs(20), inbox.arrived()).await.expect("more");
                    events.clear();
                    inbox.take(&mut events);
                    taken += events.len();
                    most = most.max(events.len());
                }
                assert!(
                    most <= turn,
                    "{most} of {whole} frames of {len} bytes in a turn, {turn} at the most"
                );
            });
        }
    }

    #[test]
    fn a_read_takes_what_it_was_asked_for_however_much_room_the_buffer_has() {
        run(|_, _, _| async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let mut theirs = TcpStream::connect(address).await.expect("a listener");
            let (mut ours, _) = listener.accept().await.expect("a connection");
            theirs.write_all(&[0; 4096]).await.expect("sent");
            ours.readable().await.expect("it is open");
            let (mut buffer, mut waited) = (Vec::with_capacity(READ_BYTES), Duration::ZERO);
            let read = read_within(&mut ours, &mut buffer, 1024, None, &mut waited).await;
            assert_eq!(read.expect("there is no haste").expect("it is open"), 1024);
        });
    }

    #[test]
    fn a_first_frame_is_short_and_a_frame_that_has_begun_goes_on() {
        run(|address, _, _| async move {
            // By hand, because `connect` sends the first frame along.
            let mut socket = TcpStream::connect(address).await.expect("a listener");
            let hello = Hello {
                protocol_min: kattu_wire::PROTOCOL_MIN,
                protocol_max: kattu_wire::PROTOCOL_MAX,
                cluster: 0xC1,
                from: PEER,
                incarnation: Incarnation(9),
                to: US,
                lane: Lane::Bulk,
                learner: false,
            };
            socket.write_all(&bytes_of(&Frame::Hello(hello))).await.expect("sent");
            socket.write_all(&half_frame(8_000)).await.expect("sent");
            let begun = std::time::Instant::now();
            let mut welcome = Vec::new();
            let _ = socket.read_to_end(&mut welcome).await; // or a reset
            assert!(begun.elapsed() < Duration::from_millis(200), "it is not waited for");

            let mut socket = connect(address, Lane::Bulk).await;
            socket.write_all(&half_frame(8_000)).await.expect("sent");
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _ = socket.write_all(b"x").await; // a byte now and then is no progress
            }
            let begun = std::time::Instant::now();
            assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0);
            assert!(begun.elapsed() < Duration::from_millis(150), "all the waiting counts");
            let mut quiet = connect(address, Lane::Bulk).await;
            let silence = tokio::time::timeout(Duration::from_millis(400), quiet.read(&mut [0; 8])).await;
            assert!(silence.is_err(), "between frames a member may be silent");
        });
    }

    #[test]
    fn an_unproven_caller_makes_room_and_members_do_not() {
        run(|address, _, readers| async move {
            let _member = connect(address, Lane::Bulk).await;
            until("it is heard", || readers.hear(PEER, Lane::Bulk)).await;
            let mut callers = Vec::new();
            for id in 0..=CROWD_MAX as u64 {
                let name = if id.is_multiple_of(2) { PEER } else { NodeId(100 + id) };
                callers.push(call_as(&peer_table(name), address, Lane::Bulk).await.0);
            }
            assert_eq!(callers[0].read(&mut [0; 8]).await.unwrap_or(0), 0, "the oldest has gone");
            assert!(callers[1..].iter().all(|caller| caller.try_read(&mut [0; 8]).is_err()));
            assert!(readers.hear(PEER, Lane::Bulk));
        });
    }

    #[test]
    fn a_crowd_of_one_host_makes_room_for_a_caller_from_another() {
        run(|_, _, _| async {
            let crowd_of_all = Crowd::default();
            let task = || task::spawn_local(std::future::pending::<()>());
            let host = |number: u8| IpAddr::from([10, 0, 0, number]);
            let member = task();
            crowd_of_all.enter(host(1), member.abort_handle());
            let crowd: Vec<_> = (0..CROWD_MAX * 2).map(|_| task()).collect();
            for one in &crowd {
                crowd_of_all.enter(host(2), one.abort_handle());
            }
            task::yield_now().await;
            until("the oldest of the crowd have gone", || {
                crowd.iter().filter(|one| one.is_finished()).count() == CROWD_MAX + 1
            })
            .await;
            assert!(!member.is_finished() && crowd[0].is_finished());
        });
    }

    /// Waits for a condition; fails if it does not come true.
    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(what);
    }

    /// Goal: nothing is kept of callers that have gone, however many there were.
    #[test]
    fn nothing_is_kept_of_a_caller_that_has_gone() {
        let list = [US, PEER].map(|id| MemberInfo { id, ..MemberInfo::default() }).into();
        meet(Members { list, ..Members::default() }, |address, us, inbox| async move {
            for (id, lane) in (2..).map(NodeId).zip([Lane::Bulk, Lane::Control, Lane::Snapshot].repeat(3)) {
                let (socket, _) = call_as(&peer_table(id), address, lane).await;
                until("it is there", || open_proofs(&us) == 1).await;
                drop(socket);
                until("it has gone", || open_proofs(&us) == 0).await;
            }
            assert_eq!(events(&inbox), []);
            assert!(us.ask(|table| table.is_blank()));
        });
    }

    #[test]
    fn a_reader_that_was_replaced_leaves_its_successor_where_it_is() {
        run(|address, inbox, readers| async move {
            let mut first = connect(address, Lane::Bulk).await;
            until("the first is read", || readers.hear(PEER, Lane::Bulk)).await;
            let second = connect(address, Lane::Bulk).await;
            assert_eq!(first.read(&mut [0; 8]).await.unwrap_or(0), 0, "it was replaced");
            assert_eq!(next(&inbox).await, [Event::LinkClosed(PEER, LinkEnd::Otherwise)]);
            drop(second);
            assert_eq!(next(&inbox).await, [Event::LinkClosed(PEER, LinkEnd::ByPeer)]);
            assert!(readers.newest.borrow().is_empty());

            let older = tokio::task::spawn_local(std::future::pending::<()>());
            let newer = tokio::task::spawn_local(std::future::pending::<()>());
            assert!(readers.replace(PEER, Lane::Bulk, older.abort_handle()).is_none());
            assert!(readers.replace(PEER, Lane::Bulk, newer.abort_handle()).is_some());
            readers.leave(PEER, Lane::Bulk, older.id());
            assert!(readers.hear(PEER, Lane::Bulk));
            readers.leave(PEER, Lane::Bulk, newer.id());
            assert!(!readers.hear(PEER, Lane::Bulk));
        });
    }

    #[test]
    fn a_silent_caller_makes_room_for_a_member() {
        run(|address, _, readers| async move {
            let mut silent = Vec::new();
            for _ in 0..=CROWD_MAX {
                silent.push(TcpStream::connect(address).await.expect("a listener"));
            }
            assert_eq!(silent[0].read(&mut [0; 8]).await.unwrap_or(0), 0, "the oldest has gone");
            assert!(silent[CROWD_MAX].try_read(&mut [0; 8]).is_err(), "the newest is waited for");
            let _member = connect(address, Lane::Bulk).await;
            while !readers.hear(PEER, Lane::Bulk) {
                tokio::task::yield_now().await;
            }
        });
    }
}
