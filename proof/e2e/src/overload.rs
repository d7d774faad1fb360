//! Overload: clients request ten times what can be served and give up; measures what is still served, and how soon the
//! service recovers. [fault-model F50]
//!
//! Method: three members share one processor, the clients have another. The clients speak HTTP/2 by hand
//! ([`crate::raw`]), for a library would be slower than the members. As libraries do, they keep to the server's limit
//! of streams, send the head of a call at once, and its body when the server's window has room for it.
//!
//! 1. A fixed number of puts is always under way on each connection: the puts served per second are the peak.
//! 2. Ten times the peak is due, without waiting for earlier puts. A put without an answer for [`PATIENCE`] is reset. A
//!    put that no connection can take at once is never sent: a queue in the clients would measure the clients, not the
//!    members. Only puts answered in time count.
//! 3. As 1, and each second is counted; from the end of the allowed recovery on, for as long as in 1, it is compared.
//!
//! Members keep little history: with all of it their tables, and so their snapshots, grow by 15 MB a second, and
//! members that were never overloaded serve a quarter less after a minute.
//!
//! Knows nothing of: the members' defenses.

use crate::processors::{on_one_core, on_other_cores, processor_time};
use crate::raw;
use kattu_proto::etcdserverpb::PutRequest;
use kattu_rig::programs::memory_of;
use kattu_rig::{Cluster, Options};
use kattu_verify::service::{Done, RECOVERY, no_metastable_state};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a client waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The overload, as a multiple of the peak.
const TIMES: f64 = 10.0;
/// The relative difference between two equal measurements on a machine that is not ours alone.
const SPREAD: f64 = 0.1;
/// Time measured after the overload: the allowed recovery, and as long as the peak was measured.
const AFTER: Duration = Duration::from_nanos(RECOVERY).saturating_add(MEASURED);
/// The load runs for so long before anything is counted.
const WARM_UP: Duration = Duration::from_secs(10);
/// Time over which the peak is measured: that between two snapshots.
const MEASURED: Duration = Duration::from_secs(10);
/// 16 MiB of history, however new: what is written in a second.
const LITTLE_HISTORY: [&str; 2] = ["--history-bytes=16777216", "--history-min=0"];
/// How much a member may grow meanwhile: its client memory, tables and log.
const GROWTH_MAX: u64 = (1 << 30) + (512 << 20);
/// Puts always under way on each connection, for the peak and after the overload. Serving many at once is cheaper than
/// serving few; too few would understate the peak, and all that is measured against it.
const UNDER_WAY: usize = 32;
/// Bytes that a client buffers while its socket takes none.
const UNSENT_MAX: usize = 64 << 10;
const VALUE: usize = 100;
const KEYS: u64 = 10_000;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const CANCEL: u32 = 8;
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// How much, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Connections, spread over all members.
    pub connections: usize,
    /// How long the overload lasts.
    pub lasts: Duration,
}

/// The results.
#[derive(Clone, Debug)]
pub struct Report {
    /// Puts served per second at the peak.
    pub peak: f64,
    /// Puts due per second of overload.
    pub due: f64,
    /// … and puts served in time.
    pub during: f64,
    /// Puts served in time in each second of the overload.
    pub each: Vec<f64>,
    /// Processors that the members used together meanwhile; 1.0 is one whole processor.
    pub members_cpu: f64,
    /// … and that the clients used: above 0.9 the clients are the bottleneck.
    pub clients_cpu: f64,
    /// Share of the due puts that were refused; 0.0 to 1.0, as the next two.
    pub refused: f64,
    /// … that the client gave up.
    pub given_up: f64,
    /// … that no connection could take.
    pub unsent: f64,
    /// Puts served in each second afterwards.
    pub after: Vec<f64>,
    /// The largest growth of one member's memory, in bytes.
    pub grown_bytes: u64,
    /// Bounds that did not hold.
    pub faults: Vec<String>,
}

/// Outcomes of puts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    due: u64,
    served: u64,
    refused: u64,
    given_up: u64,
    unsent: u64,
}

/// One connection by hand.
struct Client {
    socket: TcpStream,
    unsent: VecDeque<u8>,
    /// Bytes of an incomplete frame.
    half: Vec<u8>,
    next_stream: u32,
    /// Puts sent and not answered, by stream: when they were sent.
    asked: BTreeMap<u32, Instant>,
    /// Of these, bodies that the server's window has no room for: their heads have been sent, as clients do. [RFC 9113
    /// §5.2.1]
    without_room: VecDeque<(u32, Vec<u8>)>,
    /// The connection's send window, and the server's limit of streams.
    room: i64,
    streams_max: usize,
    /// The first SETTINGS frame has arrived; [`raw::hello`] has acknowledged it in advance.
    has_settings: bool,
}

