//! Exactly once: commands of a session through losses, refusals, doubts and answers in another order.

use crate::world::{Act, Chance, Kind, Manners, World};
use kattu_client::api::{self, Answer, Command, Operation, Put, Txn};
use kattu_client::{Error, Kind as Effect, Options, Order, SessionError, SessionOptions};
use kattu_native::reply::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PUTS: u64 = 10_000;
const PATIENT: Options = Options { timeout: Duration::from_secs(60) };

/// A put that asks for the value before it.
pub fn put(value: u64) -> Command {
    let value = value.to_string().into_bytes();
    Command::Put(Put { key: b"k".to_vec(), value, prev_kv: true, ..Put::default() })
}

/// What an answer shows: the version that its put made, and the value that it replaced.
pub fn shown(answer: &Answer) -> (i64, Option<u64>) {
    let Answer::Put { prev_kv } = answer else { panic!("{answer:?}") };
    let value = prev_kv.as_ref().map(|pair| String::from_utf8_lossy(&pair.value).parse().expect("a number"));
    (prev_kv.as_ref().map_or(1, |pair| pair.version + 1), value)
}

/// A member meets each kind of fault, again and again.
pub fn storms(world: &Arc<World>, seed: u64) -> Arc<AtomicUsize> {
    let faults = Arc::new(AtomicUsize::new(0));
    let count = faults.clone();
    let mut chance = Chance(seed);
    let weak = Arc::downgrade(world);
    world.decide(move |seen| {
        if seen.kind != Kind::Write || !chance.one_in(300) {
            return Act::Serve;
        }
        count.fetch_add(1, Ordering::SeqCst);
        match chance.below(8) {
            0 | 1 => Act::Close,
            2 | 3 => Act::ServeAndClose,
            4 => Act::Doubt,
            5 => Act::ServeAndDoubt,
            6 => Act::RefuseBare(Refusal::TooManyRequests),
            _ => {
                let world = weak.upgrade().expect("it is in use");
                world.lead(chance.below(3) as usize);
                Act::Refuse(Refusal::LeaderChanged)
            }
        }
    });
    faults
}

