//! The log against a naive twin: a plain list that forgets no entry.

use kattu_raft::log::Log;
use kattu_raft::{Duration, Entry, EntryHead, EntryId, EntryKind, LogIndex, Recovered, Stamp, Term};
use proptest::prelude::*;

/// A change of a log.
#[derive(Clone, Debug)]
enum Step {
    /// An entry of the last term plus `term_up`, with this many bytes and a stamp this much later.
    Append { term_up: u64, bytes: usize, stamp_up: u64 },
    /// Everything after the first `keep` percent is removed.
    Truncate { keep: usize },
    /// Entries up to this percentage may leave memory, until at most so many bytes are there.
    Shrink { upto: usize, bytes_max: usize },
    /// The log is recovered from disk, with this many entries in its tail.
    Restart { tail: usize },
    /// Everything up to this percentage is in a snapshot and leaves the log.
    Compact { upto: usize },
    /// The log begins anew, this many positions after its end.
    RestartAfter { ahead: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop_oneof![4 => Just(0u64), 1 => 1..4u64], 0..20usize, 0..5u64)
            .prop_map(|(term_up, bytes, stamp_up)| Step::Append { term_up, bytes, stamp_up }),
        2 => (0..100usize).prop_map(|keep| Step::Truncate { keep }),
        2 => (0..=100usize, 0..60usize).prop_map(|(upto, bytes_max)| Step::Shrink { upto, bytes_max }),
        1 => (0..10usize).prop_map(|tail| Step::Restart { tail }),
        1 => (0..=100usize).prop_map(|upto| Step::Compact { upto }),
        1 => (1..5u64).prop_map(|ahead| Step::RestartAfter { ahead }),
    ]
}

fn entry(id: EntryId, bytes: usize, stamp: u64) -> Entry {
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(stamp) };
    Entry::new(head, vec![7; bytes].into(), 0)
}

fn recovered(twin: &[Entry], base: EntryId, tail: usize) -> Recovered {
    let mut term_starts: Vec<EntryId> = Vec::new();
    for entry in twin {
        if term_starts.last().is_none_or(|start| start.term != entry.id().term) {
            term_starts.push(entry.id());
        }
    }
    Recovered {
        vote_floor: None,
        vote_hold: Duration::ZERO,
        base,
        term_starts,
        last: twin.last().map_or(base, Entry::id),
        tail: twin[twin.len() - tail.min(twin.len())..].to_vec(),
        stamp: twin.last().map_or(Stamp(0), |entry| entry.head.stamp),
        ..Recovered::default()
    }
}

/// Compares the answers of both to every question.
fn compare(log: &Log, twin: &[Entry], base: EntryId) {
    let last = twin.last().map_or(base, Entry::id);
    assert_eq!(log.last(), last);
    assert_eq!(log.first_index(), base.index.next());
    let term_at = |index: u64| match index.checked_sub(base.index.0) {
        Some(0) => Some(base.term),
        Some(n) => twin.get(n as usize - 1).map(|entry| entry.id().term),
        None => None,
    };
    for index in 0..last.index.0 + 3 {
        assert_eq!(log.term_at(LogIndex(index)), term_at(index), "term at {index}");
        for term in base.term.0..last.term.0 + 2 {
            let bound = EntryId::new(term, index);
            assert_eq!(log.holds(bound), term_at(index) == Some(Term(term)), "holds {bound}");
            if index < base.index.0 {
                continue;
            }
            let naive =
                (base.index.0..=index.min(last.index.0)).rev().find(|i| term_at(*i) <= Some(Term(term)));
            let naive = naive.map(|i| EntryId { term: term_at(i).expect("inside"), index: LogIndex(i) });
            assert_eq!(Some(log.largest_at_most(bound)), naive, "largest at most {bound}");
        }
    }
    let recent = &twin[(log.recent_first().0 - base.index.0) as usize - 1..];
    for index in 0..last.index.0 + 3 {
        let later = recent.iter().filter(|entry| index < entry.id().index.0);
        assert!(log.entries_after(LogIndex(index)).eq(later), "memory is the end of the log: after {index}");
    }
    assert_eq!(log.recent_bytes(), recent.iter().map(Entry::len).sum::<usize>());
    for (n, entry) in twin.iter().enumerate() {
        let index = entry.id().index;
        let in_memory = log.recent_first() <= index;
        assert_eq!(log.entry(index), in_memory.then_some(entry), "entry at {index:?}");
        for bytes_max in [0, 10, 35] {
            let batch = log.batch(index, last.index, bytes_max, 3);
            let mut bytes = 0;
            let fits = |entry: &&Entry| {
                bytes += entry.len();
                bytes <= bytes_max
            };
            let naive = twin[n..].iter().take(3).take_while(fits).count().max(1);
            let expected = if in_memory { &twin[n..n + naive] } else { &[] };
            assert_eq!(batch, expected, "batch from {index:?}");
        }
        let bytes: usize =
            twin[n..].iter().filter(|entry| log.recent_first() <= entry.id().index).map(Entry::len).sum();
        assert_eq!(log.bytes(index, last.index), bytes);
    }
    let newest = twin.last().map_or(0, |entry| entry.head.stamp.0);
    assert!(log.stamp() >= Stamp(newest), "stamps never fall along the log");
    assert!(log.recent_first() > last.index || log.stamp() == Stamp(newest), "and are exact while known");
}

proptest! {
    #[test]
    fn the_log_agrees_with_a_list_that_never_forgets(
        base in prop_oneof![Just(EntryId::default()), Just(EntryId::new(2, 5))],
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut base = base;
        let mut twin: Vec<Entry> = Vec::new();
        let mut log = Log::recover(&recovered(&twin, base, 0));
        for step in steps {
            let last = twin.last().map_or(base, Entry::id);
            match step {
                Step::Append { term_up, bytes, stamp_up } => {
                    let term = (last.term.0 + term_up).max(1);
                    // As a leader makes it that never had what was cut off here.
                    let stamp = twin.last().map_or(0, |entry| entry.head.stamp.0) + stamp_up;
                    let entry = entry(EntryId::new(term, last.index.0 + 1), bytes, stamp);
                    twin.push(entry.clone());
                    log.append(entry);
                }
                Step::Truncate { keep } => {
                    let keep = twin.len() * keep / 100;
                    if keep < twin.len() {
                        log.truncate(twin[keep].id().index);
                        twin.truncate(keep);
                    }
                }
                Step::Shrink { upto, bytes_max } => {
                    let upto = LogIndex(base.index.0 + (twin.len() * upto / 100) as u64);
                    let before = log.recent_first();
                    log.shrink(upto, bytes_max);
                    let kept_for_cause = log.recent_first() > upto || log.recent_bytes() <= bytes_max;
                    prop_assert!(kept_for_cause, "shrinks as far as it may");
                    prop_assert!(log.recent_first() <= upto.next().max(before), "and no further");
                }
                Step::Restart { tail } => log = Log::recover(&recovered(&twin, base, tail)),
                Step::Compact { upto } => {
                    let gone: Vec<Entry> = twin.drain(..twin.len() * upto / 100).collect();
                    base = gone.last().map_or(base, Entry::id);
                    log.compact_to(base.index);
                    prop_assert_eq!(log.base(), base);
                }
                Step::RestartAfter { ahead } => {
                    twin.clear();
                    base = EntryId::new(last.term.0 + ahead / 2, last.index.0 + ahead);
                    log.restart_after(base, Stamp(0));
                }
            }
            compare(&log, &twin, base);
        }
    }
}
