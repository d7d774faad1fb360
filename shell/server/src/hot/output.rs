//! Output of a connection: the library's frames, and between them the responses to hot calls.
//!
//! In:    what the library writes; parts of responses; windows.
//! Out:   how much of the library's bytes may be sent now; frames of hot responses.
//! Rules: 1. Hot frames go where a frame of the library's has ended, and none of its heads is open.
//!        2. Heads of hot responses are literals or refer to the static table: the library's table, of which the client
//!           has a copy, does not change.
//!        3. Data of the library's for which the client's window has no room waits, with all that is behind it.
//!        4. Parts of one response are sent in their order. Responses do not wait for each other, but for the window of
//!           the connection.
//! Knows nothing of: sockets, calls.

use crate::body::Piece;
use crate::frames::{ACK, CONTINUATION, DATA, END_HEADERS, Frames, HEAD_BYTES, HEADERS, SETTINGS};
use crate::hot::hpack;
use crate::hot::input::{END_STREAM, FRAME_BYTES_MAX, Input, RST_STREAM, WINDOW_UPDATE, put_head};
use crate::hot::table::Table;
use crate::streams::{GOAWAY, GoAway};
use bytes::Buf;
use h2::Reason;
use http::HeaderMap;
use std::collections::VecDeque;

/// `:status: 200`, `content-type: application/grpc`.
const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
const TAIL: &[u8] = b"\x00\x0bgrpc-status\x010";
/// All that is sent beside the data of a response in one frame.
const AROUND_BYTES: usize = 3 * HEAD_BYTES + 2 * Table::BYTES_MAX + HEAD.len() + TAIL.len();
/// A response that finds less room than this, and needs more, waits for more.
const PART_BYTES_MIN: usize = 2 << 10;
/// So many bytes of requests are given back to the client with one frame.
const OWED_MAX: usize = 8 << 10;

/// Most bytes of frames without a response that wait, but for those that one read leads to.
const CONTROL_MAX: usize = 4 << 10;

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
    pub stream: u32,
    pub lead: Lead,
    pub data: Option<Piece>,
    /// Trailers that say OK follow.
    pub ends: bool,
}

/// The output of one connection.
#[derive(Debug)]
pub struct Output {
    /// The position behind the library's bytes that have been looked at, …
    frames: Frames,
    is_head_open: bool,
    /// … of which so many are not sent yet.
    ahead: usize,
    /// Rule 3.
    pub is_blocked: bool,
    parts: VecDeque<Part>,
    /// Their data.
    pub waiting_bytes: usize,
    /// Frames without a response.
    control: Vec<u8>,
    /// The library's last words.
    pub last: Option<GoAway>,
}

impl Output {
    pub fn new() -> Output {
        Output {
            frames: Frames::after(0),
            is_head_open: false,
            ahead: 0,
            is_blocked: false,
            parts: VecDeque::new(),
            waiting_bytes: 0,
            control: Vec::new(),
            last: None,
        }
    }

