//! A socket on which a server can change the number of streams that its client may have open.
//!
//! HTTP/2 allows it (`SETTINGS_MAX_CONCURRENT_STREAMS`, RFC 9113 §5.1.2 and §6.5), and clients keep to the last value.
//! The library sends it once, with the first settings. But it can send the size of a stream's window again: so it is
//! made to send the unchanged size, and on the way out that setting is replaced by the number of streams. Both have the
//! same length, and the acknowledgement goes to the library, for which nothing has changed.
//!
//! The socket also reports the heads of responses that it has sent ([`crate::unsent`]). And the library's last words name
//! the highest stream that it has seen; where hot calls ([`crate::hot`]) are higher, theirs takes its place.
//!
//! Rules: 1. In settings with a number of streams, the number is replaced; in others, the size of the windows is.
//!        2. Everything else but the stream of last words is sent unchanged, in its order.
//! Knows nothing of: the choice of the number.

use crate::frames::{ACK, Frames, HEAD_BYTES, HEADERS, SETTINGS};
use crate::unsent::Unsent;
use bytes::{Buf, Bytes};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Streams that a client may have open.
pub(crate) type StreamsMax = Rc<Cell<u32>>;

/// The highest stream of a hot call.
pub(crate) type Highest = Rc<Cell<u32>>;

pub(crate) const GOAWAY: u8 = 7;

/// What a connection's last words say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoAway {
    pub stream: u32,
    pub reason: u32,
}

impl GoAway {
    /// From what follows the head of the frame.
    pub fn read(payload: &[u8]) -> Option<GoAway> {
        let (stream, rest) = payload.split_first_chunk()?;
        let reason = rest.first_chunk()?;
        let stream = u32::from_be_bytes(*stream) & (u32::MAX >> 1);
        Some(GoAway { stream, reason: u32::from_be_bytes(*reason) })
    }

    /// No stream is accepted any more; before that a client is only asked to send no more.
    pub fn is_final(self) -> bool {
        self.stream < u32::MAX >> 1
    }
}

const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const SETTING_BYTES: usize = 6;

/// The socket.
#[derive(Debug)]
pub struct Limited<S> {
    stream: S,
    streams_max: StreamsMax,
    unsent: Rc<Unsent>,
    highest: Highest,
    /// The position after what has been written.
    frames: Frames,
    /// The rest of settings, or of last words, that are being written.
    settings: Bytes,
}

impl<S> Limited<S> {
    /// A socket on which nothing has been sent yet.
    pub fn new(stream: S, streams_max: StreamsMax, unsent: Rc<Unsent>, highest: Highest) -> Limited<S> {
        Limited { stream, streams_max, unsent, highest, frames: Frames::after(0), settings: Bytes::new() }
    }
}

/// Beginning and end of the first complete settings, or last words, in these bytes. `frames` is then at their beginning,
/// and else at the end of the bytes.
fn settings_in(frames: &mut Frames, bytes: &[u8]) -> Option<(usize, usize)> {
    let mut left = bytes;
    while let Some(head) = frames.next(&mut left) {
        let end = bytes.len() - left.len();
        let is_ours = head.kind == SETTINGS && head.flags & ACK == 0 || head.kind == GOAWAY;
        if is_ours && HEAD_BYTES <= end && head.len <= left.len() {
            *frames = Frames::after(0);
            return Some((end - HEAD_BYTES, end + head.len));
        }
    }
    None
}

/// The system has taken these bytes; `after` is the position after them, if it is known already.
fn pass(frames: &mut Frames, after: Option<Frames>, mut bytes: &[u8], unsent: &Unsent) {
    match after {
        Some(after) if unsent.is_empty() => *frames = after,
        _ => {
            while let Some(head) = frames.next(&mut bytes) {
                if head.kind == HEADERS {
                    unsent.left(head.stream, HEAD_BYTES + head.len);
                }
            }
        }
    }
}

/// The same bytes, with last words at `begin` that name the higher of both streams. They go out with what is in front of
/// them: a client may see only the first of two writes before the end.
fn raised(bytes: &[u8], begin: usize, highest: u32) -> Bytes {
    let mut bytes = bytes.to_vec();
    let words = &mut bytes[begin + HEAD_BYTES..];
    if let Some(last) = GoAway::read(words) {
        words[..4].copy_from_slice(&last.stream.max(highest).to_be_bytes());
    }
    bytes.into()
}

