//! Explained: survivors that no test can kill, each with the reason, as data.
//!
//! ```text
//!  explained.toml:  [[survivor]]  file, function, text (the lines as they are), instead (the mutant's), reason
//! ```
//! Rule: an explanation that fits no mutant of its file any more is refused: its text has changed, and so may its reason
//!       have. The unit tests check that.
//! Knows nothing of: how mutants are made or killed.

use crate::operators::{self, Mutant};
use std::path::{Path, PathBuf};

/// One survivor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    file: String,
    function: String,
    text: String,
    instead: String,
    reason: String,
}

/// The file of explanations.
#[must_use]
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("explained.toml")
}

/// All explanations of a text.
///
/// # Errors
/// A survivor that lacks a field.
pub fn parse(text: &str) -> Result<Vec<Explained>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let Some(survivors) = table.get("survivor") else { return Ok(Vec::new()) };
    let survivors = survivors.as_array().ok_or("`survivor` is no list")?;
    let read = |survivor: &toml::Value| {
        let of = |key: &str| {
            let value = survivor.get(key).and_then(toml::Value::as_str).map(str::to_string);
            value.ok_or(format!("a survivor without {key}: {survivor}"))
        };
        let (file, function, reason) = (of("file")?, of("function")?, of("reason")?);
        Ok(Explained { file, function, text: of("text")?, instead: of("instead")?, reason })
    };
    survivors.iter().map(read).collect()
}

impl Explained {
    /// The explanation is about this mutant of a file with this text.
    #[must_use]
    pub fn fits(&self, mutant: &Mutant, text: &str) -> bool {
        self.file == mutant.file
            && self.function == mutant.function
            && mutant.difference(text) == (self.text.clone(), self.instead.clone())
    }

    /// The reason why no test kills it.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Checks that each explanation fits a mutant.
///
/// # Errors
/// Those that fit none, a line each.
pub fn check(root: &Path, explained: &[Explained]) -> Result<(), String> {
    let stale = explained.iter().filter_map(|explained| {
        let file = &explained.file;
        let found = std::fs::read_to_string(root.join(file)).ok().and_then(|text| {
            let mutants = operators::mutants(file, &text).ok()?;
            mutants.iter().any(|mutant| explained.fits(mutant, &text)).then_some(())
        });
        let told = format!(
            "{file}: {}: no mutant `{}` of `{}`",
            explained.function, explained.instead, explained.text
        );
        found.is_none().then_some(told)
    });
    let stale: Vec<String> = stale.collect();
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nexplained.toml: change the text if the reason still holds, else remove the survivor",
        stale.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_explanation_fits_a_mutant_and_has_a_reason() {
        let text = std::fs::read_to_string(path()).expect("explained.toml is there");
        let explained = parse(&text).expect("it is read");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(check(&root, &explained), Ok(()));
        for explained in explained {
            assert!(explained.reason.ends_with('.') && 20 < explained.reason.len(), "{explained:?}");
        }
    }

    #[test]
    fn an_explanation_whose_text_has_changed_is_named() {
        let text = "[[survivor]]\nfile = \"proof/mutation/src/explained.rs\"\nfunction = \"path\"\n\
                    text = \"never\"\ninstead = \"ever\"\nreason = \"It is a test.\"\n";
        let explained = parse(text).expect("it is read");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let why = check(&root, &explained).expect_err("it stands nowhere");
        assert!(
            why.starts_with("proof/mutation/src/explained.rs: path: no mutant `ever` of `never`"),
            "{why}"
        );
    }

    #[test]
    fn an_explanation_that_lacks_something_is_refused() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert!(
            parse("[[survivor]]\nfile = \"a.rs\"\n").expect_err("no function").contains("without function")
        );
    }
}
