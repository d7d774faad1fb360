//! `GET /kattu/status`: a member's state beyond etcd's `Status`, as one JSON object.
//!
//! Field names are the command's (`kattu status -o json`), which adds the endpoint it asked. Ids are lower-case hex.
//! Knows nothing of: HTTP, callers.

use crate::errors;
use crate::face::KATTU_VERSION;
use crate::json;
use crate::maintenance;
use crate::tls::Certificate;
use crate::tune::changed_json;
use kattu_node::contract::Status;
use kattu_raft::policy::Weak;
use kattu_raft::{NbRaft, NodeId, Protocol};
use kattu_runtime::tuning::Tuning;

/// What a member says of itself, besides what its replica does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// What it is tuned to, if that is known.
    pub(crate) tuning: Option<Tuning>,
    /// Whether it does not wait for its disk.
    pub(crate) unsafe_no_fsync: bool,
}

/// The member's status as JSON. `log_bytes`: size of its log on disk; `history_seconds`: seconds of history of which
/// every revision can be read; `certificate`: those of this member, if it uses TLS.
#[must_use]
pub(crate) fn status_json(
    status: &Status,
    own: &Own<'_>,
    log_bytes: u64,
    history_seconds: u64,
    certificate: Option<Certificate>,
) -> String {
    let mut problems = Vec::new();
    if own.unsafe_no_fsync {
        problems.push(errors::NO_FSYNC.to_string());
    }
    if own.tuning.is_some_and(|tuning| tuning.artefacts.early_answers) {
        problems.push(errors::EARLY_ANSWERS.to_string());
    }
    let days = certificate.as_ref().map_or("null".to_string(), |it| it.days_left.to_string());
    problems.extend(certificate.into_iter().flat_map(|it| it.problems));
    if status.leader.is_none() {
        problems.push(errors::NO_LEADER.text.to_string());
    }
    for alarm in maintenance::active(status) {
        problems.push(match alarm.member {
            member if member == status.id => format!("alarm: {}", alarm.kind),
            NodeId(0) => format!("alarm for every member: {}", alarm.kind),
            NodeId(member) => format!("alarm for member {member:x}: {}", alarm.kind),
        });
    }
    if status.serving_unconfirmed {
        problems.push(
            "serializable reads are served before a linearizable read has confirmed the state".to_string(),
        );
    }
    for member in &status.leader_lease_without {
        problems.push(format!(
            "--lease-reads is on here, but member {:x} lacks it, or grants shorter vote holds than the election timeout",
            member.0
        ));
    }
    if status.leader_lease_is_over {
        problems.push(
            "a leadership transfer failed, so this leader has no lease for the rest of its term: each read takes a quorum \
             round until `kattu move-leader` makes another member leader"
                .to_string(),
        );
    }
    for (member, gains) in &status.clocks_apart {
        problems.push(format!(
            "the clocks of member {:x} and of this one drift apart by {} ppm or more, which exceeds --clock-drift-ppm: each \
             read takes a quorum round until another leader is elected",
            member.0,
            gains.unsigned_abs()
        ));
    }
    for (member, times, falsehood) in &status.distrusted {
        problems.push(format!(
            "member {:x}, or a sender that uses its id, has sent {times} messages that no correct member sends; the last: \
             {falsehood}",
            member.0
        ));
    }
    let window = |(peer, entries): &(NodeId, u64)| format!("\"{:x}\":{entries}", peer.0);
    let windows: Vec<String> = status.windows.iter().map(window).collect();
    let problems: Vec<String> = problems.iter().map(|text| json::string(text)).collect();
    format!(
        "{{\"member_id\":\"{:x}\",\"name\":{},\"role\":\"{}\",\"has_leader_lease\":{},\"leader_id\":\"{:x}\",\"term\":{},\"revision\":{},\
         \"compact_revision\":{},\"history_seconds\":{},\"persisted\":{},\"committed\":{},\"applied\":{},\"first_index\":{},\"last_index\":{},\"log_bytes\":{},\
         \"version\":\"{}\",\"feature_level\":{},\"election_timeout_ms\":{},\"heartbeat_interval_ms\":{},{},\"weak_outstanding\":{},\"weak_outstanding_bytes\":{},\"windows\":{{{}}},\"tuned\":{},\"certificate_days\":{},\"errors\":[{}]}}",
        status.id.0,
        json::string(own.name),
        if status.learner { "learner" } else { status.role },
        status.has_leader_lease,
        status.leader.map_or(0, |leader| leader.0),
        status.term.0,
        status.revision,
        status.compact_revision,
        history_seconds,
        status.persisted.0,
        status.committed.0,
        status.applied.0,
        status.first.0,
        status.last.0,
        log_bytes,
        KATTU_VERSION,
        status.level,
        status.timing.election_timeout.as_millis(),
        status.timing.heartbeat_interval.as_millis(),
        protocol_fields(status.protocol.unwrap_or(Protocol::Raft)),
        status.weak.outstanding.entries,
        status.weak.outstanding.bytes,
        windows.join(","),
        own.tuning.map_or_else(|| "{}".to_string(), |tuning| changed_json(&tuning)),
        days,
        problems.join(",")
    )
}

