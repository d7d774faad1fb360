//! The program `kattu`: the verbs of `kattu-verbs`, and the allocator of its process.
//!
//! Knows nothing of: verbs.
#![forbid(unsafe_code)]

#[cfg(not(feature = "count-allocations"))]
use kattu_runtime::allocator::Allocator;
#[cfg(feature = "count-allocations")]
use kattu_runtime::allocator::Counting as Allocator;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    kattu_verbs::run()
}
