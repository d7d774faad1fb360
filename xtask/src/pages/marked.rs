//! Marked: parts of pages that are made from data, between two marks.
//!
//! In:   a page with the marks `NAME: begin` and `NAME: end`, and the text for between them.
//! Out:  the page with that text; whether it differs.
//! Knows nothing of: how the text is made.

use super::campaigns;
use crate::commands;
use crate::shell::{self, Failure};

/// A part of a page.
struct Part {
    page: &'static str,
    /// The name in its marks.
    name: &'static str,
    /// The file or module that the text is made from.
    source: &'static str,
    text: fn() -> Result<String, Failure>,
}

const PARTS: [Part; 3] = [
    Part { page: "CONTRIBUTING.md", name: "commands", source: TABLE, text: || Ok(commands::short()) },
    Part { page: "docs/testing.md", name: "commands", source: TABLE, text: || Ok(commands::long()) },
    Part { page: campaigns::PAGE, name: "campaigns", source: campaigns::DATA, text: campaigns::table },
];

const TABLE: &str = "xtask/src/commands/table.rs";

/// The page with this text between the marks of this name, and the line of the first mark; `None` if a mark is missing.
fn filled(page: &str, name: &str, text: &str) -> Option<(String, usize)> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some((format!("{before}{begin}\n{text}{end}{after}"), before.lines().count() + 1))
}

/// One line for each part that differs from its source, or whose source or marks are wrong.
pub fn stale() -> Result<Vec<String>, Failure> {
    let mut wrong = Vec::new();
    for Part { page: path, name, source, text } in PARTS {
        let page = std::fs::read_to_string(shell::root().join(path))?;
        match text().map(|text| filled(&page, name, &text)) {
            Ok(Some((filled, _))) if filled == page => {}
            Ok(Some((_, line))) => {
                wrong.push(format!(
                    "{path}:{line}: the table of {name} differs from {source}; run cargo xtask fix"
                ));
            }
            Ok(None) => {
                wrong.push(format!("{path}: the marks `{name}: begin` and `{name}: end` are missing"))
            }
            Err(failure) => wrong.push(failure.to_string()),
        }
    }
    Ok(wrong)
}

/// Writes the parts anew; returns the pages that have changed, with the part.
pub fn rewrite() -> Result<Vec<String>, Failure> {
    let mut changed = Vec::new();
    for part in PARTS {
        let file = shell::root().join(part.page);
        let page = std::fs::read_to_string(&file)?;
        if let Some((filled, _)) = filled(&page, part.name, &(part.text)()?)
            && filled != page
        {
            std::fs::write(file, filled)?;
            changed.push(format!("{}: the table of {}", part.page, part.name));
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_replaces_what_is_between_the_marks_and_nothing_else() {
        let (begin, end) = ("<!-- two: begin -->", "<!-- two: end -->");
        let page = format!("one\n\n{begin}\nold\n{end}\ntwo\n");
        let (new, line) = filled(&page, "two", "new\n").expect("marked");
        assert_eq!((new.as_str(), line), (&*format!("one\n\n{begin}\nnew\n{end}\ntwo\n"), 3));
        assert_eq!(filled(&new, "two", "new\n"), Some((new.clone(), 3)));
        assert_eq!(filled("one\n", "two", "new\n"), None);
        assert_eq!(filled(&page, "three", "new\n"), None);
    }
}
