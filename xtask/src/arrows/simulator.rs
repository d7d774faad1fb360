//! The simulator executes what `shell/member` decides: it stays small, and has no limits of its own.
//!
//! In:   `proof/sim/src` and `shell/member/src`.
//! Out:  each limit of the simulator's own, with its line; the sum of lines, if it is too large.
//! Rule: 1. The files that do for one member what the runtime does hold at most [`LINES_MAX`] lines together. More of them
//!          means that a decision is written twice, and that storms run the copy.
//!       2. A constant of `proof/sim` that bounds a lane, or that has the name of a public constant of `shell/member` (alone, or behind
//!          a word of its own: `LANE_BYTES_MAX`), is computed from one of `shell/member`. So a changed limit changes the storms.
//!          It may be smaller than in production, so that storms reach it.
//! Source: docs/decisions/0058-what-a-member-decides-is-a-crate.md.
//! Knows nothing of: what the limits are for.

use crate::shell::{self, Failure};
use syn::visit::{self, Visit};

/// The executor of one member.
const EXECUTOR: [&str; 4] = ["process.rs", "log.rs", "snapshots.rs", "net.rs"];
/// Lower this when it can be lowered.
const LINES_MAX: usize = 1000;

const MEMBER: &str = "shell/member/src";
const SIMULATOR: &str = "proof/sim/src";

/// What is wrong with the simulator.
pub fn judge() -> Result<Vec<String>, Failure> {
    let mut lines = 0;
    for file in EXECUTOR {
        lines += read(&format!("{SIMULATOR}/{file}"))?.lines().count();
    }
    let mut wrong = Vec::from_iter(too_long(lines));
    let mut limits = Vec::new();
    for path in shell::files_in_git(&[shell::NEW_TOO, &["--", MEMBER]].concat())? {
        let public = constants(&path, &read(&path)?)?.into_iter().filter(|constant| constant.is_public);
        limits.extend(public.map(|constant| constant.name));
    }
    for path in shell::files_in_git(&[shell::NEW_TOO, &["--", SIMULATOR]].concat())? {
        wrong.extend(own_limits(&path, &read(&path)?, &limits)?);
    }
    Ok(wrong)
}

fn read(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(shell::root().join(path))
        .map_err(|error| Failure::new(format!("{path}: {error}")))
}

fn too_long(lines: usize) -> Option<String> {
    let files = EXECUTOR.join(",");
    (LINES_MAX < lines).then(|| {
        format!(
            "{SIMULATOR}/{{{files}}}: {lines} lines, at most {LINES_MAX}: move decisions to shell/member, and what simulates time or disks to files beside these"
        )
    })
}

/// The limits in this file of the simulator that are its own, where `limits` are the names of those of `shell/member`.
fn own_limits(path: &str, text: &str, limits: &[String]) -> Result<Vec<String>, Failure> {
    let is_named_alike = |name: &str| {
        limits
            .iter()
            .any(|limit| name.strip_suffix(limit).is_some_and(|rest| rest.is_empty() || rest.ends_with('_')))
    };
    let bounds_lane = |constant: &Constant| {
        constant.is_number && constant.name.split('_').any(|word| matches!(word, "LANE" | "LANES"))
    };
    let own = constants(path, text)?.into_iter().filter(|constant| {
        (is_named_alike(&constant.name) || bounds_lane(constant)) && !constant.is_of_member
    });
    Ok(own
        .map(|constant| {
            let Constant { name, line, .. } = constant;
            format!("{path}:{line}: `{name}` is a limit of the simulator's own: compute it from that of shell/member")
        })
        .collect())
}

/// A constant of a file.
struct Constant {
    name: String,
    line: usize,
    is_public: bool,
    is_number: bool,
    /// Its value is computed from a constant of `shell/member`.
    is_of_member: bool,
}

/// All constants outside of tests.
fn constants(path: &str, text: &str) -> Result<Vec<Constant>, Failure> {
    let file = syn::parse_file(text).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let mut found = Found { modules: Vec::new(), constants: Vec::new() };
    found.visit_file(&file);
    Ok(found.constants)
}

/// What is found on the way through a file.
struct Found {
    /// Names that stand for `kattu_member` and what is in it.
    modules: Vec<String>,
    constants: Vec<Constant>,
}