async fn puts_through_storms(order: Order, seed: u64) {
    let world =
        World::with(3, 1000, Manners { turns_answers: true, cuts_frames: Some(11), ..Manners::default() })
            .await;
    let client = world.client_of(world.addresses(), PATIENT);
    let session = client.open_session(SessionOptions { order, window: 256 }).await.expect("a session");
    let faults = storms(&world, seed);
    let mut pending = Vec::new();
    for value in 0..PUTS {
        pending.push(session.command(&put(value)).await.expect("room"));
    }
    let (mut versions, mut before) = (BTreeSet::new(), BTreeSet::new());
    for (value, answer) in (0u64..).zip(pending) {
        let response = answer.await.unwrap_or_else(|error| panic!("put {value}: {error}"));
        let (version, replaced) = shown(&response.answer);
        if order == Order::Strict {
            // Each answer is that of its own put: it shows the value of the put before it.
            assert_eq!((version, replaced), (value as i64 + 1, value.checked_sub(1)), "put {value}");
        }
        assert!(versions.insert(version), "put {value}: version {version} twice");
        assert!(replaced != Some(value) && before.insert(replaced), "put {value} replaced {replaced:?}");
    }
    assert_eq!(world.version("k"), PUTS as i64, "each put was executed once");
    assert!(20 < faults.load(Ordering::SeqCst), "{faults:?} faults are too few to show anything");
    session.close().await.expect("an end");
    assert_eq!(world.sessions(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_puts_of_a_strict_session_are_executed_once_each_and_in_order() {
    for seed in [1, 2, 3] {
        puts_through_storms(Order::Strict, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_puts_of_a_session_in_any_order_are_executed_once_each() {
    for seed in [4, 5] {
        puts_through_storms(Order::Any, seed).await;
    }
}

#[tokio::test]
async fn a_hole_in_a_strict_session_is_closed_and_nothing_overtakes_it() {
    let world = World::new(1).await;
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    let mut writes = 0;
    world.decide(move |seen| {
        writes += usize::from(seen.kind == Kind::Write);
        // The second is dropped on the floor; those behind it are out of order.
        if seen.kind == Kind::Write && writes == 2 { Act::Ignore } else { Act::Serve }
    });
    let mut pending = Vec::new();
    for value in 0..20 {
        pending.push(session.command(&put(value)).await.expect("room"));
    }
    for (value, answer) in (0u64..).zip(pending) {
        assert_eq!(shown(&answer.await.expect("an answer").answer).1, value.checked_sub(1));
    }
    assert_eq!(world.version("k"), 20);
}

#[tokio::test]
async fn a_command_that_is_refused_for_good_is_told_so_and_those_behind_it_go_on() {
    let world = World::new(1).await;
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    let mut writes = 0;
    world.decide(move |seen| {
        writes += usize::from(seen.kind == Kind::Write);
        if seen.kind == Kind::Write && writes == 3 { Act::Refuse(Refusal::NoSpace) } else { Act::Serve }
    });
    let mut pending = Vec::new();
    for value in 0..6 {
        pending.push(session.command(&put(value)).await.expect("room"));
    }
    let mut results = Vec::new();
    for answer in pending {
        results.push(answer.await.map(|response| shown(&response.answer)));
    }
    let error = results.remove(2).expect_err("it was refused");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("no space"), "{error}");
    let done: Vec<_> = results.into_iter().map(|result| result.expect("done")).collect();
    assert_eq!(done, [(1, None), (2, Some(0)), (3, Some(1)), (4, Some(3)), (5, Some(4))]);
    session.flush().await.expect("all have answers");
}

#[tokio::test]
async fn a_command_that_no_store_would_take_leaves_no_hole_wherever_it_is_refused() {
    let world = World::with(1, 1000, Manners { txn_ops_max: Some(2), ..Manners::default() }).await;
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    let operation = |key: &str| Operation::Put(Put { key: key.into(), ..Put::default() });
    let txn =
        |keys: &[&str]| Txn { success: keys.iter().map(|key| operation(key)).collect(), ..Txn::default() };
    // Refused here.
    let error = session.txn(txn(&["a", "a"])).await.expect_err("a key twice");
    assert!(matches!(error, Error::Store(api::Error::DuplicateKey)), "{error:?}");
    assert!(matches!(session.put("", "v").await, Err(Error::Store(api::Error::EmptyKey))));
    // Refused there: its number is given to a transaction that does nothing.
    let large = session.txn(txn(&["a", "b", "c"])).await.expect("room");
    let small = session.txn(txn(&["d", "e"])).await.expect("room");
    let error = large.await.expect_err("three operations");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("--max-txn-ops"), "{error}");
    small.await.expect("done");
    assert_eq!(["a", "b", "c", "d", "e"].map(|key| world.version(key)), [0, 0, 0, 1, 1]);
    session.close().await.expect("an end");
    assert!(session.put("a", "v").await.is_err_and(|error| error.kind() == Effect::Refused));
}

#[tokio::test]
async fn a_command_that_no_frame_holds_is_refused_before_there_is_a_connection_and_later() {
    let world = World::new(1).await;
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    let large = || vec![0; 2 << 20];
    // The session has no connection yet, and so knows no limit: the command has a number already.
    let first = session.put("k", large()).await.expect("room");
    let second = session.put("k", "v").await.expect("room");
    let error = first.await.expect_err("it is too large");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("make it smaller"), "{error}");
    second.await.expect("done");
    let error = session.put("k", large()).await.expect_err("now the limit is known");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("make it smaller"), "{error}");
    session.flush().await.expect("all have answers");
    assert_eq!(world.version("k"), 1);
}

#[tokio::test]
async fn what_was_under_way_when_a_session_expired_is_unknown_and_what_comes_later_is_refused() {
    let world = World::new(1).await;
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    session.put("a", "1").await.expect("room").await.expect("done");
    // The next is executed, and its answer lost; then the session is gone before it is repeated.
    let weak = Arc::downgrade(&world);
    world.decide(move |seen| match seen.kind {
        Kind::Write if weak.upgrade().expect("it is in use").version("b") == 0 => Act::ServeAndClose,
        _ => {
            weak.upgrade().expect("it is in use").pass(Duration::from_secs(7300));
            Act::Serve
        }
    });
    let answers = [session.put("b", "1").await.expect("room"), session.put("c", "1").await.expect("room")];
    for answer in answers {
        let error = answer.await.expect_err("the session has expired");
        let expired = Error::Session { error: SessionError::Expired, kind: Effect::Unknown };
        assert_eq!(error.to_string(), expired.to_string());
        assert_eq!(error.kind(), Effect::Unknown);
    }
    assert_eq!((world.version("b"), world.version("c")), (1, 0));
    let late = session.put("d", "1").await.expect_err("there is no session");
    assert!(
        matches!(late, Error::Session { error: SessionError::Expired, kind: Effect::Refused }),
        "{late:?}"
    );
    assert!(session.flush().await.is_err());
    assert_eq!(world.version("d"), 0);
}

#[tokio::test]
async fn a_caller_that_has_waited_long_enough_is_told_and_the_command_is_executed_later() {
    let world = World::new(1).await;
    let options = Options { timeout: Duration::from_millis(150) };
    let client = world.client_of(world.addresses(), options);
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    world.decide(
        |seen| if seen.kind == Kind::Write { Act::RefuseBare(Refusal::NoLeader) } else { Act::Serve },
    );
    let error = session.put("k", "1").await.expect("room").await.expect_err("no leader");
    assert_eq!(error.kind(), Effect::Unknown);
    world.decide(|_| Act::Serve);
    world.until(|_| world.version("k") == 1).await;
    session.put("k", "2").await.expect("room").await.expect("the session goes on");
    assert_eq!(world.version("k"), 2);
}

#[tokio::test]
async fn a_leader_that_falls_silent_is_left_and_its_commands_are_executed_elsewhere() {
    let world = World::new(2).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_millis(600) });
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    session.put("k", "0").await.expect("room").await.expect("done");
    let weak = Arc::downgrade(&world);
    world.decide(move |seen| {
        // It is executed, and then the member is gone; the other one leads.
        weak.upgrade().expect("it is in use").lead(1);
        if seen.at == 0 { Act::Ignore } else { Act::Serve }
    });
    let answer = session.put("k", "1").await.expect("room").await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(world.version("k"), 2);
}

