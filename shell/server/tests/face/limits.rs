//! Limits of what is held for clients, and for how long: each at the limit and one beyond, with the client's error.

use crate::fixture::*;
use bytes::Bytes;
use futures_util::FutureExt;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use kattu_proto::{etcdserverpb as pb, healthpb};
use kattu_server::FaceConfig;
use kattu_server::ahead::FIRST;
use kattu_server::budget::{Budget, CALL_BYTES};
use kattu_server::rpc::Rpc;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tonic::Code;

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
const WATCH_HEALTH: &str = "/grpc.health.v1.Health/Watch";
const MIB: u64 = 1 << 20;
/// How long a client may take nothing in tests about slow clients.
const DRIP_STALL: Duration = Duration::from_millis(1_000);

/// A face with so many bytes for clients.
async fn face_with(bytes: u64) -> Face {
    Face::start_with(FaceConfig { budget: Arc::new(Budget::of(bytes)), ..Default::default() }).await
}

/// A client that sends and reads only what the test does. Its windows have 64 KiB.
async fn by_hand(face: &Face) -> SendRequest<Bytes> {
    by_hand_with(face, 65_535).await
}

/// The same, with so many bytes for each stream.
async fn by_hand_with(face: &Face, window: u32) -> SendRequest<Bytes> {
    let (client, connection) =
        h2::client::Builder::new().initial_window_size(window).handshake(face.raw().await).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn begin(client: &mut SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let request = http::Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    std::future::poll_fn(|context| client.poll_ready(context)).await.unwrap();
    client.send_request(request, false).unwrap()
}

fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let len = u32::try_from(message.len()).unwrap();
    [&[0][..], &len.to_be_bytes()[..], &message].concat()
}

async fn ask(client: &mut SendRequest<Bytes>, path: &str, message: &impl Message) -> ResponseFuture {
    let (answer, mut body) = begin(client, path).await;
    body.send_data(framed(message).into(), true).unwrap();
    answer
}

/// The status in a response without a body; none if a body follows.
async fn refusal(answer: ResponseFuture) -> Option<tonic::Status> {
    let response = answer.await.unwrap();
    tonic::Status::from_header_map(response.headers())
}

/// Releases received data, which opens the window for more.
fn take(body: &mut RecvStream, data: Bytes) -> usize {
    body.flow_control().release_capacity(data.len()).unwrap();
    data.len()
}

async fn read_all(mut body: RecvStream) -> usize {
    let mut len = 0;
    while let Some(data) = body.data().await {
        len += take(&mut body, data.unwrap());
    }
    len
}

async fn put_big(face: &Face, bytes: usize) {
    let request = pb::PutRequest { key: b"big".to_vec(), value: vec![7; bytes], ..Default::default() };
    face.kv().await.put(request).await.unwrap();
}

#[tokio::test]
async fn unread_answers_are_held_up_to_a_share_and_refused_beyond_it() {
    let face = face_with(30 * MIB).await;
    put_big(&face, 1 << 20).await;
    let mut client = by_hand(&face).await;
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        let response = ask(&mut client, RANGE, &get("big")).await.await.unwrap();
        match tonic::Status::from_header_map(response.headers()) {
            None => held.push(response.into_body()),
            Some(status) => refused.push(status),
        }
    }
    assert_eq!(
        (held.len(), refused.len()),
        (10, 20),
        "ten are a third of the budget: what fills the window has been sent"
    );
    for status in refused {
        assert_eq!(
            (status.code(), status.message()),
            (Code::ResourceExhausted, "etcdserver: too many requests")
        );
        let reason = status.metadata().get("kattu-reason").expect("it has advice").to_str().unwrap();
        assert!(reason.contains("use limit"), "{reason}");
    }
    let budget = &face.config.budget;
    assert!((9 * MIB..=10 * MIB).contains(&budget.held()), "{}", budget.held());
    assert_eq!(budget.refused(), 20);
    // Another client is served meanwhile, with a large response, too.
    assert_eq!(face.kv().await.range(get("big")).await.unwrap().into_inner().kvs[0].value.len(), 1 << 20);

    for body in held {
        tokio::spawn(async move { assert!((1 << 20) < read_all(body).await) });
    }
    eventually(|| budget.held() == 0).await;
    let again = ask(&mut client, RANGE, &get("big")).await.await.unwrap();
    assert!((1 << 20) < read_all(again.into_body()).await);
}

