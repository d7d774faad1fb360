//! The link proxy: all bytes between members pass through it, and the weather of their link decides their fate.
//!
//! ```text
//!    member i ──▶ face of j ─ accept ─▶ which member? ─▶ connect to member j
//!         i→j:  read ▶ pieces ▶ reset? hang? flip? twice? later? ▶ queue ▶ wait until due and not cut ▶ write
//!         j→i:  the same with the weather from j to i
//! ```
//! Chance comes from the trial's seed and the number of the connection. Real processes are not deterministic, so a seed
//! repeats the plan of a trial, not its bytes.
//! Knows nothing of: the meaning of the bytes, beyond the length of Kattu's frames.

use crate::cluster::Processes;
use crate::frames::{Chopper, Piece};
use crate::place::Endpoint;
use crate::weather::{Links, SENT_AGAIN};
use kattu_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Pieces under way in one direction of one connection; more make the sender wait.
const QUEUE_PIECES: usize = 64;
/// A message that is to be overtaken waits so long for its successor.
const HELD_MAX: Duration = Duration::from_millis(40);
const STALL_MS: std::ops::Range<u64> = 100..1_500;

/// The proxies of one cluster, on a thread of their own. Dropped, all connections through them end.
pub struct Proxy {
    /// The weather.
    pub links: Arc<Links>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    endpoints: Vec<Endpoint>,
    links: Arc<Links>,
    knows_frames: bool,
    seed: u64,
    questions: std::sync::mpsc::Sender<Question>,
}

impl Proxy {
    /// Listens at every face.
    ///
    /// # Errors
    /// A face that cannot be listened at.
    pub fn start(
        endpoints: &[Endpoint],
        knows_frames: bool,
        seed: u64,
        processes: Processes,
    ) -> Result<Proxy, String> {
        let links = Arc::new(Links::new(endpoints.len()));
        let (questions, asked) = std::sync::mpsc::channel();
        std::thread::spawn(move || answer(&asked, &processes));
        let shared = Arc::new(Shared {
            endpoints: endpoints.to_vec(),
            links: links.clone(),
            knows_frames,
            seed,
            questions,
        });
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                for member in 0..shared.endpoints.len() {
                    match TcpListener::bind((shared.endpoints[member].face.as_str(), 2380)).await {
                        Ok(listener) => drop(tokio::spawn(listen(shared.clone(), listener, member))),
                        Err(error) => {
                            let _ = ready.send(Err(format!("{}: {error}", shared.endpoints[member].face)));
                            return;
                        }
                    }
                }
                let _ = ready.send(Ok(()));
                let _ = stopped.await;
            });
        });
        is_ready.recv().map_err(|_| "the proxy's thread ended".to_string())??;
        Ok(Proxy { links, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen(shared: Arc<Shared>, listener: TcpListener, to: usize) {
    let mut number = 0;
    loop {
        // A connection that was closed before it was accepted is no loss.
        let Ok((socket, address)) = listener.accept().await else { continue };
        let Ok(face) = socket.local_addr() else { continue };
        number += 1;
        tokio::spawn(accepted(shared.clone(), socket, (address, face), to, number));
    }
}

/// Passes on what one connection carries, once it is known which member opened it.
async fn accepted(
    shared: Arc<Shared>,
    socket: TcpStream,
    (address, face): (SocketAddr, SocketAddr),
    to: usize,
    number: u64,
) {
    let Some(from) = opener(&shared, address, face).await else { return };
    let seed = Random::of_part(shared.seed, &format!("connection {from} {to} {number}")).number();
    connection(shared, socket, from, to, seed).await;
}

/// The member that opened a connection from this address to this face.
async fn opener(shared: &Shared, address: SocketAddr, face: SocketAddr) -> Option<usize> {
    if shared.endpoints.iter().all(|endpoint| endpoint.stand_in.is_some()) {
        return shared
            .endpoints
            .iter()
            .position(|endpoint| endpoint.stand_in.map(|(_, own)| own) == Some(address.ip()));
    }
    let (answer, found) = oneshot::channel();
    shared.questions.send(Question { near: address, far: face, answer }).ok()?;
    found.await.ok().flatten()
}

/// Which member has the socket with these ends?
struct Question {
    near: SocketAddr,
    far: SocketAddr,
    answer: oneshot::Sender<Option<usize>>,
}

/// Answers questions, all that have come meanwhile from one look at the kernel's tables: that takes milliseconds, and members that
/// start open hundreds of connections at once. Ends with the last asker.
fn answer(questions: &std::sync::mpsc::Receiver<Question>, processes: &Processes) {
    while let Ok(first) = questions.recv() {
        let all: Vec<Question> = std::iter::once(first).chain(questions.try_iter()).collect();
        let inodes = inodes();
        let processes = processes.lock().expect("nobody panics with it").clone();
        let owned: Vec<BTreeSet<u64>> =
            processes.iter().map(|process| process.map(sockets_of).unwrap_or_default()).collect();
        for question in all {
            let ends = in_table(question.near).zip(in_table(question.far));
            let inode = ends.and_then(|ends| inodes.get(&ends));
            let found = inode.and_then(|inode| owned.iter().position(|sockets| sockets.contains(inode)));
            let _ = question.answer.send(found); // the connection may have ended
        }
    }
}

/// The inodes of open sockets by their ends, near and far, from the kernel's table. The near end alone is not enough: the kernel
/// uses it for connections to others, too, and lists ended ones (with inode 0) for a minute.
fn inodes() -> BTreeMap<(String, String), u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (near, far) = (fields.get(1)?, fields.get(2)?);
        let inode = fields.get(9)?.parse().ok().filter(|&inode: &u64| inode != 0)?;
        Some((((*near).to_string(), (*far).to_string()), inode))
    };
    table.lines().filter_map(of_line).collect()
}

