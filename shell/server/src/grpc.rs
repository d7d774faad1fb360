//! The part of gRPC that a unary call needs: one message out of a request body, one response around a message.
//!
//! ```text
//!  0        1              5
//!  ├ packed ┼ length (be) ─┼ message ──────┤
//! ```
//!
//! Written out here instead of through a framework's layers, because this is the largest cost of a request
//! (docs/performance.md). Texts of refusals are grpc-go's, which etcd's clients know.
//! Knows nothing of: the meaning of messages.

use crate::body::FaceBody;
use crate::budget::Hold;
use crate::encode::PREFIX_LEN;
use crate::errors;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use prost::Message;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

static CLIENT_API_VERSION: HeaderName = HeaderName::from_static("client-api-version");
static HAS_LEADER: HeaderName = HeaderName::from_static("hasleader");

/// Whether the request is one of gRPC.
#[must_use]
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Checks a call's metadata as etcd does before the call. [etcd v3rpc/interceptor.go]
///
/// # Errors
/// A client API version that is not text; a caller that requires a leader when there is none.
pub(crate) fn check_metadata(headers: &HeaderMap, has_leader: impl FnOnce() -> bool) -> Result<(), Status> {
    if let Some(version) = headers.get(&CLIENT_API_VERSION)
        && std::str::from_utf8(version.as_bytes()).is_err()
    {
        return Err(errors::INVALID_CLIENT_API_VERSION.into());
    }
    if let Some(wanted) = headers.get(&HAS_LEADER)
        && wanted.as_bytes() == b"true"
        && !has_leader()
    {
        return Err(errors::NO_LEADER.into());
    }
    Ok(())
}

/// Limits of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// Longest message, in bytes.
    pub len_max: usize,
    /// How long a body may take, whatever its size.
    pub patience: Duration,
    /// … and how many bytes of its announced length add a second.
    pub bytes_per_s: usize,
}

impl BodyLimits {
    fn patience_for(&self, len: usize) -> Duration {
        let for_its_size = len.min(self.len_max) as f64 / self.bytes_per_s as f64;
        self.patience + Duration::from_secs_f64(for_its_size)
    }
}

/// A message in parts is gathered in blocks of this many bytes, so that it never holds much more than has come.
const BLOCK_BYTES: usize = 64 << 10;

/// The one message of a unary call. Returns when the client has ended its stream. Received bytes are held; a body that
/// is not complete in time, or whose hold is refused, is given up.
///
/// # Errors
/// A message that is too large, a compressed one, a body that breaks off or takes too long, or holds more or less than
/// one message; too much held already.
pub(crate) async fn read_message<B>(body: B, limits: BodyLimits, hold: &mut Hold) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let announced = Cell::new(0);
    let mut reading = pin!(read_frames(body, limits.len_max, hold, &announced));
    // Nearly always everything is there already, and the clock is not read.
    if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await {
        return read;
    }
    let begun = Instant::now();
    loop {
        let patience = limits.patience_for(announced.get());
        match timeout_at(begun + patience, reading.as_mut()).await {
            Ok(read) => return read,
            Err(_) if patience < limits.patience_for(announced.get()) => {} // its length has been announced meanwhile
            Err(_) => {
                let seconds = patience.as_secs_f64();
                let what = format!("the request was not complete within {seconds:.0} s");
                return Err(Status::cancelled(what));
            }
        }
    }
}

async fn read_frames<B>(
    mut body: B,
    len_max: usize,
    hold: &mut Hold,
    announced: &Cell<usize>,
) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    // Nearly always the whole body is the first frame, and is passed on without a copy.
    let mut whole = Bytes::new();
    let mut parts = Parts::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error = error.to_string();
            Status::cancelled(format!("the request broke off: {}", errors::begin_of(&error)))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if parts.len == 0 && whole.is_empty() {
            check_prefix(&data, len_max)?;
            announced.set(announced_len(&data).unwrap_or(0));
            if body.is_end_stream() || data.len() == PREFIX_LEN + announced.get() {
                if !hold.resize(data.len() as u64) {
                    return Err(errors::too_much_held(TOO_MUCH_SENT));
                }
                whole = data;
                if body.is_end_stream() {
                    break;
                }
                continue;
            }
        }
        if !whole.is_empty() && !data.is_empty() {
            return Err(Status::internal("the request holds more than one message"));
        }
        parts.add(&data, hold)?;
        if announced.get() == 0 {
            announced.set(announced_len(&parts.begin).unwrap_or(0));
        }
        check_prefix_of(&parts.begin, parts.len, len_max)?;
        hold.expect((PREFIX_LEN + announced.get()).saturating_sub(parts.len) as u64);
        if body.is_end_stream() {
            break;
        }
    }
    hold.expect(0);
    let mut message = if parts.len == 0 { whole } else { parts.joined() };
    match announced_len(&message) {
        Some(len) if message.len() == PREFIX_LEN + len => {
            message.advance(PREFIX_LEN);
            Ok(message)
        }
        Some(len) if message.len() < PREFIX_LEN + len => Err(Status::internal(format!(
            "the request ends after {} of {len} bytes of its message",
            message.len() - PREFIX_LEN
        ))),
        Some(_) => Err(Status::internal("the request holds more than one message")),
        None => Err(Status::internal("the request holds no message")),
    }
}

