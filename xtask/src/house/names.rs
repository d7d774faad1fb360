//! Public items that no other crate names.
//!
//! In:   the items of each library that are `pub`: functions, methods, types, traits, constants, statics.
//! Out:  the number of those named in no other crate, nowhere outside their own `src/`, and by no program of their own
//!       either.
//! Rule: a name is a word; another crate names it if the word is anywhere in its files: in code, in a string, in a
//!       comment. An unused item with a common name is therefore missed, and a type that another crate uses without its
//!       name is counted.
//! Knows nothing of: items that a macro writes, modules, fields, variants, re-exports.

use super::files::{File, Part};
use super::table::{Section, columns, row};
use super::whole::House;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::AddAssign;
use syn::visit::{self, Visit};

/// Counts of one crate.
#[derive(Clone, Copy, Default)]
struct Counts {
    items: usize,
    /// Named in no other crate.
    here: usize,
    /// Of these, named in no test or example of the package.
    in_source: usize,
    /// Of these, named in no program of the package.
    in_library: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.items += other.items;
        self.here += other.here;
        self.in_source += other.in_source;
        self.in_library += other.in_library;
    }
}

/// Packages, tests and programs in which each word occurs.
#[derive(Default)]
struct Index<'t> {
    packages: HashMap<&'t str, BTreeSet<usize>>,
    tests: HashSet<(usize, &'t str)>,
    programs: HashSet<(usize, &'t str)>,
}

/// Counts them, crate by crate.
pub fn section(house: &House) -> Section {
    let libraries: Vec<_> = house.targets.iter().filter(|target| target.is_library).collect();
    let in_libraries: HashSet<usize> = libraries.iter().flat_map(|target| target.files()).collect();
    let mut index = Index::default();
    for (place, file) in house.files.iter().enumerate() {
        for word in words(&file.text) {
            index.packages.entry(word).or_default().insert(file.package);
            match file.part {
                Part::Tests | Part::Examples => index.tests.insert((file.package, word)),
                Part::Source if !in_libraries.contains(&place) => index.programs.insert((file.package, word)),
                Part::Source => false,
            };
        }
    }

    let mut rows = vec![row([
        &"library",
        &"pub items",
        &"in no other crate",
        &"nowhere outside src/",
        &"nor by its programs",
    ])];
    let mut totals = Map::new();
    let mut all = Counts::default();
    for library in libraries {
        let mut counts = Counts::default();
        for file in library.files() {
            for name in public_names(&house.files[file]) {
                counts += index.judge(library.package, &name);
            }
        }
        let name = &house.packages[library.package].name;
        rows.push(counts.row(name));
        totals.insert(name.clone(), counts.json());
        all += counts;
    }
    rows.push(all.row("all"));
    totals.insert("all".to_string(), all.json());
    Section {
        title: "Public items of libraries that are named (as a word, in any Rust file) …",
        key: "public_items",
        rows: columns(&rows),
        totals: Value::Object(totals),
    }
}

impl Index<'_> {
    fn judge(&self, package: usize, name: &str) -> Counts {
        let here = self.packages.get(name).is_none_or(|packages| packages.iter().all(|it| *it == package));
        let in_source = here && !self.tests.contains(&(package, name));
        let in_library = in_source && !self.programs.contains(&(package, name));
        Counts {
            items: 1,
            here: usize::from(here),
            in_source: usize::from(in_source),
            in_library: usize::from(in_library),
        }
    }
}

impl Counts {
    fn row(&self, name: &str) -> Vec<String> {
        row([&name, &self.items, &self.here, &self.in_source, &self.in_library])
    }

    fn json(&self) -> Value {
        json!({
            "items": self.items,
            "named_in_no_other_crate": self.here,
            "named_nowhere_outside_src": self.in_source,
            "nor_by_own_programs": self.in_library,
        })
    }
}

/// The words of a text: sequences of letters, digits and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Names of all public items of a file, in order, without those of tests.
fn public_names(file: &File) -> Vec<String> {
    let mut finder = Finder { file, found: Vec::new() };
    finder.visit_file(&file.tree);
    finder.found
}

struct Finder<'t> {
    file: &'t File,
    found: Vec<String>,
}

impl Finder<'_> {
    fn take(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        let is_public = matches!(visibility, syn::Visibility::Public(_));
        if is_public && !self.file.is_test_at(name.span().start().line) {
            // `r#type` has its prefix only where the syntax demands it.
            self.found.push(name.to_string().trim_start_matches("r#").to_string());
        }
    }
}

impl<'t> Visit<'t> for Finder<'_> {
    fn visit_item(&mut self, item: &'t syn::Item) {
        use syn::Item;
        match item {
            Item::Fn(it) => self.take(&it.vis, &it.sig.ident),
            Item::Struct(it) => self.take(&it.vis, &it.ident),
            Item::Enum(it) => self.take(&it.vis, &it.ident),
            Item::Union(it) => self.take(&it.vis, &it.ident),
            Item::Trait(it) => self.take(&it.vis, &it.ident),
            Item::Const(it) => self.take(&it.vis, &it.ident),
            Item::Static(it) => self.take(&it.vis, &it.ident),
            Item::Type(it) => self.take(&it.vis, &it.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'t syn::ImplItem) {
        use syn::ImplItem;
        match item {
            ImplItem::Fn(it) => self.take(&it.vis, &it.sig.ident),
            ImplItem::Const(it) => self.take(&it.vis, &it.ident),
            _ => {}
        }
        visit::visit_impl_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_matches_only_as_a_whole() {
        let found: Vec<_> = words("let a_b = Entry::new(entries[0]); // `Entry`-like r#type").collect();
        assert_eq!(found, ["let", "a_b", "Entry", "new", "entries", "0", "Entry", "like", "r", "type"]);
    }

    #[test]
    fn public_items_and_methods_are_found_and_those_for_the_crate_alone_are_not() {
        let text = "pub fn a() {}\npub(crate) fn b() {}\nfn c() {}\npub struct D { pub e: u8 }\npub mod m { pub const F: u8 = 0; }\n\
                    impl D { pub fn g() {} pub(super) fn h() {} fn i() {} }\nimpl T for D { fn j() {} }\n\
                    pub trait T { fn j(); }\npub type K = u8;\npub static L: u8 = 0;\npub enum M { N }\npub use x::O;\n\
                    #[cfg(test)]\nmod tests { pub fn p() {} }\n";
        let file = File::parse("a.rs", 0, Part::Source, text.to_string()).expect("Rust");
        assert_eq!(public_names(&file), ["a", "D", "F", "g", "T", "K", "L", "M"]);
    }

    #[test]
    fn a_name_is_looked_for_in_other_crates_in_tests_and_in_programs() {
        let mut index = Index::default();
        for (word, packages) in [("a", vec![0, 1]), ("b", vec![0]), ("c", vec![0]), ("d", vec![0])] {
            index.packages.insert(word, packages.into_iter().collect());
        }
        index.tests.insert((0, "b"));
        index.programs.insert((0, "c"));
        let judged = |name| {
            let counts = index.judge(0, name);
            (counts.here, counts.in_source, counts.in_library)
        };
        assert_eq!(["a", "b", "c", "d"].map(judged), [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]);
    }
}
