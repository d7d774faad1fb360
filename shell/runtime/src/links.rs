//! Peer links: the lanes out to each peer, and the connections that peers open towards this member.
//!
//! A link is one-way: this member sends on the connections it opens, and receives on those it accepts, so that each
//! side retries and gives up on its own. Votes, heartbeats and read rounds ride on the bulk lane while nothing waits on
//! it, and take their own lane otherwise. Pieces of snapshots have a third one, which is opened on demand and closed
//! when it has been idle for a while: no entry and no heartbeat waits behind them. Appends may have further streams.
//! [fault-model NT1–NT6]
//! Links follow the table of members. The link to a removed member stays for a moment, so that the member learns of it;
//! then nothing from it is read any more, and its next handshake is answered with `Removed`.
//! Knows nothing of: the leader, what entries mean.

use crate::clock;
use crate::handshake;
use crate::inbox::Inbox;
use crate::lane::Lane;
use crate::listener::Readers;
use crate::metrics::Metrics;
use crate::outgoing::Outgoing;
use crate::peer_table::PeerTable;
use crate::report;
use crate::tls;
use kattu_member::dialler::{Dialler as Decides, Failure, Next, Note};
use kattu_member::lane_on_demand::Usage;
use kattu_member::lanes;
use kattu_member::pauses;
use kattu_member::peer_address::{self, PeerAddress};
use kattu_member::streams::{self, Spread, Streams};
use kattu_node::contract::{Event, Forward, PeerMessage};
use kattu_raft::{Duration, Instant, LinkEnd, NodeId, Timing};
use kattu_wire::{Frame, Lane as LaneKind, PROTOCOL_STREAMS};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// One peer to dial.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: NodeId,
    /// Tried in turn.
    pub(crate) addresses: Vec<PeerAddress>,
}

struct Link {
    addresses: Vec<PeerAddress>,
    bulk: Rc<Lane>,
    control: Rc<Lane>,
    snapshot: Rc<Lane>,
    /// Further streams for appends.
    streams: Vec<Rc<Lane>>,
    spread: Rc<RefCell<Spread>>,
    /// The tasks that keep the lanes open.
    diallers: Vec<AbortHandle>,
    /// When the link ends, because the peer was removed.
    ends_at: Option<Instant>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.diallers.iter().for_each(AbortHandle::abort);
    }
}

/// All links out of this member.
pub(crate) struct Links {
    links: BTreeMap<NodeId, Link>,
    peer_table: Rc<PeerTable>,
    /// The timing in force.
    timing: Rc<Cell<Timing>>,
    streams: Streams,
    inbox: Rc<Inbox>,
    /// The connections that are read.
    readers: Rc<Readers>,
    metrics: Arc<Metrics>,
}

impl Links {
    /// No links yet.
    pub(crate) fn new(
        peer_table: &Rc<PeerTable>,
        timing: Timing,
        streams: Streams,
        inbox: &Rc<Inbox>,
        readers: &Rc<Readers>,
        metrics: &Arc<Metrics>,
    ) -> Links {
        Links {
            links: BTreeMap::new(),
            peer_table: peer_table.clone(),
            timing: Rc::new(Cell::new(timing)),
            streams,
            inbox: inbox.clone(),
            readers: readers.clone(),
            metrics: metrics.clone(),
        }
    }

    /// Brings the links in line with the members' addresses, if those may have changed, and ends links whose time is
    /// up. Must be called inside a `LocalSet`.
    pub(crate) fn follow(&mut self) {
        let now = clock::now();
        let readers = &self.readers;
        self.links.retain(|peer, link| {
            let is_over = link.ends_at.is_some_and(|end| end <= now);
            if is_over {
                readers.end(*peer);
            }
            !is_over
        });
        if !self.peer_table.take_places_changed() {
            return;
        }
        let places = self.peer_table.places();
        let farewell = farewell(self.timing.get());
        for (peer, link) in &mut self.links {
            let is_gone = !places.contains_key(peer);
            link.ends_at = is_gone.then(|| link.ends_at.unwrap_or(now + farewell));
        }
        for (peer, addresses) in places {
            let known = self.links.get(&peer);
            if known.is_none_or(|link| link.addresses != addresses) {
                if known.is_some() {
                    // Messages on the way to the old address may be lost.
                    self.inbox.push(Event::LinkClosed(peer, LinkEnd::Otherwise), 0);
                }
                let link = self.open(&Peer { id: peer, addresses });
                self.links.insert(peer, link);
            }
        }
    }

