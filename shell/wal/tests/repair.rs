//! Goal: a damaged log of a member that has peers opens shorter, never silently: a vote floor that no restart forgets
//! bounds what it lacks, or the directory is refused, unchanged.
//! Method: every byte of the log of a small directory is flipped, every sector lost, each file cut at a critical place;
//! then the opened log is compared with everything that was ever written.

use kattu_disk::twin::{self, GROUPS, OPTIONS, Step, Twin, flipped, places, run_as};
use kattu_disk::{Damage, Fault, Place, SimDisk, Truth};
use kattu_raft::{
    EntryId, GroupId, HardState, Incarnation, LogBody, LogIndex, LogRecord, Lsn, NodeId, Recovered, Term,
};
use kattu_wal::{DataDir, Files, Identity, InitialMember, Wal, WalError, WalOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

const A: GroupId = GROUPS[0];
const B: GroupId = GROUPS[1];
const FIRST: &str = "log-0000000000000001.seg";

/// The identity of one of three members.
fn identity() -> Identity {
    let member = |id| InitialMember { id: NodeId(id), name: format!("n{id}"), peer_urls: Vec::new() };
    let members = (1..=3).map(member).collect();
    let single = Identity::single(0xC1, NodeId(1), Incarnation(42), "n1");
    Identity { groups: GROUPS.to_vec(), members, ..single }
}

/// A log of three segments, with truncations, votes and an idle mark at its end.
fn directory(identity: Identity, idle_mark: bool) -> (SimDisk, Twin) {
    let story = [
        Step::Hard(B, Some(3)),
        Step::Entries(A, vec![50]),
        Step::Sync,
        Step::Prepare,
        Step::Entries(A, vec![60]),
        Step::Sync,
        Step::Entries(A, vec![1500, 1500]),
        Step::Sync,
        Step::Prepare,
        Step::Entries(B, vec![60, 1500]),
        Step::Sync,
        Step::Entries(A, vec![200]),
        Step::Sync,
    ];
    twin::directory(identity, &story, idle_mark)
}

type Opened = Result<(Wal, BTreeMap<GroupId, Recovered>), WalError>;

fn open_strictly(disk: &SimDisk) -> Opened {
    Wal::open(DataDir::open(Arc::new(disk.clone()))?, OPTIONS)
}

fn repair(disk: &SimDisk) -> Opened {
    Wal::repair(DataDir::open(Arc::new(disk.clone()))?, OPTIONS)
}

/// The entries that a log reports to hold.
fn held(wal: &mut Wal, group: GroupId, recovered: &Recovered) -> Vec<EntryId> {
    let (first, last) = (recovered.base.index.next(), recovered.last.index);
    let entries = wal.read(group, first, last, usize::MAX).expect("what is believed can be read");
    entries.iter().map(kattu_raft::Entry::id).collect()
}

/// The outcome of opening a damaged directory.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Outcome {
    /// Everything is there.
    Harmless,
    /// Entries are gone, and a vote floor bounds them.
    Cut,
    /// It is refused.
    Refused,
}

/// Opens the damaged directory, checks it against everything ever written, opens it once more, and refills it.
fn judge(disk: &SimDisk, twin: &Twin, place: &str) -> Outcome {
    let before: Vec<_> = disk.names().unwrap().into_iter().map(|name| (disk.contents(&name), name)).collect();
    let (mut wal, recovered) = match repair(disk) {
        Ok(opened) => opened,
        Err(error) => {
            for (bytes, name) in before.into_iter().filter(|(_, name)| name.ends_with(".seg")) {
                assert_eq!(disk.contents(&name), bytes, "{place}: refused ({error}), and {name} was changed");
            }
            assert!(
                matches!(error, WalError::Damaged { .. } | WalError::OnlyCopy { .. }),
                "{place}: {error}"
            );
            return Outcome::Refused;
        }
    };
    let mut outcome = Outcome::Harmless;
    for (&group, found) in &recovered {
        let history = &twin.groups[&group];
        let whole = history.now();
        let ids = held(&mut wal, group, found);
        let was =
            |entries: &[kattu_raft::Entry]| entries.iter().map(kattu_raft::Entry::id).eq(ids.iter().copied());
        assert!(
            history.moments.iter().any(|moment| was(&moment.entries)),
            "{place}: {ids:?} were never its log"
        );
        assert_eq!(found.hard, whole.hard, "{place}: a vote is lost");
        if found.last < whole.last() {
            outcome = Outcome::Cut;
            assert!(
                Some(whole.last()) <= found.vote_floor,
                "{place}: floor {:?} of {}",
                found.vote_floor,
                whole.last()
            );
        } else {
            assert!(was(&whole.entries), "{place}: another log of the same end");
        }
    }
    let told = |error: &WalError| matches!(error, WalError::Repaired { .. });
    assert!(wal.complaints().iter().any(told) || outcome == Outcome::Harmless, "{place}: mended in silence");
    drop(wal);
    let (wal, again) = open_strictly(disk).unwrap_or_else(|error| panic!("{place}: after mending: {error}"));
    let short = |all: &BTreeMap<GroupId, Recovered>| -> Vec<(EntryId, Option<EntryId>)> {
        all.values().map(|one| (one.last, one.vote_floor)).collect()
    };
    assert_eq!(short(&again), short(&recovered), "{place}: a restart forgets the floor");
    drop(wal);
    outcome
}

