//! Batching: how much it is worth, how large a batch should be, what timers do.
//!
//! Knows nothing of: how a point is run.

use crate::experiment::{ClusterPlan, Experiment, Load, Point, Size};
use crate::figures::{Figure, Kind, Series};
use crate::judge::{
    Claim, Findings, Table, Verdict, against, at_least, at_most, bars, cell, clients as words, line, lines,
    number, published as theirs, shown, table, within,
};
use crate::measured::{At, Measure, Measured};
use crate::published::Published;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "batching",
    title: "What is batching worth, and how large should a batch be?",
    question: include_str!("question.md"),
    published: include_str!("published.toml"),
    is_hidden: false,
    points,
    judge,
};

/// The published ratio without batching to with it, at 5,000 requests: the smallest one.
const PUBLISHED_RATIO: f64 = 8.0;
/// From this ratio of largest to smallest time on, sizes have a pattern.
const PATTERN: f64 = 1.25;
/// Two times that differ by less are alike.
const ALIKE: f64 = 1.15;

/// Bytes of a put that never shares an entry with others.
const ALONE_BYTES: u32 = 1100;
/// Puts under way where the size of a batch is the question.
const UNDER_WAY: u32 = 2048;

fn points(size: Size) -> Vec<Point> {
    let three = || ClusterPlan::of(3);
    // Single entries make 2,048 puts wait: on a busy machine longer than a member keeps a request by default.
    let patient = || three().flag("--election-timeout=5000");
    let mut points = Vec::new();
    for batching in ["on", "off"] {
        for &requests in size.of(&[1000_u32, 2000, 3000, 4000, 5000, 100_000], &[1000, 5000]) {
            // Without batching every put has a sync of its own.
            let per_put = if batching == "on" { 0.05 } else { 0.4 };
            let millis = 500 + (f64::from(requests) * per_put) as u64;
            for (face, load) in [
                ("etcd", Load::puts(requests.into(), 256)),
                ("native", Load::native_puts(requests.into(), 256)),
            ] {
                let point = Point::of("requests", three(), load).at("face", face).at("batching", batching);
                points
                    .push(point.at("requests", requests).tuned(format!("batching={batching}")).takes(millis));
            }
        }
    }
    for batching in ["on", "off"] {
        for &(clients, requests) in size.of(
            &[(1_u32, 200_u32), (4, 800), (16, 1500), (64, 3000), (256, 4000), (1024, 8000)],
            &[(1, 200), (16, 1500), (256, 4000)],
        ) {
            let per_put = if batching == "on" { 0.05 } else { 0.4 };
            let point = Point::of("load", three(), Load::puts(requests.into(), clients));
            let point = point.at("batching", batching).at("clients", clients);
            let millis = 500 + (f64::from(requests) * per_put) as u64;
            points.push(point.tuned(format!("batching={batching}")).takes(millis));
        }
    }
    for pipelining in ["on", "off"] {
        for entries in size.of(&[1, 16, 64, 128, 256, 512, 1024], &[1, 64, 1024]) {
            let load = Load::native_puts(5000, UNDER_WAY).of_bytes(ALONE_BYTES);
            let point =
                Point::of("size", patient(), load).at("pipelining", pipelining).at("entries", entries);
            points.push(
                point
                    .tuned(format!("batch-entries-max={entries}"))
                    .tuned(format!("pipelining={pipelining}"))
                    .takes(1500),
            );
        }
    }
    for (clients, requests) in [(1, 200), (256, 5000)] {
        for linger in size.of(&["0 ms", "0.5 ms", "10 ms", "40 ms"], &["0 ms", "40 ms"]) {
            let millis: f64 = linger.trim_end_matches(" ms").parse().unwrap_or(0.0);
            let takes = 500 + (millis * if clients == 1 { 200.0 } else { 25.0 }) as u64;
            let point = Point::of("linger", three(), Load::puts(requests, clients));
            let point = point.at("clients", clients).at("linger", linger);
            points.push(point.tuned(format!("batch-linger={}", linger.replace(' ', ""))).takes(takes));
        }
    }
    for heartbeat in size.of(&[15, 100, 500, 1500], &[15, 1500]) {
        let point =
            Point::of("heartbeat", three(), Load::puts(5000, 256)).at("heartbeat", format!("{heartbeat} ms"));
        points.push(point.timed(15_000, *heartbeat).takes(900));
    }
    points
}

fn judge(measured: &Measured, published: &Published) -> Findings {
    let mut findings = Findings::default();
    requests(measured, published, &mut findings);
    load(measured, &mut findings);
    sizes(measured, published, &mut findings);
    timers(measured, &mut findings);
    findings
}