    /// Another timing is in force.
    pub(crate) fn go_by(&self, timing: Timing) {
        self.timing.set(timing);
    }

    /// Ends the connections that this peer has opened: it has to begin anew.
    pub(crate) fn distrust(&self, peer: NodeId) {
        self.readers.end(peer);
    }

    /// Starts dialling a peer.
    fn open(&self, peer: &Peer) -> Link {
        let bulk = Rc::new(Lane::default());
        let control = Rc::new(Lane::default());
        let snapshot = Rc::new(Lane::on_demand());
        let spread = Rc::new(RefCell::new(Spread::new(self.streams, first_set())));
        let mut lanes = vec![
            (LaneKind::Bulk, bulk.clone()),
            (LaneKind::Control, control.clone()),
            (LaneKind::Snapshot, snapshot.clone()),
        ];
        lanes.extend(self.streams.further().map(|kind| (kind, Rc::default())));
        let is_further = |(kind, _): &&(LaneKind, Rc<Lane>)| matches!(kind, LaneKind::Stream(_));
        let streams = lanes.iter().filter(is_further).map(|(_, lane)| lane.clone()).collect();
        let diallers = lanes.into_iter().map(|(kind, lane)| {
            let dialler = Dialler {
                peer: peer.clone(),
                kind,
                lane,
                bulk: bulk.clone(),
                spread: spread.clone(),
                peer_table: self.peer_table.clone(),
                timing: self.timing.clone(),
                inbox: self.inbox.clone(),
                metrics: self.metrics.clone(),
            };
            tokio::task::spawn_local(dialler.run()).abort_handle()
        });
        let diallers = diallers.collect();
        let addresses = peer.addresses.clone();
        Link { addresses, bulk, control, snapshot, streams, spread, diallers, ends_at: None }
    }

    /// Sends a batch: each message is encoded once, each lane flushed once. Returns the forwarded writes that cannot
    /// leave; of the protocol's own messages any may be lost. A write leaves only for a leader whose own link to this
    /// member is open: otherwise its answer could not come back, and the caller would wait for its timeout.
    pub(crate) fn send(&self, messages: &mut Vec<PeerMessage>) -> Vec<Forward> {
        let mut unsent = Vec::new();
        if messages.is_empty() {
            return unsent;
        }
        for message in messages.drain(..) {
            let Some(link) = self.links.get(&message.to()) else { continue };
            let lane = match lanes::lane_of(&message, || link.bulk.unsent_bytes() > 0, link.control.is_up()) {
                LaneKind::Bulk if streams::is_spread(&message) => {
                    self.count(link.push_spread(&message));
                    continue;
                }
                LaneKind::Bulk | LaneKind::Stream(_) => &link.bulk,
                LaneKind::Control => &link.control,
                LaneKind::Snapshot => {
                    self.metrics.snapshot_chunks_sent.add(1);
                    &link.snapshot
                }
            };
            let is_answerable = match &message {
                PeerMessage::Forward(forward) => self.readers.hear(forward.to, LaneKind::Bulk),
                PeerMessage::Raft(_) | PeerMessage::ForwardReply(_) => true,
            };
            let is_sent = is_answerable && lane.push(&message, None);
            self.count(is_sent);
            if !is_sent && let PeerMessage::Forward(forward) = message {
                unsent.push(forward);
            }
        }
        for link in self.links.values() {
            link.bulk.flush(&self.metrics);
            link.control.flush(&self.metrics);
            link.snapshot.flush(&self.metrics);
            link.streams.iter().for_each(|stream| stream.flush(&self.metrics));
        }
        unsent
    }

