//! Floors: how much a flood must have achieved. A member that refuses every connection, or lets all wait, needs little
//! memory and serves its good client quickly, too: a flood that did not stand proves nothing.
//!
//! In:   what a flood's clients did and saw; what the members counted meanwhile.
//! Out:  violations in words; none if the flood stood, or if all that was refused was counted at a limit that
//!       docs/operations.md states.
//! Knows nothing of: how floods are made.

use kattu_rig::Member;
use kattu_rig::page::Page;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Percentage of the planned connections that must stand.
const STAND_PERCENT: u64 = 99;
/// Half a preface is closed after 5 s; a busy member, or a busy client, may take twice as long.
const PREFACE_LASTS_MAX: Duration = Duration::from_secs(10);
/// Divisor: at least this part of the budget, or of the requested bytes, must be held.
const HELD_SHARE: u64 = 4;
/// Bytes that each stream holds from its head on.
const STREAM_BYTES: u64 = 4 << 10;
/// Connections with garbage, per second.
const NONSENSE_PER_S: f64 = 10.0;
/// Registrations that are answered, per second.
const REGISTRATIONS_PER_S: f64 = 1_000.0;
/// Most sessions of a cluster. [docs/operations.md, *The native protocol*]
pub(crate) const SESSIONS_MAX: u64 = 1_000_000;
/// Between two polls of the members' metrics.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A member that has not answered a poll within this is polled again.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// The outcome of one flood, as its clients saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Came {
    /// Connections that sent the preface, and how many of them stood at the end; connections with half a preface at a
    /// time, and how many were opened in all.
    Idle { said: u64, stand: u64, halves: u64, opened: u64 },
    /// Bytes of bodies sent, and bytes that could have been.
    Trickle { sent: u64, could: u64 },
    /// Bytes of answers requested.
    NonReaders { asked: u64 },
    /// Streams planned, streams opened, and connections closed meanwhile.
    Streams { said: u64, opened: u64, closed: u64 },
    /// Connections with garbage, connections with half a frame, and how many of the latter at a time.
    Peers { nonsense: u64, halves: u64, standing: u64 },
    /// Puts acknowledged, writers, and writers without an acknowledged put.
    LargeWriters { puts: u64, writers: u64, unheard: u64 },
    /// Sessions opened, openings refused because there were too many sessions, and most sessions at a time.
    Registrations { opened: u64, full: u64, sessions: u64 },
}

/// Counts of all members during one flood, summed; the peak is that of the member that held most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Client memory of one member, in bytes.
    pub budget: u64,
    /// The highest client memory in use on one member.
    pub held_peak: u64,
    /// Requests refused for lack of client memory.
    pub refused: u64,
    /// Connections closed because there were too many.
    pub connections_refused: u64,
    /// Connections closed because they carried too much.
    pub connections_too_much: u64,
}

impl Came {
    /// The violations, where the flood has lasted for so long.
    pub fn broken(&self, counted: &Counted, lasted: Duration) -> Vec<String> {
        let mut broken = Vec::new();
        let mut expect = |what: &str, seen: u64, least: u64| {
            if seen < least {
                broken.push(format!("the flood did not stand: {what}: {seen}, and not {least} or more"));
            }
        };
        let share_of = |bytes: u64| bytes.min(counted.budget) / HELD_SHARE;
        match *self {
            Came::Idle { said, stand, halves, opened } => {
                // Connections closed at the stated limit are in its count.
                let stand = if said - stand <= counted.connections_refused { said } else { stand };
                expect("connections that stand at the end", stand, (said * STAND_PERCENT).div_ceil(100));
                let times = 1 + lasted.as_secs() / PREFACE_LASTS_MAX.as_secs();
                expect("connections with half a preface", opened, halves * times);
            }
            Came::Trickle { sent, could } => {
                // Requests are refused only when the client memory is full.
                let is_full = 0 < counted.refused && share_of(could) <= counted.held_peak;
                expect("bytes sent", if is_full { could } else { sent }, share_of(could));
            }
            Came::NonReaders { asked } => expect("bytes held", counted.held_peak, share_of(asked)),
            Came::Streams { said, opened, closed } => {
                let opened = if closed <= counted.connections_too_much { said } else { opened };
                expect("streams opened", opened, said);
                expect("bytes held", counted.held_peak, share_of(said * STREAM_BYTES));
            }
            Came::Peers { nonsense, halves, standing } => {
                let least = (lasted.as_secs_f64() * NONSENSE_PER_S) as u64;
                expect("connections with nonsense", nonsense, least);
                expect("connections with half a frame", halves, standing);
            }
            Came::LargeWriters { puts, writers, unheard } => {
                expect("puts acknowledged", puts, writers);
                expect("writers to whom one was", writers - unheard, writers);
            }
            Came::Registrations { opened, full, sessions } => {
                // Sessions are too many only at the stated limit; some end while they are counted.
                let is_full = SESSIONS_MAX * STAND_PERCENT <= sessions * 100;
                let least = (lasted.as_secs_f64() * REGISTRATIONS_PER_S) as u64;
                expect("registrations answered", opened + if is_full { full } else { 0 }, least);
            }
        }
        broken
    }
}

