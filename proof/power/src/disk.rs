//! A disk of a member: station, loop device, ext4.
//!
//! ```text
//!  kattu serve ── ext4 ── loop device ── file `disk` ── FUSE ── Station ── Platter
//! ```
//!
//! Everything is mounted in a room ([`crate::mount_namespace`]) and taken down when dropped; the loop device frees itself when its
//! file system is gone. This process serves the file and never touches the mounts: whoever does, runs in the room.
//! Knows nothing of: what is stored.

use crate::fuse_disk::{FILE, FuseDisk};
use crate::mount_namespace::MountNamespace;
use crate::volatile_disk::Image;
use fuser::BackgroundSession;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a file system is made and mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Bytes per block of ext4.
    pub block_bytes: u64,
    /// What ext4 promises of data: `ordered`, `writeback` or `journal`.
    pub data: &'static str,
    /// Seconds between commits of the journal that nobody asked for.
    pub commit_secs: u64,
}

/// The kernel's end of a file system that a process serves.
const FUSE: &str = "/dev/fuse";
/// A mount that does not go away for longer than this is let go lazily.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(30);

/// An empty file system, as an image.
///
/// # Errors
/// What `mkfs.ext4` said.
pub fn format(folder: &Path, layout: &Layout) -> Result<Image, String> {
    let path = folder.join("fresh.ext4");
    let made = File::create(&path).and_then(|file| file.set_len(layout.disk_bytes));
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    let block = layout.block_bytes.to_string();
    // Nothing lazy: a kernel thread that writes tables behind our back would only blur the counts.
    let options = ["-q", "-F", "-m", "0", "-b", &block, "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run(Command::new("mkfs.ext4").args(options).arg(&path))?;
    let image = Image::load(&path).map_err(|error| format!("{}: {error}", path.display()));
    let _ = std::fs::remove_file(&path);
    image
}

/// A mounted disk.
pub struct Disk {
    /// Its lower end.
    pub fuse_disk: FuseDisk,
    session: Option<BackgroundSession>,
    mount_namespace: MountNamespace,
    below: PathBuf,
    mount: PathBuf,
    is_mounted: bool,
}

impl Disk {
    /// Brings a disk with this image up at `folder/data` in the room; ext4 replays its journal.
    ///
    /// # Errors
    /// What `mount` said: the machine cannot, or there is no file system on the image any more.
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
        // Standard input is the one descriptor that gets through to `mount`.
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
        // Without auto_da_alloc, which would sync what is renamed although nobody asked: it hides missing syncs.
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

    /// Where its file system is.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Takes it down, in good order if it still has power.
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
            // It ends when the kernel has let go of the last use; a disk that is stuck shall not hold us.
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

/// Unmounts one mount of ours; lazily if it stays busy.
fn unmount(mount_namespace: &MountNamespace, path: &Path) {
    let end = Instant::now() + UNMOUNT_LIMIT;
    // A process that has just been killed, or a loop device that has just been let go, may hold it for a moment.
    while run(mount_namespace.command("umount").arg(path)).is_err() {
        if end < Instant::now() {
            let _ = run(mount_namespace.command("umount").arg("-l").arg(path));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs to the end; an error is what it said.
pub fn run(command: &mut Command) -> Result<String, String> {
    run_on(command, Stdio::null())
}

/// The same with something to read.
pub fn run_on(command: &mut Command, input: Stdio) -> Result<String, String> {
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
