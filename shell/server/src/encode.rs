//! Answers as frames of gRPC: one length prefix, one message, one buffer.
//!
//! ```text
//!  0        1              5
//!  ├ packed ┼ length (be) ─┼ message ──────┤      packed is 0: we compress nothing
//! ```
//!
//! The answer to a range read, the largest and hottest of all, is written straight from the store's shared pairs;
//! everything else goes through prost.
//! Knows nothing of: what answers mean.

use bytes::{BufMut, Bytes, BytesMut};
use kattu_kv::api;
use kattu_proto::etcdserverpb as pb;
use prost::Message;
use prost::encoding::{self, WireType, encode_varint, encoded_len_varint};

/// A large answer is written out in pieces of about this size.
pub const PIECE_BYTES: usize = 64 << 10;

/// Length of the prefix in front of each message.
pub const PREFIX_LEN: usize = 5;

/// A message with its prefix.
#[must_use]
pub fn frame(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = start(len);
    message.encode_raw(&mut out);
    finish(out, len)
}

/// The answer to a range read, with its prefix; byte for byte what prost would write. `len` is its [`range_len`].
#[must_use]
pub fn frame_range(header: &pb::ResponseHeader, result: &api::RangeResult, len: usize) -> Bytes {
    let mut out = start(len);
    encoding::message::encode(1, header, &mut out);
    for kv in &result.kvs {
        encoding::encode_key(2, WireType::LengthDelimited, &mut out);
        encode_varint(pair_len(kv) as u64, &mut out);
        put_pair(kv, &mut out);
    }
    if result.more {
        encoding::bool::encode(3, &true, &mut out);
    }
    put_int(4, result.count, &mut out);
    finish(out, len)
}

/// The bytes of [`frame_range`], a piece at a time: what is written is let go of, so that there is never much more than the
/// answer itself.
pub struct RangeWriter {
    header: Option<pb::ResponseHeader>,
    kvs: std::vec::IntoIter<api::KeyValue>,
    more: bool,
    count: i64,
    /// Bytes to write in all, prefix included, and those written.
    len: usize,
    written: usize,
    /// Written, and not yet handed out.
    left: Bytes,
}

impl RangeWriter {
    /// The answer whose message has `len` bytes, by [`range_len`].
    #[must_use]
    pub fn new(header: pb::ResponseHeader, result: api::RangeResult, len: usize) -> RangeWriter {
        let api::RangeResult { kvs, more, count, revision: _ } = result;
        RangeWriter {
            header: Some(header),
            kvs: kvs.into_iter(),
            more,
            count,
            len: PREFIX_LEN + len,
            written: 0,
            left: Bytes::new(),
        }
    }

    /// The next bytes, at most `room`, which is not 0; nothing after the last.
    pub fn next_bytes(&mut self, room: usize) -> Bytes {
        if self.left.is_empty() && self.written < self.len {
            self.left = self.fill(room.min(PIECE_BYTES));
        }
        self.left.split_to(room.min(self.left.len()))
    }

    /// At least so many bytes, unless those are the last.
    fn fill(&mut self, bytes: usize) -> Bytes {
        let mut out = match self.header.take() {
            Some(header) => {
                let mut out = BytesMut::with_capacity(bytes);
                out.put_u8(0);
                let len = self.len - PREFIX_LEN;
                out.put_u32(u32::try_from(len).expect("answers are limited far below 4 GiB"));
                encoding::message::encode(1, &header, &mut out);
                out
            }
            None => BytesMut::with_capacity(bytes.min(self.len - self.written)),
        };
        while out.len() < bytes {
            let Some(kv) = self.kvs.next() else {
                if self.more {
                    encoding::bool::encode(3, &true, &mut out);
                }
                put_int(4, self.count, &mut out);
                assert_eq!(self.written + out.len(), self.len, "the announced length is the written one");
                break;
            };
            encoding::encode_key(2, WireType::LengthDelimited, &mut out);
            encode_varint(pair_len(&kv) as u64, &mut out);
            put_pair(&kv, &mut out);
        }
        self.written += out.len();
        out.freeze()
    }
}

/// Bytes of the message that [`frame_range`] writes, without the prefix; `pairs` is the [`pairs_len`] of the answer.
#[must_use]
pub fn range_len(header: &pb::ResponseHeader, result: &api::RangeResult, pairs: usize) -> usize {
    encoding::message::encoded_len(1, header) + pairs + 2 * usize::from(result.more) + int_len(result.count)
}

