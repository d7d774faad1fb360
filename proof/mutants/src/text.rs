//! Text: finds a piece of code in a file, however the formatter has wrapped it.
//!
//! Both sides are compared without white space, comments and commas before a closing bracket. A match begins and ends
//! at the borders of words, and is given as a range of bytes of the file.
//! Knows nothing of: mutants, the meaning of code.

use core::ops::Range;

/// A text without what the formatter may change.
pub(crate) struct Squeezed {
    text: Vec<u8>,
    /// The offset of each byte in the original.
    at: Vec<usize>,
}

impl Squeezed {
    /// Squeezes a text.
    #[must_use]
    pub fn new(original: &str) -> Squeezed {
        let bytes = original.as_bytes();
        let (mut text, mut at) = (Vec::new(), Vec::new());
        let mut i = 0;
        while i < bytes.len() {
            let end = match bytes[i] {
                b'/' if bytes[i..].starts_with(b"//") => {
                    i += bytes[i..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - i);
                    continue;
                }
                b'"' => end_of_string(bytes, i),
                b'\'' => end_of_char(bytes, i),
                byte if byte.is_ascii_whitespace() => {
                    i += 1;
                    continue;
                }
                _ => i + 1,
            };
            if matches!(bytes[i], b')' | b']' | b'}') && text.last() == Some(&b',') {
                text.pop();
                at.pop();
            }
            text.extend_from_slice(&bytes[i..end]);
            at.extend(i..end);
            i = end;
        }
        Squeezed { text, at }
    }

    /// The ranges of the original that hold `wanted`, within the given range.
    #[must_use]
    pub fn find(&self, original: &str, wanted: &str, within: &Range<usize>) -> Vec<Range<usize>> {
        let wanted = Squeezed::new(wanted).text;
        let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else { return Vec::new() };
        let bytes = original.as_bytes();
        let is_word = |at: Option<&u8>| at.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let mut found = Vec::new();
        for start in 0..self.text.len().saturating_sub(wanted.len() - 1) {
            if self.text[start..start + wanted.len()] != wanted[..] {
                continue;
            }
            let range = self.at[start]..self.at[start + wanted.len() - 1] + 1;
            let inside = within.start <= range.start && range.end <= within.end;
            let before = range.start.checked_sub(1).and_then(|at| bytes.get(at));
            let cuts_a_word = is_word(Some(&first)) && is_word(before)
                || is_word(Some(&last)) && is_word(bytes.get(range.end));
            if inside && !cuts_a_word {
                found.push(range);
            }
        }
        found
    }

    /// The range of the original from `header` to the bracket that closes the first brace after it.
    ///
    /// # Errors
    /// If the header does not occur exactly once, or no bracket closes it.
    pub fn block(&self, original: &str, header: &str) -> Result<Range<usize>, String> {
        let found = self.find(original, header, &(0..original.len()));
        let [range] = found.as_slice() else {
            return Err(format!("`{header}` occurs {} times", found.len()));
        };
        let bytes = original.as_bytes();
        let (mut depth, mut i) = (0_usize, range.end);
        while i < bytes.len() {
            match bytes[i] {
                b'/' if bytes[i..].starts_with(b"//") => {
                    i += bytes[i..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - i);
                    continue;
                }
                b'"' => {
                    i = end_of_string(bytes, i);
                    continue;
                }
                b'\'' => {
                    i = end_of_char(bytes, i);
                    continue;
                }
                b'{' => depth += 1,
                b'}' if depth == 1 => return Ok(range.start..i + 1),
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            i += 1;
        }
        Err(format!("no bracket closes `{header}`"))
    }
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut i = start + 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

/// A character, such as `'{'`; of a lifetime only the tick is passed.
fn end_of_char(bytes: &[u8], start: usize) -> usize {
    match (bytes.get(start + 1), bytes.get(start + 2)) {
        (Some(b'\\'), _) => {
            let rest = bytes[start + 3..].iter().position(|&byte| byte == b'\'');
            rest.map_or(bytes.len(), |at| start + 3 + at + 1)
        }
        (_, Some(b'\'')) => start + 3,
        _ => start + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, wanted: &str) -> Vec<String> {
        let ranges = Squeezed::new(text).find(text, wanted, &(0..text.len()));
        ranges.into_iter().map(|range| text[range].to_string()).collect()
    }

    #[test]
    fn a_piece_is_found_however_it_is_wrapped() {
        let text = "let free = self.vote.is_none() // why\n    && call(\n        one,\n        two,\n    );";
        let wanted = "self.vote.is_none() && call(one, two)";
        assert_eq!(find(text, wanted).len(), 1);
        assert!(find(text, wanted)[0].ends_with("    )"));
        assert_eq!(find(text, "vote.is_some()"), Vec::<String>::new());
    }

    #[test]
    fn words_are_not_cut() {
        assert_eq!(find("bulk + bulk_max + a.bulk", "bulk").len(), 2);
        assert_eq!(find("x <= y && x < y", "x < y").len(), 1);
    }

    #[test]
    fn what_stands_in_strings_and_characters_closes_nothing() {
        let text = "fn a() { '}'; \"}\"; // }\n b() }\nfn b<'a>() { x }";
        let squeezed = Squeezed::new(text);
        assert_eq!(&text[squeezed.block(text, "fn b<'a>").expect("it is there")], "fn b<'a>() { x }");
        assert!(text[squeezed.block(text, "fn a").expect("it is there")].ends_with("b() }"));
        assert!(squeezed.block(text, "fn c").is_err());
    }
}
