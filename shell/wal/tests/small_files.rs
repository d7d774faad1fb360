//! Goal: a small file beside the log that is damaged, cut or put into a directory of another member is never believed, and a failed
//! sync of it is never mistaken for a full disk. Method: one table of the files, each with every bit flipped, every other length,
//! in another directory, without an identity, and on disks that fail.

use kattu_disk::SimDisk;
use kattu_disk::twin::{data_dir, made};
use kattu_raft::{Incarnation, NodeId};
use kattu_wal::{DataDir, Item, PeerUrls, Verdict, WalError, inspect};
use std::sync::Arc;
use std::time::Duration;

struct File {
    name: &'static str,
    write: fn(&DataDir) -> Result<(), WalError>,
    is_unreadable: fn(&DataDir) -> bool,
    is_shown_as_bad: fn(&Item) -> bool,
}

const FILES: [File; 3] = [
    File {
        name: "lives",
        write: |dir| dir.lives().unwrap().0.meet(NodeId(2), Incarnation(20)),
        is_unreadable: |dir| dir.lives().unwrap().1.is_some(),
        is_shown_as_bad: |item| matches!(item, Item::Incarnations { state: Err(_) }),
    },
    File {
        name: "members",
        write: |dir| {
            let urls = vec!["http://b:2380".to_string(), "https://b.example:2380".into()];
            let members = PeerUrls::from([(NodeId(2), urls), (NodeId(3), vec![])]);
            dir.known_members().unwrap().0.set(members)
        },
        is_unreadable: |dir| dir.known_members().unwrap().1.is_some(),
        is_shown_as_bad: |item| matches!(item, Item::KnownMembers { state: Err(_) }),
    },
    File {
        name: "promise",
        write: |dir| dir.set_vote_hold(Duration::from_secs(1)),
        is_unreadable: |dir| dir.vote_hold().unwrap().is_err(),
        is_shown_as_bad: |item| matches!(item, Item::VoteHold { state: Err(_) }),
    },
];

/// The directory of a member with this file, and the file's bytes.
fn with(file: &File) -> (SimDisk, Vec<u8>) {
    let disk = made(42);
    (file.write)(&data_dir(&disk)).unwrap();
    let whole = disk.contents(file.name).expect("it was written");
    assert!(!(file.is_unreadable)(&data_dir(&disk)), "{}", file.name);
    (disk, whole)
}

fn must_be_seen(disk: &SimDisk, file: &File, what: &str) {
    let name = file.name;
    assert!((file.is_unreadable)(&data_dir(disk)), "{name}, {what}: a start believes it");
    let mut bad = 0;
    let verdict = inspect(disk, &mut |item| bad += usize::from((file.is_shown_as_bad)(&item)));
    assert!(
        matches!(&verdict, Ok(Verdict::Damaged { file, .. }) if file == name),
        "{name}, {what}: {verdict:?}"
    );
    assert_eq!(bad, 1, "{name}, {what}");
}

#[test]
fn every_flipped_bit_is_seen() {
    for file in FILES {
        let (disk, whole) = with(&file);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            disk.set_contents(file.name, Some(bytes));
            must_be_seen(&disk, &file, &format!("bit {bit}"));
        }
    }
}

#[test]
fn every_other_length_is_seen() {
    for file in FILES {
        let (disk, whole) = with(&file);
        for short in 0..whole.len() {
            disk.set_contents(file.name, Some(whole[..short].to_vec()));
            must_be_seen(&disk, &file, &format!("{short} bytes"));
        }
        for more in [1, 8, 16, 1 << 21] {
            let mut bytes = whole.clone();
            bytes.resize(whole.len() + more, 0);
            disk.set_contents(file.name, Some(bytes));
            must_be_seen(&disk, &file, &format!("{more} bytes more"));
        }
    }
}

#[test]
fn the_file_of_another_member_is_refused() {
    for file in FILES {
        let (_, whole) = with(&file);
        let other = made(43);
        other.set_contents(file.name, Some(whole));
        must_be_seen(&other, &file, "of another member");
    }
}

#[test]
fn a_directory_with_such_a_file_and_without_an_identity_has_lost_it() {
    for file in FILES {
        let (disk, _) = with(&file);
        disk.set_contents("identity", None);
        let refused = DataDir::open(Arc::new(disk)).expect_err("it has a past");
        assert!(matches!(refused, WalError::Damaged { .. }), "{}: {refused}", file.name);
    }
}

#[test]
fn a_sync_that_fails_is_told_apart_from_a_full_disk() {
    for file in FILES {
        for of_its_name in [false, true] {
            let disk = made(42);
            let dir = data_dir(&disk);
            disk.fail_syncs_after(u64::from(of_its_name)); // the first one is of its content
            let error = (file.write)(&dir).expect_err("a sync fails");
            assert!(error.is_failed_sync(), "{}: {error}", file.name);
        }
        let disk = made(42);
        let dir = data_dir(&disk);
        disk.limit_to(Some(0));
        let error = (file.write)(&dir).expect_err("the disk is full");
        assert!(matches!(error, WalError::NoSpace { .. }), "{}: {error}", file.name);
    }
}
