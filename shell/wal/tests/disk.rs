//! Goal: the simulated disk does what it says, no more and no less, and the same for the same seed: judges rely on it.
//! Method: files against a naive twin, faults one by one.

use kattu_disk::{Dice, Fault, FaultId, Fired, SimDisk, Speed};
use kattu_wal::{DataDir, Files, LogFile, WalError};
use std::collections::BTreeMap;
use std::sync::Arc;

type Picture = BTreeMap<String, Vec<u8>>;

fn picture(disk: &SimDisk) -> Picture {
    let names = disk.mount().names().unwrap();
    names.into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

/// The disk that is found if nothing doubtful arrives.
fn firm(disk: &SimDisk) -> Picture {
    let mut first = None;
    disk.each_crash_image(0, 0, &mut |image| {
        first.get_or_insert(picture(&image));
    });
    first.unwrap()
}

/// One random operation.
fn operate(disk: &SimDisk, dice: &mut Dice) {
    let name = |dice: &mut Dice| format!("file-{}", dice.below(4));
    match dice.below(12) {
        0 => drop(disk.create(&name(dice)).unwrap()),
        1 => drop(disk.rename(&name(dice), &name(dice))),
        2 => disk.remove(&name(dice)).unwrap(),
        3 => disk.sync_names().unwrap(),
        4 => drop(disk.open(&name(dice)).map(|file| file.allocate(dice.below(9000)).unwrap())),
        5 | 6 => drop(disk.open(&name(dice)).map(|file| file.sync().unwrap())),
        _ => {
            let Ok(file) = disk.open(&name(dice)) else { return };
            let bytes: Vec<u8> = (0..dice.below(1500)).map(|_| dice.below(3) as u8).collect();
            file.write_at(dice.below(5000), &bytes).unwrap();
        }
    }
}

#[test]
fn a_process_that_dies_in_the_middle_of_a_call_has_done_what_it_had_done() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::seeded(seed, Speed::SOLID);
        for _ in 0..20 {
            operate(&disk.mount(), &mut dice);
        }
        disk.begin();
        let mut moments = vec![(0, picture(&disk), firm(&disk))];
        for _ in 0..dice.below(12) {
            operate(&disk.mount(), &mut dice);
            let spent = disk.spent();
            // An operation that took no time did not happen.
            if spent != moments.last().unwrap().0 {
                moments.push((spent, picture(&disk), firm(&disk)));
            }
        }
        let elapsed = dice.below(disk.spent() + 2);
        disk.process_dies(elapsed);
        let (_, read, kept) = moments.iter().rfind(|(spent, ..)| *spent <= elapsed).unwrap();
        assert_eq!(&picture(&disk), read, "seed {seed}: what is read");
        assert_eq!(&firm(&disk), kept, "seed {seed}: what is on the medium");
    }
}

#[test]
fn what_was_synced_survives_every_power_cut_and_what_was_not_may_be_any_mixture() {
    let (mut all, mut none, mut some) = (0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::seeded(seed, Speed::INSTANT);
        let file = disk.create("file").unwrap();
        file.write_at(0, &[1; 4096]).unwrap();
        file.sync().unwrap();
        disk.sync_names().unwrap();
        file.write_at(512, &[2; 2048]).unwrap();
        let lost = disk.power_fails(seed, u64::MAX);
        let found = disk.contents("file").unwrap();
        assert!(found[..512].iter().chain(&found[2560..]).all(|&byte| byte == 1), "what was synced is there");
        let sectors: Vec<u8> = found.chunks(512).map(|sector| sector[0]).collect();
        assert!(
            found.chunks(512).all(|sector| sector.iter().all(|&byte| byte == sector[0])),
            "sectors are whole"
        );
        let arrived = sectors.iter().filter(|&&byte| byte == 2).count();
        assert_eq!((lost.sectors, lost.sectors_kept), (4 - arrived, arrived));
        assert_eq!(lost.is_something(), arrived != 4);
        match arrived {
            0 => none += 1,
            4 => all += 1,
            _ => some += 1,
        }
        assert!(file.sync().is_err(), "what a dead process had open is closed");
    }
    assert!(10 < all && 10 < none && 10 < some, "{all} {none} {some}");
}

#[test]
fn a_name_is_lost_unless_names_were_synced() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::seeded(seed, Speed::INSTANT);
        let file = disk.create("aside").unwrap();
        file.write_at(0, b"bytes").unwrap();
        file.sync().unwrap();
        disk.rename("aside", "name").unwrap();
        disk.power_fails(seed, u64::MAX);
        let names = disk.mount().names().unwrap();
        lost += u64::from(!names.contains(&"name".to_owned()));
        for name in names {
            assert_eq!(disk.contents(&name).unwrap(), b"bytes");
        }
    }
    assert!((10..90).contains(&lost), "{lost}");
}

/// A disk with one file of one synced and one unsynced sector.
fn half_synced() -> (SimDisk, Box<dyn LogFile>) {
    let disk = SimDisk::seeded(1, Speed::SOLID);
    let file = disk.create("file").unwrap();
    file.write_at(0, &[1; 512]).unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    file.write_at(512, &[2; 512]).unwrap();
    (disk, file)
}

fn ids(fired: &[Fired]) -> Vec<FaultId> {
    fired.iter().map(|fired| fired.id).collect()
}

