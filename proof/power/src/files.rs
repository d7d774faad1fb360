//! The rig without members: shows on two files that it does its work; and keeps a disk in the middle of a sync.
//!
//! Files are written and read by programs in the mount namespace, as all files there.
//! Knows nothing of: clusters, judges.

use crate::disk::{Disk, Layout, format, run, run_on};
use crate::mount_namespace::MountNamespace;
use crate::volatile_disk::Fate;
use kattu_random::Random;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LAYOUT: Layout = Layout { disk_bytes: 32 << 20, block_bytes: 4096, data: "ordered", commit_secs: 300 };
const BYTES: usize = 100_000;
/// A sync reaches the disk within this time, or the rig does not work.
const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// One file system through one power cut: synced data survives, unsynced data need not. Shows, without any member, that
/// syncs reach the volatile disk and that nothing else makes writes durable.
///
/// # Errors
/// The violated expectation.
pub(crate) fn rig_sees(folder: &Path) -> Result<(), String> {
    let contents = contents(folder)?;
    let mount_namespace = MountNamespace::open()?;
    let fresh = format(folder, &LAYOUT)?;
    for lies in [false, true] {
        let disk = Disk::up(&mount_namespace, folder, fresh.clone(), &LAYOUT)?;
        let before = disk.fuse_disk.counts();
        if lies {
            disk.fuse_disk.hold().lie();
        }
        let (kept, lost) = (disk.path().join("synced"), disk.path().join("unsynced"));
        write(&mount_namespace, &contents, &kept)?;
        run(mount_namespace.command("sync").args([kept.as_path(), disk.path()]))?;
        let synced = disk.fuse_disk.counts();
        if synced.flushes == before.flushes || synced.writes == before.writes {
            return Err(format!("a sync of a file does not reach the disk: {before:?}, then {synced:?}"));
        }
        write(&mount_namespace, &contents, &lost)?;
        let fuse_disk = disk.fuse_disk.clone();
        fuse_disk.hold().cut();
        disk.down();
        let (image, _) = fuse_disk.remains(Fate::Gone, &mut Random::new(1));
        let disk = Disk::up(&mount_namespace, folder, image, &LAYOUT)?;
        let (kept, lost) =
            (is_there(&mount_namespace, &contents, &kept)?, is_there(&mount_namespace, &contents, &lost)?);
        disk.down();
        if lost {
            return Err(format!("a file that nobody synced survived (disk lies: {lies})"));
        }
        if kept == lies {
            return Err(format!("a synced file is there: {kept}, on a disk that lies: {lies}"));
        }
    }
    Ok(())
}

/// Keeps a disk with unwritten data and an unanswered sync until `until` returns; then cuts its power. If this process
/// is killed meanwhile, nothing may be left of the disk.
///
/// # Errors
/// Means that this machine lacks.
pub fn held(folder: &Path, until: impl FnOnce()) -> Result<(), String> {
    let contents = contents(folder)?;
    let mount_namespace = MountNamespace::open()?;
    let disk = Disk::up(&mount_namespace, folder, format(folder, &LAYOUT)?, &LAYOUT)?;
    let file = disk.path().join("file");
    write(&mount_namespace, &contents, &file)?;
    disk.fuse_disk.hold_flushes();
    let mut sync = mount_namespace.command("sync");
    let sync = sync.arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut sync = sync.map_err(|error| format!("sync: {error}"))?;
    let end = Instant::now() + SYNC_LIMIT;
    while !disk.fuse_disk.has_piled_up() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_held = disk.fuse_disk.has_piled_up();
    if is_held {
        until();
    }
    disk.fuse_disk.hold().cut();
    let _ = sync.wait();
    disk.down();
    if is_held { Ok(()) } else { Err("a sync of a file does not reach the disk".into()) }
}

/// The contents of the test files, as a file outside the namespace.
fn contents(folder: &Path) -> Result<std::path::PathBuf, String> {
    let path = folder.join("contents");
    let made = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, vec![7; BYTES]));
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn write(mount_namespace: &MountNamespace, contents: &Path, path: &Path) -> Result<(), String> {
    let input = File::open(contents).map_err(|error| error.to_string())?;
    // Copies its input and syncs nothing.
    let mut command: Command = mount_namespace.command("dd");
    command.args(["bs=64K", "status=none"]).arg(format!("of={}", path.display()));
    run_on(&mut command, input.into()).map(|_| ())
}

fn is_there(mount_namespace: &MountNamespace, contents: &Path, path: &Path) -> Result<bool, String> {
    let script = "cmp -s \"$1\" \"$2\" && echo there || echo gone";
    let said = run(mount_namespace.command("sh").args(["-c", script, "sh"]).args([contents, path]))?;
    match said.trim() {
        "there" => Ok(true),
        "gone" => Ok(false),
        other => Err(format!("cmp: {other}")),
    }
}
