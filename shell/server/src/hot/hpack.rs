//! Heads of calls, decoded. [RFC 7541]
//!
//! In:    the header blocks of one direction of a connection, complete and in their order.
//! Out:   their fields, names and values as bytes.
//! Rules: 1. The dynamic table has at most [`TABLE_BYTES_MAX`], which is the limit that a server has without saying so.
//!        2. A list may have [`Fields::LIST_BYTES_MAX`]: so what a block costs is bounded, though two of its bytes may name
//!           an entry of four thousand.
//! Knows nothing of: frames, which fields a request may have.

use crate::hot::huffman;
use std::collections::VecDeque;

/// [RFC 9113 §6.5.2: SETTINGS_HEADER_TABLE_SIZE]
pub(crate) const TABLE_BYTES_MAX: usize = 4096;

/// What a field costs beside its bytes, in the table and in lists. [RFC 7541 §4.1]
pub(crate) const FIELD_BYTES: usize = 32;

/// Larger than any number that is of use here.
const INTEGER_MAX: usize = 1 << 24;

/// A block that is not read to its end. The table is of no use any more, and so is the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It is none.
    Malformed,
    /// Its list is far too long.
    TooLong,
}

use Broken::Malformed;

/// A field, as places in the bytes of all.
#[derive(Clone, Copy, Debug)]
struct Field {
    begin: usize,
    name_end: usize,
    end: usize,
    is_secret: bool,
}

/// The fields of one block.
#[derive(Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    list_bytes: usize,
}

impl Fields {
    /// Four times the longest list that is served: beyond it the library would end the connection.
    const LIST_BYTES_MAX: usize = 64 << 10;

    /// Removes all of them; a buffer of a usual size is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 10);
        self.fields.clear();
        self.fields.shrink_to(32);
        self.list_bytes = 0;
    }

    /// Name, value, and whether no table may ever hold it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
        self.fields.iter().map(|field| {
            let (name, value) = (field.begin..field.name_end, field.name_end..field.end);
            (&self.bytes[name], &self.bytes[value], field.is_secret)
        })
    }

    /// The field of the bytes from `begin` on is complete.
    fn end(&mut self, begin: usize, name_end: usize, is_secret: bool) -> Result<(), Broken> {
        let end = self.bytes.len();
        self.fields.push(Field { begin, name_end, end, is_secret });
        self.list_bytes += end - begin + FIELD_BYTES;
        if Fields::LIST_BYTES_MAX < self.list_bytes { Err(Broken::TooLong) } else { Ok(()) }
    }
}

/// An entry of the dynamic table: a name with its value behind it.
#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name_len: usize,
}

/// The decoder of one connection.
#[derive(Debug)]
pub struct Decoder {
    /// The newest first.
    table: VecDeque<Entry>,
    table_bytes: usize,
    table_bytes_max: usize,
    changes: u64,
}

impl Decoder {
    /// With an empty table.
    pub fn new() -> Decoder {
        Decoder { table: VecDeque::new(), table_bytes: 0, table_bytes_max: TABLE_BYTES_MAX, changes: 0 }
    }

    /// How often the table has changed. Between two equal counts the same block has the same meaning.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Decodes one block.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn decode(&mut self, block: &[u8], fields: &mut Fields) -> Result<(), Broken> {
        let mut left = block;
        let mut is_begun = false;
        while let Some(first) = left.first() {
            let begin = fields.bytes.len();
            match first {
                0x80.. => {
                    let index = integer(&mut left, 7)?;
                    let (name, value) = self.entry(index)?;
                    fields.bytes.extend_from_slice(name);
                    fields.bytes.extend_from_slice(value);
                    fields.end(begin, begin + name.len(), false)?;
                }
                0x40.. => {
                    let name_end = self.literal(&mut left, 6, fields)?;
                    self.insert(&fields.bytes[begin..], name_end - begin);
                    fields.end(begin, name_end, false)?;
                }
                0x20.. => {
                    let bytes_max = integer(&mut left, 5)?;
                    if is_begun || TABLE_BYTES_MAX < bytes_max {
                        return Err(Malformed);
                    }
                    self.table_bytes_max = bytes_max;
                    self.changes += 1;
                    self.evict(0);
                    continue;
                }
                first => {
                    let is_secret = 0x10 <= *first;
                    let name_end = self.literal(&mut left, 4, fields)?;
                    fields.end(begin, name_end, is_secret)?;
                }
            }
            is_begun = true;
        }
        Ok(())
    }

    /// Appends name and value of a literal; returns the end of the name.
    fn literal(&self, left: &mut &[u8], prefix: u32, fields: &mut Fields) -> Result<usize, Broken> {
        match integer(left, prefix)? {
            0 => string(left, &mut fields.bytes)?,
            index => fields.bytes.extend_from_slice(self.entry(index)?.0),
        }
        let name_end = fields.bytes.len();
        string(left, &mut fields.bytes)?;
        Ok(name_end)
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Broken> {
        let index = index.checked_sub(1).ok_or(Malformed)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name, value));
        }
        let entry = self.table.get(index - STATIC.len()).ok_or(Malformed)?;
        Ok(entry.bytes.split_at(entry.name_len))
    }

    /// An entry that is larger than the table empties it. [RFC 7541 §4.4]
    fn insert(&mut self, bytes: &[u8], name_len: usize) {
        self.changes += 1;
        let size = bytes.len() + FIELD_BYTES;
        self.evict(size);
        if size <= self.table_bytes_max {
            self.table_bytes += size;
            self.table.push_front(Entry { bytes: bytes.into(), name_len });
        }
    }

    /// Makes room for so many bytes.
    fn evict(&mut self, more: usize) {
        while self.table_bytes_max < self.table_bytes + more
            && let Some(entry) = self.table.pop_back()
        {
            self.table_bytes -= entry.bytes.len() + FIELD_BYTES;
        }
    }
}

/// An integer whose first byte has so many bits for it. [RFC 7541 §5.1]
fn integer(left: &mut &[u8], prefix: u32) -> Result<usize, Broken> {
    let (first, mut rest) = left.split_first().ok_or(Malformed)?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        for shift in (0..).step_by(7) {
            let (byte, behind) = rest.split_first().ok_or(Malformed)?;
            rest = behind;
            if 28 <= shift {
                return Err(Malformed);
            }
            value += usize::from(byte & 0x7f) << shift;
            if INTEGER_MAX < value {
                return Err(Malformed);
            }
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *left = rest;
    Ok(value)
}

/// Appends the bytes of a string. [RFC 7541 §5.2]
fn string(left: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let is_huffman = left.first().ok_or(Malformed)? & 0x80 != 0;
    let len = integer(left, 7)?;
    let (bytes, behind) = left.split_at_checked(len).ok_or(Malformed)?;
    *left = behind;
    if !is_huffman {
        out.extend_from_slice(bytes);
    } else if !huffman::decode(bytes, out) {
        return Err(Malformed);
    }
    Ok(())
}

/// Appends a field as a literal that changes no table.
pub fn encode(name: &[u8], value: &[u8], is_secret: bool, out: &mut Vec<u8>) {
    out.push(if is_secret { 0x10 } else { 0 });
    for text in [name, value] {
        encode_integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// Appends an integer; `flags` are the other bits of its first byte.
pub(crate) fn encode_integer(value: usize, prefix: u32, flags: u8, out: &mut Vec<u8>) {
    let most = (1_usize << prefix) - 1;
    if value < most {
        return out.push(flags | value as u8);
    }
    out.push(flags | most as u8);
    let mut left = value - most;
    while 0x80 <= left {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The static table. [RFC 7541 appendix A]
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests;
