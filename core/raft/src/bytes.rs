//! Ranges of a shared immutable buffer: the one type for all bytes that travel.
//!
//! An entry that arrived in a peer's frame stays a range of that frame on its way to the log and to apply; an
//! entry made here is a range of the buffer it was encoded into. Cloning never copies bytes. [architecture §4]
//! Knows nothing of: entries, frames, encodings.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, Range};

/// A range of a shared immutable buffer. Equal and hashed by content.
#[derive(Clone, Default)]
pub struct SharedBytes {
    buffer: Option<Arc<Vec<u8>>>,
    start: usize,
    end: usize,
}

impl SharedBytes {
    /// The sub-range `range` of these bytes, sharing their buffer.
    ///
    /// # Panics
    /// If `range` reaches beyond these bytes.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> SharedBytes {
        assert!(range.start <= range.end, "range {range:?} is reversed");
        assert!(range.end <= self.len(), "range {range:?} of {} bytes", self.len());
        SharedBytes {
            buffer: self.buffer.clone(),
            start: self.start + range.start,
            end: self.start + range.end,
        }
    }

    /// The whole buffer, whatever range of it this is, if no other range of it is left.
    #[must_use]
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        Arc::try_unwrap(self.buffer?).ok()
    }

    /// These bytes and `next` as one range, if `next` follows them directly in the same buffer.
    #[must_use]
    pub fn join(&self, next: &SharedBytes) -> Option<SharedBytes> {
        let (Some(ours), Some(theirs)) = (&self.buffer, &next.buffer) else {
            return None;
        };
        (Arc::ptr_eq(ours, theirs) && self.end == next.start).then(|| SharedBytes {
            buffer: self.buffer.clone(),
            start: self.start,
            end: next.end,
        })
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> SharedBytes {
        let end = bytes.len();
        if end == 0 {
            return SharedBytes::default();
        }
        SharedBytes { buffer: Some(Arc::new(bytes)), start: 0, end }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer[self.start..self.end],
            None => &[],
        }
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &SharedBytes) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl Hash for SharedBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match core::str::from_utf8(self) {
            Ok(text) if self.len() <= 64 => write!(f, "{text:?}"),
            _ => write!(f, "{} bytes", self.len()),
        }
    }
}
