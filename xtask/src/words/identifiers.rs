//! Identifiers and file names as sequences of words.
//!
//! Rule: `hand_over`, `HandOver` and `HAND_OVER` are the same two words; a retired word is found only as a whole one.
//! Knows nothing of: which item a name belongs to.

use super::{RETIRED, Retired};
use crate::house::lines::Line;

/// Underscores of a name that is a sentence: the name of a test.
const OF_SENTENCES: usize = 4;

/// Retired words in the code of one file, one line for each place.
pub fn judge(path: &str, lines: &[Line]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        for name in identifiers(&line.code).filter(|name| !is_sentence(name)) {
            if let Some(retired) = find(path, name) {
                wrong.push(format!("{path}:{}: `{name}`: write {}", place + 1, retired.instead));
            }
        }
    }
    wrong
}

/// A retired word in the last name of a path.
pub fn judge_path(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem).replace('-', "_");
    let retired = find(path, &stem)?;
    Some(format!("{path}: a file or folder is named so: write {}", retired.instead))
}

/// The first retired word of a name, in a file with this path.
fn find(path: &str, name: &str) -> Option<&'static Retired> {
    let words = format!("_{}_", words(name).join("_"));
    let is_in = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    RETIRED.iter().find(|retired| {
        let fits = |word: &&str| match retired.is_name {
            true => *word == name,
            false => words.contains(&format!("_{word}_")),
        };
        retired.folders.iter().any(|folder| is_in(folder)) && retired.words.iter().any(fits)
    })
}

/// The identifiers of a line of code.
fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// Whether a name is the sentence of a test.
fn is_sentence(name: &str) -> bool {
    OF_SENTENCES <= name.matches('_').count() && !name.contains(char::is_uppercase)
}

/// The words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let chars: Vec<char> = name.chars().collect();
    let mut is_new = true;
    for (at, &c) in chars.iter().enumerate() {
        if c == '_' {
            is_new = true;
            continue;
        }
        // `HTTPServer` has two words, `PROMISE` one.
        let is_after_lower = at > 0 && !chars[at - 1].is_uppercase();
        let is_before_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        if is_new || c.is_uppercase() && (is_after_lower || is_before_lower) {
            words.push(String::new());
        }
        words.last_mut().expect("one at least").extend(c.to_lowercase());
        is_new = false;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::lines::lines;

    fn judged(path: &str, text: &str) -> Vec<String> {
        judge(path, &lines(text))
    }

    #[test]
    fn names_are_split_at_underscores_and_capitals() {
        let cases = [
            ("hand_over", "hand over"),
            ("HandOver", "hand over"),
            ("HAND_OVER", "hand over"),
            ("HTTPServer2", "http server2"),
            ("_a__b", "a b"),
        ];
        for (name, wanted) in cases {
            assert_eq!(words(name).join(" "), wanted, "{name}");
        }
    }

    #[test]
    fn a_retired_word_is_found_in_every_spelling_and_only_as_a_whole() {
        let cases = [
            ("core/kv/src/a.rs", "fn hand_over_now() {}", Some("`hand_over_now`: write transfer")),
            ("core/kv/src/a.rs", "struct Seat;", Some("`Seat`: write apply executor")),
            ("core/kv/src/a.rs", "const MAX_YARDS: u8 = 0;", Some("`MAX_YARDS`: write sim dirs")),
            ("proof/sim/tests/a.rs", "let greeting = 1;", Some("`greeting`: write handshake")),
            ("core/kv/src/a.rs", "fn shorthand(overs: u8, recommended: u8, seating: u8) {}", None),
            ("shell/wal/src/a.rs", "let is_odd = true;", Some("`is_odd`: write divergent")),
            ("proof/sim/src/a.rs", "let is_odd = true;", None),
            ("core/raft/src/a.rs", "let promise = 1;", Some("`promise`: write vote hold")),
            ("core/rafts/src/a.rs", "let promise = 1;", None),
            ("core/kv/src/a.rs", "struct Leadership;", Some("`Leadership`: write LeadershipConfig")),
            ("core/kv/src/a.rs", "let leadership: LeadershipConfig;", None),
        ];
        for (path, text, wanted) in cases {
            let found = judged(path, text);
            let fits = match wanted {
                Some(wanted) => found.len() == 1 && found[0].starts_with(&format!("{path}:1: {wanted}")),
                None => found.is_empty(),
            };
            assert!(fits, "{text}: {found:?}");
        }
    }

    #[test]
    fn strings_comments_and_names_of_tests_are_free() {
        let text = "// a seat\nlet a = \"a seat\"; /* a seat */\nfn a_seat_is_taken_by_one() {}\n";
        assert_eq!(judged("core/kv/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn files_and_folders_have_names_too() {
        let name = |path| judge_path(path).is_some();
        assert!(
            name("core/raft/src/hearing.rs") && name("proof/bugs/src/scenes") && name("kattu/a-seat.txt")
        );
        assert!(!name("core/raft/src/scenarios/a.rs") && !name("proof/scenes/a.rs"));
    }
}
