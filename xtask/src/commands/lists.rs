//! Lists of all commands: the usage text of `cargo xtask`, and the tables in two pages.
//!
//! In:   the table of commands; a page with the marks `commands: begin` and `commands: end`.
//! Out:  the usage text; the page with the table between its marks.
//! Knows nothing of: the other contents of the pages.

use super::{Command, Group};
use crate::shell::{self, Failure};

/// Makes the table of a page.
type Shape = fn() -> String;

/// The pages with a table of commands, and how each shows it.
const PAGES: [(&str, Shape); 2] = [("CONTRIBUTING.md", short), ("docs/testing.md", long)];

const BEGIN: &str = "<!-- commands: begin -->";
const END: &str = "<!-- commands: end -->";

/// Columns of the usage text: where explanations begin, and where lines end.
const INDENT: usize = 29;
const WIDTH: usize = 120;

/// The usage text.
pub fn usage() -> String {
    let mut text = "cargo xtask <command>\n".to_string();
    for group in Group::ALL {
        text += &format!("\n{}:\n", group.title());
        for command in group.commands() {
            text += &entry(command);
        }
    }
    text
}

/// The lines of one command.
fn entry(command: &Command) -> String {
    let mut text = String::new();
    let mut line = format!("  {}", command.name);
    for argument in arguments(command.arguments) {
        if WIDTH <= line.chars().count() + argument.chars().count() {
            text += &format!("{line}\n");
            line = " ".repeat(4 + command.name.len() - 1);
        }
        line += &format!(" {argument}");
    }
    if INDENT < line.chars().count() + 2 {
        text += &format!("{line}\n");
        line = String::new();
    }
    let mut column = INDENT;
    let mut explained = format!("{line:<INDENT$}");
    for (place, word) in command.about.split(' ').enumerate() {
        let length = word.chars().count();
        if WIDTH < column + 1 + length {
            explained += &format!("\n{}", " ".repeat(INDENT));
            column = INDENT;
        } else if place > 0 {
            explained.push(' ');
            column += 1;
        }
        explained += word;
        column += length;
    }
    format!("{text}{explained}\n")
}

/// The arguments one by one, alternatives too: a line may end between two of them.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut last) = (0, ' ');
    let mut is_between = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        let before = std::mem::replace(&mut last, c);
        c == ' ' && (depth == 0 || before == '|')
    };
    text.split(&mut is_between).filter(|argument| !argument.is_empty()).collect()
}

/// Names with the arguments that must be given, one line each, times.
fn short() -> String {
    tables("| Command | What it does | Time on 2 cores, warm |\n|---|---|---|\n", |command| {
        let needed =
            arguments(command.arguments).into_iter().take_while(|argument| !argument.starts_with('['));
        let typed: Vec<&str> = ["cargo xtask", command.name].into_iter().chain(needed).collect();
        let time = if command.time.is_empty() { String::new() } else { format!("{} ", command.time) };
        format!("| `{}` | {} | {time}|\n", typed.join(" "), command.about)
    })
}

/// Names with arguments, and everything that is to be said.
fn long() -> String {
    tables("| Command | What it does |\n|---|---|\n", |command| {
        let about = match command.more {
            "" => command.about.to_string(),
            more => format!("{}. {more}", command.about),
        };
        // A bar would end the cell, even between backticks.
        format!("| `{}` | {about} |\n", command.usage().replace('|', "\\|"))
    })
}

fn tables(head: &str, row: fn(&Command) -> String) -> String {
    let table = |group: Group| {
        format!("\n{}:\n\n{head}{}", group.title(), group.commands().map(row).collect::<String>())
    };
    format!("{}\n", Group::ALL.map(table).concat())
}

/// The page with this table between its marks, and the line of the first mark; `None` if a mark is missing.
fn filled(page: &str, table: &str) -> Option<(String, usize)> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some((format!("{before}{BEGIN}\n{table}{END}{after}"), before.lines().count() + 1))
}

/// What is wrong with the tables in the pages, one line for each page.
pub fn stale() -> Result<Vec<String>, Failure> {
    let mut wrong = Vec::new();
    for (path, table) in PAGES {
        let page = std::fs::read_to_string(shell::root().join(path))?;
        match filled(&page, &table()) {
            Some((filled, _)) if filled == page => {}
            Some((_, line)) => wrong.push(format!(
                "{path}:{line}: the table of commands differs from xtask/src/commands/table.rs; run cargo xtask fix"
            )),
            None => wrong.push(format!("{path}: the marks `{BEGIN}` and `{END}` are missing")),
        }
    }
    Ok(wrong)
}

/// Writes the tables anew; returns the pages that have changed.
pub fn rewrite() -> Result<Vec<&'static str>, Failure> {
    let mut changed = Vec::new();
    for (path, table) in PAGES {
        let file = shell::root().join(path);
        let page = std::fs::read_to_string(&file)?;
        if let Some((filled, _)) = filled(&page, &table())
            && filled != page
        {
            std::fs::write(file, filled)?;
            changed.push(path);
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &'static str, arguments: &'static str) -> Command {
        Command {
            name,
            arguments,
            about: "does it",
            more: "",
            time: "",
            group: Group::Everyday,
            run: |_| Ok(()),
        }
    }

    #[test]
    fn explanations_stand_in_one_column_and_long_arguments_on_lines_of_their_own() {
        assert_eq!(entry(&command("fix", "")), "  fix                        does it\n");
        let indent = " ".repeat(INDENT);
        let long = "[--a-long-option WITH A VALUE (5)]";
        assert_eq!(entry(&command("fix", long)), format!("  fix {long}\n{indent}does it\n"));
        let longer = entry(&command("fix", &*format!("{long} {long} {long} {long}").leak()));
        assert_eq!(longer.lines().count(), 3, "{longer}");
        assert_eq!(longer.lines().nth(1), Some(&*format!("       {long}")), "{longer}");
    }

    #[test]
    fn no_line_of_the_usage_text_is_too_long() {
        for line in usage().lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn a_table_replaces_what_is_between_the_marks_and_nothing_else() {
        let page = format!("one\n\n{BEGIN}\nold\n{END}\ntwo\n");
        let (new, line) = filled(&page, "new\n").expect("marked");
        assert_eq!((new.as_str(), line), (&*format!("one\n\n{BEGIN}\nnew\n{END}\ntwo\n"), 3));
        assert_eq!(filled(&new, "new\n"), Some((new.clone(), 3)));
        assert_eq!(filled("one\n", "new\n"), None);
    }

    #[test]
    fn the_short_table_has_the_arguments_that_must_be_given() {
        let table = short();
        for typed in ["scripts --update", "upgrade --from COMMIT", "house", "bugs"] {
            assert!(table.contains(&format!("| `cargo xtask {typed}` |")), "{typed}");
        }
    }

    #[test]
    fn a_bar_between_arguments_does_not_end_a_cell() {
        assert!(long().contains("[--side etcd\\|kattu]"));
    }
}
