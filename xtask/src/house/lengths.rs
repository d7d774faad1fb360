//! Long files.
//!
//! Rule: a file's length is that of its production code: all lines before the modules of tests at its end. Of a file of
//!       tests all lines count, and it is listed apart.
//! Knows nothing of: the purpose of a file.

use super::files::{File, ROOMS, marks_test, span_of};
use super::table::{Section, columns, row};
use super::whole::House;
use serde_json::{Map, Value, json};

/// A longer file is listed.
const LINES_MAX: usize = 500;

/// Lists them, by first folder.
pub fn section(house: &House) -> Section {
    let mut rows = vec![row([&"room", &"files", &"above"])];
    let mut lists = Vec::new();
    let mut totals = Map::new();
    for room in ROOMS.iter().copied().chain(["tests"]) {
        let is_in = |file: &&File| if file.is_test { room == "tests" } else { house.room(file) == room };
        let files: Vec<&File> = house.files.iter().filter(is_in).collect();
        let lengths = files.iter().map(|file| (length(file), file.path.as_str()));
        let mut long: Vec<(usize, &str)> = lengths.filter(|(length, _)| LINES_MAX < *length).collect();
        long.sort_by(|a, b| b.cmp(a));
        rows.push(row([&room, &files.len(), &long.len()]));
        totals.insert(room.to_string(), json!(long.len()));
        lists.extend(long.iter().map(|(length, path)| row([&room, length, path])));
    }
    let all = lists.iter().filter(|list| list[0] != "tests").count();
    rows.push(row([&"all but tests", &house.files.iter().filter(|file| !file.is_test).count(), &all]));
    totals.insert("all_but_tests".to_string(), json!(all));
    let mut rows = columns(&rows);
    rows.push(String::new());
    rows.extend(columns(&lists));
    Section {
        title: "Files of more than 500 lines (production code: before the tests at the end; files of tests apart)",
        key: "files_over_500_lines",
        rows,
        totals: Value::Object(totals),
    }
}

fn length(file: &File) -> usize {
    if file.is_test { file.text.lines().count() } else { production_lines(&file.text, &file.tree) }
}

/// Lines before the modules of tests at the end; trailing empty lines do not count.
fn production_lines(text: &str, tree: &syn::File) -> usize {
    let is_tests =
        |item: &&syn::Item| matches!(item, syn::Item::Mod(item) if item.attrs.iter().any(marks_test));
    let first_of_tests = tree.items.iter().rev().take_while(is_tests).last();
    let before = match first_of_tests {
        Some(tests) => span_of(tests).start() - 1,
        None => text.lines().count(),
    };
    let is_filled = |line: &str| !line.trim().is_empty();
    text.lines().take(before).enumerate().filter(|(_, line)| is_filled(line)).last().map_or(0, |(i, _)| i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> usize {
        production_lines(text, &syn::parse_file(text).expect("Rust"))
    }

    #[test]
    fn production_code_ends_where_the_tests_begin() {
        let tests = "#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let cases = [
            ("//! Header.\n\nfn a() {}\n".to_string(), 3),
            (format!("fn a() {{}}\n\n{tests}"), 1),
            (format!("fn a() {{}}\n\n/// Doc.\n{tests}\n{}", tests.replace("tests", "more")), 1),
            ("fn a() {}\n\n#[cfg(test)]\nmod tests;\n".to_string(), 1),
            // Tests in the midst of a file do not end it.
            (format!("{tests}fn a() {{}}\n"), 5),
            ("fn a() {}\n\nmod tests {\n}\n".to_string(), 4),
            ("fn a() {}\n\n#[cfg(test)]\nfn b() {}\n".to_string(), 4),
            (tests.to_string(), 0),
        ];
        for (text, wanted) in cases {
            assert_eq!(lines_of(&text), wanted, "{text}");
        }
    }
}
