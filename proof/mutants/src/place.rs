//! Place: writes the wrong code of all mutants of one file beside the right code, with a choice at run time.
//!
//! ```text
//!  right:   granted && log_complete
//!  copy:    (if kattu_plant::is(17) { granted } else { granted && log_complete })
//! ```
//! Rules: 1. The text of an edit occurs exactly once in its file, or in the block that it names.
//!        2. Two edits may have the same text, or one text may hold the other; texts that overlap otherwise are
//!           refused.
//!        3. A text that ends with a semicolon or a brace is a list of statements: it binds no name that is used after
//!           it.
//! Knows nothing of: the source of mutants, trees of files.

use crate::Edit;
use crate::text::Squeezed;
use core::fmt::Write;
use core::ops::Range;

/// The wrong code of one mutant at one place.
#[derive(Debug)]
struct Span<'a> {
    range: Range<usize>,
    number: usize,
    instead: &'a str,
}

/// The file with all its edits, each with the number of its mutant.
///
/// # Errors
/// Each edit that cannot be placed, with the reason.
pub fn place(original: &str, edits: &[(usize, &Edit)]) -> Result<String, Vec<String>> {
    let squeezed = Squeezed::new(original);
    let (mut spans, mut wrong, mut added) = (Vec::new(), Vec::new(), String::new());
    for &(number, edit) in edits {
        if edit.text.trim().is_empty() {
            let _ = write!(added, "\n{}\n", edit.instead);
            continue;
        }
        match find(&squeezed, original, edit) {
            Ok(range) => spans.push(Span { range, number, instead: edit.instead.trim() }),
            Err(why) => wrong.push(why),
        }
    }
    // Outer texts first; those with the same text stay in their order.
    spans.sort_by_key(|span| (span.range.start, core::cmp::Reverse(span.range.end)));
    for (at, span) in spans.iter().enumerate() {
        let crosses = |other: &&Span<'_>| {
            other.range.start < span.range.end
                && span.range.end < other.range.end
                && span.range.start < other.range.start
        };
        if let Some(other) = spans[at + 1..].iter().find(crosses) {
            let text = &original[other.range.clone()];
            wrong.push(format!("`{}` overlaps with the text of another edit", one_line(text)));
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut out = String::new();
    render(original, 0..original.len(), &spans, &mut out);
    Ok(out + &added)
}

fn find(squeezed: &Squeezed, original: &str, edit: &Edit) -> Result<Range<usize>, String> {
    let within = match &edit.within {
        Some(header) => squeezed.block(original, header)?,
        None => 0..original.len(),
    };
    let found = squeezed.find(original, &edit.text, &within);
    match found.as_slice() {
        [range] => Ok(range.clone()),
        found => Err(format!("`{}` occurs {} times", one_line(&edit.text), found.len())),
    }
}

/// Writes one range of the original; `spans` are those within it.
fn render(original: &str, range: Range<usize>, spans: &[Span<'_>], out: &mut String) {
    let mut at = range.start;
    let mut rest = spans;
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|span| span.range == first.range).count();
        let inside = rest[same..].iter().take_while(|span| span.range.end <= first.range.end).count();
        out.push_str(&original[at..first.range.start]);
        let text = original[first.range.clone()].trim_end();
        let is_statements = text.ends_with([';', '}']);
        out.push_str(if is_statements { "" } else { "(" });
        for span in &rest[..same] {
            let _ = write!(out, "if kattu_plant::is({}) {{ {} }} else ", span.number, span.instead);
        }
        out.push_str("{ ");
        render(original, first.range.clone(), &rest[same..same + inside], out);
        out.push_str(if is_statements { " }" } else { " })" });
        at = first.range.end;
        rest = &rest[same + inside..];
    }
    out.push_str(&original[at..range.end]);
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, instead: &str) -> Edit {
        Edit { file: "f.rs".into(), within: None, text: text.into(), instead: instead.into() }
    }

    #[test]
    fn a_choice_stands_where_the_text_stood() {
        let (one, two, three) = (edit("a && b", "a"), edit("a && b", "b"), edit("stop();", ""));
        let placed =
            place("let x = a && b; stop();", &[(1, &one), (2, &two), (3, &three)]).expect("they fit");
        assert_eq!(
            placed,
            "let x = (if kattu_plant::is(1) { a } else if kattu_plant::is(2) { b } else { a && b }); \
             if kattu_plant::is(3) {  } else { stop(); }"
        );
    }

    #[test]
    fn a_text_within_another_one_is_changed_where_that_one_is_right() {
        let (outer, inner) = (edit("a && b", "true"), edit("b", "!b"));
        let placed = place("a && b", &[(2, &inner), (1, &outer)]).expect("they fit");
        assert_eq!(
            placed,
            "(if kattu_plant::is(1) { true } else { a && (if kattu_plant::is(2) { !b } else { b }) })"
        );
    }

    #[test]
    fn what_stands_never_or_twice_or_crosses_is_refused() {
        let refused = |edits: &[Edit]| {
            let numbered: Vec<_> = edits.iter().map(|edit| (1, edit)).collect();
            place("fn f() { a + b + a }\nfn g() { a * c }", &numbered)
                .expect_err("it cannot be placed")
                .join("; ")
        };
        assert!(refused(&[edit("d", "e")]).contains("occurs 0 times"));
        assert!(refused(&[edit("a", "e")]).contains("occurs 3 times"));
        assert!(refused(&[edit("a + b", "e"), edit("b + a", "e")]).contains("overlaps"));
        let within = Edit { within: Some("fn g".into()), ..edit("a", "e") };
        assert!(place("fn f() { a }\nfn g() { a * c }", &[(1, &within)]).is_ok());
    }

    #[test]
    fn a_text_that_is_empty_adds_to_the_end() {
        let placed = place("fn f() {}\n", &[(1, &edit("", "fn wrong() {}"))]).expect("it fits");
        assert_eq!(placed, "fn f() {}\n\nfn wrong() {}\n");
    }
}
