//! Goal: a log that is repaired beside a snapshot begins anew after it, and holds no other entry that the replay had
//! met.

use kattu_disk::twin::{GROUPS, OPTIONS, Step, flipped, run_as};
use kattu_disk::{Damage, Place, SimDisk};
use kattu_raft::{GroupId, Incarnation, LogIndex, NodeId, Recovered};
use kattu_wal::{DataDir, Files, Identity, InitialMember, Wal, WalError};
use std::sync::Arc;

const A: GroupId = GROUPS[0];

/// The identity of one of three members.
fn identity() -> Identity {
    let member = |id| InitialMember { id: NodeId(id), name: format!("n{id}"), peer_urls: Vec::new() };
    let members = (1..=3).map(member).collect();
    Identity { groups: GROUPS.to_vec(), members, ..Identity::single(0xC1, NodeId(1), Incarnation(42), "n1") }
}

#[test]
fn a_repaired_log_reads_back_only_entries_behind_the_snapshot_it_begins_after() {
    let disk = SimDisk::new();
    let story = [
        Step::Hard(A, Some(2)),
        Step::Entries(A, vec![10, 10, 10]),
        Step::Sync,
        Step::Commit(A),
        Step::Sync,
        Step::Snapshot(A),
        Step::Entries(A, vec![10, 10]),
        Step::Sync,
        Step::Entries(A, vec![10]),
        Step::Sync,
        Step::Mark,
    ];
    let (_twin, outcome) = run_as(identity(), &disk, &story);
    outcome.unwrap();
    let damaged = (0..50).map(|seed| {
        let disk = disk.copy();
        disk.damage(Damage::Flip(Place::LogMiddle), seed);
        disk
    });
    let mut begun = 0;
    for disk in damaged {
        let Ok((_wal, recovered)) = Wal::repair(DataDir::open(Arc::new(disk)).unwrap(), OPTIONS) else {
            continue;
        };
        let found = &recovered[&A];
        let indexes: Vec<LogIndex> = found.tail.iter().map(|entry| entry.id().index).collect();
        let first = LogIndex(found.last.index.0 + 1 - indexes.len() as u64);
        assert!(found.base.index < first, "{indexes:?} after {}", found.base);
        let is_anew = found.snapshot.as_ref().is_some_and(|snapshot| snapshot.last == found.base);
        begun += u64::from(is_anew && found.vote_floor.is_some() && found.base.index < found.last.index);
    }
    assert!(0 < begun, "no log of them begins anew before its end");
}

/// A pruned log: its first segments are gone, a base stands at its end, and behind that only a mark.
fn pruned() -> SimDisk {
    let disk = SimDisk::new();
    let mut story = vec![Step::Hard(A, Some(2))];
    for _ in 0..3 {
        story.extend([Step::Entries(A, vec![900; 5]), Step::Sync, Step::Commit(A), Step::Snapshot(A)]);
        story.extend([Step::Entries(A, vec![10; 3]), Step::Sync, Step::Commit(A), Step::Snapshot(A)]);
        story.extend([Step::Base(A, 0), Step::Sync, Step::Prepare, Step::Mark]);
    }
    run_as(identity(), &disk, &story).1.unwrap();
    disk
}

fn opened(disk: &SimDisk, may_repair: bool) -> Result<Recovered, WalError> {
    let dir = DataDir::open(Arc::new(disk.clone()))?;
    let opened = if may_repair { Wal::repair(dir, OPTIONS) } else { Wal::open(dir, OPTIONS) };
    opened.map(|(_, mut recovered)| recovered.remove(&A).expect("a group of the identity"))
}

#[test]
fn a_log_that_lost_only_its_newest_base_begins_anew_whatever_cuts_the_repair() {
    let whole = pruned();
    let before = opened(&whole.copy(), false).expect("it is whole");
    let log = whole.names().unwrap().into_iter().find(|name| name.ends_with(".seg")).unwrap();
    assert_ne!(log, "log-0000000000000001.seg", "the log begins in the middle");
    let (mut begun, mut images) = (0, 0);
    for at in (4096..whole.contents(&log).unwrap().len()).step_by(512).map(|sector| sector + 40) {
        let damaged = flipped(&whole, &log, at);
        let repaired = damaged.copy();
        let Ok(found) = opened(&repaired, true) else { continue };
        let again = opened(&repaired, false).unwrap_or_else(|error| panic!("{log}, byte {at}: {error}"));
        assert_eq!((again.base, again.last), (found.base, found.last), "{log}, byte {at}");
        if found.base != before.base || found.last != before.last || found.vote_floor.is_some() {
            continue;
        }
        begun += u64::from(!repaired.names().unwrap().iter().any(|name| name.starts_with("floor-")));
        let changes = repaired.operations() - damaged.operations();
        for cut in 0..changes {
            let torn = damaged.copy();
            torn.lose_power_after(cut);
            let _ = opened(&torn, true); // fails, unless the cut came where errors are ignored
            for image in torn.crash_images(0xBA5E ^ cut, 6) {
                let found =
                    opened(&image, true).unwrap_or_else(|error| panic!("byte {at}, cut {cut}: {error}"));
                assert_eq!((found.base, found.last), (before.base, before.last), "byte {at}, cut {cut}");
                opened(&image, false).unwrap_or_else(|error| panic!("byte {at}, cut {cut}: {error}"));
                images += 1;
            }
        }
    }
    assert!(0 < begun && 20 < images, "{begun} logs lost only their base, {images} images");
}

#[test]
fn whether_others_have_what_is_lost_says_the_newest_configuration_be_it_in_the_log_or_in_the_snapshot() {
    let founder =
        Identity { groups: GROUPS.to_vec(), ..Identity::single(0xC1, NodeId(1), Incarnation(42), "n1") };
    // The first member was alone at first; by the time of the snapshot, which records it, it had two peers.
    let mut story = vec![Step::Hard(A, Some(2)), Step::Config(A, 0), Step::Config(GROUPS[1], 2), Step::Sync];
    (0..6).for_each(|_| story.extend([Step::Entries(A, vec![10]), Step::Sync]));
    story.extend([Step::Commit(A), Step::Snapshot(A)]);
    let (tail, disk) = ([Step::Entries(A, vec![10]), Step::Sync, Step::Mark], SimDisk::new());
    let lone: Vec<Step> = story[..story.len() - 1].iter().chain(&tail).cloned().collect();
    story.extend(tail);
    run_as(founder.clone(), &disk, &story).1.unwrap();
    let without = SimDisk::new();
    run_as(founder, &without, &lone).1.unwrap();
    for disk in [&disk, &without] {
        let file = "log-0000000000000001.seg";
        let mut bytes = disk.contents(file).unwrap();
        bytes[4096 + 3 * 512 + 40] ^= 4; // behind the configuration
        disk.set_contents(file, Some(bytes));
    }
    let repair = |disk: SimDisk| Wal::repair(DataDir::open(Arc::new(disk)).unwrap(), OPTIONS);
    let (_wal, recovered) = repair(disk).expect("the others have it");
    let found = &recovered[&A];
    assert!(found.vote_floor.is_some() && found.snapshot.is_some(), "{found:?}");
    assert!(matches!(repair(without), Err(WalError::OnlyCopy { .. })), "nobody else has it");
}
