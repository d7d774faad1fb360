//! Bad input: it costs its sender the connection or the call, and other clients nothing.

use crate::fixture::*;
use kattu_proto::etcdserverpb as pb;
use kattu_server::FaceConfig;
use kattu_server::budget::{Account, Budget, CALL_BYTES, Hold};
use kattu_server::rpc::Rpc;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A well-behaved client on a connection of its own is served as before.
async fn assert_serving(face: &Face) {
    let before = face.store.revision();
    face.kv().await.put(put("alive", "yes")).await.expect("the server serves");
    assert_eq!(face.store.revision(), before.next());
}

/// Reads until the server closes the connection.
async fn read_to_close(stream: &mut tokio::net::TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    // A reset is a way to close, too.
    let _ = stream.read_to_end(&mut got).await;
    got
}

#[tokio::test]
async fn garbage_costs_its_sender_the_connection_and_no_other_client_anything() {
    let face = Face::start().await;
    let garbage: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello of somebody",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
    ];
    for bytes in garbage {
        let mut stream = face.raw().await;
        stream.write_all(bytes).await.unwrap();
        read_to_close(&mut stream).await;
    }
    eventually(|| face.config.counters.connections.get() == 0).await;
    assert_eq!(face.config.counters.connections_broken.get(), garbage.len() as u64);
    assert_serving(&face).await;
}

#[tokio::test]
async fn every_beginning_of_a_preface_that_goes_no_further_ends_at_the_deadline() {
    let deadline = Duration::from_millis(500); // it holds for the well-behaved client, too
    let face = Face::start_with(FaceConfig { header_deadline: deadline, ..Default::default() }).await;
    let half_head = b"GET /health HTTP/1.1\r\nhost:";
    for beginning in [&b""[..], &PREFACE[..1], &PREFACE[..23], half_head] {
        let mut stream = face.raw().await;
        stream.write_all(beginning).await.unwrap();
        read_to_close(&mut stream).await;
    }
    eventually(|| face.config.counters.connections.get() == 0).await;
    assert_serving(&face).await;
}

/// After the preface, too: a frame that has begun, a head to be continued, and one that comes a byte at a time.
#[tokio::test]
async fn half_a_head_ends_the_connection_at_the_deadline_and_half_a_body_does_not() {
    let deadline = Duration::from_millis(500);
    let face = Face::start_with(FaceConfig { header_deadline: deadline, ..Default::default() }).await;
    let hello = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let head = |len: u8, kind: u8, flags: u8| [0, 0, len, kind, flags, 0, 0, 0, 1];
    // POST, http, path and content type: the complete head of a call.
    let block =
        [&[0x83, 0x86, 0x04, 20][..], b"/etcdserverpb.KV/Put", &[0x0f, 0x10, 16], b"application/grpc"]
            .concat();
    let whole = [&head(block.len() as u8, 1, 4)[..], &block].concat();
    let to_be_continued = [&head(block.len() as u8, 1, 0)[..], &block].concat();
    let halves = [
        &head(9, 4, 0)[..5],
        &head(8, 6, 0),
        &whole[..20],
        &to_be_continued,
        &[&to_be_continued[..], &head(4, 9, 0), &[0; 4]].concat(),
    ];
    for (number, half) in halves.into_iter().enumerate() {
        let mut stream = face.raw().await;
        let begun = std::time::Instant::now();
        stream.write_all(&[&hello[..], half].concat()).await.unwrap();
        read_to_close(&mut stream).await;
        let took = begun.elapsed();
        assert!(deadline <= took && took < 20 * deadline, "{number}: {took:?}");
        eventually(|| face.config.counters.connections_broken.get() == 1 + number as u64).await;
    }
    // A byte at a time does not help.
    let (mut reader, mut writer) = face.raw().await.into_split();
    let trickles = async {
        for byte in [&hello[..], &to_be_continued].concat() {
            if writer.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(deadline / 20).await;
        }
        std::future::pending::<()>().await;
    };
    let mut got = Vec::new();
    tokio::select! {
        _ = reader.read_to_end(&mut got) => {}
        () = trickles => {}
    }
    // A body that has begun has its call's deadline; the connection lives.
    let mut patient = face.raw().await;
    let half_body = [&hello[..], &whole, &head(100, 0, 0), &[0; 7]].concat();
    patient.write_all(&half_body).await.unwrap();
    tokio::select! {
        _ = patient.read_to_end(&mut got) => panic!("half a body cost the connection"),
        () = tokio::time::sleep(3 * deadline) => {}
    }
    assert_serving(&face).await;
}

