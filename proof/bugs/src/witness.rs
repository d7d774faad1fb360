//! Witnesses: for each bug, the first seed that showed it.
//!
//! `proof/bugs/witnesses.txt` holds a line `name seed` per bug, written by `cargo xtask bugs --write`.
//! Knows nothing of: what a seed does.

use crate::trial::Finding;
use kattu_mutants::Bug;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn path() -> PathBuf {
    crate::root().join("proof/bugs/witnesses.txt")
}

/// The seed on record of each bug.
///
/// # Errors
/// If the file is not there or a line is no witness.
pub fn read() -> Result<BTreeMap<String, u64>, String> {
    let path = path();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let witness = |(number, line): (usize, &str)| {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let seed = parts.get(1).and_then(|seed| seed.parse().ok());
        match (parts.len(), seed) {
            (2, Some(seed)) => Ok((parts[0].to_string(), seed)),
            _ => Err(format!("{}:{}: not a name and a seed: {line}", path.display(), number + 1)),
        }
    };
    lines.map(witness).collect()
}

/// Writes the seeds that were found; a bug without one keeps none.
///
/// # Errors
/// The system's.
pub fn write(rows: &[(&'static Bug, Option<Finding>)]) -> std::io::Result<()> {
    let mut text =
        String::from("# The first seed that shows each planted bug; made by `cargo xtask bugs --write`.\n");
    for (bug, caught) in rows {
        if let Some(finding) = caught {
            text += &format!("{} {}\n", bug.name, finding.seed);
        }
    }
    std::fs::write(path(), text)
}
