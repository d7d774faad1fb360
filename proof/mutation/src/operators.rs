//! Operators: every mutant of one file, made by its syntax.
//!
//! In:   the text of a Rust file of the product.
//! Out:  its mutants: a range of the text, what stands there instead, the kind of the change.
//! Rules:
//!   1. The order of the mutants is that of the walk through the file: the same text gives the same list.
//!   2. Tests, constants, functions that are `const` or print (`Debug`, `Display`), patterns, types, arguments of macros and
//!      hints about capacity are left out: a changed one cannot be chosen at run time, or changes nothing that a test
//!      should see.
//!   3. What replaces an expression has the same type as far as the syntax tells; the compiler refuses the rest.
//!
//! Knows nothing of: the compiler, tests, samples.

use proc_macro2::Span;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `<` to `<=`, `==` to `!=` and the like.
    Relation,
    /// `&&` to `||`; a fact that is negated.
    Boolean,
    /// The condition of an `if`, `while` or arm of a `match` that always or never holds.
    Condition,
    /// `+` to `-`; saturating, wrapping and checked arithmetic likewise; `min` to `max`.
    Arithmetic,
    /// A number that is one more, one less or half; a truth value that is the other one.
    Constant,
    /// A call, an assignment, a loop or a jump that is left out.
    Statement,
    /// `Some(x)` to `None`.
    Option,
    /// `any` to `all`, `first` to `last` and the like.
    Method,
    /// A function that returns a plain value at once.
    Result,
}

/// How a replacement stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// In the place of an expression.
    Expression,
    /// In the place of a statement.
    Statement,
    /// Before the first statement of a function.
    Beginning,
}

/// One mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Path of its file, from the root of the workspace.
    pub file: String,
    /// The function that it changes, with its type: `Store::put`.
    pub function: String,
    /// The bytes of that function in the file.
    pub function_range: Range<usize>,
    /// Line of the change, from 1.
    pub line: usize,
    /// The kind of the change.
    pub kind: Kind,
    /// How the replacement stands in the text.
    pub shape: Shape,
    /// The bytes that it replaces; empty for a beginning.
    pub range: Range<usize>,
    /// What stands there instead.
    pub instead: String,
}

impl Kind {
    /// Its name in tables and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Relation => "relation",
            Kind::Boolean => "boolean",
            Kind::Condition => "condition",
            Kind::Arithmetic => "arithmetic",
            Kind::Constant => "constant",
            Kind::Statement => "statement",
            Kind::Option => "option",
            Kind::Method => "method",
            Kind::Result => "result",
        }
    }
}

