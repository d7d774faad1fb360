//! Scenes: a situation for each bug that breaks no guarantee which a storm could check at every step.
//!
//! | Bug | What must be true in its scene |
//! |---|---|
//! | `check-quorum-hears-one` | a leader that a quorum does not answer steps down |
//! | `stickiness-switched-off` | a partial partition costs no election |
//! | `unfit-member-never-asks-again` | two whole members of three have a leader (`elections.rs`) |
//! | `pre-candidate-votes-and-asks-on` | a voter that elected a leader does not depose it (`elections.rs`) |
//! | `restarted-voter-deposes-its-leader` | a restart and one lost link cost no election (`elections.rs`) |
//! | `open-questions-all-repeated` | a follower with many open reads repeats one request (`questions.rs`) |
//! | `question-overtakes-entries`, `sent-again-because-time-passed`, `unanswered-piece-sent-again`, `piece-sent-again-for-another-link`, `question-overtakes-on-another-link`, `gaps-sent-again-without-a-budget` | a slow link carries what is new (`flow.rs`) |
//! | `log-pruned-under-who-is-fed` | a member that gets a snapshot catches up some time, whatever clients write (`flow.rs`) |
//! | `written-off-entries-not-counted`, `sent-without-room`, `room-told-of-by-heartbeats-only`, `recent-entries-kept-for-nobody`, `clients-never-slowed`, `slowed-clients-wait-without-a-bound`, `snapshot-on-its-way-is-no-gain` | what is on its way to a peer is bounded by limits and room, and comes from memory where the peer keeps up (`flow.rs`) |
//! | `link-that-ends-sends-again`, `small-appends-overtake-large-ones`, `entry-without-room-waits-for-a-heartbeat`, `who-is-full-agrees-with-nothing`, `who-is-behind-is-asked-every-round` | nothing is sent twice or in vain, and no follower waits for a heartbeat (`ways.rs`) |
//! | `watched-for-one-election-timeout`, `nobody-told-where-nobody-is-slowed` | a returning member is given time, and one that falls behind is reported (`flow.rs`) |
//! | `loss-seen-by-where-a-log-ends` | entries that a disk has lost are sent again (`older.rs`) |
//! | `client-writes-taken-as-they-come` | the log gets what clients may write, and nothing else (`strange.rs`) |
//! | `forgetting-paced-by-commands` | compacted versions are removed, however many keys a command changes (`slices.rs`) |
//! | `forwarded-write-waits-for-no-room` | `NoSpace` is answered only when there is none (`room.rs`) |
//! | `snapshot-overtakes-gathered-entries` | a store gets no entries behind what it holds (`gathered.rs`) |
//! | `waiting-snapshot-removed` | a snapshot that waits to be installed is there when its turn comes (`waiting.rs`) |
//! | `late-pre-vote-counts-again` | a leader stays once its heartbeats arrive again (`elections.rs`) |
//! | `read-without-a-quorum-round`, `older-round-confirms-reads`, `reads-outlive-their-leader` | the answers to clients are linearizable (`deposed.rs`) |
//! | `late-append-confirms-a-restart` | a member never serves an older state than it did before its restart |
//! | `at-least-read-before-its-index` | a reader sees what it has seen, at any member |
//! | `forward-taken-in-another-term` | a forwarded write is taken in the term that it was meant for, or never |
//! | `freshness-dated-by-its-answer` | a bounded read sees what was answered longer ago than its bound, however long the leader's answer takes |
//! | `one-member-applies-publications-in-its-own-way`, `alarm-names-those-who-agree` | members that compare report the divergent one, and no other (`divergent.rs`) |
//! | `removed-id-used-again`, `snapshot-lacks-the-change-before-it`, `vote-by-refilled-disk`, `roll-told-from-memory`, `vote-before-publication`, `change-answered-before-it-is-complete` | a member joins and leaves once, completely, and as it was answered (`members.rs`) |
//! | `floor-forgotten-at-restart`, `names-in-doubt-taken-for-durable` | a repaired log has the same vote floor after a restart (`damaged.rs`) |
//! | `told-of-lost-entries-and-votes-on` | a member informed of a loss on its disk votes by what it had (`damaged.rs`) |
//! | `returns-without-asking`, `reminded-of-a-term-and-votes-in-it`, `reminded-of-acknowledgements-and-owes-none`, `reminded-of-commits-and-votes-below`, `reminded-of-commits-and-leads-below`, `counts-votes-for-an-earlier-log`, `begins-without-the-others`, `answered-by-one-and-has-a-past` | a started member learns from the others what it acknowledged before it votes or campaigns, and counts no votes for a log that it has lost (`returning.rs`) |
//! | `own-disk-compared-with-the-slowest`, `slow-disk-left-at-once` | a leader on a slow disk transfers leadership, and not again and again (`slow_disks.rs`) |
//! | `forwarded-command-unchecked` | damage on the way is noticed, in whichever field (`frames.rs`) |
//! | `level-forgotten-with-the-link-out` | the cluster rises to the level that all its members have announced (`levels.rs`) |
//! | `lease-counted-in-one-set` | while a leader lease holds no other member leads, also during a change of members (`leader_leases.rs`) |
//! | `lease-kept-though-clocks-differ` | a leader with proof that clocks run apart has no leader lease (`clocks.rs`) |
//! | `taken-back-but-for-its-digest`, `delete-counts-its-last-slice`, `missing-keys-cost-nothing`, `slices-as-long-as-the-request`, `reads-in-the-middle-of-a-change`, `read-goes-on-in-other-tables` | work in slices has the result of work in one go, in short steps (`slices.rs`) |
//! | `any-term-believed`, `any-count-believed`, `unreadable-entries-taken`, `unreadable-snapshot-taken`, `unasked-votes-counted`, `snapshot-of-a-term-to-come-taken`, `acknowledgement-beyond-the-log-believed`, `round-to-come-believed`, `lives-of-learners-without-end` | lies of peers end no member, and cost bounded memory (`lies.rs`) |
//! | `a-snapshot-due-that-cannot-be-taken` | a member that joined turns only while it gets somewhere (`members.rs`) |
//! | `compacted-read-judged-by-tidying` | stores that remove old versions at different paces answer and end alike |
//! | `rebuilt-at-the-old-revision`, `rebuilt-under-the-old-id`, `restored-in-place` | a new cluster made from an old one has all its data, higher revisions and an id of its own (`rebuilt.rs`) |
//! | `weak-budget-ignored`, `keepers-word-counts-too-late`, `in-step-across-terms`, `loss-of-a-weak-answer-untold` | a weak answer is for what will be executed, within the budget, and has a true end (`weak.rs`) |
//!
//! Scenes of stores that go through bytes are in `round_trips.rs`.
//! Knows nothing of: bugs other than these.

