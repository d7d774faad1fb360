//! Dependency arrows: the crates on which each crate may depend. [ARCHITECTURE.md, the plan]
//!
//! In:   every manifest of the workspace, and every source file for paths that leave its crate.
//! Out:  each arrow that points upward or is not in the table, with its line and the remedy; what `paths` and `simulator`
//!       find.
//! Rule: of our crates, a crate may depend only on those beside it in the table; core crates (`core/`) depend on no
//!       third-party crate, except in their tests.
//! Knows nothing of: the code of the crates, but for what `paths` and `simulator` look for.

mod paths;
mod simulator;

use crate::shell::{self, Failure};
use std::path::Path;

struct Crate {
    name: &'static str,
    /// Crates of ours that it may depend on.
    may_know: &'static [&'static str],
    /// Third-party crates that must not appear.
    never: &'static [&'static str],
}

/// Third-party crates that core crates may use in their tests.
const CORE_DEV: &[&str] = &["proptest", "goldenscript", "crc32c"];
const ASYNC: &[&str] = &["tokio", "tonic", "hyper", "hyper-util", "axum", "futures", "async-trait"];
const ETCD: &[&str] = &["tonic", "prost", "axum", "hyper", "hyper-util"];

/// Lowest first: a crate may depend only on crates above it in this table.
const CRATES: &[Crate] = &[
    Crate { name: "kattu-raft", may_know: &[], never: &[] },
    Crate { name: "kattu-kv", may_know: &[], never: &[] },
    Crate { name: "kattu-node", may_know: &["kattu-raft", "kattu-kv"], never: &[] },
    Crate { name: "kattu-wire", may_know: &["kattu-raft", "kattu-kv", "kattu-node"], never: &[] },
    Crate {
        name: "kattu-native",
        may_know: &["kattu-wire", "kattu-kv", "kattu-node", "kattu-raft"],
        never: &[],
    },
    Crate { name: "kattu-wal", may_know: &["kattu-wire", "kattu-raft", "kattu-node"], never: ASYNC },
    Crate {
        name: "kattu-rebuild",
        may_know: &["kattu-wal", "kattu-node", "kattu-raft", "kattu-kv"],
        never: ASYNC,
    },
    Crate {
        name: "kattu-member",
        may_know: &["kattu-wal", "kattu-wire", "kattu-node", "kattu-raft", "kattu-kv"],
        never: ASYNC,
    },
    Crate { name: "kattu-proto", may_know: &[], never: &[] },
    Crate { name: "kattu-tls", may_know: &[], never: &[] },
    Crate {
        name: "kattu-runtime",
        may_know: &[
            "kattu-rebuild",
            "kattu-member",
            "kattu-tls",
            "kattu-node",
            "kattu-wire",
            "kattu-wal",
            "kattu-raft",
            "kattu-kv",
        ],
        never: ETCD,
    },
    Crate {
        name: "kattu-server",
        may_know: &[
            "kattu-runtime",
            "kattu-tls",
            "kattu-rebuild",
            "kattu-native",
            "kattu-wire",
            "kattu-proto",
            "kattu-node",
            "kattu-kv",
            "kattu-raft",
            "kattu-wal",
        ],
        never: &[],
    },
    Crate { name: "kattu-output", may_know: &[], never: ASYNC },
    // Bytes of commands in sessions are made by the node's crate; the peers' core is for its tests.
    Crate {
        name: "kattu-client",
        may_know: &[
            "kattu-native",
            "kattu-wire",
            "kattu-proto",
            "kattu-tls",
            "kattu-node",
            "kattu-kv",
            "kattu-raft",
        ],
        never: &[],
    },
    Crate { name: "kattu-random", may_know: &[], never: ASYNC },
    // The generator is for its tests.
    Crate {
        name: "kattu-verify",
        may_know: &["kattu-random", "kattu-raft", "kattu-kv", "kattu-node"],
        never: ASYNC,
    },
    // Worlds for tests. The crates that they are worlds of are tested in them: see TESTED_IN.
    Crate { name: "kattu-disk", may_know: &["kattu-wal", "kattu-wire", "kattu-raft"], never: ASYNC },
    Crate { name: "kattu-peers", may_know: &["kattu-raft"], never: ASYNC },
    Crate { name: "kattu-replicas", may_know: &["kattu-raft", "kattu-kv", "kattu-node"], never: ASYNC },
    // Wrong code as data, and the choice between wrong and right; the product knows neither.
    Crate { name: "kattu-plant", may_know: &[], never: &[] },
    Crate { name: "kattu-mutants", may_know: &[], never: ASYNC },
    Crate { name: "kattu-mutation", may_know: &["kattu-mutants", "kattu-random"], never: ASYNC },
    Crate { name: "kattu-explore", may_know: &["kattu-raft", "kattu-plant", "kattu-mutants"], never: ASYNC },
    Crate {
        name: "kattu-sim",
        may_know: &[
            "kattu-random",
            "kattu-verify",
            "kattu-disk",
            "kattu-peers",
            "kattu-rebuild",
            "kattu-member",
            "kattu-wal",
            "kattu-wire",
            "kattu-node",
            "kattu-kv",
            "kattu-raft",
        ],
        never: ASYNC,
    },
    Crate {
        name: "kattu-bugs",
        may_know: &[
            "kattu-plant",
            "kattu-mutants",
            "kattu-sim",
            "kattu-disk",
            "kattu-peers",
            "kattu-replicas",
            "kattu-verify",
            "kattu-wal",
            "kattu-wire",
            "kattu-node",
            "kattu-kv",
            "kattu-raft",
        ],
        never: ASYNC,
    },
    Crate {
        name: "kattu-rig",
        may_know: &["kattu-random", "kattu-verify", "kattu-client", "kattu-proto", "kattu-tls", "kattu-wire"],
        never: &[],
    },
    Crate { name: "kattu-differential", may_know: &["kattu-rig", "kattu-random", "kattu-proto"], never: &[] },
    // It may use the log, because only that can write valid files with false content, the client, whose sessions it judges, and
    // the native protocol, because no client is as greedy as a flood.
    Crate {
        name: "kattu-e2e",
        may_know: &[
            "kattu-rig",
            "kattu-random",
            "kattu-verify",
            "kattu-client",
            "kattu-native",
            "kattu-proto",
            "kattu-mutants",
            "kattu-wal",
        ],
        never: &[],
    },
    Crate {
        name: "kattu-chaos",
        may_know: &["kattu-rig", "kattu-random", "kattu-verify", "kattu-proto"],
        never: &[],
    },
    Crate { name: "kattu-power", may_know: &["kattu-rig", "kattu-random", "kattu-verify"], never: &[] },
    Crate {
        name: "kattu-fuzz",
        may_know: &[
            "kattu-disk",
            "kattu-peers",
            "kattu-native",
            "kattu-wire",
            "kattu-wal",
            "kattu-raft",
            "kattu-node",
            "kattu-kv",
            // For what reads a client's bytes in front of the HTTP/2 library.
            "kattu-server",
        ],
        never: ASYNC,
    },
    Crate {
        name: "kattu-verbs",
        may_know: &[
            "kattu-server",
            "kattu-tls",
            "kattu-client",
            "kattu-output",
            "kattu-runtime",
            "kattu-wal",
            "kattu-wire",
            "kattu-proto",
            "kattu-node",
            "kattu-kv",
            "kattu-raft",
        ],
        never: &[],
    },
    Crate { name: "kattu", may_know: &["kattu-verbs", "kattu-runtime"], never: &[] },
    Crate { name: "kattu-simulator", may_know: &["kattu-sim", "kattu-output"], never: ASYNC },
    // A model of replication. It knows nothing of Kattu's own.
    Crate { name: "kattu-petri", may_know: &["kattu-random"], never: ASYNC },
    Crate {
        name: "kattu-lab",
        may_know: &[
            "kattu-petri",
            "kattu-rig",
            "kattu-replicas",
            "kattu-random",
            "kattu-output",
            "kattu-node",
            "kattu-kv",
            "kattu-raft",
        ],
        never: ASYNC,
    },
    Crate { name: "xtask", may_know: &[], never: &[] },
];

