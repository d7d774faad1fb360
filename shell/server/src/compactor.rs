//! Auto-compaction: compacts old revisions without a request, in etcd's two modes.
//!
//! *Periodic*: keep the history of the last period. *Revision*: keep the last so many revisions. In both no more bytes
//! of it than the budget allows (`history.rs`), because history is in memory. Every member observes, only the leader
//! proposes, so that a new leader continues where the old one stopped. Time is the monotonic clock's: a jump of the
//! wall clock must not compact anything. [etcd v3compactor]
//! Knows nothing of: the work of a compaction.

use crate::counters::Counters;
use crate::face::FaceConfig;
use crate::history::{self, Budget, History, Look};
use crate::replica::Replica;
use kattu_kv::api::{Command, Error, Revision};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Outcome, Reply, ReplyBody, Request};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Everything: only clients compact.
    Off,
    /// The history of this period. Never zero.
    Period(Duration),
    /// This many revisions. Never zero or less.
    Revisions(i64),
}

impl Default for Retention {
    /// An hour: a store in memory cannot keep every version for ever.
    fn default() -> Retention {
        Retention::Period(HOUR)
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const REVISION_MODE_INTERVAL: Duration = Duration::from_secs(300);

/// Looks per interval of periodic compaction.
const LOOKS: u32 = 10;

/// When to compact, and to which revision. A pure function of its inputs.
#[derive(Debug)]
pub(crate) struct Schedule {
    retention: Retention,
    /// Periodic mode: revisions seen at each look, oldest first, one period's worth.
    seen: VecDeque<Revision>,
    /// How long to wait after the last success: a whole period at first, then one interval.
    wait: Duration,
    last_success: Option<Instant>,
    last_revision: Revision,
}

impl Schedule {
    /// A schedule that has seen nothing yet.
    #[must_use]
    pub fn new(retention: Retention) -> Schedule {
        let wait = match retention {
            Retention::Period(period) => period,
            Retention::Off | Retention::Revisions(_) => Duration::ZERO,
        };
        Schedule { retention, seen: VecDeque::new(), wait, last_success: None, last_revision: Revision::NONE }
    }

    /// Time between two looks; none if there is nothing to look for.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        match self.retention {
            Retention::Off => None,
            Retention::Period(period) => Some((period.min(HOUR) / LOOKS).max(Duration::from_millis(1))),
            Retention::Revisions(_) => Some(REVISION_MODE_INTERVAL),
        }
    }

    /// Records the store's revision, once per interval, and returns the revision to compact to now, if any.
    pub fn look(&mut self, now: Instant, revision: Revision) -> Option<Revision> {
        let due = match self.retention {
            Retention::Off => return None,
            Retention::Period(period) => {
                let looks = period.as_nanos() / self.interval()?.as_nanos();
                let looks = usize::try_from(looks).unwrap_or(usize::MAX).saturating_add(1);
                self.seen.push_back(revision);
                while looks < self.seen.len() {
                    self.seen.pop_front();
                }
                let begun = *self.last_success.get_or_insert(now);
                if now.duration_since(begun) < self.wait {
                    return None;
                }
                *self.seen.front()?
            }
            Retention::Revisions(kept) => Revision(revision.0.saturating_sub(kept)),
        };
        (Revision::NONE < due && due != self.last_revision).then_some(due)
    }

    /// Records that everything before `revision` is compacted.
    pub fn compacted(&mut self, now: Instant, revision: Revision) {
        self.last_success = Some(now);
        self.last_revision = revision;
        if let Retention::Period(period) = self.retention {
            self.wait = period.min(HOUR);
        }
    }
}

/// Compacts while this member leads, until `stop` turns true. Counts how far back history reaches, on every member,
/// even if nothing is compacted.
pub async fn run<R: Replica>(
    replica: R,
    retention: Retention,
    budget: Budget,
    config: Arc<FaceConfig>,
    mut stop: watch::Receiver<bool>,
) {
    let mut compactor = Compactor::new(retention, budget, config.quota_bytes);
    let mut by_schedule = ticks(compactor.schedule.interval().unwrap_or(NEVER));
    let by_bytes = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(by_bytes);
    loop {
        let is_scheduled = tokio::select! {
            _ = by_schedule.tick() => true,
            () = &mut by_bytes => false,
            changed = stop.changed() => if changed.is_err() || *stop.borrow() { return } else { continue },
        };
        let now = Instant::now();
        let has_changed = compactor.turn(&replica, now, is_scheduled, &config.counters).await;
        if !is_scheduled {
            let pause = if has_changed { history::LOOK_EVERY } else { LOOK_AT_REST };
            by_bytes.as_mut().reset(now + pause);
        }
    }
}

/// The observations of one member so far.
struct Compactor {
    schedule: Schedule,
    history: History,
    /// What the last look saw.
    seen: Option<Look>,
}

impl Compactor {
    fn new(retention: Retention, budget: Budget, quota: u64) -> Compactor {
        Compactor { schedule: Schedule::new(retention), history: History::new(budget, quota), seen: None }
    }

