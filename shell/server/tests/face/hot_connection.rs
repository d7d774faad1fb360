//! Hot calls under way while their connection changes: settings, resets, last words, clients that do not read; and TLS.
//!
//! Method: frames are written and read as bytes, so that a test sees each of them, and knows which are missing: what
//! earlier frames led to has come when a ping is answered that was sent behind the answer to another one.

use crate::fixture::*;
use crate::hot::{HELLO, PUT, RANGE, call, client, frame, framed, next, whole};
use kattu_proto::etcdserverpb as pb;
use kattu_server::FaceConfig;
use kattu_server::budget::Budget;
use kattu_server::tls::Doorway;
use kattu_tls::{ClientTls, ServerTls, Speaks, ensure_self_signed};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;

const HEADER_TABLE_SIZE: u8 = 1;
const INITIAL_WINDOW_SIZE: u8 = 4;
const MAX_FRAME_SIZE: u8 = 5;

fn settings(id: u8, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, id][..], &value.to_be_bytes()].concat())
}

fn room(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn range(stream: u32, key: &str) -> Vec<u8> {
    whole(stream, RANGE, &get(key).encode_to_vec())
}

/// The same call with a field that sends it down the general path.
fn cold_range(stream: u32, key: &str) -> Vec<u8> {
    let mut bytes = range(stream, key);
    let len = bytes[2] as usize;
    bytes.splice(9 + len..9 + len, *b"\0\x06x-cold\x011");
    bytes[2] += 10;
    bytes
}

/// With clients that may ping as often as they like.
async fn start() -> Face {
    Face::start_with(FaceConfig { ping_interval_min: Duration::ZERO, ..Default::default() }).await
}

/// A client that reads frames.
struct Client {
    socket: TcpStream,
}

/// What came until a mark.
#[derive(Debug, Default)]
struct Came {
    /// Stream and length of each frame of data.
    data: Vec<(u32, usize)>,
    /// Stream and block of each head.
    heads: Vec<(u32, Vec<u8>)>,
    resets: Vec<u32>,
}

impl Came {
    fn bytes(&self, stream: u32) -> usize {
        self.data.iter().filter(|(of, _)| *of == stream).map(|(_, len)| len).sum()
    }
}

impl Client {
    async fn connect(face: &Face, first: &[Vec<u8>]) -> Client {
        let mut socket = face.raw().await;
        let preface = &HELLO[..24];
        socket.write_all(&[preface, &first.concat()].concat()).await.unwrap();
        Client { socket }
    }

    async fn send(&mut self, frames: &[Vec<u8>]) {
        self.socket.write_all(&frames.concat()).await.unwrap();
    }

    /// Whether these frames are taken in soon; they are not if the connection has ended.
    async fn can_send(&mut self, frames: &[Vec<u8>]) -> bool {
        let sent = timeout(Duration::from_millis(500), self.socket.write_all(&frames.concat())).await;
        sent.is_ok_and(|sent| sent.is_ok())
    }

    /// Sends these frames, and returns what came until they had been taken in.
    async fn sent(&mut self, frames: &[Vec<u8>]) -> Came {
        self.send(frames).await;
        let mut came = Came::default();
        for _ in 0..2 {
            self.send(&[frame(PING, 0, 0, b"kattu...")]).await;
            let more = self.until(PING).await;
            came.data.extend(more.data);
            came.heads.extend(more.heads);
            came.resets.extend(more.resets);
        }
        came
    }

    /// What comes until a frame of this kind that acknowledges one of the client's, or until last words.
    async fn until(&mut self, mark: u8) -> Came {
        let mut came = Came::default();
        loop {
            let mut head = [0; 9];
            timeout(Duration::from_secs(20), self.socket.read_exact(&mut head))
                .await
                .expect("in time")
                .unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.socket.read_exact(&mut payload).await.unwrap();
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            match head[3] {
                DATA => came.data.push((stream, payload.len())),
                HEADERS => came.heads.push((stream, payload)),
                RST_STREAM => came.resets.push(stream),
                SETTINGS if head[4] & ACK == 0 => self.send(&[frame(SETTINGS, ACK, 0, &[])]).await,
                PING if head[4] & ACK == 0 => self.send(&[frame(PING, ACK, 0, &payload)]).await,
                _ => {}
            }
            if head[3] == mark && (head[4] & ACK != 0 || mark == GOAWAY) {
                return came;
            }
        }
    }

    /// Until so many heads have come.
    async fn heads(&mut self, count: usize) -> Vec<(u32, Vec<u8>)> {
        let mut heads = Vec::new();
        for _ in 0..count {
            let (_, stream, block) = timeout(Duration::from_secs(20), next(&mut self.socket, &[HEADERS]))
                .await
                .expect("in time")
                .unwrap();
            heads.push((stream, block));
        }
        heads
    }
}

#[tokio::test]
async fn a_smaller_and_a_larger_window_of_streams_hold_for_calls_under_way() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(1_000))).await.unwrap();
    for (number, len) in [("small", 1_000), ("large", 300 << 10)].into_iter().enumerate() {
        face.kv().await.put(put("k", &"v".repeat(len.1))).await.unwrap();
        let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 10)]).await;
        let came = client.sent(&[range(1, "k"), range(3, "k")]).await;
        assert_eq!((came.bytes(1), came.bytes(3), came.heads.len()), (10, 10, 2), "{number}");
        let came = client.sent(&[settings(INITIAL_WINDOW_SIZE, 30)]).await;
        assert_eq!((came.bytes(1), came.bytes(3)), (20, 20), "{number}: the difference");
        let came = client.sent(&[settings(INITIAL_WINDOW_SIZE, 0), room(1, 30)]).await;
        assert_eq!(came.data, [], "{number}: the window was 30 below nothing");
        let came = client.sent(&[room(1, 7)]).await;
        assert_eq!((came.bytes(1), came.bytes(3)), (7, 0), "{number}");
        client.send(&[settings(INITIAL_WINDOW_SIZE, 1 << 20), room(0, 1 << 20)]).await;
        let tails = client.heads(2).await;
        assert!(tails.iter().all(|(_, block)| block.ends_with(b"grpc-status\x010")), "{number}: {tails:?}");
    }
    eventually(|| face.config.budget.held() == 0).await;
}

