//! A check of the harness: etcd must agree with itself, and a single falsified answer must be found.
//!
//! Needs etcd 3.4 in `target/tools` (`cargo xtask tools`); without it the tests print SKIPPED.

use kattu_differential::episode::{self, Outcome, Setup};
use kattu_differential::server::System;
use kattu_differential::{reduce, rules};
use kattu_rig::target::Target;
use kattu_rig::tool;
use std::path::Path;

fn setup(test: &str, plant_every: Option<u64>) -> Option<Setup> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Some(etcd) = tool("etcd34/etcd") else {
        println!("SKIPPED {test}: no etcd 3.4 in target/tools; run `cargo xtask tools`");
        return None;
    };
    let page = std::fs::read_to_string(root.join("docs/compatibility.md")).expect("the page of rules");
    Some(Setup {
        left: System { target: Target::Etcd, program: etcd.clone() },
        right: System { target: Target::Etcd, program: etcd },
        data: std::env::temp_dir().join(format!("kattu-differential-{test}-{}", std::process::id())),
        bad_sorts_everywhere: false,
        rules: rules::parse(&page).expect("the rules are well formed"),
        plant_every,
    })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

#[test]
fn etcd_agrees_with_itself_without_any_rule() {
    let Some(mut setup) = setup("etcd_agrees_with_itself_without_any_rule", None) else { return };
    setup.rules.clear();
    let outcome = block_on(episode::run(&setup, 11, 0, 1_500)).expect("both servers live");
    assert!(outcome.unexplained.is_none(), "{:?}", outcome.unexplained);
    assert!(1_500 <= outcome.requests);
    for name in ["range", "put", "delete", "txn", "compact"] {
        assert!(
            outcome.calls.get(name).is_some_and(|(all, _)| 0 < *all),
            "no {name} was asked: {:?}",
            outcome.calls
        );
    }
    let _ = std::fs::remove_dir_all(&setup.data);
}

#[test]
fn one_false_answer_in_seven_hundred_is_found() {
    let Some(setup) = setup("one_false_answer_in_seven_hundred_is_found", Some(700)) else { return };
    let outcome: Outcome = block_on(episode::run(&setup, 12, 0, 1_500)).expect("both servers live");
    let unexplained = outcome.unexplained.expect("the lie is seen");
    assert_eq!(unexplained.history.len(), 700, "{:?}", unexplained.differences);
    assert_eq!(unexplained.differences.len(), 1, "{:?}", unexplained.differences);
    let _ = std::fs::remove_dir_all(&setup.data);
}

#[test]
fn a_history_is_shortened_to_what_still_differs() {
    let Some(setup) = setup("a_history_is_shortened_to_what_still_differs", Some(3)) else { return };
    let outcome = block_on(episode::run(&setup, 13, 0, 40)).expect("both servers live");
    let history = outcome.unexplained.expect("the lie is seen").history;
    // Every third answer is false, so no history shorter than three differs.
    let short =
        block_on(reduce::shorten(&setup, &history)).expect("both servers live").expect("it differs again");
    assert_eq!(short.len(), 3);
    let _ = std::fs::remove_dir_all(&setup.data);
}
