//! `cargo xtask test`: check, the release build, end to end, and bounded slices of the long proofs.
//!
//! The seed of the slices comes from the commit, so that every commit tests something new and any run can be repeated.
//! Knows nothing of: the subjects of the proofs.

use crate::check;
use crate::commands::misused;
use crate::prebuild;
use crate::proofs;
use crate::rigs;
use crate::shell::{self, Failure, cargo, run_logged};
use crate::stage::{self, Stage, Tally};
use crate::tools::{self, Tool};
use std::path::Path;
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
        next: "cargo xtask test --only e2e, or cargo test -p kattu-e2e <file>::<name>",
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
        next: "cargo test --profile proof -p kattu-wal --test wal -- crash:: images:: truth::",
        needs: &[],
        run: crash_images,
    },
    Stage {
        name: "situations",
        about: "simulated clusters in situations that are arranged, one for each question",
        next: "cargo test --profile proof -p kattu-sim --test situations",
        needs: &[],
        run: crate::storms::situations,
    },
    Stage {
        name: "courses",
        about: "simulated clusters take the same course in debug and optimized builds",
        next: "target/proof/kattu-sim --seed <seed> --hash, with the seed named above",
        needs: &[],
        run: |log| crate::storms::courses(seed_of_commit(), log),
    },
    Stage {
        name: "storms",
        about: "simulated clusters in storms of faults, seeds from the commit",
        next: "the command printed above, after `replay:`",
        needs: &[],
        run: |log| crate::storms::fresh(seed_of_commit(), log),
    },
    Stage {
        name: "service",
        about: "simulated clusters with one slow follower or busy disks, judged by how well they serve; seeds from the commit",
        next: "the command printed above, after `replay:`",
        needs: &[],
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
        run: |log| crate::explore::slice(log, prebuild::end),
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
        run: crate::fuzz::slice,
    },
];

/// `cargo xtask test [--only STAGE] [--list]`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let all: Vec<&Stage> = check::STAGES.iter().chain(SLICES).collect();
    match words {
        [] => {
            BESIDE.store(true, Ordering::Relaxed);
            prebuild::allow();
            let ended = stage::run_all(&all);
            prebuild::end();
            ended
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
    build_release(log)?;
    Ok(Tally::one())
}

/// The product.
pub fn build_release(log: &Path) -> Result<(), Failure> {
    run_logged(&mut cargo(&["build", "--locked", "--release", "-p", "kattu"]), log, BUILD_LIMIT)
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
    let mut test = proofs::test(proofs::WAL);
    test.args(["--", "crash::", "images::", "truth::"]).env("KATTU_IMAGES", "20000");
    check::cargo_test(&mut test, log, IMAGES_LIMIT)
}
