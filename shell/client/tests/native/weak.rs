//! Weak writes: a caller goes on when a quorum has received its write; the session brings it to its end, or tells its loss.

use crate::world::{Act, Kind, World};
use kattu_client::api::Command;
use kattu_client::{Accepted, Kind as Effect, LostWrite, Options, Order, Session, SessionOptions};
use kattu_native::reply::Refusal;
use kattu_raft::{EntryId, LogIndex, Term};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Lost = Arc<Mutex<Vec<LostWrite>>>;

/// Collects what is told to be lost.
fn collect(session: &Session) -> Lost {
    let lost = Lost::default();
    let into = lost.clone();
    assert!(session.on_lost(move |write| into.lock().expect("no panic").push(write)));
    lost
}

async fn session(world: &World) -> (Session, Lost) {
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    let lost = collect(&session);
    (session, lost)
}

fn count(lost: &Lost) -> usize {
    lost.lock().expect("no panic").len()
}

fn entry(index: u64) -> Accepted {
    Accepted::Received(EntryId { term: Term(1), index: LogIndex(index) })
}

#[tokio::test]
async fn what_was_received_is_executed_once_by_the_next_leader_and_nothing_is_told_to_be_lost() {
    let world = World::new(2).await;
    let (session, lost) = session(&world).await;
    let mut count_of_weak = 0;
    let next = Arc::downgrade(&world);
    world.decide(move |seen| {
        count_of_weak += u64::from(seen.kind == Kind::Weak);
        match (seen.at, seen.kind) {
            (0, Kind::Weak) if count_of_weak < 3 => Act::Receive(100 + count_of_weak),
            (0, Kind::Weak) => {
                next.upgrade().expect("it is in use").lead(1); // the first has died with all that it had received
                Act::ReceiveAndClose(100 + count_of_weak)
            }
            _ => Act::Serve,
        }
    });
    for index in 101..=103 {
        let put = session.put_weak("k", index.to_string()).await.expect("room");
        assert_eq!(put.await.expect("accepted"), entry(index));
    }
    session.flush().await.expect("all are done");
    assert_eq!((world.version("k"), count(&lost)), (3, 0));
    assert!(3 <= session.repeated());
    let seen = world.seen.lock().unwrap().clone();
    let at_next: Vec<Kind> = seen.iter().filter(|seen| seen.at == 1).map(|seen| seen.kind).collect();
    assert!(!at_next.contains(&Kind::Weak), "what is accepted asks for nothing but its end: {at_next:?}");
    // A write that is done at once is accepted, too.
    let last = session.delete_weak("k").await.expect("room").await.expect("accepted");
    assert!(matches!(last, Accepted::Done(_)), "{last:?}");
    session.close().await.expect("an end");
}

#[tokio::test]
async fn what_was_received_in_a_session_that_has_expired_is_told_with_its_command() {
    let world = World::new(1).await;
    let (session, lost) = session(&world).await;
    session.put("a", "1").await.expect("room").await.expect("done");
    world.decide(|seen| if seen.kind == Kind::Weak { Act::Receive(9) } else { Act::Serve });
    assert_eq!(session.put_weak("b", "2").await.expect("room").await.expect("accepted"), entry(9));
    world.pass(Duration::from_secs(7300));
    world.decide(|_| Act::Serve);
    let error = session.put("c", "3").await.expect("room").await.expect_err("the session has expired");
    assert_eq!(error.kind(), Effect::Unknown);
    let told = lost.lock().expect("no panic").clone();
    assert!(
        matches!(&told[..], [LostWrite { number: 2, command: Command::Put(put), error }]
            if put.key == b"b" && put.value == b"2" && error.kind() == Effect::Unknown),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_session_that_ends_with_its_runtime_tells_what_it_cannot_bring_to_an_end() {
    let world = World::new(1).await;
    world.decide(|seen| if seen.kind == Kind::Weak { Act::Receive(9) } else { Act::Serve });
    let addresses = world.addresses();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = kattu_client::NativeClient::connect(addresses, Default::default(), None);
            let client = client.expect("addresses");
            let session = client.open_session(SessionOptions::default()).await.expect("a session");
            let lost = collect(&session);
            session.put_weak("k", "1").await.expect("room").await.expect("accepted");
            assert_eq!(count(&lost), 0);
            lost
        })
    });
    let lost = tokio::task::spawn_blocking(|| thread.join().expect("no panic")).await.expect("no panic");
    let told = lost.lock().expect("no panic").iter().map(|write| write.error.kind()).collect::<Vec<_>>();
    assert_eq!(told, [Effect::Unknown]);
}

