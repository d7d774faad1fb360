//! Load: operations that begin when they should, and how long each took.
//!
//! Knows nothing of: reports.

use super::{BenchArgs, Operation, Score};
use crate::ended;
use indicatif::{ProgressBar, ProgressStyle};
use kattu_client::{Client, Error, Level, NativeClient, Pipe, Session, SessionOptions};
use kattu_output::Ended;
use kattu_proto::etcdserverpb as pb;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often the progress bar moves.
const BAR_PERIOD: Duration = Duration::from_millis(100);

/// Bytes around a key and a value in a command, and more.
const COMMAND_BYTES: u64 = 256;

/// The order in which keys are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Random,
}

/// A load under way.
struct Load {
    args: BenchArgs,
    order: Order,
    begin: Instant,
    score: RefCell<Score>,
}

/// Where operations of the native protocol go.
enum Target {
    Client(NativeClient),
    Session(Rc<Session>),
}

/// An operation that is to be begun.
#[derive(Clone, Copy)]
struct Next {
    /// Of its key.
    number: u64,
    writes: bool,
    /// When it should begin, in an open loop.
    due: Option<Instant>,
}

impl Load {
    /// The next operation, if there is one more.
    fn next(&self) -> Option<Next> {
        let number = {
            let mut score = self.score.borrow_mut();
            if score.begun == self.args.total {
                return None;
            }
            score.begun += 1;
            score.begun - 1
        };
        let place = match self.order {
            Order::Ascending => number,
            Order::Random => scramble(number),
        };
        let writes = match self.args.operation {
            Operation::Put => true,
            Operation::Range => false,
            Operation::Mixed => number.is_multiple_of(2),
        };
        let after = |rate: u32| Duration::from_nanos(number.saturating_mul(1_000_000_000) / u64::from(rate));
        let due = self.args.rate.map(|rate| self.begin + after(rate));
        Some(Next { number: place % self.args.key_space, writes, due })
    }

    /// A client goes on after a weak write that took so long.
    fn accept(&self, latency: Duration, is_received: bool) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let weak = &mut self.score.borrow_mut().weak;
        weak.latencies_us.saturating_record(micros.max(1));
        weak.received += u64::from(is_received);
        weak.last = self.begin.elapsed();
    }

    fn record(&self, latency: Duration, error: Option<Error>) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let mut score = self.score.borrow_mut();
        match error {
            None => score.latencies_us.saturating_record(micros.max(1)),
            Some(error) => {
                score.errors += 1;
                score.first_error.get_or_insert(error);
            }
        }
    }
}

