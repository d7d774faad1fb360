//! Seeds whose storm once broke a promise: none does again.

use kattu_sim::{Family, Options, run_storm};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines of `[family] [shared-settings] [sessions] [tuned] [non-blocking] [weak] seed [minutes] | story | fix`.
const LINES: &str = include_str!("../regressions.txt");
const THREADS: usize = 2;

/// The storm of a line, and the words of a command line that runs it again.
fn storm_of(line: &str) -> (u64, Options, String) {
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let [storm, story, fix] = parts[..] else {
        panic!(
            "not `[family] [shared-settings] [sessions] [tuned] [non-blocking] [weak] seed [minutes] | story | fix`: {line}"
        );
    };
    assert!(!story.is_empty() && !fix.is_empty(), "{line}");
    let (first, rest) = storm.split_once(' ').unwrap_or((storm, ""));
    let (family, numbers) = match Family::called(first) {
        Some(family) => (family, rest),
        None => (Family::Storms, storm),
    };
    let unshared = numbers.strip_prefix("shared-settings ");
    let (shared_settings, numbers) = (unshared.is_some(), unshared.unwrap_or(numbers));
    let without = numbers.strip_prefix("sessions ");
    let (sessions, numbers) = (without.is_some(), without.unwrap_or(numbers));
    let untuned = numbers.strip_prefix("tuned ");
    let (tuned, numbers) = (untuned.is_some(), untuned.unwrap_or(numbers));
    let blocking = numbers.strip_prefix("non-blocking ");
    let (non_blocking, numbers) = (blocking.is_some(), blocking.unwrap_or(numbers));
    let unasked = numbers.strip_prefix("weak ");
    let (weak, numbers) = (unasked.is_some(), unasked.unwrap_or(numbers));
    let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().expect(line)).collect();
    let (seed, minutes) = (numbers[0], numbers.get(1).copied());
    let length = minutes.map_or(String::new(), |minutes| format!(" --minutes {minutes}"));
    let shared = if shared_settings { " --shared-settings" } else { "" };
    let of_sessions = if sessions { " --sessions" } else { "" };
    let of_tuned = if tuned { " --tuned" } else { "" };
    let of_windows = if non_blocking { " --non-blocking" } else { "" };
    let of_weak = if weak { " --weak" } else { "" };
    let more = format!("{shared}{of_sessions}{of_tuned}{of_windows}{of_weak}");
    let words = format!("--family {}{more} --seed {seed}{length}", family.name());
    let seconds = minutes.map(|minutes| minutes * 60);
    let options = Options { seconds, family, shared_settings, sessions, tuned, ..Options::default() };
    (seed, Options { non_blocking, weak, ..options }, words)
}

#[test]
fn a_line_is_a_storm() {
    let (seed, options, words) = storm_of("slow-links shared-settings 7 2 | a | b");
    assert_eq!((seed, options.seconds, options.shared_settings), (7, Some(120), true));
    assert_eq!(options.family, Family::SlowLinks);
    assert_eq!(words, "--family slow-links --shared-settings --seed 7 --minutes 2");
    let (_, options, words) = storm_of("sessions 9 1 | a | b");
    assert!(options.sessions && !options.shared_settings);
    assert_eq!(words, "--family storms --sessions --seed 9 --minutes 1");
    let (_, options, words) = storm_of("tuned 9 1 | a | b");
    assert!(options.tuned && !options.sessions);
    assert_eq!(words, "--family storms --tuned --seed 9 --minutes 1");
    let (_, options, words) = storm_of("non-blocking 9 | a | b");
    assert!(options.non_blocking && !options.tuned);
    assert_eq!(words, "--family storms --non-blocking --seed 9");
    let (_, options, words) = storm_of("weak 9 | a | b");
    assert!(options.weak && !options.non_blocking);
    assert_eq!(words, "--family storms --weak --seed 9");
    let (seed, options, words) = storm_of("9 | a | b");
    assert_eq!((seed, options.seconds, options.shared_settings), (9, None, false));
    assert_eq!((options.family, words.as_str()), (Family::Storms, "--family storms --seed 9"));
}

#[test]
fn no_regression_comes_back() {
    let lines: Vec<&str> = LINES.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(60 < lines.len(), "{} lines: where are the others?", lines.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (seed, options, words) = storm_of(line);
                    let violation = run_storm(seed, &options).violation;
                    assert_eq!(violation, None, "{line}\nis back; replay: kattu sim {words}");
                }
            });
        }
    });
}
