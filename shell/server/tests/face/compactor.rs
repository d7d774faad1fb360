//! Auto-compaction over a store whose leader changes.

use crate::fixture::*;
use kattu_node::contract::Request;
use kattu_server::history::Budget;
use kattu_server::{Retention, compactor};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn the_compactor_acts_only_where_the_leader_is() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    for _ in 0..10 {
        kv.put(put("k", "v")).await.unwrap();
    }
    face.store.set(|state| state.leaderless = true);
    let retention = Retention::Period(Duration::from_millis(10));
    let config = Arc::clone(&face.config);
    let stop = face.stop.subscribe();
    let compactor =
        tokio::spawn(compactor::run(face.store.clone(), retention, Budget::default(), config, stop));
    let looks = |state: &mut State| state.seen.iter().filter(|seen| matches!(seen, Request::Status)).count();
    eventually(|| 30 <= face.store.set(looks)).await;
    assert!(face.store.set(|state| state.store.compact_revision().0) < 0, "a follower compacts nothing");
    face.store.set(|state| state.leaderless = false);
    eventually(|| face.store.set(|state| state.store.compact_revision().0) == 11).await;
    eventually(|| face.config.counters.auto_compactions.get() == 1).await;
    face.stop.send(true).unwrap();
    compactor.await.unwrap();
}
