//! Goal: a member knows after a restart which members it knew before. Method: the file is written, lost with the power, damaged
//! bit by bit, and put into a directory of another member.

use kattu_disk::SimDisk;
use kattu_disk::twin::{data_dir, made};
use kattu_raft::NodeId;
use kattu_wal::{DataDir, Item, PeerUrls, Verdict, WalError, inspect};
use std::sync::Arc;

fn two() -> PeerUrls {
    let urls = vec!["http://b:2380".to_string(), "https://b.example:2380".into()];
    PeerUrls::from([(NodeId(2), urls), (NodeId(3), vec![])])
}

fn known(disk: &SimDisk) -> Result<Option<PeerUrls>, String> {
    let (members, wrong) = data_dir(disk).known_members().unwrap();
    wrong.map_or_else(|| Ok(members.all().cloned()), Err)
}

#[test]
fn members_are_known_after_a_loss_of_power_and_the_newest_list_counts() {
    let disk = made(42);
    assert_eq!(known(&disk), Ok(None));
    let (mut members, _) = data_dir(&disk).known_members().unwrap();
    members.set(two()).unwrap();
    for image in disk.crash_images(1, 8) {
        assert_eq!(known(&image), Ok(Some(two())), "it was durable when `set` returned");
    }
    let one = PeerUrls::from([(NodeId(3), vec!["http://c:2380".into()])]);
    members.set(one.clone()).unwrap();
    assert_eq!((known(&disk), members.all()), (Ok(Some(one.clone())), Some(&one)));
    let url = "x".repeat(1 << 15);
    let too_long = (1..64).map(|id| (NodeId(id), vec![url.clone()])).collect();
    assert!(matches!(members.set(too_long), Err(WalError::Damaged { .. })));
    assert_eq!((known(&disk), members.all()), (Ok(Some(one.clone())), Some(&one)), "nothing has changed");
}

#[test]
fn damage_is_seen_and_so_is_the_file_of_another_member() {
    let disk = made(42);
    let (mut members, _) = data_dir(&disk).known_members().unwrap();
    members.set(two()).unwrap();
    let whole = disk.contents("members").unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        disk.set_contents("members", Some(bytes));
        assert!(known(&disk).is_err(), "bit {bit}");
        let mut bad = 0;
        let verdict = inspect(&disk, &mut |item| {
            bad += usize::from(matches!(item, Item::KnownMembers { state: Err(_) }))
        });
        assert!(matches!(verdict, Ok(Verdict::Damaged { file, .. }) if file == "members"), "bit {bit}");
        assert_eq!(bad, 1, "bit {bit}");
    }
    for short in 0..whole.len() {
        disk.set_contents("members", Some(whole[..short].to_vec()));
        assert!(known(&disk).is_err(), "{short} bytes");
    }
    let other = made(43);
    other.set_contents("members", Some(whole.clone()));
    assert!(known(&other).is_err());
    disk.set_contents("members", Some(whole));
    disk.set_contents("identity", None);
    let refused = DataDir::open(Arc::new(disk)).expect_err("it has a past");
    assert!(matches!(refused, WalError::Damaged { .. }), "{refused}");
}