#[tokio::test]
async fn larger_frames_are_allowed_and_change_nothing() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(300 << 10))).await.unwrap();
    let first = [settings(INITIAL_WINDOW_SIZE, 1 << 20), room(0, 1 << 30)];
    let mut client = Client::connect(&face, &first).await;
    let mut lens = Vec::new();
    for (stream, bytes) in [(1, range(1, "k")), (3, range(3, "k")), (5, cold_range(5, "k"))] {
        if stream == 3 {
            client.sent(&[settings(MAX_FRAME_SIZE, 1 << 20)]).await;
        }
        let came = client.sent(&[bytes]).await;
        let mut len = came.bytes(stream);
        if came.heads.len() < 2 {
            // It was still being sent.
            while let Some((kind, _, payload)) = next(&mut client.socket, &[DATA, HEADERS]).await {
                if kind == HEADERS {
                    break;
                }
                len += payload.len();
            }
        }
        lens.push(len);
    }
    assert!(lens[0] == lens[1] && lens[1] == lens[2] && 300 << 10 < lens[0], "{lens:?}");
}

/// The first head behind the acknowledgement of a smaller table says that it is smaller [RFC 7541 §4.2], whichever path
/// writes it.
#[tokio::test]
async fn heads_say_that_the_clients_table_of_heads_is_smaller() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(100))).await.unwrap();
    for is_twice in [false, true] {
        let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 10)]).await;
        let came = client.sent(&[cold_range(1, "k"), range(3, "k"), range(5, "k")]).await;
        assert_eq!(came.heads.len(), 3);
        client.send(&[settings(HEADER_TABLE_SIZE, 100)]).await;
        if is_twice {
            client.send(&[settings(HEADER_TABLE_SIZE, 4096)]).await;
            client.until(SETTINGS).await;
        }
        client.until(SETTINGS).await;
        for stream in [3, 5] {
            client.send(&[room(stream, 1000)]).await;
            let (of, tail) = client.heads(1).await.remove(0);
            assert_eq!(
                (of, &tail[..]),
                (stream, &b"\x3f\x45\x00\x0bgrpc-status\x010"[..]),
                "100, and the trailers"
            );
        }
        // The library says it for itself, and from then on no head says it again.
        client.send(&[room(1, 1000)]).await;
        let tail = client.heads(1).await.remove(0);
        assert!(tail.0 == 1 && tail.1.starts_with(b"\x3f\x45"), "{tail:?}");
        client.send(&[range(7, "k"), room(7, 1000)]).await;
        for (of, block) in client.heads(2).await {
            assert!(of == 7 && block[0] & 0xe0 != 0x20, "{block:?}");
        }
    }
}

