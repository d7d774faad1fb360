//! Goal: every disk that could be found after a power cut, at every operation of every transition of the data
//! directory, is recovered without loss and without invention. Method: seeded stories of each transition; at each
//! operation the power goes out; every image is recovered, twice, and written to again; the recovery of some is cut,
//! too. [fault-model F02, F10, §12]
//!
//! Every story runs three times: on a disk with sectors of 512 bytes; on one with sectors of 4096 bytes, which ruins
//! whole ones, with a log that is padded to them; and with a log whose padding changes from start to start.
//!
//! While at most 12 things are doubtful all subsets are images; above that beginnings, ends, every other one and
//! seeded subsets. `KATTU_IMAGES=100000` asks for so many (default 3,000); `KATTU_IMAGES_SEED` begins elsewhere.

use kattu_disk::twin::{
    GROUPS, Meanwhile, OPTIONS, Sectors, Step, Twin, check, open, read_all, recovered_tails, run_with,
};
use kattu_disk::{Dice, Fault, SimDisk, Speed};
use kattu_raft::{GroupId, Recovered};
use kattu_wal::{DataDir, Wal, WalError};
use std::collections::BTreeMap;
use std::sync::Arc;

const A: GroupId = GROUPS[0];
const B: GroupId = GROUPS[1];

/// The operation that is under way when the power goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Transition {
    Creation,
    Append,
    Unsynced,
    Rotation,
    SegmentAhead,
    LargeBlock,
    Truncation,
    TermAndVote,
    Marks,
    Restart,
    FailedSync,
    /// A snapshot is written, read back, renamed; old ones are removed.
    Snapshot,
    /// A base is recorded and segments are removed or recycled.
    Prune,
    /// The same beside the log, which goes on, and makes segments itself if it cannot wait.
    Beside,
    /// A peer's snapshot comes in, over a log that is short of it or contradicts it.
    Install,
    /// The directory of a member that joins is made, and its first snapshot comes in.
    Joining,
    /// Configurations are appended, overwritten, committed, covered by snapshots.
    Membership,
    /// The length of the member's vote holds is recorded, and replaced by a shorter or a longer one.
    VoteHold,
    /// A damaged log is cut by a start, which writes vote floors; the power goes out in that.
    Repair,
}

const ALL: [Transition; 19] = [
    Transition::Creation,
    Transition::Append,
    Transition::Unsynced,
    Transition::Rotation,
    Transition::SegmentAhead,
    Transition::LargeBlock,
    Transition::Truncation,
    Transition::TermAndVote,
    Transition::Marks,
    Transition::Restart,
    Transition::FailedSync,
    Transition::Snapshot,
    Transition::Prune,
    Transition::Beside,
    Transition::Install,
    Transition::Joining,
    Transition::Membership,
    Transition::VoteHold,
    Transition::Repair,
];

