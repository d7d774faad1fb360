//! Frame kinds: what a frame begins with, and the numbers of what it carries. 16 and up are the protocol's own messages, 48 and up the replicas'.
//!
//! Knows nothing of: what is in a frame.

/// The layout this code writes, and the only one it reads.
pub const VERSION: u8 = 1;

/// The first four bytes of every frame.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"KTF\xA7");

pub(crate) const HELLO: u8 = 1;
pub(crate) const WELCOME: u8 = 2;
pub(crate) const REFUSED: u8 = 3;
pub(crate) const GOODBYE: u8 = 4;
pub(crate) const INTRODUCTION: u8 = 5;
pub(crate) const JOIN: u8 = 6;
pub(crate) const MEMBER_LIST: u8 = 7;
pub(crate) const REMOVED: u8 = 8;
pub(crate) const KNOWN: u8 = 9;
pub(crate) const LEVEL: u8 = 10;
pub(crate) const QUOTA: u8 = 11;
pub(crate) const CHALLENGE: u8 = 12;
pub(crate) const PROOF: u8 = 13;
pub(crate) const ORDER: u8 = 14;
pub(crate) const APPEND: u8 = 16;
pub(crate) const APPEND_REPLY: u8 = 17;
pub(crate) const PRE_VOTE: u8 = 18;
pub(crate) const PRE_VOTE_REPLY: u8 = 19;
pub(crate) const VOTE: u8 = 20;
pub(crate) const VOTE_REPLY: u8 = 21;
pub(crate) const READ_INDEX: u8 = 22;
pub(crate) const READ_INDEX_REPLY: u8 = 23;
pub(crate) const SNAPSHOT_CHUNK: u8 = 24;
pub(crate) const SNAPSHOT_REPLY: u8 = 25;
pub(crate) const TIMEOUT_NOW: u8 = 26;
pub(crate) const LOST: u8 = 27;
pub(crate) const STALE_TERM: u8 = 28;
pub(crate) const REMIND: u8 = 29;
pub(crate) const REMINDER: u8 = 30;
pub(crate) const FORWARD: u8 = 48;
pub(crate) const FORWARD_REPLY: u8 = 49;
