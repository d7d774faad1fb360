//! The native protocol from outside: a client in Python that was written from its page alone (docs/formats/native.md).

use kattu_rig::programs::{self, own_folder, run, run_with_input, until};
use kattu_rig::{Cluster, Member, Options};
use std::path::PathBuf;
use std::process::Command;

/// The level from which on a cluster has sessions.
const WITH_SESSIONS: u64 = 4;

/// Runs that client against an address; its lines.
pub fn python(address: &str, more: &[&str]) -> String {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../native.py");
    let ended = run(Command::new("python3").arg(program).arg(address).args(more));
    ended.expect_ok().to_string()
}

/// Waits until a cluster that has started has sessions.
pub fn until_it_has_sessions(cluster: &Cluster) {
    until("the cluster has sessions", || {
        let has = |member: &Member| Some(WITH_SESSIONS) <= member.metric("kattu_feature_level");
        cluster.members.iter().all(has).then_some(())
    });
}

#[test]
fn a_client_written_from_the_page_alone_is_served_by_every_member() {
    let mut cluster = Cluster::plan("native-python", Options { members: 3, flags: vec![] });
    cluster.start_all();
    until_it_has_sessions(&cluster);
    for member in &cluster.members {
        let lines = python(&member.address(), &[]);
        assert!(lines.ends_with("\nok\n"), "{}: {lines}", member.name);
        assert!(Some(1000) < member.metric("kattu_native_requests_total"), "{}", member.name);
        assert_eq!(member.metric("kattu_native_requests_under_way"), Some(0), "{}", member.name);
    }
}

fn kattu(cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = Command::new(programs::kattu());
    command.args(words).args(["--endpoints", &cluster.endpoints()]);
    command
}

#[test]
fn sessions_are_listed_and_ended_and_files_lie_in_directories() {
    let mut cluster = Cluster::plan("native-verbs", Options { members: 3, flags: vec![] });
    cluster.start_all();
    until_it_has_sessions(&cluster);
    let says = |words: &[&str]| run(&mut kattu(&cluster, words)).expect_ok().to_string();
    let sessions = || run(&mut kattu(&cluster, &["session", "list", "-o", "json"])).json();
    assert_eq!(sessions()["sessions"], 0);

    says(&["tree", "mkdir", "/services"]);
    says(&["tree", "write", "/services/leader", "host-1"]);
    run_with_input(&mut kattu(&cluster, &["tree", "write", "/services/config"]), "a = 1\n").expect_ok();
    assert_eq!(says(&["tree", "ls", "/"]), "services/\n");
    assert_eq!(says(&["tree", "ls", "/services"]), "config\nleader\n");
    assert_eq!(says(&["tree", "cat", "/services/config"]), "a = 1\n");
    let handed_on = ["tree", "write", "/services/leader", "host-2", "--if", "/services/leader=host-1"];
    says(&handed_on);
    let late = run(&mut kattu(&cluster, &handed_on));
    late.expect_code(1);
    assert!(late.all().contains("/services/leader: its contents are not those"), "{}", late.all());
    assert_eq!(says(&["tree", "cat", "/services/leader"]), "host-2");
    for (words, code) in [
        (&["tree", "cat", "/nothing"][..], 1),
        (&["tree", "write", "/no/such/place", "x"], 1),
        (&["tree", "cat", "services"], 2),
        (&["tree", "ls", "/services", "--if", "no condition"], 2),
        (&["session", "close", "1"], 1),
    ] {
        run(&mut kattu(&cluster, words)).expect_code(code);
    }
    says(&["tree", "rmdir", "/services"]);
    assert_eq!(says(&["tree", "ls", "/"]), "");
    assert_eq!(sessions()["sessions"], 0, "each command has closed its own");
}

#[test]
fn a_load_of_sessions_is_measured_and_its_sessions_are_closed() {
    let mut cluster = Cluster::plan("native-bench", Options { members: 1, flags: vec![] });
    cluster.start_all();
    until_it_has_sessions(&cluster);
    let picture = own_folder("native-bench-picture").join("latencies.svg");
    let picture_at = picture.display().to_string();
    for words in [
        &["put", "--clients", "4", "--conns", "2", "--sessions", "2", "--pipeline", "16"][..],
        &["put", "--clients", "4", "--conns", "2", "--session-each"],
        &["get", "--clients", "4", "--key-space", "100", "--serializable"],
        &["mixed", "--clients", "8", "--key-space", "100", "--rate", "5000", "--plot", &picture_at],
    ] {
        let more = ["--native", "--total", "2000", "-o", "json"];
        let report = run(&mut kattu(&cluster, &[&["bench"], words, &more].concat())).json();
        assert_eq!((&report["ops"], &report["errors"]), (&2000.into(), &0.into()), "{words:?}: {report}");
    }
    assert!(std::fs::read_to_string(&picture).expect("it was drawn").starts_with("<svg "));
    let left = run(&mut kattu(&cluster, &["session", "list", "-o", "json"])).json();
    assert_eq!(left["sessions"], 0);
    run(&mut kattu(&cluster, &["bench", "put", "--pipeline", "4"])).expect_code(2);
    run(&mut kattu(&cluster, &["bench", "put", "--rate", "0"])).expect_code(2);
    for more in [&["--sessions", "2"][..], &["--pipeline", "4"]] {
        let words = [&["bench", "put", "--native", "--session-each"], more].concat();
        run(&mut kattu(&cluster, &words)).expect_code(2);
    }
}
