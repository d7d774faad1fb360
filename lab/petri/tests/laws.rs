//! P2, P3, P5 and the arcs: laws that hold for every parameter.
//!
//! Knows nothing of: the published figures.

use kattu_petri::marking::Little;
use kattu_petri::net::{NET, Place, Transition, Weight};
use kattu_petri::{
    Delay, Failure, Finished, Host, Load, LogWork, OwnLog, Parameters, Setting, Simulator, Stage, Weak,
    predict, profiles,
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

/// Logs of their own, and groups: as Kattu's members have them.
fn own_log(own: OwnLog) -> Parameters {
    let log = LogWork {
        index_entries_max: 64,
        own,
        persist: Delay::Constant(20.0),
        persist_disk: Delay::Exponential(300.0),
        append_disk: Delay::Exponential(300.0),
        append_each_us: 2.0,
        reads_on: own == OwnLog::Thread,
    };
    Parameters {
        generate: Delay::Constant(20.0),
        append_entries_max: 64,
        appliers: 1,
        cores: 1,
        switch_penalty: 0.0,
        log,
        ..profiles::iotdb()
    }
}

/// Every way to run the net, with a name.
fn variants() -> Vec<(&'static str, Parameters, Setting)> {
    let iotdb = profiles::iotdb();
    let polled = Parameters { poll_us: 20.0, ..iotdb.clone() };
    let batched = Parameters { append: Delay::Constant(100.0), append_entries_max: 16, ..iotdb.clone() };
    let raft = small(Setting::raft(24));
    let open = Load::Open { per_second: 30_000.0 };
    let shared = Some(Host { cores: 2, client_wake_us: 30.0, clients_per_connection: 8 });
    let ordered = Setting { ordered_stream: true, ..raft.clone() };
    let weak = Setting { weak: Weak::Receipt, window: 10_000, ..ordered.clone() };
    let (inline, thread) = (own_log(OwnLog::Inline), own_log(OwnLog::Thread));
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
        ("own log inline", inline.clone(), ordered.clone()),
        ("own log inline, two replicas", inline.clone(), Setting { replicas: 2, ..ordered.clone() }),
        ("own log inline, shared processors", Parameters { host: shared, ..inline }, weak.clone()),
        ("own log on a thread", thread.clone(), ordered),
        ("own log on a thread, shared processors", Parameters { host: shared, ..thread }, weak),
    ]
}

#[test]
fn tokens_are_conserved_after_every_event_of_every_variant() {
    for (name, parameters, setting) in variants() {
        let setting = Setting { requests: 300, warm_up: 10, ..setting };
        let finished = Simulator::new(&parameters, &setting).expect(name).checked().run();
        assert_eq!(finished.marking.all_tokens(Place::LTerm), setting.clients() as u64);
        assert!(300 <= finished.marking.fired(Transition::SendReq), "{name}");
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

/// One client whose requests cost nothing but disks: the leader's write and the quickest follower's are under way together.
#[test]
fn a_commit_waits_for_the_slower_of_the_own_log_and_a_quorum() {
    let bare = profiles::bare(Delay::Constant(100.0));
    let latency = |own: OwnLog, here: f64, there: f64, replicas: usize| {
        let (persist_disk, append_disk) = (Delay::Constant(here), Delay::Constant(there));
        let log = LogWork { own, persist_disk, append_disk, ..LogWork::default() };
        let setting = Setting { ordered_stream: true, replicas, ..small(Setting::raft(1)) };
        predict(&Parameters { log, ..bare.clone() }, &setting).expect("a run").report.accepted.mean_us.round()
    };
    for own in [OwnLog::Inline, OwnLog::Thread] {
        assert_eq!(latency(own, 1000.0, 300.0, 2), 1000.0, "{own:?}: the own log is the last");
        assert_eq!(latency(own, 300.0, 1000.0, 3), 1200.0, "{own:?}: the follower and two ways");
    }
    // Two followers are a quorum without the leader; only a log on a thread lets the leader read their answers.
    assert_eq!(latency(OwnLog::Thread, 1000.0, 300.0, 3), 500.0);
    assert_eq!(latency(OwnLog::Inline, 1000.0, 300.0, 3), 1000.0);
}

/// Two clients and a log that takes all that waits: the request that comes while the log is written waits for the next write.
#[test]
fn what_waits_for_the_own_log_shares_its_next_write() {
    let log = LogWork {
        own: OwnLog::Thread,
        index_entries_max: 64,
        persist_disk: Delay::Constant(1000.0),
        append_disk: Delay::Constant(1000.0),
        ..LogWork::default()
    };
    let bare = profiles::bare(Delay::Constant(0.0));
    let parameters = Parameters { append_entries_max: 64, log, ..bare };
    let rate = |clients: usize, host: Option<Host>| {
        let setting = Setting { ordered_stream: true, ..small(Setting::raft(clients)) };
        let parameters = Parameters { host, generate: Delay::Constant(10.0), ..parameters.clone() };
        predict(&parameters, &setting).expect("a run").report.accepted_per_s
    };
    let alone = rate(1, None);
    assert!((alone - 1e6 / 1010.0).abs() < 1.0, "{alone}");
    // What comes at one time is taken in together and shares a write. Of clients that come one after the other, the first is
    // written alone, the others share the next write, and each waits for two.
    let one_after_the_other = Host { cores: 2, client_wake_us: 0.0, clients_per_connection: 1 };
    let on_one_connection = Host { clients_per_connection: 8, ..one_after_the_other };
    for (host, expected) in [(None, 1.0), (Some(on_one_connection), 0.95), (Some(one_after_the_other), 0.5)] {
        let ratio = rate(8, host) / (8.0 * alone);
        assert!((ratio - expected).abs() < 0.05, "{host:?}: {ratio}");
    }
}

/// Work of members and clients that share processors cannot be done faster than these do it.
#[test]
fn shared_processors_are_a_limit() {
    let log =
        LogWork { own: OwnLog::Thread, index_entries_max: 64, append_each_us: 10.0, ..LogWork::default() };
    let parameters = Parameters {
        generate: Delay::Constant(20.0),
        append_entries_max: 64,
        apply: Delay::Constant(10.0),
        host: Some(Host { cores: 2, client_wake_us: 0.0, clients_per_connection: 1 }),
        log,
        ..profiles::bare(Delay::Constant(10.0))
    };
    let rate = |clients: usize| {
        let setting = Setting { ordered_stream: true, ..small(Setting::raft(clients)) };
        predict(&parameters, &setting).expect("a run").report.accepted_per_s
    };
    // 20 µs at the client, 10 at the leader, 10 at each of two followers: 50 µs of two processors.
    let most = 2.0 * 1e6 / 50.0;
    // While all four threads want them, that of the clients has half a processor, and the others go idle again: not all is used.
    assert!(rate(64) <= most * 1.02 && most * 0.75 < rate(64), "{} of {most}", rate(64));
    assert!(rate(1) < most / 2.0);
}