/// An address in that table's format: a number in the machine's byte order, and the port.
fn in_table(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port()))
}

/// The inodes of all sockets of a process.
fn sockets_of(process: u32) -> BTreeSet<u64> {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let of_file = |file: std::fs::DirEntry| {
        let to = std::fs::read_link(file.path()).ok()?;
        to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    open.filter_map(of_file).collect()
}

async fn connection(shared: Arc<Shared>, opened: TcpStream, from: usize, to: usize, seed: u64) {
    shared.links.until_open(from, to).await;
    let Ok(onward) = connect(&shared.endpoints[from], &shared.endpoints[to]).await else {
        // The reset tells the opener what the member's refusal would have.
        let _ = socket2::SockRef::from(&opened).set_linger(Some(Duration::ZERO));
        return;
    };
    let _ = opened.set_nodelay(true);
    let _ = onward.set_nodelay(true);
    let (opened_in, opened_out) = opened.into_split();
    let (onward_in, onward_out) = onward.into_split();
    let mut random = Random::new(seed);
    let pump = |from, to, source, sink, seed| {
        Pump { links: shared.links.clone(), from, to, random: Random::new(seed) }.run(
            source,
            sink,
            Chopper::new(shared.knows_frames),
        )
    };
    let there = pump(from, to, opened_in, onward_out, random.number());
    let back = pump(to, from, onward_in, opened_out, random.number());
    // The first end, clean or not, ends both directions: neither system uses half a connection.
    tokio::select! {
        () = there => (),
        () = back => (),
    }
}

async fn connect(from: &Endpoint, to: &Endpoint) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some((stand_in, _)) = from.stand_in {
        socket.bind(SocketAddr::new(stand_in, 0))?;
    }
    let ip: IpAddr = to.host.parse().map_err(std::io::Error::other)?;
    socket.connect(SocketAddr::new(ip, 2380)).await
}

/// One direction of one connection.
struct Pump {
    links: Arc<Links>,
    from: usize,
    to: usize,
    random: Random,
}

/// Input of the writing half.
enum Outgoing {
    Bytes {
        at: Instant,
        /// The lower one of the link's bandwidth and the sender's egress when that was decided.
        limit: u32,
        bytes: Vec<u8>,
    },
    Reset,
}

impl Pump {
    async fn run(self, source: OwnedReadHalf, sink: OwnedWriteHalf, chopper: Chopper) {
        let (sender, receiver) = mpsc::channel(QUEUE_PIECES);
        let (links, from, to) = (self.links.clone(), self.from, self.to);
        tokio::join!(self.take(source, chopper, sender), give(&links, from, to, sink, receiver));
    }

