//! Pages: what documents say about the repository is true of it.
//!
//! In:   every `*.md` in git; the tree; the history of HEAD; the manifest of the workspace.
//! Out:  each link, path, crate, commit and made table that is wrong, with file and line.
//! Rule: a link resolves to a file and to a heading of it; a path in backticks exists; each member of the workspace is in
//!       ARCHITECTURE.md's table of crates; docs/published.md has its rows; a commit is an ancestor of HEAD.
//!       `docs/record.md` tells of the past: its paths may be gone.
//! Knows nothing of: whether a sentence is true.

mod campaigns;
mod commits;
mod crates;
mod links;
mod markdown;
mod marked;
mod paths;
mod published;

use crate::shell::{self, Failure, git};
use crate::stage::Tally;
use commits::History;
use markdown::Page;
pub use marked::rewrite;
use paths::Tree;

/// The page whose paths are not checked.
const OF_THE_PAST: &str = "docs/record.md";
/// The page with the table of crates.
const PLAN: &str = "ARCHITECTURE.md";
/// The page with a row for each row of published works.
const PUBLISHED: &str = "docs/published.md";

/// How many of each kind were checked, and the errors.
#[derive(Default)]
struct Found {
    links: usize,
    paths: usize,
    commits: usize,
    wrong: Vec<String>,
}

/// Judges all pages; `Err` lists everything that is wrong in them.
pub fn judge() -> Result<Tally, Failure> {
    let mut pages = Vec::new();
    for path in shell::files_in_git(&["--", "*.md"])? {
        pages.push(Page::parse(&path, &std::fs::read_to_string(shell::root().join(&path))?));
    }
    let files = shell::files_in_git(shell::NEW_TOO)?;
    let tree = Tree::new(files.iter().map(String::as_str));
    let history = match git(&["rev-parse", "--is-shallow-repository"])?.trim() {
        "true" => None,
        _ => Some(History::new(&git(&["rev-list", "HEAD"])?)),
    };
    let manifest = std::fs::read_to_string(shell::root().join("Cargo.toml"))?;

    let mut found = Found::default();
    for page in &pages {
        links::judge(page, &pages, &tree, &mut found);
        if page.path != OF_THE_PAST {
            paths::judge(page, &tree, &mut found);
        }
        commits::judge(page, history.as_ref(), &mut found);
        if page.path == PLAN {
            found.wrong.extend(crates::judge(page, &manifest)?);
        }
    }
    match pages.iter().find(|page| page.path == PUBLISHED) {
        Some(page) => found.wrong.extend(published::judge(page)),
        None => found.wrong.push(format!("{PUBLISHED} is gone")),
    }
    found.wrong.extend(marked::stale()?);
    if !found.wrong.is_empty() {
        return Err(Failure::new(found.wrong.join("\n")));
    }
    let mut tally = Tally::one();
    tally.note = format!(
        "{} pages, {} links, {} paths, {} commits",
        pages.len(),
        found.links,
        found.paths,
        found.commits
    );
    if history.is_none() && 0 < found.commits {
        tally.skipped.push(format!("{} commits: this clone is shallow", found.commits));
    }
    Ok(tally)
}