/// A protocol with its parameters, as fields of an object.
pub(crate) fn protocol_fields(protocol: Protocol) -> String {
    let Protocol::NbRaft(NbRaft { window, weak, budget }) = protocol else {
        return "\"protocol\":\"raft\"".to_string();
    };
    let of_window = format!("\"window_entries\":{},\"window_bytes\":{}", window.entries, window.bytes);
    let name = weak.name();
    let of_weak = match weak {
        Weak::Off => String::new(),
        Weak::Gap | Weak::Receipt => format!(
            ",\"weak\":\"{name}\",\"budget_entries\":{},\"budget_bytes\":{}",
            budget.entries, budget.bytes
        ),
    };
    format!("\"protocol\":\"nb-raft\",{of_window}{of_weak}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_kv::api::Revision;
    use kattu_node::weak::WeakCounts;
    use kattu_raft::policy::Capacity;
    use kattu_raft::{LogIndex, Term};
    use kattu_runtime::tuning::Setting;

    #[test]
    fn every_field_is_there_under_its_fixed_name() {
        let status = Status {
            id: NodeId(0xab),
            term: Term(3),
            leader: Some(NodeId(0xcd)),
            role: "follower",
            persisted: LogIndex(9),
            committed: LogIndex(8),
            applied: LogIndex(7),
            first: LogIndex(1),
            last: LogIndex(10),
            revision: Revision(6),
            compact_revision: Revision(-1),
            level: 1,
            timing: kattu_raft::Timing {
                election_timeout: kattu_raft::Duration::from_millis(1000),
                heartbeat_interval: kattu_raft::Duration::from_millis(100),
            },
            protocol: Some(Protocol::NbRaft(NbRaft {
                window: Capacity { entries: 5, bytes: 6 },
                weak: Weak::Gap,
                budget: Capacity { entries: 7, bytes: 8 },
            })),
            windows: vec![(NodeId(0xcd), 4)],
            weak: WeakCounts { outstanding: Capacity { entries: 2, bytes: 90 }, given: 3, lost: 0 },
            ..Status::default()
        };
        let expected = format!(
            "{{\"member_id\":\"ab\",\"name\":\"n\\\"1\",\"role\":\"follower\",\"has_leader_lease\":false,\"leader_id\":\"cd\",\"term\":3,\
             \"revision\":6,\"compact_revision\":-1,\"history_seconds\":420,\"persisted\":9,\"committed\":8,\"applied\":7,\"first_index\":1,\"last_index\":10,\
             \"log_bytes\":4096,\"version\":\"{KATTU_VERSION}\",\"feature_level\":1,\"election_timeout_ms\":1000,\
             \"heartbeat_interval_ms\":100,\"protocol\":\"nb-raft\",\"window_entries\":5,\"window_bytes\":6,\"weak\":\"gap\",\
             \"budget_entries\":7,\"budget_bytes\":8,\"weak_outstanding\":2,\"weak_outstanding_bytes\":90,\
             \"windows\":{{\"cd\":4}},\"tuned\":{{}},\"certificate_days\":null,\"errors\":[]}}"
        );
        assert_eq!(status_json(&status, &Own { name: "n\"1", ..Own::default() }, 4096, 420, None), expected);
    }

    #[test]
    fn a_learner_and_a_lease_are_shown() {
        let json = status_json(
            &Status { role: "follower", learner: true, ..Status::default() },
            &Own::default(),
            0,
            0,
            None,
        );
        assert!(json.contains("\"role\":\"learner\",\"has_leader_lease\":false,"), "{json}");
        let json = status_json(
            &Status { role: "leader", has_leader_lease: true, ..Status::default() },
            &Own::default(),
            0,
            0,
            None,
        );
        assert!(json.contains("\"role\":\"leader\",\"has_leader_lease\":true,"), "{json}");
    }

    #[test]
    fn a_member_that_denies_this_leader_its_leases_is_named() {
        let status = Status {
            leader: Some(NodeId(1)),
            role: "leader",
            leader_lease_without: vec![NodeId(0xab)],
            ..Status::default()
        };
        let json = status_json(&status, &Own::default(), 0, 0, None);
        let said = "--lease-reads is on here, but member ab lacks it, or grants shorter vote holds than the election timeout";
        assert!(json.ends_with(&format!("\"errors\":[\"{said}\"]}}")), "{json}");
    }

    #[test]
    fn a_lease_that_a_failed_transfer_ended_is_reported_with_the_way_to_the_next() {
        let status = Status {
            leader: Some(NodeId(1)),
            role: "leader",
            leader_lease_is_over: true,
            ..Status::default()
        };
        let json = status_json(&status, &Own::default(), 0, 0, None);
        assert!(json.contains("\"errors\":[\"a leadership transfer failed"), "{json}");
        assert!(json.contains("kattu move-leader"), "{json}");
    }

    #[test]
    fn clocks_that_run_apart_are_named() {
        let status = Status {
            leader: Some(NodeId(1)),
            role: "leader",
            clocks_apart: vec![(NodeId(0xab), -12_000)],
            ..Status::default()
        };
        let json = status_json(&status, &Own::default(), 0, 0, None);
        assert!(
            json.contains("\"errors\":[\"the clocks of member ab and of this one drift apart by 12000 ppm"),
            "{json}"
        );
    }

    #[test]
    fn a_certificate_is_told_of_with_what_is_wrong_with_it() {
        let certificate = Certificate { days_left: 12, problems: vec!["renew it".to_string()] };
        let status = Status { leader: Some(NodeId(1)), ..Status::default() };
        let json = status_json(&status, &Own::default(), 0, 0, Some(certificate));
        assert!(json.ends_with("\"certificate_days\":12,\"errors\":[\"renew it\"]}"), "{json}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let status = Status { role: "candidate", no_space: true, ..Status::default() };
        let json = status_json(&status, &Own::default(), 0, 0, None);
        assert!(json.ends_with("\"errors\":[\"etcdserver: no leader\",\"alarm: NOSPACE\"]}"), "{json}");
        assert!(json.contains("\"leader_id\":\"0\""), "{json}");
    }

    #[test]
    fn a_member_that_does_not_wait_for_its_disk_says_so_and_one_that_is_tuned_to_what() {
        let given = [("batching", "off"), ("unsafe-early-answers", "on")];
        let tuning = Some(Tuning::default().with(&Setting::parse(given).expect("settings")));
        let own = Own { name: "n1", tuning, unsafe_no_fsync: true };
        let json = status_json(&Status { leader: Some(NodeId(1)), ..Status::default() }, &own, 0, 0, None);
        let tuned = "\"tuned\":{\"batching\":\"off\",\"unsafe-early-answers\":\"on\"},";
        assert!(json.contains(tuned), "{json}");
        assert!(json.contains("\"errors\":[\"--unsafe-no-fsync: "), "{json}");
        assert!(json.contains(",\"unsafe-early-answers: "), "{json}");
    }
}
