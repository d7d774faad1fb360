//! Goal: a directory that was written yesterday is read tomorrow. Method: a sample of each of its files is kept as a
//! hex dump of the bytes that are not padding; the files written today must equal it, and the sample must be read.
//! `KATTU_UPDATE=1 cargo test -p kattu-wal golden::` rewrites the samples, which is right only together with a new
//! format version.

use kattu_disk::SimDisk;
use kattu_disk::twin::{GROUPS, OPTIONS, Sectors, Step, Twin, check, open, run, run_with, step};
use kattu_raft::{Incarnation, NodeId};
use kattu_wal::{DataDir, PeerUrls, Wal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT: &str = "log-0000000000000001.seg";

/// A directory with one of everything.
fn sample() -> (SimDisk, Twin) {
    let disk = SimDisk::new();
    let (twin, outcome) = run(
        &disk,
        &[
            Step::Hard(GROUPS[0], Some(2)),
            Step::Entries(GROUPS[0], vec![0, 20]),
            Step::Sync,
            Step::Commit(GROUPS[0]),
            Step::Entries(GROUPS[1], vec![24]),
            Step::Entries(GROUPS[0], vec![16]),
            Step::Sync,
            Step::Truncate(GROUPS[1], 1),
            Step::Sync,
            Step::Restart,
        ],
    );
    outcome.unwrap();
    (disk, twin)
}

/// A directory that was pruned: its second segment begins with a start block, and one snapshot is there.
fn pruned() -> (SimDisk, Twin) {
    let disk = SimDisk::new();
    let group = GROUPS[0];
    let (twin, outcome) = run(
        &disk,
        &[
            Step::Hard(group, Some(2)),
            Step::Entries(group, vec![20, 900, 900]),
            Step::Commit(group),
            Step::Sync,
            Step::Snapshot(group),
            Step::Config(group, 1),
            Step::Base(group, 0),
            Step::Sync,
            Step::Entries(group, vec![900, 900]),
            Step::Sync,
            Step::Entries(GROUPS[1], vec![9]),
            Step::Sync,
            Step::Restart,
        ],
    );
    outcome.unwrap();
    (disk, twin)
}

/// A log for a disk with sectors of 4096 bytes.
fn wide() -> (SimDisk, Twin) {
    let disk = SimDisk::new();
    let twin = Twin { sectors: Sectors::Wide, ..Twin::default() };
    let story = [
        Step::Hard(GROUPS[0], Some(2)),
        Step::Entries(GROUPS[0], vec![5, 20]),
        Step::Sync,
        Step::Entries(GROUPS[1], vec![24]),
        Step::Sync,
        Step::Restart,
    ];
    let (twin, outcome) = run_with(twin, &disk, &story);
    outcome.unwrap();
    (disk, twin)
}

/// The identity of a member that joined, and the vote floor of a log that was cut.
fn joined_and_cut() -> [Vec<u8>; 2] {
    let disk = SimDisk::new();
    let story = [
        Step::Hard(GROUPS[0], Some(2)),
        Step::Entries(GROUPS[0], vec![20, 30]),
        Step::Sync,
        Step::Entries(GROUPS[0], vec![40]),
        Step::Sync,
    ];
    let (_, outcome) = run_with(Twin { joins: true, ..Twin::default() }, &disk, &story);
    outcome.unwrap();
    let mut segment = disk.contents(SEGMENT).unwrap();
    segment[4096 + 100] ^= 1;
    disk.set_contents(SEGMENT, Some(segment));
    Wal::repair(DataDir::open(Arc::new(disk.clone())).unwrap(), OPTIONS).expect("others have what is lost");
    ["identity", "floor-00000000"].map(|name| disk.contents(name).unwrap())
}

/// A directory whose member grants vote holds of one second, has met a voter, and knows two other members.
fn with_small_files() -> SimDisk {
    let (disk, _) = sample();
    let dir = DataDir::open(Arc::new(disk.clone())).unwrap();
    dir.set_vote_hold(VOTE_HOLD).unwrap();
    dir.lives().unwrap().0.meet(MET.0, MET.1).unwrap();
    dir.known_members().unwrap().0.set(known_members()).unwrap();
    disk
}

fn known_members() -> PeerUrls {
    PeerUrls::from([
        (NodeId(2), vec!["http://b:2380".into(), "https://b.example:2380".into()]),
        (NodeId(3), vec![]),
    ])
}

const MET: (NodeId, Incarnation) = (NodeId(2), Incarnation(20));
const VOTE_HOLD: Duration = Duration::from_millis(1000);
const SECOND: &str = "log-0000000000000002.seg";
const SNAPSHOT: &str = "snapshot-00000000-0000000000000003-0000000000000001.snap";

fn hex(bytes: &[u8]) -> String {
    let line = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format!("{name}.hex"))
}

