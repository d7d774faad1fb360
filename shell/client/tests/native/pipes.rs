//! Pipes: many requests of one caller under way, each with one outcome, which means what it means elsewhere.

use crate::once::{put, shown, storms};
use crate::world::{Act, Kind, Manners, World};
use kattu_client::api::{
    self, Answer, Command, KeyRange, Operation, Put, Query, Range, Response, Revision, Txn,
};
use kattu_client::{Error, Kind as Effect, Level, Options, Order, Pipe, SessionOptions};
use kattu_kv::sessions::WINDOW;
use kattu_native::reply::Refusal;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;

type Outcomes = BTreeMap<u64, Result<Response, Error>>;

/// All outcomes of what is under way.
async fn all(pipe: &mut Pipe<'_>) -> Outcomes {
    let mut all = Outcomes::new();
    while 0 < pipe.under_way() {
        for (label, outcome) in pipe.outcomes().await {
            assert!(all.insert(label, outcome).is_none(), "{label} has two outcomes");
        }
    }
    all
}

/// The version of the only pair of a range.
fn version(response: &Response) -> i64 {
    let Answer::Range(range) = &response.answer else { panic!("{response:?}") };
    range.kvs[0].version
}

#[tokio::test]
async fn each_request_has_one_outcome_under_its_label() {
    let world = World::new(1).await;
    let client = world.client();
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    for mut pipe in [client.pipe(), session.pipe()] {
        assert!(pipe.outcomes().await.next().is_none(), "nothing is under way");
        let keys = KeyRange { start: b"k".to_vec(), end: vec![] };
        pipe.put(1, "k", "1").await.expect("it is given");
        let write = Operation::Put(Put { key: b"l".to_vec(), ..Put::default() });
        let txn = Txn { success: vec![write], ..Txn::default() };
        pipe.command(2, &Command::Txn(txn)).await.expect("it is given");
        let read = Operation::Range(Range { keys: keys.clone(), ..Range::default() });
        let txn = Txn { success: vec![read], ..Txn::default() };
        pipe.command(3, &Command::Txn(txn)).await.expect("it is given");
        pipe.command(4, &Command::Compact(Revision(1000))).await.expect("it is given");
        let future = Range { keys, revision: Revision(1000), ..Range::default() };
        pipe.query(5, &Query::Range(future)).await.expect("it is given");
        pipe.get(6, "none").await.expect("it is given");
        // These never leave, and have no other outcome.
        let error = pipe.put(7, "", "v").await.expect_err("no key");
        assert!(matches!(error, Error::Store(api::Error::EmptyKey)), "{error:?}");
        assert!(matches!(pipe.get(8, "").await, Err(Error::Store(api::Error::EmptyKey))));
        assert_eq!(pipe.under_way(), 6);
        let all = all(&mut pipe).await;
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        let answer = |label| &all[&label].as_ref().expect("it is done").answer;
        assert_eq!(answer(1), &Answer::Put { prev_kv: None });
        assert!(matches!(answer(2), Answer::Txn { succeeded: true, .. }));
        assert!(matches!(answer(3), Answer::Txn { succeeded: true, .. }));
        assert!(matches!(answer(6), Answer::Range(range) if range.kvs.is_empty()));
        for label in [4, 5] {
            let error = all[&label].as_ref().expect_err("there is no such revision");
            assert!(matches!(error, Error::Store(api::Error::FutureRevision)), "{error:?}");
        }
    }
    assert_eq!(world.version("k"), 2);
}

#[tokio::test]
async fn what_one_turn_gives_goes_out_in_one_frame() {
    let world = World::new(1).await;
    let client = world.client();
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    session.put("k", "0").await.expect("room").await.expect("a connection");
    for mut pipe in [client.pipe(), session.pipe()] {
        world.frames.lock().unwrap().clear();
        for label in 0..100 {
            pipe.put(label, "k", "v").await.expect("it is given");
        }
        assert_eq!(all(&mut pipe).await.len(), 100);
        assert_eq!(*world.frames.lock().unwrap(), [100]);
    }
}