    /// One look at the replica, for the schedule or for the bytes of history, and the compaction that is due after it. Returns
    /// whether anything has changed since the last look.
    async fn turn<R: Replica>(
        &mut self,
        replica: &R,
        now: Instant,
        is_scheduled: bool,
        counters: &Counters,
    ) -> bool {
        let Some(mut seen) = look(replica).await else { return true };
        // A store that refuses growth changes no more, and waits for its history to become old enough to go.
        let has_changed = self.seen != Some(seen) || seen.short;
        if !is_scheduled {
            self.seen = Some(seen);
        }
        if let Some(quota) = replica.ruling_quota() {
            self.history.limit(quota);
        }
        let due = match is_scheduled {
            true => self.schedule.look(now, seen.revision),
            false => self.history.look(now, seen).filter(|_| self.schedule.retention != Retention::Off),
        };
        if let Some(due) = due
            && replica.leader() == Some(replica.member_id())
            && compact(replica, due).await
        {
            counters.auto_compactions.add(1);
            if is_scheduled {
                self.schedule.compacted(now, due);
            }
            // A client may have compacted further meanwhile.
            let compacted = look(replica).await.map_or(due, |look| look.compacted);
            seen.compacted = seen.compacted.max(due).max(compacted);
        }
        counters.history_seconds.set(self.history.reaches_back(now, seen.compacted).as_secs());
        has_changed
    }
}

/// Time between two looks while nothing changes.
const LOOK_AT_REST: Duration = Duration::from_secs(5);

/// Longer than any process runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

