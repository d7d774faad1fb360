//! Circles between the files of a crate: each of them can be understood only with all the others.
//!
//! In:   the paths in each file, in macros too; tests are left out.
//! Out:  for each library and program, the sizes of its circles: files that lead to one another, directly or through
//!       others.
//! Rule: a file leads to another by a path that begins with `crate`, `self` or `super`; in the wide reading also by a
//!       path that begins with a module in it, or with a name that a `use` imports: `self::b::c` may be written `b::c`.
//! Knows nothing of: how to break a circle.

use super::files::{File, attributes, marks_test};
use super::modules::{Target, uses};
use super::table::{Section, columns, row};
use super::whole::House;
use proc_macro2::{TokenStream, TokenTree};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};

/// The kinds of paths that count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Those that begin with `crate`, `self` or `super`.
    Strict,
    /// Also those that begin with a name of the module.
    Wide,
}

/// Sizes by crate, then the files in the circles of the strict reading.
pub fn section(house: &House) -> Section {
    let mut rows = vec![row([&"crate", &"files", &"in circles", &"sizes", &"read widely", &"sizes"])];
    let mut lists = Vec::new();
    let mut of_crates = Map::new();
    let (mut all_files, mut all_strict, mut all_wide) = (0, Circles::default(), Circles::default());
    for target in &house.targets {
        let name = target_name(house, target);
        let files = target.files().iter().filter(|file| !house.files[**file].is_test).count();
        let [strict, wide] =
            [Reading::Strict, Reading::Wide].map(|reading| Circles::of(&house.files, target, reading));
        all_files += files;
        // The wide reading has all circles of the strict one.
        if !wide.0.is_empty() {
            let sizes = json!({"sizes": strict.sizes(), "sizes_read_widely": wide.sizes()});
            of_crates.insert(name.clone(), sizes);
            rows.push(row([&name, &files, &strict.sum(), &strict.shown(), &wide.sum(), &wide.shown()]));
        }
        for circle in &strict.0 {
            let paths = circle.iter().map(|file| {
                let (path, package) = (&house.files[*file].path, &house.packages[target.package]);
                path.strip_prefix(&format!("{}/src/", package.folder)).unwrap_or(path).trim_end_matches(".rs")
            });
            lists.push(format!("{name} {}: {}", circle.len(), paths.collect::<Vec<_>>().join(" ")));
        }
        all_strict.0.extend(strict.0);
        all_wide.0.extend(wide.0);
    }
    let count = |circles: &Circles| format!("{} circles", circles.0.len());
    rows.push(row([
        &"all",
        &all_files,
        &all_strict.sum(),
        &count(&all_strict),
        &all_wide.sum(),
        &count(&all_wide),
    ]));
    let mut rows = columns(&rows);
    rows.push(String::new());
    rows.extend(lists);
    Section {
        title: "Files in circles (by paths with crate, self, super; read widely: also by names of modules and of `use`)",
        key: "circles",
        rows,
        totals: json!({
            "files_in_circles": all_strict.sum(),
            "circles": all_strict.0.len(),
            "files_in_circles_read_widely": all_wide.sum(),
            "circles_read_widely": all_wide.0.len(),
            "crates": Value::Object(of_crates),
        }),
    }
}

/// The name of the package, with the root if the target is a program.
fn target_name(house: &House, target: &Target) -> String {
    let package = &house.packages[target.package].name;
    if target.is_library { package.clone() } else { format!("{package} {}", target.root) }
}

/// Files of each circle, largest first.
#[derive(Default)]
struct Circles(Vec<Vec<usize>>);

impl Circles {
    fn of(files: &[File], target: &Target, reading: Reading) -> Circles {
        let places: Vec<usize> = target.files().into_iter().collect();
        let place = |file: usize| places.binary_search(&file).expect("a file of the target");
        let mut edges = vec![BTreeSet::new(); places.len()];
        for (from, to) in arrows(files, target, reading) {
            edges[place(from)].insert(place(to));
        }
        let mut circles = strongly_connected(&edges);
        circles.retain(|circle| 1 < circle.len());
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        Circles(circles.into_iter().map(|circle| circle.into_iter().map(|i| places[i]).collect()).collect())
    }

