//! Batches of a member that is its whole cluster: what is done in which order, and what is not begun.

use kattu_kv::api::{self as kv, Answer};
use kattu_member::apply::{Apart, Batch};
use kattu_member::capacity::{Capacity, Sight};
use kattu_member::computing::GIVEN_MAX;
use kattu_member::host::{Arrivals, Brought, Call, Host};
use kattu_member::log::{Completion, LogSpace};
use kattu_member::member::Member;
use kattu_member::progress::Progress;
use kattu_member::step::{LIMITS, Limits, Note, Placed, Stage, Step};
use kattu_member::tuning::{Setting, Tuning};
use kattu_node::command::encode_kv;
use kattu_node::compare::Health;
use kattu_node::contract::{
    Consistency, Doubt, Event, MemberChange, MemberInfo, Outcome, PeerMessage, Refusal, ReplyBody, Request,
    Space, Ticket,
};
use kattu_node::{Keeper, Node, NodeConfig};
use kattu_raft::{
    Config, Duration, Entry, EntryHead, EntryId, EntryKind, Envelope, Fetch, GroupId, Incarnation, Instant,
    Job, LogBody, LogIndex, LogRecord, Message, NodeId, RecordEncoder, Recovered, Round, SharedBytes, Stamp,
    Term, Timing, Trace, message::Append,
};
use std::collections::VecDeque;
use std::convert::Infallible;

pub const ET: Duration = Duration::from_millis(1000);
const ROOM: LogSpace = LogSpace { free: 1 << 20, full: false };

/// What has arrived, and what was done.
#[derive(Default)]
pub struct Bench {
    pub now: Instant,
    pub events: Vec<Event>,
    pub calls: VecDeque<(u64, Request)>,
    /// Clients from this number on have gone.
    pub gone_from: Option<u64>,
    pub completions: VecDeque<Completion>,
    pub progress: VecDeque<Progress<u64>>,
    pub brought: VecDeque<Brought>,
    pub sight: Sight,
    pub retries: bool,
    /// The steps, in words.
    pub steps: Vec<&'static str>,
    pub answers: Vec<(u64, Outcome)>,
    /// What clients were told that is no answer.
    pub told: Vec<(Ticket, Outcome)>,
    pub records: Vec<LogRecord>,
    pub notes: Vec<Note>,
    /// The timings that it was to go by.
    pub timings: Vec<Timing>,
    pub sent: Vec<PeerMessage>,
    pub fetches: Vec<Fetch>,
    pub jobs: Vec<Job>,
    pub batches: Vec<Batch<u64>>,
    pub committed: LogIndex,
    /// Completions are for the next batch, as of a log on a thread.
    pub beside: bool,
    /// Leadership shall move.
    pub transfers: bool,
    pub has_transferred: Option<bool>,
    /// Settings that it shall go by.
    pub settings: Option<Vec<Setting>>,
    pub tuned: Vec<Result<Tuning, &'static str>>,
    /// When the next requests were received, if they are stamped.
    pub received: Option<Instant>,
    /// A keeper on its own thread.
    pub apart: Option<Apart<u64>>,
    /// No thread can be had for it.
    pub has_no_thread: bool,
    /// Puts are answered before they are stored, and once more.
    pub answered_early: bool,
}

impl Host for Bench {
    type Stop = Infallible;

    fn now(&self) -> Instant {
        self.now
    }
}

impl Arrivals for Bench {
    type Client = u64;
    type Asker = ();

    fn completion(&mut self) -> Result<Option<Completion>, Infallible> {
        Ok(self.completions.pop_front())
    }

    fn progress(&mut self) -> Option<Progress<u64>> {
        self.progress.pop_front()
    }

    fn brought(&mut self) -> Result<Option<Brought>, Infallible> {
        Ok(self.brought.pop_front())
    }

    fn events(&mut self, into: &mut Vec<Event>) -> Instant {
        into.append(&mut self.events);
        self.now
    }

