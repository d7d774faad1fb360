//! The commands of `cargo xtask`: one table, from which they run and from which every list of them is made.
//!
//! In:   the table (`commands/table.rs`), the words of a command line.
//! Out:  the command to run; the usage text; the tables between the marks of two pages.
//! Rule: nothing runs that is not in the table, and no page lists commands by hand; `cargo xtask fix` rewrites the pages,
//!       and the stage `pages` fails where they differ.
//! Knows nothing of: what a command does.

mod lists;
mod table;

pub use lists::{long, short};
use table::COMMANDS;

use crate::shell::Failure;

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Commands of every change.
    Everyday,
    /// Commands that attack the product.
    Rigs,
    /// Commands that measure it.
    Benches,
}

/// One command.
pub struct Command {
    /// One word, or two: `bench etcd`.
    pub name: &'static str,
    /// Its options, with their defaults in parentheses.
    pub arguments: &'static str,
    /// One line.
    pub about: &'static str,
    /// Further sentences, for docs/testing.md.
    pub more: &'static str,
    /// Its time on two cores, where it is known.
    pub time: &'static str,
    /// Its group.
    pub group: Group,
    /// Runs it with the words after its name.
    pub run: fn(&[&str]) -> Result<(), Failure>,
}

impl Group {
    /// All groups, in the order in which they are printed.
    pub const ALL: [Group; 3] = [Group::Everyday, Group::Rigs, Group::Benches];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Everyday => "Everyday",
            Group::Rigs => "Rigs: real and simulated clusters under faults",
            Group::Benches => "Benches",
        }
    }

    fn commands(self) -> impl Iterator<Item = &'static Command> {
        COMMANDS.iter().filter(move |command| command.group == self)
    }
}

impl Command {
    /// The command as it is typed.
    pub fn usage(&self) -> String {
        format!("cargo xtask {} {}", self.name, self.arguments).trim_end().to_string()
    }
}

/// Runs the command that these words begin with.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    match (words, find(words)) {
        (_, Some((command, rest))) => (command.run)(rest),
        (["help" | "--help" | "-h"] | [], None) => {
            print!("{}", lists::usage());
            Ok(())
        }
        (_, None) => Err(Failure::usage(format!(
            "cargo xtask has no command `{}`\n\n{}",
            words.join(" "),
            lists::usage()
        ))),
    }
}

/// The command and the words after its name.
fn find<'w>(words: &'w [&'w str]) -> Option<(&'static Command, &'w [&'w str])> {
    (1..=words.len().min(2)).find_map(|length| {
        let name = words[..length].join(" ");
        let command = COMMANDS.iter().find(|command| command.name == name)?;
        Some((command, &words[length..]))
    })
}

/// The failure of a command that was called with other arguments than it has.
pub fn misused(name: &str) -> Failure {
    let command = COMMANDS.iter().find(|command| command.name == name);
    Failure::usage(format!("usage: {}", command.expect("the name is in the table").usage()))
}

/// Runs a command that takes no arguments.
fn alone(words: &[&str], run: fn() -> Result<(), Failure>) -> Result<(), Failure> {
    match words {
        [] => run(),
        other => Err(Failure::usage(format!("this command takes no arguments, not `{}`", other.join(" ")))
            .then("cargo xtask help")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;
    use std::collections::BTreeSet;

    /// Programs of other crates to which a command passes its arguments, with the file that has their usage text.
    const PROGRAMS: &[(&str, &str)] = &[
        ("diff", "proof/differential/src/main.rs"),
        ("power", "proof/power/src/main.rs"),
        ("explore", "proof/explore/src/main.rs"),
        ("mutate", "proof/mutation/src/main.rs"),
        ("failover", "proof/e2e/src/bin/failover.rs"),
        ("grow", "proof/e2e/src/bin/grow.rs"),
        ("bench comeback", "proof/e2e/src/bin/comeback.rs"),
        ("bench failover", "proof/e2e/src/bin/gaps.rs"),
        ("bench floods", "proof/e2e/src/bin/floods.rs"),
        ("bench heavy", "proof/e2e/src/bin/heavy.rs"),
        ("bench once", "proof/e2e/src/bin/once.rs"),
        ("bench overload", "proof/e2e/src/bin/overload.rs"),
        ("bench soak", "proof/e2e/src/bin/soak.rs"),
        ("bench tail", "proof/e2e/src/bin/tail.rs"),
        ("bench weak", "proof/e2e/src/bin/weak.rs"),
    ];

    /// The options that a text names.
    fn options(text: &str) -> BTreeSet<String> {
        let is_option = |c: char| c.is_ascii_lowercase() || c == '-';
        let words = text.split(|c| !is_option(c)).filter(|word| word.starts_with("--") && 2 < word.len());
        words.map(str::to_string).collect()
    }

    /// The value of `const USAGE: &str` in a Rust file.
    fn usage_in(path: &str) -> String {
        let text = std::fs::read_to_string(shell::root().join(path)).expect("the file is there");
        let file = syn::parse_file(&text).expect("Rust");
        let usage = file.items.iter().find_map(|item| match item {
            syn::Item::Const(item) if item.ident == "USAGE" => match &*item.expr {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
        usage.unwrap_or_else(|| panic!("{path} has no USAGE"))
    }

    #[test]
    fn the_longest_name_is_found_and_the_rest_are_its_arguments() {
        let found = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            find(&words).map(|(command, rest)| (command.name, rest.join(" ")))
        };
        assert_eq!(found("bench floods --only idle"), Some(("bench floods", "--only idle".to_string())));
        assert_eq!(found("failover --kills 3"), Some(("failover", "--kills 3".to_string())));
        assert_eq!(found("bench"), None);
        assert_eq!(found("bench nothing"), None);
        assert_eq!(found("nothing"), None);
    }

    #[test]
    fn names_differ_and_groups_stand_together() {
        let names: BTreeSet<&str> = COMMANDS.iter().map(|command| command.name).collect();
        assert_eq!(names.len(), COMMANDS.len());
        let in_groups: Vec<&str> =
            Group::ALL.into_iter().flat_map(Group::commands).map(|command| command.name).collect();
        let in_table: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
        assert_eq!(in_groups, in_table);
    }

    #[test]
    fn every_option_of_a_program_is_in_the_table() {
        for (name, path) in PROGRAMS {
            let command = COMMANDS.iter().find(|command| command.name == *name).expect("in the table");
            let (known, theirs) = (options(command.arguments), options(&usage_in(path)));
            assert_eq!(known, theirs, "`{name}`: the table, and {path}");
        }
    }
}
