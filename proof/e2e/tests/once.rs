//! Exactly once, from outside: sessions put while leaders are killed. The whole of it: `cargo xtask bench once`.

use kattu_e2e::once::{Report, Settings, run};

/// Strict sessions and those in any order, in turns.
const SLICE: Settings = Settings { sessions: 8, puts: 4_000, kills: 3, is_control: false };

fn shown(report: &Report) -> String {
    format!("{:?}, kept: {:?}", report.broken, report.kept)
}

#[test]
fn puts_of_sessions_are_executed_once_each_whatever_happens_to_leaders() {
    let report = run(SLICE, |_, _| ());
    assert!(report.broken.is_empty(), "{}", shown(&report));
    assert_eq!((report.answered, report.kills.len()), (4_000, 3));
    assert!(0 < report.repeated, "puts under way at a kill are sent again");
}

#[test]
fn a_put_that_is_given_twice_behind_the_judges_back_is_found() {
    let report = run(Settings { puts: 400, kills: 0, is_control: true, ..SLICE }, |_, _| ());
    let first = report.broken.first().expect("it is found");
    assert_eq!(first, "once/0000 has version 51, 50 puts were given and answered");
    // It is kept for a reader, and there is none.
    std::fs::remove_dir_all(report.kept.expect("it is kept")).expect("it is ours");
}
