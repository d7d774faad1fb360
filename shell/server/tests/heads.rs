//! Goal: responses that are a head and nothing else hold a bounded number of bytes, and a client that does not read
//! them loses its connection. Method: an allocator that counts; so a process of its own, with one test.

#[path = "held/counting.rs"]
mod counting;
#[allow(dead_code)] // other tests use it, too
#[path = "face/fixture.rs"]
mod fixture;

use counting::HELD;
use fixture::{Face, eventually};
use kattu_server::FaceConfig;
use kattu_server::budget::{Budget, CALL_BYTES};
use kattu_server::rpc::Rpc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The first bytes of a client.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const CALLS: u32 = 3_000;
/// A client may send so many bytes of metadata with each, none of it known to the member.
const TEXT_BYTES: usize = 4_000;
/// How long a client that takes little may take nothing.
const DRIP_STALL: Duration = Duration::from_millis(1_000);
/// At 10 KiB a second it has had 20 s, and has earned 13 of them and [`DRIP_STALL`].
const TAKEN_MAX: usize = 200 << 10;
/// Bytes of responses in the sockets, and bytes that the test itself allocates meanwhile.
const TEST_BYTES: usize = 4 << 20;

/// A face whose sockets take in little of what their clients do not read, as on a slow link.
async fn narrow(stall_deadline: Duration, budget: u64) -> Face {
    let door = TcpSocket::new_v4().unwrap();
    door.set_send_buffer_size(4 << 10).unwrap();
    door.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let budget = Arc::new(Budget::of(budget));
    let config = FaceConfig { budget, stall_deadline, ..FaceConfig::default() };
    Face::start_on(door.listen(16).unwrap(), config)
}

/// The head of a call. [RFC 7541: static names, literals]
fn head_of(path: &[u8]) -> Vec<u8> {
    let method_and_scheme = [0x83, 0x86];
    let rest = [&[0x01, 1, b'x', 0x0f, 0x10, 16][..], b"application/grpc"].concat();
    [&method_and_scheme[..], &[0x04, path.len() as u8], path, &rest].concat()
}

/// A frame of HTTP/2. [RFC 9113 §4.1]
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A call that is a head without a body, at an unknown level.
fn call(stream: u32) -> Vec<u8> {
    let mut head = head_of(b"/etcdserverpb.KV/Range");
    head.extend([0, 17]);
    head.extend(b"kattu-consistency");
    // Each text differs, so that none can be encoded as a reference to an earlier one.
    let text = [format!("{stream:08}").into_bytes(), vec![0xff; TEXT_BYTES]].concat();
    let more = text.len() - 127;
    head.extend([0x7f, (more & 0x7f) as u8 | 0x80, (more >> 7) as u8]);
    head.extend(text);
    frame(1, 5, stream, &head)
}

/// A call with a complete request, which a silent replica has.
fn whole_call(stream: u32) -> Vec<u8> {
    let head = head_of(b"/grpc.health.v1.Health/Check");
    [frame(1, 4, stream, &head), frame(0, 1, stream, &[0; 5])].concat()
}

fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes()) // CANCEL
}

/// A client that sends all calls, and reads nothing.
async fn ask(face: &Face) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2 << 10).unwrap();
    let mut socket = socket.connect(face.address).await.unwrap();
    socket.write_all(HELLO).await.unwrap();
    for number in 0..CALLS {
        if socket.write_all(&call(2 * number + 1)).await.is_err() {
            break; // it was closed
        }
    }
    socket
}

