//! Five requests: the same ones under Raft and under NB-Raft, as timelines.
//!
//! Knows nothing of: how a trace is made.

use crate::drawings::{Arrow, Bars, Drawing, Group, Lanes, Row};
use crate::experiment::{ClusterPlan, Experiment, Point, Size, Task};
use crate::judge::{Claim, Findings, Table, Verdict, number};
use crate::measured::{At, Measured};
use crate::published::Published;
use crate::trace::{CLIENTS, REQUESTS, Step, Way};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "five-requests",
    title: "Why does an early entry hold up a client, and what does a window change?",
    question: include_str!("question.md"),
    published: "",
    is_hidden: false,
    points,
    judge,
};

/// The request that overtakes, the one it overtakes, and the one that follows it.
const OVERTAKEN: usize = 0;
const EARLY: usize = 1;
const NEXT: usize = 2;

const STEPS: [&str; 5] =
    ["1: send", "2, 3: index, replicate", "waits, or is kept", "4: acknowledge, commit", "answer on its way"];
const STATES: [&str; 5] = ["sent", "in the leader's log", "received by a quorum", "committed", "done"];

fn points(_: Size) -> Vec<Point> {
    let point = |way: Way| {
        let point = Point::of("trace", ClusterPlan::of(0), Task::Trace(way)).at("way", way.name());
        point.takes(10)
    };
    Way::ALL.map(point).into()
}

/// The times of one way, in milliseconds since the first request was sent.
#[derive(Clone, Copy)]
struct Times<'a> {
    way: Way,
    at: At<'a>,
}

impl Times<'_> {
    fn get(&self, request: usize, step: Step) -> Option<f64> {
        let micros = self.at.runs.first()?.counters.get(&step.counter(request))?;
        Some(micros / 1e3)
    }

    /// When the client may go on.
    fn goes_on(&self, request: usize) -> Option<f64> {
        self.get(request, Step::HeardReceived).or_else(|| self.get(request, Step::Heard))
    }

    fn end(&self) -> f64 {
        (0..REQUESTS).filter_map(|request| self.get(request, Step::Heard)).fold(0.0, f64::max)
    }
}

fn judge(measured: &Measured, _: &Published) -> Findings {
    let mut findings = Findings::default();
    let times = |way: Way| Some(Times { way, at: measured.at(&[("way", way.name())])? });
    let all: Vec<Times<'_>> = Way::ALL.into_iter().filter_map(times).collect();
    let [Some(one), Some(waits), Some(window)] = Way::ALL.map(times) else { return findings };
    findings.claims.extend(claims(one, waits, window));
    findings.paragraphs.push(format!(
        "With several links E2 overtakes E1. Where it waits, its client sends E3 after {} ms, and all five requests are done after {} ms. Where it \
         is kept, E3 leaves after {} ms, and all are done after {} ms. On one ordered stream nothing overtakes: E3 leaves after {} ms, all \
         are done after {} ms, and no answer is early.",
        shown(waits.get(NEXT, Step::Sent)),
        number(waits.end()),
        shown(window.get(NEXT, Step::Sent)),
        number(window.end()),
        shown(one.get(NEXT, Step::Sent)),
        number(one.end()),
    ));
    findings.paragraphs.push(
        "So a window and an early answer give back what many senders cost: the disorder that they end is made by the dispatch. What is left of \
         them on one ordered stream is the early answer alone, which on these links would come with the commit, because the same \
         follower makes both."
            .into(),
    );
    findings.drawings = drawings(&all);
    findings.tables.push(table(&all));
    findings
}

fn shown(millis: Option<f64>) -> String {
    millis.map_or_else(|| "–".into(), number)
}

