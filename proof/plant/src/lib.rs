//! Plant: the chosen planted bug, in builds of a copy of the workspace that has wrong code beside the right code.
//!
//! The product is never linked with this crate: only `kattu-mutants` and `kattu-mutation` write calls of it. The choice
//! belongs to the process and is no part of any state: clones and hashes do not see it.
//!
//! In:   [`choose`], by programs that know the bugs; else two variables of the environment, for test programs that do not:
//!       `KATTU_PLANTED`, the number of the bug; `KATTU_REACHED`, a file to which the number of each bug is appended when
//!       its place is reached for the first time, while none is chosen.
//! Rule: a choice costs one load and two comparisons.
//! Knows nothing of: the bugs.
#![forbid(unsafe_code)]

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of the bug that is chosen; 0 for none; or one of the numbers below, which belong to no bug.
static CHOSEN: AtomicUsize = AtomicUsize::new(UNREAD);

/// The environment has not been read.
const UNREAD: usize = usize::MAX;
/// No bug is chosen, and each place that is reached is written down.
const TRACED: usize = usize::MAX - 1;

/// Bugs with higher numbers are not written down.
const TRACED_MAX: usize = 1 << 14;

/// The bugs whose places have been reached.
static REACHED: [AtomicBool; TRACED_MAX] = [const { AtomicBool::new(false) }; TRACED_MAX];

/// Chooses this bug, and no other, in the whole process; 0 for none.
pub fn choose(number: usize) {
    CHOSEN.store(number, Ordering::SeqCst);
}

/// Whether this bug is chosen.
#[must_use]
pub fn is(number: usize) -> bool {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    chosen == number || TRACED <= chosen && is_by_environment(number)
}

/// Reads the environment, or writes down that the place of this bug was reached.
#[cold]
fn is_by_environment(number: usize) -> bool {
    if CHOSEN.load(Ordering::SeqCst) == UNREAD {
        let planted = std::env::var("KATTU_PLANTED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let is_traced = planted == 0 && std::env::var_os("KATTU_REACHED").is_some();
        let read = if is_traced { TRACED } else { planted };
        // A choice that the program has made since stands.
        let _ = CHOSEN.compare_exchange(UNREAD, read, Ordering::SeqCst, Ordering::SeqCst);
    }
    let chosen = CHOSEN.load(Ordering::SeqCst);
    // A place in a loop is reached often: the first load is all that it costs then.
    let is_new = |flag: &AtomicBool| !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed);
    if chosen == TRACED && REACHED.get(number).is_some_and(is_new) {
        let file = std::env::var_os("KATTU_REACHED").expect("it was there");
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file");
        file.write_all(format!("{number}\n").as_bytes()).expect("the number is written");
    }
    chosen == number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn one_bug_is_chosen_at_a_time() {
        choose(0);
        assert!(!is(1) && !is(2));
        choose(1);
        assert!(is(1) && !is(2));
        choose(0);
        assert!(!is(1) && !is(2));
    }

    /// The part of the test below that runs in a process of its own.
    #[test]
    #[ignore = "run by the test of the environment"]
    fn prints_what_is_chosen() {
        println!("chosen: {:?}", [1, 2, 2, 1].map(is));
    }

    #[test]
    fn a_program_that_chooses_nothing_has_the_choice_of_its_environment() {
        let file = std::env::temp_dir().join(format!("kattu-plant-{}", std::process::id()));
        let run = |variables: &[(&str, &str)]| {
            let mut program = Command::new(std::env::current_exe().expect("a program"));
            program.args(["--ignored", "--nocapture", "prints_what_is_chosen"]);
            program.env_remove("KATTU_PLANTED").env_remove("KATTU_REACHED");
            let output = program.envs(variables.iter().copied()).output().expect("it runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let path = file.to_str().expect("a path of text");
        assert!(run(&[]).contains("[false, false, false, false]"));
        assert!(
            run(&[("KATTU_PLANTED", "2"), ("KATTU_REACHED", path)]).contains("[false, true, true, false]")
        );
        assert!(!file.exists());
        assert!(run(&[("KATTU_REACHED", path)]).contains("[false, false, false, false]"));
        assert_eq!(std::fs::read_to_string(&file).expect("it is written"), "1\n2\n");
        std::fs::remove_file(&file).expect("it is there");
    }
}
