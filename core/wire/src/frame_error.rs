//! Frame errors: why bytes are not a frame.
//!
//! Knows nothing of: how frames are read, which connection they came on.

use crate::fields::FieldError;
use crate::frame_kind::{MAGIC, VERSION};
use crate::record::RecordError;
use core::fmt;
use kattu_raft::{EntryId, GroupId, MembershipError};

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The other side does not use this protocol.
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// A layout this code does not read.
    Version {
        /// Its number.
        found: u8,
    },
    /// The header does not match its checksum.
    HeaderChecksum {
        /// The checksum in the frame.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The fields do not match their checksum.
    FieldsChecksum {
        /// The checksum in the frame.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The frame is longer than allowed here.
    TooLong {
        /// Its length.
        len: usize,
        /// The largest allowed.
        limit: usize,
    },
    /// The lengths do not match each other or the bytes present.
    Length {
        /// The length in the frame.
        len: usize,
        /// Bytes present.
        have: usize,
    },
    /// A flag that this version does not know.
    Flags {
        /// All flags.
        found: u16,
    },
    /// A field is cut off or has an invalid value.
    Field(FieldError),
    /// A record is invalid.
    Record {
        /// Its number within the frame, from 0.
        number: usize,
        /// The reason.
        error: RecordError,
    },
    /// An entry does not follow the one before it.
    NotConsecutive {
        /// The one before.
        before: EntryId,
        /// The entry.
        found: EntryId,
    },
    /// An entry of another group than the message.
    ForeignGroup {
        /// The message's.
        expected: GroupId,
        /// The entry's.
        found: GroupId,
    },
    /// A forwarded command does not match its checksum.
    CommandChecksum {
        /// Its number within the frame, from 0.
        number: usize,
    },
    /// A piece of a snapshot does not match its checksum.
    ChunkChecksum {
        /// The checksum in the frame.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The membership of a snapshot is malformed.
    Membership(MembershipError),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Magic { found } => {
                write!(f, "not a Kattu peer frame: it starts with {found:#010x}, expected {MAGIC:#010x}")
            }
            FrameError::Version { found } => {
                write!(f, "frame layout {found}, this program reads layout {VERSION}")
            }
            FrameError::HeaderChecksum { found, computed } => {
                write!(f, "frame header checksum {found:#010x}, its bytes give {computed:#010x}")
            }
            FrameError::FieldsChecksum { found, computed } => {
                write!(f, "frame fields checksum {found:#010x}, its bytes give {computed:#010x}")
            }
            FrameError::TooLong { len, limit } => write!(f, "frame of {len} bytes, the limit is {limit}"),
            FrameError::Length { len, have } => write!(f, "frame length is {len} bytes, {have} are present"),
            FrameError::Flags { found } => write!(f, "unknown frame flags {found:#06x}"),
            FrameError::Field(error) => write!(f, "frame {error}"),
            FrameError::Record { number, error } => write!(f, "frame's record {number}: {error}"),
            FrameError::NotConsecutive { before, found } => {
                write!(f, "frame's entry {found} does not follow {before}")
            }
            FrameError::ForeignGroup { expected, found } => {
                write!(f, "frame's entry is of group {}, the message of group {}", found.0, expected.0)
            }
            FrameError::CommandChecksum { number } => {
                write!(f, "frame's command {number} does not match its checksum")
            }
            FrameError::ChunkChecksum { found, computed } => {
                write!(
                    f,
                    "frame's piece of a snapshot has checksum {found:#010x}, its bytes give {computed:#010x}"
                )
            }
            FrameError::Membership(error) => write!(f, "frame's snapshot: {error}"),
        }
    }
}

impl core::error::Error for FrameError {}

impl From<FieldError> for FrameError {
    fn from(error: FieldError) -> FrameError {
        FrameError::Field(error)
    }
}