#[tokio::test]
async fn a_preface_in_two_halves_is_a_preface() {
    let face = Face::start().await;
    let mut stream = face.raw().await;
    stream.write_all(&PREFACE[..10]).await.unwrap();
    tokio::task::yield_now().await;
    stream.write_all(&PREFACE[10..]).await.unwrap();
    // An empty SETTINGS frame, which the server must answer with its own and an acknowledgement.
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame of the server is its SETTINGS");
}

#[tokio::test]
async fn clients_that_leave_at_any_point_leave_nothing_behind() {
    let face = Face::start().await;
    for len in 0..=PREFACE.len() {
        let mut stream = face.raw().await;
        stream.write_all(&PREFACE[..len]).await.unwrap();
    }
    eventually(|| {
        let counters = &face.config.counters;
        counters.connections_accepted.get() == PREFACE.len() as u64 + 1 && counters.connections.get() == 0
    })
    .await;
    assert_serving(&face).await;
}

#[tokio::test]
async fn a_client_that_vanishes_while_it_waits_is_waited_for_no_longer() {
    let face = Face::start().await;
    face.store.set(|state| state.silent = true);
    let mut kv = face.kv().await;
    let call = tokio::spawn(async move { kv.put(put("a", "1")).await });
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    call.abort();
    eventually(|| face.store.set(|state| state.waiting) == 0).await;
    let put = face.config.counters.of(kattu_server::rpc::Rpc::Put);
    // Counted as cancelled, a moment after the client has gone.
    eventually(|| put.handled[Code::Cancelled as usize].get() == 1).await;
    face.store.set(|state| state.silent = false);
    assert_serving(&face).await;
}

#[tokio::test]
async fn a_request_at_the_limit_passes_and_one_byte_more_is_refused() {
    let face = Face::start_with(FaceConfig { request_bytes_max: 10_000, ..Default::default() }).await;
    let mut kv = face.kv().await;
    let overhead = kattu_node::command::encode_kv(&kattu_kv::api::Command::Put(kattu_kv::api::Put {
        key: b"k".to_vec(),
        value: vec![0; 9_000],
        ..Default::default()
    }))
    .len()
        - 9_000;
    let of = |len: usize| pb::PutRequest { key: b"k".to_vec(), value: vec![7; len], ..Default::default() };
    kv.put(of(10_000 - overhead)).await.expect("at the limit");
    let refused = kv.put(of(10_001 - overhead)).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: request is too large")
    );
}

#[tokio::test]
async fn what_is_beyond_even_grpcs_limit_is_refused_before_it_has_arrived() {
    let face = Face::start_with(FaceConfig { request_bytes_max: 10_000, ..Default::default() }).await;
    let mut kv = face.kv().await;
    let huge = pb::PutRequest { key: b"k".to_vec(), value: vec![7; 8 << 20], ..Default::default() };
    let refused = kv.put(huge).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("grpc: received message larger than max ("), "{refused:?}");
    kv.put(put("k", "v")).await.expect("the same connection goes on");
    assert_eq!(face.store.revision().0, 2);
}

#[tokio::test]
async fn a_value_of_a_megabyte_goes_in_and_comes_out() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let value: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[n as usize % 3]).collect();
    kv.put(pb::PutRequest { key: b"k".to_vec(), value: value.clone(), ..Default::default() }).await.unwrap();
    let answer = kv.range(get("k")).await.unwrap().into_inner();
    assert!(answer.kvs[0].value == value);
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused_with_advice() {
    let face = Face::start_with(FaceConfig { max_response_bytes: 1_000, ..Default::default() }).await;
    let mut kv = face.kv().await;
    for n in 0..20 {
        kv.put(put(&format!("k{n}"), &"v".repeat(100))).await.unwrap();
    }
    let refused = kv.range(prefix("k")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("limit"), "{refused:?}");
    let everything = pb::request_op::Request::RequestRange(prefix("k"));
    let refused = kv.txn(all_of(vec![op(everything)])).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(face.config.counters.answers_too_large.get(), 2);
    let some = pb::RangeRequest { limit: 5, ..prefix("k") };
    assert_eq!(kv.range(some).await.unwrap().into_inner().kvs.len(), 5);
}

