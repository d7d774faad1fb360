//! Release builds check for arithmetic overflow, in every crate of ours. [decision 42]
//!
//! In:   the manifest of the workspace.
//! Out:  each release profile without the check; each crate of ours that is excepted.
//! Rule: `overflow-checks` is on in `release` and in profiles that inherit from it, and off for no crate of ours: code
//!       of the core that the compiler inlines into another crate has the checks of that crate.
//! Knows nothing of: other settings of profiles.

use crate::shell::{self, Failure};
use toml::{Table, Value};

/// The setting.
const CHECKS: &str = "overflow-checks";

/// Judges the workspace; returns the number of profiles read.
pub fn judge() -> Result<usize, Failure> {
    let table: Table = std::fs::read_to_string(shell::root().join("Cargo.toml"))?
        .parse()
        .map_err(|error| Failure::new(format!("Cargo.toml: {error}")))?;
    match wrong(&table) {
        (count, wrong) if wrong.is_empty() => Ok(count),
        (_, wrong) => {
            Err(Failure::new(wrong.join("\n")).then("set it in Cargo.toml, or argue in docs/decisions/"))
        }
    }
}

/// The number of release profiles, and their errors.
fn wrong(manifest: &Table) -> (usize, Vec<String>) {
    let empty = Table::new();
    let profiles = manifest.get("profile").and_then(Value::as_table).unwrap_or(&empty);
    let is_on = |table: &Value| table.get(CHECKS).and_then(Value::as_bool);
    let inherits = |table: &Value| table.get("inherits").and_then(Value::as_str) == Some("release");
    let (mut count, mut wrong) = (0, Vec::new());
    if !profiles.contains_key("release") {
        wrong.push(format!("Cargo.toml: [profile.release] lacks `{CHECKS} = true`"));
    }
    for (name, profile) in profiles {
        let is_release = name == "release";
        if !is_release && !inherits(profile) {
            continue;
        }
        count += 1;
        // A profile that inherits need not repeat it.
        if is_on(profile) == Some(false) || (is_release && is_on(profile).is_none()) {
            wrong.push(format!("Cargo.toml: [profile.{name}] lacks `{CHECKS} = true`"));
        }
        let packages = profile.get("package").and_then(Value::as_table);
        for (package, table) in packages.unwrap_or(&empty) {
            if package.starts_with("kattu") && is_on(table) == Some(false) {
                wrong.push(format!("Cargo.toml: [profile.{name}.package.{package}] switches `{CHECKS}` off"));
            }
        }
    }
    (count, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str) -> Vec<String> {
        wrong(&manifest.parse().expect("a manifest")).1
    }

    #[test]
    fn a_release_without_checks_is_named_and_so_is_a_crate_of_ours_that_is_excepted() {
        let good = "[profile.release]\noverflow-checks = true\n[profile.release.package.\"*\"]\noverflow-checks = false\n";
        assert_eq!(found(good), Vec::<String>::new());
        assert_eq!(found("[profile.release]\nlto = true\n").len(), 1);
        assert_eq!(found("[profile.dev]\n").len(), 1, "no release at all is one without");
        let inherits = "[profile.proof]\ninherits = \"release\"\n";
        assert_eq!(found(&format!("{good}{inherits}")), Vec::<String>::new());
        assert_eq!(found(&format!("{good}{inherits}{CHECKS} = false\n")).len(), 1);
        let excepted = "[profile.release.package.kattu-kv]\noverflow-checks = false\n";
        assert!(found(&format!("{good}{excepted}"))[0].contains("kattu-kv"));
    }
}
