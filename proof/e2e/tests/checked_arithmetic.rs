//! The binary that people run stops where arithmetic overflows: the words with which it would are in it. [decision 42]

use kattu_e2e::kattu;

#[test]
fn arithmetic_of_the_binary_is_checked() {
    let path = kattu();
    let binary = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let says = |words: &str| binary.windows(words.len()).any(|window| window == words.as_bytes());
    // The search finds what is there.
    assert!(says("initial-cluster-token"), "{} names none of its own flags", path.display());
    for act in ["add", "subtract", "multiply"] {
        let words = format!("attempt to {act} with overflow");
        assert!(says(&words), "{} has no check that says `{words}`", path.display());
    }
}
