//! One page of a run, which needs no other file: question, verdicts, figures, numbers beside the published ones, machine, command.
//!
//! Knows nothing of: how anything was measured or judged.

use crate::drawings::Drawing;
use crate::experiment::Experiment;
use crate::figures::escaped;
use crate::judge::{Claim, Findings, Table, number, plain, shown};
use crate::machine::{Machine, Times};
use crate::measured::{Measure, RUNS_MIN};
use crate::published::{Published, Table as PublishedTable};
use crate::results::{RunInfo, Summary};

const STYLE: &str = include_str!("page.css");

/// The page as HTML.
pub fn html(
    experiment: &Experiment,
    run: &RunInfo,
    machine: Option<&Machine>,
    summary: &Summary,
    findings: &Findings,
    drawings: &[Drawing],
    published: &Published,
) -> String {
    let mut body = String::new();
    let mut add = |text: &str| {
        body.push_str(text);
        body.push('\n');
    };
    add(&format!("<h1>{}</h1>", escaped(experiment.title)));
    add(&format!("<p class=\"facts\">{}</p>", facts(run, summary)));
    add(&markdown(&experiment.part("")));
    add("<h2>What the runs say</h2>");
    findings.paragraphs.iter().for_each(|text| add(&format!("<p>{}</p>", inline(text))));
    match findings.claims.is_empty() {
        false => add(&claims(&findings.claims)),
        true => add(&format!("<p>No claim is judged: that needs {RUNS_MIN} runs of a point.</p>")),
    }
    for drawing in drawings {
        add(&format!(
            "<figure><figcaption><b>{}</b> {}</figcaption>{}</figure>",
            escaped(&drawing.title),
            inline(&drawing.caption),
            drawing.svg
        ));
    }
    findings.tables.iter().for_each(|it| add(&table(it)));
    if !published.tables.is_empty() {
        add("<h2>The published figures</h2>");
        add(&format!("<p>{} {}</p>", inline(&published.source), inline(&published.remark)));
        published.tables.iter().for_each(|it| add(&table(&of_published(it))));
    }
    add("<h2>Method</h2>");
    add(&markdown(&experiment.part("Method")));
    add("<h2>Plan</h2>");
    add(&markdown(&experiment.part("Plan")));
    if let Some(machine) = machine {
        add("<h2>The machine</h2>");
        add(&table(&of_machine(machine)));
    }
    add("<h2>Again</h2>");
    add(&format!(
        "<p>Commit {}, {}:</p><pre>{}</pre>",
        escaped(&run.commit),
        escaped(&run.began),
        escaped(&run.command)
    ));
    add(&all_points(run, summary));
    document(experiment.title, &body)
}

/// A whole document with this title and body, which needs no other file.
#[must_use]
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{} – kattu lab</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         {body}</body>\n</html>\n",
        escaped(title)
    )
}

fn facts(run: &RunInfo, summary: &Summary) -> String {
    let mut facts = vec![format!(
        "{} run, {} repetitions of {} points: {} runs that count",
        run.size,
        run.repetitions,
        run.points.len(),
        summary.counted
    )];
    if 0 < summary.disturbed {
        facts.push(format!(
            "<b>{} of them while other programs had more than {:.0} % of the processors</b>",
            summary.disturbed,
            run.others_max * 100.0
        ));
    }
    let discarded: usize = summary.discarded.values().sum();
    if 0 < discarded {
        let reasons = summary.discarded.iter().map(|(reason, count)| format!("{count}: {}", escaped(reason)));
        facts.push(format!("{discarded} discarded ({})", reasons.collect::<Vec<_>>().join("; ")));
    }
    facts.push("numbers are medians of runs, with 95 % bootstrap intervals".into());
    facts.join(" · ")
}

fn claims(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        format!(
            "<tr><td><span class=\"verdict {}\">{}</span></td><td>{}<br><small>{}</small></td><td>{}<br><small>{}</small></td></tr>",
            claim.verdict.to_string().replace(' ', "-"),
            claim.verdict,
            inline(&claim.says),
            inline(&claim.source),
            inline(&claim.because),
            inline(&claim.rule)
        )
    };
    let rows: String = claims.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><tr><th>Verdict</th><th>Claim</th><th>Numbers and rule</th></tr>{rows}</table></div>"
    )
}