impl Mutant {
    /// The lines that it changes, before and after, without indentation and with one space between words.
    #[must_use]
    pub fn difference(&self, text: &str) -> (String, String) {
        let start = text[..self.range.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[self.range.end..].find('\n').map_or(text.len(), |at| self.range.end + at);
        let after =
            format!("{}{}{}", &text[start..self.range.start], self.instead, &text[self.range.end..end]);
        (squeezed(&text[start..end]), squeezed(&after))
    }

    /// The line before those that it changes, without indentation and with one space between words.
    #[must_use]
    pub fn above(&self, text: &str) -> String {
        squeezed(text[..self.range.start].lines().rev().nth(1).unwrap_or_default())
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All mutants of a file.
///
/// # Errors
/// The text is not Rust.
pub fn mutants(file: &str, text: &str) -> Result<Vec<Mutant>, String> {
    let tree = syn::parse_file(text)
        .map_err(|error| format!("{file}:{}: not Rust: {error}", error.span().start().line))?;
    let mut walk = Walk { file, text, owner: String::new(), function: None, found: Vec::new() };
    walk.visit_file(&tree);
    Ok(walk.found)
}

/// Methods that do the opposite, or count from the other end.
const OPPOSITES: &[(&str, &str, Kind)] = &[
    ("saturating_add", "saturating_sub", Kind::Arithmetic),
    ("wrapping_add", "wrapping_sub", Kind::Arithmetic),
    ("checked_add", "checked_sub", Kind::Arithmetic),
    ("min", "max", Kind::Arithmetic),
    ("any", "all", Kind::Method),
    ("first", "last", Kind::Method),
    ("first_key_value", "last_key_value", Kind::Method),
    ("pop_first", "pop_last", Kind::Method),
    ("front", "back", Kind::Method),
    ("front_mut", "back_mut", Kind::Method),
    ("pop_front", "pop_back", Kind::Method),
    ("push_front", "push_back", Kind::Method),
    ("is_some", "is_none", Kind::Boolean),
    ("is_ok", "is_err", Kind::Boolean),
    ("is_some_and", "is_none_or", Kind::Boolean),
];

/// Methods whose answer is true or false by their names.
const FACTS: &[&str] = &["is_", "has_", "can_", "may_", "contains", "starts_with", "ends_with", "eq"];

/// Calls that change nothing that a caller could see: hints about capacity.
const HINTS: &[&str] = &["with_capacity", "reserve", "reserve_exact", "shrink_to_fit", "shrink_to"];

struct Walk<'t> {
    file: &'t str,
    text: &'t str,
    /// The type of the `impl` under way, with `::`.
    owner: String,
    /// Name and range of the function under way; without one nothing is changed.
    function: Option<(String, Range<usize>)>,
    found: Vec<Mutant>,
}

impl Walk<'_> {
    fn source(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }

    fn add(&mut self, kind: Kind, shape: Shape, span: Span, instead: impl Into<String>) {
        self.add_range(kind, shape, span.byte_range(), span.start().line, instead);
    }

    fn add_range(
        &mut self,
        kind: Kind,
        shape: Shape,
        range: Range<usize>,
        line: usize,
        instead: impl Into<String>,
    ) {
        let Some((function, function_range)) = self.function.clone() else { return };
        let (file, instead) = (self.file.to_string(), instead.into());
        self.found.push(Mutant { file, function, function_range, line, kind, shape, range, instead });
    }

    /// Replaces `part` within `whole`.
    fn swap(&mut self, kind: Kind, whole: Span, part: Span, instead: &str) {
        let (whole_range, part_range) = (whole.byte_range(), part.byte_range());
        let before = self.text[whole_range.start..part_range.start].to_string();
        let after = &self.text[part_range.end..whole_range.end];
        let instead = format!("{before}{instead}{after}");
        self.add(kind, Shape::Expression, whole, instead);
    }

    fn function<'a>(
        &mut self,
        attributes: &[syn::Attribute],
        signature: &'a syn::Signature,
        body: &'a syn::Block,
        whole: Range<usize>,
    ) {
        if attributes.iter().any(is_left_out) || signature.constness.is_some() {
            return;
        }
        let name = format!("{}{}", self.owner, signature.ident);
        let outer = self.function.replace((name, whole));
        let start = body.brace_token.span.open().byte_range().end;
        let line = body.brace_token.span.open().start().line;
        for value in plain_values(&signature.output) {
            let instead = format!(" return{value};");
            // A body that is this value already stays the same.
            let range = body.brace_token.span.join().byte_range();
            let inner = self.text[range.start + 1..range.end - 1].trim();
            if inner != value.trim() {
                self.add_range(Kind::Result, Shape::Beginning, start..start, line, instead);
            }
        }
        self.visit_block(body);
        self.function = outer;
    }

    fn condition(&mut self, condition: &Expr, values: &[&str]) {
        if has_let(condition) || matches!(condition, Expr::Lit(_)) {
            return;
        }
        for value in values {
            self.add(Kind::Condition, Shape::Expression, condition.span(), *value);
        }
    }

    fn is_removable(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Call(call) => !HINTS.iter().any(|hint| ends_with_name(&call.func, hint)),
            Expr::MethodCall(call) => !HINTS.contains(&&*call.method.to_string()),
            Expr::Try(inner) => self.is_removable(&inner.expr),
            Expr::Binary(binary) => assigned(&binary.op).is_some(),
            Expr::Assign(_) | Expr::Return(_) | Expr::Continue(_) | Expr::Break(_) | Expr::ForLoop(_) => true,
            _ => false,
        }
    }
}

