//! Build: the copy of the workspace with all mutants in it, and the programs that may kill them.
//!
//! 1. The copy is written and checked. The compiler's complaints name bytes of the copy; the mutants that they are about
//!    are dropped, and the copy is written again, until there are no complaints.
//! 2. Test programs and proofs of the copy are built, once for all mutants.
//!
//! Rule: a complaint within wrong code is about that mutant; else it is about the smallest choice around it, else about
//!       the removed statements of its function, else about all mutants of that function.
//! Knows nothing of: tests, outcomes.

use crate::operators::{Kind, Mutant};
use crate::render::Rendered;
use crate::targets::{Program, Target};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// More rounds of complaints than that are a mistake of ours.
const ROUNDS_MAX: usize = 20;

/// Where the copy is, and where it is built.
#[derive(Debug)]
pub struct Place {
    /// The root of the workspace.
    pub root: PathBuf,
    /// The folder of the copy and its builds.
    pub folder: PathBuf,
}

/// One program that was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its name: crate and test, or the program.
    pub name: String,
    /// The file.
    pub executable: PathBuf,
    /// The folder that it runs in.
    pub folder: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Place {
    fn copy(&self) -> PathBuf {
        self.folder.join("tree")
    }

    fn cargo(&self, words: &[&str]) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(words).current_dir(self.copy()).stdin(Stdio::null());
        cargo.env("RUSTFLAGS", "--cfg kattu_planted -A warnings").env("CARGO_TARGET_DIR", &self.folder);
        // Nobody steps through these builds, and a mutant may end each of them in a panic.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_PROFILE_TEST_DEBUG", "none");
        cargo
    }

    /// Writes the copy with these mutants, numbered by their places in the list.
    fn write(&self, mutants: &[&Mutant]) -> Result<BTreeMap<String, Rendered>, String> {
        let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (place, mutant) in mutants.iter().enumerate() {
            by_file.entry(&mutant.file).or_default().push((place + 1, mutant));
        }
        let (mut rendered, mut changed) = (BTreeMap::new(), BTreeMap::new());
        for (file, numbered) in by_file {
            let text = std::fs::read_to_string(self.root.join(file));
            let text = text.map_err(|error| format!("{file}: {error}"))?;
            let copy = Rendered::new(&text, &numbered);
            changed.insert(file.to_string(), copy.text.clone());
            rendered.insert(file.to_string(), copy);
        }
        kattu_mutants::tree::write_changed(&self.root, &self.copy(), changed)?;
        Ok(rendered)
    }

    /// The first `count` of these mutants that compile, written into the copy: mutant 1 is the first of the list. The
    /// second number is how many did not compile.
    ///
    /// # Errors
    /// The copy cannot be written, or does not compile for a reason that is no mutant.
    pub fn compiling(
        &self,
        target: &Target,
        ordered: &[Mutant],
        count: usize,
        tell: &dyn Fn(&str),
    ) -> Result<(Vec<Mutant>, usize), String> {
        let mut dropped: BTreeSet<usize> = BTreeSet::new();
        for round in 1..=ROUNDS_MAX {
            let chosen: Vec<usize> =
                (0..ordered.len()).filter(|place| !dropped.contains(place)).take(count).collect();
            let mutants: Vec<&Mutant> = chosen.iter().map(|place| &ordered[*place]).collect();
            let rendered = self.write(&mutants)?;
            tell(&format!("compiling {} mutants, round {round}", mutants.len()));
            let mut cargo = self.cargo(&["check", "--message-format=json", "-p", target.package]);
            let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
            if output.status.success() {
                return Ok((mutants.into_iter().cloned().collect(), dropped.len()));
            }
            let complaints = complaints(&String::from_utf8_lossy(&output.stdout));
            let mut refused = BTreeSet::new();
            for complaint in &complaints {
                refused.extend(accused(complaint, &rendered, &mutants));
            }
            if refused.is_empty() {
                let text: Vec<&str> = complaints.iter().map(|complaint| complaint.text.as_str()).collect();
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(format!("the copy does not compile:\n{}{errors}", text.join("\n")));
            }
            dropped.extend(refused.into_iter().map(|number| chosen[number - 1]));
        }
        Err(format!("after {ROUNDS_MAX} rounds the copy still does not compile"))
    }

    /// Builds programs that may kill mutants.
    ///
    /// # Errors
    /// The compiler's.
    pub fn programs(&self, program: &Program) -> Result<Vec<Built>, String> {
        let words: Vec<&str> = match program {
            Program::Tests { package } => {
                vec!["test", "--no-run", "--lib", "--tests", "--message-format=json", "-p", package]
            }
            Program::Proof { package, .. } => vec!["build", "--message-format=json", "-p", package],
        };
        let output = self.cargo(&words).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cargo: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let told: Vec<String> = complaints(&text).into_iter().map(|complaint| complaint.text).collect();
            return Err(format!("`cargo {}` fails:\n{}", words.join(" "), told.join("\n")));
        }
        Ok(text.lines().filter_map(|line| self.built(line, program)).collect())
    }

    fn built(&self, line: &str, program: &Program) -> Option<Built> {
        let message: Value = serde_json::from_str(line).ok()?;
        let executable = PathBuf::from(message.get("executable")?.as_str()?);
        let name = message["target"]["name"].as_str()?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let package = manifest.parent()?.to_path_buf();
        let is_test = message["profile"]["test"].as_bool()?;
        match program {
            Program::Tests { package: wanted } if is_test => {
                let is_library = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "lib");
                let part = if is_library { "unit tests" } else { name };
                Some(Built {
                    name: format!("{wanted}: {part}"),
                    executable,
                    folder: package,
                    arguments: Vec::new(),
                })
            }
            Program::Proof { name: wanted, arguments, .. } if !is_test && name == *wanted => Some(Built {
                name: format!("{wanted} {}", arguments.join(" ")),
                executable,
                folder: self.copy(),
                arguments: arguments.iter().map(|word| (*word).to_string()).collect(),
            }),
            _ => None,
        }
    }
}

