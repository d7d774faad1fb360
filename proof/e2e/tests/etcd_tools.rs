//! etcd's own tools against a cluster of three: they work as with etcd.
//!
//! Each etcdctl runs the same script; the tools come from `cargo xtask tools`.

use kattu_rig::programs::{Ended, run, run_with_input};
use kattu_rig::{Cluster, Options, need, until};
use std::path::Path;
use std::process::Command;

/// Each command of these scripts is run once and must succeed: a disk that stalls for a moment must not change the
/// leader.
const PATIENT: [&str; 2] = ["--election-timeout=5000", "--heartbeat-interval=500"];

fn patient(name: &str, members: usize) -> Cluster {
    Cluster::with(name, Options { members, flags: PATIENT.map(str::to_string).into() })
}

/// It failed for now, or its outcome is unknown, because a member was stalled.
fn is_passing(ended: &Ended) -> bool {
    let words =
        ["request timed out", "deadline exceeded", "unhealthy cluster", "no leader", "leader changed"];
    words.iter().any(|word| ended.err.contains(word))
}

struct Etcdctl<'a> {
    program: &'a Path,
    endpoints: String,
}

impl Etcdctl<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoints]).args(words);
        command
    }

    /// It ends with an error code, in etcd's words.
    #[track_caller]
    fn refused(&self, words: &[&str], why: &str) {
        let ended = self.run(words);
        assert!(![Some(0), None].contains(&ended.code), "{words:?} was done: {}", ended.all());
        assert!(ended.err.contains(why), "{words:?}: {}", ended.err);
    }

    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        run(&mut self.command(words)).expect_ok().to_string()
    }

    fn run(&self, words: &[&str]) -> Ended {
        run(&mut self.command(words))
    }
}

