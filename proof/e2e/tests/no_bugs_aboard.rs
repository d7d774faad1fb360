//! The binary that people run holds no planted bug: not one of their names is in it. [docs/planted-bugs.md]

use kattu_e2e::kattu;
use std::path::Path;

/// What is in it, as text: whatever is none becomes a character that no name has.
fn text_of(path: &Path) -> String {
    let binary = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&binary).into_owned()
}

#[test]
fn no_name_of_a_planted_bug_is_in_the_binary() {
    let path = kattu();
    let binary = text_of(&path);
    // The search finds what is there.
    assert!(binary.contains("initial-cluster-token"), "{} names none of its own flags", path.display());
    let aboard: Vec<&str> =
        kattu_mutants::BUGS.iter().map(|bug| bug.name).filter(|name| binary.contains(name)).collect();
    assert!(aboard.is_empty(), "{} was built with bugs: {aboard:?}", path.display());
}

#[test]
fn names_are_found_where_they_are() {
    // This test knows the table, so its own binary holds every name: the same search must find them.
    let own = text_of(&std::env::current_exe().expect("a test has a binary"));
    for bug in kattu_mutants::BUGS.iter() {
        assert!(own.contains(bug.name), "{}", bug.name);
    }
}
