//! The handshake between two tables, without a network: which frames get a caller in, and which end its connection.

use super::*;
use crate::peer_table::Own;
use kattu_node::contract::{Forward, MemberInfo};
use kattu_raft::message::{Remind, TimeoutNow};
use kattu_raft::{Envelope, Incarnation, LogIndex, Term};
use kattu_wire::Challenge;
use std::collections::BTreeMap;

const US: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const CLUSTER: u64 = 0xC1;
const NUMBER: u64 = 7;
const SECRET: u64 = 70;

fn own(id: NodeId, incarnation: u64) -> Own {
    let peer_urls = vec![format!("http://10.0.0.{}:2380", id.0)];
    let incarnation = Incarnation(incarnation);
    Own { cluster: CLUSTER, id, incarnation, peer_urls, priority: 100, ..Own::default() }
}

fn member(id: NodeId) -> MemberInfo {
    let peer_urls = vec![format!("http://10.0.0.{}:2380", id.0)];
    MemberInfo { id, peer_urls, ..MemberInfo::default() }
}

/// A table that lists these members, with what it had to do so far taken out.
fn table(id: NodeId, list: &[NodeId]) -> PeerTable {
    let mut table = PeerTable::new(own(id, 9), BTreeMap::new());
    let list = list.iter().copied().map(member).collect();
    table.follow(Members { list, at: LogIndex(1), ..Members::default() });
    table.take_output();
    table
}

fn door() -> Door<'static> {
    Door { signed: None, group: GroupId(0), now: Instant(5), challenge: (NUMBER, SECRET) }
}

fn first_hello() -> Hello {
    let Frame::Hello(hello) = hello(&table(PEER, &[US, PEER]), US, Lane::Bulk) else { unreachable!() };
    hello
}

fn says_hello(hello: &Hello, table: &mut PeerTable) -> First {
    door().first(Frame::Hello(hello.clone()), table)
}

fn welcomed(hello: &Hello, table: &mut PeerTable) -> (Welcome, Caller) {
    match says_hello(hello, table) {
        First::Member(Frame::Welcome(welcome), caller) => (welcome, caller),
        other => panic!("{other:?}"),
    }
}

fn why_refused(first: First) -> String {
    let First::Refused(frame, why) = first else { panic!("{first:?}") };
    assert!(
        !matches!(&frame, Frame::Refused(told) if told.reason != why),
        "both sides log the same: {frame:?}"
    );
    why
}

/// A caller that has given its proof.
fn believed(hello: &Hello, table: &mut PeerTable) -> Caller {
    let (_, mut caller) = welcomed(hello, table);
    assert_eq!(caller.hear(Frame::Proof(ASK_ME), table), Ok(Heard::Nothing));
    assert_eq!(caller.hear(Frame::Proof(SECRET), table), Ok(Heard::Believed));
    caller
}

fn message(from: NodeId, to: NodeId, group: u32, message: Message) -> Frame {
    let incarnation = Incarnation(9);
    let envelope = Envelope { group: GroupId(group), from, incarnation, to, term: Term(1), message };
    Frame::Message(PeerMessage::Raft(envelope))
}

fn timeout_now() -> Frame {
    message(PEER, US, 0, Message::TimeoutNow(TimeoutNow {}))
}