fn claims(one: Times<'_>, waits: Times<'_>, window: Times<'_>) -> Vec<Claim> {
    let claim = |says: &str, source: &str, before: Option<f64>, after: Option<f64>| {
        let (before, after) = (before?, after?);
        Some(Claim {
            says: says.into(),
            source: source.into(),
            rule: "held if the first moment is not after the second".into(),
            because: format!("{} ms and {} ms", number(before), number(after)),
            verdict: if before <= after { Verdict::Held } else { Verdict::Refuted },
        })
    };
    let claims = [
        claim(
            "In Raft E3 leaves only after the commit of E2, which waits for E1",
            "figure 1",
            waits.get(EARLY, Step::Committed),
            waits.get(NEXT, Step::Sent),
        ),
        claim(
            "In NB-Raft E3 leaves before E2 is committed",
            "figure 1",
            window.get(NEXT, Step::Sent),
            window.get(EARLY, Step::Committed),
        ),
        claim(
            "NB-Raft is done with all five before Raft with the same dispatch",
            "figure 1",
            Some(window.end()),
            Some(waits.end()),
        ),
        claim(
            "Raft on one ordered stream is done with all five no later than NB-Raft on several links",
            "ours",
            Some(one.end()),
            Some(window.end()),
        ),
        claim(
            "With NB-Raft a client goes on before the log of any follower has its entry",
            "figure 5",
            window.get(EARLY, Step::Received),
            window.get(EARLY, Step::Appended),
        ),
    ];
    claims.into_iter().flatten().collect()
}

fn drawings(all: &[Times<'_>]) -> Vec<Drawing> {
    let bars = |kinds: &[&str], row: fn(&Times<'_>, usize) -> Option<Row>| Bars {
        kinds: kinds.iter().map(|kind| (*kind).to_string()).collect(),
        groups: all
            .iter()
            .map(|times| Group {
                title: times.way.name().into(),
                rows: (0..REQUESTS)
                    .filter_map(|request| Some((name(request), row(times, request)?)))
                    .collect(),
            })
            .collect(),
    };
    let title = "Figure 1: five requests, with the steps of each";
    let mut drawings = vec![Drawing {
        id: "timeline".into(),
        title: title.into(),
        caption: "g: the client may go on. The wait of E2 is in front of the follower's replica in Raft, and in its window in NB-Raft."
            .into(),
        svg: bars(&STEPS, steps).svg(title),
    }];
    for times in all.iter().filter(|times| times.way != Way::OneStream) {
        let title = format!("Figure 2: the four steps of E2 – {}", times.way.name());
        let id = if times.way == Way::Window { "steps-window" } else { "steps-waits" };
        drawings.extend(lanes(times, all).map(|lanes| Drawing {
            id: id.into(),
            caption: "Time runs downward. E1, which E2 overtakes, is the red arrow.".into(),
            svg: lanes.svg(&title, 0.0),
            title,
        }));
    }
    let title = "Figure 5: the states of each request";
    drawings.push(Drawing {
        id: "states".into(),
        title: title.into(),
        caption: "g: the client may go on. In Raft no request is ever received and not committed, as far as its client knows.".into(),
        svg: bars(&STATES, states).svg(title),
    });
    drawings
}

fn name(request: usize) -> String {
    let client = CLIENTS.iter().position(|requests| requests.contains(&request)).map_or(0, |it| it + 1);
    format!("E{}, client {client}", request + 1)
}

fn steps(times: &Times<'_>, request: usize) -> Option<Row> {
    let at = |step| times.get(request, step);
    let (sent, indexed, arrived) = (at(Step::Sent)?, at(Step::Indexed)?, at(Step::Arrived)?);
    let (appended, committed, heard) = (at(Step::Appended)?, at(Step::Committed)?, at(Step::Heard)?);
    Some(Row {
        bars: vec![
            (0, sent, indexed),
            (1, indexed, arrived),
            (2, arrived, appended),
            (3, appended, committed),
            (4, committed, heard),
        ],
        marks: vec![('g', times.goes_on(request)?)],
    })
}

fn states(times: &Times<'_>, request: usize) -> Option<Row> {
    let at = |step| times.get(request, step);
    let (committed, heard) = (at(Step::Committed)?, at(Step::Heard)?);
    let received = at(Step::Received).unwrap_or(committed).min(committed);
    Some(Row {
        bars: vec![
            (0, at(Step::Sent)?, at(Step::Indexed)?),
            (1, at(Step::Indexed)?, received),
            (2, received, committed),
            (3, committed, heard),
            (4, heard, times.end() + 1.0),
        ],
        marks: vec![('g', times.goes_on(request)?)],
    })
}

/// E2 between client, leader and near follower, beside E1 on its way.
fn lanes(times: &Times<'_>, all: &[Times<'_>]) -> Option<Lanes> {
    let at = |step| times.get(EARLY, step);
    let (sent, indexed, arrived) = (at(Step::Sent)?, at(Step::Indexed)?, at(Step::Arrived)?);
    let (appended, committed, heard) = (at(Step::Appended)?, at(Step::Committed)?, at(Step::Heard)?);
    let (first, late) = (times.get(OVERTAKEN, Step::Indexed)?, times.get(OVERTAKEN, Step::Arrived)?);
    let arrow = |kind, from, to| Arrow { kind, from, to };
    let mut lanes = Lanes {
        lanes: ["client 2", "leader", "near follower"].map(str::to_string).into(),
        messages: vec![
            arrow(0, (0, sent), (1, indexed)),
            arrow(1, (1, indexed), (2, arrived)),
            arrow(5, (1, first), (2, late)),
            arrow(3, (2, appended), (1, committed)),
            arrow(4, (1, committed), (0, heard)),
        ],
        stays: vec![(2, 2, arrived, appended)],
        notes: vec![
            (0, sent, "1: sends E2".into()),
            (1, indexed, "2: indexes E2".into()),
            (2, arrived, "3: E2 is early".into()),
            (2, late, "E1 comes: both are appended".into()),
            (1, committed, "4: commits E2".into()),
            (0, heard, "E2 is done".into()),
        ],
    };
    if let (Some(received), Some(told)) = (at(Step::Received), at(Step::HeardReceived)) {
        lanes.messages.push(arrow(2, (2, arrived), (1, received)));
        lanes.messages.push(arrow(2, (1, received), (0, told)));
        lanes.notes.push((1, received, "a quorum has E2".into()));
        lanes.notes.push((0, told, "goes on with E3".into()));
    }
    // All pictures have one scale of time.
    let end = all.iter().filter_map(|times| times.get(EARLY, Step::Heard)).fold(heard, f64::max);
    lanes.messages.retain(|message| message.to.1 <= end);
    Some(lanes)
}

