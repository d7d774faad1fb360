//! Clients on a thread of their own: each sends, records the answer, and goes on; after a failure with the next member.
//!
//! Knows nothing of: faults.

use crate::faces::{Answers, Faces, Speaker, Spoken};
use crate::record::Recorder;
use crate::workload::{Questions, Shape};
use kattu_tls::ClientTls;
use kattu_verify::history::What;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between a failure and the next attempt: no storm of refusals.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// The load of one trial.
pub struct Clients {
    told: Told,
    is_native: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the clients are told, and what they tell.
#[derive(Clone, Default)]
struct Told {
    stop: Arc<AtomicBool>,
    rest: Arc<AtomicBool>,
    /// By face.
    answers: Arc<[AtomicU64; 3]>,
    /// Commands of sessions that were sent again.
    repeated: Arc<AtomicU64>,
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
        faces: &Faces,
        seed: u64,
        recorder: &Arc<Recorder>,
    ) -> Result<Clients, String> {
        let tls = trust(ca)?;
        let told = Told::default();
        let (all, is_native) = (told.clone(), faces.is_native());
        let (recorder, shape, hosts, faces) =
            (recorder.clone(), shape.clone(), hosts.to_vec(), faces.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let clients: Vec<_> = (0..shape.clients)
                    .map(|client| {
                        let questions = Questions::new(seed, client, &shape);
                        let speaker = Speaker::new(faces.of(client), &hosts, tls.as_ref());
                        tokio::spawn(run(
                            client,
                            questions,
                            (speaker, hosts.len()),
                            recorder.clone(),
                            all.clone(),
                        ))
                    })
                    .collect();
                for client in clients {
                    client.await.expect("no client panics");
                }
            });
        });
        Ok(Clients { told, is_native, thread: Some(thread) })
    }

    /// While resting, they send nothing.
    pub fn rest(&self, is_resting: bool) {
        self.told.rest.store(is_resting, Ordering::Relaxed);
    }

    /// Answers so far, by face.
    pub fn answers(&self) -> Answers {
        self.told.answers.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// What the native ones did, once all have stopped.
    pub fn spoken(&self) -> Spoken {
        let [_, native, in_sessions] = self.answers();
        let repeated = self.told.repeated.load(Ordering::Relaxed);
        match self.is_native {
            true => Spoken { trials: 1, native, in_sessions, repeated },
            false => Spoken::default(),
        }
    }

    /// Stops them after their operations under way; what the native ones did.
    pub fn stop(mut self) -> Spoken {
        self.end();
        self.spoken()
    }

    /// The same; may be called again.
    pub fn end(&mut self) {
        self.told.stop.store(true, Ordering::Relaxed);
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

/// What clients need to trust members of this authority; nothing without TLS.
///
/// # Errors
/// The authority's file cannot be used.
pub fn trust(ca: Option<&Path>) -> Result<Option<ClientTls>, String> {
    let tls = ca.map(|ca| ClientTls::load(Some(ca), None)).transpose();
    tls.map_err(|error| error.to_string())
}

async fn run(
    client: u32,
    mut questions: Questions,
    (mut speaker, members): (Speaker, usize),
    recorder: Arc<Recorder>,
    told: Told,
) {
    let mut at = client as usize % members;
    while !told.stop.load(Ordering::Relaxed) {
        if told.rest.load(Ordering::Relaxed) {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        }
        speaker.prepare().await;
        let operation = questions.next(recorder.revision());
        let id = recorder.invoke(client, at as u64, operation.clone());
        let (end, face) = speaker.ask(at, &operation).await;
        let is_done = matches!(end, What::Done { .. });
        recorder.end(client, id, end);
        if is_done {
            told.answers[face].fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(questions.pause_ms())).await;
        } else {
            at = (at + 1) % members;
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
    told.repeated.fetch_add(speaker.repeated(), Ordering::Relaxed);
}