/// A story that is about `transition`, of sizes that `dice` chooses.
fn story(transition: Transition, dice: &mut Dice) -> Vec<Step> {
    let size = |dice: &mut Dice, below: u64| dice.below(below) as usize;
    let group = |dice: &mut Dice| if dice.one_in(2) { A } else { B };
    let some = |dice: &mut Dice, below| {
        let sizes = (0..1 + dice.below(3)).map(|_| size(dice, below)).collect();
        Step::Entries(group(dice), sizes)
    };
    let mut story = vec![Step::Entries(A, vec![size(dice, 200)]), Step::Entries(B, vec![30, 40]), Step::Sync];
    match transition {
        Transition::Creation => return Vec::new(),
        Transition::Joining => {
            let mut story = vec![Step::Hard(A, None), Step::Install(A, 5 + dice.below(40))];
            story.extend([Step::Sync].into_iter().filter(|_| dice.one_in(2)));
            story.extend([some(dice, 300), Step::Config(A, dice.below(3)), Step::Sync]);
            return story;
        }
        Transition::Membership => {
            for _ in 0..3 {
                let which = group(dice);
                story.extend([Step::Config(which, dice.below(4)), some(dice, 300)]);
                story.push(if dice.one_in(2) { Step::Write } else { Step::Sync });
                // Another leader does not have it, and changes something else.
                let over = [Step::Truncate(which, 1 + dice.below(5)), Step::Config(which, dice.below(4))];
                story.extend(over.into_iter().filter(|_| dice.one_in(2)));
                story.extend([Step::Commit(which), Step::Sync]);
                let covered =
                    [Step::Snapshot(which), Step::Base(which, 0), Step::Config(which, dice.below(4))];
                story.extend(if dice.one_in(2) { covered.to_vec() } else { vec![Step::Write] });
                story.extend([Step::Restart].into_iter().filter(|_| dice.one_in(3)));
            }
            story.push(Step::Sync);
        }
        Transition::VoteHold => {
            for _ in 0..3 {
                story.extend([some(dice, 500)].into_iter().filter(|_| dice.one_in(2)));
                story.push(Step::VoteHold(dice.below(4) * 1000));
                story.extend([some(dice, 500), Step::Sync].into_iter().filter(|_| dice.one_in(3)));
            }
            story.push(Step::Sync);
        }
        Transition::Repair => {
            for _ in 0..3 {
                let which = group(dice);
                story.extend([some(dice, 1500), Step::Commit(which), Step::Sync]);
                let over = [Step::Truncate(which, 1 + dice.below(3)), some(dice, 300)];
                story.extend(over.into_iter().filter(|_| dice.one_in(2)));
                story.extend([Step::Hard(group(dice), Some(2)), some(dice, 1500), Step::Sync]);
            }
            story.extend([Step::Mark].into_iter().filter(|_| dice.one_in(2)));
        }
        Transition::Append => {
            for _ in 0..3 {
                story.extend([some(dice, 1200), Step::Commit(group(dice)), Step::Sync]);
            }
        }
        Transition::Unsynced | Transition::FailedSync => {
            for _ in 0..2 + dice.below(5) {
                story.extend([some(dice, 500), Step::Write]);
            }
        }
        Transition::Rotation => {
            for _ in 0..3 {
                story.extend([some(dice, 3000), Step::Sync]);
            }
        }
        Transition::SegmentAhead => {
            for _ in 0..2 {
                story.extend([Step::Prepare, some(dice, 3000), some(dice, 3000), Step::Sync]);
            }
        }
        Transition::LargeBlock => {
            let large = Step::Entries(group(dice), vec![8000 + size(dice, 4000)]);
            story.extend([Step::Prepare, large, Step::Sync, some(dice, 100), Step::Sync]);
        }
        Transition::Truncation => {
            for _ in 0..2 {
                let which = group(dice);
                story.extend([Step::Entries(which, vec![size(dice, 700), 11, 12]), Step::Write]);
                story.extend([Step::Truncate(which, 1 + dice.below(3)), some(dice, 700), Step::Sync]);
            }
        }
        Transition::TermAndVote => {
            for _ in 0..3 {
                let vote = (!dice.one_in(3)).then(|| 1 + dice.below(3));
                story.extend([Step::Hard(group(dice), vote), some(dice, 200)]);
                story.push(if dice.one_in(2) { Step::Sync } else { Step::Write });
            }
            story.push(Step::Sync);
        }
        Transition::Marks => {
            story.extend([Step::Commit(A), Step::Mark, Step::Hard(B, Some(2)), Step::Sync, Step::Mark]);
            story.extend([some(dice, 900), Step::Sync, Step::Commit(group(dice)), Step::Mark]);
        }
        Transition::Restart => {
            story.extend([some(dice, 900), Step::Write, Step::Restart, some(dice, 900), Step::Restart]);
        }
        Transition::Snapshot => {
            for _ in 0..3 {
                let which = group(dice);
                story.extend([some(dice, 900), Step::Config(which, dice.below(3)), Step::Commit(which)]);
                // Committed entries need not be on this disk yet.
                story.extend([Step::Sync, Step::Write].into_iter().filter(|_| dice.one_in(2)));
                story.extend([Step::Snapshot(which), Step::Tidy(which)]);
                story.extend(
                    [Step::Base(which, dice.below(2) as usize)].into_iter().filter(|_| dice.one_in(2)),
                );
            }
            story.push(Step::Sync);
        }
        Transition::Prune => {
            for _ in 0..1 + dice.below(2) {
                story.extend([some(dice, 2500), some(dice, 2500), Step::Sync]);
                for which in GROUPS {
                    let back = usize::from(dice.one_in(4));
                    story.extend([Step::Commit(which), Step::Snapshot(which), Step::Base(which, back)]);
                }
                story.push(if dice.one_in(4) { Step::Write } else { Step::Sync });
                story.extend([Step::Prepare, some(dice, 2500)]);
                story.extend([Step::Restart].into_iter().filter(|_| dice.one_in(3)));
                story.extend(GROUPS.map(Step::Tidy));
            }
            story.extend([Step::Sync, Step::Prepare]);
        }
        Transition::Beside => {
            for _ in 0..3 {
                let sizes =
                    |dice: &mut Dice| vec![500 + dice.below(900) as usize; 2 + dice.below(3) as usize];
                let (which, meanwhile) = (group(dice), Meanwhile::drawn(dice));
                story.push(Step::Beside(which, sizes(dice), meanwhile));
                for which in GROUPS {
                    story.extend([Step::Commit(which), Step::Snapshot(which), Step::Base(which, 0)]);
                }
                story.push(Step::Sync);
                let (which, meanwhile) = (group(dice), Meanwhile::drawn(dice));
                story.push(Step::Beside(which, sizes(dice), meanwhile));
                story.extend([Step::Prepare, Step::Restart].into_iter().filter(|_| dice.one_in(3)));
            }
        }
        Transition::Install => {
            for _ in 0..2 {
                let which = group(dice);
                story.extend([Step::Commit(which), Step::Entries(which, vec![size(dice, 900); 4])]);
                story.push(if dice.one_in(2) { Step::Write } else { Step::Sync });
                story.push(match dice.below(3) {
                    0 => Step::Install(which, 1 + dice.below(9)),
                    _ => Step::InstallOver(which),
                });
                story.extend([Step::Entries(which, vec![20, 30])].into_iter().filter(|_| dice.one_in(2)));
                story.extend([Step::Sync, Step::Tidy(which), Step::Prepare, some(dice, 900)]);
            }
            story.push(Step::Sync);
        }
    }
    story
}

