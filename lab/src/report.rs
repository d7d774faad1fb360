//! The report of a folder: summary, figures and page, made from its samples.
//!
//! Knows nothing of: how runs are made.

use crate::drawings::Drawing;
use crate::experiment::Experiment;
use crate::measured::Measured;
use crate::page;
use crate::published::Published;
use crate::results::{Folder, Sample, Summary, VERSION};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Writes summary, figures and page; the path of the page, and the summary.
///
/// # Errors
/// The folder has no run; a file cannot be read or written.
pub fn write(experiment: &Experiment, folder: &Folder) -> Result<(PathBuf, Summary), String> {
    let path = folder.path();
    let run = folder.run_info()?.ok_or_else(|| format!("{}: has no run", path.display()))?;
    let samples = folder.samples()?;
    let published = Published::parse(experiment.published)?;
    let measured = Measured::of(&run, &samples);
    let findings = (experiment.judge)(&measured, &published);
    let summary = Summary {
        version: VERSION,
        experiment: run.experiment.clone(),
        points: measured.summaries(),
        counted: samples.iter().filter(|sample| sample.discarded.is_none()).count(),
        disturbed: samples.iter().filter(|sample| sample.disturbed.is_some()).count(),
        discarded: reasons(&samples),
        claims: findings.claims.clone(),
        paragraphs: findings.paragraphs.clone(),
    };
    let mut drawings = findings.drawings.clone();
    for figure in &findings.figures {
        let drawn = figure.svg()?;
        drawings.extend(drawn.map(|svg| Drawing {
            id: figure.id.clone(),
            title: figure.title.clone(),
            caption: figure.caption.clone(),
            svg,
        }));
    }
    for drawing in &drawings {
        folder.write(&format!("figures/{}.svg", drawing.id), &drawing.svg)?;
    }
    folder.write_json("summary.json", &summary)?;
    let machine = folder.machine()?;
    let html = page::html(experiment, &run, machine.as_ref(), &summary, &findings, &drawings, &published);
    folder.write("index.html", &html)?;
    Ok((path.join("index.html"), summary))
}

/// How often runs were discarded, by reason. Addresses are left out: they differ from run to run.
fn reasons(samples: &[Sample]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for reason in samples.iter().filter_map(|sample| sample.discarded.as_deref()) {
        let kind = reason.split_once(" (endpoint ").map_or(reason, |(kind, _)| kind);
        *reasons.entry(kind.to_string()).or_insert(0) += 1;
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn reasons_that_differ_in_an_address_are_one() {
        let discarded = |reason: &str| Sample { discarded: Some(reason.into()), ..sample("a", 1, 1.0) };
        let samples = [
            discarded("outcome unknown: timed out (endpoint 127.0.0.1:2379)"),
            sample("a", 2, 1.0),
            discarded("outcome unknown: timed out (endpoint 127.0.0.2:2379)"),
            discarded("others had more than 10 % of the processors"),
        ];
        let counted: Vec<(String, usize)> = reasons(&samples).into_iter().collect();
        let expected =
            [("others had more than 10 % of the processors", 1), ("outcome unknown: timed out", 2)];
        assert_eq!(counted, expected.map(|(reason, count)| (reason.to_string(), count)));
    }
}
