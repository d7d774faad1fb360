//! Calls outside of sessions: where they go, when they are repeated, and what they tell.

use crate::world::{Act, Kind, Manners, Seen, World};
use kattu_client::api::{
    self, Answer, Compare, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, Put, Range,
    Revision, Txn,
};
use kattu_client::{Error, Kind as Effect, Level, Options, Seen as Position, SessionOptions};
use kattu_native::message;
use kattu_native::reply::Refusal;
use std::time::Duration;

fn key(key: &str) -> KeyRange {
    KeyRange { start: key.into(), end: vec![] }
}

fn count(seen: &[Seen], at: usize, kind: impl Fn(Kind) -> bool) -> usize {
    seen.iter().filter(|seen| seen.at == at && kind(seen.kind)).count()
}

#[tokio::test]
async fn each_operation_has_its_answer() {
    let world = World::new(1).await;
    let client = world.client();
    let put = client.put("a", "1").await.expect("done");
    assert_eq!((put.revision, put.answer), (Revision(2), Answer::Put { prev_kv: None }));
    assert_eq!(&client.get("a").await.expect("a read").expect("a pair").value[..], b"1");
    assert_eq!(client.get("b").await.expect("a read"), None);
    let is_there =
        Compare { keys: key("a"), result: CompareResult::Greater, target: CompareTarget::Version(0) };
    let write = Operation::Put(api::Put { key: b"b".to_vec(), ..Put::default() });
    let txn = Txn { compare: vec![is_there], success: vec![write], failure: vec![] };
    let done = client.txn(txn).await.expect("done");
    assert!(matches!(done.answer, Answer::Txn { succeeded: true, .. }), "{done:?}");
    let read = Operation::Range(Range { keys: key("b"), ..Range::default() });
    client.txn(Txn { success: vec![read], ..Txn::default() }).await.expect("a read");
    let reads = count(&world.seen.lock().unwrap(), 0, |kind| matches!(kind, Kind::Read(_)));
    assert_eq!(reads, 3, "a transaction that only reads is a read");
    let delete = DeleteRange { keys: KeyRange { start: b"a".to_vec(), end: b"c".to_vec() }, prev_kv: false };
    let deleted = client.delete_range(delete).await.expect("done");
    assert!(matches!(deleted.answer, Answer::DeleteRange { deleted: 2, .. }), "{deleted:?}");
    client.compact(Revision(3)).await.expect("done");
    client.ping().await.expect("an answer");
    let old = Range { keys: key("a"), revision: Revision(2), ..Range::default() };
    let error = client.range(old).await.expect_err("it is compacted");
    assert!(matches!(error, Error::Store(api::Error::Compacted)), "{error:?}");
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    let (all, listed) = client.list_sessions(0, 10).await.expect("a list");
    assert_eq!((all, listed.len(), listed[0].number), (1, 1, session.id().number));
}

#[tokio::test]
async fn a_refused_write_goes_to_the_leader_that_the_refusal_names_also_if_no_endpoint_did() {
    let world = World::new(3).await;
    world.lead(2);
    // It knows the first two only.
    let client = world.client_of(world.addresses()[..2].to_vec(), Options::default());
    // The welcome knows of an older leader.
    client.ping().await.expect("an answer");
    world.lead(1);
    client.put("k", "1").await.expect("done");
    world.lead(2);
    client.put("k", "2").await.expect("done");
    client.put("k", "3").await.expect("done");
    let seen = world.seen.lock().unwrap();
    assert!(2 <= count(&seen, 2, |kind| kind == Kind::Write), "{seen:?}");
    assert_eq!(world.version("k"), 3);
}

#[tokio::test]
async fn a_write_of_unknown_outcome_is_not_repeated_and_one_that_was_refused_is() {
    let world = World::new(1).await;
    let client = world.client();
    let mut acts =
        [Act::RefuseBare(Refusal::Replaying), Act::RefuseBare(Refusal::TooManyRequests), Act::ServeAndClose]
            .into_iter();
    world.decide(
        move |seen| if seen.kind == Kind::Write { acts.next().unwrap_or(Act::Serve) } else { Act::Serve },
    );
    let error = client.put("k", "1").await.expect_err("its answer is lost");
    assert_eq!((error.kind(), world.version("k")), (Effect::Unknown, 1), "{error}");
    world.decide(|_| Act::ServeAndDoubt);
    let error = client.put("k", "2").await.expect_err("the member doubts");
    assert_eq!((error.kind(), world.version("k")), (Effect::Unknown, 2), "{error}");
    // A read is repeated in any case.
    let mut acts = [Act::ServeAndClose, Act::Doubt, Act::Close].into_iter();
    world.decide(move |_| acts.next().unwrap_or(Act::Serve));
    assert_eq!(client.get("k").await.expect("a read").expect("a pair").version, 2);
}

