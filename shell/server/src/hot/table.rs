//! The client's table of heads, once it is to be smaller. [RFC 7541 §4.2]
//!
//! In:    sizes in the client's settings; acknowledgements and heads of the library.
//! Out:   what a hot head begins with.
//! Rules: 1. The first head behind the acknowledgement of a smaller size has to say that size. The library does so in its
//!           own next head; until then hot heads do.
//!        2. A hot head says nothing in front of the acknowledgement: the library's table has its old size till then.
//! Knows nothing of: frames, the contents of the table.

use crate::hot::hpack::{TABLE_BYTES_MAX, encode_integer};
use std::collections::VecDeque;

/// What is to be said.
#[derive(Debug)]
pub struct Table {
    /// The size that came last.
    bytes_max: usize,
    /// Settings of the client so far, and acknowledgements that were sent.
    came: u64,
    acknowledged: u64,
    /// Smaller sizes that are not acknowledged, with the numbers of their settings.
    to_come: VecDeque<(u64, usize)>,
    /// The smallest size that is acknowledged and that no head of the library has said.
    unsaid: Option<usize>,
}

impl Table {
    /// Of a client that has said nothing.
    pub fn new() -> Table {
        Table { bytes_max: TABLE_BYTES_MAX, came: 0, acknowledged: 0, to_come: VecDeque::new(), unsaid: None }
    }

    /// The next settings begin.
    pub fn settings_come(&mut self) {
        self.came += 1;
    }

    /// The settings that came last have this size.
    pub fn is_to_have(&mut self, bytes_max: u32) {
        let bytes_max = bytes_max as usize;
        if bytes_max < self.bytes_max {
            self.to_come.push_back((self.came, bytes_max));
        }
        self.bytes_max = bytes_max;
    }

    /// The library has acknowledged the next settings.
    pub fn is_acknowledged(&mut self) {
        self.acknowledged += 1;
        while let Some((_, size)) = self.to_come.pop_front_if(|(number, _)| *number <= self.acknowledged) {
            self.unsaid = Some(self.unsaid.map_or(size, |unsaid| unsaid.min(size)));
        }
    }

    /// A head of the library's goes out.
    pub fn is_said(&mut self) {
        self.unsaid = None;
    }

    /// Appends what a hot head begins with.
    pub fn begin(&self, out: &mut Vec<u8>) {
        if let Some(size) = self.unsaid {
            encode_integer(size, 5, 0x20, out);
        }
    }

    /// The number of bytes that it appends.
    pub fn len(&self) -> usize {
        match self.unsaid {
            None => 0,
            Some(..31) => 1,
            Some(size) => 1 + (size - 31).checked_ilog2().map_or(1, |bits| bits as usize / 7 + 1),
        }
    }

    /// … and the most.
    pub const BYTES_MAX: usize = 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_acknowledged_size_is_said_until_the_library_has_said_it() {
        let mut table = Table::new();
        let said = |table: &Table| {
            let mut out = Vec::new();
            table.begin(&mut out);
            assert!(out.len() == table.len() && out.len() <= Table::BYTES_MAX);
            out
        };
        for size in [4096, 300, 30, 4095, 4094] {
            table.settings_come();
            table.is_to_have(size);
        }
        table.is_acknowledged();
        assert_eq!(said(&table), []);
        table.is_acknowledged();
        assert_eq!(said(&table), [0x3f, 0x8d, 0x02]);
        table.is_said();
        assert_eq!(said(&table), []);
        table.is_acknowledged();
        assert_eq!(said(&table), [0x3e]);
        table.is_acknowledged();
        table.is_acknowledged();
        assert_eq!(said(&table), [0x3e], "larger ones behind it do not undo it");
        table.is_said();
        assert!(said(&table).is_empty() && table.to_come.is_empty());
        for size in [31, 32, 158, 159, 16_414, 16_415, u32::MAX as usize] {
            table.unsaid = Some(size);
            assert!(!said(&table).is_empty());
        }
    }
}