#[test]
fn after_a_failed_sync_a_later_one_succeeds_and_saves_nothing() {
    for forget in [false, true] {
        let (disk, file) = half_synced();
        disk.arm(Fault::SyncFails { survive_percent: 0, forget }, 0);
        assert!(file.sync().is_err());
        assert_eq!(ids(&disk.take_fired()), [FaultId::F11]);
        file.sync().unwrap();
        let mut read = [9; 512];
        file.read_at(512, &mut read).unwrap();
        assert_eq!(read[0], if forget { 0 } else { 2 }, "the page is clean, and there or not");
        disk.power_fails(5, u64::MAX);
        assert_eq!(disk.contents("file").unwrap()[511..].iter().max(), Some(&1), "it was never written");
    }
}

#[test]
fn writing_again_after_a_failed_sync_saves_it() {
    let (disk, file) = half_synced();
    disk.arm(Fault::SyncFails { survive_percent: 0, forget: false }, 0);
    assert!(file.sync().is_err());
    file.write_at(512, &[2; 512]).unwrap();
    file.sync().unwrap();
    disk.power_fails(5, u64::MAX);
    assert_eq!(disk.contents("file").unwrap()[512..], [2; 512]);
}

#[test]
fn a_lost_write_is_read_as_written_until_the_cache_is_dropped() {
    let (disk, file) = half_synced();
    disk.arm(Fault::WriteLost, 0);
    file.sync().unwrap();
    assert_eq!(ids(&disk.take_fired()), [FaultId::F14]);
    assert_eq!(disk.contents("file").unwrap()[512], 2);
    assert_eq!(disk.drop_cache(), 1);
    assert_eq!(disk.contents("file").unwrap()[512], 0);
    disk.heal();
    assert_eq!(disk.contents("file").unwrap()[512], 2);
}

#[test]
fn a_write_of_what_a_lost_one_has_left_needs_no_repair() {
    for done in [true, false] {
        let (disk, file) = half_synced();
        disk.arm(Fault::WriteLost, 0);
        file.sync().unwrap();
        disk.drop_cache();
        disk.begin();
        file.write_at(512, &[0; 512]).unwrap(); // the medium has it already
        disk.process_dies(if done { u64::MAX } else { 0 });
        disk.heal();
        assert_eq!(disk.contents("file").unwrap()[512], if done { 0 } else { 2 });
    }
}

#[test]
fn a_short_write_leaves_a_part_and_says_so() {
    let (disk, file) = half_synced();
    disk.arm(Fault::WriteFails { done_percent: 50 }, 1);
    file.write_at(1024, &[3; 1000]).unwrap();
    assert!(file.write_at(4096, &[4; 1000]).is_err());
    assert_eq!(ids(&disk.take_fired()), [FaultId::F12]);
    let found = disk.contents("file").unwrap();
    assert_eq!((found.len(), found[4595]), (4596, 4));
}

#[test]
fn a_full_disk_takes_no_growth_and_every_overwrite() {
    let (disk, file) = half_synced();
    disk.limit_to(Some(disk.bytes() + 100));
    assert_eq!(file.write_at(1000, &[3; 200]).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    file.write_at(0, &[3; 1024]).unwrap();
    file.write_at(1000, &[3; 124]).unwrap();
    disk.limit_files_to(Some(1));
    assert_eq!(disk.create("more").unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    disk.create("file").unwrap();
    assert_eq!(ids(&disk.take_fired()), [FaultId::F12, FaultId::F12]);
}

#[test]
fn time_is_charged_for_what_is_done_and_stalls_and_slowness_are_seen() {
    let (disk, file) = half_synced();
    disk.begin();
    file.sync().unwrap();
    let plain = disk.spent();
    assert!((120_000..200_000).contains(&plain), "{plain}");
    assert!(disk.take_fired().is_empty());
    disk.stall(60_000_000_000);
    disk.begin();
    file.sync().unwrap();
    assert!(60_000_000_000 < disk.spent());
    disk.slow_down(50);
    disk.begin();
    file.sync().unwrap();
    assert!((6_000_000..10_000_000).contains(&disk.spent()), "{}", disk.spent());
    assert_eq!(ids(&disk.take_fired()), [FaultId::F16, FaultId::F17]);
}

#[test]
fn the_lock_is_one_processs_and_free_when_that_is_dead() {
    let disk = SimDisk::new();
    let first = DataDir::open(Arc::new(disk.mount())).unwrap();
    let error = DataDir::open(Arc::new(disk.mount())).unwrap_err();
    assert!(matches!(error, WalError::Locked { .. }), "{error}");
    disk.process_dies(u64::MAX);
    let second = DataDir::open(Arc::new(disk.mount())).unwrap();
    drop(first); // the guard of a dead process frees no lock
    assert!(DataDir::open(Arc::new(disk.mount())).is_err());
    drop(second);
    DataDir::open(Arc::new(disk.mount())).unwrap();
}

#[test]
fn the_same_seed_is_the_same_disk() {
    let run = |seed: u64| {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::seeded(seed, Speed::SPINNING);
        for round in 0..6 {
            for _ in 0..30 {
                operate(&disk.mount(), &mut dice);
            }
            disk.power_fails(seed ^ round, disk.spent() / 2);
        }
        (picture(&disk), disk.take_fired(), disk.operations())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