mod clocks;
mod damaged;
mod deposed;
mod divergent;
mod elections;
mod flow;
mod frames;
mod gathered;
mod leader_leases;
mod levels;
mod lies;
mod members;
mod older;
mod questions;
mod rebuilt;
mod returning;
mod room;
mod slices;
mod slow_disks;
mod strange;
mod waiting;
mod ways;
mod weak;

use crate::round_trips;
use kattu_disk::Dice;
use kattu_kv::api::{Command, DeleteRange, KeyRange, Operation, Put, Range, Revision, Txn};
use kattu_kv::store::{Pace, Store};
use kattu_node::contract::{Consistency, Event, PeerMessage};
use kattu_raft::{Duration, Message, NodeId};
use kattu_replicas::{ET, World, get, is_done, put, value_of};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Plays the scene of the named bug.
///
/// # Panics
/// If what must be true is not, or if there is no such scene.
pub fn trial(name: &str, seed: u64) {
    match name {
        "check-quorum-hears-one" => a_leader_that_one_peer_hears(seed),
        "stickiness-switched-off" => a_link_between_two_of_three(seed),
        "unfit-member-never-asks-again" => elections::a_member_that_is_whole_again(seed),
        "pre-candidate-votes-and-asks-on" => elections::a_vote_of_who_asks_itself(seed),
        "a-snapshot-due-that-cannot-be-taken" => members::a_snapshot_due_before_the_group_is_known(seed),
        "restarted-voter-deposes-its-leader" => elections::a_restart_and_a_lost_link(seed),
        "open-questions-all-repeated" => questions::of_one_that_commits_nothing(seed),
        "question-overtakes-entries" | "sent-again-because-time-passed" => flow::a_slow_link(seed),
        "question-overtakes-on-another-link" => flow::a_slow_link_of_several_connections(seed),
        "gaps-sent-again-without-a-budget" => flow::large_puts_beside_small_ones(seed),
        "unanswered-piece-sent-again" => flow::a_slow_link_for_a_snapshot(seed),
        "piece-sent-again-for-another-link" => flow::a_snapshot_beside_resets(seed),
        "log-pruned-under-who-is-fed" => flow::a_snapshot_under_writes(seed),
        "written-off-entries-not-counted" => flow::a_lost_append(seed),
        "written-off-entries-leave-with-a-heartbeat" => flow::a_lost_copy(seed),
        "sent-without-room" => flow::a_follower_without_room(seed),
        "room-told-of-by-heartbeats-only" => flow::room_that_comes_back(seed),
        "clients-never-slowed" | "slowed-clients-wait-without-a-bound" => {
            flow::a_voter_that_does_not_gain(seed);
        }
        "snapshot-on-its-way-is-no-gain" => flow::a_voter_that_gets_a_snapshot(seed),
        "recent-entries-kept-for-nobody" => flow::a_follower_a_little_late(seed),
        "link-that-ends-sends-again" => ways::a_link_that_ends(seed),
        "small-appends-overtake-large-ones" => ways::small_appends_behind_one_that_is_read(seed),
        "entry-without-room-waits-for-a-heartbeat" => ways::an_entry_larger_than_the_room(seed),
        "who-is-full-agrees-with-nothing" => ways::a_full_follower_that_holds_much(seed),
        "who-is-behind-is-asked-every-round" => ways::many_reads_beside_one_that_is_behind(seed),
        "watched-for-one-election-timeout" => flow::a_voter_whose_first_append_takes_long(seed),
        "nobody-told-where-nobody-is-slowed" => flow::clients_that_are_never_slowed(seed),
        "loss-seen-by-where-a-log-ends" => older::older_entries_in_the_place_of_newer(seed),
        "client-writes-taken-as-they-come" => strange::a_change_that_comes_as_a_write(seed),
        "forgetting-paced-by-commands" => slices::transactions_that_change_many_keys(seed),
        "forwarded-write-waits-for-no-room" => room::a_write_that_comes_early(seed),
        "snapshot-overtakes-gathered-entries" => gathered::a_snapshot_behind_entries(seed),
        "waiting-snapshot-removed" => waiting::tables_that_lag_behind_snapshots(seed),
        "late-pre-vote-counts-again" => elections::a_yes_that_comes_late(seed),
        "read-without-a-quorum-round" => deposed::a_read(seed),
        "older-round-confirms-reads" => deposed::an_answer_from_before_the_read(seed),
        "reads-outlive-their-leader" => deposed::the_next_leader_is_heard_of(seed),
        "late-append-confirms-a-restart" => an_append_from_before_the_restart(seed),
        "at-least-read-before-its-index" => a_reader_that_moves(seed),
        "forward-taken-in-another-term" => a_forward_of_an_earlier_term(seed),
        "freshness-dated-by-its-answer" => an_answer_that_was_long_on_its_way(seed),
        "taken-back-but-for-its-digest" => slices::a_transaction_that_fails_late(seed),
        "delete-counts-its-last-slice" => slices::a_delete_that_is_counted(seed),
        "missing-keys-cost-nothing" => slices::conditions_on_missing_keys(seed),
        "slices-as-long-as-the-request" => slices::a_delete_of_everything(seed),
        "reads-in-the-middle-of-a-change" => slices::a_count_beside_a_delete(seed),
        "read-goes-on-in-other-tables" => slices::a_read_and_a_snapshot(seed),
        "compacted-read-judged-by-tidying" => stores_of_another_pace(seed),
        "pin-lacks-the-newest-change"
        | "dump-forgets-deletes-at-the-compacted-revision"
        | "load-breaks-the-order-in-a-revision" => round_trips::through_bytes(seed),
        "digest-sees-what-may-be-forgotten" | "hash-counts-what-may-be-forgotten" => {
            round_trips::digests_of_another_pace(seed)
        }
        "weak-budget-ignored" => weak::more_than_the_budget(seed),
        "bytes-of-the-weak-budget-ignored" => weak::more_bytes_than_the_budget(seed),
        "keepers-word-counts-too-late" => weak::numbers_out_of_order(seed),
        "in-step-across-terms" => weak::a_leader_that_comes_back(seed),
        "loss-of-a-weak-answer-untold" => weak::a_loss(seed),
        "one-member-applies-publications-in-its-own-way" => divergent::members_that_are_compared(seed),
        "alarm-names-those-who-agree" => divergent::one_that_differs(seed),
        "removed-id-used-again" => members::an_id_that_was_somebodys(seed),
        "snapshot-lacks-the-change-before-it" => members::a_snapshot_right_after_a_change(seed),
        "vote-by-refilled-disk" => members::an_empty_disk(seed),
        "roll-told-from-memory" => members::a_member_that_lags_is_asked(seed),
        "vote-before-publication" => members::a_learner_that_nobody_has_heard_of(seed),
        "change-answered-before-it-is-complete" => members::half_a_change(seed),
        "floor-forgotten-at-restart" => damaged::a_floor_and_a_restart(seed),
        "forwarded-command-unchecked" => frames::forwarded_writes_with_a_flipped_bit(seed),
        "protocol-before-its-level" => levels::while_a_member_may_not_know_windows(seed),
        "level-forgotten-with-the-link-out" => levels::after_a_link_towards_a_member_has_closed(seed),
        "names-in-doubt-taken-for-durable" => damaged::a_floor_whose_name_is_in_doubt(seed),
        "returns-without-asking"
        | "reminded-of-a-term-and-votes-in-it"
        | "reminded-of-acknowledgements-and-owes-none" => returning::with_what_it_has_acknowledged(seed),
        "reminded-of-commits-and-votes-below" | "reminded-of-commits-and-leads-below" => {
            returning::with_what_is_committed(seed);
        }
        "counts-votes-for-an-earlier-log" => returning::and_hears_votes_for_its_earlier_run(seed),
        "begins-without-the-others" => returning::for_the_first_time(seed),
        "answered-by-one-and-has-a-past" => returning::for_the_first_time_among_others(seed),
        "told-of-lost-entries-and-votes-on" => damaged::a_member_that_is_told_of_a_loss(seed),
        "lease-counted-in-one-set" => leader_leases::a_change_that_nobody_hears_of(seed),
        "lease-kept-though-clocks-differ" => clocks::a_leader_with_proof(seed),
        "own-disk-compared-with-the-slowest" => slow_disks::a_leader_on_one_of_two(seed),
        "slow-disk-left-at-once" => slow_disks::an_office_that_slows(),
        "rebuilt-at-the-old-revision" | "rebuilt-under-the-old-id" | "restored-in-place" => {
            rebuilt::beside_a_storm(seed)
        }
        "any-term-believed"
        | "any-count-believed"
        | "unreadable-entries-taken"
        | "unreadable-snapshot-taken"
        | "snapshot-of-a-term-to-come-taken"
        | "acknowledgement-beyond-the-log-believed"
        | "round-to-come-believed" => lies::whatever_others_say(seed),
        "unknown-critical-extension-ignored" => lies::a_configuration_of_a_newer_version(seed),
        "unasked-votes-counted" => lies::votes_of_nobody_asked(seed),
        "lives-of-learners-without-end" => lies::a_learner_of_many_lives(seed),
        other => panic!("there is no scene for {other}"),
    }
}

