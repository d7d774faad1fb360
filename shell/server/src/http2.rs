//! One HTTP/2 connection: all its calls in flight, driven by one task.
//!
//! ```text
//!            ┌──────────────────────── one task ────────────────────────┐
//!  socket ─▶ │ frames ─▶ new calls ─▶ calls in flight ─▶ answers queued │ ─▶ socket
//!            └───────▲──────────────────────────────────────┬──────────┘
//!                    └──────────── until nothing moves ──────┘
//! ```
//! All input is taken in before any call is polled, and all responses go out in one write ([`crate::gather`]): so a busy
//! connection costs one wake-up for many calls ([`crate::bell`]), and no call has a task of its own. Frames other than
//! responses wait a little for one ([`crate::cork`]). What a call holds is counted from its first byte in to its last
//! byte out ([`crate::budget`]): a call too many is refused, and a client that does not read loses the call, or the
//! connection.
//! Hot calls ([`crate::hot`]) pass the library by.
//! Knows nothing of: the meaning of calls.

use crate::ahead::Ahead;
use crate::bell::Bell;
use crate::body::{FaceBody, Large, Piece, error_trailers, ok_trailers};
use crate::budget::{Account, CALL_BYTES, Hold, Waiting};
use crate::cork::{Cork, Corked, Holder};
use crate::counters::Counters;
use crate::encode::PIECE_BYTES;
use crate::errors;
use crate::face::FaceConfig;
use crate::gather::Gathering;
use crate::grpc;
use crate::hot::call as hot;
use crate::hot::line::Split;
use crate::patience::{Enough, Pace, Patience};
use crate::rpc::Rpc;
use crate::streams::{Highest, Limited, StreamsMax};
use crate::unsent::Unsent;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body, Frame};
use kattu_tls::Socket;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep, timeout_at};
use tonic::Status;

/// A request of the default largest size fits in. The window of the whole connection is set by [`crate::ahead`].
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// Longest list of a head's fields.
pub(crate) const HEAD_BYTES_MAX: u32 = 16 << 10;

/// Overhead allowed for small body frames beside their bytes, 256 for each unread one. The library's default is half of
/// the connection's window, and would end a connection with some hundred small requests under way.
const SMALL_FRAMES_BYTES: usize = 8 << 20;

/// Most calls refused for lack of memory in a row, or with refusals that the client has not read, since nothing is held
/// for those; beyond it the client loses the connection. A burst within the highest limit ever sent never costs it.
const REFUSED_MAX: u32 = 256;

/// Streams that a client may open and reset before they are accepted. A client that cancels a whole burst is normal, an
/// endless flood is not.
const RESET_STREAMS_MAX: usize = 4096;

