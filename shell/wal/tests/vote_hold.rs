//! Goal: a member never forgets how long a vote hold lasts that it may have granted. Method: the file is written and
//! lost with the power. (Damage: `small_files.rs`.)

use kattu_disk::SimDisk;
use kattu_disk::twin::{data_dir, made};
use kattu_wal::{Item, Verdict, Wal, WalOptions, inspect};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_vote_hold_is_found_again_and_replaced_by_the_next() {
    let disk = made(42);
    assert_eq!(data_dir(&disk).vote_hold(), Ok(Ok(Duration::ZERO)), "none was ever made");
    data_dir(&disk).set_vote_hold(SECOND).unwrap();
    for image in disk.crash_images(1, 8) {
        assert_eq!(data_dir(&image).vote_hold(), Ok(Ok(SECOND)), "it was durable when it was said");
    }
    data_dir(&disk).set_vote_hold(Duration::ZERO).unwrap();
    assert_eq!(data_dir(&disk).vote_hold(), Ok(Ok(Duration::ZERO)));
}

/// The vote holds that `inspect` shows, and its verdict on the whole directory.
fn looked_at(disk: &SimDisk) -> (Vec<Result<Duration, String>>, Verdict) {
    let mut vote_holds = Vec::new();
    let mut note = |item| {
        if let Item::VoteHold { state } = item {
            vote_holds.push(state);
        }
    };
    let verdict = inspect(disk, &mut note).expect("a directory");
    (vote_holds, verdict)
}

#[test]
fn a_look_shows_the_vote_hold_and_calls_a_damaged_one_damage_that_prevents_no_start() {
    let disk = made(42);
    let clean = Verdict::Clean { closed: false };
    assert_eq!(looked_at(&disk), (vec![], clean.clone()));
    data_dir(&disk).set_vote_hold(SECOND).unwrap();
    assert_eq!(looked_at(&disk), (vec![Ok(SECOND)], clean.clone()));
    let whole = disk.contents("promise").unwrap();
    for byte in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << (byte % 8);
        disk.set_contents("promise", Some(flipped.clone()));
        let (vote_holds, verdict) = looked_at(&disk);
        assert_eq!(vote_holds, [Err("checksum mismatch".to_string())], "byte {byte}");
        let damage = Verdict::Damaged { file: "promise".into(), offset: 0, what: "checksum mismatch".into() };
        assert_eq!(verdict, damage, "byte {byte}");
        assert_eq!(disk.contents("promise"), Some(flipped), "a look changes nothing");
    }
    let options = WalOptions { segment_bytes: 1 << 16, reserve_bytes: 0, ..WalOptions::default() };
    Wal::open(data_dir(&disk), options).expect("the log is whole");
    data_dir(&disk).set_vote_hold(SECOND * 2).unwrap();
    assert_eq!(looked_at(&disk), (vec![Ok(SECOND * 2)], clean), "a start writes it anew");
}

#[test]
fn of_a_damaged_log_and_a_damaged_vote_hold_the_log_is_reported() {
    let disk = made(42);
    data_dir(&disk).set_vote_hold(SECOND).unwrap();
    disk.set_contents("promise", Some(vec![0; 32]));
    disk.set_contents("log-0000000000000001.seg", None);
    let (vote_holds, verdict) = looked_at(&disk);
    assert!(vote_holds[0].is_err());
    assert!(matches!(&verdict, Verdict::Damaged { file, .. } if file != "promise"), "{verdict:?}");
}