    fn calls(&mut self, most: usize, into: &mut Vec<Call<u64, ()>>) -> Instant {
        let count = most.min(self.calls.len());
        into.extend(self.calls.drain(..count).map(|(client, request)| Call::Ask(client, request)));
        if std::mem::take(&mut self.transfers) {
            into.push(Call::Transfer(()));
        }
        into.extend(self.settings.take().map(|settings| Call::Tune(settings, ())));
        self.now
    }

    fn received(&self, _: &u64) -> Option<Instant> {
        self.received
    }

    fn is_gone(&self, client: &u64) -> bool {
        self.gone_from.is_some_and(|first| first <= *client)
    }

    fn transferring(&mut self, (): (), has_begun: bool) {
        self.has_transferred = Some(has_begun);
    }

    fn tuned(&mut self, (): (), tuning: Result<Tuning, &'static str>) {
        self.tuned.push(tuning);
    }

    fn sight(&self) -> Sight {
        self.sight
    }

    fn least_quota(&self) -> Option<u64> {
        None
    }

    fn retries_log(&self) -> bool {
        self.retries
    }

    fn record_vote_hold(&mut self, _: Duration) -> bool {
        true
    }
}

pub type Lone = Member<u64, ()>;

fn node() -> Node {
    node_with(kattu_raft::Limits { read_apart_bytes_min: 10, ..Default::default() })
}

fn node_with(limits: kattu_raft::Limits) -> Node {
    let raft = Config {
        election_timeout: ET,
        heartbeat_interval: ET / 10,
        limits,
        ..Config::new(NodeId(1), [NodeId(1)], RecordEncoder::BARE)
    };
    Node::recover(
        NodeConfig { name: "n1".into(), ..NodeConfig::new(raft) },
        1,
        Instant(0),
        Recovered::default(),
    )
}

fn keeper() -> Keeper {
    Keeper::new(vec![MemberInfo { id: NodeId(1), ..MemberInfo::default() }]).of_member(NodeId(1))
}

pub fn member(limits: Limits) -> Lone {
    let placed = Placed::Here(Box::new(keeper()));
    Member::start(Instant(0), node(), placed, Capacity::new(1 << 30), ROOM, limits)
}

pub fn put(key: &str) -> Request {
    let put = kv::Put { key: key.into(), value: b"v".to_vec(), ..kv::Put::default() };
    Request::Write(encode_kv(&kv::Command::Put(put)).into())
}

/// A put that shares its entry with no other.
pub fn large_put(key: &str) -> Request {
    let put = kv::Put { key: key.into(), value: vec![b'v'; 1100], ..kv::Put::default() };
    Request::Write(encode_kv(&kv::Command::Put(put)).into())
}

pub fn get(key: &str) -> Request {
    let keys = kv::KeyRange { start: key.into(), end: vec![] };
    Request::Read(kv::Query::Range(kv::Range { keys, ..kv::Range::default() }), Consistency::Linearizable)
}