#[derive(Default)]
struct Counts {
    images: BTreeMap<Transition, u64>,
    /// Of them, in a recovery that was itself cut.
    in_recovery: u64,
    /// Images with something to cut off.
    torn: u64,
    torn_by: BTreeMap<Transition, u64>,
    /// Of them, those with whole blocks behind a torn one.
    blocks_behind: u64,
    doubts_max: usize,
}

impl Counts {
    fn sum(&self) -> u64 {
        self.images.values().sum()
    }
}

/// Places of the log at which a block begins.
fn blocks(disk: &SimDisk) -> Vec<(u64, usize)> {
    let mut places = Vec::new();
    for segment in 1..64 {
        let Some(bytes) = disk.contents(&format!("log-{segment:016x}.seg")) else { break };
        let starts = (4096..bytes.len()).step_by(512).filter(|&at| bytes[at..].starts_with(b"KTBK"));
        places.extend(starts.map(|at| (segment, at)));
    }
    places
}

/// Recovers one image, and sometimes cuts that.
fn try_image(image: &SimDisk, twin: &Twin, transition: Transition, seed: u64, counts: &mut Counts) -> u64 {
    let mut tried = 1;
    if counts.sum().is_multiple_of(199) {
        tried += cut_in_recovery(image, twin, seed);
        counts.in_recovery += tried - 1;
    }
    let found = image.copy();
    if recovered_tails(image, twin) != 0 {
        counts.torn += 1;
        *counts.torn_by.entry(transition).or_default() += 1;
        // The blocks that recovery cut: a second block behind the first cut one was behind a torn or a missing one.
        let cut = found.copy();
        open(&cut, &mut twin.clone()).unwrap();
        let kept = blocks(&cut);
        let gone = blocks(&found).into_iter().filter(|place| !kept.contains(place)).count();
        counts.blocks_behind += u64::from(1 < gone);
    }
    tried
}

/// Cuts the power at every operation of a recovery; every disk found then must recover to the same.
fn cut_in_recovery(image: &SimDisk, twin: &Twin, seed: u64) -> u64 {
    let uncut = image.copy();
    let created = twin.created;
    let (mut wal, expected) = open(&uncut, &mut twin.clone()).unwrap();
    check(twin, &mut wal, &expected);
    let mut tried = 0;
    for cut in 0..uncut.operations() {
        let disk = image.copy();
        disk.lose_power_after(cut);
        assert!(
            open(&disk, &mut twin.clone()).is_err(),
            "recovery needs all {} operations",
            uncut.operations()
        );
        for found in disk.crash_images(seed ^ cut, 2).into_iter().step_by(3) {
            let (_, recovered) = open(&found, &mut Twin { created, ..twin.clone() }).unwrap();
            assert_eq!(recovered, expected, "recovery cut at operation {cut}");
            tried += 1;
        }
    }
    tried
}