/// Goal: a caller is believed after the secret has gone to the address of the member that it claims to be, and has come
/// back. Method: two tables, and each frame carried to the other side by hand.
#[test]
fn two_members_meet() {
    let (mut ours, mut theirs) = (table(US, &[US, PEER]), table(PEER, &[US, PEER]));
    let Frame::Hello(first_frame) = hello(&theirs, US, Lane::Control) else { unreachable!() };
    let (welcome, mut caller) = welcomed(&first_frame, &mut ours);
    assert!(!ours.take_output().stranger_came && ours.heard().is_empty());
    let welcome = answered(Frame::Welcome(welcome), US, &mut theirs).expect("it is welcome");
    let (proving, ask_me) = Proving::begin(&welcome, &mut theirs).expect("it is asked for a proof");
    assert_eq!(proving.next(&mut theirs), (vec![], false), "the secret has not come");
    assert_eq!(caller.hear(ask_me, &mut ours), Ok(Heard::Nothing));
    // The challenge travels on a connection in the other direction, which waits for its own proof meanwhile.
    let (back, mut back_caller) = match door().first(hello(&ours, PEER, Lane::Bulk), &mut theirs) {
        First::Member(Frame::Welcome(welcome), caller) => (welcome, caller),
        other => panic!("{other:?}"),
    };
    let (back_proving, _) = Proving::begin(&back, &mut ours).expect("it is asked for a proof, too");
    let (challenges, is_over) = back_proving.next(&mut ours);
    assert_eq!((challenges.len(), is_over), (1, false));
    for challenge in challenges {
        assert_eq!(back_caller.hear(challenge, &mut theirs), Ok(Heard::Nothing));
    }
    let (proof, is_over) = proving.next(&mut theirs);
    assert!(is_over && proof == [Frame::Proof(SECRET)]);
    proving.end(&mut theirs);
    assert!(!caller.is_believed() && caller.asked() == Some(NUMBER));
    assert_eq!(caller.hear(proof[0].clone(), &mut ours), Ok(Heard::Believed));
    assert!(caller.is_believed() && caller.asked().is_none() && ours.proofs.open() == 0);
    assert_eq!((caller.protocol(), caller.hello()), (PROTOCOL_MAX, &first_frame));
    let output = ours.take_output();
    assert_eq!(output.remember, Some((PEER, Incarnation(9))));
    assert!(output.proofs_changed && ours.heard().contains(&PEER) && ours.proofs.arrivals(PEER) == 1);
    let brings: Vec<Heard> =
        introduction(&theirs).map(|frame| caller.hear(frame, &mut ours).expect("it may")).into();
    let knows = Heard::Event(Event::Knows(PEER, level::KNOWN));
    assert_eq!(brings, [Heard::Nothing, knows, Heard::Nothing]);
}

#[test]
fn a_caller_that_does_not_belong_is_told_why() {
    let hello = first_hello();
    let mut us = table(US, &[US, PEER]);
    let cases = [
        (Hello { cluster: 0xC2, ..hello.clone() }, "cluster c2"),
        (Hello { to: NodeId(3), ..hello.clone() }, "expects member 3"),
        (Hello { from: US, ..hello.clone() }, "not a peer"),
        (
            Hello { protocol_min: PROTOCOL_MAX + 1, protocol_max: PROTOCOL_MAX + 1, ..hello.clone() },
            "upgrade",
        ),
    ];
    for (hello, why) in cases {
        let told = why_refused(says_hello(&hello, &mut us));
        assert!(told.contains(why), "{told}");
    }
    let told = why_refused(door().first(Frame::Level(1), &mut us));
    assert!(told.contains("must begin with a handshake"), "{told}");
    us.follow(Members { removed: vec![PEER], ..Members::default() });
    let First::Refused(Frame::Removed(removed), why) = says_hello(&hello, &mut us) else {
        panic!("it was removed")
    };
    assert!((removed.cluster, removed.member) == (CLUSTER, PEER) && why.contains("removed"));
    assert!(us.is_blank() && us.proofs.open() == 0, "nothing is kept of them");
}

/// Goal: no false alarm when a cluster starts for the first time: its members ask each other under the ids that the
/// cluster would have from earlier URLs, too, and one that has begun already has only one of them.
#[test]
fn a_founder_that_asks_under_another_cluster_id_is_refused_without_an_alarm() {
    let mut us = table(US, &[US, PEER]);
    let asks = |cluster| door().first(founder_asks(cluster, PEER, US), &mut table(US, &[US, PEER]));
    let First::Answered(answer) = asks(0xC2) else { panic!("a refusal would be logged as a warning") };
    assert!(matches!(&answer, Frame::Refused(told) if told.reason.contains("cluster c2")), "{answer:?}");
    let First::Answered(answer) = asks(CLUSTER) else { panic!("it may begin") };
    assert!(matches!(answer, Frame::Welcome(_)));
    let with_directory = Hello { cluster: 0xC2, ..first_hello() };
    assert!(why_refused(says_hello(&with_directory, &mut us)).contains("cluster c2"), "that one is reported");
}