/// Crates that stand below a world, with the world that their tests run in: a development dependency, which no build of
/// the product has.
const TESTED_IN: &[(&str, &str)] = &[
    ("kattu-raft", "kattu-peers"),
    ("kattu-node", "kattu-replicas"),
    ("kattu-wal", "kattu-disk"),
    ("kattu-member", "kattu-disk"),
    ("kattu-runtime", "kattu-disk"),
];

/// Judges every manifest and every path; `Err` lists all wrong arrows.
pub fn judge() -> Result<usize, Failure> {
    let manifests = manifests()?;
    let mut wrong = Vec::new();
    for path in &manifests {
        let text = std::fs::read_to_string(path)?;
        let shown = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
        wrong.extend(judge_manifest(&shown, &text));
        wrong.extend(paths::judge(&shell::root(), path.parent().unwrap_or(path))?);
    }
    wrong.extend(simulator::judge()?);
    if wrong.is_empty() {
        return Ok(manifests.len());
    }
    Err(Failure::new(wrong.join("\n"))
        .then("move the code to a crate that may depend on it, or argue for the arrow in docs/decisions/ and add it to xtask/src/arrows.rs; for the simulator, do as the line says, or change xtask/src/arrows/simulator.rs"))
}

/// Manifests of all members, and of `proof/fuzz`, which is a workspace of its own.
fn manifests() -> Result<Vec<std::path::PathBuf>, Failure> {
    let root = shell::root();
    let table = parse(&root.join("Cargo.toml"))?;
    let members = table.get("workspace").and_then(|workspace| workspace.get("members")?.as_array().cloned());
    let members = members.ok_or_else(|| Failure::new("Cargo.toml: no workspace.members"))?;
    let mut paths: Vec<_> = members
        .iter()
        .filter_map(|member| member.as_str())
        .map(|member| root.join(member).join("Cargo.toml"))
        .collect();
    let fuzz = root.join("proof/fuzz/Cargo.toml");
    if fuzz.exists() && !paths.contains(&fuzz) {
        paths.push(fuzz);
    }
    Ok(paths)
}

