//! Responses as frames of gRPC: one length prefix, one message, one buffer.
//!
//! ```text
//!  0        1              5
//!  ├ packed ┼ length (be) ─┼ message ──────┤      packed is 0: we compress nothing
//! ```
//!
//! The responses to a range read and to a put, the hottest of all, and every large response are written straight from
//! the store's shared pairs; everything else goes through prost.
//! Knows nothing of: the meaning of responses.

use crate::convert;
use bytes::{BufMut, Bytes, BytesMut};
use kattu_kv::api;
use kattu_proto::etcdserverpb as pb;
use prost::Message;
use prost::encoding::{self, WireType, encoded_len_varint};

/// A large response is encoded in pieces of about this size.
pub const PIECE_BYTES: usize = 64 << 10;

/// Length of the prefix in front of each message.
pub(crate) const PREFIX_LEN: usize = 5;

/// A message with its prefix.
#[must_use]
pub fn frame(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = start(len);
    message.encode_raw(&mut out);
    finish(out, len)
}

/// The response to a range read, with its prefix; byte for byte what prost would write. `len` is its [`range_len`].
#[must_use]
pub(crate) fn frame_range(header: &pb::ResponseHeader, result: &api::RangeResult, len: usize) -> Bytes {
    let mut out = start(len);
    put_header(header, &mut out);
    for kv in &result.kvs {
        put_pair(2, kv, &mut out);
    }
    if result.more {
        encoding::bool::encode(3, &true, &mut out);
    }
    put_int(4, result.count, &mut out);
    finish(out, len)
}

/// The response to a put, with its prefix; byte for byte what prost would write.
#[must_use]
pub(crate) fn frame_put(header: &pb::ResponseHeader, prev_kv: Option<&api::KeyValue>) -> Bytes {
    let prev_kv = prev_kv.map_or(&[][..], std::slice::from_ref);
    let len = header_len(header) + kvs_len(prev_kv);
    let mut out = start(len);
    put_header(header, &mut out);
    prev_kv.iter().for_each(|kv| put_pair(2, kv, &mut out));
    finish(out, len)
}

/// A large response with its prefix, a piece at a time. What is written is freed, so that there is never much more in
/// memory than the response itself, and no piece takes long.
///
/// The lengths of nested messages precede their contents, so the whole is laid out once, from its end to its beginning:
/// short fields as bytes, pairs as they are shared with the store.
pub(crate) struct AnswerWriter {
    /// Parts still to be written, the next one last.
    parts: Vec<Part>,
    /// Bytes to write in all, and those written.
    len: usize,
    written: usize,
    /// Written, and not yet returned.
    left: Bytes,
}

enum Part {
    Fields(BytesMut),
    /// Pairs, each as a field of this number.
    Pairs(u32, std::vec::IntoIter<api::KeyValue>),
}

impl AnswerWriter {
    /// The response to a range, a delete or a transaction.
    #[must_use]
    pub fn new(header: &pb::ResponseHeader, answer: api::Answer) -> AnswerWriter {
        let mut layout = Layout::default();
        layout.answer(header, api::Revision(header.revision), answer);
        let message = layout.len;
        layout.fields(|out| put_prefix(message, out));
        let Layout { parts, len } = layout;
        AnswerWriter { parts, len, written: 0, left: Bytes::new() }
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len
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
        let mut out = BytesMut::with_capacity(bytes.min(self.len - self.written));
        while out.len() < bytes {
            match self.parts.pop() {
                Some(Part::Fields(fields)) => out.extend_from_slice(&fields),
                Some(Part::Pairs(number, mut kvs)) => {
                    while out.len() < bytes
                        && let Some(kv) = kvs.next()
                    {
                        put_pair(number, &kv, &mut out);
                    }
                    if kvs.len() > 0 {
                        self.parts.push(Part::Pairs(number, kvs));
                    }
                }
                None => break,
            }
        }
        self.written += out.len();
        let is_whole = self.parts.is_empty();
        assert!(!is_whole || self.written == self.len, "the announced length is the written one");
        out.freeze()
    }
}

