//! Real members, real files: logs that stay short, restarts from snapshots, members fed by snapshot, damaged snapshots.

mod cluster_of_three;

use cluster_of_three::{Cluster, put, put_until_done, read, run, status};
use kattu_kv::api::Revision;
use kattu_node::contract::Outcome;
use kattu_raft::LogIndex;
use kattu_runtime::Threading;
use std::path::{Path, PathBuf};

/// Bytes of value in one write.
const VALUE: usize = 4 << 10;

/// Writes `count` values, 50 keys over and over, 32 at a time, and compacts what they leave behind now and then.
async fn load(cluster: &Cluster, member: usize, count: usize) {
    let engine = cluster.engine(member);
    for first in (0..count).step_by(32) {
        let calls: Vec<_> = (first..count.min(first + 32))
            .map(|i| {
                let (engine, value) = (engine.clone(), format!("{i:07}").repeat(VALUE / 7));
                tokio::spawn(async move { engine.call(put(&format!("k{:02}", i % 50), &value)).await })
            })
            .collect();
        let mut revision = Revision::NONE;
        for call in calls {
            if let Outcome::Done(reply) = call.await.expect("no panic")
                && let kattu_node::contract::ReplyBody::Kv(response) = reply.body
            {
                revision = revision.max(response.revision);
            }
        }
        if Revision::NONE < revision {
            let _ = engine.call(cluster_of_three::compact(revision)).await; // another may have been first
        }
    }
}

/// Bytes of files whose names begin and end so.
fn bytes_of(dir: &Path, prefix: &str, suffix: &str) -> u64 {
    files_of(dir, prefix, suffix).iter().map(|path| path.metadata().map_or(0, |file| file.len())).sum()
}

/// Files whose names begin and end so, by name.
fn files_of(dir: &Path, prefix: &str, suffix: &str) -> Vec<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(prefix) && name.ends_with(suffix)
    };
    let entries = std::fs::read_dir(dir).expect("a directory").filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = entries.filter(named).collect();
    files.sort();
    files
}

/// Waits until the condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..4800 {
        if holds().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("not within two minutes: {what}");
}

async fn the_log_stays_short(place: Threading) {
    let mut cluster = Cluster::with_snapshots(3, place, 128 << 10);
    let leader = cluster.leader().await;
    for _ in 0..8 {
        load(&cluster, leader, 256).await; // a megabyte
        for dir in cluster.data_dirs() {
            // The log that makes a snapshot due, twice (one is being taken), what stays, and segments that are made ready.
            // A disk may hold up the snapshot that the log waits for; as many segments as were used meanwhile are kept to be used
            // again, until the next snapshot shows that fewer will do.
            until("the log is short", async || {
                let is_short = bytes_of(&dir, "log-", ".seg") < 4 << 20;
                if !is_short {
                    load(&cluster, leader, 32).await;
                }
                is_short
            })
            .await;
        }
    }
    for i in 0..3 {
        let engine = cluster.engine(i);
        let metrics = engine.metrics();
        until("snapshots are taken and segments go", async || {
            let status = status(&engine).await;
            // On a busy machine a member that falls behind is fed by a snapshot instead.
            let snapshots = metrics.snapshots_taken.get() + metrics.snapshots_installed.get();
            let all =
                LogIndex(100) < status.first && status.first <= status.snapshot.next() && 2 <= snapshots;
            if !all {
                load(&cluster, leader, 32).await; // a member that was fed takes its next one when the log has grown
            }
            all
        })
        .await;
        assert_eq!(metrics.snapshots_failed.get(), 0);
    }
    for dir in cluster.data_dirs() {
        until("older snapshots go", async || files_of(&dir, "snapshot-", ".snap").len() <= 3).await;
    }
    // Killed all at once, they come back with snapshot and tail.
    put_until_done(&cluster.engine(leader), "last", "written").await;
    (0..3).for_each(|i| cluster.kill(i));
    (0..3).for_each(|i| cluster.restart(i));
    for i in 0..3 {
        assert!(LogIndex(100) < status(&cluster.engine(i)).await.applied, "it starts from its snapshot");
    }
    for i in 0..3 {
        assert_eq!(read(&cluster.engine(i), "last").await.as_deref(), Some("written"));
        assert!(read(&cluster.engine(i), "k49").await.is_some());
    }
}

#[test]
fn the_log_stays_short_while_snapshots_are_taken_and_a_restart_begins_with_one_inline() {
    run(the_log_stays_short(Threading::Inline));
}

#[test]
fn the_log_stays_short_while_snapshots_are_taken_and_a_restart_begins_with_one_with_threads() {
    run(the_log_stays_short(Threading::Thread));
}

