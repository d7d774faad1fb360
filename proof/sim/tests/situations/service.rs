//! Service over slow links: what crosses them is new, and a follower that comes back far behind catches up in about the
//! time that its bytes take on the link. [fault-model F33, F51]
//!
//! Three members with etcd's times and production's limits. Times are those of the world.

use kattu_sim::beside::Beside;
use kattu_sim::campaign::run_storms;
use kattu_sim::service::{CaughtUp, SlowLink, forget, pour, rush, slow_link};
use kattu_sim::{Family, Options, Plan, run_storm};
use kattu_verify::service::percentile;

const MB: u64 = 1_000_000;
const SEC: u64 = 1_000_000_000;
/// Four times what may be under way to one peer.
const BEHIND: u64 = 64 << 20;
/// The share of new bytes among those that cross the link, at least.
const GOODPUT_MIN: f64 = 0.85;
/// Time to catch up, at most, in times that the bytes alone take.
const STRETCH_MAX: f64 = 1.3;

fn run(situation: SlowLink) -> CaughtUp {
    slow_link(1, &situation).unwrap_or_else(|violation| panic!("{situation:?}: {violation}"))
}

fn expect_served(situation: SlowLink) {
    let came = run(situation);
    let story = format!(
        "{situation:?}: {} bytes crossed, {} of them new: {:.2}; behind by {}, caught up in {:?} ns, {:.2} times what \
         the link takes, {} resets; {} bytes waited at most, {} entries in the window",
        came.link.sent,
        came.link.taken,
        came.link.ratio(),
        came.behind,
        came.took,
        came.stretch(),
        came.resets,
        came.waiting_max,
        came.early_max
    );
    println!("{story}");
    assert!(GOODPUT_MIN <= came.link.ratio() && came.stretch() <= STRETCH_MAX, "{story}");
    assert!(!situation.has_streams || 0 < came.early_max, "nothing came early: {story}");
    let resets_min = if situation.reset_every > 0 { RESETS_MIN } else { 0 };
    assert!(resets_min <= came.resets, "what shows what a reset costs sees some: {story}");
}

/// A situation with resets has at least this many.
const RESETS_MIN: u32 = 2;

const QUIET: SlowLink = SlowLink::quiet(10 * MB, BEHIND);

#[test]
fn a_link_that_is_no_bottleneck_carries_nothing_twice() {
    for rate in [400 * MB, 1250 * MB] {
        for reads in [0, 200] {
            let came = run(SlowLink { rate, reads, ..QUIET });
            assert!(0.99 <= came.link.ratio() && came.took.is_some_and(|took| took < SEC), "{came:?}");
        }
    }
}

#[test]
fn a_follower_catches_up_over_ten_megabytes_a_second() {
    expect_served(QUIET);
}

#[test]
fn a_follower_catches_up_over_fifty_megabytes_a_second() {
    expect_served(SlowLink { rate: 50 * MB, ..QUIET });
}

#[test]
fn reads_repeat_nothing() {
    expect_served(SlowLink { reads: 200, ..QUIET });
    expect_served(SlowLink { rate: 50 * MB, reads: 200, ..QUIET });
}

#[test]
fn writes_meanwhile_repeat_nothing() {
    expect_served(SlowLink { writes: 500, ..QUIET });
    expect_served(SlowLink { rate: 50 * MB, writes: 500, ..QUIET });
}

/// Goal: over four connections, in any order, a slow link carries little twice: a question waits for what was sent before it
/// on each connection, and what is sent again because later appends have come has a budget.
#[test]
fn several_connections_of_a_slow_link_carry_little_twice() {
    let several = SlowLink { writes: 500, has_streams: true, ..QUIET };
    expect_served(SlowLink { rate: MB, behind: 12 * MB, ..several });
    expect_served(SlowLink { large: 8, lasts: 12 * SEC, ..several });
}

#[test]
fn a_reset_costs_what_was_under_way_and_no_more() {
    let far_behind = |rate| SlowLink { rate, behind: 12 * rate, reset_every: 5 * SEC, ..QUIET };
    expect_served(far_behind(10 * MB));
    expect_served(SlowLink { reads: 200, ..far_behind(50 * MB) });
}

