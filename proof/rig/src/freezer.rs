//! A process in a frozen cgroup (version 1): all its threads stop at once, and it cannot even be killed.
//!
//! Knows nothing of: the process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A frozen process; thawed when dropped.
pub(crate) struct Freezer {
    folder: PathBuf,
    guard: Option<Child>,
}

/// Mount point of the freezer, on machines that have one.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// Whether processes can be frozen here.
///
/// # Errors
/// The reason why not.
pub fn can_freeze() -> Result<(), String> {
    let folder = Path::new(FREEZER).join(format!("kattu-rig-{}-try", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("no freezer: {error}"))?;
    let has_state = folder.join("freezer.state").exists();
    let _ = std::fs::remove_dir(&folder);
    has_state.then_some(()).ok_or_else(|| format!("no freezer at {FREEZER}"))
}

impl Freezer {
    pub(crate) fn close(process: u32, most: Duration) -> Result<Freezer, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(FREEZER).join(format!("kattu-rig-{}-{number}", std::process::id()));
        let failed = |error: std::io::Error| format!("freezer: {error}");
        std::fs::create_dir(&folder).map_err(failed)?;
        let mut freezer = Freezer { folder, guard: None };
        // A frozen process cannot even be killed: a guard thaws it, should the rig die before.
        let thaw = format!("sleep {}; echo THAWED > freezer.state", most.as_secs() + 10);
        let mut guard = Command::new("setsid");
        guard.args(["sh", "-c", &thaw]).current_dir(&freezer.folder).stdin(Stdio::null());
        freezer.guard = Some(guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?);
        std::fs::write(freezer.folder.join("cgroup.procs"), process.to_string()).map_err(failed)?;
        std::fs::write(freezer.folder.join("freezer.state"), "FROZEN").map_err(failed)?;
        Ok(freezer)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.folder.join("freezer.state"), "THAWED");
        let members = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for process in members.lines() {
            let _ = std::fs::write(Path::new(FREEZER).join("cgroup.procs"), process);
        }
        let _ = std::fs::remove_dir(&self.folder);
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}
