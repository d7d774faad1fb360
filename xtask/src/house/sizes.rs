//! Lines of code: of the product, of its proofs, of its tests.
//!
//! Rule: a line counts if it holds code; empty lines and comments do not. Product is `core/`, `shell/` and `kattu/`
//!       without tests and examples; proof is `proof/`, also without. `files` tells which lines are tests.
//! Knows nothing of: the purpose of the lines.

use super::files::{File, Part, ROOMS};
use super::table::{Section, columns, grouped, row};
use super::whole::House;
use serde_json::{Map, Value, json};
use std::ops::AddAssign;

/// Folders of the product.
const PRODUCT: &[&str] = &["core", "shell", "kattu"];

/// Lines of one crate, of one first folder, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    source: usize,
    /// Tests in `src/`.
    tests_inside: usize,
    /// Tests in `tests/`.
    tests_beside: usize,
    examples: usize,
}

impl Size {
    fn of(file: &File) -> Size {
        let mut size = Size::default();
        let code = file.lines.iter().enumerate().filter(|(_, line)| line.is_code());
        for (place, _) in code {
            let sum = match (file.part, file.is_test_at(place + 1)) {
                (Part::Tests, _) => &mut size.tests_beside,
                (_, true) => &mut size.tests_inside,
                (Part::Examples, false) => &mut size.examples,
                (Part::Source, false) => &mut size.source,
            };
            *sum += 1;
        }
        size
    }

    fn tests(&self) -> usize {
        self.tests_inside + self.tests_beside
    }

    fn row(&self, name: &str) -> Vec<String> {
        let numbers = [self.source, self.tests_inside, self.tests_beside, self.examples];
        std::iter::once(name.to_string()).chain(numbers.map(grouped)).collect()
    }

    fn json(&self) -> Value {
        json!({
            "source": self.source,
            "tests_in_src": self.tests_inside,
            "tests_in_tests": self.tests_beside,
            "examples": self.examples,
        })
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.source += other.source;
        self.tests_inside += other.tests_inside;
        self.tests_beside += other.tests_beside;
        self.examples += other.examples;
    }
}

/// Sums, then crates.
pub fn section(house: &House) -> Section {
    let sum = |is_in: &dyn Fn(&File) -> bool| {
        let mut sum = Size::default();
        house.files.iter().filter(|file| is_in(file)).for_each(|file| sum += Size::of(file));
        sum
    };
    let of_rooms = |rooms: &[&str]| sum(&|file| rooms.contains(&house.room(file)));
    let (product, proof, xtask) = (of_rooms(PRODUCT), of_rooms(&["proof"]), of_rooms(&["xtask"]));
    let all = of_rooms(ROOMS);
    let proof_and_xtask = proof.source + xtask.source;
    let per_product = |lines: usize| format!("{:.2}", lines as f64 / product.source as f64);

    let mut rows = columns(&[
        row([&"product (core, shell, kattu)", &grouped(product.source)]),
        row([&"proof + xtask", &grouped(proof_and_xtask)]),
        row([&"tests, in src/", &grouped(all.tests_inside)]),
        row([&"tests, in tests/", &grouped(all.tests_beside)]),
        row([&"tests, both", &grouped(all.tests())]),
        row([&"examples", &grouped(all.examples)]),
        row([&"all", &grouped(all.source + all.tests() + all.examples)]),
        row([&"proof per line of product", &per_product(proof.source)]),
        row([&"proof + xtask per line of product", &per_product(proof_and_xtask)]),
        row([&"proof + xtask + tests per line of product", &per_product(proof_and_xtask + all.tests())]),
    ]);

    let mut crates = vec![row([&"crate", &"source", &"tests in src/", &"tests/", &"examples"])];
    let mut of_crates = Map::new();
    for (place, package) in house.packages.iter().enumerate() {
        let size = sum(&|file| file.package == place);
        crates.push(size.row(&package.name));
        of_crates.insert(package.name.clone(), size.json());
    }
    for room in ROOMS {
        crates.push(of_rooms(&[room]).row(&format!("{room}/")));
    }
    crates.push(all.row("all"));
    rows.push(String::new());
    rows.extend(columns(&crates));
    let rounded = |lines: usize| per_product(lines).parse::<f64>().unwrap_or(0.0);
    Section {
        title: "Lines of code (no empty lines, no comments)",
        key: "lines_of_code",
        rows,
        totals: json!({
            "product": product.source,
            "proof_and_xtask": proof_and_xtask,
            "proof": proof.source,
            "xtask": xtask.source,
            "tests_in_src": all.tests_inside,
            "tests_in_tests": all.tests_beside,
            "tests": all.tests(),
            "examples": all.examples,
            "proof_per_product": rounded(proof.source),
            "proof_and_xtask_per_product": rounded(proof_and_xtask),
            "proof_and_xtask_and_tests_per_product": rounded(proof_and_xtask + all.tests()),
            "crates": of_crates,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_counts_where_it_belongs_and_comments_nowhere() {
        let text = "//! Header.\n\nfn a() {}\n// Why.\nfn b() {} // Why.\n#[cfg(test)]\nmod tests {\n    // Why.\n}\n";
        let size = |part| Size::of(&File::parse("a.rs", 0, part, text.to_string()).expect("Rust"));
        assert_eq!(size(Part::Source), Size { source: 2, tests_inside: 3, ..Size::default() });
        assert_eq!(size(Part::Tests), Size { tests_beside: 5, ..Size::default() });
        assert_eq!(size(Part::Examples), Size { examples: 2, tests_inside: 3, ..Size::default() });
    }
}
