//! Fields: reads and writes the little-endian fields of every format here.
//!
//! A reader never guesses: it names the field that was missing or wrong.
//! Knows nothing of: formats.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Why a field could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The bytes end before or inside the field.
    Missing {
        /// Which field.
        field: &'static str,
    },
    /// The field holds a value that this version does not know.
    Value {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Bytes are left after the last field.
    Trailing {
        /// How many.
        bytes: usize,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::Missing { field } => write!(f, "field `{field}` is cut off"),
            FieldError::Value { field, value } => {
                write!(f, "field `{field}` has the invalid value {value}")
            }
            FieldError::Trailing { bytes } => write!(f, "{bytes} bytes follow the last field"),
        }
    }
}

impl core::error::Error for FieldError {}

/// Reads fields one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`FieldError::Missing`] when fewer are left.
    pub fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], FieldError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(FieldError::Missing { field })?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FieldError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(FieldError::Missing { field })?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, FieldError> {
        Ok(self.array::<1>(field)?[0])
    }

    /// Two bytes.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, FieldError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, FieldError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, FieldError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end, [`FieldError::Value`] for any other byte.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, FieldError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(FieldError::Value { field, value: u64::from(other) }),
        }
    }

    /// A text: its length in two bytes, then UTF-8.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end, [`FieldError::Value`] (the length) when it is not UTF-8.
    pub fn text(&mut self, field: &'static str) -> Result<String, FieldError> {
        let len = self.u16(field)?;
        let bytes = self.bytes(usize::from(len), field)?;
        match core::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(FieldError::Value { field, value: u64::from(len) }),
        }
    }

    /// All bytes that are left, for another reader.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    /// [`FieldError::Trailing`] otherwise.
    pub fn end(self) -> Result<(), FieldError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(FieldError::Trailing { bytes }),
        }
    }
}

/// Writes fields one after the other.
pub trait Write {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
    /// A text: its length in two bytes, then UTF-8. Text beyond 65,535 bytes is cut off.
    fn put_text(&mut self, text: &str);
}

impl Write for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        let fits = text.floor_char_boundary(usize::from(u16::MAX));
        self.put_u16(u16::try_from(fits).expect("cut to fit above"));
        self.extend_from_slice(&text.as_bytes()[..fits]);
    }
}
