//! Leader leases under wrong clocks: within the bound no read is stale; beyond it some are, and the checks detect them.

use kattu_peers::World;
use kattu_peers::storm::{self, Clocks};
use kattu_raft::message::{Message, PreVoteReply};
use kattu_raft::{
    Config, Duration, Effects, Envelope, GroupId, Incarnation, Instant, LeaderLease, LeadershipConfig,
    NodeId, Raft, Recovered, Term, Timing,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

const ET: Duration = Duration::from_millis(1000);

fn with_leases(rho: u32, watch: bool) -> Vec<Config> {
    let lease = Some(LeaderLease { rho, margin: Duration::ZERO, watch_clocks: watch });
    let leadership = LeadershipConfig { leader_lease: lease, ..LeadershipConfig::default() };
    (1..=3).map(|id| Config { leadership, ..kattu_peers::config(id, 3, 0) }).collect()
}

/// The leader is cut off, and the others elect another one, which commits. Meanwhile a client reads from the old one
/// until its lease is over. The error is the failed check: a stale read.
fn ask_the_old_leader(clocks: [i64; 3], watch: bool) -> Result<(), String> {
    let mut world = World::started(with_leases(5_000, watch), 1);
    for (id, ppm) in (1..).zip(clocks) {
        let now = world.now;
        world.peer(NodeId(id)).clock.set_rate(now, ppm);
    }
    world.leading.believes_leases = true; // the check of the reads is to fail, not that of the leases
    assert!(world.elect(NodeId(1)));
    world.pass(if watch { ET * 2 } else { ET / 2 });
    world.partition(&[vec![NodeId(1)], vec![NodeId(2), NodeId(3)]]);
    let reads = AssertUnwindSafe(|| {
        for _ in 0..100 {
            world.pass(ET / 20);
            if let Some(leader) = world.leader().filter(|&leader| leader != NodeId(1)) {
                world.propose(leader, b"new").expect("it leads");
            }
            if world.raft(NodeId(1)).is_leader() {
                world.read(NodeId(1));
            }
        }
        assert_ne!(world.leader(), Some(NodeId(1)), "the others have elected somebody");
    });
    catch_unwind(reads).map_err(|panic| *panic.downcast::<String>().expect("a message"))
}

/// The driver records the vote hold before a start.
#[test]
fn a_start_records_no_vote_hold_again_unless_a_longer_one_is_over() {
    let lease = LeaderLease { rho: 0, margin: Duration::ZERO, watch_clocks: false };
    let leadership = LeadershipConfig { leader_lease: Some(lease), ..LeadershipConfig::default() };
    let config = || Config { leadership, election_timeout: ET, ..kattu_peers::config(1, 3, 0) };
    for recorded in [Duration::ZERO, ET / 2, ET] {
        let recovered = Recovered { vote_hold: recorded, ..Recovered::default() };
        let raft = Raft::recover(config(), 7, Instant(0), recovered);
        assert_eq!(raft.vote_hold_to_record(Instant(0) + ET * 5), None, "{recorded:?}");
    }
    let recovered = Recovered { vote_hold: ET * 3, ..Recovered::default() };
    let raft = Raft::recover(config(), 7, Instant(0), recovered);
    assert_eq!(raft.vote_hold_to_record(Instant((Instant(0) + ET * 3).0 - 1)), None);
    assert_eq!(raft.vote_hold_to_record(Instant(0) + ET * 3), Some(ET));
}

#[test]
fn clocks_within_the_bound_cause_no_stale_read() {
    for clocks in [[0, 0, 0], [-5_000, 5_000, 5_000], [5_000, -5_000, -5_000]] {
        assert_eq!(ask_the_old_leader(clocks, true), Ok(()));
    }
}

#[test]
fn clocks_beyond_the_bound_are_found_before_they_cause_a_stale_read() {
    for clocks in [[-600_000, 600_000, 600_000], [0, 600_000, 600_000], [-20_000, 0, 0]] {
        assert_eq!(ask_the_old_leader(clocks, true), Ok(()));
    }
}

#[test]
fn clocks_beyond_the_bound_show_the_past_and_that_is_noticed() {
    let found =
        ask_the_old_leader([-600_000, 600_000, 600_000], false).expect_err("leases rest on the bound");
    assert!(found.starts_with("stale read at 1"), "{found}");
}

#[test]
fn storms_with_clocks_beyond_the_bound_are_noticed() {
    let stale = |seed| {
        let reads = || drop(storm::with_clocks(seed, 1000, Clocks::Beyond));
        catch_unwind(reads).is_err_and(|panic| {
            panic.downcast_ref::<String>().is_some_and(|found| found.starts_with("stale read"))
        })
    };
    std::panic::set_hook(Box::new(|_| {})); // expected panics are not printed
    let found = (1..=3000).find(|&seed| stale(seed));
    let _ = std::panic::take_hook();
    println!("stale read in storm {found:?}");
    assert!(found.is_some(), "no storm noticed clocks that run as they like");
}

#[test]
fn a_vote_hold_outlives_its_term() {
    let mut world = World::started(with_leases(5_000, true), 1);
    assert!(world.elect(NodeId(1)));
    world.pass(ET / 5);
    // A late answer to a request of an earlier incarnation carries a newer term: 2 follows no leader now, and 1 still
    // relies on its vote hold.
    let late = PreVoteReply { campaign_term: Term(2), granted: false, round: kattu_raft::Round(0) };
    let late = Envelope {
        group: GroupId(0),
        from: NodeId(3),
        incarnation: Incarnation(300),
        to: NodeId(2),
        term: Term(9),
        message: Message::PreVoteReply(late),
    };
    world.cut.insert((NodeId(2), NodeId(1)));
    world.deliver(late);
    assert_eq!((world.raft(NodeId(2)).term(), world.raft(NodeId(2)).leader()), (Term(9), None));
    world.settle();
    let lease = world.raft(NodeId(1)).leader_lease_until().expect("a quorum answered");
    assert!(world.now < lease);
    assert!(lease < world.raft(NodeId(2)).vote_hold_until());
    assert!(lease < world.due(NodeId(2)), "it does not campaign itself either");
}

/// The leader 1 sets the election timeout of all.
fn set_election_timeout(world: &mut World, election_timeout: Duration) {
    let mut target = world.raft(NodeId(1)).membership().clone();
    target.extensions.timing = Some(Timing { election_timeout, heartbeat_interval: ET / 10 });
    world.change(NodeId(1), &target).expect("it leads");
    world.settle();
}

#[test]
fn a_vote_hold_grows_with_the_election_timeout_shrinks_with_none_and_outlives_the_configuration() {
    let mut world = World::started(with_leases(5_000, true), 1);
    let held = |world: &World| world.raft(NodeId(2)).vote_hold_until();
    assert!(world.elect(NodeId(1)));
    world.pass(ET / 5);
    // 2 has the configuration, not on disk yet. So nothing is committed, and the leader sends nothing more.
    world.partition(&[vec![NodeId(1), NodeId(2)], vec![NodeId(3)]]);
    world.peer(NodeId(2)).held.disk = true;
    set_election_timeout(&mut world, ET * 4);
    assert_eq!(world.raft(NodeId(2)).timing().election_timeout, ET * 4);
    assert_eq!(held(&world), world.now + ET * 4, "the hold that it has granted is as long as it may state");
    // Its disk loses the configuration, and not how long its holds last.
    world.crash(NodeId(2), 0);
    world.peer(NodeId(2)).held.disk = false;
    world.start(NodeId(2));
    assert_eq!(world.raft(NodeId(2)).timing().election_timeout, ET);
    assert_eq!(held(&world), world.now + ET * 4);
    world.heal();
    world.pass(ET);
    let (before, now) = (held(&world), world.now);
    set_election_timeout(&mut world, ET);
    assert_eq!(world.raft(NodeId(2)).timing().election_timeout, ET);
    assert!(now + ET < before && before <= held(&world), "{before:?}, then {:?}", held(&world));
    let recorded = |world: &World| world.peers[&NodeId(2)].disk.vote_hold;
    assert_eq!(recorded(&world), ET * 4, "a longer hold may be open");
    world.pass(ET * 4);
    assert_eq!(recorded(&world), ET);
}

/// Goal: between a change of the election timeout and its record, a follower answers by the shorter of the two lengths.
/// Method: the leader's appends are given to the follower by hand, and its record is made late.
#[test]
fn an_answer_states_no_longer_vote_hold_than_is_on_record() {
    let mut world = World::started(with_leases(5_000, true), 1);
    assert!(world.elect(NodeId(1)));
    world.pass(ET / 5);
    let (mut leader, mut follower) = (world.raft(NodeId(1)).clone(), world.raft(NodeId(2)).clone());
    let mut now = world.now;
    // The vote holds that the follower states in its answers to what the leader has sent.
    let stated = |follower: &mut Raft, now: Instant, sent: Effects| {
        let mut effects = Effects::default();
        for envelope in sent.send.into_iter().filter(|envelope| envelope.to == NodeId(2)) {
            follower.step(now, envelope, &mut effects);
        }
        if let Some(last) = effects.persist.last().map(|record| record.lsn) {
            follower.persisted(now, last, &mut effects);
        }
        follower.drained(now, &mut effects);
        let answers = effects.send.into_iter().filter_map(|envelope| match envelope.message {
            Message::AppendReply(reply) => Some(reply.vote_hold),
            _ => None,
        });
        answers.collect::<Vec<_>>()
    };
    let mut target = leader.membership().clone();
    target.extensions.timing = Some(Timing { election_timeout: ET * 4, heartbeat_interval: ET / 10 });
    let mut sent = Effects::default();
    leader.propose_change(now, &target, &[], &mut sent).expect("it leads");
    leader.drained(now, &mut sent);
    assert_eq!(stated(&mut follower, now, sent), [ET], "the longer hold is granted, and not on record");
    assert_eq!(follower.timing().election_timeout, ET * 4);
    assert_eq!(follower.vote_hold_until(), now + ET * 4);
    assert_eq!(follower.vote_hold_to_record(now), Some(ET * 4));
    follower.vote_hold_recorded(ET * 4);
    assert_eq!(follower.vote_hold_to_record(now), None);
    now += ET / 5;
    let mut sent = Effects::default();
    leader.tick(now, &mut sent);
    assert_eq!(stated(&mut follower, now, sent).last(), Some(&(ET * 4)));
}

#[test]
fn a_failed_transfer_ends_the_lease_of_this_term_and_of_no_other() {
    let mut world = World::started(with_leases(5_000, true), 1);
    let holds = |world: &World, id: u64| {
        let raft = world.raft(NodeId(id));
        (raft.leader_lease_until().is_some_and(|until| world.now < until), raft.leader_lease_is_over())
    };
    assert!(world.elect(NodeId(1)));
    world.pass(ET / 5);
    assert_eq!(holds(&world, 1), (true, false));
    world.cut.insert((NodeId(1), NodeId(2)));
    world.act(NodeId(1), |raft, now, effects| raft.transfer(now, NodeId(2), effects)).expect("it leads");
    assert_eq!(holds(&world, 1), (false, false), "it may still come to something");
    world.pass(ET * 3);
    assert_eq!(world.leader(), Some(NodeId(1)));
    assert_eq!(holds(&world, 1), (false, true));
    world.cut.clear();
    world.act(NodeId(1), |raft, now, effects| raft.transfer(now, NodeId(3), effects)).expect("it leads");
    world.pass(ET / 5);
    assert_eq!(world.leader(), Some(NodeId(3)));
    assert_eq!((holds(&world, 1), holds(&world, 3)), ((false, false), (true, false)));
}

#[test]
fn leases_without_what_they_rest_on_are_refused() {
    let [config, ..] = &with_leases(5_000, true)[..] else { unreachable!("three members") };
    assert_eq!(config.check(), Ok(()));
    let unguarded = Config { pre_vote: false, check_quorum: false, ..config.clone() };
    assert!(unguarded.check().unwrap_err().starts_with("leader leases need pre-vote"));
    let lease = Some(LeaderLease { rho: 0, margin: ET - config.heartbeat_interval, watch_clocks: true });
    let short = Config {
        leadership: LeadershipConfig { leader_lease: lease, ..config.leadership },
        ..config.clone()
    };
    assert!(short.check().unwrap_err().starts_with("a leader lease must be longer"));
}
