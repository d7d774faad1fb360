//! A member that replays its log reads one piece in a batch, so that it votes and answers between two of them. [fault-model F53]

use kattu_member::capacity::{Capacity, Sight};
use kattu_member::host::{Arrivals, Brought, Call, Host};
use kattu_member::log::{Completion, LogSpace};
use kattu_member::member::Member;
use kattu_member::step::{LIMITS, Limits, Placed, Step};
use kattu_member::tuning::Tuning;
use kattu_node::contract::{Event, MemberInfo};
use kattu_node::{Keeper, Node, NodeConfig};
use kattu_raft::{
    Config, Duration, Entry, EntryHead, EntryId, EntryKind, HardState, Instant, LogIndex, Lsn, NodeId,
    RecordEncoder, Recovered, SharedBytes, Stamp, Term,
};
use std::convert::Infallible;

const ME: NodeId = NodeId(1);
const ENTRIES: u64 = 7;

/// Nothing comes.
struct Quiet;

impl Host for Quiet {
    type Stop = Infallible;

    fn now(&self) -> Instant {
        Instant(0)
    }
}

impl Arrivals for Quiet {
    type Client = u64;
    type Asker = ();

    fn completion(&mut self) -> Result<Option<Completion>, Infallible> {
        Ok(None)
    }

    fn progress(&mut self) -> Option<kattu_member::progress::Progress<u64>> {
        None
    }

    fn brought(&mut self) -> Result<Option<Brought>, Infallible> {
        Ok(None)
    }

    fn events(&mut self, _: &mut Vec<Event>) -> Instant {
        Instant(0)
    }

    fn calls(&mut self, _: usize, _: &mut Vec<Call<u64, ()>>) -> Instant {
        Instant(0)
    }

    fn is_gone(&self, _: &u64) -> bool {
        false
    }

    fn transferring(&mut self, (): (), _: bool) {}

    fn tuned(&mut self, (): (), tuning: Result<Tuning, &'static str>) {
        panic!("it was not asked: {tuning:?}");
    }

    fn sight(&self) -> Sight {
        Sight::default()
    }

    fn least_quota(&self) -> Option<u64> {
        None
    }

    fn retries_log(&self) -> bool {
        false
    }

    fn record_vote_hold(&mut self, _: Duration) -> bool {
        true
    }
}

fn entry(index: u64) -> Entry {
    let head = EntryHead { id: EntryId::new(1, index), kind: EntryKind::Noop, stamp: Stamp(index) };
    Entry::new(head, SharedBytes::default(), 0)
}

/// The first entry of each piece that a batch reads.
fn batch(member: &mut Member<u64, ()>) -> Vec<u64> {
    let Ok(()) = member.begin(&mut Quiet);
    let mut read = Vec::new();
    loop {
        let Ok(step) = member.next(&mut Quiet);
        let completion = match step {
            Step::Idle => return read,
            Step::Fetch(fetch) => {
                let first = fetch.first.0;
                read.push(first);
                Completion::Fetched(fetch, vec![entry(first)])
            }
            Step::Persist { records, .. } => {
                let lsn = records.last().expect("nothing waits for room").lsn;
                records.clear();
                Completion::Persisted(lsn, LogSpace { free: 1 << 20, full: false }, None)
            }
            _ => continue,
        };
        let Ok(()) = member.completed(&mut Quiet, completion);
    }
}

#[test]
fn a_batch_reads_no_more_pieces_than_its_limit_and_the_next_one_goes_on() {
    for fetches in [1, 3] {
        let found = Recovered {
            hard: HardState { term: Term(1), vote: None },
            term_starts: vec![EntryId::new(1, 1)],
            last: EntryId::new(1, ENTRIES),
            committed: LogIndex(ENTRIES),
            lsn: Lsn(ENTRIES + 1),
            ..Recovered::default()
        };
        let config = NodeConfig::new(Config::new(ME, [ME], RecordEncoder::BARE));
        let node = Node::recover(config, 1, Instant(0), found);
        let keeper = Keeper::new(vec![MemberInfo { id: ME, ..MemberInfo::default() }]);
        let (placed, room) = (Placed::Here(Box::new(keeper)), LogSpace { free: 1 << 20, full: false });
        let limits = Limits { fetches, ..LIMITS };
        let mut member = Member::start(Instant(0), node, placed, Capacity::new(1 << 30), room, limits);
        let mut all = Vec::new();
        for _ in 0..20 {
            let read = batch(&mut member);
            assert!(read.len() <= fetches, "{read:?} in one batch");
            all.extend(read);
        }
        assert_eq!(all, (1..=ENTRIES).collect::<Vec<_>>(), "each once, in order");
        let desk = member.desk().expect("it is here");
        assert!(LogIndex(ENTRIES) <= desk.keeper().applied() && !member.is_busy());
    }
}
