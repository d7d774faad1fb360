//! The floods themselves.
//!
//! Knows nothing of: bounds, except those that a flood alone can judge.

use super::good_client::{GoodClient, NOBODY};
use super::large_writers::{LARGE_VALUE, LargeKeys, large_writers};
use super::registrations::registrations;
use super::{BIG_BYTES, BIG_COUNT, Flood, Plan};
use crate::floors::Came;
use crate::processors::on_other_cores;
use crate::raw;
use kattu_proto::etcdserverpb::{PutRequest, RangeRequest};
use kattu_rig::{Cluster, Kv};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A member that is restarted in the middle of a flood on the peer ports serves within this.
const REJOIN_MAX: Duration = Duration::from_secs(20);
const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
/// Added to the niceness of the floods' threads: about a tenth of the good client's share where both want to run.
const NICER: i32 = 10;

/// The course of a flood, as text and for its judge, and its errors.
pub(super) struct Done {
    pub(super) what: String,
    pub(super) came: Came,
    pub(super) faults: Vec<String>,
}

/// Runs one flood.
pub(super) fn under_way(
    plan: &Plan,
    flood: Flood,
    cluster: &mut Cluster,
    good: &GoodClient,
    large: &LargeKeys,
) -> Done {
    let addresses = cluster.addresses();
    let scaled = |count: usize| (count * plan.strength as usize / 100).max(1);
    if flood == Flood::Peers {
        return peers(plan, cluster, good, scaled(2_000));
    }
    if flood == Flood::Registrations {
        return registrations(plan, cluster, scaled(64));
    }
    let flood = || match flood {
        Flood::Idle => idle(&addresses, scaled(2_500), plan.lasts),
        Flood::Trickle => trickle(&addresses, scaled(300), plan.lasts),
        Flood::NonReaders => non_readers(&addresses, scaled(150), plan.lasts),
        Flood::Streams => streams(&addresses, scaled(10_000) as u32, plan.lasts),
        Flood::LargeWriters => large_writers(&addresses, scaled(64), plan.lasts, large),
        Flood::Peers | Flood::Registrations => unreachable!("a part of these is not nice"),
    };
    as_flooder(plan, flood)
}

/// Keeps these connections for so long and sends nothing on them; returns how many are open at the end.
fn hold(mut sockets: Vec<TcpStream>, lasts: Duration) -> usize {
    std::thread::sleep(lasts);
    sockets.iter_mut().filter_map(|socket| raw::drain(socket).then_some(())).count()
}

/// `count` connections send the preface and nothing more. As many others stop in the middle of it; each that a member
/// closes is opened again.
fn idle(addresses: &[String], count: usize, lasts: Duration) -> Done {
    let address = |number: usize| &addresses[number % addresses.len()];
    // A connection that is closed at once is not counted as standing.
    let mut sockets: Vec<TcpStream> =
        (0..count).filter_map(|number| raw::connect(address(number), 65_535).ok()).collect();
    let mut places: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    let end = Instant::now() + lasts;
    let is_over = || end <= Instant::now();
    let mut opened = 0;
    while !is_over() {
        opened += raw::refill(&mut places, is_over, |number| raw::half_preface(address(number)));
        std::thread::sleep(Duration::from_millis(100));
    }
    let stand = sockets.iter_mut().filter_map(|socket| raw::drain(socket).then_some(())).count();
    let what = format!(
        "{count} connections to three members that say hello, {stand} of them stand at the end; {count} in half a preface at \
         all times, {opened} in all"
    );
    let (said, stand) = (count as u64, stand as u64);
    Done { what, came: Came::Idle { said, stand, halves: said, opened }, faults: Vec::new() }
}

