//! How long a cluster is away after its leader has died: until a put is acknowledged, and until a survivor knows another leader.
//!
//! Method: a put goes to every survivor at fixed intervals, whether earlier ones were answered or not; the first acknowledgement ends
//! the outage. Beside it one survivor after the other is asked for its leader. Both times are exact to one interval.
//! Knows nothing of: elections, how the leader died.

use crate::grpc;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use kattu_proto::etcdserverpb::{PutRequest, StatusRequest};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tonic::transport::Channel;

/// A connection that is not established within this is retried.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// Connections to the members that stay.
pub struct Survivors {
    runtime: Runtime,
    channels: Vec<Channel>,
}

/// An outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Until a put was acknowledged.
    pub service: Duration,
    /// Until a survivor named another leader, or that put was acknowledged.
    pub leader: Duration,
}

impl Survivors {
    /// Connects to these members. One that does not answer now is connected to later.
    pub fn of(addresses: &[String]) -> Survivors {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let channels: Vec<Channel> = runtime.block_on(async {
            let channels: Vec<Channel> =
                addresses.iter().map(|address| grpc::channel(address, CONNECT_LIMIT)).collect();
            for channel in &channels {
                let _ = tokio::time::timeout(CONNECT_LIMIT, leader_of(channel.clone())).await;
            }
            channels
        });
        Survivors { runtime, channels }
    }

    /// The leader that most recently answered members name, by its id.
    pub fn leader(&self) -> Option<u64> {
        self.runtime.block_on(async {
            for channel in &self.channels {
                if let Ok(Some(leader)) =
                    tokio::time::timeout(CONNECT_LIMIT, leader_of(channel.clone())).await
                {
                    return Some(leader);
                }
            }
            None
        })
    }

    /// Measures from `begun`, the moment at which the leader with this id was struck, with one try in each interval.
    ///
    /// # Errors
    /// No put is acknowledged within the limit.
    pub fn outage(
        &self,
        begun: Instant,
        dead: u64,
        every: Duration,
        limit: Duration,
    ) -> Result<Outage, String> {
        let (service, leader) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
        let tasks = LocalSet::new();
        tasks.block_on(&self.runtime, async {
            for turn in 0.. {
                for channel in &self.channels {
                    let (channel, service) = (channel.clone(), service.clone());
                    tokio::task::spawn_local(async move {
                        let put = PutRequest { key: b"outage".to_vec(), ..PutRequest::default() };
                        let answer = tokio::time::timeout(limit, KvClient::new(channel).put(put)).await;
                        if matches!(answer, Ok(Ok(_))) && service.get().is_none() {
                            service.set(Some(begun.elapsed()));
                        }
                    });
                }
                let asked = self.channels[turn % self.channels.len()].clone();
                if leader.get().is_none() {
                    let leader = leader.clone();
                    tokio::task::spawn_local(async move {
                        let other = leader_of(asked).await.filter(|id| *id != dead);
                        if other.is_some() && leader.get().is_none() {
                            leader.set(Some(begun.elapsed()));
                        }
                    });
                }
                tokio::time::sleep(every).await;
                if let Some(service) = service.get() {
                    let leader = leader.get().map_or(service, |leader: Duration| leader.min(service));
                    return Ok(Outage { service, leader });
                }
                if limit < begun.elapsed() {
                    break;
                }
            }
            Err(format!("no put was acknowledged within {limit:?} after the leader was killed"))
        })
    }
}

/// The leader that a member names.
async fn leader_of(channel: Channel) -> Option<u64> {
    let status = MaintenanceClient::new(channel).status(StatusRequest {}).await.ok()?;
    Some(status.into_inner().leader).filter(|id| *id != 0)
}
