//! The page over several runs: what each experiment found, and published hypotheses and conclusions beside the claims that judge
//! them.
//!
//! Rule: the answer to a statement is counted from the verdicts in the summaries: none is written here.
//! Knows nothing of: samples, how a claim is judged.

use crate::experiments::ALL;
use crate::figures::escaped;
use crate::judge::{Claim, Verdict};
use crate::page;
use crate::results::{Folder, RunInfo, Summary};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A hypothesis or a conclusion of others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    says: String,
    /// Where it stands.
    source: String,
    claims: Vec<Judged>,
}

/// The claims of one experiment that judge a statement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Judged {
    experiment: String,
    begins: String,
    /// The claim says the opposite of the statement.
    #[serde(default)]
    contrary: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Statements {
    statement: Vec<Statement>,
}

/// A run with its summary, and the name of its folder.
struct Run {
    folder: String,
    info: RunInfo,
    summary: Summary,
}

/// Writes the page over all runs in the folders of `path`, by the order of the list of experiments; nothing where there is none.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(path: &Path) -> Result<Option<PathBuf>, String> {
    let runs = runs_in(path)?;
    if runs.is_empty() {
        return Ok(None);
    }
    let mut body = String::from("<h1>What the experiments say</h1>\n");
    body += &format!(
        "<p class=\"facts\">{} experiments of <code>kattu lab</code>, each with a page of its own</p>\n",
        runs.len()
    );
    body += &experiments(&runs);
    body += "<h2>Published hypotheses and conclusions</h2>\n<p>Each statement stands beside the claims of our experiments that \
             judge it. The first column counts their verdicts; the numbers are ratios of medians with 95 % bootstrap intervals, as \
             on the pages.</p>\n";
    body += &statements(&parsed()?, &runs);
    Folder::at(path).write("index.html", &page::document("What the experiments say", &body))?;
    Ok(Some(path.join("index.html")))
}

fn parsed() -> Result<Vec<Statement>, String> {
    let text = include_str!("statements.toml");
    toml::from_str::<Statements>(text)
        .map(|it| it.statement)
        .map_err(|error| format!("statements.toml: {error}"))
}

fn runs_in(path: &Path) -> Result<Vec<Run>, String> {
    let mut runs = Vec::new();
    for experiment in ALL {
        let folder = Folder::at(&path.join(experiment.name));
        if let (Some(info), Some(summary)) = (folder.run_info()?, folder.summary()?) {
            runs.push(Run { folder: experiment.name.to_string(), info, summary });
        }
    }
    Ok(runs)
}

fn experiments(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let title = ALL.iter().find(|it| it.name == run.folder).map_or("", |it| it.title);
        let verdicts: Vec<Verdict> = run.summary.claims.iter().map(|claim| claim.verdict).collect();
        let first = run.summary.paragraphs.first().map_or(String::new(), |text| page::inline(text));
        format!(
            "<tr><td><a href=\"{0}/index.html\">{0}</a><br><small>{1}</small></td><td>{2}<br><small>{3}</small></td><td>{4}</td></tr>",
            run.folder,
            escaped(title),
            first,
            escaped(&format!(
                "{} run of {}, commit {}: {} runs count",
                run.info.size, run.info.began, run.info.commit, run.summary.counted
            )),
            counted(&verdicts)
        )
    };
    let rows: String = runs.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><tr><th>Experiment</th><th>The first paragraph of its page</th><th>Claims</th></tr>{rows}</table></div>\n"
    )
}

/// How many of these verdicts there are of each kind.
fn counted(verdicts: &[Verdict]) -> String {
    let all = [Verdict::Held, Verdict::Refuted, Verdict::Artefact, Verdict::NotDecided];
    let some = all.into_iter().filter_map(|verdict| {
        let count = verdicts.iter().filter(|it| **it == verdict).count();
        let class = verdict.to_string().replace(' ', "-");
        (0 < count).then(|| format!("<span class=\"verdict {class}\">{count} {verdict}</span>"))
    });
    some.collect::<Vec<_>>().join("<br>")
}

/// The claims of these runs that judge a statement: the folder, the claim, and the verdict on the statement.
fn claims_of<'a>(statement: &Statement, runs: &'a [Run]) -> Vec<(&'a Run, &'a Claim, Verdict)> {
    let mut found = Vec::new();
    for judged in &statement.claims {
        for run in runs.iter().filter(|run| run.folder == judged.experiment) {
            let its = run.summary.claims.iter().filter(|claim| claim.says.starts_with(&judged.begins));
            found.extend(its.map(|claim| {
                let verdict = if judged.contrary { claim.verdict.opposite() } else { claim.verdict };
                (run, claim, verdict)
            }));
        }
    }
    found
}

