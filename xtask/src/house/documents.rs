//! Words in documents.
//!
//! Rule: words are separated by spaces; tables and code count.
//! Knows nothing of: the meaning of words.

use super::table::{Section, columns, grouped, row};
use super::whole::House;
use serde_json::json;

/// A longer document is listed.
const WORDS_MAX: usize = 3_000;

/// The sum, then long documents.
pub fn section(house: &House) -> Section {
    let count = |text: &str| text.split_whitespace().count();
    let mut counts: Vec<(usize, &str)> =
        house.documents.iter().map(|(path, text)| (count(text), path.as_str())).collect();
    counts.sort_by(|a, b| b.cmp(a));
    let all: usize = counts.iter().map(|(words, _)| words).sum();
    let long: Vec<_> = counts.iter().filter(|(words, _)| WORDS_MAX < *words).collect();
    let mut rows = columns(&[
        row([&"documents", &grouped(counts.len())]),
        row([&"of more than 3,000 words", &grouped(long.len())]),
        row([&"words in all", &grouped(all)]),
    ]);
    rows.push(String::new());
    rows.extend(columns(&long.iter().map(|(words, path)| row([&grouped(*words), path])).collect::<Vec<_>>()));
    Section {
        title: "Words in documents (*.md)",
        key: "documents",
        rows,
        totals: json!({"documents": counts.len(), "over_3000_words": long.len(), "words": all}),
    }
}
