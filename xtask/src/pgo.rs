//! `cargo xtask pgo`: a `kattu` that is compiled for the ways which its own work takes (profile-guided optimization).
//!
//! ```text
//!   kattu with counters ── three members, loads of both faces ──▶ counts ── llvm-profdata ──▶ target/pgo/kattu
//! ```
//! In:    the tree.
//! Out:   `target/pgo/kattu`; measure it with `--kattu` of `bench rivals` and of `bench stages`.
//! Rules: 1. It is a build of its own: no test, and no other figure, uses it. Source and features are those of a release.
//!        2. Loads are short and of all kinds that a client of a store has: what they leave out is compiled for size.
//! Knows nothing of: how fast the result is.

use crate::bench::cluster::{Cluster, NO_FLAGS, Program};
use crate::commands;
use crate::shell::{self, Failure};
use crate::{llvm, tools};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(3600);
const LOAD_LIMIT: Duration = Duration::from_secs(600);
/// Which of the loopback addresses of this process the members have.
const PLACE: usize = 7;

/// Words of `kattu bench`. As many puts as reads; calls of etcd's API cost ten times as much, and are a tenth as many.
const LOADS: [&str; 8] = [
    "put --native --sessions 8 --clients 8 --conns 8 --pipeline 128 --val-size 16 --total 400000",
    "put --native --sessions 8 --clients 8 --conns 8 --pipeline 128 --val-size 256 --total 200000",
    "put --native --clients 64 --conns 8 --val-size 256 --total 50000",
    "range --native --clients 8 --conns 8 --pipeline 128 --val-size 256 --total 400000",
    "range --native --serializable --clients 8 --conns 8 --pipeline 128 --total 400000",
    "put --clients 256 --conns 100 --val-size 256 --total 50000",
    "range --clients 256 --conns 100 --total 50000",
    "range --serializable --clients 256 --conns 100 --total 50000",
];

/// `cargo xtask pgo`.
///
/// # Errors
/// A build or a load fails. Without the tools of LLVM it says so, and nothing is built.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    if !words.is_empty() {
        return Err(commands::misused("pgo"));
    }
    let Some([profdata]) = llvm::tools(["llvm-profdata"])? else {
        println!("SKIPPED pgo: {}", llvm::MISSING);
        return Ok(());
    };
    let folder = shell::target().join("pgo");
    let (raw, counts) = (folder.join("raw"), folder.join("loads.profdata"));
    if raw.exists() {
        std::fs::remove_dir_all(&raw)?;
    }
    println!("1 of 3: kattu with counters (log in {})", shell::log_path("pgo").display());
    let counting = build(&folder.join("counting"), &format!("-Cprofile-generate={}", raw.display()))?;
    println!("2 of 3: {} loads", LOADS.len());
    loads(&counting, &folder.join("data"))?;
    let mut merge = Command::new(profdata);
    merge.args(["merge", "-o"]).arg(&counts).arg(&raw);
    shell::in_foreground(&mut merge)?;
    println!("3 of 3: kattu, guided by the counts");
    let guided = build(&folder.join("guided"), &format!("-Cprofile-use={}", counts.display()))?;
    let result = folder.join("kattu");
    std::fs::copy(&guided, &result)?;
    println!("{}; next: cargo xtask bench rivals --kattu {0}", result.display());
    Ok(())
}

/// Builds with these flags, which do not apply to build scripts, as the target is named.
fn build(folder: &Path, flags: &str) -> Result<PathBuf, Failure> {
    let host = llvm::host()?;
    let mut cargo = shell::cargo(&["build", "--locked", "--release", "-p", "kattu", "--bin", "kattu"]);
    cargo.args(["--target", &host]);
    cargo.env("CARGO_TARGET_DIR", folder).env("RUSTFLAGS", flags).env("CARGO_PROFILE_RELEASE_LTO", "fat");
    shell::run_logged(&mut cargo, &shell::log_path("pgo"), BUILD_LIMIT)?;
    Ok(folder.join(host).join("release/kattu"))
}

/// All loads on one cluster; the counts are written as its processes, and those of the loads, end.
fn loads(kattu: &Path, data: &Path) -> Result<(), Failure> {
    let etcdctl = match shell::tools_dir().join("etcd36/etcdctl") {
        there if there.exists() => there,
        _ => tools::old_etcdctl().map_err(Failure::new)?,
    };
    let mut cluster = Cluster::start(&Program::kattu(kattu, NO_FLAGS), data, PLACE, &etcdctl)?;
    for words in LOADS {
        let mut load = Command::new(kattu);
        load.arg("bench").args(words.split(' ')).args(["--endpoints", &cluster.endpoints()]);
        shell::output(&mut load, LOAD_LIMIT)?;
        println!("  kattu bench {words}");
    }
    cluster.stop()
}
