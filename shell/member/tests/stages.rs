//! Stages: what is followed through a member, and when each stage is reached.

use crate::batch::{Bench, Lone, batch, carry_out, get, leader, put};
use kattu_member::stages::{LASTS_MAX, PAUSE, Path, Sample};
use kattu_member::step::LIMITS;
use kattu_node::contract::Request;
use kattu_raft::Duration;

const MS: Duration = Duration::from_millis(1);

fn samples(member: &mut Lone) -> Vec<Sample> {
    member.samples().collect()
}

/// One request, received a millisecond before it is taken in.
fn ask(bench: &mut Bench, client: u64, request: Request) {
    bench.received = Some(bench.now);
    bench.now += MS;
    bench.calls.push_back((client, request));
}

fn ready() -> (Lone, Bench) {
    let (member, mut bench) = leader(LIMITS);
    bench.now += PAUSE;
    (member, bench)
}

#[test]
fn a_write_is_followed_to_its_answer_and_each_stage_has_its_time() {
    let (mut member, mut bench) = ready();
    assert!(member.wants_stamps(bench.now).write);
    bench.beside = true; // its log answers a batch later
    ask(&mut bench, 1, put("a"));
    batch(&mut member, &mut bench);
    assert!(bench.answers.is_empty() && samples(&mut member).is_empty());
    assert!(!member.wants_stamps(bench.now).write, "one at a time");
    assert!(member.wants_stamps(bench.now).read);
    bench.now += MS * 4;
    batch(&mut member, &mut bench);
    let [sample] = samples(&mut member)[..] else { panic!("one") };
    assert_eq!(sample.path, Path::Write);
    let at = |name: &str| {
        let stage = Path::Write.stages().iter().position(|stage| *stage == name).expect("a stage");
        sample.at[stage]
    };
    assert_eq!((at("taken"), at("proposed"), at("sent")), (Some(MS), Some(MS), None), "it is alone");
    for stage in ["stored", "replicated", "committed", "applied"] {
        assert_eq!(at(stage), Some(MS * 5), "{stage}");
    }
    assert_eq!(sample.end, MS * 5);
    assert!(!member.wants_stamps(bench.now).write, "a pause");
    bench.now += PAUSE;
    assert!(member.wants_stamps(bench.now).write);
}

#[test]
fn a_read_is_followed_and_one_without_a_stamp_is_not() {
    let (mut member, mut bench) = ready();
    bench.calls.push_back((1, get("a")));
    batch(&mut member, &mut bench);
    assert_eq!((bench.answers.len(), samples(&mut member).len()), (1, 0));
    ask(&mut bench, 2, get("a"));
    batch(&mut member, &mut bench);
    let [sample] = samples(&mut member)[..] else { panic!("one") };
    assert_eq!(sample.path, Path::Read);
    assert_eq!(sample.at[..3], [Some(MS); 3]);
    assert_eq!(sample.end, MS);
}

#[test]
fn what_is_refused_is_no_sample_and_what_takes_too_long_is_given_up() {
    let (mut member, mut bench) = ready();
    bench.beside = true;
    ask(&mut bench, 1, put("a"));
    batch(&mut member, &mut bench);
    bench.now += LASTS_MAX.saturating_sub(MS); // it was received a millisecond ago
    assert!(!member.wants_stamps(bench.now).write);
    bench.now += MS;
    assert!(member.wants_stamps(bench.now).write);
    batch(&mut member, &mut bench);
    assert_eq!((bench.answers.len(), samples(&mut member).len()), (1, 0));

    ask(&mut bench, 2, Request::Status);
    batch(&mut member, &mut bench);
    assert!(samples(&mut member).is_empty(), "a status has no stages");

    ask(&mut bench, 3, put("b"));
    batch(&mut member, &mut bench);
    let Ok(()) = member.stop(&mut bench);
    carry_out(&mut member, &mut bench);
    assert_eq!((bench.answers.len(), samples(&mut member).len()), (3, 0), "its outcome is unknown");
}
