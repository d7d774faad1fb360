//! Input that waits for the library.
//!
//! Knows nothing of: frames.

/// A buffer that is larger than this is given back once it is empty.
const KEPT_MAX: usize = 1 << 10;

/// Bytes, of which the first ones are taken.
#[derive(Debug, Default)]
pub struct Cold {
    bytes: Vec<u8>,
    taken: usize,
}

impl Cold {
    /// The number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The first `len` of them are taken.
    pub fn take(&mut self, len: usize) {
        self.taken += len;
        if self.is_empty() {
            self.clear();
        }
    }

    /// None of them is wanted.
    pub fn clear(&mut self) {
        self.taken = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_MAX);
    }

    /// Where more are appended.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}