/// Serves one connection until it ends. `whole` answers hot calls, if there are any here. Once `stop` turns true it takes no new calls and ends after those in flight.
///
/// # Errors
/// What broke the connection, or which limit it exceeded.
pub async fn serve<A, F, W, G>(
    stream: Socket,
    config: &FaceConfig,
    account: &Rc<Account>,
    mut stop: watch::Receiver<bool>,
    answer: A,
    whole: Option<W>,
) -> Result<(), h2::Error>
where
    A: Fn(Request<CallBody>, Hold) -> F,
    F: Future<Output = (Response<FaceBody>, Hold)>,
    W: Fn(Rpc, Bytes, Hold) -> G,
    G: Future<Output = (Result<FaceBody, Status>, Hold)>,
{
    let cork = Arc::new(Cork::default());
    let mut ahead = Ahead::new(config.max_concurrent_streams, account.under_way(0, 0));
    let streams_max = StreamsMax::new(Cell::new(ahead.streams()));
    let unsent = Rc::<Unsent>::default();
    let highest = Highest::default();
    let limited = Limited::new(stream, Rc::clone(&streams_max), Rc::clone(&unsent), Rc::clone(&highest));
    let socket = Gathering::new(limited);
    let (sender, second) = (socket.sender(), socket.sender());
    let split = Split::new(Corked::new(socket, Arc::clone(&cork)), second, account, highest, whole.is_some());
    let mut connection: Connection<Split<Limited<Socket>>, Piece> = Builder::new()
        .max_concurrent_streams(config.max_concurrent_streams)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .data_frame_budget(SMALL_FRAMES_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(Some(RESET_STREAMS_MAX))
        .handshake(split.clone())
        .await?;
    let out = Out {
        counters: &config.counters,
        stall: config.stall_deadline,
        piece: Cell::new(false),
        answering: Cell::new(0),
        unsent,
        refused: Cell::new(0),
    };
    let limits = config.limits();
    let mut patience = Patience::new(limits, Instant::now());
    let mut look = pin!(tokio::time::sleep(limits.look_every()));
    // Set only while a frame or a head is incomplete.
    let mut whole_by = pin!(None::<Sleep>);
    let mut refused = 0;
    // The highest limit that was ever sent to the client: calls under way may have been sent under it.
    let mut told = ahead.streams();
    // A shutdown was sent; bytes that are unsent at the next look are given up.
    let mut is_leaving = false;
    let mut cork = Holder::new(cork);
    // Set while the system has not taken all of the output: then the client may be too slow.
    let mut behind = None::<Waiting>;
    let mut calls = FuturesUnordered::new();
    let mut hot_calls = FuturesUnordered::new();
    let mut stopping = pin!(stop.wait_for(|stop| *stop));
    let mut stopped = false;
    let bell = Bell::rung();
    let ring = Waker::from(Arc::clone(&bell));
    // The socket's bell, with which it says that there is input.
    let door = Bell::rung();
    let knock = Waker::from(Arc::clone(&door));
    poll_fn(|context| {
        bell.turn_begins(context);
        door.turn_begins(context);
        let library = &mut Context::from_waker(&ring);
        if !stopped && stopping.as_mut().poll(context).is_ready() {
            connection.graceful_shutdown();
            stopped = true;
            ring.wake_by_ref();
        }
        // A turn in which the library has nothing to do begins with the calls.
        let mut is_asked = bell.take();
        let mut is_read = door.take();
        if is_asked || is_read {
            cork.hold();
        }
        if sender.is_behind() {
            cork.release(); // the client is slow, and a delay gains nothing
        }
        loop {
            if std::mem::take(&mut is_read) {
                let room = (config.max_concurrent_streams as usize).saturating_sub(calls.len());
                let pumped = split.pump(room, &mut Context::from_waker(&knock));
                if let Some(whole) = &whole {
                    hot_calls
                        .extend(split.begun().into_iter().map(|call| hot::answer(whole, &split, &out, call)));
                }
                if let Err(reason) = pumped
                    && !is_leaving
                {
                    is_leaving = true;
                    connection.abrupt_shutdown(reason);
                    is_asked = true;
                }
                is_asked |= split.take_fresh();
            }
            while is_asked && let Poll::Ready(accepted) = connection.poll_accept(library) {
                let Some(accepted) = accepted else { return Poll::Ready(Ok(())) };
                let (request, mut respond) = accepted?;
                let hold = Hold::take(account, CALL_BYTES);
                refused = if hold.is_some() { 0 } else { refused + 1 };
                if refused <= REFUSED_MAX.max(told) {
                    calls.push(call(&answer, &out, request, respond, hold.ok_or(account)));
                } else {
                    // With one too many the connection ends. An error here means that the client has gone.
                    let _ = respond.send_response(no_room(), true);
                }
            }
            if split.take_fresh() {
                is_asked = true;
                continue;
            }
            split.flush();
            is_read = split.is_to_go_on();
            match sender.poll_send(library) {
                Poll::Ready(sent) => {
                    sent.map_err(|_| Reason::INTERNAL_ERROR)?;
                    behind = None;
                    if split.flush() {
                        continue; // there was more than is gathered at once
                    }
                    if split.take_fresh() {
                        is_asked = true;
                        continue;
                    }
                }
                Poll::Pending => {
                    // What waits is bounded for each connection (`gather`), and is not counted: a refusal to count it
                    // would be one of a call.
                    behind.get_or_insert_with(|| Waiting::new(Hold::nothing(account)));
                }
            }
            let (frames, pings) = cork.counted();
            let pings_too_many = pings != patience.pings()
                && patience.too_many_pings(pings, account.take_sent(), Instant::now());
            let refused_too_many = REFUSED_MAX.max(told) < refused.max(out.refused.get());
            if (pings_too_many || refused_too_many) && !is_leaving {
                is_leaving = true;
                config.counters.connections_too_much.add(1);
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                is_asked = true;
                continue;
            }
            let mut moved = false;
            // Calls that are answered or refused at once count, too. Calls whose heads wait are answered and do not: a
            // client gets no larger limit because it does not read.
            let asked = (calls.len() + hot_calls.len() - out.unsent.len()) as u64;
            let mut hot_moved = false;
            while let Poll::Ready(Some(())) = hot_calls.poll_next_unpin(context) {
                hot_moved = true;
            }
            hot_moved |= split.take_pushed();
            while let Poll::Ready(Some(())) = calls.poll_next_unpin(context) {
                moved = true;
            }
            if let Some((window, is_larger)) = ahead.window(account.expected()) {
                connection.set_target_window_size(window);
                moved |= is_larger;
            }
            // Until the client has acknowledged the last limit, no other is sent.
            if let Some(limit) = ahead.wanted(account.under_way(asked, out.answering.get()))
                && connection.set_initial_window_size(STREAM_WINDOW_BYTES).is_ok()
            {
                streams_max.set(limit.streams);
                ahead.set(limit);
                told = told.max(limit.streams);
                moved = true;
            }
            let is_busy = !calls.is_empty() || !hot_calls.is_empty();
            // With a hot response goes what the library wants to send, and the library waits for the last of them.
            let asks_library = (hot_moved || split.is_held_up()) && cork.is_wanted() || hot_moved && split.is_shutting();
            if moved || asks_library || out.piece.take() || cork.is_due(is_busy, context) {
                cork.release();
                bell.take();
                is_asked = true;
                continue;
            }
            is_asked = false;
            if hot_moved || is_read {
                continue;
            }
            match cork.begun() {
                Some(begun) => {
                    let deadline = patience.whole_by(begun, Instant::now());
                    if whole_by.as_ref().as_pin_ref().is_none_or(|timer| timer.deadline() != deadline) {
                        whole_by.set(Some(tokio::time::sleep_until(deadline)));
                    }
                    if whole_by.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(context).is_ready()) {
                        return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                    }
                }
                _ if whole_by.is_some() => whole_by.set(None),
                _ => {}
            }
            while look.as_mut().poll(context).is_ready() {
                let now = Instant::now();
                look.as_mut().reset(now + limits.look_every());
                if is_leaving {
                    return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                }
                match patience.look(now, frames, is_busy, account.pieces()) {
                    Ok(()) => {}
                    Err(Enough::Idle) => {
                        is_leaving = true;
                        config.counters.connections_idle.add(1);
                        connection.graceful_shutdown();
                    }
                    Err(Enough::Stalled) => {
                        is_leaving = true;
                        config.counters.connections_stalled.add(1);
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                }
                if is_leaving {
                    cork.release();
                    ring.wake_by_ref();
                }
            }
            cork.turn_ends();
            bell.turn_ends();
            door.turn_ends();
            return Poll::Pending;
        }
    })
    .await
}

/// The refusal of a call for which there is no memory, in the form of any other limit's refusal.
fn no_room() -> Response<()> {
    grpc::refuse(errors::too_much_held(TOO_MANY_CALLS)).map(drop)
}

const TOO_MANY_CALLS: &str =
    "too many calls wait for this server, or for their clients to read; send fewer at once, or retry later";

/// The sending side of one connection, shared by its calls.
pub(crate) struct Out<'a> {
    pub counters: &'a Counters,
    /// How long a response waits while its client reads nothing of it.
    stall: Duration,
    /// A response, or a piece of one, has been queued by a call that goes on.
    piece: Cell<bool>,
    /// Calls with a response whose body is not completely sent.
    answering: Cell<u64>,
    /// Responses that are a head and are not sent yet.
    pub unsent: Rc<Unsent>,
    /// Refusals among them for lack of memory.
    refused: Cell<u32>,
}