fn table(all: &[Times<'_>]) -> Table {
    let head = ["way", "request"].map(str::to_string).into_iter();
    let columns = [
        ("sent, ms", Step::Sent),
        ("indexed", Step::Indexed),
        ("at the near follower", Step::Arrived),
        ("appended there", Step::Appended),
        ("client hears: received", Step::HeardReceived),
        ("committed", Step::Committed),
        ("client hears: done", Step::Heard),
    ];
    let row = |times: &Times<'_>, request: usize| {
        let cells = columns.map(|(_, step)| shown(times.get(request, step)));
        [times.way.name().to_string(), name(request)].into_iter().chain(cells).collect()
    };
    Table {
        title: "All steps, in milliseconds since the first request".into(),
        head: head.chain(columns.map(|(title, _)| title.to_string())).collect(),
        rows: all.iter().flat_map(|times| (0..REQUESTS).map(|request| row(times, request))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{run_info, sample};
    use crate::results::{PointInfo, Sample};
    use std::collections::BTreeMap;

    fn measured() -> Measured {
        let info = |point: &Point| PointInfo {
            point: point.key(),
            at: point.at.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect(),
            load: String::new(),
            setting: String::new(),
        };
        let run = run_info("five-requests", points(Size::Quick).iter().map(info).collect());
        let sampled = |(point, way): (&Point, Way)| {
            let counters: BTreeMap<String, f64> = crate::trace::measure(way).expect("a trace").counters;
            Sample { counters, ..sample(&point.key(), 0, 1.0) }
        };
        let samples: Vec<Sample> = points(Size::Quick).iter().zip(Way::ALL).map(sampled).collect();
        Measured::of(&run, &samples)
    }

    #[test]
    fn the_published_timelines_hold_and_one_stream_has_nothing_to_gain() {
        let findings = judge(&measured(), &Published::default());
        let verdicts: Vec<_> = findings.claims.iter().map(|claim| (claim.verdict, &claim.says)).collect();
        assert_eq!(verdicts.len(), 5);
        assert!(verdicts.iter().all(|(verdict, _)| *verdict == Verdict::Held), "{verdicts:?}");
        let ids: Vec<&str> = findings.drawings.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["timeline", "steps-waits", "steps-window", "states"]);
        assert_eq!(findings.tables[0].rows.len(), 15);
    }
}