impl Client {
    fn connect(address: &str) -> io::Result<Client> {
        let socket = raw::connect(address, raw::WINDOW_MAX)?;
        socket.set_nonblocking(true)?;
        Ok(Client {
            socket,
            unsent: VecDeque::new(),
            half: Vec::new(),
            next_stream: 1,
            asked: BTreeMap::new(),
            without_room: VecDeque::new(),
            room: 65_535,
            streams_max: 100, // until the server's SETTINGS
            has_settings: false,
        })
    }

    /// Sends one put; false if the limits do not allow it.
    fn ask(&mut self, key: u64, now: Instant) -> bool {
        if self.streams_max <= self.asked.len() || UNSENT_MAX <= self.unsent.len() {
            return false;
        }
        let request = PutRequest {
            key: format!("load/{key:08}").into_bytes(),
            value: vec![b'x'; VALUE],
            ..PutRequest::default()
        };
        self.unsent.extend(raw::head(self.next_stream, "/etcdserverpb.KV/Put"));
        self.without_room.push_back((self.next_stream, raw::message(&request)));
        self.asked.insert(self.next_stream, now);
        self.next_stream += 2;
        self.use_room();
        true
    }

    /// Sends the bodies that the window has room for, the oldest first; those that were given up need none.
    fn use_room(&mut self) {
        while let Some((stream, message)) = self.without_room.front() {
            if self.asked.contains_key(stream) {
                if self.room < message.len() as i64 {
                    return;
                }
                self.room -= message.len() as i64;
                self.unsent.extend(raw::data(*stream, message, true));
            }
            self.without_room.pop_front();
        }
    }

