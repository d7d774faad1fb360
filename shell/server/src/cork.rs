//! A socket that delays acknowledgements until a response can be sent with them.
//!
//! A gRPC client measures its connection with pings: a busy one sends a ping along with nearly every request.
//! Acknowledged at once, each costs a write of its own and wakes the client, which on few cores takes the processor
//! from the very request that came with the ping. So both wait for a response: window updates for at most [`WAIT_MAX`],
//! and not at all while no call is in flight; acknowledgements of pings for at most [`PING_WAIT_MAX`], and for
//! [`WAIT_MAX`] while no call is in flight, because the next one follows soon on a busy connection.
//!
//! The socket also counts received frames and pings, which no other layer sees. And it bounds what one turn of a
//! connection's task reads ([`crate::turns`]).
//!
//! Knows nothing of: the contents of frames, calls.

use crate::frames::{ACK, CONTINUATION, DATA, END_HEADERS, Frames, HEAD_BYTES, HEADERS, Head, PING};
use crate::turns::{self, Talker};
use bytes::BufMut;
use std::future::Future;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Longest time that a window update, for which a client may wait, waits for a response.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// Longest time that the acknowledgement of a ping does: longer than a write takes on a busy cluster. Clients that check
/// a connection by pings allow seconds.
const PING_WAIT_MAX: Duration = Duration::from_millis(200);

/// Frames that a thread's talkers read in one round, since a short one may begin a call: a few milliseconds with the work
/// that they cause. And those of one connection in a turn, at most and at least.
const ROUND_FRAMES: usize = 256;
const TURN_FRAMES_MAX: usize = 128;
const TURN_FRAMES_MIN: usize = 8;
/// The frames of a call's head and of a small body nearly always have at least this many bytes each.
const FRAME_BYTES: usize = 64;
/// A ping has a head and eight bytes. [RFC 9113 §6.7]
const PING_BYTES: usize = HEAD_BYTES + 8;

/// Whether writes wait; shared by a connection's task and its socket.
#[derive(Debug, Default)]
pub(crate) struct Cork {
    held: AtomicBool,
    /// A write is being delayed, …
    wanted: AtomicBool,
    /// … and more than acknowledgements of pings.
    is_more: AtomicBool,
    /// Frames whose heads have come.
    frames: AtomicU64,
    /// Pings among them that want an acknowledgement.
    pings: AtomicU64,
    /// Number, from 1, of the incomplete frame, or of the first frame of an incomplete head; 0 for none. Body data is
    /// left out, since its call has a deadline.
    begun: AtomicU64,
    /// Turns of the task so far.
    turn: AtomicU64,
    /// The turn of the last read.
    read_in: AtomicU64,
    talker: Talker,
}

impl Cork {
    fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }
}

/// The task's side of the cork.
#[derive(Debug)]
pub struct Holder {
    cork: Arc<Cork>,
    /// When the delayed write must be sent.
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

    /// Frames received, and pings among them.
    pub fn counted(&self) -> (u64, u64) {
        (self.cork.frames.load(Relaxed), self.cork.pings.load(Relaxed))
    }

