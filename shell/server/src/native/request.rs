//! Request: from a client's message to a request for the replica, or to the answer that it has at once.
//!
//! A command is checked here, before anything is proposed, and copied once: the bytes that the client sent are those of the
//! log.
//! Knows nothing of: connections, how the replica carries out a request.

use super::puts::Puts;
use crate::face::FaceConfig;
use crate::gate;
use kattu_kv::api::{Command as StoreCommand, Error, Operation, Query, Txn};
use kattu_kv::check::{self, CheckLimits};
use kattu_kv::sessions::Order;
use kattu_native::VERSION_WEAK;
use kattu_native::frame::Message;
use kattu_native::message::{Level, Request};
use kattu_native::reply::{LISTED_MAX, Refusal};
use kattu_node::command::{self, Command};
use kattu_node::contract::{self, CommandBytes, Consistency};
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_raft::{Duration, LogIndex};

/// What a member does with a request.
#[derive(Debug)]
pub(crate) enum Judged<'a> {
    /// It asks the replica this.
    Ask(contract::Request, Kind),
    /// It asks the replica to put this, together with others.
    Put(&'a [u8]),
    /// It looks this key up, together with others.
    LookUp(&'a [u8], Consistency),
    /// It answers at once: the store would refuse this whatever it holds.
    Invalid(Error),
    /// It refuses at once.
    Refused(Refusal),
    /// It answers at once.
    Pong,
    /// It opens a session, if the connection may have another one.
    Open(Order),
    /// It cannot read the request, or the request may not be made so.
    Malformed,
}

/// What its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A write: without an answer its outcome is unknown.
    Write,
    /// A write whose result is not wanted.
    CommitOnly,
    /// A command in a session whose cost is checked first: commands behind it must not overtake it.
    WeighedInSession,
    Read,
    /// A list of sessions, from this one on, with so many at most.
    Sessions {
        from: u64,
        count: usize,
    },
}

/// Judges a request on a connection of this version. An unreadable one is [`Judged::Malformed`], and so is one that this version
/// does not have.
pub(crate) fn judge<'a>(message: &Message<'a>, version: u16, config: &FaceConfig) -> Judged<'a> {
    match Request::read(message) {
        Err(_) => Judged::Malformed,
        Ok(Request::Ping) => Judged::Pong,
        Ok(Request::Open(order)) => Judged::Open(order),
        Ok(Request::Write { commit_only, command }) => judge_write(commit_only, command, config),
        Ok(Request::Weak(_)) if version < VERSION_WEAK => Judged::Malformed,
        Ok(Request::Weak(command)) => judge_weak(command, config),
        Ok(Request::KeepAlive(alive)) if alive.iter().all(|(_, first)| *first != 0) => {
            about_sessions(&SessionCommand::KeepAlive(alive))
        }
        Ok(Request::KeepAlive(_)) => Judged::Malformed,
        // In the log, a close of no session is an end by an operator.
        Ok(Request::Close(ids)) if !ids.is_empty() => about_sessions(&SessionCommand::Close(ids)),
        Ok(Request::Close(_)) => Judged::Malformed,
        Ok(Request::Expel(number)) => about_sessions(&SessionCommand::Expel(number)),
        Ok(Request::Sessions { from, count }) => {
            let count = usize::try_from(count).unwrap_or(LISTED_MAX).min(LISTED_MAX);
            Judged::Ask(contract::Request::Pin(Consistency::Linearizable), Kind::Sessions { from, count })
        }
        Ok(Request::Read { level, query }) => judge_read(level, query, config),
    }
}

/// The request that opens a session.
pub(crate) fn open(secret: u64, order: Order) -> contract::Request {
    contract::Request::Write(SessionCommand::Register { secret, order }.encode().into())
}

fn about_sessions(command: &SessionCommand) -> Judged<'static> {
    Judged::Ask(contract::Request::Write(command.encode().into()), Kind::Write)
}

fn judge_write<'a>(commit_only: bool, bytes: &'a [u8], config: &FaceConfig) -> Judged<'a> {
    if config.request_bytes_max < bytes.len() {
        return Judged::Refused(Refusal::RequestTooLarge);
    }
    let (is_in_session, of_store) = match SessionHeader::take(bytes) {
        Some((_, command)) => (true, command),
        None => (false, bytes),
    };
    if commit_only && is_in_session {
        return Judged::Malformed; // its result must be kept, and told
    }
    let (kind, write): (_, fn(CommandBytes) -> _) = match commit_only {
        true => (Kind::CommitOnly, contract::Request::CommitOnly),
        false => (Kind::Write, contract::Request::Write),
    };
    // Most commands are puts, and are only looked at.
    if let Some(put) = command::put_of_store(of_store).filter(|put| !put.ignore_value) {
        return match check::check_put(put) {
            Ok(()) if !commit_only && Puts::takes(bytes) => Judged::Put(bytes),
            Ok(()) => Judged::Ask(write(bytes.to_vec().into()), kind),
            Err(error) => invalid(error, is_in_session),
        };
    }
    let store_command = match Command::decode(bytes) {
        Ok(Command::Kv(command) | Command::InSession { work_max: None, command, .. }) => command,
        // A budget is the member's to give; all other commands are no client's, or have requests of their own.
        _ => return Judged::Malformed,
    };
    if let Err(error) = check_command(&store_command, config) {
        return invalid(error, is_in_session);
    }
    match command::request(store_command, bytes.to_vec()) {
        contract::Request::Write(bytes) => Judged::Ask(write(bytes), kind),
        request if is_in_session => Judged::Ask(request, Kind::WeighedInSession),
        request => Judged::Ask(request, kind),
    }
}

