//! One hot call, from its whole request to the last part of its response.
//!
//! Knows nothing of: frames, windows' sums.

use crate::body::{FaceBody, Piece};
use crate::budget::{CALL_BYTES, Hold};
use crate::grpc;
use crate::hot::input::Call;
use crate::hot::line::Split;
use crate::hot::part::{Lead, Part, block};
use crate::hot::stream::Stream;
use crate::http2::send::{Answering, Out, Outlet, send_large};
use crate::rpc::Rpc;
use bytes::Bytes;
use h2::Reason;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;

/// Answers one call. A reset by the client ends the work on it.
pub(crate) async fn answer<S, W, F>(whole: &W, split: &Split<S>, out: &Out<'_>, call: Call)
where
    S: AsyncRead + AsyncWrite + Unpin,
    W: Fn(Rpc, Bytes, Hold) -> F,
    F: Future<Output = (Result<FaceBody, Status>, Hold)>,
{
    let Call { stream: number, rpc, message, hold } = call;
    let Some(stream) = split.stream(number) else { return };
    let mut answer = pin!(whole(rpc, message, hold));
    let answered = poll_fn(|context| {
        if stream.is_reset.get() {
            return Poll::Ready(None);
        }
        let answered = answer.as_mut().poll(context);
        if answered.is_pending() {
            wait(&stream, context);
        }
        answered.map(Some)
    })
    .await;
    let Some((answered, mut hold)) = answered else { return };
    hold.answers();
    match answered {
        Ok(FaceBody::Message(bytes)) => {
            out.counters.sent_bytes.add(bytes.len() as u64);
            let data = Some(Piece::new(bytes, hold));
            split.push(number, Part { lead: Lead::Head, data, ends: true });
        }
        Ok(FaceBody::Large(large)) => {
            let _answering = Answering::new(out);
            split.push(number, Part { lead: Lead::Head, data: None, ends: false });
            let mut outlet = HotOutlet { split, number, stream };
            // An error here means that the client or the connection has gone, so it cannot be reported.
            if send_large(large, hold, &mut outlet, out).await.is_ok() {
                split.push(number, Part { lead: Lead::Nothing, data: None, ends: true });
            }
        }
        Ok(other) => unreachable!("a range or a put is answered with a message, not {other:?}"),
        Err(status) => {
            // All else that the call held is released.
            drop(hold.split(hold.bytes().saturating_sub(CALL_BYTES)));
            let (head, _) = grpc::refuse(status).into_parts();
            let place = out.unsent.add(number, hold);
            let lead = Lead::Only(block(&head.headers));
            split.push(number, Part { lead, data: None, ends: false });
            poll_fn(|context| {
                let left = place.poll_left(context);
                if left.is_pending() && stream.is_reset.get() {
                    return Poll::Ready(());
                }
                if left.is_pending() {
                    wait(&stream, context);
                }
                left
            })
            .await;
        }
    }
}

/// The stream wakes this task from now on.
fn wait(stream: &Stream, context: &Context<'_>) {
    match &mut *stream.waker.borrow_mut() {
        Some(waker) => waker.clone_from(context.waker()),
        none => *none = Some(context.waker().clone()),
    }
}

/// Where a large response goes.
struct HotOutlet<'a, S> {
    split: &'a Split<S>,
    number: u32,
    stream: Rc<Stream>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Outlet for HotOutlet<'_, S> {
    fn room(&mut self, _wanted: usize) -> usize {
        if self.stream.is_reset.get() { 0 } else { self.split.window(&self.stream) }
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<usize, h2::Error>>> {
        if self.stream.is_reset.get() {
            return Poll::Ready(None);
        }
        let room = self.split.window(&self.stream);
        self.stream.is_short.set(room == 0);
        if 0 < room {
            return Poll::Ready(Some(Ok(room)));
        }
        wait(&self.stream, context);
        Poll::Pending
    }

    fn put(&mut self, piece: Piece) -> Result<(), h2::Error> {
        let data = Some(piece);
        self.split.push(self.number, Part { lead: Lead::Nothing, data, ends: false });
        Ok(())
    }

    fn give_up(&mut self, reason: Reason) {
        self.split.reset(self.number, reason);
    }
}