/// One call from its request to the last byte of its response. A reset by the client ends the work on it.
async fn call<A, F>(
    answer: &A,
    out: &Out<'_>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Piece>,
    hold: Result<Hold, &Rc<Account>>,
) where
    A: Fn(Request<CallBody>, Hold) -> F,
    F: Future<Output = (Response<FaceBody>, Hold)>,
{
    let hold = match hold {
        Ok(hold) => hold,
        Err(account) => {
            account.answers();
            out.refused.update(|refused| refused + 1);
            let _ = send_head(no_room(), Hold::nothing(account), &mut respond, out).await;
            out.refused.update(|refused| refused - 1);
            return;
        }
    };
    let mut answer = pin!(answer(request.map(CallBody), hold));
    let mut is_begun = false;
    let answered = poll_fn(|context| {
        // A call that was reset before its first poll is not begun at all.
        if !is_begun && respond.poll_reset(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(response) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(response));
        }
        let was_begun = std::mem::replace(&mut is_begun, true);
        if was_begun { respond.poll_reset(context).map(|_| None) } else { Poll::Pending }
    })
    .await;
    let Some((response, hold)) = answered else { return };
    hold.answers(); // some are a head and nothing else
    // An error here means that the client or the connection has gone, so it cannot be reported.
    let _ = send(response, hold, respond, out).await;
}

