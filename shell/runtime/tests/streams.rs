//! Three real members that send their appends over several links to each peer.

mod cluster_of_three;

use cluster_of_three::{Cluster, put, put_until_done, read, run};
use kattu_node::contract::{MemberChange, Outcome, Request};
use kattu_raft::policy::Capacity;
use kattu_raft::{Duration, NbRaft, Protocol};
use kattu_runtime::streams::{Dispatch, Streams};

/// Entries that followers have taken from their windows.
fn early(cluster: &Cluster) -> u64 {
    (0..3).map(|i| cluster.engine(i).metrics().window_entries.get()).sum()
}

/// Many puts at once, too large to share an entry, in appends of one entry each: a batch takes all links.
async fn puts_at_once(cluster: &Cluster, round: usize) -> usize {
    let engine = cluster.engine(cluster.leader().await);
    let value = format!("{round:04096}");
    let calls: Vec<_> = (0..300)
        .map(|i| {
            let engine = engine.clone();
            let put = put(&format!("k{i}"), &value);
            tokio::spawn(async move { engine.call(put).await })
        })
        .collect();
    let mut done = 0;
    for call in calls {
        done += usize::from(matches!(call.await.expect("no panic"), Outcome::Done(_)));
    }
    done
}

async fn with_windows(dispatch: Dispatch) -> Cluster {
    let cluster = Cluster::with_streams(Streams { links_per_peer: 4, dispatch });
    let window = Capacity { entries: 10_000, bytes: 64 << 20 };
    let change =
        Request::Change(MemberChange::Protocol(Protocol::NbRaft(NbRaft { window, ..NbRaft::default() })));
    // The cluster's level rises when all members have met.
    for _ in 0..600 {
        if let Outcome::Done(_) = cluster.engine(cluster.leader().await).call(change.clone()).await {
            return cluster;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the protocol does not change");
}

/// A follower is killed and comes back: all links to it are opened anew, and what is written then reaches it.
async fn a_follower_comes_back(cluster: &mut Cluster) {
    let follower = (cluster.leader().await + 1) % 3;
    cluster.kill(follower);
    put_until_done(&cluster.engine(cluster.leader().await), "meanwhile", "x").await;
    cluster.restart(follower);
    assert_eq!(read(&cluster.engine(follower), "meanwhile").await.as_deref(), Some("x"));
    puts_at_once(cluster, 100).await;
    put_until_done(&cluster.engine(follower), "k0", "last").await;
    assert_eq!(read(&cluster.engine(follower), "k0").await.as_deref(), Some("last"));
}

#[test]
fn windows_close_the_gaps_that_unordered_links_leave() {
    run(async {
        let mut cluster = with_windows(Dispatch::Unordered).await;
        for round in 0..100 {
            puts_at_once(&cluster, round).await;
            if 0 < early(&cluster) {
                break;
            }
        }
        assert!(0 < early(&cluster), "no entry has overtaken another one");
        a_follower_comes_back(&mut cluster).await;
    });
}

#[test]
fn ordered_links_leave_no_gap() {
    run(async {
        let mut cluster = with_windows(Dispatch::Ordered).await;
        let mut done = 0;
        for round in 0..10 {
            done += puts_at_once(&cluster, round).await;
        }
        assert!(0 < done, "no put was done");
        assert_eq!(early(&cluster), 0, "what came early waited in front of the replica");
        a_follower_comes_back(&mut cluster).await;
    });
}
