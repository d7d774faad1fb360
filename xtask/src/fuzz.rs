//! `cargo xtask fuzz`: frames, records, stores and snapshots of arbitrary bytes, and the slice of it that every commit runs.
//!
//! `proof/fuzz` is a workspace of its own: its targets need coverage flags that no other build may have.
//! Knows nothing of: the formats.

use crate::commands::misused;
use crate::llvm;
use crate::shell::{self, Failure, cargo, run_logged};
use crate::stage::Tally;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// Seconds each target gets in the slice.
const SLICE_SECONDS: u64 = 20;

/// Coverage instrumentation for libFuzzer; the stable compiler accepts these flags of LLVM.
const COVERAGE_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

/// libFuzzer is compiled from source by the machine's C++ compiler; a target that then does not build is a failure,
/// never a skip.
fn has_cpp_compiler() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    shell::output(Command::new(compiler).arg("--version"), Duration::from_secs(20)).is_ok()
}

/// A short run of all targets.
pub fn slice(log: &Path) -> Result<Tally, Failure> {
    fuzz(log, SLICE_SECONDS, None)
}

/// `cargo xtask fuzz [--seconds N] [--only TARGET]`: the same for longer.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let (mut seconds, mut only) = (300, None);
    for pair in words.chunks(2) {
        match pair {
            ["--seconds", number] => {
                // libFuzzer takes 0 as no limit.
                let known = number.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
                seconds = known.ok_or_else(|| {
                    Failure::usage(format!("--seconds {number}: not a number from 1 to 86400"))
                })?;
            }
            ["--only", target] => only = Some(*target),
            _ => return Err(misused("fuzz")),
        }
    }
    let log = shell::log_path("fuzz");
    println!("{seconds} s for each target, side by side; libFuzzer's output: {}", log.display());
    let tally = fuzz(&log, seconds, only)?;
    for why in &tally.skipped {
        println!("SKIPPED {why}");
    }
    println!("{}", tally.note);
    Ok(())
}

/// Builds all targets and runs them, or the one called `only`, for so long.
fn fuzz(log: &Path, seconds: u64, only: Option<&str>) -> Result<Tally, Failure> {
    let folder = shell::root().join("proof/fuzz");
    let manifest = folder.join("Cargo.toml");
    let table: toml::Table = std::fs::read_to_string(&manifest)?
        .parse()
        .map_err(|error| Failure::new(format!("proof/fuzz/Cargo.toml: {error}")))?;
    let targets: Vec<String> = table
        .get("bin")
        .and_then(|bins| bins.as_array())
        .map(|bins| bins.iter().filter_map(|bin| bin.get("name")?.as_str().map(str::to_string)).collect())
        .unwrap_or_default();
    if targets.is_empty() {
        return Err(Failure::new("proof/fuzz/Cargo.toml names no [[bin]]"));
    }
    let targets: Vec<String> = match only {
        Some(name) if !targets.iter().any(|target| target == name) => {
            return Err(Failure::usage(format!("no target `{name}`; there are {}", targets.join(", "))));
        }
        Some(name) => vec![name.to_string()],
        None => targets,
    };
    if !has_cpp_compiler() {
        return Ok(Tally::skipped("no C++ compiler (`c++`): libFuzzer is written in C++"));
    }
    build(log)?;
    let host = llvm::host()?;
    // Side by side: each has one thread, and only its running time counts.
    let runs =
        targets.iter().map(|it| fuzz_run(&folder, &host, it, seconds)).collect::<Result<Vec<_>, _>>()?;
    let limit = Duration::from_secs(seconds * 4 + 600); // a corpus that has grown is read first
    std::thread::scope(|scope| {
        let runs = runs.into_iter().map(|mut run| scope.spawn(move || run_logged(&mut run, log, limit)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter().try_for_each(|run| run.join().expect("it does not panic"))
    })?;
    let mut tally = Tally { passed: targets.len(), ..Tally::default() };
    tally.note = format!("{seconds} s each: {}", targets.join(", "));
    Ok(tally)
}

/// All targets; nothing, where they cannot be built.
pub fn build(log: &Path) -> Result<(), Failure> {
    if !has_cpp_compiler() {
        return Ok(());
    }
    let folder = shell::root().join("proof/fuzz");
    // With `--target` the coverage flags do not apply to build scripts, which are not linked with libFuzzer.
    let mut build =
        cargo(&["build", "--locked", "--release", "--bins", "--target", &llvm::host()?, "--manifest-path"]);
    build.arg(folder.join("Cargo.toml")).current_dir(&folder);
    build.env("CARGO_TARGET_DIR", shell::root().join("target/fuzz")).env("RUSTFLAGS", COVERAGE_FLAGS);
    run_logged(&mut build, log, BUILD_LIMIT)
}

/// The golden samples of each target's format: their folder, and the beginning of their names.
const SAMPLES: [(&str, &str, &str); 4] = [
    ("frames", "core/wire/testdata", "frame-"),
    ("records", "core/wire/testdata", "record-"),
    ("wal_block", "shell/wal/testdata", "block-"),
    ("wal_snapshot", "shell/wal/testdata", "snapshot"),
];

/// Writes the golden samples of this target, as bytes, into `to`; returns their number.
fn samples(target: &str, to: &Path) -> Result<usize, Failure> {
    let Some((_, from, prefix)) = SAMPLES.iter().find(|(name, ..)| *name == target) else { return Ok(0) };
    std::fs::create_dir_all(to)?;
    let mut count = 0;
    for sample in std::fs::read_dir(shell::root().join(from))? {
        let sample = sample?.path();
        let name = sample.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with(prefix) || sample.extension().is_none_or(|extension| extension != "hex") {
            continue;
        }
        let text = std::fs::read_to_string(&sample)?;
        let bytes: Result<Vec<u8>, _> =
            text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16)).collect();
        let bytes = bytes.map_err(|error| Failure::new(format!("{}: {error}", sample.display())))?;
        std::fs::write(to.join(name), bytes)?;
        count += 1;
    }
    if count == 0 {
        return Err(Failure::new(format!("no sample {from}/{prefix}*.hex")));
    }
    Ok(count)
}

/// One target on its corpus, on the golden samples and on the seeds in the repository.
fn fuzz_run(folder: &Path, host: &str, target: &str, seconds: u64) -> Result<Command, Failure> {
    let built = shell::root().join("target/fuzz");
    let (corpus, artifacts) = (built.join("corpus").join(target), built.join("artifacts"));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut run = Command::new(built.join(host).join("release").join(target));
    run.arg(&corpus);
    let golden = built.join("samples").join(target);
    if samples(target, &golden)? > 0 {
        run.arg(&golden);
    }
    let seeds = folder.join("seeds").join(target);
    if seeds.exists() {
        run.arg(&seeds);
    }
    run.arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .current_dir(folder);
    Ok(run)
}