async fn fed_by_snapshot(place: Threading) {
    let mut cluster = Cluster::with_snapshots(3, place, 0);
    let leader = cluster.leader().await;
    let (away, third) = ((leader + 1) % 3, (leader + 2) % 3);
    load(&cluster, leader, 64).await;
    cluster.kill(away);
    let ends = status(&cluster.engine(leader)).await.last;
    load(&cluster, leader, 1024).await;
    for i in [leader, third] {
        let engine = cluster.engine(i);
        until("its log ends before the others' begin", async || ends < status(&engine).await.first).await;
    }
    let end = status(&cluster.engine(leader)).await;
    cluster.restart(away);

    // Under load it is fed, and converges.
    let engine = cluster.engine(away);
    until("it is fed", async || {
        load(&cluster, leader, 64).await;
        end.last <= status(&engine).await.applied
    })
    .await;
    assert!(engine.metrics().snapshots_installed.get() >= 1, "by snapshot");
    assert!(engine.metrics().snapshot_chunks_received.get() >= 2, "in pieces");
    put_until_done(&cluster.engine(leader), "last", "written").await;
    assert_eq!(read(&engine, "last").await.as_deref(), Some("written"));
    // It is a member like any other again: with it, the leader can commit without the third.
    cluster.kill(third);
    put_until_done(&cluster.engine(leader), "last", "by two").await;
    cluster.kill(away);
    cluster.restart(away);
    assert_eq!(read(&cluster.engine(away), "last").await.as_deref(), Some("by two"));
}

#[test]
fn a_member_that_was_away_for_longer_than_the_log_reaches_is_fed_by_snapshot_under_load_inline() {
    run(fed_by_snapshot(Threading::Inline));
}

#[test]
fn a_member_that_was_away_for_longer_than_the_log_reaches_is_fed_by_snapshot_under_load_with_threads() {
    run(fed_by_snapshot(Threading::Thread));
}

/// A member that runs may remove an old snapshot that was listed a moment ago: then there is nothing to flip.
fn flip_a_bit(path: &Path) {
    let mut bytes = match std::fs::read(path) {
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => return,
        read => read.expect("a file"),
    };
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(path, bytes).expect("written back");
}

#[test]
fn a_damaged_newest_snapshot_falls_back_to_the_one_before() {
    run(async {
        let mut cluster = Cluster::with_snapshots(1, Threading::Inline, 0);
        let leader = cluster.leader().await;
        load(&cluster, leader, 1024).await;
        put_until_done(&cluster.engine(0), "last", "written").await;
        let dir = cluster.data_dirs().remove(0);
        until("two snapshots are there", async || files_of(&dir, "snapshot-", ".snap").len() >= 2).await;
        cluster.kill(0);
        let snapshots = files_of(&dir, "snapshot-", ".snap");
        flip_a_bit(snapshots.last().expect("there are two"));
        cluster.restart(0);
        assert_eq!(read(&cluster.engine(0), "last").await.as_deref(), Some("written"));
        assert!(read(&cluster.engine(0), "k49").await.is_some());
    });
}

#[test]
fn a_member_whose_snapshots_are_all_damaged_is_fed_by_its_leader() {
    run(async {
        let mut cluster = Cluster::with_snapshots(3, Threading::Inline, 0);
        let leader = cluster.leader().await;
        load(&cluster, leader, 1024).await;
        let bad = (leader + 1) % 3;
        let engine = cluster.engine(bad);
        until("it has taken one", async || status(&engine).await.snapshot > LogIndex(0)).await;
        until("its log is cut", async || LogIndex(1) < status(&engine).await.first).await;
        put_until_done(&engine, "last", "written").await; // and that is on its disk
        cluster.kill(bad);
        let dir = cluster.data_dirs().remove(bad);
        files_of(&dir, "snapshot-", ".snap").iter().for_each(|path| flip_a_bit(path));
        cluster.restart(bad);
        assert_eq!(read(&cluster.engine(bad), "last").await.as_deref(), Some("written"));
        // A second one, if the leader has taken its next meanwhile: it keeps no log behind it here.
        assert!(1 <= cluster.engine(bad).metrics().snapshots_installed.get());
    });
}

#[test]
fn a_member_is_fed_although_the_snapshots_of_all_others_rot_while_they_run() {
    run(async {
        let mut cluster = Cluster::with_snapshots(3, Threading::Inline, 0);
        let leader = cluster.leader().await;
        let away = (leader + 1) % 3;
        put_until_done(&cluster.engine(away), "first", "written").await;
        cluster.kill(away);
        load(&cluster, leader, 1024).await;
        put_until_done(&cluster.engine(leader), "last", "written").await;
        for i in (0..3).filter(|&i| i != away) {
            let (engine, dir) = (cluster.engine(i), cluster.data_dirs().remove(i));
            until("its log is cut", async || LogIndex(100) < status(&engine).await.first).await;
            files_of(&dir, "snapshot-", ".snap").iter().for_each(|path| flip_a_bit(path));
        }
        cluster.restart(away);
        let engine = cluster.engine(away);
        until("it is fed", async || 1 <= engine.metrics().snapshots_installed.get()).await;
        assert_eq!(read(&engine, "last").await.as_deref(), Some("written"));
    });
}
