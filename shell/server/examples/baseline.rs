//! Baseline: what the etcd face costs by itself, over a store that answers at once, without consensus or disk.
//!
//! ```text
//! cargo run --release -p kattu-server --example baseline -- 127.0.0.1:12379
//! benchmark --endpoints 127.0.0.1:12379 --conns 100 --clients 256 put --total 500000
//! ```
//! On SIGINT it prints the puts and ranges served, and the CPU time that each took.

use kattu_kv::store::Store;
use kattu_node::command::Command;
use kattu_node::contract::{MemberInfo, Members, Outcome, Refusal, Reply, ReplyBody, Request, Status};
use kattu_raft::{LogIndex, NodeId, Term};
use kattu_server::rpc::Rpc;
use kattu_server::{Asked, FaceConfig, Replica};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::LocalSet;

const SELF: NodeId = NodeId(1);
const TERM: Term = Term(1);

/// A store behind a lock that acts as a whole cluster.
#[derive(Clone, Default)]
struct Lone(Arc<Mutex<Store>>);

impl Lone {
    fn answer(&self, request: Request) -> Outcome {
        let mut store = self.0.lock().expect("no holder panics");
        let judged = |result| match result {
            Ok(response) => ReplyBody::Kv(response),
            Err(error) => ReplyBody::KvError(error),
        };
        let body = match request {
            Request::Write(bytes) | Request::CommitOnly(bytes) | Request::Weak(bytes) => {
                match Command::decode(&bytes) {
                    Ok(Command::Kv(command)) => judged(store.apply(&command)),
                    _ => return Outcome::Refused(Refusal::Stopping),
                }
            }
            Request::Weigh(command, _) => judged(store.apply(&command)),
            Request::Read(query, _) => judged(store.query(&query)),
            Request::LookUp(keys, _) => ReplyBody::Found(store.look_up(keys)),
            Request::Members(_) => ReplyBody::Members(Members {
                list: vec![MemberInfo { id: SELF, name: "floor".to_string(), ..MemberInfo::default() }],
                ..Members::default()
            }),
            Request::Change(_) | Request::MoveLeader(_) | Request::Pin(_) => {
                return Outcome::Refused(Refusal::Stopping);
            }
            Request::Status => ReplyBody::Status(Box::new(Status {
                id: SELF,
                term: TERM,
                leader: Some(SELF),
                role: "leader",
                applied: LogIndex(store.revision().0.unsigned_abs()),
                revision: store.revision(),
                compact_revision: store.compact_revision(),
                keys: store.stats().keys,
                store_bytes: store.stats().bytes,
                store_bytes_in_use: store.stats().bytes_in_use,
                ..Status::default()
            })),
        };
        Outcome::Done(Reply { term: TERM, strong: 0, body })
    }
}

impl Replica for Lone {
    fn ask(&self, request: Request) -> impl Asked {
        std::future::ready(self.answer(request))
    }

    fn cluster_id(&self) -> u64 {
        1
    }

    fn member_id(&self) -> NodeId {
        SELF
    }

    fn leader(&self) -> Option<NodeId> {
        Some(SELF)
    }

    fn committed(&self) -> LogIndex {
        LogIndex(self.0.lock().expect("no holder panics").revision().0.unsigned_abs())
    }

    fn term(&self) -> Term {
        TERM
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve_and_count())
}

async fn serve_and_count() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:12379".to_string());
    let listener = TcpListener::bind(&address).await?;
    let (stop, stopped) = watch::channel(false);
    let config = Arc::new(FaceConfig::default());
    let face = kattu_server::serve_clients(listener, Lone::default(), Arc::clone(&config), stopped);
    let serving = tokio::task::spawn_local(face);
    println!("serving on {address}");
    tokio::signal::ctrl_c().await?;
    stop.send(true)?;
    serving.await?;
    let done = |rpc: Rpc| config.counters.of(rpc).handled[tonic::Code::Ok as usize].get();
    let (puts, ranges) = (done(Rpc::Put), done(Rpc::Range));
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").ok_or("no stat")?.1.split(' ').collect();
    let cpu_us = (fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 10_000.0;
    println!("{puts} puts, {ranges} ranges, {:.1} us of CPU each", cpu_us / (puts + ranges).max(1) as f64);
    Ok(())
}
