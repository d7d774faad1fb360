//! An entry is laid out and checksummed once in the whole cluster, and is the same bytes on every disk.
//!
//! A file of its own: the counter belongs to the process, and nothing else may count here.

mod cluster_of_three;

use cluster_of_three::{Cluster, put_until_done, read, run};
use kattu_raft::{Entry, GroupId, LogIndex};
use kattu_runtime::Threading;
use kattu_runtime::metrics::records_encoded;
use kattu_wal::{DataDir, RealFiles, Wal, WalOptions};
use std::path::Path;
use std::sync::Arc;

fn log_of(dir: &Path) -> Vec<Entry> {
    let dir = DataDir::open(Arc::new(RealFiles::existing(dir).expect("it is there")))
        .expect("the directory is free");
    let (mut wal, recovered) =
        Wal::open(dir, WalOptions { reserve_bytes: 0, ..WalOptions::default() }).expect("a clean log");
    let last = recovered[&GroupId(0)].last.index;
    wal.read(GroupId(0), LogIndex(1), last, usize::MAX).expect("all of it")
}

/// Writes through all members and compares the logs; `None` when another leader took over meanwhile, which a busy
/// machine may bring about and which leaves entries behind that no log kept.
async fn attempt() -> Option<()> {
    let before = records_encoded();
    let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
    let leader = cluster.leader().await;
    let term = cluster.engine(leader).term();
    for i in 0..200 {
        put_until_done(&cluster.engine(i % 3), &format!("k{i}"), &"v".repeat(i * 10)).await;
    }
    for i in 0..3 {
        assert_eq!(read(&cluster.engine(i), "k199").await.map(|value| value.len()), Some(1990));
    }
    let terms: Vec<_> = (0..3).map(|i| cluster.engine(i).term()).collect();
    let leaders_seen: Vec<_> = (0..3).map(|i| cluster.engine(i).metrics().leader_changes.get()).collect();
    // Followers first: the leader's log can only be longer than theirs, by entries it alone knows.
    for i in (0..3).filter(|&i| i != leader).chain([leader]) {
        cluster.stop(i);
    }
    let logs: Vec<Vec<Entry>> = cluster.data_dirs().iter().map(|dir| log_of(dir)).collect();
    let leaders = &logs[leader];
    let led_all_along = leaders_seen.iter().all(|&seen| seen == 1)
        && terms.iter().all(|&other| other == term)
        && logs.iter().flatten().all(|entry| entry.id().term == term);
    if !led_all_along {
        return None;
    }
    assert!(leaders.len() >= 200, "{} entries", leaders.len());
    assert_eq!(records_encoded() - before, leaders.len() as u64, "records encoded in the whole cluster");
    for log in &logs {
        assert!(log.len() >= 200, "{} entries", log.len());
        for (own, leaders) in log.iter().zip(leaders) {
            assert_eq!(&own.record()[..], &leaders.record()[..], "entry {}", own.id());
        }
    }
    Some(())
}

#[test]
fn an_entry_is_encoded_once_in_the_whole_cluster_and_is_the_same_bytes_on_every_disk() {
    run(async {
        for _ in 0..10 {
            if attempt().await.is_some() {
                return;
            }
        }
        panic!("ten clusters, and in each the leader changed");
    });
}