#[tokio::test]
async fn a_write_whose_answer_is_too_large_says_that_it_was_done() {
    let face = Face::start_with(FaceConfig { max_response_bytes: 1_000, ..Default::default() }).await;
    let mut kv = face.kv().await;
    for n in 0..20 {
        kv.put(put(&format!("k{n}"), &"v".repeat(100))).await.unwrap();
    }
    let range_end = prefix("k").range_end;
    let request = pb::DeleteRangeRequest { range_end, prev_kv: true, ..delete("k") };
    let doubtful = kv.delete_range(request).await.unwrap_err();
    assert_eq!(doubtful.code(), Code::Unknown);
    assert!(doubtful.message().starts_with("kattu: carried out at revision 22,"), "{doubtful:?}");
    assert_eq!(face.config.counters.answers_too_large.get(), 1);
    assert_eq!(face.store.revision().0, 22);
}

/// Small pairs take more memory than bytes on the wire: a response that no call can ever hold is refused as too large,
/// not as if there were memory later.
#[tokio::test]
async fn an_answer_of_more_small_pairs_than_one_call_may_hold_is_refused_with_advice() {
    let budget = Arc::new(Budget::of(256 << 10));
    let face = Face::start_with(FaceConfig { budget, ..Default::default() }).await;
    let mut kv = face.kv().await;
    for n in 0..2_000 {
        kv.put(put(&format!("k{n}"), "")).await.unwrap();
    }
    let refused = kv.range(prefix("k")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("of memory") && refused.message().contains("limit"), "{refused:?}");
    let range_end = prefix("k").range_end;
    let request = pb::DeleteRangeRequest { range_end, prev_kv: true, ..delete("k") };
    let doubtful = kv.delete_range(request).await.unwrap_err();
    assert!(doubtful.message().starts_with("kattu: carried out at revision 2002,"), "{doubtful:?}");
    assert_eq!(face.config.counters.answers_too_large.get(), 2);
}

#[tokio::test]
async fn a_client_that_asks_for_much_and_reads_nothing_makes_no_copies_pile_up() {
    const ASKED: usize = 100;
    let face = Face::start().await;
    let mut other = face.kv().await;
    let value = vec![7; 1 << 20];
    other.put(pb::PutRequest { key: b"big".to_vec(), value, ..Default::default() }).await.unwrap();

    // A hundred streams share a window of 64 KiB: what they take comes in small frames, which the client's library
    // would take for an attack.
    let mut builder = h2::client::Builder::new();
    let handshake = builder.data_frame_budget(8 << 20).handshake::<_, bytes::Bytes>(face.raw().await);
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let message = prost::Message::encode_to_vec(&get("big"));
    let framed = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat();
    let mut answers = Vec::new();
    for _ in 0..ASKED {
        let request = http::Request::post("http://x/etcdserverpb.KV/Range")
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        client = client.ready().await.unwrap();
        let (answer, mut body) = client.send_request(request, false).unwrap();
        body.send_data(framed.clone().into(), true).unwrap();
        answers.push(answer);
    }
    let reads = |state: &mut State| state.seen.len() - 1;
    eventually(|| face.store.set(reads) == ASKED).await;
    // The server is a single thread: it does any unrequested work while it answers another client.
    for _ in 0..100 {
        other.range(get("none")).await.unwrap();
    }
    let written = face.config.counters.sent_bytes.get() >> 10;
    assert!(written < 100, "{written} KiB were written out for one client, whose window is 64");

    let mut readers = tokio::task::JoinSet::new();
    for answer in answers {
        readers.spawn(async move {
            let (_, mut body) = answer.await.unwrap().into_parts();
            let mut len = 0;
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                len += data.len();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            assert!(1 << 20 < len);
        });
    }
    readers.join_all().await;
    assert_eq!(face.config.counters.sent_bytes.get() >> 20, ASKED as u64);
}

