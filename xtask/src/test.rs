//! `cargo xtask test`: check, the release build, end to end, and bounded slices of the long proofs.
//!
//! The seed of the slices comes from the commit, so that every commit tests something new and any run can be repeated.
//! Knows nothing of: the subjects of the proofs.

use crate::check;
use crate::commands::misused;
use crate::rigs;
use crate::shell::{self, Failure, cargo, run_logged};
use crate::stage::{self, Stage, Tally};
use crate::tools::{self, Tool};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const IMAGES_LIMIT: Duration = Duration::from_secs(2400);
const DIFFERENTIAL_LIMIT: Duration = Duration::from_secs(600);

/// The versions of etcd that Kattu is compared with, and the numbers of requests.
const DIFFERENTIALS: [(&str, &str, &str); 2] =
    [("3.4", "etcd34/etcd", "20000"), ("3.6", "etcd36/etcd", "10000")];
/// Seconds each fuzz target gets.
const FUZZ_SECONDS: u64 = 30;

const SLICES: &[Stage] = &[
    Stage {
        name: "release",
        about: "cargo build --release",
        next: "cargo build --release",
        needs: &[],
        run: release,
    },
    Stage {
        name: "tools",
        about: "third-party programs for tests",
        next: "cargo xtask tools",
        needs: &[],
        run: fetch,
    },
    Stage {
        name: "e2e",
        about: "the real binary, driven from outside; tests of all rigs",
        next: "cargo xtask test --only e2e, or cargo test -p kattu-e2e --test <file> <name>",
        needs: &["release"],
        run: rigs::tests,
    },
    Stage {
        name: "differential",
        about: "the same requests to etcd and to Kattu",
        next: "the command printed above, after `repeat:`",
        needs: &["release"],
        run: differential_slice,
    },
    Stage {
        name: "crash-images",
        about: "every state the disk could be in after power loss",
        next: "cargo test --profile proof -p kattu-wal --test crash --test images --test truth",
        needs: &[],
        run: crash_images,
    },
    Stage {
        name: "regressions",
        about: "seeds that failed once, and the same trace in debug and release",
        next: "kattu sim --seed <seed>, with the seed named above",
        needs: &["release"],
        run: |log| crate::storms::regressions(seed_of_commit(), log),
    },
    Stage {
        name: "storms",
        about: "simulated clusters in storms of faults, seeds from the commit",
        next: "the command printed above, after `replay:`",
        needs: &["release"],
        run: |log| crate::storms::fresh(seed_of_commit(), log),
    },
    Stage {
        name: "service",
        about: "simulated clusters with one slow follower or busy disks, judged by how well they serve; seeds from the commit",
        next: "the command printed above, after `replay:`",
        needs: &["release"],
        run: |log| crate::storms::service(seed_of_commit(), log),
    },
    Stage {
        name: "chaos",
        about: "real clusters in storms of kills, pauses, cuts and bad links",
        next: "the command printed above, after `repeat:`",
        needs: &["release"],
        run: crate::chaos::chaos_slice,
    },
    Stage {
        name: "kills",
        about: "a member killed or failed at its n-th system call",
        next: "the command printed above, after `repeat:`",
        needs: &["release"],
        run: crate::chaos::kills_slice,
    },
    Stage {
        name: "flips",
        about: "bits flipped in the files of members, each repaired or reported",
        next: "the command printed above, after `repeat:`",
        needs: &["release"],
        run: crate::chaos::flips_slice,
    },
    Stage {
        name: "power",
        about: "power loss below a real file system",
        next: "the command printed above, after `repeat:`",
        needs: &["release"],
        run: crate::power::slice,
    },
    Stage {
        name: "explore",
        about: "every interleaving of tiny clusters",
        next: "cargo xtask explore",
        needs: &[],
        run: crate::explore::slice,
    },
    Stage {
        name: "bugs",
        about: "every planted bug is caught by its judge",
        next: "cargo xtask bugs --fast",
        needs: &[],
        run: crate::bugs::slice,
    },
    Stage {
        name: "fuzz",
        about: "frames, records and snapshots of arbitrary bytes",
        next: "the input is in target/fuzz/artifacts; run target/fuzz/<host>/release/<target> on that file",
        needs: &[],
        run: fuzz_slice,
    },
];

/// `cargo xtask test [--only STAGE] [--list]`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let all: Vec<&Stage> = check::STAGES.iter().chain(SLICES).collect();
    match words {
        [] => {
            BESIDE.store(true, Ordering::Relaxed);
            stage::run_all(&all)
        }
        ["--list"] => {
            for stage in &all {
                println!("{:<14} {}", stage.name, stage.about);
            }
            Ok(())
        }
        ["--only", name] => {
            let stage = all.iter().find(|stage| stage.name == *name);
            let stage = stage.ok_or_else(|| {
                Failure::usage(format!("no stage `{name}`")).then("cargo xtask test --list")
            })?;
            let wanted: Vec<&Stage> = all
                .iter()
                .copied()
                .filter(|other| stage.needs.contains(&other.name) || other.name == *name)
                .collect();
            stage::run_all(&wanted)
        }
        _ => Err(misused("test")),
    }
}