/// Sends all of a request but its last byte, on many streams of many connections.
fn trickle(addresses: &[String], connections: usize, lasts: Duration) -> Done {
    const STREAMS: u32 = 10;
    let request =
        PutRequest { key: b"trickle".to_vec(), value: vec![7; LARGE_VALUE], ..PutRequest::default() };
    let body = raw::message(&request);
    let most = body.len() - 1;
    let mut faults = Vec::new();
    let mut clients = Vec::new();
    for number in 0..connections {
        // All send to the same member: it must bear all of them.
        let opened = raw::Sender::connect(&addresses[0], 65_535).and_then(|mut client| {
            for stream in 0..STREAMS {
                client.send(&raw::head(stream * 2 + 1, PUT))?;
            }
            Ok((client, [0; STREAMS as usize]))
        });
        match opened {
            Ok(client) => clients.push(client),
            Err(error) => faults.push(format!("connection {number}: {error}")),
        }
    }
    // In turns, as fast as the windows open, so that all are incomplete at the same time.
    let (mut sent, mut closed) = (0_u64, 0);
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        let before = sent;
        clients.retain_mut(|(client, places)| {
            for (number, place) in places.iter_mut().enumerate() {
                match client.send_some(number as u32 * 2 + 1, &body[*place..most]) {
                    Ok(count) => {
                        *place += count;
                        sent += count as u64;
                    }
                    Err(_) => {
                        closed += 1; // a member may close such a connection
                        return false;
                    }
                }
            }
            true
        });
        if sent == before {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let what = format!(
        "{connections} connections send all but the last byte of {STREAMS} puts of 1.4 MiB each to one member, {} MB in all; \
         {closed} of them were closed",
        sent / 1_000_000
    );
    let could = connections as u64 * u64::from(STREAMS) * most as u64;
    Done { what, came: Came::Trickle { sent, could }, faults }
}

fn big_range() -> RangeRequest {
    RangeRequest { key: b"big/".to_vec(), range_end: b"big0".to_vec(), ..RangeRequest::default() }
}

fn non_readers(addresses: &[String], count: usize, lasts: Duration) -> Done {
    let mut sockets = Vec::new();
    let mut refused = 0;
    for number in 0..count {
        let window = if number % 2 == 0 { raw::WINDOW_MAX } else { 65_535 };
        // All send to the same member: it must bear all of them.
        let asked = raw::connect(&addresses[0], window).and_then(|mut socket| {
            socket.write_all(&raw::call(1, RANGE, &big_range()))?;
            Ok(socket)
        });
        match asked {
            Ok(socket) => sockets.push(socket),
            Err(_) => refused += 1,
        }
    }
    let stand = hold(sockets, lasts);
    let what = format!(
        "{count} clients ask one member for 60 MiB each and read nothing; {refused} were closed at once, {stand} stand at \
         the end"
    );
    let asked = (count * BIG_COUNT * BIG_BYTES) as u64;
    Done { what, came: Came::NonReaders { asked }, faults: Vec::new() }
}

/// Half of the streams only begin; the other half request 15 KiB each, which are never read.
fn streams(addresses: &[String], count: u32, lasts: Duration) -> Done {
    const CONNECTIONS: usize = 8;
    let kv = Kv::of(&addresses[0]);
    kv.put_surely("fifteen", vec![7; 15 << 10]);
    let request = RangeRequest { key: b"fifteen".to_vec(), serializable: true, ..RangeRequest::default() };
    let body = raw::message(&request);
    let mut sockets = Vec::new();
    let (mut refused, mut opened_streams) = (0, 0);
    for _ in 0..CONNECTIONS {
        let opened = raw::connect(&addresses[0], 65_535).and_then(|mut socket| {
            for number in 0..count {
                let stream = number * 2 + 1;
                let mut bytes = raw::head(stream, RANGE);
                if number % 2 == 1 {
                    bytes.extend(raw::data(stream, &body, true));
                }
                socket.write_all(&bytes)?;
                opened_streams += 1;
            }
            Ok(socket)
        });
        match opened {
            Ok(socket) => sockets.push(socket),
            Err(_) => refused += 1,
        }
    }
    let stand = hold(sockets, lasts);
    let what = format!(
        "{CONNECTIONS} connections to one member with {count} streams each, half of them unread answers; {refused} were \
         closed while they were opened, {stand} stand at the end"
    );
    let said = CONNECTIONS as u64 * u64::from(count);
    Done { what, came: Came::Streams { said, opened: opened_streams, closed: refused }, faults: Vec::new() }
}

/// Runs this in a thread of a flood: on other processors than the members, at lower priority than the good client.
pub(super) fn as_flooder<T: Send>(plan: &Plan, flood: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_flooder(plan.one_core);
            flood()
        });
        thread.join().expect("a flood does not panic")
    })
}

