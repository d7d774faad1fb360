//! Opening: from which tables a member starts, once its log is read back, and how long vote holds last then.
//!
//! ```text
//!   a good snapshot that reaches the log ───────▶ its tables
//!   the log from its beginning, and no snapshot ▶ the founders, and the log is replayed
//!   a log that begins after all snapshots left:
//!        other members have its data ───────────▶ the leader sends a snapshot; nothing is served before
//!        no other has it ───────────────────────▶ no start: a backup can help, or nothing
//! ```
//! Knows nothing of: files, how tables are read, how a log is repaired.

use kattu_raft::extensions::ELECTION_TIMEOUT_MAX;
use kattu_raft::{Duration, EntryId, Recovered, Timing, newest_found, timing_found};
use kattu_wal::{Identity, WalError};

/// The tables that a member starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables<'a> {
    /// Those of the snapshot that ends at this entry.
    Snapshot(EntryId),
    /// The members that the cluster began with, and nothing else.
    Founders,
    /// The same, until a snapshot of the leader's takes their place: the error says why the member has none.
    Awaited(&'a WalError),
}

/// The tables from which a member with this identity starts. `complaints` are those of its log.
///
/// # Errors
/// The loss of the only copy.
pub fn first_tables<'a>(
    identity: &Identity,
    complaints: &'a [WalError],
    recovered: &Recovered,
) -> Result<Tables<'a>, &'a WalError> {
    if let Some(snapshot) = &recovered.snapshot {
        return Ok(Tables::Snapshot(snapshot.last));
    }
    match complaints.iter().find(|error| matches!(error, WalError::Uncovered { .. })) {
        Some(lost) if is_alone(identity, recovered) => Err(lost),
        Some(lost) => Ok(Tables::Awaited(lost)),
        None => Ok(Tables::Founders),
    }
}

/// Whether no other member has this member's data, as far as its log and its snapshot tell: the identity still counts
/// only if the group has never changed its configuration.
#[must_use]
pub fn is_alone(identity: &Identity, recovered: &Recovered) -> bool {
    match newest_found(&recovered.memberships, recovered.snapshot.as_ref()) {
        Some(newest) => newest.members().count() == 1,
        None => identity.joined.is_none() && identity.members.len() == 1,
    }
}

/// The timing in force at a start, as the log and the snapshot tell; `None` if flags begin it. [decision 61]
#[must_use]
pub fn timing(recovered: &Recovered) -> Option<Timing> {
    timing_found(&recovered.memberships, recovered.snapshot.as_ref())
}

/// The vote holds of a member that starts. [replication-protocols L-4]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteHolds {
    /// How long those of earlier runs may last: this member gives no vote before.
    pub earlier: Duration,
    /// How long those of this run last.
    pub own: Duration,
    /// To be recorded before this member speaks, if another length is recorded.
    pub record: Option<Duration>,
}