    /// Reads until the end, or until a piece cannot be passed on.
    async fn take(mut self, mut source: OwnedReadHalf, mut chopper: Chopper, sender: mpsc::Sender<Outgoing>) {
        let mut buffer = vec![0; 32 << 10];
        let mut held: Option<Piece> = None;
        let mut free_at = Instant::now();
        let mut last_at = Instant::now();
        let mut last_limit = 0;
        loop {
            let read = source.read(&mut buffer);
            let read = match held {
                Some(_) => tokio::time::timeout(HELD_MAX, read).await,
                None => Ok(read.await),
            };
            let (pieces, is_end) = match read {
                Err(_) => (held.take().into_iter().collect(), false),
                Ok(Ok(len)) if 0 < len => (chopper.push(&buffer[..len]), false),
                Ok(_) => (held.take().into_iter().chain(chopper.rest()).collect(), true),
            };
            for piece in pieces {
                let weather = self.links.weather(self.from, self.to);
                if piece.is_append && self.random.per_mille(weather.drop) {
                    self.links.count("dropped");
                    continue;
                }
                if self.random.per_mille(weather.stall) {
                    self.links.count("stalled");
                    tokio::time::sleep(Duration::from_millis(self.random.within(STALL_MS))).await;
                }
                let is_reset = self.random.per_mille(weather.reset);
                let mut passed = Vec::new();
                if weather.reorder > 0
                    && piece.is_message
                    && held.is_none()
                    && self.random.per_mille(weather.reorder)
                {
                    self.links.count("reordered");
                    held = Some(piece);
                    continue;
                }
                if piece.is_message && self.random.per_mille(weather.duplicate) {
                    self.links.count("duplicated");
                    passed.push(piece.bytes.clone());
                }
                passed.push(piece.bytes);
                passed.extend(held.take().map(|piece| piece.bytes));
                for mut bytes in passed {
                    if self.random.per_mille(weather.corrupt) {
                        self.links.count("corrupted");
                        let place = self.random.below(bytes.len());
                        bytes[place] ^= 1 << self.random.below(8);
                    }
                    if is_reset {
                        bytes.truncate(self.random.below(bytes.len()));
                    }
                    let (least, most) = weather.delay;
                    let late = self.random.within(least.as_micros() as u64..most.as_micros() as u64);
                    let mut at = Instant::now() + Duration::from_micros(late);
                    if self.random.per_mille(weather.loss) {
                        self.links.count("lost");
                        at += SENT_AGAIN + most;
                    }
                    let limit = self.links.limit(self.from, self.to);
                    if limit != last_limit {
                        // Pieces that wait at the old rate are released, or are few at the new one.
                        (free_at, last_at, last_limit) = (Instant::now(), Instant::now(), limit);
                    }
                    if 0 < weather.bandwidth {
                        let time = Duration::from_secs_f64(bytes.len() as f64 / f64::from(weather.bandwidth));
                        free_at = free_at.max(Instant::now()) + time;
                        at = at.max(free_at);
                    }
                    at = at.max(self.links.reserve_egress(self.from, bytes.len()));
                    // Bytes of one stream never overtake each other.
                    last_at = last_at.max(at);
                    if sender.send(Outgoing::Bytes { at: last_at, limit, bytes }).await.is_err() {
                        return;
                    }
                }
                if is_reset {
                    self.links.count("reset");
                    let _ = sender.send(Outgoing::Reset).await;
                    return;
                }
            }
            if is_end {
                return;
            }
        }
    }
}

/// Writes until the end, or until the connection is reset, by chance or with its link.
async fn give(
    links: &Links,
    from: usize,
    to: usize,
    mut sink: OwnedWriteHalf,
    mut receiver: mpsc::Receiver<Outgoing>,
) {
    let is_reset = tokio::select! {
        is_reset = deliver(links, from, to, &mut sink, &mut receiver) => is_reset,
        () = links.until_reset(from, to) => {
            links.count("reset");
            true
        }
    };
    if is_reset {
        let socket: &TcpStream = sink.as_ref();
        let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
        // Without this, dropping the half would close it cleanly.
        sink.forget();
    } else {
        let _ = sink.shutdown().await;
    }
}

