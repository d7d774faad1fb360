//! Goal: a configuration that breaks a rule is refused, with words for the operator, and one at the border of a rule is not.
//! Method: a table of each rule's two sides.

use kattu_raft::{
    Config, Duration, EntryId, LeaderLease, LeadershipConfig, LogIndex, Membership, NodeId, RecordEncoder,
    SnapshotMeta, newest_found,
};

fn ids(ids: &[u64]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// Voters, outgoing voters, learners, and outgoing voters that will be learners.
fn membership(voters: &[u64], outgoing: &[u64], learners: &[u64], learners_next: &[u64]) -> Membership {
    Membership {
        outgoing: ids(outgoing),
        learners_next: ids(learners_next),
        ..Membership::new(ids(voters), ids(learners))
    }
}

fn lease(rho: u32, margin: Duration) -> LeaderLease {
    LeaderLease { rho, margin, watch_clocks: true }
}

#[test]
fn every_rule_of_a_membership_has_two_sides() {
    for good in [
        membership(&[], &[], &[], &[]),
        membership(&[1], &[], &[], &[]),
        membership(&[1, 2, 3], &[], &[4, 5], &[]),
        membership(&[3, 4], &[1, 2, 3], &[5, 6], &[1, 2]),
    ] {
        assert_eq!(good.check(), Ok(()), "{good:?}");
    }
    for (broken, why) in [
        (membership(&[2, 1], &[], &[], &[]), "ascending"),
        (membership(&[1, 1], &[], &[], &[]), "without repeats"),
        (membership(&[3], &[1, 1], &[], &[]), "without repeats"),
        (membership(&[1], &[], &[4, 4], &[]), "without repeats"),
        (membership(&[3], &[1, 2], &[], &[2, 2]), "without repeats"),
        (membership(&[0, 1], &[], &[], &[]), "0 is reserved"),
        (membership(&[1], &[], &[0], &[]), "0 is reserved"),
        (membership(&[1], &[0], &[], &[]), "0 is reserved"),
        (membership(&[], &[], &[4], &[]), "at least one voter"),
        (membership(&[], &[1], &[], &[]), "at least one voter"),
        (membership(&[1, 2], &[], &[2], &[]), "voter and learner at once"),
        (membership(&[1], &[2], &[2], &[]), "voter and learner at once"),
        (membership(&[1], &[2], &[], &[3]), "only an outgoing voter"),
        (membership(&[1, 2], &[2], &[], &[2]), "only an outgoing voter"),
    ] {
        let told = broken.check().expect_err("a rule is broken");
        assert!(told.contains(why), "{told}: {broken:?}");
        let mut bytes = Vec::new();
        broken.encode(&mut bytes);
        assert!(Membership::decode(&bytes).is_err(), "it is not read either: {broken:?}");
    }
}

#[test]
fn every_rule_of_a_configuration_has_two_sides() {
    let timed = |election_ms: u64, heartbeat_ms: u64| Config {
        election_timeout: Duration::from_millis(election_ms),
        heartbeat_interval: Duration::from_millis(heartbeat_ms),
        ..Config::new(NodeId(1), ids(&[1, 2, 3]), RecordEncoder::BARE)
    };
    let with_votes = |pre_vote, check_quorum| Config { pre_vote, check_quorum, ..timed(1000, 100) };
    let leased = |config: Config| {
        let leader_lease = Some(lease(5000, Duration::from_millis(10)));
        Config { leadership: LeadershipConfig { leader_lease, ..config.leadership }, ..config }
    };
    let named = |id, voters: &[u64]| Config::new(NodeId(id), ids(voters), RecordEncoder::BARE);
    for good in [
        timed(1000, 333),
        with_votes(true, true),
        with_votes(false, false),
        leased(timed(1000, 100)),
        named(4, &[]),
        named(4, &[1, 2]),
    ] {
        assert_eq!(good.check(), Ok(()), "{good:?}");
    }
    for (broken, why) in [
        (named(0, &[]), "0 is reserved"),
        (named(1, &[0, 1]), "0 is reserved"),
        (timed(1000, 0), "longer than 0"),
        (timed(1000, 334), "three heartbeat intervals"),
        (with_votes(true, false), "on or off together"),
        (with_votes(false, true), "on or off together"),
        (leased(with_votes(false, false)), "on which their vote holds rest"),
    ] {
        let told = broken.check().expect_err("a rule is broken");
        assert!(told.contains(why), "{told}: {broken:?}");
    }
}

#[test]
fn a_leader_lease_is_shorter_by_the_clocks_errors_and_outlasts_a_heartbeat_interval() {
    let election_timeout = Duration::from_millis(1000);
    for (rho, margin_ms, length_us) in [
        (0, 0, 1_000_000),
        (0, 300, 700_000),
        // One clock is a tenth too slow, the other a tenth too fast: 0.9 / 1.1.
        (100_000, 0, 818_181),
        (100_000, 18, 800_181),
        (1_000_000, 0, 0),
        (2_000_000, 0, 0),
        (0, 1001, 0),
    ] {
        let length = lease(rho, Duration::from_millis(margin_ms)).length(election_timeout);
        assert_eq!(length.as_micros(), length_us, "{rho} ppm, {margin_ms} ms");
    }
    let checked = |lease| {
        let leadership = LeadershipConfig { leader_lease: Some(lease), ..LeadershipConfig::default() };
        let heartbeat_interval = Duration::from_millis(100);
        let config = Config::new(NodeId(1), ids(&[1, 2, 3]), RecordEncoder::BARE);
        Config { election_timeout, heartbeat_interval, leadership, ..config }.check()
    };
    let margin = election_timeout - Duration::from_millis(100);
    let told = checked(lease(0, margin)).expect_err("it ends when the next heartbeat leaves");
    assert!(told.contains("longer than a heartbeat interval"), "{told}");
    assert_eq!(checked(lease(0, margin - Duration::from_nanos(1))), Ok(()));
}

#[test]
fn a_start_goes_by_the_newest_configuration_wherever_it_found_it() {
    let of = |id: u64| membership(&[id], &[], &[], &[]);
    let in_log = [(LogIndex(3), of(3)), (LogIndex(7), of(7))];
    let snapshot = |at: u64| SnapshotMeta {
        last: EntryId::new(1, at),
        membership: of(at + 100),
        membership_at: LogIndex(at),
        ..SnapshotMeta::default()
    };
    for (in_log, at, newest) in [
        (&in_log[..], None, Some(of(7))),
        (&in_log[..], Some(6), Some(of(7))),
        // Entries that the snapshot covers may be in the log still.
        (&in_log[..], Some(8), Some(of(108))),
        (&in_log[..1], Some(6), Some(of(106))),
        (&[], Some(6), Some(of(106))),
        (&[], None, None),
    ] {
        let snapshot = at.map(snapshot);
        let found = newest_found(in_log, snapshot.as_ref());
        assert_eq!(found, newest.as_ref(), "{in_log:?}, {at:?}");
    }
}
