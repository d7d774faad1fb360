//! Comments: the number of lines, and of those whose subject is a person instead of a thing.
//!
//! Rule: a line is a comment if it holds nothing else; comments behind code are counted apart, and are not searched.
//!       First words of a line are compared with regard to case, words anywhere in it without.
//! Knows nothing of: the meaning of comments.

use super::table::{Section, columns, grouped, row};
use super::whole::House;
use serde_json::json;

/// Words at the beginning of a line.
const OPENINGS: &[&str] = &["Who", "Whoever", "What", "Nobody", "Somebody"];
/// Words anywhere in a line.
const PERSONS: &[&str] = &["who", "whoever", "nobody", "somebody", "everybody"];

/// Counts the lines.
pub fn section(house: &House) -> Section {
    let lines = || house.files.iter().flat_map(|file| &file.lines);
    let alone: Vec<&str> =
        lines().filter(|line| line.is_comment()).filter_map(|line| line.comment.as_deref()).collect();
    let behind_code = lines().filter(|line| line.is_code() && line.comment.is_some()).count();
    let opened: Vec<(&str, usize)> = OPENINGS
        .iter()
        .map(|word| (*word, alone.iter().filter(|text| opening(text) == *word).count()))
        .collect();
    let all_opened: usize = opened.iter().map(|(_, count)| count).sum();
    let with_person = alone.iter().filter(|text| has_person(text)).count();

    let mut rows = vec![
        row([&"lines that are comments", &grouped(alone.len())]),
        row([&"begin with Who, Whoever, What, Nobody, Somebody", &grouped(all_opened)]),
    ];
    rows.extend(opened.iter().map(|(word, count)| row([&format!("  {word}"), &grouped(*count)])));
    rows.push(row([&"contain who, whoever, nobody, somebody, everybody", &grouped(with_person)]));
    rows.push(row([&"comments behind code, not searched", &grouped(behind_code)]));
    Section {
        title: "Comments and documentation in Rust files",
        key: "comments",
        rows: columns(&rows),
        totals: json!({
            "lines": alone.len(),
            "begin_with_a_person_or_what": all_opened,
            "contain_a_person": with_person,
            "behind_code": behind_code,
        }),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The first word of a line; empty if it begins with anything else.
fn opening(text: &str) -> &str {
    words(text).next().unwrap_or("")
}

fn has_person(text: &str) -> bool {
    words(text).any(|word| PERSONS.iter().any(|person| person.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_a_whole_word() {
        let cases = [
            ("Who asks.", "Who"),
            ("Whose it is.", "Whose"),
            ("`Who` asks.", ""),
            ("what is", "what"),
            ("", ""),
        ];
        for (text, wanted) in cases {
            assert_eq!(opening(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_person_is_a_whole_word_in_any_case() {
        let cases = [
            ("the member who leads", true),
            ("Nobody leads", true),
            ("whose turn, whole log, anybody", false),
            ("who's next", true),
            ("", false),
        ];
        for (text, wanted) in cases {
            assert_eq!(has_person(text), wanted, "{text}");
        }
    }
}
