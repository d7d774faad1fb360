//! Rules that explain differences, read from `docs/compatibility.md`.
//!
//! A rule is a table row `| id | condition | explanation |` between the two marker lines of that page. A condition
//! is terms joined by ` and `; all must hold:
//!
//! | term | holds if |
//! |---|---|
//! | `call is W` | the request is `range`, `put`, `delete`, `txn` or `compact` |
//! | `field is P` | the path of the field matches the pattern |
//! | `etcd is P`, `kattu is P` | that side's value matches |
//! | `request is P` | the innermost request (an operation of a transaction, or the call), as reports show it, matches |
//! | `request lacks P` | … and does not match this |
//! | `ties` | only keys with equal sort fields changed places |
//!
//! In a pattern `*` matches any text, `|` is written as `\|`.
//! Knows nothing of: servers.

use crate::call::Call;
use crate::compare::Difference;

/// Where the table begins and ends.
const BEGIN: &str = "<!-- rules begin -->";
const END: &str = "<!-- rules end -->";

/// One explained difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// `D1`, `D2`, …
    pub id: String,
    terms: Vec<Term>,
    /// Why the difference is right.
    pub explanation: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Call(String),
    Field(String),
    Left(String),
    Right(String),
    Request(String),
    NotRequest(String),
    Ties,
}

impl Rule {
    /// Whether it explains this difference.
    pub fn explains(&self, call: &Call, difference: &Difference) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Call(name) => call.name() == name,
            Term::Field(pattern) => matches(pattern, &difference.field),
            Term::Left(pattern) => matches(pattern, &difference.left),
            Term::Right(pattern) => matches(pattern, &difference.right),
            Term::Request(pattern) => matches(pattern, &difference.request),
            Term::NotRequest(pattern) => !matches(pattern, &difference.request),
            Term::Ties => difference.is_among_ties,
        })
    }
}

/// Reads the rules of a page.
pub fn parse(page: &str) -> Result<Vec<Rule>, String> {
    let begin = page.find(BEGIN).ok_or_else(|| format!("no line `{BEGIN}`"))?;
    let end = page.find(END).ok_or_else(|| format!("no line `{END}`"))?;
    let first = page[..begin].lines().count() + 1;
    let mut rules: Vec<Rule> = Vec::new();
    for (number, line) in
        page.get(begin..end).ok_or("the end stands before the beginning")?.lines().enumerate()
    {
        let Some(row) = line.trim().strip_prefix('|') else { continue };
        let row = row.trim_end_matches('|').replace("\\|", "\u{1}");
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
        if cells.first().is_some_and(|cell| cell == "id" || cell.starts_with("---")) {
            continue;
        }
        let [id, condition, explanation] = cells.as_slice() else {
            return Err(format!("line {}: three cells wanted: id, condition, explanation", first + number));
        };
        let terms =
            parse_condition(condition).map_err(|error| format!("line {}: {error}", first + number))?;
        if rules.iter().any(|rule| rule.id == *id) {
            return Err(format!("line {}: {id} stands twice", first + number));
        }
        rules.push(Rule { id: id.clone(), terms, explanation: explanation.clone() });
    }
    Ok(rules)
}

fn parse_condition(condition: &str) -> Result<Vec<Term>, String> {
    let mut terms = Vec::new();
    for term in condition.trim_matches('`').split(" and ") {
        let term = term.trim();
        if let Some(pattern) = term.strip_prefix("request lacks ") {
            terms.push(Term::NotRequest(pattern.trim().to_string()));
            continue;
        }
        let (subject, pattern) = term.split_once(" is ").unwrap_or((term, ""));
        let pattern = pattern.trim().to_string();
        terms.push(match subject.trim() {
            "call" => Term::Call(pattern),
            "field" => Term::Field(pattern),
            "etcd" => Term::Left(pattern),
            "kattu" => Term::Right(pattern),
            "request" => Term::Request(pattern),
            "ties" => Term::Ties,
            other => return Err(format!("a condition cannot speak of `{other}`")),
        });
    }
    Ok(terms)
}

/// `*` stands for any text, also none.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_proto::etcdserverpb::RangeRequest;

    fn page(rows: &str) -> String {
        format!("text\n{BEGIN}\n\n| id | condition | explanation |\n|---|---|---|\n{rows}\n\n{END}\n")
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("*b*", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("aa*a", "aa", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} / {text}");
        }
    }

    #[test]
    fn a_rule_explains_what_all_its_terms_describe() {
        let rules = parse(&page("| D1 | `call is range and field is ok.count and etcd is 0` | because |"))
            .expect("a rule");
        let call = Call::Range(RangeRequest::default());
        let difference = |field: &str, left: &str| Difference {
            field: field.to_string(),
            left: left.to_string(),
            right: "1".to_string(),
            request: String::new(),
            is_among_ties: false,
        };
        assert!(rules[0].explains(&call, &difference("ok.count", "0")));
        assert!(!rules[0].explains(&call, &difference("ok.count", "2")));
        assert!(!rules[0].explains(&call, &difference("ok.more", "0")));
        assert!(!rules[0].explains(&Call::Put(Default::default()), &difference("ok.count", "0")));
    }

    #[test]
    fn a_bar_in_a_pattern_is_escaped() {
        let rules = parse(&page("| D1 | `kattu is a\\|b` | because |")).expect("a rule");
        assert_eq!(rules[0].terms, [Term::Right("a|b".to_string())]);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_named_by_its_line() {
        assert!(parse("nothing").is_err());
        let error = parse(&page("| D1 | `colour is red` | because |")).expect_err("no such subject");
        assert_eq!(error, "line 6: a condition cannot speak of `colour`");
        let error = parse(&page("| D1 | `ties` |")).expect_err("two cells");
        assert!(error.starts_with("line 6: three cells"), "{error}");
        let error = parse(&page("| D1 | `ties` | a |\n| D1 | `ties` | b |")).expect_err("twice");
        assert!(error.contains("twice"), "{error}");
    }
}