fn requests(measured: &Measured, published: &Published, findings: &mut Findings) {
    let of = |face: &str, batching: &str| {
        measured.all(&[("grid", "requests"), ("face", face), ("batching", batching)])
    };
    let at = |batching: &str, face: &str, requests: &str| {
        measured.at(&[("grid", "requests"), ("face", face), ("batching", batching), ("requests", requests)])
    };
    let theirs_are = published.table("on-and-off");
    let ratios = ["etcd", "native"].map(|face| {
        let (off, on) = (at("off", face, "5000"), at("on", face, "5000"));
        (face, off.zip(on).and_then(|(off, on)| off.over(&on, Measure::Millis)))
    });
    let said: Vec<String> = ratios
        .iter()
        .filter_map(|(face, ratio)| Some(format!("{} by the {face} protocol", shown((*ratio)?))))
        .collect();
    let syncs = |batching| at(batching, "etcd", "5000").and_then(|at| at.median(Measure::Syncs));
    if let (Some(on), Some(off)) = (syncs("on"), syncs("off")) {
        findings.paragraphs.push(format!(
            "Without batching, 5,000 puts take so many times as long as with it: {}. The leader's log synced {} times per put without \
             batching and {} times with it.",
            said.join(", "),
            shown(off),
            shown(on)
        ));
    }
    let source = "the study, table 1: ratios of 8.0 (5,000 requests) to 20.5 (1,000 requests)";
    for (face, _) in ratios {
        let pair = (at("off", face, "5000"), at("on", face, "5000"));
        let says = format!(
            "Without batching 5,000 requests take at least {PUBLISHED_RATIO} times as long ({face} protocol)"
        );
        findings.claims.extend(Claim::ratio_at_least(&says, source, pair, Measure::Millis, PUBLISHED_RATIO));
    }
    let series = vec![
        line("etcd, batching off", &of("etcd", "off"), "requests", Measure::Millis),
        line("etcd, batching on", &of("etcd", "on"), "requests", Measure::Millis),
        line("native, batching off", &of("native", "off"), "requests", Measure::Millis),
        line("native, batching on", &of("native", "on"), "requests", Measure::Millis),
        Series::published("published, off", &theirs_are.pairs(2)),
        Series::published("published, on", &theirs_are.pairs(1)),
    ];
    findings.figures.push(
        lines("requests", "Time for all requests", "requests", Measure::Millis, series)
            .with_caption("Both axes are logarithmic. The published machine is another one."),
    );
    let tail = |batching: &str| {
        let pairs = at(batching, "etcd", "5000").map(|at| at.latencies()).unwrap_or_default();
        Series::distribution(&format!("batching {batching}"), &pairs)
    };
    findings.figures.push(Figure::distributions(
        "latencies",
        "Latencies of 5,000 puts by 256 clients of etcd's API",
        ["on", "off"].map(tail).into_iter().filter(|series| !series.dots.is_empty()).collect(),
    ));
    let rows = of("etcd", "on").into_iter().map(|on| {
        let requests = on.coordinate("requests").to_string();
        let first = on.number("requests").unwrap_or(0.0);
        let ours = |batching, face| cell(at(batching, face, &requests), Measure::Millis);
        let latency = |batching| cell(at(batching, "etcd", &requests), Measure::P50);
        vec![
            requests.clone(),
            ours("on", "etcd"),
            ours("off", "etcd"),
            ours("on", "native"),
            ours("off", "native"),
            theirs(theirs_are, first, 1),
            theirs(theirs_are, first, 2),
            latency("on"),
            latency("off"),
        ]
    });
    findings.tables.push(Table {
        title: "Time for all requests in ms, beside the published one; median latency in ms, etcd's protocol"
            .into(),
        head: [
            "requests",
            "etcd, on",
            "etcd, off",
            "native, on",
            "native, off",
            "published, on",
            "published, off",
            "latency, on",
            "latency, off",
        ]
        .map(str::to_string)
        .to_vec(),
        rows: rows.collect(),
    });
}