/// Clients take a connection whose pings are not acknowledged for dead, however long their calls may take.
#[tokio::test]
async fn a_ping_is_answered_while_calls_wait_and_while_none_do() {
    let face = Face::start().await;
    let (client, mut connection) = h2::client::handshake(face.raw().await).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    pings.ping(h2::Ping::opaque()).await.unwrap();
    face.store.set(|state| state.silent = true);
    let message = prost::Message::encode_to_vec(&get("a"));
    let framed = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat();
    let request =
        http::Request::post("http://x/etcdserverpb.KV/Range").header("content-type", "application/grpc");
    let mut client = client.ready().await.unwrap();
    let (_answer, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(framed.into(), true).unwrap();
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    for _ in 0..2 {
        pings.ping(h2::Ping::opaque()).await.unwrap(); // a third would be one too many
    }
}

#[tokio::test]
async fn absurd_numbers_are_taken_for_what_they_are() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    let least = pb::RangeRequest { limit: i64::MIN, revision: i64::MIN, ..prefix("a") };
    let answer = kv.range(least).await.unwrap().into_inner();
    assert_eq!((answer.kvs.len(), answer.count), (1, 1));
    let most = pb::RangeRequest { limit: i64::MAX, min_mod_revision: i64::MAX, ..prefix("a") };
    let answer = kv.range(most).await.unwrap().into_inner();
    assert_eq!((answer.kvs.len(), answer.count), (0, 1));
    let future = pb::RangeRequest { revision: i64::MAX, ..get("a") };
    assert_eq!(kv.range(future).await.unwrap_err().code(), Code::OutOfRange);
    // etcd takes 0 on a store that was never compacted; what is below that, and above now, is out of range.
    for revision in [i64::MIN, -1, i64::MAX] {
        let refused = kv.compact(pb::CompactionRequest { revision, physical: true }).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{revision}");
    }
}

/// Nested deeper than protobuf is read: refused, not a stack overflow.
#[tokio::test]
async fn a_txn_nested_without_end_is_refused() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    let nest = |levels: usize| {
        (0..levels).fold(pb::TxnRequest::default(), |inner, _| {
            all_of(vec![op(pb::request_op::Request::RequestTxn(inner))])
        })
    };
    let refused = kv.txn(nest(40)).await.unwrap_err();
    let text = "etcdserver: too many operations in txn request";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
    assert_eq!(kv.txn(nest(60)).await.unwrap_err().code(), Code::Internal);
    assert_serving(&face).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_turned_away_and_the_others_go_on() {
    let face = Face::start_with(FaceConfig { max_connections: 2, ..Default::default() }).await;
    let mut kv = face.kv().await;
    let first = face.raw().await;
    eventually(|| face.config.counters.connections.get() == 2).await;
    let mut second = face.raw().await;
    assert!(read_to_close(&mut second).await.is_empty());
    assert_eq!(face.config.counters.connections_refused.get(), 1);
    kv.put(put("a", "1")).await.expect("those inside are served");
    drop(first);
    eventually(|| face.config.counters.connections.get() == 1).await;
    assert_serving(&face).await;
}

#[tokio::test]
async fn a_stop_answers_what_is_under_way_and_then_closes_every_connection() {
    let face =
        Face::start_with(FaceConfig { drain_deadline: Duration::from_millis(20), ..Default::default() })
            .await;
    let mut kv = face.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    let mut idle = face.raw().await;
    face.store.set(|state| state.silent = true);
    let stuck = tokio::spawn(async move { kv.put(put("b", "1")).await });
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    face.stop.send(true).unwrap();
    face.served.await.expect("the listener ends");
    assert!(read_to_close(&mut idle).await.is_empty());
    stuck.await.unwrap().expect_err("cut at the drain deadline");
    assert_eq!(face.config.counters.connections.get(), 0);
    tokio::net::TcpStream::connect(face.address).await.expect_err("the port is closed");
}

/// Calls with these bytes as the message, without a connection, and returns the code.
async fn ask_raw(face: &kattu_server::face::Face<LoneStore>, rpc: Rpc, message: &[u8]) -> Code {
    let len = u32::try_from(message.len()).unwrap();
    let framed = [&[0][..], &len.to_be_bytes()[..], message].concat();
    let request = http::Request::post(format!("/{}/{}", rpc.service(), rpc.method()))
        .body(http_body_util::Full::new(bytes::Bytes::from(framed)))
        .unwrap();
    let hold = Hold::take(&Account::new(&face.config.budget), CALL_BYTES).expect("nothing else is held");
    let (response, _) = face.answer(request, hold).await;
    match tonic::Status::from_header_map(response.headers()) {
        Some(status) => status.code(),
        None => Code::Ok,
    }
}

proptest! {
    #[test]
    fn whatever_the_message_is_every_rpc_answers(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_keep, stop) = tokio::sync::watch::channel(false);
            let face = kattu_server::face::Face::new(LoneStore::default(), Default::default(), stop);
            for message in messages {
                for &rpc in Rpc::ALL {
                    let code = ask_raw(&face, rpc, &message).await;
                    // A store that is there and has a leader is never unavailable; Internal is for what is no message.
                    assert_ne!(code, Code::Unavailable, "{rpc:?} {message:?}");
                }
            }
        });
    }
}