    /// How many of the library's next bytes may be sent now.
    pub fn admit<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>, input: &mut Input) -> usize {
        let mut seen = 0;
        self.is_blocked = false;
        for slice in slices {
            let mut left = &slice[self.ahead.saturating_sub(seen).min(slice.len())..];
            seen += slice.len();
            while let Some(head) = self.frames.next(&mut left) {
                let at = seen - left.len();
                match head.kind {
                    DATA if input.windows.open() < head.len as i64 && HEAD_BYTES <= at && 0 < head.len => {
                        self.frames = Frames::after(0);
                        self.ahead = at - HEAD_BYTES;
                        self.is_blocked = true;
                        return self.ahead;
                    }
                    DATA => input.windows.spend_lent(head.len),
                    HEADERS | CONTINUATION => {
                        self.is_head_open = head.flags & END_HEADERS == 0;
                        input.table.is_said();
                    }
                    SETTINGS if head.flags & ACK != 0 => input.table.is_acknowledged(),
                    GOAWAY => self.last = GoAway::read(left).or(self.last),
                    _ => {}
                }
            }
        }
        self.ahead = seen;
        input.lend();
        seen
    }

    /// So many of the admitted bytes are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.ahead -= bytes;
    }

    /// Rule 1.
    fn is_between_frames(&self) -> bool {
        self.ahead == 0 && self.frames.rest() == 0 && !self.frames.is_in_head() && !self.is_head_open
    }

    pub fn push(&mut self, part: Part) {
        self.waiting_bytes += part.data.as_ref().map_or(0, Piece::remaining);
        self.parts.push_back(part);
    }

    /// Whether a part of this stream's response waits.
    pub fn has_part(&self, stream: u32) -> bool {
        self.parts.iter().any(|part| part.stream == stream)
    }

    /// Whether no more refusals may be added.
    pub fn is_heaped(&self) -> bool {
        CONTROL_MAX <= self.control.len()
    }

    pub fn refuse(&mut self, stream: u32, reason: Reason) {
        put_head(4, RST_STREAM, 0, stream, &mut self.control);
        self.control.extend_from_slice(&u32::from(reason).to_be_bytes());
    }

    /// Appends what may be sent, up to so many bytes in all. Whether anything was.
    pub fn flush(&mut self, input: &mut Input, out: &mut Vec<u8>, len_max: usize) -> bool {
        let len_before = out.len();
        if OWED_MAX <= input.owed {
            put_head(4, WINDOW_UPDATE, 0, 0, &mut self.control);
            self.control.extend_from_slice(&(input.owed as u32).to_be_bytes());
            input.owed = 0;
        }
        if !self.is_between_frames() {
            return false;
        }
        if !self.control.is_empty() && (out.is_empty() || out.len() + self.control.len() <= len_max) {
            out.append(&mut self.control);
        }
        let mut place = 0;
        while let Some(part) = self.parts.get_mut(place) {
            let Some(stream) = input.streams.get(part.stream) else {
                // It was reset.
                let left =
                    self.parts.remove(place).and_then(|part| part.data).map_or(0, |data| data.remaining());
                self.waiting_bytes -= left;
                input.streams.wake_all();
                continue;
            };
            let room = len_max.saturating_sub(out.len()).saturating_sub(AROUND_BYTES);
            if let Lead::Only(block) = &part.lead {
                if room < block.len() && !out.is_empty() {
                    break;
                }
                put_block(&input.table, block, END_STREAM, part.stream, out);
                input.streams.end(part.stream);
                self.parts.remove(place);
                continue;
            }
            let left = part.data.as_ref().map_or(0, Piece::remaining);
            let window = if self.is_blocked { 0 } else { input.windows.open().max(0) };
            let of_stream = (input.windows.of_stream + stream.gained.get()).max(0);
            if room < left.min(PART_BYTES_MIN) {
                break;
            }
            // A head needs no window.
            if let Lead::Head = std::mem::replace(&mut part.lead, Lead::Nothing) {
                put_block(&input.table, HEAD, 0, part.stream, out);
            }
            let len = left.min(room).min(window.min(of_stream) as usize).min(FRAME_BYTES_MAX);
            if len == 0 && 0 < left {
                place += 1;
                continue;
            }
            if let Some(piece) = &mut part.data {
                put_head(len, DATA, 0, part.stream, out);
                out.extend_from_slice(&piece.chunk()[..len]);
                piece.advance(len);
                input.windows.spend(len);
                self.waiting_bytes -= len;
                stream.gained.update(|gained| gained - len as i64);
            }
            if len < left {
                continue;
            }
            if part.ends {
                put_block(&input.table, TAIL, END_STREAM, part.stream, out);
                input.streams.end(part.stream);
            } else if stream.is_short.get() {
                stream.wake();
            }
            self.parts.remove(place);
        }
        len_before < out.len()
    }
}

/// Appends a head of one frame, or of several.
fn put_block(table: &Table, block: &[u8], flags: u8, stream: u32, out: &mut Vec<u8>) {
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