#[tokio::test]
async fn a_reset_ends_a_response_in_its_middle_and_no_other() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(300 << 10))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 100)]).await;
    let came = client.sent(&[range(1, "k"), range(3, "k"), range(5, "none")]).await;
    assert_eq!((came.bytes(1), came.bytes(3)), (100, 100));
    let came = client.sent(&[frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), room(1, 1000), room(3, 5)]).await;
    assert_eq!((came.bytes(1), came.bytes(3)), (0, 5));
    client.send(&[room(0, 1 << 20), room(3, 1 << 20)]).await;
    assert_eq!(client.heads(1).await[0].0, 3);
    eventually(|| face.config.budget.held() == 0).await;
}

/// Calls that came before the last words are answered, and the connection ends behind them; later ones are not begun.
#[tokio::test]
async fn calls_under_way_outlive_the_servers_last_words() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(300 << 10))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 10)]).await;
    assert_eq!(client.sent(&[range(1, "k")]).await.bytes(1), 10);
    face.stop.send(true).unwrap();
    // The first ones only ask the client to send no more, …
    let (_, _, words) = next(&mut client.socket, &[GOAWAY]).await.unwrap();
    assert_eq!(words[..4], [0x7f, 0xff, 0xff, 0xff]);
    client.send(&[range(3, "none")]).await;
    // … and `next` answers the ping with which the server learns that the client has heard it.
    let mut heads = 0;
    let words = loop {
        match next(&mut client.socket, &[GOAWAY, HEADERS]).await.unwrap() {
            (HEADERS, 3, _) => heads += 1,
            (GOAWAY, _, words) => break words,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(words, [0, 0, 0, 3, 0, 0, 0, 0]);
    client
        .send(&[range(5, "k"), cold_range(7, "k"), room(0, 1 << 20), room(1, 1 << 20), room(3, 1000)])
        .await;
    let mut ends = Vec::new();
    while let Some((_, stream, block)) = next(&mut client.socket, &[HEADERS]).await {
        assert!(stream <= 3, "a call behind the last words is answered: {stream}");
        if block.ends_with(b"grpc-status\x010") {
            ends.push(stream);
        }
        heads += 1;
    }
    ends.sort_unstable();
    assert!(ends.ends_with(&[1]) || ends == [1, 3], "{ends:?}");
    assert_eq!(heads, 3, "of stream 3 both, of stream 1 the last");
    timeout(Duration::from_secs(20), face.served).await.expect("the face ends").unwrap();
}

#[tokio::test]
async fn calls_under_way_outlive_the_clients_last_words() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(300 << 10))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 10)]).await;
    assert_eq!(client.sent(&[range(1, "k")]).await.bytes(1), 10);
    client.send(&[frame(GOAWAY, 0, 0, &[0; 8])]).await;
    client.until(GOAWAY).await;
    client.send(&[room(0, 1 << 20), room(1, 1 << 20)]).await;
    assert_eq!(client.heads(1).await[0], (1, b"\x00\x0bgrpc-status\x010".to_vec()));
    assert_eq!(client.socket.read(&mut [0; 9]).await.unwrap(), 0, "the connection ends");
    eventually(|| face.config.budget.held() == 0).await;
}