/// Counts a call that has a response with a body, until all of it is sent.
pub(crate) struct Answering<'a>(&'a Cell<u64>);

impl<'a> Answering<'a> {
    pub fn new(out: &'a Out<'_>) -> Answering<'a> {
        out.answering.update(|answering| answering + 1);
        Answering(&out.answering)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.update(|answering| answering - 1);
    }
}

async fn send(
    response: Response<FaceBody>,
    mut hold: Hold,
    mut respond: SendResponse<Piece>,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    let (head, body) = response.into_parts();
    let head = Response::from_parts(head, ());
    let answering = Answering::new(out);
    match body {
        FaceBody::Empty => {
            drop(answering);
            send_head(head, hold, &mut respond, out).await
        }
        FaceBody::Page(bytes) if !hold.resize(bytes.len() as u64) => {
            drop(answering);
            send_head(no_room(), hold, &mut respond, out).await
        }
        FaceBody::Page(bytes) => respond.send_response(head, false)?.send_data(Piece::new(bytes, hold), true),
        FaceBody::Message(bytes) => {
            let mut stream = respond.send_response(head, false)?;
            out.counters.sent_bytes.add(bytes.len() as u64);
            stream.send_data(Piece::new(bytes, hold), false)?;
            stream.send_trailers(ok_trailers())
        }
        FaceBody::Large(large) => {
            let mut stream = respond.send_response(head, false)?;
            send_large(large, hold, &mut stream, out).await?;
            stream.send_trailers(ok_trailers())
        }
        FaceBody::Trailers => respond.send_response(head, false)?.send_trailers(ok_trailers()),
        FaceBody::Stream(messages) => {
            send_stream(messages, &mut hold, respond.send_response(head, false)?, out).await
        }
    }
}

/// A response that is a head and nothing else: held until it is sent or discarded.
async fn send_head(
    head: Response<()>,
    mut hold: Hold,
    respond: &mut SendResponse<Piece>,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    // All else that the call held is released; an empty hold stays empty.
    drop(hold.split(hold.bytes().saturating_sub(CALL_BYTES)));
    let mut stream = respond.send_response(head, true)?;
    let place = out.unsent.add(stream.stream_id().as_u32(), hold);
    out.piece.set(true); // the call goes on, but its response is complete and waits for no other
    poll_fn(|context| match place.poll_left(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => stream.poll_reset(context).map(drop),
    })
    .await;
    Ok(())
}

/// What the future gives, or nothing once the client has reset the stream.
async fn poll_unless_reset<T>(
    stream: &mut SendStream<Piece>,
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => stream.poll_reset(context).map(|_| None),
    })
    .await
}

/// Where the pieces of a response go.
pub(crate) trait Outlet {
    /// How many bytes find room now; the rest of those that are wanted may be asked for.
    fn room(&mut self, wanted: usize) -> usize;

    /// The same, once some find room; none if the client has reset the stream.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<usize, h2::Error>>>;

    /// Sends a piece that finds room.
    fn put(&mut self, piece: Piece) -> Result<(), h2::Error>;

    /// Resets the stream.
    fn give_up(&mut self, reason: Reason);
}

