//! Hot calls: they answer as the general path does, and share their connection with it.
//!
//! Method: a field of no meaning (`x-cold`) sends a call down the general path. What clients do not show is sent and read
//! as frames.

use crate::fixture::*;
use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;
use kattu_proto::{etcdserverpb as pb, healthpb};
use kattu_server::FaceConfig;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub const RANGE: &str = "/etcdserverpb.KV/Range";
pub const PUT: &str = "/etcdserverpb.KV/Put";
/// The first bytes of a client.
pub const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

pub async fn client<S>(socket: S, window: u32) -> SendRequest<Bytes>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = h2::client::Builder::new();
    let handshake = builder.initial_window_size(window).data_frame_budget(8 << 20).handshake(socket);
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    client
}

pub type Answer = (HeaderMap, Vec<u8>, Option<HeaderMap>);

pub async fn call(client: &mut SendRequest<Bytes>, path: &str, message: &[u8], is_cold: bool) -> Answer {
    call_with(client, path, message, if is_cold { &[("x-cold", "1")] } else { &[] }).await
}

async fn call_with(
    client: &mut SendRequest<Bytes>,
    path: &str,
    message: &[u8],
    fields: &[(&str, &str)],
) -> Answer {
    let mut request =
        http::Request::post(format!("http://x{path}")).header("content-type", "application/grpc");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    std::future::poll_fn(|context| client.poll_ready(context)).await.unwrap();
    let (answer, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(framed(message).into(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    assert_eq!(head.status, 200);
    let mut data = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.unwrap();
        body.flow_control().release_capacity(part.len()).unwrap();
        data.extend_from_slice(&part);
    }
    (head.headers, data, body.trailers().await.unwrap())
}

#[tokio::test]
async fn both_paths_give_the_same_answers() {
    let face = Face::start().await;
    for (key, len) in [("small", 1), ("frame", 16 << 10), ("large", 300 << 10)] {
        face.kv().await.put(put(key, &"v".repeat(len))).await.unwrap();
    }
    let ranges = [
        get("small"),
        get("none"),
        get("frame"),
        get("large"),
        prefix("l"),
        get(""),
        pb::RangeRequest { serializable: true, ..get("small") },
        pb::RangeRequest { revision: 99, ..get("small") },
        pb::RangeRequest { sort_order: 7, ..get("small") },
    ];
    let puts = [
        put("", "no key"),
        pb::PutRequest { lease: 9, ..put("a", "b") },
        pb::PutRequest { ignore_value: true, ..put("a", "b") },
    ];
    let mut table: Vec<(&str, Vec<u8>)> = ranges.iter().map(|range| (RANGE, range.encode_to_vec())).collect();
    table.extend(puts.iter().map(|put| (PUT, put.encode_to_vec())));
    table.push((RANGE, b"\xff\xff\xff".to_vec()));
    table.push((PUT, b"\x0a\x7fcut off".to_vec()));
    for window in [65_535, 700, 7] {
        let mut client = client(face.raw().await, window).await;
        for (path, message) in &table {
            if window == 7
                && (*message == get("large").encode_to_vec() || *message == prefix("l").encode_to_vec())
            {
                continue; // in frames of seven bytes it takes long
            }
            let hot = call(&mut client, path, message, false).await;
            let cold = call(&mut client, path, message, true).await;
            assert_eq!(hot, cold, "{path} {message:?}");
        }
    }
    eventually(|| face.config.budget.held() == 0).await;
}

/// What a hot call may name is looked at by neither path: a field that the general path comes to look at is to leave the
/// list of `heads.rs`.
#[tokio::test]
async fn fields_of_hot_calls_change_no_answer() {
    let face = Face::start().await;
    face.kv().await.put(put("k", "v")).await.unwrap();
    let mut client = client(face.raw().await, 65_535).await;
    for (name, value) in [
        ("user-agent", "x"),
        ("grpc-accept-encoding", "gzip"),
        ("grpc-timeout", "1n"),
        ("accept-encoding", "br"),
        ("client-api-version", "0.1"),
        ("authorization", "Bearer x"),
        ("token", "no.such.token"),
        ("traceparent", "x"),
        ("grpc-trace-bin", "AA"),
    ] {
        let message = get("k").encode_to_vec();
        let hot = call_with(&mut client, RANGE, &message, &[(name, value)]).await;
        let cold = call_with(&mut client, RANGE, &message, &[(name, value), ("x-cold", "1")]).await;
        assert_eq!(hot, cold, "{name}");
    }
}

#[tokio::test]
async fn hot_and_cold_calls_share_a_connection() {
    let face = Face::start().await;
    let channel = face.channel().await;
    let mut kv = pb::kv_client::KvClient::new(channel.clone());
    let mut health = healthpb::health_client::HealthClient::new(channel);
    let mut watch = health.watch(healthpb::HealthCheckRequest::default()).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    for number in 0..300 {
        let value = "v".repeat(number * 31 % 5000);
        kv.put(put("k", &value)).await.unwrap();
        let read = kv.range(get("k")).await.unwrap().into_inner();
        assert_eq!(read.kvs[0].value, value.as_bytes());
        if number % 7 == 0 {
            assert_eq!(kv.delete_range(delete("k")).await.unwrap().into_inner().deleted, 1);
        }
    }
    let mut all = tokio::task::JoinSet::new();
    for number in 0..400 {
        let mut kv = kv.clone();
        all.spawn(async move {
            let key = format!("k{number}");
            kv.put(put(&key, &"w".repeat(number * 97 % 40_000))).await.unwrap();
            let read = kv.range(get(&key)).await.unwrap().into_inner();
            assert_eq!(read.kvs[0].value.len(), number * 97 % 40_000);
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
    drop(watch);
    eventually(|| face.config.budget.held() == 0).await;
}

/// A frame of HTTP/2. [RFC 9113 §4.1]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A whole call.
pub fn whole(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let path = path.as_bytes();
    let head = [
        &[0x83, 0x86, 0x04, path.len() as u8][..],
        path,
        &[0x01, 1, b'x', 0x0f, 0x10, 16],
        b"application/grpc",
    ];
    [frame(1, 4, stream, &head.concat()), frame(0, 1, stream, &framed(message))].concat()
}

pub fn whole_put(stream: u32) -> Vec<u8> {
    whole(stream, PUT, &put("k", "v").encode_to_vec())
}

/// The next frame of one of these kinds: kind, stream, payload.
pub async fn next(socket: &mut TcpStream, kinds: &[u8]) -> Option<(u8, u32, Vec<u8>)> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        if head[3] == 4 && head[4] == 0 {
            socket.write_all(&frame(4, 1, 0, &[])).await.unwrap();
        }
        if head[3] == 6 && head[4] == 0 {
            socket.write_all(&frame(6, 1, 0, &payload)).await.unwrap();
        }
        if kinds.contains(&head[3]) {
            return Some((head[3], stream, payload));
        }
    }
}

#[tokio::test]
async fn heads_are_static_and_last_words_name_the_highest_stream() {
    let face = Face::start().await;
    let mut socket = face.raw().await;
    socket.write_all(&[HELLO, &whole_put(1), &whole_put(5)].concat()).await.unwrap();
    for stream in [1, 5] {
        let (_, of, head) = next(&mut socket, &[1]).await.unwrap();
        assert_eq!((of, &head[..]), (stream, &b"\x88\x0f\x10\x10application/grpc"[..]));
        let (_, _, tail) = next(&mut socket, &[1]).await.unwrap();
        assert_eq!(tail, b"\x00\x0bgrpc-status\x010");
    }
    face.stop.send(true).unwrap();
    let mut last = None;
    while let Some((_, _, words)) = next(&mut socket, &[7]).await {
        last = Some(words);
    }
    assert_eq!(last.expect("it says goodbye"), [0, 0, 0, 5, 0, 0, 0, 0]);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_resets_make_room() {
    let face = Face::start_with(FaceConfig { max_concurrent_streams: 3, ..Default::default() }).await;
    face.store.set(|state| state.silent = true);
    let waiting = || face.store.set(|state| state.waiting);
    let mut socket = face.raw().await;
    let calls: Vec<u8> = (0..5).flat_map(|number| whole_put(2 * number + 1)).collect();
    socket.write_all(&[HELLO, &calls].concat()).await.unwrap();
    for stream in [7, 9] {
        assert_eq!(next(&mut socket, &[3]).await, Some((3, stream, vec![0, 0, 0, 7])));
    }
    eventually(|| waiting() == 3).await;
    // Late frames of streams that have ended change nothing.
    let late = [frame(8, 0, 1, &[0, 0, 0, 9]), frame(3, 0, 1, &[0, 0, 0, 8]), frame(8, 0, 7, &[0, 0, 0, 9])]
        .concat();
    socket.write_all(&[frame(3, 0, 1, &[0, 0, 0, 8]), late].concat()).await.unwrap();
    eventually(|| waiting() == 2).await;
    socket.write_all(&whole_put(11)).await.unwrap();
    eventually(|| waiting() == 3).await;
    // Resets without end, each of a whole call, leave nothing behind.
    let flood: Vec<u8> = (0..5_000_u32)
        .flat_map(|number| [whole_put(2 * number + 13), frame(3, 0, 2 * number + 13, &[0, 0, 0, 8])].concat())
        .collect();
    let (mut reader, mut writer) = socket.into_split();
    let read =
        tokio::spawn(async move { while reader.read(&mut [0; 4096]).await.is_ok_and(|len| 0 < len) {} });
    writer.write_all(&flood).await.unwrap();
    eventually(|| waiting() <= 3).await;
    drop(writer);
    eventually(|| face.config.budget.held() == 0 && waiting() == 0).await;
    read.await.unwrap();
}

#[tokio::test]
async fn a_broken_head_ends_the_connection_as_the_library_would() {
    let face = Face::start().await;
    for (bytes, reason) in [
        (frame(1, 5, 1, &[0x80]), 9),
        ([frame(1, 0, 1, &[0x83]), frame(0, 0, 1, &[])].concat(), 1),
        (frame(1, 5, 1, &b"\0\0\0".repeat(2_100)), 11),
        ([frame(1, 0, 1, &[0x83]), frame(9, 0, 1, &[0x83]).repeat(9)].concat(), 11),
        ([whole_put(1), frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff])].concat(), 3),
    ] {
        let mut socket = face.raw().await;
        socket.write_all(&[HELLO, &bytes].concat()).await.unwrap();
        let (_, _, words) = next(&mut socket, &[7]).await.expect("last words");
        assert_eq!(words[7], reason, "{bytes:?}");
    }
}