    /// The number of the incomplete frame or head, if there is one.
    pub fn begun(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.cork.begun.load(Relaxed))
    }

    /// Begins a turn of the task: from here on writes wait, and reading is allowed again.
    pub fn hold(&self) {
        self.cork.held.store(true, Relaxed);
        self.cork.turn.store(self.cork.turn.load(Relaxed) + 1, Relaxed);
    }

    /// Whether the library has something to write, and waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.cork.is_wanted()
    }

    /// Ends the turn. A talker of which nothing was read takes no part of the round: it waits for something else, for
    /// its client to read responses, perhaps.
    pub(crate) fn turn_ends(&self) {
        if self.cork.read_in.load(Relaxed) != self.cork.turn.load(Relaxed) {
            self.cork.talker.set(false);
        }
    }

    /// From here on writes do not wait; the connection must be polled to send them.
    pub fn release(&mut self) {
        self.cork.held.store(false, Relaxed);
        self.cork.wanted.store(false, Relaxed);
        self.cork.is_more.store(false, Relaxed);
        self.due = None;
    }

    /// Whether a delayed write must be sent; `company`: calls are in flight. If not, wakes the task in time.
    pub fn is_due(&mut self, company: bool, context: &mut Context<'_>) -> bool {
        if !self.cork.is_wanted() {
            return false;
        }
        let wait_max = match (company, self.cork.is_more.load(Relaxed)) {
            (false, true) => return true,
            (true, false) => PING_WAIT_MAX,
            _ => WAIT_MAX,
        };
        let now = Instant::now();
        let due = self.due.map_or(now + wait_max, |due| due.min(now + wait_max));
        self.due = Some(due);
        if due <= now {
            return true;
        }
        if !self.timer_is_set || due < self.timer.deadline() {
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
pub(crate) struct Corked<S> {
    stream: S,
    cork: Arc<Cork>,
    /// The system took nothing at the last write: the client reads slowly, and a delay gains nothing.
    backed_up: bool,
    heads: Heads,
    /// Bytes read in the turn of the last read, and the frames that had come before it.
    read: usize,
    frames_before: u64,
    /// The system had no more in that turn: what comes meanwhile wakes the task for another.
    is_drained: bool,
}

/// Finds incomplete frames and heads in the input.
#[derive(Debug)]
struct Heads {
    frames: Frames,
    /// The current frame is body data.
    is_data: bool,
    /// The number of the first frame of an incomplete head of several frames; 0 for none.
    open: u64,
}

/// Bytes that a client sends before its first frame. [RFC 9113 §3.4]
const PREFACE_BYTES: usize = 24;

impl Heads {
    /// For a client that has sent nothing yet.
    fn new() -> Heads {
        Heads { frames: Frames::after(PREFACE_BYTES), is_data: true, open: 0 }
    }

    /// The incomplete frame or head after so many frames. [`Cork::begun`]
    fn begun(&self, frames: u64) -> u64 {
        match (self.open, self.frames.is_in_head(), self.frames.rest()) {
            (0, true, _) => frames + 1,
            (0, false, 0) => 0,
            (0, false, _) if self.is_data => 0,
            (0, false, _) => frames,
            (open, _, _) => open,
        }
    }

    fn look_at(&mut self, mut bytes: &[u8], cork: &Cork) {
        while let Some(Head { kind, flags, .. }) = self.frames.next(&mut bytes) {
            self.is_data = kind == DATA;
            let number = cork.frames.fetch_add(1, Relaxed) + 1;
            match kind {
                HEADERS if flags & END_HEADERS == 0 => self.open = number,
                CONTINUATION if flags & END_HEADERS != 0 => self.open = 0,
                PING if flags & ACK == 0 => drop(cork.pings.fetch_add(1, Relaxed)),
                _ => {}
            }
        }
        cork.begun.store(self.begun(cork.frames.load(Relaxed)), Relaxed);
    }
}

/// Whether these bytes are whole acknowledgements of pings and nothing else.
fn is_acknowledgements(bytes: &[u8]) -> bool {
    let (frames, rest) = bytes.as_chunks::<PING_BYTES>();
    rest.is_empty() && frames.iter().all(|frame| frame[..5] == [0, 0, 8, PING, ACK])
}

impl<S> Corked<S> {
    /// The stream of a client that has sent nothing yet; `cork` delays its writes.
    pub fn new(stream: S, cork: Arc<Cork>) -> Corked<S> {
        let heads = Heads::new();
        Corked { stream, cork, backed_up: false, heads, read: 0, frames_before: 0, is_drained: false }
    }

    /// Whether the system has no more input in this turn.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Whether this write has to wait. It needs no waker: the task that holds the cork polls again.
    fn waits(&self, slices: &[IoSlice<'_>]) -> bool {
        let waits = self.cork.held.load(Relaxed) && !self.backed_up;
        if waits {
            self.cork.wanted.store(true, Relaxed);
            if !slices.iter().all(|slice| is_acknowledgements(slice)) {
                self.cork.is_more.store(true, Relaxed);
            }
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
        let (frames, turn) = (self.cork.frames.load(Relaxed), self.cork.turn.load(Relaxed));
        if self.cork.read_in.swap(turn, Relaxed) != turn {
            (self.read, self.frames_before, self.is_drained) = (0, frames, false);
        }
        if self.is_drained {
            return Poll::Pending;
        }
        let frames_max = turns::share(ROUND_FRAMES, TURN_FRAMES_MIN, TURN_FRAMES_MAX) as u64;
        let bytes_left = turns::bytes().saturating_sub(self.read);
        let frames_left = frames_max.saturating_sub(frames - self.frames_before);
        if bytes_left == 0 || frames_left == 0 {
            self.cork.talker.set(true);
            turns::wake_after_a_look(context);
            return Poll::Pending;
        }
        let Corked { stream, heads, cork, read, is_drained, .. } = &mut *self;
        // So many bytes cannot begin more frames than the turn has left.
        let most = bytes_left.min(heads.frames.rest() + frames_left as usize * FRAME_BYTES);
        let before = buffer.filled().len();
        let polled = if buffer.remaining() <= most {
            Pin::new(stream).poll_read(context, buffer)
        } else {
            pin!(stream.read_buf(&mut buffer.limit(most))).poll(context).map_ok(drop::<usize>)
        };
        *is_drained = polled.is_pending() && 0 < turn; // before the first turn each look is a new one
        if polled.is_pending() {
            cork.talker.set(false);
        }
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
        if self.waits(&[IoSlice::new(bytes)]) {
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
        if self.waits(slices) {
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
    use crate::turns::{ROUND_BYTES, TALKERS, TURN_BYTES_MAX, TURN_BYTES_MIN};
    use std::future::poll_fn;

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

    /// … and a window update that comes to it later is not made to wait for as long.
    #[tokio::test]
    async fn an_acknowledgement_of_a_ping_waits_longer_than_what_a_client_may_wait_for() {
        let (near, _far) = tokio::io::duplex(64);
        let cork = Arc::new(Cork::default());
        let mut stream = Corked::new(near, Arc::clone(&cork));
        let mut holder = Holder::new(cork);
        let ping = [&[0, 0, 8, PING, ACK, 0, 0, 0, 0][..], &[7; 8]].concat();
        let pings = [&ping[..], &ping].concat();
        let update = [&ping[..], &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0]].concat();
        let none = Duration::ZERO;
        // What is written in each turn, whether there is company, and how long it then waits from some moment of the turn.
        for turns in [
            vec![(&pings, true, PING_WAIT_MAX)],
            vec![(&pings, false, WAIT_MAX)],
            vec![(&update, true, WAIT_MAX)],
            vec![(&update, false, none)],
            vec![(&ping, true, PING_WAIT_MAX), (&update, true, WAIT_MAX)],
        ] {
            for (output, company, wait) in turns {
                poll_fn(|context| {
                    holder.hold();
                    assert!(Pin::new(&mut stream).poll_write(context, output).is_pending());
                    let before = Instant::now();
                    assert_eq!(holder.is_due(company, context), wait == none);
                    if let Some(due) = holder.due {
                        assert!((before + wait..=Instant::now() + wait).contains(&due), "{wait:?}");
                    }
                    Poll::Ready(())
                })
                .await;
            }
            holder.release();
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
            let mut heads = Heads::new();
            for piece in bytes.chunks(cut) {
                heads.look_at(piece, &cork);
            }
            assert_eq!((cork.frames.load(Relaxed), cork.pings.load(Relaxed)), (5, 2), "pieces of {cut}");
        }
    }

    /// After each byte it is known whether a frame or a head is incomplete, and with which frame it began.
    #[test]
    fn a_head_that_has_begun_is_told_from_a_body_and_from_silence() {
        let frame = |kind: u8, flags: u8, len: u8| {
            [&[0, 0, len, kind, flags, 0, 0, 0, 1][..], &vec![0; len as usize]].concat()
        };
        // Input, and the incomplete frame or head after each byte of it.
        let course = [
            (vec![b'P'; PREFACE_BYTES], [0; PREFACE_BYTES].to_vec()),
            (frame(4, 0, 0), [vec![1; 8], vec![0]].concat()),
            (frame(HEADERS, END_HEADERS, 3), [vec![2; 11], vec![0]].concat()),
            (frame(DATA, 1, 4), [vec![3; 8], vec![0; 5]].concat()),
            (frame(HEADERS, 0, 2), vec![4; 11]),
            (frame(CONTINUATION, 0, 2), vec![4; 11]),
            (frame(CONTINUATION, END_HEADERS, 2), [vec![4; 8], vec![6; 2], vec![0]].concat()),
        ];
        let (cork, mut heads) = (Cork::default(), Heads::new());
        for (bytes, begun) in course {
            for (byte, begun) in bytes.iter().zip(begun) {
                heads.look_at(&[*byte], &cork);
                assert_eq!(cork.begun.load(Relaxed), begun, "{heads:?}");
            }
        }
    }

    /// Turns needed to read these bytes, 8 KiB at a time, beside so many talkers, and the most bytes read in one.
    async fn turns_to_read(sent: &[u8], talkers: usize) -> (usize, usize) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        tokio::io::AsyncWriteExt::write_all(&mut far, sent).await.expect("there is room");
        let others: Vec<Cork> = (0..talkers).map(|_| Cork::default()).collect();
        others.iter().for_each(|other| other.talker.set(true));
        let cork = Arc::new(Cork::default());
        let (mut stream, holder) = (Corked::new(near, Arc::clone(&cork)), Holder::new(cork));
        let (mut turns, mut got, mut longest) = (0, 0, 0);
        poll_fn(|context| {
            holder.hold();
            turns += 1;
            let (mut scrap, begun) = ([0; 8 << 10], got);
            loop {
                let mut buffer = ReadBuf::new(&mut scrap);
                let polled = Pin::new(&mut stream).poll_read(context, &mut buffer);
                got += buffer.filled().len();
                longest = longest.max(got - begun);
                match polled {
                    Poll::Ready(read) => read.expect("the other end is there"),
                    Poll::Pending if stream.cork.talker.talks() => {
                        let again = Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut [0; 99]));
                        assert!(again.is_pending(), "a turn is over until the next");
                        holder.turn_ends();
                        return Poll::Pending;
                    }
                    Poll::Pending => return Poll::Ready(()),
                }
            }
        })
        .await;
        assert_eq!(got, sent.len());
        assert_eq!(TALKERS.get(), talkers, "a connection without input is no talker");
        drop((others, stream, holder));
        assert_eq!(TALKERS.get(), 0);
        (turns, longest)
    }

    #[tokio::test]
    async fn a_connection_that_is_not_read_takes_nothing_from_others() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let sent = vec![0; 2 * TURN_BYTES_MAX];
        tokio::io::AsyncWriteExt::write_all(&mut far, &sent).await.expect("there is room");
        let cork = Arc::new(Cork::default());
        let (mut stream, holder) = (Corked::new(near, Arc::clone(&cork)), Holder::new(cork));
        let mut turns = 0;
        poll_fn(|context| {
            holder.hold();
            turns += 1;
            let mut scrap = [0; 8 << 10];
            let mut read =
                |stream: &mut Corked<_>| Pin::new(stream).poll_read(context, &mut ReadBuf::new(&mut scrap));
            if turns == 1 {
                while read(&mut stream).is_ready() {}
            }
            holder.turn_ends();
            assert_eq!(TALKERS.get(), usize::from(turns == 1), "turn {turns}");
            if turns == 1 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        poll_fn(|context| {
            holder.hold();
            let read = Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut [0; 99]));
            assert!(read.is_ready(), "there is more, and it is read when it is wanted");
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_connection_that_sends_much_is_read_in_turns_with_others() {
        let mut sent = vec![0; 5 * TURN_BYTES_MAX / 2];
        // In the last of them there is nothing left.
        assert_eq!(
            turns_to_read(&sent, 0).await,
            (21, 8 << 10),
            "a read brings more empty frames than a turn has"
        );
        let first = 512 + PREFACE_BYTES; // what is no frame is on top
        assert_eq!(
            turns_to_read(&sent, 31).await,
            (321, first),
            "as many bytes as eight frames with calls have"
        );
        let len = (sent.len() - PREFACE_BYTES - HEAD_BYTES) as u32;
        sent[PREFACE_BYTES..PREFACE_BYTES + 3].copy_from_slice(&len.to_be_bytes()[1..]);
        assert_eq!(
            turns_to_read(&sent, 0).await,
            (3, TURN_BYTES_MAX),
            "one long frame: two and a half turns"
        );
        let (turns, longest) = turns_to_read(&sent, 31).await;
        assert!(turns == 10 && longest <= ROUND_BYTES / 31, "a part of a round: {turns}, {longest}");
        assert_eq!(
            turns_to_read(&sent, 10_000).await,
            (41, TURN_BYTES_MIN),
            "and no less, however many there are"
        );
    }

    /// A talker goes on only after the thread has polled its sockets, so that new input is read first.
    #[tokio::test]
    async fn a_connection_that_sends_little_is_read_between_two_turns_of_one_that_sends_much() {
        use tokio::io::AsyncWriteExt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let mut quiet_far = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let (mut quiet, _) = listener.accept().await.expect("it has come");
        let (near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&vec![0; 1 << 20]).await.expect("there is room");
        let cork = Arc::new(Cork::default());
        let (mut stream, holder) = (Corked::new(near, Arc::clone(&cork)), Holder::new(cork));
        let mut read = 0;
        let mut loud = pin!(poll_fn(|context| {
            holder.hold();
            let mut scrap = [0; 8 << 10];
            let mut buffer = ReadBuf::new(&mut scrap);
            while Pin::new(&mut stream).poll_read(context, &mut buffer).is_ready() {
                read += buffer.filled().len();
                buffer.clear();
            }
            if read < 1 << 20 { Poll::Pending } else { Poll::Ready(()) }
        }));
        let first = poll_fn(|context| Poll::Ready(loud.as_mut().poll(context))).await;
        assert!(first.is_pending(), "there is far more than a turn takes");
        quiet_far.write_all(b"x").await.expect("the other end is there");
        let mut byte = [0; 1];
        tokio::select! {
            biased;
            () = loud => panic!("a megabyte was read before a byte that came after its first turn"),
            heard = quiet.read_exact(&mut byte) => drop(heard.expect("the other end is there")),
        }
        assert!(read < 1 << 20, "{read} bytes were read before it");
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
            assert!(!holder.is_due(false, context), "the client is slow, not the server");
            Poll::Ready(())
        })
        .await;
        far.read_exact(&mut [0; 4]).await.expect("written");
        assert_eq!(poll_fn(|context| write(&mut stream, context)).await, 4);
    }
}