#[tokio::test]
async fn a_client_that_leaves_takes_everything_with_it_that_was_held_for_it() {
    let face = face_with(30 * MIB).await;
    put_big(&face, 1 << 20).await;
    let mut client = by_hand(&face).await;
    let unread = ask(&mut client, RANGE, &get("big")).await.await.unwrap();
    let budget = Arc::clone(&face.config.budget);
    // Four pieces fill the window, and the first of them has brought the response's head.
    eventually(|| budget.held() < MIB - (60 << 10)).await;
    let before = budget.held();
    assert!(MIB - (64 << 10) < before, "all but what fills the window: {before}");
    let (_answer, mut body) = begin(&mut client, PUT).await;
    let half = framed(&put("a", &"x".repeat(60_000)));
    body.send_data(Bytes::copy_from_slice(&half[..40_000]), false).unwrap();
    eventually(|| before + 40_000 <= budget.held()).await;
    body.send_reset(Reason::CANCEL);
    eventually(|| budget.held() == before).await;
    drop((client, unread, body));
    eventually(|| budget.held() == 0).await;
}

/// Goal: a client that resets its writes, or leaves, has no more of them here than one that waits. Method: a replica
/// that accepts every request, and answers none.
#[tokio::test]
async fn a_write_that_the_replica_has_is_held_until_it_is_answered_even_if_its_client_left() {
    const LARGE: usize = 600 << 10;
    let face = face_with(3 * MIB).await;
    face.store.set(|state| (state.silent, state.left) = (true, Some(Vec::new())));
    let (budget, turns) = (Arc::clone(&face.config.budget), Arc::clone(&face.config.large_writes));
    let turns_before = turns.available_permits();
    let left = |face: &Face| face.store.set(|state| state.left.as_ref().map_or(0, Vec::len));
    let mut client = by_hand(&face).await;
    let (answer, mut body) = begin(&mut client, PUT).await;
    body.send_data(framed(&put("a", &"x".repeat(LARGE))).into(), true).unwrap();
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    let (held, turns_held) = (budget.held(), turns.available_permits());
    assert!(LARGE as u64 <= held && turns_held < turns_before);
    body.send_reset(Reason::CANCEL);
    eventually(|| face.store.set(|state| state.waiting) == 0).await;
    assert_eq!((budget.held(), budget.calls(), turns.available_permits()), (held, 1, turns_held), "reset");

    // Small ones are always accepted, but not one after the other without end.
    let small = framed(&put("a", &"x".repeat(3_000)));
    let mut refused = None;
    for _ in 0..budget.max() / CALL_BYTES {
        let before = left(&face);
        let (told, mut body) = begin(&mut client, PUT).await;
        body.send_data(small.clone().into(), true).unwrap();
        let mut told = Box::pin(refusal(told));
        eventually(|| {
            refused = (&mut told).now_or_never().flatten();
            refused.is_some() || face.store.set(|state| state.waiting) == 1
        })
        .await;
        if refused.is_some() {
            break;
        }
        body.send_reset(Reason::CANCEL);
        eventually(|| left(&face) == before + 1).await;
    }
    assert_eq!(refused.expect("there is no end to it").code(), Code::ResourceExhausted);
    assert!(budget.held() <= budget.max() / 3 + CALL_BYTES, "{}", budget.held());

    // Nor does leaving help.
    let (held, connections) = (budget.held(), face.config.counters.connections.get());
    drop((client, answer, body));
    let mut other = by_hand(&face).await;
    let begun = begin(&mut other, PUT).await;
    drop((other, begun));
    eventually(|| face.config.counters.connections_accepted.get() == 2).await;
    eventually(|| face.config.counters.connections.get() == connections).await;
    assert_eq!(budget.held(), held, "left");
    drop(face.store.set(|state| state.left.take()));
    eventually(|| face.config.counters.connections.get() == 0).await;
    assert_eq!((budget.held(), budget.calls(), turns.available_permits()), (0, 0, turns_before));
}