/// Does the steps of a batch that has begun, at once.
pub fn carry_out(member: &mut Lone, bench: &mut Bench) {
    loop {
        let Ok(step) = member.next(bench);
        match step {
            Step::Idle => return,
            Step::Send(committed, messages) => {
                bench.sent.append(messages);
                assert!(bench.committed <= committed, "it never moves back");
                bench.committed = committed;
                bench.steps.push("send");
            }
            Step::Answer(client, outcome) => {
                bench.steps.push("answer");
                bench.answers.push((client, outcome));
            }
            Step::Tell(ticket, outcome) => bench.told.push((ticket, outcome)),
            Step::Unclaimed(..) if bench.answered_early => bench.steps.push("answered before"),
            Step::Unclaimed(ticket, outcome) => panic!("{ticket:?} is answered twice: {outcome:?}"),
            Step::Deliver(batch) => {
                bench.steps.push("deliver");
                bench.batches.push(batch);
            }
            Step::Members(_) => bench.steps.push("members"),
            Step::Timing(timing) => bench.timings.push(timing),
            Step::Tune(_) => bench.steps.push("tune"),
            Step::Part(apart) if bench.has_no_thread => {
                bench.steps.push("stay");
                member.stays(bench, *apart).unwrap_or_else(|never| match never {});
            }
            Step::Part(apart) => {
                bench.steps.push("part");
                bench.apart = Some(*apart);
            }
            Step::Recall => {
                bench.steps.push("recall");
                bench.batches.push(Batch::Return);
            }
            Step::Distrust(peer, _) => panic!("{peer:?} is nobody"),
            Step::Note(note) => bench.notes.push(note),
            Step::Order(_) => bench.steps.push("order"),
            Step::Compute(job) => {
                bench.steps.push("compute");
                bench.jobs.push(job);
            }
            Step::Drop(_) => bench.steps.push("drop"),
            Step::Persist { records, answered } => {
                bench.steps.push(if answered { "persist after answers" } else { "persist" });
                let last = records.last().map(|record| record.lsn);
                bench.records.append(records);
                let completion = match last {
                    Some(last) => Completion::Persisted(last, ROOM, None),
                    None => Completion::Room(ROOM),
                };
                match bench.beside {
                    true => bench.completions.push_back(completion),
                    false => member.completed(bench, completion).unwrap_or_else(|never| match never {}),
                }
            }
            Step::Fetch(fetch) => {
                bench.steps.push("fetch");
                bench.fetches.push(fetch.clone());
                let completion = Completion::Fetched(fetch, Vec::new());
                match bench.beside {
                    true => bench.completions.push_back(completion),
                    false => member.completed(bench, completion).unwrap_or_else(|never| match never {}),
                }
            }
        }
    }
}

pub fn batch(member: &mut Lone, bench: &mut Bench) {
    let Ok(()) = member.begin(bench);
    carry_out(member, bench);
}

/// A leader with nothing left to do.
pub fn leader(limits: Limits) -> (Lone, Bench) {
    let (mut member, mut bench) = (member(limits), Bench::default());
    while !member.node().raft().is_leader() {
        bench.now += ET / 4;
        batch(&mut member, &mut bench);
    }
    catch_up(&mut member, &mut bench);
    bench.steps.clear();
    (member, bench)
}

/// Batches until the keeper has nothing left to do, of which no time is taken.
pub fn catch_up(member: &mut Lone, bench: &mut Bench) {
    for _ in 0..10_000 {
        if !member.is_busy() {
            return;
        }
        batch(member, bench);
    }
    panic!("it has not caught up in 10,000 batches");
}

pub fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done(_))
}

#[test]
fn a_write_is_durable_before_it_is_answered_and_its_position_is_published_before_that() {
    let (mut member, mut bench) = leader(LIMITS);
    let before = bench.committed;
    bench.calls.push_back((7, put("a")));
    batch(&mut member, &mut bench);
    assert!(matches!(&bench.answers[..], [(7, outcome)] if is_done(outcome)), "{:?}", bench.answers);
    let place = |what| bench.steps.iter().position(|step| *step == what).expect(what);
    assert!(place("send") < place("persist"), "{:?}", bench.steps);
    assert!(place("persist") < place("answer"), "{:?}", bench.steps);
    assert!(before < bench.committed, "published");
    assert_eq!(member.stage(), Stage::Idle);
    assert_eq!(member.counts().requests, 1);
    assert!(member.waiting().is_empty());
}

#[test]
fn an_answer_leaves_before_the_thread_goes_to_the_disk() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.calls.extend([(1, put("a")), (2, Request::Status)]);
    batch(&mut member, &mut bench);
    let order: Vec<u64> = bench.answers.iter().map(|(client, _)| *client).collect();
    assert_eq!(order, [2, 1], "a status needs no disk");
    assert!(bench.steps.contains(&"persist after answers"), "{:?}", bench.steps);
}

