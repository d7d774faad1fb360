//! A blocking client of one server, with one line per call for tests.
//!
//! Errors are returned to the test, except by methods named `…_surely`: those retry while the outcome is open.
//! Knows nothing of: leaders, terms.

use crate::programs::until;
use kattu_proto::etcdserverpb::cluster_client::ClusterClient;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use kattu_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest, MoveLeaderRequest, PutRequest, PutResponse, RangeRequest, RangeResponse,
    StatusRequest, StatusResponse,
};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Longer than a server's own limit for a proposal.
const CALL_LIMIT: Duration = Duration::from_secs(12);

/// Errors that prove that a request had no effect: both are returned before anything is proposed.
const NOT_PROPOSED: [&str; 2] = ["etcdserver: no leader", "etcdserver: unhealthy cluster"];

/// No server could take the call, or its outcome is unknown: a retry may succeed.
pub fn is_passing(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}

/// One endpoint.
pub struct Kv {
    runtime: Runtime,
    channel: Channel,
    limit: Duration,
}

/// A channel to `host:port` that connects when first used, and retries a connection not established within the limit.
/// Needs a runtime.
pub fn channel(address: &str, connect_limit: Duration) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect_timeout(connect_limit).connect_lazy()
}

impl Kv {
    /// A client of `host:port`; connects when first used.
    pub fn of(address: &str) -> Kv {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        // A rig may drop packets: retry soon, instead of waiting for the kernel's backoff.
        let channel = runtime.block_on(async { channel(address, Duration::from_secs(1)) });
        Kv { runtime, channel, limit: CALL_LIMIT }
    }

    /// Sets a shorter time limit.
    pub fn within(mut self, limit: Duration) -> Kv {
        self.limit = limit;
        self
    }

