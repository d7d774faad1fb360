//! A stream cut into pieces that can be handled separately: frames of Kattu's peers, or the bytes of one read.
//!
//! TCP loses, repeats and reorders nothing; the faults of a datagram network can only be imitated between whole frames.
//! Other systems' frames are unknown here, so their pieces may be delayed but must stay in order.
//! Knows nothing of: sockets.

use kattu_wire::Codec;
use kattu_wire::frame::HEADER_BYTES;

/// Members of a trial send far smaller frames; a longer length is no frame.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Smaller kinds are handshake frames, which come once per connection, first. [docs/formats/frame.md]
const KIND_OF_FIRST_MESSAGE: u8 = 16;
const KIND_AT: usize = 5;
/// Append, and append reply.
const KINDS_OF_APPENDS: std::ops::RangeInclusive<u8> = 16..=17;

/// One piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It is a message of its own: members must tolerate it twice, and after its successor.
    pub is_message: bool,
    /// It is an append, with entries or as a heartbeat, or the answer to one: members must tolerate its loss, too.
    pub is_append: bool,
}

impl Piece {
    /// Bytes of unknown meaning.
    fn of_bytes(bytes: Vec<u8>) -> Piece {
        Piece { bytes, is_message: false, is_append: false }
    }
}

/// Cuts one direction of one connection.
#[derive(Debug)]
pub(crate) struct Chopper {
    pending: Vec<u8>,
    knows_frames: bool,
}

impl Chopper {
    /// With or without knowledge of frames.
    pub fn new(knows_frames: bool) -> Chopper {
        Chopper { pending: Vec::new(), knows_frames }
    }

    /// Takes bytes; returns the pieces that are now complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.pending.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        let codec = Codec::new(crc32c::crc32c_append);
        while self.knows_frames && HEADER_BYTES <= self.pending.len() {
            match codec.peek_len(&self.pending, FRAME_BYTES_MAX) {
                Ok(Some(len)) if len <= self.pending.len() => {
                    let rest = self.pending.split_off(len);
                    let bytes = std::mem::replace(&mut self.pending, rest);
                    let kind = bytes[KIND_AT];
                    let (is_message, is_append) =
                        (KIND_OF_FIRST_MESSAGE <= kind, KINDS_OF_APPENDS.contains(&kind));
                    pieces.push(Piece { bytes, is_message, is_append });
                }
                Ok(_) => return pieces,
                // No frame: from here on bytes are passed on as they come.
                Err(_) => self.knows_frames = false,
            }
        }
        if !self.knows_frames && !self.pending.is_empty() {
            pieces.push(Piece::of_bytes(std::mem::take(&mut self.pending)));
        }
        pieces
    }

    /// The rest of a stream that has ended.
    pub fn rest(&mut self) -> Option<Piece> {
        let bytes = std::mem::take(&mut self.pending);
        (!bytes.is_empty()).then(|| Piece::of_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_wire::{Frame, FrameWriter, Goodbye};

    fn frame(reason: &str) -> Vec<u8> {
        let mut writer = FrameWriter::default();
        let frame = Frame::Goodbye(Goodbye { reason: reason.into() });
        Codec::new(crc32c::crc32c_append).encode(&frame, &mut writer);
        writer.pieces().flatten().copied().collect()
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_come_in() {
        let frames = [frame("a"), frame("a longer farewell"), frame("")];
        let stream = frames.concat();
        for step in [1, 7, 24, stream.len()] {
            let mut chopper = Chopper::new(true);
            let pieces: Vec<Piece> = stream.chunks(step).flat_map(|bytes| chopper.push(bytes)).collect();
            assert_eq!(pieces.iter().map(|piece| piece.bytes.clone()).collect::<Vec<_>>(), frames);
            assert!(pieces.iter().all(|piece| !piece.is_message), "a greeting is no message");
            assert_eq!(chopper.rest(), None);
        }
    }

    #[test]
    fn what_is_no_frame_passes_as_it_comes() {
        let mut chopper = Chopper::new(true);
        let request = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(chopper.push(request), [Piece::of_bytes(request.to_vec())]);
        let mut chopper = Chopper::new(false);
        assert_eq!(chopper.push(b"ab"), [Piece::of_bytes(b"ab".to_vec())]);
        assert_eq!(chopper.rest(), None);
    }

    #[test]
    fn half_a_frame_waits_for_its_other_half() {
        let mut chopper = Chopper::new(true);
        let bytes = frame("half");
        assert_eq!(chopper.push(&bytes[..27]), []);
        assert_eq!(chopper.rest().map(|piece| piece.bytes), Some(bytes[..27].to_vec()));
    }
}