/// The guarantee that was broken, and the rest of the panic message.
pub fn promise_of(said: String) -> (String, String) {
    match said.split_once(": ") {
        Some((promise, story)) => (promise.to_string(), story.to_string()),
        None => (said, String::new()),
    }
}

/// Lets some time pass, so that seeds differ in the leader and its time.
fn begin(size: u64, seed: u64) -> World {
    let mut world = World::new(size);
    world.pass(Duration::from_millis(seed * 37 % 2000));
    world
}

fn a_leader_that_one_peer_hears(seed: u64) {
    let mut world = begin(5, seed);
    let leader = world.elect();
    let kept = 1 + (leader + seed % 4) % 5;
    let inside = move |id: NodeId| id.0 == leader || id.0 == kept;
    world.loses = Box::new(move |message| inside(message.from()) != inside(message.to()));
    world.pass(ET * 4);
    let still = world.member(leader).node.raft().is_leader();
    assert!(!still, "leader_without_quorum_steps_down: n{leader} leads although only n{kept} answers it");
}

fn a_link_between_two_of_three(seed: u64) {
    let mut world = begin(3, seed);
    let leader = world.elect();
    let other = 1 + (leader + seed % 2) % 3;
    let before = world.member(leader).node.raft().term();
    world.loses = Box::new(move |message| {
        let ends = [message.from().0, message.to().0];
        ends.contains(&leader) && ends.contains(&other)
    });
    world.pass(ET * 30);
    let after = (1..=3).map(|id| world.member(id).node.raft().term()).max().unwrap_or_default();
    assert!(
        after == before,
        "partial_partition_costs_no_election: {before:?} before n{leader} and n{other} lost each other, now {after:?}"
    );
}

