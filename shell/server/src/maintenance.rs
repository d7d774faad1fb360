//! The maintenance service: how one member is doing.
//!
//! Knows nothing of: connections, other members.

use crate::errors;
use crate::face::{ETCD_CLUSTER_VERSION, ETCD_VERSION, Face};
use crate::replica::Replica;
use crate::{encode, grpc};
use bytes::Bytes;
use kattu_proto::etcdserverpb as pb;
use pb::alarm_request::AlarmAction;
use tonic::Status;

/// Status: this member's own view, without asking anybody.
///
/// # Errors
/// If the replica is stopping.
pub async fn status<R: Replica>(face: &Face<R>, message: Bytes) -> Result<Bytes, Status> {
    let _: pb::StatusRequest = grpc::decode(message)?;
    let status = face.status().await?;
    let mut errors = Vec::new();
    if status.leader.is_none() {
        errors.push(errors::NO_LEADER.text.to_string());
    }
    if status.no_space {
        errors.push(format!("memberID:{} alarm:NOSPACE ", status.id.0));
    }
    Ok(encode::frame(&pb::StatusResponse {
        header: Some(face.header(status.term, status.revision)),
        version: ETCD_VERSION.to_string(),
        db_size: as_i64(status.store_bytes),
        leader: status.leader.map_or(0, |leader| leader.0),
        raft_index: status.committed.0,
        raft_term: status.term.0,
        raft_applied_index: status.applied.0,
        errors,
        db_size_in_use: as_i64(status.store_bytes_in_use),
        is_learner: status.learner,
        storage_version: ETCD_CLUSTER_VERSION.to_string(),
        db_size_quota: as_i64(face.config.quota_bytes),
        downgrade_info: Some(pb::DowngradeInfo::default()),
    }))
}

/// Alarm: reading them. Ours raise and clear themselves, so that setting them by hand is not served.
///
/// # Errors
/// `Unimplemented` for anything but reading.
pub async fn alarm<R: Replica>(face: &Face<R>, message: Bytes) -> Result<Bytes, Status> {
    let request: pb::AlarmRequest = grpc::decode(message)?;
    if request.action != AlarmAction::Get as i32 {
        let text = "kattu sets and clears its alarms by itself; only Alarm GET is served yet";
        return Err(Status::unimplemented(text));
    }
    let status = face.status().await?;
    let type_wanted = [pb::AlarmType::None as i32, pb::AlarmType::Nospace as i32].contains(&request.alarm);
    let member_wanted = [0, status.id.0].contains(&request.member_id);
    let mut alarms = Vec::new();
    if status.no_space && type_wanted && member_wanted {
        alarms.push(pb::AlarmMember { member_id: status.id.0, alarm: pb::AlarmType::Nospace as i32 });
    }
    let header = Some(face.header(status.term, status.revision));
    Ok(encode::frame(&pb::AlarmResponse { header, alarms }))
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
