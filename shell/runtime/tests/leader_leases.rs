//! Leases switched on and off at three real members, one after the other.

mod cluster_of_three;

use cluster_of_three::{Cluster, put_until_done, read, run, status};
use kattu_raft::{Duration, LeaderLease, NodeId};
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

/// Restarts a member with other flags; returns how long that took.
fn switch(cluster: &mut Cluster, i: usize, lease: Option<LeaderLease>, timeouts: u32) -> Duration {
    cluster.stop(i);
    cluster.tell(i, |config| {
        config.leadership.leader_lease = lease;
        config.election_timeout = ELECTION_TIMEOUT * timeouts;
    });
    let began = Instant::now();
    cluster.restart(i);
    began.elapsed()
}

#[test]
fn leases_are_switched_on_and_off_one_member_after_the_other() {
    run(async {
        let mut cluster = Cluster::new(3, Threading::Inline, Threading::Inline);
        agreed_but(&cluster, &[0, 1, 2]).await;
        for (i, off) in [(0, &[1, 2][..]), (1, &[2]), (2, &[])] {
            switch(&mut cluster, i, LEASE, 1);
            agreed_but(&cluster, off).await;
        }
        for (i, off) in [(1, &[1][..]), (0, &[1, 0]), (2, &[0, 1, 2])] {
            let took = switch(&mut cluster, i, None, 1);
            assert!(ELECTION_TIMEOUT <= took, "vote hold {ELECTION_TIMEOUT:?}, started after {took:?}");
            agreed_but(&cluster, off).await;
        }
    });
}

#[test]
fn who_promises_less_than_before_begins_when_that_is_over() {
    run(async {
        let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
        switch(&mut cluster, 0, LEASE, 4);
        let took = switch(&mut cluster, 0, LEASE, 2);
        assert!(ELECTION_TIMEOUT * 4 <= took, "{took:?}");
        let took = switch(&mut cluster, 0, None, 1);
        assert!(ELECTION_TIMEOUT * 2 <= took, "{took:?}");
        assert_eq!(cluster.leader().await, 0);
    });
}

#[test]
fn a_damaged_note_of_promises_is_written_anew_even_by_who_promises_the_longest_time() {
    run(async {
        let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
        switch(&mut cluster, 0, LEASE, 100); // the longest vote hold there is
        let note = cluster.data_dirs()[0].join("promise");
        let whole = std::fs::read(&note).expect("it is noted");
        let mut damaged = whole.clone();
        damaged[25] ^= 1;
        std::fs::write(&note, damaged).expect("written");
        switch(&mut cluster, 0, LEASE, 100);
        assert_eq!(std::fs::read(&note).expect("it is there"), whole);
    });
}