/// A message in parts, as far as it was received.
#[derive(Default)]
struct Parts {
    /// Its first bytes: the prefix, as far as it was received.
    begin: Vec<u8>,
    blocks: Vec<BytesMut>,
    len: usize,
}

impl Parts {
    /// Copies the bytes: a part of a message must not keep the buffer that it came in.
    fn add(&mut self, mut data: &[u8], hold: &mut Hold) -> Result<(), Status> {
        let more = (PREFIX_LEN - self.begin.len()).min(data.len());
        self.begin.extend_from_slice(&data[..more]);
        while !data.is_empty() {
            if self.blocks.last().is_none_or(|block| block.len() == block.capacity()) {
                if !hold.resize(((self.blocks.len() + 1) * BLOCK_BYTES) as u64) {
                    return Err(errors::too_much_held(TOO_MUCH_SENT));
                }
                self.blocks.push(BytesMut::with_capacity(BLOCK_BYTES));
            }
            let block = self.blocks.last_mut().expect("just seen to");
            let count = (block.capacity() - block.len()).min(data.len());
            block.extend_from_slice(&data[..count]);
            self.len += count;
            data = &data[count..];
        }
        Ok(())
    }

    fn joined(mut self) -> Bytes {
        if let [_] = &self.blocks[..] {
            return self.blocks.remove(0).freeze();
        }
        let mut joined = BytesMut::with_capacity(self.len);
        for block in self.blocks {
            joined.extend_from_slice(&block);
        }
        joined.freeze()
    }
}

const TOO_MUCH_SENT: &str =
    "too many bytes of requests are under way (--client-memory-bytes); send less at once, or retry later";

/// Bytes of the message, as its prefix announces them; none while the prefix is incomplete.
fn announced_len(bytes: &[u8]) -> Option<usize> {
    let prefix = bytes.first_chunk::<PREFIX_LEN>()?;
    Some(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize)
}

/// Checks the prefix as soon as it is complete, and that no more follows than it announces, so that a client cannot
/// make the server hold more than one message.
fn check_prefix(bytes: &[u8], len_max: usize) -> Result<(), Status> {
    check_prefix_of(bytes, bytes.len(), len_max)
}

/// The same for a body of which `total` bytes have come, and these are the first.
fn check_prefix_of(bytes: &[u8], total: usize, len_max: usize) -> Result<(), Status> {
    let Some(len) = announced_len(bytes) else { return Ok(()) };
    if bytes[0] != 0 {
        return Err(Status::unimplemented("grpc: Decompressor is not installed for grpc-encoding"));
    }
    if len_max < len {
        return Err(Status::resource_exhausted(format!(
            "grpc: received message larger than max ({len} vs. {len_max})"
        )));
    }
    if PREFIX_LEN + len < total {
        return Err(Status::internal("the request holds more than one message"));
    }
    Ok(())
}

/// A message's bytes as the message.
///
/// # Errors
/// If they are not protobuf, or nest too deep.
pub fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes)
        .map_err(|error| Status::internal(format!("grpc: failed to unmarshal the received message: {error}")))
}

/// The response of a call that succeeded, with its body.
#[must_use]
pub fn reply(body: FaceBody) -> Response<FaceBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    response
}