/// The whole script, for either version of etcdctl.
fn works_with(program: &Path, name: &str) {
    let cluster = patient(name, 3);
    let etcdctl = Etcdctl { program, endpoints: cluster.endpoints() };

    // The first command of the README on a new, empty cluster.
    assert_eq!(etcdctl.says(&["endpoint", "status"]).lines().count(), 3);
    let table = etcdctl.says(&["endpoint", "status", "-w", "table"]);
    assert!(cluster.members.iter().all(|member| table.contains(&member.address())), "{table}");
    assert_eq!(etcdctl.says(&["put", "a1", "one"]), "OK\n");
    assert_eq!(etcdctl.says(&["put", "a2", "two"]), "OK\n");
    assert_eq!(etcdctl.says(&["put", "a3", "three"]), "OK\n");
    assert_eq!(etcdctl.says(&["put", "a1", "uno", "--prev-kv"]), "OK\na1\none\n");
    assert_eq!(etcdctl.says(&["get", "a1"]), "a1\nuno\n");
    assert_eq!(etcdctl.says(&["get", "missing"]), "");
    assert_eq!(etcdctl.says(&["get", "a", "--prefix", "--keys-only"]), "a1\n\na2\n\na3\n\n");
    assert_eq!(etcdctl.says(&["get", "a", "--prefix", "--limit=2", "--print-value-only"]), "uno\ntwo\n");
    let by_value =
        etcdctl.says(&["get", "a", "--prefix", "--sort-by=value", "--order=descend", "--print-value-only"]);
    assert_eq!(by_value, "uno\ntwo\nthree\n");
    let by_mod = etcdctl.says(&["get", "a", "--prefix", "--sort-by=modify", "--order=descend", "--limit=1"]);
    assert_eq!(by_mod, "a1\nuno\n");
    assert_eq!(etcdctl.says(&["get", "a1", "--rev=2"]), "a1\none\n");
    assert_eq!(etcdctl.says(&["get", "a1", "a3"]), "a1\nuno\na2\ntwo\n");
    assert_eq!(etcdctl.says(&["get", "a2", "--from-key"]), "a2\ntwo\na3\nthree\n");
    assert_eq!(etcdctl.says(&["get", "a1", "--consistency=s"]), "a1\nuno\n");

    let script = "value(\"a1\") = \"uno\"\nversion(\"a1\") = \"2\"\n\nput t1 yes\nget a2\n\nput t1 no\n\n";
    let answer = run_with_input(&mut etcdctl.command(&["txn"]), script);
    assert_eq!(answer.expect_ok(), "SUCCESS\n\nOK\n\na2\ntwo\n");
    let script = "create(\"a1\") = \"0\"\n\nput t1 yes\n\nput t1 no\ndel a3\n\n";
    let answer = run_with_input(&mut etcdctl.command(&["txn"]), script);
    assert_eq!(answer.expect_ok(), "FAILURE\n\nOK\n\n1\n");
    assert_eq!(etcdctl.says(&["get", "t1", "--print-value-only"]), "no\n");

    assert_eq!(etcdctl.says(&["del", "a2", "--prev-kv"]), "1\na2\ntwo\n");
    assert_eq!(etcdctl.says(&["del", "a", "--prefix"]), "1\n");
    assert_eq!(etcdctl.says(&["del", "a", "--prefix"]), "0\n");

    assert_eq!(etcdctl.says(&["compact", "4"]), "compacted revision 4\n");
    let again = etcdctl.run(&["compact", "4"]);
    assert_ne!(again.code, Some(0));
    assert!(again.err.contains("etcdserver: mvcc: required revision has been compacted"), "{}", again.err);
    let early = etcdctl.run(&["get", "a1", "--rev=2"]);
    assert!(early.err.contains("etcdserver: mvcc: required revision has been compacted"), "{}", early.err);
    let late = etcdctl.run(&["get", "a1", "--rev=99999"]);
    assert!(late.err.contains("etcdserver: mvcc: required revision is a future revision"), "{}", late.err);
    assert_eq!(etcdctl.says(&["get", "a1", "--rev=4", "--print-value-only"]), "one\n");

    let health = etcdctl.run(&["endpoint", "health"]);
    assert_eq!(health.all().matches("is healthy").count(), 3, "{}", health.all());
    health.expect_ok();
    let health = etcdctl.run(&["endpoint", "health", "--cluster"]);
    assert_eq!(health.all().matches("is healthy").count(), 3, "{}", health.all());

    let status = run(&mut etcdctl.command(&["endpoint", "status", "-w", "json"])).json();
    let status = status.as_array().expect("a list");
    assert_eq!(status.len(), 3);
    let leaders: Vec<u64> = status.iter().filter_map(|one| one["Status"]["leader"].as_u64()).collect();
    assert_eq!(leaders.len(), 3);
    assert!(leaders.iter().all(|leader| *leader == leaders[0] && *leader != 0), "{leaders:?}");
    let clusters: Vec<_> = status.iter().map(|one| one["Status"]["header"]["cluster_id"].clone()).collect();
    assert!(clusters.iter().all(|id| *id == clusters[0]), "{clusters:?}");
    let version = status[0]["Status"]["version"].as_str().expect("a version");
    assert!(version.starts_with("3."), "{version}");

    let members = etcdctl.says(&["member", "list"]);
    assert_eq!(members.lines().count(), 3, "{members}");
    for member in &cluster.members {
        let line = members
            .lines()
            .find(|line| line.contains(&member.endpoint.host))
            .expect("every member is listed");
        assert!(line.contains(&member.name) && line.contains("started"), "{line}");
        assert!(line.contains(&format!("http://{}:2380", member.endpoint.host)), "{line}");
        assert!(line.contains(&format!("http://{}:2379", member.endpoint.host)), "{line}");
    }
}

#[test]
fn etcdctl_of_debian_works() {
    works_with(&need!("etcd34/etcdctl"), "etcdctl-34");
}

#[test]
fn etcdctl_of_3_6_works() {
    works_with(&need!("etcd36/etcdctl"), "etcdctl-36");
}

