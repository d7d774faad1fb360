//! Goal: a failing disk stops the log at once and for good; a full disk does neither harm nor stop it for good.

use kattu_disk::SimDisk;
use kattu_disk::twin::{GROUPS, OPTIONS, Step, Twin, check, open, recover, step};
use kattu_raft::{GroupId, LogIndex};
use kattu_wal::{DataDir, Wal, WalError, WalOptions};
use std::sync::Arc;

const A: GroupId = GROUPS[0];

fn synced_once(disk: &SimDisk) -> (Wal, Twin) {
    let mut twin = Twin::default();
    let (mut wal, _) = open(disk, &mut twin).unwrap();
    for now in [Step::Hard(A, Some(1)), Step::Entries(A, vec![10]), Step::Sync] {
        wal = step(disk, wal, &mut twin, &now).unwrap();
    }
    (wal, twin)
}

#[test]
fn a_failed_sync_poisons_the_log_whatever_the_next_one_would_say() {
    for failing in [Step::Entries(A, vec![20]), Step::Hard(A, Some(2))] {
        let disk = SimDisk::new();
        let (mut wal, mut twin) = synced_once(&disk);
        let (_, records) = twin.records(&failing);
        wal.append(A, &records).unwrap();
        disk.fail_syncs_after(0);
        let first = wal.sync().unwrap_err();
        assert!(matches!(&first, WalError::Io { doing: "sync", .. }) && first.ends_the_log(), "{first}");
        disk.fail_syncs_after(u64::MAX);
        for error in [wal.sync().unwrap_err(), wal.write().unwrap_err(), wal.mark().unwrap_err()] {
            assert_eq!(error, WalError::Poisoned { first: first.to_string() });
        }
        assert!(wal.append(A, &[]).is_err());
        drop(wal);
        disk.copy().crash_images(1, 8).iter().for_each(|image| recover(image, &twin));
    }
}

#[test]
fn a_failed_sync_of_a_segment_made_ahead_or_of_its_name_poisons_the_log() {
    for of_its_name in [false, true] {
        let disk = SimDisk::new();
        let (mut wal, twin) = synced_once(&disk);
        let task = wal.wants_segment().unwrap();
        disk.fail_syncs_after(u64::from(of_its_name)); // the first one is of its content
        let made = task.run();
        if of_its_name {
            // The log cannot wait: it finds a name that may not be durable, and does not go on from there.
            disk.fail_syncs_after(u64::MAX);
            let (mut twin, before) = (twin.clone(), wal.stats().segments);
            let (_, records) = twin.records(&Step::Entries(A, vec![900; 6]));
            wal.append(A, &records).unwrap();
            let error = wal.sync().unwrap_err();
            assert!(error.is_failed_sync() && wal.stats().segments == before, "{error}");
            assert!(matches!(wal.accept(made).unwrap_err(), WalError::Poisoned { .. }));
            drop(wal);
            disk.copy().crash_images(1, 8).iter().for_each(|image| recover(image, &twin));
            continue;
        }
        let first = wal.accept(made).unwrap_err();
        assert!(matches!(&first, WalError::Io { doing: "sync", .. }), "{first}");
        disk.fail_syncs_after(u64::MAX);
        // A second try would succeed, and prove nothing.
        let poisoned = WalError::Poisoned { first: first.to_string() };
        assert!(poisoned.ends_the_log());
        assert_eq!(wal.append(A, &[]), Err(poisoned));
        drop(wal);
        disk.copy().crash_images(1, 8).iter().for_each(|image| recover(image, &twin));
    }
}

#[test]
fn a_failed_write_poisons_the_log() {
    let disk = SimDisk::new();
    let (mut wal, mut twin) = synced_once(&disk);
    let (_, records) = twin.records(&Step::Entries(A, vec![20]));
    wal.append(A, &records).unwrap();
    disk.fail_writes_after(0);
    assert!(matches!(wal.write().unwrap_err(), WalError::Io { doing: "write", .. }));
    assert!(matches!(wal.sync().unwrap_err(), WalError::Poisoned { .. }));
}

#[test]
fn a_full_disk_keeps_what_was_written_and_goes_on_when_there_is_room() {
    let disk = SimDisk::new();
    let (mut wal, mut twin) = synced_once(&disk);
    disk.limit_to(Some(disk.bytes()));
    let (_, records) = twin.records(&Step::Entries(A, vec![900; 6]));
    wal.append(A, &records).unwrap();
    for _ in 0..3 {
        let error = wal.sync().unwrap_err();
        assert!(
            matches!(&error, WalError::NoSpace { file, .. } if file == "log-0000000000000002.seg"),
            "{error}"
        );
        assert!(error.to_string().contains("free disk space"), "{error}");
    }
    // A task reports what it cannot make, and may be run again.
    let made = wal.wants_segment().unwrap().run();
    assert!(matches!(wal.accept(made), Err(WalError::NoSpace { .. })));
    // Nothing was answered, nothing acknowledged is lost.
    disk.crash_images(1, 8).iter().for_each(|image| {
        image.limit_to(None);
        recover(image, &twin);
    });

    disk.limit_to(None);
    wal.sync().unwrap();
    for history in twin.groups.values_mut() {
        history.acked = history.moments.len() - 1;
    }
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
}