fn statements(statements: &[Statement], runs: &[Run]) -> String {
    let row = |statement: &Statement| {
        let claims = claims_of(statement, runs);
        let verdicts: Vec<Verdict> = claims.iter().map(|(_, _, verdict)| *verdict).collect();
        let lines: String = claims
            .iter()
            .map(|(run, claim, verdict)| {
                format!(
                    "<li>{verdict}: {}: {} (<a href=\"{1}/index.html\">{1}</a>)</li>",
                    page::inline(&format!("{}, {}", claim.says, claim.because)),
                    run.folder
                )
            })
            .collect();
        let answer = match verdicts.is_empty() {
            true => "<span class=\"verdict not-decided\">not measured here</span>".to_string(),
            false => counted(&verdicts),
        };
        format!(
            "<tr><td>{answer}</td><td>{}<br><small>{}</small></td><td><ul>{lines}</ul></td></tr>",
            page::inline(&statement.says),
            page::inline(&statement.source)
        )
    };
    let rows: String = statements.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><tr><th>Verdicts</th><th>Statement</th><th>Claims that judge it</th></tr>{rows}</table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::VERSION;
    use kattu_rig::programs::OwnFolder;
    use std::collections::BTreeMap;

    fn claim(says: &str, verdict: Verdict) -> Claim {
        let text = String::new;
        Claim { says: says.into(), source: text(), rule: text(), because: "the ratio is 2".into(), verdict }
    }

    fn summary(experiment: &str, claims: Vec<Claim>) -> Summary {
        Summary {
            version: VERSION,
            experiment: experiment.into(),
            points: Vec::new(),
            counted: 3,
            disturbed: 0,
            discarded: BTreeMap::new(),
            claims,
            paragraphs: vec!["Half of all took 2 ms.".into()],
        }
    }

    fn info(experiment: &str) -> RunInfo {
        RunInfo {
            version: VERSION,
            experiment: experiment.into(),
            size: "full".into(),
            repetitions: 10,
            seed: 1,
            others_max: 0.1,
            spaces: false,
            commit: "c".into(),
            command: String::new(),
            began: "then".into(),
            points: Vec::new(),
        }
    }

    #[test]
    fn verdicts_are_counted_from_the_summaries_and_a_contrary_claim_is_turned_round() {
        let own = OwnFolder::new("kattu-lab-overview");
        assert_eq!(write(own.path()), Ok(None), "nothing was run");
        let folder = Folder::at(&own.path().join("batching"));
        let claims = vec![
            claim(
                "Without batching 5,000 requests take at least 8 times as long (etcd protocol)",
                Verdict::Held,
            ),
            claim(
                "Without batching 5,000 requests take at least 8 times as long (native protocol)",
                Verdict::Refuted,
            ),
            claim("The size of a batch has no pattern (pipelining on)", Verdict::Refuted),
            claim("Another claim", Verdict::NotDecided),
        ];
        folder.write_json("run.json", &info("batching")).unwrap();
        folder.write_json("summary.json", &summary("batching", claims)).unwrap();
        let page = write(own.path()).unwrap().expect("a run");
        let html = std::fs::read_to_string(page).unwrap();
        let row = |says: &str| {
            let row = html.split("<tr>").find(|row| row.contains(&format!("<td>{says}<br>")));
            row.unwrap_or_else(|| panic!("{says} is missing")).to_string()
        };
        let batching = row("Batching makes requests faster");
        assert!(batching.contains(">1 held<") && batching.contains(">1 refuted<"), "{batching}");
        let larger = row("Larger batches are faster in general");
        assert!(larger.contains(">1 held<") && !larger.contains(">1 refuted<"), "{larger}");
        assert!(row("Pipelining makes requests faster").contains("not measured here"));
        assert!(
            html.contains("href=\"batching/index.html\"") && html.contains(">2 refuted<"),
            "all claims of the run"
        );
    }

    #[test]
    fn statements_name_experiments_that_there_are() {
        for statement in parsed().expect("good TOML") {
            for judged in statement.claims {
                assert!(ALL.iter().any(|it| it.name == judged.experiment), "{}", judged.experiment);
                assert!(!judged.begins.is_empty());
            }
        }
    }
}
