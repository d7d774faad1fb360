//! Images: one log, random steps, and every disk that could be found afterwards.
//!
//! A seed decides the steps (entries, truncations, votes, marks, restarts) and what happens to the disk: power lost at
//! any operation, lost again after the restart, a sync that fails, a process that dies and then the machine, damage at
//! rest. The judge is the naive twin of the log's own tests: in all that is found nothing that a sync acknowledged is
//! missing and nothing is invented, a power cut is no damage, and damage is detected.
//! Knows nothing of: members, clusters, clients.

use crate::catch::promise_in;
use kattu_disk::twin::{
    GROUPS, Meanwhile, Moment, Sectors, Step, Twin, check, open, read_all, recover, run, run_with, step,
};
use kattu_disk::{Dice, SimDisk};
use kattu_raft::GroupId;
use kattu_wal::WalError;

/// Images looked at per seed, at most.
const IMAGES_MAX: usize = 40;

/// The guarantee that each message of the twin is about.
const PROMISES: &[(&str, &str)] = &[
    ("never was one since the last answered sync", "recovered_as_written"),
    ("is not of this or a later moment", "vote_as_promised"),
    ("the term went back", "vote_as_promised"),
    ("a power cut is no damage", "power_cut_is_no_damage"),
    ("a process that died left no damage", "power_cut_is_no_damage"),
    ("what was told after a restart is gone", "recovery_is_for_good"),
    ("is gone", "recovered_as_written"),
    ("what was recovered can be read", "recovered_can_be_read"),
    ("recovery found something else the second time", "recovered_twice_is_recovered_once"),
    ("a torn tail is cut once", "recovered_twice_is_recovered_once"),
    ("one damaged slot of two loses nothing", "one_slot_is_enough"),
    ("no snapshot covers the base", "base_is_covered"),
    ("the snapshot holds something else than was written", "snapshot_as_written"),
];

/// The guarantee that was broken, by the message of the panic.
pub fn promise_of(message: &str) -> String {
    promise_in(message, PROMISES).unwrap_or("log_asserts").to_string()
}

/// One trial. Panics if the log breaks a guarantee.
pub fn trial(seed: u64) {
    let mut dice = Dice::new(seed);
    let story = story(&mut dice);
    match dice.below(8) {
        0..=2 => power_cut(&mut dice, &story),
        3 => second_life(&mut dice, &story),
        4 => failing_sync(&mut dice, &story),
        5 => process_then_machine(&mut dice, &story),
        6 => damaged_block(&mut dice, &story),
        _ => damaged_slot(&mut dice, &story),
    }
    // The same again with snapshots and a log that is pruned.
    let mut dice = Dice::new(!seed);
    let story = pruned_story(&mut dice);
    match dice.below(4) {
        0..=1 => power_cut(&mut dice, &story),
        2 => process_then_machine(&mut dice, &story),
        _ => damaged_snapshot(&mut dice, &story),
    }
    // And with segments that are made beside the log while it goes on.
    let mut dice = Dice::new(seed ^ BESIDE);
    let story = story_beside(&mut dice);
    power_cut(&mut dice, &story);
    // And on a disk that writes 4096 bytes as one.
    let story = story_beside(&mut dice);
    wide_power_cut(&mut dice, &story);
}

/// Separates the dice of one story of a seed from the others.
const BESIDE: u64 = 0xBE51DE;

/// Entries that fill segments, snapshots that free them, and a task beside the log that is early or late.
fn story_beside(dice: &mut Dice) -> Vec<Step> {
    let mut story = Vec::new();
    for _ in 0..2 + dice.below(3) {
        let sizes = vec![300 + dice.below(900) as usize; 2 + dice.below(4) as usize];
        story.push(Step::Beside(group(dice), sizes, Meanwhile::drawn(dice)));
        if dice.one_in(2) {
            for which in GROUPS {
                story.extend([Step::Commit(which), Step::Snapshot(which), Step::Base(which, 0)]);
            }
            story.push(Step::Sync);
        }
        story.push(Step::Entries(group(dice), vec![dice.below(900) as usize; 2]));
        story.push(if dice.one_in(3) { Step::Write } else { Step::Sync });
    }
    story
}

/// Entries, snapshots of them, snapshots of peers over them, and segments that go and come again.
fn pruned_story(dice: &mut Dice) -> Vec<Step> {
    let mut story = Vec::new();
    for _ in 0..2 + dice.below(4) {
        for _ in 0..1 + dice.below(3) {
            let sizes = (0..1 + dice.below(4)).map(|_| dice.below(900) as usize).collect();
            story.extend([
                Step::Entries(group(dice), sizes),
                if dice.one_in(3) { Step::Write } else { Step::Sync },
            ]);
        }
        let which = group(dice);
        match dice.below(4) {
            0 => {
                story.extend([Step::Commit(which), Step::Entries(which, vec![dice.below(300) as usize; 4])]);
                story.push(if dice.one_in(3) {
                    Step::Install(which, 1 + dice.below(9))
                } else {
                    Step::InstallOver(which)
                });
                story.extend([Step::Entries(which, vec![20]), Step::Sync]);
            }
            1 => story.extend([
                Step::Commit(which),
                Step::Snapshot(which),
                Step::Base(which, dice.below(2) as usize),
            ]),
            _ => {
                for each in GROUPS {
                    story.extend([Step::Commit(each), Step::Snapshot(each), Step::Base(each, 0)]);
                }
            }
        }
        story.extend([Step::Sync, Step::Prepare]);
        if dice.one_in(2) {
            story.push(Step::Tidy(which));
        }
        if dice.one_in(4) {
            story.push(Step::Restart);
        }
    }
    story
}

