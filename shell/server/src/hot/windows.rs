//! The windows of a connection's responses, which hot calls share with the library. [RFC 9113 §6.9]
//!
//! In:    what the client gives, what is sent.
//! Out:   how much may be sent; what the library is told.
//! Rules: 1. The client's window of the connection is kept here. Of it the library is lent at most [`LENT_MAX`] at a time,
//!           and more once it has sent half of that. Its first window, of which every client and server know, is lent
//!           from the start.
//!        2. Hot responses take from the whole window. So the library may think that it has more than there is; then its
//!           next data is kept ([`crate::hot::kept`]), and that of hot responses waits behind it.
//! Knows nothing of: frames, calls.

/// HTTP/2's first window, of a connection and of a stream. [RFC 9113 §6.9.2]
const FIRST: i64 = 65_535;
const MAX: i64 = i32::MAX as i64;

/// Most bytes that the library may send without asking.
const LENT_MAX: i64 = 64 << 10;

/// The windows.
#[derive(Debug)]
pub struct Windows {
    /// The connection's.
    open: i64,
    /// … as the library knows it.
    lent: i64,
    /// Bytes that the library has sent, as far as it knows, and the client has not got.
    kept: i64,
    /// A new stream's.
    pub of_stream: i64,
}

impl Windows {
    /// Of a new connection.
    pub fn new() -> Windows {
        Windows { open: FIRST, lent: FIRST, kept: 0, of_stream: FIRST }
    }

    /// Bytes that may be sent.
    pub fn open(&self) -> i64 {
        self.open
    }

    /// The client gives so much more. False if that is more than a window may be.
    #[must_use]
    pub fn gain(&mut self, bytes: u32) -> bool {
        self.open += i64::from(bytes);
        self.open <= MAX
    }

    /// So many bytes of a hot response are sent.
    pub fn spend(&mut self, bytes: usize) {
        self.open -= bytes as i64;
    }

    /// So many bytes of the library's are sent.
    pub fn spend_lent(&mut self, bytes: usize) {
        self.open -= bytes as i64;
        self.lent -= bytes as i64;
    }

    /// So many bytes of the library's are kept.
    pub fn keep(&mut self, bytes: usize) {
        self.lent -= bytes as i64;
        self.kept += bytes as i64;
    }

    /// So many of those are sent.
    pub fn spend_kept(&mut self, bytes: usize) {
        self.open -= bytes as i64;
        self.kept -= bytes as i64;
    }

    /// What the library is lent from now on, if it is more.
    pub fn lend(&mut self) -> Option<u32> {
        let more = (self.open - self.kept).min(LENT_MAX) - self.lent;
        if LENT_MAX / 2 < self.lent || more <= 0 {
            return None;
        }
        self.lent += more;
        u32::try_from(more).ok()
    }

    /// The library was not told.
    pub fn unlend(&mut self, more: u32) {
        self.lent -= i64::from(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is sent and given, the library is lent no more than there is, but for what hot responses took since;
        /// and once the client has given all back, it is lent at least half of what it may be.
        #[test]
        fn the_library_is_never_lent_more_than_there_is(steps in proptest::collection::vec((0..5, 1_usize..20_000), 0..200)) {
            let mut windows = Windows::new();
            let (mut sent, mut kept) = (0, 0);
            for (step, bytes) in steps {
                let fits = bytes as i64 <= windows.open;
                match step {
                    0 if fits => {
                        windows.spend(bytes);
                        sent += bytes;
                    }
                    1 if fits && bytes as i64 <= windows.lent => {
                        windows.spend_lent(bytes);
                        sent += bytes;
                    }
                    3 if !fits && bytes as i64 <= windows.lent => {
                        windows.keep(bytes);
                        kept += bytes;
                    }
                    4 if fits => {
                        let bytes = bytes.min(kept);
                        windows.spend_kept(bytes);
                        kept -= bytes;
                        sent += bytes;
                    }
                    2 => {
                        let back = bytes.min(sent);
                        sent -= back;
                        prop_assert!(windows.gain(back as u32));
                    }
                    _ => {}
                }
                if let Some(more) = windows.lend() {
                    prop_assert!(0 < more && windows.lent + kept as i64 <= windows.open);
                }
                prop_assert_eq!(windows.open, FIRST - sent as i64);
                prop_assert!(windows.lent <= FIRST.max(LENT_MAX));
            }
            prop_assert!(windows.gain(sent as u32));
            windows.spend_kept(kept);
            prop_assert!(windows.gain(kept as u32));
            let _ = windows.lend();
            prop_assert!(LENT_MAX / 2 <= windows.lent);
            prop_assert!(!windows.gain(u32::MAX));
        }
    }
}
