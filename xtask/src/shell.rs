//! Running programs: working directory, output, time limits.
//!
//! Children get no standard input, a process group of their own, and a time limit; a child past its limit is killed
//! with its whole group.
//! Knows nothing of: the purpose of the programs.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The reason why a command of ours fails.
#[derive(Debug)]
pub struct Failure {
    /// The message.
    pub what: String,
    /// The command to run next, if one is known.
    pub next: Option<String>,
    /// Exit code: 1 failure, 2 usage.
    pub code: u8,
}

impl Failure {
    /// A program or check failed.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), next: None, code: 1 }
    }

    /// The command line is invalid.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), next: None, code: 2 }
    }

    /// Failed, and the user has been told.
    pub fn said() -> Failure {
        Failure::new("")
    }

    /// Adds the command to run next.
    pub fn then(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        match &self.next {
            Some(next) => write!(f, "\nnext: {next}"),
            None => Ok(()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built_here = here.parent().expect("xtask lies in the workspace");
    // A binary used elsewhere (a cached build of another clone) relies on its working directory.
    if built_here.join("Cargo.toml").exists() {
        return built_here.to_path_buf();
    }
    std::env::current_dir().expect("a current directory")
}

/// The folder cargo builds into.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The folder of fetched programs; always below the workspace, whatever `CARGO_TARGET_DIR` is, so that they are fetched
/// once.
pub fn tools_dir() -> PathBuf {
    root().join("target/tools")
}

/// A log file below `target/xtask/`.
pub fn log_path(name: &str) -> PathBuf {
    root().join("target/xtask").join(format!("{name}.log"))
}

/// The cargo that runs this program. If our crates were never built incrementally, these builds are not either, and
/// have no line numbers in backtraces (a panic still names its own line): both help a developer's next build, and
/// debugging, but cost the only build of a fresh clone much of its time.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    for name in names_of_this_package() {
        command.env_remove(name);
    }
    if !builds_incrementally() {
        command.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "none");
    }
    command
}

/// Builds the release binary of this tree, if it is not up to date, and returns its path: figures and campaigns are of the commit
/// that they name.
pub fn kattu() -> Result<PathBuf, Failure> {
    in_foreground(&mut cargo(&["build", "--locked", "--quiet", "--release", "-p", "kattu"]))?;
    Ok(target().join("release/kattu"))
}

/// What `cargo run` tells this program of its own package. Some build scripts look at it: told on, it would have the
/// cryptography, and all that is built on it, compiled anew after each command that was not run through here.
fn names_of_this_package() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_"))
}

fn builds_incrementally() -> bool {
    let ours = |name: std::ffi::OsString| name.to_string_lossy().starts_with("kattu");
    let kept = std::fs::read_dir(target().join("debug/incremental"));
    kept.is_ok_and(|mut kept| kept.any(|entry| entry.is_ok_and(|entry| ours(entry.file_name()))))
}

/// A command as it would be typed.
pub fn shown(command: &Command) -> String {
    let mut line = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            line += &format!("{}={:?} ", key.to_string_lossy(), value.to_string_lossy());
        }
    }
    let program = Path::new(command.get_program());
    line += &program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let plain = argument.chars().all(|c| c.is_alphanumeric() || "-_=./:,+@".contains(c));
        line +=
            &if plain && !argument.is_empty() { format!(" {argument}") } else { format!(" '{argument}'") };
    }
    line
}

/// Runs to the end and appends all output to `log`; an error tells how it ended.
pub fn run_logged(command: &mut Command, log: &Path, limit: Duration) -> Result<(), Failure> {
    std::fs::create_dir_all(log.parent().expect("a log lies in a folder"))?;
    let file = File::options().create(true).append(true).open(log)?;
    writeln_to(&file, &format!("$ {}", shown(command)));
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let line = shown(command);
    let mut child =
        command.spawn().map_err(|error| Failure::new(format!("`{line}` could not be started: {error}")))?;
    match wait_until(&mut child, Instant::now() + limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Failure::new(format!("`{line}` ended with {status}"))),
        None => {
            end_group(&mut child);
            Err(Failure::new(format!("`{line}` was ended after {} s", limit.as_secs())))
        }
    }
}