/// A bit of a snapshot is flipped: the snapshot is reported and not read, and one before it, or the log, makes up for
/// it, or the log says that nothing does.
fn damaged_snapshot(dice: &mut Dice, story: &[Step]) {
    let (disk, twin) = at_rest(story);
    let mut names = kattu_wal::Files::names(&disk).expect("a disk lists its names");
    names.retain(|name| name.ends_with(".snap"));
    for name in names {
        let whole = disk.contents(&name).expect("it is there");
        let mut bytes = whole.clone();
        bytes[dice.below(whole.len() as u64) as usize] ^= 1 << dice.below(8);
        let image = disk.copy();
        image.set_contents(&name, Some(bytes));
        let (wal, found) = open(&image, &mut twin.clone()).expect("a damaged snapshot is no damaged log");
        for (&group, found) in &found {
            let Some(snapshot) = &found.snapshot else { continue };
            let Some(reader) = wal.snapshots().open(group, snapshot.last).expect("the disk can be read")
            else {
                continue;
            };
            let read: Result<Vec<_>, _> = reader.chunks().and_then(Iterator::collect);
            let is_right = read.is_ok_and(|read| read == kattu_disk::twin::chunks(group, snapshot.last));
            assert!(is_right, "{name}: the snapshot holds something else than was written");
        }
    }
}

fn group(dice: &mut Dice) -> GroupId {
    GROUPS[dice.below(2) as usize]
}

fn story(dice: &mut Dice) -> Vec<Step> {
    let steps = 3 + dice.below(12);
    (0..steps).map(|_| draw(dice)).collect()
}

fn draw(dice: &mut Dice) -> Step {
    match dice.below(20) {
        0..=6 => {
            let sizes = (0..1 + dice.below(3)).map(|_| match dice.below(7) {
                0..=3 => dice.below(120) as usize,
                4..=5 => 300 + dice.below(1200) as usize,
                _ => 4000 + dice.below(5000) as usize,
            });
            let sizes = sizes.collect();
            Step::Entries(group(dice), sizes)
        }
        7 => Step::Truncate(group(dice), 1 + dice.below(4)),
        8..=9 => Step::Hard(group(dice), (dice.below(2) == 0).then(|| 1 + dice.below(3))),
        10..=11 => Step::Commit(group(dice)),
        12..=13 => Step::Write,
        14..=17 => Step::Sync,
        18 => {
            if dice.one_in(2) {
                Step::Mark
            } else {
                Step::Prepare
            }
        }
        _ => Step::Restart,
    }
}

/// Takes some of the images that a power cut could leave now, in any order.
fn images(disk: &SimDisk, dice: &mut Dice) -> Vec<SimDisk> {
    let mut images = disk.crash_images(dice.roll(), 12);
    for place in 0..images.len() {
        let other = place + dice.below((images.len() - place) as u64) as usize;
        images.swap(place, other);
    }
    images.truncate(IMAGES_MAX);
    images
}

/// How many operations on the disk the story takes.
fn operations(story: &[Step]) -> u64 {
    let disk = SimDisk::new();
    let (_, outcome) = run(&disk, story);
    assert!(outcome.is_ok(), "a story runs to its end with power: {outcome:?}");
    disk.operations()
}

/// The power goes out at some operation.
fn power_cut(dice: &mut Dice, story: &[Step]) {
    let disk = SimDisk::new();
    disk.lose_power_after(dice.below(operations(story) + 1));
    let (twin, _) = run(&disk, story);
    for image in images(&disk, dice) {
        recover(&image, &twin);
    }
}

/// The power goes out on a disk that writes 4096 bytes as one, with a log that knows it.
fn wide_power_cut(dice: &mut Dice, story: &[Step]) {
    let twin = || Twin { sectors: Sectors::Wide, ..Twin::default() };
    let whole = SimDisk::new();
    let (_, outcome) = run_with(twin(), &whole, story);
    assert!(outcome.is_ok(), "a story runs to its end with power: {outcome:?}");
    let disk = SimDisk::new().with_physical_sectors(4096);
    disk.lose_power_after(dice.below(whole.operations() + 1));
    let (twin, _) = run_with(twin(), &disk, story);
    for image in images(&disk, dice) {
        recover(&image, &twin);
    }
}

