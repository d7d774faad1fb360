//! The timing of a cluster: begun by flags, changed for all members by a verb, and named where flags differ.

use kattu_rig::programs::{Ended, run};
use kattu_rig::{Cluster, kattu, until};
use serde_json::Value;
use std::process::Command;

fn timing(cluster: &Cluster, words: &[&str]) -> Ended {
    run(Command::new(kattu()).arg("timing").args(words).args(["--endpoints", &cluster.endpoints()]))
}

/// Election timeout and heartbeat interval in force at each member; zeros for one that does not answer yet.
fn in_force(cluster: &Cluster) -> Vec<(u64, u64)> {
    let args = ["status", "-o", "json", "--endpoints", &cluster.endpoints()];
    // Not `json()`: while a member starts, the command ends with the code of an unreachable one.
    let said = run(Command::new(kattu()).args(args));
    let status: Value =
        serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("not JSON: {}", said.all()));
    let number = |one: &Value, name: &str| one[name].as_u64().unwrap_or_default();
    let all = status.as_array().cloned().unwrap_or_default();
    all.iter().map(|one| (number(one, "election_timeout_ms"), number(one, "heartbeat_interval_ms"))).collect()
}

#[test]
fn a_verb_changes_the_timing_of_all_members_and_flags_that_differ_are_named_at_the_next_start() {
    let mut cluster = Cluster::start("timing", 3);
    cluster.members[0].kv().put_surely("before", "1");
    for member in &cluster.members {
        until("the level that brings shared settings", || {
            member.metric("kattu_feature_level").filter(|level| 3 <= *level)
        });
    }
    let refused = timing(&cluster, &["--election-timeout", "100", "--heartbeat-interval", "50"]);
    refused.expect_code(2);
    let set = timing(&cluster, &["--election-timeout", "2500"]);
    assert!(set.expect_ok().contains("\"election_timeout_ms\":2500"), "{}", set.out);
    until("all members go by it", || (in_force(&cluster) == [(2500, 250); 3]).then_some(()));

    cluster.members[1].stop("TERM");
    cluster.members[1].arguments_mut().extend(["--election-timeout", "1500"].map(str::to_string));
    cluster.members[1].spawn().expect("it can be run");
    until("it goes by the cluster's timing again", || (in_force(&cluster) == [(2500, 250); 3]).then_some(()));
    let told = cluster.members[1].log_text();
    assert!(
        told.contains("the flags say an election timeout of 1.5s")
            && told.contains("the cluster has an election timeout of 2.5s"),
        "{told}"
    );
}
