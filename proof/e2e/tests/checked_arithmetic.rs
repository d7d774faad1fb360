//! The release binary panics on arithmetic overflow: it contains the messages of those panics. [decision 42]

use kattu_rig::kattu;

#[test]
fn arithmetic_of_the_binary_is_checked() {
    let path = kattu();
    let binary = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let says = |words: &str| binary.windows(words.len()).any(|window| window == words.as_bytes());
    // A control: the search finds a text that is there.
    assert!(says("initial-cluster-token"), "{} names none of its own flags", path.display());
    for act in ["add", "subtract", "multiply"] {
        let words = format!("attempt to {act} with overflow");
        assert!(says(&words), "{} has no check that says `{words}`", path.display());
    }
}
