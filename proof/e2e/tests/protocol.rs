//! The protocol of a cluster: changed for all members by a verb while clients write, over one link or several.

use kattu_rig::programs::{Ended, run};
use kattu_rig::{Cluster, Member, Options, kattu, until};
use std::process::{Command, Stdio};

fn protocol(cluster: &Cluster, words: &[&str]) -> Ended {
    run(Command::new(kattu()).arg("protocol").args(words).args(["--endpoints", &cluster.endpoints()]))
}

/// Weak answers turned on: they are given, counted and shown; turned off: refused.
fn weak_answers(cluster: &Cluster) {
    let load = ["bench", "put", "--native", "--weak", "--clients", "8", "--conns", "2", "--total", "2000"];
    let bench =
        || run(Command::new(kattu()).args(load).args(["-o", "json", "--endpoints", &cluster.endpoints()]));
    let off = bench();
    assert!(off.code != Some(0) && off.all().contains("this cluster gives no weak answers"), "{}", off.all());
    let mut tune = Command::new(kattu());
    tune.args(["tune", "log-io=thread", "--all", "--endpoints", &cluster.endpoints()]);
    run(&mut tune).expect_ok();
    protocol(cluster, &["nb-raft", "--weak", "receipt", "--budget-entries", "1000"]).expect_ok();
    until("a quorum has received a write before it was done", || {
        let report = bench().json();
        assert_eq!((&report["ops"], &report["errors"]), (&2000.into(), &0.into()), "{report}");
        let weak = &report["weak"];
        assert_eq!((&weak["ops"], &weak["lost"]), (&2000.into(), &0.into()), "{report}");
        (0 < weak["received"].as_u64().expect("a count")).then_some(())
    });
    for verb in ["status", "tune"] {
        let said = run(Command::new(kattu()).args([verb, "--endpoints", &cluster.endpoints()]));
        assert!(said.expect_ok().contains("nb-raft"), "{}", said.all());
    }
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

    // Forth and back while clients write, none of which notices it.
    let load = ["bench", "put", "--total", "4000", "--clients", "64", "--endpoints", &endpoints];
    let mut changes = 0;
    for _ in 0..20 {
        let mut load = Command::new(kattu()).args(load).stdout(Stdio::null()).spawn().expect("it can be run");
        while load.try_wait().expect("a child").is_none() {
            protocol(&cluster, if changes % 2 == 0 { &["raft"] } else { &["nb-raft"] }).expect_ok();
            changes += u32::from(load.try_wait().expect("a child").is_none());
        }
        assert!(load.wait().expect("a child").success(), "no put failed");
        if 4 <= changes {
            break;
        }
    }
    assert!(4 <= changes, "{changes} changes while clients wrote");

    weak_answers(&cluster);

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
