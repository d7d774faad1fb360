//! Goal: the log takes bounded space on the disk, and what is left of it starts again: with snapshots taken here and
//! sent by peers, over logs that are long, short, or contradict them. [fault-model ST9–ST11]

use kattu_disk::twin::{GROUPS, OPTIONS, Step, Twin, check, flipped, open, recover, run, step};
use kattu_disk::{Dice, SimDisk};
use kattu_raft::{EntryId, GroupId};
use kattu_wal::{Item, Verdict, Wal, WalError, inspect};

const A: GroupId = GROUPS[0];
const B: GroupId = GROUPS[1];

fn go_on(disk: &SimDisk, mut wal: Wal, twin: &mut Twin, story: &[Step]) -> Wal {
    for now in story {
        wal = step(disk, wal, twin, now).unwrap();
    }
    wal
}

/// The steps that take a snapshot of one group and prune its log.
fn prune(group: GroupId) -> [Step; 6] {
    [
        Step::Commit(group),
        Step::Snapshot(group),
        Step::Base(group, 0),
        Step::Sync,
        Step::Tidy(group),
        Step::Prepare,
    ]
}

fn segments(disk: &SimDisk) -> Vec<String> {
    use kattu_wal::Files;
    disk.names().unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect()
}

#[test]
fn the_room_that_a_log_takes_is_bounded() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    let (mut written, mut most, mut log_most) = (0, 0, 0);
    while written < 50 * OPTIONS.segment_bytes {
        for group in GROUPS {
            wal = go_on(&disk, wal, &mut twin, &[Step::Entries(group, vec![500, 500]), Step::Sync]);
            written += 1000;
        }
        if twin.groups[&A].now().entries.len() >= 8 {
            wal = go_on(&disk, wal, &mut twin, &prune(A));
            wal = go_on(&disk, wal, &mut twin, &prune(B));
        }
        most = most.max(wal.stats().allocated_bytes);
        log_most = log_most.max(wal.stats().log_bytes);
        let named: u64 = segments(&disk).iter().map(|name| disk.contents(name).unwrap().len() as u64).sum();
        assert_eq!(named, wal.stats().allocated_bytes, "the log knows what it takes");
    }
    // 16 entries of 550 bytes are about three segments; one is current, two are spare, one more waits to go.
    assert!(most <= 8 * OPTIONS.segment_bytes, "{most}");
    assert!(OPTIONS.segment_bytes < log_most && log_most < most, "{log_most}");
    let log_bytes = wal.stats().log_bytes;
    assert!(40 < wal.stats().pruned, "{:?}", wal.stats());
    assert!(
        wal.stats().pruned <= wal.stats().rotations,
        "only what the log has left goes: {:?}",
        wal.stats()
    );
    assert!(disk.bytes() < 10 * OPTIONS.segment_bytes, "snapshots, too: {}", disk.bytes());
    assert_eq!(wal.stats().torn_tails, 0);
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
    assert_eq!(wal.stats().log_bytes, log_bytes);
    assert_eq!(wal.stats().torn_tails, 0, "old blocks in a segment that is used again are no torn tail");
}

#[test]
fn a_used_segment_becomes_the_next_one_without_a_byte_of_zeros() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![900; 6]), Step::Sync]);
    wal = go_on(&disk, wal, &mut twin, &[Step::Commit(A), Step::Snapshot(A), Step::Base(A, 0), Step::Sync]);
    let old = disk.contents("log-0000000000000001.seg").unwrap();
    let task = wal.wants_segment().expect("a segment is of no use any more");
    let before = disk.operations();
    wal.accept(task.run()).unwrap();
    let (operations, pruned) = (disk.operations() - before, wal.stats().pruned);
    assert!((1..=2).contains(&pruned) && operations <= 6 * pruned, "{operations} operations for {pruned}");
    assert!(disk.contents("log-0000000000000001.seg").is_none());
    let is_old = |name: &String| disk.contents(name).unwrap()[64..] == old[64..];
    assert_eq!(segments(&disk).iter().filter(|name| is_old(name)).count(), 1);

    // It is used and read back, and the log after it starts again.
    wal = go_on(
        &disk,
        wal,
        &mut twin,
        &[Step::Entries(A, vec![900; 6]), Step::Sync, Step::Entries(B, vec![5])],
    );
    wal = go_on(&disk, wal, &mut twin, &[Step::Sync]);
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
}

