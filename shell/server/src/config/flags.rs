//! Every flag by name: which work, which are only tolerated, which are refused and why.
//!
//! The same table serves the command line, the environment, the file, and the help text, so that the four cannot
//! disagree. Names, defaults and meanings are etcd's where etcd has the flag. [etcd server/embed/config.go]
//! Knows nothing of: the source of a value, its effect.

mod table;

pub use table::FLAGS;

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any text.
    Text,
    /// Texts separated by commas; in a file also an array.
    List,
    /// A whole number.
    Number,
    /// True or false; the bare flag means true.
    Switch,
}

/// How a flag is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It works.
    Works,
    /// It is accepted without effect; a warning gives this reason.
    Tolerated(&'static str),
    /// It asks for something that Kattu does not do and that must not be ignored; the error gives this reason.
    Refused(&'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// How it is treated.
    pub fate: Fate,
    /// The default as the help shows it.
    pub default: &'static str,
    /// One line for the help.
    pub help: &'static str,
}

/// The flag of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Working flags with names similar to `name`: at most three, the closest first.
#[must_use]
pub fn near(name: &str) -> Vec<&'static str> {
    let mut found: Vec<(usize, &'static str)> = FLAGS
        .iter()
        .filter(|flag| flag.fate == Fate::Works)
        .map(|flag| (distance(name, flag.name), flag.name))
        .filter(|&(distance, flag)| {
            distance <= 1 + name.len() / 4 || (name.len() >= 4 && flag.starts_with(name))
        })
        .collect();
    found.sort_unstable();
    found.truncate(3);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Insertions, deletions and replacements between two texts. [Levenshtein66]
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in other.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(a != b)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[other.len()]
}

/// The help of `kattu serve`.
#[must_use]
pub fn help() -> String {
    let mut text = String::from(HELP_HEAD);
    for flag in FLAGS.iter().filter(|flag| flag.fate == Fate::Works) {
        text.push_str(&format!("  --{:<30} {}", flag.name, flag.help));
        if !flag.default.is_empty() {
            text.push_str(&format!(" [{}]", flag.default));
        }
        text.push('\n');
    }
    text.push_str("\nAccepted for compatibility with etcd, without effect:\n");
    push_names(&mut text, |fate| matches!(fate, Fate::Tolerated(_)));
    text.push_str(
        "\nRefused, because ignoring them would be unsafe:\n  authentication, discovery, --force-new-cluster\n",
    );
    text.push_str(HELP_TAIL);
    text
}

fn push_names(text: &mut String, wanted: impl Fn(Fate) -> bool) {
    let mut line = String::from(" ");
    for flag in FLAGS.iter().filter(|flag| wanted(flag.fate)) {
        if line.len() + flag.name.len() > 100 {
            text.push_str(&line);
            text.push('\n');
            line = String::from(" ");
        }
        line.push_str(&format!(" --{}", flag.name));
    }
    text.push_str(&line);
    text.push('\n');
}

const HELP_HEAD: &str = "\
Runs one member of a cluster, with etcd's flags.

Usage: kattu serve [--FLAG=VALUE | --FLAG VALUE]...

Each flag is also read from KATTU_FLAG and ETCD_FLAG in the environment and from the file named by --config.
A flag overrides KATTU_*, which overrides ETCD_*, which overrides the file.

Flags [and their defaults]:
";

const HELP_TAIL: &str = "
Examples:
  kattu serve
      a cluster of one member, clients on 127.0.0.1:2379
  kattu serve --name n1 --data-dir /var/lib/kattu/n1 \\
      --listen-client-urls http://10.0.0.1:2379 --listen-peer-urls http://10.0.0.1:2380 \\
      --initial-cluster n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380
      the first of three members
  kattu serve --name n4 --initial-cluster-state existing --initial-advertise-peer-urls http://10.0.0.4:2380 \\
      --listen-peer-urls http://10.0.0.4:2380 --initial-cluster n1=http://10.0.0.1:2380,n4=http://10.0.0.4:2380
      a further member, after `kattu member add`, which prints this command
  kattu serve --config n1.toml
      the same from a file: name = \"n1\", initial-cluster = [\"n1=http://10.0.0.1:2380\", ..]

Exit codes: 0 stopped by SIGTERM or SIGINT, or removed from its cluster; 1 failed; 2 usage, configuration or a taken port;
4 the data directory is damaged, another member's, or in use.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_one_row() {
        for (i, flag) in FLAGS.iter().enumerate() {
            assert!(FLAGS[i + 1..].iter().all(|other| other.name != flag.name), "{}", flag.name);
            assert!(flag.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", flag.name);
        }
    }

    #[test]
    fn a_misspelt_flag_is_recognized() {
        assert_eq!(near("initial-cluser"), ["initial-cluster"]);
        assert_eq!(near("data_dir"), ["data-dir"]);
        assert_eq!(near("listen-client-url"), ["listen-client-urls"]);
        assert_eq!(near("auto-compaction"), ["auto-compaction-mode", "auto-compaction-retention"]);
        assert!(near("wal-dir").is_empty() || near("wal-dir") == ["data-dir"]);
        assert!(near("zzz").is_empty());
    }

    #[test]
    fn the_help_names_every_flag_that_works_or_is_tolerated() {
        let help = help();
        for flag in FLAGS.iter().filter(|flag| !matches!(flag.fate, Fate::Refused(_))) {
            assert!(help.contains(&format!("--{}", flag.name)), "{}", flag.name);
        }
    }
}
