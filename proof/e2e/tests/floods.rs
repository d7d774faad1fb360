//! A slice of `cargo xtask bench floods`: clients and strangers that take all they can. Memory and log lines are
//! judged, and no put of the good client may fail or be lost; times are not judged, for the machine has other work.

use kattu_e2e::floods::{Flood, Plan, run};
use std::time::Duration;

#[test]
fn floods_on_either_port_cost_bounded_memory_and_a_good_client_nothing() {
    let plan = Plan {
        floods: Flood::ALL.into_iter().filter(|flood| *flood != Flood::LargeWriters).collect(),
        lasts: Duration::from_secs(3),
        strength: 20,
        client_bytes: Some(256 << 20),
        one_core: false,
        judges_times: false,
    };
    let report = run(&plan, |seen| println!("{seen:?}"));
    assert!(report.is_good(), "{report:#?}");
    assert!(200 < report.acknowledged, "{} puts", report.acknowledged);
}
