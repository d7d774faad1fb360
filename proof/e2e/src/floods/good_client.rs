//! The good client: puts keys of its own at a low, steady rate, and waits for no answer before the next one.
//!
//! Knows nothing of: floods.

use super::CONNECT_LIMIT;
use crate::processors::on_other_cores;
use kattu_proto::etcdserverpb::PutRequest;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_rig::Cluster;
use kattu_rig::grpc::channel;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;

/// One put of the good client is due in each of these.
const EVERY: Duration = Duration::from_millis(10);
/// A put of the good client that takes longer has failed.
pub(super) const PUT_LIMIT: Duration = Duration::from_secs(10);

/// The outcome of each of the good client's puts, in the order in which they were due; `None` while it is open.
#[derive(Default)]
struct Puts {
    ended: Vec<Option<Result<Duration, ()>>>,
    acknowledged: BTreeSet<String>,
}

/// One client that puts at a low, steady rate.
pub(super) struct GoodClient {
    puts: Arc<Mutex<Puts>>,
    stop: Arc<AtomicBool>,
    /// The member that gets no requests, because it is about to be restarted.
    avoided: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<()>,
}

/// No member is avoided.
pub(super) const NOBODY: usize = usize::MAX;

impl GoodClient {
    pub(super) fn start(cluster: &Cluster, one_core: bool) -> GoodClient {
        let addresses = cluster.addresses();
        let (puts, stop) = (Arc::<Mutex<Puts>>::default(), Arc::<AtomicBool>::default());
        let avoided = Arc::new(AtomicUsize::new(NOBODY));
        let (told, stopped, avoids) = (puts.clone(), stop.clone(), avoided.clone());
        let thread = std::thread::spawn(move || {
            if one_core {
                on_other_cores();
            }
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let channels: Vec<Channel> =
                    addresses.iter().map(|address| channel(address, CONNECT_LIMIT)).collect();
                let mut tick = tokio::time::interval(EVERY);
                tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let mut number = 0_usize;
                while !stopped.load(Ordering::Relaxed) {
                    let due = tick.tick().await;
                    let mut member = number % channels.len();
                    if member == avoids.load(Ordering::Relaxed) {
                        member = (member + 1) % channels.len();
                    }
                    let (channel, told) = (channels[member].clone(), told.clone());
                    told.lock().expect("nobody panics with it").ended.push(None);
                    tokio::spawn(async move { one_put(channel, number, due, &told).await });
                    number += 1;
                }
                // Waits for the puts under way.
                let end = tokio::time::Instant::now() + PUT_LIMIT;
                while tokio::time::Instant::now() < end
                    && told.lock().expect("as above").ended.iter().any(Option::is_none)
                {
                    tokio::time::sleep(EVERY).await;
                }
            });
        });
        GoodClient { puts, stop, avoided, thread }
    }

    /// Sends this member nothing more, and waits for its pending answers; [`NOBODY`] ends that.
    pub(super) fn avoid(&self, member: usize) {
        self.avoided.store(member, Ordering::Relaxed);
        let due = self.due_count() + 1; // one may be on its way right now
        kattu_rig::until("what was asked before is answered", || {
            let puts = self.puts();
            (due < puts.ended.len() && puts.ended[..due].iter().all(Option::is_some)).then_some(())
        });
    }

    fn puts(&self) -> std::sync::MutexGuard<'_, Puts> {
        self.puts.lock().expect("nobody panics with it")
    }

    pub(super) fn due_count(&self) -> usize {
        self.puts().ended.len()
    }

    /// Waits until each of a second's puts was answered within `limit`, so that no flood pays for the one before it.
    pub(super) fn wait_for_calm(&self, limit: Duration) {
        kattu_rig::until("the good client is served as ever", || {
            std::thread::sleep(Duration::from_secs(1));
            let puts = self.puts();
            let is_quick =
                |put: &Option<Result<Duration, ()>>| matches!(put, Some(Ok(time)) if *time < limit);
            let recent = puts.ended.len().checked_sub(100)?..puts.ended.len() - 10;
            puts.ended[recent].iter().all(is_quick).then_some(())
        });
    }

    /// The latency of each put due since `from`, once all have ended; `None` for a failed one.
    pub(super) fn times_since(&self, from: usize) -> Vec<Option<Duration>> {
        let upto = self.due_count();
        let all = |puts: &Puts| puts.ended[from..upto].iter().copied().collect::<Option<Vec<_>>>();
        let ended = kattu_rig::until("the good client's puts have ended", || all(&self.puts()));
        ended.into_iter().map(Result::ok).collect()
    }

    pub(super) fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client does not panic");
        std::mem::take(&mut self.puts.lock().expect("nobody panics with it").acknowledged)
    }
}

async fn one_put(channel: Channel, number: usize, due: tokio::time::Instant, told: &Mutex<Puts>) {
    let key = format!("load/{number:010}");
    let request =
        PutRequest { key: key.clone().into_bytes(), value: vec![b'x'; 100], ..PutRequest::default() };
    let mut client = KvClient::new(channel);
    let ended = tokio::time::timeout(PUT_LIMIT, client.put(request)).await;
    let mut puts = told.lock().expect("nobody panics with it");
    puts.ended[number] = Some(match ended {
        Ok(Ok(_)) => {
            puts.acknowledged.insert(key);
            Ok(due.elapsed())
        }
        _ => Err(()),
    });
}