#[test]
fn a_founder_is_known_from_a_handshake_and_to_have_asked_is_not_to_have_begun() {
    let mut us = table(US, &[US, PEER]);
    let is_known = |us: &mut PeerTable| match door().first(founder_asks(CLUSTER, PEER, US), us) {
        First::Answered(answer) | First::Refused(answer, _) => {
            assert!(!founder_is_known(&answer, 0xC2, PEER) && !founder_is_known(&answer, CLUSTER, US));
            founder_is_known(&answer, CLUSTER, PEER)
        }
        other => panic!("{other:?}"),
    };
    assert!(!is_known(&mut us), "it may begin");
    assert!(!is_known(&mut us), "to have asked is not to have begun");
    believed(&first_hello(), &mut us);
    assert!(is_known(&mut us), "it has come with a directory");
}

#[test]
fn a_voter_comes_from_one_directory_and_a_learner_may_begin_again() {
    let other = Hello { incarnation: Incarnation(10), ..first_hello() };
    let mut us = table(US, &[US, PEER]);
    believed(&first_hello(), &mut us);
    let First::Refused(Frame::Conflict(conflict), why) = says_hello(&other, &mut us) else {
        panic!("another directory of a voter")
    };
    assert_eq!((conflict.cluster, conflict.member), (CLUSTER, PEER));
    assert!(why.contains("another data directory"), "{why}");

    let mut us = table(US, &[US]);
    let learner = MemberInfo { learner: true, ..member(PEER) };
    us.follow(Members { list: vec![learner], ..Members::default() });
    believed(&first_hello(), &mut us);
    welcomed(&other, &mut us);
}

#[test]
fn a_directory_or_a_removal_that_is_learnt_during_the_handshake_counts() {
    let mut us = table(US, &[US, PEER]);
    let (_, mut other) = welcomed(&Hello { incarnation: Incarnation(10), ..first_hello() }, &mut us);
    us.let_in(&first_hello());
    let why = other.hear(Frame::Proof(SECRET), &mut us).expect_err("another directory came first");
    assert!(why.contains("another data directory"), "{why}");
    let (_, mut caller) = welcomed(&first_hello(), &mut us);
    us.follow(Members { removed: vec![PEER], ..Members::default() });
    assert!(caller.hear(Frame::Proof(SECRET), &mut us).is_err_and(|why| why.contains("was removed")));
}

#[test]
fn a_stranger_waits_until_known_members_name_it() {
    let mut us = table(US, &[US]);
    let (welcome, mut caller) = welcomed(&first_hello(), &mut us);
    assert!(us.take_output().stranger_came && welcome.proof == NUMBER);
    assert_eq!(caller.hear(Frame::Proof(ASK_ME), &mut us), Ok(Heard::Nothing));
    assert!(
        !us.proofs.has_untold(PEER) && us.places().is_empty(),
        "where it says it is reached is not dialled"
    );
    let members = Members { at: LogIndex(2), list: vec![member(PEER)], removed: vec![] };
    let list = MemberList { cluster: CLUSTER, began_with: vec![], members, heard: vec![] };
    assert!(us.vouched_for(list));
    assert!(us.proofs.has_untold(PEER) && us.is_linked(PEER));
    assert_eq!(caller.hear(Frame::Proof(SECRET), &mut us), Ok(Heard::Believed));
    assert_eq!(us.take_output().remember, None, "the table does not list it as a voter yet");
}

