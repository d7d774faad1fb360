//! A page as its parts: headings, code in backticks, links, rows of tables, words.
//!
//! In:   the text of a page.
//! Out:  the parts, each with its line.
//! Rule: blocks between fences and comments are left out. Backticks and brackets match only within a paragraph, an item
//!       of a list, a heading or a row, and there across lines.
//! Knows nothing of: what a part means.

/// A page.
pub struct Page {
    /// Path from the root of the repository.
    pub path: String,
    /// Its headings, without `#`.
    pub headings: Vec<Part>,
    /// What is in backticks.
    pub code: Vec<Part>,
    /// Targets of links.
    pub links: Vec<Part>,
    /// Paragraphs, headings and rows without code and targets.
    pub prose: Vec<Part>,
    /// Rows of tables, as they are written.
    pub rows: Vec<Part>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

impl Page {
    /// Reads a text as Markdown.
    pub fn parse(path: &str, text: &str) -> Page {
        let mut page = Page {
            path: path.to_string(),
            headings: Vec::new(),
            code: Vec::new(),
            links: Vec::new(),
            prose: Vec::new(),
            rows: Vec::new(),
        };
        for block in blocks(text) {
            if let Some(heading) = heading(&block.text) {
                page.headings.push(Part { line: block.line, text: heading.to_string() });
            }
            if block.text.starts_with('|') {
                page.rows.push(block.clone());
            }
            page.read(&block);
        }
        page
    }

    /// Takes code, links and prose of one block.
    fn read(&mut self, block: &Part) {
        let mut chars: Vec<char> = block.text.chars().collect();
        let line_at =
            |chars: &[char], at: usize| block.line + chars[..at].iter().filter(|c| **c == '\n').count();
        for (start, end, ticks) in spans(&chars) {
            let text: String = chars[start + ticks..end - ticks].iter().collect();
            self.code.push(Part { line: line_at(&chars, start), text });
            blank(&mut chars[start..end]);
        }
        let mut at = 0;
        while at + 1 < chars.len() {
            if chars[at] == ']' && chars[at + 1] == '(' && opens(&chars[..at]) {
                let Some(length) = closed(&chars[at + 2..]) else { break };
                let target: String = chars[at + 2..at + 2 + length].iter().collect();
                // A title may follow the target.
                let target = target.split_whitespace().next().unwrap_or_default().to_string();
                self.links.push(Part { line: line_at(&chars, at), text: target });
                blank(&mut chars[at + 2..at + 2 + length]);
                at += 2 + length;
            }
            at += 1;
        }
        self.prose.push(Part { line: block.line, text: chars.into_iter().collect() });
    }
}

/// The text of a heading.
fn heading(block: &str) -> Option<&str> {
    let text = block.trim_start_matches('#');
    let depth = block.len() - text.len();
    ((1..=6).contains(&depth) && text.starts_with(' ')).then(|| text.trim().trim_end_matches('#').trim_end())
}

/// Paragraphs, items of lists, headings and rows, each with its first line.
fn blocks(text: &str) -> Vec<Part> {
    let mut blocks: Vec<Part> = Vec::new();
    let mut fence: Option<String> = None;
    let mut is_comment = false;
    let mut goes_on = false;
    for (place, line) in text.lines().enumerate() {
        // Signs of a quotation may stand in front of every line.
        let inner = line.trim_start().trim_start_matches("> ").trim_start();
        let ticks: String = inner.chars().take_while(|c| *c == '`' || *c == '~').collect();
        let is_fence = ticks.starts_with("```") || ticks.starts_with("~~~");
        match &fence {
            Some(begun) if is_fence && ticks.starts_with(begun.as_str()) && inner == ticks => fence = None,
            Some(_) => {}
            None if is_fence && !inner[ticks.len()..].contains('`') => fence = Some(ticks),
            None if is_comment || inner.starts_with("<!--") => is_comment = !inner.contains("-->"),
            None if inner.is_empty() => {}
            None => {
                let is_alone = inner.starts_with('|') || heading(inner).is_some();
                let text = without_bullet(inner);
                match blocks.last_mut() {
                    Some(last) if goes_on && !is_alone && text == inner => {
                        last.text.push('\n');
                        last.text += text;
                    }
                    _ => blocks.push(Part { line: place + 1, text: text.to_string() }),
                }
                goes_on = !is_alone;
                continue;
            }
        }
        goes_on = false;
    }
    blocks
}

/// The text of an item behind its bullet or number; any other line as it is.
fn without_bullet(line: &str) -> &str {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = if digits.len() < line.len() { digits.strip_prefix(". ") } else { None };
    let bullet = ["- ", "* ", "+ "].iter().find_map(|bullet| line.strip_prefix(bullet));
    numbered.or(bullet).map_or(line, str::trim_start)
}

/// Start, end and number of backticks of each piece of code.
fn spans(chars: &[char]) -> Vec<(usize, usize, usize)> {
    let ticks_at = |at: usize| chars[at..].iter().take_while(|c| **c == '`').count();
    let mut spans = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let ticks = ticks_at(at);
        if ticks == 0 {
            at += 1;
            continue;
        }
        let mut end = at + ticks;
        while end < chars.len() && ticks_at(end) != ticks {
            end += ticks_at(end).max(1);
        }
        if end < chars.len() {
            spans.push((at, end + ticks, ticks));
            at = end + ticks;
        } else {
            at += ticks;
        }
    }
    spans
}

