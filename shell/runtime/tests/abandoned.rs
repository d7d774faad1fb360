//! Goal: requests whose callers have gone are not begun. [fault-model F50] Method: a member on this very thread, so
//! that it cannot look before its clients have gone.

mod cluster_of_three;

use cluster_of_three::{Cluster, get, put, put_until_done, read, run, status};
use kattu_node::contract::Outcome;
use kattu_runtime::{Asked, Threading};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;

const CALLS: u64 = 1000;

#[test]
fn requests_whose_clients_have_gone_are_dropped_before_they_are_proposed() {
    let mut cluster = Cluster::new(1, Threading::Inline, Threading::Inline);
    cluster.stop(0);
    let config = cluster.config(0);
    let (stop, stopped) = watch::channel(false);
    run(async {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let member = kattu_runtime::start(config).await.expect("it starts");
                let engine = member.engine.clone();
                let running = tokio::task::spawn_local(member.run(stopped));
                put_until_done(&engine, "first", "x").await;
                let before = status(&engine).await;

                let mut calls: Vec<Asked> = Vec::new();
                for number in 0..CALLS {
                    let key = format!("k{number:04}");
                    let request = if number % 10 < 8 { put(&key, "y") } else { get(&key) };
                    let mut call = engine.call(request);
                    let asked = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
                    assert!(matches!(asked, Poll::Pending), "the member has had no turn yet");
                    calls.push(call);
                }
                // Every second one gives up; the member has not looked yet.
                let behind = Arc::new(());
                let mut waiting = Vec::new();
                for (number, call) in calls.into_iter().enumerate() {
                    if number % 2 == 0 {
                        call.leave(Box::new(Arc::clone(&behind)));
                    } else {
                        waiting.push(call);
                    }
                }
                assert_eq!(Arc::strong_count(&behind) as u64, 1 + CALLS / 2);
                for call in waiting {
                    assert!(matches!(call.await, Outcome::Done(_)));
                }
                assert_eq!(Arc::strong_count(&behind), 1, "with a request goes what was left behind with it");
                let after = status(&engine).await;
                assert_eq!(engine.metrics().abandoned.get(), CALLS / 2);
                let writes = CALLS / 10 * 4; // of ten calls eight write, and every second one is left
                assert_eq!(after.revision.0 - before.revision.0, writes as i64);
                let entries = after.last.0 - before.last.0;
                assert!(
                    0 < entries && entries <= writes,
                    "{entries} entries: nothing of the others is in the log"
                );
                assert_eq!(read(&engine, "k0000").await, None);
                assert_eq!(read(&engine, "k0001").await.as_deref(), Some("y"));
                stop.send(true).expect("it listens");
                running.await.expect("it ends");
            })
            .await;
    });
}