    fn sizes(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    fn sum(&self) -> usize {
        self.sizes().iter().sum()
    }

    fn shown(&self) -> String {
        let sizes: Vec<String> = self.sizes().iter().map(usize::to_string).collect();
        if sizes.is_empty() { "none".to_string() } else { sizes.join(" + ") }
    }
}

/// From file to file, without tests.
fn arrows(files: &[File], target: &Target, reading: Reading) -> BTreeSet<(usize, usize)> {
    let mut arrows = BTreeSet::new();
    for (place, module) in target.modules.iter().enumerate() {
        if !target.is_own_file(module) || module.is_test {
            continue;
        }
        let mut paths = Paths { target, module: place, found: Vec::new() };
        paths.visit_file(&files[module.file].tree);
        for (from, path) in paths.found {
            let is_strict = ["crate", "self", "super"].contains(&path[0].as_str());
            if !is_strict && reading == Reading::Strict {
                continue;
            }
            let to = target.resolve(from, &path).map(|to| &target.modules[to]);
            if let Some(to) = to.filter(|to| !to.is_test && to.file != module.file) {
                arrows.insert((module.file, to.file));
            }
        }
    }
    arrows
}

/// Paths of two words and more, each with its module.
struct Paths<'t> {
    target: &'t Target,
    module: usize,
    found: Vec<(usize, Vec<String>)>,
}

impl Paths<'_> {
    fn take(&mut self, path: Vec<String>) {
        if 1 < path.len() {
            self.found.push((self.module, path));
        }
    }

    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.take(std::mem::take(&mut path));
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.take(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.take_tokens(group.stream());
                    }
                }
            }
        }
        self.take(path);
    }
}