/// A directory whose log is damaged such that a start can repair it and loses entries, which a vote floor bounds; and
/// the groups as that start recovers them.
fn damaged(whole: &SimDisk, dice: &mut Dice) -> (SimDisk, BTreeMap<GroupId, Recovered>, u64) {
    let places = blocks(whole);
    for _ in 0..1000 {
        let (segment, at) = places[dice.below(places.len() as u64) as usize];
        let name = format!("log-{segment:016x}.seg");
        let mut bytes = whole.contents(&name).expect("a block was seen in it");
        let len = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().expect("four bytes"));
        bytes[at + dice.below(u64::from(len)) as usize] ^= 1 << dice.below(8);
        let disk = whole.copy();
        disk.set_contents(&name, Some(bytes));
        let uncut = disk.copy();
        let Ok((_, found)) = repair(&uncut) else { continue };
        if found.values().any(|group| group.vote_floor.is_some()) {
            let operations = uncut.operations();
            return (disk, found, operations);
        }
    }
    panic!("nothing of {} blocks can be mended", places.len());
}

fn repair(disk: &SimDisk) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
    Wal::repair(DataDir::open(Arc::new(disk.clone()))?, OPTIONS)
}

/// All images of one repair, cut at each of its operations: the next start brings it to the same end, no vote floor is
/// lower, and no further start forgets one.
fn sweep_repair(seed: u64, counts: &mut Counts) {
    let mut dice = Dice::new(seed);
    let story = story(Transition::Repair, &mut dice);
    let whole = SimDisk::new();
    let (twin, outcome) = run_with(Twin { joins: true, ..Twin::default() }, &whole, &story);
    outcome.expect("the story runs to its end with power");
    let (disk, expected, operations) = damaged(&whole, &mut dice);
    for cut in 0..=operations {
        let torn = disk.copy();
        torn.lose_power_after(cut);
        let ended = repair(&torn); // an error in removing an unneeded file is ignored
        assert!(ended.is_ok() || cut < operations, "{:?}", ended.err());
        drop(ended);
        counts.doubts_max = counts.doubts_max.max(torn.doubts());
        torn.each_crash_image(seed ^ cut, 12, &mut |image| {
            let (mut wal, found) = repair(&image).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
            for (&group, expected) in &expected {
                let (found, history) = (&found[&group], &twin.groups[&group]);
                assert_eq!((found.last, found.hard), (expected.last, expected.hard), "cut at {cut}");
                assert!(expected.vote_floor <= found.vote_floor, "cut at {cut}: {:?}", found.vote_floor);
                let entries = read_all(&mut wal, group, found.last.index);
                let ever = history.moments.iter().any(|moment| moment.entries == entries);
                assert!(ever, "cut at {cut}: group {} was never {entries:?}", group.0);
            }
            drop(wal);
            let (_, again) = open(&image, &mut twin.clone()).expect("what was mended is whole");
            for (group, found) in &found {
                assert_eq!(again[group].vote_floor, found.vote_floor, "cut at {cut}: a restart forgets it");
            }
            *counts.images.entry(Transition::Repair).or_default() += 1;
        });
    }
}

/// All images of one story, cut at each of its operations.
fn sweep(transition: Transition, seed: u64, counts: &mut Counts) {
    if transition == Transition::Repair {
        return sweep_repair(seed, counts);
    }
    let story = story(transition, &mut Dice::new(seed));
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        sweep_story(transition, &story, seed.wrapping_add(number as u64), layout, counts);
    }
}

/// The sector size of a disk, and the padding of the log on it.
const LAYOUTS: [(usize, Sectors); 3] =
    [(512, Sectors::Narrow), (4096, Sectors::Wide), (512, Sectors::Both { wide: true })];

