//! `cargo xtask diff`: runs episodes side by side and reports.
//!
//! Knows nothing of: requests and answers; the library does.

use kattu_differential::call::Call;
use kattu_differential::episode::{self, Outcome, Setup, Unexplained};
use kattu_differential::server::System;
use kattu_differential::{reduce, rules};
use kattu_rig::target::Target;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const USAGE: &str = "\
cargo xtask diff [options]

  --requests N     how many (20000)
  --seed S         decides the requests (1)
  --episode E      only this episode
  --episode-size N requests per episode, each on fresh servers (5000)
  --lanes N        episodes at a time (2 per core)
  --etcd PATH      etcd's server (target/tools/etcd34/etcd)
  --kattu PATH     Kattu (target/release/kattu)
  --against-etcd PATH  another etcd in Kattu's place
  --rules PATH     explained differences (docs/compatibility.md)
  --data DIR       where servers keep data (/dev/shm if there, else target/differential)
  --replay FILE    the requests of this file instead of seeded ones
  --plant N        falsify every Nth answer of Kattu's: the run must fail
";

struct Options {
    setup: Setup,
    requests: u64,
    seed: u64,
    episode: Option<u64>,
    episode_size: u64,
    lanes: usize,
    replay: Option<PathBuf>,
    root: PathBuf,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match &options.replay {
        Some(file) => replay(&options, file),
        None => run(&options),
    };
    let _ = std::fs::remove_dir_all(&options.setup.data);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").ok_or_else(|| format!("`{word}` is no option"))?;
        let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
        given.insert(name.to_string(), value);
    }
    let mut path = |name: &str| given.remove(name).map(PathBuf::from);
    let tools =
        std::env::var_os("KATTU_TOOLS").map(PathBuf::from).unwrap_or_else(|| root.join("target/tools"));
    let built =
        std::env::var_os("KATTU_BIN").map(PathBuf::from).unwrap_or_else(|| root.join("target/release/kattu"));
    let etcd = path("etcd").unwrap_or_else(|| tools.join("etcd34/etcd"));
    let kattu = path("kattu");
    let right = match path("against-etcd") {
        Some(program) => System { target: Target::Etcd, program },
        None => System { target: Target::Kattu, program: kattu.unwrap_or(built) },
    };
    let rules_path = path("rules").unwrap_or_else(|| root.join("docs/compatibility.md"));
    let shared_memory = Path::new("/dev/shm");
    // Durability is not compared here; in memory the same requests take a third of the time.
    let data = path("data").unwrap_or_else(|| {
        let name = format!("kattu-differential-{}", std::process::id());
        if shared_memory.is_dir() { shared_memory.join(name) } else { root.join("target").join(name) }
    });
    let replay = path("replay");
    let page =
        std::fs::read_to_string(&rules_path).map_err(|error| format!("{}: {error}", rules_path.display()))?;
    let rules = rules::parse(&page).map_err(|error| format!("{}: {error}", rules_path.display()))?;
    let mut number = |name: &str, default: u64| match given.remove(name) {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|_| format!("--{name} {text}: not a number")),
    };
    let requests = number("requests", 20_000)?;
    let seed = number("seed", 1)?;
    let episode_size = number("episode-size", 5_000)?.max(1);
    let cores = std::thread::available_parallelism().map(usize::from).unwrap_or(1);
    let lanes = number("lanes", 2 * cores as u64)?.clamp(1, 64) as usize;
    let episode = number("episode", u64::MAX)?;
    let plant = number("plant", 0)?;
    if let Some(name) = given.keys().next() {
        return Err(format!("--{name} is no option"));
    }
    let bad_sorts_everywhere = !version(&etcd).contains(" 3.4.");
    let left = System { target: Target::Etcd, program: etcd };
    for System { target, program } in [&left, &right] {
        if !program.exists() {
            let next = match target {
                Target::Etcd => "cargo xtask tools",
                Target::Kattu => "cargo build --release",
            };
            return Err(format!("{} is not there; run `{next}`", program.display()));
        }
    }
    let plant_every = (plant != 0).then_some(plant);
    let setup = Setup { left, right, data, bad_sorts_everywhere, rules, plant_every };
    let episode = (episode != u64::MAX).then_some(episode);
    Ok(Options { setup, requests, seed, episode, episode_size, lanes, replay, root })
}

