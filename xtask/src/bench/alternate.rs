//! Two programs in alternating pairs, for measurements that are programs of their own.
//!
//! Rule: only runs within a pair are compared, because the machine drifts; odd pairs begin with this program.
//! Knows nothing of: what is measured.

use super::report::{Header, OTHER, judge_ratios, print_ratios_head};
use crate::shell::Failure;
use std::path::{Path, PathBuf};

const PAIRS: usize = 10;

/// Another program, and how often both are measured.
pub struct Against {
    other: PathBuf,
    pairs: usize,
}

/// The figures of one run, with their names: the lower the better.
pub type Figures = Vec<(String, f64)>;

/// Takes `--against PATH` and `--pairs N` from the words of a command, and leaves the others.
pub fn take<'a>(words: &[&'a str], command: &str) -> Result<(Option<Against>, Vec<&'a str>), Failure> {
    let (mut other, mut pairs, mut rest) = (None, None, Vec::new());
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| Failure::usage(format!("{word} needs a value")));
        match word {
            "--against" => other = Some(PathBuf::from(value()?)),
            "--pairs" => {
                let text = value()?;
                let number = text.parse().ok().filter(|number| 0 < *number);
                pairs =
                    Some(number.ok_or_else(|| {
                        Failure::usage(format!("--pairs {text}: not a number of at least 1"))
                    })?);
            }
            _ => rest.push(word),
        }
    }
    match other {
        None if pairs.is_some() => Err(Failure::usage(format!("{command}: --pairs needs --against"))),
        None => Ok((None, rest)),
        Some(other) if !other.exists() => Err(Failure::new(format!("{} is not there", other.display()))),
        Some(other) => Ok((Some(Against { other, pairs: pairs.unwrap_or(PAIRS) }), rest)),
    }
}

impl Against {
    /// Measures both programs in each pair, prints all figures and their ratios. An error names the figures that are worse
    /// than the other's in every pair.
    pub fn compare(
        &self,
        this: &Path,
        mut measure: impl FnMut(&Path) -> Result<Figures, Failure>,
    ) -> Result<(), Failure> {
        Header::now(self.pairs, false).print();
        let mut ratios: Vec<(String, Vec<f64>)> = Vec::new();
        for pair in 0..self.pairs {
            let (mine, others) = if pair % 2 == 1 {
                let mine = shown(pair, "kattu", measure(this)?);
                (mine, shown(pair, OTHER, measure(&self.other)?))
            } else {
                let others = shown(pair, OTHER, measure(&self.other)?);
                (shown(pair, "kattu", measure(this)?), others)
            };
            let names = |figures: &Figures| figures.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            if mine.is_empty() || names(&mine) != names(&others) {
                return Err(Failure::new(format!(
                    "pair {pair}: the two programs do not print the same figures"
                )));
            }
            for ((name, value), (_, other)) in mine.into_iter().zip(others) {
                match ratios.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, of_pairs)) => of_pairs.push(value / other),
                    None => ratios.push((name, vec![value / other])),
                }
            }
        }
        print_ratios_head();
        let worse: Vec<String> = ratios
            .into_iter()
            .filter(|(name, ratios)| judge_ratios(name, ratios))
            .map(|(name, _)| name)
            .collect();
        match &worse[..] {
            [] => Ok(()),
            worse => Err(Failure::new(format!("worse than the other in all pairs: {}", worse.join(", ")))),
        }
    }
}

fn shown(pair: usize, side: &str, figures: Figures) -> Figures {
    let values: Vec<String> = figures.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    println!("pair {pair} {side:<6} {}", values.join("  "));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(values: &[(f64, f64)]) -> (Result<(), Failure>, Vec<bool>) {
        let mut order = Vec::new();
        let against = Against { other: "other".into(), pairs: values.len() };
        let verdict = against.compare(Path::new("this"), |program| {
            let is_this = program == Path::new("this");
            order.push(is_this);
            let (mine, others) = values[(order.len() - 1) / 2];
            Ok(vec![("seconds".into(), if is_this { mine } else { others })])
        });
        (verdict, order)
    }

    #[test]
    fn a_figure_that_is_worse_in_every_pair_is_named_and_the_sides_alternate() {
        let (verdict, order) = compared(&[(2.0, 1.0), (1.1, 1.0)]);
        assert_eq!(order, [false, true, true, false]);
        assert!(verdict.is_err_and(|failure| failure.to_string().contains("seconds")));
    }

    #[test]
    fn a_figure_that_is_better_in_one_pair_is_within_the_spread() {
        assert!(compared(&[(2.0, 1.0), (0.9, 1.0)]).0.is_ok());
    }

    #[test]
    fn a_program_that_prints_no_figure_or_others_is_refused() {
        let against = Against { other: "other".into(), pairs: 1 };
        assert!(against.compare(Path::new("this"), |_| Ok(Figures::new())).is_err());
        let by_its_name = |program: &Path| Ok(vec![(program.display().to_string(), 1.0)]);
        assert!(against.compare(Path::new("this"), by_its_name).is_err());
    }

    #[test]
    fn the_words_of_the_comparison_are_taken_and_the_others_left() {
        let path = env!("CARGO_MANIFEST_DIR");
        let (against, rest) =
            take(&["--keys", "5", "--against", path, "--pairs", "3"], "bench").unwrap_or_default();
        assert_eq!((against.map(|against| against.pairs), rest), (Some(3), vec!["--keys", "5"]));
        assert!(take(&["--pairs", "3"], "bench").is_err());
        assert!(take(&["--against", path, "--pairs", "0"], "bench").is_err());
        assert!(take(&["--against", "/no/such/program"], "bench").is_err());
    }
}
