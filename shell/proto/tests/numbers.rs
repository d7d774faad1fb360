//! Field numbers on the wire are etcd's: the ones that are easy to get wrong, byte for byte.

use kattu_proto::{etcdserverpb as pb, mvccpb};
use prost::Message;

#[test]
fn the_range_end_of_a_compare_has_number_64() {
    let compare = pb::Compare { key: b"a".to_vec(), range_end: b"b".to_vec(), ..Default::default() };
    assert_eq!(compare.encode_to_vec(), [0x1a, 1, b'a', 0x82, 0x04, 1, b'b']);
}

#[test]
fn the_events_of_a_watch_response_have_number_11() {
    let event = mvccpb::Event { r#type: mvccpb::event::EventType::Delete as i32, ..Default::default() };
    let response = pb::WatchResponse { watch_id: -1, events: vec![event], ..Default::default() };
    let minus_one = [0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(response.encode_to_vec(), [&minus_one[..], &[0x5a, 2, 0x08, 1]].concat());
}

#[test]
fn a_pair_is_numbered_key_create_mod_version_value_lease() {
    let kv = mvccpb::KeyValue {
        key: b"k".to_vec(),
        create_revision: 2,
        mod_revision: 3,
        version: 4,
        value: b"v".to_vec(),
        lease: 5,
    };
    assert_eq!(kv.encode_to_vec(), [0x0a, 1, b'k', 0x10, 2, 0x18, 3, 0x20, 4, 0x2a, 1, b'v', 0x30, 5]);
}

#[test]
fn a_status_carries_its_quota_at_12_and_its_storage_version_at_11() {
    let status = pb::StatusResponse {
        db_size_quota: 1,
        storage_version: "x".into(),
        raft_applied_index: 7,
        ..Default::default()
    };
    assert_eq!(status.encode_to_vec(), [0x38, 7, 0x5a, 1, b'x', 0x60, 1]);
}
