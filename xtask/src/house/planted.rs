//! Places where a bug can be planted.
//!
//! Rule: `planted!(` counts in the code of `core/` and `shell/`, not in comments, strings or tests.
//! Knows nothing of: the bugs; `docs/planted-bugs.md` lists them.

use super::files::{File, Part};
use super::table::{Section, columns, row};
use super::whole::House;
use serde_json::{Map, Value, json};

/// Counts them, crate by crate.
pub fn section(house: &House) -> Section {
    let mut rows = Vec::new();
    let mut totals = Map::new();
    let mut all = 0;
    for (place, package) in house.packages.iter().enumerate() {
        if !["core", "shell"].contains(&package.room()) {
            continue;
        }
        let is_in = |file: &&File| file.package == place && file.part == Part::Source;
        let count: usize = house.files.iter().filter(is_in).map(count).sum();
        rows.push(row([&package.name, &count]));
        totals.insert(package.name.clone(), json!(count));
        all += count;
    }
    rows.push(row([&"all", &all]));
    totals.insert("all".to_string(), json!(all));
    Section {
        title: "Places where a bug can be planted: `planted!(` in core/ and shell/",
        key: "planted",
        rows: columns(&rows),
        totals: Value::Object(totals),
    }
}

fn count(file: &File) -> usize {
    let code = file.lines.iter().enumerate().filter(|(place, _)| !file.is_test_at(place + 1));
    code.map(|(_, line)| line.code.matches("planted!(").count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_planted_by_code_alone() {
        let text = "//! Ask `planted!(\"a\")`.\nfn a() -> bool { planted!(\"a\") || planted!(\"b\") } // planted!(\n\
                    const B: &str = \"planted!(\";\n#[cfg(test)]\nfn c() { planted!(\"a\"); }\n";
        let file = File::parse("a.rs", 0, Part::Source, text.to_string()).expect("Rust");
        assert_eq!(count(&file), 2);
    }
}
