//! Members that must not start, or must not join: each reports the error and its remedy, and exits with its code.

use kattu_rig::programs::{Ended, own_folder, own_host, run};
use kattu_rig::target::{self, serve};
use kattu_rig::{Cluster, Options, until};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// A lone member's start that is expected to fail.
fn start(data: &Path, host: &str, more: &[&str]) -> Ended {
    let mut command = serve();
    let initial = format!("x=http://{host}:2380");
    command.args(target::flags("x", host, data, &initial, "t")).args(more);
    run(&mut command)
}

fn assert_says(ended: &Ended, code: i32, words: &[&str]) {
    ended.expect_code(code);
    for word in words {
        assert!(ended.err.contains(word), "`{word}` is not said:\n{}", ended.err);
    }
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let folder = own_folder("port");
    for (port, flag) in [("2379", "--listen-client-urls"), ("2380", "--listen-peer-urls")] {
        let host = own_host();
        let address = format!("{host}:{port}");
        let _taken = TcpListener::bind(&address).expect("nobody else uses our address");
        assert_says(&start(&folder.join(port), &host, &[]), 2, &[&address, flag]);
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let folder = own_folder("unwritable");
    let file = folder.join("file");
    std::fs::write(&file, "not a directory").expect("a file");
    for data in [file.join("data"), file.clone(), PathBuf::from("/sys/kattu-e2e")] {
        let ended = start(&data, &own_host(), &[]);
        assert_says(&ended, 4, &[&data.display().to_string()]);
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_second_process_on_one_directory_is_turned_away_and_the_first_lives() {
    let mut cluster = Cluster::start("locked", 1);
    let data = cluster.members[0].data.clone();
    let ended = start(&data, &own_host(), &[]);
    assert_says(&ended, 4, &[&data.display().to_string()]);
    assert!(ended.err.contains("in use") || ended.err.contains("lock"), "{}", ended.err);
    assert!(cluster.members[0].is_running());
    cluster.members[0].kv().put("a", "b").expect("the first goes on");
}

#[test]
fn a_directory_of_another_cluster_or_member_is_refused() {
    let mut cluster = Cluster::start("foreign", 1);
    cluster.members[0].kv().put("a", "b").expect("a put");
    assert_eq!(cluster.members[0].stop("TERM"), Some(0));
    // Another token, name and address: the directory belongs to another member.
    let ended = start(&cluster.members[0].data, &own_host(), &[]);
    assert_says(&ended, 4, &[&cluster.members[0].data.display().to_string()]);
    cluster.members[0].start();
    assert_eq!(cluster.members[0].kv().get("a").expect("a read"), Some(b"b".to_vec()));
}

#[test]
fn flags_that_are_wrong_or_not_offered_are_refused_by_name() {
    let folder = own_folder("flags");
    for (words, said) in [
        (&["--no-such-flag", "1"][..], "--no-such-flag"),
        (&["--heartbeat-interval", "soon"], "--heartbeat-interval"),
        (&["--election-timeout", "-5"], "--election-timeout"),
        (&["--heartbeat-interval", "1000", "--election-timeout", "1000"], "--election-timeout"),
        (&["--max-request-bytes", "0"], "--max-request-bytes"),
        (&["--max-request-bytes", "99999999999"], "--max-request-bytes"),
        (&["--listen-client-urls", "2379"], "--listen-client-urls"),
        (&["--initial-cluster", "nonsense"], "--initial-cluster"),
        (&["--initial-cluster-state", "joined"], "--initial-cluster-state"),
        (&["--election-priority", "256"], "--election-priority"),
        (&["--lease-reads", "--reads=log"], "--reads: log and --lease-reads exclude each other"),
        (&["--sync-delay=1ms"], "it needs --lab"),
        (&["--unsafe-early-answers=on"], "it needs --lab"),
        (&["--protocol=paxos"], "not one of raft, basic-raft"),
        (&["--read-consistency", "eventual"], "--read-consistency"),
        (&["--cert-file", "a.pem"], "--cert-file"),
        (&["--client-cert-auth"], "--client-cert-auth"),
        (&["--peer-cert-file", "a.pem"], "--peer-cert-file"),
        (&["--auth-token", "jwt"], "--auth-token"),
        (&["--discovery", "http://x"], "--discovery"),
        (&["--force-new-cluster"], "--force-new-cluster"),
    ] {
        let ended = start(&folder.join("data"), &own_host(), words);
        assert_eq!(ended.code, Some(2), "{words:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{words:?} is not named: {}", ended.err);
        assert!(!folder.join("data").exists(), "{words:?} left a data directory behind");
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn flags_of_etcd_that_do_nothing_are_accepted_with_one_warning_each() {
    let flags =
        ["--snapshot-count", "10000", "--logger", "zap", "--max-wals=5", "--pre-vote", "--metrics", "basic"];
    let options = Options { members: 1, flags: flags.map(str::to_string).into() };
    let cluster = Cluster::with("warnings", options);
    let log = cluster.members[0].log_text();
    for flag in ["--snapshot-count", "--logger ", "--max-wals", "--pre-vote", "--metrics"] {
        assert_eq!(log.lines().filter(|line| line.contains(flag)).count(), 1, "{flag}:\n{log}");
    }
}

#[test]
fn a_member_with_another_cluster_token_does_not_join() {
    let mut cluster = Cluster::start("token", 3);
    // A member that has lost its directory, and has a wrong token.
    cluster.members[2].kill();
    std::fs::remove_dir_all(&cluster.members[2].data).expect("it is there");
    let arguments = cluster.members[2].arguments_mut();
    let place = arguments.iter().position(|word| word == "--initial-cluster-token").expect("a token");
    arguments[place + 1] = "another-token".to_string();
    cluster.members[2].spawn().expect("it can be run");
    // The stranger reports the reason, in its log or by ending.
    until("the stranger says that its cluster is another one", || {
        let log = cluster.members[2].log_text();
        (log.contains("cluster") && (log.contains("token") || log.contains("another cluster"))).then_some(())
    });
    let log = cluster.members[2].log_text();
    let since = log.rfind("data in").expect("it says where");
    assert!(!log[since..].contains(kattu_rig::READY), "{log}");
    cluster.members[0].kv().put_surely("a", "b"); // the two others are a quorum
    assert_eq!(cluster.members[1].kv().get("a").expect("a read"), Some(b"b".to_vec()));
}