/// Whether a bracket is open at the end.
fn opens(chars: &[char]) -> bool {
    let mut depth = 0;
    chars.iter().rev().any(|c| {
        depth += i32::from(*c == '[') - i32::from(*c == ']');
        depth == 1
    })
}

/// The length up to the parenthesis that closes.
fn closed(chars: &[char]) -> Option<usize> {
    let mut depth = 0;
    chars.iter().position(|c| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth < 0
    })
}

/// Overwrites with spaces; lines stay lines.
fn blank(chars: &mut [char]) {
    chars.iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parts: &[Part]) -> Vec<(usize, &str)> {
        parts.iter().map(|part| (part.line, part.text.as_str())).collect()
    }

    #[test]
    fn headings_code_and_links_have_their_lines() {
        let page = Page::parse(
            "a.md",
            "# One `two`\n\nSee [three\nfour](b.md#c \"d\") and `five\nsix`.\n- ``a`b``\n- [`e`](f.md)\n",
        );
        assert_eq!(texts(&page.headings), [(1, "One `two`")]);
        assert_eq!(texts(&page.code), [(1, "two"), (4, "five\nsix"), (6, "a`b"), (7, "e")]);
        assert_eq!(texts(&page.links), [(4, "b.md#c"), (7, "f.md")]);
    }

    #[test]
    fn fences_and_comments_are_no_part_of_a_page() {
        let page = Page::parse(
            "a.md",
            "```text\n# one `two`\n```\n- three\n  ```\n  `four`\n  ```\n<!-- `five`\n[six](seven) -->\n`eight`\n",
        );
        assert_eq!(texts(&page.code), [(10, "eight")]);
        assert!(page.headings.is_empty() && page.links.is_empty());
    }

    #[test]
    fn a_backtick_that_is_alone_reaches_no_further_than_its_item() {
        let page =
            Page::parse("a.md", "- one ` two\n- three `four` five\n\n| a ` | b |\n|---|---|\n| `c` | |\n");
        assert_eq!(texts(&page.code), [(2, "four"), (6, "c")]);
        assert_eq!(page.rows.len(), 3);
    }

    #[test]
    fn brackets_that_open_nowhere_and_brackets_in_code_are_no_links() {
        let page = Page::parse("a.md", "`log[last](a)` b](c) [d](e(f)) ![g](h.png)\n");
        assert_eq!(texts(&page.links), [(1, "e(f)"), (1, "h.png")]);
    }
}