fn an_append_from_before_the_restart(seed: u64) {
    let mut world = begin(3, seed);
    let leader = world.elect();
    let follower = 1 + (leader + seed % 2) % 3;
    assert!(is_done({
        let first = world.ask(leader, put("a", "first"));
        world.deliver();
        world.outcome(leader, first)
    }));
    world.pass(ET / 2);
    // One heartbeat to the follower is held up somewhere.
    let mut held = None;
    while held.is_none() {
        world.now += Duration::from_millis(10);
        for id in 1..=3 {
            if world.member(id).node.deadline() <= world.now {
                world.give(id, kattu_node::contract::Event::Tick);
            }
        }
        held = world.network.iter().find(|message| is_append_to(message, follower)).cloned();
        world.deliver();
    }
    let writes = 1 + seed % 5;
    for number in 0..writes {
        world.ask(leader, put("a", &format!("later-{number}")));
        world.deliver();
    }
    world.pass(Duration::from_millis(200)); // sent to all, marked on no disk yet
    let served = world.ask(follower, get("a", Consistency::Serializable));
    assert_eq!(value_of(world.outcome(follower, served)), Some(format!("later-{}", writes - 1)));
    world.kill(follower);
    world.restart(follower);
    // Only the message that was held up reaches it now.
    let cut = Rc::new(Cell::new(true));
    let is_cut = cut.clone();
    world.loses =
        Box::new(move |message| is_cut.get() && (message.to().0 == follower || message.from().0 == follower));
    let again = world.ask(follower, get("a", Consistency::Serializable));
    cut.set(false);
    world.deliver_one(held.expect("one was held up"));
    cut.set(true);
    world.deliver();
    world.pass(ET / 4);
    if let Some(outcome) = world.outcome(follower, again) {
        let value = value_of(Some(outcome));
        let newest = format!("later-{}", writes - 1);
        assert!(
            value.as_deref() == Some(newest.as_str()),
            "never_older_than_before_a_restart: {value:?} after {newest}"
        );
    }
}

