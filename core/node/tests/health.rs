//! Members compare digests; a divergent one is named on every member and serves no client; alarms are replicated.

use kattu_node::SnapshotLimits;
use kattu_node::alarms::{Alarm, AlarmChange, AlarmKind};
use kattu_node::contract::*;
use kattu_raft::{Duration, LogIndex, NodeId};
use kattu_replicas::*;

const INTERVAL: Duration = Duration::from_secs(2);

fn write(world: &mut World, id: u64, key: &str) {
    let ticket = world.ask(id, put(key, "v"));
    world.deliver();
    assert!(is_done(world.outcome(id, ticket)), "{:?}", world.outcome(id, ticket));
}

/// The outcome of a request that needs no time.
fn ask(world: &mut World, id: u64, request: Request) -> Outcome {
    let ticket = world.ask(id, request);
    world.pass(ET / 4);
    world.outcome(id, ticket).expect("an answer").clone()
}

fn alarms(world: &mut World, id: u64) -> Vec<Alarm> {
    world.status(id).alarms.iter().collect()
}

fn corrupt(id: u64) -> Alarm {
    Alarm::corrupt(NodeId(id))
}

/// Three members, of which `divergent` selects the one whose tables are tampered with, after a comparison.
fn with_a_divergent_one(divergent: impl FnOnce(&World, u64) -> u64) -> (World, u64, u64) {
    let mut world = World::comparing(3, INTERVAL);
    let leader = world.elect();
    let divergent = divergent(&world, leader);
    write(&mut world, leader, "a");
    world.pass(ET / 4);
    world.tamper(divergent);
    write(&mut world, leader, "b");
    world.pass(INTERVAL * 2);
    (world, leader, divergent)
}

#[test]
fn members_that_made_the_same_of_the_log_agree_and_an_idle_cluster_stays_idle() {
    let mut world = World::comparing(3, INTERVAL);
    let leader = world.elect();
    for round in 0..3 {
        write(&mut world, leader, &format!("k{round}"));
        world.pass(INTERVAL * 2);
        let marked = world.status(leader).compared.marked;
        assert!(LogIndex(0) < marked, "a mark was made");
        for id in 1..=3 {
            let status = world.status(id);
            assert_eq!((status.compared.marked, status.compared.agreed), (marked, marked), "n{id}");
            assert_eq!(status.compared.reports % 3, 0, "each reports once: {:?}", status.compared);
            assert!(status.alarms.is_empty());
        }
    }
    let before = world.status(leader).last;
    world.pass(INTERVAL * 10);
    assert_eq!(world.status(leader).last, before, "nothing was written, so nothing is compared");
}

#[test]
fn nothing_is_compared_where_it_is_switched_off_or_no_other_member_exists() {
    for (size, interval) in [(3, Duration::ZERO), (1, INTERVAL)] {
        let mut world = World::comparing(size, interval);
        let leader = world.elect();
        write(&mut world, leader, "a");
        world.pass(INTERVAL * 3);
        assert_eq!(world.status(leader).compared.marked, LogIndex(0), "{size} members");
    }
}

#[test]
fn a_divergent_member_is_named_on_all_members_and_serves_no_client() {
    let (mut world, leader, divergent) = with_a_divergent_one(|world, _| world.follower());
    for id in 1..=3 {
        assert_eq!(alarms(&mut world, id), [corrupt(divergent)], "n{id}");
        assert_eq!(world.status(id).compared.divergent, 1);
        assert_eq!(world.status(id).compared.agreed, LogIndex(0));
    }
    for request in [get("a", Consistency::Linearizable), get("a", Consistency::Serializable), put("c", "v")] {
        assert_eq!(ask(&mut world, divergent, request), Outcome::Refused(Refusal::Corrupt));
    }
    let asked = [Request::Members(Consistency::Linearizable), Request::Pin(Consistency::Linearizable)];
    for request in asked {
        assert!(
            is_done(Some(&ask(&mut world, divergent, request))),
            "whoever looks what is wrong is answered"
        );
    }
    let other = (1..=3).find(|&id| id != divergent && id != leader).expect("a third one");
    for id in [leader, other] {
        assert!(is_done(Some(&ask(&mut world, id, put("c", "v")))), "the others go on");
        assert!(is_done(Some(&ask(&mut world, id, get("c", Consistency::Linearizable)))));
    }

    // It is divergent at every further comparison, also after it was cleared; it accepts the clearing itself, too.
    let clear = Request::Write(AlarmChange::Clear(corrupt(divergent)).encode().into());
    let cleared = ask(&mut world, divergent, clear);
    assert!(
        matches!(&cleared, Outcome::Done(Reply { body: ReplyBody::Alarmed(Some(alarm)), .. }) if *alarm == corrupt(divergent)),
        "{cleared:?}"
    );
    assert!(is_done(Some(&ask(&mut world, divergent, get("c", Consistency::Linearizable)))));
    world.pass(INTERVAL * 2);
    assert_eq!(alarms(&mut world, leader), [corrupt(divergent)]);
}

