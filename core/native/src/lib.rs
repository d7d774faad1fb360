//! Bytes and types of the native protocol between clients and members.
//!
//! A connection begins with [`PREFACE`], then both sides send [frames](frame): a checksum around one or many
//! [messages](message). A write is in the bytes that the log will hold; so a member checks it and copies it.
//! The layouts are drawn in `docs/formats/native.md`.
//! Knows nothing of: sockets, logs, the meaning of commands.
//!
//! ```
//! use kattu_native::frame::{FrameReader, FrameWriter};
//! use kattu_native::message::Request;
//! # fn sum(seed: u32, bytes: &[u8]) -> u32 { bytes.iter().fold(seed, |s, b| s.rotate_left(5) ^ u32::from(*b)) }
//! let mut writer = FrameWriter::new(sum); // the shell hands in CRC32C
//! Request::Ping.write(7, &mut writer);
//! Request::KeepAlive(vec![]).write(8, &mut writer);
//! let bytes = writer.take();
//! let (frame, length) = FrameReader::new(sum, 1 << 20).next(&bytes).unwrap().expect("a whole frame");
//! assert_eq!(length, bytes.len());
//! let requests: Vec<_> = frame.map(|message| message.unwrap().request).collect();
//! assert_eq!(requests, [7, 8]);
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod frame;
pub mod handshake;
pub mod message;
pub mod reply;

/// The first bytes that a client sends. No HTTP request and no TLS record begins so.
pub const PREFACE: [u8; 4] = *b"KtNp";

/// The versions of the protocol that this code speaks.
pub const VERSION_MIN: u16 = 1;
/// The newest of them.
pub const VERSION_MAX: u16 = 2;
/// The first that has weak writes, and answers to them.
pub const VERSION_WEAK: u16 = 2;
