//! Killers: runs programs with one mutant chosen, until one of them fails.
//!
//! In:    the programs of the copy; the number of a mutant.
//! Out:   which program killed it, and how; or that none did.
//! Rules:
//!   1. First every program runs without a mutant: it must pass, it writes down the mutants whose places it reaches, and its
//!      time is measured. A mutant is tried only with programs that reach it, the quickest first.
//!   2. A program that needs five times the time of its run without a mutant, and ten seconds more, is ended, and has killed
//!      the mutant. So has one that needs more memory than [`MEMORY_MAX_KIB`]. Time is the processor's: a busy machine kills
//!      no mutant. A program that only waits is ended after ten times as long.
//!   3. Random tests have the same seed in every run, and keep nothing of a failure.
//!
//! Knows nothing of: mutants, reports.

use crate::build::Built;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Address space of a program, in KiB: a mutant may allocate without end.
pub const MEMORY_MAX_KIB: u64 = 4 << 20;

/// Time of a program without a mutant.
const CONTROL_MAX: Duration = Duration::from_secs(900);

/// A program may wait so many times as long as it may run.
const WAITING_MAX: u32 = 10;

/// A shell's exit code for a program that was ended by a signal, without the number of the signal.
const SIGNALS: i32 = 128;

/// The same for one that has used up its processor time: SIGXCPU.
const OUT_OF_TIME: i32 = SIGNALS + 24;

/// Bytes of a line that are looked at, and bytes of output that are kept for a message.
const LINE_MAX: usize = 1000;
const TAIL_MAX: usize = 3000;

/// How one program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Without a complaint.
    Passed,
    /// A test failed: its name, or how the process ended.
    Failed(String),
    /// It did not end in time.
    Late,
}

/// A program, and what its run without a mutant has shown.
#[derive(Clone, Debug)]
pub struct Killer {
    /// The program.
    pub built: Built,
    /// Its time.
    pub time: Duration,
    /// The mutants whose places it reaches.
    pub reached: BTreeSet<usize>,
}

/// What became of one mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The name of the program, and how it ended.
    Killed(String, Ended),
    /// All programs that reach it passed; their number.
    Survived(usize),
}

/// Runs a program without a mutant.
///
/// # Errors
/// It fails, or takes too long: nothing that it says about mutants would mean anything.
pub fn control(built: &Built, reached: &Path) -> Result<Killer, String> {
    // Left by a run that was broken off.
    let _ = std::fs::remove_file(reached);
    let (ended, tail) = run(built, &[("KATTU_REACHED", &reached.display().to_string())], CONTROL_MAX)?;
    if ended != Ended::Passed {
        return Err(format!("`{}` fails without a mutant ({ended:?}):\n{tail}", built.name));
    }
    let time = tail.lines().last().and_then(used).ok_or_else(|| format!("no time in:\n{tail}"))?;
    // No file: nothing was reached.
    let text = std::fs::read_to_string(reached).unwrap_or_default();
    let reached = text.lines().filter_map(|line| line.parse().ok()).collect();
    Ok(Killer { built: built.clone(), time, reached })
}

/// Tries to kill one mutant.
///
/// # Errors
/// A program could not be started.
pub fn attack(killers: &[Killer], number: usize) -> Result<Outcome, String> {
    let mut able: Vec<&Killer> = killers.iter().filter(|killer| killer.reached.contains(&number)).collect();
    able.sort_by_key(|killer| killer.time);
    for killer in &able {
        let limit = killer.time * 5 + Duration::from_secs(10);
        let (ended, _) = run(&killer.built, &[("KATTU_PLANTED", &number.to_string())], limit)?;
        if ended != Ended::Passed {
            return Ok(Outcome::Killed(killer.built.name.clone(), ended));
        }
    }
    Ok(Outcome::Survived(able.len()))
}

/// Runs a program until it ends, says that a test has failed, or has used up its processor time. Also returns the end of
/// its output: the last line of that is the time that it has used, if it has ended by itself.
fn run(built: &Built, variables: &[(&str, &str)], limit: Duration) -> Result<(Ended, String), String> {
    let mut command = Command::new("sh");
    let seconds = limit.as_secs().max(1);
    let limits = format!("ulimit -c 0; ulimit -v {MEMORY_MAX_KIB}; ulimit -S -t {seconds}");
    command.args(["-c", &format!("{limits}; \"$0\" \"$@\" 2>&1; code=$?; times; exit $code")]);
    command.arg(&built.executable).args(&built.arguments).current_dir(&built.folder);
    command.env_remove("KATTU_PLANTED").env_remove("KATTU_REACHED").envs(variables.iter().copied());
    command.env("RUST_TEST_THREADS", "1").env("RUST_BACKTRACE", "0");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.env("PROPTEST_RNG_SEED", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", built.name))?;
    let (tell, told) = channel();
    let output = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || read(output, &tell));
    let ended = wait(&mut child, &told, (limit * WAITING_MAX).as_secs().max(1))?;
    end_group(&mut child);
    let tail = reader.join().unwrap_or_default();
    Ok((ended, tail))
}

