//! Retired words: names and phrases that this code base has given up, and the words in their places.
//!
//! In:   files in git below the first folders of the workspace; ceilings (`words_ceiling.toml`).
//! Out:  each retired word in an identifier or in a file's name, with the word to use; each phrase that is in the
//!       comments of a folder more often than its ceiling allows.
//! Rule: strings are free, and so are generated code, names of golden samples, and names of tests: lower case, with four
//!       underscores or more. A ceiling may only fall; `cargo xtask fix` lowers it.
//! Knows nothing of: what an item with such a name does.

mod identifiers;
mod phrases;

use crate::house::{GENERATED, lines::lines};
use crate::shell::{self, Failure};
use crate::stage::Tally;
use phrases::{Ceilings, Occurrences};
use std::collections::BTreeSet;

/// The file of ceilings.
const CEILINGS: &str = "xtask/src/words_ceiling.toml";
/// Places that are listed for one phrase in one folder.
const LISTED: usize = 10;

/// First folders with code of ours.
const ROOMS: &[&str] = &["core", "shell", "proof", "kattu", "lab", "xtask"];
/// Crates in which a promise is a vote hold or a guarantee.
const OF_PROMISES: &[&str] = &["core/raft", "core/wire", "shell/wal"];

/// A word that is not used in names any more.
struct Retired {
    /// Parts of a name in snake case; `is_name`: the whole name as it is written.
    words: &'static [&'static str],
    is_name: bool,
    /// The word to use.
    instead: &'static str,
    /// Folders in which it is retired.
    folders: &'static [&'static str],
}

/// A word that is retired everywhere.
const fn retired(words: &'static [&'static str], instead: &'static str) -> Retired {
    Retired { words, is_name: false, instead, folders: ROOMS }
}

const RETIRED: &[Retired] = &[
    retired(&["seat", "seats", "seated"], "apply executor"),
    retired(&["hearing", "hearings"], "listener"),
    retired(&["greet", "greets", "greeted", "greeting", "greetings"], "handshake, or peer table"),
    retired(&["likeness", "likenesses"], "name clash"),
    retired(
        &["handover", "handovers", "hand_over", "hands_over", "handed_over", "handing_over"],
        "transfer (leadership), or deliver (entries)",
    ),
    retired(&["vow", "vows"], "metrics check"),
    retired(&["mend", "mended", "mends", "mending", "mender"], "repair"),
    retired(&["yard", "yards"], "sim dirs"),
    retired(&["platter", "platters"], "volatile disk"),
    retired(&["hoard", "hoards"], "ballast"),
    retired(&["detour", "detours"], "round trip"),
    retired(&["scene", "scenes"], "scenario"),
    retired(&["told_commit"], "commit_sent"),
    retired(&["hurry", "hurries", "hurried"], "fast election"),
    retired(&["beats"], "heartbeats"),
    retired(&["beginner", "beginners"], "bootstrap"),
    retired(&["must_exist"], "join"),
    retired(&["max_request_bytes"], "request_bytes_max"),
    Retired { folders: &["core", "shell"], ..retired(&["odd"], "divergent") },
    Retired { is_name: true, ..retired(&["Leadership"], "LeadershipConfig, or LeaderView") },
    Retired { folders: OF_PROMISES, ..retired(&["promise", "promises"], "vote hold, or guarantee") },
];

/// Judges all files; `Err` lists every retired word, and every phrase above its ceiling.
pub fn judge() -> Result<Tally, Failure> {
    let read = read()?;
    let ceilings = Ceilings::parse(&std::fs::read_to_string(shell::root().join(CEILINGS))?)?;
    let mut wrong = read.wrong;
    for (name, room, places) in phrases::above(&read.phrases, &ceilings) {
        let instead = phrases::instead(name);
        wrong.push(format!(
            "{room}/: comments have {} times `{name}` ({instead}), {} are allowed by {CEILINGS}:",
            places.len(),
            ceilings.of(name, room)
        ));
        wrong.extend(places.iter().take(LISTED).map(|place| format!("    {place}")));
        if LISTED < places.len() {
            wrong.push(format!("    and {} more", places.len() - LISTED));
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::new(wrong.join("\n")));
    }
    let sum = read.phrases.values().map(Vec::len).sum::<usize>();
    let fallen = if ceilings.lowered(&read.phrases) == ceilings {
        String::new()
    } else {
        format!("; {CEILINGS} is too high: cargo xtask fix lowers it")
    };
    Ok(Tally {
        note: format!("{} files, {sum} retired phrases in comments{fallen}", read.files),
        ..Tally::one()
    })
}

/// Lowers the ceilings to what is in the comments; returns whether one has fallen.
pub fn lower() -> Result<bool, Failure> {
    let file = shell::root().join(CEILINGS);
    let ceilings = Ceilings::parse(&std::fs::read_to_string(&file)?)?;
    let lowered = ceilings.lowered(&read()?.phrases);
    if lowered == ceilings {
        return Ok(false);
    }
    std::fs::write(file, lowered.text())?;
    Ok(true)
}

/// What the files contain.
#[derive(Default)]
struct Read {
    files: usize,
    /// Retired words in names, as errors.
    wrong: Vec<String>,
    /// Phrases in comments, with their places.
    phrases: Occurrences,
}

fn read() -> Result<Read, Failure> {
    let mut read = Read::default();
    let mut names = BTreeSet::new();
    for path in shell::files_in_git(shell::NEW_TOO)? {
        let Some((room, _)) = path.split_once('/').filter(|_| !path.starts_with(GENERATED)) else { continue };
        if !ROOMS.contains(&room) {
            continue;
        }
        read.files += 1;
        // Golden samples have the names of the formats on disk.
        if !path.contains("/testdata/") {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            names.extend(ends.map(|end| path[..end].to_string()));
        }
        if path.ends_with(".rs") {
            let lines = lines(&std::fs::read_to_string(shell::root().join(&path))?);
            read.wrong.extend(identifiers::judge(&path, &lines));
            phrases::collect(&path, &lines, &mut read.phrases);
        }
    }
    read.wrong.extend(names.iter().filter_map(|path| identifiers::judge_path(path)));
    Ok(read)
}
