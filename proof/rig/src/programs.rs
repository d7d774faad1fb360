//! Programs: where they are, how to run them to the end, how to wait for conditions.
//!
//! Knows nothing of: clusters.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program that has not ended after this has hung.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(120);
/// A condition that does not hold within this never will.
pub const WAIT_LIMIT: Duration = Duration::from_secs(40);

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// The binary under test: `KATTU_BIN`, or the release build.
pub fn kattu() -> PathBuf {
    let path = match std::env::var_os("KATTU_BIN") {
        Some(path) => PathBuf::from(path),
        None => match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => root().join(target).join("release/kattu"),
            None => root().join("target/release/kattu"),
        },
    };
    assert!(path.exists(), "{} is not there; run `cargo build --release`", path.display());
    path
}

/// The path of a program under `target/tools`, such as `etcd34/etcdctl`; `None` if it was not fetched.
pub fn tool(name: &str) -> Option<PathBuf> {
    let tools =
        std::env::var_os("KATTU_TOOLS").map(PathBuf::from).unwrap_or_else(|| root().join("target/tools"));
    let path = tools.join(name);
    path.exists().then_some(path)
}

/// Makes an empty folder `target/KIND/NAME`.
pub fn fresh_folder(kind: &str, name: &str) -> PathBuf {
    let folder = root().join("target").join(kind).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("target can be written");
    folder
}

/// Makes a new folder under `target/e2e`.
pub fn own_folder(what: &str) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    fresh_folder("e2e", &format!("{what}-{}-{number}", std::process::id()))
}

/// A folder of one's own under `target/e2e`. Dropped, it is removed, unless the thread panics or it is kept.
#[derive(Debug)]
pub struct OwnFolder {
    path: PathBuf,
    is_kept: bool,
}

impl OwnFolder {
    /// Makes it.
    pub fn new(what: &str) -> OwnFolder {
        OwnFolder { path: own_folder(what), is_kept: false }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It stays when it is dropped; its path.
    pub fn keep(&mut self) -> &Path {
        self.is_kept = true;
        &self.path
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.is_kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A loopback address that no other process on this machine uses, made from our process id and a counter.
pub fn own_host() -> String {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    for _ in 0..2 * 254 {
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        // So many that no address comes back while a test lasts: its member may be down, and nobody listens.
        let network = 1 + ((process >> 8) & 0x1f) + 0x20 * (number / 254 % 2);
        let host = format!("127.{network}.{}.{}", process & 0xff, 1 + number % 254);
        // Another run's process id may end in the same bits, or that run may have left a member behind.
        if [2379, 2380].iter().all(|port| TcpListener::bind((&host[..], *port)).is_ok()) {
            return host;
        }
    }
    panic!("no loopback address at which nobody listens")
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Panics unless the code is this one; returns standard output.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        &self.out
    }

    /// Panics unless the exit code is 0; returns standard output.
    #[track_caller]
    pub fn expect_ok(&self) -> &str {
        self.expect_code(0)
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = self.expect_ok();
        serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
    }

    /// Both outputs, for searching.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// Runs to the end; panics if it hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    run_with_input(command, "")
}

/// Runs to the end with a text on standard input; panics if it hangs.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &str) -> Ended {
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    // A program that ends without reading its input is judged by its exit code.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let out = drain(child.stdout.take().expect("piped"));
    let err = drain(child.stderr.take().expect("piped"));
    let end = Instant::now() + RUN_LIMIT;
    let code = loop {
        match child.try_wait().expect("we may wait for our child") {
            Some(status) => break status.code(),
            None if end < Instant::now() => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{shown} has not ended after {RUN_LIMIT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let join = |reader: std::thread::JoinHandle<String>| reader.join().expect("the reader does not panic");
    Ended { code, out: join(out), err: join(err) }
}

fn drain(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a condition; panics with its name if it never holds.
#[track_caller]
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    until_within(WAIT_LIMIT, what, condition)
}

/// The same with another limit, for conditions that take long.
#[track_caller]
pub fn until_within<T>(limit: Duration, what: &str, condition: impl FnMut() -> Option<T>) -> T {
    met_by(Instant::now() + limit, condition).unwrap_or_else(|| panic!("after {limit:?} still not: {what}"))
}

/// Looks until the condition holds; `None` if it does not by then.
pub fn met_by<T>(end: Instant, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let met = condition();
        if met.is_some() || end <= Instant::now() {
            return met;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A number of kibibytes from `/proc/PID/status` (`VmRSS`, `VmHWM`, …), in bytes; 0 if the process does not run.
#[must_use]
pub fn memory_of(process: u32, name: &str) -> u64 {
    kib_in(&format!("/proc/{process}/status"), name).unwrap_or(0)
}

/// One of the kernel's memory figures (`MemTotal`, `MemFree`, …), in bytes. [proc_meminfo(5)]
#[must_use]
pub fn memory_of_machine(name: &str) -> Option<u64> {
    kib_in("/proc/meminfo", name)
}

fn kib_in(table: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(table).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Sends a signal by name to one process that we started.
pub fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -s {name} {process}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_a_process_holds() {
        let own = std::process::id();
        let (now, peak) = (memory_of(own, "VmRSS"), memory_of(own, "VmHWM"));
        assert!(0 < now && Some(now) <= memory_of_machine("MemTotal"), "{now}");
        assert!(now / 2 < peak, "{peak}");
        assert_eq!(memory_of(own, "Vm"), 0, "a name is not the beginning of another");
    }
}