impl<'t> Visit<'t> for Paths<'_> {
    fn visit_item(&mut self, item: &'t syn::Item) {
        if !attributes(item).iter().any(marks_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'t syn::ImplItemFn) {
        if !item.attrs.iter().any(marks_test) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'t syn::ItemMod) {
        let child = self.target.modules[self.module].children.get(&item.ident.to_string()).copied();
        if let (Some((_, items)), Some(child)) = (&item.content, child) {
            let outer = std::mem::replace(&mut self.module, child);
            items.iter().for_each(|item| self.visit_item(item));
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'t syn::ItemUse) {
        uses(&item.tree).into_iter().for_each(|(path, _)| self.take(path));
    }

    fn visit_path(&mut self, path: &'t syn::Path) {
        // A path that begins with `::` leads out of the crate.
        if path.leading_colon.is_none() {
            self.take(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'t syn::Macro) {
        self.visit_path(&it.path);
        self.take_tokens(it.tokens.clone());
    }

    /// `pub(super)` limits the visibility of an item, and is no path to one.
    fn visit_vis_restricted(&mut self, _: &'t syn::VisRestricted) {}
}

/// Sets of nodes that lead to one another, single nodes included; each sorted. Tarjan's algorithm.
fn strongly_connected(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        order: vec![None; edges.len()],
        lowest: vec![0; edges.len()],
        next: 0,
        open: Vec::new(),
        found: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'t> {
    edges: &'t [BTreeSet<usize>],
    /// When each node was visited first.
    order: Vec<Option<usize>>,
    /// The earliest node that each can reach through open ones.
    lowest: Vec<usize>,
    next: usize,
    /// Visited nodes whose set is not known yet.
    open: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.order[node] = Some(self.next);
        self.lowest[node] = self.next;
        self.next += 1;
        let below = self.open.len();
        self.open.push(node);
        let edges = self.edges;
        for &to in &edges[node] {
            match self.order[to] {
                None => {
                    self.visit(to);
                    self.lowest[node] = self.lowest[node].min(self.lowest[to]);
                }
                Some(order) if self.open.contains(&to) => self.lowest[node] = self.lowest[node].min(order),
                Some(_) => {}
            }
        }
        if self.order[node] == Some(self.lowest[node]) {
            let mut set = self.open.split_off(below);
            set.sort_unstable();
            self.found.push(set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::modules::testing;
    use super::*;

    #[test]
    fn nodes_that_lead_to_one_another_are_one_set() {
        type Arrows = &'static [(usize, usize)];
        let cases: [(Arrows, &[&[usize]]); 5] = [
            (&[], &[&[0], &[1], &[2], &[3], &[4]]),
            (&[(0, 1), (1, 2), (2, 3), (3, 4)], &[&[0], &[1], &[2], &[3], &[4]]),
            (&[(0, 1), (1, 2), (2, 0), (3, 4)], &[&[0, 1, 2], &[3], &[4]]),
            (&[(0, 1), (1, 0), (1, 2), (2, 3), (3, 2), (3, 4)], &[&[0, 1], &[2, 3], &[4]]),
            (&[(0, 4), (4, 2), (2, 1), (1, 3), (3, 4), (2, 0)], &[&[0, 1, 2, 3, 4]]),
        ];
        for (arrows, wanted) in cases {
            let mut edges = vec![BTreeSet::new(); 5];
            arrows.iter().for_each(|(from, to)| _ = edges[*from].insert(*to));
            let mut found = strongly_connected(&edges);
            found.sort();
            assert_eq!(found, wanted, "{arrows:?}");
        }
    }

    /// Circles of the strict and of the wide reading, as paths.
    fn circles(texts: &[(&str, &str)]) -> [Vec<Vec<String>>; 2] {
        let (files, targets) = testing::files(texts);
        [Reading::Strict, Reading::Wide].map(|reading| {
            let circles = Circles::of(&files, &targets[0], reading).0;
            let path = |file: usize| files[file].path.trim_start_matches("a/src/").to_string();
            circles.into_iter().map(|circle| circle.into_iter().map(path).collect()).collect()
        })
    }

    fn paths(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn files_that_name_one_another_are_a_circle_and_what_re_exports_them_is_not_in_it() {
        let [strict, wide] = circles(&[
            ("src/lib.rs", "pub mod a;\nmod b;\nmod c;\npub use b::B;"),
            ("src/a.rs", "use crate::B;"),
            ("src/b.rs", "fn x() { assert!(super::a::y(1)); }"),
            ("src/c.rs", "use crate::{a::A, B};"),
        ]);
        assert_eq!(strict, [paths(&["a.rs", "b.rs"])]);
        assert_eq!(strict, wide);
    }

    #[test]
    fn a_module_that_names_its_child_without_self_is_in_a_circle_only_if_read_widely() {
        let [strict, wide] = circles(&[
            ("src/lib.rs", "mod a;"),
            ("src/a.rs", "mod b;\nuse b::B;\npub(super) struct A;"),
            ("src/a/b.rs", "fn x() -> super::A { super::A }"),
        ]);
        assert_eq!(strict, Vec::<Vec<String>>::new());
        assert_eq!(wide, [paths(&["a.rs", "a/b.rs"])]);
    }

    #[test]
    fn tests_lead_nowhere() {
        let [strict, wide] = circles(&[
            ("src/lib.rs", "mod a;\nmod b;"),
            ("src/a.rs", "use crate::b::B;"),
            (
                "src/b.rs",
                "struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }\nimpl B {\n#[cfg(test)]\nfn x(_: crate::a::A) {}\n}",
            ),
        ]);
        assert_eq!(strict, Vec::<Vec<String>>::new());
        assert_eq!(wide, strict);
    }

    #[test]
    fn paths_are_found_in_what_is_given_to_a_macro() {
        let (_, targets) = testing::files(&[("src/lib.rs", "")]);
        let mut found = Paths { target: &targets[0], module: 0, found: Vec::new() };
        found.take_tokens(
            "a(crate::b::c(1), d: super::e, f) $crate::g => h::<i::j>::k".parse().expect("tokens"),
        );
        let found: Vec<String> = found.found.iter().map(|(_, path)| path.join("::")).collect();
        assert_eq!(found, ["crate::b::c", "super::e", "crate::g", "i::j"]);
    }
}
