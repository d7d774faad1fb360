//! Goal: a member knows after a restart which members it knew before. Method: the file is written and lost with the power.
//! (Damage: `small_files.rs`.)

use kattu_disk::SimDisk;
use kattu_disk::twin::{data_dir, made};
use kattu_raft::NodeId;
use kattu_wal::{PeerUrls, WalError};

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