/// Runs with our own output; the exit code is its verdict.
pub fn in_foreground(command: &mut Command) -> Result<(), Failure> {
    let line = shown(command);
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    let mut failure = Failure::new(format!("`{line}` ended with {status}"));
    failure.code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(failure)
}

/// Runs to the end and returns standard output; an error has standard error.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, Failure> {
    let line = shown(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child =
        command.spawn().map_err(|error| Failure::new(format!("`{line}` could not be started: {error}")))?;
    let out = drain(child.stdout.take().expect("piped"));
    let err = drain(child.stderr.take().expect("piped"));
    let status = wait_until(&mut child, Instant::now() + limit)?;
    if status.is_none() {
        end_group(&mut child);
    }
    let out = out.join().expect("the reader does not panic");
    let err = err.join().expect("the reader does not panic");
    match status {
        Some(status) if status.success() => Ok(out),
        Some(status) => Err(Failure::new(format!("`{line}` ended with {status}: {}", err.trim_end()))),
        None => {
            Err(Failure::new(format!("`{line}` was ended after {} s: {}", limit.as_secs(), err.trim_end())))
        }
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the text; the exit status tells the rest.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait_until(child: &mut Child, end: Instant) -> Result<Option<ExitStatus>, Failure> {
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Kills a child and everything it started.
pub fn end_group(child: &mut Child) {
    signal(&format!("-{}", child.id()), "KILL");
    // It is killed now; its exit status no longer matters.
    let _ = child.wait();
}

/// Sends a signal by name to a process id (or to a group, `-pid`).
pub fn signal(target: &str, name: &str) {
    let sent = Command::new("kill").args(["-s", name, "--", target]).stderr(Stdio::null()).status();
    if let Err(error) = sent {
        eprintln!("cannot run `kill`: {error}");
    }
}

fn writeln_to(mut file: &File, line: &str) {
    use std::io::Write;
    // The run goes on without the log's first line.
    let _ = writeln!(file, "{line}");
}

/// What git prints in this repository.
pub fn git(words: &[&str]) -> Result<String, Failure> {
    output(Command::new("git").args(words).current_dir(root()), Duration::from_secs(60))
}

/// Arguments of `git ls-files`: files that are not in git yet are named, too, those that are ignored are not.
pub const NEW_TOO: &[&str] = &["--cached", "--others", "--exclude-standard"];

/// Existing files that `git ls-files` names with these arguments; a file whose removal is not committed is left out.
pub fn files_in_git(arguments: &[&str]) -> Result<Vec<String>, Failure> {
    let named = git(&[&["ls-files"], arguments].concat())?;
    Ok(named.lines().filter(|path| root().join(path).is_file()).map(str::to_string).collect())
}

/// The id of the commit with this name in git (`HEAD`: the current one); `None` if there is none, or outside a clone.
pub fn commit_of(name: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify"]).arg(format!("{name}^{{commit}}")).current_dir(root());
    output(&mut git, Duration::from_secs(10)).ok().map(|id| id.trim().to_string())
}

/// Files in git that differ from the current commit, as `git status --porcelain` lists them: two letters, a space, a
/// path below the root. Files that git does not know are left out.
pub fn changes() -> Result<String, Failure> {
    let mut status = Command::new("git");
    status.args(["status", "--porcelain", "--untracked-files=no"]).current_dir(root());
    output(&mut status, Duration::from_secs(20))
}

/// Now, as UTC text.
pub fn date() -> String {
    let mut date = Command::new("date");
    date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]);
    output(&mut date, Duration::from_secs(10)).map(|text| text.trim().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cargo_below_this_one_is_not_told_whose_program_started_it() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo runs this test");
        let command = cargo(&["build"]);
        let removed = |name: &str| command.get_envs().any(|(known, value)| known == name && value.is_none());
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"), "{command:?}");
    }
}