/// A client gives all the room that there is and reads nothing: what waits for it is bounded, others are served, and in
/// the end it loses its calls.
#[tokio::test]
async fn a_client_that_does_not_read_holds_little_and_stops_no_other() {
    const LEN: usize = 1 << 20;
    let stall_deadline = Duration::from_secs(2);
    let budget = Arc::new(Budget::of(64 << 20));
    let face = Face::start_with(FaceConfig { stall_deadline, budget, ..Default::default() }).await;
    face.kv().await.put(put("large", &"v".repeat(LEN))).await.unwrap();
    face.kv().await.put(put("small", &"v".repeat(100))).await.unwrap();
    let first = [settings(INITIAL_WINDOW_SIZE, i32::MAX as u32), room(0, i32::MAX as u32 - 65_535)];
    let mut large = Client::connect(&face, &first).await;
    let calls: Vec<_> = (0..40).map(|number| range(2 * number + 1, "large")).collect();
    large.send(&calls).await;
    let mut small = Client::connect(&face, &first).await;
    let (mut number, mut held_max) = (0, 0);
    let mut kv = face.kv().await;
    // The first client's calls stay; the second one sends until nothing more is taken.
    loop {
        let calls: Vec<_> = (0..50).map(|more| range(2 * (number + more) + 1, "small")).collect();
        number += 50;
        let is_sent = small.can_send(&calls).await;
        kv.range(get("small")).await.expect("others are served");
        held_max = face.config.budget.held().max(held_max);
        if !is_sent {
            break;
        }
        assert!(number < 2_000_000, "it is taken in without end");
    }
    assert!(held_max <= face.config.budget.max(), "{held_max}");
    eventually(|| face.config.budget.held() < CONNECTION_MAX).await;
    let counters = &face.config.counters;
    assert!(0 < counters.answers_stalled.get() + counters.connections_stalled.get());
}

/// More than one connection without a call holds.
const CONNECTION_MAX: u64 = 200 << 10;

/// Streams beyond the limit are refused, but not without end: a client that does not read its refusals is read no more.
#[tokio::test]
async fn refusals_that_are_not_read_are_not_heaped_up() {
    let face = Face::start_with(FaceConfig { max_concurrent_streams: 1, ..Default::default() }).await;
    face.store.set(|state| state.silent = true);
    let mut client = Client::connect(&face, &[frame(SETTINGS, 0, 0, &[])]).await;
    client.send(&[range(1, "k")]).await;
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    // In its shortest form a head has few bytes, fewer than its refusal.
    let table = [&[0x40, 1, b'x', 1, b'y'][..]].concat();
    let mut first = range(3, "k");
    let len = first[2] as usize;
    first.splice(9 + len..9 + len, table);
    first[2] += 5;
    client.send(&[first]).await;
    let mut sent = 0;
    for number in 0.. {
        let calls: Vec<_> =
            (0..1000).map(|more| frame(HEADERS, 5, 2 * (1000 * number + more) + 5, &[0xbe])).collect();
        if !client.can_send(&calls).await {
            break;
        }
        sent += 1000 * calls[0].len();
        assert!(sent < 64 << 20, "it is taken in without end");
    }
    let mut kv = face.kv().await;
    face.store.set(|state| state.silent = false);
    kv.range(get("k")).await.expect("others are served");
}

