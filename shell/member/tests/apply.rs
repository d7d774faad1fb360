//! Goal: a keeper tells all that it did, once; each client gets its own answer, in whatever order answers come; and a keeper on
//! another thread knows what it still has to do. Method: tasks by hand, in slices of one unit and of many.

use kattu_kv::api::{Command, Put, Query, Range};
use kattu_kv::api::{KeyRange, Revision};
use kattu_member::apply::{Apart, Batch, Desk};
use kattu_member::host::Host;
use kattu_member::progress::Progress;
use kattu_member::snapshots::Order;
use kattu_member::waiting::Waiting;
use kattu_node::Keeper;
use kattu_node::command::encode_kv;
use kattu_node::contract::{KeeperTask, MemberInfo, Outcome, ReplyBody, Status, Ticket};
use kattu_raft::{
    Entry, EntryHead, EntryId, EntryKind, Instant, LogIndex, Membership, NodeId, SnapshotMeta, Stamp, Term,
};
use std::convert::Infallible;

const TERM: Term = Term(3);

struct Thread;

impl Host for Thread {
    type Stop = Infallible;

    fn now(&self) -> Instant {
        Instant(0)
    }
}

fn keeper() -> Keeper {
    Keeper::new(vec![MemberInfo { id: NodeId(1), ..MemberInfo::default() }])
}

/// The put that is at this index.
fn put(index: u64, ticket: Option<Ticket>) -> KeeperTask {
    command(index, ticket, &Command::Put(Put { key: vec![1], value: vec![2], ..Put::default() }))
}

fn command(index: u64, ticket: Option<Ticket>, command: &Command) -> KeeperTask {
    let id = EntryId { term: TERM, index: LogIndex(index) };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
    KeeperTask::Apply {
        entry: Entry::new(head, encode_kv(command).into(), 0),
        tickets: ticket.into(),
        term: TERM,
    }
}

fn read(ticket: Ticket) -> KeeperTask {
    let keys = KeyRange { start: vec![1], end: vec![] };
    let query = Query::Range(Range { keys, ..Range::default() });
    KeeperTask::Read { ticket, query, term: TERM, needs: LogIndex(0) }
}

fn status(ticket: Ticket) -> KeeperTask {
    KeeperTask::Status { ticket, status: Box::new(Status { term: TERM, ..Status::default() }) }
}

fn weigh(ticket: Ticket) -> KeeperTask {
    let command = Command::Put(Put { key: vec![9], value: vec![2], ..Put::default() });
    let bytes = encode_kv(&command);
    KeeperTask::Weigh { ticket, command: Box::new(command), bytes }
}

fn meta(index: u64) -> SnapshotMeta {
    let membership = Membership::new(vec![NodeId(1)], vec![]);
    let last = EntryId { term: TERM, index: LogIndex(index) };
    SnapshotMeta { last, stamp: Stamp::default(), membership, membership_at: LogIndex(0) }
}

/// Tables that have come to this index.
fn tables(index: u64) -> Keeper {
    let mut keeper = keeper();
    for index in 1..=index {
        keeper.handle(put(index, None), &mut Default::default());
    }
    keeper
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done(_))
}

/// A desk with so many puts, and a snapshot to be taken and one to be installed behind them.
fn busy_desk(puts: u64) -> Desk {
    let mut desk = Desk::new(keeper());
    let entries = (1..=puts).map(|index| put(index, Some(Ticket(index))));
    let orders = [KeeperTask::Snapshot(Box::new(meta(puts))), KeeperTask::Install(Box::new(meta(puts + 1)))];
    desk.take_in(&mut Thread, entries.chain(orders));
    desk
}

fn worked(desk: &mut Desk, slice: &mut i64) -> u64 {
    desk.work(&mut Thread, slice).unwrap_or_else(|never| match never {})
}