/// The vote holds of a member whose earlier runs have recorded a length; `None`: the record cannot be read. `leases`: this run
/// takes part in leader leases, with this timing. A length below that of earlier runs is recorded when the longer holds are
/// over.
#[must_use]
pub fn vote_holds(recorded: Option<Duration>, leases: bool, timing: Timing) -> VoteHolds {
    let earlier = recorded.unwrap_or(ELECTION_TIMEOUT_MAX);
    let own = if leases { timing.election_timeout } else { Duration::ZERO };
    let longest = own.max(earlier);
    VoteHolds { earlier, own, record: Some(longest).filter(|_| recorded != Some(longest)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::{GroupId, Incarnation, LogIndex, Membership, NodeId, SnapshotMeta};
    use kattu_wal::InitialMember;

    fn founder_of(count: u64) -> Identity {
        let member = |id| InitialMember { id: NodeId(id), name: String::new(), peer_urls: vec![] };
        let members = (1..=count).map(member).collect();
        Identity { members, ..Identity::single(0xC1, NodeId(1), Incarnation(1), "n1") }
    }

    #[test]
    fn a_log_that_no_snapshot_reaches_is_the_end_of_the_only_copy_and_of_no_other() {
        let base = EntryId::new(1, 100);
        let lost = WalError::Uncovered { group: GroupId(0), base, snapshots: vec![] };
        let of = |count| Membership::new((1..=count).map(NodeId).collect(), vec![]);
        let found =
            |count| Recovered { memberships: vec![(LogIndex(120), of(count))], ..Recovered::default() };
        let complaints = [WalError::OnlyCopy { why: "another one".into() }, lost.clone()];
        let identity = founder_of(3);
        assert_eq!(first_tables(&identity, &complaints, &found(3)), Ok(Tables::Awaited(&lost)));
        assert_eq!(first_tables(&identity, &complaints, &found(1)), Err(&lost));
        assert_eq!(first_tables(&identity, &complaints[..1], &found(1)), Ok(Tables::Founders));
        let snapshot = SnapshotMeta { last: base, ..SnapshotMeta::default() };
        let covered = Recovered { snapshot: Some(snapshot), ..found(1) };
        assert_eq!(first_tables(&identity, &[], &covered), Ok(Tables::Snapshot(base)));
    }

    #[test]
    fn a_vote_hold_is_recorded_before_a_longer_one_is_granted_and_a_record_that_is_damaged_means_the_longest()
    {
        let secs = Duration::from_secs;
        let timing = Timing { election_timeout: secs(2), heartbeat_interval: secs(1) };
        for (recorded, leases, earlier, own, record) in [
            (Some(0), false, 0, 0, None),
            (Some(0), true, 0, 2, Some(2)),
            (Some(2), true, 2, 2, None),
            (Some(1), true, 1, 2, Some(2)),
            (Some(5), true, 5, 2, None),
            (Some(5), false, 5, 0, None),
            (None, true, 50, 2, Some(50)),
            (None, false, 50, 0, Some(50)),
        ] {
            let holds = VoteHolds { earlier: secs(earlier), own: secs(own), record: record.map(secs) };
            assert_eq!(vote_holds(recorded.map(secs), leases, timing), holds, "{recorded:?} {leases}");
        }
    }

    #[test]
    fn whether_others_have_what_a_member_has_say_the_log_then_the_snapshot_then_the_identity() {
        let of = |count: u64| Membership::new((1..=count).map(NodeId).collect(), vec![]);
        let identity = founder_of;
        let joined = Identity { joined: Some(vec![]), ..identity(1) };
        let found = |in_log: Option<(u64, u64)>, in_snapshot: Option<(u64, u64)>| Recovered {
            memberships: in_log.map(|(at, count)| (LogIndex(at), of(count))).into_iter().collect(),
            snapshot: in_snapshot.map(|(at, count)| SnapshotMeta {
                last: EntryId::new(1, 100),
                membership: of(count),
                membership_at: LogIndex(at),
                ..SnapshotMeta::default()
            }),
            ..Recovered::default()
        };
        let table = [
            (identity(1), found(None, None), true),
            (identity(3), found(None, None), false),
            (joined, found(None, None), false),
            // The configuration has left the log: a founder that grew, one that was left alone.
            (identity(1), found(None, Some((50, 3))), false),
            (identity(3), found(None, Some((50, 1))), true),
            (identity(3), found(None, Some((0, 3))), false),
            (identity(1), found(None, Some((0, 1))), true),
            // It is in the log, behind what the snapshot says.
            (identity(3), found(Some((150, 1)), Some((50, 3))), true),
            (identity(1), found(Some((150, 2)), Some((50, 1))), false),
            // An older one is still in the log.
            (identity(3), found(Some((20, 3)), Some((50, 1))), true),
            (identity(1), found(Some((50, 3)), Some((50, 3))), false),
            (identity(1), found(Some((20, 2)), None), false),
        ];
        for (identity, recovered, alone) in table {
            assert_eq!(is_alone(&identity, &recovered), alone, "{:?}, {recovered:?}", identity.members);
        }
    }
}