#[test]
fn a_divergent_leader_transfers_leadership_and_answers_nothing_from_its_store() {
    let mut world = World::comparing(3, INTERVAL);
    let leader = world.elect();
    world.tamper(leader);
    write(&mut world, leader, "a");
    world.pass(INTERVAL * 2);
    let next = world.elect();
    assert_ne!(next, leader);
    assert_eq!(alarms(&mut world, next), [corrupt(leader)]);
    assert_eq!(ask(&mut world, leader, put("b", "v")), Outcome::Refused(Refusal::Corrupt));
    write(&mut world, next, "b");
}

#[test]
fn a_divergent_member_is_offered_no_leadership_whatever_its_priority() {
    let mut world = World::comparing(3, INTERVAL);
    let leader = world.elect();
    world.tamper(leader);
    write(&mut world, leader, "a");
    world.prefer(leader, 200);
    world.pass(INTERVAL * 2);
    let next = world.elect();
    assert_eq!(alarms(&mut world, next), [corrupt(leader)]);
    world.pass(ET * 30);
    assert_eq!(world.leader(), Some(next), "and it keeps the office");
    // Also if it announces its priority again.
    world.prefer(leader, 255);
    world.pass(ET * 30);
    assert_eq!(world.leader(), Some(next));
    // Without the alarm it is as good as any, until it is found divergent again.
    let clear = Request::Write(AlarmChange::Clear(corrupt(leader)).encode().into());
    world.ask(next, clear);
    let mut has_led = false;
    for _ in 0..100 {
        world.pass(ET / 4);
        has_led |= world.leader() == Some(leader);
    }
    assert!(has_led);
}

#[test]
fn a_silent_divergent_member_is_no_successor() {
    // Of two members with equal priority and log, the one of the lower id would take over.
    let (mut world, leader, divergent) =
        with_a_divergent_one(|_, leader| (1..=3).find(|&id| id != leader).expect("two others"));
    assert_eq!(alarms(&mut world, leader), [corrupt(divergent)]);
    let term = world.status(leader).term;
    world.give(leader, Event::Transfer(None));
    world.pass(ET);
    let third = 6 - leader - divergent;
    assert_eq!(world.leader(), Some(third));
    assert_eq!(world.status(third).term, term.next(), "nobody led in between");
}

#[test]
fn a_divergent_member_that_comes_to_lead_transfers_at_once() {
    let (mut world, leader, divergent) = with_a_divergent_one(|world, _| world.follower());
    assert_eq!(alarms(&mut world, divergent), [corrupt(divergent)]);
    let term = world.status(leader).term;
    world.ask(leader, Request::MoveLeader(NodeId(divergent)));
    world.pass(ET);
    assert!(term.next() < world.status(leader).term, "it led for a term");
    assert!(world.leader().is_some_and(|id| id != divergent), "{:?} leads", world.leader());
}

#[test]
fn a_write_under_way_at_a_member_that_is_found_divergent_is_in_doubt() {
    let (mut world, leader, divergent) = with_a_divergent_one(|world, _| world.follower());
    let clear = Request::Write(AlarmChange::Clear(corrupt(divergent)).encode().into());
    ask(&mut world, divergent, clear);
    // It goes into the log right behind the alarm that is raised again.
    let raise = world.ask(leader, Request::Write(AlarmChange::Raise(corrupt(divergent)).encode().into()));
    let write = world.ask(divergent, put("late", "v"));
    world.pass(ET / 4);
    assert!(is_done(world.outcome(leader, raise)));
    assert_eq!(world.outcome(divergent, write), Some(&Outcome::Unknown(Doubt::LeaderChanged)));
    let read = ask(&mut world, leader, get("late", Consistency::Linearizable));
    assert_eq!(value_of(Some(&read)).as_deref(), Some("v"), "the others have done it");
}

