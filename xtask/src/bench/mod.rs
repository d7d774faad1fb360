//! `cargo xtask bench`: what Kattu costs, next to etcd on the same machine.
//!
//! Knows nothing of: how servers work; it starts real ones and reads `/proc`.

mod baseline;
mod cells;
mod cluster;
mod counts;
mod digest;
mod instructions;
mod memory;
mod meter;
mod pairs;
mod pause;
mod replay;
mod report;
mod rotation;
mod sectors;
mod tls;

use crate::rigs;
use crate::shell::{self, Failure};

/// `cargo xtask bench etcd|comeback|counts|digest|failover|floods|baseline|handshakes|heavy|instructions|memory|overload|replay|rotation|sectors|slow-link|snapshot-pause|soak|tail …`
pub fn run(words: &[&str]) -> Result<(), Failure> {
    match words {
        ["etcd", rest @ ..] => pairs::run(rest),
        ["comeback", rest @ ..] => rigs::in_foreground("comeback", rest),
        ["counts", rest @ ..] => counts::run(rest),
        ["digest", rest @ ..] => digest::run(rest),
        ["failover", rest @ ..] => gaps(rest),
        ["floods", rest @ ..] => rigs::in_foreground("floods", rest),
        ["floor", rest @ ..] => baseline::run(rest),
        ["handshakes", rest @ ..] => tls::handshakes(rest),
        ["heavy", rest @ ..] => rigs::in_foreground("heavy", rest),
        ["instructions", rest @ ..] => instructions::run(rest),
        ["memory", rest @ ..] => memory::run(rest),
        ["overload", rest @ ..] => rigs::in_foreground("overload", rest),
        ["replay", rest @ ..] => replay::run(rest),
        ["rotation", rest @ ..] => rotation::run(rest),
        ["sectors", rest @ ..] => sectors::run(rest),
        ["slow-link", rest @ ..] => crate::chaos::run("slow-link", rest),
        ["soak", rest @ ..] => rigs::in_foreground("soak", rest),
        ["tail", rest @ ..] => rigs::in_foreground("tail", rest),
        ["snapshot-pause", rest @ ..] => pause::run(rest),
        _ => Err(Failure::usage(format!("cargo xtask bench does not know `{}`", words.join(" ")))
            .then("cargo xtask help")),
    }
}

/// `cargo xtask bench failover …`: how long nothing is acknowledged when a leader dies.
fn gaps(words: &[&str]) -> Result<(), Failure> {
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
        _ => Err(Failure::usage("--target kattu or --target etcd")),
    }
}
