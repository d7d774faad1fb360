//! The tools of the compiler's own LLVM, which read what its builds count.
//!
//! Out:   their paths; `None` if this compiler has none, for example without rustup or without a network.
//! Knows nothing of: what is counted.

use crate::shell::{self, Failure};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What a command says that needs the tools and has none.
pub const MISSING: &str = "no llvm-tools for this compiler; next: rustup component add llvm-tools";

/// The named tools; they are added to the toolchain if they are not there.
pub fn tools<const N: usize>(names: [&str; N]) -> Result<Option<[PathBuf; N]>, Failure> {
    let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?.trim());
    let folder = sysroot.join("lib/rustlib").join(host()?).join("bin");
    let are_there = || names.iter().all(|name| folder.join(name).exists());
    if !are_there() {
        // Without rustup, or without a network, they stay away.
        let _ = Command::new("rustup").args(["component", "add", "llvm-tools"]).status();
    }
    Ok(are_there().then(|| names.map(|name| folder.join(name))))
}

/// The target for which the compiler builds by itself.
pub fn host() -> Result<String, Failure> {
    let about = rustc(&["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| Failure::new("`rustc -vV` names no host"))
}

fn rustc(arguments: &[&str]) -> Result<String, Failure> {
    shell::output(Command::new("rustc").args(arguments).current_dir(shell::root()), Duration::from_secs(20))
}
