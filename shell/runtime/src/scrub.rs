//! The scrub: all files of the data directory are read and checked in the background, so that damage is found while every
//! other copy is still good. [fault-model ST12]
//!
//! A thread of its own reads slowly, from the disk and not from the page cache. Members write meanwhile, and files come
//! and go: damage counts only if it is seen at the same place twice. Damage to the log of a member that has peers ends
//! the process, with the reason: the next start repairs the log from them, and no damaged entry is ever served or sent,
//! since every entry is checked when it is read. All other damage is logged: the next start repairs a bad slot, takes a
//! higher floor for a bad one, and waits out an unreadable vote hold. A damaged snapshot is not sent any more: it is
//! one of two, or by the time that it is needed a newer one has replaced it, or a peer's does.
//! Knows nothing of: what is in the files.

use crate::engine::Facts;
use crate::metrics::Metrics;
use crate::report;
use kattu_raft::Duration;
use kattu_wal::{Item, SnapshotStore, UncachedFiles, Verdict, WalError, inspect};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Items after which it rests, and for how long: checking costs processor time.
const ITEMS_AT_ONCE: u64 = 16;
const REST: Duration = Duration::from_millis(1);
/// Pause before the second look at apparent damage.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// The first scrub begins soon after the start: the files have just been read once.
const FIRST: u32 = 8;

/// The data directories of the other voters.
const INCARNATIONS: &str = "lives";
/// The members that this one knows.
const KNOWN_MEMBERS: &str = "members";
/// The vote hold that this member may have granted.
const VOTE_HOLD: &str = "promise";

/// Apparent damage: the file, and the words for the operator.
type Found = BTreeSet<(String, String)>;

/// Starts it, unless `period` is zero. It ends with the process.
pub(crate) fn start(
    place: PathBuf,
    period: Duration,
    facts: Arc<Facts>,
    snapshots: SnapshotStore,
    metrics: Arc<Metrics>,
) -> std::io::Result<()> {
    if period.is_zero() {
        return Ok(());
    }
    let work = move || {
        let _ = rustix::process::nice(10);
        std::thread::sleep(period / FIRST);
        loop {
            for (file, what) in &confirmed(&place) {
                note(file, what, &snapshots, &metrics);
                // Membership changes: a member that was alone at the start may have peers to repair from by now, and
                // the other way round.
                if facts.has_peers.load(Ordering::Relaxed) && file.starts_with("log-") {
                    report::last_words(format_args!(
                        "stopping, so that the next start repairs the log from the other members"
                    ));
                    std::process::exit(1);
                }
            }
            metrics.scrubs.add(1);
            std::thread::sleep(period);
        }
    };
    std::thread::Builder::new().name("kattu-scrub".into()).spawn(work).map(|_| ())
}

/// Logs damage; a damaged snapshot is not used any more.
fn note(file: &str, what: &str, snapshots: &SnapshotStore, metrics: &Metrics) {
    metrics.scrub_damages.add(1);
    report::warn(format_args!("the scrub found damage: {what}"));
    // The page cache may still have good bytes, so that another look through it would find nothing.
    snapshots.found_damaged(file, "the scrub found damage");
}

/// Damage that is seen at the same place twice.
fn confirmed(place: &std::path::Path) -> Found {
    let first = look(place);
    if first.is_empty() {
        return first;
    }
    std::thread::sleep(SECOND_LOOK);
    let second = look(place);
    first.intersection(&second).cloned().collect()
}

/// Reads everything once. A file that is being removed, and so cannot be read, is checked the next time.
fn look(place: &std::path::Path) -> Found {
    let mut found = Found::new();
    let Ok(files) = UncachedFiles::existing(place) else { return found };
    let mut items = 0_u64;
    let verdict = inspect(&files, &mut |item| {
        items += 1;
        if items.is_multiple_of(ITEMS_AT_ONCE) {
            std::thread::sleep(REST);
        }
        match item {
            Item::Slot { group, place, state: Err(what) } => {
                let file = format!("slots-{:08x}", group.0);
                let what =
                    format!("{file}: slot {place}: {what}; the next start repairs it from the other one");
                found.insert((file, what));
            }
            Item::VoteFloor { group, state: Err(what) } => {
                let file = format!("floor-{:08x}", group.0);
                let what = format!("{file}: {what}; the next start takes a higher one");
                found.insert((file, what));
            }
            Item::Snapshot { file, state: Err(what) } => {
                let what = format!("{file}: {what}; the snapshot before it, or a peer's, replaces it");
                found.insert((file, what));
            }
            Item::Incarnations { state: Err(what) } => {
                found.insert((
                    INCARNATIONS.into(),
                    format!("lives: {what}; the next start records them anew"),
                ));
            }
            Item::KnownMembers { state: Err(what) } => {
                let what = format!("members: {what}; the next start writes down the members it knows anew");
                found.insert((KNOWN_MEMBERS.into(), what));
            }
            Item::VoteHold { state: Err(what) } => {
                let what =
                    format!("promise: {what}; the next run withholds its vote for 50 s, and writes it anew");
                found.insert((VOTE_HOLD.into(), what));
            }
            _ => {}
        }
    });
    match verdict {
        Ok(Verdict::Damaged { file, .. }) if is_told(&found, &file) => {}
        Ok(Verdict::Damaged { file, offset, what }) => {
            let what = format!("{file}: damaged at byte {offset}: {what}");
            found.insert((file, what));
        }
        Err(error @ (WalError::Damaged { .. } | WalError::Foreign { .. })) => {
            found.insert(("identity".into(), error.to_string()));
        }
        Ok(Verdict::Clean { .. } | Verdict::TornTail { .. }) | Err(_) => {}
    }
    found
}