impl Outlet for SendStream<Piece> {
    fn room(&mut self, wanted: usize) -> usize {
        self.reserve_capacity(wanted.min(PIECE_BYTES));
        // Capacity that was assigned before and not used is not reported again.
        self.capacity()
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<usize, h2::Error>>> {
        self.poll_capacity(context)
    }

    fn put(&mut self, piece: Piece) -> Result<(), h2::Error> {
        self.send_data(piece, false)
    }

    fn give_up(&mut self, reason: Reason) {
        self.send_reset(reason);
    }
}

/// A large response, encoded as the client makes room for it. Sent bytes are released.
pub(crate) async fn send_large(
    mut large: Large,
    mut hold: Hold,
    stream: &mut impl Outlet,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    let (held, taken_before) = (hold.bytes(), hold.taken());
    let mut pace = Pace::of_answers();
    let mut sent = 0;
    loop {
        let taken = || hold.taken() - taken_before;
        let room = room_for(large.len.saturating_sub(sent).max(1), stream, &mut pace, taken, out).await?;
        let bytes = (large.write)(room);
        if bytes.is_empty() {
            return Ok(());
        }
        sent += bytes.len();
        out.counters.sent_bytes.add(bytes.len() as u64);
        // Each byte of the message carries its proportional part of the hold.
        let part = u128::from(held) * bytes.len() as u128 / large.len.max(1) as u128;
        let part = hold.split(u64::try_from(part).unwrap_or(u64::MAX));
        stream.put(Piece::new(bytes, part))?;
        out.piece.set(true);
    }
}

/// Piece by piece, as the client makes room for it.
async fn send_as_room_comes(
    mut bytes: Bytes,
    hold: &mut Hold,
    stream: &mut SendStream<Piece>,
    (pace, taken): (&mut Pace, &mut u64),
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    out.counters.sent_bytes.add(bytes.len() as u64);
    while !bytes.is_empty() {
        let room = room_for(bytes.len(), stream, pace, || *taken, out).await?.min(bytes.len());
        *taken += room as u64;
        // The call's hold stays with the call.
        stream.send_data(Piece::new(bytes.split_to(room), hold.split(0)), false)?;
        out.piece.set(true);
    }
    Ok(())
}

/// Waits until the client makes room for some of `wanted` bytes. If it makes none for longer than it may, having taken
/// so many bytes in all, its stream is reset.
async fn room_for(
    wanted: usize,
    stream: &mut impl Outlet,
    pace: &mut Pace,
    taken: impl Fn() -> u64,
    out: &Out<'_>,
) -> Result<usize, h2::Error> {
    match stream.room(wanted) {
        0 => {}
        room => return Ok(room.min(wanted)),
    }
    let mut room = pin!(poll_fn(|context| stream.poll_room(context)));
    let at_once = poll_fn(|context| Poll::Ready(room.as_mut().poll(context))).await;
    if let Poll::Ready(room) = at_once {
        return room.ok_or(Reason::CANCEL)?;
    }
    let begun = Instant::now();
    loop {
        let patience = pace.patience(taken(), out.stall);
        if let Ok(room) = timeout_at(begun + patience, room.as_mut()).await {
            pace.waited(begun.elapsed());
            return room.ok_or(Reason::CANCEL)?;
        }
        // Bytes taken meanwhile may have earned more time.
        if pace.patience(taken(), out.stall) <= patience {
            match patience < out.stall {
                true => out.counters.answers_slow.add(1),
                false => out.counters.answers_stalled.add(1),
            }
            break;
        }
    }
    stream.give_up(Reason::ENHANCE_YOUR_CALM);
    Err(Reason::ENHANCE_YOUR_CALM.into())
}

/// Messages as they come, each taken only when the one before it has found room in the client's window. A client that
/// is too slow loses the call: the sender of the messages finds the channel closed, and releases its source.
async fn send_stream(
    mut messages: mpsc::Receiver<Result<Bytes, Status>>,
    hold: &mut Hold,
    mut stream: SendStream<Piece>,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    let (mut pace, mut taken) = (Pace::of_stream(), 0);
    loop {
        match poll_unless_reset(&mut stream, pin!(messages.recv())).await {
            Some(Some(Ok(bytes))) => {
                send_as_room_comes(bytes, hold, &mut stream, (&mut pace, &mut taken), out).await?;
            }
            Some(Some(Err(status))) => return stream.send_trailers(error_trailers(&status)),
            Some(None) => return stream.send_trailers(ok_trailers()),
            None => return Ok(()),
        }
    }
}

/// The body of one request; reading it opens the window for more.
pub(crate) struct CallBody(RecvStream);

impl Body for CallBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.0.poll_data(context)) {
            Some(Ok(data)) => {
                // Fails only on a stream that is gone, whose window is of no use.
                let _ = self.0.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            // The client needs no more and closed its half early: not an error of the request.
            Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
