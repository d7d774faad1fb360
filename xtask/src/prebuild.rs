//! `cargo xtask prebuild`: what later stages run is built while the tests of earlier ones wait for disks and members.
//!
//! The whole test starts it as a process of the lowest priority, and builds in the order of the stages. A stage whose program is
//! being built waits for cargo's lock.
//! Rule: a build ahead decides nothing. Its stage builds again: that is quick, or shows why it fails.
//! Knows nothing of: what is built.

use crate::shell::{self, Failure};
use crate::{bugs, explore, fuzz, proofs, rigs, test};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Its output goes to the log at the path.
type Build = fn(&Path) -> Result<(), Failure>;

const BUILDS: [Build; 6] =
    [test::build_release, rigs::build, proofs::build, explore::build, bugs::build, fuzz::build];

/// `cargo xtask prebuild`: all of it, also after a failure; the first one is returned.
pub fn run() -> Result<(), Failure> {
    let log = shell::log_path("prebuild");
    // The log is of this run only.
    let _ = std::fs::remove_file(&log);
    let ended: Vec<_> = BUILDS.iter().map(|build| build(&log)).collect();
    ended.into_iter().collect()
}

static ALLOWED: AtomicBool = AtomicBool::new(false);
static UNDER_WAY: Mutex<Option<Child>> = Mutex::new(None);

/// From now on it may begin: this is a whole test.
pub fn allow() {
    ALLOWED.store(true, Ordering::Relaxed);
}

/// Begins, if that is allowed.
pub fn begin() {
    if !ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    let Ok(this) = std::env::current_exe() else { return };
    let mut prebuild = Command::new("nice");
    prebuild.args(["-n", "19"]).arg(this).arg("prebuild").stdout(Stdio::null()).stderr(Stdio::null());
    // Without it, the stages build.
    *UNDER_WAY.lock().expect("nobody panics with it") = prebuild.spawn().ok();
}

/// Waits until it has ended.
pub fn end() {
    if let Some(mut child) = UNDER_WAY.lock().expect("nobody panics with it").take() {
        let _ = child.wait(); // what it failed to build, a stage has built or reported
    }
}
