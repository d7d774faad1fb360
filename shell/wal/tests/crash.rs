//! Goal: after a power cut at any moment, on any disk that could be found then, recovery loses nothing that a sync
//! acknowledged and invents nothing. Method: each story runs once per operation on the disk with the power going out
//! there; each disk that could be found is recovered, twice, and written to again; and the power also goes out in
//! recovery.

use kattu_disk::SimDisk;
use kattu_disk::twin::{GROUPS, OPTIONS, Step, Twin, check, open, recover, run};

const A: kattu_raft::GroupId = GROUPS[0];
const B: kattu_raft::GroupId = GROUPS[1];

/// Cuts the power at every operation of `story` and recovers from every image. Returns how many images there were.
fn cut_everywhere(story: &[Step]) -> usize {
    let whole = SimDisk::new();
    let (_, outcome) = run(&whole, story);
    outcome.expect("the story runs to its end with power");
    let begun = {
        let disk = SimDisk::new();
        open(&disk, &mut Twin::default()).unwrap();
        disk.operations()
    };
    let mut images = 0;
    // Cuts during creation have a test of their own.
    for cut in begun..=whole.operations() {
        let disk = SimDisk::new();
        disk.lose_power_after(cut);
        let (twin, outcome) = run(&disk, story);
        assert_eq!(outcome.is_ok(), cut == whole.operations(), "{outcome:?}");
        for image in disk.crash_images(cut, 12) {
            if images % 23 == 0 {
                cut_in_recovery(&image, &twin);
            }
            recover(&image, &twin);
            images += 1;
        }
    }
    images
}

/// Cuts the power at every operation of a recovery; every disk found then must recover to the same.
fn cut_in_recovery(image: &SimDisk, twin: &Twin) {
    let uncut = image.copy();
    let (mut wal, expected) = open(&uncut, &mut twin.clone()).unwrap();
    check(twin, &mut wal, &expected);
    for cut in 0..uncut.operations() {
        let disk = image.copy();
        disk.lose_power_after(cut);
        assert!(
            open(&disk, &mut twin.clone()).is_err(),
            "recovery needs all {} operations",
            uncut.operations()
        );
        for found in disk.crash_images(cut, 2).into_iter().step_by(3) {
            let (_, recovered) = open(&found, &mut twin.clone()).unwrap();
            assert_eq!(recovered, expected, "recovery cut at operation {cut}");
        }
    }
}

#[test]
fn creation_is_all_or_begins_again() {
    let whole = SimDisk::new();
    open(&whole, &mut Twin::default()).unwrap();
    let mut images = 0;
    for cut in 0..=whole.operations() {
        let disk = SimDisk::new();
        disk.lose_power_after(cut);
        let mut twin = Twin::default();
        let _ = open(&disk, &mut twin);
        for image in disk.crash_images(cut, 6) {
            recover(&image, &twin);
            images += 1;
        }
    }
    assert!(100 < images, "{images}");
}

#[test]
fn appends_survive_as_far_as_they_were_synced() {
    let images = cut_everywhere(&[
        Step::Entries(A, vec![0]),
        Step::Sync,
        Step::Entries(A, vec![100, 900]),
        Step::Sync,
        Step::Entries(A, vec![40]),
        Step::Write,
        Step::Entries(B, vec![40]),
        Step::Write,
        Step::Entries(A, vec![600]),
        Step::Commit(A),
        Step::Sync,
        Step::Commit(B),
        Step::Mark,
        Step::Entries(B, vec![10, 10]),
        Step::Sync,
    ]);
    assert!(100 < images, "{images}");
}

#[test]
fn unsynced_blocks_may_survive_in_any_order() {
    let images = cut_everywhere(&[
        Step::Entries(A, vec![10]),
        Step::Sync,
        Step::Entries(A, vec![10]),
        Step::Write,
        Step::Entries(A, vec![10]),
        Step::Write,
        Step::Entries(B, vec![10]),
        Step::Write,
        Step::Entries(A, vec![10]),
        Step::Write,
    ]);
    assert!(30 < images, "{images}");
}

#[test]
fn rotation_loses_nothing() {
    let images = cut_everywhere(&[
        Step::Entries(A, vec![900, 900]),
        Step::Sync,
        Step::Entries(A, vec![900]),
        Step::Sync,
        Step::Prepare,
        Step::Entries(B, vec![900, 300]),
        Step::Sync,
        Step::Entries(A, vec![2500]),
        Step::Entries(B, vec![2500]),
        Step::Sync,
        Step::Mark,
    ]);
    assert!(500 < images, "{images}");
}

#[test]
fn a_block_larger_than_a_segment_gets_a_larger_segment() {
    cut_everywhere(&[
        Step::Entries(A, vec![100]),
        Step::Prepare,
        Step::Sync,
        Step::Entries(A, vec![9000]),
        Step::Sync,
        Step::Entries(A, vec![100]),
        Step::Sync,
    ]);
}

#[test]
fn truncation_is_a_record_like_any_other() {
    let images = cut_everywhere(&[
        Step::Entries(A, vec![10, 20, 30]),
        Step::Entries(B, vec![10]),
        Step::Sync,
        Step::Truncate(A, 2),
        Step::Entries(A, vec![11, 700]),
        Step::Sync,
        Step::Entries(A, vec![12]),
        Step::Truncate(A, 1),
        Step::Entries(A, vec![13]),
        Step::Write,
        Step::Truncate(A, 9),
        Step::Sync,
        Step::Entries(A, vec![14]),
        Step::Commit(A),
        Step::Sync,
    ]);
    assert!(50 < images, "{images}");
}

