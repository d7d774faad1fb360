//! Shapes: the numbers of check P4 that `docs/petri.md` shows.
//!
//! `cargo run --release -p kattu-petri --example shapes`

use kattu_petri::{Failure, Parameters, Report, Setting, Simulator, Stage, Weak, predict, profiles};

fn long(setting: Setting) -> Setting {
    Setting { requests: 100_000, warm_up: 20_000, ..setting }
}

fn of(parameters: &Parameters, setting: &Setting) -> Report {
    predict(parameters, setting).expect("parameters of a profile").report
}

/// Rates of Raft, NB-Raft without weak replies, and NB-Raft, then shares.
fn row(name: &str, parameters: &Parameters, raft: &Setting) {
    let nb = Setting { window: 10_000, weak: Weak::Gap, ..raft.clone() };
    let window = Setting { weak: Weak::Off, ..nb.clone() };
    let [raft, window, nb] = [raft, &window, &nb].map(|setting| of(parameters, setting));
    println!(
        "{name:>22}: {:>7.0} {:>7.0} {:>7.0} /s, gain {:+5.1} %, latency {:>6.0} {:>6.0} µs, disorder {:.3}, \
         t_wait {:4.1} %, t_queue {:4.1} %, t_idx {:4.1} %, t_append {:.3} %",
        raft.accepted_per_s,
        window.accepted_per_s,
        nb.accepted_per_s,
        (nb.accepted_per_s / raft.accepted_per_s - 1.0) * 100.0,
        raft.accepted.mean_us,
        nb.accepted.mean_us,
        raft.disorder,
        raft.time(Stage::Wait).share * 100.0,
        raft.time(Stage::Queue).share * 100.0,
        raft.time(Stage::Index).share * 100.0,
        raft.time(Stage::Append).share * 100.0,
    );
}

fn main() {
    let iotdb = profiles::iotdb();
    println!("eleven times, Raft, 1024 clients");
    for time in of(&iotdb, &long(Setting::raft(1024))).times {
        println!("  {:<12} {:>8.1} µs {:>6.2} %", time.name, time.mean_us, time.share * 100.0);
    }
    println!("clients: Raft, window only, NB-Raft");
    for clients in [1, 16, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1536] {
        row(&clients.to_string(), &iotdb, &long(Setting::raft(clients)));
    }
    println!("the same on ordered streams");
    for clients in [64, 512, 1024] {
        row(&clients.to_string(), &iotdb, &Setting { ordered_stream: true, ..long(Setting::raft(clients)) });
    }
    println!("ratis");
    for clients in [64, 512, 1024] {
        row(&clients.to_string(), &profiles::ratis(), &long(Setting::raft(clients)));
    }
    for clients in [128, 1024] {
        println!("replicas, {clients} clients");
        for replicas in 2..=9 {
            row(&replicas.to_string(), &iotdb, &Setting { replicas, ..long(Setting::raft(clients)) });
        }
    }
    for clients in [64, 1024] {
        println!("dispatchers, {clients} clients");
        for dispatchers in [1, 4, 8, 16, 32, 64, 128, 256, 512, 1024] {
            row(&dispatchers.to_string(), &iotdb, &Setting { dispatchers, ..long(Setting::raft(clients)) });
        }
    }
    for clients in [16, 1024] {
        println!("payload, {clients} clients");
        for kib in [1, 4, 16, 64, 128] {
            let setting = Setting { payload_bytes: kib * 1024, ..long(Setting::raft(clients)) };
            row(&format!("{kib} KiB"), &iotdb, &setting);
        }
    }
    for (at_us, timeout_us) in [500.0, 1e3, 2e3, 4e3, 8e3, 2e4, 1e5]
        .map(|at| (at, 0.0))
        .into_iter()
        .chain([50.0, 200.0, 500.0, 1e3, 2e3, 5e3].map(|it| (1e5, it)))
    {
        losses(at_us, timeout_us);
    }
}

/// Means over seeds of what is lost when leader and clients end together.
fn losses(at_us: f64, timeout_us: f64) {
    let mut lost = Vec::new();
    for setting in [Setting::raft(1024), Setting::nb_raft(1024)] {
        let mut sum = [0.0; 4];
        for seed in 1..=20 {
            let setting = Setting { seed, ..setting.clone() };
            let simulator = Simulator::new(&profiles::iotdb(), &setting).expect("a net");
            let losses = simulator.failing(Failure { at_us, timeout_us, clients_end: true }).run().losses;
            let losses = losses.expect("a failure");
            assert_eq!(losses.lost_committed, 0);
            let its = [losses.lost() as f64, losses.lost_weak as f64, losses.made as f64, losses.per_cent()];
            sum.iter_mut().zip(its).for_each(|(sum, it)| *sum += it / 20.0);
        }
        lost.push(sum);
    }
    println!(
        "failure after {at_us:>6} µs, timeout {timeout_us:>6} µs: lost {:>6.1} {:>6.1} (answered weakly {:>5.1}), ratio {:.2}; \
         {:.4} % {:.4} %",
        lost[0][0],
        lost[1][0],
        lost[1][1],
        lost[1][0] / lost[0][0],
        lost[0][3],
        lost[1][3]
    );
}