/// Which commands may be answered weakly: those of a session whose answer says no more than that they are done.
fn judge_weak<'a>(bytes: &'a [u8], config: &FaceConfig) -> Judged<'a> {
    if config.request_bytes_max < bytes.len() {
        return Judged::Refused(Refusal::RequestTooLarge);
    }
    let checked = match Command::decode(bytes) {
        Ok(Command::InSession { work_max: None, command, .. }) => match command {
            StoreCommand::Put(put) if !put.prev_kv && !put.ignore_value => check::check_put(put.as_ref()),
            StoreCommand::DeleteRange(delete) if !delete.prev_kv && delete.keys.end.is_empty() => {
                check::check_delete_range(&delete)
            }
            _ => return Judged::Refused(Refusal::MayNotBeWeak),
        },
        Ok(Command::Kv(_)) => return Judged::Refused(Refusal::MayNotBeWeak),
        _ => return Judged::Malformed,
    };
    match checked {
        Ok(()) => Judged::Ask(contract::Request::Weak(bytes.to_vec().into()), Kind::Write),
        Err(error) => invalid(error, true),
    }
}

/// In a session an error of the store would be the answer of this number, which the log does not know.
fn invalid(error: Error, is_in_session: bool) -> Judged<'static> {
    if is_in_session { Judged::Refused(Refusal::Invalid) } else { Judged::Invalid(error) }
}

fn check_command(command: &StoreCommand, config: &FaceConfig) -> Result<(), Error> {
    match command {
        StoreCommand::Put(put) => check::check_put(put.as_ref()),
        StoreCommand::DeleteRange(delete) => check::check_delete_range(delete),
        StoreCommand::Txn(txn) => check_txn(txn, config),
        StoreCommand::Compact(_) => Ok(()),
    }
}

fn check_txn(txn: &Txn, config: &FaceConfig) -> Result<(), Error> {
    if gate::in_all_max(config.max_txn_ops) < in_all(txn) {
        return Err(Error::TooManyOps);
    }
    check::check_txn(txn, &CheckLimits { txn_ops_max: config.max_txn_ops, ..CheckLimits::default() })
}

/// Compares and operations of a transaction, those of nested ones included.
fn in_all(txn: &Txn) -> usize {
    let nested = txn.success.iter().chain(&txn.failure).map(|operation| match operation {
        Operation::Txn(nested) => 1 + in_all(nested),
        Operation::Range(_) | Operation::Put(_) | Operation::DeleteRange(_) => 1,
    });
    txn.compare.len() + nested.sum::<usize>()
}

fn judge_read<'a>(level: Level, query: &'a [u8], config: &FaceConfig) -> Judged<'a> {
    if config.request_bytes_max < query.len() {
        return Judged::Refused(Refusal::RequestTooLarge);
    }
    let consistency = match level {
        Level::Linearizable => Consistency::Linearizable,
        Level::AtLeast(index) => Consistency::AtLeast(LogIndex(index)),
        Level::Bounded(nanos) => Consistency::Bounded(Duration::from_nanos(nanos)),
        Level::Serializable => Consistency::Serializable,
    };
    if let Some(key) = Query::key_in(query).filter(|key| !key.is_empty()) {
        return Judged::LookUp(key, consistency);
    }
    let Ok(query) = Query::decode(query) else { return Judged::Malformed };
    let checked = match &query {
        Query::Range(range) => check::check_range(range),
        Query::Txn(txn) => check_txn(txn, config),
    };
    match checked {
        Ok(()) => Judged::Ask(contract::Request::Read(query, consistency), Kind::Read),
        Err(error) => Judged::Invalid(error),
    }
}

/// A name for a session that nobody can guess.
pub(crate) fn secret() -> std::io::Result<u64> {
    let mut secret = [0; 8];
    let mut filled = 0;
    while filled < secret.len() {
        filled += rustix::rand::getrandom(&mut secret[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(u64::from_le_bytes(secret))
}
