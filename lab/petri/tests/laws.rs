//! P2, P3, P5 and the arcs: laws that hold for every parameter.
//!
//! Knows nothing of: the published figures.

use kattu_petri::marking::Little;
use kattu_petri::net::{NET, Place, Transition, Weight};
use kattu_petri::{
    Delay, Failure, Finished, Load, Parameters, Setting, Simulator, Stage, Weak, predict, profiles,
};

fn small(setting: Setting) -> Setting {
    Setting { requests: 2_000, warm_up: 200, ..setting }
}

fn nb_raft(clients: usize) -> Setting {
    small(Setting::nb_raft(clients))
}

fn finished(parameters: &Parameters, setting: &Setting) -> Finished {
    Simulator::new(parameters, setting).expect("a net").run()
}

/// Every way to run the net, with a name.
fn variants() -> Vec<(&'static str, Parameters, Setting)> {
    let iotdb = profiles::iotdb();
    let polled = Parameters { poll_us: 20.0, ..iotdb.clone() };
    let batched = Parameters { append: Delay::Constant(100.0), append_entries_max: 16, ..iotdb.clone() };
    let raft = small(Setting::raft(24));
    let open = Load::Open { per_second: 30_000.0 };
    vec![
        ("raft", iotdb.clone(), raft.clone()),
        ("raft, few dispatchers", iotdb.clone(), Setting { dispatchers: 2, ..raft.clone() }),
        ("raft, two replicas", iotdb.clone(), Setting { replicas: 2, ..raft.clone() }),
        ("raft, nine replicas", iotdb.clone(), Setting { replicas: 9, ..raft.clone() }),
        ("raft, polled", polled.clone(), raft.clone()),
        ("raft, batched", batched.clone(), raft.clone()),
        ("raft, ordered", iotdb.clone(), Setting { ordered_stream: true, ..raft.clone() }),
        ("raft, ordered, batched", batched.clone(), Setting { ordered_stream: true, ..raft.clone() }),
        ("raft, open", iotdb.clone(), Setting { load: open, dispatchers: 50, ..raft.clone() }),
        ("window only", iotdb.clone(), Setting { weak: Weak::Off, ..nb_raft(24) }),
        ("nb-raft", iotdb.clone(), nb_raft(24)),
        ("nb-raft, small window", iotdb.clone(), Setting { window: 3, ..nb_raft(24) }),
        ("nb-raft, polled", polled, Setting { window: 3, ..nb_raft(24) }),
        ("nb-raft, batched", batched, nb_raft(24)),
        ("nb-raft, on receipt", iotdb.clone(), Setting { weak: Weak::Receipt, ..nb_raft(24) }),
        ("nb-raft, not synchronous", iotdb.clone(), Setting { synchronous: false, ..nb_raft(24) }),
        ("nb-raft, open", iotdb.clone(), Setting { load: open, dispatchers: 50, ..nb_raft(24) }),
        ("nb-raft, ordered", iotdb, Setting { ordered_stream: true, ..nb_raft(24) }),
    ]
}

#[test]
fn tokens_are_conserved_after_every_event_of_every_variant() {
    for (name, parameters, setting) in variants() {
        let setting = Setting { requests: 300, warm_up: 10, ..setting };
        let finished = Simulator::new(&parameters, &setting).expect(name).checked().run();
        assert_eq!(finished.marking.all_tokens(Place::LTerm), setting.clients() as u64);
        assert!(300 <= finished.marking.fired(Transition::Index), "{name}");
    }
}

/// P2 at one place, with this tolerance for what had not left at the end.
fn little_holds(little: &Little, tolerance: f64) -> Result<(), String> {
    let (tokens, product) = (little.tokens, little.rate_times_stay);
    match (tokens - product).abs() <= tolerance * tokens.max(0.05) {
        true => Ok(()),
        false => Err(format!("{}: L = {tokens}, λ·W = {product}", little.place.name())),
    }
}

#[test]
fn littles_law_holds_at_every_place_that_tokens_pass() {
    for (name, parameters, setting) in variants() {
        let finished = finished(&parameters, &Setting { requests: 4_000, ..setting });
        let mut judged = 0;
        // Where few tokens pass, what stays at the end weighs too much.
        for little in finished.little.iter().filter(|it| 40 * it.still_there.max(5) < it.departures) {
            little_holds(little, 0.03).unwrap_or_else(|error| panic!("{name}: {error}"));
            judged += 1;
        }
        assert!(12 <= judged, "{name}: {judged} places");
    }
}

