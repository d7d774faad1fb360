//! Goal: after any operations in any order, a log holds what its naive twin holds, at any moment, after any restart and
//! after any power cut.

use kattu_disk::SimDisk;
use kattu_disk::twin::{GROUPS, Step, Twin, check, open, read_all, recover, step};
use kattu_raft::{GroupId, LogIndex};
use proptest::collection::vec;
use proptest::prelude::*;

fn group() -> impl Strategy<Value = GroupId> {
    prop::sample::select(GROUPS.to_vec())
}

fn any_step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 0..120usize, 2 => 300..1500usize, 1 => 4000..9000usize];
    prop_oneof![
        6 => (group(), vec(size, 1..4)).prop_map(|(group, sizes)| Step::Entries(group, sizes)),
        1 => (group(), 1..5u64).prop_map(|(group, count)| Step::Truncate(group, count)),
        1 => (group(), prop::option::of(1..4u64)).prop_map(|(group, vote)| Step::Hard(group, vote)),
        2 => group().prop_map(Step::Commit),
        2 => Just(Step::Write),
        4 => Just(Step::Sync),
        1 => Just(Step::Mark),
        1 => Just(Step::Prepare),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_log_holds_what_its_twin_holds(steps in vec(any_step(), 1..40)) {
        let disk = SimDisk::new();
        let mut twin = Twin::default();
        let (mut wal, _) = open(&disk, &mut twin).unwrap();
        for now in &steps {
            wal = step(&disk, wal, &mut twin, now).unwrap();
            if matches!(now, Step::Write | Step::Sync) {
                for (&group, history) in &twin.groups {
                    let entries = &history.now().entries;
                    let last = LogIndex(entries.len() as u64);
                    prop_assert_eq!(&read_all(&mut wal, group, last), entries);
                    // Reading beyond the end is reading to the end.
                    prop_assert!(wal.read(group, last.next(), LogIndex(u64::MAX), 100).unwrap().is_empty());
                    if let Some(middle) = entries.get(entries.len() / 2) {
                        let read = wal.read(group, middle.id().index, last, usize::MAX).unwrap();
                        prop_assert_eq!(&read[..], &entries[entries.len() / 2..]);
                        let one = wal.read(group, middle.id().index, last, 1).unwrap();
                        prop_assert_eq!(&one[..], &entries[entries.len() / 2..][..1]);
                    }
                }
            }
        }
        for image in disk.crash_images(1, 4).into_iter().take(24) {
            recover(&image, &twin);
        }
        wal.sync().unwrap();
        wal.close().unwrap();
        let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
        for history in twin.groups.values_mut() {
            history.acked = history.moments.len() - 1;
        }
        check(&twin, &mut wal, &recovered);
        for (group, history) in &twin.groups {
            prop_assert_eq!(recovered[group].lsn, history.now().lsn);
            prop_assert_eq!(recovered[group].committed, history.now().commit);
        }
    }
}