#[tokio::test]
async fn the_window_is_the_most_that_is_under_way() {
    let world = World::new(1).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_millis(200) });
    let options = SessionOptions { window: 3, ..SessionOptions::default() };
    let session = client.open_session(options).await.expect("a session");
    world.decide(|seen| if seen.kind == Kind::Ping { Act::Serve } else { Act::Ignore });
    let mut pending = Vec::new();
    for value in 0..3 {
        pending.push(session.command(&put(value)).await.expect("room"));
    }
    let error = session.command(&put(3)).await.expect_err("no room");
    assert_eq!(error.kind(), Effect::Unreachable, "{error}");
    world.decide(|_| Act::Serve);
    // Not even when there is room again: it was told that it has no effect.
    session.command(&put(4)).await.expect("room").await.expect("done");
    assert_eq!(world.version("k"), 4);
}

#[tokio::test]
async fn signs_of_life_go_together_and_sessions_that_are_dropped_or_closed_send_none() {
    let world = World::new(1).await;
    let client = world.client();
    let mut sessions = Vec::new();
    for _ in 0..40 {
        sessions.push(client.open_session(SessionOptions::default()).await.expect("a session"));
    }
    let dropped = sessions.pop().expect("one of them");
    let id = dropped.id();
    drop(dropped);
    sessions.pop().expect("one of them").close().await.expect("an end");
    assert_eq!(world.sessions(), 39);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20)).await;
    tokio::time::resume();
    let is_sign = |seen: &&crate::world::Seen| matches!(seen.kind, Kind::KeepAlive(_));
    let named = |seen: &[crate::world::Seen]| -> usize {
        seen.iter()
            .filter_map(|seen| match seen.kind {
                Kind::KeepAlive(named) => Some(named),
                _ => None,
            })
            .sum()
    };
    world.until(|seen| 38 <= named(seen)).await;
    {
        let seen = world.seen.lock().unwrap();
        assert_eq!((named(&seen), seen.iter().filter(is_sign).count()), (38, 2));
    }
    // A minute unused: only those that gave a sign are left.
    world.pass(Duration::from_secs(61));
    world.pass(Duration::from_secs(0));
    assert!(!world.is_there(id));
    assert_eq!(world.sessions(), 38);
}

#[tokio::test]
async fn a_session_that_the_members_do_not_have_is_over_with_its_next_sign_of_life() {
    let world = World::new(1).await;
    let client = world.client();
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    assert!(client.expel_session(session.id().number).await.expect("an answer"));
    assert!(!client.expel_session(session.id().number).await.expect("an answer"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20)).await;
    tokio::time::resume();
    world.until(|seen| seen.iter().any(|seen| seen.kind == Kind::KeepAlive(1))).await;
    // No command of its own tells it so.
    let error = loop {
        match session.flush().await {
            Err(error) => break error,
            Ok(()) => tokio::task::yield_now().await,
        }
    };
    assert!(session.put("k", "1").await.is_err());
    assert_eq!(world.version("k"), 0);
    assert!(matches!(error, Error::Session { error: SessionError::Expired, .. }), "{error:?}");
}