fn table(table: &Table) -> String {
    let head: String = table.head.iter().map(|cell| format!("<th>{}</th>", inline(cell))).collect();
    let row = |row: &Vec<String>| {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", inline(cell))).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><caption>{}</caption><tr>{head}</tr>{rows}</table></div>",
        inline(&table.title)
    )
}

fn of_published(table: &PublishedTable) -> Table {
    Table {
        title: format!("{}, {} ({})", table.title, table.unit, table.at),
        head: table.columns.clone(),
        rows: table.rows.iter().map(|row| row.iter().map(|it| plain(*it)).collect()).collect(),
    }
}

fn of_machine(machine: &Machine) -> Table {
    let times = |times: Times| format!("{} µs, 99th percentile {} µs", number(times.p50), number(times.p99));
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let rows = [
        ("processor", machine.processor.clone()),
        ("processors that the kernel shows", machine.cores.to_string()),
        ("memory", format!("{gib:.0} GiB")),
        ("kernel", machine.kernel.clone()),
        ("file system", machine.file_system.clone()),
        ("append of 4 KiB with fdatasync", times(machine.sync_us)),
        ("wake-up of a thread", times(machine.wake_up_us)),
        ("datagram over loopback and back", times(machine.round_trip_us)),
        ("echo over TCP on loopback", times(machine.echo_us)),
    ];
    Table {
        title: "Measured before the first run".into(),
        head: vec!["what".into(), "how much".into()],
        rows: rows.into_iter().map(|(what, much)| vec![what.to_string(), much]).collect(),
    }
}

/// Every measure of every point, folded away.
fn all_points(run: &RunInfo, summary: &Summary) -> String {
    let measures: Vec<Measure> = Measure::ALL
        .into_iter()
        .filter(|it| summary.points.iter().any(|point| point.measures.contains_key(it.name())))
        .collect();
    let head = ["point", "runs"].map(str::to_string).into_iter();
    let head = head.chain(measures.iter().map(|measure| measure.title().to_string())).collect();
    let row = |point: &crate::results::PointSummary| {
        let names = [point.point.clone(), point.runs.to_string()].into_iter();
        let cells = measures
            .iter()
            .map(|it| point.measures.get(it.name()).map_or_else(|| "–".into(), |its| shown(*its)));
        names.chain(cells).collect()
    };
    let medians = Table { title: "Medians".into(), head, rows: summary.points.iter().map(row).collect() };
    let plan = Table {
        title: "Settings".into(),
        head: ["point", "members, flags and settings", "load"].map(str::to_string).to_vec(),
        rows: run
            .points
            .iter()
            .map(|it| vec![it.point.clone(), it.setting.clone(), it.load.clone()])
            .collect(),
    };
    format!(
        "<details><summary>All points with all measures</summary>{}{}</details>",
        table(&medians),
        table(&plan)
    )
}

/// Paragraphs and lists of plain Markdown.
fn markdown(text: &str) -> String {
    let block = |block: &str| {
        let block = block.trim();
        if let Some(items) = block.strip_prefix("- ") {
            let items: String = items
                .split("\n- ")
                .map(|item| format!("<li>{}</li>", inline(&item.replace('\n', " "))))
                .collect();
            return format!("<ul>{items}</ul>");
        }
        match block.strip_prefix("# ") {
            Some(_) => String::new(), // the title is there already
            None => format!("<p>{}</p>", inline(&block.replace('\n', " "))),
        }
    };
    text.split("\n\n").map(block).collect::<Vec<_>>().join("\n")
}

/// Text with `code`, as HTML.
#[must_use]
pub fn inline(text: &str) -> String {
    let parts = escaped(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(|(place, part)| if place % 2 == 1 { format!("<code>{part}</code>") } else { part.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_paragraphs_lists_and_code() {
        let text = "# Title\n\nOne `a<b` two\nthree.\n\n- first\n- second\n  line";
        let expected =
            "\n<p>One <code>a&lt;b</code> two three.</p>\n<ul><li>first</li><li>second   line</li></ul>";
        assert_eq!(markdown(text), expected);
    }
}
