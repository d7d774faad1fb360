//! The rows of docs/published.md: one for each row of the published works that the page compares with Kattu.
//!
//! Rule: each number of [`ROWS`] has one row, with five cells, a known status, and a link in the last cell. Whether the link
//!       leads anywhere is the affair of links.
//! Knows nothing of: the works.

use super::markdown::Page;
use std::ops::RangeInclusive;

/// The rows of the works that have been begun. They grow with the lab.
const ROWS: [RangeInclusive<u32>; 5] = [1..=51, 57..=57, 59..=62, 63..=87, 171..=202];
const STATUSES: [&str; 4] = ["built", "measured", "refuted", "open"];

/// What is wrong with the rows of the page, one line each.
pub fn judge(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for row in &page.rows {
        let cells: Vec<&str> = row.text.trim().trim_matches('|').split('|').map(str::trim).collect();
        let Some(number) = cells.first().and_then(|cell| cell.parse::<u32>().ok()) else { continue };
        let mut complain =
            |what: String| wrong.push(format!("{}:{}: row {number} {what}", page.path, row.line));
        if !ROWS.iter().any(|rows| rows.contains(&number)) {
            complain("is of no work on this page".to_string());
        }
        if seen.contains(&number) {
            complain("is there twice".to_string());
        }
        seen.push(number);
        match cells[..] {
            [_, _, _, status, link] => {
                if !STATUSES.contains(&status) {
                    complain(format!("has the status {status:?}; there are {}", STATUSES.join(", ")));
                }
                if !link.contains("](") {
                    complain("has no link in its last cell".to_string());
                }
            }
            _ => complain(format!("has {} cells, not 5", cells.len())),
        }
    }
    let missing = ROWS.into_iter().flatten().filter(|number| !seen.contains(number));
    wrong.extend(missing.map(|number| format!("{}: there is no row {number}", page.path)));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(change: impl Fn(u32) -> String) -> Vec<String> {
        let rows: String = ROWS.into_iter().flatten().map(change).collect();
        judge(&Page::parse(
            "p.md",
            &format!("# Page\n\n| Row | a | b | c | d |\n|---|---|---|---|---|\n{rows}"),
        ))
    }

    fn row(number: u32) -> String {
        format!("| {number} | a | b | built | [c](d.md) |\n")
    }

    #[test]
    fn each_row_is_there_once_with_a_status_and_a_link() {
        assert_eq!(judged(row), Vec::<String>::new());
        let without = judged(|number| if number == 70 { String::new() } else { row(number) });
        assert_eq!(without, ["p.md: there is no row 70"]);
        let twice = judged(|number| if number == 70 { row(70) + &row(70) } else { row(number) });
        assert_eq!(twice, ["p.md:69: row 70 is there twice"]);
        let strange = judged(|number| match number {
            70 => "| 70 | a | b | done | [c](d.md) |\n".to_string(),
            71 => "| 71 | a | b | open | c |\n".to_string(),
            72 => "| 72 | a | b |\n".to_string(),
            87 => row(87) + &row(90),
            number => row(number),
        });
        assert_eq!(strange.len(), 4, "{strange:?}");
    }
}
