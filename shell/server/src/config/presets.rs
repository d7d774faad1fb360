//! Presets: settings under one name, which every other source of settings overrides.
//!
//! They are files of settings like an operator's own, and part of the program.
//! Knows nothing of: what a setting does.

use std::path::PathBuf;

/// Names and settings. The published ones are those that other systems were measured with.
const PRESETS: [(&str, &str); 6] = [
    ("raft", include_str!("../../../../lab/parameters/raft.toml")),
    ("basic-raft", include_str!("../../../../lab/parameters/basic-raft.toml")),
    ("jraft", include_str!("../../../../lab/parameters/jraft.toml")),
    ("raftexample", include_str!("../../../../lab/parameters/raftexample.toml")),
    ("zatt", include_str!("../../../../lab/parameters/zatt.toml")),
    ("logcabin", include_str!("../../../../lab/parameters/logcabin.toml")),
];

/// The settings of a preset, with a name for errors.
pub(super) fn find(name: &str) -> Result<(PathBuf, &'static str), String> {
    let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    let found = PRESETS.iter().find(|(preset, _)| *preset == name);
    let (name, text) = found.ok_or_else(|| format!("{name:?} is not one of {}", names.join(", ")))?;
    Ok((PathBuf::from(format!("lab/parameters/{name}.toml")), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Command, ServeConfig, load_from};
    use kattu_runtime::tuning::{Reads, Threading, Tuning};

    fn preset(name: &str) -> Box<ServeConfig> {
        let args = [format!("--protocol={name}")];
        match load_from(&args, &[], &|_| Err(std::io::ErrorKind::NotFound.into())) {
            Ok(Command::Serve(config, _)) => config,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn every_preset_is_a_configuration_that_works() {
        for (name, _) in PRESETS {
            preset(name);
        }
        assert_eq!(preset("raft").tuning, Tuning::default());
    }

    #[test]
    fn basic_raft_is_all_of_them_off() {
        let tuning = preset("basic-raft").tuning;
        let raft = &tuning.node.raft;
        assert!(!raft.batching && !raft.pipelining && !raft.parallel_append && tuning.node.apply_gate);
        assert_eq!(raft.batch_entries(), 1);
        assert_eq!((tuning.apply, tuning.log_io), (Threading::Inline, Threading::Inline));
        assert_eq!(tuning.reads(), Reads::Log);
        assert!(tuning.node.batch_linger.is_zero());
    }
}
