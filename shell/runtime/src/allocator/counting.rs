//! The allocator of programs that count: that of the real one with two counters in front.
//!
//! `kattu` has it only with its feature `count-allocations`, for `cargo xtask bench counts`: two atomic additions per
//! allocation would slow the real one.
//! Knows nothing of: callers.

use super::Allocator;
use crate::metrics::{ALLOCATED_BYTES, ALLOCATIONS};
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
    fn what_is_allocated_is_counted() {
        let (count, bytes) = (ALLOCATIONS.get(), ALLOCATED_BYTES.get());
        let layout = Layout::from_size_align(1000, 8).expect("a layout");
        // SAFETY: sizes are above zero, and the block is freed once with its layout.
        unsafe {
            let block = Counting.alloc(layout);
            assert!(count < ALLOCATIONS.get() && bytes + 1000 <= ALLOCATED_BYTES.get());
            let bytes = ALLOCATED_BYTES.get();
            let block = Counting.realloc(block, layout, 6000);
            assert!(bytes + 5000 <= ALLOCATED_BYTES.get(), "and what a block grows by");
            Counting.dealloc(block, Layout::from_size_align(6000, 8).expect("a layout"));
        }
    }
}