/// A message under construction, from its end to its beginning.
#[derive(Default)]
struct Layout {
    parts: Vec<Part>,
    len: usize,
}

impl Layout {
    /// Puts fields in front of the message so far.
    fn fields(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        write(&mut out);
        self.len += out.len();
        self.parts.push(Part::Fields(out));
    }

    fn pairs(&mut self, number: u32, kvs: Vec<api::KeyValue>) {
        self.len += kvs_len(&kvs);
        self.parts.push(Part::Pairs(number, kvs.into_iter()));
    }

    /// Makes what was put in front since there were `end` bytes a message of its own, the field `number`.
    fn close(&mut self, number: u32, end: usize) {
        let len = (self.len - end) as u64;
        self.fields(|out| {
            put_key(number, WireType::LengthDelimited, out);
            put_varint(len, out);
        });
    }

    fn header(&mut self, header: &pb::ResponseHeader) {
        self.fields(|out| put_header(header, out));
    }

    /// Lays out the response of this answer; returns its variant as an operation's response. Field numbers are etcd's.
    fn answer(
        &mut self,
        header: &pb::ResponseHeader,
        revision: api::Revision,
        answer: api::Answer,
    ) -> Option<u32> {
        let variant = match answer {
            api::Answer::Range(api::RangeResult { kvs, more, count, .. }) => {
                self.fields(|out| {
                    if more {
                        encoding::bool::encode(3, &true, out);
                    }
                    put_int(4, count, out);
                });
                self.pairs(2, kvs);
                1
            }
            api::Answer::Put { prev_kv } => {
                self.pairs(2, prev_kv.into_iter().collect());
                2
            }
            api::Answer::DeleteRange { deleted, prev_kvs, .. } => {
                self.pairs(3, prev_kvs);
                self.fields(|out| put_int(2, deleted, out));
                3
            }
            api::Answer::Txn { succeeded, answers } => {
                for answer in answers.into_iter().rev() {
                    self.operation(revision, answer);
                }
                self.fields(|out| {
                    if succeeded {
                        encoding::bool::encode(2, &true, out);
                    }
                });
                4
            }
            api::Answer::Compact => return None,
        };
        self.header(header);
        Some(variant)
    }

    /// The response to an operation of a transaction.
    fn operation(&mut self, revision: api::Revision, answer: api::Answer) {
        let end = self.len;
        let header = convert::operation_header(revision, &answer);
        if let Some(variant) = self.answer(&header, revision, answer) {
            self.close(variant, end);
        }
        self.close(3, end);
    }
}

/// Bytes of the message that [`frame_range`] writes, without the prefix; `pairs` is the [`pairs_len`] of the answer.
#[must_use]
pub(crate) fn range_len(header: &pb::ResponseHeader, result: &api::RangeResult, pairs: usize) -> usize {
    header_len(header) + pairs + 2 * usize::from(result.more) + int_len(result.count)
}

/// Bytes of the pairs in an answer as they are sent, each with its tag and its length: nearly all of a large one, and
/// known before any is copied. It visits each pair, so it is called once for an answer.
#[must_use]
pub(crate) fn pairs_len(answer: &api::Answer) -> usize {
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
    put_prefix(len, &mut out);
    out
}

fn put_prefix(len: usize, out: &mut BytesMut) {
    out.put_u8(0);
    out.put_u32(u32::try_from(len).expect("answers are limited far below 4 GiB"));
}

fn finish(out: BytesMut, len: usize) -> Bytes {
    assert_eq!(out.len(), PREFIX_LEN + len, "the announced length is the written one");
    out.freeze()
}

fn header_fields_len(header: &pb::ResponseHeader) -> usize {
    int_len(header.cluster_id as i64)
        + int_len(header.member_id as i64)
        + int_len(header.revision)
        + int_len(header.raft_term as i64)
}

