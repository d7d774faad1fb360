//! Paths in backticks: each exists.
//!
//! Rule: a word is a path if it begins with a folder at the root and a slash, or is a page or a manifest at the root.
//!       `*` stands for a part of a name, `…` for anything, `{a,b}` for each of them; `:12` behind a file is a line.
//!       Below `target/` nothing is in git.
//! Knows nothing of: what is in the files.

use super::Found;
use super::markdown::Page;
use std::collections::BTreeSet;

/// Folders at the root; those that the repository has besides them count, too.
const ROOMS: &[&str] = &["core", "shell", "proof", "kattu", "lab", "xtask", "docs"];

/// Every file of the repository, and every folder.
pub struct Tree {
    paths: BTreeSet<String>,
    rooms: BTreeSet<String>,
}

impl Tree {
    /// The tree with these files.
    pub fn new<'p>(files: impl Iterator<Item = &'p str>) -> Tree {
        let mut paths = BTreeSet::new();
        let mut rooms: BTreeSet<String> = ROOMS.iter().map(ToString::to_string).collect();
        for file in files {
            let folders = file.match_indices('/').map(|(at, _)| &file[..at]);
            rooms.extend(folders.clone().next().map(str::to_string));
            paths.extend(folders.map(str::to_string));
            paths.insert(file.to_string());
        }
        Tree { paths, rooms }
    }

    /// Whether there is a file or folder with this path; `""` is the root.
    pub fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    /// Whether a path fits this pattern.
    fn has_like(&self, pattern: &str) -> bool {
        if !pattern.contains(['*', '…']) {
            return self.has(pattern);
        }
        let pattern: Vec<char> = pattern.replace("**", "…").chars().collect();
        self.paths.iter().any(|path| fits(&pattern, &path.chars().collect::<Vec<_>>()))
    }

    /// Whether a word claims to be a path of the repository.
    fn claims(&self, word: &str) -> bool {
        let is_plain = |c: char| c.is_alphanumeric() || "._-/*{},…+@".contains(c);
        match word.split_once('/') {
            _ if !word.chars().all(is_plain) => false,
            Some((room, _)) => self.rooms.contains(room),
            None => is_name_at_the_root(word),
        }
    }
}

/// Names that pages and manifests at the root have: `README.md`, `Cargo.toml`.
fn is_name_at_the_root(word: &str) -> bool {
    let is_upper = |stem: &str| !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    ["Cargo.toml", "Cargo.lock", "LICENSE", "rustfmt.toml"].contains(&word)
        || word.strip_suffix(".md").is_some_and(is_upper)
}

/// Judges the paths of one page.
pub fn judge(page: &Page, tree: &Tree, found: &mut Found) {
    for code in &page.code {
        for (line, word) in words(code.line, &code.text) {
            let path = without_line(word).trim_end_matches('/');
            if !tree.claims(word) && !tree.claims(path) {
                continue;
            }
            found.paths += 1;
            for path in alternatives(path).into_iter().filter(|path| !tree.has_like(path)) {
                found.wrong.push(format!("{}:{line}: there is no `{path}`", page.path));
            }
        }
    }
}

/// The words of a piece of code, each with its line.
fn words(first: usize, text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(move |(place, line)| {
        line.split_whitespace().map(move |word| (first + place, word.trim_end_matches([',', ';', ')', '.'])))
    })
}

/// The path without the line behind it.
fn without_line(word: &str) -> &str {
    match word.split_once(':') {
        Some((path, line))
            if line == "LINE" || line.chars().all(|c| c.is_ascii_digit() || "-:".contains(c)) =>
        {
            path
        }
        _ => word,
    }
}

/// Every path that a pattern with braces names.
fn alternatives(pattern: &str) -> Vec<String> {
    let braces = pattern.find('{').and_then(|open| Some((open, open + pattern[open..].find('}')?)));
    let Some((open, close)) = braces else { return vec![pattern.to_string()] };
    let names = pattern[open + 1..close].split(',');
    names
        .flat_map(|name| alternatives(&format!("{}{name}{}", &pattern[..open], &pattern[close + 1..])))
        .collect()
}

/// `*` stands for any characters of one name, `…` for any characters.
fn fits(pattern: &[char], path: &[char]) -> bool {
    match (pattern, path) {
        ([], rest) => rest.is_empty(),
        (['…', after @ ..], _) => (0..=path.len()).any(|length| fits(after, &path[length..])),
        (['*', after @ ..], _) => {
            let longest = path.iter().position(|c| *c == '/').unwrap_or(path.len());
            (0..=longest).any(|length| fits(after, &path[length..]))
        }
        ([a, pattern @ ..], [b, path @ ..]) => a == b && fits(pattern, path),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> (usize, Vec<String>) {
        let tree = Tree::new(
            [
                "README.md",
                "Cargo.toml",
                "core/kv/src/lib.rs",
                "core/kv/src/log.rs",
                "core/kv/tests/a.rs",
                ".ci/run",
            ]
            .into_iter(),
        );
        let mut found = Found::default();
        judge(&Page::parse("docs/a.md", text), &tree, &mut found);
        (found.paths, found.wrong)
    }

    #[test]
    fn paths_globs_braces_and_lines_are_found() {
        let good = [
            "`core/kv/src/lib.rs`",
            "`core/kv`",
            "`core/kv/tests/`",
            "`core/`",
            "`core/kv/src/{lib,log}.rs`",
            "`core/*/tests`",
            "`core/…/a.rs`",
            "`core/**/lib.rs`",
            "`core/kv/src/lib.rs:12`",
            "`core/kv/src/lib.rs:LINE`",
            "`cargo fmt core/kv/src/lib.rs`",
            "`README.md`",
            "`Cargo.toml`",
            "`.ci/run`",
        ];
        for text in good {
            assert_eq!(judged(text), (1, Vec::new()), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_named_with_its_line() {
        let cases = [
            ("one\n`core/kv/src/gone.rs`", "docs/a.md:2: there is no `core/kv/src/gone.rs`"),
            ("`core/kv/src/{lib,gone}.rs`", "docs/a.md:1: there is no `core/kv/src/gone.rs`"),
            ("`core/*/gone`", "docs/a.md:1: there is no `core/*/gone`"),
            ("`core/gone.rs:7`", "docs/a.md:1: there is no `core/gone.rs`"),
            ("`shell/gone`", "docs/a.md:1: there is no `shell/gone`"),
            ("`PLAN.md`", "docs/a.md:1: there is no `PLAN.md`"),
            ("`cat\ncore/gone`", "docs/a.md:2: there is no `core/gone`"),
        ];
        for (text, wanted) in cases {
            assert_eq!(judged(text).1, [wanted], "{text}");
        }
    }

    #[test]
    fn other_words_are_no_paths() {
        let others = "`target/xtask/` `/kattu/status` `src/lib.rs` `a.md` `kattu` `core::kv/x` `core/<name>` core/gone";
        assert_eq!(judged(others), (0, Vec::new()));
    }
}
