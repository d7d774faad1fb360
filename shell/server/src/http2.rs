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

pub(crate) mod send;

use self::send::{Out, no_room, send, send_head};
use crate::ahead::Ahead;
use crate::bell::Bell;
use crate::body::{FaceBody, Piece};
use crate::budget::{Account, CALL_BYTES, Hold, Waiting};
use crate::cork::{Cork, Corked, Holder};
use crate::face::FaceConfig;
use crate::gather::Gathering;
use crate::hot::call as hot;
use crate::hot::line::Split;
use crate::patience::{Enough, Patience};
use crate::rpc::Rpc;
use crate::streams::{Highest, Limited, StreamsMax};
use crate::unsent::Unsent;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use http_body::{Body, Frame};
use kattu_tls::Socket;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
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

/// Serves one connection until it ends. `whole` answers hot calls, if there are any here. Once `stop` turns true it takes
/// no new calls and ends after those in flight.
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
            let asks_library =
                (hot_moved || split.is_held_up()) && cork.is_wanted() || hot_moved && split.is_shutting();
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
