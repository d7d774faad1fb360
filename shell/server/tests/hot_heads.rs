//! Goal: heads in which few bytes stand for many hold little, whether their calls are hot or not. Method: an allocator that
//! counts; so a process of its own, with one test.

#[path = "held/counting.rs"]
mod counting;
#[allow(dead_code)] // other tests use it, too
#[path = "face/fixture.rs"]
mod fixture;

use counting::{HELD, PEAK};
use fixture::{Face, eventually};
use kattu_server::budget::CONNECTION_BYTES;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The first bytes of a client.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const CONNECTIONS: usize = 50;
const HEADS: u32 = 2_000;
/// Bytes that the test itself and the sockets hold meanwhile.
const TEST_BYTES: usize = 4 << 20;

/// A frame of HTTP/2. [RFC 9113 §4.1]
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Puts the path, and then four kilobytes that one byte stands for, into the table.
fn first() -> Vec<u8> {
    let path = b"/etcdserverpb.KV/Range";
    let long = 3_900 - 127;
    [
        &[0x83, 0x86, 0x44, path.len() as u8][..],
        path,
        &[0x01, 1, b'x', 0x0f, 0x10, 16],
        b"application/grpc",
        &[0x7a, 0x7f, (long & 0x7f) as u8 | 0x80, (long >> 7) as u8],
        &[b'u'; 3_900],
    ]
    .concat()
}

/// A head like the first one, told from others by its timeout, with those bytes so many times.
fn head(number: u32, times: usize) -> Vec<u8> {
    let rest =
        [&[0x01, 1, b'x', 0x0f, 0x10, 16][..], b"application/grpc", b"\0\x0cgrpc-timeout\x05"].concat();
    let path = &[&[0x04, 22][..], b"/etcdserverpb.KV/Range"].concat();
    [&[0x83, 0x86], &path[..], &rest, format!("{number:04}S").as_bytes(), &vec![0xbe; times]].concat()
}

fn call(stream: u32, head: &[u8]) -> Vec<u8> {
    [frame(1, 4, stream, head), frame(0, 1, stream, b"\0\0\0\0\x03\x0a\x01k")].concat()
}

/// Reads until so many heads have come that end a stream, or a refusal.
async fn read_ends(socket: &mut TcpStream, mut count: usize) {
    while 0 < count {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).await.unwrap();
        count -= usize::from(matches!(head[3], 1 | 3) && (head[3] == 3 || head[4] & 1 != 0));
    }
}

#[tokio::test]
async fn heads_of_few_bytes_hold_little() {
    let face = Face::start().await;
    let mut idle = Vec::new();
    let before = HELD.load(Relaxed);
    for _ in 0..CONNECTIONS {
        let mut socket = face.raw().await;
        let calls = (0..6).flat_map(|number| call(2 * number + 3, &head(number, 15)));
        let all: Vec<u8> = HELLO.iter().copied().chain(call(1, &first())).chain(calls).collect();
        socket.write_all(&all).await.unwrap();
        read_ends(&mut socket, 7).await;
        idle.push(socket);
    }
    eventually(|| face.config.budget.held() == 0).await;
    let held = HELD.load(Relaxed) - before;
    println!("{CONNECTIONS} connections hold {} KiB", held >> 10);
    assert!(held < CONNECTIONS * CONNECTION_BYTES as usize + TEST_BYTES, "{held}");
    drop(idle);
    eventually(|| face.config.counters.connections.get() == 0).await;

    let mut socket = face.raw().await;
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut all = [HELLO, &call(1, &first())].concat();
    for number in 0..HEADS {
        all.extend(frame(1, 4, 2 * number + 3, &head(number, 15)));
    }
    let (mut reader, mut writer) = socket.split();
    let read = async { while reader.read(&mut [0; 4096]).await.is_ok_and(|len| 0 < len) {} };
    let write = async {
        writer.write_all(&all).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    tokio::join!(read, write);
    let peak = PEAK.load(Relaxed) - before;
    println!("{HEADS} heads hold at most {} KiB", peak >> 10);
    assert!(peak < all.len() + 2 * TEST_BYTES, "{peak}");
}