    fn count(&self, is_sent: bool) {
        match is_sent {
            true => self.metrics.peer_sent_msgs.add(1),
            false => self.metrics.peer_dropped_msgs.add(1),
        }
    }
}

impl Link {
    /// The stream of this number; 0 is the bulk lane.
    fn stream(&self, number: usize) -> &Lane {
        number.checked_sub(1).map_or(&self.bulk, |further| &self.streams[further])
    }

    /// Queues an append, on whichever stream; or drops it.
    fn push_spread(&self, message: &PeerMessage) -> bool {
        let mut spread = self.spread.borrow_mut();
        let stream = spread.next(|number| {
            let stream = self.stream(number);
            stream.is_up().then(|| stream.unsent_bytes() as u64)
        });
        let is_taken = self.stream(stream).push(message, spread.order(message));
        if is_taken {
            spread.taken();
        }
        is_taken
    }
}

/// The number of the first set of streams: no earlier process has used it, unless the machine's clock was set back.
fn first_set() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX >> 1).max(1)
}

/// Keeps one lane to one peer open.
struct Dialler {
    peer: Peer,
    kind: LaneKind,
    lane: Rc<Lane>,
    /// The bulk lane to the same peer.
    bulk: Rc<Lane>,
    spread: Rc<RefCell<Spread>>,
    peer_table: Rc<PeerTable>,
    /// The timing in force.
    timing: Rc<Cell<Timing>>,
    inbox: Rc<Inbox>,
    metrics: Arc<Metrics>,
}

thread_local! {
    /// Spreads reconnects; no decision of the protocol depends on it.
    static JITTER: Cell<u64> = Cell::new(crate::entropy());
}

fn jittered(duration: Duration) -> Duration {
    let draw = JITTER.with(|state| {
        let next =
            state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.set(next);
        next >> 33
    });
    duration / 2 + duration.mul_f64((draw % 1000) as f64 / 2000.0)
}

/// How long the link to a removed member stays, so that it learns of its removal from repeated heartbeats.
fn farewell(timing: Timing) -> Duration {
    (timing.heartbeat_interval * 30).max(Duration::from_secs(1))
}

/// How long a peer may take to send its challenge: it has to reach this member first.
const PROOF_MAX: Duration = Duration::from_secs(4);

/// The shortest pause before an attempt that only a challenge asks for: a stranger that keeps calling in a peer's name
/// cannot make this member dial that peer without pause.
const CHALLENGE_AFTER: Duration = Duration::from_millis(20);

/// How long an attempt goes on that was under way when the peer came: it may have been begun after the peer was back.
const OVERTAKEN_AFTER: Duration = Duration::from_millis(100);

impl Dialler {
    async fn run(self) {
        let mut decides = Decides::new(self.peer.id, self.kind);
        let mut next = decides.first(clock::now());
        let mut arrivals = self.arrivals();
        loop {
            let dial_at = match next {
                Next::Dial(at) => at,
                Next::Wait => {
                    self.lane.wanted().await;
                    decides.wanted(clock::now()).expect("one attempt at a time")
                }
                Next::End => return,
            };
            self.pause(dial_at, arrivals).await;
            if matches!(self.kind, LaneKind::Stream(_)) {
                // An older version does not know such lanes.
                self.bulk.speaks(PROTOCOL_STREAMS).await;
            }
            arrivals = self.arrivals();
            let connected = tokio::select! {
                connected = self.connect() => connected,
                () = self.overtaken(arrivals) => Err(Failure::Away),
            };
            next = match connected {
                Ok((dialled, protocol)) => {
                    decides.opened();
                    let opened = clock::now();
                    self.while_open(dialled, protocol).await;
                    let now = clock::now();
                    decides.ended(now, now.since(opened), self.pause_max(), jittered)
                }
                Err(failure) => {
                    self.lane.close();
                    let (now, max) = (clock::now(), self.pause_max());
                    let (next, note) =
                        self.peer_table.with(|table| decides.failed(now, failure, table, max, jittered));
                    if let Some(note) = note {
                        self.note(&note);
                    }
                    if self.peer_table.is_removed() {
                        self.inbox.wake();
                    }
                    next
                }
            };
        }
    }

