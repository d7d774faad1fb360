//! The protocol of a cluster: changed for all members by a verb while clients write, over one link or several.

use kattu_rig::programs::{Ended, run};
use kattu_rig::{Cluster, Member, Options, kattu, until};
use std::process::Command;

fn protocol(cluster: &Cluster, words: &[&str]) -> Ended {
    run(Command::new(kattu()).arg("protocol").args(words).args(["--endpoints", &cluster.endpoints()]))
}

#[test]
fn a_verb_changes_the_protocol_of_all_members_under_load_over_several_links() {
    let links = ["--links-per-peer=4", "--dispatch=unordered", "--batch-entries-max=1"];
    let options = Options { members: 3, flags: links.map(str::to_string).into() };
    let mut cluster = Cluster::with("protocol", options);
    cluster.members[0].kv().put_surely("before", "1");
    for member in &cluster.members {
        until("the level that brings windows", || {
            member.metric("kattu_feature_level").filter(|level| 6 <= *level)
        });
    }
    for wrong in [&["nb-raft", "--window-entries=1000001"][..], &["nb-raft", "--window-bytes=0"]] {
        protocol(&cluster, wrong).expect_code(2);
    }
    let set = protocol(&cluster, &["nb-raft", "--window-entries", "5000"]);
    let said = set.expect_ok();
    assert!(said.contains("\"protocol\":\"nb-raft\"") && said.contains("\"window_entries\":5000"), "{said}");

    let early = |cluster: &Cluster| -> u64 {
        let of = |member: &Member| member.metric("kattu_window_entries_total").unwrap_or_default();
        cluster.members.iter().map(of).sum()
    };
    let endpoints = cluster.endpoints();
    until("entries overtake one another", || {
        let bench = [
            "bench",
            "put",
            "--total",
            "4000",
            "--clients",
            "64",
            "--val-size",
            "8000",
            "--endpoints",
            &endpoints,
        ];
        run(Command::new(kattu()).args(bench)).expect_ok();
        (0 < early(&cluster)).then_some(())
    });

    // Back to raft, with a member that was away meanwhile.
    cluster.members[1].stop("TERM");
    protocol(&cluster, &["raft"]).expect_ok();
    cluster.members[0].kv().put_surely("after", "2");
    cluster.members[1].spawn().expect("it can be run");
    cluster.members[1].kv().put_surely("last", "3");
    for (key, value) in [("before", "1"), ("after", "2"), ("last", "3")] {
        assert_eq!(cluster.members[1].kv().get(key).ok().flatten().as_deref(), Some(value.as_bytes()));
    }
}
