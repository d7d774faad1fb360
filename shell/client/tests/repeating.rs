//! Which calls the client repeats, and which it leaves to its caller, judged against members with scripted answers.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use kattu_client::proto::etcdserverpb as pb;
use kattu_client::{Client, Kind, Options};
use pb::kv_server::{Kv, KvServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::{Code, Request, Response, Status};

/// Answers every call with the same status, or with success, and counts.
struct Scripted {
    says: Result<(), Status>,
    asked: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Kv for Scripted {
    async fn range(&self, _: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.says.clone().map(|()| Response::new(pb::RangeResponse { count: 7, ..Default::default() }))
    }

    async fn put(&self, _: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.says.clone().map(|()| Response::new(pb::PutResponse::default()))
    }
}

/// A member on a port of its own: its address, and the number of its calls.
async fn member(says: Result<(), Status>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let service = KvServer::new(Scripted { says, asked: asked.clone() });
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let http = auto::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), service).await });
        }
    });
    (address, asked)
}

/// An address without a listener.
async fn nobody() -> String {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::mem::forget(socket); // so that no other process gets it while the test runs
    address
}

/// A member that accepts, and drops the connection as soon as something arrives.
async fn breaks_off() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                // The preface and SETTINGS come first; the request may ride along or follow.
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut stream = stream;
                let mut bytes = vec![0; 65536];
                let mut seen = Vec::new();
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
                while !has_headers(&seen) {
                    match stream.read(&mut bytes).await {
                        Ok(0) | Err(_) => return,
                        Ok(len) => seen.extend_from_slice(&bytes[..len]),
                    }
                }
            });
        }
    });
    address
}

/// Whether a HEADERS frame is among the bytes after the preface.
fn has_headers(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(24..).unwrap_or_default();
    while rest.len() >= 9 {
        let len = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        if rest[3] == 1 {
            return true;
        }
        rest = rest.get(9 + len..).unwrap_or_default();
    }
    false
}

fn client(endpoints: &[&str]) -> Client {
    Client::connect(endpoints, Options { timeout: Duration::from_secs(20) }).unwrap()
}

fn put() -> pb::PutRequest {
    pb::PutRequest { key: b"k".to_vec(), ..Default::default() }
}

fn range() -> pb::RangeRequest {
    pb::RangeRequest { key: b"k".to_vec(), ..Default::default() }
}

#[tokio::test]
async fn a_read_goes_on_to_the_next_member_when_one_is_unavailable() {
    let (sick, asked_sick) = member(Err(Status::unavailable("etcdserver: leader changed"))).await;
    let (well, asked_well) = member(Ok(())).await;
    let client = client(&[&sick, &well]);
    assert_eq!(client.range(range()).await.unwrap().count, 7);
    assert_eq!(client.range(range()).await.unwrap().count, 7);
    assert_eq!(asked_sick.load(Ordering::SeqCst), 1, "after the first failure all callers move on");
    assert_eq!(asked_well.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_write_that_was_received_is_never_repeated() {
    let (sick, _) = member(Err(Status::unavailable("etcdserver: leader changed"))).await;
    let (well, asked) = member(Ok(())).await;
    let failure = client(&[&sick, &well]).put(put()).await.unwrap_err();
    assert_eq!((failure.kind, failure.code), (Kind::Unknown, Code::Unavailable));
    assert_eq!(failure.endpoint, sick);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_write_that_no_member_received_goes_to_the_next_one() {
    let (well, asked) = member(Ok(())).await;
    let client = client(&[&nobody().await, &well]);
    client.put(put()).await.unwrap();
    client.put(put()).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_write_on_a_connection_that_breaks_is_unknown() {
    let (well, asked) = member(Ok(())).await;
    let failure = client(&[&breaks_off().await, &well]).put(put()).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Unknown, "{failure}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_read_on_a_connection_that_breaks_goes_on() {
    let (well, _) = member(Ok(())).await;
    assert_eq!(client(&[&breaks_off().await, &well]).range(range()).await.unwrap().count, 7);
}

#[tokio::test]
async fn when_no_member_listens_the_answer_comes_at_once() {
    let (one, two) = (nobody().await, nobody().await);
    let client = client(&[&one, &two]);
    assert_eq!(client.put(put()).await.unwrap_err().kind, Kind::Unreachable);
    assert_eq!(client.range(range()).await.unwrap_err().kind, Kind::Unreachable);
    let status = client.kattu_status(&client.endpoints()[0]).await.unwrap_err();
    assert_eq!(status.kind, Kind::Unreachable);
}

#[tokio::test]
async fn a_verdict_is_final_for_reads_and_writes() {
    let says = Status::invalid_argument("etcdserver: key is not provided");
    let (sick, _) = member(Err(says)).await;
    let (well, asked) = member(Ok(())).await;
    let client = client(&[&sick, &well]);
    let failure = client.put(put()).await.unwrap_err();
    assert_eq!((failure.kind, failure.code), (Kind::Refused, Code::InvalidArgument));
    assert_eq!(client.range(range()).await.unwrap_err().kind, Kind::Refused);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_needs_endpoints() {
    assert!(Client::connect(Vec::<String>::new(), Options::default()).is_err());
    assert!(Client::connect(["nonsense"], Options::default()).is_err());
}
