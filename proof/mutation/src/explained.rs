//! Explained: survivors that no test can kill, each with the reason, as data.
//!
//! ```text
//!  explained.toml:  [[survivor]]  file, function, text (the lines as they are), instead (the mutant's), reason,
//!                                 above (the line before them: only where the same text stands twice in the function)
//! ```
//! Rule: an explanation fits one place. One that fits none any more is refused, because its text has changed, and so may
//!       its reason have; and one that fits several is, because its reason is about one. The unit tests check that.
//! Knows nothing of: how mutants are made or killed.

use crate::operators::{self, Mutant};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One survivor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    file: String,
    function: String,
    text: String,
    instead: String,
    above: Option<String>,
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
        let above = survivor.get("above").and_then(toml::Value::as_str).map(str::to_string);
        Ok(Explained { file, function, text: of("text")?, instead: of("instead")?, above, reason })
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
            && self.above.as_ref().is_none_or(|above| *above == mutant.above(text))
    }

    /// The reason why no test kills it.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Checks that each explanation fits the mutants of one place.
///
/// # Errors
/// Those that fit none or several, a line each.
pub fn check(root: &Path, explained: &[Explained]) -> Result<(), String> {
    let stale = explained.iter().filter_map(|explained| {
        let file = &explained.file;
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let mutants = operators::mutants(file, &text).unwrap_or_default();
        let fitting = mutants.iter().filter(|mutant| explained.fits(mutant, &text));
        let places: BTreeSet<usize> = fitting.map(|mutant| mutant.range.start).collect();
        let found = match places.len() {
            1 => return None,
            0 => "no mutant".to_string(),
            several => format!("{several} mutants (`above` tells them apart)"),
        };
        Some(format!(
            "{file}: {}: {found} `{}` of `{}`",
            explained.function, explained.instead, explained.text
        ))
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
    fn an_explanation_of_a_text_that_stands_twice_says_which_it_means() {
        let file = "a.rs";
        let text =
            "fn f() -> Never {\n    if a {\n        return;\n    }\n    if b {\n        return;\n    }\n}";
        let root = std::env::temp_dir().join(format!("kattu-explained-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a folder");
        std::fs::write(root.join(file), text).expect("a file");
        let head = "[[survivor]]\nfile = \"a.rs\"\nfunction = \"f\"\ntext = \"return;\"\ninstead = \"\"\nreason = \"\"\n";
        let checked = |more: &str| check(&root, &parse(&format!("{head}{more}")).expect("it is read"));
        assert!(checked("").expect_err("two places").starts_with("a.rs: f: 2 mutants"));
        assert_eq!(checked("above = \"if b {\""), Ok(()));
        assert!(checked("above = \"if c {\"").is_err());
        std::fs::remove_dir_all(&root).expect("it is there");
    }

    #[test]
    fn an_explanation_that_lacks_something_is_refused() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert!(
            parse("[[survivor]]\nfile = \"a.rs\"\n").expect_err("no function").contains("without function")
        );
    }
}
