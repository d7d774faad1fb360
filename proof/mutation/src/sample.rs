//! Sample: which mutants are tried, by a seed.
//!
//! Rules: 1. The mutants of one file and one kind are a cell. A round takes one mutant of each cell, and the cells are in
//!           another order in each round, so that small files and rare kinds are tried, too.
//!        2. The same mutants and the same seed give the same order.
//! Knows nothing of: files, builds.

use crate::operators::{Kind, Mutant};
use kattu_random::Random;
use std::collections::BTreeMap;

/// All mutants, in the order in which they are tried; the first `n` are a sample of `n`.
#[must_use]
pub fn ordered(mutants: Vec<Mutant>, seed: u64) -> Vec<Mutant> {
    let mut random = Random::new(seed);
    let mut cells: BTreeMap<(String, Kind), Vec<Mutant>> = BTreeMap::new();
    for mutant in mutants {
        cells.entry((mutant.file.clone(), mutant.kind)).or_default().push(mutant);
    }
    let mut cells: Vec<Vec<Mutant>> = cells.into_values().collect();
    for cell in &mut cells {
        random.shuffle(cell);
    }
    let mut ordered = Vec::new();
    while !cells.is_empty() {
        random.shuffle(&mut cells);
        ordered.extend(cells.iter_mut().filter_map(Vec::pop));
        cells.retain(|cell| !cell.is_empty());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::mutants;
    use std::collections::BTreeSet;

    fn many() -> Vec<Mutant> {
        let body = "fn f() -> Never { a < b; c < d; e < f; x && y; }";
        ["a.rs", "b.rs"].into_iter().flat_map(|file| mutants(file, body).expect("Rust")).collect()
    }

    #[test]
    fn every_file_and_kind_comes_before_any_comes_twice() {
        let all = many();
        let ordered = ordered(all.clone(), 7);
        assert_eq!(ordered.len(), all.len());
        let cells = |mutants: &[Mutant]| -> BTreeSet<(String, Kind)> {
            mutants.iter().map(|mutant| (mutant.file.clone(), mutant.kind)).collect()
        };
        let number = cells(&all).len();
        assert_eq!(cells(&ordered[..number]).len(), number);
    }

    #[test]
    fn a_seed_decides_the_order() {
        assert_eq!(ordered(many(), 7), ordered(many(), 7));
        assert_ne!(ordered(many(), 7), ordered(many(), 8));
    }
}