/// Rule 1.
fn exchanged(settings: &[u8], streams_max: u32) -> Bytes {
    let mut bytes = settings.to_vec();
    let (entries, _) = bytes[HEAD_BYTES..].as_chunks_mut::<SETTING_BYTES>();
    let place = |id: u16| entries.iter().position(|entry| entry[..2] == id.to_be_bytes());
    if let Some(place) = place(MAX_CONCURRENT_STREAMS).or_else(|| place(INITIAL_WINDOW_SIZE)) {
        entries[place][..2].copy_from_slice(&MAX_CONCURRENT_STREAMS.to_be_bytes());
        entries[place][2..].copy_from_slice(&streams_max.to_be_bytes());
    }
    bytes.into()
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Limited { stream, streams_max, unsent, highest, frames, settings } = &mut *self;
        if settings.is_empty() {
            let mut after = frames.clone();
            let until = match settings_in(&mut after, bytes) {
                None => bytes.len(),
                Some((begin, end)) if bytes[begin + 3] == GOAWAY => {
                    *settings = raised(&bytes[..end], begin, highest.get());
                    0
                }
                Some((0, end)) => {
                    *settings = exchanged(&bytes[..end], streams_max.get());
                    0
                }
                Some((begin, _)) => begin,
            };
            if 0 < until || bytes.is_empty() {
                let written = ready!(Pin::new(stream).poll_write(context, &bytes[..until]))?;
                pass(frames, (written == until).then_some(after), &bytes[..written], unsent);
                return Poll::Ready(Ok(written));
            }
        }
        let written = ready!(Pin::new(stream).poll_write(context, settings))?;
        settings.advance(written);
        pass(frames, None, &bytes[..written], unsent);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The library gathers everything in the first slice, except a long part of a body.
        let (first, others) =
            slices.split_first().map_or((&[][..], &[][..]), |(first, others)| (first, others));
        let mut after = self.frames.clone();
        if others.is_empty() || !self.settings.is_empty() || settings_in(&mut after, first).is_some() {
            return self.poll_write(context, first);
        }
        let Limited { stream, unsent, frames, .. } = &mut *self;
        let written = ready!(Pin::new(stream).poll_write_vectored(context, slices))?;
        let Some(mut left) = written.checked_sub(first.len()) else {
            pass(frames, None, &first[..written], unsent);
            return Poll::Ready(Ok(written));
        };
        pass(frames, Some(after), first, unsent);
        for slice in others {
            let bytes = &slice[..left.min(slice.len())];
            frames.pass(bytes);
            left -= bytes.len();
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1][..], payload].concat()
    }

    /// However the output is cut, and however little the system takes, settings are replaced and nothing else changes.
    #[tokio::test]
    async fn settings_are_exchanged_and_nothing_else_changes() {
        let window = [0, 4, 0, 32, 0, 0];
        let others = [0, 1, 0, 0, 0, 7];
        let streams = |number: u8| [0, 3, 0, 0, 0, number];
        let body = frame(SETTINGS, 0, &window); // inside a body it is no frame
        // What is sent, and what the client receives with a limit of 9 streams.
        let said = [
            frame(SETTINGS, 0, &[others, streams(200), window].concat()),
            frame(0, 0, &body),
            frame(SETTINGS, ACK, &[]),
            frame(SETTINGS, 0, &window),
            frame(0, 0, &body),
            frame(SETTINGS, 0, &others),
            frame(SETTINGS, 0, &[]),
            frame(0, 0, &body),
            frame(SETTINGS, 0, &window),
            frame(1, 4, b"a head"),
            frame(GOAWAY, 0, &[0, 0, 0, 19, 0, 0, 0, 0]),
            frame(GOAWAY, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, b'x']),
        ];
        let mut heard = said.clone();
        heard[0] = frame(SETTINGS, 0, &[others, streams(9), window].concat());
        heard[3] = frame(SETTINGS, 0, &streams(9));
        heard[8] = heard[3].clone();
        heard[10] = frame(GOAWAY, 0, &[0, 0, 0, 21, 0, 0, 0, 0]);
        let (all, heard) = (said.concat(), heard.concat());
        // What the library does not gather: bodies, from the end of their heads to their own.
        let ends = |frames: &[Vec<u8>]| frames.concat().len();
        let bodies = [1, 4, 7].map(|number| (ends(&said[..number]) + HEAD_BYTES, ends(&said[..=number])));
        for room in [1, 2, 4, 7, 8, 9, 10, 11, 13, 24, 31, 64, 4096] {
            for vectored in [false, true] {
                let (near, mut far) = tokio::io::duplex(room);
                let mut stream =
                    Limited::new(near, Rc::new(Cell::new(9)), Rc::default(), Rc::new(Cell::new(21)));
                let mut got = vec![0; heard.len()];
                let write = async {
                    let mut written = 0;
                    while written < all.len() {
                        let (begin, end) = bodies
                            .into_iter()
                            .find(|(_, end)| written < *end)
                            .unwrap_or((all.len(), all.len()));
                        let first = &all[written..begin.max(written)];
                        let slices = [IoSlice::new(first), IoSlice::new(&all[begin.max(written)..end])];
                        // Of a body that has begun nothing is left to gather.
                        let slices = if first.is_empty() { &slices[1..] } else { &slices[..] };
                        written += poll_fn(|context| {
                            let stream = Pin::new(&mut stream);
                            if vectored {
                                stream.poll_write_vectored(context, slices)
                            } else {
                                stream.poll_write(context, &slices[0])
                            }
                        })
                        .await
                        .expect("the other end is there");
                    }
                };
                let (_, read) = tokio::join!(write, far.read_exact(&mut got));
                assert_eq!(read.expect("all of it comes"), heard.len());
                assert_eq!(got, heard, "room for {room}, vectored: {vectored}");
            }
        }
    }
}
