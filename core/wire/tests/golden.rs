//! Goal: later versions read the bytes of earlier ones. Method: one sample of every format is kept as a hex dump; the
//! bytes written now must equal it. `KATTU_UPDATE=1 cargo test -p kattu-wire --test golden` rewrites the samples, which
//! is right only together with a new format version.

mod common;

use common::{CODEC, bytes, bytes_in, entry, hex, one_of_each, one_of_each_v1};
use kattu_raft::{Body, EntryHead, EntryId, EntryKind, GroupId, LogIndex, Stamp};
use kattu_wire::record::{base_encode, truncate_encode};
use kattu_wire::record_encode;
use std::path::PathBuf;

fn compare(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format!("{name}.hex"));
    let today = hex(bytes);
    if std::env::var_os("KATTU_UPDATE").is_some() {
        std::fs::write(&path, today).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(golden, today, "{name}: the format has changed, which needs a new version");
}

#[test]
fn frames_are_written_as_ever() {
    for (name, frame) in one_of_each() {
        compare(&format!("frame-{name}"), &bytes(&frame));
    }
}

#[test]
fn messages_of_protocol_version_1_are_read_and_written_as_ever() {
    for (name, frame) in one_of_each_v1() {
        let path = format!("{}/testdata/frame-v1-{name}.hex", env!("CARGO_MANIFEST_DIR"));
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let bytes: Vec<u8> =
            golden.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two digits")).collect();
        assert_eq!(CODEC.speaking(1).decode(&bytes.into()), Ok(frame.clone()), "{name}");
        // For a stale term that version wrote more fields than any reader used.
        if name != "append-reply-stale-term" {
            assert_eq!(golden, hex(&bytes_in(&frame, 1)), "{name}");
        }
    }
}

#[test]
fn records_are_written_as_ever() {
    compare("record-command", entry(4, 13, EntryKind::Command, b"put a 1").record());
    compare("record-noop", entry(5, 14, EntryKind::Noop, b"").record());
    compare("record-config", entry(5, 15, EntryKind::Config, b"members").record());
    let shard = Body::Shard { shard: 2, data: 3, bytes: b"third" };
    for (name, body) in [("shard", shard), ("missing", Body::Missing)] {
        let head = EntryHead { id: EntryId::new(5, 16), kind: EntryKind::Command, stamp: Stamp(17) };
        let entry = record_encode(crc32c::crc32c_append, GroupId(7), head, body);
        compare(&format!("record-{name}"), entry.record());
    }
    compare("record-truncate", &truncate_encode(crc32c::crc32c_append, GroupId(7), LogIndex(14)));
    let base = base_encode(crc32c::crc32c_append, GroupId(7), EntryId::new(4, 12), b"the log's own");
    compare("record-base", &base);
}