#[tokio::test]
async fn requests_beyond_what_a_member_takes_at_once_wait_for_their_turn() {
    let world = World::with(1, 10, Manners::default()).await;
    let client = world.client();
    client.ping().await.expect("a connection");
    world.frames.lock().unwrap().clear();
    let mut pipe = client.pipe();
    for label in 0..100 {
        pipe.put(label, "k", "v").await.expect("it is given");
    }
    let versions = all(&mut pipe).await.into_values().filter(Result::is_ok).count();
    assert_eq!((versions, world.version("k")), (100, 100));
    assert!(world.frames.lock().unwrap().iter().all(|count| *count < 10), "one place is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_in_a_session_are_executed_once_each_and_in_order_through_storms() {
    let manners = Manners { turns_answers: true, cuts_frames: Some(11), ..Manners::default() };
    let world = World::with(3, 1000, manners).await;
    let patient = Options { timeout: Duration::from_secs(60) };
    let client = world.client_of(world.addresses(), patient);
    let options = SessionOptions { order: Order::Strict, window: 256 };
    let session = client.open_session(options).await.expect("a session");
    let faults = storms(&world, 6);
    let mut pipe = session.pipe();
    let mut done = Outcomes::new();
    for value in 0..10_000 {
        // As many under way as the window has room for, and at times more.
        while 300 < pipe.under_way() {
            done.extend(pipe.outcomes().await);
        }
        pipe.command(value, &put(value)).await.expect("room");
    }
    done.extend(all(&mut pipe).await);
    assert_eq!((done.len(), world.version("k")), (10_000, 10_000), "each put was executed once");
    for (value, outcome) in done {
        let response = outcome.unwrap_or_else(|error| panic!("put {value}: {error}"));
        assert_eq!(shown(&response.answer), (value as i64 + 1, value.checked_sub(1)), "put {value}");
    }
    assert!(20 < faults.load(Ordering::SeqCst), "{faults:?} faults are too few to show anything");
    session.close().await.expect("an end");
}

#[tokio::test]
async fn a_write_of_unknown_outcome_is_not_repeated_and_one_that_was_refused_and_a_read_are() {
    let world = World::new(1).await;
    let client = world.client();
    client.ping().await.expect("a connection");
    let mut pipe = client.pipe();
    let mut acts = [Act::RefuseBare(Refusal::Replaying), Act::Serve, Act::ServeAndDoubt].into_iter();
    world.decide(
        move |seen| if seen.kind == Kind::Write { acts.next().unwrap_or(Act::Serve) } else { Act::Serve },
    );
    for label in 1..=3 {
        pipe.put(label, format!("k{label}"), "v").await.expect("it is given");
    }
    let outcomes = all(&mut pipe).await;
    assert!(outcomes[&1].is_ok() && outcomes[&2].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[&3].as_ref().expect_err("the member doubts").kind(), Effect::Unknown);
    assert_eq!(["k1", "k2", "k3"].map(|key| world.version(key)), [1, 1, 1]);
    // One of a frame is lost with its connection: so are those of the same frame.
    let mut acts = [Act::Serve, Act::ServeAndClose].into_iter();
    world.decide(move |_| acts.next().unwrap_or(Act::Serve));
    pipe.put(4, "k4", "v").await.expect("it is given");
    pipe.put(5, "k4", "v").await.expect("it is given");
    pipe.get(6, "k4").await.expect("it is given");
    let outcomes = all(&mut pipe).await;
    for label in [4, 5] {
        assert_eq!(outcomes[&label].as_ref().expect_err("its answer is lost").kind(), Effect::Unknown);
    }
    assert_eq!(version(outcomes[&6].as_ref().expect("a read")), 2);
    assert_eq!(world.version("k4"), 2);
}

#[tokio::test]
async fn a_pipe_outside_of_sessions_has_a_window_too() {
    let world = World::with(1, 10_000, Manners::default()).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_secs(1) });
    client.ping().await.expect("a connection");
    world.decide(|seen| if seen.kind == Kind::Ping { Act::Serve } else { Act::Ignore });
    let mut pipe = client.pipe();
    for label in 0..WINDOW {
        pipe.put(label, "k", "v").await.expect("it is given");
    }
    {
        let mut beyond = pin!(pipe.put(WINDOW, "k", "v"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(beyond.as_mut().poll(&mut context).is_pending(), "it waits for room");
        beyond.await.expect("those before it are given up, and there is room");
    }
    world.decide(|_| Act::Serve);
    assert!(pipe.outcomes().await.count() <= WINDOW as usize);
}

#[tokio::test]
async fn answers_that_do_not_come_are_missed_in_time_and_reads_go_to_another_member() {
    let world = World::with(2, 1000, Manners { forwards: true, ..Manners::default() }).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_secs(1) });
    client.ping().await.expect("a connection to the first, which leads");
    world.decide(|seen| if seen.at == 0 && seen.kind != Kind::Ping { Act::Ignore } else { Act::Serve });
    let mut pipe = client.pipe();
    pipe.put(1, "k", "v").await.expect("it is given");
    pipe.get(2, "k").await.expect("it is given");
    let first: Vec<_> = pipe.outcomes().await.collect();
    assert!(matches!(first[..], [(2, Ok(_))]), "{first:?}");
    let (label, outcome) = pipe.outcomes().await.next().expect("an outcome");
    assert_eq!((label, outcome.expect_err("no answer").kind()), (1, Effect::Unknown));
    assert_eq!(world.version("k"), 0);
}

#[tokio::test]
async fn what_has_no_turn_in_time_is_not_sent_later_and_reads_go_to_another_member() {
    // One request at a time, and the first of the leader has no answer.
    let world = World::with(2, 2, Manners { forwards: true, ..Manners::default() }).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_secs(1) });
    client.ping().await.expect("a connection to the first, which leads");
    world.decide(|seen| if seen.at == 0 && seen.kind == Kind::Write { Act::Ignore } else { Act::Serve });
    let mut pipe = client.pipe();
    pipe.put(1, "k", "v").await.expect("it is given");
    pipe.put(2, "k", "v").await.expect("it is given");
    pipe.get(3, "k").await.expect("it is given");
    let (late, outcomes) = tokio::join!(client.put("k", "v"), all(&mut pipe));
    assert_eq!(late.expect_err("its turn does not come").kind(), Effect::Unreachable);
    assert_eq!(outcomes[&1].as_ref().expect_err("no answer").kind(), Effect::Unknown);
    assert_eq!(outcomes[&2].as_ref().expect_err("never sent").kind(), Effect::Unreachable);
    assert!(outcomes[&3].is_ok());
    let seen = world.seen.lock().unwrap();
    assert_eq!(seen.iter().filter(|seen| seen.kind == Kind::Write).count(), 1);
}

#[tokio::test]
async fn reads_that_any_member_can_serve_are_spread() {
    let world = World::new(3).await;
    let client = world.client().at_level(Level::Serializable);
    for _ in 0..3 {
        client.get("k").await.expect("a connection");
    }
    world.seen.lock().unwrap().clear();
    let mut pipe = client.pipe();
    for label in 0..9 {
        pipe.get(label, "k").await.expect("it is given");
    }
    assert!(all(&mut pipe).await.values().all(Result::is_ok));
    let seen = world.seen.lock().unwrap();
    let counts = [0, 1, 2].map(|at| seen.iter().filter(|seen| seen.at == at).count());
    assert_eq!(counts, [3, 3, 3]);
}
