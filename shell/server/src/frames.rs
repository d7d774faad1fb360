//! Finds the heads of HTTP/2 frames among bytes, however the bytes are cut. [RFC 9113 §4.1]
//!
//! Knows nothing of: the direction of the bytes, the purpose of frames.

pub const HEAD_BYTES: usize = 9;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
/// Of settings and pings.
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The fields of a head that this crate uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    /// Bytes that follow it.
    pub len: usize,
}

/// The position among frames at the end of some bytes.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Bytes until the next head begins.
    skip: usize,
    /// The part of a head received so far.
    head: [u8; HEAD_BYTES],
    len: usize,
}

impl Frames {
    /// The first head begins after so many bytes.
    pub fn after(skip: usize) -> Frames {
        Frames { skip, head: [0; HEAD_BYTES], len: 0 }
    }

    /// Returns the first head that ends in these bytes, and removes the bytes up to its end; without such a head none,
    /// and removes all of them.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<Head> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        *bytes = &bytes[skipped..];
        if bytes.is_empty() {
            return None;
        }
        let [high, middle, low, kind, flags, stream @ ..] = match bytes.split_first_chunk() {
            Some((head, left)) if self.len == 0 => {
                *bytes = left;
                *head
            }
            _ => self.gathered(bytes)?,
        };
        self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
        Some(Head { kind, flags, stream: u32::from_be_bytes(stream), len: self.skip })
    }

    /// A head that does not come in one piece.
    #[cold]
    fn gathered(&mut self, bytes: &mut &[u8]) -> Option<[u8; HEAD_BYTES]> {
        let more = (HEAD_BYTES - self.len).min(bytes.len());
        self.head[self.len..self.len + more].copy_from_slice(&bytes[..more]);
        *bytes = &bytes[more..];
        self.len = (self.len + more) % HEAD_BYTES;
        (self.len == 0).then_some(self.head)
    }

    /// Skips these bytes.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while self.next(&mut bytes).is_some() {}
    }

    /// Bytes still to come of the frame whose head was last.
    pub fn rest(&self) -> usize {
        self.skip
    }

    /// Whether a head is incomplete.
    pub(crate) fn is_in_head(&self) -> bool {
        0 < self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let mut bytes = b"PRI".to_vec();
        for (kind, len) in [(SETTINGS, 0), (PING, 8), (DATA, 200), (HEADERS, 9)] {
            bytes.extend([0, 0, len, kind, kind + 1, 0, 0, 0, 1]);
            bytes.extend(vec![PING; len as usize]);
        }
        for cut in 1..bytes.len() {
            let mut frames = Frames::after(3);
            let mut found = Vec::new();
            for mut piece in bytes.chunks(cut) {
                while let Some(head) = frames.next(&mut piece) {
                    assert_eq!(head.flags, head.kind + 1);
                    found.push((head.kind, head.len));
                }
            }
            assert_eq!(found, [(SETTINGS, 0), (PING, 8), (DATA, 200), (HEADERS, 9)], "pieces of {cut}");
            assert!(frames.rest() == 0 && !frames.is_in_head());
        }
    }
}
