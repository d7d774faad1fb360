//! Output: answers on their way to the socket.
//!
//! ```text
//!   answers of this turn ─▶ │ frame │ ─seal─▶ │ sent │ unsent │ ─▶ socket
//! ```
//! All answers of a turn share a frame and a write. Two pieces of memory take turns: where the socket takes everything,
//! no answer is copied.
//! Knows nothing of: what answers say, memory limits.

use crate::patience::Pieces;
use kattu_native::frame::{FRAME_HEADER, FrameWriter};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Bytes of a frame to which no more answers are added.
const SEALED_FROM: usize = 32 << 10;

/// Memory that is kept with nothing under way.
const KEPT_BYTES: usize = 4 << 10;

/// Answers on their way.
#[derive(Debug)]
pub(crate) struct Output {
    frame: FrameWriter,
    /// Sealed frames, of which so many bytes are sent.
    bytes: Vec<u8>,
    sent: usize,
    is_flushed: bool,
    taken: u64,
    emptied: u64,
}

impl Output {
    pub(crate) fn new() -> Output {
        let frame = FrameWriter::new(crc32c::crc32c_append);
        Output { frame, bytes: Vec::new(), sent: 0, is_flushed: true, taken: 0, emptied: 0 }
    }

    /// The frame to which an answer is added. One that is long is sealed before: with the longest answer it stays below what
    /// the welcome promised.
    pub(crate) fn frame(&mut self) -> &mut FrameWriter {
        if SEALED_FROM <= self.frame.len() {
            self.seal();
        }
        &mut self.frame
    }

    fn seal(&mut self) {
        if self.sent == self.bytes.len() {
            self.frame.swap_into(&mut self.bytes);
        } else {
            self.bytes.drain(..self.sent);
            self.frame.append_to(&mut self.bytes);
        }
        self.sent = 0;
    }

    /// Gives memory back, where nothing waits.
    pub(crate) fn rest(&mut self) {
        if self.unsent() == 0 {
            self.bytes.clear();
            self.sent = 0;
            self.bytes.shrink_to(KEPT_BYTES);
            self.frame.rest(KEPT_BYTES);
        }
    }

    /// Bytes that are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        let frame = if self.frame.is_empty() { 0 } else { FRAME_HEADER + self.frame.len() };
        self.bytes.len() - self.sent + frame
    }

    /// What waits, as [`crate::patience`] wants to know it.
    pub(crate) fn pieces(&self) -> Pieces {
        let waiting = u64::from(0 < self.unsent());
        Pieces { waiting, left: self.taken, taken: self.taken, emptied: self.emptied }
    }

    /// Sends as much as the socket takes; ready when all is sent.
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.frame.is_empty() {
            self.seal();
        }
        while self.sent < self.bytes.len() {
            let written = ready!(Pin::new(&mut *stream).poll_write(context, &self.bytes[self.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
            self.taken += written as u64;
            self.is_flushed = false;
            self.emptied += u64::from(self.sent == self.bytes.len());
        }
        if !self.is_flushed {
            ready!(Pin::new(stream).poll_flush(context))?; // in TLS bytes may wait in the library
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}
