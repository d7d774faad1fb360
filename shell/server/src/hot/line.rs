//! The socket of a connection, shared by the library and by hot calls.
//!
//! In:    the socket below; what the library writes; parts of responses to hot calls.
//! Out:   to the library, a socket with the input that is its own; to the owner, begun hot calls.
//! Rules: 1. The owner pumps: it reads the socket, however little the library wants. Input waits for the library up to
//!           [`COLD_MAX`]; beyond it the client waits, as does one that does not read its refusals.
//!        2. A shutdown in order waits for the hot calls under way, as the library waits for its own.
//! Knows nothing of: what hot calls ask for.

use crate::budget::Account;
use crate::cork::Corked;
use crate::gather::Gathering;
use crate::hot::input::{COLD_MAX, Call, Input};
use crate::hot::output::{Admitted, Output};
use crate::hot::part::Part;
use crate::hot::stream::Stream;
use crate::listen::PREFACE;
use crate::streams::Highest;
use h2::Reason;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes of one read.
const READ_BYTES: usize = 16 << 10;

thread_local! {
    /// What a read fills; of all connections of a thread, which read one after another.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The socket.
#[derive(Debug)]
pub struct Split<S>(Rc<RefCell<Line<S>>>);

#[derive(Debug)]
struct Line<S> {
    socket: Corked<Gathering<S>>,
    gathering: Gathering<S>,
    input: Input,
    output: Output,
    highest: Highest,
    /// Bytes of the preface that have not come.
    preface: usize,
    /// The last pump ended because too much waits.
    is_paused: bool,
    /// The library has something to do.
    is_fresh: bool,
    /// A part of a response was added.
    is_pushed: bool,
    /// The client has ended its side, or the socket is broken.
    end: Option<io::Result<()>>,
    is_shutting: bool,
}

impl<S> Clone for Split<S> {
    fn clone(&self) -> Split<S> {
        Split(Rc::clone(&self.0))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Split<S> {
    /// Of a client that has sent nothing yet. `highest` is kept for its last words.
    pub fn new(
        socket: Corked<Gathering<S>>,
        gathering: Gathering<S>,
        account: &Rc<Account>,
        highest: Highest,
        has_hot: bool,
    ) -> Split<S> {
        Split(Rc::new(RefCell::new(Line {
            socket,
            gathering,
            input: Input::new(account, !has_hot),
            output: Output::new(account),
            highest,
            preface: PREFACE.len(),
            is_paused: false,
            is_fresh: false,
            is_pushed: false,
            end: None,
            is_shutting: false,
        })))
    }

    /// Reads what there is in this turn. `room`: streams that may be open, but for the library's.
    ///
    /// # Errors
    /// The client broke a rule: the reason to end the connection with.
    pub fn pump(&self, room: usize, context: &mut Context<'_>) -> Result<(), Reason> {
        let line = &mut *self.0.borrow_mut();
        line.input.room = room;
        let mut scratch = SCRATCH.take();
        scratch.resize(READ_BYTES, 0);
        while line.end.is_none() && line.input.fault.is_none() {
            line.is_paused = line.is_full();
            if line.is_paused {
                break;
            }
            if line.input.is_stopped() {
                line.input.take(&[]);
                continue;
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut line.socket).poll_read(context, &mut buffer) {
                Poll::Pending => {
                    if line.socket.is_drained() {
                        line.input.settle();
                    }
                    break;
                }
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => line.end = Some(Ok(())),
                Poll::Ready(Ok(())) => line.input.take(buffer.filled()),
                Poll::Ready(Err(error)) => line.end = Some(Err(error)),
            }
        }
        SCRATCH.set(scratch);
        if line.end.is_some() {
            line.input.settle();
        }
        if line.is_shutting {
            line.input.cold.clear(); // the library reads no more
        }
        for (stream, reason) in line.input.refused.drain(..) {
            line.output.refuse(stream, reason);
            line.is_pushed = true;
        }
        line.highest.set(line.input.begun_max);
        let has_room = line.output.is_blocked;
        line.is_fresh |= !line.input.cold.is_empty() || line.end.is_some() || has_room;
        line.input.fault.map_or(Ok(()), Err)
    }

    /// Hot calls that have begun.
    pub fn begun(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.borrow_mut().input.begun)
    }

    /// Whether there is something for the library to read, or to write, since the last call.
    pub fn take_fresh(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().is_fresh)
    }

    /// Whether a part of a response was added since the last call.
    pub fn take_pushed(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().is_pushed)
    }

    /// Whether the last pump ended because too much waited, which does not any more.
    pub fn is_to_go_on(&self) -> bool {
        let line = self.0.borrow();
        line.is_paused && !line.is_full()
    }

    /// Whether the library waits for the hot calls to end.
    pub fn is_shutting(&self) -> bool {
        self.0.borrow().is_shutting
    }

    /// Gathers what may be sent of responses. Whether there was anything.
    pub fn flush(&self) -> bool {
        let line = &mut *self.0.borrow_mut();
        let waited = line.awaits_hot();
        let Line { input, output, gathering, .. } = line;
        let is_moved = gathering.gather(|out, len_max| output.flush(input, out, len_max));
        // The end was waiting for the last of them.
        line.is_fresh |= line.is_shutting && waited && !line.awaits_hot();
        is_moved
    }

    /// Whether something waits only for the library to send what it has written.
    pub fn is_held_up(&self) -> bool {
        let line = self.0.borrow();
        line.output.is_held_up(&line.input)
    }

    /// Adds a part of a response.
    pub fn push(&self, stream: u32, part: Part) {
        let line = &mut *self.0.borrow_mut();
        line.input.streams.push(stream, part);
        line.is_pushed = true;
    }

    /// The stream of a call; none once it has ended.
    pub fn stream(&self, stream: u32) -> Option<Rc<Stream>> {
        self.0.borrow().input.streams.get(stream).cloned()
    }

    /// How many bytes of data this stream may send; none while a part of its response waits. What other responses wait
    /// to send is theirs.
    pub fn window(&self, stream: &Stream) -> usize {
        let line = self.0.borrow();
        if line.output.has_kept() || stream.has_parts() {
            return 0;
        }
        let Input { windows, streams, .. } = &line.input;
        let open = windows.open() - streams.queued_bytes() as i64;
        open.min(windows.of_stream + stream.gained.get()).max(0) as usize
    }

    /// Ends a stream for a reason.
    pub fn reset(&self, stream: u32, reason: Reason) {
        let line = &mut *self.0.borrow_mut();
        line.input.streams.reset(stream);
        line.output.refuse(stream, reason);
        line.is_pushed = true;
    }
}