/// Numbers that look random. [xorshift64]
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn any_call(random: &mut Random) -> (&'static str, Vec<u8>) {
    let key = ["a", "b", "c", "d", ""][random.below(5)];
    let message = match random.below(9) {
        0..4 => {
            let len = [0, 3, 900, 20_000][random.below(4)];
            let mut put = put(key, &"v".repeat(len));
            put.prev_kv = random.below(2) == 0;
            put.ignore_value = random.below(9) == 0;
            return (PUT, put.encode_to_vec());
        }
        4 => prefix("a").encode_to_vec(),
        5 => pb::RangeRequest { serializable: true, ..get(key) }.encode_to_vec(),
        6 => pb::RangeRequest { revision: random.below(30) as i64, ..get(key) }.encode_to_vec(),
        7 => pb::RangeRequest { count_only: true, limit: 1, ..prefix("a") }.encode_to_vec(),
        _ => get(key).encode_to_vec(),
    };
    (RANGE, message)
}

/// Two stores get the same calls, one of them only cold ones, the other one hot and cold calls on one connection: all
/// answers are the same, to the byte.
#[tokio::test]
async fn hot_and_cold_calls_in_turn_are_answered_as_cold_ones_alone() {
    for seed in 1..4_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mixed, plain) = (Face::start().await, Face::start().await);
        let mut mixed_client = client(mixed.raw().await, 65_535).await;
        let mut plain_client = client(plain.raw().await, 65_535).await;
        for number in 0..200 {
            let (path, message) = any_call(&mut random);
            let is_cold = random.below(2) == 0;
            let answer = call(&mut mixed_client, path, &message, is_cold).await;
            let as_cold = call(&mut plain_client, path, &message, true).await;
            assert_eq!(answer, as_cold, "seed {seed}, call {number} of {path}, cold: {is_cold}: {message:?}");
        }
    }
}

#[tokio::test]
async fn hot_calls_in_tls_are_answered_as_cold_ones() {
    let dir = std::env::temp_dir().join(format!("kattu-hot-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let files = ensure_self_signed(&dir, "own", &["localhost".into()], 30).unwrap();
    let trusts = ClientTls::load(Some(&files.cert), None).unwrap();
    let speaks = Speaks::Tls(Arc::new(ServerTls::load(files).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (store, config) = (LoneStore::default(), Arc::new(FaceConfig::default()));
    let (stop, stopped) = watch::channel(false);
    let (replica, face) = (store.clone(), Arc::clone(&config));
    let served = on_a_thread(listener, |listener| {
        kattu_server::serve_clients(Doorway { listener, speaks }, replica, face, stopped)
    });
    let connector = tokio_rustls::TlsConnector::from(trusts.config());
    let socket = TcpStream::connect(address).await.unwrap();
    let socket = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
    let mut client = client(socket, 65_535).await;
    let mut random = Random(7);
    for number in 0..200 {
        let (path, message) = any_call(&mut random);
        if path == PUT {
            let (_, data, _) = call(&mut client, path, &message, false).await;
            assert!(data.is_empty() || framed(&data[5..]) == data, "call {number}");
            continue;
        }
        let hot = call(&mut client, path, &message, false).await;
        assert_eq!(hot, call(&mut client, path, &message, true).await, "call {number}");
    }
    stop.send(true).unwrap();
    drop(client);
    timeout(Duration::from_secs(20), served).await.expect("it ends").unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Hot responses have used the window up when a cold one is ready, and what gives more room comes behind much else.
#[tokio::test]
async fn a_window_that_comes_behind_much_else_is_read() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(10_000))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 1 << 20)]).await;
    let calls: Vec<_> = (0..6).map(|number| range(2 * number + 1, "k")).collect();
    let came = client.sent(&calls).await;
    assert_eq!(came.heads.len(), 12, "{came:?}");
    client.send(&[cold_range(13, "k"), cold_range(15, "k")]).await;
    let mut much = [whole(17, "/etcdserverpb.KV/Txn", b""), frame(PING, 0, 0, b"between.")].concat();
    let head = whole(19, "/etcdserverpb.KV/Txn", b"");
    much.extend(&head[..head.len() - 14]);
    much.extend(frame(DATA, 0, 19, &[0, 0, 1, 0, 0]));
    (0..5).for_each(|_| much.extend(frame(DATA, 0, 19, &[0; 8_000])));
    client.send(&[frame(PING, 0, 0, b"kattu..."), much, room(0, 1 << 20)]).await;
    let mut ends = 0;
    while ends < 2 {
        let (of, head) = client.heads(1).await.remove(0);
        ends += usize::from(
            matches!(of, 13 | 15) && head.len() < 40 && head != b"\x88\x0f\x10\x10application/grpc",
        );
        if of == 15 && ends == 2 {
            break;
        }
    }
}

