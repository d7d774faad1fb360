//! Paths: source files that a crate names by their place, with `#[path = "…"]` or `include!("…")`.
//!
//! In:   the source files of one crate.
//! Out:  each file of another crate that is named so, with its line.
//! Rule: a crate compiles its own files only. A file that two crates compile is two modules with one text, and no manifest
//!       says so; what several crates need is a crate.
//! Knows nothing of: manifests.

use crate::shell::Failure;
use std::path::{Component, Path, PathBuf};

/// Judges every source file below the crate's `folder`; `Ok` lists the wrong ones, shown relative to `root`.
pub fn judge(root: &Path, folder: &Path) -> Result<Vec<String>, Failure> {
    let mut wrong = Vec::new();
    for file in sources(folder)? {
        let text = std::fs::read_to_string(&file)?;
        let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        for (line, named) in outside(folder, &file, &text) {
            let (file, named) = (shown(&file), shown(&named));
            wrong.push(format!("{file}:{line}: compiles `{named}`, a file of another crate"));
        }
    }
    Ok(wrong)
}

/// Files of Rust below `folder`, except what is built and what belongs to a crate further below.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            let is_other = path.ends_with("target") || path.join("Cargo.toml").exists();
            if path.is_dir() && !is_other {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of `file` that name a file outside of `folder`, and that file.
fn outside(folder: &Path, file: &Path, text: &str) -> Vec<(usize, PathBuf)> {
    let near = file.parent().unwrap_or(folder);
    let named = text.lines().zip(1..).filter_map(|(line, number)| Some((number, name_in(line)?)));
    let named = named.map(|(number, name)| (number, flat(&near.join(name))));
    named.filter(|(_, path)| !path.starts_with(folder)).collect()
}

/// The file that this line of source names by its place.
fn name_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let attribute = line.strip_prefix("#[").and_then(|rest| rest.split_once("path = \""));
    let include = line.split_once("include!(\"").filter(|(before, _)| !before.contains("//"));
    let (_, rest) = attribute.or(include)?;
    rest.split_once('"').map(|(name, _)| name)
}

/// The path without `.` and `..`, as far as it says itself.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                flat.pop();
            }
            Component::CurDir => {}
            other => flat.push(other),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_in(file: &str, line: &str) -> Vec<String> {
        let folder = Path::new("/house/proof/bugs");
        let found = outside(folder, &folder.join(file), &format!("use a::b;\n{line}\nmod c;\n"));
        found.into_iter().map(|(number, path)| format!("{number} {}", path.display())).collect()
    }

    #[test]
    fn a_file_of_another_crate_is_named_with_its_line() {
        let line = "#[path = \"../../../core/raft/tests/world/mod.rs\"]";
        assert_eq!(named_in("src/protocol.rs", line), ["2 /house/core/raft/tests/world/mod.rs"]);
        let line = "    #[cfg_attr(test, path = \"../../sim/src/dice.rs\")]";
        assert_eq!(named_in("src/dice.rs", line), ["2 /house/proof/sim/src/dice.rs"]);
        let line = "include!(\"../../sim/src/dice.rs\");";
        assert_eq!(named_in("src/dice.rs", line), ["2 /house/proof/sim/src/dice.rs"]);
    }

    #[test]
    fn files_of_the_same_crate_and_texts_are_no_matter() {
        for line in [
            "#[path = \"held/counting.rs\"]",
            "#[path = \"../tests/common/execution.rs\"]",
            "// #[path = \"../../sim/src/dice.rs\"]",
            "const PAGE: &str = include_str!(\"../../../docs/style.md\");",
        ] {
            assert_eq!(named_in("src/table.rs", line), [""; 0], "{line}");
        }
    }
}