#[test]
fn a_power_cut_while_spare_segments_are_removed_leaves_no_gap() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    for _ in 0..2 {
        let writes = [Step::Entries(A, vec![900; 20]), Step::Sync];
        wal = go_on(&disk, wal, &mut twin, &[&writes[..], &prune(A)].concat());
    }
    drop(wal);
    let names = segments(&disk);
    let Some([.., first, _, _]) = names.get(1..) else { panic!("{names:?}") };
    // The header of the first of three spare segments is bad: a start removes all of them.
    let damaged = flipped(&disk, first, 0);
    let uncut = damaged.copy();
    recover(&uncut, &twin);
    assert!(segments(&uncut).len() < names.len(), "{names:?} {:?} {first}", segments(&uncut));
    for cut in 0..uncut.operations() {
        let torn = damaged.copy();
        torn.lose_power_after(cut);
        let _ = open(&torn, &mut twin.clone());
        for image in torn.crash_images(cut, 8) {
            recover(&image, &twin);
        }
    }
}

#[test]
fn a_log_that_goes_through_the_same_segments_again_makes_none_anew() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    let (mut created, mut most) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let before = wal.stats();
        // Ten segments or so from one snapshot to the next, with a task whenever one is due.
        for _ in 0..20 {
            wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![900; 2]), Step::Sync, Step::Prepare]);
        }
        let story = [Step::Commit(A), Step::Snapshot(A), Step::Base(A, 0), Step::Sync, Step::Tidy(A)];
        wal = go_on(&disk, wal, &mut twin, &story);
        while let Some(task) = wal.wants_segment() {
            wal.accept(task.run()).unwrap();
        }
        let after = wal.stats();
        assert!(10 <= after.pruned - before.pruned, "{after:?}");
        created.push(after.segments + after.pruned - before.segments - before.pruned);
        most.push(after.segments);
    }
    // `pruned` counts recycled segments, too: any others were made anew, or existed already.
    let named: usize = segments(&disk).len();
    assert_eq!(named as u64, wal.stats().segments);
    assert!(most[2..].iter().all(|segments| *segments <= most[1] + 1), "it grows: {most:?}");
    let recycled = |name: &String| disk.contents(name).unwrap()[12] == 1;
    let anew = segments(&disk).into_iter().filter(|name| !recycled(name)).count();
    assert!(anew <= 1, "{anew} of {most:?} were made anew: {created:?}");
    assert!(8 < most[7], "a whole cycle is kept: {most:?}");
}

#[test]
fn nothing_goes_before_a_good_snapshot_covers_it() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    let story =
        [Step::Entries(A, vec![900; 6]), Step::Commit(A), Step::Snapshot(A), Step::Base(A, 0), Step::Write];
    wal = go_on(&disk, wal, &mut twin, &story);
    // The record is not durable yet.
    let task = wal.wants_segment().unwrap();
    wal.accept(task.run()).unwrap();
    assert!(disk.contents("log-0000000000000001.seg").is_some());
    wal = go_on(&disk, wal, &mut twin, &[Step::Sync, Step::Prepare]);
    assert!(disk.contents("log-0000000000000001.seg").is_none());
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
    assert_eq!(wal.first_index(A), twin.groups[&A].now().base.index.next());
    assert_eq!(wal.first_index(B).0, 1);
}

#[test]
fn another_groups_entries_keep_the_segments_they_are_in() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    wal = go_on(&disk, wal, &mut twin, &[Step::Entries(B, vec![10]), Step::Sync]);
    for _ in 0..5 {
        wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![900; 6]), Step::Sync]);
        wal = go_on(&disk, wal, &mut twin, &prune(A));
    }
    assert!(disk.contents("log-0000000000000001.seg").is_some());
    wal = go_on(&disk, wal, &mut twin, &prune(B));
    assert!(disk.contents("log-0000000000000001.seg").is_none());
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
}