fn parse(path: &Path) -> Result<toml::Table, Failure> {
    let text = std::fs::read_to_string(path)?;
    text.parse().map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn judge_manifest(path: &str, text: &str) -> Vec<String> {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let name = table.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or("");
    let Some(room) = CRATES.iter().find(|room| room.name == name) else {
        return vec![format!(
            "{path}: crate `{name}` is not in the table; add it to CRATES in xtask/src/arrows.rs"
        )];
    };
    let is_core = path.starts_with("core/");
    let mut wrong = Vec::new();
    for (section, dependency) in dependencies(&table) {
        let is_ours = CRATES.iter().any(|room| room.name == dependency) || dependency.starts_with("kattu");
        let is_dev = section == "dev-dependencies";
        let is_world = is_dev && TESTED_IN.contains(&(name, dependency.as_str()));
        let complaint = if is_ours && !is_world && !room.may_know.contains(&dependency.as_str()) {
            // In dev-dependencies, too: a crate tests itself against a higher one only where a table allows it.
            Some(format!("`{name}` must not depend on `{dependency}` (allowed: {})", list(room.may_know)))
        } else if !is_ours && is_core && !(is_dev && CORE_DEV.contains(&dependency.as_str())) {
            Some(format!(
                "core crates depend on no third-party crate; `{dependency}` is not allowed in [{section}]"
            ))
        } else if room.never.contains(&dependency.as_str()) {
            Some(format!("`{name}` must not depend on `{dependency}`"))
        } else {
            None
        };
        if let Some(complaint) = complaint {
            let (number, line) = line_of(text, &dependency);
            wrong.push(format!("{path}:{number}: {complaint}\n    {line}"));
        }
    }
    wrong
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none of ours".to_string() } else { names.join(", ") }
}

/// (section, crate) pairs, target-specific sections included.
fn dependencies(table: &toml::Table) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut tables = vec![table];
    if let Some(targets) = table.get("target").and_then(|targets| targets.as_table()) {
        tables.extend(targets.values().filter_map(|target| target.as_table()));
    }
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(entries) = table.get(section).and_then(|entries| entries.as_table()) else { continue };
            for (key, value) in entries {
                // `alias = { package = "name" }` is the crate `name`.
                let name = value.get("package").and_then(|package| package.as_str()).unwrap_or(key);
                found.push((section, name.to_string()));
            }
        }
    }
    found
}

