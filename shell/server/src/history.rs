//! History: how many bytes of old versions are kept, and since when.
//!
//! In:    observations of the store (looks), each with its time.
//! Out:   the revision to compact to, if history takes more than its budget; how far back history surely reaches.
//! Rule:  1. A budget is a quarter of what the newest versions leave of the quota, or as asked for, but never more than
//!           half of it: the rest is for what is held twice while a snapshot is taken. A snapshot beside a full load
//!           takes so long that nearly as much is written meanwhile as the store holds.
//!        2. History younger than the configured age stays while it takes no more than that quarter. Beyond it, and
//!           while growth is refused, only the last moments stay: a store that refuses writes is worse than one with
//!           little history.
//!        3. Compacted versions are freed gradually: until that is done, their bytes are no basis for the next step.
//!        4. History is compacted in small steps: each look that finds too much compacts the excess, and no more.
//! Knows nothing of: the compactor, the work of a compaction.

use kattu_kv::api::Revision;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two looks. The commands that follow a compaction free what it left. With ten seconds between looks a
/// member at its limit served half as much during three of them. [decision 5]
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks that are kept, one for each second of a day: 2 MB. If history is to be kept for longer than half a day they
/// are further apart, so that some are older than that.
const LOOKS_MAX: usize = 86_400;
/// The history that stays whatever it takes: enough for a client that reads page by page at one revision.
const LAST_MOMENTS: Duration = Duration::from_secs(30);

/// What may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of versions that are not the newest of their key; 0 for a quarter of what the newest leave of the quota.
    pub bytes: u64,
    /// History of this age or younger is kept beyond the budget, while a quarter of what the newest versions leave of the
    /// quota holds it.
    pub age_min: Duration,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { bytes: 0, age_min: Duration::from_secs(300) }
    }
}

/// An observation of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Its revision.
    pub revision: Revision,
    /// Its compacted revision; negative before the first compaction.
    pub compacted: Revision,
    /// Bytes it holds.
    pub bytes: u64,
    /// Bytes of the newest versions among those.
    pub bytes_in_use: u64,
    /// It is still freeing compacted versions.
    pub forgets: bool,
    /// Growth is refused for lack of space.
    pub short: bool,
}

/// The looks of one member, and the compactions that follow from them. A pure function of its inputs.
#[derive(Debug)]
pub struct History {
    budget: Budget,
    quota: u64,
    /// Times, each with the newest revision then; oldest first.
    seen: VecDeque<(Instant, Revision)>,
}

impl History {
    /// Without looks yet. `quota`: most bytes of the store.
    #[must_use]
    pub fn new(budget: Budget, quota: u64) -> History {
        History { budget, quota, seen: VecDeque::new() }
    }

    /// Sets the quota.
    pub fn limit(&mut self, quota: u64) {
        self.quota = quota;
    }

    /// Records a look and returns the revision to compact to because of bytes, if any.
    pub fn look(&mut self, now: Instant, look: Look) -> Option<Revision> {
        // Looks of the last moments are all kept: without space they decide.
        let apart = self.budget.age_min / (LOOKS_MAX as u32 / 2);
        let old = self.seen.partition_point(|(at, _)| 2 * LAST_MOMENTS <= now.duration_since(*at));
        if 2 <= old && self.seen[old - 1].0 - self.seen[old - 2].0 < apart {
            self.seen.remove(old - 1);
        }
        self.seen.push_back((now, look.revision));
        while LOOKS_MAX < self.seen.len() {
            self.seen.pop_front();
        }
        let history = look.bytes.saturating_sub(look.bytes_in_use);
        let bytes_max = self.bytes_max(look.bytes_in_use);
        let due = if look.short {
            self.due(now, look, 0, LAST_MOMENTS.min(self.budget.age_min))
        } else if look.forgets || history <= bytes_max {
            None
        } else {
            let old = self.due(now, look, bytes_max, self.budget.age_min);
            let young_max = bytes_max.max(self.share(look.bytes_in_use));
            let young = self.due(now, look, young_max, LAST_MOMENTS.min(self.budget.age_min));
            old.max(young)
        };
        due.filter(|due| look.compacted.max(Revision::NONE) < *due)
    }