/// Waits for the first of: a failed test, the end of the output, the end of the time. Seconds are counted, so that a
/// pause of this process is none of the program's time.
fn wait(child: &mut Child, told: &Receiver<String>, seconds: u64) -> Result<Ended, String> {
    let mut waited = 0;
    loop {
        match told.recv_timeout(Duration::from_secs(1)) {
            Ok(test) => return Ok(Ended::Failed(test)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if waited < seconds => waited += 1,
            Err(RecvTimeoutError::Timeout) => return Ok(Ended::Late),
        }
    }
    // The output has ended, so the process has, or does now.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(Ended::Passed),
            Some(status) => {
                // The shell adds 128 to the number of the signal that ended the program.
                return Ok(match (status.code().unwrap_or_default(), status.signal()) {
                    (_, Some(signal)) => Ended::Failed(format!("signal {signal}")),
                    (OUT_OF_TIME, _) => Ended::Late,
                    (code, _) if SIGNALS < code => Ended::Failed(format!("signal {}", code - SIGNALS)),
                    (code, _) => Ended::Failed(format!("exit code {code}")),
                });
            }
            None if end <= Instant::now() => return Ok(Ended::Late),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Reads all output, tells each failed test, and returns the end of the output.
fn read(mut output: impl Read, tell: &Sender<String>) -> String {
    let (mut buffer, mut line, mut tail) = ([0; 1 << 14], Vec::new(), Vec::new());
    loop {
        // A broken pipe is an end, too.
        let length = output.read(&mut buffer).unwrap_or(0);
        if length == 0 {
            return String::from_utf8_lossy(&tail).into_owned();
        }
        for &byte in &buffer[..length] {
            if byte != b'\n' {
                if line.len() < LINE_MAX {
                    line.push(byte);
                }
                continue;
            }
            if let Some(test) = failed_test(&String::from_utf8_lossy(&line)) {
                // Only the first one is waited for.
                let _ = tell.send(test.to_string());
            }
            line.clear();
        }
        tail.extend_from_slice(&buffer[..length]);
        tail.drain(..tail.len().saturating_sub(TAIL_MAX));
    }
}

/// The name of the test that a line of a test program says has failed.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The processor time in a line of the shell's `times`: `0m1.25s 0m0.03s`, user and system.
fn used(line: &str) -> Option<Duration> {
    let parts = line.split_whitespace().map(|part| {
        let (minutes, seconds) = part.strip_suffix('s')?.split_once('m')?;
        let seconds: f64 = seconds.parse().ok()?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds)
    });
    let seconds = parts.sum::<Option<f64>>()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Ends a process and all that it started, and forgets it.
fn end_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group is gone if the process has ended and left nothing behind.
        let _ = kill_process_group(group, Signal::KILL);
    }
    // Its status is known, or does not matter any more.
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Built {
        Built {
            name: "a script".into(),
            executable: "/bin/sh".into(),
            folder: std::env::temp_dir(),
            arguments: vec!["-c".into(), script.into()],
        }
    }

    fn ended(script: &str, limit: Duration) -> Ended {
        run(&shell(script), &[], limit).expect("it starts").0
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_that_ends_well_has_passed() {
        assert_eq!(ended("echo 'test a ... ok'", LONG), Ended::Passed);
        assert_eq!(ended("exit 3", LONG), Ended::Failed("exit code 3".into()));
        assert_eq!(ended("kill -ABRT $$", LONG), Ended::Failed("signal 6".into()));
    }

    #[test]
    fn the_first_failed_test_ends_the_run() {
        let script = "echo 'test a::b ... FAILED'; sleep 1000";
        assert_eq!(ended(script, LONG), Ended::Failed("a::b".into()));
    }

    #[test]
    fn a_program_that_runs_for_ever_is_late() {
        assert_eq!(ended("while true; do :; done", Duration::from_secs(1)), Ended::Late);
        assert_eq!(ended("exec sleep 1000", Duration::from_millis(20)), Ended::Late);
    }

    #[test]
    fn the_time_of_a_program_is_the_processors() {
        assert_eq!(used("1m2.50s 0m0.25s"), Some(Duration::from_millis(62_750)));
        assert_eq!(used("test result: ok"), None);
        let (_, tail) = run(&shell("sleep 0.1"), &[], LONG).expect("it starts");
        let time = tail.lines().last().and_then(used).expect("a time");
        assert!(time < Duration::from_millis(90), "{time:?}");
    }

    #[test]
    fn a_program_has_a_limit_of_memory() {
        assert_eq!(ended(&format!("test $(ulimit -v) = {MEMORY_MAX_KIB}"), LONG), Ended::Passed);
    }

    #[test]
    fn mutants_are_tried_with_programs_that_reach_them_and_in_order() {
        let killer = |name: &str, script: &str, seconds: u64, reached: &[usize]| Killer {
            built: Built { name: name.into(), ..shell(script) },
            time: Duration::from_secs(seconds),
            reached: reached.iter().copied().collect(),
        };
        let killers = [
            killer("storms", "exit 1", 1, &[1, 2]),
            killer("tests", "test $KATTU_PLANTED != 1", 0, &[1, 2, 3]),
        ];
        let red = Ended::Failed("exit code 1".into());
        assert_eq!(attack(&killers, 1), Ok(Outcome::Killed("tests".into(), red.clone())));
        assert_eq!(attack(&killers, 2), Ok(Outcome::Killed("storms".into(), red)));
        assert_eq!(attack(&killers, 3), Ok(Outcome::Survived(1)));
        assert_eq!(attack(&killers, 4), Ok(Outcome::Survived(0)));
    }

    #[test]
    fn a_program_that_fails_without_a_mutant_is_refused() {
        let reached = std::env::temp_dir().join(format!("kattu-killers-{}", std::process::id()));
        let why = control(&shell("echo because; exit 1"), &reached).expect_err("it fails");
        assert!(why.contains("without a mutant") && why.contains("because"), "{why}");
        let killer = control(&shell("echo 7 >> $KATTU_REACHED"), &reached).expect("it passes");
        assert_eq!(killer.reached, BTreeSet::from([7]));
        std::fs::remove_file(reached).expect("it is there");
    }
}