#[test]
fn every_flipped_byte_is_repaired_or_refused_or_harmless() {
    let (disk, twin) = directory(identity(), true);
    let mut counts = BTreeMap::new();
    for name in disk.names().unwrap().into_iter().filter(|name| name.ends_with(".seg")) {
        let whole = disk.contents(&name).unwrap();
        for at in places(&whole) {
            let image = flipped(&disk, &name, at);
            let outcome = judge(&image, &twin, &format!("{name} byte {at}"));
            *counts.entry(format!("{outcome:?}")).or_insert(0) += 1;
        }
    }
    assert!(4000 < counts["Cut"] && counts.get("Refused").is_none_or(|refused| *refused < 200), "{counts:?}");
}

#[test]
fn every_lost_sector_is_repaired_or_refused_or_harmless() {
    for idle_mark in [true, false] {
        let (disk, twin) = directory(identity(), idle_mark);
        let mut cut = 0;
        for name in disk.names().unwrap().into_iter().filter(|name| name.ends_with(".seg")) {
            let whole = disk.contents(&name).unwrap();
            for sector in (0..whole.len()).step_by(512) {
                let image = disk.copy();
                let mut bytes = whole.clone();
                let end = whole.len().min(sector + 512);
                bytes[sector..end].fill(0);
                // Without a mark above it, the last block looks like a torn one. [ST6]
                let last_blocks = !idle_mark && name != FIRST;
                image.set_contents(&name, Some(bytes));
                if last_blocks && open_strictly(&image.copy()).is_ok() {
                    continue;
                }
                cut += u64::from(judge(&image, &twin, &format!("{name} sector {sector}")) == Outcome::Cut);
            }
        }
        assert!(5 < cut, "{cut}");
    }
}

/// Flips one bit in the first entry that the log holds.
fn damaged(idle_mark: bool) -> (SimDisk, Twin) {
    let (disk, twin) = directory(identity(), idle_mark);
    let mut bytes = disk.contents(FIRST).unwrap();
    bytes[4096 + 400] ^= 4;
    disk.set_contents(FIRST, Some(bytes));
    (disk, twin)
}

#[test]
fn a_member_without_peers_is_refused_and_nothing_of_its_log_is_cut() {
    let single =
        Identity { groups: GROUPS.to_vec(), ..Identity::single(0xC1, NodeId(1), Incarnation(42), "n1") };
    let (disk, twin) = directory(single, true);
    let mut bytes = disk.contents(FIRST).unwrap();
    bytes[4096 + 400] ^= 4;
    disk.set_contents(FIRST, Some(bytes));
    assert_eq!(judge(&disk, &twin, "alone"), Outcome::Refused);
    let refused = repair(&disk).expect_err("it is refused again");
    let story = refused.to_string();
    assert!(matches!(refused, WalError::OnlyCopy { .. }), "{story}");
    assert!(story.starts_with(FIRST) && story.contains("`kattu restore`"), "{story}");
    assert!(!story.contains("member remove"), "nobody is there to remove it: {story}");
}

#[test]
fn without_being_asked_to_repair_a_log_refuses() {
    let (disk, _) = damaged(true);
    assert!(matches!(open_strictly(&disk), Err(WalError::Damaged { file, .. }) if file == FIRST));
}

