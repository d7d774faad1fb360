//! Datagrams: heartbeats and appends that are lost, beside a stream that brings them late.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Point, Size, Task};
use crate::judge::{Claim, Findings, line, lines, shown, table};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "datagrams",
    title: "Are datagrams better for heartbeats and appends?",
    question: include_str!("question.md"),
    published: "",
    is_hidden: false,
    points,
    judge,
};

/// Puts in a second, and seconds.
const RATE: u64 = 400;
const SECONDS: u64 = 2;
/// One way.
const DELAY: Duration = Duration::from_millis(5);
/// A quantile this many times as small is worth a transport of its own.
const BETTER: f64 = 2.0;

struct Transport {
    name: &'static str,
    links: Option<&'static str>,
    has_window: bool,
    is_datagram: bool,
}

const TRANSPORTS: [Transport; 4] = [
    Transport { name: "one stream", links: None, has_window: false, is_datagram: false },
    Transport {
        name: "eight streams",
        links: Some("--links-per-peer=8"),
        has_window: true,
        is_datagram: false,
    },
    Transport { name: "datagrams", links: None, has_window: false, is_datagram: true },
    Transport { name: "datagrams, window", links: None, has_window: true, is_datagram: true },
];

impl Transport {
    fn point(&self, task: Task, what: &str, loss: u32, timeout: u64) -> Point {
        let mut cluster = ClusterPlan::of(3).proxied_by_message();
        if let Some(links) = self.links {
            cluster = cluster.flag(links).flag("--dispatch=unordered");
        }
        let point = Point::of("datagrams", cluster, task).at("what", what).at("transport", self.name);
        let mut point =
            point.at("timeout", format!("{timeout} ms")).at("loss", format!("{loss} %")).far(DELAY);
        point.timing = Some((timeout, timeout / 10));
        point.may_elect = true;
        if self.has_window {
            point = point.by(&["nb-raft"]);
        }
        match self.is_datagram {
            true => point.links.all.drop = loss * 10,
            false => point.links.all.loss = loss * 10,
        }
        point.takes(SECONDS * 1_000 + 600)
    }
}

fn points(size: Size) -> Vec<Point> {
    let mut points = Vec::new();
    for transport in TRANSPORTS {
        for &timeout in size.of(&[150, 300], &[150]) {
            for &loss in size.of(&[0, 1, 5], &[5]) {
                let load = Load::puts_in_sessions(RATE * SECONDS, 64, 16).of_bytes(1 << 10);
                let load = load.with(format!("--rate={RATE}"));
                points.push(transport.point(load.into(), "load", loss, timeout));
                if size == Size::Full {
                    let watch = Task::Watch(Duration::from_secs(SECONDS));
                    points.push(transport.point(watch, "no load", loss, timeout));
                }
            }
        }
    }
    points
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let at = |transport: &Transport, what: &str, timeout: &str, loss: &str| {
        measured.at(&[("what", what), ("transport", transport.name), ("timeout", timeout), ("loss", loss)])
    };
    let [one, eight, plain, window] = &TRANSPORTS;
    for (timeout, loss) in [("150 ms", "1 %"), ("150 ms", "5 %"), ("300 ms", "1 %"), ("300 ms", "5 %")] {
        for (transport, source) in [(plain, "Zatt, section 2.1.2"), (window, "ours"), (eight, "ours")] {
            let of = |transport| at(transport, "load", timeout, loss);
            let says = format!(
                "With {loss} loss and a timeout of {timeout}, {} halve the 99th percentile of one stream",
                transport.name
            );
            let pair = (of(one), of(transport));
            findings.claims.extend(Claim::ratio_at_least(&says, source, pair, Measure::P99, BETTER));
        }
        for what in ["no load", "load"] {
            for transport in [one, plain, window] {
                findings.claims.extend(at(transport, what, timeout, loss).and_then(|it| no_election(&it)));
            }
        }
    }
    let (of_one, of_plain) = (at(one, "load", "150 ms", "0 %"), at(plain, "load", "150 ms", "0 %"));
    let says = "Without loss it makes no difference: the 99th percentiles are within 1.5 times of each other";
    findings.claims.extend(alike(says, of_one, of_plain));
    for (timeout, id) in [("150 ms", "p99-150"), ("300 ms", "p99-300")] {
        let series = |transport: &Transport| {
            let at = measured.all(&[("what", "load"), ("transport", transport.name), ("timeout", timeout)]);
            line(transport.name, &at, "loss", Measure::P99)
        };
        let series = TRANSPORTS.iter().map(series).collect();
        let mut figure = lines(
            id,
            &format!("400 puts a second, election timeout {timeout}"),
            "loss, %",
            Measure::P99,
            series,
        );
        figure.x_scale = crate::figures::Scale::Linear;
        findings.figures.push(figure);
    }
    let coordinates = ["what", "timeout", "loss", "transport"];
    let measures = [Measure::Terms, Measure::P50, Measure::P99, Measure::MembersCpu, Measure::Early];
    findings.tables.push(table("All points", &measured.all(&[]), &coordinates, &measures));
    findings
}

/// That no leader is replaced although all live.
fn no_election(at: &At<'_>) -> Option<Claim> {
    let terms = at.median(Measure::Terms)?;
    let says = format!(
        "No member is elected in vain: {}, {}, {} loss, timeout {}",
        at.coordinate("transport"),
        at.coordinate("what"),
        at.coordinate("loss"),
        at.coordinate("timeout")
    );
    let because = format!("{} new terms per minute", shown(terms));
    Some(Claim::at_most(says, "ours", ("new terms per minute", terms), 0.0, because))
}

fn alike(says: &str, one: Option<At<'_>>, other: Option<At<'_>>) -> Option<Claim> {
    let ratio = one?.over(&other?, Measure::P99)?;
    Some(Claim {
        says: says.into(),
        source: "ours".into(),
        rule: "held if the interval of the ratio lies between 1/1.5 and 1.5, refuted if it lies outside"
            .into(),
        because: format!("the ratio is {}", shown(ratio)),
        verdict: crate::judge::within(ratio, 1.5),
    })
}