/// Latency beside throughput.
fn load(measured: &Measured, findings: &mut Findings) {
    let of = |batching: &str| measured.all(&[("grid", "load"), ("batching", batching)]);
    let series = ["on", "off"].map(|batching| {
        against(&format!("batching {batching}"), &of(batching), Measure::OpsPerS, Measure::P50, "clients")
    });
    let title = "Latency beside throughput, etcd's API";
    let mut figure = lines("load", title, Measure::OpsPerS.title(), Measure::P50, series.to_vec());
    // Throughputs are no round numbers: they are not written one by one.
    figure.kind = Kind::Curve;
    findings
        .figures
        .push(figure.with_caption("One point for each number of clients, in their order along the line."));
    let measures = [Measure::OpsPerS, Measure::P50, Measure::P99, Measure::MembersCpu, Measure::Syncs];
    let all = [of("on"), of("off")].concat();
    findings.tables.push(table("By clients, etcd's API", &all, &["batching", "clients"], &measures));
    let ends = |clients: &str| {
        let at = |batching| measured.at(&[("grid", "load"), ("batching", batching), ("clients", clients)]);
        (at("on"), at("off"))
    };
    let (alone, alone_without) = ends("1");
    if let Some(ratio) = alone.zip(alone_without).and_then(|(on, off)| on.over(&off, Measure::P50)) {
        findings.claims.push(Claim {
            says: "Batching costs a client that is alone no latency".into(),
            source: "ours: batches form by themselves, no timer waits for them".into(),
            rule: format!(
                "held if the interval of the ratio of median latencies, with batching over without, ends at {ALIKE} or below; refuted if it \
                 lies above"
            ),
            because: format!("the ratio is {}", shown(ratio)),
            verdict: at_most(ratio, ALIKE),
        });
    }
}

fn sizes(measured: &Measured, published: &Published, findings: &mut Findings) {
    let of = |pipelining: &str| measured.all(&[("grid", "size"), ("pipelining", pipelining)]);
    let theirs_are = published.table("size");
    for pipelining in ["off", "on"] {
        let all = of(pipelining);
        // A pattern is a direction, so it shows between the ends of the published range, whatever lies between them.
        let named = |entries: &str| all.iter().find(|at| at.coordinate("entries") == entries).copied();
        let (Some(single), Some(small), Some(large)) = (named("1"), named("64"), named("1024")) else {
            continue;
        };
        let Some(ratio) = small.over(&large, Measure::Millis) else { continue };
        let published = ["64", "128", "256", "512", "1024"].into_iter().filter_map(named).collect::<Vec<_>>();
        let (in_order, of) = in_order(&published);
        let verdict = match (at_least(ratio, PATTERN), within(ratio, ALIKE)) {
            (Verdict::Held, _) if in_order * 2 < of => Verdict::Artefact,
            (Verdict::Held, _) => Verdict::Refuted,
            (_, Verdict::Held) => Verdict::Held,
            _ => Verdict::NotDecided,
        };
        findings.claims.push(Claim {
            says: format!("The size of a batch has no pattern (pipelining {pipelining})"),
            source: "the study, section 6.2 with table 3: 64 to 1,024 entries".into(),
            rule: format!(
                "refuted if batches of 64 entries take at least {PATTERN} times as long as those of 1,024; artefact if so, but fewer than half of \
                 the repetitions by themselves have all sizes in that order, so that single runs hide it; held if the interval of the ratio \
                 lies within {} to {ALIKE}; otherwise not decided",
                number(1.0 / ALIKE)
            ),
            because: format!(
                "the ratio is {}; the sizes were in order in {in_order} of {of} repetitions",
                shown(ratio)
            ),
            verdict,
        });
        let says = format!(
            "Batches of 64 entries take at most half of the time of single entries (pipelining {pipelining})"
        );
        let pair = (Some(single), Some(small));
        findings.claims.extend(Claim::ratio_at_least(&says, "ours", pair, Measure::Millis, 2.0));
        let places = |at: &At<'_>| at.coordinate("entries").to_string();
        let steps = all.windows(2).filter_map(|pair| {
            let step = pair[0].over(&pair[1], Measure::Millis)?;
            Some(format!("{} to {}: {}", places(&pair[0]), places(&pair[1]), number(step.median)))
        });
        let syncs =
            |at: &At<'_>| at.median(Measure::Syncs).map_or_else(|| "–".into(), |it| number(it.median));
        let each = all.iter().map(|at| format!("{} entries: {}", places(at), syncs(at)));
        findings.paragraphs.push(format!(
            "With pipelining {pipelining}, time shrinks from one size to the next by these factors: {}. The leader's syncs per put by \
             size: {}.",
            steps.collect::<Vec<_>>().join("; "),
            each.collect::<Vec<_>>().join("; ")
        ));
    }
    let series = vec![
        line("one message under way", &of("off"), "entries", Measure::Millis),
        line("with pipelining", &of("on"), "entries", Measure::Millis),
        Series::published("published", &theirs_are.pairs(1)),
    ];
    findings.figures.push(
        lines(
            "size",
            "Time for 5,000 puts by the size of a batch",
            "entries in a batch at most",
            Measure::Millis,
            series,
        )
        .with_caption("Puts of 1,100 bytes, 2,048 under way. Both axes are logarithmic."),
    );
    let ends = |pipelining, entries: &str| {
        measured.at(&[("grid", "size"), ("pipelining", pipelining), ("entries", entries)])
    };
    let rows = of("off").into_iter().map(|off| {
        let entries = off.coordinate("entries").to_string();
        vec![
            entries.clone(),
            cell(Some(off), Measure::Millis),
            cell(ends("on", &entries), Measure::Millis),
            theirs(theirs_are, off.number("entries").unwrap_or(0.0), 1),
            cell(Some(off), Measure::P50),
            cell(ends("on", &entries), Measure::P50),
            cell(Some(off), Measure::Syncs),
        ]
    });
    findings.tables.push(Table {
        title: "5,000 puts by the size of a batch: time in ms beside the published one, median latency in ms, syncs per put".into(),
        head: [
            "entries",
            "one message under way",
            "pipelining",
            "published",
            "latency, one message",
            "latency, pipelining",
            "syncs per put, one message",
        ]
        .map(str::to_string)
        .to_vec(),
        rows: rows.collect(),
    });
}

