//! Value: the bytes of a version with its generation behind them, shared between the store, its history and answers.
//!
//! ```text
//!  ├ the value ───────────┼ age: 4 ┼ version: 4 ┼ 8 ┤             the usual trailer
//!  ├ the value ───────────┼ age: 8 ┼ version: 8 ┼ lease: 8 ┼ 24 ┤  with a lease, or very old, or put very often
//!  ├ the value ───────────┼ 0 ┤                                    of no version
//! ```
//! The last byte is the length of the trailer before it, numbers are little-endian, and the age is how many revisions
//! ago this life of the key began. A store of small values is mostly pointers and counters. So fields that few readers
//! need are stored in the block of the value, where they mostly fit into the allocator's rounding.
//! Knows nothing of: keys, histories.

use crate::revision::Revision;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

/// The bytes of a value. Copies share them.
#[derive(Clone, Default)]
pub struct Value(Arc<[u8]>);

/// The fields of a put besides its value and its revision. Zeros for a key that is not live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    /// Revision of the put that began this life of the key.
    pub(crate) create_revision: Revision,
    /// 1 on creation, +1 per put.
    pub(crate) version: i64,
    /// The lease it is attached to, 0 for none.
    pub(crate) lease: i64,
}

/// Age and version of four bytes each, and no lease.
const SHORT: u8 = 8;
/// Age, version and lease, of eight bytes each.
const LONG: u8 = 24;

/// Most capacity kept for laying out the next value; a larger buffer is freed.
const SCRATCH_BYTES_MAX: usize = 1 << 16;

impl Value {
    /// The value of a put at a revision, with its generation. `scratch` is a buffer for laying it out; its content does
    /// not matter.
    pub(crate) fn with_generation(
        value: &[u8],
        mod_revision: Revision,
        life: Generation,
        scratch: &mut Vec<u8>,
    ) -> Value {
        let Generation { create_revision, version, lease } = life;
        let age = mod_revision.0.wrapping_sub(create_revision.0);
        scratch.clear();
        scratch.extend_from_slice(value);
        match (u32::try_from(age), u32::try_from(version)) {
            (Ok(age), Ok(version)) if lease == 0 => {
                let mut trailer = [SHORT; SHORT as usize + 1];
                trailer[..4].copy_from_slice(&age.to_le_bytes());
                trailer[4..8].copy_from_slice(&version.to_le_bytes());
                scratch.extend_from_slice(&trailer);
            }
            _ => {
                [age, version, lease].iter().for_each(|it| scratch.extend_from_slice(&it.to_le_bytes()));
                scratch.push(LONG);
            }
        }
        let laid_out = Value(Arc::from(scratch.as_slice()));
        if SCRATCH_BYTES_MAX < scratch.capacity() {
            *scratch = Vec::new();
        }
        laid_out
    }

    /// The generation that the put of this value at this revision recorded; zeros for a value without one.
    pub(crate) fn life(&self, mod_revision: Revision) -> Generation {
        let (age, version, lease) = match &*self.0 {
            [.., a, b, c, d, e, f, g, h, SHORT] => {
                let number = |bytes: [&u8; 4]| i64::from(u32::from_le_bytes(bytes.map(|byte| *byte)));
                (number([a, b, c, d]), number([e, f, g, h]), 0)
            }
            [trailer @ .., LONG] => {
                let mut numbers =
                    trailer.rchunks_exact(8).map(|it| i64::from_le_bytes(it.try_into().unwrap_or_default()));
                let mut next = || numbers.next().unwrap_or_default();
                let (lease, version, age) = (next(), next(), next());
                (age, version, lease)
            }
            _ => return Generation::default(),
        };
        Generation { create_revision: Revision(mod_revision.0.wrapping_sub(age)), version, lease }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            [] => &[],
            [content @ .., trailer] => &content[..content.len() - usize::from(*trailer)],
        }
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        if bytes.is_empty() {
            return Value::default();
        }
        let mut alone = Vec::with_capacity(bytes.len() + 1);
        alone.extend_from_slice(bytes);
        alone.push(0);
        Value(Arc::from(alone))
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Value {
        Value::from(&bytes[..])
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::from(&bytes[..])
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_value_is_its_bytes_whatever_stands_behind_them() {
        let mut scratch = Vec::new();
        for bytes in [&b""[..], b"a", b"\0\0\0", &[0xff; 300]] {
            let alone = Value::from(bytes);
            let life = Generation { create_revision: Revision(7), version: 3, lease: -1 };
            let of_a_version = Value::with_generation(bytes, Revision(9), life, &mut scratch);
            assert_eq!((&*alone, &*of_a_version), (bytes, bytes));
            assert_eq!(alone, of_a_version);
            assert_eq!(of_a_version.life(Revision(9)), life);
        }
        assert!(Value::from(&b"a"[..]) < Value::from(&b"b"[..]));
    }

    #[test]
    fn equal_values_have_equal_hashes_and_others_have_others() {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let hash = |value: &Value| BuildHasherDefault::<DefaultHasher>::default().hash_one(value);
        let life = Generation { create_revision: Revision(7), version: 3, lease: -1 };
        let of_a_version = Value::with_generation(b"a", Revision(9), life, &mut Vec::new());
        assert_eq!(hash(&Value::from(&b"a"[..])), hash(&of_a_version));
        assert_ne!(hash(&Value::from(&b"b"[..])), hash(&of_a_version));
    }

    #[test]
    fn every_life_comes_back() {
        let mut scratch = vec![1, 2, 3];
        let edges = [0, 1, 2, 127, 128, 1 << 21, i64::MAX - 1, i64::MAX, -1, i64::MIN];
        for create_revision in edges.map(Revision) {
            for version in edges {
                for lease in edges {
                    let life = Generation { create_revision, version, lease };
                    let value = Value::with_generation(b"v", Revision(1 << 40), life, &mut scratch);
                    assert_eq!(value.life(Revision(1 << 40)), life);
                    assert_eq!(&*value, b"v");
                }
            }
        }
    }

    #[test]
    fn a_first_version_takes_nine_bytes_more_and_a_large_one_keeps_no_room() {
        let mut scratch = Vec::new();
        let first = Generation { create_revision: Revision(5), version: 1, lease: 0 };
        assert_eq!(Value::with_generation(&[7; 64], Revision(5), first, &mut scratch).0.len(), 64 + 9);
        drop(Value::with_generation(&[7; 1 << 20], Revision(5), first, &mut scratch));
        assert!(scratch.capacity() <= SCRATCH_BYTES_MAX);
    }
}