/// The room that is left is used, however little it is: a client may give more only when all of it is used.
#[tokio::test]
async fn a_cold_response_uses_what_hot_ones_left_of_the_window() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(10_000))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 1 << 20)]).await;
    let calls: Vec<_> = (0..6).map(|number| range(2 * number + 1, "k")).collect();
    let used: usize = client.sent(&calls).await.data.iter().map(|(_, len)| len).sum();
    let came = client.sent(&[cold_range(13, "k")]).await;
    assert_eq!(came.bytes(13), 65_535 - used);
    let came = client.sent(&[range(15, "none")]).await;
    assert_eq!(came.bytes(15), 0);
    let came = client.sent(&[room(0, 7)]).await;
    assert_eq!(came.data, [(13, 7)]);
    let came = client.sent(&[room(0, 1 << 20)]).await;
    assert_eq!(came.bytes(13), used / 6 - (65_535 - used) - 7);
    assert!(came.bytes(15) < 100 && came.heads.len() == 2, "{came:?}");
    assert_eq!(came.heads.iter().map(|(of, _)| *of).collect::<Vec<_>>(), [13, 15]);
}

/// Responses whose streams have no window leave that of the connection to others.
#[tokio::test]
async fn a_response_without_room_in_its_stream_takes_none_of_the_connections() {
    let face = start().await;
    face.kv().await.put(put("k", &"v".repeat(16_000))).await.unwrap();
    face.kv().await.put(put("large", &"v".repeat(60_000))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 1_000)]).await;
    let calls: Vec<_> = (0..5).map(|number| range(2 * number + 1, "k")).collect();
    let came = client.sent(&calls).await;
    assert_eq!(came.data.len(), 5);
    client.send(&[range(11, "large"), room(11, 1 << 20)]).await;
    let came = client.sent(&[]).await;
    let came = client.sent(&[]).await.bytes(11) + came.bytes(11);
    assert!(60_000 < came, "{came}");
}

/// Behind the acknowledgement of the last ping no call is hot: else the last words would name a stream above that of a
/// cold call to which the library does not listen any more.
#[tokio::test]
async fn last_words_name_no_stream_that_is_not_answered() {
    let face = start().await;
    face.store.set(|state| state.silent = true);
    let mut client = Client::connect(&face, &[frame(SETTINGS, 0, 0, &[])]).await;
    client.send(&[range(1, "k")]).await;
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    face.stop.send(true).unwrap();
    let (_, _, ping) = next_raw(&mut client.socket, PING).await;
    let both = [cold_range(3, "k"), range(5, "k")].concat();
    client.send(&[frame(PING, ACK, 0, &ping), both]).await;
    let (_, _, words) = next_raw(&mut client.socket, GOAWAY).await;
    assert_eq!(words, [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(face.store.set(|state| state.waiting), 1);
}

/// The next frame of this kind; nothing is answered.
async fn next_raw(socket: &mut TcpStream, kind: u8) -> (u8, u32, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        timeout(Duration::from_secs(20), socket.read_exact(&mut head)).await.expect("in time").unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).await.unwrap();
        if head[3] == kind {
            return (kind, u32::from_be_bytes(head[5..].try_into().unwrap()), payload);
        }
    }
}

