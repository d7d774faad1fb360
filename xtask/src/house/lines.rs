//! The lines of a Rust file: each holds code, a comment, both, or nothing.
//!
//! In:   the text of a file.
//! Out:  for each line, its code without the contents of strings, and its comment without the slashes.
//! Rule: slashes in a string begin no comment, and quotes in a comment begin no string; both may span several lines.
//! Knows nothing of: syntax beyond strings, characters, lifetimes and comments.

/// One line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The code; each letter of a string is an `x` here.
    pub code: String,
    /// The comment, where the line has one.
    pub comment: Option<String>,
}

impl Line {
    /// Whether the line holds code; a comment may follow it.
    pub fn is_code(&self) -> bool {
        !self.code.trim().is_empty()
    }

    /// Whether the line holds a comment and nothing else.
    pub fn is_comment(&self) -> bool {
        !self.is_code() && self.comment.is_some()
    }
}

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    /// Number of block comments that are open here.
    BlockComment(usize),
    Text,
    /// Number of hashes that end it.
    RawText(usize),
}

/// The lines of a text.
pub fn lines(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut state = State::Code;
    let mut lines = vec![Line::default()];
    let mut at = 0;
    while at < chars.len() {
        let line = lines.last_mut().expect("one at least");
        if chars[at] == '\n' {
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let (next, taken) = step(state, &chars, at, line);
        state = next;
        at += taken;
    }
    if text.ends_with('\n') {
        lines.pop();
    }
    for comment in lines.iter_mut().filter_map(|line| line.comment.as_mut()) {
        *comment = comment.trim().trim_start_matches(['/', '!', '*']).trim().to_string();
    }
    lines
}

/// Reads one token or character; returns the state after it, and its length in characters.
fn step(state: State, chars: &[char], at: usize, line: &mut Line) -> (State, usize) {
    let is_here = |text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    match state {
        State::Code if is_here("//") => {
            line.comment.get_or_insert_default().push(' ');
            (State::LineComment, 2)
        }
        State::Code if is_here("/*") => {
            line.comment.get_or_insert_default().push(' ');
            (State::BlockComment(1), 2)
        }
        State::Code if is_here("\"") => {
            line.code.push('"');
            (State::Text, 1)
        }
        State::Code => match raw_text(chars, at) {
            Some(hashes) => {
                line.code.push('"');
                (State::RawText(hashes), hashes + 2)
            }
            None => {
                let taken = character(chars, at).unwrap_or(1);
                line.code.push(if taken == 1 { chars[at] } else { 'x' });
                (State::Code, taken)
            }
        },
        State::LineComment => {
            line.comment.get_or_insert_default().push(chars[at]);
            (State::LineComment, 1)
        }
        State::BlockComment(depth) if is_here("/*") => (State::BlockComment(depth + 1), 2),
        State::BlockComment(depth) if is_here("*/") => {
            (if depth == 1 { State::Code } else { State::BlockComment(depth - 1) }, 2)
        }
        State::BlockComment(depth) => {
            line.comment.get_or_insert_default().push(chars[at]);
            (State::BlockComment(depth), 1)
        }
        // A backslash at the end of a line leaves the line break to the loop.
        State::Text if is_here("\\") && chars.get(at + 1) != Some(&'\n') => {
            line.code.push_str("xx");
            (State::Text, 2)
        }
        State::Text if is_here("\"") => {
            line.code.push('"');
            (State::Code, 1)
        }
        State::RawText(hashes) if is_here(&format!("\"{}", "#".repeat(hashes))) => {
            line.code.push('"');
            (State::Code, hashes + 1)
        }
        State::Text | State::RawText(_) => {
            line.code.push(if chars[at].is_whitespace() { ' ' } else { 'x' });
            (state, 1)
        }
    }
}

/// The number of hashes of a raw string whose `r` is here.
fn raw_text(chars: &[char], at: usize) -> Option<usize> {
    // `br"` and `cr"` have one more letter; an `r` at the end of any other word begins no raw string.
    let is_prefix = |at: usize| {
        let is_word = |i: usize| chars[i].is_alphanumeric() || chars[i] == '_';
        at == 0 || !is_word(at - 1) || "bc".contains(chars[at - 1]) && (at == 1 || !is_word(at - 2))
    };
    if chars[at] != 'r' || !is_prefix(at) {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

/// The length in characters of a character literal that begins here; `None` at a lifetime, and elsewhere.
fn character(chars: &[char], at: usize) -> Option<usize> {
    if chars[at] != '\'' {
        return None;
    }
    match (chars.get(at + 1)?, chars.get(at + 2)?) {
        ('\\', _) => chars[at + 3..].iter().position(|c| *c == '\'').map(|end| end + 4),
        (_, '\'') => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `c` code, `/` comment alone, `+` code with a comment behind it, `.` nothing.
    fn kinds(text: &str) -> String {
        let kind = |line: &Line| match (line.is_code(), line.comment.is_some()) {
            (true, false) => 'c',
            (true, true) => '+',
            (false, true) => '/',
            (false, false) => '.',
        };
        lines(text).iter().map(kind).collect()
    }

    #[test]
    fn lines_are_code_comments_or_nothing() {
        let cases = [
            ("let a = 1;\n\n// why\n/// what\n//! whole\n", "c.///"),
            ("let a = 1; // why\n", "+"),
            ("/* one\n   two */ let a = 1;\n", "/+"),
            ("/* one /* two */\n still */\nlet a;\n", "//c"),
            ("let a = \"// none\";\n", "c"),
            ("let a = \"one \\\"\n// two\n\n\";\n", "cc.c"),
            ("let a = r#\"one \" // two\n\"#; // three\n", "c+"),
            ("let a = br\"\\\"; // three\n", "+"),
            ("let a = '\"'; // one\nlet b = '\\''; // two\nlet c = '\\u{1f}'; // three\n", "+++"),
            ("fn a<'a>(b: &'a str) {} // one\n", "+"),
            ("let four = r#fn; // one\nlet hour = \"x\"; // two", "++"),
        ];
        for (text, wanted) in cases {
            assert_eq!(kinds(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_comment_is_told_without_its_slashes_and_code_without_its_strings() {
        let comments: Vec<_> = lines("/// Who.\n//! What: a.\nlet a = \"b!(\"; // Why.\n/** One. */\n");
        let told: Vec<_> = comments.iter().map(|line| line.comment.as_deref().unwrap_or("")).collect();
        assert_eq!(told, ["Who.", "What: a.", "Why.", "One."]);
        assert_eq!(comments[2].code, "let a = \"xxx\"; ");
    }
}
