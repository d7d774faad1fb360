//! What peers say on the connections they open: frames, checked, into the driver's inbox.
//!
//! Nothing of a connection that does not belong, or that sends one damaged frame, reaches the replica; a connection is
//! given up at the first thing that is wrong with it, and the peer opens another. A new connection ends the one that the
//! same peer had before: what that one would still bring is late. [fault-model NT2, NT3, F34–F36]
//! Knows nothing of: what messages mean.

use crate::engine::Engine;
use crate::greeting::{self, Greeting, Received};
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::report::{self, Cause};
use kattu_node::contract::{Event, PeerMessage};
use kattu_node::newcomer;
use kattu_raft::{Duration, GroupId, LinkEnd, NodeId, SharedBytes};
use kattu_wire::{Codec, Frame, Hello, Lane, PROTOCOL_MIN};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Peers' connections at once, greeted or not; beyond it new ones are closed.
const CONNECTIONS_MAX: usize = 1024;
/// How long a greeting may take.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// How long a quorum may take to confirm who the members are, for a newcomer that asks again.
const CONFIRM_MAX: Duration = Duration::from_secs(2);
/// Bytes asked for in one read.
const READ_BYTES: usize = 64 << 10;
/// What a newcomer causes when it asks who the members are: as often as it likes.
const NEWCOMER: Cause = Cause::of("a newcomer asked who the members are");

/// What strangers cause, by the host they come from.
fn stranger(address: &str) -> Cause {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    Cause { what: "peer connections refused", whose: crc32c::crc32c(host.as_bytes()).into() }
}

/// Listens for peers until it is dropped; must be called inside a `LocalSet`.
pub(crate) struct Hearing {
    pub(crate) greeting: Rc<Greeting>,
    pub(crate) inbox: Rc<Inbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) group: GroupId,
    /// Longest frame believed.
    pub(crate) frame_bytes_max: usize,
    /// Who is reading each peer's lanes.
    pub(crate) readers: Rc<Readers>,
    /// Who knows the members.
    pub(crate) engine: Engine,
}

/// The newest reader of each peer's lanes.
#[derive(Default)]
pub(crate) struct Readers(RefCell<BTreeMap<(NodeId, Lane), AbortHandle>>);

impl Readers {
    /// Whether what a peer sends on this lane is read just now.
    pub(crate) fn hear(&self, peer: NodeId, lane: Lane) -> bool {
        self.0.borrow().get(&(peer, lane)).is_some_and(|reader| !reader.is_finished())
    }

    /// Nothing that this peer sends is read any more.
    pub(crate) fn end(&self, peer: NodeId) {
        self.0.borrow_mut().retain(|(of, _), reader| {
            if *of == peer {
                reader.abort();
            }
            *of != peer
        });
    }

    /// The reader that this one replaces.
    pub(crate) fn replace(&self, peer: NodeId, lane: Lane, reader: AbortHandle) -> Option<AbortHandle> {
        self.0.borrow_mut().insert((peer, lane), reader)
    }
}

impl Hearing {
    pub(crate) fn start(self, listeners: Vec<TcpListener>) {
        let hearing = Rc::new(self);
        let open = Rc::new(Cell::new(0));
        for listener in listeners {
            tokio::task::spawn_local(accept(listener, hearing.clone(), open.clone()));
        }
    }