impl<S> Line<S> {
    /// Rule 2.
    fn awaits_hot(&self) -> bool {
        !self.input.streams.is_empty() || self.output.has_kept()
    }

    /// Rule 1.
    fn is_full(&self) -> bool {
        COLD_MAX <= self.input.cold.len() || self.output.is_heaped()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Split<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        if 0 < line.preface {
            let mut preface = [0; PREFACE.len()];
            let most = line.preface.min(buffer.remaining());
            let mut part = ReadBuf::new(&mut preface[..most]);
            ready!(Pin::new(&mut line.socket).poll_read(context, &mut part))?;
            line.preface -= part.filled().len();
            buffer.put_slice(part.filled());
            return Poll::Ready(Ok(()));
        }
        let waiting = line.input.cold.bytes();
        if !waiting.is_empty() {
            let len = waiting.len().min(buffer.remaining());
            buffer.put_slice(&waiting[..len]);
            line.input.cold.take(len);
            return Poll::Ready(Ok(()));
        }
        // What comes for the library wakes the owner, which asks it.
        match &mut line.end {
            Some(end) => Poll::Ready(std::mem::replace(end, Ok(()))),
            None => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Split<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let line = &mut *self.0.borrow_mut();
        let len = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let cold = line.input.cold.len();
        let admitted = line.output.admit(slices.iter().map(|slice| &**slice), &mut line.input);
        line.is_fresh |= cold < line.input.cold.len();
        line.input.is_off |= line.output.last.is_some_and(|last| last.is_final());
        let admitted = match admitted {
            Admitted::Kept(len) => return Poll::Ready(Ok(len)),
            Admitted::Pass(len) => len,
        };
        let socket = Pin::new(&mut line.socket);
        let first = slices.first().map_or(&[][..], |first| first);
        let written = match admitted {
            0 if 0 < len => return Poll::Pending, // the owner asks the library when there is room
            _ if admitted == len => ready!(socket.poll_write_vectored(context, slices))?,
            _ => ready!(socket.poll_write(context, &first[..admitted.min(first.len())]))?,
        };
        line.output.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        line.is_shutting = true;
        let is_orderly = line.end.is_none()
            && line.input.fault.is_none()
            && line.output.last.is_some_and(|last| last.reason == u32::from(Reason::NO_ERROR));
        if is_orderly && line.awaits_hot() {
            return Poll::Pending; // the owner asks again when one has ended
        }
        Pin::new(&mut line.socket).poll_shutdown(context)
    }
}