#[test]
fn a_snapshot_of_a_peer_replaces_a_log_that_is_short_of_it_or_contradicts_it() {
    for install in [Step::Install(A, 1), Step::Install(A, 500), Step::InstallOver(A)] {
        let disk = SimDisk::new();
        let mut twin = Twin::default();
        let (mut wal, _) = open(&disk, &mut twin).unwrap();
        let before =
            [Step::Entries(A, vec![10, 20]), Step::Commit(A), Step::Entries(A, vec![700; 9]), Step::Sync];
        wal = go_on(&disk, wal, &mut twin, &before);
        wal = go_on(&disk, wal, &mut twin, &[install, Step::Entries(A, vec![30, 40]), Step::Sync]);
        let now = twin.groups[&A].now();
        assert_eq!((now.entries.len(), now.last().index), (2, kattu_raft::LogIndex(now.base.index.0 + 2)));
        assert_eq!(kattu_disk::twin::read_all(&mut wal, A, now.last().index), now.entries);
        drop(wal);
        let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
        check(&twin, &mut wal, &recovered);
        assert_eq!(recovered[&A].base, now_base(&twin));
    }
}

fn now_base(twin: &Twin) -> EntryId {
    twin.groups[&A].now().base
}

#[test]
fn a_snapshot_that_was_stored_before_the_log_could_say_so_is_installed_at_the_next_start() {
    // Also what a restored directory looks like: an identity, an empty log, and a snapshot.
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (wal, _) = open(&disk, &mut twin).unwrap();
    let mut story = Twin::default();
    let (_, records) = story.records(&Step::Install(A, 40));
    let kattu_raft::LogBody::Base(base) = records[1].body else { panic!("a base comes last") };
    let meta = story.groups[&A].snapshots[&base].clone();
    let store = wal.snapshots();
    let bytes = kattu_disk::twin::peers_snapshot(A, &meta);
    let total = bytes.len() as u64;
    let piece = kattu_raft::StoreChunk { meta: meta.clone(), offset: 0, bytes: bytes.into(), total };
    assert!(store.store_chunk(A, &piece).unwrap().complete);
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    let found = &recovered[&A];
    assert_eq!((found.base, found.last, found.committed), (base, base, base.index));
    assert_eq!((found.snapshot.as_ref(), found.stamp, found.hard.term), (Some(&meta), meta.stamp, base.term));
    assert_eq!(found.lsn.0, 2);
    wal.sync().unwrap();
    drop(wal);
    let (_, again) = open(&disk, &mut twin).unwrap();
    assert_eq!(again, recovered);
}

/// A directory with two snapshots, a base at the older one, and entries after the newer one.
fn with_two_snapshots(pruned_to_the_newer: bool) -> (SimDisk, Twin, Vec<String>) {
    let disk = SimDisk::new();
    let mut story = vec![Step::Entries(A, vec![10; 4]), Step::Commit(A), Step::Sync, Step::Snapshot(A)];
    story.extend([
        Step::Base(A, 0),
        Step::Config(A, 2),
        Step::Entries(A, vec![900; 6]),
        Step::Commit(A),
        Step::Sync,
    ]);
    story.extend([Step::Snapshot(A), Step::Entries(A, vec![30; 3]), Step::Sync]);
    if pruned_to_the_newer {
        story.push(Step::Base(A, 0));
    }
    story.extend([Step::Sync, Step::Prepare, Step::Mark]);
    let (twin, outcome) = run(&disk, &story);
    outcome.unwrap();
    use kattu_wal::Files;
    let snapshots = disk.names().unwrap().into_iter().filter(|name| name.ends_with(".snap")).collect();
    (disk, twin, snapshots)
}