    /// Runs while the connection is open.
    async fn while_open(&self, dialled: tls::Dialled, protocol: u16) {
        let opened = clock::now();
        let (socket, believed_no_more) = dialled.split();
        let socket = Rc::new(Outgoing::new(socket));
        self.lane.open(socket.clone(), protocol);
        let run = async {
            match self.kind {
                LaneKind::Snapshot => self.while_used(&socket).await,
                LaneKind::Bulk | LaneKind::Control | LaneKind::Stream(_) => {
                    self.lane.run(&socket, &self.metrics).await
                }
            }
        };
        let end = tokio::select! {
            end = run => end,
            why = believed_no_more => {
                report::warn(format_args!("closing the connection to member {:x}: {why}", self.peer.id.0));
                LinkEnd::Otherwise
            }
            () = self.until_it_starts_anew(opened) => LinkEnd::Otherwise,
            never = self.tell_challenges() => match never {},
        };
        self.lane.close();
        if streams::is_stream(self.kind) {
            self.spread.borrow_mut().begin_set();
        }
        if lanes::end_is_told(self.kind, end) {
            // The control lane carries only what is repeated anyway; its end is still a hint.
            self.inbox.push(Event::LinkClosed(self.peer.id, end), 0);
        }
    }

    fn note(&self, note: &Note) {
        let (peer, at) = (self.peer.id.0, peer_address::join(&self.peer.addresses));
        match note {
            Note::Refused(reason) => {
                report::warn(format_args!("no connection to member {peer:x} at {at}: {reason}"));
            }
            Note::NotReached => report::warn(format_args!(
                "member {peer:x} at {at} accepts this member, but does not reach it at its own peer URLs, which is its proof \
                 of identity ({}): check --initial-advertise-peer-urls, or `kattu member update`, and the network path back",
                self.peer_table.ask(|table| table.own_peer_urls().join(",")),
            )),
        }
    }

    /// The longest pause between two attempts.
    fn pause_max(&self) -> Duration {
        pauses::pause_max(self.timing.get().election_timeout)
    }

    fn arrivals(&self) -> u64 {
        self.peer_table.ask(|table| table.proofs.arrivals(self.peer.id))
    }

    /// Waits until then. Ends early when a caller that claims to be this peer waits for a challenge, and when the peer has
    /// come: its host may be back.
    async fn pause(&self, until: Instant, arrivals: u64) {
        let pause = clock::until(until);
        let end = tokio::time::Instant::now() + pause;
        tokio::time::sleep(pause.min(CHALLENGE_AFTER)).await;
        while tokio::time::Instant::now() < end {
            let news = self.peer_table.news();
            let is_asked = self.peer_table.ask(|table| table.proofs.has_untold(self.peer.id));
            if is_asked || arrivals != self.arrivals() {
                return;
            }
            tokio::select! {
                () = news => {}
                () = tokio::time::sleep_until(end) => {}
            }
        }
    }

    /// Ends a while after the peer has come: an attempt that is still under way then was begun while the peer's host
    /// was away.
    async fn overtaken(&self, arrivals: u64) {
        loop {
            let news = self.peer_table.news();
            if arrivals != self.arrivals() {
                break;
            }
            news.await;
        }
        tokio::time::sleep(OVERTAKEN_AFTER.min(self.pause_max() / 4)).await;
    }