/// The version that an etcd reports.
fn version(program: &Path) -> String {
    let answer = std::process::Command::new(program).arg("--version").output();
    answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

fn run(options: &Options) -> Result<(), String> {
    let episodes: Vec<(u64, u64)> = match options.episode {
        Some(episode) => vec![(episode, options.requests.min(options.episode_size))],
        None => (0..options.requests.div_ceil(options.episode_size))
            .map(|episode| {
                (episode, options.episode_size.min(options.requests - episode * options.episode_size))
            })
            .collect(),
    };
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let outcomes: Mutex<Vec<(u64, Result<Outcome, String>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.lanes.min(episodes.len()) {
            scope.spawn(|| {
                while let Some((episode, size)) = episodes.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    let outcome = runtime().and_then(|rt| {
                        rt.block_on(episode::run(&options.setup, options.seed, *episode, *size))
                    });
                    let is_good = matches!(&outcome, Ok(Outcome { unexplained: None, .. }));
                    outcomes.lock().expect("no lane panics with the lock").push((*episode, outcome));
                    if !is_good {
                        // One difference is enough to look at.
                        next.store(episodes.len() as u64, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no lane panicked");
    outcomes.sort_by_key(|(episode, _)| *episode);
    report(&outcomes, begun.elapsed().as_secs_f64());
    for (episode, outcome) in outcomes {
        let repeat = format!(
            "cargo xtask diff --seed {} --episode {episode} --requests {size} --episode-size {size}",
            options.seed,
            size = options.episode_size
        );
        match outcome {
            Ok(Outcome { unexplained: None, .. }) => {}
            Ok(Outcome { unexplained: Some(unexplained), .. }) => {
                return Err(explain(options, episode, &unexplained, &repeat)?);
            }
            Err(error) => return Err(format!("episode {episode}: {error}\nrepeat: {repeat}")),
        }
    }
    Ok(())
}

fn report(outcomes: &[(u64, Result<Outcome, String>)], seconds: f64) {
    let mut requests = 0;
    let mut calls: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    for outcome in outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()) {
        requests += outcome.requests;
        for (name, (all, refused)) in &outcome.calls {
            let sum = calls.entry(name).or_default();
            *sum = (sum.0 + all, sum.1 + refused);
        }
        for (id, times) in &outcome.rules_used {
            *used.entry(id).or_default() += times;
        }
    }
    println!("{requests} requests in {seconds:.1} s ({:.0}/s)", requests as f64 / seconds);
    for (name, (all, refused)) in calls {
        println!("  {name:<8} {all:>8}, of which etcd refused {refused}");
    }
    if used.is_empty() {
        println!("  no difference");
    }
    for (id, times) in used {
        println!("  differences explained by {id}: {times}");
    }
}

fn show(differences: &[kattu_differential::compare::Difference]) -> String {
    differences.iter().map(|difference| format!("  {difference}\n")).collect()
}

fn explain(
    options: &Options,
    episode: u64,
    unexplained: &Unexplained,
    repeat: &str,
) -> Result<String, String> {
    let last = unexplained.history.last().map(Call::to_string).unwrap_or_default();
    let mut text = format!(
        "episode {episode}, request {}: no rule of docs/compatibility.md explains\n{}asked: {last}\n",
        unexplained.history.len(),
        show(&unexplained.differences)
    );
    eprintln!("{text}\nshortening the history …");
    let shortened = runtime()?.block_on(reduce::shorten(&options.setup, &unexplained.history))?;
    let (history, what) = match shortened {
        Some(history) => (history, "a short history that shows a difference"),
        None => (unexplained.history.clone(), "it did not show again on fresh servers; the whole history"),
    };
    let file = options.root.join(format!("target/differential-{}-{episode}.txt", options.seed));
    let lines: Vec<String> = history.iter().map(|call| format!("{} # {call}", call.encode())).collect();
    std::fs::write(&file, lines.join("\n") + "\n").map_err(|error| error.to_string())?;
    text += &format!("{what} ({} requests):\n", history.len());
    for call in history.iter().rev().take(25).rev() {
        text += &format!("  {call}\n");
    }
    if let Ok(Some((_, differences))) = runtime()?.block_on(reduce::replay(&options.setup, &history)) {
        text += &format!("which ends with\n{}", show(&differences));
    }
    let file = file.strip_prefix(&options.root).unwrap_or(&file).display();
    text += &format!("repeat: cargo xtask diff --replay {file}\nrepeat: {repeat}");
    Ok(text)
}

fn replay(options: &Options, file: &Path) -> Result<(), String> {
    let path = if file.is_absolute() { file.to_path_buf() } else { options.root.join(file) };
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut history = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        history
            .push(Call::parse(line).map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))?);
    }
    match runtime()?.block_on(reduce::replay(&options.setup, &history))? {
        None => {
            println!("{} requests, no unexplained difference", history.len());
            Ok(())
        }
        Some((place, differences)) => {
            Err(format!("request {place}: {}\n{}", history[place - 1], show(&differences)))
        }
    }
}
