//! Losses: what early answers lose when a leader dies together with its clients.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Losses, Point, Size, Task};
use crate::judge::{Claim, Findings, line, lines, shown, table};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "losses",
    title: "What do early answers lose when a leader dies together with its clients?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

const SESSIONS: usize = 256;
/// Leaders killed in one run.
const KILLS: u32 = 3;
const BUDGET: f64 = 10_000.0;
/// The published part of requests that are lost, in millionths.
const PUBLISHED: f64 = 0.3;
/// From this ratio on, more is more.
const MORE: f64 = 1.2;

/// Connections to each follower, where there are several.
const LINKS: u32 = 16;
/// One way, where links are lossy.
const DELAY: Duration = Duration::from_millis(5);
/// Of a thousand messages so many are lost there, and come 200 ms later: TCP sends them again.
const LOSS: u32 = 20;

/// How entries reach followers, and what is lost with the leader.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// On several connections, in any order, each entry by itself, as published; else on one, in batches: our default.
    has_links: bool,
    /// Links are far, and some messages come late.
    is_lossy: bool,
    /// What is on its way is lost, too.
    loses_links: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "one link", has_links: false, is_lossy: false, loses_links: false },
    Way { name: "one lossy link, a machine", has_links: false, is_lossy: true, loses_links: true },
    Way { name: "16 links", has_links: true, is_lossy: false, loses_links: false },
    Way { name: "16 lossy links", has_links: true, is_lossy: true, loses_links: false },
    LOSSY_MACHINE,
];

const LOSSY_MACHINE: Way =
    Way { name: "16 lossy links, a machine", has_links: true, is_lossy: true, loses_links: true };

const RECEIPT: &[&str] = &["nb-raft", "--weak=receipt"];
const GAP: &[&str] = &["nb-raft", "--weak=gap"];

/// A point of a grid, and what is usual where another grid varies it.
#[derive(Clone, Copy)]
struct Setting {
    run_ms: u64,
    timeout_ms: u64,
    value_bytes: usize,
    lives: bool,
    protocol: &'static [&'static str],
    way: Way,
}

const USUAL: Setting = Setting {
    run_ms: 1_000,
    timeout_ms: 500,
    value_bytes: 256,
    lives: false,
    protocol: RECEIPT,
    way: LOSSY_MACHINE,
};