#[test]
fn a_caller_without_a_proof_is_not_heard() {
    let mut us = table(US, &[US, PEER]);
    let introduction = introduction(&table(PEER, &[])).into_iter();
    for frame in introduction.chain([timeout_now(), Frame::Hello(first_hello())]) {
        let (_, mut caller) = welcomed(&first_hello(), &mut us);
        let why = caller.hear(frame, &mut us).expect_err("it has not proved anything");
        assert_eq!(why, "a frame before the proof of identity");
        us.proofs.forget_asked(NUMBER);
    }
    let (_, mut caller) = welcomed(&first_hello(), &mut us);
    for harmless in
        [Frame::Unknown { kind: 99 }, Frame::Goodbye(kattu_wire::Goodbye { reason: String::new() })]
    {
        assert_eq!(caller.hear(harmless, &mut us), Ok(Heard::Nothing));
    }
    let why = caller.hear(Frame::Proof(SECRET + 1), &mut us).expect_err("a guess");
    assert!(why.contains("wrong proof"), "{why}");
    us.take_output();
    assert!(us.is_blank());
}

#[test]
fn a_version_without_proofs_is_heard_until_all_members_have_them() {
    let older = |from| Hello { protocol_max: PROTOCOL_PROOFS - 1, from, ..first_hello() };
    let mut us = table(US, &[US, PEER]);
    let (welcome, mut caller) = welcomed(&older(PEER), &mut us);
    assert!(welcome.proof == 0 && caller.is_believed() && caller.protocol() == PROTOCOL_PROOFS - 1);
    caller.let_in(&mut us);
    assert!(us.heard().contains(&PEER));
    let level = Heard::Event(Event::Knows(PEER, 1));
    assert_eq!(caller.hear(Frame::Level(1), &mut us), Ok(level));
    let why = why_refused(says_hello(&older(NodeId(7)), &mut us));
    assert!(why.contains("not in the receiver's member list") && us.take_output().stranger_came, "{why}");
    us.set_level(level::PROOFS);
    let why = why_refused(says_hello(&older(PEER), &mut us));
    assert!(why.contains("cannot prove its identity"), "{why}");
}

#[test]
fn a_certificate_proves_the_member_at_whose_host_it_is() {
    let mut us = table(US, &[US, PEER]);
    let door = |is_for| Door { signed: Some(is_for), ..door() };
    let right: IsFor<'_> = &|host| host == "10.0.0.2";
    let First::Member(Frame::Welcome(welcome), caller) =
        door(right).first(Frame::Hello(first_hello()), &mut us)
    else {
        panic!("its certificate is its proof")
    };
    assert!(welcome.proof == 0 && caller.is_believed());
    let mut elsewhere = member(PEER);
    elsewhere.peer_urls.push("http://10.0.0.77:2380".into());
    let mut reached_twice = table(US, &[US]);
    let list = vec![member(US), elsewhere];
    reached_twice.follow(Members { list, at: LogIndex(2), ..Members::default() });
    let First::Member(_, caller) = door(right).first(Frame::Hello(first_hello()), &mut reached_twice) else {
        panic!("it is for one of its hosts")
    };
    assert!(caller.is_believed());
    let wrong: IsFor<'_> = &|host| host == "10.0.0.3";
    let why = why_refused(door(wrong).first(Frame::Hello(first_hello()), &mut us));
    assert_eq!(why, "its certificate is not for 10.0.0.2, where member 2 is reached");
    let mut blank = table(US, &[US]);
    let First::Member(Frame::Welcome(welcome), _) =
        door(right).first(Frame::Hello(first_hello()), &mut blank)
    else {
        panic!("it is asked for a proof")
    };
    assert_eq!(welcome.proof, NUMBER, "the hosts of an unknown member are not known");
}

