//! `cargo xtask coverage`: the lines of `shell/member` that storms execute. [docs/decisions/0058]
//!
//! ```text
//!   kattu-sim, built with counters ── storms ──▶ counts ── llvm-profdata, llvm-cov ──▶ lines of each file
//! ```
//! Out:   for each file its lines, those executed, and where the others stand; the functions that no storm can execute, with the
//!        reason.
//! Rules: 1. At least [`PERCENT_MIN`] of the lines that storms can come to are executed. What no storm reaches has a judge only in
//!           unit tests.
//!        2. A tenth of the storms have shared settings and sessions, and a tenth a lying member; the others are plain.
//! Knows nothing of: storms, what the lines do.

mod elsewhere;

use crate::commands;
use crate::llvm;
use crate::shell::{self, Failure, cargo, in_foreground};
use elsewhere::{ELSEWHERE, Files};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const SOURCES: &str = "shell/member/src";
/// Of the lines to which storms can come, in all files together; raise this when storms reach more.
const PERCENT_MIN: usize = 94;
/// Other storms than plain ones: a tenth of all, each.
const OTHERS: [&[&str]; 2] = [&["--sessions"], &["--family", "liars"]];

/// `cargo xtask coverage [--storms N] [--seed S]`.
///
/// # Errors
/// A storm fails, or too few lines are executed.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (mut storms, mut seed) = (1000_u64, "0");
    for pair in words.chunks(2) {
        match pair {
            ["--storms", count] => storms = count.parse().map_err(|_| commands::misused("coverage"))?,
            ["--seed", first] => seed = first,
            _ => return Err(commands::misused("coverage")),
        }
    }
    let Some([profdata, cov]) = llvm::tools(["llvm-profdata", "llvm-cov"])? else {
        println!("SKIPPED coverage: {}", llvm::MISSING);
        return Ok(());
    };
    let folder = shell::target().join("coverage");
    let mut build = cargo(&["build", "--locked", "--release", "-p", "kattu-simulator", "--bin", "kattu-sim"]);
    build
        .env("RUSTFLAGS", "-C instrument-coverage")
        .env("CARGO_TARGET_DIR", &folder)
        // Build scripts have counters, too, which count for nothing.
        .env("LLVM_PROFILE_FILE", folder.join("build-%p.profraw"))
        // As quick to build as to run: it is built for one run.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    in_foreground(&mut build)?;
    let program = folder.join("release/kattu-sim");
    let counts = folder.join("storms.profdata");
    let mut merge = Command::new(profdata);
    merge.args(["merge", "--sparse", "-o"]).arg(&counts);
    let tenth = (storms / 10).max(1);
    let plain = storms.saturating_sub(tenth * OTHERS.len() as u64).max(1);
    let kinds = std::iter::once((plain, &[][..])).chain(OTHERS.map(|words| (tenth, words)));
    for (number, (count, words)) in kinds.enumerate() {
        let raw = folder.join(format!("storms-{number}.profraw"));
        let mut sim = Command::new(&program);
        sim.args(["--storms", &count.to_string(), "--minutes", "1", "--seed", seed]).args(words);
        in_foreground(sim.env("LLVM_PROFILE_FILE", &raw))?;
        merge.arg(raw);
    }
    in_foreground(&mut merge)?;
    let mut export = Command::new(cov);
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&counts).arg(&program);
    export.arg("--sources").arg(shell::root().join(SOURCES));
    let told = export.output()?;
    if !told.status.success() {
        return Err(Failure::new(String::from_utf8_lossy(&told.stderr).into_owned()));
    }
    let mut files = files(&String::from_utf8_lossy(&told.stdout));
    let all = files.values().map(BTreeMap::len).sum::<usize>();
    let read = |path: &str| Ok(std::fs::read_to_string(shell::root().join(path))?);
    let (left_out, elsewhere) = elsewhere::take_out(ELSEWHERE, SOURCES, &mut files, read)?;
    let (page, percent) = page(&files);
    print!(
        "{page}{left_out:>6} of {all:>4} lines do not count, because no storm can come to them:\n{elsewhere}"
    );
    match PERCENT_MIN <= percent {
        true => Ok(()),
        false => {
            Err(Failure::new(format!("storms execute {percent} % of {SOURCES}, at least {PERCENT_MIN}"))
                .then("delete what cannot be reached, or let storms reach it"))
        }
    }
}

/// By file, its lines with code: the number of each, and whether it was executed.
fn files(lcov: &str) -> Files {
    let (mut files, mut name) = (Files::new(), String::new());
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path);
            name = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
        } else if let Some(data) = line.strip_prefix("DA:") {
            let mut numbers = data.split(',');
            let mut next = || numbers.next().and_then(|number| number.parse::<u64>().ok());
            if let (Some(at), Some(times)) = (next(), next()) {
                let was_executed = files.entry(name.clone()).or_default().entry(at as usize).or_default();
                *was_executed |= 0 < times;
            }
        }
    }
    files
}

/// The page, and the percentage of all lines, rounded down.
fn page(files: &Files) -> (String, usize) {
    let (mut page, mut all, mut executed) = (String::new(), 0, 0);
    for (name, lines) in files {
        let here = lines.values().filter(|was_executed| **was_executed).count();
        let percent = 100 * here / lines.len().max(1);
        let _ = writeln!(page, "{percent:>4} % of {:>4} lines  {name}{}", lines.len(), others(lines));
        (all, executed) = (all + lines.len(), executed + here);
    }
    let percent = 100 * executed / all.max(1);
    let _ = writeln!(page, "{percent:>4} % of {all:>4} lines");
    (page, percent)
}

/// The lines that are not executed, those that follow each other as one range.
fn others(lines: &BTreeMap<usize, bool>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut goes_on = false;
    for (&at, &was_executed) in lines {
        match ranges.last_mut() {
            Some((_, last)) if goes_on && !was_executed => *last = at,
            _ if !was_executed => ranges.push((at, at)),
            _ => {}
        }
        goes_on = !was_executed;
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => format!(" {first}"),
        false => format!(" {first}-{last}"),
    });
    let shown: String = shown.collect();
    if shown.is_empty() { shown } else { format!(":{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:one.rs\nFN:1,f\nDA:1,5\nDA:2,0\nDA:4,0\nDA:5,1\nDA:9,0\nend_of_record\n\
                        SF:two.rs\nDA:3,1\nend_of_record\nSF:one.rs\nDA:9,2\nend_of_record\n";

    #[test]
    fn lines_that_no_storm_executes_are_named_and_one_that_any_instance_executes_is_not() {
        let (page, percent) = page(&files(LCOV));
        let expected =
            "  60 % of    5 lines  one.rs: 2-4\n 100 % of    1 lines  two.rs\n  66 % of    6 lines\n";
        assert_eq!((page.as_str(), percent), (expected, 66));
    }
}
