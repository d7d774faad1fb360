//! Goal: a member never forgets the incarnation of a voter that it has met. Method: the file is written and lost with
//! the power. (Damage: `small_files.rs`.)

use kattu_disk::SimDisk;
use kattu_disk::twin::{data_dir, made};
use kattu_raft::{Incarnation, NodeId};

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