#[test]
fn a_request_of_a_client_that_has_gone_is_not_begun() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.gone_from = Some(2);
    bench.calls.extend([(1, put("a")), (2, put("b"))]);
    let records = bench.records.len();
    batch(&mut member, &mut bench);
    assert_eq!(bench.answers.len(), 1);
    let entries = bench.records[records..]
        .iter()
        .filter(|record| matches!(record.body, kattu_raft::LogBody::Entry(_)))
        .count();
    assert_eq!((entries, member.counts().abandoned), (1, 1));
}

#[test]
fn a_batch_takes_no_more_calls_than_its_limit() {
    let (mut member, mut bench) = leader(Limits { calls: 2, ..LIMITS });
    bench.calls.extend((0..5).map(|client| (client, put("a"))));
    for answered in [2, 4, 5] {
        batch(&mut member, &mut bench);
        assert_eq!(bench.answers.len(), answered);
    }
}

#[test]
fn a_keeper_that_is_far_behind_refuses_clients_until_it_has_caught_up() {
    // A slice of one unit: the keeper does not finish what it is given in one batch.
    let (mut member, mut bench) = leader(Limits { slice: 1, tasks: 4, ..LIMITS });
    bench.calls.extend((0..8).map(|client| (client, large_put("a"))));
    batch(&mut member, &mut bench);
    assert!(member.is_busy());
    bench.answers.clear();
    bench.calls.extend([(20, put("b")), (21, Request::Status)]);
    batch(&mut member, &mut bench);
    let refused = Outcome::Refused(Refusal::TooManyRequests);
    assert!(bench.answers.contains(&(20, refused.clone())), "{:?}", bench.answers);
    catch_up(&mut member, &mut bench);
    let outcome = |client| bench.answers.iter().find(|(one, _)| *one == client).map(|(_, outcome)| outcome);
    assert!(outcome(21).is_some_and(is_done), "a status is not refused");
    assert!((2..8).all(|client| outcome(client).is_some_and(is_done)), "{:?}", bench.answers);
    bench.calls.push_back((22, get("a")));
    batch(&mut member, &mut bench);
    catch_up(&mut member, &mut bench);
    assert!(
        matches!(bench.answers.last(), Some((22, outcome)) if is_done(outcome)),
        "{:?}",
        bench.answers.last()
    );
    assert_eq!(member.counts().failed, 1);
}

#[test]
fn a_keeper_on_the_nodes_thread_wakes_the_member_until_all_is_tidy() {
    let (mut member, mut bench) = leader(LIMITS);
    for _ in 0..50 {
        bench.calls.extend((0..1000).map(|client| (client, put("k"))));
        batch(&mut member, &mut bench);
    }
    catch_up(&mut member, &mut bench);
    let revision = member.desk().expect("it sits here").keeper().store().revision();
    let bytes = |member: &Lone| member.desk().expect("it sits here").keeper().store().stats().bytes;
    let full = bytes(&member);
    bench.calls.push_back((1, Request::Write(encode_kv(&kv::Command::Compact(revision)).into())));
    batch(&mut member, &mut bench);
    let wakes = member.deadline();
    assert!(wakes <= bench.now + ET / 50, "old versions are still to be forgotten");
    bench.now = wakes;
    batch(&mut member, &mut bench);
    assert!(member.is_busy(), "it goes on without an arrival");
    catch_up(&mut member, &mut bench);
    assert!(bytes(&member) < full / 100, "{full} bytes have become {}", bytes(&member));
}

#[test]
fn a_log_on_a_thread_of_its_own_is_not_waited_for() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.beside = true;
    bench.calls.push_back((1, put("a")));
    batch(&mut member, &mut bench);
    assert!(bench.answers.is_empty(), "it is not durable yet");
    assert_eq!(bench.completions.len(), 1);
    batch(&mut member, &mut bench);
    assert!(matches!(&bench.answers[..], [(1, outcome)] if is_done(outcome)));
}

