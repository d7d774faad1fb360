//! One HTTP/2 connection: all its calls in flight, driven by one task.
//!
//! ```text
//!            ┌──────────────────────── one task ────────────────────────┐
//!  socket ─▶ │ frames ─▶ new calls ─▶ calls in flight ─▶ answers queued │ ─▶ socket
//!            └───────▲──────────────────────────────────────┬──────────┘
//!                    └──────────── until nothing moves ──────┘
//! ```
//! Everything that has arrived is taken in before any call is looked at, and everything that was answered goes out in one
//! write: so a busy connection costs one wake-up for many calls, and no call has a task of its own; what is no answer waits a
//! little for one ([`crate::cork`]). A client that asks for much and reads nothing makes us hold what the store shares with everybody, and no copies beyond a limit.
//! Knows nothing of: what calls mean.

use crate::body::{FaceBody, error_trailers, ok_trailers};
use crate::cork::{Cork, Corked, Holder};
use crate::counters::Counters;
use crate::face::FaceConfig;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body, Frame};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tonic::Status;

/// A request of the usual largest size fits in, so that no client has to wait for room in the middle of one.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const HEAD_BYTES_MAX: u32 = 16 << 10;

/// Large answers of one connection that are written out at a time, in KiB; the others wait as what the store found.
const LARGE_KIB_MAX: usize = 64 << 10;

/// Streams that a client may open and reset before we have looked at them; a client that cancels a whole burst is
/// normal, an endless flood is not.
const RESET_STREAMS_MAX: usize = 4096;

/// Serves one connection until it ends. Once `stop` turns true it takes no new calls and ends after those in flight.
///
/// # Errors
/// What broke the connection.
pub async fn serve<A, F>(
    stream: TcpStream,
    config: &FaceConfig,
    mut stop: watch::Receiver<bool>,
    answer: A,
) -> Result<(), h2::Error>
where
    A: Fn(Request<CallBody>) -> F,
    F: Future<Output = Response<FaceBody>>,
{
    let cork = Arc::new(Cork::default());
    let mut connection: Connection<Corked<TcpStream>, Bytes> = Builder::new()
        .max_concurrent_streams(config.max_concurrent_streams)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(Some(RESET_STREAMS_MAX))
        .handshake(Corked::new(stream, Arc::clone(&cork)))
        .await?;
    let out = Out {
        room: Semaphore::new(LARGE_KIB_MAX),
        counters: &config.counters,
        piece: AtomicBool::new(false),
    };
    let mut cork = Holder::new(cork);
    let mut calls = FuturesUnordered::new();
    let mut stopping = pin!(stop.wait_for(|stop| *stop));
    let mut stopped = false;
    poll_fn(|context| {
        if !stopped && stopping.as_mut().poll(context).is_ready() {
            connection.graceful_shutdown();
            stopped = true;
        }
        cork.hold();
        loop {
            while let Poll::Ready(accepted) = connection.poll_accept(context) {
                let Some(accepted) = accepted else { return Poll::Ready(Ok(())) };
                let (request, respond) = accepted?;
                calls.push(call(&answer, &out, request, respond));
            }
            let mut moved = false;
            while let Poll::Ready(Some(())) = calls.poll_next_unpin(context) {
                moved = true;
            }
            if moved || out.piece.swap(false, Relaxed) || cork.is_due(!calls.is_empty(), context) {
                cork.release();
            } else {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// The way out of one connection, shared by its calls.
struct Out<'a> {
    /// KiB of large answers that may be written out.
    room: Semaphore,
    counters: &'a Counters,
    /// A piece of an answer that goes on has been queued.
    piece: AtomicBool,
}

/// One call from its request to the last byte of its answer. A client that resets it is not worked for any longer.
async fn call<A, F>(answer: &A, out: &Out<'_>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>)
where
    A: Fn(Request<CallBody>) -> F,
    F: Future<Output = Response<FaceBody>>,
{
    let mut answer = pin!(answer(request.map(CallBody)));
    let answered = poll_fn(|context| {
        if let Poll::Ready(response) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(response));
        }
        respond.poll_reset(context).map(|_| None)
    })
    .await;
    let Some(response) = answered else { return };
    // An error here means that the client or the connection has gone; there is nobody left to tell.
    let _ = send(response, respond, out).await;
}

async fn send(
    response: Response<FaceBody>,
    mut respond: SendResponse<Bytes>,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    let (head, body) = response.into_parts();
    let head = Response::from_parts(head, ());
    match body {
        FaceBody::Empty => respond.send_response(head, true).map(|_| ()),
        FaceBody::Page(bytes) => respond.send_response(head, false)?.send_data(bytes, true),
        FaceBody::Message(bytes) => {
            let mut stream = respond.send_response(head, false)?;
            out.counters.sent_bytes.add(bytes.len() as u64);
            stream.send_data(bytes, false)?;
            stream.send_trailers(ok_trailers())
        }
        FaceBody::Large(large) => {
            let kib = u32::try_from(large.len.div_ceil(1024).min(LARGE_KIB_MAX)).expect("within the limit");
            let mut stream = respond.send_response(head, false)?;
            let held = poll_unless_reset(&mut stream, pin!(out.room.acquire_many(kib))).await;
            let _held = held.ok_or(Reason::CANCEL)?;
            send_as_room_comes((large.write)(), &mut stream, out).await?;
            stream.send_trailers(ok_trailers())
        }
        FaceBody::Trailers => respond.send_response(head, false)?.send_trailers(ok_trailers()),
        FaceBody::Stream(messages) => send_stream(messages, respond.send_response(head, false)?, out).await,
    }
}

/// What the future gives, or nothing once the client has reset the stream.
async fn poll_unless_reset<T>(
    stream: &mut SendStream<Bytes>,
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => stream.poll_reset(context).map(|_| None),
    })
    .await
}

/// Piece by piece, as the client makes room for it.
async fn send_as_room_comes(
    mut bytes: Bytes,
    stream: &mut SendStream<Bytes>,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    out.counters.sent_bytes.add(bytes.len() as u64);
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|context| stream.poll_capacity(context)).await;
        let room = room.ok_or(Reason::CANCEL)??;
        stream.send_data(bytes.split_to(room.min(bytes.len())), false)?;
        out.piece.store(true, Relaxed);
    }
    Ok(())
}

/// Messages as they come, each taken only when the one before it has found room in the client's window.
async fn send_stream(
    mut messages: mpsc::Receiver<Result<Bytes, Status>>,
    mut stream: SendStream<Bytes>,
    out: &Out<'_>,
) -> Result<(), h2::Error> {
    loop {
        match poll_unless_reset(&mut stream, pin!(messages.recv())).await {
            Some(Some(Ok(bytes))) => send_as_room_comes(bytes, &mut stream, out).await?,
            Some(Some(Err(status))) => return stream.send_trailers(error_trailers(&status)),
            Some(None) => return stream.send_trailers(ok_trailers()),
            None => return Ok(()),
        }
    }
}

/// The body of one request; what was read makes room for more.
pub struct CallBody(RecvStream);

impl Body for CallBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.0.poll_data(context)) {
            Some(Ok(data)) => {
                // Fails only on a stream that is gone, whose room nobody needs.
                let _ = self.0.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            // The client has all it wants and hung up its half early: not an error of the request.
            Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