/// The power goes out with blocks in doubt; the restarted log writes other blocks to the same places, and loses power
/// too.
fn second_life(dice: &mut Dice, story: &[Step]) {
    let disk = SimDisk::new();
    let mut story = story.to_vec();
    for _ in 0..1 + dice.below(4) {
        story.push(Step::Entries(group(dice), vec![dice.below(40) as usize]));
        story.push(Step::Write);
    }
    let (twin, outcome) = run(&disk, &story);
    assert!(outcome.is_ok(), "a story runs to its end with power: {outcome:?}");
    let mut found_disks = images(&disk, dice);
    found_disks.truncate(8);
    for image in found_disks {
        let mut second = twin.clone();
        let (mut wal, found) =
            open(&image, &mut second).unwrap_or_else(|error| panic!("a power cut is no damage: {error}"));
        check(&second, &mut wal, &found);
        for (group, history) in &mut second.groups {
            // The found state is the state now, unless term and vote were ahead of it.
            let entries = read_all(&mut wal, *group, found[group].last.index);
            let is_found = |moment: &Moment| moment.entries == entries && moment.hard == found[group].hard;
            let Some(at) = history.moments.iter().rposition(is_found) else { return };
            history.moments.truncate(at + 1);
            history.acked = at;
        }
        for _ in 0..1 + dice.below(3) {
            let next = Step::Entries(group(dice), vec![dice.below(40) as usize]);
            for step_now in [next, Step::Write] {
                wal = step(&image, wal, &mut second, &step_now).expect("the second life has power");
            }
        }
        drop(wal);
        for later in images(&image, dice) {
            recover(&later, &second);
        }
    }
}

/// A sync fails and the process tries again. What a later sync acknowledges must be there.
fn failing_sync(dice: &mut Dice, story: &[Step]) {
    let disk = SimDisk::new();
    let mut twin = Twin::default();
    let (mut wal, _) = open(&disk, &mut twin).expect("an empty disk is opened");
    disk.fail_syncs_after(dice.below(8));
    for now in story {
        let (group, records) = twin.records(now);
        if wal.append(group, &records).is_err() {
            break;
        }
        let mut synced = wal.sync();
        if synced.is_err() {
            disk.fail_syncs_after(u64::MAX); // only this one fails
            synced = wal.sync();
        }
        match synced {
            Ok(_) => twin.ack(),
            Err(_) => break, // the process stops
        }
    }
    drop(wal);
    for image in images(&disk, dice) {
        recover(&image, &twin);
    }
}

/// The process dies, restarts and recovers; then the machine loses power. What recovery returned is there for good.
fn process_then_machine(dice: &mut Dice, story: &[Step]) {
    let disk = SimDisk::new();
    let mut story = story.to_vec();
    story.push(Step::Entries(group(dice), vec![dice.below(900) as usize]));
    story.push(Step::Write);
    let (mut twin, outcome) = run(&disk, &story);
    assert!(outcome.is_ok(), "a story runs to its end with power: {outcome:?}");
    let (mut wal, told) = open(&disk, &mut twin).expect("a process that died left no damage");
    check(&twin, &mut wal, &told);
    for image in images(&disk, dice) {
        let (_, later) = open(&image, &mut twin.clone()).expect("a power cut is no damage");
        assert_eq!(later, told, "what was told after a restart is gone");
    }
}

/// The story, ended with everything synced and marked.
fn at_rest(story: &[Step]) -> (SimDisk, Twin) {
    let disk = SimDisk::new();
    let mut story = story.to_vec();
    story.extend([Step::Entries(GROUPS[0], vec![30]), Step::Sync, Step::Mark]);
    let (twin, outcome) = run(&disk, &story);
    assert!(outcome.is_ok(), "a story runs to its end with power: {outcome:?}");
    (disk, twin)
}

/// A bit of a segment is flipped in what was written: detected, or without any effect.
fn damaged_block(dice: &mut Dice, story: &[Step]) {
    let (disk, twin) = at_rest(story);
    let name = "log-0000000000000001.seg";
    let whole = disk.contents(name).expect("the first segment is there");
    let used = whole.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    for _ in 0..8 {
        let mut bytes = whole.clone();
        let at = dice.below(used as u64) as usize;
        bytes[at] ^= 1 << dice.below(8);
        let image = disk.copy();
        image.set_contents(name, Some(bytes));
        match open(&image, &mut twin.clone()) {
            Ok((mut wal, found)) => check(&twin, &mut wal, &found),
            Err(WalError::Damaged { .. } | WalError::OtherFormat { .. }) => {}
            Err(other) => panic!("byte {at} was flipped: {other}"),
        }
    }
}

/// One of the two slots of term and vote is unreadable: the other one has everything.
fn damaged_slot(dice: &mut Dice, story: &[Step]) {
    let (disk, twin) = at_rest(story);
    let name = "slots-00000000";
    let mut bytes = disk.contents(name).expect("the slots are there");
    let place = 4096 * dice.below(2) as usize;
    bytes[place + dice.below(64) as usize] ^= 0xA5;
    disk.set_contents(name, Some(bytes));
    let (mut wal, found) = open(&disk, &mut twin.clone())
        .unwrap_or_else(|error| panic!("one damaged slot of two loses nothing: {error}"));
    check(&twin, &mut wal, &found);
}
