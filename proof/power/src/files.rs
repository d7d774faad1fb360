//! The rig on its own, without any member: what it is for, seen on two files; and a disk in the worst of moments.
//!
//! Files are written and read by programs in the room, as everything there is.
//! Knows nothing of: clusters, judges.

use crate::disk::{Disk, Layout, format, run, run_on};
use crate::platter::Fate;
use crate::room::Room;
use kattu_chaos::random::Random;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LAYOUT: Layout = Layout { disk_bytes: 32 << 20, block_bytes: 4096, data: "ordered", commit_secs: 300 };
const BYTES: usize = 100_000;
/// A sync reaches the disk within this time, or something is wrong.
const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// A file system on its own through one loss: what was synced is there, what was not need not be. Shows, without any
/// member, that syncs reach the platter and that nothing else makes writes durable.
///
/// # Errors
/// What is not as it should be.
pub fn rig_sees(folder: &Path) -> Result<(), String> {
    let contents = contents(folder)?;
    let room = Room::open()?;
    let fresh = format(folder, &LAYOUT)?;
    for lies in [false, true] {
        let disk = Disk::up(&room, folder, fresh.clone(), &LAYOUT)?;
        let before = disk.station.counts();
        if lies {
            disk.station.hold().lie();
        }
        let (kept, lost) = (disk.path().join("synced"), disk.path().join("unsynced"));
        write(&room, &contents, &kept)?;
        run(room.command("sync").args([kept.as_path(), disk.path()]))?;
        let synced = disk.station.counts();
        if synced.flushes == before.flushes || synced.writes == before.writes {
            return Err(format!("a sync of a file does not reach the disk: {before:?}, then {synced:?}"));
        }
        write(&room, &contents, &lost)?;
        let station = disk.station.clone();
        station.hold().cut();
        disk.down();
        let (image, _) = station.remains(Fate::Gone, &mut Random::new(1));
        let disk = Disk::up(&room, folder, image, &LAYOUT)?;
        let (kept, lost) = (is_there(&room, &contents, &kept)?, is_there(&room, &contents, &lost)?);
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

/// A disk with unwritten data and somebody in the middle of a sync that is not answered, until `until` returns; then it
/// loses its power. Whoever kills us meanwhile must find nothing left of it.
///
/// # Errors
/// What the machine cannot do.
pub fn held(folder: &Path, until: impl FnOnce()) -> Result<(), String> {
    let contents = contents(folder)?;
    let room = Room::open()?;
    let disk = Disk::up(&room, folder, format(folder, &LAYOUT)?, &LAYOUT)?;
    let file = disk.path().join("file");
    write(&room, &contents, &file)?;
    disk.station.dam();
    let mut sync = room.command("sync");
    let sync = sync.arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut sync = sync.map_err(|error| format!("sync: {error}"))?;
    let end = Instant::now() + SYNC_LIMIT;
    while !disk.station.has_piled_up() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_held = disk.station.has_piled_up();
    if is_held {
        until();
    }
    disk.station.hold().cut();
    let _ = sync.wait();
    disk.down();
    if is_held { Ok(()) } else { Err("a sync of a file does not reach the disk".into()) }
}

/// What files are made of, as a file outside the room.
fn contents(folder: &Path) -> Result<std::path::PathBuf, String> {
    let path = folder.join("contents");
    let made = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, vec![7; BYTES]));
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn write(room: &Room, contents: &Path, path: &Path) -> Result<(), String> {
    let input = File::open(contents).map_err(|error| error.to_string())?;
    // Copies from its input and syncs nothing.
    let mut command: Command = room.command("dd");
    command.args(["bs=64K", "status=none"]).arg(format!("of={}", path.display()));
    run_on(&mut command, input.into()).map(|_| ())
}

fn is_there(room: &Room, contents: &Path, path: &Path) -> Result<bool, String> {
    let script = "cmp -s \"$1\" \"$2\" && echo there || echo gone";
    let said = run(room.command("sh").args(["-c", script, "sh"]).args([contents, path]))?;
    match said.trim() {
        "there" => Ok(true),
        "gone" => Ok(false),
        other => Err(format!("cmp: {other}")),
    }
}