/// Bytes of the pairs in an answer as they go out, each with its tag and its length: nearly all of a large one, and known
/// before any is copied. It looks at each pair, so it is asked once for an answer.
#[must_use]
pub fn pairs_len(answer: &api::Answer) -> usize {
    match answer {
        api::Answer::Range(result) => kvs_len(&result.kvs),
        api::Answer::Put { prev_kv } => kvs_len(prev_kv.as_slice()),
        api::Answer::DeleteRange { prev_kvs, .. } => kvs_len(prev_kvs),
        api::Answer::Txn { answers, .. } => answers.iter().map(pairs_len).sum(),
        api::Answer::Compact => 0,
    }
}

fn kvs_len(kvs: &[api::KeyValue]) -> usize {
    let framed = |kv| {
        let len = pair_len(kv);
        1 + encoded_len_varint(len as u64) + len
    };
    kvs.iter().map(framed).sum()
}

fn start(len: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
    out.put_u8(0);
    out.put_u32(u32::try_from(len).expect("answers are limited far below 4 GiB"));
    out
}

fn finish(out: BytesMut, len: usize) -> Bytes {
    assert_eq!(out.len(), PREFIX_LEN + len, "the announced length is the written one");
    out.freeze()
}

fn pair_len(kv: &api::KeyValue) -> usize {
    bytes_len(&kv.key)
        + int_len(kv.create_revision)
        + int_len(kv.mod_revision)
        + int_len(kv.version)
        + bytes_len(&kv.value)
        + int_len(kv.lease)
}

fn put_pair(kv: &api::KeyValue, out: &mut BytesMut) {
    put_bytes(1, &kv.key, out);
    put_int(2, kv.create_revision, out);
    put_int(3, kv.mod_revision, out);
    put_int(4, kv.version, out);
    put_bytes(5, &kv.value, out);
    put_int(6, kv.lease, out);
}

// Field numbers here are all below 16, so that a key takes one byte; zeros and empty bytes are left out.

fn int_len(value: i64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value as u64) }
}

fn put_int(number: u32, value: i64, out: &mut BytesMut) {
    if value != 0 {
        encoding::encode_key(number, WireType::Varint, out);
        encode_varint(value as u64, out);
    }
}

fn bytes_len(value: &[u8]) -> usize {
    if value.is_empty() { 0 } else { 1 + encoded_len_varint(value.len() as u64) + value.len() }
}

fn put_bytes(number: u32, value: &[u8], out: &mut BytesMut) {
    if !value.is_empty() {
        encoding::encode_key(number, WireType::LengthDelimited, out);
        encode_varint(value.len() as u64, out);
        out.put_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![Just(0), Just(-1), Just(i64::MAX), 1..300i64, any::<i64>()]
    }

    fn pair() -> impl Strategy<Value = api::KeyValue> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        (bytes(), bytes(), number(), number(), number(), number()).prop_map(
            |(key, value, create_revision, mod_revision, version, lease)| api::KeyValue {
                key: key.into(),
                create_revision,
                mod_revision,
                version,
                value: value.into(),
                lease,
            },
        )
    }

    proptest! {
        #[test]
        fn a_range_in_pieces_is_the_same_range(
            kvs in proptest::collection::vec(pair(), 0..40),
            more in any::<bool>(),
            count in number(),
            rooms in proptest::collection::vec(1..3_000_usize, 1..8),
        ) {
            let header = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 };
            let result = api::RangeResult { kvs, more, count, revision: 3 };
            let len = range_len(&header, &result, kvs_len(&result.kvs));
            let whole = frame_range(&header, &result, len);
            let mut writer = RangeWriter::new(header, result, len);
            let mut pieces = Vec::new();
            for &room in rooms.iter().cycle() {
                let piece = writer.next_bytes(room);
                prop_assert!(piece.len() <= room);
                if piece.is_empty() {
                    break;
                }
                pieces.extend_from_slice(&piece);
            }
            prop_assert_eq!(pieces, whole);
        }

        #[test]
        fn a_range_is_written_as_prost_would_write_it(
            kvs in proptest::collection::vec(pair(), 0..6),
            more in any::<bool>(),
            count in number(),
            header in (any::<u64>(), any::<u64>(), number(), any::<u64>()),
        ) {
            let header = pb::ResponseHeader {
                cluster_id: header.0, member_id: header.1, revision: header.2, raft_term: header.3,
            };
            let result = api::RangeResult { kvs, more, count, revision: header.revision };
            let twin = frame(&convert::range_response(header, &result));
            let len = range_len(&header, &result, kvs_len(&result.kvs));
            prop_assert_eq!(frame_range(&header, &result, len), twin);
        }
    }
}
