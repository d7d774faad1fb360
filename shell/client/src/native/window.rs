//! Window: what one caller may have under way in a pipe or in a session. The next request waits for room.
//!
//! Knows nothing of: the way in which a caller waits.

/// Most requests without an outcome.
pub(crate) const REQUESTS_MAX: usize = kattu_kv::sessions::WINDOW as usize;

/// Most bytes of them; one request always passes.
pub(crate) const BYTES_MAX: usize = 64 << 20;