/// Polls the metrics of a cluster's members.
pub struct Counting {
    addresses: Vec<String>,
    before: Counted,
    stop: Arc<AtomicBool>,
    peaks: JoinHandle<u64>,
}

impl Counting {
    /// Starts polling; `prepare` runs first, in the polling thread.
    pub fn start(members: &[Member], prepare: impl FnOnce() + Send + 'static) -> Counting {
        let addresses: Vec<String> = members.iter().map(Member::address).collect();
        let before = counted(&addresses);
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, stopped) = (addresses.clone(), stop.clone());
        let peaks = std::thread::spawn(move || {
            prepare();
            let mut peak = 0;
            while !stopped.load(Ordering::Relaxed) {
                for address in &asked {
                    // A member that does not answer just now, or is away, is polled again.
                    let held = Page::within(address, LOOK_LIMIT)
                        .and_then(|page| page.number("kattu_client_memory_bytes"));
                    peak = peak.max(held.unwrap_or_default());
                }
                std::thread::sleep(LOOK_EVERY);
            }
            peak
        });
        Counting { addresses, before, stop, peaks }
    }

    /// The counts since the start. Waits until all members answer.
    pub fn stop(self) -> Counted {
        self.stop.store(true, Ordering::Relaxed);
        let held_peak = self.peaks.join().expect("it only reads");
        let (before, now) = (self.before, counted(&self.addresses));
        // A restarted member counts from 0.
        Counted {
            held_peak,
            refused: now.refused.saturating_sub(before.refused),
            connections_refused: now.connections_refused.saturating_sub(before.connections_refused),
            connections_too_much: now.connections_too_much.saturating_sub(before.connections_too_much),
            ..now
        }
    }
}