    /// Ends when the peer has started since: its host may have vanished silently, and then nothing sent to its last run
    /// arrives.
    async fn until_it_starts_anew(&self, opened: Instant) {
        loop {
            let news = self.peer_table.news();
            if self.peer_table.ask(|table| table.proofs.has_started_since(self.peer.id, opened)) {
                return;
            }
            news.await;
        }
    }

    /// Forwards challenges to the peer for as long as the lane is open.
    async fn tell_challenges(&self) -> std::convert::Infallible {
        loop {
            let news = self.peer_table.news();
            for challenge in self.peer_table.with(|table| table.proofs.take_untold(self.peer.id)) {
                self.lane.push_frame(&Frame::Challenge(challenge));
            }
            self.lane.flush(&self.metrics);
            news.await;
        }
    }

    /// Runs while the connection lives and is used now and then.
    async fn while_used(&self, socket: &Outgoing) -> LinkEnd {
        let mut usage = Usage::since(self.lane.pushed());
        let unused = async {
            loop {
                tokio::time::sleep(lanes::SILENCE_MAX).await;
                if usage.is_over(self.lane.pushed(), self.lane.unsent_bytes() > 0) {
                    return LinkEnd::Otherwise;
                }
            }
        };
        tokio::select! {
            end = self.lane.run(socket, &self.metrics) => end,
            end = unused => end,
        }
    }

