//! Open loop: clients that put at a steady rate, to each member in turn, without waiting for earlier puts.
//!
//! A put's time counts from the moment at which it was due, so that a slow put does not reduce the load.
//! Knows nothing of: work that runs beside the puts.

use kattu_proto::etcdserverpb::PutRequest;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_rig::Cluster;
use kattu_rig::grpc::channel;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;

/// Puts per second.
pub(crate) const RATE: u32 = 500;
/// A put without an answer for so long has failed.
pub(crate) const PUT_LIMIT: Duration = Duration::from_secs(20);
/// A connection that is not established within this is retried.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The keys and values of the puts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    /// Number of keys, written in turn.
    pub(crate) keys: usize,
    /// Bytes of each value.
    pub(crate) value_bytes: usize,
}

/// Clients that put at a steady rate.
pub(crate) struct OpenLoop {
    /// For each put that was due: its latency, once it has ended.
    puts: Arc<Mutex<Vec<Option<Duration>>>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl OpenLoop {
    /// Starts the clients.
    pub(crate) fn start(cluster: &Cluster, steady: Steady) -> OpenLoop {
        let addresses = cluster.addresses();
        let (puts, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (told, stopped) = (puts.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let channels: Vec<Channel> =
                    addresses.iter().map(|address| channel(address, CONNECT_LIMIT)).collect();
                let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
                tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let mut tasks = tokio::task::JoinSet::new();
                for number in 0.. {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let due = tick.tick().await;
                    told.lock().expect("nobody panics with it").push(None);
                    let (channel, told) = (channels[number % channels.len()].clone(), told.clone());
                    tasks.spawn(async move {
                        let took = one_put(channel, steady, number, due).await;
                        told.lock().expect("nobody panics with it")[number] = Some(took);
                    });
                    while tasks.try_join_next().is_some() {}
                }
                tasks.join_all().await;
            });
        });
        OpenLoop { puts, stop, thread }
    }

    /// Number of puts due so far.
    pub(crate) fn due(&self) -> usize {
        self.puts.lock().expect("nobody panics with it").len()
    }

    /// Latencies of the puts from this one on; [`PUT_LIMIT`] for a failed one.
    pub(crate) fn stop(self, from: usize) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the clients do not panic");
        let puts = self.puts.lock().expect("nobody panics with it");
        puts[from..].iter().map(|took| took.expect("all have ended")).collect()
    }
}

async fn one_put(channel: Channel, steady: Steady, number: usize, due: tokio::time::Instant) -> Duration {
    let key = format!("steady/{:06}", number % steady.keys).into_bytes();
    let request = PutRequest { key, value: vec![b'x'; steady.value_bytes], ..PutRequest::default() };
    let mut client = KvClient::new(channel);
    match tokio::time::timeout(PUT_LIMIT, client.put(request)).await {
        Ok(Ok(_)) => due.elapsed(),
        _ => PUT_LIMIT,
    }
}