#[test]
fn a_believed_caller_speaks_for_itself_and_for_this_group() {
    let mut us = table(US, &[US, PEER]);
    let mut caller = believed(&first_hello(), &mut us);
    let mut hears = |frame: Frame| caller.hear(frame, &mut us);
    let Frame::Message(welcome) = timeout_now() else { unreachable!() };
    assert_eq!(hears(timeout_now()), Ok(Heard::Event(Event::Peer(welcome))));
    let says = || Message::TimeoutNow(TimeoutNow {});
    let why = hears(message(NodeId(3), US, 0, says())).expect_err("of another member");
    assert_eq!(why, "a message from 3 to 1 on the link of 2");
    assert!(hears(message(PEER, NodeId(3), 0, says())).is_err(), "to another member");
    assert!(hears(message(PEER, US, 1, says())).is_err_and(|why| why.contains("group 1")));
    let (from, to, incarnation, term) = (PEER, NodeId(3), Incarnation(9), Term(1));
    let forward = Forward { from, to, incarnation, term, first_seq: 1, commands: vec![] };
    assert!(hears(Frame::Message(PeerMessage::Forward(forward))).is_err(), "to another member");
    assert_eq!(hears(Frame::Hello(first_hello())), Err("a second handshake".into()));
    for harmless in [Frame::Proof(1), Frame::Unknown { kind: 99 }] {
        assert_eq!(hears(harmless), Ok(Heard::Nothing));
    }
}

#[test]
fn what_a_caller_announces_again_is_no_news() {
    let mut us = table(US, &[US, PEER]);
    let mut caller = believed(&first_hello(), &mut us);
    us.take_output();
    for (level, is_news) in [(2, true), (2, false), (7, true), (7, false), (2, true)] {
        let heard = caller.hear(Frame::Level(level), &mut us);
        let news = Heard::Event(Event::Knows(PEER, level));
        assert_eq!(heard, Ok(if is_news { news } else { Heard::Nothing }));
    }
    for (priority, is_news) in [(100, false), (200, true), (200, false), (100, true)] {
        let peer_urls = vec!["http://10.0.0.2:2380".to_string()];
        let told = Frame::Introduction(kattu_wire::Introduction { peer_urls, priority });
        let news = Heard::Event(Event::Priority(PEER, priority));
        let heard = caller.hear(told, &mut us);
        assert_eq!(
            heard,
            Ok(if is_news { news } else { Heard::Nothing }),
            "100 is what each member begins with"
        );
    }
    assert_eq!(caller.hear(Frame::Quota(50), &mut us), Ok(Heard::Nothing));
    assert_eq!(us.least_quota(), Some(50));
}

#[test]
fn a_reminder_asked_for_tells_when_its_connection_was_opened() {
    let mut us = table(US, &[US, PEER]);
    let mut caller = believed(&first_hello(), &mut us);
    let remind = Remind { nonce: 3 };
    assert!(caller.hear(message(PEER, US, 0, Message::Remind(remind)), &mut us).is_ok());
    assert!(us.proofs.has_started_since(PEER, Instant(4)) && !us.proofs.has_started_since(PEER, Instant(5)));
}

#[test]
fn a_secret_of_a_connection_that_was_given_up_is_forgotten() {
    let mut us = table(US, &[US, PEER]);
    let welcome = Welcome { protocol: PROTOCOL_MAX, from: PEER, incarnation: Incarnation(9), proof: 5 };
    let (proving, _) = Proving::begin(&welcome, &mut us).expect("it is asked for a proof");
    proving.end(&mut us);
    us.proofs.told(PEER, Challenge { number: 5, secret: 50 });
    assert_eq!(proving.next(&mut us), (vec![], false));
    assert!(Proving::begin(&Welcome { proof: 0, ..welcome }, &mut us).is_none());
}