    /// The newest revision that is older than `age_min` and need not be kept if history may take so many bytes.
    fn due(&self, now: Instant, look: Look, bytes_max: u64, age_min: Duration) -> Option<Revision> {
        // As if every revision took the same space.
        let revisions = look.revision.0 - look.compacted.max(Revision::NONE).0;
        let history = look.bytes.saturating_sub(look.bytes_in_use);
        let kept = (revisions as f64 * bytes_max as f64 / history.max(1) as f64) as i64;
        let for_bytes = Revision(look.revision.0 - kept.min(revisions));
        let old_enough =
            self.seen.partition_point(|(at, _)| age_min <= now.duration_since(*at)).checked_sub(1)?;
        Some(for_bytes.min(self.seen[old_enough].1))
    }

    /// A quarter of what so many bytes of the newest versions leave of the quota.
    fn share(&self, bytes_in_use: u64) -> u64 {
        self.quota.saturating_sub(bytes_in_use) / 4
    }

    /// Bytes of old versions that may be kept beside so many of the newest, if they are not young.
    fn bytes_max(&self, bytes_in_use: u64) -> u64 {
        let share = self.share(bytes_in_use);
        if self.budget.bytes == 0 { share } else { self.budget.bytes.min(2 * share) }
    }

    /// How far back history surely reaches: every revision of this time can be read. At most back to the first look.
    #[must_use]
    pub(crate) fn reaches_back(&self, now: Instant, compacted: Revision) -> Duration {
        let since = self.seen.get(self.seen.partition_point(|(_, revision)| *revision < compacted));
        since.map_or(Duration::ZERO, |(at, _)| now.duration_since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A store that grows by `per_look` bytes of history with every look, one revision for each KiB.
    struct Store {
        history: History,
        at: Instant,
        revision: Revision,
        compacted: Revision,
        in_use: u64,
    }

    impl Store {
        fn new(budget: Budget, quota: u64) -> Store {
            let (history, at) = (History::new(budget, quota), Instant::now());
            Store { history, at, revision: Revision(1), compacted: Revision(-1), in_use: 10 * MB }
        }

        fn held(&self) -> u64 {
            (self.revision.0 - self.compacted.0.max(0)) as u64 * 1024
        }

        /// One look later; the revision that was compacted to, if any.
        fn look(&mut self, per_look: u64, short: bool) -> Option<Revision> {
            self.at += LOOK_EVERY;
            self.revision.0 += (per_look / 1024) as i64;
            let look = Look {
                revision: self.revision,
                compacted: self.compacted,
                bytes: self.in_use + self.held(),
                bytes_in_use: self.in_use,
                forgets: false,
                short,
            };
            let due = self.history.look(self.at, look);
            if let Some(due) = due {
                assert!(self.compacted < due && due <= self.revision);
                self.compacted = due;
            }
            due
        }
    }

    #[test]
    fn history_stays_below_its_budget_and_above_its_age() {
        let budget = Budget { bytes: 400 * MB, age_min: Duration::from_secs(60) };
        let mut store = Store::new(budget, 4096 * MB);
        let mut compactions = 0;
        for n in 0..600 {
            let before = store.held();
            compactions += u32::from(store.look(MB, false).is_some());
            assert!(store.held() <= 401 * MB, "{} bytes at look {n}", store.held());
            assert!(
                before.saturating_sub(store.held()) <= 2 * MB,
                "{before} to {} at look {n}",
                store.held()
            );
            let reaches = store.history.reaches_back(store.at, store.compacted);
            assert!(reaches >= Duration::from_secs(if n < 61 { 0 } else { 60 }), "{reaches:?} at look {n}");
        }
        assert!((200..=201).contains(&compactions), "what is too much, with each look: {compactions}");
    }

    #[test]
    fn what_is_young_stays_although_it_takes_more_than_the_budget() {
        let budget = Budget { bytes: 100 * MB, age_min: Duration::from_secs(300) };
        let mut store = Store::new(budget, 4096 * MB);
        for _ in 0..1000 {
            store.look(MB, false);
        }
        assert_eq!(store.held() / MB, 300, "five minutes of it");
    }

    #[test]
    fn a_load_whose_young_history_would_fill_the_store_is_not_refused() {
        let quota = 4096 * MB;
        let mut store = Store::new(Budget::default(), quota);
        for n in 0..1000 {
            store.look(32 * MB, false);
            let room = quota - store.in_use;
            assert!(
                store.held() <= room / 4 + 32 * MB,
                "five minutes of it are 9.4 GiB: {} at look {n}",
                store.held()
            );
            let reaches = store.history.reaches_back(store.at, store.compacted).as_secs();
            assert!(n < 32 || 30 <= reaches, "{reaches} s, but a quarter of the store are 32 s");
        }
    }

    #[test]
    fn the_last_moments_stay_although_growth_will_be_refused() {
        let mut store = Store::new(Budget::default(), 1000 * MB);
        for _ in 0..200 {
            store.look(40 * MB, false);
        }
        assert_eq!(store.held() / MB, 1200, "half a minute of it");
    }

    #[test]
    fn history_that_is_to_be_kept_for_days_has_a_budget_all_the_same() {
        const DAY: u64 = 86_400;
        let budget = Budget { bytes: 100 * MB, age_min: Duration::from_secs(2 * DAY) };
        let mut store = Store::new(budget, 4096 * MB);
        for _ in 0..3 * DAY {
            store.look(2048, false);
        }
        let kept = store.held() / 2048;
        assert!((2 * DAY..2 * DAY + 10).contains(&kept), "{kept} s of it");
        assert!(store.history.seen.len() <= LOOKS_MAX);
    }

    #[test]
    fn history_that_is_to_be_kept_for_a_year_has_its_last_moments_all_the_same() {
        let budget = Budget { bytes: 0, age_min: Duration::from_secs(365 * 86_400) };
        let mut store = Store::new(budget, 4096 * MB);
        for _ in 0..10_000 {
            store.look(1024, false);
        }
        assert!(store.history.seen.len() < 100, "{} looks", store.history.seen.len());
        assert!(store.look(1024, true).is_some());
        assert_eq!(store.held() / 1024, 30, "half a minute of it");
    }

    #[test]
    fn without_room_only_the_last_moments_stay() {
        let mut store = Store::new(Budget::default(), 4096 * MB);
        for _ in 0..200 {
            assert_eq!(store.look(MB, false), None, "far below the budget");
        }
        assert!(store.look(MB, true).is_some());
        assert_eq!(store.held() / MB, 30, "half a minute of it");
    }

    #[test]
    fn a_store_that_still_gives_back_is_left_alone_and_a_full_one_leaves_less_for_history() {
        let mut history = History::new(Budget::default(), 1000 * MB);
        assert_eq!((history.bytes_max(0), history.bytes_max(900 * MB)), (250 * MB, 25 * MB));
        let asked = History::new(Budget { bytes: 300 * MB, ..Budget::default() }, 1000 * MB);
        assert_eq!((asked.bytes_max(0), asked.bytes_max(900 * MB)), (300 * MB, 50 * MB));
        let start = Instant::now();
        let look = Look {
            revision: Revision(1000),
            compacted: Revision(1),
            bytes: 500 * MB,
            bytes_in_use: 1,
            ..Look::default()
        };
        assert_eq!(history.look(start, look), None, "nothing is old enough");
        let later = start + Duration::from_secs(400);
        assert_eq!(history.look(later, Look { forgets: true, ..look }), None);
        assert!(history.look(later, look).is_some());
    }

    #[test]
    fn since_when_is_never_said_to_be_longer_than_it_is() {
        let mut history = History::new(Budget::default(), 1000 * MB);
        let start = Instant::now();
        for n in 0..10 {
            history.look(
                start + LOOK_EVERY * n,
                Look { revision: Revision(100 * i64::from(n)), ..Look::default() },
            );
        }
        let now = start + LOOK_EVERY * 9;
        assert_eq!(history.reaches_back(now, Revision(-1)), LOOK_EVERY * 9, "since the first look at least");
        assert_eq!(history.reaches_back(now, Revision(401)), LOOK_EVERY * 4);
        assert_eq!(history.reaches_back(now, Revision(900)), Duration::ZERO);
    }
}
