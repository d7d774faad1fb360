//! Lines for the operator: one fact each, with its numbers. Whoever says one never waits for whoever reads it.
//!
//! ```text
//!  info, warn, warn_of ─▶ limit ─▶ line ─┬─▶ outlet: queue ─▶ thread ─▶ standard error
//!  error, last_words ────────────▶ line ─┴─▶ outlet: queue ─▶ thread ─▶ a file
//! ```
//! In:    lines, from any thread.
//! Out:   the same, stamped, in each output; what a full queue refuses is counted, and the count is said later.
//! Rules: nobody waits for an output: not the thread that says a line, not the watchdog that says why it ends the process.
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

/// How long the end of the process waits for what was said before it, at most.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);

/// How much a line matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for a mistake in Kattu.
    Debug,
    /// Something an operator may want to know.
    #[default]
    Info,
    /// Something an operator should look at.
    Warn,
    /// The reason why something ends.
    Error,
}

/// What a line looks like.
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
    /// The end of a file, which is made if it is not there.
    File(PathBuf),
}

/// What is said, how, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Lines that matter less are not said.
    pub level: Level,
    /// What they look like.
    pub format: Format,
    /// Where they go: to each of these.
    pub outputs: Vec<Output>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { level: Level::Info, format: Format::Console, outputs: vec![Output::Stderr] }
    }
}

/// What causes lines again and again, and whose doing it is. Lines of one cause are said once in a while, however often
/// they are caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// In words: "a peer connection refused".
    pub what: &'static str,
    /// Whose doing it is, such as a member's id or an address as a number; 0 for everybody's.
    pub whose: u64,
}

impl Cause {
    /// A cause that is everybody's.
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

/// Chooses what is said and where, for the whole process; and a panic says its words here, too. Without it lines go to
/// standard error. Only the first call chooses.
///
/// # Errors
/// A file that cannot be opened, with its name.
pub fn start(options: LogOptions) -> io::Result<()> {
    let report = Report::open(options)?;
    let _ = REPORT.set(report); // a second cluster in one process says its lines where the first one does
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

/// Something for whoever looks for a mistake.
#[track_caller]
pub fn debug(line: Arguments<'_>) {
    say(Level::Debug, Location::caller(), line);
}

/// Something an operator may want to know.
#[track_caller]
pub fn info(line: Arguments<'_>) {
    say(Level::Info, Location::caller(), line);
}

/// Something an operator should look at.
#[track_caller]
pub fn warn(line: Arguments<'_>) {
    say(Level::Warn, Location::caller(), line);
}

/// The same, of what others can cause as often as they like: the first one is said, and after a while how many more there
/// were.
pub fn warn_of(cause: Cause, line: Arguments<'_>) {
    Report::the().say_of(Level::Warn, cause, limit::ONE, line);
}

/// As [`warn_of`], of what needs no look.
pub fn info_of(cause: Cause, line: Arguments<'_>) {
    Report::the().say_of(Level::Info, cause, limit::ONE, line);
}

/// Why something ends.
pub fn error(line: Arguments<'_>) {
    Report::the().write(Level::Error, 0, line);
}

/// Why the process ends at once. Comes back when the line is out, or after a moment in which it could not be.
pub fn last_words(line: Arguments<'_>) {
    error(line);
    flush();
}

/// Comes back when everything said so far is out, or after a moment in which it could not be: whoever ends the process
/// calls it first.
pub fn flush() {
    let Some(report) = REPORT.get() else { return };
    let until = Instant::now() + LAST_WORDS_WAIT;
    for outlet in &report.outlets {
        outlet.wait(until);
    }
}

fn say(level: Level, from: &'static Location<'static>, line: Arguments<'_>) {
    // A line of code is a cause, too: nothing that loops can fill a disk or a terminal.
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
            // One of them says what was held back.
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