#[test]
fn a_floor_stays_until_the_log_has_reached_it_and_is_forgotten_then() {
    let (disk, twin) = damaged(true);
    let (mut wal, recovered) = repair(&disk).unwrap();
    let Recovered { last, lsn, vote_floor, .. } = recovered[&A];
    let vote_floor = vote_floor.expect("it has lost entries");
    assert_eq!(
        vote_floor,
        twin.groups[&A].now().last(),
        "the end of the log could be read behind the damage"
    );
    assert!(disk.contents("floor-00000000").is_some());
    let story = wal.complaints()[0].to_string();
    assert!(
        story.starts_with(FIRST) && story.contains("votes only for candidates whose log reaches that far"),
        "{story}"
    );

    let mut lsn = lsn.0;
    let mut next = last.index.0;
    while next < vote_floor.index.0 {
        next += 1;
        lsn += 1;
        let entry = kattu_disk::twin::entry(A, vote_floor.term.0, next, 9, 10);
        wal.append(A, &[LogRecord { lsn: Lsn(lsn), body: LogBody::Entry(entry) }]).unwrap();
        wal.sync().unwrap();
        drop(wal);
        let again;
        (wal, again) = open_strictly(&disk).unwrap();
        assert_eq!(again[&A].last.index.0, next);
        assert_eq!(again[&A].vote_floor, (next < vote_floor.index.0).then_some(vote_floor), "at {next}");
    }
    assert!(disk.contents("floor-00000000").is_none(), "it says nothing any more");
}

#[test]
fn a_floor_that_a_leader_told_of_is_durable_and_stays_until_the_log_has_reached_it() {
    let (disk, _) = directory(identity(), true);
    let (mut wal, recovered) = open_strictly(&disk).unwrap();
    let Recovered { last, lsn, vote_floor, .. } = recovered[&A];
    assert_eq!(vote_floor, None, "nothing on this disk says that it has lost something");
    let ahead = |by: u64| EntryId { term: last.term, index: LogIndex(last.index.0 + by) };
    let mut lsn = lsn.0;
    let mut write = |wal: &mut Wal, body: LogBody| {
        lsn += 1;
        wal.append(A, &[LogRecord { lsn: Lsn(lsn), body }]).unwrap();
        assert!(wal.is_dirty());
        assert_eq!(wal.sync().unwrap(), [(A, Lsn(lsn))]);
    };
    write(&mut wal, LogBody::VoteFloor(ahead(2)));
    write(&mut wal, LogBody::VoteFloor(ahead(1))); // changes nothing
    drop(wal);
    let _ = disk.power_fails(7, u64::MAX);
    let disk = disk.mount();
    let (mut wal, recovered) = open_strictly(&disk).unwrap();
    assert_eq!(recovered[&A].vote_floor, Some(ahead(2)));
    assert_eq!(recovered[&B].vote_floor, None);
    for by in [1, 2] {
        let entry = kattu_disk::twin::entry(A, last.term.0, ahead(by).index.0, 9, 10);
        write(&mut wal, LogBody::Entry(entry));
        assert_eq!(disk.contents("floor-00000000").is_some(), by < 2, "after {by}");
    }
    // One that came back damaged would be bounded by the term alone.
    let comes_back = |image: &SimDisk| image.contents("floor-00000000").is_some();
    assert!(!disk.crash_images(3, 16).iter().any(comes_back), "it is gone for good");
    drop(wal);
    assert_eq!(open_strictly(&disk).unwrap().1[&A].vote_floor, None);
}

#[test]
fn a_floor_whose_end_cannot_be_made_durable_ends_the_log() {
    let (disk, _) = directory(identity(), true);
    let (mut wal, recovered) = open_strictly(&disk).unwrap();
    let Recovered { last, lsn, .. } = recovered[&A];
    let vote_floor = EntryId { term: last.term, index: last.index.next() };
    wal.append(A, &[LogRecord { lsn: Lsn(lsn.0 + 1), body: LogBody::VoteFloor(vote_floor) }]).unwrap();
    wal.sync().unwrap();
    let entry = kattu_disk::twin::entry(A, vote_floor.term.0, vote_floor.index.0, 9, 10);
    wal.append(A, &[LogRecord { lsn: Lsn(lsn.0 + 2), body: LogBody::Entry(entry) }]).unwrap();
    disk.fail_syncs_after(1); // that of the entry succeeds
    let error = wal.sync().expect_err("the name stays");
    assert!(error.is_failed_sync() && error.ends_the_log(), "{error}");
    assert!(wal.sync().expect_err("it is over").ends_the_log());
}

