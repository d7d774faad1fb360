//! Goal: a member never forgets the incarnation of a voter that it has met. Method: the file is written, lost with the
//! power, damaged bit by bit, and put into a directory of another member.

use kattu_disk::SimDisk;
use kattu_disk::twin::{data_dir, made};
use kattu_raft::{Incarnation, NodeId};
use kattu_wal::{DataDir, Item, Verdict, WalError, inspect};
use std::sync::Arc;

const A: (NodeId, Incarnation) = (NodeId(2), Incarnation(20));
const B: (NodeId, Incarnation) = (NodeId(3), Incarnation(30));

fn known(disk: &SimDisk) -> Result<Vec<(NodeId, Incarnation)>, String> {
    let (lives, wrong) = data_dir(disk).lives().unwrap();
    wrong.map_or_else(|| Ok(lives.all().collect()), Err)
}

#[test]
fn a_member_that_was_met_is_known_after_a_loss_of_power() {
    let disk = made(42);
    assert_eq!(known(&disk), Ok(vec![]), "nobody was met");
    let (mut lives, _) = data_dir(&disk).lives().unwrap();
    lives.meet(A.0, A.1).unwrap();
    for image in disk.crash_images(1, 8) {
        assert_eq!(known(&image), Ok(vec![A]), "it was durable when it was said");
    }
    lives.meet(B.0, B.1).unwrap();
    lives.meet(A.0, A.1).unwrap();
    assert_eq!(known(&disk), Ok(vec![A, B]));
    assert_eq!(lives.all().collect::<Vec<_>>(), [A, B]);
}

#[test]
fn damage_is_seen_and_so_is_the_file_of_another() {
    let disk = made(42);
    let (mut lives, _) = data_dir(&disk).lives().unwrap();
    lives.meet(A.0, A.1).unwrap();
    let whole = disk.contents("lives").unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        disk.set_contents("lives", Some(bytes));
        assert!(known(&disk).is_err(), "bit {bit}");
        let mut bad = 0;
        let verdict = inspect(&disk, &mut |item| {
            bad += usize::from(matches!(item, Item::Incarnations { state: Err(_) }))
        });
        assert!(matches!(verdict, Ok(Verdict::Damaged { file, .. }) if file == "lives"), "bit {bit}");
        assert_eq!(bad, 1, "bit {bit}");
    }
    for short in [0, 23, 39] {
        disk.set_contents("lives", Some(whole[..short].to_vec()));
        assert!(known(&disk).is_err(), "{short} bytes");
    }
    let other = made(43);
    other.set_contents("lives", Some(whole.clone()));
    assert!(known(&other).is_err());
    disk.set_contents("lives", Some(whole));
    disk.set_contents("identity", None);
    let refused = DataDir::open(Arc::new(disk)).expect_err("it has a past");
    assert!(matches!(refused, WalError::Damaged { .. }), "{refused}");
}
