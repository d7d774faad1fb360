//! Skim: finds the fields of a message that have a length without unpacking them, so that a message with too many is
//! refused before it takes memory. An empty operation has two bytes encoded, and more than fifty unpacked.
//!
//! In:    the bytes of a message.
//! Out:   its fields with a length, in their order, up to the first byte that is not protobuf; the decoder, which gets
//!        no further either, reports the error.
//! Knows nothing of: the meaning of fields.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Deepest nesting of transactions that protobuf decodes: each is two of its hundred levels.
pub(crate) const TXN_DEPTH_READ: usize = 50;

/// The tags and the bytes of all fields that have a length.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        loop {
            let (tag, wire_type) = decode_key(&mut left).ok()?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut left, DecodeContext::default()).ok()?;
                continue;
            }
            let len = usize::try_from(decode_varint(&mut left).ok()?).ok()?;
            let (field, behind) = left.split_at_checked(len)?;
            left = behind;
            return Some((tag, field));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_proto::etcdserverpb as pb;
    use prost::Message;

    #[test]
    fn fields_with_a_length_are_found_among_others_up_to_what_is_no_field() {
        let put = pb::PutRequest {
            key: b"key".to_vec(),
            value: vec![7; 300],
            lease: -1,
            prev_kv: true,
            ..Default::default()
        };
        let bytes = [put.encode_to_vec(), b"\x15abcd\x12\x01x".to_vec()].concat();
        let found: Vec<(u32, usize)> = fields(&bytes).map(|(tag, field)| (tag, field.len())).collect();
        assert_eq!(found, [(1, 3), (2, 300), (2, 1)]);
        for (end, count) in [(bytes.len() - 1, 2), (4, 0), (5, 1), (9, 1), (0, 0)] {
            assert_eq!(fields(&bytes[..end]).count(), count, "{end} bytes of them");
        }
        assert_eq!(
            fields(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").count(),
            0,
            "longer than anything"
        );
    }
}
