//! A socket whose writes are gathered, and sent together when its owner says so.
//!
//! The library writes each part of a body that is not very short by itself: that would be two writes for the response to
//! a read of 256 bytes, and a write is the dearest step of such a call. So the writes of one turn of a connection's task
//! are copied here, and the task sends them all with one.
//!
//! Rules: 1. At most [`GATHERED_MAX`] bytes are gathered; what does not fit goes to the system behind them. A client that does
//!           not read keeps its member from sending them until its connection is closed as stalled.
//!        2. Everything is sent in its order, and before a shutdown.
//!        3. A flush does not send: the owner does.
//! Knows nothing of: frames, turns.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that are gathered: what fits into one record of TLS.
const GATHERED_MAX: usize = 16 << 10;

/// A buffer of at most so many bytes is kept for the next turn.
const KEPT_MAX: usize = 1 << 10;

/// The socket.
#[derive(Debug)]
pub(crate) struct Gathering<S>(Rc<RefCell<Line<S>>>);

#[derive(Debug)]
struct Line<S> {
    stream: S,
    gathered: Vec<u8>,
    /// Bytes of `gathered` that the system has taken.
    taken: usize,
    /// Something was written since the stream was last flushed.
    is_written: bool,
}

impl<S: AsyncWrite + Unpin> Line<S> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.taken < self.gathered.len() {
            self.is_written = true;
            let bytes = &self.gathered[self.taken..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.taken += taken,
            }
        }
        self.taken = 0;
        self.gathered.clear();
        self.gathered.shrink_to(KEPT_MAX);
        if self.is_written {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.is_written = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether so many more bytes are gathered.
    fn has_room(&self, len: usize) -> bool {
        self.gathered.len() + len <= GATHERED_MAX
    }
}

impl<S: AsyncWrite + Unpin> Gathering<S> {
    /// Nothing is gathered yet.
    pub fn new(stream: S) -> Gathering<S> {
        Gathering(Rc::new(RefCell::new(Line { stream, gathered: Vec::new(), taken: 0, is_written: false })))
    }

    /// A second handle of the same socket, for its owner, which sends.
    pub fn sender(&self) -> Gathering<S> {
        Gathering(Rc::clone(&self.0))
    }

    /// Whether the system has not taken all that was to be sent.
    pub fn is_behind(&self) -> bool {
        !self.0.borrow().gathered.is_empty()
    }

    /// Lets `write` append to what is gathered, up to the length that it is given. Whatever it gives is returned.
    pub fn gather<T>(&self, write: impl FnOnce(&mut Vec<u8>, usize) -> T) -> T {
        write(&mut self.0.borrow_mut().gathered, GATHERED_MAX)
    }

    /// Sends what has been gathered. Ready when the system has taken all of it.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathering<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathering<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let line = &mut *self.0.borrow_mut();
        let len = slices.iter().map(|slice| slice.len()).sum();
        if !line.has_room(len) {
            ready!(line.poll_send(context))?;
        }
        if line.has_room(len) {
            slices.iter().for_each(|slice| line.gathered.extend_from_slice(slice));
            return Poll::Ready(Ok(len));
        }
        line.is_written = true;
        Pin::new(&mut line.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        ready!(line.poll_send(context))?;
        Pin::new(&mut line.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;

    async fn write(stream: &mut Gathering<tokio::io::DuplexStream>, slices: &[&[u8]]) -> usize {
        let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        poll_fn(|context| Pin::new(&mut *stream).poll_write_vectored(context, &slices))
            .await
            .expect("the other end is there")
    }

    #[tokio::test]
    async fn writes_wait_for_their_sender_and_are_sent_in_their_order() {
        let (near, mut far) = tokio::io::duplex(4 * GATHERED_MAX);
        let mut stream = Gathering::new(near);
        let sender = stream.sender();
        assert_eq!(write(&mut stream, &[b"a head", b", a body"]).await, 14);
        assert_eq!(write(&mut stream, &[b", trailers"]).await, 10);
        poll_fn(|context| Pin::new(&mut stream).poll_flush(context)).await.expect("it does nothing");
        let mut read = [0; 99];
        let early = tokio::time::timeout(std::time::Duration::from_millis(1), far.read(&mut read)).await;
        assert!(early.is_err(), "nothing is sent before it is said so");
        poll_fn(|context| sender.poll_send(context)).await.expect("the other end is there");
        assert!(!sender.is_behind());
        assert_eq!(far.read(&mut read).await.expect("sent"), 24);
        assert_eq!(&read[..24], b"a head, a body, trailers");

        // What does not fit goes behind what was gathered, and what is sent at the end comes before the end.
        let long = vec![7; GATHERED_MAX];
        assert_eq!(write(&mut stream, &[b"first"]).await, 5);
        assert_eq!(write(&mut stream, &[b"+", &long]).await, 1 + GATHERED_MAX);
        assert_eq!(write(&mut stream, &[b"last"]).await, 4);
        poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await.expect("sent");
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.expect("it is closed");
        assert_eq!(all, [&b"first+"[..], &long, b"last"].concat());
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_makes_no_more_than_the_most_wait() {
        let (near, mut far) = tokio::io::duplex(1);
        let mut stream = Gathering::new(near);
        let sender = stream.sender();
        let mut written = 0;
        loop {
            let bytes = [IoSlice::new(&[1; 1000])];
            let polled =
                poll_fn(|context| Poll::Ready(Pin::new(&mut stream).poll_write_vectored(context, &bytes)))
                    .await;
            match polled {
                Poll::Ready(taken) => written += taken.expect("the other end is there"),
                Poll::Pending => break,
            }
        }
        assert_eq!(written, GATHERED_MAX / 1000 * 1000);
        assert!(sender.is_behind());
        let mut all = vec![0; written];
        let send = poll_fn(|context| sender.poll_send(context));
        let (sent, _) = tokio::join!(send, far.read_exact(&mut all));
        sent.expect("the other end reads now");
        assert!(all.iter().all(|byte| *byte == 1));
        assert!(stream.0.borrow().gathered.capacity() <= KEPT_MAX, "and nothing more is held");
    }
}
