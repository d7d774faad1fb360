//! Goal: a request that is refused for its number of parts takes no more memory than its bytes. Method: an allocator
//! that counts; so a process of its own, with one test.

#[path = "held/counting.rs"]
mod counting;
#[allow(dead_code)] // other tests use it, too
#[path = "face/fixture.rs"]
mod fixture;

use bytes::Bytes;
use counting::{HELD, PEAK};
use fixture::Face;
use std::sync::atomic::Ordering::Relaxed;

const MIB: usize = 1 << 20;
/// The largest message that is read.
const MESSAGE_BYTES: usize = 2 * MIB;
/// The message in the blocks in which it arrives, and whole; and as much for the client that sends it.
const PEAK_MAX: usize = 8 * MIB;

/// A field of that tag with these bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend(bytes);
    out
}

/// As many empty fields of that tag as fill a message, with room for a few bytes more.
fn empty_fields(tag: u8) -> Vec<u8> {
    [tag << 3 | 2, 0].repeat((MESSAGE_BYTES - 1024) / 2)
}

/// Sends one call, which is refused; returns the error, and the most bytes allocated meanwhile.
async fn refusal(face: &Face, path: &str, message: Vec<u8>) -> (tonic::Status, usize) {
    let (client, connection) = h2::client::handshake(face.raw().await).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let len = u32::try_from(message.len()).unwrap();
    let framed = Bytes::from([&[0][..], &len.to_be_bytes(), &message].concat());
    drop(message);
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(framed, true).unwrap();
    let answer = answer.await.unwrap();
    let peak = PEAK.load(Relaxed) - before;
    (tonic::Status::from_header_map(answer.headers()).expect("a refusal"), peak)
}

#[tokio::test]
async fn what_is_refused_for_its_number_is_not_unpacked_first() {
    let face = Face::start().await;
    let txn = "/etcdserverpb.KV/Txn";
    let too_many = "etcdserver: too many operations in txn request";
    let nested = |levels: usize| (0..levels).fold(empty_fields(2), |inner, _| field(2, &field(4, &inner)));
    let table = [
        ("compares", txn, empty_fields(1), too_many),
        ("operations", txn, empty_fields(2), too_many),
        ("operations of the other branch", txn, empty_fields(3), too_many),
        ("nested operations", txn, nested(1), too_many),
        ("operations nested deeper than any may be", txn, nested(40), too_many),
        ("operations, and no protobuf", txn, [empty_fields(2), vec![0xff]].concat(), too_many),
        (
            "addresses",
            "/etcdserverpb.Cluster/MemberAdd",
            empty_fields(1),
            "etcdserver: given member URLs are invalid",
        ),
        (
            "other addresses",
            "/etcdserverpb.Cluster/MemberUpdate",
            empty_fields(2),
            "etcdserver: given member URLs are invalid",
        ),
    ];
    for (what, path, message, text) in table {
        let (refused, peak) = refusal(&face, path, message).await;
        println!("{what}: {} KiB", peak >> 10);
        assert_eq!((refused.code(), refused.message()), (tonic::Code::InvalidArgument, text), "{what}");
        assert!(peak <= PEAK_MAX, "{what}: {peak} bytes");
    }
}
