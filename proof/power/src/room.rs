//! A room of our own: mounts that nobody else sees and that cannot outlive us.
//!
//! The program starts itself again through `unshare`, in a mount name space of its own. When the last process in it ends,
//! however it ends, the kernel takes down all its mounts, and with them the loop devices; members die with us. What is
//! left then is a folder, which the next run removes.
//! Knows nothing of: what happens in the room.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set in the room.
const INSIDE: &str = "KATTU_POWER_ROOM";
const PROGRAMS: [&str; 5] = ["unshare", "mkfs.ext4", "mount", "umount", "losetup"];

/// Why the rig cannot be had here, if it cannot.
pub fn missing() -> Option<String> {
    if !is_root() {
        return Some("mounting needs root".into());
    }
    if let Some(device) =
        ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists())
    {
        return Some(format!("no {device}"));
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let knows = |name: &str| known.lines().any(|line| line.split_whitespace().next_back() == Some(name));
    if let Some(name) = ["ext4", "fuse"].into_iter().find(|name| !knows(name)) {
        return Some(format!("the kernel has no {name}"));
    }
    PROGRAMS.into_iter().find(|program| !can_run(program)).map(|program| format!("no {program}"))
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

fn can_run(program: &str) -> bool {
    Command::new(program)
        .arg("-V")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Where runs keep their things.
pub fn runs() -> PathBuf {
    root().join("target/power")
}

/// We are in the room.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The folder of this run is no longer needed.
pub fn leave() {
    let _ = std::fs::remove_dir_all(runs().join(format!("run-{}", std::process::id())));
}

/// Starts this program again in a room, with the same arguments; returns only if that cannot be done.
pub fn enter() -> io::Error {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return error,
    };
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]);
    unshare.arg(own).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    unshare.exec()
}

/// Removes folders of runs that ended without doing so, and loop devices that still lie on them.
pub fn sweep() {
    let runs = runs();
    for entry in std::fs::read_dir(&runs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix("run-")?.parse::<u32>().ok()) else {
            continue;
        };
        if Path::new(&format!("/proc/{id}")).exists() {
            continue;
        }
        let folder = entry.path();
        for device in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing =
                std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            if Path::new(backing.trim()).starts_with(&folder) {
                let path = Path::new("/dev").join(device.file_name());
                let _ = Command::new("losetup").arg("-d").arg(path).stderr(Stdio::null()).status();
            }
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}
