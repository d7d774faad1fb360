//! The RPCs, one function each.
//!
//! Knows nothing of: which endpoint is asked.

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
    // How large an answer may be is the member's to decide.
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
            async move { kv(at).put(request).await }
        })
        .await
    }

    /// Reads keys.
    ///
    /// # Errors
    /// See [`Failure`]; a read has no effect in any case.
    pub async fn range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, Failure> {
        self.ask(Effect::Reads, |at| {
            let request = request.clone();
            async move { kv(at).range(request).await }
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
            async move { kv(at).delete_range(request).await }
        })
        .await
    }

    /// A transaction.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Failure> {
        let effect = if only_reads(&request) { Effect::Reads } else { Effect::Writes };
        self.ask(effect, |at| {
            let request = request.clone();
            async move { kv(at).txn(request).await }
        })
        .await
    }

    /// Forgets history before a revision.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn compact(&self, request: pb::CompactionRequest) -> Result<pb::CompactionResponse, Failure> {
        self.ask(Effect::Writes, |at| async move { kv(at).compact(request).await }).await
    }

    /// The members of the cluster, after all that was answered before.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_list(&self) -> Result<pb::MemberListResponse, Failure> {
        let request = pb::MemberListRequest { linearizable: true };
        self.ask(Effect::Reads, |at| async move { cluster(at).member_list(request).await }).await
    }

    /// How the member at one endpoint is doing.
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
