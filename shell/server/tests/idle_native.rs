//! Goal: a native connection that had much under way holds no more afterwards than is counted for an open connection. Method:
//! an allocator that counts; so a process of its own, with one test.

#[path = "held/counting.rs"]
mod counting;
#[allow(dead_code)] // other tests use it, too
#[path = "face/fixture.rs"]
mod fixture;

use counting::HELD;
use fixture::{Face, eventually};
use kattu_kv::api::{Command, Put};
use kattu_native::PREFACE;
use kattu_native::frame::{FrameReader, FrameWriter};
use kattu_native::handshake::Hello;
use kattu_native::message::Request;
use kattu_node::command::encode_kv;
use kattu_server::FaceConfig;
use kattu_server::budget::CONNECTION_BYTES;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CLIENTS: usize = 32;
const PUTS: u64 = 20_000;
/// Puts whose answers are awaited together: more than a member takes in at once.
const AT_ONCE: u64 = 5_000;
/// A connection rests as soon as its answers are sent.
const PATIENCE: Duration = Duration::from_secs(20);

fn writer() -> FrameWriter {
    FrameWriter::new(crc32c::crc32c_append)
}

/// Puts one key again and again, many at once, and waits for all answers.
async fn burst(face: &Face, client: usize) -> TcpStream {
    let mut stream = face.raw().await;
    let mut writer = writer();
    Hello { version_min: 1, version_max: 1, cluster: 0, principal: 0 }.write(&mut writer);
    stream.write_all(&[&PREFACE[..], &writer.take()].concat()).await.unwrap();
    let put = Put { key: format!("k{client}").into(), value: vec![b'x'; 100], ..Put::default() };
    let command = encode_kv(&Command::Put(put));
    let reader = FrameReader::new(crc32c::crc32c_append, u32::MAX);
    let (mut bytes, mut piece, mut answers) = (Vec::new(), vec![0; 64 << 10], 0);
    for sent in (AT_ONCE..=PUTS).step_by(AT_ONCE as usize) {
        for name in sent - AT_ONCE..sent {
            Request::Write { commit_only: false, command: &command }.write(name, &mut writer);
        }
        stream.write_all(&writer.take()).await.unwrap();
        // The welcome is a message, too.
        while answers < sent + 1 {
            let read = stream.read(&mut piece).await.unwrap();
            assert!(0 < read, "the connection is closed");
            bytes.extend_from_slice(&piece[..read]);
            while let Some((messages, length)) = reader.next(&bytes).unwrap() {
                answers += messages.count() as u64;
                bytes.drain(..length);
            }
        }
    }
    stream
}

#[tokio::test]
async fn a_connection_that_had_thousands_of_requests_under_way_rests_small() {
    let face = Face::start_with(FaceConfig::default()).await;
    drop(burst(&face, 0).await); // what a first connection makes for all
    eventually(|| face.config.counters.connections.get() == 0).await;
    let tidy = |face: &Face| {
        face.store.set(|state| {
            state.seen = Vec::new();
            let revision = state.store.revision();
            let _ = state.store.apply(&Command::Compact(revision));
            while state.store.tidy(1 << 16) {}
        });
    };
    tidy(&face);
    let before = HELD.load(Relaxed);
    let mut open = Vec::new();
    for client in 0..CLIENTS {
        open.push(burst(&face, client).await);
    }
    tidy(&face);
    let most = before + CLIENTS * CONNECTION_BYTES as usize;
    let rests = tokio::time::timeout(PATIENCE, eventually(|| HELD.load(Relaxed) <= most)).await;
    assert!(rests.is_ok(), "{} bytes a connection", (HELD.load(Relaxed) - before) / CLIENTS);
    assert_eq!(face.config.counters.connections.get(), CLIENTS as u64);
    drop(open);
}
