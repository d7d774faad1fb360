//! Regressions: storms that once broke a promise, from `regressions.txt`. None does again.
//!
//! Knows nothing of: when they are run.

use crate::{Family, Options};

/// Lines of `[family] [shared-settings] [sessions] [tuned] [non-blocking] [weak] seed [minutes] | story | fix`.
const LINES: &str = include_str!("../regressions.txt");

/// One line.
#[derive(Clone, Debug)]
pub struct Regression {
    /// The line as it stands.
    pub line: &'static str,
    /// The seed of its storm.
    pub seed: u64,
    /// The other settings of its storm.
    pub options: Options,
}

/// All of them, in their order.
///
/// # Panics
/// On a line that is none.
#[must_use]
pub fn all() -> Vec<Regression> {
    LINES.lines().filter(|line| !line.starts_with('#')).map(Regression::of).collect()
}

impl Regression {
    fn of(line: &'static str) -> Regression {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [storm, story, fix] = parts[..] else {
            panic!(
                "not `[family] [shared-settings] [sessions] [tuned] [non-blocking] [weak] seed [minutes] | story | fix`: {line}"
            );
        };
        assert!(!story.is_empty() && !fix.is_empty(), "{line}");
        let mut options = Options::default();
        let mut numbers = Vec::new();
        for word in storm.split(' ') {
            match word {
                "shared-settings" => options.shared_settings = true,
                "sessions" => options.sessions = true,
                "tuned" => options.tuned = true,
                "non-blocking" => options.non_blocking = true,
                "weak" => options.weak = true,
                other => match Family::called(other) {
                    Some(family) => options.family = family,
                    None => {
                        numbers.push(other.parse::<u64>().unwrap_or_else(|_| panic!("{other:?}: {line}")))
                    }
                },
            }
        }
        let (seed, minutes) = match numbers[..] {
            [seed] => (seed, None),
            [seed, minutes] => (seed, Some(minutes)),
            _ => panic!("a seed, and minutes at most: {line}"),
        };
        options.seconds = minutes.map(|minutes| minutes * 60);
        Regression { line, seed, options }
    }

    /// The arguments of `kattu sim` that run the storm again.
    #[must_use]
    pub fn words(&self) -> String {
        let length =
            self.options.seconds.map_or(String::new(), |seconds| format!(" --minutes {}", seconds / 60));
        format!("{} --seed {}{length}", self.options.words(), self.seed).trim_start().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_storm() {
        let it = Regression::of("slow-links shared-settings 7 2 | a | b");
        assert_eq!((it.seed, it.options.seconds, it.options.shared_settings), (7, Some(120), true));
        assert_eq!(it.options.family, Family::SlowLinks);
        assert_eq!(it.words(), "--family slow-links --shared-settings --seed 7 --minutes 2");
        let it = Regression::of("sessions 9 1 | a | b");
        assert!(it.options.sessions && !it.options.shared_settings);
        assert_eq!(it.words(), "--sessions --seed 9 --minutes 1");
        let it = Regression::of("tuned 9 1 | a | b");
        assert!(it.options.tuned && !it.options.sessions);
        assert_eq!(it.words(), "--tuned --seed 9 --minutes 1");
        let it = Regression::of("non-blocking 9 | a | b");
        assert!(it.options.non_blocking && !it.options.tuned);
        assert_eq!(it.words(), "--non-blocking --seed 9");
        let it = Regression::of("weak 9 | a | b");
        assert!(it.options.weak && !it.options.non_blocking);
        assert_eq!(it.words(), "--weak --seed 9");
        let it = Regression::of("9 | a | b");
        assert_eq!((it.seed, it.options.seconds, it.options.family), (9, None, Family::Storms));
        assert_eq!(it.words(), "--seed 9");
    }

    #[test]
    fn every_line_can_be_read() {
        assert!(60 < all().len(), "{} lines: where are the others?", all().len());
    }
}