/// One error of the compiler.
#[derive(Debug)]
struct Complaint {
    text: String,
    /// Files and bytes; the primary ones first.
    places: Vec<(String, Range<usize>)>,
}

/// The errors among the compiler's messages.
fn complaints(messages: &str) -> Vec<Complaint> {
    let errors = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let message = message.get("message")?;
        if message["level"] != "error" {
            return None;
        }
        let mut spans: Vec<&Value> = message["spans"].as_array()?.iter().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        let places = spans.into_iter().filter_map(|span| {
            let byte = |key: &str| span[key].as_u64().and_then(|byte| usize::try_from(byte).ok());
            Some((span["file_name"].as_str()?.to_string(), byte("byte_start")?..byte("byte_end")?))
        });
        let places = places.collect();
        Some(Complaint { text: message["rendered"].as_str()?.to_string(), places })
    });
    errors.collect()
}

/// The numbers of the mutants that a complaint is about.
fn accused(complaint: &Complaint, rendered: &BTreeMap<String, Rendered>, mutants: &[&Mutant]) -> Vec<usize> {
    let places = complaint.places.iter().filter_map(|(file, bytes)| {
        let copy = rendered.get(file)?;
        Some((file.as_str(), copy, bytes))
    });
    let of = |rule: &dyn Fn(&Rendered, &Range<usize>) -> Vec<usize>| -> Vec<usize> {
        places
            .clone()
            .map(|(_, copy, bytes)| rule(copy, bytes))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    };
    let wrong = of(&Rendered::wrong_at);
    if !wrong.is_empty() {
        return wrong;
    }
    let around = of(&Rendered::choice_at);
    if !around.is_empty() {
        return around;
    }
    let in_function = |is_statement: bool| -> Vec<usize> {
        let found = places.clone().map(|(file, copy, bytes)| {
            let byte = copy.origin(bytes.start);
            let is_there = |mutant: &Mutant| {
                mutant.file == file
                    && mutant.function_range.contains(&byte)
                    && (!is_statement || mutant.kind == Kind::Statement)
            };
            let numbers = (1..=mutants.len()).filter(|number| is_there(mutants[number - 1]));
            numbers.collect::<Vec<_>>()
        });
        found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    };
    let statements = in_function(true);
    if statements.is_empty() { in_function(false) } else { statements }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::mutants;

    const TEXT: &str = "fn f() -> bool { go(); a < b && c }\nfn g() -> bool { d < e }";

    /// The mutants that a complaint about this part of the copy is about, as they read.
    fn accused_by(part: &str, kinds: &[Kind]) -> Vec<String> {
        let all = mutants("a.rs", TEXT).expect("Rust");
        let chosen: Vec<&Mutant> = all.iter().filter(|mutant| kinds.contains(&mutant.kind)).collect();
        let numbered: Vec<(usize, &Mutant)> =
            chosen.iter().enumerate().map(|(place, m)| (place + 1, *m)).collect();
        let copy = Rendered::new(TEXT, &numbered);
        let start = copy.text.find(part).expect("it is there");
        let places = vec![("a.rs".to_string(), start..start + part.len())];
        let complaint = Complaint { text: String::new(), places };
        let rendered = BTreeMap::from([("a.rs".to_string(), copy)]);
        let numbers = accused(&complaint, &rendered, &chosen);
        numbers.into_iter().map(|number| chosen[number - 1].difference(TEXT).1).collect()
    }

    #[test]
    fn a_complaint_is_about_the_wrong_code_that_it_names() {
        assert_eq!(accused_by("a <= b", &[Kind::Relation]), ["fn f() -> bool { go(); a <= b && c }"]);
    }

    #[test]
    fn a_complaint_elsewhere_is_about_the_function() {
        let kinds = [Kind::Statement, Kind::Relation];
        assert_eq!(accused_by("&& c", &kinds), ["fn f() -> bool { a < b && c }"]);
        assert_eq!(accused_by("fn g", &kinds), ["fn g() -> bool { d <= e }"]);
        assert_eq!(accused_by("&& c", &[Kind::Relation]).len(), 1);
    }

    #[test]
    fn errors_are_read_from_the_compilers_messages() {
        let message = r#"{"reason":"compiler-message","message":{"level":"error","rendered":"E","spans":[
            {"file_name":"b.rs","byte_start":1,"byte_end":2,"is_primary":false},
            {"file_name":"a.rs","byte_start":3,"byte_end":5,"is_primary":true}]}}"#
            .replace('\n', "");
        let warning = message.replace("error", "warning");
        let found = complaints(&format!("{warning}\nnot JSON\n{message}\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].places, [("a.rs".to_string(), 3..5), ("b.rs".to_string(), 1..2)]);
    }
}
