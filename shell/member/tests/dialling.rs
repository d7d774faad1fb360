//! What the operator is told of refusals, and when pauses begin anew.

use kattu_member::dialler::{Dialler, Failure, Next, Note};
use kattu_member::pauses::{PAUSE_MIN, Pauses};
use kattu_member::peer_table::{Own, PeerTable};
use kattu_node::contract::{MemberInfo, Members};
use kattu_raft::{Duration, Instant, NodeId};
use kattu_wire::Lane;
use std::collections::BTreeMap;

const PEER: NodeId = NodeId(2);
const MAX: Duration = Duration::from_millis(500);

#[test]
fn a_refusal_for_the_same_reason_is_told_again_after_a_connection_was_open() {
    let mut table = PeerTable::new(Own { id: NodeId(1), ..Own::default() }, BTreeMap::new());
    let list = vec![MemberInfo { id: PEER, ..MemberInfo::default() }];
    table.follow(Members { list, ..Members::default() });
    let mut dialler = Dialler::new(PEER, Lane::Bulk);
    let mut refused = |dialler: &mut Dialler| {
        dialler.failed(Instant(0), Failure::Refused("why".into()), &mut table, MAX, |pause| pause)
    };
    let after = Next::Dial(Instant(0) + MAX);
    let told = Some(Note::Refused("why".into()));
    assert_eq!(refused(&mut dialler), (after.clone(), told.clone()));
    assert_eq!(refused(&mut dialler), (after.clone(), None), "told already");
    dialler.opened();
    assert_eq!(refused(&mut dialler), (after, told));
}

#[test]
fn only_a_connection_that_lived_longer_than_the_longest_pause_begins_anew() {
    for (life, next) in
        [(Duration::ZERO, PAUSE_MIN * 2), (MAX, PAUSE_MIN * 2), (MAX + Duration::from_nanos(1), PAUSE_MIN)]
    {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.take(MAX), PAUSE_MIN);
        pauses.lived(life, MAX);
        assert_eq!(pauses.take(MAX), next, "after {life:?}");
    }
}
