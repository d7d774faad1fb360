//! Goal: a run of commands is accepted as each of them would be alone. Method: two copies of a leader, random commands,
//! limits and room; both must be the same afterwards, and must have emitted the same.

use kattu_peers::{World, config};
use kattu_raft::{Config, Effects, EntryKind, Instant, Limits, NodeId, Raft};
use proptest::prelude::*;

const LEADER: NodeId = NodeId(1);

fn leader(uncommitted_bytes_max: usize, space: u64) -> Raft {
    let with_limits = |id| {
        let limits = Limits { uncommitted_bytes_max, ..Limits::default() };
        Config { limits, ..config(id, 3, 0) }
    };
    let mut world = World::started((1..=3).map(with_limits).collect(), 7);
    assert!(world.elect(LEADER));
    world.settle();
    let mut raft = world.raft(LEADER).clone();
    raft.set_log_space(space);
    raft
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_run_is_what_its_commands_are_one_by_one(
        lengths in proptest::collection::vec(prop_oneof![8 => 0..200usize, 1 => 20_000..90_000usize], 0..60),
        uncommitted in prop_oneof![Just(usize::MAX), 0..100_000usize],
        space in prop_oneof![Just(u64::MAX), 0..100_000u64],
        leads: bool,
    ) {
        let commands: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(n, &length)| vec![n as u8; length]).collect();
        let payloads: Vec<&[u8]> = commands.iter().map(Vec::as_slice).collect();
        let mut alone = leader(uncommitted, space);
        let now = Instant(1 << 40);
        if !leads {
            // A follower accepts none.
            alone = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), 7).raft(LEADER).clone();
        }
        let mut run = alone.clone();
        let (mut effects_alone, mut effects_run) = (Effects::default(), Effects::default());
        let (mut accepted, mut refused) = (0, None);
        for payload in &payloads {
            match alone.propose(now, EntryKind::Command, payload, &mut effects_alone) {
                Ok(id) => {
                    prop_assert_eq!(id, alone.last_id());
                    accepted += 1;
                }
                Err(why) => {
                    refused = Some(why);
                    break;
                }
            }
        }
        prop_assert_eq!(run.propose_run(now, &payloads, &mut effects_run), (accepted, refused));
        prop_assert!(run == alone, "the peers differ");
        prop_assert_eq!(effects_run, effects_alone);
    }
}
