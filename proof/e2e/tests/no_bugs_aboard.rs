//! The release binary holds no planted bug: none of their names is in it. [docs/planted-bugs.md]

use kattu_rig::kattu;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Names are sought by their first bytes, all in one pass: a pass for each takes seconds.
const HEAD: usize = 8;

/// Those of the names that are in the file.
fn found<'a>(path: &Path, names: &[&'a str]) -> Vec<&'a str> {
    let binary = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut by_head: HashMap<&[u8], Vec<&str>> = HashMap::new();
    for name in names {
        by_head.entry(&name.as_bytes()[..HEAD]).or_default().push(name);
    }
    let mut found = BTreeSet::new();
    for (at, head) in binary.windows(HEAD).enumerate() {
        let begun = by_head.get(head).into_iter().flatten();
        found.extend(begun.filter(|name| binary[at..].starts_with(name.as_bytes())));
    }
    found.into_iter().collect()
}

#[test]
fn no_name_of_a_planted_bug_is_in_the_binary() {
    let path = kattu();
    // A control: the search finds a text that is there.
    const FLAG: &str = "initial-cluster-token";
    let names: Vec<&str> = kattu_mutants::BUGS.iter().map(|bug| bug.name).chain([FLAG]).collect();
    assert!(100 < names.len(), "there are names to look for");
    assert_eq!(found(&path, &names), [FLAG], "{}: built with bugs, or not ours", path.display());
}

#[test]
fn names_are_found_where_they_are() {
    const NAMES: [&str; 2] = ["a-name-as-long-as-those-of-planted-bugs", "a-name-as-short-as-it-gets"];
    let own = std::env::current_exe().expect("a test has a binary");
    let mut never = NAMES[0].to_string();
    never.replace_range(9.., "which-is-made-while-this-runs");
    assert_eq!(found(&own, &[NAMES[0], &never, NAMES[1]]), NAMES);
}
