//! `kattu-mutants check`: checks that every mutant's text is where it belongs. `kattu-mutants copy FOLDER`: writes the
//! workspace with all wrong code in it.
//! Knows nothing of: builds of the copy.
#![forbid(unsafe_code)]

use kattu_mutants::{folder, read, tree};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "kattu-mutants check | copy FOLDER";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = match words.as_slice() {
        ["check"] => read(&folder()).and_then(|bugs| tree::check(&root, &bugs)),
        ["copy", to] => read(&folder()).and_then(|bugs| tree::write(&root, Path::new(to), &bugs)),
        _ => Err(USAGE.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
