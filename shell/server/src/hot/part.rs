//! Parts of responses to hot calls, and the frames of their heads.
//!
//! Rule: heads are literals or refer to the static table: the library's table, of which the client has a copy, does not
//! change.
//! Knows nothing of: windows, the order of parts.

use crate::body::Piece;
use crate::frames::{CONTINUATION, END_HEADERS, HEAD_BYTES, HEADERS};
use crate::hot::hpack;
use crate::hot::input::{FRAME_BYTES_MAX, put_head};
use crate::hot::table::Table;
use bytes::Buf;
use http::HeaderMap;

/// `:status: 200`, `content-type: application/grpc`.
pub(crate) const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
pub(crate) const TAIL: &[u8] = b"\x00\x0bgrpc-status\x010";
/// All that is sent beside the data of a response in one frame.
pub(crate) const AROUND_BYTES: usize = 3 * HEAD_BYTES + 2 * Table::BYTES_MAX + HEAD.len() + TAIL.len();

/// How a part of a response begins.
#[derive(Debug)]
pub(crate) enum Lead {
    /// With the head of every response that is not an error.
    Head,
    /// With a head of its own, and nothing follows.
    Only(Vec<u8>),
    /// It goes on.
    Nothing,
}

/// A part of a response.
#[derive(Debug)]
pub(crate) struct Part {
    pub lead: Lead,
    pub data: Option<Piece>,
    /// Trailers that say OK follow.
    pub ends: bool,
}

impl Part {
    /// Its bytes of data.
    pub fn left(&self) -> usize {
        self.data.as_ref().map_or(0, Piece::remaining)
    }
}

/// Appends a head of one frame, or of several.
pub(crate) fn put_block(table: &Table, block: &[u8], flags: u8, stream: u32, out: &mut Vec<u8>) {
    let (first, mut rest) = block.split_at(block.len().min(FRAME_BYTES_MAX - Table::BYTES_MAX));
    let ends = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    put_head(first.len() + table.len(), HEADERS, flags | ends(rest), stream, out);
    table.begin(out);
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (next, behind) = rest.split_at(rest.len().min(FRAME_BYTES_MAX));
        rest = behind;
        put_head(next.len(), CONTINUATION, ends(rest), stream, out);
        out.extend_from_slice(next);
    }
}

/// The block of a response that is a head and nothing else, with status 200.
pub(crate) fn block(headers: &HeaderMap) -> Vec<u8> {
    let mut block = vec![HEAD[0]];
    for (name, value) in headers {
        hpack::encode(name.as_str().as_bytes(), value.as_bytes(), value.is_sensitive(), &mut block);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{FaceBody, ok_trailers};
    use crate::grpc;
    use crate::hot::hpack::{Decoder, Fields};

    fn fields(block: &[u8]) -> Vec<(String, String)> {
        let (mut decoder, mut fields) = (Decoder::new(), Fields::default());
        decoder.decode(block, &mut fields).expect("a block");
        assert_eq!(decoder.changes(), 0, "no table changes");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        fields.iter().map(|(name, value, _)| (text(name), text(value))).collect()
    }

    /// Static heads say what the general path says.
    #[test]
    fn heads_are_those_of_the_general_path() {
        let (head, _) = grpc::reply(FaceBody::Empty).into_parts();
        assert_eq!(head.status, 200);
        assert_eq!(fields(HEAD), fields(&block(&head.headers)));
        assert_eq!(fields(TAIL), fields(&block(&ok_trailers()))[1..]);
    }
}