/// The same for every other call, and for pages: the replica has their requests, too.
#[tokio::test]
async fn whatever_the_replica_has_is_held_until_it_is_answered() {
    let face = face_with(30 * MIB).await;
    face.store.set(|state| (state.silent, state.left) = (true, Some(Vec::new())));
    let budget = Arc::clone(&face.config.budget);
    let mut client = by_hand(&face).await;
    let disarm = pb::AlarmRequest { action: 2, member_id: 0, alarm: 1 };
    let whole = healthpb::HealthCheckRequest { service: String::new() };
    let calls = [
        ("/etcdserverpb.Maintenance/Alarm", framed(&disarm)),
        ("/etcdserverpb.Maintenance/Status", framed(&pb::StatusRequest {})),
        ("/etcdserverpb.Maintenance/Snapshot", framed(&pb::SnapshotRequest {})),
        ("/etcdserverpb.Maintenance/HashKV", framed(&pb::HashKvRequest::default())),
        ("/etcdserverpb.Cluster/MemberList", framed(&pb::MemberListRequest { linearizable: true })),
        ("/etcdserverpb.Cluster/MemberRemove", framed(&pb::MemberRemoveRequest { id: MEMBER })),
        (
            "/etcdserverpb.Cluster/MemberAdd",
            framed(&pb::MemberAddRequest { peer_ur_ls: vec!["http://a:1".into()], ..Default::default() }),
        ),
        ("/etcdserverpb.Auth/AuthStatus", framed(&pb::AuthStatusRequest {})),
        ("/grpc.health.v1.Health/Check", framed(&whole)),
        ("/grpc.health.v1.Health/List", framed(&healthpb::HealthListRequest {})),
    ];
    for (place, (path, message)) in calls.iter().enumerate() {
        let held = CALL_BYTES * (place as u64 + 1);
        let (_answer, mut body) = begin(&mut client, path).await;
        body.send_data(message.clone().into(), true).unwrap();
        eventually(|| face.store.set(|state| state.waiting) == 1).await;
        assert_eq!(budget.held(), held, "{path}");
        body.send_reset(Reason::CANCEL);
        eventually(|| face.store.set(|state| state.waiting) == 0).await;
        assert_eq!((budget.held(), budget.calls()), (held, place as u64 + 1), "{path}");
    }
    let held = budget.held();
    for (place, page) in ["/health", "/metrics", "/kattu/status"].into_iter().enumerate() {
        let mut socket = face.raw().await;
        socket.write_all(format!("GET {page} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        eventually(|| face.store.set(|state| state.waiting) == 1).await;
        drop(socket);
        eventually(|| face.store.set(|state| state.waiting) == 0).await;
        assert_eq!(budget.held(), held + CALL_BYTES * (place as u64 + 1), "{page}");
    }
    drop(client);
    drop(face.store.set(|state| state.left.take()));
    eventually(|| face.config.counters.connections.get() == 0).await;
    assert_eq!((budget.held(), budget.calls()), (0, 0));
}

#[tokio::test]
async fn calls_beyond_what_there_is_room_for_are_refused_and_their_connection_goes_on() {
    let face = face_with(300 * CALL_BYTES).await;
    face.store.set(|state| state.silent = true);
    let mut client = by_hand(&face).await;
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(ask(&mut client, RANGE, &get("a")).await);
    }
    eventually(|| face.store.set(|state| state.waiting) == 100).await;
    let refused = refusal(ask(&mut client, RANGE, &get("a")).await).await.expect("a hundred are a third");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(face.config.budget.held(), 100 * CALL_BYTES);
    waiting.pop();
    eventually(|| face.store.set(|state| state.waiting) == 99).await;
    face.store.set(|state| state.silent = false);
    let answer = ask(&mut client, RANGE, &get("a")).await.await.unwrap();
    assert!(0 < read_all(answer.into_body()).await, "there is room again");
}

#[tokio::test]
async fn a_client_that_is_refused_without_end_loses_its_connection() {
    let face = face_with(300 * CALL_BYTES).await;
    face.store.set(|state| state.silent = true);
    let mut client = by_hand(&face).await;
    let mut waiting = Vec::new();
    let mut asked = 0;
    let ended = loop {
        if let Err(error) = std::future::poll_fn(|context| client.poll_ready(context)).await {
            break error;
        }
        asked += 1;
        waiting.push(ask(&mut client, RANGE, &get("a")).await);
        if 100 < asked
            && let Err(error) = waiting.pop().expect("just asked").await
        {
            break error;
        }
    };
    assert_eq!(ended.reason(), Some(Reason::ENHANCE_YOUR_CALM), "{ended}");
    assert_eq!(asked, 100 + FIRST + 1, "as many in a row are answered as it may have calls");
    assert_eq!(face.config.counters.connections_too_much.get(), 1);
    eventually(|| face.config.budget.held() == 0).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up_in_time_and_held_no_longer() {
    let config = FaceConfig {
        body_deadline: Duration::from_millis(50),
        body_bytes_per_s: 10 << 20,
        ..Default::default()
    };
    let face = Face::start_with(config).await;
    let mut client = by_hand(&face).await;
    let half = framed(&put("a", &"x".repeat(60_000)));
    for sent in [0, 3, 50_000] {
        let (answer, mut body) = begin(&mut client, PUT).await;
        body.send_data(Bytes::copy_from_slice(&half[..sent]), false).unwrap();
        let refused = refusal(answer).await.expect("no answer to half a request");
        assert_eq!(refused.code(), Code::Cancelled, "{refused}");
        assert!(refused.message().contains("was not complete"), "{refused}");
    }
    eventually(|| face.config.budget.held() == 0).await;
    assert_eq!(face.store.revision().0, 1);
}

#[tokio::test]
async fn an_answer_of_which_nothing_is_taken_is_given_up_and_its_client_is_told() {
    let stall_deadline = Duration::from_millis(300);
    let face = Face::start_with(FaceConfig { stall_deadline, ..Default::default() }).await;
    put_big(&face, 1 << 20).await;
    let mut client = by_hand(&face).await;
    let mut body = ask(&mut client, RANGE, &get("big")).await.await.unwrap().into_body();
    let told = loop {
        match body.data().await.expect("not the end") {
            Ok(_) => {} // what is read is not released: the window stays shut
            Err(error) => break error,
        }
    };
    assert_eq!(told.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(face.config.counters.answers_stalled.get(), 1);
    eventually(|| face.config.budget.held() == 0).await;
}

#[tokio::test]
async fn small_answers_of_which_none_is_taken_cost_the_connection() {
    let stall_deadline = Duration::from_millis(300);
    let face = Face::start_with(FaceConfig { stall_deadline, ..Default::default() }).await;
    put_big(&face, 15 << 10).await;
    let mut client = by_hand(&face).await;
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(ask(&mut client, RANGE, &get("big")).await.await.unwrap());
    }
    let held = face.config.budget.held();
    assert!(held < 7 * (16 << 10), "four fill the window and have left: {held}");
    eventually(|| face.config.counters.connections_stalled.get() == 1).await;
    eventually(|| face.config.budget.held() == 0).await;
}

/// Goal: a slow client does not keep pages either. Method: it requests more of them at once than the sockets take, and
/// its own has hardly any room, so that each little read lets some of them be sent.
#[tokio::test]
async fn pages_that_are_taken_too_slowly_cost_the_connection() {
    let face = Face::start_with(FaceConfig { stall_deadline: DRIP_STALL, ..Default::default() }).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2 << 10).unwrap();
    let mut socket = socket.connect(face.address).await.unwrap();
    let (mut pages, mut asks) = socket.split();
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
    asks.write_all(&request.repeat(2_000)).await.unwrap();
    let counters = &face.config.counters;
    while counters.connections.get() != 0 || counters.connections_accepted.get() == 0 {
        let _ = pages.read(&mut [0; 512]).await; // nothing, once it is closed
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Where the machine pauses, the system may end it first.
    assert_eq!(counters.connections_stalled.get() + counters.connections_broken.get(), 1);
    assert_eq!(face.config.budget.held(), 0);
}

#[tokio::test]
async fn a_client_that_takes_its_answer_slowly_is_waited_for() {
    let stall_deadline = Duration::from_millis(300);
    let face = Face::start_with(FaceConfig { stall_deadline, ..Default::default() }).await;
    put_big(&face, 1 << 20).await;
    let mut client = by_hand(&face).await;
    let mut body = ask(&mut client, RANGE, &get("big")).await.await.unwrap().into_body();
    let begun = std::time::Instant::now();
    let mut len = 0;
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        len += data.len();
        if begun.elapsed() < 3 * stall_deadline {
            tokio::time::sleep(stall_deadline / 10).await; // as slow as that, for longer than the deadline
        }
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    assert!((1 << 20) < len);
    assert_eq!(
        face.config.counters.answers_stalled.get() + face.config.counters.connections_stalled.get(),
        0
    );
}

/// Goal: a client that takes a little of a response now and then does not keep its bytes for as long as it likes.
#[tokio::test]
async fn an_answer_that_is_taken_too_slowly_is_given_up_and_its_client_is_told() {
    let face = Face::start_with(FaceConfig { stall_deadline: DRIP_STALL, ..Default::default() }).await;
    put_big(&face, 1 << 20).await;
    // Each window update of the client makes room for no more than this: 6 KiB a second at the most.
    let mut client = by_hand_with(&face, 128).await;
    let mut body = ask(&mut client, RANGE, &get("big")).await.await.unwrap().into_body();
    let told = loop {
        match body.data().await.expect("not the end: it has not taken all") {
            Ok(data) => drop(take(&mut body, data)),
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(told.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let counters = &face.config.counters;
    assert_eq!(
        counters.answers_slow.get() + counters.answers_stalled.get(),
        1,
        "stalled, where the machine pauses"
    );
    eventually(|| face.config.budget.held() == 0).await;
}

/// The required rate is that of the client's link, and not that of each of its responses, which share it.
#[tokio::test]
async fn answers_that_share_a_slow_link_are_waited_for_together() {
    const ANSWERS: usize = 10;
    let face = Face::start_with(FaceConfig { stall_deadline: DRIP_STALL, ..Default::default() }).await;
    put_big(&face, 1 << 20).await;
    let mut client = by_hand_with(&face, 512).await;
    let mut bodies = Vec::new();
    for _ in 0..ANSWERS {
        bodies.push(ask(&mut client, RANGE, &get("big")).await.await.unwrap().into_body());
    }
    // Some 8 KiB a second of each, 80 of all; alone each of them would have been given up in the midst of it.
    let begun = std::time::Instant::now();
    while begun.elapsed() < 5 * DRIP_STALL {
        for body in &mut bodies {
            let data = body.data().await.expect("there is more").expect("it is waited for");
            take(body, data);
        }
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let counters = &face.config.counters;
    assert_eq!((counters.answers_slow.get(), counters.answers_stalled.get()), (0, 0));
    assert_eq!(counters.connections_stalled.get(), 0);
}

/// As [`an_answer_that_is_taken_too_slowly_is_given_up_and_its_client_is_told`], with responses of one piece each.
#[tokio::test]
async fn small_answers_that_are_taken_one_by_one_now_and_then_cost_the_connection() {
    let face = Face::start_with(FaceConfig { stall_deadline: DRIP_STALL, ..Default::default() }).await;
    put_big(&face, 1 << 10).await;
    let mut socket = face.raw().await;
    let mut bytes = HELLO.to_vec();
    for number in 0..400 {
        bytes.extend(call_frames(2 * number + 1, RANGE, &get("big")));
    }
    socket.write_all(&bytes).await.unwrap();
    let counters = &face.config.counters;
    eventually(|| counters.of(Rpc::Range).started.get() == 400).await;
    // One or two are sent each time, which is 10 KB a second: at every look some have been sent.
    while counters.connections_stalled.get() == 0 {
        let _ = socket.write_all(&window_frame(0, 1_500)).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    eventually(|| face.config.budget.held() == 0).await;
}

/// A health watch lasts for as long as its client likes, at no cost to that client: so their number is limited.
#[tokio::test]
async fn watches_of_the_health_have_a_number_on_a_connection_and_on_a_member() {
    const OF_ONE: usize = 16;
    let config = FaceConfig { health_watches: Arc::new(Semaphore::new(OF_ONE + 4)), ..Default::default() };
    let face = Face::start_with(config).await;
    let (mut one, mut other) = (by_hand(&face).await, by_hand(&face).await);
    let whole = healthpb::HealthCheckRequest { service: String::new() };
    let mut watches = Vec::new();
    for _ in 0..OF_ONE {
        let answer = ask(&mut one, WATCH_HEALTH, &whole).await.await.unwrap();
        assert!(tonic::Status::from_header_map(answer.headers()).is_none());
        watches.push(answer.into_body());
    }
    let reason = |refused: &tonic::Status| {
        assert_eq!(refused.code(), Code::ResourceExhausted);
        refused.metadata().get("kattu-reason").unwrap().to_str().unwrap().to_string()
    };
    let refused = refusal(ask(&mut one, WATCH_HEALTH, &whole).await).await.expect("it has as many as it may");
    assert!(reason(&refused).contains("share one"), "{refused}");
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(ask(&mut other, WATCH_HEALTH, &whole).await.await.unwrap());
    }
    let refused = refusal(ask(&mut other, WATCH_HEALTH, &whole).await).await.expect("so does the member");
    assert!(reason(&refused).contains("use Check"), "{refused}");
    // No other call is refused because of it, and a client that ends one watch can begin another.
    assert_eq!(refusal(ask(&mut one, RANGE, &get("a")).await).await.map(|refused| refused.code()), None);
    watches.pop();
    eventually(|| face.config.health_watches.available_permits() == 1).await;
    let again = ask(&mut one, WATCH_HEALTH, &whole).await.await.unwrap();
    assert!(tonic::Status::from_header_map(again.headers()).is_none());
    drop((one, watches, again));
    eventually(|| face.config.health_watches.available_permits() == OF_ONE).await;
    drop((other, others));
    eventually(|| face.config.budget.held() == 0).await;
}

/// Small writes pass large ones that wait for their turn.
#[tokio::test]
async fn large_writes_take_turns_and_small_ones_do_not_wait_for_them() {
    let face = Face::start().await;
    face.store.set(|state| state.silent = true);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        let mut kv = face.kv().await;
        let request =
            pb::PutRequest { key: vec![b'l', number], value: vec![7; 1 << 20], ..Default::default() };
        tasks.spawn(async move { kv.put(request).await.map(drop) });
    }
    // One write of a mebibyte fits in one and a half.
    eventually(|| face.store.set(|state| state.waiting) == 1).await;
    let mut kv = face.kv().await;
    let small = tokio::spawn(async move { kv.put(put("small", "x")).await.map(drop) });
    eventually(|| face.store.set(|state| state.waiting) == 2).await;
    small.abort();
    face.store.set(|state| state.silent = false);
    tasks.abort_all(); // writes that were never answered release their turn
    eventually(|| face.store.set(|state| state.waiting) == 0).await;
    let request = pb::PutRequest { key: b"l".to_vec(), value: vec![7; 1 << 20], ..Default::default() };
    face.kv().await.put(request).await.expect("all turns are free again");
}

/// As no stream is told of capacity that it has left over, a response of many pieces smaller than the window must not
/// wait.
#[tokio::test]
async fn a_large_answer_of_many_small_pairs_arrives_whole() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    for number in 0..300 {
        kv.put(put(&format!("k{number:03}"), &"v".repeat(3_000))).await.unwrap();
    }
    let answer = tokio::time::timeout(Duration::from_secs(10), kv.range(prefix("k"))).await.expect("no wait");
    assert_eq!(answer.unwrap().into_inner().kvs.len(), 300);
    eventually(|| face.config.budget.held() == 0).await;
}

#[tokio::test]
async fn a_connection_without_a_word_is_closed_and_one_that_pings_is_not() {
    // A pause of the machine must not be taken for silence: the live connection pings forty times as often as it must.
    let idle_deadline = Duration::from_secs(2);
    let ping_interval_min = Duration::from_millis(10);
    let face = Face::start_with(FaceConfig { idle_deadline, ping_interval_min, ..Default::default() }).await;
    let (_client, mut connection) = h2::client::handshake(face.raw().await).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let alive = tokio::spawn(connection);
    let mut silent = face.raw().await;
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut said = Vec::new();
    let ends = async {
        let _ = silent.read_to_end(&mut said).await;
    };
    tokio::select! {
        () = ends => {}
        () = async {
            loop {
                pings.ping(h2::Ping::opaque()).await.unwrap();
                tokio::time::sleep(idle_deadline / 40).await;
            }
        } => {}
    }
    assert!(said.windows(9).any(|head| head[3] == 7 && head[..3] == [0, 0, 8]), "it got GOAWAY");
    assert_eq!(face.config.counters.connections_idle.get(), 1);
    assert!(!alive.is_finished());
    // A ping that was given up when the other connection ended is still answered; there can be one at a time.
    let _ = pings.send_ping(h2::Ping::opaque());
    std::future::poll_fn(|context| pings.poll_pong(context)).await.expect("the other one lives");
}

#[tokio::test]
async fn pings_without_end_cost_the_connection_and_pings_beside_answers_do_not() {
    let face = Face::start().await;
    let (client, mut connection) = h2::client::handshake(face.raw().await).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let served = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    for _ in 0..20 {
        let answer = ask(&mut client, RANGE, &get("none")).await.await.unwrap();
        read_all(answer.into_body()).await;
        pings.ping(h2::Ping::opaque()).await.expect("a ping for an answer");
    }
    for _ in 0..20 {
        refusal(ask(&mut client, PUT, &put("", "x")).await).await.expect("without a key");
        pings.ping(h2::Ping::opaque()).await.expect("a ping for an answer that is a head and nothing else");
    }
    let mut answered = 0;
    while pings.ping(h2::Ping::opaque()).await.is_ok() {
        answered += 1;
    }
    assert_eq!(answered, 2, "two too soon are overlooked");
    let ended = served.await.unwrap().expect_err("closed by the server");
    assert_eq!(ended.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(face.config.counters.connections_too_much.get(), 1);
}

/// Clients measure their connections while a large response comes, with a ping for the bytes received since the last
/// one was acknowledged. [grpc-go bdp_estimator.go]
#[tokio::test]
async fn pings_beside_the_pieces_of_a_large_answer_cost_nothing() {
    let face = Face::start().await;
    put_big(&face, 1 << 20).await;
    let (client, mut connection) = h2::client::handshake(face.raw().await).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut body = ask(&mut client, RANGE, &get("big")).await.await.unwrap().into_body();
    let (mut len, mut pinged) = (0, 0);
    while let Some(data) = body.data().await {
        len += take(&mut body, data.unwrap());
        pings.ping(h2::Ping::opaque()).await.expect("a ping for what has come");
        pinged += 1;
        // Bytes received before the pong do not count for the next ping.
        while let Some(Some(data)) = body.data().now_or_never() {
            len += take(&mut body, data.unwrap());
        }
    }
    assert!((1 << 20) < len && 3 < pinged, "{len} bytes, {pinged} pings");
}

/// A face whose replica answers nothing, and which lowers stream limits when more calls than this are under way.
async fn overloaded(calls_max: u64) -> Face {
    let budget = Arc::new(Budget::of(64 * MIB).with_calls_max(calls_max));
    // Tests ping as often as they like.
    let config = FaceConfig { budget, ping_interval_min: Duration::ZERO, ..Default::default() };
    let face = Face::start_with(config).await;
    face.store.set(|state| state.silent = true);
    face
}

fn waiting(face: &Face) -> u64 {
    face.store.set(|state| state.waiting) as u64
}

/// Sends so many puts at once, as a library does that keeps to its server's stream limit.
fn ask_at_once(client: &SendRequest<Bytes>, puts: usize) -> Vec<tokio::task::JoinHandle<usize>> {
    let ask_one = |_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let answer = ask(&mut client, PUT, &put("a", "x")).await.await.unwrap();
            read_all(answer.into_body()).await
        })
    };
    (0..puts).map(ask_one).collect()
}

/// Calls beyond the limit wait at the client, and are sent when others are answered. [fault-model F50]
#[tokio::test]
async fn a_client_that_requests_more_than_is_answered_keeps_the_rest_on_its_side() {
    const ASKED: usize = 2000;
    let calls_max = 256;
    let face = overloaded(calls_max).await;
    let (client, mut connection) = h2::client::handshake(face.raw().await).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let client = client.ready().await.unwrap();
    let unanswered = ask_at_once(&client, ASKED);
    eventually(|| client.current_max_send_streams() as u64 == calls_max).await;
    // Calls that were under way meanwhile have arrived with the pings, which follow them.
    for _ in 0..3 {
        pings.ping(h2::Ping::opaque()).await.unwrap();
    }
    let before = waiting(&face);
    assert!((calls_max..=FIRST).contains(&before), "{before} calls under way");
    assert_eq!(face.config.budget.calls(), before);
    // Another client is served, and has a share.
    let other = by_hand(&face).await;
    let others = ask_at_once(&other, 1);
    eventually(|| waiting(&face) == before + 1).await;
    eventually(|| other.current_max_send_streams() as u64 == calls_max / 2).await;
    // When the calls are given up there is room again, on the same connection.
    face.store.set(|state| state.silent = false);
    unanswered.iter().chain(&others).for_each(tokio::task::JoinHandle::abort);
    eventually(|| face.config.budget.calls() == 0).await;
    for answer in ask_at_once(&client, 100) {
        assert!(0 < answer.await.unwrap(), "it is served");
    }
    assert_eq!(face.config.budget.calls_refused(), 0);
}

/// Calls that are under way while limits are lowered are accepted up to four times the maximum. Beyond it, a connection
/// that has more than its share is refused, and one that keeps to it is not.
#[tokio::test]
async fn calls_far_beyond_what_can_be_under_way_are_refused_early() {
    let calls_max = 64;
    let face = overloaded(calls_max).await;
    let mut early = by_hand(&face).await;
    let mut socket = face.raw().await;
    let mut bytes = HELLO.to_vec();
    for number in 0..4 * calls_max as u32 {
        bytes.extend(put_frames(2 * number + 1, "a"));
    }
    socket.write_all(&bytes).await.unwrap();
    eventually(|| waiting(&face) == 4 * calls_max).await;
    // A client that comes then gets its share as limit, and has it.
    let mut late = by_hand(&face).await;
    eventually(|| late.current_max_send_streams() as u64 == calls_max / 2).await;
    let mut kept = Vec::new();
    for _ in 0..calls_max / 2 {
        kept.push(ask(&mut late, PUT, &put("a", "x")).await);
    }
    eventually(|| waiting(&face) == 4 * calls_max + calls_max / 2).await;
    // A client that came before has its share, too; calls beyond it, sent before the new limit arrives, are refused.
    let mut answers = Vec::new();
    for _ in 0..calls_max / 3 + 1 {
        answers.push(ask(&mut early, PUT, &put("a", "x")).await);
    }
    let refused = refusal(answers.pop().unwrap()).await.expect("one too many");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "etcdserver: too many requests")
    );
    assert!(refused.metadata().get("kattu-reason").is_some());
    eventually(|| early.current_max_send_streams() as u64 <= calls_max / 3 + 1).await;
    assert_eq!(face.config.budget.calls_refused(), 1);
    assert_eq!(face.store.revision().0, 1, "nothing was carried out");
}