#[test]
fn two_of_two_that_differ_are_both_not_believed() {
    let mut world = World::comparing(2, INTERVAL);
    let leader = world.elect();
    write(&mut world, leader, "a");
    world.tamper(3 - leader);
    write(&mut world, leader, "b");
    world.pass(INTERVAL * 2);
    for id in 1..=2 {
        assert_eq!(alarms(&mut world, id), [corrupt(0)]);
        let read = ask(&mut world, id, get("a", Consistency::Linearizable));
        assert_eq!(read, Outcome::Refused(Refusal::Corrupt), "n{id}");
    }
}

#[test]
fn a_member_that_was_away_is_compared_when_it_is_back() {
    let mut world = World::comparing(3, INTERVAL);
    let leader = world.elect();
    let away = world.follower();
    write(&mut world, leader, "a");
    world.pass(ET / 4);
    world.tamper(away);
    world.loses = Box::new(move |m| m.to() == NodeId(away) || m.from() == NodeId(away));
    write(&mut world, leader, "b");
    world.pass(INTERVAL * 2);
    assert!(alarms(&mut world, leader).is_empty(), "a majority agrees, and one has not spoken");
    world.loses = Box::new(|_| false);
    world.pass(INTERVAL * 5);
    for id in 1..=3 {
        assert_eq!(alarms(&mut world, id), [corrupt(away)], "n{id}");
    }
}

#[test]
fn alarms_and_marks_survive_restarts_and_snapshots() {
    let limits = SnapshotLimits { log_bytes_min: 500, log_bytes_max: 0, keep_bytes: 0 };
    let mut world = World::with(3, limits, INTERVAL);
    let leader = world.elect();
    let divergent = world.follower();
    write(&mut world, leader, "a");
    world.pass(ET / 4);
    world.tamper(divergent);
    for n in 0..40 {
        write(&mut world, leader, &format!("k{n}"));
    }
    world.pass(INTERVAL * 2);
    for n in 0..40 {
        write(&mut world, leader, &format!("l{n}"));
    }
    world.pass(INTERVAL * 2);
    let before = world.status(leader).compared;
    for id in 1..=3 {
        assert!(!world.member(id).snapshots.is_empty(), "n{id}");
        world.kill(id);
        world.restart(id);
    }
    let leader = world.elect();
    world.pass(INTERVAL * 2);
    for id in 1..=3 {
        assert_eq!(alarms(&mut world, id), [corrupt(divergent)], "n{id}");
    }
    let after = world.status(leader).compared;
    assert!(before.marked < after.marked && before.reports < after.reports, "{before:?} {after:?}");
    assert_eq!(
        ask(&mut world, divergent, get("a", Consistency::Serializable)),
        Outcome::Refused(Refusal::Corrupt)
    );
}

#[test]
fn while_a_member_is_short_of_space_no_member_accepts_growth() {
    let full = Alarm { member: NodeId(2), kind: AlarmKind::NoSpace };
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    write(&mut world, leader, "a");
    let raised = ask(&mut world, follower, Request::Write(AlarmChange::Raise(full).encode().into()));
    assert!(is_done(Some(&raised)), "{raised:?}");
    for id in 1..=3 {
        assert_eq!(alarms(&mut world, id), [full], "n{id}");
        assert_eq!(ask(&mut world, id, put("b", "v")), Outcome::Refused(Refusal::NoSpace), "n{id}");
        assert!(is_done(Some(&ask(&mut world, id, get("a", Consistency::Linearizable)))));
    }
    let cleared = ask(&mut world, follower, Request::Write(AlarmChange::Clear(full).encode().into()));
    assert!(is_done(Some(&cleared)), "{cleared:?}");
    assert!(is_done(Some(&ask(&mut world, follower, put("b", "v")))));
}
