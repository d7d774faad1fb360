//! Bytes and types of the messages between peers and of the records in logs.
//!
//! An entry's [record] is laid out and checksummed once, on the leader that gives it its index, and is the
//! same bytes on every wire and every disk from then on. A [frame] is one message between peers: a header and
//! the message's own fields under a checksum of their own, then the records it carries, which carry theirs.
//!
//! The layouts are drawn in `docs/formats/record.md` and `docs/formats/frame.md`.
//! Knows nothing of: files, sockets, the meaning of commands.
//!
//! ```
//! use kattu_wire::{Codec, Frame, FrameWriter, Goodbye};
//! # fn sum(seed: u32, bytes: &[u8]) -> u32 { bytes.iter().fold(seed, |s, b| s.rotate_left(5) ^ u32::from(*b)) }
//! let codec = Codec::new(sum); // the shell hands in CRC32C
//! let mut writer = FrameWriter::default();
//! codec.encode(&Frame::Goodbye(Goodbye { reason: "going home".into() }), &mut writer);
//! let bytes: Vec<u8> = writer.pieces().flatten().copied().collect();
//! assert_eq!(codec.peek_len(&bytes, 1 << 20), Ok(Some(bytes.len())));
//! assert!(matches!(codec.decode(&bytes.into()), Ok(Frame::Goodbye(_))));
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod fields;
pub mod frame;
mod frame_error;
mod frame_kind;
pub mod handshake;
pub mod joining;
mod message;
pub mod record;

pub use fields::FieldError;
pub use frame::{Codec, Frame, FrameError, FrameWriter};
pub use handshake::{
    ASK_ME, Challenge, Goodbye, Hello, Lane, Order, PROTOCOL_MAX, PROTOCOL_MIN, PROTOCOL_PROOFS,
    PROTOCOL_STREAMS, Refused, STREAMS_MAX, Welcome,
};
pub use joining::{Conflict, Introduction, Join, MemberList, Removed};
pub use record::{RecordError, record_append, record_decode, record_encode, records_encoded};

/// A CRC32C that continues from `seed` over `bytes`; 0 is the seed of a fresh sum.
///
/// The shell passes it in, because a fast one depends on the features of the processor.
pub type Crc = fn(seed: u32, bytes: &[u8]) -> u32;