/// Whether damage to this file has been reported already, with its consequence. Not so of slots: each bad one is
/// reported as repaired from the other.
fn is_told(found: &Found, file: &str) -> bool {
    !file.starts_with("slots-") && found.iter().any(|(told, _)| told == file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::{EntryId, GroupId, Incarnation, NodeId, SnapshotMeta};
    use kattu_wal::{DataDir, Identity, RealFiles, WalOptions};

    /// A directory that is gone when the test is over.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(what: &str) -> Scratch {
            let place = std::env::temp_dir().join(format!("kattu-scrub-{what}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&place);
            Scratch(place)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn damage_to_any_byte_of_the_vote_hold_is_found_and_reported_once() {
        let scratch = Scratch::new("promise");
        let files = RealFiles::create(&scratch.0).expect("a directory");
        let mut dir = DataDir::open(Arc::new(files)).expect("the directory is free");
        let options = WalOptions { segment_bytes: 64 << 10, reserve_bytes: 0, ..WalOptions::default() };
        let identity = Identity::single(0xC1, NodeId(1), Incarnation(42), "n1");
        dir.create(identity, &options).expect("made");
        assert_eq!(look(&scratch.0), Found::new(), "there are no leases");
        dir.set_vote_hold(Duration::from_secs(1)).expect("written");
        assert_eq!(look(&scratch.0), Found::new());

        let file = scratch.0.join(VOTE_HOLD);
        let whole = std::fs::read(&file).expect("it is there");
        for byte in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << (byte % 8);
            std::fs::write(&file, &flipped).expect("written");
            let found: Vec<(String, String)> = look(&scratch.0).into_iter().collect();
            let [(name, what)] = &found[..] else { panic!("byte {byte}: {found:?}") };
            assert_eq!(name, VOTE_HOLD);
            assert!(what.starts_with("promise: checksum mismatch; the next run withholds"), "{what}");
        }
        std::fs::write(&file, &whole[..31]).expect("written");
        let found: Vec<(String, String)> = look(&scratch.0).into_iter().collect();
        assert!(found.len() == 1 && found[0].1.contains("31 bytes, expected 32"), "{found:?}");
        std::fs::write(&file, &whole).expect("written");
        assert_eq!(look(&scratch.0), Found::new());
    }

    #[test]
    fn a_snapshot_that_is_found_damaged_is_not_sent_any_more() {
        let scratch = Scratch::new("snapshot");
        let files = Arc::new(RealFiles::create(&scratch.0).expect("a directory"));
        let mut dir = DataDir::open(files.clone()).expect("the directory is free");
        let options = WalOptions { segment_bytes: 64 << 10, reserve_bytes: 0, ..WalOptions::default() };
        dir.create(Identity::single(0xC1, NodeId(1), Incarnation(42), "n1"), &options).expect("made");
        let store = SnapshotStore::of(files, 0xC1).expect("a directory");
        let (group, last) = (GroupId(0), EntryId::new(1, 7));
        let mut writer = store.create(group, SnapshotMeta { last, ..SnapshotMeta::default() }).expect("room");
        writer.push(&[7; 5000]).expect("room");
        let name = writer.finish().expect("a good disk").name;
        assert_eq!(look(&scratch.0), Found::new());

        let file = scratch.0.join(&name);
        let mut bytes = std::fs::read(&file).expect("it is there");
        bytes[2000] ^= 1;
        std::fs::write(&file, &bytes).expect("written");
        let found = look(&scratch.0);
        assert!(matches!(store.open(group, last), Ok(Some(_))), "it is not marked so far");
        let metrics = Metrics::default();
        found.iter().for_each(|(file, what)| note(file, what, &store, &metrics));
        assert_eq!(metrics.scrub_damages.get(), 1, "{found:?}");
        assert!(matches!(store.open(group, last), Ok(None)));
    }

    #[test]
    fn one_damaged_file_is_told_once_and_two_bad_slots_with_the_verdict() {
        let found =
            ["snapshot-1.snap", "promise", "slots-00000000"].map(|file| (file.to_owned(), "bad".to_owned()));
        let found = Found::from(found);
        assert!(is_told(&found, "snapshot-1.snap") && is_told(&found, "promise"));
        assert!(!is_told(&found, "slots-00000000"));
        assert!(!is_told(&found, "snapshot-2.snap") && !is_told(&found, "log-0000000000000001.seg"));
    }
}
