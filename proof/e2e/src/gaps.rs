//! Gaps: leaders are killed, and one client that never waits measures how long no put is acknowledged.
//!
//! Method: every millisecond one put of a key of its own goes to the next of the three members, without waiting for
//! earlier ones. The leader is killed with SIGKILL. The gap is the longest time between two successive
//! acknowledgements, from the kill until so many more have come that the service is certainly back: a hiccup after the
//! election counts too. The dead member is restarted and serves before the next trial. At the end every acknowledged
//! key must be there.
//! Knows nothing of: elections; Kattu or etcd.

use crate::kills::{all_keys, channel, put};
use kattu_rig::{Cluster, Options};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

const EVERY: Duration = Duration::from_millis(1);
/// A put without an answer for so long is given up.
const PUT_LIMIT: Duration = Duration::from_secs(20);
/// Acknowledgements before a kill, and after the first that follows it.
const FLOWING: usize = 300;

/// The results.
#[derive(Debug)]
pub struct Report {
    /// One per kill.
    pub gaps: Vec<Duration>,
    /// Keys acknowledged.
    pub acknowledged: usize,
    /// Acknowledged keys that are not there.
    pub lost: Vec<String>,
}

/// Acknowledgements that the client received.
#[derive(Debug, Default)]
struct Seen {
    /// Their times, ascending.
    at: Vec<Instant>,
    keys: BTreeSet<String>,
}

/// A client that puts without pause, on a thread of its own.
struct Client {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Client {
    fn start(cluster: &Cluster) -> Client {
        let addresses = cluster.addresses();
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (told, stopped) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let channels: Vec<_> = addresses.iter().map(|address| channel(address)).collect();
                let mut tick = tokio::time::interval(EVERY);
                tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut number = 0_usize;
                while !stopped.load(Ordering::Relaxed) {
                    tick.tick().await;
                    let (channel, key, told) = (
                        channels[number % channels.len()].clone(),
                        format!("load/{number:010}"),
                        told.clone(),
                    );
                    number += 1;
                    tokio::spawn(async move {
                        if put(channel, key.clone(), PUT_LIMIT).await {
                            let mut seen = told.lock().expect("nobody panics with it");
                            seen.at.push(Instant::now());
                            seen.keys.insert(key);
                        }
                    });
                }
            });
        });
        Client { seen, stop, thread }
    }

    fn count_after(&self, moment: Instant) -> usize {
        let seen = self.seen.lock().expect("nobody panics with it");
        seen.at.len() - seen.at.partition_point(|at| *at <= moment)
    }

    /// The longest time without an acknowledgement, from the last one before `moment` on.
    fn longest_gap_since(&self, moment: Instant) -> Duration {
        let seen = self.seen.lock().expect("nobody panics with it");
        let last_before = seen.at.partition_point(|at| *at <= moment).saturating_sub(1);
        let gaps = seen.at[last_before..].windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }

    fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client does not panic");
        std::mem::take(&mut self.seen.lock().expect("nobody panics with it").keys)
    }
}

/// Kills `trials` leaders of three members that run with default settings and these flags.
pub fn run(trials: usize, flags: Vec<String>, mut each: impl FnMut(usize, Duration)) -> Report {
    let mut cluster = Cluster::with("gaps", Options { members: 3, flags });
    let client = Client::start(&cluster);
    let mut gaps = Vec::new();
    for trial in 0..trials {
        let began = Instant::now();
        kattu_rig::until("puts are acknowledged", || (FLOWING < client.count_after(began)).then_some(()));
        let leader = cluster.leader();
        let moment = Instant::now();
        cluster.members[leader].kill();
        // Answers sent before it died may still arrive, but far fewer than these.
        kattu_rig::until("puts are acknowledged again", || {
            (FLOWING < client.count_after(moment)).then_some(())
        });
        let gap = client.longest_gap_since(moment);
        each(trial, gap);
        gaps.push(gap);
        cluster.members[leader].start();
    }
    let acknowledged = client.stop();
    let there = all_keys(&cluster.members[0].kv());
    let lost = acknowledged.difference(&there).cloned().collect();
    Report { gaps, acknowledged: acknowledged.len(), lost }
}
