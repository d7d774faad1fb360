//! Rivals for `cargo xtask bench rivals`: Redis, and drivers around dragonboat and hashicorp/raft. Fetched by that bench alone.
//!
//! ```text
//! target/tools/redis/{redis-server,redis-benchmark}  Debian's packages and their libraries, used in place
//! target/tools/rivals/{dragonboat,hraft}             built with Go from proof/rivals and the module proxy
//! ```
//! Nothing of the machine is installed or changed: no service starts.
//! Knows nothing of: loads, tables.

use super::{GO_MINOR_MIN, emptied, find_go, go_command, keep, shown, unpack_debian};
use crate::shell::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A commit of 2024: v4 has no release.
pub const DRAGONBOAT_VERSION: &str = "v4.0.0-20240618143154-6a1623140f27";
/// Of hashicorp/raft.
pub const HRAFT_VERSION: &str = "v1.7.3";
/// Of its log, raft-wal.
pub const HRAFT_WAL_VERSION: &str = "v0.4.2";

/// The packages of Redis and those of its libraries that few machines have; the scripts below make it find them.
const REDIS_PACKAGES: [&str; 4] = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1"];
const REDIS_PROGRAMS: [&str; 2] = ["redis-server", "redis-benchmark"];

/// What the drivers share.
const LAT: &str = include_str!("../../../proof/rivals/lat/lat.go");
const DRAGONBOAT: &str = include_str!("../../../proof/rivals/dragonboat/main.go");
const HRAFT: &str = include_str!("../../../proof/rivals/hraft/main.go");

/// The folder with `redis-server` and `redis-benchmark`.
pub fn redis() -> Result<PathBuf, String> {
    let folder = shell::tools_dir().join("redis");
    let stamp = format!("debian {}\n", REDIS_PACKAGES.join(" "));
    keep(folder.join(REDIS_PROGRAMS[0]), &stamp, |_| fetch_redis(&folder))?;
    Ok(folder)
}

fn fetch_redis(folder: &Path) -> Result<(), Failure> {
    emptied(folder)?;
    for package in REDIS_PACKAGES {
        unpack_debian(package, folder)?;
    }
    for program in REDIS_PROGRAMS {
        let script = folder.join(program);
        std::fs::write(&script, redis_script(program))?;
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let version = shell::output(Command::new(&script).arg("--version"), Duration::from_secs(20))?;
        if !version.to_lowercase().contains("redis") {
            return Err(Failure::new(format!("the fetched {program} reports version {version:?}")));
        }
    }
    Ok(())
}

/// Runs the program that lies beside the script, with its own libraries, in the script's process.
fn redis_script(program: &str) -> String {
    format!(
        "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\n\
         lib=$(dirname \"$(find \"$here/usr/lib\" -name libjemalloc.so.2 | head -n 1)\")\n\
         LD_LIBRARY_PATH=\"$lib\" exec \"$here/usr/bin/{program}\" \"$@\"\n"
    )
}

/// The driver around dragonboat.
pub fn dragonboat() -> Result<PathBuf, String> {
    let module = format!("github.com/lni/dragonboat/v4@{DRAGONBOAT_VERSION}");
    driver("dragonboat", DRAGONBOAT, &[&module])
}

/// The driver around hashicorp/raft.
pub fn hraft() -> Result<PathBuf, String> {
    let raft = format!("github.com/hashicorp/raft@{HRAFT_VERSION}");
    let wal = format!("github.com/hashicorp/raft-wal@{HRAFT_WAL_VERSION}");
    driver("hraft", HRAFT, &[&raft, &wal])
}

fn driver(name: &str, source: &str, modules: &[&str]) -> Result<PathBuf, String> {
    let to = shell::tools_dir().join("rivals").join(name);
    // With the sources, so that a driver is built again when they change.
    let stamp = format!("go {}\n{LAT}{source}", modules.join(" "));
    keep(to, &stamp, |to| {
        let go = find_go().map_err(Failure::new)?;
        println!("building the driver of {} (minutes on a small machine)", modules.join(", "));
        build(&go, name, source, modules, to)
    })
}

fn build(go: &Path, name: &str, source: &str, modules: &[&str], to: &Path) -> Result<(), Failure> {
    let folder = shell::tools_dir().join("build").join(format!("rivals-{name}"));
    emptied(&folder)?;
    std::fs::create_dir_all(to.parent().expect("a program lies in a folder"))?;
    std::fs::write(folder.join("go.mod"), format!("module kattu.test/rivals\n\ngo 1.{GO_MINOR_MIN}\n"))?;
    for (package, file, text) in [("lat", "lat.go", LAT), (name, "main.go", source)] {
        std::fs::create_dir(folder.join(package))?;
        std::fs::write(folder.join(package).join(file), text)?;
    }
    let log = shell::log_path("tools");
    shell::run_logged(go_command(go, &folder).arg("get").args(modules), &log, Duration::from_secs(600))?;
    let mut build = go_command(go, &folder);
    build.args(["build", "-trimpath", "-o"]).arg(to).arg(format!("./{name}"));
    shell::run_logged(&mut build, &log, Duration::from_secs(1800))
        .map_err(|failure| failure.then(format!("read {}", shown(&log))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_runs_its_own_program_in_its_own_process() {
        let script = redis_script("redis-server");
        assert!(script.starts_with("#!/bin/sh\n"), "{script}");
        assert!(script.contains("exec \"$here/usr/bin/redis-server\" \"$@\""), "{script}");
    }

    #[test]
    fn each_driver_has_the_verbs_that_the_bench_says() {
        for verb in ["led", "fill", "put", "read", "local"] {
            assert!(DRAGONBOAT.contains(&format!("\"{verb}\"")), "{verb}");
        }
        for verb in ["led", "put"] {
            assert!(HRAFT.contains(&format!("\"{verb}\"")), "{verb}");
        }
    }
}
