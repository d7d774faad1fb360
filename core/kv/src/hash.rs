//! Hash: a fast 64-bit hash that tells two states apart.
//!
//! Eight or sixteen bytes at a time are mixed in by a wide multiplication whose halves are XORed. Each byte string is
//! preceded by its length, so that no two sequences look alike. Equal on every machine and in every run. It detects
//! mistakes, not attacks: a client that chooses values can construct two with the same hash.
//! Knows nothing of: the meaning of the numbers and bytes.

/// Odd numbers without a pattern: digits of the square roots of 2 and 3.
const FIRST: u64 = 0x6a09_e667_f3bc_c909;
const SECOND: u64 = 0xbb67_ae85_84ca_a73b;

/// A hash in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher(u64);

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher(FIRST)
    }

    pub(crate) fn number(&mut self, n: i64) {
        self.0 = fold(self.0 ^ n as u64, SECOND);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // Two lanes, because within a lane each multiplication waits for the one before.
        let mut lanes = (fold(self.0 ^ bytes.len() as u64, SECOND), FIRST);
        let mut blocks = bytes.chunks_exact(32);
        for block in &mut blocks {
            lanes.0 = fold(lanes.0 ^ word(block, 0), SECOND ^ word(block, 8));
            lanes.1 = fold(lanes.1 ^ word(block, 16), FIRST ^ word(block, 24));
        }
        let mut rest = blocks.remainder().chunks_exact(8);
        for eight in &mut rest {
            lanes.0 = fold(lanes.0 ^ word(eight, 0), SECOND);
        }
        let mut last = [0; 8];
        last[..rest.remainder().len()].copy_from_slice(rest.remainder());
        self.0 = fold(lanes.0 ^ u64::from_le_bytes(last), lanes.1 | 1);
    }

    pub(crate) fn finish(self) -> u64 {
        fold(self.0 ^ FIRST, SECOND)
    }
}

/// The upper half of the product XORed with its lower half.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn word(bytes: &[u8], from: usize) -> u64 {
    bytes[from..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    fn hash_of(bytes: &[u8]) -> u64 {
        let mut hasher = Hasher::new();
        hasher.bytes(bytes);
        hasher.finish()
    }

    #[test]
    fn every_flipped_bit_and_every_length_is_another_hash() {
        for length in [0usize, 1, 7, 8, 9, 31, 32, 33, 63, 64, 100, 256] {
            let mut seen = BTreeSet::new();
            let mut bytes: vec::Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            assert!(seen.insert(hash_of(&bytes)));
            for bit in 0..length * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(hash_of(&bytes)), "bit {bit} of {length} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let zeros: BTreeSet<u64> = (0..300).map(|length| hash_of(&vec![0; length])).collect();
        assert_eq!(zeros.len(), 300);
    }

    #[test]
    fn where_one_string_ends_and_the_next_begins_matters() {
        let of = |parts: &[&[u8]]| {
            let mut hasher = Hasher::new();
            parts.iter().for_each(|part| hasher.bytes(part));
            hasher.finish()
        };
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"abc"]), of(&[b"abc", b""]));
        // Members of different builds compare hashes: they must not change by accident.
        assert_eq!(of(&[b"key", &[7; 100]]), 12_570_368_700_687_381_845);
    }
}