#[test]
fn the_answer_to_a_hello_is_read_with_care() {
    let mut us = table(US, &[US, PEER]);
    let welcome = Welcome { protocol: PROTOCOL_MAX, from: PEER, incarnation: Incarnation(9), proof: 0 };
    let mut means = |frame: Frame| answered(frame, PEER, &mut us);
    assert_eq!(means(Frame::Welcome(welcome.clone())), Ok(welcome.clone()));
    let mut refused = |frame: Frame| match means(frame) {
        Err(Failure::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let other = Welcome { from: NodeId(3), ..welcome.clone() };
    assert!(refused(Frame::Welcome(other)).starts_with("member 3 answers at this address"));
    for protocol in [PROTOCOL_MIN - 1, PROTOCOL_MAX + 1] {
        let strange = Welcome { protocol, ..welcome.clone() };
        assert!(refused(Frame::Welcome(strange)).contains("chose protocol version"));
    }
    assert_eq!(refused(Frame::Refused(Refused { reason: "because".into() })), "because");
    let of = |cluster, member| Frame::Removed(Removed { cluster, member });
    assert!(refused(of(CLUSTER, PEER)).contains("unexpected"), "the removal of another member");
    assert!(refused(of(0xC2, US)).contains("unexpected"), "of another cluster");
    assert!(refused(Frame::Unknown { kind: 99 }).contains("unexpected"));
    let of = |cluster, member| Frame::Conflict(Conflict { cluster, member });
    assert!(refused(of(0xC2, US)).contains("another data directory"));
    assert!(!us.was_known(), "of another cluster");
    assert!(answered(of(CLUSTER, US), PEER, &mut us).is_err() && us.was_known());
    let removed = Frame::Removed(Removed { cluster: CLUSTER, member: US });
    assert_eq!(answered(removed, PEER, &mut us), Err(Failure::Removed));
}

#[test]
fn a_newcomer_is_told_the_members_that_a_quorum_confirms() {
    let mut us = table(US, &[US, PEER]);
    believed(&first_hello(), &mut us);
    let asks = newcomer_asks(&["http://10.0.0.4:2380".to_string()]);
    let Frame::Join(join) = asks.clone() else { unreachable!() };
    assert!(matches!(door().first(asks, &mut us), First::Newcomer(asked) if asked == join));
    let newer = Join { protocol_min: PROTOCOL_MAX + 1, protocol_max: PROTOCOL_MAX + 1, ..join };
    assert!(why_refused(door().first(Frame::Join(newer), &mut us)).contains("upgrade the older one"));

    let members = Members { at: LogIndex(4), list: vec![member(US), member(PEER)], removed: vec![] };
    let (told, outcome) = answer_to_newcomer(&us, Ok(members.clone()));
    assert_eq!(outcome, Ok(()));
    let list = members_are_told(told).expect("a list");
    assert_eq!((list.cluster, list.members, list.heard), (CLUSTER, members, vec![US, PEER]));
    let (told, outcome) = answer_to_newcomer(&us, Err("no quorum".into()));
    assert_eq!(outcome, Err("no quorum".into()));
    assert_eq!(members_are_told(told), Err(Failure::Refused("no quorum".into())));
    assert!(matches!(members_are_told(Frame::Level(1)), Err(Failure::Refused(_))));
}

#[test]
fn a_member_that_asks_about_a_stranger_is_told_all_members_known_and_no_quorum_is_asked() {
    const THIRD: NodeId = NodeId(0x33);
    const GONE: NodeId = NodeId(0x44);
    let named_by = |us: &mut PeerTable| match door().first(member_asks(), us) {
        First::Answered(answer) => members_are_told(answer).expect("a list").members,
        other => panic!("{other:?}"),
    };
    let mut us = table(US, &[US, PEER]);
    let own = named_by(&mut us);
    assert_eq!(own.list, [member(US), member(PEER)]);
    let list = |at, ids: &[NodeId]| {
        let list = ids.iter().copied().map(member).collect();
        let members = Members { at: LogIndex(at), list, removed: vec![] };
        MemberList { cluster: CLUSTER, began_with: vec![], members, heard: vec![] }
    };
    assert!(us.vouched_for(list(9, &[PEER, THIRD])));
    let both = named_by(&mut us);
    let ids: Vec<NodeId> = both.list.iter().map(|member| member.id).collect();
    assert_eq!((both.at, ids), (own.at, vec![US, PEER, THIRD]), "what others have named is named, too");
    let urls = both.list.into_iter().find(|it| it.id == THIRD).map(|it| it.peer_urls);
    assert_eq!(urls, Some(member(THIRD).peer_urls), "with its addresses");
    us.follow(Members { removed: vec![GONE, THIRD], at: LogIndex(12), ..own });
    assert!(!us.vouched_for(list(20, &[GONE])), "a removed member is never admitted again");
    let names = named_by(&mut us);
    assert_eq!((names.list.len(), names.removed), (2, vec![GONE, THIRD]), "nor is it named");
}
