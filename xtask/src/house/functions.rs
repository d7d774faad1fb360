//! Long functions.
//!
//! Rule: a function's length is from the line of its `fn` to its closing brace, without its documentation. Functions of
//!       tests do not count, nor do those that a macro writes.
//! Knows nothing of: the purpose of a function.

use super::files::{File, ROOMS};
use super::table::{Section, columns, row};
use super::whole::House;
use serde_json::{Map, Value, json};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A longer function is listed.
const LINES_MAX: usize = 70;

/// One function.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Line of its `fn`, from 1.
    line: usize,
    length: usize,
}

/// Lists them, by first folder.
pub fn section(house: &House) -> Section {
    let mut rows = vec![row([&"room", &"functions", &"above"])];
    let mut lists = Vec::new();
    let mut totals = Map::new();
    let (mut all, mut all_long) = (0, 0);
    for room in ROOMS {
        let mut long = Vec::new();
        let mut count = 0;
        for file in house.files.iter().filter(|file| house.room(file) == *room) {
            let functions = functions(file);
            count += functions.len();
            let above = functions.into_iter().filter(|function| LINES_MAX < function.length);
            long.extend(above.map(|function| (file.path.as_str(), function)));
        }
        long.sort_by_key(|(path, function)| (std::cmp::Reverse(function.length), *path));
        rows.push(row([room, &count, &long.len()]));
        totals.insert(room.to_string(), json!(long.len()));
        lists.extend(long.iter().map(|(path, function)| {
            row([room, &function.length, &function.name, &format!("{path}:{}", function.line)])
        }));
        (all, all_long) = (all + count, all_long + long.len());
    }
    rows.push(row([&"all", &all, &all_long]));
    totals.insert("all".to_string(), json!(all_long));
    let mut rows = columns(&rows);
    rows.push(String::new());
    rows.extend(columns(&lists));
    Section {
        title: "Functions of more than 70 lines (from `fn` to the closing brace, without tests)",
        key: "functions_over_70_lines",
        rows,
        totals: Value::Object(totals),
    }
}

/// All functions of a file that have a body and are no tests, in order.
fn functions(file: &File) -> Vec<Function> {
    let mut finder = Finder { file, found: Vec::new() };
    finder.visit_file(&file.tree);
    finder.found
}

struct Finder<'t> {
    file: &'t File,
    found: Vec<Function>,
}

impl Finder<'_> {
    fn take(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let line = signature.span().start().line;
        if !self.file.is_test_at(line) {
            let length = body.span().end().line - line + 1;
            self.found.push(Function { name: signature.ident.to_string(), line, length });
        }
    }
}

impl<'t> Visit<'t> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'t syn::ItemFn) {
        self.take(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'t syn::ImplItemFn) {
        self.take(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'t syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.take(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Part;
    use super::*;

    fn found(text: &str) -> Vec<(String, usize, usize)> {
        let file = File::parse("a.rs", 0, Part::Source, text.to_string()).expect("Rust");
        functions(&file).into_iter().map(|it| (it.name, it.line, it.length)).collect()
    }

    #[test]
    fn a_function_is_as_long_as_from_its_signature_to_its_brace() {
        let text = "/// Doc.\n#[inline]\npub async fn a(\n    b: u8,\n) -> u8 {\n    b\n}\nfn c() {}\n";
        assert_eq!(found(text), [("a".to_string(), 3, 5), ("c".to_string(), 8, 1)]);
    }

    #[test]
    fn methods_defaults_of_traits_and_functions_in_functions_count_and_tests_do_not() {
        let text = "impl A {\n    fn b() {\n        fn c() {}\n    }\n}\ntrait D {\n    fn e();\n    fn f() {\n    }\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn g() {}\n    #[test]\n    fn h() {}\n}\n";
        let names: Vec<_> = found(text).into_iter().map(|(name, _, length)| (name, length)).collect();
        assert_eq!(names, [("b".to_string(), 3), ("c".to_string(), 1), ("f".to_string(), 2)]);
    }
}
