//! `cargo xtask house`: numbers about the code base, to be compared before and after a large change of it.
//!
//! In:   the Rust files and the documents in git; generated code is left out.
//! Out:  nine sections of a table; with `--json`, their totals as one object.
//! Rule: a number is counted, not judged: no threshold here makes a build fail.
//! Knows nothing of: the purpose of the crates.

mod circles;
mod comments;
mod documents;
mod files;
mod functions;
mod generators;
mod lengths;
pub mod lines;
mod modules;
mod names;
mod planted;
mod sizes;
mod table;
mod whole;

pub use whole::GENERATED;

use crate::commands::misused;
use crate::shell::Failure;
use serde_json::{Map, Value};
use table::Section;
use whole::House;

/// The sections, in the order in which they are printed.
const SECTIONS: &[fn(&House) -> Section] = &[
    lengths::section,
    functions::section,
    names::section,
    circles::section,
    generators::section,
    sizes::section,
    documents::section,
    planted::section,
    comments::section,
];

/// Prints them all.
pub fn run(arguments: &[&str]) -> Result<(), Failure> {
    let is_json = match arguments {
        [] => false,
        ["--json"] => true,
        _ => return Err(misused("house")),
    };
    let house = House::read()?;
    let sections = SECTIONS.iter().map(|section| section(&house));
    if is_json {
        let totals: Map<String, Value> =
            sections.map(|section| (section.key.to_string(), section.totals)).collect();
        println!("{:#}", Value::Object(totals));
        return Ok(());
    }
    for (place, section) in sections.enumerate() {
        println!("{}{}. {}\n", if place == 0 { "" } else { "\n" }, place + 1, section.title);
        for row in section.rows {
            println!("   {row}");
        }
    }
    Ok(())
}
