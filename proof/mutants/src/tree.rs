//! Tree: a copy of the workspace that has the wrong code of all mutants in it.
//!
//! Only files that differ are written, so that cargo builds anew what has changed and nothing else. Files that were
//! removed from the workspace are removed from the copy, too.
//! Knows nothing of: cargo, builds of the copy.

use crate::place::place;
use crate::{Bug, Edit};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Checks that every mutant's text is where it belongs.
///
/// # Errors
/// All mutants whose text is not, a line each.
pub fn check(root: &Path, bugs: &[Bug]) -> Result<(), String> {
    changed(root, bugs).map(drop)
}

/// Makes, or brings up to date, the copy of `root` in `copy`.
///
/// # Errors
/// The mutants that cannot be placed; the system's errors.
pub fn write(root: &Path, copy: &Path, bugs: &[Bug]) -> Result<(), String> {
    write_changed(root, copy, changed(root, bugs)?)
}

/// Makes, or brings up to date, a copy of `root` in which these files have other texts. The crates of these files depend
/// on `kattu-plant` there.
///
/// # Errors
/// The system's errors; a crate without dependencies.
pub fn write_changed(root: &Path, copy: &Path, mut changed: BTreeMap<String, String>) -> Result<(), String> {
    let homes: BTreeSet<String> =
        changed.keys().filter_map(|file| folder_of(file)).map(str::to_string).collect();
    for home in homes {
        let manifest = format!("{home}/Cargo.toml");
        let text = read(root, &manifest)?;
        let head = "[dependencies]\n";
        let at = text.find(head).ok_or(format!("{manifest} has no [dependencies]"))? + head.len();
        changed.insert(manifest, format!("{}kattu-plant.workspace = true\n{}", &text[..at], &text[at..]));
    }
    let files = files(root)?;
    for file in &files {
        let bytes = match changed.remove(file) {
            Some(text) => text.into_bytes(),
            None => std::fs::read(root.join(file)).map_err(|error| format!("{file}: {error}"))?,
        };
        let path = copy.join(file);
        if std::fs::read(&path).is_ok_and(|old| old == bytes) {
            continue;
        }
        let folder = path.parent().unwrap_or(copy);
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let is_known =
        |path: &Path| path.strip_prefix(copy).is_ok_and(|file| files.contains(&*file.to_string_lossy()));
    remove_unknown(copy, &is_known).map_err(|error| format!("{}: {error}", copy.display()))
}

/// The files with wrong code in them, by their paths.
fn changed(root: &Path, bugs: &[Bug]) -> Result<BTreeMap<String, String>, String> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &str, &Edit)>> = BTreeMap::new();
    for (place, bug) in bugs.iter().enumerate() {
        for edit in &bug.edits {
            by_file.entry(&edit.file).or_default().push((place + 1, bug.name, edit));
        }
    }
    let (mut changed, mut wrong) = (BTreeMap::new(), Vec::new());
    for (file, edits) in by_file {
        let text = read(root, file)?;
        let numbered: Vec<_> = edits.iter().map(|&(number, _, edit)| (number, edit)).collect();
        match place(&text, &numbered) {
            Ok(placed) => {
                changed.insert(file.to_string(), placed);
            }
            Err(_) => {
                // Each edit alone, to name those that do not fit; the others overlap with another one.
                let alone = edits.iter().filter_map(|&(number, name, edit)| {
                    let why = place(&text, &[(number, edit)]).err()?;
                    Some(format!("{name}: {file}: {}", why.join("; ")))
                });
                let alone: Vec<String> = alone.collect();
                match alone.is_empty() {
                    true => wrong.extend(
                        place(&text, &numbered).err().map(|why| format!("{file}: {}", why.join("; "))),
                    ),
                    false => wrong.extend(alone),
                }
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(changed),
        false => Err(wrong.join("\n")),
    }
}

/// The folder of a file's crate.
fn folder_of(file: &str) -> Option<&str> {
    file.match_indices('/').nth(1).map(|(at, _)| &file[..at])
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

/// All files of the workspace, untracked ones included.
fn files(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = git.output().map_err(|error| format!("git: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let names = String::from_utf8_lossy(&listed.stdout);
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty() && root.join(name).is_file())
        .map(str::to_string)
        .collect())
}

/// Removes the files of the copy that the workspace does not have.
fn remove_unknown(folder: &Path, is_known: &dyn Fn(&Path) -> bool) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_unknown(&path, is_known)?;
        } else if !is_known(&path) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trial;

    fn bug(edits: &[(&str, &str)]) -> Bug {
        let edit = |&(text, instead): &(&str, &str)| Edit {
            file: "core/a/src/lib.rs".into(),
            within: None,
            text: text.into(),
            instead: instead.into(),
        };
        Bug {
            name: "one-of-a-test",
            home: "kattu-a",
            incident: "a test",
            story: "It is made for a test.",
            trial: Trial::Storms,
            judges: Vec::new(),
            edits: edits.iter().map(edit).collect(),
        }
    }

    /// A workspace of one crate, in a folder of its own.
    fn workspace(name: &str) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("kattu-mutants-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("core/a/src")).expect("a folder");
        std::fs::write(root.join("core/a/src/lib.rs"), "fn right() -> bool { true }\n").expect("written");
        std::fs::write(root.join("core/a/Cargo.toml"), "[package]\n\n[dependencies]\nb = \"1\"\n")
            .expect("written");
        assert!(Command::new("git").args(["init", "-q"]).current_dir(&root).status().expect("git").success());
        root
    }

    #[test]
    fn a_copy_has_the_wrong_code_and_what_asks_for_it_and_follows_the_workspace() {
        let root = workspace("copied");
        let copy = root.with_extension("copy");
        let bugs = [bug(&[("true", "false")])];
        std::fs::write(root.join("old.txt"), "old").expect("written");
        write(&root, &copy, &bugs).expect("it is copied");
        let text = std::fs::read_to_string(copy.join("core/a/src/lib.rs")).expect("it is there");
        assert_eq!(text, "fn right() -> bool { (if kattu_plant::is(1) { false } else { true }) }\n");
        let manifest = std::fs::read_to_string(copy.join("core/a/Cargo.toml")).expect("it is there");
        assert!(
            manifest.ends_with("[dependencies]\nkattu-plant.workspace = true\nb = \"1\"\n"),
            "{manifest}"
        );
        assert!(copy.join("old.txt").exists());
        std::fs::remove_file(root.join("old.txt")).expect("removed");
        write(&root, &copy, &bugs).expect("it is copied");
        assert!(!copy.join("old.txt").exists());
        for folder in [root, copy] {
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    #[test]
    fn a_mutant_that_does_not_fit_is_named() {
        let root = workspace("misfit");
        let why = check(&root, &[bug(&[("wrong", "false")])]).expect_err("it stands nowhere");
        assert_eq!(why, "one-of-a-test: core/a/src/lib.rs: `wrong` occurs 0 times");
        let _ = std::fs::remove_dir_all(root);
    }
}
