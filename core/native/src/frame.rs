//! Frame: a length and a checksum around one or many messages.
//!
//! ```text
//!  0        4     8                                       8+length
//!  ├ length ┼ crc ┼ message ┼ message ┼ … ────────────────┤
//!                 ├ length: u32 ┼ kind ┼ flags ┼ 0: u16 ┼ request: u64 ┼ fields ┤
//! ```
//! Rules: 1. A frame is judged before any of its messages is: damaged bytes do nothing.
//!        2. A length above the reader's limit is refused before anything is awaited for it.
//! Knows nothing of: the fields of messages.

use alloc::vec::Vec;
use core::fmt;
use kattu_wire::Crc;
use kattu_wire::fields::{FieldError, Reader};

/// Bytes of a frame before its messages.
pub const FRAME_HEADER: usize = 8;
/// Bytes of a message before its fields.
pub const MESSAGE_HEADER: usize = 16;

/// Capacity that a writer keeps when it is emptied.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Why bytes are not a frame. The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Longer than the reader accepts.
    Length {
        /// The length that the frame names.
        length: u32,
        /// The most.
        most: u32,
    },
    /// The checksum does not fit the bytes.
    Checksum,
    /// A message's header or its fields.
    Field(FieldError),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length { length, most } => {
                write!(f, "a frame of {length} bytes, at most {most} are accepted")
            }
            FrameError::Checksum => f.write_str("a frame whose checksum does not fit"),
            FrameError::Field(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FrameError {}

impl From<FieldError> for FrameError {
    fn from(error: FieldError) -> FrameError {
        FrameError::Field(error)
    }
}

/// One message of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is. [`crate::message`], [`crate::reply`]
    pub kind: u8,
    /// Their meaning depends on the kind; 0 where there is none.
    pub flags: u8,
    /// The client's name for the request: its answer bears the same. 0 in hello and welcome.
    pub request: u64,
    /// The rest.
    pub fields: &'a [u8],
}

/// The messages of a frame whose checksum is right.
#[derive(Clone, Debug)]
pub struct Messages<'a>(Reader<'a>);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, FrameError>;

    fn next(&mut self) -> Option<Result<Message<'a>, FrameError>> {
        if self.0.left() == 0 {
            return None;
        }
        let message = self.take();
        if message.is_err() {
            self.0 = Reader::new(&[]); // what follows has no beginning
        }
        Some(message)
    }
}

impl<'a> Messages<'a> {
    /// The messages that are left of a frame whose checksum was right.
    #[must_use]
    pub fn checked(bytes: &'a [u8]) -> Messages<'a> {
        Messages(Reader::new(bytes))
    }

    /// Bytes of the messages that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.left()
    }

    fn take(&mut self) -> Result<Message<'a>, FrameError> {
        let length = self.0.u32("message length")?;
        let (kind, flags) = (self.0.u8("kind")?, self.0.u8("flags")?);
        let reserved = self.0.u16("reserved")?;
        if reserved != 0 {
            return Err(FieldError::Value { field: "reserved", value: reserved.into() }.into());
        }
        let request = self.0.u64("request")?;
        let fields = self.0.bytes(length as usize, "fields")?;
        Ok(Message { kind, flags, request, fields })
    }
}

/// Finds frames at the beginning of bytes.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader {
    crc: Crc,
    most: u32,
}

impl FrameReader {
    /// A reader that accepts frames whose messages have at most so many bytes.
    #[must_use]
    pub fn new(crc: Crc, most: u32) -> FrameReader {
        FrameReader { crc, most }
    }

    /// The frame at the beginning, with its length; `None` if it is incomplete so far.
    ///
    /// # Errors
    /// If no frame can begin so.
    pub fn next<'a>(&self, bytes: &'a [u8]) -> Result<Option<(Messages<'a>, usize)>, FrameError> {
        let Some(length) = bytes.first_chunk().map(|length| u32::from_le_bytes(*length)) else {
            return Ok(None);
        };
        if self.most < length {
            return Err(FrameError::Length { length, most: self.most });
        }
        let whole = FRAME_HEADER + length as usize;
        let Some(frame) = bytes.get(..whole) else { return Ok(None) };
        let (header, messages) = frame.split_at(FRAME_HEADER);
        let sum = (self.crc)((self.crc)(0, &header[..4]), messages);
        if header[4..] != sum.to_le_bytes() {
            return Err(FrameError::Checksum);
        }
        Ok(Some((Messages(Reader::new(messages)), whole)))
    }
}

/// Collects messages for one frame.
#[derive(Clone, Debug)]
pub struct FrameWriter {
    crc: Crc,
    /// A place for the header, then the messages.
    bytes: Vec<u8>,
}

impl FrameWriter {
    /// An empty frame.
    #[must_use]
    pub fn new(crc: Crc) -> FrameWriter {
        FrameWriter { crc, bytes: Vec::from([0; FRAME_HEADER]) }
    }

    /// Whether it has no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - FRAME_HEADER
    }

    /// Adds a message; `fields` writes its fields.
    ///
    /// # Panics
    /// If they have 4 GiB.
    pub fn message(&mut self, kind: u8, flags: u8, request: u64, fields: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0, 0, 0, kind, flags, 0, 0]);
        self.bytes.extend_from_slice(&request.to_le_bytes());
        fields(&mut self.bytes);
        let length = self.bytes.len() - start - MESSAGE_HEADER;
        let length = u32::try_from(length).expect("callers bound what they send");
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// The bytes of the frame, which is empty afterwards.
    ///
    /// # Panics
    /// If its messages have 4 GiB.
    pub fn take(&mut self) -> Vec<u8> {
        let length = u32::try_from(self.len()).expect("callers bound what they send");
        let mut bytes = core::mem::replace(&mut self.bytes, Vec::from([0; FRAME_HEADER]));
        seal(self.crc, &mut bytes, length);
        bytes
    }

    /// Gives memory back beyond so many bytes, if the frame is empty.
    pub fn rest(&mut self, most: usize) {
        if self.is_empty() {
            self.bytes.shrink_to(most);
        }
    }

    /// Takes empty memory for the next frame, and leaves the bytes of this one there.
    ///
    /// # Panics
    /// If its messages have 4 GiB.
    pub fn swap_into(&mut self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.len()).expect("callers bound what they send");
        seal(self.crc, &mut self.bytes, length);
        out.clear();
        out.shrink_to(KEPT_BYTES_MAX);
        out.extend_from_slice(&[0; FRAME_HEADER]);
        core::mem::swap(&mut self.bytes, out);
    }

    /// Appends the bytes of the frame to others; the frame is empty afterwards, and keeps its memory.
    ///
    /// # Panics
    /// If its messages have 4 GiB.
    pub fn append_to(&mut self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.len()).expect("callers bound what they send");
        seal(self.crc, &mut self.bytes, length);
        out.extend_from_slice(&self.bytes);
        self.bytes.truncate(FRAME_HEADER);
        self.bytes.shrink_to(KEPT_BYTES_MAX);
    }
}

fn seal(crc: Crc, frame: &mut [u8], length: u32) {
    let (header, messages) = frame.split_at_mut(FRAME_HEADER);
    header[..4].copy_from_slice(&length.to_le_bytes());
    let sum = crc(crc(0, &header[..4]), messages);
    header[4..].copy_from_slice(&sum.to_le_bytes());
}
