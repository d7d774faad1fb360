//! P1: the wait for predecessors has its closed form. Three ways to the same number: the formula, a Monte Carlo of a few lines, and
//! the net.
//!
//! The Monte Carlo agrees with the formula within 1 % over a million entries. The net agrees with the few lines *exactly*, entry by
//! entry, on the sends and delays of one run; so a short run of the net is enough.
//! Knows nothing of: the other checks.

use kattu_petri::net::Transition;
use kattu_petri::wait::{closed_form, monte_carlo};
use kattu_petri::{Delay, Load, Setting, Simulator, Stage, profiles};

/// a = λ·d, and the mean wait in units of d as section 13.6 lists it.
const LISTED: [(f64, f64); 3] = [(1.0, 0.429), (10.0, 1.980), (100.0, 4.19)];

fn within(expected: f64, found: f64, tolerance: f64) -> Result<(), String> {
    let ratio = found / expected;
    match (ratio - 1.0).abs() <= tolerance {
        true => Ok(()),
        false => Err(format!("{found} is {ratio} times {expected}")),
    }
}

#[test]
fn the_formula_gives_the_listed_numbers_and_both_its_limits() {
    for (a, listed) in LISTED {
        let digits = if a < 50.0 { 0.0005 } else { 0.005 };
        assert!((closed_form(a) - listed).abs() <= digits, "{a}: {}", closed_form(a));
    }
    within(0.01 / 2.0, closed_form(0.01), 0.01).expect("a/2 for small a");
    within(1000.0_f64.ln() + 0.5772 - 1.0, closed_form(1000.0), 0.001)
        .expect("ln a + 0.5772 − 1 for large a");
}

#[test]
fn a_million_entries_agree_with_the_formula_and_other_delays_do_not() {
    for (a, _) in LISTED {
        let found = monte_carlo(a, Delay::Exponential(1.0), 1_000_000, 3);
        within(closed_form(a), found, 0.01).unwrap_or_else(|error| panic!("a = {a}: {error}"));
        // Models with the same mean delay and another law are caught.
        let uniform = Delay::Uniform { min: 0.0, max: 2.0 };
        for wrong in [Delay::Constant(1.0), uniform, Delay::Lognormal { mean: 1.0, sigma: 0.5 }] {
            let found = monte_carlo(a, wrong, 100_000, 3);
            assert!(within(closed_form(a), found, 0.01).is_err(), "{wrong:?}: {found}");
        }
    }
}

#[test]
fn the_net_waits_exactly_as_the_few_lines_do() {
    for (a, _) in LISTED {
        let setting = Setting {
            replicas: 2,
            load: Load::Open { per_second: a * 1e4 },
            dispatchers: 100_000,
            requests: 3_000,
            warm_up: 0,
            ..Setting::raft(1)
        };
        let parameters = profiles::bare(Delay::Exponential(100.0));
        let finished = Simulator::new(&parameters, &setting).expect("a net").recorded().run();
        let recording = finished.recording.as_ref().expect("a recording").json();
        let moves = recording["moves"].as_array().expect("moves");
        // Requests have no delay before they are sent, so their numbers are their indexes.
        let times = |transition: Transition, is_start: u8| {
            let mut times = std::collections::BTreeMap::new();
            for it in moves.iter().filter(|it| it[1] == transition as u8 && it[2] == is_start) {
                times.insert(it[3].as_u64().expect("a number"), it[0].as_u64().expect("a time"));
            }
            times
        };
        let (arrived, appended) = (times(Transition::SendLog, 1), times(Transition::Append, 1));
        let (mut last, mut waits) = (0_u64, Vec::new());
        for (number, began) in &appended {
            let arrival = arrived[number];
            let wait = last.saturating_sub(arrival);
            assert_eq!(began - arrival, wait, "a = {a}, entry {number}");
            waits.push(wait as f64 / 1e3);
            last = last.max(arrival);
        }
        assert!(3_000 <= waits.len());
        let report = finished.report();
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        within(mean, report.time(Stage::Wait).mean_us, 0.001).expect("what the report says");
        // Few entries, so a wide tolerance; the exact agreement above carries the weight.
        within(closed_form(a) * 100.0, mean, 0.15).unwrap_or_else(|error| panic!("a = {a}: {error}"));
    }
}
