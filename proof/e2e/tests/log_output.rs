//! Log lines of the unmodified binary: no member waits for their reader, strangers cannot fill the log, and lines come
//! in the requested shape and place. [fault-model F16]

use kattu_rig::disk::{Fault, Rig, inject_into};
use kattu_rig::{Cluster, Kv, Options, need_rig, target, until};
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// `O_NONBLOCK` of Linux.
const NONBLOCKING: i32 = 0o4000;

/// A single member whose standard error is a pipe. Killed when dropped.
struct Piped {
    child: Child,
    reader: PipeReader,
    writer: PipeWriter,
    planned: Cluster,
}

impl Piped {
    fn start(what: &str, flags: &[&str]) -> Piped {
        let flags = flags.iter().map(ToString::to_string).collect();
        let mut planned = Cluster::plan(what, Options { members: 1, flags });
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = target::serve();
        command.args(planned.members[0].arguments_mut().iter()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(writer.try_clone().expect("a second handle")).spawn();
        let piped = Piped { child: child.expect("the binary can be run"), reader, writer, planned };
        piped.kv().put_surely("first", "1");
        piped
    }

    fn kv(&self) -> Kv {
        self.planned.members[0].kv().within(Duration::from_secs(3))
    }

    /// Fills the pipe to the last byte; it is not read.
    fn stall(&self) {
        let path = format!("/proc/self/fd/{}", self.writer.as_raw_fd());
        // Opened anew: the member's own handle goes on waiting for room.
        let mut filler =
            OpenOptions::new().write(true).custom_flags(NONBLOCKING).open(path).expect("the same pipe");
        for size in [4096, 1] {
            while filler.write(&vec![b'.'; size]).is_ok() {}
        }
    }

    /// Sends garbage to the peer port, on a new connection.
    fn garbage(&self, number: u16) -> std::io::Result<()> {
        let mut stream = TcpStream::connect((&self.planned.members[0].endpoint.host[..], 2380))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(format!("GET /{number} HTTP/1.1\r\n\r\n{}", "x".repeat(200)).as_bytes())?;
        let _ = stream.read(&mut [0; 64]); // until it has been refused
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_member_whose_standard_error_is_not_read_goes_on_serving_and_stops_when_told() {
    let mut member = Piped::start("stalled", &["--log-level=debug"]);
    member.stall();
    for number in 0..50 {
        member.garbage(number).expect("the peer port is open");
        member.kv().put(format!("k/{number}"), "v").expect("a put while nobody reads the lines");
    }
    kattu_rig::programs::signal(member.child.id(), "TERM");
    let ended = until("it ends", || member.child.try_wait().expect("our child"));
    assert_eq!(ended.code(), Some(0), "and in good order: {ended:?}");
}

#[test]
fn a_disk_that_hangs_ends_a_member_whose_standard_error_is_not_read() {
    need_rig!(Rig::Inject);
    let mut member = Piped::start("stalled-hangs", &["--disk-stall-timeout=2000"]);
    member.stall();
    let trace = member.planned.folder().join("trace");
    let hangs = Fault { calls: "fdatasync", what: "delay_enter=15000000", when: "1+".into(), file: None };
    let attached = inject_into(member.child.id(), &hangs, &trace);
    let kv = member.kv();
    assert!(kv.put("hangs", "x").is_err(), "its disk hangs");
    let ended = until("the watchdog ends it", || member.child.try_wait().expect("our child"));
    drop(attached);
    assert_eq!(ended.signal(), Some(6), "{ended:?}");
}

#[test]
fn a_member_says_why_it_ends_to_a_reader_that_does_read() {
    need_rig!(Rig::Inject);
    let mut member = Piped::start("read-hangs", &["--disk-stall-timeout=2000"]);
    let trace = member.planned.folder().join("trace");
    let hangs = Fault { calls: "fdatasync", what: "delay_enter=15000000", when: "1+".into(), file: None };
    let attached = inject_into(member.child.id(), &hangs, &trace);
    assert!(member.kv().put("hangs", "x").is_err(), "its disk hangs");
    let ended = until("the watchdog ends it", || member.child.try_wait().expect("our child"));
    drop(attached);
    assert_eq!(ended.signal(), Some(6), "{ended:?}");
    // The pipe never ends, because this side has a writer, too.
    member.writer.write_all(b"\nthe end\n").expect("room");
    let mut text = Vec::new();
    while !text.ends_with(b"\nthe end\n") {
        let mut part = [0; 4096];
        let read = member.reader.read(&mut part).expect("what it said");
        text.extend_from_slice(&part[..read]);
    }
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains(" error a disk call has not returned for 2s"), "{text}");
}

#[test]
fn what_strangers_cause_is_one_line_in_a_while_and_counted() {
    const STRANGERS: u16 = 400;
    let folder = kattu_rig::programs::own_folder("lines");
    let path = folder.join("member.log");
    let outputs = format!("--log-outputs={},stderr", path.display());
    let member = Piped::start("strangers", &[&outputs, "--log-format=json"]);
    for number in 0..STRANGERS {
        member.garbage(number).expect("the peer port is open");
    }
    let planned = &member.planned.members[0];
    let rejected = until("all have been refused", || {
        planned.metric("kattu_peer_rejected_total").filter(|rejected| u64::from(STRANGERS) <= *rejected)
    });
    let held_back = planned.metric("kattu_log_lines_held_back_total").expect("a metric");
    assert!(rejected <= held_back + 40, "{held_back} of {rejected} were held back");
    assert_eq!(planned.metric("kattu_log_lines_dropped_total"), Some(0));

    let lines = until("how many there were is said", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let told = |line: &serde_json::Value| {
            line["msg"].as_str().is_some_and(|msg| msg.contains("peer connections refused: "))
        };
        lines.iter().any(told).then_some(lines)
    });
    let refused =
        lines.iter().filter(|line| line["msg"].as_str().is_some_and(|msg| msg.contains(" refused: ")));
    assert!(refused.count() <= 40, "{} lines", lines.len());
    assert!(lines.iter().all(|line| line["ts"].as_str().is_some_and(|ts| ts.ends_with('Z'))));
    assert!(lines.iter().any(|line| line["level"] == "warn"));
    drop(member);
    std::fs::remove_dir_all(folder).expect("our folder");
}

#[test]
fn lines_below_the_level_are_not_said_and_a_file_that_cannot_be_opened_is_named() {
    let folder = kattu_rig::programs::own_folder("level");
    let path = folder.join("member.log");
    let outputs = format!("--log-outputs={}", path.display());
    let member = Piped::start("level", &[&outputs, "--log-level=warn"]);
    member.garbage(1).expect("the peer port is open");
    let text = until("a warning is in the file", || {
        std::fs::read_to_string(&path).ok().filter(|text| text.contains(" warn  peer connection from"))
    });
    assert!(!text.contains(" info "), "{text}");
    drop(member);

    let mut command = target::serve();
    let missing = folder.join("no-such-folder/x.log");
    command.arg(format!("--log-outputs={}", missing.display()));
    command.args(["--data-dir", &folder.join("data").display().to_string()]);
    let ended = kattu_rig::programs::run(&mut command);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(ended.err.contains("--log-outputs") && ended.err.contains("no-such-folder"), "{}", ended.err);
    assert!(File::open(folder.join("data")).is_err(), "nothing has begun");
    std::fs::remove_dir_all(folder).expect("our folder");
}