#[test]
fn a_directory_is_written_as_ever() {
    let (disk, _) = sample();
    let segment = disk.contents(SEGMENT).unwrap();
    let slots = disk.contents("slots-00000000").unwrap();
    let mut samples = vec![
        ("identity", disk.contents("identity").unwrap()),
        ("segment-header", segment[..64].to_vec()),
        ("slot", slots[..64].to_vec()),
    ];
    let blocks = ["block-entries", "block-two-groups", "block-truncate", "block-close"];
    for (number, name) in blocks.into_iter().enumerate() {
        let at = 4096 + number * 512;
        let len = u32::from_le_bytes(segment[at + 16..at + 20].try_into().unwrap()) as usize;
        samples.push((name, segment[at..at + len].to_vec()));
    }
    let (disk, _) = pruned();
    let (first, second) = (disk.contents(SEGMENT).unwrap(), disk.contents(SECOND).unwrap());
    let block_at = |segment: &[u8], at: usize| {
        let len = u32::from_le_bytes(segment[at + 16..at + 20].try_into().unwrap()) as usize;
        segment[at..at + len].to_vec()
    };
    let is_base = |at: &usize| first[*at..].starts_with(b"KTBK") && first[*at + 80 + 4] == 17;
    let base = (4096..first.len()).step_by(512).find(is_base).expect("a block with a base");
    samples.push(("block-base", block_at(&first, base)));
    samples.push(("block-start", block_at(&second, 4096)));
    samples.push(("snapshot", disk.contents(SNAPSHOT).unwrap()));
    let (wide, _) = wide();
    samples.push(("block-wide", block_at(&wide.contents(SEGMENT).unwrap(), 4096)));
    let [identity, vote_floor] = joined_and_cut();
    samples.extend([("identity-joined", identity), ("floor", vote_floor)]);
    let with_small_files = with_small_files();
    for name in ["promise", "lives", "members"] {
        samples.push((name, with_small_files.contents(name).unwrap()));
    }
    for (name, bytes) in samples {
        if std::env::var_os("KATTU_UPDATE").is_some() {
            std::fs::write(path(name), hex(&bytes)).unwrap();
            continue;
        }
        let golden = std::fs::read_to_string(path(name)).unwrap();
        assert_eq!(golden, hex(&bytes), "{name}: the format has changed, which needs a new version");
    }
}

