//! A room for mounts that nobody else sees and that cannot outlive us.
//!
//! ```text
//!  rig, which serves the disks ──pipe──▶ keeper, in a mount name space of its own
//!     └── nsenter ──▶ mount, umount, members, everything else that touches a disk
//! ```
//!
//! We never live in the room ourselves. The last process in a mount name space takes its mounts down on its way out, and
//! an ext4 does not come down before it has written: a process that leaves last and serves what is below would wait for
//! itself, and no signal reaches it there. So a keeper holds the room. However we end, our end of `/dev/fuse` closes,
//! every request that waits fails, the members die, the keeper reads the end of its pipe; whoever of them goes last takes
//! the mounts along, and with them the loop devices. For the same reason nothing in this process may touch a file in
//! the room: what waits there for us would keep us from ending.
//! What is left of a run that was killed is a folder, which the next run removes.
//! Knows nothing of: what happens in the room.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Set in a process that dies with its parent.
const MORTAL: &str = "KATTU_POWER_MORTAL";
const PROGRAMS: [&str; 8] =
    ["unshare", "nsenter", "setpriv", "mkfs.ext4", "e2fsck", "mount", "umount", "losetup"];
/// What is still mounted when a room is given up has this long to come down.
const DISSOLVE_LIMIT: Duration = Duration::from_secs(5);

/// A mount name space; clones are the same one. It ends with the last of them and the last process in it.
#[derive(Clone)]
pub struct MountNamespace {
    keeper: Arc<Keeper>,
}

struct Keeper {
    process: Child,
}

impl MountNamespace {
    /// An empty room, with the mounts of the machine as they are now.
    ///
    /// # Errors
    /// Why there is none to be had.
    pub fn open() -> Result<MountNamespace, String> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "--", "cat"]);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = unshare.spawn().map_err(|error| format!("unshare: {error}"))?;
        // What comes back has been through `cat`, which is there only once the room is.
        let mut line = String::new();
        let greeted = process.stdin.as_mut().expect("piped").write_all(b"room\n");
        let answered = BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line);
        if greeted.is_ok() && answered.is_ok() && line == "room\n" {
            return Ok(MountNamespace { keeper: Arc::new(Keeper { process }) });
        }
        let mut said = String::new();
        let _ = process.stderr.take().expect("piped").read_to_string(&mut said);
        let _ = process.kill();
        let _ = process.wait();
        Err(format!("no mount name space: {}", said.trim()))
    }

    /// What a command line must begin with to run in the room.
    pub fn prefix(&self) -> [String; 3] {
        ["nsenter".into(), format!("--mount=/proc/{}/ns/mnt", self.keeper.process.id()), "--".into()]
    }

    /// A program in the room; its working directory is the root.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let [enter, into, end] = self.prefix();
        let mut command = Command::new(enter);
        command.args([into, end]).arg(program);
        command
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let end = Instant::now() + DISSOLVE_LIMIT;
        // We still serve what it may have to write; should that hang it ends when we do.
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

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

/// Where this run keeps its own.
pub fn own() -> PathBuf {
    runs().join(format!("run-{}", std::process::id()))
}

/// This process dies with its parent.
pub fn is_mortal() -> bool {
    std::env::var_os(MORTAL).is_some()
}

/// The folder of this run is no longer needed.
pub fn leave() {
    let _ = std::fs::remove_dir_all(own());
}

/// Starts this program again with the same arguments, so that it dies with its parent; returns only if that cannot be done.
pub fn become_mortal() -> io::Error {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return error,
    };
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--pdeathsig", "KILL", "--"]);
    setpriv.arg(own).args(std::env::args_os().skip(1)).env(MORTAL, "1");
    setpriv.exec()
}

/// Removes folders of runs that ended without doing so, and loop devices that still lie on them.
pub fn sweep() {
    let runs = runs();
    for entry in std::fs::read_dir(&runs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix("run-")?.parse::<u32>().ok()) else {
            continue;
        };
        if is_rig(id) {
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

/// A process with this id runs the program that we are: ids are used again.
fn is_rig(id: u32) -> bool {
    let program = |id: &str| std::fs::read_link(format!("/proc/{id}/exe")).ok()?.file_name().map(own_name);
    program(&id.to_string()).is_some_and(|its| Some(its) == program("self"))
}

/// Without what the kernel adds when the file was replaced by a newer build.
fn own_name(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().trim_end_matches(" (deleted)").to_string()
}
