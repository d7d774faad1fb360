//! Frames: a bit of a message is flipped on its way, in every part of it.
//!
//! Knows nothing of: what messages mean, connections.

use kattu_node::contract::{Forward, PeerMessage};
use kattu_raft::{Incarnation, NodeId, SharedBytes, Term};
use kattu_wire::{Codec, FrameWriter};

/// A follower forwards writes, and any one bit arrives flipped.
pub(super) fn forwarded_writes_with_a_flipped_bit(seed: u64) {
    let codec = Codec::new(crc32c::crc32c_append);
    let commands =
        (0..1 + seed % 4).map(|number| vec![number as u8; 5 + seed as usize % 40].into()).collect();
    let (from, to) = (NodeId(1), NodeId(2));
    let forward = Forward { from, to, incarnation: Incarnation(seed), term: Term(3), first_seq: 1, commands };
    let mut writer = FrameWriter::default();
    codec.encode_message(&PeerMessage::Forward(forward), &mut writer);
    let bytes: Vec<u8> = writer.pieces().flatten().copied().collect();
    assert!(codec.decode(&SharedBytes::from(bytes.clone())).is_ok(), "scene: the frame is good");
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(frame) = codec.decode(&SharedBytes::from(damaged)) {
            panic!(
                "frames_are_checked: bit {bit} of {} bytes is flipped, and {frame:?} is heard",
                bytes.len()
            );
        }
    }
}
