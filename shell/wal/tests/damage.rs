//! Goal: synced data that a disk has lost is noticed, named with file and offset, and never passed over.
//! Method: every byte of a small directory is flipped, every file is cut, removed, swapped.

use kattu_disk::SimDisk;
use kattu_disk::twin::{self, GROUPS, Step, Twin, check, flipped, open, places, run};
use kattu_raft::{GroupId, Recovered};
use kattu_wal::{Files, Item, Position, Verdict, Wal, WalError, inspect};
use std::collections::BTreeMap;

const A: GroupId = GROUPS[0];
const B: GroupId = GROUPS[1];
const FIRST: &str = "log-0000000000000001.seg";
const SECOND: &str = "log-0000000000000002.seg";

/// A directory of two segments, with or without an idle mark at its end, and its twin.
fn directory(idle_mark: bool) -> (SimDisk, Twin) {
    let story = [
        Step::Entries(A, vec![50]),
        Step::Hard(B, Some(3)),
        Step::Sync,
        Step::Prepare,
        Step::Entries(A, vec![60]),
        Step::Sync,
        Step::Entries(A, vec![70]),
        Step::Sync,
        Step::Entries(B, vec![60]),
        Step::Sync,
    ];
    twin::directory(twin::identity(), &story, idle_mark)
}

/// Where the newest entry's record is.
fn last_entry(disk: &SimDisk) -> Position {
    let mut last = Position::default();
    let verdict = inspect(disk, &mut |item| {
        if let Item::Entry { at, .. } = item {
            last = at;
        }
    });
    assert!(matches!(verdict, Ok(Verdict::Clean { closed: false })), "{verdict:?}");
    last
}

fn name_of(at: Position) -> String {
    format!("log-{:016x}.seg", at.segment)
}

fn reopen(disk: &SimDisk, twin: &Twin) -> Result<(Wal, BTreeMap<GroupId, Recovered>), WalError> {
    open(disk, &mut twin.clone())
}

#[test]
fn every_flipped_byte_is_noticed_or_changes_nothing() {
    let (disk, twin) = directory(true);
    let mut noticed = 0;
    for name in disk.names().unwrap() {
        let whole = disk.contents(&name).unwrap();
        for at in places(&whole) {
            let image = flipped(&disk, &name, at);
            let verdict = inspect(&image, &mut |_| {});
            match reopen(&image, &twin) {
                Ok((mut wal, recovered)) => {
                    // No relevant byte was hit: everything is there.
                    check(&twin, &mut wal, &recovered);
                    assert!(
                        matches!(verdict, Ok(Verdict::Clean { .. } | Verdict::TornTail { .. })),
                        "{name} byte {at}: {verdict:?}"
                    );
                }
                Err(WalError::Damaged { file, offset, what }) => {
                    noticed += 1;
                    assert!(!what.is_empty());
                    assert!(file == name || file == "identity" || name == "identity", "{name}: {file}");
                    if file.ends_with(".seg") {
                        assert!(offset <= at.max(16) as u64, "{name} byte {at} noticed at {offset}");
                    }
                    assert!(matches!(verdict, Ok(Verdict::Damaged { .. })), "{name} byte {at}: {verdict:?}");
                }
                Err(other) => panic!("{name} byte {at}: {other}"),
            }
        }
    }
    assert!(3000 < noticed, "{noticed}");
}