#[tokio::test]
async fn unread_heads_are_held_and_cost_the_connection() {
    let face = narrow(Duration::from_secs(60), 256 << 20).await;
    let before = HELD.load(Relaxed);
    let client = ask(&face).await;
    let refused = &face.config.counters.of(Rpc::Range).handled[tonic::Code::InvalidArgument as usize];
    eventually(|| refused.get() == u64::from(CALLS)).await;
    let (held, counted) = (HELD.load(Relaxed) - before, face.config.budget.held() as usize);
    println!("{CALLS} heads hold {} KiB, counted as {} KiB", held >> 10, counted >> 10);
    assert!(CALLS as usize / 2 * CALL_BYTES as usize <= counted, "{counted} bytes: most have not left");
    assert!(held <= counted + TEST_BYTES, "{held} bytes are held, {counted} are counted");

    // A client that reads after all frees what was held for it, and so does one that leaves.
    let mut all = vec![0; 64 << 10];
    eventually(|| {
        // What it has read may still be held for a moment, with nothing more to come.
        if let Ok(count) = client.try_read(&mut all) {
            assert!(0 < count, "it is not closed");
        }
        face.config.budget.held() == 0
    })
    .await;
    let mut other = ask(&face).await;
    eventually(|| refused.get() == 2 * u64::from(CALLS)).await;
    let resets: Vec<u8> = (0..CALLS).flat_map(|number| reset(2 * number + 1)).collect();
    let before = face.config.budget.held();
    other.write_all(&resets).await.unwrap();
    // All but those that lie in the connection's buffer already.
    eventually(|| face.config.budget.held() <= before / 2).await;
    drop(other);
    eventually(|| face.config.budget.held() == 0).await;
    assert_eq!(face.config.counters.connections_stalled.get(), 0);

    unread_refusals_cost_the_connection().await;

    // A client that takes a little now and then is treated as one that takes nothing, and the system does not end it
    // first.
    let face = narrow(DRIP_STALL, 256 << 20).await;
    let mut client = ask(&face).await;
    let counters = &face.config.counters;
    let mut taken = 0;
    while counters.connections.get() != 0 {
        taken += client.read(&mut [0; 512]).await.unwrap_or(0); // nothing, once it is closed
        assert!(taken < TAKEN_MAX, "10 KiB a second are less than a client must take");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Where the machine pauses, it may.
    assert!(0 < counters.connections_stalled.get() + counters.connections_broken.get());
    assert_eq!(face.config.budget.held(), 0);
}

/// Nothing is held for a refusal, so unread refusals are counted, even if accepted calls come between them.
async fn unread_refusals_cost_the_connection() {
    const ROUNDS: u32 = 20;
    const REFUSALS: u32 = 400;
    let face = narrow(Duration::from_secs(60), 300 * CALL_BYTES).await;
    face.store.set(|state| state.silent = true);
    let (budget, counters) = (Arc::clone(&face.config.budget), Arc::clone(&face.config.counters));
    let waiting = |face: &Face| face.store.set(|state| state.waiting);
    let is_closed = || counters.connections_too_much.get() == 1;
    let mut streams = (0..).map(|number| 2 * number + 1);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2 << 10).unwrap();
    let mut socket = socket.connect(face.address).await.unwrap();
    let mut calls = HELLO.to_vec();
    calls.extend(streams.by_ref().take(100).flat_map(whole_call));
    socket.write_all(&calls).await.unwrap();
    eventually(|| waiting(&face) == 100).await;
    let mut rounds = 0;
    while !is_closed() {
        rounds += 1;
        assert!(rounds <= ROUNDS, "{} refusals are unread", ROUNDS * REFUSALS);
        // It may be closed at any time. One call goes, and another takes its place, so that refusals are not in a row
        // with those before.
        let _ = socket.write_all(&reset(2 * rounds - 1)).await;
        eventually(|| is_closed() || waiting(&face) == 99).await;
        let _ = socket.write_all(&whole_call(streams.next().unwrap())).await;
        eventually(|| is_closed() || waiting(&face) == 100).await;
        let refused = budget.refused();
        let many: Vec<u8> = streams.by_ref().take(REFUSALS as usize).flat_map(whole_call).collect();
        let _ = socket.write_all(&many).await;
        eventually(|| is_closed() || budget.refused() == refused + u64::from(REFUSALS)).await;
    }
    assert!(1 < rounds, "{REFUSALS} in a row are fewer than a client may have refused");
    eventually(|| budget.held() == 0).await;
}
