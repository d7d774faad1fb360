//! `cargo xtask bench`: what Kattu costs, next to etcd on the same machine.
//!
//! Knows nothing of: how servers work; it starts real ones and reads `/proc`.

mod cells;
mod cluster;
mod counts;
mod digest;
mod floor;
mod instructions;
mod memory;
mod meter;
mod pairs;
mod pause;
mod replay;
mod report;
mod rotation;
mod sectors;

use crate::shell::Failure;

/// `cargo xtask bench etcd|comeback|counts|digest|failover|floods|floor|heavy|instructions|memory|overload|replay|rotation|sectors|slow-link|snapshot-pause|soak …`
pub fn run(words: &[&str]) -> Result<(), Failure> {
    match words {
        ["etcd", rest @ ..] => pairs::run(rest),
        ["comeback", rest @ ..] => crate::test::comeback(rest),
        ["counts", rest @ ..] => counts::run(rest),
        ["digest", rest @ ..] => digest::run(rest),
        ["failover", rest @ ..] => crate::test::gaps(rest),
        ["floods", rest @ ..] => crate::test::floods(rest),
        ["floor", rest @ ..] => floor::run(rest),
        ["heavy", rest @ ..] => crate::test::heavy(rest),
        ["instructions", rest @ ..] => instructions::run(rest),
        ["memory", rest @ ..] => memory::run(rest),
        ["overload", rest @ ..] => crate::test::overload(rest),
        ["replay", rest @ ..] => replay::run(rest),
        ["rotation", rest @ ..] => rotation::run(rest),
        ["sectors", rest @ ..] => sectors::run(rest),
        ["slow-link", rest @ ..] => crate::chaos::run("slow-link", rest),
        ["soak", rest @ ..] => crate::test::soak(rest),
        ["snapshot-pause", rest @ ..] => pause::run(rest),
        _ => Err(Failure::usage(format!("cargo xtask bench does not know `{}`", words.join(" "))).then(
            "cargo xtask bench etcd [--pairs N] [--quick] [--only CELL] [--side etcd|kattu], \
                   cargo xtask bench comeback [--keys N], cargo xtask bench counts [--total PUTS], cargo xtask bench digest [--total PUTS], cargo xtask bench failover [--trials N] [--target etcd], \
                   cargo xtask bench floor, cargo xtask bench heavy [--scale PERCENT] [--only REQUEST], cargo xtask bench instructions [--total PUTS] [--rounds N] [--against PATH], cargo xtask bench memory [--keys N], cargo xtask bench overload [--seconds N], cargo xtask bench replay [--total PUTS], cargo xtask bench rotation [--rounds N] [--total PUTS], cargo xtask bench sectors [--rounds N] [--total PUTS], \
                   cargo xtask bench slow-link [--mb N] [--bandwidth MB/S] [--reads yes|no] [--resets yes|no], \
                   cargo xtask bench snapshot-pause [--keys N], cargo xtask bench soak [--minutes N]",
        )),
    }
}