    /// The channel, for services that have no method here; use it inside [`Kv::block_on`].
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Runs a call on this client's runtime; after the time limit it fails with `DeadlineExceeded`.
    pub fn block_on<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        self.runtime.block_on(async {
            match tokio::time::timeout(self.limit, call).await {
                Ok(result) => result,
                Err(_) => Err(Status::new(Code::DeadlineExceeded, "the test gave up")),
            }
        })
    }

    /// The KV service.
    pub fn client(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// KV.Range
    pub fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let mut client = self.client();
        self.block_on(async { client.range(request).await }).map(tonic::Response::into_inner)
    }

    /// KV.Put
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<PutResponse, Status> {
        let request = PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() };
        let mut client = self.client();
        self.block_on(async { client.put(request).await }).map(tonic::Response::into_inner)
    }

    /// KV.Put, retried while its outcome is open; only for values that may be put twice.
    #[track_caller]
    pub fn put_surely(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let (key, value): (Vec<u8>, Vec<u8>) = (key.into(), value.into());
        until("a put", || match self.put(key.clone(), value.clone()) {
            Ok(_) => Some(()),
            Err(status) => {
                assert!(is_passing(&status), "{status}");
                None
            }
        });
    }

    /// The value of a key by a linearizable read.
    pub fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>, Status> {
        let response = self.range(RangeRequest { key: key.into(), ..RangeRequest::default() })?;
        Ok(response.kvs.into_iter().next().map(|kv| kv.value))
    }

    /// The number of keys with this prefix; an empty prefix counts all.
    pub fn count(&self, prefix: &str, serializable: bool) -> Result<i64, Status> {
        let (mut key, mut range_end) = (prefix.as_bytes().to_vec(), prefix.as_bytes().to_vec());
        match range_end.last_mut() {
            Some(last) => *last += 1,
            None => (key, range_end) = (vec![0], vec![0]), // from the first key on, without an end
        }
        let request =
            RangeRequest { key, range_end, count_only: true, serializable, ..RangeRequest::default() };
        self.range(request).map(|response| response.count)
    }

    fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// Cluster.MemberList, linearizable.
    pub fn members(&self) -> Result<Vec<Member>, Status> {
        let mut client = self.cluster();
        let list =
            self.block_on(async { client.member_list(MemberListRequest { linearizable: true }).await })?;
        Ok(list.into_inner().members)
    }

    /// Cluster.MemberAdd; the new member's id.
    pub fn member_add(&self, peer_url: &str, is_learner: bool) -> Result<u64, Status> {
        let mut client = self.cluster();
        let request = MemberAddRequest { peer_ur_ls: vec![peer_url.to_string()], is_learner };
        let added = self.block_on(async { client.member_add(request).await })?;
        Ok(added.into_inner().member.map_or(0, |member| member.id))
    }

    /// The id of the member with this peer URL; `None` if it is not listed or the list is not available.
    pub fn id_at(&self, peer_url: &str) -> Option<u64> {
        let members = self.members().ok()?;
        members.iter().find(|member| member.peer_ur_ls.iter().any(|url| url == peer_url)).map(|it| it.id)
    }

    /// Whether this member is listed; `None` if the list is not available.
    pub fn is_listed(&self, id: u64) -> Option<bool> {
        Some(self.members().ok()?.iter().any(|member| member.id == id))
    }

    /// Cluster.MemberAdd, retried while its outcome is open: a member that is then listed has been added.
    #[track_caller]
    pub fn member_add_surely(&self, peer_url: &str, is_learner: bool) -> u64 {
        let mut is_open = false;
        until("the member is added", || {
            let status = match self.member_add(peer_url, is_learner) {
                Ok(id) => return Some(id),
                Err(status) => status,
            };
            let is_done = is_open && status.message() == "etcdserver: Peer URLs already exists";
            assert!(is_done || is_passing(&status), "{status}");
            is_open |= !NOT_PROPOSED.contains(&status.message());
            self.id_at(peer_url).filter(|_| is_open)
        })
    }

    /// Cluster.MemberRemove, retried while its outcome is open, or while too many members are stalled to be counted as
    /// a quorum: a member that is then not listed has been removed.
    #[track_caller]
    pub fn member_remove_surely(&self, id: u64) {
        let mut is_open = false;
        until("the member is removed", || {
            let Err(status) = self.member_remove(id) else { return Some(()) };
            let held_up = status.message().ends_with("not enough started members");
            let is_done = is_open && status.message() == "etcdserver: member not found";
            assert!(held_up || is_done || is_passing(&status), "{status}");
            is_open |= !held_up && !NOT_PROPOSED.contains(&status.message());
            (is_open && self.is_listed(id) == Some(false)).then_some(())
        });
    }

    /// Cluster.MemberRemove; returns the remaining members.
    pub fn member_remove(&self, id: u64) -> Result<Vec<Member>, Status> {
        let mut client = self.cluster();
        let removed = self.block_on(async { client.member_remove(MemberRemoveRequest { id }).await })?;
        Ok(removed.into_inner().members)
    }

    /// Cluster.MemberUpdate: another peer URL.
    pub fn member_update(&self, id: u64, peer_url: &str) -> Result<(), Status> {
        let request = MemberUpdateRequest { id, peer_ur_ls: vec![peer_url.to_string()] };
        let mut client = self.cluster();
        self.block_on(async { client.member_update(request).await }).map(|_| ())
    }

    /// Cluster.MemberPromote; returns all members.
    pub fn member_promote(&self, id: u64) -> Result<Vec<Member>, Status> {
        let mut client = self.cluster();
        let promoted = self.block_on(async { client.member_promote(MemberPromoteRequest { id }).await })?;
        Ok(promoted.into_inner().members)
    }

    /// Maintenance.MoveLeader
    pub fn move_leader(&self, target_id: u64) -> Result<(), Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        self.block_on(async { client.move_leader(MoveLeaderRequest { target_id }).await }).map(|_| ())
    }

    /// Maintenance.Status
    pub fn status(&self) -> Result<StatusResponse, Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        self.block_on(async { client.status(StatusRequest::default()).await })
            .map(tonic::Response::into_inner)
    }
}
