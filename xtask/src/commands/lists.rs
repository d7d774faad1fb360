//! Lists of all commands: the usage text of `cargo xtask`, and the tables for two pages.
//!
//! Knows nothing of: the pages.

use super::{Command, Group};

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
pub fn short() -> String {
    tables("| Command | What it does | Time on 2 cores, warm |\n|---|---|---|\n", |command| {
        let needed =
            arguments(command.arguments).into_iter().take_while(|argument| !argument.starts_with('['));
        let typed: Vec<&str> = ["cargo xtask", command.name].into_iter().chain(needed).collect();
        let time = if command.time.is_empty() { String::new() } else { format!("{} ", command.time) };
        format!("| `{}` | {} | {time}|\n", typed.join(" "), command.about)
    })
}

/// Names with arguments, and everything that is to be said.
pub fn long() -> String {
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