    async fn hear(self: Rc<Self>, mut socket: TcpStream, address: &str) {
        crate::prepare(&socket);
        let greeted =
            tokio::time::timeout(GREETING_MAX, greeting::receive(&mut socket, &self.greeting)).await;
        let hello = match greeted {
            Ok(Ok(Received::Member(hello))) => hello,
            Ok(Ok(Received::Newcomer(join))) => {
                let reached = join.peer_urls.join(",");
                return match self.tell(&mut socket).await {
                    Ok(()) => report::info_of(
                        NEWCOMER,
                        format_args!(
                            "told a newcomer from {address} who the members are; it will be reached at {reached}"
                        ),
                    ),
                    Err(reason) => report::warn_of(
                        NEWCOMER,
                        format_args!(
                            "could not tell a newcomer from {address} (at {reached}) who the members are: {reason}"
                        ),
                    ),
                };
            }
            Ok(Ok(Received::Beginner)) => return,
            Ok(Err(reason)) => {
                self.metrics.peer_rejected.add(1);
                return report::warn_of(
                    stranger(address),
                    format_args!("peer connection from {address} refused: {reason}"),
                );
            }
            Err(_) => {
                self.metrics.peer_rejected.add(1);
                return report::warn_of(
                    stranger(address),
                    format_args!("peer connection from {address} closed: no greeting in 5 s"),
                );
            }
        };
        let from = hello.from;
        let codec = crate::codec().speaking(hello.agree().unwrap_or(PROTOCOL_MIN)); // what it was told
        let hearing = self.clone();
        let reading = tokio::task::spawn_local(async move { hearing.frames(&mut socket, from, codec).await });
        let older = self.readers.replace(from, hello.lane, reading.abort_handle());
        if let Some(older) = older.filter(|older| !older.is_finished()) {
            older.abort();
            self.closed(&hello, LinkEnd::Otherwise); // it has just come back: it lives
        }
        let end = match reading.await {
            Ok(Ok(end)) => end,
            Ok(Err(reason)) => {
                self.metrics.peer_rejected.add(1);
                let cause = Cause { what: "the connection of a member closed", whose: from.0 };
                report::warn_of(cause, format_args!("connection of member {:x} closed: {reason}", from.0));
                LinkEnd::Otherwise
            }
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(_) => return, // whoever replaced it has said so
        };
        self.closed(&hello, end);
    }

    /// Tells a newcomer who the members are, if a quorum confirms it.
    async fn tell(&self, socket: &mut TcpStream) -> Result<(), String> {
        let asked = tokio::time::timeout(CONFIRM_MAX, self.engine.call(newcomer::question())).await;
        greeting::tell(socket, &self.greeting, newcomer::confirmed(asked.ok())).await
    }

    /// What was on its way on this lane may be lost; of the control lane, all of it is repeated anyway, but that the
    /// other end's kernel closed it is a hint that the member died, and the last message of either lane must not belie it.
    fn closed(&self, hello: &Hello, end: LinkEnd) {
        if crate::links::is_told(hello.lane, end) {
            self.inbox.push(Event::LinkClosed(hello.from, end), 0);
        }
    }

    /// Reads frames until the connection ends, and tells how; the error says what was wrong with one.
    async fn frames(&self, socket: &mut TcpStream, from: NodeId, codec: Codec) -> Result<LinkEnd, String> {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut wanted = 0;
        loop {
            self.inbox.room().await;
            buffer.reserve(READ_BYTES.max(wanted - buffer.len().min(wanted)));
            match socket.read_buf(&mut buffer).await {
                Ok(0) => return Ok(LinkEnd::ByPeer),
                Err(error) => return Ok(crate::lane::how_it_ended(&error)),
                Ok(count) => self.metrics.peer_received_bytes.add(count as u64),
            }
            if buffer.len() < wanted {
                continue; // the rest of a long frame
            }
            let mut complete = 0;
            wanted = 0;
            while let Some(len) = codec
                .peek_len(&buffer[complete..], self.frame_bytes_max)
                .map_err(|error| error.to_string())?
            {
                if buffer.len() - complete < len {
                    wanted = len;
                    break;
                }
                complete += len;
            }
            if complete > 0 {
                self.deliver(&split_off_front(&mut buffer, complete), from, codec)?;
            }
        }
    }

