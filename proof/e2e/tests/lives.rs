//! Directories that forget: a member that has lost its directory never votes under its old name, one that comes back from an older
//! copy learns from the others what it has promised, and a cluster begins when its first members have met. [fault-model F19, F61]

use kattu_e2e::process::{run, until};
use kattu_e2e::{Cluster, Options};
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

/// Whether nobody says who leads, which a status tells.
fn has_no_leader(cluster: &Cluster, member: usize) -> bool {
    cluster.members[member].metric("etcd_server_has_leader") == Some(0)
}

#[test]
fn a_cluster_begins_when_its_first_members_have_met_and_goes_on_without_one_of_them() {
    let mut cluster = Cluster::plan("lives-begin", Options { members: 3, ..Options::default() });
    for member in 0..2 {
        cluster.members[member].spawn();
    }
    // Longer than any election takes.
    says(&cluster, 0, "a cluster begins when all its first members have met");
    says(&cluster, 1, &format!("({}:2380)", cluster.members[2].host));
    assert!(has_no_leader(&cluster, 0) && has_no_leader(&cluster, 1));
    cluster.members[2].spawn();
    for member in 0..3 {
        cluster.members[member].wait_ready();
    }
    cluster.members[0].kv().put_surely("k", "v");
    // From here on a majority is enough, at a start of all as well.
    cluster.kill_all();
    for member in 0..2 {
        cluster.members[member].spawn();
    }
    for member in 0..2 {
        cluster.members[member].wait_ready();
    }
    assert_eq!(cluster.members[1].kv().get("k").expect("it serves").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn a_member_that_has_lost_its_directory_never_votes_whoever_can_be_reached() {
    let mut cluster = Cluster::start("lives-wiped", 3);
    cluster.members[0].kv().put_surely("k", "v");
    let leader = cluster.leader();
    let (wiped, lags) = ((leader + 1) % 3, (leader + 2) % 3);
    // Something that the one which lags behind does not have.
    cluster.members[lags].kill();
    cluster.members[leader].kv().put_surely("k", "newer");
    cluster.kill_all();
    std::fs::remove_dir_all(&cluster.members[wiped].data).expect("it is there");
    // Whoever reaches somebody is told so, and ends.
    cluster.members[lags].spawn();
    says(&cluster, lags, "takes part without an answer of 2");
    cluster.members[wiped].spawn();
    let ended = cluster.members[wiped].wait_end();
    assert_eq!(ended.code, Some(2), "{}", cluster.members[wiped].log_text());
    assert!(
        cluster.members[wiped].log_text().contains("cannot begin at"),
        "{}",
        cluster.members[wiped].log_text()
    );
    // Whoever reaches nobody begins, and waits.
    cluster.members[lags].kill();
    cluster.members[wiped].spawn();
    says(&cluster, wiped, "a cluster begins when all its first members have met");
    cluster.members[lags].spawn();
    says(&cluster, wiped, "it knows this member from another data directory");
    says(&cluster, lags, "is known here from another data directory");
    says(&cluster, wiped, "the cluster has begun without it");
    assert!(has_no_leader(&cluster, wiped) && has_no_leader(&cluster, lags), "they are no quorum");
    // Those who know are.
    cluster.members[leader].start();
    let value = cluster.members[lags].kv().get("k").expect("it serves");
    assert_eq!(value.as_deref(), Some(b"newer".as_slice()));
}

#[test]
fn a_member_that_comes_back_from_an_older_copy_leads_nobody_astray() {
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
    // The leader, which was shown more, can be asked: then the others could not choose a leader without it.
    cluster.members[older].spawn();
    // It waits for the answer of the one that lags until its patience is over, and has that of the leader.
    says(&cluster, older, "takes part without an answer of 1 of the other voters");
    cluster.members[lags].spawn();
    cluster.members[lags].wait_ready();
    let kv = cluster.members[lags].kv();
    assert_eq!(kv.count("new/", false).expect("it serves"), 50);
}
