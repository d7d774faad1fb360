//! Maintenance calls: the snapshot stream, hashes, alarms.
//!
//! Knows nothing of: files, the contents of the stream.

use crate::client::{Client, Effect};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use kattu_proto::etcdserverpb as pb;
use pb::maintenance_client::MaintenanceClient;
use std::fmt;
use std::io;
use tonic::Streaming;
use tonic::transport::Channel;

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

fn maintenance(at: Endpoint) -> MaintenanceClient<Channel> {
    MaintenanceClient::new(at.channel)
}

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
        let asked = self.ask(Effect::Reads, |at| async move {
            let name = at.name.clone();
            let answer = maintenance(at).snapshot(pb::SnapshotRequest {}).await?;
            Ok(answer.map(|stream| (stream, name)))
        });
        let (mut stream, name): (Streaming<pb::SnapshotResponse>, String) =
            asked.await.map_err(SnapshotError::Call)?;
        let mut bytes = 0;
        loop {
            match tokio::time::timeout(self.timeout(), stream.message()).await {
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
        self.ask_at(endpoint, |at| async move { maintenance(at).hash_kv(request).await }).await
    }

    /// Reads, raises or clears alarms.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn alarm(&self, request: pb::AlarmRequest) -> Result<pb::AlarmResponse, Failure> {
        let is_read = request.action == pb::alarm_request::AlarmAction::Get as i32;
        let effect = if is_read { Effect::Reads } else { Effect::Writes };
        self.ask(effect, |at| async move { maintenance(at).alarm(request).await }).await
    }
}