impl<'t> Visit<'t> for Walk<'_> {
    fn visit_item(&mut self, item: &'t syn::Item) {
        match item {
            syn::Item::Fn(function) => {
                let range = function.span().byte_range();
                self.function(&function.attrs, &function.sig, &function.block, range);
            }
            syn::Item::Impl(block) if !block.attrs.iter().any(is_left_out) => {
                let name = block.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
                let is = |known: &str| name.is_some_and(|name| name.ident == known);
                // The order that collections and operators use is `Ord`'s; the partial one only repeats it.
                let repeats = is("PartialOrd")
                    && self.source(&block.span().byte_range()).contains("Some(self.cmp(other))");
                if !is("Debug") && !is("Display") && !repeats {
                    let outer =
                        std::mem::replace(&mut self.owner, format!("{}::", type_name(&block.self_ty)));
                    visit::visit_item_impl(self, block);
                    self.owner = outer;
                }
            }
            syn::Item::Trait(item) if !item.attrs.iter().any(is_left_out) => {
                let outer = std::mem::replace(&mut self.owner, format!("{}::", item.ident));
                visit::visit_item_trait(self, item);
                self.owner = outer;
            }
            syn::Item::Mod(item) if !item.attrs.iter().any(is_left_out) => visit::visit_item_mod(self, item),
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'t syn::ImplItem) {
        if let syn::ImplItem::Fn(function) = item {
            self.function(&function.attrs, &function.sig, &function.block, function.span().byte_range());
        }
    }

    fn visit_trait_item(&mut self, item: &'t syn::TraitItem) {
        if let syn::TraitItem::Fn(function) = item
            && let Some(body) = &function.default
        {
            self.function(&function.attrs, &function.sig, body, function.span().byte_range());
        }
    }

    fn visit_pat(&mut self, _: &'t syn::Pat) {}

    fn visit_type(&mut self, _: &'t syn::Type) {}

    fn visit_path(&mut self, _: &'t syn::Path) {}

    fn visit_expr_const(&mut self, _: &'t syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, repeat: &'t syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, statement: &'t Stmt) {
        if let Stmt::Expr(expression, end) = statement
            && (end.is_some() || matches!(expression, Expr::ForLoop(_)))
            && self.is_removable(expression)
        {
            self.add(Kind::Statement, Shape::Statement, statement.span(), "");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'t syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, &["true", "false"]);
        }
        if matches!(*arm.body, Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_))
            && self.is_removable(&arm.body)
        {
            self.add(Kind::Statement, Shape::Expression, arm.body.span(), "{}");
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_if(&mut self, expression: &'t syn::ExprIf) {
        if self.source(&expression.cond.span().byte_range()).contains(".capacity()") {
            return;
        }
        self.condition(&expression.cond, &["true", "false"]);
        visit::visit_expr_if(self, expression);
    }

    fn visit_expr_while(&mut self, expression: &'t syn::ExprWhile) {
        self.condition(&expression.cond, &["false"]);
        visit::visit_expr_while(self, expression);
    }

    fn visit_expr_binary(&mut self, binary: &'t syn::ExprBinary) {
        let (whole, operator) = (binary.span(), binary.op.span());
        if let Some(instead) = assigned(&binary.op) {
            // It is a statement; without its semicolon, so that it may also be the body of an arm.
            self.swap(Kind::Arithmetic, whole, operator, instead);
        } else if !has_let(&binary.left) && !has_let(&binary.right) {
            let (kind, instead) = operator_instead(&binary.op);
            if let Some(instead) = instead {
                self.swap(kind, whole, operator, instead);
            }
            let is_one = |side: &Expr| self.source(&side.span().byte_range()) == "1";
            if matches!(binary.op, BinOp::Add(_) | BinOp::Sub(_)) && is_one(&binary.right) {
                let left = self.source(&binary.left.span().byte_range()).to_string();
                self.add(Kind::Arithmetic, Shape::Expression, whole, left);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'t syn::ExprUnary) {
        let inner = self.source(&unary.expr.span().byte_range()).to_string();
        match unary.op {
            syn::UnOp::Not(_) => self.add(Kind::Boolean, Shape::Expression, unary.span(), inner),
            syn::UnOp::Neg(_) => self.add(Kind::Arithmetic, Shape::Expression, unary.span(), inner),
            _ => {}
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_lit(&mut self, literal: &'t syn::ExprLit) {
        let span = literal.span();
        match &literal.lit {
            syn::Lit::Bool(value) => {
                let other = if value.value { "false" } else { "true" };
                self.add(Kind::Constant, Shape::Expression, span, other);
            }
            syn::Lit::Int(value) => {
                let (suffix, Ok(number)) = (value.suffix(), value.base10_parse::<u128>()) else { return };
                let mut instead = vec![number.saturating_add(1)];
                if 0 < number {
                    instead.push(if number < 4 { number - 1 } else { number / 2 });
                }
                for number in instead {
                    self.add(Kind::Constant, Shape::Expression, span, format!("{number}{suffix}"));
                }
            }
            _ => {}
        }
    }

    fn visit_expr_path(&mut self, path: &'t syn::ExprPath) {
        let Some(last) = path.path.segments.last() else { return };
        let name = last.ident.to_string();
        let is_constant =
            name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let text = self.source(&path.span().byte_range()).to_string();
        if is_constant && !["MAX", "MIN", "ZERO"].contains(&&*name) {
            self.add(Kind::Constant, Shape::Expression, path.span(), format!("{text} / 2"));
        }
        for (one, other) in [("Less", "Greater"), ("Greater", "Less")] {
            if let Some(kind) = text.strip_suffix(one).filter(|rest| rest.ends_with("Ordering::")) {
                self.add(Kind::Relation, Shape::Expression, path.span(), format!("{kind}{other}"));
            }
        }
    }

    fn visit_expr_call(&mut self, call: &'t syn::ExprCall) {
        if HINTS.iter().any(|hint| ends_with_name(&call.func, hint)) {
            return;
        }
        if ends_with_name(&call.func, "Some") {
            self.add(Kind::Option, Shape::Expression, call.span(), "None");
        }
        // The name of a function is no constant.
        for argument in &call.args {
            self.visit_expr(argument);
        }
        if !matches!(*call.func, Expr::Path(_)) {
            self.visit_expr(&call.func);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'t syn::ExprMethodCall) {
        let name = call.method.to_string();
        if HINTS.contains(&&*name) {
            return;
        }
        let (whole, method) = (call.span(), call.method.span());
        let mut is_swapped = false;
        for &(one, other, kind) in OPPOSITES {
            let instead = if name == one {
                other
            } else if name == other {
                one
            } else {
                continue;
            };
            self.swap(kind, whole, method, instead);
            is_swapped = true;
        }
        if !is_swapped && FACTS.iter().any(|fact| name.starts_with(fact)) {
            let text = self.source(&whole.byte_range()).to_string();
            self.add(Kind::Boolean, Shape::Expression, whole, format!("!{text}"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_macro(&mut self, call: &'t syn::ExprMacro) {
        if call.mac.path.is_ident("matches") {
            let text = self.source(&call.span().byte_range()).to_string();
            self.add(Kind::Boolean, Shape::Expression, call.span(), format!("!{text}"));
        }
    }
}

/// What is only in some builds, is a test, or is told to stay out of documentation.
fn is_left_out(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg") || attribute.path().is_ident("test")
}

/// The name of a type without its parameters.
fn type_name(kind: &syn::Type) -> String {
    match kind {
        syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        syn::Type::Reference(reference) => return type_name(&reference.elem),
        _ => None,
    }
    .unwrap_or_else(|| "_".to_string())
}

fn ends_with_name(function: &Expr, name: &str) -> bool {
    match function {
        Expr::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
        _ => false,
    }
}

/// The expression binds names, as `a && let Some(x) = b` does: no part of it can stand in a block of its own.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// The operator that stands in the place of another one that assigns.
fn assigned(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) => "+=",
        BinOp::DivAssign(_) => "*=",
        BinOp::RemAssign(_) => "/=",
        BinOp::BitAndAssign(_) => "|=",
        BinOp::BitOrAssign(_) => "&=",
        BinOp::BitXorAssign(_) => "|=",
        BinOp::ShlAssign(_) => ">>=",
        BinOp::ShrAssign(_) => "<<=",
        _ => return None,
    })
}

/// The operator that stands in the place of another one.
fn operator_instead(operator: &BinOp) -> (Kind, Option<&'static str>) {
    let instead = match operator {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::And(_) => return (Kind::Boolean, Some("||")),
        BinOp::Or(_) => return (Kind::Boolean, Some("&&")),
        BinOp::Add(_) => return (Kind::Arithmetic, Some("-")),
        BinOp::Sub(_) => return (Kind::Arithmetic, Some("+")),
        BinOp::Mul(_) => return (Kind::Arithmetic, Some("+")),
        BinOp::Div(_) => return (Kind::Arithmetic, Some("*")),
        BinOp::Rem(_) => return (Kind::Arithmetic, Some("/")),
        BinOp::BitAnd(_) => return (Kind::Arithmetic, Some("|")),
        BinOp::BitOr(_) => return (Kind::Arithmetic, Some("&")),
        BinOp::BitXor(_) => return (Kind::Arithmetic, Some("|")),
        BinOp::Shl(_) => return (Kind::Arithmetic, Some(">>")),
        BinOp::Shr(_) => return (Kind::Arithmetic, Some("<<")),
        _ => return (Kind::Relation, None),
    };
    (Kind::Relation, Some(instead))
}

/// Values that a function of this type may return at once, each with a space before it.
fn plain_values(output: &syn::ReturnType) -> &'static [&'static str] {
    let syn::ReturnType::Type(_, kind) = output else { return &[""] };
    match &**kind {
        syn::Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return &[] };
            match &*last.ident.to_string() {
                "bool" => &[" true", " false"],
                "Option" => &[" None"],
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
                | "isize" => &[" 0", " 1"],
                "Result" => &[" Ok(Default::default())"],
                "Self" => &[],
                _ => &[" Default::default()"],
            }
        }
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => &[""],
        syn::Type::Tuple(_) => &[" Default::default()"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mutants of a function's body, as `kind: after`.
    fn of(body: &str) -> Vec<String> {
        let text = format!("fn f() -> Never {{ {body} }}");
        let mutants = mutants("a.rs", &text).expect("Rust");
        let shown = mutants.iter().filter(|mutant| mutant.kind != Kind::Result).map(|mutant| {
            format!(
                "{}: {}{}{}",
                mutant.kind.name(),
                &text[18..mutant.range.start],
                mutant.instead,
                &text[mutant.range.end..text.len() - 2]
            )
        });
        shown.collect()
    }

    #[test]
    fn each_operator_has_its_mutants() {
        for (body, wanted) in [
            ("a < b", vec!["relation: a <= b"]),
            ("a != b", vec!["relation: a == b"]),
            ("a && !b", vec!["boolean: a || !b", "boolean: a && b"]),
            ("a.is_empty()", vec!["boolean: !a.is_empty()"]),
            ("a.is_some()", vec!["boolean: a.is_none()"]),
            ("matches!(a, 1 | 2)", vec!["boolean: !matches!(a, 1 | 2)"]),
            ("a.min(b)", vec!["arithmetic: a.max(b)"]),
            ("x += y;", vec!["statement: ", "arithmetic: x -= y;"]),
            ("7", vec!["constant: 8", "constant: 3"]),
            ("0u8", vec!["constant: 1u8"]),
            ("A_MAX", vec!["constant: A_MAX / 2"]),
            ("true", vec!["constant: false"]),
            ("Some(x)", vec!["option: None"]),
            ("go(x)?;", vec!["statement: "]),
            ("a.iter().any(f)", vec!["method: a.iter().all(f)"]),
            ("Ordering::Less", vec!["relation: Ordering::Greater"]),
        ] {
            assert_eq!(of(body), wanted, "{body}");
        }
    }

    #[test]
    fn one_added_may_be_left_out_or_be_another_number() {
        let wanted =
            ["arithmetic: a - 1", "arithmetic: a", "constant: a + 2", "constant: a + 0"].map(String::from);
        assert_eq!(of("a + 1"), wanted);
    }

    #[test]
    fn conditions_hold_always_or_never() {
        assert_eq!(of("if a { b }"), ["condition: if true { b }", "condition: if false { b }"]);
        assert_eq!(of("while a {}"), ["condition: while false {}"]);
        let guards = ["condition: match a { b if true => d }", "condition: match a { b if false => d }"];
        assert_eq!(of("match a { b if c => d }"), guards);
        assert_eq!(of("if let A = b && c { d }"), Vec::<String>::new());
    }

    #[test]
    fn what_changes_nothing_or_cannot_be_chosen_is_left_out() {
        for body in [
            "assert!(a < 1, \"{}\", b + 1);",
            "let x: [u8; 4];",
            "Duration::ZERO",
            "Vec::with_capacity(a + 1)",
            "x.reserve(2);",
            "if a < b.capacity() { *b = Vec::new(); }",
            "const A: u8 = 1;",
            "f::<4>",
            "[a; 4]",
            "match a { 1 => b, 2..=3 => c }",
        ] {
            assert_eq!(of(body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn functions_return_plain_values() {
        let values = |text: &str| {
            let mutants = mutants("a.rs", text).expect("Rust");
            let results = mutants.into_iter().filter(|mutant| mutant.kind == Kind::Result);
            results.map(|mutant| mutant.difference(text).1).collect::<Vec<_>>()
        };
        assert_eq!(
            values("fn f() -> bool { x }"),
            ["fn f() -> bool { return true; x }", "fn f() -> bool { return false; x }"]
        );
        assert_eq!(values("fn f() -> bool { true }"), ["fn f() -> bool { return false; true }"]);
        assert_eq!(values("fn f() -> Option<u8> { x }"), ["fn f() -> Option<u8> { return None; x }"]);
        assert_eq!(values("fn f() { x() }"), ["fn f() { return; x() }"]);
        assert_eq!(values("fn f() {}"), Vec::<String>::new());
    }

    #[test]
    fn tests_constants_and_what_prints_are_left_out() {
        let text = "#[cfg(test)] mod tests { fn f() { a < b; } }\n#[test] fn g() { a < b; }\n\
                    const fn h() -> bool { a < b }\nconst A: bool = 1 < 2;\n\
                    impl fmt::Display for A { fn fmt(&self) -> R { a < b } }\n\
                    impl PartialOrd for A { fn partial_cmp(&self, other: &A) -> R { Some(self.cmp(other)) } }";
        assert_eq!(mutants("a.rs", text), Ok(Vec::new()));
    }

    #[test]
    fn a_mutant_knows_its_function_and_its_line() {
        let text = "impl<'a> Store<'a> {\n    fn put(&self) -> Never {\n        a\n            < b\n    }\n}";
        let mutants = mutants("a.rs", text).expect("Rust");
        let found = mutants.iter().find(|mutant| mutant.kind == Kind::Relation).expect("one");
        assert_eq!((&*found.function, found.line), ("Store::put", 3));
        assert_eq!(found.difference(text), ("a < b".to_string(), "a <= b".to_string()));
        assert!(
            text[found.function_range.clone()].starts_with("fn put") && found.function_range.end < text.len()
        );
    }
}
