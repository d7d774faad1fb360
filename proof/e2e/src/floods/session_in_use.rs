//! The session in use: it was opened before a flood of registrations, puts to one key once a second meanwhile, and once more
//! when the flood is over.
//!
//! Rule: no put fails, and the key's version is the number of puts: each was executed once.
//! Knows nothing of: floods.

use super::good_client::PUT_LIMIT;
use crate::once::until_it_has_sessions;
use crate::processors::on_other_cores;
use kattu_client::{Error, NativeClient, Options, SessionOptions};
use kattu_rig::Cluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The key that it puts.
const KEY: &str = "in-use";
/// One put is due in each of these.
const EVERY: Duration = Duration::from_secs(1);

/// A session that is used, in a thread of its own.
pub(super) struct SessionInUse {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Used>,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Puts that were answered.
    pub(super) puts: u64,
    /// Most sessions that the cluster had after a put.
    pub(super) sessions: u64,
    pub(super) faults: Vec<String>,
}

impl SessionInUse {
    /// Opens it. Returns when its first put is answered.
    pub(super) fn open(cluster: &Cluster, one_core: bool) -> SessionInUse {
        until_it_has_sessions(cluster);
        let (addresses, stop) = (cluster.addresses(), Arc::<AtomicBool>::default());
        let (is_used, first) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            if one_core {
                on_other_cores();
            }
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut used = Used::default();
            match runtime.block_on(used.go_on(&addresses, &stopped, &is_used)) {
                Ok(version) => used.faults.extend(difference(used.puts, version)),
                Err(why) => {
                    used.faults.push(format!("the session in use, after {} puts: {why}", used.puts));
                }
            }
            used
        });
        let _ = first.recv(); // fails if there is no first put; then `stop` says why
        SessionInUse { stop, thread }
    }

    /// Puts for the last time.
    pub(super) fn stop(self) -> Used {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the session does not panic")
    }
}

impl Used {
    /// Puts until it is stopped; the key's version at the end.
    async fn go_on(
        &mut self,
        addresses: &[String],
        stop: &AtomicBool,
        is_used: &Sender<()>,
    ) -> Result<i64, Error> {
        let client = NativeClient::connect(addresses, Options { timeout: PUT_LIMIT }, None)
            .expect("the members have addresses");
        let session = client.open_session(SessionOptions::default()).await?;
        let mut tick = tokio::time::interval(EVERY);
        loop {
            tick.tick().await;
            let is_last = stop.load(Ordering::Relaxed); // read before the put: that one comes after the flood
            session.put(KEY, self.puts.to_string()).await?.await?;
            self.puts += 1;
            let _ = is_used.send(()); // only the first is awaited
            // A member that is asked for much may refuse this.
            if let Ok((all, _)) = client.list_sessions(0, 1).await {
                self.sessions = self.sessions.max(all);
            }
            if is_last {
                let pair = client.get(KEY).await?;
                session.close().await?;
                return Ok(pair.map_or(0, |pair| pair.version));
            }
        }
    }
}

/// What is wrong with a key of this version after so many puts.
fn difference(puts: u64, version: i64) -> Option<String> {
    let is_once = u64::try_from(version) == Ok(puts);
    (!is_once).then(|| format!("{KEY} has version {version} after {puts} puts of a session in use"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_that_is_executed_twice_or_not_at_all_is_found() {
        assert_eq!(difference(31, 31), None);
        for version in [30, 32] {
            let found = difference(31, version).expect("it is wrong");
            assert_eq!(found, format!("in-use has version {version} after 31 puts of a session in use"));
        }
    }
}
