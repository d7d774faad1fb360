//! Large writers: clients that put values near the limit at full speed, each to a key of its own.
//!
//! Rule: a key must hold the last value that was acknowledged, or one that was sent after that, whole.
//! Knows nothing of: other floods.

use super::CONNECT_LIMIT;
use super::waves::Done;
use crate::floors::Came;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::{CompactionRequest, PutRequest, RangeRequest};
use kattu_rig::Kv;
use kattu_rig::grpc::channel;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A large writer's put that takes longer has failed.
const LARGE_PUT_LIMIT: Duration = Duration::from_secs(30);
/// 1.4 MiB.
pub(super) const LARGE_VALUE: usize = 1_468_006;

/// By number of the large writer: the state of its key.
pub(super) type LargeKeys = Mutex<BTreeMap<usize, Written>>;

/// The state of one key, whose values are numbered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// The newest value that was sent.
    sent: u64,
    /// The newest that was acknowledged; 0 before the first.
    acknowledged: u64,
}

impl Written {
    /// Why the held value is a loss; `None` if it is not.
    pub(super) fn lost_from(self, writer: usize, held: Option<&[u8]>) -> Option<String> {
        let Written { sent, acknowledged } = self;
        let number = held.and_then(<[u8]>::first_chunk).map_or(0, |number| u64::from_le_bytes(*number));
        let is_whole = held.is_none_or(|held| held == large_value(number));
        let is_kept = acknowledged <= number && number <= sent;
        (!is_whole || !is_kept).then(|| {
            let whole = if is_whole { "" } else { "not whole, " };
            let key = large_key(writer);
            format!("{key} holds value {number}, {whole}of {sent} sent and {acknowledged} acknowledged")
        })
    }
}

pub(super) fn large_key(writer: usize) -> String {
    format!("large/{writer}")
}

/// The value with this number: 8 bytes of the number, then a filler that depends on it.
fn large_value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; LARGE_VALUE];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

pub(super) fn large_writers(addresses: &[String], count: usize, lasts: Duration, large: &LargeKeys) -> Done {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let refusals = Arc::new(Mutex::new(Vec::<String>::new()));
    let compactor = {
        // Like an operator with little memory: keeps the last hundred revisions.
        let (address, stop) = (addresses[0].clone(), stop.clone());
        std::thread::spawn(move || {
            let kv = Kv::of(&address);
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(500));
                let Ok(now) = kv.range(RangeRequest { key: b"none".to_vec(), ..RangeRequest::default() })
                else {
                    continue;
                };
                let revision = now.header.map_or(0, |header| header.revision) - 100;
                let mut client = kv.client();
                // Refused when there is nothing to compact.
                let _ = kv
                    .block_on(async { client.compact(CompactionRequest { revision, physical: true }).await });
            }
        })
    };
    let writers = {
        let (addresses, stop, done, refusals) =
            (addresses.to_vec(), stop.clone(), done.clone(), refusals.clone());
        let before = large.lock().expect("nobody panics with it").clone();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for number in 0..count {
                    let mut client =
                        KvClient::new(channel(&addresses[number % addresses.len()], CONNECT_LIMIT))
                            .max_encoding_message_size(64 << 20);
                    let (stop, done, refusals) = (stop.clone(), done.clone(), refusals.clone());
                    let mut own = before.get(&number).copied().unwrap_or_default();
                    tasks.spawn(async move {
                        while !stop.load(Ordering::Relaxed) {
                            own.sent += 1;
                            let request = PutRequest {
                                key: large_key(number).into_bytes(),
                                value: large_value(own.sent),
                                ..PutRequest::default()
                            };
                            let put = tokio::time::timeout(LARGE_PUT_LIMIT, client.put(request));
                            let told = match put.await {
                                Ok(Ok(_)) => None,
                                Ok(Err(status)) => Some(status.message().to_string()),
                                Err(_) => Some(format!("no answer within {LARGE_PUT_LIMIT:?}")),
                            };
                            match told {
                                None => {
                                    own.acknowledged = own.sent;
                                    done.fetch_add(1, Ordering::Relaxed);
                                }
                                Some(told) => {
                                    refusals.lock().expect("nobody panics with it").push(told);
                                    tokio::time::sleep(Duration::from_millis(100)).await;
                                }
                            }
                        }
                        (number, own)
                    });
                }
                tasks.join_all().await
            })
        })
    };
    std::thread::sleep(lasts);
    stop.store(true, Ordering::Relaxed);
    let written = writers.join().expect("the writers do not panic");
    let before = {
        let mut large = large.lock().expect("nobody panics with it");
        let before = large.clone();
        large.extend(written.iter().copied());
        before
    };
    let is_unheard = |(number, own): &&(usize, Written)| {
        own.acknowledged == before.get(number).map_or(0, |before| before.acknowledged)
    };
    let unheard = written.iter().filter(is_unheard).count() as u64;
    compactor.join().expect("the compactor does not panic");
    let refusals = refusals.lock().expect("nobody panics with it");
    let done = done.load(Ordering::Relaxed);
    let mut faults = Vec::new();
    if let Some(first) = refusals.first() {
        faults.push(format!("{} of {} large puts were refused: {first}", refusals.len(), done));
    }
    let what = format!("{count} writers, {done} puts of 1.4 MiB, {} refused", refusals.len());
    Done { what, came: Came::LargeWriters { puts: done, writers: count as u64, unheard }, faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_key_holds_what_was_acknowledged_or_is_newer_and_is_whole() {
        let lost = |written: Written, held: Option<Vec<u8>>| written.lost_from(7, held.as_deref());
        let written = Written { sent: 300, acknowledged: 299 };
        assert_eq!(lost(written, Some(large_value(299))), None);
        assert_eq!(lost(written, Some(large_value(300))), None, "sent, and answered by nobody");
        let older = lost(written, Some(large_value(298))).expect("it went back");
        assert_eq!(older, "large/7 holds value 298, of 300 sent and 299 acknowledged");
        assert!(lost(written, None).is_some(), "it is gone");
        assert!(lost(written, Some(large_value(301))).is_some(), "nobody sent that");
        let mut torn = large_value(299);
        torn.pop();
        assert!(lost(written, Some(torn)).is_some_and(|said| said.contains("not whole")));
        assert_eq!(lost(Written { sent: 1, acknowledged: 0 }, None), None);
        assert_eq!(large_value(1).len() * 10, (14 << 20) - 4, "1.4 MiB");
    }
}