#[test]
fn the_reserve_is_the_way_out_of_a_full_disk_and_closes_the_door_to_growth() {
    let options = WalOptions { reserve_bytes: 8192, ..OPTIONS };
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let mut dir = DataDir::open(Arc::new(disk.clone())).unwrap();
    dir.create(kattu_disk::twin::identity(), &options).unwrap();
    twin.created = true;
    let (mut wal, _) = Wal::open(dir, options).unwrap();
    assert!(0 < wal.space());
    disk.limit_to(Some(disk.bytes()));

    let (_, records) = twin.records(&Step::Entries(A, vec![900; 5]));
    wal.append(A, &records).unwrap();
    wal.sync().unwrap();
    assert_eq!(disk.contents("reserve"), None);
    assert_eq!(wal.space(), 0, "no growth while the reserve is gone");
    let (_, records) = twin.records(&Step::Hard(A, Some(2)));
    wal.append(A, &records).unwrap();
    wal.sync().unwrap();

    disk.limit_to(None);
    let made = wal.wants_segment().expect("the reserve is missing").run();
    wal.accept(made).unwrap();
    assert_eq!(disk.contents("reserve").map(|bytes| bytes.len()), Some(8192));
    assert!(options.segment_bytes - 4096 - 512 <= wal.space());
}

#[test]
fn a_start_on_a_full_disk_serves_what_is_there() {
    let disk = SimDisk::new();
    let (wal, mut twin) = synced_once(&disk);
    drop(wal);
    disk.limit_to(Some(disk.bytes()));
    let dir = DataDir::open(Arc::new(disk.clone())).unwrap();
    let (mut wal, recovered) = Wal::open(dir, WalOptions { reserve_bytes: 8192, ..OPTIONS }).unwrap();
    check(&twin, &mut wal, &recovered);
    assert_eq!(wal.space(), 0);
    let (_, records) = twin.records(&Step::Hard(A, Some(3)));
    wal.append(A, &records).unwrap();
    wal.sync().unwrap();
}

#[test]
fn a_segment_made_ahead_is_used_and_one_made_too_late_becomes_the_one_after_it() {
    let disk = SimDisk::new();
    let (mut wal, mut twin) = synced_once(&disk);
    let late = wal.wants_segment().unwrap();
    assert!(wal.wants_segment().is_none(), "one at a time");
    let (_, records) = twin.records(&Step::Entries(A, vec![900; 4]));
    wal.append(A, &records).unwrap();
    wal.sync().unwrap();
    assert_eq!(wal.stats().segments, 2, "the log did not wait");
    let space = wal.space();
    // It finds its number taken, and becomes the one after that.
    wal.accept(std::thread::spawn(move || late.run()).join().unwrap()).unwrap();
    assert_eq!(wal.stats().segments, 3);
    // A header, a start block, a rotation mark.
    assert_eq!(wal.space(), space + OPTIONS.segment_bytes - 4096 - 512 - 512);
    assert!(wal.wants_segment().is_none());
    let writes_of_zeros = disk.operations();
    let (_, records) = twin.records(&Step::Entries(A, vec![900; 3]));
    wal.append(A, &records).unwrap();
    wal.sync().unwrap();
    assert!(disk.operations() - writes_of_zeros <= 6, "rotation only writes blocks");
    assert_eq!(wal.stats().segments, 3);
    drop(wal);
    for history in twin.groups.values_mut() {
        history.acked = history.moments.len() - 1;
    }
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
}

#[test]
fn a_batch_is_one_write_and_one_sync() {
    let disk = SimDisk::new();
    let (mut wal, mut twin) = synced_once(&disk);
    let before = wal.stats();
    for _ in 0..10 {
        let (_, records) = twin.records(&Step::Entries(A, vec![10]));
        wal.append(A, &records).unwrap();
    }
    wal.sync().unwrap();
    let after = wal.stats();
    let spent = (after.syncs - before.syncs, after.writes - before.writes, after.blocks - before.blocks);
    assert_eq!(spent, (1, 1, 1));

    // A commit mark alone costs neither; the idle mark takes it along.
    let (_, records) = twin.records(&Step::Commit(A));
    wal.append(A, &records).unwrap();
    assert!(!wal.is_dirty());
    assert_eq!(wal.sync().unwrap(), [(A, twin.groups[&A].now().lsn)]);
    assert_eq!(wal.stats().syncs, after.syncs);
    assert!(wal.mark().unwrap());
    assert!(!wal.mark().unwrap(), "one mark is enough");
    drop(wal);
    let (_, recovered) = open(&disk, &mut twin).unwrap();
    assert_eq!(recovered[&A].committed, LogIndex(11));
}
