//! Goal: a real directory behaves as the simulated one, and every wrong one is refused with advice.

use kattu_raft::{GroupId, Incarnation, LogBody, LogIndex, LogRecord, Lsn, NodeId};
use kattu_wal::{DataDir, Identity, Item, RealFiles, Verdict, Wal, WalError, WalOptions, inspect};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPTIONS: WalOptions = WalOptions {
    segment_bytes: 64 << 10,
    reserve_bytes: 1 << 16,
    window_bytes: 1 << 16,
    block_bytes: 1 << 15,
    sector_bytes: 512,
};
const G: GroupId = GroupId(0);

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("kattu-wal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn identity() -> Identity {
    Identity::single(0xC1, NodeId(0xA), Incarnation(7), "n1")
}

fn open_dir(path: &Path) -> Result<DataDir, WalError> {
    DataDir::open(Arc::new(RealFiles::create(path)?))
}

fn create(path: &Path) -> Wal {
    let mut dir = open_dir(path).unwrap();
    dir.create(identity(), &OPTIONS).unwrap();
    Wal::open(dir, OPTIONS).unwrap().0
}

fn entries(range: std::ops::RangeInclusive<u64>, size: usize) -> Vec<LogRecord> {
    range
        .map(|n| LogRecord { lsn: Lsn(n), body: LogBody::Entry(kattu_disk::twin::entry(G, 1, n, n, size)) })
        .collect()
}

#[test]
fn a_real_log_is_written_restarted_and_read_back() {
    let scratch = Scratch::new("real");
    let path = scratch.0.join("deep/er");
    let mut wal = create(&path);
    wal.append(G, &entries(1..=100, 1000)).unwrap();
    assert_eq!(wal.sync().unwrap(), [(G, Lsn(100))]);
    let task = wal.wants_segment().unwrap();
    wal.accept(task.run()).unwrap();
    wal.append(G, &entries(101..=150, 1000)).unwrap();
    wal.sync().unwrap();
    assert!(3 <= wal.stats().segments, "{:?}", wal.stats());
    drop(wal); // not closed

    let (mut wal, recovered) = Wal::open(open_dir(&path).unwrap(), OPTIONS).unwrap();
    assert_eq!(recovered[&G].last.index, LogIndex(150));
    assert_eq!(kattu_disk::twin::read_all(&mut wal, G, LogIndex(150)).len(), 150);
    wal.close().unwrap();

    let mut lines = Vec::new();
    let files = RealFiles::existing(&path).unwrap();
    let verdict = inspect(&files, &mut |item| lines.push(item));
    assert_eq!(verdict, Ok(Verdict::Clean { closed: true }));
    assert_eq!(lines.iter().filter(|item| matches!(item, Item::Entry { .. })).count(), 150);
    assert_eq!(lines[0].to_string(), "identity  cluster c1  member a n1  incarnation 7");
    assert_eq!(lines[1].to_string(), "slot 0    group 0  generation 1  term 0  vote none  lsn 0");
    let first = lines.iter().find(|item| matches!(item, Item::Entry { .. })).unwrap();
    assert_eq!(first.to_string(), "1:4176    group 0  entry 1.1  Command  stamp 1001  1000 bytes");
}

#[test]
fn a_second_process_is_refused_and_told_which_one_has_the_directory() {
    let scratch = Scratch::new("locked");
    let wal = create(&scratch.0);
    let error = open_dir(&scratch.0).unwrap_err();
    let pid = std::process::id();
    let holder = format!("process {pid}, member n1 (a) of cluster c1");
    assert_eq!(error, WalError::Locked { dir: scratch.0.display().to_string(), holder });
    assert!(error.to_string().contains("stop that process"), "{error}");
    drop(wal);
    open_dir(&scratch.0).unwrap();
}

#[test]
fn a_file_is_not_a_data_directory() {
    let scratch = Scratch::new("file");
    std::fs::create_dir_all(&scratch.0).unwrap();
    let path = scratch.0.join("file");
    std::fs::write(&path, "").unwrap();
    for path in [path.clone(), path.join("below")] {
        let error = open_dir(&path).unwrap_err();
        assert_eq!(error, WalError::NotADirectory { dir: path.display().to_string() });
    }
    assert!(RealFiles::existing(&scratch.0.join("absent")).is_err());
}

#[test]
fn a_directory_without_permission_is_named_as_such() {
    // Root may write to any directory, so it gets a path where none can be made.
    if rustix::process::geteuid().is_root() {
        let error = RealFiles::create(Path::new("/proc/kattu")).unwrap_err();
        assert!(matches!(&error, WalError::Unwritable { .. }), "{error}");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("unwritable");
    std::fs::create_dir_all(&scratch.0).unwrap();
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o500)).unwrap();
    let error = open_dir(&scratch.0).unwrap_err();
    assert!(error.to_string().contains("change its owner or mode"), "{error}");
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let scratch = Scratch::new("foreign");
    std::fs::create_dir_all(scratch.0.join("member/wal")).unwrap();
    let error = open_dir(&scratch.0).unwrap_err();
    assert!(error.to_string().contains("holds `member`, which Kattu did not make"), "{error}");
    assert!(matches!(
        inspect(&RealFiles::existing(&scratch.0).unwrap(), &mut |_| {}),
        Err(WalError::Foreign { .. })
    ));
}

#[test]
fn a_torn_tail_is_shown_then_cut() {
    let scratch = Scratch::new("torn");
    let mut wal = create(&scratch.0);
    wal.append(G, &entries(1..=1, 10)).unwrap();
    wal.sync().unwrap();
    wal.append(G, &entries(2..=2, 2000)).unwrap();
    wal.write().unwrap();
    drop(wal);
    let segment = scratch.0.join("log-0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4096 + 512 + 700] ^= 1; // in the second block, which no block calls synced
    std::fs::write(&segment, bytes).unwrap();

    let files = RealFiles::existing(&scratch.0).unwrap();
    let verdict = inspect(&files, &mut |_| {}).unwrap();
    assert!(matches!(&verdict, Verdict::TornTail { offset: 4608, .. }), "{verdict:?}");
    let (wal, recovered) = Wal::open(open_dir(&scratch.0).unwrap(), OPTIONS).unwrap();
    assert_eq!(recovered[&G].last.index, LogIndex(1));
    assert_eq!(wal.stats().torn_tails, 1);
    assert_eq!(inspect(&files, &mut |_| {}), Ok(Verdict::Clean { closed: false }));
}