fn line_of<'t>(text: &'t str, dependency: &str) -> (usize, &'t str) {
    let position = text.lines().position(|line| {
        let line = line.trim_start();
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '=', '.']))
            || line.contains(&format!("package = \"{dependency}\""))
    });
    let position = position.unwrap_or(0);
    (position + 1, text.lines().nth(position).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrow_of_the_table_points_downward() {
        for (place, room) in CRATES.iter().enumerate() {
            for known in room.may_know {
                let below = CRATES.iter().position(|other| other.name == *known);
                assert!(below.is_some_and(|below| below < place), "{} -> {known}", room.name);
            }
        }
    }

    #[test]
    fn an_upward_arrow_is_named_with_its_line() {
        let text = "[package]\nname = \"kattu-raft\"\n\n[dependencies]\nkattu-node = { workspace = true }\n";
        let wrong = judge_manifest("core/raft/Cargo.toml", text);
        assert_eq!(wrong.len(), 1);
        assert!(
            wrong[0].starts_with("core/raft/Cargo.toml:5: `kattu-raft` must not depend on `kattu-node`"),
            "{}",
            wrong[0]
        );
    }

    #[test]
    fn core_takes_no_crate_of_others_except_to_test_itself() {
        let with = |section: &str, name: &str| {
            let text = format!("[package]\nname = \"kattu-kv\"\n[{section}]\n{name} = \"1\"\n");
            judge_manifest("core/kv/Cargo.toml", &text).len()
        };
        assert_eq!(with("dependencies", "serde"), 1);
        assert_eq!(with("dependencies", "proptest"), 1);
        assert_eq!(with("dev-dependencies", "proptest"), 0);
        assert_eq!(with("dev-dependencies", "tokio"), 1);
        assert_eq!(with("target.'cfg(unix)'.dependencies", "rustix"), 1);
    }

    #[test]
    fn a_world_is_known_to_tests_only() {
        let with = |section: &str| {
            let text =
                format!("[package]\nname = \"kattu-raft\"\n[{section}]\nkattu-peers.workspace = true\n");
            judge_manifest("core/raft/Cargo.toml", &text).len()
        };
        assert_eq!(with("dev-dependencies"), 0);
        assert_eq!(with("dependencies"), 1);
        assert_eq!(with("build-dependencies"), 1);
    }

    #[test]
    fn a_renamed_or_unknown_crate_does_not_slip_through() {
        let text = "[package]\nname = \"kattu-raft\"\n[dependencies]\nstore = { package = \"kattu-kv\", path = \"../kv\" }\n";
        assert_eq!(judge_manifest("core/raft/Cargo.toml", text).len(), 1);
        let text = "[package]\nname = \"kattu-attic\"\n";
        assert_eq!(judge_manifest("shell/attic/Cargo.toml", text).len(), 1);
    }
}
