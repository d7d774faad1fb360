//! Load: operations that begin when they should, and how long each took.
//!
//! Knows nothing of: reports.

use super::{BenchArgs, Operation, Score};
use crate::ended;
use indicatif::{ProgressBar, ProgressStyle};
use kattu_client::{Client, Error, Level, NativeClient, Session, SessionOptions};
use kattu_output::Ended;
use kattu_proto::etcdserverpb as pb;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often the progress bar moves.
const BAR_PERIOD: Duration = Duration::from_millis(100);

/// The order in which keys are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Random,
}

/// Where one client sends its operations.
#[derive(Clone)]
enum Target {
    Etcd(Client),
    Native(NativeClient),
    InSession(Rc<Session>, NativeClient),
}

impl Target {
    async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Error> {
        match self {
            Target::Etcd(client) => {
                let put = pb::PutRequest { key, value, ..Default::default() };
                client.put(put).await.map(drop).map_err(Error::from)
            }
            Target::Native(client) => client.put(key, value).await.map(drop),
            Target::InSession(session, _) => session.put(key, value).await?.await.map(drop),
        }
    }

    async fn read(&self, key: Vec<u8>, serializable: bool) -> Result<(), Error> {
        match self {
            Target::Etcd(client) => {
                let range = pb::RangeRequest { key, serializable, ..Default::default() };
                client.range(range).await.map(drop).map_err(Error::from)
            }
            Target::Native(client) | Target::InSession(_, client) => client.get(key).await.map(drop),
        }
    }
}

/// Runs `total` operations and waits for all; how long they took.
pub(super) async fn load(
    args: &BenchArgs,
    order: Order,
    what: &'static str,
) -> Result<(Score, Duration), Ended> {
    let score = Rc::new(RefCell::new(Score::new()?));
    let targets = targets(args).await?;
    let start = Instant::now();
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {per_sec}");
    let bar = ProgressBar::new(args.total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    let watching = tokio::task::spawn_local({
        let (bar, score) = (bar.clone(), score.clone());
        async move {
            loop {
                tokio::time::sleep(BAR_PERIOD).await;
                bar.set_position(score.borrow().begun);
            }
        }
    });
    let mut clients = JoinSet::new();
    let args = Rc::new(args.clone());
    for target in &targets {
        for _ in 0..args.pipeline {
            let (target, args, score) = (target.clone(), Rc::clone(&args), Rc::clone(&score));
            clients.spawn_local(ask_again_and_again(target, args, order, start, score));
        }
    }
    while clients.join_next().await.is_some() {}
    let took = start.elapsed();
    watching.abort();
    bar.finish_and_clear();
    for target in &targets {
        if let Target::InSession(session, _) = target {
            let _ = session.close().await; // another client of it may have closed it; else it ends by itself
        }
    }
    let score = std::mem::replace(&mut *score.borrow_mut(), Score::new()?);
    Ok((score, took))
}

/// A target for each client, on connections that are open.
async fn targets(args: &BenchArgs) -> Result<Vec<Target>, Ended> {
    let clients = args.clients as usize;
    if !args.native {
        let connections: Vec<Client> = (0..args.conns)
            .map(|number| {
                let client = args.reach.client()?;
                client.begin_at(number as usize);
                Ok(client)
            })
            .collect::<Result<_, Ended>>()?;
        open_all(&connections).await;
        return Ok((0..clients)
            .map(|it| Target::Etcd(connections[it % connections.len()].clone()))
            .collect());
    }
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
    let mut sessions = Vec::new();
    // A session has room for all that its clients have under way.
    let of_each = (clients * args.pipeline as usize).div_ceil(args.sessions.max(1) as usize);
    let options = SessionOptions { window: of_each.clamp(1, WINDOW_MAX), ..SessionOptions::default() };
    for number in 0..args.sessions as usize {
        let connection = connections[number % connections.len()].clone();
        let session = connection.open_session(options).await.map_err(|error| ended::of_error(&error))?;
        sessions.push((Rc::new(session), connection));
    }
    let target = |number: usize| match sessions.len() {
        0 => Target::Native(connections[number % connections.len()].clone()),
        count => {
            let (session, connection) = sessions[number % count].clone();
            Target::InSession(session, connection)
        }
    };
    Ok((0..clients).map(target).collect())
}

/// Most commands of a session without an answer.
const WINDOW_MAX: usize = 4096;

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

async fn ask_again_and_again(
    target: Target,
    args: Rc<BenchArgs>,
    order: Order,
    begin: Instant,
    score: Rc<RefCell<Score>>,
) {
    loop {
        let number = {
            let mut score = score.borrow_mut();
            if score.begun == args.total {
                return;
            }
            score.begun += 1;
            score.begun - 1
        };
        let place = match order {
            Order::Ascending => number,
            Order::Random => scramble(number),
        };
        let key = key_of(place % args.key_space, args.key_size as usize);
        let start = match args.rate {
            None => Instant::now(),
            Some(rate) => {
                let intended =
                    begin + Duration::from_nanos(number.saturating_mul(1_000_000_000) / u64::from(rate));
                if Instant::now() < intended {
                    tokio::time::sleep_until(intended.into()).await;
                }
                intended
            }
        };
        let writes = match args.operation {
            Operation::Put => true,
            Operation::Range => false,
            Operation::Mixed => number.is_multiple_of(2),
        };
        let outcome = match writes {
            true => target.put(key, vec![b'x'; args.val_size as usize]).await,
            false => target.read(key, args.serializable).await,
        };
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut score = score.borrow_mut();
        match outcome {
            Ok(()) => score.latencies_us.saturating_record(micros.max(1)),
            Err(error) => {
                score.errors += 1;
                score.first_error.get_or_insert(error);
            }
        }
    }
}

/// A number that looks random, different for every number. [Steele14: splitmix64]
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A number as a key of exactly `size` bytes; its last digits if it has more.
fn key_of(number: u64, size: usize) -> Vec<u8> {
    let digits = format!("{number:0size$}");
    digits.as_bytes()[digits.len() - size..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_exactly_the_size_asked_for() {
        assert_eq!(key_of(42, 8), b"00000042");
        assert_eq!(key_of(123_456, 3), b"456");
        assert_eq!(key_of(0, 1), b"0");
    }

    #[test]
    fn scrambled_numbers_differ() {
        let mut seen: Vec<u64> = (0..1000).map(scramble).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }
}