/// The first bytes of a client.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn put_frames(stream: u32, key: &str) -> Vec<u8> {
    call_frames(stream, PUT, &put(key, "v"))
}

/// The frames of a call, by hand: a library would not send them together. [RFC 9113 §4.1; RFC 7541: static names,
/// literals]
fn call_frames(stream: u32, path: &str, message: &impl Message) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let mut bytes = vec![0, 0, payload.len() as u8, kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    let mut head = vec![0x83, 0x86, 0x04, path.len() as u8];
    head.extend(path.bytes());
    head.extend([0x01, 1, b'x', 0x0f, 0x10, 16]);
    head.extend(b"application/grpc");
    [frame(1, 4, &head), frame(0, 1, &framed(message))].concat()
}

/// A window update: so many more bytes may come.
fn window_frame(stream: u32, bytes: u32) -> Vec<u8> {
    let mut frame = vec![0, 0, 4, 8, 0];
    frame.extend(stream.to_be_bytes());
    frame.extend(bytes.to_be_bytes());
    frame
}

fn reset_frame(stream: u32) -> Vec<u8> {
    let mut bytes = vec![0, 0, 4, 3, 0];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(8_u32.to_be_bytes()); // CANCEL
    bytes
}

/// Calls whose clients have given them up before they are begun. [fault-model F50]
#[tokio::test]
async fn a_call_whose_reset_has_been_read_is_never_begun() {
    let face = Face::start().await;
    let mut socket = face.raw().await;
    let mut bytes = HELLO.to_vec();
    for number in 0..30 {
        let stream = 2 * number + 1;
        bytes.extend(put_frames(stream, "given up"));
        bytes.extend(reset_frame(stream));
    }
    bytes.extend(put_frames(61, "wanted"));
    socket.write_all(&bytes).await.unwrap(); // in one piece, smaller than what a turn reads
    eventually(|| !face.store.set(|state| state.seen.is_empty())).await;
    eventually(|| face.config.budget.held() == 0).await;
    assert_eq!(face.store.set(|state| state.seen.len()), 1);
    assert_eq!(face.store.revision().0, 2, "one put");
    let mut kv = face.kv().await;
    assert_eq!(kv.range(get("wanted")).await.unwrap().into_inner().kvs.len(), 1);
}
