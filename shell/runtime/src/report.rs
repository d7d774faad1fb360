//! Lines for the operator: one fact each, with its numbers. A thread that logs never waits for a reader of the log.
//!
//! ```text
//!  info, warn, warn_of ─▶ limit ─▶ line ─┬─▶ outlet: queue ─▶ thread ─▶ standard error
//!  error, last_words ────────────▶ line ─┴─▶ outlet: queue ─▶ thread ─▶ a file
//! ```
//! In:    lines, from any thread.
//! Out:   the same, stamped, in each output; lines that a full queue refuses are counted, and the count logged later.
//! Rules: no thread waits for an output: not one that logs, not the watchdog that logs why it ends the process.
//!        What others can cause again and again (a peer, a client, a stranger) is one line in a while. [fault-model F16]
//! Knows nothing of: what the lines are about; rotation of files.

mod limit;
mod line;
mod outlet;

use crate::metrics::{LOG_LINES_DROPPED, LOG_LINES_HELD_BACK};
use kattu_raft::Duration;
use limit::{Admitted, Limit};
use outlet::Outlet;
use std::fmt::Arguments;
use std::io;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

/// How long the end of the process waits for earlier lines, at most.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);

/// The severity of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For debugging Kattu.
    Debug,
    /// Something an operator may want to know.
    #[default]
    Info,
    /// Something an operator should look at.
    Warn,
    /// Why something ends.
    Error,
}

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Time, level, text.
    #[default]
    Console,
    /// One JSON object with `level`, `ts`, `msg`.
    Json,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// The end of a file, which is created if it is missing.
    File(PathBuf),
}

/// What is logged, how, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Lines of lower levels are dropped.
    pub level: Level,
    /// The format of the lines.
    pub format: Format,
    /// Each line goes to all of these.
    pub outputs: Vec<Output>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { level: Level::Info, format: Format::Console, outputs: vec![Output::Stderr] }
    }
}

/// What causes lines again and again, and its source. Lines of one cause are limited, however often it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// In words: "a peer connection refused".
    pub what: &'static str,
    /// The source, such as a member's id or an address as a number; 0 for no particular one.
    pub whose: u64,
}

impl Cause {
    /// A cause without a particular source.
    #[must_use]
    pub const fn of(what: &'static str) -> Cause {
        Cause { what, whose: 0 }
    }
}

struct Report {
    options: LogOptions,
    outlets: Vec<Outlet>,
    limit: Arc<Limit>,
}

static REPORT: OnceLock<Report> = OnceLock::new();

/// Sets what is logged and where, for the whole process; panics are logged there, too. Without it lines go to standard
/// error. Only the first call counts.
///
/// # Errors
/// A file that cannot be opened, with its name.
pub fn start(options: LogOptions) -> io::Result<()> {
    let report = Report::open(options)?;
    let _ = REPORT.set(report); // a second cluster in one process logs where the first one does
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let trace = std::backtrace::Backtrace::capture();
        let trace = match trace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        last_words(format_args!("thread {} {panic}{trace}", thread.name().unwrap_or("?")));
    }));
    Ok(())
}

/// Logs something for debugging.
#[track_caller]
pub fn debug(line: Arguments<'_>) {
    say(Level::Debug, Location::caller(), line);
}

/// Logs something an operator may want to know.
#[track_caller]
pub fn info(line: Arguments<'_>) {
    say(Level::Info, Location::caller(), line);
}

/// Logs something an operator should look at.
#[track_caller]
pub fn warn(line: Arguments<'_>) {
    say(Level::Warn, Location::caller(), line);
}

/// The same, for what others can cause as often as they like: the first line is logged, and after a while how many more
/// there were.
pub fn warn_of(cause: Cause, line: Arguments<'_>) {
    Report::the().say_of(Level::Warn, cause, limit::ONE, line);
}

/// As [`warn_of`], for what needs no attention.
pub fn info_of(cause: Cause, line: Arguments<'_>) {
    Report::the().say_of(Level::Info, cause, limit::ONE, line);
}

/// Logs why something ends.
pub fn error(line: Arguments<'_>) {
    Report::the().write(Level::Error, 0, line);
}

/// Logs why the process ends at once. Returns when the line is written, or after a bounded wait.
pub fn last_words(line: Arguments<'_>) {
    error(line);
    flush();
}

/// Returns when all earlier lines are written, or after a bounded wait: to be called before the process ends.
pub fn flush() {
    let Some(report) = REPORT.get() else { return };
    let until = Instant::now() + LAST_WORDS_WAIT;
    for outlet in &report.outlets {
        outlet.wait(until);
    }
}

fn say(level: Level, from: &'static Location<'static>, line: Arguments<'_>) {
    // A line of code is a cause, too: no loop can fill a disk or a terminal.
    let cause = Cause { what: from.file(), whose: u64::from(from.line()) };
    Report::the().say_of(level, cause, limit::MANY, line);
}

impl Report {
    fn the() -> &'static Report {
        REPORT.get_or_init(|| Report::open(LogOptions::default()).expect("standard error needs no opening"))
    }

    fn open(options: LogOptions) -> io::Result<Report> {
        let limit = Arc::new(Limit::default());
        let mut outlets = Vec::new();
        for (place, output) in options.outputs.iter().enumerate() {
            // One of them logs what was held back.
            let sweeps = (place == 0).then(|| limit.clone());
            outlets.push(Outlet::open(output, options.format, sweeps)?);
        }
        Ok(Report { options, outlets, limit })
    }

    fn say_of(&self, level: Level, cause: Cause, most: u32, line: Arguments<'_>) {
        if level < self.options.level {
            return;
        }
        match self.limit.admit(cause, level, most, Instant::now()) {
            Admitted::Said { more } => self.write(level, more, line),
            Admitted::HeldBack => LOG_LINES_HELD_BACK.add(1),
        }
    }

    /// `more` lines of the same cause were held back before this one.
    fn write(&self, level: Level, more: u64, line: Arguments<'_>) {
        let line: Arc<str> = self.options.format.line(SystemTime::now(), level, line, more).into();
        for outlet in &self.outlets {
            if !outlet.give(line.clone()) {
                LOG_LINES_DROPPED.add(1);
            }
        }
    }
}