    /// Reads and writes all it can; gives up puts that have waited too long.
    fn turn(&mut self, now: Instant, counts: &mut Counts) -> io::Result<()> {
        while let Some((stream, _)) = self.asked.first_key_value().filter(|(_, at)| PATIENCE <= now - **at) {
            let stream = *stream;
            self.asked.remove(&stream);
            counts.given_up += 1;
            self.unsent.extend(raw::frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }
        let mut scrap = [0; 64 << 10];
        loop {
            match self.socket.read(&mut scrap) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.half.extend_from_slice(&scrap[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.hear(counts);
        self.use_room();
        while !self.unsent.is_empty() {
            match self.socket.write(self.unsent.as_slices().0) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn hear(&mut self, counts: &mut Counts) {
        let number = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut at = 0;
        while 9 <= self.half.len() - at {
            let head = &self.half[at..at + 9];
            let len = number(&[0, head[0], head[1], head[2]]) as usize;
            let (kind, flags, stream) = (head[3], head[4], number(&head[5..9]));
            let Some(payload) = self.half.get(at + 9..at + 9 + len) else { break };
            at += 9 + len;
            match kind {
                // A message is an answer; a HEADERS frame that ends the stream carries an error status.
                DATA if self.asked.remove(&stream).is_some() => counts.served += 1,
                HEADERS if flags & END_STREAM != 0 && self.asked.remove(&stream).is_some() => {
                    counts.refused += 1
                }
                RST_STREAM if self.asked.remove(&stream).is_some() => counts.refused += 1,
                WINDOW_UPDATE if stream == 0 => self.room += i64::from(number(payload)),
                SETTINGS if flags & ACK == 0 => {
                    for setting in payload.chunks_exact(6) {
                        if setting[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes() {
                            self.streams_max = number(&setting[2..]) as usize;
                        }
                    }
                    if std::mem::replace(&mut self.has_settings, true) {
                        self.unsent.extend(raw::frame(SETTINGS, ACK, 0, &[]));
                    }
                }
                _ => {}
            }
        }
        self.half.drain(..at);
    }
}

/// All clients, and the next key.
struct Load {
    clients: Vec<Client>,
    /// The client that sends next.
    next: usize,
    key: u64,
}

impl Load {
    fn connect(addresses: &[String], connections: usize) -> Load {
        let connect = |number: usize| {
            Client::connect(&addresses[number % addresses.len()]).expect("a member lets clients in")
        };
        Load { clients: (0..connections).map(connect).collect(), next: 0, key: 0 }
    }

    /// Sends one put on the next connection that can take it.
    fn ask(&mut self, now: Instant) -> bool {
        for _ in 0..self.clients.len() {
            let place = self.next;
            self.next = (self.next + 1) % self.clients.len();
            if self.clients[place].ask(self.key % KEYS, now) {
                self.key += 1;
                return true;
            }
        }
        false
    }

    /// Runs for so long, either with [`UNDER_WAY`] puts on each connection or with so many due in a second.
    fn run(&mut self, lasts: Duration, due_per_s: Option<f64>) -> Counts {
        let (begun, mut counts) = (Instant::now(), Counts::default());
        let mut due_so_far = 0.0;
        loop {
            let now = Instant::now();
            if lasts <= now - begun {
                return counts;
            }
            match due_per_s {
                None => {
                    let under_way: usize = self.clients.iter().map(|client| client.asked.len()).sum();
                    for _ in under_way..UNDER_WAY * self.clients.len() {
                        counts.due += u64::from(self.ask(now));
                    }
                }
                Some(rate) => {
                    let due = (now - begun).as_secs_f64() * rate;
                    let mut may_ask = true;
                    while due_so_far + 1.0 <= due {
                        due_so_far += 1.0;
                        counts.due += 1;
                        may_ask = may_ask && self.ask(now);
                        counts.unsent += u64::from(!may_ask);
                    }
                }
            }
            for client in &mut self.clients {
                client
                    .turn(now, &mut counts)
                    .expect("no member closes a connection that keeps to its limits");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Measures the peak, the overload, and the recovery.
pub fn run(plan: Plan) -> Report {
    on_one_core();
    let mut cluster = Cluster::with(
        "overload",
        Options { flags: LITTLE_HISTORY.map(str::to_string).into(), ..Options::default() },
    );
    let _leader = cluster.leader();
    on_other_cores();
    let mut load = Load::connect(&cluster.addresses(), plan.connections);
    let pids: Vec<u32> = cluster.members.iter().map(|member| member.pid()).collect();

    load.run(WARM_UP, None);
    let before: Vec<u64> = pids.iter().map(|pid| memory_of(*pid, "VmRSS")).collect();
    let peak = load.run(MEASURED, None).served as f64 / MEASURED.as_secs_f64();
    let due = peak * TIMES;

    let mut overload = Counts::default();
    let mut grown_bytes = 0;
    let mut each = Vec::new();
    let processor = || (processor_time(&pids), processor_time(&[std::process::id()]));
    let (processor_before, begun) = (processor(), Instant::now());
    for _ in 0..plan.lasts.as_secs() {
        let second = load.run(Duration::from_secs(1), Some(due));
        each.push(second.served as f64);
        overload.due += second.due;
        overload.served += second.served;
        overload.refused += second.refused;
        overload.given_up += second.given_up;
        overload.unsent += second.unsent;
        let grown = pids.iter().zip(&before);
        let grown = grown.map(|(pid, before)| memory_of(*pid, "VmRSS").saturating_sub(*before)).max();
        grown_bytes = grown_bytes.max(grown.unwrap_or_default());
    }
    let used = |before: Duration, now: Duration| (now - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let processor_after = processor();
    let members_cpu = used(processor_before.0, processor_after.0);
    let clients_cpu = used(processor_before.1, processor_after.1);
    let after: Vec<f64> =
        (0..AFTER.as_secs()).map(|_| load.run(Duration::from_secs(1), None).served as f64).collect();

    let part = |count: u64| count as f64 / overload.due.max(1) as f64;
    let mut report = Report {
        peak,
        due,
        during: overload.served as f64 / each.len() as f64,
        each,
        members_cpu,
        clients_cpu,
        refused: part(overload.refused),
        given_up: part(overload.given_up),
        unsent: part(overload.unsent),
        after,
        grown_bytes,
        faults: Vec::new(),
    };
    let recovered = RECOVERY as usize / 1_000_000_000;
    let done = |per_second: f64| Done { requests: per_second as u64, time: 1_000_000_000 };
    let later = &report.after[recovered..];
    let later = later.iter().sum::<f64>() / later.len() as f64;
    // As much as before, except for the spread of two measurements.
    let judged =
        no_metastable_state(done(peak), done(report.during), done(peak * (1.0 - SPREAD)), done(later));
    report.faults.extend(judged.err().map(|why| why.to_string()));
    if GROWTH_MAX < grown_bytes {
        report.faults.push(format!("a member grew by {} MB", grown_bytes >> 20));
    }
    for member in &mut cluster.members {
        if !member.is_running() {
            report.faults.push(format!("{} has ended", member.name));
        }
    }
    report
}
