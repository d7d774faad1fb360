//! The table of crates in ARCHITECTURE.md: it names every member of the workspace.
//!
//! Rule: the table is the one whose first column is headed `Folder`; a folder there that does not exist is an error of its
//!       path.
//! Knows nothing of: what the table says of a crate.

use super::markdown::Page;
use crate::shell::Failure;
use toml::{Table, Value};

/// What is wrong with the table, one line for each member that it lacks.
pub fn judge(page: &Page, manifest: &str) -> Result<Vec<String>, Failure> {
    let manifest: Table = manifest.parse().map_err(|error| Failure::new(format!("Cargo.toml: {error}")))?;
    let members = manifest.get("workspace").and_then(|workspace| workspace.get("members")?.as_array());
    let members = members.ok_or_else(|| Failure::new("Cargo.toml: no workspace.members"))?;
    let Some(head) = page.rows.iter().position(|row| cell(&row.text) == "Folder") else {
        return Ok(vec![format!("{}: there is no table whose first column is headed `Folder`", page.path)]);
    };
    let rows: Vec<_> = (page.rows[head..].iter())
        .enumerate()
        .take_while(|(place, row)| row.line == page.rows[head].line + place)
        .map(|(_, row)| cell(&row.text).trim_matches('`').trim_end_matches('/'))
        .collect();
    let missing = members.iter().filter_map(Value::as_str).filter(|member| !rows.contains(member));
    let line = page.rows[head].line;
    Ok(missing.map(|member| format!("{}:{line}: the table of crates lacks `{member}`", page.path)).collect())
}

/// The first cell of a row.
fn cell(row: &str) -> &str {
    row.trim_start_matches('|').split('|').next().unwrap_or("").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace]\nmembers = [\"core/kv\", \"kattu\", \"proof/sim\"]\n";

    fn judged(text: &str) -> Vec<String> {
        judge(&Page::parse("ARCHITECTURE.md", text), MANIFEST).expect("a manifest")
    }

    #[test]
    fn a_member_that_is_not_in_the_table_is_named() {
        let table = "# Plan\n\n| Folder | Its one job |\n|---|---|\n| `core/kv` | a |\n| `kattu/` | b |\n";
        assert_eq!(
            judged(&format!("{table}\n| `proof/sim` | in another table |\n")),
            ["ARCHITECTURE.md:3: the table of crates lacks `proof/sim`"]
        );
        assert_eq!(judged(&format!("{table}| `proof/sim` | c |\n")), Vec::<String>::new());
    }

    #[test]
    fn a_page_without_the_table_is_wrong() {
        assert_eq!(judged("`core/kv`, `kattu`, `proof/sim`\n").len(), 1);
    }
}
