//! Weak writes, from outside: sessions put weakly while leaders are killed, some together with their clients. The whole of it:
//! `cargo xtask bench weak`.

use kattu_e2e::weak::{Report, Settings, run};

const SLICE: Settings = Settings { living: 4, mortal: 8, kills: 2, budget: 500, is_control: false };

fn shown(report: &Report) -> String {
    format!("{:?}, kept: {:?}", report.broken, report.kept)
}

#[test]
fn nothing_of_a_living_session_is_lost_and_each_other_loss_is_told_and_within_the_budget() {
    let report = run(SLICE, |_, _| ());
    assert!(report.broken.is_empty(), "{}", shown(&report));
    assert_eq!(report.kills.len(), 2);
    assert!(0 < report.received, "puts are accepted before they are done");
}

#[test]
fn a_put_that_was_accepted_and_never_executed_is_found() {
    let report = run(Settings { kills: 0, is_control: true, ..SLICE }, |_, _| ());
    let first = report.broken.first().expect("it is found");
    assert!(first.starts_with("living/0000: ") && first.contains("lost untold"), "{first}");
    // It is kept for a reader, and there is none.
    std::fs::remove_dir_all(report.kept.expect("it is kept")).expect("it is ours");
}
