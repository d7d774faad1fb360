//! Goal: clients that read nothing hold a bounded number of bytes, whatever they request. Method: an allocator that
//! counts; so a process of its own, with one test.

#[path = "held/counting.rs"]
mod counting;
#[allow(dead_code)] // other tests use it, too
#[path = "face/fixture.rs"]
mod fixture;

use bytes::Bytes;
use counting::{HELD, PEAK};
use fixture::{Face, prefix};
use h2::client::SendRequest;
use kattu_kv::api::{Command, Put};
use kattu_server::FaceConfig;
use kattu_server::budget::{Budget, CONNECTION_BYTES, SMALL_BYTES};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const MIB: usize = 1 << 20;
/// Values of a mebibyte that a client requests.
const ASKED: usize = 60;
const CLIENTS: usize = 16;
/// Each may have half of what is free: room for four such responses.
const BUDGET: usize = 400 * MIB;
/// Bytes that the test itself allocates meanwhile: a value on its way into the store, its clients.
const TEST: usize = 4 * MIB;

/// A new version of every value, and no older one: the values of an earlier response are in no store any more.
fn overwrite_all(face: &Face, with: u8) {
    face.store.set(|state| {
        for number in 0..ASKED {
            let put =
                Put { key: format!("big/{number:02}").into(), value: vec![with; MIB], ..Put::default() };
            state.store.apply(&Command::Put(put)).expect("a put");
        }
        let revision = state.store.revision();
        state.store.apply(&Command::Compact(revision)).expect("a compaction");
    });
}

/// Requests everything, and reads no more than the head of the response.
async fn ask(face: &Face, window: u32) -> (SendRequest<Bytes>, Result<h2::RecvStream, tonic::Status>) {
    let (client, connection) =
        h2::client::Builder::new().initial_window_size(window).handshake(face.raw().await).await.unwrap();
    tokio::spawn(connection);
    let mut client: SendRequest<Bytes> = client.ready().await.unwrap();
    let request = http::Request::post("http://x/etcdserverpb.KV/Range")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    let message = prefix("big/").encode_to_vec();
    let framed = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat();
    body.send_data(framed.into(), true).unwrap();
    let response = answer.await.unwrap();
    let said = match tonic::Status::from_header_map(response.headers()) {
        Some(status) => Err(status),
        None => Ok(response.into_body()),
    };
    (client, said)
}

#[tokio::test]
async fn clients_that_ask_for_much_and_read_nothing_hold_no_more_than_the_budget() {
    let budget = Arc::new(Budget::of(BUDGET as u64));
    let face = Face::start_with(FaceConfig { budget: Arc::clone(&budget), ..Default::default() }).await;
    overwrite_all(&face, 0);
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut unread = Vec::new();
    let mut refused = 0;
    for number in 0..CLIENTS {
        let window = if number % 2 == 0 { 65_535 } else { 1 << 20 };
        let (client, said) = ask(&face, window).await;
        match said {
            Ok(body) => unread.push((client, body)),
            Err(status) => {
                assert_eq!(status.message(), "etcdserver: too many requests", "{status}");
                refused += 1;
            }
        }
        overwrite_all(&face, number as u8 + 1);
    }
    let (held, peak) = (HELD.load(Relaxed) - before, PEAK.load(Relaxed) - before);
    // Without responses the store has one version and, while it is overwritten, another; the response under judgement
    // has a third.
    let beside = 2 * ASKED * MIB + CLIENTS * (CONNECTION_BYTES + SMALL_BYTES) as usize + TEST;
    println!(
        "{CLIENTS} clients asked for {ASKED} MiB each, {refused} were refused; held {} MiB, at most {} MiB, counted as {} MiB",
        held >> 20,
        peak >> 20,
        budget.held() >> 20
    );
    assert_eq!((unread.len(), refused), (4, CLIENTS - 4), "the budget has room for some and not for all");
    let least = unread.len() * (ASKED - 2) * MIB;
    assert!(least <= held, "{held} bytes: the versions that were requested are only in the responses");
    assert!(peak <= BUDGET + beside, "at most {peak} bytes beside the store");
    assert!(held <= budget.held() as usize + beside, "{held} bytes are held, {} are counted", budget.held());

    drop(unread);
    fixture::eventually(|| budget.held() == 0 && HELD.load(Relaxed) < before + TEST).await;
}
