//! The RPCs, one function each.
//!
//! Knows nothing of: which endpoint is used.

use crate::client::{Client, Effect};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::rpc::Rpc;
use kattu_proto::etcdserverpb as pb;
use pb::request_op::Request;

const PUT: Rpc = Rpc::of_store("/etcdserverpb.KV/Put");
const RANGE: Rpc = Rpc::of_store("/etcdserverpb.KV/Range");
const DELETE_RANGE: Rpc = Rpc::of_store("/etcdserverpb.KV/DeleteRange");
const TXN: Rpc = Rpc::of_store("/etcdserverpb.KV/Txn");
const COMPACT: Rpc = Rpc::of_store("/etcdserverpb.KV/Compact");
const MEMBER_LIST: Rpc = Rpc::new("/etcdserverpb.Cluster/MemberList");
const MEMBER_ADD: Rpc = Rpc::new("/etcdserverpb.Cluster/MemberAdd");
const MEMBER_REMOVE: Rpc = Rpc::new("/etcdserverpb.Cluster/MemberRemove");
const MEMBER_UPDATE: Rpc = Rpc::new("/etcdserverpb.Cluster/MemberUpdate");
const MEMBER_PROMOTE: Rpc = Rpc::new("/etcdserverpb.Cluster/MemberPromote");
const MOVE_LEADER: Rpc = Rpc::new("/etcdserverpb.Maintenance/MoveLeader");
const STATUS: Rpc = Rpc::new("/etcdserverpb.Maintenance/Status");

impl Client {
    /// Writes one key.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn put(&self, request: pb::PutRequest) -> Result<pb::PutResponse, Failure> {
        self.call(Effect::Writes, PUT, &request).await
    }

    /// Reads keys.
    ///
    /// # Errors
    /// See [`Failure`]; a read has no effect in any case.
    pub async fn range(&self, mut request: pb::RangeRequest) -> Result<pb::RangeResponse, Failure> {
        self.level().mark_range(&mut request);
        self.call(Effect::Reads, RANGE, &request).await
    }

    /// Deletes keys.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn delete_range(
        &self,
        request: pb::DeleteRangeRequest,
    ) -> Result<pb::DeleteRangeResponse, Failure> {
        self.call(Effect::Writes, DELETE_RANGE, &request).await
    }

    /// A transaction.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn txn(&self, mut request: pb::TxnRequest) -> Result<pb::TxnResponse, Failure> {
        self.level().mark_txn(&mut request);
        let effect = if only_reads(&request) { Effect::Reads } else { Effect::Writes };
        self.call(effect, TXN, &request).await
    }

    /// Removes the history before a revision.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn compact(&self, request: pb::CompactionRequest) -> Result<pb::CompactionResponse, Failure> {
        self.call(Effect::Writes, COMPACT, &request).await
    }

    /// The members of the cluster, as of a linearizable read.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_list(&self) -> Result<pb::MemberListResponse, Failure> {
        let request = pb::MemberListRequest { linearizable: true };
        self.call(Effect::Reads, MEMBER_LIST, &request).await
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
        self.call(Effect::Writes, MEMBER_ADD, &request).await
    }

    /// Removes a member for good.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_remove(&self, id: u64) -> Result<pb::MemberRemoveResponse, Failure> {
        let request = pb::MemberRemoveRequest { id };
        self.call(Effect::Writes, MEMBER_REMOVE, &request).await
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
        self.call(Effect::Writes, MEMBER_UPDATE, &request).await
    }

    /// Gives a vote to a learner that has caught up.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn member_promote(&self, id: u64) -> Result<pb::MemberPromoteResponse, Failure> {
        let request = pb::MemberPromoteRequest { id };
        self.call(Effect::Writes, MEMBER_PROMOTE, &request).await
    }

    /// Transfers leadership to a voter; the endpoint must be the leader's.
    ///
    /// # Errors
    /// See [`Failure`]; "not leader" elsewhere.
    pub async fn move_leader(&self, leader: &Endpoint, target: u64) -> Result<(), Failure> {
        let request = pb::MoveLeaderRequest { target_id: target };
        self.call_at::<pb::MoveLeaderResponse>(leader, MOVE_LEADER, &request).await.map(|_| ())
    }

    /// The status of the member at one endpoint.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn status(&self, endpoint: &Endpoint) -> Result<pb::StatusResponse, Failure> {
        self.call_at(endpoint, STATUS, &pb::StatusRequest {}).await
    }
}

fn only_reads(txn: &pb::TxnRequest) -> bool {
    txn.success.iter().chain(&txn.failure).all(|op| match &op.request {
        Some(Request::RequestRange(_)) | None => true,
        Some(Request::RequestTxn(txn)) => only_reads(txn),
        Some(Request::RequestPut(_) | Request::RequestDeleteRange(_)) => false,
    })
}
