//! The program `kattu`: the verbs of `kattu-verbs`, and the allocator of its process.
//!
//! | File | Its idea |
//! |---|---|
//! | `allocator.rs` | counts allocations, in the counting build |
//!
//! Knows nothing of: verbs.
#![deny(unsafe_code)] // except in the allocator of the counting build

#[cfg(any(test, feature = "count-allocations"))]
#[allow(unsafe_code)] // an allocator cannot be written without
mod allocator;

use std::process::ExitCode;

#[cfg(not(any(test, feature = "count-allocations")))]
#[global_allocator]
static ALLOCATOR: kattu_runtime::allocator::Allocator = kattu_runtime::allocator::Allocator;

#[cfg(any(test, feature = "count-allocations"))]
#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

fn main() -> ExitCode {
    kattu_verbs::run()
}