/// Writes each piece when it is due; returns whether the connection ends with a reset.
async fn deliver(
    links: &Links,
    from: usize,
    to: usize,
    sink: &mut OwnedWriteHalf,
    receiver: &mut mpsc::Receiver<Outgoing>,
) -> bool {
    while let Some(outgoing) = receiver.recv().await {
        let Outgoing::Bytes { at, limit, bytes } = outgoing else { return true };
        links.until_due(from, to, at, limit).await;
        links.until_open(from, to).await;
        if sink.write_all(&bytes).await.is_err() {
            return false;
        }
        links.pass(from, to, bytes.len());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;
    use crate::programs::until;
    use crate::weather::Weather;
    use std::io::{Read, Write};
    use std::sync::Mutex;

    /// Two places; the listener at the second gives its connection to the test.
    fn pair() -> (Place, Proxy, std::net::TcpListener) {
        pair_that_knows(false)
    }

    /// The same, with or without knowledge of frames.
    fn pair_that_knows(frames: bool) -> (Place, Proxy, std::net::TcpListener) {
        let place = Place::loopback(2, true);
        let processes = Arc::new(Mutex::new(vec![Some(std::process::id()), None]));
        let proxy = Proxy::start(&place.endpoints, frames, 7, processes).expect("a proxy");
        let listener = std::net::TcpListener::bind((place.endpoints[1].host.as_str(), 2380)).expect("a port");
        (place, proxy, listener)
    }

    fn open(place: &Place, listener: &std::net::TcpListener) -> (std::net::TcpStream, std::net::TcpStream) {
        let here = std::net::TcpStream::connect((place.endpoints[1].face.as_str(), 2380)).expect("the proxy");
        let (there, _) = listener.accept().expect("the proxy connects onward");
        for socket in [&here, &there] {
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        }
        (here, there)
    }

    /// One local address can be the near end of many connections, ended ones among them.
    #[test]
    fn a_connection_is_known_by_both_its_ends() {
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
        let there = listeners.each_ref().map(|listener| listener.local_addr().expect("bound"));
        let open = |from: SocketAddr, to: SocketAddr| {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
            socket.set_reuse_address(true).expect("an option");
            socket.bind(&from.into()).expect("an address");
            socket.connect(&to.into()).expect("somebody listens");
            socket
        };
        let first = open("127.0.0.1:0".parse().expect("an address"), there[0]);
        let here = first.local_addr().expect("bound").as_socket().expect("an address");
        let second = open(here, there[1]);
        let inode_of = |near, far| {
            let ends = in_table(near).zip(in_table(far)).expect("IPv4");
            inodes().get(&ends).copied()
        };
        let [one, other] = there.map(|there| inode_of(here, there).expect("a connection"));
        assert_ne!(one, other);
        let own = sockets_of(std::process::id());
        assert!(own.contains(&one) && own.contains(&other) && !own.contains(&0));
        drop((first, second));
        // A process that another test starts has the sockets, too, until it runs its program.
        until("an ended connection is nobody's", || inode_of(here, there[0]).is_none().then_some(()));
    }

    #[test]
    fn in_calm_weather_bytes_pass_both_ways() {
        let (place, _proxy, listener) = pair();
        let (mut here, mut there) = open(&place, &listener);
        let mut heard = [0; 4];
        here.write_all(b"ping").expect("a way");
        there.read_exact(&mut heard).expect("bytes");
        assert_eq!(&heard, b"ping");
        there.write_all(b"pong").expect("a way back");
        here.read_exact(&mut heard).expect("bytes");
        assert_eq!(&heard, b"pong");
        drop(here);
        assert_eq!(there.read(&mut heard).expect("an end"), 0);
    }

    #[test]
    fn a_one_way_cut_holds_one_direction_and_lets_it_go_afterwards() {
        let (place, proxy, listener) = pair();
        let (mut here, mut there) = open(&place, &listener);
        proxy.links.set(0, 1, Weather { is_cut: true, ..Weather::default() });
        here.write_all(b"late").expect("the proxy takes it");
        there.write_all(b"soon").expect("a way back");
        let mut heard = [0; 4];
        here.read_exact(&mut heard).expect("the other way is open");
        assert_eq!(&heard, b"soon");
        there.set_nonblocking(true).expect("a socket");
        assert_eq!(there.read(&mut heard).expect_err("cut").kind(), std::io::ErrorKind::WouldBlock);
        there.set_nonblocking(false).expect("a socket");
        proxy.links.calm();
        there.read_exact(&mut heard).expect("bytes");
        assert_eq!(&heard, b"late");
    }

    #[test]
    fn a_reset_cuts_a_piece_short_and_is_felt_on_the_other_side() {
        let (place, proxy, listener) = pair();
        let (mut here, mut there) = open(&place, &listener);
        proxy.links.set(0, 1, Weather { reset: 1000, ..Weather::default() });
        here.write_all(&[7; 1000]).expect("the proxy takes it");
        let mut heard = Vec::new();
        let ended = there.read_to_end(&mut heard);
        assert!(ended.is_err(), "a reset is no polite end");
        assert!(heard.len() < 1000);
        assert_eq!(proxy.links.counts().get("reset"), Some(&1));
    }

    #[test]
    fn what_waits_behind_a_narrow_link_passes_when_it_is_wide_again() {
        let (place, proxy, listener) = pair();
        let (mut here, mut there) = open(&place, &listener);
        // They need a thousand seconds; the read above gives up after twenty.
        proxy.links.set(0, 1, Weather { bandwidth: 1, ..Weather::default() });
        here.write_all(&[7; 1000]).expect("the proxy takes it");
        there.set_nonblocking(true).expect("a socket");
        let mut heard = [0; 1000];
        assert_eq!(there.read(&mut heard).expect_err("narrow").kind(), std::io::ErrorKind::WouldBlock);
        there.set_nonblocking(false).expect("a socket");
        proxy.links.calm();
        there.read_exact(&mut heard).expect("bytes");
    }

    #[test]
    fn two_connections_of_a_member_share_its_egress() {
        let (place, proxy, listener) = pair();
        let (mut first, mut first_there) = open(&place, &listener);
        let (mut second, mut second_there) = open(&place, &listener);
        proxy.links.set_egress(0, 20_000);
        let begun = std::time::Instant::now();
        first.write_all(&[7; 4000]).expect("the proxy takes it");
        second.write_all(&[7; 4000]).expect("the proxy takes it");
        let mut heard = [0; 4000];
        first_there.read_exact(&mut heard).expect("bytes");
        second_there.read_exact(&mut heard).expect("bytes");
        // 8,000 bytes at 20,000 a second; each alone would have needed half as long.
        assert!(Duration::from_millis(390) <= begun.elapsed(), "{:?}", begun.elapsed());
        // Bytes are counted when they have been written, which is when they can be read.
        until("all are counted", || (proxy.links.passed(0, 1) == 8000).then_some(()));
    }

    #[test]
    fn a_lost_piece_comes_later() {
        let (place, proxy, listener) = pair();
        let (mut here, mut there) = open(&place, &listener);
        proxy.links.set(0, 1, Weather { loss: 1000, ..Weather::default() });
        let begun = std::time::Instant::now();
        here.write_all(b"lost").expect("the proxy takes it");
        let mut heard = [0; 4];
        there.read_exact(&mut heard).expect("bytes");
        assert!(SENT_AGAIN <= begun.elapsed(), "{:?}", begun.elapsed());
        assert!(proxy.links.counts().contains_key("lost"));
    }

    #[test]
    fn a_dropped_append_never_comes_and_what_is_no_append_does() {
        use kattu_wire::{Codec, Frame, FrameWriter, Goodbye};
        let mut writer = FrameWriter::default();
        let frame = Frame::Goodbye(Goodbye { reason: "done".into() });
        Codec::new(crc32c::crc32c_append).encode(&frame, &mut writer);
        let goodbye: Vec<u8> = writer.pieces().flatten().copied().collect();
        // The same with the kind of an append: its header has a checksum of its own. [docs/formats/frame.md]
        let mut append = goodbye.clone();
        append[5] = 16;
        let checksum = crc32c::crc32c(&append[..20]);
        append[20..24].copy_from_slice(&checksum.to_le_bytes());
        let (place, proxy, listener) = pair_that_knows(true);
        let (mut here, mut there) = open(&place, &listener);
        let mut heard = vec![0; append.len()];
        here.write_all(&append).expect("the proxy takes it");
        there.read_exact(&mut heard).expect("no weather");
        assert_eq!(heard, append);
        proxy.links.set(0, 1, Weather { drop: 1000, ..Weather::default() });
        here.write_all(&[append, goodbye.clone()].concat()).expect("the proxy takes it");
        let mut heard = vec![0; goodbye.len()];
        there.read_exact(&mut heard).expect("bytes");
        assert_eq!(heard, goodbye);
        assert_eq!(proxy.links.counts().get("dropped"), Some(&1));
    }

    #[test]
    fn a_flipped_bit_is_one_bit() {
        let (place, proxy, listener) = pair();
        let (mut here, mut there) = open(&place, &listener);
        proxy.links.set(0, 1, Weather { corrupt: 1000, ..Weather::default() });
        here.write_all(&[0; 64]).expect("the proxy takes it");
        let mut heard = [0; 64];
        there.read_exact(&mut heard).expect("bytes");
        let flipped: u32 = heard.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(u64::from(flipped), proxy.links.counts()["corrupted"]);
    }
}