#[test]
fn littles_law_does_not_hold_for_stays_that_are_measured_wrongly() {
    let finished = finished(&profiles::iotdb(), &nb_raft(24));
    let way = *finished.little.iter().find(|it| it.place == Place::NetLf).expect("a place");
    assert_eq!(little_holds(&way, 0.03), Ok(()));
    let wrong = Little { rate_times_stay: way.rate_times_stay * 1.1, ..way };
    assert!(little_holds(&wrong, 0.03).is_err());
}

#[test]
fn one_seed_is_one_run_and_another_seed_another() {
    for setting in [small(Setting::raft(64)), nb_raft(64)] {
        let digest = |seed: u64| finished(&profiles::iotdb(), &Setting { seed, ..setting.clone() }).digest;
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
    }
}

#[test]
fn each_arc_carries_tokens_in_some_run_and_each_transition_fires() {
    let mut runs: Vec<Finished> = variants().iter().map(|(_, its, setting)| finished(its, setting)).collect();
    let failure = Failure { at_us: 20_000.0, timeout_us: 200.0, clients_end: false };
    // Few processors, so that requests stand in every place when the leader fails.
    let busy = Parameters { cores: 1, appliers: 1, switch_penalty: 0.0, ..profiles::iotdb() };
    let busy = Parameters { parse: Delay::Exponential(30.0), index: Delay::Exponential(28.0), ..busy };
    for (seed, window) in (0..30).zip([10_000, 2].into_iter().cycle()) {
        let setting = Setting { seed, window, dispatchers: 4, ..nb_raft(24) };
        let simulator = Simulator::new(&busy, &setting).expect("a net").failing(failure);
        runs.push(simulator.run());
    }
    for row in &NET {
        let fired: u64 = runs.iter().map(|run| run.marking.fired(row.transition)).sum();
        assert!(0 < fired, "{} never fired", row.name);
        let used = |place: Place| runs.iter().map(move |run| run.marking.used(row.transition, place));
        for arc in row.inputs {
            assert!(used(arc.place).any(|(taken, _)| taken), "{} ─▶ {}", arc.place.name(), row.name);
        }
        for arc in row.outputs {
            assert!(used(arc.place).any(|(_, put)| put), "{} ─▶ {}", row.name, arc.place.name());
        }
        // What is declared as optional is left out at times: by a protocol, or by the guard.
        let optional = row.outputs.iter().any(|arc| arc.weight == Weight::Any);
        assert!(!optional || row.class != kattu_petri::net::Class::Waiting);
    }
}

/// P5: on ordered streams nothing waits, and the window alone changes nothing.
fn ordered_refutes(raft: &Setting, parameters: &Parameters) -> Result<(), String> {
    let of = |setting: &Setting| predict(parameters, setting);
    let base = of(raft)?;
    let window = of(&Setting { window: 10_000, ..raft.clone() })?;
    let wait = base.report.time(Stage::Wait).mean_us;
    if wait != 0.0 || base.report.disorder != 0.0 {
        return Err(format!("t_wait {wait} µs, disorder {}", base.report.disorder));
    }
    match base.digest == window.digest {
        true => Ok(()),
        false => Err("the window changes the run".into()),
    }
}

#[test]
fn on_an_ordered_stream_nothing_waits_and_only_the_early_reply_is_left_of_the_gain() {
    // Clients that are equally quick, so that short runs can be compared.
    let parameters = Parameters { generate: Delay::Constant(100.0), ..profiles::iotdb() };
    let ordered = Setting { ordered_stream: true, ..small(Setting::raft(64)) };
    ordered_refutes(&ordered, &parameters).expect("P5");
    // Links that do not keep the order are caught.
    let unordered = Setting { ordered_stream: false, ..ordered.clone() };
    let error = ordered_refutes(&unordered, &parameters).expect_err("a wait");
    assert!(error.starts_with("t_wait"), "{error}");

    // What is left is the reply before commit and apply: no more than these take.
    let early = Setting { weak: Weak::Gap, window: 10_000, ..ordered.clone() };
    let (raft, early) =
        (predict(&parameters, &ordered).expect("raft"), predict(&parameters, &early).expect("nb"));
    let gain = early.report.accepted_per_s / raft.report.accepted_per_s - 1.0;
    let cycle: f64 = raft.report.steps_us.iter().sum();
    let skipped = raft.report.time(Stage::Commit).mean_us + raft.report.time(Stage::Apply).mean_us;
    assert!(0.0 < gain && gain < 1.5 * skipped / cycle, "{gain}, {}", skipped / cycle);
    assert_eq!(early.report.time(Stage::Wait).mean_us, 0.0);
}
