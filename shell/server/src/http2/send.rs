//! A response on its way to the client: at once, as a head that is held until it has left, or as the client makes room.
//!
//! Knows nothing of: requests, connections.

use crate::body::{FaceBody, Large, Piece, error_trailers, ok_trailers};
use crate::budget::{CALL_BYTES, Hold};
use crate::counters::Counters;
use crate::encode::PIECE_BYTES;
use crate::errors;
use crate::grpc;
use crate::patience::Pace;
use crate::unsent::Unsent;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::Response;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// The refusal of a call for which there is no memory, in the form of any other limit's refusal.
pub(super) fn no_room() -> Response<()> {
    grpc::refuse(errors::too_much_held(TOO_MANY_CALLS)).map(drop)
}

const TOO_MANY_CALLS: &str =
    "too many calls wait for this server, or for their clients to read; send fewer at once, or retry later";

/// The sending side of one connection, shared by its calls.
pub(crate) struct Out<'a> {
    pub counters: &'a Counters,
    /// How long a response waits while its client reads nothing of it.
    pub(super) stall: Duration,
    /// A response, or a piece of one, has been queued by a call that goes on.
    pub(super) piece: Cell<bool>,
    /// Calls with a response whose body is not completely sent.
    pub(super) answering: Cell<u64>,
    /// Responses that are a head and are not sent yet.
    pub unsent: Rc<Unsent>,
    /// Refusals among them for lack of memory.
    pub(super) refused: Cell<u32>,
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

pub(super) async fn send(
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
pub(super) async fn send_head(
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
