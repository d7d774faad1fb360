//! Changes of members: the answers to clients, the tables of all members, and what stays consistent.

use kattu_node::contract::*;
use kattu_node::newcomer::{self, CannotJoin};
use kattu_node::{Keeper, SnapshotLimits};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{Duration, EntryKind, LinkEnd, Membership, Message, NbRaft, NodeId, Protocol, Timing};
use kattu_replicas::*;

/// Snapshots are as frequent as possible, and no log is kept behind them.
const OFTEN: SnapshotLimits = SnapshotLimits { log_bytes_min: 0, log_bytes_max: 0, keep_bytes: 0 };

fn add(id: u64, votes: bool) -> Request {
    Request::Change(MemberChange::Add { id: NodeId(id), peer_urls: urls(id), votes })
}

fn remove(id: u64) -> Request {
    Request::Change(MemberChange::Remove(NodeId(id)))
}

fn promote(id: u64) -> Request {
    Request::Change(MemberChange::Promote(NodeId(id)))
}

fn update(id: u64, url: &str) -> Request {
    Request::Change(MemberChange::Update { id: NodeId(id), peer_urls: vec![url.into()] })
}

/// Sends a request, and lets time pass until there is an answer.
fn told(world: &mut World, id: u64, request: Request) -> Outcome {
    let ticket = world.ask(id, request);
    for _ in 0..400 {
        if let Some(outcome) = world.outcome(id, ticket) {
            return outcome.clone();
        }
        world.pass(Duration::from_millis(20));
    }
    panic!("no answer in 8 s");
}

/// `1 2 (3) (4→)`: learners in brackets, those that will vote by themselves with an arrow.
fn names(list: &[MemberInfo]) -> String {
    let name = |member: &MemberInfo| match (member.learner, member.votes_when_ready) {
        (false, _) => format!("{}", member.id.0),
        (true, false) => format!("({})", member.id.0),
        (true, true) => format!("({}→)", member.id.0),
    };
    list.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// The members after a change that was made.
fn changed(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done(Reply { body: ReplyBody::Changed(list), .. }) => names(&list),
        other => panic!("not changed: {other:?}"),
    }
}

