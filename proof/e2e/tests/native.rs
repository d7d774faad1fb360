//! The native protocol from outside: a client in Python that was written from its page alone (docs/formats/native.md).

use kattu_rig::programs::{run, until};
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
