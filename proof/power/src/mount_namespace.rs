//! Mount namespace: mounts that no other process sees and that cannot outlive the rig.
//!
//! ```text
//!   rig, which serves the disks ──pipe──▶ keeper, in a mount namespace of its own
//!    └── nsenter ──▶ mount, umount, members, everything else that touches a disk
//! ```
//!
//! The rig itself is never in the namespace. The last process in a mount namespace unmounts its file systems as it
//! ends, and an ext4 writes before it is unmounted: a last process that also serves the disk below would wait for
//! itself, and no signal reaches it there. So a keeper holds the namespace. However the rig ends, its end of
//! `/dev/fuse` closes, every waiting request fails, the members die, and the keeper reads the end of its pipe; the last
//! of them to end takes the mounts along, and with them the loop devices. For the same reason nothing in this process
//! may touch a file in the namespace: a request that waits for this process would keep it from ending.
//! A killed run leaves a folder, which the next run removes.
//! Knows nothing of: the programs in the namespace.

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
/// Mounts left in a namespace have this long to be unmounted when it ends.
const DISSOLVE_LIMIT: Duration = Duration::from_secs(5);

/// A mount namespace; clones are the same one. It ends with the last of them and the last process in it.
#[derive(Clone)]
pub struct MountNamespace {
    keeper: Arc<Keeper>,
}

struct Keeper {
    process: Child,
}

impl MountNamespace {
    /// A new namespace, with the machine's present mounts.
    ///
    /// # Errors
    /// The reason why this machine has none.
    pub fn open() -> Result<MountNamespace, String> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "--", "cat"]);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = unshare.spawn().map_err(|error| format!("unshare: {error}"))?;
        // The answer has been through `cat`, which runs only once the namespace exists.
        let mut line = String::new();
        let asked = process.stdin.as_mut().expect("piped").write_all(b"room\n");
        let answered = BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line);
        if asked.is_ok() && answered.is_ok() && line == "room\n" {
            return Ok(MountNamespace { keeper: Arc::new(Keeper { process }) });
        }
        let mut said = String::new();
        let _ = process.stderr.take().expect("piped").read_to_string(&mut said);
        let _ = process.kill();
        let _ = process.wait();
        Err(format!("no mount name space: {}", said.trim()))
    }

    /// Words that a command line must begin with to run in the namespace.
    pub fn prefix(&self) -> [String; 3] {
        ["nsenter".into(), format!("--mount=/proc/{}/ns/mnt", self.keeper.process.id()), "--".into()]
    }

    /// A program in the namespace; its working directory is the root.
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
        // This process still serves its last writes; should that hang, the keeper ends with this process.
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Why this machine cannot run the rig; `None` if it can.
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

/// The folder of all runs.
pub fn runs() -> PathBuf {
    root().join("target/power")
}

/// The folder of this run.
pub fn own() -> PathBuf {
    runs().join(format!("run-{}", std::process::id()))
}

/// Whether this process dies with its parent.
pub fn is_mortal() -> bool {
    std::env::var_os(MORTAL).is_some()
}

/// Removes the folder of this run.
pub fn leave() {
    let _ = std::fs::remove_dir_all(own());
}

/// Restarts this program with the same arguments, so that it dies with its parent; returns only if that fails.
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

/// Removes folders of runs that ended without doing so, and loop devices on their files.
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

/// Whether the process with this id runs this very program: ids are reused.
fn is_rig(id: u32) -> bool {
    let program = |id: &str| std::fs::read_link(format!("/proc/{id}/exe")).ok()?.file_name().map(own_name);
    program(&id.to_string()).is_some_and(|its| Some(its) == program("self"))
}

/// The name without the kernel's suffix for a file that was replaced by a newer build.
fn own_name(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().trim_end_matches(" (deleted)").to_string()
}