#[test]
fn a_keeper_on_a_thread_of_its_own_gets_tasks_with_their_clients_and_gives_weighed_ones_back() {
    let tables = keeper();
    let placed = Placed::Apart(tables.members(), tables.health());
    let mut member: Lone = Member::start(Instant(0), node(), placed, Capacity::new(1 << 30), ROOM, LIMITS);
    let (mut apart, mut bench) = (Apart::<u64>::new(tables), Bench::default());
    let command = kv::Command::DeleteRange(kv::DeleteRange {
        keys: kv::KeyRange { start: vec![], end: vec![0xff] },
        ..kv::DeleteRange::default()
    });
    let bytes = encode_kv(&command);
    let weigh = kattu_node::command::request(command, bytes);
    assert!(matches!(weigh, Request::Weigh(..)), "it may take long");
    let mut requests = vec![put("a"), weigh, get("a")].into_iter();
    let mut asked = 0;
    for _ in 0..100 {
        bench.now += ET / 4;
        if member.node().raft().is_leader() && bench.answers.len() == asked {
            let Some(request) = requests.next() else { break };
            asked += 1;
            bench.calls.push_back((asked as u64, request));
        }
        batch(&mut member, &mut bench);
        assert!(member.desk().is_none());
        for batch in std::mem::take(&mut bench.batches) {
            assert!(apart.take_in(&mut bench, batch).is_none());
        }
        let Ok(_) = apart.work(&mut bench, &mut LIMITS.slice.clone());
        if let Some((progress, answers)) = apart.report() {
            bench.answers.extend(answers);
            bench.progress.push_back(progress);
        }
        apart.tidy();
    }
    assert_eq!(bench.answers.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(bench.answers.iter().all(|(_, outcome)| is_done(outcome)), "{:?}", bench.answers);
    let Outcome::Done(answer) = &bench.answers[2].1 else { unreachable!("just seen") };
    let ReplyBody::Kv(response) = &answer.body else { panic!("{answer:?}") };
    assert!(matches!(&response.answer, Answer::Range(range) if range.kvs.is_empty()), "it was deleted");
    assert!(apart.is_done() && member.waiting().is_empty());
}

#[test]
fn a_full_disk_is_tried_again_when_it_is_time() {
    let (mut member, mut bench) = leader(LIMITS);
    batch(&mut member, &mut bench);
    assert!(!bench.steps.contains(&"persist"), "nothing waits: {:?}", bench.steps);
    bench.retries = true;
    let Ok(()) = member.begin(&mut bench);
    bench.retries = true;
    loop {
        let Ok(step) = member.next(&mut bench);
        match step {
            Step::Persist { records, .. } => {
                assert!(records.is_empty());
                break;
            }
            Step::Idle => panic!("it was not tried again"),
            _ => {}
        }
    }
    bench.retries = false;
    let full = LogSpace { free: 0, full: true };
    let Ok(()) = member.completed(&mut bench, Completion::Room(full));
    carry_out(&mut member, &mut bench);
    assert_eq!(member.capacity().space(), Space { log_bytes: 0, short: true });
}

#[test]
fn a_machine_that_is_short_refuses_growth() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.sight.disk_short = true;
    bench.calls.push_back((1, put("a")));
    batch(&mut member, &mut bench);
    assert!(member.capacity().space().short);
    // The first one came in before the look at the machine; the next does not.
    bench.calls.push_back((2, put("b")));
    batch(&mut member, &mut bench);
    assert!(bench.answers.contains(&(2, Outcome::Refused(Refusal::NoSpace))), "{:?}", bench.answers);
}

#[test]
fn a_member_that_stops_answers_every_client() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.beside = true;
    bench.calls.extend([(1, put("a")), (2, put("b"))]);
    batch(&mut member, &mut bench);
    assert!(bench.answers.is_empty());
    let Ok(()) = member.stop(&mut bench);
    carry_out(&mut member, &mut bench);
    assert_eq!(member.stage(), Stage::Stopped);
    let unknown = Outcome::Unknown(Doubt::Stopping);
    bench.answers.sort_by_key(|(client, _)| *client);
    assert_eq!(bench.answers, [(1, unknown.clone()), (2, unknown)]);
    assert!(member.waiting().is_empty());
}