/// A chunk takes longer than an election timeout there.
#[test]
fn a_snapshot_over_one_megabyte_a_second_crosses_once() {
    let slow = SlowLink { rate: MB, behind: 12 << 20, by_snapshot: true, ..QUIET };
    expect_served(slow);
    expect_served(SlowLink { reads: 200, ..slow });
    expect_served(SlowLink { rate: 10 * MB, behind: 40 << 20, ..slow });
}

/// Chunks of snapshots have a connection of their own, which does not end when the others do: the chunk on it goes on.
#[test]
fn a_reset_of_the_other_lanes_repeats_no_piece_of_a_snapshot() {
    let slow = SlowLink { rate: 600_000, behind: 12 << 20, by_snapshot: true, ..QUIET };
    expect_served(SlowLink { reset_every: 5 * SEC, ..slow });
}

/// Goal: a member that comes back by a snapshot catches up some time, although clients write half of what its link
/// carries, and more: it does not get one snapshot after the other.
#[test]
fn a_follower_that_gets_a_snapshot_under_writes_is_level_some_time() {
    for (writes, behind) in [(300, 12 << 20), (500, 12 << 20), (500, 20 << 20), (600, 20 << 20)] {
        let came = run(SlowLink { rate: MB, behind, writes, by_snapshot: true, ..QUIET });
        let level = came.level.map(|at| at as f64 / came.ideal as f64);
        let story = format!(
            "{writes} writes a second, {behind} behind: a snapshot after {:.2} times what the link takes, level after {level:?}",
            came.stretch()
        );
        let story = format!("{story}; {:.2} of what crossed was new", came.link.ratio());
        println!("{story}");
        assert!(GOODPUT_MIN <= came.link.ratio(), "{story}");
        assert!(came.stretch() <= STRETCH_MAX && level.is_some_and(|level| level < 4.0), "{story}");
    }
}

#[test]
fn storms_with_much_to_do_at_the_disk_are_served() {
    let options = Options { family: Family::BusyDisks, seconds: Some(20), ..Options::default() };
    let sum = run_storms(1..6, 2, usize::MAX, &options, |_| {});
    println!("{}", sum.service);
    assert!(sum.violations.is_empty(), "{:?}", sum.violations);
    let p99 = |times: &[u64]| percentile(&mut times.to_vec(), 990);
    let quiet = p99(&sum.service.quiet);
    for what in Beside::ALL {
        let times = &sum.service.beside[&what];
        assert!(1000 < times.len() && quiet < p99(times), "{what:?} costs something:\n{}", sum.service);
    }
    assert!(sum.counts.snapshots > 20 && sum.counts.prunes > 20, "{}", sum.counts);
    assert_eq!(sum.lacks(Family::BusyDisks), Vec::<String>::new());
}

#[test]
fn a_storm_of_service_takes_one_course_and_keeps_it_when_a_fault_is_left_out() {
    let options = Options { family: Family::SlowMembers, seconds: Some(20), ..Options::default() };
    let first = run_storm(3, &options);
    assert_eq!(first.hash, run_storm(3, &options).hash);
    assert_ne!(first.hash, run_storm(4, &options).hash);
    let all = Plan::draw(3, &options);
    let keep: Vec<u32> = all.injections.iter().map(|(number, _)| *number).skip(1).collect();
    let fewer = Plan::draw(3, &Options { keep: Some(keep), ..options });
    assert_eq!(format!("{:?}", &all.injections[1..]), format!("{:?}", fewer.injections));
}

#[test]
fn ten_times_the_load_that_can_be_served_leaves_nothing_behind() {
    for seed in 0..2 {
        let rushed = rush(seed, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        println!("seed {seed}: {rushed:?}");
        assert!(rushed.refused > 1000, "early refusals are what keeps it going: {rushed:?}");
    }
}

#[test]
fn clients_that_write_more_than_links_carry_are_refused_and_not_held() {
    for seed in 1..3 {
        let most = pour(seed, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(3 << 20 < most, "seed {seed}: {most} bytes are no test of the bound");
    }
}

#[test]
fn history_is_forgotten_in_small_steps() {
    for seed in 1..3 {
        let largest = forget(seed, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        println!("seed {seed}: {largest:?}");
        assert!(0 < largest.keys, "seed {seed}: nothing was forgotten: {largest:?}");
    }
}
