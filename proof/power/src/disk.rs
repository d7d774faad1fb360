//! A member's disk: FUSE disk, loop device, ext4.
//!
//! ```text
//!   kattu serve ── ext4 ── loop device ── file `disk` ── FUSE ── FuseDisk ── VolatileDisk
//! ```
//!
//! Everything is mounted in a [`crate::mount_namespace`] and unmounted when dropped; the loop device frees itself when
//! its file system is gone. This process serves the file and never touches the mounts: programs that do run in the
//! namespace.
//! Knows nothing of: the files of a member.

use crate::fuse_disk::{FILE, FuseDisk};
use crate::mount_namespace::MountNamespace;
use crate::volatile_disk::Image;
use fuser::BackgroundSession;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options for making and mounting a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Bytes per block of ext4.
    pub block_bytes: u64,
    /// ext4's journal mode for data: `ordered`, `writeback` or `journal`.
    pub data: &'static str,
    /// Seconds between periodic commits of the journal.
    pub commit_secs: u64,
}

/// The kernel's device for file systems that a process serves.
const FUSE: &str = "/dev/fuse";
/// A mount that stays busy for longer than this is unmounted lazily.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(30);

/// An empty file system, as an image.
///
/// # Errors
/// The output of `mkfs.ext4`.
pub fn format(folder: &Path, layout: &Layout) -> Result<Image, String> {
    let path = folder.join("fresh.ext4");
    let made = File::create(&path).and_then(|file| file.set_len(layout.disk_bytes));
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    let block = layout.block_bytes.to_string();
    // No lazy initialization: a kernel thread that writes tables in the background would blur the counts.
    let options = ["-q", "-F", "-m", "0", "-b", &block, "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run(Command::new("mkfs.ext4").args(options).arg(&path))?;
    let image = Image::load(&path).map_err(|error| format!("{}: {error}", path.display()));
    let _ = std::fs::remove_file(&path);
    image
}

/// A mounted disk.
pub struct Disk {
    /// The block device below it.
    pub fuse_disk: FuseDisk,
    session: Option<BackgroundSession>,
    mount_namespace: MountNamespace,
    below: PathBuf,
    mount: PathBuf,
    is_mounted: bool,
}

impl Disk {
    /// Mounts a disk with this image at `folder/data` in the namespace; ext4 replays its journal.
    ///
    /// # Errors
    /// The output of `mount`: the machine cannot, or the image has no file system any more.
    pub fn up(
        mount_namespace: &MountNamespace,
        folder: &Path,
        image: Image,
        layout: &Layout,
    ) -> Result<Disk, String> {
        let (below, mount) = (folder.join("below"), folder.join("data"));
        for path in [&below, &mount] {
            std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let fuse = |error: std::io::Error| format!("FUSE: {error}");
        let device = File::options().read(true).write(true).open(FUSE).map_err(fuse)?;
        let mut command = mount_namespace.command("mount");
        // Standard input is the one descriptor that `mount` inherits.
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0,nosuid,nodev,noatime";
        command.args(["-i", "-t", "fuse", "-o", options, "kattu-power"]).arg(&below);
        run_on(&mut command, device.try_clone().map_err(fuse)?.into())?;
        let fuse_disk = FuseDisk::new(image);
        let mut disk = Disk {
            fuse_disk,
            session: None,
            mount_namespace: mount_namespace.clone(),
            below,
            mount,
            is_mounted: false,
        };
        let session = disk.fuse_disk.serve(device.into());
        match session {
            Ok(session) => disk.session = Some(session),
            Err(error) => {
                unmount(mount_namespace, &disk.below);
                return Err(fuse(error));
            }
        }
        // Without auto_da_alloc, which syncs renamed files without a request: it would hide missing syncs.
        let options = format!(
            "loop,data={},commit={},noauto_da_alloc,errors=remount-ro",
            layout.data, layout.commit_secs
        );
        let mut command = mount_namespace.command("mount");
        command.args(["-t", "ext4", "-o", &options]).arg(disk.below.join(FILE)).arg(&disk.mount);
        run(&mut command)?;
        disk.is_mounted = true;
        Ok(disk)
    }

    /// The mount point of its file system.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Unmounts it; cleanly if it still has power.
    pub fn down(mut self) {
        self.unmount();
    }

    fn unmount(&mut self) {
        if self.is_mounted {
            self.is_mounted = false;
            unmount(&self.mount_namespace, &self.mount);
        }
        if let Some(session) = self.session.take() {
            unmount(&self.mount_namespace, &self.below);
            // The session ends with the kernel's last use; a disk that is stuck must not block this process.
            let end = Instant::now() + UNMOUNT_LIMIT;
            while !session.guard.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Unmounts one of our mounts; lazily if it stays busy.
fn unmount(mount_namespace: &MountNamespace, path: &Path) {
    let end = Instant::now() + UNMOUNT_LIMIT;
    // A process that has just been killed, or a loop device that has just been freed, may keep it busy for a moment.
    while run(mount_namespace.command("umount").arg(path)).is_err() {
        if end < Instant::now() {
            let _ = run(mount_namespace.command("umount").arg("-l").arg(path));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program to the end; returns its output, or its error output.
pub fn run(command: &mut Command) -> Result<String, String> {
    run_on(command, Stdio::null())
}

/// The same with an input.
pub(crate) fn run_on(command: &mut Command, input: Stdio) -> Result<String, String> {
    let ended = command.stdin(input).output();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = ended.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            Err(format!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}
