//! The allocator of the counting build: that of the real one with two counters in front.
//!
//! Only `cargo xtask bench counts` builds it (feature `count-allocations`): two atomic additions per allocation would
//! slow the real one. This program's tests run with it, so that it is compiled at every commit.
//! Knows nothing of: callers.

use kattu_runtime::allocator::Allocator;
use kattu_runtime::metrics::{ALLOCATED_BYTES, ALLOCATIONS};
use std::alloc::{GlobalAlloc, Layout};

/// Counts, then allocates.
pub struct Counting;

fn count(bytes: usize) {
    ALLOCATIONS.add(1);
    ALLOCATED_BYTES.add(bytes as u64);
}

// SAFETY: every call is passed on unchanged to an allocator that keeps the contract; counting touches no memory but two
// atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { Allocator.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { Allocator.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.saturating_sub(layout.size()));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { Allocator.realloc(pointer, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_allocates_is_counted() {
        let (count, bytes) = (ALLOCATIONS.get(), ALLOCATED_BYTES.get());
        let mut list: Vec<u8> = Vec::with_capacity(1000);
        assert!(count < ALLOCATIONS.get() && bytes + 1000 <= ALLOCATED_BYTES.get());
        let bytes = ALLOCATED_BYTES.get();
        list.reserve_exact(5000);
        assert!(bytes + 4000 <= ALLOCATED_BYTES.get(), "and what a list grows by");
    }
}