#[tokio::test]
async fn a_refusal_that_will_not_pass_is_told_at_once() {
    let world = World::new(2).await;
    let client = world.client();
    for (act, named) in [
        (Act::Refuse(Refusal::NoSpace), "no space"),
        (Act::Refuse(Refusal::TooMuchWork), "smaller range"),
        (Act::Malformed, "cannot read the request"),
    ] {
        world.seen.lock().unwrap().clear();
        world.decide(move |_| act);
        let error = client.put("k", "1").await.expect_err("it is refused");
        assert!(error.kind() == Effect::Refused && error.to_string().contains(named), "{error}");
        assert_eq!(world.seen.lock().unwrap().len(), 1);
    }
    let large = vec![0; 2 << 20];
    let error = client.put("k", large).await.expect_err("it is larger than a frame");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("make it smaller"), "{error}");
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_tells_what_is_known() {
    let world = World::new(2).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_millis(150) });
    world.decide(|seen| if seen.kind == Kind::Ping { Act::Serve } else { Act::Ignore });
    let error = client.put("k", "1").await.expect_err("no answer");
    assert_eq!(error.kind(), Effect::Unknown, "{error}");
    world.decide(|_| Act::RefuseBare(Refusal::NoLeader));
    let error = client.put("k", "1").await.expect_err("no leader");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("no leader"), "{error}");
    assert_eq!(world.version("k"), 0);
}

#[tokio::test]
async fn a_read_leaves_a_silent_member_for_another() {
    let world = World::with(2, 1000, Manners { forwards: true, ..Manners::default() }).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_secs(1) });
    world.decide(|seen| if seen.at == 0 { Act::Ignore } else { Act::Serve });
    assert_eq!(client.get("k").await.expect("from the other one"), None);
}

#[tokio::test]
async fn reads_that_any_member_can_serve_are_spread_and_ask_for_what_was_seen() {
    let world = World::new(3).await;
    let client = world.client();
    let position = Position::new();
    let own = client.at_level(Level::AtLeast(position.clone()));
    own.put("k", "1").await.expect("done");
    let index = position.position();
    assert!(0 < index);
    for level in [Level::Serializable, Level::Bounded(Duration::from_nanos(7))] {
        let client = client.at_level(level);
        for _ in 0..9 {
            client.get("k").await.expect("a read");
        }
    }
    for _ in 0..9 {
        own.get("k").await.expect("a read");
    }
    for at in 0..3 {
        let seen = world.seen.lock().unwrap();
        for level in
            [message::Level::Serializable, message::Level::Bounded(7), message::Level::AtLeast(index)]
        {
            assert_eq!(count(&seen, at, |kind| kind == Kind::Read(level)), 3, "{level:?} at {at}");
        }
    }
    client.get("k").await.expect("a read");
    let seen = world.seen.lock().unwrap();
    assert_eq!(seen.last().expect("one").at, 0, "a linearizable read goes to the leader");
}

#[tokio::test]
async fn a_leader_that_is_not_known_any_more_is_found_again_although_answers_do_not_name_it() {
    let world = World::with(3, 1000, Manners { forwards: true, ..Manners::default() }).await;
    let client = world.client();
    client.put("k", "1").await.expect("done");
    assert_eq!(count(&world.seen.lock().unwrap(), 0, |kind| kind == Kind::Write), 1);
    // The client has a connection to each of them when the first one leads no more, and knows no other leader.
    for _ in 0..3 {
        client.at_level(Level::Serializable).get("k").await.expect("a read");
    }
    world.lead(2);
    let mut is_refused = false;
    world.decide(move |seen| match seen.at == 0 && !std::mem::replace(&mut is_refused, true) {
        true => Act::RefuseBare(Refusal::NoLeader),
        false => Act::Serve,
    });
    client.put("k", "2").await.expect("each member serves it");
    loop {
        client.put("k", "3").await.expect("each member serves it");
        let seen = world.seen.lock().unwrap();
        if seen.iter().rev().take(40).all(|seen| seen.at == 2) {
            break;
        }
    }
}

#[tokio::test]
async fn requests_of_one_wakeup_share_a_frame_within_the_limits_of_the_member() {
    let world = World::with(1, 10, Manners::default()).await;
    let client = world.client();
    client.ping().await.expect("a connection");
    world.frames.lock().unwrap().clear();
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.put(format!("k{n}"), "v").await })
        })
        .collect();
    for call in calls {
        call.await.expect("a task").expect("done");
    }
    let frames = world.frames.lock().unwrap();
    assert_eq!(frames.iter().sum::<usize>(), 100);
    assert!(frames.iter().all(|count| *count < 10), "one place is kept: {frames:?}");
    assert!(frames.len() < 60, "{frames:?}");
}