#[test]
fn the_samples_are_read() {
    let bytes = |name: &str| -> Vec<u8> {
        let text = std::fs::read_to_string(path(name)).unwrap();
        text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    let (disk, twin) = sample();
    let mut segment = vec![0; disk.contents(SEGMENT).unwrap().len()];
    segment[..64].copy_from_slice(&bytes("segment-header"));
    for (number, name) in
        ["block-entries", "block-two-groups", "block-truncate", "block-close"].iter().enumerate()
    {
        let (at, block) = (4096 + number * 512, bytes(name));
        segment[at..at + block.len()].copy_from_slice(&block);
    }
    let mut slots = vec![0; 8192];
    for place in [0, 4096] {
        slots[place..place + 64].copy_from_slice(&bytes("slot"));
    }
    let (other, _) = pruned();
    other.set_contents(SNAPSHOT, Some(bytes("snapshot")));
    let mut second = other.contents(SECOND).unwrap();
    second[4096..4096 + bytes("block-start").len()].copy_from_slice(&bytes("block-start"));
    other.set_contents(SECOND, Some(second));
    let (_, mut twin_of_other) = pruned();
    let (mut wal, recovered) = open(&other, &mut twin_of_other).unwrap();
    check(&twin_of_other, &mut wal, &recovered);

    let (wide, mut twin_of_wide) = wide();
    let mut segment_of_wide = wide.contents(SEGMENT).unwrap();
    segment_of_wide[4096..4096 + bytes("block-wide").len()].copy_from_slice(&bytes("block-wide"));
    wide.set_contents(SEGMENT, Some(segment_of_wide));
    let (mut wal, recovered) = open(&wide, &mut twin_of_wide).unwrap();
    check(&twin_of_wide, &mut wal, &recovered);

    disk.set_contents("identity", Some(bytes("identity")));
    disk.set_contents(SEGMENT, Some(segment));
    disk.set_contents("slots-00000000", Some(slots));
    disk.set_contents("promise", Some(bytes("promise")));
    disk.set_contents("lives", Some(bytes("lives")));
    disk.set_contents("members", Some(bytes("members")));
    let dir = DataDir::open(Arc::new(disk.clone())).unwrap();
    assert_eq!(dir.vote_hold(), Ok(Ok(VOTE_HOLD)));
    assert_eq!(dir.lives().unwrap().0.all().collect::<Vec<_>>(), [MET]);
    assert_eq!(dir.known_members().unwrap().0.all(), Some(&known_members()));
    drop(dir);
    let mut twin = Twin { vote_holds: vec![VOTE_HOLD], ..twin };
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
    drop(wal);

    // A program with larger sectors goes on in the log of the one before it: its blocks begin at a sector.
    twin.sectors = Sectors::Wide;
    let (mut wal, recovered) = open(&disk, &mut twin).unwrap();
    check(&twin, &mut wal, &recovered);
    let before = blocks(&disk).len();
    for size in [30, 40] {
        wal = step(&disk, wal, &mut twin, &Step::Entries(GROUPS[0], vec![size])).unwrap();
        wal = step(&disk, wal, &mut twin, &Step::Sync).unwrap();
    }
    let new = blocks(&disk).split_off(before);
    assert_eq!(new[0], Place { segment: 1, at: 4096 + 4 * 512, version: 2 }, "right behind what was there");
    assert!(3 < new.len() && new[1..].iter().all(|place| place.at.is_multiple_of(4096)), "{new:?}");

    // And to and fro: a log that is padded to less ends within a sector, which is filled once.
    for sectors in [Sectors::Narrow, Sectors::Wide, Sectors::Wide] {
        wal.close().unwrap();
        twin.sectors = sectors;
        let (mut opened, recovered) = open(&disk, &mut twin).unwrap();
        check(&twin, &mut opened, &recovered);
        wal = step(&disk, opened, &mut twin, &Step::Entries(GROUPS[1], vec![50])).unwrap();
        wal = step(&disk, wal, &mut twin, &Step::Sync).unwrap();
    }
    let all = blocks(&disk);
    let filled = all.iter().filter(|place| place.version == 2 && !place.at.is_multiple_of(4096)).count();
    assert_eq!(filled, 2, "once for each time that smaller blocks were before it: {all:?}");
}

/// Where a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: usize,
    at: usize,
    version: u8,
}

/// All blocks of the log, in their order.
fn blocks(disk: &SimDisk) -> Vec<Place> {
    let mut found = Vec::new();
    for segment in 1.. {
        let Some(bytes) = disk.contents(&format!("log-{segment:016x}.seg")) else { break };
        let starts = (4096..bytes.len()).step_by(512).filter(|&at| bytes[at..].starts_with(b"KTBK"));
        found.extend(starts.map(|at| Place { segment, at, version: bytes[at + 4] }));
    }
    found
}