/// etcdctl changes members and leaders, and its output starts the new members.
fn changes_members_with(program: &Path, name: &str) {
    let mut cluster = patient(name, 1);
    let etcdctl =
        |cluster: &Cluster, place: usize| Etcdctl { program, endpoints: cluster.members[place].address() };
    let first = etcdctl(&cluster, 0);
    assert_eq!(first.says(&["put", "a", "1"]), "OK\n");
    for round in 1..=3 {
        let place = cluster.plan_joining(name);
        let url = format!("--peer-urls={}", cluster.members[place].peer_url());
        let called = cluster.members[place].name.clone();
        let mut words = vec!["member", "add", &called, &url];
        if round == 3 {
            words.push("--learner");
        }
        let said = first.says(&words);
        assert!(said.starts_with("Member ") && said.contains(" to cluster "), "{said}");
        let initial = said.lines().find_map(|line| line.strip_prefix("ETCD_INITIAL_CLUSTER=")).expect(&said);
        assert!(said.contains("ETCD_INITIAL_CLUSTER_STATE=\"existing\""), "{said}");
        let arguments = cluster.members[place].arguments_mut();
        let at = arguments.iter().position(|word| word == "--initial-cluster").expect("a list of members");
        arguments[at + 1] = initial.trim_matches('"').to_string();
        arguments.extend(PATIENT.map(str::to_string));
        cluster.members[place].spawn().expect("it can be run");
        until("the new member is listed as started", || {
            let members = first.says(&["member", "list"]);
            let line = members.lines().find(|line| line.contains(&called))?.to_string();
            let is_learner = line.trim_end().ends_with("true");
            (line.contains("started") && is_learner == (round == 3)).then_some(())
        });
    }
    let learner = ids(&first.says(&["member", "list"]), "n3");
    // Only linearizable reads show that it has caught up; an earlier promotion is refused in etcd's words.
    let mut is_open = false;
    until("the learner is promoted", || {
        let ended = first.run(&["member", "promote", &learner]);
        if ended.code == Some(0) {
            assert!(ended.out.contains("promoted in cluster"), "{}", ended.out);
            return Some(());
        }
        // A voter with a stalled disk counts as lost for the moment.
        let not_yet = ["in sync with leader", "not enough started members"];
        if not_yet.iter().any(|words| ended.err.contains(words)) {
            return None;
        }
        // An unanswered request may have been carried out: then it is refused the next time.
        let is_done = is_open && ended.err.contains("etcdserver: can only promote a learner member");
        assert!(is_done || is_passing(&ended), "{}", ended.err);
        is_open = true;
        is_done.then_some(())
    });
    first.refused(&["member", "promote", &learner], "etcdserver: can only promote a learner member");

    let members = first.says(&["member", "list"]);
    let all = Etcdctl { program, endpoints: cluster.endpoints() };
    let (leader, target) = until("leadership moves where it is asked to", || {
        let leader = cluster.leader();
        let target = (0..4).find(|i| *i != leader).expect("four members");
        let moved = all.run(&["move-leader", &ids(&members, &cluster.members[target].name)]);
        if moved.code != Some(0) {
            // It has one election timeout for that; and another member may lead a moment after etcdctl has found the
            // leader.
            assert!(moved.err.contains("not leader") || is_passing(&moved), "{}", moved.err);
            return None;
        }
        assert!(moved.out.contains("Leadership transferred from"), "{}", moved.out);
        Some((leader, target))
    });
    until("it leads", || (cluster.leader() == target).then_some(()));
    let (at_leader, target_id) = (etcdctl(&cluster, leader), ids(&members, &cluster.members[target].name));
    // etcdctl itself looks for the leader among the endpoints, and reports if it is not there.
    assert_ne!(at_leader.run(&["move-leader", &target_id]).code, Some(0));

    let moves = (0..4).find(|i| *i != target).expect("four members");
    let moves_id = ids(&members, &cluster.members[moves].name);
    let url = format!("--peer-urls={}", cluster.members[moves].peer_url());
    let updated = all.says(&["member", "update", &moves_id, &url]);
    assert!(updated.contains("updated in cluster"), "{updated}");

    let goes = (1..4).find(|i| *i != target && *i != moves).expect("four members");
    let goes_id = ids(&members, &cluster.members[goes].name);
    let stays = etcdctl(&cluster, target);
    let removed = stays.says(&["member", "remove", &goes_id]);
    assert!(removed.contains("removed from cluster"), "{removed}");
    cluster.members[goes].wait_end().expect_ok();
    stays.refused(&["member", "remove", &goes_id], "etcdserver: member not found");
    assert_eq!(stays.says(&["member", "list"]).lines().count(), 3);
    assert_eq!(stays.says(&["get", "a", "--print-value-only"]), "1\n");
}

/// The id of the member of this name, from `member list`.
#[track_caller]
fn ids(list: &str, name: &str) -> String {
    let line = list.lines().find(|line| line.split(", ").nth(2) == Some(name)).expect(list);
    line.split(',').next().expect("an id").to_string()
}