/// In how many repetitions no size took longer than the one before it, and how many repetitions have all sizes.
fn in_order(sizes: &[At<'_>]) -> (usize, usize) {
    let Some(first) = sizes.first() else { return (0, 0) };
    let times = first.runs.iter().filter_map(|run| {
        let of_size =
            |at: &At<'_>| at.runs.iter().find(|it| it.repetition == run.repetition).map(|it| it.seconds);
        sizes.iter().map(of_size).collect::<Option<Vec<f64>>>()
    });
    let times: Vec<Vec<f64>> = times.collect();
    let in_order = times.iter().filter(|times| times.windows(2).all(|pair| pair[1] <= pair[0])).count();
    (in_order, times.len())
}

fn timers(measured: &Measured, findings: &mut Findings) {
    let linger = |clients: &str| measured.all(&[("grid", "linger"), ("clients", clients)]);
    let heartbeats = measured.all(&[("grid", "heartbeat")]);
    let source = "the study, sections 6.2 and 6.4: the timer of a batch and heartbeats are blamed for the missing pattern";
    for clients in ["1", "256"] {
        let all = linger(clients);
        let ends = (all.last().copied(), all.first().copied());
        let says = format!("A batch that waits 40 ms for others makes requests slow ({})", words(clients));
        findings.claims.extend(Claim::ratio_at_least(&says, source, ends, Measure::P50, 2.0));
    }
    if let (Some(rare), Some(often)) = (heartbeats.last(), heartbeats.first())
        && let Some(ratio) = rare.over(often, Measure::Millis)
    {
        let verdict = within(ratio, ALIKE).opposite();
        findings.claims.push(Claim {
            says: "How often heartbeats come changes how long requests take".into(),
            source: source.into(),
            rule: format!(
                "held if the interval of the ratio of times ({} over {}) lies outside of {} to {ALIKE}, refuted if it lies inside",
                rare.coordinate("heartbeat"),
                often.coordinate("heartbeat"),
                number(1.0 / ALIKE)
            ),
            because: format!("the ratio is {}", shown(ratio)),
            verdict,
        });
    }
    let of = |clients: &str| {
        let points = linger(clients);
        let texts =
            points.iter().map(|at| format!("{}: {}", at.coordinate("linger"), cell(Some(*at), Measure::P50)));
        texts.collect::<Vec<_>>().join("; ")
    };
    findings.paragraphs.push(format!(
        "Median latency in ms by the time for which a batch waits: with one client {}; with 256 clients {}.",
        of("1"),
        of("256")
    ));
    let series = vec![
        bars("1 client", &linger("1"), "linger", Measure::P50),
        bars("256 clients", &linger("256"), "linger", Measure::P50),
    ];
    findings.figures.push(
        lines(
            "linger",
            "Median latency by the time for which a batch waits",
            "batch-linger",
            Measure::P50,
            series,
        )
        .as_bars(),
    );
    let series = vec![line("256 clients", &heartbeats, "heartbeat", Measure::Millis)];
    let mut figure = lines(
        "heartbeat",
        "Time for 5,000 puts by the heartbeat",
        "heartbeat interval, ms",
        Measure::Millis,
        series,
    );
    figure.y_scale = crate::figures::Scale::Linear;
    findings.figures.push(figure);
}