fn ticks(interval: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

async fn look<R: Replica>(replica: &R) -> Option<Look> {
    match replica.ask(Request::Status).await {
        Outcome::Done(Reply { body: ReplyBody::Status(status), .. }) => Some(Look {
            revision: status.revision,
            compacted: status.compact_revision,
            bytes: status.store_bytes,
            bytes_in_use: status.store_bytes_in_use,
            forgets: status.store_forgets,
            short: status.no_space,
        }),
        _ => None,
    }
}

/// Whether everything before `revision` is compacted now, by this request or another one.
async fn compact<R: Replica>(replica: &R, revision: Revision) -> bool {
    match replica.ask(Request::Write(encode_kv(&Command::Compact(revision)).into())).await {
        Outcome::Done(reply) => {
            matches!(reply.body, ReplyBody::Kv(_) | ReplyBody::KvError(Error::Compacted))
        }
        Outcome::Received(_) | Outcome::Refused(_) | Outcome::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Asked;
    use kattu_kv::api::{Answer, Response};
    use kattu_node::command;
    use kattu_node::contract::Status;
    use kattu_raft::{LogIndex, NodeId, Term};
    use kattu_runtime::metrics::Metrics;
    use std::sync::Mutex;

    /// Looks `looks` times, a revision per look, and returns (look, revision) of each compaction.
    fn run_schedule(mut schedule: Schedule, looks: u32) -> Vec<(u32, i64)> {
        let start = Instant::now();
        let interval = schedule.interval().unwrap();
        let mut done = Vec::new();
        for look in 0..looks {
            let now = start + interval * look;
            if let Some(due) = schedule.look(now, Revision(100 + i64::from(look))) {
                schedule.compacted(now, due);
                done.push((look, due.0));
            }
        }
        done
    }

    #[test]
    fn a_period_up_to_an_hour_is_kept_whole_and_cut_once_per_period() {
        let schedule = Schedule::new(Retention::Period(Duration::from_secs(600)));
        assert_eq!(schedule.interval(), Some(Duration::from_secs(60)));
        assert_eq!(run_schedule(schedule, 35), [(10, 100), (20, 110), (30, 120)]);
    }

    #[test]
    fn a_longer_period_slides_by_the_hour() {
        let schedule = Schedule::new(Retention::Period(3 * HOUR));
        assert_eq!(schedule.interval(), Some(Duration::from_secs(360)));
        assert_eq!(run_schedule(schedule, 55), [(30, 100), (40, 110), (50, 120)]);
    }

    #[test]
    fn revision_mode_keeps_the_last_ones_and_rests_when_nothing_changed() {
        let mut schedule = Schedule::new(Retention::Revisions(10));
        assert_eq!(schedule.interval(), Some(Duration::from_secs(300)));
        let now = Instant::now();
        assert_eq!(schedule.look(now, Revision(9)), None);
        assert_eq!(schedule.look(now, Revision(10)), None);
        assert_eq!(schedule.look(now, Revision(15)), Some(Revision(5)));
        assert_eq!(schedule.look(now, Revision(15)), Some(Revision(5)), "not done yet, so it is due again");
        schedule.compacted(now, Revision(5));
        assert_eq!(schedule.look(now, Revision(15)), None);
        assert_eq!(schedule.look(now, Revision(16)), Some(Revision(6)));
    }

    #[test]
    fn a_failed_compaction_is_due_again_at_the_next_look() {
        let mut schedule = Schedule::new(Retention::Period(Duration::from_secs(10)));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert_eq!(schedule.look(at(second), Revision(7)), None);
        }
        assert_eq!(schedule.look(at(10), Revision(7)), Some(Revision(7)));
        assert_eq!(schedule.look(at(11), Revision(8)), Some(Revision(7)));
        schedule.compacted(at(11), Revision(7));
        assert_eq!(schedule.look(at(12), Revision(8)), None);
    }

    #[test]
    fn off_looks_for_nothing() {
        assert_eq!(Schedule::new(Retention::Off).interval(), None);
    }

    /// A leader whose history takes a kilobyte a revision.
    #[derive(Clone)]
    struct Leader(Arc<Mutex<Look>>, Arc<Metrics>);

    impl Leader {
        fn at(&self, revision: Revision) -> &Leader {
            self.0.lock().unwrap().revision = revision;
            self
        }
    }

    impl Replica for Leader {
        fn ask(&self, request: Request) -> impl Asked {
            let mut store = self.0.lock().unwrap();
            let body = match request {
                Request::Status => ReplyBody::Status(Box::new(Status {
                    revision: store.revision,
                    compact_revision: store.compacted,
                    store_bytes: (store.revision.0 - store.compacted.0.max(0)) as u64 * 1024,
                    ..Status::default()
                })),
                Request::Write(bytes) => match command::Command::decode(&bytes) {
                    Ok(command::Command::Kv(Command::Compact(revision))) if store.compacted < revision => {
                        store.compacted = revision;
                        ReplyBody::Kv(Response { revision: store.revision, answer: Answer::Compact })
                    }
                    _ => ReplyBody::KvError(Error::Compacted),
                },
                other => panic!("no compactor asks for {other:?}"),
            };
            std::future::ready(Outcome::Done(Reply { term: Term(1), strong: 0, body }))
        }

        fn cluster_id(&self) -> u64 {
            1
        }

        fn member_id(&self) -> NodeId {
            NodeId(1)
        }

        fn leader(&self) -> Option<NodeId> {
            Some(NodeId(1))
        }

        fn term(&self) -> Term {
            Term(1)
        }

        fn committed(&self) -> LogIndex {
            LogIndex(1)
        }

        fn metrics(&self) -> Option<&Metrics> {
            Some(&self.1)
        }
    }

    /// Goal: whichever member leads, the budget of history is part of the least quota of all, at which growth ends.
    #[tokio::test]
    async fn history_keeps_to_the_least_quota_of_all_members() {
        const MB: u64 = 1 << 20;
        let budget = Budget { bytes: 0, age_min: Duration::ZERO };
        for (ruling, compacts) in [(0, false), (64 * MB, false), (16 * MB, true)] {
            let look = Look { compacted: Revision(-1), ..Look::default() };
            let leader = Leader(Arc::new(Mutex::new(look)), Arc::default());
            leader.1.quota_bytes.set(ruling);
            let mut compactor = Compactor::new(Retention::Revisions(1 << 40), budget, 64 * MB);
            let (start, counters) = (Instant::now(), Counters::default());
            for n in 1..10 {
                let now = start + history::LOOK_EVERY * n;
                compactor.turn(leader.at(Revision(i64::from(n) * 1024)), now, false, &counters).await;
            }
            let compacted = leader.0.lock().unwrap().compacted;
            assert_eq!(
                Revision::NONE < compacted,
                compacts,
                "9 MB of history under a quota of {ruling}: {compacted}"
            );
        }
    }

    /// Goal: the reported reach of history is right directly after a compaction, not only after the next look.
    #[tokio::test]
    async fn history_is_not_said_to_reach_back_to_what_was_just_compacted() {
        let look = Look { compacted: Revision(-1), ..Look::default() };
        let leader = Leader(Arc::new(Mutex::new(look)), Arc::default());
        let budget = Budget { bytes: 1, age_min: history::LOOK_EVERY * 3 / 2 };
        let mut compactor = Compactor::new(Retention::Revisions(1 << 40), budget, 1 << 30);
        let (counters, start) = (Counters::default(), Instant::now());
        // Revision at each look; to which revision that compacts; for how many looks history reaches back then.
        for (n, revision, compacted, reaches) in [
            (0, 100, -1, 0),
            (1, 200, -1, 1),
            (2, 300, 100, 2), // of the first look: that one can still be read
            (3, 400, 200, 2),
            (4, 500, 300, 2),
        ] {
            let now = start + history::LOOK_EVERY * n;
            compactor.turn(leader.at(Revision(revision)), now, false, &counters).await;
            let found = (leader.0.lock().unwrap().compacted, counters.history_seconds.get());
            assert_eq!(found, (Revision(compacted), reaches * history::LOOK_EVERY.as_secs()), "look {n}");
        }
        assert_eq!(counters.auto_compactions.get(), 3);
    }
}
