//! Functions of `shell/member` that no storm can execute, each with the reason.
//!
//! Rule: a function stands here only while no storm executes it. One that is gone, or is executed, is an error: its line is to be
//!       deleted.
//! Knows nothing of: how lines are counted.

use crate::shell::Failure;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Functions of one file, and why storms do not come there.
pub struct Elsewhere {
    /// Below `shell/member/src`.
    file: &'static str,
    functions: &'static [&'static str],
    reason: &'static str,
}

/// All of them.
pub const ELSEWHERE: &[Elsewhere] = &[
    Elsewhere {
        file: "host.rs",
        functions: &["handle", "deliver", "step"],
        reason: "the simulator's host calls the replica in the sight of its judges",
    },
    Elsewhere {
        file: "capacity.rs",
        functions: &["quota", "ruling_quota", "space", "is_pinned"],
        reason: "metrics, and the runtime's look at the memory of its process, ask it",
    },
    Elsewhere { file: "member.rs", functions: &["capacity", "counts"], reason: "metrics ask it" },
    Elsewhere { file: "peer_address.rs", functions: &["fmt", "join"], reason: "words for the operator" },
    Elsewhere {
        file: "handshake.rs",
        functions: &["hello", "protocol"],
        reason: "the runtime's listener asks it; the simulator speaks the newest protocol on all connections",
    },
    Elsewhere {
        file: "proofs.rs",
        functions: &["arrivals", "has_started_since", "has_untold", "open"],
        reason: "tasks of the runtime wait for it; in the simulator a handshake is done at one moment",
    },
    Elsewhere {
        file: "peer_table.rs",
        functions: &["forget_places"],
        reason: "a certificate that is no longer accepted: the simulator's stay valid",
    },
    Elsewhere { file: "peer_table.rs", functions: &["is_blank"], reason: "tests and the fuzzer ask it" },
    Elsewhere {
        file: "log.rs",
        functions: &["plan"],
        reason: "a thread of the runtime reads beside the log; the simulator's log reads by itself",
    },
    Elsewhere {
        file: "log_moves.rs",
        functions: &["of", "quick_syncs"],
        reason: "the simulator's logs come home after fewer syncs; tests count them",
    },
    Elsewhere {
        file: "apply.rs",
        functions: &["is_done"],
        reason: "the runtime's thread asks it before it sleeps",
    },
    Elsewhere { file: "snapshots.rs", functions: &["store"], reason: "the runtime asks it" },
];

/// By file, its lines with code: the number of each, and whether it was executed.
pub type Files = BTreeMap<String, BTreeMap<usize, bool>>;

/// Takes the lines of these functions out. Returns how many there are, and a page of them; `read` reads a file below `folder`.
///
/// # Errors
/// A function does not exist any more, or a storm executes it.
pub fn take_out(
    all: &[Elsewhere],
    folder: &str,
    files: &mut Files,
    read: impl Fn(&str) -> Result<String, Failure>,
) -> Result<(usize, String), Failure> {
    let (mut sum, mut page) = (0, String::new());
    for Elsewhere { file, functions, reason } in all {
        let path = format!("{folder}/{file}");
        let tree = syn::parse_file(&read(&path)?)
            .map_err(|error| Failure::new(format!("{path}: not Rust: {error}")))?;
        let mut spans = Spans::default();
        spans.visit_file(&tree);
        let lines = files.entry(path.clone()).or_default();
        let mut here = 0;
        for function in *functions {
            let found = spans.0.iter().filter(|(name, _)| name == function);
            let free: Vec<&RangeInclusive<usize>> = found
                .map(|(_, span)| span)
                .filter(|span| lines.range((*span).clone()).all(|(_, was_executed)| !was_executed))
                .collect();
            let [span] = free[..] else {
                let count = free.len();
                return Err(Failure::new(format!(
                    "{path}: {count} functions `{function}` that no storm executes"
                ))
                .then("correct the list in xtask/src/coverage/elsewhere.rs"));
            };
            let before = lines.len();
            lines.retain(|line, _| !span.contains(line));
            here += before - lines.len();
        }
        sum += here;
        let _ = writeln!(page, "{here:>15} lines  {path}: {}: {reason}", functions.join(", "));
    }
    Ok((sum, page))
}

/// The functions of a file outside of tests: their names, and their first and last lines.
#[derive(Default)]
struct Spans(Vec<(String, RangeInclusive<usize>)>);

impl Spans {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        self.0.push((signature.ident.to_string(), first..=last));
    }
}

impl<'t> Visit<'t> for Spans {
    fn visit_item_mod(&mut self, item: &'t syn::ItemMod) {
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'t syn::ItemFn) {
        self.add(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'t syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'t syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn a() {\n    1;\n}\nstruct S;\nimpl S {\n    fn b() {\n        2;\n    }\n}\n";

    fn taken(function: &'static [&'static str], executed: &[usize]) -> Result<(usize, Files), String> {
        let all = [Elsewhere { file: "one.rs", functions: function, reason: "why" }];
        let lines = [1, 2, 3, 6, 7, 8].map(|line| (line, executed.contains(&line)));
        let mut files = Files::from([("src/one.rs".to_string(), lines.into_iter().collect())]);
        let (sum, page) = take_out(&all, "src", &mut files, |_| Ok(TEXT.to_string()))
            .map_err(|failure| failure.to_string())?;
        assert_eq!(page, format!("{sum:>15} lines  src/one.rs: {}: why\n", function.join(", ")));
        Ok((sum, files))
    }

    #[test]
    fn the_lines_of_a_function_that_no_storm_can_execute_do_not_count() {
        let (sum, files) = taken(&["b"], &[1, 2, 3]).expect("it is there");
        assert_eq!((sum, files["src/one.rs"].keys().copied().collect::<Vec<_>>()), (3, vec![1, 2, 3]));
        assert_eq!(taken(&["a", "b"], &[]).expect("both are there").0, 6);
    }

    #[test]
    fn a_function_that_is_gone_or_is_executed_leaves_the_list() {
        for (function, executed) in [(&["b"][..], &[7][..]), (&["c"], &[])] {
            let error = taken(function, executed).expect_err("it must not stand there");
            assert!(error.contains("that no storm executes"), "{error}");
        }
    }
}
