//! A Rust file: its text, its lines and its syntax, and which of its lines are tests.
//!
//! Rule: a line is a test if its file lies in a folder `tests/` or is declared `#[cfg(test)] mod name;`, or if the line
//!       belongs to an item that is marked `#[cfg(test)]` or `#[test]`.
//! Knows nothing of: git, counts.

use super::lines::{self, Line};
use crate::shell::Failure;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One package of the workspace, or of `proof/fuzz`, which is a workspace of its own.
pub struct Package {
    /// Its name in its manifest.
    pub name: String,
    /// Its folder.
    pub folder: String,
}

/// The part of its package that a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The library, and programs.
    Source,
    /// Folder `tests/`.
    Tests,
    /// Folders `examples/` and `benches/`.
    Examples,
}

/// One Rust file.
pub struct File {
    /// Path from the root of the workspace.
    pub path: String,
    /// Index of its package in the list of packages.
    pub package: usize,
    /// Its part of the package.
    pub part: Part,
    /// The whole text.
    pub text: String,
    /// The text, line by line.
    pub lines: Vec<Line>,
    /// The text as syntax.
    pub tree: syn::File,
    /// Whether the whole file is a test.
    pub is_test: bool,
    /// Lines of items that are tests; from 1.
    test_lines: Vec<RangeInclusive<usize>>,
}

/// First folders of the workspace, in the order of ARCHITECTURE.md.
pub const ROOMS: &[&str] = &["core", "shell", "kattu", "proof", "xtask"];

impl Package {
    /// The first folder of its path.
    pub fn room(&self) -> &str {
        self.folder.split('/').next().unwrap_or(&self.folder)
    }
}

impl File {
    /// Reads a text as Rust.
    pub fn parse(path: &str, package: usize, part: Part, text: String) -> Result<File, Failure> {
        let tree = syn::parse_file(&text).map_err(|error| {
            Failure::new(format!("{path}:{}: not Rust: {error}", error.span().start().line))
        })?;
        let mut tests = Tests::default();
        tests.visit_file(&tree);
        Ok(File {
            path: path.to_string(),
            package,
            part,
            lines: lines::lines(&text),
            is_test: part == Part::Tests || tree.attrs.iter().any(marks_test),
            text,
            tree,
            test_lines: tests.0,
        })
    }

    /// Whether this line, from 1, belongs to a test.
    pub fn is_test_at(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }
}

/// The attribute is `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]`.
pub fn marks_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return attribute.path().is_ident("test") };
    let condition: String = list.tokens.to_string().split_whitespace().collect();
    list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
}

/// First and last line of an item, attributes included.
pub fn span_of(item: &impl Spanned) -> RangeInclusive<usize> {
    let span = item.span();
    span.start().line..=span.end().line
}

/// The attributes of an item, its documentation included.
pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Lines of items that are tests.
#[derive(Default)]
struct Tests(Vec<RangeInclusive<usize>>);

impl<'t> Visit<'t> for Tests {
    fn visit_item(&mut self, item: &'t syn::Item) {
        match attributes(item).iter().any(marks_test) {
            true => self.0.push(span_of(item)),
            false => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'t syn::ImplItemFn) {
        match item.attrs.iter().any(marks_test) {
            true => self.0.push(span_of(item)),
            false => visit::visit_impl_item_fn(self, item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_items_marked_as_tests_are_tests() {
        let text = "fn a() {}\n#[cfg(test)]\nfn b() {\n}\nimpl A {\n    #[cfg(test)]\n    fn c() {}\n    fn d() {}\n}\n\
                    #[cfg(not(test))]\nfn e() {}\n#[cfg(all(test, unix))]\nmod tests {\n    fn f() {}\n}\n#[test]\nfn g() {}\n";
        let file = File::parse("a.rs", 0, Part::Source, text.to_string()).expect("Rust");
        let tests: Vec<usize> = (1..=17).filter(|&line| file.is_test_at(line)).collect();
        assert_eq!(tests, [2, 3, 4, 6, 7, 12, 13, 14, 15, 16, 17]);
    }
}