#[test]
fn a_process_that_ends_in_the_middle_knows_whom_it_has_not_answered() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.beside = true;
    bench.calls.extend([(1, put("a")), (2, put("b"))]);
    batch(&mut member, &mut bench);
    assert_eq!(member.abandon().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(member.abandon().count(), 0);
}

#[test]
fn a_transfer_that_cannot_begin_is_reported_so() {
    let (mut member, mut bench) = leader(LIMITS);
    bench.transfers = true;
    batch(&mut member, &mut bench);
    assert_eq!(bench.has_transferred, Some(false), "the only voter has no successor");
}

#[test]
fn the_operator_is_told_of_another_level_once() {
    let tables = keeper();
    let placed = Placed::Apart(tables.members(), tables.health());
    let mut member: Lone = Member::start(Instant(0), node(), placed, Capacity::new(1 << 30), ROOM, LIMITS);
    let mut bench = Bench::default();
    let level = tables.health().level;
    let mut tells = |level| {
        let progress = Progress {
            applied: None,
            store_bytes: 0,
            store_pinned: false,
            members: None,
            health: Some(Box::new(Health { level, ..tables.health() })),
            answers: Vec::new(),
            admitted: Vec::new(),
            standings: Vec::new(),
            tasks: 0,
            refused_for_work: 0,
            desk: None,
        };
        bench.progress.push_back(progress);
        batch(&mut member, &mut bench);
        let levels = std::mem::take(&mut bench.notes).into_iter().filter_map(|note| match note {
            Note::Level(level) => Some(level),
            _ => None,
        });
        levels.collect::<Vec<_>>()
    };
    assert_eq!(tells(level), []);
    assert_eq!(tells(level + 1), [level + 1]);
    assert_eq!(tells(level + 1), [], "once");
}

#[test]
fn the_operator_is_told_who_leads_once() {
    let (_, bench) = leader(LIMITS);
    let leads = |note: &&Note| matches!(note, Note::Trace(Trace::BecameLeader(_)));
    assert_eq!(bench.notes.iter().filter(leads).count(), 1, "{:?}", bench.notes);
}

/// An append of a leader in term 5 with these entries behind `before`, each with a record of `bytes`.
fn append(before: u64, count: u64, bytes: usize) -> Event {
    let id = |index| match index {
        0 => EntryId::default(),
        _ => EntryId::new(5, index),
    };
    let head = |index| EntryHead { id: id(index), kind: EntryKind::Noop, stamp: Stamp(0) };
    let entry = |index| Entry::new(head(index), SharedBytes::from(vec![0; bytes]), 0);
    let entries = (before + 1..=before + count).map(entry).collect();
    let (prev, commit, round) = (id(before), LogIndex(0), Round(1));
    Event::Peer(PeerMessage::Raft(Envelope {
        group: GroupId(0),
        from: NodeId(2),
        incarnation: Incarnation(2),
        to: NodeId(1),
        term: Term(5),
        message: Message::Append(Append { prev, entries, commit, round, tail: false }),
    }))
}

#[test]
fn jobs_are_given_out_before_the_disk_is_asked_and_their_results_are_events() {
    let (mut member, mut bench) = (member(LIMITS), Bench::default());
    bench.events.push(append(0, 1, 20));
    batch(&mut member, &mut bench);
    let at = |bench: &Bench, name: &str| bench.steps.iter().position(|step| *step == name);
    let (compute, persist) = (at(&bench, "compute"), at(&bench, "persist"));
    assert!(compute.is_some() && compute < persist, "{:?}: the term goes to the disk", bench.steps);
    let is_entry = |record: &LogRecord| matches!(record.body, LogBody::Entry(_));
    assert!(!bench.records.iter().any(is_entry), "what is not read is not in the log");
    assert!(!member.computing().is_idle(), "the executor has a job");
    bench.events.extend(bench.jobs.drain(..).map(|job| Event::Computed(job.run())));
    batch(&mut member, &mut bench);
    assert!(bench.records.iter().any(is_entry) && member.computing().is_idle());
    let is_answer = |message: &PeerMessage| matches!(message, PeerMessage::Raft(Envelope { message: Message::AppendReply(reply), .. }) if reply.upto == LogIndex(1));
    assert!(bench.sent.iter().any(is_answer), "{:?}", bench.sent);
}

