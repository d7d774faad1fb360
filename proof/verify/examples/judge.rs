//! Judges a history: `cargo run --release -p kattu-verify --example judge -- history.jsonl`
//!
//! The format is docs/formats/histories.md. Exits with 1 and the story if a guarantee was violated, with 2 if the file
//! is no history. The final state is not in the file, so durability is judged only as far as the reads in it go.

use kattu_verify::history::Record;
use kattu_verify::judges::{
    Summary, Violation, bounded_reads_are_recent, linearizable, readers_see_what_they_saw, revision_order,
    revisions_never_back, txn_atomic,
};
use kattu_verify::lines;
use std::io::BufReader;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("judge: which file?");
        return ExitCode::from(2);
    };
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    };
    let history = match lines::read(BufReader::new(file)) {
        Ok(history) => history,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    };
    type Judge = fn(&[Record]) -> Result<Summary, Violation>;
    let judges: [(&str, Judge); 6] = [
        ("revisions_never_back", revisions_never_back),
        ("readers_see_what_they_saw", readers_see_what_they_saw),
        ("bounded_reads_are_recent", bounded_reads_are_recent),
        ("txn_atomic", txn_atomic),
        ("revision_order", revision_order),
        ("linearizable", linearizable),
    ];
    for (name, judge) in judges {
        match judge(&history) {
            Ok(summary) => println!(
                "{name}: {} operations, {} judged, {} undecided",
                summary.operations, summary.judged, summary.undecided
            ),
            Err(violation) => {
                println!("{violation}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