/// Why a change was refused.
fn refused(outcome: Outcome) -> MemberRefusal {
    match outcome {
        Outcome::Refused(Refusal::Member(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn table(world: &World, id: u64) -> String {
    names(&world.member(id).keeper.members().list)
}

fn voters(world: &World, id: u64) -> Vec<u64> {
    world.member(id).node.raft().membership().voters.iter().map(|voter| voter.0).collect()
}

/// All running members have applied the same entries and have equal digests.
fn assert_equal(world: &mut World) {
    world.pass(ET);
    let digests: Vec<(u64, u64)> = world
        .members
        .values()
        .filter(|member| member.alive)
        .map(|member| (member.keeper.applied().0, member.keeper.digest()))
        .collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

fn write(world: &mut World, id: u64, key: &str, value: &str) {
    let outcome = told(world, id, put(key, value));
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
}

fn value(world: &mut World, id: u64, key: &str) -> Option<String> {
    let outcome = told(world, id, get(key, Consistency::Linearizable));
    value_of(Some(&outcome))
}

/// A configuration entry that ends a change.
fn completes_a_change(message: &PeerMessage) -> bool {
    let PeerMessage::Raft(envelope) = message else { return false };
    let Message::Append(append) = &envelope.message else { return false };
    append.entries.iter().any(|entry| {
        let configuration = || Membership::decode(entry.payload()?).ok();
        let ends = || configuration().is_some_and(|(membership, _)| !membership.is_joint());
        entry.head.kind == EntryKind::Config && ends()
    })
}

fn brings_entries(message: &PeerMessage) -> bool {
    let PeerMessage::Raft(envelope) = message else { return false };
    matches!(&envelope.message, Message::Append(append) if !append.entries.is_empty())
}

#[test]
fn one_becomes_three_and_one_again_and_each_new_member_votes_by_itself_when_it_has_caught_up() {
    let mut world = World::new(1);
    world.elect();
    write(&mut world, 1, "a", "1");
    assert_eq!(changed(told(&mut world, 1, add(2, true))), "1 (2→)");
    world.pass(ET * 3);
    assert_eq!(table(&world, 1), "1 (2→)", "nobody has heard of it");
    write(&mut world, 1, "a", "2");
    world.join(2);
    world.pass(ET * 2);
    assert_eq!((table(&world, 1), table(&world, 2)), ("1 2".into(), "1 2".into()));
    assert_eq!(changed(told(&mut world, 2, add(3, true))), "1 2 (3→)", "any member can be asked");
    world.join(3);
    world.pass(ET * 2);
    assert_eq!(voters(&world, 3), [1, 2, 3]);
    assert_eq!(value(&mut world, 3, "a").as_deref(), Some("2"));
    assert_equal(&mut world);

    let leader = world.elect();
    let others: Vec<u64> = (1..=3).filter(|&id| id != leader).collect();
    for (gone, left) in [(others[0], 2), (others[1], 1)] {
        let list = changed(told(&mut world, leader, remove(gone)));
        assert_eq!(list.split(' ').count(), left, "{list}");
        world.pass(ET);
        assert!(world.member(gone).node.raft().is_removed(), "it was told");
        world.kill(gone);
    }
    write(&mut world, leader, "a", "3");
    assert_eq!(refused(told(&mut world, leader, remove(leader))), MemberRefusal::LastVoter);
    assert_eq!(value(&mut world, leader, "a").as_deref(), Some("3"));
}

#[test]
fn a_member_that_never_answers_harms_no_other() {
    let mut world = World::new(3);
    let leader = world.elect();
    assert_eq!(changed(told(&mut world, leader, add(9, true))), "1 2 3 (9→)");
    let dead = world.follower();
    world.kill(dead);
    world.pass(ET * 3);
    write(&mut world, leader, "a", "still a quorum");
    assert_eq!(refused(told(&mut world, leader, promote(9))), MemberRefusal::NotCaughtUp);
    assert_eq!(changed(told(&mut world, leader, remove(9))), "1 2 3");
}

#[test]
fn a_learner_is_promoted_only_when_it_has_caught_up() {
    let mut world = World::new(3);
    let leader = world.elect();
    assert_eq!(changed(told(&mut world, leader, add(4, false))), "1 2 3 (4)");
    assert_eq!(refused(told(&mut world, leader, promote(4))), MemberRefusal::NotCaughtUp);
    world.join(4);
    world.pass(ET * 3);
    assert_eq!(table(&world, 4), "1 2 3 (4)", "nobody has asked for more");
    assert_eq!(changed(told(&mut world, 4, promote(4))), "1 2 3 4", "it may ask for itself");
    assert_eq!(refused(told(&mut world, leader, promote(4))), MemberRefusal::NotLearner);
    assert_eq!(refused(told(&mut world, leader, promote(5))), MemberRefusal::NotFound);
    assert_equal(&mut world);
}

/// Every member refuses one more with this text, and no table or state changes.
fn is_full(world: &mut World, id: u64, votes: bool, refusal: MemberRefusal, words: &str) {
    let leader = world.leader().expect("a leader");
    let before = (table(world, leader), world.member(leader).keeper.applied());
    for asked in [leader, world.follower()] {
        let found = refused(told(world, asked, add(id, votes)));
        assert_eq!((found, found.to_string()), (refusal, words.to_string()));
    }
    world.pass(ET);
    assert_eq!((table(world, leader), world.member(leader).keeper.applied()), before);
}

#[test]
fn the_eighth_learner_is_taken_and_the_ninth_refused_until_one_goes() {
    let mut world = World::new(3);
    let leader = world.elect();
    for id in 4..=11 {
        // Members that will get a vote by themselves are learners until then, and count.
        let list = changed(told(&mut world, leader, add(id, id == 4)));
        assert!(list.ends_with(&if id == 4 { "(4→)".into() } else { format!("({id})") }), "{list}");
    }
    let full = "1 2 3 (4→) (5) (6) (7) (8) (9) (10) (11)";
    assert_eq!(table(&world, leader), full, "eight");
    for votes in [false, true] {
        let words = "there are too many learners";
        is_full(&mut world, 12, votes, MemberRefusal::TooManyLearners, words);
    }
    changed(told(&mut world, leader, remove(4)));
    let list = changed(told(&mut world, leader, add(12, false)));
    assert_eq!(list, "1 2 3 (5) (6) (7) (8) (9) (10) (11) (12)");
    is_full(&mut world, 13, false, MemberRefusal::TooManyLearners, "there are too many learners");
}

#[test]
fn the_sixty_fourth_member_is_taken_and_the_next_refused_until_one_goes() {
    let mut world = World::new(63);
    let leader = world.elect();
    changed(told(&mut world, leader, add(64, false)));
    assert_eq!(world.member(leader).keeper.members().list.len(), 64);
    is_full(&mut world, 65, false, MemberRefusal::TooManyMembers, "there are too many members");
    changed(told(&mut world, leader, remove(64)));
    changed(told(&mut world, leader, add(65, false)));
    assert_eq!(world.member(leader).keeper.members().list.len(), 64);
    is_full(&mut world, 66, true, MemberRefusal::TooManyMembers, "there are too many members");
}

/// Loses what this member forwards, its publication among it.
fn silences(id: u64) -> Box<dyn Fn(&PeerMessage) -> bool> {
    Box::new(move |message| matches!(message, PeerMessage::Forward(forward) if forward.from.0 == id))
}

#[test]
fn a_learner_gets_no_vote_before_the_log_holds_that_it_has_published_itself() {
    let mut world = World::new(3);
    let leader = world.elect();
    changed(told(&mut world, leader, add(4, true)));
    world.loses = silences(4);
    world.join(4);
    world.pass(ET * 3);
    assert!(world.member(leader).node.raft().is_caught_up(world.now, NodeId(4)));
    assert_eq!(table(&world, leader), "1 2 3 (4→)", "it keeps up, and that is not enough");
    assert_eq!(refused(told(&mut world, leader, promote(4))), MemberRefusal::NotCaughtUp);
    world.loses = Box::new(|_| false);
    world.pass(ET * 10);
    assert_eq!(table(&world, leader), "1 2 3 4");
    assert_equal(&mut world);
}

#[test]
fn a_lagging_member_does_not_tell_a_newcomer_what_was_true_once() {
    let mut world = World::new(3);
    let leader = world.elect();
    let lagging = world.follower();
    changed(told(&mut world, leader, add(4, true)));
    world.pass(ET / 2);
    world.loses = Box::new(move |message| [message.from().0, message.to().0].contains(&lagging));
    world.join(4);
    world.pass(ET * 3);
    assert_eq!((table(&world, leader), table(&world, lagging)), ("1 2 3 4".into(), "1 2 3 (4→)".into()));
    world.kill(4);
    let ask = |world: &mut World, id: u64| {
        let answer = told(world, id, newcomer::question());
        newcomer::confirmed(Some(answer))
            .map(|members| newcomer::admit(&members, &[], |member| member.id.0 == 4))
    };
    assert!(ask(&mut world, lagging).is_err_and(|why| why.contains("quorum")));
    world.loses = Box::new(|_| false);
    let leader = world.elect();
    world.pass(ET);
    for id in [leader, lagging] {
        assert_eq!(ask(&mut world, id), Ok(Err(CannotJoin::WasHere(NodeId(4)))), "{id} knows by now");
    }
}

#[test]
fn of_a_learner_the_newest_life_counts_and_nothing_that_the_one_before_acknowledged() {
    let mut world = World::new(3);
    let leader = world.elect();
    changed(told(&mut world, leader, add(4, false)));
    world.loses = silences(4);
    world.join(4);
    world.pass(ET * 3);
    let is_caught_up = |world: &World| world.member(leader).node.raft().is_caught_up(world.now, NodeId(4));
    assert!(is_caught_up(&world));
    let from_learner = |message: &&PeerMessage| message.from().0 == 4;
    let mut late: Option<PeerMessage> = None;
    for _ in 0..1000 {
        world.now += Duration::from_millis(1);
        world.give(leader, Event::Tick);
        while let Some(message) = world.network.pop_front() {
            late = late.or(Some(&message).filter(from_learner).cloned());
            world.deliver_one(message);
        }
        if late.is_some() {
            break;
        }
    }
    let late = late.expect("it answers a heartbeat");

    world.kill(4);
    world.join(4); // its disk was lost before its name was published
    world.loses = Box::new(|message| {
        let PeerMessage::Raft(envelope) = message else { return message.from().0 == 4 };
        envelope.to.0 == 4
            && matches!(&envelope.message, Message::Append(append) if !append.entries.is_empty())
    });
    world.pass(ET / 2);
    assert!(!is_caught_up(&world), "what the first life held is lost");
    for _ in 0..2 {
        world.network.push_back(late.clone());
        world.deliver();
        assert!(!is_caught_up(&world), "and its answers count no more");
    }
    world.loses = Box::new(|_| false);
    world.pass(ET * 2);
    assert!(is_caught_up(&world), "the second life is heard by the same leader");
    assert_equal(&mut world);
}

#[test]
fn a_leader_can_remove_itself_and_its_client_is_told_and_the_others_go_on() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.pass(ET);
    let list = changed(told(&mut world, leader, remove(leader)));
    assert_eq!(list.split(' ').count(), 2, "{list}");
    assert!(world.member(leader).node.raft().is_removed());
    world.kill(leader);
    let next = world.elect();
    write(&mut world, next, "a", "without it");
    assert_eq!(refused(told(&mut world, next, remove(leader))), MemberRefusal::NotFound);
    assert_equal(&mut world);
}

#[test]
fn a_follower_that_is_removed_answers_the_client_that_asked_it_for_that() {
    let mut world = World::new(3);
    world.elect();
    let gone = world.follower();
    world.pass(ET);
    let list = changed(told(&mut world, gone, remove(gone)));
    assert_eq!(list.split(' ').count(), 2, "{list}");
    assert!(world.member(gone).node.raft().is_removed());
}

#[test]
fn an_id_or_an_address_is_never_that_of_another_member() {
    let mut world = World::new(3);
    let leader = world.elect();
    let gone = world.follower();
    assert_eq!(refused(told(&mut world, leader, add(gone, true))), MemberRefusal::IdUsed, "a member has it");
    let taken = MemberChange::Add { id: NodeId(7), peer_urls: urls(gone), votes: true };
    assert_eq!(refused(told(&mut world, leader, Request::Change(taken))), MemberRefusal::UrlsUsed);
    changed(told(&mut world, leader, remove(gone)));
    world.pass(ET);
    world.kill(gone);
    assert_eq!(refused(told(&mut world, leader, add(gone, true))), MemberRefusal::IdUsed, "a member had it");
    let again = MemberChange::Add { id: NodeId(7), peer_urls: urls(gone), votes: true };
    let list = changed(told(&mut world, leader, Request::Change(again)));
    assert!(list.ends_with("(7→)"), "its place is free: {list}");
    assert_eq!(world.member(leader).keeper.members().removed, [NodeId(gone)]);
    assert_equal(&mut world);
}

#[test]
fn a_change_that_would_cost_the_quorum_is_refused_and_one_that_restores_it_is_not() {
    let mut world = World::new(3);
    let leader = world.elect();
    let dead = world.follower();
    let alive = 6 - leader - dead;
    world.kill(dead);
    world.pass(ET * 2);
    assert_eq!(refused(told(&mut world, leader, remove(alive))), MemberRefusal::WouldLoseQuorum);
    write(&mut world, leader, "a", "nothing is lost");
    let list = changed(told(&mut world, leader, remove(dead)));
    assert_eq!(list.split(' ').count(), 2, "{list}");
    write(&mut world, alive, "a", "two of two");
}

#[test]
fn a_member_that_has_just_died_does_not_count_for_a_quorum() {
    let mut world = World::new(3);
    let leader = world.elect();
    let dead = world.follower();
    let alive = 6 - leader - dead;
    world.pass(ET);
    world.kill(dead);
    world.give(leader, Event::LinkClosed(NodeId(dead), LinkEnd::ByPeer));
    assert_eq!(refused(told(&mut world, leader, remove(alive))), MemberRefusal::WouldLoseQuorum);
    assert_eq!(voters(&world, leader), [1, 2, 3], "nothing was begun");
    let list = changed(told(&mut world, leader, remove(dead)));
    assert_eq!(list.split(' ').count(), 2, "{list}");
}

#[test]
fn a_change_waits_a_while_for_the_one_before_it_and_is_refused_then() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.pass(ET);
    world.loses = Box::new(brings_entries);
    let first = world.ask(leader, add(4, false));
    let here = world.ask(leader, add(5, false));
    let there = world.ask(follower, add(6, false));
    world.pass(ET);
    let outcomes = [(leader, first), (leader, here), (follower, there)];
    assert!(outcomes.iter().all(|&(id, ticket)| world.outcome(id, ticket).is_none()), "they wait");
    world.pass(ET * 2);
    let under_way = Outcome::Refused(Refusal::Member(MemberRefusal::UnderWay));
    assert_eq!(world.outcome(leader, here), Some(&under_way));
    assert_eq!(world.outcome(follower, there), Some(&under_way));
    world.loses = Box::new(|_| false);
    world.pass(ET);
    assert_eq!(changed(world.outcome(leader, first).expect("it was made").clone()), "1 2 3 (4)");
    let both = [(leader, world.ask(leader, add(5, false))), (follower, world.ask(follower, add(6, false)))];
    world.pass(ET * 2);
    for (id, ticket) in both {
        changed(world.outcome(id, ticket).expect("one after the other").clone());
    }
    assert_eq!(table(&world, leader), "1 2 3 (4) (5) (6)");
}

#[test]
fn a_forwarded_change_is_never_proposed_twice() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    world.pass(ET);
    let ticket = world.ask(follower, add(4, false));
    let copies: Vec<PeerMessage> =
        world.network.iter().filter(|message| matches!(message, PeerMessage::Forward(_))).cloned().collect();
    assert_eq!(copies.len(), 1);
    world.deliver();
    for _ in 0..3 {
        world.network.extend(copies.iter().cloned());
        world.pass(ET / 5);
    }
    changed(world.outcome(follower, ticket).expect("it was made").clone());
    let configurations = entries(&world.member(leader).disk);
    let count = configurations.iter().filter(|entry| entry.head.kind == EntryKind::Config).count();
    assert_eq!(count, 1);
}

#[test]
fn a_client_is_told_of_a_change_when_it_is_complete_even_by_another_leader() {
    let mut world = World::new(4);
    let leader = world.elect();
    let follower = world.follower();
    let gone = (1..=4).find(|&id| id != leader && id != follower).expect("there are four");
    world.pass(ET);
    world.loses = Box::new(completes_a_change);
    let ticket = world.ask(follower, remove(gone));
    world.pass(ET / 2);
    let joint = world.member(follower).node.raft().committed_membership().is_joint();
    assert!(joint, "the first step is committed");
    assert_eq!(world.outcome(follower, ticket), None, "and that is not enough");
    assert_eq!(table(&world, follower), "1 2 3 4", "who leaves is there until it is over");
    world.kill(leader);
    world.loses = Box::new(|_| false);
    world.pass(ET * 4);
    let list = changed(world.outcome(follower, ticket).expect("another leader completes it").clone());
    assert_eq!(list.split(' ').count(), 3, "{list}");
}

#[test]
fn a_change_that_no_other_member_has_is_rolled_back_and_its_client_is_in_doubt() {
    let mut world = World::new(3);
    let old = world.elect();
    world.pass(ET);
    world.loses = Box::new(move |message| message.from().0 == old || message.to().0 == old);
    let ticket = world.ask(old, add(4, true));
    world.deliver();
    assert_eq!(
        world.member(old).node.raft().membership().learners,
        [NodeId(4)],
        "it is in force there at once"
    );
    world.pass(ET * 4);
    let other = 1 + old % 3;
    let follows = |world: &World| world.member(other).node.raft().leader().map(|leader| leader.0);
    assert!(follows(&world).is_some_and(|leader| leader != old));
    write(&mut world, other, "a", "meanwhile");
    world.loses = Box::new(|_| false);
    world.pass(ET * 3);
    assert_eq!(world.outcome(old, ticket), Some(&Outcome::Unknown(Doubt::LeaderChanged)));
    assert!(world.member(old).node.raft().membership().learners.is_empty(), "the one before counts again");
    assert_eq!(table(&world, old), "1 2 3");
    assert!(changed(told(&mut world, old, add(4, true))).ends_with("(4→)"));
    assert_equal(&mut world);
}

#[test]
fn a_restart_from_a_snapshot_keeps_the_members_and_the_ids_of_former_ones() {
    let mut world =
        World::with_snapshots(3, SnapshotLimits { log_bytes_min: 2_000, log_bytes_max: 0, keep_bytes: 0 });
    let leader = world.elect();
    let gone = world.follower();
    changed(told(&mut world, leader, remove(gone)));
    world.pass(ET);
    world.kill(gone);
    changed(told(&mut world, leader, add(4, true)));
    world.join(4);
    changed(told(&mut world, leader, add(5, false)));
    world.pass(ET * 2);
    for round in 0..300 {
        write(&mut world, leader, "a", &format!("{round}"));
    }
    assert_equal(&mut world);
    let before = table(&world, leader);
    let left: Vec<u64> = (1..=4).filter(|&id| id != gone).collect();
    for &id in &left {
        assert!(!world.member(id).snapshots.is_empty(), "member {id} has one");
        world.kill(id);
        world.restart(id);
        assert_eq!(table(&world, id), before, "before anything is replayed");
    }
    let leader = world.elect();
    assert_eq!(refused(told(&mut world, leader, add(gone, true))), MemberRefusal::IdUsed);
    assert_eq!(value(&mut world, 4, "a").as_deref(), Some("299"));
    assert_equal(&mut world);
}

#[test]
fn a_restart_in_the_middle_of_a_change_finds_it_and_completes_it() {
    let mut world = World::new(3);
    let leader = world.elect();
    world.pass(ET);
    world.loses = Box::new(completes_a_change);
    let gone = world.follower();
    world.ask(leader, remove(gone));
    world.pass(ET / 2);
    for id in 1..=3 {
        world.kill(id);
        world.restart(id);
        let is_joint = world.member(id).node.raft().membership().is_joint();
        assert_eq!(is_joint, id != leader, "only the leader had the end of it");
    }
    world.loses = Box::new(|_| false);
    world.pass(ET * 4);
    let left = if gone == 1 { 2 } else { 1 };
    assert_eq!(table(&world, left).split(' ').count(), 2, "{}", table(&world, left));
}

#[test]
fn a_newcomer_that_begins_with_a_snapshot_taken_right_after_its_addition_finds_itself_in_it() {
    let mut world = World::with_snapshots(1, OFTEN);
    world.elect();
    write(&mut world, 1, "a", "old");
    for id in 2..=3 {
        changed(told(&mut world, 1, add(id, true)));
        let keeper = &world.member(1).keeper;
        let thawed = Keeper::thaw(keeper.pin().chunks()).expect("good tables");
        assert_eq!((keeper.applied(), thawed.members()), (keeper.members().at, keeper.members()));
        world.join(id);
        world.pass(ET * 3);
        assert!(!world.member(id).snapshots.is_empty(), "the log had nothing left for it");
        assert_eq!(voters(&world, id), (1..=id).collect::<Vec<_>>());
    }
    assert_eq!(value(&mut world, 3, "a").as_deref(), Some("old"));
    assert_eq!(table(&world, 3), "1 2 3");
    assert_equal(&mut world);
}

#[test]
fn a_member_that_moves_is_found_at_its_new_place() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    assert_eq!(changed(told(&mut world, follower, update(follower, "http://moved:1"))), "1 2 3");
    let info = |world: &World| {
        let list = world.member(leader).keeper.members().list;
        list.into_iter().find(|member| member.id.0 == follower).expect("a member").peer_urls
    };
    assert_eq!(info(&world), ["http://moved:1"]);
    assert_eq!(refused(told(&mut world, leader, update(leader, "http://moved:1"))), MemberRefusal::UrlsUsed);
    assert_eq!(changed(told(&mut world, leader, update(follower, "http://moved:1"))), "1 2 3", "once more");
    assert_eq!(refused(told(&mut world, leader, update(9, "http://n9:1"))), MemberRefusal::NotFound);
    assert_equal(&mut world);
}

#[test]
fn leadership_moves_to_whom_the_leader_is_asked_for() {
    let mut world = World::new(3);
    let leader = world.elect();
    let follower = world.follower();
    let third = 6 - leader - follower;
    world.pass(ET);
    let to = |id: u64| Request::MoveLeader(NodeId(id));
    assert_eq!(refused(told(&mut world, follower, to(third))), MemberRefusal::NotLeader);
    assert_eq!(refused(told(&mut world, leader, to(9))), MemberRefusal::BadTransferee);
    changed(told(&mut world, leader, add(4, false)));
    assert_eq!(
        refused(told(&mut world, leader, to(4))),
        MemberRefusal::BadTransferee,
        "a learner cannot lead"
    );
    let moved = |outcome: Outcome| matches!(outcome, Outcome::Done(Reply { body: ReplyBody::Moved, .. }));
    assert!(moved(told(&mut world, leader, to(leader))), "it leads already");
    assert!(moved(told(&mut world, leader, to(third))));
    assert_eq!(world.member(leader).node.raft().leader(), Some(NodeId(third)));
    world.kill(leader);
    assert_eq!(
        refused(told(&mut world, third, to(leader))),
        MemberRefusal::TransferFailed,
        "it does not answer"
    );
    write(&mut world, third, "a", "the leader goes on");
}

#[test]
fn wishes_are_answered_when_a_replica_stops() {
    let mut world = World::new(3);
    let alone = 1;
    let change_request = world.ask(alone, add(4, true));
    assert_eq!(world.outcome(alone, change_request), None, "nobody leads yet");
    world.give(alone, Event::Stop);
    assert_eq!(world.outcome(alone, change_request), Some(&Outcome::Refused(Refusal::Stopping)));
    assert_eq!(world.member(alone).node.pending(), 0);
}

#[test]
fn a_wish_that_finds_no_leader_is_refused_in_time() {
    let mut world = World::new(3);
    world.kill(2);
    world.kill(3);
    assert_eq!(told(&mut world, 1, add(4, true)), Outcome::Refused(Refusal::NoLeader));
}

fn timing(election_ms: u64, heartbeat_ms: u64) -> Timing {
    Timing {
        election_timeout: Duration::from_millis(election_ms),
        heartbeat_interval: Duration::from_millis(heartbeat_ms),
    }
}

fn timings(world: &World) -> Vec<Timing> {
    world.members.values().map(|member| member.node.raft().timing()).collect()
}

/// All members but `silent` announce on every link that they know the newest level.
fn announce(world: &mut World, silent: Option<u64>) {
    let ids: Vec<u64> = world.members.keys().map(|id| id.0).collect();
    for (to, of) in ids.iter().flat_map(|to| ids.iter().map(move |of| (*to, *of))) {
        if to != of && Some(of) != silent {
            world.give(to, Event::Knows(NodeId(of), kattu_node::level::KNOWN));
        }
    }
}

/// Goal: no configuration has an extension before all members can read it; then the leader's timing is that of all, and a
/// request changes it for all. Method: three members, one of which says only late that it knows the newest level.
#[test]
fn the_timing_is_the_clusters_once_all_members_can_read_it_and_a_request_changes_it() {
    let mut world = World::new(3);
    let leader = world.elect();
    let (follower, own) = (world.follower(), timing(1000, 100));
    let change = |timing| Request::Change(MemberChange::Timing(timing));
    let silent = 6 - leader - follower;
    announce(&mut world, Some(silent));
    world.pass(ET);
    assert_eq!(refused(told(&mut world, follower, change(timing(2000, 200)))), MemberRefusal::LevelTooLow);
    let window = Capacity { entries: 10, bytes: 1000 };
    let nb_raft = |window| NbRaft { window, weak: Weak::Off, budget: Capacity { entries: 0, bytes: 0 } };
    let run = |window| Request::Change(MemberChange::Protocol(Protocol::NbRaft(nb_raft(window))));
    assert_eq!(refused(told(&mut world, leader, run(window))), MemberRefusal::LevelTooLow);
    assert_eq!(changed(told(&mut world, leader, add(4, false))), "1 2 3 (4)");
    assert_eq!(changed(told(&mut world, leader, remove(4))), "1 2 3");
    assert!(world.member(leader).node.raft().membership().extensions.is_empty());

    announce(&mut world, None);
    world.pass(ET * 3);
    let in_force = |world: &World| world.member(leader).node.raft().membership().extensions.clone();
    let begun = in_force(&world);
    assert_eq!(
        (begun.timing, begun.protocol),
        (Some(own), Some(Protocol::Raft)),
        "the leader's own began it"
    );
    assert_eq!(changed(told(&mut world, follower, change(timing(2000, 200)))), "1 2 3");
    world.pass(ET);
    assert_eq!(timings(&world), [timing(2000, 200); 3]);
    for broken in [timing(0, 0), timing(299, 100), timing(60_000, 100)] {
        assert_eq!(refused(told(&mut world, leader, change(broken))), MemberRefusal::BadTiming);
    }
    let without_bytes = Capacity { entries: 10, bytes: 0 };
    assert_eq!(refused(told(&mut world, leader, run(without_bytes))), MemberRefusal::BadProtocol);
    assert_eq!(changed(told(&mut world, leader, run(window))), "1 2 3");
    assert_eq!(in_force(&world).protocol, Some(Protocol::NbRaft(nb_raft(window))));

    // A change of the members keeps it, through both steps, and a restart finds it in the log.
    assert_eq!(
        changed(told(&mut world, leader, remove(silent))),
        format!("{} {}", leader.min(follower), leader.max(follower))
    );
    assert_eq!(in_force(&world).timing, Some(timing(2000, 200)));
    world.kill(follower);
    world.restart(follower);
    assert_eq!(world.member(follower).node.raft().timing(), timing(2000, 200));
    assert_eq!(world.member(follower).node.raft().own_timing(), own);
}
