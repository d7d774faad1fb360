//! The judge of input: what hot calls and the library get, beside what the library alone makes of the same bytes.
//!
//! In:    bytes of a client behind its preface.
//! Rules: 1. However the bytes are cut, they lead to the same.
//!        2. Without hot calls, the library answers what is passed on as it answers the original.
//!        3. A hot call is one that the library would have seen, with the same path and message; and it sees all others.
//! Knows nothing of: sockets of the system, output.
//!
//! Part of tests and of the fuzzer only.

use crate::budget::{Account, Budget};
use crate::encode::PREFIX_LEN;
use crate::frames::{DATA, END_HEADERS, Frames, HEADERS};
use crate::hot::input::{END_STREAM, Input, PUSH_PROMISE, RST_STREAM};
use crate::http2::HEAD_BYTES_MAX;
use crate::listen::PREFACE;
use crate::rpc::Rpc;
use crate::streams::GOAWAY;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::Request;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// More than the calls of any input.
const STREAMS_MAX: u32 = 100_000;
const BUDGET_BYTES: u64 = 1 << 30;

/// What became of some input.
#[derive(Debug, PartialEq)]
struct Taken {
    /// Part of a frame, of a head or of a call waits for its rest.
    is_incomplete: bool,
    cold: Vec<u8>,
    begun: Vec<(u32, Rpc, Bytes)>,
    fault: Option<h2::Reason>,
    owed: usize,
    open: i64,
    under_way: usize,
}

fn take<'a>(parts: impl Iterator<Item = &'a [u8]>, is_off: bool) -> Taken {
    let mut input = Input::new(&Account::new(&Arc::new(Budget::of(BUDGET_BYTES))), is_off);
    input.room = STREAMS_MAX as usize;
    let mut cold = Vec::new();
    let mut go_on = |input: &mut Input| {
        loop {
            cold.extend_from_slice(input.cold.bytes());
            input.cold.clear();
            if !input.is_stopped() {
                return;
            }
            input.take(&[]);
        }
    };
    for part in parts {
        input.take(part);
        go_on(&mut input);
    }
    input.settle();
    go_on(&mut input);
    Taken {
        is_incomplete: input.is_incomplete(),
        cold,
        begun: input.begun.drain(..).map(|call| (call.stream, call.rpc, call.message)).collect(),
        fault: input.fault,
        owed: input.owed,
        open: input.windows.open(),
        under_way: input.streams.len(),
    }
}

/// A call as the library saw it.
#[derive(Debug, PartialEq)]
struct Call {
    method: String,
    uri: String,
    /// In the order of their names.
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// The body came to its end.
    is_whole: bool,
}

/// What the library made of some input.
#[derive(Debug, PartialEq)]
struct Seen {
    calls: BTreeMap<u32, Call>,
    /// It ended the connection.
    is_ended: bool,
    said: Vec<u8>,
}

/// A client that has sent some bytes, and reads all that it is told.
struct Client {
    bytes: Bytes,
    said: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Pending;
        }
        let len = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.bytes.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.said.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What the library makes of these bytes, which nothing follows.
fn library(bytes: &[u8]) -> Seen {
    let said = Rc::default();
    let client = Client { bytes: [&PREFACE[..], bytes].concat().into(), said: Rc::clone(&said) };
    let context = &mut Context::from_waker(Waker::noop());
    let mut handshake = pin!(
        Builder::new()
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .data_frame_budget(8 << 20)
            .max_pending_accept_reset_streams(STREAMS_MAX as usize)
            .max_local_error_reset_streams(None)
            .handshake::<_, Bytes>(client)
    );
    let mut seen = Seen { calls: BTreeMap::new(), is_ended: false, said: Vec::new() };
    let mut open = Vec::new();
    let connection = handshake.as_mut().poll(context);
    let Poll::Ready(Ok(mut connection)) = connection else {
        seen.is_ended = connection.is_ready();
        return seen;
    };
    loop {
        match connection.poll_accept(context) {
            Poll::Pending => break,
            Poll::Ready(Some(Ok((request, respond)))) => open.push((request, respond)),
            Poll::Ready(Some(Err(_)) | None) => {
                seen.is_ended = true;
                break;
            }
        }
    }
    for (request, respond) in &mut open {
        seen.calls.insert(respond.stream_id().as_u32(), seen_call(request, respond, context));
    }
    seen.said = said.take();
    seen
}

