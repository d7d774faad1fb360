//! Random weather over a small group: messages late, repeated, lost; disks slow; members crashing with part of what
//! was not synced; one seed decides all of it. Then the sky clears and the group must converge.

use super::{World, config};
use kattu_raft::{Config, Duration, Instant, Limits, LinkEnd};

/// The storm's chance; not the peers'.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % sides as u64) as usize
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

/// A group drawn from the seed: 1 to 5 voters, perhaps a learner, switches on or off, limits wide or narrow.
fn draw_group(dice: &mut Dice) -> Vec<Config> {
    let voters = [3, 3, 3, 5, 5, 4, 2, 1][dice.roll(8)];
    let learners = dice.roll(4) as u64 / 3;
    let (guarded, parallel, pipelined, narrow) =
        (!dice.one_in(5), !dice.one_in(4), !dice.one_in(4), dice.one_in(2));
    let narrow_limits = Limits {
        batch_bytes_max: 40,
        batch_entries_max: 3,
        inflight_msgs_max: 2,
        inflight_bytes_max: 60,
        uncommitted_bytes_max: 100,
        apply_bytes_max: 50,
        window_bytes_max: 60,
        ..Limits::default()
    };
    (1..=voters + learners)
        .map(|id| Config {
            pre_vote: guarded,
            check_quorum: guarded,
            parallel_append: parallel,
            pipelining: pipelined,
            limits: if narrow { narrow_limits } else { Limits::default() },
            ..config(id, voters, learners)
        })
        .collect()
}

/// One thing happens.
fn blow(world: &mut World, dice: &mut Dice, proposals: &mut u64) {
    let ids = world.ids();
    let id = ids[dice.roll(ids.len())];
    let anybody = ids[dice.roll(ids.len())];
    match dice.roll(100) {
        // Time moves to the next deadline, or a little; whoever is due is ticked, mostly.
        0..12 => {
            let due = ids.iter().filter(|id| world.runs(**id)).map(|id| world.raft(*id).deadline()).min();
            let jump = due.filter(|due| *due < Instant::NEVER && dice.one_in(3)).unwrap_or(world.now);
            world.now = jump.max(world.now + Duration::from_millis(dice.roll(30) as u64));
            for id in ids {
                if world.runs(id) && world.raft(id).deadline() <= world.now && !dice.one_in(5) {
                    world.tick(id);
                }
            }
        }
        12..45 => {
            for _ in 0..world.wire.len().min(1 + dice.roll(4)) {
                // Mostly in order, now and then any message; now and then a copy stays, or the message is lost.
                let position = if dice.one_in(4) { dice.roll(world.wire.len()) } else { 0 };
                if let Some(envelope) = world.wire.remove(position) {
                    if dice.one_in(12) {
                        world.wire.push_back(envelope.clone());
                    }
                    if !dice.one_in(15) {
                        world.deliver(envelope);
                    }
                }
            }
        }
        45..55 => {
            let target = if dice.one_in(4) { id } else { world.leader().unwrap_or(id) };
            for _ in 0..=dice.roll(3) {
                if world.runs(target) {
                    *proposals += 1;
                    let payload = format!("{:width$}", proposals, width = dice.roll(30));
                    let _ = world.propose(target, payload.as_bytes()); // refusals are part of the weather
                }
            }
        }
        55..65 if world.runs(id) => world.drain(id),
        65..77 if world.runs(id) => {
            let records = if dice.one_in(2) { usize::MAX } else { 1 + dice.roll(3) };
            world.sync(id, records);
        }
        77..81 if world.runs(id) => world.apply(id, 1 + dice.roll(4)),
        81..84 if world.runs(id) => {
            let fails = dice.one_in(4);
            world.fetch(id, fails);
        }
        84..89 if world.runs(id) => {
            world.read(id);
        }
        89 => {
            let surviving = dice.roll(4);
            world.crash(id, surviving);
        }
        90..92 => {
            if !world.runs(id) {
                world.start(id);
            }
        }
        92 => {
            world.cut.insert((id, anybody));
            if dice.one_in(2) {
                world.cut.insert((anybody, id));
            }
        }
        93 => world.cut.clear(),
        94 => {
            let half = 1 + dice.roll(ids.len());
            let (left, right) = ids.split_at(half.min(ids.len()));
            world.partition(&[left.to_vec(), right.to_vec()]);
        }
        95 if world.runs(id) => {
            let end = if dice.one_in(2) { LinkEnd::ByPeer } else { LinkEnd::Otherwise };
            world.act(id, |raft, now, effects| raft.link_closed(now, anybody, end, effects));
        }
        96 if world.runs(id) => world.act(id, |raft, _, _| raft.notify_commit(anybody)),
        97 if world.runs(id) => {
            let bytes = if dice.one_in(2) { u64::MAX } else { dice.roll(100) as u64 };
            world.act(id, |raft, _, _| raft.set_log_space(bytes));
        }
        98 if world.runs(id) => {
            // A completion that says nothing new.
            let lsn = world.peers[&id].disk.durable.lsn;
            world.complete(id, lsn);
        }
        _ => {
            for _ in 0..3 {
                if world.runs(id) {
                    world.attend(id);
                }
            }
        }
    }
}

/// The sky clears: within a few election timeouts a leader commits, and everybody applies the same.
fn clear_up(world: &mut World) {
    world.heal();
    for id in world.ids() {
        world.act(id, |raft, _, _| raft.set_log_space(u64::MAX));
    }
    let calm = world.pass_until(Duration::from_secs(20), |world| {
        let Some(leader) = world.leader() else { return false };
        let leader = world.raft(leader);
        let settled = leader.term_at(leader.committed()) == Some(leader.term());
        settled
            && leader.committed() == leader.last_id().index
            && world.ids().iter().all(|id| {
                let raft = world.raft(*id);
                raft.last_id() == leader.last_id() && raft.applied_handed_out() == leader.committed()
            })
    });
    let states: Vec<String> = world.ids().iter().map(|id| super::show::status(world.raft(*id))).collect();
    assert!(calm, "no convergence in 20 s after the storm: {states:#?}");
    let leader = world.leader().expect("a leader");
    let target = world.propose(leader, b"after the storm").expect("a healed leader takes proposals").index;
    for id in world.ids() {
        world.read(id);
    }
    let served = world.pass_until(Duration::from_secs(5), |world| {
        let confirmed = world.ids().iter().all(|id| world.raft(*id).confirmed().is_some());
        let all = |peer: &super::Peer| peer.reading.is_empty() && peer.store.len() as u64 == target.0;
        confirmed && world.peers.values().all(all)
    });
    assert!(served, "a healed group applies, reads, and has heard of a commit of the newest term");
}

/// One storm and the calm after it. Panics if anything that must not happen does.
pub fn storm(seed: u64, steps: usize) -> World {
    let mut dice = Dice(seed);
    let mut world = World::new(draw_group(&mut dice), seed);
    for id in world.ids() {
        world.start(id);
    }
    let mut proposals = 0;
    for _ in 0..steps {
        blow(&mut world, &mut dice, &mut proposals);
    }
    clear_up(&mut world);
    world
}
