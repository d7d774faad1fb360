//! `cargo xtask mutate`: small mistakes all over a crate, one at a time; its tests must find them.
//!
//! Knows nothing of: the mistakes, the tests.

use crate::shell::{Failure, cargo, in_foreground};

/// `cargo xtask mutate …`: arguments go to the program of `proof/mutation`.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let mut mutate = cargo(&["run", "--locked", "--quiet", "-p", "kattu-mutation", "--"]);
    in_foreground(mutate.args(words))
}
