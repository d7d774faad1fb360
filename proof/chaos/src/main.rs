//! `cargo xtask chaos`, `kills`, `flips` and `bench slow-link`.
//!
//! Chaos restarts itself in a network and a mount namespace of its own where that is allowed, and says so where not.
//! Knows nothing of: how trials work.
#![forbid(unsafe_code)]

use kattu_chaos::campaign::{Settings, chaos, flips, kills};
use kattu_chaos::slow_link;
use kattu_rig::place;
use kattu_rig::target::Target;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime};

const USAGE: &str = "\
cargo xtask chaos|kills|flips [--trials N] [--seed S] [--target kattu|etcd]
  --trials N       how many (20)
  --flips N        how many, flips only (2000)
  --seed S         of the first trial; the others count up (from the clock)
  --target T       kattu, or etcd to see that the judges are fair (kattu)
  --seconds T      about how long a storm lasts, chaos only (8)
  --weak           chaos with weak clients beside all others, some of which die in the storm
  --control        chaos that cheats: every trial must be caught
  --jobs J         trials at once, kills only (2)
  --most T         begin no trial after so many seconds";

const SLOW_LINK_USAGE: &str = "\
cargo xtask bench slow-link [--mb N] [--bandwidth MB/S] [--reads yes|no] [--resets yes|no]
  --mb N           how far behind the follower is (56; at most 60: further behind it is sent a snapshot); with resets as
                   far as its link carries in 12 s, and no snapshots are taken
  --bandwidth B    of its link (10, then 50)
  --reads, --resets   only with, or only without";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = words.split_first()
        && first == "slow-link"
    {
        return match parse_slow_link(rest) {
            Ok(settings) => slow_link::run(&settings),
            Err(why) => {
                eprintln!("{why}\n{SLOW_LINK_USAGE}");
                ExitCode::from(2)
            }
        };
    }
    let (verb, settings) = match parse(&words) {
        Ok(parsed) => parsed,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = settings.target.program() {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    match verb {
        Verb::Kills => {
            println!("kills of {}, seed {}", settings.target.name(), settings.seed);
            kills(&settings)
        }
        Verb::Flips => {
            println!("flips, seed {}", settings.seed);
            flips(&settings)
        }
        Verb::Chaos => {
            if !place::is_inside() {
                println!("chaos on {}, seed {}", settings.target.name(), settings.seed);
                match place::enter() {
                    Ok(mut again) => {
                        // The seed may come from the clock: the second run must not draw another.
                        let seed = settings.seed.to_string();
                        let status = again.args(["--seed", &seed]).stdin(Stdio::null()).status();
                        let code = status
                            .ok()
                            .and_then(|status| status.code())
                            .and_then(|code| u8::try_from(code).ok());
                        return ExitCode::from(code.unwrap_or(1));
                    }
                    Err(why) => println!("SKIPPED network namespaces: {why}"),
                }
            }
            chaos(&settings)
        }
    }
}

enum Verb {
    Chaos,
    Kills,
    Flips,
}

fn parse(words: &[String]) -> Result<(Verb, Settings), String> {
    let (verb, rest) = words.split_first().ok_or("nothing is asked for")?;
    let verb = match verb.as_str() {
        "chaos" => Verb::Chaos,
        "kills" => Verb::Kills,
        "flips" => Verb::Flips,
        other => return Err(format!("`{other}` is neither chaos nor kills nor flips")),
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let jobs = if matches!(verb, Verb::Kills) { 2 } else { 1 };
    let count = if matches!(verb, Verb::Flips) { 2000 } else { 20 };
    let length = Duration::from_secs(8);
    let mut settings = Settings {
        trials: count,
        seed: clock,
        target: Target::Kattu,
        length,
        jobs,
        is_control: false,
        is_weak: false,
        most: None,
    };
    let is_switch = |word: &str| ["--control", "--weak"].contains(&word) && matches!(verb, Verb::Chaos);
    let (switches, rest): (Vec<&String>, Vec<&String>) = rest.iter().partition(|word| is_switch(word));
    settings.is_control = switches.iter().any(|word| *word == "--control");
    settings.is_weak = switches.iter().any(|word| *word == "--weak");
    for pair in rest.chunks(2) {
        let [flag, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number = || value.parse::<u64>().map_err(|_| format!("{flag} {value}: not a number"));
        match flag.as_str() {
            "--trials" if !matches!(verb, Verb::Flips) => settings.trials = number()?.max(1),
            "--flips" if matches!(verb, Verb::Flips) => settings.trials = number()?.max(1),
            "--seed" => settings.seed = number()?,
            "--seconds" => settings.length = Duration::from_secs(number()?.clamp(1, 3600)),
            "--jobs" if matches!(verb, Verb::Kills) => settings.jobs = number()?.clamp(1, 16),
            "--most" => settings.most = Some(Duration::from_secs(number()?)),
            "--target" => {
                settings.target = match value.as_str() {
                    "kattu" => Target::Kattu,
                    "etcd" => Target::Etcd,
                    other => return Err(format!("--target {other}: kattu or etcd")),
                }
            }
            other => return Err(format!("`{other}` is not known here")),
        }
    }
    if settings.is_weak && settings.target == Target::Etcd {
        return Err("etcd has no weak answers".into());
    }
    Ok((verb, settings))
}

fn parse_slow_link(words: &[String]) -> Result<slow_link::Settings, String> {
    let mut settings = slow_link::Settings::default();
    for pair in words.chunks(2) {
        let [flag, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number = |most: u64| {
            let number = value.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("{flag} {value}: a number from 1 to {most}"))
        };
        let only = || match value.as_str() {
            "yes" => Ok(Some(true)),
            "no" => Ok(Some(false)),
            other => Err(format!("{flag} {other}: yes or no")),
        };
        match flag.as_str() {
            "--mb" => settings.behind = number(slow_link::BEHIND_MAX / 1_000_000)? * 1_000_000,
            "--bandwidth" => settings.bandwidths = vec![number(4_000)? as u32 * 1_000_000],
            "--reads" => settings.reads = only()?,
            "--resets" => settings.resets = only()?,
            other => return Err(format!("`{other}` is not known here")),
        }
    }
    Ok(settings)
}