/// Third-party programs are fetched during the release build: its last crates leave a processor free.
static BESIDE: AtomicBool = AtomicBool::new(false);
static FETCHING: Mutex<Option<JoinHandle<Vec<Tool>>>> = Mutex::new(None);

fn release(log: &Path) -> Result<Tally, Failure> {
    if BESIDE.load(Ordering::Relaxed) {
        *FETCHING.lock().expect("nobody panics with it") = Some(std::thread::spawn(tools::fetch_all));
    }
    // Separately, as users build them: together they would have other features.
    for package in ["kattu", "kattu-simulator"] {
        run_logged(&mut cargo(&["build", "--locked", "--release", "-p", package]), log, BUILD_LIMIT)?;
    }
    Ok(Tally::one())
}

fn fetch(_log: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let fetching = FETCHING.lock().expect("nobody panics with it").take();
    let fetched = match fetching {
        Some(fetching) => fetching.join().map_err(|_| Failure::new("fetching panicked"))?,
        None => tools::fetch_all(),
    };
    for tool in fetched {
        match tool.state {
            Ok(_) => tally.passed += 1,
            Err(why) => tally.skipped.push(format!("{}: {why}", tool.name)),
        }
    }
    tally.note = format!("{} of {} there", tally.passed, tally.passed + tally.skipped.len());
    Ok(tally)
}

/// A number that is new for every commit and the same on every machine.
pub fn seed_of_commit() -> u64 {
    let id = shell::commit_of("HEAD").unwrap_or_default();
    u64::from_str_radix(id.get(..12).unwrap_or("0"), 16).unwrap_or(0)
}

fn differential_slice(log: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let seed = seed_of_commit().to_string();
    let mut compared = Vec::new();
    for (version, program, requests) in DIFFERENTIALS {
        let program = shell::tools_dir().join(program);
        if !program.exists() {
            tally.skipped.push(format!("etcd {version} against Kattu: no {}", program.display()));
            continue;
        }
        let etcd = program.to_string_lossy();
        let words = ["--requests", requests, "--seed", &seed, "--etcd", &etcd];
        rigs::run("kattu-differential", &words, log, DIFFERENTIAL_LIMIT)?;
        tally.passed += 1;
        compared.push(format!("{requests} with {version}"));
    }
    tally.note = format!("requests: {}; seed {seed}", compared.join(", "));
    Ok(tally)
}

fn crash_images(log: &Path) -> Result<Tally, Failure> {
    let mut test = cargo(&[
        "test",
        "--locked",
        "--profile",
        "proof",
        "-p",
        "kattu-wal",
        "--test",
        "crash",
        "--test",
        "images",
        "--test",
        "truth",
    ]);
    test.env("KATTU_IMAGES", "20000");
    check::cargo_test(&mut test, log, IMAGES_LIMIT)
}

/// Coverage instrumentation for libFuzzer; the stable compiler accepts these flags of LLVM.
const COVERAGE_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

/// The triple of this machine.
fn host() -> Result<String, Failure> {
    let about = shell::output(Command::new("rustc").arg("-vV"), Duration::from_secs(20))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| Failure::new("`rustc -vV` names no host"))
}

/// libFuzzer is compiled from source by the machine's C++ compiler; a target that then does not build is a failure,
/// never a skip.
fn has_cpp_compiler() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    shell::output(Command::new(compiler).arg("--version"), Duration::from_secs(20)).is_ok()
}

fn fuzz_slice(log: &Path) -> Result<Tally, Failure> {
    fuzz(log, FUZZ_SECONDS, None)
}

/// `cargo xtask fuzz [--seconds N] [--only TARGET]`: the same for longer.
pub fn fuzz_long(words: &[&str]) -> Result<(), Failure> {
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

/// `proof/fuzz` is a workspace of its own: its targets need coverage flags that no other build may have.
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
    let host = host()?;
    // With `--target` the coverage flags do not apply to build scripts, which are not linked with libFuzzer.
    let mut build =
        cargo(&["build", "--locked", "--release", "--bins", "--target", &host, "--manifest-path"]);
    build.arg(&manifest).current_dir(&folder).env("CARGO_TARGET_DIR", shell::root().join("target/fuzz"));
    build.env("RUSTFLAGS", COVERAGE_FLAGS);
    run_logged(&mut build, log, BUILD_LIMIT)?;
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