fn sweep_story(
    transition: Transition,
    story: &[Step],
    seed: u64,
    (physical, sectors): (usize, Sectors),
    counts: &mut Counts,
) {
    let whole = SimDisk::new();
    let nobody = || Twin { joins: transition == Transition::Joining, sectors, ..Twin::default() };
    let (_, outcome) = run_with(nobody(), &whole, story);
    outcome.expect("the story runs to its end with power");
    let begun = SimDisk::new();
    open(&begun, &mut nobody()).unwrap();
    // Cuts during creation have transitions of their own.
    let creates = matches!(transition, Transition::Creation | Transition::Joining);
    let first = if creates { 0 } else { begun.operations() + 1 };
    for cut in first..=whole.operations() {
        let disk = SimDisk::seeded(seed ^ cut, Speed::INSTANT).with_physical_sectors(physical);
        if transition == Transition::FailedSync {
            // The sync before fails; the process stops, and then the power goes out.
            disk.lose_power_after(cut);
            let (mut twin, _) = run_with(nobody(), &disk, story);
            disk.process_dies(u64::MAX);
            let again = disk.mount();
            disk.arm(Fault::SyncFails { survive_percent: 40, forget: cut % 2 == 0 }, cut % 5);
            let _ = open(&again, &mut twin);
            disk.process_dies(u64::MAX);
            each_image(&disk, &twin, transition, seed ^ cut, counts);
            continue;
        }
        disk.lose_power_after(cut);
        let (twin, outcome) = run_with(nobody(), &disk, story);
        assert_eq!(outcome.is_ok(), cut == whole.operations(), "{outcome:?}");
        each_image(&disk, &twin, transition, seed ^ cut, counts);
    }
}

fn each_image(disk: &SimDisk, twin: &Twin, transition: Transition, seed: u64, counts: &mut Counts) {
    counts.doubts_max = counts.doubts_max.max(disk.doubts());
    disk.each_crash_image(seed, 24, &mut |image| {
        let tried = try_image(&image, twin, transition, seed, counts);
        *counts.images.entry(transition).or_default() += tried;
    });
}

#[test]
fn every_image_of_every_transition_is_recovered() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let wanted = number("KATTU_IMAGES").unwrap_or(3_000);
    let first_seed = number("KATTU_IMAGES_SEED").unwrap_or(1);
    let mut counts = Counts::default();
    let mut seed = first_seed;
    while counts.sum() < wanted || seed == first_seed {
        for transition in ALL {
            // Short transitions are swept more often.
            let before = counts.images.get(&transition).copied().unwrap_or(0);
            let swept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for again in 0..20 {
                    sweep(transition, seed + (again << 32), &mut counts);
                    if (wanted / 40).min(400) < counts.images[&transition] - before {
                        break;
                    }
                }
            }));
            if let Err(panic) = swept {
                eprintln!("in a sweep of {transition:?}");
                eprintln!("repeat: KATTU_IMAGES=1 KATTU_IMAGES_SEED={seed} cargo test -p kattu-wal images::");
                std::panic::resume_unwind(panic);
            }
        }
        seed += 1;
    }
    for (transition, images) in &counts.images {
        println!("{images:>9}  {transition:?}, {} torn", counts.torn_by.get(transition).unwrap_or(&0));
    }
    println!(
        "{} images, 0 violations, seeds {first_seed}..{seed}; {} in a recovery that was cut, {} with a torn tail, {} of \
         them with blocks behind it; at most {} things were doubtful",
        counts.sum(),
        counts.in_recovery,
        counts.torn,
        counts.blocks_behind,
        counts.doubts_max
    );
    assert_eq!(counts.images.len(), ALL.len(), "every transition has images");
    assert!(counts.images.values().all(|&images| 30 < images));
    assert!(0 < counts.blocks_behind && 12 < counts.doubts_max);
}

/// Goal: the images of a disk with sectors of 4096 bytes show the purpose of padding.
#[test]
fn a_log_that_takes_its_disk_for_a_finer_one_loses_what_was_synced() {
    let mut hurt = 0;
    for seed in 0..3 {
        let story = story(Transition::Append, &mut Dice::new(seed));
        let whole = SimDisk::new();
        let (_, outcome) = run_with(Twin::default(), &whole, &story);
        outcome.expect("the story runs to its end with power");
        for cut in 0..=whole.operations() {
            let disk = SimDisk::new().with_physical_sectors(4096);
            disk.lose_power_after(cut);
            let (twin, _) = run_with(Twin::default(), &disk, &story);
            disk.each_crash_image(seed ^ cut, 12, &mut |image| {
                let is_hurt = match open(&image, &mut twin.clone()) {
                    Ok((_, found)) => twin.groups.iter().any(|(group, history)| {
                        found[group].last.index < history.moments[history.acked].last().index
                    }),
                    Err(_) => true,
                };
                hurt += u64::from(is_hurt);
            });
        }
    }
    assert!(10 < hurt, "{hurt} images lack what a sync promised");
}