/// Runs `total` operations and waits for all; how long they took.
pub(super) async fn load(
    args: &BenchArgs,
    order: Order,
    what: &'static str,
) -> Result<(Score, Duration), Ended> {
    let score = RefCell::new(Score::new()?);
    let clients = args.clients as usize;
    let mut running = JoinSet::new();
    let mut sessions = Vec::new();
    let load = |begin| Rc::new(Load { args: args.clone(), order, begin, score });
    let load = match args.native {
        false => {
            let connections = etcd_connections(args).await?;
            let load = load(Instant::now());
            for client in 0..clients {
                let connection = connections[client % connections.len()].clone();
                running.spawn_local(ask_again_and_again(connection, load.clone()));
            }
            load
        }
        true => {
            let connections = native_connections(args).await?;
            sessions = open_sessions(args, &connections).await?;
            let mut targets: Vec<Target> = match sessions.is_empty() {
                true => connections.into_iter().map(Target::Client).collect(),
                false => sessions.iter().cloned().map(Target::Session).collect(),
            };
            let load = load(Instant::now());
            let pipes = targets.len();
            if args.session_each {
                for target in targets.iter().cycle().take(clients) {
                    let Target::Client(client) = target else { continue };
                    running.spawn_local(ask_in_sessions(client.clone(), load.clone()));
                }
                targets.clear();
            }
            for (number, target) in targets.into_iter().enumerate().take(clients) {
                running.spawn_local(ask_much(target, depth(args, number, pipes), load.clone()));
            }
            load
        }
    };
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {per_sec}");
    let bar = ProgressBar::new(args.total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    let watching = tokio::task::spawn_local(watch(bar.clone(), load.clone()));
    while running.join_next().await.is_some() {}
    let took = load.begin.elapsed();
    watching.abort();
    bar.finish_and_clear();
    for session in &sessions {
        let _ = session.close().await; // else it ends by itself
    }
    let score = std::mem::replace(&mut *load.score.borrow_mut(), Score::new()?);
    Ok((score, took))
}

/// How many operations are under way together in one of some pipes, which the clients share in turn: as many as a pipe has
/// room for, since to wait for room would count as latency.
fn depth(args: &BenchArgs, number: usize, pipes: usize) -> usize {
    let clients = (args.clients as usize).saturating_sub(number).div_ceil(pipes);
    let kib = (args.key_size.saturating_add(args.val_size).saturating_add(COMMAND_BYTES)) / 1024 + 1;
    let kib_max = (Pipe::BYTES_MAX >> 10) as u64;
    let most =
        usize::try_from(kib_max / kib).map_or(Pipe::REQUESTS_MAX, |most| most.clamp(1, Pipe::REQUESTS_MAX));
    (clients * args.pipeline as usize).min(most)
}

/// Shows how far the load is.
async fn watch(bar: ProgressBar, load: Rc<Load>) {
    loop {
        tokio::time::sleep(BAR_PERIOD).await;
        bar.set_position(load.score.borrow().begun);
    }
}

/// Connections that are open.
async fn etcd_connections(args: &BenchArgs) -> Result<Vec<Client>, Ended> {
    let connections: Vec<Client> = (0..args.conns)
        .map(|number| {
            let client = args.reach.client()?;
            client.begin_at(number as usize);
            Ok(client)
        })
        .collect::<Result<_, Ended>>()?;
    open_all(&connections).await;
    Ok(connections)
}

/// The same, of the native protocol.
async fn native_connections(args: &BenchArgs) -> Result<Vec<NativeClient>, Ended> {
    let level = if args.serializable { Level::Serializable } else { Level::Linearizable };
    let connections: Vec<NativeClient> = (0..args.conns)
        .map(|_| Ok(args.reach.native_client()?.at_level(level.clone())))
        .collect::<Result<_, Ended>>()?;
    let mut pinged = JoinSet::new();
    for connection in &connections {
        let connection = connection.clone();
        pinged.spawn_local(async move { connection.ping().await });
    }
    for pong in pinged.join_all().await {
        pong.map_err(|error| ended::of_error(&error))?;
    }
    Ok(connections)
}

/// Sessions, on connections in turn.
async fn open_sessions(args: &BenchArgs, connections: &[NativeClient]) -> Result<Vec<Rc<Session>>, Ended> {
    let count = args.sessions() as usize;
    let mut sessions = Vec::new();
    for number in 0..count {
        // It has room for all that its clients have under way.
        let window = match args.weak {
            true => Pipe::REQUESTS_MAX,
            false => depth(args, number, count).max(1),
        };
        let options = SessionOptions { window, ..SessionOptions::default() };
        let connection = &connections[number % connections.len()];
        let session = connection.open_session(options).await.map_err(|error| ended::of_error(&error))?;
        session.on_lost(|_| ()); // counted where its outcome comes
        sessions.push(Rc::new(session));
    }
    Ok(sessions)
}

/// Opens all connections, by reading an unused key on each. Where that fails, the first operation reports it.
async fn open_all(connections: &[Client]) {
    let mut asked = JoinSet::new();
    for connection in connections {
        let connection = connection.clone();
        asked.spawn_local(async move {
            let range = pb::RangeRequest { key: vec![0], serializable: true, ..Default::default() };
            let _ = connection.range(range).await;
        });
    }
    while asked.join_next().await.is_some() {}
}

/// A client of etcd's API, with one operation under way.
async fn ask_again_and_again(client: Client, load: Rc<Load>) {
    let args = &load.args;
    while let Some(Next { number, writes, due }) = load.next() {
        let mut key = vec![0; args.key_size as usize];
        write_key(number, &mut key);
        let start = due.unwrap_or_else(Instant::now);
        if Instant::now() < start {
            tokio::time::sleep_until(start.into()).await;
        }
        let outcome = match writes {
            true => {
                let value = vec![b'x'; args.val_size as usize];
                client.put(pb::PutRequest { key, value, ..Default::default() }).await.map(drop)
            }
            false => {
                let serializable = args.serializable;
                client.range(pb::RangeRequest { key, serializable, ..Default::default() }).await.map(drop)
            }
        };
        load.record(start.elapsed(), outcome.err().map(Error::from));
    }
}

/// A client of the native protocol with one operation under way; each write is in a session of its own, whose beginning and end
/// count.
async fn ask_in_sessions(client: NativeClient, load: Rc<Load>) {
    let args = &load.args;
    while let Some(Next { number, writes, due }) = load.next() {
        let mut key = vec![0; args.key_size as usize];
        write_key(number, &mut key);
        let start = due.unwrap_or_else(Instant::now);
        if Instant::now() < start {
            tokio::time::sleep_until(start.into()).await;
        }
        let outcome = match writes {
            true => put_in_session(&client, key, vec![b'x'; args.val_size as usize]).await,
            false => client.get(key).await.map(drop),
        };
        load.record(start.elapsed(), outcome.err());
    }
}

async fn put_in_session(client: &NativeClient, key: Vec<u8>, value: Vec<u8>) -> Result<(), Error> {
    let session = client.open_session(SessionOptions::default()).await?;
    let put = session.put(key, value).await;
    let outcome = match put {
        Ok(pending) => pending.await.map(drop),
        Err(error) => Err(error),
    };
    outcome.and(session.close().await)
}

/// Clients that share a connection, or a session, are one pipe with the operations of all of them under way.
async fn ask_much(target: Target, depth: usize, load: Rc<Load>) {
    match target {
        Target::Client(client) => keep_full(client.pipe(), depth, &load).await,
        Target::Session(session) => keep_full(session.pipe(), depth, &load).await,
    }
}

/// Clients of the native protocol that wait for so many operations together; weak writes after which they went on are under way
/// still. The label of each operation is its start, in nanoseconds since that of the load: when it is sent, or when it should have been.
async fn keep_full(mut pipe: Pipe<'_>, depth: usize, load: &Load) {
    let is_weak = load.args.weak;
    let value = vec![b'x'; load.args.val_size as usize];
    let mut key = vec![0; load.args.key_size as usize];
    let since_begin = |at: Instant| at.saturating_duration_since(load.begin);
    // The labels of those that a quorum has received, which need a label each.
    let mut received = BTreeSet::new();
    let mut last = 0;
    let mut next = load.next();
    while next.is_some() || 0 < pipe.under_way() {
        let has_room = |under_way: usize, received: usize| {
            under_way - received < depth && under_way < Pipe::REQUESTS_MAX
        };
        while let Some(Next { number, writes, due }) = next
            && has_room(pipe.under_way(), received.len())
            && let Some(start) = start(due, Instant::now())
        {
            let start = since_begin(start);
            last = u64::try_from(start.as_nanos()).unwrap_or(u64::MAX).max(last + 1);
            write_key(number, &mut key);
            let given = match writes {
                true if is_weak => pipe.put_weak(last, &key[..], &value[..]).await,
                true => pipe.put(last, &key, &value).await,
                false => pipe.get(last, &key[..]).await,
            };
            if let Err(error) = given {
                load.record(since_begin(Instant::now()).saturating_sub(start), Some(error));
            }
            next = load.next();
        }
        let due = next.filter(|_| has_room(pipe.under_way(), received.len())).and_then(|next| next.due);
        tokio::select! {
            outcomes = async { pipe.outcomes().await.collect::<Vec<_>>() }, if 0 < pipe.under_way() => {
                let now = since_begin(Instant::now());
                let after = |label| now.saturating_sub(Duration::from_nanos(label));
                for label in pipe.received() {
                    received.insert(label);
                    load.accept(after(label), true);
                }
                for (label, outcome) in outcomes {
                    if is_weak {
                        let was_received = received.remove(&label);
                        if !was_received && outcome.is_ok() {
                            load.accept(after(label), false);
                        }
                        load.score.borrow_mut().weak.lost += u64::from(was_received && outcome.is_err());
                    }
                    load.record(after(label), outcome.err());
                }
            }
            () = sleep_until(due), if due.is_some() => {}
            else => {}
        }
    }
}

/// From when on a latency counts, if the operation is to begin now: each one's own moment, since a turn that gives many
/// takes a while.
fn start(due: Option<Instant>, now: Instant) -> Option<Instant> {
    match due {
        None => Some(now),
        Some(due) => (due <= now).then_some(due),
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// A number that looks random, different for every number. [Steele14: splitmix64]
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Writes a number as a key of this many bytes; its last digits if it has more.
fn write_key(mut number: u64, key: &mut [u8]) {
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn args(line: &str) -> BenchArgs {
        let words = format!("bench put --native {line}");
        <Line as clap::Parser>::parse_from(words.split_whitespace()).args
    }

    #[test]
    fn the_clients_share_pipes_in_turn_and_none_waits_for_room() {
        let depths = |line: &str, pipes: usize| -> Vec<usize> {
            (0..pipes).map(|number| depth(&args(line), number, pipes)).collect()
        };
        for (line, expected) in [
            ("--clients 4 --pipeline 10", [20, 20]),
            ("--clients 3 --pipeline 10", [20, 10]),
            ("--clients 1 --pipeline 10", [10, 0]),
            ("--clients 8 --pipeline 4096", [4096, 4096]),
            ("--clients 2 --pipeline 128 --val-size 1048576", [63, 63]),
            ("--clients 2 --pipeline 2 --val-size 1000000000", [1, 1]),
        ] {
            assert_eq!(depths(line, 2), expected, "{line}");
        }
    }

    #[test]
    fn a_latency_counts_from_the_sending_and_at_a_rate_from_when_it_should_have_been() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(start(None, at(7)), Some(at(7)));
        assert_eq!(start(Some(at(5)), at(7)), Some(at(5)));
        assert_eq!(start(Some(at(5)), at(5)), Some(at(5)));
        assert_eq!(start(Some(at(5)), at(4)), None);
    }

    #[test]
    fn weak_writes_are_in_sessions_one_of_each_client_unless_it_is_said() {
        for (line, sessions) in [("", 0), ("--clients 8 --weak", 8), ("--clients 8 --weak --sessions 2", 2)] {
            assert_eq!(args(line).sessions(), sessions, "{line}");
        }
    }

    #[test]
    fn keys_have_exactly_the_size_asked_for() {
        for (number, key) in [(42, &b"00000042"[..]), (123_456, b"456"), (0, b"0"), (u64::MAX, b"1615")] {
            let mut written = vec![b'x'; key.len()];
            write_key(number, &mut written);
            assert_eq!(written, key);
        }
    }

    #[test]
    fn scrambled_numbers_differ() {
        let mut seen: Vec<u64> = (0..1000).map(scramble).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }
}