#[test]
fn a_desk_works_as_long_as_its_slice_lasts_and_tells_what_it_did_once() {
    let mut whole = busy_desk(5);
    let mut allowance = 1 << 20;
    let units = worked(&mut whole, &mut allowance);
    assert!(0 < units && units == (1 << 20) - allowance as u64, "{units} units");

    let (mut desk, mut answers, mut rounds, mut by_slices) = (busy_desk(5), Vec::new(), 0, 0);
    assert_eq!(worked(&mut desk, &mut 0), 0, "nothing is left of the slice");
    while desk.keeper().is_busy() {
        by_slices += worked(&mut desk, &mut 1);
        rounds += 1;
        let before = answers.len();
        let progress: Progress<()> = desk.told(&mut answers).expect("something was done");
        assert!(answers.len() <= before + 1, "one task in a slice of one unit");
        assert_eq!(progress.applied.is_some(), before < answers.len());
        assert!(desk.told::<()>(&mut answers).is_none(), "once");
    }
    assert_eq!((rounds, by_slices), (7, units));
    let tickets: Vec<u64> = answers.iter().map(|(ticket, _)| ticket.0).collect();
    assert_eq!(tickets, [1, 2, 3, 4, 5]);
    assert!(answers.iter().all(|(_, outcome)| is_done(outcome)));
    for desk in [&mut whole, &mut desk] {
        let told = [desk.order(), desk.order(), desk.order()];
        assert!(
            matches!(&told, [Some(Order::Take(taken, _)), Some(Order::Thaw(thaws)), None]
                if *taken == meta(5) && *thaws == meta(6)),
            "in the order of the tasks, each once"
        );
    }
}

#[test]
fn a_desk_is_busy_while_there_is_work_or_something_to_tell() {
    let mut desk = Desk::new(keeper());
    let mut answers = Vec::new();
    assert!(!desk.is_busy() && desk.told::<()>(&mut answers).is_none());
    // Answered at once: nothing to do, but to tell.
    desk.take_in(&mut Thread, [status(Ticket(7))].into_iter());
    assert!(desk.is_busy() && !desk.keeper().is_busy());
    let progress = desk.told::<()>(&mut answers).expect("an answer");
    assert_eq!((progress.applied, answers.len(), progress.tasks), (None, 1, 0));
    assert!(!desk.is_busy());
    desk.take_in(&mut Thread, [put(1, None)].into_iter());
    assert!(desk.told::<()>(&mut answers).is_some_and(|progress| progress.applied.is_none()));
    assert!(desk.is_busy(), "it is told of, and not done");
    worked(&mut desk, &mut 100);
    assert!(!desk.keeper().is_busy() && desk.is_busy(), "it is done, and not told");
    let progress = desk.told::<()>(&mut answers).expect("an entry");
    assert_eq!(progress.applied, Some(LogIndex(1)));
    assert_eq!(progress.store_bytes, desk.keeper().store().stats().bytes);
    assert!(0 < progress.store_bytes && !progress.store_pinned);
    let copy = desk.keeper().pin();
    desk.take_in(&mut Thread, [status(Ticket(8))].into_iter());
    assert!(desk.told::<()>(&mut answers).is_some_and(|progress| progress.store_pinned));
    drop(copy);
}

#[test]
fn new_tables_take_the_place_of_the_old_ones_and_are_told() {
    let mut desk = busy_desk(2);
    worked(&mut desk, &mut 1000);
    let mut answers = Vec::new();
    desk.told::<()>(&mut answers).expect("entries");
    let old = desk.replace(tables(3));
    assert_eq!((old.applied(), desk.keeper().applied()), (LogIndex(2), LogIndex(3)));
    let progress = desk.told::<()>(&mut answers).expect("new tables are news");
    assert_eq!(progress.applied, Some(LogIndex(3)));
    assert!(progress.members.is_some() && progress.health.is_some());
}

