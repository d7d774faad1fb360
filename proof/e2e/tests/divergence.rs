//! A member whose store differs from what the log produces is reported by the others and serves no clients.
//! [fault-model F70]
//!
//! All its files are valid: a snapshot is rewritten, with correct checksums, around another value and another digest,
//! as a bug or a flipped bit in memory would have left it.

use kattu_rig::programs::{Ended, run};
use kattu_rig::{Cluster, Member, Options, kattu, until};
use kattu_wal::{Item, RealFiles, SnapshotStore, inspect};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const RIGHT: &[u8] = b"as the log has it";
const WRONG: &[u8] = b"as no log has it.";

fn ours(words: &[&str]) -> Ended {
    run(Command::new(kattu()).args(words))
}

/// Replaces the newest snapshot in this directory with one of other tables.
fn diverge(data: &Path) {
    let files = Arc::new(RealFiles::existing(data).expect("a directory"));
    let mut identity = None;
    let mut note = |item| {
        if let Item::Identity(found) = item {
            identity = Some(found);
        }
    };
    inspect(&*files, &mut note).expect("a log");
    let identity = identity.expect("whose it is");
    let open = || SnapshotStore::of(files.clone(), identity.cluster).expect("its snapshots");
    let store = open();
    let newest = store.newest(identity.groups[0]).expect("read").0.expect("a good one");
    let reader = store.open(newest.group, newest.meta.last).expect("read").expect("it is there");
    let mut bytes = Vec::new();
    for chunk in reader.chunks().expect("a header") {
        bytes.extend(chunk.expect("a good chunk"));
    }
    let place = bytes.windows(RIGHT.len()).position(|window| window == RIGHT).expect("the value");
    bytes[place..place + WRONG.len()].copy_from_slice(WRONG);
    let header = bytes.windows(4).position(|four| four == b"KtSt").expect("a store") + 5;
    let numbers = bytes[header..].iter().enumerate().filter(|(_, byte)| **byte < 0x80);
    let (last, _) = numbers.take(2).last().expect("revision and compacted revision");
    bytes[header + last + 1] ^= 1; // the digest after them

    std::fs::remove_file(data.join(&newest.name)).expect("removed");
    let mut writer = open().create(newest.group, newest.meta).expect("a file");
    bytes.chunks(1 << 20).for_each(|chunk| writer.push(chunk).expect("written"));
    writer.finish().expect("a snapshot like any other");
}

#[test]
fn a_divergent_member_is_named_and_serves_no_client_while_the_others_go_on() {
    let flags = ["--digest-interval=200", "--snapshot-log-bytes=1048576", "--snapshot-keep-bytes=0"];
    let flags = flags.map(str::to_string).to_vec();
    let mut cluster = Cluster::with("diverge", Options { members: 3, flags });
    let right = cluster.leader();
    let divergent = (right + 1) % 3;
    let kv = cluster.members[right].kv();
    kv.put_surely("said", RIGHT);
    let data = cluster.members[divergent].data.clone();
    let has_snapshot = |data: &Path| {
        let files = std::fs::read_dir(data).expect("its files");
        files.flatten().any(|file| file.file_name().to_string_lossy().ends_with(".snap"))
    };
    until("a snapshot is taken", || {
        kv.put_surely("much", vec![b'x'; 64 << 10]);
        has_snapshot(&data).then_some(())
    });
    let healthy = ours(&["alarm", "list", "-o", "json", "--endpoints", &cluster.endpoints()]).json();
    assert_eq!(healthy, serde_json::json!([]));

    // A lagging member would be repaired by a snapshot when it comes back, as the log keeps no old entries.
    let status = |member: &Member| until("a status", || member.kv().status().ok());
    let applied = status(&cluster.members[right]).raft_applied_index;
    until("the odd one has everything", || {
        (applied <= status(&cluster.members[divergent]).raft_applied_index).then_some(())
    });
    let id = status(&cluster.members[divergent]).header.expect("a header").member_id;
    let others = cluster.members[right].address();
    cluster.members[divergent].stop("TERM");
    diverge(&data);
    // It may be ready before or after it is reported.
    cluster.members[divergent].spawn().expect("it can be run");
    let named = until("the odd one is named", || {
        kv.put_surely("more", "writes");
        let listed = ours(&["alarm", "list", "--endpoints", &others]).out;
        listed.contains("CORRUPT").then_some(listed)
    });
    assert!(named.contains(&format!("{id:x}")), "{id:x}: {named}");
    assert_eq!(named.matches("CORRUPT").count(), 1, "nobody else: {named}");
    until("it serves nobody", || {
        let refused = cluster.members[divergent].kv().get("said").err()?;
        refused.message().contains("corrupt cluster").then_some(())
    });
    for member in [right, (right + 2) % 3] {
        let kv = cluster.members[member].kv();
        assert_eq!(kv.get("said").expect("a read"), Some(RIGHT.to_vec()));
        kv.put_surely("after", "it");
    }
}