#[test]
fn a_sector_from_before_a_cut_names_nothing_as_synced() {
    let options = WalOptions { segment_bytes: 1 << 16, ..OPTIONS };
    let disk = SimDisk::new();
    let dir = || DataDir::open(Arc::new(disk.clone())).unwrap();
    dir().create(identity(), &options).unwrap();
    let (mut wal, _) = Wal::open(dir(), options).unwrap();
    let mut lsn = 0;
    let mut write = |wal: &mut Wal, term: u64, index: u64| {
        lsn += 2;
        let hard = LogBody::HardState(HardState { term: Term(term), vote: None });
        wal.append(A, &[LogRecord { lsn: Lsn(lsn - 1), body: hard }]).unwrap();
        let body = LogBody::Entry(kattu_disk::twin::entry(A, term, index, 9, 10));
        wal.append(A, &[LogRecord { lsn: Lsn(lsn), body }]).unwrap();
        wal.sync().unwrap();
    };
    // Blocks of one sector, entries and idle marks in turn. The second entry is lost: the log is cut there and goes on.
    for index in 1..=5 {
        write(&mut wal, 1, index);
        wal.mark().unwrap();
    }
    drop(wal);
    let old = disk.contents(FIRST).unwrap();
    let sector = |number: usize| 4096 + number * 512..4096 + (number + 1) * 512;
    let mut bytes = old.clone();
    bytes[sector(2)].fill(0);
    disk.set_contents(FIRST, Some(bytes));
    let (mut wal, recovered) = Wal::repair(dir(), options).unwrap();
    let Recovered { last, vote_floor, .. } = recovered[&A];
    assert_eq!((last.index.0, vote_floor), (1, Some(EntryId::new(1, 5))));
    // At the place of the new log's last entry the old one had a mark, which names no entry.
    for index in 2..=5 {
        write(&mut wal, 2, index);
    }
    wal.mark().unwrap();
    drop(wal);
    let promised = EntryId::new(2, 5);
    let new = disk.contents(FIRST).unwrap();
    let differ: Vec<_> =
        (0..10).map(sector).filter(|sector| old[sector.clone()] != new[sector.clone()]).collect();
    assert_eq!(differ.len(), 8, "five blocks, and three that were cleared");
    let mut cuts = 0;
    for sector in differ {
        let disk = disk.copy();
        let mut bytes = new.clone();
        bytes[sector.clone()].copy_from_slice(&old[sector.clone()]);
        disk.set_contents(FIRST, Some(bytes));
        let dir = DataDir::open(Arc::new(disk)).unwrap();
        let (_, found) = Wal::repair(dir, options).unwrap_or_else(|error| panic!("{sector:?}: {error}"));
        let Recovered { last, vote_floor, .. } = found[&A];
        assert!(promised <= last || Some(promised) <= vote_floor, "{sector:?}: {last}, floor {vote_floor:?}");
        cuts += u32::from(last < promised);
    }
    assert_eq!(cuts, 4, "who loses the mark has lost nothing");

    // The last entry is lost, and far behind it an old one is back, with a number as if it were newer.
    let mut bytes = new.clone();
    bytes[sector(5)].fill(0);
    bytes[sector(8)].copy_from_slice(&old[sector(8)]);
    disk.set_contents(FIRST, Some(bytes));
    let Recovered { last, vote_floor, .. } = Wal::repair(dir(), options).unwrap().1[&A];
    assert_eq!(last, EntryId::new(2, 4));
    assert!(Some(promised) <= vote_floor, "floor {vote_floor:?}");
}

/// Repairs copies of the disk, cuts the power at every place, and lets the next start complete it from what is left.
/// `expected` is what a repair that nothing disturbs gives.
fn cut_anywhere(disk: &SimDisk, twin: &Twin, expected: &BTreeMap<GroupId, Recovered>, place: &str) {
    let uncut = disk.copy();
    repair(&uncut).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut images = 0;
    for cut in 0..uncut.operations() {
        let torn = disk.copy();
        torn.lose_power_after(cut);
        let _ = repair(&torn); // fails, unless the cut came where errors are ignored
        for image in torn.crash_images(0xF100 ^ cut, 6) {
            let place = format!("{place}, cut at {cut}");
            let (mut wal, found) = repair(&image).unwrap_or_else(|error| panic!("{place}: {error}"));
            for (&group, expected) in expected {
                let (found, whole) = (&found[&group], twin.groups[&group].now());
                assert_eq!((found.last, found.hard), (expected.last, expected.hard), "{place}");
                assert!(expected.vote_floor <= found.vote_floor, "{place}: {:?}", found.vote_floor);
                let ids = held(&mut wal, group, found);
                assert!(whole.entries.iter().map(kattu_raft::Entry::id).take(ids.len()).eq(ids));
            }
            drop(wal);
            let (_, again) = open_strictly(&image).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(
                found.iter().all(|(group, found)| again[group].vote_floor == found.vote_floor),
                "{place}"
            );
            images += 1;
        }
    }
    assert!(20 < images, "{images} images");
}

