//! A slice of `cargo xtask bench heavy`: each request is refused or carried out whole, as it should be; no member ends
//! and no leader changes. Times are not judged, for the machine has other work.

use kattu_e2e::heavy::{Act, Plan, run};

#[test]
fn requests_about_very_many_keys_are_refused_or_carried_out_whole_and_harm_no_other() {
    let plan = Plan { acts: Act::ALL.to_vec(), scale: 1, judges_times: false };
    let report = run(&plan, |seen| println!("{seen:?}"));
    assert!(report.is_good(), "{report:#?}");
    assert_eq!(report.seen.len(), Act::ALL.len());
    assert!(0 < report.step_max, "{report:#?}");
}
