//! The auth service without users: authentication is off.
//!
//! Knows nothing of: users, roles, tokens.

use crate::budget::Hold;
use crate::errors;
use crate::face::Face;
use crate::replica::Replica;
use crate::{encode, grpc};
use bytes::Bytes;
use kattu_proto::etcdserverpb as pb;
use tonic::Status;

/// Revision of a store of users that was never changed.
const AUTH_REVISION_FIRST: u64 = 1;

/// AuthStatus: off.
///
/// # Errors
/// If the replica is stopping.
pub async fn auth_status<R: Replica>(
    face: &Face<R>,
    message: Bytes,
    hold: &mut Hold,
) -> Result<Bytes, Status> {
    let _: pb::AuthStatusRequest = grpc::decode(message)?;
    let status = face.status(hold).await?;
    let header = Some(face.header(status.term, status.revision));
    Ok(encode::frame(&pb::AuthStatusResponse { header, enabled: false, auth_revision: AUTH_REVISION_FIRST }))
}

/// Authenticate: refused, upon which clients go on without a token.
///
/// # Errors
/// Always.
pub fn authenticate(message: Bytes) -> Result<Bytes, Status> {
    let _: pb::AuthenticateRequest = grpc::decode(message)?;
    Err(errors::AUTH_NOT_ENABLED.into())
}
