//! A newcomer is let in if there is a version that both sides speak, and told why if there is none.

use kattu_member::handshake::{Door, First};
use kattu_member::peer_table::{Own, PeerTable};
use kattu_raft::{GroupId, Instant, NodeId};
use kattu_wire::{Frame, Join, PROTOCOL_MAX, PROTOCOL_MIN};
use std::collections::BTreeMap;

#[test]
fn a_newcomer_comes_in_with_every_range_of_versions_that_meets_ours() {
    let mut table = PeerTable::new(Own { cluster: 7, id: NodeId(1), ..Own::default() }, BTreeMap::new());
    let door = Door { signed: None, group: GroupId(0), now: Instant(5), challenge: (1, 2) };
    for protocol_min in 0..=PROTOCOL_MAX + 2 {
        for protocol_max in protocol_min..=PROTOCOL_MAX + 2 {
            let peer_urls = vec!["http://10.0.0.2:2380".to_string()];
            let join = Join { protocol_min, protocol_max, peer_urls };
            let ours = PROTOCOL_MIN..=PROTOCOL_MAX;
            let meets = (protocol_min..=protocol_max).any(|version| ours.contains(&version));
            match door.first(Frame::Join(join.clone()), &mut table) {
                First::Newcomer(who) => assert!(meets && who == join, "{join:?}"),
                First::Refused(_, why) => assert!(!meets && why.contains("upgrade"), "{join:?}: {why}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
