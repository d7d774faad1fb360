//! Leases switched on and off at three real members, one after the other.

mod cluster_of_three;

use cluster_of_three::{Cluster, put_until_done, read, run, status};
use kattu_node::contract::{MemberChange, Outcome, Request};
use kattu_raft::{Duration, LeaderLease, NodeId, ReadPath, Timing};
use kattu_runtime::Threading;
use std::time::Instant;

const LEASE: Option<LeaderLease> =
    Some(LeaderLease { rho: 5_000, margin: Duration::ZERO, watch_clocks: true });
const ELECTION_TIMEOUT: Duration = Duration::from_millis(500); // of `Cluster::new`

/// Waits until the leader's status is right while these members have no leases: it names the other members whose vote
/// hold is too short for its own lease, and says whether it has a lease all the same.
async fn agreed_but(cluster: &Cluster, off: &[usize]) {
    loop {
        let leader = cluster.leader().await;
        let engine = cluster.engine(leader);
        put_until_done(&engine, "key", "value").await;
        let mut without: Vec<NodeId> = off.iter().map(|&i| NodeId(i as u64 + 1)).collect();
        without.sort_unstable();
        if off.contains(&leader) {
            without.clear(); // it has none itself
        }
        let has_leader_lease = off.len() < 2 && !off.contains(&leader);
        let said = status(&engine).await;
        if (said.role, said.has_leader_lease) == ("leader", has_leader_lease)
            && said.leader_lease_without == without
        {
            return assert_eq!(read(&engine, "key").await.as_deref(), Some("value"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Restarts a member with other flags.
fn switch(cluster: &mut Cluster, i: usize, lease: Option<LeaderLease>) {
    cluster.stop(i);
    cluster.tell(i, |config| {
        config.tuning.node.raft.reads = lease.map_or(ReadPath::Index, ReadPath::Lease);
    });
    cluster.restart(i);
}

/// The length of vote holds that the member's directory records.
fn recorded(cluster: &Cluster, i: usize) -> Duration {
    let note = std::fs::read(cluster.data_dirs()[i].join("promise")).expect("it is noted");
    Duration::from_nanos(u64::from_le_bytes(note[24..32].try_into().expect("eight bytes")))
}

/// Waits until that is this length.
async fn recorded_is(cluster: &Cluster, i: usize, length: Duration) {
    while recorded(cluster, i) != length {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sets the election timeout of the whole cluster, as soon as its level allows that.
async fn set_timing(cluster: &Cluster, election_timeout: Duration) {
    let timing = Timing { election_timeout, heartbeat_interval: ELECTION_TIMEOUT / 10 };
    loop {
        let engine = cluster.engine(cluster.leader().await);
        match engine.call(Request::Change(MemberChange::Timing(timing))).await {
            Outcome::Done(_) => return,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[test]
fn leases_are_switched_on_and_off_one_member_after_the_other() {
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        agreed_but(&cluster, &[0, 1, 2]).await;
        for (i, off) in [(0, &[1, 2][..]), (1, &[2]), (2, &[])] {
            switch(&mut cluster, i, LEASE);
            agreed_but(&cluster, off).await;
        }
        for (i, off) in [(1, &[1][..]), (0, &[1, 0]), (2, &[0, 1, 2])] {
            let began = Instant::now();
            switch(&mut cluster, i, None);
            recorded_is(&cluster, i, Duration::ZERO).await;
            let took = began.elapsed();
            assert!(ELECTION_TIMEOUT <= took, "vote hold {ELECTION_TIMEOUT:?}, forgotten after {took:?}");
            agreed_but(&cluster, off).await;
        }
    });
}

/// Goal: the record of vote holds follows the cluster's election timeout, and shrinks only when longer holds are over.
/// Method: one member, whose leadership after a start waits for the vote holds of the run before.
#[test]
fn the_record_of_vote_holds_follows_the_clusters_election_timeout_and_outlives_a_restart() {
    run(async {
        let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
        switch(&mut cluster, 0, LEASE);
        set_timing(&cluster, ELECTION_TIMEOUT * 4).await;
        recorded_is(&cluster, 0, ELECTION_TIMEOUT * 4).await;
        let began = Instant::now();
        switch(&mut cluster, 0, None);
        assert_eq!(recorded(&cluster, 0), ELECTION_TIMEOUT * 4, "a hold of the run before may be open");
        assert_eq!(cluster.leader().await, 0);
        let took = began.elapsed();
        assert!(ELECTION_TIMEOUT * 4 <= took, "{took:?}");
        recorded_is(&cluster, 0, Duration::ZERO).await;
        switch(&mut cluster, 0, LEASE);
        assert_eq!(recorded(&cluster, 0), ELECTION_TIMEOUT * 4, "the configuration's, not the flag's");
    });
}

#[test]
fn a_damaged_vote_hold_is_written_anew_even_by_a_member_with_the_longest_hold() {
    run(async {
        let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
        switch(&mut cluster, 0, LEASE);
        set_timing(&cluster, ELECTION_TIMEOUT * 100).await; // the longest vote hold there is
        recorded_is(&cluster, 0, ELECTION_TIMEOUT * 100).await;
        let note = cluster.data_dirs()[0].join("promise");
        let whole = std::fs::read(&note).expect("it is noted");
        let mut damaged = whole.clone();
        damaged[25] ^= 1;
        std::fs::write(&note, damaged).expect("written");
        switch(&mut cluster, 0, LEASE);
        assert_eq!(std::fs::read(&note).expect("it is there"), whole);
    });
}