pub(super) fn become_flooder(one_core: bool) {
    if one_core {
        on_other_cores();
    }
    // Affects this thread, not the process. [setpriority(2), C library/kernel differences]
    rustix::process::nice(NICER).expect("anybody may be nicer");
}

/// A valid frame head that announces so many bytes of fields, without them. [docs/formats/frame.md]
fn half_frame(kind: u8, fields: u32) -> Vec<u8> {
    let mut head = b"KTF\xA7".to_vec();
    head.extend([1, kind, 0, 0]);
    head.extend((24 + fields).to_le_bytes());
    head.extend(fields.to_le_bytes());
    head.extend([0; 4]);
    let sum = crc32c::crc32c(&head);
    head.extend(sum.to_le_bytes());
    head
}

/// Strangers: some send garbage as fast as they are accepted, others stop after a frame's head. Meanwhile one follower
/// is restarted, and the others must accept its connections.
fn peers(plan: &Plan, cluster: &mut Cluster, good: &GoodClient, standing: usize) -> Done {
    let Plan { lasts, one_core, .. } = *plan;
    let stop = Arc::new(AtomicBool::new(false));
    let ports: Vec<String> =
        cluster.members.iter().map(|member| format!("{}:2380", member.endpoint.host)).collect();
    let mut threads = Vec::new();
    let nonsense = Arc::new(AtomicU64::new(0));
    for port in ports.clone() {
        let (stop, nonsense) = (stop.clone(), nonsense.clone());
        threads.push(std::thread::spawn(move || {
            become_flooder(one_core);
            while !stop.load(Ordering::Relaxed) {
                if let Ok(mut socket) = TcpStream::connect(&port) {
                    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
                    let _ = socket.write_all(&[0xA5; 200]);
                    let _ = socket.read(&mut [0; 256]);
                    nonsense.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }));
    }
    let begun_frames = Arc::new(AtomicU64::new(0));
    {
        let (stop, begun_frames) = (stop.clone(), begun_frames.clone());
        threads.push(std::thread::spawn(move || {
            become_flooder(one_core);
            // Always `standing` of them: each that a member closes is opened again.
            let mut sockets: Vec<Option<TcpStream>> = (0..standing).map(|_| None).collect();
            let is_over = || stop.load(Ordering::Relaxed);
            while !is_over() {
                let opened = raw::refill(&mut sockets, is_over, |number| {
                    let mut socket = TcpStream::connect(&ports[number % ports.len()])?;
                    socket.write_all(&half_frame(if number % 2 == 0 { 1 } else { 9 }, 1_000))?;
                    Ok(socket)
                });
                begun_frames.fetch_add(opened, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }));
    }
    let mut faults = Vec::new();
    std::thread::sleep(lasts / 2);
    let follower = (cluster.leader() + 1) % cluster.members.len();
    good.avoid(follower);
    cluster.members[follower].kill();
    let begun = Instant::now();
    cluster.members[follower].spawn().expect("it can be run");
    while !cluster.members[follower].log_text().contains(kattu_rig::READY) {
        if REJOIN_MAX < begun.elapsed() {
            faults.push(format!("a member that came back did not serve within {REJOIN_MAX:?}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let back = begun.elapsed();
    good.avoid(NOBODY);
    std::thread::sleep(lasts / 2);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a stranger does not panic");
    }
    let what = format!(
        "{} connections with nonsense, {} with half a frame ({standing} of them at all times); a member that came back \
         served after {:.1} s",
        nonsense.load(Ordering::Relaxed),
        begun_frames.load(Ordering::Relaxed),
        back.as_secs_f64()
    );
    let (nonsense, halves) = (nonsense.load(Ordering::Relaxed), begun_frames.load(Ordering::Relaxed));
    Done { what, came: Came::Peers { nonsense, halves, standing: standing as u64 }, faults }
}
