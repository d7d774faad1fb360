//! The little of gRPC that a unary call needs: one message out of a request body, one answer around a message.
//!
//! ```text
//!  0        1              5
//!  ├ packed ┼ length (be) ─┼ message ──────┤
//! ```
//!
//! Written out here instead of through a framework's layers, because this is the largest cost of a request
//! (docs/performance.md). Texts of refusals are grpc-go's, which etcd's clients know.
//! Knows nothing of: what messages mean.

use crate::body::FaceBody;
use crate::encode::PREFIX_LEN;
use crate::errors;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use prost::Message;
use tonic::Status;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Whether the request means gRPC.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// What etcd reads from a call's metadata before it looks at the call. [etcd v3rpc/interceptor.go]
///
/// # Errors
/// A client API version that is not text; a caller who wants a leader when there is none.
pub fn check_metadata(headers: &HeaderMap, has_leader: impl FnOnce() -> bool) -> Result<(), Status> {
    if let Some(version) = headers.get("client-api-version")
        && std::str::from_utf8(version.as_bytes()).is_err()
    {
        return Err(errors::INVALID_CLIENT_API_VERSION.into());
    }
    if let Some(wanted) = headers.get("hasleader")
        && wanted.as_bytes() == b"true"
        && !has_leader()
    {
        return Err(errors::NO_LEADER.into());
    }
    Ok(())
}

/// The one message of a unary call. Comes back when the client has said that nothing follows.
///
/// # Errors
/// A message larger than `len_max`, a packed one, a body that breaks off or holds more or less than one message.
pub async fn read_message<B>(mut body: B, len_max: usize) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    // Nearly always the whole body is the first frame, and is passed on without a copy.
    let mut whole = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::cancelled(format!("the request broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.is_empty() && joined.is_empty() {
            check_prefix(&data, len_max)?;
            whole = data;
        } else {
            if joined.is_empty() {
                joined.reserve(announced_len(&whole).unwrap_or(0).min(len_max) + PREFIX_LEN);
                joined.extend_from_slice(&whole);
            }
            joined.extend_from_slice(&data);
            check_prefix(&joined, len_max)?;
        }
        if body.is_end_stream() {
            break;
        }
    }
    let mut message = if joined.is_empty() { whole } else { joined.freeze() };
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

/// Bytes of the message, as its prefix announces them; none while the prefix is incomplete.
fn announced_len(bytes: &[u8]) -> Option<usize> {
    let prefix = bytes.first_chunk::<PREFIX_LEN>()?;
    Some(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize)
}

/// Judges the prefix as soon as it is there, and that no more follows than it announces, so that nobody makes us hold
/// more than one message.
fn check_prefix(bytes: &[u8], len_max: usize) -> Result<(), Status> {
    let Some(len) = announced_len(bytes) else { return Ok(()) };
    if bytes[0] != 0 {
        return Err(Status::unimplemented("grpc: Decompressor is not installed for grpc-encoding"));
    }
    if len_max < len {
        return Err(Status::resource_exhausted(format!(
            "grpc: received message larger than max ({len} vs. {len_max})"
        )));
    }
    if PREFIX_LEN + len < bytes.len() {
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

/// The answer that says yes, with its body.
#[must_use]
pub fn reply(body: FaceBody) -> Response<FaceBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    response
}

/// The answer that says no.
#[must_use]
pub fn refuse(status: Status) -> Response<FaceBody> {
    status.into_http()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use tonic::Code;

    fn body(chunks: &[&[u8]]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames: Vec<_> = chunks.iter().map(|c| Ok(Frame::data(Bytes::copy_from_slice(c)))).collect();
        StreamBody::new(tokio_stream::iter(frames))
    }

    async fn read(chunks: &[&[u8]], len_max: usize) -> Result<Vec<u8>, Code> {
        read_message(body(chunks), len_max).await.map(|m| m.to_vec()).map_err(|s| s.code())
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
