//! Bodies of responses: a gRPC message with its trailers, a stream of messages, a page of text.
//!
//! Knows nothing of: the contents of messages.

use crate::budget::{Hold, Waiting};
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tonic::Status;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: HeaderValue = HeaderValue::from_static("0");

/// Messages above this size are encoded only when the client has room for them.
pub(crate) const LARGE_MIN: usize = 16 << 10;

/// The body of one response.
#[derive(Debug, Default)]
pub enum FaceBody {
    /// Nothing (more).
    #[default]
    Empty,
    /// Plain bytes.
    Page(Bytes),
    /// One gRPC message with its prefix; trailers that say OK follow.
    Message(Bytes),
    /// One large gRPC message that is encoded when there is room for it; trailers that say OK follow.
    Large(Large),
    /// Only the trailers that say OK are left.
    Trailers,
    /// Messages with their prefixes as they come; an error ends the stream.
    Stream(mpsc::Receiver<Result<Bytes, Status>>),
}

/// A large message, encoded as it finds room.
pub struct Large {
    /// About how many bytes it will have.
    pub len: usize,
    /// Encodes its next bytes, prefix included, at most as many as the argument; empty after the last.
    pub write: Box<dyn FnMut(usize) -> Bytes>,
}

impl fmt::Debug for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Large({} bytes)", self.len)
    }
}

impl Body for FaceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let frame = match this {
            FaceBody::Empty => return Poll::Ready(None),
            FaceBody::Page(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = FaceBody::Empty;
                Frame::data(bytes)
            }
            FaceBody::Message(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = FaceBody::Trailers;
                Frame::data(bytes)
            }
            FaceBody::Large(large) => {
                let bytes = (large.write)(usize::MAX);
                if bytes.is_empty() {
                    *this = FaceBody::Empty;
                    Frame::trailers(ok_trailers())
                } else {
                    Frame::data(bytes)
                }
            }
            FaceBody::Trailers => {
                *this = FaceBody::Empty;
                Frame::trailers(ok_trailers())
            }
            FaceBody::Stream(messages) => match messages.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(bytes))) => Frame::data(bytes),
                Poll::Ready(Some(Err(status))) => {
                    *this = FaceBody::Empty;
                    Frame::trailers(error_trailers(&status))
                }
                Poll::Ready(None) => {
                    *this = FaceBody::Empty;
                    Frame::trailers(ok_trailers())
                }
            },
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, FaceBody::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            FaceBody::Empty => SizeHint::with_exact(0),
            FaceBody::Page(bytes) => SizeHint::with_exact(bytes.len() as u64),
            FaceBody::Message(_) | FaceBody::Large(_) | FaceBody::Trailers | FaceBody::Stream(_) => {
                SizeHint::default()
            }
        }
    }
}

/// Bytes on their way to the socket, with their part of the budget, which is released when they are sent or discarded.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    waiting: Waiting,
}

impl Piece {
    /// These bytes, held by this.
    pub fn new(bytes: Bytes, hold: Hold) -> Piece {
        Piece { bytes, waiting: Waiting::new(hold) }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.waiting.goes_on(count as u64);
    }
}

/// A body whose bytes are held until they are sent.
#[derive(Debug)]
pub struct Held {
    body: FaceBody,
    hold: Hold,
}

impl Held {
    /// This body, held by this.
    pub fn new(body: FaceBody, hold: Hold) -> Held {
        Held { body, hold }
    }
}

impl Body for Held {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let hold = &mut self.hold;
        // The first piece carries the whole hold.
        polled.map_ok(|frame| frame.map_data(|bytes| Piece::new(bytes, hold.split(u64::MAX))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Trailers that say OK.
pub(crate) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    trailers
}

/// Trailers with an error.
pub(crate) fn error_trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    if status.add_header(&mut trailers).is_err() {
        trailers.insert(GRPC_STATUS, HeaderValue::from(status.code() as i32));
    }
    trailers
}
