//! etcd's own tools against a cluster of three: they must not notice.
//!
//! Each etcdctl runs the same script; the tools come from `cargo xtask tools`.

use kattu_e2e::process::{Ended, run, run_with_input};
use kattu_e2e::{Cluster, need};
use std::path::Path;
use std::process::Command;

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
    let cluster = Cluster::start(name, 3);
    let etcdctl = Etcdctl { program, endpoints: cluster.endpoints() };

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
        let line = members.lines().find(|line| line.contains(&member.host)).expect("every member is listed");
        assert!(line.contains(&member.name) && line.contains("started"), "{line}");
        assert!(line.contains(&format!("http://{}:2380", member.host)), "{line}");
        assert!(line.contains(&format!("http://{}:2379", member.host)), "{line}");
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

/// The full number is run by `E2E_BENCH_PUTS=100000`; CI takes a slice.
#[test]
fn the_benchmark_tool_puts_without_an_error() {
    let benchmark = need!("etcd36/benchmark");
    let total = std::env::var("E2E_BENCH_PUTS").unwrap_or_else(|_| "20000".to_string());
    let cluster = Cluster::start("benchmark", 3);
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
    // Each put raised the revision by one, whichever key it hit.
    let total: i64 = total.parse().expect("a number");
    assert_eq!(revision.expect("the leader answers"), total + 1);
}
