//! Three real members in one process, killed and restarted.

mod cluster_of_three;

use cluster_of_three::{Cluster, put, put_until_done, read, run, status};
use kattu_node::contract::{Outcome, Refusal};
use kattu_raft::Duration;
use kattu_runtime::Threading;

async fn survives_kills(log_io: Threading, apply: Threading) {
    let mut cluster = Cluster::new(3, log_io, apply);
    let leader = cluster.leader().await;
    for i in 0..50 {
        put_until_done(&cluster.engine(i % 3), &format!("k{i}"), "before").await;
    }
    cluster.kill(leader);
    let others: Vec<usize> = (0..3).filter(|&i| i != leader).collect();
    for i in 0..50 {
        put_until_done(&cluster.engine(others[i % 2]), &format!("m{i}"), "without").await;
    }
    for &i in &others {
        cluster.kill(i);
    }
    for i in 0..3 {
        cluster.restart(i);
    }
    for i in 0..50 {
        let engine = cluster.engine(i % 3);
        assert_eq!(read(&engine, &format!("k{i}")).await.as_deref(), Some("before"));
        assert_eq!(read(&engine, &format!("m{i}")).await.as_deref(), Some("without"));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_all_are_killed_inline() {
    run(survives_kills(Threading::Inline, Threading::Inline));
}

#[test]
fn nothing_acknowledged_is_lost_when_all_are_killed_with_threads() {
    run(survives_kills(Threading::Thread, Threading::Thread));
}

#[test]
fn many_clients_share_syncs() {
    run(async {
        let cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        let mut tries = Vec::new();
        // On a busy machine another leader may take over, or the puts trickle in.
        while tries.len() < 10 {
            let engine = cluster.engine(cluster.leader().await);
            put_until_done(&engine, "first", "x").await;
            let before = engine.metrics().sync.count();
            let calls: Vec<_> = (0..500)
                .map(|i| {
                    let engine = engine.clone();
                    tokio::spawn(async move { engine.call(put(&format!("k{i}"), "v")).await })
                })
                .collect();
            let mut done = 0;
            for call in calls {
                done += usize::from(matches!(call.await.expect("no panic"), Outcome::Done(_)));
            }
            let syncs = engine.metrics().sync.count() - before;
            if done == 500 && syncs < 250 {
                return;
            }
            tries.push((done, syncs));
            let judged = tries.iter().filter(|(done, _)| *done == 500).count();
            assert!(judged < 4, "of 500 concurrent puts were done, in so many syncs: {tries:?}");
        }
        panic!("of 500 concurrent puts were done, in so many syncs: {tries:?}");
    });
}

#[test]
fn a_lone_write_waits_for_no_timer() {
    run(async {
        let cluster = Cluster::with_timeouts(3, Duration::from_secs(3), Duration::from_secs(1));
        let leader = cluster.leader().await;
        let large = "v".repeat(64 << 10); // followers have it read by a job
        for engine in [cluster.engine(leader), cluster.engine((leader + 1) % 3)] {
            put_until_done(&engine, "first", "x").await;
            for value in ["v", &large] {
                let mut took = Vec::new();
                for i in 0..30 {
                    let began = std::time::Instant::now();
                    put_until_done(&engine, &format!("k{i}"), value).await;
                    took.push(began.elapsed());
                }
                took.sort_unstable();
                // A client that waits for heartbeats waits for nearly a second each time; a busy disk holds up some.
                assert!(took[10] < std::time::Duration::from_millis(500), "{} bytes: {took:?}", value.len());
            }
            assert_eq!(engine.metrics().dropped_unread.get(), 0);
        }
    });
}

#[test]
fn a_single_member_serves_alone_and_after_a_clean_stop() {
    run(async {
        let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
        put_until_done(&cluster.engine(0), "a", "1").await;
        cluster.stop(0);
        cluster.restart(0);
        assert_eq!(read(&cluster.engine(0), "a").await.as_deref(), Some("1"));
    });
}

#[test]
fn a_member_looks_up_from_its_log_while_it_replays_it() {
    run(async {
        let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
        let value = "v".repeat(1 << 20);
        for i in 0..28 {
            put_until_done(&cluster.engine(0), &format!("k{i}"), &value).await;
        }
        let last = status(&cluster.engine(0)).await.last;
        cluster.stop(0);
        cluster.restart(0);
        let engine = cluster.engine(0);
        let (mut polls, mut seen_half_way) = (0, false);
        loop {
            let now = status(&engine).await;
            polls += 1;
            if last <= now.applied {
                break;
            }
            seen_half_way |= now.applied.0 > 0;
        }
        let batches = engine.metrics().batches.get();
        // 20 MiB are not in memory any more and are read in pieces of 2.
        assert!(seen_half_way || batches > polls + 6, "{batches} batches, {polls} of them for status");
    });
}

/// Goal: a follower that can hold less than its leader is not filled beyond its quota: only the leader can refuse.
#[test]
fn the_least_quota_of_all_members_rules() {
    const QUOTA: u64 = 256 << 10;
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        let small = (cluster.leader().await + 1) % 3;
        cluster.kill(small);
        cluster.tell(small, |config| config.quota_bytes = QUOTA);
        cluster.restart(small);
        // Its links are open, so it has announced its quota, or will.
        put_until_done(&cluster.engine(small), "first", "x").await;
        let leader = loop {
            let leader = cluster.leader().await;
            if leader != small {
                break leader;
            }
            cluster.kill(small); // another member has to lead: this one would refuse by itself
            cluster.restart(small);
        };
        let (engine, value) = (cluster.engine(leader), "v".repeat(1024));
        let mut refused = None;
        for i in 0..4 * QUOTA / 1024 {
            match engine.call(put(&format!("k{i}"), &value)).await {
                Outcome::Done(_) => {}
                outcome => {
                    refused = Some((i, outcome));
                    break;
                }
            }
        }
        let (puts, outcome) = refused.expect("one member can hold no more");
        assert_eq!(outcome, Outcome::Refused(Refusal::NoSpace));
        assert!(puts * 1024 < QUOTA, "after {puts} puts");
        let engine = cluster.engine((small + 1) % 3);
        cluster.kill(small);
        cluster.tell(small, |config| config.quota_bytes = 0);
        cluster.restart(small);
        put_until_done(&engine, "last", "x").await;
    });
}