/// A client writes at the leader and reads at a follower that does not have the write yet.
fn a_reader_that_moves(seed: u64) {
    let mut world = begin(3, seed);
    let leader = world.elect();
    let follower = 1 + (leader + seed % 2) % 3;
    let old = world.ask(leader, put("a", "old"));
    world.pass(ET);
    assert!(is_done(world.outcome(leader, old)));
    let deaf = Rc::new(Cell::new(true));
    let is_deaf = deaf.clone();
    world.loses = Box::new(move |message| is_deaf.get() && message.to().0 == follower);
    let new = world.ask(leader, put("a", "new"));
    world.deliver();
    assert!(is_done(world.outcome(leader, new)));
    let seen = world.member(leader).node.raft().committed();
    let read = world.ask(follower, get("a", Consistency::AtLeast(seen)));
    world.pass(ET / 4);
    deaf.set(false);
    world.pass(ET / 2);
    let value = value_of(world.outcome(follower, read));
    assert!(
        value.as_deref() == Some("new"),
        "readers_see_what_they_saw: {value:?} at n{follower} after index {} of n{leader}",
        seen.0
    );
}

/// A follower sends its leader a bounded read, and the answer is long on its way; meanwhile another value is written.
fn an_answer_that_was_long_on_its_way(seed: u64) {
    let mut world = begin(3, seed);
    let leader = world.elect();
    let follower = 1 + (leader + seed % 2) % 3;
    let old = world.ask(leader, put("a", "old"));
    world.pass(ET);
    assert!(is_done(world.outcome(leader, old)));
    let age = Duration::from_millis(20 + seed % 20);
    let first = world.ask(follower, get("a", Consistency::Bounded(age)));
    // All that is on its way to the follower stays there, the answer among it.
    let held: Rc<RefCell<Vec<PeerMessage>>> = Rc::default();
    let holds = Rc::new(Cell::new(true));
    let (kept, is_held) = (held.clone(), holds.clone());
    world.loses = Box::new(move |message| {
        let keeps = is_held.get() && message.to().0 == follower;
        if keeps {
            kept.borrow_mut().push(message.clone());
        }
        keeps
    });
    world.deliver();
    let is_answer = |message: &PeerMessage| matches!(message, PeerMessage::Raft(envelope) if matches!(envelope.message, Message::ReadIndexReply(_)));
    assert!(held.borrow().iter().any(is_answer), "scene_is_played: the leader answers");
    let new = world.ask(leader, put("a", "new"));
    world.deliver();
    assert!(is_done(world.outcome(leader, new)));
    world.now += age * 2;
    let answer = held.borrow().iter().find(|message| is_answer(message)).cloned().expect("it was just seen");
    holds.set(false);
    world.deliver_one(answer);
    holds.set(true);
    let told = value_of(world.outcome(follower, first));
    assert!(told.as_deref() == Some("old"), "scene_is_played: {told:?} was asked for before the write");
    let second = world.ask(follower, get("a", Consistency::Bounded(age)));
    let told = world.outcome(follower, second).map(|outcome| value_of(Some(outcome)));
    assert!(
        told.is_none(),
        "bounded_reads_are_recent: {told:?} at n{follower}, {} ms after another value was written, within {} ms",
        age.as_nanos() / 500_000,
        age.as_nanos() / 1_000_000
    );
    holds.set(false);
    world.pass(ET / 2);
    let told = value_of(world.outcome(follower, second));
    assert!(told.as_deref() == Some("new"), "bounded_reads_are_recent: {told:?} when the leader was asked");
}

