//! One output of the log: a bounded queue, and a thread that may wait for the reader.
//!
//! In:    lines.
//! Out:   bytes in a file, a pipe or a terminal; how many lines found no room, logged when there is room again.
//! Rules: giving a line never waits. The queue holds [`LINES_MAX`] lines of 4 KiB and some, so 4 MiB at most.
//! Knows nothing of: what lines say, their levels.

use super::limit::{Limit, More, PERIOD};
use super::{Format, Level, Output};
use kattu_raft::Duration;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Instant, SystemTime};

/// Lines that wait to be written, at most.
const LINES_MAX: usize = 1024;
/// Pause between two checks whether everything is written.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// One output.
pub(super) struct Outlet {
    queue: SyncSender<Arc<str>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Lines that found room in the queue.
    given: AtomicU64,
    /// Lines that are written, or that the output refused.
    written: AtomicU64,
    /// Lines without room since that was last logged.
    dropped: AtomicU64,
}

impl Outlet {
    /// `sweeps` is the limit whose counts this output reports.
    pub fn open(output: &Output, format: Format, sweeps: Option<Arc<Limit>>) -> io::Result<Outlet> {
        // A handle of its own: a thread that waits here holds no lock of the standard library's.
        let file = match output {
            Output::Stderr => File::from(io::stderr().as_fd().try_clone_to_owned()?),
            Output::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Output::File(path) => {
                let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
                opened
                    .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?
            }
        };
        Outlet::on(file, format, sweeps)
    }

    fn on(file: File, format: Format, sweeps: Option<Arc<Limit>>) -> io::Result<Outlet> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let counts = Arc::new(Counts::default());
        let outlet = Outlet { queue, counts: counts.clone() };
        let writer = Writer { file, format, counts, sweeps };
        std::thread::Builder::new().name("kattu-report".into()).spawn(move || writer.run(&lines))?;
        Ok(outlet)
    }

    /// Queues a line; returns whether there was room.
    pub fn give(&self, line: Arc<str>) -> bool {
        let has_room = self.queue.try_send(line).is_ok();
        let counter = if has_room { &self.counts.given } else { &self.counts.dropped };
        counter.fetch_add(1, Ordering::AcqRel);
        has_room
    }

    /// Returns when everything given so far is written, or at `until`.
    pub fn wait(&self, until: Instant) {
        let given = self.counts.given.load(Ordering::Acquire);
        while self.counts.written.load(Ordering::Acquire) < given && Instant::now() < until {
            std::thread::sleep(LOOK_PAUSE);
        }
    }
}

/// The thread of an output.
struct Writer {
    file: File,
    format: Format,
    counts: Arc<Counts>,
    sweeps: Option<Arc<Limit>>,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Arc<str>>) {
        loop {
            // An idle member sleeps: this thread wakes up only while something that was held back is to be reported.
            let is_due = self.sweeps.as_ref().is_some_and(|limit| limit.is_active());
            let pause = if is_due { PERIOD / 4 } else { Duration::MAX };
            match lines.recv_timeout(pause) {
                Ok(line) => {
                    self.write(&line);
                    self.counts.written.fetch_add(1, Ordering::AcqRel);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tell_of_dropped();
            let more = self.sweeps.as_ref().map(|limit| limit.sweep(Instant::now()));
            for More { cause, level, lines } in more.unwrap_or_default() {
                let what = cause.what;
                let line =
                    format_args!("{what}: {lines} more lines like the last one in {PERIOD:?} or longer");
                self.write(&self.format.line(SystemTime::now(), level, line, 0));
            }
        }
    }

    fn tell_of_dropped(&mut self) {
        let dropped = self.counts.dropped.swap(0, Ordering::AcqRel);
        if 0 < dropped {
            let line = format_args!(
                "{dropped} log lines are missing here: the reader of this output was {LINES_MAX} lines behind"
            );
            self.write(&self.format.line(SystemTime::now(), Level::Warn, line, 0));
        }
    }

    /// Bytes that an output refuses (a full disk, a reader that is gone) are lost to it: the member goes on.
    fn write(&self, line: &str) {
        if (&self.file).write_all(line.as_bytes()).is_err() {
            crate::metrics::LOG_LINES_DROPPED.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};

    fn outlet() -> (Outlet, PipeReader) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        (Outlet::on(file, Format::Console, None).expect("a thread"), reader)
    }

    /// A pipe holds 64 KiB, the thread one line.
    const STALLED_LINES: usize = 200;

    #[test]
    fn a_writer_of_a_line_waits_for_no_reader_and_the_reader_learns_how_many_are_missing() {
        let (outlet, mut reader) = outlet();
        let line: Arc<str> = format!("{}\n", "x".repeat(1023)).into();
        let given = (0..LINES_MAX + STALLED_LINES).filter(|_| outlet.give(line.clone())).count();
        assert!((LINES_MAX..LINES_MAX + STALLED_LINES).contains(&given), "{given}");
        let missing = LINES_MAX + STALLED_LINES - given;

        let begun = Instant::now();
        outlet.wait(begun + Duration::from_millis(20));
        assert!(outlet.counts.written.load(Ordering::Acquire) < given as u64, "nothing was read");

        drop(outlet); // the thread ends when everything is out
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text.lines().filter(|line| line.starts_with("xxx")).count(), given);
        let told = text.lines().filter_map(|line| {
            let (_, said) = line.split_once(" warn  ")?;
            said.split_once(" log lines are missing here")?.0.parse::<usize>().ok()
        });
        assert_eq!(told.sum::<usize>(), missing);
    }

    #[test]
    fn lines_come_out_in_their_order_and_waiting_for_them_ends_when_they_are_out() {
        let (outlet, mut reader) = outlet();
        for number in 0..100 {
            assert!(outlet.give(format!("{number}\n").into()));
        }
        outlet.wait(Instant::now() + Duration::from_secs(40));
        assert_eq!(outlet.counts.written.load(Ordering::Acquire), 100);
        drop(outlet);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn a_reader_that_is_gone_takes_no_line_and_stops_no_writer() {
        let (outlet, reader) = outlet();
        drop(reader);
        for number in 0..2 * LINES_MAX {
            outlet.give(format!("{number}\n").into());
        }
        outlet.wait(Instant::now() + Duration::from_secs(40));
        let counts = &outlet.counts;
        assert_eq!(counts.written.load(Ordering::Acquire), counts.given.load(Ordering::Acquire));
    }
}