/// Bytes of the header as field 1.
fn header_len(header: &pb::ResponseHeader) -> usize {
    let len = header_fields_len(header);
    1 + encoded_len_varint(len as u64) + len
}

fn put_header(header: &pb::ResponseHeader, out: &mut BytesMut) {
    put_key(1, WireType::LengthDelimited, out);
    put_varint(header_fields_len(header) as u64, out);
    put_int(1, header.cluster_id as i64, out);
    put_int(2, header.member_id as i64, out);
    put_int(3, header.revision, out);
    put_int(4, header.raft_term as i64, out);
}

fn pair_len(kv: &api::KeyValue) -> usize {
    bytes_len(&kv.key)
        + int_len(kv.create_revision.0)
        + int_len(kv.mod_revision.0)
        + int_len(kv.version)
        + bytes_len(&kv.value)
        + int_len(kv.lease)
}

/// A pair as the field `number`.
fn put_pair(number: u32, kv: &api::KeyValue, out: &mut BytesMut) {
    put_key(number, WireType::LengthDelimited, out);
    put_varint(pair_len(kv) as u64, out);
    put_bytes(1, &kv.key, out);
    put_int(2, kv.create_revision.0, out);
    put_int(3, kv.mod_revision.0, out);
    put_int(4, kv.version, out);
    put_bytes(5, &kv.value, out);
    put_int(6, kv.lease, out);
}

// Field numbers here are all below 16, so that a key takes one byte; zeros and empty bytes are left out.

fn put_key(number: u32, wire: WireType, out: &mut BytesMut) {
    out.put_u8((number << 3) as u8 | wire as u8);
}

/// A number of at most 10 bytes; most have one.
fn put_varint(mut value: u64, out: &mut BytesMut) {
    let (mut bytes, mut len) = ([0; 10], 0);
    while 0x80 <= value {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.put_slice(&bytes[..=len]);
}

fn int_len(value: i64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value as u64) }
}

fn put_int(number: u32, value: i64, out: &mut BytesMut) {
    if value != 0 {
        put_key(number, WireType::Varint, out);
        put_varint(value as u64, out);
    }
}

fn bytes_len(value: &[u8]) -> usize {
    if value.is_empty() { 0 } else { 1 + encoded_len_varint(value.len() as u64) + value.len() }
}

