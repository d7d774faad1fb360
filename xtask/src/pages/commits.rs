//! Commits: each that a page names is an ancestor of HEAD.
//!
//! Rule: a word of 7 to 40 hexadecimal digits, with a letter and a decimal digit among them, is a commit, in backticks or
//!       not. Words of 16 digits are ids of members and clusters.
//! Knows nothing of: what a commit changed.

use super::Found;
use super::markdown::{Page, Part};
use std::collections::BTreeSet;

/// Digits of the id of a member or cluster.
const ID_DIGITS: usize = 16;

/// The ids of HEAD and all its ancestors, in order.
pub struct History(BTreeSet<String>);

impl History {
    /// Reads the output of `git rev-list`.
    pub fn new(list: &str) -> History {
        History(list.lines().map(str::to_string).collect())
    }

    /// Whether an id begins like this.
    fn has(&self, beginning: &str) -> bool {
        let next = self.0.range(beginning.to_string()..).next();
        next.is_some_and(|id| id.starts_with(beginning))
    }
}

/// Judges the commits of one page; without a history they are only counted.
pub fn judge(page: &Page, history: Option<&History>, found: &mut Found) {
    for (line, word) in page.code.iter().chain(&page.prose).flat_map(commits) {
        found.commits += 1;
        if history.is_some_and(|history| !history.has(word)) {
            found.wrong.push(format!("{}:{line}: commit {word} is not an ancestor of HEAD", page.path));
        }
    }
}

/// The commits that a part names, each with its line.
fn commits(part: &Part) -> impl Iterator<Item = (usize, &str)> {
    let lines = part.text.lines().enumerate();
    lines.flat_map(move |(place, line)| {
        // `0x1f…`, `a6ce8412.bak` and paths are other things than a commit.
        let words = line.split(|c: char| !c.is_alphanumeric() && !"_.…/-".contains(c));
        let words = words.map(|word| word.trim_end_matches(['.', '…']));
        words.filter(|word| is_commit(word)).map(move |word| (part.line + place, word))
    })
}

fn is_commit(word: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (7..=40).contains(&word.len())
        && word.len() != ID_DIGITS
        && word.chars().all(is_hex)
        && word.contains(|c: char| c.is_ascii_digit())
        && word.contains(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, history: Option<&History>) -> (usize, Vec<String>) {
        let mut found = Found::default();
        judge(&Page::parse("a.md", text), history, &mut found);
        (found.commits, found.wrong)
    }

    #[test]
    fn a_commit_that_is_no_ancestor_is_named_with_its_line() {
        let history = History::new("3ba8104aaaa\n68e7dadbbbb\n");
        let good = "commit 3ba8104, the commits after `68e7dad`.\n\n| Date | Commit |\n|---|---|\n| x | 3ba8104, 68e7dad |\n";
        assert_eq!(judged(good, Some(&history)), (4, Vec::new()));
        let bad = "By commit\n3ba8105; `upgrade --from 227c789`.\n\n| 4be3797 |\n";
        let wrong = |line: usize, id: &str| format!("a.md:{line}: commit {id} is not an ancestor of HEAD");
        assert_eq!(
            judged(bad, Some(&history)),
            (3, vec![wrong(2, "227c789"), wrong(2, "3ba8105"), wrong(4, "4be3797")])
        );
    }

    #[test]
    fn ids_numbers_words_and_files_are_no_commits() {
        let others = "a6ce8412d2e28ab7 1048576 defaced 0x1f00a7b 3ba81 3BA8104 3ba8104.bak a/3ba8104 [b](3ba8104)\n\n\
                      ```\n3ba8104\n```\n";
        assert_eq!(judged(others, None), (0, Vec::new()));
    }

    #[test]
    fn without_a_history_commits_are_only_counted() {
        assert_eq!(judged("commit 3ba8104", None), (1, Vec::new()));
    }
}