#[test]
fn a_damaged_snapshot_falls_back_to_the_one_before_while_the_log_reaches_it() {
    let (disk, mut twin, snapshots) = with_two_snapshots(false);
    let [older, newer] = &snapshots[..] else { panic!("{snapshots:?}") };
    let mut bytes = disk.contents(newer).unwrap();
    bytes[300] ^= 4;
    disk.set_contents(newer, Some(bytes));
    let (wal, recovered) = open(&disk, &mut twin).unwrap();
    let found = &recovered[&A];
    assert_eq!(found.snapshot.as_ref().map(|snapshot| snapshot.last), Some(EntryId::new(1, 4)));
    assert_eq!((found.base, found.last, found.committed.0), (EntryId::new(1, 4), EntryId::new(1, 14), 11));
    assert_eq!(found.memberships.len(), 1);
    assert!(
        matches!(wal.complaints(), [WalError::Damaged { file, .. }] if file == newer),
        "{:?}",
        wal.complaints()
    );
    assert!(wal.snapshots().open(A, EntryId::new(1, 11)).unwrap().is_none(), "a damaged snapshot is served");
    drop(wal);
    let mut items = Vec::new();
    let verdict = inspect(&disk, &mut |item| items.push(item.to_string())).unwrap();
    assert_eq!(verdict, Verdict::Clean { closed: false });
    let shown = |start: &str| items.iter().filter(|item| item.starts_with(start)).count();
    assert_eq!(shown("snapshot  group 0  up to 1.4  stamp "), 1, "{items:#?}");
    assert_eq!(shown(&format!("snapshot  {newer}  bad: at byte ")), 1, "{items:#?}");
    assert!(items.iter().any(|item| item.contains("base 1.4  log up to 4")), "{items:#?}");
    assert!(items.iter().any(|item| item.contains("start mark")), "{items:#?}");

    // Both damaged: the log alone does not reach back.
    disk.set_contents(older, None);
    let (wal, recovered) = open(&disk, &mut twin).unwrap();
    assert_eq!(recovered[&A].snapshot, None);
    assert_eq!(recovered[&A].base, EntryId::new(1, 4));
    let said = wal.complaints().last().unwrap().to_string();
    assert!(matches!(wal.complaints().last(), Some(WalError::Uncovered { group: A, .. })), "{said}");
    assert!(
        said.starts_with("the log of group 0 begins after 1.4, and no good snapshot covers that"),
        "{said}"
    );
    assert!(said.contains(newer) && said.contains("asks its leader for a snapshot"), "{said}");
    drop(wal);
    // The log is whole: the damage is in the snapshot before it.
    let verdict = inspect(&disk, &mut |_| {}).unwrap();
    assert!(matches!(&verdict, Verdict::Damaged { file, .. } if file == newer), "{verdict:?}");
    disk.set_contents(newer, None);
    let verdict = inspect(&disk, &mut |_| {}).unwrap();
    assert!(matches!(&verdict, Verdict::Damaged { file, .. } if file.starts_with("log-")), "{verdict:?}");
}

#[test]
fn a_snapshot_that_the_log_does_not_reach_any_more_is_no_fallback() {
    let (disk, mut twin, snapshots) = with_two_snapshots(true);
    disk.set_contents(&snapshots[1], None);
    let (wal, recovered) = open(&disk, &mut twin).unwrap();
    assert_eq!((recovered[&A].snapshot.clone(), recovered[&A].base), (None, EntryId::new(1, 11)));
    let Some(WalError::Uncovered { snapshots: said, .. }) = wal.complaints().last() else {
        panic!("{:?}", wal.complaints());
    };
    assert_eq!(said[..], [format!("the newest good one, {}, ends at 1.4", snapshots[0])]);
}

#[test]
fn every_missing_segment_is_refused_by_name_also_when_the_first_ones_are_pruned() {
    let (disk, twin, _) = with_two_snapshots(true);
    let names = segments(&disk);
    assert!(disk.contents("log-0000000000000001.seg").is_none() && 2 <= names.len(), "{names:?}");
    let first = &names[0];
    let image = disk.copy();
    image.set_contents(first, None);
    let error = open(&image, &mut twin.clone()).unwrap_err();
    assert!(matches!(error, WalError::Damaged { .. }), "{error}");
    // The log begins with its first block: damage to that is damage, also with nothing behind it.
    let whole = disk.contents(first).unwrap();
    for at in 4096..4096 + 256 {
        let image = disk.copy();
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        image.set_contents(first, Some(bytes));
        let error = open(&image, &mut twin.clone()).unwrap_err();
        assert!(matches!(&error, WalError::Damaged { file, .. } if file == first), "{at}: {error}");
    }
}

#[test]
fn a_segment_that_is_used_again_trusts_nothing_of_its_old_content() {
    // For any old blocks behind the end of the log, and any places of new ones among them.
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::new();
        let mut twin = Twin::default();
        let (mut wal, _) = open(&disk, &mut twin).unwrap();
        for _ in 0..6 {
            for _ in 0..2 + dice.below(5) {
                let sizes = (0..1 + dice.below(3)).map(|_| dice.below(900) as usize).collect();
                wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, sizes), Step::Sync]);
            }
            wal = go_on(&disk, wal, &mut twin, &prune(A));
            for image in disk.crash_images(seed, 2).iter().step_by(7) {
                recover(image, &twin);
            }
        }
        assert!(3 < wal.stats().pruned, "seed {seed}: {:?}", wal.stats());
    }
}

