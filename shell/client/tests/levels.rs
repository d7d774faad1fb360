//! The level that a client sends with its reads, judged by a member that records it.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use kattu_client::proto::etcdserverpb as pb;
use kattu_client::{Client, Level, Options, Seen};
use pb::kv_server::{Kv, KvServer};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// The level of a call, and etcd's own flag for it.
type Said = (Option<String>, bool);

/// Records the level of each call, and returns its number as its position.
#[derive(Clone, Default)]
struct Clerk(Arc<Mutex<Vec<Said>>>);

impl Clerk {
    fn note<T>(&self, metadata: &MetadataMap, serializable: bool, answer: T) -> Response<T> {
        let level = metadata.get("kattu-consistency").map(|level| level.to_str().unwrap().to_string());
        let mut calls = self.0.lock().unwrap();
        calls.push((level, serializable));
        let mut response = Response::new(answer);
        response.metadata_mut().insert("kattu-index", calls.len().into());
        response
    }

    fn calls(&self) -> Vec<Said> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tonic::async_trait]
impl Kv for Clerk {
    async fn range(&self, asked: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let serializable = asked.get_ref().serializable;
        Ok(self.note(asked.metadata(), serializable, pb::RangeResponse::default()))
    }

    async fn put(&self, asked: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        Ok(self.note(asked.metadata(), false, pb::PutResponse::default()))
    }
}

async fn member() -> (Client, Clerk) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let clerk = Clerk::default();
    let service = KvServer::new(clerk.clone());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let http = auto::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), service).await });
        }
    });
    (Client::connect([address], Options::default()).unwrap(), clerk)
}

fn said(level: &str) -> Said {
    (Some(level.to_string()), false)
}

#[tokio::test]
async fn a_client_at_a_level_says_it_and_the_plain_one_beside_it_does_not() {
    let (client, clerk) = member().await;
    let recent = client.at_level(Level::Bounded(std::time::Duration::from_millis(100)));
    let stale = client.at_level(Level::Serializable);
    for client in [&client, &recent, &stale] {
        client.range(pb::RangeRequest::default()).await.unwrap();
    }
    let serializable = (Some("serializable".to_string()), true);
    assert_eq!(clerk.calls(), [(None, false), said("bounded=100000000ns"), serializable]);
}

#[tokio::test]
async fn clients_that_share_what_they_have_seen_ask_for_the_highest_position_that_either_was_told() {
    let (client, clerk) = member().await;
    let (other_client, other_clerk) = member().await;
    let seen = Seen::new();
    let here = client.at_level(Level::AtLeast(seen.clone()));
    let there = other_client.at_level(Level::AtLeast(seen.clone()));
    here.put(pb::PutRequest::default()).await.unwrap();
    here.put(pb::PutRequest::default()).await.unwrap();
    there.range(pb::RangeRequest::default()).await.unwrap();
    here.range(pb::RangeRequest::default()).await.unwrap();
    assert_eq!(clerk.calls(), [said("at-least=0"), said("at-least=1"), said("at-least=2")]);
    assert_eq!(other_clerk.calls(), [said("at-least=2")]);
    assert_eq!(seen.position(), 3);
}
