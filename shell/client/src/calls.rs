//! The RPCs, one function each.
//!
//! Knows nothing of: which endpoint is used.

use crate::client::{Client, Effect};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use kattu_proto::etcdserverpb as pb;
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::maintenance_client::MaintenanceClient;
use pb::request_op::Request;
use tonic::transport::Channel;

fn kv(endpoint: Endpoint) -> KvClient<Channel> {
    // The member limits how large an answer may be.
    KvClient::new(endpoint.channel).max_decoding_message_size(usize::MAX)
}

fn maintenance(endpoint: Endpoint) -> MaintenanceClient<Channel> {
    MaintenanceClient::new(endpoint.channel)
}

fn cluster(endpoint: Endpoint) -> ClusterClient<Channel> {
    ClusterClient::new(endpoint.channel)
}

impl Client {
    /// Writes one key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn put(&self, request: pb::PutRequest) -> Result<pb::PutResponse, Failure> {
        self.ask(Effect::Writes, |at| {
            let request = request.clone();
            async move { kv(at).put(self.level().request(request)).await }
        })
        .await
    }

    /// Reads keys.
    ///
    /// # Errors
    /// See [`Failure`]; a read has no effect in any case.
    pub async fn range(&self, mut request: pb::RangeRequest) -> Result<pb::RangeResponse, Failure> {
        self.level().mark_range(&mut request);
        self.ask(Effect::Reads, |at| {
            let request = request.clone();
            async move { kv(at).range(self.level().request(request)).await }
        })
        .await
    }

    /// Deletes keys.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn delete_range(
        &self,
        request: pb::DeleteRangeRequest,
    ) -> Result<pb::DeleteRangeResponse, Failure> {
        self.ask(Effect::Writes, |at| {
            let request = request.clone();
            async move { kv(at).delete_range(self.level().request(request)).await }
        })
        .await
    }

    /// A transaction.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn txn(&self, mut request: pb::TxnRequest) -> Result<pb::TxnResponse, Failure> {
        self.level().mark_txn(&mut request);
        let effect = if only_reads(&request) { Effect::Reads } else { Effect::Writes };
        self.ask(effect, |at| {
            let request = request.clone();
            async move { kv(at).txn(self.level().request(request)).await }
        })
        .await
    }

    /// Removes the history before a revision.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn compact(&self, request: pb::CompactionRequest) -> Result<pb::CompactionResponse, Failure> {
        self.ask(Effect::Writes, |at| async move { kv(at).compact(self.level().request(request)).await })
            .await
    }

    /// The members of the cluster, as of a linearizable read.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_list(&self) -> Result<pb::MemberListResponse, Failure> {
        let request = pb::MemberListRequest { linearizable: true };
        self.ask(Effect::Reads, |at| async move { cluster(at).member_list(request).await }).await
    }

    /// Adds a member with these peer URLs: a learner, or one that gets a vote by itself as soon as it has caught up.
    /// Returns the member and the whole list.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_add(
        &self,
        peer_urls: Vec<String>,
        is_learner: bool,
    ) -> Result<pb::MemberAddResponse, Failure> {
        let request = pb::MemberAddRequest { peer_ur_ls: peer_urls, is_learner };
        self.ask(Effect::Writes, |at| {
            let request = request.clone();
            async move { cluster(at).member_add(request).await }
        })
        .await
    }

    /// Removes a member for good.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_remove(&self, id: u64) -> Result<pb::MemberRemoveResponse, Failure> {
        let request = pb::MemberRemoveRequest { id };
        self.ask(Effect::Writes, |at| async move { cluster(at).member_remove(request).await }).await
    }

    /// Changes the peer URLs of a member.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_update(
        &self,
        id: u64,
        peer_urls: Vec<String>,
    ) -> Result<pb::MemberUpdateResponse, Failure> {
        let request = pb::MemberUpdateRequest { id, peer_ur_ls: peer_urls };
        self.ask(Effect::Writes, |at| {
            let request = request.clone();
            async move { cluster(at).member_update(request).await }
        })
        .await
    }

    /// Gives a vote to a learner that has caught up.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_promote(&self, id: u64) -> Result<pb::MemberPromoteResponse, Failure> {
        let request = pb::MemberPromoteRequest { id };
        self.ask(Effect::Writes, |at| async move { cluster(at).member_promote(request).await }).await
    }

    /// Transfers leadership to a voter; the endpoint must be the leader's.
    ///
    /// # Errors
    /// See [`Failure`]; "not leader" elsewhere.
    pub async fn move_leader(&self, leader: &Endpoint, target: u64) -> Result<(), Failure> {
        let request = pb::MoveLeaderRequest { target_id: target };
        self.ask_at(leader, |at| async move { maintenance(at).move_leader(request).await }).await.map(|_| ())
    }

    /// The status of the member at one endpoint.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn status(&self, endpoint: &Endpoint) -> Result<pb::StatusResponse, Failure> {
        self.ask_at(endpoint, |at| async move { maintenance(at).status(pb::StatusRequest {}).await }).await
    }
}

fn only_reads(txn: &pb::TxnRequest) -> bool {
    txn.success.iter().chain(&txn.failure).all(|op| match &op.request {
        Some(Request::RequestRange(_)) | None => true,
        Some(Request::RequestTxn(txn)) => only_reads(txn),
        Some(Request::RequestPut(_) | Request::RequestDeleteRange(_)) => false,
    })
}
