//! Input: the bytes that a client has sent, and where its next message begins.
//!
//! ```text
//!   │ done │ message … of a checked frame │ frames that are not looked at yet, the last one incomplete │
//!          at                             frame_end
//! ```
//! A frame may have more messages than its client may have under way: the rest of it waits here, checked once.
//! Knows nothing of: requests, memory limits.

use bytes::BufMut;
use kattu_native::frame::{FRAME_HEADER, FrameError, FrameReader, Message, Messages};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The room of a client whose frames fit in it. A longer frame has as much as it needs, and no more.
pub(super) const ROOM: usize = 16 << 10;

/// Room for the first read after a rest, and memory that is kept while nothing is there to be read.
const KEPT_BYTES: usize = ROOM / 2;

/// The bytes that a client has sent.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    at: usize,
    frame_end: usize,
    reader: FrameReader,
    frames: u64,
}

impl Input {
    /// Of a client that has sent nothing yet; its frames have so many bytes at most.
    pub(crate) fn new(most: u32) -> Input {
        Input { bytes: Vec::new(), at: 0, frame_end: 0, reader: reader(most), frames: 0 }
    }

    /// From here on frames may have so many bytes.
    pub(crate) fn accept(&mut self, most: u32) {
        self.reader = reader(most);
    }

    /// Frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Memory in use.
    pub(crate) fn held(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Whether a frame has begun and is incomplete.
    pub(crate) fn has_begun(&self) -> bool {
        self.at < self.bytes.len()
    }

    /// Bytes that are here behind the last message.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Bytes of the frame that has begun or comes next, as far as its length is known: at least a header.
    pub(crate) fn length(&self) -> usize {
        let length = self.bytes[self.at..].first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        FRAME_HEADER + length as usize
    }

    /// Bytes above [`ROOM`] that the next read takes for a frame that has no room.
    pub(crate) fn grows_by(&self) -> usize {
        self.length().saturating_sub(self.bytes.capacity().max(ROOM))
    }

    /// Takes these bytes, which come before any frame; `None` while they are not all there.
    pub(crate) fn take_first<const N: usize>(&mut self) -> Option<[u8; N]> {
        let first = *self.bytes.first_chunk()?;
        self.bytes.drain(..N);
        Some(first)
    }

    /// The next message; `None` if no frame is complete.
    ///
    /// # Errors
    /// If the bytes are no frame, or its messages are none: the connection cannot go on.
    pub(crate) fn next(&mut self) -> Result<Option<Message<'_>>, FrameError> {
        while self.at == self.frame_end {
            let Some((messages, length)) = self.reader.next(&self.bytes[self.at..])? else { return Ok(None) };
            self.frames += 1;
            self.frame_end += length;
            self.at = self.frame_end - messages.left();
        }
        let mut messages = Messages::checked(&self.bytes[self.at..self.frame_end]);
        let message = messages.next().transpose()?;
        self.at = self.frame_end - messages.left();
        Ok(message)
    }

    /// Reads what the client has sent, so many bytes at most. Nothing more is there if it reads 0.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.bytes.drain(..self.at);
        self.frame_end -= self.at;
        self.at = 0;
        let room = if self.bytes.is_empty() { KEPT_BYTES } else { ROOM };
        // Exactly: memory above `ROOM` is counted, and what was not asked for might not be granted.
        self.bytes.reserve_exact(room.max(self.length()) - self.bytes.len());
        let mut limited = (&mut self.bytes).limit(most);
        let read = ready!(pin!(Pin::new(stream).read_buf(&mut limited)).poll(context))?;
        Poll::Ready(Ok(read))
    }

    /// Gives memory back that nothing is in.
    pub(crate) fn rest(&mut self) {
        if self.at == self.bytes.len() && KEPT_BYTES < self.bytes.capacity() {
            (self.bytes, self.at, self.frame_end) = (Vec::new(), 0, 0);
        }
    }
}

fn reader(most: u32) -> FrameReader {
    FrameReader::new(crc32c::crc32c_append, most)
}