impl Setting {
    fn point(self, grid: &str) -> Point {
        let losses = Losses {
            sessions: SESSIONS,
            kills: KILLS,
            run_for: Duration::from_millis(self.run_ms),
            value_bytes: self.value_bytes,
            lives: self.lives,
            loses_links: self.way.loses_links,
        };
        let Way { has_links, is_lossy, .. } = self.way;
        let mut cluster = ClusterPlan::of(3);
        if has_links {
            cluster = cluster
                .flag(&format!("--links-per-peer={LINKS}"))
                .flag("--dispatch=unordered")
                .flag("--unsafe-no-fsync");
        }
        if is_lossy {
            cluster = cluster.proxied();
        }
        let mut point = Point::of(grid, cluster, Task::Losses(losses)).by(self.protocol);
        if is_lossy {
            point = point.far(DELAY);
            point.links.all.loss = LOSS;
        }
        let batching = if has_links { "batching=off" } else { "batching=on" };
        let point = point.tuned("log-io=thread").tuned(batching);
        let each = self.run_ms + self.timeout_ms + 500;
        point.timed(self.timeout_ms, self.timeout_ms / 10).takes(u64::from(KILLS) * each + 300)
    }
}

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for &run_ms in size.of(&[50, 200, 1_000, 3_000], &[50, 1_000]) {
        points.push(Setting { run_ms, ..USUAL }.point("run time").at("run", format!("{run_ms} ms")));
    }
    for &timeout_ms in size.of(&[150, 500, 1_500], &[150]) {
        let point = Setting { timeout_ms, ..USUAL }.point("timeout");
        points.push(point.at("timeout", format!("{timeout_ms} ms")));
    }
    for &value_bytes in size.of(&[16, 1 << 10, 4 << 10, 32 << 10], &[]) {
        points
            .push(Setting { value_bytes, ..USUAL }.point("size").at("size", format!("{value_bytes} bytes")));
    }
    for (name, protocol) in [("receipt", RECEIPT), ("gap", GAP)] {
        if size == Size::Full {
            points.push(Setting { protocol, ..USUAL }.point("answer").at("answer", name));
        }
    }
    for &way in size.of(&WAYS, &[]) {
        points.push(Setting { way, ..USUAL }.point("way").at("way", way.name));
    }
    points.push(Setting { lives: true, ..USUAL }.point("clients live"));
    points
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |grid: &str, name: &str, value: &str| measured.at(&[("grid", grid), (name, value)]);
    let claim = |at: Option<At<'_>>, measure: Measure, most: f64, says: &str, source: &str| {
        let value = at?.median(measure)?;
        let what = format!("the median ({})", measure.title());
        Some(Claim::at_most(says, source, (&what, value), most, format!("it is {}", shown(value))))
    };
    let lives = measured.at(&[("grid", "clients live")]);
    findings.claims.extend(claim(
        lives,
        Measure::Lost,
        0.0,
        "Where clients live and send again, nothing is lost",
        "ours: the contract, WK7",
    ));
    for at in measured.all(&[]).into_iter().filter(|at| at.coordinate("grid") != "clients live") {
        let says = format!("No kill loses more than the budget: {}", at.point.point);
        findings.claims.extend(claim(
            Some(at),
            Measure::Lost,
            BUDGET * f64::from(KILLS),
            &says,
            "ours: the contract, WK8",
        ));
    }
    let usual = at("timeout", "timeout", "500 ms");
    let says = "At a timeout of 500 ms at most 0.3 of a million requests are lost";
    findings.claims.extend(claim(usual, Measure::LostPart, PUBLISHED, says, "abstract"));
    let mut more = |says: &str, over: Option<At<'_>>, under: Option<At<'_>>| {
        findings.claims.extend(Claim::ratio_at_least(says, "figure 19", (over, under), Measure::Lost, MORE));
    };
    more(
        "Losses rise with the time of the run: after 1 s 1.2 times as many as after 50 ms",
        at("run time", "run", "1000 ms"),
        at("run time", "run", "50 ms"),
    );
    more(
        "They go on to rise: after 3 s 1.2 times as many as after 1 s",
        at("run time", "run", "3000 ms"),
        at("run time", "run", "1000 ms"),
    );
    more(
        "Losses fall with the follower timeout: with 150 ms 1.2 times as many as with 1,500 ms",
        at("timeout", "timeout", "150 ms"),
        at("timeout", "timeout", "1500 ms"),
    );
    more(
        "Larger requests lose more: with 32 KiB 1.2 times as many as with 16 bytes",
        at("size", "size", "32768 bytes"),
        at("size", "size", "16 bytes"),
    );
    findings.paragraphs.push(format!(
        "A run kills {KILLS} leaders, each under {SESSIONS} sessions of its own. What is lost was received by a quorum, behind a gap that \
         nobody can fill any more: its entries died with the leader. So losses depend on how many accepted puts stand behind gaps at that \
         moment, not on how long the clients have run; a session's window and the budget bound them. On one link there is no gap. Where only \
         the process dies, its system goes on to send what it has, and the follower timeout is the time that this may take."
    ));
    for (grid, coordinate, title) in [
        ("run time", "run", "Lost puts by the time of the run before the kill"),
        ("timeout", "timeout", "Lost puts by the follower timeout"),
        ("size", "size", "Lost puts by the size of their values"),
    ] {
        let series = line("lost in three kills", &measured.all(&[("grid", grid)]), coordinate, Measure::Lost);
        let mut figure = lines(&grid.replace(' ', "-"), title, coordinate, Measure::Lost, vec![series]);
        figure.y_scale = crate::figures::Scale::Linear;
        findings.figures.push(figure);
    }
    let coordinates = ["grid", "run", "timeout", "size", "answer", "way"];
    let measures = [Measure::Lost, Measure::LostPart, Measure::OpsPerS];
    findings.tables.push(table("All points", &measured.all(&[]), &coordinates, &measures));
    findings
}