#[test]
fn term_and_vote_are_never_older_than_what_was_synced() {
    let images = cut_everywhere(&[
        Step::Hard(A, Some(1)),
        Step::Sync,
        Step::Entries(A, vec![0]),
        Step::Hard(B, Some(2)),
        Step::Sync,
        Step::Hard(A, None),
        Step::Hard(A, Some(3)),
        Step::Entries(A, vec![20]),
        Step::Sync,
        Step::Mark,
        Step::Hard(B, Some(1)),
        Step::Write,
        Step::Hard(B, Some(3)),
        Step::Sync,
    ]);
    assert!(60 < images, "{images}");
}

#[test]
fn a_restart_after_a_crash_goes_on_from_there() {
    let images = cut_everywhere(&[
        Step::Entries(A, vec![10, 900]),
        Step::Restart,
        Step::Entries(A, vec![10]),
        Step::Sync,
        Step::Restart,
        Step::Restart,
        Step::Entries(B, vec![900, 900, 900]),
        Step::Sync,
        Step::Truncate(B, 1),
        Step::Restart,
    ]);
    assert!(50 < images, "{images}");
}

#[test]
fn a_second_crash_finds_nothing_of_the_first_ones_tail() {
    // Whole blocks behind a torn one are cut; new blocks must not be taken for their predecessors.
    let story = [
        Step::Entries(A, vec![10]),
        Step::Sync,
        Step::Entries(A, vec![10]),
        Step::Write,
        Step::Entries(A, vec![10]),
        Step::Write,
        Step::Entries(A, vec![10]),
        Step::Write,
    ];
    let disk = SimDisk::new();
    let (twin, outcome) = run(&disk, &story);
    outcome.unwrap();
    for image in disk.crash_images(1, 20) {
        let (mut wal, found) = open(&image, &mut twin.clone()).unwrap();
        check(&twin, &mut wal, &found);
        // The second life writes something else to the same places.
        let mut second = twin.clone();
        let history = second.groups.get_mut(&A).unwrap();
        history.moments.truncate(found[&A].last.index.0 as usize + 1);
        history.acked = history.moments.len() - 1;
        for size in [11, 12] {
            let next = Step::Entries(A, vec![size]);
            wal = kattu_disk::twin::step(&image, wal, &mut second, &next).unwrap();
            wal = kattu_disk::twin::step(&image, wal, &mut second, &Step::Write).unwrap();
        }
        for later in image.crash_images(2, 20) {
            recover(&later, &second);
        }
    }
}

#[test]
fn the_options_of_these_tests_rotate() {
    let disk = SimDisk::new();
    let (_, outcome) = run(&disk, &[Step::Entries(A, vec![900; 8]), Step::Sync]);
    outcome.unwrap();
    let (wal, _) = open(&disk, &mut Twin { created: true, ..Twin::default() }).unwrap();
    assert!(2 <= wal.stats().segments, "{:?}", wal.stats());
    assert!(OPTIONS.segment_bytes * 2 <= wal.stats().allocated_bytes);
}

#[test]
fn what_a_restarted_process_recovered_survives_a_power_cut_right_after() {
    // The process dies, the machine does not: written bytes that were never synced are still in the system's memory.
    // All that recovery returns must be durable. [fault-model ST3]
    let story = [
        Step::Entries(A, vec![10, 700]),
        Step::Write,
        Step::Hard(B, Some(2)),
        Step::Entries(B, vec![10]),
        Step::Write,
        Step::Entries(A, vec![900, 900]),
        Step::Write,
        Step::Entries(A, vec![900, 900]),
        Step::Write,
    ];
    for len in 1..=story.len() {
        for failing_sync in [false, true] {
            let disk = SimDisk::new();
            let mut twin = Twin::default();
            let (mut wal, _) = open(&disk, &mut twin).unwrap();
            for now in &story[..len] {
                wal = kattu_disk::twin::step(&disk, wal, &mut twin, now).unwrap();
            }
            if failing_sync {
                disk.fail_syncs_after(0);
                let _ = wal.sync(); // an error, unless nothing was dirty
                disk.fail_syncs_after(u64::MAX);
            }
            drop(wal);
            let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
            check(&twin, &mut wal, &recovered);
            for image in disk.crash_images(3, 20) {
                let (_, later) = open(&image, &mut twin.clone()).unwrap();
                assert_eq!(later, recovered, "after {len} steps");
            }
        }
    }
}

#[test]
fn a_vote_never_overwrites_the_only_place_that_is_sure_to_hold_the_one_before() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    for _ in 0..6 {
        wal = kattu_disk::twin::step(&disk, wal, &mut twin, &Step::Hard(A, Some(1))).unwrap();
        // Nothing unsynced arrives, except the first write of the next step, torn in the middle.
        let image = disk.crash_images(0, 0).swap_remove(0);
        wal = kattu_disk::twin::step(&disk, wal, &mut twin, &Step::Write).unwrap();
        let after = disk.contents("slots-00000000").unwrap();
        let generation = |bytes: &[u8]| u64::from_le_bytes(bytes[24..32].try_into().unwrap());
        let newest = generation(&after[..64]).max(generation(&after[4096..]));
        let place = if newest % 2 == 0 { 0 } else { 4096 };
        let mut torn = image.contents("slots-00000000").unwrap();
        torn[place..place + 64].fill(0xEE);
        image.set_contents("slots-00000000", Some(torn));
        let (_, recovered) = open(&image, &mut twin.clone()).unwrap();
        assert_eq!(recovered[&A].hard.term.0, newest - 2, "the vote before is still there");
    }
}