#[test]
fn what_outlives_the_log_changes_nothing_in_a_directory_that_has_another_owner() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![900; 6]), Step::Sync]);
    wal = go_on(&disk, wal, &mut twin, &[Step::Commit(A), Step::Snapshot(A), Step::Base(A, 0), Step::Sync]);
    let late = wal.wants_segment().expect("a segment is of no use any more");
    let store = wal.snapshots();
    let meta = twin.groups[&A].snapshots.values().next().unwrap().clone();
    let meta = kattu_raft::SnapshotMeta { last: EntryId::new(1, 77), ..meta };
    let mut writer = store.create(A, meta).unwrap();
    writer.push(b"late").unwrap();
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
    let names = segments(&disk);
    assert!(late.run().unwrap_err().to_string().contains("the log was closed"));
    assert!(writer.finish().is_err());
    assert_eq!(segments(&disk), names);
    assert!(store.newest(A).is_ok(), "who still reads may do so");
    wal = go_on(&disk, wal, &mut twin, &[Step::Prepare, Step::Entries(A, vec![9]), Step::Sync]);
    assert!(disk.contents("log-0000000000000001.seg").is_none());
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
}

#[test]
fn a_segment_that_is_made_ahead_too_late_is_not_made() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    let late = wal.wants_segment().expect("the next one is not there yet");
    drop(wal);
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    let own = wal.wants_segment().expect("nor for its next owner").run().expect("made");
    use kattu_wal::Files;
    let names = disk.names().unwrap();
    assert!(late.run().unwrap_err().to_string().contains("the log was closed"));
    assert_eq!(disk.names().unwrap(), names, "both make files of the same names");
    wal.accept(Ok(own)).expect("it is whole");
    wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![900; 6]), Step::Sync]);
    drop(wal);
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
}

#[test]
fn an_entry_that_was_pruned_is_not_read_and_the_ones_after_it_are() {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).unwrap();
    let story =
        [Step::Entries(A, vec![10; 4]), Step::Commit(A), Step::Sync, Step::Snapshot(A), Step::Base(A, 0)];
    wal = go_on(&disk, wal, &mut twin, &story);
    wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![10; 4]), Step::Sync]);
    let read = |wal: &mut Wal, first: u64| {
        let index = kattu_raft::LogIndex;
        wal.read(A, index(first), index(8), 1 << 20)
            .unwrap()
            .iter()
            .map(|entry| entry.id().index.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(read(&mut wal, 3), []);
    assert_eq!(read(&mut wal, 5), [5, 6, 7, 8]);
    let mut bases = 0;
    inspect(&disk, &mut |item| bases += usize::from(matches!(item, Item::Base { group: A, .. }))).unwrap();
    assert_eq!(bases, 1);
}

#[test]
fn what_is_read_beside_the_log_is_what_was_planned_or_nothing_however_the_log_goes_on() {
    let ids = |entries: &[kattu_raft::Entry]| entries.iter().map(|entry| entry.id()).collect::<Vec<_>>();
    let (mut whole, mut gone) = (0, 0);
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::new();
        let mut twin = Twin::default();
        let (mut wal, _) = open(&disk, &mut twin).unwrap();
        // A reader that was opened long ago and may have a segment open, and a fresh one each time.
        let mut old = wal.reader();
        for _ in 0..8 {
            let sizes = (0..2 + dice.below(5)).map(|_| dice.below(900) as usize).collect();
            wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, sizes), Step::Sync]);
            let (first, last) = (wal.first_index(A), twin.groups[&A].now().last().index);
            let expected = ids(&wal.read(A, first, last, 1 << 20).unwrap());
            assert!(!expected.is_empty());
            let plan = wal.plan(A, first, last, 1 << 20);
            for _ in 0..dice.below(3) {
                wal = go_on(&disk, wal, &mut twin, &prune(A));
                wal = go_on(&disk, wal, &mut twin, &[Step::Entries(A, vec![700; 3]), Step::Sync]);
            }
            let mut fresh = wal.reader();
            for reader in [&mut old, &mut fresh] {
                match reader.read(&plan) {
                    Ok(read) => {
                        assert_eq!(ids(&read), expected);
                        whole += 1;
                    }
                    Err(_) => gone += 1,
                }
            }
            let now = wal.read(A, first, last, 1 << 20).expect("the log knows what it has let go");
            assert!(now.is_empty() || ids(&now) == expected);
        }
    }
    assert!(40 < whole && 40 < gone, "{whole} came back, {gone} were gone");
}