#[test]
fn what_a_compaction_leaves_is_forgotten_bit_by_bit() {
    let mut apart: Apart<()> = Apart::new(keeper());
    let puts = 3000;
    let entries = (1..=puts).map(|index| put(index, None));
    // The first put made revision 2.
    let compact = command(puts + 1, None, &Command::Compact(Revision(puts as i64 + 1)));
    let tasks = entries.chain([compact]).collect();
    apart.take_in(&mut Thread, Batch::Tasks { tasks, clients: Default::default() });
    while !apart.is_done() {
        apart.work(&mut Thread, &mut 100).unwrap_or_else(|never| match never {});
        if let Some((_, answers)) = apart.report() {
            assert_eq!(answers.count(), 0);
        }
    }
    assert!(apart.desk().is_untidy() && !apart.is_busy(), "nobody has looked yet");
    apart.tidy();
    assert!(apart.is_busy() && apart.is_done(), "there is more, which does not hold the thread");
    let mut rounds = 1;
    while apart.is_busy() {
        apart.tidy();
        rounds += 1;
        assert!(rounds < puts);
    }
    assert!(1 < rounds && !apart.desk().is_untidy());
}

/// The clients that a batch takes along, with their tickets.
fn clients(batch: &Batch<u64>) -> Vec<(u64, u64)> {
    match batch {
        Batch::Tasks { clients, .. } => clients.iter().map(|(ticket, client)| (ticket.0, *client)).collect(),
        Batch::Tables(_) | Batch::Return => panic!("tasks"),
    }
}

#[test]
fn tasks_and_the_clients_that_wait_for_them_cross_over_together() {
    let mut waiting = Waiting::default();
    let tickets: Vec<Ticket> = (10..16).map(|client| waiting.enter(client)).collect();
    let of = |at: usize| tickets[at];
    let pin = KeeperTask::Pin { ticket: of(2), term: TERM, needs: LogIndex(0) };
    let members = KeeperTask::Members { ticket: of(0), term: TERM, needs: LogIndex(0) };
    let tasks = vec![
        read(of(3)),
        members,
        put(1, Some(of(1))),
        put(2, None),
        KeeperTask::Snapshot(Box::new(meta(2))),
        pin,
    ];
    let batch = Batch::of(tasks, &mut waiting);
    assert_eq!(clients(&batch), [(4, 13), (1, 10), (2, 11), (3, 12)], "in the tasks' order");
    let batch = Batch::of(vec![status(of(4)), weigh(of(5)), status(Ticket(99))], &mut waiting);
    assert_eq!(clients(&batch), [(5, 14), (6, 15)]);
    assert!(waiting.is_empty());
}

/// What is reported: the tasks done, the clients of commands that may be proposed, the clients that are answered.
type Reported = (usize, Vec<Option<u64>>, Vec<u64>);

fn reported(apart: &mut Apart<u64>) -> Option<Reported> {
    let (progress, answers) = apart.report()?;
    let answers = answers.map(|(client, _)| client).collect();
    Some((progress.tasks, progress.admitted.into_iter().map(|(_, client)| client).collect(), answers))
}