    /// A connection on which the peer accepts this member, and the agreed protocol version.
    async fn connect(&self) -> Result<(tls::Dialled, u16), Failure> {
        let mut failure = Failure::Away;
        for address in &self.peer.addresses {
            match self.connect_to(address).await {
                Ok(connection) => return Ok(connection),
                Err(Failure::Away) => {}
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    async fn connect_to(&self, address: &PeerAddress) -> Result<(tls::Dialled, u16), Failure> {
        let peer_table = &self.peer_table;
        let attempt = async {
            let mut dialled = tls::dial(address, peer_table.tls.as_ref()).await?;
            let welcome = handshake::open(&mut dialled.socket, peer_table, self.peer.id, self.kind).await?;
            Ok((dialled, welcome))
        };
        let patience = self.pause_max().max(Duration::from_millis(500));
        let attempt = tokio::time::timeout(patience, attempt).await;
        let (mut dialled, welcome) = attempt.unwrap_or(Err(Failure::Away))?;
        let proof = handshake::prove(&mut dialled.socket, peer_table, &welcome);
        tokio::time::timeout(PROOF_MAX, proof).await.unwrap_or(Err(Failure::Unproven))?;
        let introduced = handshake::introduce(&mut dialled.socket, peer_table);
        tokio::time::timeout(patience, introduced).await.unwrap_or(Err(Failure::Away))?;
        Ok((dialled, welcome.protocol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_member::peer_table::Own;
    use kattu_node::contract::{MemberInfo, Members};
    use kattu_raft::{Incarnation, SharedBytes, Term};
    use tokio::io::AsyncReadExt;

    fn timing(election_s: u64) -> Timing {
        let election_timeout = Duration::from_secs(election_s);
        Timing { election_timeout, heartbeat_interval: election_timeout / 10 }
    }

    #[test]
    fn a_write_leaves_only_where_its_answer_can_come_back() {
        const LEADER: NodeId = NodeId(2);
        let forward = Forward {
            from: NodeId(1),
            to: LEADER,
            incarnation: Incarnation(7),
            term: Term(1),
            first_seq: 1,
            commands: vec![SharedBytes::from(b"put".to_vec())],
        };
        let message = || vec![PeerMessage::Forward(forward.clone())];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let socket = tokio::net::TcpStream::connect(address).await.expect("a listener");
            let socket = Outgoing::new(kattu_tls::Socket::Plain(socket));
            let readers = Rc::new(Readers::default());
            let mut links = links_with(&Rc::default(), timing(1), Streams::default(), &readers);
            let link = links.open(&Peer { id: LEADER, addresses: Vec::new() });
            link.bulk.open(Rc::new(socket), kattu_wire::PROTOCOL_MAX);
            links.links.insert(LEADER, link);

            assert_eq!(
                links.send(&mut message()),
                std::slice::from_ref(&forward),
                "no reader for the answer"
            );
            let reader = tokio::task::spawn_local(std::future::pending::<()>());
            readers.replace(LEADER, LaneKind::Bulk, reader.abort_handle());
            assert_eq!(links.send(&mut message()), []);
            reader.abort();
            assert!(reader.await.is_err_and(|ended| ended.is_cancelled()));
            assert_eq!(
                links.send(&mut message()),
                std::slice::from_ref(&forward),
                "the link of the leader has ended"
            );
        });
    }

    fn links_with(us: &Rc<PeerTable>, timing: Timing, streams: Streams, readers: &Rc<Readers>) -> Links {
        Links::new(us, timing, streams, &Rc::default(), readers, &Arc::default())
    }

    const PEER: NodeId = NodeId(2);
    const OWN_URL: &str = "http://10.0.0.1:2380";

    /// The listener of a peer that this member dials; no attempt of ours ends by itself.
    fn dialled<F: Future<Output = ()>>(test: impl FnOnce(tokio::net::TcpListener, Rc<PeerTable>) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let peer_urls = vec![format!("http://{}", listener.local_addr().expect("it is bound"))];
            let peer = MemberInfo { id: PEER, peer_urls, ..MemberInfo::default() };
            let own_urls = vec![OWN_URL.to_string()];
            let own = Own { cluster: 0xC1, id: NodeId(1), peer_urls: own_urls, ..Own::default() };
            let us = Rc::new(PeerTable::new(own, BTreeMap::new(), None));
            us.follow(Members { list: [peer].into(), ..Members::default() });
            let hours = timing(3 * 3600);
            let mut links = links_with(&us, hours, Streams::default(), &Rc::default());
            links.follow();
            test(listener, us).await;
        });
    }

    async fn accept(listener: &tokio::net::TcpListener, what: &str) -> tokio::net::TcpStream {
        let accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept()).await;
        accepted.unwrap_or_else(|_| panic!("it does not dial {what}")).expect("a connection").0
    }

    /// Goal: when a peer has come back, attempts that were begun while its host was away are given up.
    #[test]
    fn a_peer_that_has_come_is_dialled_anew() {
        dialled(async |listener, us| {
            let _unanswered = [accept(&listener, "at first").await, accept(&listener, "at first").await];
            us.with(|table| table.proofs.arrived(PEER));
            accept(&listener, "again").await;
            accept(&listener, "again").await;
        });
    }

    /// Goal: connections to the last run of a peer are given up, although neither side has closed them.
    #[test]
    fn a_peer_that_has_started_is_dialled_anew() {
        dialled(async |listener, us| {
            let before = clock::now();
            let mut open = Vec::new();
            for _ in [LaneKind::Bulk, LaneKind::Control] {
                let mut socket = accept(&listener, "at first").await;
                let (protocol, incarnation) = (kattu_wire::PROTOCOL_MAX, Incarnation(2));
                let welcome = kattu_wire::Welcome { protocol, from: PEER, incarnation, proof: 0 };
                handshake::say(&mut socket, &Frame::Welcome(welcome)).await.expect("it listens");
                let mut all = Vec::new();
                while !all.windows(OWN_URL.len()).any(|it| it == OWN_URL.as_bytes()) {
                    socket.read_buf(&mut all).await.expect("it introduces itself");
                }
                open.push(socket);
            }
            us.with(|table| table.proofs.started(PEER, 1, before));
            us.with(|table| table.proofs.started(PEER, 1, clock::now()));
            assert!(
                !us.ask(|table| table.proofs.has_started_since(PEER, before)),
                "it had come before it was dialled, and once"
            );
            us.with(|table| table.proofs.started(PEER, 2, clock::now()));
            accept(&listener, "again").await;
            accept(&listener, "again").await;
        });
    }
}
