//! The report of a folder: summary, figures and page, made from its samples.
//!
//! Knows nothing of: how runs are made.

use crate::experiment::Experiment;
use crate::figures::Figure;
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
    let mut figures: Vec<(&Figure, String)> = Vec::new();
    for figure in &findings.figures {
        if let Some(svg) = figure.svg()? {
            folder.write(&format!("figures/{}.svg", figure.id), &svg)?;
            figures.push((figure, svg));
        }
    }
    folder.write_json("summary.json", &summary)?;
    let machine = folder.machine()?;
    let html = page::html(experiment, &run, machine.as_ref(), &summary, &findings, &figures, &published);
    folder.write("index.html", &html)?;
    Ok((path.join("index.html"), summary))
}

/// How often runs were discarded, by reason.
fn reasons(samples: &[Sample]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for reason in samples.iter().filter_map(|sample| sample.discarded.clone()) {
        *reasons.entry(reason).or_insert(0) += 1;
    }
    reasons
}