#[test]
fn a_repair_that_is_cut_anywhere_is_completed_by_the_next_start() {
    for idle_mark in [true, false] {
        let (disk, twin) = damaged(idle_mark);
        let (_, expected) = repair(&disk.copy()).unwrap();
        assert!(expected[&A].vote_floor.is_some());
        cut_anywhere(&disk, &twin, &expected, &format!("idle mark {idle_mark}"));
    }
}

#[test]
fn a_repair_after_a_failed_sync_of_names_takes_no_name_for_durable() {
    let (disk, twin) = damaged(true);
    let (_, expected) = repair(&disk.copy()).unwrap();
    let mut failed = 0;
    loop {
        let doubtful = disk.copy();
        doubtful.arm(Fault::NameSyncFails, failed);
        match repair(&doubtful) {
            Ok(_) => break, // it has no more syncs of names
            Err(error) => assert!(error.is_failed_sync(), "sync {failed} of names: {error}"),
        }
        cut_anywhere(&doubtful, &twin, &expected, &format!("after sync {failed} of names failed"));
        failed += 1;
    }
    assert!(1 < failed, "{failed} syncs of names");
}

#[test]
fn of_two_floors_the_higher_counts_and_one_that_is_damaged_is_bounded_by_the_term() {
    let (disk, _) = damaged(true);
    let (wal, recovered) = repair(&disk).unwrap();
    let (first, term) = (recovered[&A].vote_floor, recovered[&A].hard.term);
    drop(wal);
    // After a restart the vote floor of the first one still counts.
    let (_, recovered) = repair(&disk).unwrap();
    assert_eq!(recovered[&A].vote_floor, first);
    let mut bytes = disk.contents("floor-00000000").unwrap();
    bytes[30] ^= 1;
    disk.set_contents("floor-00000000", Some(bytes));
    let (_, recovered) = open_strictly(&disk).unwrap();
    assert_eq!(recovered[&A].vote_floor, Some(EntryId { term: Term(term.0 + 1), index: LogIndex(0) }));
}

#[test]
fn a_vote_that_only_the_lost_blocks_knew_of_is_still_missed() {
    let (disk, _) = damaged(true);
    let fresh = SimDisk::new();
    let (_, outcome) = run_as(identity(), &fresh, &[Step::Sync]);
    outcome.unwrap();
    disk.set_contents("slots-00000000", fresh.contents("slots-00000000"));
    let before = disk.contents(FIRST);
    let error = repair(&disk).unwrap_err().to_string();
    assert!(error.contains("a vote is lost"), "{error}");
    assert_eq!(disk.contents(FIRST), before, "nothing is cut");
}

#[test]
fn damage_that_only_an_unsynced_block_tells_of_is_forgotten_when_the_power_goes_and_the_disk_says_so() {
    let damaged = |last: Step| {
        let story = [Step::Entries(A, vec![300]), Step::Sync, Step::Entries(A, vec![400]), Step::Sync];
        let disk = SimDisk::new();
        let (_, outcome) =
            run_as(identity(), &disk, &[&story[..], &[Step::Entries(A, vec![500]), last]].concat());
        outcome.unwrap();
        disk.process_dies(u64::MAX);
        // The second block, which the third one calls synced.
        disk.damage(Damage::Flip(Place::LogTail), 7).unwrap();
        assert_eq!(disk.truth(), Truth::Refuse, "it is noticed as things are");
        disk
    };
    let is_kept = |disk: &SimDisk| {
        let mut kept =
            disk.crash_images(1, 16).into_iter().map(|image| repair(&image).unwrap().1[&A].vote_floor);
        kept.all(|vote_floor| vote_floor >= Some(EntryId::new(1, 2)))
    };
    let disk = damaged(Step::Write);
    assert!(!disk.tells_all() && !is_kept(&disk));
    let disk = damaged(Step::Sync);
    assert!(disk.tells_all() && is_kept(&disk));
}
