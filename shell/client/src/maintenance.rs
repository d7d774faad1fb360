//! Maintenance calls: the snapshot stream, hashes, alarms.
//!
//! Knows nothing of: files, the contents of the stream.

use crate::client::{Client, Effect};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::rpc::{Rpc, decode};
use kattu_proto::etcdserverpb as pb;
use prost::Message;
use prost::bytes::Bytes;
use std::fmt;
use std::io;
use tonic::{Request, Streaming};

const SNAPSHOT: Rpc = Rpc::new("/etcdserverpb.Maintenance/Snapshot");
const HASH_KV: Rpc = Rpc::new("/etcdserverpb.Maintenance/HashKV");
const ALARM: Rpc = Rpc::new("/etcdserverpb.Maintenance/Alarm");

/// Why a snapshot did not arrive.
#[derive(Debug)]
pub enum SnapshotError {
    /// The member refused, fell silent or broke off.
    Call(Failure),
    /// The received bytes cannot be stored.
    Io(io::Error),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Call(failure) => failure.fmt(f),
            SnapshotError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl Client {
    /// Everything that one member holds, piece by piece, as fast as `take` takes it; from the first endpoint that
    /// answers, and from no other once it has begun. Returns the number of bytes. The timeout is for each piece.
    ///
    /// # Errors
    /// If it did not come to its end; then the bytes so far are worthless.
    pub async fn snapshot(
        &self,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, SnapshotError> {
        let mut begun = None;
        let call = |at: Endpoint| async move {
            let name = at.name.clone();
            let request = Request::new(Bytes::from(pb::SnapshotRequest {}.encode_to_vec()));
            Ok(SNAPSHOT.stream(at, request).await?.map(|stream| (stream, name)))
        };
        let mut keep = |(stream, name): (Streaming<Bytes>, String)| {
            begun = Some((stream, name));
            Ok(())
        };
        self.ask(Effect::Reads, call, &mut keep).await.map_err(SnapshotError::Call)?;
        let (mut stream, name) = begun.expect("a call that succeeds has kept its answer");
        let mut bytes = 0;
        loop {
            let next = async {
                let piece = stream.message().await?;
                piece.map(decode::<pb::SnapshotResponse>).transpose()
            };
            match tokio::time::timeout(self.timeout(), next).await {
                Err(_) => return Err(SnapshotError::Call(Failure::timed_out(&name))),
                Ok(Err(status)) => return Err(SnapshotError::Call(Failure::from_status(&status, &name))),
                Ok(Ok(None)) => return Ok(bytes),
                Ok(Ok(Some(piece))) => {
                    take(&piece.blob).map_err(SnapshotError::Io)?;
                    bytes += piece.blob.len() as u64;
                }
            }
        }
    }

    /// The hash of all versions up to a revision (0 for the newest) at one member.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn hash_kv(&self, endpoint: &Endpoint, revision: i64) -> Result<pb::HashKvResponse, Failure> {
        let request = pb::HashKvRequest { revision };
        self.call_at(endpoint, HASH_KV, &request).await
    }

    /// Reads, raises or clears alarms.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn alarm(&self, request: pb::AlarmRequest) -> Result<pb::AlarmResponse, Failure> {
        let is_read = request.action == pb::alarm_request::AlarmAction::Get as i32;
        let effect = if is_read { Effect::Reads } else { Effect::Writes };
        self.call(effect, ALARM, &request).await
    }
}
