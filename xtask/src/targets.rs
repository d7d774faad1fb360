//! Tests and programs of the workspace, by their names in cargo.
//!
//! Rule: for any part of the tests, all crates are selected, and the part is named. Then shared crates have the
//!       same features, and are built once.
//! Knows nothing of: the subjects of the tests.

use crate::shell::{self, Failure, cargo};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Names of targets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Files of tests.
    pub tests: Vec<String>,
    /// Programs.
    pub programs: Vec<String>,
}

/// Cargo on all crates.
pub fn select(verb: &str) -> Command {
    cargo(&[verb, "--locked", "--workspace"])
}

/// The names of targets in the crates for which `is_wanted` holds.
///
/// # Errors
/// If cargo cannot list them, or if a test has the same name as one of an unwanted crate: cargo would run both.
pub fn names(is_wanted: impl Fn(&str) -> bool) -> Result<Names, Failure> {
    let metadata =
        shell::output(&mut cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]), LIMIT)?;
    let metadata = serde_json::from_str(&metadata)
        .map_err(|error| Failure::new(format!("`cargo metadata` printed no JSON: {error}")))?;
    let wanted = names_in(&metadata, &is_wanted);
    let others = names_in(&metadata, |name| !is_wanted(name));
    match wanted.tests.iter().find(|name| others.tests.contains(name)) {
        Some(name) => Err(Failure::new(format!("two tests are called `{name}`")).then("rename one of them")),
        None => Ok(wanted),
    }
}

fn names_in(metadata: &Value, is_wanted: impl Fn(&str) -> bool) -> Names {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let mut names = Names::default();
    for package in list(metadata, "packages").iter().filter(|it| it["name"].as_str().is_some_and(&is_wanted))
    {
        for target in list(package, "targets") {
            let name = target["name"].as_str().unwrap_or_default().to_string();
            match target["kind"][0].as_str() {
                Some("test") => names.tests.push(name),
                Some("bin") => names.programs.push(name),
                _ => {}
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rigs;

    #[test]
    fn names_are_those_of_the_crates_that_are_wanted() {
        let metadata = r#"{"packages": [
            {"name": "a", "targets": [{"name": "a", "kind": ["lib"]}, {"name": "of_a", "kind": ["test"]}]},
            {"name": "b", "targets": [{"name": "b", "kind": ["bin"]}, {"name": "of_b", "kind": ["test"]}]}]}"#;
        let metadata = serde_json::from_str(metadata).expect("JSON");
        let of_b = Names { tests: vec!["of_b".to_string()], programs: vec!["b".to_string()] };
        assert_eq!(names_in(&metadata, |name| name == "b"), of_b);
    }

    #[test]
    fn no_test_of_a_rig_is_called_like_another() {
        let names = names(|name| rigs::CRATES.contains(&name)).expect("names of their own");
        assert!(names.tests.contains(&"e2e".to_string()), "{names:?}");
        assert!(names.programs.contains(&"kattu-chaos".to_string()), "{names:?}");
    }
}
