//! Leaders that transfer leadership by themselves: to a voter of higher priority, or because of a slow disk.
//! [fault-model F17]

use kattu_node::TransferConfig;
use kattu_node::contract::*;
use kattu_raft::{Duration, Message, NodeId, Term};
use kattu_replicas::*;

const TO_PRIORITY: TransferConfig = TransferConfig { to_priority: true, from_slow_disk: false };
const FROM_SLOW_DISK: TransferConfig = TransferConfig { to_priority: false, from_slow_disk: true };

/// Three members with this configuration; the one that leads, and the two others.
fn three(transfers: TransferConfig) -> (World, [u64; 3]) {
    let mut world = World::transferring(3, transfers);
    let leader = world.elect();
    let other = world.follower();
    (world, [leader, other, 6 - leader - other])
}

/// Writes for so many milliseconds, on disks of these members that take so many milliseconds each.
fn write(world: &mut World, span: u64, members: [u64; 3], took: [u64; 3]) {
    let time = |id: u64| took[members.iter().position(|&member| member == id).expect("one of three")];
    world.write_for(Duration::from_millis(span), |_, id| Duration::from_millis(time(id)));
}

fn term(world: &World) -> Term {
    world.member(world.leader().expect("a leader")).node.raft().term()
}

#[test]
fn a_leader_on_a_slow_disk_lets_the_member_with_the_fastest_one_lead_but_not_at_once() {
    let (mut world, members) = three(FROM_SLOW_DISK);
    let [leader, _, fast] = members;
    let first = term(&world);
    write(&mut world, 9000, members, [40, 3, 2]);
    assert_eq!(world.leader(), Some(leader), "it has not led for ten election timeouts");
    write(&mut world, 3000, members, [40, 3, 2]);
    assert_eq!((world.leader(), term(&world)), (Some(fast), first.next()), "one transfer");
    // Now a follower's disk is the slow one. It holds nothing up.
    write(&mut world, 20_000, members, [40, 3, 2]);
    assert_eq!((world.leader(), term(&world)), (Some(fast), first.next()));
    // A leader that has led for long leaves as soon as its disk is slow for good.
    write(&mut world, 500, members, [2, 2, 2]);
    write(&mut world, 4000, members, [2, 3, 40]);
    assert_eq!(world.leader(), Some(leader));
}

#[test]
fn a_leader_that_is_not_told_to_stays_on_its_slow_disk_and_members_report_no_times() {
    let (mut world, members) = three(TransferConfig::default());
    write(&mut world, 20_000, members, [40, 3, 2]);
    assert_eq!(world.leader(), Some(members[0]));
    let now = world.now;
    let reported = world.member(members[0]).node.raft().successors(now).map(|successor| successor.disk);
    assert_eq!(reported.collect::<Vec<_>>(), [Duration::ZERO; 2]);
}

#[test]
fn where_all_disks_are_slow_a_leader_stays_and_two_slow_disks_of_three_do_not_excuse_each_other() {
    let (mut world, members) = three(FROM_SLOW_DISK);
    write(&mut world, 20_000, members, [40, 40, 40]);
    write(&mut world, 5000, members, [40, 10, 10]);
    assert_eq!(world.leader(), Some(members[0]), "four times as long is not more than that");
    write(&mut world, 5000, members, [40, 40, 2]);
    assert_eq!(world.leader(), Some(members[2]));
}

#[test]
fn a_burst_of_slow_writes_is_no_slow_disk() {
    let (mut world, members) = three(FROM_SLOW_DISK);
    for (span, own) in [(12_000, 3), (800, 800), (5000, 3), (1200, 60), (200, 3), (1200, 60), (5000, 3)] {
        write(&mut world, span, members, [own, 3, 3]);
        assert_eq!(world.leader(), Some(members[0]), "{span} ms of {own} ms");
    }
    // Nor is a disk slow that takes less than a tenth of a heartbeat interval, whatever others take.
    write(&mut world, 5000, members, [9, 0, 0]);
    assert_eq!(world.leader(), Some(members[0]));
}

#[test]
fn a_member_of_lower_priority_takes_no_leadership_from_a_slow_disk() {
    let (mut world, members) = three(FROM_SLOW_DISK);
    let [leader, low, other] = members;
    world.prefer(low, 50);
    world.prefer(other, 50);
    write(&mut world, 20_000, members, [40, 2, 2]);
    assert_eq!(world.leader(), Some(leader));
    world.prefer(other, 255);
    write(&mut world, 3000, members, [40, 2, 4]);
    assert_eq!(world.leader(), Some(other), "of those of no lower priority, the one with the fastest disk");
}

#[test]
fn a_member_that_is_not_heard_takes_no_leadership_from_a_slow_disk() {
    let (mut world, members) = three(FROM_SLOW_DISK);
    let [leader, fastest, other] = members;
    write(&mut world, 8000, members, [40, 2, 3]);
    world.loses = Box::new(move |message| [message.to().0, message.from().0].contains(&fastest));
    write(&mut world, 4000, members, [40, 2, 3]);
    world.loses = Box::new(|_| false);
    world.pass(ET);
    assert_eq!(world.leader(), Some(other));
    assert_ne!(leader, other);
}

#[test]
fn an_operators_transfer_comes_before_one_because_of_a_slow_disk() {
    let (mut world, members) = three(FROM_SLOW_DISK);
    let [leader, wanted, fastest] = members;
    write(&mut world, 9500, members, [40, 3, 2]);
    world.loses = Box::new(move |message| message.to().0 == wanted);
    world.give(leader, Event::Transfer(Some(NodeId(wanted))));
    write(&mut world, 900, members, [40, 3, 2]);
    let raft = world.member(leader).node.raft();
    assert_eq!(
        (raft.is_leader(), raft.transferring()),
        (true, Some(NodeId(wanted))),
        "it waits for the outcome"
    );
    world.loses = Box::new(|_| false);
    world.pass(ET);
    assert_eq!(world.leader(), Some(wanted));
    write(&mut world, 14_000, members, [40, 40, 2]);
    assert_eq!(world.leader(), Some(fastest));
}

#[test]
fn a_leader_offers_leadership_to_the_voter_of_highest_priority_after_an_election_timeout() {
    let (mut world, [leader, higher, highest]) = three(TO_PRIORITY);
    let first = term(&world);
    world.prefer(higher, 150);
    world.prefer(highest, 200);
    world.pass(ET * 3 / 2);
    assert_eq!((world.leader(), term(&world)), (Some(highest), first.next()));
    assert_ne!(leader, highest);
}

#[test]
fn leadership_is_not_offered_to_a_voter_that_lags_and_not_by_a_leader_that_is_not_told_to() {
    let (mut world, [leader, lagging, _]) = three(TO_PRIORITY);
    world.loses = Box::new(move |message| {
        let PeerMessage::Raft(envelope) = message else { return false };
        matches!(&envelope.message, Message::Append(append) if message.to().0 == lagging && !append.entries.is_empty())
    });
    world.ask(leader, put("a", "missing there"));
    world.prefer(lagging, 200);
    world.pass(ET * 20);
    assert_eq!(world.leader(), Some(leader), "it is heard, and lacks what is committed");
    world.loses = Box::new(|_| false);
    world.pass(ET * 2);
    assert_eq!(world.leader(), Some(lagging));

    let (mut world, [leader, higher, _]) = three(TransferConfig::default());
    world.prefer(higher, 200);
    world.pass(ET * 20);
    assert_eq!(world.leader(), Some(leader));
}
