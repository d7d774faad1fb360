//! A socket whose acknowledgements wait for company.
//!
//! A gRPC client measures its connection with pings: a busy one sends a ping along with nearly every request. Answered
//! at once, each costs a write of its own and wakes the client, which on few cores takes the processor from the very
//! request that came with the ping. So what is no answer (acknowledgements, window updates) waits for an answer to travel
//! with, for at most [`WAIT_MAX`], and not at all while no call is in flight.
//!
//! Knows nothing of: frames, calls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Longest time that an acknowledgement waits for an answer. Clients that want a ping answered within seconds to believe
/// that we live do not notice.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// Whether writes wait; shared by a connection's task and its socket.
#[derive(Debug, Default)]
pub struct Cork {
    held: AtomicBool,
    /// Something is being kept from being written.
    wanted: AtomicBool,
}

impl Cork {
    fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }
}

/// The hand on the cork.
#[derive(Debug)]
pub struct Holder {
    cork: Arc<Cork>,
    /// When what waits has waited long enough.
    due: Option<Instant>,
    /// Set now and then, not at every wait: an early wake-up costs less than moving a timer at every request.
    timer: Pin<Box<Sleep>>,
    timer_is_set: bool,
}

impl Holder {
    /// Nothing waits yet.
    pub fn new(cork: Arc<Cork>) -> Holder {
        Holder { cork, due: None, timer: Box::pin(tokio::time::sleep(Duration::ZERO)), timer_is_set: false }
    }

    /// From here on writes wait.
    pub fn hold(&self) {
        self.cork.held.store(true, Relaxed);
    }

    /// From here on they do not; the connection must be polled for them.
    pub fn release(&mut self) {
        self.cork.held.store(false, Relaxed);
        self.cork.wanted.store(false, Relaxed);
        self.due = None;
    }

    /// Whether something has waited long enough, with or without `company` to come. If not, the task is woken in time.
    pub fn is_due(&mut self, company: bool, context: &mut Context<'_>) -> bool {
        if !self.cork.is_wanted() {
            return false;
        }
        if !company {
            return true;
        }
        let now = Instant::now();
        let due = *self.due.get_or_insert(now + WAIT_MAX);
        if due <= now {
            return true;
        }
        if !self.timer_is_set {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            self.timer.as_mut().reset(due);
        }
        self.timer_is_set = true;
        false
    }
}

/// The socket.
#[derive(Debug)]
pub struct Corked<S> {
    stream: S,
    cork: Arc<Cork>,
    /// The system took no more at the last write: the client is behind, and there is nothing to gain by waiting.
    backed_up: bool,
}

impl<S> Corked<S> {
    /// The stream, whose writes wait as `cork` says.
    pub fn new(stream: S, cork: Arc<Cork>) -> Corked<S> {
        Corked { stream, cork, backed_up: false }
    }

    /// Whether a write has to wait. It needs no waker: the task that holds the cork polls again.
    fn waits(&self) -> bool {
        let waits = self.cork.held.load(Relaxed) && !self.backed_up;
        if waits {
            self.cork.wanted.store(true, Relaxed);
        }
        waits
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.waits() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.backed_up = written.is_pending();
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.waits() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.backed_up = written.is_pending();
        written
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

    fn write(stream: &mut Corked<tokio::io::DuplexStream>, context: &mut Context<'_>) -> Poll<usize> {
        Pin::new(stream).poll_write(context, b"pong").map(|written| written.expect("the other end is there"))
    }

    #[tokio::test]
    async fn an_acknowledgement_waits_for_company_but_not_for_ever() {
        let (near, mut far) = tokio::io::duplex(64);
        let cork = Arc::new(Cork::default());
        let mut stream = Corked::new(near, Arc::clone(&cork));
        let mut holder = Holder::new(cork);
        for _ in 0..3 {
            poll_fn(|context| {
                holder.hold();
                assert!(!holder.is_due(true, context), "nothing waits");
                assert_eq!(write(&mut stream, context), Poll::Pending);
                assert!(!holder.is_due(true, context), "it has only begun to wait");
                assert!(holder.is_due(false, context), "there is nothing to wait for");
                Poll::Ready(())
            })
            .await;
            poll_fn(|context| if holder.is_due(true, context) { Poll::Ready(()) } else { Poll::Pending })
                .await;
            holder.release();
            let written = poll_fn(|context| write(&mut stream, context)).await;
            let mut read = [0; 4];
            assert_eq!(far.read_exact(&mut read).await.expect("written"), written);
            assert_eq!(&read, b"pong");
        }
    }

    #[tokio::test]
    async fn a_socket_that_takes_no_more_is_left_to_its_own_waking() {
        let (near, mut far) = tokio::io::duplex(4);
        let cork = Arc::new(Cork::default());
        let mut stream = Corked::new(near, Arc::clone(&cork));
        let mut holder = Holder::new(cork);
        assert_eq!(poll_fn(|context| write(&mut stream, context)).await, 4);
        poll_fn(|context| {
            assert_eq!(write(&mut stream, context), Poll::Pending);
            holder.hold();
            assert_eq!(write(&mut stream, context), Poll::Pending);
            assert!(!holder.is_due(false, context), "the client is behind, not we");
            Poll::Ready(())
        })
        .await;
        far.read_exact(&mut [0; 4]).await.expect("written");
        assert_eq!(poll_fn(|context| write(&mut stream, context)).await, 4);
    }
}
