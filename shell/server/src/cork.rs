//! A socket whose acknowledgements wait for company.
//!
//! A gRPC client measures its connection with pings: a busy one sends a ping along with nearly every request. Answered
//! at once, each costs a write of its own and wakes the client, which on few cores takes the processor from the very
//! request that came with the ping. So what is no answer (acknowledgements, window updates) waits for an answer to travel
//! with, for at most [`WAIT_MAX`], and not at all while no call is in flight.
//!
//! Beside it, frames that come are counted, and pings among them: nobody else sees those.
//!
//! Knows nothing of: what frames say, calls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Longest time that an acknowledgement waits for an answer. Clients that want a ping answered within seconds to believe
/// that we live do not notice.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// Bytes that a connection may read in one turn of its task: then the others have theirs, and the replica among them.
const TURN_BYTES: usize = 64 << 10;
/// … and frames, for a short one may begin a call; no more of them than a few reads bring are over it.
const TURN_FRAMES: u64 = 128;

/// Whether writes wait; shared by a connection's task and its socket.
#[derive(Debug, Default)]
pub struct Cork {
    held: AtomicBool,
    /// Something is being kept from being written.
    wanted: AtomicBool,
    /// Frames whose heads have come.
    frames: AtomicU64,
    /// Pings among them that want an answer.
    pings: AtomicU64,
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

    /// Frames that have come, and pings among them.
    pub fn counted(&self) -> (u64, u64) {
        (self.cork.frames.load(Relaxed), self.cork.pings.load(Relaxed))
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
    heads: Heads,
    /// Bytes read in this turn, and the frames that had come before it.
    read: usize,
    frames_before: u64,
}

/// Finds the heads of frames among the bytes that come. [RFC 9113 §4.1]
#[derive(Debug)]
struct Heads {
    /// Bytes until the next head begins.
    skip: usize,
    /// As much of a head as has come.
    head: [u8; HEAD_BYTES],
    len: usize,
}

const HEAD_BYTES: usize = 9;
/// What a client says before its first frame. [RFC 9113 §3.4]
const PREFACE_BYTES: usize = 24;
const PING: u8 = 6;
const ACK: u8 = 1;

impl Heads {
    fn look_at(&mut self, mut bytes: &[u8], cork: &Cork) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let more = (HEAD_BYTES - self.len).min(bytes.len());
            self.head[self.len..self.len + more].copy_from_slice(&bytes[..more]);
            self.len += more;
            bytes = &bytes[more..];
            if self.len == HEAD_BYTES {
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.len = 0;
                cork.frames.fetch_add(1, Relaxed);
                if kind == PING && flags & ACK == 0 {
                    cork.pings.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

impl<S> Corked<S> {
    /// The stream of a client that has said nothing yet, whose writes wait as `cork` says.
    pub fn new(stream: S, cork: Arc<Cork>) -> Corked<S> {
        let heads = Heads { skip: PREFACE_BYTES, head: [0; HEAD_BYTES], len: 0 };
        Corked { stream, cork, backed_up: false, heads, read: 0, frames_before: 0 }
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
        let frames = self.cork.frames.load(Relaxed);
        if TURN_BYTES <= self.read || TURN_FRAMES <= frames - self.frames_before {
            (self.read, self.frames_before) = (0, frames);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() {
            (self.read, self.frames_before) = (0, frames);
        }
        let Corked { heads, cork, read, .. } = &mut *self;
        heads.look_at(&buffer.filled()[before..], cork);
        *read += buffer.filled().len() - before;
        polled
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

    #[test]
    fn pings_are_found_however_the_bytes_are_cut() {
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        let mut frame = |kind: u8, flags: u8, len: u8| {
            bytes.extend([0, 0, len, kind, flags, 0, 0, 0, 1]);
            bytes.extend(vec![PING; len as usize]);
        };
        frame(4, 0, 0);
        frame(PING, 0, 8);
        frame(0, 1, 200);
        frame(PING, ACK, 8);
        frame(PING, 0, 8);
        for cut in 1..bytes.len() {
            let cork = Cork::default();
            let mut heads = Heads { skip: PREFACE_BYTES, head: [0; HEAD_BYTES], len: 0 };
            for piece in bytes.chunks(cut) {
                heads.look_at(piece, &cork);
            }
            assert_eq!((cork.frames.load(Relaxed), cork.pings.load(Relaxed)), (5, 2), "pieces of {cut}");
        }
    }

    /// Turns that it takes to read these bytes, 8 KiB at a time.
    async fn turns_to_read(sent: &[u8]) -> usize {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        tokio::io::AsyncWriteExt::write_all(&mut far, sent).await.expect("there is room");
        let mut stream = Corked::new(near, Arc::default());
        let (mut turns, mut got) = (0, 0);
        poll_fn(|context| {
            turns += 1;
            let mut scrap = [0; 8 << 10];
            loop {
                let mut buffer = ReadBuf::new(&mut scrap);
                match Pin::new(&mut stream).poll_read(context, &mut buffer) {
                    Poll::Ready(read) => read.expect("the other end is there"),
                    Poll::Pending if got < sent.len() => return Poll::Pending,
                    Poll::Pending => return Poll::Ready(()),
                }
                got += buffer.filled().len();
            }
        })
        .await;
        turns
    }

    #[tokio::test]
    async fn whoever_sends_much_is_read_in_turns_with_others() {
        let mut sent = vec![0; 5 * TURN_BYTES / 2];
        assert_eq!(turns_to_read(&sent).await, 20, "empty frames: each read brings far more than a turn's");
        let len = (sent.len() - PREFACE_BYTES - HEAD_BYTES) as u32;
        sent[PREFACE_BYTES..PREFACE_BYTES + 3].copy_from_slice(&len.to_be_bytes()[1..]);
        assert_eq!(turns_to_read(&sent).await, 3, "one long frame: two and a half turns");
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