#[tokio::test]
async fn a_client_that_never_flushes_waits_where_its_window_is_full_and_loses_nothing() {
    let world = World::new(1).await;
    let client = world.client_of(world.addresses(), Options { timeout: Duration::from_millis(200) });
    let options = SessionOptions { window: 3, ..SessionOptions::default() };
    let session = client.open_session(options).await.expect("a session");
    let lost = collect(&session);
    let mut index = 100;
    world.decide(move |seen| match seen.kind {
        Kind::Weak => {
            index += 1;
            Act::Receive(index)
        }
        Kind::Ping => Act::Serve,
        _ => Act::Ignore,
    });
    for index in 101..=103 {
        let put = session.put_weak("k", index.to_string()).await.expect("room");
        assert_eq!(put.await.expect("accepted"), entry(index));
    }
    let error = session.put_weak("k", "more").await.expect_err("none of the three is done");
    let is_clear = error.to_string().contains("no room in the session's window in time");
    assert!(error.kind() == Effect::Unreachable && is_clear, "{error}");
    world.decide(|_| Act::Serve);
    // There is room once the session has sent the three again.
    let last = loop {
        match session.put_weak("k", "last").await {
            Ok(put) => break put,
            Err(error) => assert_eq!(error.kind(), Effect::Unreachable, "{error}"),
        }
    };
    last.await.expect("accepted");
    session.flush().await.expect("all are done");
    assert_eq!((world.version("k"), count(&lost)), (4, 0), "what had no room has no effect");
}

#[tokio::test]
async fn a_session_without_order_or_without_a_callback_for_losses_has_no_weak_writes() {
    let world = World::new(1).await;
    let client = world.client();
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    let error = session.put_weak("k", "1").await.expect_err("nobody listens");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("Session::on_lost"), "{error}");
    let _lost = collect(&session);
    assert!(!session.on_lost(|_| ()), "the first stays");
    let options = SessionOptions { order: Order::Any, ..SessionOptions::default() };
    let any = client.open_session(options).await.expect("a session");
    let _none = collect(&any);
    let error = any.put_weak("k", "1").await.expect_err("no order");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("strict"), "{error}");
    // A cluster that gives none says so, and the session goes on.
    world.decide(|seen| if seen.kind == Kind::Weak { Act::Refuse(Refusal::NotWeak) } else { Act::Serve });
    let error = session.put_weak("k", "1").await.expect("room").await.expect_err("there are none");
    assert!(error.kind() == Effect::Refused && error.to_string().contains("no weak answers"), "{error}");
    session.put("k", "2").await.expect("room").await.expect("it goes on");
    assert_eq!(world.version("k"), 1);
}

#[tokio::test]
async fn a_read_in_the_session_sees_its_weak_writes_before_others_do() {
    let world = World::new(1).await;
    let (session, _lost) = session(&world).await;
    world.decide(|seen| if seen.kind == Kind::Weak { Act::ReceiveAndServe(9) } else { Act::Serve });
    let put = session.put_weak("k", "mine").await.expect("room");
    let read = session.get("k").await.expect("a read").expect("it is there");
    assert_eq!(&read.value[..], b"mine");
    assert_eq!(put.await.expect("accepted"), entry(9));
    assert_eq!(session.get("none").await.expect("a read"), None);
}

#[tokio::test]
async fn a_pipe_tells_what_was_received_and_then_how_that_ended() {
    let world = World::new(1).await;
    let (session, lost) = session(&world).await;
    let mut weak = 0;
    world.decide(move |seen| {
        weak += u64::from(seen.kind == Kind::Weak);
        match seen.kind {
            Kind::Weak if weak.is_multiple_of(2) => Act::ReceiveAndServe(weak),
            _ => Act::Serve,
        }
    });
    let mut pipe = session.pipe();
    for label in 1..=100 {
        pipe.put_weak(label, "k", label.to_string()).await.expect("room");
    }
    let (mut received, mut done) = (Vec::new(), Vec::new());
    while 0 < pipe.under_way() {
        let outcomes: Vec<_> = pipe.outcomes().await.collect();
        received.extend(pipe.received());
        for (label, outcome) in outcomes {
            outcome.expect("it is executed");
            assert!(label % 2 == 1 || received.contains(&label), "{label} is done before it is received");
            done.push(label);
        }
    }
    assert_eq!((received.len(), done.len(), count(&lost)), (50, 100, 0));
    assert_eq!(world.version("k"), 100);
    let mut alone = world.client().pipe();
    assert!(alone.put_weak(1, "k", "v").await.is_err(), "without a session there is none");
}
