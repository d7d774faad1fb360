//! The binary that people run holds no planted bug: not one of their names is in it. [docs/planted-bugs.md]

use kattu_e2e::kattu;

fn holds(binary: &[u8], text: &str) -> bool {
    binary.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_name_of_a_planted_bug_is_in_the_binary() {
    let path = kattu();
    let binary = std::fs::read(&path).expect("the binary can be read");
    // The search finds what is there.
    assert!(holds(&binary, "initial-cluster-token"), "{} names none of its own flags", path.display());
    let aboard: Vec<&str> =
        kattu_plant::BUGS.iter().map(|bug| bug.name).filter(|name| holds(&binary, name)).collect();
    assert!(aboard.is_empty(), "{} was built with bugs: {aboard:?}", path.display());
}

#[test]
fn names_are_found_where_they_are() {
    // This test knows the table, so its own binary holds every name: the same search must find them.
    let own = std::fs::read(std::env::current_exe().expect("a test has a binary")).expect("it can be read");
    for bug in &kattu_plant::BUGS {
        assert!(holds(&own, bug.name), "{}", bug.name);
    }
}
