//! The release binary holds no planted bug: none of their names is in it. [docs/planted-bugs.md]

use kattu_rig::kattu;
use std::path::Path;

/// The binary as text: bytes that are no text become a character that is in no name.
fn text_of(path: &Path) -> String {
    let binary = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&binary).into_owned()
}

#[test]
fn no_name_of_a_planted_bug_is_in_the_binary() {
    let path = kattu();
    let binary = text_of(&path);
    // A control: the search finds a text that is there.
    assert!(binary.contains("initial-cluster-token"), "{} names none of its own flags", path.display());
    let aboard: Vec<&str> =
        kattu_mutants::BUGS.iter().map(|bug| bug.name).filter(|name| binary.contains(name)).collect();
    assert!(aboard.is_empty(), "{} was built with bugs: {aboard:?}", path.display());
}

#[test]
fn names_are_found_where_they_are() {
    const NAME: &str = "a-name-as-long-as-those-of-planted-bugs";
    let own = text_of(&std::env::current_exe().expect("a test has a binary"));
    assert!(own.contains(NAME), "the same search must find a name that is in a binary");
    assert!(100 < kattu_mutants::BUGS.len(), "there are names to look for");
}
