//! Lost directories and older copies: a member that has lost its directory never votes under its old name, one with an
//! older copy asks the others for the votes and acknowledgements that it forgot, and a cluster begins when its first
//! members have met. [fault-model F19, F61]

use kattu_rig::programs::{run, until};
use kattu_rig::{Cluster, Options};
use std::path::Path;
use std::process::Command;

fn says(cluster: &Cluster, member: usize, what: &str) {
    let member = &cluster.members[member];
    until(what, || member.log_text().contains(what).then_some(()));
}

fn copy(from: &Path, to: &Path) {
    let ended = run(Command::new("cp").arg("-a").arg(from).arg(to));
    ended.expect_ok();
}

/// Whether this member knows no leader, by its own metrics.
fn has_no_leader(cluster: &Cluster, member: usize) -> bool {
    cluster.members[member].metric("etcd_server_has_leader") == Some(0)
}

#[test]
fn a_cluster_begins_when_its_first_members_have_met_and_goes_on_without_one_of_them() {
    let mut cluster = Cluster::plan("lives-begin", Options { members: 3, ..Options::default() });
    for member in 0..2 {
        cluster.members[member].spawn().expect("it can be run");
    }
    // Longer than any election takes.
    says(&cluster, 0, "a new cluster starts when all its initial members have met");
    says(&cluster, 1, &format!("({}:2380)", cluster.members[2].endpoint.host));
    assert!(has_no_leader(&cluster, 0) && has_no_leader(&cluster, 1));
    cluster.members[2].spawn().expect("it can be run");
    for member in 0..3 {
        cluster.members[member].wait_ready();
    }
    cluster.members[0].kv().put_surely("k", "v");
    // From now on a majority is enough, even when all start.
    cluster.kill_all();
    for member in 0..2 {
        cluster.members[member].spawn().expect("it can be run");
    }
    for member in 0..2 {
        cluster.members[member].wait_ready();
    }
    assert_eq!(cluster.members[1].kv().get("k").expect("it serves").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn a_member_that_has_lost_its_directory_never_votes_whichever_members_are_reachable() {
    let mut cluster = Cluster::start("lives-wiped", 3);
    cluster.members[0].kv().put_surely("k", "v");
    let leader = cluster.leader();
    let (wiped, lags) = ((leader + 1) % 3, (leader + 2) % 3);
    // A key that the lagging member does not have.
    cluster.members[lags].kill();
    cluster.members[leader].kv().put_surely("k", "newer");
    cluster.kill_all();
    std::fs::remove_dir_all(&cluster.members[wiped].data).expect("it is there");
    // A wiped member that reaches another one is refused, and ends.
    cluster.members[lags].spawn().expect("it can be run");
    says(&cluster, lags, "takes part without an answer from 2");
    cluster.members[wiped].spawn().expect("it can be run");
    let ended = cluster.members[wiped].wait_end();
    assert_eq!(ended.code, Some(2), "{}", cluster.members[wiped].log_text());
    assert!(
        cluster.members[wiped].log_text().contains("cannot bootstrap at"),
        "{}",
        cluster.members[wiped].log_text()
    );
    // A wiped member that reaches no other one begins, and waits.
    cluster.members[lags].kill();
    cluster.members[wiped].spawn().expect("it can be run");
    says(&cluster, wiped, "a new cluster starts when all its initial members have met");
    cluster.members[lags].spawn().expect("it can be run");
    says(&cluster, wiped, "the peer knows this member with another data directory");
    says(&cluster, lags, "is known here with another data directory");
    says(&cluster, wiped, "the cluster has started without it");
    assert!(has_no_leader(&cluster, wiped) && has_no_leader(&cluster, lags), "they are no quorum");
    // The members with their directories are a quorum.
    cluster.members[leader].start();
    let value = cluster.members[lags].kv().get("k").expect("it serves");
    assert_eq!(value.as_deref(), Some(b"newer".as_slice()));
}

#[test]
fn a_member_that_comes_back_from_an_older_copy_does_no_harm() {
    let mut cluster = Cluster::start("lives-older", 3);
    for number in 0..50 {
        cluster.members[0].kv().put_surely(format!("old/{number}"), "x");
    }
    let leader = cluster.leader();
    let (older, lags) = ((leader + 1) % 3, (leader + 2) % 3);
    // A copy of the directory; then entries that only the leader and this member have.
    cluster.members[older].stop("TERM");
    let kept = cluster.folder().join("older");
    copy(&cluster.members[older].data, &kept);
    cluster.members[older].start();
    cluster.members[lags].kill();
    for number in 0..50 {
        cluster.members[leader].kv().put_surely(format!("new/{number}"), "x");
    }
    cluster.members[older].kill();
    std::fs::remove_dir_all(&cluster.members[older].data).expect("it is there");
    copy(&kept, &cluster.members[older].data);
    // The leader has seen more of this member, and can be asked: the others could elect no leader without it.
    cluster.members[older].spawn().expect("it can be run");
    // It waits for the lagging member's answer until its time is up; it has the leader's.
    says(&cluster, older, "takes part without an answer from 1 of the other voters");
    cluster.members[lags].spawn().expect("it can be run");
    cluster.members[lags].wait_ready();
    let kv = cluster.members[lags].kv();
    assert_eq!(kv.count("new/", false).expect("it serves"), 50);
}
