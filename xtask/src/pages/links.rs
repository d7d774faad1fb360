//! Links: each leads to a file of the repository, and to a heading where it names one.
//!
//! Rule: anchors are made as GitHub makes them: lower case, punctuation left out, spaces to hyphens, `-1`, `-2` behind one
//!       that is there already. Links to other hosts are not followed.
//! Knows nothing of: what is written at the target.

use super::Found;
use super::markdown::Page;
use super::paths::Tree;
use std::collections::{HashMap, HashSet};

/// Judges the links of one page.
pub fn judge(page: &Page, pages: &[Page], tree: &Tree, found: &mut Found) {
    for link in &page.links {
        if link.text.contains("://") || link.text.starts_with("mailto:") {
            continue;
        }
        found.links += 1;
        if let Some(complaint) = complaint(page, &link.text, pages, tree) {
            found.wrong.push(format!("{}:{}: link `{}`: {complaint}", page.path, link.line, link.text));
        }
    }
}

/// What is wrong with a link.
fn complaint(page: &Page, link: &str, pages: &[Page], tree: &Tree) -> Option<String> {
    let (target, anchor) = match link.split_once('#') {
        Some((target, anchor)) => (target, Some(anchor)),
        None => (link, None),
    };
    let path = if target.is_empty() { page.path.clone() } else { resolved(&page.path, target) };
    if !tree.has(&path) {
        return Some(format!("there is no `{path}`"));
    }
    let anchor = anchor?;
    // Only headings of pages have anchors that are known here.
    let aim = pages.iter().find(|page| page.path == path)?;
    (!anchors(aim).contains(anchor)).then(|| format!("no heading of {path} has the anchor `{anchor}`"))
}

/// The path from the root to which a target on this page leads.
fn resolved(page: &str, target: &str) -> String {
    let from_root = target.strip_prefix('/');
    let mut parts: Vec<&str> = match from_root {
        Some(_) => Vec::new(),
        None => page.split('/').collect(),
    };
    parts.pop();
    for part in from_root.unwrap_or(target).split('/') {
        match part {
            ".." if parts.pop().is_none() => return target.to_string(),
            "." | "" | ".." => {}
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings.
fn anchors(page: &Page) -> HashSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut anchors = HashSet::new();
    for heading in &page.headings {
        let anchor = anchor(&heading.text);
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// The anchor of a heading that is the first of its text.
fn anchor(heading: &str) -> String {
    let mut text = heading.to_string();
    // Of a link only the text is shown.
    while let Some(end) = text.find("](") {
        let Some(length) = text[end..].find(')') else { break };
        text.replace_range(end..=end + length, "");
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(path: &str, text: &str, others: &[(&str, &str)]) -> Vec<String> {
        let mut pages = vec![Page::parse(path, text)];
        pages.extend(others.iter().map(|(path, text)| Page::parse(path, text)));
        let tree = Tree::new(pages.iter().map(|page| page.path.as_str()).chain(["core/kv/src/lib.rs"]));
        let mut found = Found::default();
        judge(&pages[0], &pages, &tree, &mut found);
        found.wrong
    }

    #[test]
    fn anchors_are_made_as_github_makes_them() {
        let cases = [
            ("Damaged disks", "damaged-disks"),
            ("1. What we promise", "1-what-we-promise"),
            ("`kattu sim`, a program — of its own", "kattu-sim-a-program--of-its-own"),
            ("P1–P18: [guarantees](a.md) of_it", "p1p18-guarantees-of_it"),
            ("Größe", "größe"),
        ];
        for (heading, wanted) in cases {
            assert_eq!(anchor(heading), wanted, "{heading}");
        }
    }

    #[test]
    fn a_heading_that_is_there_twice_has_a_number() {
        let page = Page::parse("a.md", "# One\n## One\n## Two\n# One\n");
        let wanted = ["one", "one-1", "one-2", "two"].map(str::to_string);
        assert_eq!(anchors(&page), HashSet::from(wanted));
    }

    #[test]
    fn a_link_is_resolved_from_the_folder_of_its_page() {
        let others = [("README.md", "# A first look\n"), ("docs/walks/read.md", "# Read\n")];
        let good = "[a](../README.md#a-first-look) [b](walks/read.md) [c](walks/) [d](../core/kv/src/lib.rs)\n\
                    [e](https://example.com/none) [f](#here) [g](/README.md)\n\n# Here\n";
        assert_eq!(wrong("docs/a.md", good, &others), Vec::<String>::new());
        let bad = "[a](README.md)\n[b](../README.md#second)\n[c](#nowhere)\n[d](../../README.md)\n";
        assert_eq!(
            wrong("docs/a.md", bad, &others),
            [
                "docs/a.md:1: link `README.md`: there is no `docs/README.md`",
                "docs/a.md:2: link `../README.md#second`: no heading of README.md has the anchor `second`",
                "docs/a.md:3: link `#nowhere`: no heading of docs/a.md has the anchor `nowhere`",
                "docs/a.md:4: link `../../README.md`: there is no `../../README.md`",
            ]
        );
    }
}