/// The connection ends behind the last hot response, not when the drain does.
#[tokio::test]
async fn the_last_response_ends_a_connection_that_was_asked_to_end() {
    let drain_deadline = Duration::from_secs(60);
    let face = Face::start_with(FaceConfig { drain_deadline, ..Default::default() }).await;
    face.kv().await.put(put("k", &"v".repeat(1_000))).await.unwrap();
    let mut client = Client::connect(&face, &[settings(INITIAL_WINDOW_SIZE, 10)]).await;
    client.send(&[range(1, "k")]).await;
    assert_eq!(client.heads(1).await[0].0, 1);
    face.stop.send(true).unwrap();
    while next(&mut client.socket, &[GOAWAY]).await.expect("last words").2[..4] != [0, 0, 0, 1] {}
    client.send(&[room(1, 2_000)]).await;
    assert_eq!(client.heads(1).await[0].0, 1);
    let end = timeout(Duration::from_secs(20), client.socket.read(&mut [0; 9])).await.expect("in time");
    assert_eq!(end.unwrap(), 0);
}

/// A list of fields that is too long is answered, though few bytes stand for it, and its connection goes on.
#[tokio::test]
async fn a_head_of_few_bytes_that_stand_for_too_many_is_refused_alone() {
    let face = start().await;
    let mut client = Client::connect(&face, &[frame(SETTINGS, 0, 0, &[])]).await;
    let with = |stream: u32, more: &[u8]| {
        let head = range(stream, "k");
        let len = head[2] as usize;
        [frame(HEADERS, 4, stream, &[&head[9..9 + len], more].concat()), head[9 + len..].to_vec()].concat()
    };
    let long = [&[0x7a, 0x7f, 0xa1, 0x1e][..], &[b'u'; 4_000]].concat();
    let came = client.sent(&[with(1, &long), with(3, &[0xbe; 10]), with(5, b"")]).await;
    let statuses: Vec<_> = came.heads.iter().map(|(of, block)| (*of, block[0])).collect();
    assert!(statuses.contains(&(1, 0x88)) && statuses.contains(&(5, 0x88)), "{statuses:?}");
    assert!(!statuses.contains(&(3, 0x88)) && statuses.iter().any(|(of, _)| *of == 3), "{statuses:?}");
}

/// Once the library reads again, so does its connection: more came for it than may wait while it could not write.
#[tokio::test]
async fn a_connection_on_which_much_waited_is_read_again() {
    let face = start().await;
    face.kv().await.put(put("large", &"v".repeat(1 << 20))).await.unwrap();
    let first = [settings(INITIAL_WINDOW_SIZE, i32::MAX as u32), room(0, i32::MAX as u32 - 65_535)];
    let mut client = Client::connect(&face, &first).await;
    let calls: Vec<_> = (0..12).map(|number| range(2 * number + 1, "large")).collect();
    client.send(&calls).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // until nothing more is sent
    let (heads, messages): (Vec<_>, Vec<_>) = (20..320)
        .map(|number| {
            let mut head = range(2 * number + 1, "none");
            let message = head.split_off(9 + head[2] as usize);
            (head, message)
        })
        .unzip();
    client.send(&[settings(MAX_FRAME_SIZE, 1 << 15)]).await;
    for some in heads.chunks(100) {
        client.send(some).await;
        tokio::time::sleep(Duration::from_millis(50)).await; // it is settled
    }
    let (mut reader, mut writer) = client.socket.split();
    let mut ends = 0;
    let read = async {
        while ends < 312 {
            let mut head = [0; 9];
            reader.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            reader.read_exact(&mut payload).await.unwrap();
            ends += usize::from(head[3] == HEADERS && head[4] & 1 != 0);
        }
    };
    let write = async { writer.write_all(&messages.concat()).await.unwrap() };
    timeout(Duration::from_secs(20), async { tokio::join!(read, write) }).await.expect("all are answered");
}
