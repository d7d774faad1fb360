//! Clients on a thread of their own: each sends, records the answer, and goes on; after a failure with the next member.
//!
//! Knows nothing of: faults.

use crate::record::Recorder;
use crate::words;
use crate::workload::{Questions, Shape};
use kattu_client::Endpoint;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_tls::ClientTls;
use kattu_verify::history::What;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::transport::Channel;

/// After this a client records the outcome as unknown and goes on.
const PATIENCE: Duration = Duration::from_secs(2);
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Between a failure and the next attempt: no storm of refusals.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// The load of one trial.
pub struct Clients {
    stop: Arc<AtomicBool>,
    rest: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Clients {
    /// Starts them against the members' client addresses; with TLS, if there is an authority to trust.
    ///
    /// # Errors
    /// The authority's file cannot be used.
    pub fn start(
        hosts: &[String],
        ca: Option<&Path>,
        shape: &Shape,
        seed: u64,
        recorder: &Arc<Recorder>,
    ) -> Result<Clients, String> {
        let tls = ca.map(|ca| ClientTls::load(Some(ca), None)).transpose();
        let tls = tls.map_err(|error| error.to_string())?;
        let stop = Arc::new(AtomicBool::new(false));
        let rest = Arc::new(AtomicBool::new(false));
        let rests = rest.clone();
        let (stopped, recorder, shape, hosts) =
            (stop.clone(), recorder.clone(), shape.clone(), hosts.to_vec());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let clients: Vec<_> = (0..shape.clients)
                    .map(|client| {
                        let questions = Questions::new(seed, client, &shape);
                        let channels = hosts.iter().map(|host| channel(host, tls.as_ref())).collect();
                        let told = (stopped.clone(), rests.clone());
                        tokio::spawn(run(client, questions, channels, recorder.clone(), told))
                    })
                    .collect();
                for client in clients {
                    client.await.expect("no client panics");
                }
            });
        });
        Ok(Clients { stop, rest, thread: Some(thread) })
    }

    /// While resting, they send nothing.
    pub fn rest(&self, is_resting: bool) {
        self.rest.store(is_resting, Ordering::Relaxed);
    }

    /// Stops them after their operations under way.
    pub fn stop(mut self) {
        self.end();
    }

    /// The same; may be called again.
    pub fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection to one member, made at first use and after a loss.
pub fn channel(host: &str, tls: Option<&ClientTls>) -> KvClient<Channel> {
    let endpoint = Endpoint::new(&format!("{host}:2379"), Duration::from_millis(500), tls);
    KvClient::new(endpoint.expect("an address").channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

async fn run(
    client: u32,
    mut questions: Questions,
    mut channels: Vec<KvClient<Channel>>,
    recorder: Arc<Recorder>,
    (stopped, rests): (Arc<AtomicBool>, Arc<AtomicBool>),
) {
    let mut at = client as usize % channels.len();
    while !stopped.load(Ordering::Relaxed) {
        if rests.load(Ordering::Relaxed) {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        }
        let operation = questions.next(recorder.revision());
        let id = recorder.invoke(client, at as u64, operation.clone());
        let end = match tokio::time::timeout(PATIENCE, words::ask(&mut channels[at], &operation)).await {
            Ok(end) => end,
            Err(_) => What::Unknown { reason: "no answer in time".into() },
        };
        let is_done = matches!(end, What::Done { .. });
        recorder.end(client, id, end);
        if is_done {
            tokio::time::sleep(Duration::from_millis(questions.pause_ms())).await;
        } else {
            at = (at + 1) % channels.len();
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}
