//! The allocator of the real binary: mimalloc, called in the way that wastes least.
//!
//! From version 3 on mimalloc treats a request that names an alignment as one that needs more than usual, unless the
//! block is a power of two: it enlarges the block, so that it can be shifted. A value of 64 bytes in a block of 96 took
//! 112, and each free had to look for the beginning of the block. But plain allocations are aligned to 16 bytes from 16
//! bytes on, as C demands of `malloc`, and to 8 below: so nearly none of ours needs to name an alignment. The allocator
//! of Rust's standard library draws the same line.
//! Knows nothing of: the callers, when memory goes back to the system (`memory`).

mod counting;

pub use counting::Counting;

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
use std::alloc::{GlobalAlloc, Layout};

/// Alignment of every plain allocation of at least this many bytes. [C17, 7.22.3: `max_align_t` of 64-bit systems]
const ALIGNED: usize = 16;

/// mimalloc.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// Whether a plain allocation of this size has this alignment.
const fn is_natural(size: usize, align: usize) -> bool {
    align <= ALIGNED && align <= size
}

// SAFETY: mimalloc keeps the contract. A block is at least as large as requested, aligned as requested or, for a plain
// request, to 16 bytes from 16 bytes on and to 8 below, and exclusive until it is freed. Blocks of either kind may be
// freed or resized, whichever way they were requested.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size may be requested, and an alignment of a layout is a power of two.
        unsafe {
            match is_natural(layout.size(), layout.align()) {
                true => mi_malloc(layout.size()).cast(),
                false => mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match is_natural(layout.size(), layout.align()) {
                true => mi_zalloc(layout.size()).cast(),
                false => mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, _layout: Layout) {
        // SAFETY: the caller guarantees that the block is from this allocator.
        unsafe { mi_free(pointer.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is from this allocator, and that the new size does not overflow.
        unsafe {
            match is_natural(new_size, layout.align()) {
                true => mi_realloc(pointer.cast(), new_size).cast(),
                false => mi_realloc_aligned(pointer.cast(), new_size, layout.align()).cast(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::{mi_good_size, mi_usable_size};

    #[test]
    fn blocks_are_aligned_as_asked_and_keep_what_is_in_them() {
        for align in (0..13).map(|bits| 1 << bits) {
            for size in (1..300).chain([1000, 4096, 100_000]) {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: sizes are above zero, and each block is freed once with its layout.
                unsafe {
                    let block = Allocator.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                    block.write_bytes(7, size);
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align), "{layout:?}");
                    assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                    Allocator.dealloc(zeroed, layout);
                    for new_size in [size.div_ceil(3), 2 * size] {
                        let copy = Allocator.alloc(layout);
                        copy.copy_from_nonoverlapping(block, size);
                        let moved = Allocator.realloc(copy, layout, new_size);
                        assert!(moved.addr().is_multiple_of(align), "{layout:?} to {new_size}");
                        let kept = std::slice::from_raw_parts(moved, size.min(new_size));
                        assert!(kept.iter().all(|byte| *byte == 7), "{layout:?} to {new_size}");
                        Allocator.dealloc(moved, Layout::from_size_align(new_size, align).expect("a layout"));
                    }
                    Allocator.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn a_block_is_no_larger_than_one_without_an_alignment() {
        for size in (1..40).map(|words| 8 * words) {
            // A new thread has no page of another block size from which the request could be served.
            let alone = std::thread::spawn(move || {
                let layout = Layout::from_size_align(size, 8).expect("a layout");
                // SAFETY: sizes are above zero, and the block is freed once with its layout.
                unsafe {
                    let block = Allocator.alloc(layout);
                    let usable = mi_usable_size(block.cast());
                    Allocator.dealloc(block, layout);
                    (usable, mi_good_size(size))
                }
            });
            let (usable, least) = alone.join().expect("it does not panic");
            assert_eq!(usable, least, "{size} bytes");
        }
    }
}
