//! Tuning: what a member does with settings while clients wait, and that a keeper moves between threads with all that lies on it.

use crate::batch::{Bench, ET, Lone, batch, carry_out, catch_up, get, is_done, large_put, leader, put};
use kattu_kv::api as kv;
use kattu_member::host::Host;
use kattu_member::step::{LIMITS, Limits};
use kattu_member::tuning::{Setting, Threading};
use kattu_node::command::encode_kv;
use kattu_node::contract::{Outcome, Reply, ReplyBody, Request};
use kattu_raft::LogBody;

fn tune(member: &mut Lone, bench: &mut Bench, given: &[(&str, &str)]) {
    bench.settings = Some(Setting::parse(given.iter().copied()).expect("settings"));
    batch(member, bench);
    let tuned = bench.tuned.pop().expect("the caller is told");
    assert_eq!(tuned, Ok(*member.tuning()));
    for (name, value) in given {
        let shown = member.tuning().shown().find(|(named, _)| named.name == *name).expect("it is shown");
        assert_eq!(shown.1, *value);
    }
}

/// Its own thread works once.
fn work_apart(bench: &mut Bench) {
    let Some(mut apart) = bench.apart.take() else { return };
    for batch in std::mem::take(&mut bench.batches) {
        assert!(!apart.is_returning(), "nothing is delivered behind the order to return");
        drop(apart.take_in(bench, batch));
    }
    if !apart.is_returning() {
        let Ok(_) = apart.work(bench, &mut LIMITS.slice.clone());
    }
    if let Some((progress, answers)) = apart.report() {
        bench.answers.extend(answers);
        bench.progress.push_back(progress);
    }
    match apart.is_returning() {
        true => bench.progress.push_back(apart.last_report()),
        false => bench.apart = Some(apart),
    }
}

/// Goal: no client is forgotten or answered twice, and no task is lost, wherever the keeper is when they come. Method: puts and
/// reads come all the time, the keeper is sent away and called home in between, and its slices are short, so that work always
/// lies on the desk.
#[test]
fn a_keeper_moves_between_threads_with_all_that_lies_on_it() {
    let limits = Limits { slice: 3, ..LIMITS };
    let (mut member, mut bench) = leader(limits);
    let (mut asked, mut parted, mut recalled, mut under_way) = (0, 0, 0, 0);
    for round in 0..400_u64 {
        if round < 300 {
            for request in [put("a"), large_put("b"), get("a")] {
                asked += 1;
                bench.calls.push_back((asked, request));
            }
        }
        if round % 7 == 3 && round < 300 {
            let place = if round % 2 == 0 { Threading::Inline } else { Threading::Thread };
            under_way += usize::from(!member.waiting().is_empty());
            bench.settings = Some(vec![Setting::Apply(place)]);
        }
        batch(&mut member, &mut bench);
        if round % 3 != 0 {
            work_apart(&mut bench);
        }
        parted += bench.steps.iter().filter(|step| **step == "part").count();
        recalled += bench.steps.iter().filter(|step| **step == "recall").count();
        bench.steps.clear();
    }
    for _ in 0..10_000 {
        work_apart(&mut bench);
        batch(&mut member, &mut bench);
    }
    assert!(bench.tuned.iter().all(Result::is_ok));
    assert!(10 < parted && 10 < recalled && 10 < under_way, "{parted} {recalled} {under_way}");
    let mut answered: Vec<u64> = bench.answers.iter().map(|(client, _)| *client).collect();
    answered.sort_unstable();
    assert_eq!(answered, (1..=asked).collect::<Vec<_>>(), "each client once");
    assert!(bench.answers.iter().all(|(_, outcome)| is_done(outcome)));
    assert!(member.waiting().is_empty() && !member.awaits_desk());
}

#[test]
fn a_keeper_for_which_there_is_no_thread_stays() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.has_no_thread = true;
    bench.settings = Some(vec![Setting::Apply(Threading::Thread)]);
    bench.calls.push_back((1, put("a")));
    batch(&mut member, &mut bench);
    catch_up(&mut member, &mut bench);
    assert!(bench.steps.contains(&"stay"));
    assert_eq!(member.tuning().apply, Threading::Inline);
    assert!(is_done(&bench.answers[0].1));
}

#[test]
fn a_sync_covers_as_many_entries_as_a_message() {
    let (mut member, mut bench) = leader(LIMITS);
    let syncs = |member: &mut Lone, bench: &mut Bench, puts: u64| {
        bench.records.clear();
        bench.steps.clear();
        bench.calls.extend((0..puts).map(|client| (client, large_put("a"))));
        batch(member, bench);
        catch_up(member, bench);
        let entries = bench.records.iter().filter(|record| matches!(record.body, LogBody::Entry(_)));
        assert_eq!(entries.count() as u64, puts);
        assert_eq!(bench.answers.len() as u64, puts);
        bench.answers.clear();
        bench.steps.iter().filter(|step| step.starts_with("persist")).count()
    };
    assert_eq!(syncs(&mut member, &mut bench, 8), 1);
    tune(&mut member, &mut bench, &[("batching", "off")]);
    assert_eq!(syncs(&mut member, &mut bench, 8), 8);
    tune(&mut member, &mut bench, &[("batching", "on"), ("batch-entries-max", "3")]);
    assert_eq!(syncs(&mut member, &mut bench, 8), 3);
    tune(&mut member, &mut bench, &[("batch-entries-max", "8")]);
    assert_eq!(syncs(&mut member, &mut bench, 8), 1);
}