/// Damage to the newest, unmarked block looks like a torn tail: it is cut, and nothing before it is touched. Damage to
/// any block before it is noticed.
#[test]
fn without_an_idle_mark_only_the_last_block_can_be_mistaken_for_a_torn_tail() {
    let (disk, twin) = directory(false);
    let last_at = last_entry(&disk);
    let file = name_of(last_at);
    let last_block = last_at.offset as usize - 80;
    assert!(4096 < last_block, "there is a block before it in the segment");
    let whole = disk.contents(&file).unwrap();
    for at in 4096..last_at.offset as usize + 100 {
        let image = disk.copy();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        image.set_contents(&file, Some(bytes));
        match reopen(&image, &twin) {
            Err(WalError::Damaged { file: named, .. }) => {
                assert_eq!(named, file);
                assert!(at < last_block, "byte {at} of the last block at {last_block} is above every mark");
            }
            Ok((_, recovered)) => {
                let lost = u64::from(last_block <= at);
                let before = twin.groups[&B].now().entries.len() as u64;
                let now = recovered[&B].last.index.0;
                assert!(now == before || (lost == 1 && now == before - 1), "byte {at}: {now} of {before}");
                assert_eq!(recovered[&A].last.index.0, twin.groups[&A].now().entries.len() as u64);
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn every_cut_segment_is_refused() {
    let (disk, twin) = directory(true);
    for name in [FIRST, SECOND] {
        let whole = disk.contents(name).unwrap();
        for len in (0..whole.len()).step_by(131) {
            let image = disk.copy();
            image.set_contents(name, Some(whole[..len].to_vec()));
            let error = reopen(&image, &twin).unwrap_err();
            assert!(matches!(&error, WalError::Damaged { file, .. } if file == name), "{len}: {error}");
        }
    }
}

#[test]
fn every_missing_file_is_refused_by_name() {
    let (disk, twin) = directory(true);
    for name in ["identity", FIRST, SECOND, "slots-00000000", "slots-00000003"] {
        let image = disk.copy();
        assert!(image.contents(name).is_some());
        image.set_contents(name, None);
        let error = reopen(&image, &Twin { created: false, ..twin.clone() }).unwrap_err();
        assert!(matches!(&error, WalError::Damaged { file, .. } if file == name), "{name}: {error}");
        let said = error.to_string();
        assert!(said.contains("missing") && said.contains("neither votes nor serves"), "{said}");
    }
}

#[test]
fn a_vote_without_a_log_is_a_past_that_an_identity_may_not_go_missing_from() {
    let disk = SimDisk::new();
    let (twin, outcome) = run(&disk, &[Step::Hard(A, Some(2)), Step::Sync]);
    outcome.unwrap();
    disk.set_contents("identity", None);
    let error = reopen(&disk, &Twin { created: false, ..twin }).unwrap_err().to_string();
    assert!(error.contains("the file is missing although slots-00000000 holds a vote"), "{error}");
}

#[test]
fn files_of_another_member_are_refused() {
    let (disk, twin) = directory(true);
    let other = SimDisk::new();
    {
        let mut dir = kattu_wal::DataDir::open(std::sync::Arc::new(other.clone())).unwrap();
        let mut identity = kattu_disk::twin::identity();
        identity.incarnation.0 += 1;
        dir.create(identity, &kattu_disk::twin::OPTIONS).unwrap();
    }
    for name in [FIRST, "slots-00000000"] {
        let image = disk.copy();
        image.set_contents(name, other.contents(name));
        let error = reopen(&image, &twin).unwrap_err();
        assert!(matches!(&error, WalError::Damaged { file, .. } if file == name), "{name}: {error}");
    }
    let dir = kattu_wal::DataDir::open(std::sync::Arc::new(other)).unwrap();
    let error = dir.expect(0xC2, kattu_raft::NodeId(9)).unwrap_err().to_string();
    assert!(
        error.contains("it is of cluster c1, this is cluster c2; it is of member 1 (n1), this is member 9"),
        "{error}"
    );
}

#[test]
fn a_stale_block_in_place_of_a_synced_one_is_damage() {
    // A lost write: the disk kept zeros where it had reported a block as synced.
    let (disk, twin) = directory(true);
    let whole = disk.contents(FIRST).unwrap();
    for sector in
        (4096..whole.len()).step_by(512).filter(|&at| whole[at..at + 512].iter().any(|&byte| byte != 0))
    {
        let image = disk.copy();
        let mut bytes = whole.clone();
        bytes[sector..sector + 512].fill(0);
        image.set_contents(FIRST, Some(bytes));
        let error = reopen(&image, &twin).unwrap_err();
        assert!(matches!(&error, WalError::Damaged { file, .. } if file == FIRST), "{sector}: {error}");
    }
    // A misdirected write: a block of this very file in another's place.
    let mut bytes = whole.clone();
    let (first, second) = bytes.split_at_mut(4096 + 512);
    second[..512].copy_from_slice(&first[4096..]);
    disk.set_contents(FIRST, Some(bytes));
    assert!(reopen(&disk, &twin).is_err());
}

#[test]
fn an_old_slot_is_not_taken_for_the_newest() {
    // Both slots fall back to what they were before the last vote: the log names a newer generation.
    let story = [Step::Hard(A, Some(2)), Step::Entries(A, vec![0]), Step::Sync, Step::Mark];
    let disk = SimDisk::new();
    let (_, outcome) = run(&disk, &story);
    outcome.unwrap();
    let old = disk.contents("slots-00000000").unwrap();
    let longer: Vec<Step> = story
        .iter()
        .cloned()
        .chain([Step::Hard(A, Some(3)), Step::Entries(A, vec![5]), Step::Sync])
        .collect();
    let disk = SimDisk::new();
    let (twin, outcome) = run(&disk, &longer);
    outcome.unwrap();
    disk.set_contents("slots-00000000", Some(old));
    let error = reopen(&disk, &twin).unwrap_err();
    assert!(error.to_string().contains("a vote is lost"), "{error}");
}

#[test]
fn one_bad_slot_is_repaired_and_two_are_damage() {
    let (disk, twin) = directory(true);
    let whole = disk.contents("slots-00000000").unwrap();
    for bad in [0, 4096] {
        let image = disk.copy();
        let mut bytes = whole.clone();
        bytes[bad..bad + 64].fill(0xFF);
        image.set_contents("slots-00000000", Some(bytes));
        let (mut wal, recovered) = reopen(&image, &twin).unwrap();
        check(&twin, &mut wal, &recovered);
        assert_eq!(image.contents("slots-00000000").unwrap(), whole, "both slots say the same again");
    }
    let mut bytes = whole;
    bytes[0] ^= 1;
    bytes[4096] ^= 1;
    disk.set_contents("slots-00000000", Some(bytes));
    assert!(reopen(&disk, &twin).unwrap_err().to_string().contains("both slots are bad"));
}

#[test]
fn a_log_of_tomorrow_is_refused_and_not_cut() {
    let (disk, twin) = directory(false);
    // The last block of the log, made again by a version 2.
    let last_at = last_entry(&disk);
    let (file, at) = (name_of(last_at), last_at.offset as usize - 80);
    let mut bytes = disk.contents(&file).unwrap();
    bytes[at + 4] = 2;
    let body = u32::from_le_bytes(bytes[at + 28..at + 32].try_into().unwrap()) as usize;
    let len = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap()) as usize;
    let record_crc = bytes[at + 80 + 44..at + 80 + 48].to_vec();
    let mut crc = crc32c::crc32c(&record_crc);
    crc = crc32c::crc32c_append(crc, &bytes[at + 80 + body..at + len]);
    crc = crc32c::crc32c_append(crc, &bytes[at..at + 8]);
    crc = crc32c::crc32c_append(crc, &bytes[at + 12..at + 80]);
    bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
    disk.set_contents(&file, Some(bytes.clone()));
    let error = reopen(&disk, &twin).unwrap_err();
    assert_eq!(error, WalError::OtherFormat { file: file.clone(), found: 2, supported: 1 });
    assert_eq!(disk.contents(&file).unwrap(), bytes, "nothing was changed");
}

#[test]
fn a_block_of_an_earlier_life_is_not_taken_for_the_next_one() {
    // Two lives write blocks of the same lengths to the same places. The first life's third block shows up behind the
    // second life's second one, as when a disk loses the zeros that cleared it: right file, right place, right number.
    let life = |sizes: [usize; 2]| {
        let disk = SimDisk::new();
        let mut story = vec![Step::Entries(A, vec![10]), Step::Sync];
        for size in sizes {
            story.extend([Step::Entries(A, vec![size]), Step::Write]);
        }
        let (twin, outcome) = run(&disk, &story);
        outcome.unwrap();
        (disk, twin)
    };
    let (first, _) = life([20, 20]);
    let (second, mut twin) = life([21, 20]);
    let mut bytes = second.contents(FIRST).unwrap();
    let third = 4096 + 2 * 512..4096 + 3 * 512;
    bytes[third.clone()].copy_from_slice(&first.contents(FIRST).unwrap()[third]);
    second.set_contents(FIRST, Some(bytes));
    let history = twin.groups.get_mut(&A).unwrap();
    history.moments.truncate(3);
    let (mut wal, recovered) = reopen(&second, &twin).unwrap();
    check(&twin, &mut wal, &recovered);
    assert_eq!(recovered[&A].last.index.0, 2);
    assert_eq!(wal.stats().torn_tails, 1);
}