impl<'t> Visit<'t> for Found {
    fn visit_item_use(&mut self, item: &'t syn::ItemUse) {
        if let syn::UseTree::Path(path) = &item.tree
            && path.ident == "kattu_member"
        {
            names_of(&path.tree, &mut self.modules);
        }
    }

    fn visit_item_mod(&mut self, item: &'t syn::ItemMod) {
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'t syn::ItemConst) {
        let mut value = Named(Vec::new());
        value.visit_expr(&item.expr);
        let is_of_member = |name: &String| name == "kattu_member" || self.modules.contains(name);
        let is_number = matches!(&*item.ty, syn::Type::Path(path) if path.path.segments.last().is_some_and(|last| {
            ["u8", "u16", "u32", "u64", "usize", "i64", "f64", "Duration"].iter().any(|number| last.ident == number)
        }));
        self.constants.push(Constant {
            name: item.ident.to_string(),
            line: item.ident.span().start().line,
            is_public: matches!(item.vis, syn::Visibility::Public(_)),
            is_number,
            is_of_member: value.0.iter().any(is_of_member),
        });
    }
}

/// First names of all paths in an expression.
struct Named(Vec<String>);

impl<'t> Visit<'t> for Named {
    fn visit_path(&mut self, path: &'t syn::Path) {
        self.0.extend(path.segments.first().map(|first| first.ident.to_string()));
        visit::visit_path(self, path);
    }
}

/// The names that a `use` brings.
fn names_of(tree: &syn::UseTree, names: &mut Vec<String>) {
    match tree {
        syn::UseTree::Path(path) => names_of(&path.tree, names),
        syn::UseTree::Name(name) => names.push(name.ident.to_string()),
        syn::UseTree::Rename(renamed) => names.push(renamed.rename.to_string()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| names_of(tree, names)),
        syn::UseTree::Glob(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_that_has_grown_is_named_with_its_lines() {
        assert_eq!(too_long(LINES_MAX), None);
        let wrong = too_long(LINES_MAX + 1).unwrap_or_default();
        let found =
            format!("proof/sim/src/{{process.rs,log.rs,snapshots.rs,net.rs}}: {} lines", LINES_MAX + 1);
        assert!(wrong.starts_with(&found), "{wrong}");
    }

    fn own(text: &str) -> Vec<String> {
        let limits = ["BYTES_MAX".to_string(), "CALLS_MAX".to_string()];
        own_limits("paths.rs", text, &limits).expect("Rust")
    }

    #[test]
    fn a_limit_that_shell_member_has_is_not_written_anew() {
        let wrong =
            own("\nconst BYTES_MAX: u64 = 1 << 20;\n/// A twin.\nconst LANE_BYTES_MAX: u64 = 32 << 20;\n");
        let expected = "is a limit of the simulator's own: compute it from that of shell/member";
        assert_eq!(
            wrong,
            [
                format!("paths.rs:2: `BYTES_MAX` {expected}"),
                format!("paths.rs:4: `LANE_BYTES_MAX` {expected}"),
            ]
        );
    }

    #[test]
    fn a_lane_has_no_bound_of_another_name_either() {
        assert_eq!(own("const LANE_FRAMES: usize = 12;").len(), 1);
        assert_eq!(own("const PAUSE_OF_A_LANE: Duration = Duration::from_millis(3);").len(), 1);
        assert_eq!(own("const LANES: [usize; 3] = [0, 1, 2];").len(), 0, "no number");
    }

    #[test]
    fn a_limit_may_be_computed_from_that_of_shell_member() {
        let by_path = "const CALLS_MAX: usize = kattu_member::step::CALLS_MAX / 32;";
        let by_module = "use kattu_member::lanes;\nconst LANE_BYTES_MAX: u64 = lanes::BYTES_MAX as u64 / 32;";
        let renamed =
            "use kattu_member::step::{self, CALLS_MAX as REAL};\nconst CALLS_MAX: usize = REAL / 32;";
        for text in [by_path, by_module, renamed] {
            assert_eq!(own(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_the_simulators_own() {
        assert_eq!(
            own("const RECALLS_MAX: u64 = 3;\nconst LOOK_EVERY: u64 = 2;\nconst PLANE: u64 = 2;"),
            Vec::<String>::new()
        );
        assert_eq!(own("#[cfg(test)]\nmod tests {\n    const BYTES_MAX: u64 = 1;\n}"), Vec::<String>::new());
    }
}
