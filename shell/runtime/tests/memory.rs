//! Goal: memory is kept while it may be wanted again, and given back on demand. A process of its own: the allocator's
//! options are the whole process's.

use kattu_runtime::allocator::Allocator;
use kattu_runtime::memory;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const BLOCK: usize = 64 * 1024;
const BLOCKS: usize = 2_000;

/// Bytes of this process that are in memory, as the kernel counts: not to the last page.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has one");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

#[test]
fn free_memory_stays_until_it_is_given_back_and_then_the_system_has_it() {
    assert!(memory::hold_on(), "MIMALLOC_PURGE_DELAY must not be set for this test");
    let before = resident();
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    let full = resident();
    assert!(full.saturating_sub(before) >= BLOCKS * BLOCK / 4 * 3, "{before} {full}");
    drop(blocks);
    // Allocations that give memory back by the way would do it here.
    std::hint::black_box((0..100_000).map(|n| Box::new([n; 8])).collect::<Vec<_>>());
    let held = resident();
    assert!(held.saturating_sub(before) >= BLOCKS * BLOCK / 2, "{before} {full} {held}");
    memory::give_back();
    let given = resident();
    assert!(given.saturating_sub(before) < BLOCKS * BLOCK / 4, "{before} {full} {held} {given}");
}
