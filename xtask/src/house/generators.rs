//! Generators of pseudo-random numbers, recognized by the constants of their arithmetic.
//!
//! In:   literals, in code and in arguments of macros; `x ^= x << 13`.
//! Out:  types with such a constant in an `impl`; other places that have one.
//! Rule: tests and examples count: a generator repeated in a test is one more.
//! Knows nothing of: whether it makes random numbers or a digest; the implemented trait shows that.

use super::files::File;
use super::table::{Section, columns, row};
use super::whole::House;
use proc_macro2::{TokenStream, TokenTree};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// In hexadecimal: the golden ratio of SplitMix64, its two multipliers, the multipliers of xorshift64* and of Knuth's
/// MMIX. They are strings, so that this file does not count.
const CONSTANTS: &[(&str, &str)] = &[
    ("9e3779b97f4a7c15", "golden ratio"),
    ("bf58476d1ce4e5b9", "SplitMix64"),
    ("94d049bb133111eb", "SplitMix64"),
    ("2545f4914f6cdd1d", "xorshift64*"),
    ("5851f42d4c957f2d", "MMIX"),
];

/// One occurrence.
struct Mark {
    /// The type of the `impl` around it, and the trait, if the `impl` is of one.
    owner: Option<(String, Option<String>)>,
    line: usize,
    constant: &'static str,
}

/// Lists types, then other places.
pub fn section(house: &House) -> Section {
    let (mut types, mut inline) = (Vec::new(), Vec::new());
    let mut in_tests = 0;
    for file in &house.files {
        let mut of_types: BTreeMap<String, Vec<&Mark>> = BTreeMap::new();
        let mut of_lines: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        let marks = marks(file);
        for mark in &marks {
            match &mark.owner {
                Some((name, _)) => of_types.entry(name.clone()).or_default().push(mark),
                None => _ = of_lines.entry(mark.line).or_default().insert(mark.constant),
            }
        }
        let shown = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
        inline.extend(
            of_lines
                .into_iter()
                .map(|(line, constants)| row([&format!("{}:{line}", file.path), &shown(constants)])),
        );
        for (name, marks) in of_types {
            let traits: BTreeSet<&str> =
                marks.iter().filter_map(|mark| mark.owner.as_ref()?.1.as_deref()).collect();
            let constants: BTreeSet<&str> = marks.iter().map(|mark| mark.constant).collect();
            in_tests += usize::from(marks.iter().all(|mark| file.is_test_at(mark.line)));
            let place = format!("{}:{}", file.path, marks[0].line);
            let of_trait = if traits.is_empty() { String::new() } else { format!("as {}", shown(traits)) };
            types.push(row([&name, &place, &shown(constants), &of_trait]));
        }
    }
    let mut rows = columns(&[
        row([&"types", &types.len()]),
        row([&"of these in tests", &in_tests]),
        row([&"lines outside an impl", &inline.len()]),
    ]);
    let totals = json!({"types": types.len(), "types_in_tests": in_tests, "inline": inline.len()});
    for list in [types, inline] {
        rows.push(String::new());
        rows.extend(columns(&list));
    }
    Section {
        title: "Types that generate pseudo-random numbers (constants in an impl), and such constants elsewhere",
        key: "generators",
        rows,
        totals,
    }
}

fn marks(file: &File) -> Vec<Mark> {
    let mut finder = Finder { owner: None, found: Vec::new() };
    finder.visit_file(&file.tree);
    finder.found
}

struct Finder {
    owner: Option<(String, Option<String>)>,
    found: Vec<Mark>,
}

impl Finder {
    fn take(&mut self, line: usize, constant: &'static str) {
        self.found.push(Mark { owner: self.owner.clone(), line, constant });
    }

    fn take_literal(&mut self, literal: &syn::LitInt) {
        let Ok(value) = literal.base10_parse::<u128>() else { return };
        let hexadecimal = format!("{value:x}");
        if let Some((_, name)) = CONSTANTS.iter().find(|(constant, _)| *constant == hexadecimal) {
            self.take(literal.span().start().line, name);
        }
    }

    fn take_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.take_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let syn::Lit::Int(literal) = syn::Lit::new(literal) {
                        self.take_literal(&literal);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'t> Visit<'t> for Finder {
    fn visit_item_impl(&mut self, item: &'t syn::ItemImpl) {
        let last = |path: &syn::Path| path.segments.last().map(|segment| segment.ident.to_string());
        let name = match &*item.self_ty {
            syn::Type::Path(path) => last(&path.path).unwrap_or_default(),
            _ => "a type without a name".to_string(),
        };
        let of_trait = item.trait_.as_ref().and_then(|(_, path, _)| last(path));
        let outer = self.owner.replace((name, of_trait));
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_lit_int(&mut self, literal: &'t syn::LitInt) {
        self.take_literal(literal);
    }

    fn visit_expr_binary(&mut self, expression: &'t syn::ExprBinary) {
        if let (syn::BinOp::BitXorAssign(_), syn::Expr::Binary(right)) = (&expression.op, &*expression.right)
            && matches!(right.op, syn::BinOp::Shl(_))
            && is_same_place(&expression.left, &right.left)
            && is_thirteen(&right.right)
        {
            self.take(expression.span().start().line, "x ^= x << 13");
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_macro(&mut self, it: &'t syn::Macro) {
        self.take_tokens(it.tokens.clone());
    }
}

fn is_thirteen(expression: &syn::Expr) -> bool {
    matches!(expression, syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(it), .. }) if it.base10_digits() == "13")
}

/// Whether both are the same variable, or the same field of it.
fn is_same_place(left: &syn::Expr, right: &syn::Expr) -> bool {
    use syn::Expr;
    match (left, right) {
        (Expr::Path(left), Expr::Path(right)) => left.path.get_ident() == right.path.get_ident(),
        (Expr::Field(left), Expr::Field(right)) => {
            left.member == right.member && is_same_place(&left.base, &right.base)
        }
        (Expr::Unary(left), Expr::Unary(right)) => is_same_place(&left.expr, &right.expr),
        (Expr::Paren(left), right) => is_same_place(&left.expr, right),
        (left, Expr::Paren(right)) => is_same_place(left, &right.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Part;
    use super::*;

    #[test]
    fn constants_are_known_however_they_are_written_and_belong_to_the_type_around_them() {
        // Joined here, so that this file has none of the constants itself.
        let golden = ["0x9E37", "79b9_7f4a_7c15"].join("_");
        let text = format!(
            "impl A {{\n  fn a(&mut self) {{ self.0 ^= self.0 << 13; }}\n}}\n\
             impl Hasher for B {{\n  fn b() {{ c!(d({golden}u64)); }}\n}}\n\
             fn e(mut x: u64, y: u64) {{ x ^= x << 13; x ^= y << 13; x ^= x << 7; }}\nconst F: u64 = {golden};\n"
        );
        let file = File::parse("a.rs", 0, Part::Source, text).expect("Rust");
        let found: Vec<_> =
            marks(&file).into_iter().map(|mark| (mark.owner, mark.line, mark.constant)).collect();
        let of = |name: &str, of_trait: Option<&str>| Some((name.to_string(), of_trait.map(str::to_string)));
        let wanted = [
            (of("A", None), 2, "x ^= x << 13"),
            (of("B", Some("Hasher")), 5, "golden ratio"),
            (None, 7, "x ^= x << 13"),
            (None, 8, "golden ratio"),
        ];
        assert_eq!(found, wanted);
    }
}