/// A follower's write is long on its way to a leader that loses its leadership and gets it back meanwhile.
fn a_forward_of_an_earlier_term(seed: u64) {
    let mut world = begin(3, seed);
    let leader = world.elect();
    let (follower, other) = (1 + (leader + seed % 2) % 3, 1 + (leader + 1 - seed % 2) % 3);
    world.pass(ET);
    let held: Rc<RefCell<Vec<PeerMessage>>> = Rc::default();
    let kept = held.clone();
    world.loses = Box::new(move |message| {
        let is_forward = matches!(message, PeerMessage::Forward(_));
        if is_forward {
            kept.borrow_mut().push(message.clone());
        }
        is_forward
    });
    world.ask(follower, put("a", "late"));
    world.deliver();
    let forward = held.borrow().first().cloned().expect("scene_is_played: it is forwarded");
    for (from, to) in [(leader, other), (other, leader)] {
        world.give(from, Event::Transfer(Some(NodeId(to))));
        world.pass(ET);
        assert!(world.leader() == Some(to), "scene_is_played: n{to} leads");
    }
    let before = world.member(leader).node.raft().last_id();
    world.loses = Box::new(|_| false);
    world.deliver_one(forward);
    world.deliver();
    let after = world.member(leader).node.raft().last_id();
    assert!(before == after, "late_forwards_are_not_taken: the log ends at {after}, and ended at {before}");
}

fn is_append_to(message: &PeerMessage, member: u64) -> bool {
    match message {
        PeerMessage::Raft(envelope) => {
            envelope.to.0 == member && matches!(envelope.message, Message::Append(_))
        }
        PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => false,
    }
}

/// One command: mostly puts, now and then a compaction or a transaction that reads the past before it writes.
fn command(dice: &mut Dice, revision: Revision) -> Command {
    let key = |dice: &mut Dice| vec![b'a' + dice.below(6) as u8];
    let keys = |start| KeyRange { start, end: Vec::new() };
    let put = |key| Put { key, value: b"v".to_vec(), ..Put::default() };
    match dice.below(12) {
        0 => Command::Compact(Revision(revision.0 - dice.below(4) as i64)),
        1..=2 => Command::DeleteRange(DeleteRange { keys: keys(key(dice)), prev_kv: false }),
        3..=5 => {
            let past = Revision(revision.0 - dice.below(12) as i64).max(Revision::EMPTY);
            let read = Range { keys: keys(key(dice)), revision: past, ..Range::default() };
            let success = vec![Operation::Range(read), Operation::Put(put(key(dice)))];
            Command::Txn(Txn { success, ..Txn::default() })
        }
        _ => Command::Put(put(key(dice))),
    }
}

fn stores_of_another_pace(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut at_leisure = Store::with_pace(Pace { versions_per_change: 0, versions_per_compaction: 0 });
    let mut at_once = Store::new();
    for number in 0..200 {
        let command = command(&mut dice, at_once.revision());
        let answers = (at_leisure.apply(&command), at_once.apply(&command));
        assert!(
            answers.0 == answers.1 && at_leisure.digest() == at_once.digest(),
            "pace_changes_no_answer: command {number}, {command:?}: {answers:?}"
        );
        if dice.one_in(20) {
            at_leisure.tidy(dice.below(20) as usize);
        }
    }
}
