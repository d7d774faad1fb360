//! Directories of older versions open, and hold what was written. `cargo xtask upgrade` does the same with a whole
//! cluster of an older version. [fault-model P13]

use kattu_proto::etcdserverpb::RangeRequest;
use kattu_rig::Cluster;
use kattu_rig::programs::run;
use kattu_rig::{Options, kattu, until};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A killed single member's directory; `README.md` beside it tells how it was made. 300 puts of 50 keys, then a delete
/// of one key and one of ten, with two snapshots in between.
const BEFORE_FEATURE_LEVELS: &str = "before-feature-levels.tar.gz";
/// Its newest snapshot. The log alone begins with the first put: a member that could read no snapshot would have all,
/// too.
const NEWEST_SNAPSHOT: &str = "snapshot-00000000-0000000000000102-0000000000000001.snap";
/// The same by a later version, whose snapshots and log have configurations of layout 1 with a learner.
const BEFORE_EXTENSIONS: &str = "before-extensions.tar.gz";
/// Its newest snapshot.
const SNAPSHOT_WITH_A_LEARNER: &str = "snapshot-00000000-0000000000000107-0000000000000001.snap";
/// That member's peer URL: part of its identity.
const PEER_URL: &str = "http://127.77.0.1:2380";
const PUTS: i64 = 300;
const KEYS: i64 = 50;

/// The value of the n-th put.
fn value(number: i64) -> Vec<u8> {
    format!("{number:03} ").repeat(2048).into_bytes()
}

/// The keys deleted at the end: 7, and 10 to 19.
fn is_deleted(key: i64) -> bool {
    key == 7 || key / 10 == 1
}

fn key(number: i64) -> String {
    format!("key/{number:02}")
}

/// A member on a directory of an older version.
fn open(archive: &str) -> Cluster {
    let mut cluster = Cluster::plan("upgrades", Options { members: 1, ..Options::default() });
    let (folder, packed) = (cluster.folder().to_path_buf(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let packed = packed.join("tests/directories").join(archive);
    let unpacked = Command::new("tar").arg("xzf").arg(&packed).arg("-C").arg(&folder).status();
    assert!(unpacked.is_ok_and(|status| status.success()), "{}", packed.display());
    let member = &mut cluster.members[0];
    std::fs::rename(folder.join("n0.kattu"), &member.data).expect("the directory was packed");
    let named = ["--initial-advertise-peer-urls", PEER_URL, "--initial-cluster", &format!("n0={PEER_URL}")];
    for flag in named.chunks(2) {
        let at = member.arguments_mut().iter().position(|word| word == flag[0]).expect("it is given");
        member.arguments_mut()[at + 1] = flag[1].to_string();
    }
    cluster.start_all();
    cluster
}

fn is_whole(cluster: &Cluster) {
    let kv = cluster.members[0].kv();
    for number in 0..KEYS {
        let stored = until("an answer", || kv.get(key(number)).ok());
        let newest = (1..=PUTS).rev().find(|put| put % KEYS == number).expect("each key was put");
        let expected = (!is_deleted(number)).then(|| value(newest));
        assert!(stored == expected, "{} is not what was written", key(number));
    }
    // The first put made revision 2.
    for put in [1, 49, 50, 131, 132, 257, 258, PUTS] {
        let request =
            RangeRequest { key: key(put % KEYS).into_bytes(), revision: put + 1, ..RangeRequest::default() };
        let old = kv.range(request).expect("nothing was compacted");
        assert_eq!(old.kvs.len(), 1, "put {put}");
        assert_eq!((old.kvs[0].mod_revision, &old.kvs[0].value), (put + 1, &value(put)), "put {put}");
    }
}

#[test]
fn a_directory_from_before_feature_levels_opens_and_is_raised_to_the_first() {
    let mut cluster = open(BEFORE_FEATURE_LEVELS);
    let said = cluster.members[0].log_text();
    assert!(
        said.contains(&format!("starts from {NEWEST_SNAPSHOT}")),
        "it starts from something else:\n{said}"
    );
    is_whole(&cluster);
    let kv = cluster.members[0].kv();
    let revision =
        kv.get("key/00").and_then(|_| kv.status()).expect("it serves").header.expect("a header").revision;
    assert_eq!(revision, 1 + PUTS + 2, "each put and both deletes, and nothing else");
    until("the feature level is raised", || {
        (1 <= cluster.members[0].metric("kattu_feature_level")?).then_some(())
    });
    kv.put_surely("later", "written by the newer version");
    cluster.kill_all();
    cluster.start_all();
    is_whole(&cluster);
    let later = until("an answer", || cluster.members[0].kv().get("later").ok());
    assert_eq!(later.as_deref(), Some(&b"written by the newer version"[..]));
}

/// Election timeout in force, and peer URLs of the members.
fn configuration(cluster: &Cluster) -> (u64, Vec<String>) {
    let ask = |words: &[&str]| -> Value {
        let endpoints = cluster.endpoints();
        let reach = ["-o", "json", "--endpoints", &endpoints];
        run(Command::new(kattu()).args(words).args(reach)).json()
    };
    let members = ask(&["member", "list"]);
    let members = members.as_array().expect("a list of members").iter();
    let urls = members.map(|member| member["peer_urls"][0].as_str().unwrap_or_default().to_string());
    (ask(&["status"])[0]["election_timeout_ms"].as_u64().unwrap_or_default(), urls.collect())
}

/// Goal: configurations of layout 1, in the log and in snapshots, are read, and the next one has extensions.
#[test]
fn a_directory_from_before_extensions_opens_and_its_flags_become_the_clusters_timing() {
    let mut cluster = open(BEFORE_EXTENSIONS);
    let said = cluster.members[0].log_text();
    assert!(
        said.contains(&format!("starts from {SNAPSHOT_WITH_A_LEARNER}")),
        "it starts from something else:\n{said}"
    );
    is_whole(&cluster);
    until("the level that brings extensions", || {
        (3 <= cluster.members[0].metric("kattu_feature_level")?).then_some(())
    });
    let (endpoints, timing) = (cluster.endpoints(), ["timing", "--election-timeout", "2500", "--endpoints"]);
    let set = || run(Command::new(kattu()).args(timing).arg(&endpoints)).code == Some(0);
    until("the timing is set", || set().then_some(()));
    let expected = (2500, vec![PEER_URL.to_string()]); // the learner was removed
    assert_eq!(configuration(&cluster), expected);
    cluster.kill_all();
    cluster.start_all();
    is_whole(&cluster);
    assert_eq!(configuration(&cluster), expected);
}