fn seen_call(
    request: &mut Request<RecvStream>,
    _respond: &mut SendResponse<Bytes>,
    context: &mut Context<'_>,
) -> Call {
    let mut fields: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_string(), value.as_bytes().to_vec()))
        .collect();
    fields.sort_by(|one, other| one.0.cmp(&other.0)); // values of one name keep their order
    let (method, uri) = (request.method().to_string(), request.uri().to_string());
    let (mut body, mut is_whole) = (Vec::new(), false);
    while let Poll::Ready(part) = request.body_mut().poll_data(context) {
        match part {
            Some(Ok(part)) => body.extend_from_slice(&part),
            Some(Err(_)) => break,
            None => {
                is_whole = true;
                break;
            }
        }
    }
    Call { method, uri, fields, body, is_whole }
}

/// Judges what becomes of these bytes; of any bytes at all, but of fewer than fill a window.
///
/// # Panics
/// If a rule is broken.
pub fn judge(bytes: &[u8]) {
    let taken = take(std::iter::once(bytes), false);
    for cut in [1, 1 + bytes.first().map_or(7, |byte| usize::from(*byte) % 100)] {
        assert_eq!(take(bytes.chunks(cut), false), taken, "in pieces of {cut}");
    }

    let (alone, off) = (library(bytes), take(std::iter::once(bytes), true));
    assert!(off.begun.is_empty() && off.owed == 0 && off.under_way == 0);
    if off.fault.is_some() {
        // Of two mistakes in one head the library may see the one that costs only its stream. It lets some promises pass,
        // against RFC 9113 §8.4.
        let is_known = alone.is_ended || has(RST_STREAM, &alone.said) || has(PUSH_PROMISE, bytes);
        assert!(is_known, "only here: {:?}", off.fault);
        return;
    }
    let passed = library(&off.cold);
    if alone.is_ended && !passed.is_ended && off.is_incomplete {
        return; // the library may know from the first part that the rest is of no use
    }
    assert_eq!(passed.is_ended, alone.is_ended);
    if alone.is_ended {
        return; // how many calls are accepted before that depends on the library's turns
    }
    assert_eq!(passed.calls, alone.calls);
    // Of a list that is too long, the library need not see all. Of a head that is not whole it alone may say that it is
    // wrong.
    let is_less = off.is_incomplete && alone.said.starts_with(&passed.said);
    assert!(HEAD_BYTES_MAX as usize <= off.cold.len() || passed.said == alone.said || is_less);

    if taken.fault.is_some() {
        return; // of hot streams some errors end the connection that would else end a stream
    }
    let is_reset = has(RST_STREAM, &alone.said);
    let mut alone = alone.calls;
    for (stream, rpc, message) in taken.begun {
        let call = alone.remove(&stream).expect("the library sees it, too");
        let uri: http::Uri = call.uri.parse().expect("it was one");
        assert_eq!((&call.method[..], Rpc::from_path(uri.path())), ("POST", Some(rpc)));
        if call.is_whole {
            let (prefix, body) = call.body.split_at(PREFIX_LEN);
            assert_eq!(prefix, [&[0][..], &(message.len() as u32).to_be_bytes()].concat());
            assert_eq!(body, message);
        }
    }
    let rest = library(&taken.cold);
    if rest.is_ended {
        // A frame for a stream that no head began comes in front of heads that wait: the library knows less of it then.
        // A client that says its last words is told goodbye as soon as the library has no calls; the socket waits for others.
        assert!(is_reset || has(GOAWAY, bytes), "the library alone goes on");
    } else if !taken.is_incomplete {
        assert_eq!(rest.calls, alone);
    }
}

/// Whether one of these frames is of a kind.
fn has(kind: u8, mut bytes: &[u8]) -> bool {
    let mut frames = Frames::after(0);
    std::iter::from_fn(|| frames.next(&mut bytes)).any(|head| head.kind == kind)
}

/// The kinds of frames that there are, heads and data most often. [RFC 9113 §6]
const KINDS: [u8; 16] = [1, 1, 1, 1, 0, 0, 0, 2, 3, 4, 6, 7, 8, 8, 9, 9];

/// Frames whose lengths are right, from any bytes: each begins with one byte for its kind, one for its flags, one for its
/// stream, and one for its length. Most heads are whole, and most data is one message that ends its request.
#[must_use]
pub fn framed(mut input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(([kind, flags, stream, len], rest)) = input.split_first_chunk() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        input = rest;
        let is_usual = kind & 0x80 == 0;
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        let mut payload = payload.to_vec();
        let flags = match kind {
            HEADERS if is_usual => END_HEADERS,
            DATA if is_usual => {
                let len = payload.len() as u32;
                payload.splice(..0, [0].into_iter().chain(len.to_be_bytes()));
                END_STREAM
            }
            _ => *flags,
        };
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, flags, 0, 0, 0, *stream]);
        bytes.extend_from_slice(&payload);
    }
    bytes
}