#[test]
fn the_oldest_jobs_are_given_out_first() {
    let (mut member, mut bench) = (member(LIMITS), Bench::default());
    bench.events.extend((0..4).map(|before| append(before, 1, 20)));
    batch(&mut member, &mut bench);
    let given: Vec<_> = bench.jobs.iter().map(Job::id).collect();
    let waiting: Vec<_> = member.computing().waiting().iter().map(Job::id).collect();
    assert_eq!((given.len(), waiting.len()), (2, 2));
    assert!([given, waiting].concat().is_sorted());
}

#[test]
fn jobs_behind_one_that_hangs_hold_no_more_than_the_appends_that_wait_and_the_newest_are_done_next() {
    let limits =
        kattu_raft::Limits { read_apart_bytes_min: 10, inflight_bytes_max: 100, ..Default::default() };
    let placed = Placed::Here(Box::new(keeper()));
    let mut member: Lone =
        Member::start(Instant(0), node_with(limits), placed, Capacity::new(1 << 30), ROOM, LIMITS);
    let mut bench = Bench::default();
    for _ in 0..5 {
        bench.events.extend((0..7).map(|before| append(before, 1, 20)));
        batch(&mut member, &mut bench);
        let bytes: usize = member.computing().waiting().iter().map(Job::bytes).sum();
        assert!(bytes <= 100, "{bytes} bytes of jobs wait");
        assert_eq!(bench.jobs.len(), GIVEN_MAX, "the others wait for these");
        for _ in 0..2 {
            // The leader is heard, and no job is done: after an election timeout the queue is given up.
            bench.now += ET / 2;
            bench.events.push(append(0, 0, 0));
            batch(&mut member, &mut bench);
        }
        assert_eq!(member.computing().waiting().len(), 0, "no job is left for a queue that was given up");
    }
    bench.events.extend((0..5).map(|before| append(before, 1, 20)));
    batch(&mut member, &mut bench);
    let first = bench.jobs.remove(0);
    assert!(!member.node().raft().awaits(first.id()), "it hung too long");
    bench.events.push(Event::Computed(first.run()));
    batch(&mut member, &mut bench);
    assert_eq!(bench.jobs.len(), GIVEN_MAX, "the next one takes its place");
    assert!(member.node().raft().awaits(bench.jobs[1].id()), "and it is one of the newest");
    while !bench.jobs.is_empty() {
        bench.events.extend(bench.jobs.drain(..).map(|job| Event::Computed(job.run())));
        batch(&mut member, &mut bench);
    }
    assert_eq!(member.node().raft().last_id(), EntryId::new(5, 5));
    assert!(member.computing().is_idle());
}

#[test]
fn another_timing_in_force_is_a_step_and_the_one_of_the_start_is_none() {
    let (mut member, mut bench) = leader(LIMITS);
    let begun = |member: &Lone| member.node().raft().membership().extensions.timing;
    for _ in 0..100 {
        bench.now += ET / 4;
        batch(&mut member, &mut bench);
    }
    let own = member.node().raft().own_timing();
    assert_eq!(
        (begun(&member), bench.timings.len()),
        (Some(own), 0),
        "the cluster's is the one of the start"
    );
    let slower = Timing { election_timeout: ET * 2, heartbeat_interval: ET / 5 };
    bench.calls.push_back((7, Request::Change(MemberChange::Timing(slower))));
    for _ in 0..3 {
        batch(&mut member, &mut bench);
    }
    assert_eq!((begun(&member), &bench.timings[..]), (Some(slower), &[slower][..]));
}
