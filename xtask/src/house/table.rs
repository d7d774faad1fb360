//! The printed table: a title for each number, and columns of text, words to the left and numbers to the right.
//!
//! Knows nothing of: the contents of the columns.

use serde_json::Value;

/// A number with its title and its table.
pub struct Section {
    /// The things that are counted, and how.
    pub title: &'static str,
    /// The key of the totals in JSON.
    pub key: &'static str,
    /// The lines below the title: totals first, then lists.
    pub rows: Vec<String>,
    /// The totals, for `--json`.
    pub totals: Value,
}

/// Rows of equal length become lines of equal columns.
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    // The first row may be a heading: a column of numbers is recognized by the rows below.
    let is_number =
        |cell: &str| !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit() || ".,–".contains(c));
    let is_right = |column: usize| {
        rows.iter().skip(1).filter_map(|row| row.get(column)).any(|cell| is_number(cell))
            || rows.len() == 1 && rows[0].get(column).is_some_and(|cell| is_number(cell))
    };
    let rights: Vec<bool> = (0..count).map(is_right).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| match rights[column] {
            true => format!("{cell:>width$}", width = widths[column]),
            false => format!("{cell:<width$}", width = widths[column]),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

/// A row of cells.
pub fn row<const N: usize>(cells: [&dyn std::fmt::Display; N]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

/// 12345 as 12,345.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let rows = [row([&"crate", &"lines"]), row([&"kattu-kv", &grouped(12_345)]), row([&"xtask", &7])];
        assert_eq!(columns(&rows), ["crate      lines", "kattu-kv  12,345", "xtask          7"]);
    }

    #[test]
    fn thousands_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