/// Invalid requests are refused in etcd's words, with its exit code, and change nothing.
fn is_refused_with(program: &Path, name: &str) {
    let cluster = Cluster::start(name, 1);
    let etcdctl = Etcdctl { program, endpoints: cluster.endpoints() };
    assert_eq!(etcdctl.says(&["put", "a", "1"]), "OK\n");
    let own = ids(&etcdctl.says(&["member", "list"]), &cluster.members[0].name);
    let few = "etcdserver: re-configuration failed due to not enough started members";
    etcdctl.refused(&["member", "remove", &own], few);
    etcdctl.refused(&["member", "promote", &own], "etcdserver: can only promote a learner member");
    // No process listens there. The two are added, cost nothing, and stay as they are.
    let nowhere = format!("--peer-urls=http://{}:2380", kattu_rig::programs::own_host());
    let voter = format!("--peer-urls=http://{}:2380", kattu_rig::programs::own_host());
    let added = etcdctl.says(&["member", "add", "ghost", "--learner", &nowhere]);
    assert!(added.contains("ETCD_INITIAL_CLUSTER_STATE=\"existing\""), "{added}");
    etcdctl.says(&["member", "add", "late", &voter]);
    assert_eq!(etcdctl.says(&["put", "a", "2"]), "OK\n");
    etcdctl.refused(&["member", "add", "twin", &nowhere], "etcdserver: Peer URLs already exists");
    let list = etcdctl.says(&["member", "list"]);
    let unstarted: Vec<&str> = list.lines().filter(|line| line.contains("unstarted")).collect();
    assert_eq!(unstarted.len(), 2, "{list}");
    for line in unstarted {
        let id = line.split(',').next().expect("an id");
        let lags = "etcdserver: can only promote a learner member which is in sync with leader";
        etcdctl.refused(&["member", "promote", id], lags);
        etcdctl.refused(&["move-leader", id], "etcdserver: bad leader transferee");
        assert!(etcdctl.says(&["member", "remove", id]).contains("removed from cluster"));
    }
    etcdctl.refused(&["member", "update", "abc", &nowhere], "etcdserver: member not found");
    etcdctl.refused(&["member", "remove", "abc"], "etcdserver: member not found");
    etcdctl.refused(&["move-leader", "abc"], "etcdserver: bad leader transferee");
    assert_eq!(etcdctl.says(&["member", "list"]).lines().count(), 1);
    assert_eq!(etcdctl.says(&["get", "a", "--print-value-only"]), "2\n");
}

#[test]
fn etcdctl_of_debian_is_refused_what_makes_no_sense() {
    is_refused_with(&need!("etcd34/etcdctl"), "refused-34");
}

#[test]
fn etcdctl_of_3_6_is_refused_what_makes_no_sense() {
    is_refused_with(&need!("etcd36/etcdctl"), "refused-36");
}

#[test]
fn etcdctl_of_debian_changes_members() {
    changes_members_with(&need!("etcd34/etcdctl"), "members-34");
}

#[test]
fn etcdctl_of_3_6_changes_members() {
    changes_members_with(&need!("etcd36/etcdctl"), "members-36");
}

/// `E2E_BENCH_PUTS=100000` runs the full number; CI takes a slice.
#[test]
fn the_benchmark_tool_puts_without_an_error() {
    let benchmark = need!("etcd36/benchmark");
    let total = std::env::var("E2E_BENCH_PUTS").unwrap_or_else(|_| "20000".to_string());
    let cluster = patient("benchmark", 3);
    let mut command = Command::new(benchmark);
    command.args(["--endpoints", &cluster.endpoints(), "--conns", "100", "--clients", "256"]);
    command.args([
        "put",
        "--key-size",
        "8",
        "--val-size",
        "256",
        "--sequential-keys",
        "--key-space-size",
        "100000",
    ]);
    let report = run(command.args(["--total", &total]));
    let text = report.expect_ok();
    assert!(text.contains("Requests/sec"), "{text}");
    assert!(!text.contains("Error distribution"), "{text}");
    let leader = cluster.leader();
    let revision = cluster.members[leader].kv().get("x").map(|_| ()).and_then(|()| {
        let status = cluster.members[leader].kv().status()?;
        Ok(status.header.map(|header| header.revision).unwrap_or(0))
    });
    // Each put raised the revision by one, whatever its key.
    let total: i64 = total.parse().expect("a number");
    assert_eq!(revision.expect("the leader answers"), total + 1);
}
