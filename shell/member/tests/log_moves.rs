//! A log on a thread of its own: which syncs count as quick, when it comes home, and which orders wait for that.

use kattu_disk::twin::{GROUPS, Step, Twin};
use kattu_member::log::{Completion, LogSpace};
use kattu_member::log_moves::{Absence, Patience};
use kattu_member::log_orders::{Order, bytes_of};
use kattu_raft::{Duration, Fetch, FetchFor, HardState, LogBody, LogIndex, LogRecord, Lsn, Term};

const PATIENCE: Patience = Patience { sync_max: Duration::from_millis(100), well_syncs: 2 };
const ROOM: LogSpace = LogSpace { free: 1 << 20, full: false };

fn persist(lsn: u64) -> Order {
    let body = LogBody::HardState(HardState { term: Term(lsn), vote: None });
    Order::Persist(vec![LogRecord { lsn: Lsn(lsn), body }])
}

fn fetch() -> Fetch {
    Fetch { purpose: FetchFor::Apply, first: LogIndex(1), last: LogIndex(1), bytes_max: 1 }
}

fn synced(absence: &mut Absence, lsn: u64, milliseconds: u64) {
    let took = Some(Duration::from_millis(milliseconds));
    absence.completed(Completion::Persisted(Lsn(lsn), ROOM, took), Some(PATIENCE));
}

#[test]
fn quick_is_a_quarter_of_the_time_that_sends_a_log_away_and_one_slow_sync_begins_anew() {
    let mut absence = Absence::default();
    for (lsn, (took, quick)) in (1..).zip([(25, 1), (1, 2), (26, 0), (25, 1)]) {
        synced(&mut absence, lsn, took);
        assert_eq!(absence.quick_syncs(), quick, "after {took} ms");
    }
    absence.completed(Completion::Persisted(Lsn(5), ROOM, None), Some(PATIENCE));
    assert_eq!(absence.quick_syncs(), 1, "commit marks alone say nothing of the disk");
    absence.completed(Completion::Persisted(Lsn(6), ROOM, Some(Duration::ZERO)), None);
    assert_eq!(absence.quick_syncs(), 0, "it stays where it is");
}

#[test]
fn a_log_that_is_called_home_comes_when_all_is_done_and_what_is_ordered_meanwhile_waits_in_its_order() {
    let mut absence = Absence::default();
    for order in [persist(1), persist(2), Order::Fetch(fetch())] {
        assert!(absence.order(order).is_some(), "it is for the thread");
    }
    assert!(!absence.comes_home(None) && !absence.comes_home(Some(PATIENCE)), "it is not well yet");
    synced(&mut absence, 1, 1);
    assert!(absence.order(persist(3)).is_some(), "it has not been called");
    synced(&mut absence, 2, 1);
    assert!(!absence.comes_home(Some(PATIENCE)), "records and a reading are under way");
    for lsn in [4, 5] {
        assert!(absence.order(persist(lsn)).is_none(), "it has been called");
    }
    synced(&mut absence, 3, 90);
    assert!(!absence.comes_home(Some(PATIENCE)), "a reading is under way");
    absence.completed(Completion::Fetched(fetch(), Vec::new()), Some(PATIENCE));
    assert!(absence.comes_home(Some(PATIENCE)), "however slow the disk is meanwhile");
    let waiting = absence.into_waiting().map(|order| match order {
        Order::Persist(records) => records[0].lsn,
        other => panic!("{other:?}"),
    });
    assert_eq!(waiting.collect::<Vec<_>>(), [Lsn(4), Lsn(5)]);
}

#[test]
fn a_heartbeat_interval_that_changes_changes_the_time_that_sends_a_log_away() {
    let mut patience = Patience::of(Duration::from_millis(100));
    assert_eq!(patience.sync_max, Duration::from_millis(100));
    patience.follow(Duration::from_millis(300));
    assert_eq!(patience.sync_max, Duration::from_millis(300));
}

/// A log can leave again before all that was told on its way home was heard.
#[test]
fn a_result_from_before_a_log_left_has_its_space_corrected_and_counts_for_nothing_else() {
    let (mut absence, mut twin) = (Absence::default(), Twin::default());
    let records = twin.records(&Step::Entries(GROUPS[0], vec![100])).1;
    let (first, bytes) = (records[0].lsn.0, bytes_of(&records));
    assert!(absence.order(Order::Persist(records)).is_some());
    let fetched = absence.told_before(Completion::Fetched(fetch(), Vec::new()));
    assert!(matches!(fetched, Completion::Fetched(..)), "no reading is under way here");
    let told = absence.told_before(Completion::Persisted(Lsn(first - 1), ROOM, Some(Duration::ZERO)));
    let Completion::Persisted(_, room, Some(_)) = told else { panic!("{told:?}") };
    assert_eq!(room.free, ROOM.free - bytes, "records are under way");
    assert_eq!(absence.quick_syncs(), 0, "it says nothing of the disk beside which the thread works");
}