/// The response of a call that failed.
#[must_use]
pub fn refuse(status: Status) -> Response<FaceBody> {
    status.into_http()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Account, Budget, CALL_BYTES};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use std::sync::Arc;
    use tonic::Code;

    fn body(chunks: &[&[u8]]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames: Vec<_> = chunks.iter().map(|c| Ok(Frame::data(Bytes::copy_from_slice(c)))).collect();
        StreamBody::new(tokio_stream::iter(frames))
    }

    fn limits(len_max: usize) -> BodyLimits {
        BodyLimits { len_max, patience: Duration::from_secs(5), bytes_per_s: 1 << 16 }
    }

    fn hold() -> Hold {
        Hold::take(&Account::new(&Arc::new(Budget::of(3 << 20))), CALL_BYTES).expect("nothing is held")
    }

    async fn read(chunks: &[&[u8]], len_max: usize) -> Result<Vec<u8>, Code> {
        read_message(body(chunks), limits(len_max), &mut hold())
            .await
            .map(|m| m.to_vec())
            .map_err(|s| s.code())
    }

    #[tokio::test]
    async fn a_message_arrives_whole_however_it_is_cut() {
        let whole = [0, 0, 0, 0, 3, 7, 8, 9];
        for cut in 0..=whole.len() {
            for second in cut..=whole.len() {
                let chunks = [&whole[..cut], &whole[cut..second], &whole[second..]];
                assert_eq!(read(&chunks, 3).await, Ok(vec![7, 8, 9]), "cut at {cut} and {second}");
            }
        }
        assert_eq!(read(&[&[0, 0, 0, 0, 0]], 3).await, Ok(vec![]), "an empty message is one");
    }

    #[tokio::test]
    async fn what_is_not_exactly_one_message_is_refused() {
        assert_eq!(read(&[], 9).await, Err(Code::Internal));
        assert_eq!(read(&[&[0, 0, 0]], 9).await, Err(Code::Internal));
        assert_eq!(read(&[&[0, 0, 0, 0, 3, 7]], 9).await, Err(Code::Internal));
        assert_eq!(read(&[&[0, 0, 0, 0, 1, 7, 8]], 9).await, Err(Code::Internal));
        assert_eq!(read(&[&[1, 0, 0, 0, 1, 7]], 9).await, Err(Code::Unimplemented));
    }

    #[tokio::test]
    async fn the_limit_is_judged_by_the_prefix_before_the_message_is_there() {
        assert_eq!(read(&[&[0, 0, 0, 0, 9]], 9).await, Err(Code::Internal), "at the limit, and cut off");
        assert_eq!(read(&[&[0, 0, 0, 0, 10]], 9).await, Err(Code::ResourceExhausted));
        assert_eq!(read(&[&[0, 0xff], &[0xff, 0xff, 0xff]], 9).await, Err(Code::ResourceExhausted));
    }

    /// Received bytes are held, no more than announced, and a message whose hold is refused is refused.
    #[tokio::test]
    async fn a_message_is_held_as_it_grows_up_to_the_limit_and_not_a_byte_beyond() {
        let mut message = vec![0, 0, 15, 255, 251]; // with its prefix, a mebibyte
        message.resize(1 << 20, 7);
        let chunks: Vec<&[u8]> = message.chunks(16 << 10).collect();
        let mut hold = hold();
        let read =
            read_message(body(&chunks), limits(1 << 20), &mut hold).await.expect("a third of the budget");
        assert_eq!((read.len(), hold.bytes()), ((1 << 20) - PREFIX_LEN, 1 << 20));
        assert!(read.iter().all(|byte| *byte == 7));

        let mut longer = vec![0, 0, 15, 255, 252];
        longer.resize((1 << 20) + 1, 7);
        let chunks: Vec<&[u8]> = longer.chunks(16 << 10).collect();
        let mut hold = self::hold();
        let refused = read_message(body(&chunks), limits(2 << 20), &mut hold).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::ResourceExhausted, "etcdserver: too many requests")
        );
        assert!(refused.metadata().get(errors::REASON).is_some());
    }

    #[tokio::test]
    async fn a_body_that_never_ends_is_given_up_later_the_more_it_announces() {
        let limits =
            BodyLimits { patience: Duration::from_millis(30), bytes_per_s: 2 << 20, ..limits(1 << 20) };
        for (first, millis) in [(&[][..], 30), (&[0, 0, 3][..], 30), (&[0, 0, 4, 0, 0, 7][..], 155)] {
            let frame = Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(first)));
            let silence = tokio_stream::pending();
            let frames = tokio_stream::StreamExt::chain(tokio_stream::once(frame), silence);
            let begun = Instant::now();
            let refused = read_message(StreamBody::new(frames), limits, &mut hold()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Cancelled);
            assert!(Duration::from_millis(millis) <= begun.elapsed(), "{first:?}");
        }
    }

    #[test]
    fn metadata_is_judged_as_etcd_judges_it() {
        let mut headers = HeaderMap::new();
        assert!(check_metadata(&headers, || false).is_ok());
        headers.insert("hasleader", HeaderValue::from_static("true"));
        assert!(check_metadata(&headers, || true).is_ok());
        let refused = check_metadata(&headers, || false).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "etcdserver: no leader"));
        headers.insert("client-api-version", HeaderValue::from_bytes(b"3.7\xff").unwrap());
        let refused = check_metadata(&headers, || true).unwrap_err();
        assert_eq!(refused.message(), "etcdserver: invalid client api version");
        headers.insert("client-api-version", HeaderValue::from_static("3.7"));
        assert!(check_metadata(&headers, || true).is_ok());
    }
}