#[test]
fn each_client_gets_its_own_answer_whichever_comes_first() {
    let mut waiting = Waiting::default();
    let tickets: Vec<Ticket> = (10..15).map(|client| waiting.enter(client)).collect();
    let mut apart = Apart::new(keeper());
    assert!(!apart.is_busy() && apart.is_done() && reported(&mut apart).is_none());
    // The status and the weighing overtake the puts; the last answer is for nobody.
    let tasks = vec![
        put(1, Some(tickets[0])),
        put(2, Some(tickets[1])),
        weigh(tickets[2]),
        status(tickets[3]),
        put(3, Some(tickets[4])),
        put(4, Some(Ticket(99))),
    ];
    let batch = Batch::of(tasks, &mut waiting);
    assert!(apart.take_in(&mut Thread, batch).is_none());
    assert!(apart.is_busy() && !apart.is_done());
    assert_eq!(reported(&mut apart), Some((2, vec![Some(12)], vec![13])), "two tasks are done, four wait");
    apart.work(&mut Thread, &mut 1).unwrap_or_else(|never| match never {});
    assert_eq!(reported(&mut apart), Some((1, vec![], vec![10])));
    let rest: Vec<u64> = {
        // The process ends here in another world: these clients were not answered.
        let mut waiting = Waiting::default();
        let tickets: Vec<Ticket> = (20..24).map(|client| waiting.enter(client)).collect();
        let mut ended = Apart::new(keeper());
        let mut tasks: Vec<KeeperTask> = (1..=3).map(|at| put(at, Some(tickets[at as usize - 1]))).collect();
        tasks.push(status(tickets[3]));
        let batch = Batch::of(tasks, &mut waiting);
        ended.take_in(&mut Thread, batch);
        assert_eq!(reported(&mut ended), Some((1, vec![], vec![23])));
        let mut late = Waiting::default();
        late.enter(30);
        ended.take_in(&mut Thread, Batch::of(vec![put(4, Some(Ticket(1)))], &mut late));
        let mut rest: Vec<u64> = ended.abandon().collect();
        assert!(ended.abandon().next().is_none());
        rest.sort_unstable();
        rest
    };
    assert_eq!(rest, [20, 21, 22, 30]);
    apart.work(&mut Thread, &mut 100).unwrap_or_else(|never| match never {});
    let (progress, answers) = apart.report().expect("answers");
    assert_eq!((progress.tasks, answers.map(|(client, _)| client).collect()), (3, vec![11, 14]));
    let tickets: Vec<_> = progress.answers.into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(tickets, [Ticket(99)], "its client does not wait here");
    assert!(apart.is_done() && !apart.is_busy() && reported(&mut apart).is_none());
}

#[test]
fn tasks_that_wait_for_tables_are_not_reported_done_until_the_tables_have_come() {
    let mut apart: Apart<u64> = Apart::new(keeper());
    let mut waiting = Waiting::default();
    let ticket = waiting.enter(10);
    let tasks = vec![put(1, None), KeeperTask::Install(Box::new(meta(2))), put(3, Some(ticket))];
    let batch = Batch::of(tasks, &mut waiting);
    apart.take_in(&mut Thread, batch);
    apart.work(&mut Thread, &mut 100).unwrap_or_else(|never| match never {});
    assert!(matches!(apart.order(), Some(Order::Thaw(of)) if of == meta(2)));
    assert!(apart.order().is_none());
    assert_eq!(reported(&mut apart), Some((2, vec![], vec![])));
    let old = apart.take_in(&mut Thread, Batch::Tables(Box::new(tables(2)))).expect("no longer needed");
    assert_eq!(old.applied(), LogIndex(1));
    assert!(apart.is_busy());
    apart.work(&mut Thread, &mut 100).unwrap_or_else(|never| match never {});
    assert_eq!(reported(&mut apart), Some((1, vec![], vec![10])));
    assert_eq!(apart.desk().keeper().applied(), LogIndex(3));
}

#[test]
fn a_client_is_answered_with_what_its_own_task_found() {
    let mut waiting = Waiting::default();
    let tickets: Vec<Ticket> = (10..13).map(|client| waiting.enter(client)).collect();
    let mut apart = Apart::new(keeper());
    let tasks = vec![read(tickets[0]), put(1, Some(tickets[1])), read(tickets[2])];
    let batch = Batch::of(tasks, &mut waiting);
    apart.take_in(&mut Thread, batch);
    apart.work(&mut Thread, &mut 100).unwrap_or_else(|never| match never {});
    let (_, answers) = apart.report().expect("answers");
    let revisions: Vec<(u64, i64)> = answers
        .map(|(client, outcome)| match outcome {
            Outcome::Done(reply) => match reply.body {
                ReplyBody::Kv(answer) => (client, answer.revision.0),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(revisions, [(10, 1), (11, 2), (12, 2)]);
}
