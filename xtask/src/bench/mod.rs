//! `cargo xtask bench`: Kattu's costs, next to etcd's on the same machine.
//!
//! Knows nothing of: how servers work; it starts real ones and reads `/proc`.

pub mod baseline;
mod cells;
mod cluster;
pub mod costs;
pub mod counts;
pub mod digest;
pub mod instructions;
pub mod memory;
mod meter;
pub mod pairs;
pub mod pause;
pub mod record;
pub mod replay;
mod report;
pub mod rotation;
pub mod sectors;
pub mod tls;
pub mod trend;

use crate::commands;
use crate::rigs;
use crate::shell::{self, Failure};

/// `cargo xtask bench failover …`: how long no put is acknowledged when a leader dies.
pub fn gaps(words: &[&str]) -> Result<(), Failure> {
    let (target, rest) = match words.iter().position(|word| *word == "--target") {
        Some(at) => {
            let target = words.get(at + 1).copied().unwrap_or_default();
            (target, [&words[..at], words.get(at + 2..).unwrap_or(&[])].concat())
        }
        None => ("kattu", words.to_vec()),
    };
    match target {
        "kattu" => rigs::in_foreground("gaps", &rest),
        "etcd" => {
            let etcd = shell::tools_dir().join("etcd36/etcd");
            if !etcd.exists() {
                return Err(Failure::new(format!("no {}", etcd.display())).then("cargo xtask tools"));
            }
            rigs::build_in_foreground()?;
            shell::in_foreground(rigs::program("gaps", &rest, rigs::Purpose::Measure).env("KATTU_BIN", etcd))
        }
        _ => Err(commands::misused("bench failover")),
    }
}