    fn deliver(&self, frames: &SharedBytes, from: NodeId, codec: Codec) -> Result<(), String> {
        let mut at = 0;
        while at < frames.len() {
            let len = codec
                .peek_len(&frames[at..], self.frame_bytes_max)
                .map_err(|error| error.to_string())?
                .expect("only whole frames are delivered");
            let frame = codec.decode(&frames.slice(at..at + len)).map_err(|error| error.to_string())?;
            at += len;
            match frame {
                Frame::Message(message) => self.accept_message(message, from, len)?,
                Frame::Goodbye(_) | Frame::Unknown { .. } => {}
                Frame::Introduction(introduction) => {
                    if self.greeting.learnt_priority(from, introduction.priority) {
                        self.inbox.push(Event::Priority(from, introduction.priority), 0);
                    }
                    if self.greeting.introduced(from, introduction) {
                        self.inbox.wake();
                    }
                }
                Frame::Hello(_)
                | Frame::Welcome(_)
                | Frame::Refused(_)
                | Frame::Join(_)
                | Frame::Roll(_)
                | Frame::Removed(_)
                | Frame::Known(_) => return Err("a second greeting".into()),
            }
        }
        Ok(())
    }

    fn accept_message(&self, message: PeerMessage, from: NodeId, bytes: usize) -> Result<(), String> {
        if message.from() != from || message.to() != self.greeting.id {
            return Err(format!(
                "a message from {:x} to {:x} on the link of {:x}",
                message.from().0,
                message.to().0,
                from.0
            ));
        }
        if let PeerMessage::Raft(envelope) = &message
            && envelope.group != self.group
        {
            return Err(format!("a message of group {}, which is not here", envelope.group.0));
        }
        self.metrics.peer_received_msgs.add(1);
        self.inbox.push(Event::Peer(message), bytes);
        Ok(())
    }
}

/// Takes the first `count` bytes out of the buffer. Entries stay ranges of them, so a buffer that is mostly empty is not
/// kept alive for a few bytes.
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

