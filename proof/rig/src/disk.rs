//! Disk faults: full disks on a small file system, and failing system calls injected by `strace`.
//!
//! A [`SmallDisk`] is an ext4 image on a loop device: only this disk is full, and its errors are those of a real file
//! system. [`injecting`] starts the unmodified binary so that its n-th call of a kind fails or kills it;
//! [`inject_into`] does so to a running process. Not every machine can do both: [`missing`] returns the reason.
//! Knows nothing of: members, their reactions.

use crate::programs::{OwnFolder, signal, until};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Returns from the test, with a line that is counted, if the machine lacks something that the rig needs.
#[macro_export]
macro_rules! need_rig {
    ($rig:expr) => {
        if let Some(why) = $crate::disk::missing($rig) {
            let thread = std::thread::current();
            println!("SKIPPED {}: {why}", thread.name().unwrap_or("?"));
            return;
        }
    };
}

/// A kind of disk fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rig {
    /// A file system on a loop device.
    Loop,
    /// System calls that fail.
    Inject,
}

/// Why this machine cannot run a rig; `None` if it can.
pub fn missing(rig: Rig) -> Option<String> {
    match rig {
        Rig::Loop => {
            if !is_root() {
                return Some("mounting needs root".into());
            }
            if !Path::new("/dev/loop-control").exists() {
                return Some("no loop devices".into());
            }
            ["mkfs.ext4", "mount", "umount", "fallocate"]
                .into_iter()
                .find(|program| !can_run(Command::new(program).arg("-V")))
                .map(|program| format!("no {program}"))
        }
        Rig::Inject => {
            let mut trial = Command::new("strace");
            trial.args(["-f", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1", "true"]);
            match trial.stdout(Stdio::null()).stderr(Stdio::null()).status() {
                Err(error) => Some(format!("no strace: {error}")),
                Ok(status) if !status.success() => Some("strace may not trace here".into()),
                Ok(_) => None,
            }
        }
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

fn can_run(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Files that a small disk can hold.
const FILES_MAX: usize = 1024;

/// When a disk is filled, so many bytes are written, not allocated: the file system reserves some of its free space.
const SLACK: u64 = 8 << 20;

/// A file system of a few MiB. Declare it before the cluster on it: variables drop in reverse order.
pub struct SmallDisk {
    /// Dropped after the disk is unmounted.
    _folder: OwnFolder,
    mount: PathBuf,
    mounted: bool,
}

impl SmallDisk {
    /// Makes and mounts it.
    ///
    /// # Errors
    /// The output of `mkfs.ext4` or `mount`.
    pub fn make(what: &str, mib: u64) -> Result<SmallDisk, String> {
        let folder = OwnFolder::new(&format!("disk-{what}"));
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        let mut disk = SmallDisk { _folder: folder, mount, mounted: false };
        let file = File::create(&image).and_then(|file| file.set_len(mib << 20));
        file.and_then(|()| std::fs::create_dir(&disk.mount)).map_err(|error| error.to_string())?;
        // No blocks reserved for root: the member runs as root here, and full should mean full.
        let layout = ["-q", "-F", "-m", "0", "-b", "4096", "-N", &FILES_MAX.to_string()];
        run(Command::new("mkfs.ext4").args(layout).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&disk.mount))?;
        disk.mounted = true;
        Ok(disk)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Free bytes for an ordinary user, and the size in bytes, as the file system counts them.
    pub fn free_and_size(&self) -> (u64, u64) {
        let shown = Command::new("stat").args(["-f", "-c", "%a %b %S"]).arg(&self.mount).output();
        let text = String::from_utf8(shown.expect("stat can be run").stdout).expect("numbers");
        let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        (numbers[0] * numbers[2], numbers[1] * numbers[2])
    }

    fn ballast_file(&self) -> PathBuf {
        self.mount.join("ballast")
    }

    /// Takes all free bytes but `leave`, once.
    pub fn fill(&self, leave: u64) {
        let mut file =
            File::options().create(true).append(true).open(self.ballast_file()).expect("a ballast file");
        // Most of it is allocated, not written: a member's next sync would have to wait for written bytes.
        let at = file.metadata().expect("its size").len();
        let most = self.free_and_size().0.saturating_sub(leave + SLACK) & !4095;
        if 0 < most {
            let range = ["-o", &at.to_string(), "-l", &most.to_string()];
            // A member may have taken some of it meanwhile; then all is taken by writing.
            let _ = run(Command::new("fallocate").args(range).arg(self.ballast_file()));
        }
        let chunk = vec![0x5A; 64 << 10];
        loop {
            let take = self.free_and_size().0.saturating_sub(leave);
            if take < 4096 || grow(&mut file, &chunk, take) < take {
                return;
            }
        }
    }

    /// Takes all free bytes, also those that become free later, until the ballast is dropped.
    pub fn fill_and_hold(&self) -> Ballast {
        self.fill(0);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, path) = (stop.clone(), self.ballast_file());
        let thread = std::thread::spawn(move || {
            let mut file = File::options().create(true).append(true).open(&path).expect("a ballast file");
            let (chunk, crumb) = (vec![0x5A; 64 << 10], vec![0x5A; 4096]);
            while !stopped.load(Ordering::Relaxed) {
                grow(&mut file, &chunk, u64::MAX);
                grow(&mut file, &crumb, u64::MAX);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ballast { stop, thread: Some(thread) }
    }

    /// Makes empty files until no inode is free, though bytes are.
    pub fn fill_names(&self) {
        let crowd = self.mount.join("crowd");
        std::fs::create_dir_all(&crowd).expect("room for a folder");
        let made = (0..).take_while(|number| File::create(crowd.join(number.to_string())).is_ok()).count();
        assert!(made <= FILES_MAX, "{made} files on a disk that takes {FILES_MAX}");
    }

    /// Frees all that was taken.
    pub fn relieve(&self) {
        let _ = std::fs::remove_file(self.ballast_file());
        let _ = std::fs::remove_dir_all(self.mount.join("crowd"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if self.mounted {
            // A process that has just been killed may keep it busy for a moment.
            let gone = (0..100).any(|_| {
                let gone = run(Command::new("umount").arg(&self.mount)).is_ok();
                if !gone {
                    std::thread::sleep(Duration::from_millis(20));
                }
                gone
            });
            if !gone {
                let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
            }
        }
    }
}

/// A thread that takes every free byte of a disk; dropped, it stops and leaves the bytes taken.
pub struct Ballast {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Ballast {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Appends up to `wanted` bytes in pieces; returns how many fitted.
fn grow(file: &mut File, piece: &[u8], wanted: u64) -> u64 {
    let mut taken = 0;
    while taken < wanted {
        let part = piece.len().min((wanted - taken) as usize);
        match file.write(&piece[..part]) {
            Ok(written) if 0 < written => taken += written as u64,
            _ => break,
        }
    }
    taken
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A fault that `strace` injects into the n-th call of some kinds.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Comma-separated names of system calls; each call is counted separately, per thread.
    pub calls: &'static str,
    /// The effect, in strace's notation: `error=EIO` or `signal=SIGKILL`.
    pub what: &'static str,
    /// Which call, from 1; `3+` is the third and all after it.
    pub when: String,
    /// Only calls that access this file; `None`: all.
    pub file: Option<PathBuf>,
}

impl Fault {
    fn arguments(&self, trace: &Path) -> Vec<String> {
        let Fault { calls, what, when, file } = self;
        let inject = format!("inject={calls}:{what}:when={when}");
        let trace = trace.display().to_string();
        let words =
            ["-f", "-qq", "-o", &trace, "-e", &format!("trace={calls}"), "-e", &inject].map(str::to_string);
        let file = file.iter().flat_map(|file| ["-P".to_string(), file.display().to_string()]);
        words.into_iter().chain(file).collect()
    }
}

/// A command that runs with a fault injected; killed when dropped, so that a test that fails leaves none.
pub struct Injected(Child);

impl Injected {
    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("our child")
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("our child")
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command with a fault injected. The child is the command itself: `strace -D` detaches itself.
pub fn injecting(fault: &Fault, trace: &Path, command: &Command, log: File) -> Injected {
    let mut strace = Command::new("strace");
    strace.arg("-D").args(fault.arguments(trace)).arg(command.get_program()).args(command.get_args());
    strace.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
    Injected(strace.spawn().expect("strace can be run"))
}

/// A strace that is attached to a process; detaches when dropped.
pub struct Attached(Child);

/// Injects a fault into a running process; calls are counted from now on.
#[track_caller]
pub fn inject_into(process: u32, fault: &Fault, trace: &Path) -> Attached {
    let mut strace = Command::new("strace");
    strace.args(fault.arguments(trace)).args(["-p", &process.to_string()]);
    let child = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let attached = Attached(child.expect("strace can be run"));
    until("strace has hold of every thread", || {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
        let traced = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            // A thread that is dead already has met its fault.
            status.contains("State:\tZ") || !status.lines().any(|line| line == "TracerPid:\t0")
        };
        tasks.flatten().all(traced).then_some(())
    });
    attached
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SIGTERM lets it detach; a tracer that is killed outright leaves a living tracee stopped.
        if matches!(self.0.try_wait(), Ok(None)) {
            signal(self.0.id(), "TERM");
        }
        let _ = self.0.wait();
    }
}