/// A member that is to sync each entry alone must not be deaf as long as a crowd of them takes.
#[test]
fn between_two_syncs_of_one_batch_others_are_served() {
    let (mut member, mut bench) = leader(LIMITS);
    tune(&mut member, &mut bench, &[("batching", "off")]);
    bench.steps.clear();
    bench.calls.extend((0..8).map(|client| (client, large_put("a"))));
    for sync in 1..=8 {
        bench.calls.push_back((100 + sync, Request::Status));
        bench.now += ET / 4; // a sync may take as long
        batch(&mut member, &mut bench);
        let place = |wanted: u64| bench.answers.iter().position(|(client, _)| *client == wanted);
        assert!(place(100 + sync).is_some(), "it is answered behind sync {sync}");
        let syncs = bench.steps.iter().filter(|step| step.starts_with("persist")).count() as u64;
        assert_eq!(syncs, sync, "one sync, then all that has arrived");
        assert_eq!(member.is_busy(), sync < 8, "it goes on without an arrival");
    }
    catch_up(&mut member, &mut bench);
    assert_eq!(bench.answers.iter().filter(|(client, outcome)| *client < 8 && is_done(outcome)).count(), 8);
}

#[test]
fn settings_are_taken_together_or_not_at_all() {
    let (mut member, mut bench) = leader(LIMITS);
    let before = *member.tuning();
    // What no parser lets through.
    bench.settings = Some(vec![Setting::ParallelAppend(false), Setting::InflightMsgsMax(0)]);
    batch(&mut member, &mut bench);
    let rule = bench.tuned.pop().expect("it is told").expect_err("none in flight");
    assert!(rule.contains("one append in flight"), "{rule}");
    assert_eq!((*member.tuning(), member.node().tuning()), (before, before.node));
    assert!(!bench.steps.contains(&"tune"));
    tune(&mut member, &mut bench, &[("parallel-append", "off"), ("sync-delay", "1ms")]);
    assert!(bench.steps.contains(&"tune"), "the executor goes by it");
    assert_eq!(member.node().tuning(), member.tuning().node);
    // Without settings the caller is told what is.
    bench.steps.clear();
    tune(&mut member, &mut bench, &[]);
    assert!(!bench.steps.contains(&"tune"));
    assert!(bench.now() >= kattu_raft::Instant(0));
}

#[test]
fn entries_are_held_back_in_order_until_something_happens_and_a_member_that_stops_holds_nothing_back() {
    let (mut member, mut bench) = leader(LIMITS);
    tune(&mut member, &mut bench, &[("apply-entries-max", "1")]);
    bench.calls.extend((0..8).map(|client| (client, large_put("a"))));
    let answered = |bench: &Bench| -> Vec<u64> {
        let all = bench.answers.iter().map(|(client, outcome)| {
            assert!(is_done(outcome), "{outcome:?}");
            *client
        });
        all.collect()
    };
    for entries in 1..=4 {
        bench.calls.push_back((100, Request::Status));
        batch(&mut member, &mut bench);
        let status = bench.answers.iter().position(|(client, _)| *client == 100);
        bench.answers.remove(status.expect("it waits for no entry"));
        assert_eq!(answered(&bench), (0..entries).collect::<Vec<_>>(), "one a batch");
        assert_eq!(
            (member.tasks_waiting() as u64, member.is_busy()),
            (8 - entries, false),
            "it waits for an arrival"
        );
    }
    tune(&mut member, &mut bench, &[("apply-entries-max", "2")]);
    assert_eq!(answered(&bench).len(), 5, "the batch had begun with the former limit");
    batch(&mut member, &mut bench);
    assert_eq!(answered(&bench).len(), 7);
    let Ok(()) = member.stop(&mut bench);
    carry_out(&mut member, &mut bench);
    assert_eq!(answered(&bench), (0..8).collect::<Vec<_>>());
}

#[test]
fn early_answers_are_for_puts_that_need_no_result_and_come_before_any_disk() {
    let (mut member, mut bench) = leader(LIMITS);
    tune(&mut member, &mut bench, &[("unsafe-early-answers", "on")]);
    (bench.answered_early, bench.beside) = (true, true);
    let before = kv::Put { key: b"a".to_vec(), prev_kv: true, ..kv::Put::default() };
    let before = Request::Write(encode_kv(&kv::Command::Put(before)).into());
    bench.calls.extend([(1, put("a")), (2, before), (3, large_put("a"))]);
    batch(&mut member, &mut bench);
    let revisions = |bench: &Bench| -> Vec<(u64, i64)> {
        let revision = |(client, outcome): &(u64, Outcome)| match outcome {
            Outcome::Done(Reply { body: ReplyBody::Kv(response), .. }) => (*client, response.revision.0),
            other => panic!("{other:?}"),
        };
        bench.answers.iter().map(revision).collect()
    };
    assert_eq!(revisions(&bench), [(1, 0), (3, 0)], "nothing is stored yet");
    assert!(!bench.completions.is_empty());
    catch_up_beside(&mut member, &mut bench);
    let mut all = revisions(&bench);
    all.sort_unstable();
    assert_eq!(all.len(), 3);
    assert!(0 < all[1].1, "the one that needs its result has it: {all:?}");
    let late = bench.steps.iter().filter(|step| **step == "answered before").count();
    assert_eq!(late, 2);
    // Off again, a put is answered once, when it is applied.
    tune(&mut member, &mut bench, &[("unsafe-early-answers", "off")]);
    (bench.answered_early, bench.beside) = (false, false);
    bench.answers.clear();
    bench.calls.push_back((4, put("b")));
    batch(&mut member, &mut bench);
    assert!(matches!(revisions(&bench)[..], [(4, revision)] if 0 < revision));
}

/// Batches until all that was stored beside the member is taken in.
fn catch_up_beside(member: &mut Lone, bench: &mut Bench) {
    while !bench.completions.is_empty() || member.is_busy() {
        batch(member, bench);
    }
}
