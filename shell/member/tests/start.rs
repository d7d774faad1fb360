//! What a member is before anything has come: with nothing to do, and with room to grow.

use kattu_member::capacity::{Capacity, Sight};
use kattu_member::log::LogSpace;
use kattu_member::member::Member;
use kattu_member::step::{LIMITS, Placed, Stage};
use kattu_node::contract::{MemberInfo, Space};
use kattu_node::{Keeper, Node, NodeConfig};
use kattu_raft::{Config, Instant, NodeId, RecordEncoder, Recovered};

const ME: NodeId = NodeId(1);

#[test]
fn a_member_that_has_just_started_has_nothing_to_do_wherever_its_keeper_is() {
    for is_apart in [false, true] {
        let keeper = Keeper::new(vec![MemberInfo { id: ME, ..MemberInfo::default() }]);
        let placed = match is_apart {
            true => Placed::Apart(keeper.members(), keeper.health()),
            false => Placed::Here(Box::new(keeper)),
        };
        let config = NodeConfig::new(Config::new(ME, [ME], RecordEncoder::BARE));
        let node = Node::recover(config, 1, Instant(0), Recovered::default());
        let room = LogSpace { free: 1 << 20, full: false };
        let member: Member<u64, ()> =
            Member::start(Instant(0), node, placed, Capacity::new(1 << 30), room, LIMITS);
        assert!(!member.is_busy(), "it would never wait for anything");
        assert_eq!((member.stage(), member.desk().is_none()), (Stage::Idle, is_apart));
        assert!(member.waiting().is_empty());
        assert_eq!(member.capacity().space(), Space { log_bytes: 1 << 20, short: false });
    }
}

#[test]
fn nothing_is_short_before_anything_was_looked_at() {
    assert_eq!(Capacity::new(1).look(Sight::default(), None), None);
}