fn put_bytes(number: u32, value: &[u8], out: &mut BytesMut) {
    if !value.is_empty() {
        put_key(number, WireType::LengthDelimited, out);
        put_varint(value.len() as u64, out);
        out.put_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![Just(0), Just(-1), Just(i64::MAX), 1..300i64, any::<i64>()]
    }

    fn pair() -> impl Strategy<Value = api::KeyValue> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        (bytes(), bytes(), number(), number(), number(), number()).prop_map(
            |(key, value, create_revision, mod_revision, version, lease)| api::KeyValue {
                key: key.into(),
                create_revision: api::Revision(create_revision),
                mod_revision: api::Revision(mod_revision),
                version,
                value: value.into(),
                lease,
            },
        )
    }

    fn pairs() -> impl Strategy<Value = Vec<api::KeyValue>> {
        proptest::collection::vec(pair(), 0..12)
    }

    fn answer() -> impl Strategy<Value = api::Answer> {
        let range = (pairs(), any::<bool>(), number(), number()).prop_map(|(kvs, more, count, revision)| {
            api::RangeResult { kvs, more, count, revision: api::Revision(revision) }
        });
        let leaf = prop_oneof![
            range.prop_map(api::Answer::Range),
            proptest::option::of(pair()).prop_map(|prev_kv| api::Answer::Put { prev_kv }),
            (number(), pairs(), number()).prop_map(|(deleted, prev_kvs, revision)| {
                api::Answer::DeleteRange { deleted, prev_kvs, revision: api::Revision(revision) }
            }),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            (any::<bool>(), proptest::collection::vec(inner, 0..5))
                .prop_map(|(succeeded, answers)| api::Answer::Txn { succeeded, answers })
        })
    }

    fn twin(header: pb::ResponseHeader, answer: api::Answer) -> Bytes {
        match answer {
            api::Answer::Range(result) => frame(&convert::range_response(header, &result)),
            api::Answer::Put { prev_kv } => {
                let prev_kv = prev_kv.as_ref().map(convert::key_value);
                frame(&pb::PutResponse { header: Some(header), prev_kv })
            }
            api::Answer::DeleteRange { deleted, prev_kvs, .. } => {
                let prev_kvs = prev_kvs.iter().map(convert::key_value).collect();
                frame(&pb::DeleteRangeResponse { header: Some(header), deleted, prev_kvs })
            }
            api::Answer::Txn { succeeded, answers } => {
                frame(&convert::txn_response(header, api::Revision(header.revision), succeeded, &answers))
            }
            api::Answer::Compact => unreachable!("no operation of a transaction"),
        }
    }

    #[test]
    fn a_large_transaction_is_written_a_piece_at_a_time_whatever_room_there_is() {
        let kv = |n: u32| api::KeyValue {
            key: n.to_be_bytes().into(),
            create_revision: api::Revision(1),
            mod_revision: api::Revision(1),
            version: 1,
            value: [b'v'; 100].into(),
            lease: 0,
        };
        let range = |kvs| {
            api::Answer::Range(api::RangeResult { kvs, more: false, count: 1, revision: api::Revision(1) })
        };
        let nested = api::Answer::Txn { succeeded: true, answers: vec![range((0..5000).map(kv).collect())] };
        let answer =
            api::Answer::Txn { succeeded: true, answers: vec![range((0..5000).map(kv).collect()), nested] };
        let mut writer = AnswerWriter::new(&pb::ResponseHeader::default(), answer);
        let mut pieces = 0;
        loop {
            let piece = writer.next_bytes(usize::MAX);
            assert!(piece.len() <= PIECE_BYTES + 1024, "{} bytes in one piece", piece.len());
            if piece.is_empty() {
                break;
            }
            pieces += 1;
        }
        assert!(pieces > 10 && writer.written == writer.bytes(), "{pieces} pieces");
    }

    proptest! {
        #[test]
        fn an_answer_in_pieces_is_what_prost_would_write(
            answer in answer(),
            revision in 1..i64::MAX,
            rooms in proptest::collection::vec(1..3_000_usize, 1..8),
        ) {
            let header = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision, raft_term: 4 };
            let twin = twin(header, answer.clone());
            let mut writer = AnswerWriter::new(&header, answer);
            prop_assert_eq!(writer.bytes(), twin.len());
            let mut pieces = Vec::new();
            for &room in rooms.iter().cycle() {
                let piece = writer.next_bytes(room);
                prop_assert!(piece.len() <= room);
                if piece.is_empty() {
                    break;
                }
                pieces.extend_from_slice(&piece);
            }
            prop_assert_eq!(pieces, twin);
        }

        #[test]
        fn a_range_and_a_put_are_written_as_prost_would_write_them(
            kvs in proptest::collection::vec(pair(), 0..6),
            more in any::<bool>(),
            count in number(),
            header in (any::<u64>(), any::<u64>(), number(), any::<u64>()),
        ) {
            let header = pb::ResponseHeader {
                cluster_id: header.0, member_id: header.1, revision: header.2, raft_term: header.3,
            };
            let result = api::RangeResult { kvs, more, count, revision: api::Revision(header.revision) };
            let twin = frame(&convert::range_response(header, &result));
            let len = range_len(&header, &result, kvs_len(&result.kvs));
            prop_assert_eq!(frame_range(&header, &result, len), twin);
            let prev_kv = result.kvs.first();
            let twin = frame(&pb::PutResponse { header: Some(header), prev_kv: prev_kv.map(convert::key_value) });
            prop_assert_eq!(frame_put(&header, prev_kv), twin);
        }
    }
}