async fn accept(listener: TcpListener, hearing: Rc<Hearing>, open: Rc<Cell<usize>>) {
    loop {
        let Ok((socket, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await; // out of descriptors: let some close
            continue;
        };
        if open.get() >= CONNECTIONS_MAX {
            hearing.metrics.peer_rejected.add(1);
            continue;
        }
        open.set(open.get() + 1);
        let (hearing, open) = (hearing.clone(), open.clone());
        tokio::task::spawn_local(async move {
            hearing.hear(socket, &address.to_string()).await;
            open.set(open.get() - 1);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Call;
    use crate::links::Failure;
    use kattu_node::contract::{MemberInfo, Members, Outcome, Refusal, Reply, ReplyBody};
    use kattu_raft::{Incarnation, Term};
    use tokio::io::AsyncWriteExt;

    const US: NodeId = NodeId(1);
    const PEER: NodeId = NodeId(2);

    fn greeting(id: NodeId) -> Greeting {
        let own_urls = vec![format!("http://10.0.0.{}:2380", id.0)];
        let priority = 100;
        Greeting { cluster: 0xC1, id, incarnation: Incarnation(9), own_urls, priority, ..Greeting::default() }
    }

    async fn connect(address: std::net::SocketAddr, lane: Lane) -> TcpStream {
        let mut socket = TcpStream::connect(address).await.expect("somebody listens");
        match greeting::greet(&mut socket, &greeting(PEER), US, lane).await {
            Ok(_) => socket,
            Err(Failure::Refused(reason)) => panic!("{reason}"),
            Err(Failure::Away | Failure::Removed) => panic!("nobody answers"),
        }
    }

    /// Somebody greets us, who have this table of members.
    fn meet<F: Future<Output = ()>>(
        members: Members,
        test: impl FnOnce(std::net::SocketAddr, Rc<Greeting>, Rc<Inbox>) -> F,
    ) {
        listen(members, |address, us, inbox, _| test(address, us, inbox));
    }

    /// Somebody greets us whom our table has.
    fn run<F: Future<Output = ()>>(test: impl FnOnce(std::net::SocketAddr, Rc<Inbox>, Rc<Readers>) -> F) {
        let list = [US, PEER].map(|id| MemberInfo { id, ..MemberInfo::default() }).into();
        let members = Members { list, ..Members::default() };
        listen(members, |address, _, inbox, readers| test(address, inbox, readers));
    }

    fn listen<F: Future<Output = ()>>(
        members: Members,
        test: impl FnOnce(std::net::SocketAddr, Rc<Greeting>, Rc<Inbox>, Rc<Readers>) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let inbox = Rc::new(Inbox::default());
            let readers = Rc::new(Readers::default());
            let us = Rc::new(greeting(US));
            us.follow(members.clone());
            let (calls, mut asked) = tokio::sync::mpsc::channel(1);
            tokio::task::spawn_local(async move {
                while let Some(Call::Ask(request, reply)) = asked.recv().await {
                    assert_eq!(request, newcomer::question());
                    let outcome = match members.list.is_empty() {
                        true => Outcome::Refused(Refusal::NoLeader),
                        false => {
                            Outcome::Done(Reply { term: Term(1), body: ReplyBody::Members(members.clone()) })
                        }
                    };
                    reply.send(outcome).expect("the newcomer waits");
                }
            });
            let hearing = Hearing {
                greeting: us.clone(),
                inbox: inbox.clone(),
                metrics: Arc::default(),
                group: GroupId(0),
                frame_bytes_max: 1 << 20,
                readers: readers.clone(),
                engine: Engine::new(calls, Arc::default(), Arc::default(), 0xC1, US),
            };
            hearing.start(vec![listener]);
            test(address, us, inbox, readers).await;
        });
    }

    fn events(inbox: &Inbox) -> Vec<Event> {
        let mut events = Vec::new();
        inbox.take(&mut events);
        events
    }

    #[test]
    fn a_new_connection_of_a_peer_ends_the_one_it_had_before() {
        run(|address, inbox, _| async move {
            let mut control = connect(address, Lane::Control).await;
            let mut first = connect(address, Lane::Bulk).await;
            let _second = connect(address, Lane::Bulk).await;
            inbox.arrived().await;
            assert_eq!(
                events(&inbox),
                [Event::LinkClosed(PEER, LinkEnd::Otherwise)],
                "what was on its way on the first may be lost"
            );
            assert_eq!(first.read(&mut [0; 8]).await.unwrap_or(0), 0);
            let mut third = connect(address, Lane::Control).await;
            assert_eq!(control.read(&mut [0; 8]).await.unwrap_or(0), 0);
            assert_eq!(events(&inbox), [], "nothing hangs on a control lane");
            third.write_all(b"this is not a frame, and it is longer than a header").await.expect("sent");
            assert_eq!(third.read(&mut [0; 8]).await.unwrap_or(0), 0, "given up");
        });
    }

    #[test]
    fn an_end_by_the_peers_kernel_is_told_as_such_on_either_lane() {
        run(|address, inbox, _| async move {
            for lane in [Lane::Bulk, Lane::Control] {
                drop(connect(address, lane).await);
                inbox.arrived().await;
                assert_eq!(events(&inbox), [Event::LinkClosed(PEER, LinkEnd::ByPeer)], "{lane:?}");
            }
        });
    }

    #[test]
    fn a_member_that_others_have_added_is_let_in_and_says_where_it_is_reached() {
        meet(Members::default(), |address, us, inbox| async move {
            let socket = connect(address, Lane::Bulk).await;
            inbox.arrived().await;
            assert_eq!(us.places(), [(PEER, vec!["10.0.0.2:2380".to_string()])].into());
            assert!(us.heard.borrow().contains(&PEER));
            drop(socket);
        });
    }

    #[test]
    fn who_is_eager_to_lead_says_so_once_and_again_when_it_has_changed_its_mind() {
        run(|address, inbox, _| async move {
            for (priority, told) in [(100, None), (200, Some(200)), (200, None), (100, Some(100))] {
                let eager = Greeting { priority, ..greeting(PEER) };
                let mut socket = TcpStream::connect(address).await.expect("somebody listens");
                let greeted = greeting::greet(&mut socket, &eager, US, Lane::Bulk).await;
                assert!(greeted.is_ok());
                drop(socket);
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
            let mut socket = TcpStream::connect(address).await.expect("somebody listens");
            let told = greeting::greet(&mut socket, &greeting(PEER), US, Lane::Bulk).await;
            assert!(matches!(told, Err(Failure::Removed)));
            assert_eq!(socket.read(&mut [0; 8]).await.expect("an orderly end"), 0);
            assert!(us.places().is_empty() && us.heard.borrow().is_empty());
        });
    }

    #[test]
    fn who_is_known_from_a_directory_is_let_in_with_that_one_only() {
        let voter = |name: &str| MemberInfo { id: PEER, name: name.into(), ..MemberInfo::default() };
        let table = |voter: MemberInfo| Members { list: vec![voter], ..Members::default() };
        meet(table(voter("")), |address, _, _| async move {
            let is_known = async || {
                let mut socket = TcpStream::connect(address).await.expect("somebody listens");
                greeting::is_known(&mut socket, 0xC1, PEER, US).await
            };
            assert!(!is_known().await, "it may begin");
            assert!(!is_known().await, "to have asked is not to have begun");
            drop(connect(address, Lane::Bulk).await);
            assert!(is_known().await, "it has greeted us from a directory");

            let other = Greeting { incarnation: Incarnation(10), ..greeting(PEER) };
            let greet = async || {
                let mut socket = TcpStream::connect(address).await.expect("somebody listens");
                greeting::greet(&mut socket, &other, US, Lane::Bulk).await
            };
            let Err(Failure::Refused(why)) = greet().await else { panic!("another directory of a voter") };
            assert!(why.contains("another data directory"), "{why}");
        });
        meet(table(MemberInfo { learner: true, ..voter("") }), |address, _, _| async move {
            drop(connect(address, Lane::Bulk).await);
            let other = Greeting { incarnation: Incarnation(10), ..greeting(PEER) };
            let mut socket = TcpStream::connect(address).await.expect("somebody listens");
            let again = greeting::greet(&mut socket, &other, US, Lane::Bulk).await;
            assert!(again.is_ok(), "a learner has promised nothing yet");
        });
        meet(table(voter("n2")), |address, _, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("somebody listens");
            assert!(greeting::is_known(&mut socket, 0xC1, PEER, US).await, "the log says that it was there");
            let mut socket = TcpStream::connect(address).await.expect("somebody listens");
            let elsewhere = greeting::is_known(&mut socket, 0xC2, PEER, US).await;
            assert!(!elsewhere, "of another cluster nothing is known");
        });
    }

    #[test]
    fn whoever_joins_is_told_who_is_there() {
        let list = vec![MemberInfo { id: US, name: "n1".into(), ..MemberInfo::default() }];
        meet(Members { list: list.clone(), ..Members::default() }, |address, _, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("somebody listens");
            let Ok(roll) = greeting::ask(&mut socket, &[]).await else { panic!("no answer") };
            assert_eq!((roll.cluster, roll.members.list, roll.heard), (0xC1, list, vec![US]));
            assert_eq!(socket.read(&mut [0; 8]).await.expect("an orderly end"), 0);
        });
    }

    #[test]
    fn whoever_joins_is_told_nothing_that_no_quorum_confirms() {
        meet(Members::default(), |address, _, _| async move {
            let mut socket = TcpStream::connect(address).await.expect("somebody listens");
            let Err(Failure::Refused(why)) = greeting::ask(&mut socket, &[]).await else {
                panic!("it was told")
            };
            assert!(why.contains("quorum"), "{why}");
        });
    }

    #[test]
    fn nonsense_on_the_bulk_lane_ends_it_and_is_told_once() {
        run(|address, inbox, _| async move {
            let mut socket = connect(address, Lane::Bulk).await;
            socket.write_all(&[0xA5; 100]).await.expect("sent");
            inbox.arrived().await;
            assert_eq!(events(&inbox), [Event::LinkClosed(PEER, LinkEnd::Otherwise)]);
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
                tokio::task::yield_now().await; // the greeting was answered before the reader stood
            }
            drop(bulk);
            inbox.arrived().await;
            assert_eq!(events(&inbox), [Event::LinkClosed(PEER, LinkEnd::ByPeer)]);
            assert!(!readers.hear(PEER, Lane::Bulk));
            drop(control);
        });
    }
}