/// The sum of all members' counts so far.
fn counted(addresses: &[String]) -> Counted {
    let mut all = Counted::default();
    for address in addresses {
        let page = kattu_rig::until("a member says what it counts", || Page::of(address));
        let number =
            |name: &str| page.number(name).unwrap_or_else(|| panic!("{address} does not know {name}"));
        all.budget = number("kattu_client_memory_max_bytes");
        all.refused += number("kattu_client_memory_refused_total");
        all.connections_refused += number("kattu_client_connections_refused_total");
        all.connections_too_much += number("kattu_client_connections_too_much_total");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const MIB: u64 = 1 << 20;
    const NOTHING: Counted = Counted {
        budget: 256 * MIB,
        held_peak: 0,
        refused: 0,
        connections_refused: 0,
        connections_too_much: 0,
    };

    /// The violations, without their numbers.
    fn broken(came: Came, counted: Counted) -> Vec<String> {
        let lines = came.broken(&counted, MINUTE);
        lines.iter().map(|line| line.split(": ").nth(1).expect("what it is").to_string()).collect()
    }

    #[test]
    fn idle_connections_stand_or_are_counted_as_refused_and_half_prefaces_come_again() {
        let idle = |stand, opened| Came::Idle { said: 1000, stand, halves: 1000, opened };
        let none: [&str; 0] = [];
        assert_eq!(broken(idle(990, 7_000), NOTHING), none);
        assert_eq!(broken(idle(989, 7_000), NOTHING), ["connections that stand at the end"]);
        assert_eq!(
            broken(idle(0, 7_000), NOTHING),
            ["connections that stand at the end"],
            "all doors closed"
        );
        assert_eq!(broken(idle(100, 7_000), Counted { connections_refused: 900, ..NOTHING }), none);
        let too_few = Counted { connections_refused: 899, ..NOTHING };
        assert_eq!(broken(idle(100, 7_000), too_few), ["connections that stand at the end"]);
        assert_eq!(broken(idle(1000, 6_999), NOTHING), ["connections with half a preface"], "kept for long");
        let soon = idle(1000, 1000).broken(&NOTHING, Duration::from_secs(3));
        assert!(soon.is_empty(), "there is no time for a second one: {soon:?}");
        let few = idle(0, 7_000).broken(&NOTHING, MINUTE);
        assert_eq!(
            few,
            ["the flood did not stand: connections that stand at the end: 0, and not 990 or more"]
        );
    }

    #[test]
    fn bodies_come_in_or_the_budget_is_full() {
        let trickle = |sent, could| Came::Trickle { sent, could };
        assert!(broken(trickle(64 * MIB, 840 * MIB), NOTHING).is_empty());
        assert_eq!(broken(trickle(64 * MIB - 1, 840 * MIB), NOTHING), ["bytes sent"]);
        assert!(broken(trickle(10 * MIB, 40 * MIB), NOTHING).is_empty(), "weaker than the budget");
        let full = Counted { refused: 1, held_peak: 64 * MIB, ..NOTHING };
        assert!(broken(trickle(0, 840 * MIB), full).is_empty());
        let refused_for_nothing = Counted { held_peak: 64 * MIB - 1, ..full };
        assert_eq!(broken(trickle(0, 840 * MIB), refused_for_nothing), ["bytes sent"]);
    }

    #[test]
    fn answers_that_nobody_reads_are_held() {
        let came = Came::NonReaders { asked: 9_000 * MIB };
        assert!(broken(came, Counted { held_peak: 64 * MIB, ..NOTHING }).is_empty());
        assert_eq!(broken(came, Counted { held_peak: 64 * MIB - 1, ..NOTHING }), ["bytes held"]);
    }

    #[test]
    fn streams_are_opened_and_hold_something() {
        let streams = |opened, closed| Came::Streams { said: 16_000, opened, closed };
        let held = Counted { held_peak: 16_000 << 10, ..NOTHING };
        assert!(broken(streams(16_000, 0), held).is_empty());
        assert_eq!(broken(streams(15_999, 1), held), ["streams opened"]);
        assert!(broken(streams(15_999, 1), Counted { connections_too_much: 1, ..held }).is_empty());
        // Answers written into a socket that is never read.
        assert_eq!(broken(streams(16_000, 0), Counted { held_peak: 15 * MIB, ..NOTHING }), ["bytes held"]);
    }

    #[test]
    fn strangers_are_let_in() {
        let peers = |nonsense, halves| Came::Peers { nonsense, halves, standing: 400 };
        assert!(broken(peers(600, 400), NOTHING).is_empty());
        assert_eq!(broken(peers(599, 400), NOTHING), ["connections with nonsense"]);
        assert_eq!(broken(peers(600, 399), NOTHING), ["connections with half a frame"]);
    }

    #[test]
    fn large_writers_write_each_of_them() {
        let writers = |puts, unheard| Came::LargeWriters { puts, writers: 12, unheard };
        assert!(broken(writers(12, 0), NOTHING).is_empty());
        assert_eq!(broken(writers(900, 1), NOTHING), ["writers to whom one was"]);
        assert_eq!(broken(writers(0, 12), NOTHING), ["puts acknowledged", "writers to whom one was"]);
    }

    #[test]
    fn sessions_are_opened_or_as_many_are_there_as_there_may_be() {
        let came = |opened, full, sessions| Came::Registrations { opened, full, sessions };
        assert!(broken(came(60_000, 0, 60_000), NOTHING).is_empty());
        assert_eq!(broken(came(59_999, 0, 59_999), NOTHING), ["registrations answered"]);
        assert!(broken(came(20_000, 40_000, 990_000), NOTHING).is_empty(), "it was full");
        let refused_for_nothing = came(20_000, 4_000_000, 989_999);
        assert_eq!(broken(refused_for_nothing, NOTHING), ["registrations answered"]);
    }
}
